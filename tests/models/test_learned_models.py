"""Models of ai.onnx.ml in a library: every number of rows, labels that are texts, against ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
from support.forests import classifier, ensemble

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
