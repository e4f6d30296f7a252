"""Rivals of `onnxc bench` in a process of their own: what they are told, and what becomes of answers.

Neither ncnn nor MNN is there: a program that speaks as `rival_process.py` does stands for them.
"""

import os
import signal
import sys
import threading
import types

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.bad_models import download_cache
from support.few_nodes import with_sparse_default

from onnxc.commands import rival_process, rivals
from onnxc.commands.rivals import rival, save_with_sizes
from onnxc.errors import CompileError


@pytest.fixture
def model(tmp_path):
    """y = x + w, of a symbolic batch; w is also listed as an input."""
    shape = ["n", 3]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [3])
    stored = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x, w], [y], [stored])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Makes an engine's runner, source text, that of ncnn's environment."""

    def use(runner):
        program = tmp_path / "python"
        program.write_text(
            f"#!{sys.executable}\n"
            f"import sys; sys.path.insert(0, {os.path.dirname(rival_process.__file__)!r})\n"
            f"import rival_process\n{runner}\n"
            "rival_process.RUNNERS['ncnn'] = runner\n"
            "rival_process.main()\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("ONNXC_NCNN_PYTHON", str(program))

    return use


FEEDS = {"x": np.ones((2, 3), np.float32)}


def test_sizes_are_fixed_in_a_copy_and_weights_are_no_inputs(model, tmp_path):
    copy = tmp_path / "copy.onnx"
    assert save_with_sizes(str(model), FEEDS, copy) == ["x"]
    graph = onnx.load(copy).graph
    assert [entry.name for entry in graph.input] == ["x"]
    for value in (graph.input[0], graph.output[0]):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [2, 3]


def test_sparse_weights_are_no_inputs_either(tmp_path):
    model, copy = tmp_path / "m.onnx", tmp_path / "copy.onnx"
    onnx.save(with_sparse_default(), model)
    assert save_with_sizes(str(model), {}, copy) == ["x"]
    assert [entry.name for entry in onnx.load(copy).graph.input] == ["x"]


def test_a_copy_has_external_data_that_is_behind_links(tmp_path):
    copy = tmp_path / "copy.onnx"
    save_with_sizes(str(download_cache(tmp_path, bytes(12))), {}, copy)
    assert onnx.load(copy).graph.initializer[0].raw_data == bytes(8)


def test_a_rival_elsewhere_answers_with_results_and_seconds(model, python):
    python("def runner(model, feeds, threads): return lambda: [feeds['x'] + threads]")
    engine = rival("ncnn", model, FEEDS, 3)
    np.testing.assert_array_equal(engine.run()[0], FEEDS["x"] + 3)
    assert len(engine.timed(4)) == 4
    assert all(seconds > 0 for seconds in engine.timed(2))


@pytest.mark.parametrize(
    "runner, reason, remedy",
    [
        ("raise ValueError('no such\\nlayer')", "'ncnn' cannot run the model: no such layer", ""),
        ("import os; os._exit(1)", "'ncnn' cannot run the model: its process ended", ""),
        ("import no_such_module", "cannot be imported", "ONNXC_NCNN_PYTHON"),
    ],
)
def test_a_rival_that_cannot_run_a_model_says_why_in_a_sentence(model, python, runner, reason, remedy):
    python(f"def runner(model, feeds, threads):\n    {runner}")
    with pytest.raises(CompileError) as error:
        rival("ncnn", model, FEEDS, 1)
    assert reason in error.value.reason
    assert remedy in error.value.remedy
    assert "\n" not in str(error.value)


def test_a_rival_that_would_end_this_process_is_refused_in_a_sentence(model, monkeypatch):
    from onnxc.commands import rivals

    monkeypatch.setattr(rivals, "_openvino", lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
    with pytest.raises(CompileError, match="'openvino' cannot run the model: it ends its process by SIGSEGV"):
        rival("openvino", model, FEEDS, 1)


def test_ncnn_is_told_sizes_and_computes_in_float32(monkeypatch, tmp_path):
    """A batch of one is no axis; results come in the order of their numbers."""
    said = {}

    class Net:
        def __init__(self):
            names = ("use_fp16_storage", "use_bf16_storage", "use_int8_packed", "use_winograd_convolution")
            self.opt = types.SimpleNamespace(**dict.fromkeys(names, True))
            said["opt"] = self.opt

        def load_param(self, path):
            return 0

        load_model = load_param

        def input_names(self):
            return ["in0"]

        def output_names(self):
            return ["out10", "out2"]

        def create_extractor(self):
            return types.SimpleNamespace(
                input=lambda name, mat: said.update({name: mat}) or 0, extract=lambda name: (0, name)
            )

    def convert(command, **_):
        said["command"] = command
        for option in command[4:]:
            (tmp_path / option.partition("=")[2]).write_text("7767517\n1 1\nConvolution c 1 1 in0 out0\n")
        return types.SimpleNamespace(stdout="", returncode=0)

    pool = types.SimpleNamespace
    module = types.SimpleNamespace(Net=Net, Mat=lambda a: a, UnlockedPoolAllocator=pool, PoolAllocator=pool)
    monkeypatch.setitem(sys.modules, "ncnn", module)
    monkeypatch.setattr(rival_process, "_pnnx", lambda: "pnnx")
    monkeypatch.setattr(rival_process.subprocess, "run", convert)
    feeds = {"x": np.zeros((1, 3, 4, 4), np.float32)}
    run = rival_process.ncnn_runner(str(tmp_path / "m.onnx"), feeds, 2)
    assert run() == ["out2", "out10"]
    assert said["in0"].shape == (3, 4, 4)
    assert said["command"][2:4] == ["inputshape=[1,3,4,4]f32", "fp16=0"]
    on = {name for name, value in vars(said["opt"]).items() if value is True}
    assert on == {"use_winograd_convolution"}
    assert said["opt"].num_threads == 2


def test_bench_goes_on_without_a_rival_that_cannot_run_the_model(model, python, monkeypatch):
    from onnxc.commands import rivals
    from onnxc.commands.actions import _rivals

    monkeypatch.setattr(rivals, "_onnxruntime", lambda *_: lambda: [])
    python("def runner(model, feeds, threads): raise ValueError('no such layer')")
    options = types.SimpleNamespace(against=("onnxruntime", "ncnn"), threads=1, pin=False)
    inputs = types.SimpleNamespace(feeds=FEEDS)
    found, failures = _rivals(options, model, inputs)
    assert [engine.name for engine in found] == ["onnxruntime"]
    assert failures == {"ncnn": "'ncnn' cannot run the model: no such layer"}
    with pytest.raises(CompileError):
        options.against = ("ncnn",)
        _rivals(options, model, inputs)


def test_bench_does_not_time_a_rival_that_computes_nothing():
    from onnxc.commands.actions import _distances
    from onnxc.commands.measure import Engine

    model = types.SimpleNamespace(outputs=[types.SimpleNamespace(name="y")])
    ours, near, nothing = (
        Engine(name, lambda y=y: [y])
        for name, y in (("onnxc", np.ones(3)), ("ncnn", np.ones(3) + 0.5), ("mnn", np.ones((0, 0))))
    )
    options, failures = types.SimpleNamespace(against=("ncnn", "mnn")), {}
    assert _distances(options, ours, [near, nothing], model, failures) == {"ncnn": 0.5}
    assert failures == {"mnn": "'mnn' computes nothing for the output 'y'"}
    with pytest.raises(CompileError):
        options.against = ("mnn",)
        _distances(options, ours, [nothing], model, {})


def test_a_copy_that_never_ends_tells_nothing_and_is_not_left_behind(monkeypatch):
    """Forked beside another rival's threads, a copy may wait for a lock that nobody gives back."""
    killed, kill = [], os.kill
    monkeypatch.setattr(rivals, "PATIENCE", 0.1)
    monkeypatch.setattr(os, "kill", lambda process, number: (killed.append(process), kill(process, number)))
    assert rivals._ending(threading.Event().wait) is None
    (process,) = killed
    with pytest.raises(ProcessLookupError):
        kill(process, 0)
