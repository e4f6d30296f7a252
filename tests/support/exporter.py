"""Writes models as frameworks' exporters write them: constants are nodes, sizes come out of
Shape → Gather → Unsqueeze → Concat → Reshape, weights are initializers. No framework is needed for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


class Exporter:
    """A model being written. Methods append nodes and give the names of their results."""

    def __init__(self, seed: int, opset: int):
        self.rng, self.opset = np.random.default_rng(seed), opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.draws: dict[str, Draw] = {}

    def input(self, name: str, *shape: int | str, dtype: int = TensorProto.FLOAT, draw: Draw = normal) -> str:
        """An input; `draw` makes what tests feed it."""
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        self.draws[name] = draw
        return name

    def op(self, kind: str, *inputs: str, results: int = 1, **attributes: object):
        """A node; its result, or the list of its results if they are more than one."""
        name = f"/{kind}_{len(self.nodes)}"
        outputs = [f"{name}_output_{k}" for k in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))
        return outputs[0] if results == 1 else outputs

    def constant(self, value: object, dtype: type = np.int64) -> str:
        return self.op("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def number(self, value: float) -> str:
        return self.constant(value, np.float32)

    def weight(self, *shape: int, scale: float | None = None, around: float = 0.0) -> str:
        """An initializer drawn so that magnitudes stay about the same from layer to layer."""
        scale = (2 / max(1, int(np.prod(shape[1:])))) ** 0.5 if scale is None else scale
        data = (around + scale * self.rng.standard_normal(shape)).astype(np.float32)
        return self.store(data)

    def store(self, data: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(data, f"weight_{len(self.weights)}"))
        return self.weights[-1].name

    # Shapes --------------------------------------------------------------------------------------

    def size(self, x: str, axis: int) -> str:
        return self.op("Gather", self.op("Shape", x), self.constant(axis), axis=0)

    def sizes(self, parts: Sequence[int | str]) -> str:
        """A list of sizes, some of them computed."""
        axes = self.constant([0])
        return self.op(
            "Concat",
            *(self.constant([p]) if isinstance(p, int) else self.op("Unsqueeze", p, axes) for p in parts),
            axis=0,
        )

    def reshape(self, x: str, *parts: int | str) -> str:
        return self.op("Reshape", x, self.sizes(parts))

    def transpose(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=perm)

    def slice(self, x: str, axis: int, first: int, last: int | str) -> str:
        end = (
            self.constant([last]) if isinstance(last, int) else self.op("Unsqueeze", last, self.constant([0]))
        )
        return self.op("Slice", x, self.constant([first]), end, self.constant([axis]), self.constant([1]))

    # Layers --------------------------------------------------------------------------------------

    def conv(self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1, **more):
        """A convolution of (in, out) channels with a bias, padded to keep the size at stride 1."""
        inside, out = channels
        weights = self.weight(out, inside // groups, kernel, kernel)
        return self.op(
            "Conv",
            x,
            weights,
            self.weight(out, scale=0.1),
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            group=groups,
            **{"pads": [kernel // 2] * 4, "dilations": [1, 1], **more},
        )

    def batch_norm(self, x: str, channels: int) -> str:
        scale, mean, shift = (self.weight(channels, scale=0.1, around=a) for a in (1, 0, 0))
        variance = self.store(self.rng.uniform(0.5, 1.5, channels).astype(np.float32))
        return self.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=1e-5)

    def linear(self, x: str, inside: int, out: int) -> str:
        """MatMul and Add, as exporters write a layer over more than two axes."""
        product = self.op("MatMul", x, self.weight(inside, out, scale=inside**-0.5))
        return self.op("Add", self.weight(out, scale=0.1), product)

    def gemm(self, x: str, inside: int, out: int) -> str:
        weights = self.weight(out, inside, scale=inside**-0.5)
        return self.op("Gemm", x, weights, self.weight(out, scale=0.1), alpha=1.0, beta=1.0, transB=1)

    def layer_norm(self, x: str, width: int) -> str:
        """The operator where the operator set has it, else its parts."""
        scale, shift = self.weight(width, scale=0.1, around=1.0), self.weight(width, scale=0.1)
        if self.opset >= 17:
            return self.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)
        centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1], keepdims=1))
        squares = self.op("Pow", centred, self.number(2))
        variance = self.op("ReduceMean", squares, axes=[-1], keepdims=1)
        deviation = self.op("Sqrt", self.op("Add", variance, self.number(1e-5)))
        return self.op("Add", self.op("Mul", self.op("Div", centred, deviation), scale), shift)

    def gelu(self, x: str) -> str:
        plus = self.op("Add", self.op("Erf", self.op("Div", x, self.number(2**0.5))), self.number(1))
        return self.op("Mul", self.op("Mul", x, plus), self.number(0.5))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The model, with the shapes of its outputs as onnx infers them."""
        named = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, named, self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        made = onnx.shape_inference.infer_shapes(made, check_type=True, data_prop=True)
        del made.graph.value_info[:]
        onnx.checker.check_model(made)
        return made
