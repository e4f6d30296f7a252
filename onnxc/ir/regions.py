"""Applying a pass inside the regions of control flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .graph import Graph, Node
from .ops import If, Loop


def in_regions(node: Node, function: Callable[[Graph], Graph]) -> Node:
    """node with its branches or its body transformed; fused groups are left alone."""
    if not isinstance(node.op, (If, Loop)):
        return node
    changed = {name: function(value) for name, value in vars(node.op).items() if isinstance(value, Graph)}
    op = replace(node.op, **changed)
    return Node(op, node.inputs, node.outputs, node.origin, node.choice)
