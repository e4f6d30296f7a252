"""nest_joins: what joins the operands of another Concat, and more, joins its result.

%0 = concat(%x, %y); %1 = concat(%x, %y, %z)   →   %0 = concat(%x, %y); %1 = concat(%0, %z)

An operand can be written into one result only (`codegen/lowering/views.py`). Dense blocks join all that came
before at each of their layers: nested, every one of these joins lies in the next.
"""

from __future__ import annotations

from collections import defaultdict

from ..ir.graph import Graph, Rewriter, Value
from ..ir.ops import Concat
from ..ir.regions import everywhere

Parts = tuple[Value, ...]


@everywhere
def nest_joins(graph: Graph) -> Graph:
    """graph with joins of joins, where several join the same."""
    rewriter = Rewriter(graph)
    known: dict[tuple[int, Value], list[tuple[Parts, Value]]] = defaultdict(list)  # by axis and first operand
    for node in graph.nodes:
        if not isinstance(node.op, Concat):
            rewriter.copy(node)
            continue
        axis, parts = node.op.axis, tuple(map(rewriter.of, node.inputs))
        operands: list[Value] = []
        at = 0
        while at < len(parts):
            found = [(p, v) for p, v in known[axis, parts[at]] if parts[at : at + len(p)] == p != parts]
            same, value = max(found, key=lambda pair: len(pair[0]), default=((parts[at],), parts[at]))
            operands.append(value)
            at += len(same)
        joined = rewriter.copy(node, operands).outputs[0]
        if len(parts) > 1:
            known[axis, parts[0]].append((parts, joined))
    return rewriter.finish()
