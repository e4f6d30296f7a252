"""The examples for other languages, each built in a folder of its own, moved elsewhere, and run there."""

from __future__ import annotations

import os
import shutil

import pytest
from support.examples import SEVEN, Example, build_with_cmake

pytestmark = pytest.mark.outside


@pytest.fixture
def example(request, tmp_path):
    return Example(request.param, tmp_path)


def of(name: str):
    return pytest.mark.parametrize("example", [name], indirect=True, ids=[name])


@of("rust")
def test_a_crate_compiles_the_model_and_wraps_it_safely(example):
    example.run("cargo", "build", "--release", "--offline")
    example.move("target/release/digits")
    assert example.run("./digits", given=2 * SEVEN) == "7\n7\nstatus 2: model 'digits' has 1 inputs, got 0\n"


@of("go")
def test_a_go_program_has_the_model_in_it(example):
    example.run("go", "generate")
    example.run("go", "build", "-o", "digits")
    example.move("digits")
    assert example.run("./digits", given=2 * SEVEN) == "7\n7\n"


@of("node")
def test_an_addon_answers_promises(example):
    example.run("npm", "run", "build") if shutil.which("npm") else example.run("sh", "build.sh")
    example.move("index.js", "digits.node")
    assert example.run("node", "index.js", given=2 * SEVEN) == "7\n7\n"
    script = """
        const { probabilities } = require("./index.js");
        try { probabilities([1, 2]); } catch (error) { console.log(error.message); }
        const one = new Float32Array(64);
        Promise.all(Array.from({ length: 50 }, () => probabilities(one))).then((all) =>
            console.log(all.every((row) => row.length === 10 && row[0] === all[0][0])));"""
    expected = "a Float32Array of images of 64 numbers is expected\ntrue\n"
    assert example.run("node", "-e", script) == expected


def test_cmake_installs_models_that_are_libraries_of_their_own(tmp_path):
    files = build_with_cmake(tmp_path, "-DSHARED_MODELS=ON")
    assert files == {"digits", "libshrink.so", "libdigits.so"}


@of("scratch")
def test_a_static_program_runs_where_there_is_nothing_else(example):
    example.run("sh", "build.sh")
    example.move("digits")
    root = example.folder / "scratch"
    assert [path.name for path in root.iterdir()] == ["digits"]
    as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    assert example.run(*as_root, "chroot", root, "/digits", given=SEVEN) == "7\n"
