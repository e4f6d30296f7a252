"""Element types: their names, sizes and numpy counterparts.

The IR names a type by a string (`float32`, `bfloat16`, `bool`, `string`, ...). Sub-byte types are stored one
element a byte. numpy has no bfloat16, float8 or int4 of its own; `ml_dtypes` brings them and is imported only
when one is met.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

FLOATS = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16}
HALVES = ("float16", "bfloat16")  # which are widened where they are computed with
SMALL_FLOATS = {
    **dict.fromkeys(("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0"), 8),
    **dict.fromkeys(("float6e2m3", "float6e3m2"), 6),
    "float4e2m1": 4,
}
#: The magnitude from which on rounding leaves those that have neither infinities nor a NaN: casts saturate.
_BEYOND = {"float6e2m3": 7.75, "float6e3m2": 30.0, "float4e2m1": 7.0}
SIGNED = {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "int2": 2}
UNSIGNED = {"uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8, "uint4": 4, "uint2": 2}
COMPLEX = {"complex64": 64, "complex128": 128}

#: The number of each type in ONNX (TensorProto.DataType), which onnxc.h has too.
_BY_NUMBER = (
    "float32 uint8 int8 uint16 int16 int32 int64 string bool float16 float64 uint32 uint64 "
    "complex64 complex128 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz "
    "uint4 int4 float4e2m1 float8e8m0 uint2 int2 float6e2m3 float6e3m2"
)
NUMBERS = {name: number for number, name in enumerate(_BY_NUMBER.split(), 1)}

#: The kinds of numpy's types that hold strings: objects, `<U`, `S`, and StringDType since version 2.
TEXT_KINDS = "OUST"

#: Every type, in the order of the numbers.
ALL = tuple(NUMBERS)

_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
    "float4e2m1": "float4_e2m1fn",
    "int4": "int4",
    "uint4": "uint4",
    "int2": "int2",
    "uint2": "uint2",
}


def is_float(dtype: str) -> bool:
    return dtype in FLOATS or dtype in SMALL_FLOATS


def is_signed(dtype: str) -> bool:
    return dtype in SIGNED


def is_integer(dtype: str) -> bool:
    return dtype in SIGNED or dtype in UNSIGNED


def bits(dtype: str) -> int:
    """Bits of the value, which for sub-byte types is less than what one takes in memory."""
    for table in (FLOATS, SMALL_FLOATS, SIGNED, UNSIGNED, COMPLEX):
        if dtype in table:
            return table[dtype]
    return 8


@cache
def itemsize(dtype: str) -> int:
    """Bytes one element takes in memory. A string is a pointer and a length."""
    return 16 if dtype == "string" else max(1, bits(dtype) // 8)


@cache
def numpy_dtype(dtype: str) -> np.dtype:
    import numpy as np  # names and sizes, of which processors are described, do without

    if dtype in _ML_DTYPES:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    return np.dtype(object) if dtype == "string" else np.dtype(dtype)


def for_file(array: np.ndarray) -> np.ndarray:
    """An array as numpy can write it and read it again: elements whose type it does not have are bytes."""
    import numpy as np

    if array.dtype.name in _BY_NUMPY_NAME:
        return array.view(np.dtype((np.void, array.itemsize)))
    return array


def from_file(array: np.ndarray, dtype: str | None) -> np.ndarray:
    """An array that numpy read, whose elements are of the type that is expected where they are bytes."""
    import numpy as np

    if dtype in _ML_DTYPES and array.dtype == np.dtype((np.void, itemsize(dtype))):
        return array.view(numpy_dtype(dtype))
    return array


_BY_NUMPY_NAME = {numpy_name: name for name, numpy_name in _ML_DTYPES.items()}


def from_numpy(dtype: np.dtype) -> str:
    """The name of a numpy type. Unsupported ones raise TypeError."""
    if dtype.kind in TEXT_KINDS:
        return "string"
    name = _BY_NUMPY_NAME.get(dtype.name, dtype.name)
    if name not in ALL:
        raise TypeError(f"element type {dtype} is not supported")
    return name


def rounded(array: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers rounded to a type of floats or complex numbers, and whether it has them: not those that are too
    large, nor infinities and NaN where it has none. Objects are Python's real numbers, of any length."""
    import numpy as np

    has = np.ones(array.shape, bool)
    if array.dtype == object:
        fits = np.frompyfunc(lambda number: not sys.float_info.max < abs(number) < math.inf, 1, 1)
        has = np.asarray(fits(array), bool)
        array = np.where(has, array, 0).astype(np.float64)
    with np.errstate(all="ignore"):
        found = array.astype(numpy_dtype(dtype))
        has &= (np.isnan(found) == np.isnan(array)) & (np.isinf(found) == np.isinf(array))
        if dtype in _BEYOND:
            has &= np.abs(array) < _BEYOND[dtype]
    return found, has


def integer_range(dtype: str) -> tuple[int, int]:
    """(least, greatest) value of an integer type or bool."""
    if dtype == "bool":
        return 0, 1
    width = bits(dtype)
    return (-(1 << width - 1), (1 << width - 1) - 1) if is_signed(dtype) else (0, (1 << width) - 1)


def objects(values: Sequence[object], shape: Sequence[int]) -> np.ndarray:
    """Texts, or numbers and sizes, as elements of an array of this shape."""
    import numpy as np

    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)
