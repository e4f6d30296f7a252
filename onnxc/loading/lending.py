"""What calls are given: any value of Python as a C value that is lent to a call.

Arrays are lent without copies where they are C-ordered, of the right type and in this machine's byte order. A
sequence is a list, an optional its value or None, strings are `str` (bytes are taken as UTF-8), a map is a
dict. What the loader can fill in few steps does not come here.

Tensors of other libraries are read by the DLPack protocol, of element types that numpy lacks, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np

from ..errors import RunError, quote
from ..ir import dtypes
from .c_values import (
    KINDS,
    MAP,
    NONE,
    OPTIONAL,
    SEQUENCE,
    TENSOR,
    WRONG_DTYPE,
    WRONG_KIND,
    WRONG_RANK,
    CValue,
    Port,
    Slot,
    address_of,
)


def set_value(target: CValue, slot: Slot, value: object, lent: list[Any]) -> None:
    """Makes the struct describe any value. What it points to is appended to `lent`."""
    kind = KINDS[slot.port.kind]
    if value is None and kind != OPTIONAL:
        if not slot.port.optional:
            raise RunError(
                f"input {quote(slot.port.name)}: expected a {slot.port.kind}, got nothing", status=WRONG_KIND
            )
        target.kind = NONE
    else:
        _set_kind(target, kind, slot, value, lent)


def _set_kind(target: CValue, kind: int, slot: Slot, value: object, lent: list[Any]) -> None:
    if kind == OPTIONAL:
        _set_list(target, kind, slot, [] if value is None else [value], lent)
    elif kind == TENSOR:
        _set_tensor(target, slot, value, lent)
    elif kind == MAP:
        _set_map(target, slot, value, lent)
    else:
        _set_list(target, kind, slot, value, lent)


def _set_map(target: CValue, slot: Slot, value: object, lent: list[Any]) -> None:
    """A map is its keys and its values."""
    port = slot.port
    if not isinstance(value, Mapping):
        raise RunError(
            f"input {quote(port.name)}: expected a dict, got a {type(value).__name__}", status=WRONG_KIND
        )
    structs = (CValue * 2)()
    for struct, dtype, items in zip(structs, (port.key, port.dtype), (list(value), list(value.values()))):
        part = Slot.of(Port(port.name, (None,), dtype), dtypes.NUMBERS.get(dtype or "", 0), slot.texts)
        struct.struct_size = ctypes.sizeof(CValue)
        array = np.fromiter(items, object, len(items)) if dtype == "string" else _from_python(part, items)
        if array.ndim != 1:
            raise RunError(
                f"input {quote(port.name)}: expected one number for each key, "
                f"got shape {list(array.shape[1:])}",
                status=WRONG_RANK,
            )
        _set_tensor(struct, part, array, lent)
    _set_items(target, MAP, structs, 2, lent)


def _set_list(target: CValue, kind: int, slot: Slot, items: object, lent: list[Any]) -> None:
    if not isinstance(items, (list, tuple)):
        raise RunError(
            f"input {quote(slot.port.name)}: expected a list of arrays, got a {type(items).__name__}",
            status=WRONG_KIND,
        )
    held = slot.port.of if kind == OPTIONAL else None
    structs = (CValue * max(len(items), 1))()
    for struct, item in zip(structs, items):
        struct.struct_size = ctypes.sizeof(CValue)
        _set_kind(struct, KINDS[held] if held else _kind_of(item), slot, item, lent)
    _set_items(target, kind, structs, len(items), lent)


def _kind_of(item: object) -> int:
    """What an item of a list is, whose kind the library holds against the model's."""
    if isinstance(item, (list, tuple)):
        return SEQUENCE
    return MAP if isinstance(item, Mapping) else TENSOR


def _set_items(target: CValue, kind: int, structs: ctypes.Array, length: int, lent: list[Any]) -> None:
    count = ctypes.c_int64(length)
    target.kind, target.rank, target.dims = kind, 1, ctypes.addressof(count)
    target.data, target.bytes = ctypes.addressof(structs), length * ctypes.sizeof(CValue)
    lent += [structs, count]


def _set_tensor(target: CValue, slot: Slot, value: object, lent: list[Any]) -> None:
    array = _as_array(slot, value)
    number = slot.number or dtypes.NUMBERS[dtypes.from_numpy(array.dtype)]
    dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
    target.kind, target.dtype, target.rank = TENSOR, number, array.ndim
    target.dims = ctypes.addressof(dims)
    if number == dtypes.NUMBERS["string"]:
        from .texts import CString, lend

        target.data = lend(slot.texts, slot.port.name, array, lent)
        target.bytes = array.size * ctypes.sizeof(CString)
    else:
        target.data, target.bytes = address_of(array), array.nbytes
    lent += [array, dims]


def _as_array(slot: Slot, value: object) -> np.ndarray:
    """`value` as a C-ordered array of the slot's type in this machine's byte order."""
    array = value if isinstance(value, np.ndarray) else _from_python(slot, value)
    native = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    try:
        dtype = dtypes.from_numpy(native)
    except TypeError:
        dtype = ""
    expected = slot.port.dtype or dtype
    if not dtype or (dtype != expected and native != slot.numpy):
        raise RunError(
            f"input {quote(slot.port.name)}: expected {expected or 'an element type'}, got {array.dtype}",
            status=WRONG_DTYPE,
        )
    if not array.dtype.isnative:
        array = array.astype(native)
    return array if array.flags.c_contiguous else array.copy(order="C")


def _from_python(slot: Slot, value: object) -> np.ndarray:
    """A number or a list, or a tensor of another library, which take the slot's type if they fit it."""
    try:
        array = _shared(value) if hasattr(value, "__dlpack__") else np.asarray(value)
        wanted = slot.numpy
        return array if wanted is None or array.dtype == wanted else _fitted(slot, array, wanted)
    except RunError:
        raise
    except Exception as error:  # the value's own code may raise any
        reason = str(error) or type(error).__name__
        raise RunError(f"input {quote(slot.port.name)}: {reason}", status=WRONG_DTYPE) from error


def _fitted(slot: Slot, array: np.ndarray, wanted: np.dtype) -> np.ndarray:
    """The same numbers in the slot's type, floats rounded; an array of another kind of numbers as it is.
    Raises RunError for a number that the type does not have."""
    numbers = _widened(array)
    dtype, kind = slot.port.dtype or "", numbers.dtype.kind
    floats = "biufc" if wanted.kind == "c" else "biuf"
    found = array
    outside: Sequence[Any] | np.ndarray = ()
    if array.size == 0:  # an empty list is of any type
        found = array.astype(wanted)
    elif dtypes.is_integer(dtype) or dtype == "bool":
        if kind not in "biu" and not all(isinstance(number, int) for number in numbers.flat):
            return array
        low, high = dtypes.integer_range(dtype)
        outside = [number for number in (numbers.min(), numbers.max()) if not low <= int(number) <= high]
        found = array if outside else numbers.astype(wanted)
    elif not wanted.hasobject and (
        all(isinstance(number, Real) for number in numbers.flat)  # as where integers are longer than numpy's
        if kind == "O"
        else kind in floats and np.can_cast(numbers.dtype, wanted, "same_kind")
    ):
        found, has = dtypes.rounded(numbers, dtype)
        outside = numbers[~has]
    if len(outside):
        raise RunError(
            f"input {quote(slot.port.name)}: {outside[0]} is no number of {dtype}", status=WRONG_DTYPE
        )
    return found


def _widened(array: np.ndarray) -> np.ndarray:
    """The same numbers in a type of numpy's own, which has all of those of `ml_dtypes`."""
    try:
        dtype = dtypes.from_numpy(array.dtype)
    except TypeError:
        return array
    if dtype == "bfloat16" or dtype in dtypes.SMALL_FLOATS:
        return array.astype(np.float32)
    return array.astype(np.int8) if dtypes.is_integer(dtype) and dtypes.bits(dtype) < 8 else array


# Tensors of other libraries ----------------------------------------------------------------------

#: The element types that numpy lacks, by their codes in DLPack.
_CODES = {
    4: "bfloat16",
    10: "float8e4m3fn",
    11: "float8e4m3fnuz",
    12: "float8e5m2",
    13: "float8e5m2fnuz",
    14: "float8e8m0",
}
_UNSIGNED = 1  # the code of integers


class _Described(ctypes.Structure):
    """The begin of DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Bits:
    """A tensor that is given as integers where numpy lacks its type, which is in `dtype` then."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self.dtype = tensor, ""

    def __dlpack__(self, *, stream: None = None, **_: object) -> Any:
        capsule = self.tensor.__dlpack__()
        described = _Described.from_address(_pointer(capsule, b"dltensor"))
        dtype = _CODES.get(described.code, "")
        if dtype and (described.bits, described.lanes) == (dtypes.bits(dtype), 1):
            self.dtype, described.code = dtype, _UNSIGNED
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def _shared(value: Any) -> np.ndarray:
    """A tensor by the DLPack protocol, without a copy where it lies in the processor's memory; what cannot be
    given so (of another device, for one) by numpy's."""
    for resolve in ("resolve_conj", "resolve_neg"):  # views of numbers that the memory has with another sign
        if hasattr(value, resolve):
            value = getattr(value, resolve)()
    try:
        return np.from_dlpack(value)
    except Exception as error:
        if hasattr(value, "detach"):  # from what computes gradients of it
            value = value.detach()
        with suppress(Exception):
            return _by_bits(value)
        found = np.asarray(value)
        if found.dtype.hasobject:  # numpy knows nothing of it
            raise error
        return found


def _by_bits(tensor: Any) -> np.ndarray:
    bits = _Bits(tensor)
    array = np.from_dlpack(bits)
    return array.view(dtypes.numpy_dtype(bits.dtype)) if bits.dtype else array
