"""eliminate_dead: drops nodes whose results nobody reads, and what regions capture or return for nobody.

%0 = map(%x) {...}; %1 = map(%x) {...}; return %1   →   %1 = map(%x) {...}; return %1
"""
from __future__ import annotations

from dataclasses import replace

from .. import dims
from ..dims import Dimension
from ..expr import Expr, topological
from ..ir import Graph, Node, TensorType, Value, regions
from ..ops import Bind, If, Loop, RuntimeCall
from ..target import Target


def eliminate_dead(graph: Graph, target: Target) -> Graph:
    """graph without nodes that neither an output nor a needed dimension variable depends on."""
    live: set[Value] = set(graph.outputs)
    variables = _variables_of(v.type for v in graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        binds = isinstance(node.op, Bind) and any(s.name in variables for s in node.op.symbols)
        shapes = _bound_by_results(node) & variables
        if not binds and not shapes and not any(v in live for v in node.outputs):
            continue
        node = _inside(node, target)
        kept.append(node)
        live.update(node.inputs)
        variables |= needed_variables(node)
    return replace(graph, nodes=tuple(reversed(kept)))


def _bound_by_results(node: Node) -> set[str]:
    """The variables that get their sizes from what the node returns."""
    if not isinstance(node.op, (If, Loop, RuntimeCall)):
        return set()
    found = _variables_of(v.type for v in node.outputs)
    return found - _variables_of(v.type for v in node.inputs) if isinstance(node.op, RuntimeCall) else found


def _inside(node: Node, target: Target) -> Node:
    """node with its regions cleaned, and operands that no region reads any more dropped."""
    if not isinstance(node.op, (If, Loop)):
        return node
    cleaned = {k: eliminate_dead(v, target) for k, v in vars(node.op).items() if isinstance(v, Graph)}
    fixed = 1 if isinstance(node.op, If) else 2 + node.op.carried  # operands that are no captures
    own = 0 if isinstance(node.op, If) else 2 + node.op.carried  # region inputs that are no captures
    used = [_used(g) for g in cleaned.values()]
    keep = [
        k for k in range(len(node.inputs) - fixed)
        if any(g.inputs[own + k] in u for g, u in zip(cleaned.values(), used))
    ]
    cleaned = {
        name: replace(g, inputs=(*g.inputs[:own], *(g.inputs[own + k] for k in keep)))
        for name, g in cleaned.items()
    }
    inputs = (*node.inputs[:fixed], *(node.inputs[fixed + k] for k in keep))
    return Node(replace(node.op, **cleaned), inputs, node.outputs, node.origin, node.choice)


def _used(graph: Graph) -> set[Value]:
    return {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)


def needed_variables(node: Node) -> set[str]:
    """The dimension variables that running a node takes: those of its types, its op's sizes and its
    regions."""
    found = _variables_of(v.type for v in (*node.inputs, *node.outputs))
    found |= _variables_in(tuple(v for v in vars(node.op).values() if not isinstance(v, Graph)))
    for graph in regions(node.op):
        found |= _variables_of(v.type for v in graph.inputs)
        for inner in graph.nodes:
            found |= needed_variables(inner)
    return found


def _variables_of(types) -> set[str]:
    return {s.name for t in types if isinstance(t, TensorType) for d in t.shape for s in dims.symbols(d)}


def _variables_in(values: tuple) -> set[str]:
    """The variables in an op's fields: sizes, expressions, and tuples of them."""
    found: set[str] = set()
    for value in values:
        if isinstance(value, dims.Dim):
            found |= {s.name for s in dims.symbols(value)}
        elif isinstance(value, Expr):
            sizes: list[Dimension] = [n.value for n in topological(value) if n.op == "size"]
            found |= _variables_in(tuple(sizes))
        elif isinstance(value, tuple):
            found |= _variables_in(value)
    return found
