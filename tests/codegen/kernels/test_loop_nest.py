"""loop_nest: maps over any shapes, types and layouts, and what it offers for the ops that it takes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import harness
from support.harness import BEST, TARGETS
from support.nests import check, check_blocked, compare, dense_choice, node_of, numbers, run, symbolic

from onnxc.codegen import abi
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import loop_nest
from onnxc.ir import dims, expr
from onnxc.ir.expr import input_
from onnxc.ir.graph import Layout, TensorType, Value, make_node
from onnxc.ir.ops import (
    Attention,
    Concat,
    Contract,
    Conv,
    Cumulate,
    Elements,
    Gather,
    Map,
    OverlapAdd,
    Pool,
    Reduce,
    Scatter,
)
from onnxc.target import LEVELS

few = settings(max_examples=25, deadline=None)
BROADCAST = [
    ((5,), (5,)),
    ((100,), (1,)),
    ((), (37,)),
    ((3, 5, 7), (7,)),
    ((3, 5, 7), (5, 1)),
    ((3, 1, 7), (1, 5, 1)),
    ((64, 3), (3,)),
    ((10, 129), (129,)),
    ((0, 3), (3,)),
    ((), ()),
    ((4, 300), (4, 1)),
    ((2, 3, 4, 2, 3, 4, 5), (1, 4, 1, 3, 1, 5)),
]


#: (integer, zero point, the least and greatest number): the whole range of the type, or less of it.
BYTES = [("uint8", 0, 0, 255), ("uint8", 121, 121, 255), ("int8", -3, -128, 127), ("int8", 0, -127, 90)]


def x(index=0, dtype="float32"):
    return input_(index, dtype)


# Shapes ------------------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int64", "int32"]
)
def test_operands_of_any_shape_are_broadcast(target, dtype):
    body = (x(0, dtype) + x(1, dtype)) * x(0, dtype)
    for left, right in BROADCAST:
        check(target, Map(body), numbers(left, dtype, -9, 9), numbers(right, dtype, -9, 9, 1))


@few
@given(st.data())
def test_operands_of_drawn_shapes_are_broadcast(data):
    whole = data.draw(st.lists(st.integers(0, 20), max_size=5))
    shapes = []
    for _ in range(3):
        kept = data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        lead = data.draw(st.integers(0, len(whole)))
        shapes.append(tuple(n if keep else 1 for n, keep in zip(whole, kept))[lead:])
    arrays = [numbers(shape, seed=k) for k, shape in enumerate(shapes)]
    check(BEST, Map(x(0) * x(1) - x(2)), *arrays, only=data.draw(st.sampled_from(["static", "symbolic"])))


@TARGETS
def test_lengths_around_the_vector(target):
    for length in (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257):
        check(target, Map(x(0) + 1), numbers((length,)))
        check(target, Map(x(0) * x(1)), numbers((3, length)), numbers((3, 1)), only="static")


@TARGETS
@pytest.mark.parametrize("colours", [2, 3, 4, 5, 7])
def test_short_rows_that_repeat_an_operand(target, colours):
    for rows in (1, 5, 50, 3000):
        pixels, mean = numbers((2, rows, colours)), numbers((colours,), seed=1)
        check(target, Map((x(0) - x(1)) * x(1)), pixels, mean, only="static")
        types = [TensorType("float32", (2, dims.symbol("n"), colours)), TensorType("float32", (colours,))]
        check(target, Map((x(0) - x(1)) * x(1)), pixels, mean, types=types, only="symbolic")
        check(target, Map((x(0) * x(0) + 1) ** (x(1) / 100)), pixels, mean, only="static")  # a long body


def test_a_result_may_take_its_operand_s_place():
    """Every vector is read before it is written."""
    array = numbers((1003,))
    node = node_of(Map(x(0) * 2 + 1), [array])
    choice = dense_choice(node, BEST)
    (step,) = choice.kernel.emit(node, choice, BEST).steps
    memory = np.array(array)
    call = harness.prepared_call(step.text, BEST, [memory, memory], harness.aligned(step.scratch))
    assert call([(0, step.parts)]) == 0
    np.testing.assert_array_equal(memory, array * 2 + 1)


# Bodies ------------------------------------------------------------------------------------------


def test_short_rows_that_end_in_a_masked_vector_do_not_take_their_operand_s_place():
    """A row would be read while the masked lanes of the one before are still to be written over it."""

    def over(shape, repeated):
        types = [TensorType("float32", s) for s in (shape, repeated)]
        node = make_node(Map(x() + x(1)), [Value(t) for t in types])
        (choice, *_) = choices_of(loop_nest, node, LEVELS["x86-64-v4"])
        return loop_nest.emit(node, choice, LEVELS["x86-64-v4"]).over

    assert over((9, 10), (9, 1)) == ()
    assert over((9, 16), (9, 1)) == (0, 1)
    assert over((9, 10), (9, 10)) == (0, 1)  # a single row
    assert over((9, 1000), (9, 1)) == (0, 1)


@TARGETS
def test_indices_and_sizes_are_leaves(target):
    n = dims.symbol("n")
    body = expr.index(0) * 10 + expr.index(2) - expr.size(n)
    for shape in ((3, 5, 70), (3, 1, 1), (1, 1, 9), (2, 0, 3)):
        check(target, Map(body, shape), env={"n": 4}, only="static")
    named = (dims.symbol("p"), 5, dims.symbol("q"))
    check(target, Map(body, named), env={"n": 4, "p": 3, "q": 19}, only="static")
    check(target, Map(x(0) + expr.index(1).cast("float32")), numbers((3, 5)))


@TARGETS
def test_operands_of_several_types_are_mixed(target):
    chosen = expr.where(x(0, "bool"), x(1), x(2, "int64").cast("float32"))
    check(target, Map(chosen), numbers((33, 7)) > 20, numbers((33, 7)), numbers((), "int64"))
    check(target, Map(x(0).cast("uint8")), numbers((70,), low=-300, high=300))
    check(target, Map(x(0).cast("bool")), numbers((70,), low=-1, high=2))
    check(target, Map(x(0, "uint8").cast("float32") * 0.5), numbers((3, 50), "uint8"))
    wide = x(0, "float16").cast("float64") + x(1, "float64")
    check(target, Map(wide), numbers((3, 50), "float16"), numbers((50,), "float64"))


@TARGETS
@pytest.mark.parametrize(("dtype", "zero", "low", "high"), BYTES)
def test_floats_are_rounded_to_bytes_in_rows_of_any_length(target, dtype, zero, low, high):
    """Vectors of floats are narrowed together: of what is known to be small, and of any number."""
    number = (x(0, "uint8").cast("int32") - 100).cast("float32")
    for real in (number * 0.37, expr.apply("fma", x(1), number, expr.const(0.5, "float32")), x(1) / 0.3):
        body = (expr.apply("round", real) + float(zero)).clip(float(low), float(high)).cast(dtype)
        for length in (1, 7, 8, 31, 32, 33, 40, 63, 64, 65, 129, 200):
            codes, reals = numbers((3, length), "uint8", 0, 256), numbers((3, length), low=-99, high=99)
            reals[:, ::5] = np.array([np.inf, -np.inf, 1e30])[:, None]
            reals[1, ::7] = np.nan
            check(target, Map(body), codes, reals, only="static")
        check(target, Map(body), codes, reals[:, :1], only="symbolic")


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int16"])
def test_a_row_is_narrowed_with_what_is_the_same_in_it(target, dtype):
    body = (x(0) * x(1, dtype).cast("float32")).clip(-100, 100).cast(dtype)
    for length in (1, 15, 16, 17, 32, 45, 64, 79, 130):
        check(target, Map(body), numbers((5, length)), numbers((5, 1), dtype, -9, 9))


@TARGETS
def test_a_body_that_is_an_operand_copies_any_type(target):
    for dtype in ("complex128", "bool", "float32"):
        check(target, Map(x(0, dtype), (4, 3, 5)), numbers((3, 1), dtype), only="static")


@TARGETS
def test_a_failed_check_names_the_element(target):
    body = expr.check(x(1, "int64")._with("ne", 0), x(0, "int64") / x(1, "int64"), "division_by_zero")
    dividend, divisor = numbers((100,), "int64"), np.ones(100, np.int64)
    check(target, Map(body), dividend, divisor)
    divisor[[70, 90]] = 0
    node = node_of(Map(body), [dividend, divisor])
    code, _ = run(node, dense_choice(node, target), [dividend, divisor], target)
    assert code == abi.ERRORS["division_by_zero"]


def test_every_dimension_symbolic_and_equal_to_one():
    ones = [np.ones((1,) * rank, np.float32) for rank in (1, 3)]
    check(BEST, Map(x(0) + x(1)), *ones, only="symbolic")


# Blocked images ----------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("channels", [3, 16, 20])
def test_maps_of_blocked_images(target, channels):
    shape = (2, channels, 5, 7)
    image = numbers(shape, seed=1)
    body = x(0) * x(1) + x(2) + 3
    others = [(channels, 1, 1), (1, channels, 1, 1), (), shape, (2, channels, 1, 1), (2, 1, 5, 7), (7,)]
    for halo, out_halo in (((0, 0), (2, 1)), ((1, 2), (0, 0))):
        layout = Layout(16, halo)
        for other in others:
            operands = [image, numbers(other, seed=2), numbers((2, channels, 1, 1), seed=3)]
            layouts = [layout, layout if other == shape else None, None]
            check_blocked(target, Map(body), operands, layouts, out_halo)


@TARGETS
@pytest.mark.parametrize("dtype", ["float64", "int8", "bfloat16", "bool"])
def test_idle_lanes_and_halo_hold_zero_in_any_type(target, dtype):
    body = ~x(0, dtype) | x(1, dtype) if dtype == "bool" else x(0, dtype) + x(1, dtype) + 3
    shape, layout = (1, 20, 3, 5), Layout(8, (1, 1))
    operands = [numbers(shape, dtype), numbers((20, 1, 1), dtype)]
    check_blocked(target, Map(body), operands, [layout, None], (1, 2))


@TARGETS
def test_blocked_images_of_variable_size(target):
    image = numbers((2, 20, 5, 7))
    axes = (dims.symbol("n"), 20, dims.symbol("h"), dims.symbol("w"))
    types = [TensorType("float32", axes)] * 2
    layouts = [Layout(16, (1, 1)), Layout(16, (0, 2))]
    check_blocked(target, Map(x(0) + x(1)), [image, image], layouts, (0, 1), types=types)


def test_a_map_reads_operands_of_one_block():
    types = [TensorType("float32", (1, 16, 4, 4), Layout(block, (0, 0))) for block in (8, 16)]
    node = node_of(Map(x(0) + x(1)), [numbers((1, 16, 4, 4))] * 2, types)
    offered = [(c.output, c.inputs) for c in choices_of(loop_nest, node, BEST)]
    plain = [Layout(block, (0, 0)) for block in (8, 16)]
    assert offered == [(None, (None, None)), *((layout, (layout, layout)) for layout in plain)]


# What it offers ----------------------------------------------------------------------------------

IMAGE = numbers((1, 4, 9, 9))
EVERY = [
    (Map(x(0).maximum(0)), [IMAGE]),
    (Reduce("sum", (2, 3)), [IMAGE]),
    (Contract("mk", "kn", "mn", "float32"), [numbers((5, 6)), numbers((6, 7))]),
    (Conv((1, 1), (1, 1, 1, 1), (1, 1)), [IMAGE, numbers((2, 4, 3, 3))]),
    (Pool("max", (2, 2), (2, 2), (0,) * 4, (1, 1), (4, 4)), [IMAGE]),
    (OverlapAdd((2, 2), (1, 1), (0, 0), (1, 1), (10, 10)), [IMAGE]),
    (Attention(0.5), [numbers((1, 2, 3, 4))] * 3),
    (Concat(1), [IMAGE] * 3),
    (Gather("axis"), [IMAGE, np.array([0])]),
    (Scatter("nd"), [IMAGE, np.zeros((1, 1), np.int64), IMAGE]),
    (Cumulate("sum", 1), [IMAGE]),
    (Elements((dims.symbol("n"), 3), (2,)), []),
]


@pytest.mark.parametrize("op, arrays", EVERY, ids=lambda v: type(v).__name__)
def test_it_takes_every_op_in_a_time_that_it_tells(op, arrays):
    for target in LEVELS.values():
        for types in (None, [symbolic(a, "abc"[k]) for k, a in enumerate(arrays)]):
            if types and isinstance(op, (Concat, Conv, Scatter)):
                types = None
            choice = dense_choice(node_of(op, arrays, types), target)
            assert choice.time > 0
            assert choice.output is None


@pytest.mark.parametrize("op, arrays", EVERY, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_its_code_calls_nothing(op, arrays, target):
    """No libm, no conversion routines: every instruction is the target's own."""
    for dtype in ("float32", "bfloat16") if isinstance(op, (Concat, Gather)) else ("float32",):
        typed = [a if a.dtype == np.int64 else numbers(a.shape, dtype) for a in arrays]
        node = node_of(op, typed)
        choice = dense_choice(node, target)
        for step in choice.kernel.emit(node, choice, target).steps:
            text = harness.assembly(step.text, target)
            words = {line.split()[0] for line in text.splitlines() if line.split()}
            assert not words & {"callq", "call", "bl"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_stay_in_vectors(dtype):
    for target in LEVELS.values():
        for other in ((1000,), (1,), ()):
            body = (x(0, dtype) + x(1, dtype)) * x(0, dtype)
            node = node_of(Map(body), [numbers((1000,), dtype), numbers(other, dtype)])
            choice = dense_choice(node, target)
            (step,) = choice.kernel.emit(node, choice, target).steps
            text = harness.assembly(step.text, target)
            assert "__trunc" not in text and "__extend" not in text


def test_equal_nests_have_equal_text():
    def text(rows):
        types = [TensorType("float32", (dims.symbol(rows), 3)), TensorType("float32", (3,))]
        node = node_of(Map(x(0) + x(1)), [numbers((2, 3)), numbers((3,))], types)
        choice = dense_choice(node, BEST)
        return choice.kernel.emit(node, choice, BEST).steps[0].text

    assert text("n") == text("m")


def test_elements_are_sizes():
    n, m = dims.symbol("n"), dims.symbol("m")
    for elements, shape, dtype in (
        ((n + 1, 5, m * 2), (3,), "int64"),
        ((n + 1,), (), "int32"),
        ((n, 7), (2, 1), "int16"),
    ):
        node = node_of(Elements(elements, shape, dtype), [])
        compare(node, dense_choice(node, BEST), [], BEST, {"n": 4, "m": 3})


@TARGETS
def test_what_a_row_shares_is_computed_once(target):
    """1 / sqrt(variance) of rows: one division a row, none for each element."""
    body = (x(0) - x(1)) * (1 / expr.sqrt(x(2) + 1e-5)) * x(3)
    rows, mean, variance = (numbers((9, 70)), numbers((9, 1), seed=1), np.abs(numbers((9, 1), seed=2)))
    check(target, Map(body), rows, mean, variance, numbers((70,), seed=3))
    node = node_of(Map(body), [rows, mean, variance, numbers((70,))])
    choice = dense_choice(node, target)
    (step,) = choice.kernel.emit(node, choice, target).steps
    assert "fdiv float" in step.text
    assert "fdiv <" not in step.text
