"""Activations, fused products and convolutions, and layer normalizations mean what ONNX Runtime makes of
them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, check, check_compiled, interpreted, same
from support.open_sizes import opened

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError, run_graph

rng = np.random.default_rng(5)
floats = partial(contrib.floats, rng)


def ids(high: int, *shape: int) -> np.ndarray:
    return rng.integers(0, high, shape).astype(np.int32)


X = floats(2, 3, 8)
IMAGE, KERNELS = floats(1, 2, 6, 7), floats(4, 2, 3, 3)
HALF = 2e-3

ACTIVATIONS = [
    Case("Gelu", [X]),
    Case("BiasGelu", [X, floats(8)]),
    Case("FastGelu", [X]),
    Case("FastGelu", [X, floats(8)]),
    Case("QuickGelu", [X]),
    *(
        Case(name, [X.astype(np.float16), *more], tolerance=HALF / 4)
        for name, more in (("Gelu", []), ("BiasGelu", [X[0, 0].astype(np.float16)]), ("QuickGelu", []))
    ),
    Case("QuickGelu", [X], {"alpha": 0.5}),
    Case("ScaledSiLU", [X], {"alpha": 0.5}),
    Case("ScaledSiLU", [X, floats()], {"alpha": 1.5}),
]

CONVOLUTIONS = [
    Case("FusedConv", [IMAGE, KERNELS, floats(4)], {"activation": name, **more})
    for name, more in (
        ("Relu", {"pads": [1, 1, 1, 1]}),
        ("Tanh", {"strides": [2, 1]}),
        ("Sigmoid", {"auto_pad": "SAME_UPPER"}),
        ("LeakyRelu", {"activation_params": [0.2]}),
        ("Clip", {"activation_params": [-0.5, 1.0]}),
        ("HardSigmoid", {"activation_params": [0.3, 0.4], "dilations": [2, 1]}),
        ("HardSwish", {}),
    )
] + [
    Case("FusedConv", [IMAGE, KERNELS, floats(4), floats(1, 4, 4, 5)], {"activation": "Relu"}),
    Case("FusedConv", [IMAGE, floats(4, 1, 1, 1), None, floats(1, 4, 6, 7)], {"group": 2}),
]

PRODUCTS = [
    Case("FusedMatMul", [floats(3, 4), floats(4, 5)], {"alpha": 0.5}),
    Case("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1}),
    Case("FusedMatMul", [floats(3, 2, 4), floats(2, 4, 5)], {"transBatchA": 1}),
    Case(
        "FusedMatMul",
        [floats(4, 2, 6, 3), floats(5, 2, 6, 4)],
        {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1, "alpha": 2.0},
    ),
    Case(
        "FusedMatMul",
        [X.astype(np.float16), X[0, 0, :, None].astype(np.float16)],
        {"alpha": 0.3},
        tolerance=HALF / 2,
    ),
    Case("TransposeMatMul", [floats(4, 3), floats(4, 5)], {"transA": 1, "alpha": 1.5}),
    Case("FusedGemm", [floats(3, 4), floats(5, 4), floats(5)], {"transB": 1, "activation": "Relu"}),
    Case(
        "FusedGemm",
        [floats(4, 3), floats(4, 5)],
        {"transA": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    Case("FusedGemm", [floats(3, 4), floats(4, 5)], {"activation": "Celu", "activation_alpha": 0.3}),
    Case(
        "FusedGemm",
        [floats(3, 4), floats(4, 5), floats(3, 1)],
        {"beta": 2.0, "activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
    ),
]

NORMALIZATIONS = [
    Case("SkipLayerNormalization", [X, floats(2, 3, 8), floats(8), floats(8)], outputs=(0, 3)),
    Case("SkipLayerNormalization", [X, floats(3, 8), floats(8), None, floats(8)], {"epsilon": 1e-3}),
    Case("SkipLayerNormalization", [X, floats(1, 3, 8), floats(8), floats(8), floats(8)], outputs=(0, 3)),
    Case(
        "SkipLayerNormalization",
        [v.astype(np.float16) for v in (X, X[::-1], X[0, 0], X[0, 1])],
        tolerance=HALF,
    ),
    Case("SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8), floats(8)], {"epsilon": 1e-5}, (0, 3)),
    Case("SkipSimplifiedLayerNormalization", [X, floats(3, 8), floats(8), floats(8)], outputs=(0, 3)),
    Case("SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8), floats(8)], outputs=(0, 1, 2, 3)),
    Case("SimplifiedLayerNormalization", [X, floats(8)], domain="", outputs=(0, 1)),
    Case("SimplifiedLayerNormalization", [X, floats(3, 8)], {"axis": 1, "epsilon": 1e-2}, domain=""),
]

#: The optimiser writes these into models of operator sets that do not have the operator yet.
EARLY = [
    Case("LayerNormalization", [X, floats(8), floats(8)], domain="", opset=11),
    Case(
        "LayerNormalization", [X, floats(3, 8)], {"axis": 1, "epsilon": 1e-2}, (0, 1, 2), domain="", opset=16
    ),
    Case(
        "LayerNormalization",
        [v.astype(np.float16) for v in (X, X[0, 0], X[0, 1])],
        tolerance=HALF,
        domain="",
        opset=14,
    ),
]


@pytest.mark.parametrize("case", EARLY, ids=str)
def test_a_normalization_is_known_before_its_operator_set(case):
    check(case)


def embedded(**more: object) -> list[np.ndarray | None]:
    given = {"words": ids(11, 2, 5), "segments": ids(2, 2, 5), "segment_table": floats(2, 8), **more}
    tables = [floats(11, 8), floats(7, 8), given["segment_table"], floats(8), floats(8)]
    return [given["words"], given["segments"], *tables, given.get("mask"), given.get("positions")]


EMBEDDINGS = [
    Case(
        "EmbedLayerNormalization",
        embedded(mask=np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)),
        {},
        (0, 1),
    ),
    Case(
        "EmbedLayerNormalization", embedded(segments=None, segment_table=None), {"epsilon": 1e-3}, (0, 1, 2)
    ),
    Case("EmbedLayerNormalization", embedded(positions=ids(7, 2, 5)), {}, (0, 1, 2)),
    Case("EmbedLayerNormalization", embedded(positions=ids(7, 1, 5)), {}, (0, 1)),
]


@pytest.mark.parametrize("name", ["words", "segments", "positions"])
def test_places_in_tables_of_embeddings_do_not_count_from_the_end(name):
    places = np.array([[0, 1, 0, -1, 1]] * 2, np.int32)
    with pytest.raises(InterpretError, match="index out of range"):
        interpreted(Case("EmbedLayerNormalization", embedded(**{name: places})))


def group_normalized(x, gamma, beta, groups, epsilon, silu):
    """By its definition, over images whose channels are last: ONNX Runtime has it for no processor."""
    parts = x.astype(np.float64).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    centred = parts - parts.mean((1, 3), keepdims=True)
    y = (centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + epsilon)).reshape(
        x.shape
    ) * gamma + beta
    return y / (1 + np.exp(-y)) if silu else y


@pytest.mark.parametrize("silu", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_groups_of_channels_are_normalized_as_the_schema_says(last, silu):
    x, skip, bias, gamma, beta = floats(2, 3, 5, 8), floats(2, 3, 5, 8), floats(8), floats(8), floats(8)
    attributes = {"groups": 4, "activation": silu, "channels_last": last, "epsilon": 1e-3}

    def stored(image):
        return image if last else np.ascontiguousarray(image.transpose(0, 3, 1, 2))

    expected = stored(group_normalized(x, gamma, beta, 4, 1e-3, silu)).astype(np.float32)
    (found,) = interpreted(Case("GroupNorm", [stored(x), gamma, beta], attributes))
    same(found, expected, 1e-5)
    skipped = Case("SkipGroupNorm", [stored(x), gamma, beta, stored(skip), bias], attributes, (0, 1))
    found, total = interpreted(skipped)
    same(
        found, stored(group_normalized(x + skip + bias, gamma, beta, 4, 1e-3, silu)).astype(np.float32), 1e-5
    )
    same(total, stored(x + skip + bias), 1e-5)


@pytest.mark.parametrize(("axis", "inner"), [(1, 1), (3, 1), (2, 0)])
def test_a_softmax_with_a_bias_is_the_softmax_of_the_sum(axis, inner):
    x, bias = floats(2, 3, 4, 5), floats(2, 1, 1, 5) if inner else floats(4, 5)
    total = (x + bias).reshape(*x.shape[:axis], -1).astype(np.float64)
    powers = np.exp(total - total.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True)).reshape(x.shape).astype(np.float32)
    (found,) = interpreted(Case("BiasSoftmax", [x, bias], {"axis": axis, "is_inner_broadcast": inner}))
    same(found, expected, 1e-5)


def test_what_onnxruntime_adds_on_graphics_processors_alone_is_added_as_defined():
    x, bias, skip = floats(2, 3, 8), floats(8), floats(2, 3, 8)
    (found,) = interpreted(Case("BiasAdd", [x, bias, skip]))
    same(found, x + bias + skip, 1e-6)
    (found,) = interpreted(Case("BiasSplitGelu", [x, bias]))
    (gelu,) = interpreted(Case("Gelu", [(x + bias)[..., 4:]]))
    same(found, (x + bias)[..., :4] * gelu, 1e-6)


ALL = ACTIVATIONS + CONVOLUTIONS + PRODUCTS + NORMALIZATIONS + EMBEDDINGS


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_results_are_those_of_onnxruntime(case, symbolic):
    check(case, symbolic and case.op != "FusedConv")


@pytest.mark.slow
def test_a_library_of_them_all_computes_what_the_interpreter_does(tmp_path):
    check_compiled(ALL, tmp_path)


PARAMETERS = [
    ("BiasGelu", [(2, 3), (3,)], [[(2, 1), (3,)], [(2, 3), (1,)]]),
    ("FastGelu", [(2, 3), (3,)], [[(2, 1), (3,)], [(2, 3), (1,)]]),
    ("BiasAdd", [(1, 2, 3), (3,), (1, 2, 3)], [[(1, 2, 1), (3,), (1, 2, 1)], [(1, 1, 3), (3,), (1, 2, 3)]]),
    ("BiasSplitGelu", [(1, 2, 4), (4,)], [[(1, 2, 4), (2,)], [(1, 2, 2), (4,)]]),
    (
        "SkipLayerNormalization",
        [(1, 2, 3), (1, 2, 3), (3,)],
        [[(1, 2, 1), (1, 2, 1), (3,)], [(1, 2, 1), (1, 2, 3), (3,)], [(1, 2, 3), (2, 2, 3), (3,)]],
    ),
    (
        "SkipSimplifiedLayerNormalization",
        [(1, 2, 3), (1, 2, 3), (3,), (3,)],
        [[(1, 2, 1), (1, 2, 1), (1,), (3,)]],
    ),
]


@pytest.mark.parametrize(("op", "fits", "others"), PARAMETERS, ids=[op for op, *_ in PARAMETERS])
def test_parameters_whose_sizes_only_the_run_knows_do_not_widen_the_result(op, fits, others):
    proto, _ = contrib.as_model([Case(op, [floats(*shape) for shape in fits])])
    graph = import_model(opened(proto)).graph
    assert run_graph(graph, [floats(*shape) for shape in fits])[0].ndim == len(fits[0])
    for shapes in others:
        with pytest.raises(InterpretError):
            run_graph(graph, [floats(*shape) for shape in shapes])
