"""Random graphs give what others say they give: as imported, after the passes, and compiled.

The examples are the same in every run. For others, and more, set `max_examples` and `derandomize` here.
"""

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.differential import (
    library_differences,
    pass_differences,
    pinned_differences,
    selection_differences,
    state_differences,
)
from support.random_control import EVERY
from support.random_graphs import random_case

from onnxc.passes.pipeline import passes
from onnxc.target import LEVELS, TARGETS, runs_here

PASSES = len(passes(TARGETS["sapphirerapids"]))
SAME = {
    "derandomize": True,
    "deadline": None,
    "database": None,
    "phases": (Phase.generate, Phase.shrink),
    "suppress_health_check": list(HealthCheck),
}


def seeds():
    """Seeds of graphs; a failing one is small where fewer nodes fail too."""
    return st.tuples(st.sampled_from((4, 8, 12, 20)), st.integers(0, 1 << 32))


def case(most, seed, parts=1):
    return random_case(random.Random(seed), EVERY, most, parts)


@pytest.mark.slow
@settings(max_examples=200, **SAME)
@given(seeds())
def test_graphs_keep_their_meaning_through_the_passes(chosen):
    assert pass_differences(case(*chosen)) == []


@pytest.mark.slow
@settings(max_examples=60, **SAME)
@given(seeds(), st.lists(st.booleans(), min_size=PASSES, max_size=PASSES))
def test_any_of_the_passes_may_be_left_out(chosen, some):
    assert selection_differences(case(*chosen), some) == []


@pytest.mark.slow
@settings(max_examples=60, **SAME)
@given(seeds())
def test_sizes_that_are_known_change_no_results(chosen):
    assert pinned_differences(case(*chosen)) == []


@pytest.mark.slow
@settings(max_examples=6, **SAME)
@given(seeds())
def test_libraries_compute_what_their_graphs_mean(tmp_path_factory, chosen):
    assert library_differences(case(*chosen, parts=8), tmp_path_factory.mktemp("graph")) == []


@pytest.mark.slow
@settings(max_examples=8, **SAME)
@given(seeds())
def test_states_have_the_same_bits_in_place(tmp_path_factory, chosen):
    assert state_differences(case(*chosen), tmp_path_factory.mktemp("graph")) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", [name for name, t in LEVELS.items() if runs_here(t)])
@settings(max_examples=2, **SAME)
@given(seeds())
def test_every_target_computes_the_same(tmp_path_factory, target, chosen):
    folder = tmp_path_factory.mktemp("graph")
    found = library_differences(case(*chosen, parts=8), folder, target, threads=(2,))
    assert found == []
