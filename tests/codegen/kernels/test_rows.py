"""Groups over rows against the interpreter: every size of row, on every processor that runs here."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.harness import BEST, TARGETS
from support.nests import compare, dense_choice, run
from support.rows import Rows, group, symbolic_types

from onnxc.codegen import abi, costs
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import loop_nest, rows
from onnxc.codegen.lowering.select_kernels import select_kernels
from onnxc.codegen.nests.row_passes import DEAR, KEPT, analysed
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.expr import apply
from onnxc.ir.graph import Graph, TensorType, constant_value
from onnxc.ir.ops import Gather
from onnxc.target import LEVELS

LENGTHS = (1, 2, 3, 7, 8, 13, 16, 17, 31, 33, 64, 67, 131, 257, 1000)


def check(target, write, *arrays, axes=(1,), only=None, tolerance=None):
    """The group over operands of known sizes, and of sizes that only the run knows."""
    static = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
    for name, types in (("static", static), ("symbolic", symbolic_types(arrays))):
        if only in (None, name):
            node = group(types, axes, write)
            (choice,) = choices_of(rows, node, target)
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


def rms_norm(r, x, scale):
    mean = r.map(lambda s: s / 100 + 1e-5, r.reduce("sum", r.map(lambda a: a * a, x)))
    return r.map(lambda a, v, g: a / expr.sqrt(v) * g, x, mean, scale)


def masked_softmax(r, x, mask):
    return softmax(r, r.map(lambda a, m: a * 0.125 + m, x, mask))


def residual_layer_norm(r, x, y, bias, scale, shift):
    h = r.map(lambda a, b, c: a + b + c, x, y, bias)
    return layer_norm(r, h, scale, shift, length=100), h


# Rows of every length ---------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_of_rows_of_any_length(target, length):
    check(target, softmax, draw(5, length))


@TARGETS
def test_a_softmax_has_no_subnormal_numbers_unless_their_logarithm_is_taken(target):
    x = np.float32([[0, -79, -81, -87, -88, -100, -103, -np.inf] * 5, [-100, -100.5, 3, -60] * 10])
    node = group([TensorType("float32", x.shape)], (1,), softmax)
    ((found, *_),) = run(node, choices_of(rows, node, target)[0], [x], target)
    far = x - x.max(1, keepdims=True) < -80
    assert np.array_equal(found == 0, far)
    check(target, softmax, x)
    check(target, lambda r, x: r.map(expr.log, softmax(r, x)), x, only="static", tolerance=1e-5)


@TARGETS
@pytest.mark.parametrize("length", (1, 3, 13, 64, 1000, 5000))
def test_root_mean_square(target, length):
    check(target, rms_norm, draw(6, length), draw(length, seed=1))


@TARGETS
@pytest.mark.parametrize("count", (1, 2, 3, 4, 5, 8, 64))
def test_any_number_of_rows(target, count):
    for length in (10, 40, 100):
        check(target, log_softmax, draw(count, length))
        check(target, log_softmax, draw(2, count, length), axes=(2,))


@TARGETS
def test_a_mask_for_all_rows_of_a_batch(target):
    x, mask = draw(2, 3, 5, 37), draw(2, 1, 1, 37, seed=1)
    mask[1, ..., 20:] = -np.inf
    check(target, masked_softmax, x, mask, axes=(3,))


@TARGETS
@pytest.mark.parametrize("length", (1, 5, 100, 384))
def test_layer_norm_after_a_residual(target, length):
    wide, along = ([draw(7, length, seed=s) for s in (0, 1)], [draw(length, seed=s) for s in (2, 3, 4)])
    check(target, residual_layer_norm, *wide, *along)


@TARGETS
@pytest.mark.parametrize("write", [softmax, log_softmax])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_rows_of_every_type_of_float(target, write, dtype):
    for length in (1, 9, 40):
        check(target, write, draw(3, length, dtype=dtype))


@TARGETS
def test_normalisation_of_sixteen_bit_rows(target):
    a = [draw(3, 50, dtype="float16"), *(draw(50, dtype="float16", seed=s) for s in (1, 2))]
    check(target, layer_norm, *a, only="static")


@TARGETS
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_rows_without_elements_and_no_rows_give_none(target, shape):
    check(target, softmax, np.zeros(shape, np.float32))


@TARGETS
def test_rows_of_many_elements_are_computed(target):
    check(target, softmax, draw(2, 70001))
    check(target, log_softmax, draw(3, 5000))


@TARGETS
def test_rows_that_are_many_and_short(target):
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
    x, by_channel, by_column = draw(2, 3, 5, 19), draw(3, 1, 1), draw(19)

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
    (choice,) = choices_of(rows, node, target)
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
def test_sums_of_integers_wrap_as_their_type_does(target, dtype):
    array = np.random.default_rng(0).integers(0, 100, (4, 51)).astype(dtype)
    check(target, lambda r, x: r.map(lambda a, s: a * 3 - s, x, r.reduce("sum", x)), array)


@TARGETS
def test_rows_tell_whether_all_or_any_is_true(target):
    def write(r, x):
        inside = r.map(lambda a: a > -3.0, x)
        return r.map(
            lambda a, b, c: expr.where(b, a, expr.where(c, 1.0, a * 0)),
            x,
            r.reduce("and", inside),
            r.reduce("or", inside),
        ), r.reduce("and", inside)

    check(target, write, draw(9, 41))


@TARGETS
def test_softmax_of_infinities_and_nan(target):
    x = draw(6, 45)
    x[0, 3], x[1, 44], x[2, 5:] = np.inf, np.nan, -np.inf
    x[3], x[4, 7] = -np.inf, 1e38
    with np.errstate(all="ignore"):
        check(target, softmax, x)


@TARGETS
def test_a_maximum_that_is_wanted_itself_keeps_nan(target):
    def write(r, x):
        m = r.reduce("max", x)
        total = r.reduce("sum", r.map(lambda a, m: expr.exp(a - m), x, m))
        return r.map(lambda a, m: a > m - 1, x, m), total, m

    x = draw(5, 40)
    x[1, 7], x[3, 39] = np.nan, np.nan
    with np.errstate(all="ignore"):
        check(target, write, x)


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_quotients_of_extreme_numbers(target, dtype):
    def write(r, x):
        largest = r.reduce("max", r.map(abs, x))
        root = r.map(expr.sqrt, largest)
        apart = r.map(lambda m: m.maximum(1e-12), root)
        return tuple(r.map(lambda a, m: a / m, x, n) for n in (largest, root, apart))

    x = draw(8, 21).astype(np.float64)
    x[1], x[2] = 0, x[2] * 1e-39
    x[3], x[4, 5], x[5] = x[3] * 1e37, np.inf, x[5] * 1e-20
    x[6, 20], x[7, 1:] = np.nan, 0
    with np.errstate(all="ignore"):
        check(target, write, x.astype(dtypes.numpy_dtype(dtype)))


@TARGETS
def test_what_is_kept_in_the_place_of_a_result(target):
    def write(r, x):
        e = r.map(lambda a: expr.exp(expr.tanh(a)), x)
        s = r.reduce("sum", e)
        t = r.reduce("sum", r.map(lambda a, s: expr.exp(a / s), e, s))
        return e, r.map(lambda a, t: a + t, e, t), r.map(lambda a, s: expr.exp(a / s), e, s)

    for length in (5, 100):
        check(target, write, draw(7, length))


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_what_is_kept_where_no_result_will_be(target, dtype):
    def write(r, x):
        e, t = r.map(expr.exp, x), r.map(lambda a: expr.tanh(a * a), x)
        s = r.reduce("sum", e)
        m = r.reduce("max", r.map(lambda a, b, s: a / s + b, e, t, s))
        return r.map(lambda a, b, m: a + b * m, e, t, m)

    for length in (5, 50, 100):
        check(target, write, draw(7, length, dtype=dtype))
    assert ("kept", 1) in plan(write, TensorType(dtype, (7, 50))).homes


@TARGETS
@pytest.mark.parametrize("length", (1, 11, 100, 1000))
def test_like_loop_nest(target, length):
    arrays = [*(draw(6, length, seed=s) for s in (0, 1)), *(draw(length, seed=s) for s in (2, 3, 4))]
    node = group([TensorType("float32", a.shape) for a in arrays], (1,), residual_layer_norm)
    (choice,) = choices_of(rows, node, target)
    values = dict(zip(node.op.region.inputs, arrays))
    for inner in node.op.region.nodes:
        ((values[inner.outputs[0]], _),) = run(
            inner, dense_choice(inner, target), [values[v] for v in inner.inputs], target
        )
    for (found, _), wanted in zip(run(node, choice, arrays, target), node.op.region.outputs, strict=True):
        np.testing.assert_allclose(found, values[wanted], rtol=2e-5, atol=2e-5)


@TARGETS
def test_a_kernel_with_five_passes(target):
    def write(r, x):
        h = x
        for k in range(4):
            h = r.map(lambda a, s: expr.tanh(a / (1 + abs(s))), h, r.reduce("sum" if k % 2 else "max", h))
        return h

    check(target, write, draw(4, 70))


# The plan ---------------------------------------------------------------------------------------------------


def plan(write, *types, axes=(1,), dear=DEAR):
    region = Rows(types, axes)
    results = write(region, *region.inputs)
    results = results if isinstance(results, tuple) else (results,)
    return analysed(Graph(tuple(region.inputs), results, tuple(region.nodes)), dear)


def wide(*shape):
    return TensorType("float32", shape)


def test_softmax_takes_three_passes_and_keeps_the_exponentials():
    found = plan(softmax, wide(8, 100))
    assert len(found.passes) == 3
    assert [e.op for e in found.kept] == ["select"]


def test_layer_norm_keeps_a_sum_but_not_a_difference():
    found = plan(residual_layer_norm, *[wide(8, 100)] * 2, *[wide(100)] * 3)
    assert len(found.passes) == 3
    assert [e.op for e in found.kept] == ["add"]


def test_what_one_pass_needs_is_computed_there():
    def of_halves(r, x, scale):
        x = r.map(lambda a: a.cast("float32"), x)
        differences = r.map(lambda a, m: a - m, x, r.reduce("sum", x))
        total = r.reduce("sum", r.map(lambda d: d * d, differences))
        return r.map(lambda d, s, c: (d / s * c.cast("float32")).cast("float16"), differences, total, scale)

    found = plan(of_halves, TensorType("float16", (8, 100)), TensorType("float16", (100,)))
    assert [(e.op, *expr.inputs(e)) for e in found.kept] == [("cast", 0)]


def test_what_is_dear_is_kept_besides_what_it_is_made_of():
    def twice_scaled(r, x):
        return softmax(r, r.map(lambda a: (a - 3.0) * 2.0 / 7.0 + 1.0, x))

    assert [e.op for e in plan(twice_scaled, wide(8, 100)).kept] == ["add", "select"]


def test_nothing_is_kept_that_no_later_pass_reads():
    def exponentials_of_a_sum(r, *operands):
        e = r.map(expr.exp, r.map(lambda a, b, c, d: a + b + c + d, *operands))
        return r.map(lambda e, s: e * s, e, r.reduce("sum", e))

    assert [e.op for e in plan(exponentials_of_a_sum, *[wide(8, 100)] * 4).kept] == ["exp"]


def test_what_is_kept_lies_where_a_result_will_be():
    assert plan(softmax, wide(8, 100)).homes == [("output", 0)]
    assert plan(residual_layer_norm, *[wide(8, 100)] * 2, *[wide(100)] * 3).homes == [("output", 1)]


def operations(found):
    return [n.op for p in found.passes for n in expr.topological(*p.roots)]


def test_rows_are_multiplied_with_inverses_that_exist():
    assert "div" not in operations(plan(softmax, wide(8, 100)))
    assert "div" not in operations(plan(rms_norm, wide(8, 100), wide(100)))
    by_sum = plan(lambda r, x: r.map(lambda a, s: a / s, x, r.reduce("sum", x)), wide(8, 9))
    assert "div" in operations(by_sum)


def test_a_maximum_that_is_computed_with_as_its_row_is_gives_an_inverse_too():
    def of(number):
        def write(r, x):
            powers = r.map(lambda a, m: expr.exp(number(a) - number(m)), x, r.reduce("max", x))
            return r.map(lambda p, s: p / s, powers, r.reduce("sum", powers))

        return write

    assert "div" not in operations(plan(of(lambda a: a.cast("float32")), TensorType("float16", (8, 100))))
    assert "div" not in operations(plan(of(lambda a: a * 3), wide(8, 100)))


def test_a_quantised_row_is_multiplied_once():
    def quantised(write):
        def whole(r, *operands):
            return r.map(lambda v: expr.round_(v / 0.02), write(r, *operands))

        return whole

    assert "div" not in operations(plan(quantised(softmax), wide(8, 100)))
    assert "div" not in operations(plan(quantised(rms_norm), wide(8, 100), wide(100)))
    shifted = quantised(lambda r, x, c: r.map(lambda a, b: a + b, rms_norm(r, x, c), r.reduce("max", x)))
    assert "div" not in operations(plan(shifted, wide(8, 100), wide(100)))
    plain = plan(
        lambda r, x: r.map(lambda v, s: expr.round_(v / 0.02) + s, x, r.reduce("sum", x)), wide(8, 9)
    )
    assert "div" in operations(plain)


def dequantised(write):
    def whole(r, x, *operands):
        y = r.map(lambda q: (q.cast("int32") - 100).cast("float32") * 0.02, x)
        return write(r, y, *operands)

    return whole


def test_the_scale_of_quantised_rows_is_a_factor_of_numbers():
    """Sums are of integers, and rows are multiplied once with what is the same along them."""
    bytes_ = TensorType("uint8", (8, 100))
    found = plan(dequantised(rms_norm), bytes_, wide(100))
    assert [n.op for n in expr.topological(*found.passes[0].roots) if n.op == "mul"] == ["mul"]  # a square
    assert [n.op for n in expr.topological(*found.passes[1].roots) if n.op == "mul"] == ["mul"] * 2
    normalised = lambda r, x, g, b: layer_norm(r, x, g, b, length=100)  # noqa: E731
    for one in plan(dequantised(normalised), bytes_, wide(100), wide(100)).passes:
        assert not any(n.op == "const" and n.value == np.float32(0.02) for n in expr.topological(*one.roots))


def test_a_scale_stays_where_what_it_scales_may_be_large():
    bytes_ = TensorType("uint8", (8, 100))
    joined = plan(
        dequantised(lambda r, x, y: rms_norm(r, r.map(lambda a, b: a + b, x, y), y)), bytes_, wide(8, 100)
    )
    assert sum(n.op == "mul" for n in expr.topological(*joined.passes[0].roots)) == 2
    large = plan(lambda r, x, g: rms_norm(r, r.map(lambda a: a * 1e30, x), g), wide(8, 100), wide(100))
    assert sum(n.op == "mul" for n in expr.topological(*large.passes[0].roots)) == 2


@pytest.mark.parametrize("length", [3, 64, 100])
@TARGETS
def test_normalisation_of_quantised_rows(target, length):
    def quantised(r, x, g, b):
        y = dequantised(lambda r, x: layer_norm(r, x, g, b, length=length))(r, x)
        return r.map(lambda v: (expr.round_(v / 0.25) + 120).clip(0, 255).cast("uint8"), y)

    x = np.random.default_rng(0).integers(0, 256, (9, length)).astype(np.uint8)
    check(target, quantised, x, draw(length), draw(length, seed=1), tolerance=1)


def test_short_rows_are_kept_as_they_are_computed():
    halves = TensorType("float16", (8, 64))
    widened = lambda r, x, g: rms_norm(r, r.map(lambda a: a.cast("float32"), x), g)  # noqa: E731
    found = plan(widened, halves, wide(64), dear=0)
    assert [e.op for e in found.kept] == ["cast"] and found.held == 1
    assert [i for one in found.passes for i in one.reads] == [0, 1, KEPT]


def test_a_maximum_may_miss_nan_only_where_every_result_is_nan():
    def maximum_too(r, x):
        return softmax(r, x), r.reduce("max", x)

    def maximum_alone(r, x):
        return r.map(lambda a, m: a > m - 1, x, r.reduce("max", x))

    for write, missed in ((softmax, True), (log_softmax, True), (maximum_too, False), (maximum_alone, False)):
        states = [s for p in plan(write, wide(8, 100)).passes for s in p.reductions if s.kind == "max"]
        assert {s.nan for s in states} == {not missed}


def test_a_maximum_of_integers_is_no_nan():
    def near_the_greatest(r, x):
        y = r.map(lambda a: a.cast("float32") * 0.02, x)
        return r.map(lambda a, m: a > m - 1, y, r.reduce("max", y))

    for dtype, number in (("uint8", True), ("float16", False)):
        found = plan(near_the_greatest, TensorType(dtype, (8, 100)))
        assert [s.nan for p in found.passes for s in p.reductions] == [not number]


def test_what_is_the_same_along_the_row_is_computed_once():
    found = plan(layer_norm, wide(8, 100), wide(100), wide(100))
    assert not any(n.op == "sqrt" for p in found.passes for n in expr.topological(*p.roots))


def test_conditions_that_are_the_same_along_the_row_are_vectors():
    """Masks are made by comparing vectors; one number would have to be moved into a mask."""

    def chosen(r, x, a_row):
        return r.map(lambda a, n, s: expr.where(n < 2, a + s, 0), x, a_row, r.reduce("sum", x))

    found = plan(chosen, wide(8, 100), wide(8, 1))
    assert not any(e.dtype == "bool" for p in found.passes for e in p.before.values())


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


def test_a_group_that_is_refused_runs_node_by_node():
    def by_channel(r, x, scale):
        return r.map(lambda a, s, g: a / s * g, x, r.reduce("sum", x), scale)

    short_lines = group([wide(4, 9, 3), wide(3)], (1, 2), by_channel)
    for node in (group([wide(8, 100)], (0,), softmax), short_lines):
        assert not choices_of(rows, node, BEST)
        chosen = select_kernels(Graph(node.inputs, node.outputs, (node,)), BEST)
        assert {n.choice.kernel for n in chosen.nodes} == {loop_nest}
        assert len(chosen.nodes) == len(node.op.region.nodes)


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_no_spills_where_code_can_only_be_generated(target):
    for node in (
        group([wide(128, 384)] * 2 + [wide(384)] * 3, (1,), residual_layer_norm),
        group([wide(128, 384)], (1,), softmax),
        group([wide(128, 24)], (1,), softmax),
    ):
        (choice,) = choices_of(rows, node, target)
        (step,) = rows.emit(node, choice, target).steps
        text = harness.assembly(step.text, target)
        assert not re.search(r"\s(callq?|blr?)\s", text)
        assert "Spill" not in text


def test_parts_do_not_change_a_bit():
    x, node = draw(300, 77), group([wide(300, 77)], (1,), softmax)
    (choice,) = choices_of(rows, node, BEST)
    whole = harness.run_choice(node, choice, [x], BEST, split=1)[0][0]
    for split in (2, 5):
        assert np.array_equal(whole, harness.run_choice(node, choice, [x], BEST, split=split)[0][0])
    assert np.array_equal(whole, run(node, choice, [x], BEST)[0][0])


def test_constants_that_rows_share_are_waited_for_where_a_run_touches_much():
    def estimate(constants, target):
        data = [np.ones(shape, np.float32) for shape in ((1, 256), *[(256,)] * 2)]
        node = group([TensorType("float32", a.shape) for a in data], (1,), layer_norm)
        values = [v if k < 3 - constants else constant_value(data[k]) for k, v in enumerate(node.inputs)]
        (choice,) = choices_of(rows, replace(node, inputs=tuple(values)), target)
        return choice.cost.total

    far = replace(BEST, run_bytes=2 * BEST.facts.level2_bytes)
    for constants in (0, 1, 2):
        longer = estimate(constants, far) - estimate(constants, BEST)
        assert longer == pytest.approx(constants * costs.FIRST * costs.far(far, far.run_bytes, 0))


# Rows that Gathers pick ---------------------------------------------------------------------------------


def picks(op):
    def write(r, x, i, u, y, j, v):
        return r.map(lambda a, s, b, t: a * s + b * t, r.gather(op, x, i), u, r.gather(op, y, j), v)

    return write


def check_picked(target, op, arrays, types=None):
    """Rows of two operands at places of their own, added with weights, of known and of open sizes."""
    known = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
    for each in (known, types) if types else (known,):
        node = group(each, (), picks(op))
        (choice,) = choices_of(rows, node, target)
        compare(node, choice, arrays, target)


def places(*shape, below, seed=0):
    return np.random.default_rng(seed).integers(-below, below, shape)


@TARGETS
@pytest.mark.parametrize("length", (1, 3, 8, 13, 33, 257))
@pytest.mark.parametrize("batch", (1, 3))
def test_rows_at_positions(target, length, batch):
    n, s, p, c = (dims.symbol(name) for name in "nspc")
    x, u = TensorType("float32", (n, s, c)), TensorType("float32", (n, p, 1))
    i = TensorType("int64", (n, p, 1))
    arrays = []
    for seed in (0, 1):
        arrays += [
            draw(batch, 6, length, seed=seed),
            places(batch, 5, 1, below=6, seed=seed),
            draw(batch, 5, 1, seed=2 + seed),
        ]
    check_picked(target, Gather("nd", batch=1), arrays, [x, i, u, x, i, u])


@TARGETS
@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64", "int8", "uint8"))
def test_rows_of_other_types_at_places_along_an_axis(target, dtype):
    types = {"int8": "float32", "uint8": "float32"}

    def write(r, x, i, u):
        return r.map(lambda a, s: a.cast(s.dtype) * s, r.gather(Gather("axis", 1), x, i), u)

    x = places(2, 7, 4, 40, below=9).astype(dtypes.numpy_dtype(dtype))
    arrays = [x, places(3, 5, below=7).astype(np.int32), draw(2, 1, 1, 4, 40, dtype=types.get(dtype, dtype))]
    node = group([TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays], (), write)
    compare(node, choices_of(rows, node, target)[0], arrays, target)


@TARGETS
def test_rows_of_several_axes_at_positions_of_several_numbers(target):
    arrays = [draw(4, 5, 3, 16), places(2, 6, 2, below=4), draw(16), draw(4, 5, 3, 16, seed=1)]
    arrays += [places(2, 6, 2, below=4, seed=1), draw(2, 6, 1, 1)]
    check_picked(target, Gather("nd"), arrays)


@TARGETS
@pytest.mark.parametrize("wrong", (6, -7))
def test_a_row_outside_of_its_operand_ends_the_run(target, wrong):
    index = np.array([[[1], [wrong], [0]]])
    arrays = [draw(1, 6, 20), index, draw(1, 3, 1), draw(1, 6, 20), index * 0, draw(1, 3, 1)]
    types = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
    node = group(types, (), picks(Gather("nd", batch=1)))
    found = run(node, choices_of(rows, node, target)[0], arrays, target)
    assert found[0] == abi.ERRORS["index_out_of_range"]


def test_rows_along_other_axes_than_those_of_a_reduction_are_none():
    def write(r, x, i):
        return r.map(lambda a, s: a - s, g := r.gather(Gather("axis", 0), x, i), r.reduce("sum", g))

    node = group([TensorType("float32", (5, 2, 40)), TensorType("int64", (3,))], (2,), write)
    assert not choices_of(rows, node, BEST)
