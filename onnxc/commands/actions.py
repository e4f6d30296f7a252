"""What each command of the command line does and prints: parsed arguments in, an exit status out.

Each imports only what it needs, so that running a library needs neither `onnx` nor `llvmlite`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import console
from ..diagnostics import ModelErrors
from ..errors import CompileError, LimitError, ModelError, Origin, RunError, UnsupportedError, shorten
from ..loading.cached import cached_library
from ..loading.finding import is_library
from ..loading.loader import load
from ..options import Options
from .ending import ending_clean
from .written import check_written

if TYPE_CHECKING:
    from ..inputs import Inputs
    from ..loading.loader import Model
    from .comparison import Difference
    from .inspection import Figures
    from .measure import Engine
    from .nodes import NodeDifference

OK, FAULT = 0, 1


def check_command(options: argparse.Namespace) -> int:
    from .checking import check_model

    with ending_clean():
        nodes, problems = check_model(options.model, Options.of(vars(options)))
    if options.json:
        console.print_json(
            {
                "file": str(options.model),
                "nodes": nodes,
                "supported": not problems,
                "problems": [problem.to_dict() for problem in problems],
            }
        )
    elif problems:
        for line in ModelErrors(problems, options.model).lines():
            print(line)
        print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    else:
        print(f"{nodes} nodes, all supported")
    return FAULT if problems else OK


def inspect_command(options: argparse.Namespace) -> int:
    from .inspection import inspect_library, inspect_model

    with about(options.file), ending_clean():
        if is_library(options.file):
            figures = inspect_library(options.file, options.dims, options.shapes)
        else:
            figures = inspect_model(options.file, Options.of(vars(options)))
    if options.json:
        console.print_json(vars(figures))
    else:
        _print_figures(figures)
    return OK


def _print_figures(figures: Figures) -> None:
    unknown = "depends on sizes; give them with --dim or --shape"
    arithmetic = figures.multiply_adds
    arithmetic = f"{arithmetic:,}" if isinstance(arithmetic, int) else shorten(arithmetic, 400)
    if figures.multiply_adds_at is not None and figures.multiply_adds != figures.multiply_adds_at:
        arithmetic += f"\n= {figures.multiply_adds_at:,} at these sizes"
    peak = figures.peak_bytes
    print(f"{figures.file}: a {figures.kind}")
    console.print_fields(
        [
            ("inputs", "\n".join(f"{shorten(port['name'])}  {port['type']}" for port in figures.inputs)),
            ("outputs", "\n".join(f"{shorten(port['name'])}  {port['type']}" for port in figures.outputs)),
            (
                "operators",
                textwrap.fill(", ".join(f"{n} {count}" for n, count in figures.operators.items()), 90),
            ),
            ("parameters", f"{figures.parameters:,}"),
            (
                "packed weights" if figures.kind == "library" else "weights",
                f"{figures.weights_bytes:,} bytes",
            ),
            ("multiply-adds", arithmetic),
            ("peak memory", unknown if peak is None else f"{peak:,} bytes beside the weights"),
            *((name.replace("_", " "), _about_text(value)) for name, value in figures.about.items() if value),
            *[
                (
                    "metadata",
                    "\n".join(
                        f"{shorten(key)}: {shorten(value, 200)}" for key, value in figures.metadata.items()
                    ),
                )
            ]
            * bool(figures.metadata),
        ]
    )


def _about_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {entry}" for key, entry in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else shorten(str(value), 200)


def run_command(options: argparse.Namespace) -> int:
    from ..inputs import save_outputs

    check_written(options, "output")
    model = load(library_of(options.file, options), options.threads)
    inputs = inputs_of(model, options)
    names = [port.name for port in model.outputs]
    outputs = dict(zip(names, model.run(None, inputs.feeds)))
    if options.output is not None:
        save_outputs(options.output, outputs)
    summaries = [summary(name, value) for name, value in outputs.items()]
    if options.json:
        console.print_json(
            {
                "inputs": describe_inputs(inputs),
                "outputs": summaries,
                "output_file": options.output and str(options.output),
            }
        )
        return OK
    print(f"inputs: {inputs.describe()}")
    console.print_table(
        ("output", "type", "min", "max", "mean", "first values"),
        [_summary_row(entry) for entry in summaries],
        text_columns=2,
    )
    if options.output is not None:
        print(f"written to {options.output}")
    return OK


def describe_inputs(inputs: Inputs) -> list[dict[str, object]]:
    from ..inputs import value_text

    return [
        {"name": name, "type": value_text(value), "generated": name in inputs.generated}
        for name, value in inputs.feeds.items()
    ]


def summary(name: str, value: object) -> dict[str, object]:
    """An output's type, range, mean and first values, the last three of numbers only."""
    import numpy as np

    from ..inputs import value_text

    found: dict[str, object] = {"name": name, "type": value_text(value)}
    if isinstance(value, np.ndarray):
        found["shape"] = list(value.shape)
        found["first"] = value.reshape(-1)[:5].tolist()
        if value.size and value.dtype.kind not in "OUSc":
            wide = value.astype(np.float64)
            found |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
    return found


def _summary_row(entry: dict) -> list[str]:
    first = " ".join(
        f"{value:.5g}" if isinstance(value, float) else shorten(str(value), 20)
        for value in entry.get("first", ())
    )
    figures = (f"{entry[key]:.5g}" if key in entry else "" for key in ("min", "max", "mean"))
    return [shorten(entry["name"]), entry["type"], *figures, first]


def verify_command(options: argparse.Namespace) -> int:
    from .comparison import compare, reference, require_origin
    from .nodes import compare_nodes

    against = options.against or default_reference()
    model = load(library_of(options.file, options))
    source = _model_of_others(options)
    if is_library(options.file):
        require_origin(model, source)
    if options.per_node and is_library(options.file):
        raise RunError("a library has no values of nodes to compare", remedy="give the model for --per-node")
    inputs = inputs_of(model, options)
    expected = reference(source, against)(inputs.feeds)
    actual = model.run(None, inputs.feeds)
    found = [
        compare(port.name, theirs, ours, options.rtol, options.atol)
        for port, theirs, ours in zip(model.outputs, expected, actual)
    ]
    agrees = all(difference.agrees for difference in found)
    nodes = None
    if options.per_node:
        with console.Progress("compile every value as an output") as progress:
            nodes = compare_nodes(
                source,
                against,
                inputs.feeds,
                rtol=options.rtol,
                atol=options.atol,
                options=compile_options(options),
                progress=progress,
            )
        agrees = agrees and all(node.difference.agrees for node in nodes)
    departs = next((node for node in nodes or () if not node.difference.agrees), None)
    if options.json:
        entry = {
            "against": against,
            "inputs": describe_inputs(inputs),
            "agrees": agrees,
            "outputs": [vars(difference) for difference in found],
        }
        if nodes is not None:
            entry |= {"nodes": len(nodes or ()), "first_to_depart": departs and _node_json(departs)}
        console.print_json(entry)
        return OK if agrees else FAULT
    print(f"inputs: {inputs.describe()}\nagainst {against}:")
    console.print_table(("output", "type", "absolute", "relative", "ulp", ""), map(_difference_row, found), 2)
    if departs is not None:
        print(
            f"of {len(nodes or ())} values of nodes the first to depart is '{shorten(departs.output)}' of "
            f"node '{shorten(departs.node)}' ({departs.op_type}): {departs.difference.reason}, "
            f"absolute {departs.difference.absolute:.3g}, relative {departs.difference.relative:.3g}"
        )
    elif nodes:
        print(f"{len(nodes)} values of nodes, all agree when each is an output")
    elif nodes is not None:
        print("no node computes a tensor: none is compared")
    elif not agrees and not is_library(options.file):
        print(
            "a model that rounds to few bits departs behind a value that lies between two of them: "
            "--per-node compares node by node and finds the first that departs by more"
        )
    return OK if agrees else FAULT


def _node_json(found: NodeDifference) -> dict[str, object]:
    return {"node": found.node, "op_type": found.op_type, "output": found.output, **vars(found.difference)}


def _difference_row(difference: Difference) -> list[str]:
    ulp = "" if difference.ulp is None else str(difference.ulp)
    verdict = "agrees" if difference.agrees else f"departs: {difference.reason}"
    return [
        shorten(difference.name),
        difference.type,
        f"{difference.absolute:.3g}",
        f"{difference.relative:.3g}",
        ulp,
        verdict,
    ]


def default_reference() -> str:
    from importlib.util import find_spec

    return "onnxruntime" if find_spec("onnxruntime") is not None else "reference"


def bench_command(options: argparse.Namespace) -> int:
    from .comparison import require_origin
    from .measure import Engine, load_timed, measure

    model_file = _model_of_others(options) if options.against else Path(options.model or options.file)
    library = library_of(options.file, options)
    model, load_seconds = load_timed(library, options.threads)
    if options.against and is_library(options.file):
        require_origin(model, model_file)
    inputs = inputs_of(model, options)
    if options.streams is not None:
        from .throughput import measured_streams, print_streams

        found = measured_streams(options, model, inputs.feeds, model_file)
        if options.json:
            console.print_json({"file": str(options.file), "inputs": describe_inputs(inputs), **found})
        else:
            print(f"inputs: {inputs.describe()}")
            print_streams(found)
        return OK
    engines = [Engine("onnxc", lambda: model.run(None, inputs.feeds))]
    others, failures = _rivals(options, model_file, inputs)
    apart = _distances(options, engines[0], others, model, failures)
    engines += [other for other in others if other.name in apart]
    measure(engines, options.seconds, options.runs)
    found = {
        "file": str(options.file),
        "threads": options.threads,
        "inputs": describe_inputs(inputs),
        "engines": [engine.as_json() for engine in engines],
        "ratios": [
            {
                "against": other.name,
                "median": engines[0].median / other.median,
                "min": engines[0].minimum / other.minimum,
                "largest_difference": apart[other.name],
            }
            for other in engines[1:]
        ],
        "failures": failures,
        "load_seconds": load_seconds,
        "library_bytes": library.stat().st_size,
        "weights_bytes": model.description["weights_bytes"],
        "workspace_bytes": _workspace(model, inputs),
    }
    if options.json:
        console.print_json(found)
        return OK
    _print_bench(found, engines, inputs)
    return OK


def _print_bench(found: dict[str, Any], engines: Sequence[Engine], inputs: Inputs) -> None:
    """What `bench` tells where no JSON is asked for."""
    threads = found["threads"]
    print(f"inputs: {inputs.describe()}\n{threads} thread{'s' if threads > 1 else ''} each")
    rows = [
        (
            engine.name,
            *map(console.time_text, (engine.median, engine.minimum, engine.p95)),
            str(len(engine.seconds)),
        )
        for engine in engines
    ]
    console.print_table(("", "median", "min", "95 %", "runs"), rows)
    for ratio in found["ratios"]:
        print(
            f"onnxc / {ratio['against']}: {ratio['median']:.3f} by median, {ratio['min']:.3f} by minimum "
            f"(largest difference of outputs {ratio['largest_difference']:.2g})"
        )
    for reason in found["failures"].values():
        print(reason)
    library_bytes, weights_bytes, workspace_bytes = (
        console.bytes_text(found[key]) for key in ("library_bytes", "weights_bytes", "workspace_bytes")
    )
    print(f"load {console.time_text(found['load_seconds'])} from open to ready, library {library_bytes}")
    print(
        f"memory: weights {weights_bytes}, mapped and shared, and workspace {workspace_bytes} for these "
        "inputs in one thread"
    )


def _model_of_others(options: argparse.Namespace) -> Path:
    """The model that the rivals of `bench`, or the other implementation of `verify`, run."""
    if options.model is None and is_library(options.file):
        raise RunError(
            "others cannot run a compiled library", remedy="give the model that it came from: --model"
        )
    return Path(options.model or options.file)


def _rivals(options: argparse.Namespace, model: Path, inputs: Inputs) -> tuple[list[Engine], dict[str, str]]:
    """The rivals that run the model, and why the others do not. Where none does, or one is not installed, an
    error."""
    from .rivals import rival

    found, failures = [], {}
    for name in options.against:
        try:
            found.append(rival(name, model, inputs.feeds, options.threads, options.pin))
        except CompileError as error:
            if error.remedy or len(options.against) == 1:
                raise
            failures[name] = error.reason
    return found, failures


def _distances(
    options: argparse.Namespace, ours: Engine, others: list[Engine], model: Model, failures: dict[str, str]
) -> dict[str, float]:
    """By name, the largest absolute difference between outputs of each rival and ours. Who computes nothing,
    without saying so, is among the failures; where it is the only one asked for, an error."""
    found = {}
    for other in others:
        try:
            found[other.name] = _apart(ours, other, model)
        except CompileError as error:
            if len(options.against) == 1:
                raise
            failures[other.name] = error.reason
    return found


def _apart(ours: Engine, other: Engine, model: Model) -> float:
    """The largest absolute difference between the outputs of two engines. Raises CompileError where the other
    has no element of an output."""
    from .comparison import compare

    largest = 0.0
    for port, own, theirs in zip(model.outputs, ours.run(), other.run()):
        arrays = isinstance(own, np.ndarray) and isinstance(theirs, np.ndarray)
        if arrays and theirs.size == 0 < own.size:
            raise CompileError(f"'{other.name}' computes nothing for the output '{shorten(port.name)}'")
        largest = max(largest, compare(port.name, _shaped(theirs, own), own).absolute)
    return largest


def _shaped(theirs: Any, own: Any) -> Any:
    """Their output as ours is: an engine may leave out a batch of one, and have integers of 32 bits alone."""
    if not (isinstance(theirs, np.ndarray) and isinstance(own, np.ndarray) and theirs.size == own.size):
        return theirs
    return theirs.reshape(own.shape).astype(own.dtype, copy=False)


def _workspace(model: Model, inputs: Inputs) -> int | None:
    """Bytes of workspace for these inputs; None where one is no tensor and so has no shape."""
    tensors = {port.name for port in model.inputs if port.kind == "tensor"}
    if not tensors.issuperset(inputs.feeds):
        return None
    return model.workspace_bytes({name: np.asarray(value).shape for name, value in inputs.feeds.items()})


def calibrate_command(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ..codegen.calibration import measure_facts
    from ..facts import keep_facts
    from ..target import find_target

    target = find_target()
    with console.Progress("calibrate") as progress:
        facts = measure_facts(target, progress)
    kept = None if options.dry_run else keep_facts(target.name, facts)
    if options.json:
        console.print_json({"target": target.name, "facts": asdict(facts), "file": kept and str(kept)})
        return OK
    rows = [
        (
            "multiply-adds",
            f"{facts.multiply_adds:.2f} vectors/ns, {facts.latency:.2f} ns one after the other",
        ),
        (
            "instructions",
            f"{facts.instructions:.2f} vectors/ns, of several kinds; a cycle is {facts.cycle:.2f} ns",
        ),
        ("first-level cache", f"{facts.level1_bytes >> 10} KiB, {facts.loads:.2f} vectors/ns"),
        ("second-level cache", f"{facts.level2_bytes >> 10} KiB, {facts.level2_rate:.1f} bytes/ns"),
        ("third-level cache", f"{facts.level3_bytes >> 10} KiB, {facts.level3_rate:.1f} bytes/ns"),
        ("memory", f"{facts.memory_rate:.1f} bytes/ns, read from {facts.streams} places at a time"),
        ("kept in", str(kept) if kept else "nowhere"),
    ]
    if target.matrices:
        sustained = f"{facts.matrix_products:.2f} products/ns, {facts.matrix_sustained:.2f} sustained"
        rows.insert(2, ("matrix registers", sustained))
    print(f"a core of this machine, by code for {target.name}")
    console.print_fields(rows)
    return OK


def demo_command(options: argparse.Namespace) -> int:
    from ..demo import run_demo

    with ending_clean():  # its runs are short
        return run_demo(options.keep, options.json)


# Models and inputs -------------------------------------------------------------------------------


def library_of(path: Path, options: argparse.Namespace) -> Path:
    """The library that the file is, or that the model compiles to, from the cache where it is there."""
    if is_library(path):
        return path
    with compiling(path) as progress:
        return cached_library(path, compile_options(options), progress=progress)


def compile_options(options: argparse.Namespace) -> Options:
    """How a command that runs a model compiles it: for any sizes, but with --pin."""
    given = {name: value for name, value in vars(options).items() if name in ("target", "operators")}
    sizes = {"dims": options.dims, "shapes": options.shapes} if getattr(options, "pin", False) else {}
    return Options.of(given | sizes)


@contextlib.contextmanager
def compiling(path: Path) -> Iterator[console.Progress]:
    """The progress of a compilation, whose errors name the model, and which is ended clean."""
    with about(path), ending_clean(), console.Progress(f"compile {shorten(path.name)}") as progress:
        yield progress


@contextlib.contextmanager
def about(path: Path) -> Iterator[None]:
    """Has errors about a model or its library name the file, where they name none."""
    try:
        yield
    except (ModelError, UnsupportedError, LimitError, RunError) as error:
        raise error.at(Origin(os.fspath(path))) from None


def inputs_of(model: Model, options: argparse.Namespace) -> Inputs:
    """The inputs that the arguments ask for. Sizes that were compiled in need not be given again."""
    from ..inputs import expected_inputs, runnable_inputs

    sizes = {} if getattr(options, "pin", False) else options.dims
    path = getattr(options, "model", None) or options.file
    unread = is_library(path) or getattr(options, "operators", None)  # which would be compiled again
    with about(options.file):
        expected = {} if unread else expected_inputs(path, model.inputs, compile_options(options))
        return runnable_inputs(model, sizes, options.shapes, expected, options.input, options.seed)
