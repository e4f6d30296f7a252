"""Speed of LSTM, GRU and RNN against ONNX Runtime, one thread each, alternating in one process.

    python benchmarks/recurrent.py [--target x86-64-v3] [KIND,HIDDEN,STEPS,BATCH[,DIRECTION] ...]

Whole models of one operator, as wide at the input as hidden. Both run on bound memory.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import ModelProto, TensorProto, helper, numpy_helper

import onnxc
from onnxc.commands.measure import Engine, measure

CASES = "lstm,128,1,1 lstm,128,100,1 lstm,256,50,8 lstm,100,50,1,bidirectional gru,128,100,1 rnn,128,100,1"
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def model_of(kind: str, hidden: int, steps: int, batch: int, direction: str) -> tuple[ModelProto, np.ndarray]:
    """(a model of one operator with random weights, its input)"""
    random, count, gates = (np.random.default_rng(0), 2 if direction == "bidirectional" else 1, GATES[kind])

    def weights(name: str, *shape: int) -> TensorProto:
        bound = hidden**-0.5
        return numpy_helper.from_array(random.uniform(-bound, bound, shape).astype(np.float32), name)

    node = helper.make_node(
        kind.upper(), ["x", "w", "r", "b"], ["y", "h"], hidden_size=hidden, direction=direction
    )
    shapes = {"x": (steps, batch, hidden), "y": (steps, count, batch, hidden), "h": (count, batch, hidden)}
    values = {k: helper.make_tensor_value_info(k, TensorProto.FLOAT, shape) for k, shape in shapes.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [values["x"]],
        [values["y"], values["h"]],
        [
            weights("w", count, gates * hidden, hidden),
            weights("r", count, gates * hidden, hidden),
            weights("b", count, 2 * gates * hidden),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model, random.standard_normal(shapes["x"]).astype(np.float32)


def ours(model: ModelProto, x: np.ndarray, target: str, folder: Path) -> tuple[Callable, Callable]:
    """(a run on bound memory, its results)"""
    path = onnxc.compile(model, folder / f"m{len(list(folder.iterdir()))}.so", target=target)
    bound = onnxc.load(path, threads=1).bind()
    bound.inputs["x"][...] = x
    return bound, lambda: [bound.outputs[name] for name in ("y", "h")]


def theirs(model: ModelProto, x: np.ndarray) -> tuple[Callable, Callable]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    outputs = [np.zeros(output.shape, np.float32) for output in session.get_outputs()]
    for output, memory in zip(session.get_outputs(), outputs):
        binding.bind_output(output.name, "cpu", 0, np.float32, memory.shape, memory.ctypes.data)
    return lambda: session.run_with_iobinding(binding), lambda: outputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES.split())
    parser.add_argument("--target", default="native")
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    print(f"{'kind,hidden,steps,batch':>32} {'onnxc':>10} {'ORT':>10} µs   ratio", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            kind, *numbers = case.split(",")
            direction = numbers.pop() if len(numbers) > 3 else "forward"
            model, x = model_of(kind, *map(int, numbers), direction)
            ran = [ours(model, x, options.target, Path(folder)), theirs(model, x)]
            engines = [Engine(name, run) for name, (run, _) in zip(("onnxc", "onnxruntime"), ran)]
            measure(engines, options.seconds)
            for got, expected in zip(*(results() for _, results in ran), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
            mine, other = (engine.minimum * 1e6 for engine in engines)
            print(f"{case:>32} {mine:10.1f} {other:10.1f}      {other / mine:6.2f}", flush=True)


if __name__ == "__main__":
    main()
