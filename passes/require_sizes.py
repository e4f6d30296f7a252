"""require_sizes: what only the run can tell of sizes is asked before the node that needs it, whoever goes.

%0 = concat(%x: [2, n], %y: [2, min(n, 6)]) axis=0; ...
    →   require kind=equal sizes=(n, min(n, 6)); %0 = concat(%x, %y) axis=0; ...

A node is checked just before it runs. But a part of what is joined may be read from an operand, and of what
is added a part be computed: who reads it then relies on sizes that no node compares any more. Indices that
are known are asked about as sizes are: who picks the places that they name may become a part that is read.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, make_node
from ..ir.ops import Require, requirements


@everywhere
def require_sizes(graph: Graph) -> Graph:
    """graph in which every requirement of its nodes stands before the first that has it."""
    asked = {node.op for node in graph.nodes if isinstance(node.op, Require)}
    nodes: list[Node] = []
    for node in graph.nodes:
        for need in requirements(node):
            op = Require(need.kind, (need.a, need.b), need.code)
            if op not in asked:
                asked.add(op)
                nodes.append(make_node(op, (), need.origin))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes)) if len(nodes) > len(graph.nodes) else graph
