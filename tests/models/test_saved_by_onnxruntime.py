"""Models that ONNX Runtime optimised for this machine and saved compile, and compute what it does."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxc
from onnxc.frontend.contrib_ops import blocked

rng = np.random.default_rng(3)


def images():
    """Convolutions of every kind that ONNX Runtime stores in blocks, pools, a sum, a concatenation."""
    stored, nodes = [], []

    def conv(name, x, shape, relu=True, **attributes):
        weights = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        for end, array in (("w", weights), ("b", rng.standard_normal(shape[0]))):
            stored.append(numpy_helper.from_array(array.astype(np.float32), f"{name}{end}"))
        nodes.append(helper.make_node("Conv", [x, f"{name}w", f"{name}b"], [f"{name}c"], **attributes))
        if not relu:
            return f"{name}c"
        nodes.append(helper.make_node("Relu", [f"{name}c"], [name]))
        return name

    def node(op_type, inputs, output, **attributes):
        nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    x = conv("first", "x", (32, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    x = node("MaxPool", [x], "pooled", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    wide = conv("wide", x, (64, 32, 1, 1))
    deep = conv("deep", wide, (64, 1, 3, 3), pads=[1, 1, 1, 1], group=64)
    parts = conv("parts", deep, (64, 32, 3, 3), pads=[1, 1, 1, 1], group=2)
    summed = node("Add", [conv("last", parts, (64, 64, 1, 1), relu=False), wide], "summed")
    joined = node("Concat", [node("Relu", [summed], "rectified"), deep], "joined", axis=1)
    mean = node("AveragePool", [joined], "mean", kernel_shape=[2, 2], count_include_pad=1)
    node("GlobalAveragePool", [conv("out", mean, (20, 128, 1, 1), relu=False)], "y")
    graph = helper.make_graph(
        nodes,
        "images",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 33, 37])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 20, 1, 1])],
        stored,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.slow
def test_a_model_saved_with_channels_in_blocks_gives_the_same(tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(images().SerializeToString(), options)
    saved = onnx.load(tmp_path / "saved.onnx")
    assert {"Conv", "MaxPool", "ReorderOutput"} <= {
        n.op_type for n in saved.graph.node if n.domain == "com.microsoft.nchwc"
    }
    x = rng.standard_normal((2, 3, 33, 37)).astype(np.float32)
    library = onnxc.compile(tmp_path / "saved.onnx", tmp_path / "saved.so")
    expected = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(onnxc.load(library).run(None, {"x": x})[0], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("native", [16, 8, 4])
def test_blocks_are_those_of_the_machine_where_the_channels_allow_it(native, monkeypatch):
    monkeypatch.setattr(blocked, "_native_block", lambda: native)
    assert blocked.block_of(48, 32) == native
    assert blocked.block_of(24) == min(native, 8)
    plain = np.arange(native * 2 * native * 9, dtype=np.float32).reshape(native, 2 * native, 3, 3)
    inner = plain.reshape(1, native, 2, native, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    np.testing.assert_array_equal(blocked.plain_weights(inner.reshape(plain.shape), 1), plain)
