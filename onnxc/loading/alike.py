"""What C values hold. Sequences whose items are alike are read at once: what ZipMap and SplitToSequence give.

Such items lie at equal distances in one block of the library's memory, so that one strided array sees a field
of all of them. Tensors become views of one array; maps are made a key at a time.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable
from itertools import repeat
from operator import setitem
from typing import Any

import numpy as np

from ..ir import dtypes
from .c_values import MAP, OPTIONAL, SEQUENCE, TENSOR, CValue, element_type, shape_of, to_array

_STRUCT = np.dtype(CValue)
_STRING = dtypes.NUMBERS["string"]

FEW = 4  # items of a sequence that are read one by one, which is quicker then


def items_of(value: CValue, count: int, owner: Any) -> list[Any] | None:
    """The items of a sequence, of which there are some; None where they are not alike. Arrays look at its
    memory and keep `owner` alive."""
    items = _at(value.data, (count,), _STRUCT, (_STRUCT.itemsize,))
    kinds = items["kind"]
    if not (kinds == kinds[0]).all():
        return None
    if kinds[0] == TENSOR:
        return _tensors((CValue * 1).from_address(value.data)[0], items, owner)
    return _maps(items, owner) if kinds[0] == MAP else None


def _tensors(first: CValue, items: np.ndarray, owner: Any) -> list[np.ndarray] | None:
    """Of one type and shape."""
    rank, apart = first.rank, _distance(items["dims"])
    if first.dtype == _STRING or first.bytes == 0 or rank == 0 or apart <= 0:
        return None
    if not ((items["dtype"] == first.dtype) & (items["rank"] == rank)).all():
        return None
    shape, step = shape_of(first), _distance(items["data"])
    sizes = _at(first.dims, (len(items), rank), np.dtype(np.int64), (apart, 8))
    if step < first.bytes or not (sizes == shape).all():
        return None
    element = element_type(dtypes.ALL[first.dtype - 1])
    dense = np.empty(shape, element).strides
    return list(_at(first.data, (len(items), *shape), element, (step, *dense), owner))


def _maps(items: np.ndarray, owner: Any) -> list[dict] | None:
    """That share their keys."""
    step = _distance(items["data"])
    if step <= 0:
        return None
    parts = _at(int(items["data"][0]), (len(items), 2), _STRUCT, (step, _STRUCT.itemsize))
    numbers = parts[:, 1]
    step, dtype, length = _distance(numbers["data"]), int(numbers["dtype"][0]), int(numbers["bytes"][0])
    alike = (numbers["bytes"] == length) & (numbers["dtype"] == dtype)
    if step <= 0 or length == 0 or dtype == _STRING or not alike.all() or np.ptp(parts["data"][:, 0]) != 0:
        return None
    keys = elements((CValue * 2).from_address(int(items["data"][0]))[0], owner)
    element = element_type(dtypes.ALL[dtype - 1])
    shape = len(items), length // element.itemsize
    rows = _at(int(numbers["data"][0]), shape, element, (step, element.itemsize))
    maps = list(map(dict.copy, repeat(dict.fromkeys(keys), len(items))))
    for key, column in zip(keys, rows.T.tolist()):
        deque(map(setitem, maps, repeat(key), column), maxlen=0)
    return maps


def _distance(addresses: np.ndarray) -> int:
    """From each address to the next, 0 where that is not the same everywhere."""
    steps = np.diff(addresses.astype(np.int64))
    return int(steps[0]) if (steps == steps[0]).all() else 0


def _at(
    address: int, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...], owner: Any = None
) -> np.ndarray:
    nbytes = sum((n - 1) * s for n, s in zip(shape, strides)) + dtype.itemsize
    memory: Any = (ctypes.c_char * nbytes).from_address(address)
    memory.owner = owner
    return np.ndarray(shape, dtype, memory, 0, strides)


def to_python(value: CValue, owner: Any) -> object:
    """What a C value holds. Arrays look at its memory and keep `owner` alive; strings are copied."""
    if value.kind == TENSOR:
        return to_array(value, owner)
    if value.kind == MAP:
        keys, numbers = (CValue * 2).from_address(value.data)
        return dict(zip(elements(keys, owner), elements(numbers, owner)))
    (count,) = shape_of(value)
    if value.kind == SEQUENCE and count > FEW and (alike := items_of(value, count, owner)) is not None:
        return alike
    items: Iterable[CValue] = (CValue * count).from_address(value.data) if count else ()
    converted: list[Any] = [to_python(item, owner) for item in items]
    return (converted or [None])[0] if value.kind == OPTIONAL else converted


_ELEMENTS: dict[int, Any] = {
    dtypes.NUMBERS["float32"]: ctypes.c_float,
    dtypes.NUMBERS["float64"]: ctypes.c_double,
    dtypes.NUMBERS["int64"]: ctypes.c_int64,
}


def elements(vector: CValue, owner: Any) -> list[Any]:
    """A vector's elements as Python has them; of a few, quicker than numpy."""
    kind = _ELEMENTS.get(vector.dtype)
    if kind is None or vector.bytes == 0:
        return to_array(vector, owner).tolist()
    return (kind * (vector.bytes // ctypes.sizeof(kind))).from_address(vector.data)[:]
