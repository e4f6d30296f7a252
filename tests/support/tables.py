"""Models of the rows of tables, for the engines that score them."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

WEIGHTS = np.array([[1, -1], [2, 0], [0.5, 3]], np.float32)  # of columns a, b, c


def scores(one_input: bool = True) -> ModelProto:
    """`features` [rows, 3], or a, b and c, each [rows, 1] -> `sum` [rows] and `scores` [rows, 2]."""
    names = ["features"] if one_input else ["a", "b", "c"]
    nodes = [] if one_input else [helper.make_node("Concat", names, ["features"], axis=1)]
    nodes += [
        helper.make_node("ReduceSum", ["features", "axes"], ["sum"], keepdims=0),
        helper.make_node("MatMul", ["features", "weights"], ["scores"]),
    ]
    wide = 3 if one_input else 1
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", wide]) for name in names]
    outputs = [
        helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["rows"]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 2]),
    ]
    constants = [numpy_helper.from_array(WEIGHTS, "weights"), numpy_helper.from_array(np.array([1]), "axes")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def table(rows: int) -> dict[str, np.ndarray]:
    """Columns a, b and c of float64, as tables have them."""
    return {name: np.random.default_rng(k).standard_normal(rows) for k, name in enumerate("abc")}


def expected(columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(sum, scores) of the rows."""
    features = np.column_stack([columns[name] for name in "abc"]).astype(np.float32)
    return features.sum(1), features @ WEIGHTS
