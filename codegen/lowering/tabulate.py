"""tabulate: what is computed of one byte is looked up in a table that the compiler computes.

map(%x: uint8) { cast(clip(round(div(sigmoid(cast($0, float32) * 0.1), 0.004)), 0, 255), uint8) }
    →   map(%x) { lookup($0, uint8, 7f80...) }

A byte may be an operand or be made in the body, as by the quantisation before an activation; it has 256
values, or 16 where 4 of its bits count, for each of which the interpreter says what becomes of it. A clip of
what is rounded to such a byte is a function of it, too. It is done where the target then takes less time by
the estimates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NoReturn

import numpy as np

from ...ir import dtypes, expr
from ...ir.everywhere import everywhere
from ...ir.expr import Expr
from ...ir.graph import Graph, Node, Rewriter
from ...ir.ops import Contract, Conv, Map, Reduce
from ...target import Target
from .. import costs
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
    made = body and tabulated(body, target, costs.together(node))
    if made is body:
        return node
    return Node(replace(node.op, **{field: made}), node.inputs, node.outputs, node.origin, node.choice)


def tabulated(body: Expr, target: Target, together: int = 1) -> Expr:
    """The body with lookups in place of the parts that are slower than these. together: of how many vectors
    the bytes are looked up at once."""
    made = [_looked_up(form, target, together) for form in dict.fromkeys((body, _clips_of_bytes(body)))]
    return min(made, key=lambda form: evaluation(target, form, together=together).total)


def _looked_up(body: Expr, target: Target, together: int) -> Expr:
    """With the lookup that gains most, and so on; of those that gain as much the largest part's."""
    sources, best = _sources(body), None
    least = evaluation(target, body, together=together).total
    for part in reversed(expr.topological(body)):
        source = sources.get(part)
        if source is None or source is part:
            continue
        blank = expr.lookup(source, part.dtype, bytes(_entries(source) * dtypes.itemsize(part.dtype)))
        time = evaluation(target, _with(body, part, blank), together=together).total
        if time < least:
            least, best = time, part
    if best is None:
        return body
    found = expr.lookup(sources[best], best.dtype, _table(best, sources[best]))
    return _looked_up(_with(body, best, found), target, together)


def _clips_of_bytes(body: Expr) -> Expr:
    """The body, whose clips of rounded numbers are made of the bytes that these become as well: of x between
    -3 and 252, where x + 3 becomes an uint8."""
    order = expr.topological(body)
    made_of = {node: found for node in order if (found := _rounded(node)) is not None}
    clips = {
        (x, *(bound - zero for bound in dtypes.integer_range(node.dtype))): (zero, node.dtype)
        for node, (x, zero) in made_of.items()
    }
    done: dict[Expr, Expr] = {}
    for node in order:
        clip = expr.clip_of(node)
        if node in made_of:
            x, zero = made_of[node]
            done[node] = _byte(done[x], zero, node.dtype)
        elif clip is not None and clip in clips:
            zero, dtype = clips[clip]
            done[node] = _byte(done[clip[0]], zero, dtype).cast(node.dtype) - zero
        else:
            done[node] = expr.rebuild(node, tuple(done[a] for a in node.args)) if node.args else node
    return done[body]


def _rounded(node: Expr) -> tuple[Expr, float] | None:
    """(x, zero) where the node is the byte of x + zero, x being rounded."""
    if node.op != "cast" or not _is_short(node.dtype) or not dtypes.is_integer(node.dtype):
        return None
    clip, zero = expr.clip_of(node.args[0]), 0.0
    if clip is None or clip[1:] != dtypes.integer_range(node.dtype):
        return None
    x = clip[0]
    if x.op == "add" and x.args[1].op == "const":
        x, zero = x.args[0], float(x.args[1].value)
    return (x, zero) if x.op == "round" and zero.is_integer() else None


def _byte(x: Expr, zero: float, dtype: str) -> Expr:
    return (x + zero if zero else x).clip(*map(float, dtypes.integer_range(dtype))).cast(dtype)


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
