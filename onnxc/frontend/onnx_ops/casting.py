"""Import rules of conversions between element types."""

from __future__ import annotations

from ...errors import UnsupportedError
from ...ir import dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import TensorType, Value
from ..rules import onnx_op
from ..tensors import ELEMENT_CODES
from .common import element_type, one_of

#: Greatest finite values, which saturating conversions give for whatever is greater.
_GREATEST = {"float8e4m3fn": 448.0, "float8e4m3fnuz": 240.0, "float8e5m2": 57344.0, "float8e5m2fnuz": 57344.0}

_NAMES_BEFORE_6 = {
    "FLOAT": 1,
    "UINT8": 2,
    "INT8": 3,
    "UINT16": 4,
    "INT16": 5,
    "INT32": 6,
    "INT64": 7,
    "STRING": 8,
    "BOOL": 9,
    "FLOAT16": 10,
    "DOUBLE": 11,
    "UINT32": 12,
    "UINT64": 13,
    "COMPLEX64": 14,
    "COMPLEX128": 15,
}


def converted(b: Builder, x: Value, dtype: str, saturate: bool = True, round_mode: str = "up") -> Value:
    """x with its elements as ONNX's Cast makes them of another type."""
    if x.dtype == dtype:
        return x
    if dtype in dtypes.COMPLEX or x.dtype in dtypes.COMPLEX:
        raise UnsupportedError(f"a conversion from {x.dtype} to {dtype}")
    if "string" in (dtype, x.dtype):
        number = x.dtype if dtype == "string" else dtype
        if (wide := _written_as(number)) != number:
            return converted(b, converted(b, x, wide), dtype, saturate, round_mode)
        symbol = "numbers_to_strings" if dtype == "string" else "strings_to_numbers"
        return b.call(
            symbol, [x], [TensorType(dtype, x.shape)], [ELEMENT_CODES[x.dtype], ELEMENT_CODES[dtype]]
        )[0]
    body = convert(expr.input_(0, x.dtype), dtype, saturate, round_mode)
    return b.emit(ops.Map(body, asked=dtype == "float16"), x)[0]


def _written_as(dtype: str) -> str:
    """The type as which numbers of another are written as texts and read from them."""
    if dtype in dtypes.SMALL_FLOATS:
        return "float32"
    if dtypes.is_integer(dtype) and dtypes.bits(dtype) < 8:
        return "int8" if dtypes.is_signed(dtype) else "uint8"
    return dtype


def convert(x: Expr, dtype: str, saturate: bool = True, round_mode: str = "up") -> Expr:
    """One element converted. Floats out of an 8-bit float's range become its greatest, or
    infinite or NaN unless `saturate`; everything else is what `expr.cast` does."""
    if dtype == "float8e8m0":
        return _power_of_two(_beside_powers(x), saturate, round_mode)
    if dtype in _GREATEST and saturate:
        if dtypes.is_integer(x.dtype) or x.dtype in dtypes.SMALL_FLOATS:
            x = x.cast("float32")
        if x.dtype in dtypes.FLOATS:
            x = x.clip(-_GREATEST[dtype], _GREATEST[dtype])
    if dtypes.is_float(x.dtype) and dtypes.is_integer(dtype) and dtypes.bits(dtype) < 8:
        x = x.cast("int32")  # small integers keep the low bits
    return x.cast(dtype)


def _beside_powers(x: Expr) -> Expr:
    """x as a float32 that lies between the same powers of two, and on the same side of their middle: where it
    is not x its last bit is odd (round to odd), but that what is too small for any is 0."""
    if x.dtype != "float64" and (not dtypes.is_integer(x.dtype) or dtypes.bits(x.dtype) < 32):
        return x.cast("float32")
    if dtypes.bits(x.dtype) == 64 and dtypes.is_integer(x.dtype):  # float64 has 53 bits
        last = (1 << 11) - 1
        odd = ((x | ((x & last) + last)) >> 11) << 11
        x = expr.where(abs(x.cast("float64")) < 2.0**53, x, odd)
    exact = x.cast("float64")
    near = exact.cast("float32")
    bits, back = expr.bitcast(near, "uint32"), near.cast("float64")
    down = bits - (abs(back) > abs(exact)).cast("uint32")
    same = back.equals(exact) | expr.isnan(exact) | near.equals(0)
    return expr.bitcast(expr.where(same, bits, down | 1), "float32")


def _power_of_two(x: Expr, saturate: bool, round_mode: str) -> Expr:
    """float32 to float8e8m0, which is the exponent of float32 alone, by its bits."""
    one_of(round_mode, ("up", "down", "nearest"), "round_mode")
    bits = expr.bitcast(x, "uint32")
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    if round_mode == "nearest":
        half = (fraction >> 22) & 1
        more = ((fraction & 0x3FFFFF).cast("bool") | exponent.cast("bool")).cast("uint32")
        up = half & more
    else:
        up = fraction.cast("bool").cast("uint32") if round_mode == "up" else expr.const(0, "uint32")
    raised = exponent + up
    rounded = raised.minimum(0xFE) if saturate else raised
    return expr.bitcast(expr.where(exponent.equals(0xFF), exponent, rounded).cast("uint8"), "float8e8m0")


@onnx_op(since=6)
def Cast(b, input, *, to, saturate=1, round_mode="up"):
    return converted(b, input, element_type(to, "to"), bool(saturate), round_mode)


@onnx_op(since=1, name="Cast")
def _cast_1(b, input, *, to):
    """Operator set 1 names the type by a string."""
    one_of(to, tuple(_NAMES_BEFORE_6), "to")
    return converted(b, input, element_type(_NAMES_BEFORE_6[to], "to"))


@onnx_op(since=15, ranks={"target_type": "any"})
def CastLike(b, input, target_type, *, saturate=1, round_mode="up"):
    return converted(b, input, target_type.type.dtype, bool(saturate), round_mode)


@onnx_op(since=26)
def BitCast(b, input, *, to):
    dtype = element_type(to, "to")
    if dtype == "string" or input.dtype == "string" or dtypes.bits(dtype) != dtypes.bits(input.dtype):
        raise ops.TypeMismatch(f"{input.dtype} and {dtype} do not have the same number of bits")
    return b.map(input, lambda x: expr.bitcast(x, dtype))
