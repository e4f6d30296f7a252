"""Operators that were experiments mean what ONNX Runtime makes of them."""

import numpy as np
import pytest
from support.interpreting import close, normal, runtime
from support.one_node import evaluate, model

from onnxc.diagnostics import ModelErrors

X = normal(2, 3, 4, 5)
CASES = [
    ("Affine", [X], {"alpha": 2.0, "beta": -1.0}),
    ("Affine", [X], {}),
    ("Scale", [X], {"scale": 0.3}),
    ("ScaledTanh", [X], {"alpha": 1.5, "beta": 0.7}),
    ("ParametricSoftplus", [X], {"alpha": 1.5, "beta": 0.7}),
    ("ImageScaler", [X], {"bias": [1.0, -2.0, 0.5], "scale": 3.0}),
    ("Crop", [X], {"border": [1, 0, 2, 1]}),
    ("Crop", [X], {"border": [1, 2, 0, 0], "scale": [2, 3]}),
    ("Crop", [X], {"border": [2, 0, 3, 0]}),
    ("DynamicSlice", [X, np.array([1, -3]), np.array([9, -1]), np.array([1, 3])], {}),
    ("ThresholdedRelu", [X], {"alpha": 0.5}),
    ("MeanVarianceNormalization", [X], {}),
    ("MeanVarianceNormalization", [X], {"across_channels": 1}),
    ("MeanVarianceNormalization", [X], {"normalize_variance": 0}),
]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES)
def test_an_experiment_means_what_it_did(op, inputs, attributes, symbolic):
    (expected,) = runtime(op, inputs, opset=7, **attributes)
    (found,) = evaluate(model(op, 7, inputs, attributes, symbolic), inputs)
    close(found, expected)


@pytest.mark.parametrize("attributes", [{}, {"border": [0, -1, 0, 0]}, {"border": [3, 0, 3, 0]}])
def test_a_crop_that_leaves_nothing_is_refused(attributes):
    with pytest.raises(ModelErrors, match="Crop"):
        evaluate(model("Crop", 7, [X], attributes), [X])
