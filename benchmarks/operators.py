"""Every operator's time against ONNX Runtime's, at a size that users have, in one thread.

    python benchmarks/operators.py [--grid] [--part 1/4] [--compile] [--json FILE] [WORD ...]

Both run in this process by turns, from Python, and the least of many runs counts; operators whose name holds
one of the words, or that part of all; with --grid those of `operator_grid.py`. Libraries are kept in the
cache; `--compile` only fills it. The bar: none over 1.2 times ONNX Runtime's time, most under 1.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
from operator_cases import CASES, RANDOM, Case
from operator_grid import GRID
from timing import by_turns, least

import onnxc

BAR = 1.2


def session(case: Case) -> onnxruntime.InferenceSession | None:
    """ONNX Runtime's, None where it refuses the node."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(
            case.model().SerializeToString(), options, ["CPUExecutionProvider"]
        )
    except Exception:
        return None


def apart(found: list, expected: list) -> str:
    """What tells that two engines do not compute the same."""
    for a, b in zip(found, expected):
        if not isinstance(b, np.ndarray) or a.dtype.kind not in "fiub":
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        x, y = a.astype(np.float64), b.astype(np.float64)
        bound = 1e-2 * max(1.0, np.abs(y[np.isfinite(y)]).max(initial=0)) + (a.dtype.kind in "iu")
        if not np.allclose(x, y, rtol=0, atol=bound, equal_nan=True):
            return "differs"
    return ""


def measured(case: Case, seconds: float) -> dict[str, object]:
    feeds = case.feeds()
    ours = onnxc.InferenceSession(case.model().SerializeToString(), threads=1)
    rival = session(case)
    row: dict[str, object] = {"name": case.name}
    if rival is None:
        return row | {"note": "ONNX Runtime does not run it"}
    try:
        row["note"] = apart(ours.run(None, feeds), rival.run(None, feeds)) if case not in RANDOM else ""
    except Exception as error:
        return row | {"note": str(error)[:60]}
    calls = [lambda: ours.run(None, feeds), lambda: rival.run(None, feeds)]
    a, b = (by_turns(calls, least, block=seconds * 1e9 / 40, seconds=seconds).min(axis=1) / 1e3).tolist()
    return row | {"us": a, "onnxruntime": b, "ratio": a / b}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each operator")
    parser.add_argument("--json", type=Path, help="add the figures to this file, a line each")
    options = parser.parse_args()
    number, parts = map(int, options.part.split("/"))
    chosen = [
        c
        for c in (GRID if options.grid else CASES)
        if not options.words or any(word in c.name for word in options.words)
    ]
    over = count = under = 0
    for case in chosen[number - 1 :: parts]:
        if options.compile:
            try:
                onnxc.InferenceSession(case.model().SerializeToString(), threads=1)
            except onnxc.OnnxcError as error:
                print(f"{case.name}: {error}", flush=True)
            continue
        row = measured(case, options.seconds)
        if options.json:
            with options.json.open("a") as file:
                print(json.dumps(row), file=file)
        if "ratio" not in row:
            print(f"{case.name:36} {'':31} {row['note']}", flush=True)
            continue
        ratio = row["ratio"]
        count, over, under = count + 1, over + (ratio > BAR), under + (ratio < 1)
        mark = " !" if ratio > BAR else "  "
        print(
            f"{case.name:36} {row['us']:10.1f} {row['onnxruntime']:10.1f} {ratio:8.2f}{mark} {row['note']}",
            flush=True,
        )
    if count:
        print(f"{count} measured, {over} over {BAR}, {under} under 1")


if __name__ == "__main__":
    main()
