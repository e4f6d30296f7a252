"""Reverse-mode differentiation of core ops: from a result back to what it was computed from.

`gradients` walks the nodes behind a result from the last to the first. What the result changes with an
output of a node (its cotangent) becomes what it changes with the node's operands: one rule for each op, one
for each scalar operation inside a Map. Ops without a rule are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import UnsupportedError
from ...ir import ops
from ...ir.builder import Builder
from ...ir.graph import Node, Value
from . import composites, control, movement, sums

#: What a result changes with an operand of a node, from what it changes with the node's first output; None:
#: nothing.
Rule = Callable[[Builder, Node[Any], Value, int], Value | None]

_RULES: dict[type[ops.Op], Rule] = {
    ops.Map: sums.of_map,
    ops.Reduce: sums.of_reduce,
    ops.Contract: sums.of_contract,
    ops.Conv: sums.of_conv,
    ops.Pool: sums.of_pool,
    ops.OverlapAdd: sums.of_overlap_add,
    ops.Reshape: lambda b, node, g, operand: b.reshape(g, node.inputs[0].shape),
    ops.Transpose: movement.of_transpose,
    ops.Broadcast: lambda b, node, g, operand: sums.summed(b, g, node.inputs[0].shape),
    ops.Slice: movement.of_slice,
    ops.Pad: movement.of_pad,
    ops.Concat: movement.of_concat,
    ops.Gather: movement.of_moved,
    ops.Scatter: movement.of_scatter,
    ops.Cumulate: movement.of_cumulate,
    ops.Sort: movement.of_sort,
}

#: Ops of several results, and those that are differentiated as others that mean the same.
_WHOLE: dict[type[ops.Op], control.WholeRule] = {
    ops.Attention: composites.of_attention,
    ops.Recurrent: composites.of_recurrent,
    ops.If: control.of_if,
    ops.Loop: control.of_loop,
}


def gradients(b: Builder, y: Value, xs: Sequence[Value]) -> list[Value]:
    """What the sum of y's elements changes with each element of each of xs. y and what leads to it are
    values of the graph under construction."""
    seed = {y: b.broadcast(b.constant(1, y.dtype), y.shape)}
    found = propagate(b, list(b.nodes), seed, xs)
    zero = [b.broadcast(b.constant(0, x.dtype), x.shape) for x in xs]
    return [x if x is not None else nothing for x, nothing in zip(found, zero)]


def propagate(
    b: Builder, nodes: Sequence[Node[Any]], results: Mapping[Value, Value], xs: Sequence[Value]
) -> list[Value | None]:
    """The cotangents of xs, from those of results that nodes compute of them; None where there is nothing."""
    nodes = [node for node in nodes if not isinstance(node.op, ops.Bind)]
    reached = set(xs)
    for node in nodes:
        if not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    cotangents: dict[Value, Value] = {}

    def add(value: Value, part: Value | None) -> None:
        if part is not None and value in reached and control.is_differentiable(value):
            before = cotangents.get(value)
            cotangents[value] = part if before is None else b.map(before, part, lambda p, q: p + q)

    for value, cotangent in results.items():
        add(value, cotangent)
    for node in reversed(nodes):
        given = [cotangents.get(v) for v in node.outputs]
        if all(g is None for g in given) or node.outputs[0] in xs:
            continue
        if type(node.op) in _WHOLE:
            parts = _WHOLE[type(node.op)](b, node, given, propagate)
            for value, part in zip(node.inputs, parts):
                add(value, part)
            continue
        if type(node.op) not in _RULES or given[0] is None:
            raise UnsupportedError(f"the gradient of {type(node.op).__name__}")
        for operand, value in enumerate(node.inputs):
            if value in reached and control.is_differentiable(value):
                add(value, _RULES[type(node.op)](b, node, given[0], operand))
    return [cotangents.get(x) for x in xs]
