"""Mutants of small models: each is refused in a sentence or becomes a library, and what the library does with
valid inputs is a result or a sentence. Nothing hangs, explodes or dies; the seeds are fixed."""

import re

import numpy as np
import onnx
import pytest
from support.bad_nodes import ODD
from support.confined import run_confined
from support.mutants import mutant
from support.small_models import fragile, images, text

import onnxc
from onnxc.commands.checking import check_model
from onnxc.diagnostics import ModelErrors
from onnxc.errors import RunError
from onnxc.inputs import make_inputs

#: What Python says of an error that no check has foreseen.
FOREIGN = re.compile(r"object|NoneType|operand type|out of range for|iterable|has no attribute '|internal")
MODELS = [
    images(),
    text(),
    fragile(),
    *(onnx.ModelProto.FromString(case.content) for case in ODD if len(case.content) < 1 << 16),
]
SIZES = {"batch": 2, "length": 5, "height": 9, "width": 8, "n": 3, "k": 2}


def check(seeds: range, folder) -> None:
    """Prints what is wrong with each mutant, one a line; each must be of one line."""
    for seed in seeds:
        path = folder / f"{seed}.onnx"
        path.write_bytes(mutant(MODELS[seed % len(MODELS)], seed))
        problems = check_model(path)[1]
        for line in ModelErrors(problems, path).lines() if problems else []:
            assert len(line.encode()) <= 1000, seed
            assert not FOREIGN.search(line), f"{seed}: {line}"
        print(seed, "refused" if problems else "accepted")


def compile_and_run(seed: int, folder) -> None:
    library = onnxc.compile(folder / f"{seed}.onnx", folder / f"{seed}.so", target="x86-64-v3")
    model = onnxc.load(library)
    known = {size for port in model.inputs for size in port.shape or () if isinstance(size, str)}
    try:
        inputs = make_inputs(model.inputs, [], {k: v for k, v in SIZES.items() if k in known}, {}, 0)
        for output in model.run(None, inputs.feeds):
            np.array(output)
    except RunError as error:
        print(error)


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The folder of the mutants, and what became of their check."""
    folder = tmp_path_factory.mktemp("mutants")
    return folder, run_confined(lambda: check(range(200), folder), seconds=60)


@pytest.mark.slow
def test_mutants_are_refused_in_a_line_or_accepted(checked):
    _, ended = checked
    assert ended.status == 0, ended.output
    assert len(ended.output.splitlines()) == 200


@pytest.mark.slow
def test_what_is_accepted_compiles_and_runs(checked):
    folder, ended = checked
    accepted = [int(line.split()[0]) for line in ended.output.splitlines() if line.endswith("accepted")]
    assert len(accepted) > 40
    for seed in accepted[:: len(accepted) // 3]:
        ran = run_confined(lambda seed=seed: compile_and_run(seed, folder), seconds=60, memory=4 << 30)
        assert ran.status == 0, f"{seed}: {ran.output}"
