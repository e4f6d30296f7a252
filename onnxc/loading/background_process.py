"""The process that `background.py` starts: it makes a full library, if nobody else does, and then removes the
fast one. It gives way to others."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
from pathlib import Path
from typing import BinaryIO

from ..errors import one_line
from .background import lock_of
from .cached import find_library

NICENESS = 10


def answer(request: BinaryIO) -> None:
    """Makes the library that is asked for."""
    source, options, fix, fast = pickle.load(request)
    place = lock_of(fast)
    file = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink and not os.fstat(file).st_size:
            find_library(source, options, fix=fix)
            for path in (fast, Path(f"{fast}.weights"), place):
                path.unlink(missing_ok=True)
    except BlockingIOError:
        pass
    except Exception as error:
        os.write(file, one_line(str(error) or type(error).__name__, 1000).encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    os.nice(NICENESS)
    answer(sys.stdin.buffer)
