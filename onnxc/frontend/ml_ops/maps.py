"""Import rules of maps: a row of scores with its labels becomes one, and one becomes a row of features.

A map that is an input is taken apart into keys and values; where these go is a Scatter.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...ir import dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.graph import MapType, SequenceType, TensorType, Value
from ..onnx_ops import casting
from ..rules import onnx_op
from .labels import place_of
from .scores import labels_of

ml_op = partial(onnx_op, domain="ai.onnx.ml")


@ml_op(since=1)
def ZipMap(b, X, *, classlabels_int64s=None, classlabels_strings=None):
    """A sequence of maps from labels to scores, one for each row."""
    if X.rank not in (1, 2):
        raise ops.TypeMismatch(f"{X.type} has no rows of scores")
    labels = labels_of(classlabels_strings, classlabels_int64s)
    type_ = SequenceType(MapType(dtypes.from_numpy(labels.dtype), X.dtype))
    return b.call("zip_map", [X, b.constant(labels)], [type_])[0]


def _parts(b: Builder, x: Value) -> tuple[Value, ...]:
    """The keys and the values of a map."""
    if not isinstance(x.type, MapType):
        raise ops.TypeMismatch(f"{x.type} is given where a map is needed")
    kinds, count = (x.type.key, x.type.value), b.fresh("items")
    types = [TensorType(kind, (count,)) for kind in kinds]
    return b.call("map_parts", [x], types, [dtypes.NUMBERS[kind] for kind in kinds])


def _placed(b: Builder, places: Value, values: Value, size: int, otherwise: object) -> Value:
    """[1, size]: each value at its place, if there is one (-1: none)."""
    empty = np.full(size + 1, otherwise, dtypes.numpy_dtype(values.dtype))
    whole = b.emit(ops.Scatter("elements"), b.constant(empty), places, values)[0]
    return b.reshape(b.take(whole, 0, 0, size), (1, size))


@ml_op(since=1)
def DictVectorizer(b, X, *, int64_vocabulary=None, string_vocabulary=None):
    """The values of the words of a vocabulary, 0 or an empty text of those that the map lacks."""
    words = labels_of(string_vocabulary, int64_vocabulary)
    keys, values = _parts(b, X)
    otherwise = "" if values.dtype == "string" else 0
    return _placed(b, place_of(b, keys, words), values, len(words), otherwise)


@ml_op(since=1)
def CastMap(b, X, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    """The values in the order of their keys, or at the places that these name, below max_map. Numbers become
    text as Cast writes them."""
    codes = {"TO_FLOAT": "float32", "TO_INT64": "int64", "TO_STRING": "string"}
    if cast_to not in codes or map_form not in ("DENSE", "SPARSE") or max_map < 0:
        raise ops.TypeMismatch(f"'{cast_to}', '{map_form}' and {max_map} are no form of a map")
    keys, values = _parts(b, X)
    values = casting.Cast(b, values, to=dtypes.NUMBERS[codes[cast_to]])
    if map_form == "DENSE":
        order = b.emit(ops.Sort(0), keys)[1]
        return b.reshape(b.emit(ops.Gather("axis", 0), values, order)[0], (1, values.shape[0]))
    places = b.map(keys, lambda k: expr.where(expr.check(k >= 0, k, "invalid_value") < max_map, k, -1))
    return _placed(b, places, values, max_map, "0.f" if cast_to == "TO_STRING" else 0)
