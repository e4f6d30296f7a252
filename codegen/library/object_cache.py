"""Objects of code that was compiled before, in the user's cache.

An entry is named by all that it is made of: its texts, the processor and level, LLVM and how it is asked.
Each of the folders that hold them gives up what was not used for longest when it gets a new one, so that all
together stay within LIMIT.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from ... import cache as user_cache
from . import worker

FOLDER = "objects"  # in the cache
LIMIT = 256 << 20  # bytes of all entries
PARTS = 64  # folders, of which one is looked through when an entry is added


def fetch(texts: Sequence[str], machine: Sequence[object], output: Path) -> bool:
    """Writes the object of modules' texts to `output` if it is there and whole. machine: the rest of what
    `worker.compile_texts` is given."""
    entry = _entry(texts, machine)
    if entry is None or not user_cache.fetch(entry, output):
        return False
    with suppress(OSError):
        os.utime(entry)
    return True


def keep(texts: Sequence[str], machine: Sequence[object], made: Path) -> None:
    """Makes the object at `made` an entry, where there is a cache that can be written."""
    entry = _entry(texts, machine)
    if entry is not None:
        with suppress(OSError):
            entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            user_cache.keep(made, entry)
            _prune(entry.parent, LIMIT // PARTS)


def clear(folder: Path) -> None:
    """Removes all entries of the cache at `folder`."""
    for part in (folder / FOLDER).glob("*"):
        with suppress(OSError):
            _prune(part, 0)


def _entry(texts: Sequence[str], machine: Sequence[object]) -> Path | None:
    folder = user_cache.usable_cache_folder()
    compiler = _compiler()
    if folder is None or compiler is None:
        return None
    key = hashlib.sha256(compiler)
    for part in (repr(tuple(machine)), *texts):
        key.update(part.encode() + b"\0")
    name = key.hexdigest()[:40]
    return folder / FOLDER / f"{int(name[:8], 16) % PARTS:02}" / f"{name}.o"


@cache
def _compiler() -> bytes | None:
    """What stands for LLVM and the way in which it is asked; None where there is none."""
    found = importlib.util.find_spec("llvmlite")
    if found is None or found.origin is None:
        return None
    try:
        version = Path(found.origin).with_name("_version.py").read_bytes()
        return hashlib.sha256(version + Path(worker.__file__).read_bytes()).digest()
    except OSError:
        return None


def _prune(folder: Path, most: int) -> None:
    """Removes what was not used for longest until at most that many bytes are left."""
    with os.scandir(folder) as files:
        found = sorted((entry.stat().st_mtime, entry.stat().st_size, entry.path) for entry in files)
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total <= most:
            return
        with suppress(OSError):
            os.unlink(path)
        total -= size
