"""Casts of a model round, also where float16 numbers between operators stay float32."""

import numpy as np
import onnx
import pytest

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph
from onnxc.passes.round_late import round_late

X = np.array([0.3, 1e6, 1e-9], np.float32)


def found(text, *, ranked=True):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 16]> {text}')
    if not ranked:
        for port in (*model.graph.input, *model.graph.output):
            port.type.tensor_type.ClearField("shape")
    return run_graph(round_late(import_model(model).graph), [X])[0]


def rounded(x):
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("ranked", [True, False])
@pytest.mark.parametrize("cast", ["Cast <to = 10> (x)", "CastLike (x, like)"])
def test_a_tensor_of_any_rank_is_rounded_where_the_model_casts_it(cast, ranked):
    like = "like = Constant <value = float16 {1}> ()"
    text = f"g (float[n] x) => (float[n] y) {{ {like} h = {cast} y = Cast <to = 1> (h) }}"
    np.testing.assert_array_equal(found(text, ranked=ranked), rounded(X))


def test_nodes_of_one_name_are_not_one_node():
    text = """g (float[n] x) => (float[n] y) {
        [k] d = Cast <to = 11> (x) [k] s = Add (d, d) [k] t = Cast <to = 1> (s)
        [k] h = Cast <to = 10> (t) [k] y = Cast <to = 1> (h) }"""
    np.testing.assert_array_equal(found(text), rounded(X + X))
