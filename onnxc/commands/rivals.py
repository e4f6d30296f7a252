"""The engines that `onnxc bench --against` runs beside a compiled model, each in float32.

ONNX Runtime and OpenVINO run in this process, once they have run in a copy of it: some models end the process
that OpenVINO compiles them in. ncnn and MNN convert a model first, and run in a process of
their own (`rival_process.py`), by the Python of the environment that has them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import CompileError, one_line
from .comparison import for_onnxruntime, for_session
from .measure import Engine

RIVALS = ("onnxruntime", "openvino", "ncnn", "mnn")
#: Those that run elsewhere: the variable that names their Python, and what to install there.
ELSEWHERE = {"ncnn": ("ONNXC_NCNN_PYTHON", "ncnn pnnx"), "mnn": ("ONNXC_MNN_PYTHON", "MNN")}


def rival(
    name: str, model: str | os.PathLike, feeds: Mapping[str, Any], threads: int, static: bool = False
) -> Engine:
    """A rival ready to run the model on feeds. static: the compiled model has these shapes fixed, so
    the rival may too; those that convert a model always have them. Raises CompileError when it cannot run the
    model, and where it is not installed, with a remedy."""
    if name in ELSEWHERE:
        return _Elsewhere(name, os.fspath(model), feeds, threads).engine
    make = {"onnxruntime": _onnxruntime, "openvino": _openvino}[name]

    def prepared() -> Callable[[], Sequence]:
        run = make(os.fspath(model), feeds, threads, static)
        run()
        return run

    return Engine(name, _made(name, prepared))


T = TypeVar("T")

PATIENCE = 30.0  # seconds for a copy of this process to make a rival in


def _made(name: str, make: Callable[[], T]) -> T:
    """What a rival makes of a model; CompileError where it cannot."""
    if (number := _ending(make)) is not None:
        what = f"it ends its process by {signal.Signals(number).name}"
        raise CompileError(f"'{name}' cannot run the model: {what}")
    try:
        return make()
    except ImportError as error:
        raise CompileError(f"'{name}' cannot be imported: {error}", "pip install 'onnxc[bench]'") from None
    except Exception as error:  # whatever the rival raises
        raise CompileError(f"'{name}' cannot run the model: {one_line(str(error), 300)}") from None


def _ending(make: Callable[[], object]) -> int | None:
    """The signal by which it ends a copy of this process, None where it does not. A copy has one thread:
    where it waits for others, or takes longer than PATIENCE, it tells nothing."""
    process = os.fork()
    if not process:
        try:
            make()
        finally:
            os._exit(0)
    deadline = time.monotonic() + PATIENCE
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return None
        time.sleep(0.005)
    status = os.waitstatus_to_exitcode(ended[1])
    return -status if status < 0 else None


def _onnxruntime(model: str, feeds: Mapping[str, Any], threads: int, static: bool) -> Callable[[], Sequence]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4
    cpu, source = ["CPUExecutionProvider"], for_session(model)
    if static:
        for entry in onnxruntime.InferenceSession(source, options, providers=cpu).get_inputs():
            for symbol, size in zip(entry.shape, getattr(feeds.get(entry.name), "shape", ())):
                if isinstance(symbol, str):
                    options.add_free_dimension_override_by_name(symbol, size)
    session = onnxruntime.InferenceSession(source, options, providers=cpu)
    given = {
        entry.name: for_onnxruntime(feeds[entry.name], entry.type)
        for entry in session.get_inputs()
        if entry.name in feeds
    }
    return lambda: session.run(None, given)


def _openvino(model: str, feeds: Mapping[str, Any], threads: int, static: bool) -> Callable[[], Sequence]:
    request = _openvino_compiled(model, feeds, 1, threads, static).create_infer_request()
    given = dict(feeds)

    def run() -> Sequence:
        results = request.infer(given, share_inputs=True, share_outputs=True)
        return [results[k] for k in range(len(results))]

    return run


def _openvino_compiled(model: str, feeds: Mapping[str, Any], streams: int, threads: int, static: bool) -> Any:
    import openvino

    core = openvino.Core()
    read = core.read_model(model)
    if static:
        read.reshape(
            {port: list(feeds[port.any_name].shape) for port in read.inputs if port.any_name in feeds}
        )
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": streams * threads}
    return core.compile_model(read, "CPU", settings | {"NUM_STREAMS": streams})


def openvino_streams(
    model: str | os.PathLike, feeds: Mapping[str, Any], streams: int, threads: int, static: bool
) -> Callable[[float], tuple[int, float]]:
    """Keeps OpenVINO busy with that many streams for some seconds: runs done, and the seconds they took. As
    many requests are under way as it finds best for its streams."""

    def make() -> Any:
        import openvino

        queue = openvino.AsyncInferQueue(
            _openvino_compiled(os.fspath(model), feeds, streams, threads, static)
        )
        queue.start_async(dict(feeds), share_inputs=True)
        queue.wait_all()
        return queue

    queue, given = _made("openvino", make), dict(feeds)

    def busy(seconds: float) -> tuple[int, float]:
        began, done = time.perf_counter(), 0
        while time.perf_counter() < began + seconds:
            queue.start_async(given, share_inputs=True)  # waits until a request is idle
            done += 1
        queue.wait_all()
        return done, time.perf_counter() - began

    return busy


# In a process of their own -----------------------------------------------------------------------


class _Elsewhere:
    """A rival behind pipes; it ends with its engine."""

    def __init__(self, name: str, model: str, feeds: Mapping[str, Any], threads: int):
        self.name = name
        variable, packages = ELSEWHERE[name]
        python = os.environ.get(variable, sys.executable)
        self.remedy = f"'{python} -m pip install {packages}', or name another Python by {variable}"
        arrays = {key: value for key, value in feeds.items() if isinstance(value, np.ndarray)}
        if len(arrays) < len(feeds):
            raise CompileError(f"'{name}' cannot run the model: it has inputs that are no tensors")
        folder = tempfile.TemporaryDirectory(prefix="onnxc-rival-")
        place = Path(folder.name)
        fixed, inputs, outputs = place / "model.onnx", place / "inputs.npz", place / "outputs.npz"
        names = save_with_sizes(model, arrays, fixed)
        given: dict[str, Any] = {key: arrays[key] for key in names if key in arrays}
        np.savez(inputs, **given)
        program = Path(__file__).with_name("rival_process.py")
        try:
            self.process = subprocess.Popen(
                [python, "-I", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
            )
        except OSError as error:
            raise CompileError(f"'{name}' cannot be started: {error}", self.remedy) from None
        ends = weakref.finalize(self, _end, self.process, folder)
        try:
            request = {"model": fixed, "inputs": inputs, "outputs": outputs}
            self.ask(rival=name, threads=threads, **{key: str(path) for key, path in request.items()})
            found = dict(np.load(outputs))
        except CompileError:
            ends()
            raise
        values = [found.get(key, value) for key, value in zip(output_names(model), found.values())]
        self.engine = Engine(name, lambda: values, elsewhere=self.timed)

    def timed(self, runs: int) -> list[float]:
        return self.ask(runs=runs)["seconds"]

    def ask(self, **request: object) -> dict[str, Any]:
        """The answer to a request."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # there is no answer then
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "its process ended"}
        if answer.get("kind") == "import":
            raise CompileError(f"'{self.name}' cannot be imported: {answer['error']}", self.remedy)
        if "error" in answer:
            raise CompileError(f"'{self.name}' cannot run the model: {one_line(answer['error'], 300)}")
        return answer


def _end(process: subprocess.Popen, folder: tempfile.TemporaryDirectory) -> None:
    process.kill()
    process.communicate()
    folder.cleanup()


def save_with_sizes(model: str, arrays: Mapping[str, np.ndarray], to: Path) -> list[str]:
    """Writes the model with its inputs' sizes fixed to those of the arrays; the names of its inputs."""
    import onnx

    from ..frontend.model_file import open_model
    from ..frontend.tensors import whole
    from ..frontend.walk import initializers

    try:
        proto = whole(open_model(model))
        graph = proto.graph
        stored = initializers(graph)
        inputs = [entry for entry in graph.input if entry.name not in stored]
        for entry in inputs:
            shape = arrays[entry.name].shape if entry.name in arrays else ()
            for dim, size in zip(entry.type.tensor_type.shape.dim, shape):
                dim.dim_value = size
        for output in graph.output:
            output.type.tensor_type.ClearField("shape")
        del graph.input[:], graph.value_info[:]
        graph.input.extend(inputs)
        onnx.save(onnx.shape_inference.infer_shapes(proto, data_prop=True), to)
    except Exception as error:  # more than 2 GB, or what inference finds wrong
        raise CompileError(f"its sizes cannot be fixed: {one_line(str(error), 300)}") from None
    return [entry.name for entry in inputs]


def output_names(model: str) -> list[str]:
    import onnx

    return [output.name for output in onnx.load(model, load_external_data=False).graph.output]
