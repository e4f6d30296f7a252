"""The C interface in ctypes: the structs of runtime_c/include/onnxc.h, what a library tells of its inputs and
outputs, and arrays between numpy and C. `lending.py` has all other values that a call may be given,
`alike.py` all others that it may return. Opening a library imports this file."""

from __future__ import annotations

import ctypes
import math
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RunError
from ..record import Record

if TYPE_CHECKING:
    from .texts import Texts

# Here again, since opening a library imports none of the compiler: test_abi.py holds them to codegen/abi.py.
NONE, TENSOR, SEQUENCE, OPTIONAL, MAP = range(5)
KINDS = {"tensor": TENSOR, "sequence": SEQUENCE, "optional": OPTIONAL, "map": MAP}

#: What the loader itself refuses, by the library's numbers.
NULL_POINTER, WRONG_COUNT, WRONG_KIND, WRONG_DTYPE, WRONG_RANK, WRONG_SHAPE, BUFFER_TOO_SMALL, OVERLAP = (
    range(1, 9)
)
OUT_OF_MEMORY, BUSY = 16, 21

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


class COptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("threads", _INT),
        ("pool", _POINTER),
        ("weights_path", ctypes.c_char_p),
        ("target", ctypes.c_char_p),
        ("allocator", _POINTER),  # since 1.2
        ("stop", _POINTER),  # since 1.3
    ]


def prepared(types: Sequence[Any], *arguments: object) -> tuple[Any, ...]:
    """Arguments of these C types for `taking_prepared`, converted once and not in every call, of which that
    is half."""
    return tuple(type_.from_param(argument) for type_, argument in zip(types, arguments, strict=True))


def taking_prepared(address: int) -> Any:
    """The function there, of an int32 result, which checks and converts no arguments."""
    return ctypes.CFUNCTYPE(_INT)(address)


#: Of `onnxc_model.run`.
RUN_TYPES: tuple[Any, ...] = (_POINTER, _POINTER, _INT, _POINTER, _INT)


#: The words of 8 bytes that `onnxc_model` is made of, by the names of fields. The first holds three numbers,
#: those of counts two. Tables of version 1.0 end before `target`, those of 1.1 before `read_texts`.
WORDS = (
    "struct_size",
    "name",
    "version",
    "description",
    "input_count",
    "inputs",
    "outputs",
    "metadata",
    "metadata_count",
    "features",
    "weights_bytes",
    "workspace_bytes",
    "create",
    "destroy",
    "run",
    "release",
    "workspace_bytes_for",
    "set_workspace",
    "last_error",
    "cancel",
    "pool_create",
    "pool_destroy",
    "target",
    "set_profile",
    "read_texts",
    "write_texts",
)

DTYPE_OFFSET = 8  # of an `onnxc_port`, which begins with its size

#: What functions of the table take, which return a status but for those of `_RESULTS`.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "create": (_POINTER, _POINTER),
    "destroy": (_POINTER,),
    "release": (_POINTER,),
    "workspace_bytes_for": (_POINTER, _POINTER, _INT, _POINTER),
    "set_workspace": (_POINTER, _POINTER, ctypes.c_size_t),
    "last_error": (_POINTER,),
    "cancel": (_POINTER,),
    "pool_create": (_INT, _POINTER),
    "pool_destroy": (_POINTER,),
    "target": (_POINTER,),
    "set_profile": (_POINTER, _POINTER),
    "read_texts": (_POINTER, ctypes.c_int64, _POINTER, _POINTER),
    "write_texts": (_POINTER, ctypes.c_int64, _POINTER, _POINTER, _POINTER),
}
_RESULTS: dict[str, Any] = {
    **dict.fromkeys(("release", "cancel", "pool_destroy")),
    **dict.fromkeys(("last_error", "target"), ctypes.c_char_p),
    **dict.fromkeys(("read_texts", "write_texts"), ctypes.c_int64),
}


class Table:
    """A library's table (`onnxc_model`) at an address. A function becomes Python's when it is first asked
    for: making the types of all, and a struct of so many fields, takes ctypes as long as all else that opens
    a library.

    Calls release the interpreter lock but for those that call Python's own functions: these keep it, and
    raise what Python raises."""

    def __init__(self, address: int):
        self.address: int = address
        size, version = (ctypes.c_uint32 * 2).from_address(address)
        self.struct_size: int = size
        self.version: tuple[int, int] = (version & 0xFFFF, version >> 16)

    def has(self, name: str) -> bool:
        """Whether the table is of a version that has this field."""
        return self.struct_size > 8 * WORDS.index(name)

    def word(self, name: str) -> int:
        return ctypes.c_uint64.from_address(self.address + 8 * WORDS.index(name)).value

    def element_types(self, ports: str, count: int) -> list[int]:
        """The numbers of the element types of so many "inputs" or "outputs", 0 for any."""
        first = self.word(ports)
        size = ctypes.c_uint32.from_address(first).value if count else 0
        return [ctypes.c_int32.from_address(first + k * size + DTYPE_OFFSET).value for k in range(count)]

    def __getattr__(self, name: str) -> Any:
        kind = ctypes.PYFUNCTYPE if name.endswith("_texts") else ctypes.CFUNCTYPE
        function = kind(_RESULTS.get(name, _INT), *_ARGUMENTS[name])(self.word(name))
        setattr(self, name, function)
        return function


# Ports ----------------------------------------------------------------------------------------------


class Port(Record):
    """An input or output. `shape` has numbers, names of symbolic dimensions, and None for unnamed ones;
    it is None itself where the rank is unknown. `dtype` is a name such as "float32" (of a sequence its
    items'), or None. `optional` inputs may be left out. `state`: the output that is an input's next value.
    `key`: the type of the keys of a map, or of maps in a sequence, whose values are of type `dtype`.
    `of`: the kind of what an optional holds. `typical`: the shape that an input with symbolic dimensions has
    most of the time, which kernels were chosen for; None where the library does not say."""

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str | None
    kind: str = "tensor"
    optional: bool = False
    state: str | None = None
    key: str | None = None
    of: str | None = None
    typical: tuple[int, ...] | None = None

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
            tuple(e["typical"]) if "typical" in e else None,
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
    def of(cls, port: Port, number: int, texts: Texts | None = None) -> Slot:
        """number: of the element type, 0 for any."""
        shape = port.shape if port.kind == "tensor" and port.dtype not in (None, "string") else None
        known = tuple(d for d in shape or () if isinstance(d, int))
        static = shape is not None and not port.optional and len(known) == len(shape)
        kind = element_type(port.dtype) if port.dtype else None
        if kind is not None and number and port.kind == "tensor":
            _types[number] = kind
        return cls(
            port,
            kind,
            known if static else None,
            -1 if shape is None else len(shape),
            number,
            math.prod(known) * kind.itemsize if static and kind is not None else 0,
            texts,
        )

    def format(self) -> str | None:
        """How the buffer protocol names the elements of arrays, of such in a sequence, or of what an optional
        holds; None where it does not, and for all else."""
        port = self.port
        known = port.of in ("tensor", "sequence") if port.kind == "optional" else not port.optional
        if not known or port.kind == "map" or port.key is not None or self.numpy is None:
            return None
        if self.numpy.hasobject:  # texts
            return "O" if self.texts is not None else None
        try:
            return np.empty(0, self.numpy).data.format
        except ValueError:  # a type that numpy does not have itself
            return None

    def made_in_c(self) -> bool:
        """Whether quick.c makes such a result: an array, texts, a map, a sequence of these or an optional."""
        if self.port.key is not None:
            return {self.port.key, self.port.dtype} <= {"int64", "string", "float32", "float64"}
        return self.format() is not None

    def follows_from(self, inputs: Sequence[Slot]) -> bool:
        """Whether the shape of a result, whose elements numpy has, is written in the names of the inputs'
        dimensions."""
        if self.port.kind != "tensor" or self.port.optional or self.numpy is None or self.numpy.hasobject:
            return False
        names = {d for slot in inputs for d in slot.port.shape or () if isinstance(d, str)}
        dims = self.port.shape or (None,)
        return all(isinstance(d, int) or (d is not None and _names_in(d) <= names) for d in dims)

    def bytes_of(self, shape: tuple[int, ...]) -> int:
        return self.nbytes if shape is self.shape else math.prod(shape) * np.dtype(self.numpy).itemsize


def _names_in(size: str) -> set[str]:
    """What a formula of sizes names: words that are no numbers and, without a parenthesis, no functions."""
    return {word for word in re.findall(r"\w+(?![\w(])", size) if not word.isdigit()}


_types: dict[int, np.dtype] = {}  # of the ports of what was opened, by their numbers


def _type_of(number: int) -> np.dtype:
    """The numpy type of an element type's number, which a call knows without importing anything if it is
    that of a port."""
    if number not in _types:
        from ..ir import dtypes

        _types[number] = element_type(dtypes.ALL[number - 1])
    return _types[number]


@cache
def element_type(dtype: str) -> np.dtype:
    """The numpy type of an element type. Without the package ml_dtypes, the types that numpy does not
    have come as unsigned integers of the same bits: bfloat16 as uint16, the others as uint8."""
    if hasattr(np, dtype):  # most have numpy's name
        return np.dtype(dtype)
    from ..ir.dtypes import numpy_dtype

    try:
        return numpy_dtype(dtype)
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


class Spares:
    """Memory for the results of a context's outputs. That of the last two large ones of each output is kept,
    and given again when no array looks at it any more: fresh memory is pages that the system clears when they
    are first touched, which takes longer than to write a result, and what numpy releases goes back to it."""

    MOST = 1 << 28  # bytes that are kept

    def __init__(self, outputs: int):
        self.kept: list[list[tuple[memoryview, weakref.ref[np.ndarray]]]] = [[] for _ in range(outputs)]

    def empty(self, output: int, slot: Slot, shape: tuple[int, ...]) -> np.ndarray:
        """Memory for a result of that shape; a large one begins on a line of the cache."""
        nbytes = slot.bytes_of(shape)
        if nbytes < LARGE:
            return np.empty(shape, slot.numpy)
        kept = self.kept[output]
        free = (k for k, (block, base) in enumerate(kept) if base() is None and _fits(nbytes, block.nbytes))
        place = next(free, None)
        if place is None:
            block = _block(nbytes + nbytes // 8)  # a decoder's results grow
            if len(kept) == 2:
                del kept[0]
            if self.bytes() + block.nbytes > self.MOST:
                return np.ndarray(shape, slot.numpy, block)
        else:
            block = kept.pop(place)[0]
        array = np.frombuffer(block, np.uint8)  # the base of every array that looks there
        kept.append((block, weakref.ref(array)))
        return np.ndarray(shape, slot.numpy, array)

    def bytes(self) -> int:
        """Those that are kept: counted when it matters, as a count that is kept may miss some."""
        return sum(block.nbytes for its in self.kept for block, _ in its)


def _fits(nbytes: int, room: int) -> bool:
    return nbytes <= room <= 2 * nbytes


def _block(nbytes: int) -> memoryview:
    """So many bytes from a line of the cache on."""
    memory = _bytes(np.empty, nbytes + LINE)
    start = -address_of(memory) % LINE
    return memory.data[start : start + nbytes]


def spare(nbytes: int) -> np.ndarray:
    """Memory that `Caller` of quick.c keeps as `Spares` does."""
    return np.frombuffer(_block(nbytes), np.uint8)


def zeros_on_line(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Zeros, of which the system makes only the pages that are touched."""
    return on_line(_bytes(np.zeros, math.prod(shape) * dtype.itemsize + LINE), shape, dtype)


def _bytes(make: Callable[[int, type], np.ndarray], nbytes: int) -> np.ndarray:
    """So many bytes of `np.empty` or `np.zeros`; where there are none the error is that of a library."""
    try:
        return make(nbytes, np.uint8)
    except MemoryError:
        reason = f"out of memory: {nbytes} bytes are needed"
        raise RunError(reason, status=OUT_OF_MEMORY) from None


# From C -----------------------------------------------------------------------------------------------


@cache
def _dims(rank: int) -> Any:
    return ctypes.c_int64 * rank


def shape_of(value: CValue) -> tuple[int, ...]:
    return tuple(_dims(value.rank).from_address(value.dims)) if value.rank else ()


def to_array(value: CValue, owner: Any) -> np.ndarray:
    shape, dtype = shape_of(value), _type_of(value.dtype)
    if value.bytes == 0:
        return np.empty(shape, dtype)
    if dtype.hasobject:  # strings
        from .texts import CString, taken

        texts = owner.library.texts if owner is not None else None
        return taken(texts, value.data, value.bytes // ctypes.sizeof(CString)).reshape(shape)
    memory = (ctypes.c_char * value.bytes).from_address(value.data)
    memory.owner = owner
    return np.frombuffer(memory, dtype).reshape(shape)


# What callers give ------------------------------------------------------------------------------------


def no_mapping(given: object, what: str) -> RunError:
    reason = f"expected a mapping of {what}, got a {type(given).__name__}"
    return RunError(reason, status=WRONG_COUNT)


def mapping(given: Any, what: str) -> Any:
    """What is given, a mapping; RunError for anything else."""
    if not isinstance(given, Mapping):
        raise no_mapping(given, what)
    return given


def natural(name: str, given: Any) -> int:
    """What is given as an integer of Python's, which is not negative; RunError for anything else."""
    try:
        number = index(given)
    except TypeError:
        number = -1
    if number < 0:
        raise RunError(f"{name}={given!r} is no count", status=WRONG_COUNT)
    return number
