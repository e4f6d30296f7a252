"""Nodes with the axes, element types, layouts and open sizes that `operator_cases.py` lacks: what may fall
off the path that an operator's usual form takes. `python benchmarks/operators.py --grid` times them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from operator_cases import MS, SAME, Case, Recipe, bits, const, each, f, int64, ints, pos, s8, u8, unit, w, wq


def h(*shape: int) -> Recipe:
    """float16."""
    return lambda rng: rng.standard_normal(shape).astype(np.float16)


def d(*shape: int) -> Recipe:
    """float64."""
    return lambda rng: rng.standard_normal(shape)


def i32(*shape: int) -> Recipe:
    return ints(-99, 99, *shape, dtype=np.int32)


def i64(*shape: int) -> Recipe:
    return ints(-99, 99, *shape)


NHWC = (1, 56, 56, 64)
WIDE = {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [2, 2, 2, 2]}


def ranges(kinds: str, *inputs: Recipe, note: str) -> list[Case]:
    return each(" ".join(f"Reduce{kind}" for kind in kinds.split()), *inputs, note=note)


FIXED = [
    # pools
    Case("MaxPool", [f(1, 64, 56, 56)], WIDE, note="dilated"),
    Case("MaxPool", [f(1, 64, 56, 56)], {**WIDE, "pads": [0] * 4}, note="dilated, no pads"),
    Case("MaxPool", [f(1, 256, 20, 20)], {"kernel_shape": [13, 13], "pads": [6] * 4}, note="13x13"),
    Case("MaxPool", [f(8, 64, 1000)], {"kernel_shape": [3], "strides": [2]}, note="1-D"),
    Case("MaxPool", [f(1, 32, 16, 28, 28)], {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}, note="3-D"),
    Case("MaxPool", [f(1, 64, 56, 56)], {"kernel_shape": [3, 3], **SAME}, outputs=2, note="places"),
    Case("MaxPool", [u8(1, 64, 56, 56)], {"kernel_shape": [2, 2], "strides": [2, 2]}, note="bytes"),
    Case("AveragePool", [f(1, 64, 56, 56)], {"kernel_shape": [3, 3], **SAME}, note="border"),
    Case("AveragePool", [f(1, 3, 224, 224)], {"kernel_shape": [7, 7], "strides": [7, 7]}, note="7x7"),
    Case("AveragePool", [f(8, 16, 4000)], {"kernel_shape": [25], "pads": [12, 12]}, note="1-D"),
    # convolutions
    Case(
        "Conv",
        [f(1, 64, 56, 56), w(64, 1, 5, 5), w(64)],
        {"group": 64, "pads": [2] * 4},
        note="depthwise 5x5",
    ),
    Case("Conv", [f(1, 64, 56, 56), w(64, 64, 3, 3)], {"dilations": [4, 4], "pads": [4] * 4}, note="dilated"),
    Case("Conv", [f(1, 64, 56, 56), w(64, 64, 1, 7)], {"pads": [0, 3, 0, 3]}, note="1x7"),
    Case("Conv", [f(1, 64, 56, 56), w(128, 64, 3, 3)], {"strides": [2, 2], **SAME}, note="stride 2"),
    Case("Conv", [f(1, 64, 56, 56), w(64, 16, 3, 3)], {"group": 4, **SAME}, note="groups"),
    Case("Conv", [f(1, 512, 400), w(512, 512, 31)], {"pads": [15, 15]}, note="1-D wide"),
    Case("Conv", [f(1, 256, 400), w(256, 1, 31)], {"group": 256, "pads": [15, 15]}, note="1-D depthwise"),
    Case("Conv", [f(1, 13, 57, 59), w(17, 13, 3, 3)], SAME, note="odd"),
    Case("Conv", [f(1, 3, 256, 256), w(768, 3, 16, 16)], {"strides": [16, 16]}, note="patches"),
    Case("Conv", [h(1, 64, 56, 56), wq(h(64, 64, 3, 3))], SAME, note="float16"),
    Case("Conv", [f(1, 64, 28, 28), f(64, 64, 3, 3)], SAME, note="weights given"),
    Case("Conv", [f(1, 1, 28, 28), w(32, 1, 3, 3)], note="one channel"),
    Case("ConvTranspose", [f(1, 64, 28, 28), w(64, 64, 4, 4)], {"strides": [2, 2], **SAME}, note="4x4"),
    Case("ConvTranspose", [f(1, 128, 100), w(128, 64, 16)], {"strides": [8], "pads": [4, 4]}, note="1-D"),
    # products
    Case("MatMul", [f(128, 768), w(768, 1)], note="one column"),
    Case("MatMul", [f(1, 128), w(128, 2)], note="small"),
    Case("MatMul", [f(7, 33), w(33, 5)], note="odd"),
    Case("MatMul", [f(64, 8, 8), f(64, 8, 8)], note="many small"),
    Case("MatMul", [f(128, 768), f(768, 768)], note="both given"),
    Case("MatMul", [d(128, 256), d(256, 256)], note="float64"),
    Case("MatMul", [h(128, 768), wq(h(768, 768))], note="float16"),
    Case("MatMul", [i32(64, 256), i32(256, 64)], note="int32"),
    Case("Gemm", [f(256, 64), f(256, 128)], {"transA": 1}, note="transA"),
    Case("Einsum", [f(8, 64, 32), f(8, 32, 16)], {"equation": "bij,bjk->bik"}, note="batch"),
    Case("Einsum", [f(64, 128), f(128)], {"equation": "ij,j->i"}, note="vector"),
    Case("Einsum", [f(4, 64, 64), f(4, 64, 64)], {"equation": "bij,bij->b"}, note="dot"),
    Case("Einsum", [f(64, 64), f(32, 64)], {"equation": "ij,kj->ikj"}, note="outer"),
    # reductions
    *ranges("Sum Max Mean", f(1, 64, 56, 56), int64(1), note="channels"),
    *ranges("Sum Max Mean", f(128, 768), int64(0), note="rows"),
    *ranges("Sum Max Mean Prod L2", f(1, 64, 56, 56), note="all"),
    *ranges("Sum Max", f(16, 32, 24, 20), int64(0, 2), note="0, 2"),
    *ranges("Sum Max Mean", d(128, 768), int64(1), note="float64"),
    *ranges("Sum Max Mean", h(128, 768), int64(1), note="float16"),
    *ranges("Sum Max", i64(128, 768), int64(1), note="int64"),
    *ranges("Sum", i32(128, 768), int64(0), note="int32 rows"),
    *ranges("Sum Max", f(100_000, 3), int64(1), note="narrow"),
    Case("ArgMax", [f(128, 1000)], {"axis": 0}, note="rows"),
    Case("ArgMax", [i64(128, 1000)], {"axis": 1}, note="int64"),
    Case("ArgMax", [f(100_000, 3)], {"axis": 1}, note="narrow"),
    Case("Softmax", [f(100_000, 3)], {"axis": 1}, note="narrow"),
    Case("Softmax", [f(1, 12, 77, 77)], note="77"),
    Case("Softmax", [f(64, 64, 100)], {"axis": 1}, note="middle"),
    Case("Softmax", [h(12, 128, 128)], note="float16"),
    Case("LogSoftmax", [f(1, 21, 65, 65)], {"axis": 1}, note="channels"),
    Case("LayerNormalization", [f(1, 96, 56, 56), w(96, 56, 56)], {"axis": 1}, note="three axes"),
    Case("LayerNormalization", [f(4096, 32), w(32), w(32)], note="narrow"),
    Case("LayerNormalization", [h(1, 128, 768), wq(h(768)), wq(h(768))], note="float16"),
    Case("InstanceNormalization", [f(1, 64, 3000), w(64), w(64)], note="1-D"),
    Case("TopK", [f(128, 1000), int64(5)], {"axis": 0}, outputs=2, note="rows"),
    Case("TopK", [f(1, 100_000), int64(10)], outputs=2, note="long"),
    Case("TopK", [i64(16, 1000), int64(1000)], outputs=2, note="sort"),
    Case("CumSum", [i64(128, 1024), const(1, np.int64)], note="int64"),
    Case("CumSum", [f(16, 64, 256), const(1, np.int64)], note="middle"),
    # movement
    Case("Transpose", [f(16, 64, 32, 8)], {"perm": [3, 2, 1, 0]}, note="reversed"),
    Case("Transpose", [f(1, 3, 224, 224)], {"perm": [0, 2, 3, 1]}, note="pixels"),
    Case("Transpose", [u8(1, 224, 224, 3)], {"perm": [0, 3, 1, 2]}, note="pixels of bytes"),
    Case("Transpose", [h(512, 768)], {"perm": [1, 0]}, note="float16"),
    Case("Transpose", [d(300, 500)], {"perm": [1, 0]}, note="float64"),
    Case("Concat", [f(128, 768)] * 2, {"axis": 0}, note="0"),
    Case("Concat", [f(10_000, 1)] * 8, {"axis": 1}, note="columns"),
    Case("Concat", [u8(1, 64, 56, 56)] * 2, {"axis": 1}, note="bytes"),
    Case("Split", [f(64, 56, 6)], {"axis": 2, "num_outputs": 3}, outputs=3, note="narrow"),
    Case("Slice", [f(512, 512), int64(511), int64(-600), int64(1), int64(-1)], note="backwards"),
    Case("Slice", [f(64, 1000), int64(0), int64(1000), int64(1), int64(3)], note="every third"),
    Case("Pad", [f(1, 64, 56, 56), int64(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": "edge"}, note="edge"),
    Case("Pad", [u8(1, 3, 224, 224), int64(0, 0, 3, 3, 0, 0, 3, 3)], note="bytes"),
    Case("Tile", [f(128, 3), int64(1, 64)], note="narrow"),
    Case("Expand", [f(1, 1, 768), int64(16, 128, 768)], note="row"),
    Case("Expand", [f(16, 128, 1), int64(16, 128, 768)], note="column"),
    Case("Gather", [f(128, 768), ints(0, 768, 64)], {"axis": 1}, note="columns"),
    Case("Gather", [f(32, 100, 8), ints(0, 100, 50)], {"axis": 1}, note="middle"),
    Case("GatherElements", [f(128, 768), ints(0, 128, 128, 768)], {"axis": 0}, note="rows"),
    Case("GatherElements", [f(128, 768), ints(0, 768, 128, 768)], {"axis": 1}, note="columns"),
    Case("ScatterElements", [f(128, 768), ints(0, 768, 128, 64), f(128, 64)], {"axis": 1}, note="columns"),
    Case("ScatterND", [f(64, 64, 64), lambda g: g.integers(0, 64, (4096, 3)), f(4096)], note="points"),
    Case("Resize", [f(1, 64, 28, 28), None, const([1, 1, 2, 2])], {"mode": "linear"}, note="linear 2x"),
    Case("Resize", [f(1, 64, 56, 56), None, const([1, 1, 0.5, 0.5])], {"mode": "linear"}, note="half"),
    Case(
        "Resize", [u8(1, 3, 240, 320), None, None, int64(1, 3, 480, 640)], {"mode": "nearest"}, note="bytes"
    ),
    Case("Resize", [f(1, 28, 28, 64), None, const([1, 2, 2, 1])], {"mode": "nearest"}, note="NHWC"),
    Case("DepthToSpace", [f(1, 256, 28, 28)], {"blocksize": 2, "mode": "CRD"}, note="CRD"),
    Case("OneHot", [ints(0, 64, 4096), const(64, np.int64), const([0.0, 1.0])], {"axis": 0}, note="0"),
    Case("Where", [bits(128, 768), f(128, 768), f(128, 768)], note="whole"),
    Case("Where", [bits(128, 1), f(128, 768), f(1, 768)], note="broadcast"),
    Case("NonZero", [f(300, 1000)], note="float"),
    Case("Compress", [f(1000, 768), lambda g: g.random(768) < 0.5], {"axis": 1}, note="columns"),
    # elements
    *each("Add Div", i64(1, 128, 768), ints(1, 99, 1, 128, 768), note="int64"),
    *each("Add Mul", d(1, 128, 768), d(1, 128, 768), note="float64"),
    *each("Add Mul", h(1, 128, 768), h(1, 128, 768), note="float16"),
    *each("Tanh Sigmoid Erf", h(1, 128, 768), note="float16"),
    *each("Exp Tanh Sqrt Log", lambda g: np.abs(g.standard_normal((128, 768))), note="float64"),
    *each("Add Mul", f(16, 128, 1), f(1, 1, 768), note="outer"),
    *each("Add", f(100_000, 3), f(3), note="narrow"),
    *each("Mul", f(128, 768), f(128, 1), note="column"),
    *each("Pow", pos(128, 768), const(0.5), note="root"),
    *each("Pow", pos(128, 768), const(2.7), note="constant"),
    *each("Mod", i32(128, 768), const(7, np.int32), note="int32"),
    *each("Less", i64(128, 768), i64(128, 768), note="int64"),
    *each("Clip Relu", h(128, 768), note="float16"),
    *each("Max", f(128, 768), f(128, 768), f(128, 768), note="three"),
    Case("Cast", [h(1, 64, 56, 56)], {"to": 1}, note="of float16"),
    Case("Cast", [pos(1, 64, 56, 56)], {"to": 2}, note="to uint8"),
    Case("Cast", [u8(1, 3, 224, 224)], {"to": 1}, note="of uint8"),
    Case("Cast", [f(128, 768)], {"to": 9}, note="to bool"),
    Case("Cast", [f(128, 768)], {"to": 11}, note="to double"),
    Case("Cast", [i64(128, 768)], {"to": 6}, note="int64 to int32"),
    # quantised
    Case("QuantizeLinear", [f(128, 768), wq(pos(768)), wq(u8(768))], {"axis": 1}, note="columns"),
    Case("DequantizeLinear", [s8(768, 768), wq(pos(768))], {"axis": 0}, note="rows"),
    Case("NhwcMaxPool", [u8(*NHWC)], {"kernel_shape": [3, 3], "strides": [2, 2], **SAME}, MS, note="3x3"),
    Case("MoE", [f(16, 250), f(16, 8), w(8, 500, 250), None, w(8, 250, 500)], {"k": 2}, MS, note="odd"),
    # sequences
    Case("LSTM", [f(16, 32, 64), w(1, 256, 64), w(1, 256, 64)], {"hidden_size": 64}, note="batch 32"),
    Case(
        "LSTM",
        [f(64, 1, 64), w(2, 400, 64), w(2, 400, 100)],
        {"hidden_size": 100, "direction": "bidirectional"},
        note="both ways",
    ),
    Case("GridSample", [f(1, 3, 224, 224), unit(1, 224, 224, 2)], {"mode": "nearest"}, note="nearest"),
]

#: Of these the same with all sizes but 1 open.
_OPEN = """
Resize linear 2x, Resize half, Resize bytes, MaxPool 1-D, MaxPool dilated, MaxPool 13x13, Conv stride 2,
Conv 1-D wide, Conv patches, MatMul both given, MatMul many small, ReduceMean channels, ReduceSum rows,
Softmax 77, Softmax middle, LayerNormalization narrow, Transpose reversed, Transpose pixels, Concat 0,
Pad edge, Gather columns, Where broadcast, Mul column, TopK long, ConvTranspose 4x4, AveragePool border,
InstanceNormalization 1-D, Einsum batch, Slice every third, Expand row, CumSum middle, ArgMax rows
"""
_NAMES = [name.strip() for name in _OPEN.replace("\n", " ").split(",")]

GRID = [
    *FIXED,
    *(replace(case, note=f"{case.note}, open", open=True) for case in FIXED if case.name in _NAMES),
]
