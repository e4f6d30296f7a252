"""Bodies of Maps over their operands: one inside another, without what is not read; the shape they give, and
whether they may move."""

from __future__ import annotations

from collections.abc import Sequence

from . import expr
from .expr import Expr
from .graph import Node, Value
from .ops import Map, Shape, TypeMismatch, broadcast_shapes


def composed(body: Expr, operands: Sequence[Value], k: int) -> tuple[Expr, list[Value]]:
    """The body over the operands of the Map that makes operand k in place of that, equal operands merged."""
    producer = operands[k].node
    merged = list(dict.fromkeys((*operands[:k], *operands[k + 1 :], *producer.inputs)))
    place = {v: expr.input_(j, v.dtype) for j, v in enumerate(merged)}
    inner = expr.substitute(producer.op.body, {j: place[v] for j, v in enumerate(producer.inputs)})
    outer = {j: place[v] for j, v in enumerate(operands) if j != k}
    return expr.substitute(body, {**outer, k: inner}), merged


def pruned(body: Expr, operands: Sequence[Value]) -> tuple[Expr, list[Value]]:
    """The body over those operands alone that it reads."""
    read = expr.inputs(body)
    places = {k: expr.input_(p, operands[k].dtype) for p, k in enumerate(read)}
    return expr.substitute(body, places), [operands[k] for k in read]


def gives(operands: Sequence[Value], shape: Shape) -> bool:
    """Whether the operands of a Map tell its shape."""
    try:
        return broadcast_shapes(*(v.shape for v in operands)) == shape
    except TypeMismatch:
        return False


def maps_anywhere(node: Node) -> bool:
    """Whether a node is a Map that makes the same of its only operand before that is moved or repeated as
    after."""
    plain = isinstance(node.op, Map) and len(node.inputs) == 1 and node.op.shape is None
    return plain and not expr.contains(node.op.body, "index", "check")
