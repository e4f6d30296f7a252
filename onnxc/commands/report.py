"""`onnxc profile --html`: one page, complete in itself: graph, time line, memory and roofline.

Everything that is told stands as JSON in the page, laid out here, and is drawn by report.js: nodes of the
graph in rows, each below all that it reads, and in columns that keep it near to them.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records import dataclass

if TYPE_CHECKING:
    from ..codegen.lowering.lower import Lowered
    from ..ir.graph import Graph, Node, Value

SWEEPS = 4  # over the rows, each putting the nodes of a row near to those that the other row has of them


@dataclass(frozen=True)
class Flow:
    """Of a node that a kernel runs the nodes whose results it reads, by number, and the bytes of its own
    results, None where sizes are not known; kept: whether the run gives one of them to its caller."""

    reads: tuple[int, ...]
    nbytes: int | None
    kept: bool = False


def flows(lowered: Lowered, sizes: Mapping[str, int]) -> list[Flow]:
    """A Flow for every node of `steps.expectations`, in its order. What runs no kernel (views, joins, loops)
    hands on what it reads; sizes: of symbols."""
    found: list[Flow] = []
    whose: dict[Value, frozenset[int]] = {}
    _follow(lowered.graph, lowered, sizes, whose, found)
    given = {k for value in lowered.graph.outputs for k in whose.get(value, ())}
    return [Flow(flow.reads, flow.nbytes, k in given) for k, flow in enumerate(found)]


def _follow(
    graph: Graph, lowered: Lowered, sizes: Mapping[str, int], whose: dict[Value, frozenset[int]], found: list
) -> None:
    from ..ir.graph import regions

    for node in graph.nodes:
        read = frozenset().union(*(whose.get(value, frozenset()) for value in node.inputs))
        runs = node in lowered.codes and node.choice is not None
        for inner in () if runs else regions(node.op):
            whose.update(dict.fromkeys(inner.inputs, read))
            _follow(inner, lowered, sizes, whose, found)
            read = read.union(*(whose.get(value, frozenset()) for value in inner.outputs))
        if runs:
            found.append(Flow(tuple(sorted(read)), _nbytes(node, sizes)))
            read = frozenset({len(found) - 1})
        whose.update(dict.fromkeys(node.outputs, read))


def _nbytes(node: Node, sizes: Mapping[str, int]) -> int | None:
    from ..ir import dims
    from ..ir.graph import TensorType

    tensors = [value.type for value in node.outputs if isinstance(value.type, TensorType)]
    try:
        return sum(dims.evaluate(type_.nbytes, sizes) for type_ in tensors)
    except (KeyError, dims.TooComplex):
        return None


def among(flow: Sequence[Flow], ran: Sequence[int | None]) -> list[Flow]:
    """Flows of the nodes that ran, by their own numbers: of each its number in `flow`, or None for one that
    is not there. What did not run hands on what it reads."""
    new = {old: k for k, old in enumerate(ran) if old is not None}
    stands: dict[int, frozenset[int]] = {}
    for old, node in enumerate(flow):
        through = frozenset().union(*(stands[source] for source in node.reads))
        stands[old] = frozenset({new[old]}) if old in new else through
    found = []
    for place in ran:
        node = flow[place] if place is not None else Flow((), None)
        found.append(replace(node, reads=tuple(sorted(set().union(*(stands[k] for k in node.reads))))))
    return found


def memory(flow: Sequence[Flow]) -> list[int] | None:
    """Bytes of the results that are in use while each node runs: its own, and those that it or a later one
    reads or the caller gets. None where a size is not known."""
    last = {k: len(flow) - 1 if node.kept else k for k, node in enumerate(flow)}
    for k, node in enumerate(flow):
        for source in node.reads:
            last[source] = max(last[source], k)
    change = [0] * (len(flow) + 1)
    for k, node in enumerate(flow):
        if node.nbytes is None:
            return None
        change[k] += node.nbytes
        change[last[k] + 1] -= node.nbytes
    held, total = [], 0
    for step in change[:-1]:
        total += step
        held.append(total)
    return held


def places(reads: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """(row, column) of every node: one row below the lowest that it reads, columns one apart at least."""
    rows: list[int] = []
    for sources in reads:
        rows.append(1 + max((rows[source] for source in sources), default=-1))
    readers: list[list[int]] = [[] for _ in reads]
    for k, sources in enumerate(reads):
        for source in sources:
            readers[source].append(k)
    lines: list[list[int]] = [[] for _ in range(1 + max(rows, default=-1))]
    for k, row in enumerate(rows):
        lines[row].append(k)
    columns = {k: float(at) - (len(line) - 1) / 2 for line in lines for at, k in enumerate(line)}
    for sweep in range(SWEEPS):
        near, order = (reads, lines) if sweep % 2 == 0 else (readers, lines[::-1])
        for line in order:
            wanted = {k: _mean([columns[other] for other in near[k]], columns[k]) for k in line}
            columns.update(_apart(sorted(line, key=lambda k: (wanted[k], k)), wanted))
    return [(rows[k], columns[k]) for k in range(len(reads))]


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _apart(line: Sequence[int], wanted: Mapping[int, float]) -> Iterator[tuple[int, float]]:
    """The nodes of a row from left to right, where they want to be or as near as neighbours allow; what they
    are pushed to the right by is given back by half."""
    found: list[float] = []
    for k in line:
        found.append(wanted[k] if not found else max(wanted[k], found[-1] + 1))
    shift = _mean([at - wanted[k] for k, at in zip(line, found)], 0.0)
    return ((k, at - shift) for k, at in zip(line, found))


def page(told: Mapping[str, Any], flow: Sequence[Flow] | None) -> str:
    """The page. told: what `onnxc profile --json` prints; flow: of its nodes, where the model is known."""
    held = memory(flow) if flow is not None else None
    at = places([node.reads for node in flow]) if flow is not None else []
    nodes = []
    for k, node in enumerate(told["nodes"]):
        drawn = {} if flow is None else {"reads": flow[k].reads, "row": at[k][0], "column": at[k][1]}
        nodes.append({**node, **drawn, "held": held[k] if held is not None else None})
    content = json.dumps({**told, "nodes": nodes}, separators=(",", ":")).replace("</", "<\\/")
    folder = Path(__file__).parent
    parts = {
        "TITLE": html.escape(f"{told['file']}: where the time goes"),
        "STYLE": (folder / "report.css").read_text(encoding="utf-8"),
        "DATA": content,
        "SCRIPT": (folder / "report.js").read_text(encoding="utf-8"),
    }
    head, *rest = (folder / "report.html").read_text(encoding="utf-8").split("{{")
    return head + "".join(parts[name] + after for name, after in (part.split("}}", 1) for part in rest))
