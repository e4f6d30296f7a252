"""The constants of a library as bytes: what enters it, or the side file beside it.

Constants are lazy. They are made one after the other, hashed, written and forgotten, so that memory holds
one at a time. A side file begins with a page of its own (magic number, digest, number of bytes), which the
runtime holds against what the library knows: runtime_c/weights.c.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...errors import CompileError
from ...ir.graph import Constant
from ..lowering.plan_memory import Plan

ALIGNMENT = 64
FORGET_EVERY = 64 << 20  # bytes of constants written
SIDE_FILE_HEAD = 4096  # bytes before the constants, so that these begin on a page
SIDE_FILE_MAGIC = b"ONNXCWTS"
LIBRARY_LIMIT = 2_000_000_000  # bytes of constants in a library: its code reaches 2 GiB, data included


@dataclass(frozen=True)
class Weights:
    """Constants as written: the offset of each of Plan.constants, their bytes in all, and a digest that tells
    them from others."""

    offsets: tuple[int, ...]
    nbytes: int
    digest: bytes


def constant_bytes(plan: Plan) -> int:
    """About as many bytes as the constants take, before equal ones are found."""
    return sum(constant.nbytes for constant in {id(c): c for c in plan.constants}.values())


def write_weights(plan: Plan, path: Path, side_file: bool, forget: Callable[[], None]) -> Weights:
    """Writes the constants to `path`, equal ones once, each at a multiple of ALIGNMENT; as a side file, after
    its head. forget: takes the model's files off memory. CompileError where that fails."""
    begin = SIDE_FILE_HEAD if side_file else 0
    try:
        with path.open("wb") as file:
            file.seek(begin)
            offsets, digest = _write_constants(plan.constants, file, forget)
            nbytes = file.tell() - begin
            if side_file:
                file.seek(0)
                file.write(side_file_head(digest, nbytes))
    except OSError as error:
        why = error.strerror or str(error)
        raise CompileError(f"the weights cannot be written to '{path.parent}': {why}") from error
    return Weights(offsets, nbytes, digest)


def side_file_head(digest: bytes, nbytes: int) -> bytes:
    """The first page of a side file with so many bytes of constants."""
    return (SIDE_FILE_MAGIC + digest + struct.pack("<Q", nbytes)).ljust(SIDE_FILE_HEAD, b"\0")


def _write_constants(
    constants: Sequence[Constant], file: BinaryIO, forget: Callable[[], None]
) -> tuple[tuple[int, ...], bytes]:
    """(offsets from where the file stands, digest)"""
    begin, written = file.tell(), 0
    at_of: dict[bytes, int] = {}  # by content
    made: dict[int, int] = {}  # by identity
    for constant in constants:
        if id(constant) not in made:
            data = _bytes_of(constant.array)
            digest = hashlib.sha256(data).digest()
            if digest not in at_of:
                file.write(bytes((begin - file.tell()) % ALIGNMENT))
                at_of[digest] = file.tell() - begin
                file.write(data)
            made[id(constant)] = at_of[digest]
            written += data.nbytes
            if written >= FORGET_EVERY:
                forget()
                written = 0
    # so that even an empty constant has an address, and vector loads at the end stay inside
    file.write(bytes(ALIGNMENT))
    return tuple(made[id(constant)] for constant in constants), hashlib.sha256(b"".join(at_of)).digest()


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
