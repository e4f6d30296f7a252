"""Convolutions as they are imported: windows over images whose sizes only the run knows, and refusals."""

import numpy as np
import pytest
from support.small_models import parsed

import onnxc
from onnxc.errors import OnnxcError
from onnxc.frontend.importer import import_model
from onnxc.ir.ops import Conv


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_single_pixels_need_no_padding_however_far_apart(auto_pad):
    text = f"""m (float[n, 4, h, w] x, float[5, 4, 1, 3] k) => (float y)
        {{ y = Conv <auto_pad = "{auto_pad}", strides = [2, 3]> (x, k) }}"""
    (conv,) = (node.op for node in import_model(parsed(text)).graph.nodes if isinstance(node.op, Conv))
    assert (conv.pads[0], conv.pads[2]) == (0, 0)


@pytest.mark.parametrize(("op", "what"), [("Conv", "5 kernels"), ("ConvTranspose", "5 input channels")])
def test_groups_that_do_not_divide_kernels_are_refused_by_what_they_would_divide(op, what):
    model = parsed(
        f"m (float[1, 6, 7, 7] x, float[5, 3, 3, 3] w) => (float y) {{ y = {op} <group = 2> (x, w) }}"
    )
    with pytest.raises(
        OnnxcError, match=rf"the {what} of float32\[5, 3, 3, 3\] are not divisible into 2 groups"
    ):
        import_model(model)


def test_the_run_says_how_long_an_axis_must_be_for_a_kernel(tmp_path):
    model = parsed("m (float[1, 1, l] x, float[1, 1, 3] w) => (float y) { y = Conv (x, w) }")
    session = onnxc.load(onnxc.compile(model, tmp_path / "conv.so"), threads=1)
    for size in range(3):
        with pytest.raises(onnxc.RunError, match=rf"y \(Conv\): .*: expected 3 at least, got {size}"):
            session.run(None, {"x": np.zeros((1, 1, size), np.float32), "w": np.zeros((1, 1, 3), np.float32)})
