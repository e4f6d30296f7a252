"""slice_early: of what is read in part only that part is computed.

slice(contract(map(%x) { exp($0) }, %w): [n, 197, 8]) starts=(0, 0, 0) sizes=(n, 1, 8)
    →   contract(map(slice(%x) starts=(0, 0, 0) sizes=(n, 1, 8)) { exp($0) }, %w)

A classifier reads the first of an image's or a sentence's tokens, a language model the last: of its last
layer all others need only be keys and values. What readers want goes from results back to operands: of a
value the part of an axis that covers all that is wanted is computed, where that makes a product smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import dims
from ..ir.dims import Dimension
from ..ir.expr import Expr, contains
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import (
    Attention,
    Broadcast,
    Concat,
    Contract,
    Gather,
    Map,
    Op,
    Pad,
    Reduce,
    Reshape,
    Shape,
    Slice,
    Transpose,
)
from ..ir.regions import everywhere
from ..records import dataclass

SHARE = 2  # a part is at most one in so many places
PLACES = 64  # and, of an axis whose length the run decides, at most so many


@everywhere
def slice_early(graph: Graph) -> Graph:
    """graph in which products have no rows that nobody reads."""
    parts = _that_pay(graph, _wanted(graph))
    if not parts:
        return graph
    rewriter = Rewriter(graph)
    slices: dict[tuple[Value, _Part], Value] = {}

    def operand(value: Value, part: _Part | None) -> Value:
        """What stands for a value, or the part of it that is wanted."""
        if part is None or part == parts.get(value):
            return rewriter.of(value)
        if (value, part) not in slices:
            known, whole = parts.get(value), rewriter.of(value)
            own = part if known is None else replace(part, start=part.start - known.start)
            (slices[value, part],) = rewriter.add(own.of(whole), [whole])
        return slices[value, part]

    for node in graph.nodes:
        part, picked = next((parts[v] for v in node.outputs if v in parts), None), _picked(node)
        narrow = None if part is None else _narrow(node, part)
        if narrow is not None:
            op, wanted = narrow
            inputs = [operand(v, w) for v, w in zip(node.inputs, wanted, strict=True)]
            rewriter.replace(node.outputs, rewriter.add(op, inputs, node.origin))
        elif picked is not None and node.inputs[0] in parts:
            shaped = Reshape(node.outputs[0].shape)  # a Gather's result is without the axis
            names = [v.name for v in node.outputs]
            inputs = [operand(node.inputs[0], picked)]
            rewriter.replace(node.outputs, rewriter.add(shaped, inputs, node.origin, names))
        else:
            rewriter.copy(node)
    return rewriter.finish()


@dataclass(frozen=True)
class _Part:
    """`size` places of an axis from `start` on."""

    axis: int
    start: Dimension
    size: Dimension

    def within(self, shape: Shape, size: Dimension | None = None) -> Shape:
        """A shape of which this part is left, or `size` places."""
        return (*shape[: self.axis], self.size if size is None else size, *shape[self.axis + 1 :])

    def of(self, value: Value) -> Slice:
        nothing = (0,) * value.rank
        return Slice(self.within(nothing, self.start), self.within(value.shape), (1,) * value.rank)

    def is_small(self, whole: Dimension) -> bool:
        """Whether it is so much less than an axis as long as `whole` that it pays."""
        most, length = dims.bounds(self.size)[1], dims.bounds(whole)[1]
        return most is not None and (most <= PLACES if length is None else SHARE * most <= length)


Wanted = list[_Part | None]  # of each operand: the part that is read, or all of it


def _wanted(graph: Graph) -> dict[Value, _Part]:
    """The values of which readers want a part that can be computed by itself."""
    wanted: dict[Value, list[_Part | None]] = {v: [None] for v in graph.outputs}
    found: dict[Value, _Part] = {}
    for node in reversed(graph.nodes):
        part, picked = _cover([w for v in node.outputs for w in wanted.get(v, [])]), _picked(node)
        narrow = None if part is None or len(node.outputs) > 1 else _narrow(node, part)
        of_operands: Wanted = [picked, *[None] * (len(node.inputs) - 1)]
        if part is not None and narrow is not None and part.is_small(node.outputs[0].shape[part.axis]):
            found[node.outputs[0]] = part
            of_operands = narrow[1]
        for value, of_operand in zip(node.inputs, of_operands):
            wanted.setdefault(value, []).append(of_operand)
    return found


def _cover(parts: Sequence[_Part | None]) -> _Part | None:
    """The part of an axis in which all parts lie."""
    first, *others = parts or [None]
    for other in others:
        if first is None or other is None or first.axis != other.axis:
            return None
        shift = other.start - first.start
        if (shift, other.size) == (0, first.size):
            continue
        if not isinstance(shift, int) or not isinstance(first.size, int) or not isinstance(other.size, int):
            return None
        start = other.start if shift < 0 else first.start
        first = _Part(first.axis, start, max(first.size, shift + other.size) - min(shift, 0))
    return first


def _that_pay(graph: Graph, parts: dict[Value, _Part]) -> dict[Value, _Part]:
    """Those of the parts that products compute, or what reads such a part."""
    paying: dict[Value, _Part] = {}
    for node in graph.nodes:
        if isinstance(node.op, (Contract, Attention)) or any(v in paying for v in node.inputs):
            paying.update((v, parts[v]) for v in node.outputs if v in parts)
    return paying


def _picked(node: Node) -> _Part | None:
    """The part of its first operand that a node picks."""
    match node.op:
        case Slice(starts=starts, sizes=sizes, steps=steps):
            shape = node.inputs[0].shape
            cut = [k for k, (size, whole) in enumerate(zip(sizes, shape)) if size != whole]
            (axis, *others) = cut or [0]
            return None if others or steps[axis] != 1 else _Part(axis, starts[axis], sizes[axis])
        case Gather(form="axis", axis=axis):
            index, whole = node.inputs[1].constant, node.inputs[0].shape[axis]
            if index is None or dims.product(index.shape) != 1:
                return None
            at = int(index.array.item())
            start = whole + at if at < 0 else at
            inside = dims.less(start, 0) is not True and dims.less(start, whole) is not False
            return _Part(axis, start, 1) if inside else None
    return None


def _narrow(node: Node, part: _Part) -> tuple[Op, Wanted] | None:
    """The op that computes a part of a node's result, and the parts of its operands that it reads; None where
    there is none."""
    op, result, axis = node.op, node.outputs[0], part.axis
    first = node.inputs[0] if node.inputs else result
    match op:
        case Map(shape=None) if _is_alike(op.body):
            return _read(op, [_beside(v, result.shape, part) for v in node.inputs], node, part)
        case Reduce() if _is_alike(op.body):
            kept = [a for a in range(first.rank) if op.keepdims or a not in op.axes]
            own = replace(part, axis=kept[axis])
            wanted = [own, *(_beside(v, first.shape, own) for v in node.inputs[1:])]
            return None if own.axis in op.axes else _read(op, wanted, node, part)
        case Contract() if _is_alike(op.epilogue):
            wanted = [_labelled(labels, op.out[axis], part) for labels in (op.lhs, op.rhs)]
            cut = any(v.constant is not None for v, w in zip(node.inputs, wanted) if w is not None)
            wanted += [_beside(v, result.shape, part) for v in node.inputs[2:]]
            return None if cut else _read(op, wanted, node, part)
        case Attention():
            label, scores = op.out[axis], "".join(c for c in op.q if c not in "qd") + "qk"
            wanted = [_labelled(labels, label, part) for labels in (op.q, op.k, op.v)]
            of_scores, shape = _labelled(scores, label, part), (1,) * len(scores)
            wanted += [of_scores and _beside(v, shape, of_scores) for v in node.inputs[3:]]
            return _read(op, wanted, node, part)
        case Transpose():
            return op, [replace(part, axis=op.perm[axis])]
        case Reshape():
            outer, whole = dims.product(op.shape[:axis]), op.shape[axis]
            for k, size in enumerate(first.shape):
                if size == whole and dims.equal(dims.product(first.shape[:k]), outer) is True:
                    return Reshape(part.within(op.shape)), [replace(part, axis=k)]
        case Broadcast():
            return _read(Broadcast(part.within(op.shape)), [_beside(first, op.shape, part)], node, part)
        case Concat() if op.axis != axis:
            return _read(op, [part] * len(node.inputs), node, part)
        case Slice() if op.steps[axis] == 1:
            cut_less = replace(op, starts=part.within(op.starts, 0), sizes=part.within(op.sizes))
            return cut_less, [replace(part, start=part.start + op.starts[axis])]
        case Pad() if op.before[axis] == op.after[axis] == 0:
            return op, [part, *(None for _ in node.inputs[1:])]
        case Gather(form="axis"):
            at, rank = axis - op.axis, node.inputs[1].rank
            if 0 <= at < rank:
                return op, [None, replace(part, axis=at)]
            return op, [part if at < 0 else replace(part, axis=axis - rank + 1), None]
    return None


def _is_alike(body: Expr | None) -> bool:
    """Whether a body computes the same at all places."""
    return body is None or not contains(body, "index")


def _beside(value: Value, shape: Shape, part: _Part) -> _Part | None:
    """What is read, beside a part of a shape, of a value that repeats to that shape."""
    axis = part.axis - len(shape) + value.rank
    return None if axis < 0 or value.shape[axis] == 1 else replace(part, axis=axis)


def _labelled(labels: str, label: str, part: _Part) -> _Part | None:
    return replace(part, axis=labels.index(label)) if label in labels else None


def _read(op: Op, wanted: Wanted, node: Node, part: _Part) -> tuple[Op, Wanted] | None:
    """op and what it reads, if each part is of an axis as long as the result's."""
    whole = node.outputs[0].shape[part.axis]
    alike = all(w is None or v.shape[w.axis] == whole for v, w in zip(node.inputs, wanted, strict=True))
    return (op, wanted) if alike else None
