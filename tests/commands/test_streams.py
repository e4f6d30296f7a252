"""`-` for a file: models from standard input, libraries and outputs to standard output."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.caches import with_runtime
from support.few_nodes import relu

import onnxc
import onnxc.demo
from onnxc import console
from onnxc.commands.cli import main

DIGITS = Path(onnxc.demo.__file__).parent / "digits.onnx"


@pytest.fixture
def piped(capsysbinary, monkeypatch):
    """Runs a command with bytes on its standard input: (exit status, standard output, standard error)."""
    monkeypatch.setattr(console, "PATIENCE", 600)

    def run(content, *arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        status = main(list(map(str, arguments)))
        printed = capsysbinary.readouterr()
        return status, printed.out, printed.err.decode()

    return run


@pytest.fixture(scope="module")
def image():
    return np.zeros((1, 8, 8), np.float32)


def test_a_model_is_read_from_standard_input_and_its_library_written_to_standard_output(
    piped, tmp_path, image, monkeypatch
):
    monkeypatch.setenv("ONNXC_CACHE", str(with_runtime(tmp_path / "cache")))
    status, library, told = piped(DIGITS.read_bytes(), "compile", "-", "-o", "-")
    assert status == 0
    (tmp_path / "digits.so").write_bytes(library)
    (probabilities,) = onnxc.load(tmp_path / "digits.so").run(None, {"image": image})
    assert abs(probabilities.sum() - 1) < 1e-6
    assert told.startswith("standard output for ") and "header" not in told

    np.save(tmp_path / "image.npy", image)
    arguments = ("run", tmp_path / "digits.so", "--input", f"image={tmp_path / 'image.npy'}", "-o", "-")
    status, outputs, told = piped(b"", *arguments)
    assert status == 0 and "written to standard output" in told
    assert np.array_equal(np.load(io.BytesIO(outputs))["probabilities"], probabilities)


def test_errors_call_it_by_its_name(piped):
    status, printed, told = piped(b"junk", "compile", "-", "-o", "-")
    assert (status, printed) == (1, b"")
    assert told.startswith("onnxc: error: standard input: the file is text")


def test_a_library_whose_weights_are_elsewhere_is_not_written_to_a_stream(piped, tmp_path):
    arguments = ("compile", DIGITS, "-o", "-", "--weights-file", tmp_path / "x.weights")
    status, printed, told = piped(b"", *arguments)
    assert (status, printed, list(tmp_path.iterdir())) == (2, b"", [])
    assert "weights in a file of their own" in told


def test_a_rule_is_not_written_of_a_library_without_a_name(piped, tmp_path):
    status, printed, told = piped(b"", "compile", DIGITS, "-o", "-", "--depfile", tmp_path / "x.d")
    assert (status, printed, list(tmp_path.iterdir())) == (2, b"", [])
    assert "a rule is of a library in a file" in told


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def test_a_terminal_is_not_waited_for(piped, monkeypatch):
    monkeypatch.setattr(io, "TextIOWrapper", Terminal)
    status, _, told = piped(b"", "check", "-")
    assert status == 3 and "standard input is a terminal" in told


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("check - <&-", "standard input is closed"),
        ("run {model} -o - >&-", "standard output is closed"),
        ("run {model} -o - >/dev/full", "standard output: No space left on device"),
    ],
)
def test_a_stream_that_is_closed_or_full_is_told_in_one_line(tmp_path, command, words):
    onnx.save(relu(), tmp_path / "relu.onnx")
    line = f"{sys.executable} -P -m onnxc {command.format(model=tmp_path / 'relu.onnx')}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    told = [line for line in done.stderr.splitlines() if not line.startswith("compile ")]
    assert done.returncode == 3 and len(told) == 1 and words in told[0], told


def test_bytes_of_paths_that_are_not_utf8_are_printed_as_messages_have_them(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.onnx")
    shutil.copy(DIGITS, path)
    command = [sys.executable, "-m", "onnxc", "cache", "warm", path]
    printed = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path).stdout
    assert printed.startswith(b"%b/\\xff.onnx: " % os.fsencode(tmp_path))
