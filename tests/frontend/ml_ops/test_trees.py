"""Tree ensembles mean what ONNX Runtime makes of them: modes, missing values, aggregates, transforms, and the
special cases of two classes."""

import numpy as np
import onnx
import onnxruntime
import pytest
from support.forests import MODES, classifier, ensemble, one_node, regressor, tensor

from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir import ops
from onnxc.ir.interpret import run_graph

FLOAT = onnx.TensorProto.FLOAT
TARGETS = ([[0]], [[0, 0, 0]], [[0], [2], [1]], [[0, 2], [1, 1]])


def features(rng, dtype=np.float32):
    x = rng.integers(-3, 4, (40, 5)).astype(dtype)
    if dtype == np.float32:
        x[::7, 2], x[3, 1], x[4, 1] = np.nan, np.inf, -np.inf
    return x


def check(model, x):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    graph = import_model(model).graph
    for found, expected in zip(run_graph(graph, [x]), session.run(None, {"x": x}), strict=True):
        expected = np.asarray(expected)
        assert found.shape == expected.shape
        if found.dtype.kind != "f":
            assert found.tolist() == expected.tolist()
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("missing", [False, True])
def test_regressors_aggregate_their_leaves_as_onnxruntime_does(aggregate, missing):
    rng = np.random.default_rng(missing)
    for modes in (*([mode] for mode in MODES if aggregate == "SUM"), MODES):
        for targets in TARGETS:
            trees = ensemble(rng, 7, 4, targets=targets, modes=modes, missing=missing)
            count = max(map(max, targets)) + 1
            for base in ({}, {"base_values": [0.5] * count}):
                check(regressor(trees, n_targets=count, aggregate_function=aggregate, **base), features(rng))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("count", [2, 3])
def test_classifiers_choose_the_labels_that_onnxruntime_does(transform, count):
    rng = np.random.default_rng(count)
    for targets in ([[0]], [[1]], [[*range(count)]], [[c] for c in range(count)], [[0], [0], [1]]):
        for positive in (False, True):
            trees = ensemble(rng, 7, 4, targets=targets, positive=positive)
            trees["target_weights"] = [w / 10 for w in trees["target_weights"]]
            names = {"classlabels_strings": ["a", "b", "c"][:count]}
            names = {"classlabels_int64s": [3, 5, 9][:count]} if positive else names
            for base in (None, [0.3], [0.3, -0.2], [0.1, -0.2, 0.3]):
                if base is None or len(base) == count or len(base) < count == 2:
                    given = names if base is None else {**names, "base_values": base}
                    check(classifier(trees, post_transform=transform, **given), features(rng))


@pytest.mark.parametrize("labels", [[0, 1], [3, 7], ["no", "yes"]])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_each_row_has_the_score_of_the_classes_that_its_leaf_names(transform, labels):
    """The only score decides, and stands for both."""
    names = {f"classlabels_{'int64s' if isinstance(labels[0], int) else 'strings'}": labels}
    x = np.array([[1.0], [-1.0], [3.0]], np.float32)
    for leaves in (
        ([(0, 1.0)], [(1, 2.0)]),
        ([(0, -1.0)], [(1, -2.0)]),
        ([(0, 0.3)], [(0, 0.6)]),
        ([(1, 0.4)], [(1, 0.7)]),
        ([(0, 0.4), (1, -0.7)], [(0, 0.9)]),
        ([], [(1, 0.7)]),
        ([], [(0, 0.4), (1, 0.7)]),
    ):
        for base in ([], [0.3], [2.0, -1.5]):
            model = stump(leaves, base, transform, names)
            found = run_graph(import_model(model).graph, [x])
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            label, scores = session.run(None, {"x": x})
            assert found[0].tolist() == np.asarray(label).tolist()
            known = 1 if len(base) == 1 and {c for leaf in leaves for c, _ in leaf} == {0, 1} else 2
            np.testing.assert_allclose(found[1][:, :known], scores[:, :known], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize("label", [1, 7])
def test_one_class_is_1_where_its_score_is_above_0(transform, label):
    x = np.array([[1.0], [-1.0], [0.0], [3.0]], np.float32)
    for leaves in (
        ([(0, -1.0)], [(0, 2.0)]),
        ([(0, 0.2)], [(0, 0.4)]),
        ([(0, -0.5), (0, 5.0)], [(0, 0.4)]),
        ([], [(0, 0.4)]),
    ):
        for base in ([], [0.25]):
            check(stump(leaves, base, transform, {"classlabels_int64s": [label]}), x)
    numbers = {"class_weights_as_tensor": tensor([-1.0, 2.0]), "base_values_as_tensor": tensor([0.25])}
    names = {"classlabels_int64s": [label], "post_transform": transform}
    attributes = STUMP | {"class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 0]}
    check(
        one_node("TreeEnsembleClassifier", 3, FLOAT, ["label", "scores"], attributes | numbers | names, 1), x
    )


def test_one_class_that_a_text_names_has_no_other():
    model = stump(([(0, -1.0)], [(0, 2.0)]), [], "NONE", {"classlabels_strings": ["a"]})
    x = np.array([[-1.0], [1.0]], np.float32)
    label, scores = run_graph(import_model(model).graph, [x])
    assert label.tolist() == ["a", "a"]
    assert scores.tolist() == [[-1.0], [2.0]]


#: A node, x <= 0, and two leaves.
STUMP = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}


def stump(leaves, base, transform, names):
    """A classifier whose two leaves have weights (class, weight)."""
    weights = [(node, *weight) for node, leaf in enumerate(leaves, 1) for weight in leaf]
    attributes = STUMP | {
        "class_treeids": [0] * len(weights),
        "class_nodeids": [node for node, _, _ in weights],
        "class_ids": [target for _, target, _ in weights],
        "class_weights": [weight for _, _, weight in weights],
    }
    others = {"post_transform": transform, **names, **({"base_values": base} if base else {})}
    return one_node("TreeEnsembleClassifier", 1, FLOAT, ["label", "scores"], attributes | others, 1)


#: The leaves of a regressor over STUMP, of one target.
WEIGHTED = {
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("targets", [[0, 0], [0, 1], [2, 2]])
def test_base_values_count_where_a_leaf_has_a_weight_for_the_target(aggregate, transform, targets):
    trees = STUMP | WEIGHTED | {"target_ids": targets, "aggregate_function": aggregate}
    model = regressor({**trees, "post_transform": transform, "base_values": [0.5, 0.25, -3.0]}, n_targets=3)
    check(model, np.array([[-1.0] * 5, [1.0] * 5], np.float32))


def test_less_than_the_least_number_is_infinity_alone(recwarn):
    least = float(np.finfo(np.float32).min)
    trees = (
        STUMP | WEIGHTED | {"nodes_modes": ["BRANCH_LT", "LEAF", "LEAF"], "nodes_values": [least, 0.0, 0.0]}
    )
    check(regressor(trees, n_targets=1), np.array([[least] * 5, [-np.inf] * 5], np.float32))
    assert not recwarn.list


def test_probabilities_become_quantiles():
    rng = np.random.default_rng(1)
    trees = ensemble(rng, 3, 3, targets=[[0, 1, 2]])
    trees["target_weights"] = rng.uniform(0.1, 0.2, len(trees["target_weights"])).tolist()
    check(regressor(trees, n_targets=3, post_transform="PROBIT"), features(rng))


@pytest.mark.parametrize("dtype", ["DOUBLE", "INT32", "INT64"])
def test_features_of_other_types(dtype):
    rng, code = np.random.default_rng(2), onnx.TensorProto.DataType.Value(dtype)
    trees = ensemble(rng, 5, 3, modes=MODES[:4])
    x = features(rng, onnx.helper.tensor_dtype_to_np_dtype(code))
    check(classifier(trees, code, classlabels_int64s=[0, 1]), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_trees_of_version_5(dtype):
    """x0 in {1, 2, 5}, else x1 >= 2; three leaves of two targets, the second tree a leaf alone."""
    attributes = {
        "tree_roots": [0, 2],
        "nodes_modes": tensor([6, 2, 0], np.uint8),
        "nodes_splits": tensor([7, 2, 0], dtype),
        "nodes_featureids": [0, 1, 0],
        "nodes_truenodeids": [0, 1, 3],
        "nodes_trueleafs": [1, 1, 1],
        "nodes_falsenodeids": [1, 2, 3],
        "nodes_falseleafs": [0, 1, 1],
        "nodes_missing_value_tracks_true": [1, 0, 0],
        "membership_values": tensor([1, 2, 5, np.nan], dtype),
        "leaf_targetids": [0, 1, 0, 1],
        "leaf_weights": tensor([1, 2, 4, 8], dtype),
        "n_targets": 2,
    }
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = np.array([[0, 2], [1, 0], [2, 9], [4, 1], [5, 5], [7, 2], [np.nan, 0]], dtype)
    for aggregate, expected in ((1, [0, 2 + 8]), (2, [0, 2])):
        model = one_node("TreeEnsemble", 5, code, ["y"], {**attributes, "aggregate_function": aggregate}, 2)
        (found,) = run_graph(import_model(model).graph, [x])
        assert found.dtype == dtype
        assert found[0].tolist() == expected
        check(model, x)
    half = {**attributes}
    for name in ("nodes_splits", "membership_values", "leaf_weights"):
        half[name] = tensor(onnx.numpy_helper.to_array(attributes[name]), np.float16)
    (found,) = run_graph(
        import_model(one_node("TreeEnsemble", 5, onnx.TensorProto.FLOAT16, ["y"], half, 2)).graph,
        [x.astype(np.float16)],
    )
    assert found.tolist() == [[0, 10], [1, 8], [1, 8], [4, 8], [1, 8], [0, 10], [1, 8]]


def chain(**changes):
    """A regressor that asks for 0, 1, 2, 4, 6, 9 one after the other, as converters write sets, all but the
    last with one end; changes: attributes of nodes."""
    numbers = [0.0, 1.0, 2.0, 4.0, 6.0, 9.0]
    count = len(numbers)
    nodes = {
        "nodes_featureids": [0] * count,
        "nodes_modes": ["BRANCH_EQ"] * count,
        "nodes_values": numbers,
        "nodes_truenodeids": [count] * count,
        "nodes_falsenodeids": [*range(1, count), count + 1],
        "nodes_missing_value_tracks_true": [0] * count,
    }
    for name, at in changes.items():
        for place, value in at.items():
            nodes[f"nodes_{name}"][place] = value
    leaves = {name: values[-1:] * 2 for name, values in nodes.items()} | {"nodes_modes": ["LEAF"] * 2}
    numbered = {"nodes_treeids": [0] * (count + 2), "nodes_nodeids": [*range(count + 2)]}
    weights = {"target_nodeids": [count, count + 1], "target_weights": [1.0, 2.0]}
    trees = STUMP | WEIGHTED | weights | numbered | {name: nodes[name] + leaves[name] for name in nodes}
    return regressor(trees, n_targets=1)


NOT_EQUAL = {"modes": {3: "BRANCH_NEQ"}, "truenodeids": {3: 4}, "falsenodeids": {3: 6}}


@pytest.mark.parametrize(
    ("changes", "depth"),
    [
        ({}, 4),  # among twelve bounds
        ({"missing_value_tracks_true": {0: 1}}, 4),
        (NOT_EQUAL, 4),
        ({**NOT_EQUAL, "missing_value_tracks_true": {3: 1}}, 4),
        ({"featureids": {3: 1}}, 3 + 2 + 3),
        ({"truenodeids": {2: 7}}, 3 + 2 + 3),
    ],
)
def test_numbers_that_nodes_look_for_one_after_the_other_are_one_set(changes, depth):
    model = chain(**changes)
    x = np.random.default_rng(3).integers(-1, 11, (60, 5)).astype(np.float32)
    x[::7], x[1::7] = np.nan, x[1::7] + 0.5
    check(model, x)
    (op,) = (n.op for n in import_model(model).graph.nodes if isinstance(n.op, ops.TreeEnsemble))
    assert op.depth == depth


def test_each_node_of_a_set_says_where_nan_goes():
    graph = import_model(chain(missing_value_tracks_true={2: 1})).graph
    (found,) = run_graph(graph, [np.full((1, 5), np.nan, np.float32)])
    assert found.tolist() == [[1]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"nodes_truenodeids": [1, 0, 0]}, "form a circle"),
        ({"nodes_truenodeids": [7, 0, 0]}, "that its tree does not have"),
        ({"nodes_nodeids": [0, 1, 1]}, "two nodes of one number"),
        ({"nodes_modes": ["BRANCH_UP", "LEAF", "LEAF"]}, "no mode 'UP'"),
        ({"nodes_values": [1.0]}, "'nodes_values' has 1 elements where 3"),
        ({"target_ids": [0, 4]}, "target is not one of 1"),
        ({"nodes_featureids": [9, 0, 0]}, "less features"),
        ({"aggregate_function": "MEDIAN"}, "no aggregate 'MEDIAN'"),
        ({"post_transform": "SOFT"}, "no transform 'SOFT'"),
        ({"base_values": [0.5, 0.25]}, "'base_values' has 2 elements where 1"),
        ({"base_values": [0.5], "n_targets": 2}, "'base_values' has 1 elements where 2"),
    ],
)
def test_trees_that_are_none_are_refused(change, reason):
    trees = STUMP | WEIGHTED | {"nodes_featureids": [1, 0, 0], "nodes_values": [0.5, 0.0, 0.0]}
    circle = {"nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"]} if "circle" in reason else {}
    with pytest.raises(ModelErrors, match=reason):
        import_model(regressor({**trees, **circle, **change}))
