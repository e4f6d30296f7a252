"""Time of one token of a decoder with its cache of keys and values changed in place, and passed along.

    python benchmarks/decode.py gpt2_decode.onnx [--state 'past_*=present_*'] [--past 0,128] [--rounds 20]

The model takes one token, a mask, its position and the cache, as exporters write it. `written`: bytes of the
cache that a token writes. One thread each, alternating, the least processor time of all rounds; ONNX Runtime
where it is installed.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import onnxc


def feeds_of(model: onnxc.Model, caches: dict[str, np.ndarray], past: int) -> dict[str, np.ndarray]:
    """One token behind `past` others."""
    given = {"mask": np.ones((1, past + 1), np.int64), "position": np.array([[past]])}
    return {
        port.name: next((array for word, array in given.items() if word in port.name), np.array([[5]]))
        for port in model.inputs
        if port.name not in caches
    }


def seconds(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least time of this thread's processor in each call, which take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.thread_time()
            call()
            best[name] = min(best[name], time.thread_time() - began)
    return best


def rival(path: Path) -> object | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--state", default="past_*=present_*", metavar="INPUT=OUTPUT")
    parser.add_argument("--past", default="0,128,512,960", help="tokens in the cache")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = onnxc.load(onnxc.compile(options.model, Path(folder) / "plain.so"), threads=1)
        states = dict([options.state.split("=")])
        kept = onnxc.load(onnxc.compile(options.model, Path(folder) / "kept.so", states=states), threads=1)
        session = rival(options.model)
        print("past  in place  passed along  ONNX Runtime   written in place  passed along")
        for past in map(int, options.past.split(",")):
            compare(plain, kept, session, past, options.rounds)


def compare(plain: onnxc.Model, kept: onnxc.Model, session: object | None, past: int, rounds: int) -> None:
    names = {port.name for port in kept.inputs if port.state is not None}
    ports = [port for port in plain.inputs if port.name in names]
    axes = {port.name: next(a for a, d in enumerate(port.shape) if not isinstance(d, int)) for port in ports}
    rng, caches = np.random.default_rng(past), {}
    for port in ports:
        shape = [past if axis == axes[port.name] else d for axis, d in enumerate(port.shape)]
        caches[port.name] = rng.standard_normal(shape, np.float32)
    first = {name: np.moveaxis(array, axes[name], 0) for name, array in caches.items()}
    row = sum(math.prod(array.shape[1:]) * array.itemsize for array in first.values())
    feeds = feeds_of(plain, caches, past)
    steps = kept.stateful(capacity=past + rounds + 1, initial=first)
    tokens = iter(range(past, past + rounds))

    calls = {
        "in place": lambda: steps(feeds_of(kept, caches, next(tokens))),
        "passed along": lambda: plain.run(None, {**feeds, **caches}),
    }
    if session is not None:
        calls["ONNX Runtime"] = lambda: session.run(None, {**feeds, **caches})
    best = seconds(calls, rounds)
    steps.close()
    print(
        f"{past:4}  {best['in place'] * 1e3:5.2f} ms  {best['passed along'] * 1e3:9.2f} ms  "
        f"{best.get('ONNX Runtime', float('nan')) * 1e3:9.2f} ms  {row:12,} B  {row * (past + 1):12,} B"
    )


if __name__ == "__main__":
    main()
