"""Import rules of ai.onnx.preview.training: gradients, and one step of an optimizer for any number of
tensors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import UnsupportedError
from ...ir import expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ..differentiation import gradients
from ..rules import onnx_op
from .common import one_of, scalar

TRAINING = "ai.onnx.preview.training"


@onnx_op(since=1, domain=TRAINING)
def Gradient(b, *Inputs, y, xs, zs=None):
    """Of the sum of y by each of xs, all of them values of the graph around the node, which the inputs name
    again."""
    named = [b.site.scope.lookup(name) for name in (*xs, *(zs or ()))]
    result = b.site.scope.lookup(y)
    if result is None or list(Inputs) != named:
        raise UnsupportedError("a gradient at other values than those that its attributes name")
    return tuple(gradients(b, result, Inputs[: len(xs)]))


def _groups(inputs: Sequence[Value], count: int) -> list[tuple[Value, ...]]:
    """What belongs to each tensor: the inputs are all tensors, then all their gradients, and so
    on."""
    size, rest = divmod(len(inputs), count)
    if rest or not size:
        raise ops.TypeMismatch(f"{len(inputs)} inputs are not {count} for each of some tensors")
    return [tuple(inputs[k * size + t] for k in range(count)) for t in range(size)]


def _in_order(results: Sequence[Sequence[Value]]) -> tuple[Value, ...]:
    """The results of each tensor as outputs: all first ones, then all second ones."""
    return tuple(value for part in zip(*results) for value in part)


def _rate(b: Builder, R: Value, T: Value, body: Callable[[Expr, Expr], Expr]) -> Value:
    """The learning rate of this step, from the rate given and the number of steps before."""
    return b.map(scalar(b, R), scalar(b, T), lambda r, t: body(r, t.cast(r.dtype)))


@onnx_op(since=1, domain=TRAINING, ranks={"R": "<=1", "T": "<=1"})
def Adagrad(b, R, T, *inputs, decay_factor=0.0, epsilon=1e-6, norm_coefficient=0.0):
    rate = _rate(b, R, T, lambda r, t: r / (1 + t * decay_factor))
    results = []
    for x, g, h in _groups(inputs, 3):
        gradient = b.map(x, g, lambda e, d: norm_coefficient * e + d)
        squares = b.map(h, gradient, lambda s, d: s + d * d)
        step = b.map(x, rate, gradient, squares, lambda e, r, d, s: e - r * d / (expr.sqrt(s) + epsilon))
        results.append((step, squares))
    return _in_order(results)


@onnx_op(since=1, domain=TRAINING, ranks={"R": "<=1", "T": "<=1"})
def Adam(
    b, R, T, *inputs, alpha=0.9, beta=0.999, epsilon=1e-6, norm_coefficient=0.0, norm_coefficient_post=0.0
):
    def adjusted(r: Expr, t: Expr) -> Expr:
        a, c = (expr.power(expr.const(base, r.dtype), t) for base in (alpha, beta))
        return expr.where(t > 0, r * expr.sqrt(1 - c) / (1 - a), r)

    rate = _rate(b, R, T, adjusted)
    results = []
    for x, g, v, h in _groups(inputs, 4):
        gradient = b.map(x, g, lambda e, d: norm_coefficient * e + d)
        mean = b.map(v, gradient, lambda m, d: alpha * m + (1 - alpha) * d)
        squares = b.map(h, gradient, lambda s, d: beta * s + (1 - beta) * (d * d))
        step = b.map(
            x,
            rate,
            mean,
            squares,
            lambda e, r, m, s: (e - r * m / (expr.sqrt(s) + epsilon)) * (1 - norm_coefficient_post),
        )
        results.append((step, mean, squares))
    return _in_order(results)


@onnx_op(since=1, domain=TRAINING, ranks={"R": "<=1", "T": "<=1"})
def Momentum(b, R, T, *inputs, alpha, beta, mode, norm_coefficient):
    one_of(mode, ("standard", "nesterov"), "mode")
    scale = _rate(b, R, T, lambda r, t: expr.where(t > 0, beta, r * 0 + 1))
    rate = scalar(b, R)
    results = []
    for x, g, v in _groups(inputs, 3):
        gradient = b.map(x, g, lambda e, d: norm_coefficient * e + d)
        momentum = b.map(v, gradient, scale, lambda m, d, s: alpha * m + s * d)
        if mode == "standard":
            step = b.map(x, rate, momentum, lambda e, r, m: e - r * m)
        else:
            step = b.map(x, rate, gradient, momentum, lambda e, r, d, m: e - r * (d + alpha * m))
        results.append((step, momentum))
    return _in_order(results)
