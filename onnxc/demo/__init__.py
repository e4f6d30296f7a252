"""`onnxc demo`: a small real model through everything, from the .onnx file to a C program.

The model is a digit classifier trained by train.py; digits.npz holds the images that training did not
see, with their labels.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from .. import console
from ..errors import CompileError
from ..loading.loader import Model
from ..options import Options

FOLDER = Path(__file__).parent
SHADES = " .:-=+*#%@"
SHOWN = 6  # images printed
TIMEOUT = 120  # seconds for the C compiler and for the program
REPETITIONS = 2000


def run_demo(keep: Path | None = None, as_json: bool = False) -> int:
    """Compiles, runs from Python and from C, and prints what came of it. 0 when both agree and are as
    accurate as the model says of itself, else 1."""
    with tempfile.TemporaryDirectory(prefix="onnxc-demo-") as temporary:
        folder = Path(temporary)
        if keep is not None:
            folder = keep
            _make_folder(keep)
        found, images, labels, predictions = _run(folder)
    if as_json:
        console.print_json(found)
    else:
        _print(found, images, labels, predictions, keep)
    return 0 if found["agree"] and found["accuracy"] >= found["stated_accuracy"] - 0.5 / len(labels) else 1


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"the folder {folder} cannot be made: {error.strerror}") from None


def _run(folder: Path) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray]:
    from ..driver import compile_model
    from ..loading.loader import load

    data = np.load(FOLDER / "digits.npz")
    images, labels = data["images"].astype(np.float32), data["labels"]
    library = folder / "digits.so"
    began = time.perf_counter()
    with console.Progress("compile digits.onnx") as progress:
        report = compile_model(
            FOLDER / "digits.onnx", library, Options(header=library.with_suffix(".h")), progress=progress
        )
    compile_seconds = time.perf_counter() - began
    began = time.perf_counter()
    model = load(library, threads=1)
    load_seconds = time.perf_counter() - began
    predictions = np.asarray(model(images)).argmax(axis=1)
    from_c, c_seconds = run_c_program(folder, images)
    found = {
        "folder": str(folder),
        "images": len(labels),
        "accuracy": float(np.mean(predictions == labels)),
        "stated_accuracy": float(model.metadata["accuracy"]),
        "agree": bool(np.array_equal(predictions, from_c)),
        "compile_seconds": compile_seconds,
        "load_seconds": load_seconds,
        "python_seconds": _fastest(model, images[:1]),
        "c_seconds": c_seconds,
        "model_bytes": (FOLDER / "digits.onnx").stat().st_size,
        "library_bytes": report.library_bytes,
        "weights_bytes": report.weights_bytes,
        "initializer_bytes": report.initializer_bytes,
    }
    return found, images, labels, predictions


def _fastest(model: Model, image: np.ndarray) -> float:
    """Seconds of the fastest of many runs on one image."""
    best = float("inf")
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        model(image)
        best = min(best, time.perf_counter() - began)
    return best


def run_c_program(folder: Path, images: np.ndarray) -> tuple[np.ndarray, float]:
    """(digits, seconds for one image) of main.c, compiled with the header in `folder` and linked with
    the library there."""
    from ..codegen.library.compiler import find_compiler

    source, program, data = folder / "main.c", folder / "digits", folder / "images.f32"
    source.write_bytes((FOLDER / "main.c").read_bytes())
    data.write_bytes(np.ascontiguousarray(images, np.float32).tobytes())
    _execute(
        [
            *find_compiler(),
            "-std=c11",
            "-O2",
            "-Wall",
            "main.c",
            "digits.so",
            "-Wl,-rpath,$ORIGIN",
            "-o",
            program.name,
        ],
        folder,
    )
    result = _execute([str(program.resolve()), data.name], folder)
    return np.array(result.stdout.split(), np.int64), float(result.stderr.split()[0]) * 1e-9


def _execute(command: list[str], folder: Path) -> subprocess.CompletedProcess:
    name = Path(command[0]).name
    try:
        result = subprocess.run(
            command, cwd=folder, capture_output=True, encoding="utf-8", errors="replace", timeout=TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"'{name}' cannot be run: {error}") from None
    if result.returncode != 0:
        raise CompileError(f"'{name}' failed with status {result.returncode}: {result.stderr.strip()[-600:]}")
    return result


# Printing ----------------------------------------------------------------------------------------


def _print(
    found: dict, images: np.ndarray, labels: np.ndarray, predictions: np.ndarray, keep: Path | None
) -> None:
    print("A perceptron trained on scikit-learn's digits, on images that it has not seen:\n")
    print(picture(images[:SHOWN]))
    print(
        "   ".join(
            f"{f'a {label}, read as {digit}':16}" for label, digit in zip(labels[:SHOWN], predictions[:SHOWN])
        ),
        end="\n\n",
    )
    right = round(found["accuracy"] * found["images"])
    same = "the same digits" if found["agree"] else "OTHER DIGITS"
    seconds, size = console.time_text, console.bytes_text
    console.print_fields(
        [
            (
                "accuracy",
                f"{right} of {found['images']} images, {found['accuracy']:.1%} "
                f"(stated in the model: {found['stated_accuracy']:.1%})",
            ),
            ("from C", f"{same} on all images as from Python" if found["agree"] else same),
            ("compiled in", seconds(found["compile_seconds"])),
            ("loaded in", seconds(found["load_seconds"])),
            (
                "one image",
                f"{seconds(found['python_seconds'])} from Python, {seconds(found['c_seconds'])} from C",
            ),
            (
                "sizes",
                f"model {size(found['model_bytes'])}, library {size(found['library_bytes'])}, of which "
                f"weights {size(found['weights_bytes'])}",
            ),
            (
                "files",
                f"digits.so, digits.h, main.c and digits in {keep}"
                if keep
                else "removed; --keep DIR keeps the library, its header and the C program",
            ),
        ]
    )


def picture(images: np.ndarray) -> str:
    """Images of 0..16 side by side, two characters a pixel."""
    shades = np.array(list(SHADES))[np.rint(images / 16 * (len(SHADES) - 1)).astype(int)]
    return "\n".join(
        "   ".join("".join(f"{c}{c}" for c in image[row]) for image in shades)
        for row in range(images.shape[1])
    )
