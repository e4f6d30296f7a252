"""Speed of tree ensembles against ONNX Runtime, one thread each, in one process.

    python benchmarks/trees.py [--target x86-64-v3] [TREES,LEAVES,DEPTH,CLASSES ...]

Trees of LEAVES leaves, none deeper than DEPTH (random_trees.py); leaves have a weight for each class. `C`:
what a C program sees of a run, `Python`: of a bound one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from clock import c_clock
from onnx import ModelProto, TensorProto, helper
from random_trees import FEATURES, ensemble
from timing import least

import onnxc

CASES = "100,1024,10,3 100,200,10,3 1000,64,6,1 1000,31,12,1 600,31,12,1"
ROWS = 10_000


def model_of(trees: int, leaves: int, depth: int, classes: int, rows: int) -> ModelProto:
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        n_targets=classes,
        **ensemble(trees, leaves, depth, classes),
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, FEATURES])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, classes])
    graph = helper.make_graph([node], "trees", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def rival(model: ModelProto, x: np.ndarray) -> Callable[[], list]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=CASES.split())
    parser.add_argument("--target", default="native")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="onnxc-trees-") as folder:
        clock = c_clock(Path(folder))
        print("trees,leaves,depth,classes    rows        C us   Python us  onnxruntime us   times as fast")
        for case in options.cases:
            numbers = [int(n) for n in case.split(",")]
            for rows in (1, ROWS):
                model = model_of(*numbers, rows)
                x = np.random.default_rng(1).standard_normal((rows, FEATURES)).astype(np.float32)
                path = Path(folder) / f"{case}-{rows}.so"
                onnxc.compile(model, path, target=options.target)
                bound = onnxc.load(path, threads=1).bind()
                bound.inputs["x"][...] = x
                theirs, times = rival(model, x), 2000 if rows == 1 else 10
                bound()
                np.testing.assert_allclose(bound.outputs["y"], theirs()[0], rtol=1e-3, atol=1e-3)
                c = clock(bound._context, times) / 1e3
                python, other = least(bound, times) / 1e3, least(theirs, times) / 1e3
                print(f"{case:27} {rows:6} {c:11.2f} {python:11.2f} {other:15.2f} {other / c:15.1f}")


if __name__ == "__main__":
    main()
