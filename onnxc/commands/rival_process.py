"""The program in which ncnn or MNN runs a model, by the Python of an environment that has them: nothing of
onnxc is imported here. It reads requests as JSON, one a line, and answers each with a line:

    {"rival", "model", "inputs", "outputs", "threads"}  →  {}, after one run whose results are in `outputs`
    {"runs": n}                                         →  {"seconds": [...]}, what each of n runs took
    what fails                                          →  {"error": ...}

`model` is an ONNX file whose sizes are fixed, `inputs` an .npz of its inputs by name.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def ncnn_runner(model: str, feeds: dict[str, Any], threads: int) -> Callable[[], list]:
    """Converted by pnnx; images and sequences of a batch of one, in float32."""
    import ncnn

    folder = Path(model).parent
    shapes = [f"[{','.join(map(str, v.shape))}]{PNNX_TYPES[v.dtype.name]}" for v in feeds.values()]
    files = {f"{kind}{suffix}": folder / f"{kind}.{suffix}" for kind, suffix in PNNX_FILES}
    places = [f"{option}={path}" for option, path in files.items()]
    converted = subprocess.run(
        [_pnnx(), model, f"inputshape={','.join(shapes)}", "fp16=0", *places],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    param, weights = files["ncnnparam"], files["ncnnbin"]
    if not param.exists() or not weights.exists():
        last = (converted.stdout.strip() or f"status {converted.returncode}").splitlines()[-1]
        raise ValueError(f"pnnx cannot convert it: {last}")
    left = [
        line.split()[0]
        for line in param.read_text(encoding="utf-8").splitlines()[2:]
        if "." in line.split()[0]
    ]
    if left:
        raise ValueError(f"pnnx finds no layers of ncnn for {', '.join(sorted(set(left)))}")
    net = ncnn.Net()
    for name in dir(net.opt):
        if name.startswith(("use_fp16", "use_bf16", "use_int8")):
            setattr(net.opt, name, False)
    net.opt.num_threads = threads
    pools = ncnn.UnlockedPoolAllocator(), ncnn.PoolAllocator()  # the net does not keep them
    net.opt.blob_allocator, net.opt.workspace_allocator = pools
    if net.load_param(str(param)) or net.load_model(str(weights)):
        raise ValueError("ncnn cannot load what pnnx made of it")
    inputs, outputs = (sorted(names, key=_numbered) for names in (net.input_names(), net.output_names()))
    # A batch of one is no axis of a Mat, which keeps the array's memory.
    arrays = [v[0] if v.ndim > 1 and v.shape[0] == 1 else v for v in feeds.values()]
    mats = [ncnn.Mat(array.astype("int32") if array.dtype.kind == "i" else array) for array in arrays]

    def run(_kept: object = pools) -> list:
        extractor = net.create_extractor()
        for name, mat in zip(inputs, mats):
            if extractor.input(name, mat):
                raise ValueError(f"ncnn does not take the input {name}")
        found = []
        for name in outputs:
            failed, mat = extractor.extract(name)
            if failed:
                raise ValueError(f"ncnn cannot compute the output {name}")
            found.append(mat)
        return found

    return run


PNNX_TYPES = {"float32": "f32", "int64": "i64", "int32": "i32", "bool": "bool", "uint8": "u8"}
PNNX_FILES = [
    (kind, suffix)
    for kind, suffixes in (("ncnn", ("param", "bin", "py")), ("pnnx", ("param", "bin", "py", "onnx")))
    for suffix in suffixes
]


def _pnnx() -> str:
    """The converter beside its module, which would import torch."""
    from importlib.util import find_spec

    found = find_spec("pnnx")
    if found is None or not found.origin:
        raise ImportError("No module named 'pnnx'")
    return os.path.join(os.path.dirname(found.origin), "pnnx")


def _numbered(name: str) -> int:
    """in0, in1, ..., in10 in that order."""
    return int("".join(c for c in name if c.isdigit()) or 0)


def mnn_runner(model: str, feeds: dict[str, Any], threads: int) -> Callable[[], dict[str, Any]]:
    """Converted by the function behind MNN's command, which itself calls pip and reports what it did."""
    import _tools
    import MNN
    import numpy

    converted = str(Path(model).with_suffix(".mnn"))
    _tools.mnnconvert(
        ["mnnconvert", "-f", "ONNX", "--modelFile", model, "--MNNModel", converted, "--bizCode", "MNN"]
    )
    if not os.path.exists(converted):
        raise ValueError("MNN cannot convert it")
    interpreter = MNN.Interpreter(converted)
    session = interpreter.createSession({"precision": "high", "numThread": threads, "backend": "CPU"})
    tensors = interpreter.getSessionInputAll(session)
    outputs = interpreter.getSessionOutputAll(session)
    kinds = {"float32": MNN.Halide_Type_Float, "int32": MNN.Halide_Type_Int, "int64": MNN.Halide_Type_Int}
    given = []
    for name, array in feeds.items():
        if name not in tensors:
            raise ValueError(f"MNN's model has no input '{name}'")
        kind = kinds[array.dtype.name]
        array = array.astype("int32") if array.dtype.name == "int64" else array
        given.append((tensors[name], MNN.Tensor(array.shape, kind, array, MNN.Tensor_DimensionType_Caffe)))

    def run() -> dict[str, Any]:
        for tensor, array in given:
            tensor.copyFrom(array)
        interpreter.runSession(session)
        found = {}
        for name, tensor in outputs.items():
            shape, kind = tensor.getShape(), tensor.getDataType()
            dtype = "float32" if kind == MNN.Halide_Type_Float else "int32"
            host = MNN.Tensor(shape, kind, numpy.zeros(shape, dtype), MNN.Tensor_DimensionType_Caffe)
            tensor.copyToHostTensor(host)
            found[name] = host.getNumpyData().copy()  # it is the tensor's memory
        return found

    return run


RUNNERS: dict[str, Callable] = {"ncnn": ncnn_runner, "mnn": mnn_runner}


def serve(requests: Iterable[str], answer: Callable[[dict], None]) -> None:
    import numpy

    def run() -> Any:
        raise ValueError("no rival was named")

    for line in requests:
        request = json.loads(line)
        try:
            if "rival" in request:
                feeds = dict(numpy.load(request["inputs"]))
                run = RUNNERS[request["rival"]](request["model"], feeds, request["threads"])
                results = run()
                if not isinstance(results, dict):
                    results = {str(number): value for number, value in enumerate(results)}
                arrays: dict[str, Any] = {name: numpy.array(value) for name, value in results.items()}
                numpy.savez(request["outputs"], **arrays)
                answer({})
                continue
            seconds = []
            for _ in range(request["runs"]):
                began = time.perf_counter()
                run()
                seconds.append(time.perf_counter() - began)
            answer({"seconds": seconds})
        except Exception as error:
            kind = "import" if isinstance(error, ImportError) else "run"
            answer({"error": str(error) or type(error).__name__, "kind": kind})


def main() -> None:
    """Answers go where standard output went; what libraries print goes nowhere."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)

    def answer(value: dict) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    with tempfile.TemporaryDirectory() as folder:  # for whatever they write where they run
        os.chdir(folder)
        serve(sys.stdin, answer)
        os.chdir("/")


if __name__ == "__main__":
    main()
