"""What stands behind a real number that is made of a stored integer: (stored - zero) * scale.

The bodies of DequantizeLinear, and those that subtract a zero point, are recognised by what they compute, not
by where they come from. A scale of None is that of an integer, which is `stored - zero` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..records import dataclass
from . import dims, dtypes, expr
from .dims import Dimension
from .expr import Expr
from .graph import Constant, Value
from .interpret import run_op
from .ops import Contract, Conv, Map, Op, Reshape, Transpose

if TYPE_CHECKING:
    from ..target import Dot, Target

BYTES = ("uint8", "int8")
STORED = (*BYTES, "uint16", "int16")  # what real numbers are made of
WIDEST_PAD = 64  # what an image's border may be wide

#: A number, or a value that has it, of one element or of many that broadcast.
Parameter = int | float | Value


@dataclass(frozen=True)
class Quantised:
    """A value whose elements are stored as integers, with one scale for all."""

    stored: Value
    zero: Parameter
    scale: Parameter | None


@dataclass(frozen=True)
class Weights:
    """Constant integers of at most 8 bits; zero points and scales are arrays that broadcast to them. late: a
    zero point besides that only the run knows."""

    stored: Constant
    zero: np.ndarray
    scale: np.ndarray | None
    late: Value | None = None

    def signed(self) -> tuple[Constant, np.ndarray]:
        """int8, and what is to be added to them, of the shape of zero points, to give stored - zero."""
        stored, zero = self.stored, self.zero.astype(np.int32)
        if stored.dtype == "int8" and not zero.any():
            return stored, zero
        centred = stored.array.astype(np.int32) - zero
        fits = not centred.size or (centred.min() >= -128 and centred.max() <= 127)
        middle = 128 if stored.dtype == "uint8" else 0
        start = zero if fits else np.full_like(zero, middle)
        moved = Constant(
            "int8", stored.shape, lambda: (stored.array.astype(np.int32) - start).astype(np.int8)
        )
        return moved, start - zero

    def centred(self) -> Constant:
        """int16, stored - zero."""
        stored, zero = self.stored, self.zero
        return Constant("int16", stored.shape, lambda: stored.array.astype(np.int16) - zero.astype(np.int16))


def dot_of(op: Op, x: Value, w: Value, target: Target) -> Dot | None:
    """The instruction with which kernels add up a Contract or a Conv of these operands in integers on a
    target, w being the constant one if there is one; None where none does, so that it is computed in wider
    numbers."""
    if not isinstance(op, (Contract, Conv)) or not all(map(dtypes.is_integer, (x.dtype, op.accumulate))):
        return None
    if w.constant is None and isinstance(op, Contract):
        return target.dot(x.dtype, w.dtype, op.accumulate) if lies_together(op, x) else None
    if w.constant is None or not w.data.nbytes:
        return None
    if isinstance(op, Conv):
        pads = all(isinstance(p, int) and p <= WIDEST_PAD for p in op.pads)
        if op.transposed or len(op.strides) > 2 or not pads or not isinstance(x.shape[1], int):
            return None
    return target.integer_dot(x.dtype, w.dtype, op.accumulate)


def lies_together(op: Contract, x: Value) -> bool:
    """Whether neighbours along what a product sums over lie together in its first operand."""
    made = None if x.producer is None else x.producer.op
    moved = isinstance(made, Transpose) and made.perm[-1] != len(made.perm) - 1
    return bool(op.summed) and op.lhs.endswith(op.summed) and not moved


def quantised(value: Value, summed: Sequence[int] | None = None) -> Quantised | None:
    """What is stored behind a value that the run computes. summed: the axes along which all elements have the
    same zero point; without any every axis."""
    node = value.producer
    if value.constant is not None:
        return None
    if value.dtype in BYTES:
        return Quantised(value, 0, None)
    if node is None or not isinstance(node.op, Map):
        return None
    found = _affine(node.op.body)
    if found is None:
        return None
    stored, zero, scale = found
    x = node.inputs[stored]
    start = _parameter(zero, node.inputs, x.rank, summed)
    step = None if scale is None else _parameter(scale, node.inputs, x.rank)
    known = x.constant is None and x.dtype in STORED and x.shape == value.shape
    if not known or start is None or (step is None) != (scale is None):
        return None
    return Quantised(x, start, step)


def weights_of(value: Value) -> Weights | None:
    """The weights that a value is, or those of which the run makes it by taking off a zero point, moved as
    they are."""
    node = value.producer
    if value.constant is not None:
        return weights(value.data)
    if node is not None and isinstance(node.op, (Transpose, Reshape)):
        inner = weights_of(node.inputs[0])
        alone = inner is not None and inner.late is not None and inner.late.tensor.count == 1
        if inner is None or not alone or not all(isinstance(size, int) for size in value.shape):
            return None
        return _moved(inner, node.op, dims.numbers(value.shape))
    if node is None or not isinstance(node.op, Map):
        return None
    found = _affine(node.op.body)
    if found is None:
        return None
    stored, zero, scale = node.inputs[found[0]], _operand(found[1], node.inputs), found[2]
    constants = {k: v.constant for k, v in enumerate(node.inputs) if v.constant is not None}
    if stored.constant is None or stored.dtype not in BYTES or stored.shape != value.shape:
        return None
    if zero is None or (scale is not None and not constants.keys() >= {*expr.inputs(scale)}):
        return None
    scales = None if scale is None else _evaluated(scale, constants)
    return Weights(stored.data, np.zeros((), np.int32), scales, zero)


def weights(constant: Constant) -> Weights | None:
    """What is stored behind constant weights, moved as they are."""
    made = constant.derivation
    if constant.dtype in BYTES:
        return Weights(constant, np.zeros((), np.int32), None)
    if made is None:
        return None
    if isinstance(made.op, (Transpose, Reshape)):
        inner = weights(made.operands[0])
        return None if inner is None else _moved(inner, made.op, constant.shape)
    if not isinstance(made.op, Map):
        return None
    found = _affine(made.op.body)
    if found is None:
        return None
    stored, zero, scale = made.operands[found[0]], found[1], found[2]
    if stored.shape != constant.shape or dtypes.bits(stored.dtype) > 8:
        return None
    operands = dict(enumerate(made.operands))
    scales = None if scale is None else _evaluated(scale, operands)
    return Weights(stored, _evaluated(zero, operands), scales)


def elements(dtype: str) -> np.ndarray:
    """All numbers of a type of integers, which has few."""
    low, high = dtypes.integer_range(dtype)
    return np.arange(low, high + 1).astype(dtypes.numpy_dtype(dtype))


def is_one_along(axes: Sequence[int], shape: Sequence[Dimension], rank: int) -> bool:
    """Whether what broadcasts to so many axes is the same for all indices along some of them."""
    return all(size == 1 for size in [shape[k - rank] for k in axes if k >= rank - len(shape)])


def aligned(array: np.ndarray, rank: int) -> np.ndarray:
    """With axes of one element before, as many as it takes to broadcast."""
    return array.reshape((1,) * (rank - array.ndim) + array.shape)


def _affine(body: Expr) -> tuple[int, Expr, Expr | None] | None:
    """(operand, zero, scale) of a body (operand - zero) * scale, the latter two over other operands."""
    scale = None
    if body.dtype == "float32":
        scale = expr.const(1.0, "float32")
        if body.op == "mul":
            body, scale = body.args if _is_integer(body.args[0]) else body.args[::-1]
        if not _is_integer(body) or not _is_leaf(scale):
            return None
        body = body.args[0]
    if body.dtype != "int32":
        return None
    zero = expr.const(0, "int32")
    if body.op == "sub":
        body, zero = body.args
    stored = body.args[0] if body.op == "cast" else body
    if stored.op != "input" or not dtypes.is_integer(stored.dtype) or not _is_leaf(zero):
        return None
    return stored.value, zero, scale


def _is_integer(e: Expr) -> bool:
    return e.op == "cast" and e.args[0].dtype == "int32"


def _is_leaf(e: Expr) -> bool:
    """A number or an operand, as another type perhaps."""
    e = e.args[0] if e.op == "cast" else e
    return e.op in ("const", "input")


def _operand(e: Expr, operands: Sequence[Value]) -> Value | None:
    """The operand that a leaf reads."""
    leaf = e.args[0] if e.op == "cast" else e
    return operands[leaf.value] if leaf.op == "input" else None


def _parameter(
    e: Expr, operands: Sequence[Value], rank: int, summed: Sequence[int] | None = None
) -> Parameter | None:
    """The number, or the operand of one element, or of one along what is summed."""
    value = _operand(e, operands)
    if value is None:
        return (e.args[0] if e.op == "cast" else e).value
    alone = value.tensor.count == 1
    return value if alone or (summed is not None and is_one_along(summed, value.shape, rank)) else None


def _evaluated(e: Expr, operands: Mapping[int, Constant]) -> np.ndarray:
    """An expression over constants."""
    read = expr.inputs(e)
    body = expr.substitute(e, {k: expr.input_(p, operands[k].dtype) for p, k in enumerate(read)})
    return np.asarray(run_op(Map(body), [operands[k].array for k in read], {})[0])


def _moved(found: Weights, op: Transpose | Reshape, shape: Sequence[int]) -> Weights | None:
    """Weights transposed or reshaped, with their parameters, if these can be moved alike."""
    parameters = [a for a in (found.zero, found.scale) if a is not None]
    if isinstance(op, Transpose):
        parameters = [run_op(op, [aligned(a, len(shape))], {})[0] for a in parameters]
    elif all(a.size == 1 for a in parameters):
        parameters = [a.reshape(()) for a in parameters]
    else:
        return None
    stored = found.stored
    moved = Constant(stored.dtype, tuple(shape), lambda: run_op(op, [stored.array], {})[0])
    return Weights(moved, parameters[0], parameters[1] if found.scale is not None else None, found.late)
