"""How near models are to what the machine can do: `python benchmarks/roofline.py MODEL.onnx|FOLDER ...`.

A node's bound is the longer of what its multiply-adds take by the fastest instructions for their types
(Winograd's are counted as the fewer that they are, and the instructions of its transforms besides) and what
its bytes take, by the rates that `onnxc calibrate` measured, or else of the processor's kind; `onnxc profile`
tells the same of one model. Prints how much of each model's time, in one thread at the sizes of
docs/benchmarks.md, its bounds are, and the nodes of all models together that lose most: time over the bound,
as a share of the model's. Exponentials and the like are in no bound.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from nodes import Measurement, add_arguments, measured

from onnxc.commands.profile import Part, parts_of
from onnxc.console import print_table, time_text
from onnxc.facts import measured_facts
from onnxc.loading.timing import matched
from onnxc.target import find_target


def nodes_of(measurement: Measurement) -> list[Part]:
    timings = measurement.timings
    return parts_of(measurement.expected, matched(measurement.expected, timings), timings, 1)


def bound_of(node: Part) -> float:
    """Nanoseconds; of a node whose work is not known none."""
    return node.work.bound if node.work is not None else 0.0


def over_bound(node: Part) -> float:
    """Nanoseconds over the bound; none where there is no bound to be over."""
    return max(0.0, node.ns - node.work.bound) if node.work is not None else 0.0


def percent(part: float, whole: float) -> str:
    return f"{part / max(1, whole):.1%}"


def print_models(models: Sequence[tuple[str, Sequence[Part]]]) -> None:
    rows = []
    for name, nodes in models:
        spent, bound = sum(node.ns for node in nodes), sum(map(bound_of, nodes))
        unknown = sum(node.ns for node in nodes if node.work is None)
        times = (time_text(spent * 1e-9), time_text(bound * 1e-9))
        rows.append((name, *times, percent(bound, spent), percent(unknown, spent) if unknown else ""))
    print_table(("model", "measured", "sum of bounds", "of the limit", "time without bound"), rows)


def print_worst(models: Sequence[tuple[str, Sequence[Part]]], count: int) -> None:
    every = [
        (over_bound(node) / max(1, sum(n.ns for n in nodes)), name, node)
        for name, nodes in models
        for node in nodes
    ]
    rows = [
        (name, node.name, node.kernel or "", time_text(node.ns * 1e-9), percent(bound_of(node), node.ns))
        + (f"{share:.1%}",)
        for share, name, node in sorted(every, key=lambda each: -each[0])[:count]
    ]
    print_table(("model", "node", "kernel", "measured", "of the limit", "lost of the model's time"), rows, 3)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--worst", type=int, default=10, metavar="N", help="how many nodes (10)")
    options = parser.parse_args()
    with measured(options, tabled=True) as measurements:
        models = [(m.name, nodes_of(m)) for m in measurements]
    if models:
        print_models(models)
        print()
        print_worst(models, options.worst)
        if measured_facts(find_target().name) is None:
            print("the rates were not measured on this machine: run `onnxc calibrate`")


if __name__ == "__main__":
    main()
