"""repeat_late: what is repeated is computed once, and the result is repeated.

contract(broadcast(%x: [n, 1, 8]) shape=(n, b, 8), %w)   →   broadcast(contract(%x: [n, 8], %w): [n, 1, 6])

Positions of tokens, learned queries and latents are the same for every entry of a batch, but exporters repeat
them first. Of those that are constant all is constant that does not meet the batch.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.expr import contains
from ..ir.graph import Graph, Node, Rewriter, TensorType, Value
from ..ir.ops import Broadcast, Concat, Contract, Map, Reduce, Reshape, Shape, Slice, Transpose

Axes = frozenset[int]  # along which all places of a value are alike


@everywhere
def repeat_late(graph: Graph) -> Graph:
    """graph in which products and reductions of what is repeated are computed once."""
    alike = _that_pay(graph, _alike(graph))
    if not alike:
        return graph
    rewriter = Rewriter(graph)
    once: dict[Value, Value] = {}  # of a value what has 1 along the axes that are alike

    def operand(value: Value, axes: Axes) -> Value:
        """What stands for a value, with 1 along these axes."""
        if value not in once:
            return rewriter.of(value)
        shape, found = _ones(value.shape, axes), once[value]
        if found.shape == shape:
            return found
        return rewriter.add(Broadcast(shape), [found], value.node.origin)[0]

    for node in graph.nodes:
        axes = alike.get(node.outputs[0]) if node.outputs else None
        if axes:
            inputs = [operand(v, _places(node, k, axes)) for k, v in enumerate(node.inputs)]
            once[node.outputs[0]] = _computed(node, axes, inputs, rewriter)
            continue
        for value in node.inputs:
            if value in once and value not in rewriter.map:
                rewriter.replace([value], [operand(value, Axes())])
        rewriter.copy(node)
    for value in graph.outputs:
        if value in once and value not in rewriter.map:
            rewriter.replace([value], [operand(value, Axes())])
    return rewriter.finish()


def _ones(shape: Shape, axes: Axes) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def _alike(graph: Graph) -> dict[Value, Axes]:
    """The axes along which values are known to be alike."""
    found: dict[Value, Axes] = {}
    for node in graph.nodes:
        ranked = len(node.outputs) == 1 and isinstance(node.outputs[0].type, TensorType)
        if ranked and (isinstance(node.op, Broadcast) or any(v in found for v in node.inputs)):
            axes = Axes(
                a for a, size in enumerate(node.outputs[0].shape) if size != 1 and _is_alike(node, a, found)
            )
            if axes:
                found[node.outputs[0]] = axes
    return found


def _that_pay(graph: Graph, alike: dict[Value, Axes]) -> dict[Value, Axes]:
    """Those of the values that are products or reductions, or of which such are made."""
    paying: set[Value] = set()
    for node in reversed(graph.nodes):
        if any(v in alike for v in node.outputs) and (
            isinstance(node.op, (Contract, Reduce)) or any(v in paying for v in node.outputs)
        ):
            paying.update(node.outputs, (v for v in node.inputs if v in alike))
    return {v: axes for v, axes in alike.items() if v in paying}


def _is_alike(node: Node, axis: int, found: dict[Value, Axes]) -> bool:
    """Whether all places along an axis of a node's result are computed of what is alike."""
    match node.op:
        case Map(body, None) | Reduce(body=body) if body is not None and contains(body, "index", "check"):
            return False
        case Contract(lhs, rhs, out) as op if op.epilogue is not None or set(lhs + rhs) <= set(out):
            return False
        case Contract(lhs, rhs) if any(len(set(labels)) < len(labels) for labels in (lhs, rhs)):
            return False
        case (
            Map(shape=None)
            | Reduce()
            | Contract()
            | Broadcast()
            | Transpose()
            | Reshape()
            | Slice()
            | Concat()
        ):
            places = ((v, _place(node, k, axis)) for k, v in enumerate(node.inputs))
            return all(place is None or place in found.get(v, ()) for v, place in places)
    return False


def _place(node: Node, k: int, axis: int) -> int | None:
    """The axis of operand k that is an axis of the result; None where the operand repeats along it, -1 where
    none is the same."""
    op, value, shape = node.op, node.inputs[k], node.outputs[0].shape
    match op:
        case Contract():
            labels, label = (op.lhs, op.rhs)[k], op.out[axis]
            return labels.index(label) if label in labels else None
        case Transpose():
            return op.perm[axis]
        case Reshape():
            place = dims.reshaped_axis(shape, axis, value.shape)
            return -1 if place is None else place
        case Slice():
            return axis if (op.sizes[axis], op.steps[axis]) == (value.shape[axis], 1) else -1
        case Concat():
            return axis if op.axis != axis else -1
        case Reduce():
            shape = node.inputs[0].shape
            axis = [a for a in range(len(shape)) if op.keepdims or a not in op.axes][axis]
    place = axis - len(shape) + value.rank
    return None if place < 0 or value.shape[place] == 1 else place


def _places(node: Node, k: int, axes: Axes) -> Axes:
    """The axes of operand k that are those of the result."""
    return Axes(place for axis in axes if (place := _place(node, k, axis)) is not None)


def _computed(node: Node, axes: Axes, inputs: list[Value], rewriter: Rewriter) -> Value:
    """A node's result with 1 along the axes that are alike, of such operands."""
    op, shape = node.op, _ones(node.outputs[0].shape, axes)
    match op:
        case Broadcast():
            missing = len(shape) - inputs[0].rank
            if inputs[0].shape == shape:
                return inputs[0]
            op = Reshape(shape) if (1,) * missing + inputs[0].shape == shape else Broadcast(shape)
        case Reshape():
            op = Reshape(shape)
        case Slice():
            op = replace(op, sizes=shape)
        case Contract():
            dropped = {op.out[axis] for axis in axes}
            lhs, rhs, out = ("".join(c for c in s if c not in dropped) for s in (op.lhs, op.rhs, op.out))
            for k, (labels, value) in enumerate(zip((op.lhs, op.rhs), inputs)):
                kept = tuple(size for c, size in zip(labels, value.shape) if c not in dropped)
                if kept != value.shape:
                    (inputs[k],) = rewriter.add(Reshape(kept), [value], node.origin)
            made = rewriter.add(replace(op, lhs=lhs, rhs=rhs, out=out), inputs, node.origin)
            return rewriter.add(Reshape(shape), made, node.origin)[0]
    return rewriter.add(op, inputs, node.origin)[0]
