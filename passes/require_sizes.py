"""require_sizes: what only the run can tell of sizes is asked before all else, whoever vanishes later.

%0 = concat(%x: [2, n], %y: [2, min(n, 6)]) axis=0; ...
    →   require kind=equal sizes=(n, min(n, 6)); %0 = concat(%x, %y) axis=0; ...

A node is checked just before it runs. But a part of what is joined may be read from an operand, and of what
is added a part be computed: who reads it then relies on sizes that no node compares any more.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import dims
from ..ir.graph import Graph, Node, make_node
from ..ir.ops import Require, requirements
from ..ir.regions import everywhere
from .eliminate_dead import bound_by


@everywhere
def require_sizes(graph: Graph) -> Graph:
    """graph in which every requirement of its nodes stands where all variables of it are known."""
    told = {
        name: k for k, names in enumerate(map(bound_by(graph).get, graph.nodes), 1) for name in names or ()
    }
    asked = {node.op for node in graph.nodes if isinstance(node.op, Require)}
    placed: list[list[Node]] = [[] for _ in graph.nodes]  # before each
    for k, node in enumerate(graph.nodes):
        for need in requirements(node):
            op = Require(need.kind, (need.a, need.b), need.code)
            if op not in asked:
                asked.add(op)
                names = {s.name for size in op.sizes for s in dims.symbols(size)}
                first = max((told.get(name, 0) for name in names), default=0)
                placed[min(first, k)].append(make_node(op, (), need.origin))
    nodes = tuple(n for before, node in zip(placed, graph.nodes, strict=True) for n in (*before, node))
    return replace(graph, nodes=nodes) if len(nodes) > len(graph.nodes) else graph
