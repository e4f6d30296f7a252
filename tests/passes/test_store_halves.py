"""store_halves: matrices of float32 that are halves are stored as such, and stay what they are."""

import numpy as np
import pytest

from onnxc.ir import dtypes, expr
from onnxc.ir.graph import Constant, Graph, TensorType, Value, make_node
from onnxc.ir.ops import Contract, Gather, Map, Transpose
from onnxc.ir.stored import half_weights
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.store_halves import LEAST, store_halves

DTYPES = pytest.mark.parametrize("dtype", dtypes.HALVES)
X = Value(TensorType("float32", (2, 96)), "x")


def halves(dtype, *shape):
    """Float32 numbers that the type holds, and the other does not hold all of."""
    exact = np.random.default_rng(3).standard_normal(shape) * (1 if dtype == "float16" else 1e-30)
    return exact.astype(dtypes.numpy_dtype(dtype)).astype(np.float32)


def constant(array):
    return Value(TensorType("float32", array.shape), "w", Constant.of(array))


def graph_of(*nodes):
    inputs = dict.fromkeys(v for n in nodes for v in n.inputs if v.constant is None and v.producer is None)
    return Graph(tuple(inputs), nodes[-1].outputs, nodes)


def stored(*nodes):
    return fold_constants(store_halves(graph_of(*nodes)))


def product(w, rhs="kn"):
    return make_node(Contract("mk", rhs, "mn", "float32"), [X, w])


@DTYPES
def test_a_product_reads_what_is_stored_in_16_bits(dtype):
    w = constant(halves(dtype, 96, 70))
    (node,) = stored(product(w)).nodes
    assert half_weights(node.inputs[1].data).dtype == dtype
    assert node.inputs[1].data.array.tobytes() == w.data.array.tobytes()


@DTYPES
def test_so_does_one_behind_a_transpose(dtype):
    turned = make_node(Transpose((1, 0)), [constant(halves(dtype, 70, 96))])
    (node,) = stored(turned, product(turned.outputs[0])).nodes
    assert half_weights(node.inputs[1].data).dtype == dtype


def test_what_both_hold_is_stored_as_what_is_widened_everywhere():
    (node,) = stored(product(constant(np.ones((96, 70), np.float32) / 2))).nodes
    assert half_weights(node.inputs[1].data).dtype == "bfloat16"


def test_a_table_and_a_product_read_one_constant():
    w = constant(halves("bfloat16", 96, 96))
    index = Value(TensorType("int64", (3,)), "i")
    first = make_node(Gather("axis"), [w, index])
    both = product(w, "nk")
    graph = store_halves(Graph((X, index), (*first.outputs, *both.outputs), (first, both)))
    (narrow,) = {id(n.inputs[0].constant) for n in graph.nodes if isinstance(n.op, Map)}
    assert narrow


@pytest.mark.parametrize("place", [0, 5, 96 * 70 - 1])
def test_one_number_of_24_bits_keeps_a_matrix_as_it_is(place):
    array = halves("bfloat16", 96, 70)
    array.reshape(-1)[place] = 1 / 3
    (node,) = store_halves(graph_of(product(constant(array)))).nodes
    assert node.inputs[1].data.array is array


def test_signs_of_zeros_and_infinities_are_kept():
    array = halves("float16", 96, 70)
    array[0, :4] = 0, -0.0, np.inf, -np.inf
    (node,) = stored(product(constant(array))).nodes
    assert node.inputs[1].data.array.tobytes() == array.tobytes()


def test_small_matrices_and_other_ranks_stay():
    for shape in [(8, LEAST // 8 - 1), (2, 64, 96)]:
        y = Value(TensorType("float32", shape), "y")
        add = Map(expr.input_(0, "float32") + expr.input_(1, "float32"))
        graph = graph_of(make_node(add, [y, constant(halves("bfloat16", *shape))]))
        assert len(store_halves(graph).nodes) == 1
