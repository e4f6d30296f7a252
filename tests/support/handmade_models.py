"""Small models whose generated part is written by hand in C, so that the runtime is tested alone."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnxc.codegen.library import link, model_c
from onnxc.codegen.library.model_c import LibraryDescription, Port

from onnxc.target import find_target

HERE = Path(__file__).parents[1] / "runtime_c"
NOWHERE = 1 << 62  # where `affine` is to fail when it is not to

AFFINE = LibraryDescription(
    prefix="affine",
    name="affine",
    version="test",
    target="test",
    static=False,
    inputs=(Port("x", "float32", ("n",)), Port("b", "float32", ("n",)), Port("fail_at", "int64", ())),
    outputs=(Port("y", "float32", ("n",)),),
    node_names=("node 'scale' (Mul)", "node 'bias' (Add)", "node 'copy' (Identity)"),
    metadata={"author": 'a "quoted" name', "empty": ""},
    dim_count=1,
    value_count=1,
    lifetimes=((0, 1), (1, 2)),
    weights_bytes=64,
)
DIVIDE = LibraryDescription(
    prefix="divide",
    name="divide",
    version="test",
    target="test",
    inputs=(Port("x", "int32", (2, 3)), Port("d", "int32", (2, 3))),
    outputs=(Port("y", "int32", (2, 3)),),
    node_names=("node 'div' (Div)",),
    scratch_bytes=64,
)


def cc(*arguments: object) -> None:
    """Runs the C compiler with the runtime in the include path."""
    command = [
        *link.find_compiler(),
        "-std=c11",
        "-D_GNU_SOURCE",
        "-w",
        f"-I{model_c.RUNTIME}",
        f"-I{HERE}",
        *map(str, arguments),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def scale_bytes(scale: float) -> bytes:
    return np.array([scale], np.float32).tobytes().ljust(64, b"\0")


class Parts:
    """What a library is linked from: the object of a hand-written C file, model.c and weights."""

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
        self.weights = folder / "weights.bin"
        self.weights.write_bytes(weights)
        cc("-c", "-fPIC", "-O1", f"-DPREFIX={description.prefix}", *flags, source, "-o", self.object)

    def link(self, output: Path, **options) -> Path:
        weights = self.weights if self.weights.stat().st_size > 0 else None
        with link.replacing(output) as (temporary,):
            link.link(
                [self.object],
                model_c.model_source(self.description),
                weights,
                temporary,
                directory=self.folder,
                kind=link.output_kind(output),
                prefix=self.description.prefix,
                target=find_target(),
                **options,
            )
        return output


def build(
    folder: Path, source: Path, description: LibraryDescription, weights: bytes = b"", name: str = "model.so"
) -> Path:
    return Parts(folder / "work", source, description, weights).link(folder / name)


def renamed(description: LibraryDescription, prefix: str) -> LibraryDescription:
    return replace(description, prefix=prefix, name=prefix)
