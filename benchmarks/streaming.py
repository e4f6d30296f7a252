"""How fast products of one row read weights as they are stored, beside the fastest reading of as many bytes.

    python benchmarks/streaming.py [--megabytes 12,96] [--shape 2048,2048] [FORM ...]

A model multiplies one row with several matrices, in one thread; the bytes are those of the library's weights.
Reading (streaming.c) adds up as much memory, by turns with the runs. Forms: f32, f16, bf16, and codes in
blocks of 32 with the accuracy_level behind their bits: int8-4, int4-4, int4-0.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from timing import least

import onnxc
from onnxc.codegen.library.compiler import find_compiler

FORMS = "f32 f16 bf16 int8-4 int8-0 int4-4 int4-0"
FLOATS = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
BITS = {"f32": 32, "f16": 16, "bf16": 16, "int8": 9, "int4": 5}  # of a weight with its share of a scale
SECONDS = 0.5  # of a case


def model_of(form: str, depth: int, columns: int, matrices: int) -> ModelProto:
    random, nodes, constants = np.random.default_rng(0), [], []
    for k in range(matrices):
        made, inputs = product(form, depth, columns, k, random)
        nodes += made
        constants += inputs
    row = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, depth])
    results = [
        helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, [1, columns]) for k in range(matrices)
    ]
    graph = helper.make_graph(nodes, "g", [row], results, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def product(
    form: str, depth: int, columns: int, k: int, random: np.random.Generator
) -> tuple[list[NodeProto], list[TensorProto]]:
    """(its nodes, their constants)"""
    if form in FLOATS:
        numbers = random.standard_normal((depth, columns), np.float32)
        stored = helper.make_tensor(f"w{k}", FLOATS[form], numbers.shape, numbers.reshape(-1))
        cast = helper.make_node("Cast", [f"w{k}"], [f"c{k}"], to=TensorProto.FLOAT)
        return [cast, helper.make_node("MatMul", ["x", f"c{k}"], [f"y{k}"])], [stored]
    bits, level = (int(number) for number in form.removeprefix("int").split("-"))
    codes = random.integers(0, 256, (columns, depth // 32, 4 * bits), np.uint8)
    scales = random.random(columns * depth // 32, np.float32)
    node = helper.make_node(
        "MatMulNBits",
        ["x", f"w{k}", f"s{k}"],
        [f"y{k}"],
        domain="com.microsoft",
        **{"K": depth, "N": columns, "bits": bits, "block_size": 32, "accuracy_level": level},
    )
    return [node], [numpy_helper.from_array(codes, f"w{k}"), numpy_helper.from_array(scales, f"s{k}")]


def reader(folder: Path) -> Callable[[int], Callable[[], float]]:
    """reader(bytes)() is the seconds of the fastest of some readings."""
    library, source = folder / "streaming.so", Path(__file__).with_suffix(".c")
    flags = ["-O3", "-march=native", "-Wno-psabi", "-shared", "-fPIC"]
    subprocess.run([*find_compiler(), *flags, str(source), "-o", str(library)], check=True)
    reading = ctypes.CDLL(str(library)).fastest_reading
    reading.restype = ctypes.c_double

    def of(nbytes: int) -> Callable[[], float]:
        memory = np.ones(nbytes // 4 + 32, np.float32)
        at = -memory.ctypes.data % 64
        result = np.zeros(32, np.float32)
        place = result.ctypes.data + -result.ctypes.data % 64
        arguments = ctypes.c_void_p(memory.ctypes.data + at), ctypes.c_int64(nbytes)
        return lambda kept=(memory, result): reading(*arguments, ctypes.c_int64(3), ctypes.c_void_p(place))

    return of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("forms", nargs="*", metavar="FORM", default=FORMS.split())
    parser.add_argument("--megabytes", default="12,96")
    parser.add_argument("--shape", default="2048,2048", help="rows and columns of a matrix")
    options = parser.parse_args()
    depth, columns = map(int, options.shape.split(","))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        read = reader(folder)
        print("form      MB   products us   GB/s   reading GB/s   share")
        for megabytes in map(float, options.megabytes.split(",")):
            for form in options.forms:
                each = depth * columns * BITS[form.split("-")[0]] / 8e6
                matrices = max(1, round(megabytes / each))
                path = onnxc.compile(
                    model_of(form, depth, columns, matrices), folder / f"{form}-{matrices}.so"
                )
                model = onnxc.load(path, threads=1)
                run, nbytes = model.bind(), model.description["weights_bytes"]
                run.inputs["x"][...] = np.random.default_rng(0).standard_normal((1, depth))
                ours, theirs = float("inf"), float("inf")
                reading = read(nbytes)
                end = time.perf_counter() + SECONDS
                while time.perf_counter() < end:
                    ours, theirs = min(ours, least(run, 6) / 1e9), min(theirs, reading())
                print(
                    f"{form:7} {nbytes / 1e6:5.1f} {ours * 1e6:13.1f} {nbytes / ours / 1e9:6.1f} "
                    f"{nbytes / theirs / 1e9:14.1f} {theirs / ours:7.0%}"
                )


if __name__ == "__main__":
    main()
