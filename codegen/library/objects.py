"""Turns IR text into object files, in child processes, while the caller goes on."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ...errors import CompileError
from ...target import Target
from ..lowering.lower import Lowered
from ..text.emitter import ENTRY
from . import worker as in_process
from . import workers

BASELINE = ""  # LLVM's name of the processor that every machine of a kind has
TIMEOUT = 600  # seconds, for what is left of a model's code when nothing else is to be done


def name_kernels(lowered: Lowered, prefix: str) -> dict[str, str]:
    """The name of each distinct kernel text's entry in the library, made from its content and the target."""
    texts = dict.fromkeys(step.text for code in lowered.codes.values() for step in code.steps)
    digests = {text: hashlib.sha256(f"{lowered.target.name} {text}".encode()).hexdigest() for text in texts}
    return {text: f"{prefix}__k{digest[:12]}" for text, digest in digests.items()}


class CodeGeneration:
    """Objects in the making: `add` hands in modules, `finish` waits for all. Leaving the block by an error
    ends what is under way.

    jobs: how many at a time (None: one a processor); 0 stays in this process, which an abort of LLVM then
    ends."""

    def __init__(self, directory: Path, jobs: int | None = None):
        self.directory = directory
        self.jobs = (os.cpu_count() or 1) if jobs is None else jobs
        self.objects: list[Path] = []  # in the order of `add`
        self._modules: queue.SimpleQueue = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._workers: list[workers.Worker] = []
        self._failures: list[BaseException] = []
        self._stopped = False
        self._lock = threading.Lock()  # of the workers

    def add_kernels(self, kernels: Mapping[str, str], target: Target) -> None:
        """Kernels by their text, each under its name; the longest first."""
        for text, name in sorted(kernels.items(), key=lambda item: -len(item[0])):
            self.add(name, text.replace(f"@{ENTRY}", f"@{name}"), target.triple, target.processor)

    def add(self, name: str, text: str, triple: str, processor: str) -> None:
        """A module's text for a processor in LLVM's words."""
        output = self.directory / f"{name}.o"
        self.objects.append(output)
        if self.jobs == 0:
            try:
                output.write_bytes(in_process.compile_text(text, triple, processor))
            except RuntimeError as error:
                raise CompileError(f"code generation failed: {error}") from None
            return
        self._modules.put((output, text, triple, processor))
        if len(self._threads) < self.jobs:
            self._threads.append(threading.Thread(target=self._serve, daemon=True))
            self._threads[-1].start()

    def _serve(self) -> None:
        """What a thread does: gives one module after the other to a worker of its own."""
        try:
            worker = workers.take()
        except OSError as error:
            self._failures.append(
                CompileError(f"no process for code generation can be started: {error.strerror}")
            )
            return
        with self._lock:
            self._workers.append(worker)
        try:
            while not self._failures and not self._stopped and (module := self._modules.get()) is not None:
                output, *request = module
                output.write_bytes(worker.compile(*request))
        except BaseException as error:
            self._failures.append(error)
        finally:
            with self._lock:
                self._workers.remove(worker)
            workers.give_back(worker)

    def finish(self) -> list[Path]:
        """Waits for all; the first failure becomes the error."""
        deadline = time.monotonic() + TIMEOUT
        for _ in self._threads:
            self._modules.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self.stop()
            raise CompileError(f"code generation took more than {TIMEOUT} seconds")
        if self._failures:
            raise self._failures[0]
        return self.objects

    def __enter__(self) -> CodeGeneration:
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if kind is not None:
            self.stop()

    def stop(self) -> None:
        """Ends what is under way."""
        self._stopped = True
        for _ in self._threads:
            self._modules.put(None)
        with self._lock:
            for worker in self._workers:
                worker.process.kill()
        for thread in self._threads:
            thread.join()
