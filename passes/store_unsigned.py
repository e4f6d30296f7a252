"""store_unsigned: signed bytes that are multiplied are stored as unsigned ones, 128 more.

%q = map(%x) { cast(min(max(add(round(mul($0, 8.0)), 3.0), -128.0), 127.0), int8) }
map(%q) { mul(cast(sub(cast($0, int32), 3), float32), 0.125) }
    →   %q = map(%x) { cast(min(max(add(round(mul($0, 8.0)), 131.0), 0.0), 255.0), uint8) }
        map(%q) { mul(cast(sub(cast($0, int32), 131), float32), 0.125) }

For targets whose dot products take an unsigned operand and a signed one, which the weights are. NaN, for
which no integer stands, becomes the least one.
"""

from __future__ import annotations

from ..ir import expr
from ..ir.expr import Expr
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Map
from ..ir.quantised import quantised
from ..ir.regions import everywhere
from ..target import Target

SHIFT = 128


def store_unsigned(graph: Graph, target: Target) -> Graph:
    """graph with quantised int8 as uint8 where the target multiplies that alone."""
    if target.dot("int8", "int8", "int32") or not target.dot("uint8", "int8", "int32"):
        return graph
    return everywhere(_unsigned)(graph)


def _unsigned(graph: Graph) -> Graph:
    rewriter, shifted = Rewriter(graph), _shifted(graph)
    for node in graph.nodes:
        if isinstance(node.op, Map) and not shifted.isdisjoint((*node.inputs, *node.outputs)):
            body = _over_unsigned(node, shifted)
            body = _as_unsigned(body) if node.outputs[0] in shifted else body
            inputs = [rewriter.of(v) for v in node.inputs]
            made = rewriter.add(Map(body, node.op.shape), inputs, node.origin, [node.outputs[0].name])
            rewriter.replace(node.outputs, made)
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _shifted(graph: Graph) -> set[Value]:
    """int8 made by Maps and read by those alone that dequantise it."""
    made = [node.outputs[0] for node in graph.nodes if isinstance(node.op, Map)]
    found = {value for value in made if value.dtype == "int8"}
    for node in graph.nodes:
        for value in found.intersection(node.inputs):
            if not _dequantises(node, value):
                found.discard(value)
    return found.difference(graph.outputs)


def _dequantises(node: Node, value: Value) -> bool:
    if not isinstance(node.op, Map):
        return False
    behind = quantised(node.outputs[0])
    return behind is not None and behind.stored is value and isinstance(behind.zero, int)


def _over_unsigned(node: Node[Map], shifted: set[Value]) -> Expr:
    """The body with 128 taken off the operands that are stored so."""
    places = {k: v for k, v in enumerate(node.inputs) if v in shifted}

    def centred(e: Expr) -> Expr | None:
        number, zero = e.args if e.op == "sub" else (e, expr.const(0, "int32"))
        stored = number.args[0] if number.op == "cast" and number.dtype == "int32" else number
        if stored.op != "input" or stored.value not in places or e.dtype != "int32":
            return None
        return expr.input_(stored.value, "uint8").cast("int32") - (zero + SHIFT)

    return expr.rewrite(node.op.body, centred) if places else node.op.body


def _as_unsigned(body: Expr) -> Expr:
    """The body's int8 and 128 more, as uint8; a clip to numbers is moved instead."""
    real = body.args[0] if body.op == "cast" else body
    if real.op == "min" and real.args[0].op == "max" and real.dtype == "float32":
        high, (x, low) = real.args[1], real.args[0].args
        if high.op == low.op == "const" and low.value >= -128 and high.value <= 127:
            moved = x.args[0] + (x.args[1].value + SHIFT) if _adds_number(x) else x + float(SHIFT)
            return moved.clip(low.value + SHIFT, high.value + SHIFT).cast("uint8")
    return (body.cast("int32") + SHIFT).cast("uint8")


def _adds_number(x: Expr) -> bool:
    return x.op == "add" and x.args[1].op == "const" and x.args[0].op == "round"
