"""flatten_windows: convolutions and pools over three axes become ones over two, which fast kernels take.
`flatten_volumes` takes the same steps from more axes to three.

conv(%x, %w) over (D, H, W), kernel 3x3x3   →   conv(%0, %1) over (H, W)
    %0 = each place along D as an image of its own, the three slices that its window sees as its channels
    %1 = the weights of a tap along D after those of the other: [O, 3 * C, 3, 3]

Two axes along which nothing is combined become one, and nothing moves, or of what is left out between results
the rest; an axis of a single place vanishes. Else the axis with the shortest kernel becomes images and
channels, but where groups are so small that they share blocks of channels. Of a single volume whose planes
are whole blocks of channels no slices are copied: an Unfold of the images, with those that pad them joined
on, is parts of memory that overlap. Where a convolution is transposed results between two steps of that axis
are channels, which move to it. What Pool combines over three axes, it combines along two, and then along the
first, or along this before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ir import dims, dtypes
from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, TensorType, Value, constant_value
from ..ir.kernel_limits import TRANSFORMED_CHANNELS, UNROLLED_PRODUCTS
from ..ir.ops import Broadcast, Concat, Conv, Op, Pad, Pool, Reshape, Slice, Transpose, Unfold
from ..target import Target

VOLUME = 3  # axes
FEW_CHANNELS = 4
LEVEL = 1.1  # elements that are left between two pools by one order or the other
FEW_ROWS = 8  # of windows over more than three axes, that pools read one after the other


def flatten_windows(graph: Graph, target: Target) -> Graph:
    """graph with windows over one or two axes, where three can be had so."""
    return everywhere(lambda inner: one_axis_fewer(inner, target, VOLUME))(graph)


def one_axis_fewer(graph: Graph, target: Target, axes: int) -> Graph:
    """graph with windows over one axis fewer than that many, where that can be had."""
    rewriter = Rewriter(graph)
    overlap = {node for node in graph.nodes if overlap_alone(node, target) and node.inputs[0].shape[0] == 1}
    if all(is_pointwise(node) for node in overlap):
        overlap.clear()  # planes are images where windows are over others, too
    for node in graph.nodes:
        found = None
        if isinstance(node.op, Pool) and len(node.op.kernel) == axes and _is_separable(node):
            found = _Writer(rewriter, node).pool(node.op)
        elif (
            isinstance(node.op, Conv)
            and len(node.op.strides) == axes
            and _is_known(node.op, node.inputs[0], node.inputs[1], target)
            and not _share_blocks(node, target)
            and not _is_stem(node, target)
        ):
            found = _Writer(rewriter, node).convolution(node.op, node in overlap)
        if found is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, [found])
    return rewriter.finish()


def overlap_alone(node: Node, target: Target) -> bool:
    """Whether the images that a convolution over a volume becomes can be parts of memory that overlap, if it
    is a single one: planes, each of whole blocks of channels, that follow each other."""
    op = node.op
    if not isinstance(op, Conv) or len(op.strides) != VOLUME:
        return False
    if not _is_known(op, node.inputs[0], node.inputs[1], target):
        return False
    channels, w = node.inputs[0].shape[1], node.inputs[1]
    whole = dims.number(channels) % target.block == 0
    along = op.dilations[_shortest(w)] == 1
    plain = op.groups == 1 and not op.transposed and not _is_stem(node, target)
    return whole and along and plain and (is_pointwise(node) or _needless(op, *node.inputs[:2]) is None)


def is_pointwise(node: Node[Conv]) -> bool:
    """Whether every result sees one place."""
    return max(dims.numbers(node.inputs[1].shape[2:])) == 1


def _share_blocks(node: Node[Conv], target: Target) -> bool:
    """Whether two groups or more share a block of channels, which a kernel over three axes takes lane by
    lane: summed up as the channels of images, zeros between them would be multiplied too."""
    op, (x, w) = node.op, node.inputs[:2]
    if op.groups == 1 or op.transposed or x.dtype not in ("float32", "float64"):
        return False
    if len(op.strides) > VOLUME or _needless(op, x, w) is not None:
        return False
    inside, made = _group(op, w)
    taps = dims.product(dims.numbers(w.shape[3:]))
    few = 2 * max(inside, made) <= target.block and inside * taps <= UNROLLED_PRODUCTS
    return few and _fits_a_block(op, w, target)


def _group(op: Conv, w: Value) -> tuple[int, int]:
    """The channels that a group reads, and those that it makes."""
    outputs, channels = dims.numbers(w.shape[:2])
    return channels, outputs // op.groups


def _fits_a_block(op: Conv, w: Value, target: Target) -> bool:
    """Whether a block of channels is made by whole groups, which read no more than a block."""
    inside, made = _group(op, w)
    return target.block % made == 0 and target.block % (target.block // made * inside) == 0


def _is_stem(node: Node[Conv], target: Target) -> bool:
    """Whether a kernel over three axes takes a convolution of few channels, of a video or a scan: with
    all planes that its windows see they are too few for Winograd's transforms, or windows move by more."""
    op, (x, w) = node.op, node.inputs[:2]
    if op.groups > 1 or op.transposed or x.dtype not in ("float32", "float64") or w.constant is None:
        return False
    if len(op.strides) > VOLUME or _needless(op, x, w) is not None:
        return False
    outputs, channels, planes = dims.numbers(w.shape[:3])
    few = channels * planes < TRANSFORMED_CHANNELS or max(op.strides[1:]) > 1
    return few and channels <= FEW_CHANNELS and outputs >= target.block


def _is_separable(node: Node[Pool]) -> bool:
    """Whether windows over three axes or more are those of windows: means of integers would be rounded twice.
    Over more than three, windows of few rows, or that do not overlap, are read as fast at once."""
    op = node.op
    if len(op.kernel) > VOLUME:
        rows = dims.product([size for size in op.kernel if size > 1][:-1])
        apart = all(size <= step for size, step in zip(op.kernel, op.strides))
        if apart or rows <= FEW_ROWS:
            return False
    elif len(op.kernel) < VOLUME or op.kernel[0] == 1 or max(op.kernel[1:]) == 1:
        return False
    return op.kind in ("max", "sum") or (op.kind == "mean" and dtypes.is_float(node.inputs[0].dtype))


def flattened(op: Op, x: Value, w: Value, target: Target) -> Op:
    """The convolution that a Conv of these operands becomes, axis after axis; any other op as it is."""
    while isinstance(op, Conv) and _is_known(op, x, w, target):
        axis = _needless(op, x, w)
        axis = _shortest(w) if axis is None else axis
        op, taps = _without(op, axis), dims.number(w.shape[2 + axis])
        x, w = (
            Value(TensorType(v.dtype, (v.shape[0], taps * v.shape[1], *_left(v.shape[2:], axis))))
            for v in (x, w)
        )
    return op


def _is_known(op: Conv, x: Value, w: Value, target: Target) -> bool:
    """Whether there are three axes or more, the weights' sizes and the padding are numbers, and there are
    channels to be added up, or an axis is needless: kernels that multiply lane by lane take windows over
    three."""
    if len(op.strides) < VOLUME or op.epilogue is not None:
        return False
    if not dims.is_static((*w.shape, *op.pads, x.shape[1])):
        return False
    sizes, pads = dims.numbers(w.shape), dims.numbers(op.pads)
    if min(pads) < 0 or min(sizes) == 0:
        return False
    if len(op.strides) > VOLUME or _needless(op, x, w) is not None:
        return True
    return op.groups == 1 or min(sizes[:2]) > 1 or not (op.transposed or _fits_a_block(op, w, target))


def _shortest(w: Value) -> int:
    """The axis with the shortest kernel."""
    kernel = dims.numbers(w.shape[2:])
    return kernel.index(min(kernel))


def _needless(op: Conv, x: Value, w: Value) -> int | None:
    """An axis of a single place, or the first of two neighbouring ones along which every result sees one
    place of its own."""
    axes = range(len(op.strides))
    growth = op.output_padding or (0,) * len(axes)
    alone = [(w.shape[2 + a], op.pads[a], op.pads[a + len(axes)], growth[a]) == (1, 0, 0, 0) for a in axes]
    idle = [alone[a] and (op.strides[a] == 1 or not op.transposed) for a in axes]
    single = (a for a in axes if alone[a] and x.shape[2 + a] == 1)
    return next(single, next((a for a in axes[:-1] if idle[a] and idle[a + 1]), None))


def _left(sizes: Sequence[Dimension], axis: int) -> tuple[Dimension, ...]:
    """The sizes of the other axes."""
    return (*sizes[:axis], *sizes[axis + 1 :])


def _without(op: Conv, axis: int) -> Conv:
    """The convolution over the other axes."""
    axes = len(op.strides)
    rest = [a for a in range(axes) if a != axis]
    return replace(
        op,
        strides=tuple(op.strides[a] for a in rest),
        pads=tuple(op.pads[a + side] for side in (0, axes) for a in rest),
        dilations=tuple(op.dilations[a] for a in rest),
        output_padding=tuple(op.output_padding[a] for a in rest if op.output_padding),
    )


class _Writer:
    """Writes what takes the place of one node."""

    def __init__(self, rewriter: Rewriter, node: Node):
        self.rewriter, self.node = rewriter, node
        self.inputs = [rewriter.of(v) for v in node.inputs]
        self.shape = node.outputs[0].shape
        self.axes = len(self.shape) - 2

    def add(self, op: Op, *inputs: Value) -> Value:
        return self.rewriter.add(op, inputs, self.node.origin)[0]

    def result(self, op: Op, x: Value) -> Value:
        """The last node, named as the one that was."""
        return self.rewriter.add(op, [x], self.node.origin, [self.node.outputs[0].name])[0]

    # Pools -----------------------------------------------------------------------------------------

    def pool(self, op: Pool) -> Value:
        """Planes first, then along the first axis, whose planes are lines; or this first, where no more is
        left of it, since lines are read as they lie. Of more than three axes the first one's places are
        channels where planes are pooled."""
        (x,) = self.inputs
        (n, c, depth, *inside), (count, *sizes) = x.shape, op.sizes
        left = [dims.typical(size) for size in (count * dims.product(inside), depth * dims.product(sizes))]
        lines_first = left[0] <= LEVEL * left[1]
        lead = 1 if self.axes == VOLUME else 0  # an axis that stays, of windows of one place

        def lines(x: Value, size: Sequence[Dimension]) -> Value:
            if op.keeps(0, self.inputs[0].tensor):
                return x
            along = replace(
                op,
                kernel=(op.kernel[0], 1),
                strides=(op.strides[0], 1),
                dilations=(op.dilations[0], 1),
                pads=(op.pads[0], 0, op.pads[self.axes], 0),
                sizes=(count, dims.product(size)),
            )
            return self.add(along, self.add(Reshape((n, c, depth, dims.product(size))), x))

        def planes(x: Value, places: Dimension) -> Value:
            inner = replace(
                op,
                kernel=(1,) * lead + op.kernel[1:],
                strides=(1,) * lead + op.strides[1:],
                dilations=(1,) * lead + op.dilations[1:],
                pads=(0,) * lead + op.pads[1 : self.axes] + (0,) * lead + op.pads[1 + self.axes :],
                sizes=(places,) * lead + tuple(sizes),
            )
            ahead = (n, c, places) if lead else (n, c * places)
            return self.add(inner, self.add(Reshape((*ahead, *inside)), x))

        x = planes(lines(x, inside), count) if lines_first else lines(planes(x, depth), sizes)
        return self.result(Reshape(self.shape), x)

    # Convolutions ----------------------------------------------------------------------------------

    def convolution(self, op: Conv, overlap: bool) -> Value | None:
        axis = _needless(op, *self.inputs)
        return self.unfolded(op, overlap) if axis is None or overlap else self.merged(op, axis)

    def merged(self, op: Conv, axis: int) -> Value:
        """Over two axes as one, of the places along them that are seen at all, or without one of a single
        place."""
        x, w = self.inputs
        at = 2 + axis
        behind = x.shape[at + 1 :]
        if x.shape[at] != 1:
            pair = at, at + 1
            steps = tuple(op.strides[a - 2] if a in pair else 1 for a in range(x.rank))
            if max(steps) > 1:
                sizes = tuple(self.shape[a] if a in pair else x.shape[a] for a in range(x.rank))
                x = self.add(Slice((0,) * x.rank, sizes, steps), x)
                op = replace(op, strides=tuple(1 if 2 + a in pair else s for a, s in enumerate(op.strides)))
            behind = (x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
        x = self.add(Reshape((*x.shape[:at], *behind)), x)
        w = self.add(Reshape(_left(w.shape, at)), w)
        return self.result(Reshape(self.shape), self.add(_without(op, axis), x, w))

    def unfolded(self, op: Conv, overlap: bool) -> Value | None:
        """Over the axes but that with the shortest kernel."""
        axis = _shortest(self.inputs[1])
        if not op.transposed:
            return self._direct(op, axis, overlap)
        return self._transposed(op, axis) if op.dilations[axis] == 1 else None

    def _direct(self, op: Conv, axis: int, overlap: bool) -> Value:
        x, w = self.inputs
        at, taps, count = 2 + axis, dims.number(w.shape[2 + axis]), self.shape[2 + axis]
        around = op.pads[axis], op.pads[axis + len(op.strides)], op.zero
        if overlap:
            x = self._overlapping(x, at, taps, op.strides[axis], around)
        else:
            starts = [k * op.dilations[axis] for k in range(taps)]
            x = self._images(x, at, starts, count, op.strides[axis], around)
        w = self.add(Transpose(_moved(w.rank, at, 1)), w)
        w = self.add(Reshape((w.shape[0], taps * w.shape[2], *w.shape[3:])), w)
        return self._volumes(self.add(_without(op, axis), x, w), at, count)

    def _planes(self, x: Value, axis: int) -> Value:
        """A single volume as images, one for each place along an axis: it exchanges places with the batch, so
        that blocks of channels stay what they are."""
        x = self.add(Transpose(_exchanged(x.rank, axis)), x)
        return self.add(Reshape((*x.shape[:axis], *x.shape[axis + 1 :])), x)

    def _volumes(self, y: Value, axis: int, count: Dimension) -> Value:
        """Volumes, of which the images along an axis are given."""
        n = self.shape[0]
        if n == 1:
            y = self.add(Reshape((*y.shape[:axis], 1, *y.shape[axis:])), y)
            return self.result(Transpose(_exchanged(y.rank, axis)), y)
        y = self.add(Reshape((n, count, *y.shape[1:])), y)
        return self.result(Transpose(_moved(y.rank, 1, axis)), y)

    def _overlapping(
        self, x: Value, axis: int, taps: int, stride: int, around: tuple[Dimension, Dimension, int]
    ) -> Value:
        """Places along an axis of a single volume as images, of which each window sees `taps`: nobody moves
        what lies between `around`, which is joined with it, where images are stored in blocks."""
        x = self._planes(x, axis)
        before, after, fill = around
        scalar = constant_value(np.asarray(fill, dtypes.numpy_dtype(x.dtype)))
        rest = x.shape[1:]
        ends = [self.add(Broadcast((size, *rest)), scalar) if size != 0 else None for size in (before, after)]
        parts = [part for part in (ends[0], x, ends[1]) if part is not None]
        x = self.add(Concat(0), *parts) if len(parts) > 1 else x
        return self.add(Unfold(taps, stride), x) if (taps, stride) != (1, 1) else x

    def _transposed(self, op: Conv, axis: int) -> Value:
        """A result at place q = s e + r of the axis is the sum over t of x at e - t times w at r + s t."""
        x, w = self.inputs
        at, stride, before = 2 + axis, op.strides[axis], dims.number(op.pads[axis])
        size, kernel, length = x.shape[at], dims.number(w.shape[at]), self.shape[at]
        taps = -(-kernel // stride)
        count = dims.ceil_divide(length + before, stride)
        around = taps - 1, dims.maximum(count - size, 0), 0
        x = self._images(x, at, [taps - 1 - t for t in range(taps)], count, 1, around)
        w = self._padded(w, at, 0, stride * taps - kernel, 0)
        w = self.add(Transpose(_moved(w.rank, at, 2)), w)
        inside = dims.number(w.shape[0]) // op.groups
        w = self.add(Reshape((op.groups, inside, w.shape[1], taps, stride, *w.shape[3:])), w)
        alone = op.groups == 1 and self.shape[0] == 1
        rest = range(5, w.rank)
        w = self.add(Transpose((0, 3, 1, 4, 2, *rest) if alone else (0, 3, 1, 2, 4, *rest)), w)
        w = self.add(Reshape((op.groups * taps * inside, w.shape[3] * w.shape[4], *w.shape[5:])), w)
        y = self.add(_without(op, axis), x, w)
        outputs = dims.number(y.shape[1]) // stride
        if alone:  # what lies between two places comes before the channels, as images of its own
            y = self.add(Reshape((count * stride, outputs, *y.shape[2:])), y)
            starts = (before, *(0,) * (y.rank - 1))
            y = self.add(Slice(starts, (length, *y.shape[1:]), (1,) * y.rank), y)
            return self._volumes(y, at, length)
        y = self.add(Reshape((self.shape[0], count, outputs, stride, *y.shape[2:])), y)
        order = [0, 2, *range(4, y.rank)]
        order[at:at] = [1, 3]  # places before those between them
        y = self.add(Transpose(tuple(order)), y)
        y = self.add(Reshape((*y.shape[:at], count * stride, *y.shape[at + 2 :])), y)
        starts = tuple(before if a == at else 0 for a in range(y.rank))
        return self.result(Slice(starts, self.shape, (1,) * y.rank), y)

    def _padded(self, x: Value, axis: int, before: Dimension, after: Dimension, fill: int) -> Value:
        if before == 0 and after == 0:
            return x

        def along(amount: Dimension) -> tuple[Dimension, ...]:
            return tuple(amount if a == axis else 0 for a in range(x.rank))

        scalar = constant_value(np.asarray(fill, dtypes.numpy_dtype(x.dtype)))
        return self.add(Pad("constant", along(before), along(after)), x, scalar)

    def _images(
        self,
        x: Value,
        axis: int,
        starts: Sequence[int],
        count: Dimension,
        stride: int,
        around: tuple[Dimension, Dimension, int],
    ) -> Value:
        """Places along an axis as images; the slices from `starts` on are channels, a group's together.
        `around`: what comes before and after. The axis comes first, next to what moved it back before, so
        that slices are parts of memory; of a single volume places are images from the beginning."""
        groups = self.node.op.groups
        n, first = x.shape[0], 1
        if n == 1:
            x, first = self._planes(x, axis), 0
        else:
            x = self.add(Transpose(_moved(x.rank, axis, 1)), x)
        c, *sizes = x.shape[first + 1 :]
        if groups > 1:
            x = self.add(Reshape((*x.shape[: first + 1], groups, dims.number(c) // groups, *sizes)), x)
        x = self._padded(x, first, *around)
        cut = tuple(count if a == first else size for a, size in enumerate(x.shape))
        steps = tuple(stride if a == first else 1 for a in range(x.rank))
        parts = [
            self.add(Slice(tuple(k if a == first else 0 for a in range(x.rank)), cut, steps), x)
            for k in starts
        ]
        x = self.add(Concat(x.rank - self.axes), *parts) if len(parts) > 1 else parts[0]
        return self.add(Reshape((n * count, c * len(starts), *sizes)), x)


def _exchanged(rank: int, axis: int) -> tuple[int, ...]:
    """The order of axes in which one and the first have each other's place."""
    order = list(range(rank))
    order[0], order[axis] = axis, 0
    return tuple(order)


def _moved(rank: int, source: int, target: int) -> tuple[int, ...]:
    """The order of axes in which one moves."""
    order = [a for a in range(rank) if a != source]
    order.insert(target, source)
    return tuple(order)
