"""Reverse-mode differentiation of core ops: from a result back to what it was computed from.

`gradients` walks the nodes behind a result from the last to the first. What the result changes with an
output of a node (its cotangent) becomes what it changes with the node's operands: one rule for each op, one
for each scalar operation inside a Map. Ops without a rule are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..ir import dims, dtypes, expr, ops
from ..ir.builder import Builder
from ..ir.dims import Dimension
from ..ir.expr import Expr
from ..ir.graph import Node, Value

#: Of a scalar operation, for each argument what its result changes with that, from arguments and result.
_SLOPES: dict[str, Callable[..., tuple[Expr, ...]]] = {
    "neg": lambda x, y: (expr.const(-1, x.dtype),),
    "abs": lambda x, y: (expr.apply("sign", x),),
    "exp": lambda x, y: (y,),
    "log": lambda x, y: (1 / x,),
    "sqrt": lambda x, y: (0.5 / y,),
    "sin": lambda x, y: (expr.apply("cos", x),),
    "cos": lambda x, y: (-expr.apply("sin", x),),
    "tan": lambda x, y: (1 + y * y,),
    "asin": lambda x, y: (1 / expr.sqrt(1 - x * x),),
    "acos": lambda x, y: (-1 / expr.sqrt(1 - x * x),),
    "atan": lambda x, y: (1 / (1 + x * x),),
    "sinh": lambda x, y: (expr.apply("cosh", x),),
    "cosh": lambda x, y: (expr.apply("sinh", x),),
    "tanh": lambda x, y: (1 - y * y,),
    "asinh": lambda x, y: (1 / expr.sqrt(x * x + 1),),
    "acosh": lambda x, y: (1 / expr.sqrt(x * x - 1),),
    "atanh": lambda x, y: (1 / (1 - x * x),),
    "erf": lambda x, y: (expr.apply("exp", -(x * x)) * (2 / math.sqrt(math.pi)),),
    "add": lambda a, b, y: (expr.const(1, a.dtype), expr.const(1, a.dtype)),
    "sub": lambda a, b, y: (expr.const(1, a.dtype), expr.const(-1, a.dtype)),
    "mul": lambda a, b, y: (b, a),
    "div": lambda a, b, y: (1 / b, -y / b),
    "pow": lambda a, b, y: (b.cast(a.dtype) * expr.power(a, b - 1), y * expr.apply("log", a)),
    "min": lambda a, b, y: (_one_where(a <= b), _one_where(b < a)),
    "max": lambda a, b, y: (_one_where(a >= b), _one_where(b > a)),
}

#: Operations whose results do not change with their arguments, almost everywhere.
_FLAT = frozenset(
    ("sign", "floor", "ceil", "trunc", "round", "not", "isnan", "isinf", "and", "or", "xor", "shl", "shr")
    + ("eq", "ne", "lt", "le", "gt", "ge", "input", "const", "index", "size")
)


def _one_where(condition: Expr) -> Expr:
    return condition.cast("float32")


def slope(body: Expr, operand: int, cotangent: Expr) -> Expr | None:
    """cotangent times what the body changes with an operand; None where it does not."""
    adjoints: dict[int, Expr] = {id(body): cotangent}
    found: list[Expr] = []
    for node in reversed(expr.topological(body)):
        adjoint = adjoints.pop(id(node), None)
        if adjoint is None:
            continue
        if node.op == "input" and node.value == operand:
            found.append(adjoint)
        for argument, part in zip(node.args, _parts(node, adjoint), strict=False):
            if part is not None and dtypes.is_float(argument.dtype):
                before = adjoints.get(id(argument))
                adjoints[id(argument)] = part if before is None else before + part
    return expr.sum_of(found) if found else None


def _parts(node: Expr, adjoint: Expr) -> Sequence[Expr | None]:
    """What belongs to each argument of a scalar operation."""
    if node.op in _FLAT:
        return ()
    if node.op == "cast":
        return (adjoint.cast(node.args[0].dtype),)
    if node.op == "check":
        return (None, adjoint)
    if node.op == "select":
        condition, zero = node.args[0], expr.const(0, adjoint.dtype)
        return (None, expr.where(condition, adjoint, zero), expr.where(condition, zero, adjoint))
    if node.op not in _SLOPES:
        raise UnsupportedError(f"the gradient of the scalar operation {node.op}")
    return [adjoint * s.cast(adjoint.dtype) for s in _SLOPES[node.op](*node.args, node)]


# Ops ---------------------------------------------------------------------------------------------


def _summed(b: Builder, x: Value, shape: Sequence[Dimension]) -> Value:
    """x, of a shape that `shape` broadcasts to, summed where it repeats what has that shape."""
    extra = x.rank - len(shape)
    axes = list(range(extra))
    for axis, (whole, part) in enumerate(zip(x.shape[extra:], shape), extra):
        if dims.equal(whole, part) is not True:
            if dims.equal(part, 1) is not True:
                raise UnsupportedError(f"the gradient of what may repeat along an axis of {part}")
            axes.append(axis)
    return b.reshape(b.reduce("sum", x, axes) if axes else x, shape)


def _map(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Of a Map, and of the body of a Reduce."""
    shifted = expr.substitute(
        node.op.body, {k: expr.input_(k + 1, v.dtype) for k, v in enumerate(node.inputs)}
    )
    found = slope(shifted, operand + 1, expr.input_(0, g.dtype))
    if found is None:
        return None
    whole = b.emit(ops.Map(found, tuple(g.shape)), g, *node.inputs)[0]
    return _summed(b, whole, node.inputs[operand].shape)


def _reduce(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Of the greatest elements and the smallest all equal ones get the whole cotangent's equal parts."""
    op, x = node.op, node.inputs[0]
    kept = [1 if a in op.axes else d for a, d in enumerate(x.shape)]
    g = b.reshape(g, kept)
    if op.kind == "sum":
        whole = b.broadcast(g, x.shape)
        return whole if op.body is None else _map(b, node, whole, operand)
    if op.body is not None:
        raise UnsupportedError(f"the gradient of a reduction by {op.kind} with a body")
    y = b.reshape(node.outputs[0], kept)
    if op.kind == "prod":
        return b.map(g, y, x, lambda g, y, x: g * y / x)
    if op.kind in ("min", "max"):
        equal = b.map(x, y, lambda x, y: x.equals(y).cast(x.dtype))
        count = b.reduce("sum", equal, op.axes, keepdims=True)
        return b.map(g, equal, count, lambda g, e, n: g * e / n)
    return None


def _contract(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    op, (x, y, *_) = node.op, node.inputs
    if op.epilogue is not None or operand > 1:
        raise UnsupportedError("the gradient of a product with an epilogue")
    own, other, value, against = (op.lhs, op.rhs, x, y) if operand == 0 else (op.rhs, op.lhs, y, x)
    summed = [label for label in own if label not in op.out and label not in other]
    kept = "".join(label for label in own if label not in summed)
    found = b.contract(op.out, other, kept, g, against)
    shape = [1 if label in summed else d for label, d in zip(own, value.shape)]
    return b.broadcast(b.reshape(found, shape), value.shape)


def _slice(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    op, x = node.op, node.inputs[0]
    if any(step != 1 for step in op.steps):
        raise UnsupportedError("the gradient of a slice with steps")
    after = tuple(d - s - n for d, s, n in zip(x.shape, op.starts, op.sizes))
    return b.emit(ops.Pad("constant", op.starts, after), g, b.constant(0, g.dtype))[0]


def _pad(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    if node.op.mode != "constant" or operand > 0:
        raise UnsupportedError(f"the gradient of {node.op.mode} padding")
    return b.slice(g, node.op.before, node.inputs[0].shape)


def _concat(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    axis = node.op.axis
    start = sum((v.shape[axis] for v in node.inputs[:operand]), 0)
    return b.take(g, axis, start, node.inputs[operand].shape[axis])


def _gather(b: Builder, node: Node[Any], g: Value, operand: int) -> Value | None:
    """Rows come back as a product with the indices' unit vectors."""
    op, (x, indices) = node.op, node.inputs
    if op.form != "axis" or operand > 0:
        raise UnsupportedError(f"the gradient of a gathering by {op.form}")
    size = x.shape[op.axis]
    flat = b.reshape(indices, (indices.tensor.count, 1))
    row = expr.input_(0, flat.dtype).cast("int64")
    row = expr.where(row < 0, row + expr.size(size), row)
    units = b.emit(ops.Map(expr.index(1).equals(row).cast(g.dtype), (flat.shape[0], size)), flat)[0]
    before, behind = dims.product(x.shape[: op.axis]), dims.product(x.shape[op.axis + 1 :])
    rows = b.reshape(g, (before, flat.shape[0], behind))
    return b.reshape(b.contract("anb", "nx", "axb", rows, units), x.shape)


_RULES: dict[type[ops.Op], Callable[[Builder, Node[Any], Value, int], Value | None]] = {
    ops.Map: _map,
    ops.Reduce: _reduce,
    ops.Contract: _contract,
    ops.Reshape: lambda b, node, g, operand: b.reshape(g, node.inputs[0].shape),
    ops.Transpose: lambda b, node, g, operand: b.transpose(g, np.argsort(node.op.perm).tolist()),
    ops.Broadcast: lambda b, node, g, operand: _summed(b, g, node.inputs[0].shape),
    ops.Slice: _slice,
    ops.Pad: _pad,
    ops.Concat: _concat,
    ops.Gather: _gather,
}


def gradients(b: Builder, y: Value, xs: Sequence[Value]) -> list[Value]:
    """What the sum of y's elements changes with each element of each of xs. y and what leads to it are
    values of the graph under construction."""
    nodes = [node for node in b.nodes if not isinstance(node.op, ops.Bind)]
    reached = set(xs)
    for node in nodes:
        if not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    cotangents: dict[Value, Value] = {}

    def add(value: Value, part: Value) -> None:
        before = cotangents.get(value)
        cotangents[value] = part if before is None else b.map(before, part, lambda p, q: p + q)

    if y in reached:
        add(y, b.broadcast(b.constant(1, y.dtype), y.shape))
    for node in reversed(nodes):
        if cotangents.keys().isdisjoint(node.outputs) or node.outputs[0] in xs:
            continue
        if type(node.op) not in _RULES:
            raise UnsupportedError(f"the gradient of {type(node.op).__name__}")
        g = cotangents[node.outputs[0]]
        for operand, value in enumerate(node.inputs):
            if value in reached and dtypes.is_float(value.dtype):
                part = _RULES[type(node.op)](b, node, g, operand)
                if part is not None:
                    add(value, part)
    zero = [b.broadcast(b.constant(0, x.dtype), x.shape) for x in xs]
    return [cotangents.get(x, nothing) for x, nothing in zip(xs, zero)]
