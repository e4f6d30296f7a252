"""`onnxc compile` and what else the command line gives to builds: archives of several models, dependencies,
folders of headers."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.small_models import Weights, parsed

import onnxc
from onnxc.commands.cli import main
from onnxc.version import __version__


@pytest.fixture
def models(tmp_path):
    """Two models, one with its weights in a file of their own."""
    twice = parsed("twice (float[n] x) => (float[n] y) { y = Add (x, x) }")
    w = Weights(1)
    w.add("w", 1000)
    shifted = parsed("shifted (float[1000] x) => (float[1000] y) { y = Add (x, w) }", w)
    onnx.save(twice, tmp_path / "twice.onnx")
    onnx.save(shifted, tmp_path / "my shifted.onnx", save_as_external_data=True, location="weights #1.bin")
    return tmp_path


def test_an_interruption_of_a_text_that_is_executed_is_a_status_too(models):
    """Python would end `python -m` by the signal then."""
    rules = models / "rules.py"
    rules.write_text('exec("import os\\nos.kill(os.getpid(), 2)\\nfor i in range(10**7): pass")')
    command = [sys.executable, "-P", "-m", "onnxc", "compile", models / "twice.onnx", "--operators", rules]
    ended = subprocess.run(
        [*command, "-o", models / "twice.so"],
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in the background
    )
    assert ended.returncode == 130 and not (models / "twice.so").exists()


@pytest.mark.parametrize("place", ["finalizer", "callback", "C"])
@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_request_to_end_is_not_lost_where_it_is_not_raised(models, request_, place):
    """Python ignores what finalizers and callbacks of weak references raise, those of imports too, and some
    code in C makes another error of it."""
    rules = models / "rules.py"
    rules.write_text(f"""
import signal, weakref

class Thing:
    pass

def end(*_):
    signal.raise_signal({int(request_)})

thing = Thing()
if {place == "finalizer"}:
    Thing.__del__ = end
elif {place == "callback"}:
    reference = weakref.ref(thing, end)
else:
    try:
        end()
    except BaseException:
        raise ImportError("a module cannot be imported") from None
del thing
""")
    command = [sys.executable, "-P", "-m", "onnxc", "compile", models / "twice.onnx", "--operators", rules]
    ended = subprocess.run(
        [*command, "-o", models / "twice.so"],
        capture_output=True,
        preexec_fn=lambda: signal.signal(request_, signal.SIG_DFL),  # the background ignores some
    )
    assert ended.returncode == (130 if request_ == signal.SIGINT else -request_)
    assert (ended.stdout, ended.stderr) == (b"", b"") and not (models / "twice.so").exists()


@pytest.mark.parametrize(
    "command",
    [
        "compile twice.onnx -o here/twice.so",
        "compile - -o here/twice.so",
        "reduce twice.onnx -o here/twice.onnx --against reference",
        "run twice.onnx",
        "cache warm twice.onnx",
        "demo",
    ],
)
@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_is_asked_to_end_leaves_neither_files_nor_children(models, command, request_):
    compiler, here, temporary = models / "cc", models / "here", models / "temporary"
    cache = models / "cache"
    for folder in (here, temporary, cache):
        folder.mkdir(mode=0o700)
    compiler.write_text(f'#!/bin/sh\n: > "$TMPDIR/cc1.s"\necho $$ > "{models}/pid"\nexec sleep 300\n')
    compiler.chmod(0o755)
    variables = {"CC": str(compiler), "TMPDIR": str(temporary), "ONNXC_CACHE": str(cache)}
    with (models / "twice.onnx").open("rb") as model:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "onnxc", *command.split()],
            cwd=models,
            env={**os.environ, **variables},
            stdin=model,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(request_, signal.SIG_DFL),  # the background ignores some
        )
    while not (models / "pid").exists() or not (models / "pid").read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(request_)
    assert process.wait(60) == (130 if request_ == signal.SIGINT else -request_)
    assert not list(here.iterdir()) and not list(temporary.iterdir()) and not list(cache.glob(".*"))
    assert not Path("/proc", (models / "pid").read_text().strip()).exists()


@pytest.mark.slow
def test_what_was_tuned_is_the_same_model_and_tells_what_was_tried(models, capsys):
    w = Weights(2)
    w.add("a", 64, 64, 3, 3)
    text = "g (float[1, 64, 28, 28] x) => (float[1, 64, 28, 28] y) { y = Conv <pads = [1, 1, 1, 1]> (x, a) }"
    onnx.save(parsed(text, w), models / "m.onnx")
    command = ["compile", str(models / "m.onnx"), "-o", str(models / "m.so")]
    assert main([*command, "--tune", "0.1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["tuning"]
    assert told.keys() == {"before", "after", "kept", "findings"} and told["findings"]
    assert all(f["measured"] > 0 < f["expected"] for f in told["findings"])
    usual = onnxc.load(onnxc.compile(models / "m.onnx", models / "usual.so"))
    x = w.rng.standard_normal((1, 64, 28, 28)).astype(np.float32)
    np.testing.assert_allclose(
        onnxc.load(models / "m.so").run(None, {"x": x})[0], usual.run(None, {"x": x})[0], rtol=0, atol=1e-2
    )
    onnx.save(parsed(text.replace("float[1,", "float[n,"), w), models / "n.onnx")
    command = ["compile", str(models / "n.onnx"), "-o", str(models / "n.so")]
    assert main([*command, "--tune", "0.1", "--dim", "n=1"]) == 0
    capsys.readouterr()
    assert main([*command, "--tune", "1", "--target", "x86-64-v3,x86-64-v2"]) == 2
    assert "cannot be tuned" in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [["twice.onnx", "-o", "no/x.so"], ["twice.onnx", "my shifted.onnx", "-o", "no/x.a"]]
)
def test_the_file_that_was_named_is_the_one_whose_folder_is_missing(models, monkeypatch, capsys, given):
    """Not its header, of which nobody spoke."""
    monkeypatch.chdir(models)
    assert main(["compile", *given]) == 3
    assert capsys.readouterr().err.startswith(
        f"onnxc: error: {given[-1]}: its folder '{models / 'no'}' does not"
    )


def test_several_models_become_one_archive_with_a_header_each(models, capsys):
    given = [str(models / "twice.onnx"), str(models / "my shifted.onnx")]
    output, rule = models / "models.a", models / "models.d"
    assert main(["compile", *given, "-o", str(output), "--depfile", str(rule), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [entry["output"] for entry in report["models"]] == [str(output)] * 2
    members = subprocess.run(["ar", "t", output], capture_output=True, text=True, check=True).stdout.split()
    assert len(members) == 3 and {"twice.o", "my_shifted.o"} < set(members)
    assert "twice_model(void)" in (models / "twice.h").read_text()
    assert "my_shifted_model(void)" in (models / "my shifted.h").read_text()
    names = ("models.a", "twice.onnx", "my\\ shifted.onnx", "weights\\ \\#1.bin")
    target, first, *others = (f"{models}/{name}" for name in names)
    assert rule.read_text() == " \\\n  ".join([f"{target}: {first}", *others]) + "\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "two.so"], "several models are compiled to one archive; call it OUT.a"),
        (["-o", "two.a", "--name", "a"], "1 names for 2 models"),
        (["-o", "two.a", "--name", "a", "--name", "a"], "two models have one name"),
        (["-o", "two.a", "--name", "a-b", "--name", "a_b"], "'a-b' and 'a_b' would have the same symbols"),
        (["-o", "two.a", "--weights-file", "w"], "--weights-file is for one model"),
    ],
)
def test_what_cannot_be_said_of_several_models_is_refused(models, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(models)
    assert main(["compile", "twice.onnx", "my shifted.onnx", *arguments]) == 2
    assert words in capsys.readouterr().err
    assert not list(models.glob("two.*")) and not list(models.glob("*.tmp"))


def printed(capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 0
    return capsys.readouterr().out.strip()


def test_the_folders_for_other_builds_are_printed(capsys):
    folder = Path(printed(capsys, "--include-dir"))
    assert (folder / "onnxc.h").exists() and str(folder) == onnxc.get_include()
    assert (Path(printed(capsys, "--cmake-dir")) / "onnxcConfig.cmake").exists()
    assert (Path(printed(capsys, "--pkgconfig-dir")) / "onnxc.pc").exists()


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="there is no pkg-config")
def test_pkg_config_knows_where_the_headers_are_and_what_static_linking_takes(capsys, monkeypatch):
    monkeypatch.setenv("PKG_CONFIG_PATH", printed(capsys, "--pkgconfig-dir"))

    def ask(*options):
        command = ["pkg-config", *options, "onnxc"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert ask("--modversion") == [__version__]
    (flag,) = ask("--cflags")
    assert Path(flag.removeprefix("-I")).resolve() == Path(onnxc.get_include())
    assert {"-lm", "-pthread"} <= set(ask("--static", "--libs"))


def test_the_cmake_package_is_of_the_same_version(capsys):
    text = (Path(printed(capsys, "--cmake-dir")) / "onnxcConfigVersion.cmake").read_text()
    assert f"set(PACKAGE_VERSION {__version__})" in text


def test_every_header_and_source_of_the_runtime_names_its_licence():
    folder = Path(onnxc.get_include()).parent
    files = [path for path in folder.rglob("*") if path.suffix in (".c", ".h", ".hpp", ".cmake", ".pc")]
    assert len(files) > 25
    for path in files:
        assert "SPDX-License-Identifier: Apache-2.0" in path.read_text().splitlines()[0], path
