"""fuse_pools: a pool becomes one group with the Maps that convert what it reads and gives, where that is
stored in fewer bits.

map(pool(map(%x: float16) { cast($0, float32) })) { cast($0, float16) }   →   fused pool(%x) { the same }

So nothing of the wide type is stored.
"""

from __future__ import annotations

from ..ir import dtypes
from ..ir.graph import Graph, Node, Rewriter
from ..ir.groups import fuse_chain
from ..ir.ops import Pool
from ..ir.pools import idle, is_conversion
from ..ir.regions import everywhere

KINDS = ("max", "sum", "mean")
STORED = ("float16", "bfloat16", "int8", "uint8", "int16", "uint16")


@everywhere
def fuse_pools(graph: Graph) -> Graph:
    """graph with Fused groups of kind "pool"."""
    rewriter = Rewriter(graph)
    readers = rewriter.readers
    groups: dict[Node, list[Node]] = {}  # where a group stands → its members, in order
    behind = {v: node for node in graph.nodes for v in node.inputs if is_conversion(node)}
    for node in graph.nodes:
        if _is_windows(node):
            before, after = node.inputs[0].producer, behind.get(node.outputs[0])
            members = [node]
            if before is not None and _reads_fewer(before, node) and readers[node.inputs[0]] == 1:
                members.insert(0, before)
            if after is not None and after.outputs[0].dtype in STORED and readers[node.outputs[0]] == 1:
                members.append(after)
            if len(members) > 1:
                groups[members[-1]] = members
    grouped = {member for members in groups.values() for member in members}
    for node in graph.nodes:
        if node in groups:
            (pool,) = (member for member in groups[node] if isinstance(member.op, Pool))
            fuse_chain(rewriter, "pool", groups[node], pool.origin)
        elif node not in grouped:
            rewriter.copy(node)
    return rewriter.finish()


def _is_windows(node: Node) -> bool:
    """Whether a node is a pool of floats whose window is not the whole image."""
    if not isinstance(node.op, Pool) or node.op.kind not in KINDS:
        return False
    return dtypes.is_float(node.outputs[0].dtype) and node.op.kernel != node.inputs[0].shape[2:]


def _reads_fewer(before: Node, pool: Node[Pool]) -> bool:
    """Whether a Map converts what is stored in fewer bits to what a pool reads, and something that is stored
    so can stand outside of the image."""
    if not is_conversion(before) or before.inputs[0].dtype not in STORED:
        return False
    return idle(pool.op.kind, before.outputs[0].dtype, before.op.body) is not None
