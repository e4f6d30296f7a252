"""What inference takes for granted and only the run can tell: that sizes agree, suffice, or are not negative.

Inference assumes that symbolic sizes fit together. Here stands, op by op, what it assumed; generated code
checks it just before the node runs, so that kernels may rely on it. What is certain at compile time is left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from . import dims
from .dims import Apply, Dim, Dimension
from .graph import Node, TensorType
from .ops import (
    Attention,
    Bind,
    Broadcast,
    Concat,
    Contract,
    Conv,
    Fused,
    Gather,
    If,
    Loop,
    Map,
    Pad,
    Recurrent,
    Reduce,
    Reshape,
    RuntimeCall,
    Scatter,
    Slice,
)


@dataclass(frozen=True)
class Requirement:
    """`equal`: a == b; `broadcast`: a is b or 1; `least`: a >= b. Else the run fails with `code`."""

    kind: Literal["equal", "broadcast", "least"]
    a: Dimension
    b: Dimension
    code: str
    origin: str


def requirements(node: Node) -> list[Requirement]:
    """What must hold of sizes for node to run, as far as it is not certain."""
    found = [
        Requirement(kind, a, b, code, node.origin)
        for kind, a, b, code in _needs(node)
        if not _certain(kind, a, b)
    ]
    if isinstance(node.op, Fused):
        for inner in node.op.region.nodes:
            found += requirements(inner)
    return list(dict.fromkeys(found))


def _certain(kind: str, a: Dimension, b: Dimension) -> bool:
    if kind == "least":
        return dims.less(a, b) is False
    return (kind == "broadcast" and a == 1) or dims.equal(a, b) is True


Need = tuple[str, Dimension, Dimension, str]


def _needs(node: Node) -> Iterator[Need]:
    types, op = [v.type for v in node.inputs], node.op
    if not isinstance(op, (If, Loop, RuntimeCall)):  # these find the sizes of their results themselves
        for value in node.outputs:
            yield from (("least", size, 0, "wrong_shape") for size in value.shape)
    match op:
        case Map() | Broadcast():
            for type_ in types:
                yield from _broadcasts(type_.shape, node.outputs[0].shape)
            for size in op.shape or ():
                yield from (("broadcast", part, size, "dims_mismatch") for part in _parts(size))
        case Reduce(kind=kind, axes=axes):
            if kind.startswith("arg"):
                yield "least", types[0].shape[axes[0]], 1, "wrong_shape"
            for type_ in types[1:]:
                yield from _broadcasts(type_.shape, types[0].shape)
        case Contract(lhs=lhs, rhs=rhs):
            yield from _labelled([(lhs, types[0]), (rhs, types[1])])
        case Conv(groups=groups, transposed=transposed):
            channels = types[1].shape[0] if transposed else types[1].shape[1] * groups
            yield "equal", types[0].shape[1], channels, "dims_mismatch"
            yield "equal", types[1].shape[0] % groups, 0, "wrong_shape"
        case Attention(q=q, k=k, v=v):
            yield from _labelled([(q, types[0]), (k, types[1]), (v, types[2])])
            sizes = {**dict(zip(q, types[0].shape)), "k": types[1].shape[k.index("k")]}
            batch = [sizes[label] for label in q if label not in "qd"]
            for bias in types[3:]:
                yield from _broadcasts(bias.shape, (*batch, sizes["q"], sizes["k"]))
        case Recurrent():
            yield from _recurrent(op, types)
        case _:
            yield from _movement(op, types)
    if isinstance(op, (Contract, Conv)):
        for type_ in types[2:]:
            yield from _broadcasts(type_.shape, node.outputs[0].shape)


def _movement(op: object, types: Sequence[TensorType]) -> Iterator[Need]:
    match op:
        case Reshape(shape=shape):
            yield "equal", types[0].count, dims.product(shape), "invalid_reshape"
        case Slice(starts=starts, sizes=sizes, steps=steps):
            for length, start, size, step in zip(types[0].shape, starts, sizes, steps):
                if step == 1:  # other steps come with sizes that are clamped
                    yield "least", start, 0, "invalid_value"
                    yield "least", length, start + size, "dims_mismatch"
        case Pad(before=before, after=after):
            yield from (("least", amount, 0, "invalid_value") for amount in (*before, *after))
        case Concat(axis=axis):
            for type_ in types[1:]:
                yield from _equal(types[0].shape, type_.shape, but=axis)
        case Gather(form="nd", batch=batch):
            yield from _equal(types[0].shape[:batch], types[1].shape[:batch])
        case Gather(form="elements", axis=axis):
            yield from _within(types[1], types[0], axis)
        case Scatter(form="elements", axis=axis):
            yield from _within(types[1], types[0], axis)
            yield from _equal(types[1].shape, types[2].shape)
        case Scatter(form="nd"):
            depth = types[1].shape[-1]
            yield from _equal((*types[1].shape[:-1], *types[0].shape[depth:]), types[2].shape)
        case Bind(symbols=symbols):
            yield "equal", types[0].count, len(symbols), "dims_mismatch"


def _recurrent(op: Recurrent, types: Sequence[TensorType]) -> Iterator[Need]:
    steps, batch, *_ = types[0].shape
    count, hidden = len(op.directions), op.hidden
    yield from _equal((steps, batch, count, op.columns), types[0].shape)
    yield from _equal((count, op.columns, hidden), types[1].shape)
    shapes = {
        "b": (count, hidden),
        "lengths": (batch,),
        "h": (count, batch, hidden),
        "c": (count, batch, hidden),
        "p": (count, 3 * hidden),
    }
    for name, type_ in zip(op.operands, types[2:]):
        yield from _equal(shapes[name], type_.shape)


def _equal(expected: Sequence[Dimension], shape: Sequence[Dimension], but: int = -1) -> Iterator[Need]:
    """Every axis but one is as expected."""
    for axis, (a, b) in enumerate(zip(expected, shape, strict=True)):
        if axis != but:
            yield "equal", a, b, "dims_mismatch"


def _within(indices: TensorType, x: TensorType, axis: int) -> Iterator[Need]:
    """Indices of elements name no places outside x along the axes that they do not replace."""
    for k, (a, b) in enumerate(zip(x.shape, indices.shape)):
        if k != axis:
            yield "least", a, b, "dims_mismatch"


def _broadcasts(operand: Sequence[Dimension], shape: Sequence[Dimension]) -> Iterator[Need]:
    for a, b in zip(operand, shape[len(shape) - len(operand) :]):
        yield "broadcast", a, b, "dims_mismatch"


def _parts(size: Dimension) -> list[Dimension]:
    """The sizes of which it is the common one, where it is that."""
    match size:
        case Dim(terms=((((Apply(kind="broadcast", left=left, right=right), 1),), 1),)):
            return [*(_parts(left) or [left]), *(_parts(right) or [right])]
    return []


def _labelled(operands: Sequence[tuple[str, TensorType]]) -> Iterator[Need]:
    """Axes of one label have one size."""
    sizes: dict[str, Dimension] = {}
    for labels, type_ in operands:
        for label, size in zip(labels, type_.shape):
            yield "equal", sizes.setdefault(label, size), size, "dims_mismatch"
