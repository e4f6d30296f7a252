"""What constant weights are stored as: number = (element - zero) * scale, of integers, codes or halves.

The Maps that widen weights are recognised by what they compute, not by where they come from, behind whatever
only moves elements (`Constant.derivation`). A kernel that packs what is stored then reads fewer bytes. An
intermediate rounding to 16 bits is left out: numbers are nearer to what was quantised than the model asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..records import dataclass
from . import dims, dtypes, expr
from .expr import Expr
from .graph import Constant
from .interpret import run_op
from .ops import Map, Reshape, Slice, Transpose
from .quantised import aligned
from .remembered import remembered


@dataclass(frozen=True)
class Stored:
    """Constant weights of fewer bits than their numbers. `elements`: as stored, of the weights' shape.
    `table`: the numbers that codes stand for, by their bits (none: the integers themselves). Zero points and
    scales have the rank of the elements and broadcast to them, but that along `axis` there is one for each
    `block` of elements, the last of which may be short (0: none is in blocks)."""

    elements: Constant
    zero: np.ndarray
    scale: np.ndarray
    table: tuple[float, ...] = ()
    axis: int = 0
    block: int = 0


@remembered()
def stored_weights(constant: Constant) -> Stored | None:
    """What is stored behind constant weights; None where they are as they are or have no elements."""
    made = constant.derivation
    if made is None or not dims.product(constant.shape):
        return None
    if isinstance(made.op, Map):
        return _mapped(made.op.body, made.operands, constant.shape)
    if not isinstance(made.op, (Reshape, Transpose, Slice)):
        return None
    found = stored_weights(made.operands[0])
    return None if found is None else moved(found, made.op, constant.shape)


def half_weights(constant: Constant | None) -> Constant | None:
    """The 16-bit floats that constant weights are, if they are nothing else."""
    found = None if constant is None else stored_weights(constant)
    if (
        found is None
        or found.elements.dtype not in dtypes.HALVES
        or found.zero.any()
        or (found.scale != 1).any()
    ):
        return None
    return found.elements


def as_halves(found: Stored) -> Stored | None:
    """The same weights with `element - zero` as bfloat16, which are decoded in fewer steps; None where that
    rounds."""
    if found.table or found.elements.dtype in dtypes.HALVES:
        return None
    zero = found.zero
    if found.block:
        zero = np.repeat(zero, found.block, found.axis) if zero.shape[found.axis] > 1 else zero
        zero = zero[tuple(slice(0, n) for n in found.elements.shape)]
    exact = found.elements.array.astype(np.float32) - zero
    halves = exact.astype(dtypes.numpy_dtype("bfloat16"))
    if (halves != exact).any():
        return None
    return replace(found, elements=Constant.of(halves), zero=np.zeros((1,) * exact.ndim, np.float32))


# What a Map computes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Form:
    """(table[element] - zero) * scale, the latter two over other operands."""

    operand: int
    table: np.ndarray | None = None  # of all codes
    zero: Expr | None = None
    scale: tuple[Expr, ...] = ()


def _mapped(body: Expr, operands: Sequence[Constant], shape: tuple[int, ...]) -> Stored | None:
    wide = [k for k, c in enumerate(operands) if c.shape == shape and c.splat is None]
    found = next(filter(None, (_form(body, k, operands[k].dtype) for k in wide)), None)
    if found is None:
        return None
    elements = operands[found.operand]
    rank, one = len(shape), np.ones((1,) * len(shape), np.float32)
    scale = one
    for factor in found.scale:
        scale = scale * aligned(_evaluated(factor, operands), rank)
    zero = 0 * one if found.zero is None else aligned(_evaluated(found.zero, operands), rank)
    if dtypes.is_float(elements.dtype):
        inner = stored_weights(elements)
        if inner is not None and not zero.any() and not (inner.block and scale.shape[inner.axis] != 1):
            return replace(inner, scale=inner.scale * scale)
        if elements.dtype not in dtypes.HALVES:
            return None
    start, step, table = _linear(found.table, elements.dtype)
    if table and zero.any():
        return None
    return Stored(elements, (zero + start) / step, scale * np.float32(step), table)


def _form(e: Expr, operand: int, dtype: str) -> _Form | None:
    """e as a form of an operand; None where it is none."""
    if e.op == "input" and e.value == operand and dtypes.is_float(dtype):
        return _Form(operand)
    if not dtypes.is_float(dtype) and dtypes.bits(dtype) <= 8 and expr.inputs(e) == [operand]:
        return _Form(operand, _over_codes(e, dtype))
    if e.op == "cast" and dtypes.is_float(e.dtype):
        return _form(e.args[0], operand, dtype)
    if e.op == "mul":
        for inner, factor in (e.args, e.args[::-1]):
            if _is_parameter(factor, operand) and (form := _form(inner, operand, dtype)) is not None:
                return replace(form, scale=(*form.scale, factor))
    if e.op == "sub" and _is_parameter(e.args[1], operand):
        form = _form(e.args[0], operand, dtype)
        if form is not None and form.zero is None and not form.scale:
            return replace(form, zero=e.args[1])
    if e.op == "cast" and e.dtype == "int32":
        return _form(e.args[0], operand, dtype)
    return None


def _is_parameter(e: Expr, operand: int) -> bool:
    e = e.args[0] if e.op == "cast" else e
    return e.op == "const" or (e.op == "input" and e.value != operand)


def _over_codes(e: Expr, dtype: str) -> np.ndarray:
    """The values of an expression over one operand of at most 8 bits, by the bits of its elements."""
    codes = all_codes(dtype)
    body = expr.substitute(e, {expr.inputs(e)[0]: expr.input_(0, dtype)})
    return np.asarray(run_op(Map(body), [codes], {})[0], np.float64)


def all_codes(dtype: str) -> np.ndarray:
    """Every element that an integer type has, by its bits."""
    count = 1 << dtypes.bits(dtype)
    integers = np.arange(count)
    if dtypes.is_signed(dtype):
        integers = np.where(integers < count // 2, integers, integers - count)
    return integers.astype(dtypes.numpy_dtype(dtype))


def _linear(values: np.ndarray | None, dtype: str) -> tuple[float, float, tuple[float, ...]]:
    """(zero, step, table): values as (code - zero) * step where they are evenly spaced, else a table."""
    if values is None:
        return 0.0, 1.0, ()
    codes = all_codes(dtype).astype(np.float64)
    step = float(values[1] - values[0])
    zero = float(codes[0] - values[0] / step) if step else 0.0
    if step and np.array_equal((codes - zero) * step, values):
        return zero * step, step, ()
    return 0.0, 1.0, tuple(map(float, values))


def _evaluated(e: Expr, operands: Sequence[Constant]) -> np.ndarray:
    read = expr.inputs(e)
    body = expr.substitute(e, {k: expr.input_(p, operands[k].dtype) for p, k in enumerate(read)})
    return np.asarray(run_op(Map(body), [operands[k].array for k in read], {})[0], np.float32)


# What moves elements -----------------------------------------------------------------------------


def moved(found: Stored, op: Reshape | Transpose | Slice, shape: tuple[int, ...]) -> Stored | None:
    """Stored weights transposed, reshaped or cut, their parameters alike; None where these cannot be."""
    source = found.elements
    elements = Constant(source.dtype, shape, lambda: run_op(op, [source.array], {})[0])
    match op:
        case Transpose():
            zero, scale = (run_op(op, [a], {})[0] for a in (found.zero, found.scale))
            axis = op.perm.index(found.axis)
            return Stored(elements, zero, scale, found.table, axis, found.block)
        case Slice():
            return _cut(found, op, elements)
    return _reshaped(found, elements)


def _cut(found: Stored, op: Slice, elements: Constant) -> Stored | None:
    if any(step != 1 for step in op.steps):
        return None
    parts = []
    for axis, (start, size) in enumerate(zip(dims.numbers(op.starts), dims.numbers(op.sizes))):
        if found.block and axis == found.axis:
            if start % found.block:
                return None
            start, size = start // found.block, -(-size // found.block)
        parts.append((start, size))

    def cut(array: np.ndarray) -> np.ndarray:
        kept = (
            slice(None) if n == 1 and not (found.block and k == found.axis) else slice(start, start + size)
            for k, (n, (start, size)) in enumerate(zip(array.shape, parts))
        )
        return array[tuple(kept)]

    return replace(found, elements=elements, zero=cut(found.zero), scale=cut(found.scale))


def _reshaped(found: Stored, elements: Constant) -> Stored | None:
    """Neighbouring axes joined or taken apart: parameters then serve runs of elements, which must not cross
    the new axes."""
    zero, scale = np.broadcast_arrays(found.zero, found.scale)
    before, after = list(found.elements.shape), list(elements.shape)
    shape: list[int] = []
    axis = block = 0
    at = 0
    for old, new in _groups(before, after):
        sizes = scale.shape[at : at + old]
        run, whole = 1, True
        for k in reversed(range(at, at + old)):
            if found.block and k == found.axis:
                if run != 1 or (before[k] % found.block and old > 1):
                    return None
                run, whole = found.block, False
            elif scale.shape[k] == 1 and whole:
                run *= before[k]
            elif scale.shape[k] != before[k]:
                return None
            else:
                whole = False
        count = dims.product(before[at : at + old])
        at += old
        target = after[len(shape) : len(shape) + new]
        if len(target) == old and list(target) == before[at - old : at]:
            if found.block and at - old <= found.axis < at:
                axis, block = len(shape) + found.axis - (at - old), found.block
            shape += sizes
        elif run == count:
            shape += [1] * new
        elif target and target[-1] % run == 0:
            shape += [*target[:-1], target[-1] // run]
            if run > 1 and block:
                return None
            axis, block = (len(shape) - 1, run) if run > 1 else (axis, block)
        else:
            return None
    if block and shape[axis] == 1:
        axis = block = 0
    return Stored(elements, zero.reshape(shape), scale.reshape(shape), found.table, axis, block)


def _groups(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]]:
    """How many axes on either side hold the same elements, group by group."""
    groups, i, j = [], 0, 0
    while i < len(before) or j < len(after):
        first, second = i, j
        m = before[i] if i < len(before) else 1
        n = after[j] if j < len(after) else 1
        i, j = min(i + 1, len(before)), min(j + 1, len(after))
        while m != n:
            if m < n:
                m, i = m * before[i], i + 1
            else:
                n, j = n * after[j], j + 1
        groups.append((i - first, j - second))
    return groups
