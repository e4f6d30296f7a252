"""What C values hold. Sequences whose items are alike are read at once: what ZipMap and SplitToSequence give.

Such items lie at equal distances in one block of the library's memory, so that one strided array sees a field
of all of them. Tensors become views of one array; maps are made in C, where the package was built with that.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..ir import dtypes
from .c_values import MAP, OPTIONAL, SEQUENCE, TENSOR, CValue, element_type, shape_of, to_array

maps: Any
try:
    from ._quick import maps
except ImportError:
    maps = None

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
    first = CValue.from_address(value.data)
    if kinds[0] == TENSOR:
        return _tensors(first, items, owner)
    return _maps(value, first) if kinds[0] == MAP else None


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


def _maps(value: CValue, first: CValue) -> list[dict] | None:
    """Of a sequence of maps, which quick.c makes."""
    types = {part.dtype for part in (CValue * 2).from_address(first.data)}
    return maps(ctypes.addressof(value)) if maps is not None and types <= {*_ELEMENTS, _STRING} else None


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
