"""What is in the cache of compiled models, and what is given up: those that were not used for longest, once
all are larger than `$ONNXC_CACHE_LIMIT` (bytes, or `500M`, `20G`; 10G unless told otherwise)."""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from ..errors import CacheError
from ..record import Record
from .finding import contents

DEFAULT_LIMIT = "10G"
STALE = 24 * 3600  # seconds after which a temporary file is nobody's
_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


class Kept(Record):
    """A library in the cache: its bytes with those of its weights, when it was used last, and the paths of
    models that lead to it."""

    path: Path
    nbytes: int
    used: float
    models: tuple[str, ...]


def size_of(text: str) -> int:
    """Bytes as `500M` or `123` tells; CacheError for what is none."""
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in _UNITS else (text, "")
    try:
        found = int(float(digits) * (1 << _UNITS.get(unit, 0)))
        if found < 0 or not text.isascii():
            raise ValueError
    except (ValueError, OverflowError):
        raise CacheError(f"'{text}' is no size: 500M and 20G are") from None
    return found


def limit() -> int:
    """How large the cache may become, in bytes."""
    try:
        return size_of(os.environ.get("ONNXC_CACHE_LIMIT") or DEFAULT_LIMIT)
    except CacheError as error:
        raise CacheError(f"ONNXC_CACHE_LIMIT: {error}") from None


def kept(folder: Path) -> list[Kept]:
    """The libraries in a folder, those used last first."""
    models: dict[str, list[str]] = {}
    for entry in folder.glob("path-*"):
        with suppress(OSError, ValueError):
            _, _, library, _, _, files = contents(entry)
            models.setdefault(library, []).append(files[0][0])
    found = []
    for path in folder.glob("*.so"):
        with suppress(OSError):  # another process may take it away
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                continue
            nbytes = sum(each.stat().st_size for each in (path, _weights(path)) if each.exists())
            names = tuple(sorted(models.get(path.name, ())))
            found.append(Kept(path, nbytes, status.st_mtime, names))
    return sorted(found, key=lambda each: -each.used)


def prune(folder: Path, most: int) -> list[Kept]:
    """Removes what was not used for longest until at most that many bytes are left, and what interrupted
    processes have left; the libraries removed, without those that the system keeps. Programs that run one
    are not disturbed."""
    libraries, removed = kept(folder), []
    total = sum(each.nbytes for each in libraries)
    while libraries and total > most:
        last = libraries.pop()
        with suppress(OSError):
            for path in (last.path, _weights(last.path)):
                path.unlink(missing_ok=True)
            removed.append(last)
            total -= last.nbytes
    _sweep(folder)
    return removed


def clear(folder: Path) -> list[Kept]:
    """Removes all libraries, what leads to them, and the objects of which they were linked. What was measured
    of the machine, and the runtime that all models share, stay."""
    from ..codegen.library import object_cache

    object_cache.clear(folder)
    return prune(folder, -1)


def _weights(library: Path) -> Path:
    return Path(f"{library}.weights")


def _sweep(folder: Path) -> None:
    """Removes entries that lead nowhere, and old temporary files and locks."""
    for entry in [*folder.glob("path-*"), *folder.glob("content-*")]:
        with suppress(OSError):
            try:
                library = contents(entry)[2]
            except ValueError:
                library = ""
            if not library or not (folder / library).is_file():
                entry.unlink(missing_ok=True)
    before = time.time() - STALE
    for pattern in (".*.tmp", ".*.lock"):
        for path in folder.glob(pattern):
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    path.unlink(missing_ok=True)
