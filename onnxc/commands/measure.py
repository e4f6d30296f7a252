"""Latency of a compiled model and of its rivals: one process, in alternation, on the same inputs.

Every engine runs in short blocks, one engine after the other, round after round: what disturbs the
machine for a while disturbs all of them. The first blocks warm up and are not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..errors import CompileError, one_line
from ..loading.loader import Model, load
from ..records import dataclass
from .comparison import for_onnxruntime

BLOCK_SECONDS = 0.05  # that one engine runs before the next has its turn
RIVALS = ("onnxruntime", "openvino")
LOADS = 3


@dataclass
class Engine:
    """Something that runs the model: `run()` does it once and returns the outputs."""

    name: str
    run: Callable[[], Sequence]
    seconds: list[float] = field(default_factory=list)

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
            engine.run()  # brings its weights back into the caches
            for _ in range(count):
                began = time.perf_counter()
                engine.run()
                engine.seconds.append(time.perf_counter() - began)
                used[engine.name] += engine.seconds[-1]


def _warm_up(engine: Engine) -> int:
    """Runs the engine for a block or twice at least; how many runs make a block."""
    times: list[float] = []
    while len(times) < 2 or sum(times) < BLOCK_SECONDS:
        began = time.perf_counter()
        engine.run()
        times.append(time.perf_counter() - began)
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


# Rivals ------------------------------------------------------------------------------------------


def rival(
    name: str, model: str | os.PathLike, feeds: Mapping[str, Any], threads: int, static: bool = False
) -> Engine:
    """A rival ready to run the model on feeds. static: the compiled model has these shapes fixed, so
    the rival may too. Raises CompileError when it is not installed or cannot run the model."""
    make = {"onnxruntime": _onnxruntime, "openvino": _openvino}[name]
    try:
        run = make(os.fspath(model), feeds, threads, static)
        run()
    except ImportError as error:
        raise CompileError(f"'{name}' cannot be imported: {error}", "pip install 'onnxc[bench]'") from None
    except Exception as error:  # whatever the rival raises
        raise CompileError(f"'{name}' cannot run the model: {one_line(str(error), 300)}") from None
    return Engine(name, run)


def _onnxruntime(model: str, feeds: Mapping[str, Any], threads: int, static: bool) -> Callable[[], Sequence]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    cpu = ["CPUExecutionProvider"]
    if static:
        for entry in onnxruntime.InferenceSession(model, options, providers=cpu).get_inputs():
            for symbol, size in zip(entry.shape, getattr(feeds.get(entry.name), "shape", ())):
                if isinstance(symbol, str):
                    options.add_free_dimension_override_by_name(symbol, size)
    session = onnxruntime.InferenceSession(model, options, providers=cpu)
    given = {
        entry.name: for_onnxruntime(feeds[entry.name], entry.type)
        for entry in session.get_inputs()
        if entry.name in feeds
    }
    return lambda: session.run(None, given)


def _openvino(model: str, feeds: Mapping[str, Any], threads: int, static: bool) -> Callable[[], Sequence]:
    import openvino

    core = openvino.Core()
    read = core.read_model(model)
    if static:
        read.reshape(
            {port: list(feeds[port.any_name].shape) for port in read.inputs if port.any_name in feeds}
        )
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    given = dict(feeds)

    def run() -> Sequence:
        results = request.infer(given, share_inputs=True, share_outputs=True)
        return [results[k] for k in range(len(results))]

    return run
