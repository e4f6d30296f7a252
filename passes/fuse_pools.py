"""fuse_pools: a pool becomes one group with the Maps of what it reads and gives, where that is stored in
fewer bits or there is a single channel, as where windows go over channels.

map(pool(map(%x: float16) { cast($0, float32) })) { cast($0, float16) }   →   fused pool(%x) { the same }
map(pool(map(%x) { mul($0, $0) }), %x) { div($1, sqrt($0)) }              →   fused pool(%x, %x) { the same }

So nothing of the wide type is stored, and nothing in between. A Map before is computed again for every row of
a window: it joins where that is little work, or less to read.
"""

from __future__ import annotations

from ..ir import dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter
from ..ir.groups import fuse_chain
from ..ir.ops import Map, Pool
from ..ir.pools import idle, is_conversion, is_elementwise

KINDS = ("max", "sum", "mean")
STORED = ("float16", "bfloat16", "int8", "uint8", "int16", "uint16")
SIMPLE = ("input", "const", "cast", "add", "sub", "mul", "neg", "abs", "min", "max")
FEW = 2  # such operations that take less time than to store what they give


@everywhere
def fuse_pools(graph: Graph) -> Graph:
    """graph with Fused groups of kind "pool"."""
    rewriter = Rewriter(graph)
    readers = rewriter.readers
    groups: dict[Node, list[Node]] = {}  # where a group stands → its members, in order
    grouped: set[Node] = set()
    behind = {node.inputs[0]: node for node in graph.nodes if node.inputs and is_elementwise(node)}
    for node in graph.nodes:
        if _is_windows(node):
            before, after = node.inputs[0].producer, behind.get(node.outputs[0])
            members = [node]
            free = before is not None and before not in grouped and readers[node.inputs[0]] == 1
            if before is not None and free and _joins(before, node):
                members.insert(0, before)
            if after is not None and _follows(after, node) and readers[node.outputs[0]] == 1:
                members.append(after)
            if len(members) > 1:
                groups[members[-1]] = members
                grouped.update(members)
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


def _joins(before: Node, pool: Node[Pool]) -> bool:
    """Whether a pool reads what a Map makes as fast from what that reads, and something that is stored so can
    stand outside of the image."""
    if not is_conversion(before):
        return False
    if before.inputs[0].dtype not in STORED and not (_has_one_channel(pool) and _is_simple(before)):
        return False
    return idle(pool.op.kind, before.outputs[0].dtype, before.op.body) is not None


def _is_simple(node: Node[Map]) -> bool:
    operations = [e.op for e in expr.topological(node.op.body)]
    return set(operations) <= set(SIMPLE) and sum(e not in ("input", "const") for e in operations) <= FEW


def _follows(after: Node, pool: Node[Pool]) -> bool:
    """Whether a Map of a pool's result is computed where that is written: of a single channel also one that
    reads other images."""
    return _has_one_channel(pool) or (is_conversion(after) and after.outputs[0].dtype in STORED)


def _has_one_channel(pool: Node[Pool]) -> bool:
    """Whether an image is none that is stored in blocks of channels, where bands want pools by themselves."""
    return pool.inputs[0].shape[1] == 1
