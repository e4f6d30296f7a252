"""lift_reshapes: a Reshape rises to what can do without it.

reshape(reshape(%x))                                             →   reshape(%x)
reshape(reduce(%x) axes=(1)) shape=(n, 1)                        →   reduce(%x) axes=(1) keepdims=true
reshape(contract(%x, %w) mk, kn -> mn) shape=(a, b, n)           →   contract(reshape(%x), %w) amk, kn -> amn
reshape(map(reshape(%x), %bias: [n])) shape=(a, b, n)            →   map(%x, %bias)
reshape(map(reshape(%x), %mask: [1, b, n])) shape=(b, n)         →   map(%x, reshape(%mask) shape=(b, n))
reshape(map(%x)) of an input %x                                  →   map(reshape(%x))
reshape(map(reshape(contract(..)), %x))                          →   map(contract(..), reshape(%x))

Exporters flatten what they multiply and shape the product back. Without the two, what follows is of the
product's shape and becomes its epilogue. A Reshape of a Map stays where it is unless it ends in one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.expr import contains
from ..ir.graph import Graph, Node, Rewriter, Value, reshaped_constant
from ..ir.ops import Contract, Map, Op, Reduce, Reshape, Shape
from ..ir.requirements import Need


@everywhere
def lift_reshapes(graph: Graph) -> Graph:
    """graph with Reshapes at the operands of what they follow, or without them."""
    rewriter = Rewriter(graph)
    lift = _Lift(rewriter)
    for node in graph.nodes:
        lifted = None
        if isinstance(node.op, Reshape):
            lifted = lift.reshaped(rewriter.of(node.inputs[0]), node.op.shape)
        if lifted is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, (lifted,))
    return rewriter.finish()


DEPTH = 8  # Maps, one after the other, that a Reshape is lifted over


class _Lift:
    """Writes values under other shapes."""

    def __init__(self, rewriter: Rewriter):
        self.rewriter = rewriter

    def reshaped(self, value: Value, shape: Shape, depth: int = DEPTH, anyhow: bool = False) -> Value | None:
        """value under another shape without a Reshape of value itself; where that cannot be, one of it
        `anyhow`, or None."""
        found = self._without(value, shape, depth, anyhow)
        node = value.producer
        return self._add(Reshape(shape), [value], node) if found is None and anyhow and node else found

    def _without(self, value: Value, shape: Shape, depth: int, anyhow: bool) -> Value | None:
        node = value.producer
        if value.shape == shape:
            return value
        if node is None:
            return None
        if isinstance(node.op, Reshape):
            (source,) = node.inputs
            return source if source.shape == shape else self._add(Reshape(shape), [source], node)
        if self.rewriter.readers[value] > 1:
            return None
        match node.op:
            case Reduce(keepdims=False):
                kept = replace(node.op, keepdims=True)
                fits = kept.infer(Need(), *(v.tensor for v in node.inputs))[0].shape == shape
                return self._add(kept, node.inputs, node) if fits else None
            case Contract():
                return self._contract(node, shape)
            case Map(shape=None) if depth > 0:
                return self._map(node, shape, depth - 1, anyhow)
        return None

    def _contract(self, node: Node, shape: Shape) -> Value | None:
        """The product of a left operand whose first axis, the result's first too, is split in `shape`."""
        op, (x, *others) = node.op, node.inputs
        rows, extra = op.out[:1], len(shape) - len(op.out)
        if len(others) > 1 or extra < 1 or not op.lhs.startswith(rows) or (op.lhs + op.rhs).count(rows) != 1:
            return None
        first, *rest = node.outputs[0].shape
        if shape[extra + 1 :] != tuple(rest):
            return None
        certain = dims.equal(dims.product(shape[: extra + 1]), first) is True
        if not certain and not dims.at_least(dims.product(rest), 1):
            return None  # an empty product may have any sizes before the rest
        fresh = "".join([c for c in ascii_letters if c not in op.lhs + op.rhs][:extra])
        split = Reshape((*shape[: extra + 1], *x.shape[1:]))
        x = self.reshaped(x, split.shape) or self._add(split, (x,), node)
        return self._add(replace(op, lhs=fresh + op.lhs, out=fresh + op.out), (x, *others), node)

    def _map(self, node: Node, shape: Shape, depth: int, anyhow: bool) -> Value | None:
        """The Map over operands of another shape, if those that have its shape can be had so and all others
        lie along axes that stay. Operands none of which has its shape would not make the other."""
        old = node.outputs[0].shape
        if all(v.shape != old for v in node.inputs):
            return None
        kept = 0
        while kept < min(len(old), len(shape)) and old[-1 - kept] == shape[-1 - kept]:
            kept += 1
        if len(node.inputs) == 1 and node.inputs[0].producer is None and node.inputs[0].constant is None:
            found: list[Value | None] = [self._add(Reshape(shape), node.inputs, node)]  # nobody made it so
        else:
            mine = [v.shape == old for v in node.inputs]
            found = [self.reshaped(v, shape, depth, anyhow) if m else v for v, m in zip(node.inputs, mine)]
            if not anyhow and any(m and _is_product(v) for v, m in zip(found, mine)):
                found = [self.reshaped(v, shape, depth, True) if m else v for v, m in zip(node.inputs, mine)]
        operands = [v for v in found if v is not None]
        if contains(node.op.body, "index") or len(operands) < len(found):
            return None
        beyond = [new is v and v.rank > kept for new, v in zip(operands, node.inputs)]
        if any(d != 1 for v, longer in zip(operands, beyond) if longer for d in v.shape[: v.rank - kept]):
            return None
        operands = [self._last(v, kept, node) if longer else v for v, longer in zip(operands, beyond)]
        return self._add(node.op, operands, node)

    def _last(self, value: Value, axes: int, node: Node) -> Value:
        """The last axes of a value, all before them of size 1."""
        shape = value.shape[value.rank - axes :]
        if value.constant is None:
            return self._add(Reshape(shape), [value], node)
        return reshaped_constant(value, shape)

    def _add(self, op: Op, inputs: Sequence[Value], node: Node) -> Value:
        """A node in place of another, read where that was."""
        (output,) = self.rewriter.add(op, inputs, node.origin)
        self.rewriter.readers[output] = 1
        return output


def _is_product(value: Value | None) -> bool:
    return value is not None and value.producer is not None and isinstance(value.producer.op, Contract)
