"""`onnxc profile`: where the time of a run goes, by nodes and kernels, and how near each is to its bound.

Steps are timed in the library as it is; what they compute and move comes from the model (`steps.py`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import console
from ..codegen.library.files import replacing
from ..errors import RunError, shorten
from ..loading.finding import is_library
from ..loading.loader import Model, load
from ..loading.timing import Timing
from ..records import dataclass
from .actions import OK, compile_options, compiling, inputs_of, library_of
from .written import check_written

if TYPE_CHECKING:
    from .report import Flow
    from .steps import Expected, Work


@dataclass(frozen=True)
class Part:
    """A node of a run: its number among those expected, its kernel's name and tiling, its time, what the
    compiler expected (nanoseconds), into how many parts it was cut at most, and its work, with the bound of
    as many threads as ran. What is not known is None."""

    name: str
    place: int | None
    kernel: str | None
    choice: str | None
    ns: int
    estimated_ns: int
    parts: int
    work: Work | None

    def as_json(self, total: int) -> dict[str, object]:
        return {
            "node": self.name,
            "kernel": self.kernel,
            "choice": self.choice,
            "ns": self.ns,
            "share": self.ns / max(1, total),
            "estimated_ns": self.estimated_ns,
            "parts": self.parts,
            **rates([self]),
        }


def profile_command(options: argparse.Namespace) -> int:
    check_written(options)
    library = library_of(options.file, options)
    model = load(library, options.threads)
    inputs = inputs_of(model, options)
    source = options.model or (None if is_library(options.file) else options.file)
    expected, flow = ([], []) if source is None else expected_of(source, model, inputs.feeds, options)
    timings = model.profile(inputs.feeds, options.runs)
    places = matched_steps(expected, timings)
    if options.trace:
        with replacing(options.trace) as (temporary,):
            temporary.write_text(json.dumps(trace(expected, places, timings)), encoding="utf-8")
    nodes = parts_of(expected, places, timings, options.threads)
    total = _time(nodes)
    kernels = by_kernel(nodes) if expected else {}
    peak = machine_peak(options.threads)
    told = {
        "file": str(options.file),
        "target": model.target,
        "threads": options.threads,
        "runs": options.runs,
        "inputs": inputs.describe(),
        "peak": peak,
        "ns": total,
        "nodes": [node.as_json(total) for node in nodes],
        "kernels": [kernel_json(name, its, total) for name, its in kernels.items()],
    }
    if options.html:
        from .report import among, page

        between = among(flow, [node.place for node in nodes]) if flow else None
        with replacing(options.html) as (temporary,):
            temporary.write_text(page(told, between), encoding="utf-8", errors="backslashreplace")
    if options.json:
        console.print_json(told)
        return OK
    print(f"inputs: {inputs.describe()}\n{options.threads} thread{'s' if options.threads > 1 else ''}")
    order = sorted(nodes, key=lambda node: -node.ns)
    if expected:
        rows = [(shorten(node.name), node.kernel or "", *_cells([node], total)) for node in order]
        console.print_table(("node", "kernel", *_HEADS), rows, 2)
        rows = [(name, str(len(its)), *_cells(its, total)) for name, its in kernels.items()]
        rows.append(("all", str(len(nodes)), *_cells(nodes, total)))
        print()
        console.print_table(("kernel", "nodes", *_HEADS), rows)
        measured = "" if peak["measured"] else ", not measured on this machine: run `onnxc calibrate`"
        print(f"peak: {peak['gflops']:.0f} GFLOP/s of float32, {peak['gbytes']:.1f} GB/s of memory{measured}")
    else:
        console.print_table(
            ("node", *_HEADS[:_OF_STEPS]), [(n.name, *_cells([n], total)[:_OF_STEPS]) for n in order]
        )
        print("kernels and rates need the model that the library came from: --model")
    return OK


def expected_of(
    source: Path, model: Model, feeds: Mapping[str, object], options: argparse.Namespace
) -> tuple[list[Expected], list[Flow]]:
    """The nodes of the model, lowered as for the library's target and in its numbers, at the sizes of these
    inputs."""
    import tempfile

    from ..codegen.lowering.lower import lower
    from ..frontend.importer import import_model
    from ..given import given_operators
    from ..options import Options
    from ..passes.narrow_weights import Narrowing
    from ..passes.pipeline import optimise
    from ..target import find_target
    from .report import flows
    from .steps import expectations, input_sizes

    machine = find_target()
    target = machine if model.target == machine.name else find_target(model.target)
    asked = Options.of({name: model.description.get(name) for name in ("precision", "weights")})
    weights = Narrowing.of(asked.weights)
    with compiling(source) as progress, tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
        progress("import")
        given = given_operators(options.operators, Path(folder), target).operators
        imported = import_model(source, compile_options(options), given).graph
        progress("optimise")
        optimised = optimise(imported, target, options=asked.with_(weights=weights))
        lowered = lower(optimised, target, progress)
        known = input_sizes(lowered.graph, feeds)
        return list(expectations(lowered, machine, known)), flows(lowered, known)


def machine_peak(threads: int) -> dict[str, object]:
    """What so many threads of this machine can do, and whether that was measured."""
    from ..facts import measured_facts
    from ..target import find_target

    machine = find_target()
    adds = machine.facts.multiply_adds * machine.lanes("float32")
    return {
        "gflops": 2 * adds * threads,
        "gbytes": machine.facts.memory_rate * threads,
        "measured": measured_facts(machine.name) is not None,
    }


def matched_steps(expected: Sequence[Expected], timings: Sequence[Timing]) -> list[int | None]:
    """The place among `expected` of each step. Raises RunError where the model is another one."""
    from ..loading.timing import matched

    places = matched(expected, timings)
    if expected and timings and all(place is None for place in places):
        raise RunError("no step of the library is of a node of the model", remedy="give the one it came from")
    return places


def parts_of(
    expected: Sequence[Expected], places: Sequence[int | None], timings: Sequence[Timing], threads: int
) -> list[Part]:
    """The nodes in the order of their first steps; one that a loop repeats has the work of all its runs."""
    found: dict[object, list[Timing]] = {}
    for place, timing in zip(places, timings):
        found.setdefault(timing.node if place is None else place, []).append(timing)
    nodes = []
    for key, its in found.items():
        kernel = choice = work = None
        place = key if isinstance(key, int) else None
        if place is not None:
            kernel, choice, work = expected[place].kernel, expected[place].choice, expected[place].work
            if work is not None:
                work = shared(work * max(1, len(its) // expected[place].steps), threads)
        estimated, parts = sum(t.estimated_ns for t in its), max(t.parts for t in its)
        nodes.append(Part(its[0].node, place, kernel, choice, _time(its), estimated, parts, work))
    return nodes


def by_kernel(nodes: Iterable[Part]) -> dict[str, list[Part]]:
    """The nodes of each kernel, the one that takes most time first."""
    kernels: dict[str, list[Part]] = {}
    for node in nodes:
        kernels.setdefault(node.kernel or "unknown", []).append(node)
    return dict(sorted(kernels.items(), key=lambda item: -_time(item[1])))


def shared(work: Work, threads: int) -> Work:
    """The work of a node that so many threads do together."""
    return replace(work, bound=work.bound / threads)


def kernel_json(name: str, nodes: Sequence[Part], total: int) -> dict[str, object]:
    ns = _time(nodes)
    share = {"kernel": name, "nodes": len(nodes), "ns": ns, "share": ns / max(1, total)}
    return {**share, **rates(nodes)}


def rates(nodes: Sequence[Part]) -> dict[str, float | None]:
    """What nodes compute and move, in all and in a nanosecond, and their bounds beside what they took; None
    where it is not known of all of them, or they took no time."""
    ns, works = _time(nodes), [node.work for node in nodes if node.work is not None]
    if len(works) < len(nodes) or not ns:
        names = ("multiply_adds", "bytes", "gflops", "gbytes", "bound_ns", "of_peak")
        return dict.fromkeys(names)
    adds, nbytes = sum(work.multiply_adds for work in works), sum(work.nbytes for work in works)
    bound = sum(work.bound for work in works)
    return {
        "multiply_adds": adds,
        "bytes": nbytes,
        "gflops": 2 * adds / ns,
        "gbytes": nbytes / ns,
        "bound_ns": bound,
        "of_peak": bound / ns,
    }


def trace(
    expected: Sequence[Expected], places: Sequence[int | None], timings: Sequence[Timing]
) -> dict[str, object]:
    """A run in Chrome's format, which Perfetto reads: an event a step, one behind the other."""
    events, began = [], 0
    for place, timing in zip(places, timings):
        told: dict[str, object] = {}
        if place is not None:
            node, work = expected[place], expected[place].work
            told = {
                "kernel": node.kernel,
                "choice": node.choice,
                **({"multiply_adds": work.multiply_adds, "bytes": work.nbytes} if work is not None else {}),
            }
        events.append(timing.event(began, **told))
        began += timing.ns
    return {"traceEvents": events, "displayTimeUnit": "ns"}


_HEADS = ("time", "expected", "share", "GFLOP/s", "GB/s", "of peak")
_OF_STEPS = len(_HEADS) - 3  # those of them that the library alone tells


def _time(its: Iterable[Part | Timing]) -> int:
    return sum(each.ns for each in its)


def _cells(nodes: Sequence[Part], total: int) -> tuple[str, ...]:
    """What a row says of these nodes, under _HEADS."""
    ns, found = _time(nodes), rates(nodes)
    gflops, gbytes, of_peak = found["gflops"], found["gbytes"], found["of_peak"]
    return (
        console.time_text(ns * 1e-9),
        console.time_text(sum(node.estimated_ns for node in nodes) * 1e-9),
        f"{ns / max(1, total):.1%}",
        f"{gflops:.1f}" if gflops else "",
        f"{gbytes:.1f}" if gbytes else "",
        f"{of_peak:.0%}" if of_peak is not None else "",
    )
