"""Every operator's time in each type that its specification allows, over that in float32, in one thread.

    python benchmarks/operator_types.py [--libraries FOLDER] [--target x86-64-v3] [--part 1/4] [--compile]
        [--types float16,int8] [WORD ...]

The nodes are those of `operator_cases.py` of which a float32 is an operand: what has its type has the other
one. They run by turns on inputs and results that stay where they are, and the least of many runs counts;
operators whose name holds one of the words, or that part of all. `--compile` only makes the libraries, which
are kept where a folder is named. The goal is at most 1.5, of types of 8 bytes 2.5.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.defs
from operator_cases import CASES, OPSETS, RANDOM, Case, Input, Stored
from timing import by_turns

import onnxc

TYPES = ("float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32", "int64")
BLOCK = 2e5  # nanoseconds of a turn
GOAL, GOAL_OF_8_BYTES = 1.5, 2.5
NAMES = {"float32": "float", "float64": "double"}  # in schemas


def dtype_of(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def retyped(case: Case, name: str) -> Case | None:
    """The node with operands of another type; None where it has no such form."""
    try:
        schema = onnx.defs.get_schema(case.op, case.opset or OPSETS[case.domain], case.domain)
    except onnx.defs.SchemaError:
        return None
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    wanted = f"tensor({NAMES.get(name, name)})"
    inputs: list[Input] = []
    changed = set()
    for k, (given, array) in enumerate(zip(case.inputs, case.arrays())):
        parameter = schema.inputs[min(k, len(schema.inputs) - 1)].type_str
        if array is None or array.dtype != np.float32 or wanted not in allowed.get(parameter, ()):
            inputs.append(given)
            continue
        changed.add(k)
        inputs.append(_converted(given, name))
    first = next((k for k, a in enumerate(case.arrays()) if a is not None and a.dtype == np.float32), None)
    return replace(case, inputs=inputs) if first in changed else None


def _converted(given: Input, name: str) -> Input:
    recipe = given.recipe if isinstance(given, Stored) else given
    assert recipe is not None
    dtype = dtype_of(name)

    def made(rng: np.random.Generator) -> np.ndarray:
        array = np.asarray(recipe(rng))
        if name in ("float16", "bfloat16", "float64"):
            return np.clip(array, -6e4, 6e4).astype(dtype)
        if array.size == 1 and array == np.rint(array):  # an exponent, a step
            return array.astype(dtype)
        low = 0 if name == "uint8" else -100
        return np.clip(np.rint(array * 30), low, 100).astype(dtype)

    return Stored(made) if isinstance(given, Stored) else made


def library(case: Case, name: str, folder: Path, target: str) -> Path:
    """The node as a library."""
    path = folder / f"{case.domain}{case.name.replace(' ', '_')}.{name}.{target}.so"
    if not path.exists():
        onnxc.compile(case.model(), path, target=target, threads=1)
    return path


def loaded(case: Case, path: Path) -> Callable[[], object]:
    """What runs a node's library on its inputs."""
    model = onnxc.load(path)
    try:
        bound = model.bind()
        for name, array in case.feeds().items():
            bound.inputs[name][...] = array
        return bound
    except onnxc.OnnxcError:  # sizes that only the run knows
        feeds = case.feeds()
        return lambda: model.run(None, feeds)


def timed(forms: dict[str, Case], options: argparse.Namespace) -> dict[str, float]:
    """The time of each form, none where they are compiled alone."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.libraries or Path(temporary)
        folder.mkdir(exist_ok=True)
        paths = {name: library(case, name, folder, options.target) for name, case in forms.items()}
        if options.compile:
            return {}
        calls = [loaded(forms[name], path) for name, path in paths.items()]
        return dict(zip(paths, by_turns(calls, block=BLOCK, rounds=options.rounds).min(axis=1).tolist()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--target", default="native")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    number, parts = map(int, options.part.split("/"))
    chosen = [
        c for c in CASES if c not in RANDOM and (not options.words or any(w in c.name for w in options.words))
    ]
    missed = measured = 0
    for case in chosen[number - 1 :: parts]:
        forms = {name: form for name in options.types.split(",") if (form := retyped(case, name))}
        times = {}
        if forms:
            try:
                times = timed({"float32": case, **forms}, options)
            except onnxc.OnnxcError as error:
                print(f"{case.name}: {str(error)[:80]}", flush=True)
        if not times:
            continue
        line = f"{case.name:28} {times['float32'] / 1e3:9.1f}"
        for name, spent in times.items():
            ratio = spent / times["float32"]
            goal = GOAL_OF_8_BYTES if dtype_of(name).itemsize == 8 else GOAL
            over = ratio > goal
            missed, measured = missed + over, measured + (name != "float32")
            line += f"  {name} {ratio:.2f}{'!' * over}" if name != "float32" else ""
        print(line, flush=True)
    print(f"{missed} of {measured} over the goal")


if __name__ == "__main__":
    main()
