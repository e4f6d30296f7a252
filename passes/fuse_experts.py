"""fuse_experts: rows multiplied each with the matrix that an index picks become one group, which copies none.

%m = gather(%w: float32[e, o, i], %n: int64[r]); contract(%x, %m) "ri", "roi" -> "ro"
    →   experts(%x, %w, %n) { the same }

In the group the rows are the left operand, the epilogue's operands follow the weights, and the indices are
last. Exporters also write rows as matrices of one column, whose axes of size 1 leave them here, and pick one
matrix for all rows, whose index is repeated. The kernel multiplies rows together that follow each other and
have one expert: where they are more than the experts and in no order of these, they are put into it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeGuard

from ..ir import dims, expr
from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.obligations import Shape
from ..ir.ops import Broadcast, Contract, Fused, Gather, Reshape, Sort
from ..records import dataclass


@everywhere
def fuse_experts(graph: Graph) -> Graph:
    """graph with Fused groups of kind "experts"; what they replace is left dead."""
    rewriter, orders = Rewriter(graph), dict[Value, _Order]()
    for node in graph.nodes:
        found = _found(node, rewriter.readers) if isinstance(node.op, Contract) else None
        if found is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, [_written(rewriter, node, found, orders)])
    return rewriter.finish()


def picked_by(node: Node, readers: Counter[Value]) -> Node[Gather] | None:
    """The Gather that picks a matrix for each row of a product, or one for all, which alone reads it."""
    found = _found(node, readers) if isinstance(node.op, Contract) else None
    return None if found is None else found.picked


@dataclass(frozen=True)
class _Found:
    """A product of rows and picked matrices as "ri", "roi" -> "ro", and its axes of size 1 besides."""

    op: Contract
    rows: Value
    picked: Node[Gather]
    ones: str  # labels, of the rows and the result


def _found(node: Node[Contract], readers: Counter[Value]) -> _Found | None:
    op, (left, right) = node.op, node.inputs[:2]
    if op.rounded or op.exact:
        return None
    for lhs, rhs, rows, matrices in ((op.lhs, op.rhs, left, right), (op.rhs, op.lhs, right, left)):
        picked, types = matrices.producer, (rows.dtype, matrices.dtype, op.accumulate)
        if not _picks(picked) or readers[matrices] != 1 or types != ("float32",) * 3:
            continue
        ones = "".join(c for c, size in zip(lhs, rows.shape) if size == 1 and c in op.out and c not in rhs)
        lhs, out = (labels.translate(dict.fromkeys(map(ord, ones))) for labels in (lhs, op.out))
        if len(lhs) != 2 or len(out) != 2 or lhs[0] != out[0] or lhs[1] != op.summed:
            continue
        if picked.inputs[1].rank == 0:  # one matrix for all rows
            if picked.inputs[0].constant is None:  # of all that there are, which would be packed
                continue
            rhs = out[0] + rhs
        indexed = ones and op.epilogue is not None and expr.contains(op.epilogue, "index")
        if rhs[0] == out[0] and {*rhs} == {*lhs, *out} and not indexed:
            return _Found(replace(op, lhs=lhs, rhs=rhs, out=out), rows, picked, ones)
    return None


def _picks(node: Node | None) -> TypeGuard[Node[Gather]]:
    return (
        node is not None
        and node.op == Gather("axis")
        and node.inputs[0].rank == 3
        and node.inputs[1].rank <= 1
    )


@dataclass(frozen=True)
class _Order:
    """The experts of rows in ascending order, the row that each is of, and where each row is then."""

    experts: Value
    rows: Value
    places: Value


def _order(rewriter: Rewriter, indices: Value, orders: dict[Value, _Order], node: Node) -> _Order:
    """That of the rows whose experts the indices are; products of one layer share it."""
    if indices not in orders:
        experts, rows = rewriter.add(Sort(0), [rewriter.of(indices)], node.origin)
        _, places = rewriter.add(Sort(0), [rows], node.origin)
        orders[indices] = _Order(experts, rows, places)
    return orders[indices]


def _unordered(indices: Value, experts: Dimension) -> bool:
    """Whether rows are more than the experts that the indices pick, and in no order of these."""
    if indices.rank == 0 or dims.typical(indices.shape[0]) <= dims.typical(experts):
        return False
    node = indices.producer
    return node is None or node.op != Sort(0) or indices is not node.outputs[0]


def _repeats(extra: Value) -> bool:
    """Whether what an epilogue reads is the same for all rows."""
    return extra.rank < 2 or extra.shape[0] == 1


def _has_rows(extra: Value, rows: Dimension) -> bool:
    """Whether it is known to differ from row to row: there may be one for all that only the run knows."""
    return dims.equal(extra.shape[0], rows) is True


def _written(rewriter: Rewriter, node: Node[Contract], found: _Found, orders: dict[Value, _Order]) -> Value:
    """The result of the group, which is added."""
    weights, indices = found.picked.inputs
    out, labels = node.op.out, node.op.lhs if found.rows is node.inputs[0] else node.op.rhs

    def spared(value: Value, axes: str) -> Shape:
        """A shape without the axes of size 1, of a value whose axes are the last of these."""
        pairs = zip(axes[len(axes) - value.rank :], value.shape)
        return tuple(size for label, size in pairs if label not in found.ones)

    def shaped(op: type[Reshape] | type[Broadcast], value: Value, shape: Shape) -> Value:
        return value if value.shape == shape else rewriter.add(op(shape), [value], node.origin)[0]

    result, rows = (spared(v, axes) for v, axes in ((node.outputs[0], out), (found.rows, labels)))
    x, *extra = (
        shaped(Reshape, rewriter.of(v), shape)
        for v, shape in ((found.rows, rows), *((v, spared(v, out)) for v in node.inputs[2:]))
    )
    experts = shaped(Broadcast, rewriter.of(indices), rows[:1])
    order = None
    if _unordered(indices, weights.shape[0]) and all(_repeats(v) or _has_rows(v, rows[0]) for v in extra):
        order = _order(rewriter, indices, orders, node)
        experts = order.experts

    def ordered(value: Value) -> Value:
        if order is None or _repeats(value):
            return value
        return rewriter.add(Gather("axis"), [value, order.rows], node.origin)[0]

    operands = [ordered(x), rewriter.of(weights), *map(ordered, extra), experts]
    region = _region(node, found, [Value(v.type) for v in operands], result)
    (value,) = rewriter.add(Fused("experts", region), operands, node.origin, [node.outputs[0].name])
    if order is not None:
        (value,) = rewriter.add(Gather("axis"), [value, order.places], node.origin)
    return shaped(Reshape, value, node.outputs[0].shape)


def _region(node: Node[Contract], found: _Found, inputs: list[Value], result: Shape) -> Graph:
    """What the group means: the indices pick, the product follows."""
    rows, weights, *extra, indices = inputs
    picked = replace(found.picked.outputs[0].tensor, shape=(*indices.shape, *weights.shape[1:]))
    gather = Node(found.picked.op, (weights, indices), (Value(picked),), found.picked.origin)
    product = Value(replace(node.outputs[0].tensor, shape=result))
    contract = Node(found.op, (rows, gather.outputs[0], *extra), (product,), node.origin)
    return Graph(tuple(inputs), contract.outputs, (gather, contract))
