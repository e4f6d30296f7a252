"""How threads share images: by lines, in all channels, where a thread then reads what it wrote itself."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import choices, convolution, laid_out

from onnxc.codegen.kernels import conv, depthwise

TARGET = harness.RUNNABLE[0]
POINTWISE = convolution((2, 48, 14, 14), (80, 48, 1, 1))
DEPTHWISE = convolution((2, 80, 14, 14), (80, 1, 3, 3), pads=1, groups=80)
BOTH = pytest.mark.parametrize("case, kernel", [(POINTWISE, conv), (DEPTHWISE, depthwise)])


def prepared(case, kernel):
    node, (choice, *_) = choices(case, kernel, TARGET)
    return harness.Prepared(laid_out(node, choice), choice, case.arrays, TARGET)


def computed(case, kernel, begin, end):
    """The results of some parts, which are a share of all; what others compute stays zero."""
    run = prepared(case, kernel)
    run.outputs[0].fill(0)
    for call, parts, _ in run.calls:
        call([(int(begin * parts), int(end * parts))])
    return run.results()[0][0]


@BOTH
def test_each_half_of_the_parts_is_an_image(case, kernel):
    first = computed(case, kernel, 0, 0.5)
    assert np.all(np.any(first[0] != 0, axis=0)) and not np.any(first[1])


@BOTH
def test_a_quarter_of_the_parts_is_half_of_an_images_lines(case, kernel):
    lines = np.any(computed(case, kernel, 0, 0.25)[0] != 0, axis=2)  # of each channel
    assert np.all(lines[:, :6]) and not np.any(lines[:, 8:])


@BOTH
@pytest.mark.parametrize("split", [2, 3, 7, 1000])
def test_any_cut_gives_the_same(case, kernel, split):
    whole, cut = prepared(case, kernel), prepared(case, kernel)
    whole.run(1), cut.run(split)
    assert np.array_equal(whole.results()[0][0], cut.results()[0][0])


def test_channels_of_small_images_are_shared():
    case = convolution((1, 320, 4, 4), (320, 1, 3, 3), pads=1, groups=320)
    channels = np.any(computed(case, depthwise, 0, 0.5)[0] != 0, axis=(1, 2))
    assert np.all(channels[:160]) and not np.any(channels[160:])
