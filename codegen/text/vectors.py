"""Arithmetic on vectors of one element type, the words in which expressions and functions are written.

`Vectors(f, "float32", 16).add(a, b)` appends one instruction and returns its result. Booleans are vectors of
i1, and with one lane every vector is a plain scalar. No instruction here traps or has undefined results for
any operand.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import dtypes
from ...records import dataclass
from ...target import ESTIMATE_ROOT, PERMUTE, PERMUTE_ONE, SCALE_EXPONENT
from .emitter import Function, Reg, is_number, scalar_type, splat, type_of, vector_type

LONG = 8  # coefficients of a polynomial of one scheme
_FLOAT_COMPARISONS = {
    "eq": "oeq",
    "ne": "une",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "uno": "uno",
    "ord": "ord",
}


@dataclass(frozen=True)
class Vectors:
    """`lanes` elements of `dtype`: a float type, an integer type or bool."""

    f: Function
    dtype: str
    lanes: int

    @property
    def type(self) -> str:
        return vector_type(scalar_type(self.dtype), self.lanes)

    @property
    def mask(self) -> str:
        """LLVM's type of one condition a lane."""
        return vector_type("i1", self.lanes)

    @property
    def floating(self) -> bool:
        return dtypes.is_float(self.dtype)

    def of(self, dtype: str) -> Vectors:
        """As many lanes of another type."""
        return Vectors(self.f, dtype, self.lanes)

    @property
    def integers(self) -> Vectors:
        """Signed integers of the same width."""
        return self.of(f"int{dtypes.bits(self.dtype)}")

    def constant(self, value: float | int | bool) -> Reg:
        """Equal lanes of the nearest number that the type has."""
        return splat(float(np.float32(value)) if self.dtype == "float32" else value, self.dtype, self.lanes)

    def broadcast(self, value: str) -> Reg:
        """A vector of equal lanes; a number needs no instruction."""
        if is_number(value):
            return self.constant(int(value))
        return self.f.broadcast(scalar_type(self.dtype), value, self.lanes)

    # Arithmetic --------------------------------------------------------------------------------

    def _binary(self, name: str, a: str, b: str) -> Reg:
        return self.f.binary(name, a, b, self.type)

    def add(self, a: str, b: str) -> Reg:
        return self._binary("fadd" if self.floating else "add", a, b)

    def sub(self, a: str, b: str) -> Reg:
        return self._binary("fsub" if self.floating else "sub", a, b)

    def mul(self, a: str, b: str) -> Reg:
        return self._binary("fmul" if self.floating else "mul", a, b)

    def div(self, a: str, b: str) -> Reg:
        """Of floats."""
        return self._binary("fdiv", a, b)

    def neg(self, a: str) -> Reg:
        if not self.floating:
            return self.sub(self.constant(0), a)
        return self.f.value(f"fneg {type_of('fneg', a, default=self.type)} {a}", self.type)

    def abs(self, a: str) -> Reg:
        """The magnitude; the most negative integer stays itself."""
        if self.floating:
            return self.f.intrinsic("fabs", self.type, a)
        return self.select(self.compare("lt", a, self.constant(0)), self.neg(a), a)

    def fma(self, a: str, b: str, c: str) -> Reg:
        """a * b + c; of floats rounded once where the target has a fused multiply-add and twice elsewhere."""
        if self.floating and self.f.target.fused_multiply_add:
            return self.f.intrinsic("fma", self.type, a, b, c)
        return self.add(self.mul(a, b), c)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Horner's scheme, the highest power first. Of many coefficients one for the even powers and one for
        the odd, beside each other: of long ones a processor does not hold several to compute them at once."""
        if len(coefficients) <= LONG:
            return self._horner(x, coefficients)
        last, before = coefficients[-1::-2], coefficients[-2::-2]
        square = self.mul(x, x)
        even, odd = (self._horner(square, part[::-1]) for part in (last, before))
        return self.fma(odd, x, even)

    def _horner(self, x: str, coefficients: Sequence[float]) -> str:
        result = self.constant(coefficients[0])
        for c in coefficients[1:]:
            result = self.fma(result, x, self.constant(c))
        return result

    def permuted(self, tables: Sequence[str], places: str) -> str:
        """For each lane that of one or two whole registers of floats, counted through all, whose number is in
        the lowest bits of `places`: one instruction, for targets of the ability `permute`."""
        whole = self.f.target.vector_bits // dtypes.bits(self.dtype)
        if self.lanes > whole:
            half = Vectors(self.f, self.dtype, self.lanes // 2)
            parts = (self.integers.part(k, places) for k in (0, 1))
            return self.joined(*(half.permuted(tables, part) for part in parts))
        wide = Vectors(self.f, self.dtype, whole)
        kind, words = wide.type, wide.integers.type
        low, *high = tables
        name = (PERMUTE if high else PERMUTE_ONE)[self.dtype]
        name = self.f.text.declare(name, kind, [kind, words, *(kind for _ in high)])
        places = self.integers._padded(places, whole)
        others = [f"{kind} {table}" for table in high]
        found = self.f.call(kind, name, f"{kind} {low}", f"{words} {places}", *others)
        return self._unpadded(found, whole)

    def scale_exponent(self, x: str, n: str) -> str:
        """x * 2**n, rounded once, where n is no whole number with the one below: one instruction, for targets
        of the ability `scale_exponent`."""
        return self._masked(SCALE_EXPONENT, [x, n], rounded=True)

    def root_estimate(self, x: str) -> str:
        """1 / sqrt(x) of float32, to a relative 2**-14: one instruction, for targets of the ability
        `estimate_root`."""
        return self._masked(ESTIMATE_ROOT, [x])

    def _masked(self, intrinsic: str, operands: Sequence[str], rounded: bool = False) -> str:
        """One instruction of all lanes, of the family of LLVM's intrinsics that take a mask and what other
        lanes become, and where they are `rounded`, how; with idle lanes, or twice, where lanes are no
        register."""
        size, widest = dtypes.bits(self.dtype), self.f.target.vector_bits
        if self.lanes * size > widest:
            half = Vectors(self.f, self.dtype, self.lanes // 2)
            parts = [[self.part(k, x) for x in operands] for k in (0, 1)]
            return self.joined(*(half._masked(intrinsic, part, rounded) for part in parts))
        lanes = max(self.lanes, 128 // size)
        vector = vector_type(scalar_type(self.dtype), lanes)
        mask = f"i{max(8, lanes)}"
        rounding = ["i32"] if rounded and lanes * size == widest else []
        kind = {"float32": "ps", "float64": "pd"}[self.dtype]
        types = [vector] * (len(operands) + 1) + [mask] + rounding
        name = self.f.text.declare(f"{intrinsic}.{kind}.{lanes * size}", vector, types)
        padded = [self._padded(x, lanes) for x in operands]
        others = [f"{vector} zeroinitializer", f"{mask} -1", *(f"{r} 4" for r in rounding)]
        return self._unpadded(self.f.call(vector, name, *padded, *others), lanes)

    def _unpadded(self, x: str, lanes: int) -> str:
        """The first of as many lanes."""
        if lanes == self.lanes:
            return x
        return self.f.extract(x, 0) if self.lanes == 1 else self.f.shuffle(x, "poison", range(self.lanes))

    def _padded(self, x: str, lanes: int) -> str:
        """x with idle lanes of any value."""
        if self.lanes == lanes:
            return x
        if self.lanes == 1:
            return self.f.insert("zeroinitializer", x, 0, vector_type(self.type, lanes))
        picks = [min(k, self.lanes) for k in range(lanes)]
        return self.f.shuffle(x, "zeroinitializer", picks, self.type)

    def part(self, half: int, x: str) -> Reg:
        """The lower (0) or upper (1) half of the lanes."""
        count = self.lanes // 2
        if count == 1:
            return self.f.extract(x, half, self.type)
        return self.f.shuffle(x, "poison", range(half * count, (half + 1) * count), self.type)

    def joined(self, low: str, high: str) -> Reg:
        """The opposite of `part`."""
        half = vector_type(scalar_type(self.dtype), self.lanes // 2)
        if self.lanes == 2:
            return self.f.insert(self.f.insert("poison", low, 0, self.type), high, 1)
        return self.f.shuffle(low, high, range(self.lanes), half)

    def unary(self, intrinsic: str, a: str) -> Reg:
        """floor, ceil, trunc, roundeven, sqrt, fabs: exact or correctly rounded on every target."""
        return self.f.intrinsic(intrinsic, self.type, a)

    def copysign(self, magnitude: str, sign: str) -> Reg:
        return self.f.intrinsic("copysign", self.type, magnitude, sign)

    # Bits --------------------------------------------------------------------------------------

    def bit_and(self, a: str, b: str) -> Reg:
        return self._binary("and", a, b)

    def bit_or(self, a: str, b: str) -> Reg:
        return self._binary("or", a, b)

    def bit_xor(self, a: str, b: str) -> Reg:
        return self._binary("xor", a, b)

    def shift_left(self, a: str, count: int | str) -> Reg:
        """count < width in every lane."""
        return self._binary("shl", a, self.constant(count) if isinstance(count, int) else count)

    def shift_right(self, a: str, count: int | str) -> Reg:
        """count < width in every lane; signed types keep their sign."""
        count = self.constant(count) if isinstance(count, int) else count
        return self._binary("ashr" if dtypes.is_signed(self.dtype) else "lshr", a, count)

    def bits(self, a: str) -> Reg:
        """The bits of floats as integers."""
        return self.f.cast("bitcast", a, self.integers.type, self.type)

    def from_bits(self, a: str) -> Reg:
        return self.f.cast("bitcast", a, self.type, self.integers.type)

    # Conditions --------------------------------------------------------------------------------

    def compare(self, predicate: str, a: str, b: str) -> Reg:
        """eq, ne, lt, le, gt, ge by the type's order; NaN is unequal to everything. `uno`: either is NaN;
        `ord`: neither."""
        if self.floating:
            type_ = type_of("fcmp", a, b, default=self.type)
            return self.f.value(f"fcmp {_FLOAT_COMPARISONS[predicate]} {type_} {a}, {b}", self.mask)
        if predicate not in ("eq", "ne"):
            predicate = ("s" if dtypes.is_signed(self.dtype) else "u") + predicate
        return self.f.compare(predicate, a, b, self.type)

    def is_nan(self, a: str) -> Reg:
        return self.compare("uno", a, a)

    def select(self, condition: str, a: str, b: str) -> Reg:
        """a where the condition holds, else b."""
        condition = Reg(condition, type_of("select", condition, default=self.mask))
        return self.f.select(condition, self.type, a, b)

    def both(self, a: str, b: str) -> Reg:
        """Of two conditions."""
        return self.f.binary("and", a, b, self.mask)

    def either(self, a: str, b: str) -> Reg:
        return self.f.binary("or", a, b, self.mask)

    def differ(self, a: str, b: str) -> Reg:
        """Whether exactly one of two conditions holds."""
        return self.f.binary("xor", a, b, self.mask)

    def any(self, condition: str) -> str:
        """Whether the condition holds in any lane, as an i1."""
        if self.lanes == 1:
            return condition
        name = self.f.text.declare(f"llvm.vector.reduce.or.v{self.lanes}i1", "i1", [self.mask])
        return self.f.call("i1", name, f"{self.mask} {condition}")

    def smaller(self, a: str, b: str) -> Reg:
        """The lesser, b where they do not compare: one instruction for floats. Not symmetric in NaN; see
        `minimum`."""
        return self.select(self.compare("lt", a, b), a, b)

    def greater(self, a: str, b: str) -> Reg:
        return self.select(self.compare("gt", a, b), a, b)

    def minimum(self, a: str, b: str, b_is_number: bool = False) -> Reg:
        """The lesser, a where they are equal, NaN where either is NaN. With b known to be a number one
        instruction does it."""
        return self._extreme("lt", a, b, b_is_number)

    def maximum(self, a: str, b: str, b_is_number: bool = False) -> Reg:
        return self._extreme("gt", a, b, b_is_number)

    def _extreme(self, predicate: str, a: str, b: str, b_is_number: bool) -> Reg:
        found = self.select(self.compare(predicate, b, a), b, a)  # a where they do not compare
        if b_is_number or not self.floating:
            return found
        # a condition that holds for numbers: two instructions where one of them can leave lanes as they are
        return self.select(self.compare("ord", b, b), found, b)
