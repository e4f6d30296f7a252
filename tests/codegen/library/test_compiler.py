"""The C compiler: which one is asked, and what becomes of one that is missing, fails or hangs."""

from __future__ import annotations

import errno
import os
import platform
import select
import signal
import subprocess
import sys
import threading
import types

import pytest
from support.handmade_models import NOWHERE, script

from onnxc.codegen.library import compiler
from onnxc.errors import CompileError
from onnxc.loading.loader import load
from onnxc.target import LEVELS, TARGETS

#: Levels of other kinds of machine.
FOREIGN = [name for name, target in LEVELS.items() if not target.triple.startswith(platform.machine())]


def test_a_compiler_that_is_missing_is_named(monkeypatch, parts, tmp_path):
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(CompileError, match="'no-such-compiler' named by CC is not there"):
        parts.link(tmp_path / "model.so")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="no C compiler was found; install gcc"):
        parts.link(tmp_path / "model.so")
    assert os.listdir(tmp_path) == []


def test_cc_may_have_arguments_of_its_own(monkeypatch):
    monkeypatch.setenv("CC", "env -u NOTHING cc")
    assert compiler.find_compiler() == ("env", "-u", "NOTHING", "cc")


def test_a_variable_whose_quotation_does_not_end_is_named(monkeypatch):
    monkeypatch.setenv("CC", "gcc '")
    with pytest.raises(CompileError, match=r"^CC='gcc '' is no command: no closing quotation$"):
        compiler.find_compiler()
    monkeypatch.setenv("AR", 'ar "')
    with pytest.raises(CompileError, match=r"^AR='ar .' is no command: no closing quotation$"):
        compiler.find_archiver(["gcc"])


@pytest.mark.parametrize("kind", ["o", "a", "so"])
def test_a_compiler_that_is_asked_for_code_at_link_time_makes_it_at_once(monkeypatch, parts, tmp_path, kind):
    path = tmp_path / f"model.{kind}"
    monkeypatch.setenv("CC", "cc -flto")
    parts.link(path)
    if kind == "so":
        assert load(path, threads=1).name == "affine"
    else:
        assert b"affine_model\0" in path.read_bytes() and b"lto" not in path.read_bytes()


def test_the_first_of_the_usual_names_is_taken(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("clang", "gcc", "cc"):
        path = script(tmp_path / name, "")
        assert compiler.find_compiler() == (path,)
    monkeypatch.setenv("CC", "clang")
    assert compiler.find_compiler() == ("clang",)


@pytest.mark.parametrize("name", FOREIGN)
def test_another_kind_of_machine_gets_a_compiler_of_its_own(monkeypatch, tmp_path, name):
    """One that is called after it, else zig, which is there beside cc, else clang, else a sentence."""
    target, zig = TARGETS[name], types.SimpleNamespace(origin="zig")
    machine = target.triple.partition("-")[0]
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path / "cc", "")
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match=f"no C compiler for {name} was found; `pip install ziglang`, or"):
        compiler.find_compiler(target)
    clang = script(tmp_path / "clang", "")
    assert compiler.find_compiler(target) == (clang,)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: zig)
    assert compiler.find_compiler(target) == (sys.executable, "-m", "ziglang", "cc")
    own = script(tmp_path / f"{machine}-linux-gnu-gcc", "")
    assert compiler.find_compiler(target) == (own,) and compiler.target_flags((own,), target) == ()
    kin = script(tmp_path / f"{machine}-linux-gnu-ar", "")
    script(tmp_path / "ar", "")
    assert compiler.find_archiver((own,)) == (kin,)
    monkeypatch.setenv("CC", "cc")
    assert compiler.find_compiler(target) == ("cc",)


@pytest.mark.slow
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
assert (name, arguments[at + 1]) == ("cc", {f"{platform.machine()}-linux-gnu.2.17"!r}), sys.argv
if os.path.exists({str(tmp_path / "broken")!r}):
    sys.exit("zig is broken")
os.execvp("cc", ["cc", *arguments[:at], *arguments[at + 2:]])
""")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.syspath_prepend(package.parent)
    assert compiler.find_compiler() == (sys.executable, "-m", "ziglang", "cc")
    assert load(parts.link(tmp_path / "model.so"))([1], [1], NOWHERE) == 4
    (tmp_path / "broken").touch()
    with pytest.raises(CompileError, match="'zig cc' failed with status 1: zig is broken"):
        parts.link(tmp_path / "model.so")


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        (("python", "-m", "ziglang", "cc"), {}, "cache/zig"),
        (("/opt/zig", "ar"), {"HOME": ""}, "cache/zig"),
        (("python", "-m", "ziglang", "cc"), {"HOME": "/home"}, None),
        (("python", "-m", "ziglang", "cc"), {"XDG_CACHE_HOME": "/caches"}, None),
        (("python", "-m", "ziglang", "cc"), {"ZIG_GLOBAL_CACHE_DIR": "/zig"}, "/zig"),
        (("gcc",), {}, None),
    ],
)
def test_zig_has_a_cache_where_there_is_no_home(monkeypatch, tmp_path, command, given, expected):
    for name in compiler.ZIG_CACHES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**given, "ONNXC_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    expected = expected and str(tmp_path / expected)
    assert compiler.environment(command).get("ZIG_GLOBAL_CACHE_DIR") == expected
    told = tmp_path / "told"
    tell = ["sh", "-c", 'printf "${ZIG_GLOBAL_CACHE_DIR-none}" > "$0"', str(told), "ziglang"]
    assert compiler.start(tell, told, tmp_path).wait().read_text() == (
        compiler.environment(tell).get("ZIG_GLOBAL_CACHE_DIR", "none")
    )


def test_the_end_of_what_a_failing_compiler_printed_is_in_the_error(monkeypatch, parts, tmp_path):
    failing = script(tmp_path / "failing", "seq 1 10000 >&2; echo model.c:1: it will not do >&2; exit 3")
    monkeypatch.setenv("CC", failing)
    with pytest.raises(CompileError) as caught:
        parts.link(tmp_path / "model.so")
    text = str(caught.value)
    assert "'failing' failed with status 3" in text and text.endswith("model.c:1: it will not do")
    assert len(text) < 1000 and "\n" not in text
    assert os.listdir(tmp_path) == ["failing"]


def test_a_linker_that_finds_the_disk_full_is_told_by_the_systems_error(monkeypatch, parts, tmp_path):
    message = f"ld: final link failed: {os.strerror(errno.ENOSPC)}"
    monkeypatch.setenv("CC", script(tmp_path / "failing", f"echo '{message}' >&2; exit 1"))
    with pytest.raises(CompileError) as caught:
        parts.link(tmp_path / "model.so")
    assert isinstance(caught.value.__cause__, OSError) and caught.value.__cause__.errno == errno.ENOSPC
    assert "No space left on device in the folder " in str(caught.value)


def test_of_two_folders_the_one_with_less_room_is_the_full_one(monkeypatch, tmp_path):
    left = {tmp_path / "out": 1 << 12, tmp_path / "work": 1 << 30}
    monkeypatch.setattr(
        compiler.shutil, "disk_usage", lambda folder: types.SimpleNamespace(free=left[folder])
    )
    full = script(tmp_path / "full", f"echo '{os.strerror(errno.ENOSPC)}'; exit 1")
    process = compiler.start([full], tmp_path / "out" / "model.so", tmp_path)
    process.directory = tmp_path / "work"
    with pytest.raises(CompileError, match=f"in the folder {tmp_path}/out: 'full' failed") as caught:
        process.wait()
    assert caught.value.__cause__.filename == f"{tmp_path}/out"


@pytest.mark.slow
def test_a_compiler_that_is_killed_or_makes_nothing_is_an_error(monkeypatch, parts, tmp_path):
    monkeypatch.setenv("CC", script(tmp_path / "killed", "kill -9 $$"))
    with pytest.raises(CompileError, match="'killed' was ended by signal 9: it printed nothing"):
        parts.link(tmp_path / "model.so")
    monkeypatch.undo()
    parts.link(tmp_path / "model.so")  # what it makes is there from now on
    monkeypatch.setenv("CC", script(tmp_path / "idle", "exit 0"))
    with pytest.raises(CompileError, match="'idle' failed with status 0: it printed nothing"):
        parts.link(tmp_path / "model.so")


def test_a_compiler_that_hangs_is_ended_with_all_its_children(tmp_path):
    started = tmp_path / "started"
    os.mkfifo(started)
    hanging = script(tmp_path / "hanging", f"sleep 1000 & echo $! > {started}; wait")
    process = compiler.start((hanging,), tmp_path / "model.o", tmp_path)
    child = os.pidfd_open(int(started.read_text()))
    with pytest.raises(CompileError, match=r"'hanging' did not finish within 0\.1 seconds"):
        process.wait(timeout=0.1)
    try:
        assert select.select([child], [], [], 60)[0], "the child of the compiler is still there"
    finally:
        os.close(child)


class Asked(BaseException):
    """This process is asked to end."""


@pytest.fixture
def asked():
    """A signal that raises Asked."""

    def end(number: int, frame: object) -> None:
        raise Asked

    before = signal.signal(signal.SIGTERM, end)
    yield signal.SIGTERM
    signal.signal(signal.SIGTERM, before)


def test_a_request_to_end_while_a_compiler_starts_ends_it(monkeypatch, tmp_path, asked):
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(asked)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    with pytest.raises(Asked):
        compiler.start(["sleep", "300"], tmp_path / "x", tmp_path)
    assert started[0].returncode == -signal.SIGKILL


def test_a_request_to_end_while_a_compiler_works_ends_it(tmp_path, asked):
    process = compiler.start(["sleep", "300"], tmp_path / "x", tmp_path)
    threading.Timer(0.1, os.kill, (os.getpid(), asked)).start()
    with pytest.raises(Asked):
        process.wait()
    assert process.process.returncode == -signal.SIGKILL


def test_a_compiler_may_be_stopped_again(tmp_path):
    process = compiler.start(["sleep", "300"], tmp_path / "x", tmp_path)
    process.stop()
    process.stop()
    assert process.process.returncode == -signal.SIGKILL


def test_a_compiler_for_this_machine_alone_is_not_asked_for_another(tmp_path):
    with pytest.raises(
        CompileError, match="'gcc' compiles for this machine, not for aarch64; `pip install zig"
    ):
        compiler.target_flags(("/usr/bin/gcc",), TARGETS["aarch64"])
    assert compiler.target_flags(("aarch64-linux-gnu-gcc",), TARGETS["aarch64"]) == ()
    zig = ("python", "-m", "ziglang", "cc")
    assert compiler.target_flags(zig, TARGETS["aarch64"]) == ("-target", "aarch64-linux-gnu.2.17")
    assert compiler.target_flags((*zig, "-target", "aarch64-linux-musl"), TARGETS["aarch64"]) == ()
    assert compiler.target_flags(("/usr/bin/clang-18",), TARGETS["aarch64"]) == (
        "--target=aarch64-unknown-linux-gnu",
    )
