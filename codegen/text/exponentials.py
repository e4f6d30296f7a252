"""exp and log on vectors of float32 and float64, these beside 1, and on exp alone softmax and sigmoid.

exp    x = n * ln 2 + r; a polynomial of r, scaled by a power of two
log    x = m * 2**e; a polynomial of m near 1
expm1  the polynomial less 1, scaled, and what that takes from the power of two
log1p  1 + x = m * 2**e; m - 1 made of x, of which nothing is lost
"""

from __future__ import annotations

from math import inf, log, nan, sqrt

import numpy as np

from ...records import dataclass
from ...target import Ability
from .emitter import literal, vector_constant
from .vectors import Vectors

# Powers of two -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Format:
    """Of the float type: bits of the fraction, exponent bias, ln 2 in a part of few bits and the rest, and
    the unsigned integer type of its width."""

    fraction: int
    bias: int
    ln2_high: float
    ln2_low: float
    words: str

    @property
    def rounder(self) -> float:
        """x + rounder rounds x to an integer, which stands in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction


FORMATS = {
    "float32": _Format(23, 127, 0.693359375, -0.00021219444005469057, "uint32"),
    "float64": _Format(52, 1023, 0.6931471803691238, 1.9082149292705877e-10, "uint64"),
}
LOG2E = 1 / log(2)


def nearest(v: Vectors, x: str, scale: float, offset: int) -> tuple[str, str]:
    """(n, t): n = x * scale rounded to an integer, and t, whose low bits hold n + offset."""
    rounder = v.constant(FORMATS[v.dtype].rounder + offset)
    t = v.fma(x, v.constant(scale), rounder)
    return v.sub(t, rounder), t


def _reduced(v: Vectors, x: str, offset: int) -> tuple[str, str, str]:
    """(r, n, t): x = r + n * ln 2, |r| at most half of ln 2; t holds n + offset."""
    form = FORMATS[v.dtype]
    n, t = nearest(v, x, LOG2E, offset)
    r = v.fma(n, v.constant(-form.ln2_high), x)
    return v.fma(n, v.constant(-form.ln2_low), r), n, t


def _scaled(v: Vectors, x: str, n: str, t: str) -> str:
    """x * 2**n, rounded once, for n from twice the least to twice the greatest exponent; t holds n + 2 *
    bias."""
    form = FORMATS[v.dtype]
    if Ability.SCALE_EXPONENT in v.f.target.abilities:
        return v.scale_exponent(x, n)
    words = v.of(form.words)
    bits = v.bits(t)
    half = words.shift_right(bits, 1)
    rest = words.sub(bits, half)
    x = v.mul(x, v.from_bits(words.shift_left(half, form.fraction)))
    return v.mul(x, v.from_bits(words.shift_left(rest, form.fraction)))


def power_of_two(v: Vectors, t: str) -> str:
    """2**n as a number, where t holds n + bias and 2**n is normal, 0 or infinite."""
    form = FORMATS[v.dtype]
    return v.from_bits(v.of(form.words).shift_left(v.bits(t), form.fraction))


def _root_bits(form: _Format) -> int:
    """The bits of sqrt(1/2)."""
    return int(sqrt(0.5) * 2 ** (form.fraction + 1)) + ((form.bias - 2) << form.fraction)


def split(v: Vectors, x: str) -> tuple[str, str]:
    """(m, e): x = m * 2**e with m in [sqrt(1/2), sqrt(2)), of a positive x; e as a float. Subnormal
    numbers too."""
    form = FORMATS[v.dtype]
    words = v.integers
    lift = form.fraction + 1
    tiny = v.compare("lt", x, v.constant(2.0 ** (1 - form.bias)))
    x = v.select(tiny, v.mul(x, v.constant(2.0**lift)), x)
    root = _root_bits(form)
    distance = words.sub(v.bits(x), words.constant(root))
    exponent = words.shift_right(distance, form.fraction)
    m = v.from_bits(
        words.add(words.bit_and(distance, words.constant((1 << form.fraction) - 1)), words.constant(root))
    )
    rounder = form.rounder
    e = v.from_bits(words.add(exponent, v.bits(v.constant(rounder))))
    e = v.sub(e, v.select(tiny, v.constant(rounder + lift), v.constant(rounder)))
    return m, e


def _split_beside_one(v: Vectors, u: str, w: str) -> tuple[str, str]:
    """(f, e): 1 + u = (1 + f) * 2**e with 1 + f in [sqrt(1/2), sqrt(2)), f rounded once; w is 1 + u rounded,
    and positive. e as a float."""
    form = FORMATS[v.dtype]
    words = v.integers
    distance = words.sub(v.bits(w), words.constant(_root_bits(form)))
    scale = words.bit_and(distance, words.constant(-1 << form.fraction))  # e where exponents stand
    four = v.from_bits(words.sub(v.bits(v.constant(4)), scale))  # 2**-e may be subnormal
    f = v.add(v.from_bits(words.sub(v.bits(u), scale)), v.fma(four, v.constant(0.25), v.constant(-1)))
    rounder = v.constant(form.rounder)
    exponent = words.shift_right(distance, form.fraction)
    return f, v.sub(v.from_bits(words.add(exponent, v.bits(rounder))), rounder)


def _log_ends(v: Vectors, x: str, result: str) -> str:
    """log's result with its values at 0, infinity, NaN and below 0."""
    zero = v.constant(0)
    outside = v.select(v.compare("eq", x, zero), v.constant(-inf), v.constant(nan))
    result = v.select(v.compare("gt", x, zero), result, outside)
    return v.select(v.compare("lt", x, v.constant(inf)), result, x)


def _clamp(v: Vectors, x: str, low: float, high: float) -> str:
    """NaN stays."""
    return v.minimum(v.maximum(x, v.constant(low), True), v.constant(high), True)


def _vanishing(v: Vectors, x: str, least: float, p: str) -> str:
    """p, or 0 where x is below `least` and the result too small for any number: what underflows takes many
    processors a hundred times longer than what is 0, and masks of attention are all of that kind."""
    return v.select(v.compare("lt", x, v.constant(least)), v.constant(0), p)


_PARTS = 16  # of an octave, whose powers below 2 are looked up


def _has_parts(v: Vectors) -> bool:
    return {Ability.PERMUTE, Ability.SCALE_EXPONENT} <= v.f.target.abilities


def _in_parts(v: Vectors, x: str) -> tuple[str, str, str]:
    """(t, n, r): x = n ln 2 + r, with n in whole parts; the lowest bits of t number the part."""
    form = FORMATS[v.dtype]
    rounder = v.constant(form.rounder / _PARTS)
    t = v.fma(x, v.constant(LOG2E), rounder)
    n = v.sub(t, rounder)
    r = v.fma(n, v.constant(-form.ln2_high), x)
    return t, n, v.fma(n, v.constant(-form.ln2_low), r)


# float32 -----------------------------------------------------------------------------------------

_EXP32 = (
    0.0013926391896140632,
    0.00836334581098711,
    0.041666553362644264,
    0.16666575985420823,
    0.5,
    1.0,
    1.0,
)  # of exp on [-0.348, 0.348]: 8e-9
_EXP32_PART = (1 / 6, 0.50000978)  # (exp r - 1 - r)/r² on [-0.0218, 0.0218]: 5e-9 of exp
_LOG32 = (
    0.06980701958664969,
    -0.11494546612890216,
    0.1168907113745787,
    -0.12424037717650198,
    0.1424855126436147,
    -0.16667850972851767,
    0.2000073050385224,
    -0.2499999662693948,
    0.3333333112188015,
)  # (log(1+f)-f+f²/2)/f³: 3e-8


def _exp32_of_parts(v: Vectors, x: str) -> tuple[str, str]:
    """(p, n): exp(x) = p * 2**floor(n), for x clamped already: n in sixteenths, whose powers below 2 lie in a
    register, so that the polynomial is half as long."""
    t, n, r = _in_parts(v, x)
    p = v.fma(v.mul(r, r), v.polynomial(r, _EXP32_PART), r)
    powers = [literal(float(np.float32(2.0 ** (k / _PARTS))), "float32") for k in range(_PARTS)]
    power = v.permuted([vector_constant("float", powers)], v.bits(t))
    return v.fma(power, p, power), n


def exp32(v: Vectors, x: str) -> str:
    """exp(x) of float32."""
    least = -104.0
    bounded = _clamp(v, x, least, 89.0)
    if _has_parts(v):
        p, n = _exp32_of_parts(v, bounded)
        return v.scale_exponent(_vanishing(v, x, least, p), n)
    r, n, t = _reduced(v, bounded, 254)
    return _scaled(v, _vanishing(v, x, least, v.polynomial(r, _EXP32)), n, t)


def log32(v: Vectors, x: str) -> str:
    """log(x) of float32."""
    m, e = split(v, x)
    return _log_ends(v, x, _log32_of(v, v.sub(m, v.constant(1)), e))


def _log32_of(v: Vectors, f: str, e: str, near: str | None = None) -> str:
    """log((1 + f) * 2**e). near: f, or 0 where log(1 + f) is f."""
    form, near = FORMATS["float32"], near or f
    square = v.mul(near, near)
    y = v.mul(v.mul(square, near), v.polynomial(near, _LOG32))
    y = v.fma(e, v.constant(form.ln2_low), y)
    y = v.fma(square, v.constant(-0.5), y)
    return v.fma(e, v.constant(form.ln2_high), v.add(f, y))


# float64 -----------------------------------------------------------------------------------------

_EXP64 = (
    2.0914898727175524e-09,
    2.5105513541847086e-08,
    2.755727313289604e-07,
    2.7557254685728803e-06,
    2.480158732595111e-05,
    0.0001984126987538548,
    0.0013888888888883633,
    0.008333333333325973,
    0.04166666666666667,
    0.1666666666666667,
    0.5,
)  # (exp r - 1 - r)/r² on [-0.348, 0.348]: 1e-18
_EXP64_PART = (
    0.001388903580684074,
    0.008333450867849534,
    0.04166666666492607,
    0.16666666665274185,
    0.5,
)  # the same on [-0.0218, 0.0218]: 3e-17 of exp
ATANH = (
    0.0654570616679975,
    0.0663415735008861,
    0.07693128424996798,
    0.09090897662172168,
    0.11111111197337102,
    0.14285714285395265,
    0.20000000000000448,
    1 / 3,
)  # (atanh s - s)/s³ in s² up to 0.0296: 1e-18
_ATANH_SHORT = (0.11667182417561892, 0.14275338667614562, 0.20000061553329337, 0.3333333327647274)  # 6e-10


def _expm1_reduced(v: Vectors, x: str, offset: int, low: str | None = None) -> tuple[str, str, str]:
    """(p, n, t): exp(x + low) = (1 + p) * 2**n, for x clamped already; t holds n + offset."""
    r, n, t = _reduced(v, x, offset)
    if low is not None:
        r = v.add(r, low)
    return v.fma(v.mul(r, r), v.polynomial(r, _EXP64), r), n, t


def exp64(v: Vectors, x: str, low: str | None = None) -> str:
    """exp(x), or exp(x + low), of float64."""
    if _has_parts(v):
        return _exp64_of_parts(v, x, low)
    p, n, t = _expm1_reduced(v, _clamp(v, x, -746.0, 710.0), 2046, low)
    return _scaled(v, _vanishing(v, x, -746.0, v.add(p, v.constant(1))), n, t)


def _exp64_of_parts(v: Vectors, x: str, low: str | None, least: float = -746.0) -> str:
    """(1 + p) * 2**n, 0 below `least`, with n in sixteenths, whose powers below 2 lie in two registers: the
    polynomial is half as long as that of whole n."""
    t, n, r = _in_parts(v, _clamp(v, x, least, 710.0))
    if low is not None:
        r = v.add(r, low)
    p = v.fma(v.mul(r, r), v.polynomial(r, _EXP64_PART), r)
    powers = [literal(2.0 ** (k / _PARTS), "float64") for k in range(_PARTS)]
    tables = [vector_constant("double", powers[k : k + _PARTS // 2]) for k in (0, _PARTS // 2)]
    power = v.permuted(tables, v.bits(t))
    return v.scale_exponent(_vanishing(v, x, least, v.fma(power, p, power)), n)


def half_exp(v: Vectors, x: str) -> str:
    """exp(x) / 2 of x >= 0, which overflows a little later than exp."""
    p, n, t = _expm1_reduced(v, v.minimum(x, v.constant(712.0), True), 2045)
    return _scaled(v, v.add(p, v.constant(1)), v.sub(n, v.constant(1)), t)


def log64(v: Vectors, x: str, short: bool = False) -> str:
    """log(x) of float64. short: by fewer coefficients."""
    m, e = split(v, x)
    return _log_ends(v, x, _log64_of(v, v.sub(m, v.constant(1)), e, short=short))


def _log64_of(v: Vectors, f: str, e: str, near: str | None = None, short: bool = False) -> str:
    """log((1 + f) * 2**e) = f - (f²/2 - (s (f²/2 + R) + e ln2_low)) + e ln2_high with s = f / (2 + f), R =
    log((1+s)/(1-s))/s - 2. near: f, or 0 where log(1 + f) is f."""
    form, near = FORMATS["float64"], near or f
    s = v.div(near, v.add(near, v.constant(2)))
    z = v.mul(s, s)
    coefficients = _ATANH_SHORT if short else ATANH
    rest = v.mul(z, v.polynomial(z, [2 * c for c in coefficients]))
    half = v.mul(v.mul(near, near), v.constant(0.5))
    inner = v.add(v.mul(s, v.add(half, rest)), v.mul(e, v.constant(form.ln2_low)))
    return v.sub(v.mul(e, v.constant(form.ln2_high)), v.sub(v.sub(half, inner), f))


# Beside 1 ----------------------------------------------------------------------------------------


def expm1(v: Vectors, x: str) -> str:
    """exp(x) - 1 = 2 * (p * 2**(n-1) + (2**(n-1) - 1/2)) with exp(x) = (1 + p) * 2**n: where n is 0 only p is
    left, and before it is doubled nothing overflows."""
    offset = FORMATS[v.dtype].bias - 1
    if v.dtype == "float64":
        p, _, t = _expm1_reduced(v, _clamp(v, x, -40.0, 710.0), offset)
    else:
        r, _, t = _reduced(v, _clamp(v, x, -20.0, 89.0), offset)
        p = v.mul(r, v.polynomial(r, _EXP32[:-1]))
    power = power_of_two(v, t)
    half = v.fma(power, p, v.sub(power, v.constant(0.5)))
    return v.copysign(v.add(half, half), x)


def log1p(v: Vectors, x: str) -> str:
    """log(1 + x), without squares of what is so small that they would be subnormal."""
    w = v.add(x, v.constant(1))
    f, e = _split_beside_one(v, x, w)
    small = v.compare("lt", v.abs(f), v.constant(2.0 ** -(FORMATS[v.dtype].fraction + 2)))
    near = v.select(small, v.constant(0), f)
    of = _log32_of if v.dtype == "float32" else _log64_of
    return v.copysign(_log_ends(v, w, of(v, f, e, near)), x)


# Softmax and sigmoid -----------------------------------------------------------------------------

_EXP_QUOTIENT = {
    "float32": ((0.016644957930981541, 1.0), (0.19995641763687837, 2.0)),
    "float64": (
        (6.608678966401472e-05, 0.027774728871594547, 1.0),
        (0.0019835172804288351, 0.22221612440985151, 2.0),
    ),
}  # P, Q in r² up to 0.1217: exp r = (Q + r P) / (Q - r P): 2e-10, 2e-18
_LEAST_POWER = {"float32": -115, "float64": -1010}  # of two that `softmax_exp` takes for 0

#: From here on exp(x) is a normal number, and so is its part of a sum of up to a thousand of at most 1.
FAR_BELOW = {dtype: (power + 0.5) * log(2) for dtype, power in _LEAST_POWER.items()}


def softmax_exp(v: Vectors, x: str, scale: float = 1.0) -> str:
    """exp(scale * x) for x <= 0, 0 below FAR_BELOW, of float32 as exact as if scale * x were rounded once:
    to a relative 2e-7 + 6e-8 |scale * x|. Processors take a hundred times longer to make a subnormal number,
    and for every product with one; masks of -100, as models with windows have, make rows of them."""
    far, double = FAR_BELOW[v.dtype], v.dtype == "float64"
    if _has_parts(v) or double or not 1e-3 < scale < 1e3:
        x, scale = x if scale == 1 else v.mul(x, v.constant(scale)), 1.0
    if _has_parts(v):
        if double:
            return _exp64_of_parts(v, x, None, far)
        p, n = _exp32_of_parts(v, v.maximum(x, v.constant(far), True))
        return v.scale_exponent(_vanishing(v, x, far, p), n)
    # The power of two that the exponent's bits hold vanishes where they are 0; p makes up for what it lacks.
    form, least = FORMATS[v.dtype], _LEAST_POWER[v.dtype]
    lack = form.bias + least
    bounded = v.maximum(x, v.constant((least - 0.4) * log(2) / scale), True)
    if double:
        r, _, t = _reduced(v, bounded, -least)
    else:
        n, t = nearest(v, bounded, scale * LOG2E, -least)
        r = v.fma(n, v.constant(-log(2) / scale), bounded)
    coefficients = (*_EXP64, 1.0, 1.0) if double else _EXP32
    powers = range(len(coefficients) - 1, -1, -1)
    p = v.polynomial(r, [c * scale**k * 2.0**lack for k, c in zip(powers, coefficients)])
    return v.mul(p, power_of_two(v, t))


def exp_quotient(v: Vectors, x: str) -> tuple[str, str, str]:
    """(q, p, power): exp(x) = power * (q + p) / (q - p), for x clamped already to where the power of two is
    normal, 0 or infinite: half as many steps as a polynomial, for whoever divides anyway."""
    r, _, t = _reduced(v, x, FORMATS[v.dtype].bias)
    odd, even = (v.polynomial(v.mul(r, r), part) for part in _EXP_QUOTIENT[v.dtype])
    return even, v.mul(r, odd), power_of_two(v, t)


def sigmoid(v: Vectors, x: str, height: float = 1.0) -> str:
    """height / (1 + exp(-x)): exp's power of two becomes part of the sum, infinite where exp(-x) is."""
    if v.dtype == "float32" and _has_parts(v):
        p, n = _exp32_of_parts(v, _clamp(v, v.neg(x), -87.0, 89.0))
        return v.div(v.constant(height), v.add(v.scale_exponent(p, n), v.constant(1)))
    # height / (1 + power * (q + p) / (q - p))
    ends = (-87.0, 89.0) if v.dtype == "float32" else (-708.0, 710.0)
    q, p, power = exp_quotient(v, _clamp(v, v.neg(x), *ends))
    rest = v.sub(q, p)
    total = v.fma(power, v.add(q, p), rest)
    return v.div(rest if height == 1 else v.mul(rest, v.constant(height)), total)


def one_and_tanh(v: Vectors, x: str) -> str:
    """1 + tanh x of float32, as 2 / (1 + exp(-2x)), which stays exact where the two nearly cancel."""
    return sigmoid(v, v.add(x, x), 2.0)
