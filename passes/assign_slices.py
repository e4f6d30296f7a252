"""assign_slices: a Scatter to all places of a part of a tensor, in order, puts that part in place.

scatter(%x: [4, 8], concat(broadcast([[0], [1], [2], [3]]), broadcast([2, 3, 4])), %u: [4, 3]) nd
    →   concat(slice(%x) [:, :2], %u, slice(%x) [:, 5:]) axis=1
scatter(broadcast(0.0): [n, 8], [[0], [1], ...], %u: [n - 1, 8]) nd
    →   pad(%u) after=(1, 0)

Exporters write `x[:, 2:5] = u` so, with the index of every element or row; where all of x is overwritten, u
remains.
"""

from __future__ import annotations

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value, constant_value
from ..ir.ops import Concat, Pad, Scatter, Shape, Slice, Transpose
from ..ir.progressions import progression
from ..ir.ranges import repeated_element


@everywhere
def assign_slices(graph: Graph) -> Graph:
    """graph with joins of slices for Scatters of whole parts."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        starts = _part(node, rewriter) if isinstance(node.op, Scatter) else None
        if starts is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, [_assigned(rewriter, node, starts)])
    return rewriter.finish()


def _part(node: Node[Scatter], rewriter: Rewriter) -> Shape | None:
    """Where the part that a Scatter overwrites begins along every axis; None where it is no such part."""
    x, places, updates = (rewriter.of(v) for v in node.inputs)
    if node.op.form != "nd" or node.op.reduction != "none" or 0 in updates.shape:
        return None
    indexed = places.rank - 1
    counted = (*places.shape[:-1], *x.shape[indexed:])
    if places.shape[-1] != indexed or updates.shape != counted:
        return None
    starts = [_start(column, axis) for axis, column in enumerate(_columns(places))]
    found = (*(start for start in starts if start is not None), *[0] * (x.rank - indexed))
    inside = len(found) == x.rank and all(
        dims.at_least(start, 0) and dims.at_least(size - start - count, 0)
        for start, size, count in zip(found, x.shape, updates.shape, strict=True)
    )
    return found if inside else None


def _columns(places: Value) -> list[Value]:
    """The places along each axis, [..., 1] each."""
    indexed, made = places.rank - 1, places.producer
    if places.constant is not None:
        return [constant_value(places.constant.array[..., axis, None]) for axis in range(indexed)]
    if made is not None and made.op == Concat(indexed) and len(made.inputs) == indexed:
        return list(made.inputs)
    return [places] if indexed == 1 else []


def _start(column: Value, axis: int) -> dims.Dimension | None:
    """The first place of a column that counts along its axis, and is the same along all others."""
    found = progression(column)
    if found is None:
        return None
    along = None if column.shape[axis] == 1 else axis
    return found.start if found.counts_along(along) else None


def _assigned(rewriter: Rewriter, node: Node[Scatter], starts: Shape) -> Value:
    """The updates in their place, behind a Transpose of the tensor if there is one."""
    x, _, part = (rewriter.of(v) for v in node.inputs)
    if x.producer is None or not isinstance(x.producer.op, Transpose):
        return _joined(rewriter, x, part, starts, node.origin)
    turned = x.producer.op
    (part,) = rewriter.add(turned.inverse, [part], node.origin)
    places = tuple(starts[axis] for axis in turned.inverse.perm)
    found = _joined(rewriter, x.producer.inputs[0], part, places, node.origin)
    return rewriter.add(turned, [found], node.origin)[0]


def _joined(rewriter: Rewriter, x: Value, part: Value, starts: Shape, origin: str) -> Value:
    """A part between what is left of the tensor, along one axis after the other: first those along which
    little is left."""
    ends = tuple(start + count for start, count in zip(starts, part.shape, strict=True))
    element = repeated_element(x)
    if element is not None:
        behind = tuple(size - end for size, end in zip(x.shape, ends, strict=True))
        return rewriter.add(Pad("constant", starts, behind), [part, element], origin)[0]
    first, ones = list(starts), (1,) * x.rank
    growth = [
        dims.typical(size) / max(1, dims.typical(d)) for size, d in zip(x.shape, part.shape, strict=True)
    ]
    for axis in sorted(range(x.rank), key=lambda a: (growth[a], -a)):
        pieces = [part]
        for begin, end in ((0, first[axis]), (ends[axis], x.shape[axis])):
            if begin == end:
                continue
            sizes = tuple(end - begin if a == axis else d for a, d in enumerate(part.shape))
            corner = tuple(begin if a == axis else b for a, b in enumerate(first))
            (piece,) = rewriter.add(Slice(corner, sizes, ones), [x], origin)
            pieces.insert(0 if begin == 0 else len(pieces), piece)
        if len(pieces) > 1:
            (part,) = rewriter.add(Concat(axis), pieces, origin)
        first[axis] = 0
    return part
