"""The figures of a model: what goes in and out, operators, parameters, arithmetic, bytes.

Arithmetic is counted on core ops, in multiply-adds, as a polynomial over the model's dimension
variables; so one count serves every size. A library carries the same figures in its description
(`details`), so that inspecting it needs neither `onnx` nor the model.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..ir import dims
from ..ir.dims import Dimension

if TYPE_CHECKING:
    from ..frontend.importer import Imported
    from ..frontend.model_file import ModelFile
    from ..ir.graph import Graph, Node, Type
    from ..loading.loader import Port
    from ..target import Target
    from .inputs import Shapes


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


def inspect_model(
    path: str | os.PathLike,
    sizes: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
    target: str = "native",
) -> Figures:
    """The figures of an .onnx file. sizes, shapes: as for compiling; arithmetic is given both as a
    formula and at these sizes."""
    from ..driver import optimise
    from ..frontend.importer import Options, import_model
    from ..target import find_target

    chosen = find_target(target)
    imported = import_model(path, Options())
    names = [output.name for output in imported.model.proto.graph.output]
    outputs = list(zip(names, imported.graph.outputs))
    optimised = optimise(imported.graph, chosen)
    found = details(imported, optimised)
    pinned = optimised
    if sizes or shapes:
        pinned = optimise(import_model(path, Options(sizes or {}, shapes or {})).graph, chosen)
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
            "opsets": opsets(imported.model),
            "target": chosen.name,
        },
    )


def details(imported: Imported, graph: Graph) -> dict[str, object]:
    """The figures that a library's description carries. graph: the model's after the passes."""
    return {
        "operators": operators(imported.model),
        "parameters": sum(dims.product(t.dims) for t in weight_tensors(imported.model)),
        "initializer_bytes": sum(tensor_bytes(t) for t in weight_tensors(imported.model)),
        "multiply_adds": count if isinstance(count := multiply_adds(graph), int) else str(count),
        "dims": {s.name: place for s, place in _places(imported.graph).items() if s in dims.symbols(count)},
        "opsets": opsets(imported.model),
    }


def _places(graph: Graph) -> dict[dims.Symbol, list]:
    """[input, axis] at which each dimension variable of the inputs is found."""
    places: dict[dims.Symbol, list] = {}
    for value in graph.inputs:
        for axis, size in enumerate(getattr(value.type, "shape", ())):
            for variable in dims.symbols(size):
                places.setdefault(variable, [value.name, axis])
    return places


def operators(model: ModelFile) -> dict[str, int]:
    """How often each operator is written in the model, branches, bodies and functions included."""
    from ..frontend.walk import all_node_lists

    counts = Counter(
        f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        for _, nodes in all_node_lists(model.proto)
        for node in nodes
    )
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def opsets(model: ModelFile) -> dict[str, int]:
    return {entry.domain or "ai.onnx": entry.version for entry in model.proto.opset_import}


def weight_tensors(model: ModelFile) -> list:
    """The tensors that the model stores: initializers, and the values of Constant nodes."""
    from ..frontend.walk import all_tensors

    return list(all_tensors(model.proto))


def tensor_bytes(tensor) -> int:
    """Bytes of a stored tensor's elements, as a library would store them."""
    from ..frontend.tensors import DTYPE_NAMES
    from ..ir import dtypes

    name = DTYPE_NAMES.get(tensor.data_type, "")
    return dims.product(tensor.dims) * (dtypes.itemsize(name) if name in dtypes.ALL else 1)


def peak_bytes(graph: Graph, target: Target) -> int | None:
    """Bytes for intermediate values and scratch of a run in one thread; None where inputs decide."""
    from ..codegen.lowering.plan_memory import plan_memory
    from ..codegen.lowering.select_kernels import select_kernels
    from ..driver import emit_kernels

    if any(dims.symbols(size) for value in graph.inputs for size in getattr(value.type, "shape", ())):
        return None
    graph = select_kernels(graph, target)
    codes = emit_kernels(graph, target)
    plan = plan_memory(graph, codes)
    scratch = [step.scratch for code in codes.values() for step in code.steps]
    if not plan.static or not all(isinstance(size, int) for size in scratch):
        return None
    return plan.arena_bytes + max(scratch, default=0)


def type_text(type_: Type, dim_names: Mapping[str, str]) -> str:
    """`float32[batch, 3, ?]`, sizes named as the model names them."""
    from ..ir.graph import TensorType

    if not isinstance(type_, TensorType):
        kind = type(type_).__name__.removesuffix("Type").lower()
        return f"{kind}({type_text(type_.element, dim_names) if type_.element else 'anything'})"
    return f"{type_.dtype}[{', '.join(_size_text(d, dim_names) for d in type_.shape)}]"


def _size_text(size: Dimension, dim_names: Mapping[str, str]) -> str:
    if isinstance(size, int):
        return str(size)
    if not all(dim_names.get(s.name) for s in dims.symbols(size)):
        return "?"
    return re.sub(r"[A-Za-z_]\w*", lambda found: dim_names.get(found[0], found[0]), str(size))


# Arithmetic --------------------------------------------------------------------------------------


def multiply_adds(graph: Graph) -> Dimension:
    """Multiply-adds of products, convolutions, attention and recurrent ops in one run. Of a branch
    the more expensive side counts; a loop counts as often as it is known to run, else once."""
    return sum((_of_node(node) for node in graph.nodes), 0)


def _of_node(node: Node) -> Dimension:
    from ..ir.ops import Attention, Contract, Conv, Fused, If, Loop, Recurrent

    types = [value.type for value in node.inputs]
    match node.op:
        case Contract(lhs=lhs, rhs=rhs):
            sizes = dict(zip(rhs, types[1].shape)) | dict(zip(lhs, types[0].shape))
            return dims.product(sizes.values())
        case Conv(transposed=transposed):
            image = types[0] if transposed else node.outputs[0].type
            return dims.product((image.shape[0], *image.shape[2:], *types[1].shape))
        case Attention(q=q, k=k, v=v):
            sizes = {
                label: size
                for labels, operand in zip((q, k, v), types)
                for label, size in zip(labels, operand.shape)
            }
            batch = dims.product(size for label, size in sizes.items() if label not in "qkde")
            return batch * sizes["q"] * sizes["k"] * (sizes["d"] + sizes["e"])
        case Recurrent():
            steps, batch, *_ = types[0].shape
            return steps * batch * dims.product(types[1].shape)
        case Fused(region=region):
            return multiply_adds(region)
        case If(then=then, otherwise=otherwise):
            return dims.maximum(multiply_adds(then), multiply_adds(otherwise))
        case Loop(body=body):
            trips = node.inputs[0].constant
            return multiply_adds(body) * (max(int(trips.array), 0) if trips is not None else 1)
    return 0


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
    from ..loading.loader import load
    from .inputs import resolve_shapes

    model = load(path)
    try:
        found = model.description
        resolve_shapes(model.inputs, sizes or {}, shapes or {})  # refuses what the model does not have
        known = {port.name: _known_sizes(port, sizes or {}, shapes or {}) for port in model.inputs}
        variables = {name: known[port][axis] for name, (port, axis) in found["dims"].items()}
        variables = {name: size for name, size in variables.items() if size is not None}
        peak = found["workspace_bytes"]
        if peak is None and all(None not in shape for shape in known.values()):
            peak = model.workspace_bytes(known)
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
                "threads": found["threads"] or "one a processor",
                "library_bytes": Path(path).stat().st_size,
            },
        )
    finally:
        model.close()


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
