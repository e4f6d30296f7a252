"""assign_slices: a Scatter to all places of a part of a tensor, in order, puts that part in place.

scatter(%x: [4, 8], concat(broadcast([[0], [1], [2], [3]]), broadcast([2, 3, 4])), %u: [4, 3]) nd
    →   concat(slice(%x) [:, :2], %u, slice(%x) [:, 5:]) axis=1

Exporters write `x[:, 2:5] = u` so, with the index of every element; where all of x is overwritten, u remains.
"""

from __future__ import annotations

import numpy as np

from ..ir import dims
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Broadcast, Concat, Reshape, Scatter, Shape, Slice
from ..ir.regions import everywhere


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


def _part(node: Node[Scatter], rewriter: Rewriter) -> list[int] | None:
    """Where the part that a Scatter overwrites begins along every axis; None where it is no such part."""
    x, places, updates = (rewriter.of(v) for v in node.inputs)
    if node.op.form != "nd" or node.op.reduction != "none":
        return None
    if not all(dims.is_static(v.shape) for v in (x, places, updates)) or 0 in updates.shape:
        return None
    if places.rank != x.rank + 1 or updates.rank != x.rank or places.shape[-1] != x.rank:
        return None
    made = places.producer
    if places.constant is not None:
        columns: list[np.ndarray | None] = [places.constant.array[..., axis] for axis in range(x.rank)]
    elif made is not None and made.op == Concat(x.rank) and len(made.inputs) == x.rank:
        columns = [_known(v, places.shape[:-1]) for v in made.inputs]
    else:
        return None
    starts = [_start(column, axis, updates) for axis, column in enumerate(columns)]
    found = [start for start in starts if start is not None]
    inside = all(
        0 <= s <= dims.number(x.shape[a]) - dims.number(updates.shape[a]) for a, s in enumerate(found)
    )
    return found if len(found) == len(starts) and inside else None


def _known(value: Value, shape: Shape) -> np.ndarray | None:
    """A column of indices [*shape, 1], which a Reshape made of `shape` and perhaps a Broadcast repeated, as
    it is stored: without its last axis, or axes before the last that repeat it."""
    made, has_last = value.producer, True
    if made is not None and isinstance(made.op, Reshape) and made.inputs[0].shape == shape:
        (value,), has_last = made.inputs, False
    made = value.producer
    if value.constant is None and made is not None and isinstance(made.op, Broadcast):
        (value,) = made.inputs
    if value.constant is None:
        return None
    array = value.constant.array
    return array[..., 0] if has_last and array.ndim else array


def _start(column: np.ndarray | None, axis: int, updates: Value) -> int | None:
    """The first index of a column that counts along its axis, and is the same along all others."""
    if column is None or column.size == 0:
        return None
    column = column.reshape((1,) * (updates.rank - column.ndim) + column.shape)
    count, start = dims.number(updates.shape[axis]), int(column.flat[0])
    along = [count if a == axis else 1 for a in range(updates.rank)]
    counted = np.arange(start, start + count).reshape(along)
    fits = column.shape[axis] == count and bool((column == counted).all())
    return start if fits else None


def _assigned(rewriter: Rewriter, node: Node[Scatter], starts: list[int]) -> Value:
    """The updates between what is left of the tensor, joined along one axis after the other."""
    x, _, part = (rewriter.of(v) for v in node.inputs)
    first, ones = list(starts), (1,) * x.rank
    for axis in reversed(range(x.rank)):
        length, end = dims.number(x.shape[axis]), first[axis] + dims.number(part.shape[axis])
        pieces: list[Value] = []
        for begin, behind in ((0, first[axis]), (end, length)):
            if begin < behind:
                sizes = tuple(behind - begin if a == axis else d for a, d in enumerate(part.shape))
                origin = tuple(begin if a == axis else b for a, b in enumerate(first))
                pieces += rewriter.add(Slice(origin, sizes, ones), [x], node.origin)
            if not begin:
                pieces.append(part)
        if len(pieces) > 1:
            (part,) = rewriter.add(Concat(axis), pieces, node.origin)
        first[axis] = 0
    return part
