"""absorb_transposes: a Transpose next to a contraction becomes a permutation of its labels.

contract(transpose(%x) perm=(0, 2, 1, 3), %y) "bhqd", "bhdk" -> "bhqk"
    →   contract(%x, %y) "bqhd", "bhdk" -> "bhqk"

Kernels read operands by strides, so that the heads of an attention are never moved. A Reshape that only adds
or drops axes of size 1 is a change of labels as well, as is a Broadcast of many constant rows along an axis
of the other operand; a Transpose or a Reshape is found behind a Map of one operand too, a Transpose behind a
Broadcast. What would cut the rows of a product into short pieces, as windows of an image are, stays. A result
is permuted in place only where its innermost axis stays, since kernels write along it, and with it as many
columns side by side as a vector holds, or all of them. An Attention names its axes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from math import prod
from string import ascii_letters

from ..ir import dims
from ..ir.bodies import maps_anywhere
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Attention, Broadcast, Contract, Reshape, Transpose
from ..records import dataclass

FEW_ROWS = 32  # of a product, which a tile does not fill by far, or barely
FEW_COLUMNS = 16  # side by side, which a vector does not hold, or barely


@everywhere
def absorb_transposes(graph: Graph) -> Graph:
    """graph with transposed operands and results of Contract nodes read and written in place."""
    rewriter = Rewriter(graph)
    readers = rewriter.readers
    for node in graph.nodes:
        op, names = node.op, [v.name for v in node.outputs]
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        if isinstance(op, Contract):
            lhs, rhs = _Side(op.lhs, inputs[0]), _Side(op.rhs, inputs[1])
            lhs = _moved_back(rewriter, lhs, rhs, op)
            rhs = _moved_back(rewriter, rhs, lhs, op)
            op = replace(op, lhs=lhs.labels, rhs=rhs.labels)
            outputs = rewriter.add(op, (lhs.value, rhs.value, *inputs[2:]), node.origin, names)
        elif isinstance(op, Attention):
            op, operands = _read_in_place(op, inputs)
            outputs = rewriter.add(op, operands, node.origin, names)
        elif isinstance(op, Transpose) and readers[node.inputs[0]] == 1 and _writes_so(inputs[0], op.perm):
            host = inputs[0].node
            op = replace(host.op, out="".join(host.op.out[p] for p in op.perm))
            outputs = rewriter.add(op, host.inputs, host.origin, names)
        else:
            rewriter.copy(node)
            continue
        rewriter.replace(node.outputs, outputs)
    return rewriter.finish()


@dataclass(frozen=True)
class _Side:
    """An operand of a Contract and the names of its axes."""

    labels: str
    value: Value


def _moved_back(rewriter: Rewriter, side: _Side, other: _Side, op: Contract) -> _Side:
    """An operand as it was before Transposes and changes of unit axes. Changes that would give it an axis of
    its own are undone on the way to a Transpose alone, and not at all where rows are rounded along the axis
    that is summed over."""
    found, out = side, op.out

    def fits(labels: str) -> bool:
        return set(labels) <= set(other.labels + out + found.labels)

    while (node := side.value.producer) is not None:
        mapped = node if rewriter.readers[side.value] == 1 and _maps_moved(node) else None
        node = _repeated_first(rewriter, node if mapped is None else node.inputs[0].node)
        source, keeps = node.inputs[0] if node.inputs else side.value, True
        labels: str | None
        match node.op:
            case Transpose():
                labels = _before(side.labels, node.op)
                if _rows(_Side(labels, source), other, out) < min(FEW_ROWS, _rows(side, other, out)):
                    break
            case Reshape():
                labels = _unit_labels(side, source, other, out)
                if labels is None or (op.rounded and not fits(labels)):
                    break
                keeps = fits(labels)
            case Broadcast():
                labels = _repeated_labels(side, source, other, out)
                if labels is None or (op.rounded and not fits(labels)):
                    break
            case _:
                break
        if mapped is not None:
            (source,) = rewriter.add(mapped.op, [source], mapped.origin)
            rewriter.readers[source] = 1
        side = _Side(labels, source)
        found = side if keeps else found
    return found


def _repeated_first(rewriter: Rewriter, node: Node) -> Node:
    """A Transpose of a Broadcast that does what the node does, where that is a Broadcast of a Transpose."""
    moved = node.inputs[0].producer if isinstance(node.op, Broadcast) else None
    shape = node.outputs[0].shape
    if moved is None or not isinstance(moved.op, Transpose) or len(moved.op.perm) < len(shape):
        return node
    before = tuple(shape[axis] for axis in moved.op.inverse.perm)
    repeated = rewriter.add(Broadcast(before), moved.inputs, node.origin)
    return rewriter.add(moved.op, repeated, moved.origin)[0].node


def _rows(side: _Side, other: _Side, out: str) -> int:
    """How many rows at most of a product lie at one distance: of axes that follow each other in the result
    and in the operand."""
    sizes = {c: dims.typical(d) for c, d in zip(side.labels, side.value.shape) if d != 1}
    stored = [c for c in side.labels if c in sizes]
    most = run = 0
    last = ""
    for label in out:
        if label not in sizes or label in other.labels:
            continue
        follows = last in stored and stored[stored.index(last) + 1 : stored.index(last) + 2] == [label]
        run = run * sizes[label] if follows else sizes[label]
        most, last = max(most, run), label
    return most


def _read_in_place(op: Attention, inputs: tuple[Value, ...]) -> tuple[Attention, list[Value]]:
    """An Attention over its queries, keys and values as before Transposes. A bias has the batch axes in
    the order of the queries', which therefore stays."""
    labels, operands = [op.q, op.k, op.v], list(inputs)
    for k in range(3):
        while (node := operands[k].producer) is not None and isinstance(node.op, Transpose):
            before = _before(labels[k], node.op)
            if k == 0 and [c for c in before if c not in "qd"] != [c for c in op.q if c not in "qd"]:
                break
            labels[k], operands[k] = before, node.inputs[0]
    return replace(op, q=labels[0], k=labels[1], v=labels[2]), operands


def _before(labels: str, op: Transpose) -> str:
    """The labels of what a Transpose turned into something of these labels."""
    return "".join(labels[axis] for axis in op.inverse.perm)


def _maps_moved(node: Node) -> bool:
    """Whether a Map does to what a Transpose or a Reshape moved what it would do before."""
    source = node.inputs[0].producer if maps_anywhere(node) else None
    return source is not None and isinstance(source.op, (Transpose, Reshape))


def _unit_labels(side: _Side, source: Value, other: _Side, out: str) -> str | None:
    """The labels of `source`, of which an operand is a Reshape, if it only adds or drops axes of size 1."""
    axes = list(zip(side.labels, side.value.shape))
    if [d for d in source.shape if d != 1] != [d for _, d in axes if d != 1]:
        return None
    named = iter(c for c, d in axes if d != 1)
    units = [c for c, d in axes if d == 1]
    if any(c in out and c not in other.labels for c in units):
        return None  # the result has an axis that only this operand gives
    missing = [(c, d) for c, d in zip(other.labels, other.value.shape) if c not in side.labels]
    shared = [c for c, d in missing if d == 1 and c in out]
    fresh = [c for c in ascii_letters if c not in side.labels + other.labels + out]
    spare = iter([*shared, *units, *fresh])
    return "".join(next(spare) if d == 1 else next(named) for d in source.shape)


def _repeated_labels(side: _Side, source: Value, other: _Side, out: str) -> str | None:
    """The labels of a constant of which an operand is a Broadcast along axes that the result has of the other
    operand too. One of few rows may be the queries of an attention, which has one batch."""
    if source.constant is None or _rows(side, other, out) < FEW_ROWS:
        return None
    others = dict(zip(other.labels, other.value.shape))
    fresh = (c for c in ascii_letters if c not in side.labels + other.labels + out)
    new = side.value.rank - source.rank
    labels = ""
    for label, size, before in zip(side.labels, side.value.shape, (None,) * new + source.shape):
        if before is not None and dims.equal(before, size):
            labels += label
        elif label not in out or label not in others or not dims.equal(others[label], size):
            return None
        elif before is not None:
            labels += next(fresh)
    return labels


def _writes_so(value: Value, perm: tuple[int, ...]) -> bool:
    """Whether the producer can write its result in that order of axes."""
    host = value.producer
    if host is None or perm[-1:] != (len(perm) - 1,):
        return False
    if isinstance(host.op, Attention):
        return True
    if not isinstance(host.op, Contract) or len(host.inputs) > 2:
        return False
    before, after = (_columns(host, order) for order in (range(len(perm)), perm))
    return after >= min(FEW_COLUMNS, before)


def _columns(node: Node[Contract], order: Sequence[int]) -> int:
    """How many elements of a product, whose axes are in that order, lie side by side and come from the
    operand that gives the innermost axis."""
    out, sizes = node.op.out, [dims.typical(d) for d in node.outputs[0].shape]
    givers = [(label in node.op.lhs, label in node.op.rhs) for label in out]
    inner = takewhile(lambda axis: givers[axis] == givers[order[-1]], reversed(order))
    return prod(sizes[axis] for axis in inner)
