"""What generation does to the scores of next words before one is chosen.

Scores are [rows, vocabulary], the words so far [rows, length]. What is forbidden has the lowest number.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass
from ..onnx_ops.common import agreed, zeros
from ..rules import Types
from .schema import contrib_op
from .timestamps import Timestamps

FORBIDDEN = float(np.finfo(np.float32).min)

Words = Annotated[Value, Types.of("Tid", "int64")]
Scores = Annotated[Value, Types.of("T", "float")]


@contrib_op(outputs="scores_out", ranks={"*": 2})
def NGramRepeatBlock(b, input_ids: Words, scores: Scores, *, ngram_size: int):
    """The scores, -inf for words that would end the same n words a second time."""
    if ngram_size < 1 or input_ids.rank != 2 or scores.rank != 2:
        raise ops.TypeMismatch(f"{ngram_size} words of {input_ids.type} for {scores.type}")
    input_ids = agreed(b, input_ids, [(scores.shape[0], input_ids.shape[0])], f"the batch of {scores.type}")
    return without_repeated(b, input_ids, scores, ngram_size, -math.inf)


@dataclass(frozen=True)
class Limits:
    """What a search asks of next words; values have one element each but for masks, int32 with 0 for words
    that are forbidden: of the vocabulary, of each row [rows, vocabulary] in the first step."""

    end: int
    repetition: Value | None = None
    unrepeated: int = 0
    vocabulary: Value | None = None
    first: Value | None = None
    least: Value | None = None
    temperature: Value | None = None
    present: Value | None = None  # what is taken off the scores [rows, vocabulary]
    timestamps: Timestamps | None = None

    def of(self, b: Builder, words: Value, scores: Value, first: bool) -> Value:
        """The scores that the words so far leave; `first`: of the first word."""
        if self.repetition is not None:
            scores = penalised(b, words, scores, self.repetition)
        if self.unrepeated > 0:
            scores = without_repeated(b, words, scores, self.unrepeated, FORBIDDEN)
        if self.vocabulary is not None:
            scores = masked(b, scores, self.vocabulary)
        if self.first is not None and first:
            scores = masked(b, scores, self.first)
        if self.least is not None:
            scores = without_end(b, words, scores, self.end, self.least)
        if self.temperature is not None:
            scores = b.map(scores, self.temperature, lambda s, t: expr.where(t > 0, s / t, s))
        if self.present is not None:
            scores = b.map(scores, self.present, lambda s, p: s - p)
        if self.timestamps is not None:
            scores = self.timestamps.of(b, words, scores, FORBIDDEN)
        return scores


def penalised(b: Builder, words: Value, scores: Value, penalty: Value) -> Value:
    """The scores of words that have been, divided by a penalty, or multiplied where they are negative."""
    places = b.cast(words, "int64")
    been = b.emit(
        ops.Scatter("elements", 1),
        zeros(b, "bool", scores.shape),
        places,
        zeros(b, "bool", places.shape, True),
    )[0]

    def body(score: Expr, has_been: Expr, by: Expr) -> Expr:
        return expr.where(has_been, expr.where(score < 0, score * by, score / by), score)

    return b.map(scores, been, penalty, body)


def without_repeated(b: Builder, words: Value, scores: Value, n: int, hidden: float) -> Value:
    """The scores, `hidden` for each word that would repeat n words that have been."""
    # the words begin with n - 1 that none is like, so that there are always as many places as words
    count = words.shape[1]
    before = b.emit(ops.Pad("constant", (0, n - 1), (0, 0)), words, b.constant(-1, words.dtype))[0]
    parts = [b.take(before, 1, k, count) for k in range(n - 1)]
    last = [b.take(before, 1, count + k, 1) for k in range(n - 1)]

    def update(next_word: Expr, *pairs: Expr) -> Expr:
        repeated = expr.const(True, "bool")
        for one, other in zip(pairs[: n - 1], pairs[n - 1 :]):
            repeated = repeated & one.equals(other)
        return expr.where(repeated, expr.const(hidden, scores.dtype), math.inf)

    # a score is the smaller one of itself and of all that is said of its word
    updates = b.map(words, *parts, *last, update)
    return b.emit(ops.Scatter("elements", 1, "min"), scores, b.cast(words, "int64"), updates)[0]


def masked(b: Builder, scores: Value, mask: Value) -> Value:
    """The scores of words whose mask is not 0."""
    return b.map(scores, mask, lambda s, m: expr.where(m.equals(0), FORBIDDEN, s))


def without_end(b: Builder, words: Value, scores: Value, end: int, least: Value) -> Value:
    """The scores; the end is forbidden while there are fewer words than the least number."""
    short = expr.size(words.shape[1]) < expr.input_(1, least.dtype).cast("int64")
    body = expr.where(expr.index(1).equals(end) & short, FORBIDDEN, expr.input_(0, scores.dtype))
    return b.emit(ops.Map(body, scores.shape), scores, b.reshape(least, (1, 1)))[0]
