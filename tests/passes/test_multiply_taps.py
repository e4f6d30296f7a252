"""multiply_taps: convolutions of open channels are sums of products of matrices, one a tap."""

import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.ir.ops import Contract
from onnxc.passes.multiply_taps import multiply_taps

PLAIN = "strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)"


def convolution(image, weights, attributes):
    return f"""graph g(%x: float32[{image}], %w: float32[{weights}]) {{
        %y = conv(%x, %w) {attributes}
        return %y
    }}"""


def test_a_window_of_one_tap_is_one_product():
    becomes(
        clean(multiply_taps),
        convolution("b, 8, 5, 6", "n, 8, 1, 1", PLAIN),
        """graph g(%x: float32[b, 8, 5, 6], %w: float32[n, 8, 1, 1]) {
            %0 = slice(%x) starts=(0, 0, 0, 0) sizes=(b, 8, 5, 6) steps=(1, 1, 1, 1)
            %1 = slice(%w) starts=(0, 0, 0, 0) sizes=(n, 8, 1, 1) steps=(1, 1, 1, 1)
            %2 = reshape(%1) shape=(n, 8)
            %3 = contract(%0, %2) lhs=nchw rhs=oc out=nohw accumulate=float32
            %y = reshape(%3) shape=(b, n, 5, 6)
            return %y
        }""",
    )


@pytest.mark.parametrize(
    "image, weights, attributes, taps",
    [
        ("2, 4, 7, 9", "n, 4, 3, 2", "strides=(1, 1) pads=(1, 0, 2, 1) dilations=(1, 1)", 6),
        ("b, c, h, w", "n, c, 3, 3", "strides=(2, 3) pads=(1, 1, 1, 1) dilations=(1, 2)", 9),
        ("b, 8, 5", "n, 2, 3", "strides=(1,) pads=(2, 0) dilations=(1,) groups=4", 3),
        (
            "1, c, 3, 4, 5",
            "6, c, 2, 1, 2",
            "strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)",
            4,
        ),
    ],
)
def test_every_tap_is_a_product_that_the_next_one_is_added_to(image, weights, attributes, taps):
    text = convolution(image, weights, attributes)
    found = agrees(clean(multiply_taps), text, tolerance=1e-5, b=2, c=4, n=8, h=8, w=9)
    assert ops(found).count("Contract") == taps
    first, *others = (node for node in found.nodes if isinstance(node.op, Contract))
    assert first.op.epilogue is None
    assert all(node.op.epilogue is not None for node in others)


@pytest.mark.parametrize(
    "image, weights, attributes",
    [
        ("b, 8, h, w", "16, 8, 3, 3", PLAIN),  # panels are packed for it
        ("b, 8, h, w", "n, 8, k, 3", PLAIN),
        ("b, 8, h, w", "n, 8, 9, 9", PLAIN),  # 81 products
        ("b, 8, h, w", "n, 8, 3, 3", "strides=(1, 1) pads=(-1, 0, 0, 0) dilations=(1, 1)"),
        ("b, c, h, w", "c, 1, 3, 3", f"{PLAIN} groups=8"),
    ],
)
def test_windows_stay_that_others_take_or_that_are_no_few_taps(image, weights, attributes):
    stays(multiply_taps, convolution(image, weights, attributes))
