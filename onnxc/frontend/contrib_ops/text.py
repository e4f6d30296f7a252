"""Texts cut into tokens, as scikit-learn's vectorizers are exported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ...ir import ops
from ...ir.graph import TensorType, Value
from ..automaton import regex_automaton
from ..onnx_ops.rules import Types
from ..onnx_ops.text import texts
from .schema import contrib_op

Text = Annotated[Value, Types.of("T", "string")]

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
