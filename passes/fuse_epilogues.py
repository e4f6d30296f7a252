"""fuse_epilogues: a Map over the result of a convolution or a contraction becomes its epilogue.

map(conv(%x, %w), %b) { max(add($0, $1), 0.0) }   →   conv(%x, %w, %b) epilogue { max(add($0, $1), 0.0) }

The Map must be the result's only reader and keep its shape. Where two results meet in one Map, as in a
residual addition of two convolutions, the later one takes it and reads the other. A convolution takes what
is certainly read as an image: for each channel, or alike for all.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import dims, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value, make_node
from ..ir.ops import Contract, Conv, Map
from .fuse_maps import MAX_INSTRUCTIONS, MAX_OPERANDS


@everywhere
def fuse_epilogues(graph: Graph) -> Graph:
    """graph with Maps inside the Conv and Contract nodes whose results they read."""
    rewriter = Rewriter(graph)
    order = {v: k for k, n in enumerate(graph.nodes) for v in n.outputs}
    forms: dict[Node, Node] = {}  # Map → the node that takes it, with its body
    taken: set[Node] = set()
    for node in graph.nodes:
        if isinstance(node.op, Map):
            hosts = {v: forms.get(v.producer, v.producer) for v in node.inputs if v.producer is not None}
            able = [v for v, host in hosts.items() if rewriter.readers[v] == 1 and _takes(host, v, node)]
            if able:
                result = max(able, key=order.__getitem__)
                forms[node] = _with_epilogue(hosts[result], result, node)
                taken.add(result.node)
    for node in graph.nodes:
        if node in taken:
            continue  # it is written where its Map stands
        written = rewriter.copy(forms.get(node) or node)
        rewriter.replace(node.outputs, written.outputs)
    return rewriter.finish()


def _takes(host: Node | None, result: Value, node: Node) -> bool:
    """Whether a host, or what it has become, can take the Map that reads its result as its epilogue."""
    if host is None or not isinstance(host.op, (Conv, Contract)):
        return False
    if result.shape != node.outputs[0].shape or expr.contains(node.op.body, "index", "check"):
        return False
    if isinstance(host.op, Conv) and not all(_is_image(v, result) for v in node.inputs):
        return False
    operands = len(host.inputs) - 2 + len(node.inputs) - 1
    previous = expr.instructions(host.op.epilogue) if host.op.epilogue is not None else 0
    return operands <= MAX_OPERANDS and previous + expr.instructions(node.op.body) <= MAX_INSTRUCTIONS


def _is_image(value: Value, result: Value) -> bool:
    """Whether kernels of a convolution read a value beside its result: it certainly has as many channels or
    one for all, and repeats along all of the axes that are rows together, those before the last, or none."""
    shape = (1,) * (result.rank - value.rank) + value.shape
    _, channels, *outer, _ = map(dims.repeats, shape, result.shape)
    rows = {repeats for repeats, size in zip(outer, result.shape[2:]) if size != 1}
    return isinstance(channels, int) and len(rows) <= 1


def _with_epilogue(host: Node, result: Value, node: Node) -> Node:
    """The host with the body of the Map that reads its result after its own epilogue."""
    inputs = list(host.inputs)
    inputs += [v for v in dict.fromkeys(node.inputs) if v is not result and v not in inputs[2:]]
    place = {v: expr.input_(1 + k, v.dtype) for k, v in enumerate(inputs[2:])}
    place[result] = host.op.epilogue if host.op.epilogue is not None else expr.input_(0, host.op.accumulate)
    body = expr.substitute(node.op.body, {k: place[v] for k, v in enumerate(node.inputs)})
    return make_node(replace(host.op, epilogue=body), inputs, host.origin, [node.outputs[0].name])
