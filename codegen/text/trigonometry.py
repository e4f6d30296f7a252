"""sin, cos, tan and their inverses on float64 vectors; float32 uses them with shorter polynomials, but for
acos, which is as exact in float32.

Arguments up to some thousands are reduced modulo pi/2 by subtracting multiples of its parts (Cody and Waite
1980); for greater ones, which are rare, a branch multiplies each by as many bits of 2/pi as it needs (Payne
and Hanek 1983). Each function is within 2 ulp of the truth, for huge arguments too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import pi

from .emitter import ENTRY, Function, Reg
from .vectors import Vectors

# Reduction ---------------------------------------------------------------------------------------

# 33 bits each
_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.4784276603689e-32)
_HALF_PI_SHORT = (1.5707963267341256, 6.077100506506192e-11)
_ROUNDER = 1.5 * 2.0**52


def _reduced(v: Vectors, x: str, short: bool) -> tuple[str, str, str]:
    """(q, r, low): x = q * pi/2 + r + low with |r| <= pi/4; q as int64, of which the last two bits matter.

    The multiples of the parts are exact while they are below 2**20, their differences exact enough below
    2**10."""
    words, parts = v.integers, _HALF_PI_SHORT if short else _HALF_PI
    t = v.fma(x, v.constant(2 / pi), v.constant(_ROUNDER))
    n, quadrant, low = v.sub(t, v.constant(_ROUNDER)), v.bits(t), v.constant(0)
    r = v.sub(x, v.mul(n, v.constant(parts[0])))
    for part in parts[1:]:
        product = v.mul(n, v.constant(part))
        if short:
            r = v.sub(r, product)
        else:
            r, low = _sum(v, r, v.sub(low, product))
    limit = (1e6 if short else 1e3) * pi / 2
    q, r, low = _if_any(v, limit, x, [(words.type, quadrant), (v.type, r), (v.type, low)])
    return q, r, low


def _sum(v: Vectors, a: str, b: str) -> tuple[Reg, Reg]:
    """(s, e): a + b = s + e exactly (Knuth's two-sum)."""
    s = v.add(a, b)
    back = v.sub(s, a)
    return s, v.add(v.sub(a, v.sub(s, back)), v.sub(b, back))


def _if_any(v: Vectors, limit: float, x: str, state: list[tuple[str, str]]) -> tuple[Reg, ...]:
    """The state with the lanes where |x| >= limit replaced, through memory, by the exact reduction."""
    f = v.f
    before, slow, after = f.block, f.fresh_label("large"), f.fresh_label("reduced")
    memory = f.hoisted(f"alloca [4 x {v.type}], align 64", "ptr")
    arrays = [f.offset(memory, 8 * v.lanes * k) for k in range(4)]
    f.branch_if(v.any(v.compare("ge", v.abs(x), v.constant(limit))), slow, after)
    f.label(slow)
    for array, (type_, value) in zip(arrays, [(v.type, x), *state], strict=True):
        f.store(type_, value, array, 8)
    with f.loop(0, v.lanes) as loop:
        places = [f.element(array, loop.index, 8) for array in arrays]
        one, scalar = f.load("double", places[0], 8), Vectors(f, "float64", 1)
        with f.when(scalar.compare("ge", scalar.abs(one), scalar.constant(limit))):
            for place, type_, value in zip(
                places[1:], ("i64", "double", "double"), _reduce_one(f, one), strict=True
            ):
                f.store(type_, value, place, 8)
    replaced = [f.load(type_, array, 8) for array, (type_, _) in zip(arrays[1:], state, strict=True)]
    last = f.block
    f.branch(after)
    f.label(after)
    return tuple(
        f.phi(type_, (old, before), (new, last)) for (type_, old), new in zip(state, replaced, strict=True)
    )


@cache
def _circle() -> tuple[list[int], int]:
    """(the first 1,280 bits of 2/pi in words of 64 after a word of zeros, the first 64 bits of pi/4)."""
    scale = 1 << 1400

    def arctangent(n: int) -> int:
        """atan(1/n) * scale"""
        power, total, k = scale // n, 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power, k = power // (n * n), k + 2
        return total

    whole = 4 * (4 * arctangent(5) - arctangent(239))  # Machin's formula: pi * scale
    bits = (2 * scale << 1280) // whole
    return [0, *((bits >> 64 * (19 - k)) & (1 << 64) - 1 for k in range(20))], (whole << 62) // scale


def _reduce_one(f: Function, x: str) -> tuple[str, str, str]:
    """(q, r, low) of one double.

    |x| = m * 2**e. Of 2/pi only the 192 bits from the one that weighs 2 in m * 2/pi on matter: the product
    modulo 2**192 is x * 2/pi modulo 4. Its first two bits are the quadrant, the rest the fraction, which
    times pi/2 is r + low."""
    words, quarter = _circle()
    table = f.text.table("i64", [str(w) for w in words], f"{ENTRY}.two_over_pi")
    bits = f.cast("bitcast", x, "i64", "double")
    biased = f.binary("and", f.binary("lshr", bits, 52), 2047)
    fraction = f.binary("or", f.binary("and", bits, (1 << 52) - 1), 1 << 52)
    # The bit of 2/pi with weight 2 is number e - 1, counted from 1; 64 zeros stand before the first.
    start = f.minimum(f.sub(f.add(biased, 64), 1075 + 2), 64 * 17)
    word, shift = f.divide(start, 64)
    loaded = [f.load("i64", f.element(table, f.add(word, k), 8), 8) for k in range(4)]
    window = []
    for first, second in zip(loaded, loaded[1:], strict=False):
        name = f.text.declare("llvm.fshl.i64", "i64", ["i64"] * 3)
        window.append(f.call("i64", name, first, second, f"i64 {shift}"))
    product = f.binary("mul", f.cast("zext", fraction, "i192"), _join(f, window, "i192"))
    quadrant: str = f.cast("trunc", f.binary("lshr", product, 190), "i64")
    turns = f.binary("shl", product, 2)  # the fraction, in [-1/2, 1/2) as a signed number
    top = f.cast("trunc", f.binary("lshr", turns, 64), "i128")
    negative = f.compare("slt", top, 0)
    quadrant = f.add(quadrant, f.cast("zext", negative, "i64"))
    magnitude = f.select(negative, "i128", f.sub(0, top, "i128"), top)
    leading_zeros = f.text.declare("llvm.ctlz.i128", "i128", ["i128", "i1"])
    count = f.binary("and", f.call("i128", leading_zeros, magnitude, "i1 false"), 127)
    leading = f.cast("trunc", f.binary("lshr", f.binary("shl", magnitude, count), 64), "i64")
    a, b = (f.cast("zext", z, "i128", "i64") for z in (leading, str(quarter - (1 << 64))))
    # r = angle * 2**(1 - 64 - count)
    angle = f.cast("trunc", f.binary("lshr", f.binary("mul", a, b), 64), "i64")
    # An exponent field for 2**(1 - 64 - count), with the signs of x and of the fraction.
    power = f.binary("shl", f.sub(1023 + 1 - 64, f.cast("trunc", count, "i64")), 52)
    below = f.binary("lshr", bits, 63)
    odd = f.binary("xor", below, f.cast("zext", negative, "i64"))
    factor = f.cast("bitcast", f.binary("or", power, f.binary("shl", odd, 63)), "double")
    parts = [f.binary("and", angle, -2048), f.binary("and", angle, 2047)]
    r, low = (f.binary("fmul", f.cast("uitofp", p, "double"), factor) for p in parts)
    quadrant = f.select(f.compare("ne", below, 0), "i64", f.sub(0, quadrant), quadrant)
    finite = f.compare("ne", biased, 2047)
    return quadrant, f.select(finite, "double", r, "0x7FF8000000000000"), low


def _join(f: Function, words: Sequence[str], type_: str) -> str:
    """One integer of the words, the first on top."""
    total = f.cast("zext", words[0], type_)
    for word in words[1:]:
        total = f.binary("or", f.binary("shl", total, 64), f.cast("zext", word, type_))
    return total


# Sine, cosine, tangent ---------------------------------------------------------------------------

_SIN = (
    -7.586543634101903e-13,
    1.6058529011960858e-10,
    -2.5052106215978872e-08,
    2.7557319219291695e-06,
    -0.00019841269841265003,
    0.008333333333333331,
)  # and -1/6: (sin x - x)/x³ in x² up to 0.618: 1e-20
_SIN_SHORT = (-0.00019587249321738546, 0.00833274529736295, -0.166666646469967)  # 2e-8
_COS = (
    -1.1382408754153254e-11,
    2.087614315990944e-09,
    -2.755731725679604e-07,
    2.4801587298736863e-05,
    -0.0013888888888887378,
    0.041666666666666664,
)  # (cos x - 1 + x²/2)/x⁴: 1e-18
_COS_SHORT = (2.45472991724818e-05, -0.0013888300056586712, 0.04166666464415581)  # 2e-9


def _sine(v: Vectors, r: str, low: str, short: bool) -> str:
    """sin(r + low) for |r| <= pi/4"""
    z = v.mul(r, r)
    if short:
        return v.fma(v.mul(r, z), v.polynomial(z, _SIN_SHORT), r)
    cube = v.mul(z, r)
    tail = v.mul(cube, v.polynomial(z, _SIN))
    inner = v.sub(v.mul(z, v.sub(v.mul(low, v.constant(0.5)), tail)), low)
    return v.sub(r, v.add(inner, v.mul(cube, v.constant(1 / 6))))


def _cosine(v: Vectors, r: str, low: str, short: bool) -> str:
    z = v.mul(r, r)
    if short:
        return v.fma(v.mul(z, z), v.polynomial(z, _COS_SHORT), v.fma(z, v.constant(-0.5), v.constant(1)))
    one, half = v.constant(1), v.mul(z, v.constant(0.5))
    w = v.sub(one, half)
    tail = v.sub(v.mul(v.mul(z, z), v.polynomial(z, _COS)), v.mul(r, low))
    return v.add(w, v.add(v.sub(v.sub(one, w), half), tail))


def _wave(v: Vectors, x: str, quarter: int, short: bool) -> str:
    """sin(x + quarter * pi/2)"""
    words = v.integers
    quadrant, r, low = _reduced(v, x, short)
    if quarter:
        quadrant = words.add(quadrant, words.constant(quarter))
    odd = words.compare("ne", words.bit_and(quadrant, words.constant(1)), words.constant(0))
    value = v.select(odd, _cosine(v, r, low, short), _sine(v, r, low, short))
    sign = words.shift_left(words.shift_right(quadrant, 1), 63)
    return v.from_bits(words.bit_xor(v.bits(value), sign))


def _sin(v: Vectors, x: str, short: bool) -> str:
    return v.select(v.compare("eq", x, v.constant(0)), x, _wave(v, x, 0, short))


def _cos(v: Vectors, x: str, short: bool) -> str:
    return _wave(v, x, 1, short)


def _tan(v: Vectors, x: str, short: bool) -> str:
    words = v.integers
    quadrant, r, low = _reduced(v, x, short)
    odd = words.compare("ne", words.bit_and(quadrant, words.constant(1)), words.constant(0))
    sine, cosine = _sine(v, r, low, short), _cosine(v, r, low, short)
    result = v.div(v.select(odd, v.neg(cosine), sine), v.select(odd, sine, cosine))
    return v.select(v.compare("eq", x, v.constant(0)), x, result)


# Inverses ----------------------------------------------------------------------------------------

_ASIN = (
    0.028778442612593044,
    -0.014881409392818068,
    0.01741935796488486,
    0.005450878187720549,
    0.010324318288744113,
    0.011478952690257387,
    0.013971235301124539,
    0.017352391265909227,
    0.022372173002005596,
    0.030381944137085216,
    0.04464285714637338,
    0.07499999999998425,
    1 / 6,
)  # (asin x - x)/x³ in x² up to 1/4: 2e-17
_ASIN_SHORT = (
    0.03370072632136513,
    0.017143716819253568,
    0.031101727829067168,
    0.04459931916287114,
    0.07500094761172901,
    0.1666666633654049,
)  # 4e-9
_ATAN = (
    0.01627770496465735,
    -0.03456329433206521,
    0.04551310548604838,
    -0.052303922840425,
    0.05878920579113163,
    -0.06666424153334422,
    0.07692296334242579,
    -0.0909090875208971,
    0.11111111105127079,
    -0.14285714285659537,
    0.19999999999999804,
    -1 / 3,
)  # (atan x - x)/x³ in x² up to 0.172: 1e-18
_ATAN_SHORT = (
    -0.06450708218765377,
    0.1074336328145607,
    -0.14263921521441744,
    0.1999953949983083,
    -0.3333333175688694,
)  # 2e-8
_HALF, _HALF_LOW = 1.5707963267948966, 6.123233995736766e-17  # pi/2
_HALF_SINGLE = 1.5707963705062866  # the nearest float32


def _arc(v: Vectors, a: str, short: bool) -> tuple[str, str]:
    """(beyond, s): s = asin(a), or where `beyond` a > 1/2, asin(sqrt((1-a)/2)), which is acos(a)/2."""
    beyond = v.compare("gt", a, v.constant(0.5))
    z = v.select(beyond, v.mul(v.sub(v.constant(1), a), v.constant(0.5)), v.mul(a, a))
    s = v.select(beyond, v.unary("sqrt", z), a)
    return beyond, v.fma(v.mul(s, z), v.polynomial(z, _ASIN_SHORT if short else _ASIN), s)


def _asin(v: Vectors, x: str, short: bool) -> str:
    beyond, s = _arc(v, v.abs(x), short)
    rest = v.sub(v.constant(_HALF), v.sub(v.add(s, s), v.constant(_HALF_LOW)))
    return v.copysign(v.select(beyond, rest, s), x)


def _acos(v: Vectors, x: str, short: bool) -> str:
    return _acos_of(v, x, short, _HALF, _HALF_LOW)


def acos32(v: Vectors, x: str) -> str:
    """Of float32 vectors: within 1.1 ulp, for nothing that is near 0 is a difference."""
    return _acos_of(v, x, True, _HALF_SINGLE, _HALF - _HALF_SINGLE)


def _acos_of(v: Vectors, x: str, short: bool, half: float, half_low: float) -> str:
    beyond, s = _arc(v, v.abs(x), short)
    double = v.add(s, s)
    negative = v.compare("lt", x, v.constant(0))
    rest = v.sub(v.constant(2 * half), v.sub(double, v.constant(2 * half_low)))
    near = v.select(negative, rest, double)
    middle = v.sub(v.constant(half), v.sub(v.copysign(s, x), v.constant(half_low)))
    return v.select(beyond, near, middle)


def _atan(v: Vectors, x: str, short: bool) -> str:
    """pi/2 + atan(-1/a) from tan(3 pi/8) on, pi/4 + atan((a-1)/(a+1)) from tan(pi/8) on."""
    a, one = v.abs(x), v.constant(1)
    far, middle = (v.compare("gt", a, v.constant(1 + 2**0.5)), v.compare("gt", a, v.constant(2**0.5 - 1)))
    above = v.select(far, v.constant(-1), v.select(middle, v.sub(a, one), a))
    below = v.select(far, a, v.select(middle, v.add(a, one), one))
    t = v.div(above, below)
    base, low = (
        v.select(far, v.constant(c), v.select(middle, v.constant(c / 2), v.constant(0)))
        for c in (_HALF, _HALF_LOW)
    )
    z = v.mul(t, t)
    arc = v.fma(v.mul(t, z), v.polynomial(z, _ATAN_SHORT if short else _ATAN), v.add(t, low))
    return v.copysign(v.add(base, arc), x)


FUNCTIONS: dict[str, Callable[..., str]] = {
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
}
