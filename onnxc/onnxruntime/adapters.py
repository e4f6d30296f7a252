"""LoRA adapters: named tensors in a file (ONNX Runtime's format, a flatbuffer), fed to inputs of their names.

A flatbuffer is tables that point forward to strings, vectors and tables; a table begins with the distance
back to its vtable, which says where its fields are. (https://flatbuffers.dev/internals)"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

import numpy as np

from ..loading.c_values import element_type
from .failures import InvalidArgument, NoSuchFile, made
from .ports import type_text
from .values import NativeValue, OrtValue, dtype_of

_IDENTIFIER = b"TORT"
FORMAT_VERSION = 1


class _Reader:
    """A table in a flatbuffer."""

    def __init__(self, data: bytes, position: int):
        self.data, self.position = data, position
        self.vtable = position - self._number("<i", position)

    def _number(self, kind: str, position: int) -> int:
        return struct.unpack_from(kind, self.data, position)[0]

    def _field(self, index: int) -> int:
        """Where a field is; 0 for one that has its default."""
        entry = 4 + 2 * index
        inside = entry < self._number("<H", self.vtable)
        offset = self._number("<H", self.vtable + entry) if inside else 0
        return self.position + offset if offset else 0

    def integer(self, index: int) -> int:
        field = self._field(index)
        return self._number("<i", field) if field else 0

    def vector(self, index: int, itemsize: int) -> memoryview:
        """The bytes of a vector or a string."""
        field = self._field(index)
        if not field:
            return memoryview(b"")
        begin = field + self._number("<I", field)
        length = self._number("<I", begin) * itemsize
        found = memoryview(self.data)[begin + 4 : begin + 4 + length]
        if len(found) != length:
            raise struct.error("a vector ends behind the file")
        return found

    def tables(self, index: int) -> list[_Reader]:
        field = self._field(index)
        if not field:
            return []
        begin = field + self._number("<I", field)
        places = range(begin + 4, begin + 4 + 4 * self._number("<I", begin), 4)
        return [_Reader(self.data, place + self._number("<I", place)) for place in places]


class _Writer:
    """Bytes of a flatbuffer, written front to back; references are filled in when their target is known."""

    def __init__(self) -> None:
        self.data = bytearray()

    def align(self, size: int, ahead: int = 0) -> None:
        """So that what comes `ahead` bytes after the next one is on a multiple of size."""
        self.data += bytes(-(len(self.data) + ahead) % size)

    def table(self, fields: list[tuple[str, int]]) -> list[int]:
        """A vtable and a table with values of these formats, `I` 0 for references; where each is."""
        self.align(4, 4 + 2 * len(fields))
        size = 4 + 4 * len(fields)
        vtable = len(self.data)
        offsets = [4 + 4 * k for k in range(len(fields))]
        self.data += struct.pack(f"<HH{len(fields)}H", 4 + 2 * len(fields), size, *offsets)
        begin = len(self.data)
        self.data += struct.pack("<i", begin - vtable)
        for kind, value in fields:
            self.data += struct.pack(f"<{kind}", value)
        return [begin, *(begin + offset for offset in offsets)]

    def refer(self, place: int) -> None:
        """Has the reference at `place` point to what comes next."""
        struct.pack_into("<I", self.data, place, len(self.data) - place)

    def vector(self, place: int, content: bytes, count: int, alignment: int = 4) -> None:
        self.align(max(alignment, 4), 4)
        self.refer(place)
        self.data += struct.pack("<I", count) + content


class NativeAdapter:
    """An adapter: versions and parameters."""

    format_version: int = FORMAT_VERSION
    adapter_version: int = 0
    model_version: int = 0

    def __init__(self) -> None:
        self.parameters: dict[str, NativeValue] = {}

    @staticmethod
    def read_adapter(path: str | os.PathLike[str], /) -> NativeAdapter:
        """The adapter in a file."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise made(NoSuchFile, f"{os.fspath(path)}: {error.strerror}") from None
        if data[4:8] != _IDENTIFIER:
            raise made(InvalidArgument, f"{os.fspath(path)} is no adapter")
        try:
            return NativeAdapter._parsed(data)
        except (struct.error, ValueError, UnicodeDecodeError, RuntimeError):
            raise made(InvalidArgument, f"{os.fspath(path)} is a damaged adapter") from None

    @staticmethod
    def _parsed(data: bytes) -> NativeAdapter:
        root = _Reader(data, struct.unpack_from("<I", data)[0])
        found = NativeAdapter()
        found.format_version, found.adapter_version, found.model_version = map(root.integer, range(3))
        for parameter in root.tables(3):
            name = bytes(parameter.vector(0, 1)).decode()
            shape = np.frombuffer(parameter.vector(1, 8), np.int64)
            dtype = dtype_of(parameter.integer(2))
            array = np.frombuffer(parameter.vector(3, 1), element_type(dtype)).reshape(tuple(shape))
            found.parameters[name] = NativeValue._of(array, type_text(dtype))
        return found

    def export_adapter(self, path: str | os.PathLike[str], /) -> None:
        """Writes the adapter to a file."""
        from .written import write

        out = _Writer()
        out.data += bytes(4) + _IDENTIFIER
        versions = (self.format_version, self.adapter_version, self.model_version)
        root = out.table([*(("i", version) for version in versions), ("I", 0)])
        struct.pack_into("<I", out.data, 0, root[0])
        out.vector(root[4], bytes(4 * len(self.parameters)), len(self.parameters))
        entries = [len(out.data) - 4 * k for k in range(len(self.parameters), 0, -1)]
        for entry, name in zip(
            entries, sorted(self.parameters)
        ):  # sorted: it is the key that is searched for
            value = self.parameters[name]
            text, array = name.encode(), value.numpy()
            parameter = out.table([("I", 0), ("I", 0), ("i", value.element_type()), ("I", 0)])
            struct.pack_into("<I", out.data, entry, parameter[0] - entry)
            out.vector(parameter[1], text + b"\0", len(text))
            out.vector(parameter[2], np.asarray(array.shape, np.int64).tobytes(), array.ndim, 8)
            out.vector(parameter[4], array.tobytes(), array.nbytes, 8)
        out.align(8)
        write(path, bytes(out.data))


NativeAdapter.__name__ = NativeAdapter.__qualname__ = "AdapterFormat"


class AdapterFormat:
    """Reads and writes adapter files."""

    def __init__(self, adapter: NativeAdapter | None = None) -> None:
        self._adapter = NativeAdapter() if adapter is None else adapter

    @staticmethod
    def read_adapter(file_path: os.PathLike[str]) -> AdapterFormat:
        return AdapterFormat(NativeAdapter.read_adapter(file_path))

    def export_adapter(self, file_path: os.PathLike[str]) -> None:
        self._adapter.export_adapter(file_path)

    def get_format_version(self) -> int:
        return self._adapter.format_version

    def set_adapter_version(self, adapter_version: int) -> None:
        self._adapter.adapter_version = adapter_version

    def get_adapter_version(self) -> int:
        return self._adapter.adapter_version

    def set_model_version(self, model_version: int) -> None:
        self._adapter.model_version = model_version

    def get_model_version(self) -> int:
        return self._adapter.model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        self._adapter.parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        return {name: OrtValue(value) for name, value in self._adapter.parameters.items()}


class LoraAdapter:
    """An adapter for `RunOptions.add_active_adapter`."""

    def __init__(self) -> None:
        self.parameters: dict[str, NativeValue] = {}

    def Load(self, path: str, /) -> None:
        """Reads the adapter's file."""
        self.parameters = NativeAdapter.read_adapter(path).parameters
