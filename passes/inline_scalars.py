"""inline_scalars: a constant that repeats one number moves into the body that reads it.

map(%x, constant float32[] 0.125) { mul($0, $1) }   →   map(%x) { mul($0, 0.125) }

Bodies with their numbers inside are found equal, are recognised by later passes, and cost no operand. A Range
from 0 by 1 becomes the index itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..ir import dtypes, expr
from ..ir.bodies import gives
from ..ir.everywhere import everywhere
from ..ir.graph import Constant, Graph, Rewriter, Value
from ..ir.ops import Contract, Conv, Map


@everywhere
def inline_scalars(graph: Graph) -> Graph:
    """graph with one-number constants inside Map bodies and epilogues."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        op = node.op
        if isinstance(op, Map):
            body, inputs = _inlined(op.body, inputs, 0)
            shape = op.shape
            if shape is None and not gives(inputs, node.outputs[0].shape):
                shape = node.outputs[0].shape
            op = replace(op, body=body, shape=shape)
        elif isinstance(op, (Conv, Contract)) and op.epilogue is not None:
            epilogue, inputs = _inlined(op.epilogue, inputs, 2)
            op = replace(op, epilogue=epilogue)
        if op is not node.op:
            outputs = rewriter.add(op, inputs, node.origin, [v.name for v in node.outputs])
            outputs[0].elements = node.outputs[0].elements
            rewriter.replace(node.outputs, outputs)
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _inlined(body: expr.Expr, inputs: tuple[Value, ...], fixed: int) -> tuple[expr.Expr, tuple[Value, ...]]:
    """The body with the constants inside, and the operands left. With `fixed` operands of its own, a host's
    body counts its result as operand 0 and the others from 1."""
    offset = 1 if fixed else 0
    kept: list[Value] = []
    places: dict[int, expr.Expr] = {}
    used = set(expr.inputs(body))
    for k, value in enumerate(inputs[fixed:]):
        number = _number(value.constant)
        if k + offset not in used:
            continue
        if number is not None:
            places[k + offset] = number
        else:
            places[k + offset] = expr.input_(len(kept) + offset, value.dtype)
            kept.append(value)
    return expr.substitute(body, places), (*inputs[:fixed], *kept)


def _number(constant: Constant | None) -> expr.Expr | None:
    """The constant as a number, if it repeats a single one."""
    if constant is None or constant.dtype in ("string", *dtypes.COMPLEX, *dtypes.SMALL_FLOATS):
        return None
    if constant.splat is not None:
        return expr.const(_plain(constant.splat), constant.dtype)
    if constant.materialised and constant.array.size == 1:
        return expr.const(_plain(constant.array.reshape(-1)[0]), constant.dtype)
    return None


def _plain(value: Any) -> float | int | bool:
    return value.item() if hasattr(value, "item") and not isinstance(value.item(), bytes) else float(value)
