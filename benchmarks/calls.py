"""What a call costs: `python benchmarks/calls.py [MODEL.onnx ...]`.

Of static models, in one thread and nanoseconds, the fastest of many calls: seen from C, from Python as
`bound()`, `run(out=)` and `run()`, and what its steps take by themselves. Without models: chains of products
of 4x4, which are nodes that take less than a call does.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx
from clock import c_clock
from onnx import TensorProto, helper, numpy_helper
from timing import least

import onnxc
from onnxc.inputs import make_inputs

TIMES = 20_000
CHAINS = (1, 20)


def chain(length: int) -> onnx.ModelProto:
    """y = x w w w ..., a node for each product."""
    w = numpy_helper.from_array(np.full((4, 4), 0.25, np.float32), "w")
    nodes = [
        helper.make_node("MatMul", [f"x{k}" if k else "x", "w"], [f"x{k + 1}" if k < length - 1 else "y"])
        for k in range(length)
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--times", type=int, default=TIMES, help=f"calls of each kind ({TIMES})")
    options = parser.parse_args()
    models: list[tuple[str, object]] = [(path.stem, path) for path in options.models]
    models = models or [(f"{length} products", chain(length)) for length in CHAINS]
    print(f"{'':20}{'nodes':>6}{'steps':>9}{'C':>9}{'bound()':>9}{'run(out)':>9}{'run()':>9}")
    with tempfile.TemporaryDirectory(prefix="onnxc-calls-") as folder:
        clock = c_clock(Path(folder))
        for number, (name, proto) in enumerate(models):
            library = onnxc.compile(proto, Path(folder) / f"{number}.so", threads=1)
            model = onnxc.load(library)
            feeds = make_inputs(model.inputs).feeds
            bound = model.bind()
            for key, array in bound.inputs.items():
                array[...] = feeds[key]
            bound()
            out = {key: np.empty_like(array) for key, array in bound.outputs.items()}
            steps = model.profile(feeds, options.times // 10)
            times = (
                sum(step.ns for step in steps),
                clock(bound._context, options.times),
                least(bound, options.times),
                least(lambda: model.run(None, feeds, out), options.times),  # noqa: B023, called here
                least(lambda: model.run(None, feeds), options.times),  # noqa: B023
            )
            print(f"{name:20}{len(steps):6}" + "".join(f"{t:9.0f}" for t in times))


if __name__ == "__main__":
    main()
