"""One model for each common operator in each form in which a model may store its numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

#: The element types in which a whole model may be.
PLAIN = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
}
#: Forms of what has weights: float16 behind Cast; int8 behind DequantizeLinear, one scale for all, for each
#: channel or (int4) for each block; all operands and the result quantised; in one quantised operator;
#: products of integers; weights that the run computes.
WEIGHTS = ("cast", "dequantized", "per_channel", "blocked", "qdq", "qlinear", "integer", "computed")

#: Convolutions: (kernel, attributes, channels, outputs, groups).
CONVOLUTIONS = {
    "conv": ((3, 3), {"pads": [1] * 4}, 64, 64, 1),
    "conv_1x1": ((1, 1), {}, 64, 128, 1),
    "conv_strided": ((3, 3), {"pads": [1] * 4, "strides": [2, 2]}, 64, 64, 1),
    "conv_dilated": ((3, 3), {"pads": [2] * 4, "dilations": [2, 2]}, 64, 64, 1),
    "conv_stem": ((7, 7), {"pads": [3] * 4, "strides": [2, 2]}, 3, 64, 1),
    "conv_depthwise": ((3, 3), {"pads": [1] * 4}, 64, 64, 64),
    "conv_grouped": ((3, 3), {"pads": [1] * 4}, 64, 64, 2),
    "conv_1d": ((3,), {"pads": [1, 1]}, 64, 64, 1),
    "conv_3d": ((3, 3, 3), {"pads": [1] * 6}, 32, 32, 1),
    "conv_transposed": ((2, 2), {"strides": [2, 2]}, 64, 32, 1),
}
PRODUCTS = ("matmul", "gemm", "matmul_batched")
POOLS = ("max_pool", "average_pool", "lp_pool", "global_pool")
#: Of rows: (operator, numbers in a row, vectors that it scales with or adds).
ROWS = {
    "softmax": ("Softmax", 256, 0),
    "log_softmax": ("LogSoftmax", 256, 0),
    "layer_norm": ("LayerNormalization", 256, 2),
    "layer_norm_short": ("LayerNormalization", 64, 2),
    "rms_norm": ("RMSNormalization", 256, 1),
}
IMAGE_NORMS = ("instance_norm", "group_norm")
RESIZES = ("resize",)
#: Operators with a kernel of their own.
#: Spelled out, and as one operator.
ATTENTIONS = ("attention", "attention_node")
HEAVY = (*CONVOLUTIONS, *PRODUCTS, *POOLS, *ROWS, *IMAGE_NORMS, *RESIZES, *ATTENTIONS)

#: One number from each of a matrix.
ELEMENTWISE = {
    "gelu": "Gelu",
    "erf": "Erf",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "hard_swish": "HardSwish",
    "mish": "Mish",
    "relu": "Relu",
}
#: Each with the shapes of what it reads.
SEVERAL = {
    "clip": ("Clip", "matrix"),
    "add": ("Add", "matrix", "matrix"),
    "multiply_channels": ("Mul", "image", "channels"),
    "batch_norm": ("BatchNormalization", "image"),
    "where": ("Where", "condition", "matrix", "matrix"),
}
MOVEMENT = ("transpose", "concat", "pad", "gather")
#: What only moves numbers leaves their scale.
MOVES = ("Transpose", "Concat", "Pad", "Gather")
#: Along rows of a matrix, or its columns: (operator, axis).
REDUCTIONS = {
    "reduce_mean": ("ReduceMean", 1),
    "reduce_columns": ("ReduceSum", 0),
    "reduce_max": ("ReduceMax", 1),
    "reduce_l2": ("ReduceL2", 1),
    "arg_max": ("ArgMax", 1),
    "cumsum": ("CumSum", 1),
    "top_k": ("TopK", 1),
}
LIGHT = (*ELEMENTWISE, *SEVERAL, *MOVEMENT, *REDUCTIONS)

OPERATORS = (*HEAVY, *LIGHT)

_RNG = np.random.default_rng(0)
_NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


def forms(operator: str) -> list[str]:
    """The storage forms in which an operator is common."""
    if operator not in (*CONVOLUTIONS, *PRODUCTS):
        return [f for f in (*PLAIN, "qdq") if (operator, f) != ("top_k", "bfloat16")]  # ONNX has none
    found = [*PLAIN, *WEIGHTS]
    if operator in ("conv_transposed", "gemm"):  # there is no such operator
        found = [f for f in found if f not in ("qlinear", "integer")]
    if operator in ("conv_stem", "conv_depthwise"):  # blocks of 16 channels
        found.remove("blocked")
    if operator == "matmul_batched":  # of two inputs
        found = [f for f in found if f in (*PLAIN, "qdq", "qlinear", "integer")]
    return found


def model(operator: str, form: str, symbolic: bool = False, side: int = 28) -> ModelProto:
    """The operator over images of `side` x `side`, or matrices of about as many rows."""
    b = _Graph(form)
    if operator in CONVOLUTIONS:
        b.convolution(*CONVOLUTIONS[operator], side, operator == "conv_transposed")
    elif operator in PRODUCTS:
        b.product(operator, 4 * side)
    elif operator in POOLS:
        b.pool(operator, side)
    elif operator in ATTENTIONS:
        b.attention(operator, 4 * side)
    elif operator in ELEMENTWISE:
        b.finish(b.add(ELEMENTWISE[operator], [b.input(4 * side, 256)]))
    elif operator in SEVERAL:
        b.elementwise(*SEVERAL[operator], side=side)
    elif operator in MOVEMENT:
        b.movement(operator, side)
    elif operator in REDUCTIONS:
        b.reduction(*REDUCTIONS[operator], 4 * side)
    elif operator in RESIZES:
        b.resize(side)
    elif operator in ROWS:
        b.rows(*ROWS[operator], 4 * side)
    else:
        b.image_norm(operator)
    return b.model(symbolic)


def feeds(proto: ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of a static model."""
    rng, found = np.random.default_rng(seed), {}
    for value in proto.graph.input:
        type_ = value.type.tensor_type
        shape = [d.dim_value for d in type_.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(type_.elem_type)
        kind = np.dtype(dtype).kind
        most = {"b": 2, "u": 127, "i": 127}.get(kind)
        data = rng.integers(0, most, shape) if most else rng.standard_normal(shape)
        found[value.name] = data.astype(dtype)
    return found


class _Graph:
    """A graph being written: x in, y out."""

    def __init__(self, form: str):
        self.form = form
        self.dtype = form if form in PLAIN else "float32"
        self.nodes, self.tensors, self.inputs, self.output = [], [], [], PLAIN[self.dtype]

    # What is stored ------------------------------------------------------------------------------

    def add(self, op: str, inputs: list[str], **attributes) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, value: float, dtype: type = np.float32) -> str:
        return self.constant(np.array(value, dtype))

    def input(self, *shape: int) -> str:
        """An operand that the caller gives, as the operator reads it."""
        name = f"x{len(self.inputs)}" if self.inputs else "x"
        if self.form not in ("qdq", "qlinear", "integer"):
            self.inputs.append((name, PLAIN[self.dtype], shape))
            return name
        self.inputs.append((name, TensorProto.UINT8, shape))
        if self.form != "qdq":
            return name
        return self.add("DequantizeLinear", [name, self.scalar(0.02), self.scalar(100, np.uint8)])

    def condition(self, *shape: int) -> str:
        self.inputs.append(("condition", TensorProto.BOOL, shape))
        return "condition"

    def weights(self, *shape: int) -> str:
        """Weights, their outputs along the first axis, and those of integers as they are."""
        data = _RNG.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        if self.form in PLAIN:
            return self.constant(data.astype(_NUMPY[self.dtype]))
        if self.form == "cast":
            return self.add("Cast", [self.constant(data.astype(np.float16))], to=TensorProto.FLOAT)
        if self.form == "computed":
            name = "w"
            self.inputs.append((name, TensorProto.FLOAT, shape))
            return name
        scale, dtype = 4 / np.prod(shape[1:]) ** 0.5 / 127, np.int8
        stored = self.constant(np.clip(np.rint(data / scale), -127, 127).astype(dtype))
        if self.form in ("qlinear", "integer"):
            return stored
        if self.form == "per_channel":
            scales = np.full(shape[0], scale, np.float32)
            return self.add(
                "DequantizeLinear",
                [stored, self.constant(scales), self.constant(np.zeros(shape[0], dtype))],
                axis=0,
            )
        if self.form == "blocked":
            codes = np.clip(np.rint(data / scale / 16), -8, 7).astype(ml_dtypes.int4)
            scales = np.full((shape[0], shape[1] // 16, *shape[2:]), 16 * scale, np.float32)
            operands = [self.constant(codes), self.constant(scales)]
            return self.add("DequantizeLinear", operands, axis=1, block_size=16)
        return self.add("DequantizeLinear", [stored, self.scalar(scale), self.scalar(0, dtype)])

    def finish(self, y: str) -> None:
        if self.form == "qdq":
            scale = 0.02 if self.nodes[-1].op_type in MOVES else 0.03
            y = self.add("QuantizeLinear", [y, self.scalar(scale), self.scalar(120, np.uint8)])
        if self.form in ("qdq", "qlinear"):
            self.output = TensorProto.UINT8
        if self.form == "integer":
            self.output = TensorProto.INT32
        self.nodes[-1].output[0] = "y"

    def quantised(self, op: str, x: str, w: str, **attributes) -> str:
        """The quantised operator, or that of integers, for the float one."""
        zero, weights_zero = self.scalar(100, np.uint8), self.scalar(0, np.int8)
        if self.form == "integer":
            op = {"Conv": "ConvInteger", "MatMul": "MatMulInteger"}[op]
            return self.add(op, [x, w, zero, weights_zero], **attributes)
        operands = [x, self.scalar(0.02), zero, w, self.scalar(0.005), weights_zero]
        return self.add(
            f"QLinear{op}", [*operands, self.scalar(0.02), self.scalar(120, np.uint8)], **attributes
        )

    # Operators -----------------------------------------------------------------------------------

    def convolution(self, kernel, attributes, channels, outputs, groups, side, transposed) -> None:
        side = 4 * side if channels == 3 else max(3, side // 4) if len(kernel) == 3 else side
        x = self.input(1, channels, *[side] * len(kernel))
        shape = (channels, outputs) if transposed else (outputs, channels // groups)
        w = self.weights(*shape, *kernel)
        if groups != 1:
            attributes = {**attributes, "group": groups}
        if self.form in ("qlinear", "integer"):
            y = self.quantised("Conv", x, w, **attributes)
        else:
            y = self.add("ConvTranspose" if transposed else "Conv", [x, w], **attributes)
        self.finish(y)

    def product(self, operator: str, rows: int) -> None:
        if operator == "matmul_batched":
            x, w = self.input(4, rows, 64), self.input(4, 64, rows)
            if self.form in ("qlinear", "integer"):
                self.tensors.append(numpy_helper.from_array(np.array(90, np.uint8), "zero"))
        else:
            x, w = self.input(rows, 256), self.weights(256, 256)
        if self.form in ("qlinear", "integer"):
            y = self._quantised_product(operator, x, w)
        elif operator == "gemm":
            y = self.add("Gemm", [x, w], transB=1)
        else:
            y = self.add("MatMul", [x, w])
        self.finish(y)

    def _quantised_product(self, operator: str, x: str, w: str) -> str:
        if operator == "matmul":
            return self.quantised("MatMul", x, w)
        zero = self.scalar(100, np.uint8)
        if self.form == "integer":
            return self.add("MatMulInteger", [x, w, zero, zero])
        scale = self.scalar(0.02)
        return self.add("QLinearMatMul", [x, scale, zero, w, scale, zero, scale, zero])

    def pool(self, operator: str, side: int) -> None:
        x = self.input(1, 64, side, side)
        if operator == "global_pool":
            self.finish(self.add("GlobalAveragePool", [x]))
            return
        op = {"max_pool": "MaxPool", "average_pool": "AveragePool", "lp_pool": "LpPool"}[operator]
        self.finish(self.add(op, [x], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]))

    def resize(self, side: int) -> None:
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        self.finish(self.add("Resize", [self.input(1, 64, side, side), "", scales], mode="linear"))

    def ones(self, count: int) -> str:
        return self.constant(np.ones(count, _NUMPY[self.dtype]))

    def rows(self, op: str, columns: int, vectors: int, rows: int) -> None:
        x = self.input(rows, columns)
        self.finish(self.add(op, [x, *(self.ones(columns) for _ in range(vectors))]))

    def image_norm(self, operator: str) -> None:
        op = {"instance_norm": "InstanceNormalization", "group_norm": "GroupNormalization"}[operator]
        groups = {"num_groups": 8} if operator == "group_norm" else {}
        self.finish(self.add(op, [self.input(1, 64, 16, 16), self.ones(64), self.ones(64)], **groups))

    def elementwise(self, op: str, *kinds: str, side: int) -> None:
        shapes = {"matrix": (4 * side, 256), "image": (1, 64, side, side), "channels": (1, 64, 1, 1)}
        operands = [
            self.condition(4 * side, 256) if k == "condition" else self.input(*shapes[k]) for k in kinds
        ]
        if op == "Clip":
            operands += [self.constant(np.array(bound, _NUMPY[self.dtype])) for bound in (-0.5, 1.5)]
        if op == "BatchNormalization":
            operands += [self.ones(64) for _ in range(4)]
        self.finish(self.add(op, operands))

    def movement(self, operator: str, side: int) -> None:
        if operator == "gather":
            picked = self.constant(np.arange(3 * side) * 7 % (4 * side))
            self.finish(self.add("Gather", [self.input(4 * side, 256), picked]))
            return
        x = self.input(1, 64, side, side)
        if operator == "transpose":
            y = self.add("Transpose", [x], perm=[0, 2, 3, 1])
        elif operator == "concat":
            y = self.add("Concat", [x, self.input(1, 64, side, side)], axis=1)
        else:
            y = self.add("Pad", [x, self.constant(np.array([0, 0, 1, 1] * 2))])
        self.finish(y)

    def reduction(self, op: str, axis: int, rows: int) -> None:
        x = self.input(rows, 256)
        if op == "ArgMax":
            self.add(op, [x], axis=axis)
            self.nodes[-1].output[0], self.output = "y", TensorProto.INT64
        elif op == "TopK":
            y = self.add(op, [x, self.constant(np.array([5]))], axis=axis)
            self.nodes[-1].output.append("places")
            self.finish(y)
        else:
            self.finish(self.add(op, [x, self.constant(np.array(axis if op == "CumSum" else [axis]))]))

    def attention(self, operator: str, rows: int) -> None:
        q, k, v = (self.input(1, 4, rows, 64) for _ in range(3))
        if operator == "attention_node":
            self.finish(self.add("Attention", [q, k, v]))
            return
        scores = self.add("MatMul", [q, self.add("Transpose", [k], perm=[0, 1, 3, 2])])
        scaled = self.add("Mul", [scores, self.constant(np.array(0.125, _NUMPY[self.dtype]))])
        self.finish(self.add("MatMul", [self.add("Softmax", [scaled]), v]))

    def model(self, symbolic: bool) -> ModelProto:
        inputs = []
        for name, dtype, shape in self.inputs:
            if symbolic and name != "w":  # the batch, and what is behind the channels or before the columns
                shape = [
                    f"n{axis}" if axis == 0 or (1 < axis < len(shape) - 1 and d != 1) else d
                    for axis, d in enumerate(shape)
                ]
            inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        y = helper.make_tensor_value_info("y", self.output, None)
        graph = helper.make_graph(self.nodes, "storage", inputs, [y], self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
