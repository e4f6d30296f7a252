"""Has the full library of a model made, of which a fast one was made, by a process of its own.

The process (`background_process.py`) outlives the one that started it. A lock beside the fast library has one
at a time made; where making it fails, the lock's file says why, and nobody tries again until it is swept.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..options import Options


def make_full(source: Any, options: Options, fix: Any, library: str) -> None:
    """Starts the process, unless one runs or has failed. Operators that this process has registered are not
    known to another: then there is none."""
    fast = Path(library)
    custom = sys.modules.get(f"{__package__.partition('.')[0]}.custom")
    if (custom is not None and custom.digest()) or not _is_wanted(lock_of(fast)):
        return
    if isinstance(source, (str, os.PathLike)):
        source = os.path.abspath(source)
    elif not isinstance(source, bytes):
        source = source.SerializeToString() if hasattr(source, "SerializeToString") else bytes(source)
    with (
        suppress(OSError, pickle.PicklingError, TypeError, AttributeError),
        tempfile.TemporaryFile() as request,
    ):
        pickle.dump((source, options, fix, fast), request)
        request.seek(0)
        _start(request)


def _start(request: BinaryIO) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", f"{__package__}.background_process"],
        stdin=request,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with suppress(RuntimeError):  # where no thread can be started the next process reaps it
        threading.Thread(target=process.wait, daemon=True).start()  # so that nothing is left of it


def lock_of(fast: Path) -> Path:
    """The file that is locked while the full library is made."""
    return fast.with_name(f".{fast.name}.full.lock")


def _is_wanted(place: Path) -> bool:
    """Whether nobody makes the library, nor failed at it."""
    try:
        file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # of a cache that can only be read
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return not os.fstat(file).st_size
    except OSError:
        return False
    finally:
        os.close(file)
