"""Attention without softmax, whose state is a matrix for each head, and what models with it compute beside:
LinearAttention, GatedDeltaNet, their gates and norms, convolutions with a state.

One step for each token: S = exp(g) S + k (beta (v - S^T k))^T, of which rules leave parts out; o = S^T q.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ..onnx_ops.common import (
    generate,
    insert_axes,
    one_of,
    require,
    scalar,
    widened,
    with_length,
    with_shape,
    with_size,
    zeros,
)
from ..onnx_ops.convolution import by_channels, state_before
from ..onnx_ops.normalization import RMSNormalization
from ..rules import Types, onnx_op
from .engram import Packed
from .matrix_states import Tokens, recurrence, transitions
from .schema import FUSED_FLOATS, T, contrib_op

Single = Annotated[Value, Types.of("TS", "float")]
State = Annotated[Value, Types.of("S", *FUSED_FLOATS)]
Gate = Annotated[Value, Types.of("TG", *FUSED_FLOATS)]
Count = Annotated[Value, Types.of("TI", "int32")]
Lengths = Annotated[Value, Types.of("M", "int32")]

_RULES = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
_BOUNDED = ("sigmoid", "kda")  # activations of gates


@contrib_op(
    outputs="output present_state",
    ranks={"query": 3, "key": 3, "value": 3, "past_state": "4 or 5", "decay": 3, "beta": 3},
)
def LinearAttention(
    b,
    query: T,
    key: T,
    value: T,
    past_state: State | None = None,
    decay: T | None = None,
    beta: T | None = None,
    *,
    chunk_size=64,
    kv_num_heads: int,
    q_num_heads: int,
    scale=0.0,
    state_window=0,
    update_rule="gated_delta",
):
    if state_window:
        raise UnsupportedError("a LinearAttention that keeps several states", "export it with the last alone")

    def of_tokens(x: Value, name: str) -> Value:
        return with_shape(b, x, (*query.shape[:2], x.shape[2]), name)

    key, value = of_tokens(key, "key"), of_tokens(value, "value")
    decay = None if decay is None else of_tokens(decay, "decay")
    beta = None if beta is None else of_tokens(beta, "beta")
    heads, every = kv_num_heads, max(q_num_heads, kv_num_heads)
    if every % heads or every % q_num_heads:
        raise ops.TypeMismatch(f"{q_num_heads} heads of queries do not share {heads} states")
    d, w = dims.floor_divide(query.shape[2], q_num_heads), dims.floor_divide(value.shape[2], heads)
    keys = dims.floor_divide(key.shape[2], d)
    if not isinstance(keys, int) and heads <= q_num_heads:
        keys = heads  # the run compares the sizes
    keys = _heads_of(keys, ("query", query, 2), ("key", key, 2))
    shared = q_num_heads if q_num_heads == keys < heads else heads
    q, k = _heads(b, query, q_num_heads, shared), _heads(b, key, keys, shared)
    k = b.reshape(b.take(k, 3, 0, 1), (*k.shape[:3], d))
    v = b.reshape(widened(b, value), (*value.shape[:2], heads, w))
    g, r = _gates(b, update_rule, decay, beta, heads)
    shape = (query.shape[0], heads, d, w)
    if past_state is None:
        state = zeros(b, "float32", shape)
    else:
        state = widened(b, with_shape(b, past_state, shape, "past_state"))
    y, last = recurrence(b, Tokens.of(b, q, k, v, g, r), state, scale or _scale(d))
    y = b.reshape(b.cast(y, query.dtype), (*query.shape[:2], every * w))
    return y, b.cast(last, query.dtype if past_state is None else past_state.dtype)


@onnx_op(since=27, name="LinearAttention", ranks={"past_state": 4, "*": 3})
def _linear_attention_27(
    b,
    query,
    key,
    value,
    past_state=None,
    decay=None,
    beta=None,
    *,
    chunk_size=64,
    kv_num_heads,
    q_num_heads,
    scale=0.0,
    update_rule="gated_delta",
):
    heads = {"kv_num_heads": kv_num_heads, "q_num_heads": q_num_heads}
    given = query, key, value, past_state, decay, beta
    return LinearAttention(b, *given, **heads, scale=scale, update_rule=update_rule)


def _scale(d: Dimension) -> Expr | float:
    """By how much products of vectors with d elements are scaled."""
    return 1 / (math.sqrt(d) if isinstance(d, int) else expr.sqrt(expr.size(d).cast("float32")))


def _heads_of(count: Dimension, *axes: tuple[str, Value, int]) -> int:
    """A number of heads, which must be known; axes: the inputs' axes that it follows from."""
    if isinstance(count, int):
        return count
    left = [f"axis {axis} of {name}" for name, x, axis in axes if not isinstance(x.shape[axis], int)]
    raise UnsupportedError(
        f"the number of heads follows from {' and '.join(left)}, which only the run tells",
        f"make {' and '.join(left)} constant",
    )


def _heads(b: Builder, x: Value, own: int, heads: int) -> Value:
    """[batch, tokens, own * d] as [batch, tokens, heads, queries, d]: of each state those that ask it."""
    batch, tokens, width = x.shape
    d = dims.floor_divide(width, own)
    x = widened(b, x)
    if own >= heads:
        return b.reshape(x, (batch, tokens, heads, own // heads, d))
    parts = b.broadcast(b.reshape(x, (batch, tokens, own, 1, d)), (batch, tokens, own, heads // own, d))
    return b.reshape(parts, (batch, tokens, heads, 1, d))


def _gates(
    b: Builder, rule: str, decay: Value | None, beta: Value | None, heads: Dimension
) -> tuple[Value | None, Value | None]:
    """(decay [batch, tokens, heads, d or 1], beta [batch, tokens, heads or 1, 1]) where the rule has them."""
    one_of(rule, tuple(_RULES), "update_rule")
    gated, delta = _RULES[rule]
    if (gated and decay is None) or (delta and beta is None):
        raise ops.TypeMismatch(f"the rule {rule!r} lacks an input")
    g = decay if gated else None
    if g is not None:
        g = b.reshape(
            widened(b, g), (*g.shape[:2], heads, dims.floor_divide(dims.product(g.shape[2:]), heads))
        )
    r = beta if delta else None
    return g, None if r is None else b.reshape(widened(b, r), (*r.shape[:3], 1))


@contrib_op(
    outputs="output final_state? state_update?",
    ranks={
        "query": "n",
        "key": "n",
        "value": "n",
        "decay": "2 or 3 or 4",
        "beta": "2 or 3",
        "initial_state": 4,
        "dt_bias": "1 or 2",
        "state_update_active": "<=1",
        "*": 1,
    },
)
def GatedDeltaNet(
    b,
    query: T,
    key: T | None = None,
    value: T | None = None,
    cu_seqlens: Count | None = None,
    decay: Gate | None = None,
    beta: Gate | None = None,
    initial_state: Single | None = None,
    a_log: Single | None = None,
    dt_bias: Single | None = None,
    capture_count: Count | None = None,
    state_update_active: Count | None = None,
    *,
    beta_activation="none",
    chunk_size=64,
    gate_activation="none",
    gate_lower_bound=-5.0,
    qk_l2_norm=0,
    scale=0.0,
    state_update_capacity=0,
    update_rule="gated_delta",
):
    """LinearAttention over tokens [batch * tokens, heads, d], its state [batch, heads, w, d]. cu_seqlens:
    where sequences of several lengths begin and end; they become rows, whose zeros behind change no state."""
    leading = query.shape[: query.rank - (1 if key is None else 2)]
    packed = None
    if cu_seqlens is not None:
        if len(leading) != 1:
            raise ops.TypeMismatch(f"the sequences of {query.type} cannot have several lengths")
        packed = Packed.of_ends(b, cu_seqlens, leading[0], 0, least=0)
    if initial_state is not None:
        batch, heads, w, d = initial_state.shape
    elif packed is not None and value is not None:
        batch, heads, w, d = packed.requests, *value.shape[1:], query.shape[2]
    else:
        raise ops.TypeMismatch("without cu_seqlens the state tells the batch")
    tokens = dims.floor_divide(dims.product(leading), batch)
    if packed is not None:
        require(b, [(batch, packed.requests)], "the batch of initial_state")
        tokens = b.dimension(b.reduce("max", packed.lengths(), [0]), 0, "longest")
    elif len(leading) > 1:
        require(b, [(batch, leading[0])], "the batch of initial_state")

    def rows(x: Value) -> Value:
        """[batch, tokens, ...]"""
        more = x.shape[len(leading) :]
        return b.reshape(x, (batch, tokens, *more)) if packed is None else packed.rows(x, tokens)

    if key is None or value is None:
        query, key, value = _unpacked(b, query, heads, w, d)
    key = with_shape(b, key, query.shape, "key")
    value = with_shape(b, value, (*leading, heads, w), "value")
    shared = query.shape[-2]
    if isinstance(heads, int) and isinstance(shared, int) and (not shared or heads % shared):
        raise ops.TypeMismatch(f"{shared} heads of keys do not share {heads} states")
    q, k = (b.reshape(widened(b, rows(x)), (batch, tokens, shared, d)) for x in (query, key))
    if qk_l2_norm:
        q, k = (_unit(b, x, 1e-6 if gate_activation in _BOUNDED else 1e-12) for x in (q, k))
    q, v = insert_axes(b, q, [3]), widened(b, rows(value))
    wide = decay is not None and decay.rank == len(leading) + 2
    if decay is not None:
        sizes = (heads, d) if wide else (heads,)
        decay = with_shape(b, decay, (*leading, *sizes), "decay")
        decay = _decay(b, decay, a_log, dt_bias, gate_activation, gate_lower_bound, sizes)
        decay = b.reshape(rows(decay), (batch, tokens, heads, d if wide else 1))
    one_of(beta_activation, ("none", "sigmoid"), "beta_activation")
    if beta is not None:
        beta = with_shape(b, beta, (*leading, heads), "beta")
        beta = b.map(widened(b, beta), expr.sigmoid) if beta_activation == "sigmoid" else beta
        beta = b.reshape(rows(beta), (batch, tokens, heads))
    g, r = _gates(b, update_rule, decay, beta, heads)
    if initial_state is None:
        state = zeros(b, "float32", (batch, heads, d, w))
    else:
        state = b.transpose(initial_state, (0, 1, 3, 2))
    given = Tokens.of(b, q, k, v, g, r)
    y, last = recurrence(b, given, state, scale or _scale(d))
    y = b.cast(y if packed is None else packed.of_these(y), query.dtype)
    update = None
    if state_update_capacity:
        lengths = generate(b, (batch,), expr.size(tokens)) if packed is None else packed.lengths()
        if not 0 < state_update_capacity <= 8 or capture_count is None:
            raise ops.TypeMismatch(
                f"the attribute state_update_capacity is {state_update_capacity} without a capture_count"
            )
        capture_count = with_length(b, capture_count, batch, "capture_count")
        parts = transitions(b, given, state, state_update_capacity)
        update = _captured(b, parts, b.cast(capture_count, "int64"), lengths, state_update_active)
    return b.reshape(y, (*leading, heads, w)), b.transpose(last, (0, 1, 3, 2)), update


def _captured(
    b: Builder, parts: Sequence[Value], count: Value, lengths: Value, active: Value | None
) -> Value:
    """[batch, ...]: of each part [batch, capacity, ...] those of the first `count` tokens, zeros behind."""
    own = b.map(count, lengths, lambda c, n: c.minimum(n))
    if active is not None:
        own = b.map(own, scalar(b, active, "state_update_active"), lambda c, a: expr.where(a.equals(0), 0, c))
    found = []
    for x in parts:
        body = expr.where(expr.index(1) < expr.input_(1, "int64"), expr.input_(0, "float32"), 0.0)
        x = generate(b, x.shape, body, x, insert_axes(b, own, [1, 2, 3]))
        found.append(b.reshape(x, (x.shape[0], dims.product(x.shape[1:]))))
    return b.concat(found, 1)


def _unpacked(
    b: Builder, x: Value, heads: Dimension, w: Dimension, d: Dimension
) -> tuple[Value, Value, Value]:
    """Query, key and value that lie side by side."""
    *leading, width = x.shape
    own = dims.floor_divide(width - heads * w, 2 * d)
    axis, found = x.rank - 1, []
    for start, n, size in ((0, own, d), (own * d, own, d), (2 * own * d, heads, w)):
        found.append(b.reshape(b.take(x, axis, start, n * size), (*leading, n, size)))
    return found[0], found[1], found[2]


def _unit(b: Builder, x: Value, epsilon: float) -> Value:
    """Each vector of length 1."""
    squares = b.reduce("sum", x, [x.rank - 1], True, lambda e: e * e)
    return b.map(x, squares, lambda e, s: e / expr.sqrt(s + epsilon))


def _decay(
    b: Builder,
    decay: Value,
    a_log: Value | None,
    bias: Value | None,
    kind: str,
    bound: float,
    sizes: Sequence[Dimension],
) -> Value:
    """The logarithms [..., *sizes] by which a state decays: one for each head, or for each element of its
    key."""
    one_of(kind, ("none", "softplus", "qwen", *_BOUNDED), "gate_activation")
    x = widened(b, decay)
    if kind == "none":
        return x
    if a_log is None or bias is None:
        raise ops.TypeMismatch(f"the activation {kind!r} needs a_log and dt_bias")
    heads = sizes[0]
    a_log = with_length(b, a_log, heads, "a_log")
    if len(sizes) == 1:
        bias = with_length(b, bias, heads, "dt_bias")
    else:
        a_log = b.reshape(a_log, (heads, 1))
        if bias.rank == 2:
            bias = with_shape(b, bias, sizes, "dt_bias")
        else:
            of_each = dims.equal(bias.tensor.count, heads) is False
            bias = b.reshape(bias, sizes if of_each else (heads, 1))
    if kind in ("softplus", "qwen"):
        return b.map(x, a_log, bias, lambda e, a, c: -expr.exp(a) * expr.softplus(e + c))
    return b.map(x, a_log, bias, lambda e, a, c: bound * expr.sigmoid(expr.exp(a) * (e + c)))


# Beside it ---------------------------------------------------------------------------------------


@contrib_op(outputs="decay beta?", ranks={"a": 3, "dt_bias": 1, "decay_scale": 1, "b": 3})
def LinearAttentionGate(builder, a: T, dt_bias: Single, decay_scale: Single, b: T | None = None):
    wide = widened(builder, a)
    bias, scale = (
        with_length(builder, v, a.shape[-1], name)
        for v, name in ((dt_bias, "dt_bias"), (decay_scale, "decay_scale"))
    )
    decay = builder.map(wide, bias, scale, lambda x, c, s: s * expr.softplus(x + c))
    if b is None:
        return builder.cast(decay, a.dtype), None
    rate = builder.map(widened(builder, with_shape(builder, b, a.shape, "b")), expr.sigmoid)
    return builder.cast(decay, a.dtype), builder.cast(rate, a.dtype)


@contrib_op(outputs="Y", ranks={"X": "n", "scale": 1, "gate": "n"})
def GatedRMSNorm(b, X: T, scale: T, gate: T, *, activation="silu", epsilon=1e-5):
    one_of(activation, ("silu", "swish", "sigmoid"), "activation")
    size, gate = scale.shape[0], with_shape(b, gate, X.shape, "gate")
    rows = b.reshape(widened(b, X), (*X.shape[:-1], dims.floor_divide(X.shape[-1], size), size))
    y = b.reshape(RMSNormalization(b, rows, widened(b, scale), epsilon=epsilon), X.shape)
    plain = activation == "sigmoid"
    gated = b.map(y, widened(b, gate), lambda e, z: e * expr.sigmoid(z) if plain else e * z * expr.sigmoid(z))
    return b.cast(gated, X.dtype)


@contrib_op(outputs="output", ranks={"X": "n", "Y": "n", "gate": "n", "gate_weight": 2})
def GatedAdd(b, X: T, Y: T, gate: T, gate_weight: T | None = None):
    if gate_weight is not None:
        raise UnsupportedError("a GatedAdd that projects its gate", "export the projection apart")
    Y, gate = with_shape(b, Y, X.shape, "Y"), with_shape(b, gate, (*X.shape[:-1], 1), "gate")
    return b.map(X, b.map(Y, gate, lambda y, g: y * g), lambda x, y: x + y)


@contrib_op(outputs="output present_state state_update?", ranks={"bias": 1})
def CausalConvWithState(
    b,
    input: T,
    weight: T,
    bias: T | None = None,
    past_state: T | None = None,
    *,
    activation="none",
    channels_last=0,
    dilation=1,
    input_channel_offset=0,
    input_channels=0,
    ndim=1,
    state_channels_last=-1,
    state_length=0,
    state_update_capacity=0,
    state_window=0,
):
    """A depthwise convolution of what the state and the input have along the last axis, or, channels_last,
    along the second one, behind which any number of axes are channels."""
    one_of(activation, ("none", "silu", "swish"), "activation")
    extended = input_channel_offset or input_channels or state_length or state_update_capacity
    if ndim != 1 or state_window or state_channels_last != -1 or extended:
        raise UnsupportedError("a CausalConvWithState of this form", "export one axis and the last state")
    if channels_last:
        inputs = [x if x is None else _channels_first(b, x) for x in (input, past_state)]
        y, state, _ = CausalConvWithState(
            b, inputs[0], weight, bias, inputs[1], activation=activation, dilation=dilation
        )
        found = [b.transpose(x, (0, 2, 1)) for x in (y, state)]
        return *(b.reshape(x, (*x.shape[:2], *input.shape[2:])) for x in found), None
    input = with_size(b, input, 1, weight.shape[0])
    length = input.shape[2]
    before = (weight.shape[2] - 1) * dilation
    whole = b.concat([state_before(b, input, past_state, before), input], 2)
    c = None if bias is None else widened(b, bias)
    y = by_channels(b, widened(b, whole), widened(b, weight), c, dilation)
    if activation != "none":
        y = b.map(y, lambda e: e * expr.sigmoid(e))
    return b.cast(y, input.dtype), b.take(whole, 2, length, before), None


def _channels_first(b: Builder, x: Value) -> Value:
    """[batch, length, ...] as [batch, channels, length]."""
    return b.transpose(b.reshape(x, (*x.shape[:2], dims.product(x.shape[2:]))), (0, 2, 1))


@contrib_op(
    outputs="output final_state state_update?",
    ranks={
        "input": 2,
        "cumulative_sequence_length": 1,
        "bias": 1,
        "capture_count": 1,
        "previous_mask": 2,
        "*": 3,
    },
)
def VarlenCausalConvWithState(
    b,
    input: T,
    weight: T,
    cumulative_sequence_length: Lengths,
    bias: T | None,
    initial_state: T,
    capture_count: Lengths | None = None,
    kernel_delta: T | None = None,
    previous_mask: T | None = None,
    *,
    activation="none",
    delta_offset=0,
    dilation=1,
    group_size=1,
    state_update_capacity=0,
):
    """The same of sequences that lie one behind the other, [tokens, channels]."""
    one_of(activation, ("none", "silu", "swish"), "activation")
    if kernel_delta is not None or previous_mask is not None:
        raise UnsupportedError("a VarlenCausalConvWithState with kernels of its tokens", "no CPU has it")
    if input.rank != 2 or weight.rank != 3 or initial_state.rank != 3 or dilation < 1:
        raise ops.TypeMismatch(f"{input.type}, {weight.type} and {initial_state.type} are no convolution")
    taps, channels = weight.shape[2], input.shape[1]
    before = (taps - 1) * dilation
    packed = Packed.of_ends(b, cumulative_sequence_length, input.shape[0], before)
    state = with_shape(b, initial_state, (packed.requests, channels, before), "initial_state")
    whole = packed.joined(input, b.transpose(state, (0, 2, 1)))
    places = packed.back((expr.size(taps) - 1 - expr.index(1)) * dilation, taps)
    windows = widened(b, b.emit(ops.Gather("axis"), whole, places)[0])
    kernel = b.transpose(b.reshape(widened(b, weight), (channels, taps)), (1, 0))
    y = b.reduce("sum", b.map(windows, kernel, lambda e, w: e * w), [1])
    if bias is not None:
        bias = with_length(b, bias, channels, "the bias")
        y = b.map(y, widened(b, bias), lambda e, c: e + c)
    if activation != "none":
        y = b.map(y, lambda e: e * expr.sigmoid(e))
    last = b.emit(ops.Gather("axis"), whole, packed.last(packed.lengths()))[0]
    update = None
    if state_update_capacity:
        shape, start = (packed.requests, state_update_capacity), insert_axes(b, packed.starts, [1])
        size = expr.size(dims.maximum(packed.tokens - 1, 0))
        places = generate(b, shape, (expr.input_(0, "int64") + expr.index(1)).minimum(size), start)
        update = packed.captured(whole, capture_count, state_update_capacity, places)
    return b.cast(y, input.dtype), b.transpose(last, (0, 2, 1)), update


# Branches ----------------------------------------------------------------------------------------

Mixed = Annotated[Value, Types.of("M", *FUSED_FLOATS)]


def _branches(b: Builder, x: Value, count: int) -> Value:
    """[..., branches, width] of either form."""
    if not count:
        return widened(b, x)
    return b.reshape(widened(b, x), (*x.shape[:-1], count, dims.floor_divide(x.shape[-1], count)))


@contrib_op(outputs="Y", ranks={"scale": "1 or 2"})
def BranchwiseRMSNorm(b, X: T, scale: Mixed | None = None, *, epsilon=1e-5, num_branches=0):
    x = _branches(b, X, num_branches)
    y = RMSNormalization(b, x, generate(b, x.shape[-1:], expr.const(1, "float32")), epsilon=epsilon)
    if scale is not None:
        scale = with_shape(b, scale, x.shape[-2:], "scale") if scale.rank == 2 else scale
        flat = b.reshape(widened(b, scale), (scale.tensor.count,))
        y = b.map(y, _of_branches(b, flat, x, 1), lambda e, s: e * s)
    return b.cast(b.reshape(y, X.shape), X.dtype)


@contrib_op(outputs="output")
def HyperConnectionPreMix(b, streams: T, pre_mix: Mixed, *, num_branches=0, reduction_scale=1.0):
    x = _branches(b, streams, num_branches)
    mixed = b.map(x, _gate(b, pre_mix, x), lambda e, g: e * g)
    total = b.reduce("sum", mixed, [x.rank - 2])
    return b.cast(b.map(total, lambda e: e * reduction_scale), streams.dtype)


@contrib_op(outputs="output", ranks={"block_output": "any", "stream_mix": "any"})
def HyperConnectionPostMix(
    b, streams: T, block_output: T, post_mix: Mixed, stream_mix: Mixed | None = None, *, num_branches=0
):
    x = _branches(b, streams, num_branches)  # whose rank tells those of the others
    block_output = b.site.with_rank(b, block_output, x.rank - 1)
    branch = insert_axes(b, widened(b, block_output), [x.rank - 2])
    added = b.map(_gate(b, post_mix, x), branch, lambda g, e: g * e)
    if stream_mix is not None:
        outer = "abcdefg"[: x.rank - 2]
        stream_mix = b.site.with_rank(b, stream_mix, x.rank)
        x = b.contract(f"{outer}yz", f"{outer}yw", f"{outer}zw", widened(b, stream_mix), x)
    y = b.map(x, added, lambda e, a: e + a)
    return b.cast(b.reshape(y, streams.shape), streams.dtype)


def _gate(b: Builder, gate: Value, x: Value) -> Value:
    """Gates of branches, or of all their features, as [..., branches, 1 or width]."""
    wide = widened(b, gate)
    return wide if gate.rank == x.rank else _of_branches(b, wide, x, 0)


def _of_branches(b: Builder, v: Value, x: Value, axis: int) -> Value:
    """v [..., branches * width] as the last two axes of x; where it has less, along one of the two."""
    branches, width = x.shape[-2:]
    whole = dims.equal(v.shape[-1], branches * width)
    if whole is not None:
        shape = (branches, width) if whole else ((branches, 1), (1, width))[axis]
        return b.reshape(v, (*v.shape[:-1], *shape))
    size = expr.size(v.shape[-1])
    is_whole = size.equals(expr.size(branches * width))
    fits = is_whole | size.equals(expr.size(x.shape[-2:][axis]))
    place = expr.where(is_whole, expr.index(0) * expr.size(width) + expr.index(1), expr.index(axis))
    place = expr.check(fits, place, "dims_mismatch")
    return b.emit(ops.Gather("axis", v.rank - 1), v, generate(b, (branches, width), place))[0]
