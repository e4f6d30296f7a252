"""Where the cache is, in the few steps that opening a library takes; `cache.py` makes and chooses folders."""

from __future__ import annotations

import os
import stat


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
