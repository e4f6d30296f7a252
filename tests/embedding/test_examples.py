"""The examples in C and C++, built by make and CMake in folders of their own, moved elsewhere and run there;
and what a CMake project hears of its models."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.examples import DRAWING, EXAMPLES, Example, build_with_cmake
from support.small_models import Weights, parsed

import onnxc.demo
from onnxc.commands.cli import main


def test_the_examples_have_the_model_of_the_demo():
    theirs = Path(onnxc.demo.__file__).with_name("digits.onnx").read_bytes()
    assert (EXAMPLES / "models" / "digits.onnx").read_bytes() == theirs


@pytest.mark.slow
def test_make_builds_a_c_program_with_two_models_in_its_own_memory(tmp_path):
    example = Example("c", tmp_path)
    example.run("make")
    assert "up to date" in example.run("make")
    os.utime(example.folder / "models" / "shrink.onnx")
    assert "onnxc compile" in example.run("make", "-n")
    example.move("digits")
    assert example.run("./digits", given=DRAWING).startswith("7\n")


@pytest.mark.slow
def test_cmake_builds_a_program_of_c_plus_plus_20_with_two_models(tmp_path):
    assert build_with_cmake(tmp_path) == {"digits"}


PROJECT = """
    cmake_minimum_required(VERSION 3.21)
    project(shifts LANGUAGES C)
    find_package(onnxc 0.1 REQUIRED)
    onnxc_add_model(shift "my model.onnx" SHARED NAME shifted DIMS n=4 TARGETS x86-64-v2 x86-64-v3)
    add_executable(program main.c)
    target_link_libraries(program PRIVATE shift)
"""
PROGRAM = """
    #include <stdio.h>
    #include "shifted.h"
    int main(void) {
        float x[SHIFTED_X_ELEMENTS] = {1, 2, 3, 4}, y[SHIFTED_Y_ELEMENTS];
        onnxc_context *context;
        if (shifted_model()->create(NULL, &context) || shifted_run(context, x, y)) return 1;
        printf("%g %g\\n", y[0], y[3]);
        return shifted_model()->destroy(context);
    }
"""


@pytest.mark.slow
def test_a_model_is_compiled_anew_when_its_external_data_change_and_only_then(tmp_path, capsys):
    weights = Weights(1)
    weights.add("w", 1000)
    text = "shift (float[n] x) => (float[n] y) { s = ReduceMax <keepdims=0> (w) y = Add (x, s) }"
    model = parsed(text, weights)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full(1000, 1, np.float32), "w"))
    onnx.save(model, tmp_path / "my model.onnx", save_as_external_data=True, location="weights.bin")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "main.c").write_text(PROGRAM)
    with pytest.raises(SystemExit):
        main(["--cmake-dir"])
    example = Example.of(tmp_path)
    example.run("cmake", "-B", "build", f"-Donnxc_DIR={capsys.readouterr().out.strip()}")
    built = tmp_path / "build" / "onnxc" / "shift" / "libshifted.so"

    def build() -> tuple[int, str]:
        example.run("cmake", "--build", "build")
        ran = subprocess.run([tmp_path / "build" / "program"], capture_output=True, text=True, check=True)
        return built.stat().st_mtime_ns, ran.stdout

    first = build()
    assert first[1] == "2 5\n" and build() == first
    (tmp_path / "weights.bin").write_bytes(np.full(1000, 2, np.float32).tobytes())
    second = build()
    assert second[1] == "3 6\n" and second[0] > first[0]
    assert build() == second
