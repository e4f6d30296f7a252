"""ONNX Runtime's products of bytes are sums of integers, on processors without dot products too."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxc.commands import comparison
from onnxc.commands.comparison import onnxruntime_session
from onnxc.commands.unsigned_weights import with_unsigned_weights

rng = np.random.default_rng(0)


def full(shape, dtype):
    """Numbers at both ends of the type's range."""
    return rng.choice(np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype), shape)


def product(x, w, constant, zero=None):
    names, stored = ["x", "w", *(["", "z"] if zero is not None else [])], {}
    ports = [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)]
    if constant:
        stored["w"] = w
    else:
        ports.append(helper.make_tensor_value_info("w", helper.np_dtype_to_tensor_dtype(w.dtype), w.shape))
    if zero is not None:
        stored["z"] = zero
    results = [helper.make_tensor_value_info("y", TensorProto.INT32, None)]
    weights = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph([helper.make_node("MatMulInteger", names, ["y"])], "g", ports, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("optimise", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)], ids=str)
def test_sums_of_products_are_exact(types, constant, optimise):
    x, w = full((5, 64), types[0]), full((64, 40), types[1])
    for zero in (None, np.asarray(-128 if types[1] == np.int8 else 255, types[1])):
        session = onnxruntime_session(product(x, w, constant, zero), optimise=optimise)
        (found,) = session.run(None, {"x": x} if constant else {"x": x, "w": w})
        np.testing.assert_array_equal(found, x.astype(int) @ (w.astype(int) - (0 if zero is None else zero)))


def test_sparse_weights_are_shifted_too():
    whole = product(full((5, 64), np.uint8), full((64, 40), np.int8), constant=True)
    del whole.graph.initializer[:]
    values, places = (
        helper.make_tensor("w", TensorProto.INT8, [1], [-128]),
        helper.make_tensor("", 7, [1], [9]),
    )
    whole.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [64, 40]))
    changed = with_unsigned_weights(whole)
    assert [node.op_type for node in changed.graph.node] == [*SHIFT, "MatMulInteger"]


def test_a_changed_model_has_external_data_that_is_behind_links(tmp_path, monkeypatch):
    """As on a processor without dot products of bytes."""
    x, w = full((5, 64), np.uint8), full((64, 40), np.int8)
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    onnx.save(
        product(x, w, constant=True),
        blobs / "m",
        save_as_external_data=True,
        location="w.bin",
        size_threshold=0,
    )
    for link, to in (("m.onnx", "m"), ("w.bin", "w")):
        (snapshot / link).symlink_to(blobs / to)
    (blobs / "w.bin").rename(blobs / "w")
    monkeypatch.setattr(comparison, "find_target", lambda: SimpleNamespace(dot=lambda *types: None))
    (found,) = onnxruntime_session(snapshot / "m.onnx").run(None, {"x": x})
    np.testing.assert_array_equal(found, x.astype(int) @ w.astype(int))


def changed(text):
    """The operators of a model's nodes behind the rewriting, in order."""
    model = parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]>\n{text}')
    found = with_unsigned_weights(model)
    before, after = ([node.op_type for node in m.graph.node] for m in (model, found))
    assert (found is model) == (before == after)
    return after


SHIFT = ["Cast", "Add", "Cast"]


def test_signed_weights_and_their_zero_point_are_shifted():
    text = """g (uint8[2, 3] x, int8[3, 4] w, uint8 a, int8 b) => (int32[2, 4] y) {
        y = MatMulInteger (x, w, a, b)
    }"""
    assert changed(text) == [*SHIFT, *SHIFT, "MatMulInteger"]


def test_what_is_quantised_to_signed_bytes_is_known():
    text = """g (uint8[2, 3] x, float[3, 4] v, float s, int8 z) => (int32[2, 4] y) {
        w = QuantizeLinear (v, s, z)
        y = MatMulInteger (x, w)
    }"""
    assert changed(text) == ["QuantizeLinear", *SHIFT, "MatMulInteger"]


@pytest.mark.parametrize(
    "text",
    [
        "g (uint8[2, 3] x, uint8[3, 4] w) => (int32[2, 4] y) { y = MatMulInteger (x, w) }",
        "g (int8[2, 3] x, int8[3, 4] w) => (int32[2, 4] y) { y = MatMulInteger (x, w) }",
        "g (float[2, 3] x, float[3, 4] w) => (float[2, 4] y) { y = MatMul (x, w) }",
    ],
)
def test_a_model_without_such_products_stays(text):
    assert "Cast" not in changed(text)


def test_weights_may_be_multiplied_twice():
    model = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17]>
    g (uint8[2, 2] x) => (float[2, 2] y)
    <float one = {1}, uint8 zero = {0}, int8 none = {0}, int8[2, 2] w = {100, 1, 0, 1}> {
        a = DequantizeLinear (x, one, zero)
        b = DequantizeLinear (w, one, none)
        c = MatMul (a, b)
        d = QuantizeLinear (c, one, zero)
        e = DequantizeLinear (d, one, zero)
        f = MatMul (e, b)
        h = QuantizeLinear (f, one, zero)
        y = DequantizeLinear (h, one, zero)
    }""")
    x, w = np.array([[0, 100], [1, 3]], np.uint8), np.array([[100, 1], [0, 1]])
    (found,) = onnxruntime_session(model).run(None, {"x": x})
    np.testing.assert_array_equal(found, np.minimum(np.minimum(x @ w, 255) @ w, 255))
