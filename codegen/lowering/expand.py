"""What stands for a node that no kernel takes: the nodes of a fused group, or the same op in a wider type.

The only place where lowering rewrites ops; whatever else a kernel cannot do is LoopNest's.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir import expr
from ...ir.graph import Node, Value
from ...ir.ops import Fused, Map, Recurrent

#: The type in which an op computes on elements for which it has no kernel.
WIDER = {"float16": "float32", "bfloat16": "float32"}


def expanded(node: Node) -> list[Node]:
    """Nodes that give what node gives, its outputs among theirs; none where there is no other way."""
    match node.op:
        case Fused():
            return _inlined(node)
        case Recurrent() if any(v.dtype in WIDER for v in node.inputs):
            return _widened(node)
    return []


def _inlined(node: Node) -> list[Node]:
    """The nodes of a group; its operands and results are theirs from now on."""
    region = node.op.region
    stands = dict(zip(region.inputs, node.inputs))
    results = dict(zip(region.outputs, node.outputs))
    nodes = []
    for inner in region.nodes:
        outputs = tuple(results.get(v) or Value(v.type, v.name) for v in inner.outputs)
        nodes.append(Node(inner.op, tuple(stands.get(v, v) for v in inner.inputs), outputs, inner.origin))
        stands.update(zip(inner.outputs, outputs))
    return nodes


def _widened(node: Node) -> list[Node]:
    """op(%x: float16) → cast(op(cast(%x, float32)), float16)"""
    nodes: list[Node] = []
    inputs = []
    for value in node.inputs:
        inputs.append(_wide(value))
        if inputs[-1] is not value:
            nodes.append(_cast(value, inputs[-1], node.origin))
    outputs = tuple(map(_wide, node.outputs))
    nodes.append(Node(node.op, tuple(inputs), outputs, node.origin))
    narrowed = [(wide, value) for wide, value in zip(outputs, node.outputs) if wide is not value]
    return nodes + [_cast(wide, value, node.origin) for wide, value in narrowed]


def _wide(value: Value) -> Value:
    """A value of the wider type; the value itself where that is its own."""
    wider = WIDER.get(value.dtype)
    return value if wider is None else Value(replace(value.tensor, dtype=wider), value.name)


def _cast(value: Value, result: Value, origin: str) -> Node:
    """The Map that gives result, which is value in another type."""
    return Node(Map(expr.cast(expr.input_(0, value.dtype), result.dtype)), (value,), (result,), origin)
