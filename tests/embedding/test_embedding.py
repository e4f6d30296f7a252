"""Models compiled to objects and linked into one C program: threads, wrong calls, and headers as C and C++.

tests/embedding/program.c is the program; it ends with status 0 when all that it expects is so.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from support import small_models
from support.handmade_models import SANITIZERS, sanitizing_compiler

import onnxc
from onnxc.codegen.library.compiler import find_compiler
from onnxc.commands.cli import main

HERE = Path(__file__).parent
PINNED = {
    "images": ["--dim", "batch=1", "--dim", "height=32", "--dim", "width=32"],
    "text": [],
    "fragile": [],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three models, each as an object with its header, by the command line."""
    return compile_models(tmp_path_factory.mktemp("embedding"))


def compile_models(folder):
    for name, options in PINNED.items():
        onnx.save(getattr(small_models, name)(), folder / f"{name}.onnx")
        command = ["compile", str(folder / f"{name}.onnx"), "-o", str(folder / f"{name}.o"), *options]
        assert main(command) == 0
    return folder


@pytest.fixture(scope="module")
def program(folder):
    return compile_program(folder)


def compile_program(folder):
    objects = [folder / f"{name}.o" for name in PINNED]
    compile_with(
        find_compiler(),
        "-std=c11",
        "-D_GNU_SOURCE",
        "-O1",
        f"-I{folder}",
        HERE / "program.c",
        *objects,
        "-o",
        folder / "program",
        "-lm",
        "-pthread",
    )
    return folder / "program"


def compile_with(compiler, *arguments):
    command = [*compiler, "-Wall", "-Wextra", "-Werror", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def run(program, test):
    done = subprocess.run([program, test], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.slow
def test_two_models_called_by_four_threads_each_give_the_bits_of_single_calls(program):
    run(program, "bits")


@pytest.mark.slow
def test_wrong_calls_get_a_status_and_a_sentence_and_the_next_call_works(program):
    sentences = run(program, "errors").decode().splitlines()
    data = ["quotient (Div): integer division by zero", "picked (Gather): index 3 is out of range"]
    assert sentences == [
        "input 'image': expected shape [1, 3, 32, 32], got [1, 3, 32, 31]",
        "input 'image': expected shape [1, 3, 32, 32], got [1, 3, 0, 32]",
        "input 'image': expected rank 4 (shape [1, 3, 32, 32]), got rank 3 (shape [1, 3, 32])",
        "input 'image': expected float32, got float64",
        "input 'image': expected a tensor, got a sequence",
        "input 'image': data is null",
        "input 'image': 12288 bytes are needed, got 12287",
        "output 'probabilities': 40 bytes are needed for shape [1, 10], got 39",
        "model 'images' has 1 inputs, got 2",
        "model 'images' has 1 outputs, got 0",
        "the memory of output 'probabilities' overlaps input 'image'",
        "input 'image': data is null",
        "context is null",
        "input 'mask': dimension 1 (length): expected 19, got 18",
        "x_0 (Add): dimensions do not match: expected 65, got 64",
        "output 'logits': 15352 bytes are needed for shape [2, 19, 101], got 15348",
        "embedded (Gather): index 101 is out of range",
        "embedded (Gather): index -9223372036854775808 is out of range",
        *data,
        *data,
    ]


def test_a_run_is_cancelled_from_another_thread(program):
    assert run(program, "cancel").decode().splitlines() == ["the run was cancelled"] * 2


@pytest.mark.slow
def test_the_sanitizers_find_no_wrong_step_and_no_leak(tmp_path, monkeypatch):
    """The runtime and the program with the checks of addresses, leaks and undefined behaviour in them."""
    monkeypatch.setenv("CC", sanitizing_compiler(tmp_path))
    program = compile_program(compile_models(tmp_path))
    for test in ("bits", "errors", "cancel"):
        run(program, test)


def test_the_programs_results_are_those_of_onnx_runtime(program, folder):
    data = run(program, "outputs")

    def take(dtype, *shape):
        nonlocal data
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        array, data = np.frombuffer(data[:nbytes], dtype).reshape(shape), data[nbytes:]
        return array

    image, classes = take(np.float32, 4, 1, 3, 32, 32), take(np.float32, 4, 1, 10)
    ids, mask, logits = (take(np.int64, 4, 2, 19), take(np.int64, 4, 2, 19), take(np.float32, 4, 2, 19, 101))
    images, text = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("images", "text"))
    for k in range(4):
        np.testing.assert_allclose(classes[k], images.run(None, {"image": image[k]})[0], atol=1e-5)
        expected = text.run(None, {"ids": ids[k], "mask": mask[k]})[0]
        np.testing.assert_allclose(logits[k], expected, atol=1e-3)


def test_an_object_exports_its_model_and_nothing_else(folder):
    for name in PINNED:
        command = ["nm", "-g", "--defined-only", folder / f"{name}.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert [line.split()[-1] for line in done.stdout.splitlines() if line] == [f"{name}_model"]


def test_objects_link_without_text_relocations(folder, tmp_path):
    """As parts of a shared library too: all code is position independent."""
    source = tmp_path / "both.c"
    source.write_text(
        '#include "images.h"\n#include "text.h"\nint both(void) { return images_model() != text_model(); }\n'
    )
    compile_with(
        find_compiler(),
        "-shared",
        "-fPIC",
        "-Wl,-z,text",
        f"-I{folder}",
        source,
        folder / "images.o",
        folder / "text.o",
        "-o",
        tmp_path / "both.so",
        "-lm",
        "-pthread",
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("flags", [["-std=c++17"], ["-std=c++20", "-fno-exceptions"]], ids=" ".join)
def test_the_cpp_wrapper_owns_what_it_makes_and_tells_errors_either_way(folder, tmp_path, flags):
    objects = [folder / "images.o", folder / "text.o"]
    sanitizers = [] if "-fno-exceptions" in flags else SANITIZERS.split()
    include = [f"-I{folder}", f"-I{onnxc.get_include()}"]
    compile_with(
        ["c++"], *flags, "-pedantic", *sanitizers, *include, HERE / "wrapper.cpp", *objects,
        "-o", tmp_path / "wrapper", "-lm", "-ldl", "-pthread",
    )  # fmt: skip
    run(tmp_path / "wrapper", "")


@pytest.mark.parametrize(
    ("suffix", "standard"), [("c", "c11"), ("c", "c17"), ("cpp", "c++11"), ("cpp", "c++20")]
)
def test_the_typed_wrapper_compiles_without_warnings(folder, tmp_path, suffix, standard):
    compiler = ["g++"] if suffix == "cpp" else ["gcc"]
    if shutil.which(compiler[0]) is None:
        compiler = [*find_compiler(), "-x", "c++" if suffix == "cpp" else "c"]
    source = tmp_path / f"main.{suffix}"
    source.write_text("""
        #include "images.h"
        #include "text.h"
        int main(void) {
            static float image[IMAGES_IMAGE_ELEMENTS], probabilities[IMAGES_PROBABILITIES_ELEMENTS];
            onnxc_context *context;
            if (images_model()->create(NULL, &context) != ONNXC_OK) return 1;
            int status = images_run(context, image, probabilities);
            images_model()->destroy(context);
            int64_t ids[2][3] = {{1, 2, 3}, {4, 5, 6}}, mask[2][3] = {{1, 1, 1}, {1, 1, 0}}, dims[3];
            static float logits[2 * 3 * 101];
            if (text_model()->create(NULL, &context) != ONNXC_OK) return 2;
            if (text_run(context, 2, 3, *ids, *mask, logits, 605, dims) != ONNXC_BUFFER_TOO_SMALL) return 3;
            if (text_run(context, 2, -3, *ids, *mask, logits, 606, dims) != ONNXC_WRONG_SHAPE) return 4;
            if (text_run(context, 2, 3, *ids, *mask, logits, 606, dims) != ONNXC_OK) return 5;
            if (dims[0] != 2 || dims[1] != 3 || dims[2] != 101 || logits[605] == 0.0f) return 6;
            if (text_run(context, 1, 2, *ids, *mask, NULL, 0, NULL) != ONNXC_OK) return 7;
            text_model()->destroy(context);
            float sum = 0;
            for (int i = 0; i < IMAGES_PROBABILITIES_ELEMENTS; i++) sum += probabilities[i];
            return status != ONNXC_OK || sum < 0.99f || sum > 1.01f || text_model()->workspace_bytes != -1;
        }""")
    compile_with(
        compiler, f"-std={standard}", "-pedantic", f"-I{folder}", "-c", source, "-o", tmp_path / "main.o"
    )
    compile_with(
        find_compiler(),
        tmp_path / "main.o",
        folder / "images.o",
        folder / "text.o",
        "-o",
        tmp_path / "main",
        "-lm",
        "-pthread",
    )
    assert subprocess.run([tmp_path / "main"], env={**os.environ}, timeout=60).returncode == 0
