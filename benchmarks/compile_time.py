"""How long compiling a model of ten nodes takes, from the command line and from a process that has compiled
before.

    python benchmarks/compile_time.py [--rounds 10] [--command ONNXC] [MODEL.onnx ...]

Prints the least and the median of seconds by the clock and of seconds of processor time, all processes
counted; on a busy machine the latter say more. `first` is a compilation with an empty cache, in which the C
runtime is compiled, too; `warm` is in a process that has compiled before, with its stages below it. Either
way once with the objects of the model's code in the cache, and once, of a model with other sizes each time,
without them (`new code`). The bars are those of docs/benchmarks.md. --command: another onnxc to compare with.

Of models that are given it prints instead how long `onnxc compile` takes with and without `--optimize fast`,
none of their code in the cache, and how long a run of both libraries takes in one thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count, repeat
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxc.codegen.library import workers
from onnxc.driver import compile_model
from onnxc.inputs import make_inputs
from onnxc.loading.loader import load

BARS = {"command line": 0.6, "warm": 0.2}  # seconds


def model(path: Path, size: int = 32) -> Path:
    """Two convolutions with a pool between them, a product and a softmax, of an image of that size."""
    rng = np.random.default_rng(0)
    shapes = {
        "w0": (16, 3, 3, 3),
        "b0": (16,),
        "w1": (32, 16, 3, 3),
        "b1": (32,),
        "w2": (32, 10),
        "b2": (10,),
    }
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["c", "w1", "b1"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "w2", "b2"], ["h"]),
        helper.make_node("Relu", ["h"], ["i"]),
        helper.make_node("Softmax", ["i"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (1, 3, size, size)), ("y", (1, 10)))
    ]
    graph = helper.make_graph(nodes, "ten", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """(seconds by the clock, seconds of processor time of this process and all that it has waited for)"""
    began, used = time.perf_counter(), processor_time()
    action()
    return time.perf_counter() - began, processor_time() - used


def processor_time() -> float:
    """Of this process, its ended children, and the workers that are alive."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    alive = sum(map(worker_time, workers.idle()))
    return time.process_time() + ended.ru_utime + ended.ru_stime + alive


def worker_time(worker: workers.Worker) -> float:
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(name: str, times: list[tuple[float, float]]) -> None:
    clock, used = zip(*times)
    bar = f"   bar {BARS[name]} s" if name in BARS else ""
    print(
        f"{name:14} {min(clock):7.3f} {statistics.median(clock):7.3f} s   "
        f"processor {min(used):7.3f} {statistics.median(used):7.3f} s{bar}"
    )


def compare_fast(source: Path, command: str, rounds: int) -> None:
    """Prints what --optimize fast gains and loses of a model, full and fast by turns."""
    kinds = {"full": [], "fast": ["--optimize", "fast"]}
    with tempfile.TemporaryDirectory(prefix="onnxc-") as name:
        folder = Path(name)
        environment = {**os.environ, "ONNXC_CACHE": str(folder / "cache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
        for number in range(rounds + 1):
            for kind, words in kinds.items():
                shutil.rmtree(folder / "cache" / "objects", ignore_errors=True)
                line = [command, "compile", str(source), "-o", str(folder / f"{kind}.so"), *words]
                took = timed(partial(subprocess.run, line, env=environment, check=True, capture_output=True))
                if number:  # the first makes the runtime
                    seconds[kind].append(took[0])
        models = {kind: load(folder / f"{kind}.so", threads=1) for kind in kinds}
        feeds = make_inputs(models["full"].inputs, [], {}, {}, 0).feeds
        runs: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(10 * rounds):
            for kind, loaded in models.items():
                runs[kind].append(timed(partial(loaded.run, None, feeds))[0])
        for kind in kinds:
            print(
                f"{source.name:24} {kind}   compile {min(seconds[kind]):6.2f} "
                f"{statistics.median(seconds[kind]):6.2f} s   run {1e3 * min(runs[kind]):8.2f} "
                f"{1e3 * statistics.median(runs[kind]):8.2f} ms",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--command", default=shutil.which("onnxc", path=Path(sys.executable).parent))
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    options = parser.parse_args()
    if options.models:
        for each in options.models:
            compare_fast(each, options.command, options.rounds)
        return
    with tempfile.TemporaryDirectory(prefix="onnxc-") as name:
        folder = Path(name)
        source = model(folder / "ten.onnx")
        sizes = count(34, 2)

        def other() -> Path:
            return model(folder / "other.onnx", next(sizes))

        def from_command_line(cache: str = "cache", source: Path = source) -> tuple[float, float]:
            command = [options.command, "compile", str(source), "-o", str(folder / "ten.so")]
            environment = {**os.environ, "ONNXC_CACHE": str(folder / cache)}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed packages are
            return timed(lambda: subprocess.run(command, env=environment, check=True, capture_output=True))

        from_command_line()  # so that all files have been read, and are compiled to bytecode
        print(f"{'':14} {'least':>7} {'median':>7}")
        report("first", [from_command_line(f"empty{k}") for k in range(min(options.rounds, 3))])
        report("command line", [from_command_line() for _ in range(options.rounds)])
        report("  new code", [from_command_line(source=other()) for _ in range(options.rounds)])
        os.environ["ONNXC_CACHE"] = str(folder / "cache")
        for name, sources in (("warm", repeat(source)), ("  new code", iter(other, None))):
            stages: dict[str, list[float]] = {}

            def again(source: Path, stages: dict[str, list[float]] = stages) -> None:
                for stage, seconds in compile_model(source, folder / "again.so").seconds.items():
                    stages.setdefault(stage, []).append(seconds)

            again(next(sources))
            stages.clear()
            report(name, [timed(partial(again, next(sources))) for _ in range(options.rounds)])
            for stage, seconds in stages.items():
                print(f"    {stage:16} {1000 * min(seconds):6.1f} ms")


if __name__ == "__main__":
    main()
