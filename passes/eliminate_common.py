"""eliminate_common: equal nodes over equal operands become one.

%0 = map(%x) { exp($0) }; %1 = map(%x) { exp($0) }   →   %0 = map(%x) { exp($0) }, read twice
"""
from __future__ import annotations

from ..ir import Graph, Rewriter
from ..ops import Bind, If, Loop, Random, RuntimeCall
from ..target import Target
from .regions import in_regions


def eliminate_common(graph: Graph, target: Target) -> Graph:
    """graph with one node for all that compute the same."""
    rewriter = Rewriter()
    seen: dict[tuple, tuple] = {}
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        if isinstance(node.op, (If, Loop)):
            copied = rewriter.copy(in_regions(node, lambda g: eliminate_common(g, target)), inputs)
            rewriter.replace(node.outputs, copied.outputs)
            continue
        if isinstance(node.op, (Bind, Random, RuntimeCall)):
            copied = rewriter.copy(node, inputs)
            rewriter.replace(node.outputs, copied.outputs)
            continue
        key = (node.op, tuple(_key(v) for v in inputs))
        if key in seen:
            rewriter.replace(node.outputs, seen[key])
        else:
            copied = rewriter.copy(node, inputs)
            rewriter.replace(node.outputs, copied.outputs)
            seen[key] = copied.outputs
    return rewriter.finish(graph)


def _key(value) -> object:
    """Equal for small equal constants; else the value itself."""
    constant = value.constant
    if constant is not None and constant.splat is None and constant.materialised and constant.nbytes <= 256:
        return (
            constant.dtype,
            constant.shape,
            constant.array.tobytes() if constant.dtype != "string" else id(value),
        )
    return value
