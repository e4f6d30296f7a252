"""Between which numbers the elements of an integer value lie, as far as its producers tell, how large floats
are that are made of integers, and what is repeated in a value of any type.

A uint8 image less its zero point 128 lies in -128..127: how great a sum of products can become decides in
which type it is exact (`passes/widen.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np

from . import dims, dtypes, expr
from .dims import Dimension
from .expr import Expr
from .graph import Constant, Value, constant_value
from .ops import MOVING, Broadcast, Gather, Map, Reshape, Slice, Transpose

Range = tuple[int, int]  # least and greatest
STEPS = 16  # producers that are looked through
LOOKED_AT = 1 << 12  # elements of a constant that are looked at
MODERATE = 2.0**-60, 2.0**60  # sizes of factors that make neither zeros nor infinities of ordinary numbers


def are_moderate(numbers: np.ndarray) -> bool:
    """Whether all factors are 0 or MODERATE."""
    sizes = np.abs(numbers)
    return bool(((sizes == 0) | ((sizes > MODERATE[0]) & (sizes < MODERATE[1]))).all())


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


BOUNDS = (2.0**-1, 2.0**10, 2.0**20)  # of constants of which nothing else is known: scales, bytes, others


def bounds_in(body: Expr | None) -> tuple[float, ...]:
    """Those of BOUNDS by which code of an expression tells constants apart: one, where it rounds nothing to
    integers and nothing asks how large they are."""
    rounds = body is not None and any(
        node.op == "cast" and dtypes.is_integer(node.dtype) and dtypes.is_float(node.args[0].dtype)
        for node in expr.topological(body)
    )
    return BOUNDS if rounds else BOUNDS[-1:]


def bound_of(constant: Constant, bounds: Sequence[float] = BOUNDS) -> float:
    """The least of bounds that no absolute value of a constant of floats exceeds; infinite where there is
    none, or there are too many elements to look at."""
    large = constant.splat is None and dims.product(constant.shape) > LOOKED_AT
    if large or not dtypes.is_float(constant.dtype):
        return math.inf
    return next((bound for bound in bounds if constant.magnitude <= bound), math.inf)


def magnitude(root: Expr, operands: Mapping[int, float]) -> float:
    """What no absolute value of an expression of floats exceeds, but for rounding, where those of some
    operands do not exceed `operands`; infinite where it may be NaN."""
    integers, found = ranges_in(root, {}), dict[Expr, Between]()
    for node in expr.topological(root):
        if node in integers:
            low, high = integers[node]
            found[node] = float(low), float(high)
        elif dtypes.is_float(node.dtype) and (node.args or node.op in ("const", "input")):
            found[node] = _between(node, [found.get(a, ANYTHING) for a in node.args], operands)
    return max(map(abs, found.get(root, ANYTHING)))


Between = tuple[float, float]  # least and greatest, where it is no NaN
ANYTHING = -math.inf, math.inf


def _between(node: Expr, args: Sequence[Between], operands: Mapping[int, float]) -> Between:
    """The bounds of a node; ANYTHING too where it may overflow."""
    if any(math.inf in bounds for bounds in args):
        return ANYTHING
    low, high = _bounds(node, args, operands)
    greatest = float(ml_dtypes.finfo(dtypes.numpy_dtype(node.dtype)).max)
    return (low, high) if max(-low, high) < greatest else ANYTHING


def _bounds(node: Expr, args: Sequence[Between], operands: Mapping[int, float]) -> Between:
    match node.op, args:
        case "const", _:
            return (node.value, node.value) if math.isfinite(node.value) else ANYTHING
        case "input", _:
            most = operands.get(node.value, math.inf)
            return -most, most
        case ("cast", [a]):
            return a
        case ("neg", [(a, b)]):
            return -b, -a
        case ("abs", [(a, b)]):
            return 0.0, max(-a, b)
        case ("round" | "floor" | "ceil" | "trunc", [(a, b)]):
            return a - 1, b + 1
        case ("add", [(a, b), (c, d)]):
            return a + c, b + d
        case ("sub", [(a, b), (c, d)]):
            return a - d, b - c
        case ("min", [(a, b), (c, d)]):
            return min(a, c), min(b, d)
        case ("max", [(a, b), (c, d)]):
            return max(a, c), max(b, d)
        case ("mul", [a, b]):
            return _product(a, b)
        case ("fma", [a, b, (c, d)]):
            low, high = _product(a, b)
            return low + c, high + d
        case ("div", [a, (c, d)]) if c == d != 0:
            return _product(a, (1 / c, 1 / c))
    return ANYTHING


def _product(a: Between, b: Between) -> Between:
    products = [x * y for x in a for y in b]
    return min(products), max(products)
