"""fold_pads: padding with what stands for zero enters the convolution that reads it.

conv(pad(%x) constant 0.0 before=(0, 0, 0, 0) after=(0, 0, 1, 1), %w) pads=(0, 0, 0, 0)
    →   conv(%x, %w) pads=(0, 0, 1, 1)
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter
from ..ir.ops import Conv, Pad, Shape


@everywhere
def fold_pads(graph: Graph) -> Graph:
    """graph with convolutions that pad for themselves."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        pad = rewriter.of(node.inputs[0]).producer if isinstance(node.op, Conv) else None
        pads = None if pad is None else _joint_pads(node.op, pad)
        if pad is None or pads is None:
            rewriter.copy(node)
            continue
        inputs = (pad.inputs[0], *(rewriter.of(v) for v in node.inputs[1:]))
        outputs = rewriter.add(replace(node.op, pads=pads), inputs, node.origin, [node.outputs[0].name])
        rewriter.replace(node.outputs, outputs)
    return rewriter.finish()


def _joint_pads(op: Conv, pad: Node) -> Shape | None:
    """The padding of a convolution and of what pads its image, if one can do both."""
    if op.transposed or not _pads_with(pad, op.zero):
        return None
    pads = tuple(a + b for a, b in zip(op.pads, (*pad.op.before[2:], *pad.op.after[2:]), strict=True))
    return pads if all(isinstance(p, int) and p >= 0 for p in pads) else None


def _pads_with(node: Node, fill: int) -> bool:
    """Whether a node pads the spatial axes, and only those, with a number."""
    if not isinstance(node.op, Pad) or node.op.mode != "constant":
        return False
    if any(p != 0 for p in (*node.op.before[:2], *node.op.after[:2])):
        return False
    constant = node.inputs[1].constant
    return constant is not None and bool((constant.array == fill).all())
