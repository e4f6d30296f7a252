"""A C program into which several models are linked, also under the sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.handmade_models import (
    AFFINE,
    DIVIDE,
    HERE,
    SANITIZERS,
    Parts,
    cc,
    renamed,
    scale_bytes,
    tables_object,
)
from support.shared import shared

from onnxc.codegen.library import runtime
from onnxc.codegen.library.header import model_header
from onnxc.codegen.library.interface import symbol_prefix

FIRST, SECOND = renamed(AFFINE, "first"), renamed(AFFINE, "second")
COUNTED = """
#include <stddef.h>
void *counted_malloc(size_t);
void counted_free(void *);
#define ONNXC_MALLOC counted_malloc
#define ONNXC_FREE counted_free
#include "runtime.c"
"""
MODELS = (
    (FIRST, "affine.c", scale_bytes(2)),
    (SECOND, "affine.c", scale_bytes(5)),
    (DIVIDE, "divide.c", b""),
)


def build_program(folder: Path, *flags: str) -> Path:
    """program.c with the models' sources, all compiled with the flags; allocations are counted."""
    objects = []
    (folder / "counted.c").write_text(COUNTED)
    cc("-c", "-fPIC", "-O1", *flags, folder / "counted.c", "-o", folder / "runtime.o")
    for description, source, weights in MODELS:
        work = folder / description.prefix
        parts = Parts(work, HERE / source, description, weights, flags)
        (folder / f"{description.prefix}.h").write_text(model_header(description))
        names = runtime.runtime_prefix("o", description.prefix)
        own = runtime.rename(Path(shutil.copy(folder / "runtime.o", work)), names)
        objects += [parts.object, own, tables_object(work, description, names, False)]
        objects += [parts.weights] if parts.weights else []
    cc(
        "-O1",
        *flags,
        f"-I{folder}",
        HERE / "program.c",
        *objects,
        "-o",
        folder / "program",
        "-lm",
        "-pthread",
    )
    return folder / "program"


#: Without __linux__, threads sleep on condition variables, as they do on other systems.
FLAGS = {
    "plain": (),
    "elsewhere": ("-U__linux__", "-fsanitize=thread", "-g", "-O0"),
    "addresses": tuple(SANITIZERS.split()),
    "races": ("-fsanitize=thread", "-g", "-O0"),
}


@pytest.fixture(scope="session", params=FLAGS)
def program(request) -> Path:
    make = lambda folder: build_program(folder, *FLAGS[request.param])  # noqa: E731
    return shared(f"program-{request.param}", make) / "program"


def run(program: Path, test: str) -> str:
    done = subprocess.run(
        [program, test],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Sanitizer" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_models_called_by_four_threads_each_give_the_same_bits(program):
    run(program, "bits")


@pytest.mark.slow
def test_wrong_calls_get_a_status_and_a_sentence(program):
    sentences = run(program, "errors").splitlines()
    assert len(sentences) == len(set(sentences)) == 25
    for expected in (
        "input 'b': dimension 0 (n): expected 100, got 99",
        "input 'x': dimension 0 is negative: -1",
        "input 'x': expected float32, got int32",
        "input 'x': expected a tensor, got a sequence",
        "input 'x': data is null",
        "input 'x': 400 bytes are needed, got 399",
        "output 'y': 400 bytes are needed for shape [100], got 399",
        "model 'first' has 3 inputs, got 2",
        "the memory of output 'y' overlaps input 'x'",
        "node 'scale' (Mul): index 42 is out of range",
        "node 'div' (Div): integer division by zero",
    ):
        assert expected in sentences


@pytest.mark.slow
def test_a_run_that_begins_ends_where_its_caller_has_said_so_before(program):
    assert run(program, "stop").splitlines() == ["the run was cancelled"] * 2


@pytest.mark.slow
def test_every_failing_allocation_is_survived(program):
    run(program, "memory")


@pytest.mark.slow
def test_a_callers_workspace_is_all_that_a_run_needs(program):
    sentences = run(program, "workspace").splitlines()
    assert sentences == [
        "a workspace of 8256 bytes is needed, got 8128",
        "the memory of input 'b' overlaps the workspace",
    ]


@pytest.mark.slow
def test_objects_for_static_linking_export_one_symbol_each(tmp_path):
    """Two models of one hand-written source, whose inner names are the same but for the prefix."""
    objects = []
    for description, scale in ((FIRST, 2), (SECOND, 5)):
        parts = Parts(tmp_path / description.prefix, HERE / "affine.c", description, scale_bytes(scale))
        objects.append(parts.link(tmp_path / f"{description.prefix}.o"))
        symbols = subprocess.run(
            ["nm", "-g", "--defined-only", objects[-1]], capture_output=True, text=True, check=True
        ).stdout.split("\n")
        assert [line.split()[-1] for line in symbols if line] == [f"{description.prefix}_model"]
    (tmp_path / "main.c").write_text("""
#include <stdio.h>
extern void *first_model(void), *second_model(void);
int main(void) { printf("%d", first_model() != second_model()); }
""")
    cc(tmp_path / "main.c", *objects, "-o", tmp_path / "main", "-lm", "-pthread")
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout == "1"


def test_a_library_exports_its_entry_and_the_loaders(affine_path):
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", affine_path], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    names = ["affine_model@@ONNXC_1", "onnxc_model@@ONNXC_1"]
    assert sorted(line.split()[-1] for line in symbols if line) == ["ONNXC_1", *names]


def test_a_library_needs_the_c_library_alone_and_runs_nothing_when_loaded(affine_path):
    text = subprocess.run(["readelf", "-d", affine_path], capture_output=True, text=True, check=True).stdout
    needed = {line.split("[")[1].rstrip("]") for line in text.splitlines() if "NEEDED" in line}
    assert {name for name in needed if not name.startswith("ld-")} <= {"libc.so.6", "libm.so.6"}
    constructors = [line for line in text.splitlines() if "INIT_ARRAYSZ" in line]
    assert [line.split(")")[1].strip() for line in constructors] == ["8 (bytes"]  # the compiler's own


def test_headers_of_two_models_compile_together_as_c_and_as_cpp(tmp_path):
    hostile = replace(
        DIVIDE,
        prefix=symbol_prefix("*/ int main;"),
        name='*/ "quotes" \\ \n end',
        inputs=tuple(replace(port, name=name) for port, name in zip(DIVIDE.inputs, ("int", "1 x*/\n??/"))),
        outputs=(replace(DIVIDE.outputs[0], name="INT_"),),
    )
    for description in (FIRST, DIVIDE, hostile):
        (tmp_path / f"{description.prefix}.h").write_text(model_header(description))
    includes = "".join(f'#include "{d.prefix}.h"\n' for d in (FIRST, DIVIDE, hostile))
    for suffix, standard in (("c", "c99"), ("c", "c11"), ("cpp", "c++11"), ("cpp", "c++20")):
        source = tmp_path / f"all.{suffix}"
        source.write_text(includes + "int main(void) { return 0; }\n")
        command = [
            "g++" if suffix == "cpp" else "gcc",
            f"-std={standard}",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-fsyntax-only",
            str(source),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
