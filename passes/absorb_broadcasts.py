"""absorb_broadcasts: a product reads what is repeated for each matrix of the other operand where it lies.

contract(broadcast(%x: [b, 4, 8]) shape=(n, 4, 8), %y: [n, 8, 6]) lhs=bmk rhs=bkn out=bmn
    →   contract(%x, %y) lhs=bmk rhs=bkn out=bmn repeated=b

Of an axis of which only the run knows whether it is 1, it also finds how far the next matrix is. An axis that
is 1 becomes one of its own, so that the product has the other's alone. What a Map of one operand makes of
what is repeated, it makes of that before. The same goes for the operands of an Attention. This comes late:
other passes find one size for each label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters
from typing import Any

from ..ir.bodies import maps_anywhere
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Rewriter, Value
from ..ir.ops import Attention, Broadcast, Contract
from ..ir.requirements import Need, TypeMismatch

Product = Contract | Attention


@everywhere
def absorb_broadcasts(graph: Graph) -> Graph:
    """graph in which products read operands that are not repeated."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        op, inputs = node.op, tuple(rewriter.of(v) for v in node.inputs)
        if isinstance(op, (Contract, Attention)):
            for operand in range(len(_named(op))):
                op, inputs = _absorbed(rewriter, op, inputs, operand)
        if op is node.op:
            rewriter.copy(node)
        else:
            made = rewriter.add(op, inputs, node.origin, [v.name for v in node.outputs])
            rewriter.replace(node.outputs, made)
    return rewriter.finish()


def _absorbed(
    rewriter: Rewriter, op: Product, inputs: tuple[Value, ...], operand: int
) -> tuple[Product, tuple[Value, ...]]:
    """The product and its operands without the Broadcast of one of them, where it has the same result."""
    node = inputs[operand].producer
    alone = rewriter.readers[inputs[operand]] == 1
    mapped = node if alone and node is not None and maps_anywhere(node) else None
    node = node if mapped is None else mapped.inputs[0].producer
    labels = None
    if node is not None and isinstance(node.op, Broadcast):
        labels = _labels(op, operand, node.inputs[0], node.outputs[0])
    if node is None or labels is None:
        return op, inputs
    source = node.inputs[0]
    named, repeated = labels
    changed: dict[str, Any] = {_named(op)[operand]: named, "repeated": op.repeated + repeated}
    product = replace(op, **changed)
    if _shape(product, _with(inputs, operand, source)) != _shape(op, inputs):
        return op, inputs
    if mapped is not None:
        (source,) = rewriter.add(mapped.op, [source], mapped.origin)
    return product, _with(inputs, operand, source)


def _named(op: Product) -> tuple[str, ...]:
    """The fields with the labels of operands."""
    return ("lhs", "rhs") if isinstance(op, Contract) else ("q", "k", "v")


def _with(inputs: tuple[Value, ...], operand: int, value: Value) -> tuple[Value, ...]:
    return (*inputs[:operand], value, *inputs[operand + 1 :])


def _labels(op: Product, operand: int, source: Value, value: Value) -> tuple[str, str] | None:
    """The labels of what an operand is a Broadcast of, and those along which the run may find that it is 1;
    None where it is repeated along others than those of each of the product's matrices."""
    operands = [getattr(op, name) for name in _named(op)]
    fresh = (c for c in ascii_letters if c not in op.out and all(c not in labels for labels in operands))
    new = value.rank - source.rank
    named, repeated = "", ""
    for label, size, before in zip(operands[operand], value.shape, (None,) * new + source.shape):
        if before == size:
            named += label
        elif label not in op.batch or (before is None and isinstance(op, Attention)):
            return None
        elif before == 1 and isinstance(op, Contract):
            named += next(fresh)
        elif before is not None:
            named += label
            repeated += label if label not in op.repeated else ""
    return named, repeated


def _shape(op: Product, inputs: Sequence[Value]) -> object:
    """The shape of a product; None where it is none."""
    try:
        return op.infer(Need(), *(v.tensor for v in inputs))[0].shape
    except TypeMismatch:
        return None
