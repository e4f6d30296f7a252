"""How long a model takes to open: in a new process from a warm cache, over the import of numpy, and again.

    python benchmarks/opening.py MODEL.onnx... [--processes N]

Milliseconds, minimum and median over processes of their own: `import onnxc.onnxruntime` and
`InferenceSession(path)` after `import numpy`; the same path opened again; and how many of four processes that
start on an empty cache compile."""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys
from time import perf_counter
import numpy
began = perf_counter()
import onnxc.onnxruntime as onnxruntime
imported = perf_counter()
first = onnxruntime.InferenceSession(sys.argv[1])
opened = perf_counter()
again = onnxruntime.InferenceSession(sys.argv[1])
print([1e3 * (opened - began), 1e3 * (imported - began), 1e3 * (perf_counter() - opened)])
"""
COMPILING = """
import logging, sys
logging.basicConfig(level="INFO", format="%(message)s")
import onnxc.onnxruntime as onnxruntime
onnxruntime.InferenceSession(sys.argv[1])
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--processes", type=int, default=30, metavar="N")
    options = parser.parse_args()
    print(f"{'':30} {'new process':>15} {'of it import':>15} {'again':>15}   compiled by")
    for model in options.models:
        compiled = compilers(model)
        opened(model)
        rows = zip(*(opened(model) for _ in range(options.processes)))
        text = " ".join(f"{min(row):7.2f} {statistics.median(row):7.2f}" for row in rows)
        print(f"{model.name:30} {text}   {compiled} of 4", flush=True)


def opened(model: Path) -> list[float]:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM, model], capture_output=True, check=True)
    return json.loads(done.stdout)


def compilers(model: Path) -> int:
    """How many of four processes that begin at once on an empty cache compile the model."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ONNXC_CACHE": folder}
        command = [sys.executable, "-P", "-c", COMPILING, model]
        started = [
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) for _ in range(4)
        ]
        return sum("compiled " in process.communicate()[1] for process in started)


if __name__ == "__main__":
    logging.basicConfig()
    main()
