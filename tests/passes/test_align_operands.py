"""align_operands: what a convolution's epilogue reads for each channel has the rank of the result."""

import pytest
from support.pass_text import agrees, becomes, stays

from onnxc.passes.align_operands import align_operands

GRAPH = """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3], %b: float32[SHAPE]) {
    READ
    return %1
}"""
CONV = "%1 = conv(%x, %k, OPERAND) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) epilogue={ add($0, $1) }"


def graph(shape, operand="%b", before=""):
    read = f"{before} {CONV.replace('OPERAND', operand)}"
    return GRAPH.replace("SHAPE", shape).replace("READ", read)


@pytest.mark.parametrize("shape", ["8, 1, 1", "8, h, w", "8, 1, p"])
def test_what_is_read_for_each_channel_becomes_an_image(shape):
    reshaped = f"%0 = reshape(%b) shape=(1, {shape})"
    becomes(align_operands, graph(shape), graph(shape, "%0", reshaped))


@pytest.mark.parametrize("shape", ["1, 8, 1, 1", "1, h, w", "h, w", ""])
def test_images_and_what_is_read_alike_for_all_channels_stay(shape):
    stays(align_operands, graph(shape))


def test_constants_stay_as_they_are():
    stays(align_operands, graph("8, 1, 1", "%c", "%c = constant float32[8, 1, 1] splat 0.5"))


def test_results_stay_the_same_bits():
    agrees(align_operands, graph("8, h, w"), h=5, w=4)
