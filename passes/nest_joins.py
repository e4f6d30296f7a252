"""nest_joins: what joins the operands of another Concat, and more, joins its result.

%0 = concat(%x, %y); %1 = concat(%x, %y, %z)   →   %0 = concat(%x, %y); %1 = concat(%0, %z)

An operand can be written into one result only (`codegen/lowering/views.py`). Dense blocks join all that came
before at each of their layers: nested, every one of these joins lies in the next.
"""

from __future__ import annotations

from collections import defaultdict

from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Rewriter, Value
from ..ir.ops import Concat

Parts = tuple[Value, ...]

LONGEST = 128  # parts of a join that others are searched for, so that long ones take no time square in length


@everywhere
def nest_joins(graph: Graph) -> Graph:
    """graph with joins of joins, where several join the same."""
    rewriter = Rewriter(graph)
    known: dict[tuple[int, Parts], Value] = {}  # by axis and operands
    lengths: dict[tuple[int, Value], set[int]] = defaultdict(set)  # of those that begin with an operand
    for node in graph.nodes:
        if not isinstance(node.op, Concat):
            rewriter.copy(node)
            continue
        axis, parts = node.op.axis, tuple(map(rewriter.of, node.inputs))
        operands: list[Value] = []
        at = 0
        while at < len(parts):
            runs = (parts[at : at + n] for n in sorted(lengths[axis, parts[at]], reverse=True))
            run = next((run for run in runs if run != parts and (axis, run) in known), parts[at : at + 1])
            operands.append(known.get((axis, run), run[0]))
            at += len(run)
        joined = rewriter.copy(node, operands).outputs[0]
        if 1 < len(parts) <= LONGEST:
            known[axis, parts] = joined
            lengths[axis, parts[0]].add(len(parts))
    return rewriter.finish()
