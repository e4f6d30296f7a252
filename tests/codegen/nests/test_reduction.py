"""Reductions, contractions and running totals of loop_nest: every kind over any axes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness import BEST, TARGETS
from support.nests import check, node_of, numbers

from onnxc.codegen.nests.reduction import stages
from onnxc.ir import dims, expr
from onnxc.ir.expr import input_
from onnxc.ir.graph import TensorType
from onnxc.ir.ops import Contract, Cumulate, Reduce

few = settings(max_examples=25, deadline=None)
SHAPES = [
    ((5,), (0,)),
    ((100,), (0,)),
    ((3, 100), (1,)),
    ((3, 100), (0,)),
    ((5, 6, 7), (1,)),
    ((4, 33), (1,)),
    ((7, 1), (1,)),
    ((300, 5), (1,)),
    ((3, 0), (0,)),
    ((0, 3), (0,)),
]
MANY = [
    ((5, 6, 7), (0, 2)),
    ((2, 3, 4, 5), (2, 3)),
    ((2, 3, 4, 5), (0, 1)),
    ((), ()),
    ((2, 70), ()),
    ((1, 1), (0, 1)),
]


def x(index=0, dtype="float32"):
    return input_(index, dtype)


@TARGETS
@pytest.mark.parametrize("kind", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64", "int8", "int64", "uint8"])
def test_every_kind_reduces_any_axes_of_any_type(target, kind, dtype):
    for shape, axes in SHAPES + MANY:
        array = numbers(shape, dtype)
        if kind == "prod":
            near_one = (1 + array.astype(np.float64) / 1000).astype(array.dtype)
            array = near_one if "float" in dtype else array % 3
        only, tolerance = None if dtype == "float32" else "static", 3e-2 if "16" in dtype else None
        check(target, Reduce(kind, axes, keepdims=len(axes) == 2), array, only=only, tolerance=tolerance)


@TARGETS
@pytest.mark.parametrize("kind", ["and", "or", "sum", "prod", "min", "max"])
def test_reductions_of_truth(target, kind):
    for shape, axes in SHAPES:
        check(target, Reduce(kind, axes), numbers(shape, "bool", 0, 2), only="static")
    if kind in ("and", "or"):
        check(target, Reduce(kind, (0,)), numbers((100, 3), "int32"))


@TARGETS
@pytest.mark.parametrize("kind", ["argmin", "argmax", "argmin_last", "argmax_last"])
def test_places_of_extremes(target, kind):
    for shape, axes in SHAPES:
        if 0 in [shape[axis] for axis in axes]:
            continue  # nothing to find, which inference refuses
        for dtype in ("float32", "int8", "int64"):
            check(target, Reduce(kind, axes), numbers(shape, dtype, -3, 3), only="static")
        check(target, Reduce(kind, axes, True), numbers(shape, "float32", -3, 3), only="symbolic")


@TARGETS
@pytest.mark.parametrize("kind", ["argmin", "argmax", "argmin_last", "argmax_last", "min", "max"])
def test_nan_is_extreme(target, kind):
    for shape, axis in (((100,), 0), ((5, 40), 1), ((40, 5), 0)):
        array = numbers(shape, seed=3)
        array.flat[[7, 37, 60]] = np.nan
        array.flat[[3, 50]] = -np.inf
        check(target, Reduce(kind, (axis,)), array)
        check(target, Reduce(kind, (axis,)), np.full(shape, -np.inf, np.float32), only="static")


@TARGETS
def test_places_among_least_integers(target):
    for shape, axis in (((5, 40), 1), ((40, 5), 1), ((40, 5), 0)):
        array = np.full(shape, np.iinfo(np.int32).min, np.int32)
        for kind in ("argmax", "argmax_last"):
            check(target, Reduce(kind, (axis,)), array)


def test_the_run_chooses_what_is_in_the_lanes_where_only_it_knows():
    """Long rows are combined along their lanes, however many there are, and so are long columns."""
    rows, columns = dims.symbol("rows"), dims.symbol("columns")

    def orders(*shape, axis):
        node = node_of(Reduce("sum", (axis,)), [np.zeros((1, 1))], [TensorType("float32", shape)])
        ((nest,),), _ = stages(node, BEST)
        return len(nest.orders)

    assert orders(rows, columns, axis=1) == orders(rows, 3, axis=1) == 2
    assert orders(rows, 768, axis=1) == orders(rows, 768, axis=0) == 1
    for shape in ((2000, 3), (3, 2000), (40, 40), (1, 33), (33, 1)):
        for kind in ("sum", "max", "argmax"):
            check(BEST, Reduce(kind, (1,)), numbers(shape, low=-3, high=3), only="symbolic")


@TARGETS
def test_bodies_run_before(target):
    rows, weights = numbers((3, 50), low=-5, high=5), numbers((50,), low=-5, high=5, seed=1)
    body = (x(0) - x(1)) * x(0) + expr.index(1).cast("float32")
    for axis in (0, 1):
        check(target, Reduce("sum", (axis,), False, body), rows, weights)


@few
@given(st.data())
def test_drawn_axes_of_drawn_shapes_are_reduced(data):
    shape = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=5))
    axes = tuple(a for a in range(len(shape)) if data.draw(st.booleans()))
    only = data.draw(st.sampled_from(["static", "symbolic"]))
    check(BEST, Reduce("sum", axes), numbers(shape), only=only)


def test_partial_sums_do_not_depend_on_the_parts():
    """The harness runs three partitions of the parts; a long reduction is one part of its own."""
    check(BEST, Reduce("sum", (0, 1)), numbers((500, 1000)), only="static")
    check(BEST, Reduce("sum", (0,)), numbers((500, 1000)))


# Contractions ------------------------------------------------------------------------------------

CONTRACTED = [  # lhs, rhs, out, sizes
    ("mk", "kn", "mn", {"m": 5, "k": 7, "n": 9}),
    ("bmk", "bkn", "bmn", {"b": 2, "m": 3, "k": 40, "n": 33}),
    ("mk", "nk", "mn", {"m": 5, "k": 70, "n": 9}),
    ("km", "kn", "mn", {"m": 5, "k": 70, "n": 9}),
    ("k", "k", "", {"k": 100}),
    ("mk", "k", "m", {"m": 20, "k": 37}),
    ("k", "kn", "n", {"k": 20, "n": 37}),
    ("ii", "i", "i", {"i": 5}),
    ("ij", "kl", "ijkl", {"i": 2, "j": 3, "k": 4, "l": 5}),
    ("ij", "k", "k", {"i": 3, "j": 4, "k": 5}),
    ("abc", "cbd", "dab", {"a": 3, "b": 4, "c": 5, "d": 6}),
    ("mk", "kn", "nm", {"m": 5, "k": 0, "n": 9}),
    ("", "", "", {}),
]


@TARGETS
@pytest.mark.parametrize(
    "dtype, accumulate",
    [
        ("float32", "float32"),
        ("float64", "float64"),
        ("float16", "float16"),
        ("bfloat16", "float32"),
        ("int8", "int32"),
        ("uint8", "int32"),
        ("int64", "int64"),
    ],
)
def test_products_are_added_up_in_their_accumulator(target, dtype, accumulate):
    for lhs, rhs, out, sizes in CONTRACTED:
        arrays = [numbers([sizes[c] for c in labels], dtype, -9, 9, k) for k, labels in enumerate((lhs, rhs))]
        types = [TensorType(dtype, tuple(dims.symbol(c) for c in labels)) for labels in (lhs, rhs)]
        only, tolerance = (None if dtype == "float32" else "static", 2e-2 if dtype == "float16" else None)
        op = Contract(lhs, rhs, out, accumulate)
        check(target, op, *arrays, types=types, only=only, tolerance=tolerance)


@TARGETS
def test_epilogues_of_contractions(target):
    bias, residual = numbers((20,), seed=2), numbers((5, 20), seed=3)
    for rhs, shape in (("kn", (7, 20)), ("nk", (20, 7))):
        body = (x(0) + x(1)).maximum(0) * x(2) + expr.index(1).cast("float32")
        factors = numbers((5, 7), low=-3, high=3), numbers(shape, low=-3, high=3)
        check(target, Contract("mk", rhs, "mn", "float32", body), *factors, bias, residual, only="static")


@TARGETS
@pytest.mark.parametrize("shape", [(), (1, 1)], ids=str)
def test_epilogues_of_single_products(target, shape):
    lhs, rhs, out = ("mk", "kn", "mn") if shape else ("", "", "")
    factors = numbers(shape, seed=1), numbers(shape, seed=2)
    body = x(0) * 2 + x(1)
    check(
        target,
        Contract(lhs, rhs, out, "float32", body),
        *factors,
        numbers((1,) * len(shape), seed=3),
        only="static",
    )


@TARGETS
def test_integer_sums_wrap(target):
    big = np.full((3, 9), 1 << 30, np.int32)
    check(target, Contract("mk", "nk", "mn", "int32"), big, big)


# Running totals ----------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_totals_run_along_an_axis_in_either_direction(target, kind, dtype):
    shapes = (((5,), 0), ((2, 600), 0), ((3, 40), 1), ((2, 3, 40), 1), ((4, 1), 0), ((0, 3), 1), ((3, 0), 1))
    for shape, axis in shapes:
        array = numbers(shape, dtype, -2, 3)
        for exclusive in (False, True):
            check(target, Cumulate(kind, axis, exclusive), array, only="static")
            check(target, Cumulate(kind, axis, exclusive, reverse=True), array, only="symbolic")
