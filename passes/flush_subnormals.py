"""flush_subnormals: constant weights too small to be normal numbers are 0 in products.

conv(%x, W: [0.5, 1e-40])   →   conv(%x, W: [0.5, 0.0])

Many processors take a hundred times longer to multiply a subnormal number, and training leaves weights full
of them behind. What a sum loses is below 2^-126 times the sum of its other factors' absolute values. Weights
are looked at when they are packed, so nothing is read or copied before.
"""

from __future__ import annotations

import numpy as np

from ..ir.everywhere import everywhere
from ..ir.graph import Constant, Graph, Rewriter, Value
from ..ir.ops import Contract, Conv

#: The bits of the exponent, which are 0 in a subnormal number and in 0.
_EXPONENT = {"float32": (np.uint32, 0x7F800000), "float64": (np.uint64, 0x7FF0000000000000)}
_CHUNK = 1 << 18  # elements looked at at a time


def flush_subnormals(graph: Graph) -> Graph:
    """graph with the constant operands of Conv and Contract without subnormal numbers."""
    flushed: dict[int, Constant] = {}
    return everywhere(lambda inner: _flushed(inner, flushed))(graph)


def _flushed(graph: Graph, known: dict[int, Constant]) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        if isinstance(node.op, (Conv, Contract)):
            inputs = (*(_without(v, known) for v in inputs[:2]), *inputs[2:])
        rewriter.copy(node, inputs)
    return rewriter.finish()


def _without(value: Value, known: dict[int, Constant]) -> Value:
    """A constant operand without subnormal numbers; equal for equal ones."""
    constant = value.constant
    if constant is None or constant.splat is not None or constant.dtype not in _EXPONENT:
        return value
    if id(constant) not in known:
        made = Constant(constant.dtype, constant.shape, lambda: normal_or_zero(constant.array))
        made.derivation, made.steps = constant.derivation, constant.steps
        known[id(constant)] = known[id(made)] = made
    return Value(value.type, value.name, known[id(constant)], value.elements)


def normal_or_zero(array: np.ndarray) -> np.ndarray:
    """The array with 0 in the place of subnormal numbers: itself where it has none."""
    words, exponent = _EXPONENT[str(array.dtype)]
    flat = np.ascontiguousarray(array).reshape(-1)
    bits, result = flat.view(words), flat
    for first in range(0, len(flat), _CHUNK):
        part = slice(first, first + _CHUNK)
        least = (bits[part] & words(exponent)) == 0
        if least.any() and (least & (flat[part] != 0)).any():
            result = flat.copy() if result is flat else result
            result[part][least] *= 0  # the sign stays
    return array if result is flat else result.reshape(array.shape)
