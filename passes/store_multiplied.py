"""store_multiplied: integers that are multiplied are stored with the sign that the target multiplies.

%q = map(%x) { cast(min(max(add(round(mul($0, 8.0)), 3.0), -128.0), 127.0), int8) }
map(%q) { mul(cast(sub(cast($0, int32), 3), float32), 0.125) }
    →   %q = map(%x) { cast(min(max(add(round(mul($0, 8.0)), 131.0), 0.0), 255.0), uint8) }
        map(%q) { mul(cast(sub(cast($0, int32), 131), float32), 0.125) }

For targets whose products of bytes take an unsigned operand and a signed one, which the weights are; and
uint16 becomes int16 where products of these are added up. NaN, for which no integer stands, becomes the least
one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..ir import dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Map
from ..ir.quantised import quantised
from ..target import Target

#: What is stored, as what instead.
OTHERS = (("int8", "uint8"), ("uint16", "int16"))
_WEIGHTS = {"uint8": "int8", "int16": "int16"}


def store_multiplied(graph: Graph, target: Target) -> Graph:
    """graph with quantised int8 as uint8, and uint16 as int16, where the target multiplies those alone."""
    for stored, other in OTHERS:
        weights = _WEIGHTS[other]
        multiplied, wanted = (target.dot(t, weights, "int32", pairs=True) for t in (stored, other))
        if wanted is not None and multiplied is None:
            graph = everywhere(partial(_stored, stored=stored, other=other))(graph)
    return graph


def _stored(graph: Graph, stored: str, other: str) -> Graph:
    return _Stored(graph, stored, other).graph()


class _Stored:
    """A graph at work in which one type of integers becomes another of the same size."""

    def __init__(self, graph: Graph, stored: str, other: str):
        self.rewriter, self.stored, self.other = Rewriter(graph), stored, other
        self.shift = dtypes.integer_range(other)[0] - dtypes.integer_range(stored)[0]

    def graph(self) -> Graph:
        rewriter, moved = self.rewriter, self._moved()
        for node in rewriter.graph.nodes:
            if isinstance(node.op, Map) and not moved.isdisjoint((*node.inputs, *node.outputs)):
                body = self._over_other(node, moved)
                body = self._as_other(body) if node.outputs[0] in moved else body
                inputs = [rewriter.of(v) for v in node.inputs]
                made = rewriter.add(replace(node.op, body=body), inputs, node.origin, [node.outputs[0].name])
                rewriter.replace(node.outputs, made)
            else:
                rewriter.copy(node)
        return rewriter.finish()

    def _moved(self) -> set[Value]:
        """Integers of the type made by Maps and read by those alone that dequantise them."""
        nodes = self.rewriter.graph.nodes
        made = [node.outputs[0] for node in nodes if isinstance(node.op, Map)]
        found = {value for value in made if value.dtype == self.stored}
        for node in nodes:
            for value in found.intersection(node.inputs):
                if not _dequantises(node, value):
                    found.discard(value)
        return found.difference(self.rewriter.graph.outputs)

    def _over_other(self, node: Node[Map], moved: set[Value]) -> Expr:
        """The body with the shift taken off the operands that are stored so."""
        places = {k: v for k, v in enumerate(node.inputs) if v in moved}

        def centred(e: Expr) -> Expr | None:
            number, zero = e.args if e.op == "sub" else (e, expr.const(0, "int32"))
            stored = number.args[0] if number.op == "cast" and number.dtype == "int32" else number
            if stored.op != "input" or stored.value not in places or e.dtype != "int32":
                return None
            return expr.input_(stored.value, self.other).cast("int32") - (zero + self.shift)

        return expr.rewrite(node.op.body, centred) if places else node.op.body

    def _as_other(self, body: Expr) -> Expr:
        """The body's integer and the shift; a clip to numbers is moved instead."""
        shift, (least, greatest) = self.shift, dtypes.integer_range(self.stored)
        real = body.args[0] if body.op == "cast" else body
        if real.op == "min" and real.args[0].op == "max" and real.dtype == "float32":
            high, (x, low) = real.args[1], real.args[0].args
            if high.op == low.op == "const" and low.value >= least and high.value <= greatest:
                moved = x.args[0] + (x.args[1].value + shift) if _adds_number(x) else x + float(shift)
                return moved.clip(low.value + shift, high.value + shift).cast(self.other)
        return (body.cast("int32") + shift).cast(self.other)


def _dequantises(node: Node, value: Value) -> bool:
    if not isinstance(node.op, Map):
        return False
    behind = quantised(node.outputs[0])
    return behind is not None and behind.stored is value and isinstance(behind.zero, int)


def _adds_number(x: Expr) -> bool:
    return x.op == "add" and x.args[1].op == "const" and x.args[0].op == "round"
