"""Symbolic elements: they evaluate to what the interpreter computes from the evaluated operands."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from onnxc.ir import dims, dtypes, expr, interpret, ops
from onnxc.ir.elements import elements
from onnxc.ir.expr import const, index, input_
from onnxc.ir.graph import TensorType
from onnxc.ir.requirements import Need

n, m, h, z = dims.symbol("n"), dims.symbol("m"), dims.symbol("h", 1), dims.symbol("z", None)
ENVIRONMENTS = [
    {"n": 5, "m": 3, "h": 1, "z": -7},
    {"n": 0, "m": 0, "h": 4, "z": 0},
    {"n": 1, "m": 12, "h": 9, "z": 2},
]
i64, j64 = input_(0, "int64"), input_(1, "int64")


def objects(values):
    """A list of lists of dimensions as an object array."""
    shape = np.shape(np.vectorize(lambda v: 0, otypes=[int])(np.array(values, object)))
    array = np.empty(shape, object)
    array[...] = values
    return array


def numbers(array, env, dtype="int64"):
    plain = [dims.evaluate(d, env) for d in array.flat]
    return np.array(plain, np.int64).astype(dtypes.numpy_dtype(dtype)).reshape(array.shape)


def known(op, *inputs, dtypes_=None):
    """The elements of op over inputs, checked against the interpreter; None where unknown."""
    kinds = dtypes_ or ["int64"] * len(inputs)
    types = [TensorType(k, x.shape) for k, x in zip(kinds, inputs, strict=True)]
    (type_,) = op.infer(Need(), *types)
    found = elements(op, inputs, type_)
    if found is None:
        return None
    assert found.shape == type_.shape
    for env in ENVIRONMENTS:
        operands = [numbers(x, env, k) for x, k in zip(inputs, kinds, strict=True)]
        expected = interpret.run_op(op, operands, dict(env))[0]
        assert numbers(found, env).tolist() == expected.astype(np.int64).tolist()
    return found


SHAPE = objects([n, 3, h])


# Movement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (ops.Reshape((1, 3)), [[n, 3, h]]),
        (ops.Transpose((0,)), [n, 3, h]),
        (ops.Slice((2,), (2,), (-1,)), [h, 3]),
        (ops.Slice((1,), (0,), (1,)), []),
        (ops.Broadcast((2, 3)), [[n, 3, h], [n, 3, h]]),
        (ops.Pad("edge", (1,), (0,)), [n, n, 3, h]),
        (ops.Cumulate("sum", 0), None),
    ],
)
def test_movement_moves_what_is_known(op, expected):
    found = known(op, SHAPE)
    assert (found if found is None else found.tolist()) == expected


def test_what_is_joined_stays_known():
    assert known(ops.Concat(0), SHAPE, objects([m])).tolist() == [n, 3, h, m]


def test_padding_with_a_constant():
    found = known(ops.Pad("constant", (1,), (1,)), SHAPE, objects(1))
    assert found.tolist() == [1, n, 3, h, 1]


@pytest.mark.parametrize(
    ("form", "at", "expected"),
    [("axis", 2, h), ("axis", [-1, 0], [h, n]), ("elements", [1, 1], [3, 3]), ("nd", [[2], [0]], [h, n])],
)
def test_what_is_gathered_stays_known(form, at, expected):
    assert known(ops.Gather(form), SHAPE, objects(at)).tolist() == expected


def test_a_size_taken_from_a_shape_is_a_scalar():
    found = known(ops.Gather("axis"), SHAPE, objects(0))
    assert found.shape == ()
    assert found[()] == n


@pytest.mark.parametrize("at", [[n], [7]])
def test_an_unknown_or_wrong_index_gives_nothing(at):
    type_ = TensorType("int64", (1,))
    assert elements(ops.Gather("axis"), [SHAPE, objects(at)], type_) is None


def test_dimensions_become_elements():
    assert known(ops.Elements((n, 2 * m), (2,))).tolist() == [n, 2 * m]


def test_a_symbolic_slice_gives_nothing():
    assert elements(ops.Slice((n,), (1,), (1,)), [SHAPE], TensorType("int64", (1,))) is None


def test_a_slice_outside_gives_nothing():
    assert elements(ops.Slice((2,), (2,), (1,)), [SHAPE], TensorType("int64", (2,))) is None


# Reductions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("sum", n + h + 3), ("prod", 3 * n * h), ("min", None), ("max", None), ("argmax", None)],
)
def test_sums_and_products_of_known_sizes_are_known(kind, expected):
    found = known(ops.Reduce(kind, (0,)), SHAPE)
    if kind == "argmax":
        assert found is None
    else:
        assert found.shape == ()
        assert expected is None or found[()] == expected


def test_reductions_along_one_axis():
    grid = objects([[n, 2], [m, h]])
    assert known(ops.Reduce("sum", (1,)), grid).tolist() == [n + 2, m + h]
    assert known(ops.Reduce("prod", (0,), True), grid).tolist() == [[n * m, 2 * h]]
    assert known(ops.Reduce("sum", (0, 1)), grid)[()] == n + m + h + 2


def test_reductions_of_an_expression():
    assert known(ops.Reduce("sum", (0,), body=i64 * 2), SHAPE)[()] == 2 * n + 2 * h + 6


def test_a_product_of_nothing_is_1_and_a_maximum_unknown():
    empty = np.empty(0, object)
    assert known(ops.Reduce("prod", (0,)), empty)[()] == 1
    assert elements(ops.Reduce("max", (0,)), [empty], TensorType("int64", ())) is None


# Maps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (i64 + 1, [n + 1, 4, h + 1]),
        (2 * i64 - 1, [2 * n - 1, 5, 2 * h - 1]),
        (-i64, [-n, -3, -h]),
        (abs(i64), [n, 3, h]),
        (i64 * i64, [n * n, 9, h * h]),
        (i64**2, [n * n, 9, h * h]),
        (i64 / 2, [n // 2, 1, h // 2]),
        ((i64 * 4) / 2, [2 * n, 6, 2 * h]),
        (i64.maximum(0), [n, 3, h]),
        (i64.minimum(-1), [-1, -1, -1]),
        (i64.cast("int32").cast("int64"), [n, 3, h]),
        (expr.where(i64.equals(-1), 7, i64), [n, 3, h]),
        (expr.where(i64 < 0, 7, i64), [n, 3, h]),
        (expr.size(m) + i64, [m + n, m + 3, m + h]),
        (index(0) + i64, [n, 4, h + 2]),
        (expr.check(i64 > -1, i64, "invalid_value"), [n, 3, h]),
        (i64.cast("float32") * 1.5, None),
    ],
)
def test_maps_of_a_shape(body, expected):
    op = ops.Map(body)
    found = known(op, SHAPE)
    assert (found if found is None else found.tolist()) == expected


@pytest.mark.parametrize(
    "body",
    [
        i64 % 4,
        i64.minimum(j64),
        i64.maximum(j64),
        expr.where(i64 < j64, i64, j64),
        expr.apply("sign", i64),
        abs(i64 - j64),
        expr.where(i64.equals(j64), 1, 0 * i64),
        i64 * j64 - j64 / 3,
        expr.apply("fmod", i64 - j64, const(3, "int64")),
    ],
)
def test_maps_of_two_shapes(body):
    assert known(ops.Map(body), SHAPE, objects([m, h, z])) is not None


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_a_comparison_is_0_or_1(op):
    found = known(ops.Map(expr.apply(op, i64, j64)), SHAPE, objects([m, h, z]))
    assert all(dims.bounds(d) in ((0, 1), (0, 0), (1, 1)) for d in found.flat)


@pytest.mark.parametrize("op", ["and", "or", "xor"])
def test_logic_of_comparisons_is_known(op):
    a, b = i64 < j64, i64.equals(input_(2, "int64"))
    assert known(ops.Map(expr.apply(op, a, ~b)), SHAPE, objects([m, h, z]), objects([z, 3, m])) is not None


def test_sizes_are_broadcast_to_each_other():
    found = known(ops.Map(i64 + j64), objects([[n], [m]]), objects([1, h]))
    assert found.tolist() == [[n + 1, n + h], [m + 1, m + h]]


@pytest.mark.parametrize("body", [i64 / j64, i64 % j64])
def test_a_divisor_that_may_be_zero_gives_nothing(body):
    assert known(ops.Map(body), SHAPE, objects([m])) is None
    assert known(ops.Map(body), objects([7]), objects([0])) is not None  # as the interpreter has it
    assert known(ops.Map(body), SHAPE, objects([h])) is not None


def test_a_check_that_may_fail_is_kept_for_the_run():
    guarded = expr.check(expr.apply("ne", i64, const(0, "int64")), i64, "division_by_zero")
    assert known(ops.Map(guarded), SHAPE) is None
    assert known(ops.Map(guarded), objects([h, 3])).tolist() == [h, 3]


def test_small_integers_must_fit():
    assert known(ops.Map(i64.cast("uint8")), objects([n])) is None
    assert known(ops.Map(i64.cast("uint8")), objects([dims.clamp(n, 0, 255)])) is not None
    assert known(ops.Map(i64.cast("int8")), objects([300])).tolist() == [44]


def test_unsigned_integers_must_not_be_negative():
    assert known(ops.Map(i64.cast("uint64")), objects([n])).tolist() == [n]
    assert known(ops.Map(i64.cast("uint64")), objects([z])) is None


def test_numbers_pass_through_floats():
    body = expr.floor(i64.cast("float32") * 0.5).cast("int64")
    assert known(ops.Map(body), objects([7, 8])).tolist() == [3, 4]
    assert known(ops.Map(body), SHAPE) is None


def test_bools_are_0_and_1():
    flags = objects([1, 0])
    found = known(ops.Map(~input_(0, "bool")), flags, dtypes_=["bool"])
    assert found.tolist() == [0, 1]


def test_an_unknown_operand_gives_nothing():
    type_ = TensorType("int64", (3,))
    assert elements(ops.Map(i64 + j64), [SHAPE, None], type_) is None
    assert elements(ops.Concat(0), [SHAPE, None], type_) is None
    assert elements(ops.Reshape((3,)), [None], type_) is None
    assert elements(ops.Reduce("sum", (0,)), [None], TensorType("int64", ())) is None


def test_an_operand_that_is_not_read_may_be_unknown():
    assert elements(ops.Map(j64 + 1), [None, SHAPE], TensorType("int64", (3,))).tolist() == [n + 1, 4, h + 1]


@pytest.mark.parametrize(
    "type_", [TensorType("float32", (3,)), TensorType("int64", (n,)), TensorType("int64", (257,))]
)
def test_floats_large_and_dynamic_tensors_have_none(type_):
    assert elements(ops.Map(i64 + 1), [SHAPE], type_) is None


def test_an_expression_of_10000_operations():
    body = i64
    for k in range(10_000):
        body = body + (k % 3 - 1)
    assert elements(ops.Map(body), [objects([n])], TensorType("int64", (1,))).tolist() == [n - 1 + 0]


# Random expressions ------------------------------------------------------------------------------

BINARY = ["add", "sub", "mul", "div", "mod", "fmod", "min", "max"]
COMPARE = ["lt", "le", "gt", "ge", "eq", "ne"]


def build(tree):
    match tree:
        case int():
            return const(tree, "int64")
        case str():
            return input_("nmhz".index(tree), "int64")
        case (op, a, b) if op in BINARY:
            return expr.apply(op, build(a), build(b))
        case (op, a, b, c, d):
            return expr.where(expr.apply(op, build(a), build(b)), build(c), build(d))


TREES = st.recursive(
    st.one_of(st.integers(-5, 5), st.sampled_from("nmhz")),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(BINARY), inner, inner),
        st.tuples(st.sampled_from(COMPARE), inner, inner, inner, inner),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(TREES)
def test_random_expressions_agree_with_the_interpreter(tree):
    body = build(tree)
    found = known(ops.Map(body, ()), *(objects(d) for d in (n, m, h, z)))
    assume(found is not None)
