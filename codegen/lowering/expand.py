"""What stands for a fused group that no kernel takes: its nodes.

The only place where lowering rewrites ops; whatever else a kernel cannot do is LoopNest's.
"""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ir.ops import Fused


def expanded(node: Node) -> list[Node]:
    """Nodes that give what node gives, its outputs among theirs; none where there is no other way. Operands
    and results of a group are its region's from then on."""
    if not isinstance(node.op, Fused):
        return []
    region = node.op.region
    stands = dict(zip(region.inputs, node.inputs))
    results = dict(zip(region.outputs, node.outputs))
    nodes = []
    for inner in region.nodes:
        outputs = tuple(results.get(v) or Value(v.type, v.name) for v in inner.outputs)
        nodes.append(Node(inner.op, tuple(stands.get(v, v) for v in inner.inputs), outputs, inner.origin))
        stands.update(zip(inner.outputs, outputs))
    return nodes
