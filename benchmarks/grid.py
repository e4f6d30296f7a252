"""The grid of calibrate.py: models of one layer each, of sizes that occur, built with onnx.helper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import trees
from onnx import TensorProto, helper, numpy_helper

Layer = tuple[str, onnx.ModelProto]


def models() -> Iterator[Layer]:
    for m, k, n in ((1, 768, 3072), (8, 768, 768), (128, 384, 1536), (128, 768, 768), (512, 64, 64)):
        yield layer(f"matmul {m}x{k}x{n}", "MatMul", [m, k], [(k, n)])
    yield layer("matmul of two inputs", "MatMul", [12, 128, 64], [], second=[12, 64, 128])
    for channels, size, kernel, stride in (
        (64, 56, 1, 1), (256, 14, 1, 1), (64, 56, 3, 1), (256, 14, 3, 1), (512, 7, 3, 1), (128, 28, 3, 2),
    ):  # fmt: skip
        yield conv(
            f"conv {channels}@{size} {kernel}x{kernel}/{stride}", channels, channels, size, kernel, stride
        )
    yield conv("conv 3@224 7x7/2", 3, 64, 224, 7, 2)
    yield conv("conv 3@224 3x3/2", 3, 32, 224, 3, 2)
    for channels, size, stride in ((96, 112, 2), (144, 56, 1), (960, 7, 1)):
        yield conv(f"depthwise {channels}@{size}/{stride}", channels, channels, size, 3, stride, channels)
    yield conv("grouped 240@28 in 3", 240, 240, 28, 1, 1, 3)
    image = [1, 64, 56, 56]
    yield layer("max pool", "MaxPool", image, [], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    yield layer("average pool", "GlobalAveragePool", [1, 512, 14, 14], [])
    for shape in ([128, 768], [64, 3072], [1, 1000]):
        yield layer(f"relu {shape}", "Relu", shape, [])
        yield layer(f"erf {shape}", "Erf", shape, [])
        yield layer(f"softmax {shape}", "Softmax", shape, [], axis=-1)
    yield layer("add", "Add", [1, 64, 112, 112], [], second=[1, 64, 112, 112])
    yield layer("layer norm", "LayerNormalization", [128, 768], [(768,), (768,)], axis=-1)
    yield layer("transpose", "Transpose", [12, 128, 64], [], perm=[1, 0, 2])
    yield layer("transpose of the last axes", "Transpose", [12, 128, 64], [], perm=[0, 2, 1])
    yield layer("reduce", "ReduceMean", [256, 1024], [np.array([1], np.int64)], keepdims=0)
    yield layer("reduce of the first axis", "ReduceMean", [256, 1024], [np.array([0], np.int64)], keepdims=0)
    yield layer("top 5", "TopK", [16, 1000], [np.array([5], np.int64)], outputs=2, axis=-1)
    yield layer("transposed conv", "ConvTranspose", [1, 64, 28, 28], [(64, 32, 2, 2)], strides=[2, 2])
    for shape in ((100, 200, 10, 3), (600, 31, 12, 1)):
        yield f"trees {shape}", trees.model_of(*shape, rows=1000)
    yield layer("lstm", "LSTM", [32, 1, 128], [(1, 512, 128), (1, 512, 128)], hidden_size=128)


def conv(
    name: str, channels: int, outputs: int, size: int, kernel: int, stride: int, groups: int = 1
) -> Layer:
    weights = (outputs, channels // groups, kernel, kernel)
    pads = [kernel // 2] * 4
    shape = [1, channels, size, size]
    return layer(name, "Conv", shape, [weights, (outputs,)], strides=[stride] * 2, pads=pads, group=groups)


def layer(
    name: str,
    op: str,
    shape: Sequence[int],
    constants: Sequence[tuple[int, ...] | np.ndarray],
    second: Sequence[int] | None = None,
    outputs: int = 1,
    **attributes: object,
) -> Layer:
    """A model of one operator; constants are arrays, or shapes of random ones."""
    random = np.random.default_rng(0)
    arrays = [c if isinstance(c, np.ndarray) else random.standard_normal(c, np.float32) for c in constants]
    initializers = [numpy_helper.from_array(array, f"c{k}") for k, array in enumerate(arrays)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    inputs += [helper.make_tensor_value_info("z", TensorProto.FLOAT, second)] if second else []
    names = [*(i.name for i in inputs), *(i.name for i in initializers)]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, name=name, **attributes)
    graph = helper.make_graph([node], "layer", inputs, [], initializers)
    graph.output.extend(helper.make_empty_tensor_value_info(result) for result in results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return name, onnx.shape_inference.infer_shapes(model)
