"""What Whisper's words must obey so that timestamps come in pairs around texts and do not go back.

Words from `begin` on are timestamps. The rules are those of OpenAI's decoder (`ApplyTimestampRules`), as ONNX
Runtime has them: they speak of the first timestamp, the last one and the last two words.
"""

from __future__ import annotations

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass

#: How many timestamps the first one may be chosen of, less one.
FIRST = 50


@dataclass(frozen=True)
class Timestamps:
    """The words with a meaning of their own, and whether timestamps are wanted: int32 without axes, 1 for
    yes."""

    wanted: Value
    end: int
    begin: int
    never: tuple[int, ...]
    not_later: tuple[int, ...]  # than the first timestamp

    def of(self, b: Builder, words: Value, scores: Value, forbidden: float) -> Value:
        """The scores [rows, vocabulary] that the words so far [rows, length] leave."""
        ruled = b.map(scores, self._hidden(b, words, scores), lambda s, h: expr.where(h, forbidden, s))
        ruled = self._likelier(b, ruled, forbidden)
        return b.map(scores, ruled, self.wanted, lambda s, r, w: expr.where(w.equals(1), r, s))

    def _hidden(self, b: Builder, words: Value, scores: Value) -> Value:
        """bool: which words must not come next."""
        length = words.shape[1]
        stamps = b.map(words, lambda w: w >= self.begin)
        place = expr.index(1)
        size = expr.size(length)
        stamped = expr.input_(0, "bool")
        firsts = b.emit(ops.Map(expr.where(stamped, place + 1, size), words.shape), stamps)[0]
        lasts = b.emit(ops.Map(expr.where(stamped, place, expr.const(-1, "int64")), words.shape), stamps)[0]
        first = b.reduce("min", firsts, [1], True)  # how many words there are up to the first timestamp
        last = b.reduce("max", lasts, [1], True)  # where the last timestamp is, -1 where there is none
        value = b.emit(ops.Gather("elements", 1), words, b.map(last, lambda n: n.maximum(0)))[0]
        pair = b.take(stamps, 1, dims.maximum(length - 2, 0), 1)
        return b.emit(ops.Map(self._rule(size), scores.shape), first, last, value, pair)[0]

    def _rule(self, length: Expr) -> Expr:
        """Of a word, by where the first and the last timestamp are, what the last one is, and whether the
        last word but one is one."""
        word, first, last = expr.index(1), expr.input_(0, "int64"), expr.input_(1, "int64")
        value, pair = expr.input_(2, "int32").cast("int64"), expr.input_(3, "bool")
        at_end = last.equals(length - 1)
        paired = (length <= first) | pair
        hidden = expr.const(False, "bool")
        for number in self.never:
            hidden = hidden | word.equals(number)
        for number in self.not_later:
            hidden = hidden | (word.equals(number) & (length > first))
        hidden = hidden | (at_end & paired & (word >= self.begin)) | (at_end & ~paired & (word < self.end))
        least = expr.where(at_end & ~paired, value, value + 1)
        hidden = hidden | ((last >= 0) & (word >= self.begin) & (word < least))
        return hidden | (length.equals(first) & (word > self.begin + FIRST))

    def _likelier(self, b: Builder, scores: Value, forbidden: float) -> Value:
        """Scores; where all timestamps together are likelier than every other word, of them alone."""
        count = scores.shape[1]
        stamps = b.take(scores, 1, self.begin, count - self.begin)
        greatest = b.reduce("max", stamps, [1], True)
        shares = b.map(
            stamps,
            greatest,
            lambda s, g: expr.where(s > forbidden, expr.exp(s - g), expr.const(0, "float32")),
        )
        total = b.map(
            b.reduce("sum", shares, [1], True),
            greatest,
            lambda t, g: expr.where(t > 0, expr.log(t) + g, forbidden),
        )
        text = b.reduce("max", b.take(scores, 1, 0, self.begin), [1], True)
        body = expr.where(
            (expr.input_(1, "float32") > expr.input_(2, "float32")) & (expr.index(1) < self.begin),
            forbidden,
            expr.input_(0, "float32"),
        )
        return b.emit(ops.Map(body, scores.shape), scores, total, text)[0]
