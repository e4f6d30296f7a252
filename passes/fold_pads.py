"""fold_pads: padding with zeros enters the convolution that reads it.

conv(pad(%x) constant 0.0 before=(0, 0, 0, 0) after=(0, 0, 1, 1), %w) pads=(0, 0, 0, 0)
    →   conv(%x, %w) pads=(0, 0, 1, 1)
"""
from __future__ import annotations

from dataclasses import replace

from ..ir import Constant, Graph, Node, Rewriter, Value
from ..ops import Conv, Pad
from ..target import Target
from .regions import in_regions


def fold_pads(graph: Graph, target: Target) -> Graph:
    """graph with convolutions that pad for themselves."""
    rewriter = Rewriter()
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        pad = inputs[0].producer if inputs else None
        if isinstance(node.op, Conv) and not node.op.transposed and pad is not None and _spatial_zeros(pad):
            rank = len(node.op.strides)
            extra = (*pad.op.before[2:], *pad.op.after[2:])
            pads = tuple(a + b for a, b in zip(node.op.pads, extra))
            if all(isinstance(p, int) and p >= 0 for p in pads) and len(pads) == 2 * rank:
                outputs = rewriter.add(replace(node.op, pads=pads), (pad.inputs[0], *inputs[1:]), node.origin)
                rewriter.replace(node.outputs, outputs)
                continue
        rewriter.copy(in_regions(node, lambda g: fold_pads(g, target)))
    return rewriter.finish(graph)


def _spatial_zeros(node: Node) -> bool:
    """Whether a node pads the spatial axes, and only those, with zeros."""
    if not isinstance(node.op, Pad) or node.op.mode != "constant":
        return False
    if any(p != 0 for p in (*node.op.before[:2], *node.op.after[:2])):
        return False
    return _is_zero(node.inputs[1])


def _is_zero(value: Value) -> bool:
    constant: Constant | None = value.constant
    return constant is not None and bool((constant.array == 0).all())
