"""unfold_transposed: transposed convolutions of stride 1, in groups, of few outputs, of large strides,
dilated or of open channels become ordinary ones, which fast kernels take; of very few, of single pixels.

conv(%x, W) transposed groups=g strides=(s, t)   →   %0 = conv(%x, V) groups=g, s t times as many channels
    %0: results between two steps are channels of their own; they move to where they belong, and the padding
    is cut off

Along an axis the result at place s q + r is the sum over j of x at q - j times w at r + s j: for each r an
ordinary convolution, of windows of ceil(kernel / s) places. Of stride 1 there is one, and nothing moves.
Where taps are d apart, what s and d have in common is left out of both: results at its multiples are those of
such a convolution, and zeros lie between them. Weights that only the run knows are moved by it.

conv(%x, W) transposed   →   overlap_add(conv(%x, V)), V: each tap of an output is one of a single pixel
    where all results between two steps, side by side, would not fill a vector: the taps do
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd

import numpy as np

from ..ir import dims, dtypes, interpret
from ..ir.everywhere import everywhere
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value
from ..ir.obligations import Need, Shape
from ..ir.ops import Conv, Op, OverlapAdd, Pad, Reshape, Slice, Transpose
from ..records import dataclass

LEAST = 4  # products of a result: with fewer, moving results takes longer than is gained
PIXELS = 64  # of an image for which moving the weights in every run pays
LANES = 16  # of a vector, which output channels of one place, if they are few, leave idle
MOST_AXES = 2  # over which a kernel takes dilated ones
FEW_TAPS, MANY_PRODUCTS = 4, 256  # of results that are not worth moving to between zeros, and that are
MOST_PLACES = 64  # between steps for which there is code of their own


@everywhere
def unfold_transposed(graph: Graph) -> Graph:
    """graph without transposed convolutions of stride 1, in groups, of few outputs, of large strides, dilated
    or of open channels, where windows are known and results are sums."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if _is_unfolded(node):
            rewriter.replace(node.outputs, [(_added_up if _is_added_up(node) else _unfolded)(rewriter, node)])
        else:
            rewriter.copy(node)
    return rewriter.finish()


@dataclass(frozen=True)
class Axis:
    """How a transposed convolution goes along one axis: results lie at multiples of `spread` from a step on,
    `phases` between two steps, each of a window of `taps` that are `dilation` places apart."""

    phases: int
    spread: int
    dilation: int
    taps: int


def _axes(op: Conv, kernel: Sequence[int]) -> list[Axis]:
    found = []
    for size, stride, dilation in zip(kernel, op.strides, op.dilations, strict=True):
        spread = gcd(stride, dilation) if size > 1 else stride  # a single tap is at any distance from others
        phases, apart = stride // spread, dilation // spread if size > 1 else 1
        found.append(Axis(phases, spread, apart, -(-size // phases)))
    return found


def _is_unfolded(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conv) or not op.transposed or op.epilogue is not None:
        return False
    w = node.inputs[1]
    if not dims.is_static((*w.shape[2:], *op.pads)) or 0 in w.shape[2:]:
        return False
    axes = _axes(op, dims.numbers(w.shape[2:]))
    if any(a.phases > 1 and a.dilation > 1 for a in axes):
        return False  # windows of results between two steps begin at different places
    if not dims.is_static(w.shape):  # no kernel takes these, and products do as ordinary ones (multiply_taps)
        return True
    taken = set(op.strides) == {1} and op.groups == 1 and len(axes) <= MOST_AXES  # by a kernel as it is
    pixels = dims.typical(dims.product(node.inputs[0].shape[2:]))
    if w.constant is None and pixels < (2 * PIXELS if taken else PIXELS):
        return False
    if set(op.strides) == {1} or dims.product(op.strides) > MOST_PLACES:
        return True
    if len(axes) > MOST_AXES and set(op.dilations) != {1}:
        return True
    channels, outputs, *kernel = dims.numbers(w.shape)
    if op.groups == 1:
        return _leaves_idle(channels, outputs, kernel, op, axes)
    phases = dims.product(a.phases for a in axes)
    return channels // op.groups * dims.product(kernel) >= LEAST * phases


def _leaves_idle(channels: int, outputs: int, kernel: list[int], op: Conv, axes: list[Axis]) -> bool:
    """Whether the results between two steps, side by side in vectors, take at most half the products of those
    of one place after the other, and are worth moving."""
    side_by_side = kernel == [*op.strides] and set(op.dilations) == {1} and not op.padded
    if side_by_side and outputs * dims.product(kernel) <= LANES // 2:
        return False  # they are moved in registers (codegen/kernels/conv_transpose.py)
    taps = dims.product(a.taps for a in axes)
    many = taps > FEW_TAPS and channels * taps > MANY_PRODUCTS
    if any(a.spread > 1 for a in axes) and (many or 2 * outputs <= LANES):
        return True  # most places are zeros, among which sums are moved all at once
    together = -(-outputs * dims.product(a.phases for a in axes) // LANES) * taps
    return channels * taps >= LANES and 2 * together <= -(-outputs // LANES) * dims.product(kernel)


def _is_added_up(node: Node[Conv]) -> bool:
    """Whether products of single pixels, added up where they overlap, leave fewer lanes idle."""
    op, (x, w, *_) = node.op, node.inputs
    if op.groups != 1 or op.zero or set(op.strides) == {1} or not dims.is_static(w.shape):
        return False
    if not dtypes.is_float(x.dtype) or x.dtype != op.accumulate:
        return False
    channels, outputs, *kernel = dims.numbers(w.shape)
    phases = dims.product(a.phases for a in _axes(op, kernel))
    return outputs * phases < LANES and outputs * dims.product(kernel) <= channels


def _added_up(rewriter: Rewriter, node: Node[Conv]) -> Value:
    op, (x, w) = node.op, (rewriter.of(v) for v in node.inputs)
    rank, (channels, outputs, *kernel) = len(op.strides), dims.numbers(w.shape)
    rows = outputs * dims.product(kernel)
    steps = [Reshape((channels, rows)), Transpose((1, 0)), Reshape((rows, channels, *(1,) * rank))]
    each = replace(
        op,
        strides=(1,) * rank,
        pads=(0,) * 2 * rank,
        dilations=(1,) * rank,
        transposed=False,
        output_padding=(),
    )
    (y,) = rewriter.add(each, (x, _moved(rewriter, node, w, steps)), node.origin)
    sums = OverlapAdd(
        tuple(kernel), op.strides, dims.numbers(op.pads[:rank]), op.dilations, node.outputs[0].shape[2:]
    )
    return rewriter.add(sums, (y,), node.origin, [node.outputs[0].name])[0]


def _unfolded(rewriter: Rewriter, node: Node[Conv]) -> Value:
    op, x = node.op, rewriter.of(node.inputs[0])
    rank, shape = len(op.strides), node.outputs[0].shape
    pads, kernel = dims.numbers(op.pads), dims.numbers(node.inputs[1].shape[2:])
    axes = _axes(op, kernel)
    before, behind, cut = [], [], []
    growth = op.output_padding or (0,) * rank
    for axis, stride, d, k, first, after, more in zip(
        axes, op.strides, op.dilations, kernel, pads[:rank], pads[rank:], growth, strict=True
    ):
        reach = (axis.taps - 1) * axis.dilation
        left_out = min(first // stride, reach)  # steps before the first result
        before.append(reach - left_out)
        behind.append(max(0, -(-((k - 1) * d + 1 - after + more) // stride) - 1))
        cut.append(first - left_out * stride)
    plain = replace(
        op,
        strides=(1,) * rank,
        pads=(*before, *behind),
        dilations=tuple(a.dilation for a in axes),
        transposed=False,
        output_padding=(),
    )

    def add(op: Op, *inputs: Value, names: Sequence[str] = ()) -> Value:
        return rewriter.add(op, inputs, node.origin, names)[0]

    w = rewriter.of(node.inputs[1])
    w = _moved(rewriter, node, w, _turning(w.shape, op, axes))
    name = [node.outputs[0].name]
    if set(op.strides) == {1} and plain.infer(Need(), x.tensor, w.tensor)[0].shape == shape:
        return add(plain, x, w, names=name)  # nothing is to be cut off
    y = add(plain, x, w)
    if set(op.strides) != {1}:
        y = _interleaved(add, y, shape[:2], axes)
    return add(Slice((0, 0, *cut), shape, (1,) * (2 + rank)), y, names=name)


def _interleaved(add: Callable[..., Value], y: Value, lead: Shape, axes: list[Axis]) -> Value:
    """Results between two steps, which are channels, where they belong; zeros where there are none."""
    count, rank = y.shape[2:], len(axes)
    y = add(Reshape((*lead, *(a.phases for a in axes), *count)), y)
    order = [axis for a in range(rank) for axis in (2 + rank + a, 2 + a)]  # places, those between them
    y = add(Transpose((0, 1, *order)), y)
    if any(a.spread > 1 for a in axes):
        y = add(Reshape((*lead, *(part for n, a in zip(count, axes) for part in (n * a.phases, 1)))), y)
        idle = tuple(part for a in axes for part in (0, a.spread - 1))
        zeros = Pad("constant", (0,) * y.rank, (0, 0, *idle))
        y = add(zeros, y, *_filling(zeros, y.dtype))
    sizes = (n * a.phases * a.spread for n, a in zip(count, axes, strict=True))
    return add(Reshape((*lead, *sizes)), y)


def _filling(step: Op, dtype: str) -> list[Value]:
    """The operand of a Pad that it pads with: zero."""
    return [constant_value(np.zeros((), dtypes.numpy_dtype(dtype)))] * isinstance(step, Pad)


def _turning(shape: Shape, op: Conv, axes: list[Axis]) -> list[Op]:
    """What moves weights [channels, outputs of a group, kernel...] to [outputs * phases, channels of a
    group, taps...], the last tap first, zeros where a kernel ends before."""
    groups, rank = op.groups, len(axes)
    channels, outputs, *kernel = shape
    taps, between = [a.taps for a in axes], [a.phases for a in axes]
    inside = dims.floor_divide(channels, groups)
    idle = [t * s - k for t, s, k in zip(taps, between, dims.numbers(kernel), strict=True)]
    parts = (groups, inside, outputs, *(n for pair in zip(taps, between, strict=True) for n in pair))
    places, phases = ([3 + 2 * a + more for a in range(rank)] for more in (0, 1))
    last = tuple(n - 1 if a in places else 0 for a, n in enumerate(parts))
    back = tuple(-1 if a in places else 1 for a in range(len(parts)))
    return [
        Pad("constant", (0,) * (2 + rank), (0, 0, *idle)),
        Reshape(parts),
        Slice(last, parts, back),
        Transpose((0, 2, *phases, 1, *places)),
        Reshape((groups * outputs * dims.product(between), inside, *taps)),
    ]


def _moved(rewriter: Rewriter, node: Node, w: Value, steps: list[Op]) -> Value:
    """The weights after these steps."""
    if w.constant is not None:
        return _turned(w.constant, steps)
    for step in steps:
        (w,) = rewriter.add(step, (w, *_filling(step, w.dtype)), node.origin)
    return w


def _turned(weights: Constant, steps: list[Op]) -> Value:
    """Constant weights, moved when somebody reads them."""
    *_, last = steps
    assert isinstance(last, Reshape)
    shape = dims.numbers(last.shape)

    def make() -> np.ndarray:
        array = weights.array
        for step in steps:
            filling = [value.data.array for value in _filling(step, weights.dtype)]
            (array,) = interpret.run_op(step, [array, *filling], {})
        return np.ascontiguousarray(array)

    return constant_value(Constant(weights.dtype, shape, make))
