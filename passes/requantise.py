"""requantise: between integers there is one scale.

cast(clip(round(div(max(add(mul(cast($0, float32), $1), $2), 0.0), 0.1)) + 3.0, 0.0, 255.0), uint8)
    →   cast(clip(round(fma(cast($0, float32), $1, $2)) + 3.0, 3.0, 255.0), uint8), both divided by 0.1

What is rounded to an integer, made of integers by constant scales and shifts, is a sum of integers times one
number each and one number more, which are computed in float64 and rounded once. Integers in between, as after
a convolution whose normalisation is quantised too, stay real numbers: they are not stored. Where the scales
are equal, so that every number is 1, a few bytes are added as integers and nothing is rounded:

cast(clip(round(div(mul(cast(sub(cast($0, int32), 7), float32), 0.1), 0.1)) + 3.0, 0.0, 255.0), uint8)
    →   cast(clip(cast($0, int16) - 4, 0, 255), uint8)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ir import dtypes, expr
from ..ir.bodies import pruned
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Graph, Rewriter, TensorType, Value, constant_value
from ..ir.ops import Contract, Conv, Map, Op
from ..ir.ranges import are_moderate
from ..records import dataclass

MOST_CONSTANTS = 1 << 16  # elements of a constant operand
Number = np.ndarray | np.float64  # of every channel, or one for all


@everywhere
def requantise(graph: Graph) -> Graph:
    """graph with one scale for each integer that a rounded number is made of."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        op, inputs = node.op, [rewriter.of(v) for v in node.inputs]
        made: Op | None = None
        if isinstance(op, Map):
            body, inputs = _rescaled(op.body, inputs, ())
            made = Map(body, op.shape) if body is not op.body else None
        elif isinstance(op, (Conv, Contract)) and op.epilogue is not None:
            sums = Value(TensorType(op.accumulate, node.outputs[0].shape))
            body, (_, *operands) = _rescaled(op.epilogue, [sums, *inputs[2:]], (0,))
            made = replace(op, epilogue=body) if body is not op.epilogue else None
            inputs = [*inputs[:2], *operands]
        if made is None:
            rewriter.copy(node)
        else:
            results = rewriter.add(made, inputs, node.origin, [node.outputs[0].name])
            rewriter.replace(node.outputs, results)
    return rewriter.finish()


def _rescaled(body: Expr, operands: list[Value], kept: Sequence[int]) -> tuple[Expr, list[Value]]:
    """A body and its operands, of which those in `kept` stay where they are."""
    if not expr.contains(body, "round"):
        return body, operands
    scales = _Scales(operands)
    made = scales.body(body)
    used = expr.inputs(made)
    if made is body or not used or not set(kept) <= set(used):
        return body, operands
    return pruned(made, scales.operands)


@dataclass(frozen=True)
class _Sum:
    """The sum over terms of factor * integer, and `shift`, between `low` and `high`; integers as expressions
    of float32. The product of one with another number may stand for an integer."""

    terms: tuple[tuple[Expr, Number], ...]
    shift: Number
    low: float = -math.inf
    high: float = math.inf

    @property
    def is_bounded(self) -> bool:
        return (self.low, self.high) != (-math.inf, math.inf)

    def times(self, factor: Number) -> _Sum | None:
        if self.is_bounded and not (factor.size == 1 and factor > 0):
            return None
        found = _Sum(tuple((base, a * factor) for base, a in self.terms), self.shift * factor)
        if not self.is_bounded:
            return found
        return replace(found, low=self.low * factor.item(), high=self.high * factor.item())

    def plus(self, other: _Sum | None) -> _Sum | None:
        if other is None or self.is_bounded or other.is_bounded:
            return None
        terms = dict(self.terms)
        for base, a in other.terms:
            terms[base] = terms[base] + a if base in terms else a
        return _Sum(tuple(terms.items()), self.shift + other.shift)

    def between(self, low: float, high: float) -> _Sum:
        """clip(self, low, high)"""
        return replace(self, low=min(max(self.low, low), high), high=min(max(self.high, low), high))

    @property
    def is_finite(self) -> bool:
        """Whether every number is 0 or moderate, so that sums of such products are finite."""
        numbers = (self.shift, *(a for _, a in self.terms))
        return all(are_moderate(np.asarray(n)) for n in numbers)


class _Scales:
    """A body at work: what its expressions become, and which of them are sums."""

    def __init__(self, operands: Sequence[Value]):
        self.operands = list(operands)
        self.made: dict[Expr, Expr] = {}
        self.sums: dict[Expr, _Sum | None] = {}

    def body(self, body: Expr) -> Expr:
        """What it becomes over the operands, and others behind them."""
        for node in expr.topological(body):
            args = tuple(self.made[a] for a in node.args)
            self.made[node] = expr.rebuild(node, args) if args else node
            self.sums[node] = self._quantised(node) or self._sum(node)
        return self.made[body]

    def _quantised(self, node: Expr) -> _Sum | None:
        """Of cast(clip(round(x) + zero), integer), which is made anew where x is a sum: the integer less its
        zero point, as it is before the cast."""
        found = _quantisation(node)
        total = None if found is None else self.sums[found.x]
        if found is None or total is None or not total.terms or not total.is_finite:
            return None
        zero = found.zero
        low, high = (
            float(np.clip(np.rint(b) + zero, found.low, found.high)) for b in (total.low, total.high)
        )
        exact = _integers(total, zero)
        if exact is not None:
            self.made[node] = exact.clip(int(low), int(high)).cast(node.dtype)
            return _Sum(((self.made[node].cast("int32").cast("float32"), np.float64(1)),), np.float64(0))
        x = self.made[found.x] if _is_plain(found.x) else self._expression(total)
        whole = expr.apply("round", x)
        self.made[node] = (whole + zero if zero else whole).clip(low, high).cast(node.dtype)
        return _Sum(((whole.clip(low - zero, high - zero), np.float64(1)),), np.float64(zero))

    def _sum(self, node: Expr) -> _Sum | None:
        """Of expressions that are affine in integers."""
        args = [self.sums[a] for a in node.args]
        match node.op, args:
            case "const", _ if node.dtype in ("float32", "int32") and math.isfinite(node.value):
                return _Sum((), np.float64(node.value))
            case "input", _:
                return self._constant(node)
            case "cast", [inner] if node.dtype == "int32" and dtypes.is_integer(node.args[0].dtype):
                short = dtypes.bits(node.args[0].dtype) < 32
                plain = _Sum(((self.made[node].cast("float32"), np.float64(1)),), np.float64(0))
                return (inner or plain) if short else None
            case "cast", [inner] if node.dtype == "float32" and node.args[0].dtype == "int32":
                return inner or _Sum(((self.made[node], np.float64(1)),), np.float64(0))
        if node.dtype not in ("float32", "int32"):
            return None
        if node.op == "select":
            return self._selected(node, args[1], args[2])
        if node.op == "mul" and node.dtype == "float32" and all(a is None or a.terms for a in args):
            return self._product(node, args)
        if None in args:
            return None
        known = [a for a in args if a is not None]
        match node.op, known:
            case "neg", [a]:
                return a.times(np.float64(-1))
            case "add", [a, b]:
                return a.plus(b)
            case "sub", [a, b]:
                return a.plus(b.times(np.float64(-1)))
            case "mul", [a, b] if node.dtype == "float32" and not (a.terms and b.terms):
                return a.times(b.shift) if a.terms else b.times(a.shift)
            case "div", [a, b] if node.dtype == "float32" and not b.terms and np.all(b.shift != 0):
                return a.times(1 / b.shift)
            case "fma", [a, b, c] if not (a.terms and b.terms):
                product = a.times(b.shift) if a.terms else b.times(a.shift)
                return None if product is None else product.plus(c)
            case "max", [a, b] if a.terms and not b.terms and b.shift.size == 1:
                return a.between(b.shift.item(), math.inf)
            case "min", [a, b] if a.terms and not b.terms and b.shift.size == 1:
                return a.between(-math.inf, b.shift.item())
        return None

    def _selected(self, node: Expr, then: _Sum | None, otherwise: _Sum | None) -> _Sum | None:
        """Of one of two integers with the same scale and shift, or of an integer and a number that is one by
        that scale and shift."""
        for one, other in ((then, otherwise), (otherwise, then)):
            if one is None or other is None or len(one.terms) != 1 or one.is_bounded or other.is_bounded:
                continue
            ((base, factor),) = one.terms
            if not factor.size == one.shift.size == other.shift.size == 1 or factor == 0:
                continue
            if not other.terms and (whole := _whole((other.shift - one.shift) / factor)) is not None:
                second = expr.const(whole, "float32")
            elif other.terms[1:] == () != other.terms and (factor, one.shift) == (
                other.terms[0][1],
                other.shift,
            ):
                second = other.terms[0][0]
            else:
                continue
            pair = (base, second) if one is then else (second, base)
            return _Sum(((_select(self.made[node.args[0]], *pair), factor),), one.shift)
        return None

    def _product(self, node: Expr, factors: Sequence[_Sum | None]) -> _Sum | None:
        """Of two integers less whole numbers, or of one of them and any number, by the scales of both."""
        total: Number = np.float64(1)
        found: list[Expr] = []
        for arg, sum_ in zip(node.args, factors):
            if sum_ is None:
                found.append(self.made[arg])
                continue
            ((base, factor), *more) = sum_.terms
            if more or sum_.is_bounded or factor.size * sum_.shift.size != 1 or factor == 0:
                return None
            whole = _whole(sum_.shift / factor)
            if whole is None:
                return None
            total = total * factor
            found.append(base + whole if whole else base)
        return _Sum(((expr.apply("mul", *found), total),), np.float64(0)) if any(factors) else None

    def _constant(self, node: Expr) -> _Sum | None:
        constant = self.operands[node.value].constant
        if node.dtype != "float32" or constant is None or np.prod(constant.shape) > MOST_CONSTANTS:
            return None
        return _Sum((), constant.array.astype(np.float64))

    def _expression(self, total: _Sum) -> Expr:
        """factor * integer + (... + shift), without its bounds"""
        found = None if not np.any(total.shift) else self._number(total.shift)
        for base, factor in reversed(total.terms):
            number = self._number(factor)
            if number.op == "const" and number.value == 1:
                found = base if found is None else base + found
            else:
                found = base * number if found is None else expr.apply("fma", base, number, found)
        return found if found is not None else expr.const(0.0, "float32")

    def _number(self, array: Number) -> Expr:
        """An array as a number, where it repeats one, or as another operand."""
        single = np.asarray(array, np.float32)
        if single.size and (single == single.reshape(-1)[0]).all():
            return expr.const(float(single.reshape(-1)[0]), "float32")
        self.operands.append(constant_value(single))
        return expr.input_(len(self.operands) - 1, "float32")


def _whole(number: Number) -> float | None:
    """The integer that a number is, but for what scales and shifts lost when they were rounded to float32."""
    near = float(np.rint(number.item()))
    apart = abs(number.item() - near)
    return near if abs(near) < 1 << 15 and apart <= max(1.0, abs(near)) * 2.0**-22 else None


def _integers(total: _Sum, zero: float) -> Expr | None:
    """total + zero in int16, where it is a sum of bytes and a whole number."""
    if total.shift.size != 1 or any(factor.size != 1 for _, factor in total.terms):
        return None
    shift = _whole(total.shift)
    bytes_ = [_byte(base) for base, _ in total.terms]
    if shift is None or None in bytes_ or any(abs(factor) != 1 for _, factor in total.terms):
        return None
    if len(bytes_) * 256 + abs(shift) + abs(zero) >= 1 << 15:
        return None
    found = expr.const(int(shift + zero), "int16")
    for byte, (_, factor) in zip(bytes_, total.terms):
        assert byte is not None
        found = byte.cast("int16") + found if factor == 1 else found - byte.cast("int16")
    return found


def _byte(base: Expr) -> Expr | None:
    """The integer of at most 8 bits that a number of float32 is."""
    while base.op == "cast" and base.args[0].dtype != "bool":
        base = base.args[0]
        if dtypes.is_integer(base.dtype) and dtypes.bits(base.dtype) <= 8:
            return base
    return None


def _select(condition: Expr, a: Expr, b: Expr) -> Expr:
    """One of two numbers, of bytes where both are."""
    first, second = _byte(a), _byte(b)
    for one, other, pick in ((first, b, 0), (second, a, 1)):
        if one is not None and other.op == "const":
            low, high = dtypes.integer_range(one.dtype)
            if low <= other.value <= high:
                number = expr.const(int(other.value), one.dtype)
                first, second = (one, number) if pick == 0 else (number, one)
    if first is None or second is None or first.dtype != second.dtype:
        return expr.apply("select", condition, a, b)
    return expr.apply("select", condition, first, second).cast("int32").cast("float32")


@dataclass(frozen=True)
class _Quantisation:
    """cast(clip(round(x) + zero, low, high), an integer type)"""

    x: Expr
    zero: float
    low: float
    high: float


def _quantisation(node: Expr) -> _Quantisation | None:
    """What node is of that form, clipped to what its type holds."""
    if node.op != "cast" or not dtypes.is_integer(node.dtype) or dtypes.bits(node.dtype) > 16:
        return None
    upper = node.args[0]
    lower = upper.args[0] if upper.op == "min" else upper
    if (upper.op, lower.op, upper.dtype) != ("min", "max", "float32"):
        return None
    bounds, whole, zero = (lower.args[1], upper.args[1]), lower.args[0], 0.0
    if whole.op == "add" and whole.args[1].op == "const":
        whole, zero = whole.args[0], whole.args[1].value
    if whole.op != "round" or any(b.op != "const" for b in bounds):
        return None
    (low, high), (least, greatest) = (b.value for b in bounds), dtypes.integer_range(node.dtype)
    known = all(map(float.is_integer, (zero, low, high))) and least <= low <= high <= greatest
    return _Quantisation(whole.args[0], zero, low, high) if known and abs(zero) < 1 << 16 else None


def _is_plain(x: Expr) -> bool:
    """Whether a sum has one number for each integer already."""

    def leaf(e: Expr) -> bool:
        return e.op in ("input", "const")

    if x.op == "fma":
        return leaf(x.args[1]) and not leaf(x.args[0]) and (leaf(x.args[2]) or _is_plain(x.args[2]))
    product = x.op == "mul" and leaf(x.args[1])
    return product and x.args[0].op not in ("add", "sub", "mul", "div", "neg", "fma")
