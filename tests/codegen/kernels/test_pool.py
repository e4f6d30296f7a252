"""Pools over blocked channels against the interpreter: windows, and whole images."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import Case, check, laid_out, random, symbols
from support.harness import TARGETS
from support.nests import numbers
from support.pool_cases import codes, group, halves, windows

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import pool
from onnxc.ir import dims, expr
from onnxc.ir.ops import Pool, Reduce

KINDS = pytest.mark.parametrize("kind", ["max", "mean", "sum"])


def case(kind, shape, kernel, strides=1, pads=0, dilations=1, ceil=False, symbolic=None):
    op = windows(kind, symbolic or shape, kernel, strides, pads, dilations, ceil)
    return Case(op, [random(*shape) - 1], shapes={0: symbolic} if symbolic else None)


@TARGETS
@KINDS
@pytest.mark.parametrize("size", [(3, 3), (4, 5), (7, 7), (9, 30), (21, 3)])
def test_images_of_any_size(target, kind, size):
    check(case(kind, (1, 18, *size), 3, 2, 1), pool, target, output_halo=1)


@TARGETS
@KINDS
@pytest.mark.parametrize("kernel", [2, 5, 13, (1, 3), (4, 1)])
def test_windows_of_any_shape(target, kind, kernel):
    check(case(kind, (2, 5, 17, 19), kernel), pool, target)
    check(case(kind, (2, 5, 17, 19), kernel, 3, 0), pool, target)


STORED = pytest.mark.parametrize(
    ("dtype", "conversions"),
    [
        ("float16", halves("float16")),
        ("bfloat16", halves("bfloat16")),
        ("float16", (halves("float16")[0], None)),
        ("float32", (None, halves("float16")[1])),
        ("uint8", codes("uint8", 0)),
        ("uint8", codes("uint8", 100)),
        ("int8", codes("int8", -5)),
        ("int8", (codes("int8", -5)[0], None)),
    ],
    ids=["float16", "bfloat16", "read", "written", "uint8", "zero point", "int8", "dequantised"],
)


def of_type(plain, dtype, conversions):
    """The case as a group of the pool and its conversions, over numbers of the type."""
    x = numbers(plain.arrays[0].shape, dtype, -9, 9)
    return Case(group(plain.op, x.shape, dtype, *conversions), [x])


@TARGETS
@KINDS
@STORED
@pytest.mark.parametrize("pads", [0, 1])
def test_what_is_stored_in_another_type(target, kind, dtype, conversions, pads):
    check(of_type(case(kind, (2, 32, 9, 30), 3, 2, pads), dtype, conversions), pool, target, output_halo=1)
    parts = of_type(case(kind, (1, 18, 9, 8), (1, 3), 1, (0, pads, 0, pads)), dtype, conversions)
    check(parts, pool, target)


@TARGETS
@KINDS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_pool_of_halves(target, kind, dtype):
    plain = case(kind, (2, 18, 9, 30), 3, 2, 1)
    x = numbers(plain.arrays[0].shape, dtype, -9, 9)
    check(Case(plain.op, [x]), pool, target, output_halo=1)


@TARGETS
@KINDS
def test_padding_on_each_side(target, kind):
    check(case(kind, (1, 20, 9, 8), 4, 1, (3, 1, 0, 2)), pool, target)
    check(case(kind, (1, 20, 9, 8), 5, 1, 2), pool, target, wider=1)


@TARGETS
@KINDS
def test_sizes_rounded_up(target, kind):
    for size in (6, 7, 8):
        check(case(kind, (1, 20, size, 11), 3, 2, 0, ceil=True), pool, target)
        check(case(kind, (1, 20, size, 11), 3, 2, 1, ceil=True), pool, target)


@TARGETS
@KINDS
def test_windows_that_are_dilated_are_pooled(target, kind):
    check(case(kind, (1, 20, 12, 11), 3, 1, 0, 2), pool, target)


@TARGETS
@KINDS
def test_dilations_and_padding(target, kind):
    check(case(kind, (1, 20, 12, 11), 3, 2, 2, 2), pool, target)
    check(
        case(kind, (1, 3, 7, 40), (3, 4), (1, 2), 6, (3, 5), symbolic=(1, 3, 7, dims.symbol("w", 5))),
        pool,
        target,
    )


@TARGETS
@KINDS
def test_one_spatial_axis(target, kind):
    check(case(kind, (2, 18, 40), 4, 3, 1), pool, target, output_halo=1)


@TARGETS
@KINDS
@pytest.mark.parametrize("size", [(2, 2), (3, 9), (8, 17), (5, 33)])
def test_images_whose_size_only_the_run_knows(target, kind, size):
    symbolic = symbols("n", 18, "h", "w")
    check(case(kind, (2, 18, *size), 3, 2, 1, symbolic=symbolic), pool, target, output_halo=1)
    check(case(kind, (2, 18, *size), 2, 2, 0, ceil=True, symbolic=symbolic), pool, target)


@TARGETS
@KINDS
def test_whole_images_in_one_window(target, kind):
    check(case(kind, (2, 18, 7, 7), 7), pool, target, wider=1)
    check(case(kind, (2, 18, 40, 41), (40, 41)), pool, target)


@TARGETS
@pytest.mark.parametrize("kind", ["max", "min", "sum"])
@pytest.mark.parametrize("keepdims", [True, False])
def test_reductions_of_whole_images(target, kind, keepdims):
    for shape in ((2, 16, 7, 7), (1, 19, 5, 1), (1, 3, 30, 31), (2, 40, 13), (2, 19, 3, 4, 5)):
        op = Reduce(kind, tuple(range(2, len(shape))), keepdims)
        check(Case(op, [random(*shape)]), pool, target, wider=1, output_halo=1, tolerance=1e-4)
        check(Case(op, [random(*shape)]), pool, target, tolerance=1e-4)


@TARGETS
@KINDS
@pytest.mark.parametrize("pads", [0, (0, 1, 1, 0, 1, 1)])
def test_planes_of_images_over_three_axes(target, kind, pads):
    planes = case(kind, (2, 19, 4, 7, 9), (1, 3, 3), strides=(1, 2, 1), pads=pads)
    if kind == "max" or pads == 0:
        check(planes, pool, target, wider=1, output_halo=1)
    else:  # rows would need a border, of which planes that follow each other have none
        assert not choices_of(pool, planes.node(), target)


@TARGETS
def test_reductions_of_an_expression(target):
    body = (expr.input_(0, "float32") + 1.0) * expr.input_(0, "float32")
    check(Case(Reduce("sum", (2, 3), True, body), [random(2, 19, 6, 5)]), pool, target, 1, 1, tolerance=1e-4)


@TARGETS
def test_reductions_of_symbolic_images(target):
    for size in ((1, 1), (5, 7), (12, 3)):
        op = Reduce("sum", (2, 3), True)
        check(
            Case(op, [random(2, 19, *size)], shapes={0: symbols("n", 19, "h", "w")}),
            pool,
            target,
            tolerance=1e-4,
        )


def test_what_is_computed_of_every_pixel_takes_its_time():
    target = harness.RUNNABLE[0]
    times = [
        choices_of(pool, Case(Reduce("max", (2, 3), True, body), [random(1, 64, 32, 32)]).node(), target)[
            0
        ].time
        for body in (None, expr.tanh(expr.input_(0, "float32")))
    ]
    assert times[1] > 4 * times[0]


def test_places_of_maxima_and_dilated_ones_of_small_images_are_left_to_others():
    target = harness.RUNNABLE[0]
    assert not choices_of(pool, case("max", (1, 20, 2, 11), 2, 1, 2, 3).node(), target)
    assert not choices_of(pool, case("argmax", (1, 20, 12, 11), 3).node(), target)
    assert not choices_of(pool, Case(Reduce("sum", (1,)), [random(2, 3, 4, 5)]).node(), target)


def test_maxima_keep_infinities():
    values = random(1, 4, 6, 6)
    values[0, 1] = -np.inf
    op = Pool("max", (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (3, 3))
    node = Case(op, [values])
    node.expected()
    for target in harness.RUNNABLE:
        (choice,) = choices_of(pool, node.node(), target)
        ((got, _),) = harness.run_choice(laid_out(node.node(), choice), choice, [values], target)
        assert np.array_equal(got, node.expected())


@TARGETS
@pytest.mark.parametrize("place", [(0, 0), (2, 2), (3, 5), (5, 5)])
def test_what_is_no_number_is_the_maximum_wherever_it_is(target, place):
    windows, whole = (case("max", (1, 4, 6, 6), 3, 1, 1), Case(Reduce("max", (2, 3)), [random(1, 4, 6, 6)]))
    for found in (windows, whole):
        found.arrays[0][0, 1][place] = np.nan
        (choice,) = choices_of(pool, found.node(), target)
        ((got, _),) = harness.run_choice(laid_out(found.node(), choice), choice, found.arrays, target)
        assert np.array_equal(got, found.expected(), equal_nan=True)
        assert np.isnan(got[0, 1]).any() and not np.isnan(got[0, [0, 2, 3]]).any()
