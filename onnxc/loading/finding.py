"""Finds the compiled library of a model without reading the model, by small files of the cache.

These say of which files a library was made and what they were (device, number, size, times), for which
compiler and on which machine. `cached.py` looks the content up, compiles, and writes them. Opening a model
that was opened before imports this file and the loader, and little else."""

from __future__ import annotations

import _imp
import io
import marshal
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import LoadError, ModelError
from ..places import absolute, usual_place
from ..record import Record

if TYPE_CHECKING:
    from .loader import Model

ATTEMPTS = 3  # at opening a library that others may remove
HASH_BYTES = 8  # with which an entry begins
USED_AGAIN = 3600  # seconds after which a use of a library is written down anew


class Found(Record):
    """A library: its description where it is known to be whole, and the files that it was made of, each with
    what tells whether it is the same."""

    path: str
    description: dict[str, Any] | None = None
    files: Sequence[tuple[str, str]] = ()


def opened(find: Callable[[], Found], threads: int | None = None) -> Model:
    """The model whose library `find` finds. Where another process gives the library up before it is open, it
    is looked for again."""
    from .loader import load

    for attempt in range(ATTEMPTS):
        try:
            found = find()
            return load(found.path, threads, known=found.description)
        except LoadError as error:
            if attempt + 1 == ATTEMPTS or not error.origin.file or os.path.exists(error.origin.file):
                raise
    raise AssertionError("the last attempt returns or raises")


def is_whole(library: str | os.PathLike[str]) -> bool:
    """Whether a library is there and can be loaded, its side file of weights included."""
    from .loader import load

    try:
        load(library, threads=1).close()
        return True
    except LoadError:
        return False


def is_library(path: str | os.PathLike[str]) -> bool:
    """Whether to take a file for a library: by what it begins with, or else by its name."""
    named_so = os.fspath(path).endswith(".so")
    try:
        if not os.path.isfile(path):
            return named_so
        with open(path, "rb") as file:
            return named_so or file.read(4) == b"\x7fELF"
    except (OSError, ValueError):
        return named_so


# Entries ----------------------------------------------------------------------------------------------


def by_path(path: str, text: str = "") -> Found | None:
    """The library of the model there, compiled with the options of that text, if it is known by its path."""
    return read("path", absolute(path, ModelError) + text, stamp)


def registered() -> str:
    """What tells the operators that this process has registered; empty where there are none."""
    custom = sys.modules.get(f"{__package__.partition('.')[0]}.custom")
    return custom.digest() if custom is not None else ""


def places() -> list[str]:
    """The folders where entries may be."""
    if folder := usual_place():
        return [folder]
    from ..cache import folders

    return [os.fspath(each) for each in folders()]


def read(kind: str, key: str, told: Callable[[str], str], folder: str = "") -> Found | None:
    """The entry of that key, if it was written by this compiler on such a machine, its library is there and
    as it was, the weights that may lie beside it too, and of every file `told` says what it said then."""
    for place in places():
        try:
            entry = contents(f"{place}/{_name(kind, key)}")
            known, around, library, (size, second), description, files = entry
            path = os.path.join(place, library)
            status = os.stat(path)
            same = (known, around, size) == (key, surroundings(), status.st_size)
            if weights := description.get("weights_file"):
                os.stat(os.path.join(os.path.dirname(path), weights))
            if not same or any(told(os.path.join(folder, name)) != then for name, then in files):
                continue
            found, touched = Found(path, description, files), int(status.st_mtime) != second
            if touched and not _is_intact(path):
                continue
            _use(kind, key, found, status, touched)
            return found
        except (OSError, ValueError):  # gone, or damaged
            continue
    return None


def contents(entry: str | os.PathLike[str]) -> Any:
    """What was written as an entry; ValueError where it is another or damaged. Its hash comes first: what
    `marshal` makes of damaged bytes may be anything."""
    data = _read(entry)
    written = data[HASH_BYTES:]
    if data[:HASH_BYTES] != _hash(written):
        raise ValueError("the entry is damaged")
    try:
        return marshal.loads(written)
    except (EOFError, TypeError) as error:  # of a Python to come
        raise ValueError(str(error)) from None


def _hash(data: bytes) -> bytes:
    """The one by which Python tells whether a .pyc file is of a source: it is there without an import."""
    return _imp.source_hash(0, data)


def _read(path: str | os.PathLike[str]) -> bytes:
    """A file, or the first 8 KB of one that the system makes up, in fewer steps than `open` takes."""
    with io.FileIO(path) as file:
        return os.read(file.fileno(), os.fstat(file.fileno()).st_size or 8192)


def write(kind: str, key: str, found: Found) -> None:
    """Writes an entry beside its library, or where that cannot be in a temporary folder that is there."""
    from pathlib import Path

    from ..cache import temporary_name

    status = os.stat(found.path)
    for folder in dict.fromkeys((os.path.dirname(found.path), *places())):
        library = os.path.relpath(found.path, folder)
        place = Path(folder) / _name(kind, key)
        temporary = temporary_name(place)
        try:
            told = status.st_size, int(status.st_mtime)  # archives of folders keep whole seconds
            content: Any = (key, surroundings(), library, told, found.description, found.files)
            written = marshal.dumps(content)
            temporary.write_bytes(_hash(written) + written)
            os.replace(temporary, place)
            return
        except OSError:
            temporary.unlink(missing_ok=True)


def _is_intact(library: str) -> bool:
    """Whether a file is what was compiled, by its hash."""
    from ..trailer import check_trailer

    with io.FileIO(library) as file:
        try:
            check_trailer(file.fileno(), library)
            return True
        except LoadError:
            return False


def _use(kind: str, key: str, found: Found, status: os.stat_result, touched: bool) -> None:
    """Writes down that a library is used, for what the cache gives up first: as the time of its file, and in
    the entry, so that whatever else changes the file is seen. touched: something did."""
    with suppress(OSError):  # of a cache that can only be read
        if again := time.time() - status.st_mtime > USED_AGAIN:
            os.utime(found.path)
        if again or touched:
            write(kind, key, found)


def _name(kind: str, key: str) -> str:
    """`path-…` or `content-…` and a digest (FNV-1a) of the key, which stands in the file, too."""
    number = 0xCBF29CE484222325
    for byte in key.encode("utf-8", "surrogateescape"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{kind}-{number:016x}"


# What tells whether an entry holds --------------------------------------------------------------------


def stamp(path: str) -> str:
    """What tells whether a file is the one that it was."""
    s = os.stat(path)
    return f"{s.st_dev} {s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}"


@cache
def surroundings() -> str:
    """What tells whether the compiler or the machine is another than the one that wrote an entry: when the
    compiler's files were changed, the processor, and what was measured of it."""
    here = os.path.dirname(os.path.dirname(__file__))
    if os.path.isdir(f"{here}/codegen"):  # installed: what replaces files changes the folder
        return f"{sys.implementation.cache_tag} {stamp(here)} {_machine()}"
    newest, count = 0, 0
    pending = [
        here,
        *(os.path.join(os.path.dirname(here), name) for name in ("codegen", "passes", "runtime_c")),
    ]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".c", ".h")):
                    newest, count = max(newest, entry.stat().st_mtime_ns), count + 1
                elif entry.is_dir() and entry.name != "__pycache__":
                    pending.append(entry.path)
    return f"{sys.implementation.cache_tag} {newest} {count} {_machine()}"


def _machine() -> str:
    """The processor's name and features, and when it was calibrated."""
    kinds = (b"model name", b"flags", b"CPU part", b"Features", b"cpu:type:")
    told: list[bytes] = []
    for source in ("/proc/cpuinfo", "/sys/devices/system/cpu/modalias"):  # the other where there is no /proc
        with suppress(OSError):
            lines = _read(source).partition(b"\n\n")[0].split(b"\n")
            told = told or [line for line in lines if line.startswith(kinds)]
    facts: list[object] = [] if told else [os.uname().nodename]  # this machine alone
    for folder in places():
        with suppress(OSError):
            facts.append(os.stat(f"{folder}/calibrated").st_mtime_ns)  # of facts.py, slow to import
    return repr((told, facts))
