"""narrow_weights: weights of products and tables in fewer bits, near to what they were."""

import numpy as np
import pytest

from onnxc.errors import CompileError
from onnxc.ir.graph import Constant, Graph, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract, Conv, Gather
from onnxc.ir.stored import stored_weights
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.gather_stored import gather_stored
from onnxc.passes.narrow_weights import FORMATS, Narrowing, layers, narrow_weights

ERRORS = {"f16": 2**-11, "bf16": 2**-8, "int8": 1 / 250, "int4": 1 / 7.9}


def weights(*shape, name="w"):
    array = np.random.default_rng(list(shape)).standard_normal(shape).astype(np.float32)
    return Value(TensorType("float32", shape), name, Constant.of(array))


def product(w, lhs="mk", rhs="kn", name="x"):
    depth = w.shape[rhs.index("k")]
    return make_node(Contract(lhs, rhs, "mn", "float32"), [Value(TensorType("float32", (2, depth)), name), w])


def graph_of(*nodes):
    inputs = dict.fromkeys(v for n in nodes for v in n.inputs if v.constant is None)
    return Graph(tuple(inputs), tuple(n.outputs[0] for n in nodes), tuple(nodes))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("rhs,shape", [("kn", (96, 70)), ("nk", (70, 96)), ("kn", (100, 50))])
def test_products_read_what_is_stored_in_fewer_bits(format, rhs, shape):
    before = graph_of(product(weights(*shape), rhs=rhs))
    graph = fold_constants(narrow_weights(before, Narrowing(format)))
    (node,) = graph.nodes
    found = stored_weights(node.inputs[1].data)
    divides = shape[rhs.index("k")] % 32 == 0
    assert found.elements.dtype == ("int8" if format == "int4" and not divides else FORMATS[format])
    array, exact = node.inputs[1].data.array, before.nodes[0].inputs[1].data.array
    assert 0 < np.abs(array - exact).max() <= ERRORS[format] * np.abs(exact).max()


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_tables_are_stored_in_fewer_bits(format):
    index = Value(TensorType("int64", (3,)), "i")
    before = graph_of(make_node(Gather("axis"), [weights(80, 64), index]))
    graph = fold_constants(narrow_weights(before, Narrowing(format)))
    (node,) = graph.nodes
    rows = np.array([4, 79, 0])
    (got,), (exact,) = (
        run_node(g.nodes[0], [g.nodes[0].inputs[0].data.array, rows], {}) for g in (graph, before)
    )
    assert 0 < np.abs(got - exact).max() <= ERRORS[format] * np.abs(exact).max() * 1.5
    assert stored_weights(node.inputs[0].data) is not None
    (table, *_) = (n for n in gather_stored(graph).nodes if isinstance(n.op, Gather))
    assert table.inputs[0].dtype == FORMATS[format]


def test_convolutions_read_halves_alone():
    x = Value(TensorType("float32", (1, 24, 5, 5)), "x")
    graph = graph_of(make_node(Conv((1, 1), (0, 0, 0, 0), (1, 1)), [x, weights(32, 24, 3, 3)]))
    assert layers(graph, "int8") == []
    (node,) = fold_constants(narrow_weights(graph, Narrowing("bf16"))).nodes
    assert stored_weights(node.inputs[1].data).elements.dtype == "bfloat16"


def test_layers_that_are_kept_and_small_weights_stay():
    w, small = weights(64, 64, name="w"), weights(8, 8, name="s")
    graph = graph_of(product(w), product(small, name="y"))
    assert [layer.name for layer in layers(graph, "int8")] == ["w"]
    assert narrow_weights(graph, Narrowing("int8", frozenset(["w"]))).nodes[0].inputs[1] is w


@pytest.mark.parametrize(
    ("number", "held"),
    [(1e6, {"bf16", "int8", "int4"}), (3.4e38, {"int8", "int4"}), (np.inf, set()), (np.nan, set())],
)
def test_numbers_that_a_format_does_not_have_stay(number, held):
    w = weights(64, 64)
    w.data.array[0, 0] = number
    assert {format for format in FORMATS if layers(graph_of(product(w)), format)} == held


@pytest.mark.parametrize("format", ["int8", "int4"])
def test_weights_whose_scale_would_be_no_normal_number_are_zero(format):
    w = weights(64, 64)
    w.data.array[...] *= 1e-38
    (layer,) = layers(graph_of(product(w)), format)
    assert not layer.narrowed(format).any()


@pytest.mark.parametrize("terms", [("mk", "kn", "nm"), ("bmk", "bkn", "bmn")])
def test_products_whose_kernels_would_not_read_what_is_stored_stay(terms):
    lhs, rhs, out = terms
    sizes = {"b": 2, "m": 3, "k": 64, "n": 64}
    x, w = Value(TensorType("float32", tuple(sizes[c] for c in lhs)), "x"), weights(*(sizes[c] for c in rhs))
    assert layers(graph_of(make_node(Contract(lhs, rhs, out, "float32"), [x, w])), "int8") == []


def test_what_two_nodes_read_is_stored_once_and_names_are_told_apart():
    w, other = weights(64, 64, name="w"), weights(64, 65, name="w")
    graph = graph_of(product(w), product(w, name="y"), product(other, name="z"))
    assert [layer.name for layer in layers(graph, "int8")] == ["w", "w'"]
    first, second, _ = fold_constants(narrow_weights(graph, Narrowing("int8"))).nodes
    assert first.inputs[1] is second.inputs[1]


def test_the_weights_of_all_layers_can_be_given():
    found = []
    graph = narrow_weights(graph_of(product(weights(64, 64))), Narrowing("int4", given=found.extend))
    assert [v.name for v in graph.inputs] == ["x", "w"] == ["x", *(layer.name for layer in found)]
    assert graph.nodes[0].inputs[1] is graph.inputs[1]


def test_exact_products_and_unknown_formats_are_left_or_refused():
    x = Value(TensorType("float32", (2, 64)), "x")
    exact = make_node(Contract("mk", "kn", "mn", "float32", exact=True), [x, weights(64, 64)])
    assert not layers(graph_of(exact), "int8")
    with pytest.raises(CompileError, match="unknown weights 'int3'; known are f16, bf16, int8, int4"):
        Narrowing("int3")
