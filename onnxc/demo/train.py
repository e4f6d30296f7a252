"""Trains the model that `onnxc demo` compiles: `python -m onnxc.demo.train` (needs scikit-learn and onnx).

A perceptron with two hidden layers on scikit-learn's 8x8 digits. Writes digits.onnx and digits.npz, the
images of the test set with their labels, beside this file, and prints the accuracy on that set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parent
LAYERS = (64, 32)


def to_onnx(network: Any) -> onnx.ModelProto:
    """image [batch, 8, 8] of 0..16 → probabilities [batch, 10]."""
    initializers = [
        numpy_helper.from_array(np.array([0, 64], np.int64), "flat"),
        numpy_helper.from_array(np.asarray(1 / 16, np.float32), "scale"),
    ]
    nodes = [
        helper.make_node("Reshape", ["image", "flat"], ["pixels"]),
        helper.make_node("Mul", ["pixels", "scale"], ["layer0"]),
    ]
    last = len(network.coefs_)
    for k, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_), 1):
        initializers += [
            numpy_helper.from_array(weights.astype(np.float32), f"weights{k}"),
            numpy_helper.from_array(bias.astype(np.float32), f"bias{k}"),
        ]
        nodes.append(helper.make_node("Gemm", [f"layer{k - 1}", f"weights{k}", f"bias{k}"], [f"sum{k}"]))
        operator, result = ("Relu", f"layer{k}") if k < last else ("Softmax", "probabilities")
        nodes.append(helper.make_node(operator, [f"sum{k}"], [result]))
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        initializers,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="onnxc.demo.train"
    )
    model.ir_version = 8
    return model


def main() -> None:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    data = load_digits()
    train, test, train_labels, test_labels = train_test_split(
        data.data, data.target, test_size=0.25, random_state=0, stratify=data.target
    )
    network = MLPClassifier(LAYERS, max_iter=400, random_state=0).fit(train / 16, train_labels)
    accuracy = network.score(test / 16, test_labels)
    model = to_onnx(network)
    helper.set_model_props(
        model, {"accuracy": f"{accuracy:.4f}", "data": "scikit-learn digits, a quarter held out"}
    )
    onnx.save(model, FOLDER / "digits.onnx")
    np.savez_compressed(
        FOLDER / "digits.npz",
        images=test.reshape(-1, 8, 8).astype(np.uint8),
        labels=test_labels.astype(np.uint8),
    )
    print(f"accuracy on {len(test)} images of the test set: {accuracy:.4f}")


if __name__ == "__main__":
    main()
