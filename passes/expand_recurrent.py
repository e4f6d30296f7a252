"""expand_recurrent: an LSTM, GRU or RNN that no kernel takes becomes a Loop of core ops.

recurrent(%x, %w, %r) kind=rnn
    →   %p = contract(%x, %w); loop { %h' = map(%p[t], contract(%h, %r)) { tanh(add($0, $1)) } }

The input projection of all steps is one contraction before the loop. A step beyond a sequence's length keeps
the state and gives zero, in both directions, which is what the specification's reversal within the length
comes to.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .. import expr, ops
from ..builder import Builder
from ..expr import Expr
from ..ir import Graph, Node, Rewriter, TensorType, Value
from ..target import Target
from .regions import in_regions

ACTIVATIONS: dict[str, Callable[[Expr, float, float], Expr]] = {
    "relu": lambda x, a, b: x.maximum(0),
    "tanh": lambda x, a, b: expr.tanh(x),
    "sigmoid": lambda x, a, b: expr.sigmoid(x),
    "affine": lambda x, a, b: x * a + b,
    "leakyrelu": lambda x, a, b: expr.where(x >= 0, x, x * a),
    "thresholdedrelu": lambda x, a, b: expr.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: expr.tanh(x * b) * a,
    "hardsigmoid": lambda x, a, b: (x * a + b).clip(0, 1),
    "elu": lambda x, a, b: expr.where(x >= 0, x, (expr.exp(x) - 1) * a),
    "softsign": lambda x, a, b: x / (1 + abs(x)),
    "softplus": lambda x, a, b: x.maximum(0) + expr.log(1 + expr.exp(-abs(x))),
}


def expand_recurrent(graph: Graph, target: Target) -> Graph:
    """graph without Recurrent nodes that no kernel takes."""
    rewriter = Rewriter()
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        if isinstance(node.op, ops.Recurrent) and not _has_kernel(node, target):
            builder = Builder()
            builder.origin = node.origin
            outputs = _expanded(builder, node.op, inputs)
            rewriter.nodes.extend(builder.nodes)
            rewriter.replace(node.outputs, outputs)
        else:
            copied = rewriter.copy(in_regions(node, lambda g: expand_recurrent(g, target)), inputs)
            rewriter.replace(node.outputs, copied.outputs)
    return rewriter.finish(graph)


def _has_kernel(node: Node, target: Target) -> bool:
    from ..codegen.kernels import KERNELS

    return any(True for kernel in KERNELS for _ in kernel.candidates(node, target))


def _expanded(b: Builder, op: ops.Recurrent, inputs: Sequence[Value]) -> list[Value]:
    """Y, Y_h and, for an LSTM, Y_c."""
    x, w, r = inputs[:3]
    optional = dict(zip(op.operands, inputs[3:]))
    directions = [_direction(b, op, d, x, _part(b, w, d), _part(b, r, d), {
        name: value if name == "lengths" else _part(b, value, d) for name, value in optional.items()
    }) for d in range(len(op.directions))]
    stacked = []
    for k, axis in enumerate((1, 0, 0) if op.kind == "lstm" else (1, 0)):
        parts = [results[k] for results in directions]
        shape = parts[0].shape
        parts = [b.reshape(v, (*shape[:axis], 1, *shape[axis:])) for v in parts]
        stacked.append(b.concat(parts, axis))
    return stacked


def _part(b: Builder, value: Value, direction: int) -> Value:
    """What one direction has of a value, whose first axis counts directions."""
    return b.reshape(b.take(value, 0, direction, 1), value.shape[1:])


def _direction(
    b: Builder, op: ops.Recurrent, d: int, x: Value, w: Value, r: Value, optional: dict[str, Value]
) -> list[Value]:
    """(Y [T, B, H], Y_h [B, H], Y_c [B, H]) of one direction."""
    steps, batch, _ = x.shape
    backwards = op.directions[d] == "reverse"
    state = TensorType(x.dtype, (batch, op.hidden))
    projected = b.contract("tbi", "gi", "tbg", x, w)
    bias = optional.get("b")
    gates = r.shape[0]
    if bias is not None:
        projected = b.map(projected, b.take(bias, 0, 0, gates), lambda p, c: p + c)
    zero = b.broadcast(b.constant(0, x.dtype), state.shape)
    initial = [optional.get("h", zero)] + ([optional.get("c", zero)] if op.kind == "lstm" else [])

    body = Builder(b.session, b)
    body.origin = b.origin
    iteration = body.input(TensorType("int64", ()), "step")
    goes_on = body.input(TensorType("bool", ()), "condition")
    states = [body.input(state) for _ in initial]
    now = body.map(iteration, lambda i: expr.size(steps) - 1 - i) if backwards else iteration
    row = body.emit(ops.Gather("axis", 0), projected, now)[0]
    cell = _Cell(
        body, op, d, r, b.take(bias, 0, gates, gates) if bias is not None else None, optional.get("p")
    )
    after = cell.step(row, states)
    result = after[0]
    if "lengths" in optional:
        lengths = body.reshape(optional["lengths"], (batch, 1))
        runs = body.map(lengths, now, lambda n, t: t < n.cast("int64"))
        result = body.map(runs, result, lambda c, v: expr.where(c, v, 0))
        after = [
            body.map(runs, v, old, lambda c, v, old: expr.where(c, v, old)) for v, old in zip(after, states)
        ]
    outer = [value for value, _ in body.captured()]
    captured = [inner for _, inner in body.captured()]
    graph = Graph((iteration, goes_on, *states, *captured), (goes_on, *after, result), tuple(body.nodes))
    collected = TensorType(x.dtype, (steps, *state.shape))
    loop = ops.Loop(graph, len(states), (*(state for _ in states), collected))
    trips = b.elements(np.array(steps, object))
    *final, y = b.emit(loop, trips, b.constant(True), *initial, *outer)
    if backwards:
        y = b.slice(y, (steps - 1, 0, 0), y.shape, (-1, 1, 1))
    return [y, *final]


class _Cell:
    """One step of a direction: the operator's equations, with gates in ONNX's order."""

    def __init__(
        self,
        b: Builder,
        op: ops.Recurrent,
        direction: int,
        r: Value,
        bias: Value | None,
        peepholes: Value | None,
    ):
        self.b, self.op, self.r, self.bias, self.peepholes = b, op, r, bias, peepholes
        count = len(op.activations) // len(op.directions)
        self.activations = op.activations[direction * count : (direction + 1) * count]

    def step(self, row: Value, states: Sequence[Value]) -> list[Value]:
        """The new states, the hidden one first, from the projected input of the step and the old states."""
        return getattr(self, f"_{self.op.kind}")(row, *states)

    def _activate(self, k: int, x: Expr, clipped: bool = True) -> Expr:
        name, alpha, beta = self.activations[k]
        if clipped and self.op.clip is not None:
            x = x.clip(-self.op.clip, self.op.clip)
        return ACTIVATIONS[name.lower()](x, alpha, beta)

    def _recurred(self, h: Value, first: int = 0, count: int | None = None) -> Value:
        """h times the recurrence weights of `count` gates from `first`, and their bias."""
        hidden = self.op.hidden
        count = self.r.shape[0] // hidden - first if count is None else count
        weights = self.b.take(self.r, 0, first * hidden, count * hidden)
        product = self.b.contract("bh", "gh", "bg", h, weights)
        if self.bias is None:
            return product
        return self.b.map(
            product, self.b.take(self.bias, 0, first * hidden, count * hidden), lambda p, c: p + c
        )

    def _gate(self, x: Value, k: int) -> Value:
        return self.b.take(x, x.rank - 1, k * self.op.hidden, self.op.hidden)

    def _rnn(self, row: Value, h: Value) -> list[Value]:
        return [self.b.map(row, self._recurred(h), lambda p, q: self._activate(0, p + q))]

    def _gru(self, row: Value, h: Value) -> list[Value]:
        b, before = self.b, self._recurred(h, 0, 2)
        update, reset = (
            b.map(self._gate(row, k), self._gate(before, k), lambda p, q: self._activate(0, p + q))
            for k in range(2)
        )
        if self.op.linear_before_reset:
            candidate = b.map(
                self._gate(row, 2),
                reset,
                self._recurred(h, 2, 1),
                lambda p, s, q: self._activate(1, p + s * q),
            )
        else:
            kept = b.map(reset, h, lambda s, v: s * v)
            candidate = b.map(
                self._gate(row, 2), self._recurred(kept, 2, 1), lambda p, q: self._activate(1, p + q)
            )
        return [b.map(update, candidate, h, lambda z, n, v: (1 - z) * n + z * v)]

    def _lstm(self, row: Value, h: Value, c: Value) -> list[Value]:
        b = self.b
        gates = b.map(row, self._recurred(h), lambda p, q: p + q)
        i, o, f, g = (self._gate(gates, k) for k in range(4))
        if self.peepholes is not None:
            i, f = (self._peep(gate, k, c) for gate, k in ((i, 0), (f, 2)))
        i = b.map(i, lambda e: self._activate(0, e))
        f = b.map(i, lambda e: 1 - e) if self.op.input_forget else b.map(f, lambda e: self._activate(0, e))
        cell = b.map(f, c, i, g, lambda f, c, i, g: f * c + i * self._activate(1, g))
        if self.peepholes is not None:
            o = self._peep(o, 1, cell)
        hidden = b.map(o, cell, lambda o, c: self._activate(0, o) * self._activate(2, c, clipped=False))
        return [hidden, cell]

    def _peep(self, gate: Value, k: int, c: Value) -> Value:
        """The gate with what it sees of the cell."""
        weights = self.b.take(self.peepholes, 0, k * self.op.hidden, self.op.hidden)
        return self.b.map(gate, weights, c, lambda x, p, c: x + p * c)
