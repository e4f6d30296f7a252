"""What it costs to store numbers in another type: the time of common operators over that in float32.

    python benchmarks/storage_types.py [--target x86-64-v3] [--rounds 40] [--side 56] [WORD ...]

Each operator is compiled as a model of its own in every form in which models store its numbers
(tests/support/storage_models.py) and timed in one thread, alternating with float32. Operators or forms
that hold one of the words run. The goal is at most 1.5 (float64: 2.5).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from timing import by_turns

import onnxc

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import storage_models as storage

BLOCK = 1e6  # nanoseconds of a turn
GOALS = {"float64": 2.5}
GOAL = 1.5


def compiled(operator: str, form: str, options: argparse.Namespace, folder: str) -> Callable[[], object]:
    """What runs a model as a library on its inputs."""
    proto = storage.model(operator, form, side=options.side)
    path = Path(folder) / f"{operator}_{form}.so"
    onnxc.compile(proto, path, target=options.target, threads=1)
    bound = onnxc.load(path).bind()
    for name, data in storage.feeds(proto).items():
        bound.inputs[name][...] = data
    return bound


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", help="run the operators or forms that hold one of these")
    parser.add_argument("--target", default="native")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--side", type=int, default=56, help="of images; matrices have 4 times as many rows")
    options = parser.parse_args()
    print(f"{'operator':16} {'form':12} {'µs':>9} {'/ float32':>9}")
    missed = 0
    for operator in storage.OPERATORS:
        forms = storage.forms(operator)
        if options.words and not any(word in operator for word in options.words):
            forms = [f for f in forms if f == "float32" or any(word in f for word in options.words)]
        if len(forms) < 2:
            continue
        with tempfile.TemporaryDirectory() as folder:
            calls = [compiled(operator, form, options, folder) for form in forms]
            times = dict(zip(forms, by_turns(calls, block=BLOCK, rounds=options.rounds).min(axis=1).tolist()))
        for form, spent in times.items():
            ratio = spent / times["float32"]
            over = ratio > GOALS.get(form, GOAL)
            missed += over
            print(f"{operator:16} {form:12} {spent / 1e3:9.1f} {ratio:9.2f}{' !' * over}", flush=True)
    print(f"{missed} over the goal" if missed else "all within the goal")


if __name__ == "__main__":
    main()
