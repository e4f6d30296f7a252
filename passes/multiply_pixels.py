"""multiply_pixels: transposed convolutions of images of one pixel are products of matrices.

conv(%x: [n, c, 1, 1], %w: [c, o, h, w]) transposed   →   contract(reshape(%x): "nc", %w: "cohw") → "nohw"

Each result is that of one tap, wherever the strides would put other pixels. All images share the weights.
"""

from __future__ import annotations

from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Contract, Conv, Reshape
from ..ir.regions import everywhere


@everywhere
def multiply_pixels(graph: Graph) -> Graph:
    """graph without ungrouped transposed convolutions of single pixels whose windows are whole results."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if _is_product(node):
            rewriter.replace(node.outputs, [_multiplied(rewriter, node)])
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _is_product(node: Node) -> bool:
    op = node.op
    if not isinstance(op, Conv) or not op.transposed or op.groups != 1 or op.epilogue is not None:
        return False
    if op.zero or any(size != 1 for size in node.inputs[0].shape[2:]):
        return False
    return node.outputs[0].shape[2:] == node.inputs[1].shape[2:] and set(op.pads) == {0}


def _multiplied(rewriter: Rewriter, node: Node[Conv]) -> Value:
    op, x, w = node.op, rewriter.of(node.inputs[0]), rewriter.of(node.inputs[1])
    taps = "hwdefg"[: len(op.strides)]
    rows = rewriter.add(Reshape(x.shape[:2]), [x], node.origin)[0]
    product = Contract("nc", f"co{taps}", f"no{taps}", op.accumulate, exact=op.exact)
    return rewriter.add(product, [rows, w], node.origin, [node.outputs[0].name])[0]
