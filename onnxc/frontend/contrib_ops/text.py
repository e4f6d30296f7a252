"""Texts cut into tokens, as scikit-learn's vectorizers are exported, and hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ...ir import dtypes, expr, ops
from ...ir.expr import Expr
from ...ir.graph import TensorType, Value
from ..automaton import regex_automaton
from ..onnx_ops.text import texts
from ..rules import Types
from .schema import contrib_op

Text = Annotated[Value, Types.of("T", "string")]
_HASHED = ("uint32", "int32", "uint64", "int64", "float", "double", "string")
Hashed = Annotated[Value, Types.of("T1", *_HASHED)]

BETWEEN, MATCHES, CHARACTERS = range(3)


@contrib_op(outputs="Y")
def Tokenizer(
    b,
    X: Text,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: Sequence[str] | None = None,
    tokenexp: str | None = None,
):
    """[..., tokens]: the longest leftmost matches of a regular expression, what is left between those of
    separators, or, where the only one is empty, the characters; padded, between marks if asked."""
    if X.rank not in (1, 2):
        raise ops.TypeMismatch(f"its input is {X.type} where [C] or [N, C] is needed")
    if mincharnum < 1:
        raise ops.TypeMismatch(f"mincharnum is {mincharnum}")
    if not separators and not tokenexp:
        raise ops.TypeMismatch("one of the attributes separators and tokenexp is needed")
    patterns, mode = (separators, BETWEEN) if separators else ([tokenexp or ""], MATCHES)
    if separators and list(separators) == [""]:
        patterns, mode, mincharnum = [], CHARACTERS, 1
    automata = [regex_automaton(pattern, search=True) for pattern in patterns]
    tables = [t for a in automata for t in (a.classes, a.following, a.final, a.starts)]
    result = TensorType("string", (*X.shape, b.fresh("tokens")))
    operands = [X, texts(b, [pad_value]), *map(b.constant, tables)]
    return b.call("tokenize_strings", operands, [result], [int(bool(mark)), mincharnum, mode])[0]


@contrib_op(outputs="Y")
def MurmurHash3(b, X: Hashed, *, positive=1, seed=0):
    """MurmurHash3, of 32 bits, of the bytes of each element, as ONNX Runtime's type of the result has it."""
    dtype = "uint32" if positive else "int32"
    if X.dtype == "string":
        hashes = b.call("hash_strings", [X], [TensorType("uint32", X.shape)], [seed & 0xFFFFFFFF])[0]
    else:
        hashes = b.map(X, lambda e: _hashed(e, seed & 0xFFFFFFFF))
    return b.map(hashes, lambda e: expr.bitcast(e, dtype))


def _hashed(x: Expr, seed: int) -> Expr:
    """The hash of a number of 32 or 64 bits."""
    size = dtypes.itemsize(x.dtype)
    bits = expr.bitcast(x, f"uint{8 * size}")
    h = expr.const(seed, "uint32")
    for word in range(size // 4):
        k = (bits >> (32 * word)).cast("uint32") if word else bits.cast("uint32")
        h = _rotated(h ^ (_rotated(k * 0xCC9E2D51, 15) * 0x1B873593), 13) * 5 + 0xE6546B64
    h = h ^ size
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ (h >> shift)) * factor
    return h ^ (h >> 16)


def _rotated(x: Expr, by: int) -> Expr:
    return (x << by) | (x >> (32 - by))
