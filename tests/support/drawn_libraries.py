"""Drawn cases of many operators compiled into few libraries, held against the interpreter, which
`test_drawn.py` holds against others.

`python tests/support/drawn_libraries.py [--draws N] [--seed S] [operator...]` compiles N draws of each
version of each operator of ai.onnx and ai.onnx.ml and of each operator of com.microsoft, runs them with one
thread and with two, and prints what differs."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import defs

sys.path.append(str(Path(__file__).parents[1]))
from support import (
    contrib,
    drawn,
    drawn_contrib,
    drawn_elementwise,
    drawn_movement,
    drawn_others,
    drawn_sums,
    drawn_windows,
)
from support.side_by_side import feeds_of, opsets, side_by_side

from onnxc.driver import compile_model
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph
from onnxc.loading.loader import load

DRAWS = {
    **drawn_elementwise.DRAWS,
    **drawn_movement.DRAWS,
    **drawn_sums.DRAWS,
    **drawn_windows.DRAWS,
    **drawn_others.DRAWS,
}
TOGETHER = 40  # cases in one library


class Held(NamedTuple):
    """A case with what the interpreter makes of it."""

    name: str
    case: drawn.Case
    expected: list


def cases(seed: int, draws: int, operators: Sequence[str] = ()) -> Iterator[Held]:
    """So many draws of each version of each operator, or of those named; what the interpreter refuses is
    none."""
    schemas = [s for s in defs.get_all_schemas_with_history() if s.domain in ("", drawn.ML)]
    for schema in sorted(schemas, key=lambda s: (s.domain, s.name, s.since_version)):
        if schema.name in DRAWS and schema.name in (operators or DRAWS):
            for k in range(draws):
                yield from _held(f"{schema.name}-{schema.since_version}", _of_schema(schema, seed, k))
    for name in sorted(drawn_contrib.DRAWS):
        if name in (operators or drawn_contrib.DRAWS):
            for k in range(draws):
                yield from _held(name, _of_contrib(name, seed, k))


def _of_schema(schema: defs.OpSchema, seed: int, k: int) -> drawn.Case | None:
    d = drawn.Draw(random.Random(f"{seed} {schema.name} {schema.since_version} {k}"), schema)
    try:
        DRAWS[schema.name](d)
        return d.case()
    except drawn.Unfit:
        return None


def _of_contrib(name: str, seed: int, k: int) -> drawn.Case:
    source = random.Random(f"{seed} {name} {k}")
    case = drawn_contrib.DRAWS[name](np.random.default_rng(source.randrange(1 << 30)))
    model, feeds = contrib.as_model([case])
    return drawn.Case(model, feeds, case.tolerance, case.tolerance, True)


def _held(name: str, case: drawn.Case | None) -> Iterator[Held]:
    if case is not None:
        try:
            expected = run_graph(import_model(case.model).graph, list(case.feeds.values()))
        except Exception:  # every way to refuse counts as one
            return
        yield Held(name, case, expected)


def together(held: Iterator[Held]) -> list[list[Held]]:
    """Those of the same operator sets, as many as one library takes."""
    found: dict[tuple, list[Held]] = defaultdict(list)
    for one in held:
        found[opsets(one.case.model)].append(one)
    return [same[k : k + TOGETHER] for same in found.values() for k in range(0, len(same), TOGETHER)]


def problems(several: Sequence[Held]) -> list[str]:
    """How cases compiled into one library differ; into two, where one cannot be made or run."""
    try:
        return _problems(several)
    except Exception as error:
        if len(several) == 1:
            return [_told(several[0], f"{type(error).__name__}: {error}")]
        half = len(several) // 2
        return problems(several[:half]) + problems(several[half:])


def _problems(several: Sequence[Held]) -> list[str]:
    whole = side_by_side([one.case.model for one in several])
    feeds = feeds_of(whole, [(one.case.model, list(one.case.feeds.values())) for one in several])
    told = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        compile_model(whole, path, jobs=0)
        for threads in (1, 2):
            with load(path, threads=threads) as model:
                results = iter(model.run(None, feeds))
            for one in several:
                pairs = [(expected, next(results)) for expected in one.expected]
                unlike = next(filter(None, (drawn.unlike(one.case, *pair) for pair in pairs)), "")
                told += [_told(one, f"{threads} threads: {unlike}")] if unlike else []
    return told


def _told(one: Held, problem: str) -> str:
    return f"{one.name}: {problem}\n{onnx.printer.to_text(one.case.model)}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("operators", nargs="*", help="only these")
    parser.add_argument("--draws", type=int, default=1, help="of each version of each operator")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    count = differ = 0
    for several in together(cases(options.seed, options.draws, options.operators)):
        told = problems(several)
        print(*told, sep="\n", end="\n" if told else "", flush=True)
        count, differ = count + len(several), differ + len(told)
        print(f"{count} compiled, {differ} differ so far", file=sys.stderr, flush=True)
    print(f"{count - differ} of {count} drawn cases agree", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
