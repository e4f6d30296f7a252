"""Programs that import onnxruntime run with onnxc, unedited."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import onnxc.demo

DIGITS = str(Path(onnxc.demo.__file__).parent / "digits.onnx")
PROGRAM = """
import sys
import numpy
import onnxruntime
import onnxruntime.capi.onnxruntime_pybind11_state as state
from importlib import metadata, util
from onnxruntime.capi._pybind_state import Fail
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
(digits,) = session.run([], {"image": numpy.zeros((1, 8, 8), numpy.float32)})
assert OrtValue is onnxruntime.OrtValue and Fail is state.Fail
assert util.find_spec("onnxruntime") and metadata.version("onnxruntime") == onnxruntime.__version__
print(onnxruntime.__name__, digits.shape, sys.argv[1:], __name__)
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-P", "-m", "onnxc.onnxruntime", *arguments],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONSAFEPATH": "1"},
    )  # fmt: skip


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("how", [["program.py"], ["-c", PROGRAM]], ids=["file", "text"])
def test_a_program_runs_unedited(program, how):
    done = run(*how, DIGITS, "further", folder=program)
    assert done.stdout.split() == [
        "onnxc.onnxruntime",
        "(1,",
        "10)",
        f"['{DIGITS}',",
        "'further']",
        "__main__",
    ], done.stderr


def test_a_program_that_is_not_there_is_told_in_a_sentence(program):
    done = run("no-such-program", folder=program)
    assert (done.returncode, done.stderr) == (2, "onnxc: error: there is no program 'no-such-program'\n")
