"""Random tree ensembles, in the forms that ONNX has for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def ensemble(
    rng: np.random.Generator,
    trees: int,
    depth: int,
    features: int = 5,
    targets: Sequence[Sequence[int]] = ((0,),),
    modes: Sequence[str] = ("BRANCH_LEQ",),
    missing: bool = False,
    positive: bool = False,
) -> dict[str, list]:
    """Attributes of TreeEnsembleRegressor, version 1. Paths end before `depth` at random; splits are whole
    numbers; a leaf of tree t has weights for targets[t % len(targets)]."""
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    nodes: dict[str, list] = {name: [] for name in (*names, "missing_value_tracks_true")}
    weights: dict[str, list] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, numbers: list[int], level: int) -> int:
        place, number = len(nodes["nodeids"]), numbers.pop()
        is_leaf = level == depth or (level > 0 and rng.random() < 0.2)
        row = [tree, number, int(rng.integers(features)), str(rng.choice(modes)), float(rng.integers(-2, 3))]
        row += [0, 0, int(missing and rng.random() < 0.5)]
        for values, value in zip(nodes.values(), row, strict=True):
            values.append(value)
        if is_leaf:
            nodes["modes"][place] = "LEAF"
            for target in targets[tree % len(targets)]:
                weight = float(np.float32(rng.random() if positive else rng.standard_normal()))
                for values, value in zip(weights.values(), (tree, number, target, weight), strict=True):
                    values.append(value)
        else:
            nodes["truenodeids"][place] = grow(tree, numbers, level + 1)
            nodes["falsenodeids"][place] = grow(tree, numbers, level + 1)
        return number

    for tree in range(trees):
        grow(tree, list(range(2 ** (depth + 1), -1, -1)), 0)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"target_{k}": v for k, v in weights.items()}


def regressor(attributes: dict, dtype: int = onnx.TensorProto.FLOAT, **others) -> onnx.ModelProto:
    """A model of one TreeEnsembleRegressor over x [N, F]."""
    attributes = {k: v for k, v in attributes.items() if v}
    return one_node("TreeEnsembleRegressor", 1, dtype, ["y"], {**attributes, **others})


def classifier(attributes: dict, dtype: int = onnx.TensorProto.FLOAT, **others) -> onnx.ModelProto:
    """The same trees as a TreeEnsembleClassifier."""
    renamed = {k.replace("target_", "class_"): v for k, v in attributes.items() if v}
    return one_node("TreeEnsembleClassifier", 1, dtype, ["label", "scores"], {**renamed, **others})


def one_node(
    op: str, version: int, dtype: int, outputs: Sequence[str], attributes: dict, features: int = 5
) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], outputs, domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", dtype, ["N", features])
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "trees", [x], results)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def tensor(values: Sequence[float] | np.ndarray, dtype: type = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values, dtype))
