"""What generation does to the scores of next words before one is chosen."""

from __future__ import annotations

import math
from typing import Annotated

from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops.rules import Types
from .schema import contrib_op

Words = Annotated[Value, Types.of("Tid", "int64")]
Scores = Annotated[Value, Types.of("T", "float")]


@contrib_op(outputs="scores_out")
def NGramRepeatBlock(b, input_ids: Words, scores: Scores, *, ngram_size: int):
    """The scores, -inf for words that would end the same n words a second time."""
    if ngram_size < 1 or input_ids.rank != 2 or scores.rank != 2:
        raise ops.TypeMismatch(f"{ngram_size} words of {input_ids.type} for {scores.type}")
    return without_repeated(b, input_ids, scores, ngram_size, -math.inf)


def without_repeated(b: Builder, words: Value, scores: Value, n: int, hidden: float) -> Value:
    """Scores [batch, vocabulary], `hidden` for each word that would repeat n words [batch, length] that have
    been. The words begin with n - 1 that none is like, so that there are always as many places as words."""
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
