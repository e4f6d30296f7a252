"""Passes over all graphs of a model: its own, and the branches and bodies of control flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from .graph import Graph, Node
from .ops import If, Loop

Pass = Callable[[Graph], Graph]


def everywhere(rule: Pass) -> Pass:
    """The pass that applies a rule to every graph, branches and bodies before the graph that holds them.
    Fused groups are left alone."""

    @wraps(rule)
    def apply(graph: Graph) -> Graph:
        nodes = tuple(_in_regions(node, apply) for node in graph.nodes)
        return rule(graph if nodes == graph.nodes else replace(graph, nodes=nodes))

    return apply


def _in_regions(node: Node, change: Pass) -> Node:
    """node with its branches or its body changed."""
    if not isinstance(node.op, (If, Loop)):
        return node
    old = {name: value for name, value in vars(node.op).items() if isinstance(value, Graph)}
    new: dict[str, Any] = {name: change(value) for name, value in old.items()}
    if all(new[name] is graph for name, graph in old.items()):
        return node
    return Node(replace(node.op, **new), node.inputs, node.outputs, node.origin, node.choice)
