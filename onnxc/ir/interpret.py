"""The core ops in numpy: what every op means, in a few lines each.

Constant folding computes with it and kernels are tested against it. `env` holds the dimension
variables; it is filled where sizes become known: graph inputs, Bind, and the outputs of If, Loop
and RuntimeCall. Layouts are ignored. The array work is in `numpy_ops` and `runtime_twins`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import dims, dtypes, expr, ops
from .dims import Dimension
from .expr import Expr
from .graph import Graph, Node, TensorType, Type, Value
from .numpy_ops import (
    attention,
    cast_to,
    convolve,
    cumulate,
    einsum,
    gather,
    neutral,
    overlap_add,
    pad,
    pool,
    recurrent,
    rounded_in_blocks,
    scatter,
    sorted_order,
    strided,
    tree_ensemble,
    widened,
)
from .requirements import Need, RequirementKind
from .runtime_twins import TWINS, InterpretError

Env = dict[str, int]

__all__ = ["InterpretError", "fold", "run_graph", "run_node", "run_op"]


# Graphs ------------------------------------------------------------------------------------------


def run_graph(graph: Graph, inputs: Sequence, env: Mapping[str, int] | None = None) -> list:
    """The graph's outputs for its inputs: arrays, and lists for sequences. `env` holds the
    dimension variables that are known already. Raises InterpretError."""
    env = dict(env or {})
    if len(inputs) != len(graph.inputs):
        raise InterpretError("wrong_count", len(inputs))
    values: dict[Value, object] = {}
    for value, data in zip(graph.inputs, inputs, strict=True):
        values[value] = _bound(value.type, data, env, binds=True)
    last_use = {v: k for k, node in enumerate(graph.nodes) for v in node.inputs}
    last_use.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    for k, node in enumerate(graph.nodes):
        results = run_node(node, [_data(v, values) for v in node.inputs], env)
        values.update(zip(node.outputs, results, strict=True))
        for value in {*node.inputs, *node.outputs}:
            if last_use.get(value, k) == k:
                values.pop(value, None)
    return [_data(v, values) for v in graph.outputs]


def _data(value: Value, values: Mapping[Value, object]) -> object:
    return values[value] if value in values or value.constant is None else value.constant.array


def run_node(node: Node, inputs: Sequence, env: Env) -> list:
    """The node's outputs, checked against their types; `env` gains the variables that it binds."""
    results = run_op(node.op, inputs, env)
    binds = isinstance(node.op, (ops.If, ops.Loop, ops.RuntimeCall))
    return [_bound(v.type, data, env, binds) for v, data in zip(node.outputs, results, strict=True)]


def _bound(type_: Type, data: object, env: Env, binds: bool) -> object:
    """data, checked to be of that type. Unknown variables of its shape are bound where `binds`."""
    if not isinstance(type_, TensorType):
        return data
    array = np.asarray(data)
    if array.dtype.kind in "US":
        array = array.astype(object)
    if dtypes.from_numpy(array.dtype) != type_.dtype:
        raise InterpretError("wrong_dtype", f"{array.dtype} for {type_}")
    if array.ndim != type_.rank:
        raise InterpretError("wrong_rank", f"{list(array.shape)} for {type_}")
    if binds:
        for dimension, size in zip(type_.shape, array.shape, strict=True):
            _solve(dimension, size, env)
    if numbers(type_.shape, env) != array.shape:
        raise InterpretError("wrong_shape", f"{list(array.shape)} for {type_}")
    return array


def _solve(dimension: Dimension, size: int, env: Env) -> None:
    """Binds the one unknown variable s of a dimension c*s + d."""
    unknown = [s.name for s in dims.symbols(dimension) if s.name not in env]
    if len(unknown) == 1:
        at_zero, at_one = (dims.evaluate(dimension, {**env, unknown[0]: k}) for k in (0, 1))
        slope = at_one - at_zero
        if slope and (size - at_zero) % slope == 0:
            env[unknown[0]] = (size - at_zero) // slope


def number(dimension: Dimension, env: Mapping[str, int]) -> int:
    try:
        return dims.evaluate(dimension, env)
    except KeyError as unknown:
        raise InterpretError("unbound_variable", unknown.args[0]) from None


def numbers(shape: Sequence[Dimension], env: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(number(d, env) for d in shape)


def sizes(shape: Sequence[Dimension], env: Mapping[str, int]) -> tuple[int, ...]:
    """numbers, none of them negative."""
    found = numbers(shape, env)
    if any(size < 0 for size in found):
        raise InterpretError("invalid_value", list(found))
    return found


#: Bytes of one value that may be computed at compile time.
VALUE_LIMIT = 64 << 20

#: How much may be computed at compile time in all, counted as `effort` does: seconds.
EFFORT_LIMIT = 1 << 30
MULTIPLIED = 16  # multiply-adds of matrices of floats that count as one: 2^34 of them take half a second


def effort(op: ops.Op, inputs: Sequence[Type]) -> int:
    """About how many elements are looked at while op is computed, products of matrices counted, those of
    floats by MULTIPLIED.
    What has no bound (a loop, a branch) is over every limit."""
    if isinstance(op, (ops.If, ops.Loop, ops.Fused)):
        return EFFORT_LIMIT + 1
    given = [t for t in inputs if isinstance(t, TensorType)]
    result = [t for t in op.infer(Need(), *inputs) if isinstance(t, TensorType)]
    touched = sum(_known(t.count) for t in (*given, *result))
    match op:
        case ops.Contract(lhs, rhs):
            sizes = dict(zip(lhs + rhs, (*given[0].shape, *given[1].shape), strict=True))
            products = _known(dims.product(sizes.values()))
            return max(touched, products // (MULTIPLIED if dtypes.is_float(op.accumulate) else 1))
        case ops.Conv():
            image = given[0] if op.transposed else result[0]
            return max(touched, _known(image.count * dims.product(given[1].shape[1:])))
        case ops.Pool():
            return max(touched, _known(result[0].count * dims.product(op.kernel)))
        case ops.TreeEnsemble():
            return touched + _known(given[0].shape[0] * given[6].count * (op.depth + 1))
        case ops.Scatter():
            return 8 * touched  # one by one
        case ops.Attention() | ops.Recurrent() | ops.RuntimeCall():
            return touched**2
    return touched


def _known(count: Dimension) -> int:
    return count if isinstance(count, int) else EFFORT_LIMIT


def fold(op: ops.Op, constants: Sequence[np.ndarray]) -> list[np.ndarray] | None:
    """The outputs of op over constants, or None where they vary or computing them fails."""
    if isinstance(op, (ops.Random, ops.Bind)):
        return None
    try:
        return run_op(op, constants, {})
    except Exception:  # whatever is wrong with the node, the run reports it
        return None


# Ops ---------------------------------------------------------------------------------------------


def run_op(op: ops.Op, inputs: Sequence, env: Env) -> list:
    """The outputs of op; nothing checks their types."""
    with np.errstate(all="ignore"):
        result = _run(op, inputs, env)
    return result if isinstance(result, list) else [_as_array(result)]


def _as_array(result: object) -> np.ndarray:
    """What numpy gives for one element, which of strings knows no type, as a tensor without axes."""
    return result if isinstance(result, np.ndarray) else np.array(result, getattr(result, "dtype", object))


def _run(op: ops.Op, inputs: Sequence, env: Env) -> np.ndarray | list:
    x: Any = inputs[0] if inputs else None
    match op:
        case ops.Map(body, shape):
            return _map(body, inputs, _common(inputs, sizes(shape or (), env)), env)
        case ops.Reduce():
            return _reduce(op, inputs, env)
        case ops.Contract():
            x, y = (cast_to(a, op.accumulate) for a in inputs[:2])
            x = rounded_in_blocks(x, op.lhs.index(op.summed), op.rounded) if op.rounded else x
            sums = einsum(op.lhs, op.rhs, op.out, x, y, op.repeated)
            return _epilogue(op.epilogue, sums, inputs[2:], env)
        case ops.Conv():
            x, w = (cast_to(a, op.accumulate) for a in inputs[:2])
            x = x - np.asarray(op.zero, x.dtype) if op.zero else x
            sums = convolve(op, x, w, numbers(op.pads, env))
            return _epilogue(op.epilogue, sums, inputs[2:], env)
        case ops.Pool():
            return pool(op, x, numbers(op.pads, env), sizes(op.sizes, env))
        case ops.OverlapAdd():
            return overlap_add(op, x, sizes(op.kernel, env), sizes(op.sizes, env))
        case ops.Attention():
            return attention(op, *inputs)
        case ops.Recurrent():
            return recurrent(op, *inputs)
        case ops.Reshape(shape):
            return _reshape(x, sizes(shape, env))
        case ops.Transpose(perm):
            return x.transpose(perm)
        case ops.Slice(starts, counts, steps):
            return strided(x, numbers(starts, env), sizes(counts, env), numbers(steps, env))
        case ops.Pad(mode, before, after):
            return pad(x, mode, sizes(before, env), sizes(after, env), *inputs[1:])
        case ops.Broadcast(shape):
            return _broadcast(x, sizes(shape, env))
        case ops.Concat(axis):
            return _concatenate(inputs, axis)
        case ops.Unfold(taps, stride):
            count = (len(x) - taps) // stride + 1
            if count < 0:
                raise InterpretError("dims_mismatch", f"{taps} of {len(x)}")
            return _concatenate([x[k : k + count * stride : stride] for k in range(taps)], 1)
        case ops.Gather():
            return gather(op, x, inputs[1])
        case ops.Scatter():
            return scatter(op, *inputs)
        case ops.Cumulate():
            return cumulate(op, x)
        case ops.Sort(axis, descending, count):
            order = sorted_order(x, axis, descending)
            if count is not None:
                order = np.take(order, np.arange(sizes((count,), env)[0]), axis)
            return [np.take_along_axis(x, order, axis), order]
        case ops.TreeEnsemble():
            return tree_ensemble(op, *inputs)
        case ops.Random():
            return _random(op, sizes(op.shape, env))
        case ops.Elements(elements, shape, dtype):
            array = np.array(numbers(elements, env), np.int64).reshape(shape)
            return array.astype(dtypes.numpy_dtype(dtype))
        case ops.Bind(symbols):
            return _bind(symbols, x, env)
        case ops.Require(kind, both, code):
            return _require(kind, numbers(both, env), code)
        case ops.If(then, otherwise):
            return run_graph(then if x.reshape(()) else otherwise, inputs[1:], env)
        case ops.Loop():
            return _loop(op, inputs, env)
        case ops.Fused(_, region):
            return run_graph(region, inputs, env)
        case ops.RuntimeCall(symbol, _, attributes):
            if symbol.startswith(ops.CUSTOM):
                raise InterpretError("unsupported", symbol)
            return TWINS[symbol](inputs, attributes)
        case ops.Reorder():
            return x
    raise TypeError(f"{type(op).__name__} has no meaning in numpy")


def _common(inputs: Sequence[np.ndarray], *shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*(x.shape for x in inputs), *shapes)
    except ValueError:
        known = [*(list(x.shape) for x in inputs), *map(list, shapes)]
        raise InterpretError("dims_mismatch", known) from None


def _map(body: Expr, operands: Sequence, shape: tuple[int, ...], env: Env) -> np.ndarray:
    def failed(code: str) -> None:
        raise InterpretError(code)

    return expr.evaluate(body, operands, shape, lambda d: number(d, env), failed)


def _epilogue(body: Expr | None, sums: np.ndarray, extra: Sequence, env: Env) -> np.ndarray:
    if body is None:
        return sums
    if _common([sums, *extra]) != sums.shape:
        raise InterpretError("dims_mismatch", [list(x.shape) for x in (sums, *extra)])
    return _map(body, [sums, *extra], sums.shape, env)


def _reshape(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if math.prod(shape) != x.size:
        raise InterpretError("invalid_reshape", f"{list(x.shape)} as {list(shape)}")
    return x.reshape(shape)


def _broadcast(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if _common([x], shape) != shape:
        raise InterpretError("dims_mismatch", f"{list(x.shape)} to {list(shape)}")
    return np.broadcast_to(x, shape)


def _concatenate(inputs: Sequence[np.ndarray], axis: int) -> np.ndarray:
    try:
        return np.concatenate(inputs, axis)
    except ValueError:
        raise InterpretError("dims_mismatch", [list(x.shape) for x in inputs]) from None


def _reduce(op: ops.Reduce, inputs: Sequence[np.ndarray], env: Env) -> np.ndarray:
    x = inputs[0] if op.body is None else _map(op.body, inputs, inputs[0].shape, env)
    if op.kind.startswith("arg"):
        return _extreme_index(op, x)
    if op.kind in ("sum", "prod"):
        wide = widened(x)
        total = getattr(np, op.kind)(wide, op.axes, dtype=wide.dtype, keepdims=op.keepdims)
        return np.asarray(total).astype(x.dtype)
    function: Any = {"min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}[
        op.kind
    ]
    for axis in reversed(op.axes):
        if x.shape[axis] == 0:
            shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
            x = np.full(shape, neutral(op.kind, x.dtype), x.dtype)
        x = np.asarray(function.reduce(x, axis, keepdims=op.keepdims)).astype(x.dtype)
    return x


def _extreme_index(op: ops.Reduce, x: np.ndarray) -> np.ndarray:
    """The first or last place of the least or greatest element, NaN being both. 0 of nothing."""
    (axis,) = op.axes
    x, length = widened(x), x.shape[axis]
    find = np.argmin if op.kind.startswith("argmin") else np.argmax
    if length == 0:
        found = np.zeros((*x.shape[:axis], *x.shape[axis + 1 :]), np.int64)
    elif op.kind.endswith("last"):
        found = length - 1 - find(np.flip(x, axis), axis)
    else:
        found = find(x, axis)
    return np.asarray(np.expand_dims(found, axis) if op.keepdims else found, np.int64)


# Sizes and control -------------------------------------------------------------------------------


def _random(op: ops.Random, shape: tuple[int, ...]) -> np.ndarray:
    """Type, shape and distribution are those of the runtime; the numbers are not."""
    seed = None if op.seed is None else int(np.float32(op.seed).view(np.uint32))
    generator = np.random.default_rng(seed)
    draw = generator.uniform if op.kind == "uniform" else generator.normal
    return np.asarray(draw(op.a, op.b, shape)).astype(dtypes.numpy_dtype(op.dtype))


def _require(kind: RequirementKind, both: Sequence[int], code: str) -> list:
    a, b = both
    if kind == "inside":
        if not -a <= b < a:
            raise InterpretError(code, b)
    elif not {"equal": a == b, "broadcast": a in (b, 1), "least": a >= b}[kind]:
        raise InterpretError(code, [a, b])
    return []


def _bind(symbols: Sequence[dims.Symbol], x: np.ndarray, env: Env) -> list:
    if x.size != len(symbols):
        raise InterpretError("dims_mismatch", list(x.shape))
    for symbol, size in zip(symbols, x.reshape(-1), strict=True):
        if symbol.minimum is not None and size < symbol.minimum:
            raise InterpretError("invalid_value", int(size))
        env[symbol.name] = int(size)
    return []


def _loop(op: ops.Loop, inputs: Sequence, env: Env) -> list:
    trips, condition, *operands = inputs
    carried, captured = operands[: op.carried], operands[op.carried :]
    scanned: list[list[np.ndarray]] = [[] for _ in op.types[op.carried :]]
    iteration, limit = 0, int(trips.reshape(()))
    while condition.reshape(()) and iteration < limit:
        state = [np.asarray(iteration, np.int64), condition.reshape(()), *carried, *captured]
        condition, *results = run_graph(op.body, state, env)
        carried, iteration = results[: op.carried], iteration + 1
        for collected, result in zip(scanned, results[op.carried :], strict=True):
            collected.append(result)
            if result.shape != collected[0].shape:
                shapes = [list(collected[0].shape), list(result.shape)]
                raise InterpretError("dims_mismatch", shapes)
    stacked = zip(scanned, op.types[op.carried :], strict=True)
    return [*carried, *(_stacked(collected, type_, env) for collected, type_ in stacked)]


def _stacked(collected: list[np.ndarray], type_: Type, env: Env) -> np.ndarray:
    """The scanned values along a new first axis. Sizes that no iteration told are 0."""
    if collected or not isinstance(type_, TensorType):
        return np.stack(collected)
    known = [all(s.name in env for s in dims.symbols(d)) for d in type_.shape[1:]]
    shape = [number(d, env) if k else 0 for d, k in zip(type_.shape[1:], known, strict=True)]
    return np.zeros((0, *shape), dtypes.numpy_dtype(type_.dtype))
