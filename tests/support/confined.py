"""Functions run in a child process with little time and memory, so that what hangs, explodes or dies is told
apart from what fails properly."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import NamedTuple

SECONDS = 20  # of the processor
MEMORY = 1 << 30  # bytes beside those that the process has already


class Ended(NamedTuple):
    """How a child ended: 0, 1 after an exception, or minus a signal's number; and what it printed."""

    status: int
    output: str


def run_confined(function: Callable[[], object], seconds: int = SECONDS, memory: int = MEMORY) -> Ended:
    """What becomes of the function in a copy of this process."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = os.fork()
        if child == 0:
            _run(function, output.fileno(), seconds, memory)
        _, status = os.waitpid(child, 0)
        output.seek(0)
        return Ended(os.waitstatus_to_exitcode(status), output.read())


def _run(function: Callable[[], object], output: int, seconds: int, memory: int) -> None:
    """The child's life; it ends here."""
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = open(output, "w", errors="replace", closefd=False)  # noqa: SIM115
        with open("/proc/self/statm") as sizes:
            used = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        function()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
