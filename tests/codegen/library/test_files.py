"""Output files: they appear whole, in the place of the old ones, or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from support.handmade_models import AFFINE, HERE, Parts, scale_bytes

from onnxc.codegen.library import files
from onnxc.errors import CompileError, UsageError


def test_a_library_replaces_the_old_one_with_the_users_permissions(tmp_path):
    parts = Parts(tmp_path / "work", HERE / "affine.c", AFFINE, scale_bytes(3))
    output = tmp_path / "model.so"
    output.write_text("old")
    with output.open() as old:
        parts.link(output)
        assert old.read() == "old"
    assert sorted(os.listdir(tmp_path)) == ["model.so", "work"]
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(output.stat().st_mode) == 0o777 & ~mask


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), files.replacing(path) as (temporary,):
        temporary.write_text("half")
        raise RuntimeError
    with pytest.raises(CompileError, match="cannot be written: No space left"), files.replacing(path):
        raise OSError(28, "No space left on device")
    assert (os.listdir(tmp_path), path.read_text()) == (["file"], "old")
    with files.replacing(path) as (temporary,):
        temporary.write_text("new")
    assert (os.listdir(tmp_path), path.read_text()) == (["file"], "new")


def test_an_error_names_the_file_that_was_written_when_it_came(tmp_path):
    paths = [tmp_path / "model.h", tmp_path / "model.so"]
    for other in (None, tmp_path / "work.o"):
        with (
            pytest.raises(CompileError) as caught,
            files.replacing(*paths) as temporaries,
            files.naming(other or temporaries[1]),
        ):
            raise OSError(28, "No space left on device")
        assert str(caught.value) == f"{other or paths[1]}: cannot be written: No space left on device"


def test_a_file_is_written_over_none_that_is_read_and_over_no_other_that_is_written(tmp_path):
    model, link, header = tmp_path / "m.onnx", tmp_path / "link", str(tmp_path / "m.h")
    link.symlink_to(model)
    files.refuse_overwriting([("model", model)], [("library", tmp_path / "m.so"), ("header", header)])
    with pytest.raises(UsageError, match="link: the library would be written over the model"):
        files.refuse_overwriting([("model", model)], [("library", link)])
    with pytest.raises(UsageError, match=r"m\.h: the rule would be written over the header"):
        files.refuse_overwriting([], [("header", header), ("rule", Path(header))])


def test_places_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(CompileError, match="does not exist"):
        files.check_output(tmp_path / "missing" / "model.so")
    with pytest.raises(CompileError, match="is a folder"):
        files.check_output(tmp_path)
    files.check_output(tmp_path / "model.so")
