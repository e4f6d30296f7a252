"""Small models whose generated part is written by hand in C, so that the runtime is tested alone."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np

from onnxc.codegen.library import link, objects, runtime, tables
from onnxc.codegen.library.compiler import find_compiler
from onnxc.codegen.library.files import replacing
from onnxc.codegen.library.interface import LibraryDescription, LoweredDescription, Port
from onnxc.codegen.library.weights import HEAD_BYTES, weights_object
from onnxc.target import find_target

HERE = Path(__file__).parents[1] / "runtime_c"
NOWHERE = 1 << 62  # where `affine` is to fail when it is not to

AFFINE = LibraryDescription(
    prefix="affine",
    name="affine",
    version="test",
    inputs=(Port("x", "float32", ("n",)), Port("b", "float32", ("n",)), Port("fail_at", "int64", ())),
    outputs=(Port("y", "float32", ("n",)),),
    metadata={"author": 'a "quoted" name', "empty": ""},
    lowered=(
        LoweredDescription(
            target="test",
            static=False,
            node_names=("node 'scale' (Mul)", "node 'bias' (Add)", "node 'copy' (Identity)"),
            dim_count=1,
            value_count=1,
            lifetimes=((0, 1), (1, 2)),
        ),
    ),
    weights_bytes=64,
)
DIVIDE = LibraryDescription(
    prefix="divide",
    name="divide",
    version="test",
    inputs=(Port("x", "int32", (2, 3)), Port("d", "int32", (2, 3))),
    outputs=(Port("y", "int32", (2, 3)),),
    lowered=(LoweredDescription(target="test", node_names=("node 'div' (Div)",), scratch_bytes=64),),
)


#: Finds wrong steps and leaks; the most where nothing is optimised away, which is also compiled soonest.
SANITIZERS = "-O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all"


def sanitizing_compiler(folder: Path) -> str:
    """A C compiler, for CC, that puts SANITIZERS behind all other arguments."""
    path = folder / "cc"
    path.write_text(f'#!/bin/sh\nexec cc "$@" {SANITIZERS}\n')
    path.chmod(0o755)
    return str(path)


def cc(*arguments: object) -> None:
    """Runs the C compiler with the runtime in the include path."""
    command = [
        *find_compiler(),
        "-std=c11",
        "-D_GNU_SOURCE",
        "-w",
        f"-I{runtime.SOURCES}",
        f"-I{runtime.HEADERS}",
        f"-I{HERE}",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def said(program: Path, test: str) -> list[str]:
    """The lines that a program prints, which must end with status 0."""
    done = subprocess.run([program, test], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def scale_bytes(scale: float) -> bytes:
    return np.array([scale], np.float32).tobytes().ljust(64, b"\0")


def tables_object(folder: Path, description: LibraryDescription, names: str, shared: bool) -> Path:
    """The object of a library's tables. names: what the runtime's names begin with."""
    generation = objects.CodeGeneration(folder, jobs=1)
    text = tables.tables_text(description, names, shared)
    generation.add("tables", text, find_target().triple, objects.BASELINE)
    return generation.finish()[0]


class Parts:
    """What a library is linked from: the object of a hand-written C file, tables, weights and the runtime."""

    def __init__(
        self,
        folder: Path,
        source: Path,
        description: LibraryDescription,
        weights: bytes,
        flags: tuple[str, ...] = (),
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.description, self.folder = description, folder
        self.object = folder / "generated.o"
        self.weights = folder / "weights.o" if weights else None
        cc("-c", "-fPIC", "-O1", f"-DPREFIX={description.prefix}", *flags, source, "-o", self.object)
        if self.weights is not None:
            self.weights.write_bytes(bytes(HEAD_BYTES) + weights)
            weights_object(self.weights, description.prefix, like=self.object)

    def link(self, output: Path) -> Path:
        kind, prefix = link.output_kind(output), self.description.prefix
        names = runtime.runtime_prefix(kind, prefix)
        with replacing(output) as (temporary,):
            with runtime.start_runtime(self.folder, find_target(), names) as made:
                described = tables_object(self.folder, self.description, made.names, kind == "so")
                parts = [self.object, described, *filter(None, [self.weights])]
                runtime_object = made.wait()
            link.link(
                parts,
                runtime_object,
                temporary,
                directory=self.folder,
                kind=kind,
                prefix=prefix,
                target=find_target(),
                soname=output.name,
            )
        return output


def build(
    folder: Path, source: Path, description: LibraryDescription, weights: bytes = b"", name: str = "model.so"
) -> Path:
    return Parts(folder / "work", source, description, weights).link(folder / name)


def renamed(description: LibraryDescription, prefix: str) -> LibraryDescription:
    return replace(description, prefix=prefix, name=prefix)
