"""fuse_experts: rows multiplied each with the matrix that an index picks become one group, which copies none.

%m = gather(%w: float32[e, o, i], %n: int64[r]); contract(%x, %m) "ri", "roi" -> "ro"
    →   experts(%x, %w, %n) { the same }

In the group the rows are the left operand, the epilogue's operands follow the weights, and the indices are
last.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeGuard

from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Contract, Fused, Gather
from ..ir.regions import everywhere


@everywhere
def fuse_experts(graph: Graph) -> Graph:
    """graph with Fused groups of kind "experts"; what they replace is left dead."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        picked = picked_by(node, rewriter.readers)
        if picked is None:
            rewriter.copy(node)
            continue
        weights, indices = picked.inputs
        rows = next(v for v in node.inputs[:2] if v.producer is not picked)
        inputs = [rows, weights, *node.inputs[2:], indices]
        region = _region(node, picked, [Value(v.type) for v in inputs])
        operands = [rewriter.of(v) for v in inputs]
        outputs = rewriter.add(Fused("experts", region), operands, node.origin, [node.outputs[0].name])
        rewriter.replace(node.outputs, outputs)
    return rewriter.finish()


def picked_by(node: Node, readers: Counter[Value]) -> Node[Gather] | None:
    """The Gather that picks a matrix for each row of a product, which alone reads it."""
    if not isinstance(node.op, Contract) or node.op.rounded or node.op.exact or len(node.op.out) != 2:
        return None
    op, (left, right) = node.op, node.inputs[:2]
    row, column = op.out[0], op.out[1]
    for rows, matrices, x, picked in ((op.lhs, op.rhs, left, right), (op.rhs, op.lhs, right, left)):
        labels = set(rows) == {row, op.summed} and set(matrices) == {row, column, op.summed}
        if labels and rows[0] == row == matrices[0] and _picks(picked.producer) and readers[picked] == 1:
            types = x.dtype, picked.dtype, op.accumulate
            return picked.producer if types == ("float32",) * 3 else None
    return None


def _picks(node: Node | None) -> TypeGuard[Node[Gather]]:
    return (
        node is not None
        and node.op == Gather("axis")
        and node.inputs[0].rank == 3
        and node.inputs[1].rank == 1
    )


def _region(node: Node[Contract], picked: Node[Gather], inputs: list[Value]) -> Graph:
    """What the group means: the indices pick, the product follows."""
    rows, weights, *extra, indices = inputs
    gather = Node(picked.op, (weights, indices), (Value(picked.outputs[0].type),), picked.origin)
    op, swapped = node.op, node.inputs[0].producer is picked
    if swapped:
        op = replace(op, lhs=op.rhs, rhs=op.lhs)
    product = Node(op, (rows, gather.outputs[0], *extra), (Value(node.outputs[0].type),), node.origin)
    return Graph(tuple(inputs), product.outputs, (gather, product))
