"""`onnxc bench --streams N`: how many inferences a second N runs side by side make, ours and the rivals'.

Engines have their turns, round after round, each for a while in which it alone is at work and never idle:
N threads that call one model (ours has a context for each, ONNX Runtime one session), or OpenVINO's own queue
of requests.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from .. import console
from ..errors import RunError, UsageError
from ..loading.loader import Model
from ..records import dataclass
from .measure import wait_until_quiet
from .rivals import openvino_streams, rival

ROUNDS = 5  # of turns, at least


@dataclass
class Streams:
    """An engine that runs the model `count` times side by side: `busy(seconds)` keeps it so for about so long
    and tells how many runs were done, and the seconds that they took together."""

    name: str
    busy: Callable[[float], tuple[int, float]]
    rates: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Inferences a second, the median of all turns."""
        return float(np.median(self.rates))

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "turns": len(self.rates), "rate": self.rate, "best": max(self.rates)}


def in_threads(run: Callable[[], object], count: int) -> Callable[[float], tuple[int, float]]:
    """Keeps `count` threads running it."""

    def busy(seconds: float) -> tuple[int, float]:
        done, errors = [0] * count, []
        begin = threading.Barrier(count + 1)

        def work(k: int) -> None:
            try:
                begin.wait()
                until = time.perf_counter() + seconds
                while done[k] == 0 or time.perf_counter() < until:
                    run()
                    done[k] += 1
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
        try:
            for thread in threads:
                thread.start()
        except RuntimeError:
            begin.abort()  # who waits there ends
            raise RunError(
                f"{count} threads cannot be started", remedy="give fewer --streams, or allow more threads"
            ) from None
        begin.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return sum(done), time.perf_counter() - began

    return busy


def measure_streams(engines: Sequence[Streams], seconds: float) -> None:
    """Fills `engine.rates` in about so many seconds an engine, the first turns of which warm up."""
    for turn in range(ROUNDS + 1):
        for engine in engines:
            wait_until_quiet()
            done, took = engine.busy(seconds / (ROUNDS + 1))
            if turn:
                engine.rates.append(done / took)


def measured_streams(
    options: argparse.Namespace, model: Model, feeds: Mapping[str, Any], source: Path
) -> dict[str, Any]:
    """What `bench --streams` tells, as JSON has it. source: the model that the rivals run."""
    if options.runs is not None:
        raise RunError("--runs counts runs one after the other", remedy="with --streams give --seconds")
    count, threads = options.streams, options.threads
    engines = [Streams("onnxc", in_threads(lambda: model.run(None, feeds), count))]
    for name in options.against:
        if name == "openvino":
            busy = openvino_streams(source, feeds, count, threads, options.pin)
        elif name == "onnxruntime":
            busy = in_threads(rival(name, source, feeds, threads, options.pin).run, count)
        else:
            raise UsageError(f"'{name}' runs the model once at a time", "leave out --streams")
        engines.append(Streams(name, busy))
    measure_streams(engines, options.seconds)
    ours, *others = engines
    return {
        "streams": count,
        "threads": threads,
        "engines": [engine.as_json() for engine in engines],
        "ratios": [{"against": other.name, "rate": ours.rate / other.rate} for other in others],
    }


def print_streams(found: Mapping[str, Any]) -> None:
    each = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''} each"
    print(f"{found['streams']} streams of {each}, inferences a second")
    rows = [(e["name"], f"{e['rate']:,.1f}", f"{e['best']:,.1f}", str(e["turns"])) for e in found["engines"]]
    console.print_table(("", "median", "best", "turns"), rows)
    for ratio in found["ratios"]:
        print(f"onnxc / {ratio['against']}: {ratio['rate']:.3f} by median")
