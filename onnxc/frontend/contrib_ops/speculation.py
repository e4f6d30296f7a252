"""Tokens that are guessed ahead and compared with what a model says of them: BifurcationDetector."""

from __future__ import annotations

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.graph import Value
from ..onnx_ops.common import checked, generate, scalar, zeros
from .schema import Int64, contrib_op


def _of(operand: int) -> expr.Expr:
    return expr.input_(operand, "int64")


@contrib_op(outputs="tokens suffix_match_idx", ranks={"prev_suffix_match_idx": "<=1", "*": 1})
def BifurcationDetector(
    b,
    src_tokens: Int64,
    cur_tokens: Int64,
    prev_suffix_match_idx: Int64,
    pred_tokens: Int64 | None = None,
    *,
    max_ngram_size=3,
    min_ngram_size=1,
):
    """cur_tokens, and of pred_tokens those that agree with src_tokens from an index on, and one more; where
    the last of them are in src_tokens: behind the only place of the longest n-gram, or -1."""
    if any(x.rank != 1 for x in (src_tokens, cur_tokens)) or not 0 < min_ngram_size <= max_ngram_size:
        raise ops.TypeMismatch(f"{src_tokens.type} and {cur_tokens.type} are no tokens")
    tokens = cur_tokens
    if pred_tokens is not None:
        tokens = b.concat([cur_tokens, _agreed(b, src_tokens, prev_suffix_match_idx, pred_tokens)], 0)
    match, goes_on = b.constant(-1, "int64"), b.constant(True)
    for n in range(min_ngram_size, max_ngram_size + 1):
        first, count = _places(b, src_tokens, tokens, n)
        end, length = expr.size(src_tokens.shape[0]), expr.size(tokens.shape[0])
        fits = expr.input_(1, "bool") & (length >= n) & (_of(3) > 0)
        behind = _of(2) + n
        several = (behind < end) & (_of(3) > 1)
        found = expr.where(fits, expr.where(several, -1, behind), _of(0))
        operands = match, goes_on, first, count
        match = generate(b, (), found, *operands)
        goes_on = generate(b, (), fits & (behind < end), *operands)
    return tokens, b.reshape(match, prev_suffix_match_idx.shape)


def _agreed(b: Builder, source: Value, index: Value, guessed: Value) -> Value:
    """The guessed tokens up to the first that differs from the source's from `index` on, that one too."""
    start = checked(b, scalar(b, index, "index"), lambda e: e >= 0, "invalid_value")
    rest = source.shape[0] - b.dimension(start, 0, "start")
    first = source.shape[0] - rest
    guessed = b.reshape(guessed, (rest + 1,))
    same = b.map(b.take(source, 0, first, rest), b.take(guessed, 0, 0, rest), lambda x, y: x.equals(y))
    kept = b.emit(ops.Cumulate("prod", 0), b.cast(same, "int64"))[0]
    count = b.dimension(b.reduce("sum", kept, [0]), 0, "agreed")
    return b.take(guessed, 0, 0, dims.minimum(count, rest) + 1)


def _places(b: Builder, source: Value, tokens: Value, n: int) -> tuple[Value, Value]:
    """The first place of the last n tokens in the source, and how many there are."""
    size = expr.size(source.shape[0])
    padded = b.concat([source, zeros(b, "int64", (n,))], 0)
    matches = generate(b, source.shape, (expr.index(0) + n <= size).cast("int64"))
    ends = b.concat([zeros(b, "int64", (n,)), tokens], 0)
    for k in range(n):
        here = b.take(padded, 0, k, source.shape[0])
        last = b.take(ends, 0, tokens.shape[0] + k, 1)
        matches = b.map(matches, here, last, lambda m, x, y: m * x.equals(y).cast("int64"))
    places = generate(b, source.shape, expr.where(_of(0) > 0, expr.index(0), size), matches)
    places = b.concat([places, generate(b, (1,), size)], 0)
    return b.reduce("min", places, [0]), b.reduce("sum", matches, [0])
