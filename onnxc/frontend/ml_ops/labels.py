"""Import rules of labels and categories: keys are found in a hash table, their values gathered from a
constant that the default ends."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ...ir import dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops.text import places
from ..rules import onnx_op

ml_op = partial(onnx_op, domain="ai.onnx.ml")


def place_of(b: Builder, x: Value, keys: np.ndarray) -> Value:
    """For each element of x its place among keys that differ, of x's type; -1 where it is none. NaN is a
    key."""
    dtype = dtypes.from_numpy(keys.dtype)
    if x.dtype != dtype:
        raise ops.TypeMismatch(f"keys are {dtype} where {x.type} is looked up")
    if not dtypes.is_float(dtype):
        return places(b, x, keys.tolist())
    whole = f"int{dtypes.bits(dtype)}"
    nan = int(np.array(np.nan, keys.dtype).view(whole))

    def bits(e: Expr) -> Expr:  # which equal numbers share
        plain = expr.where(e.equals(0), 0, expr.bitcast(e, whole))
        return expr.where(expr.isnan(e), nan, plain).cast("int64")

    known = np.where(np.isnan(keys), nan, np.where(keys == 0, 0, keys.view(whole)))
    return places(b, b.map(x, bits), known.tolist())


def encoded(b: Builder, x: Value, keys: np.ndarray, values: np.ndarray, default: object) -> Value:
    """The value of the first key that each element equals, else the default, which stands behind all."""
    if len(keys) != len(values):
        raise ops.TypeMismatch(f"there are {len(keys)} keys and {len(values)} values")
    first: dict[object, int] = {}
    for number, key in enumerate(keys.tolist()):
        first.setdefault(key if key == key else "nan", number)
    kept = list(first.values())
    known = np.append(values[kept], np.array([default], values.dtype))
    return b.emit(ops.Gather("axis", 0), b.constant(known), place_of(b, x, keys[kept]))[0]


def _array(
    strings: Sequence[str] | None,
    ints: Sequence[int] | None,
    floats: Sequence[float] | None,
    tensor: np.ndarray | None = None,
) -> np.ndarray:
    """The keys or values that one of the attributes gives."""
    given = [
        tensor,
        None if strings is None else np.array(strings, object),
        None if ints is None else np.array(ints, np.int64),
        None if floats is None else np.array(floats, np.float32),
    ]
    found = [array for array in given if array is not None]
    if len(found) != 1:
        raise ops.TypeMismatch(f"{len(found)} attributes give keys, or values, where one is needed")
    return found[0].reshape(-1)


@ml_op(since=4)
def LabelEncoder(
    b,
    X,
    *,
    default_float=-0.0,
    default_int64=-1,
    default_string="_Unused",
    default_tensor=None,
    keys_floats=None,
    keys_int64s=None,
    keys_strings=None,
    keys_tensor=None,
    values_floats=None,
    values_int64s=None,
    values_strings=None,
    values_tensor=None,
):
    keys = _array(keys_strings, keys_int64s, keys_floats, keys_tensor)
    values = _array(values_strings, values_int64s, values_floats, values_tensor)
    default = {"O": default_string, "i": default_int64, "f": default_float}[values.dtype.kind]
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    return encoded(b, X, keys, values, default)


@ml_op(since=2, name="LabelEncoder")
def _label_encoder_2(
    b,
    X,
    *,
    default_float=-0.0,
    default_int64=-1,
    default_string="_Unused",
    keys_floats=None,
    keys_int64s=None,
    keys_strings=None,
    values_floats=None,
    values_int64s=None,
    values_strings=None,
):
    keys = _array(keys_strings, keys_int64s, keys_floats)
    values = _array(values_strings, values_int64s, values_floats)
    default = {"O": default_string, "i": default_int64, "f": default_float}[values.dtype.kind]
    return encoded(b, X, keys, values, default)


@ml_op(since=1, name="LabelEncoder")
def _label_encoder_1(b, X, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    """Classes to their numbers, or numbers to their classes."""
    classes = np.array(classes_strings or (), object)
    return _between(b, X, classes, np.arange(len(classes)), default_int64, default_string)


@ml_op(since=1)
def CategoryMapper(b, X, *, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused"):
    texts, numbers = np.array(cats_strings or (), object), np.array(cats_int64s or (), np.int64)
    return _between(b, X, texts, numbers, default_int64, default_string)


def _between(b: Builder, x: Value, texts: np.ndarray, numbers: np.ndarray, number: int, text: str) -> Value:
    """Texts to numbers or numbers to texts, whichever x is."""
    if x.dtype == "string":
        return encoded(b, x, texts, numbers, number)
    return encoded(b, x, numbers, texts, text)
