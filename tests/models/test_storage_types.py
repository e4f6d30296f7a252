"""Common operators in every form in which models store numbers: the compiled library against the interpreter
of what was imported."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from support import storage_models as storage
from support.agreement import rival
from support.small_models import parsed

import onnxc
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph

FORMS = [(o, f) for o in storage.OPERATORS for f in storage.forms(o)]
#: Of the greatest result: what sums in another order, and Winograd, may change, and roundings to the type.
TOLERANCE = {"float64": 1e-12, "float16": 4e-3, "bfloat16": 3e-2}
#: Integers are exact; a number between two quantised ones may be rounded to either.
STEPS = {"qlinear": 0, "integer": 0, "qdq": 1}


@pytest.mark.parametrize(("operator", "form"), FORMS, ids=lambda word: word)
def test_the_library_gives_what_the_model_means(tmp_path, operator, form):
    proto = storage.model(operator, form, side=7)
    feeds = storage.feeds(proto)
    (expected,) = run_graph(import_model(proto).graph, [feeds[v.name] for v in proto.graph.input])
    library = onnxc.compile(proto, tmp_path / "model.so", threads=1, optimize="fast")
    (got,) = onnxc.load(library).run(None, feeds)
    assert got.dtype == expected.dtype or got.dtype.itemsize == expected.dtype.itemsize == 2
    got = got.view(expected.dtype)
    difference = np.abs(got.astype(np.float64) - expected.astype(np.float64)).max()
    if form in STEPS:
        assert difference <= STEPS[form]
    else:
        greatest = np.abs(expected.astype(np.float64)).max()
        assert difference <= TOLERANCE.get(form, 3e-5) * greatest


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "groups"),
    [(5, 19, (3, 3), 1), (20, 40, (3, 3), 1), (33, 7, (5,), 1), (18, 70, (1, 1), 1), (3, 8, (17,), 1)]
    + [(24, 24, (3, 3), 24), (12, 12, (3, 3), 6), (6, 24, (2, 2), 6), (20, 40, (3, 3), 2), (3, 6, (3,), 3)],
)
def test_weights_that_the_run_computes_are_packed_in_every_shape(tmp_path, channels, outputs, kernel, groups):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, channels, *[19] * len(kernel))).astype(np.float32)
    w = rng.standard_normal((outputs, channels // groups, *kernel)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups)
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in (("x", x), ("w", w))]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    proto = helper.make_model(helper.make_graph([node], "weights", ports, [y]), ir_version=10)
    (expected,) = run_graph(import_model(proto).graph, [x, w])
    (got,) = onnxc.load(onnxc.compile(proto, tmp_path / "model.so")).run(None, {"x": x, "w": w})
    np.testing.assert_allclose(got, expected, rtol=0, atol=3e-5 * np.abs(expected).max())


def test_extremes_of_quantised_numbers_along_an_open_axis_are_those_of_onnxruntime(tmp_path):
    """Each of its own DequantizeLinear: what nobody else reads is compared as it is stored."""
    proto = parsed("""g (uint8[2, n] x, int8[2, n] w) => (float[2] a, float[2] b, uint8[2] c) <
        float half = {0.5}, float one = {1.0}, uint8 zero = {3}, int8 late = {-3}, int64[1] axis = {1}> {
        t = DequantizeLinear (x, half, zero)
        u = DequantizeLinear (x, one, zero)
        v = DequantizeLinear (w, half, late)
        a = ReduceMax <keepdims = 0> (t, axis)
        b = ReduceMin <keepdims = 0> (u, axis)
        most = ReduceMax <keepdims = 0> (v, axis)
        c = QuantizeLinear (most, one, zero)
    }""")
    compiled, session = onnxc.load(onnxc.compile(proto, tmp_path / "model.so", threads=1)), rival(proto)
    for n in (0, 5):
        x = np.random.default_rng(n).integers(0, 256, (2, n)).astype(np.uint8)
        feeds = {"x": x, "w": x.view(np.int8)}
        for got, expected in zip(compiled.run(None, feeds), session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(got, expected)
