"""Draws of operators with graphs in them, of random numbers, of text, and of ai.onnx.ml."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from . import forests
from .drawn import TEXT, Data, Draw

# Graphs in nodes ---------------------------------------------------------------------------------


def _body(d: Draw, nodes: list, inputs: list, outputs: list, stored: tuple = ()) -> onnx.GraphProto:
    infos = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    results = [helper.make_tensor_value_info(n, t, s) for n, t, s in outputs]
    return helper.make_graph(nodes, "body", infos, results, list(stored))


def if_of(d: Draw) -> None:
    d.inputs["cond"] = (
        np.asarray(d.chance(), bool) if d.version > 1 and d.chance() else np.array([d.chance()])
    )
    number = TensorProto.FLOAT
    rank = d.integer(1, 3)
    for branch in ("then_branch", "else_branch"):
        shape = d.shape(rank)
        shape = d.shape(rank) if d.version >= 11 else shape
        value = numpy_helper.from_array(d.array(np.float32, shape))
        nodes = [helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Abs", ["c"], ["o"])]
        nodes = nodes if d.version >= 6 else [*nodes[:1], helper.make_node("Identity", ["c"], ["o"])]
        d.attributes[branch] = _body(d, nodes, [], [("o", number, [None] * rank)])


def loop(d: Draw) -> None:
    shape = d.shape(d.integer(1, 2))
    x = d.array(np.float32, shape, 0, 1)
    trips = d.integer(0, 4)
    d.inputs["M"] = np.asarray(trips, np.int64)
    if d.chance():
        d.inputs["cond"] = np.asarray(True)
    d.variadic = [x]
    kind = TensorProto.FLOAT
    nodes = [
        helper.make_node("Identity", ["c"], ["c_out"]),
        helper.make_node("Add", ["v", "v"], ["more"]),
        helper.make_node("Identity", ["v"], ["scanned"]),
    ]
    inputs = [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("v", kind, shape)]
    outputs = [("c_out", TensorProto.BOOL, []), ("more", kind, shape), ("scanned", kind, shape)]
    if d.version >= 11:  # whose models may cast to text
        nodes.append(helper.make_node("Cast", ["i"], ["text"], to=TensorProto.STRING))
        outputs.append(("text", TensorProto.STRING, []))
    d.attributes["body"] = _body(d, nodes, inputs, outputs)
    d.outputs = len(outputs) - 1


def scan(d: Draw) -> None:
    steps, shape, batch = d.choice((3, 1, 5)), d.shape(1, least=1), d.choice((1, 2))
    begins = [batch] if d.version == 8 else []
    state, x = d.array(np.float32, [*begins, *shape]), d.array(np.float32, [*begins, steps, *shape])
    kind = TensorProto.FLOAT
    nodes = [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["y"])]
    d.attributes["body"] = _body(
        d, nodes, [("s", kind, shape), ("x", kind, shape)], [("t", kind, shape), ("y", kind, shape)]
    )
    d.attributes["num_scan_inputs"] = 1
    if d.version > 8:
        axis = d.choice((0, 1))
        x = np.moveaxis(x, 0, axis)
        d.attributes["scan_input_axes"] = [axis - 2 if d.chance() and d.version >= 11 else axis]
        d.maybe("scan_input_directions", [0], [1])
        d.maybe("scan_output_directions", [0], [1])
        d.maybe("scan_output_axes", [0], [1])
    else:
        d.maybe("directions", [0], [1])
    d.variadic = [state, x]
    d.outputs, d.symbolic = 2, False


def sequence_map(d: Draw) -> None:
    d.inputs["input_sequence"] = [d.array(np.float32, d.shape(2)) for _ in range(d.integer(1, 3))]
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    d.attributes["body"] = _body(
        d, nodes, [("x", TensorProto.FLOAT, [None, None])], [("y", TensorProto.FLOAT, [None, None])]
    )
    d.variadic = []


# Random numbers, of which only type and shape are compared -----------------------------------------


def random_numbers(d: Draw) -> None:
    d.values = False
    if d.schema.inputs:
        low, high = (0, 1) if d.schema.name in ("Bernoulli", "Multinomial") else (-4, 4)
        shape = d.shape(2, least=1) if d.schema.name == "Multinomial" else d.shape()
        d.take("input", shape, low, high, lambda t: t in (np.float32, np.float64))
    if "shape" in d.schema.attributes:
        d.attributes["shape"] = d.shape(d.integer(1, 3))
    d.maybe("sample_size", 1, 5)
    whole = d.schema.name == "Multinomial"
    d.maybe("dtype", *((6, 7) if whole else (TensorProto.FLOAT, TensorProto.DOUBLE)))


def suppression(d: Draw) -> None:
    boxes, classes = d.choice((3, 1, 20)), d.choice((1, 2))
    corners = d.data.uniform(0, 1, (1, boxes, 2, 2))
    d.inputs["boxes"] = np.sort(corners, 2).reshape(1, boxes, 4).astype(np.float32)
    d.inputs["scores"] = d.data.random((1, classes, boxes)).astype(np.float32)
    d.inputs["max_output_boxes_per_class"] = np.array([d.choice((2, 1, 30))])
    d.inputs["iou_threshold"] = np.float32([d.choice((0.5, 0.1))])
    if d.chance():
        d.inputs["score_threshold"] = np.float32([0.3])


# Text --------------------------------------------------------------------------------------------


def regular(d: Draw) -> None:
    d.take("X", d.shape())
    d.attributes["pattern"] = d.choice(("a|b.*", "[a-z ]+", ".*", "-?[0-9.]+", "\\w*"))


def string_split(d: Draw) -> None:
    d.take("X", [max(n, 1) for n in d.shape(d.integer(1, 2))])
    d.inputs["X"][d.inputs["X"] == ""] = "-"  # of nothing ONNX Runtime makes no part, the specification one
    d.maybe("delimiter", " ", ".", "-")
    d.maybe("maxsplit", 1, 2)
    d.outputs = 2


def normalizer(d: Draw) -> None:
    d.take("X", [d.size(1)] if d.chance() else [1, d.size(1)])
    d.attributes["locale"], d.symbolic = "C.UTF-8", False  # a locale that every system has
    d.maybe("case_change_action", "LOWER", "UPPER", "NONE")
    d.maybe("is_case_sensitive", 0, 1)
    d.maybe("stopwords", ["12"], ["-3.5", "12"])


def n_grams(d: Draw) -> None:
    d.take("X", d.choice(([6], [2, 5], [1, 9])), 0, 5, lambda t: t in (np.int32, np.int64))
    d.attributes |= {
        "max_gram_length": 2,
        "min_gram_length": d.choice((1, 2)),
        "max_skip_count": d.choice((0, 2)),
    }
    d.attributes |= {"mode": d.choice(("TF", "IDF", "TFIDF")), "ngram_counts": [0, 3]}
    d.attributes |= {"ngram_indexes": [0, 1, 2, 3, 4], "pool_int64s": [2, 3, 5, 1, 2, 3, 4]}
    d.maybe("weights", [0.5, 1.0, 2.0, 1.5, 3.0])


# ai.onnx.ml --------------------------------------------------------------------------------------

TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
FEATURES = 4
KEYS = ("b", "onnx", "")


def numbers(d: Draw, *shape: int) -> list[float]:
    return d.array(np.float32, shape, -2, 2).reshape(-1).tolist()


def rows(d: Draw, name: str = "X", low: float = -4, high: float = 4) -> np.ndarray:
    return d.take(name, [d.size(1), FEATURES], low, high, lambda t: t != TEXT)


def classes(d: Draw, count: int) -> dict[str, list]:
    key = next(k for k in ("classlabels_ints", "classlabels_int64s") if k in d.schema.attributes)
    return d.choice(({key: [7, 3, 5][:count]}, {"classlabels_strings": ["x", "y", "z"][:count]}))


def linear(d: Draw) -> None:
    d.take("X", [d.size(1), FEATURES], among=lambda t: t == np.float32)
    count = d.choice((3, 2)) if d.schema.name == "LinearClassifier" else d.choice((1, 3))
    d.attributes |= {"coefficients": numbers(d, count, FEATURES), "intercepts": numbers(d, count)}
    d.maybe("post_transform", *TRANSFORMS)
    if d.schema.name == "LinearClassifier":
        d.attributes |= classes(d, count)
        d.outputs = 2
    else:
        d.attributes["targets"] = count


def machine(d: Draw) -> None:
    d.take("X", [d.size(1), FEATURES], among=lambda t: t == np.float32)
    d.attributes |= {
        "kernel_type": d.choice(("LINEAR", "RBF", "POLY", "SIGMOID")),
        "kernel_params": [0.1, 0.5, 2.0],
    }
    if d.schema.name == "SVMRegressor":
        d.attributes |= {"support_vectors": numbers(d, 5, FEATURES), "coefficients": numbers(d, 5)}
        d.attributes |= {"n_supports": 5, "rho": [0.25]}
        d.maybe("one_class", 0, 1)
        return
    count = d.choice((2, 3))
    d.attributes |= {"support_vectors": numbers(d, 6, FEATURES), "coefficients": numbers(d, count - 1, 6)}
    d.attributes |= {
        "vectors_per_class": [1, 5] if count == 2 else [1, 3, 2],
        "rho": numbers(d, count * (count - 1) // 2),
    }
    d.attributes |= {"classlabels_strings": ["x", "y", "z"][:count]}
    d.outputs = 2


def scaler(d: Draw) -> None:
    rows(d)
    d.maybe("norm", "MAX", "L1", "L2")
    d.maybe("threshold", 0.25, -1.0)
    for name in ("offset", "scale"):
        if name in d.schema.attributes:
            d.attributes[name] = numbers(d, d.choice((1, FEATURES)))


def imputer(d: Draw) -> None:
    x = d.take("X", [d.size(1), FEATURES], 0, 3, lambda t: t in (np.float32, np.int64))
    kind = "int64" if x.dtype == np.int64 else "float"
    d.attributes |= {f"replaced_value_{kind}": 2 if kind == "int64" else 2.0}
    d.attributes[f"imputed_value_{kind}s"] = [9 if kind == "int64" else 9.5] * d.choice((1, FEATURES))


def one_hot_encoder(d: Draw) -> None:
    x = d.take("X", d.shape(d.choice((1, 2))), 0, 4)
    if x.dtype == TEXT:
        d.attributes["cats_strings"] = list(KEYS)
    else:
        d.attributes["cats_int64s"] = [3, 0, 2]


def extractor(d: Draw) -> None:
    d.take("X", [d.size(1), FEATURES])
    d.inputs["Y"] = d.data.integers(0, FEATURES, (1, d.size(1)))


def joined(d: Draw) -> None:
    dtype, count = d.dtype("X"), d.size(1)
    widths = [d.choice((3, 1, 2)) for _ in range(d.integer(1, 3))]
    d.variadic = list[Data]([d.array(dtype, [count, w]) for w in widths])
    d.attributes["inputdimensions"] = widths


def labels(d: Draw) -> None:
    if d.version == 1:
        x = d.take("X", d.shape(d.choice((1, 2))), -1, 4)
        name = "classes_strings" if d.schema.name == "LabelEncoder" else "cats_strings"
        d.attributes[name] = list(KEYS)
        if d.schema.name == "CategoryMapper":
            d.attributes["cats_int64s"] = [1, 2, 3]
        elif x.dtype != TEXT:
            d.attributes["default_string"] = "none"
        return
    x = d.take("X", d.shape(d.choice((1, 2))), 0, 4, lambda t: t in (np.float32, np.int64, object))
    keys: dict[object, tuple] = {object: ("strings", KEYS), np.dtype(np.int64): ("int64s", (1, 3, 2))}
    ends, found = keys.get(x.dtype, ("floats", (0.5, 1.0, -2.0))) if x.dtype != TEXT else keys[object]
    d.attributes[f"keys_{ends}"] = list(found)
    values = {"strings": ["p", "q", "r"], "int64s": [5, 6, 7], "floats": [0.5, 1.5, -1.0]}
    name = d.choice([n for n in values if n != ends] if d.version == 2 else list(values))
    d.attributes[f"values_{name}"] = values[name]


def trees(d: Draw) -> None:
    """Whole numbers as splits and features, so that equality is met."""
    rng = np.random.default_rng(d.integer(0, 1 << 20))
    classifier = d.schema.name == "TreeEnsembleClassifier"
    count = d.choice((1, 3, 20))
    targets = ((0,), (1,), (2,)) if classifier else d.choice((((0,),), ((0,), (1,))))
    modes = ("BRANCH_LEQ",) if d.chance() else forests.MODES
    made = forests.ensemble(rng, max(count, len(targets)), d.choice((2, 1, 4)), FEATURES, targets, modes)
    made = {k.replace("target_", "class_") if classifier else k: v for k, v in made.items()}
    rows(d, low=-3, high=3)
    d.inputs["X"] = np.floor(d.inputs["X"]).astype(d.dtype("X"))
    if d.dtype("X") == np.float64 and d.version >= 3:
        for name in ("nodes_values", "class_weights" if classifier else "target_weights"):
            made[f"{name}_as_tensor"] = forests.tensor(made.pop(name), np.float64)
    d.attributes |= made
    d.attributes |= classes(d, 3) if classifier else {"n_targets": len(targets)}
    d.maybe("post_transform", *TRANSFORMS[: 3 if len(targets) > 1 else 2])
    d.maybe("aggregate_function", "SUM", "AVERAGE", "MIN", "MAX")
    d.outputs, d.symbolic = 2 if classifier else 1, True
    d.atol = 1e-4


def tree_ensemble(d: Draw) -> None:
    """One stump for each target: x[f] <= split gives the one leaf or the other."""
    dtype = d.dtype("X", lambda t: t in (np.float32, np.float64))
    d.take("X", [d.size(1), FEATURES])
    count = d.choice((1, 2, 5))
    tensor = numpy_helper.from_array
    d.attributes |= {
        "tree_roots": list(range(count)),
        "n_targets": count,
        "nodes_featureids": [d.integer(0, FEATURES - 1) for _ in range(count)],
        "nodes_splits": tensor(d.array(dtype, [count])),
        "nodes_modes": tensor(np.array([d.integer(0, 5) for _ in range(count)], np.uint8)),
        "nodes_truenodeids": [2 * k for k in range(count)],
        "nodes_falsenodeids": [2 * k + 1 for k in range(count)],
        "nodes_trueleafs": [1] * count,
        "nodes_falseleafs": [1] * count,
        "leaf_targetids": [k // 2 for k in range(2 * count)],
        "leaf_weights": tensor(d.array(dtype, [2 * count])),
    }
    d.maybe("aggregate_function", 0, 1, 2, 3)


def zip_map(d: Draw) -> None:
    d.inputs["X"] = d.array(np.float32, [d.size(1), 3])
    d.attributes |= d.choice(({"classlabels_int64s": [7, 3, 5]}, {"classlabels_strings": ["x", "y", "z"]}))


DRAWS = {
    **{
        "If": if_of,
        "Loop": loop,
        "Scan": scan,
        "SequenceMap": sequence_map,
        "NonMaxSuppression": suppression,
    },
    **dict.fromkeys(
        ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"), random_numbers
    ),
    **dict.fromkeys(("Bernoulli", "Multinomial"), random_numbers),
    **{"RegexFullMatch": regular, "StringSplit": string_split, "StringNormalizer": normalizer},
    **{"TfIdfVectorizer": n_grams, "LinearClassifier": linear, "LinearRegressor": linear},
    **dict.fromkeys(("SVMClassifier", "SVMRegressor"), machine),
    **dict.fromkeys(("Scaler", "Normalizer", "Binarizer"), scaler),
    **{"Imputer": imputer, "OneHotEncoder": one_hot_encoder, "ArrayFeatureExtractor": extractor},
    **{"FeatureVectorizer": joined, "LabelEncoder": labels, "CategoryMapper": labels, "ZipMap": zip_map},
    **dict.fromkeys(("TreeEnsembleClassifier", "TreeEnsembleRegressor"), trees),
    "TreeEnsemble": tree_ensemble,
}
