"""Import rules of attention and of rotary positions.

Heads that share keys are an axis of their own: queries have the axes (group, head in the group),
keys the group alone. What no output exposes is one core op Attention, masks and limits its bias;
else scores and probabilities are spelled out.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import GraphProto

from ...ir import dims, dtypes, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Value
from ...records import dataclass
from ..rule_builder import RuleBuilder
from ..rules import onnx_op
from .common import element_type, generate, insert_axes, one_of, require, wide
from .movement import padded
from .reductions import softmax

# Heads -------------------------------------------------------------------------------------------


def split_heads(b: Builder, x: Value, heads: int | None, name: str) -> Value:
    """[batch, length, heads * size] as [batch, heads, length, size]."""
    if x.rank == 4:
        return x
    width = x.shape[2] if x.rank == 3 else None
    if width is None or heads is None or heads < 1 or (isinstance(width, int) and width % heads):
        raise ops.TypeMismatch(f"{name} is {x.type}, which does not consist of {heads} heads")
    parts = b.reshape(x, (x.shape[0], x.shape[1], heads, dims.floor_divide(width, heads)))
    return b.transpose(parts, (0, 2, 1, 3))


def join_heads(b: Builder, x: Value) -> Value:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, heads, count, size = x.shape
    return b.reshape(b.transpose(x, (0, 2, 1, 3)), (batch, count, heads * size))


@dataclass(frozen=True)
class Mask:
    """What limits the keys that a query may see; `offset` is the number of keys before the first
    query."""

    given: Value | None
    lengths: Value | None  # of each batch's keys
    causal: bool
    left: int
    right: int
    past: Dimension

    @property
    def may_hide_all(self) -> bool:
        """Whether there may be queries that see no key."""
        return self.given is not None or self.lengths is not None or self.left >= 0 or self.right >= 0

    def bias(self, b: Builder, queries: Dimension, keys: Dimension, dtype: str) -> Value | None:
        """0 or what a float mask adds where a query sees a key, -inf elsewhere; broadcasts to
        [B, H, queries, keys]."""
        if not self.may_hide_all and not self.causal:
            return None
        operands: list[Value] = []
        shape: tuple[Dimension, ...] = (queries, keys)
        if self.given is not None:
            whole = dtypes.is_integer(self.given.dtype)  # which has no number for what is hidden
            given = _extended(b, b.cast(self.given, dtype) if whole else self.given, keys)
            operands.append(given)
            shape = ops.broadcast_shapes(shape, given.shape)
        if self.lengths is not None:
            lengths = b.reshape(b.cast(self.lengths, "int64"), (self.lengths.tensor.count, 1, 1, 1))
            operands.append(lengths)
            shape = ops.broadcast_shapes(shape, lengths.shape)
        return generate(b, shape, self._body(len(shape), queries, dtype, *operands), *operands)

    def _body(self, rank: int, queries: Dimension, dtype: str, *operands: Value) -> Expr:
        values = [expr.input_(k, v.dtype) for k, v in enumerate(operands)]
        bias, i, j = expr.const(0, dtype), expr.index(rank - 2), expr.index(rank - 1)
        if self.given is not None:
            mask = values.pop(0)
            bias = expr.where(mask, bias, -math.inf) if mask.dtype == "bool" else mask.cast(dtype)
        offset = expr.size(self.past)
        if self.lengths is not None:
            bias = expr.where(j < values[0], bias, -math.inf)
            offset = values[0] - expr.size(queries)
        place = i + offset
        if self.causal:
            bias = expr.where(j <= place, bias, -math.inf)
        if self.left >= 0:
            bias = expr.where(j >= place - self.left, bias, -math.inf)
        if self.right >= 0:
            bias = expr.where(j <= place + self.right, bias, -math.inf)
        return bias


def _extended(b: Builder, mask: Value, keys: Dimension) -> Value:
    """The mask with all keys: those it does not mention are hidden."""
    missing = keys - mask.shape[-1] if mask.rank else 0
    if isinstance(missing, int) and missing <= 0:
        return mask
    fill = b.constant(False) if mask.dtype == "bool" else b.constant(-math.inf, mask.dtype)
    after = [*[0] * (mask.rank - 1), dims.maximum(missing, 0)]
    return padded(b, mask, [0] * mask.rank, after, "constant", fill)


# Attention ---------------------------------------------------------------------------------------


_RANKS: dict[str, int | str] = {
    "Q": "n",
    "K": "n",
    "V": "n",
    "attn_mask": "<=4",
    "past_key": 4,
    "past_value": 4,
}


@onnx_op(since=24, ranks={**_RANKS, "nonpad_kv_seqlen": 1})
def Attention(
    b,
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    *,
    is_causal=0,
    kv_num_heads=None,
    left_window_size=-1,
    q_num_heads=None,
    qk_matmul_output_mode=0,
    right_window_size=-1,
    scale=None,
    softcap=0.0,
    softmax_precision=None,
):
    one_of(qk_matmul_output_mode, (0, 1, 2, 3), "qk_matmul_output_mode")
    if (past_key is None) != (past_value is None) or (past_key is not None and nonpad_kv_seqlen is not None):
        raise ops.TypeMismatch("past keys and values go together, and not with nonpad_kv_seqlen")
    if not Q.rank == K.rank == V.rank:
        raise ops.TypeMismatch(f"{Q.type}, {K.type} and {V.type} differ in rank")
    q = split_heads(b, Q, q_num_heads, "the query")
    k, v = (split_heads(b, K, kv_num_heads, "the key"), split_heads(b, V, kv_num_heads, "the value"))
    past = 0 if past_key is None else past_key.shape[2]
    if past_key is not None:
        k, v = b.concat([past_key, k], 2), b.concat([past_value, v], 2)
    mask = Mask(attn_mask, nonpad_kv_seqlen, bool(is_causal), left_window_size, right_window_size, past)
    bias = mask.bias(b, q.shape[2], k.shape[2], q.dtype)
    exposed = qk_matmul_output_mode if b.site.wanted[3:4] == (True,) else None
    y, scores = attend(b, q, k, v, bias, scale, mask.may_hide_all, softcap, softmax_precision, exposed)
    return y if Q.rank == 4 else join_heads(b, y), k, v, scores


@onnx_op(since=23, name="Attention", ranks=_RANKS)
def _attention_23(
    b,
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    *,
    is_causal=0,
    kv_num_heads=None,
    q_num_heads=None,
    qk_matmul_output_mode=0,
    scale=None,
    softcap=0.0,
    softmax_precision=None,
):
    """Before operator set 24 a mask has all keys, or is one for all."""
    given = locals()
    if attn_mask is not None and attn_mask.rank and K.rank > 2:
        past = 0 if past_key is None else past_key.shape[2]
        whole = (*attn_mask.shape[:-1], past + K.shape[-2])
        given["attn_mask"] = (
            attn_mask if attn_mask.shape == whole else b.emit(ops.Broadcast(whole), attn_mask)[0]
        )
    return Attention(**given)


def attend(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    bias: Value | None,
    scale: float | None,
    may_hide_all: bool = False,
    softcap: float = 0.0,
    precision: int | None = None,
    exposed: int | None = None,
) -> tuple[Value, Value | None]:
    """softmax(scale * q k + bias) v of [batch, heads, length, size] each, where several heads of the query
    may share one of the key, and, where wanted, what `qk_matmul_output_mode` exposes. Queries whose bias is
    -inf everywhere give 0 where there may be such."""
    grouped, factor = _by_group(b, q, k, scale)
    scores = None
    # no kernel computes attention of float64 as one
    if softcap == 0 and exposed is None and precision in (None, 1) and q.dtype != "float64":
        y = _fused(b, grouped, k, v, bias, factor, may_hide_all)
    else:
        y, scores = _spelled_out(
            b, grouped, k, v, bias, factor, may_hide_all, softcap, precision, exposed or 0
        )
        scores = b.reshape(scores, (*q.shape[:3], k.shape[2]))
    return b.reshape(y, (*q.shape[:3], v.shape[3])), scores


@onnx_op(since=1, domain="ai.onnx.preview", ranks={"Q": 4, "K": 4, "V": 4})
def FlexAttention(b, Q, K, V, *, prob_mod=None, scale=None, score_mod=None, softmax_precision=None):
    """Attention whose scores and probabilities graphs may change, in the precision of the softmax."""
    precision = "float64" if Q.dtype == "float64" else "float32"
    if softmax_precision is not None:
        precision = element_type(softmax_precision, "softmax_precision")
    if score_mod is None and prob_mod is None and precision == "float32":
        return attend(b, Q, K, V, None, scale)[0]
    q, factor = _by_group(b, Q, K, scale)
    head, shape = "h" if q.rank == 5 else "", (*Q.shape[:3], K.shape[2])
    products = b.contract(f"bg{head}qd", "bgkd", f"bg{head}qk", b.map(q, lambda e: e * factor), K)
    scores = _changed(b, score_mod, b.reshape(b.cast(products, precision), shape), "scores")
    chances = _changed(b, prob_mod, softmax(b, scores, [3]), "probabilities")
    grouped = b.reshape(chances, products.shape)
    y = b.contract(f"bg{head}qk", "bgke", f"bg{head}qe", grouped, b.cast(V, precision))
    return b.reshape(b.cast(y, Q.dtype), (*Q.shape[:3], V.shape[3]))


def _changed(b: RuleBuilder, proto: GraphProto | None, x: Value, what: str) -> Value:
    """What a graph makes of a value, of the same type."""
    if proto is None:
        return x
    found = b.site.body(b, proto, [x])
    if len(found) != 1 or found[0].rank != x.rank or found[0].dtype != x.dtype:
        given = ", ".join(str(v.type) for v in found) or "nothing"
        raise ops.TypeMismatch(f"the graph that changes the {what} {x.type} gives {given}")
    require(b, zip(found[0].shape, x.shape), f"the graph that changes the {what}")
    return found[0]


def _by_group(b: Builder, q: Value, k: Value, scale: float | None) -> tuple[Value, float]:
    """(query, factor of its products), where several heads share one of the key with an axis of these."""
    heads, groups = q.shape[1], k.shape[1]
    known = isinstance(heads, int) and isinstance(groups, int)
    if heads != groups and known and (groups == 0 or dims.remainder(heads, groups) != 0):
        raise ops.TypeMismatch(f"{heads} heads of the query share {groups} of the key")
    q, factor = _scaled(b, q, scale)
    if heads == groups:
        return q, factor
    return b.reshape(q, (q.shape[0], groups, dims.floor_divide(heads, groups), *q.shape[2:])), factor


def _scaled(b: Builder, q: Value, scale: float | None) -> tuple[Value, float]:
    """(query, factor of its products): 1 / sqrt(size of a head) unless given; in the query where
    the size is symbolic."""
    size = q.shape[3]
    if scale is not None:
        return q, scale
    if isinstance(size, int):
        return q, 1 / math.sqrt(max(size, 1))
    root = expr.sqrt(expr.size(size).cast(wide(q.dtype)))
    return b.map(q, lambda e: (e.cast(wide(q.dtype)) / root).cast(q.dtype)), 1.0


def _per_group(b: Builder, bias: Value, q: Value) -> Value:
    """The bias with the heads' axis as the two of grouped queries."""
    if q.rank == 4 or bias.rank < 3:
        return bias
    *batch, heads, queries, keys = bias.shape
    split, whole = (1, 1) if heads == 1 else q.shape[1:3], dims.product(q.shape[1:3])
    if heads != 1 and dims.equal(heads, whole) is None:  # there may be one for all
        bias = b.emit(ops.Broadcast((*batch, whole, queries, keys)), bias)[0]
    return b.reshape(bias, (*batch, *split, queries, keys))


def _hidden(b: Builder, bias: Value) -> Value:
    """Whether a query sees no key: [..., queries, 1]."""
    return b.map(b.reduce("max", bias, [bias.rank - 1], True), lambda m: m.equals(-math.inf))


def _fused(
    b: Builder, q: Value, k: Value, v: Value, bias: Value | None, scale: float, may_hide_all: bool
) -> Value:
    head = "h" if q.rank == 5 else ""
    op = ops.Attention(scale, f"bg{head}qd", "bgkd", "bgke", f"bg{head}qe")
    if bias is None:
        return b.emit(op, q, k, v)[0]
    bias = _per_group(b, bias, q)
    y = b.emit(op, q, k, v, bias)[0]
    return b.map(_hidden(b, bias), y, lambda h, e: expr.where(h, 0, e)) if may_hide_all else y


def _spelled_out(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    bias: Value | None,
    scale: float,
    may_hide_all: bool,
    softcap: float,
    precision: int | None,
    mode: int,
) -> tuple[Value, Value]:
    """(result, what the fourth output exposes): 0 the products, 1 capped, 2 with the bias, 3
    probabilities."""
    head = "h" if q.rank == 5 else ""
    scores = b.contract(f"bg{head}qd", "bgkd", f"bg{head}qk", b.map(q, lambda e: e * scale), k)
    exposed = [scores]
    if softcap:
        scores = b.map(scores, lambda e: softcap * expr.tanh(e / softcap))
    exposed.append(scores)
    if bias is not None:
        bias = _per_group(b, bias, q)
        scores = b.map(scores, bias, lambda e, m: e + m)
    exposed.append(scores)
    hidden = _hidden(b, bias) if may_hide_all and bias is not None else None
    if hidden is not None:  # a softmax over nothing is NaN, and so is its derivative, whatever replaces it
        scores = b.map(hidden, scores, lambda h, e: expr.where(h, 0, e))
    if precision:
        scores = b.cast(scores, element_type(precision, "softmax_precision"))
    chances = b.cast(softmax(b, scores, [scores.rank - 1]), q.dtype)
    if hidden is not None:
        chances = b.map(hidden, chances, lambda h, e: expr.where(h, 0, e))
    exposed.append(chances)
    return b.contract(f"bg{head}qk", "bgke", f"bg{head}qe", chances, v), exposed[mode]


# Rotary positions --------------------------------------------------------------------------------


def _turned_neighbours(b: Builder, x: Value, cosines: Value, sines: Value, half: Dimension) -> Value:
    """Elements 0 and 1, 2 and 3, ... of a head as real and imaginary part, turned by the angles: whole rows
    times the cosines, and with neighbours exchanged times the sines."""

    def paired(first: Value, second: Value) -> Value:
        """Elements of the two by turns."""
        pairs = b.concat([insert_axes(b, part, [4]) for part in (first, second)], 4)
        return b.reshape(pairs, (*first.shape[:3], 2 * half))

    if isinstance(half, int):
        exchanged = b.emit(ops.Gather("axis", 3), x, b.constant(np.arange(2 * half) ^ 1, "int64"))[0]
    else:
        first, second = (b.slice(x, (0, 0, 0, k), (*x.shape[:3], half), (1, 1, 1, 2)) for k in range(2))
        exchanged = paired(second, first)
    cosines, sines = paired(cosines, cosines), paired(b.map(sines, lambda s: -s), sines)
    return b.map(b.take(x, 3, 0, 2 * half), exchanged, cosines, sines, lambda p, q, c, s: c * p + s * q)


def _turned_halves(b: Builder, x: Value, cosines: Value, sines: Value, half: Dimension) -> Value:
    """The same where the imaginary parts follow the real ones: whole rows times the cosines, and with their
    halves exchanged times the sines."""
    if isinstance(half, int):
        order = np.roll(np.arange(2 * half), half)
        exchanged = b.emit(ops.Gather("axis", 3), x, b.constant(order, "int64"))[0]
    else:
        exchanged = b.concat([b.take(x, 3, half, half), b.take(x, 3, 0, half)], 3)
    cosines = b.concat([cosines, cosines], 3)
    sines = b.concat([b.map(sines, lambda s: -s), sines], 3)
    return b.map(b.take(x, 3, 0, 2 * half), exchanged, cosines, sines, lambda p, q, c, s: c * p + s * q)


@onnx_op(since=23, ranks={"cos_cache": "n", "sin_cache": "n", "position_ids": 2})
def RotaryEmbedding(
    b, X, cos_cache, sin_cache, position_ids=None, *, interleaved=0, num_heads=None, rotary_embedding_dim=0
):
    """Turns pairs of a head's elements, neighbours or halves apart, by the angles of their position. Those of
    one sequence alone are those of all."""
    y = rotated(
        b,
        X,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )
    places, batch = cos_cache if position_ids is None else position_ids, X.shape[0]
    count = places.shape[0]
    if isinstance(count, int) and count != 1:
        require(b, [(count, batch)], f"the batch of {places.type}")
    elif count != 1 and not dims.equal(count, batch):
        b.emit(ops.Require("broadcast", (count, batch)))
    return b.reshape(y, X.shape)


def rotated(
    b: Builder,
    X: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: Dimension = 0,
) -> Value:
    """The same where the positions of one sequence alone are those of all."""
    x = split_heads(b, X, num_heads or None, "its input")
    size = x.shape[3]
    turned = size if rotary_embedding_dim == 0 else rotary_embedding_dim
    if (isinstance(turned, int) and turned % 2) or dims.less(size, turned):
        raise ops.TypeMismatch(f"{turned} of {size} elements of a head are to be turned in pairs")
    half = dims.floor_divide(turned, 2)
    require(b, [(2 * half, turned)], f"the pairs of {x.type}")
    require(b, zip(sin_cache.shape, cos_cache.shape), f"the cache {sin_cache.type}")
    if position_ids is not None:
        cos_cache, sin_cache = (
            b.emit(ops.Gather("axis"), c, position_ids)[0] for c in (cos_cache, sin_cache)
        )
    for cache in (cos_cache, sin_cache):
        if cache.rank != 3 or dims.equal(cache.shape[2], half) is False:
            raise ops.TypeMismatch(f"the cache {cache.type} does not hold {half} angles for each position")
        require(b, [(cache.shape[2], half), (cache.shape[1], x.shape[2])], f"the cache {cache.type}")
    cosines, sines = (insert_axes(b, c, [1]) for c in (cos_cache, sin_cache))
    if interleaved:
        parts = [_turned_neighbours(b, x, cosines, sines, half)]
    else:
        parts = [_turned_halves(b, x, cosines, sines, half)]
    if turned != size:
        parts.append(b.take(x, 3, turned, size - turned))
    y = b.concat(parts, 3)
    return y if X.rank == 4 else b.reshape(join_heads(b, y), X.shape)
