"""The onnx package's backend suite, compiled and run:

    python tests/support/suite.py [--json FILE] [--jobs N] [part of a name...]

Each case runs in a child process, so that a crash is a result like any other, and again in memory full of
garbage, which may change no bit. Prints the count of each outcome and why each case that does not pass does
not.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import multiprocessing.connection
import os
import pickle
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case.test_case import TestCase

sys.path.append(str(Path(__file__).parents[1]))
from support import poison
from support.shared import kept

KINDS = ("node", "pytorch-converted", "pytorch-operator", "simple", "real")
SECONDS = 120  # for one case
NOT_YET = Path(__file__).parents[1] / "conformance" / "not_yet.txt"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def all_cases() -> dict[str, TestCase]:
    """Every case of the suite by name, `kind/test_name`."""
    return {name: case for kind in KINDS for name, case in cases_of(kind).items()}


@functools.cache
def cases_of(kind: str) -> dict[str, TestCase]:
    """Those of a kind; read once, children inherit them. Computing what node cases expect takes ten seconds,
    once for a version where it is installed: others are files there."""

    def save(folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (folder / "cases").write_bytes(pickle.dumps(loader.load_model_tests(kind=kind)))

    place = zlib.crc32(os.fsencode(onnx.__file__))
    name = f"cases-{kind}-{onnx.__version__}-{np.__version__}-{place:x}"
    cases = pickle.loads((kept(name, save) / "cases").read_bytes())
    return {f"{kind}/{case.name}": case for case in cases}


def case_of(name: str) -> TestCase:
    """The case of a name."""
    return cases_of(name.partition("/")[0])[name]


def listed() -> list[tuple[str, str]]:
    """(name, reason) of each line of `not_yet.txt`."""
    lines = NOT_YET.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if not line.startswith("#")]


def run_case(case: TestCase) -> str:
    """Why a case does not pass; nothing when it does. Networks, whose code other tests share, and one of four
    others are compiled as models usually are, the rest fast, which takes LLVM half of the time."""
    from onnxc.loading.backend import CompiledModel

    optimize = "full" if case.kind == "real" or zlib.crc32(case.name.encode()) % 4 == 0 else "fast"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model_of(case)
        compiled = CompiledModel(model, jobs=0, optimize=optimize)
        for inputs, expected in data_sets(case, model):
            found = compiled.run(inputs)
            for k, (e, f) in enumerate(zip(expected, found, strict=True)):
                problem = difference(e, f, case.rtol, case.atol)
                if problem:
                    return f"output {k}: {problem}"
            problem = poison.unlike_poisoned(compiled.path, compiled.feeds(inputs))
            if problem:
                return problem
    return ""


def model_of(case: TestCase) -> onnx.ModelProto:
    if case.model is not None:
        return case.model
    folder = case.model_dir
    return onnx.load(_light(case, ".onnx") if folder is None else Path(folder) / "model.onnx")


def _light(case, ending: str) -> Path:
    return LIGHT / f"light_{case.name.removeprefix('test_')}{ending}"


def data_sets(case: TestCase, model: onnx.ModelProto) -> Iterator[tuple[list, list]]:
    """(inputs, expected outputs) of each data set."""
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield [as_value(v) for v in inputs], [as_value(v) for v in outputs]
    elif case.model_dir is None:
        from onnx.backend.test.runner import Runner

        known = {i.name for i in model.graph.initializer}
        inputs = [
            Runner.generate_dummy_data(i, seed=0, name=case.model_name, random=False)
            for i in model.graph.input
            if i.name not in known
        ]
        yield inputs, [_stored(_light(case, "_output_0.pb"), model.graph.output[0].type)]
    else:
        for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
            inputs = [
                _stored(folder / f"input_{k}.pb", i.type)
                for k, i in enumerate(model.graph.input)
                if (folder / f"input_{k}.pb").exists()
            ]
            yield (
                inputs,
                [_stored(folder / f"output_{k}.pb", o.type) for k, o in enumerate(model.graph.output)],
            )


def _stored(path: Path, type_: onnx.TypeProto) -> object:
    proto, read = {
        "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
    }.get(type_.WhichOneof("value"), (onnx.TensorProto, numpy_helper.to_array))
    return read(proto.FromString(path.read_bytes()))


def as_value(data: object) -> object:
    """What a data set holds as an array, or a list of them for a sequence."""
    match data:
        case onnx.TensorProto():
            return numpy_helper.to_array(data)
        case list() | tuple():
            return [as_value(part) for part in data]
    return data if data is None else np.asarray(data)


def difference(expected: object, found: object, rtol: float, atol: float) -> str:
    """Why found is not what was expected, or nothing."""
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{len(expected)} values expected"
        pairs = zip(expected, found, strict=True)
        return next(filter(None, (difference(e, f, rtol, atol) for e, f in pairs)), "")
    if expected is None or found is None:
        return "" if expected is found else "nothing and something"
    expected, found = np.asarray(expected), np.asarray(found)
    if expected.dtype.kind in "US":
        expected = expected.astype(object)
    if expected.dtype != found.dtype:
        return f"type {found.dtype} instead of {expected.dtype}"
    if expected.shape != found.shape:
        return f"shape {list(found.shape)} instead of {list(expected.shape)}"
    if expected.dtype.kind in "OSU":
        return "" if np.array_equal(expected, found) else "strings differ"
    rtol = max(rtol, 2**-6) if expected.dtype.name == "bfloat16" else rtol  # as the suite has it
    exact = np.complex128 if expected.dtype.kind == "c" else np.float64
    expected, found = expected.astype(exact), found.astype(exact)
    if np.allclose(expected, found, rtol, atol, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"values differ by {np.nanmax(np.abs(expected - found), initial=0):.3g}"


# Child processes ---------------------------------------------------------------------------------


def _serve(connection) -> None:
    """A child: runs the cases whose names arrive, and answers with their outcome."""
    from onnxc.errors import OnnxcError

    while True:
        name = connection.recv()
        try:
            outcome = run_case(case_of(name))
        except OnnxcError as error:
            outcome = f"{type(error).__name__}: {error}"
        except Exception as error:
            outcome = f"internal {type(error).__name__}: {error}"
        connection.send(outcome)


class _Child:
    def __init__(self) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


_idle: list[_Child] = []  # what one has imported and emitted serves the next call too


def run_suite(names: list[str], jobs: int, report=lambda name, outcome: None) -> dict[str, str]:
    """The outcome of each case: empty where it passes, else the reason."""
    outcomes: dict[str, str] = {}
    waiting = list(reversed(names))
    for kind in {name.partition("/")[0] for name in names}:
        cases_of(kind)
    children = [_idle.pop() if _idle else _Child() for _ in range(min(jobs, len(names)))]
    busy: dict[int, str] = {}
    for k, child in enumerate(children):
        busy[k] = waiting.pop()
        child.connection.send(busy[k])
    while busy:
        ready = multiprocessing.connection.wait([children[k].connection for k in busy], SECONDS)
        finished = [k for k in busy if children[k].connection in ready] or list(busy)
        for k in finished:
            try:
                alive = bool(ready)
                outcome = children[k].connection.recv() if alive else f"took more than {SECONDS} seconds"
            except (EOFError, ConnectionResetError):
                children[k].process.join()
                alive = False
                outcome = f"crash: the process ended with {children[k].process.exitcode}"
            name = busy.pop(k)
            outcomes[name] = outcome
            report(name, outcome)
            if not alive:
                children[k].stop()
                children[k] = _Child()
            if waiting:
                busy[k] = waiting.pop()
                children[k].connection.send(busy[k])
    _idle.extend(children)
    return outcomes


def summary(outcomes: dict[str, str]) -> dict[str, object]:
    """The counts, in all and by kind, and the reasons."""
    passed = Counter(name.split("/")[0] for name, outcome in outcomes.items() if not outcome)
    total = Counter(name.split("/")[0] for name in outcomes)
    return {
        "passed": sum(passed.values()),
        "total": len(outcomes),
        "crashed": sorted(n for n, o in outcomes.items() if o.startswith("crash")),
        "kinds": {kind: {"passed": passed[kind], "total": total[kind]} for kind in total},
        "failed": {n: o for n, o in sorted(outcomes.items()) if o},
    }


def closing_lines(found: dict[str, object]) -> list[str]:
    """What a summary says, in a line for each kind and one for all."""
    lines = [f"{kind}: {c['passed']} of {c['total']}" for kind, c in found["kinds"].items()]
    failed, crashed = found["total"] - found["passed"], len(found["crashed"])
    return [*lines, f"{found['passed']} passed, {failed} failed, of these {crashed} crashed"]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help="only cases whose names have one of these parts")
    parser.add_argument("--json", type=Path, help="write the outcome of every case there")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    names = [
        name
        for name in sorted(all_cases())
        if not options.parts or any(part in name for part in options.parts)
    ]

    def report(name: str, outcome: str) -> None:
        if outcome:
            print(f"{name}: {outcome[:200]}", flush=True)

    outcomes = run_suite(names, options.jobs, report)
    found = summary(outcomes)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    print(*closing_lines(found), sep="\n")
    return 1 if found["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
