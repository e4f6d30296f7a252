"""What one worker of a run makes and all use: folders beside each other, each made once under a lock."""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

VARIABLE = "ONNXC_TESTS_SHARED"  # names the run's folder: set in conftest.py, inherited by the workers


def shared(name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`, which `make` fills if no other worker has."""
    run = Path(os.environ.get(VARIABLE) or _own().name)
    folder = run / name
    with open(run / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = Path(tempfile.mkdtemp(dir=run))
            make(making)
            making.rename(folder)
    return folder


@functools.cache
def _own() -> tempfile.TemporaryDirectory:
    """The folder of a program that is no test run."""
    return tempfile.TemporaryDirectory(prefix="onnxc-shared-")
