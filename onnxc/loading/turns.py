"""Libraries of one model, run in turns in a process of their own, which they may take along when they crash.

    request (JSON on standard input)  {"libraries": [paths], "inputs": a pickle of {name: value}, "seconds"}
    answer (JSON on standard output)  {"steps": of each library [[node, parts, expected ns, ns], ...]},
    with "whole" in the request       {"seconds": of each library the least of its runs},  or {"error"}

One thread; of every step and run the least counts, and all libraries are timed at the same moments.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import OnnxcError, RunError, one_line
from .loader import Model, load
from .timing import Timing

VISIT_SECONDS = 0.02  # of a library's turn
LEAST_RUNS = 3  # of it: the first brings weights back into the caches
PATIENCE = 60.0  # seconds that a process may take besides


class Turns:
    """The libraries' side of it: inputs that are kept in a folder, and questions to processes."""

    def __init__(self, feeds: Mapping[str, object], folder: Path):
        self.inputs = folder / "inputs.pickle"
        self.inputs.write_bytes(pickle.dumps(dict(feeds)))

    def steps(self, libraries: Sequence[Path], seconds: float) -> list[list[Timing]]:
        """What each step of each library takes. Raises RunError where one cannot be run."""
        return [[Timing(*t) for t in its] for its in self._ask(libraries, seconds)["steps"]]

    def runs(self, libraries: Sequence[Path], seconds: float) -> list[float]:
        """The seconds of a run of each library."""
        return [float(s) for s in self._ask(libraries, seconds, whole=True)["seconds"]]

    def _ask(self, libraries: Sequence[Path], seconds: float, **more: object) -> dict[str, Any]:
        request = {"libraries": [str(path) for path in libraries], "inputs": str(self.inputs), **more}
        with tempfile.TemporaryFile() as told:
            try:
                done = subprocess.run(
                    [sys.executable, "-P", "-m", __name__],
                    input=json.dumps({**request, "seconds": seconds}).encode(),
                    stdout=subprocess.PIPE,
                    stderr=told,
                    timeout=4 * seconds + PATIENCE,
                )
                answer = json.loads(done.stdout)
            except subprocess.TimeoutExpired:
                answer = {"error": "it takes too long"}
            except ValueError:
                answer = {"error": f"the process ended with status {done.returncode}"}
        if "error" in answer:
            raise RunError(answer["error"])
        return answer


def serve(request: Mapping[str, Any]) -> dict[str, object]:
    feeds = pickle.loads(Path(request["inputs"]).read_bytes())
    models = [load(path, threads=1) for path in request["libraries"]]
    if request.get("whole"):
        return {"seconds": in_turns([_run(model, feeds) for model in models], request["seconds"], min)}
    found = in_turns([_profile(model, feeds) for model in models], request["seconds"], _least)
    return {"steps": [[(t.node, t.parts, t.estimated_ns, t.ns) for t in its] for its in found]}


def in_turns(runs: Sequence[Callable[[], Any]], seconds: float, least: Callable[[Any, Any], Any]) -> list:
    """What each of some runs tells, the least of all that it told, after as many turns as there is time
    for; two at least."""
    best: list[Any] = [None] * len(runs)
    until, turns = time.perf_counter() + seconds, 0
    while turns < 2 or time.perf_counter() < until:
        for k, run in enumerate(runs):
            began, count = time.perf_counter(), 0
            while count < LEAST_RUNS or time.perf_counter() < began + VISIT_SECONDS:
                found, count = run(), count + 1
                best[k] = found if best[k] is None else least(best[k], found)
        turns += 1
    return best


def _run(model: Model, feeds: Mapping[str, object]) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        model.run(None, feeds)
        return time.perf_counter() - began

    return run


def _profile(model: Model, feeds: Mapping[str, object]) -> Callable[[], list[Timing]]:
    return lambda: model.profile(feeds, 1)


def _least(before: list[Timing], now: list[Timing]) -> list[Timing]:
    """Of each step the shorter; where a run took other steps, its own."""
    if [(t.node, t.parts) for t in before] != [(t.node, t.parts) for t in now]:
        return now
    return [min(pair, key=lambda t: t.ns) for pair in zip(before, now)]


def main() -> None:
    """Answers one request."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library's operators print
    try:
        answer = serve(json.load(sys.stdin))
    except OnnxcError as error:
        answer = {"error": one_line(str(error), 300)}
    json.dump(answer, answers)
    answers.flush()


if __name__ == "__main__":
    main()
