"""Powers of vectors: by multiplications and roots where the exponent is a fitting number, else by exp and
log."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan

from ...ir import dtypes
from ...target import Ability
from .exponentials import ATANH, FORMATS, exp64, log64, split
from .vectors import Vectors


def constant_power(v: Vectors, x: str, exponent: float) -> str | None:
    """x ** exponent where few multiplications or roots do it, else None."""
    if -exponent in _QUARTERS:
        if v.dtype == "float32" and Ability.ESTIMATE_ROOT in v.f.target.abilities:
            return _reciprocal_root32(v, x, _QUARTERS[-exponent])
        root = constant_power(v, x, -exponent)
        return v.div(v.constant(1), str(root))
    if exponent in _QUARTERS:
        root = v.unary("sqrt", v.add(x, v.constant(0)))  # -0 becomes 0
        root = v.select(v.compare("eq", x, v.constant(-inf)), v.constant(inf), root)
        if exponent == 0.5:
            return root
        quarter = v.unary("sqrt", root)
        return quarter if exponent == 0.25 else v.mul(root, quarter)
    if exponent not in (-3, -2, -1, 1, 2, 3, 4):
        return None
    if exponent < 0:
        x = v.div(v.constant(1), x)
    count = int(abs(exponent))
    square = v.mul(x, x) if count > 1 else x
    return {1: lambda: x, 2: lambda: square, 3: lambda: v.mul(square, x), 4: lambda: v.mul(square, square)}[
        count
    ]()


_QUARTERS = {0.25: 1, 0.5: 2, 0.75: 3}


def _reciprocal_root32(v: Vectors, x: str, quarters: int) -> str:
    """x ** -(quarters / 4), within 2 ulp, from estimates y of it: y * (1 - e) ** -(1 / n) for an e that is
    1 - y ** n * x ** m, which takes a third of the time of roots and a division."""
    x = v.select(v.compare("eq", x, v.constant(-inf)), v.constant(inf), v.add(x, v.constant(0)))  # -0 is 0
    root = v.root_estimate(x)  # x ** -1/2; of it a second one is x ** 1/4
    if quarters == 2:
        y = half = root
    else:
        y = v.mul(root, v.root_estimate(root))
        half = v.mul(y, y)
        if quarters == 3:
            y = v.mul(root, y)
            half = v.mul(v.mul(y, x), y)
    e = v.fma(v.neg(v.mul(half, x)), half, v.constant(1))  # half is about x ** -1/2: nothing leaves its range
    factor = v.constant(0.5) if quarters == 2 else v.fma(e, v.constant(5 / 32), v.constant(0.25))
    found = v.fma(v.mul(y, e), factor, y)
    return v.select(v.is_nan(e), root, found)  # of 0, infinity, and what has no root


def whole_power(v: Vectors, x: str, exponent: int) -> str:
    """x to a constant power of 0 and more; of integers wrapping."""
    found: str | None = None
    while exponent:
        if exponent & 1:
            found = x if found is None else v.mul(found, x)
        exponent >>= 1
        x = v.mul(x, x) if exponent else x
    return v.constant(1) if found is None else found


def integer_power(v: Vectors, b: Vectors, base: str, exponent: str) -> str:
    """Wrapping; a negative exponent gives 0, but for the bases 1 and -1."""
    zero, one = b.constant(0), b.constant(1)
    remaining = exponent
    if dtypes.is_signed(b.dtype):
        remaining = b.select(b.compare("lt", exponent, zero), zero, exponent)

    def more(values: Sequence[str]) -> str:
        return b.any(b.compare("ne", values[0], zero))

    def square(values: Sequence[str]) -> list[str]:
        left, power, product = values
        odd = b.compare("ne", b.bit_and(left, one), zero)
        product = v.select(odd, v.mul(product, power), product)
        return [b.of("u" + b.dtype.removeprefix("u")).shift_right(left, 1), v.mul(power, power), product]

    state = [(b.type, remaining), (v.type, base), (v.type, v.constant(1))]
    _, _, result = v.f.repeat(state, more, square)
    if not dtypes.is_signed(b.dtype):
        return result
    inverse = v.select(v.compare("eq", base, v.constant(1)), v.constant(1), v.constant(0))
    if dtypes.is_signed(v.dtype):
        odd = b.compare("ne", b.bit_and(exponent, one), zero)
        sign = v.select(odd, v.constant(-1), v.constant(1))
        inverse = v.select(v.compare("eq", base, v.constant(-1)), sign, inverse)
    return v.select(b.compare("lt", exponent, zero), inverse, result)


def power(v: Vectors, x: str, y: str, short: bool) -> str:
    """exp(y log|x|) with the logarithm as a sum of two numbers, then the sign and the special cases of
    IEEE 754."""
    zero, one, infinity = v.constant(0), v.constant(1), v.constant(inf)
    a = v.abs(x)
    if short:
        result = exp64(v, v.mul(y, log64(v, a, True)))
    else:
        high, low = _product(v, y, *_long_log(v, a))
        result = exp64(v, high, v.select(v.compare("lt", v.abs(high), v.constant(800)), low, zero))
    growing = v.compare("gt", y, zero)
    result = v.select(v.compare("eq", a, zero), v.select(growing, zero, infinity), result)
    result = v.select(v.compare("eq", a, infinity), v.select(growing, infinity, zero), result)
    # |x| > 1 and y < 0, or the reverse
    beyond = v.differ(v.compare("gt", a, one), growing)
    endless = v.select(v.compare("eq", a, one), one, v.select(beyond, zero, infinity))
    result = v.select(v.compare("eq", v.abs(y), infinity), endless, result)
    half = v.mul(y, v.constant(0.5))
    whole = v.compare("eq", v.unary("trunc", y), y)
    odd = v.both(whole, v.compare("ne", v.unary("trunc", half), half))
    result = v.select(odd, v.copysign(result, x), result)
    impossible = v.both(v.compare("lt", x, zero), v.compare("lt", a, infinity))
    impossible = v.both(impossible, v.compare("ne", v.unary("trunc", y), y))
    result = v.select(impossible, v.constant(nan), result)
    unknown = v.compare("uno", x, y)
    result = v.select(unknown, v.add(x, y), result)
    return v.select(v.either(v.compare("eq", y, zero), v.compare("eq", x, one)), one, result)


def _exact_product(v: Vectors, a: str, b: str) -> tuple[str, str]:
    """(p, e): a * b = p + e exactly (Dekker 1971 where there is no fused multiply-add)."""
    p = v.mul(a, b)
    if v.f.target.fused_multiply_add:
        return p, v.fma(a, b, v.neg(p))

    def halves(x: str) -> tuple[str, str]:
        high = v.from_bits(v.integers.bit_and(v.bits(x), v.integers.constant(-1 << 27)))
        return high, v.sub(x, high)

    (ah, al), (bh, bl) = halves(a), halves(b)
    error = v.sub(v.mul(ah, bh), p)
    error = v.add(v.add(error, v.mul(ah, bl)), v.mul(al, bh))
    return p, v.add(error, v.mul(al, bl))


def _product(v: Vectors, y: str, high: str, low: str) -> tuple[str, str]:
    p, error = _exact_product(v, y, high)
    return p, v.fma(y, low, error)


def _sum(v: Vectors, a: str, b: str) -> tuple[str, str]:
    """(s, e): a + b = s + e exactly, for |a| >= |b|."""
    s = v.add(a, b)
    return s, v.sub(b, v.sub(s, a))


def _long_log(v: Vectors, x: str) -> tuple[str, str]:
    """log(x) = high + low to about 66 bits: 2 s + 2 s³/3 + ..., with s and the first two terms as sums of
    two numbers."""
    form, one = FORMATS["float64"], v.constant(1)
    m, e = split(v, x)
    f, g = v.sub(m, one), v.add(m, one)
    g_low = v.sub(m, v.sub(g, one))
    s = v.div(f, g)
    p, error = _exact_product(v, s, g)
    s_low = v.div(v.sub(v.sub(v.sub(f, p), error), v.mul(s, g_low)), g)
    z, z_low = _exact_product(v, s, s)
    z_low = v.fma(v.add(s, s), s_low, z_low)
    tail = v.mul(z, v.polynomial(z, ATANH[:-1]))  # beyond s³/3, relative to it
    third, third_low = _sum(v, v.constant(1 / 3), v.add(tail, v.constant(1 / 3 / 2.0**54)))
    c, c_low = _exact_product(v, z, third)  # (atanh s - s) / s
    c_low = v.add(c_low, v.fma(z, third_low, v.mul(z_low, third)))
    d, d_low = _exact_product(v, s, c)
    d_low = v.add(d_low, v.fma(s, c_low, v.mul(s_low, c)))
    high, low = _sum(v, s, d)
    low = v.add(low, v.add(d_low, s_low))
    top, rest = _sum(v, v.mul(e, v.constant(form.ln2_high)), v.add(high, high))
    low = v.add(rest, v.fma(e, v.constant(form.ln2_low), v.add(low, low)))
    return _sum(v, top, low)
