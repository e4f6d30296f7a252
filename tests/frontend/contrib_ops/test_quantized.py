"""Operators over quantised tensors mean what ONNX Runtime makes of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, check, check_compiled, interpreted, same

rng = np.random.default_rng(8)
floats = partial(contrib.floats, rng)
STEP = 1  # ONNX Runtime rounds in other places


def bytes_(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def quantised(dtype: type, *shape: int, step: float = 0.03, zero: int = 3) -> list[np.ndarray]:
    """A tensor, its scale and its zero point."""
    return [bytes_(dtype, *shape), scale(step), np.array(zero, dtype)]


def to(dtype: type, step: float, zero: int = 5) -> list[np.ndarray]:
    return quantised(dtype, step=step, zero=zero)[1:]


case = partial(Case, tolerance=STEP)
U, S = np.uint8, np.int8

ELEMENTWISE = [
    case("QLinearAdd", [*quantised(U, 2, 3, 5), *quantised(U, 5, step=0.02), *to(U, 0.04, 100)]),
    case("QLinearAdd", [*quantised(S, 2, 3, 5), *quantised(S, 2, 1, 5), *to(S, 0.05)]),
    case("QLinearMul", [*quantised(U, 2, 3, 5), *quantised(U, 3, 1, step=0.02), *to(U, 0.04, 100)]),
    case("QLinearMul", [*quantised(S, 7), *quantised(S, 1), *to(S, 0.1)]),
    case("QLinearSigmoid", [*quantised(U, 3, 7), *to(U, 1 / 256, 0)]),
    case("QLinearSigmoid", [*quantised(S, 3, 7), *to(S, 1 / 256, -128)]),
    case("QLinearLeakyRelu", [*quantised(U, 3, 7, zero=128), *to(U, 0.02, 30)], {"alpha": 0.2}),
    case("QLinearLeakyRelu", [*quantised(S, 3, 7), *to(S, 0.02)]),
    case(
        "QLinearWhere",
        [rng.random((3, 1)) > 0.5, *quantised(U, 3, 4), *quantised(U, 4, step=0.05), *to(U, 0.04)],
    ),
    case(
        "QLinearConcat",
        [*to(U, 0.03), *quantised(U, 2, 3), *quantised(U, 2, 1, step=0.05), *quantised(U, 2, 2, step=0.02)],
        {"axis": 1},
    ),
    case("QLinearConcat", [*to(S, 0.04, 0), *quantised(S, 1, 3), *quantised(S, 2, 3)], {"axis": -2}),
]

POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}

REDUCTIONS = [
    case("QLinearAveragePool", [*quantised(U, 1, 3, 6, 7), *to(U, 0.02)], POOL),
    case("QLinearAveragePool", [*quantised(S, 1, 6, 7, 3), *to(S, 0.02)], {**POOL, "channels_last": 1}),
    case("QLinearAveragePool", [*quantised(U, 1, 3, 6, 7), *to(U, 0.02)], {**POOL, "count_include_pad": 1}),
    case("QLinearAveragePool", [*quantised(U, 1, 3, 6, 7), *to(U, 0.02)], {**POOL, "ceil_mode": 1}),
    case("QLinearGlobalAveragePool", [*quantised(U, 2, 3, 6, 7), *to(U, 0.02)]),
    case("QLinearGlobalAveragePool", [*quantised(S, 2, 6, 7, 3), *to(S, 0.02)], {"channels_last": 1}),
    case("QLinearSoftmax", [*quantised(U, 2, 3, 5), *to(U, 1 / 256, 0)], {"axis": 1, "opset": 13}),
    case("QLinearSoftmax", [*quantised(U, 2, 3, 5), *to(U, 1 / 256, 0)], {"axis": 1, "opset": 11}),
    case("QLinearSoftmax", [*quantised(S, 2, 9), *to(S, 1 / 256, -128)], {"opset": 13}),
    case("NhwcMaxPool", [bytes_(U, 1, 6, 7, 3)], {"kernel_shape": [3, 2], "strides": [2, 1]}),
]


def convolution(last: int, **attributes: object) -> Case:
    image = (1, 6, 7, 2) if last else (1, 2, 6, 7)
    inputs = [*quantised(U, *image), bytes_(S, 4, 2, 3, 3), np.abs(floats(4)) * 0.02, np.zeros(4, np.int8)]
    bias = rng.integers(-999, 999, 4).astype(np.int32)
    return case("QLinearConv", [*inputs, *to(U, 0.2, 100), bias], {"channels_last": last, **attributes})


PRODUCTS = [
    convolution(0, pads=[1, 1, 1, 1]),
    convolution(1, strides=[2, 1]),
    Case("MatMulIntegerToFloat", [bytes_(U, 2, 3, 6), bytes_(S, 6, 5), scale(0.02), scale(0.03)]),
    Case(
        "MatMulIntegerToFloat",
        [
            *(bytes_(S, 3, 6), bytes_(S, 6, 5), scale(0.02), np.abs(floats(5)) * 0.03),
            *(np.int8(3), bytes_(S, 5), floats(5)),
        ],
    ),
    Case("DynamicQuantizeMatMul", [floats(2, 3, 6), bytes_(S, 6, 5), scale(0.03)], tolerance=1e-4),
    Case(
        "DynamicQuantizeMatMul",
        [floats(3, 6), bytes_(U, 6, 5), np.abs(floats(5)) * 0.03, bytes_(U, 5), floats(5)],
        tolerance=1e-4,
    ),
    case(
        "QGemm",
        [
            *quantised(U, 3, 6),
            *quantised(S, 6, 5),
            rng.integers(-99, 99, (1, 5)).astype(np.int32),
            *to(U, 0.3, 120),
        ],
        {"alpha": 0.5},
    ),
    Case("QGemm", [*quantised(U, 6, 3), *quantised(U, 5, 6)], {"transA": 1, "transB": 1}),
    Case("QGemm", [*quantised(S, 3, 6), bytes_(S, 6, 5), np.abs(floats(5)) * 0.03, bytes_(S, 5)]),
    Case("MatMulInteger16", [bytes_(np.int16, 3, 4) // 64, bytes_(np.int16, 4, 2) // 64]),
]

CONVERSIONS = [
    case("QuantizeLinear", [floats(2, 3, 4), scale(0.02), np.uint8(100)]),
    case("QuantizeLinear", [floats(2, 3, 4), np.abs(floats(3)) * 0.02, bytes_(np.int16, 3)], {"axis": 1}),
    Case("DequantizeLinear", [bytes_(U, 2, 3), scale(0.02), np.uint8(100)]),
    Case("DequantizeLinear", [bytes_(np.int16, 2, 3), np.abs(floats(3)), bytes_(np.int16, 3)], {"axis": -1}),
    Case("DequantizeLinear", [bytes_(np.int32, 2, 3), np.abs(floats(2))], {"axis": 0}),
]


def recurrent(directions: int, *, by_gate: bool = False, steps: int = 5, **attributes: object) -> Case:
    """Of one sequence: of several, what ONNX Runtime rounds together depends on its threads."""
    columns = (16,) if by_gate else ()
    inputs: list[np.ndarray | None] = [
        floats(steps, 1, 3),
        bytes_(S, directions, 3, 16),
        bytes_(S, directions, 4, 16),
    ]
    inputs += [floats(directions, 32), None, floats(directions, 1, 4) / 9, None, None]
    for _ in range(2):
        inputs += [np.full((directions, *columns), 0.004, np.float32), np.zeros((directions, *columns), S)]
    kind = "bidirectional" if directions == 2 else "forward"
    attributes |= {"hidden_size": 4, "direction": kind}
    return Case("DynamicQuantizeLSTM", inputs, attributes, (0, 1, 2), tolerance=1e-5)


RECURRENT = [recurrent(1), recurrent(2), recurrent(1, by_gate=True, clip=0.5)]


def embedding(**more: object) -> Case:
    words, segments = (rng.integers(0, n, (2, 5)).astype(np.int32) for n in (11, 2))
    tables = [quantised(U, n, 8, step=0.02, zero=100) for n in (11, 7, 2)]
    tables += [quantised(U, 8, step=0.02, zero=100) for _ in range(2)]
    q, steps, zeros = zip(*tables)
    return Case(
        "QEmbedLayerNormalization", [words, segments, *q, more.get("mask"), *steps, *zeros], {}, (0, 1)
    )


EMBEDDINGS = [embedding(mask=np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], np.int32)), embedding()]

ALL = ELEMENTWISE + REDUCTIONS + PRODUCTS + CONVERSIONS + RECURRENT + EMBEDDINGS


@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_results_are_those_of_onnxruntime(case):
    check(case)


def test_a_zero_point_that_is_not_given_is_0():
    """ONNX Runtime takes it for a null pointer."""
    x, zero = [*quantised(S, 3, 7)[:2]], np.int8(0)
    (found,) = interpreted(Case("QLinearLeakyRelu", [*x, None, scale(0.02)]))
    (expected,) = interpreted(Case("QLinearLeakyRelu", [*x, zero, scale(0.02), zero]))
    same(found, expected, 0)


@pytest.mark.parametrize("keepdims", [0, 1])
def test_a_quantised_mean_is_the_mean_of_the_numbers(keepdims):
    """ONNX Runtime has its schema, and no kernel."""
    x = bytes_(U, 2, 3, 4)
    attributes = {"axes": [0, 2], "keepdims": keepdims}
    (found,) = interpreted(
        Case("QLinearReduceMean", [x, scale(0.03), np.uint8(7), *to(U, 0.02, 3)], attributes)
    )
    mean = ((x.astype(np.float64) - 7) * 0.03).mean((0, 2), keepdims=bool(keepdims))
    same(found, np.clip(np.rint(mean / 0.02) + 3, 0, 255).astype(U), STEP)


@pytest.mark.slow
def test_a_library_of_some_of_each_computes_what_the_interpreter_does(tmp_path):
    check_compiled(
        [*ELEMENTWISE[::3], *REDUCTIONS[1::4], *PRODUCTS[1::2], CONVERSIONS[1], RECURRENT[1], EMBEDDINGS[0]],
        tmp_path,
    )
