"""slice_early: of what is read in part only that part is computed.

slice(contract(map(%x) { exp($0) }, %w): [n, 197, 8]) starts=(0, 0, 0) sizes=(n, 1, 8)
    →   contract(map(slice(%x) starts=(0, 0, 0) sizes=(n, 1, 8)) { exp($0) }, %w)

A classifier reads the first of an image's or a sentence's tokens, a language model the last: of its last
layer all others need only be keys and values. What readers want goes from results back to operands: of a
value the part of an axis that covers all that is wanted is computed, where that makes a product smaller.
The part may be a row of each batch entry that only the run knows (the token at a text's end), if what tells
it does not wait for what is read in part: that is computed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from ..ir import dims, dtypes
from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.expr import Expr, contains, index, input_
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import (
    Attention,
    Broadcast,
    Concat,
    Contract,
    Elements,
    Gather,
    Map,
    Op,
    Pad,
    Reduce,
    Require,
    Reshape,
    Shape,
    Slice,
    Transpose,
)
from ..records import dataclass
from .eliminate_dead import bound_by, needed_variables

SHARE = 2  # a part is at most one in so many places
PLACES = 64  # and, of an axis whose length the run decides, at most so many


@everywhere
def slice_early(graph: Graph) -> Graph:
    """graph in which products have no rows that nobody reads."""
    parts = _that_pay(graph, _wanted(graph))
    if not parts:
        return graph
    graph = _asked_first(_told_first(graph, {p.at for p in parts.values() if isinstance(p, _Rows)}))
    rewriter = Rewriter(graph)
    slices: dict[tuple[Value, _AnyPart], Value] = {}

    def operand(value: Value, part: _AnyPart | None) -> Value:
        """What stands for a value, or the part of it that is wanted."""
        if part is None or part == parts.get(value):
            return rewriter.of(value)
        if (value, part) not in slices:
            slices[value, part] = part.taken(value, parts.get(value), rewriter)
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
    origin: str = field(default="", compare=False)  # of the node that picks it

    @property
    def axes(self) -> tuple[int, ...]:
        return (self.axis,)

    def within(self, shape: Shape, size: Dimension | None = None) -> Shape:
        """A shape of which this part is left, or `size` places."""
        return (*shape[: self.axis], self.size if size is None else size, *shape[self.axis + 1 :])

    def on(self, axis: int) -> _Part:
        """The same part of another value's axis."""
        return replace(self, axis=axis)

    def taken(self, value: Value, known: _AnyPart | None, rewriter: Rewriter) -> Value:
        """A node that takes the part from what stands for a value, the part of it that is known."""
        whole, nothing = rewriter.of(value), (0,) * value.rank
        start = self.start - known.start if isinstance(known, _Part) else self.start
        cut = Slice(self.within(nothing, start), self.within(whole.shape), (1,) * value.rank)
        return rewriter.add(cut, [whole], self.origin)[0]

    def is_small(self, whole: Dimension) -> bool:
        """Whether it is so much less than an axis as long as `whole` that it pays."""
        most, length = dims.bounds(self.size)[1], dims.bounds(whole)[1]
        return most is not None and (most <= PLACES if length is None else SHARE * most <= length)


@dataclass(frozen=True)
class _Rows:
    """Of each entry along the axis `batch`, `count` many, the place at[entry] of an axis; where both are one
    axis, of all entries' places one after the other. A value that is the same for all entries has 1 along
    `batch`, or ends before it (a negative number)."""

    axis: int
    batch: int
    at: Value
    count: Dimension
    origin: str = field(default="", compare=False)

    @property
    def axes(self) -> tuple[int, ...]:
        return (self.axis, self.batch)

    def within(self, shape: Shape) -> Shape:
        """A shape of which these rows are left."""
        sizes = {self.axis: 1, self.batch: self.count}
        return tuple(sizes.get(k, size) for k, size in enumerate(shape))

    def on(self, axis: int, batch: int) -> _Rows:
        return replace(self, axis=axis, batch=batch)

    def taken(self, value: Value, known: _AnyPart | None, rewriter: Rewriter) -> Value:
        """The same as of a _Part; nothing of the value is known in part."""
        whole, missing = rewriter.of(value), max(-self.batch, 0)

        def add(op: Op, *inputs: Value) -> Value:
            return rewriter.add(op, inputs, self.origin)[0]

        axis, batch = self.axis + missing, self.batch + missing
        if missing:
            whole = add(Reshape((1,) * missing + whole.shape), whole)
        if whole.shape[batch] == 1:
            at = add(Reshape((self.count,)), rewriter.of(self.at))
            rows = add(Gather("axis", axis), whole, at)
            perm = list(range(rows.rank))
            perm[axis], perm[batch] = batch, axis
            return add(Transpose(tuple(perm)), rows)
        others = [k for k in range(whole.rank) if k not in (axis, batch)]
        perm = [batch, axis, *others]
        at = add(Reshape((self.count, 1)), rewriter.of(self.at))
        turn = Transpose(tuple(perm))
        turned = add(turn, whole)
        rows = add(Gather("nd", batch=1), turned, at)
        rows = add(Reshape((self.count, 1, *rows.shape[1:])), rows)
        return add(turn.inverse, rows)

    def is_small(self, whole: Dimension) -> bool:
        """One row is, but of few."""
        length = dims.bounds(whole)[1]
        return length is None or length >= SHARE


_AnyPart = _Part | _Rows
Wanted = list[_AnyPart | None]  # of each operand: the part that is read, or all of it


def _wanted(graph: Graph) -> dict[Value, _AnyPart]:
    """The values of which readers want a part that can be computed by itself."""
    picks = {node: _picked(node) for node in graph.nodes}
    telling = _cone(graph, {pick.at for pick in picks.values() if isinstance(pick, _Rows)})
    wanted: dict[Value, Wanted] = {v: [None] for v in graph.outputs}
    wanted |= {v: [None] for node in telling for v in node.outputs}
    found: dict[Value, _AnyPart] = {}
    for node in reversed(graph.nodes):
        part, picked = _cover([w for v in node.outputs for w in wanted.get(v, [])]), picks[node]
        narrow = None if part is None or len(node.outputs) > 1 else _narrow(node, part)
        of_operands: Wanted = [picked, *[None] * (len(node.inputs) - 1)]
        if part is not None and narrow is not None and part.is_small(node.outputs[0].shape[part.axis]):
            found[node.outputs[0]] = part
            of_operands = narrow[1]
        for value, of_operand in zip(node.inputs, of_operands):
            wanted.setdefault(value, []).append(of_operand)
    return found


def _cone(graph: Graph, values: set[Value]) -> set[Node]:
    """The nodes that values wait for, those that tell sizes of others too."""
    cone, needed, variables, bound = set[Node](), set(values), set[str](), bound_by(graph)
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs) or not variables.isdisjoint(bound.get(node, ())):
            cone.add(node)
            needed.update(node.inputs)
            variables |= needed_variables(node)
    return cone


def _told_first(graph: Graph, values: set[Value]) -> Graph:
    """The graph with the nodes that values wait for before all others."""
    cone = _cone(graph, values)
    return replace(graph, nodes=tuple(sorted(graph.nodes, key=lambda node: node not in cone)))


def _asked_first(graph: Graph) -> Graph:
    """The graph with what is required of sizes where these are told: who reads a part of a value, by an index
    of a size, reads it before the node that says so."""
    bound = bound_by(graph)
    told = {name: k for k, node in enumerate(graph.nodes) for name in bound.get(node, ())}

    def place(numbered: tuple[int, Node]) -> tuple[int, bool]:
        k, node = numbered
        if not isinstance(node.op, Require):
            return k, False
        return max((told.get(name, -1) for name in needed_variables(node)), default=-1), True

    return replace(graph, nodes=tuple(node for _, node in sorted(enumerate(graph.nodes), key=place)))


def _cover(parts: Sequence[_AnyPart | None]) -> _AnyPart | None:
    """The part of an axis in which all parts lie."""
    first, *others = parts or [None]
    for other in others:
        if first == other:
            continue
        if not isinstance(first, _Part) or not isinstance(other, _Part) or first.axis != other.axis:
            return None
        shift = other.start - first.start
        if (shift, other.size) == (0, first.size):
            continue
        if not isinstance(shift, int) or not isinstance(first.size, int) or not isinstance(other.size, int):
            return None
        start = other.start if shift < 0 else first.start
        size = max(first.size, shift + other.size) - min(shift, 0)
        first = replace(first, start=start, size=size)
    return first


def _that_pay(graph: Graph, parts: dict[Value, _AnyPart]) -> dict[Value, _AnyPart]:
    """Those of the parts that products compute, or what reads such a part."""
    paying: dict[Value, _AnyPart] = {}
    for node in graph.nodes:
        if isinstance(node.op, (Contract, Attention)) or any(v in paying for v in node.inputs):
            paying.update((v, parts[v]) for v in node.outputs if v in parts)
    return paying


def _picked(node: Node) -> _AnyPart | None:
    """The part of its first operand that a node picks."""
    part = _part_picked(node)
    return None if part is None else replace(part, origin=node.origin)


def _part_picked(node: Node) -> _AnyPart | None:
    match node.op:
        case Slice(starts=starts, sizes=sizes, steps=steps):
            shape = node.inputs[0].shape
            cut = [k for k, (size, whole) in enumerate(zip(sizes, shape)) if size != whole]
            if len(cut) != 1 or any(step != 1 for step in steps):
                return None
            return _Part(cut[0], starts[cut[0]], sizes[cut[0]])
        case Gather(form="axis", axis=axis):
            place, whole = node.inputs[1].constant, node.inputs[0].shape[axis]
            if place is None or dims.product(place.shape) != 1:
                return _rows_in_turn(*node.inputs) if axis == 0 else None
            at = int(place.array.item())
            start = whole + at if at < 0 else at
            inside = dims.less(start, 0) is not True and dims.less(start, whole) is not False
            return _Part(axis, start, 1) if inside else None
        case Gather(form="nd"):
            x, places = node.inputs
            if node.op.batch:
                return _Rows(1, 0, places, x.shape[0]) if places.shape[1:] == (1,) else None
            pair = places.producer
            if pair is None or not isinstance(pair.op, Concat) or places.rank != 2 or len(pair.inputs) != 2:
                return None
            entries, ends = pair.inputs
            each = ends.shape[1] == 1 and _is_range(entries, x.shape[0], 1)
            return _Rows(1, 0, ends, x.shape[0]) if each else None
    return None


def _rows_in_turn(x: Value, places: Value) -> _Rows | None:
    """The rows that places pick of a value [entries * length, ...] whose axes were joined: of each entry one,
    entry * length + at."""
    joined = x.producer
    if joined is None or not isinstance(joined.op, Reshape) or joined.inputs[0].rank != x.rank + 1:
        return None
    count, length, *others = joined.inputs[0].shape
    if x.shape[1:] != tuple(others) or places.shape != (count,):
        return None
    if count == 1 and _is_place(places, count, length):
        return _Rows(0, 0, places, count)
    match places.producer:
        case Node(Map(body), (one, other)):
            a, b = (input_(k, v.dtype) for k, v in enumerate((one, other)))
            for at, entries in ((one, other), (other, one)) if body in (a + b, b + a) else ():
                if _is_range(entries, count, length) and _is_place(at, count, length):
                    return _Rows(0, 0, at, count)
    return None


def _is_range(value: Value, count: Dimension, step: Dimension) -> bool:
    """Whether value is 0, step, 2 * step ..., `count` elements."""
    if dims.product(value.shape) != count:
        return False
    if value.constant is not None:
        found = value.constant.array.reshape(-1)
        return isinstance(step, int) and np.array_equal(found, np.arange(found.size) * step)
    match value.producer:
        case Node(Reshape(), (inner,)):
            return _is_range(inner, count, step)
        case Node(Map(body), inputs):
            axis = next((k for k, size in enumerate(value.shape) if size != 1), 0)
            if step == 1 and (body.args[0] if body.op == "cast" else body) is index(axis):
                return True
            if body.op == "mul" and all(e.op in ("input", "const") for e in body.args):
                one, other = (inputs[e.value] if e.op == "input" else e.value for e in body.args)
                sides = ((one, other), (other, one))
                return any(
                    isinstance(a, Value) and _is_range(a, count, 1) and _number(b) == step for a, b in sides
                )
    return False


def _number(value: Value | float) -> Dimension | None:
    """The only element of an integer value, where it is known."""
    if not isinstance(value, Value):
        return int(value)
    match value.producer:
        case Node(Elements((only,))):
            return only
    return None


def _is_place(value: Value, count: Dimension, length: Dimension) -> bool:
    """Whether all of a value's `count` elements are places of an axis of this length."""
    if dims.product(value.shape) != count:
        return False
    match value.producer:
        case Node(Reshape(), (inner,)):
            return _is_place(inner, count, length)
        case Node(Reduce("argmax" | "argmin", (axis,)), (source, *_)):
            return source.shape[axis] == length
        case Node(Map(body), inputs):
            body = body.args[1] if body.op == "check" else body
            if body.op == "cast" and body.args[0].op == "input" and dtypes.bits(body.dtype) >= 32:
                return _is_place(inputs[body.args[0].value], count, length)
            if body.op == "mod" and body.args[1].op in ("input", "const"):
                divisor = body.args[1]
                return _number(inputs[divisor.value] if divisor.op == "input" else divisor.value) == length
    return False


class _Apart(Exception):
    """Of an operand neither all is read nor a part."""


def _narrow(node: Node, part: _AnyPart) -> tuple[Op, Wanted] | None:
    """The op that computes a part of a node's result, and the parts of its operands that it reads; None where
    there is none."""
    try:
        if isinstance(part, _Rows) and (part.batch == part.axis or part.batch < 0):
            return _split(node, part)
        return _narrowed(node, part)
    except _Apart:
        return None


def _split(node: Node, part: _Rows) -> tuple[Op, Wanted] | None:
    """The rows of what axes were joined of."""
    if part.batch < 0 or part.axis or not isinstance(node.op, Reshape):
        return None
    first, shape = node.inputs[0], node.op.shape
    if first.shape[:1] != (part.count,) or first.shape[2:] != shape[1:]:
        return None
    return Reshape((part.count, *shape[1:])), [part.on(1, 0)]


def _narrowed(node: Node, part: _AnyPart) -> tuple[Op, Wanted] | None:
    """The same by the op's own rule, for all parts but rows of joined axes."""
    op, result = node.op, node.outputs[0]
    first = node.inputs[0] if node.inputs else result
    match op:
        case Map(shape=None) if _is_alike(op.body):
            return _read(op, [_beside(v, result.shape, part) for v in node.inputs], node, part)
        case Reduce() if _is_alike(op.body):
            kept = [a for a in range(first.rank) if op.keepdims or a not in op.axes]
            own = part.on(*(kept[axis] for axis in part.axes))
            wanted = [own, *(_beside(v, first.shape, own) for v in node.inputs[1:])]
            return None if set(own.axes) & set(op.axes) else _read(op, wanted, node, part)
        case Contract() if _is_alike(op.epilogue) and not _has_diagonal(op):
            wanted = [_labelled(labels, op.out, part) for labels in (op.lhs, op.rhs)]
            cut = any(v.constant is not None for v, w in zip(node.inputs, wanted) if w is not None)
            wanted += [_beside(v, result.shape, part) for v in node.inputs[2:]]
            return None if cut else _read(op, wanted, node, part)
        case Attention():
            scores = "".join(c for c in op.q if c not in "qd") + "qk"
            wanted = [_labelled(labels, op.out, part) for labels in (op.q, op.k, op.v)]
            of_scores, shape = _labelled(scores, op.out, part), (0,) * len(scores)
            wanted += [of_scores and _beside(v, shape, of_scores) for v in node.inputs[3:]]
            return _read(op, wanted, node, part)
        case Transpose():
            return op, [part.on(*(op.perm[axis] for axis in part.axes))]
        case Reshape():
            places = [dims.reshaped_axis(op.shape, axis, first.shape) for axis in part.axes]
            known = [axis for axis in places if axis is not None]
            return (Reshape(part.within(op.shape)), [part.on(*known)]) if len(known) == len(places) else None
        case Broadcast():
            return _read(Broadcast(part.within(op.shape)), [_beside(first, op.shape, part)], node, part)
        case Concat() if op.axis not in part.axes:
            return _read(op, [part] * len(node.inputs), node, part)
        case Slice() if isinstance(part, _Part) and op.steps[part.axis] == 1:
            cut_less = replace(op, starts=part.within(op.starts, 0), sizes=part.within(op.sizes))
            return cut_less, [replace(part, start=part.start + op.starts[part.axis])]
        case Slice() if all(op.steps[a] == 1 and op.sizes[a] == first.shape[a] for a in part.axes):
            return replace(op, sizes=part.within(op.sizes)), [part]
        case Pad() if all(op.before[a] == op.after[a] == 0 for a in part.axes):
            return op, [part, *(None for _ in node.inputs[1:])]
        case Gather(form="axis"):
            rank = node.inputs[1].rank
            sides = {0 <= axis - op.axis < rank for axis in part.axes}
            if sides == {True}:
                return op, [None, part.on(*(axis - op.axis for axis in part.axes))]
            if sides == {False}:
                return op, [part.on(*(a if a < op.axis else a - rank + 1 for a in part.axes)), None]
    return None


def _is_alike(body: Expr | None) -> bool:
    """Whether a body computes the same at all places."""
    return body is None or not contains(body, "index")


def _has_diagonal(op: Contract) -> bool:
    """Whether axes of one operand go along together, so that a part of one is a part of both."""
    return any(len(set(labels)) < len(labels) for labels in (op.lhs, op.rhs))


def _beside(value: Value, shape: Shape, part: _AnyPart) -> _AnyPart | None:
    """What is read, beside a part of a shape, of a value that repeats to that shape."""
    axis, *batch = (a - len(shape) + value.rank for a in part.axes)
    return None if axis < 0 or value.shape[axis] == 1 else part.on(axis, *batch)


def _labelled(labels: str, out: str, part: _AnyPart) -> _AnyPart | None:
    """The part of an operand with these labels that part of a result is made of."""
    if out[part.axis] not in labels:
        return None
    if any(out[axis] not in labels for axis in part.axes):
        raise _Apart
    return part.on(*(labels.index(out[axis]) for axis in part.axes))


def _read(op: Op, wanted: Wanted, node: Node, part: _AnyPart) -> tuple[Op, Wanted] | None:
    """op and what it reads, if each part is of an axis as long as the result's."""
    whole = node.outputs[0].shape[part.axis]
    alike = all(w is None or v.shape[w.axis] == whole for v, w in zip(node.inputs, wanted, strict=True))
    return (op, wanted) if alike else None
