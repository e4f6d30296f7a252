"""Estimates beside measurements: `python benchmarks/calibrate.py [MODEL.onnx | FOLDER ...]`.

Every node of the models, and of a grid of models of one layer (`--grid`), is timed where it stands in a run
in one thread at the sizes that are typical, as `onnxc profile` does (nodes.py). A ratio is measured /
estimated. Prints for each kernel how many nodes it ran, the median ratio, the shares within 1.5x and 3x, the
worst. What takes less than 250 ns is left out: a reading of the clock is 35 to 60.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import grid
from nodes import Measurement, add_arguments, measured

from onnxc.codegen.costs import Estimate
from onnxc.commands.steps import Expected
from onnxc.loading.timing import Timing, matched

GOOD, BEARABLE = 1.5, 3.0
SHORT_NS = 250.0


@dataclass
class Row:
    """A node of a model: what runs it, what was estimated (nanoseconds, in one thread, at these sizes), with
    its parts at typical sizes, and what it took."""

    model: str
    node: str
    kernel: str
    choice: str
    estimated: float
    measured: float
    compute: float
    memory: float
    overhead: float

    @property
    def ratio(self) -> float:
        return self.measured / max(1.0, self.estimated)

    @property
    def miss(self) -> float:
        """By what factor, in either direction."""
        return max(self.ratio, 1 / max(self.ratio, 1e-9))


def rows(measurement: Measurement) -> Iterator[Row]:
    """A row for every node that a kernel ran, its steps added up. Of nodes that are estimated anew those that
    have the same kernel still."""
    expected, timings = measurement.expected, measurement.timings
    found: dict[int, list[Timing]] = {}
    for k, timing in zip(matched(expected, timings), timings):
        if k is not None:
            found.setdefault(k, []).append(timing)
    now: dict[tuple[str, str], list[tuple[Expected, float | None]]] = {}
    for node, estimate in measurement.now:
        now.setdefault(_kernel(node), []).append((node, estimate))
    then: dict[tuple[str, str], list[int]] = {}
    for k, node in enumerate(expected):
        then.setdefault(_kernel(node), []).append(k)
    for k, its in sorted(found.items()):
        node = expected[k]
        estimated, measured = (float(sum(getattr(t, kind) for t in its)) for kind in ("estimated_ns", "ns"))
        if measurement.now:
            same, which = now.get(_kernel(node), []), then[_kernel(node)].index(k)
            if which >= len(same):
                continue
            (node, estimate), before = same[which], node
            times = max(1, round(len(its) / max(1, before.steps)))  # of a loop's body
            estimated = estimated * _total(node) / _total(before) if estimate is None else estimate * times
        parts = (node.compute, node.memory, node.overhead)
        yield Row(measurement.name, node.node, node.kernel, node.choice, estimated, measured, *parts)


def _kernel(node: Expected) -> tuple[str, str]:
    """A node, and the kernel with its tiling that it was given."""
    return node.node, node.choice.partition("ns=")[0]


def _total(node: Expected) -> float:
    return max(1.0, Estimate(node.compute, node.memory, node.overhead).total)


def report(found: Sequence[Row]) -> None:
    """A line for each kernel, the one that takes most time first, then one for all."""
    kernels: dict[str, list[Row]] = {}
    for row in found:
        kernels.setdefault(row.kernel, []).append(row)
    total = sum(row.measured for row in found)
    order = sorted(kernels.items(), key=lambda item: -sum(row.measured for row in item[1]))
    heads = ("nodes", "of time", "median", "in 1.5x", "in 3x", "worst")
    print(f"{'kernel':16}" + "".join(f"{head:>9}" for head in heads))
    for kernel, its in [*order, ("all", list(found))]:
        time = sum(row.measured for row in its)
        good, bearable = (sum(row.miss <= limit for row in its) / len(its) for limit in (GOOD, BEARABLE))
        worst = max(its, key=lambda row: row.miss)
        print(
            f"{kernel:16}{len(its):9}{time / total:9.1%}{statistics.median(row.ratio for row in its):9.2f}"
            f"{good:9.1%}{bearable:9.1%}{worst.ratio:9.2f}  {worst.model}: {worst.node}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--grid", action="store_true", help="also the grid of single layers")
    parser.add_argument("--nodes", action="store_true", help="print every node")
    parser.add_argument("--json", type=Path, help="write all rows there")
    options = parser.parse_args()
    with measured(options, grid.models() if options.grid or not options.models else ()) as measurements:
        found = [row for m in measurements for row in rows(m)]
    found = [row for row in found if max(row.measured, row.estimated) >= SHORT_NS]
    if not found:
        return
    if options.nodes:
        for row in sorted(found, key=lambda row: -row.miss):
            times = f"{row.ratio:6.2f} {row.measured:12.0f} {row.estimated:12.0f}"
            print(f"{times}  {row.model} {row.node}: {row.choice}")
    report(found)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=1))


if __name__ == "__main__":
    main()
