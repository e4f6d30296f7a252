"""Walks over models: subgraphs and tensors of nodes, captured values, and an order of execution.

Subgraphs see the values of the graphs around them. What a node's subgraphs take from outside are
inputs of the node in all but name, and count as such in the order. Nothing here recurses.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

import onnx

from ..errors import LimitError

MAX_NESTING = 64  # of subgraphs


def too_deep() -> LimitError:
    return LimitError(f"subgraphs nest deeper than {MAX_NESTING} levels")


Attribute = onnx.AttributeProto

#: A graph and its nodes, or those of a function (None).
NodeList = tuple[onnx.GraphProto | None, Sequence[onnx.NodeProto]]


def subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs in a node's attributes, with the attributes' names."""
    return attribute_graphs(node.attribute)


def default_graphs(function: onnx.FunctionProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs that a function's attributes are where a call gives none, with the attributes' names."""
    return attribute_graphs(function.attribute_proto)


def attribute_graphs(attributes: Iterable[Attribute]) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs in attributes, with the attributes' names."""
    for attribute in attributes:
        if attribute.HasField("g"):
            yield attribute.name, attribute.g
        for graph in attribute.graphs:
            yield attribute.name, graph


def attribute_tensors(attribute: Attribute) -> Iterator[onnx.TensorProto]:
    """The dense tensors in an attribute and the parts of its sparse ones."""
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
    for tensor in (*sparse, *attribute.sparse_tensors):
        yield tensor.values
        yield tensor.indices


def all_node_lists(model: onnx.ModelProto) -> Iterator[NodeList]:
    """(graph, its nodes) of the main graph, every subgraph and every function body (None), whose attributes'
    defaults count as its subgraphs."""
    pending: list[NodeList] = [(model.graph, model.graph.node)]
    for function in model.functions:
        pending.append((None, function.node))
        pending += [(inner, inner.node) for _, inner in default_graphs(function)]
    yield from _with_subgraphs(pending)


def node_lists(graph: onnx.GraphProto) -> Iterator[NodeList]:
    """(graph, its nodes) of a graph and every subgraph."""
    return _with_subgraphs([(graph, graph.node)])


def _with_subgraphs(pending: list[NodeList]) -> Iterator[NodeList]:
    while pending:
        graph, nodes = pending.pop()
        yield graph, nodes
        for node in nodes:
            pending += [(inner, inner.node) for _, inner in subgraphs(node)]


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor that a compile may read: initializers and attributes, functions included."""
    for graph, nodes in all_node_lists(model):
        if graph is not None:
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield sparse.values
                yield sparse.indices
        for node in nodes:
            for attribute in node.attribute:
                yield from attribute_tensors(attribute)
    for function in model.functions:
        for attribute in function.attribute_proto:
            yield from attribute_tensors(attribute)


def initializers(graph: onnx.GraphProto) -> set[str]:
    """The values that a graph stores, dense and sparse ones."""
    names = {tensor.name for tensor in graph.initializer}
    names.update(sparse.values.name for sparse in graph.sparse_initializer)
    return names


def definitions(graph: onnx.GraphProto) -> set[str]:
    """The values that a graph defines: inputs, initializers and the outputs of its nodes."""
    names = {value.name for value in graph.input} | initializers(graph)
    for node in graph.node:
        names.update(node.output)
    return names


def captured_names(node: onnx.NodeProto) -> list[str]:
    """The values from outside that the node's subgraphs use, each once, in order of first use."""
    captured: dict[str, None] = {}
    pending: list[tuple[onnx.GraphProto, tuple[set[str], ...]]]
    pending = [(graph, (definitions(graph),)) for _, graph in subgraphs(node)]
    while pending:
        graph, scopes = pending.pop()
        for inner in graph.node:
            used(inner.input, scopes, captured)
            pending += [(nested, (definitions(nested), *scopes)) for _, nested in subgraphs(inner)]
        used((value.name for value in graph.output), scopes, captured)
    return list(captured)


def used(names: Iterable[str], scopes: tuple[set[str], ...], captured: dict[str, None]) -> None:
    """Add the `names` that no scope defines to `captured`."""
    for name in names:
        if name and not any(name in scope for scope in scopes):
            captured[name] = None


def node_dependencies(nodes: Iterable[onnx.NodeProto]) -> list[list[int]]:
    """For each node the positions of the nodes that it needs, captured values included.

    Values that no node here produces are someone else's concern."""
    nodes = list(nodes)
    producer = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    dependencies = []
    for node in nodes:
        names = [*node.input, *captured_names(node)]
        dependencies.append(list(dict.fromkeys(producer[name] for name in names if name in producer)))
    return dependencies


def topological_order(nodes: Iterable[onnx.NodeProto]) -> tuple[list[int], list[list[int]]]:
    """(order, cycles): positions of `nodes` so that producers come first, and the cycles.

    Nodes on a cycle or behind one are not in the order. Of what can run, the earliest comes first,
    so a graph that is in order stays as it is. Takes n log n steps at most."""
    dependencies = node_dependencies(nodes)
    missing = [len(needs) for needs in dependencies]
    users: list[list[int]] = [[] for _ in dependencies]
    for index, needs in enumerate(dependencies):
        for need in needs:
            users[need].append(index)
    ready = [index for index, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            missing[user] -= 1
            if missing[user] == 0:
                heapq.heappush(ready, user)
    return order, _cycles(dependencies, missing)


def _cycles(dependencies: list[list[int]], missing: list[int]) -> list[list[int]]:
    """Cycles among the nodes that still miss something, disjoint, each in the order of data."""
    walk_of: dict[int, int] = {}
    cycles = []
    for start, count in enumerate(missing):
        path: list[int] = []
        index = start
        while count and index not in walk_of:
            walk_of[index] = start
            path.append(index)
            index = next(need for need in dependencies[index] if missing[need])
        if path and walk_of[index] == start:
            cycles.append(path[path.index(index) :][::-1])
    return cycles
