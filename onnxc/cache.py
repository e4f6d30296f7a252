"""The user's cache: a folder of his own (mode 0700; one that others can write to is refused) whose entries
are named by the content of everything that they depend on, and appear whole."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from pathlib import Path

from .errors import LoadError
from .loading.trailer import append_trailer, check_trailer


def cache_folder() -> Path:
    """`$ONNXC_CACHE`, or onnxc under the user's cache folder; made when it is missing."""
    base = os.environ.get("ONNXC_CACHE")
    folder = (
        Path(base) if base else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onnxc"
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LoadError(
            f"the cache folder {folder} belongs to or can be written by others; "
            "make it private or set ONNXC_CACHE"
        )
    return folder


def usable_cache_folder() -> Path | None:
    """The folder where it is only a help: None where there is none to be had."""
    try:
        return cache_folder()
    except (LoadError, OSError, RuntimeError):  # refused, cannot be made, no home
        return None


def keep(source: Path, entry: Path) -> None:
    """Makes a file an entry of the cache, with a trailer that tells whether it is whole. An entry is a help:
    where it cannot be written there is none."""
    temporary = entry.with_name(f".{entry.name}.{secrets.token_hex(8)}.tmp")
    try:
        shutil.copyfile(source, temporary)
        append_trailer(temporary)
        os.replace(temporary, entry)
    except OSError:
        temporary.unlink(missing_ok=True)


def fetch(entry: Path, destination: Path) -> bool:
    """Copies an entry out of the cache; False where there is none, or not a whole one."""
    try:
        shutil.copyfile(entry, destination)
        with open(destination, "rb") as file:
            check_trailer(file.fileno(), destination)
    except (OSError, LoadError):
        return False
    return True
