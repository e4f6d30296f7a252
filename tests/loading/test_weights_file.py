"""Weights in a file of their own: compiling, loading, moving and losing the pair, from Python and from C."""

import json
import os
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import small_models
from support.bad_models import external
from support.caches import with_runtime

import onnxc
from onnxc import CompileError, InferenceSession, LoadError
from onnxc.codegen.library.compiler import find_compiler
from onnxc.codegen.library.files import replacing
from onnxc.commands.cli import main
from onnxc.console import bytes_text
from onnxc.driver import compile_model

IMAGE = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "images.onnx"
    onnx.save(small_models.images(), path)
    return path


@pytest.fixture(scope="module")
def compiled(model):
    """The library with its weights in it, and the one with a side file, compiled once."""
    folder = model.parent
    onnxc.compile(model, folder / "whole.so")
    onnxc.compile(model, folder / "images.so", weights_file=folder / "images.weights")
    return folder


@pytest.fixture
def pair(compiled, tmp_path):
    """A library and its side file of one's own."""
    for name in ("images.so", "images.weights"):
        shutil.copy(compiled / name, tmp_path)
    return tmp_path / "images.so"


def answer(path, **options):
    with onnxc.load(path, **options) as library:
        return library.run(None, {"image": IMAGE})[0]


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


# What is compiled


@pytest.mark.slow
def test_a_library_beside_its_weights_gives_the_bits_of_a_whole_one(compiled):
    assert np.array_equal(answer(compiled / "images.so"), answer(compiled / "whole.so"))


def test_the_weights_are_in_the_side_file_alone(compiled):
    description = onnxc.load(compiled / "images.so").description
    assert description["weights_file"] == "images.weights"
    assert description["weights_bytes"] + 4096 == (compiled / "images.weights").stat().st_size
    weights = (compiled / "images.weights").read_bytes()[4096:]
    assert weights in (compiled / "whole.so").read_bytes()
    assert weights[:1024] not in (compiled / "images.so").read_bytes()


@pytest.mark.slow
def test_the_command_line_writes_and_reports_the_side_file(model, tmp_path, capsys):
    arguments = [
        "compile",
        str(model),
        "-o",
        str(tmp_path / "a.so"),
        "--weights-file",
        str(tmp_path / "a.bin"),
    ]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["weights_file"] == str(tmp_path / "a.bin")
    assert (tmp_path / "a.bin").stat().st_size == 4096 + report["weights_bytes"]
    assert names(tmp_path) == ["a.bin", "a.h", "a.so"]
    assert main(arguments) == 0
    assert f"packed weights  {bytes_text(report['weights_bytes'])} in {tmp_path / 'a.bin'}\n" in (
        capsys.readouterr().out
    )


def test_inspect_shows_a_library_and_where_its_weights_are(pair, capsys):
    assert main(["inspect", str(pair)]) == 0
    assert "weights file       images.weights" in capsys.readouterr().out
    assert main(["inspect", str(pair), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["about"]["weights_file"] == "images.weights"
    assert main(["inspect", str(pair.with_name("images.weights"))]) == 1
    assert "the weights of a compiled library, not an ONNX model" in capsys.readouterr().err


def test_more_weights_than_a_library_holds_go_to_a_side_file(model, tmp_path, monkeypatch):
    whole = compile_model(model, tmp_path / "a.so")
    monkeypatch.setattr("onnxc.driver.LIBRARY_LIMIT", 10_000)
    report = compile_model(model, tmp_path / "a.so")
    assert report.weights_file == str(tmp_path / "a.so.weights")
    assert report.library_bytes <= whole.library_bytes - whole.weights_bytes + 4096  # a page that they shared
    assert names(tmp_path) == ["a.so", "a.so.weights"]
    assert answer(tmp_path / "a.so").shape == (2, 10)


def test_equal_models_give_equal_pairs(model, compiled, tmp_path):
    onnxc.compile(model, tmp_path / "images.so", weights_file=tmp_path / "images.weights")
    for name in ("images.so", "images.weights"):
        assert (tmp_path / name).read_bytes() == (compiled / name).read_bytes()


# Where it is


def test_the_pair_may_be_moved_together(pair, tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("images.so", "images.weights"):
        (tmp_path / name).rename(tmp_path / "there" / name)
    assert answer(tmp_path / "there" / "images.so").shape == (2, 10)


@pytest.mark.parametrize("weights", ["elsewhere/w", "lib/deep/w", 'lib/o"d d\\n??/é%s'])
def test_the_side_file_may_be_in_another_folder(model, tmp_path, weights):
    for folder in ("lib/deep", "elsewhere", str(Path(weights).parent)):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    onnxc.compile(model, tmp_path / "lib" / "a.so", weights_file=tmp_path / weights)
    tmp_path.rename(tmp_path.with_name("moved"))
    assert answer(tmp_path.with_name("moved") / "lib" / "a.so").shape == (2, 10)
    tmp_path.with_name("moved").rename(tmp_path)


def test_the_caller_may_say_where_the_side_file_is(pair, tmp_path):
    (tmp_path / "images.weights").rename(tmp_path / "w")
    assert answer(pair, weights=tmp_path / "w").shape == (2, 10)


def test_a_missing_side_file_is_one_sentence(pair, capsys):
    pair.with_name("images.weights").unlink()
    assert main(["run", str(pair)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"onnxc: error: {pair}: the weights '{pair.parent}/images.weights' cannot be opened: "
        "No such file or directory"
    )


def test_weights_of_another_build_are_refused(pair, tmp_path):
    other = small_models.images()
    other.graph.initializer[0].raw_data = bytes(len(other.graph.initializer[0].raw_data))
    onnxc.compile(other, tmp_path / "other.so", weights_file=tmp_path / "images.weights")
    with pytest.raises(LoadError, match="does not hold the weights of this build of model 'images'"):
        onnxc.load(pair)


@pytest.mark.slow
def test_the_cache_holds_the_pair_and_completes_it(model, tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXC_CACHE", str(with_runtime(tmp_path)))
    monkeypatch.setattr("onnxc.driver.LIBRARY_LIMIT", 10_000)
    for _ in range(2):
        session = InferenceSession(model)
        assert session.run(None, {"image": IMAGE})[0].shape == (2, 10)
        session.model.close()
        beside = (
            "runtime-",
            "objects",
            "path-",
            "content-",
            ".",
        )  # of what they are made, what leads to them
        library, weights = (name for name in names(tmp_path) if not name.startswith(beside))
        assert weights == f"{library}.weights"
        (tmp_path / weights).unlink()


# What is written, and over what


@pytest.mark.slow
def test_a_failure_leaves_the_old_pair(pair, model, tmp_path, monkeypatch):
    old = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CompileError, match="'false' failed"):
        onnxc.compile(small_models.text(), pair, weights_file=pair.with_name("images.weights"))
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == old


@pytest.mark.slow
def test_weights_for_which_there_is_no_room_are_one_sentence(model, tmp_path):
    command = [
        sys.executable,
        "-P",
        "-m",
        "onnxc",
        "compile",
        model,
        "-o",
        tmp_path / "a.so",
        "--weights-file",
        tmp_path / "w",
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
    )
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert (done.returncode, errors, names(tmp_path)) == (
        3,
        [f"onnxc: error: the weights cannot be written to '{tmp_path}': File too large"],
        [],
    )


@pytest.mark.parametrize("old", [True, False])
def test_a_pair_is_renamed_as_one(tmp_path, monkeypatch, old):
    weights, library = tmp_path / "w", tmp_path / "l"
    for path in (weights, library):
        if old:
            path.write_text("old")
    rename = os.replace

    def failing(source, target):
        if Path(target) == library:
            raise PermissionError(1, "Operation not permitted", os.fspath(source))
        rename(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with (
        pytest.raises(CompileError, match="l: cannot be written: Operation not permitted"),
        replacing(weights, library) as temporaries,
    ):
        for temporary in temporaries:
            temporary.write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == (
        {"w": "old", "l": "old"} if old else {}
    )


def test_pairs_written_at_once_do_not_mix(tmp_path):
    weights, library = tmp_path / "w", tmp_path / "l"

    def write(text):
        with replacing(weights, library) as temporaries:
            for temporary in temporaries:
                temporary.write_text(text)

    with ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            list(pool.map(write, map(str, range(8))))
            assert weights.read_text() == library.read_text()
    assert names(tmp_path) == ["l", "w"]


@pytest.mark.parametrize("weights", ["model.onnx", "w.bin", "./a.so", "a.h"])
def test_weights_are_not_written_over_what_is_read_or_written_besides(tmp_path, weights):
    path = external()(tmp_path)
    folder = path.parent
    before = {name: (folder / name).read_bytes() for name in names(folder)}
    with pytest.raises(CompileError, match="would be written over"):
        onnxc.compile(path, folder / "a.so", header=folder / "a.h", weights_file=folder / weights)
    assert {name: (folder / name).read_bytes() for name in names(folder)} == before


def test_a_place_that_cannot_be_written_is_refused(model, tmp_path):
    with pytest.raises(CompileError, match="does not exist"):
        onnxc.compile(model, tmp_path / "a.so", weights_file=tmp_path / "missing" / "w")
    with pytest.raises(CompileError, match="is a folder"):
        onnxc.compile(model, tmp_path / "a.so", weights_file=tmp_path)
    assert names(tmp_path) == []


# From C

PROGRAM = """
    #include <stdio.h>
    #include "images.h"
    int main(int count, char **arguments) {
        onnxc_options options = {.struct_size = sizeof options, .threads = 1};
        if (count > 1) options.weights_path = arguments[1];
        onnxc_context *context;
        int status = images_model()->create(&options, &context);
        printf("%d %s", status, status == ONNXC_OK ? IMAGES_WEIGHTS_FILE : images_model()->last_error(NULL));
        if (status != ONNXC_OK) return 0;
        static const float image[IMAGES_IMAGE_ELEMENTS] = {1};
        float probabilities[IMAGES_PROBABILITIES_ELEMENTS], sum = 0;
        status = images_run(context, image, probabilities);
        for (int i = 0; i < 10; i++) sum += probabilities[i];
        images_model()->destroy(context);
        return status != ONNXC_OK || sum < 0.99f || sum > 1.01f;
    }"""


@pytest.fixture(params=["images.o", "images.so"])
def program(request, model, tmp_path):
    """A C program with the model in it, or with its library beside it."""
    output = tmp_path / request.param
    pinned = [f"--dim={name}" for name in ("batch=1", "height=32", "width=32")]
    assert (
        main(["compile", str(model), "-o", str(output), "--weights-file", str(tmp_path / "w"), *pinned]) == 0
    )
    (tmp_path / "main.c").write_text(PROGRAM)
    subprocess.run(
        [
            *find_compiler(),
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
            tmp_path / "main.c",
            output,
            "-o",
            tmp_path / "program",
            "-Wl,-rpath,$ORIGIN",
            "-lm",
            "-pthread",
        ],
        check=True,
        timeout=300,
    )
    return tmp_path / "program"


def said(program, *arguments, **settings):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, **settings)
    assert done.returncode == 0
    return done.stdout


def test_a_program_finds_the_weights_from_wherever_it_is_started(program, tmp_path):
    assert said(program) == "0 w"
    assert said("./program", cwd=tmp_path) == "0 w"
    (tmp_path / "folder").mkdir()
    assert said("program", cwd=tmp_path / "folder", env={"PATH": str(tmp_path)}) == "0 w"
    assert said("another name", executable=program, cwd=tmp_path / "folder") == "0 w"
    (tmp_path / "folder" / "alias").symlink_to(program)
    assert said(tmp_path / "folder" / "alias") == "0 w"


def test_a_program_without_the_weights_gets_a_status_and_a_sentence(program, tmp_path):
    (tmp_path / "w").rename(tmp_path / "v")
    assert said(program) == f"20 the weights '{tmp_path}/w' cannot be opened: No such file or directory"
    assert said(program, tmp_path / "v") == "0 w"
    (tmp_path / "w").write_text("text")
    assert said(program) == f"20 '{tmp_path}/w' is not a file of weights"
    assert said(program, "/" + "x" * 5000) == "20 the path of the weights is too long"
