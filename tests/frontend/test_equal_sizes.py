"""Which sizes of inputs are one, by what the nodes of every run need."""

import numpy as np
import pytest
from support.small_models import parsed

import onnxc
from onnxc.diagnostics import ModelErrors
from onnxc.errors import RunError
from onnxc.frontend.importer import import_model
from onnxc.ir import dims
from onnxc.options import DEFAULTS, Options


def shapes(inputs, nodes, options=DEFAULTS):
    """The shapes of the inputs, as text, of a model with the result y."""
    graph = import_model(parsed(f"m ({inputs}) => (float y) {{ {nodes} }}"), options).graph
    return [", ".join(map(str, value.shape)) for value in graph.inputs]


def test_what_is_joined_agrees_along_the_other_axes():
    joined = shapes("float[n, s, 3] x, float[m, t, 4] z", "y = Concat <axis = 2> (x, z)")
    assert joined == ["n, s, 3", "n, s, 4"]


def test_sizes_without_a_name_too():
    assert shapes("float[?, 3] x, float[?, 4] z", "y = Concat <axis = 1> (x, z)") == ["x_0, 3", "x_0, 4"]


def test_a_name_is_that_of_one_that_has_it():
    model = parsed("m (float[?, 3] x, float[n, 4] z) => (float y) { y = Concat <axis = 1> (x, z) }")
    assert import_model(model).dim_names == {"x_0": "n"}


def test_a_product_sums_as_much_of_both():
    assert shapes("float[a, k] x, float[j, b] z", "y = MatMul (x, z)") == ["a, k", "k, b"]


def test_what_may_repeat_need_not_be_equal():
    assert shapes("float[n] x, float[m] z", "y = Add (x, z)") == ["n", "m"]


def test_axes_of_one_label_of_an_einsum_are_equal():
    assert shapes("float[b, n, m] x", 'y = Einsum <equation = "bii->bi"> (x)') == ["b, n, n"]
    assert shapes("float[n, 3, k, m] x", 'y = Einsum <equation = "iiji->j"> (x)') == ["3, 3, k, 3"]


def test_what_is_as_long_at_least_is_not_equal():
    nodes = "zero = Constant <value_ints = [0]> () s = Shape (z) y = Slice (x, zero, s)"
    assert shapes("float[n] x, float[m] z", nodes) == ["n", "m"]


def test_sizes_with_the_same_number_more_are_equal():
    nodes = """p = Concat <axis = 0> (x, a) q = Concat <axis = 0> (z, a) y = Concat <axis = 1> (p, q)"""
    assert shapes("float[n, 1] x, float[m, 1] z, float[3, 1] a", nodes) == ["n, 1", "n, 1", "3, 1"]


def test_what_equals_the_same_is_equal():
    """x + w is as long as the longer of both, and both a and b must be as long as that."""
    nodes = """s = Add (x, w) p = Concat <axis = 1> (s, a) q = Concat <axis = 1> (s, b)
               y = Concat <axis = 1> (p, q)"""
    found = shapes("float[n, 1] x, float[m, 1] w, float[k, 1] a, float[j, 1] b", nodes)
    assert found == ["n, 1", "m, 1", "k, 1", "k, 1"]


def test_what_follows_is_found_where_it_takes_what_was_found():
    """With m known to be n, the sum of both has n rows, and so has b."""
    nodes = """p = Concat <axis = 1> (x, w) s = Add (x, w) q = Concat <axis = 1> (s, b)
               y = Concat <axis = 1> (p, q)"""
    assert shapes("float[n, 1] x, float[m, 1] w, float[k, 1] b", nodes) == ["n, 1", "n, 1", "n, 1"]


def test_a_node_that_nobody_needs_tells_nothing():
    nodes = "p = Concat <axis = 1> (x, z) y = Relu (x)"
    assert shapes("float[n, 3] x, float[m, 4] z", nodes) == ["n, 3", "m, 4"]


def test_what_happens_in_a_branch_tells_nothing():
    nodes = """y = If (c) <then_branch = t () => (float a) { a = Concat <axis = 1> (x, z) },
                           else_branch = e () => (float b) { b = Relu (x) }>"""
    assert shapes("bool c, float[n, 3] x, float[m, 3] z", nodes) == ["", "n, 3", "m, 3"]


def test_what_must_be_a_number_is_that():
    """A model that was traced with one image, whatever it calls its batch."""
    nodes = "y = Reshape (x, shape)"
    assert shapes("float[n, 4, 9] x", f"shape = Constant <value_ints = [1, 36]> () {nodes}") == ["1, 4, 9"]
    assert shapes("float[n, 4, m] x", f"shape = Constant <value_ints = [1, 36]> () {nodes}") == ["n, 4, m"]
    assert shapes("float[n, 4, 9] x", f"shape = Constant <value_ints = [-1, 36]> () {nodes}") == ["n, 4, 9"]


def test_an_import_tells_which_node_needs_a_number():
    text = """m (float[n, 1] x, float[m, 1] z, float[?, 1] c) => (float y) {
        p = Concat <axis = 1> (x, z) s = Constant <value_ints = [3, 1]> () r = Reshape (x, s)
        y = Mul (p, c) }"""
    assert import_model(parsed(text)).settled == {}  # whoever reads r
    read = text.replace("Mul (p, c)", "Mul (p, r)")
    assert import_model(parsed(read)).settled == {"n": (3, "r (Reshape)"), "m": (3, "r (Reshape)")}
    assert import_model(parsed(read), Options(dims={"n": 3, "m": 3})).settled == {}


def test_a_number_is_for_all_that_must_equal_it():
    nodes = "p = Concat <axis = 1> (x, z) q = Concat <axis = 1> (z, c) y = Add (p, q)"
    assert shapes("float[n, 1] x, float[m, 1] z, float[3, 1] c", nodes) == ["3, 1", "3, 1", "3, 1"]


def test_no_size_is_a_number_that_it_cannot_be():
    """Ten rows more than x has are as many as z has, which are four."""
    nodes = """p = Concat <axis = 0> (x, ten) q = Concat <axis = 1> (p, z)
               four = Constant <value_ints = [4]> () r = Reshape (z, four)
               all = ReduceSum (q) y = Mul (all, r)"""
    with pytest.raises(ModelErrors, match="'q'"):
        shapes("float[n, 1] x, float[m, 1] z, float[10, 1] ten", nodes)


@pytest.mark.parametrize("told, typical", [({}, 1), ({"n": 7}, 7), ({"m": 9}, 9), ({"n": 9, "m": 7}, 7)])
def test_the_user_s_word_for_one_is_for_both(told, typical):
    text = "m (float[n, 3] x, float[4, m] z) => (float y) { t = Transpose (z) y = Concat <axis = 1> (x, t) }"
    (x, z) = import_model(parsed(text), Options(typical=told)).graph.inputs
    assert dims.typical(x.shape[0]) == dims.typical(z.shape[1]) == typical


def test_what_a_state_tells_of_one_holds_for_both():
    text = """m (float[n, 1] x, float[m, 1] s) => (float y, float[2, 1] next) <float[2, 1] c = {1, 2}> {
        y = Concat <axis = 1> (x, s) next = Add (s, c) }"""
    (x, s) = import_model(parsed(text), Options(states={"s": "next"})).graph.inputs
    assert (x.shape, s.shape) == ((2, 1), (2, 1))


def test_the_run_compares_what_was_taken_for_one():
    session = onnxc.InferenceSession(
        parsed("m (float[n, 1] x, float[m, 2] z) => (float[n, 3] y) { y = Concat <axis = 1> (x, z) }")
    )
    feeds = {"x": np.ones((2, 1), np.float32), "z": np.zeros((2, 2), np.float32)}
    np.testing.assert_array_equal(session.run(None, feeds)[0], [[1, 0, 0]] * 2)
    with pytest.raises(RunError, match="3"):
        session.run(None, {**feeds, "z": np.zeros((3, 2), np.float32)})


def test_the_run_compares_what_was_taken_for_a_number():
    text = """m (float[batch, 4] x) => (float[2, 2] y) {
        s = Constant <value_ints = [2, 2]> () y = Reshape (x, s) }"""
    session = onnxc.InferenceSession(parsed(text))
    np.testing.assert_array_equal(session.run(None, {"x": np.ones((1, 4), np.float32)})[0], np.ones((2, 2)))
    with pytest.raises(RunError, match=r"input 'x': expected shape \[1, 4\], got \[2, 4\]"):
        session.run(None, {"x": np.ones((2, 4), np.float32)})
