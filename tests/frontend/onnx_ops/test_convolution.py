"""Windows of convolutions over images whose sizes only the run knows."""

import pytest
from support.small_models import parsed

from onnxc.frontend.importer import import_model
from onnxc.ir.ops import Conv


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_single_pixels_need_no_padding_however_far_apart(auto_pad):
    text = f"""m (float[n, 4, h, w] x, float[5, 4, 1, 3] k) => (float y)
        {{ y = Conv <auto_pad = "{auto_pad}", strides = [2, 3]> (x, k) }}"""
    (conv,) = (node.op for node in import_model(parsed(text)).graph.nodes if isinstance(node.op, Conv))
    assert (conv.pads[0], conv.pads[2]) == (0, 0)
