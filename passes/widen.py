"""widen: sums of narrow numbers are computed in wide ones, with Maps at their border.

conv(%x: float16, %w: float16) accumulate=float32 epilogue { cast($0, float16) }
    →   map(conv(map(%x) { cast($0, float32) }, map(%w) { cast($0, float32) })) { cast($0, float16) }

Kernels add products of float32, of float64, and of what the target has an instruction for; this says so in
the graph, so that the Maps enter what is before and behind. Integers whose sums stay below 2^24 are exact in
float32, others in float64; such a convolution is marked, since an algorithm that computes with fractions
would round.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..ir import dims, dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.ops import Attention, Contract, Conv, Map, Pool, Recurrent
from ..ir.quantised import dot_of
from ..ir.ranges import value_range
from ..target import Target
from .flatten_windows import flattened

#: Integers up to this are exact in these types.
EXACT = (("float32", 1 << 24), ("float64", 1 << 53))


def widen(graph: Graph, target: Target) -> Graph:
    """graph with convolutions, products of matrices, attention, pools and recurrent layers in float32 or
    float64, but for what the target multiplies as it is."""
    return everywhere(lambda inner: _of_wide(inner, target))(graph)


def _of_wide(graph: Graph, target: Target) -> Graph:
    rewriter = Rewriter(graph)
    exact: dict[Value, Value] = {}  # integers, and what they are cast from
    for node in graph.nodes:
        wide = None if _is_native(node, target) else _wide(node)
        if isinstance(node.op, Map) and any(v in exact for v in node.inputs):
            rewriter.replace(node.outputs, _over_sums(rewriter, node, exact))
        elif wide is None:
            rewriter.copy(node)
        elif isinstance(node.op, (Attention, Pool, Recurrent)):
            rewriter.replace(node.outputs, _between_casts(rewriter, node, wide))
        else:
            sums, results = _widened(rewriter, node, wide)
            rewriter.replace(node.outputs, results)
            if sums[0].node.op.exact and node.op.epilogue is None:
                exact[node.outputs[0]] = sums[0]
    return rewriter.finish()


def _cast(rewriter: Rewriter, value: Value, dtype: str, origin: str) -> Value:
    """value, what stands for it in the new graph, as another type."""
    value = rewriter.of(value)
    if value.dtype == dtype:
        return value
    return rewriter.add(Map(expr.input_(0, value.dtype).cast(dtype)), [value], origin)[0]


def _between_casts(rewriter: Rewriter, node: Node, wide: str) -> list[Value]:
    """The results of a node over operands of the type `wide`, as the types that they had."""
    narrow = [v.dtype in dtypes.HALVES for v in node.inputs]
    operands = [
        _cast(rewriter, v, wide, node.origin) if half else rewriter.of(v)
        for v, half in zip(node.inputs, narrow)
    ]
    results = rewriter.add(node.op, operands, node.origin)
    found: list[Value] = []
    for result, before in zip(results, node.outputs, strict=True):
        body = expr.input_(0, wide).cast(before.dtype)
        found += rewriter.add(Map(body), [result], node.origin, [before.name])
    return found


def _widened(rewriter: Rewriter, node: Node, wide: str) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The sums of a Conv or Contract, of the type `wide`, and the node's results."""
    op, origin = node.op, node.origin
    operands = [_cast(rewriter, v, wide, origin) for v in node.inputs[:2]]
    exact = op.exact or dtypes.is_integer(op.accumulate)
    sums = rewriter.add(replace(op, accumulate=wide, epilogue=None, exact=exact), operands, origin)
    body = expr.input_(0, op.accumulate) if op.epilogue is None else op.epilogue
    body = _over_wide(body, {0: wide}, exact)
    if body.op == "input":
        return sums, sums
    extra = [rewriter.of(v) for v in node.inputs[2:]]
    return sums, rewriter.add(Map(body), [*sums, *extra], origin, [node.outputs[0].name])


def _over_sums(rewriter: Rewriter, node: Node, exact: dict[Value, Value]) -> tuple[Value, ...]:
    """A Map of exact integers over what they are cast from."""
    wide = {k: exact[v].dtype for k, v in enumerate(node.inputs) if v in exact}
    body = _over_wide(node.op.body, wide, True)
    operands = [exact.get(v) or rewriter.of(v) for v in node.inputs]
    outputs = rewriter.add(Map(body, node.op.shape), operands, node.origin, [node.outputs[0].name])
    outputs[0].elements = node.outputs[0].elements
    return outputs


def _over_wide(body: expr.Expr, wide: dict[int, str], exact: bool) -> expr.Expr:
    """A body of which some operands have become `wide`; where they are `exact` they need no rounding on the
    way to another type of real numbers."""

    def changed(node: expr.Expr) -> expr.Expr | None:
        around = node.args[0] if node.op == "cast" and dtypes.is_float(node.dtype) and exact else node
        if around.op != "input" or around.value not in wide:
            return None
        return expr.input_(around.value, wide[around.value]).cast(node.dtype)

    return expr.rewrite(body, changed)


# In which type -----------------------------------------------------------------------------------


def _is_native(node: Node, target: Target) -> bool:
    """Whether kernels add up integers as they are stored."""
    if not isinstance(node.op, (Contract, Conv)):
        return False
    x, w = node.inputs[:2]
    if w.constant is None and x.constant is not None and isinstance(node.op, Contract):
        x, w = w, x
    return dot_of(flattened(node.op, x, w, target), x, w, target) is not None


def _wide(node: Node) -> str | None:
    """The type in which a node that computes in a narrower one is computed without loss; None: as it is."""
    op = node.op
    if isinstance(op, Pool):
        return "float32" if op.kind != "argmax" and node.inputs[0].dtype in dtypes.HALVES else None
    if isinstance(op, (Attention, Recurrent)):
        return "float32" if any(v.dtype in dtypes.HALVES for v in node.inputs) else None
    if not isinstance(op, (Conv, Contract)):
        return None
    types = {v.dtype for v in node.inputs[:2]}
    if op.accumulate in ("float32", "float64"):
        return op.accumulate if types & {*dtypes.HALVES} else None
    if not dtypes.is_integer(op.accumulate) or not all(map(dtypes.is_integer, types)):
        return None
    greatest = _greatest_sum(node)
    if greatest > dtypes.integer_range(op.accumulate)[1]:
        return None  # it may wrap
    return next((dtype for dtype, limit in EXACT if greatest <= limit), None)


def _greatest_sum(node: Node) -> int:
    """What no operand exceeds and no sum of some of the products, nor their negatives."""
    x, w = node.inputs[:2]
    if w.constant is None and x.constant is not None and isinstance(node.op, Contract):
        x, w = w, x
    low, high = value_range(x)
    one = max(-low, high, *map(abs, value_range(w)))
    depth = _depth(node)
    if w.constant is None or not isinstance(depth, int):
        bound = max(map(abs, value_range(w))) * max(-low, high)
        return max(one, bound * depth) if isinstance(depth, int) else 1 << 64
    sums = _weight_sums(node, w)
    return max(one, *(max(-low, 0) * s + max(high, 0) * t for s, t in (sums, sums[::-1])))


def _depth(node: Node) -> dims.Dimension:
    """How many products make a sum, at most."""
    op, w = node.op, node.inputs[1]
    if isinstance(op, Conv):
        return dims.product(w.shape) // w.shape[1] if op.transposed else dims.product(w.shape[1:])
    sizes = dict(zip(op.lhs + op.rhs, (*node.inputs[0].shape, *w.shape)))
    return dims.product(size for label, size in sizes.items() if label not in op.out)


def _weight_sums(node: Node, w: Value) -> tuple[int, int]:
    """The greatest sums that a result has of its negative weights, without their sign, and of the others."""
    op, array = node.op, w.data.array
    if isinstance(op, Contract):
        labels = op.rhs if w is node.inputs[1] else op.lhs
        axes = tuple(k for k, label in enumerate(labels) if label not in op.out)
    else:
        axes = tuple(k for k in range(array.ndim) if k != (1 if op.transposed else 0))
    if not array.size:
        return 0, 0
    wide = array.astype(np.int64)
    return int(np.minimum(wide, 0).sum(axes).min() * -1), int(np.maximum(wide, 0).sum(axes).max())
