"""Copies between strided views: every op that only moves elements, over every size of element."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness import BEST, TARGETS
from support.nests import check, check_blocked, compare, dense_choice, node_of, numbers, run

from onnxc.codegen import abi
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import loop_nest
from onnxc.codegen.nests.transposition import squares_together, tiles
from onnxc.ir import dims
from onnxc.ir.graph import Layout, TensorType
from onnxc.ir.ops import Broadcast, Concat, Gather, Pad, Reorder, Reshape, Slice, Transpose

DTYPES = pytest.mark.parametrize("dtype", ["int8", "float32", "complex128"])
few = settings(max_examples=20, deadline=None)


def variables(prefix, values, minimum=0):
    """(a variable for each value, their values)"""
    names = [f"{prefix}{k}" for k in range(len(values))]
    return tuple(dims.symbol(n, minimum) for n in names), dict(zip(names, values, strict=True))


# Transpose ---------------------------------------------------------------------------------------

PERMUTED = [
    ((5, 7), (1, 0)),
    ((100, 130), (1, 0)),
    ((64, 128), (1, 0)),
    ((210, 44), (1, 0)),
    ((17, 12, 64), (1, 0, 2)),
    ((3, 200), (1, 0)),
    ((200, 3), (1, 0)),
    ((2, 37, 4), (0, 2, 1)),
    ((2, 4, 37), (0, 2, 1)),
    ((1, 2, 1, 3), (3, 1, 0, 2)),
    ((2, 3, 4, 5, 6), (4, 2, 0, 3, 1)),
    ((8, 16, 32), (2, 1, 0)),
    ((2, 3, 20, 9), (0, 2, 3, 1)),
    ((2, 150, 4), (0, 2, 1)),
    ((2, 3, 2, 3, 2, 3, 2, 3), (7, 1, 5, 3, 4, 2, 6, 0)),
    ((0, 3), (1, 0)),
    ((1,), (0,)),
    ((), ()),
]


@TARGETS
@DTYPES
def test_axes_are_transposed_in_any_type(target, dtype):
    for shape, perm in PERMUTED:
        check(target, Transpose(perm), numbers(shape, dtype))


@TARGETS
@pytest.mark.parametrize("dtype", ["bool", "float16", "uint64", "complex64"])
def test_elements_of_any_size(target, dtype):
    check(target, Transpose((1, 0)), numbers((37, 70), dtype))
    check(target, Slice((9, 1), (5, 30), (-1, 2)), numbers((10, 70), dtype), only="static")
    check(target, Pad("reflect", (1, 2), (2, 1)), numbers((5, 7), dtype), only="static")


@few
@given(st.data())
def test_drawn_shapes_are_transposed_in_any_order(data):
    shape = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    perm = tuple(data.draw(st.permutations(range(len(shape)))))
    check(BEST, Transpose(perm), numbers(shape), only=data.draw(st.sampled_from(["static", "symbolic"])))


@pytest.mark.slow
def test_square_tiles_leave_no_element_out():
    for rows in (15, 16, 17, 31, 63, 64, 65, 130):
        for columns in (1, 4, 7, 16, 20, 64, 67):
            check(BEST, Transpose((1, 0)), numbers((rows, columns)), only="static")


@TARGETS
def test_squares_of_a_plane_with_few_columns_fill_registers(target):
    for item, columns in ((1, 8), (1, 24), (1, 31), (2, 16)):
        rows, columns = tiles(target, item, 200, columns)[0]
        squares = squares_together(target, item, rows, columns)
        assert squares * min(rows, columns) * item * 8 == target.vector_bits


@TARGETS
@pytest.mark.parametrize("dtype", ["bool", "float16"])
def test_squares_below_each_other_leave_no_element_out(target, dtype):
    for columns in (9, 12, 17, 24, 31):
        check(target, Transpose((0, 2, 1)), numbers((2, columns, 133), dtype), only="static")


@TARGETS
@pytest.mark.parametrize("count", (1, 2, 4, 5))
def test_transpositions_of_an_axis_that_turns_out_short(target, count):
    for shape in ((count, 77), (77, count), (2, count, 77)):
        perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        check(target, Transpose(perm), numbers(shape), only="symbolic")


@TARGETS
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "uint64"])
@pytest.mark.parametrize("count", (5, 6, 7, 8))
def test_transpositions_of_a_short_axis(target, count, dtype):
    for shape in ((count, 151), (151, count), (2, 70, count)):
        perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        check(target, Transpose(perm), numbers(shape, dtype), only="static")


@TARGETS
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32"])
@pytest.mark.parametrize("count", (2, 3, 4, 8))
def test_rows_of_few_bytes_move_as_they_are(target, count, dtype):
    for shape, perm in (((9, 21, count), (1, 0, 2)), ((2, 5, 3, count), (2, 0, 1, 3))):
        check(target, Transpose(perm), numbers(shape, dtype), only="static")
    check(target, Slice((3, 1), (7, count), (2, 1)), numbers((21, count + 3), dtype), only="static")
    check(target, Slice((9, 0), (10, count), (-1, 1)), numbers((10, count), dtype), only="static")
    check(target, Concat(1), numbers((5, count), dtype), numbers((5, 2), dtype), only="static")


# Slice -------------------------------------------------------------------------------------------

SLICED = [  # shape, starts, sizes, steps
    ((10,), (2,), (5,), (1,)),
    ((10,), (9,), (10,), (-1,)),
    ((100,), (99,), (50,), (-2,)),
    ((100,), (0,), (50,), (2,)),
    ((101,), (1,), (33,), (3,)),
    ((99,), (0,), (20,), (5,)),
    ((10, 20, 30), (1, 19, 2), (3, 5, 28), (3, -4, 1)),
    ((4, 100), (0, 3), (4, 90), (1, 1)),
    ((4, 100), (3, 99), (4, 100), (-1, -1)),
    ((5, 5), (0, 0), (0, 5), (1, 1)),
]


@TARGETS
@DTYPES
def test_slices_of_known_places(target, dtype):
    for shape, starts, sizes, steps in SLICED:
        check(target, Slice(starts, sizes, steps), numbers(shape, dtype))


@TARGETS
@DTYPES
def test_slices_of_places_that_the_run_tells(target, dtype):
    for shape, *places in SLICED:
        named = [
            variables(name, numbers_, None)
            for name, numbers_ in zip(("starts", "sizes", "steps"), places, strict=True)
        ]
        env = {k: v for _, values in named for k, v in values.items()}
        check(
            target, Slice(*(symbols for symbols, _ in named)), numbers(shape, dtype), env=env, only="symbolic"
        )


# Pad ---------------------------------------------------------------------------------------------

PADDED = [  # shape, before, after
    ((5,), (2,), (3,)),
    ((5, 7), (0, 2), (1, 0)),
    ((2, 3, 5, 7), (0, 0, 1, 2), (0, 0, 2, 1)),
    ((2, 3, 4), (1, 5, 9), (2, 7, 4)),
    ((1, 2), (3, 3), (3, 3)),
    ((3, 0), (0, 0), (2, 0)),
    ((70, 3), (0, 1), (1, 0)),
]


@TARGETS
@DTYPES
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_every_mode_pads_every_type(target, dtype, mode):
    for shape, before, after in PADDED:
        x = numbers(shape, dtype)
        value = [np.array(7).astype(x.dtype)] if mode == "constant" else []
        check(target, Pad(mode, before, after), x, *value, only="static")
        (first, some), (last, others) = variables("before", before), variables("after", after)
        check(target, Pad(mode, first, last), x, *value, env={**some, **others}, only="symbolic")


@TARGETS
def test_a_border_made_of_nothing_fails(target):
    x = numbers((0, 3))
    node = node_of(Pad("edge", (0, 1), (0, 1)), [x])
    assert run(node, dense_choice(node, target), [x], target) != []  # no rows, nothing to make
    node = node_of(Pad("edge", (1, 0), (0, 0)), [x])
    assert run(node, dense_choice(node, target), [x], target)[0] == abi.ERRORS["invalid_value"] + abi.SAYS


# Broadcast, Concat, Reshape ----------------------------------------------------------------------


@TARGETS
@DTYPES
def test_values_are_repeated_to_a_shape(target, dtype):
    for shape, to in [
        ((1,), (100,)),
        ((3, 1), (3, 50)),
        ((1, 50), (7, 50)),
        ((3, 1, 5), (2, 3, 4, 5)),
        ((), (3, 3)),
        ((2, 1, 3, 1), (2, 5, 3, 7)),
        ((1,), (0,)),
    ]:
        check(target, Broadcast(to), numbers(shape, dtype), only="static")
        symbols, env = variables("to", to)
        check(target, Broadcast(symbols), numbers(shape, dtype), env=env, only="symbolic")


@TARGETS
@DTYPES
def test_values_are_joined_along_an_axis(target, dtype):
    for shapes, axis in [
        (((2, 3), (2, 5)), 1),
        (((2, 3), (4, 3)), 0),
        (((2, 0), (2, 1), (2, 1)), 1),
        (((3, 2, 5), (3, 7, 5), (3, 1, 5)), 1),
        (((40, 1),) * 20, 1),
        (((3, 70),), 0),
    ]:
        parts = [numbers(shape, dtype, seed=k) for k, shape in enumerate(shapes)]
        check(target, Concat(axis), *parts, only="static")


@TARGETS
def test_concatenations_along_a_variable_axis(target):
    parts = [numbers((3, size, 5), seed=size) for size in (2, 0, 9)]
    types = [TensorType("float32", (3, dims.symbol(name), 5)) for name in "xyz"]
    check(target, Concat(1), *parts, types=types, only="symbolic")


def test_long_rows_are_moved_as_a_whole():
    parts = [numbers((3, length), seed=length) for length in (9001, 8192, 8191)]
    check(BEST, Concat(1), *parts, only="static")
    types = [TensorType("float32", (3, dims.symbol(name))) for name in "xyz"]
    check(BEST, Concat(1), *parts, types=types, only="symbolic")


@TARGETS
@DTYPES
def test_a_reshape_copies_its_operand(target, dtype):
    check(target, Reshape((3, 8)), numbers((4, 6), dtype), only="static")


def test_parts_that_are_many_cover_everything():
    check(BEST, Transpose((1, 0)), numbers((300, 500)))
    check(BEST, Reshape((300000,)), numbers((300, 1000), "int8"), only="static")
    check(BEST, Slice((1, 2), (299, 997), (1, 1)), numbers((300, 1000)))


# Layouts -----------------------------------------------------------------------------------------

SHAPES = [(2, 16, 5, 7), (1, 20, 3, 3), (2, 15, 4, 5), (1, 35, 9)]
LAYOUTS = [None, Layout(16, (0, 0)), Layout(16, (1, 2)), Layout(8, (1, 0)), Layout(16, (0, 1), pitch=5)]


def cut(layout, rank):
    return layout and replace(layout, halo=layout.halo[: rank - 2])


@TARGETS
@pytest.mark.parametrize("source", LAYOUTS, ids=str)
@pytest.mark.parametrize("wanted", LAYOUTS, ids=str)
def test_any_layout_is_reordered_to_any_other(target, source, wanted):
    for k, shape in enumerate(SHAPES):
        dtype, rank = ("float32", "int8")[k % 2], len(shape)
        x, spatial = numbers(shape, dtype, 1), tuple(dims.symbol(f"s{k}") for k in range(rank - 2))
        for axes in (shape, (dims.symbol("n"), shape[1], *spatial)):
            node = node_of(Reorder(cut(wanted, rank)), [x], [TensorType(dtype, axes, cut(source, rank))])
            compare(node, dense_choice(node, target), [x], target)


@TARGETS
@pytest.mark.parametrize("source", [None, Layout(16, (0, 1)), Layout(8, (1, 1), 5)], ids=str)
def test_reorders_fill_borders_with_a_zero_point(target, source):
    x = numbers((2, 20, 4, 3), "uint8", 1)
    wanted = Layout(16, (1, 2), 131)
    node = node_of(Reorder(wanted), [x], [TensorType("uint8", x.shape, source)])
    compare(node, dense_choice(node, target), [x], target)


BLOCKED = [
    (Concat(1), [(2, 16, 3, 5), (2, 32, 3, 5), (2, 7, 3, 5)]),
    (Concat(2), [(2, 9, 3, 5), (2, 9, 1, 5)]),
    (Concat(0), [(2, 9, 3, 5), (1, 9, 3, 5)]),
    (Slice((0, 16, 1, 0), (2, 9, 2, 3), (1, 1, 1, 2)), [(2, 25, 3, 5)]),
    (Slice((1, 0, 2, 4), (1, 16, 2, 3), (1, 1, -2, -2)), [(2, 25, 3, 5)]),
    (Concat(1), [(2, 24, 3, 5), (2, 24, 3, 5), (2, 7, 3, 5), (2, 1, 3, 5), (2, 40, 3, 5)]),
    (Slice((0, 5, 0, 0), (2, 30, 3, 5), (1, 1, 1, 1)), [(2, 41, 3, 5)]),
    (Slice((0, 3, 0, 0), (2, 1, 3, 5), (1, 1, 1, 1)), [(2, 4, 3, 5)]),
]


@TARGETS
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("channels", [3, 16, 40])
def test_images_whose_channels_are_last_become_blocked_ones_and_come_of_them(target, dtype, channels):
    x = numbers((2, 5, 7, channels), dtype, low=1)
    check_blocked(target, Transpose((0, 3, 1, 2)), [x], [None], out_halo=(1, 2))
    check_blocked(
        target,
        Transpose((0, 2, 1)),
        [x[0]],
        [None],
        types=[TensorType(dtype, (dims.symbol("n"), dims.symbol("w"), channels))],
    )
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    type_ = TensorType(dtype, planes.shape, Layout(target.block, (0, 0)))
    node = node_of(Transpose((0, 2, 3, 1)), [planes], [type_])
    (choice,) = [c for c in choices_of(loop_nest, node, target) if c.inputs != (None,)]
    compare(node, choice, [planes], target)


@TARGETS
@pytest.mark.parametrize("channels", [3, 16, 40])
def test_blocks_stay_what_they_are_where_other_axes_change_places(target, channels):
    x = numbers((2, channels, 3, 5, 7), low=1)
    layout = Layout(target.block, (0, 0, 1))
    for perm in ((2, 1, 0, 3, 4), (0, 1, 4, 3, 2), (3, 1, 2, 4, 0)):
        check_blocked(target, Transpose(perm), [x], [layout], out_halo=(0, 1, 2))
    open_ = TensorType("float32", (dims.symbol("n"), channels, dims.symbol("d"), 5, 7), layout)
    check_blocked(target, Transpose((2, 1, 0, 3, 4)), [x], [layout], types=[open_])


@TARGETS
@pytest.mark.parametrize("block", [8, 16])
def test_blocked_images_are_moved_as_they_are(target, block):
    for halo in ((0, 0), (1, 2)):
        layout = Layout(block, halo)
        for op, shapes in BLOCKED:
            arrays = [numbers(shape, low=1, seed=k) for k, shape in enumerate(shapes)]
            check_blocked(target, op, arrays, [layout] * len(arrays), out_halo=(2, 1))
        x = numbers((2, 9, 3, 5), low=1)
        check_blocked(target, Gather("axis", 2), [x, np.array([0, 0, 1, 1, -1])], [layout, None], (0, 1))
        check_blocked(target, Gather("axis", 3), [x, np.arange(10) // 2], [layout, None], (0, 1))
        zero = np.float32(0)
        check_blocked(
            target,
            Pad("constant", (0, 0, 1, 2), (0, 0, 0, 1)),
            [x, np.array(zero)],
            [layout, None],
            (1, 1),
            (1,),
        )
        whole = numbers((2, 16, 3, 5), low=1)
        check_blocked(
            target,
            Pad("constant", (0, 0, 1, 2), (1, 0, 0, 1)),
            [whole, np.array(zero + 3)],
            [layout, None],
            (1, 1),
        )
