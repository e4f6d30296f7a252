"""Fused groups of nodes that follow each other, or lead to one of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .graph import Graph, Node, Rewriter, Value
from .ops import Fused, FusedKind


def fuse_chain(rewriter: Rewriter, kind: FusedKind, members: Sequence[Node], origin: str) -> None:
    """Writes a group of members, each of which reads the result of the one before as its first operand and
    whose last has one result; the group's operands are the first's and the others of the rest, in order."""
    parameters: list[Value] = []
    operands: list[Value] = []
    nodes: list[Node] = []
    for member in members:
        own = member.inputs[1:] if nodes else member.inputs
        parameters += (here := [Value(v.type) for v in own])
        operands += map(rewriter.of, own)
        inputs = (nodes[-1].outputs[0], *here) if nodes else tuple(here)
        outputs = tuple(Value(v.type, v.name) for v in member.outputs)
        nodes.append(Node(member.op, inputs, outputs, member.origin))
    region = Graph(tuple(parameters), nodes[-1].outputs, tuple(nodes))
    result = members[-1].outputs[0]
    rewriter.replace([result], rewriter.add(Fused(kind, region), operands, origin, [result.name]))


def fuse_members(
    rewriter: Rewriter, kind: FusedKind, members: Sequence[Node], apart: Collection[Value] = ()
) -> None:
    """Writes a group of members, in an order in which they can run, of whose results others read the last
    one's alone. What they read is a parameter each, once; a value that is `apart` is one wherever it is
    read."""
    parameters: list[Value] = []
    operands: list[Value] = []
    stands: dict[Value, Value] = {}
    nodes: list[Node] = []

    def stand(value: Value) -> Value:
        if value in stands:
            return stands[value]
        operands.append(rewriter.of(value))
        parameters.append(Value(value.type))
        if value not in apart:
            stands[value] = parameters[-1]
        return parameters[-1]

    for member in members:
        outputs = tuple(Value(v.type, v.name) for v in member.outputs)
        nodes.append(Node(member.op, tuple(map(stand, member.inputs)), outputs, member.origin))
        stands.update(zip(member.outputs, outputs))
    last = members[-1]
    region = Graph(tuple(parameters), nodes[-1].outputs, tuple(nodes))
    outputs = rewriter.add(Fused(kind, region), operands, last.origin, [last.outputs[0].name])
    rewriter.replace(last.outputs, outputs)
