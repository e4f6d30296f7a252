"""Symbolic elements: what an op makes of small integer tensors whose elements are dimensions.

Elements are object arrays of `int | Dim`, bools being 0 and 1. Ops that move elements run the
interpreter's own functions on the object arrays; a Map walks its expression with the arithmetic of
`dims` in place of numpy's. What cannot be told gives None, and the run computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from . import dims, dtypes, expr, interpret, ops
from .dims import Dimension
from .expr import Expr
from .graph import TensorType

LIMIT = 256  # elements

Elements = np.ndarray | None


class _Unknown(Exception):
    """An element that has no symbolic value."""


def elements(op: ops.Op, inputs: Sequence[Elements], out_type: TensorType) -> Elements:
    """The elements of op's only output, of type out_type, or None. `inputs` holds those of each
    operand, None where they are unknown."""
    if not _carries_elements(out_type):
        return None
    try:
        result = _elements(op, inputs, out_type)
    except (_Unknown, dims.TooComplex, interpret.InterpretError):
        return None
    if result is None:
        return None
    result = np.asarray(result, object)
    return result if all(_fits(d, out_type.dtype) for d in result.flat) else None


def _carries_elements(type_: TensorType) -> bool:
    whole = dtypes.is_integer(type_.dtype) or type_.dtype == "bool"
    return whole and dims.is_static(type_.shape) and dims.product(type_.shape) <= LIMIT


def _fits(value: Dimension, dtype: str) -> bool:
    """Whether value is in dtype's range: surely, or, in types of 32 bits and more, as sizes are."""
    low, high = dtypes.integer_range(dtype)
    least, greatest = dims.bounds(value)
    if isinstance(value, int) or dtypes.bits(dtype) < 32 or dtype == "bool":
        return least is not None and greatest is not None and low <= least and greatest <= high
    return low < 0 or (least is not None and least >= 0)


def _elements(op: ops.Op, inputs: Sequence[Elements], out_type: TensorType) -> Elements:
    match op:
        case ops.Elements(values, shape):
            return dtypes.objects(values, shape)
        case ops.Map(body):
            return _evaluate(body, inputs, dims.numbers(out_type.shape))
        case ops.Reduce(kind) if kind in _REDUCTIONS and out_type.dtype != "bool":
            return _reduce(op, inputs)
        case ops.Reshape():
            return None if inputs[0] is None else inputs[0].reshape(dims.numbers(out_type.shape))
        case ops.Gather():
            return _gather(op, inputs)
        case ops.Transpose() | ops.Slice() | ops.Pad() | ops.Broadcast() | ops.Concat():
            return None if any(x is None for x in inputs) else interpret.run_op(op, inputs, {})[0]
    return None


def _gather(op: ops.Gather, inputs: Sequence[Elements]) -> Elements:
    x, indices = inputs
    if x is None or indices is None or not all(isinstance(i, int) for i in indices.flat):
        return None
    return interpret.run_op(op, [x, indices.astype(np.int64)], {})[0]


def _each(function: Callable[..., Dimension], *arrays: np.ndarray) -> np.ndarray:
    """The function of every element; the arrays broadcast."""
    return np.asarray(np.frompyfunc(function, len(arrays), 1)(*arrays), object)


def _reduce(op: ops.Reduce, inputs: Sequence[Elements]) -> Elements:
    x = inputs[0]
    if x is None or x.size > LIMIT:
        return None
    if op.body is not None:
        x = _evaluate(op.body, inputs, x.shape)
    combine, neutral = _REDUCTIONS[op.kind]
    for axis in reversed(op.axes):
        parts = list(np.moveaxis(x, axis, 0))
        if not parts and neutral is None:
            return None
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        total = parts[0] if parts else np.full(shape, neutral, object)
        for part in parts[1:]:
            total = _each(combine, total, part)
        x = np.asarray(total, object).reshape(shape)
        x = np.expand_dims(x, axis) if op.keepdims else x
    return x


#: How elements combine, and what no elements give (None: that depends on the type).
_REDUCTIONS: dict[str, tuple[Callable[[Dimension, Dimension], Dimension], int | None]] = {
    "sum": (lambda a, b: a + b, 0),
    "prod": (lambda a, b: a * b, 1),
    "min": (dims.minimum, None),
    "max": (dims.maximum, None),
}


# Expressions -------------------------------------------------------------------------------------


def _evaluate(body: Expr, inputs: Sequence[Elements], shape: Sequence[int]) -> np.ndarray:
    """body for each element of shape. Raises _Unknown."""
    done: dict[int, np.ndarray] = {}
    for node in expr.topological(body):
        args = [done[id(a)] for a in node.args]
        done[id(node)] = _leaf(node, inputs, shape) if not args else _apply(node, args)
    return np.broadcast_to(done[id(body)], tuple(shape))


def _leaf(node: Expr, inputs: Sequence[Elements], shape: Sequence[int]) -> np.ndarray:
    match node.op:
        case "input" if inputs[node.value] is not None:
            return inputs[node.value]
        case "const":
            value = int(node.value) if node.dtype == "bool" else node.value
            return dtypes.objects([value], ())
        case "size":
            return dtypes.objects([node.value], ())
        case "index":
            along = [-1 if axis == node.value else 1 for axis in range(len(shape))]
            return dtypes.objects(list(range(shape[node.value])), along)
    raise _Unknown


def _apply(node: Expr, args: Sequence[np.ndarray]) -> np.ndarray:
    if node.op != "check" and all(isinstance(v, (int, float)) for a in args for v in a.flat):
        return _numbers(node, args)
    result = _symbolic(node, args)
    if not all(_fits(d, node.dtype) for d in result.flat):
        raise _Unknown
    return result


def _numbers(node: Expr, args: Sequence[np.ndarray]) -> np.ndarray:
    """An operation on numbers only: numpy's result, whatever the type."""
    typed = zip(args, node.args, strict=True)
    arrays = [a.astype(dtypes.numpy_dtype(argument.dtype)) for a, argument in typed]
    leaves = [expr.input_(k, argument.dtype) for k, argument in enumerate(node.args)]
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    result = interpret.run_op(ops.Map(expr.rebuild(node, tuple(leaves))), arrays, {})[0]
    values = (v.item() for v in result.flat)
    return dtypes.objects([int(v) if isinstance(v, bool) else v for v in values], shape)


def _symbolic(node: Expr, args: Sequence[np.ndarray]) -> np.ndarray:
    kinds = {node.dtype, *(a.dtype for a in node.args)}
    if any(dtypes.is_float(kind) for kind in kinds):
        raise _Unknown
    match node.op:
        case "cast":
            return _each(_is_true, args[0]) if node.dtype == "bool" else args[0]
        case "check" if all(isinstance(d, int) and d for d in args[0].flat):
            return args[1]
        case "and" | "or" | "xor" | "not" if node.dtype == "bool":
            return _each(_LOGIC[node.op], *args)
    if node.op not in _ARITHMETIC:
        raise _Unknown
    return _each(_ARITHMETIC[node.op], *args)


def _not(a: Dimension) -> Dimension:
    return 1 - a


def _is_true(a: Dimension) -> Dimension:
    return _not(dims.compare("eq", a, 0))


def _less(a: Dimension, b: Dimension) -> Dimension:
    return dims.compare("lt", a, b)


def _divide(a: Dimension, b: Dimension) -> Dimension:
    if dims.equal(b, 0) is not False:
        raise _Unknown
    return dims.truncated_divide(a, b)


def _modulo(a: Dimension, b: Dimension) -> Dimension:
    if dims.equal(b, 0) is not False:
        raise _Unknown
    return dims.remainder(a, b)


def _power(a: Dimension, b: Dimension) -> Dimension:
    if not isinstance(b, int) or not 0 <= b <= 8:
        raise _Unknown
    return dims.product([a] * b)


def _select(condition: Dimension, a: Dimension, b: Dimension) -> Dimension:
    if isinstance(condition, int):
        return a if condition else b
    return b + condition * (a - b)


#: Operations on 0 and 1.
_LOGIC: dict[str, Callable[..., Dimension]] = {
    "and": dims.minimum,
    "or": dims.maximum,
    "xor": lambda a, b: _not(dims.compare("eq", a, b)),
    "not": _not,
}

#: Operations on integers, of which only the last two take bools.
_ARITHMETIC: dict[str, Callable[..., Dimension]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "abs": lambda a: dims.maximum(a, -a),
    "sign": lambda a: _less(0, a) - _less(a, 0),
    "div": _divide,
    "mod": _modulo,
    "fmod": lambda a, b: a - b * _divide(a, b),
    "pow": _power,
    "min": dims.minimum,
    "max": dims.maximum,
    "lt": _less,
    "le": lambda a, b: _not(_less(b, a)),
    "gt": lambda a, b: _less(b, a),
    "ge": lambda a, b: _not(_less(a, b)),
    "eq": lambda a, b: dims.compare("eq", a, b),
    "ne": lambda a, b: _not(dims.compare("eq", a, b)),
    "select": _select,
}
