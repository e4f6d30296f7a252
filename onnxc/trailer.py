"""The last bytes of a compiled library, which tell a loader that it is whole before it is mapped.

Opening a truncated library ends the process (dlopen touches pages that are not there), so length,
interface version and a hash are checked first. The hash leaves out the weights, whose pages should
be read only when they are used. Layout, little-endian: magic, ABI major and minor, length of the file,
offset and length of the weights, SHA-256 of all that lies outside them.
"""

from __future__ import annotations

import os
import stat
import struct
from typing import TYPE_CHECKING

from .errors import LoadError, Origin
from .version import ABI_MAJOR, ABI_MINOR

if TYPE_CHECKING:
    from .loading.c_values import Table

MAGIC = b"ONNXCLIB"
LAYOUT = struct.Struct("<8sIIQQQ32s")
DIGEST_BYTES = 32


def _digest(file: int, head: bytes, length: int, weights: tuple[int, int]) -> bytes:
    """SHA-256 of the trailer's head and of the first `length` bytes but the weights'."""
    import hashlib  # loads a cryptographic library, which opening what is known to be whole does without

    hasher = hashlib.sha256(head)
    for begin, end in ((0, weights[0]), (sum(weights), length)):
        while begin < end:
            block = os.pread(file, min(1 << 20, end - begin), begin)
            if not block:
                raise OSError("the file ends early")
            hasher.update(block)
            begin += len(block)
    return hasher.digest()


def append_trailer(path: str | os.PathLike[str], weights: tuple[int, int] = (0, 0)) -> None:
    """Append the trailer to a library whose weights are at (offset, length)."""
    file = os.open(path, os.O_RDWR)
    try:
        length = os.fstat(file).st_size
        head = LAYOUT.pack(MAGIC, ABI_MAJOR, ABI_MINOR, length + LAYOUT.size, *weights, b"")[:-DIGEST_BYTES]
        os.pwrite(file, head + _digest(file, head, length, weights), length)
    finally:
        os.close(file)


def check_trailer(file: int, path: str | os.PathLike[str]) -> None:
    """Raise LoadError unless the open file is a whole library of this interface version."""
    origin = Origin(file=os.fspath(path))
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        raise LoadError("is not a regular file", origin=origin)
    length = status.st_size
    reason, remedy = "is not a library compiled by onnxc, or it is truncated", ""
    if _is_unlinked(os.pread(file, 18, 0)):  # entries of the cache are objects that have a trailer
        reason = "is an object or archive for static linking"
        remedy = "compile the model to OUT.so to load it"
    foreign = LoadError(reason, remedy, origin=origin)
    if length < LAYOUT.size:
        raise foreign
    trailer = os.pread(file, LAYOUT.size, length - LAYOUT.size)
    if len(trailer) != LAYOUT.size or not trailer.startswith(MAGIC):
        raise foreign
    _, major, minor, expected, offset, size, digest = LAYOUT.unpack(trailer)
    _require_version(major, minor, origin)
    body = length - LAYOUT.size
    if expected != length or offset > body or size > body - offset:
        raise LoadError(f"is damaged: it has {length} bytes and should have {expected}", origin=origin)
    if _digest(file, trailer[:-DIGEST_BYTES], body, (offset, size)) != digest:
        raise LoadError("is damaged: its contents do not match their hash", origin=origin)


def _is_unlinked(head: bytes) -> bool:
    """Whether a file that begins so is an archive, or an ELF file that is not linked yet (ET_REL)."""
    return head.startswith(b"!<arch>\n") or (head.startswith(b"\x7fELF") and head[16:] in (b"\1\0", b"\0\1"))


def check_interface(table: Table, path: str | os.PathLike[str]) -> None:
    """Raise LoadError unless the table of a mapped library is of this interface version."""
    origin = Origin(file=os.fspath(path))
    _require_version(*table.version, origin)
    if not table.has("pool_destroy"):  # which version 1.0 has
        raise LoadError("has a table that is too short", origin=origin)


def _require_version(major: int, minor: int, origin: Origin) -> None:
    if major != ABI_MAJOR:
        raise LoadError(
            f"has interface version {major}.{minor}, this onnxc loads version {ABI_MAJOR}",
            origin=origin,
            remedy="compile the model again",
        )
