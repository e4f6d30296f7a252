"""Linking: compilers that are missing, fail or hang, hostile names, and files that appear whole."""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxc.codegen.library import link, model_c
from support.handmade_models import AFFINE, HERE, NOWHERE, Parts, cc, scale_bytes

from onnxc.errors import CompileError
from onnxc.loading.loader import load
from onnxc.target import TARGETS


@pytest.fixture(scope="module")
def parts(tmp_path_factory) -> Parts:
    return Parts(tmp_path_factory.mktemp("parts") / "work", HERE / "affine.c", AFFINE, scale_bytes(3))


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# The compiler -----------------------------------------------------------------------------------------


def test_a_compiler_that_is_missing_is_named(monkeypatch, parts, tmp_path):
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(CompileError, match="'no-such-compiler' named by CC is not there"):
        parts.link(tmp_path / "model.so")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="no C compiler was found; install gcc"):
        parts.link(tmp_path / "model.so")
    assert os.listdir(tmp_path) == []


def test_cc_may_have_arguments_of_its_own(monkeypatch):
    monkeypatch.setenv("CC", "env -u NOTHING cc")
    assert link.find_compiler() == ("env", "-u", "NOTHING", "cc")


def test_the_first_of_the_usual_names_is_taken(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("clang", "gcc", "cc"):
        path = script(tmp_path / name, "")
        assert link.find_compiler() == (path,)
    monkeypatch.setenv("CC", "clang")
    assert link.find_compiler() == ("clang",)


def test_without_a_compiler_the_package_ziglang_is_taken(monkeypatch, parts, tmp_path):
    """The package here passes on to the C compiler what it is asked, but for the target."""
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(f"""
import os, sys
os.environ["PATH"] = {os.environ["PATH"]!r}
name, *arguments = sys.argv[1:]
at = arguments.index("-target")
assert (name, arguments[at + 1]) == ("cc", {f"{platform.machine()}-linux-gnu"!r}), sys.argv
if os.path.exists({str(tmp_path / "broken")!r}):
    sys.exit("zig is broken")
os.execvp("cc", ["cc", *arguments[:at], *arguments[at + 2:]])
""")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.syspath_prepend(package.parent)
    assert link.find_compiler() == (sys.executable, "-m", "ziglang", "cc")
    assert load(parts.link(tmp_path / "model.so"))([1], [1], NOWHERE) == 4
    (tmp_path / "broken").touch()
    with pytest.raises(CompileError, match="'zig cc' failed with status 1: zig is broken"):
        parts.link(tmp_path / "model.so")


def test_the_end_of_what_a_failing_compiler_printed_is_in_the_error(monkeypatch, parts, tmp_path):
    failing = script(tmp_path / "failing", "seq 1 10000 >&2; echo model.c:1: it will not do >&2; exit 3")
    monkeypatch.setenv("CC", failing)
    with pytest.raises(CompileError) as caught:
        parts.link(tmp_path / "model.so")
    text = str(caught.value)
    assert "'failing' failed with status 3" in text and text.endswith("model.c:1: it will not do")
    assert len(text) < 1000 and "\n" not in text
    assert os.listdir(tmp_path) == ["failing"]


def test_a_compiler_that_is_killed_or_makes_nothing_is_an_error(monkeypatch, parts, tmp_path):
    monkeypatch.setenv("CC", script(tmp_path / "killed", "kill -9 $$"))
    with pytest.raises(CompileError, match="'killed' was ended by signal 9: it printed nothing"):
        parts.link(tmp_path / "model.so")
    (parts.folder / "weights.o").unlink(missing_ok=True)
    monkeypatch.setenv("CC", script(tmp_path / "idle", "exit 0"))
    with pytest.raises(CompileError, match="'idle' failed with status 0: it printed nothing"):
        parts.link(tmp_path / "model.so")


def test_a_compiler_that_hangs_is_ended_with_all_its_children(monkeypatch, parts, tmp_path):
    pid = tmp_path / "pid"
    monkeypatch.setenv("CC", script(tmp_path / "hanging", f"sleep 1000 & echo $! > {pid}; wait"))
    began = time.monotonic()
    with pytest.raises(CompileError, match=r"'hanging' did not finish within 0\.5 seconds"):
        parts.link(tmp_path / "model.so", timeout=0.5)
    assert time.monotonic() - began < 10
    status = Path(f"/proc/{pid.read_text().strip()}/status")
    for _ in range(100):
        if not status.exists() or "State:\tZ" in status.read_text():
            break
        time.sleep(0.02)
    else:
        pytest.fail("the child of the compiler is still there")


def test_a_compiler_for_this_machine_alone_is_not_asked_for_another(tmp_path):
    with pytest.raises(CompileError, match="'gcc' compiles for this machine, not for aarch64; install"):
        link.target_flags(("/usr/bin/gcc",), TARGETS["aarch64"])
    assert link.target_flags(("aarch64-linux-gnu-gcc",), TARGETS["aarch64"]) == ()
    zig = ("python", "-m", "ziglang", "cc")
    assert link.target_flags(zig, TARGETS["aarch64"]) == ("-target", "aarch64-linux-gnu")
    assert link.target_flags(("/usr/bin/clang-18",), TARGETS["aarch64"]) == (
        "--target=aarch64-unknown-linux-gnu",
    )


# Files ------------------------------------------------------------------------------------------------


def test_a_library_replaces_the_old_one_with_the_users_permissions(parts, tmp_path):
    output = tmp_path / "model.so"
    output.write_text("old")
    with output.open() as old:
        parts.link(output)
        assert old.read() == "old"
    assert os.listdir(tmp_path) == ["model.so"]
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(output.stat().st_mode) == 0o777 & ~mask


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), link.replacing(path) as (temporary,):
        temporary.write_text("half")
        raise RuntimeError
    with pytest.raises(CompileError, match="cannot be written: No space left"), link.replacing(path):
        raise OSError(28, "No space left on device")
    assert (os.listdir(tmp_path), path.read_text()) == (["file"], "old")
    with link.replacing(path) as (temporary,):
        temporary.write_text("new")
    assert (os.listdir(tmp_path), path.read_text()) == (["file"], "new")


def test_places_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(CompileError, match="does not exist"):
        link.check_output(tmp_path / "missing" / "model.so")
    with pytest.raises(CompileError, match="is a folder"):
        link.check_output(tmp_path)
    link.check_output(tmp_path / "model.so")


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
    offset, size = link.section_range(affine_path, link.WEIGHTS_SECTION)
    assert offset % 4096 == 0 and size == 64
    assert link.section_range(affine_path, ".no_such_section") == (0, 0)
    assert link.section_range(HERE / "affine.c", link.WEIGHTS_SECTION) == (0, 0)


# Objects ----------------------------------------------------------------------------------------------


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


def test_without_such_a_tool_every_symbol_has_the_prefix(parts, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    for name in ("cc", "as", "ld"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = parts.link(tmp_path / "model.o")
    monkeypatch.undo()
    symbols = exported(path)
    assert "affine_model" in symbols and all(symbol.startswith("affine_") for symbol in symbols)


# Names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, prefix", [("resnet50", "resnet50"), ("resnet50-v1.5", "resnet50_v1_5"), ("Model 1", "Model_1")]
)
def test_ordinary_names_are_prefixes(name, prefix):
    assert model_c.symbol_prefix(name) == prefix


@settings(max_examples=300)
@given(st.text(min_size=0, max_size=100), st.text(min_size=0, max_size=100))
def test_any_name_gives_an_identifier_and_hostile_ones_do_not_meet(one, other):
    first, second = model_c.symbol_prefix(one), model_c.symbol_prefix(other)
    assert first.isidentifier() and first.isascii() and len(first) <= 60 and first[0].isalpha()
    plain = {"-": "_", ".": "_", " ": "_"}
    if [plain.get(c, c) for c in one] != [plain.get(c, c) for c in other]:
        assert first != second


def test_any_text_survives_a_c_literal(tmp_path):
    texts = ["", "plain", 'a"b\\c??/d', "ü€😀", "1\t2\n3", "\x01\x7f9", "%s %n", "*/ //", "x" * 20000]
    lines = "".join(f"puts({model_c.c_string(t)});\n" for t in texts)
    (tmp_path / "a.c").write_text(f"#include <stdio.h>\nint main(void) {{\n{lines}}}\n", encoding="ascii")
    cc("-trigraphs", tmp_path / "a.c", "-o", tmp_path / "a")
    output = os.popen(str(tmp_path / "a")).buffer.read().decode()
    assert output == "".join(f"{t}\n" for t in texts)


def test_hostile_names_in_every_place(tmp_path):
    evil = 'x"; system("false"); /* \\ ??/ */ \n%s%n é'
    description = replace(
        AFFINE,
        prefix=model_c.symbol_prefix(evil),
        name=evil,
        metadata={evil: evil},
        version=evil,
        inputs=tuple(replace(p, name=f"{p.name}{evil}", shape=(evil,) * len(p.shape)) for p in AFFINE.inputs),
        outputs=(replace(AFFINE.outputs[0], name=evil),),
        node_names=(evil,) * 3,
        details={evil: evil},
    )
    parts = Parts(tmp_path / "work", HERE / "affine.c", description, scale_bytes(3))
    model = load(parts.link(tmp_path / "model.so"))
    assert (model.name, model.metadata, model.outputs[0].name) == (evil, {evil: evil}, evil)
    assert model([2], [1], NOWHERE) == 7
    with pytest.raises(Exception, match="index 0 is out of range"):
        model([2], [1], 0)


def test_models_may_have_no_inputs_weights_or_metadata(tmp_path):
    (tmp_path / "constant.c").write_text("""
#include "internal.h"
ONNXC_HIDDEN int32_t constant__bind(onnxc_context *c, const onnxc_value *i) { return 0; }
ONNXC_HIDDEN int32_t constant__run(onnxc_context *c, const onnxc_value *i, onnxc_value *o) {
    float *y = c->api->output(c, o, 0, 0, 0);
    return y ? (*y = 42, 0) : 1;
}
""")
    description = model_c.LibraryDescription(
        prefix="constant",
        name="constant",
        version="test",
        inputs=(),
        outputs=(model_c.Port("y", "float32", ()),),
    )
    parts = Parts(tmp_path / "work", tmp_path / "constant.c", description, b"")
    model = load(parts.link(tmp_path / "model.so"))
    result = model.run(None, {})[0]
    assert (result.dtype, result.shape, float(result)) == (np.float32, (), 42)
    (tmp_path / "main.c").write_text(
        model_c.model_header(description)
        + """
int main(void) {
    onnxc_context *context;
    float y;
    return constant_model()->create(0, &context) || constant_run(context, &y) || y != 42;
}
"""
    )
    parts.link(tmp_path / "model.o")
    cc(tmp_path / "main.c", tmp_path / "model.o", "-o", tmp_path / "main", "-lm", "-pthread")
    assert os.system(str(tmp_path / "main")) == 0
