"""Scalar expressions: what a Map, or a kernel's epilogue, computes for one element.

An `Expr` is an interned, immutable DAG: building the same expression twice gives the same object, so equality
is identity and shared parts stay shared (`x = x + x`, 64 times, is 65 nodes). All walks are loops over
`topological`, never recursion. Arithmetic is that of the type: integers wrap, floats follow IEEE 754; no
operation traps.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from ..records import dataclass
from . import dtypes
from .dims import Dimension

Scalar = int | float | bool


@dataclass(frozen=True)
class Operation:
    """One scalar operation: its arity, its result type (None: that of its last argument) and its numpy
    meaning."""

    arity: int
    numpy: Callable
    result: str | None = None


def _is_float(dtype: np.dtype) -> bool:
    return "float" in dtype.name or dtype.kind == "c"  # ml_dtypes have no kind of their own


def _integer_or(on_integers: Callable, on_floats: Callable) -> Callable:
    return lambda *a: (on_floats if _is_float(a[0].dtype) else on_integers)(*a)


def _nonzero(b: np.ndarray) -> np.ndarray:
    """b with 1 in place of 0."""
    return np.where(b == np.zeros_like(b), np.ones_like(b), b)


def _truncated_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe, zero = _nonzero(b), np.zeros((), a.dtype)
    quotient = np.floor_divide(a, safe)
    inexact = (quotient * safe != a) & ((a < zero) != (safe < zero))
    return np.where(inexact, quotient + np.ones_like(quotient), quotient)


def _floor_mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.mod(a, _nonzero(b))


def _truncated_mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = _nonzero(b)
    return a - safe * _truncated_quotient(a, safe)


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return (a.astype(np.float64) * b + c).astype(a.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def _shift(numpy_shift: Callable) -> Callable:
    def shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        width = a.dtype.itemsize * 8
        inside = (b >= 0) & (b < width)
        return np.where(inside, numpy_shift(a, np.where(inside, b, np.zeros_like(b))), np.zeros_like(a))

    return shift


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if _is_float(a.dtype):
        return np.power(a, b.astype(a.dtype) if b.dtype.kind == "V" else b).astype(a.dtype)
    if _is_float(b.dtype):
        return saturating_cast(np.power(a.astype(np.float64), b.astype(np.float64)), a.dtype)
    if a.dtype.kind == "V" or b.dtype.kind == "V":
        return _power(a.astype(np.int64), b.astype(np.int64)).astype(a.dtype)
    result, base, exponent = (
        np.ones_like(a + b.astype(a.dtype)),
        a + np.zeros_like(b, a.dtype),
        b + np.zeros_like(a, b.dtype),
    )
    negative = exponent < 0
    with np.errstate(all="ignore"):
        reciprocal = np.where(base == 1, 1, np.where(base == -1, np.where(exponent % 2, -1, 1), 0)).astype(
            a.dtype
        )
        remaining = np.where(negative, 0, exponent)
        while np.any(remaining):
            result = np.where(remaining & 1, result * base, result)
            base, remaining = base * base, remaining >> 1
    return np.where(negative, reciprocal, result).astype(a.dtype)


def _extreme(numpy: np.ufunc) -> Callable[..., np.ndarray]:
    """The extreme of two as numpy has it, but of equal ones always the first."""
    return lambda a, b: np.where(np.equal(a, b), a, numpy(a, b))


#: Every scalar operation. min and max give NaN when either argument is NaN, and the first of two zeros.
#: Integer division and remainder by zero give what division by one gives: rules guard them with `check`.
#: Shifts by the width or more give 0.
OPERATIONS: dict[str, Operation] = {
    "neg": Operation(1, np.negative),
    "abs": Operation(1, np.abs),
    "sign": Operation(1, np.sign),
    "exp": Operation(1, np.exp),
    "expm1": Operation(1, np.expm1),
    "log": Operation(1, np.log),
    "log1p": Operation(1, np.log1p),
    "sqrt": Operation(1, np.sqrt),
    "floor": Operation(1, np.floor),
    "ceil": Operation(1, np.ceil),
    "trunc": Operation(1, np.trunc),
    "round": Operation(1, np.rint),  # half to even
    "sin": Operation(1, np.sin),
    "cos": Operation(1, np.cos),
    "tan": Operation(1, np.tan),
    "asin": Operation(1, np.arcsin),
    "acos": Operation(1, np.arccos),
    "atan": Operation(1, np.arctan),
    "sinh": Operation(1, np.sinh),
    "cosh": Operation(1, np.cosh),
    "tanh": Operation(1, np.tanh),
    "asinh": Operation(1, np.arcsinh),
    "acosh": Operation(1, np.arccosh),
    "atanh": Operation(1, np.arctanh),
    "erf": Operation(1, _erf),
    "not": Operation(1, lambda a: ~a),  # bitwise, logical for bool
    "isnan": Operation(1, np.isnan, "bool"),
    "isinf": Operation(1, np.isinf, "bool"),
    "add": Operation(2, np.add),
    "sub": Operation(2, np.subtract),
    "mul": Operation(2, np.multiply),
    "div": Operation(2, _integer_or(_truncated_quotient, np.divide)),  # integers: toward zero
    "mod": Operation(2, _integer_or(_floor_mod, np.mod)),  # the divisor's sign
    "fmod": Operation(2, _integer_or(_truncated_mod, np.fmod)),  # the dividend's sign
    "pow": Operation(2, _power),
    "min": Operation(2, _extreme(np.minimum)),
    "max": Operation(2, _extreme(np.maximum)),
    "and": Operation(2, np.bitwise_and),
    "or": Operation(2, np.bitwise_or),
    "xor": Operation(2, np.bitwise_xor),
    "shl": Operation(2, _shift(np.left_shift)),
    "shr": Operation(2, _shift(np.right_shift)),
    "eq": Operation(2, np.equal, "bool"),
    "ne": Operation(2, np.not_equal, "bool"),
    "lt": Operation(2, np.less, "bool"),
    "le": Operation(2, np.less_equal, "bool"),
    "gt": Operation(2, np.greater, "bool"),
    "ge": Operation(2, np.greater_equal, "bool"),
    "select": Operation(3, np.where),
    "fma": Operation(3, _fused),  # a * b + c of floats; rounded once where the target can
}

COMMUTATIVE = ("add", "mul", "min", "max", "and", "or", "xor")

#: Functions that targets compute by series, in many instructions: they take longer than an operand to read.
SERIES = (
    *("exp", "expm1", "log", "log1p", "pow", "erf", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
)
#: Operations far dearer than an addition: besides those what targets compute in one long instruction.
DEAR = (*SERIES, "sqrt", "div", "mod", "fmod")

#: Leaves and the operations that carry a value of their own:
#: `input` k-th operand · `const` · `index` the element's index along an output axis · `size` a Dimension ·
#: `cast` · `bitcast` · `lookup` x's bits are the number of an element of the table `value` ·
#: `check` (condition, x): x, and the run fails with error `value` where the condition is false.

REMEMBERED = 128  # nodes of which an expression keeps the order: two bodies, as one is put into another
_interned: weakref.WeakValueDictionary[tuple, Expr] = weakref.WeakValueDictionary()


class Expr:
    """One node: operation name, element type, arguments, and the value that leaves, casts and checks
    carry."""

    __slots__ = ("__weakref__", "args", "below", "count", "dtype", "op", "value")

    op: str
    dtype: str
    args: tuple[Expr, ...]
    value: Any  # as the operation has it
    count: int  # an upper bound of the instructions, shared parts counted once a use, capped
    below: tuple[Expr, ...] | None  # what comes before it in `topological`, where that is little

    def __init__(self, *_: object):
        raise TypeError("Expr is built with input_(), const() and operators")

    # Operators: plain numbers take the other side's type.
    def _with(self, op: str, other: Expr | Scalar, swap: bool = False) -> Expr:
        other = other if isinstance(other, Expr) else const(other, self.dtype)
        return apply(op, other, self) if swap else apply(op, self, other)

    def __add__(self, o: Expr | Scalar) -> Expr:
        return self._with("add", o)

    def __radd__(self, o: Expr | Scalar) -> Expr:
        return self._with("add", o, True)

    def __sub__(self, o: Expr | Scalar) -> Expr:
        return self._with("sub", o)

    def __rsub__(self, o: Expr | Scalar) -> Expr:
        return self._with("sub", o, True)

    def __mul__(self, o: Expr | Scalar) -> Expr:
        return self._with("mul", o)

    def __rmul__(self, o: Expr | Scalar) -> Expr:
        return self._with("mul", o, True)

    def __truediv__(self, o: Expr | Scalar) -> Expr:
        return self._with("div", o)

    def __rtruediv__(self, o: Expr | Scalar) -> Expr:
        return self._with("div", o, True)

    def __mod__(self, o: Expr | Scalar) -> Expr:
        return self._with("mod", o)

    def __pow__(self, o: Expr | Scalar) -> Expr:
        return self._with("pow", o)

    def __and__(self, o: Expr | Scalar) -> Expr:
        return self._with("and", o)

    def __or__(self, o: Expr | Scalar) -> Expr:
        return self._with("or", o)

    def __xor__(self, o: Expr | Scalar) -> Expr:
        return self._with("xor", o)

    def __lshift__(self, o: Expr | Scalar) -> Expr:
        return self._with("shl", o)

    def __rshift__(self, o: Expr | Scalar) -> Expr:
        return self._with("shr", o)

    def __lt__(self, o: Expr | Scalar) -> Expr:
        return self._with("lt", o)

    def __le__(self, o: Expr | Scalar) -> Expr:
        return self._with("le", o)

    def __gt__(self, o: Expr | Scalar) -> Expr:
        return self._with("gt", o)

    def __ge__(self, o: Expr | Scalar) -> Expr:
        return self._with("ge", o)

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __invert__(self) -> Expr:
        return apply("not", self)

    def __abs__(self) -> Expr:
        return apply("abs", self)

    def equals(self, o: Expr | Scalar) -> Expr:
        """Elementwise ==; the operator itself compares identity."""
        return self._with("eq", o)

    def minimum(self, o: Expr | Scalar) -> Expr:
        return self._with("min", o)

    def maximum(self, o: Expr | Scalar) -> Expr:
        return self._with("max", o)

    def clip(self, low: Expr | Scalar, high: Expr | Scalar) -> Expr:
        return self.maximum(low).minimum(high)

    def cast(self, dtype: str) -> Expr:
        return cast(self, dtype)

    def __repr__(self) -> str:
        from .text import expr_text

        return expr_text(self)


def _make(op: str, dtype: str, args: tuple[Expr, ...] = (), value: Any = None) -> Expr:
    key = (op, dtype, repr(value) if isinstance(value, float) else value, type(value), *map(id, args))
    found = _interned.get(key)
    if found is None:
        found = object.__new__(Expr)
        found.op, found.dtype, found.args, found.value = op, dtype, args, value
        found.count = min(1 << 30, sum(a.count for a in args) + (op not in ("input", "const")))
        found.below = _below(args)
        _interned[key] = found
    return found


def _below(args: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """Every node under one with these arguments, arguments before users; None where they are many."""
    known: list[Expr] = []
    for argument in args:
        if argument.below is None:
            return None
        known += (*argument.below, argument)
    below = tuple(dict.fromkeys(known))
    return below if len(below) < REMEMBERED else None


def input_(index: int, dtype: str) -> Expr:
    """The element of the index-th operand."""
    return _make("input", dtype, (), index)


def const(value: Scalar, dtype: str) -> Expr:
    """A constant of that type; it is rounded to it, and integers must fit."""
    if dtypes.is_float(dtype):
        with np.errstate(all="ignore"):
            value = float(saturating_cast(np.asarray(value, np.float64), dtypes.numpy_dtype(dtype)))
    elif dtype == "bool":
        value = bool(value)
    elif dtypes.is_integer(dtype):
        value, (low, high) = int(value), dtypes.integer_range(dtype)
        if not low <= value <= high:
            raise ValueError(f"{value} is no {dtype}")
    else:
        raise TypeError(f"a scalar expression has no {dtype} constants")
    return _make("const", dtype, (), value)


def index(axis: int) -> Expr:
    """The int64 index of the element along an axis of the output, counted from 0."""
    return _make("index", "int64", (), axis)


def size(dimension: Dimension) -> Expr:
    """A dimension as an int64 scalar."""
    return const(dimension, "int64") if isinstance(dimension, int) else _make("size", "int64", (), dimension)


def apply(op: str, *args: Expr) -> Expr:
    """The operation on arguments of one type (select's condition is bool, pow's and shift's second may
    differ)."""
    operation = OPERATIONS[op]
    if len(args) != operation.arity:
        raise TypeError(f"{op} takes {operation.arity} arguments, not {len(args)}")
    same = args[1:] if op == "select" else args[:1] if op == "pow" else args
    if any(a.dtype != same[0].dtype for a in same) or (op == "select" and args[0].dtype != "bool"):
        raise TypeError(f"{op} does not take {', '.join(a.dtype for a in args)}")
    result = operation.result or (args[0].dtype if op == "pow" else args[-1].dtype)
    simpler = _simplified(op, args)
    if simpler is not None:
        return simpler
    if all(a.op == "const" for a in args):
        arrays = [np.asarray(a.value, dtypes.numpy_dtype(a.dtype)) for a in args]
        with np.errstate(all="ignore"):
            value = np.asarray(operation.numpy(*arrays)).astype(dtypes.numpy_dtype(result))
        return const(value.item() if result not in dtypes.SMALL_FLOATS else float(value), result)
    return _make(op, result, args)


def _simplified(op: str, args: Sequence[Expr]) -> Expr | None:
    """Identities that hold for every value, NaN, infinities and -0 included."""
    if op == "select":
        if args[0].op == "const":
            return args[1] if args[0].value else args[2]
        return args[1] if args[1] is args[2] else None
    if len(args) == 2 and _neutral(op, args[1], args[0].dtype):
        return args[0]
    if op in COMMUTATIVE and _neutral(op, args[0], args[1].dtype):
        return args[1]
    if op in ("and", "or", "min", "max") and args[0] is args[1]:
        return args[0]
    if op in ("min", "max") and args[1].op != "const" and _is_bound(args[0]):
        return apply(op, args[1], args[0])
    if op in ("neg", "not") and args[0].op == op:
        return args[0].args[0]
    return None


def _is_bound(x: Expr) -> bool:
    """Whether x is a float that no other float equals: none of two zeros, and no NaN."""
    return x.op == "const" and dtypes.is_float(x.dtype) and x.value == x.value and x.value != 0


def _neutral(op: str, number: Expr, dtype: str) -> bool:
    """Whether x op number is x for every x of that type."""
    if number.op != "const" or number.dtype != dtype:
        return False
    value = number.value
    match op:
        case "mul" | "div" | "pow":
            return value == 1
        case "add":
            return repr(value) in ("0", "-0.0")  # -0.0 + 0.0 is 0.0
        case "sub":
            return repr(value) in ("0", "0.0")
        case "and":
            return value is True
        case "or" | "xor":
            return value is False
        case "max":
            return value == -math.inf
        case "min":
            return value == math.inf
    return False


#: Casts that, there and back, leave numbers as they are.
_WITHOUT_LOSS = {(half, wide) for half in dtypes.HALVES for wide in ("float32", "float64")}


def cast(x: Expr, dtype: str) -> Expr:
    """x as another type. Float to integer truncates toward zero and saturates (NaN gives 0); integers
    wrap."""
    if x.dtype == dtype:
        return x
    if x.op == "cast" and x.args[0].dtype == dtype and (dtype, x.dtype) in _WITHOUT_LOSS:
        return x.args[0]
    if x.op == "const":
        array = np.asarray(x.value, dtypes.numpy_dtype(x.dtype))
        value = saturating_cast(array, dtypes.numpy_dtype(dtype))
        return const(
            float(value) if dtypes.is_float(dtype) else value.item() if dtype == "bool" else int(value), dtype
        )
    return _make("cast", dtype, (x,))


def bitcast(x: Expr, dtype: str) -> Expr:
    """x's bits as another type of the same width."""
    return x if x.dtype == dtype else _make("bitcast", dtype, (x,))


def lookup(x: Expr, dtype: str, table: bytes) -> Expr:
    """The element of that type that a table has for x, which has at most 8 bits: they are its number. The
    table holds 2 ** bits elements as they are in memory."""
    count = 1 << dtypes.bits(x.dtype)
    if count > 256 or x.dtype == "bool" or len(table) != count * dtypes.itemsize(dtype):
        raise TypeError(f"{len(table)} bytes are no table of {dtype} for {x.dtype}")
    return _make("lookup", dtype, (x,), table)


class Failure(NamedTuple):
    """What a failed check is: the name of a status of onnxc.h, and a sentence with `{}` for the element, in
    place of the status's own."""

    code: str
    says: str = ""


def check(condition: Expr, x: Expr, code: str, says: str = "") -> Expr:
    """x; the run fails with a `Failure` where the condition is false."""
    if condition.op == "const" and condition.value:
        return x
    return _make("check", x.dtype, (condition, x), Failure(code, says))


def saturating_cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """array as dtype without undefined behaviour: floats saturate to integers, NaN becomes 0."""
    if _is_float(array.dtype) and dtypes.is_integer(dtypes.from_numpy(dtype)):
        low, high = (
            np.asarray(limit).astype(dtype) for limit in dtypes.integer_range(dtypes.from_numpy(dtype))
        )
        wide = array.astype(np.float64)
        wide = np.where(np.isnan(wide), 0.0, np.trunc(wide))
        above, below = wide >= high.astype(np.float64), wide <= low.astype(np.float64)
        return np.where(above, high, np.where(below, low, np.where(above | below, 0.0, wide).astype(dtype)))
    if dtype.kind == "b":
        if array.dtype == dtypes.numpy_dtype("float8e8m0"):  # whose least bits are no 0
            array = array.astype(np.float32)
        return array != np.zeros((), array.dtype)
    with np.errstate(all="ignore"):
        name = dtypes.from_numpy(array.dtype)
        if name in dtypes.SMALL_FLOATS or dtypes.bits(name) < 8:  # not all can be each other's in numpy
            array = array.astype(np.int8 if dtypes.is_integer(name) else np.float32)
        elif array.dtype.itemsize >= 4 and dtypes.from_numpy(dtype) in _THROUGH_FLOAT32:
            array = _to_be_rounded(array)
        return array.astype(dtype)


#: What ml_dtypes makes of wider types by rounding them to float32 first.
_THROUGH_FLOAT32 = ("bfloat16", *dtypes.SMALL_FLOATS)


def _to_be_rounded(array: np.ndarray) -> np.ndarray:
    """array as float32, so that rounding it once more gives what rounding once would: what is inexact gets an
    odd last bit (round to odd)."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:  # float64 has 53 bits
        last = np.asarray((1 << 11) - 1, array.dtype)
        odd = (array | ((array & last) + last)) & ~last
        array = np.where(np.abs(array.astype(np.float64)) < 2.0**53, array, odd)
    exact = array.astype(np.float64)
    near = exact.astype(np.float32)
    bits, back = near.view(np.uint32), near.astype(np.float64)
    down = bits - (np.abs(back) > np.abs(exact))
    return np.where((back == exact) | np.isnan(exact), bits, down | 1).astype(np.uint32).view(np.float32)


# Walks -------------------------------------------------------------------------------------------


def topological(*roots: Expr) -> list[Expr]:
    """Every node once, arguments before users."""
    if len(roots) == 1 and roots[0].below is not None:
        return [*roots[0].below, roots[0]]
    order: list[Expr] = []
    seen: set[int] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args) if id(a) not in seen)
    return order


def instructions(*roots: Expr) -> int:
    """How many operations the expressions take, shared parts once."""
    return sum(node.op not in ("input", "const") for node in topological(*roots))


def fits(root: Expr, limit: int) -> bool:
    """Whether the expression takes no more operations than that."""
    return root.count <= limit or instructions(root) <= limit


def contains(root: Expr, *operations: str) -> bool:
    """Whether any of the operations is part of root."""
    return any(node.op in operations for node in topological(root))


def clip_of(x: Expr) -> tuple[Expr, float, float] | None:
    """(what is clipped, the bounds) where x is a clip to constants."""
    if x.op not in ("min", "max") or x.args[0].op not in ("min", "max") or x.op == x.args[0].op:
        return None
    upper, lower = (x, x.args[0]) if x.op == "min" else (x.args[0], x)
    if upper.args[1].op != "const" or lower.args[1].op != "const":
        return None
    return x.args[0].args[0], lower.args[1].value, upper.args[1].value


def inputs(*roots: Expr) -> list[int]:
    """The operands that are used, ascending."""
    return sorted({node.value for node in topological(*roots) if node.op == "input"})


def rewrite(root: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """root with every node for which `leaf` gives a replacement replaced; users are rebuilt."""
    done: dict[Expr, Expr] = {}
    for node in topological(root):
        new = leaf(node)
        if new is None:
            new = rebuild(node, tuple([done[a] for a in node.args])) if node.args else node
        done[node] = new
    return done[root]


def replaced(root: Expr, part: Expr, other: Expr) -> Expr:
    """root with another expression in the place of a part."""
    return rewrite(root, lambda node: other if node is part else None)


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """node with other arguments, simplified again."""
    if args == node.args:
        return node
    match node.op:
        case "cast":
            return cast(args[0], node.dtype)
        case "bitcast":
            return bitcast(args[0], node.dtype)
        case "lookup":
            return lookup(args[0], node.dtype, node.value)
        case "check":
            return check(args[0], args[1], *node.value)
    return apply(node.op, *args)


def substitute(root: Expr, operands: Mapping[int, Expr]) -> Expr:
    """root with operands replaced: composition, the heart of fusion."""
    leaves = [node for node in topological(root) if node.op == "input"]
    if all(operands.get(leaf.value, leaf) is leaf for leaf in leaves):
        return root
    return rewrite(root, lambda node: operands.get(node.value) if node.op == "input" else None)


def evaluate(
    root: Expr,
    operands: Sequence[np.ndarray],
    shape: Sequence[int],
    env: Callable[[Dimension], int],
    failed: Callable[[str], None],
) -> np.ndarray:
    """root over whole arrays that broadcast to shape. `env` evaluates sizes, `failed` hears the code of a
    failed check."""
    done: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in topological(root):
            args = [done[id(a)] for a in node.args]
            target = dtypes.numpy_dtype(node.dtype)
            match node.op:
                case "input":
                    value = operands[node.value]
                case "const":
                    value = np.asarray(node.value, target)
                case "size":
                    value = np.asarray(env(node.value), np.int64)
                case "index":
                    view = [1] * len(shape)
                    view[node.value] = shape[node.value]
                    value = np.arange(shape[node.value], dtype=np.int64).reshape(view)
                case "cast":
                    value = saturating_cast(args[0], target)
                case "bitcast":
                    value = args[0].view(target)
                case "lookup":
                    codes = args[0].view(np.uint8) & ((1 << dtypes.bits(node.args[0].dtype)) - 1)
                    value = np.frombuffer(node.value, np.uint8).view(target)[codes]
                case "check":
                    condition, value = args
                    if not np.all(np.broadcast_to(condition, shape)):
                        failed(node.value.code)
                case _:
                    value = np.asarray(OPERATIONS[node.op].numpy(*args)).astype(target, copy=False)
            done[id(node)] = value
    return np.broadcast_to(done[id(root)], tuple(shape))


@overload
def where(condition: Expr, then: Expr, otherwise: Expr | Scalar) -> Expr: ...
@overload
def where(condition: Expr, then: Scalar, otherwise: Expr) -> Expr: ...
def where(condition: Expr, then: Expr | Scalar, otherwise: Expr | Scalar) -> Expr:
    """then where the condition holds, else otherwise; one of the two gives a plain number its type."""
    if not isinstance(then, Expr):
        if not isinstance(otherwise, Expr):
            raise TypeError("one of two values gives the type")
        then = const(then, otherwise.dtype)
    if not isinstance(otherwise, Expr):
        otherwise = const(otherwise, then.dtype)
    return apply("select", condition, then, otherwise)


def _function(name: str) -> Callable[..., Expr]:
    def function(*args: Expr) -> Expr:
        return apply(name, *args)

    function.__name__, function.__doc__ = name, f"The operation `{name}` of OPERATIONS."
    return function


exp, log, sqrt, erf, tanh = map(_function, ("exp", "log", "sqrt", "erf", "tanh"))
expm1, log1p = map(_function, ("expm1", "log1p"))
floor, ceil, round_ = map(_function, ("floor", "ceil", "round"))
isnan, isinf, sign, power = map(_function, ("isnan", "isinf", "sign", "pow"))


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x))"""
    return 1 / (1 + exp(-x))


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow, and as exact where that vanishes."""
    return x.maximum(0) + log1p(exp(-abs(x)))


def sum_of(terms: Iterable[Expr]) -> Expr:
    """((a + b) + c) + ..."""
    total, *rest = terms
    for term in rest:
        total = total + term
    return total
