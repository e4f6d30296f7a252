"""fuse_maps: a Map enters the Map or the Reduce that reads it.

%1 = map(%0: map(%x) { exp($0) }, %y) { add($0, $1) }   →   %1 = map(%x, %y) { add(exp($0), $1) }
%1 = reduce(%0: map(%x) { exp($0) }) kind=sum           →   %1 = reduce(%x) kind=sum body={ exp($0) }

It does so when nothing else reads it, or when it is so cheap that computing it twice costs less than storing
it; a body keeps to about MAX_INSTRUCTIONS and MAX_OPERANDS. A Broadcast of an operand vanishes where the
Map's other operands give the shape. A Map of what a convolution or product gives is its epilogue, and stays.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..ir import expr
from ..ir.bodies import composed, gives
from ..ir.dtypes import itemsize
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Broadcast, Contract, Conv, Map, Reduce, requirements

MAX_INSTRUCTIONS = 64
MAX_OPERANDS = 8
CHEAP = 1  # instructions that may be repeated for every reader


@everywhere
def fuse_maps(graph: Graph) -> Graph:
    """graph with chains of Maps as single Maps."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if isinstance(node.op, Map):
            op, inputs, origin = _fused(node, tuple(rewriter.of(v) for v in node.inputs), rewriter.readers)
            outputs = rewriter.add(op, inputs, origin, [node.outputs[0].name])
            outputs[0].elements = node.outputs[0].elements
            rewriter.replace(node.outputs, outputs)
        elif isinstance(node.op, Reduce) and (made := _reduced(rewriter.of(node.inputs[0]), node, rewriter)):
            body = made.op.body
            if node.op.body is not None:
                body = expr.substitute(node.op.body, {0: body})
            rewriter.replace(
                node.outputs,
                rewriter.add(
                    replace(node.op, body=body), made.inputs, node.origin, [v.name for v in node.outputs]
                ),
            )
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _reduced(value: Value, node: Node, rewriter: Rewriter) -> Node | None:
    """The Map that makes all that a Reduce reads, if it may enter that."""
    made = value.producer
    if made is None or not isinstance(made.op, Map) or len(made.inputs) != 1 or len(node.inputs) != 1:
        return None
    (x,) = made.inputs
    host = x.producer is not None and isinstance(x.producer.op, (Conv, Contract))
    if (
        host
        or x.shape != value.shape
        or rewriter.readers[value] != 1
        or expr.contains(made.op.body, "check", "index")
    ):
        return None
    total = expr.instructions(made.op.body) + (
        expr.instructions(node.op.body) if node.op.body is not None else 0
    )
    return made if total <= MAX_INSTRUCTIONS else None


def _fused(
    node: Node, inputs: tuple[Value, ...], readers: Counter[Value]
) -> tuple[Map, tuple[Value, ...], str]:
    """node's Map with as many of its producers inside as fit, and the origin of what may fail of it."""
    body, operands, shape = node.op.body, list(inputs), node.op.shape
    failing = [node.origin] if _may_fail(node) else []
    k = 0
    while k < len(operands):
        producer = operands[k].producer
        if (
            producer is not None
            and isinstance(producer.op, Broadcast)
            and gives([*operands[:k], producer.inputs[0], *operands[k + 1 :]], node.outputs[0].shape)
        ):
            operands[k] = producer.inputs[0]
        elif (
            producer is not None
            and isinstance(producer.op, Map)
            and _worth(producer, operands[k], node, readers)
        ):
            whole, merged = composed(body, operands, k)
            if len(merged) <= MAX_OPERANDS and expr.fits(whole, MAX_INSTRUCTIONS):
                body, operands = whole, merged
                failing += [producer.origin] if _may_fail(producer) else []
                if shape is None and not gives(operands, node.outputs[0].shape):
                    shape = node.outputs[0].shape
                continue
        k += 1
    return Map(body, shape), tuple(operands), " or ".join(dict.fromkeys(failing)) or node.origin


def _may_fail(node: Node) -> bool:
    """Whether the run of a Map may end in an error, which then names it."""
    return expr.contains(node.op.body, "check") or bool(requirements(node))


def _worth(producer: Node, value: Value, node: Node, readers: Counter[Value]) -> bool:
    """Whether computing the producer's body where it is read beats storing its result. Dear operations are
    never repeated, and never computed for more elements than stored."""
    body, repeats = producer.op.body, value.shape != node.outputs[0].shape
    if repeats and expr.contains(body, "index"):
        return False  # the index would be one of another shape
    if readers[value] == 1 and not repeats:
        return not _narrows_sums(producer, readers)
    cheap = expr.instructions(body) <= CHEAP and not expr.contains(body, "check", *expr.DEAR)
    return cheap and len(producer.inputs) <= 1 and not _narrows(producer)


def _narrows_sums(producer: Node, readers: Counter[Value]) -> bool:
    """Whether the producer makes bytes of sums of integers, whose epilogue it then becomes: four times less
    is stored than where its reader takes it in."""
    if not _narrows(producer):
        return False
    hosts = [v.producer.op for v in producer.inputs if v.producer is not None and readers[v] == 1]
    return any(isinstance(op, (Conv, Contract)) and op.accumulate == "int32" for op in hosts)


def _narrows(producer: Node) -> bool:
    """Whether the producer reads wider elements than it writes, so that repeating it reads more."""
    return any(itemsize(v.dtype) > itemsize(producer.outputs[0].dtype) for v in producer.inputs)
