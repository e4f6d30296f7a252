"""The examples for other languages, each built in a folder of its own, moved elsewhere, and run there."""

from __future__ import annotations

import shutil

import pytest
from support.examples import DRAWING, SEVEN, Example, build_with_cmake

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


#: A C compiler that brings musl, for programs that need nothing of the machine.
MUSL = "python3 -m ziglang cc -target x86_64-linux-musl"


@of("scratch")
def test_a_static_program_runs_where_there_is_nothing_else(example):
    example.run("sh", "build.sh")
    assert example.run_alone("digits", given=SEVEN) == "7\n"


@of("c")
def test_a_static_program_of_two_models(example):
    example.run("make", f"CC={MUSL}", "LDFLAGS=-static")
    assert example.run_alone("digits", given=DRAWING).startswith("7\n")


@of("go")
def test_a_static_program_in_go(example):
    example.run("go", "generate", CC=MUSL)
    example.run("go", "build", "-ldflags", "-linkmode external -extldflags -static", "-o", "digits", CC=MUSL)
    assert example.run_alone("digits", given=2 * SEVEN) == "7\n7\n"


@of("rust")
def test_a_static_program_in_rust(example):
    """With glibc: crates for musl need a standard library for it, which is rustup's to bring."""
    host = next(
        line.split()[1] for line in example.run("rustc", "-vV").splitlines() if line.startswith("host:")
    )
    static = {"RUSTFLAGS": "-C target-feature=+crt-static"}
    example.run("cargo", "build", "--release", "--offline", "--target", host, **static)
    assert example.run_alone(f"target/{host}/release/digits", given=SEVEN).startswith("7\n")
