"""Gradients of Attention and Recurrent, which are differentiated as other ops that mean the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import cells, dims, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Node, TensorType, Type, Value
from ..onnx_ops.control import loop
from ..rule_builder import Region
from .control import Propagate


def _by_meaning(
    b: Builder,
    node: Node[Any],
    gs: Sequence[Value | None],
    propagate: Propagate,
    outputs: Sequence[Value],
    start: int,
) -> list[Value | None]:
    """The cotangents of a node's operands; what was emitted from `start` on gives what the node does."""
    seeds = {output: g for output, g in zip(outputs, gs) if g is not None}
    return propagate(b, b.nodes[start:], seeds, node.inputs)


def of_attention(
    b: Builder, node: Node[Any], gs: Sequence[Value | None], propagate: Propagate
) -> list[Value | None]:
    """As two products and the softmax between them; weights of queries that see no key are 0."""
    op, (q, k, v, *bias), start = node.op, node.inputs, len(b.nodes)
    wide = "float32" if q.dtype in ("float16", "bfloat16") else q.dtype
    q, k, v, *bias = (b.cast(x, wide) for x in (q, k, v, *bias))
    batch = "".join(label for label in op.q if label not in "qd")
    scores = b.map(b.contract(op.q, op.k, f"{batch}qk", q, k), lambda e: e * op.scale)
    if bias:
        scores = b.map(scores, bias[0], lambda e, m: e + m)
    last = [scores.rank - 1]
    greatest = b.reduce("max", scores, last, True)
    powers = b.map(scores, greatest, lambda e, m: expr.exp(e - expr.where(expr.isinf(m), 0, m)))
    total = b.reduce("sum", powers, last, True)
    chances = b.map(powers, total, lambda p, t: p / expr.where(t.equals(0), 1, t))
    y = b.cast(b.contract(f"{batch}qk", op.v, op.out, chances, v), node.outputs[0].dtype)
    return _by_meaning(b, node, gs, propagate, [y], start)


def of_recurrent(
    b: Builder, node: Node[Any], gs: Sequence[Value | None], propagate: Propagate
) -> list[Value | None]:
    """As a loop over the steps for each direction."""
    op, start = node.op, len(b.nodes)
    directions = [_direction(b, op, d, node.inputs) for d in range(len(op.directions))]
    y, *states = zip(*directions)
    outputs = [_joined(b, y, 1), *(_joined(b, state, 0) for state in states)]
    return _by_meaning(b, node, gs, propagate, outputs, start)


def _joined(b: Builder, parts: Sequence[Value], axis: int) -> Value:
    """Values side by side along a new axis."""
    return b.concat([b.reshape(v, (*v.shape[:axis], 1, *v.shape[axis:])) for v in parts], axis)


def _direction(b: Builder, op: ops.Recurrent, d: int, inputs: Sequence[Value]) -> list[Value]:
    """(all h, the last h[, the last c]) of one direction; [T, B, H] and [B, H] each."""
    gates, r, *extra = inputs
    steps, batch, *_ = gates.shape
    given = dict(zip(op.operands, extra))
    own = {name: _part(b, v, 0, d) for name, v in given.items() if name != "lengths"}
    gates, r = _part(b, gates, 2, d), _part(b, r, 0, d)
    nothing = b.broadcast(b.constant(0, gates.dtype), (batch, op.hidden))
    initial = [own.get("h", nothing), *([own.get("c", nothing)] if op.kind == "lstm" else ())]

    def region(types: Sequence[Type]) -> Region:
        step = b.inner()
        iteration = step.input(TensorType("int64", ()), "iteration")
        going = step.input(TensorType("bool", ()), "condition")
        before = [step.input(t) for t in types]
        at = iteration
        if op.directions[d] == "reverse":
            at = step.map(iteration, lambda i: expr.size(steps) - 1 - i)
        after = _CELLS[op.kind](step, op, d, step.emit(ops.Gather("axis"), gates, at)[0], r, before, own)
        if "lengths" not in given:
            return Region(step, [going, *after, after[0]], [iteration, going, *before])
        lengths = step.reshape(step.cast(given["lengths"], "int64"), (batch, 1))
        running = step.map(lengths, at, lambda n, t: t < n)
        kept = [step.map(running, x, y, expr.where) for x, y in zip(after, before)]
        shown = step.map(running, after[0], lambda r, x: expr.where(r, x, 0))
        return Region(step, [going, *kept, shown], [iteration, going, *before])

    count = b.reshape(b.elements([steps]), ())
    *states, y = loop(b, count, b.constant(True), initial, region)
    if op.directions[d] == "reverse":
        y = b.slice(y, (steps - 1, 0, 0), y.shape, (-1, 1, 1))
    return [y, *states]


def _part(b: Builder, x: Value, axis: int, d: int) -> Value:
    """x at one place of an axis."""
    return b.reshape(b.take(x, axis, d, 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


def _columns(b: Builder, x: Value, axis: int, hidden: int) -> list[Value]:
    """x in parts of `hidden` along an axis: a part for each gate."""
    count = dims.floor_divide(x.shape[axis], hidden)
    assert isinstance(count, int)
    return [b.take(x, axis, k * hidden, hidden) for k in range(count)]


def _product(b: Builder, h: Value, r: Value) -> Value:
    return b.contract("bh", "gh", "bg", h, r)


def _lstm(
    b: Builder, op: ops.Recurrent, d: int, x: Value, r: Value, states: list[Value], own: dict
) -> list[Value]:
    h, c = states
    whole = b.map(x, _product(b, h, r), lambda x, p: x + p)
    i, o, f, g = _columns(b, whole, 1, op.hidden)
    peepholes = _columns(b, own["p"], 0, op.hidden) if "p" in own else []
    of_input, of_output = ([peepholes[0], peepholes[2]], [peepholes[1]]) if peepholes else ([], [])

    def cell(i: Expr, f: Expr, g: Expr, c: Expr, *p: Expr) -> Expr:
        return cells.lstm_cell(op, d, i, f, g, c, (p[0], p[1]) if p else None)

    c = b.map(i, f, g, c, *of_input, cell)
    return [b.map(o, c, *of_output, lambda o, c, *p: cells.lstm_hidden(op, d, o, c, *p)), c]


def _gru(
    b: Builder, op: ops.Recurrent, d: int, x: Value, r: Value, states: list[Value], own: dict
) -> list[Value]:
    (h,) = states
    (xz, xr, xh), (rz, rr, rh) = _columns(b, x, 1, op.hidden), _columns(b, r, 0, op.hidden)

    def gate(x: Value, r: Value) -> Value:
        return b.map(x, _product(b, h, r), lambda x, p: cells.gru_gate(op, d, x + p))

    update, reset = gate(xz, rz), gate(xr, rr)
    if op.linear_before_reset:
        biased = _product(b, h, rh)
        if "b" in own:
            biased = b.map(biased, own["b"], lambda p, q: p + q)
        candidate = b.map(xh, reset, biased, lambda x, z, p: x + z * p)
    else:
        part = _product(b, b.map(reset, h, lambda z, h: z * h), rh)
        candidate = b.map(xh, part, lambda x, p: x + p)
    return [b.map(update, candidate, h, lambda u, k, h: cells.gru_hidden(op, d, u, k, h))]


def _rnn(
    b: Builder, op: ops.Recurrent, d: int, x: Value, r: Value, states: list[Value], own: dict
) -> list[Value]:
    part = _product(b, states[0], r)
    return [b.map(x, part, lambda x, p: cells.rnn_hidden(op, d, x + p))]


_CELLS = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}
