"""Winograd's convolutions of windows of up to 7x7 pixels, and of strided ones by their phases, against the
interpreter, and their transforms by themselves."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support import harness
from support.assembly import spills
from support.blocked_cases import (
    behind_the_first,
    check,
    check_choice,
    check_halves,
    choices,
    convolution,
    integers,
    laid_out,
    random,
    relu_of_bias,
    same_bits_in_any_cut,
    symbols,
)
from support.harness import TARGETS

from onnxc.codegen.kernels import winograd
from onnxc.codegen.tiles.winograd_transforms import transforms
from onnxc.ir import dims, expr
from onnxc.ir.expr import input_, sigmoid
from onnxc.target import LEVELS, find_target

TOLERANCE = 2e-5  # of the largest result, over up to 300 channels; direct sums of products are within 4e-6


@pytest.fixture
def two_pieces(monkeypatch):
    """The smallest and the largest: transforms that registers hold, and ones that they do not."""
    monkeypatch.setattr(winograd, "POINTS", (min(winograd.POINTS), max(winograd.POINTS)))


SHORTER = pytest.mark.usefixtures("two_pieces")  # where the size of a piece is not what a test is about


def channels_to(outputs):
    return random(outputs, 1, 1, seed=7), True


# Transforms --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "m, r", [(t - r + 1, r) for t in winograd.POINTS for r in range(2, t) if t - r + 1 in winograd.PIECES]
)
def test_the_transforms_compute_exactly_what_a_window_does(m, r):
    matrices, rng = transforms(m, r), np.random.default_rng(m)
    data, weights = ([Fraction(int(n)) for n in rng.integers(-9, 9, size)] for size in (m + r - 1, r))

    def times(matrix, vector):
        return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]

    products = [a * b for a, b in zip(times(matrices.data, data), times(matrices.weights, weights))]
    window = [sum(data[y + k] * weights[k] for k in range(r)) for y in range(m)]
    assert times(matrices.result, products) == window


# Windows of 5x5 ----------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("size, pads", [((1, 9), 2), ((7, 7), 0), ((13, 18), (1, 2, 2, 0))], ids=str)
def test_windows_of_five_by_five(target, size, pads):
    case = convolution((1, 20, *size), (24, 20, 5, 5), pads=pads)
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@TARGETS
def test_groups_and_symbolic_images_of_windows_of_five_by_five(target):
    check(
        convolution((1, 48, 9, 10), (40, 24, 5, 5), pads=2, groups=2), winograd, target, tolerance=TOLERANCE
    )
    case = convolution((2, 17, 6, 11), (33, 17, 5, 5), pads=2, symbolic=symbols("n", 17, "h", "w"))
    check(case, winograd, target, 1, 1, tolerance=TOLERANCE)


# Other windows, and strided ones ------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("window", [(2, 2), (4, 4), (3, 5), (6, 4), (7, 7)], ids=str)
def test_windows_of_any_size(target, window):
    case = convolution((2, 20, 9, 12), (24, 20, *window), pads=(1, 2, 2, 0))
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


STRIDED = [
    ((4, 4), (2, 2)),
    ((3, 3), (2, 2)),
    ((8, 8), (4, 4)),
    ((5, 4), (1, 2)),
    ((3, 5), (2, 3)),
    ((1, 4), (1, 2)),
    ((1, 3), (2, 1)),
]


@TARGETS
@pytest.mark.parametrize("window, strides", STRIDED, ids=str)
@pytest.mark.parametrize("size, pads", [((21, 18), 1), ((9, 8), (0, 1, 2, 0))], ids=str)
def test_strided_windows_are_sums_over_phases(target, window, strides, size, pads):
    case = convolution((2, 20, *size), (24, 20, *window), strides=strides, pads=pads)
    check(case, winograd, target, output_halo=1, wider=1, tolerance=TOLERANCE)


@SHORTER
@TARGETS
@pytest.mark.parametrize("window, strides", STRIDED[:3], ids=str)
@pytest.mark.parametrize("size", [(1, 9, 8), (2, 23, 30)], ids=str)
def test_strided_windows_over_images_of_sizes_that_only_the_run_knows(target, window, strides, size):
    n, height, width = size
    unknown = symbols("n", 32, "h", "w")
    case = convolution((n, 32, height, width), (40, 32, *window), strides=strides, pads=1, symbolic=unknown)
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@SHORTER
@TARGETS
def test_strided_windows_of_many_channels_halves_and_double_precision(target):
    bias = channels_to(40)
    case = convolution(
        (1, 300, 17, 20), (40, 300, 4, 4), strides=2, pads=1, epilogue=relu_of_bias(), extra=[bias]
    )
    check(case, winograd, target, tolerance=TOLERANCE)
    same_bits_in_any_cut(case, winograd, target)
    case = convolution((1, 35, 9, 11), (40, 35, 4, 4), strides=2, pads=1)
    check_halves(case, winograd, target, "float16")
    case = convolution((1, 33, 9, 11), (17, 33, 4, 4), strides=2, pads=1, dtype=np.float64)
    check(case, winograd, target, tolerance=1e-13)


DILATED = [
    ((3, 3), 2, (12, 16), 2),
    ((3, 3), 3, (13, 11), 3),
    ((5, 5), (2, 1), (9, 14), (4, 2, 4, 2)),
    ((1, 3), 4, (5, 21), (0, 4, 0, 4)),
]


@TARGETS
@pytest.mark.parametrize("window, dilations, size, pads", DILATED, ids=str)
def test_dilated_windows_are_those_of_images_of_every_so_many_pixels(target, window, dilations, size, pads):
    case = convolution((2, 20, *size), (24, 20, *window), dilations=dilations, pads=pads)
    check(case, winograd, target, output_halo=1, wider=1, tolerance=TOLERANCE)
    same_bits_in_any_cut(case, winograd, target)


@SHORTER
@TARGETS
@pytest.mark.parametrize("size", [(1, 1, 2), (2, 7, 12), (0, 5, 5)], ids=str)
def test_dilated_windows_over_images_of_sizes_that_only_the_run_knows(target, size):
    n, height, width = size
    unknown = symbols("n", 32, "h", "w")
    case = convolution((n, 32, height, width), (40, 32, 3, 3), dilations=2, pads=2, symbolic=unknown)
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@SHORTER
@TARGETS
def test_dilated_windows_in_groups_and_with_epilogues(target):
    case = convolution((1, 48, 9, 10), (40, 24, 3, 3), dilations=2, pads=2, groups=2)
    check(case, winograd, target, tolerance=TOLERANCE)
    total = input_(0, "float32") + input_(1, "float32") + input_(2, "float32")
    extra = [channels_to(40), (random(1, 40, 9, 11, seed=8), False)]
    for body in (total.maximum(0.0), total * sigmoid(total)):
        case = convolution((1, 16, 9, 11), (40, 16, 3, 3), dilations=3, pads=3, epilogue=body, extra=extra)
        check(case, winograd, target, tolerance=TOLERANCE)


# Windows along one axis --------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("side", range(2, 8))
@pytest.mark.parametrize("size, pads", [((1, 13), 0), ((13, 1), 1), ((9, 11), (0, 1, 2, 0))], ids=str)
def test_windows_of_one_row_and_of_one_column(target, side, size, pads):
    for window in ((1, side), (side, 1)):
        if all(n >= r for n, r in zip(size, window)):
            case = convolution((2, 20, *size), (40, 20, *window), pads=pads)
            check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@TARGETS
@pytest.mark.parametrize("side", range(2, 8))
@pytest.mark.parametrize("length", [1, 2, 7, 50])
def test_sequences_of_any_length(target, side, length):
    before = (side - 1) // 2
    case = convolution((2, 33, length), (17, 33, side), pads=before)
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)
    case = convolution((2, 33, length), (17, 33, side), pads=before, symbolic=symbols("n", 33, "l"))
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@TARGETS
def test_sequences_in_groups_in_double_precision_and_with_an_epilogue(target):
    check(convolution((1, 48, 30), (40, 24, 5), pads=2, groups=2), winograd, target, tolerance=TOLERANCE)
    check(convolution((1, 17, 30), (40, 17, 3), pads=1, dtype=np.float64), winograd, target, tolerance=1e-13)
    bias = (random(24, 1, seed=7), True)
    case = convolution((1, 300, 30), (24, 300, 3), pads=1, epilogue=relu_of_bias(), extra=[bias])
    check(case, winograd, target, tolerance=TOLERANCE)


# Long windows, and those whose taps lie apart -----------------------------------------------------


@TARGETS
@pytest.mark.parametrize("side", [8, 11, 24])
@pytest.mark.parametrize("axis", ["sequence", "rows", "columns", "column"])
def test_long_windows_are_cut(target, side, axis):
    before = (side - 1) // 2
    shape, window, pads = {
        "sequence": ((2, 32, 50), (40, 32, side), before),
        "rows": ((1, 32, 3, 40), (17, 32, 1, side), (0, before, 0, before)),
        "columns": ((1, 16, 40, 3), (17, 16, side, 1), (before, 0, before, 0)),
        "column": ((1, 32, 40, 1), (33, 32, side, 1), 0),
    }[axis]
    case = convolution(shape, window, pads=pads)
    check(case, winograd, target, 1, tolerance=TOLERANCE)
    assert all(choice.tiling.split > 1 for choice in choices(case, winograd, target)[1])


@TARGETS
@pytest.mark.parametrize("length", [1, 40])
def test_long_windows_over_sequences_that_only_the_run_knows(target, length):
    case = convolution((2, 32, length), (17, 32, 10), pads=(5, 4), symbolic=symbols("n", 32, "l"))
    check(case, winograd, target, 1, tolerance=TOLERANCE)


@TARGETS
def test_long_windows_in_double_precision_of_halves_and_of_few_channels(target):
    check(convolution((1, 20, 30), (40, 20, 11), pads=5), winograd, target, tolerance=TOLERANCE)
    case = convolution((1, 32, 30), (17, 32, 9), pads=4, dtype=np.float64)
    check(case, winograd, target, tolerance=1e-13)
    check_halves(convolution((1, 32, 1, 30), (40, 32, 1, 8), pads=0), winograd, target, "float16")


@TARGETS
@pytest.mark.parametrize(
    "side, dilation, length", [(3, 2, 1), (3, 5, 7), (3, 3, 50), (3, 12, 24), (7, 3, 2), (8, 2, 41)]
)
def test_taps_of_a_row_that_lie_apart(target, side, dilation, length):
    reach = (side - 1) * dilation
    for pads in ((reach // 2, reach - reach // 2), (reach - 1, 2)):
        case = convolution((2, 32, length), (17, 32, side), 1, pads, dilation)
        check(case, winograd, target, 1, 1, tolerance=TOLERANCE)
    case = convolution((2, 32, length), (17, 32, side), 1, reach, dilation, symbolic=symbols("n", 32, "l"))
    check(case, winograd, target, 1, 1, tolerance=TOLERANCE)


@TARGETS
def test_taps_that_lie_apart_with_a_residual_and_long_epilogues(target):
    total, other = input_(0, "float32"), input_(1, "float32")
    shapes = (2, 20, 1, 41), (24, 20, 1, 3), 1, (0, 3, 0, 3), 3
    for body in (total + other, sigmoid(total + other) * total):
        case = convolution(*shapes, epilogue=body, extra=[(random(2, 24, 1, 41, seed=5), False)])
        check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)
    case = convolution((1, 48, 30), (40, 24, 5), 1, 4, 2, groups=2)
    check(case, winograd, target, tolerance=TOLERANCE)
    case = convolution((1, 17, 30), (40, 17, 3), 1, 2, 2, dtype=np.float64)
    check(case, winograd, target, tolerance=1e-13)


# Images ------------------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("size", [(1, 1), (1, 9), (3, 2), (4, 4), (7, 7), (8, 13), (30, 31)], ids=str)
def test_images_of_any_size(target, size):
    case = convolution((1, 16, *size), (32, 16, 3, 3), pads=1)
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@SHORTER
@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_read_as_they_are_stored(target, dtype):
    check_halves(convolution((1, 35, 7, 9), (40, 35, 3, 3), pads=1), winograd, target, dtype)


@SHORTER
@TARGETS
@pytest.mark.parametrize("channels", [(33, 17), (300, 20)], ids=str)
def test_float64_is_transformed_in_double_precision(target, channels):
    inputs, outputs = channels
    case = convolution((2, inputs, 9, 11), (outputs, inputs, 3, 3), pads=1, dtype=np.float64)
    check(case, winograd, target, output_halo=1, tolerance=1e-13)
    bias_of_the_row = (random(outputs, 1, 1, seed=7).astype(np.float64), True)
    case = convolution(
        (1, inputs, 7, 6),
        (outputs, inputs, 3, 3),
        pads=1,
        dtype=np.float64,
        epilogue=relu_of_bias("float64"),
        extra=[bias_of_the_row],
    )
    check(case, winograd, target, tolerance=1e-13)


@TARGETS
@pytest.mark.parametrize("channels", [(16, 17), (17, 16), (33, 70), (300, 32)], ids=str)
def test_channels_of_any_number_are_transformed(target, channels):
    inputs, outputs = channels
    case = convolution((1, inputs, 9, 10), (outputs, inputs, 3, 3), pads=1)
    check(case, winograd, target, tolerance=TOLERANCE)


@SHORTER
@TARGETS
@pytest.mark.parametrize("channels", [(24, 24, 4), (40, 17, 3), (64, 32, 2)], ids=str)
def test_groups_of_any_width(target, channels):
    inside, made, groups = channels
    case = convolution((1, groups * inside, 7, 10), (groups * made, inside, 3, 3), groups=groups, pads=1)
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@SHORTER
@TARGETS
@pytest.mark.parametrize("pads", [0, 2, (0, 1, 2, 0), (1, -1, 0, 1)], ids=str)
def test_padding_of_any_width_and_cropping(target, pads):
    case = convolution((2, 16, 11, 9), (16, 16, 3, 3), pads=pads)
    check(case, winograd, target, wider=1, tolerance=TOLERANCE)


@TARGETS
@pytest.mark.parametrize(
    "size", [(1, 1, 1), (2, 2, 9), (1, 3, 5), (3, 17, 16), (1, 40, 41), (0, 5, 5)], ids=str
)
def test_sizes_that_only_the_run_knows(target, size):
    n, height, width = size
    case = convolution((n, 32, height, width), (40, 32, 3, 3), pads=1, symbolic=symbols("n", 32, "h", "w"))
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@TARGETS
@pytest.mark.parametrize("options", [{}, {"strides": 2}, {"dilations": 2, "pads": 2}], ids=str)
def test_few_pixels_that_only_the_run_counts_are_cut_into_the_smallest_pieces(target, options):
    """Either cut is for all images of a batch, and the other's step has no parts."""
    names = symbols("n", 64, "h", "w")
    for side in (1, 9, 40):
        options = {"pads": 1, **options}
        case = convolution((3, 64, side, side + 1), (64, 64, 3, 3), symbolic=names, **options)
        node, offered = choices(case, winograd, target)
        cut_twice = [choice for choice in offered if choice.tiling.few]
        assert cut_twice
        for choice in cut_twice:
            tiling = choice.tiling
            assert (tiling.few.points, tiling.few.vectors) == (4, tiling.vectors) and tiling.points > 4
            many, few = winograd.emit(laid_out(node, choice), choice, target).steps
            env = harness.bind(node, case.arrays)
            pixels = np.prod([dims.evaluate(size, env) for size in node.outputs[0].shape[2:]])
            parts = [dims.evaluate(step.parts, env) > 0 for step in (many, few)]
            assert parts == ([True, False] if pixels > tiling.most else [False, True])
            check_choice(case, node, choice, target, output_halo=1, tolerance=TOLERANCE)


def test_known_sizes_have_one_cut():
    for symbolic in (None, symbols("n", 64, 9, 10)):
        case = convolution((3, 64, 9, 10), (64, 64, 3, 3), pads=1, symbolic=symbolic)
        assert not any(c.tiling.few for c in choices(case, winograd, harness.RUNNABLE[0], every=True)[1])


@pytest.mark.parametrize("size", [(0, 16, 5, 5), (1, 16, 0, 5), (1, 16, 5, 0)], ids=str)
def test_no_images_and_images_without_a_pixel_give_none(size):
    check(convolution(size, (16, 16, 3, 3), pads=1), winograd, harness.RUNNABLE[0])


@TARGETS
def test_many_parts_give_the_whole(target):
    case = convolution((2, 64, 56, 50), (96, 64, 3, 3), pads=1)
    check(case, winograd, target, output_halo=1, tolerance=TOLERANCE)


@SHORTER
@TARGETS
@pytest.mark.parametrize("symbolic", [None, symbols(1, 300, "h", "w")], ids=["known", "symbolic"])
def test_where_panels_are_few_parts_are_bands_of_tiles_and_any_cut_gives_the_same_bits(target, symbolic):
    case = convolution((1, 300, 38, 41), (40, 300, 3, 3), pads=1, symbolic=symbolic)
    check(case, winograd, target, output_halo=1, tolerance=1.5 * TOLERANCE)
    same_bits_in_any_cut(case, winograd, target)


@SHORTER
@TARGETS
def test_groups_that_are_nearly_as_fast_give_the_same(target):
    case = convolution((1, 32, 25, 25), (40, 32, 3, 3), pads=1)
    offered = choices(case, winograd, target, every=True)[1]
    assert len(offered) > len({choice.tiling.points for choice in offered})
    check(case, winograd, target, tolerance=TOLERANCE, every=True)


@TARGETS
@pytest.mark.parametrize("level2", [1 << 17, 1 << 19, 1 << 22], ids="{} bytes".format)
@pytest.mark.parametrize("size", [7, 20])
def test_weights_are_transformed_in_parts_that_caches_hold(target, size, level2):
    facts = replace(target.facts, level1_bytes=1 << 16, level2_bytes=level2)
    case = convolution((1, 300, size, size), (40, 300, 3, 3), pads=1)
    check(case, winograd, replace(target, facts=facts), tolerance=TOLERANCE)


@TARGETS
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_weights_from_beyond_the_caches_are_fetched_before_they_are_transformed(target, groups):
    far = replace(target, run_bytes=2 * target.facts.level2_bytes)
    case = convolution((1, 300, 4, 4), (72, 300 // groups, 3, 3), groups=groups, pads=1)
    check(case, winograd, far, tolerance=TOLERANCE)
    node, offered = choices(case, winograd, far)
    for choice in offered:
        near, away = (winograd.emit(laid_out(node, choice), choice, t).steps[0].text for t in (target, far))
        assert ("llvm.prefetch" in near, "llvm.prefetch" in away) == (False, not choice.tiling.kept)
        assert spills(away, far, "multiply") == []


@pytest.mark.skipif(bool(harness.EMULATED), reason="what is fetched is seen in this process")
@pytest.mark.parametrize("known", [True, False], ids=["known size", "size of the run"])
@pytest.mark.parametrize("size", [2, 7, 15])
def test_every_line_of_the_weights_of_later_panels_is_fetched_while_others_are_multiplied(size, known):
    symbolic = None if known else symbols("n", 256, "h", "w")
    case = convolution((1, 256, size, size), (288, 256, 3, 3), pads=1, symbolic=symbolic)
    far = replace(harness.RUNNABLE[0], run_bytes=1 << 30)
    node, offered = choices(case, winograd, far)
    transforming_often = [choice for choice in offered if not choice.tiling.kept]
    assert transforming_often
    for choice in transforming_often:
        lines, memory = harness.fetched_lines(laid_out(node, choice), choice, case.arrays, far)
        assert {*behind_the_first(memory["input"][1], choice, 9 * 256)} <= lines


# Groups across images ----------------------------------------------------------------------------

N = dims.symbol("n", typical=5)
SMALL = [
    ((7, 8), (3, 3), {"pads": 1}),
    ((1, 20), (1, 3), {"pads": (0, 1, 0, 1)}),
    ((1, 23), (1, 3), {"dilations": 4}),  # rows are folded
    ((9, 10), (3, 3), {"pads": 2, "dilations": 2}),
    ((9, 8), (4, 4), {"pads": 1, "strides": 2}),
    ((6, 7), (3, 3), {"pads": 1, "groups": 2}),
]


def groups_of(case, target, pieces, across=True):
    """(node, choice) of the case for each size of a piece, in groups of so many across images."""
    node, offered = choices(case, winograd, target)
    for choice in offered:
        yield node, replace(choice, tiling=replace(choice.tiling, pieces=pieces, across=across))


@SHORTER
@TARGETS
@pytest.mark.parametrize("pieces", [3, 7, 100])
@pytest.mark.parametrize("batch", ["known", "open", "all open"])
@pytest.mark.parametrize("size, window, options", SMALL, ids=str)
def test_groups_go_from_one_image_to_the_next(target, size, window, options, batch, pieces):
    groups = options.get("groups", 1)
    symbolic = {"known": None, "open": (N, 40, *size), "all open": (N, 40, *symbols(*"hw"))}[batch]
    case = convolution((5, 40, *size), (48, 40 // groups, *window), **options, symbolic=symbolic)
    for node, choice in groups_of(case, target, pieces):
        check_choice(case, node, choice, target, output_halo=1)


@SHORTER
@TARGETS
@pytest.mark.parametrize("n", [0, 1, 3])
def test_groups_across_as_many_images_as_there_are(target, n):
    unknown = (N, 20, *symbols("h", "w"))
    case = convolution((n, 20, 6, 7), (40, 20, 3, 3), pads=1, symbolic=unknown)
    for node, choice in groups_of(case, target, 9):
        check_choice(case, node, choice, target, output_halo=1)


@SHORTER
@TARGETS
@pytest.mark.parametrize("images", [1, 5])
def test_residuals_of_groups_across_images(target, images):
    total = input_(0, "float32") + input_(1, "float32") + input_(2, "float32")
    extra = [channels_to(40), (random(images, 40, 6, 7, seed=8), False)]
    case = convolution((5, 20, 6, 7), (40, 20, 3, 3), pads=1, epilogue=total.maximum(0.0), extra=extra)
    for node, choice in groups_of(case, target, 9):
        check_choice(case, node, choice, target, output_halo=1)


@SHORTER
@TARGETS
def test_groups_across_images_give_the_bits_of_those_of_one(target):
    case = convolution((6, 48, 7, 7), (72, 48, 3, 3), pads=1)
    for every in zip(*(groups_of(case, target, 4, across) for across in (False, True)), strict=True):
        one, all_ = (
            harness.run_choice(laid_out(node, choice), choice, case.arrays, target)[0][0]
            for node, choice in every
        )
        np.testing.assert_array_equal(one, all_)


@pytest.mark.parametrize(
    "images, across", [(1, {False}), (16, {True}), (dims.symbol("n", typical=1), {True})], ids=str
)
def test_small_images_of_a_batch_are_grouped_together(images, across):
    case = convolution((2, 256, 7, 7), (256, 256, 3, 3), pads=1, symbolic=(images, 256, 7, 7))
    offered = choices(case, winograd, LEVELS["x86-64-v3"])[1]
    assert {choice.tiling.across for choice in offered} == across


# Epilogues ---------------------------------------------------------------------------------------


@SHORTER
@TARGETS
@pytest.mark.parametrize("size", [(1, 3), (8, 8), (9, 6)], ids=str)
def test_bias_and_activation(target, size):
    bias = channels_to(40)
    case = convolution((1, 16, *size), (40, 16, 3, 3), pads=1, epilogue=relu_of_bias(), extra=[bias])
    check(case, winograd, target, tolerance=TOLERANCE)


@SHORTER
@TARGETS
@pytest.mark.slow
@pytest.mark.parametrize("size", [(1, 3), (8, 8), (9, 6)], ids=str)
def test_residuals_and_long_activations_reach_every_pixel_once(target, size):
    total = input_(0, "float32") + input_(1, "float32") + input_(2, "float32")
    extra = [channels_to(40), (random(1, 40, *size, seed=8), False)]
    for body in (total.maximum(0.0), total * sigmoid(total), expr.apply("exp", total) + 1.0):
        case = convolution((1, 16, *size), (40, 16, 3, 3), pads=1, epilogue=body, extra=extra)
        check(case, winograd, target, tolerance=TOLERANCE)


# What is offered ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        convolution((1, 32, 9, 9), (32, 16, 3, 3), groups=2, strides=2, pads=1),
        convolution((1, 32, 9, 9), (32, 32, 2, 2), strides=2),
        convolution((1, 32, 9, 9), (32, 32, 3, 3), strides=2, dilations=2, pads=2),
        convolution((1, 32, 9, 9), (32, 8, 3, 3), groups=4, pads=1),
        convolution((1, 32, 9, 9), (32, 32, 8, 8), pads=3),
        convolution((1, 32, 9), (32, 32, 1)),
        convolution((1, 64, 20), (32, 32, 9), pads=4, groups=2),
        convolution((1, 3, 9, 9), (32, 3, 3, 3), pads=1),
    ],
    ids=[
        "strides of groups",
        "strides of the window",
        "strides and dilations",
        "narrow groups",
        "8x8",
        "1",
        "9 in groups",
        "three channels",
    ],
)
def test_other_convolutions_are_left_to_others(case):
    assert not choices(case, winograd, harness.RUNNABLE[0])[1]


@pytest.mark.parametrize("of", [convolution, integers], ids=["numbers", "bytes"])
@pytest.mark.parametrize(
    "target", [*LEVELS.values(), *map(find_target, ("cascadelake", "alderlake"))], ids=str
)
def test_products_keep_their_sums_in_registers(target, of):
    node, offered = choices(of((1, 64, 28, 28), (64, 64, 3, 3), pads=1), winograd, target)
    assert offered
    for choice in offered:
        (step,) = winograd.emit(laid_out(node, choice), choice, target).steps
        assert spills(step.text, target, "multiply") == []
