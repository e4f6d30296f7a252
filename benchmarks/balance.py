"""How steps divide over threads: `python benchmarks/balance.py MODEL.onnx ... [--threads 2 8 64]`.

From estimates alone: each step's parts are cut into a piece a thread, as the runtime does it; all parts take
equally long, and no thread takes on what another has not begun. Prints how much faster each number of threads
is than one, and, of the most threads, the steps that keep them idle for longest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from onnxc.codegen.lowering.lower import lower
from onnxc.frontend.importer import import_model
from onnxc.ir import dims
from onnxc.passes.pipeline import optimise
from onnxc.target import find_target

PIECE_NS = 2000  # of runtime_c/parallel.c: a shorter piece stays whole
JOIN_NS = 500  # to start and join threads


def taken(work: float, parts: int, threads: int) -> float:
    """Nanoseconds of a step of so much work in so many parts on so many threads."""
    pieces = min(threads, int(work / PIECE_NS), parts)
    return work if pieces <= 1 else work / parts * -(-parts // pieces) + JOIN_NS


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.onnx")
    parser.add_argument("--threads", nargs="+", type=int, default=[2, 8, 64])
    parser.add_argument("--steps", type=int, default=0, help="how many of the worst steps to print")
    options = parser.parse_args()
    most, target = max(options.threads), find_target()
    print(f"{'':24}{'steps':>7}{'ms':>9}" + "".join(f"{f'x{n}':>8}" for n in options.threads))
    for path in options.models:
        lowered = lower(optimise(import_model(path).graph, target), target)
        steps = [
            (dims.typical(step.work), dims.typical(step.parts), node)
            for node, code in lowered.codes.items()
            for step in code.steps
        ]
        total = sum(work for work, _, _ in steps)
        gains = [total / sum(taken(work, parts, n) for work, parts, _ in steps) for n in options.threads]
        print(f"{path.stem:24}{len(steps):7}{total / 1e6:9.2f}" + "".join(f"{gain:8.2f}" for gain in gains))
        idle = sorted(steps, key=lambda s: s[0] / most - taken(s[0], s[1], most))
        for work, parts, node in idle[: options.steps]:
            time = taken(work, parts, most)
            print(
                f"  {work / 1e3:9.1f} us, {parts:5} parts, {time / 1e3:8.1f} us: {node.origin}: {node.choice}"
            )


if __name__ == "__main__":
    main()
