"""Models of one node, for tests: built from the arrays that it takes, run by the interpreter and
by the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph


def model(
    op: str,
    opset: int,
    inputs: Sequence[np.ndarray | None],
    attributes: Mapping[str, object],
    symbolic: bool = False,
    constants: bool = False,
    outputs: int = 1,
) -> onnx.ModelProto:
    """The node over inputs x0, x1, ... and an empty name for None. Its outputs are declared without
    types.

    symbolic: every size of the first input is a variable. constants: all inputs but the first
    are initializers."""
    given = [(f"x{k}", np.asarray(a)) for k, a in enumerate(inputs) if a is not None]
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], name="node", **attributes)
    declared, stored = [], []
    for name, array in given:
        if constants and name != "x0":
            stored.append(numpy_helper.from_array(array, name))
            continue
        shape = [f"d{k}" for k in range(array.ndim)] if symbolic and name == "x0" else array.shape
        declared.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)
        )
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = helper.make_graph([node], "one", declared, results, stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    proto.ir_version = 10
    return proto


def evaluate(proto: onnx.ModelProto, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The model's outputs by the interpreter of the core ops."""
    graph = import_model(proto).graph
    return run_graph(graph, [np.asarray(a) for a in inputs if a is not None])


def reference(proto: onnx.ModelProto, inputs: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """The model's outputs by the onnx package."""
    feeds = {f"x{k}": np.asarray(a) for k, a in enumerate(inputs) if a is not None}
    return ReferenceEvaluator(proto).run(None, feeds)
