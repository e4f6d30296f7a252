"""Estimates beside measurements: `python benchmarks/calibrate.py [MODEL.onnx | FOLDER ...]`.

Every node of the models, and of a grid of models of one layer (`--grid`), is timed where it stands in a run
in one thread at the sizes that are typical, as `onnxc profile` does: the least of many runs in rounds
over all models; rounds in which the core was slower than its facts say do not count. A ratio is measured /
estimated. Prints for each kernel how many nodes it ran, the median ratio, the shares within 1.5x and 3x, the
worst. What takes less than 250 ns is left out: a reading of the clock is 35 to 60.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grid
import numpy as np
from table import ROWS

from onnxc.codegen.calibration import multiply_adds
from onnxc.codegen.lowering.lower import lower
from onnxc.commands.inputs import make_inputs
from onnxc.commands.steps import Expected, expectations, matched
from onnxc.driver import compile_model, optimise
from onnxc.errors import OnnxcError
from onnxc.frontend.importer import import_model
from onnxc.loading.loader import Model, load
from onnxc.loading.timing import Timing
from onnxc.target import find_target

GOOD, BEARABLE = 1.5, 3.0
SHORT_NS = 250.0
SLOW = 0.93  # of its multiply-adds that a core does which is not disturbed


@dataclass
class Row:
    """A node of a model: what runs it, what was estimated (nanoseconds, in one thread, at these sizes), with
    its parts at typical sizes, and what it took."""

    model: str
    node: str
    kernel: str
    choice: str
    estimated: float
    measured: float
    compute: float
    memory: float
    overhead: float

    @property
    def ratio(self) -> float:
        return self.measured / max(1.0, self.estimated)

    @property
    def miss(self) -> float:
        """By what factor, in either direction."""
        return max(self.ratio, 1 / max(self.ratio, 1e-9))


@dataclass
class Measurement:
    """A compiled model and the least times of its steps so far."""

    name: str
    library: Path
    expected: Sequence[Expected]
    sizes: dict[str, dict]
    timings: Sequence[Timing] = ()

    def run(self, runs: int) -> None:
        with load(self.library, threads=1) as library:
            found = library.profile(usual_inputs(library, self.sizes), runs)
        alike = [(t.node, t.parts) for t in found] == [(t.node, t.parts) for t in self.timings]
        self.timings = [
            min(a, b, key=lambda t: t.ns) for a, b in zip(found, self.timings if alike else found)
        ]

    @property
    def rows(self) -> list[Row]:
        return list(rows(self.name, self.expected, self.timings))


def prepared(name: str, model: object, folder: Path) -> Measurement:
    """The model's library in the folder, made unless it is there, run once: at usual sizes, or at those of
    the tables of docs/benchmarks.md where it takes no others."""
    library, notes = folder / f"{name}.so", folder / f"{name}.expected"
    if not (library.exists() and notes.exists()):
        target = find_target()
        compile_model(model, library, threads=1)
        lowered = lower(optimise(import_model(model).graph, target), target)
        notes.write_bytes(pickle.dumps(list(expectations(lowered, target))))
    measurement = Measurement(name, library, pickle.loads(notes.read_bytes()), {})
    row = next((row for row in ROWS if Path(row.file).stem == name), None)
    try:
        measurement.run(1)
    except OnnxcError:
        if row is None:
            raise
        measurement.sizes = {"dims": dict(row.dims), "shapes": dict(row.shapes)}
        measurement.run(1)
    return measurement


def usual_inputs(library: Model, sizes: dict[str, dict]) -> dict[str, object]:
    """Generated inputs whose integers are 1: an index that exists, a mask that hides nothing."""
    feeds = make_inputs(library.inputs, **sizes).feeds
    return {
        name: np.ones_like(value) if np.issubdtype(getattr(value, "dtype", float), np.integer) else value
        for name, value in feeds.items()
    }


def rows(name: str, expected: Sequence[Expected], timings: Sequence[Timing]) -> Iterator[Row]:
    """A row for every node that a kernel ran, its steps added up."""
    found: dict[int, list[Timing]] = {}
    for k, timing in zip(matched(expected, timings), timings):
        if k is not None:
            found.setdefault(k, []).append(timing)
    for k, its in found.items():
        node = expected[k]
        estimated, measured = (float(sum(getattr(t, kind) for t in its)) for kind in ("estimated_ns", "ns"))
        parts = (node.compute, node.memory, node.overhead)
        yield Row(name, node.node, node.kernel, node.choice, estimated, measured, *parts)


def measure(measurements: Sequence[Measurement], rounds: int, runs: int) -> None:
    """Rounds over all models. One that the core was slow in is repeated, up to five times."""
    target = find_target()
    speed, wanted = multiply_adds(target), SLOW * target.facts.instructions
    for _ in range(rounds):
        for measurement in measurements:
            for _ in range(5):
                before, kept = speed(), measurement.timings
                measurement.run(runs)
                if min(before, speed()) >= wanted:
                    break
                measurement.timings = kept
            else:
                measurement.run(runs)


def report(found: Sequence[Row]) -> None:
    """A line for each kernel, the one that takes most time first, then one for all."""
    kernels: dict[str, list[Row]] = {}
    for row in found:
        kernels.setdefault(row.kernel, []).append(row)
    total = sum(row.measured for row in found)
    order = sorted(kernels.items(), key=lambda item: -sum(row.measured for row in item[1]))
    heads = ("nodes", "of time", "median", "in 1.5x", "in 3x", "worst")
    print(f"{'kernel':16}" + "".join(f"{head:>9}" for head in heads))
    for kernel, its in [*order, ("all", list(found))]:
        time = sum(row.measured for row in its)
        good, bearable = (sum(row.miss <= limit for row in its) / len(its) for limit in (GOOD, BEARABLE))
        worst = max(its, key=lambda row: row.miss)
        print(
            f"{kernel:16}{len(its):9}{time / total:9.1%}{statistics.median(row.ratio for row in its):9.2f}"
            f"{good:9.1%}{bearable:9.1%}{worst.ratio:9.2f}  {worst.model}: {worst.node}"
        )


def models_in(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx|FOLDER")
    parser.add_argument("--grid", action="store_true", help="also the grid of single layers")
    parser.add_argument("--runs", type=int, default=30, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", action="store_true", help="print every node")
    parser.add_argument("--json", type=Path, help="write all rows there")
    parser.add_argument("--libraries", type=Path, help="keep compiled models there, and use those that are")
    parser.add_argument("--compile", action="store_true", help="measure nothing")
    options = parser.parse_args()
    every = [(path.stem, path) for path in models_in(options.models)]
    every += grid.models() if options.grid or not every else []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.libraries or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measurements = []
        for name, model in every:
            try:
                measurements.append(prepared(name, model, folder))
            except OnnxcError as error:
                print(f"{name}: {error}", file=sys.stderr)
        if options.compile:
            return
        measure(measurements, options.rounds, options.runs)
    found = [row for m in measurements for row in m.rows if max(row.measured, row.estimated) >= SHORT_NS]
    if options.nodes:
        for row in sorted(found, key=lambda row: -row.miss):
            times = f"{row.ratio:6.2f} {row.measured:12.0f} {row.estimated:12.0f}"
            print(f"{times}  {row.model} {row.node}: {row.choice}")
    report(found)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=1))


if __name__ == "__main__":
    main()
