"""Elementary functions on vectors: exp, log, tanh, erf, pow, hyperbolic functions, remainders, of float32 and
float64.

Straight-line polynomials without calls: reduce the argument exactly, evaluate, scale by a power of two. The
frequent float32 functions are computed in float32, within 3 ulp; the others in float64 and rounded. float64
results are within 4 ulp. All handle NaN, infinities, signed zeros and subnormal numbers. Coefficients
interpolate the functions at Chebyshev nodes, computed with 80 digits; the greatest error of each polynomial
is given. `pieces.py` has those that are looked up, `trigonometry.py` the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log, nan, sqrt

import numpy as np

from ...ir import dtypes
from ...records import dataclass
from ...target import Ability
from . import pieces
from .conversion import cast
from .emitter import literal, splat, vector_constant
from .trigonometry import FUNCTIONS as TRIGONOMETRIC
from .trigonometry import acos32
from .vectors import Vectors


def function(v: Vectors, name: str, *args: str) -> str:
    """The function of that name of expr.OPERATIONS, for float32 or float64 vectors. TypeError where there
    is none."""
    if v.dtype == "float32" and name in _SINGLE:
        return _SINGLE[name](v, *args)
    double = _DOUBLE.get(name)
    if double is None or not v.floating:
        raise TypeError(f"{name} is not defined on {v.dtype}")
    if v.dtype == "float64":
        return double(v, *args, short=False)
    w = v.of("float64")
    return cast(w, v.dtype, double(w, *(cast(v, "float64", a) for a in args), short=True))


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


_FORMATS = {
    "float32": _Format(23, 127, 0.693359375, -0.00021219444005469057, "uint32"),
    "float64": _Format(52, 1023, 0.6931471803691238, 1.9082149292705877e-10, "uint64"),
}


def _nearest(v: Vectors, x: str, scale: float, offset: int) -> tuple[str, str]:
    """(n, t): n = x * scale rounded to an integer, and t, whose low bits hold n + offset."""
    rounder = v.constant(_FORMATS[v.dtype].rounder + offset)
    t = v.fma(x, v.constant(scale), rounder)
    return v.sub(t, rounder), t


def _reduced(v: Vectors, x: str, offset: int) -> tuple[str, str, str]:
    """(r, n, t): x = r + n * ln 2, |r| at most half of ln 2; t holds n + offset."""
    form = _FORMATS[v.dtype]
    n, t = _nearest(v, x, _LOG2E, offset)
    r = v.fma(n, v.constant(-form.ln2_high), x)
    return v.fma(n, v.constant(-form.ln2_low), r), n, t


def _scaled(v: Vectors, x: str, n: str, t: str) -> str:
    """x * 2**n, rounded once, for n from twice the least to twice the greatest exponent; t holds n + 2 *
    bias."""
    form = _FORMATS[v.dtype]
    if Ability.SCALE_EXPONENT in v.f.target.abilities:
        return v.scale_exponent(x, n)
    words = v.of(form.words)
    bits = v.bits(t)
    half = words.shift_right(bits, 1)
    rest = words.sub(bits, half)
    x = v.mul(x, v.from_bits(words.shift_left(half, form.fraction)))
    return v.mul(x, v.from_bits(words.shift_left(rest, form.fraction)))


def _power(v: Vectors, t: str) -> str:
    """2**n as a number, where t holds n + bias and 2**n is normal, 0 or infinite."""
    form = _FORMATS[v.dtype]
    return v.from_bits(v.of(form.words).shift_left(v.bits(t), form.fraction))


def _split(v: Vectors, x: str) -> tuple[str, str]:
    """(m, e): x = m * 2**e with m in [sqrt(1/2), sqrt(2)), of a positive x; e as a float. Subnormal
    numbers too."""
    form = _FORMATS[v.dtype]
    words = v.integers
    lift = form.fraction + 1
    tiny = v.compare("lt", x, v.constant(2.0 ** (1 - form.bias)))
    x = v.select(tiny, v.mul(x, v.constant(2.0**lift)), x)
    # the bits of sqrt(1/2)
    root = int(sqrt(0.5) * 2 ** (form.fraction + 1)) + ((form.bias - 2) << form.fraction)
    distance = words.sub(v.bits(x), words.constant(root))
    exponent = words.shift_right(distance, form.fraction)
    m = v.from_bits(
        words.add(words.bit_and(distance, words.constant((1 << form.fraction) - 1)), words.constant(root))
    )
    rounder = form.rounder
    e = v.from_bits(words.add(exponent, v.bits(v.constant(rounder))))
    e = v.sub(e, v.select(tiny, v.constant(rounder + lift), v.constant(rounder)))
    return m, e


def _log_ends(v: Vectors, x: str, result: str) -> str:
    """log's result with its values at 0, infinity, NaN and below 0."""
    zero = v.constant(0)
    outside = v.select(v.compare("eq", x, zero), v.constant(-inf), v.constant(nan))
    result = v.select(v.compare("gt", x, zero), result, outside)
    return v.select(v.compare("lt", x, v.constant(inf)), result, x)


def _clamp(v: Vectors, x: str, low: float, high: float) -> str:
    """NaN stays."""
    return v.minimum(v.maximum(x, v.constant(low), True), v.constant(high), True)


_PARTS = 16  # of an octave, whose powers below 2 are looked up

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
_TANH32 = (
    0.044418804347515106,
    0.13386738300323486,
    0.3333379030227661,
    0.6666616797447205,
    1.0,
)  # ((exp(2r) - 1)/2 - r)/r² on [-0.174, 0.174]: 1e-8 of (exp(2r) - 1)/2
_ERF32 = (
    7.853849820094183e-05,
    -0.0008010202436707914,
    0.005188330542296171,
    -0.026853814721107483,
    0.1128358542919159,
    -0.3761262595653534,
    0.12837916612625122,
)  # erf(x)/x - 1 in x² up to 1: 1e-9
_ERFC32 = (
    0.0001498484198236838,
    -0.0024697224143892527,
    0.01292582880705595,
    -0.011373491026461124,
    -0.061426419764757156,
    -0.14506055414676666,
    1.0008347034454346,
)  # (1 - erf x)^(1/8) for x from 1 to 3.95: 2e-8 of erf
_LOG2E = 1 / log(2)


def _in_parts(v: Vectors, x: str) -> tuple[str, str, str]:
    """(t, n, r): x = n ln 2 + r, with n in whole parts; the lowest bits of t number the part."""
    form = _FORMATS[v.dtype]
    rounder = v.constant(form.rounder / _PARTS)
    t = v.fma(x, v.constant(_LOG2E), rounder)
    n = v.sub(t, rounder)
    r = v.fma(n, v.constant(-form.ln2_high), x)
    return t, n, v.fma(n, v.constant(-form.ln2_low), r)


def _exp32_of_parts(v: Vectors, x: str) -> tuple[str, str]:
    """(p, n): exp(x) = p * 2**floor(n), for x clamped already: n in sixteenths, whose powers below 2 lie in a
    register, so that the polynomial is half as long."""
    t, n, r = _in_parts(v, x)
    p = v.fma(v.mul(r, r), v.polynomial(r, _EXP32_PART), r)
    powers = [literal(float(np.float32(2.0 ** (k / _PARTS))), "float32") for k in range(_PARTS)]
    power = v.permuted([vector_constant("float", powers)], v.bits(t))
    return v.fma(power, p, power), n


def _has_parts(v: Vectors) -> bool:
    return {Ability.PERMUTE, Ability.SCALE_EXPONENT} <= v.f.target.abilities


def _exp32(v: Vectors, x: str) -> str:
    least = -104.0
    bounded = _clamp(v, x, least, 89.0)
    if _has_parts(v):
        p, n = _exp32_of_parts(v, bounded)
        return v.scale_exponent(_vanishing(v, x, least, p), n)
    r, n, t = _reduced(v, bounded, 254)
    return _scaled(v, _vanishing(v, x, least, v.polynomial(r, _EXP32)), n, t)


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
    form, least = _FORMATS[v.dtype], _LEAST_POWER[v.dtype]
    lack = form.bias + least
    bounded = v.maximum(x, v.constant((least - 0.4) * log(2) / scale), True)
    if double:
        r, _, t = _reduced(v, bounded, -least)
    else:
        n, t = _nearest(v, bounded, scale * _LOG2E, -least)
        r = v.fma(n, v.constant(-log(2) / scale), bounded)
    coefficients = (*_EXP64, 1.0, 1.0) if double else _EXP32
    powers = range(len(coefficients) - 1, -1, -1)
    p = v.polynomial(r, [c * scale**k * 2.0**lack for k, c in zip(powers, coefficients)])
    return v.mul(p, _power(v, t))


def _vanishing(v: Vectors, x: str, least: float, p: str) -> str:
    """p, or 0 where x is below `least` and the result too small for any number: what underflows takes many
    processors a hundred times longer than what is 0, and masks of attention are all of that kind."""
    return v.select(v.compare("lt", x, v.constant(least)), v.constant(0), p)


def sigmoid(v: Vectors, x: str, height: float = 1.0) -> str:
    """height / (1 + exp(-x)): exp's power of two becomes part of the sum, infinite where exp(-x) is."""
    if v.dtype == "float32" and _has_parts(v):
        p, n = _exp32_of_parts(v, _clamp(v, v.neg(x), -87.0, 89.0))
        return v.div(v.constant(height), v.add(v.scale_exponent(p, n), v.constant(1)))
    # height / (1 + power * (q + p) / (q - p))
    ends = (-87.0, 89.0) if v.dtype == "float32" else (-708.0, 710.0)
    q, p, power = _exp_quotient(v, _clamp(v, v.neg(x), *ends))
    rest = v.sub(q, p)
    total = v.fma(power, v.add(q, p), rest)
    return v.div(rest if height == 1 else v.mul(rest, v.constant(height)), total)


def one_and_tanh(v: Vectors, x: str) -> str:
    """1 + tanh x of float32, as 2 / (1 + exp(-2x)), which stays exact where the two nearly cancel."""
    return sigmoid(v, v.add(x, x), 2.0)


def _log32(v: Vectors, x: str) -> str:
    form = _FORMATS["float32"]
    m, e = _split(v, x)
    f = v.sub(m, v.constant(1))
    square = v.mul(f, f)
    y = v.mul(v.mul(square, f), v.polynomial(f, _LOG32))
    y = v.fma(e, v.constant(form.ln2_low), y)
    y = v.fma(square, v.constant(-0.5), y)
    return _log_ends(v, x, v.fma(e, v.constant(form.ln2_high), v.add(f, y)))


def _tanh32(v: Vectors, x: str) -> str:
    """h / (h + 1) with h = (exp(2x) - 1) / 2, which is a sum of two products with 2**n. Looked up in pieces
    where lanes are permuted."""
    if Ability.PERMUTE in v.f.target.abilities:
        return pieces.looked_up(v, x, pieces.tanh32(), _FORMATS["float32"].rounder)
    bounded = v.minimum(v.abs(x), v.constant(10.0), True)
    n, t = _nearest(v, bounded, 2 * _LOG2E, 127)
    r = v.fma(n, v.constant(-log(2) / 2), bounded)
    part = v.fma(v.mul(r, r), v.polynomial(r, _TANH32), r)
    power = _power(v, t)
    h = v.fma(power, part, v.fma(power, v.constant(0.5), v.constant(-0.5)))
    return v.copysign(v.div(h, v.add(h, v.constant(1))), x)


def _erf32(v: Vectors, x: str) -> str:
    if Ability.PERMUTE in v.f.target.abilities:
        return pieces.looked_up(v, x, pieces.erf32(), _FORMATS["float32"].rounder)
    return _erf_by_roots(v, x, _ERF32, _ERFC32, 3.95)


def _erf_by_roots(v: Vectors, x: str, small: Sequence[float], root: Sequence[float], end: float) -> str:
    """x + x small(x²) up to 1, 1 - root(x)^8 from there to `end`: a power of a polynomial falls as quickly as
    what is left of 1 does, without an exponential function or a division."""
    a = v.abs(x)
    near = v.fma(x, v.polynomial(v.mul(x, x), small), x)
    left = v.polynomial(v.minimum(a, v.constant(end), True), root)
    left = v.mul(left, left)
    left = v.mul(left, left)
    far = v.fma(v.neg(left), left, v.constant(1))
    return v.select(v.compare("gt", a, v.constant(1)), v.copysign(far, x), near)


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
_EXP_QUOTIENT = {
    "float32": ((0.016644957930981541, 1.0), (0.19995641763687837, 2.0)),
    "float64": (
        (6.608678966401472e-05, 0.027774728871594547, 1.0),
        (0.0019835172804288351, 0.22221612440985151, 2.0),
    ),
}  # P, Q in r² up to 0.1217: exp r = (Q + r P) / (Q - r P): 2e-10, 2e-18
_ATANH = (
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
_SINH64 = (
    7.746178593018827e-13,
    1.6057679623801638e-10,
    2.5052117695907823e-08,
    2.7557319191381816e-06,
    0.00019841269841324198,
    0.008333333333333299,
    1 / 6,
)  # (sinh x - x)/x³ in x² up to 1: 3e-19
_ERF64 = (
    -7.779467009284168e-10,
    1.3710979620445635e-08,
    -1.6206313583187198e-07,
    1.6447131549126013e-06,
    -1.492471230029015e-05,
    0.00012055293576816174,
    -0.0008548325929311893,
    0.005223977606118426,
    -0.02686617064311146,
    0.11283791670944185,
    -0.3761263890318352,
    0.12837916709551256,
)  # erf(x)/x - 1 in x² up to 1: 7e-18
_ERFC64 = (
    -3.7520577386793685e-13,
    1.6813962886348222e-11,
    -3.5442504015917604e-10,
    4.641808785039433e-09,
    -4.167212958230489e-08,
    2.645830265950719e-07,
    -1.1789787090674094e-06,
    3.579413364490616e-06,
    -7.103554009952426e-06,
    3.662558768435686e-06,
    8.494781503736453e-05,
    -0.0005180538888947669,
    0.00019922744222624936,
    0.006575734086082051,
    -0.0020803926566807305,
    -0.06963375204689116,
    -0.14104663173123588,
    0.9999999217700695,
)  # (1 - erf x)^(1/8) for x from 1 to 5.95: 2e-17 of erf


def _expm1_reduced(v: Vectors, x: str, offset: int, low: str | None = None) -> tuple[str, str, str]:
    """(p, n, t): exp(x + low) = (1 + p) * 2**n, for x clamped already; t holds n + offset."""
    r, n, t = _reduced(v, x, offset)
    if low is not None:
        r = v.add(r, low)
    return v.fma(v.mul(r, r), v.polynomial(r, _EXP64), r), n, t


def _exp64(v: Vectors, x: str, low: str | None = None) -> str:
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


def _half_exp(v: Vectors, x: str) -> str:
    """exp(x) / 2 of x >= 0, which overflows a little later than exp."""
    p, n, t = _expm1_reduced(v, v.minimum(x, v.constant(712.0), True), 2045)
    return _scaled(v, v.add(p, v.constant(1)), v.sub(n, v.constant(1)), t)


def _log64(v: Vectors, x: str, short: bool = False) -> str:
    """f - (f²/2 - (s (f²/2 + R) + e ln2_low)) + e ln2_high with s = f / (2 + f), R = log((1+s)/(1-s))/s -
    2."""
    form = _FORMATS["float64"]
    m, e = _split(v, x)
    f = v.sub(m, v.constant(1))
    s = v.div(f, v.add(f, v.constant(2)))
    z = v.mul(s, s)
    coefficients = _ATANH_SHORT if short else _ATANH
    rest = v.mul(z, v.polynomial(z, [2 * c for c in coefficients]))
    half = v.mul(v.mul(f, f), v.constant(0.5))
    inner = v.add(v.mul(s, v.add(half, rest)), v.mul(e, v.constant(form.ln2_low)))
    result = v.sub(v.mul(e, v.constant(form.ln2_high)), v.sub(v.sub(half, inner), f))
    return _log_ends(v, x, result)


def _exp_quotient(v: Vectors, x: str) -> tuple[str, str, str]:
    """(q, p, power): exp(x) = power * (q + p) / (q - p), for x clamped already to where the power of two is
    normal, 0 or infinite: half as many steps as a polynomial, for whoever divides anyway."""
    r, _, t = _reduced(v, x, _FORMATS[v.dtype].bias)
    odd, even = (v.polynomial(v.mul(r, r), part) for part in _EXP_QUOTIENT[v.dtype])
    return even, v.mul(r, odd), _power(v, t)


def _tanh64(v: Vectors, x: str) -> str:
    """(e - 1) / (e + 1) with e = exp(2x) = power * (q + p) / (q - p), which near 0 is p / q."""
    a = v.minimum(v.abs(x), v.constant(20.0), True)
    q, p, power = _exp_quotient(v, v.add(a, a))
    more, less = v.add(power, v.constant(1)), v.sub(power, v.constant(1))
    above = v.fma(less, q, v.mul(more, p))
    below = v.fma(more, q, v.mul(less, p))
    if not v.f.target.fused_multiply_add:  # products are rounded, but for those with a power of two
        exact, rest = v.mul(power, v.add(q, p)), v.sub(q, p)
        above = v.select(v.compare("gt", power, v.constant(4)), v.sub(exact, rest), above)
        below = v.add(exact, rest)
    return v.copysign(v.div(above, below), x)


def _sinh64(v: Vectors, x: str) -> str:
    a = v.abs(x)
    half = _half_exp(v, a)
    large = v.sub(half, v.div(v.constant(0.25), half))
    square = v.mul(a, a)
    small = v.fma(v.mul(square, a), v.polynomial(square, _SINH64), a)
    return v.copysign(v.select(v.compare("gt", a, v.constant(1)), large, small), x)


def _cosh64(v: Vectors, x: str) -> str:
    half = _half_exp(v, v.abs(x))
    return v.add(half, v.div(v.constant(0.25), half))


def _log1p_or_log(v: Vectors, u: str, large: str, alternative: str, constant: float) -> str:
    """log(1 + u); in the lanes `large` log(alternative) + constant."""
    one = v.constant(1)
    w = v.add(u, one)
    lost = v.div(v.sub(u, v.sub(w, one)), w)  # what rounding 1 + u took away
    w = v.select(large, alternative, w)
    return v.add(_log64(v, w), v.select(large, v.constant(constant), lost))


def _asinh64(v: Vectors, x: str) -> str:
    a = v.abs(x)
    square, one = v.mul(a, a), v.constant(1)
    root = v.unary("sqrt", v.add(square, one))
    u = v.add(a, v.div(square, v.add(root, one)))
    return v.copysign(_log1p_or_log(v, u, v.compare("gt", a, v.constant(2.0**28)), a, log(2)), x)


def _acosh64(v: Vectors, x: str) -> str:
    t = v.sub(x, v.constant(1))
    t = v.select(v.compare("lt", t, v.constant(0)), v.constant(nan), t)
    u = v.add(t, v.unary("sqrt", v.fma(t, t, v.add(t, t))))
    return _log1p_or_log(v, u, v.compare("gt", x, v.constant(2.0**28)), x, log(2))


def _atanh64(v: Vectors, x: str) -> str:
    a = v.abs(x)
    u = v.div(v.add(a, a), v.sub(v.constant(1), a))
    infinite = v.compare("eq", u, v.constant(inf))
    return v.copysign(v.mul(_log1p_or_log(v, u, infinite, u, 0.0), v.constant(0.5)), x)


def _erf64(v: Vectors, x: str) -> str:
    if Ability.PERMUTE in v.f.target.abilities:
        return pieces.looked_up(v, x, pieces.erf64(), _FORMATS["float64"].rounder)
    return _erf_by_roots(v, x, _ERF64, _ERFC64, 5.95)


# Powers ------------------------------------------------------------------------------------------


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


def _pow(v: Vectors, x: str, y: str, short: bool) -> str:
    """exp(y log|x|) with the logarithm as a sum of two numbers, then the sign and the special cases of
    IEEE 754."""
    zero, one, infinity = v.constant(0), v.constant(1), v.constant(inf)
    a = v.abs(x)
    if short:
        result = _exp64(v, v.mul(y, _log64(v, a, True)))
    else:
        high, low = _product(v, y, *_long_log(v, a))
        result = _exp64(v, high, v.select(v.compare("lt", v.abs(high), v.constant(800)), low, zero))
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
    form, one = _FORMATS["float64"], v.constant(1)
    m, e = _split(v, x)
    f, g = v.sub(m, one), v.add(m, one)
    g_low = v.sub(m, v.sub(g, one))
    s = v.div(f, g)
    p, error = _exact_product(v, s, g)
    s_low = v.div(v.sub(v.sub(v.sub(f, p), error), v.mul(s, g_low)), g)
    z, z_low = _exact_product(v, s, s)
    z_low = v.fma(v.add(s, s), s_low, z_low)
    tail = v.mul(z, v.polynomial(z, _ATANH[:-1]))  # beyond s³/3, relative to it
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


# Remainders --------------------------------------------------------------------------------------


def _fmod(v: Vectors, x: str, y: str) -> str:
    """x - trunc(x / y) * y, exact. A multiply-add gives it where the quotient's whole part has no more bits
    than fractions have: rounding may have made it one greater, whose remainder is exact too."""
    if not v.f.target.fused_multiply_add:
        return _long_division(v, x, y)
    a, b = v.abs(x), v.abs(y)
    quotient = v.div(a, b)
    short = v.compare("lt", quotient, v.constant(2.0 ** _FORMATS[v.dtype].fraction))
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
    form, words = _FORMATS[v.dtype], v.integers
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
    form, words = _FORMATS[v.dtype], v.integers
    lift = form.fraction + 1
    tiny = v.compare("lt", a, v.constant(2.0 ** (1 - form.bias)))
    bits = v.bits(v.select(tiny, v.mul(a, v.constant(2.0**lift)), a))
    m = words.bit_or(
        words.bit_and(bits, words.constant((1 << form.fraction) - 1)), words.constant(1 << form.fraction)
    )
    bias = form.bias + form.fraction
    offset = words.select(tiny, words.constant(bias + lift), words.constant(bias))
    return m, words.sub(words.shift_right(bits, form.fraction), offset)


def _mod(v: Vectors, x: str, y: str) -> str:
    """The remainder with the divisor's sign."""
    zero, rest = v.constant(0), _fmod(v, x, y)
    differ = v.differ(v.compare("lt", rest, zero), v.compare("lt", y, zero))
    moved = v.select(differ, v.add(rest, y), rest)
    return v.select(v.compare("eq", rest, zero), v.copysign(zero, y), moved)


# Tables ------------------------------------------------------------------------------------------

_SINGLE: dict[str, Callable[..., str]] = {
    "exp": _exp32,
    "log": _log32,
    "tanh": _tanh32,
    "erf": _erf32,
    "acos": acos32,
    "fmod": _fmod,
    "mod": _mod,
}


def _same(double: Callable[..., str]) -> Callable[..., str]:
    """A function that has one precision."""
    return lambda v, *args, short: double(v, *args)


_DOUBLE: dict[str, Callable[..., str]] = {
    "exp": _same(_exp64),
    "log": _log64,
    "tanh": _same(_tanh64),
    "erf": _same(_erf64),
    "pow": _pow,
    "fmod": _same(_fmod),
    "mod": _same(_mod),
    "sinh": _same(_sinh64),
    "cosh": _same(_cosh64),
    "asinh": _same(_asinh64),
    "acosh": _same(_acosh64),
    "atanh": _same(_atanh64),
    **TRIGONOMETRIC,
}
