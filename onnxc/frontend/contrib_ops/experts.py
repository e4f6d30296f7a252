"""Mixtures of experts: each token's result is that of a few of them, weighted by its routing.

A token makes as many rows as it has experts, and the rows are sorted by theirs: a product multiplies each
with the matrix that an index picks, which `fuse_experts` makes one group of, so that only experts that some
token is routed to are computed, each with its rows together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass
from ..onnx_ops.activations import tanh_gelu
from ..onnx_ops.common import agreed, generate, insert_axes, one_of, widened
from ..rules import Types
from .low_bit import fields, widened_blocks
from .schema import FUSED_FLOATS, T, contrib_op

_ACTIVATIONS = {
    "relu": lambda x: x.maximum(0),
    "gelu": tanh_gelu,
    "silu": lambda x: x * expr.sigmoid(x),
    "identity": lambda x: x,
}


@dataclass(frozen=True)
class _Routing:
    """Of each token the experts (int64) and how much each of them weighs (float32): both [tokens, count].
    `of`: how many experts there are."""

    experts: Value
    weights: Value
    of: Dimension


def _routing(b: Builder, logits: Value, count: int, normalized: bool) -> _Routing:
    """The experts with a token's `count` greatest logits, and of the softmax of all logits theirs; those of a
    token sum to 1 if `normalized`."""
    if logits.rank != 2:
        raise ops.TypeMismatch(f"the routing {logits.type} is not one of tokens to experts")
    logits = widened(b, logits)
    greatest, experts = _greatest(b, logits, count)
    top = b.reduce("max", greatest, [1], True)
    powers = b.map(greatest, top, lambda x, t: expr.exp(x - t))
    total = b.reduce("sum", powers, [1], True)
    if not normalized:
        total = b.reduce("sum", b.map(logits, top, lambda x, t: expr.exp(x - t)), [1], True)
    return _Routing(experts, b.map(powers, total, lambda p, t: p / t), logits.shape[1])


def _greatest(b: Builder, scores: Value, count: int) -> tuple[Value, ...]:
    """Of scores [tokens, n] a token's `count` greatest, and where they are."""
    n = scores.shape[1]
    if count < 1 or (isinstance(n, int) and count > n):
        raise ops.TypeMismatch(f"{count} of {n} experts or groups are asked for")
    return b.emit(ops.Sort(1, descending=True, count=count), scores)


def _members(b: Builder, scores: Value, count: int) -> Value:
    """float32 [tokens, n]: 1 for a token's `count` greatest scores, else 0."""
    tokens, n = scores.shape
    _, order = _greatest(b, scores, count)
    chosen = b.reshape(order, (tokens, count, 1))
    here = expr.input_(0, "int64").equals(expr.index(2)).cast("float32")
    return b.reduce("sum", generate(b, (tokens, count, n), here, chosen), [1])


@dataclass(frozen=True)
class _Activation:
    """What is between the two products of an expert. swiglu and geglu take two columns for each of their
    results: `fused` 1 side by side, 2 in halves. `after`: the limit is of the activated gate, not of what it
    is made of."""

    name: str
    alpha: float
    beta: float
    limit: float | None
    fused: int
    after: int

    def applied(self, b: Builder, x: Value, other: Value | None) -> Value:
        """[rows, inner] of the first product and, where there is one, the third."""
        one_of(self.name, (*_ACTIVATIONS, "swiglu", "geglu"), "activation_type")
        one_of(self.fused, (0, 1, 2), "swiglu_fusion")
        if self.name in _ACTIVATIONS:
            y = b.map(x, _ACTIVATIONS[self.name])
            return y if other is None else b.map(y, other, lambda e, o: e * o)
        if self.fused:
            rows, half = x.shape[0], dims.floor_divide(x.shape[1], 2)
            parts = b.reshape(x, (rows, half, 2) if self.fused == 1 else (rows, 2, half))
            axis = 2 if self.fused == 1 else 1
            x, other = (b.reshape(b.take(parts, axis, n, 1), (rows, half)) for n in range(2))
        if other is None:
            raise ops.TypeMismatch(f"{self.name} needs a third product, or two in the first")
        return b.map(x, other, self._gated)

    def _gated(self, gate: Expr, linear: Expr) -> Expr:
        if self.name == "geglu":
            return tanh_gelu(gate) * linear
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
    routing: _Routing,
    first: _Layer,
    second: _Layer,
    third: _Layer | None,
    activation: _Activation,
) -> Value:
    """sum over a token's experts of weight * second(activation(first(token))), in the shape of the input."""
    x = widened(b, input)
    tokens = b.reshape(x, (dims.product(x.shape[:-1]), x.shape[-1]))
    width = tokens.shape[1]
    first, second = _by_rows(b, first, 2, width), _by_rows(b, second, 1, width)
    layers = [first, second]
    if third is not None:
        third = _by_rows(b, third, 2, width)
        layers.append(third)
    chosen = agreed(b, routing.experts, _sizes(layers, routing.of), "a weight or bias of the experts")
    count, each = chosen.shape
    experts, order = b.emit(ops.Sort(0), b.reshape(chosen, (count * each,)))
    rows = b.emit(ops.Gather("axis"), tokens, b.map(order, lambda n: n / each))[0]
    gated = None if third is None else _product(b, rows, experts, third)
    inner = activation.applied(b, _product(b, rows, experts, first), gated)
    _, back = b.emit(ops.Sort(0), order)
    results = b.emit(ops.Gather("axis"), _product(b, inner, experts, second), back)[0]
    parts = b.reshape(results, (count, each, results.shape[1]))
    y = b.contract("te", "teh", "th", routing.weights, parts)
    return b.cast(b.reshape(y, input.shape), input.dtype)


def _by_rows(b: Builder, layer: _Layer, axis: int, width: Dimension) -> _Layer:
    """A layer, which has tokens' width along the axis. Weights may be declared [experts, in, out], as they
    were at first, over the same memory."""
    weights, bias = layer
    if weights.rank != 3 or (bias is not None and bias.rank != 2):
        raise ops.TypeMismatch(f"{weights.type if bias is None else bias.type} is of no layer of experts")
    experts, rows, columns = weights.shape
    other = weights.shape[3 - axis]
    if dims.equal(weights.shape[axis], width) is False and dims.equal(other, width) is True:
        weights = b.reshape(weights, (experts, columns, rows))
    return weights, bias


def _sizes(layers: Iterable[_Layer], experts: Dimension) -> Iterator[tuple[Dimension, Dimension]]:
    """The sizes of layers that products do not compare, and what they must be."""
    for weights, bias in layers:
        yield weights.shape[0], experts
        if bias is not None:
            yield from zip(bias.shape, (experts, weights.shape[1]))


def _product(b: Builder, rows: Value, experts: Value, layer: _Layer) -> Value:
    """[rows, out]: each row by the matrix of its expert."""
    weights, bias = layer
    picked = b.emit(ops.Gather("axis"), widened(b, weights), experts)[0]
    y = b.contract("ri", "roi", "ro", rows, picked)
    if bias is None:
        return y
    return b.map(y, b.emit(ops.Gather("axis"), widened(b, bias), experts)[0], lambda e, c: e + c)


_RANKS: dict[str, int | str] = {
    **{"input": "2 or 3", "router_probs": 2, "*": 3},
    **dict.fromkeys(("fc1_experts_bias", "fc2_experts_bias", "fc3_experts_bias"), 2),
}


@contrib_op(outputs="output", ranks=_RANKS)
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


@contrib_op(
    outputs="router_probs? selection_scores? router_weights?",
    ranks={"expert_bias": 1, "projection_weight": 2},
)
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
    if not isinstance(experts, int):
        raise UnsupportedError(
            f"{groups} groups of experts whose number only the run tells",
            "make the length of expert_bias or the last axis of logits constant",
        )
    if groups < 1 or experts % groups:
        raise ops.TypeMismatch(f"{experts} experts do not make {groups} groups")
    size = experts // groups
    grouped = b.reshape(scores, (tokens, groups, size))
    greatest, _ = b.emit(ops.Sort(2, descending=True, count=min(summed, size)), grouped)
    chosen = insert_axes(b, _members(b, b.reduce("sum", greatest, [2]), kept), [2])
    found = b.map(grouped, chosen, lambda s, m: expr.where(m > 0, s, -math.inf))
    return b.reshape(found, (tokens, experts))


# Weights of a few bits ---------------------------------------------------------------------------

Stored = Annotated[Value, Types.of("T1", "uint8", "float8e4m3fn")]
Scales = Annotated[Value, Types.of("T2", *FUSED_FLOATS, "float8e4m3fn", "float8e8m0")]
Global = Annotated[Value, Types.of("T4", "float")]


@contrib_op(
    outputs="output",
    ranks={
        **_RANKS,
        **{f"fc{k}_{name}": "s" for k in (1, 2, 3) for name in ("scales", "zero_points")},
        **{f"fc{k}_{name}": 1 for k in (1, 2) for name in ("global_scale", "act_scale")},
        "router_weights": 2,
    },
)
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


def _given(b: Builder, routing: _Routing, weights: Value, normalized: bool) -> _Routing:
    """The weights of the experts that are routed to, given apart from what chooses them."""
    given = b.emit(ops.Gather("elements", 1), widened(b, weights), routing.experts)[0]
    if normalized:
        given = b.map(given, b.reduce("sum", given, [1], True), lambda w, t: w / t)
    return replace(routing, weights=given)


def _unpacked(
    b: Builder, weights: Value, scales: Value | None, zero: Value | None, bits: int, block: int | None
) -> Value:
    """[experts, out, in] of bytes [experts, out, in * bits / 8], or of the same bytes declared [experts, in,
    out * bits / 8], see `_by_rows`."""
    if scales is None:
        raise ops.TypeMismatch("the experts' weights have no scales")
    if weights.rank != 3 or scales.rank not in (2, 3):
        raise ops.TypeMismatch(f"{weights.type} with the scale {scales.type} is of no layer of experts")
    (experts, rows, size), out = weights.shape, scales.shape[1]
    if dims.equal(rows, out) is False and dims.equal(8 * size, out * bits) is True:
        rows, size = out, dims.floor_divide(rows * bits, 8)
    q = fields(b, weights, bits, (experts, rows, size))
    columns = block or q.shape[2]
    if not isinstance(columns, int):
        raise UnsupportedError(
            f"a scale for each row of experts' weights {weights.type}, whose length only the run tells",
            "make the last axis of the weights constant",
        )
    *before, count = scales.shape  # zero points are packed along the axis that scales end with
    if zero is not None:
        zero = fields(b, zero, bits, (*before, dims.ceil_divide(count * bits, 8)), count)
    if scales.rank == 2:
        scales = insert_axes(b, scales, [2])
        zero = None if zero is None else insert_axes(b, zero, [2])
    return widened_blocks(b, q, scales, zero, bits, columns)
