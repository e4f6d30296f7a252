"""The constants of a library as bytes: an object that enters it, or the side file beside it.

Constants are lazy. They are made one after the other, hashed, written and forgotten, so that memory holds
one at a time. Strings have no address before a program runs: their constants are a table of (offset, length)
behind all others, from which a context makes the strings that its runs read. Both files begin with a page of
their own. A side file's (magic number, digest, number of bytes) is held by the runtime against what the
library knows: runtime_c/weights.c.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...errors import CompileError
from ...ir import dtypes
from ...ir.graph import Constant
from ...records import dataclass
from ..abi import ALIGNMENT
from ..lowering.plan_memory import MemoryPlan
from . import elf
from .files import naming

STRING_BYTES = dtypes.itemsize("string")
FORGET_EVERY = 64 << 20  # bytes of constants written
WEIGHTS_SECTION = ".onnxc_weights"
HEAD_BYTES = elf.HEAD_BYTES  # before the constants, so that these begin on a page
SIDE_FILE_MAGIC = b"ONNXCWTS"
LIBRARY_LIMIT = 2_000_000_000  # bytes of constants in a library: its code reaches 2 GiB, data included


@dataclass(frozen=True)
class Weights:
    """Constants as written: for each plan the offset of each of its constants (of strings: among a context's
    strings), their bytes in all, and a digest that tells them from others. `string_table`: where the (offset,
    length) of each of `string_count` strings are."""

    offsets: tuple[tuple[int, ...], ...]
    nbytes: int
    digest: bytes
    string_table: int = 0
    string_count: int = 0


def constant_bytes(plans: Sequence[MemoryPlan]) -> int:
    """About as many bytes as the constants take, before equal ones are found."""
    return sum(constant.nbytes for constant in {id(c): c for plan in plans for c in plan.constants}.values())


def write_weights(
    plans: Sequence[MemoryPlan], path: Path, side_file: bool, forget: Callable[[], None]
) -> Weights:
    """Writes the constants of all plans to `path` from HEAD_BYTES on, equal ones once, each at a multiple of
    ALIGNMENT; as a side file, with its head. forget: takes the model's files off memory. CompileError where
    that fails."""
    try:
        with naming(path), path.open("wb") as file:
            file.seek(HEAD_BYTES)
            writer = _Writer(file, forget)
            offsets = tuple(tuple(writer.write(constant) for constant in plan.constants) for plan in plans)
            table = writer.string_table()
            # so that even an empty constant has an address, and vector loads at the end stay inside
            file.write(bytes(ALIGNMENT))
            digest, nbytes = writer.digest, file.tell() - HEAD_BYTES
            if side_file:
                file.seek(0)
                file.write(side_file_head(digest, nbytes))
    except OSError as error:
        why = error.strerror or str(error)
        raise CompileError(f"the weights cannot be written to '{path.parent}': {why}") from error
    return Weights(offsets, nbytes, digest, table, len(writer.strings))


def side_file_head(digest: bytes, nbytes: int) -> bytes:
    """The first page of a side file with so many bytes of constants."""
    return (SIDE_FILE_MAGIC + digest + struct.pack("<Q", nbytes)).ljust(HEAD_BYTES, b"\0")


def weights_object(path: Path, prefix: str, like: Path) -> Path:
    """Makes what `write_weights` wrote an object to link. like: another object for the same machine."""
    elf.finish_data_object(path, WEIGHTS_SECTION, f"{prefix}__weights", like)
    return path


class _Writer:
    """Writes constants one after the other, equal ones once; offsets count from where the file stands."""

    def __init__(self, file: BinaryIO, forget: Callable[[], None]):
        self.file, self.forget, self.begin = file, forget, file.tell()
        self.at_of: dict[bytes, int] = {}  # by content
        self.made: dict[int, int] = {}  # by identity
        self.unforgotten = 0
        self.strings: list[tuple[int, int]] = []  # offset and length of each

    def write(self, constant: Constant) -> int:
        """The constant's offset in the weights, or in the context's strings."""
        if id(constant) not in self.made:
            write = self._write_strings if constant.dtype == "string" else self._write_bytes
            self.made[id(constant)] = write(constant.array)
            if self.unforgotten >= FORGET_EVERY:
                self.forget()
                self.unforgotten = 0
        return self.made[id(constant)]

    def _write_bytes(self, array: np.ndarray) -> int:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        digest = hashlib.sha256(data).digest()
        if digest not in self.at_of:
            self.file.write(bytes((self.begin - self.file.tell()) % ALIGNMENT))
            self.at_of[digest] = self.file.tell() - self.begin
            self.file.write(data)
        self.unforgotten += data.nbytes
        return self.at_of[digest]

    def _write_strings(self, array: np.ndarray) -> int:
        texts = [_text_bytes(text) for text in array.flat]
        at, first = self._write_bytes(np.frombuffer(b"".join(texts), np.uint8)), len(self.strings)
        for text in texts:
            self.strings.append((at, len(text)))
            at += len(text)
        return STRING_BYTES * first

    def string_table(self) -> int:
        """Writes the (offset, length) of all strings; the table's offset."""
        return self._write_bytes(np.array(self.strings, "<u8")) if self.strings else 0

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(b"".join(self.at_of)).digest()


def _text_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
