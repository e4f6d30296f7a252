"""LoopNest: the kernel that can run any op from Map to Scatter over any shape, layout and element type; last in KERNELS.

It only says which nest an op is; the nests are in the modules named here. Fast where memory is the limit (elementwise chains,
copies, transposes, gathers), right everywhere: a faster kernel is never needed, and is tested against this one.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType

from ...ir import Constant, Node, TensorType, Value
from ...ops import (
    Attention, Broadcast, Concat, Contract, Conv, Cumulate, Elements, Gather, Map, Pad, Pool, Reduce, Reorder, Reshape, Scatter,
    Slice, Transpose,
)
from ...target import Target
from ..kernel import Choice, Code
from . import elementwise, indexed, movement, reduction, scan, softmax_attention, windows

#: The module that writes each op's nest.
NESTS: dict[type, ModuleType] = {
    Map: elementwise,
    **dict.fromkeys((Reduce, Contract), reduction),
    **dict.fromkeys((Conv, Pool), windows),
    Attention: softmax_attention,
    **dict.fromkeys((Reshape, Transpose, Slice, Pad, Broadcast, Concat, Reorder), movement),
    **dict.fromkeys((Gather, Scatter), indexed),
    **dict.fromkeys((Cumulate, Elements), scan),
}


def candidates(node: Node, target: Target) -> Iterable[Choice]:
    """Dense operands and result for every op; a Map also in the blocked layouts that its operands have."""
    nest = NESTS.get(type(node.op))
    if nest is None:
        return
    if isinstance(node.op, Reorder):
        x, out = node.inputs[0].type, node.outputs[0].type
        yield Choice(sys.modules[__name__], nest.estimate(node, target), (), (x.layout,), out.layout)
        return
    dense = _stored(node, (None,) * len(node.inputs), None)
    yield Choice(sys.modules[__name__], nest.estimate(dense, target))
    if isinstance(node.op, Map):
        for layout, wanted in elementwise.blocked_layouts(node):
            cost = nest.estimate(_stored(node, wanted, layout), target)
            yield Choice(sys.modules[__name__], cost, (), wanted, layout)


def _stored(node: Node, inputs: tuple, output: object) -> Node:
    """node as it is when its operands and results have these layouts."""
    def value(old: Value, layout: object) -> Value:
        typed = isinstance(old.type, TensorType) and old.type.layout != layout
        return Value(replace(old.type, layout=layout), old.name, old.constant) if typed else old

    outputs = [v.type if not isinstance(v.type, TensorType) else replace(v.type, layout=output) for v in node.outputs]
    return Node(node.op, tuple(map(value, node.inputs, inputs)), tuple(map(Value, outputs)), node.origin)


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    """Constants are read as they are."""
    return None


def emit(node: Node, choice: Choice, target: Target) -> Code:
    return NESTS[type(node.op)].emit(node, target)
