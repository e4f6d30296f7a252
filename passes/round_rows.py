"""round_rows: on request rows that are multiplied with weights of integers are rounded to 8 bits.

contract(%x, W: of int4 %q, a scale for every 32)   →   contract(%x, W) rounded=32

They are so in the blocks in which weights share a scale, a whole row where all of a sum do: then integers are
multiplied, and the sums of blocks scaled. Only where the target multiplies bytes. Models that ask for it
themselves (MatMulNBits of accuracy_level 4) are imported so.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir import dtypes
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Rewriter, Value
from ..ir.ops import Contract
from ..ir.stored import stored_weights
from ..target import Target

#: Rounded rows, weights, sums of their products.
MULTIPLIED = ("int8", "uint8", "int32")


def round_rows(graph: Graph, target: Target) -> Graph:
    """graph with rounded rows, where the target multiplies bytes."""
    return graph if target.byte_dot(*MULTIPLIED) is None else _rounded(graph)


@everywhere
def _rounded(graph: Graph) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = [rewriter.of(value) for value in node.inputs]
        op = node.op
        block = _block(op, inputs) if isinstance(op, Contract) else 0
        if block:
            names = [value.name for value in node.outputs]
            op = replace(op, rounded=block)
            rewriter.replace(node.outputs, rewriter.add(op, inputs, node.origin, names))
        else:
            rewriter.copy(node, inputs)
    return rewriter.finish()


def _block(op: Contract, inputs: list[Value]) -> int:
    """How many terms of a product's sums share a scale of the weights; 0 where rows stay as they are."""
    if op.accumulate != "float32" or op.exact or op.rounded:
        return 0
    rows, weights = inputs[:2]
    constant = None if rows.dtype != "float32" else weights.constant
    if constant is None or len(op.summed) != 1 or not op.lhs.endswith(op.summed):
        return 0
    stored, axis = stored_weights(constant), op.rhs.find(op.summed)
    if stored is None or stored.table or not dtypes.is_integer(stored.elements.dtype) or axis < 0:
        return 0
    if dtypes.bits(stored.elements.dtype) > 8 or not np.array_equal(stored.zero, np.rint(stored.zero)):
        return 0
    if stored.block:
        return stored.block if stored.axis == axis else 0
    return constant.shape[axis] if stored.scale.shape[axis] == stored.zero.shape[axis] == 1 else 0
