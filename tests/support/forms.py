"""The backend suite's cases in the forms in which a model may come: every size a variable, every input a
constant.

`python tests/support/forms.py [--compile] FORM [part of a name...]` prints which cases differ in a form
(`every`: in each of them), as interpreted after all passes or compiled, many into one library that runs with
one thread and with two. `--libraries 10:20` compiles only those. `--emulated TARGET` compiles for another
processor and runs in an emulator.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.append(str(Path(__file__).parents[1]))
from support import emulated, suite
from support.emulated import Emulator
from support.side_by_side import dimensions, feeds_of, opsets, side_by_side

from onnxc.driver import compile_model
from onnxc.frontend.importer import import_model
from onnxc.ir import interpret
from onnxc.loading.loader import load
from onnxc.options import Options
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS

TARGET = TARGETS["sapphirerapids"]  # multiplies in most types
AS_WRITTEN = "as written"
TOGETHER = 24  # cases in one library


class Case(NamedTuple):
    """A case of the suite in some form."""

    name: str
    model: onnx.ModelProto
    inputs: list
    expected: list


def symbolic(case: Case) -> Case:
    """With a variable of its own in place of every size of every input, the lengths of lists of axes and
    sizes included."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    for value in model.graph.input:
        for axis, dimension in enumerate(dimensions(value.type)):
            dimension.dim_param = f"{value.name}_{axis}"
    return case._replace(model=model)


def constant(case: Case) -> Case:
    """With all tensors among the inputs stored in the model."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    known = {value.name for value in model.graph.initializer}
    given = dict(zip((v.name for v in model.graph.input if v.name not in known), case.inputs))
    stored = {name: data for name, data in given.items() if isinstance(data, np.ndarray)}
    left = [value for value in model.graph.input if value.name not in stored]
    del model.graph.input[:]
    model.graph.input.extend(left)
    model.graph.initializer.extend(numpy_helper.from_array(data, name) for name, data in stored.items())
    return case._replace(model=model, inputs=[given[value.name] for value in left if value.name in given])


def unfolded() -> mock._patch:
    """While it lasts, nothing is computed at compile time but sizes."""
    return mock.patch.multiple(interpret, fold=lambda *_: None)


FORMS: dict[str, Callable[[Case], Case]] = {
    "symbolic": symbolic,
    "constant": constant,
    "constant, not folded": constant,
}


def cases(name: str) -> Iterator[Case]:
    """A case with each of its data sets."""
    case = suite.case_of(name)
    model = suite.model_of(case)
    for inputs, expected in suite.data_sets(case, model):
        yield Case(name, model, list(inputs), list(expected))


def interpreted(name: str, form: str) -> str:
    """Why a case in a form, after all passes, is not what is expected; nothing when it is."""
    folding = nullcontext() if "not" not in form else unfolded()
    try:
        for case in map(FORMS[form], cases(name)):
            with folding:
                graph = optimise(import_model(case.model).graph, TARGET)
            problem = _unlike(case, interpret.run_graph(graph, case.inputs))
            if problem:
                return problem
    except Exception as error:  # every way to fail counts as one
        return f"{type(error).__name__}: {error}"
    return ""


def _unlike(case: Case, found: Sequence) -> str:
    tolerance = suite.case_of(case.name)
    pairs = zip(case.expected, found, strict=True)
    problems = (suite.difference(suite.as_value(e), f, tolerance.rtol, tolerance.atol) for e, f in pairs)
    return next(filter(None, problems), "")


# Compiled ----------------------------------------------------------------------------------------


def together(names: Sequence[str]) -> list[list[Case]]:
    """The first data set of each case, those of the same operator sets together. Gradients name values in
    attributes, which nothing renames: they stay alone, as functions and whole networks do."""
    found: dict[tuple, list[Case]] = defaultdict(list)
    for name in names:
        case = next(cases(name))
        alone = "gradient" in name or name.startswith("real/") or case.model.functions
        found[(name,) if alone else opsets(case.model)].append(case)
    return [same[k : k + TOGETHER] for same in found.values() for k in range(0, len(same), TOGETHER)]


def compiled(several: Sequence[Case], form: str, emulator: Emulator | None = None) -> dict[str, str]:
    """Which of several cases, compiled into one library, differ in a form, and how. emulator: where it runs,
    if not here."""
    changed = list(map(FORMS[form], several)) if form in FORMS else several
    whole = side_by_side([case.model for case in changed])
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        with unfolded() if "not" in form else nullcontext():
            compile_model(whole, path, Options(target=emulator.target.name if emulator else "native"), jobs=0)
        feeds = feeds_of(whole, [(case.model, case.inputs) for case in changed])
        for threads in (1, 2):
            with emulator.load(path, threads) if emulator else load(path, threads=threads) as model:
                found = iter(model.run(None, feeds))
            for case in changed:
                problem = _unlike(case, [next(found) for _ in case.expected])
                problems |= {case.name: f"{threads} threads: {problem}"} if problem else {}
    return problems


def _each(several: Sequence[Case], form: str, emulator: Emulator | None) -> dict[str, str]:
    """The same, halved until what cannot be compiled or run is alone."""
    try:
        return compiled(several, form, emulator)
    except Exception as error:
        if len(several) == 1:
            return {several[0].name: f"{type(error).__name__}: {error}"}
        half = len(several) // 2
        return _each(several[:half], form, emulator) | _each(several[half:], form, emulator)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("form", choices=["every", AS_WRITTEN, *FORMS])
    parser.add_argument("parts", nargs="*", help="only cases whose names have one of these parts")
    parser.add_argument("--compile", action="store_true", help="compile them, many into one library")
    parser.add_argument("--libraries", default=":", metavar="FIRST:LAST", help="only these, counted from 0")
    parser.add_argument("--emulated", metavar="TARGET", help="compile them for it")
    options = parser.parse_args(arguments)
    emulator = emulated.emulator(options.emulated) if options.emulated else None
    names = [n for n in sorted(suite.all_cases()) if not options.parts or any(p in n for p in options.parts)]
    first, last = (int(number) if number else None for number in options.libraries.split(":"))
    for form in FORMS if options.form == "every" else [options.form]:
        held = differ = 0
        compiling = options.compile or emulator is not None
        for several in together(names)[first:last] if compiling else [[name] for name in names]:
            found = (
                _each(several, form, emulator) if compiling else {several[0]: interpreted(several[0], form)}
            )
            problems = {name: problem for name, problem in found.items() if problem}
            for name, problem in problems.items():
                print(f"{name}: {problem[:300]}", flush=True)
            held, differ = held + len(several), differ + len(problems)
            if compiling:
                print(f"{form}: {held - differ} of {held} agree so far", file=sys.stderr, flush=True)
        print(f"{form}: {held - differ} of {held} agree", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
