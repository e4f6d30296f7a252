"""The child processes that run LLVM, seen from the parent: started early, kept, and used again.

A worker serves one caller at a time. Who is done gives it back, and the next compilation finds it warm. A
worker that dies is an error of the one who asked it, and is not given back. They end with this process, and a
fork of it begins without any.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ...errors import CompileError
from . import worker as child

AHEAD = 2  # workers started before there is work
TAIL_LINES = 3  # of what a worker that died has printed


class Worker:
    """A child process and the socket to it."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the worker
        self.idle_since = time.monotonic()
        self.channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-S", str(Path(child.__file__)), _llvm_folder()],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                start_new_session=True,  # an interrupt of the terminal is the parent's
            )

    def compile(self, texts: Sequence[str], triple: str, processor: str, level: int) -> bytes:
        """One object of modules' texts. CompileError where LLVM does not take them, or the worker dies of
        it."""
        parts = [part.encode() for part in (triple, processor, child.SEPARATOR.join(texts))]
        file = self.channel.fileno()
        try:
            child.write(file, b"".join((child.REQUEST.pack(level, *map(len, parts)), *parts)))
            good, count = child.ANSWER.unpack(child.read(file, child.ANSWER.size))
            data = child.read(file, count)
        except (OSError, EOFError):
            raise self._death() from None
        self.idle_since = time.monotonic()
        if not good:
            raise CompileError(f"code generation failed: {data.decode()}")
        return data

    def _death(self) -> CompileError:
        status = self.process.wait()
        self.errors.seek(0)
        tail = self.errors.read().decode(errors="replace").strip().splitlines()[-TAIL_LINES:]
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return CompileError(f"code generation ended with {how}: {' | '.join(tail) or 'no message'}")

    @property
    def usable(self) -> bool:
        """Whether it lives, and does not end by itself soon."""
        idle = time.monotonic() - self.idle_since
        return idle < child.IDLE_SECONDS / 2 and self.process.poll() is None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Closes what leads to the child."""
        self.channel.close()
        self.errors.close()


@cache
def _llvm_folder() -> str:
    """Where llvmlite is: the child is told, for looking for packages takes half of an interpreter's start."""
    found = importlib.util.find_spec("llvmlite")
    return str(Path(found.origin).parents[1]) if found and found.origin else ""


_idle: list[Worker] = []
_lock = threading.Lock()


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start(jobs: int | None = None) -> None:
    """Has the first workers idle, so that they load LLVM while the caller does something else; those that
    only a large model needs are started when it comes to that. jobs: how many may work at a time (None: one a
    processor)."""
    if jobs is None and processors() == 1:
        return  # nothing is gained by loading it early, and all may be in the cache
    wanted = min(AHEAD, processors() if jobs is None else jobs)
    with _lock, contextlib.suppress(OSError):
        _drop_unusable()
        while len(_idle) < wanted:
            _idle.append(Worker())


def idle() -> tuple[Worker, ...]:
    """Those that wait for the next one who needs them: between compilations all that are alive."""
    with _lock:
        return tuple(_idle)


def take() -> Worker:
    """An idle worker, or a new one."""
    with _lock:
        _drop_unusable()
        return _idle.pop() if _idle else Worker()


def give_back(worker: Worker) -> None:
    """Keeps the worker for the next one who needs it; as many as there are processors."""
    with _lock:
        keep = worker.usable and len(_idle) < processors()
        if keep:
            _idle.append(worker)
    if not keep:
        worker.stop()


def _drop_unusable() -> None:
    for worker in [w for w in _idle if not w.usable]:
        _idle.remove(worker)
        worker.stop()


@atexit.register
def stop() -> None:
    """Ends the idle ones; the next who needs one starts it anew."""
    with _lock:
        for worker in _idle:
            worker.process.kill()  # all at once, so that they end side by side
        while _idle:
            _idle.pop().stop()


def _after_fork() -> None:
    """In a fork: the workers are the parent's."""
    global _lock
    _lock = threading.Lock()
    while _idle:
        with contextlib.suppress(OSError):
            _idle.pop().forget()


os.register_at_fork(after_in_child=_after_fork)
