"""The demo: a model, its library, Python and a C program that agree."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxc.demo
from onnxc import demo
from onnxc.commands.cli import main

FOLDER = Path(onnxc.demo.__file__).parent


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """What `onnxc demo --json --keep` left."""
    folder = tmp_path_factory.mktemp("demo") / "new"
    assert main(["demo", "--json", "--keep", str(folder)]) == 0
    return folder


@pytest.mark.slow
def test_the_model_states_its_accuracy_and_the_library_reaches_it(capsys):
    assert main(["demo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    stated = {p.key: p.value for p in onnx.load(FOLDER / "digits.onnx").metadata_props}["accuracy"]
    assert found["images"] == 450
    assert found["stated_accuracy"] == float(stated)
    assert found["accuracy"] == pytest.approx(float(stated), abs=1e-4)


def test_python_and_c_agree_on_every_image(capsys):
    main(["demo", "--json"])
    assert json.loads(capsys.readouterr().out)["agree"] is True


def test_kept_are_the_library_its_header_and_the_program(kept):
    assert {"digits.so", "digits.h", "main.c", "digits"} <= {entry.name for entry in kept.iterdir()}


def test_the_program_reads_the_images_that_it_is_given(kept):
    images = np.load(FOLDER / "digits.npz")["images"]
    few = demo.run_c_program(kept, images[:7])[0]
    assert np.array_equal(few, onnxc.load(kept / "digits.so")(images[:7].astype(np.float32)).argmax(axis=1))


def test_the_program_tells_what_it_cannot_read(kept):
    import subprocess

    done = subprocess.run([kept / "digits", kept / "gone"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage:")


def test_without_keep_nothing_stays(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["demo"]) == 0
    assert not list(tmp_path.iterdir())
    printed = capsys.readouterr().out
    for words in ("read as", "439 of 450 images", "the same digits on all images", "one image", "weights"):
        assert words in printed


def test_a_folder_that_cannot_be_made_is_told(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--keep", str(tmp_path / "file" / "x")]) == 3
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("onnxc: error: the folder")


def test_a_picture_has_a_line_a_row_and_two_characters_a_pixel():
    dark, light = np.zeros((8, 8)), np.full((8, 8), 16)
    lines = demo.picture(np.array([dark, light])).splitlines()
    assert lines == [" " * 16 + "   " + "@" * 16] * 8
