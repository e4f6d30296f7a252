"""Conversions between element types: casts, and between the type an expression names and the one it is
computed in.

float16, bfloat16 and the small floats are computed in float32 and rounded after each operation, to nearest
even. Float to integer truncates and saturates, NaN gives 0; integers wrap. Targets without instructions for a
format convert by integer arithmetic to the same bits, except that an instruction for bfloat16 may give
subnormal numbers as 0. Formats: IEEE 754, OCP 8-bit floating point, OCP microscaling, the `fnuz` variants.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ...ir import dtypes
from ...records import dataclass
from ...target import Ability, Narrowing, Target
from .emitter import splat, vector_type
from .vectors import Vectors

#: Types whose elements are computed in float32.
NARROW = ("float16", "bfloat16", *dtypes.SMALL_FLOATS)


def computed_in(dtype: str) -> str:
    """The type in which elements of dtype are computed."""
    return "float32" if dtype in NARROW else dtype


def to_computed(v: Vectors, x: str) -> str:
    """x, of the type v.dtype, as the type that it is computed in; exact."""
    if v.dtype not in NARROW:
        return x
    if v.dtype == "bfloat16":
        words = v.of("int32")
        return v.of("float32").from_bits(words.shift_left(_raw_bits(v, x), 16))
    if v.dtype == "float16" and _converts_half(v.f.target):
        return v.f.cast("fpext", x, v.of("float32").type, v.type)
    if v.dtype == "float8e8m0":
        return _from_power(v, x)
    return _from_format(v, _FORMATS[v.dtype], x)


def from_computed(v: Vectors, x: str, plain: bool = False) -> str:
    """x, a float32 for a narrow v.dtype, as that type, rounded. `plain`: every NaN among x is one that
    arithmetic gives of bfloat16."""
    if v.dtype not in NARROW:
        return x
    if v.dtype == "bfloat16" and converts_bfloat16(v):
        return v.f.cast("fptrunc", x, v.type, v.of("float32").type)
    if v.dtype == "bfloat16":
        return _upper_half(v, _nearest_bfloat16(v, x, plain))
    if v.dtype == "float16" and _converts_half(v.f.target):
        return v.f.cast("fptrunc", x, v.type, v.of("float32").type)
    if v.dtype == "float8e8m0":
        return _to_power(v, x)
    return _to_format(v, _FORMATS[v.dtype], x)


def converts_bfloat16(v: Vectors) -> bool:
    """Whether an instruction rounds so many lanes."""
    return v.lanes > 1 and Ability.CONVERT_BF16 in v.f.target.abilities


def rounded(v: Vectors, x: str, plain: bool = False) -> str:
    """x, as computed, with what the type v.dtype does not hold rounded or wrapped away."""
    if v.dtype == "bfloat16":
        words = v.of("uint32")
        bits = words.bit_and(_nearest_bfloat16(v, x, plain), words.constant(0xFFFF0000))
        return v.of("float32").from_bits(bits)
    if v.dtype in NARROW:
        return to_computed(v, from_computed(v, x, plain))
    return wrapped(v, x)


def stored(v: Vectors, x: str) -> str:
    """x, as computed and a number of the type v.dtype, as that type."""
    if v.dtype == "bfloat16":  # its bits are there: nothing is left to round
        return _upper_half(v, v.of("float32").bits(x))
    return from_computed(v, x)


def wrapped(v: Vectors, x: str) -> str:
    """An integer of fewer bits than its byte, modulo 2**bits."""
    spare = 8 - dtypes.bits(v.dtype) if dtypes.is_integer(v.dtype) else 0
    if spare <= 0:
        return x
    return v.shift_right(v.shift_left(x, spare), spare)


def cast(source: Vectors, dtype: str, x: str, within: bool = False) -> str:
    """x, as source.dtype is computed, as dtype is computed. `within`: floats are known to be in the
    integer's range."""
    v = source.of(dtype)
    kind = computed_in(source.dtype)
    if dtype == "bool":
        wide = source.of(kind)
        return x if kind == "bool" else wide.compare("ne", x, wide.constant(0))
    if dtypes.is_float(dtype):
        if dtype in NARROW:
            return rounded(v, to_be_rounded(source, dtype, x))
        return _to_float(source.of(kind), dtype, x)
    if dtypes.is_float(kind):
        return _saturated(source.of(kind), v, x, within)
    return wrapped(v, _resized(source, v, x))


def to_be_rounded(source: Vectors, dtype: str, x: str) -> str:
    """x, as source.dtype is computed, as a float32 that is the same number of the narrow type dtype, rounded
    to it, as x."""
    source = source.of(computed_in(source.dtype))
    width = _width(source.dtype)
    if dtypes.is_integer(source.dtype) and width >= 32 and dtype in _LARGE:
        x = _odd_integer(source, x)
        if width == 64:
            x = _to_float(source, "float64", x)
            source = source.of("float64")
    return _to_odd(source, x) if source.dtype == "float64" else _to_float(source, "float32", x)


def bounded(v: Vectors, x: str, source: str, high: float) -> str:
    """x, of the float type `source`, between 0 and `high`, as v.dtype, which holds both; NaN gives 0."""
    floats = v.of(source)
    near = floats.smaller(floats.greater(x, floats.constant(0)), floats.constant(high))
    wide = v if _width(v.dtype) >= 32 else v.of("int32")
    operation = "fptosi" if dtypes.is_signed(wide.dtype) else "fptoui"
    return _resized(wide, v, v.f.cast(operation, near, wide.type, floats.type))


#: Scales by which `quantised` divides without reaching numbers that lose bits.
SCALES = 2.0**-60, 2.0**60


#: Up to which a float32 may lie as an integer of 32 bits, with room for what was rounded on the way to it.
WHOLE = 2.0**30


def quantised(
    v: Vectors, x: str, scale: float, zero: int, low: int, high: int, quiet: bool, small: bool = False
) -> str:
    """round(x / scale) + zero between low and high, as v.dtype, of at most 16 bits; NaN gives 0. x is
    float32, and no signalling NaN where it is `quiet`; `small`: it is a number, and x / scale not above
    WHOLE. Unless it is 1, scale lies within SCALES, and the target has fused multiply-adds.

    Dividing would take longer than all else. x times both halves of 1 / scale, a number of twice as many
    bits, is the quotient rounded once, but where that lies within 2^-22 units of the middle between two
    numbers. Where that matters two corrections of x * (1 / scale) give the quotient: the first brings it
    within a unit of its last place, from where the second is exact, 1 / scale being rounded correctly
    (Markstein 1990). Adding 1.5 * 2^23 and `zero`, if that is even, rounds to the integer next to the
    quotient, of two the even one, and leaves the sum in the last 16 bits."""
    single, words = v.of("float32"), v.of("int32")
    divisor = float(np.float32(scale))
    checked = not small and (low != 0 or not (quiet or v.f.target.orders_nan))
    bits, single_bits = 32 * v.lanes, v.f.target.vector_bits
    packs = bits > single_bits or (small and bits == single_bits <= 256)
    together = packs and dtypes.bits(v.dtype) == 8 and not checked and zero in range(-(1 << 15), 1 << 15)
    near = x
    if not (small and together):
        # -0 where the bound is 0: LLVM then takes the greater by one instruction
        near = single.greater(x, single.constant((low - zero) * divisor or -0.0))  # the bound where x is NaN
        near = single.smaller(near, single.constant((high - zero) * divisor or -0.0))
    quotient = _quotient(single, near, divisor, _is_sure(divisor, low - zero, high - zero))
    if together:
        return _narrowed_together(v, quotient, zero, low, high)
    magic = 1.5 * 2**23 + (even := zero - zero % 2)
    result: str = single.bits(single.add(quotient, single.constant(magic)))
    if zero != even:
        result = words.add(result, words.constant(1))
    if checked:
        result = words.select(single.is_nan(x), words.constant(0), result)
    return _resized(words, v, result)


def _narrowed_together(v: Vectors, quotient: str, zero: int, low: int, high: int) -> str:
    """round(quotient) + zero between bounds of a byte, of whole registers of float32 up to WHOLE: integers
    saturate where two vectors become one, and what is left to do takes a half of the instructions, then a
    quarter."""
    single, words, halves = v.of("float32"), v.of("int32"), v.of("int16")
    name = v.f.text.declare(f"llvm.lrint.v{v.lanes}i32.v{v.lanes}f32", words.type, [single.type])
    whole = v.f.call(words.type, name, f"{single.type} {quotient}")
    if v.f.target.narrowing is not None:
        return _packed(v, v.f.target.narrowing, whole, zero, low, high)
    result: str = _clipped(words, whole, *dtypes.integer_range("int16"))
    result = v.f.cast("trunc", result, halves.type, words.type)
    if zero:
        result = v.f.intrinsic("sadd.sat", halves.type, result, halves.constant(zero))
    return v.f.cast("trunc", _clipped(halves, result, low, high), v.type, halves.type)


def _packed(v: Vectors, by: Narrowing, whole: str, zero: int, low: int, high: int) -> str:
    """The same of int32, by instructions that narrow two registers to one:

    four registers of int32, of chunks of 128 bits     a0 a1   b0 b1   c0 c1   d0 d1
    two of int16                                       a0 b0 a1 b1     c0 d0 c1 d1
    one of bytes, whose words then go into order       a0 b0 c0 d0 a1 b1 c1 d1
    """
    f, lanes = v.f, v.f.target.lanes("int32")
    if v.lanes > 4 * lanes:
        part, words = Vectors(f, v.dtype, v.lanes // 2), v.of("int32")
        return v.joined(*(_packed(part, by, words.part(k, whole), zero, low, high) for k in (0, 1)))
    word, half_word, byte = (Vectors(f, t, k * lanes) for t, k in (("int32", 1), ("int16", 2), (v.dtype, 4)))
    count, kind = v.lanes // lanes, v.of("int32").type
    registers = [f.shuffle(whole, "poison", range(k * lanes, (k + 1) * lanes), kind) for k in range(count)]
    to_half = f.text.declare(by.int16, half_word.type, [word.type] * 2)
    to_byte = f.text.declare(getattr(by, v.dtype), byte.type, [half_word.type] * 2)
    halves: list[str] = []
    for first in range(0, count, 2):
        pair = (registers[first], registers[min(first + 1, count - 1)])
        half: str = f.call(half_word.type, to_half, *(f"{word.type} {r}" for r in pair))
        if zero:
            half = f.intrinsic("sadd.sat", half_word.type, half, half_word.constant(zero))
        halves.append(half)
    packed: str = f.call(byte.type, to_byte, *(f"{half_word.type} {h}" for h in (halves[0], halves[-1])))
    if (low, high) != dtypes.integer_range(v.dtype):
        least, most = ("smax", "smin") if dtypes.is_signed(v.dtype) else ("umax", "umin")
        packed = f.intrinsic(least, byte.type, packed, byte.constant(low))
        packed = f.intrinsic(most, byte.type, packed, byte.constant(high))
    order = [chunk * 4 + register for register in range(count) for chunk in range(lanes // 4)]
    places = f.shuffle(f.cast("bitcast", packed, word.type, byte.type), "poison", order, word.type)
    return f.cast("bitcast", places, v.type)


def _clipped(v: Vectors, x: str, low: int, high: int) -> str:
    """An integer between two numbers, as LLVM knows the conversions that saturate."""
    lower = v.f.intrinsic("smax", v.type, x, v.constant(low))
    return v.f.intrinsic("smin", v.type, lower, v.constant(high))


def _quotient(single: Vectors, x: str, divisor: float, sure: bool) -> str:
    """x / divisor; `sure`: exact enough by both halves of the inverse."""
    inverse = float(np.float32(1 / divisor))
    rest = float(np.float32((1 - inverse * divisor) / divisor))  # the product is exact in float64
    quotient: str = x if divisor == 1 else single.mul(x, single.constant(rest if sure and rest else inverse))
    if rest == 0:
        return quotient
    if sure:
        return single.fma(x, single.constant(inverse), quotient)
    minus, factor = single.constant(-divisor), single.constant(inverse)
    for _ in range(2):
        quotient = single.fma(single.fma(quotient, minus, x), factor, quotient)
    return quotient


@cache
def _is_sure(divisor: float, low: int, high: int) -> bool:
    """Whether the integer next to a quotient is right though that is off by half a unit of its last place and
    2^-22 units more. That matters where it should be one of two neighbours of which one is the middle between
    integers, and lies as near to the middle of the two."""
    ties = np.arange(low, high, dtype=np.float64) + 0.5
    units = np.spacing(np.abs(ties).astype(np.float32)).astype(np.float64)
    for side in (-0.5, -0.25, 0.25, 0.5):  # the unit below a power of two is half as large
        middle = (ties + side * units) * divisor  # exact, as is what follows
        apart = np.abs(middle.astype(np.float32).astype(np.float64) - middle)
        if np.any(apart < units * divisor * 2.0**-20):
            return False
    return True


def _resized(source: Vectors, v: Vectors, x: str) -> str:
    have, want = (_width(t.dtype) for t in (source, v))
    if have == want:
        return x
    operation = "trunc" if want < have else "sext" if dtypes.is_signed(source.dtype) else "zext"
    return v.f.cast(operation, x, v.type, source.type)


def _width(dtype: str) -> int:
    return 1 if dtype == "bool" else 8 * dtypes.itemsize(dtype)


def _to_float(source: Vectors, dtype: str, x: str) -> str:
    v = source.of(dtype)
    if source.dtype == dtype:
        return x
    if source.dtype == "bool":
        return v.select(x, v.constant(1), v.constant(0))
    if source.floating:
        operation = "fpext" if dtype == "float64" else "fptrunc"
    elif _width(source.dtype) < 32:
        source, x = source.of("int32"), _resized(source, source.of("int32"), x)
        operation = "sitofp"
    else:
        operation = "sitofp" if dtypes.is_signed(source.dtype) else "uitofp"
    return v.f.cast(operation, x, v.type, source.type)


def _saturated(source: Vectors, v: Vectors, x: str, within: bool) -> str:
    """Floats to integers without a value that the conversion instruction does not define."""
    if _width(v.dtype) == 64 and v.lanes > 1 and Ability.CONVERT_INT64 not in v.f.target.abilities:
        return _mostly_short(source, v, x, within)
    return _converted(source, v, x, within)


def _mostly_short(source: Vectors, v: Vectors, x: str, within: bool) -> str:
    """The same to 64 bits, where vectors are converted to 32 alone: they are once more, one by one, where an
    element is beyond those."""
    short = v.of("int32")
    fits = source.compare("lt", source.abs(x), source.constant(2.0**31))
    near = source.select(fits, x, source.constant(0))
    if not dtypes.is_signed(v.dtype):
        near = source.greater(near, source.constant(0))
    number = v.f.cast("fptosi", near, short.type, source.type)
    others = v.f.invert(fits)

    def single(values: Sequence[str]) -> list[str]:
        return [_converted(source, v, x, within), splat(False, "bool", v.lanes)]

    state = [(v.type, _resized(short, v, number)), (v.mask, others)]
    return v.f.repeat(state, lambda values: v.any(values[1]), single)[0]


def _converted(source: Vectors, v: Vectors, x: str, within: bool) -> str:
    """The same, all elements alike."""
    low, high = dtypes.integer_range(v.dtype)
    wide = v if _width(v.dtype) >= 32 else v.of("int32")
    x = source.select(source.is_nan(x), source.constant(0), x)
    exact = int(source.dtype == "float64" or high < 1 << 24) and high < 1 << 53
    if not within:
        x = source.greater(x, source.constant(low))
        if exact:
            x = source.smaller(x, source.constant(high))
    overflow = None if exact else source.compare("ge", x, source.constant(high + 1))
    if overflow is not None:
        x = source.select(overflow, source.constant(0), x)
    operation = "fptosi" if dtypes.is_signed(wide.dtype) else "fptoui"
    result = v.f.cast(operation, x, wide.type, source.type)
    if overflow is not None:
        result = wide.select(overflow, wide.constant(high), result)
    return _resized(wide, v, result)


#: Narrow types with numbers that are rounded where float32 does not hold every integer.
_LARGE = ("bfloat16", "float8e8m0")


def _odd_integer(v: Vectors, x: str) -> str:
    """An integer of 32 or 64 bits as one that float32 or float64 holds, rounded to odd as by `_to_odd`: where
    they do not hold it the last bits go, and the one above is set if those are not 0."""
    held, last = {32: (1 << 24, (1 << 8) - 1), 64: (1 << 53, (1 << 11) - 1)}[_width(v.dtype)]
    carry = v.add(v.bit_and(x, v.constant(last)), v.constant(last))
    odd = v.bit_and(v.bit_or(x, carry), v.constant(~last))
    small = v.compare("lt", x, v.constant(held))
    if dtypes.is_signed(v.dtype):
        small = v.both(small, v.compare("gt", x, v.constant(-held)))
    return v.select(small, x, odd)


def _to_odd(source: Vectors, x: str) -> str:
    """float64 to float32 so that rounding once more gives what rounding once would: an inexact result gets an
    odd last bit (round to odd, Boldo and Melquiond 2008)."""
    v = source.of("float32")
    words, near = v.of("int32"), v.f.cast("fptrunc", x, v.type, source.type)
    back, bits = v.f.cast("fpext", near, source.type, v.type), v.bits(near)
    away = source.compare("gt", source.abs(back), source.abs(x))
    down = words.select(away, words.sub(bits, words.constant(1)), bits)
    inexact = source.both(source.compare("ne", back, x), source.compare("eq", x, x))
    return v.from_bits(words.select(inexact, words.bit_or(down, words.constant(1)), down))


# Formats -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Format:
    """A sign, `exponent` bits of this bias, `mantissa` bits. What the codes of no number mean is `special`:
    "ieee", the greatest exponent holds infinities and NaN; "nan", all bits but the sign set are NaN; "zero",
    the code of -0 is the only NaN and there is no -0; "none", there are none and values saturate."""

    exponent: int
    mantissa: int
    bias: int
    special: str

    @property
    def greatest(self) -> int:
        """The code of the greatest finite number."""
        codes = 1 << self.exponent + self.mantissa
        return codes - {"ieee": 1 + (1 << self.mantissa), "nan": 2, "zero": 1, "none": 1}[self.special]

    @property
    def nan(self) -> int:
        """The code of NaN, without its sign."""
        quiet = (1 << self.exponent + self.mantissa) - (1 << self.mantissa - 1)
        full = (1 << self.exponent + self.mantissa) - 1
        return {"ieee": quiet, "nan": full, "zero": full + 1, "none": full + 1}[self.special]

    @property
    def overflow(self) -> int:
        """What is too great becomes this code."""
        return {"ieee": self.greatest + 1, "none": self.greatest}.get(self.special, self.nan)


_FORMATS = {
    "float16": _Format(5, 10, 15, "ieee"),
    "float8e5m2": _Format(5, 2, 15, "ieee"),
    "float8e4m3fn": _Format(4, 3, 7, "nan"),
    "float8e4m3fnuz": _Format(4, 3, 8, "zero"),
    "float8e5m2fnuz": _Format(5, 2, 16, "zero"),
    "float6e2m3": _Format(2, 3, 1, "none"),
    "float6e3m2": _Format(3, 2, 3, "none"),
    "float4e2m1": _Format(2, 1, 1, "none"),
}


def _converts_half(target: Target) -> bool:
    return Ability.CONVERT_HALF in target.abilities


def _raw_bits(v: Vectors, x: str) -> str:
    """The code of each element, as int32."""
    short = vector_type("i16", v.lanes)
    source = short if dtypes.itemsize(v.dtype) == 2 else vector_type("i8", v.lanes)
    x = v.f.cast("bitcast", x, source, v.type)
    return v.f.cast("zext", x, v.of("int32").type, source)


def _as_code(v: Vectors, bits: str) -> str:
    """int32 codes as elements."""
    narrow = vector_type(f"i{8 * dtypes.itemsize(v.dtype)}", v.lanes)
    x = v.f.cast("trunc", bits, narrow, v.of("int32").type)
    return v.f.cast("bitcast", x, v.type)


def _nearest_bfloat16(v: Vectors, x: str, plain: bool) -> str:
    """The bits of x with the nearest bfloat16 in their upper half, and anything in the lower. A `plain` NaN
    is quiet and has nothing in the bits that are rounded away: rounding lets it be."""
    single, words = v.of("float32"), v.of("uint32")
    bits = single.bits(x)
    near = words.add(bits, words.constant(0x7FFF))
    if v.f.target.masked:
        odd = words.compare("ne", words.bit_and(bits, words.constant(1 << 16)), words.constant(0))
        near = words.select(odd, words.add(near, words.constant(1)), near)
    else:
        near = words.add(near, words.bit_and(words.shift_right(bits, 16), words.constant(1)))
    if plain:
        return near
    return words.select(single.is_nan(x), words.bit_or(bits, words.constant(0x400000)), near)


def _upper_half(v: Vectors, bits: str) -> str:
    """Elements of v from the upper halves of 32-bit words."""
    return _as_code(v, v.of("uint32").shift_right(bits, 16))


def _from_format(v: Vectors, form: _Format, x: str) -> str:
    """The exponent is rebiased by a multiplication, which makes subnormal numbers normal too."""
    single, words = v.of("float32"), v.of("int32")
    sign_bit = 1 << form.exponent + form.mantissa
    code = _raw_bits(v, x)
    magnitude = words.bit_and(code, words.constant(sign_bit - 1))
    number = single.from_bits(words.shift_left(magnitude, 23 - form.mantissa))
    bits = single.bits(single.mul(number, single.constant(2.0 ** (127 - form.bias))))
    if form.special == "ieee":
        special = words.compare("gt", magnitude, words.constant(form.greatest))
        top = words.constant(0x7F800000)
        bits = words.select(special, words.bit_or(bits, top), bits)
    elif form.special == "nan":
        special = words.compare("eq", magnitude, words.constant(form.nan))
        bits = words.select(special, words.constant(0x7FC00000), bits)
    sign = words.shift_left(words.bit_and(code, words.constant(sign_bit)), 31 - form.exponent - form.mantissa)
    bits = words.bit_or(bits, sign)
    if form.special == "zero":
        bits = words.select(
            words.compare("eq", code, words.constant(sign_bit)), words.constant(0x7FC00000), bits
        )
    return single.from_bits(bits)


def _to_format(v: Vectors, form: _Format, x: str) -> str:
    """Normal results are rounded in the bits; subnormal ones by adding a number whose last bit is the
    least subnormal."""
    single, words = v.of("float32"), v.of("int32")
    sign_bit, shift = 1 << form.exponent + form.mantissa, 23 - form.mantissa
    bits = single.bits(x)
    magnitude = words.bit_and(bits, words.constant(0x7FFFFFFF))
    odd = words.bit_and(words.shift_right(magnitude, shift), words.constant(1))
    half = words.constant((1 << shift - 1) - 1)
    near = words.shift_right(words.add(words.add(magnitude, half), odd), shift)
    near = words.sub(near, words.constant((127 - form.bias) << form.mantissa))
    aligner = 2.0 ** (1 - form.bias + shift)
    small = single.bits(single.add(single.from_bits(magnitude), single.constant(aligner)))
    small = words.sub(small, words.constant((127 + 1 - form.bias + shift) << 23))
    least_normal = (127 + 1 - form.bias) << 23
    code = words.select(words.compare("lt", magnitude, words.constant(least_normal)), small, near)
    code = words.select(
        words.compare("gt", code, words.constant(form.greatest)), words.constant(form.overflow), code
    )
    sign = words.shift_right(v.of("uint32").bit_and(bits, words.constant(-0x80000000)), 31)
    sign = words.bit_and(sign, words.constant(1))
    signed = words.bit_or(code, words.shift_left(sign, form.exponent + form.mantissa))
    if form.special == "zero":  # no -0, and NaN has no sign
        plain = words.compare("eq", words.bit_and(code, words.constant(sign_bit - 1)), words.constant(0))
        signed = words.select(plain, code, signed)
    nan = words.constant(form.nan)
    if form.special in ("ieee", "nan"):
        nan = words.bit_or(nan, words.shift_left(sign, form.exponent + form.mantissa))
    return _as_code(v, words.select(single.is_nan(x), nan, signed))


def _from_power(v: Vectors, x: str) -> str:
    """float8e8m0: 2 ** (code - 127), NaN for 255."""
    single, words = v.of("float32"), v.of("int32")
    code = _raw_bits(v, x)
    bits = words.shift_left(code, 23)
    bits = words.select(words.compare("eq", code, words.constant(0)), words.constant(1 << 22), bits)
    nan = words.compare("eq", code, words.constant(255))
    return single.from_bits(words.select(nan, words.constant(0x7FC00000), bits))


def _to_power(v: Vectors, x: str) -> str:
    """The nearest power of two, NaN for what is not above zero."""
    single, words = v.of("float32"), v.of("int32")
    code = words.shift_right(words.add(single.bits(x), words.constant(1 << 22)), 23)
    code = words.select(words.compare("gt", code, words.constant(254)), words.constant(255), code)
    return _as_code(v, words.select(single.compare("gt", x, single.constant(0)), code, words.constant(255)))
