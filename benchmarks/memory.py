"""What a compiled library costs a C program: `python benchmarks/memory.py model.so [--shape x=1,3]`.

Builds memory.c with the C compiler, lets it load the library and run it on zeros, and prints the load
time and the peak of resident memory beside weights and workspace.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from onnxc.codegen.library.compiler import find_compiler
from onnxc.codegen.library.runtime import HEADERS
from onnxc.console import bytes_text, time_text
from onnxc.inputs import resolve_shapes
from onnxc.loading.loader import load

SOURCE = Path(__file__).with_name("memory.c")
STARTS = 5  # of the program; the fastest load counts


def measure(
    library: Path,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    values: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """What memory.c prints, of several starts the fastest load and the largest peak, with inputs of zeros or,
    where `values` has them, of an integer."""
    model = load(library)
    resolved = resolve_shapes(model.inputs, dims or {}, shapes or {})
    arguments = [
        f"{','.join(map(str, resolved[port.name]))}={(values or {}).get(port.name, 0)}"
        for port in model.inputs
    ]
    model.close()
    with tempfile.TemporaryDirectory(prefix="onnxc-memory-") as folder:
        program = Path(folder) / "memory"
        subprocess.run(
            [
                *find_compiler(),
                "-std=c11",
                "-D_GNU_SOURCE",
                "-O2",
                f"-I{HEADERS}",
                str(SOURCE),
                "-o",
                str(program),
                "-ldl",
            ],
            check=True,
        )
        command = [str(program), str(library.resolve()), *arguments]
        starts = [
            json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            for _ in range(STARTS)
        ]
    found = min(starts, key=lambda start: start["load_seconds"])
    return {
        **found,
        "peak_bytes": max(start["peak_bytes"] for start in starts),
        "fastest_run_seconds": min(start["fastest_run_seconds"] for start in starts),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--shape", action="append", default=[], metavar="INPUT=N,N,...")
    options = parser.parse_args()
    dims = {name: int(size) for name, _, size in (text.rpartition("=") for text in options.dim)}
    shapes = {
        name: tuple(map(int, sizes.split(",")))
        for name, _, sizes in (text.rpartition("=") for text in options.shape)
    }
    found = measure(options.library, dims, shapes)
    found["besides_bytes"] = max(0, found["peak_bytes"] - found["weights_bytes"] - found["workspace_bytes"])
    seconds = {key: time_text(value) for key, value in found.items() if key.endswith("_seconds")}
    size = {key: bytes_text(value) for key, value in found.items() if key.endswith("_bytes")}
    print(
        f"load {seconds['load_seconds']}, first run {seconds['first_run_seconds']}, "
        f"fastest {seconds['fastest_run_seconds']}"
    )
    print(
        f"peak {size['peak_bytes']}: weights {size['weights_bytes']}, workspace {size['workspace_bytes']}, "
        f"and {size['besides_bytes']} besides, of which inputs {size['input_bytes']} and outputs "
        f"{size['output_bytes']}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
