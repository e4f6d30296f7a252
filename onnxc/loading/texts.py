"""Strings between Python and C: `str` objects, and pointers to UTF-8 with lengths.

The library goes over the array (`read_texts` and `write_texts` of its table) with functions that CPython has
in C: no text is copied on its way in, and each is one call on its way out. Where one of the two is missing,
and for what is no valid `str`, texts are joined in Python.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RunError, quote
from ..record import Record

if TYPE_CHECKING:
    from .c_values import Table

WRONG_DTYPE = 4  # as the library numbers it
_PYTHONS = "PyUnicode_AsUTF8AndSize", "PyUnicode_DecodeUTF8", "Py_DecRef"


class CString(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_int64)]


class Texts(Record):
    """The functions of a library, and the addresses of CPython's."""

    read: Any
    write: Any
    of_python: tuple[int, int, int]

    @classmethod
    def of(cls, table: Table) -> Texts | None:
        """Those of a library's table; None before interface version 1.2, and in other Pythons."""
        api = getattr(ctypes, "pythonapi", None)
        if api is None or not table.has("write_texts"):
            return None
        read, make, drop = (ctypes.cast(getattr(api, n), ctypes.c_void_p).value or 0 for n in _PYTHONS)
        return cls(table.read_texts, table.write_texts, (read, make, drop))


def as_objects(value: Any) -> Any:
    """An array of numpy's texts, or each of a list, as `str` objects, which C reads; else the value."""
    if type(value) is np.ndarray:
        return value.astype(object) if value.dtype.kind == "U" else value
    is_list = isinstance(value, (list, tuple)) and all(isinstance(item, np.ndarray) for item in value)
    return [as_objects(item) for item in value] if is_list else value


def lend(texts: Texts | None, name: str, array: np.ndarray, lent: list[Any]) -> int:
    """The address of the pointers and lengths of an array's texts; what they point to is appended to `lent`.
    name: of the input, for the error that it is no text."""
    fields = np.empty((max(array.size, 1), 2), np.int64)
    address = fields.ctypes.data
    lent.append(fields)
    if texts is not None and array.dtype == object:
        kept = array.copy()  # other threads may change the array meanwhile
        try:
            texts.read(kept.ctypes.data, array.size, texts.of_python[0], address)
            lent.append(kept)
            return address
        except (TypeError, UnicodeError):
            pass  # bytes, surrogates, or no text at all
    block, ends = _joined(name, array.reshape(-1).tolist())
    fields[0, 0] = 0
    fields[1 : len(ends), 0] = ends[:-1] + 1
    fields[: len(ends), 1] = ends - fields[: len(ends), 0]
    fields[:, 0] += block.ctypes.data
    lent.append(block)
    return address


def _joined(name: str, items: list) -> tuple[np.ndarray, np.ndarray]:
    """The UTF-8 of texts with a NUL behind each, and where these are."""
    for k, text in enumerate(items):
        if isinstance(text, str):
            items[k] = text.encode("utf-8", "surrogateescape")
        elif not isinstance(text, bytes):
            raise RunError(
                f"input {quote(name)}: expected strings, got a {type(text).__name__}", status=WRONG_DTYPE
            )
    lengths = np.fromiter(map(len, items), np.int64, len(items))
    return np.frombuffer(b"\0".join([*items, b""]) or b"\0", np.uint8), np.cumsum(lengths + 1) - 1


def taken(texts: Texts | None, address: int, count: int) -> np.ndarray:
    """The texts that so many pointers and lengths describe, as an array of `str`."""
    made = np.empty(count, object)
    if texts is not None:
        texts.write(address, count, *texts.of_python[1:], made.ctypes.data)
        return made
    fields: Any = (ctypes.c_int64 * (2 * count)).from_address(address)
    for k, (data, length) in enumerate(np.frombuffer(fields, np.int64).reshape(-1, 2).tolist()):
        made[k] = ctypes.string_at(data, length).decode("utf-8", "surrogateescape")
    return made
