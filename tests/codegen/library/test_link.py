"""Linking: shared libraries, and objects for static linking that export their model alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.handmade_models import AFFINE, HERE, NOWHERE, Parts, scale_bytes

from onnxc.codegen.library import runtime
from onnxc.codegen.library.elf import section_range
from onnxc.codegen.library.weights import WEIGHTS_SECTION
from onnxc.loading.loader import load


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Parts:
    return Parts(tmp_path_factory.mktemp("parts") / "work", HERE / "affine.c", AFFINE, scale_bytes(3))


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_odd_paths_and_working_folders_are_no_trouble(tmp_path):
    folder = tmp_path / "a b,c'd\"é$(x)"
    parts = Parts(folder / "work; -o", HERE / "affine.c", AFFINE, scale_bytes(3))
    output = folder / "-o model,1.so"
    parts.link(output)
    assert load(output)([1], [1], NOWHERE) == 4


def test_equal_inputs_give_equal_libraries(parts, tmp_path):
    first = parts.link(tmp_path / "one.so").read_bytes()
    assert parts.link(tmp_path / "two.so").read_bytes() == first


def test_weights_begin_on_a_page_and_are_read_only(affine_path):
    offset, size = section_range(affine_path, WEIGHTS_SECTION)
    assert offset % 4096 == 0 and size == 64
    assert section_range(affine_path, ".no_such_section") == (0, 0)
    assert section_range(HERE / "affine.c", WEIGHTS_SECTION) == (0, 0)


def exported(path: Path) -> list[str]:
    done = subprocess.run(["nm", "-g", "--defined-only", path], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in done.stdout.splitlines() if line]


def test_an_object_exports_its_model_alone(parts, tmp_path):
    assert exported(parts.link(tmp_path / "model.o")) == ["affine_model"]


def test_the_tool_that_works_makes_symbols_local(parts, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "objcopy", "exit 1")
    script(tmp_path / "bin" / "llvm-objcopy", f'exec {shutil.which("objcopy")} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert exported(parts.link(tmp_path / "model.o")) == ["affine_model"]


@pytest.mark.slow
def test_without_such_a_tool_every_symbol_is_the_models_own(parts, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name in ("cc", "as", "ld"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = parts.link(tmp_path / "model.o")
    monkeypatch.undo()
    symbols = exported(path)
    own = "affine_", runtime.runtime_prefix("o", "affine")
    assert "affine_model" in symbols and all(symbol.startswith(own) for symbol in symbols)
