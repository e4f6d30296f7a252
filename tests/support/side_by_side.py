"""Many models as one, so that many cases take one library: their graphs side by side, names made
different."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx.compose import add_prefix


def side_by_side(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """One model of models of the same operator sets: its inputs and outputs are theirs, in order. Names,
    those of sizes too, begin with the number of the model; one alone keeps its own."""
    if len(models) == 1:
        return models[0]
    first, *others = (_numbered(model, f"c{k}_") for k, model in enumerate(models))
    for model in others:
        for part in ("node", "input", "output", "initializer", "sparse_initializer", "value_info"):
            getattr(first.graph, part).extend(getattr(model.graph, part))
        first.ir_version = max(first.ir_version, model.ir_version)
    return first


def feeds_of(whole: onnx.ModelProto, parts: Sequence[tuple[onnx.ModelProto, Sequence]]) -> dict[str, object]:
    """What the inputs of `side_by_side` get: those of each model in order. Initializers that are inputs
    too get nothing."""
    stored = {value.name for value in whole.graph.initializer}
    names = iter([value.name for value in whole.graph.input])
    found: dict[str, object] = {}
    for model, inputs in parts:
        own = [next(names) for _ in model.graph.input]
        found |= zip([name for name in own if name not in stored], inputs)
    return found


def _numbered(model: onnx.ModelProto, prefix: str) -> onnx.ModelProto:
    found = add_prefix(model, prefix)
    for value in (*found.graph.input, *found.graph.output, *found.graph.value_info):
        for dimension in dimensions(value.type):
            if dimension.dim_param:
                dimension.dim_param = prefix + dimension.dim_param
    return found


def dimensions(type_: onnx.TypeProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    """Those of a tensor, or of the elements of what holds tensors."""
    kind = type_.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return dimensions(getattr(type_, kind).elem_type)
    return type_.tensor_type.shape.dim


def opsets(model: onnx.ModelProto) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((o.domain, o.version) for o in model.opset_import))
