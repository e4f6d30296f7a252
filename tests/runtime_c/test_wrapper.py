"""What becomes of memory, the caller's or none, by onnxc.hpp: wrapper.cpp."""

import shutil
import subprocess

import onnx
import pytest
from support.handmade_models import AFFINE, HERE, said

import onnxc
from onnxc.codegen.library.header import model_header

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
LOWER = """lower (string[n] x) => (string[n] y) {
    y = StringNormalizer <case_change_action="LOWER"> (x)
}"""
INSIDE = "inside (optional(float[n]) o) => (float[n] y) { y = OptionalGetElement (o) }"
HANDED_ON = """handed (optional(TYPE) o, bool c) => (optional(TYPE) o, optional(TYPE) same,
                                                   optional(TYPE) chosen, optional(TYPE) carried, bool has) {
    same = Identity (o)
    chosen = If (c) <then_branch = yes () => (optional(TYPE) p) { p = Identity (o) },
                     else_branch = no () => (optional(TYPE) q) { q = Identity (o) }>
    two = Constant <value_int = 2> ()
    carried = Loop (two, c, o) <body = round (int64 i, bool c_in, optional(TYPE) r)
                                          => (bool c_out, optional(TYPE) s) {
        c_out = Identity (c_in) s = Identity (r) }>
    has = OptionalHasElement (o)
}"""
MODELS = {
    "lower": LOWER,
    "inside": INSIDE,
    "tensor": HANDED_ON.replace("TYPE", "float[n]"),
    "list": HANDED_ON.replace("TYPE", "seq(float[n])"),
}


@pytest.fixture(scope="module")
def program(affine_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrapper")
    (folder / "affine.h").write_text(model_header(AFFINE))
    paths = [affine_path]
    for name, text in MODELS.items():
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
        paths.append(onnxc.compile(model, folder / f"{name}.so", header=folder / f"{name}.h"))
    more = ["-Wcast-qual", "-Wold-style-cast", "-Wuseless-cast", "-Wno-unknown-warning-option"]
    more += ["-Wzero-as-null-pointer-constant"]
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", *more]
    command += [f"-I{onnxc.get_include()}", f"-I{folder}", HERE / "wrapper.cpp", *paths]
    command += [f"-Wl,-rpath,{path.parent}" for path in (affine_path, folder / "lower.so")]
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


def test_an_optional_input_that_is_left_out_is_an_empty_optional(program):
    assert said(program, "left_out") == ["y (OptionalGetElement): the optional holds no value"]
