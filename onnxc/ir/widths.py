"""Values in two widths: what passes that store narrow numbers as float32 have in common.

Who reads a value as float32 gets the wide one, who wants its own type the narrow one; either is made of the
other when it is first asked for.
"""

from __future__ import annotations

from . import expr
from .graph import Graph, Node, Rewriter, Value
from .ops import MOVING, Gather, Map

MOVEMENT = (*MOVING, Gather)
WIDE = "float32"


def moved(node: Node) -> list[Value]:
    """The operands whose elements a node of MOVEMENT moves."""
    return list(node.inputs[:1] if isinstance(node.op, Gather) else node.inputs)


class TwoWidths:
    """The walk over a graph's nodes, whose rule is `rewrite`.

    wanted: the values that nodes are to give in float32; wide: what stands in float32 for a value of the old
    graph; narrow: that in its own type again, if it is read so.
    """

    def __init__(self, graph: Graph, wanted: set[Value]):
        self.source, self.wanted, self.rewriter = graph, wanted, Rewriter(graph)
        self.wide: dict[Value, Value] = {}
        self.narrow: dict[Value, Value] = {}

    def finish(self) -> Graph:
        for node in self.source.nodes:
            self.rewrite(node)
        for value in self.source.outputs:
            self.as_it_was(value)
        return self.rewriter.finish()

    def rewrite(self, node: Node) -> None:
        """Writes what stands for a node, and notes which of its results are wide."""
        raise NotImplementedError

    def widened(self, value: Value, origin: str) -> Value:
        """A value as float32."""
        if value not in self.wide:
            body = expr.input_(0, value.dtype).cast(WIDE)
            (self.wide[value],) = self.rewriter.add(Map(body), [self.rewriter.of(value)], origin)
            self.narrow[value] = self.rewriter.of(value)
        return self.wide[value]

    def moved_wide(self, node: Node) -> list[Value]:
        """The operands of a node of MOVEMENT that is to move float32 numbers."""
        which = set(moved(node))
        return [self.widened(v, node.origin) if v in which else self.as_it_was(v) for v in node.inputs]

    def as_it_was(self, value: Value) -> Value:
        """A value in its own type."""
        if value in self.wide and value not in self.narrow:
            body = expr.input_(0, WIDE).cast(value.dtype)
            rounded = self.rewriter.add(Map(body), [self.wide[value]], value.node.origin, [value.name])
            self.narrow[value] = rounded[0]
            self.rewriter.replace([value], rounded)
        return self.rewriter.of(value)
