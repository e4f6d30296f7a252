"""Arithmetic on vectors of one element type, the words in which expressions and functions are written.

`Vectors(f, "float32", 16).add(a, b)` appends one instruction and returns its result. Booleans are vectors of
i1, and with one lane every vector is a plain scalar. No instruction here traps or has undefined results for
any operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir import dtypes
from ...target import SCALE_EXPONENT
from .emitter import Function, scalar_type, splat, vector_type

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

    def constant(self, value: float | int | bool) -> str:
        """Equal lanes of the nearest number that the type has."""
        return splat(float(np.float32(value)) if self.dtype == "float32" else value, self.dtype, self.lanes)

    def broadcast(self, value: str) -> str:
        """A vector of equal lanes; a number needs no instruction."""
        if value.lstrip("-").isdigit():
            return self.constant(int(value))
        return self.f.broadcast(scalar_type(self.dtype), value, self.lanes)

    # Arithmetic --------------------------------------------------------------------------------

    def _binary(self, name: str, a: str, b: str) -> str:
        return self.f.value(f"{name} {self.type} {a}, {b}")

    def add(self, a: str, b: str) -> str:
        return self._binary("fadd" if self.floating else "add", a, b)

    def sub(self, a: str, b: str) -> str:
        return self._binary("fsub" if self.floating else "sub", a, b)

    def mul(self, a: str, b: str) -> str:
        return self._binary("fmul" if self.floating else "mul", a, b)

    def div(self, a: str, b: str) -> str:
        """Of floats."""
        return self._binary("fdiv", a, b)

    def neg(self, a: str) -> str:
        return self.f.value(f"fneg {self.type} {a}") if self.floating else self.sub(self.constant(0), a)

    def abs(self, a: str) -> str:
        """The magnitude; the most negative integer stays itself."""
        if self.floating:
            return self.f.intrinsic("fabs", self.type, a)
        return self.select(self.compare("lt", a, self.constant(0)), self.neg(a), a)

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c of floats, rounded once where the target has a fused multiply-add and twice elsewhere."""
        if self.f.target.fused_multiply_add:
            return self.f.intrinsic("fma", self.type, a, b, c)
        return self.add(self.mul(a, b), c)

    def polynomial(self, x: str, coefficients: Sequence[float]) -> str:
        """Horner's scheme, the highest power first."""
        result = self.constant(coefficients[0])
        for c in coefficients[1:]:
            result = self.fma(result, x, self.constant(c))
        return result

    def scale_exponent(self, x: str, n: str) -> str:
        """x * 2**n for whole numbers n, rounded once: one instruction, for targets of the ability
        `scale_exponent`."""
        size, widest = dtypes.bits(self.dtype), self.f.target.vector_bits
        if self.lanes * size > widest:
            low, high = ((self.part(half, x) for half in (0, 1)), (self.part(half, n) for half in (0, 1)))
            half = Vectors(self.f, self.dtype, self.lanes // 2)
            return self.joined(*(half.scale_exponent(a, b) for a, b in zip(low, high, strict=True)))
        lanes = max(self.lanes, 128 // size)
        vector = vector_type(scalar_type(self.dtype), lanes)
        mask = f"i{max(8, lanes)}"
        rounding = ["i32"] if lanes * size == widest else []
        kind = {"float32": "ps", "float64": "pd"}[self.dtype]
        name = self.f.text.declare(
            f"{SCALE_EXPONENT}.{kind}.{lanes * size}", vector, [vector] * 3 + [mask] + rounding
        )
        x, n = self._padded(x, lanes), self._padded(n, lanes)
        arguments = [
            f"{vector} {x}",
            f"{vector} {n}",
            f"{vector} zeroinitializer",
            f"{mask} -1",
            *(f"{r} 4" for r in rounding),
        ]
        result = self.f.call(vector, name, *arguments)
        if lanes == self.lanes:
            return result
        if self.lanes == 1:
            return self.f.value(f"extractelement {vector} {result}, i64 0")
        numbers = ", ".join(f"i32 {k}" for k in range(self.lanes))
        return self.f.value(
            f"shufflevector {vector} {result}, {vector} poison, <{self.lanes} x i32> <{numbers}>"
        )

    def _padded(self, x: str, lanes: int) -> str:
        """x with idle lanes of any value."""
        if self.lanes == lanes:
            return x
        if self.lanes == 1:
            return self.f.value(
                f"insertelement {vector_type(scalar_type(self.dtype), lanes)} zeroinitializer, "
                f"{self.type} {x}, i64 0"
            )
        numbers = ", ".join(f"i32 {min(k, self.lanes)}" for k in range(lanes))
        return self.f.value(
            f"shufflevector {self.type} {x}, {self.type} zeroinitializer, <{lanes} x i32> <{numbers}>"
        )

    def part(self, half: int, x: str) -> str:
        """The lower (0) or upper (1) half of the lanes."""
        count = self.lanes // 2
        if count == 1:
            return self.f.value(f"extractelement {self.type} {x}, i64 {half}")
        numbers = ", ".join(f"i32 {half * count + k}" for k in range(count))
        return self.f.value(f"shufflevector {self.type} {x}, {self.type} poison, <{count} x i32> <{numbers}>")

    def joined(self, low: str, high: str) -> str:
        """The opposite of `part`."""
        half = vector_type(scalar_type(self.dtype), self.lanes // 2)
        if self.lanes == 2:
            first = self.f.value(f"insertelement {self.type} poison, {half} {low}, i64 0")
            return self.f.value(f"insertelement {self.type} {first}, {half} {high}, i64 1")
        numbers = ", ".join(f"i32 {k}" for k in range(self.lanes))
        return self.f.value(f"shufflevector {half} {low}, {half} {high}, <{self.lanes} x i32> <{numbers}>")

    def unary(self, intrinsic: str, a: str) -> str:
        """floor, ceil, trunc, roundeven, sqrt, fabs: exact or correctly rounded on every target."""
        return self.f.intrinsic(intrinsic, self.type, a)

    def copysign(self, magnitude: str, sign: str) -> str:
        return self.f.intrinsic("copysign", self.type, magnitude, sign)

    # Bits --------------------------------------------------------------------------------------

    def bit_and(self, a: str, b: str) -> str:
        return self._binary("and", a, b)

    def bit_or(self, a: str, b: str) -> str:
        return self._binary("or", a, b)

    def bit_xor(self, a: str, b: str) -> str:
        return self._binary("xor", a, b)

    def shift_left(self, a: str, count: int | str) -> str:
        """count < width in every lane."""
        return self._binary("shl", a, self.constant(count) if isinstance(count, int) else count)

    def shift_right(self, a: str, count: int | str) -> str:
        """count < width in every lane; signed types keep their sign."""
        count = self.constant(count) if isinstance(count, int) else count
        return self._binary("ashr" if dtypes.is_signed(self.dtype) else "lshr", a, count)

    def bits(self, a: str) -> str:
        """The bits of floats as integers."""
        return self.f.value(f"bitcast {self.type} {a} to {self.integers.type}")

    def from_bits(self, a: str) -> str:
        return self.f.value(f"bitcast {self.integers.type} {a} to {self.type}")

    # Conditions --------------------------------------------------------------------------------

    def compare(self, predicate: str, a: str, b: str) -> str:
        """eq, ne, lt, le, gt, ge by the type's order; NaN is unequal to everything. `uno`: either is NaN."""
        if self.floating:
            return self.f.value(f"fcmp {_FLOAT_COMPARISONS[predicate]} {self.type} {a}, {b}")
        if predicate not in ("eq", "ne"):
            predicate = ("s" if dtypes.is_signed(self.dtype) else "u") + predicate
        return self.f.value(f"icmp {predicate} {self.type} {a}, {b}")

    def is_nan(self, a: str) -> str:
        return self.compare("uno", a, a)

    def ordered(self, a: str) -> str:
        """Whether a is no NaN."""
        return self.compare("ord", a, a)

    def select(self, condition: str, a: str, b: str) -> str:
        """a where the condition holds, else b."""
        return self.f.value(f"select {self.mask} {condition}, {self.type} {a}, {self.type} {b}")

    def both(self, a: str, b: str) -> str:
        """Of two conditions."""
        return self.f.value(f"and {self.mask} {a}, {b}")

    def either(self, a: str, b: str) -> str:
        return self.f.value(f"or {self.mask} {a}, {b}")

    def any(self, condition: str) -> str:
        """Whether the condition holds in any lane, as an i1."""
        if self.lanes == 1:
            return condition
        name = self.f.text.declare(f"llvm.vector.reduce.or.v{self.lanes}i1", "i1", [self.mask])
        return self.f.call("i1", name, f"{self.mask} {condition}")

    def smaller(self, a: str, b: str) -> str:
        """The lesser, b where they do not compare: one instruction for floats. Not symmetric in NaN; see
        `minimum`."""
        return self.select(self.compare("lt", a, b), a, b)

    def greater(self, a: str, b: str) -> str:
        return self.select(self.compare("gt", a, b), a, b)

    def minimum(self, a: str, b: str, b_is_number: bool = False) -> str:
        """The lesser, NaN where either is NaN. With b known to be a number one instruction does it."""
        return self._extreme("lt", a, b, b_is_number)

    def maximum(self, a: str, b: str, b_is_number: bool = False) -> str:
        return self._extreme("gt", a, b, b_is_number)

    def _extreme(self, predicate: str, a: str, b: str, b_is_number: bool) -> str:
        if b_is_number or not self.floating:
            return self.select(self.compare(predicate, b, a), b, a)  # a where they do not compare
        return self.select(self.is_nan(a), a, self.select(self.compare(predicate, a, b), a, b))
