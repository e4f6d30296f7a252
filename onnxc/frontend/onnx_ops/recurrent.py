"""Import rules of LSTM, GRU and RNN: their attributes and optional inputs as one Recurrent."""

from __future__ import annotations

from collections.abc import Sequence

from ... import dims, ops
from ...builder import Builder
from ...ir import Value
from .common import one_of, with_unused
from .rules import onnx_op

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
_DIRECTIONS = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def _activations(
    names: Sequence[str], alphas: Sequence[float] | None, betas: Sequence[float] | None
):
    """(name, alpha, beta) of each; the attributes' values go in order to the activations that
    take them."""
    given = iter(alphas or ()), iter(betas or ())
    found = []
    for name in names:
        one_of(name.lower(), tuple(_ACTIVATIONS), "activations")
        defaults = _ACTIVATIONS[name.lower()]
        values = [next(more, default) for more, default in zip(given, defaults)]
        found.append((name, *values, *(0.0,) * (2 - len(values))))
    return tuple(found)


def _shaped(value: Value | None, shape: Sequence, name: str) -> None:
    """Refuses an operand that is known not to have a shape."""
    if value is not None and (
        value.rank != len(shape)
        or any(dims.equal(d, s) is False for d, s in zip(value.shape, shape))
    ):
        raise ops.TypeMismatch(
            f"{name} is {value.type} where [{', '.join(map(str, shape))}] is needed"
        )


def _recurrent(b: Builder, kind: str, X: Value, W: Value, R: Value,
               optional: dict[str, Value | None], names, alphas, betas, direction: str,
               hidden_size: int | None, layout: int, clip: float | None,
               **more: bool) -> tuple[Value, ...]:
    """`optional`: bias b, lengths, states h and c, peepholes p. layout 1 has the batch as the
    first axis everywhere."""
    one_of(direction, tuple(_DIRECTIONS), "direction")
    one_of(layout, (0, 1), "layout")
    directions = _DIRECTIONS[direction]
    count, per_gate = len(directions), {"lstm": 3, "gru": 2, "rnn": 1}[kind]
    names = tuple(names)[: count * per_gate]
    if len(names) != count * per_gate:
        raise ops.TypeMismatch(
            f"{len(names)} activations are given where {count * per_gate} are needed"
        )
    if X.rank != 3 or W.rank != 3 or R.rank != 3:
        raise ops.TypeMismatch(f"{X.type}, {W.type} and {R.type} do not have three axes each")
    hidden = R.shape[2] if hidden_size is None else hidden_size
    if not isinstance(hidden, int) or hidden < 1:
        raise ops.TypeMismatch(f"the hidden size {hidden} is no number above 0")
    x = b.transpose(X, (1, 0, 2)) if layout else X
    batch, gates = x.shape[1], _GATES[kind] * hidden
    _shaped(W, (count, gates, x.shape[2]), "W")
    _shaped(R, (count, gates, hidden), "R")
    if layout:
        optional = {
            k: b.transpose(v, (1, 0, 2)) if v is not None and k in "hc" else v
            for k, v in optional.items()
        }
    shapes = {
        "b": (count, 2 * gates),
        "lengths": (batch,),
        "h": (count, batch, hidden),
        "c": (count, batch, hidden),
        "p": (count, 3 * hidden),
    }
    for key, value in optional.items():
        _shaped(value, shapes[key], f"its operand {key}")
    given = {key: value for key, value in optional.items() if value is not None}
    op = ops.Recurrent(
        kind, hidden, directions, _activations(names, alphas, betas), tuple(given), clip, **more
    )
    y, *states = b.emit(op, x, W, R, *given.values())
    if layout:
        y, states = b.transpose(y, (2, 0, 1, 3)), [b.transpose(s, (1, 0, 2)) for s in states]
    return y, *states


def _both(names: Sequence[str], direction: str) -> tuple[str, ...]:
    """The default activations, of each direction."""
    return tuple(names) * len(_DIRECTIONS.get(direction, ("",)))


@onnx_op(since=7)
def LSTM(b, X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *,
         activation_alpha=None, activation_beta=None, activations=None, clip=None,
         direction="forward", hidden_size=None, input_forget=0, layout=0):
    optional = {"b": B, "lengths": sequence_lens, "h": initial_h, "c": initial_c, "p": P}
    names = activations or _both(("Sigmoid", "Tanh", "Tanh"), direction)
    return _recurrent(
        b,
        "lstm",
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
        input_forget=bool(input_forget),
    )


@onnx_op(since=7)
def GRU(b, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None,
        activation_beta=None, activations=None, clip=None, direction="forward", hidden_size=None,
        layout=0, linear_before_reset=0):
    optional = {"b": B, "lengths": sequence_lens, "h": initial_h}
    names = activations or _both(("Sigmoid", "Tanh"), direction)
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


@onnx_op(since=7)
def RNN(b, X, W, R, B=None, sequence_lens=None, initial_h=None, *, activation_alpha=None,
        activation_beta=None, activations=("Tanh", "Tanh"), clip=None, direction="forward",
        hidden_size=None, layout=0):
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
