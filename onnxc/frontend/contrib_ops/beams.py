"""How a beam search chooses: the best continuations of several beams at once, of each entry of the batch.

A beam that ends becomes a hypothesis, whose score is the sum of its words' log-probabilities over a power of
its length. An entry keeps as many hypotheses as beams, and is done when its beams can become no better. Rows
are beams: row `entry * beams + beam`.
"""

from __future__ import annotations

import math

from ...ir import expr, ops
from ...ir.dims import Dimension
from ...ir.graph import Value
from ...records import dataclass
from ..onnx_ops.common import generate, insert_axes, zeros
from ..onnx_ops.movement import padded
from ..onnx_ops.reductions import log_softmax
from ..rule_builder import RuleBuilder
from .logits import Limits
from .networks import picked
from .searches import Chosen

#: The score of all beams of an entry but the first, in the beginning: they do not differ yet.
SAME = -1e9


@dataclass(frozen=True)
class Beams:
    """It carries the beams' scores [batch, beams], the words of the best hypotheses, padded [batch, beams,
    most], their scores, best first and -inf where there is none yet [batch, beams], and which entries are
    done."""

    limits: Limits
    end: int
    padding: int
    beams: Dimension
    most: Dimension
    length_penalty: Value | None
    early: bool
    collects: bool

    def start(self, b: RuleBuilder, rows: Dimension) -> list[Value]:
        size = (rows, self.beams)
        first = generate(b, size, expr.where(expr.index(1).equals(0), expr.const(0, "float32"), SAME))
        none = zeros(b, "int32", (*size, self.most), self.padding)
        return [first, none, zeros(b, "float32", size, -math.inf), zeros(b, "bool", (rows, 1))]

    def choose(self, b: RuleBuilder, scores: Value, words: Value, own: list[Value], first: bool) -> Chosen:
        sums, kept, kept_scores, done = own
        batch, vocabulary = sums.shape[0], scores.shape[1]
        scores = self.limits.of(b, words, log_softmax(b, scores, [1]), first)
        each = b.reshape(scores, (batch, 1 if first else self.beams, vocabulary))
        whole = b.map(each, insert_axes(b, sums, [2]), lambda s, t: s + t)
        flat = b.reshape(whole, (batch, self.beams * vocabulary))
        best, places = b.emit(ops.Sort(1, True, 2 * self.beams), flat)
        word = b.map(places, lambda p: p % expr.size(vocabulary))
        row = expr.input_(0, "int64") / expr.size(vocabulary) + expr.index(0) * expr.size(self.beams)
        rows = generate(b, places.shape, row, places)
        ends = b.map(word, lambda w: w.equals(self.end))

        new = self._scored(b, b.take(best, 1, 0, self.beams), words.shape[1])
        now = b.take(ends, 1, 0, self.beams)
        new = b.map(new, now, done, lambda s, e, d: expr.where(e & ~d, s, -math.inf))
        sources = self._sources(b, b.take(rows, 1, 0, self.beams), first)
        kept, kept_scores = self._best(b, kept, kept_scores, picked(b, words, sources), new, self.beams)

        order = b.emit(ops.Sort(1, False, self.beams), b.cast(ends, "int32"))[1]  # those that go on first
        sums, rows, word = (b.emit(ops.Gather("elements", 1), x, order)[0] for x in (best, rows, word))
        sums = b.map(sums, done, lambda s, d: expr.where(d, 0, s))
        rows = b.map(rows, done, lambda r, d: expr.where(d, 0, r))
        word = b.map(word, done, lambda w, d: expr.where(d, self.padding, w.cast("int32")))
        done = b.map(done, self._full(b, kept_scores, best, words.shape[1]), lambda d, f: d | f)

        sources = b.reshape(self._sources(b, rows, first), (batch * self.beams,))
        words = b.concat([picked(b, words, sources), b.reshape(word, (batch * self.beams, 1))], 1)
        goes_on = b.reduce("or", b.map(done, lambda d: ~d), [0, 1])
        collected = [whole] if self.collects else []
        return Chosen(words, [sums, kept, kept_scores, done], goes_on, collected, sources)

    def _sources(self, b: RuleBuilder, rows: Value, first: bool) -> Value:
        """Rows of words and states: in the first step there is one for all beams of an entry."""
        return rows if not first else b.map(rows, lambda r: r / expr.size(self.beams))

    def _scored(self, b: RuleBuilder, sums: Value, length: Dimension) -> Value:
        """Sums of log-probabilities as scores of hypotheses of that length."""
        count = expr.size(length).cast("float32")
        if self.length_penalty is None:
            return b.map(sums, lambda s: s / count)
        return b.map(sums, self.length_penalty, lambda s, p: s / count**p)

    def _best(
        self, b: RuleBuilder, words: Value, scores: Value, new: Value, new_scores: Value, count: Dimension
    ) -> tuple[Value, Value]:
        """As many of the hypotheses kept and of new ones [batch, beams, length], earlier ones first."""
        behind = self.most - new.shape[2]
        new = padded(b, new, (0,) * 3, (0, 0, behind), "constant", b.constant(self.padding, "int32"))
        scores, order = b.emit(ops.Sort(1, True, count), b.concat([scores, new_scores], 1))
        whole = b.concat([words, new], 1)
        return b.emit(ops.Gather("nd", batch=1), whole, insert_axes(b, order, [2]))[0], scores

    def _full(self, b: RuleBuilder, scores: Value, best: Value, length: Dimension) -> Value:
        """Whether all hypotheses are there [batch, 1] and, unless that is enough, no beam is better now."""
        worst = b.take(scores, 1, self.beams - 1, 1)
        if self.early:
            return b.map(worst, lambda w: w > -math.inf)
        # ONNX Runtime looks from `entry * beams` on, though an entry has twice as many scores
        flat = b.reshape(best, (best.shape[0] * 2 * self.beams,))
        places = generate(b, best.shape, expr.index(0) * expr.size(self.beams) + expr.index(1))
        greatest = self._scored(b, b.reduce("max", picked(b, flat, places), [1], True), length)
        return b.map(worst, greatest, lambda w, g: (w > -math.inf) & (w >= g))

    def finished(
        self, b: RuleBuilder, words: Value, own: list[Value], count: Dimension
    ) -> tuple[Value, Value]:
        """(words [batch, count, most], scores [batch, count]) of the best hypotheses; beams of entries that
        are not done become some."""
        sums, kept, kept_scores, done = own
        length = words.shape[1]
        new = b.reshape(words, (sums.shape[0], self.beams, length))
        scores = self._scored(b, sums, length)
        scores = b.map(scores, done, lambda s, d: expr.where(d, -math.inf, s))
        return self._best(b, kept, kept_scores, new, scores, count)
