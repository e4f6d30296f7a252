"""LoopNest: the kernel that can run any op over any shape, layout and type."""
from __future__ import annotations

from dataclasses import replace
from ...ir import Node, Value
from ...ops import Gather,Scatter,Map,Reduce,Contract
from ...target import Target
from ..kernel import Choice, Code
from . import indexed, movement, elementwise, reduction


def _module():
    from . import loop_nest
    return loop_nest


def candidates(node: Node, target: Target):
    if isinstance(node.op, movement.OPS):
        yield Choice(_module(), movement.estimate(node, target))
    if isinstance(node.op, (Gather,Scatter)):
        yield Choice(_module(), indexed.estimate(node, target))
    if isinstance(node.op, (Reduce,Contract)):
        yield Choice(_module(), reduction.estimate(node, target))
    if isinstance(node.op, Map):
        if not any(v.type.layout for v in node.inputs):
            yield Choice(_module(), elementwise.estimate(node, target))
        for layout, wanted in elementwise.blocked_layouts(node):
            out = node.outputs[0]
            as_stored = Node(node.op, tuple(Value(replace(v.type, layout=w), v.name, v.constant) for v, w in zip(node.inputs, wanted)), (Value(replace(out.type, layout=layout)),))
            yield Choice(_module(), elementwise.estimate(as_stored, target), (), wanted, layout)


def pack(node, choice, operand):
    return None


def emit(node: Node, choice: Choice, target: Target) -> Code:
    if isinstance(node.op, Map):
        return elementwise.emit(node, target)
    if isinstance(node.op, (Gather,Scatter)):
        return indexed.emit(node, target)
    if isinstance(node.op, (Reduce,Contract)):
        return reduction.emit(node, target)
    return movement.emit(node, target)
