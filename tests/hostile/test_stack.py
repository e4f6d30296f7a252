"""A run gets by with the smallest stack that a thread can have, whatever its sizes and operands."""

import ctypes
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import faults
from support.handmade_models import cc
from support.small_models import parsed

import onnxc

SMALLEST = 16 << 10  # PTHREAD_STACK_MIN


@pytest.fixture(scope="module")
def stack_of_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("stack") / "stack.so"
    cc("-shared", "-fPIC", "-O1", "-pthread", Path(__file__).parents[1] / "support" / "stack.c", "-o", path)
    function = ctypes.CDLL(str(path)).stack_of_run
    function.restype = ctypes.c_long
    return function  # whose arguments are converted, as a context has them


def used(stack_of_run, model, feeds):
    context, lent = model.acquire(), []
    for target, port in zip(context.inputs, model.inputs):
        target.fill(feeds[port.name], lent)
    for struct, _ in context.outputs:
        struct.data = None
    bytes_used = stack_of_run(ctypes.cast(context.function, ctypes.c_void_p), *context.arguments)
    context.taken([None] * len(context.outputs))
    model.give_back(context)
    return bytes_used


@pytest.mark.parametrize("name", faults.MODELS)
def test_every_kind_of_model(stack_of_run, name, tmp_path):
    text, runs = faults.MODELS[name]
    with onnxc.load(onnxc.compile(parsed(text), tmp_path / "model.so"), threads=1) as model:
        for feeds in runs:
            assert 0 < used(stack_of_run, model, feeds) <= SMALLEST


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["Sum", "Concat", "SequenceConstruct"])
def test_thousands_of_operands(stack_of_run, operator, tmp_path):
    attributes = {"axis": 0} if operator == "Concat" else {}
    node = onnx.helper.make_node(operator, [f"x{k % 3}" for k in range(3000)], ["y"], **attributes)
    kinds = onnx.helper.make_tensor_value_info, onnx.helper.make_tensor_sequence_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [kinds[0](f"x{k}", onnx.TensorProto.FLOAT, ["N"]) for k in range(3)],
        [kinds[operator == "SequenceConstruct"]("y", onnx.TensorProto.FLOAT, ["M"])],
    )
    opset = [onnx.helper.make_opsetid("", 21)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=10)
    with onnxc.load(onnxc.compile(model, tmp_path / "model.so"), threads=1) as compiled:
        feeds = {f"x{k}": np.ones(2, np.float32) for k in range(3)}
        assert 0 < used(stack_of_run, compiled, feeds) <= SMALLEST
