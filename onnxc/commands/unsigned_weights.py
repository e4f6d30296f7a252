"""Models of which ONNX Runtime's sums of byte products are exact on this machine, too.

    MatMulInteger(x: uint8, w: int8)   →   MatMulInteger(x, w + 128: uint8, zero point 128)

Without dot products of bytes (VNNI) ONNX Runtime adds two products of an unsigned and a signed byte in 16
bits, which saturate; two unsigned bytes it multiplies exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

#: Of operators the places of the operands, each with that of its zero point: rows, then weights.
_PRODUCTS: dict[str, tuple[tuple[int, int], ...]] = {
    "MatMulInteger": ((0, 2), (1, 3)),
    "ConvInteger": ((0, 2), (1, 3)),
    "QLinearMatMul": ((0, 2), (3, 5)),
    "QLinearConv": ((0, 2), (3, 5)),
    "QGemm": ((0, 2), (3, 5)),
    "MatMulIntegerToFloat": ((0, 4), (1, 5)),
    "QAttention": ((0, 6), (1, 7)),
    "DynamicQuantizeMatMul": ((-1, -1), (1, 3)),
    "DynamicQuantizeLSTM": ((-1, -1), (1, 9), (2, 11)),
}


def with_unsigned_weights(model: ModelProto) -> ModelProto:
    """A model whose signed weights that unsigned bytes are multiplied with become unsigned; the same one
    where there are none."""
    if not any(node.op_type in _PRODUCTS for nodes in _lists_of(model) for node in nodes):
        return model
    changed = ModelProto.FromString(model.SerializeToString())
    made = _Unsigned(_element_types(changed))
    for nodes in _lists_of(changed):
        made.rewrite(nodes)
    changed.graph.initializer.extend(made.numbers())
    return changed if made.count else model


class _Unsigned:
    """Rewrites lists of nodes; counts what it changed."""

    def __init__(self, types: dict[str, int]):
        self.types, self.count = types, 0

    def rewrite(self, nodes: Any) -> None:
        found = [made for node in nodes for made in (*self._before(node), node)]
        if len(found) > len(nodes):
            copies = [NodeProto.FromString(node.SerializeToString()) for node in found]
            del nodes[:]
            nodes.extend(copies)

    def _before(self, node: NodeProto) -> Iterator[NodeProto]:
        (rows, own), *weights = _PRODUCTS.get(node.op_type, ((-1, -1),))
        if TensorProto.INT8 in (self._type(node, own), self._type(node, rows)):
            return
        for place, zero in weights:
            if TensorProto.INT8 not in (self._type(node, place), self._type(node, zero)):
                continue
            yield from self._shifted(node, place)
            if _named(node, zero):
                yield from self._shifted(node, zero)
            else:
                node.input.extend([""] * (zero + 1 - len(node.input)))
                node.input[zero] = _UNSIGNED_ZERO

    def _type(self, node: NodeProto, place: int) -> int:
        return self.types.get(_named(node, place), 0)

    def _shifted(self, node: NodeProto, place: int) -> Iterator[NodeProto]:
        """Nodes that add 128 to an operand, which then is the node's."""
        name = f"{node.input[place]}/unsigned/{self.count}"
        self.count += 1
        yield helper.make_node("Cast", [node.input[place]], [f"{name}/wide"], to=TensorProto.INT32)
        yield helper.make_node("Add", [f"{name}/wide", _SHIFT], [f"{name}/sum"])
        yield helper.make_node("Cast", [f"{name}/sum"], [name], to=TensorProto.UINT8)
        node.input[place] = name

    def numbers(self) -> list[TensorProto]:
        kinds = ((_SHIFT, TensorProto.INT32), (_UNSIGNED_ZERO, TensorProto.UINT8))
        return [helper.make_tensor(name, kind, (), [128]) for name, kind in kinds]


_SHIFT, _UNSIGNED_ZERO = "/unsigned/shift", "/unsigned/zero"


def _named(node: NodeProto, place: int) -> str:
    return node.input[place] if 0 <= place < len(node.input) else ""


def _graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all inside its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from _graphs_of(inner)


def _lists_of(model: ModelProto) -> Iterator[Any]:
    """Every list of nodes in a model's graphs; functions, which cannot read a graph's constants, are left."""
    return (graph.node for graph in _graphs_of(model.graph))


def _element_types(model: ModelProto) -> dict[str, int]:
    """The types of bytes and of what they are made of, as far as the nodes tell."""
    types: dict[str, int] = {}
    for graph in _graphs_of(model.graph):
        tensors = (*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer))
        types.update((tensor.name, tensor.data_type) for tensor in tensors)
        types.update((port.name, port.type.tensor_type.elem_type) for port in graph.input)
        for node in graph.node:
            tell = _RESULTS.get(node.op_type, lambda node, types: types.get(_named(node, 0), 0))
            types.update((name, tell(node, types)) for name in node.output)
    return types


def _quantised_type(node: NodeProto, types: dict[str, int]) -> int:
    return types.get(_named(node, 2), TensorProto.UINT8)


def _stated_type(node: NodeProto, types: dict[str, int]) -> int:
    return next((a.i for a in node.attribute if a.name == "to"), 0)


def _constant_type(node: NodeProto, types: dict[str, int]) -> int:
    return next((a.t.data_type for a in node.attribute if a.name == "value"), 0)


#: Of operators whose result has not the type of their first operand, what tells it.
_RESULTS: dict[str, Callable[[NodeProto, dict[str, int]], int]] = {
    "QuantizeLinear": _quantised_type,
    "DynamicQuantizeLinear": lambda node, types: TensorProto.UINT8,
    "Cast": _stated_type,
    "Constant": _constant_type,
}
