"""Where files are, and the cache, in the few steps that opening a library takes; `cache.py` makes and chooses
folders."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

from .errors import OnnxcError, Origin


def absolute(
    path: str | os.PathLike[str], failure: type[OnnxcError], found: Callable[[str], str] = os.path.abspath
) -> str:
    """The path from the root on, as `found` has it; the failure where it is from a working folder that was
    removed, which has no path."""
    path = os.fsdecode(path)
    try:
        return found(path)
    except FileNotFoundError:
        reason = "the working folder, from which this path is, was removed"
        raise failure(reason, origin=Origin(file=path)) from None


def usual_place() -> str | None:
    """The folder of the cache where it is there and is the only place of entries, found without `pathlib`:
    importing that takes longer than all else that opening a library needs. Else `cache.folders` tells."""
    base = os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '')}/.cache"
    folder = os.environ.get("ONNXC_CACHE") or f"{base}/onnxc"
    try:
        alone = folder.startswith("/") and is_trusted(folder) and not os.path.lexists(shared_temporary())
        return folder if alone else None
    except (OSError, ValueError):
        return None


def is_trusted(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is there whose files may be run: nobody else can write to it, or the user says that
    it may be used. Raises OSError."""
    status = os.stat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return False
    own = status.st_uid in (0, os.getuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return own or os.environ.get("ONNXC_CACHE_TRUST") == "1"


def shared_temporary() -> str:
    """The user's own folder for temporary entries, which processes share."""
    return f"{os.environ.get('TMPDIR') or '/tmp'}/onnxc-{os.getuid()}"
