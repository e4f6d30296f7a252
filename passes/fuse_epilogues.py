"""fuse_epilogues: a Map over the result of a convolution or a contraction becomes its epilogue.

map(conv(%x, %w), %b) { max(add($0, $1), 0.0) }   →   conv(%x, %w, %b) epilogue { max(add($0, $1), 0.0) }

The Map must be the result's only reader and keep its shape. Where two results meet in one Map, as in a
residual addition of two convolutions, the later one takes it and reads the other.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import replace

from .. import expr
from ..ir import Graph, Node, Rewriter, Value
from ..ops import Contract, Conv, Map
from ..target import Target
from .fuse_maps import MAX_INSTRUCTIONS, MAX_OPERANDS
from .regions import in_regions


def fuse_epilogues(graph: Graph, target: Target) -> Graph:
    """graph with Maps inside the Conv and Contract nodes whose results they read."""
    readers = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs)
    order = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
    hosts: dict[Node, Node] = {}  # Map → the node that takes it
    for node in graph.nodes:
        if isinstance(node.op, Map):
            able = [v for v in node.inputs if _takes(v, node, readers)]
            if able:
                hosts[node] = max(able, key=order.__getitem__).producer
    taken = set(hosts.values())
    rewriter = Rewriter()
    for node in graph.nodes:
        if node in taken:
            continue  # it is written where its Map stands
        if node in hosts:
            op, inputs = _with_epilogue(hosts[node], node)
            outputs = rewriter.add(
                op, [rewriter.of(v) for v in inputs], hosts[node].origin, [node.outputs[0].name]
            )
            rewriter.replace(node.outputs, outputs)
        else:
            copied = rewriter.copy(in_regions(node, lambda g: fuse_epilogues(g, target)))
            rewriter.replace(node.outputs, copied.outputs)
    return rewriter.finish(graph)


def _takes(value: Value, node: Node, readers: Counter[Value]) -> bool:
    """Whether the producer of an operand can take the Map as its epilogue."""
    host = value.producer
    if host is None or not isinstance(host.op, (Conv, Contract)) or readers[value] != 1:
        return False
    if value.shape != node.outputs[0].shape or node.inputs.count(value) != 1:
        return False
    if any(n.op in ("index", "check") for n in expr.topological(node.op.body)):
        return False
    extra = len(host.inputs) - 2 + len(node.inputs) - 1
    previous = expr.instructions(host.op.epilogue) if host.op.epilogue is not None else 0
    return extra <= MAX_OPERANDS and previous + expr.instructions(node.op.body) <= MAX_INSTRUCTIONS


def _with_epilogue(host: Node, node: Node) -> tuple[Conv | Contract, list[Value]]:
    """The host's op with the Map's body after its own epilogue, and its operands."""
    inputs = list(host.inputs)
    for value in node.inputs:
        if value is not host.outputs[0] and value not in inputs[2:]:
            inputs.append(value)
    place = {v: 1 + k for k, v in enumerate(inputs[2:])}
    result = host.op.epilogue if host.op.epilogue is not None else expr.input_(0, host.op.accumulate)
    body = expr.substitute(
        node.op.body,
        {
            k: result if v is host.outputs[0] else expr.input_(place[v], v.dtype)
            for k, v in enumerate(node.inputs)
        },
    )
    return replace(host.op, epilogue=body), inputs
