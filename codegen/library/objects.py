"""Turns IR text into object files, in child processes, while the caller goes on.

LLVM takes two milliseconds for any module, however small: small ones are compiled together, in the order in
which they come, so that a model gives the same bytes each time. What was compiled before is in the user's
cache (object_cache.py): no text names the model, but those of `bind`, `run` and the tables.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from ...errors import CompileError
from ...target import Target
from ..kernel import Code
from ..lowering.lower import Lowered
from ..text.emitter import ENTRY
from . import object_cache, workers
from . import worker as in_process
from .compiler import requests_later
from .files import naming
from .runtime import PREFIX
from .worker import CODE, LEAN

BASELINE = ""  # LLVM's name of the processor that every machine of a kind has
TIMEOUT = 600  # seconds, for what is left of a model's code when nothing else is to be done
GROUP = 16 << 10  # characters of text that are worth a module of their own

_LAST = 1  # what sorts behind every module that waits
_Machine = tuple[str, str, int]  # triple, processor and level


def name_kernels(lowered: Lowered) -> dict[str, str]:
    """The name of each distinct kernel text's entry in the library."""
    texts = dict.fromkeys(step.text for code in lowered.codes.values() for step in code.steps)
    return {text: _kernel_name(text, lowered.target) for text in texts}


def _kernel_name(text: str, target: Target) -> str:
    """Made from the content and the target; it begins as the runtime's names do, and becomes the model's own
    with them."""
    return f"{PREFIX}k{hashlib.sha256(f'{target.name} {text}'.encode()).hexdigest()[:12]}"


class CodeGeneration:
    """Objects in the making: `add` hands in modules, `finish` waits for all. Leaving the block by an error
    ends what is under way.

    jobs: how many at a time (None: one a processor); 0 stays in this process, which an abort of LLVM then
    ends, and so it is where the system starts no threads. level: LLVM's, of functions."""

    def __init__(self, directory: Path, jobs: int | None = None, level: int = CODE):
        self.directory, self.level = directory, level
        self.jobs = workers.processors() if jobs is None else jobs
        self.objects: list[Path] = []  # in the order in which their modules came
        self._names: set[str] = set()  # of kernels
        self._small: dict[_Machine, dict[str, str]] = {}  # texts by name, to be one object
        self._modules: queue.PriorityQueue = queue.PriorityQueue()  # the longest first
        self._number = count()
        self._threads: list[threading.Thread] = []
        self._workers: list[workers.Worker] = []
        self._failures: list[BaseException] = []
        self._stopped = False
        self._lock = threading.Lock()  # of the workers

    def add_kernels(self, code: Code, target: Target) -> None:
        """The kernels of a node's steps, each distinct text once."""
        for text in dict.fromkeys(step.text for step in code.steps):
            name = _kernel_name(text, target)
            if name not in self._names:
                self._names.add(name)
                named, level = text.replace(f"@{ENTRY}", f"@{name}"), self._level_of(text, target)
                self.add(name, named, target.triple, target.processor, level)

    def _level_of(self, text: str, target: Target) -> int:
        """Without loop strength reduction, which takes up to a third of LLVM's time, where it gains nothing.
        Tiles of products that a processor adds up itself keep to the registers by it."""
        products = (*target.dots, *target.matrices, target.widening, target.pairs)
        kept = target.strength_reduction or any(p is not None and p.intrinsic in text for p in products)
        return LEAN if self.level == CODE and not kept else self.level

    def add(self, name: str, text: str, triple: str, processor: str, level: int | None = None) -> None:
        """A module's text for a processor in LLVM's words. level: another than that of functions."""
        machine = triple, processor, self.level if level is None else level
        if len(text) >= GROUP:
            self._compile(name, [text], machine)
            return
        small = self._small.setdefault(machine, {})
        small[name] = text
        if sum(map(len, small.values())) >= GROUP:
            self._compile_small(machine)

    def _compile_small(self, machine: _Machine) -> None:
        small = self._small.pop(machine)
        self._compile(next(iter(small)), list(small.values()), machine)

    def _compile(self, name: str, texts: Sequence[str], machine: _Machine) -> None:
        """Has the texts made into one object, unless they were before."""
        output = self.directory / f"{name}.o"
        self.objects.append(output)
        if object_cache.fetch(texts, machine, output):
            return
        if not self._is_served():
            try:
                made = in_process.compile_texts(texts, *machine)
            except RuntimeError as error:
                raise CompileError(f"code generation failed: {error}") from None
            with naming(output):
                output.write_bytes(made)
            object_cache.keep(texts, machine, output)
            return
        self._modules.put((-sum(map(len, texts)), next(self._number), (output, texts, *machine)))

    def _is_served(self) -> bool:
        """Whether threads take what waits: one more than before where there may be. Where the system starts
        no more, those that there are go on, and without any this process does it."""
        if len(self._threads) < self.jobs:
            with requests_later(), suppress(RuntimeError):  # what has not begun cannot be waited for
                thread = threading.Thread(target=self._serve, daemon=True)
                thread.start()
                self._threads.append(thread)
        return bool(self._threads)

    def _serve(self) -> None:
        """What a thread does: gives one module after the other to a worker of its own."""
        worker = None
        try:
            while (
                not self._failures and not self._stopped and (module := self._modules.get()[-1]) is not None
            ):
                if worker is None or not worker.usable:  # one that waits for long ends by itself
                    self._give_back(worker)
                    worker = None
                    worker = self._take()
                output, texts, *machine = module
                made = worker.compile(texts, *machine)
                with naming(output):
                    output.write_bytes(made)
                object_cache.keep(texts, machine, output)
        except BaseException as error:
            self._failures.append(error)
        finally:
            self._give_back(worker)

    def _take(self) -> workers.Worker:
        try:
            worker = workers.take()
        except OSError as error:
            problem = f"no process for code generation can be started: {error.strerror}"
            raise CompileError(problem) from None
        with self._lock:
            self._workers.append(worker)
        return worker

    def _give_back(self, worker: workers.Worker | None) -> None:
        if worker is not None:
            with self._lock:
                self._workers.remove(worker)
            workers.give_back(worker)

    def finish(self) -> list[Path]:
        """Waits for all; the first failure becomes the error."""
        for machine in list(self._small):
            self._compile_small(machine)
        deadline = time.monotonic() + TIMEOUT
        self._end()
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
        self._end()
        with self._lock:
            for worker in self._workers:
                worker.process.kill()
        for thread in self._threads:
            thread.join()

    def _end(self) -> None:
        """Tells the threads that nothing comes after what waits."""
        for _ in self._threads:
            self._modules.put((_LAST, next(self._number), None))
