"""Import rules of losses: what training minimises, here computed forward."""

from __future__ import annotations

from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.graph import Value
from ..rules import onnx_op
from .common import insert_axes, one_of, wide, with_length
from .reductions import ReduceMean, log_softmax


@onnx_op(since=12, ranks={"weight": 1})
def NegativeLogLikelihoodLoss(b, input, target, weight=None, *, ignore_index=None, reduction="mean"):
    return _likelihood(b, input, target, weight, ignore_index, reduction)


@onnx_op(since=12, ranks={"weights": 1})
def SoftmaxCrossEntropyLoss(b, scores, labels, weights=None, *, ignore_index=None, reduction="mean"):
    logarithms = log_softmax(b, scores, [1])
    return _likelihood(b, logarithms, labels, weights, ignore_index, reduction), logarithms


def _likelihood(
    b: Builder, x: Value, target: Value, weight: Value | None, ignored: int | None, reduction: str
) -> Value:
    """-x of the target class, weighted; ignored targets weigh nothing. The mean is that of the
    weights: where these may differ and sum up to 0, it is NaN."""
    one_of(reduction, ("none", "sum", "mean"), "reduction")
    if (
        x.rank < 2
        or target.rank != x.rank - 1
        or any(dims.equal(p, q) is False for p, q in zip((x.shape[0], *x.shape[2:]), target.shape))
    ):
        raise ops.TypeMismatch(f"the classes {target.type} do not fit the scores {x.type}")
    counted = None if ignored is None else b.map(target, lambda t: t._with("ne", ignored))
    classes = target if counted is None else b.map(target, counted, lambda t, c: expr.where(c, t, 0))
    chosen = b.emit(ops.Gather("elements", 1), x, insert_axes(b, classes, [1]))[0]
    chosen = b.reshape(chosen, target.shape)
    if weight is not None:
        weight = with_length(b, weight, x.shape[1], "the weights")
        weights = b.emit(ops.Gather("axis", 0), weight, classes)[0]
    else:
        weights = b.map(chosen, lambda e: expr.const(1, x.dtype))
    if counted is not None:
        weights = b.map(weights, counted, lambda w, c: expr.where(c, w, 0))
    losses = b.map(chosen, weights, lambda e, w: -e * w)
    if reduction == "none":
        return losses
    if reduction == "mean" and weight is None and ignored is None:
        return ReduceMean(b, losses, keepdims=0)
    exact = wide(x.dtype)
    total, weighed = (
        b.reduce("sum", v, range(v.rank), False, lambda e: e.cast(exact)) for v in (losses, weights)
    )
    if reduction == "sum":
        return b.cast(total, x.dtype)
    return b.map(total, weighed, lambda t, w: (t / w).cast(x.dtype))
