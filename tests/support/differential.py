"""Random graphs held against what others make of them.

The oracle is ONNX Runtime, without its own optimisations; where it refuses a model, or tensors are empty,
onnx.reference; else this project's interpreter of the graph as imported.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.reference
from support.random_graphs import Case, Term, numpy_type

import onnxc
from onnxc.commands.comparison import onnxruntime_session
from onnxc.frontend.importer import import_model
from onnxc.ir.graph import Graph, TensorType
from onnxc.ir.interpret import run_graph
from onnxc.ir.verify import verify
from onnxc.options import Options
from onnxc.passes.pipeline import optimise, passes
from onnxc.target import TARGETS

TARGET = TARGETS["sapphirerapids"]  # for the passes alone: it has every dot product

Results = list[list[np.ndarray] | None]  # of each run, the outputs; None: not known


def interpreted(graph: Graph, case: Case) -> Results:
    return [run_graph(graph, [feed[v.name] for v in graph.inputs]) for feed in case.feeds]


def imported(case: Case) -> Graph:
    return import_model(case.model).graph


def by_onnxruntime(case: Case) -> Results:
    """Nothing for runs in which a tensor is empty: it may divide by zero, which ends the process."""
    given = {a.dtype for feed in case.feeds for a in feed.values()}
    if numpy_type("bfloat16") in given | {numpy_type(t.dtype) for t in case.outputs}:
        return [None] * len(case.feeds)
    try:
        session = onnxruntime_session(case.model, threads=1, optimise=False)
        return [None if k in case.empty else session.run(None, feed) for k, feed in enumerate(case.feeds)]
    except Exception:
        return [None] * len(case.feeds)


#: Operators of which onnx.reference 1.23 departs from the specification.
MISTAKEN = frozenset(
    (
        "ConvTranspose",
        "Loop",
        "MaxPool",
        "AveragePool",
        "LpPool",
        "GlobalMaxPool",
        "DynamicQuantizeLinear",
        "Erf",
        "Gelu",
        "ConvInteger",
        "QLinearConv",
        "QLinearMatMul",
    )
)


def operators(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Operator names, those in branches and bodies included."""
    regions = (a.g.node for node in nodes for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
    return {node.op_type for node in nodes}.union(*map(operators, regions))


def by_reference(case: Case) -> Results:
    if operators(case.model.graph.node) & MISTAKEN:
        return [None] * len(case.feeds)
    try:
        with np.errstate(all="ignore"):
            evaluator = onnx.reference.ReferenceEvaluator(case.model)
            found = [[np.asarray(a) for a in evaluator.run(None, feed)] for feed in case.feeds]
    except Exception:
        return [None] * len(case.feeds)
    fits = all(a.dtype == numpy_type(t.dtype) for run in found for a, t in zip(run, case.outputs))
    return found if fits else [None] * len(case.feeds)


def expected(case: Case) -> Results:
    """What each run should give."""
    found = by_onnxruntime(case)
    for oracle in (by_reference, lambda case: interpreted(imported(case), case)):
        if None in found:
            found = [one or other for one, other in zip(found, oracle(case))]
    return found


def differences(case: Case, got: Results, right: Results) -> list[str]:
    """A sentence for each output of a run that is not what it should be."""
    found = []
    for run, (ours, theirs) in enumerate(zip(got, right, strict=True)):
        for term, x, y in zip(case.outputs, ours, theirs, strict=True):
            wrong = _wrong(term, np.asarray(x), np.asarray(y))
            if wrong:
                found.append(f"run {run}, {term.name} ({term.dtype}{list(term.shape(run))}): {wrong}")
    return found


def _wrong(term: Term, x: np.ndarray, y: np.ndarray) -> str:
    if (x.dtype, x.shape) != (y.dtype, y.shape):
        return f"{x.dtype}{list(x.shape)} instead of {y.dtype}{list(y.shape)}"
    if not x.size or x.dtype == bool or (term.exact and not term.is_float):
        return "" if np.array_equal(x, y) else _first(x, y, x != y)
    a, b = x.astype(np.float64), y.astype(np.float64)
    with np.errstate(all="ignore"):
        far = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= 2 * term.error))
    return _first(x, y, far) + f", allowed is {2 * term.error:.3g}" if far.any() else ""


def _first(x: np.ndarray, y: np.ndarray, far: np.ndarray) -> str:
    place = tuple(int(k) for k in np.argwhere(far)[0])
    return f"{np.count_nonzero(far)} of {far.size} differ, first {x[place]} instead of {y[place]} at {place}"


def pass_differences(case: Case) -> list[str]:
    """Interpreted as imported, and after the passes."""
    right, graph = expected(case), imported(case)
    found = [f"as imported: {d}" for d in differences(case, interpreted(graph, case), right)]
    optimised = optimise(graph, TARGET)
    return found + [f"after the passes: {d}" for d in differences(case, interpreted(optimised, case), right)]


def selection_differences(case: Case, chosen: Sequence[bool]) -> list[str]:
    """Interpreted after some of the passes: none relies on another for what a graph means."""
    graph = before = imported(case)
    for step in itertools.compress(passes(TARGET), chosen):
        graph = step(graph)
        verify(graph)
    return differences(case, interpreted(graph, case), interpreted(before, case))


def pinned_differences(case: Case) -> list[str]:
    """Interpreted after the passes with the sizes of each run known, and with those open."""
    found = []
    for run, feed in enumerate(case.feeds):
        one = replace(
            case,
            feeds=[feed],
            outputs=[replace(t, dims=tuple((d[run],) for d in t.dims)) for t in case.outputs],
        )
        options = Options(shapes={name: array.shape for name, array in feed.items()})
        graph = optimise(import_model(case.model, options).graph, TARGET)
        found += differences(one, interpreted(graph, one), interpreted(imported(case), one))
    return found


def library_differences(
    case: Case, folder: Path, target: str = "native", threads: Sequence[int] = (1, 2, 8)
) -> list[str]:
    """Compiled, with any number of threads, which gives the same bits."""
    right = expected(case)
    library = onnxc.compile(case.model, folder / "model.so", target=target)
    runs: list[Results] = []
    for count in threads:
        model = onnxc.load(library, threads=count)
        runs.append([model.run(None, feed) for feed in case.feeds])
    found = [f"{target}: {d}" for d in differences(case, runs[0], right)]
    same = all(
        a.tobytes() == b.tobytes()
        for other in runs[1:]
        for one, two in zip(runs[0], other)
        for a, b in zip(one, two)
    )
    return found if same else [*found, f"{target}: bits depend on the number of threads"]


def state_differences(case: Case, folder: Path) -> list[str]:
    """Compiled with outputs that are the next values of inputs of their type: in the inputs' memory they,
    and all others, have the bits that they have apart."""
    states = _possible_states(case)
    model = onnxc.load(onnxc.compile(case.model, folder / "model.so", states=states), threads=2)
    numbers = {port.name: k for k, port in enumerate(model.outputs)}
    found = []
    for feed in case.feeds:
        given = {name: array.copy() if name in states else array for name, array in feed.items()}
        memory = {numbers[new]: given[old] for old, new in states.items()}
        context = model.acquire()
        in_place = context.run([given[port.name] for port in model.inputs], memory)
        model.give_back(context)
        for port, one, other in zip(model.outputs, model.run(None, feed), in_place, strict=True):
            if one.shape != other.shape or one.tobytes() != other.tobytes():
                found.append(f"{port.name} is another in place, states {states}")
    return found


def _possible_states(case: Case) -> dict[str, str]:
    """Of each input an output of the same type, if there is one that no other has."""
    graph, states = imported(case), {}
    for old in (v for v in graph.inputs if isinstance(v.type, TensorType) and v.dtype != "string"):
        for new, output in zip(graph.outputs, case.model.graph.output):
            if old.type == new.type and output.name not in states.values():
                states[old.name] = output.name
                break
    return states
