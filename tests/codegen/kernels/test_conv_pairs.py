"""Convolutions of bytes by sums of two products in 16 bits: what is theirs alone, beside what
test_conv_integers asserts of them."""

import numpy as np
import pytest
from support.assembly import spills
from support.blocked_cases import check, integers, laid_out, symbols
from support.pairs import ABLE, WITH_PAIRS, of_pairs

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import conv_pairs
from onnxc.target import TARGETS


def exact(case, target, **options):
    check(of_pairs(case), conv_pairs, target, tolerance=0, every=True, **options)


@WITH_PAIRS
def test_a_column_of_pixels_is_a_row(target):
    exact(integers((2, 10, 33, 1), (12, 10, 5, 1), 2, (2, 0, 2, 0), 77), target)
    exact(integers((2, 10, 33), (12, 10, 5), 2, 2, 77), target)


@WITH_PAIRS
def test_images_whose_size_the_run_tells(target):
    x = symbols("n", 12, "h", "w")
    exact(integers((2, 12, 11, 10), (20, 12, 3, 3), 1, 1, 200, symbolic=x), target)
    exact(integers((2, 36, 11, 10), (20, 36, 1, 1), 2, 0, 200, symbolic=symbols("n", 36, "h", "w")), target)


@WITH_PAIRS
def test_further_steps_have_room_where_there_are_any(target):
    case = of_pairs(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4))
    assert choices_of(conv_pairs, case.node(), target)[0].tiling.further > 0
    case.arrays[1] = case.arrays[1] // 2
    assert choices_of(conv_pairs, case.node(), target)[0].tiling.further == 0
    check(case, conv_pairs, target, tolerance=0, every=True)


def test_weights_that_are_large_are_others():
    case = integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4)
    case.arrays[1] = np.full_like(case.arrays[1], 100)
    assert not choices_of(conv_pairs, case.node(), TARGETS["x86-64-v3"])


def test_targets_with_dot_products_have_those():
    case = of_pairs(integers((1, 24, 9, 8), (40, 24, 3, 3), 1, 1, 4))
    for name in ("alderlake", "icelake-server", "aarch64", "neoverse-n1"):
        assert not choices_of(conv_pairs, case.node(), TARGETS[name])


@pytest.mark.parametrize("target", ABLE, ids=str)
def test_tiles_keep_their_sums_in_registers(target):
    node = of_pairs(integers((1, 64, 28, 28), (128, 64, 1, 1))).node()
    offered = choices_of(conv_pairs, node, target)
    assert offered
    for choice in offered:
        code = conv_pairs.emit(laid_out(node, choice), choice, target)
        assert not spills(code.steps[-1].text, target)
