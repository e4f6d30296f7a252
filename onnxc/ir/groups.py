"""Fused groups of nodes that follow each other."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Graph, Node, Rewriter, Value
from .ops import Fused


def fuse_chain(rewriter: Rewriter, kind: str, members: Sequence[Node], origin: str) -> None:
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
