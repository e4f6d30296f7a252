"""Estimates beside measurements: `python benchmarks/calibrate.py [MODEL.onnx | FOLDER ...]`.

Every node of the models, and of a grid of models of one layer (`--grid`), is timed where it stands in a run
in one thread, as `onnxc bench --nodes` does, the least of many runs in rounds over all models. A ratio is
measured / estimated. Prints for each kernel how many nodes it ran, the median ratio, the shares within 1.5x
and 3x, the worst; what takes less than a quarter of a microsecond, which says more of the clock, is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grid
import numpy as np
from onnxc.codegen.lowering.lower import Lowered, lower

from onnxc.commands.inputs import make_inputs
from onnxc.driver import compile_model, optimise
from onnxc.errors import OnnxcError
from onnxc.frontend.importer import import_model
from onnxc.ir.graph import Node, walk
from onnxc.loading.loader import Model, Timing, load
from onnxc.target import find_target

GOOD, BEARABLE = 1.5, 3.0
SHORT_NS = 250.0


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
    lowered: Lowered
    timings: Sequence[Timing] = ()

    def run(self, runs: int) -> None:
        with load(self.library, threads=1) as library:
            found = library.profile(usual_inputs(library), runs)
        alike = [(t.node, t.parts) for t in found] == [(t.node, t.parts) for t in self.timings]
        self.timings = [
            min(a, b, key=lambda t: t.ns) for a, b in zip(found, self.timings if alike else found)
        ]

    @property
    def rows(self) -> list[Row]:
        return list(rows(self.name, self.lowered, self.timings))


def prepared(name: str, model: object, library: Path) -> Measurement:
    target = find_target()
    compile_model(model, library, threads=1)
    return Measurement(name, library, lower(optimise(import_model(model).graph, target), target))


def usual_inputs(library: Model) -> dict[str, object]:
    """Generated inputs whose integers are 1: an index that exists, a mask that hides nothing."""
    feeds = make_inputs(library.inputs).feeds
    return {
        name: np.ones_like(value) if np.issubdtype(getattr(value, "dtype", float), np.integer) else value
        for name, value in feeds.items()
    }


def rows(name: str, lowered: Lowered, timings: Sequence[Timing]) -> Iterator[Row]:
    """A row for every node that a kernel ran, its steps added up."""
    expected = [
        (node, k)
        for node in walk(lowered.graph)
        if node in lowered.codes
        for k in range(len(lowered.codes[node].steps))
    ]
    found: dict[Node, list[Timing]] = {}
    place = 0
    for timing in timings:
        order = [*range(place, len(expected)), *range(place)]  # a loop begins again
        at = next((k for k in order if expected[k][0].origin == timing.node), None)
        if at is not None:
            found.setdefault(expected[at][0], []).append(timing)
            place = at + 1
    for node, steps in found.items():
        cost = node.choice.cost
        yield Row(
            name,
            node.origin,
            node.choice.name,
            str(node.choice),
            float(sum(step.estimated_ns for step in steps)),
            float(sum(step.ns for step in steps)),
            cost.compute,
            cost.memory,
            cost.overhead,
        )


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
    options = parser.parse_args()
    every = [(path.stem, path) for path in models_in(options.models)]
    every += grid.models() if options.grid or not every else []
    with tempfile.TemporaryDirectory() as folder:
        measurements = []
        for k, (name, model) in enumerate(every):
            try:
                measurements.append(prepared(name, model, Path(folder) / f"{k}.so"))
                measurements[-1].run(1)
            except OnnxcError as error:
                measurements = [m for m in measurements if m.name != name]
                print(f"{name}: {error}", file=sys.stderr)
        for _ in range(options.rounds):
            for measurement in measurements:
                measurement.run(options.runs)
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
