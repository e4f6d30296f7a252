"""One element at a time: bodies of every length, of which vectors are computed together."""

import numpy as np
import pytest
from support.harness import TARGETS, run_choice
from support.nests import check, numbers, variable

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import loop_nest
from onnxc.codegen.nests.elementwise import SHORT, Elementwise, repeating_nowhere, short_rows
from onnxc.codegen.nests.nest import broadcasting, dense
from onnxc.codegen.nests.operands import vector_lanes
from onnxc.ir import dims, expr
from onnxc.ir.graph import TensorType, Value, make_node
from onnxc.ir.ops import Map
from onnxc.target import TARGETS as KNOWN


def body(name, dtype):
    x = expr.input_(0, dtype)
    return {"short": lambda: x * 3 + 1, "long": lambda: expr.apply("tanh", expr.apply("erf", x))}[name]()


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", ["short", "long"])
def test_rows_of_any_number_of_vectors(target, dtype, length):
    for count in (1, 7, 31, 32, 33, 48, 63, 64, 65, 100):
        x = np.linspace(-5, 5, count, dtype=dtype)
        check(target, Map(body(length, dtype)), x)


SUM = expr.input_(0, "float32") + expr.input_(1, "float32")
IMAGES = [(4, 5), (4, 1), (1, 5), (1, 1)]  # rows and columns of two operands


@pytest.mark.parametrize("second", IMAGES)
def test_rows_are_one_where_the_run_finds_them_gapless(second):
    (n, h, w, h2, w2), _ = variable("d", range(5), 1)
    shapes = (n, 8, h, w), (n, 8, h2, w2)
    whole = tuple(map(dims.broadcast, *shapes))
    views = {k: broadcasting("input", k, TensorType("float32", s), whole) for k, s in enumerate(shapes)}
    out = dense("output", 0, TensorType("float32", whole))
    nest = Elementwise(KNOWN["x86-64-v3"], SUM, whole, out, views)
    given = dict(zip([f"d{k}" for k in range(5)], (2, 4, 5, *second)))
    expected = {(4, 5): [1, 1, 320], (1, 1): [16, 1, 20]}.get(second, [16, 4, 5])
    assert [dims.evaluate(size, given) for size in nest.sizes] == expected


@TARGETS
@pytest.mark.parametrize("second", IMAGES)
def test_operands_of_sizes_of_their_own(target, second):
    check(target, Map(SUM), numbers((2, 3, 4, 5)), numbers((2, 3, *second)), only="symbolic")


def repeating(second, *first):
    """The sum of what may repeat in the run and a second operand."""
    return make_node(Map(SUM), [Value(TensorType("float32", shape)) for shape in (first, second)])


def test_short_rows_are_long_where_the_run_finds_that_no_operand_repeats():
    t, c = dims.symbol("t"), dims.symbol("c")
    condition, whole = repeating_nowhere(repeating((400, 4), 50, t, c), KNOWN["x86-64-v3"])
    assert [v.shape for v in whole.inputs] == [(50, 400, 4), (400, 4)]
    given = {size: dims.evaluate(condition, dict(zip("tc", size))) for size in ((400, 4), (1, 4), (400, 1))}
    assert given == {(400, 4): 1, (1, 4): 0, (400, 1): 0}


@pytest.mark.parametrize("first, second", [((50, 400, 4), (400, 4)), ((50, 1, 4), (400, 4))])
def test_what_is_known_to_repeat_is_one_nest(first, second):
    assert repeating_nowhere(repeating(second, *first), KNOWN["x86-64-v3"]) is None


@pytest.mark.parametrize("columns", [16, 300])
def test_long_rows_and_whole_vectors_are_one_nest(columns):
    node = repeating((400, columns), 50, dims.symbol("t"), dims.symbol("c"))
    assert repeating_nowhere(node, KNOWN["x86-64-v3"]) is None


@TARGETS
@pytest.mark.parametrize("size", [(3, 5), (1, 5), (3, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("second", [(3, 5), (5,), (2, 1, 5)], ids=str)
def test_short_rows_whose_operands_may_repeat(target, second, size):
    node = repeating(second, 2, *map(dims.symbol, "tc"))
    x, y = numbers((2, *size)), numbers(second, seed=1)
    for choice in choices_of(loop_nest, node, target):
        ((got, _),) = run_choice(node, choice, [x, y], target, dict(zip("tc", size)))
        np.testing.assert_array_equal(got, x + y)


def sharing(dtype="float32", rows=None, columns=None):
    """Rows of a variable number and length, and what all rows of an image share; dtype: of the latter."""
    n, m, k = (dims.symbol(name) for name in "nmk")
    rows, columns = rows or m, columns or k
    body = expr.apply("exp", expr.input_(0, "float32")) - expr.input_(1, dtype).cast("float32")
    shapes = TensorType("float32", (n, rows, columns)), TensorType(dtype, (n, 1, columns))
    return make_node(Map(body), list(map(Value, shapes)))


def test_the_run_finds_rows_that_are_short_and_many_and_end_within_a_vector():
    found = short_rows(sharing(), KNOWN["x86-64-v3"])  # vectors of eight
    given = [(9, 1), (9, 7), (8, 7), (9, 8), (9, 9), (9, 31), (9, 32), (9, 33), (0, 7), (9, 0)]
    short = [size for size in given if dims.evaluate(found, dict(zip("mk", size)))]
    assert short == [(9, 1), (9, 7), (9, 9), (9, 31)]


def test_few_rows_and_rows_of_known_length_are_one_nest():
    assert short_rows(sharing(rows=8), KNOWN["x86-64-v3"]) is None
    assert short_rows(sharing(columns=5), KNOWN["x86-64-v3"]) is None


def test_rows_that_share_no_operand_are_one_nest():
    n, m, k = (dims.symbol(name) for name in "nmk")
    assert short_rows(repeating((n, m, 1), n, m, k), KNOWN["x86-64-v3"]) is None
    assert short_rows(repeating((n, m, k), n, m, k), KNOWN["x86-64-v3"]) is None


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_short_rows_that_share_an_operand(target, dtype):
    node = sharing(dtype)
    lanes = vector_lanes(target, node.op.body)
    (choice,) = choices_of(loop_nest, node, target)
    for size in (3, 70, 1), (3, 70, 3), (2, 70, lanes + 1), (2, 70, SHORT * lanes - 1), (1, 3000, 5):
        given = dict(zip("nmk", size))
        assert dims.evaluate(short_rows(node, target), given) == 1
        x, y = numbers(size), numbers((size[0], 1, size[2]), seed=1).astype(dtype)
        ((got, _),) = run_choice(node, choice, [x, y], target, given)
        np.testing.assert_allclose(got, np.exp(x) - y.astype("float32"), rtol=1e-5, atol=1e-5)
