"""tabulate: what is computed of one byte is looked up in a table that the compiler computes.

map(%x: uint8) { cast(clip(round(div(sigmoid(cast($0, float32) * 0.1), 0.004)), 0, 255), uint8) }
    →   map(%x) { lookup($0, uint8, 7f80...) }

A byte may be an operand or be made in the body, as by the quantisation before an activation; it has 256
values, or 16 where 4 of its bits count, for each of which the interpreter says what becomes of it. It is done
where the target then takes less time by the estimates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from ...ir import dtypes, expr
from ...ir.expr import Expr
from ...ir.graph import Graph, Node, Rewriter
from ...ir.ops import Contract, Conv, Map, Reduce
from ...ir.regions import everywhere
from ...target import Target
from ..nests.operands import evaluation


def tabulate(graph: Graph, target: Target) -> Graph:
    """graph with lookups in bodies and epilogues."""

    @everywhere
    def looked_up(inner: Graph) -> Graph:
        rewriter = Rewriter(inner)
        for node in inner.nodes:
            rewriter.copy(_with_lookups(node, target))
        return rewriter.finish()

    return looked_up(graph)


def _with_lookups(node: Node, target: Target) -> Node:
    field = {Map: "body", Reduce: "body", Conv: "epilogue", Contract: "epilogue"}.get(type(node.op), "")
    body: Expr | None = getattr(node.op, field, None)
    made = body and tabulated(body, target)
    if made is body:
        return node
    return Node(replace(node.op, **{field: made}), node.inputs, node.outputs, node.origin, node.choice)


def tabulated(body: Expr, target: Target) -> Expr:
    """The body with lookups in place of its largest parts that are slower than these."""
    sources = _sources(body)
    for part in reversed(expr.topological(body)):
        source = sources.get(part)
        if source is None or source is part:
            continue
        blank = expr.lookup(source, part.dtype, bytes(_entries(source) * dtypes.itemsize(part.dtype)))
        if evaluation(target, _with(body, part, blank)).total < evaluation(target, body).total:
            found = expr.lookup(source, part.dtype, _table(part, source))
            return tabulated(_with(body, part, found), target)
    return body


def _with(body: Expr, part: Expr, other: Expr) -> Expr:
    return expr.rewrite(body, lambda node: other if node is part else None)


def _sources(body: Expr) -> dict[Expr, Expr]:
    """Of each expression the one of 8 bits or less that it is a function of; the first, where one is made of
    the other. Those that may fail, or are of places, are of none."""
    found: dict[Expr, Expr] = {}
    for node in expr.topological(body):
        told = {found.get(a) for a in node.args if a.op != "const"}
        (only,) = told if len(told) == 1 else (None,)
        if only is not None and node.op != "check":
            found[node] = only
        elif node.op not in ("const", "index", "size") and _is_short(node.dtype):
            found[node] = node
    return found


def _is_short(dtype: str) -> bool:
    return dtype != "bool" and dtypes.bits(dtype) <= 8


def _table(part: Expr, source: Expr) -> bytes:
    """What the part is for each value of its source, as it is in memory."""
    function = _with(part, source, expr.input_(0, source.dtype))
    codes = _every(source.dtype)
    values = expr.evaluate(function, [codes], codes.shape, _absent, _absent)
    return np.ascontiguousarray(values).tobytes()


def _entries(source: Expr) -> int:
    return 1 << dtypes.bits(source.dtype)


def _every(dtype: str) -> np.ndarray:
    """All values of a type, in the order of their bits."""
    codes, numbers = np.arange(1 << dtypes.bits(dtype), dtype=np.uint8), dtypes.numpy_dtype(dtype)
    if not dtypes.is_signed(dtype):
        return codes.view(numbers)
    spare = 8 - dtypes.bits(dtype)
    return (codes << spare).view(np.int8).__rshift__(spare).astype(numbers)


def _absent(what: object) -> NoReturn:
    raise TypeError(f"a table depends on {what}")
