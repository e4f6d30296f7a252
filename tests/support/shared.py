"""What one worker of a run makes and all use, later runs too where they may: folders beside each other, each
made once under a lock."""

from __future__ import annotations

import fcntl
import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

VARIABLE = "ONNXC_TESTS_SHARED"  # names the run's folder: set in conftest.py, inherited by the workers
KEPT = "ONNXC_TESTS_KEPT"  # names the folder of all runs, if there is one


def shared(name: str, make: Callable[[Path], object]) -> Path:
    """The folder `name`, which `make` fills if no other worker has."""
    return _once(Path(os.environ.get(VARIABLE) or _own().name), name, make)


def kept(name: str, make: Callable[[Path], object]) -> Path:
    """The same of what never changes under its name, so that later runs may use it."""
    folder = os.environ.get(KEPT)
    return _once(Path(folder), name, make) if folder else shared(name, make)


def _once(parent: Path, name: str, make: Callable[[Path], object]) -> Path:
    folder = parent / name
    with open(parent / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            making = Path(tempfile.mkdtemp(dir=parent))
            make(making)
            making.rename(folder)
    return folder


@functools.cache
def _own() -> tempfile.TemporaryDirectory:
    """The folder of a program that is no test run."""
    return tempfile.TemporaryDirectory(prefix="onnxc-shared-")
