"""Which node of a model departs first: every value held against the other's, quantised ones given."""

import numpy as np
import onnx
import pytest
from support.bad_models import download_cache
from support.few_nodes import model, node

from onnxc.commands import comparison
from onnxc.commands.nodes import compare_nodes, with_all_outputs


def saved(proto, folder):
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


def test_every_value_of_the_main_graph_becomes_an_output_in_the_order_of_the_nodes(tmp_path):
    proto = model(node("Shape", "x", "s"), node("Relu", "a", "y"), node("Abs", "x", "a"))
    proto, nodes = with_all_outputs(saved(proto, tmp_path))
    assert {output.name for output in proto.graph.output} == {"y", "s", "a"}
    assert [(n.op_type, name) for n, name in nodes] == [("Shape", "s"), ("Abs", "a"), ("Relu", "y")]


def test_values_are_compared_where_external_data_is_behind_links(tmp_path):
    path = download_cache(tmp_path, np.array([1, 2, 3], np.float32).tobytes())
    (found,) = compare_nodes(path, "reference", {"x": np.ones(2, np.float32)})
    assert (found.output, found.difference.agrees) == ("y", True)


QUANTISED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[2,4] x, float[4,3] w) => (float[2,3] y) {
    a = Constant <value = float {0.05}> ()
    b = Constant <value = float {0.02}> ()
    z = Constant <value = uint8 {128}> ()
    q = QuantizeLinear (x, a, z)
    d = DequantizeLinear (q, a, z)
    p = MatMul (d, w)
    r = QuantizeLinear (p, b, z)
    y = DequantizeLinear (r, b, z)
}"""


def by_numpy(x, w, q=0, p=0, r=0):
    """The values of QUANTISED, and what the other's are more; what is behind is made of that."""
    scale, other = np.float32(0.05), np.float32(0.02)
    bytes_ = (np.clip(np.rint(x / scale) + 128, 0, 255) + q).astype(np.uint8)
    numbers = (bytes_.astype(np.float32) - 128) * scale
    products = numbers @ w + np.float32(p)
    results = (np.clip(np.rint(products / other) + 128, 0, 255) + r).astype(np.uint8)
    return {
        "q": bytes_,
        "d": numbers,
        "p": products,
        "r": results,
        "y": (results.astype(np.float32) - 128) * other,
    }


@pytest.mark.parametrize(
    ("more", "departs"),
    [
        ({}, []),
        ({"q": 1}, []),
        ({"r": -1}, []),
        ({"q": 2}, ["q"]),
        ({"r": 2}, ["r"]),
        ({"p": 0.5}, ["p", "r"]),
    ],
)
def test_what_reads_a_quantised_value_is_given_it_and_one_quantum_is_no_departure(
    more, departs, tmp_path, monkeypatch
):
    path = saved(onnx.parser.parse_model(QUANTISED), tmp_path)
    names = [output.name for output in with_all_outputs(path)[0].graph.output]
    random = np.random.default_rng(3)
    feeds = {"x": random.normal(size=(2, 4)).astype("f"), "w": random.normal(size=(4, 3)).astype("f")}
    values = by_numpy(**feeds, **more)
    monkeypatch.setattr(comparison, "reference", lambda *_: lambda _: [values[name] for name in names])
    found = compare_nodes(path, "reference", feeds)
    assert [each.output for each in found] == ["q", "d", "p", "r", "y"]
    assert [each.output for each in found if not each.difference.agrees] == departs


MAPS = """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
g (float[N,2] x) => (seq(map(string, float)) y) {
    y = ai.onnx.ml.ZipMap <classlabels_strings = ["p", "q"]> (x)
}"""


def test_a_model_whose_nodes_compute_no_tensor_has_nothing_to_compare(tmp_path, monkeypatch):
    path = saved(onnx.parser.parse_model(MAPS), tmp_path)
    monkeypatch.setattr(comparison, "reference", lambda *_: lambda _: [[{"p": 1.0, "q": 2.0}]])
    assert compare_nodes(path, "reference", {"x": np.float32([[1, 2]])}) == []
