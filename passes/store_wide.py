"""store_wide: 16-bit floats that somebody reads as float32 are stored as float32.

%1 = map(%0) { cast(..., float16) }; %2 = transpose(%1); conv(map(%2) { cast($0, float32) })
    →   %1 = map(%0) { cast(cast(..., float16), float32) }; %2 = transpose(%1); conv(%2)

The numbers stay those of the narrow type: they are rounded within what makes them, and nobody widens them
again. What only moves elements moves them wide; who wants them narrow gets them from the wide ones.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Graph, Node, Value
from ..ir.ops import Map, Op, Reduce
from ..ir.widths import MOVEMENT, WIDE, TwoWidths, moved


@everywhere
def store_wide(graph: Graph) -> Graph:
    """graph without Maps that widen what a Map, or what moves its result, has made."""
    return _Widening(graph, _wanted(graph)).finish()


def _wanted(graph: Graph) -> set[Value]:
    """The values to store wide."""
    wanted: set[Value] = set()
    made = _made(graph)
    for node in reversed(graph.nodes):
        read: list[Value] = []
        if isinstance(node.op, MOVEMENT) and node.outputs[0] in wanted:
            read = moved(node)
        elif isinstance(node.op, Map) and _widens(node.op.body):
            read = list(node.inputs)
        elif isinstance(node.op, Reduce) and node.op.body is not None and _widens(_first_cast(node.op.body)):
            read = list(node.inputs[:1])
        wanted.update(v for v in read if v.dtype in dtypes.HALVES and v in made)
    return wanted


def _made(graph: Graph) -> set[Value]:
    """The values that a Map makes, or what moves such."""
    made: set[Value] = set()
    for node in graph.nodes:
        moves = isinstance(node.op, MOVEMENT) and any(v in made for v in moved(node))
        if isinstance(node.op, Map) or moves:
            made.update(node.outputs)
    return made


def _widens(body: Expr | None) -> bool:
    """Whether a body is its operand as float32."""
    return body is not None and body.op == "cast" and body.dtype == WIDE and body.args[0].op == "input"


def _first_cast(body: Expr) -> Expr | None:
    """The only way in which a body reads its operand, if that is a cast."""
    readers = [e for e in expr.topological(body) if any(a.op == "input" for a in e.args)]
    return readers[0] if len(readers) == 1 else None


class _Widening(TwoWidths):
    """Wide numbers are those of the narrow type, stored in more bits."""

    def rewrite(self, node: Node) -> None:
        wanted = bool(node.outputs) and node.outputs[0] in self.wanted
        known = [v for v in node.inputs if v in self.wide]
        if wanted and isinstance(node.op, MOVEMENT):
            which = set(moved(node))
            operands = [
                self.widened(v, node.origin) if v in which else self.as_it_was(v) for v in node.inputs
            ]
            (self.wide[node.outputs[0]],) = self._add(node.op, operands, node)
        elif isinstance(node.op, Map) and _widens(node.op.body) and known:
            self.rewriter.replace(node.outputs, [self.wide[node.inputs[0]]])
        elif isinstance(node.op, (Map, Reduce)) and node.op.body is not None and (wanted or known):
            body, operands = self._body(node)
            if wanted:
                (self.wide[node.outputs[0]],) = self._add(
                    replace(node.op, body=body.cast(WIDE)), operands, node
                )
            else:
                op: Map | Reduce = replace(node.op, body=body)
                if isinstance(op, Reduce) and body.op == "input":
                    op = replace(op, body=None)
                self.rewriter.replace(node.outputs, self._add(op, operands, node))
        else:
            self.rewriter.copy(node, [self.as_it_was(v) for v in node.inputs])

    def _add(self, op: Op, operands: list[Value], node: Node) -> tuple[Value, ...]:
        return self.rewriter.add(op, operands, node.origin, [v.name for v in node.outputs])

    def _body(self, node: Node) -> tuple[Expr, list[Value]]:
        """A body over what is stored wide of its operands."""
        operands = [self.wide.get(v) or self.rewriter.of(v) for v in node.inputs]
        places = {
            k: expr.input_(k, new.dtype).cast(old.dtype)
            for k, (old, new) in enumerate(zip(node.inputs, operands))
        }
        wide = {k: expr.input_(k, WIDE) for k, v in enumerate(node.inputs) if v in self.wide}

        def read(e: Expr) -> Expr | None:
            if e.op == "input":
                return places[e.value]
            return wide.get(e.args[0].value) if _widens(e) else None  # it is rounded already

        return expr.rewrite(node.op.body, read), operands
