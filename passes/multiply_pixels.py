"""multiply_pixels: convolutions of single pixels, or with windows of whole images, are products.

conv(%x: [n, c, h, w], %w: [o, c, h, w]) without padding   →   reshape(contract("nchw", "ochw" → "no"))
conv(%x: [n, c, 1, 1], %w: [c, o, h, w]) transposed   →   contract(reshape(%x): "nc", %w: "cohw") → "nohw"
conv(%x: [n, c, h, w], %w: [c, 1, 1, 1]) of c groups   →   map(%x, reshape(%w): [c, 1, 1]) { mul($0, $1) }

A result of the first is a sum over the whole image; each of the second is that of one tap, wherever the
strides would put other pixels. All images share the weights. The third scales each channel.
"""

from __future__ import annotations

from ..ir import dtypes
from ..ir.everywhere import everywhere
from ..ir.expr import input_
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Contract, Conv, Map, Reshape


@everywhere
def multiply_pixels(graph: Graph) -> Graph:
    """graph without ungrouped convolutions whose windows are whole images, or, of the transposed, whole
    results of single pixels, and without those that scale each channel."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if _is_product(node):
            rewriter.replace(node.outputs, [_multiplied(rewriter, node)])
        elif _is_scale(node):
            rewriter.replace(node.outputs, [_scaled(rewriter, node)])
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _is_product(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conv) or op.groups != 1 or op.epilogue is not None or op.zero or op.narrow:
        return False
    if op.padded:
        return False
    image, window, result = (value.shape[2:] for value in (*node.inputs[:2], node.outputs[0]))
    pixel, other = (image, result) if op.transposed else (result, image)
    return all(size == 1 for size in pixel) and other == window


def _multiplied(rewriter: Rewriter, node: Node[Conv]) -> Value:
    op, x, w = node.op, rewriter.of(node.inputs[0]), rewriter.of(node.inputs[1])
    taps = "hwdefg"[: len(op.strides)]

    def product(labels: tuple[str, str, str], x: Value, *names: str) -> Value:
        contract = Contract(*labels, op.accumulate, exact=op.exact)
        return rewriter.add(contract, [x, w], node.origin, names)[0]

    if op.transposed:
        rows = rewriter.add(Reshape(x.shape[:2]), [x], node.origin)[0]
        return product(("nc", f"co{taps}", f"no{taps}"), rows, node.outputs[0].name)
    sums = product((f"nc{taps}", f"oc{taps}", "no"), x)
    return rewriter.add(Reshape(node.outputs[0].shape), [sums], node.origin, [node.outputs[0].name])[0]


def _is_scale(node: Node) -> bool:
    """Whether each channel is multiplied by a number of its own, of its type."""
    op = node.op
    if not isinstance(op, Conv) or op.epilogue is not None or op.zero or op.padded or set(op.strides) != {1}:
        return False
    x, w = node.inputs[:2]
    one_type = dtypes.is_float(x.dtype) and x.dtype == w.dtype == op.accumulate == node.outputs[0].dtype
    each = w.shape == (x.shape[1], *(1,) * (x.rank - 1)) and op.groups == x.shape[1]
    return one_type and each and node.outputs[0].shape == x.shape


def _scaled(rewriter: Rewriter, node: Node[Conv]) -> Value:
    x, w = rewriter.of(node.inputs[0]), rewriter.of(node.inputs[1])
    scale = rewriter.add(Reshape((x.shape[1], *(1,) * (x.rank - 2))), [w], node.origin)[0]
    body = input_(0, x.dtype) * input_(1, x.dtype)
    return rewriter.add(Map(body), [x, scale], node.origin, [node.outputs[0].name])[0]
