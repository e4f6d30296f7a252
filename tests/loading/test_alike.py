"""Sequences whose items are alike are read at once, and give what items read one by one give: in C, and in
Python without it."""

import gc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxc
from onnxc.loading import context


def model():
    """x in single rows, in pairs of rows, and in columns; one text after the other."""
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["rows"], keepdims=0),
        helper.make_node("SplitToSequence", ["x", "two"], ["pairs"], axis=0),
        helper.make_node("SplitToSequence", ["x"], ["columns"], axis=1),
        helper.make_node("SplitToSequence", ["t"], ["texts"], keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.INT32, ["N", 3]),
        helper.make_tensor_value_info("t", TensorProto.STRING, ["N"]),
    ]
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output]
    two = onnx.numpy_helper.from_array(np.array(2), "two")
    graph = helper.make_graph(nodes, "parts", inputs, outputs, [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("caller", [context.Caller, None], ids=["in C", "in Python"])
def test_parts_of_a_tensor_outlive_the_model_and_each_other(tmp_path, monkeypatch, caller):
    monkeypatch.setattr(context, "Caller", caller)
    compiled = onnxc.load(onnxc.compile(model(), tmp_path / "parts.so"))
    kept = []
    for count in (0, 1, 3, 20, 21):  # few are read one by one; of 21 rows the last pair has one
        x = np.arange(3 * count, dtype=np.int32).reshape(count, 3)
        texts = np.array([f"text {k}" for k in range(count)], object)
        rows, pairs, columns, split = compiled.run(None, {"x": x, "t": texts})
        assert [str(t) for t in split] == list(texts)
        assert all(part.flags.writeable and part.flags.c_contiguous for part in (*rows, *pairs, *columns))
        wanted = [*x, *(x[k : k + 2] for k in range(0, count, 2)), *(x[:, k : k + 1] for k in range(3))]
        kept += zip([*rows, *pairs, *columns], wanted, strict=True)
    compiled.close()
    del compiled, rows, pairs, columns
    gc.collect()
    for found, wanted in kept[::2]:
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
