"""Mixtures of experts: each token's result is that of a few of them, weighted by its routing.

All experts compute all tokens, and those that a token is not routed to weigh nothing.
"""

from __future__ import annotations

import math
from typing import Annotated

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass
from ..onnx_ops.activations import tanh_gelu
from ..onnx_ops.common import generate, insert_axes, one_of, widened
from ..onnx_ops.reductions import softmax
from ..onnx_ops.rules import Types
from .low_bit import fields, widened_blocks
from .schema import HALVES, T, contrib_op

_ACTIVATIONS = {
    "relu": lambda x: x.maximum(0),
    "gelu": tanh_gelu,
    "silu": lambda x: x * expr.sigmoid(x),
    "identity": lambda x: x,
}


def _routing(b: Builder, logits: Value, count: int, normalized: bool) -> Value:
    """[tokens, experts]: the softmax of the logits where they are among a token's `count` greatest, else 0;
    those of a token sum to 1 if `normalized`."""
    member = _members(b, logits, count)
    weights = b.map(softmax(b, widened(b, logits), [1]), member, lambda p, m: p * m)
    if not normalized:
        return weights
    return b.map(weights, b.reduce("sum", weights, [1], True), lambda w, t: w / t)


def _members(b: Builder, scores: Value, count: int) -> Value:
    """float32 [tokens, n]: 1 for a token's `count` greatest scores, else 0."""
    tokens, n = scores.shape
    if count < 1 or (isinstance(n, int) and count > n):
        raise ops.TypeMismatch(f"{count} of {n} experts or groups are asked for")
    _, order = b.emit(ops.Sort(1, descending=True, count=count), scores)
    chosen = b.reshape(order, (tokens, count, 1))
    here = expr.input_(0, "int64").equals(expr.index(2)).cast("float32")
    return b.reduce("sum", generate(b, (tokens, count, n), here, chosen), [1])


@dataclass(frozen=True)
class _Activation:
    """What is between the two products of an expert. swiglu takes two columns for each of its results:
    `fused` 1 side by side, 2 in halves. `after`: the limit is of the activated gate, not of what it is made
    of."""

    name: str
    alpha: float
    beta: float
    limit: float | None
    fused: int
    after: int

    def applied(self, b: Builder, x: Value, other: Value | None) -> Value:
        """[tokens, experts, inner] of the first product and, where there is one, the third."""
        one_of(self.name, (*_ACTIVATIONS, "swiglu"), "activation_type")
        if self.name != "swiglu":
            y = b.map(x, _ACTIVATIONS[self.name])
            return y if other is None else b.map(y, other, lambda e, o: e * o)
        if self.fused:
            half = dims.floor_divide(x.shape[2], 2)
            split = (half, 2) if self.fused == 1 else (2, half)
            parts = b.reshape(x, (*x.shape[:2], *split))
            axis = 3 if self.fused == 1 else 2
            x, other = (b.reshape(b.take(parts, axis, n, 1), (*x.shape[:2], half)) for n in range(2))
        if other is None:
            raise ops.TypeMismatch("swiglu needs a third product, or two in the first")
        return b.map(x, other, self._gated)

    def _gated(self, gate: Expr, linear: Expr) -> Expr:
        if self.limit is not None:
            gate = gate if self.after else gate.minimum(self.limit)
            linear = linear.clip(-self.limit, self.limit)
        gate = gate * expr.sigmoid(gate * self.alpha)
        if self.limit is not None and self.after:
            gate = gate.minimum(self.limit)
        return gate * (linear + self.beta)


#: The weights [experts, out, in] and the bias [experts, out] of one product.
_Layer = tuple[Value, Value | None]


def _mixed(
    b: Builder,
    input: Value,
    routing: Value,
    first: _Layer,
    second: _Layer,
    third: _Layer | None,
    activation: _Activation,
) -> Value:
    """sum over experts of routing * second(activation(first(token))), in the shape of the input."""
    x = widened(b, input)
    tokens = b.reshape(x, (dims.product(x.shape[:-1]), x.shape[-1]))
    inner = activation.applied(
        b, _product(b, tokens, first), None if third is None else _product(b, tokens, third)
    )
    weighted = b.map(inner, insert_axes(b, routing, [2]), lambda e, w: e * w)
    weights, bias = second
    y = b.contract("tei", "ehi", "th", weighted, widened(b, weights))
    if bias is not None:
        shift = b.contract("te", "eh", "th", routing, widened(b, bias))
        y = b.map(y, shift, lambda e, c: e + c)
    return b.cast(b.reshape(y, input.shape), input.dtype)


def _product(b: Builder, tokens: Value, layer: _Layer) -> Value:
    """[tokens, experts, out]"""
    weights, bias = layer
    y = b.contract("th", "eih", "tei", tokens, widened(b, weights))
    return y if bias is None else b.map(y, bias, lambda e, c: e + c.cast(e.dtype))


@contrib_op(outputs="output")
def MoE(
    b,
    input: T,
    router_probs: T,
    fc1_experts_weights: T,
    fc1_experts_bias: T | None,
    fc2_experts_weights: T,
    fc2_experts_bias: T | None = None,
    fc3_experts_weights: T | None = None,
    fc3_experts_bias: T | None = None,
    *,
    activation_alpha=1.0,
    activation_beta=0.0,
    activation_type="relu",
    k=1,
    normalize_routing_weights=0,
    swiglu_fusion=0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation=0,
    use_sparse_mixer=0,
):
    if use_sparse_mixer:
        raise UnsupportedError("a sparse mixer", "export the model with plain routing")
    return _mixed(
        b,
        input,
        _routing(b, router_probs, k, bool(normalize_routing_weights)),
        (fc1_experts_weights, fc1_experts_bias),
        (fc2_experts_weights, fc2_experts_bias),
        None if fc3_experts_weights is None else (fc3_experts_weights, fc3_experts_bias),
        _Activation(
            activation_type,
            activation_alpha,
            activation_beta,
            swiglu_limit,
            swiglu_fusion,
            swiglu_limit_after_activation,
        ),
    )


# Routing by groups -------------------------------------------------------------------------------

Single = Annotated[Value, Types.of("TF", "float")]


@contrib_op(outputs="router_probs? selection_scores? router_weights?")
def MoEGroupRouter(
    b,
    logits: T,
    expert_bias: Single,
    projection_weight: T | None = None,
    *,
    group_topk=2,
    n_group=1,
    router_sentinel=-10000.0,
    top_k: int,
    topk_group=1,
):
    """Logarithms of the sigmoids of a token's experts where their biased sigmoids are the `top_k` greatest of
    the `topk_group` groups whose `group_topk` greatest have the greatest sums; else the sentinel. Or all
    sigmoids, biased and as they are."""
    tokens = b.reshape(logits, (dims.product(logits.shape[:-1]), logits.shape[-1]))
    x = widened(b, tokens)
    if projection_weight is not None:
        x = b.contract("tw", "ew", "te", x, widened(b, projection_weight))
    weights = b.map(x, expr.sigmoid)
    scores = b.map(weights, expert_bias, lambda w, c: w + c)
    kept = scores if topk_group == n_group else _best_groups(b, scores, n_group, topk_group, group_topk)
    routed = _members(b, kept, top_k)
    logs = b.map(weights, routed, lambda w, m: expr.where(m > 0, expr.log(w.maximum(1e-20)), router_sentinel))
    return b.cast(logs, logits.dtype), scores, weights


def _best_groups(b: Builder, scores: Value, groups: int, kept: int, summed: int) -> Value:
    """The scores [tokens, experts] of the `kept` of so many groups whose `summed` greatest have the greatest
    sums, and -inf for the others."""
    tokens, experts = scores.shape
    if not isinstance(experts, int) or groups < 1 or experts % groups:
        raise ops.TypeMismatch(f"{experts} experts do not make {groups} groups")
    size = experts // groups
    grouped = b.reshape(scores, (tokens, groups, size))
    greatest, _ = b.emit(ops.Sort(2, descending=True, count=min(summed, size)), grouped)
    chosen = insert_axes(b, _members(b, b.reduce("sum", greatest, [2]), kept), [2])
    found = b.map(grouped, chosen, lambda s, m: expr.where(m > 0, s, -math.inf))
    return b.reshape(found, (tokens, experts))


# Weights of a few bits ---------------------------------------------------------------------------

Stored = Annotated[Value, Types.of("T1", "uint8", "float8e4m3fn")]
Scales = Annotated[Value, Types.of("T2", *HALVES, "float8e4m3fn", "float8e8m0")]
Global = Annotated[Value, Types.of("T4", "float")]


@contrib_op(outputs="output")
def QMoE(
    b,
    input: T,
    router_probs: T,
    fc1_experts_weights: Stored,
    fc1_scales: Scales | None,
    fc1_experts_bias: T | None,
    fc2_experts_weights: Stored,
    fc2_scales: Scales | None,
    fc2_experts_bias: T | None = None,
    fc3_experts_weights: Stored | None = None,
    fc3_scales: Scales | None = None,
    fc3_experts_bias: T | None = None,
    fc1_zero_points: Stored | None = None,
    fc2_zero_points: Stored | None = None,
    fc3_zero_points: Stored | None = None,
    router_weights: T | None = None,
    fc1_global_scale: Global | None = None,
    fc2_global_scale: Global | None = None,
    fc1_act_scale: Global | None = None,
    fc2_act_scale: Global | None = None,
    fc1_act_block_scale: Scales | None = None,
    fc2_act_block_scale: Scales | None = None,
    *,
    accuracy_level=0,
    activation_alpha=1.0,
    activation_beta=0.0,
    activation_type="relu",
    block_size: int | None = None,
    expert_weight_bits=4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k=1,
    normalize_routing_weights=0,
    quant_type="int",
    swiglu_fusion=0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation=0,
    use_sparse_mixer=0,
    weights_prepacked=-1,
):
    """MoE over weights of integers with a scale for each row or each block of it. The routing of a token
    always sums to 1 here, as ONNX Runtime has it."""
    if use_sparse_mixer or quant_type != "int" or weights_prepacked == 1 or fc1_global_scale is not None:
        raise UnsupportedError("experts in a format of another processor", "export them as integers")

    def layer(weights: Value, scales: Value | None, zero: Value | None, bits: int | None) -> Value:
        return _unpacked(b, weights, scales, zero, bits or expert_weight_bits, block_size)

    third = None
    if fc3_experts_weights is not None:
        weights = layer(fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_expert_weight_bits)
        third = (weights, fc3_experts_bias)
    routing = _routing(b, router_probs, k, True)
    if router_weights is not None:
        routing = _given(b, routing, router_weights, bool(normalize_routing_weights))
    return _mixed(
        b,
        input,
        routing,
        (layer(fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_expert_weight_bits), fc1_experts_bias),
        (layer(fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_expert_weight_bits), fc2_experts_bias),
        third,
        _Activation(
            activation_type,
            activation_alpha,
            activation_beta,
            swiglu_limit,
            swiglu_fusion,
            swiglu_limit_after_activation,
        ),
    )


def _given(b: Builder, routing: Value, weights: Value, normalized: bool) -> Value:
    """The weights of the experts that are routed to, given apart from what chooses them."""
    kept = b.map(routing, weights, lambda r, w: expr.where(r > 0, w.cast(r.dtype), 0))
    if not normalized:
        return kept
    return b.map(kept, b.reduce("sum", kept, [1], True), lambda w, t: w / t)


def _unpacked(
    b: Builder, weights: Value, scales: Value | None, zero: Value | None, bits: int, block: int | None
) -> Value:
    """[experts, out, in] of bytes [experts, out, in * bits / 8]."""
    if scales is None:
        raise ops.TypeMismatch("the experts' weights have no scales")
    q = fields(b, weights, bits, weights.shape)
    if scales.rank == 2:
        scales = insert_axes(b, scales, [2])
    size = block or q.shape[2]
    if not isinstance(size, int):
        raise ops.TypeMismatch(f"the experts' weights are {weights.type}")
    if zero is not None:
        whole = b.reshape(zero, (*scales.shape[:2], dims.ceil_divide(scales.shape[2] * bits, 8)))
        zero = fields(b, whole, bits, whole.shape, scales.shape[2])
    return widened_blocks(b, q, scales, zero, bits, size)
