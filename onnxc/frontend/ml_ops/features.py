"""Import rules of what prepares features: they are scaled, normalised, filled in, made one-hot, picked."""

from __future__ import annotations

from functools import partial

import numpy as np

from ...ir import dims, dtypes, expr, ops
from ...ir.graph import Value
from ..onnx_ops.common import generate
from ..rules import onnx_op
from .labels import place_of
from .scores import checked_length, floats, rows_of

ml_op = partial(onnx_op, domain="ai.onnx.ml")


@ml_op(since=1)
def Scaler(b, X, *, offset=None, scale=None):
    """(x - offset) * scale, of one number for all features or one for each"""
    offsets, scales = floats(b, offset or [0.0]), floats(b, scale or [1.0])
    return b.map(b.cast(X, "float32"), offsets, scales, lambda x, o, s: (x - o) * s)


@ml_op(since=1)
def Normalizer(b, X, *, norm="MAX"):
    """Each row divided by its greatest element, sum of magnitudes or length; rows of 0 stay."""
    x = b.cast(X, "float32")
    if x.rank not in (1, 2):
        raise ops.TypeMismatch(f"{x.type} has no rows of features")
    bodies = {"MAX": ("max", lambda e: e), "L1": ("sum", abs), "L2": ("sum", lambda e: e * e)}
    if norm not in bodies:
        raise ops.TypeMismatch(f"there is no norm '{norm}'")
    kind, body = bodies[norm]
    total = b.reduce(kind, x, [x.rank - 1], keepdims=True, body=body)
    if norm == "L2":
        return b.map(x, total, lambda x, t: expr.where(t.equals(0), x, x / expr.sqrt(t)))
    return b.map(x, total, lambda x, t: expr.where(t.equals(0), x, x / t))


@ml_op(since=1)
def Imputer(
    b,
    X,
    *,
    imputed_value_floats=None,
    imputed_value_int64s=None,
    replaced_value_float=0.0,
    replaced_value_int64=0,
):
    """Each feature's own value, or the first where there are not as many as features, for what is missing"""
    is_float = dtypes.is_float(X.dtype)
    values = imputed_value_floats if is_float else imputed_value_int64s
    replaced = float(replaced_value_float) if is_float else replaced_value_int64
    if not values:
        raise ops.TypeMismatch(f"there are no values to impute among {X.dtype}")
    features = X.shape[-1]
    each = dims.equal(features, len(values))
    imputed = floats(b, values[:1] if each is False else values, X.dtype)
    if each is None and len(values) > 1:
        place = expr.where(expr.size(features).equals(len(values)), expr.index(0), 0)
        imputed = b.emit(ops.Gather("axis", 0), imputed, generate(b, (features,), place))[0]

    def filled(x: expr.Expr, value: expr.Expr) -> expr.Expr:
        hit = expr.isnan(x) if replaced != replaced else x.equals(replaced)
        return expr.where(hit, value, x)

    return b.map(X, imputed, filled)


@ml_op(since=1)
def Binarizer(b, X, *, threshold=0.0):
    """1 above the threshold, else 0"""
    limit = expr.const(threshold, "float64" if X.dtype in ("float64", "int32", "int64") else "float32")
    return b.map(X, lambda x: (x.cast(limit.dtype) > limit).cast(X.dtype))


@ml_op(since=1)
def OneHotEncoder(b, X, *, cats_int64s=None, cats_strings=None, zeros=1):
    """A new last axis of 1 at the category's place, else 0; an unknown one has none, or fails the run."""
    is_text = X.dtype == "string"
    are_texts = bool(cats_strings) and (is_text or not cats_int64s)
    keys = np.array(cats_strings, object) if are_texts else np.array(cats_int64s or (), np.int64)
    if not len(keys):
        raise ops.TypeMismatch("there are no categories")
    if are_texts == is_text:
        x = b.map(X, _whole) if dtypes.is_float(X.dtype) else X if is_text else b.cast(X, "int64")
        last = {key: place for place, key in enumerate(keys.tolist())}  # of a key that is there twice
        place = place_of(b, x, np.array(list(last), keys.dtype))
        if list(last.values()) != [*range(len(last))]:
            place = b.emit(ops.Gather("axis", 0), b.constant(np.array([*last.values(), -1])), place)[0]
    else:  # no text is a number
        place = generate(b, X.shape, expr.const(-1, "int64"))
    if not zeros:
        place = b.map(place, lambda p: expr.check(p >= 0, p, "invalid_value"))
    numbers = b.constant(np.arange(len(keys)))
    return b.map(b.reshape(place, (*X.shape, 1)), numbers, lambda p, k: p.equals(k).cast("float32"))


def _whole(x: expr.Expr) -> expr.Expr:
    """The category that a number is; NaN is that of no other."""
    return expr.where(expr.isnan(x), expr.const(np.iinfo(np.int64).min, "int64"), x.cast("int64"))


@ml_op(since=1)
def FeatureVectorizer(b, *X, inputdimensions=None):
    """The features of all inputs side by side, each cut or filled up with 0 to its number."""
    checked_length(inputdimensions, len(X), "inputdimensions")
    parts: list[Value] = []
    for x, wanted in zip(X, inputdimensions):
        flat = x if x.rank < 3 else b.reshape(x, (x.shape[0], dims.product(x.shape[1:])))
        rows = rows_of(b, flat)
        kept = dims.minimum(rows.shape[1], wanted)
        rows = b.take(rows, 1, 0, kept)
        zero = b.constant(0.0, "float32")
        parts += b.emit(ops.Pad("constant", (0, 0), (0, wanted - kept)), rows, zero)
    return b.concat(parts, 1)


@ml_op(since=1)
def ArrayFeatureExtractor(b, X, Y):
    """The elements that Y names along X's last axis"""
    if X.rank == 0:
        raise ops.TypeMismatch(f"{X.type} has no features")
    x = X if X.rank > 1 else b.reshape(X, (1, X.shape[0]))
    places = b.reshape(Y, (Y.tensor.count,))
    return b.emit(ops.Gather("axis", x.rank - 1), x, places)[0]
