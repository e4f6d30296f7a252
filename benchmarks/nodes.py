"""What calibrate.py and roofline.py share: the nodes of models, each timed where it stands in a run.

The machine may be slow for a while, so that models are visited by turns, and of every step the least of all
visits counts. Of a visit's runs that is their median: in single runs memory happens to be in a cache (a layer
of 4 KB takes 30 ns once in 40 runs, 730 in most). What is kept in a folder goes on there: later calls add
visits to those of earlier ones.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from table import ROWS

from onnxc.codegen.lowering.lower import Lowered, lower
from onnxc.commands.steps import Expected, expectations, input_sizes
from onnxc.driver import compile_model
from onnxc.errors import OnnxcError, RunError
from onnxc.frontend.importer import import_model
from onnxc.inputs import make_inputs, runnable_inputs
from onnxc.ir import dims
from onnxc.ir.graph import walk
from onnxc.loading.loader import Model, load
from onnxc.loading.timing import Timing
from onnxc.options import Options
from onnxc.passes.pipeline import optimise
from onnxc.target import find_target

VISIT_SECONDS = 0.3
RUNS = (4, 64)  # of a visit, at least and at most; the first brings weights from the file and does not count


@dataclass
class Measurement:
    """A compiled model, what was expected of its nodes, and the times of its steps so far (in runs in one
    thread). now: its nodes as they are estimated now, and these estimates at the sizes of the run."""

    name: str
    library: Path
    sizes: dict[str, dict]
    expected: Sequence[Expected]
    now: Sequence[tuple[Expected, float | None]] = ()

    @property
    def times(self) -> Path:
        return self.library.with_suffix(".times")

    @property
    def timings(self) -> Sequence[Timing]:
        steps, visits = self._kept()
        return [Timing(*step, int(ns)) for step, ns in zip(steps, np.min(visits, 0))] if visits else ()

    def _kept(self) -> tuple[list[tuple[str, int, int]], list[list[float]]]:
        """The steps of a run (node, parts, estimate), and what each took in every visit so far."""
        return pickle.loads(self.times.read_bytes()) if self.times.exists() else ([], [])

    def visit(self) -> None:
        (least, most), runs = RUNS, []
        with load(self.library, threads=1) as library:
            feeds, until = usual_inputs(library, self.sizes), time.perf_counter() + VISIT_SECONDS
            while len(runs) < least or (len(runs) < most and time.perf_counter() < until):
                runs.append(library.profile(feeds, 1))
        steps, visits = self._kept()
        if [step[0] for step in steps] != [t.node for t in runs[-1]]:
            steps, visits = [(t.node, t.parts, t.estimated_ns) for t in runs[-1]], []
        alike = [[t.ns for t in run] for run in runs[1:] if [t.node for t in run] == [s[0] for s in steps]]
        self.times.write_bytes(pickle.dumps((steps, [*visits, list(np.median(alike, axis=0))])))


def prepared(name: str, model: object, folder: Path, tabled: bool, again: bool) -> Measurement:
    """The model's library in the folder, made unless it is there. Sizes that the model leaves open are those
    that are typical; tabled, and where it does not run with these: those of docs/benchmarks.md's tables.
    again: what is expected of the same kernels is what the compiler estimates now."""
    file = folder / name.replace("/", ":")
    library, notes = file.with_name(f"{file.name}.so"), file.with_name(f"{file.name}.expected")
    row = next((row for row in ROWS if Path(row.file).stem == name), None)
    if not library.exists():
        library.with_suffix(".times").unlink(missing_ok=True)
        compile_model(model, library, Options(threads=1))
    if not notes.exists():
        lowered, listed = _lowered(model), {}
        if row is not None:
            listed = {"dims": dict(row.dims), "shapes": dict(row.shapes)}
        with load(library, threads=1) as opened:
            first = [listed] if row is not None and tabled else [{}, listed]
            sizes = next((s for s in first if _runs(opened, usual_inputs(opened, s))), None)
            if sizes is None:
                feeds = runnable_inputs(opened, {}, {}).feeds
                sizes = {"shapes": {name: np.shape(value) for name, value in feeds.items()}}
            found = input_sizes(lowered.graph, usual_inputs(opened, sizes))
        notes.write_bytes(pickle.dumps((sizes, list(expectations(lowered, lowered.target, found)))))
    sizes, expected = pickle.loads(notes.read_bytes())
    measurement = Measurement(name, library, sizes, expected)
    if again and measurement.timings:
        measurement.now = list(_estimated(_lowered(model), measurement))
    return measurement


def _lowered(model: object) -> Lowered:
    target = find_target()
    return lower(optimise(import_model(model).graph, target), target)


def _estimated(lowered: Lowered, measurement: Measurement) -> Iterator[tuple[Expected, float | None]]:
    """Every node as it is estimated now, and that estimate at the sizes of the measurement: None where the
    run alone tells them."""
    with load(measurement.library, threads=1) as opened:
        sizes = input_sizes(lowered.graph, usual_inputs(opened, measurement.sizes))
    nodes = [node for node in walk(lowered.graph) if node in lowered.codes and node.choice is not None]
    for node, expected in zip(nodes, expectations(lowered, lowered.target, sizes)):
        try:
            yield expected, float(sum(dims.evaluate(s.work, sizes) for s in lowered.codes[node].steps))
        except KeyError:
            yield expected, None


def usual_inputs(library: Model, sizes: dict[str, dict]) -> dict[str, object]:
    """Generated inputs. Integers are 1: an index that exists, a mask that hides nothing; those of which a
    model takes many are 1, 2 and so on: tokens, whose rows lie apart."""
    feeds = make_inputs(library.inputs, **sizes).feeds
    integers = [n for n, v in feeds.items() if isinstance(v, np.ndarray) and v.dtype.kind in "iu"]
    feeds |= {name: np.ones_like(feeds[name]) for name in integers}
    for name in integers:
        many = feeds | {name: np.cumsum(feeds[name]).reshape(feeds[name].shape).astype(feeds[name].dtype)}
        if feeds[name].size > 1 and _runs(library, many):
            feeds = many
    return feeds


def _runs(library: Model, feeds: dict[str, object]) -> bool:
    try:
        library.run(None, feeds)
    except RunError:
        return False
    return True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx|FOLDER")
    parser.add_argument("--seconds", type=float, default=60, help="to measure, all models together (60)")
    parser.add_argument(
        "--libraries", type=Path, help="keep compiled models and times there, and go on with those that are"
    )
    parser.add_argument("--compile", action="store_true", help="measure nothing")
    parser.add_argument(
        "--again",
        action="store_true",
        help="measure nothing, but estimate what --libraries has times of as the compiler does now",
    )


@contextmanager
def measured(
    options: argparse.Namespace, more: Iterable[tuple[str, object]] = (), tabled: bool = False
) -> Iterator[Sequence[Measurement]]:
    """The models that the arguments name, and `more`, visited by turns. What cannot be compiled is told."""
    every: list[tuple[str, object]] = list(named(models_in(options.models)))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.libraries or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = []
        for name, model in (*every, *more):
            try:
                found.append(prepared(name, model, folder, tabled, options.again))
            except OnnxcError as error:
                print(f"{name}: {error}", file=sys.stderr)
        if not (options.compile or options.again):
            found.sort(key=lambda m: m.times.stat().st_mtime if m.times.exists() else 0)
            until = time.perf_counter() + options.seconds
            while found and time.perf_counter() < until:
                for measurement in found:
                    if not measurement.timings or time.perf_counter() < until:
                        measurement.visit()
        yield [m for m in found if m.timings]


def named(paths: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Models by the names of their files, and where several have one of their folders too."""
    every = list(paths)
    often = Counter(path.stem for path in every)
    for path in every:
        yield path.stem if often[path.stem] == 1 else f"{path.resolve().parent.name}/{path.stem}", path


def models_in(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
