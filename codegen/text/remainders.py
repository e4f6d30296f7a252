"""Remainders of vectors of float32 and float64, exact."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

from .conversion import cast
from .emitter import splat
from .exponentials import FORMATS
from .vectors import Vectors


def fmod(v: Vectors, x: str, y: str) -> str:
    """x - trunc(x / y) * y, exact. A multiply-add gives it where the quotient's whole part has no more bits
    than fractions have: rounding may have made it one greater, whose remainder is exact too."""
    if not v.f.target.fused_multiply_add:
        return _long_division(v, x, y)
    a, b = v.abs(x), v.abs(y)
    quotient = v.div(a, b)
    short = v.compare("lt", quotient, v.constant(2.0 ** FORMATS[v.dtype].fraction))
    rest = v.fma(v.neg(v.unary("trunc", quotient)), b, a)
    rest = v.select(v.compare("lt", rest, v.constant(0)), v.add(rest, b), rest)
    rest = v.copysign(v.select(v.compare("lt", a, b), a, rest), x)
    others = v.f.invert(short)

    def divided(values: Sequence[str]) -> list[str]:
        result, left = values
        operands = (
            v.select(left, z, v.constant(1)) for z in (x, y)
        )  # known here alone, so that none are before
        return [v.select(left, _long_division(v, *operands), result), splat(False, "bool", v.lanes)]

    return v.f.repeat([(v.type, rest), (v.mask, others)], lambda values: v.any(values[1]), divided)[0]


def _long_division(v: Vectors, x: str, y: str) -> str:
    """The same of any two: shift and subtract the fractions, as often as the exponents differ."""
    form, words = FORMATS[v.dtype], v.integers
    a, b = v.abs(x), v.abs(y)
    (fraction, exponent), (divisor, least) = (_fraction(v, z) for z in (a, b))
    zero, one = words.constant(0), words.constant(1)

    def more(values: Sequence[str]) -> str:
        return words.any(words.compare("gt", values[0], zero))

    def reduced(rest: str) -> str:
        return words.select(words.compare("ge", rest, divisor), words.sub(rest, divisor), rest)

    def step(values: Sequence[str]) -> list[str]:
        count, rest = values
        shifted = words.shift_left(reduced(rest), 1)
        active = words.compare("gt", count, zero)
        return [words.sub(count, one), words.select(active, shifted, rest)]

    known = v.both(v.compare("lt", a, v.constant(inf)), v.compare("gt", b, v.constant(0)))
    count = words.select(known, words.sub(exponent, least), zero)
    _, left = v.f.repeat([(words.type, count), (words.type, fraction)], more, step)
    rest = reduced(left)
    number = cast(words, v.dtype, rest)
    half = words.shift_right(least, 1)
    for part in (half, words.sub(least, half)):
        power = words.shift_left(words.add(part, words.constant(form.bias)), form.fraction)
        number = v.mul(number, v.from_bits(power))
    result = v.select(v.compare("lt", a, b), a, number)
    result = v.select(known, result, v.constant(nan))
    return v.select(v.compare("uno", x, y), v.add(x, y), v.copysign(result, x))


def _fraction(v: Vectors, a: str) -> tuple[str, str]:
    """(m, e): a = m * 2**e with m an integer that has its top bit set, of a finite a > 0."""
    form, words = FORMATS[v.dtype], v.integers
    lift = form.fraction + 1
    tiny = v.compare("lt", a, v.constant(2.0 ** (1 - form.bias)))
    bits = v.bits(v.select(tiny, v.mul(a, v.constant(2.0**lift)), a))
    m = words.bit_or(
        words.bit_and(bits, words.constant((1 << form.fraction) - 1)), words.constant(1 << form.fraction)
    )
    bias = form.bias + form.fraction
    offset = words.select(tiny, words.constant(bias + lift), words.constant(bias))
    return m, words.sub(words.shift_right(bits, form.fraction), offset)


def mod(v: Vectors, x: str, y: str) -> str:
    """The remainder with the divisor's sign."""
    zero, rest = v.constant(0), fmod(v, x, y)
    differ = v.differ(v.compare("lt", rest, zero), v.compare("lt", y, zero))
    moved = v.select(differ, v.add(rest, y), rest)
    return v.select(v.compare("eq", rest, zero), v.copysign(zero, y), moved)
