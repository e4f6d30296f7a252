"""Groups over rows against the interpreter: every size of row, on every processor that runs here."""
import numpy as np
import pytest
from codegen.nests import TARGETS, compare, run
from onnxc.codegen.kernels import rows
from onnxc.codegen.row_passes import analysed

from codegen import harness
from onnxc import dims, dtypes, expr
from onnxc.expr import apply, input_
from onnxc.ir import Graph, TensorType, Value, make_node
from onnxc.ops import Fused, Map, Reduce

LENGTHS = (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 67, 128, 131, 257)
NATIVE = harness.RUNNABLE[0]


class Rows:
    """A region being written: `map` and `reduce` append nodes to it."""

    def __init__(self, types, axes):
        self.inputs, self.axes, self.nodes = [Value(t) for t in types], axes, []

    def map(self, body, *values):
        arguments = [input_(k, v.dtype) for k, v in enumerate(values)]
        self.nodes.append(make_node(Map(body(*arguments)), values))
        return self.nodes[-1].outputs[0]

    def reduce(self, kind, value):
        self.nodes.append(make_node(Reduce(kind, self.axes, True), [value]))
        return self.nodes[-1].outputs[0]


def group(types, axes, write):
    """A Fused node over operands of these types; `write(region, *operands)` gives its results."""
    region = Rows(types, axes)
    results = write(region, *region.inputs)
    results = results if isinstance(results, tuple) else (results,)
    return make_node(Fused("rows", Graph(tuple(region.inputs), results, tuple(region.nodes))), [Value(t) for t in types])


def symbolic_types(arrays):
    """A variable for every axis that is not 1, the same one for the same axis of the whole."""
    rank = max(a.ndim for a in arrays)
    return [
        TensorType(dtypes.from_numpy(a.dtype), tuple(
            1 if size == 1 else dims.symbol(f"d{axis}") for axis, size in enumerate(a.shape, rank - a.ndim)
        ))
        for a in arrays
    ]


def check(target, write, *arrays, axes=(1,), only=None, tolerance=None):
    """The group over operands of known sizes, and of sizes that only the run knows."""
    static = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
    for name, types in (("static", static), ("symbolic", symbolic_types(arrays))):
        if only in (None, name):
            node = group(types, axes, write)
            (choice,) = rows.candidates(node, target)
            compare(node, choice, arrays, target, tolerance=tolerance)


def draw(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).normal(0, 2, shape).astype(dtypes.numpy_dtype(dtype))


def softmax(r, x):
    e = r.map(lambda a, m: expr.exp(a - m), x, r.reduce("max", x))
    return r.map(lambda a, s: a / s, e, r.reduce("sum", e))


def log_softmax(r, x):
    shifted = r.map(lambda a, m: a - m, x, r.reduce("max", x))
    total = r.reduce("sum", r.map(expr.exp, shifted))
    return r.map(lambda a, s: a - expr.log(s), shifted, total)


def mean(length):
    return lambda a: a * expr.const(1 / length, a.dtype)


def layer_norm(r, x, scale, shift, length=None):
    length = length or np.prod([d if isinstance(d, int) else 1 for d in x.shape[1:]])
    centred = r.map(lambda a, m: a - m, x, r.map(mean(length), r.reduce("sum", x)))
    variance = r.map(mean(length), r.reduce("sum", r.map(lambda a: a * a, centred)))
    inverse = r.map(lambda v: 1 / expr.sqrt(v + 1e-5), variance)
    return r.map(lambda a, i, g, b: a * i * g + b, centred, inverse, scale, shift)


def residual_layer_norm(r, x, y, bias, scale, shift):
    h = r.map(lambda a, b, c: a + b + c, x, y, bias)
    return layer_norm(r, h, scale, shift, length=100), h


# Rows of every length ---------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("length", LENGTHS)
def test_softmax(target, length):
    check(target, softmax, draw(5, length))


@TARGETS
@pytest.mark.parametrize("length", (1, 5, 100, 384))
def test_layer_norm_after_a_residual(target, length):
    check(target, residual_layer_norm, draw(7, length), draw(7, length, seed=1), draw(length), draw(length), draw(length))


@TARGETS
@pytest.mark.parametrize("write", [softmax, log_softmax])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_element_types(target, write, dtype):
    for length in (1, 9, 40):
        check(target, write, draw(3, length, dtype=dtype))


@TARGETS
def test_normalisation_of_sixteen_bit_rows(target):
    a = [draw(3, 50, dtype="float16"), *(draw(50, dtype="float16", seed=s) for s in (1, 2))]
    check(target, layer_norm, *a, only="static")


@TARGETS
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_nothing(target, shape):
    check(target, softmax, np.zeros(shape, np.float32))


@TARGETS
def test_long_rows(target):
    check(target, softmax, draw(2, 70001))


@TARGETS
def test_many_rows(target):
    check(target, softmax, draw(3000, 5))


# Shapes ---------------------------------------------------------------------------------------------------


@TARGETS
def test_rows_of_several_axes(target):
    x, scale = draw(2, 3, 5, 7), draw(5, 7)

    def write(r, x, g):
        return r.map(lambda a, s, g: a / expr.sqrt(s) * g, x, r.reduce("sum", r.map(lambda a: a * a, x)), g)

    check(target, write, x, scale, axes=(2, 3))


@TARGETS
def test_operands_that_repeat_along_some_axes_of_a_row(target):
    x, by_channel, by_column = draw(2, 3, 5, 7), draw(3, 1, 1), draw(7)

    def write(r, x, g, b):
        h = r.map(lambda a, g, b: expr.exp(a * g) + b, x, g, b)
        return r.map(lambda a, s, b: a / s - b, h, r.reduce("max", h), b)

    check(target, write, x, by_channel, by_column, axes=(1, 2, 3))


@TARGETS
def test_operands_of_one_number_a_row_and_of_one_in_all(target):
    x, a_row, one = draw(4, 3, 20), draw(4, 3, 1), draw(1)

    def write(r, x, t, one):
        s = r.reduce("sum", r.map(lambda a, t, c: expr.exp(a / t) + c, x, t, one))
        return r.map(lambda a, s, t: a - expr.log(s) * t, x, s, t), r.map(lambda s, t: s * t, s, t)

    check(target, write, x, a_row, one, axes=(2,))


@TARGETS
def test_one_row_without_other_axes(target):
    check(target, softmax, draw(300), axes=(0,))


@TARGETS
def test_an_axis_that_may_repeat_is_settled_by_the_run(target):
    x, n, m = draw(6, 40), dims.symbol("n"), dims.symbol("m")

    def write(r, x, y):
        h = r.map(lambda a, b: a + b, x, y)
        return r.map(lambda a, s: a - s, h, r.reduce("max", h))

    types = [TensorType("float32", (n, m)), TensorType("float32", (dims.symbol("a"), dims.symbol("b")))]
    node = group(types, (1,), write)
    (choice,) = rows.candidates(node, target)
    for y in (draw(6, 40, seed=1), draw(1, 40, seed=1), draw(6, 1, seed=1), draw(1, 1)):
        compare(node, choice, [x, y], target)
        compare(node, choice, [y, x], target, {"n": y.shape[0], "m": y.shape[1], "a": 6, "b": 40})


@TARGETS
def test_a_row_shorter_than_known_to_be_one(target):
    check(target, softmax, draw(5, 1), axes=(1,))
    check(target, softmax, draw(4, 1, 1), axes=(1, 2))


# What is computed -------------------------------------------------------------------------------------------


@TARGETS
def test_reductions_of_all_kinds_at_once(target):
    def write(r, x):
        return tuple(r.reduce(kind, x) for kind in ("sum", "min", "max", "prod"))

    check(target, write, draw(5, 37) / 4)


@TARGETS
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8"])
def test_integers_wrap(target, dtype):
    array = np.random.default_rng(0).integers(0, 100, (4, 51)).astype(dtype)
    check(target, lambda r, x: r.map(lambda a, s: a * 3 - s, x, r.reduce("sum", x)), array)


@TARGETS
def test_truth(target):
    def write(r, x):
        inside = r.map(lambda a: a > -3.0, x)
        return r.map(lambda a, b, c: expr.where(b, a, expr.where(c, 1.0, a * 0)), x, r.reduce("and", inside),
                     r.reduce("or", inside)), r.reduce("and", inside)

    check(target, write, draw(9, 41))


@TARGETS
def test_softmax_of_infinities_and_nan(target):
    x = draw(6, 45)
    x[0, 3], x[1, 44], x[2, 5:] = np.inf, np.nan, -np.inf
    x[3], x[4, 7] = -np.inf, 1e38
    with np.errstate(all="ignore"):
        check(target, softmax, x)


@TARGETS
def test_a_kernel_with_five_passes(target):
    def write(r, x):
        h = x
        for k in range(4):
            h = r.map(lambda a, s: expr.tanh(a / (1 + abs(s))), h, r.reduce("sum" if k % 2 else "max", h))
        return h

    check(target, write, draw(4, 70))


# The plan ---------------------------------------------------------------------------------------------------


def plan(write, *types, axes=(1,)):
    region = Rows(types, axes)
    results = write(region, *region.inputs)
    return analysed(Graph(tuple(region.inputs), results if isinstance(results, tuple) else (results,), tuple(region.nodes)))


def wide(*shape):
    return TensorType("float32", shape)


def test_softmax_takes_three_passes_and_keeps_the_exponentials():
    found = plan(softmax, wide(8, 100))
    assert len(found.passes) == 3
    assert [e.op for e in found.kept] == ["exp"]


def test_layer_norm_keeps_a_sum_but_not_a_difference():
    found = plan(residual_layer_norm, *[wide(8, 100)] * 2, *[wide(100)] * 3)
    assert len(found.passes) == 3
    assert [e.op for e in found.kept] == ["add"]


def test_what_is_the_same_along_the_row_is_computed_once():
    found = plan(layer_norm, wide(8, 100), wide(100), wide(100))
    assert not any(n.op == "sqrt" for p in found.passes for n in expr.topological(*p.roots))


def test_what_is_no_computation_of_rows_is_refused():
    def other_axes(r, x):
        s = r.reduce("sum", x)
        r.axes = (0,)
        return r.map(lambda a, b, c: a + b + c, x, s, r.reduce("sum", x))

    def place(r, x):
        return r.map(lambda a, s: a + s + expr.index(1).cast("float32"), x, r.reduce("sum", x))

    def checked(r, x):
        return r.map(lambda a, s: expr.check(s > 0, a, "invalid_value"), x, r.reduce("sum", x))

    assert plan(other_axes, wide(8, 8)) is None
    assert plan(place, wide(8, 100)) is None
    assert plan(checked, wide(8, 100)) is None
    assert plan(lambda r, x: r.map(apply_twice, x), wide(8, 100)) is None
    assert plan(lambda r, x: r.reduce("sum", x), wide(100, 8), axes=(0,)) is None


def apply_twice(a):
    return apply("mul", a, a)


@pytest.mark.parametrize("target", harness.TARGETS.values(), ids=str)
def test_no_spills_where_code_can_only_be_generated(target):
    node = group([wide(128, 384)] * 2 + [wide(384)] * 3, (1,), residual_layer_norm)
    (choice,) = rows.candidates(node, target)
    (step,) = rows.emit(node, choice, target).steps
    text = harness.assembly(step.text, target)
    assert "call" not in text.replace(".callq", "")
    assert "Spill" not in text


def test_parts_do_not_change_a_bit():
    x, node = draw(300, 77), group([wide(300, 77)], (1,), softmax)
    (choice,) = rows.candidates(node, NATIVE)
    whole = harness.run_choice(node, choice, [x], NATIVE, split=1)[0][0]
    for split in (2, 5):
        assert np.array_equal(whole, harness.run_choice(node, choice, [x], NATIVE, split=split)[0][0])
    assert np.array_equal(whole, run(node, choice, [x], NATIVE)[0][0])
