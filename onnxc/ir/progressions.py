"""Integers that grow evenly along the axes of a value: `start + Σ step × index`, as exporters write the
places of a part of a tensor.

    broadcast(reshape(slice(map() { index(0) } shape=(n)) starts=(2)))    →    2 + 1 × (index along its axis)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..records import dataclass
from . import dims, dtypes, expr
from .dims import Dimension
from .expr import Expr
from .graph import Constant, Value
from .ops import Broadcast, Elements, Map, Reshape, Shape, Slice, Transpose

STEPS = 16  # producers that are looked through
LOOKED_AT = 1 << 20  # elements of a constant that are looked at
FAR = 1 << 40  # places that no tensor has, whose multiples wrap


@dataclass(frozen=True)
class Progression:
    """What the element at an index of each axis is: the start, and so much more a step along each axis."""

    start: Dimension
    steps: Shape

    def counts_along(self, axis: int | None) -> bool:
        """Whether elements are one more a step along one axis, if any, and the same along all others."""
        return all(step == (a == axis) for a, step in enumerate(self.steps))


def progression(value: Value, steps: int = STEPS) -> Progression | None:
    """How a value of integers grows, as far as its producers tell; a step along an axis of one is 0."""
    found = _found(value, steps) if dtypes.is_integer(value.dtype) else None
    if found is None:
        return None
    short = zip(value.shape, found.steps, strict=True)
    return Progression(found.start, tuple(0 if size == 1 else step for size, step in short))


def _found(value: Value, steps: int) -> Progression | None:
    node = value.producer
    if value.constant is not None:
        return _of_constant(value.constant)
    if node is None or not steps:
        return None
    match node.op:
        case Elements((only,)):
            return Progression(only, (0,) * value.rank)
        case Map(body):
            operands = [progression(v, steps - 1) for v in node.inputs]
            shapes = [v.shape for v in node.inputs]
            return _of_map(body, operands, shapes, value.shape)
        case Slice() | Transpose() | Broadcast() | Reshape():
            (moved,) = node.inputs
            x = progression(moved, steps - 1)
            return None if x is None else _moved(node.op, x, moved.shape, value.shape)
    return None


def _of_constant(constant: Constant) -> Progression | None:
    if 0 in constant.shape or dims.product(constant.shape) > LOOKED_AT:
        return None
    array = constant.array
    start = int(array.flat[0])
    seconds = [tuple(int(a == axis) for a in range(array.ndim)) for axis in range(array.ndim)]
    steps = [int(array[at]) - start if array.shape[a] > 1 else 0 for a, at in enumerate(seconds)]
    if max(map(abs, (start, *steps))) >= FAR:
        return None
    grown = np.full((1,) * array.ndim, start)
    for axis, step in enumerate(steps):
        along = [-1 if a == axis else 1 for a in range(array.ndim)]
        grown = grown + step * np.arange(array.shape[axis]).reshape(along)
    return Progression(start, tuple(steps)) if np.array_equal(grown, array) else None


def _moved(op: object, x: Progression, source: Shape, target: Shape) -> Progression | None:
    match op:
        case Slice(starts, _, strides):
            start = x.start + dims.total(s * step for s, step in zip(starts, x.steps, strict=True))
            return Progression(start, tuple(step * s for step, s in zip(x.steps, strides, strict=True)))
        case Transpose(perm):
            return Progression(x.start, tuple(x.steps[axis] for axis in perm))
        case Broadcast():
            return _repeated(x, source, target)
        case Reshape():
            return _reshaped(x, source, target)
    return None


def _repeated(x: Progression, source: Shape, target: Shape) -> Progression | None:
    """Along axes that may be repeated the elements must be the same."""
    new = len(target) - len(source)
    kept = all(
        step == 0 or dims.equal(size, whole) is True
        for step, size, whole in zip(x.steps, source, target[new:], strict=True)
    )
    return Progression(x.start, (*[0] * new, *x.steps)) if kept else None


def _reshaped(x: Progression, source: Shape, target: Shape) -> Progression | None:
    """Axes of one come and go."""
    long = [axis for axis, size in enumerate(source) if size != 1]
    places = [axis for axis, size in enumerate(target) if size != 1]
    if [source[a] for a in long] != [target[a] for a in places]:
        return None
    steps = dict(zip(places, (x.steps[a] for a in long), strict=True))
    return Progression(x.start, tuple(steps.get(a, 0) for a in range(len(target))))


def _of_map(
    body: Expr, operands: Sequence[Progression | None], shapes: Sequence[Shape], shape: Shape
) -> Progression | None:
    """A sum of indices and operands, times numbers, in int64, which no place that exists wraps."""
    found: dict[Expr, Progression] = {}
    none = (0,) * len(shape)
    for node in expr.topological(body):
        made = None
        args = [found[a] for a in node.args if a in found]
        if len(args) < len(node.args) or (node.args and node.dtype != "int64"):
            return None
        match node.op, args:
            case "input", _:
                x = operands[node.value]
                made = None if x is None else _repeated(x, shapes[node.value], shape)
            case "const", _:
                made = Progression(int(node.value), none)
            case "size", _:
                made = Progression(node.value, none)
            case "index", _:
                made = Progression(0, tuple(int(a == node.value) for a in range(len(shape))))
            case "cast", [x] if dtypes.is_integer(node.args[0].dtype):
                made = x
            case "add" | "sub", [a, b]:
                sign = 1 if node.op == "add" else -1
                each = zip(a.steps, b.steps, strict=True)
                made = Progression(a.start + b.start * sign, tuple(s + t * sign for s, t in each))
            case "mul", [a, b] if not any(a.steps) or not any(b.steps):
                factor, x = (a.start, b) if not any(a.steps) else (b.start, a)
                made = Progression(x.start * factor, tuple(s * factor for s in x.steps))
        if made is None:
            return None
        found[node] = made
    return found[body]
