"""What becomes of memory, the caller's or none, by onnxc.hpp: wrapper.cpp."""

import shutil
import subprocess

import onnx
import pytest
from support.handmade_models import AFFINE, HERE, said

import onnxc
from onnxc.codegen.library.header import model_header

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
LOWER = """
    <ir_version: 10, opset_import: ["" : 20]>
    lower (string[n] x) => (string[n] y) { y = StringNormalizer <case_change_action="LOWER"> (x) }
"""


@pytest.fixture(scope="module")
def program(affine_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrapper")
    (folder / "affine.h").write_text(model_header(AFFINE))
    lower = onnx.parser.parse_model(LOWER)
    lower_path = onnxc.compile(lower, folder / "lower.so", header=folder / "lower.h")
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{onnxc.get_include()}"]
    command += [f"-I{folder}", HERE / "wrapper.cpp", affine_path, lower_path]
    command += [f"-Wl,-rpath,{path.parent}" for path in (affine_path, lower_path)]
    done = subprocess.run([*command, "-o", folder / "wrapper"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder / "wrapper"


def test_elements_and_memory_that_are_not_there_are_none(program):
    assert said(program, "elements") == [
        "input 'b': data is null",
        "input 'b': data is null",
        "input 'x': data is null",
        "output 'y': 16 bytes are needed for shape [4], got 0",
    ]


def test_calls_that_have_a_status_throw_nothing_where_memory_is_short(program):
    assert said(program, "memory") == [
        "model 'affine' was not compiled for target 'another'",
        "out of memory",
    ]


def test_results_go_to_the_callers_memory_in_every_run(program):
    assert said(program, "again") == ["one", "two"]


def test_a_context_that_is_running_says_so(program):
    assert said(program, "busy") == ["the context is in use by another thread"]
