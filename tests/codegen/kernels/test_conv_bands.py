"""Groups of a depthwise convolution and the 1x1 ones around it, band by band, against the interpreter."""

import numpy as np
import pytest
from support import harness
from support.blocked_cases import (
    Case,
    bias,
    check,
    choices,
    convolution,
    laid_out,
    random,
    relu_of_bias,
    symbols,
)
from support.harness import TARGETS
from support.pool_cases import windows

from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernels import conv_bands
from onnxc.ir.expr import input_
from onnxc.ir.graph import Graph, TensorType, Value, make_node
from onnxc.ir.ops import Fused
from onnxc.target import TARGETS as PROCESSORS


def group(
    x_shape,
    channels,
    kernel=(3, 3),
    out=None,
    symbolic=None,
    residual=False,
    expand=True,
    first=None,
    pool=None,
    **options,
):
    """A Case of x → expand to so many channels → depthwise → project to `out`, each with a bias and ReLU, the
    last with a residual instead. expand=False, out=None: without the one or the other. first: the kernel,
    strides and pads of a first convolution instead of a 1x1 one; pool: its kind, instead of the depthwise
    one."""
    c = x_shape[1]
    width = channels if expand else c
    links = []
    if expand:
        taps, strides, pads = first or ((1, 1), 1, 0)
        links.append(
            convolution(
                (1, c, 9, 9),
                (width, c, *taps),
                strides=strides,
                pads=pads,
                epilogue=relu_of_bias(),
                extra=[bias(width)],
            )
        )
    middle = (1, width, 9, 9)
    slide = None
    if pool is None:
        slide = convolution(
            middle,
            (width, 1, *kernel),
            groups=width,
            epilogue=relu_of_bias(),
            extra=[bias(width, 3)],
            **options,
        )
    links.append(slide)
    if out is not None:
        links.append(convolution((1, width, 1, 1), (out, width, 1, 1)))
    shape = symbolic or x_shape
    parameters, nodes, arrays, constant = [Value(TensorType("float32", shape))], [], [random(*x_shape)], []
    image = parameters[0]
    for link in links:
        if link is None:
            nodes.append(make_node(windows(pool, image.shape, kernel, **options), (image,)))
            (image,) = nodes[-1].outputs
            continue
        own = [Value(TensorType("float32", a.shape)) for a in link.arrays[1:]]
        constant += range(len(arrays), len(arrays) + len(own))
        arrays += link.arrays[1:]
        parameters += own
        nodes.append(make_node(link.op, (image, *own)))
        (image,) = nodes[-1].outputs
    if residual:
        parameters.append(extra := Value(image.type))
        last = nodes.pop()
        op = type(last.op)(**{**vars(last.op), "epilogue": input_(0, "float32") + input_(1, "float32")})
        nodes.append(make_node(op, (*last.inputs, extra)))
        arrays.append(None)
    region = Graph(tuple(parameters), nodes[-1].outputs, tuple(nodes))
    case = Case(Fused("bands", region), arrays, tuple(constant), {0: shape})
    if residual:
        case.arrays[-1] = random(*nodes[-1].outputs[0].shape, seed=5)
    return case


@pytest.fixture(autouse=True)
def wanted(monkeypatch):
    """Groups are computed in bands whatever that is expected to cost."""
    monkeypatch.setattr(conv_bands, "_moving", lambda node, members, target, rows: Estimate(memory=-1e9))


@pytest.fixture
def high(monkeypatch):
    """Sets how high bands are."""
    return lambda rows: monkeypatch.setattr(conv_bands, "_heights", lambda node, strip: [rows])


@TARGETS
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_bands_of_any_height(target, rows, high):
    high(rows)
    check(group((2, 16, 12, 14), 20, out=8, pads=1), conv_bands, target, output_halo=1)


@TARGETS
@pytest.mark.parametrize("channels", [(3, 16, 24), (24, 40, 8)], ids=str)
def test_bands_of_any_number_of_channels(target, channels):
    inside, wide, out = channels
    check(group((1, inside, 9, 17), wide, out=out, pads=1), conv_bands, target)


@TARGETS
@pytest.mark.parametrize(
    "options", [{"strides": 2, "pads": 1}, {"kernel": (5, 5), "pads": 2}, {"strides": 3, "pads": 1}]
)
def test_bands_under_a_window_of_any_shape(target, options, high):
    high(2)
    check(group((1, 8, 16, 15), 16, out=16, **options), conv_bands, target)


FIRST = {
    "3x3": ((3, 3), 2, 1),
    "7x7": ((7, 7), 2, 3),
    "1x5": ((1, 5), 1, (0, 2, 0, 2)),
    "5x2": ((5, 2), (3, 1), 2),
    "1x1 of every other pixel": ((1, 1), 2, 0),
    "1x1 of a padded image": ((1, 1), 1, 1),
    "1x1 of an image padded before": ((1, 1), 1, (0, 1, 0, 0)),
    "1x1 of an image padded behind": ((1, 1), (1, 2), (0, 0, 1, 2)),
}


@TARGETS
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("first", FIRST)
def test_a_first_convolution_of_few_channels(target, first, rows, high):
    high(rows)
    check(group((2, 3, 23, 29), 20, out=8, pads=1, first=FIRST[first]), conv_bands, target, output_halo=1)
    check(group((1, 3, 23, 29), 20, strides=2, first=FIRST[first]), conv_bands, target)


@TARGETS
@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize(
    "options", [{"strides": 2}, {"strides": 2, "pads": 1}, {"pads": 2, "kernel": (5, 3)}], ids=str
)
def test_a_pool_reads_bands_of_a_convolution(target, kind, options, high):
    for case in (
        group((2, 3, 23, 29), 20, out=8, pool=kind, first=FIRST["3x3"], **options),
        group((2, 24, 9, 12), 20, pool=kind, **options),
        group((2, 24, 9, 12), 24, out=20, expand=False, pool=kind, **options),
    ):
        for rows in (1, case.node().outputs[0].shape[2]):
            high(rows)
            check(case, conv_bands, target, output_halo=1)


@TARGETS
def test_windows_of_one_row(target, high):
    high(1)
    check(group((1, 16, 6, 14), 20, kernel=(1, 3), out=8, pads=(0, 1, 0, 1)), conv_bands, target)


@TARGETS
@pytest.mark.parametrize("rows", [1, 2])
def test_padding_beyond_the_image(target, rows, high):
    high(rows)
    check(group((1, 8, 2, 3), 16, out=16, pads=(4, 1, 4, 2)), conv_bands, target)


@TARGETS
def test_without_the_first_or_the_last(target, high):
    high(2)
    check(group((2, 24, 8, 11), 24, out=20, expand=False, pads=1), conv_bands, target, wider=1, output_halo=1)
    check(group((2, 8, 8, 11), 24, pads=1, strides=2), conv_bands, target, wider=1, output_halo=1)


@TARGETS
def test_a_residual_is_read_where_the_result_is_written(target, high):
    high(4)
    check(group((2, 16, 8, 11), 32, out=16, pads=1, residual=True), conv_bands, target)
    check(group((2, 16, 8, 11), 32, out=16, pads=1, residual=True), conv_bands, target, output_halo=2)


@TARGETS
@pytest.mark.parametrize("size", [(3, 5), (8, 23)])
def test_bands_of_images_whose_size_only_the_run_knows(target, size, high):
    high(3)
    for symbolic in (symbols("n", 8, "h", "w"), symbols(2, 8, "h", size[1]), symbols(2, 8, size[0], "w")):
        case = group((2, 8, *size), 16, out=16, pads=1, symbolic=symbolic)
        check(case, conv_bands, target)
    for symbolic in (symbols("n", 3, "h", "w"), symbols(2, 3, "h", size[1]), symbols(2, 3, size[0], "w")):
        for slide in ({"pads": 1}, {"pads": 1, "strides": 2, "pool": "max"}):
            case = group((2, 3, *size), 16, out=16, first=FIRST["3x3"], symbolic=symbolic, **slide)
            check(case, conv_bands, target)


@pytest.mark.parametrize("target, width, parts", [("x86-64-v4", 14, 12), ("znver4", 14, 6), ("znver4", 3, 2)])
def test_parts_are_strips_unless_these_are_narrower_than_tiles(target, width, parts, high):
    high(6)
    case = group((1, 16, 12, width), 16, out=32, expand=False, pads=1)
    node, (choice, *_) = choices(case, conv_bands, PROCESSORS[target])
    assert choice.kernel.emit(laid_out(node, choice), choice, PROCESSORS[target]).steps[0].parts == parts


@TARGETS
@pytest.mark.parametrize("width", [3, 14])
def test_any_cut_gives_the_same(target, width, high):
    high(6)
    case = group((2, 16, 12, width), 24, out=32, pads=1)
    same_whatever_cut(case, target)


@TARGETS
def test_any_cut_of_a_pool_of_a_first_convolution_gives_the_same(target, high):
    high(4)
    same_whatever_cut(group((2, 3, 31, 29), 24, pool="max", strides=2, pads=1, first=FIRST["7x7"]), target)


def same_whatever_cut(case, target):
    node, (choice, *_) = choices(case, conv_bands, target)
    whole, *cuts = (
        harness.run_choice(laid_out(node, choice), choice, case.arrays, target, split=split)[0][0]
        for split in (1, 2, 5, 100)
    )
    assert all(np.array_equal(whole, cut) for cut in cuts)


def test_a_group_that_gains_nothing_is_left_to_others(monkeypatch):
    monkeypatch.setattr(conv_bands, "_moving", lambda node, members, target, rows: Estimate(memory=1e9))
    node = group((1, 16, 12, 14), 32, out=16, pads=1).node()
    assert not list(conv_bands.candidates(node, harness.RUNNABLE[0]))


@TARGETS
def test_the_last_band_may_have_fewer_rows(target, high):
    high(4)
    check(group((1, 8, 11, 14), 16, out=20, pads=1), conv_bands, target)
    check(group((1, 3, 22, 28), 16, out=20, strides=1, pads=1, first=FIRST["3x3"]), conv_bands, target)


def test_bands_are_whole_strips_and_many():
    def heights(height, width=8):
        return conv_bands._heights(group((1, 8, height, width), 16, out=8, pads=1).node(), 2)

    assert heights(96) == [2, 4, 6, 8]
    assert heights(14) == [2]
    assert heights(7) == [1]
    assert heights(55, 3) == [1]
    assert heights(55, 16) == [4]
    assert heights(50, 16) == [2, 4]
    assert heights(52, 7) == [2, 4]
    assert heights(54, 7) == [2]
