"""Sort: stable, of any type and axis, NaN the greatest; short lines by rank and long ones by radix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import harness
from support.harness import BEST, TARGETS
from support.nests import node_of, numbers, run, symbolic

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import sort
from onnxc.ir import dims
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Sort

SHAPES = [
    ((5,), 0),
    ((1,), 0),
    ((0,), 0),
    ((64,), 0),
    ((65,), 0),
    ((1000,), 0),
    ((3, 200), 1),
    ((200, 3), 0),
    ((2, 17, 5), 1),
    ((3, 0), 0),
    ((0, 3), 0),
]


def check(target, op, array, is_symbolic=False):
    """Values to the bit, and places."""
    node = node_of(op, [array], [symbolic(array, "n")] if is_symbolic else None)
    (choice,) = choices_of(sort, node, target)
    results = run(node, choice, [array], target)
    for (found, _), expected in zip(
        results, run_node(node, [array], harness.bind(node, [array])), strict=True
    ):
        assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


@TARGETS
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
    ],
)
def test_lines_of_every_type(target, dtype, descending):
    for shape, axis in SHAPES:
        check(target, Sort(axis, descending), numbers(shape, dtype))


@TARGETS
def test_lines_of_variable_length(target):
    for shape, axis in SHAPES:
        check(target, Sort(axis, True), numbers(shape), is_symbolic=True)


@TARGETS
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_zeros_infinities_and_nan_have_their_place(target, dtype, descending):
    for length in (40, 400):
        array = numbers((length,), dtype)
        array[[3, 30]], array[[4, 20]], array[[5, 21]], array[6], array[7] = (
            np.nan,
            -0.0,
            0.0,
            np.inf,
            -np.inf,
        )
        array[8] = -array[3]  # a NaN with its sign set
        check(target, Sort(0, descending), array)


@TARGETS
@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8"])
def test_the_ends_of_an_integer_type_have_their_place(target, dtype):
    limits = np.iinfo(dtype)
    for length in (40, 400):
        array = numbers((length,), dtype)
        array[:4] = limits.max, limits.min, limits.max - 1, limits.min + 1
        check(target, Sort(0), array)
        check(target, Sort(0, True), array)


def test_equal_elements_keep_their_order():
    for length in (60, 3000):
        check(BEST, Sort(0), numbers((length,), low=0, high=3))
        check(BEST, Sort(0, True), numbers((length,), low=0, high=3))
        check(BEST, Sort(0), np.zeros(length, np.float32))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(width=32), max_size=150), st.booleans())
def test_drawn_floats_are_sorted_as_numpy_sorts_them(values, descending):
    check(BEST, Sort(0, descending), np.array(values, np.float32), is_symbolic=True)


@TARGETS
@pytest.mark.parametrize("count", [0, 1, 5, 32, 100])
def test_the_first_of_a_line_are_those_of_the_whole_line_sorted(target, count):
    check(target, Sort(1, True, count), numbers((3, 200), "float32"))
    check(target, Sort(0, True, count), numbers((200, 3), "int8"))
    check(target, Sort(0, False, count), numbers((117,), low=0, high=3), is_symbolic=True)


@TARGETS
@pytest.mark.parametrize("length", [8, 16, 17, 31, 33, 64])
def test_the_first_of_a_short_line_are_those_of_the_whole_line_sorted(target, length):
    for count in sorted({1, 5, 8, length // 2, length // 2 + 1, length}):
        if count <= length:
            check(target, Sort(1, True, count), numbers((3, length), "float32"))
            check(target, Sort(0, False, count), numbers((length, 3), "int16", low=0, high=9))


@TARGETS
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int16", "int32", "uint64", "int64"]
)
def test_more_than_a_few_of_a_long_line(target, dtype):
    for descending in (False, True):
        check(target, Sort(1, descending, 100), numbers((2, 1003), dtype))
        check(target, Sort(0, descending, 100), numbers((501, 2), dtype), is_symbolic=True)
    check(target, Sort(0, True, 100), np.zeros(777, dtype))
    check(target, Sort(0, False, 300), numbers((777,), dtype, low=0, high=3))


def test_the_first_of_a_long_line_whose_keys_have_all_bits():
    for dtype in ("int8", "uint16", "int64", "uint32"):
        limits = np.iinfo(dtype)
        array = np.array([limits.max, limits.min] * 250 + [limits.max], dtype)
        for count in (65, 250, 251, 400):
            check(BEST, Sort(0, False, count), array)
            check(BEST, Sort(0, True, count), array)
    odd = np.float32([np.nan, -0.0, 0.0, -np.nan, np.inf, 1.0, 1.0, -np.inf] * 100)
    for descending in (False, True):
        check(BEST, Sort(0, descending, 150), odd)


def test_more_elements_of_a_line_come_before_a_bound_than_their_type_has_numbers():
    array = np.zeros(150_000, np.int8)
    array[::1000] = 1
    check(BEST, Sort(0, False, 100_000), array)
    check(BEST, Sort(0, True, 100), array)


@TARGETS
def test_the_first_of_a_line_that_may_be_shorter(target):
    for length in (0, 3, 64, 65, 300):
        for count in (7, dims.symbol("n1")):
            wanted = dims.minimum(dims.symbol("n1"), count)
            check(target, Sort(1, True, wanted), numbers((2, length)), is_symbolic=True)


def test_the_first_of_short_lines_nans_and_signed_zeros():
    odd = np.float32([np.nan, -0.0, 0.0, -np.nan, np.inf, 1.0, 1.0, -np.inf] * 10)
    for descending in (False, True):
        check(BEST, Sort(0, descending, 3), odd[:20])
        for count in (3, 64):
            check(BEST, Sort(0, descending, count), odd)
            check(BEST, Sort(0, descending, count), np.sort(odd))


@TARGETS
@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "bfloat16", "int8", "uint16", "int32", "int64", "bool"]
)
def test_the_first_of_neighbouring_lines(target, dtype):
    for inner in (2, 15, 16, 17, 35):
        for descending in (False, True):
            check(target, Sort(1, descending, 3), numbers((2, 9, inner), dtype))
    check(target, Sort(0, False, 9), numbers((9, 21), dtype))
    check(target, Sort(1, True, 64), numbers((2, 70, 19), dtype))
    check(target, Sort(0, True, 5), numbers((300, 4, 5), dtype), is_symbolic=True)
    check(target, Sort(1, False, 5), numbers((3, 300, 1), dtype), is_symbolic=True)


@TARGETS
@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "bfloat16", "int8", "uint16", "int32", "int64", "bool"]
)
def test_the_first_of_lines_one_behind_another(target, dtype):
    for rows in (4, 16, 35):
        check(target, Sort(1, False, 1), numbers((rows, 9), dtype))
        check(target, Sort(1, True, 3), numbers((rows, 40), dtype))
    check(target, Sort(2, True, 20), numbers((3, 7, 33), dtype))
    for rows, length in ((0, 9), (3, 0), (1, 9), (20, 9), (19, 5000)):
        count = dims.minimum(dims.symbol("n1"), 4)
        check(target, Sort(1, True, count), numbers((rows, length), dtype), is_symbolic=True)


@TARGETS
def test_equal_elements_of_lines_one_behind_another_keep_their_order_and_nans_are_the_greatest(target):
    odd = np.float32([np.nan, -0.0, 0.0, -np.nan, np.inf, 1.0, 1.0, -np.inf] * 40)
    for descending in (False, True):
        for count in (1, 6):
            check(target, Sort(1, descending, count), numbers((20, 40), low=0, high=3))
            check(target, Sort(1, descending, count), odd.reshape(20, 16))


@TARGETS
def test_equal_elements_of_neighbouring_lines_keep_their_order_and_nans_are_the_greatest(target):
    check(target, Sort(0, False, 6), numbers((40, 20), low=0, high=3))
    check(target, Sort(0, True, 6), numbers((40, 20), low=0, high=3))
    odd = np.float32([np.nan, -0.0, 0.0, -np.nan, np.inf, 1.0, 1.0, -np.inf] * 40)
    for descending in (False, True):
        check(target, Sort(0, descending, 7), odd.reshape(16, 20))
        check(target, Sort(0, descending, 7), np.ascontiguousarray(np.sort(odd).reshape(20, 16).T))
