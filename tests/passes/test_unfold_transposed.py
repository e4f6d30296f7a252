"""unfold_transposed: transposed convolutions in groups, of few outputs or of large strides become ordinary
ones."""

import numpy as np
import pytest
from support.pass_text import agrees, clean, stays

from onnxc.ir.ops import Conv, OverlapAdd
from onnxc.ir.text_parser import parse
from onnxc.passes.unfold_transposed import unfold_transposed

SHAPES = {  # (image, weights): attributes
    ("2, 8, 3, 4", "8, 3, 2, 2"): "strides=(2, 2) pads=(0, 0, 0, 0) groups=2",
    ("1, 6, 3, 4", "6, 1, 4, 4"): "strides=(2, 2) pads=(1, 1, 1, 1) groups=6",
    ("1, 6, 3, 5", "6, 2, 4, 3"): "strides=(3, 2) pads=(1, 0, 0, 1) output_padding=(2, 1) groups=3",
    ("1, 6, 5, 2", "6, 2, 3, 5"): "strides=(1, 2) pads=(2, 1, 1, 4) groups=3",
    ("1, 8, 3, 4", "8, 1, 1, 4"): "strides=(3, 1) pads=(0, 0, 0, 0) groups=2",
    ("2, 4, 6", "4, 2, 5"): "strides=(2,) pads=(1, 2) groups=2",
    ("1, 4, 2, 3, 4", "4, 2, 3, 2, 2"): "strides=(2, 1, 2) pads=(1, 0, 0, 0, 1, 0) groups=2",
    ("1, 4, d, 3", "4, 1, 5, 5"): "strides=(2, 2) pads=(1, 1, 1, 1) output_padding=(1, 1) groups=4",
    ("2, 16, 3, 4", "16, 3, 4, 4"): "strides=(2, 2) pads=(1, 1, 1, 1)",
    ("1, 20, d, 3", "20, 4, 3, 3"): "strides=(2, 2) pads=(1, 1, 1, 1) output_padding=(1, 1)",
    ("1, 16, 5", "16, 1, 16"): "strides=(8,) pads=(4, 4)",
    ("1, 16, 5", "16, 3, 3"): "strides=(3,) pads=(0, 1)",
    ("1, 16, 5, d", "16, 2, 2, 2"): "strides=(2, 2) pads=(0, 0, 1, 0)",
    ("1, 4, 3, 3, 4", "4, 1, 3, 3, 3"): "strides=(1, 2, 2) pads=(1, 0, 0, 1, 1, 1)",
    ("1, 2, 5", "2, 20, 130"): "strides=(65,) pads=(30, 31)",
    ("1, 3, 5", "3, 2, 70"): "strides=(100,) pads=(0, 0)",
    ("1, 3, 4, 5", "3, 20, 3, 2"): "strides=(1, 1) pads=(1, 0, 0, 1)",
    ("2, 4, 5, 4", "4, 3, 3, 3"): "strides=(1, 1) pads=(3, 1, 2, 4) dilations=(2, 1) groups=2",
    ("1, 3, 6", "3, 2, 2"): "strides=(1,) pads=(2, 3) output_padding=(1,) dilations=(2,)",
    ("1, 4, 2, d, 3", "4, 2, 3, 1, 2"): "strides=(1, 1, 1) pads=(0, 0, 1, 2, 0, 0) dilations=(2, 3, 1)",
    ("1, 3, 2, 3, 3", "3, 2, 2, 2, 3"): "strides=(2, 2, 2) pads=(0, 0, 1, 0, 2, 1) dilations=(2, 2, 2)",
    (
        "2, 4, 3, 2, 3",
        "4, 1, 3, 3, 2",
    ): "strides=(4, 3, 1) pads=(9, 0, 0, 1, 1, 1) dilations=(2, 6, 2) groups=2",
    ("1, 3, 2, d, 3", "3, 2, 2, 2, 2"): "strides=(2, 2, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(4, 1, 3)",
}


def convolution(shapes, attributes, known=True):
    image, weights = shapes
    rank = image.count(",") - 1
    w = f"%w = constant float32[{weights}] #w" if known else ""
    given = "" if known else f", %w: float32[{weights}]"
    plain = f"dilations=({'1, ' * (rank - 1)}1{',' * (rank == 1)})" * ("dilations" not in attributes)
    return f"""graph g(%x: float32[{image}]{given}) {{
        {w}
        %y = conv(%x, %w) {attributes} {plain} transposed=true
        return %y
    }}"""


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_results_between_two_steps_are_channels(shapes):
    weights = tuple(int(n) for n in shapes[1].split(","))
    constants = {"w": np.random.default_rng(0).standard_normal(weights).astype(np.float32)}
    text = convolution(shapes, SHAPES[shapes])
    found = agrees(clean(unfold_transposed), text, constants, tolerance=1e-5, d=4)
    assert [n.op.transposed for n in found.nodes if isinstance(n.op, Conv)] == [False]


FEW = {  # (image, weights): attributes
    ("2, 20, 3, 4", "20, 2, 3, 3"): "strides=(2, 2) pads=(1, 0, 0, 1) output_padding=(1, 0)",
    ("1, 64, d, 3", "64, 1, 4, 4"): "strides=(2, 2) pads=(1, 1, 1, 1)",
    ("1, 16, 5", "16, 1, 16"): "strides=(8,) pads=(4, 4)",
    ("1, 32, 3, 5", "32, 1, 3, 3"): "strides=(2, 2) pads=(0, 1, 2, 1) dilations=(2, 2)",
    ("1, 12, 8, 9", "12, 1, 4, 3"): "strides=(2, 1) pads=(0, 1, 2, 1)",
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("shapes", FEW, ids=str)
def test_taps_of_few_results_are_outputs_and_added_up(shapes, known, monkeypatch):
    monkeypatch.setattr("onnxc.passes.unfold_transposed.PIXELS", 0)
    weights = tuple(int(n) for n in shapes[1].split(","))
    constants = {"w": np.random.default_rng(0).standard_normal(weights).astype(np.float32)} if known else {}
    text = convolution(shapes, FEW[shapes], known)
    found = agrees(clean(unfold_transposed), text, constants, tolerance=1e-5, d=4)
    assert [type(n.op) for n in found.nodes if isinstance(n.op, (Conv, OverlapAdd))] == [Conv, OverlapAdd]
    (conv,) = (n for n in found.nodes if isinstance(n.op, Conv))
    assert set(conv.inputs[1].shape[2:]) == {1}


def test_of_stride_1_nothing_moves_but_weights():
    image = np.random.default_rng(0).standard_normal((4, 3, 3, 2)).astype(np.float32)
    turned = image.reshape(2, 2, 3, 3, 2).swapaxes(1, 2)[..., ::-1, ::-1].reshape(6, 2, 3, 2)
    text = convolution(("1, 4, 5, h", "4, 3, 3, 2"), "strides=(1, 1) pads=(1, 0, 0, 1) groups=2")
    found = clean(unfold_transposed)(parse(text, {"w": image}))
    assert [n.op.pads for n in found.nodes] == [(1, 1, 2, 0)]
    np.testing.assert_array_equal(found.nodes[0].inputs[1].data.array, turned)


def test_zero_points_stay():
    text = """graph g(%x: int8[1, 3, 4, 4], %w: int8[3, 2, 3, 3]) {
        %y = conv(%x, %w) strides=(2, 2) pads=(1, 1, 1, 1) dilations=(2, 2)
            groups=1 transposed=true accumulate=int32 zero=5
        return %y
    }"""
    for stride in (1, 2):
        agrees(clean(unfold_transposed), text.replace("strides=(2, 2)", f"strides=({stride}, {stride})"))


def test_where_a_result_is_few_products_they_stay():
    shapes = "1, 4, 3, 3", "4, 1, 3, 3"
    text = convolution(shapes, "strides=(2, 2) pads=(0, 0, 0, 0) groups=4")
    stays(unfold_transposed, text, {"w": np.ones((4, 1, 3, 3), np.float32)})


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_weights_of_the_run_are_moved_by_it(shapes, monkeypatch):
    monkeypatch.setattr("onnxc.passes.unfold_transposed.PIXELS", 1)
    text = convolution(shapes, SHAPES[shapes], known=False)
    found = agrees(clean(unfold_transposed), text, tolerance=1e-5, d=4)
    assert [n.op.transposed for n in found.nodes if isinstance(n.op, Conv)] == [False]


def test_weights_of_the_run_are_not_moved_for_a_few_pixels():
    attributes = "strides=(2, 2) pads=(0, 0, 0, 0) groups=4"
    few, many = (
        convolution((f"1, 16, {size}", "16, 1, 2, 2"), attributes, known=False) for size in ("7, 9", "8, 8")
    )
    stays(unfold_transposed, few)
    assert len(unfold_transposed(parse(many)).nodes) > 1


@pytest.mark.parametrize("image, weights", [("1, 16, 8, 8", "16, n, 4, 3"), ("2, c, 3, 3", "c, 2, 3, 3")])
@pytest.mark.parametrize("groups", [1, 2])
def test_open_channels_are_moved_too(image, weights, groups):
    attributes = f"strides=(2, 2) pads=(1, 1, 0, 1) groups={groups}"
    text = convolution((image, weights), attributes, known=False)
    found = agrees(clean(unfold_transposed), text, tolerance=1e-5, n=3, c=4)
    assert [n.op.transposed for n in found.nodes if isinstance(n.op, Conv)] == [False]


def test_weights_of_unknown_sizes_stay():
    text = convolution(
        ("1, 16, 9, 9", "16, 1, k, 2"), "strides=(2, 2) pads=(0, 0, 0, 0) groups=4", known=False
    )
    stays(unfold_transposed, text)


@pytest.mark.parametrize(
    "weights, strides",
    [
        ("16, 2, 2, 2", 2),  # windows side by side whose results share half a vector
        ("1, 3, 4, 4", 2),  # four products a result
        ("16, 8, 3, 3", 2),  # 9 taps of one vector beside 4 of two
        ("16, 16, 4, 4", 2),
    ],
)
def test_one_group_stays_unless_its_outputs_leave_most_lanes_idle(weights, strides):
    shape = tuple(int(n) for n in weights.split(","))
    text = convolution((f"1, {shape[0]}, 3, 4", weights), f"strides=({strides}, {strides}) pads=(0, 0, 0, 0)")
    stays(unfold_transposed, text, {"w": np.ones(shape, np.float32)})


@pytest.mark.parametrize(
    "weights, attributes",
    [
        ("32, 32, 3, 3", "strides=(2, 2) pads=(0, 0, 0, 0) dilations=(2, 2)"),
        ("8, 2, 2, 2", "strides=(2, 2) pads=(0, 0, 0, 0) dilations=(2, 2)"),  # few outputs
        ("16, 4, 1, 1", "strides=(2, 2) pads=(0, 0, 0, 0)"),  # of one tap
        ("2, 20, 2, 2, 2", "strides=(2, 2, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(2, 1, 2)"),  # volumes
    ],
)
def test_results_between_zeros_are_computed_without_these(weights, attributes):
    shape = tuple(int(n) for n in weights.split(","))
    text = convolution((", ".join(["1", str(shape[0]), *"333"[: len(shape) - 2]]), weights), attributes)
    found = unfold_transposed(parse(text, {"w": np.ones(shape, np.float32)}))
    assert [n.op.strides for n in found.nodes if isinstance(n.op, Conv)] == [(1,) * (len(shape) - 2)]


@pytest.mark.parametrize(
    "weights, dilation",
    [
        ("3, 32, 3, 3", 2),  # few products a result
        ("64, 64, 2, 2", 2),
        ("64, 4, 3, 3", 3),  # windows of results side by side begin at different places
    ],
)
def test_other_dilated_windows_stay(weights, dilation):
    shape = tuple(int(n) for n in weights.split(","))
    attributes = f"strides=(2, 2) pads=(0, 0, 0, 0) dilations=({dilation}, {dilation})"
    stays(
        unfold_transposed,
        convolution((f"1, {shape[0]}, 3, 4", weights), attributes),
        {"w": np.ones(shape, np.float32)},
    )


def test_images_of_more_pixels_pay_for_moving_weights_of_the_run_where_a_kernel_takes_both():
    few, many = (
        convolution((f"1, 16, {size}, 16", "16, 20, 3, 3"), "strides=(1, 1) pads=(1, 1, 1, 1)", known=False)
        for size in (7, 8)
    )
    stays(unfold_transposed, few)
    assert [n.op.transposed for n in unfold_transposed(parse(many)).nodes if isinstance(n.op, Conv)] == [
        False
    ]
