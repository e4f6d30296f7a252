"""Latency of a compiled library beside OpenVINO with settings of its own, by turns, one thread.

    python benchmarks/openvino_settings.py LIBRARY MODEL.onnx [--dim seq=128] [--set NAME=VALUE] [--seconds 5]

`onnxc bench` asks OpenVINO for float32. Here it computes as it likes (in bfloat16, where the processor
multiplies that), but for what is set: with DYNAMIC_QUANTIZATION_GROUP_SIZE=0 it rounds no rows to 8 bits
where weights are narrow. Inputs are ones where they are integers, else normally distributed.
"""

from __future__ import annotations

import argparse

import numpy as np
import openvino
from timing import by_turns

import onnxc


def pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


def feeds_of(model: onnxc.Model, sizes: dict[str, str]) -> dict[str, np.ndarray]:
    rng, feeds = np.random.default_rng(0), {}
    for port in model.inputs:
        shape = [size if isinstance(size, int) else int(sizes.get(str(size), 1)) for size in port.shape]
        whole = np.issubdtype(port.dtype, np.integer)
        feeds[port.name] = (np.ones(shape) if whole else rng.standard_normal(shape)).astype(port.dtype)
    return feeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("model")
    parser.add_argument("--dim", action="append", default=[], type=pair, metavar="NAME=N")
    parser.add_argument("--set", action="append", default=[], type=pair, metavar="NAME=VALUE")
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    model = onnxc.load(arguments.library, threads=1)
    feeds = feeds_of(model, dict(arguments.dim))
    settings = {"INFERENCE_NUM_THREADS": "1", **dict(arguments.set)}
    rival = openvino.Core().compile_model(arguments.model, "CPU", settings)
    request = rival.create_infer_request()
    calls = [lambda: model.run(None, feeds), lambda: request.infer(feeds)]
    times = by_turns(calls, seconds=arguments.seconds * 2) / 1e6
    for name, found in zip(("onnxc", "openvino"), times, strict=True):
        print(f"{name:10} median {np.median(found):8.2f} ms  min {found.min():8.2f} ms  {len(found)} runs")
    print(f"openvino computes in {rival.get_property('INFERENCE_PRECISION_HINT').get_type_name()}")


if __name__ == "__main__":
    main()
