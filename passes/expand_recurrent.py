"""expand_recurrent: a recurrence that no kernel takes becomes a Loop of core ops.

recurrent(%p, %r) kind=rnn   →   loop { %h' = map(%p[t], contract(%h, %r)) { tanh(add($0, $1)) } }

A step beyond a sequence's length keeps the state and gives zero, in both directions, which is what the
specification's reversal within the length comes to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import cells, expr, ops
from ..ir.builder import Builder
from ..ir.graph import Graph, Node, Rewriter, TensorType, Value
from ..ir.regions import in_regions
from ..target import Target


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
    gates, r = inputs[:2]
    optional = dict(zip(op.operands, inputs[2:]))
    directions = [
        _direction(
            b,
            op,
            d,
            _part(b, gates, 2, d),
            _part(b, r, 0, d),
            {name: value if name == "lengths" else _part(b, value, 0, d) for name, value in optional.items()},
        )
        for d in range(len(op.directions))
    ]
    stacked = []
    for k, axis in enumerate((1, 0, 0) if op.kind == "lstm" else (1, 0)):
        parts = [results[k] for results in directions]
        shape = parts[0].shape
        parts = [b.reshape(v, (*shape[:axis], 1, *shape[axis:])) for v in parts]
        stacked.append(b.concat(parts, axis))
    return stacked


def _part(b: Builder, value: Value, axis: int, direction: int) -> Value:
    """What one direction has of a value, whose axis counts directions."""
    shape = value.shape
    return b.reshape(b.take(value, axis, direction, 1), (*shape[:axis], *shape[axis + 1 :]))


def _direction(
    b: Builder, op: ops.Recurrent, d: int, gates: Value, r: Value, optional: dict[str, Value]
) -> list[Value]:
    """(Y [T, B, H], Y_h [B, H], Y_c [B, H]) of one direction."""
    steps, batch, _ = gates.shape
    backwards = op.directions[d] == "reverse"
    state = TensorType(gates.dtype, (batch, op.hidden))
    zero = b.broadcast(b.constant(0, gates.dtype), state.shape)
    initial = [optional.get("h", zero)] + ([optional.get("c", zero)] if op.kind == "lstm" else [])

    body = Builder(b.session, b)
    body.origin = b.origin
    iteration = body.input(TensorType("int64", ()), "step")
    goes_on = body.input(TensorType("bool", ()), "condition")
    states = [body.input(state) for _ in initial]
    now = body.map(iteration, lambda i: expr.size(steps) - 1 - i) if backwards else iteration
    row = body.emit(ops.Gather("axis", 0), gates, now)[0]
    after = _Cell(body, op, d, r, optional.get("b"), optional.get("p")).step(row, states)
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
    collected = TensorType(gates.dtype, (steps, *state.shape))
    loop = ops.Loop(graph, len(states), (*(state for _ in states), collected))
    trips = b.elements(np.array(steps, object))
    *final, y = b.emit(loop, trips, b.constant(True), *initial, *outer)
    if backwards:
        y = b.slice(y, (steps - 1, 0, 0), y.shape, (-1, 1, 1))
    return [y, *final]


class _Cell:
    """One step of a direction; gates in ONNX's order."""

    def __init__(
        self,
        b: Builder,
        op: ops.Recurrent,
        direction: int,
        r: Value,
        bias: Value | None,
        peepholes: Value | None,
    ):
        self.b, self.op, self.d, self.r, self.bias, self.peepholes = (b, op, direction, r, bias, peepholes)

    def step(self, row: Value, states: Sequence[Value]) -> list[Value]:
        """The new states, the hidden one first, from the step's gates so far and the old states."""
        return getattr(self, f"_{self.op.kind}")(row, *states)

    def _recurred(self, h: Value, first: int = 0, count: int | None = None) -> Value:
        """h times the recurrence weights of `count` gates from `first`."""
        hidden = self.op.hidden
        count = self.r.shape[0] // hidden - first if count is None else count
        return self.b.contract("bh", "gh", "bg", h, self.b.take(self.r, 0, first * hidden, count * hidden))

    def _gate(self, x: Value, k: int) -> Value:
        return self.b.take(x, x.rank - 1, k * self.op.hidden, self.op.hidden)

    def _rnn(self, row: Value, h: Value) -> list[Value]:
        return [self.b.map(row, self._recurred(h), lambda p, q: cells.rnn_hidden(self.op, self.d, p + q))]

    def _gru(self, row: Value, h: Value) -> list[Value]:
        b, op, before = self.b, self.op, self._recurred(h, 0, 2)
        update, reset = (
            b.map(self._gate(row, k), self._gate(before, k), lambda p, q: cells.gru_gate(op, self.d, p + q))
            for k in range(2)
        )
        if op.linear_before_reset:
            product = self._recurred(h, 2, 1)
            if self.bias is not None:
                product = b.map(product, self.bias, lambda q, c: q + c)
            kept = b.map(reset, product, lambda s, q: s * q)
        else:
            kept = self._recurred(b.map(reset, h, lambda s, v: s * v), 2, 1)
        return [
            b.map(
                update,
                self._gate(row, 2),
                kept,
                h,
                lambda z, p, q, v: cells.gru_hidden(op, self.d, z, p + q, v),
            )
        ]

    def _lstm(self, row: Value, h: Value, c: Value) -> list[Value]:
        b, op = self.b, self.op
        gates = b.map(row, self._recurred(h), lambda p, q: p + q)
        i, o, f, g = (self._gate(gates, k) for k in range(4))
        if self.peepholes is None:
            cell = b.map(i, f, g, c, lambda *x: cells.lstm_cell(op, self.d, *x))
            return [b.map(o, cell, lambda o, c: cells.lstm_hidden(op, self.d, o, c)), cell]
        pi, po, pf = (self._gate(self.peepholes, k) for k in range(3))
        cell = b.map(i, f, g, c, pi, pf, lambda *x: cells.lstm_cell(op, self.d, *x[:4], x[4:]))
        return [b.map(o, cell, po, lambda *x: cells.lstm_hidden(op, self.d, *x)), cell]
