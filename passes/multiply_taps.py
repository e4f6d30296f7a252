"""multiply_taps: convolutions whose channels only the run knows are sums of products of matrices, one a tap.

conv(%x: [n, c, h, w], %w: [o, c, 1, 2])   →   %0 = contract(%x: "nchw", %w[0]: "oc" → "nohw")
                                                %1 = contract(%x from its next column on, %w[1], %0) + %0

Weights of the run are packed into panels where their channels are known (`tiles/run_packing.py`). Where they
are not, as those that a segmenter makes for as many objects as it finds, products of matrices take any size;
an image is moved once for each tap, which costs little beside the products.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from ..ir import dims, dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value, constant_value
from ..ir.ops import Contract, Conv, Op, Pad, Reshape, Slice

MOST_TAPS = 64  # of a window that becomes as many products


@everywhere
def multiply_taps(graph: Graph) -> Graph:
    """graph without convolutions of open channels whose windows are known."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if _is_open(node):
            rewriter.replace(node.outputs, [_multiplied(rewriter, node)])
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _is_open(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conv) or op.transposed or op.epilogue is not None or op.zero or op.narrow:
        return False
    channels, window = node.inputs[1].shape[:2], node.inputs[1].shape[2:]
    if dims.is_static(channels) or not dims.is_static(window):
        return False
    each = channels[1] == 1  # of depthwise ones lanes are channels already
    return not each and 0 < prod(dims.numbers(window)) <= MOST_TAPS and all(map(_is_padding, op.pads))


def _is_padding(amount: dims.Dimension) -> bool:
    """Whether it is known not to be negative."""
    least = dims.bounds(amount)[0]
    return least is not None and least >= 0


def _multiplied(rewriter: Rewriter, node: Node[Conv]) -> Value:
    op, out = node.op, node.outputs[0]
    x, w = (rewriter.of(value) for value in node.inputs)
    window, places = dims.numbers(w.shape[2:]), out.shape[2:]
    groups = (op.groups,) if op.groups > 1 else ()
    columns, depth = (dims.floor_divide(channels, op.groups) for channels in (w.shape[0], x.shape[1]))
    axes, g = "hwdef"[: len(window)], "g" * len(groups)
    labels = f"n{g}c{axes}", f"{g}oc", f"n{g}o{axes}"
    added = expr.input_(0, op.accumulate) + expr.input_(1, op.accumulate)

    def add(step: Op, *inputs: Value) -> Value:
        return rewriter.add(step, inputs, node.origin)[0]

    padded, sums = _padded(rewriter, node, x), list[Value]()
    for tap in product(*map(range, window)):
        first = (0, 0, *(k * d for k, d in zip(tap, op.dilations, strict=True)))
        pixels = add(Slice(first, (*x.shape[:2], *places), (1, 1, *op.strides)), padded)
        if groups:
            pixels = add(Reshape((x.shape[0], *groups, depth, *places)), pixels)
        weights = add(Slice((0, 0, *tap), (*w.shape[:2], *(1 for _ in window)), (1,) * w.rank), w)
        weights = add(Reshape((*groups, columns, w.shape[1])), weights)
        step = Contract(*labels, op.accumulate, epilogue=added if sums else None, exact=op.exact)
        sums = [add(step, pixels, weights, *sums)]
    return rewriter.add(Reshape(out.shape), sums, node.origin, [out.name])[0]


def _padded(rewriter: Rewriter, node: Node[Conv], x: Value) -> Value:
    op, rank = node.op, len(node.op.strides)
    if not op.padded:
        return x
    zero = constant_value(np.zeros((), dtypes.numpy_dtype(x.dtype)))
    amounts = (0, 0, *op.pads[:rank]), (0, 0, *op.pads[rank:])
    return rewriter.add(Pad("constant", *amounts), [x, zero], node.origin)[0]
