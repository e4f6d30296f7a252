"""unfold_transposed: transposed convolutions in groups, of few outputs, of large strides or of open channels
become ordinary ones, which fast kernels take.

conv(%x, W) transposed groups=g strides=(s, t)   →   %0 = conv(%x, V) groups=g, s t times as many channels
    %0: results between two steps are channels of their own; they move to where they belong, and the padding
    is cut off

Along an axis the result at place s q + r is the sum over j of x at q - j times w at r + s j: for each r an
ordinary convolution, of windows of ceil(kernel / s) places. Weights that only the run knows are moved by it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir import dims, dtypes, interpret
from ..ir.graph import Constant, Graph, Node, Rewriter, TensorType, Value, constant_value
from ..ir.obligations import Shape
from ..ir.ops import Conv, Op, Pad, Reshape, Slice, Transpose
from ..ir.regions import everywhere

LEAST = 4  # products of a result: with fewer, moving results takes longer than is gained
PIXELS = 64  # of an image for which moving the weights in every run pays
LANES = 16  # of a vector, which output channels of one place, if they are few, leave idle
MOST_PLACES = 64  # between steps for which there is code of their own


@everywhere
def unfold_transposed(graph: Graph) -> Graph:
    """graph without transposed convolutions in groups, of few outputs, of large strides or of open channels,
    where windows are known and results are sums."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if _is_unfolded(node):
            rewriter.replace(node.outputs, [_unfolded(rewriter, node)])
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _is_unfolded(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conv) or not op.transposed or op.epilogue is not None:
        return False
    w = node.inputs[1]
    if not dims.is_static((*w.shape[2:], *op.pads)) or set(op.dilations) != {1}:
        return False
    if not dims.is_static(w.shape):  # no kernel takes these, and products do as ordinary ones (multiply_taps)
        return True
    if w.constant is None and dims.typical(dims.product(node.inputs[0].shape[2:])) < PIXELS:
        return False
    channels, outputs, *kernel = dims.numbers(w.shape)
    if dims.product(op.strides) > MOST_PLACES:
        return True
    if op.groups == 1:
        return _leaves_idle(channels, outputs, kernel, op)
    return channels // op.groups * dims.product(kernel) >= LEAST * dims.product(op.strides)


def _leaves_idle(channels: int, outputs: int, kernel: list[int], op: Conv) -> bool:
    """Whether the results between two steps, side by side in vectors, take at most half the products of those
    of one place after the other, and are worth moving."""
    if kernel == [*op.strides] and not op.padded and outputs * dims.product(kernel) <= LANES // 2:
        return False  # they are moved in registers (codegen/kernels/conv_transpose.py)
    taps = dims.product(-(-k // s) for k, s in zip(kernel, op.strides, strict=True))
    together = -(-outputs * dims.product(op.strides) // LANES) * taps
    return channels * taps >= LANES and 2 * together <= -(-outputs // LANES) * dims.product(kernel)


def _unfolded(rewriter: Rewriter, node: Node[Conv]) -> Value:
    op, x = node.op, rewriter.of(node.inputs[0])
    rank, strides, shape = len(op.strides), op.strides, node.outputs[0].shape
    pads, kernel = dims.numbers(op.pads), dims.numbers(node.inputs[1].shape[2:])
    taps = [-(-k // s) for k, s in zip(kernel, strides)]
    growth = op.output_padding or (0,) * rank
    behind = [
        -(-(k - after + more) // s) - 1
        for k, after, more, s in zip(kernel, pads[rank:], growth, strides, strict=True)
    ]
    plain = replace(
        op, strides=(1,) * rank, pads=(*(t - 1 for t in taps), *behind), transposed=False, output_padding=()
    )

    def add(op: Op, *inputs: Value) -> Value:
        return rewriter.add(op, inputs, node.origin)[0]

    w = rewriter.of(node.inputs[1])
    steps = _turning(w.shape, op, taps)
    if w.constant is not None:
        w = _turned(w.constant, steps)
    else:
        for step in steps:
            zero = [constant_value(np.zeros((), dtypes.numpy_dtype(w.dtype)))] * isinstance(step, Pad)
            w = add(step, w, *zero)
    y = add(plain, x, w)
    count = y.shape[2:]
    y = add(Reshape((shape[0], shape[1], *strides, *count)), y)
    order = [axis for a in range(rank) for axis in (2 + rank + a, 2 + a)]  # places, those between them
    y = add(Transpose((0, 1, *order)), y)
    y = add(Reshape((shape[0], shape[1], *(n * s for n, s in zip(count, strides, strict=True)))), y)
    cut = Slice((0, 0, *pads[:rank]), shape, (1,) * (2 + rank))
    return rewriter.add(cut, [y], node.origin, [node.outputs[0].name])[0]


def _turning(shape: Shape, op: Conv, taps: list[int]) -> list[Op]:
    """What moves weights [channels, outputs of a group, kernel...] to [outputs * strides, channels of a
    group, taps...], the last tap first, zeros where a kernel ends before."""
    groups, rank = op.groups, len(taps)
    channels, outputs, *kernel = shape
    inside, between = dims.floor_divide(channels, groups), dims.product(op.strides)
    idle = [t * s - k for t, s, k in zip(taps, op.strides, dims.numbers(kernel), strict=True)]
    parts = (groups, inside, outputs, *(n for pair in zip(taps, op.strides, strict=True) for n in pair))
    places, phases = ([3 + 2 * a + more for a in range(rank)] for more in (0, 1))
    last = tuple(n - 1 if a in places else 0 for a, n in enumerate(parts))
    back = tuple(-1 if a in places else 1 for a in range(len(parts)))
    return [
        Pad("constant", (0,) * (2 + rank), (0, 0, *idle)),
        Reshape(parts),
        Slice(last, parts, back),
        Transpose((0, 2, *phases, 1, *places)),
        Reshape((groups * outputs * between, inside, *taps)),
    ]


def _turned(weights: Constant, steps: list[Op]) -> Value:
    """Constant weights, moved when somebody reads them."""
    *_, last = steps
    assert isinstance(last, Reshape)
    shape = dims.numbers(last.shape)

    def make() -> np.ndarray:
        array = weights.array
        for step in steps:
            zero = [np.zeros((), array.dtype)] * isinstance(step, Pad)
            (array,) = interpret.run_op(step, [array, *zero], {})
        return np.ascontiguousarray(array)

    return Value(TensorType(weights.dtype, shape), "", Constant(weights.dtype, shape, make))
