"""Tuning: a model is compiled with those kernels that are the fastest as they were measured on this machine.

    compile ─▶ time every node ─▶ doubt the estimates of the others' kernels for the slowest nodes,
    compile with who is next by them ─▶ time its nodes beside the first's ─▶ ... ─▶ compile with what won

Nodes are timed where they stand, in whole runs of whole libraries (`loading/turns.py`), so that a round tries
one choice for every slow node at once. At the end the whole model is timed as it was and as it would be: the
slower is dropped. What won is kept in the user's cache, by node, for this compiler and machine.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .codegen.kernel import NEAR
from .codegen.lowering.tuned import Ratios, Tuned, choice_name, node_name
from .driver import Besides, Progress, Report, compile_model
from .errors import CompileError, RunError, UsageError
from .facts import kept_path
from .inputs import expected_inputs, runnable_inputs
from .ir.graph import walk
from .ir.ops import Reorder
from .loading.loader import load
from .loading.making import compiler_hash
from .loading.timing import matched
from .loading.turns import Turns
from .records import dataclass
from .target import Target, find_targets, runs_here

if TYPE_CHECKING:
    from .codegen.lowering.lower import Lowered
    from .loading.timing import Timing
    from .options import Options

CLEARLY = 0.97  # of a choice's time is what one takes that is faster beyond doubt
WHOLE = 0.99  # the same of a whole model's
SHARE = 0.01  # of a run's time has a node that is worth it
CRASHED = 1e6  # times as slow as another counts what cannot be run

Build = Callable[[Tuned], Path]
Seen = dict[str, dict[str, float]]


class Bench(Protocol):
    """What times libraries side by side; RunError where one cannot be run."""

    def steps(self, libraries: Sequence[Path], seconds: float) -> list[list[Timing]]: ...
    def runs(self, libraries: Sequence[Path], seconds: float) -> list[float]: ...


@dataclass(frozen=True)
class Node:
    """A node of a library: where it comes from, its steps, those that may be left out, its name and that of
    its choice, that in short, and the estimate."""

    node: str
    steps: int
    copies: int
    name: str
    choice: str
    short: str
    estimate: float


@dataclass(frozen=True)
class Finding:
    """A choice that was tried for some nodes: in place of which, and what part of its time it was expected to
    take, and took."""

    nodes: tuple[str, ...]
    before: str
    tried: str
    expected: float
    measured: float

    @property
    def won(self) -> bool:
        return self.measured < CLEARLY


@dataclass(frozen=True)
class Tuning:
    """What came of it: what to compile with, all that was tried, the seconds of a run as the model was and
    with what won (None where nothing did), and whether that was kept."""

    tuned: Tuned
    findings: tuple[Finding, ...] = ()
    before: float | None = None
    after: float | None = None
    kept: bool = False

    def as_json(self) -> dict[str, object]:
        findings = [{**vars(f), "won": f.won} for f in self.findings]
        return {"before": self.before, "after": self.after, "kept": self.kept, "findings": findings}


@dataclass
class Variant:
    """A library, its nodes in order, and the nanoseconds that each took, the least of what was seen."""

    path: Path
    nodes: Sequence[Node]
    ns: list[float] = field(default_factory=list)

    def time(self, timings: Sequence[Timing]) -> None:
        self.ns = [0.0] * len(self.nodes)
        for place, timing in zip(matched(self.nodes, timings), timings):
            if place is not None:
                self.ns[place] += timing.ns

    def places(self) -> Iterator[tuple[tuple[str, str, int], int]]:
        """What tells each node from the others in all variants, and its number."""
        count: dict[tuple[str, str], int] = {}
        for k, node in enumerate(self.nodes):
            key = node.node, node.name
            count[key] = count.get(key, -1) + 1
            yield (*key, count[key]), k


def nodes_of(lowered: Lowered) -> list[Node]:
    """What kernels run, in order."""
    found = []
    for node in walk(lowered.graph):
        if node.choice is not None and node in lowered.codes:
            choice, code = node.choice, lowered.codes[node]
            name = "" if isinstance(node.op, Reorder) else node_name(node)
            tiling = {} if choice.tiling is None else vars(choice.tiling)
            told = ", ".join(f"{k}={v}" for k, v in tiling.items() if v is not None)
            short = f"{choice.name}({told})" if told else choice.name
            steps = len(code.steps), code.copies
            found.append(Node(node.origin, *steps, name, choice_name(choice), short, choice.time))
    return found


# Searching ---------------------------------------------------------------------------------------


class Search:
    """Tries choices until the time is over or none is left that is near, and at least once. build: compiles
    with what is known. known: what earlier searches found."""

    def __init__(
        self,
        build: Build,
        bench: Bench,
        seconds: float,
        known: Ratios,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.build, self.bench, self.seconds, self.clock = build, bench, seconds, clock
        self.first = self.built(Tuned())
        self.until = clock() + seconds
        self.seen = self.begun(known)
        self.findings: list[Finding] = []

    def built(self, tuned: Tuned) -> Variant:
        nodes: list[Node] = []
        path = self.build(replace(tuned, given=lambda lowered: nodes.extend(nodes_of(lowered))))
        return Variant(path, nodes)

    def begun(self, known: Ratios) -> Seen:
        """What is known of the model's nodes; of slow ones at least which choice they have."""
        self.first.time(self.bench.steps([self.first.path], self.seconds / 10)[0])
        spent: dict[str, float] = {}
        choice: dict[str, str] = {}
        for node, ns in zip(self.first.nodes, self.first.ns):
            spent[node.name] = spent.get(node.name, 0.0) + ns
            choice.setdefault(node.name, node.choice)
        least = SHARE * sum(self.first.ns)
        found: Seen = {}
        for name in spent:
            if choice[name] in known.get(name, {}):
                found[name] = dict(known[name])
            elif name and spent[name] >= least:
                found[name] = {choice[name]: 1.0}
        return found

    def found(self) -> Tuning:
        """Tries, and holds the whole model with what won against the model as it was."""
        check = self.seconds / 5
        while self.tries() and self.clock() < self.until - check:
            pass
        tuned = Tuned(believed(self.seen))
        last = self.built(tuned)
        findings = tuple(self.findings)
        if [node.choice for node in last.nodes] == [node.choice for node in self.first.nodes]:
            return Tuning(Tuned(), findings)
        first, second = self.first.path, last.path
        before, after = self.bench.runs([first, second], check / 2)
        after_again, before_again = self.bench.runs([second, first], check / 2)  # the machine has its moods
        kept = after < WHOLE * before and after_again < WHOLE * before_again
        times = min(before, before_again), min(after, after_again)
        return Tuning(tuned if kept else Tuned(), findings, *times, kept)

    def tries(self) -> bool:
        """Builds with choices that nobody has seen, as many as can be at once, and sees them; False where
        there are none."""
        variant = self.built(Tuned(self.seen, NEAR))
        new = {
            (node.name, node.choice)
            for node in variant.nodes
            if node.name in self.seen and node.choice not in self.seen[node.name]
        }
        if not new:
            return False
        try:
            before, after = self.bench.steps([self.first.path, variant.path], self.seconds / 10)
        except RunError:
            for name, choice in new:
                self.seen[name][choice] = CRASHED
            return True
        self.first.time(before)
        variant.time(after)
        for name, choice in new:
            self.see(variant, name, choice)
        return True

    def see(self, variant: Variant, name: str, choice: str) -> None:
        """Writes down how long the choice took beside what the same nodes took in the first library."""
        places = dict(self.first.places())
        pairs = [
            (k, places[place])
            for place, k in variant.places()
            if place in places and (variant.nodes[k].name, variant.nodes[k].choice) == (name, choice)
        ]
        took = sum(variant.ns[k] for k, _ in pairs)
        beside = sum(self.first.ns[k] for _, k in pairs)
        if not pairs or not took or not beside:
            self.seen[name][choice] = CRASHED  # it was never run: there is nothing to win
            return
        one, other = variant.nodes[pairs[0][0]], self.first.nodes[pairs[0][1]]
        ratio = took / beside
        self.seen[name][choice] = ratio * self.seen[name].get(other.choice, 1.0)
        expected = one.estimate * NEAR / other.estimate if other.estimate else math.inf
        nodes = tuple(variant.nodes[k].node for k, _ in pairs)
        if one.choice != other.choice:
            self.findings.append(Finding(nodes, other.short, one.short, expected, ratio))


def believed(seen: Ratios) -> Seen:
    """What was seen, but that who is not clearly faster than the first counts as slower."""
    return {
        name: {
            choice: ratio if k == 0 or ratio < CLEARLY else max(ratio, 1 / CLEARLY)
            for k, (choice, ratio) in enumerate(its.items())
        }
        for name, its in seen.items()
    }


# Compiling ---------------------------------------------------------------------------------------


def compile_tuned(
    model: object,
    output: str | os.PathLike,
    options: Options,
    seconds: float,
    *,
    dump_ir: str | os.PathLike | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    besides: Besides = (),
) -> tuple[Report, Tuning]:
    """`compile_model` with what is the fastest on this machine, looked for in about so many seconds after a
    first compilation, on generated inputs. Raises CompileError where the library cannot be run on them."""
    targets = find_targets(options.target)
    if len(targets) > 1:
        raise UsageError("a library for several targets cannot be tuned", "tune one for each")
    if not runs_here(targets[0]):
        raise CompileError(f"this machine runs no code for {targets[0].name}", "tune on one that does")
    compiler, told = compiler_hash(), progress or (lambda stage: None)
    with tempfile.TemporaryDirectory(prefix="onnxc-tune-") as work:
        folder, plain = Path(work), options.with_(header=None, weights_file=None, soname=None)
        numbers = itertools.count()

        def build(tuned: Tuned) -> Path:
            path = folder / f"{next(numbers)}.so"
            stage = lambda name: told(f"{name}, to measure")  # noqa: E731
            compile_model(model, path, plain, jobs=jobs, progress=stage, tuned=tuned, besides=besides)
            return path

        try:
            search = Search(
                build, _Bench(model, folder, plain, told), seconds, kept_ratios(targets[0], compiler)
            )
            found = search.found()
        except RunError as error:
            raise CompileError(f"it cannot be tuned: {error.reason}", "compile without --tune") from None
    if found.kept:
        keep_ratios(targets[0], compiler, found.tuned.ratios)
    how: dict[str, Any] = {"dump_ir": dump_ir, "jobs": jobs, "progress": progress, "besides": besides}
    report = compile_model(model, output, options, tuned=found.tuned, **how)
    report.tuning = found.as_json()
    return report, found


class _Bench:
    """The libraries' own process, with inputs that are made for the first of them."""

    def __init__(self, model: object, folder: Path, options: Options, told: Progress):
        self.model, self.folder, self.options, self.told = model, folder, options, told
        self.turns: Turns | None = None

    def steps(self, libraries: Sequence[Path], seconds: float) -> list[list[Timing]]:
        return self._of(libraries[0]).steps(libraries, seconds)

    def runs(self, libraries: Sequence[Path], seconds: float) -> list[float]:
        return self._of(libraries[0]).runs(libraries, seconds)

    def _of(self, library: Path) -> Turns:
        self.told("measure")
        if self.turns is None:
            options = self.options
            with load(library, threads=1) as opened:
                expected = {} if options.operators else expected_inputs(self.model, opened.inputs, options)
                made = runnable_inputs(opened, {}, options.shapes, expected)  # dims are compiled in
            self.turns = Turns(made.feeds, self.folder)
        return self.turns


# What is kept ------------------------------------------------------------------------------------


def kept_ratios(target: Target, compiler: str) -> Ratios:
    """What this compiler's searches found of code for the target on this machine."""
    path = kept_path("tuned", target.name)
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path is not None else {}
        if found["made_by"] != _made_by(target, compiler):
            return {}
        return {str(n): {str(c): float(r) for c, r in its.items()} for n, its in found["nodes"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def keep_ratios(target: Target, compiler: str, ratios: Ratios) -> None:
    """Adds to what is kept; what another compiler made of it, or other facts, is forgotten."""
    path = kept_path("tuned", target.name)
    if path is None:
        return
    nodes = {**kept_ratios(target, compiler), **ratios}
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(
            json.dumps({"made_by": _made_by(target, compiler), "nodes": nodes}), encoding="utf-8"
        )
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)


def _made_by(target: Target, compiler: str) -> list[object]:
    return [compiler, sorted(target.features), repr(target.facts)]
