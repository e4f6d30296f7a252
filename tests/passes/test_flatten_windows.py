"""flatten_windows: windows over three axes become windows over two."""

import pytest
from support.pass_text import agrees, clean, ops, stays

from onnxc.ir.ops import Conv, Pool
from onnxc.passes import flatten_windows as flattening
from onnxc.target import TARGETS


def flatten_windows(graph):
    return flattening.flatten_windows(graph, TARGETS["x86-64-v4"])


CONVOLUTIONS = {  # (image, weights): attributes
    ("2, 4, 3, 5, 4", "6, 4, 1, 1, 1"): "pads=(0, 0, 0, 0, 0, 0)",
    ("1, 4, 5, 3, 4", "6, 4, 3, 1, 1"): "pads=(1, 0, 0, 1, 0, 0)",
    ("1, 4, 5, 6, 7", "6, 4, 3, 3, 3"): "pads=(1, 1, 1, 1, 1, 1)",
    ("2, 4, 6, 5, 4", "6, 4, 2, 3, 3"): "strides=(2, 1, 2) pads=(0, 1, 2, 1, 1, 0)",
    ("1, 4, 6, 5, 7", "6, 4, 3, 3, 2"): "dilations=(1, 1, 2) pads=(1, 0, 1, 1, 0, 1)",
    ("d, 4, d, 4, 5", "6, 4, 2, 2, 3"): "strides=(2, 2, 1) pads=(1, 0, 1, 1, 0, 1)",
    ("1, 48, 5, 4, 4", "48, 24, 2, 3, 3"): "groups=2 pads=(0, 1, 1, 1, 1, 1)",
    ("2, 4, 5, h, 4", "6, 4, 1, 1, 1"): "strides=(2, 3, 1) pads=(0, 0, 0, 0, 0, 0)",
    ("1, 4, 5, 4, 4", "6, 4, 3, 1, 1"): "strides=(2, 2, 2) pads=(1, 0, 0, 1, 0, 0)",
    ("2, 4, 5, 4, 4", "4, 1, 3, 1, 1"): "groups=4 strides=(2, 1, 1) pads=(1, 0, 0, 1, 0, 0)",
}
TRANSPOSED = {
    ("2, 4, 3, 4, 2", "4, 5, 2, 2, 2"): "strides=(2, 2, 2) pads=(0, 0, 0, 0, 0, 0)",
    ("1, 4, 3, 4, 2", "4, 5, 3, 4, 4"): "strides=(2, 2, 2) pads=(1, 1, 1, 1, 1, 0) output_padding=(1, 0, 1)",
    ("1, 4, 3, 4, 2", "4, 5, 4, 4, 1"): "strides=(1, 2, 3) pads=(0, 1, 0, 2, 1, 0)",
    ("1, 4, 3, 4, 2", "4, 3, 2, 3, 3"): "groups=2 strides=(3, 1, 2) pads=(0, 0, 1, 0, 1, 1)",
    ("1, 4, d, 2, 3", "4, 3, 2, 3, 3"): "strides=(1, 2, 2) pads=(1, 0, 0, 0, 1, 1)",
}

SUMS = "dilations=(1, 1, 1) accumulate=int32 zero=2"
MANY_ROWS = "kernel=(6, 3, 3) strides=(1, 1, 2) pads=(1, 0, 1, 1, 0, 1)"
PLANAR = "kernel=(1, 2, 3) strides=(1, 1, 2) pads=(0, 0, 1, 0, 1, 1)"
WINDOW = "kernel=(3, 2, 3) strides=(2, 1, 2) pads=(1, 0, 1, 1, 1, 1)"


def convolution(shapes, attributes, transposed=False):
    image, weights = shapes
    attributes = attributes if "strides" in attributes else f"strides=(1, 1, 1) {attributes}"
    attributes = attributes if "dilations" in attributes else f"dilations=(1, 1, 1) {attributes}"
    return f"""graph g(%x: float32[{image}], %w: float32[{weights}]) {{
        %y = conv(%x, %w) {attributes} transposed={"true" if transposed else "false"}
        return %y
    }}"""


@pytest.mark.parametrize("shapes", CONVOLUTIONS, ids=str)
def test_convolutions_are_over_two_axes(shapes):
    text = convolution(shapes, CONVOLUTIONS[shapes])
    found = agrees(clean(flatten_windows), text, tolerance=1e-5, d=4, h=5)
    assert [len(n.op.strides) for n in found.nodes if isinstance(n.op, Conv)] == [2]


@pytest.mark.parametrize("shapes", TRANSPOSED, ids=str)
def test_transposed_convolutions_are_over_two_axes(shapes):
    text = convolution(shapes, TRANSPOSED[shapes], transposed=True)
    found = agrees(clean(flatten_windows), text, tolerance=1e-5, d=4)
    assert [len(n.op.strides) for n in found.nodes if isinstance(n.op, Conv)] == [2]


def test_nothing_moves_where_two_axes_become_one():
    shapes = "1, 4, 5, 3, 4", "6, 4, 3, 1, 1"
    found = agrees(clean(flatten_windows), convolution(shapes, CONVOLUTIONS[shapes]), tolerance=1e-5)
    assert [type(n.op).__name__ for n in found.nodes] == ["Reshape", "Reshape", "Conv", "Reshape"]


BLOCKS = {  # of the target: (image, weights): attributes
    ("1, 16, 4, 6, 7", "5, 16, 3, 3, 3"): "pads=(1, 1, 1, 1, 1, 1)",
    ("1, 16, 7, 5, 4", "4, 16, 3, 3, 3"): "strides=(2, 1, 2) pads=(0, 1, 1, 2, 1, 1)",
    ("1, 32, d, h, 4", "4, 32, 2, 3, 3"): "pads=(1, 1, 1, 0, 1, 1)",
    ("1, 16, 6, 5, d", "4, 16, 3, 3, 2"): "dilations=(2, 1, 1) pads=(2, 1, 0, 2, 1, 0)",
    ("1, 16, 5, 4, 6", "4, 16, 1, 3, 3"): "strides=(2, 1, 1) pads=(0, 1, 1, 0, 1, 1)",
}


@pytest.mark.parametrize("shapes", BLOCKS, ids=str)
def test_planes_of_a_single_volume_of_whole_blocks_are_seen_where_they_lie(shapes):
    found = agrees(clean(flatten_windows), convolution(shapes, BLOCKS[shapes]), tolerance=1e-4, d=4, h=5)
    assert "Unfold" in ops(found) and "Slice" not in ops(found)


@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("2, 16, 4, 6, 7", "5, 16, 3, 3, 3", ""),
        ("1, 24, 4, 6, 7", "5, 24, 3, 3, 3", ""),
        ("1, 16, 4, 6, 7", "5, 16, 3, 3, 3", "dilations=(2, 1, 1)"),
    ],
    ids=["several volumes", "a block that is not whole", "planes apart"],
)
def test_other_planes_are_copied(image, weights, attributes):
    text = convolution((image, weights), f"pads=(2, 1, 1, 2, 1, 1) {attributes}")
    found = agrees(clean(flatten_windows), text, tolerance=1e-4)
    assert "Unfold" not in ops(found) and "Concat" in ops(found)


POINTWISE = "pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)"


@pytest.mark.parametrize("stride", [1, 2])
def test_what_sees_one_place_reads_planes_as_the_windows_beside_it_do(stride):
    inputs = "%x: float32[1, 16, 5, 6, 7], %w: float32[16, 16, 1, 1, 1], %v: float32[4, 16, 3, 3, 3]"
    text = f"""graph g({inputs}) {{
        %0 = conv(%x, %w) strides=({stride}, {stride}, {stride}) {POINTWISE}
        WINDOWS
        return %1
    }}"""
    windows = "%1 = conv(%0, %v) strides=(1, 1, 1) pads=(1, 1, 1, 1, 1, 1) dilations=(1, 1, 1)"
    beside = agrees(clean(flatten_windows), text.replace("WINDOWS", windows), tolerance=1e-4)
    assert [n.inputs[0].shape[0] for n in beside.nodes if isinstance(n.op, Conv)] == [-(-5 // stride)] * 2
    alone = agrees(
        clean(flatten_windows), text.replace("WINDOWS", "%1 = map(%0) { neg($0) }"), tolerance=1e-5
    )
    assert [n.inputs[0].shape[0] for n in alone.nodes if isinstance(n.op, Conv)] == [1]


def test_padding_of_integers_is_their_zero_point():
    agrees(
        clean(flatten_windows),
        f"""graph g(%x: uint8[1, 4, 4, 4, 4], %w: int8[3, 4, 2, 2, 2]) {{
        %y = conv(%x, %w) strides=(1, 1, 1) pads=(1, 1, 0, 1, 0, 1) {SUMS}
        return %y
    }}""",
    )


@pytest.mark.parametrize("kind", ("max", "sum", "mean"))
def test_pools_go_along_one_axis_after_the_others(kind):
    found = agrees(
        flatten_windows,
        f"""graph g(%x: float32[2, 3, 7, d, 6]) {{
        %y = pool(%x) kind={kind} {MANY_ROWS} dilations=(1, 2, 1) sizes=(4, d-4, 3)
        return %y
    }}""",
        tolerance=1e-6,
        d=9,
    )
    assert [len(n.op.kernel) for n in found.nodes if isinstance(n.op, Pool)] == [3, 2]


@pytest.mark.parametrize(
    "node",
    (
        "conv(%x, %w) strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1) groups=4",
        f"pool(%x) kind=argmax {WINDOW} dilations=(1, 1, 1) sizes=(2, 4, 2)",
        f"pool(%x) kind=max {PLANAR} dilations=(1, 1, 1) sizes=(4, 4, 2)",
    ),
    ids=["groups of one channel", "places", "nothing along the first axis"],
)
def test_what_gains_nothing_stays(node):
    stays(
        flatten_windows,
        f"""graph g(%x: float32[1, 4, 4, 4, 4], %w: float32[4, 1, 2, 2, 2]) {{
        %y = {node}
        return %y
    }}""",
    )


@pytest.mark.parametrize("channels, stays_so", [(2, True), (4, True), (8, True), (16, False), (3, False)])
def test_groups_that_share_a_block_stay(channels, stays_so):
    found = agrees(
        flatten_windows,
        f"""graph g(%x: float32[1, {2 * channels}, 4, 3, 3],
                    %w: float32[{2 * channels}, {channels}, 2, 2, 2]) {{
        %y = conv(%x, %w) strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1) groups=2
        return %y
    }}""",
        tolerance=1e-5,
    )
    assert any(isinstance(n.op, Conv) and len(n.op.strides) == 3 for n in found.nodes) == stays_so


@pytest.mark.parametrize("made, stays_so", [(1, True), (2, True), (16, True), (5, False), (32, False)])
def test_groups_of_one_channel_stay_where_their_results_fill_blocks(made, stays_so):
    found = agrees(
        flatten_windows,
        f"""graph g(%x: float32[1, 4, 4, 3, 3], %w: float32[{4 * made}, 1, 2, 2, 2]) {{
        %y = conv(%x, %w) strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1) groups=4
        return %y
    }}""",
        tolerance=1e-5,
    )
    assert any(isinstance(n.op, Conv) and len(n.op.strides) == 3 for n in found.nodes) == stays_so


@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("2, 4, 1, h, 4", "6, 4, 1, 3, 3", "strides=(2, 1, 2) pads=(0, 1, 1, 0, 1, 1)"),
        ("1, 4, 5, 1, 4", "4, 1, 3, 1, 3", "groups=4"),
        ("1, 3, 5, 6, 1", "16, 3, 3, 3, 1", "pads=(1, 1, 0, 1, 1, 0)"),
    ],
    ids=["batches", "groups of one channel", "few channels"],
)
def test_axes_of_a_single_place_vanish(image, weights, attributes):
    attributes = attributes if "pads" in attributes else f"{attributes} pads=(0, 0, 0, 0, 0, 0)"
    found = agrees(clean(flatten_windows), convolution((image, weights), attributes), tolerance=1e-5, h=5)
    assert ops(found) == ["Reshape", "Reshape", "Conv", "Reshape"]


def test_places_between_results_are_left_out_before():
    shapes = "2, 4, 5, h, 4", "6, 4, 1, 1, 1"
    found = agrees(clean(flatten_windows), convolution(shapes, CONVOLUTIONS[shapes]), tolerance=1e-5, h=5)
    assert [type(n.op).__name__ for n in found.nodes] == ["Slice", "Reshape", "Reshape", "Conv", "Reshape"]


@pytest.mark.parametrize("strides, first", [((2, 1, 2), (3, 1)), ((1, 1, 1), (3, 1)), ((1, 2, 2), (1, 2, 2))])
def test_pools_begin_with_what_leaves_no_more(strides, first):
    counts = [(size - k) // s + 1 for size, k, s in zip((9, 8, 8), (3, 2, 2), strides)]
    text = f"""graph g(%x: float32[2, 3, 9, 8, 8]) {{
        %y = pool(%x) kind=mean kernel=(3, 2, 2) strides={strides} pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)
            sizes=({", ".join(map(str, counts))})
        return %y
    }}"""
    found = agrees(clean(flatten_windows), text, tolerance=1e-5)
    assert next(n.op.kernel for n in found.nodes if isinstance(n.op, Pool)) == first
