"""Between which numbers the elements of an integer value lie, as far as its producers tell, how large floats
are that are made of integers, and what is repeated in a value of any type.

A uint8 image less its zero point 128 lies in -128..127: how great a sum of products can become decides in
which type it is exact (`passes/widen.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from . import dims, dtypes, expr
from .dims import Dimension
from .expr import Expr
from .graph import Constant, Value, constant_value
from .ops import MOVING, Broadcast, Gather, Map, Reshape, Slice, Transpose

Range = tuple[int, int]  # least and greatest
STEPS = 16  # producers that are looked through
LOOKED_AT = 1 << 12  # elements of a constant that are looked at


def value_range(value: Value, steps: int = STEPS) -> Range:
    """The least and greatest element that a value of integers may have."""
    constant, producer = value.constant, value.producer
    whole = dtypes.integer_range(value.dtype)
    if constant is not None:
        return _constant_range(constant, steps)
    if producer is None or not steps:
        return whole
    match producer.op:
        case Map(body):
            operands = {k: value_range(v, steps - 1) for k, v in enumerate(producer.inputs) if _counts(v)}
            return expression_range(body, operands, value.shape)
        case Gather():
            return value_range(producer.inputs[0], steps - 1)
        case op if isinstance(op, MOVING):
            ranges = [value_range(v, steps - 1) for v in producer.inputs if v.dtype == value.dtype]
            return min(low for low, _ in ranges), max(high for _, high in ranges)
    return whole


def _constant_range(constant: Constant, steps: int) -> Range:
    """Few elements are looked at; of many, what they are made of tells."""
    if constant.splat is not None or np.prod(constant.shape) <= LOOKED_AT:
        array = np.asarray(constant.array).astype(object)
        return (int(array.min()), int(array.max())) if array.size else (0, 0)
    made = constant.derivation
    if made is not None and steps:
        ranges = {k: _constant_range(c, steps - 1) for k, c in enumerate(made.operands) if _counts(c)}
        if isinstance(made.op, Map):
            return expression_range(made.op.body, ranges)
        if isinstance(made.op, MOVING):
            return ranges[0]
    return dtypes.integer_range(constant.dtype)


def _counts(value: Value | Constant) -> bool:
    return dtypes.is_integer(value.dtype)


def expression_range(root: Expr, operands: Mapping[int, Range], sizes: Sequence[Dimension] = ()) -> Range:
    """The range of an expression of integers over operands of these ranges, computed for every element of a
    tensor of these sizes."""
    return ranges_in(root, operands, sizes)[root]


def ranges_in(
    root: Expr, operands: Mapping[int, Range], sizes: Sequence[Dimension] = ()
) -> dict[Expr, Range]:
    """Those of all parts of an expression that are integers, as in `expression_range`. What may wrap has that
    of its type."""
    found: dict[Expr, Range] = {}
    for node in expr.topological(root):
        if dtypes.is_integer(node.dtype):
            whole = dtypes.integer_range(node.dtype)
            low, high = _range(node, found, operands, sizes) or whole
            found[node] = (low, high) if whole[0] <= low and high <= whole[1] else whole
    return found


def _range(
    node: Expr, found: Mapping[Expr, Range], operands: Mapping[int, Range], sizes: Sequence[Dimension]
) -> Range | None:
    if node.op == "input":
        return operands.get(node.value)
    if node.op == "const":
        return int(node.value), int(node.value)
    if node.op == "index" and node.value < len(sizes):
        _, most = dims.bounds(sizes[node.value])
        return None if most is None else (0, max(0, most - 1))
    if any(a not in found for a in node.args):
        return None
    ranges = [found[a] for a in node.args]
    match node.op, ranges:
        case ("cast", [only]):
            return only
        case ("neg", [(low, high)]):
            return -high, -low
        case ("add", [(a, b), (c, d)]):
            return a + c, b + d
        case ("sub", [(a, b), (c, d)]):
            return a - d, b - c
        case ("mul", [(a, b), (c, d)]):
            products = (a * c, a * d, b * c, b * d)
            return min(products), max(products)
        case ("min", [(a, b), (c, d)]):
            return min(a, c), min(b, d)
        case ("max", [(a, b), (c, d)]):
            return max(a, c), max(b, d)
    return None


def repeated_element(value: Value) -> Value | None:
    """The scalar constant that every element of a value is, as far as its producers tell."""
    while value.producer is not None and isinstance(
        value.producer.op, Broadcast | Reshape | Slice | Transpose
    ):
        (value,) = value.producer.inputs
    constant = value.constant
    if constant is None or (constant.splat is None and dims.product(constant.shape) != 1):
        return None
    element = constant.array.flat[0] if constant.splat is None else constant.splat
    return constant_value(np.asarray(element, dtypes.numpy_dtype(constant.dtype)))


def all_inside(places: np.ndarray, size: Dimension) -> bool:
    """Whether constant indices, of which there are some, name places of an axis counted from its start."""
    return bool(isinstance(size, int) and places.size and (places >= 0).all() and (places < size).all())


def magnitude(root: Expr) -> float:
    """What no absolute value of an expression of floats exceeds, but for rounding; infinite where it may be
    NaN. Operands that are no integers may be anything."""
    integers, found = ranges_in(root, {}), dict[Expr, float]()
    for node in expr.topological(root):
        if node in integers:
            found[node] = float(max(map(abs, integers[node])))
        elif dtypes.is_float(node.dtype) and (node.args or node.op == "const"):
            found[node] = _magnitude(node, [found.get(a, math.inf) for a in node.args])
    return found.get(root, math.inf)


def _magnitude(node: Expr, sizes: Sequence[float]) -> float:
    match node.op, sizes:
        case "const", _:
            return abs(node.value) if math.isfinite(node.value) else math.inf
        case ("cast" | "neg" | "abs", [a]):
            return a
        case ("round" | "floor" | "ceil" | "trunc", [a]):
            return a + 1
        case ("add" | "sub", [a, b]):
            return a + b
        case ("min" | "max", [a, b]):
            return max(a, b)
        case ("mul", [a, b]) if math.isfinite(max(a, b)):
            return a * b
        case ("fma", [a, b, c]) if math.isfinite(max(a, b)):
            return a * b + c
        case ("div", [a, _]) if node.args[1].op == "const" and node.args[1].value != 0:
            return a / abs(node.args[1].value)
    return math.inf
