"""store_halves: matrices of float32 whose numbers are all bfloat16s, or all float16s, are stored as these.

contract(%x, W: float32[n, k])   →   contract(%x, map(H: bfloat16[n, k]) { cast($0, float32) })

Language models are trained in halves and exported as float32: of their weights half the bytes say nothing.
Kernels read what is stored (`ir/stored.py`), and results are the same. Some numbers of a matrix tell of most
that it is another.
"""

from __future__ import annotations

import numpy as np

from ..ir import dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Constant, Graph, Rewriter, Value, constant_value
from ..ir.ops import Map

LEAST = 4096  # elements for which it is worth it
SAMPLE = 256  # elements that are looked at first
TOGETHER = 1 << 18  # elements that are looked at together


def store_halves(graph: Graph) -> Graph:
    """graph with its matrices of halves stored as such."""
    halves: dict[int, Value | None] = {}
    return everywhere(lambda inner: _stored(inner, halves))(graph)


def _stored(graph: Graph, halves: dict[int, Value | None]) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = [rewriter.of(v) for v in node.inputs]
        for k, value in enumerate(inputs):
            constant = value.constant
            if constant is None or constant.dtype != "float32" or not _is_large_matrix(constant):
                continue
            if id(constant) not in halves:
                halves[id(constant)] = _as_halves(constant, value.name)
            if (narrow := halves[id(constant)]) is not None:
                cast = Map(expr.input_(0, narrow.dtype).cast("float32"))
                inputs[k] = rewriter.add(cast, [narrow], node.origin)[0]
        rewriter.copy(node, tuple(inputs))
    return rewriter.finish()


def _is_large_matrix(constant: Constant) -> bool:
    return len(constant.shape) == 2 and constant.materialised and constant.nbytes >= 4 * LEAST


def _as_halves(constant: Constant, name: str) -> Value | None:
    """The same numbers in 16 bits each; None where these do not hold them."""
    flat = constant.array.reshape(-1)
    for dtype in reversed(dtypes.HALVES):  # what widens a bfloat16 is everywhere
        if _holds(dtype, flat[:: flat.size // SAMPLE]) and all(
            _holds(dtype, flat[first : first + TOGETHER]) for first in range(0, flat.size, TOGETHER)
        ):
            return constant_value(_cast(constant, dtype), name)
    return None


def _cast(constant: Constant, dtype: str) -> Constant:
    return Constant(dtype, constant.shape, lambda: constant.array.astype(dtypes.numpy_dtype(dtype)))


def _holds(dtype: str, numbers: np.ndarray) -> bool:
    """Whether the type has all these numbers; of what is not finite it is not asked."""
    with np.errstate(over="ignore"):
        narrow = numbers.astype(dtypes.numpy_dtype(dtype)).astype(np.float32)
    return bool((narrow.view(np.uint32) == np.ascontiguousarray(numbers).view(np.uint32)).all())
