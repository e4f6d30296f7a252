"""reduce_by_rows: the least and the greatest element of a tensor are those of its rows'.

%m = reduce min(%x) axes=(0, 1, 2)
→   %r = reduce min(%x) axes=(2); %m = reduce min(%r) axes=(0, 1, 2)

Rows are found in parts, by all threads, and by the kernel that makes them (`fuse_rows.py`), so that nobody
reads all of a tensor for its range. The order of elements changes neither result.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter
from ..ir.ops import Reduce, Shape

SHORT, LONG = 64, 256  # elements of a row: the fewest, and so many that it takes in no other axis
FEW = 8  # rows that are searched as one
MANY = 4096  # elements of all rows that pay for another step


@everywhere
def reduce_by_rows(graph: Graph) -> Graph:
    """graph with whole tensors' extremes found row by row."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        row = _row_axes(node)
        if row is None:
            rewriter.copy(node)
            continue
        operands = [rewriter.of(v) for v in node.inputs]
        (extremes,) = rewriter.add(replace(node.op, axes=row), operands, node.origin)
        names = [v.name for v in node.outputs]
        whole = replace(node.op, body=None)
        rewriter.replace(node.outputs, rewriter.add(whole, [extremes], node.origin, names))
    return rewriter.finish()


def _row_axes(node: Node) -> tuple[int, ...] | None:
    """The last axes that make a row, of a node that finds an extreme of several long ones."""
    op = node.op
    if not isinstance(op, Reduce) or op.kind not in ("min", "max") or not op.keepdims:
        return None
    shape = node.inputs[0].shape
    if op.axes != tuple(range(len(shape))):
        return None
    first = len(shape) - 1
    while first > 0 and _count(shape[first:]) < LONG and _count(shape[: first - 1]) >= FEW:
        first -= 1
    long = _count(shape[first:]) >= SHORT and _count(shape) >= MANY
    if first <= 0 or not long or _count(shape[:first]) < FEW:
        return None
    return tuple(range(first, len(shape)))


def _count(sizes: Shape) -> int:
    return dims.typical(dims.product(sizes))
