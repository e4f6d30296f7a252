"""What calibrate.py and roofline.py share: the nodes of models, each timed where it stands in a run.

The machine may be slow for a while, so that models are visited by turns, and of every step the least of all
visits counts. What is kept in a folder goes on there: later calls add visits to those of earlier ones.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from table import ROWS

from onnxc.codegen.lowering.lower import lower
from onnxc.commands.steps import Expected, expectations, input_sizes
from onnxc.driver import compile_model, optimise
from onnxc.errors import OnnxcError
from onnxc.frontend.importer import import_model
from onnxc.inputs import make_inputs
from onnxc.loading.loader import Model, load
from onnxc.loading.timing import Timing
from onnxc.options import Options
from onnxc.target import find_target

VISIT_SECONDS = 0.3
LEAST_RUNS = 3  # of a visit: the first brings weights from the file


@dataclass
class Measurement:
    """A compiled model, what was expected of its nodes, and the least times of its steps so far (in a run in
    one thread)."""

    name: str
    library: Path
    sizes: dict[str, dict]
    expected: Sequence[Expected]

    @property
    def times(self) -> Path:
        return self.library.with_suffix(".times")

    @property
    def timings(self) -> Sequence[Timing]:
        return [Timing(*t) for t in pickle.loads(self.times.read_bytes())] if self.times.exists() else ()

    def visit(self) -> None:
        before, until, runs = self.timings, time.perf_counter() + VISIT_SECONDS, 0
        with load(self.library, threads=1) as library:
            feeds = usual_inputs(library, self.sizes)
            while runs < LEAST_RUNS or time.perf_counter() < until:
                found, runs = library.profile(feeds, 1), runs + 1
                alike = [(t.node, t.parts) for t in found] == [(t.node, t.parts) for t in before]
                before = [min(a, b, key=lambda t: t.ns) for a, b in zip(found, before)] if alike else found
        rows = [(t.node, t.parts, t.estimated_ns, t.ns) for t in before]
        self.times.write_bytes(pickle.dumps(rows))


def prepared(name: str, model: object, folder: Path, tabled: bool) -> Measurement:
    """The model's library in the folder, made unless it is there. Sizes that the model leaves open are those
    that are typical; tabled, and where it does not run with these: those of docs/benchmarks.md's tables."""
    library, notes = folder / f"{name}.so", folder / f"{name}.expected"
    row = next((row for row in ROWS if Path(row.file).stem == name), None)
    if not library.exists():
        library.with_suffix(".times").unlink(missing_ok=True)
        compile_model(model, library, Options(threads=1))
    if not notes.exists():
        target = find_target()
        lowered = lower(optimise(import_model(model).graph, target), target)
        sizes = {"dims": dict(row.dims), "shapes": dict(row.shapes)} if row is not None else {}
        with load(library, threads=1) as opened:
            if row is None or not tabled:
                try:
                    opened.run(None, usual_inputs(opened, {}))
                    sizes = {}
                except OnnxcError:
                    if row is None:
                        raise
            found = input_sizes(lowered.graph, usual_inputs(opened, sizes))
        notes.write_bytes(pickle.dumps((sizes, list(expectations(lowered, target, found)))))
    return Measurement(name, library, *pickle.loads(notes.read_bytes()))


def usual_inputs(library: Model, sizes: dict[str, dict]) -> dict[str, object]:
    """Generated inputs whose integers are 1: an index that exists, a mask that hides nothing."""
    feeds = make_inputs(library.inputs, **sizes).feeds
    return {
        name: np.ones_like(value) if np.issubdtype(getattr(value, "dtype", float), np.integer) else value
        for name, value in feeds.items()
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx|FOLDER")
    parser.add_argument("--seconds", type=float, default=60, help="to measure, all models together (60)")
    parser.add_argument(
        "--libraries", type=Path, help="keep compiled models and times there, and go on with those that are"
    )
    parser.add_argument("--compile", action="store_true", help="measure nothing")


@contextmanager
def measured(
    options: argparse.Namespace, more: Iterable[tuple[str, object]] = (), tabled: bool = False
) -> Iterator[Sequence[Measurement]]:
    """The models that the arguments name, and `more`, visited by turns. What cannot be compiled is told."""
    every: list[tuple[str, object]] = [(path.stem, path) for path in models_in(options.models)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.libraries or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        for name, model in (*every, *more):
            try:
                found.append(prepared(name, model, folder, tabled))
            except OnnxcError as error:
                print(f"{name}: {error}", file=sys.stderr)
        if not options.compile:
            found.sort(key=lambda m: m.times.stat().st_mtime if m.times.exists() else 0)
            until = time.perf_counter() + options.seconds
            while found and time.perf_counter() < until:
                for measurement in found:
                    if not measurement.timings or time.perf_counter() < until:
                        measurement.visit()
        yield [m for m in found if m.timings]


def models_in(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
