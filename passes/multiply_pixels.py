"""multiply_pixels: convolutions of single pixels, or with windows of whole images, are products of matrices.

conv(%x: [n, c, h, w], %w: [o, c, h, w]) without padding   →   reshape(contract("nchw", "ochw" → "no"))
conv(%x: [n, c, 1, 1], %w: [c, o, h, w]) transposed   →   contract(reshape(%x): "nc", %w: "cohw") → "nohw"

A result of the first is a sum over the whole image; each of the second is that of one tap, wherever the
strides would put other pixels. All images share the weights.
"""

from __future__ import annotations

from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Contract, Conv, Reshape
from ..ir.regions import everywhere


@everywhere
def multiply_pixels(graph: Graph) -> Graph:
    """graph without ungrouped convolutions whose windows are whole images, or, of the transposed, whole
    results of single pixels."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if _is_product(node):
            rewriter.replace(node.outputs, [_multiplied(rewriter, node)])
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
