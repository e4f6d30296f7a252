"""Linear models, support vectors, features and labels mean what ONNX Runtime makes of them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph

rng = np.random.default_rng(3)
INTS, TEXTS = {"classlabels_ints": [7, 3, 5]}, {"classlabels_strings": ["x", "y", "z"]}
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def numbers(*shape):
    return rng.standard_normal(shape).astype(np.float32).reshape(-1).tolist()


def rows(count=20, features=4, dtype=np.float32):
    return (3 * rng.standard_normal((count, features))).astype(dtype)


def model(op, inputs, attributes, version=1, outputs=1):
    names = [f"x{k}" for k in range(len(inputs))]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], domain="ai.onnx.ml", **attributes)
    declared = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(a.dtype), [f"d{k}_{name}" for k in range(a.ndim)]
        )
        for name, a in zip(names, inputs)
    ]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "one", declared, results)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(op, inputs, attributes, version=1, outputs=1, sized=False):
    """sized: the model tells the sizes of its inputs."""
    proto = model(op, inputs, attributes, version, outputs)
    for port, given in zip(proto.graph.input, inputs if sized else ()):
        for dim, size in zip(port.type.tensor_type.shape.dim, given.shape):
            dim.dim_value = size
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {f"x{k}": a for k, a in enumerate(inputs)})
    for found, wanted in zip(run_graph(import_model(proto).graph, inputs), expected, strict=True):
        assert found.shape == wanted.shape
        if found.dtype.kind == "f":
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        else:
            assert found.tolist() == wanted.tolist()


# Linear models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models_are_those_of_onnxruntime(transform):
    for count, labels in ((3, INTS), (3, TEXTS), (1, {"classlabels_ints": [4, 2]}), (1, {})):
        given = {"coefficients": numbers(count, 4), "intercepts": numbers(count), "post_transform": transform}
        check("LinearClassifier", [rows()], {**given, **labels}, outputs=2)
    for targets, given in ((1, {"intercepts": [0.5]}), (3, {})):
        given = {
            "coefficients": numbers(targets, 4),
            "post_transform": transform,
            "targets": targets,
            **given,
        }
        check("LinearRegressor", [rows()], given)


def test_coefficients_behind_those_of_the_features_are_not_read():
    given = {"coefficients": numbers(3, 6), "intercepts": numbers(3)}
    check("LinearClassifier", [rows()], {**given, **INTS}, outputs=2, sized=True)
    check("LinearRegressor", [rows()], {**given, "targets": 3}, sized=True)
    spare = {"coefficients": [*numbers(3, 4), 7.0], "targets": 3}  # no whole number of rows
    check("LinearRegressor", [rows()], spare, sized=True)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64])
def test_features_of_other_types(dtype):
    given = {"coefficients": numbers(3, 4), "intercepts": numbers(3), **INTS}
    check("LinearClassifier", [rows(dtype=dtype)], given, outputs=2)
    check("Scaler", [rows(dtype=dtype)], {"offset": numbers(4), "scale": [2.0]} | {"scale": numbers(4)})
    check("Normalizer", [rows(dtype=dtype)], {"norm": "L2"})


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_machines(kernel):
    kernel_of = {"kernel_type": kernel, "kernel_params": [0.1, 0.5, 2.0]}
    vectors = {"support_vectors": numbers(5, 4), "coefficients": numbers(5), "n_supports": 5}
    for one_class in (0, 1):
        check("SVMRegressor", [rows()], {**vectors, **kernel_of, "rho": [0.2], "one_class": one_class})
    for count in (2, 3):
        pairs = count * (count - 1) // 2
        given = {
            "support_vectors": numbers(6, 4),
            "coefficients": numbers(count - 1, 6),
            "rho": numbers(pairs),
        }
        given |= {"vectors_per_class": [1, 5] if count == 2 else [1, 3, 2], **kernel_of}
        labels = {"classlabels_strings": ["x", "y", "z"][:count]}
        for transform in TRANSFORMS:
            check("SVMClassifier", [rows()], {**given, **labels, "post_transform": transform}, outputs=2)
        known = {"prob_a": [-abs(a) for a in numbers(pairs)], "prob_b": numbers(pairs)}
        check("SVMClassifier", [rows()], {**given, **labels, **known}, outputs=2)


def test_infinite_features_are_like_no_vector():
    x = rows()
    x[0, 1], x[1, 2] = np.inf, -np.inf
    vectors = {"support_vectors": numbers(5, 4), "coefficients": numbers(5), "n_supports": 5, "rho": [0.2]}
    check("SVMRegressor", [x], {**vectors, "kernel_type": "RBF", "kernel_params": [0.1, 0.0, 0.0]})


def test_linear_support_vector_machines():
    given = {"coefficients": numbers(4), "rho": [0.3], "kernel_params": [0.0, 0.0, 0.0]}
    check("SVMRegressor", [rows()], given)
    for count in (2, 3):
        for sign in (1, 0):
            weights = [abs(w) if sign else w for w in numbers(count, 4)]
            labels = {"classlabels_ints": [7, 3, 5][:count]}
            check("SVMClassifier", [rows()], {**given, **labels, "coefficients": weights}, outputs=2)


# Features ----------------------------------------------------------------------------------------


def test_scaling_and_norms():
    x = rows()
    x[3] = 0
    for norm in ("MAX", "L1", "L2"):
        check("Normalizer", [x], {"norm": norm})
    check("Scaler", [x], {"offset": [0.5], "scale": [2.0]})
    check("Binarizer", [x], {"threshold": 0.25})


def test_an_imputer_replaces_what_is_missing():
    x = rows()
    x[::3, 1], x[1, 2] = np.nan, 5
    for replaced in (float("nan"), 5.0):
        for values in ([1.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0]):
            for given in (x, x[:, 1:2]):
                check("Imputer", [given], {"imputed_value_floats": values, "replaced_value_float": replaced})
    whole = rng.integers(0, 3, (5, 4))
    check("Imputer", [whole], {"imputed_value_int64s": [9], "replaced_value_int64": 2})


@pytest.mark.parametrize("shape", [(6,), (3, 2)])
def test_one_hot_codes_are_those_of_onnxruntime(shape):
    whole = rng.integers(0, 5, shape)
    check("OneHotEncoder", [whole], {"cats_int64s": [3, 0, 4, 3]})
    check("OneHotEncoder", [whole.astype(np.float32) + 0.5], {"cats_int64s": [3, 0, 4]})
    missing = np.where(whole == 3, np.nan, whole.astype(np.float32))
    check("OneHotEncoder", [missing], {"cats_int64s": [3, 0, 4]})
    texts = np.array(["a", "b", "", "d\u00e9", "zebra"], object)[whole]
    check("OneHotEncoder", [texts], {"cats_strings": ["b", "d\u00e9", "", "x"]})


@pytest.mark.parametrize("sized", [False, True])
def test_no_text_is_a_category_among_numbers_nor_a_number_among_texts(sized):
    check("OneHotEncoder", [np.array([["1"], ["a"]], object)], {"cats_int64s": [1, 2, 3]}, sized=sized)
    for dtype in (np.int64, np.float32):
        check("OneHotEncoder", [np.array([[1], [2]], dtype)], {"cats_strings": ["1", "2"]}, sized=sized)


def test_a_category_of_another_type_fails_where_it_must_be_known():
    proto = model("OneHotEncoder", [np.array([1])], {"cats_strings": ["1"], "zeros": 0})
    with pytest.raises(Exception, match="invalid value"):
        run_graph(import_model(proto).graph, [np.array([1])])


def test_one_hot_of_what_is_unknown_fails_where_it_must_be_known():
    graph = import_model(model("OneHotEncoder", [np.array([1])], {"cats_int64s": [1, 2], "zeros": 0})).graph
    assert run_graph(graph, [np.array([2])])[0].tolist() == [[0, 1]]
    with pytest.raises(Exception, match="invalid value"):
        run_graph(graph, [np.array([3])])


def test_picked_and_joined_features():
    check("ArrayFeatureExtractor", [rows(), np.array([[2, 0]])], {})
    check("ArrayFeatureExtractor", [np.array([5, 6, 7]), np.array([2, 0])], {})
    check("ArrayFeatureExtractor", [np.array([["a", "b"]], object), np.array([1])], {})
    given = [rows(5, 3), rows(5, 2)]
    for sizes in ([3, 2], [2, 4]):
        check("FeatureVectorizer", given, {"inputdimensions": sizes})


# Labels ------------------------------------------------------------------------------------------

WORDS = np.array([["b", "nothing"], ["", "a longer text than eight"]], object)


@pytest.mark.parametrize(
    ("version", "x", "attributes"),
    [
        (1, WORDS, {"classes_strings": ["a", "b", ""]}),
        (1, np.array([0, 2, 5, -1]), {"classes_strings": ["a", "b", ""], "default_string": "none"}),
        (2, WORDS, {"keys_strings": ["b", "", "a longer text than eight"], "values_int64s": [7, 8, 9]}),
        (2, WORDS, {"keys_strings": ["b", "x"], "values_floats": [0.5, 1], "default_float": 3.0}),
        (2, np.array([3, 1, 2]), {"keys_int64s": [1, 3], "values_strings": ["one", "three"]}),
        (2, np.array([0.5, -0.0, np.nan], np.float32), {"keys_floats": [0.0, 0.5], "values_int64s": [5, 6]}),
        (
            4,
            np.array([0.5, 0, np.nan], np.float32),
            {"keys_floats": [np.nan, 0.5], "values_floats": [5.0, 6.0]},
        ),
        (4, np.array([3, 1, 2]), {"keys_int64s": [1, 3], "values_int64s": [5, 6], "default_int64": 8}),
    ],
)
def test_label_encoders_map_as_those_of_onnxruntime(version, x, attributes):
    check("LabelEncoder", [x], attributes, version)


def test_nan_is_found_among_keys_where_the_specification_says_so():
    """As from its version 2 on; ONNX Runtime does so from version 4 on."""
    x = np.array([1, np.nan, 2], np.float32)
    for version in (2, 4):
        attributes = {"keys_floats": [1.0, np.nan], "values_int64s": [7, 9]}
        (found,) = run_graph(import_model(model("LabelEncoder", [x], attributes, version)).graph, [x])
        assert found.tolist() == [7, 9, -1]


def test_a_category_mapper_maps_both_ways():
    given = {
        "cats_int64s": [10, 20],
        "cats_strings": ["b", ""],
        "default_int64": 5,
        "default_string": "other",
    }
    check("CategoryMapper", [WORDS], given)
    check("CategoryMapper", [np.array([20, 30, 10])], given)


@pytest.mark.parametrize("kind", ["text", "int64", "float64"])
def test_many_keys_are_found(kind):
    keys = rng.choice(10**9, 3000, replace=False)
    keys = keys.astype(np.float64) / 7 if kind == "float64" else keys
    name = "keys_strings" if kind == "text" else "keys_tensor"
    keys = np.array([f"key {k}" for k in keys], object) if kind == "text" else keys
    x = np.append(keys[::-1], keys[:1] if kind != "text" else ["none"])
    given = list(keys) if kind == "text" else onnx.numpy_helper.from_array(keys)
    proto = model("LabelEncoder", [x], {name: given, "values_int64s": list(range(3000))}, 4)
    (found,) = run_graph(import_model(proto).graph, [x])
    assert found.tolist() == [*range(2999, -1, -1), -1 if kind == "text" else 0]


@pytest.mark.parametrize(
    ("op", "x", "attributes", "reason"),
    [
        (
            "LinearRegressor",
            rows(),
            {"coefficients": [1.0, 2.0, 3.0], "targets": 2},
            "3 elements, which are no 2",
        ),
        (
            "LinearClassifier",
            rows(),
            {"coefficients": [1.0] * 8, "intercepts": [0.0] * 2},
            "name the classes",
        ),
        ("Imputer", rows(), {"imputed_value_int64s": [1]}, "no values to impute"),
        ("OneHotEncoder", WORDS, {}, "there are no categories"),
        ("LabelEncoder", WORDS, {"keys_strings": ["a"], "values_int64s": [1, 2]}, "1 keys and 2 values"),
        ("LabelEncoder", WORDS, {"keys_int64s": [1], "values_int64s": [1]}, "keys are int64"),
        ("Normalizer", rows(), {"norm": "L3"}, "no norm 'L3'"),
        ("SVMClassifier", rows(), {**INTS, "coefficients": [1.0], "vectors_per_class": [1]}, "3 are needed"),
    ],
)
def test_what_does_not_fit_is_refused(op, x, attributes, reason):
    outputs = 2 if op.endswith("Classifier") else 1
    with pytest.raises(ModelErrors, match=reason):
        import_model(model(op, [x], attributes, 2 if op == "LabelEncoder" else 1, outputs))
