"""Import rules of LSTM, GRU and RNN.

gates = contract(x, w) + bias            what the inputs contribute, for all steps at once
y, h, c = recurrent(gates, r, ...)       the rest, step by step
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..rules import onnx_op
from .common import checked, one_of, with_size, with_unused

#: Activations with their default alpha and beta; those that use neither take none of the
#: attributes' values.
_ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "relu": (),
    "tanh": (),
    "sigmoid": (),
    "softsign": (),
    "softplus": (),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0,),
}
DIRECTIONS: dict[str, tuple[Literal["forward", "reverse"], ...]] = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}


def activations_of(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> tuple[tuple[str, float, float], ...]:
    """(name, alpha, beta) of each; the attributes' values go in order to the activations that
    take them."""
    given = iter(alphas or ()), iter(betas or ())
    found = []
    for name in names:
        one_of(name.lower(), tuple(_ACTIVATIONS), "activations")
        defaults = _ACTIVATIONS[name.lower()]
        values = [next(more, default) for more, default in zip(given, defaults)]
        alpha, beta = (*values, 0.0, 0.0)[:2]
        found.append((name, alpha, beta))
    return tuple(found)


def shaped(b: Builder, value: Value, shape: Sequence[Dimension], name: str) -> Value:
    """value, an operand that must have the shape: refused where it is known not to, and checked by the run
    where only it can tell."""
    if value.rank != len(shape) or any(dims.equal(d, s) is False for d, s in zip(value.shape, shape)):
        raise ops.TypeMismatch(f"{name} is {value.type} where [{', '.join(map(str, shape))}] is needed")
    for axis, size in enumerate(shape):
        if isinstance(size, int) and value.shape[axis] != size:
            value = with_size(b, value, axis, size)
    return value


def _recurrent(
    b: Builder,
    kind: Literal["lstm", "gru", "rnn"],
    X: Value,
    W: Value,
    R: Value,
    optional: dict[str, Value | None],
    names: Sequence[str],
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    direction: str,
    hidden_size: int | None,
    layout: int,
    clip: float | None,
    **more: bool,
) -> tuple[Value, ...]:
    """`optional`: bias b, lengths, states h and c, peepholes p. layout 1 has the batch as the
    first axis everywhere."""
    one_of(direction, tuple(DIRECTIONS), "direction")
    one_of(layout, (0, 1), "layout")
    directions = DIRECTIONS[direction]
    count, per_gate = len(directions), {"lstm": 3, "gru": 2, "rnn": 1}[kind]
    names = tuple(names)[: count * per_gate]
    if len(names) != count * per_gate:
        raise ops.TypeMismatch(f"{len(names)} activations are given where {count * per_gate} are needed")
    if X.rank != 3 or W.rank != 3 or R.rank != 3:
        raise ops.TypeMismatch(f"{X.type}, {W.type} and {R.type} do not have three axes each")
    hidden = R.shape[2] if hidden_size is None else hidden_size
    if not isinstance(hidden, int) or hidden < 1:
        raise ops.TypeMismatch(f"the hidden size {hidden} is no number above 0")
    op = ops.Recurrent(kind, hidden, directions, activations_of(names, alphas, betas), (), clip, **more)
    steps, batch = (X.shape[1], X.shape[0]) if layout else X.shape[:2]
    W = shaped(b, W, (count, op.columns, X.shape[2]), "W")
    R = shaped(b, R, (count, op.columns, hidden), "R")
    if layout:
        optional = {
            k: b.transpose(v, (1, 0, 2)) if v is not None and k in "hc" else v for k, v in optional.items()
        }
    state = (count, batch, hidden)
    shapes = {
        "b": (count, 2 * op.columns),
        "lengths": (batch,),
        "h": state,
        "c": state,
        "p": (count, 3 * hidden),
    }
    given = {
        key: shaped(b, value, shapes[key], f"its operand {key}")
        for key, value in optional.items()
        if value is not None
    }
    gates = b.contract("bti" if layout else "tbi", "dgi", "tbdg", X, W)
    if "b" in given:
        bias, of_state = biases(b, op, given.pop("b"))
        gates = b.map(gates, bias, lambda x, c: x + c)
        given |= {"b": of_state} if of_state is not None else {}
    if "lengths" in given:
        says = f"a sequence has {{}} of {steps} steps"
        given["lengths"] = checked(
            b, given["lengths"], lambda n: within(n, steps), "index_out_of_range", says
        )
    y, *states = b.emit(replace(op, operands=tuple(given)), gates, R, *given.values())
    if "lengths" in given:
        states = [_of_steps(b, s, given["lengths"]) if k in given else s for k, s in zip("hc", states)]
    if layout:
        y, states = b.transpose(y, (2, 0, 1, 3)), [b.transpose(s, (1, 0, 2)) for s in states]
    return y, *states


def _of_steps(b: Builder, state: Value, lengths: Value) -> Value:
    """The last state [D, N, H], but zeros where a sequence has no steps, as ONNX Runtime has it: the
    specification knows no last value then."""
    own = b.reshape(lengths, (state.shape[1], 1))
    return b.map(state, own, lambda s, n: expr.where(n > 0, s, 0))


def within(length: Expr, steps: Dimension) -> Expr:
    return (length >= 0) & (length.cast("int64") <= expr.size(steps))


def biases(b: Builder, op: ops.Recurrent, bias: Value) -> tuple[Value, Value | None]:
    """(what is added to the gates [D, G*H], what is added to the state's part of a GRU's candidate before
    the reset [D, H]) of the operator's two biases."""
    of_input, of_state = (b.take(bias, 1, k * op.columns, op.columns) for k in range(2))
    if not op.linear_before_reset:
        return b.map(of_input, of_state, lambda x, y: x + y), None
    first = 2 * op.hidden
    both = b.map(b.take(of_input, 1, 0, first), b.take(of_state, 1, 0, first), lambda x, y: x + y)
    return b.concat([both, b.take(of_input, 1, first, op.hidden)], 1), b.take(of_state, 1, first, op.hidden)


def of_each_direction(names: Sequence[str], direction: str) -> tuple[str, ...]:
    """The default activations, of each direction."""
    return tuple(names) * len(DIRECTIONS.get(direction, ("",)))


_RANKS = {"X": 3, "W": 3, "R": 3, "B": 2, "sequence_lens": 1, "initial_h": 3}


@onnx_op(since=7, ranks={**_RANKS, "initial_c": 3, "P": 2})
def LSTM(
    b,
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    initial_c=None,
    P=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    input_forget=0,
    layout=0,
):
    optional = {"b": B, "lengths": sequence_lens, "h": initial_h, "c": initial_c, "p": P}
    alphas, betas = activation_alpha, activation_beta
    return lstm(
        *(b, X, W, R, optional, activations, alphas, betas, direction, hidden_size, layout, clip),
        input_forget=bool(input_forget),
    )


def lstm(
    b: Builder,
    X: Value,
    W: Value,
    R: Value,
    optional: dict[str, Value | None],
    activations: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    direction: str,
    hidden_size: int | None,
    layout: int,
    clip: float | None,
    **more: bool,
) -> tuple[Value, ...]:
    """An LSTM of any operator: see `_recurrent`; more: fields of `ops.Recurrent`."""
    names = activations or of_each_direction(("Sigmoid", "Tanh", "Tanh"), direction)
    return _recurrent(
        b, "lstm", X, W, R, optional, names, alphas, betas, direction, hidden_size, layout, clip, **more
    )


@onnx_op(since=7, ranks=_RANKS)
def GRU(
    b,
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=None,
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
    linear_before_reset=0,
):
    optional = {"b": B, "lengths": sequence_lens, "h": initial_h}
    names = activations or of_each_direction(("Sigmoid", "Tanh"), direction)
    return _recurrent(
        b,
        "gru",
        X,
        W,
        R,
        optional,
        names,
        activation_alpha,
        activation_beta,
        direction,
        hidden_size,
        layout,
        clip,
        linear_before_reset=bool(linear_before_reset),
    )


@onnx_op(since=7, ranks=_RANKS)
def RNN(
    b,
    X,
    W,
    R,
    B=None,
    sequence_lens=None,
    initial_h=None,
    *,
    activation_alpha=None,
    activation_beta=None,
    activations=("Tanh", "Tanh"),
    clip=None,
    direction="forward",
    hidden_size=None,
    layout=0,
):
    optional = {"b": B, "lengths": sequence_lens, "h": initial_h}
    return _recurrent(
        b,
        "rnn",
        X,
        W,
        R,
        optional,
        activations,
        activation_alpha,
        activation_beta,
        direction,
        hidden_size,
        layout,
        clip,
    )


#: Operator set 1 says whether the whole sequence is wanted, which shows in the outputs that are
#: named.
_lstm_1, _gru_1, _rnn_1 = (with_unused(rule, output_sequence=0) for rule in (LSTM, GRU, RNN))
