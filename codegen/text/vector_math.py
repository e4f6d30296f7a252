"""Elementary functions on vectors of float32 and float64, by their names: here tanh, erf and hyperbolic
functions, beside those of `exponentials.py`, `powers.py`, `remainders.py` and `trigonometry.py`.

Straight-line polynomials without calls: reduce the argument exactly, evaluate, scale by a power of two. The
frequent float32 functions are computed in float32, within 3 ulp; the others in float64 and rounded. float64
results are within 4 ulp. All handle NaN, infinities, signed zeros and subnormal numbers. Coefficients
interpolate the functions at Chebyshev nodes, computed with 80 digits; the greatest error of each polynomial
is given. `pieces.py` has those that are looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, nan

from ...target import Ability
from . import pieces, powers, remainders
from .conversion import cast
from .exponentials import (
    FORMATS,
    LOG2E,
    exp32,
    exp64,
    exp_quotient,
    expm1,
    half_exp,
    log1p,
    log32,
    log64,
    nearest,
    power_of_two,
)
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


# float32 -----------------------------------------------------------------------------------------

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


def _tanh32(v: Vectors, x: str) -> str:
    """h / (h + 1) with h = (exp(2x) - 1) / 2, which is a sum of two products with 2**n. Looked up in pieces
    where lanes are permuted."""
    if Ability.PERMUTE in v.f.target.abilities:
        return pieces.looked_up(v, x, pieces.tanh32(), FORMATS["float32"].rounder)
    bounded = v.minimum(v.abs(x), v.constant(10.0), True)
    n, t = nearest(v, bounded, 2 * LOG2E, 127)
    r = v.fma(n, v.constant(-log(2) / 2), bounded)
    part = v.fma(v.mul(r, r), v.polynomial(r, _TANH32), r)
    power = power_of_two(v, t)
    h = v.fma(power, part, v.fma(power, v.constant(0.5), v.constant(-0.5)))
    return v.copysign(v.div(h, v.add(h, v.constant(1))), x)


def _erf32(v: Vectors, x: str) -> str:
    if Ability.PERMUTE in v.f.target.abilities:
        return pieces.looked_up(v, x, pieces.erf32(), FORMATS["float32"].rounder)
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


def _tanh64(v: Vectors, x: str) -> str:
    """(e - 1) / (e + 1) with e = exp(2x) = power * (q + p) / (q - p), which near 0 is p / q."""
    a = v.minimum(v.abs(x), v.constant(20.0), True)
    q, p, power = exp_quotient(v, v.add(a, a))
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
    half = half_exp(v, a)
    large = v.sub(half, v.div(v.constant(0.25), half))
    square = v.mul(a, a)
    small = v.fma(v.mul(square, a), v.polynomial(square, _SINH64), a)
    return v.copysign(v.select(v.compare("gt", a, v.constant(1)), large, small), x)


def _cosh64(v: Vectors, x: str) -> str:
    half = half_exp(v, v.abs(x))
    return v.add(half, v.div(v.constant(0.25), half))


def _log1p_or_log(v: Vectors, u: str, large: str, alternative: str, constant: float) -> str:
    """log(1 + u); in the lanes `large` log(alternative) + constant."""
    one = v.constant(1)
    w = v.add(u, one)
    lost = v.div(v.sub(u, v.sub(w, one)), w)  # what rounding 1 + u took away
    w = v.select(large, alternative, w)
    return v.add(log64(v, w), v.select(large, v.constant(constant), lost))


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
    return v.copysign(v.mul(log1p(v, u), v.constant(0.5)), x)


def _erf64(v: Vectors, x: str) -> str:
    if Ability.PERMUTE in v.f.target.abilities:
        return pieces.looked_up(v, x, pieces.erf64(), FORMATS["float64"].rounder)
    return _erf_by_roots(v, x, _ERF64, _ERFC64, 5.95)


# Tables ------------------------------------------------------------------------------------------

_SINGLE: dict[str, Callable[..., str]] = {
    "exp": exp32,
    "expm1": expm1,
    "log": log32,
    "log1p": log1p,
    "tanh": _tanh32,
    "erf": _erf32,
    "acos": acos32,
    "fmod": remainders.fmod,
    "mod": remainders.mod,
}


def _same(double: Callable[..., str]) -> Callable[..., str]:
    """A function that has one precision."""
    return lambda v, *args, short: double(v, *args)


_DOUBLE: dict[str, Callable[..., str]] = {
    "exp": _same(exp64),
    "expm1": _same(expm1),
    "log": log64,
    "log1p": _same(log1p),
    "tanh": _same(_tanh64),
    "erf": _same(_erf64),
    "pow": powers.power,
    "fmod": _same(remainders.fmod),
    "mod": _same(remainders.mod),
    "sinh": _same(_sinh64),
    "cosh": _same(_cosh64),
    "asinh": _same(_asinh64),
    "acosh": _same(_acosh64),
    "atanh": _same(_atanh64),
    **TRIGONOMETRIC,
}
