"""The interpreter: elementwise ops, reductions, contractions, movement, gathering and sorting."""

from fractions import Fraction

import numpy as np
import pytest
from support.interpreting import close, fails, integers, normal, run, runtime, same

from onnxc.ir import dims, dtypes, expr, interpret, ops
from onnxc.ir.expr import const, index, input_

x32 = input_(0, "float32")

# Map ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((0, 4), (1, 4)), ((1,), (1,))]
)
def test_map_broadcasts_its_operands(left, right):
    a, b = normal(*left), normal(*right)
    same(run(ops.Map(x32 * input_(1, "float32") + 1), a, b), a * b + np.float32(1))


def test_map_of_no_operands_has_a_shape_of_its_own():
    n = dims.symbol("n")
    same(run(ops.Map(index(0) * 10 + index(1), (n, 3)), n=2), np.array([[0, 1, 2], [10, 11, 12]]))


def test_map_reads_sizes():
    same(
        run(ops.Map(input_(0, "int64") * expr.size(dims.symbol("n") + 1)), np.arange(3), n=4),
        np.arange(3) * 5,
    )


def test_map_reports_a_failed_check():
    a = input_(0, "int32")
    guarded = expr.check(expr.apply("ne", a, const(0, "int32")), 6 / a, "division_by_zero")
    same(run(ops.Map(guarded), np.array([1, 2, 3], np.int32)), np.array([6, 3, 2], np.int32))
    fails("division_by_zero", ops.Map(guarded), np.array([1, 0], np.int32))


def test_map_refuses_shapes_that_do_not_broadcast():
    fails("dims_mismatch", ops.Map(x32 + input_(1, "float32")), normal(2), normal(3))


# Reduce ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(), (0,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["sum", "prod", "min", "max"])
def test_reductions_are_those_of_numpy(kind, axes, keepdims):
    a = normal(3, 1, 5)
    close(run(ops.Reduce(kind, axes, keepdims), a), np.asarray(getattr(np, kind)(a, axes, keepdims=keepdims)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_reduced_integers_wrap_in_their_type(dtype):
    a = np.full(7, 100, dtype)
    same(run(ops.Reduce("sum", (0,)), a), np.asarray(np.sum(a, dtype=dtype)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_small_floats_do_not_lose_small_terms(dtype):
    a = np.ones(4096).astype(dtypes.numpy_dtype(dtype))
    assert float(run(ops.Reduce("sum", (0,)), a)) == 4096


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [
        ("sum", "float32", 0),
        ("prod", "float32", 1),
        ("max", "float32", -np.inf),
        ("min", "float32", np.inf),
        ("max", "int8", -128),
        ("min", "uint8", 255),
        ("and", "bool", True),
        ("or", "bool", False),
        ("sum", "int64", 0),
    ],
)
def test_reducing_nothing_gives_the_neutral_element(kind, dtype, expected):
    same(run(ops.Reduce(kind, (1,)), np.zeros((2, 0), dtype)), np.full(2, expected, dtype))


def test_reduce_of_an_expression():
    a = normal(4, 6)
    close(run(ops.Reduce("sum", (1,), body=x32 * x32), a), (a * a).sum(1))
    rows = normal(4, 1)
    close(run(ops.Reduce("max", (1,), body=x32 - input_(1, "float32")), a, rows), (a - rows).max(1))


def test_and_and_or_join_truth_along_an_axis():
    a = np.array([[True, False], [True, True]])
    same(run(ops.Reduce("and", (1,)), a), a.all(1))
    same(run(ops.Reduce("or", (1,)), a), a.any(1))


@pytest.mark.parametrize(
    ("kind", "expected"), [("argmin", 1), ("argmin_last", 3), ("argmax", 0), ("argmax_last", 4)]
)
def test_index_of_an_extreme(kind, expected):
    a = np.array([[5, 1, 3, 1, 5]], np.float32)
    same(run(ops.Reduce(kind, (1,)), a), np.array([expected]))
    same(run(ops.Reduce(kind, (1,), True), a), np.array([[expected]]))


def test_maximum_of_nan_is_nan():
    assert np.isnan(run(ops.Reduce("max", (0,)), np.array([1, np.nan, 2], np.float32)))


# Contract ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize(
    ("lhs", "rhs", "out"),
    [
        ("mk", "kn", "mn"),
        ("bmk", "bkn", "bmn"),
        ("bmk", "kn", "bmn"),
        ("bhqd", "bhkd", "bhqk"),
        ("mk", "nk", "nm"),
        ("k", "k", ""),
        ("a", "b", "ab"),
        ("abc", "cad", "bd"),
        ("iik", "k", "i"),
        ("abk", "k", "a"),
    ],
)
def test_contract_is_einsum(lhs, rhs, out, size):
    sizes = {c: 2 + k for k, c in enumerate(sorted({*lhs, *rhs}))} | {"k": size, "c": size}
    a, b = normal(*(sizes[c] for c in lhs)), normal(*(sizes[c] for c in rhs))
    close(
        run(ops.Contract(lhs, rhs, out, "float32"), a, b), np.asarray(np.einsum(f"{lhs},{rhs}->{out}", a, b))
    )


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8", "uint8", "int64", "uint64", "int32"])
def test_contract_of_every_type(dtype):
    a, b = integers(5, 7, dtype=dtype, low=0, high=9), integers(7, 3, dtype=dtype, low=0, high=9)
    same(run(ops.Contract("mk", "kn", "mn", dtype), a, b), (a @ b).astype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_contract_accumulates_in_its_own_type(dtype):
    a, b = normal(4, 512, dtype=dtype), normal(512, 3, dtype=dtype)
    narrow = input_(0, "float32").cast(dtype)
    result = run(ops.Contract("mk", "kn", "mn", "float32", narrow), a, b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert result.dtype == a.dtype
    np.testing.assert_allclose(result.astype(np.float64), exact, rtol=1e-2, atol=1e-1)


def test_contract_of_bytes_in_int32():
    a, b = (
        integers(4, 300, dtype="uint8", low=0, high=256),
        integers(300, 5, dtype="int8", low=-128, high=128),
    )
    same(run(ops.Contract("mk", "kn", "mn", "int32"), a, b), a.astype(np.int32) @ b.astype(np.int32))


def test_contract_of_large_integers_wraps():
    a = np.full((1, 4), 2**40, np.int64)
    same(run(ops.Contract("mk", "kn", "mn", "int64"), a, a.T), np.array([[4 * 2**80 % 2**64]], np.int64))


def test_contract_of_bools():
    a, b = integers(4, 5, low=0, high=2).astype(bool), integers(5, 3, low=0, high=2).astype(bool)
    same(run(ops.Contract("mk", "kn", "mn", "bool"), a, b), a @ b)


def test_contract_applies_its_epilogue():
    a, b, bias = normal(4, 6), normal(6, 3), normal(3)
    op = ops.Contract("mk", "kn", "mn", "float32", (x32 + input_(1, "float32")).maximum(0))
    close(run(op, a, b, bias), np.maximum(a @ b + bias, 0))


@pytest.mark.parametrize("sizes", [(1, 3), (3, 1), (3, 3), (0, 1)])
def test_contract_repeats_operands_of_one_matrix(sizes):
    a, b = normal(sizes[0], 4, 6), normal(sizes[1], 6, 5)
    close(run(ops.Contract("bmk", "bkn", "bmn", "float32", repeated="b"), a, b), a @ b)


def test_contract_checks_the_sizes_of_what_repeats():
    op = ops.Contract("bmk", "bkn", "bmn", "float32", repeated="b")
    fails("dims_mismatch", op, normal(2, 4, 6), normal(3, 6, 5))


def test_contract_checks_sizes():
    fails("dims_mismatch", ops.Contract("mk", "kn", "mn", "float32"), normal(2, 3), normal(4, 2))


def test_an_epilogue_may_not_grow_the_result():
    op = ops.Contract("mk", "kn", "mn", "float32", x32 + input_(1, "float32"))
    fails("dims_mismatch", op, normal(1, 3), normal(3, 2), normal(5, 2))


# Movement ----------------------------------------------------------------------------------------

EVERY_TYPE = ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int64", "bool", "string"]


def anything(*shape, dtype):
    if dtype == "string":
        return np.array([f"s{k}" for k in range(int(np.prod(shape)))], object).reshape(shape)
    return integers(*shape, low=0, high=50).astype(dtypes.numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", EVERY_TYPE)
def test_movement_of_every_type(dtype):
    a = anything(2, 3, 4, dtype=dtype)
    same(run(ops.Reshape((4, 6)), a), a.reshape(4, 6))
    same(run(ops.Transpose((2, 0, 1)), a), a.transpose(2, 0, 1))
    same(run(ops.Slice((0, 1, 3), (2, 2, 2), (1, 1, -2)), a), a[:, 1:3, 3::-2])
    same(run(ops.Broadcast((5, 2, 3, 4)), a), np.broadcast_to(a, (5, 2, 3, 4)))
    same(run(ops.Concat(1), a, a[:, :1]), np.concatenate([a, a[:, :1]], 1))
    rows = np.arange(14).reshape(7, 2)
    same(run(ops.Unfold(3, 2), rows), np.stack([rows[k : k + 3].ravel() for k in (0, 2, 4)]))
    same(run(ops.Gather("axis", 1), a, np.array([2, -3])), a[:, [2, 0]])
    fill = anything(1, dtype=dtype).reshape(())
    padded = run(ops.Pad("constant", (0, 1, 0), (1, 0, 0)), a, fill)
    same(padded[:2, 1:], a)
    assert (padded[2:] == fill).all() and (padded[:, :1] == fill).all()


def test_reshape_to_a_symbolic_shape():
    n = dims.symbol("n")
    assert run(ops.Reshape((n, 2)), np.arange(6), n=3).shape == (3, 2)
    fails("invalid_reshape", ops.Reshape((n, 2)), np.arange(6), n=2)
    assert run(ops.Reshape((0, 5)), np.zeros((5, 0))).shape == (0, 5)


@pytest.mark.parametrize(
    ("start", "size", "step"), [(0, 7, 1), (6, 7, -1), (1, 3, 2), (5, 2, -3), (0, 0, 1), (3, 1, 9)]
)
def test_slices_begin_and_step_as_told(start, size, step):
    a = np.arange(7)
    same(run(ops.Slice((start,), (size,), (step,)), a), a[[start + k * step for k in range(size)]])


def test_a_slice_must_lie_inside():
    fails("index_out_of_range", ops.Slice((5,), (3,), (1,)), np.arange(7))
    fails("index_out_of_range", ops.Slice((1,), (3,), (-1,)), np.arange(7))


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize(
    ("before", "after"), [((0, 2), (1, 3)), ((2, 0), (0, 0)), ((1, 3), (2, 3)), ((5, 9), (4, 11))]
)
def test_padding_that_repeats_the_tensor(mode, before, after):
    a = normal(3, 4)
    same(run(ops.Pad(mode, before, after), a), np.pad(a, list(zip(before, after, strict=True)), mode=mode))


def test_padding_one_element():
    a = np.array([7])
    for mode in ("edge", "reflect", "wrap"):
        same(run(ops.Pad(mode, (2,), (1,)), a), np.full(4, 7))


def test_nothing_cannot_be_repeated():
    fails("dims_mismatch", ops.Pad("edge", (1,), (0,)), np.zeros(0))
    assert run(ops.Pad("edge", (0,), (0,)), np.zeros(0)).shape == (0,)


def test_broadcast_refuses_another_size():
    fails("dims_mismatch", ops.Broadcast((3,)), np.zeros(2))
    fails("dims_mismatch", ops.Broadcast((1,)), np.zeros(2))


def test_unfold_refuses_what_no_window_fits_in():
    same(run(ops.Unfold(3, 1), np.zeros((2, 2))), np.zeros((0, 6)))
    fails("dims_mismatch", ops.Unfold(3, 1), np.zeros((1, 2)))


def test_concat_refuses_other_sizes():
    fails("dims_mismatch", ops.Concat(0), np.zeros((1, 2)), np.zeros((1, 3)))


# Gather and Scatter ------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_gather_along_an_axis(axis, shape):
    a, at = normal(3, 4, 5), integers(*shape, dtype="int64", low=-3, high=3)
    same(run(ops.Gather("axis", axis), a, at), np.take(a, at, axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_elements_are_taken_along_an_axis(axis):
    a, at = normal(3, 4), integers(3, 4, dtype="int64", low=-3, high=3)
    same(run(ops.Gather("elements", axis), a, at), np.take_along_axis(a, at, axis))


def test_gather_fewer_elements_than_there_are():
    a, at = normal(3, 4), integers(2, 2, dtype="int64", low=0, high=3)
    same(run(ops.Gather("elements", 0), a, at), np.take_along_axis(a[:, :2], at, 0))
    fails("dims_mismatch", ops.Gather("elements", 0), a, np.zeros((1, 5), np.int64))


@pytest.mark.parametrize(
    ("x", "indices", "batch"),
    [
        ((3, 4, 5), (2, 3), 0),
        ((3, 4, 5), (6, 2), 0),
        ((3, 4, 5), (2, 2, 1), 0),
        ((2, 4, 5), (2, 3, 1), 1),
        ((2, 3, 4, 5), (2, 3, 7, 2), 2),
        ((2, 3, 4), (2, 1), 1),
        ((3, 4), (0, 2), 0),
    ],
)
def test_gather_nd_is_that_of_onnxruntime(x, indices, batch):
    a, at = normal(*x), integers(*indices, dtype="int64", low=-2, high=2)
    expected = runtime("GatherND", [a, at], batch_dims=batch)[0]
    same(run(ops.Gather("nd", batch=batch), a, at), expected)


@pytest.mark.parametrize("op", [ops.Gather("axis"), ops.Gather("elements"), ops.Gather("nd")])
@pytest.mark.parametrize("wrong", [3, -4, 2**40, -(2**63)])
def test_an_index_outside_fails(op, wrong):
    assert fails("index_out_of_range", op, np.arange(3.0), np.array([wrong])) == wrong


@pytest.mark.parametrize("wrong", [np.array([3]), np.array([-4])])
def test_nothing_can_be_gathered_from_nothing(wrong):
    fails("index_out_of_range", ops.Gather("axis"), np.zeros((0, 2)), wrong)
    assert run(ops.Gather("axis"), np.zeros((0, 2)), np.zeros(0, np.int64)).shape == (0, 2)


REDUCTIONS = [("none", None), ("add", np.add), ("mul", np.multiply), ("min", np.minimum), ("max", np.maximum)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int64", "uint8"])
@pytest.mark.parametrize(("reduction", "combine"), REDUCTIONS)
def test_elements_are_scattered_one_behind_the_other(reduction, combine, dtype):
    a, updates = anything(4, 5, dtype=dtype), anything(3, 5, dtype=dtype)
    at = integers(3, 5, dtype="int64", low=-4, high=4)
    if reduction == "mul":  # small, so that floats stay exact
        a, updates = (
            (a.astype(np.int64) % 3).astype(a.dtype),
            (updates.astype(np.int64) % 3).astype(a.dtype),
        )
    expected = a.copy()
    for r, c in np.ndindex(3, 5):
        old, new = expected[at[r, c], c], updates[r, c]
        expected[at[r, c], c] = new if combine is None else combine(old, new)
    same(run(ops.Scatter("elements", 0, reduction), a, at, updates), expected)


@pytest.mark.parametrize(("reduction", "combine"), REDUCTIONS)
def test_scatter_nd_combines_updates_one_behind_the_other(reduction, combine):
    a, updates, at = normal(4, 5, 2), normal(6, 2), integers(6, 2, dtype="int64", low=-4, high=4)
    expected = a.copy()
    for k in range(6):
        place = tuple(at[k])
        expected[place] = updates[k] if combine is None else combine(expected[place], updates[k])
    close(run(ops.Scatter("nd", reduction=reduction), a, at, updates), expected)


def test_the_last_update_wins():
    a, at = np.zeros(3, np.float32), np.array([1, 1, 1])
    same(
        run(ops.Scatter("elements"), a, at, np.array([5, 6, 7], np.float32)), np.array([0, 7, 0], np.float32)
    )


def test_scatter_checks_indices_and_shapes():
    a = np.zeros(3, np.float32)
    assert fails("index_out_of_range", ops.Scatter("elements"), a, np.array([3]), a[:1]) == 3
    fails("dims_mismatch", ops.Scatter("elements"), a, np.array([0, 1]), a[:1])
    fails("dims_mismatch", ops.Scatter("nd"), a, np.array([[0], [1]]), a)


SCALAR = np.array("a", object)


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        (ops.Gather("axis"), [np.array(["b", "a"], object), np.array(1)]),
        (ops.Gather("nd"), [np.array(["b", "a"], object), np.array([1])]),
        (ops.Scatter("nd"), [np.array("b", object), np.zeros(0, np.int64), SCALAR]),
        (ops.Slice((), (), ()), [SCALAR]),
        (ops.Map(input_(0, "string")), [SCALAR]),
    ],
)
def test_a_string_alone_is_a_tensor_as_many_are(op, operands):
    (found,) = interpret.run_op(op, operands, {})
    assert (found.dtype, found.shape, found.tolist()) == (object, (), "a")


# Trees -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_over_trees_are_rounded_once(dtype):
    rng = np.random.default_rng(1)
    weights = (rng.standard_normal((300, 2)) * 10.0 ** rng.integers(-3, 3, (300, 2))).astype(dtype)
    weights[:, 1] = dtype(1 / 300)
    nodes = [np.zeros(0, kind) for kind in (np.int32, dtype, np.int32, np.int32, bool)]
    roots, targets = ~np.arange(300, dtype=np.int32), np.zeros(300, np.int32)  # trees that are leaves
    found = run(ops.TreeEnsemble("sum", 2, 0, 0), np.zeros((1, 1), dtype), *nodes, roots, targets, weights)
    same(found, np.array([[dtype(sum(map(Fraction, column.tolist()))) for column in weights.T]]))


# Cumulate, Sort, Random --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exclusive", "reverse"), [(False, False), (False, True), (True, False), (True, True)]
)
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (3, 0)])
def test_totals_run_in_either_direction_with_or_without_their_own(kind, exclusive, reverse, shape):
    a = integers(*shape, dtype="float32", low=1, high=4)
    expected = np.zeros_like(a)
    for row in range(shape[0]):
        total = np.float32(kind == "prod")
        for k in reversed(range(shape[1])) if reverse else range(shape[1]):
            before, total = total, total + a[row, k] if kind == "sum" else total * a[row, k]
            expected[row, k] = before if exclusive else total
    same(run(ops.Cumulate(kind, 1, exclusive, reverse), a), expected)


def test_cumulated_integers_wrap():
    same(run(ops.Cumulate("sum", 0), np.full(3, 100, np.int8)), np.array([100, -56, 44], np.int8))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "int64", "uint64", "bool"])
def test_sort_is_stable(dtype, descending):
    a = integers(2, 50, low=0, high=5).astype(dtypes.numpy_dtype(dtype))
    values, order = run(ops.Sort(1, descending), a)
    for row in range(2):
        keys = [int(v) for v in a[row].astype(np.int64)]
        expected = sorted(range(50), key=lambda k: (-keys[k] if descending else keys[k], k))
        assert order[row].tolist() == expected
        same(values[row], a[row][expected])


def test_nan_is_the_greatest():
    a = np.array([np.nan, 1, np.inf, -np.inf], np.float32)
    assert run(ops.Sort(0), a)[1].tolist() == [3, 1, 2, 0]
    assert run(ops.Sort(0, True), a)[1].tolist() == [0, 2, 1, 3]


def test_random_numbers_have_their_type_shape_and_range():
    n = dims.symbol("n")
    values = run(ops.Random("uniform", "float16", (n, 3), 2.0, 5.0), n=100)
    assert values.shape == (100, 3)
    assert values.dtype == np.float16
    assert 2 <= values.min() < 3 < 4 < values.max() <= 5
    close(np.mean(run(ops.Random("normal", "float64", (10_000,), 3.0, 0.1))), np.float64(3), 1e-2)


def test_a_seed_repeats_the_numbers():
    op = ops.Random("uniform", "float32", (5,), 0.0, 1.0, 7.0)
    same(run(op), run(op))
