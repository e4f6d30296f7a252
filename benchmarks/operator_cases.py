"""One node of every operator at a size that users have: images of a network, tokens of a transformer, rows of
a table. `CASES` is the list; `Case.model` makes the model of one, `Case.feeds` its inputs.

An input is a recipe for an array: `f(2, 3)` is normal, `w(...)` the same as an initializer.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from random_trees import ensemble

Array = np.ndarray
Recipe = Callable[[np.random.Generator], Array]
ML, MS, TRAINING = "ai.onnx.ml", "com.microsoft", "ai.onnx.preview.training"
OLD = 21  # of what ONNX Runtime has in no newer version
OPSETS = {"": 23, ML: 4, MS: 1, TRAINING: 1}


@dataclass(frozen=True)
class Stored:
    """An input that is an initializer."""

    recipe: Recipe


Input = Recipe | Stored | None


@dataclass(frozen=True)
class Case:
    """A node: its inputs, the types of its outputs where they are no tensors of the first input's type, its
    attributes. note: what tells it from other cases of the operator. open: only the run tells its inputs'
    sizes, but those of 1."""

    op: str
    inputs: Sequence[Input]
    attributes: Mapping[str, object] = field(default_factory=dict)
    domain: str = ""
    outputs: int = 1
    opset: int = 0
    note: str = ""
    open: bool = False

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.op, self.note)))

    def arrays(self) -> list[Array | None]:
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        made = [i.recipe if isinstance(i, Stored) else i for i in self.inputs]
        return [None if recipe is None else np.asarray(recipe(rng)) for recipe in made]

    def feeds(self) -> dict[str, Array]:
        found = enumerate(zip(self.inputs, self.arrays()))
        return {f"x{k}": a for k, (i, a) in found if a is not None and not isinstance(i, Stored)}

    def model(self) -> onnx.ModelProto:
        declared, stored, names = [], [], []
        for k, (given, array) in enumerate(zip(self.inputs, self.arrays())):
            names.append("" if array is None else f"x{k}")
            if isinstance(given, Stored):
                stored.append(numpy_helper.from_array(array, f"x{k}"))
            elif array is not None:
                code = helper.np_dtype_to_tensor_dtype(array.dtype)
                shape = [f"n{d}" if self.open and d > 1 else d for d in array.shape]
                declared.append(helper.make_tensor_value_info(f"x{k}", code, shape))
        results = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(self.op, names, results, "node", domain=self.domain, **self.attributes)
        graph = helper.make_graph(
            [node], "one", declared, [onnx.ValueInfoProto(name=name) for name in results], stored
        )
        versions = {**OPSETS, self.domain: self.opset or OPSETS[self.domain]}
        imports = [helper.make_opsetid(*pair) for pair in versions.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


# Recipes -----------------------------------------------------------------------------------------


def f(*shape: int) -> Recipe:
    """Standard normal."""
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def pos(*shape: int) -> Recipe:
    return lambda rng: (np.abs(rng.standard_normal(shape)) + 0.1).astype(np.float32)


def unit(*shape: int) -> Recipe:
    """Between -1 and 1."""
    return lambda rng: rng.uniform(-1, 1, shape).astype(np.float32)


def ints(low: int, high: int, *shape: int, dtype: type = np.int64) -> Recipe:
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


def u8(*shape: int) -> Recipe:
    return ints(0, 256, *shape, dtype=np.uint8)


def s8(*shape: int) -> Recipe:
    return ints(-128, 128, *shape, dtype=np.int8)


def bits(*shape: int) -> Recipe:
    return lambda rng: rng.random(shape) < 0.5


def const(values: object, dtype: type = np.float32) -> Stored:
    return Stored(lambda rng: np.array(values, dtype))


def w(*shape: int) -> Stored:
    """Weights."""
    return Stored(lambda rng: (rng.standard_normal(shape) / 16).astype(np.float32))


def wq(recipe: Recipe) -> Stored:
    return Stored(recipe)


def words(count: int, length: int = 1) -> Recipe:
    """Texts of so many words."""
    vocabulary = [f"word{k}" for k in range(200)] + ["Ünïcode", "The", "AND"]

    def made(rng: np.random.Generator) -> Array:
        chosen = rng.integers(0, len(vocabulary), (count, length))
        return np.array([" ".join(vocabulary[k] for k in row) for row in chosen], object)

    return made


def int64(*values: int) -> Stored:
    return const(values, np.int64)


IMAGE, TOKENS, TABLE = (1, 64, 56, 56), (1, 128, 768), (10_000, 20)


def each(names: str, *inputs: Input, note: str = "", domain: str = "", **attributes: object) -> list[Case]:
    return [Case(name, inputs, attributes, domain, note=note) for name in names.split()]


def q(recipe: Recipe) -> list[Input]:
    """A quantised tensor with its scale and zero point."""
    return [recipe, const(0.03), const(120, np.uint8)]


Q = [const(0.04), const(110, np.uint8)]

# Elements ----------------------------------------------------------------------------------------

ELEMENTS = [
    *each("Abs Ceil Floor Round Neg Relu Sign Identity Sigmoid Tanh Exp Erf Softplus Softsign", f(*IMAGE)),
    *each("Elu Selu Celu LeakyRelu HardSigmoid HardSwish Mish ThresholdedRelu Shrink Gelu", f(*IMAGE)),
    Case("Swish", [f(*IMAGE)], opset=24),
    *each("Sin Cos Tan Sinh Cosh Atan Asinh", f(*IMAGE)),
    *each("Asin Acos Atanh", unit(*IMAGE)),
    Case("Acosh", [lambda rng: 1 + pos(*IMAGE)(rng)]),
    *each("Sqrt Log Reciprocal", pos(*IMAGE)),
    *each("IsNaN IsInf", f(*IMAGE)),
    *each("Add Sub Mul Div Max Min Mean Sum", f(*IMAGE), pos(*IMAGE)),
    *each("Add Mul", f(*TOKENS), w(768), note="row"),
    *each("Add Mul", f(*IMAGE), f(1, 64, 1, 1), note="channel"),
    *each("Pow", pos(*IMAGE), f(*IMAGE)),
    Case("Pow", [f(*TOKENS), const(2.0)], note="square"),
    *each("Equal Less Greater LessOrEqual GreaterOrEqual", f(*IMAGE), f(*IMAGE)),
    *each("And Or Xor", bits(*IMAGE), bits(*IMAGE)),
    *each("Not", bits(*IMAGE)),
    *each(
        "BitwiseAnd BitwiseOr BitwiseXor",
        ints(0, 99, *TOKENS, dtype=np.int32),
        ints(0, 99, *TOKENS, dtype=np.int32),
    ),
    *each("BitwiseNot", ints(0, 99, *TOKENS, dtype=np.int32)),
    Case(
        "BitShift",
        [ints(0, 99, *TOKENS, dtype=np.uint32), ints(0, 9, *TOKENS, dtype=np.uint32)],
        {"direction": "LEFT"},
    ),
    Case("Mod", [ints(0, 9999, *TOKENS), ints(1, 99, *TOKENS)]),
    Case("Mod", [f(*TOKENS), pos(*TOKENS)], {"fmod": 1}, note="float"),
    Case("Where", [bits(1, 1, 128, 128), f(1, 12, 128, 128), const(-1e9)]),
    Case("Clip", [f(*IMAGE), const(0.0), const(6.0)]),
    Case("PRelu", [f(*IMAGE), w(64, 1, 1)]),
    Case("Cast", [f(*IMAGE)], {"to": TensorProto.INT64}, note="to int64"),
    Case("Cast", [f(*IMAGE)], {"to": TensorProto.FLOAT16}, note="to float16"),
    Case("Cast", [ints(0, 2, *TOKENS)], {"to": TensorProto.FLOAT}, note="of int64"),
    Case("CastLike", [f(*TOKENS), const(1, np.int32)]),
    Case("Dropout", [f(*TOKENS)]),
    Case("BitCast", [f(*TOKENS)], {"to": TensorProto.INT32}, opset=26),
]

# Rows --------------------------------------------------------------------------------------------

ROWS = [
    *each("Softmax LogSoftmax", f(12, 128, 128)),
    *each("Softmax", f(1, 1000), note="classes"),
    *each("Hardmax", f(128, 1000)),
    *each("Softmax", f(1, 21, 65, 65), note="channels", axis=1),
    Case("LayerNormalization", [f(*TOKENS), w(768), w(768)]),
    Case("RMSNormalization", [f(*TOKENS), w(768)]),
    Case("InstanceNormalization", [f(*IMAGE), w(64), w(64)]),
    Case("GroupNormalization", [f(*IMAGE), w(64), w(64)], {"num_groups": 8}),
    Case("BatchNormalization", [f(*IMAGE), w(64), w(64), w(64), Stored(pos(64))]),
    *each("LRN", f(*IMAGE), size=5),
    *each("LpNormalization MeanVarianceNormalization", f(*IMAGE)),
    *[
        Case(f"Reduce{kind}", [f(*TOKENS), int64(-1)])
        for kind in ["L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    ],
    Case("ReduceLogSum", [pos(*TOKENS), int64(-1)]),
    Case("ReduceMean", [f(*IMAGE), int64(2, 3)], note="image"),
    Case("ReduceMax", [f(*TOKENS), int64(1)], note="columns"),
    Case("ReduceSum", [f(*TOKENS), int64(1)], note="columns"),
    *each("ArgMax ArgMin", f(128, 1000), axis=-1),
    Case("ArgMax", [f(1, 21, 257, 257)], {"axis": 1}, note="channels"),
    Case("TopK", [f(1, 8400), int64(300)], outputs=2),
    Case("TopK", [f(128, 1000), int64(5)], outputs=2, note="few"),
    Case("CumSum", [f(128, 1024), const(1, np.int64)]),
    Case("CumSum", [f(128, 1024), const(0, np.int64)], note="columns"),
    Case("CumProd", [unit(128, 1024), const(1, np.int64)], opset=26),
    Case("SoftmaxCrossEntropyLoss", [f(128, 1000), ints(0, 1000, 128)], opset=13),
    Case("NegativeLogLikelihoodLoss", [f(128, 1000), ints(0, 1000, 128)], opset=13),
]

# Movement ----------------------------------------------------------------------------------------

MOVEMENT = [
    Case("Transpose", [f(1, 128, 12, 64)], {"perm": [0, 2, 1, 3]}),
    Case("Transpose", [f(*IMAGE)], {"perm": [0, 2, 3, 1]}, note="to NHWC"),
    Case("Transpose", [f(1024, 1024)], {"perm": [1, 0]}, note="matrix"),
    Case("Concat", [f(*IMAGE), f(*IMAGE)], {"axis": 1}),
    Case("Concat", [f(128, 300), f(128, 500)], {"axis": 1}, note="rows"),
    Case("Split", [f(1, 128, 2304)], {"axis": -1, "num_outputs": 3}, outputs=3),
    Case("Slice", [f(*IMAGE), int64(0, 4), int64(32, 60), int64(1, 2)]),
    Case(
        "Slice", [f(1, 3, 640, 640), int64(0, 0), int64(9999, 9999), int64(2, 3), int64(2, 2)], note="steps"
    ),
    Case("Pad", [f(*IMAGE), int64(0, 0, 1, 1, 0, 0, 1, 1)]),
    Case("Pad", [f(*IMAGE), int64(0, 0, 3, 3, 0, 0, 3, 3)], {"mode": "reflect"}, note="reflect"),
    Case("Tile", [f(1, 64, 28, 28), int64(1, 1, 2, 2)]),
    Case("Expand", [f(1, 64, 1, 56), int64(*IMAGE)]),
    *each("DepthToSpace", f(1, 64, 56, 56), blocksize=2),
    *each("SpaceToDepth", f(1, 16, 112, 112), blocksize=2),
    Case("Gather", [w(30_000, 384), ints(0, 30_000, 1, 128)], note="embedding"),
    Case("Gather", [f(*TOKENS), const(0, np.int64)], {"axis": 1}, note="one"),
    Case("GatherElements", [f(8400, 80), ints(0, 8400, 300, 80)]),
    Case("GatherND", [f(64, 100, 100), lambda rng: rng.integers(0, 64, (5000, 2))]),
    Case("ScatterElements", [f(1000, 80), ints(0, 1000, 300, 80), f(300, 80)], {"reduction": "add"}),
    Case("ScatterND", [f(1000, 768), Stored(lambda rng: rng.permutation(1000)[:200, None]), f(200, 768)]),
    Case("Trilu", [f(12, 256, 256)]),
    Case("Resize", [f(1, 64, 28, 28), None, const([1, 1, 2, 2])], {"mode": "nearest"}),
    Case("Resize", [f(1, 3, 240, 320), None, None, int64(1, 3, 480, 640)], {"mode": "linear"}, note="linear"),
    Case("Resize", [f(1, 3, 240, 320), None, None, int64(1, 3, 480, 640)], {"mode": "cubic"}, note="cubic"),
    Case("GridSample", [f(1, 64, 56, 56), unit(1, 56, 56, 2)]),
    Case("AffineGrid", [f(1, 2, 3), int64(1, 3, 224, 224)]),
    Case("ReverseSequence", [f(128, 8, 256), ints(1, 128, 8)]),
    Case("OneHot", [ints(0, 1000, 128), const(1000, np.int64), const([0, 1])]),
    Case("EyeLike", [f(512, 512)]),
    Case("CenterCropPad", [f(3, 256, 256), int64(224, 224)], {"axes": [1, 2]}),
    Case("Col2Im", [f(1, 576, 3136), int64(56, 56), int64(3, 3)], {"pads": [1, 1, 1, 1]}),
    Case("Compress", [f(1000, 768), lambda rng: rng.random(1000) < 0.5], {"axis": 0}),
    Case("NonZero", [bits(300, 1000)]),
    Case("Unique", [ints(0, 500, 10_000)], outputs=1),
    Case(
        "NonMaxSuppression",
        [
            lambda rng: np.sort(rng.random((1, 1000, 4)), -1).astype(np.float32),
            lambda rng: rng.random((1, 20, 1000)).astype(np.float32),
            int64(50),
            const([0.5]),
            const([0.6]),
        ],
    ),
    Case("Range", [const(0, np.int64), wq(lambda rng: np.array(10_000)), const(1, np.int64)]),
    Case("ConstantOfShape", [int64(512, 512)]),
    Case("Reshape", [f(*IMAGE), int64(1, 64, -1)]),
    *each("Flatten", f(*IMAGE)),
    Case("Squeeze", [f(1, 1000), int64(0)]),
    Case("Unsqueeze", [f(1000), int64(0)]),
    *each("Shape Size", f(*IMAGE)),
]

# Windows and products ------------------------------------------------------------------------------

SAME = {"pads": [1, 1, 1, 1]}
WINDOWS = [
    Case("Conv", [f(*IMAGE), w(64, 64, 3, 3), w(64)], SAME),
    Case("Conv", [f(1, 256, 14, 14), w(1024, 256, 1, 1), w(1024)], note="1x1"),
    Case(
        "Conv",
        [f(1, 3, 224, 224), w(64, 3, 7, 7), w(64)],
        {"strides": [2, 2], "pads": [3, 3, 3, 3]},
        note="first",
    ),
    Case("Conv", [f(*IMAGE), w(64, 1, 3, 3), w(64)], {"group": 64, **SAME}, note="depthwise"),
    Case("Conv", [f(1, 80, 3000), w(384, 80, 3), w(384)], {"pads": [1, 1]}, note="1-D"),
    Case("ConvTranspose", [f(1, 64, 28, 28), w(64, 32, 2, 2)], {"strides": [2, 2]}),
    Case("ConvInteger", [u8(1, 32, 28, 28), wq(s8(32, 32, 3, 3)), const(128, np.uint8)], SAME),
    Case("DeformConv", [f(1, 32, 28, 28), w(32, 32, 3, 3), f(1, 18, 28, 28)], SAME, opset=19),
    Case("MaxPool", [f(1, 64, 112, 112)], {"kernel_shape": [3, 3], "strides": [2, 2], **SAME}),
    Case("AveragePool", [f(*IMAGE)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("LpPool", [f(*IMAGE)], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    *each("GlobalAveragePool GlobalMaxPool", f(1, 512, 7, 7)),
    Case("GlobalLpPool", [f(1, 512, 7, 7)], opset=OLD),
    Case(
        "MaxRoiPool",
        [f(*IMAGE), lambda rng: np.array([[0, 2, 3, 40, 50]] * 20, np.float32)],
        {"pooled_shape": [7, 7]},
        opset=OLD,
    ),
    Case(
        "RoiAlign",
        [f(*IMAGE), lambda rng: np.array([[2, 3, 40, 50]] * 20, np.float32), ints(0, 1, 20)],
        {"output_height": 7, "output_width": 7},
        opset=OLD,
    ),
    Case(
        "MaxUnpool",
        [f(1, 64, 28, 28), Stored(lambda rng: np.arange(0, 200704, 4).reshape(1, 64, 28, 28))],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Case("MatMul", [f(*TOKENS), w(768, 768)]),
    Case("MatMul", [f(1, 12, 128, 64), f(1, 12, 64, 128)], note="batch"),
    Case("MatMul", [f(1, 768), w(768, 3072)], note="row"),
    Case("Gemm", [f(32, 512), w(1000, 512), w(1000)], {"transB": 1}),
    Case("Einsum", [f(1, 128, 12, 64), f(1, 128, 12, 64)], {"equation": "bqhd,bkhd->bhqk"}),
    Case("MatMulInteger", [u8(128, 768), wq(s8(768, 768)), const(128, np.uint8)]),
    Case("Det", [f(100, 4, 4)]),
    Case("Attention", [f(1, 12, 128, 64)] * 3),
    Case("RotaryEmbedding", [f(1, 12, 128, 64), w(1, 128, 32), w(1, 128, 32)]),
    Case("LSTM", [f(64, 1, 128), w(1, 512, 128), w(1, 512, 128), w(1, 1024)], {"hidden_size": 128}),
    Case("GRU", [f(64, 1, 128), w(1, 384, 128), w(1, 384, 128), w(1, 768)], {"hidden_size": 128}),
    Case("RNN", [f(64, 1, 128), w(1, 128, 128), w(1, 128, 128), w(1, 256)], {"hidden_size": 128}),
    Case("DFT", [f(1, 400, 201, 1)], opset=17, note="axis 1"),
    Case("STFT", [f(1, 16000, 1), const(160, np.int64), Stored(pos(400)), const(400, np.int64)], opset=17),
    Case(
        "MelWeightMatrix",
        [const(80, np.int64), const(400, np.int64), const(16000, np.int64), const(0.0), const(8000.0)],
    ),
    *each("HannWindow HammingWindow BlackmanWindow", wq(lambda rng: np.array(400))),
]

QUANTISED = [
    Case("QuantizeLinear", [f(*IMAGE), *Q]),
    Case("DequantizeLinear", [u8(*IMAGE), *Q]),
    Case("DynamicQuantizeLinear", [f(*TOKENS)], outputs=3),
    Case(
        "QLinearConv", [*q(u8(1, 64, 28, 28)), wq(s8(64, 64, 3, 3)), const(0.01), const(0, np.int8), *Q], SAME
    ),
    Case("QLinearMatMul", [*q(u8(128, 768)), wq(u8(768, 768)), const(0.01), const(128, np.uint8), *Q]),
    *[Case(name, [*q(u8(*IMAGE)), *q(u8(*IMAGE)), *Q], {}, MS) for name in ("QLinearAdd", "QLinearMul")],
    *[Case(name, [*q(u8(*IMAGE)), *Q], {}, MS) for name in ("QLinearSigmoid", "QLinearLeakyRelu")],
    Case("QLinearSoftmax", [*q(u8(12, 128, 128)), const(1 / 256), const(0, np.uint8)], {"opset": 13}, MS),
    Case("QLinearConcat", [*Q, *q(u8(*IMAGE)), *q(u8(*IMAGE))], {"axis": 1}, MS),
    Case("QLinearAveragePool", [*q(u8(*IMAGE)), *Q], {"kernel_shape": [2, 2], "strides": [2, 2]}, MS),
    Case("QLinearGlobalAveragePool", [*q(u8(1, 512, 7, 7)), *Q], {}, MS),
    Case("QLinearWhere", [bits(*IMAGE), *q(u8(*IMAGE)), *q(u8(*IMAGE)), *Q], {}, MS),
    Case(
        "QGemm",
        [
            *q(u8(32, 512)),
            wq(u8(512, 1000)),
            const(0.01),
            const(128, np.uint8),
            wq(ints(-99, 99, 1000, dtype=np.int32)),
            *Q,
        ],
        {},
        MS,
    ),
    Case("DynamicQuantizeMatMul", [f(128, 768), wq(s8(768, 768)), const(0.01)], {}, MS),
    Case("MatMulIntegerToFloat", [u8(128, 768), wq(s8(768, 768)), const(0.02), const(0.01)], {}, MS),
    Case(
        "MatMulNBits",
        [f(1, 2048), wq(u8(2048, 64, 16)), Stored(pos(2048 * 64))],
        {"K": 2048, "N": 2048, "bits": 4, "block_size": 32},
        MS,
    ),
    Case(
        "MatMulNBits",
        [f(128, 2048), wq(u8(2048, 64, 16)), Stored(pos(2048 * 64))],
        {"K": 2048, "N": 2048, "bits": 4, "block_size": 32},
        MS,
        note="prompt",
    ),
    Case(
        "MatMulBnb4",
        [f(1, 1024), wq(u8(1024 * 1024 // 2)), Stored(pos(1024 * 1024 // 64))],
        {"K": 1024, "N": 1024, "block_size": 64, "quant_type": 1},
        MS,
    ),
]

# What ONNX Runtime fuses ---------------------------------------------------------------------------

FUSED = [
    *each("Gelu FastGelu QuickGelu", f(1, 128, 3072), domain=MS),
    Case("BiasGelu", [f(1, 128, 3072), w(3072)], {}, MS),
    Case("SkipLayerNormalization", [f(*TOKENS), f(*TOKENS), w(768), w(768), w(768)], {}, MS),
    Case("SkipSimplifiedLayerNormalization", [f(*TOKENS), f(*TOKENS), w(768)], {}, MS),
    Case(
        "EmbedLayerNormalization",
        [
            ints(0, 30_000, 1, 128, dtype=np.int32),
            ints(0, 2, 1, 128, dtype=np.int32),
            w(30_000, 384),
            w(512, 384),
            w(2, 384),
            w(384),
            w(384),
        ],
        {},
        MS,
        outputs=2,
    ),
    Case("Attention", [f(1, 128, 384), w(384, 1152), w(1152)], {"num_heads": 12}, MS, note="(microsoft)"),
    Case("MultiHeadAttention", [f(*TOKENS)] * 3, {"num_heads": 12}, MS),
    Case("FusedMatMul", [f(*TOKENS), w(768, 768)], {"transB": 1, "alpha": 0.5}, MS),
    Case("FusedConv", [f(*IMAGE), w(64, 64, 3, 3), w(64)], {"activation": "Relu", **SAME}, MS),
    Case("FusedGemm", [f(32, 512), w(512, 1000), w(1000)], {"activation": "Relu"}, MS),
    Case("BiasSoftmax", [f(1, 12, 128, 128), f(1, 1, 128, 128)], {"axis": 3, "is_inner_broadcast": 0}, MS),
    Case("CDist", [f(1000, 20), f(100, 20)], {"metric": "sqeuclidean"}, MS),
    Case("Inverse", [f(100, 4, 4)], {}, MS),
    Case(
        "RotaryEmbedding",
        [f(1, 12, 128, 64), wq(lambda rng: np.arange(128)[None]), w(128, 32), w(128, 32)],
        {},
        MS,
        note="(microsoft)",
    ),
]

# Tables and text -----------------------------------------------------------------------------------

LABELS = [f"word{k}" for k in range(200)]
TABLES = [
    Case("Scaler", [f(*TABLE)], {"offset": [0.1] * 20, "scale": [2.0] * 20}, ML, opset=3),
    Case("Normalizer", [f(*TABLE)], {"norm": "L2"}, ML, opset=3),
    Case("Binarizer", [f(*TABLE)], {"threshold": 0.2}, ML, opset=3),
    Case(
        "Imputer", [f(*TABLE)], {"imputed_value_floats": [1.0] * 20, "replaced_value_float": 0.5}, ML, opset=3
    ),
    Case("ArrayFeatureExtractor", [f(*TABLE), int64(3, 1, 7)], {}, ML, opset=3),
    Case("FeatureVectorizer", [f(*TABLE), f(*TABLE)], {"inputdimensions": [20, 20]}, ML, opset=3),
    Case("LinearRegressor", [f(*TABLE)], {"coefficients": [0.5] * 20, "intercepts": [1.0]}, ML, opset=3),
    Case(
        "LinearClassifier",
        [f(*TABLE)],
        {
            "coefficients": list(np.linspace(-1, 1, 60)),
            "intercepts": [0.1, 0.2, 0.3],
            "classlabels_ints": [0, 1, 2],
            "post_transform": "SOFTMAX",
        },
        ML,
        outputs=2,
        opset=3,
    ),
    Case(
        "SVMRegressor",
        [f(1000, 20)],
        {
            "coefficients": list(np.linspace(-1, 1, 100)),
            "kernel_params": [0.1, 0.0, 3.0],
            "kernel_type": "RBF",
            "n_supports": 100,
            "rho": [0.2],
            "support_vectors": list(np.linspace(-1, 1, 2000)),
        },
        ML,
        opset=3,
    ),
    Case("OneHotEncoder", [ints(0, 20, 10_000)], {"cats_int64s": list(range(20))}, ML, opset=3),
    Case("OneHotEncoder", [words(10_000)], {"cats_strings": LABELS[:20]}, ML, opset=3, note="strings"),
    Case(
        "LabelEncoder",
        [words(10_000)],
        {"keys_strings": LABELS, "values_int64s": list(range(200))},
        ML,
        note="strings",
    ),
    Case(
        "LabelEncoder",
        [ints(0, 200, 10_000)],
        {"keys_int64s": list(range(200)), "values_int64s": list(range(200))},
        ML,
        note="integers",
    ),
    Case(
        "LabelEncoder",
        [ints(0, 200, 10_000)],
        {"keys_int64s": list(range(200)), "values_strings": LABELS},
        ML,
        note="to strings",
    ),
    Case(
        "CategoryMapper",
        [words(10_000)],
        {"cats_strings": LABELS, "cats_int64s": list(range(200))},
        ML,
        opset=3,
    ),
    Case("StringConcat", [words(10_000), words(10_000)]),
    Case("StringSplit", [words(10_000, 4)], outputs=2),
    Case(
        "StringNormalizer",
        [words(10_000)],
        {"case_change_action": "LOWER", "is_case_sensitive": 1, "locale": "C"},
    ),
    Case("RegexFullMatch", [words(10_000, 2)], {"pattern": r"word\d+ .*"}),
    Case(
        "Tokenizer",
        [words(10_000, 4)],
        {"mark": 0, "mincharnum": 1, "pad_value": "#", "tokenexp": "[a-zA-Z0-9_]+"},
        MS,
    ),
    Case(
        "TfIdfVectorizer",
        [lambda rng: words(40_000)(rng).reshape(10_000, 4)],
        {
            "max_gram_length": 1,
            "min_gram_length": 1,
            "max_skip_count": 0,
            "mode": "TF",
            "ngram_counts": [0],
            "ngram_indexes": list(range(200)),
            "pool_strings": LABELS,
        },
    ),
    Case(
        "TfIdfVectorizer",
        [ints(0, 200, 10_000, 4)],
        {
            "max_gram_length": 2,
            "min_gram_length": 1,
            "max_skip_count": 0,
            "mode": "TF",
            "ngram_counts": [0, 200],
            "ngram_indexes": list(range(300)),
            "pool_int64s": [*range(200), *(k for i in range(100) for k in (i, i + 1))],
        },
        note="integers",
    ),
    Case("Equal", [words(10_000), words(10_000)], note="strings"),
    Case("Identity", [words(10_000)], note="strings"),
    Case("Gather", [words(200), ints(0, 200, 10_000)], note="strings"),
    Case("Cast", [f(10_000)], {"to": TensorProto.STRING}, note="to strings"),
    Case(
        "Cast",
        [lambda rng: np.array([f"{v:.4f}" for v in rng.standard_normal(10_000)], object)],
        {"to": TensorProto.FLOAT},
        note="of strings",
    ),
]

RANDOM = [
    Case("RandomNormalLike", [f(*TOKENS)], opset=OLD),
    Case("RandomUniformLike", [f(*TOKENS)], opset=OLD),
    Case("RandomNormal", [], {"shape": list(TOKENS)}, opset=OLD),
    Case("RandomUniform", [], {"shape": list(TOKENS)}, opset=OLD),
    Case("Bernoulli", [lambda rng: rng.random(TOKENS).astype(np.float32)], opset=OLD),
    Case("Multinomial", [f(4, 1000)], {"sample_size": 10}, opset=OLD),
]

OLDER = [
    Case("Scatter", [f(1000, 80), ints(0, 1000, 300, 80), f(300, 80)], opset=9),
    Case("Upsample", [f(1, 64, 28, 28), const([1, 1, 2, 2])], {"mode": "nearest"}, opset=9),
    Case("SimplifiedLayerNormalization", [f(*TOKENS), w(768)], {"axis": -1}, opset=17),
    Case("TransposeMatMul", [f(*TOKENS), w(768, 768)], {"transB": 1}, MS),
    Case("ExpandDims", [f(*TOKENS), const(1, np.int32)], {}, MS),
    Case("Trilu", [f(12, 256, 256)], {}, MS, note="(microsoft)"),
    Case("Unique", [ints(0, 500, 10_000, dtype=np.float32)], {}, MS, outputs=3, note="(microsoft)"),
    Case(
        "GatherND", [f(64, 100, 100), lambda rng: rng.integers(0, 64, (5000, 2))], {}, MS, note="(microsoft)"
    ),
    Case("Pad", [f(64, 56, 56), int64(0, 1, 1, 0, 1, 1)], {}, MS, note="(microsoft)"),
    Case("QuantizeLinear", [f(*IMAGE), *Q], {}, MS, note="(microsoft)"),
    Case("DequantizeLinear", [u8(*IMAGE), *Q], {}, MS, note="(microsoft)"),
    Case("NhwcMaxPool", [u8(1, 56, 56, 64)], {"kernel_shape": [2, 2], "strides": [2, 2]}, MS),
    Case(
        "MatMulInteger16",
        [ints(-99, 99, 128, 768, dtype=np.int16), ints(-99, 99, 768, 64, dtype=np.int16)],
        {},
        MS,
    ),
    Case(
        "QAttention",
        [
            u8(1, 128, 384),
            wq(s8(384, 1152)),
            w(1152),
            const(0.02),
            const(0.01),
            None,
            const(120, np.uint8),
            const(0, np.int8),
        ],
        {"num_heads": 12},
        MS,
    ),
    Case(
        "DynamicQuantizeLSTM",
        [f(64, 1, 128), wq(s8(1, 128, 512)), wq(s8(1, 128, 512)), w(1, 1024), None, None, None, None]
        + [const([0.001]), const([0], np.int8)] * 2,
        {"hidden_size": 128},
        MS,
    ),
    Case(
        "GroupQueryAttention",
        [f(1, 1, 768), f(1, 1, 256), f(1, 1, 256), f(1, 4, 127, 64), f(1, 4, 127, 64)]
        + [const([127], np.int32), const(128, np.int32)],
        {"num_heads": 12, "kv_num_heads": 4},
        MS,
        outputs=3,
    ),
    Case(
        "MoE",
        [f(128, 256), f(128, 8), w(8, 512, 256), None, w(8, 256, 512)],
        {"k": 2, "activation_type": "relu"},
        MS,
    ),
    Case(
        "MoE",
        [f(1, 512), f(1, 32), w(32, 1024, 512), None, w(32, 512, 1024)],
        {"k": 4, "activation_type": "silu", "normalize_routing_weights": 1},
        MS,
        note="a token",
    ),
    *(
        Case(
            "QMoE",
            [
                *(f(tokens, 512), f(tokens, 16)),
                *(wq(u8(16, 1024, 256)), wq(pos(16, 1024, 16)), None),
                *(wq(u8(16, 512, 512)), wq(pos(16, 512, 32))),
            ],
            {"k": 4, "activation_type": "silu", "normalize_routing_weights": 1, "block_size": 32},
            MS,
            note=note,
        )
        for tokens, note in ((1, "a token"), (128, ""))
    ),
]

ENSEMBLES = [
    Case(
        "TreeEnsembleRegressor",
        [f(1, 20)],
        {"n_targets": 1, **ensemble(100, 200, 10, 1)},
        ML,
        opset=1,
        note="a row",
    ),
    Case("TreeEnsembleRegressor", [f(1000, 20)], {"n_targets": 1, **ensemble(100, 200, 10, 1)}, ML, opset=1),
    Case(
        "TreeEnsembleClassifier",
        [f(1000, 20)],
        {"classlabels_int64s": [0, 1, 2], **ensemble(100, 200, 10, 3, "class")},
        ML,
        outputs=2,
        opset=1,
    ),
    Case(
        "SVMClassifier",
        [f(1000, 20)],
        {
            "classlabels_ints": [0, 1],
            "coefficients": list(np.linspace(-1, 1, 100)),
            "kernel_params": [0.1, 0.0, 3.0],
            "kernel_type": "RBF",
            "rho": [0.2],
            "support_vectors": list(np.linspace(-1, 1, 2000)),
            "vectors_per_class": [50, 50],
        },
        ML,
        outputs=2,
        opset=1,
    ),
    Case("ZipMap", [f(1000, 3)], {"classlabels_int64s": [0, 1, 2]}, ML, opset=1),
]

LISTS = [Case("SplitToSequence", [f(128, 768)], {"keepdims": 0}), Case("SequenceConstruct", [f(*TOKENS)] * 3)]

CASES = [
    *ELEMENTS,
    *ROWS,
    *MOVEMENT,
    *WINDOWS,
    *QUANTISED,
    *FUSED,
    *TABLES,
    *RANDOM,
    *OLDER,
    *ENSEMBLES,
    *LISTS,
]
