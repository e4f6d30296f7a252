"""What commands write takes the place of nothing that they read, nor of anything else that they write."""

import io
import shutil
import subprocess
import sys
from argparse import Namespace

import numpy as np
import onnx
import pytest
from support.bad_models import external
from support.few_nodes import relu

from onnxc.commands import compilation
from onnxc.commands.cli import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a model and inputs for it."""
    monkeypatch.chdir(tmp_path)
    onnx.save(relu(), "a.onnx")
    shutil.copy("a.onnx", "b.onnx")
    np.savez("in.npz", x=np.ones(2, np.float32))
    return tmp_path


def contents(folder):
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("compile a.onnx -o a.so --depfile a.onnx", "a.onnx: the rule would be written over the model"),
        ("compile a.onnx -o a.so --depfile a.so", "a.so: the rule would be written over the output"),
        ("compile a.onnx -o a.so --depfile ./a.h", "a.h: the rule would be written over the header"),
        ("compile a.onnx b.onnx -o b.a --depfile b.onnx", "the rule would be written over the model"),
        ("compile a.onnx -o a.so --depfile no/a.d", "no/a.d: its folder"),
        ("compile a.onnx -o a.so --depfile .", ".: is a folder"),
        ("run a.onnx -o a.onnx", "a.onnx: the output would be written over the model"),
        ("run a.onnx --input in.npz -o in.npz", "in.npz: the output would be written over the input"),
        ("run a.onnx --input x=in.npz -o in.npz", "in.npz: the output would be written over the input"),
        ("reduce a.onnx -o a.onnx", "a.onnx: the output would be written over the model"),
        ("reduce a.onnx -o in.onnx --input in.npz", "in.npz: the inputs would be written over the input"),
        ("run a.onnx -o no/y.npz", "no/y.npz: its folder"),
        ("reduce a.onnx -o no/b.onnx", "no/b.onnx: its folder"),
        ("profile a.onnx --trace a.onnx", "a.onnx: the trace would be written over the model"),
        ("profile a.onnx --html t --trace t", "t: the page would be written over the trace"),
        ("profile a.onnx --html no/t.html", "no/t.html: its folder"),
    ],
)
def test_nothing_is_done_where_a_file_would_be_lost_or_have_no_place(folder, capsys, command, words):
    before = contents(folder)
    assert main(command.split()) == (2 if "written over" in words else 3)
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert contents(folder) == before


def test_a_rule_does_not_take_the_place_of_external_data(folder, capsys):
    path = external()(folder)
    data = path.parent / "w.bin"
    assert main(["compile", str(path), "-o", "c.so", "--depfile", str(data)]) == 2
    assert "the rule would be written over the external data" in capsys.readouterr().err
    assert data.read_bytes() == bytes(8)
    assert not (folder / "c.so").exists()


def test_headers_of_an_archive_do_not_take_the_place_of_external_data(folder, capsys):
    path = external("c.h", prepare=lambda home: (home / "c.h").write_bytes(bytes(8)))(folder)
    path = path.rename(path.parent / "c.onnx")
    assert main(["compile", "a.onnx", str(path), "-o", "b.a", "--header", str(path.parent)]) == 2
    assert "c.h: the header would be written over the external data" in capsys.readouterr().err
    assert not (folder / "b.a").exists()


def test_a_rule_names_files_of_any_bytes(folder):
    name = b"\xff a.onnx".decode(errors="surrogateescape")
    shutil.copy("a.onnx", name)
    assert main(["compile", name, "-o", "a.so", "--depfile", "a.d"]) == 0
    assert (folder / "a.d").read_bytes() == b"a.so: " + bytes(folder) + b"/\xff\\ a.onnx\n"


@pytest.mark.parametrize("name", ["a\\b", "a b", "a\\ b", "a\\\\#b", "a$b"])
def test_make_reads_a_rule_with_any_name(folder, name):
    options = Namespace(depfile=folder / "a.d", output="a.so", calibration=[], value_files=[name], piped=None)
    compilation._write_depfile(options, [])
    (folder / name).touch()
    (folder / "a.d").write_text((folder / "a.d").read_text() + "\t@echo made\n")
    done = subprocess.run(["make", "-f", "a.d"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("made\n", "")


def test_a_rule_does_not_name_standard_input(folder, monkeypatch):
    with open("a.onnx", "rb") as model:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(model))
        assert main(["compile", "-", "-o", "a.so", "--depfile", "a.d", "--value", "x=[1,2]"]) == 0
    assert (folder / "a.d").read_text() == "a.so: \n"


def test_a_rule_names_the_files_of_calibration_and_no_numbers(folder):
    np.save("of=x.npy", np.ones(2, np.float32))
    for given, read in (("x=of=x.npy", [b"of=x.npy"]), ("in.npz", [b"in.npz"]), ("x=0.5", [])):
        asked = ["--weights", "int8", "--calibration", given, "--depfile", "a.d"]
        assert main(["compile", "a.onnx", "-o", "a.so", *asked]) == 0
        names = [bytes(folder) + b"/" + name for name in (b"a.onnx", *read)]
        assert (folder / "a.d").read_bytes() == b"a.so: " + b" \\\n  ".join(names) + b"\n"


def test_files_of_values_are_in_the_rule_and_stay(folder, capsys):
    np.save("x.npy", np.ones(2, np.float32))
    before = contents(folder)
    asked = ["compile", "a.onnx", "-o", "a.so", "--value", "x=x.npy", "--depfile"]
    assert main([*asked, "x.npy"]) == 2
    assert "x.npy: the rule would be written over the value" in capsys.readouterr().err
    assert contents(folder) == before
    assert main([*asked, "a.d"]) == 0
    assert (folder / "a.d").read_text().endswith(f"{folder}/x.npy\n")


def test_the_name_of_an_output_is_none_of_an_input(folder):
    assert main(["run", "a.onnx", "--input", "in.npz", "-o", "x=in.npz"]) == 0
    assert (folder / "x=in.npz").exists()
