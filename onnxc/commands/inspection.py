"""The figures of a model: what goes in and out, operators, parameters, arithmetic, bytes.

Arithmetic is counted on core ops, in multiply-adds, as a polynomial over the model's dimension
variables; so one count serves every size. A library carries the same figures in its description
(`frontend/figures.py`), so that inspecting it needs neither `onnx` nor the model.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from ..ir import dims
from ..ir.dims import Dimension
from ..options import DEFAULTS, Options
from ..records import dataclass

if TYPE_CHECKING:
    from ..inputs import Shapes
    from ..ir.graph import Graph, Type
    from ..loading.loader import Model, Port
    from ..target import Target


@dataclass
class Figures:
    """What `onnxc inspect` prints. A port is {name, type}; sizes are bytes.

    multiply_adds: a number, or a formula over the model's named dimensions. peak_bytes: memory for
    intermediate values and scratch, None where it depends on sizes that are not known."""

    file: str
    kind: str  # "model" or "library"
    inputs: list[dict[str, str]]
    outputs: list[dict[str, str]]
    operators: dict[str, int]
    parameters: int
    weights_bytes: int
    multiply_adds: int | str
    multiply_adds_at: int | None = None  # at the sizes asked for, or the number itself
    peak_bytes: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    about: dict[str, object] = field(default_factory=dict)  # producer, operator sets, target, versions, ...


# A model -----------------------------------------------------------------------------------------


def inspect_model(path: str | os.PathLike, options: Options = DEFAULTS) -> Figures:
    """The figures of an .onnx file; arithmetic is given both as a formula and at the sizes that the options
    give."""
    from ..frontend import figures
    from ..frontend.importer import import_model
    from ..given import given_operators
    from ..ir.arithmetic import multiply_adds
    from ..passes.pipeline import optimise
    from ..target import find_targets

    (chosen,) = find_targets(options.target)
    with tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
        given = given_operators(options.operators, Path(folder), chosen).operators
    imported = import_model(path, options.with_(dims={}, shapes={}), given)
    names = [output.name for output in imported.model.proto.graph.output]
    outputs = list(zip(names, imported.graph.outputs))
    optimised = optimise(imported.graph, chosen, options=options)
    found = figures.figures(imported, optimised)
    pinned = optimised
    if options.dims or options.shapes:
        pinned = optimise(import_model(path, options, given).graph, chosen, options=options)
    here = multiply_adds(pinned)
    proto = imported.model.proto
    return Figures(
        os.fspath(path),
        "model",
        [{"name": v.name, "type": type_text(v.type, imported.dim_names)} for v in imported.graph.inputs],
        [{"name": n, "type": type_text(v.type, imported.dim_names)} for n, v in outputs],
        found["operators"],
        found["parameters"],
        found["initializer_bytes"],
        found["multiply_adds"],
        here if isinstance(here, int) else None,
        peak_bytes(pinned, chosen),
        dict(imported.graph.metadata),
        {
            "graph": proto.graph.name,
            "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
            "ir_version": proto.ir_version,
            "opsets": figures.opsets(imported.model),
            "target": chosen.name,
            **_arithmetic(pinned, chosen),
        },
    )


def _arithmetic(graph: Graph, target: Target) -> dict[str, object]:
    """How many nodes run in which arithmetic on the target, and those that fell back with the reason."""
    from ..codegen.lowering.arithmetic import summary
    from ..codegen.lowering.select_kernels import select_kernels

    try:
        return summary(select_kernels(graph, target))
    except UnsupportedError as error:  # figures are for models that do not compile yet, too
        return {"arithmetic": str(error)}


def peak_bytes(graph: Graph, target: Target) -> int | None:
    """Bytes for intermediate values and scratch of a run in one thread; None where inputs decide."""
    from ..codegen.lowering.lower import lower

    if any(dims.symbols(size) for value in graph.inputs for size in getattr(value.type, "shape", ())):
        return None
    return lower(graph, target).workspace_bytes


def type_text(type_: Type, dim_names: Mapping[str, str]) -> str:
    """`float32[batch, 3, ?]`, sizes named as the model names them."""
    from ..ir.graph import MapType, OptionalType, SequenceType, UnrankedType

    if isinstance(type_, MapType):
        return f"map({type_.key}, {type_.value})"
    if isinstance(type_, UnrankedType):
        return str(type_)
    if isinstance(type_, (SequenceType, OptionalType)):
        return f"{type_.kind}({type_text(type_.element, dim_names) if type_.element else 'anything'})"
    return f"{type_.dtype}[{', '.join(_size_text(d, dim_names) for d in type_.shape)}]"


def _size_text(size: Dimension, dim_names: Mapping[str, str]) -> str:
    if isinstance(size, int):
        return str(size)
    if not all(dim_names.get(s.name) for s in dims.symbols(size)):
        return "?"
    return re.sub(r"[A-Za-z_]\w*", lambda found: dim_names.get(found[0], found[0]), str(size))


# Arithmetic --------------------------------------------------------------------------------------


def evaluate(formula: int | str, variables: Mapping[str, int]) -> int | None:
    """The number that a formula is for these values of its variables; None where others occur in it."""
    if isinstance(formula, int):
        return formula
    try:
        return dims.evaluate(dims.parse(formula), variables)
    except (KeyError, ValueError, RecursionError):
        return None


# A library ---------------------------------------------------------------------------------------


def inspect_library(
    path: str | os.PathLike, sizes: Mapping[str, int] | None = None, shapes: Shapes | None = None
) -> Figures:
    """The figures of a compiled library, from the description in it."""
    from ..inputs import resolve_shapes
    from ..loading.loader import load

    model = load(path)
    try:
        found = model.description
        resolve_shapes(model.inputs, sizes or {}, shapes or {})  # refuses what the model does not have
        known = {port.name: _known_sizes(port, sizes or {}, shapes or {}) for port in model.inputs}
        variables = {name: known[port][axis] for name, (port, axis) in found["dims"].items()}
        variables = {name: size for name, size in variables.items() if size is not None}
        peak = found["workspace_bytes"]
        given = {p.name: known[p.name] for p in model.inputs if not p.optional}
        if peak is None and all(None not in shape for shape in given.values()):
            peak = model.workspace_bytes({n: [d for d in s if d is not None] for n, s in given.items()})
        return Figures(
            os.fspath(path),
            "library",
            [_port(p) for p in model.inputs],
            [_port(p) for p in model.outputs],
            found["operators"],
            found["parameters"],
            found["weights_bytes"],
            found["multiply_adds"],
            evaluate(found["multiply_adds"], variables),
            peak,
            dict(model.metadata),
            {
                **{
                    key: found[key]
                    for key in (
                        "graph",
                        "producer",
                        "opsets",
                        "target",
                        "features",
                        "onnxc",
                        "initializer_bytes",
                        "weights_file",
                    )
                },
                **{key: found[key] for key in ("arithmetic", "fallbacks") if key in found},
                **_targets(model),
                "threads": found["threads"] or "one a processor",
                "library_bytes": Path(path).stat().st_size,
            },
        )
    finally:
        model.close()


def _targets(model: Model) -> dict[str, object]:
    """What a library for several targets says of each, and whose code runs here."""
    entries = model.description.get("targets", ())
    if len(entries) < 2:
        return {}
    sizes = {entry["name"]: entry["workspace_bytes"] for entry in entries}
    known = {name: f"{size:,} bytes" for name, size in sizes.items() if size is not None}
    return {"peak_memory_for": known, "runs_here": model.target}


def _known_sizes(port: Port, sizes: Mapping[str, int], shapes: Shapes) -> list[int | None]:
    """An input's shape as far as it is declared or given."""
    shape = list(port.shape if port.shape is not None else shapes.get(port.name, [None]))
    asked = shapes.get(port.name, [None] * len(shape))
    return [
        given if given is not None else sizes.get(size) if isinstance(size, str) else size
        for size, given in zip(shape, asked)
    ]


def _port(port: Port) -> dict[str, str]:
    text = port.dtype or "any type"
    if port.shape is None:
        text += " of any rank"
    else:
        text += f"[{', '.join('?' if size is None else str(size) for size in port.shape)}]"
    return {"name": port.name, "type": text if port.kind == "tensor" else f"{port.kind}({text})"}
