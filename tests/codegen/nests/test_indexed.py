"""Gather and Scatter: every form, every index type, order of coinciding updates, and indices that are out
of range."""

import numpy as np
import pytest
from support.harness import BEST, TARGETS
from support.nests import check, compare, dense_choice, node_of, numbers, run, symbolic

from onnxc.codegen import abi
from onnxc.codegen.kernels import loop_nest
from onnxc.codegen.nests import indexed
from onnxc.codegen.nests.copies import Copy
from onnxc.codegen.nests.shuffled import Shuffled
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.ops import Gather, Map, Scatter
from onnxc.target import find_target

DTYPES = pytest.mark.parametrize("dtype", ["float32", "int8", "complex128", "bfloat16"])
REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])


def drawn(limit, shape, dtype="int64", seed=5):
    """Indices, negative ones too."""
    return np.asarray(np.random.default_rng(seed).integers(-limit, limit, shape)).astype(dtype)


def positions(shape, count, depth, batch=0, seed=5):
    return np.stack([drawn(shape[batch + c], count, seed=seed + c) for c in range(depth)], -1)


def known_depth(arrays):
    """Symbolic types of (x, positions, ...), the positions' last axis known."""
    types = [symbolic(a, "abc"[k]) for k, a in enumerate(arrays)]
    types[1] = TensorType(types[1].dtype, (*types[1].shape[:-1], arrays[1].shape[-1]))
    return types


@TARGETS
@DTYPES
def test_gather_along_an_axis(target, dtype):
    for shape, axis, count in [
        ((10,), 0, (3,)),
        ((10, 20), 0, (7,)),
        ((10, 20), 1, (7,)),
        ((4, 5, 6), 1, (2, 3)),
        ((4, 5, 6), 2, ()),
        ((5, 100), 0, (0,)),
        ((5, 0), 0, (3,)),
        ((1, 1), 0, (1,)),
        ((4, 300), 0, (2,)),
    ]:
        check(target, Gather("axis", axis), numbers(shape, dtype), drawn(shape[axis], count))


@TARGETS
@pytest.mark.parametrize("index", ["int8", "int32", "uint8", "uint32"])
def test_indices_of_any_integer_type(target, index):
    places = np.abs(drawn(10, (6,))) if index.startswith("u") else drawn(10, (6,))
    check(target, Gather("axis"), numbers((11, 3)), places.astype(index))


@pytest.mark.parametrize(
    ("op", "numbers_", "inside"),
    [
        (Gather("axis", 1), [0, 4, 1], [True]),
        (Gather("axis", 1), [-1, 4, 0], [False]),  # counted from the end
        (Gather("axis", 1), [5], [False]),
        (Gather("axis", 1), [], [False]),
        (Gather("nd"), [[2, 0], [0, 4]], [True, True]),
        (Gather("nd"), [[3, 0], [0, 4]], [False, True]),
    ],
)
def test_constant_indices_are_not_checked_where_all_are_inside(op, numbers_, inside):
    arrays = [np.zeros((3, 5), np.float32), np.array(numbers_, np.int64)]
    nest = indexed.stages(node_of(op, arrays, constant=(1,)), find_target("x86-64-v4"))[0][0][0]
    assert [component.inside for component in nest.components] == inside


EVEN = {
    "pairs": np.repeat(np.arange(37), 2),
    "fives": np.repeat(np.arange(37), 5),
    "rounds": np.tile(np.arange(37), 2),
    "backwards": np.arange(36, -1, -1),
    "every third, from the end": np.arange(-37, 0, 3),
    "channels shuffled": np.arange(36).reshape(3, 12).T,
    "one": np.array(5),
    "pairs of every second, twice": np.tile(np.repeat(np.arange(0, 37, 2), 2), 2),
}


@TARGETS
@pytest.mark.parametrize("name", EVEN)
def test_constant_indices_that_step_evenly_are_not_looked_up(target, name):
    dtype = {"pairs": "int8", "fives": "float64", "backwards": "bfloat16"}.get(name, "float32")
    for axis, shape in ((1, (5, 37)), (0, (37, 3))):
        arrays = [numbers(shape, dtype), EVEN[name]]
        node = node_of(Gather("axis", axis), arrays, constant=(1,))
        assert isinstance(indexed.stages(node, target)[0][0][0], (Copy, Shuffled))
        compare(node, dense_choice(node, target), arrays, target)


@TARGETS
def test_other_axes_of_such_a_copy_may_be_open(target):
    arrays = [numbers((3, 4, 37)), EVEN["pairs"]]
    types = [TensorType("float32", (dims.symbol("n"), 4, 37)), TensorType("int64", (74,))]
    node = node_of(Gather("axis", 2), arrays, types, constant=(1,))
    compare(node, dense_choice(node, target), arrays, target)


@TARGETS
@pytest.mark.parametrize("times", [2, 3, 5])
def test_indices_of_open_sizes_that_repeat_each_place_are_a_copy(target, times):
    n = dims.symbol("n")
    for axis, shape, open_shape in ((1, (5, 37), (5, n)), (0, (37, 3), (n, 3))):
        indices = make_node(Map(expr.index(0) / times, (n * times,)), []).outputs[0]
        arrays = [numbers(shape), np.arange(37 * times) // times]
        node = make_node(Gather("axis", axis), [Value(TensorType("float32", open_shape)), indices])
        assert isinstance(indexed.stages(node, target)[0][0][0], Copy)
        compare(node, dense_choice(node, target), arrays, target)


PERMUTED = {
    "pairs": np.arange(64) ^ 1,
    "fours": np.arange(60) ^ 3,
    "halves": np.roll(np.arange(64), 32),
    "few of few": np.arange(37) // 2 ^ 1,
    "mixed": np.random.default_rng(0).permutation(64).reshape(-1, 16)[:, ::-1].ravel() // 8 * 8 - 64,
}


@TARGETS
@DTYPES
@pytest.mark.parametrize("name", PERMUTED)
def test_rows_permuted_alike_by_constant_indices(target, dtype, name):
    rows = dims.symbol("n")
    arrays = [numbers((3, 5, 64), dtype), PERMUTED[name]]
    open_ = [TensorType(dtype, (rows, 5, 64)), TensorType("int64", arrays[1].shape)]
    for types in (None, open_):
        node = node_of(Gather("axis", 2), arrays, types, constant=(1,))
        compare(node, dense_choice(node, target), arrays, target)


def test_neighbours_that_are_exchanged_are_shuffled():
    for row in (64, 16, 24):
        node = node_of(Gather("axis", 1), [numbers((9, row)), np.arange(row) ^ 1], constant=(1,))
        assert isinstance(indexed.stages(node, find_target("x86-64-v3"))[0][0][0], Shuffled)


def test_indices_that_repeat_other_places_than_there_are_are_looked_up():
    n, m = dims.symbol("n"), dims.symbol("m")
    x = Value(TensorType("float32", (n, 3)))
    for body, count in ((expr.index(0) / 2, 2 * m), (expr.index(0) / 2 + 1, 2 * n), (expr.index(0), 2 * n)):
        node = make_node(Gather("axis", 0), [x, make_node(Map(body, (count,)), []).outputs[0]])
        assert not isinstance(indexed.stages(node, BEST)[0][0][0], Copy)


@TARGETS
@DTYPES
def test_constant_indices_in_any_order(target, dtype):
    for columns, count in ((20, 3), (300, 70)):
        arrays = [numbers((9, columns), dtype), drawn(columns, (count,))]
        node = node_of(Gather("axis", 1), arrays, constant=(1,))
        compare(node, dense_choice(node, target), arrays, target)


@TARGETS
@DTYPES
def test_elements_are_gathered_along_an_axis(target, dtype):
    for shape, count, axis in [
        ((10,), (4,), 0),
        ((5, 6, 7), (5, 6, 7), 0),
        ((5, 6, 7), (3, 6, 2), 1),
        ((5, 6, 7), (2, 3, 9), 2),
    ]:
        check(target, Gather("elements", axis), numbers(shape, dtype), drawn(shape[axis], count))


POSITIONS = [((5, 6, 7), (3,), 2, 0), ((5, 6, 7), (4,), 3, 0), ((5, 6, 7), (2, 2), 1, 0), ((5,), (0,), 1, 0)]


@TARGETS
@DTYPES
def test_gather_at_positions(target, dtype):
    for shape, count, depth, batch in [*POSITIONS, ((5, 6, 7), (5, 3), 1, 1), ((5, 6, 7), (5, 6, 2), 1, 2)]:
        arrays = [numbers(shape, dtype), positions(shape, count, depth, batch)]
        check(target, Gather("nd", 0, batch), *arrays, types=known_depth(arrays))


@TARGETS
@REDUCTIONS
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_elements_are_scattered_along_an_axis(target, reduction, dtype):
    for shape, count, axis in [
        ((10,), (4,), 0),
        ((5, 6, 7), (5, 6, 7), 0),
        ((5, 6, 7), (3, 6, 2), 1),
        ((5, 6), (2, 40), 1),
    ]:
        if count[axis] > shape[axis] or all(a <= b for a, b in zip(count, shape)):
            arrays = (numbers(shape, dtype, -5, 5), drawn(shape[axis], count), numbers(count, dtype, -3, 3))
            check(
                target,
                Scatter("elements", axis, reduction),
                *arrays,
                only=None if dtype == "float32" else "static",
            )


@TARGETS
@REDUCTIONS
@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16"])
def test_scatter_at_positions(target, reduction, dtype):
    for shape, count, depth, _ in POSITIONS:
        updates = numbers((*count, *shape[depth:]), dtype, -3, 3)
        arrays = [numbers(shape, dtype, -5, 5), positions(shape, count, depth), updates]
        check(
            target,
            Scatter("nd", 0, reduction),
            *arrays,
            types=known_depth(arrays),
            only=None if dtype == "float32" else "static",
        )


@TARGETS
def test_the_last_of_coinciding_updates_stays(target):
    places = np.zeros((50, 1), np.int64)
    check(target, Scatter("nd"), numbers((3, 400)), places, numbers((50, 400), seed=2), only="static")
    check(
        target,
        Scatter("elements", 1),
        numbers((3, 40)),
        np.zeros((3, 40), np.int64),
        numbers((3, 40), seed=2),
    )
    check(
        target,
        Scatter("elements", 0),
        numbers((40, 300)),
        np.zeros((40, 300), np.int64),
        numbers((40, 300), seed=2),
    )


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128", "bfloat16"])
def test_what_a_repeated_number_is_scattered_over_needs_only_that_number(target, dtype):
    arrays = [np.full((5, 3), 7, dtypes.numpy_dtype(dtype)), drawn(5, (2, 3)), numbers((2, 3), dtype)]
    whole = Constant(dtype, (5, 3), splat=7)
    types = [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
    values = [Value(t, "", whole if k == 0 else None) for k, t in enumerate(types)]
    for reduction in ("none",) if dtype == "complex128" else ("none", "add"):
        node = make_node(Scatter("elements", 0, reduction), values)
        choice = dense_choice(node, target)
        compare(node, choice, arrays, target)
        assert loop_nest.pack(node, choice, 0).shape == ()


@TARGETS
def test_strings_and_complex_numbers_are_scattered_as_they_are(target):
    check(
        target,
        Scatter("elements", 0),
        numbers((5, 3), "complex128"),
        drawn(5, (2, 3)),
        numbers((2, 3), "complex128"),
    )


@TARGETS
@pytest.mark.parametrize(
    "op, places, wrong",
    [
        (Gather("axis", 0), np.array([1, 5]), 5),
        (Gather("axis", 1), np.array([-7]), -7),
        (Gather("nd"), np.array([[1, 6]]), 6),
        (Gather("elements", 1), np.full((5, 6), 6), 6),
        (Gather("elements", 1), np.arange(35).reshape(5, 7), 6),
        (Gather("axis", 1), np.array([0, 5, 1, 7, -9, 0, 0, 0, 0]), 7),
        (Gather("axis", 1), np.array([1 << 62]), 1 << 62),
        (Gather("axis", 1), np.array([-1 << 63]), -1 << 63),
        (Gather("axis", 0), np.array([-6], np.int32), -6),
    ],
    ids=str,
)
def test_an_index_outside_ends_the_run(target, op, places, wrong):
    array = numbers((5, 6))
    node = node_of(op, [array, places])
    found = run(node, dense_choice(node, target), [array, places], target)
    assert found == (abi.ERRORS["index_out_of_range"], wrong)


@TARGETS
def test_nothing_is_written_outside(target):
    array, places = numbers((5, 6)), np.array([[1], [5]])
    node = node_of(Scatter("nd"), [array, places, numbers((2, 6))])
    found = run(node, dense_choice(node, target), [array, places, numbers((2, 6))], target)
    assert found == (abi.ERRORS["index_out_of_range"], 5)


@TARGETS
def test_an_empty_tensor_has_no_place(target):
    array, places = numbers((0, 6)), np.array([0])
    node = node_of(Gather("axis", 0), [array, places])
    assert run(node, dense_choice(node, target), [array, places], target) == (
        abi.ERRORS["index_out_of_range"],
        0,
    )
