"""Every version of every operator, over drawn types, sizes and attributes, after all passes, means what ONNX
Runtime or the onnx package makes of it.

The examples are the same in every run; `ONNXC_DRAWS=N` draws N others of each version."""

from __future__ import annotations

import os
import random
import warnings

import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import defs
from support import drawn
from support.drawn import ML, Draw, Unfit, expected, versions
from support.drawn_libraries import DRAWS

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS

MORE = int(os.environ.get("ONNXC_DRAWS", 0))
EXAMPLES = MORE or 2
OPERATORS = sorted({(s.domain, s.name) for s in defs.get_all_schemas_with_history() if s.domain in ("", ML)})
#: What nobody can be compared with here, and why, or where it is tested instead.
ELSEWHERE = {
    **dict.fromkeys(
        [("", "GroupNormalization", 18), ("", "Scatter", 11), ("", "Upsample", 10)]
        + [(ML, "TreeEnsembleClassifier", 5), (ML, "TreeEnsembleRegressor", 5)],
        "deprecated: the operator set no longer has the operator, which is refused",
    ),
    ("", "ImageDecoder", 20): "decodes files: tests/models/test_images.py",
    ("", "Tile", 1): "neither has it: test_tile_of_operator_set_1",
    ("", "Upsample", 1): "neither has it: test_upsample_of_operator_set_1",
    **dict.fromkeys([(ML, "CastMap", 1), (ML, "DictVectorizer", 1)], "takes maps: tests/models/test_maps.py"),
}
TARGET = TARGETS["sapphirerapids"]  # multiplies in most types


def problem(case: drawn.Case) -> str | None:
    """Where the results are not those of others; nothing where they are, None where there are no others."""
    theirs = expected(case)
    if theirs is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = optimise(import_model(case.model).graph, TARGET)
        found = run_graph(graph, list(case.feeds.values()))
    problems = (drawn.unlike(case, other, mine) for mine, other in zip(found, theirs, strict=True))
    return next(filter(None, problems), "")


def held(source: random.Random, schema: defs.OpSchema) -> bool:
    """Whether one of a few draws finds somebody to compare with; fails where he says something else."""
    for _ in range(4):
        d = Draw(source, schema)
        try:
            DRAWS[schema.name](d)
        except Unfit:
            continue
        case = d.case()
        found = problem(case)
        assert not found, f"{found}\n{onnx.printer.to_text(case.model)}"
        if found is not None:
            return True
    return False


@pytest.mark.parametrize(("domain", "operator"), OPERATORS, ids=[name for _, name in OPERATORS])
def test_every_version_of_an_operator_means_what_others_say(domain, operator):
    reached: set[int] = set()
    wanted = [s for s in versions(domain, operator) if (domain, operator, s.since_version) not in ELSEWHERE]

    @settings(
        max_examples=EXAMPLES,
        derandomize=not MORE,
        deadline=None,
        database=None,
        phases=(Phase.generate, *([Phase.shrink] if MORE else [])),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def holds(source: random.Random) -> None:
        for schema in wanted:
            if held(source, schema):
                reached.add(schema.since_version)

    holds()
    assert {s.since_version for s in wanted} - reached == set()
