"""Symbolic dimensions: integer polynomials over a model's dimension variables.

A dimension is a plain `int` wherever it is known and a `Dim` elsewhere: a sum of monomials over atoms, where
an atom is a variable (`Symbol`) or an operation that polynomials cannot express (`Apply`: floor division,
remainder, min, max, broadcast, comparisons). Construction is canonical, so equal dimensions nearly always
look equal; `equal` may still answer None, *unknown*, and the run then checks. Text is Python expression
syntax: `2*n + (h - 1)//2`. A formula that `is_large` should become a variable of its own, which the run
computes (`Builder.named`): one beyond SIZE_LIMIT cannot be written.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cached_property, lru_cache, reduce
from typing import TypeGuard, overload

from ..errors import LimitError
from ..records import dataclass

SIZE_LIMIT = 16_384  # terms, variables and operations in one dimension
DEPTH_LIMIT = 64  # operations around each other
COEFFICIENT_LIMIT = 1 << 63
PRODUCT_SIZE = 2048  # a product whose terms would be larger stays one

# What is larger is given a name: far enough below the limits for what one op makes of several sizes.
LARGE_SIZE, LARGE_DEPTH, LARGE_COEFFICIENT = 128, 16, 1 << 40


class TooComplex(LimitError):
    """A dimension would exceed one of the limits."""

    def __init__(self) -> None:
        super().__init__("a size becomes a formula that is too large", "give sizes (--dim, --shape)")


CHANNELS, PIXELS = 3, 224  # of an image of unknown size
COLOURS, FEATURES = 4, 64  # most channels of an image that was taken, pixels of one that was computed
LENGTH = 128  # of any other axis of unknown size
LARGEST = 1 << 62  # of what is typical

CACHED = 1 << 13  # results of each operation: a graph's sizes are made of the same few, again and again


@dataclass(frozen=True)
class Symbol:
    """A dimension variable. `minimum` is what its value is known to reach (None: any integer); `typical` is
    what times are estimated with."""

    name: str
    minimum: int | None = 0
    typical: int = LENGTH
    size = 1
    depth = 0

    @cached_property
    def key(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Apply:
    """An operation of APPLICATIONS on two dimensions, kept as an atom."""

    kind: str
    left: int | Dim
    right: int | Dim

    @cached_property
    def key(self) -> str:
        return str(self)

    @cached_property
    def size(self) -> int:
        return 1 + sum(getattr(d, "size", 1) for d in (self.left, self.right))

    @cached_property
    def depth(self) -> int:
        return 1 + max(getattr(d, "depth", 0) for d in (self.left, self.right))

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.left, self.right))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self.kind in _INFIX:
            left, right = (str(d) if _is_plain(d) else f"({d})" for d in (self.left, self.right))
            return f"{left}{_INFIX[self.kind]}{right}"
        return f"{self.kind}({self.left}, {self.right})"


_INFIX = {"floordiv": "//", "mod": "%"}


def _broadcast_values(a: int, b: int) -> int:
    return b if a == 1 else a


#: What each atom computes. Comparisons give 0 or 1; division by zero gives 0 here and is reported by the run.
APPLICATIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b if b else 0,
    "truncdiv": lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "broadcast": _broadcast_values,
    "product": operator.mul,
    "eq": lambda a, b: int(a == b),
    "lt": lambda a, b: int(a < b),
}

Monomial = tuple[tuple["Symbol | Apply", int], ...]


class Dim:
    """A dimension that is not a plain number: `terms` maps monomials to non-zero coefficients, in
    canonical order. `size` and `depth` are what the limits are about."""

    __slots__ = ("_hash", "_text", "depth", "size", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]):
        self.terms = terms
        size, depth = len(terms), 0
        for monomial, coefficient in terms:
            for atom, power in monomial:
                size += atom.size * power
                depth = max(depth, atom.depth)
            if abs(coefficient) >= COEFFICIENT_LIMIT:
                raise TooComplex
        if size > SIZE_LIMIT or depth > DEPTH_LIMIT:
            raise TooComplex
        self.size, self.depth = size, depth
        self._hash = hash(terms)
        self._text = ""  # made when it is asked for

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __add__(self, other: int | Dim) -> int | Dim:
        return _sum(self, other)

    def __mul__(self, other: int | Dim) -> int | Dim:
        return _product(self, other)

    def __neg__(self) -> int | Dim:
        return self * -1

    def __sub__(self, other: int | Dim) -> int | Dim:
        return self + -other

    def __rsub__(self, other: int | Dim) -> int | Dim:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: int | Dim) -> int | Dim:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: int | Dim) -> int | Dim:
        return floor_divide(other, self)

    def __mod__(self, other: int | Dim) -> int | Dim:
        return remainder(self, other)

    def __rmod__(self, other: int | Dim) -> int | Dim:
        return remainder(other, self)

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of the symbolic dimension {self} is not known at compile time")

    def __str__(self) -> str:
        if not self._text:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            atoms = [atom for atom, power in monomial for _ in range(power)]
            alone = len(atoms) == 1 and (coefficient == 1 or (coefficient == -1 and text))
            factors = [str(a) if alone or getattr(a, "kind", "") not in _INFIX else f"({a})" for a in atoms]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = " - " if coefficient < 0 else " + "
            text += (sign if text else sign.strip(" +")) + "*".join(factors)
        return text

    __repr__ = __str__


Dimension = int | Dim


@lru_cache(maxsize=CACHED)
def _sum(a: Dim, b: Dimension) -> Dimension:
    if isinstance(b, int):  # the last of all terms
        *rest, (monomial, number) = a.terms
        if monomial != ():
            return Dim((*a.terms, ((), b))) if b else a
        return Dim((*rest, ((), number + b)) if number + b else tuple(rest))
    return _from_terms(itertools.chain(a.terms, _terms(b)))


@lru_cache(maxsize=CACHED)
def _product(a: Dim, b: Dimension) -> Dimension:
    if isinstance(b, int):  # the terms stay in order
        if b == 0 or b == 1:
            return a if b else 0
        scaled = tuple((monomial, coefficient * b) for monomial, coefficient in a.terms)
        return Dim(scaled) if b > 0 else _from_terms(scaled)  # of others choices may be joined
    factor = _terms(b)
    if isinstance(b, Dim) and max(len(a.terms), len(factor)) > 1:
        written = len(factor) * a.size + len(a.terms) * b.size
        if written > PRODUCT_SIZE:
            return _commutative("product", a, b)
    return _from_terms((_multiply(m, n), c * d) for (m, c), (n, d) in itertools.product(a.terms, factor))


def _terms(value: Dimension) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(value, Dim):
        return value.terms
    return (((), int(value)),) if value else ()


def _monomial_key(monomial: Monomial) -> tuple:
    return (-sum(p for _, p in monomial), [(atom.key, -p) for atom, p in monomial])


def _from_terms(terms: Iterable[tuple[Monomial, int]]) -> Dimension:
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    _join_choices(total)
    kept = [(m, c) for m, c in total.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and kept[0][0] == ():
        return kept[0][1]
    return Dim(tuple(sorted(kept, key=lambda term: _monomial_key(term[0]))))


def _join_choices(total: dict[Monomial, int]) -> None:
    """max(x, 0) - max(-x, 0) is x: what a pad that may be negative adds, less what it cuts away. And of
    what is cut at c, n - min(n, c) is max(n - c, 0), which with min(n, c) is n."""
    for monomial, coefficient in list(total.items()):
        match monomial:
            case ((Apply(kind="max", left=left, right=0), 1),) if coefficient < 0:
                opposite = _commutative("max", -left, 0)
                _exchange(total, ((of_atom(monomial[0][0]), -1), (opposite, 1)), -left)
            case ((Apply(kind="min", left=left, right=right) as least, 1),):
                for whole, other in ((left, right), (right, left)):
                    behind, sign = maximum(whole - other, 0), 1 if coefficient > 0 else -1
                    kept = (behind, whole) if sign > 0 else (whole, behind)
                    _exchange(total, ((of_atom(least), sign), (kept[0], 1)), kept[1])


def _exchange(total: dict[Monomial, int], parts: Sequence[tuple[Dimension, int]], whole: Dimension) -> None:
    """As often as all parts (one monomial each, plus or minus) are in a sum, what they add up to instead."""
    single = [
        (value.terms[0], sign) for value, sign in parts if isinstance(value, Dim) and len(value.terms) == 1
    ]
    found = [(monomial, sign) for (monomial, coefficient), sign in single if coefficient == 1]
    times = min((total.get(monomial, 0) * sign for monomial, sign in found), default=0)
    if len(found) < len(parts) or times <= 0:
        return
    for monomial, sign in found:
        total[monomial] -= sign * times
    for monomial, factor in _terms(whole):
        total[monomial] = total.get(monomial, 0) + factor * times


def _multiply(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].key))


def of_atom(atom: Symbol | Apply) -> Dim:
    return Dim(((((atom, 1),), 1),))


def symbol(name: str, minimum: int | None = 0, typical: int = LENGTH) -> Dim:
    """The dimension variable `name`; a valid Python identifier, so that text can be parsed again."""
    return of_atom(Symbol(name, minimum, typical))


@overload
def product(dims: Iterable[int]) -> int: ...
@overload
def product(dims: Iterable[Dimension]) -> Dimension: ...
def product(dims: Iterable[Dimension]) -> Dimension:
    return reduce(operator.mul, dims, 1)


def reshaped_axis(before: Sequence[Dimension], axis: int, after: Sequence[Dimension]) -> int | None:
    """The axis of what a Reshape makes that is one of what it takes: of its size, with certainly as many
    elements before and behind it. Sizes of 0 count as 1 there: a product would hide the others in them."""

    def around(shape: Sequence[Dimension], at: int) -> tuple[Dimension, Dimension]:
        sizes = [1 if size == 0 else size for size in shape]
        return product(sizes[:at]), product(sizes[at + 1 :])

    wanted = around(before, axis)
    for k, size in enumerate(after):
        if size == before[axis] and all(equal(*pair) is True for pair in zip(around(after, k), wanted)):
            return k
    return None


def total(dims: Iterable[Dimension]) -> Dimension:
    return _from_terms(itertools.chain.from_iterable(map(_terms, dims)))


def is_large(value: Dimension) -> bool:
    """Whether a formula has grown so large that a variable should stand for it."""
    return isinstance(value, Dim) and (
        value.size > LARGE_SIZE
        or value.depth > LARGE_DEPTH
        or any(abs(coefficient) > LARGE_COEFFICIENT for _, coefficient in value.terms)
    )


def numbers(shape: Iterable[Dimension]) -> tuple[int, ...]:
    """The numbers that all sizes are; ValueError where one is not known."""
    return tuple(number(size) for size in shape)


def number(size: Dimension) -> int:
    """The number that a size is; ValueError where it is not known."""
    if isinstance(size, int):
        return size
    raise ValueError(f"the size {size} is not known")


def is_static(shape: tuple[Dimension, ...]) -> TypeGuard[tuple[int, ...]]:
    return all(isinstance(d, int) for d in shape)


# Bounds and comparisons --------------------------------------------------------------------------


FEW_TERMS = 4  # of a sum whose choices are looked into: each doubles the work


@lru_cache(maxsize=CACHED)
def bounds(value: Dimension) -> tuple[int | None, int | None]:
    """(least, greatest) value known, None where there is no bound."""
    if isinstance(value, int):
        return value, value
    least: int | None = 0
    greatest: int | None = 0
    for monomial, coefficient in value.terms:
        low: int | None = coefficient
        high: int | None = coefficient
        for atom, power in monomial:
            for _ in range(power):
                low, high = _multiply_bounds((low, high), _atom_bounds(atom))
        least = None if least is None or low is None else least + low
        greatest = None if greatest is None or high is None else greatest + high
    for other in (_bounds_of_choice, _bounds_of_quotient):
        if None in (least, greatest):
            low, high = other(value)
            least = max((x for x in (least, low) if x is not None), default=None)
            greatest = min((x for x in (greatest, high) if x is not None), default=None)
    return least, greatest


def _bounds_of_choice(value: Dim) -> tuple[int | None, int | None]:
    """The bounds of a + max(b, c) are those of a + b and of a + c: n - max(n - 1, 0) is at most 1."""
    if 1 < len(value.terms) <= FEW_TERMS:
        for monomial, coefficient in value.terms:
            match monomial:
                case ((Apply(kind="min" | "max" as kind, left=left, right=right), 1),) if (
                    abs(coefficient) == 1
                ):
                    rest = value - coefficient * of_atom(monomial[0][0])
                    (a0, a1), (b0, b1) = (bounds(rest + coefficient * side) for side in (left, right))
                    if (kind == "max") == (coefficient > 0):
                        low = max((x for x in (a0, b0) if x is not None), default=None)
                        return low, None if a1 is None or b1 is None else max(a1, b1)
                    high = min((x for x in (a1, b1) if x is not None), default=None)
                    return None if a0 is None or b0 is None else min(a0, b0), high
    return None, None


def _bounds_of_quotient(value: Dim) -> tuple[int | None, int | None]:
    """The bounds of a + c * d * (b // d) are those of a + c * (b - r) with a remainder r from 0 to d - 1: of
    use where a and b have a term in common, which may cancel."""
    if 1 < len(value.terms) <= FEW_TERMS:
        found = {monomial for monomial, _ in value.terms if monomial != ()}
        for monomial, coefficient in value.terms:
            match monomial:
                case ((Apply(kind="floordiv", left=left, right=int(right)), 1),) if (
                    right > 0
                    and coefficient % right == 0
                    and any(inner in found for inner, _ in _terms(left))
                ):
                    times = coefficient // right
                    low, high = bounds(value - coefficient * of_atom(monomial[0][0]) + times * left)
                    less, more = sorted((0, -times * (right - 1)))
                    return None if low is None else low + less, None if high is None else high + more
    return None, None


def _multiply_bounds(a: tuple, b: tuple) -> tuple[int | None, int | None]:
    if (0, 0) in (a, b):
        return 0, 0
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]
    if None in a or None in b:
        if a[1] is not None and a[1] <= 0 and b[0] is not None and b[0] >= 0:  # -c * nonnegative
            return (None if a[0] is None or b[1] is None else a[0] * b[1]), a[1] * b[0]
        return None, None
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _atom_bounds(atom: Symbol | Apply) -> tuple[int | None, int | None]:
    if isinstance(atom, Symbol):
        return atom.minimum, None
    (a0, a1), (b0, b1) = bounds(atom.left), bounds(atom.right)
    match atom.kind:
        case "eq" | "lt":
            return 0, 1
        case "min":
            return (
                None if a0 is None or b0 is None else min(a0, b0),
                min((h for h in (a1, b1) if h is not None), default=None),
            )
        case "max":
            return (
                max((low for low in (a0, b0) if low is not None), default=None),
                None if a1 is None or b1 is None else max(a1, b1),
            )
        case "floordiv" | "truncdiv" if b0 is not None and b0 >= 0:
            return _quotient_bounds((a0, a1), (max(b0, 1), b1), atom.kind, b0 == 0)
        case "mod" if b0 is not None and b0 > 0:
            return 0, None if b1 is None else b1 - 1
        case "broadcast":
            return (
                None if a0 is None or b0 is None else min(a0, b0),
                None if a1 is None or b1 is None else max(a1, b1),
            )
        case "product":
            return _multiply_bounds((a0, a1), (b0, b1))
    return None, None


def _quotient_bounds(a: tuple, b: tuple, kind: str, maybe_zero: bool) -> tuple[int | None, int | None]:
    """Bounds of a divided by a positive b; 0 is among them where b may be zero, which gives 0."""
    divide, far = (APPLICATIONS[kind], -1 if kind == "floordiv" else 0)  # of a small negative a by a huge b
    low = None if a[0] is None else divide(a[0], b[0]) if a[0] < 0 else divide(a[0], b[1]) if b[1] else 0
    high = None if a[1] is None else divide(a[1], b[0]) if a[1] >= 0 else divide(a[1], b[1]) if b[1] else far
    if maybe_zero:
        return None if low is None else min(low, 0), None if high is None else max(high, 0)
    return low, high


def at_least(value: Dimension, limit: int) -> bool:
    """Whether value >= limit is certain."""
    low = bounds(value)[0]
    return low is not None and low >= limit


def equal(a: Dimension, b: Dimension) -> bool | None:
    """True, False, or None where only the run can tell."""
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    low, high = bounds(difference)
    if (low is not None and low > 0) or (high is not None and high < 0):
        return False
    return None


def less(a: Dimension, b: Dimension) -> bool | None:
    low, high = bounds(a - b)
    if high is not None and high < 0:
        return True
    if low is not None and low >= 0:
        return False
    return None


# Operations beyond polynomials -------------------------------------------------------------------


@lru_cache(maxsize=CACHED)
def floor_divide(a: Dimension, b: Dimension) -> Dimension:
    """a // b, 0 where b is 0. A divisor that cannot be 0 cancels where the division is exact."""
    if isinstance(a, int) and isinstance(b, int):
        return APPLICATIONS["floordiv"](a, b)
    if b == 1:
        return a
    if isinstance(b, int) and b == -1:
        return -a
    if isinstance(b, Dim):
        quotient = _exact_quotient(a, b) if equal(b, 0) is False else None
        return of_atom(Apply("floordiv", a, b)) if quotient is None else quotient
    if b == 0 or isinstance(a, int):
        return 0 if b == 0 else a // b
    whole = [(m, c // b) for m, c in a.terms if c % b == 0]
    rest = _from_terms((m, c) for m, c in a.terms if c % b)
    constant = next((c for m, c in _terms(rest) if m == ()), 0)
    if b > 0 and not 0 <= constant < b:  # bring the constant into 0..b-1
        rest, whole = rest - constant + constant % b, [*whole, ((), constant // b)]
    quotient = _from_terms(whole)
    if isinstance(rest, int):
        return quotient + rest // b
    low, high = bounds(rest)
    if b > 0 and low is not None and low >= 0 and high is not None and high < b:
        return quotient
    inner = single_atom(rest)
    if (
        isinstance(inner, Apply)
        and inner.kind == "floordiv"
        and isinstance(inner.right, int)
        and b > 0 < inner.right
    ):
        return quotient + floor_divide(inner.left, inner.right * b)
    return quotient + of_atom(Apply("floordiv", rest, b))


def _is_plain(value: Dimension) -> bool:
    """Whether value's text needs no parentheses beside an operator."""
    atom = single_atom(value)
    return isinstance(value, int) or (atom is not None and getattr(atom, "kind", "") not in _INFIX)


def single_atom(value: Dimension) -> Symbol | Apply | None:
    """The atom that value is, if it is nothing more."""
    if isinstance(value, Dim) and len(value.terms) == 1:
        monomial, coefficient = value.terms[0]
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            return monomial[0][0]
    return None


def _exact_quotient(a: Dimension, b: Dim) -> Dimension | None:
    """a / b by polynomial long division, or None where it leaves a remainder."""
    lead, lead_coefficient = b.terms[0]
    quotient: Dimension = 0
    for _ in range(32):
        if isinstance(a, int) and a == 0:
            return quotient
        monomial, coefficient = _terms(a)[0]
        powers = dict(monomial)
        for atom, power in lead:
            powers[atom] = powers.get(atom, 0) - power
        if coefficient % lead_coefficient or any(p < 0 for p in powers.values()):
            return None
        left = tuple((atom, power) for atom, power in powers.items() if power)
        step = _from_terms([(left, coefficient // lead_coefficient)])
        quotient, a = quotient + step, a - step * b
    return None


@lru_cache(maxsize=CACHED)
def nested(value: Dim) -> tuple[Dimension, Dimension, Dimension]:
    """(factor, inner, rest): value is factor * inner + rest, as Horner's scheme has it: factor is all that
    its terms have in common, else the atom that most of them have; 1 where no two have one."""
    number = math.gcd(*(coefficient for _, coefficient in value.terms))
    powers = [dict(monomial) for monomial, _ in value.terms]
    shared = {atom: min(p.get(atom, 0) for p in powers) for atom in powers[0]}
    shared = {atom: power for atom, power in shared.items() if power}
    if number == 1 and not shared:
        atoms = Counter(atom for p in powers for atom in p)
        atom, count = max(atoms.items(), key=lambda item: (item[1], item[0].key))
        if count < 2:
            return 1, value, 0
        shared = {atom: 1}
    elif value.terms[0][1] < 0:  # as its opposite
        number = -number
    inner, rest = list[tuple[Monomial, int]](), list[tuple[Monomial, int]]()
    for (monomial, coefficient), p in zip(value.terms, powers):
        if all(p.get(atom, 0) >= power for atom, power in shared.items()):
            left = ((atom, power - shared.get(atom, 0)) for atom, power in monomial)
            inner.append((tuple((atom, power) for atom, power in left if power), coefficient // number))
        else:
            rest.append((monomial, coefficient))
    return _from_terms([(tuple(shared.items()), number)]), _from_terms(inner), _from_terms(rest)


def remaining(whole: Dimension, known: Dimension) -> Dimension:
    """The size x for which known * x = whole, as a Reshape's -1 means it. It cancels also what may be 0,
    where every x will do."""
    quotient = _exact_quotient(whole, known) if isinstance(known, Dim) else None
    return floor_divide(whole, known) if quotient is None else quotient


def ceil_divide(a: Dimension, b: Dimension) -> Dimension:
    return floor_divide(a + b - 1, b) if b != 0 and at_least(b, 0) else -floor_divide(-a, b)


def truncated_divide(a: Dimension, b: Dimension) -> Dimension:
    """Division rounding toward zero, as ONNX's integer Div."""
    if isinstance(a, int) and isinstance(b, int):
        return APPLICATIONS["truncdiv"](a, b)
    if at_least(a, 0) and at_least(b, 1):
        return floor_divide(a, b)
    return of_atom(Apply("truncdiv", a, b))


def remainder(a: Dimension, b: Dimension) -> Dimension:
    """a mod b with the sign of b."""
    if isinstance(a, int) and isinstance(b, int):
        return APPLICATIONS["mod"](a, b)
    return a - b * floor_divide(a, b)


def minimum(a: Dimension, b: Dimension) -> Dimension:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    low, high = bounds(a - b)
    if high is not None and high <= 0:
        return a
    if low is not None and low >= 0:
        return b
    return _commutative("min", a, b)


def maximum(a: Dimension, b: Dimension) -> Dimension:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    low, high = bounds(a - b)
    if low is not None and low >= 0:
        return a
    if high is not None and high <= 0:
        return b
    for value, limit in ((a, b), (b, a)):
        joined = _joined_maximum(value, limit)
        if joined is not None:
            return joined
    return _commutative("max", a, b)


def _joined_maximum(a: Dimension, limit: Dimension) -> Dimension | None:
    """max(p, q) + c  →  max(p + c, limit)  where numbers q + c <= limit: what a chain of windows gives."""
    if not isinstance(a, Dim) or not isinstance(limit, int):
        return None
    shift = next((c for m, c in a.terms if m == ()), 0)
    inner = single_atom(a - shift)
    if not isinstance(inner, Apply) or inner.kind != "max":
        return None
    p, q = sorted((inner.left, inner.right), key=lambda d: isinstance(d, int))
    return maximum(p + shift, limit) if isinstance(q, int) and q + shift <= limit else None


def _commutative(kind: str, a: Dimension, b: Dimension) -> Dim:
    left, right = sorted((a, b), key=lambda d: (isinstance(d, int), str(d)))
    return of_atom(Apply(kind, left, right))


def clamp(value: Dimension, low: Dimension, high: Dimension) -> Dimension:
    return minimum(maximum(value, low), high)


def broadcast(a: Dimension, b: Dimension) -> Dimension:
    """The common size of two axes: equal, or one of them 1. Sizes known to differ raise ValueError."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int) and isinstance(b, int):
        raise ValueError(f"sizes {a} and {b} do not broadcast")
    if isinstance(a, int):
        return a  # the other is 1 or a, which the run checks
    if isinstance(b, int):
        return b
    for whole, part in ((a, b), (b, a)):
        if _is_clamped(part, whole) or _is_broadcast_of(whole, part):
            return whole
    return _commutative("broadcast", a, b)


def _is_clamped(part: Dim, whole: Dim) -> bool:
    """part = min(whole, k), k >= 1: valid only as whole or 1, so the common size is whole."""
    atom = single_atom(part)
    return (
        isinstance(atom, Apply)
        and atom.kind == "min"
        and (
            (atom.left == whole and at_least(atom.right, 1))
            or (atom.right == whole and at_least(atom.left, 1))
        )
    )


def _is_broadcast_of(whole: Dim, part: Dim) -> bool:
    atom = single_atom(whole)
    return isinstance(atom, Apply) and atom.kind == "broadcast" and part in (atom.left, atom.right)


def repeats(size: Dimension, whole: Dimension) -> Dimension:
    """1 where an axis of `size` repeats along one of `whole`, as broadcasting has it, 0 where it goes along;
    symbolic where the run decides."""
    if size == 1:
        return 1
    return 0 if equal(size, whole) else compare("eq", size, 1)


def compare(kind: str, a: Dimension, b: Dimension) -> Dimension:
    """1 or 0 for `eq` or `lt`, symbolic where the run decides."""
    if kind not in ("eq", "lt"):
        raise ValueError(f"sizes are not compared by {kind!r}")
    known = equal(a, b) if kind == "eq" else less(a, b)
    return int(known) if known is not None else of_atom(Apply(kind, a, b))


_BUILD: dict[str, Callable[[Dimension, Dimension], Dimension]] = {
    "floordiv": floor_divide,
    "truncdiv": truncated_divide,
    "mod": remainder,
    "min": minimum,
    "max": maximum,
    "broadcast": broadcast,
    "product": operator.mul,
    "eq": lambda a, b: compare("eq", a, b),
    "lt": lambda a, b: compare("lt", a, b),
}


# Walking, substituting, text ---------------------------------------------------------------------


def substitute(value: Dimension, mapping: Mapping[str, Dimension]) -> Dimension:
    """value with variables replaced, and atoms that `mapping` names by their text; simplified again."""
    if isinstance(value, int) or not mapping:
        return value
    total: Dimension = 0
    for monomial, coefficient in value.terms:
        term: Dimension = coefficient
        for atom, power in monomial:
            if isinstance(atom, Symbol):
                replaced = mapping.get(atom.name, of_atom(atom))
            elif atom.key in mapping:
                replaced = mapping[atom.key]
            else:
                replaced = _BUILD[atom.kind](substitute(atom.left, mapping), substitute(atom.right, mapping))
            for _ in range(power):
                term = term * replaced
        total = total + term
    return total


def evaluate(value: Dimension, env: Mapping[str, int]) -> int:
    """The number that value is when every variable has the number env gives it."""
    if isinstance(value, int):
        return value
    total = 0
    for monomial, coefficient in value.terms:
        for atom, power in monomial:
            coefficient *= _number(atom, env) ** power
        total += coefficient
    return total


def _number(atom: Symbol | Apply, env: Mapping[str, int]) -> int:
    if isinstance(atom, Symbol):
        return env[atom.name]
    return APPLICATIONS[atom.kind](evaluate(atom.left, env), evaluate(atom.right, env))


_usual: ContextVar[tuple[int, int]] = ContextVar("usual", default=(-LARGEST, LARGEST))


@contextmanager
def _within(low: int, high: int) -> Iterator[None]:
    """Within, what every variable typically is lies there."""
    before = _usual.set((low, high))
    try:
        yield
    finally:
        _usual.reset(before)


def of_ones() -> AbstractContextManager[None]:
    """Within, every variable is typically 1: for what is estimated of the least that a run may be."""
    return _within(1, 1)


def of_many(count: int) -> AbstractContextManager[None]:
    """Within, every variable is typically so many at least: for what is estimated of a run of more than the
    usual, of a batch where one entry is."""
    return _within(count, LARGEST)


def are_ones() -> bool:
    """Whether every variable is typically 1 at present."""
    return _usual.get() == (1, 1)


def typical(value: Dimension) -> int:
    """The number to estimate times with where a size is symbolic; at least 1, so that no work is free: where
    it would be less, what is less of its factors is 1, not their product with others."""
    return max(1, value) if isinstance(value, int) else _typical(value, *_usual.get())


@lru_cache(maxsize=CACHED)
def _typical(value: Dim, low: int, high: int) -> int:
    found = evaluate(value, env := {s.name: min(max(s.typical, low), high) for s in symbols(value)})
    if found < 1 and len(value.terms) == 1:
        ((monomial, found),) = value.terms
        for atom, power in monomial:
            found *= max(1, _number(atom, env)) ** power
    return min(max(1, found), LARGEST)


def usual(axis: int, shape: Sequence[object]) -> int:
    """How long an axis of an input is, when nothing is known of it: one batch, channels and pixels of an
    image, fewer pixels where an image has more channels than one that was taken, a length. What is no number
    in `shape` is not known."""
    channels, *spatial = shape[1:] or [None]
    features = isinstance(channels, int) and channels > COLOURS
    if axis == 0:
        return 1
    if len(shape) > 3 and axis > 1 and features and not any(isinstance(size, int) for size in spatial):
        return FEATURES
    if len(shape) == 4:
        return CHANNELS if axis == 1 else PIXELS
    return LENGTH


@lru_cache(maxsize=CACHED)
def symbols(value: Dimension) -> frozenset[Symbol]:
    """The variables that value depends on."""
    if isinstance(value, int):
        return frozenset()
    atoms = (atom for monomial, _ in value.terms for atom, _ in monomial)
    return frozenset().union(
        *((atom,) if isinstance(atom, Symbol) else symbols(atom.left) | symbols(atom.right) for atom in atoms)
    )


def parse(text: str, minimums: Mapping[str, int | None] | None = None) -> Dimension:
    """The dimension that `str` printed. Variables get the minimum given for them, else 0."""
    minimums = minimums or {}

    def build(node: ast.expr) -> Dimension:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return symbol(name, minimums.get(name, 0))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -build(operand)
            case ast.BinOp(left=left, op=op, right=right):
                return _OPERATORS[type(op)](build(left), build(right))
            case ast.Call(func=ast.Name(id=kind), args=[left, right]) if kind in _BUILD:
                return _BUILD[kind](build(left), build(right))
        raise ValueError(f"'{text}' is not a dimension")

    try:
        return build(ast.parse(text, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"'{text}' is not a dimension") from None


_OPERATORS: dict[type, Callable[[Dimension, Dimension], Dimension]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: floor_divide,
    ast.Mod: remainder,
}
