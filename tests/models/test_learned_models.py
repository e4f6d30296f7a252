"""Models of ai.onnx.ml in a library: every number of rows, labels that are texts, against ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from support.forests import classifier, ensemble, one_node, tensor
from support.harness import TARGETS

import onnxc

LINEAR = """
    <ir_version: 9, opset_import: ["": 18, "ai.onnx.ml": 2]>
    linear (float[N, 3] x, string[N, 2] t) => (string[N] label, float[N, C] scores, int64[N, 2] codes,
        float[N, F] features, string[N] machine, float[N, K] chances) {
        scaled = ai.onnx.ml.Scaler <offset = [0.5, 0.0, 1.0], scale = [2.0, 1.0, 0.5]> (x)
        label, scores = ai.onnx.ml.LinearClassifier <classlabels_strings = ["no", "perhaps", "yes"],
            coefficients = [1.0, 2.0, 3.0, -1.0, 0.5, 1.0, 0.0, 1.0, -2.0], intercepts = [0.1, -0.2, 0.3],
            post_transform = "SOFTMAX"> (scaled)
        codes = ai.onnx.ml.LabelEncoder <keys_strings = ["red", "green", ""], values_int64s = [4, 5, 6]> (t)
        hot = ai.onnx.ml.OneHotEncoder <cats_strings = ["green", "blue"]> (t)
        flat = Flatten (hot)
        features = ai.onnx.ml.FeatureVectorizer <inputdimensions = [3, 4]> (x, flat)
        machine, chances = ai.onnx.ml.SVMClassifier <classlabels_strings = ["a", "b", "c"],
            coefficients = [1.0, 0.5, -1.0, -0.5, 1.0, -1.0], rho = [0.1, 0.2, 0.3], kernel_type = "RBF",
            kernel_params = [0.3, 0.0, 3.0], support_vectors = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
            vectors_per_class = [1, 1, 1], prob_a = [-1.0, -2.0, -1.5], prob_b = [0.1, 0.0, -0.1]> (x)
    }"""


def agree(model, feeds, tmp_path):
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for given in feeds:
        for found, wanted in zip(compiled.run(None, given), session.run(None, given), strict=True):
            assert found.shape == wanted.shape
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
            else:
                assert found.tolist() == wanted.tolist()


def test_linear_models_and_labels(tmp_path):
    model, rng = onnx.parser.parse_model(LINEAR), np.random.default_rng(1)
    words = np.array(["red", "green", "blue", "", "none"], object)
    sizes = ((rng.standard_normal((n, 3)).astype(np.float32), rng.integers(0, 5, (n, 2))) for n in (1, 7))
    agree(model, [{"x": x, "t": words[t]} for x, t in sizes], tmp_path)


def test_trees_decide_as_in_onnxruntime_where_features_are_missing(tmp_path):
    rng = np.random.default_rng(2)
    trees = ensemble(rng, 40, 6, targets=[[0, 1, 2]], modes=("BRANCH_LEQ", "BRANCH_GT"), missing=True)
    model = classifier(trees, classlabels_strings=["a", "b", "c"], post_transform="SOFTMAX")
    rows = [rng.integers(-3, 4, (n, 5)).astype(np.float32) for n in (1, 5, 50, 700)]
    agree(model, [{"x": np.where(x == 3, np.float32(np.nan), x)} for x in rows], tmp_path)


@TARGETS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_of_classes_with_as_many_votes_the_first_is_the_label(target, dtype, classes, tmp_path):
    """Of any number of rows. Each leaf votes for one class, as where trees are grown until they can do so; of
    two classes one score decides, at 0.5."""
    rng, trees, named = np.random.default_rng(classes), 100, range(classes) if classes > 2 else [0]
    given = ensemble(rng, trees, 3, targets=[named])
    votes = rng.integers(0, classes, len(given["target_ids"]) // len(named))
    weights = (votes[:, None] == (np.array(named) if classes > 2 else 1)) / dtype(trees)
    given = {k.replace("target_", "class_"): v for k, v in given.items()} | {
        "classlabels_int64s": [*range(classes)]
    }
    del given["class_weights"]
    given["class_weights_as_tensor"] = tensor(weights.reshape(-1), dtype)
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = one_node("TreeEnsembleClassifier", 3, code, ["label", "scores"], given)
    path = onnxc.compile(model, tmp_path / "model.so", target=target.name)
    compiled, x = onnxc.load(path), rng.standard_normal((300, 5)).astype(dtype) * 3
    label, scores = compiled.run(None, {"x": x})
    counts = np.rint(scores * trees)
    assert np.sum(np.sort(counts)[:, -1] == np.sort(counts)[:, -2]) > 10
    np.testing.assert_array_equal(label, counts.argmax(1))
    for rows in (1, 2, 17):
        for k in range(0, 300 - rows, rows):
            for found, wanted in zip(
                compiled.run(None, {"x": x[k : k + rows]}), (label, scores), strict=True
            ):
                np.testing.assert_array_equal(found, wanted[k : k + rows])
