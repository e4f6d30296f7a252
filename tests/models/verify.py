"""Holds every model in folders against ONNX Runtime, one library of each at two sizes.

    python tests/models/verify.py FOLDER... [--only PART] [--threads N]

A model of which every size is known gets two draws of its inputs instead. Outputs agree as in `onnxc
verify`, or, where values between have 8 or 16 bits and one that falls the other way changes what follows, as
in `onnxc verify --per-node`; then it also prints how far outputs are from ONNX Runtime's without
optimisations, and how far those with them are. What a model asks of its inputs beyond what its graph tells
(sizes that belong together, an image that is no noise) stands in the tables below.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

import onnxc
from onnxc.commands.comparison import Run, compare, reference
from onnxc.commands.nodes import compare_nodes
from onnxc.frontend.importer import import_model
from onnxc.inputs import generate
from onnxc.ir.expected import Expected, expected_of
from onnxc.loading.loader import Port

#: A size of each of two runs: of first axes, of further axes of images, of any others.
BATCH, IMAGE, LENGTH = (1, 3), (256, 352), (12, 31)
#: Dimensions that are made of others, each of two runs.
DIMENSIONS = {
    "total": (9, 24),
    "past": (8, 23),
    "sequence_length": (7, 1),
    "past_sequence_length": (0, 9),
    "total_sequence_length": (7, 10),
    "image_width": (160, 97),
    "kv_cache_dim": (64, 64),
}
VAD = {"input": [(1, 576), (3, 576)], "state": [(2, 1, 128), (2, 3, 128)]}
#: Shapes of inputs by the file's name.
SHAPES: dict[str, dict[str, list[tuple[int, ...]]]] = {
    "silero_vad": VAD,
    "silero_vad_16k_op15": VAD,
    "silero_vad_half": VAD,
    "silero_vad_op18_ifless": VAD,
    "ch_PP-OCRv4_rec_infer": {"x": [(1, 3, 48, 320), (2, 3, 48, 200)]},
    "ch_ppocr_mobile_v2.0_cls_infer": {"x": [(1, 3, 48, 192), (3, 3, 48, 192)]},
}


def page(shape: Sequence[int]) -> np.ndarray:
    """An image of dark strokes in lines: on noise a text detector's output is all but zero."""
    x = np.ones(shape, np.float32)
    for top in range(20, shape[2] - 20, 40):
        for left in (*range(20, shape[3] - 20, 6), *range(22, shape[3] - 20, 9)):
            x[:, :, top : top + 16, left] = -1
    return x


#: Values of inputs by the file's name and theirs.
VALUES: dict[str, Callable[[Sequence[int]], np.ndarray]] = {"ch_PP-OCRv4_det_infer:x": page}


def feeds(name: str, ports: Sequence[Port], expected: Mapping[str, Expected], run: int) -> dict[str, object]:
    """What a model gets in its first or second run."""
    generator = np.random.default_rng(run)
    found: dict[str, object] = {}
    for port in ports:
        listed = SHAPES.get(name, {}).get(port.name)
        shape = listed[run] if listed else [size_of(port, axis, run) for axis in range(len(port.shape or ()))]
        value = VALUES.get(f"{name}:{port.name}")
        found[port.name] = value(shape) if value else generate(port, shape, generator, expected)
    return found


def size_of(port: Port, axis: int, run: int) -> int:
    size = (port.shape or ())[axis]
    if isinstance(size, int):
        return size
    usual = BATCH if axis == 0 else IMAGE if len(port.shape or ()) == 4 else LENGTH
    return DIMENSIONS.get(size or "", usual)[run]


def rounds(path: Path) -> bool:
    """Whether the model stores or computes something in 8 or 16 bits."""
    graph = onnx.load(path, load_external_data=False).graph
    few = (TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT16)
    quantise = ("DynamicQuantizeLinear", "QuantizeLinear", "MatMulNBits")
    return any(t.data_type in few for t in graph.initializer) or any(
        n.op_type in quantise for n in graph.node
    )


def tolerance(path: Path) -> float | None:
    """2 % where operators round what they read to 8 bits, unseen by others; None, as usual, elsewhere."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    levels = {a.i for n in nodes for a in n.attribute if a.name == "accuracy_level"}
    return 2e-2 if 4 in levels else None


def departing(path: Path, given: dict[str, object]) -> str:
    """The first node that departs when it is given what others give; nothing where all agree."""
    nodes = compare_nodes(path, "onnxruntime", given)
    wrong = [f"{n.node} ({n.op_type}): {n.difference.reason}" for n in nodes if not n.difference.agrees]
    return f"{len(wrong)} of {len(nodes)} values depart, first {wrong[0]}" if wrong else ""


def distances(path: Path, given: dict[str, object], optimised: list, ours: list, threads: int) -> str:
    """How far outputs are, on average, from those of ONNX Runtime without optimisations."""
    plain = reference(path, "onnxruntime", threads, optimise=False)(given)

    def apart(found: list) -> float:
        pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(plain, found)]
        return max(np.abs(a - b).mean() / np.abs(a).max() for a, b in pairs if a.size and a.any())

    mine, its = apart(ours), apart(optimised)
    return f"mean distance from ONNX Runtime without optimisations {mine:.2g}, with them {its:.2g}"


def other(path: Path, threads: int) -> Run:
    """What runs the model in ONNX Runtime, which takes letters from the system's locales: where they name
    none, in C.UTF-8, which every system has."""
    model = onnx.load(path, load_external_data=False)
    normalisers = [n for n in model.graph.node if n.op_type == "StringNormalizer"]
    unnamed = [n for n in normalisers if not any(a.name == "locale" for a in n.attribute)]
    for node in unnamed:
        node.attribute.append(onnx.helper.make_attribute("locale", "C.UTF-8"))
    return reference(model if unnamed else path, "onnxruntime", threads)


def verify(path: Path, threads: int) -> bool:
    """Compiles a model once, runs it twice, and prints what came of it in a line for each run."""
    agrees, rtol = True, tolerance(path)
    with tempfile.TemporaryDirectory() as folder:
        library = onnxc.compile(path, Path(folder) / "model.so")
        theirs, expects = other(path, threads), expected_of(import_model(path).graph)
        with onnxc.load(library, threads=threads) as model:
            for run in range(2):
                given = feeds(path.stem, model.inputs, expects, run)
                expected, ours = theirs(given), model.run(None, given)
                triples = zip(model.outputs, expected, ours, strict=True)
                found = [compare(port.name, wanted, mine, rtol) for port, wanted, mine in triples]
                wrong = [f"{f.name} {f.type} {f.absolute:.3g}: {f.reason}" for f in found if not f.agrees]
                shapes = sorted({f"{list(np.shape(value))}" for value in given.values()})[:3]
                print(f"  {' '.join(shapes)}: {'; '.join(wrong[:3]) or 'agrees'}", flush=True)
                if wrong and rounds(path):
                    print(f"    {distances(path, given, expected, ours, threads)}", flush=True)
                    by_node = departing(path, given)
                    print(f"    by node: {by_node or 'agrees'}", flush=True)
                    wrong = wrong if by_node else []
                agrees = agrees and not wrong
    return agrees


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="PART", help="models whose paths have this part")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    if options.paths[0].is_file():
        return 0 if verify(options.paths[0], options.threads) else 1
    models = [path for folder in options.paths for path in sorted(folder.rglob("*.onnx"))]
    models = [path for path in models if options.only in str(path)]
    departing = []
    for path in models:
        began = time.monotonic()
        print(path, flush=True)
        command = [sys.executable, "-P", __file__, str(path), f"--threads={options.threads}"]
        if subprocess.run(command).returncode:
            departing.append(path.name)
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"{len(models) - len(departing)} of {len(models)} models agree{' but ' if departing else ''}",
        *departing,
    )
    return 1 if departing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
