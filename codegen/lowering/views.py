"""Views: nodes that run no kernel, because they only say where in memory a value lies.

The result of a view (Reshape, Slice) is part of its operand; the operands of a join (Concat) are parts of its
result, into which their producers write. Both need parts that are whole: only axes of size 1 lie outside the
one that is cut. A dense value may lie wherever its elements may, as inputs and outputs of the model do; a
blocked one at a multiple of its pixel (block * itemsize), which kernels rely on: its parts are whole blocks,
and nothing dense is read as blocked. Channels of a batch of blocked images are parts too: of each image some
blocks, whose layout tells how far the next image is (`part_layout`). So are the windows of an Unfold over the
batch, which overlap (`unfolded_layout`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Layout, Node, TensorType, Value
from ...ir.ops import Concat, If, Reorder, Reshape, Slice, Unfold
from ..tiles.blocked import are_rows


def view_of(node: Node) -> tuple[Value, Dimension] | None:
    """(operand, offset in bytes) when the node's result is part of its operand's memory."""
    if node.choice is not None:
        return None
    match node.op:
        case Reshape() if _lies_as(node.inputs[0].tensor, node.outputs[0].tensor):
            return node.inputs[0], 0
        case Unfold() if node.outputs[0].tensor.layout == unfolded_layout(node):
            return (node.inputs[0], 0) if are_apart(node.outputs[0].tensor) else None
        case Reorder() if _blocks_are_dense(node.inputs[0].tensor) and node.outputs[0].tensor.layout is None:
            return node.inputs[0], 0
        case Slice(starts=starts, sizes=sizes, steps=steps):
            source, there = node.inputs[0], node.outputs[0].tensor.layout
            cut = cut_axes(node)
            if any(s != 1 for s in steps) or there != part_layout(source.tensor, cut):
                return None
            if not cut:
                return source, 0
            found = [_offset(source.tensor, axis, starts[axis]) for axis in cut]
            begins = [begin for begin in found if begin is not None]
            whole = (cut[-1] == 1 and are_apart(node.outputs[0].tensor)) or all(
                d == 1 for d in sizes[: cut[-1]]
            )
            whole = whole and _ends_whole(source.tensor, node.op, cut[-1])
            return (source, sum(begins, 0)) if whole and len(begins) == len(found) else None
    return None


def cut_axes(node: Node[Slice]) -> list[int]:
    """The axes of which a Slice leaves something out."""
    source, op = node.inputs[0], node.op
    return [a for a in range(source.rank) if op.starts[a] != 0 or op.sizes[a] != source.shape[a]]


def part_layout(whole: TensorType, cut: Collection[int]) -> Layout | None:
    """The layout of what is a part of a value, along these axes: where channels of a batch of images are cut,
    it tells how many blocks of them an image has."""
    layout = whole.layout
    blocks = whole.storage[1] if layout is not None else None
    if layout is None or 1 not in cut or whole.shape[0] == 1 or not isinstance(blocks, int):
        return layout
    return replace(layout, pitch=layout.pitch or blocks)


def unfolded_layout(node: Node[Unfold]) -> Layout | None:
    """The layout in which the windows over a batch of images are parts of it that overlap: images of as many
    whole blocks as `taps` of the others have, which begin where theirs do. None where there is none."""
    x, op = node.inputs[0].tensor, node.op
    if x.layout is None or are_apart(x) or not isinstance(x.shape[1], int) or x.shape[1] % x.layout.block:
        return None
    return replace(x.layout, pitch=op.stride * (x.shape[1] // x.layout.block))


def are_apart(type_: TensorType) -> bool:
    """Whether images of a batch do not follow each other: something lies between them, or they overlap."""
    return type_.layout is not None and type_.layout.pitch != 0


def keeps_pixels(x: TensorType, out: TensorType) -> bool:
    """Whether a Reshape of images only joins or splits axes of theirs, so that in blocks of channels nothing
    moves either."""
    if min(x.rank, out.rank) < 3 or x.shape[:2] != out.shape[:2] or not isinstance(x.shape[1], int):
        return False
    return dims.equal(dims.product(x.shape[2:]), dims.product(out.shape[2:])) is True


def reshaped_layout(layout: Layout | None, of: TensorType, to: TensorType) -> Layout | None:
    """The layout of images that lie as `layout` says when they are seen as `to`: all axes keep their borders
    where those are others that have size 1 and none, and planes have borders along rows and columns alone;
    else the last one where it is as long, and no other."""
    if layout is None:
        return None
    borders = dict(enumerate(layout.halo))
    long, longs = ([a for a, d in enumerate(type_.shape[2:]) if d != 1] for type_ in (of, to))
    same = [of.shape[2 + a] for a in long] == [to.shape[2 + a] for a in longs]
    if same and not any(border for a, border in borders.items() if a not in long):
        places = dict(zip(longs, long))
        halo = tuple(borders.get(places[a], 0) if a in places else 0 for a in range(to.rank - 2))
        seen = replace(layout, halo=halo)
        if are_rows(replace(to, layout=seen)):  # what kernels over more axes take
            return seen
    kept = any(layout.halo) and dims.equal(of.shape[-1], to.shape[-1]) is True
    return replace(layout, halo=(*(0,) * (to.rank - 3), layout.halo[-1] if kept else 0))


def _lies_as(x: TensorType, out: TensorType) -> bool:
    """Whether the memory of a reshaped value is that of its operand."""
    if x.layout is None or out.layout is None:
        return x.layout is None and out.layout is None
    there, back = reshaped_layout(x.layout, x, out), reshaped_layout(out.layout, out, x)
    return keeps_pixels(x, out) and (there, back) == (out.layout, x.layout)


def parts_of(node: Node) -> list[Dimension] | None:
    """Where in the memory of its result each operand of a join lies, in bytes; None for other nodes. Sizes
    that only the run can compare are no join's: operands are written before it does."""
    if node.choice is not None or not isinstance(node.op, Concat):
        return None
    out, axis = node.outputs[0].tensor, node.op.axis
    begin: Dimension = 0
    found: list[Dimension] = []
    for value in node.inputs:
        offset = _offset(out, axis, begin)
        if offset is None:
            return None
        found.append(offset)
        begin = begin + value.shape[axis]
    part = part_layout(out, (axis,))
    fits = all(
        v.tensor.layout == part
        and all(dims.equal(v.shape[a], d) for a, d in enumerate(out.shape) if a != axis)
        for v in node.inputs
    )
    apart = axis == 1 and are_apart(replace(out, layout=part))
    return found if fits and (apart or all(d == 1 for d in out.shape[:axis])) else None


def root_of(value: Value) -> tuple[Value, Dimension]:
    """(the value that a value is part of by views, offset in bytes)"""
    offset: Dimension = 0
    while value.producer is not None and (view := view_of(value.producer)) is not None:
        value, more = view
        offset = offset + more
    return value, offset


def may_be(value: Value) -> set[Value]:
    """The values without producer in whose memory a value may lie: what branches give is one or the other."""
    root, _ = root_of(value)
    if root.producer is None:
        return {root}
    if not isinstance(root.producer.op, If):
        return set()
    found: set[Value] = set()
    for branch in (root.producer.op.then, root.producer.op.otherwise):
        captured = dict(zip(branch.inputs, root.producer.inputs[1:]))
        inner = may_be(branch.outputs[root.index])
        found |= {source for v in inner if v in captured for source in may_be(captured[v])}
    return found


def insides(node: Node, taken: Collection[Value]) -> list[Value | None]:
    """For every operand of a join the value whose producer can write it there, with all parts of that value
    that are operands; None where it has to be copied. `taken`: values that have their place already."""
    found: list[Value | None] = []
    taken = set(taken)
    while len(found) < len(node.inputs):
        root, _ = root_of(node.inputs[len(found)])
        count = _parts_that_make(root, node.inputs[len(found) :])
        if count and root not in taken and _is_written_here(root) and _lies_alike(root, node.outputs[0]):
            taken.add(root)
            found += [root] * count
        else:
            found.append(None)
    return found


def _blocks_are_dense(type_: TensorType) -> bool:
    """Whether the bytes of a blocked image are those of a dense one: a single pixel and no idle lane."""
    if type_.layout is None or any(type_.layout.halo) or are_apart(type_):
        return False
    channels = type_.shape[1]
    single = all(d == 1 for d in type_.shape[2:])
    return single and isinstance(channels, int) and channels % type_.layout.block == 0


def _offset(type_: TensorType, axis: int, index: Dimension) -> Dimension | None:
    """Bytes from an image's first one to that of index `index` of an axis; None inside a block."""
    if type_.layout is None:
        return index * dims.product(type_.shape[axis + 1 :]) * dtypes.itemsize(type_.dtype)
    step = dims.product(type_.storage[axis + 1 :]) * dtypes.itemsize(type_.dtype)
    if axis == 1 and isinstance(index, int) and index % type_.layout.block == 0:
        return index // type_.layout.block * step
    return index * type_.batch_stride if axis == 0 else 0 if index == 0 else None


def _ends_whole(type_: TensorType, cut: Slice, axis: int) -> bool:
    """Whether a part of an image that is cut along `axis` ends where a block does, or the image."""
    if type_.layout is None or axis == 0:
        return True
    end = cut.starts[axis] + cut.sizes[axis]
    return axis == 1 and (end == type_.shape[1] or (isinstance(end, int) and end % type_.layout.block == 0))


def _parts_that_make(root: Value, values: tuple[Value, ...]) -> int:
    """How many of the first values are, one after the other, the whole of root; 0 where they are not."""
    end: Dimension = 0
    for count, value in enumerate(values, 1):
        source, offset = root_of(value)
        if source is not root or dims.equal(offset, end) is not True:
            return 0
        part, whole = value.tensor, root.tensor
        apart = are_apart(part)  # and images of a batch are alike
        end = end + (part.image_bytes if apart else part.nbytes)
        if dims.equal(end, whole.image_bytes if apart else whole.nbytes):
            return count if not apart or dims.equal(part.shape[0], whole.shape[0]) else 0
    return 0


def _is_written_here(root: Value) -> bool:
    """Whether a node of this graph writes the value, wherever it is told to."""
    return root.producer is not None and (
        root.producer.choice is not None or isinstance(root.producer.op, Concat)
    )


def _lies_alike(root: Value, whole: Value) -> bool:
    """Whether a place inside `whole` suits the value."""
    inner, outer = root.tensor.layout, whole.tensor.layout
    return inner is None or (outer is not None and inner.block == outer.block)
