"""Pools with what is made of the elements that they read and of the results that they give.

pool(map(%x: uint8) { mul(cast($0, float32), 0.1) })   combined in float32, stored in uint8
What is read outside of an image must change nothing there: it stands in memory as the number that the Map
makes a zero of, or the least of all.
"""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np

from ..records import dataclass
from . import dtypes, expr
from .expr import Expr
from .graph import Node
from .ops import Fused, Map, Pool

FEW_BITS = 16  # of types all of whose numbers are tried


@dataclass(frozen=True)
class Pooling:
    """A pool in the type `dtype`, of what `before` makes of the elements; `after` makes the results of what
    it gives and of the elements of further operands in the result's shape (None: as they are). The node has
    the pool's op over operands and result as they are stored."""

    node: Node[Pool]
    dtype: str
    before: Expr | None = None
    after: Expr | None = None


def pooling_of(node: Node) -> Pooling | None:
    """What a pool, or a group of kind "pool", computes; floats of 16 bits are combined in float32."""
    if isinstance(node.op, Pool):
        dtype = node.inputs[0].dtype
        if dtype not in dtypes.HALVES:
            return Pooling(node, dtype)
        widened, rounded = expr.input_(0, dtype).cast("float32"), expr.input_(0, "float32").cast(dtype)
        return Pooling(node, "float32", widened, rounded)
    if not isinstance(node.op, Fused) or node.op.kind != "pool":
        return None
    nodes = node.op.region.nodes
    at = next(k for k, inner in enumerate(nodes) if isinstance(inner.op, Pool))
    op, dtype = nodes[at].op, nodes[at].inputs[0].dtype
    before, after = (inner[0].op.body if inner else None for inner in (nodes[:at], nodes[at + 1 :]))
    return Pooling(Node(op, node.inputs, node.outputs, node.origin, node.choice), dtype, before, after)


def idle(kind: str, dtype: str, before: Expr | None) -> float | int | None:
    """A number of the type that `before` reads which, combined with others in dtype, changes nothing; None:
    there is none, or it is not known."""
    nothing = -math.inf if kind == "max" else 0.0
    if kind == "max" and not dtypes.is_float(dtype):
        nothing = dtypes.integer_range(dtype)[0]
    if before is None:
        return nothing
    source = _source(before)
    tried = _numbers(source)
    found = np.flatnonzero(expr.evaluate(before, [tried], tried.shape, _absent, _absent) == nothing)
    if not found.size:
        return None
    number = tried[found[0]]
    return float(number) if dtypes.is_float(source) else int(number)


def keeps_zero(pooling: Pooling) -> bool:
    """Whether zeros give a zero."""
    zero = np.zeros(1)
    for body in (pooling.before, pooling.after):
        if body is not None:
            zero = zero.astype(dtypes.numpy_dtype(_source(body)))
            zero = expr.evaluate(body, [zero], zero.shape, _absent, _absent)
    return not zero.any()


def _source(body: Expr) -> str:
    return next(e.dtype for e in expr.topological(body) if e.op == "input")


def _numbers(dtype: str) -> np.ndarray:
    """Numbers of a type, all of them where they are few integers, 0 before others."""
    if dtypes.is_float(dtype):
        return np.array([0.0, -math.inf], dtypes.numpy_dtype(dtype))
    low, high = dtypes.integer_range(dtype)
    if dtypes.bits(dtype) <= FEW_BITS:
        return np.array([0, *range(low, high + 1)]).astype(dtypes.numpy_dtype(dtype))
    return np.array([0, low], dtypes.numpy_dtype(dtype))


def is_elementwise(node: Node | None) -> bool:
    """Whether a node is a Map, element by element, of operands that have its result's shape."""
    if node is None or not isinstance(node.op, Map) or expr.contains(node.op.body, "index", "check", "size"):
        return False
    read = expr.inputs(node.op.body) == list(range(len(node.inputs)))
    return read and all(v.shape == node.outputs[0].shape for v in node.inputs)


def is_conversion(node: Node | None) -> bool:
    """Whether a node is such a Map of one operand."""
    return node is not None and len(node.inputs) == 1 and is_elementwise(node)


def _absent(what: object) -> NoReturn:
    raise TypeError(f"what a pool reads depends on {what}")
