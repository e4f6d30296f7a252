"""The fastest of many runs of a compiled model, seen from C (clock.c)."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

from onnxc.codegen.library.compiler import find_compiler
from onnxc.codegen.library.runtime import HEADERS
from onnxc.loading.context import Context


def c_clock(folder: Path) -> Callable[[Context, int], float]:
    """What tells the nanoseconds of the fastest of so many runs of a context as it is filled, seen from C;
    its library goes to the folder."""
    library, source = folder / "clock.so", Path(__file__).with_suffix(".c")
    command = [*find_compiler(), "-O2", "-shared", "-fPIC", f"-I{HEADERS}", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    measured = ctypes.CDLL(str(library)).fastest
    measured.restype = ctypes.c_double
    return lambda context, times: measured(context.function, *context.arguments, ctypes.c_int64(times))
