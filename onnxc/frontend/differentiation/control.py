"""Gradients of branches and loops: a branch is differentiated in a branch, and a loop by one that goes back.

The loop forward is run again and keeps what it carried into each step; the loop back computes a step again
from that and differentiates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import UnsupportedError
from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.graph import Graph, Node, TensorType, Type, Value
from ..onnx_ops.control import loop
from ..rule_builder import Region, emit_if
from .movement import zeros

#: `propagate` of this package.
Propagate = Callable[
    [Builder, Sequence[Node[Any]], Mapping[Value, Value], Sequence[Value]], list[Value | None]
]

#: What a result changes with the operands of a node, from what it changes with all its outputs.
WholeRule = Callable[[Builder, Node[Any], Sequence[Value | None], Propagate], Sequence[Value | None]]


def is_differentiable(value: Value) -> bool:
    """Whether there are gradients of a value: of tensors of floats."""
    return isinstance(value.type, TensorType) and dtypes.is_float(value.dtype)


def _inlined(b: Builder, region: Graph, operands: Sequence[Value]) -> tuple[list[Node[Any]], list[Value]]:
    """The nodes of a region as nodes of the graph under construction, and its outputs. Variables that it
    binds are bound again."""
    stands = dict(zip(region.inputs, map(b.capture, operands)))
    start = len(b.nodes)
    for node in region.nodes:
        outputs = tuple(Value(v.type, v.name) for v in node.outputs)
        b.nodes.append(Node(node.op, tuple(stands.get(v, v) for v in node.inputs), outputs, node.origin))
        b.own.update(outputs)
        stands.update(zip(node.outputs, outputs))
    return b.nodes[start:], [stands.get(v, v) for v in region.outputs]


def _back(
    b: Builder,
    region: Graph,
    operands: Sequence[Value],
    cotangents: Sequence[Value | None],
    by: Sequence[Value],
    propagate: Propagate,
) -> list[Value]:
    """The region over operands, differentiated by some of them: zeros where there is nothing."""
    captured = [b.capture(v) for v in by]
    nodes, outputs = _inlined(b, region, operands)
    seeds: dict[Value, Value] = {}
    for output, g in zip(outputs, cotangents, strict=True):
        if g is not None and is_differentiable(output):
            part = b.reshape(b.capture(g), output.shape)
            seeds[output] = b.map(seeds[output], part, lambda p, q: p + q) if output in seeds else part
    found = propagate(b, nodes, seeds, captured)
    return [zeros(b, v.dtype, v.shape) if g is None else g for g, v in zip(found, captured)]


def of_if(
    b: Builder, node: Node[Any], gs: Sequence[Value | None], propagate: Propagate
) -> list[Value | None]:
    """By an If of the same condition, whose branches compute those of the node once more and go back through
    them."""
    condition, *operands = node.inputs
    by = [v for v in operands if is_differentiable(v)]

    def branch(region: Graph) -> Region:
        inner = b.inner()
        return Region(
            inner, [inner.capture(v) for v in _back(inner, region, operands, gs, by, propagate)], []
        )

    branches = branch(node.op.then), branch(node.op.otherwise)
    found = dict(zip(by, emit_if(b, condition, *branches, [v.type for v in by])))
    return [None, *(found.get(v) for v in operands)]


def of_loop(
    b: Builder, node: Node[Any], gs: Sequence[Value | None], propagate: Propagate
) -> list[Value | None]:
    """By a loop over the steps from the last to the first, which carries the cotangents of what the loop
    carries into a step, and the sums of those of what steps capture. UnsupportedError where what is carried
    changes its size."""
    op = node.op
    trips, condition, *operands = node.inputs
    carried, captured = operands[: op.carried], operands[op.carried :]
    before = [v.type for v in op.body.inputs[2 : 2 + op.carried]]
    if any(not isinstance(t, TensorType) or t != v.type for t, v in zip(before, carried)):
        raise UnsupportedError("the gradient of a loop that carries what changes its size")
    kept, count = _kept(b, node, trips, condition, carried, captured)
    floats = [k for k, v in enumerate(carried) if is_differentiable(v)]
    shared = [k for k, v in enumerate(captured) if is_differentiable(v)]
    start = [gs[k] or zeros(b, carried[k].dtype, carried[k].shape) for k in floats]
    start += [zeros(b, captured[k].dtype, captured[k].shape) for k in shared]

    def region(types: Sequence[Type]) -> Region:
        step = b.inner()
        iteration = step.input(TensorType("int64", ()), "iteration")
        going = step.input(TensorType("bool", ()), "condition")
        sums = [step.input(t) for t in types]
        at = step.map(iteration, lambda i: expr.size(count) - 1 - i)
        states = [step.emit(ops.Gather("axis"), v, at)[0] for v in kept]
        outer = [step.capture(v) for v in captured]
        after: list[Value | None] = [None] * (1 + op.carried)
        for k, total in zip(floats, sums):
            after[1 + k] = total
        after += [None if g is None else step.emit(ops.Gather("axis"), g, at)[0] for g in gs[op.carried :]]
        by = [*(states[k] for k in floats), *(outer[k] for k in shared)]
        parts = _back(step, op.body, [at, step.constant(True), *states, *outer], after, by, propagate)
        totals = zip(parts[len(floats) :], sums[len(floats) :])
        found = [*parts[: len(floats)], *(step.map(p, t, lambda p, t: p + t) for p, t in totals)]
        return Region(step, [going, *found], [iteration, going, *sums])

    found = loop(b, b.reshape(b.elements([count]), ()), b.constant(True), start, region)
    parts: dict[int, Value] = dict(zip(floats, found))
    parts |= {op.carried + k: v for k, v in zip(shared, found[len(floats) :])}
    return [None, None, *(parts.get(k) for k in range(len(operands)))]


def _kept(
    b: Builder,
    node: Node[Any],
    trips: Value,
    condition: Value,
    carried: Sequence[Value],
    captured: Sequence[Value],
) -> tuple[Sequence[Value], dims.Dimension]:
    """What the loop carries into each step, stacked along new first axes, and the number of steps."""
    op = node.op

    def region(types: Sequence[Type]) -> Region:
        step = b.inner()
        iteration = step.input(TensorType("int64", ()), "iteration")
        going = step.input(TensorType("bool", ()), "condition")
        states = [step.input(t) for t in types]
        outer = [step.capture(v) for v in captured]
        _, outputs = _inlined(step, op.body, [iteration, going, *states, *outer])
        copies = [step.as_data(v) for v in (iteration, *states)]
        return Region(step, [*outputs[: 1 + op.carried], *copies], [iteration, going, *states])

    iterations, *kept = loop(b, trips, condition, carried, region)[op.carried :]
    return kept, iterations.shape[0]
