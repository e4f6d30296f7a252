"""Values between numpy and the C interface: the structs of runtime_c/include/onnxc.h and what fills them.

Arrays are lent to a call without copies where they are C-ordered, of the right type and in this
machine's byte order. A sequence is a list, an optional its value or None, strings are `str` (bytes
are taken as UTF-8), a map is a dict. Results look at the library's memory and own it.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RunError, quote
from ..ir import dtypes
from ..records import Record

if TYPE_CHECKING:
    from .texts import Texts

NONE, TENSOR, SEQUENCE, OPTIONAL, MAP = range(5)
KINDS = {"tensor": TENSOR, "sequence": SEQUENCE, "optional": OPTIONAL, "map": MAP}

#: What the loader itself refuses, by the library's numbers.
NULL_POINTER, WRONG_COUNT, WRONG_KIND, WRONG_DTYPE, WRONG_SHAPE, BUSY = 1, 2, 3, 4, 6, 21

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int32


class CValue(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("kind", _INT),
        ("dtype", _INT),
        ("rank", _INT),
        ("dims", _POINTER),
        ("data", _POINTER),
        ("bytes", ctypes.c_uint64),
        ("capacity", ctypes.c_uint64),
        ("object", _POINTER),
    ]


class CString(ctypes.Structure):
    _fields_ = [("data", _POINTER), ("length", ctypes.c_int64)]


class COptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("threads", _INT),
        ("pool", _POINTER),
        ("weights_path", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("allocator", _POINTER),  # since 1.2
    ]


def _function(*arguments: Any, result: Any = _INT) -> type:
    """A pointer to a C function; calling it releases the interpreter lock."""
    return ctypes.CFUNCTYPE(result, *arguments)


def _holding(*arguments: Any) -> type:
    """The same for one that calls Python's own functions: it keeps the lock, and raises what they raise."""
    return ctypes.PYFUNCTYPE(ctypes.c_int64, *arguments)


def prepared(types: Sequence[Any], *arguments: object) -> tuple[Any, ...]:
    """Arguments of these C types for `taking_prepared`, converted once and not in every call, of which that
    is half."""
    return tuple(type_.from_param(argument) for type_, argument in zip(types, arguments, strict=True))


def taking_prepared(function: Any) -> Any:
    """The same function of an int32 result, which checks and converts no arguments."""
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    return ctypes.CFUNCTYPE(_INT)(address)


#: Of `onnxc_model.run`.
RUN_TYPES: tuple[Any, ...] = (_POINTER, _POINTER, _INT, _POINTER, _INT)


class CModel(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("abi_major", ctypes.c_uint16),
        ("abi_minor", ctypes.c_uint16),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("input_count", _INT),
        ("output_count", _INT),
        ("inputs", _POINTER),
        ("outputs", _POINTER),
        ("metadata", _POINTER),
        ("metadata_count", _INT),
        ("feature_count", _INT),
        ("features", _POINTER),
        ("weights_bytes", ctypes.c_uint64),
        ("workspace_bytes", ctypes.c_int64),
        ("create", _function(_POINTER, _POINTER)),
        ("destroy", _function(_POINTER)),
        ("run", _function(*RUN_TYPES)),
        ("release", _function(_POINTER, result=None)),
        ("workspace_bytes_for", _function(_POINTER, _POINTER, _INT, _POINTER)),
        ("set_workspace", _function(_POINTER, _POINTER, ctypes.c_size_t)),
        ("last_error", _function(_POINTER, result=ctypes.c_char_p)),
        ("cancel", _function(_POINTER, result=None)),
        ("pool_create", _function(_INT, _POINTER)),
        ("pool_destroy", _function(_POINTER, result=None)),
        ("target", _function(_POINTER, result=ctypes.c_char_p)),  # since 1.1
        ("set_profile", _function(_POINTER, _POINTER)),  # since 1.1
        # Since 1.2:
        ("read_texts", _holding(_POINTER, ctypes.c_int64, _POINTER, _POINTER)),
        ("write_texts", _holding(_POINTER, ctypes.c_int64, _POINTER, _POINTER, _POINTER)),
    ]


# Ports ----------------------------------------------------------------------------------------------


class Port(Record):
    """An input or output. `shape` has numbers, names of symbolic dimensions, and None for unnamed ones;
    it is None itself where the rank is unknown. `dtype` is a name such as "float32" (of a sequence its
    items'), or None. `optional` inputs may be left out. `state`: the output that is an input's next value.
    `key`: the type of the keys of a map, or of maps in a sequence, whose values are of type `dtype`.
    `of`: the kind of what an optional holds."""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str | None
    kind: str = "tensor"
    optional: bool = False
    state: str | None = None
    key: str | None = None
    of: str | None = None

    def type_text(self) -> str:
        """The type as people read it: `float32[n, 3]`, `sequence of float32`."""
        element = f"{self.key} to {self.dtype}" if self.key else self.dtype or "any type"
        if self.kind == "tensor":
            sizes = (
                "..." if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
            )
            return f"{element}[{sizes}]"
        return f"{self.kind} of {element}"


def read_ports(entries: Sequence[Mapping[str, Any]]) -> tuple[Port, ...]:
    """The ports in a library's description."""
    return tuple(
        Port(
            e["name"],
            None if e["shape"] is None else tuple(e["shape"]),
            e["dtype"],
            e["kind"],
            bool(e.get("optional")),
            e.get("state"),
            e.get("key"),
            e.get("of"),
        )
        for e in entries
    )


class Slot(Record):
    """What filling a struct for a port needs, worked out once."""

    port: Port
    numpy: np.dtype | None  # None: any
    shape: tuple[int, ...] | None  # when every dimension is a number
    rank: int  # -1: not a tensor whose bytes numpy has, or unknown
    number: int
    nbytes: int  # where the shape is known
    texts: Texts | None = None  # of the library, for strings

    @classmethod
    def of(cls, port: Port, texts: Texts | None = None) -> Slot:
        shape = port.shape if port.kind == "tensor" and port.dtype not in (None, "string") else None
        known = tuple(d for d in shape or () if isinstance(d, int))
        static = shape is not None and not port.optional and len(known) == len(shape)
        kind = element_type(port.dtype) if port.dtype else None
        return cls(
            port,
            kind,
            known if static else None,
            -1 if shape is None else len(shape),
            dtypes.NUMBERS.get(port.dtype or "", 0),
            math.prod(known) * kind.itemsize if static and kind is not None else 0,
            texts,
        )

    def empty(self) -> np.ndarray:
        """Memory for a result of known shape; a large one begins on a line of the cache."""
        if self.nbytes < LARGE:
            return np.empty(self.shape or (), self.numpy)
        return on_line(np.empty(self.nbytes + LINE, np.uint8), self.shape or (), np.dtype(self.numpy))


@cache
def element_type(dtype: str) -> np.dtype:
    """The numpy type of an element type. Without the package ml_dtypes, the types that numpy does not
    have come as unsigned integers of the same bits: bfloat16 as uint16, the others as uint8."""
    try:
        return dtypes.numpy_dtype(dtype)
    except ImportError:
        return np.dtype(np.uint16 if dtype == "bfloat16" else np.uint8)


# To C -------------------------------------------------------------------------------------------------


def address_of(array: np.ndarray, byte: Any = ctypes.c_char, addressof: Any = ctypes.addressof) -> int:
    """The address of an array's first byte; by the buffer interface, which is thrice as quick."""
    try:
        return addressof(byte.from_buffer(array))
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a type without a code
        return array.ctypes.data


#: Bytes of a line of the cache: a vector that lies across two of them is written at half the speed. From so
#: many bytes on a result gains more by that than it takes Python to find a line.
LINE, LARGE = 64, 1 << 15


def on_line(memory: np.ndarray, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """An array in bytes that are `LINE` more than it takes, from the first whole line of the cache on."""
    return np.ndarray(shape, dtype, memory, -address_of(memory) % LINE)


def zeros_on_line(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Zeros, of which the system makes only the pages that are touched."""
    return on_line(np.zeros(math.prod(shape) * dtype.itemsize + LINE, np.uint8), shape, dtype)


def set_value(target: CValue, slot: Slot, value: object, lent: list[Any]) -> None:
    """Makes the struct describe any value. What it points to is appended to `lent`."""
    kind = KINDS[slot.port.kind]
    if kind == OPTIONAL:
        _set_list(target, kind, slot, [] if value is None else [value], lent)
    elif value is None:
        if not slot.port.optional:
            raise RunError(
                f"input {quote(slot.port.name)}: expected a {slot.port.kind}, got nothing", status=WRONG_KIND
            )
        target.kind = NONE
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
        part = Slot.of(Port(port.name, (None,), dtype), slot.texts)
        struct.struct_size = ctypes.sizeof(CValue)
        array = np.empty(len(items), part.numpy)
        try:
            array[:] = items
        except (TypeError, ValueError, OverflowError) as error:
            raise RunError(f"input {quote(port.name)}: {error}", status=WRONG_DTYPE) from None
        _set_tensor(struct, part, array, lent)
    _set_items(target, MAP, structs, 2, lent)


def _set_list(target: CValue, kind: int, slot: Slot, items: object, lent: list[Any]) -> None:
    if not isinstance(items, (list, tuple)):
        raise RunError(
            f"input {quote(slot.port.name)}: expected a list of arrays, got a {type(items).__name__}",
            status=WRONG_KIND,
        )
    structs = (CValue * max(len(items), 1))()
    for struct, item in zip(structs, items):
        struct.struct_size = ctypes.sizeof(CValue)
        if isinstance(item, (list, tuple)):
            _set_list(struct, SEQUENCE, slot, item, lent)
        else:
            _set_tensor(struct, slot, item, lent)
    _set_items(target, kind, structs, len(items), lent)


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
        from .texts import lend

        target.data = lend(slot.texts, slot.port.name, array, lent)
        target.bytes = array.size * ctypes.sizeof(CString)
    else:
        target.data, target.bytes = address_of(array), array.nbytes
    lent += [array, dims]


def _as_array(slot: Slot, value: object) -> np.ndarray:
    """`value` as a C-ordered array of the slot's type in this machine's byte order."""
    array = value if isinstance(value, np.ndarray) else _from_python(slot, value)
    try:
        dtype = dtypes.from_numpy(array.dtype.newbyteorder("="))
    except TypeError:
        dtype = ""
    expected = slot.port.dtype or dtype
    if not dtype or (dtype != expected and array.dtype.newbyteorder("=") != slot.numpy):
        raise RunError(
            f"input {quote(slot.port.name)}: expected {expected or 'an element type'}, got {array.dtype}",
            status=WRONG_DTYPE,
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else array.copy(order="C")


def _from_python(slot: Slot, value: object) -> np.ndarray:
    """A number or a list, which take the slot's type if they fit it, or a tensor of another library."""
    try:
        array = _shared(value) if hasattr(value, "__dlpack__") else np.asarray(value)
        if slot.numpy is None or slot.numpy.kind == "O" or array.dtype == slot.numpy:
            return array
        if array.dtype.kind in "biufc" and np.can_cast(array.dtype, slot.numpy, "same_kind"):
            return np.asarray(value, slot.numpy)
        return array
    except (TypeError, ValueError, OverflowError) as error:
        raise RunError(f"input {quote(slot.port.name)}: {error}", status=WRONG_DTYPE) from None


def _shared(value: Any) -> np.ndarray:
    """A tensor by the DLPack protocol, without a copy where it lies in the processor's memory; what cannot be
    given so (one that gradients are computed of, another element type) by numpy's."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return np.asarray(value.detach() if hasattr(value, "detach") else value)


# From C -----------------------------------------------------------------------------------------------


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


@cache
def _dims(rank: int) -> Any:
    return ctypes.c_int64 * rank


def shape_of(value: CValue) -> tuple[int, ...]:
    return tuple(_dims(value.rank).from_address(value.dims)) if value.rank else ()


def to_array(value: CValue, owner: Any) -> np.ndarray:
    shape, dtype = shape_of(value), dtypes.ALL[value.dtype - 1]
    if value.bytes == 0:
        return np.empty(shape, element_type(dtype))
    if dtype == "string":
        from .texts import taken

        texts = owner.library.texts if owner is not None else None
        return taken(texts, value.data, value.bytes // ctypes.sizeof(CString)).reshape(shape)
    memory = (ctypes.c_char * value.bytes).from_address(value.data)
    memory.owner = owner
    return np.frombuffer(memory, element_type(dtype)).reshape(shape)
