"""Inputs whose values the caller fixes: constants of the model from then on.

What such a value decides is decided before anything else looks at the model: a branch of an `If` that it
leaves out is emptied, so that nothing in it is checked or reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence, Set
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from ..diagnostics import DiagnosticList, ModelErrors
from ..errors import Origin, quote
from ..ir.dtypes import COMPLEX, TEXT_KINDS, from_file, is_float, rounded
from .model_file import ModelFile
from .tensors import DTYPE_NAMES, NUMPY_DTYPES
from .walk import captured_names, definitions, subgraphs

#: Of names of values: those that are known before a run, and what they are.
Known = Callable[[ModelFile, Sequence[str]], Mapping[str, np.ndarray]]


def with_values(model: ModelFile, values: Mapping[str, object], known: Known) -> ModelFile:
    """The model with the inputs of these names as constants, and sizes that they share with other inputs as
    numbers. known: says what conditions are. Raises ModelErrors for values that do not fit."""
    if not values:
        return model
    proto, problems = onnx.ModelProto(), DiagnosticList()
    proto.CopyFrom(model.proto)
    inputs = {port.name: port for port in proto.graph.input}
    sizes: dict[str, int] = {}
    for name, value in values.items():
        try:
            if name not in inputs:
                there = ", ".join(map(quote, inputs)) or "none"
                raise ValueError(f"the model has no such input to give a value; there is {there}")
            array = _fitting(inputs[name], value, sizes)
        except (ValueError, TypeError, OverflowError) as error:
            problems.add(str(error), Origin("", f"input {name}"))
            continue
        _make_constant(proto.graph, numpy_helper.from_array(array, name))
    if problems:
        raise ModelErrors(problems, model.name)
    for port in proto.graph.input:
        for dim in port.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    found = replace(model, proto=proto)
    conditions = list(dict.fromkeys(name for _, name in _conditions(proto)))
    decided = known(found, conditions) if conditions else {}
    for node, name in _conditions(proto):
        if name in decided and decided[name].size == 1:
            _empty(node, "else_branch" if decided[name].reshape(-1)[0] else "then_branch")
    return found


def _fitting(port: onnx.ValueInfoProto, value: object, sizes: dict[str, int]) -> np.ndarray:
    """The value as an array of the input's type and shape; one number may stand for all elements. What it
    says of named sizes is added to `sizes`. ValueError where it does not fit."""
    tensor = port.type.tensor_type
    if not port.type.HasField("tensor_type"):
        raise ValueError("only a tensor can be given a value")
    dtype = DTYPE_NAMES[tensor.elem_type]
    array = _converted(from_file(np.asarray(value), dtype), dtype)
    if array is None:
        raise ValueError(f"the value given is not of type {dtype}")
    if not tensor.HasField("shape"):
        return array
    dims = tensor.shape.dim
    if array.ndim == 0 and dims and all(dim.HasField("dim_value") for dim in dims):
        return np.full([dim.dim_value for dim in dims], array)
    expected = [dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param) for dim in dims]
    fits = array.ndim == len(dims) and all(e in (None, n) for e, n in zip(expected, array.shape))
    if not fits:
        text = ", ".join(str(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in dims)
        raise ValueError(f"the value given has shape {list(array.shape)} where the model has [{text}]")
    sizes.update((dim.dim_param, n) for dim, n in zip(dims, array.shape) if dim.dim_param)
    return array


def _converted(given: np.ndarray, dtype: str) -> np.ndarray | None:
    """The array in an element type, None where that would not hold its numbers."""
    numbers = "biufc" if dtype in COMPLEX else "biuf" if is_float(dtype) else "biu"
    kinds = TEXT_KINDS if dtype == "string" else numbers
    if given.dtype.kind not in kinds and given.dtype != NUMPY_DTYPES[dtype]:
        return None
    if kinds in ("biuf", "biufc"):
        array, has = rounded(given, dtype)
        return array if has.all() else None
    array = given.astype(NUMPY_DTYPES[dtype])
    return array if kinds != "biu" or np.array_equal(array, given) else None


def _make_constant(graph: onnx.GraphProto, tensor: TensorProto) -> None:
    """An input, which may have been an initializer too, becomes an initializer alone."""
    _drop(graph.input, {tensor.name}, attrgetter("name"))
    store(graph, [tensor])


def store(graph: onnx.GraphProto, given: Sequence[TensorProto]) -> None:
    """Makes the tensors the graph's initializers of their names, in the place of dense and sparse ones."""
    names = {tensor.name for tensor in given}
    _drop(graph.initializer, names, attrgetter("name"))
    _drop(graph.sparse_initializer, names, attrgetter("values.name"))
    graph.initializer.extend(given)


def _drop(entries: MutableSequence, names: Set[str], name_of: Callable[[Any], str]) -> None:
    for k in reversed(range(len(entries))):
        if name_of(entries[k]) in names:
            del entries[k]


def _conditions(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, str]]:
    """The Ifs, at any depth, whose condition is a value of the main graph, and its name."""
    defined = definitions(model.graph)
    pending: list[tuple[onnx.GraphProto, set[str]]] = [(model.graph, set())]
    while pending:
        graph, hidden = pending.pop()
        for node in graph.node:
            is_if = node.op_type == "If" and node.domain in ("", "ai.onnx")
            if is_if and node.input and node.input[0] in defined and node.input[0] not in hidden:
                yield node, node.input[0]
            pending += [(inner, hidden | definitions(inner)) for _, inner in subgraphs(node)]


def _empty(node: onnx.NodeProto, branch: str) -> None:
    """Makes a branch that is never taken one that does nothing."""
    for attribute in node.attribute:
        if attribute.name == branch and attribute.HasField("g"):
            kept = [output.name for output in attribute.g.output]
            for entries in (attribute.g.node, attribute.g.initializer, attribute.g.value_info):
                del entries[:]
            del attribute.g.sparse_initializer[:]
            attribute.g.initializer.extend(
                numpy_helper.from_array(np.zeros((), np.float32), name) for name in dict.fromkeys(kept)
            )
            for output in attribute.g.output:
                output.type.Clear()
                output.type.tensor_type.elem_type = TensorProto.FLOAT


def leading_to(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The part of a model that computes these values, which are its outputs."""
    producer = {name: k for k, node in enumerate(model.graph.node) for name in node.output}
    wanted, kept, pending = set(names), set(), list(names)
    while pending:
        k = producer.get(pending.pop(), -1)
        if k >= 0 and k not in kept:
            kept.add(k)
            node = model.graph.node[k]
            needed = [*node.input, *captured_names(node)]
            wanted.update(needed)
            pending += needed
    found = onnx.ModelProto()
    found.CopyFrom(model)
    nodes = [found.graph.node[k] for k in sorted(kept)]
    stored = [tensor for tensor in found.graph.initializer if tensor.name in wanted]
    part = onnx.GraphProto(name=model.graph.name, node=nodes, initializer=stored, input=found.graph.input)
    part.sparse_initializer.extend(found.graph.sparse_initializer)
    part.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    found.graph.CopyFrom(part)
    return found
