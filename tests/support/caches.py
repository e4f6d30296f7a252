"""Caches of a test's own, beside the one that all tests of a run share."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.shared import shared

from onnxc.cache import cache_folder
from onnxc.codegen.library.runtime import start_runtime
from onnxc.target import find_target


def with_runtime(folder: Path) -> Path:
    """Makes `folder` a cache that has the runtime alone, which all models share and which takes seconds to
    compile: the run's cache gets it once."""

    def compile_runtime(work: Path) -> Path:
        with start_runtime(work, find_target()) as runtime:
            return runtime.wait()

    shared("runtime", compile_runtime)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for entry in cache_folder().glob("runtime-*"):
        shutil.copy(entry, folder)
    return folder
