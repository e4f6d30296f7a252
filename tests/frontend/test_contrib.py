"""Operators of com.microsoft mean what ONNX Runtime makes of them."""

import numpy as np
import onnxruntime
import pytest
from support.one_node import evaluate, model

rng = np.random.default_rng(5)


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


CASES = [
    ("Gelu", [floats(3, 5)], {}),
    ("BiasGelu", [floats(2, 3, 5), floats(5)], {}),
    ("FastGelu", [floats(2, 3, 5)], {}),
    ("FastGelu", [floats(2, 3, 5), floats(5)], {}),
    ("QuickGelu", [floats(4)], {}),
    ("QuickGelu", [floats(4)], {"alpha": 0.5}),
]


@pytest.mark.parametrize(("name", "inputs", "attributes"), CASES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_results_are_those_of_onnxruntime(name, inputs, attributes, symbolic):
    proto = model(name, 18, inputs, {"domain": "com.microsoft", **attributes}, symbolic)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {f"x{k}": array for k, array in enumerate(inputs)})
    for actual, wanted in zip(evaluate(proto, inputs), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
