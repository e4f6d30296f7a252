"""Which sizes of a state may be others in its next value."""

import numpy as np
import pytest
from support.small_models import parsed

import onnxc
from onnxc.errors import ModelError, RunError
from onnxc.frontend.importer import import_model
from onnxc.options import Options

#: What is kept of three columns is as many as there are places.
PICKED = (
    """m (float[INPUT] s, int64[k] places) => (float[n, m] next) { next = Gather <axis = 1> (s, places) }"""
)
KEPT = {"3, 3": "float32[3, 3]", "4, 3": "float32[4, 3]", "n, 3": "float32[n, 3]"}


def with_states(text, **states):
    graph = import_model(parsed(text), Options(states=states)).graph
    (old, new) = graph.states[0]
    return graph.inputs[old].type, graph.outputs[new].type


@pytest.mark.parametrize("sizes", KEPT)
def test_a_known_size_stays_where_it_is(sizes):
    before, after = with_states(PICKED.replace("INPUT", sizes), s="next")
    assert str(before) == str(after) == KEPT[sizes]


def test_an_axis_grows_beside_one_of_a_known_size():
    text = """m (float[2, p, 3] s, float[2, n, 3] x, int64[k] places) => (float[a, b, c] next) {
        both = Concat <axis = 1> (s, x) next = Gather <axis = 2> (both, places) }"""
    before, after = with_states(text, s="next")
    assert [str(before), str(after)] == ["float32[p, 2, 3]", "float32[n + p, 2, 3]"]


def test_a_size_that_is_never_the_known_one_is_refused():
    text = "m (float[2, 3] s) => (float[a, b] next) { next = Concat <axis = 0> (s, s) }"
    with pytest.raises(ModelError, match=r"the state 's' = 'next': .* a size of 2 does not grow to 4"):
        with_states(text, s="next")


def test_the_run_compares_what_it_makes_of_a_known_size(tmp_path):
    path = onnxc.compile(parsed(PICKED.replace("INPUT", "2, 3")), tmp_path / "m.so", states={"s": "next"})
    s = np.arange(6, dtype=np.float32).reshape(2, 3)
    steps = onnxc.load(path).stateful(initial={"s": s})
    steps({"places": np.array([2, 0, 1])})
    assert steps.states["s"].tolist() == [[2, 0, 1], [5, 3, 4]]
    with pytest.raises(RunError, match=r"next .*: dimensions do not match: expected 3, got 2"):
        steps({"places": np.array([2, 0])})
    steps.close()
