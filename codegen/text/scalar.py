"""Scalar expressions as vector code: how a Map's body, and every kernel's epilogue, becomes instructions.

`lower` walks an `Expr` once, arguments before users, and emits each node for `lanes` elements at a time (1:
scalar code). What a node means is said by `expr.OPERATIONS`; this is the same in LLVM's words. Values are
passed in the type that the expression names (bool as i1); inside, narrow floats stay float32 between their
roundings (`conversion.py`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from ...ir import dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr, clip_of, topological
from ...ir.ranges import magnitude
from ...records import dataclass
from ...target import Ability, Target
from .. import abi
from . import exponentials, powers, vector_math
from .conversion import (
    NARROW,
    SCALES,
    WHOLE,
    bounded,
    cast,
    computed_in,
    converts_bfloat16,
    from_computed,
    quantised,
    rounded,
    stored,
    to_be_rounded,
    to_computed,
    wrapped,
)
from .emitter import Function, Reg, scalar_type, splat, vector_type
from .lookups import lookup
from .quotients import quotient
from .vectors import Vectors

#: Operations whose result is a value of the type whenever the operands are: they need no rounding.
_EXACT = frozenset(
    ("neg", "abs", "sign", "min", "max", "select", "floor", "ceil", "trunc", "round", "fmod", "check")
)

#: Operations that are one instruction, whose NaN is that of an operand or the processor's own.
_ARITHMETIC = frozenset(("add", "sub", "mul", "div"))

#: Types whose NaN have more bits than those of bfloat16.
OTHER_NAN = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Checks:
    """What a failed `check` does: the function, which returns i32, stores the offending element as an i64, or
    a float as a double, at `scratch`, behind it the address of a sentence, and returns the error's code at
    once (with `abi.OF_DOUBLE` and `abi.SAYS` where it stored these), so that the first failing element in the
    order of execution is the one reported. Nobody needs to test anything afterwards. `active`: the lanes that
    count, where a tail computes idle ones."""

    f: Function
    scratch: str = "%scratch"
    active: str | None = None

    def require(self, v: Vectors, condition: str, x: str, code: str, says: str = "") -> None:
        """Fails with error `code`, x (of v's type) and the sentence in the first active lane where the
        condition is false."""
        f = self.f
        failed = f.invert(Reg(condition, v.mask))
        if self.active is not None:
            failed = v.both(failed, self.active)
        wrong, right = f.fresh_label("wrong"), f.fresh_label("right")
        f.branch_if(v.any(failed), wrong, right)
        f.label(wrong)
        told = v.of("float64" if v.floating else "int64")
        value = cast(v, told.dtype, x)
        if v.lanes > 1:
            word = f"i{v.lanes}"
            count = f.text.declare(f"llvm.cttz.{word}", word, [word, "i1"])
            lane = f.call(word, count, f.cast("bitcast", failed, word), "i1 true")
            value = f.extract(value, lane, told.type)
        f.store(scalar_type(told.dtype), value, self.scratch, 8)
        status = abi.ERRORS[code] + (abi.OF_DOUBLE if v.floating else 0)
        f.statement(f"ret i32 {status + say(f, says, self.scratch)}")
        f.label(right)


def say(f: Function, says: str, scratch: str) -> int:
    """Stores the address of a sentence, if there is one, behind its number; what is added to the status."""
    if not says:
        return 0
    text = says.encode() + b"\0"
    name = f"says_{hashlib.blake2s(text).hexdigest()[:16]}"
    f.store("ptr", f.text.table("i8", list(map(str, text)), name), f.offset(scratch, 8), 8)
    return abi.SAYS


def lower(
    f: Function,
    roots: Sequence[Expr],
    operand: Callable[[int], str],
    lanes: int,
    size: Callable[[Dimension], str] | None = None,
    index: Callable[[int], str] | None = None,
    fail: Checks | None = None,
    plain: bool = False,
    bounds: Mapping[int, float] = MappingProxyType({}),
) -> list[str]:
    """The values of the expressions for `lanes` elements, in the roots' own types (`scalar_type`; bool: i1).

    `operand(i)` gives the i-th input in its type, or as that is computed, asked for once; `size(d)` a
    dimension as an i64; `index(axis)` the elements' indices along an axis as `lanes` i64. An expression that
    holds a check needs `fail`, one with sizes or indices those functions: a missing one is a TypeError, as is
    an operation that the type does not have. `plain`: all NaN among the operands are those that arithmetic
    gives of bfloat16, which they are where no operand is a wider float. `bounds`: what no absolute value
    of some operands exceeds, which are not NaN.
    """
    leaves = [n for n in topological(*roots) if n.op in ("input", "bitcast", "lookup")]
    plain = plain or not any(n.op in ("bitcast", "lookup") or n.dtype in OTHER_NAN for n in leaves)
    code = _Lowering(f, lanes, operand, size, index, fail, plain, bounds)
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            code.add(node)
        elif id(node) not in code.values:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(code.arguments(node)))
    return [code.own(root) for root in roots]


def free_numbers(root: Expr, target: Target) -> list[tuple[Expr, int]]:
    """The float32 numbers, each as a node and which of its arguments, that might be operands with the same
    instructions: those of additions and products and bounds, where nothing more than that is made of them."""
    found: list[tuple[Expr, int]] = []
    bounds: set[Expr] = set()  # of what is cast, by which the cast is told apart
    reached, pending = {root}, [root]
    while pending:
        node = pending.pop()
        step = _quantised(node, target) or _function(node)
        if node.op == "cast" and clip_of(node.args[0]) is not None:
            bounds |= {node.args[0], node.args[0].args[0]}
        places = _FREE.get(node.op, ()) if step is None and node.dtype == "float32" else ()
        if node not in bounds:
            found += [(node, k) for k in places if _is_number(node.args[k])]
        below = node.args if step is None else (step.x,)
        pending += [a for a in below if a not in reached]
        reached.update(below)
    return found


#: Operations whose arguments, by their places, may be numbers or operands.
_FREE = {"add": (0, 1), "sub": (0, 1), "mul": (0, 1), "min": (0, 1), "max": (0, 1), "fma": (0, 1, 2)}

Given = TypeVar("Given")  # what the caller of `lower` has to give


class _Lowering:
    """The values so far: as computed, and in the type's own form where that differs and exists already."""

    def __init__(
        self,
        f: Function,
        lanes: int,
        operand: Callable[[int], str],
        size: Callable[[Dimension], str] | None,
        index: Callable[[int], str] | None,
        fail: Checks | None,
        plain: bool,
        bounds: Mapping[int, float],
    ):
        self.f, self.lanes, self.operand = f, lanes, operand
        self.size, self.index, self.fail, self.plain = size, index, fail, plain
        self.bounds = bounds
        self.values: dict[int, str] = {}
        # LLVM keeps a bfloat that lives on into another block as a float and calls a library to round it
        # again, so these are used within their block only.
        self.narrow: dict[tuple[int, str], str] = {}
        self._steps: dict[Expr, _Function | _Quantised] = {}  # what is computed in one step

    def vectors(self, dtype: str) -> Vectors:
        return Vectors(self.f, dtype, self.lanes)

    def own(self, node: Expr) -> str:
        """The node's value in the form of its type."""
        if node.dtype not in NARROW:
            return self.values[id(node)]
        key = id(node), self.f.block
        if key not in self.narrow:
            self.narrow[key] = stored(self.vectors(node.dtype), self.values[id(node)])
        return self.narrow[key]

    def add(self, node: Expr) -> None:
        if id(node) in self.values:
            return
        args = [self.values[id(a)] for a in self.arguments(node)]
        if node not in self._steps:
            value = self._half(node) or self._value(node, args)
        elif isinstance(step := self._steps[node], _Quantised):
            v = self.vectors(node.dtype)
            quiet, small = step.x.op in _ARITHMETIC, magnitude(step.x, self.bounds) <= WHOLE * step.scale
            value = quantised(v, args[0], step.scale, step.zero, step.low, step.high, quiet, small)
        else:
            value = step.emit(self.vectors(node.dtype), args[0])
        self.values[id(node)] = value

    def arguments(self, node: Expr) -> tuple[Expr, ...]:
        """What a node is computed from: its arguments, but x where it is one step from that."""
        step: _Function | _Quantised | None = _quantised(node, self.f.target) or _function(node)
        if step is None:
            return node.args
        self._steps[node] = step
        return (step.x,)

    def _half(self, node: Expr) -> str | None:
        """Arithmetic of float16 where the target has it: to the bits that float32, rounded, gives."""
        v = self.vectors(node.dtype)
        if node.dtype != "float16" or node.op not in ("add", "sub", "mul"):
            return None
        if Ability.HALF_ARITHMETIC not in self.f.target.abilities:
            return None
        a, b = map(self.own, node.args)
        value = self.f.binary(f"f{node.op}", a, b, v.type)
        self.narrow[id(node), self.f.block] = value
        return to_computed(v, value)

    def _value(self, node: Expr, args: list[str]) -> str:
        """The value of a node as computed, rounded to its type, given those of its arguments. What exists in
        the type's own narrow form, too, is remembered in `narrow`."""
        v, kind = self.vectors(node.dtype), computed_in(node.dtype)
        match node.op:
            case "input":
                value = self.operand(node.value)
                if node.dtype in NARROW and getattr(value, "type", "") == v.of(kind).type:
                    return value
                if node.dtype in NARROW:
                    self.narrow[id(node), self.f.block] = value
                return wrapped(v, to_computed(v, value))
            case "const":
                return splat(node.value, kind, self.lanes)
            case "size":
                return v.broadcast(_given(self.size, "sizes")(node.value))
            case "index":
                return _given(self.index, "indices")(node.value)
            case "cast":
                (x,) = node.args
                within = dtypes.is_integer(node.dtype) and _within(x, *dtypes.integer_range(node.dtype))
                if node.dtype == "bfloat16":
                    single = to_be_rounded(self.vectors(x.dtype), node.dtype, args[0])
                    return self._rounded(node, single, self.plain)
                return cast(self.vectors(x.dtype), node.dtype, args[0], within)
            case "bitcast":
                source, value = self.vectors(node.args[0].dtype), self.own(node.args[0])
                if "bool" in (source.dtype, v.dtype):
                    return cast(source, v.dtype, value)
                if source.type != v.type:
                    value = self.f.cast("bitcast", value, v.type, source.type)
                return to_computed(v, value)
            case "lookup":
                return self._looked_up(v, node)
            case "check":
                _given(self.fail, "checks").require(v.of(kind), args[0], args[1], *node.value)
                return args[1]
        argument = node.args[0 if node.op == "pow" else -1].dtype
        w = self.vectors(computed_in(argument))
        if node.op == "pow":
            value = _power(w, node, args)
        elif w.dtype == "bool" and node.op in _BOOLEAN:
            value = _BOOLEAN[node.op](w, *args)
        elif w.floating:
            value = _on_floats(w, node, args, self._is_number)
        else:
            value = _on_integers(w, node, args)
        exact = node.dtype == "bool" or (node.op in _EXACT and node.dtype in NARROW)
        return value if exact else self._rounded(node, value, self.plain or node.op in _ARITHMETIC)

    def _is_number(self, node: Expr) -> bool:
        return _is_number(node) or (node.op == "input" and node.value in self.bounds)

    def _looked_up(self, v: Vectors, node: Expr) -> str:
        """What a table has for the bits of the argument."""
        (x,) = node.args
        codes = self.f.cast("bitcast", self.own(x), vector_type("i8", self.lanes), self.vectors(x.dtype).type)
        value = lookup(v, codes, node.value)
        if node.dtype in NARROW:
            self.narrow[id(node), self.f.block] = value
        return to_computed(v, value)

    def _rounded(self, node: Expr, value: str, plain: bool) -> str:
        """A value rounded, as computed; where an instruction makes the type's own form, that is made too, and
        LLVM drops which of the two nobody reads."""
        v = self.vectors(node.dtype)
        if node.dtype != "bfloat16" or not converts_bfloat16(v):
            return rounded(v, value, plain)
        narrow = from_computed(v, value)
        self.narrow[id(node), self.f.block] = narrow
        return rounded(v, value, plain) if plain else to_computed(v, narrow)


def _given(what: Given | None, name: str) -> Given:
    if what is None:
        raise TypeError(f"an expression with {name} was lowered where there are none")
    return what


def _within(x: Expr, low: int, high: int) -> bool:
    """Whether x is a clip to constants inside [low, high]."""
    clip = clip_of(x)
    return clip is not None and all(low <= bound <= high for bound in clip[1:])


# Operations --------------------------------------------------------------------------------------


def _is_number(node: Expr) -> bool:
    return node.op == "const" and node.value == node.value


def _on_floats(v: Vectors, node: Expr, args: list[str], is_number: Callable[[Expr], bool]) -> str:
    match node.op:
        case "add" | "sub" | "mul" | "neg" | "abs" | "select" | "fma":
            return getattr(v, node.op)(*args)
        case "div":
            return quotient(v, args[0], node.args[1], args[1])
        case "min" | "max":
            extreme = v.minimum if node.op == "min" else v.maximum
            return extreme(args[0], args[1], is_number(node.args[1]))
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return v.compare(node.op, *args)
        case "isnan":
            return v.is_nan(args[0])
        case "isinf":
            return v.compare("eq", v.abs(args[0]), v.constant(float("inf")))
        case "sign":
            zero = v.constant(0)
            nonzero = v.copysign(v.constant(1), args[0])
            sign = v.select(v.compare("eq", args[0], zero), zero, nonzero)
            return v.select(v.is_nan(args[0]), args[0], sign)
        case "floor" | "ceil" | "trunc" | "sqrt":
            return v.unary(node.op, args[0])
        case "round":
            return v.unary("roundeven", args[0])
    return vector_math.function(v, node.op, *args)


@dataclass(frozen=True)
class _Function:
    """What several operations on x are, which `emit` computes together."""

    x: Expr
    emit: Callable[[Vectors, str], str]


def _function(node: Expr) -> _Function | None:
    x = _sigmoid_argument(node)
    if x is not None:
        return _Function(x, exponentials.sigmoid)
    x = _tanh_beside_one(node)
    if x is not None:
        return _Function(x, exponentials.one_and_tanh)
    x = _softmax_argument(node)
    return _bounded(node) if x is None else _Function(x, exponentials.softmax_exp)


def _bounded(node: Expr) -> _Function | None:
    """cast(clip(x, 0, high)) to an integer that holds both: what bounds NaN makes it 0."""
    if node.op != "cast" or not dtypes.is_integer(node.dtype) or dtypes.bits(node.dtype) > 16:
        return None
    x, least, greatest = node.args[0], *dtypes.integer_range(node.dtype)
    clip = clip_of(x) if x.dtype in ("float32", "float64") and x.op == "min" else None
    if clip is None or clip[1] != 0 or not least <= clip[2] <= greatest:
        return None
    inner, _, high = clip
    return _Function(inner, partial(bounded, source=x.dtype, high=high))


def softmax_exp(x: Expr) -> Expr:
    """exp(x) of float32 or float64, 0 where x is below `exponentials.FAR_BELOW`."""
    return expr.where(x < exponentials.FAR_BELOW[x.dtype], 0, expr.exp(x))


def _softmax_argument(node: Expr) -> Expr | None:
    """x where node is `softmax_exp(x)`."""
    found = node.op == "select" and node.dtype in exponentials.FAR_BELOW and node.args[2].op == "exp"
    x = node.args[2].args[0] if found else None
    return x if x is not None and softmax_exp(x) is node else None


def _sigmoid_argument(node: Expr) -> Expr | None:
    """x where node is 1 / (1 + exp(-x)), the form in which `expr.sigmoid` and importers write it."""
    if node.op != "div" or node.dtype not in ("float32", "float64") or not _is_one(node.args[0]):
        return None
    power = _beside_one(node.args[1])
    if power is None or power.op != "exp" or power.args[0].op != "neg":
        return None
    return power.args[0].args[0]


def _tanh_beside_one(node: Expr) -> Expr | None:
    """x where node is 1 + tanh(x) of float32, as in approximations of GELU."""
    function = _beside_one(node) if node.dtype == "float32" else None
    return function.args[0] if function is not None and function.op == "tanh" else None


def _beside_one(node: Expr) -> Expr | None:
    """What is added to 1."""
    if node.op != "add":
        return None
    left, right = node.args
    return right if _is_one(left) else left if _is_one(right) else None


def _is_one(node: Expr) -> bool:
    return node.op == "const" and node.value == 1


@dataclass(frozen=True)
class _Quantised:
    """round(x / scale) + zero, clipped."""

    x: Expr
    scale: float
    zero: int
    low: int
    high: int


def _quantised(node: Expr, target: Target) -> _Quantised | None:
    """What node is where it rounds a float32, or its quotient by a constant scale, to an integer,
    cast(clip(round(x / scale) + zero)), and `quantised` can."""
    kinds = dtypes.is_integer(node.dtype) and dtypes.bits(node.dtype) <= 16
    if node.op != "cast" or not kinds:
        return None
    clip = clip_of(node.args[0])
    if clip is None or not _within(node.args[0], *dtypes.integer_range(node.dtype)):
        return None
    (clipped, low, high), zero, total = clip, 0.0, clip[0]
    if clipped.op == "add" and clipped.args[1].op == "const":
        total, zero = clipped.args[0], clipped.args[1].value
    if total.op != "round" or total.dtype != "float32":
        return None
    if not all(map(float.is_integer, (low, high, zero))) or abs(zero) > 1 << 16:
        return None
    x, scale = total.args[0], 1.0
    if x.op == "div" and x.args[1].op == "const":
        x, scale = x.args[0], x.args[1].value
        if not target.fused_multiply_add or not SCALES[0] < scale < SCALES[1]:
            return None
    return _Quantised(x, scale, int(zero), int(low), int(high))


_BOOLEAN: dict[str, Callable[..., str]] = {
    "and": Vectors.both,
    "min": Vectors.both,
    "mul": Vectors.both,
    "or": Vectors.either,
    "max": Vectors.either,
    "add": Vectors.either,
    "xor": Vectors.bit_xor,
    "not": lambda v, a: v.bit_xor(a, v.constant(True)),
}


def _on_integers(v: Vectors, node: Expr, args: list[str]) -> str:
    zero, one = v.constant(0), v.constant(1)
    match node.op:
        case "add" | "sub" | "mul" | "neg" | "select":
            return getattr(v, node.op)(*args)
        case "abs":
            return v.abs(args[0]) if dtypes.is_signed(v.dtype) else args[0]
        case "min":
            return v.smaller(*args)
        case "max":
            return v.greater(*args)
        case "and" | "or" | "xor":
            return getattr(v, f"bit_{node.op}")(*args)
        case "not":
            return v.bit_xor(args[0], v.constant(-1))
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return v.compare(node.op, *args)
        case "sign":
            positive = v.select(v.compare("ne", args[0], zero), one, zero)
            if not dtypes.is_signed(v.dtype):
                return positive
            return v.select(v.compare("lt", args[0], zero), v.constant(-1), positive)
        case "floor" | "ceil" | "trunc" | "round":
            return args[0]
        case "isnan" | "isinf":
            return v.of("bool").constant(False)
        case "shl" | "shr":
            return _shift(v, node, args)
        case "div":
            return _quotient(v, node.args[1], args)
        case "fmod" | "mod":
            return _remainder(v, node, args)
    raise TypeError(f"{node.op} is not defined on {v.dtype}")


def _shift(v: Vectors, node: Expr, args: list[str]) -> str:
    """Shifts by the width or more give 0."""
    shift = v.shift_left if node.op == "shl" else partial(_shifted_right, v)
    width, count = dtypes.bits(v.dtype), node.args[1]
    if count.op == "const":
        return shift(args[0], count.value) if 0 <= count.value < width else v.constant(0)
    counts = v.of("u" + v.dtype) if dtypes.is_signed(v.dtype) else v
    inside = counts.compare("lt", args[1], counts.constant(width))
    return v.select(inside, shift(args[0], v.select(inside, args[1], v.constant(0))), v.constant(0))


SHIFTED = 7  # bits at most of the first of two shifts, which LLVM may join with one that is before


def _shifted_right(v: Vectors, a: str, count: int | str) -> str:
    """a >> count. LLVM 22 takes products of 64 bits whose factors were narrow numbers for ones of 32 where
    constants shift them by 16 bits or more (https://github.com/llvm/llvm-project/issues/218844), in several
    shifts too, which it joins: so there are two, with a sum between that keeps it from that."""
    if v.lanes == 1 or dtypes.bits(v.dtype) < 64 or not isinstance(count, int) or count < 2:
        return v.shift_right(a, count)
    first = min(SHIFTED, count - 1)
    rest = count - first
    one_more = v.add(v.shift_right(a, first), v.constant(1 << rest))
    return v.sub(v.shift_right(one_more, rest), v.constant(1))


def _quotient(v: Vectors, divisor: Expr, args: list[str]) -> str:
    """Truncated division; a zero divisor acts as one, and the most negative number by -1 wraps."""
    a, b = args
    zero, one, minus = v.constant(0), v.constant(1), v.constant(-1)
    signed = dtypes.is_signed(v.dtype)
    if divisor.op == "const":
        if divisor.value in (0, 1):
            return a
        if divisor.value == -1:
            return v.neg(a)
        if abs(int(divisor.value)).bit_count() == 1:
            return _halved(v, a, int(divisor.value))
        if dtypes.bits(v.dtype) <= 32:
            return _divided(v, a, b)
    safe = v.select(v.compare("eq", b, zero), one, b)
    if v.lanes > 1 and dtypes.bits(v.dtype) == 64:
        return _quotient64(v, a, safe)
    negated = v.compare("eq", b, minus) if signed else None
    if negated is not None:
        safe = v.select(negated, one, safe)
    quotient = _divide(v, a, safe)
    return quotient if negated is None else v.select(negated, v.neg(a), quotient)


def _halved(v: Vectors, a: str, divisor: int) -> str:
    """a / divisor, a power of two or the negative of one. LLVM's own way begins with a shift of a to its
    sign, which is wrong for products (`_shifted_right`)."""
    count = abs(divisor).bit_length() - 1
    if not dtypes.is_signed(v.dtype):
        return _shifted_right(v, a, count)
    up = v.add(a, v.constant((1 << count) - 1))
    quotient = _shifted_right(v, v.select(v.compare("lt", a, v.constant(0)), up, a), count)
    return v.neg(quotient) if divisor < 0 else quotient


def _divided(v: Vectors, a: str, b: str) -> str:
    return v.f.binary("sdiv" if dtypes.is_signed(v.dtype) else "udiv", a, b, v.type)


def _divide(v: Vectors, a: str, b: str) -> str:
    """a / b with b neither 0 nor -1. Vectors divide as floats of more bits than the quotient can have: exact
    after truncation, as the quotient of n-bit numbers is at least 2**-n away from the next integer,
    relatively."""
    bits = dtypes.bits(v.dtype)
    if v.lanes == 1 or bits > 32:
        return _divided(v, a, b)
    floats = v.of("float32" if bits <= 8 else "float64")
    words = v if bits == 32 else v.of("int32")
    left, right = (cast(v, floats.dtype, x) for x in (a, b))
    quotient = floats.div(left, right)
    operation = "fptosi" if dtypes.is_signed(words.dtype) else "fptoui"
    whole = v.f.cast(operation, quotient, words.type, floats.type)
    return whole if bits == 32 else cast(words, v.dtype, whole)


def _quotient64(v: Vectors, a: str, b: str) -> str:
    """a / b of 64 bits with b not 0: in float64 where all magnitudes are below 2**52, which then are the
    lower bits of 2**52 and more, else one by one."""
    floats, zero, signed = v.of("float64"), v.constant(0), dtypes.is_signed(v.dtype)
    base = floats.constant(2.0**52)
    above = floats.bits(base)

    def number(x: str) -> str:
        return floats.sub(floats.from_bits(v.bit_or(x, above)), base)

    def whole(x: str) -> str:
        return v.bit_xor(floats.bits(floats.add(floats.unary("trunc", x), base)), above)

    left, right = (v.abs(a), v.abs(b)) if signed else (a, b)
    large = v.bit_and(v.bit_or(left, right), v.constant(-1 << 52 if signed else (1 << 64) - (1 << 52)))
    quotient = whole(floats.div(number(left), number(right)))
    if signed:
        quotient = v.select(v.compare("lt", v.bit_xor(a, b), zero), v.neg(quotient), quotient)

    def more(values: Sequence[str]) -> str:
        return v.any(v.compare("ne", values[0], zero))

    def one_by_one(values: Sequence[str]) -> list[str]:
        minus = v.compare("eq", b, v.constant(-1)) if signed else None
        divided = _divided(v, a, b if minus is None else v.select(minus, v.constant(1), b))
        return [zero, divided if minus is None else v.select(minus, v.neg(a), divided)]

    return v.f.repeat([(v.type, large), (v.type, quotient)], more, one_by_one)[1]


def _remainder(v: Vectors, node: Expr, args: list[str]) -> str:
    """The remainder with the dividend's sign, or for `mod` the divisor's; 0 where the divisor is 0."""
    a, b = args
    zero = v.constant(0)
    rest = v.sub(a, v.mul(wrapped(v, _quotient(v, node.args[1], args)), b))
    rest = v.select(v.compare("eq", b, zero), zero, wrapped(v, rest))
    if node.op == "fmod" or not dtypes.is_signed(v.dtype):
        return rest
    against = v.compare("lt", v.bit_xor(rest, b), zero)
    return v.select(v.both(against, v.compare("ne", rest, zero)), v.add(rest, b), rest)


def _power(v: Vectors, node: Expr, args: list[str]) -> str:
    """a ** b: of two floats, of integers by squaring, and of a mixed pair in float64."""
    base, exponent = node.args
    b = v.of(computed_in(exponent.dtype))
    if v.floating and exponent.op == "const":
        simple = powers.constant_power(v, args[0], float(exponent.value))
        if simple is not None:
            return simple
    if not v.floating and not b.floating:
        if b.dtype == "bool":
            return v.select(args[1], args[0], v.constant(1))
        if exponent.op == "const" and exponent.value >= 0:
            return powers.whole_power(v, args[0], exponent.value)
        return powers.integer_power(v, b, *args)
    if v.floating and b.floating and b.dtype == v.dtype:
        return vector_math.function(v, "pow", *args)
    squared = exponent.op == "const" and exponent.value == 2
    if squared and v.dtype == base.dtype and dtypes.is_integer(v.dtype) and dtypes.bits(v.dtype) <= 32:
        return _square(v, args[0])
    wide = v.of("float64")
    powered, result = cast(v, "float64", args[0]), None
    if exponent.op == "const":
        result = powers.constant_power(wide, powered, float(exponent.value))
    if result is None:
        result = vector_math.function(wide, "pow", powered, cast(b, "float64", args[1]))
    return cast(wide, v.dtype if v.floating else base.dtype, result)


def _square(v: Vectors, x: str) -> str:
    """x * x of integers, or the greatest number."""
    greatest = dtypes.integer_range(v.dtype)[1]
    root = math.isqrt(greatest)
    outside = v.compare("gt", x, v.constant(root))
    if dtypes.is_signed(v.dtype):
        outside = v.either(outside, v.compare("lt", x, v.constant(-root)))
    return v.select(outside, v.constant(greatest), v.mul(x, x))
