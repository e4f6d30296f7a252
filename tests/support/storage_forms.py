"""A float32 model in the forms in which models are deployed: quantised in three ways, in float16, with
weights that a Cast widens. Each function gives a new model; the quantising ones use values of its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

Values = Mapping[str, np.ndarray]  # of each tensor of a model, in one run

PRODUCTS = ("Conv", "MatMul", "Gemm")
#: Operators whose operands and results a quantised model stores in eight bits.
STORED = (*PRODUCTS, "Add", "Concat", "MaxPool", "GlobalAveragePool", "Resize")


def values_of(model: onnx.ModelProto, feeds: Values) -> Values:
    """Every float tensor of a run by ONNX Runtime: what the quantised forms take their scales from."""
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    names = [name for node in whole.graph.node for name in node.output]
    del whole.graph.output[:]
    whole.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(whole.SerializeToString(), options)
    found = {**feeds, **dict(zip(names, session.run(None, dict(feeds))))}
    return {name: array for name, array in found.items() if array.dtype == np.float32}


def scale_and_zero(values: np.ndarray) -> tuple[float, int]:
    """Of unsigned bytes that reach from the least value to the greatest, and hold 0."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = (high - low) / 255 or 1.0
    return scale, round(-low / scale)


class _Rewriting:
    """The model's graph being written again, node by node."""

    def __init__(self, model: onnx.ModelProto):
        self.model = onnx.ModelProto.FromString(model.SerializeToString())
        self.graph = self.model.graph
        self.before = list(self.graph.node)
        self.weights = {t.name: numpy_helper.to_array(t) for t in self.graph.initializer}
        self.nodes: list[onnx.NodeProto] = []

    def store(self, name: str, data: np.ndarray) -> str:
        """The name of a new initializer, made once."""
        if name not in self.weights:
            self.weights[name] = data
            self.graph.initializer.append(numpy_helper.from_array(data, name))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def finish(self) -> onnx.ModelProto:
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        used = {name for node in self.nodes for name in node.input}
        used -= {name for node in self.nodes for name in node.output}
        kept = [t for t in self.graph.initializer if t.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)
        onnx.checker.check_model(self.model)
        return self.model

    # Quantised values ----------------------------------------------------------------------------

    def parameters(self, name: str, values: np.ndarray) -> tuple[str, str]:
        """The names of a tensor's scale and zero point."""
        scale, zero = scale_and_zero(values)
        return (
            self.store(f"{name}_scale", np.array(scale, np.float32)),
            self.store(f"{name}_zero_point", np.array(zero, np.uint8)),
        )

    def quantised_weights(self, name: str, axis: int | None) -> tuple[str, str, str]:
        """(bytes, scale, zero point) of constant weights: signed, symmetric, a scale for each index of axis,
        or one for all."""
        weights = self.weights[name]
        others = tuple(k for k in range(weights.ndim) if k != axis) if axis is not None else None
        scale = np.abs(weights).max(axis=others) / 127
        spread = (
            scale if axis is None else scale.reshape([-1 if k == axis else 1 for k in range(weights.ndim)])
        )
        quantised = np.clip(np.round(weights / spread), -127, 127).astype(np.int8)
        return (
            self.store(f"{name}_quantized", quantised),
            self.store(f"{name}_scale", np.asarray(scale, np.float32)),
            self.store(f"{name}_zero_point", np.zeros(np.shape(scale), np.int8)),
        )


def qdq(model: onnx.ModelProto, values: Values) -> onnx.ModelProto:
    """Operands and results of STORED operators through QuantizeLinear and DequantizeLinear; weights as signed
    bytes with a scale for each output channel, biases as int32."""
    rewriting, pairs = _Rewriting(model), {}

    def paired(name):
        if name not in values or name in rewriting.weights:
            return name
        if name not in pairs:
            parameters = rewriting.parameters(name, values[name])
            stored = rewriting.node("QuantizeLinear", [name, *parameters], f"{name}_quantized")
            pairs[name] = rewriting.node("DequantizeLinear", [stored, *parameters], f"{name}_dequantized")
        return pairs[name]

    def weights(node, name, position):
        if position == 2:
            return _bias(rewriting, node, values)
        axis = 0 if node.op_type == "Conv" or _transposed(node) else 1
        parts = rewriting.quantised_weights(name, axis)
        return rewriting.node("DequantizeLinear", parts, f"{node.name}_{name}", axis=axis)

    for node in rewriting.before:
        if node.op_type in STORED:
            inputs = list(node.input)
            for k, name in enumerate(inputs[:1] if node.op_type == "Resize" else inputs):
                constant = name in rewriting.weights and node.op_type in PRODUCTS and k > 0
                inputs[k] = weights(node, name, k) if constant else paired(name)
            del node.input[:]
            node.input.extend(inputs)
        rewriting.nodes.append(node)
    return rewriting.finish()


def _bias(rewriting: _Rewriting, node: onnx.NodeProto, values: Values) -> str:
    """A bias as int32 in steps of the product's scales. The weights' scales are known already."""
    name = node.input[2]
    scale, _ = scale_and_zero(values[_undone(node.input[0])])
    steps = scale * rewriting.weights[f"{node.input[1]}_scale"]
    quantised = np.round(rewriting.weights[name] / steps).astype(np.int32)
    stored = rewriting.store(f"{node.name}_bias", quantised), rewriting.store(f"{node.name}_steps", steps)
    return rewriting.node("DequantizeLinear", stored, f"{node.name}_{name}", axis=0)


def _undone(name: str) -> str:
    return name.removesuffix("_dequantized")


def _transposed(node: onnx.NodeProto) -> bool:
    """Whether a Gemm's weights are [out, in]."""
    return any(a.name == "transB" and a.i for a in node.attribute)


def _without_gemm(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """A Gemm of plain weights as a product and a sum, as quantisers begin."""
    for node in nodes:
        if node.op_type != "Gemm" or _transposed(node):
            yield node
            continue
        x, weights, bias = node.input
        product = f"{node.output[0]}_product"
        yield helper.make_node("MatMul", [x, weights], [product], name=f"{node.name}_product")
        yield helper.make_node("Add", [product, bias], node.output, name=node.name)


def qoperator(model: onnx.ModelProto, values: Values) -> onnx.ModelProto:
    """Convolutions as QLinearConv, products with weights as QLinearMatMul, that hand bytes to each other."""
    rewriting, stored = _Rewriting(model), {}

    def quantised(name):
        parameters = rewriting.parameters(name, values[name])
        if name not in stored:
            stored[name] = rewriting.node("QuantizeLinear", [name, *parameters], f"{name}_quantized")
        return stored[name], *parameters

    for node in _without_gemm(rewriting.before):
        weighted = node.op_type in ("Conv", "MatMul") and node.input[1] in rewriting.weights
        if not weighted or node.input[0] in rewriting.weights:
            rewriting.nodes.append(node)
            continue
        x, result = node.input[0], node.output[0]
        axis = 0 if node.op_type == "Conv" else None
        weights = rewriting.quantised_weights(node.input[1], axis)
        bias = []
        if len(node.input) > 2:
            steps = scale_and_zero(values[x])[0] * rewriting.weights[weights[1]]
            data = np.round(rewriting.weights[node.input[2]] / steps).astype(np.int32)
            bias = [rewriting.store(f"{node.name}_bias", data)]
        # of a product that was part of a Gemm the range with the bias is near enough
        whole = values.get(result, values[result.removesuffix("_product")])
        parameters = rewriting.parameters(result, whole)
        inputs = [*quantised(x), *weights, *parameters, *bias]
        stored[result] = rewriting.node(f"QLinear{node.op_type}", inputs, f"{result}_quantized")
        rewriting.nodes[-1].attribute.extend(node.attribute)
        rewriting.node("DequantizeLinear", [stored[result], *parameters], result)
    return rewriting.finish()


def dynamic(model: onnx.ModelProto, values: Values) -> onnx.ModelProto:
    """Convolutions and products of activations with weights in integers, scales found by each run."""
    rewriting, found = _Rewriting(model), {}
    for node in _without_gemm(rewriting.before):
        if node.op_type not in ("Conv", "MatMul") or node.input[1] not in rewriting.weights:
            rewriting.nodes.append(node)
            continue
        x, result = node.input[0], node.output[0]
        if x not in found:
            found[x] = [f"{x}_quantized", f"{x}_scale", f"{x}_zero_point"]
            rewriting.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], found[x]))
        weights, scale, zero = rewriting.quantised_weights(node.input[1], None)
        inputs = [found[x][0], weights, found[x][2], zero]
        whole = rewriting.node(f"{node.op_type}Integer", inputs, f"{result}_integer")
        rewriting.nodes[-1].attribute.extend(node.attribute)
        number = rewriting.node("Cast", [whole], f"{result}_number", to=TensorProto.FLOAT)
        scales = rewriting.node("Mul", [found[x][1], scale], f"{result}_scales")
        biased = len(node.input) > 2
        rewriting.node("Mul", [number, scales], f"{result}_unbiased" if biased else result)
        if biased:
            bias = rewriting.weights[node.input[2]].reshape(-1, 1, 1)
            rewriting.node("Add", [f"{result}_unbiased", rewriting.store(f"{node.name}_bias", bias)], result)
    return rewriting.finish()


def weights_behind_casts(model: onnx.ModelProto, values: Values) -> onnx.ModelProto:
    """Weights stored in float16, each widened by a Cast."""
    rewriting = _Rewriting(model)
    for tensor in list(rewriting.graph.initializer):
        if tensor.data_type == TensorProto.FLOAT:
            half = rewriting.store(f"{tensor.name}_half", rewriting.weights[tensor.name].astype(np.float16))
            rewriting.node("Cast", [half], tensor.name, to=TensorProto.FLOAT)
    rewriting.nodes += rewriting.before
    return rewriting.finish()


def half(model: onnx.ModelProto, values: Values) -> onnx.ModelProto:
    """Float16 throughout, float32 at the model's inputs and outputs, as converters write it."""
    rewriting = _Rewriting(model)
    inside = {}
    for value in rewriting.graph.input:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            inside[value.name] = f"{value.name}_half"
            rewriting.node("Cast", [value.name], inside[value.name], to=TensorProto.FLOAT16)
    scales = {name for node in rewriting.before if node.op_type == "Resize" for name in node.input[1:3]}
    for tensor in list(rewriting.graph.initializer):
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in scales:
            inside[tensor.name] = f"{tensor.name}_half"
            rewriting.store(inside[tensor.name], _halved(rewriting.weights[tensor.name]))
    outputs = {v.name for v in rewriting.graph.output if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    inside.update({name: f"{name}_half" for name in outputs})
    for node in rewriting.before:
        for names in (node.input, node.output):
            renamed = [inside.get(name, name) for name in names]
            del names[:]
            names.extend(renamed)
        if not set(node.output) & scales:
            _halve_attributes(node)
        rewriting.nodes.append(node)
    for name in sorted(outputs):
        rewriting.node("Cast", [inside[name]], name, to=TensorProto.FLOAT)
    return rewriting.finish()


def _halve_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
            attribute.i = TensorProto.FLOAT16
        if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == TensorProto.FLOAT:
            attribute.t.CopyFrom(numpy_helper.from_array(_halved(numpy_helper.to_array(attribute.t))))


def _halved(data: np.ndarray) -> np.ndarray:
    """Rounded to float16, what is beyond its range at the end of it."""
    limit = float(np.finfo(np.float16).max)
    return np.clip(data, -limit, limit).astype(np.float16)
