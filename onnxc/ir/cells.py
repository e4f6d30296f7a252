"""The cells of LSTM, GRU and RNN as scalar expressions: what one unit computes from its gates and its state.

Equations and order of gates are the ONNX specification's. The kernel lowers them over vectors of units;
`numpy_ops.recurrent`, in numpy, is written on its own: the two are held against each other.
"""

from __future__ import annotations

from collections.abc import Callable

from . import expr
from .expr import Expr
from .ops import Recurrent

#: Of (x, alpha, beta), by lower-case name.
ACTIVATIONS: dict[str, Callable[[Expr, float, float], Expr]] = {
    "relu": lambda x, a, b: x.maximum(0),
    "tanh": lambda x, a, b: expr.tanh(x),
    "sigmoid": lambda x, a, b: expr.sigmoid(x),
    "affine": lambda x, a, b: x * a + b,
    "leakyrelu": lambda x, a, b: expr.where(x >= 0, x, x * a),
    "thresholdedrelu": lambda x, a, b: expr.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: expr.tanh(x * b) * a,
    "hardsigmoid": lambda x, a, b: (x * a + b).clip(0, 1),
    "elu": lambda x, a, b: expr.where(x >= 0, x, expr.expm1(x) * a),
    "softsign": lambda x, a, b: x / (1 + abs(x)),
    "softplus": lambda x, a, b: expr.softplus(x),
}


def activations(op: Recurrent, direction: int) -> tuple[tuple[str, float, float], ...]:
    """Those of one direction: equal ones have equal cells."""
    count = len(op.activations) // len(op.directions)
    return op.activations[direction * count : (direction + 1) * count]


def activate(op: Recurrent, direction: int, k: int, x: Expr) -> Expr:
    """The direction's activation number k of x."""
    name, alpha, beta = activations(op, direction)[k]
    return ACTIVATIONS[name.lower()](x, alpha, beta)


def gate(op: Recurrent, direction: int, k: int, x: Expr) -> Expr:
    """The same of what enters a gate, which the operator may clip."""
    return activate(op, direction, k, x if op.clip is None else x.clip(-op.clip, op.clip))


def lstm_cell(
    op: Recurrent, direction: int, i: Expr, f: Expr, g: Expr, c: Expr, peepholes: tuple[Expr, Expr] | None
) -> Expr:
    """The new c from the gates, the c before and the peepholes of i and f."""
    if peepholes is not None:
        i, f = i + peepholes[0] * c, f + peepholes[1] * c
    i = gate(op, direction, 0, i)
    f = 1 - i if op.input_forget else gate(op, direction, 0, f)
    return f * c + i * gate(op, direction, 1, g)


def lstm_hidden(op: Recurrent, direction: int, o: Expr, c: Expr, peephole: Expr | None = None) -> Expr:
    """The new h from the output gate, the new c and the gate's peephole."""
    o = o if peephole is None else o + peephole * c
    return gate(op, direction, 0, o) * activate(op, direction, 2, c)


def gru_gate(op: Recurrent, direction: int, x: Expr) -> Expr:
    """The update or the reset gate."""
    return gate(op, direction, 0, x)


def gru_hidden(op: Recurrent, direction: int, update: Expr, candidate: Expr, h: Expr) -> Expr:
    """The new h from the update gate, what enters the candidate, and the h before."""
    return (1 - update) * gate(op, direction, 1, candidate) + update * h


def rnn_hidden(op: Recurrent, direction: int, x: Expr) -> Expr:
    return gate(op, direction, 0, x)
