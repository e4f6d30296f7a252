"""The figures of a model file: operators, parameters, operator sets; what a library says of its origin."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx

from ..ir import dims, dtypes
from ..ir.arithmetic import multiply_adds
from ..ir.graph import Graph
from .importer import Imported
from .model_file import ModelFile
from .tensors import DTYPE_NAMES
from .walk import all_node_lists, all_tensors, initializers


def library_details(imported: Imported, graph: Graph) -> dict[str, object]:
    """What a library's description carries of its model. graph: the model's after the passes."""
    proto = imported.model.proto
    return {
        "graph": graph.name,
        "producer": proto.producer_name,
        "model_version": proto.model_version if proto.HasField("model_version") else None,
        "domain": proto.domain,
        "doc": proto.doc_string[:1000],
        "graph_doc": proto.graph.doc_string[:1000],
        "overridable": overridable(proto),
        "declared": {
            port.name: _declared_shape(port)
            for port in proto.graph.output
            if port.type.tensor_type.HasField("shape")
        },
        "sparse": [
            port.name
            for port in (*proto.graph.input, *proto.graph.output)
            if port.type.HasField("sparse_tensor_type")
        ],
        **figures(imported, graph),
    }


def overridable(proto: onnx.ModelProto) -> list[dict[str, object]]:
    """Initializers that are also inputs, so that runs may give them: since IR version 4, before which all
    initializers had to be inputs."""
    if proto.ir_version < 4:
        return []
    stored = initializers(proto.graph)
    return [
        {
            "name": port.name,
            "dtype": DTYPE_NAMES.get(port.type.tensor_type.elem_type),
            "shape": _declared_shape(port),
        }
        for port in proto.graph.input
        if port.name in stored
    ]


def _declared_shape(port: onnx.ValueInfoProto) -> list[int | str | None]:
    """Sizes and names as the model writes them; None where it leaves one open."""
    shape = port.type.tensor_type.shape
    return [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in shape.dim]


def figures(imported: Imported, graph: Graph) -> dict[str, Any]:
    """Counts of operators, parameters, bytes and multiply-adds; `dims` says at which input and axis each
    variable of the count of multiply-adds is found. graph: the model's after the passes."""
    count = multiply_adds(graph)
    return {
        "operators": operators(imported.model),
        "parameters": sum(dims.product(t.dims) for t in all_tensors(imported.model.proto)),
        "initializer_bytes": sum(tensor_bytes(t) for t in all_tensors(imported.model.proto)),
        "multiply_adds": count if isinstance(count, int) else str(count),
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
    counts = Counter(
        f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        for _, nodes in all_node_lists(model.proto)
        for node in nodes
    )
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def opsets(model: ModelFile) -> dict[str, int]:
    return {entry.domain or "ai.onnx": entry.version for entry in model.proto.opset_import}


def node_count(model: ModelFile) -> int:
    """The nodes written in a model, those of branches, bodies and functions included."""
    return sum(len(nodes) for _, nodes in all_node_lists(model.proto))


def tensor_bytes(tensor: onnx.TensorProto) -> int:
    """Bytes of a stored tensor's elements, as a library would store them."""
    name = DTYPE_NAMES.get(tensor.data_type)
    return dims.product(tensor.dims) * (dtypes.itemsize(name) if name is not None else 1)
