"""Linking: shared libraries, and objects for static linking that export their model alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.handmade_models import AFFINE, DIVIDE, HERE, NOWHERE, Parts, cc, scale_bytes, script

from onnxc.codegen.library import link, runtime
from onnxc.codegen.library.elf import section_range
from onnxc.codegen.library.weights import WEIGHTS_SECTION
from onnxc.loading.loader import load
from onnxc.target import find_target


def test_odd_paths_and_working_folders_are_no_trouble(tmp_path):
    folder = tmp_path / "a b,c'd\"é$(x)"
    parts = Parts(folder / "work; -o", HERE / "affine.c", AFFINE, scale_bytes(3))
    output = folder / "-o model,1.so"
    parts.link(output)
    assert load(output)([1], [1], NOWHERE) == 4


def test_equal_inputs_give_equal_libraries(parts, tmp_path):
    for name in ("model.so", "model.o", "model.a"):
        first = parts.link(tmp_path / name).read_bytes()
        assert parts.link(tmp_path / name).read_bytes() == first


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


def read_elf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", option, path], capture_output=True, text=True, check=True).stdout


def test_a_shared_library_has_a_name_for_linkers_and_its_symbols_the_version_of_the_interface(affine_path):
    assert "Library soname: [model.so]" in read_elf("-d", affine_path)
    symbols = read_elf("--dyn-syms", affine_path)
    assert "affine_model@@ONNXC_1" in symbols and "onnxc_model@@ONNXC_1" in symbols


def test_a_program_finds_the_library_beside_it_wherever_it_was_linked(affine_path, tmp_path):
    (tmp_path / "build").mkdir()
    shutil.copy(affine_path, tmp_path / "build" / "model.so")
    source = tmp_path / "main.c"
    source.write_text("extern void *affine_model(void);\nint main(void) { return affine_model() == 0; }\n")
    command = ["cc", source, "build/model.so", "-Wl,-rpath,$ORIGIN", "-o", "build/program"]
    subprocess.run(command, check=True, cwd=tmp_path)
    (tmp_path / "build").rename(tmp_path / "elsewhere")
    subprocess.run([tmp_path / "elsewhere" / "program"], check=True, cwd="/")


def test_models_in_archives_share_one_runtime(parts, tmp_path):
    other = Parts(tmp_path / "work", HERE / "divide.c", DIVIDE, b"")
    archives = [parts.link(tmp_path / "affine.a"), other.link(tmp_path / "divide.a")]
    source = tmp_path / "main.c"
    source.write_text("""
        #include "onnxc.h"
        const onnxc_model *affine_model(void), *divide_model(void);
        int main(void) {
            onnxc_context *a, *d;
            if (affine_model()->create(NULL, &a) || divide_model()->create(NULL, &d)) return 1;
            affine_model()->destroy(a);
            divide_model()->destroy(d);
            return affine_model()->run != divide_model()->run; /* the same function */
        }""")
    members = [link.unarchive(path, folder(tmp_path / path.stem), find_target()) for path in archives]
    assert [[member.name[:13] for member in found] for found in members] == [
        ["affine.o", "onnxc-runtime"],
        ["divide.o", "onnxc-runtime"],
    ]
    link.archive([*members[0], *members[1]], tmp_path / "both.a", tmp_path, find_target())
    for given in (archives, archives[::-1], [tmp_path / "both.a"]):
        cc(source, *given, "-lm", "-ldl", "-pthread", "-o", tmp_path / "program")
        subprocess.run([tmp_path / "program"], check=True)
    assert len(link.unarchive(tmp_path / "both.a", folder(tmp_path / "both"), find_target())) == 3


def folder(path: Path) -> Path:
    path.mkdir()
    return path
