"""Speed of convolutions and pools against ONNX Runtime, one thread each, alternating.

    python benchmarks/conv.py [--target x86-64-v3] [--rounds 150] [WORD ...]

Layers are written as in a table of a network; those whose text holds one of the words run. Our
kernels read and write their own layouts, as they do inside a model, and so do the rival's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from timing import by_turns

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import KERNELS, loop_nest
from onnxc.ir.expr import input_
from onnxc.ir.graph import TensorType, Value, constant_value, make_node
from onnxc.ir.ops import Conv
from onnxc.target import find_target

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import harness
from support.blocked_cases import laid_out

#: kernel, input channels → output channels @ size of the input, stride s, groups g; dw: depthwise.
LAYERS = """
3x3 64→64@56       3x3 128→128@28     3x3 256→256@14     3x3 512→512@7      1x1 64→256@56
1x1 256→64@56      1x1 1024→256@14    1x1 512→2048@7     1x1 s2 256→512@56  3x3 s2 128→128@56
3x3 s2 512→512@14  7x7 s2 3→64@224    3x3 s2 3→32@224    3x3 s2 3→16@640    dw 3x3 32@112
dw 3x3 s2 96@112   dw 3x3 144@56      dw 3x3 384@14      dw 3x3 960@7       dw 5x5 240@14
1x1 16→96@112      1x1 144→24@56      1x1 320→1280@7     3x3 96→24@160      3x3 g32 128→128@56
1x1 g4 272→272@14  5x5 g2 96→256@27  3x3 g4 96→96@56     3x3 g8 192→192@28   3x3 g8 320→320@28
3x3 g4 192→192@28  3x3 g4 256→256@14  3x3 64→64@160       3x3 32→32@80        3x3 256→256@60
"""
BLOCK = 3e5  # nanoseconds of a turn
PATTERN = re.compile(r"(dw )?(\d+)x\d+ (?:s(\d+) )?(?:g(\d+) )?(\d+)(?:→(\d+))?@(\d+)")


@dataclass(frozen=True)
class Layer:
    text: str
    kernel: int
    stride: int
    groups: int
    channels: int
    outputs: int
    size: int

    @property
    def operations(self) -> int:
        side = (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1
        return 2 * self.kernel**2 * self.channels // self.groups * self.outputs * side**2


def layers(text: str) -> list[Layer]:
    found = []
    for match in PATTERN.finditer(text):
        depthwise, kernel, stride, groups, channels, outputs, size = match.groups()
        count = int(channels)
        groups = count if depthwise else int(groups or 1)
        found.append(
            Layer(match[0], int(kernel), int(stride or 1), groups, count, int(outputs or channels), int(size))
        )
    return found


def arrays(layer: Layer) -> list[np.ndarray]:
    """Image, weights and bias."""
    rng, inside = np.random.default_rng(0), layer.channels // layer.groups
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    w = rng.standard_normal((layer.outputs, inside, layer.kernel, layer.kernel), np.float32)
    return [
        x,
        w / np.float32((inside * layer.kernel**2) ** 0.5),
        rng.standard_normal(layer.outputs, np.float32),
    ]


def ours(layer: Layer, target) -> tuple[Callable[[], None], Callable[[], np.ndarray], str]:
    """(a call that runs the layer, a call that gives its result, the kernel's choice)"""
    x, w, b = arrays(layer)
    pad = (layer.kernel // 2,) * 4
    body = (input_(0, "float32") + input_(1, "float32")).maximum(0.0)
    op = Conv((layer.stride,) * 2, pad, (1, 1), layer.groups, epilogue=body)
    image = Value(TensorType("float32", x.shape), "x")
    node = make_node(op, [image, constant_value(w), constant_value(b.reshape(-1, 1, 1))])
    fast = [c for kernel in KERNELS if kernel is not loop_nest for c in choices_of(kernel, node, target)]
    choice = min(fast, key=lambda c: c.time)
    prepared = harness.Prepared(laid_out(node, choice), choice, [x, w, b.reshape(-1, 1, 1)], target)
    return prepared.run, lambda: prepared.results()[0][0], str(choice)


def rival(layer: Layer) -> tuple[Callable[[], None], Callable[[], np.ndarray]]:
    x, w, b = arrays(layer)
    conv = helper.make_node(
        "Conv",
        ["x", "w", "b"],
        ["c"],
        strides=[layer.stride] * 2,
        pads=[layer.kernel // 2] * 4,
        group=layer.groups,
    )
    graph = helper.make_graph(
        [conv, helper.make_node("Relu", ["c"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x}), lambda: session.run(None, {"x": x})[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", help="run the layers whose text holds one of these")
    parser.add_argument("--target", default="native")
    parser.add_argument("--rounds", type=int, default=150)
    options = parser.parse_args()
    target, harness.optimised_of = find_target(options.target), 1
    print(f"{'layer':20} {'onnxc µs':>9} {'GF/s':>6} {'ort µs':>9} {'GF/s':>6} {'ort/onnxc':>9}  kernel")
    for layer in layers(LAYERS):
        if options.words and not any(word in layer.text for word in options.words):
            continue
        run, result, choice = ours(layer, target)
        other, expected = rival(layer)
        run()
        worst = float(np.max(np.abs(result() - expected())))
        if worst > 1e-3:
            raise SystemExit(f"{layer.text}: results differ by {worst}")
        a, b = by_turns([run, other], block=BLOCK, rounds=options.rounds).min(axis=1)
        first, second = (layer.operations / t for t in (a, b))
        print(
            f"{layer.text:20} {a / 1e3:9.1f} {first:6.1f} {b / 1e3:9.1f} {second:6.1f} {b / a:9.2f}"
            f"  {choice}",
            flush=True,
        )


if __name__ == "__main__":
    main()
