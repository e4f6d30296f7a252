"""Latency of a compiled model and of its rivals, in alternation, on the same inputs.

Every engine runs in short blocks, one engine after the other, round after round: what disturbs the
machine for a while disturbs all of them, and none begins while threads of the one before still spin. The
first blocks warm up and are not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import field

import numpy as np

from ..loading.loader import Model, load
from ..records import dataclass

BLOCK_SECONDS = 0.05  # that one engine runs before the next has its turn
# Without work between blocks, some ticks of a kernel that counts by ticks; spent at most in waiting for that.
QUIET_SECONDS, MOST_SPINNING = 0.012, 0.5
LOADS = 3


@dataclass
class Engine:
    """Something that runs the model: `run()` returns the outputs. One in another process has `elsewhere`,
    which runs it so many times and returns the seconds that each took."""

    name: str
    run: Callable[[], Sequence]
    seconds: list[float] = field(default_factory=list)
    elsewhere: Callable[[int], list[float]] | None = None

    def timed(self, count: int) -> list[float]:
        """The seconds of so many runs."""
        if self.elsewhere is not None:
            return self.elsewhere(count)
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            self.run()
            seconds.append(time.perf_counter() - began)
        return seconds

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def minimum(self) -> float:
        return min(self.seconds)

    @property
    def p95(self) -> float:
        return float(np.percentile(self.seconds, 95))

    def as_json(self) -> dict[str, object]:
        """Seconds."""
        return {
            "name": self.name,
            "runs": len(self.seconds),
            "median": self.median,
            "min": self.minimum,
            "p95": self.p95,
        }


def measure(engines: Sequence[Engine], seconds: float = 3.0, runs: int | None = None) -> None:
    """Fills `engine.seconds`: `runs` runs of each engine, or as many as about `seconds` allow."""
    block = {engine.name: _warm_up(engine) for engine in engines}
    used = dict.fromkeys(block, 0.0)

    def wants_more(engine: Engine) -> bool:
        if runs is not None:
            return len(engine.seconds) < runs
        return not engine.seconds or used[engine.name] < seconds

    while any(wants_more(engine) for engine in engines):
        for engine in engines:
            if not wants_more(engine):
                continue
            count = block[engine.name]
            if runs is not None:
                count = min(count, runs - len(engine.seconds))
            wait_until_quiet()
            found = engine.timed(count + 1)[1:]  # the first brings its weights back into the caches
            engine.seconds += found
            used[engine.name] += sum(found)


def wait_until_quiet() -> None:
    """Returns when threads of who ran before have stopped spinning, as ONNX Runtime's do some 50 ms behind a
    run: they would take a processor from who is next."""
    end = time.perf_counter() + MOST_SPINNING
    while time.perf_counter() < end:
        began = time.process_time()
        time.sleep(QUIET_SECONDS)
        if time.process_time() - began < QUIET_SECONDS / 4:
            return


def _warm_up(engine: Engine) -> int:
    """Runs the engine for a block or twice at least; how many runs make a block."""
    wait_until_quiet()
    times: list[float] = []
    while len(times) < 2 or sum(times) < BLOCK_SECONDS:
        times += engine.timed(1)
    return max(1, round(BLOCK_SECONDS / max(min(times), 1e-7)))


def load_timed(path: str | os.PathLike, threads: int) -> tuple[Model, float]:
    """A loaded library, and the fewest seconds of a few loads, from opening it to where it can run."""
    seconds = []
    for k in range(LOADS):
        began = time.perf_counter()
        model = load(path, threads)
        seconds.append(time.perf_counter() - began)
        if k < LOADS - 1:
            model.close()
    return model, min(seconds)
