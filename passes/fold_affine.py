"""fold_affine: a scale per output channel moves into the constant weights before it. Batch normalisation
disappears this way.

%1 = map(conv(%x, W), s, t) { max(add(mul($0, $1), $2), 0.0) }
    →   map(conv(%x, W*s), t) { max(add($0, $1), 0.0) }

The part of the body that is affine in the convolution's result, a*x + b with a and b made of constants that
vary along the channels alone, is found by arithmetic on expressions; all uses of x must pass through it. a is
computed in float64 and rounded once.
"""
from __future__ import annotations

from collections import Counter

import numpy as np

from .. import expr
from ..expr import Expr
from ..ir import Constant, Graph, Node, Rewriter, TensorType, Value
from ..ops import Contract, Conv, Map
from ..target import Target
from .regions import in_regions

#: a*x + b as expressions over the Map's other operands.
Affine = tuple[Expr, Expr]


def fold_affine(graph: Graph, target: Target) -> Graph:
    """graph with channel scales inside the weights of Conv and Contract."""
    readers = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs)
    rewriter = Rewriter()
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        scaled = _scaled(node, inputs, readers) if isinstance(node.op, Map) else None
        if scaled is None:
            rewriter.copy(in_regions(node, lambda g: fold_affine(g, target)))
            continue
        host, weights, body, operands, shift = scaled
        (product,) = rewriter.add(host.op, (host.inputs[0], weights), host.origin)
        (result,) = rewriter.add(Map(body), [product, *operands, shift], node.origin, [node.outputs[0].name])
        rewriter.replace(node.outputs, (result,))
    return rewriter.finish(graph)


def _scaled(node: Node, inputs: tuple[Value, ...], readers: Counter[Value]):
    """(the host node, its scaled weights, the new body, its operands but the first and the last, the last:
    the shift)"""
    for k, value in enumerate(inputs):
        host = value.producer
        if (
            host is None
            or not isinstance(host.op, (Conv, Contract))
            or host.op.epilogue is not None
            or len(host.inputs) != 2
        ):
            continue
        if readers[node.inputs[k]] != 1 or value.dtype != "float32" or value.shape != node.outputs[0].shape:
            continue
        axis, weights = _channel_axis(host), host.inputs[1]
        if axis is None or weights.constant is None or weights.dtype != "float32":
            continue
        found = _affine_part(node.op.body, k, inputs, value.rank, axis)
        if found is not None:
            part, (scale, shift) = found
            return _folded(node, inputs, k, host, axis, part, scale, shift)
    return None


def _channel_axis(host: Node) -> int | None:
    """The axis of the result along which a scale can move into the weights."""
    if isinstance(host.op, Conv):
        return 1
    label = host.op.out[-1:]  # none of a scalar
    return len(host.op.out) - 1 if label and label in host.op.rhs and label not in host.op.lhs else None


def _affine_part(
    body: Expr, k: int, inputs: tuple[Value, ...], rank: int, axis: int
) -> tuple[Expr, Affine] | None:
    """The last subexpression a*x + b that all uses of operand k pass through, a not being 1."""
    forms: dict[int, Affine | None] = {}
    order = expr.topological(body)
    for node in order:
        forms[id(node)] = _form(node, k, inputs, rank, axis, forms)
    for node in reversed(order):
        form = forms[id(node)]
        if form is None or (form[0].op == "const" and form[0].value in (0.0, 1.0)):
            continue
        without = expr.rewrite(body, lambda n, part=node: expr.const(0, part.dtype) if n is part else None)
        if k not in expr.inputs(without):
            return node, form
    return None


def _form(
    node: Expr, k: int, inputs: tuple[Value, ...], rank: int, axis: int, forms: dict[int, Affine | None]
) -> Affine | None:
    """node as a*x + b, or None where it is not of that form with constants of the channels."""
    zero, one = expr.const(0, "float32"), expr.const(1, "float32")
    args = [forms[id(a)] for a in node.args]
    if node.op == "input":
        if node.value == k:
            return one, zero
        value = inputs[node.value]
        return (
            (zero, node)
            if value.dtype == "float32" and value.constant is not None and _per_channel(value, rank, axis)
            else None
        )
    if node.op == "const" and node.dtype == "float32":
        return zero, node
    if node.dtype != "float32" or not args or any(a is None for a in args):
        return None
    free = all(a[0] is zero for a in args)
    if free:
        return zero, node
    match node.op:
        case "neg":
            return -args[0][0], -args[0][1]
        case "add" | "sub":
            return tuple(_plain(node.op, x, y) for x, y in zip(*args))
        case "mul" if args[1][0] is zero:
            return _plain("mul", args[0][0], args[1][1]), _plain("mul", args[0][1], args[1][1])
        case "mul" if args[0][0] is zero:
            return _plain("mul", args[1][0], args[0][1]), _plain("mul", args[1][1], args[0][1])
        case "div" if args[1][0] is zero:
            return _plain("div", args[0][0], args[1][1]), _plain("div", args[0][1], args[1][1])
    return None


def _plain(op: str, x: Expr, y: Expr) -> Expr:
    """x op y with the identities of finite numbers, which scales and shifts are."""
    zero = expr.const(0, "float32")
    if (op == "mul" and (x is zero or y is zero)) or (op == "div" and x is zero):
        return zero
    if (op == "add" and x is zero) or (op in ("add", "sub") and y is zero):
        return y if x is zero and op == "add" else x
    return expr.apply(op, x, y)


def _per_channel(value: Value, rank: int, axis: int) -> bool:
    padded = (1,) * (rank - value.rank) + value.shape
    return len(padded) == rank and all(d == 1 for a, d in enumerate(padded) if a != axis)


def _folded(
    node: Node, inputs: tuple[Value, ...], k: int, host: Node, axis: int, part: Expr, scale: Expr, shift: Expr
):
    weights, channels = host.inputs[1], host.outputs[0].shape[axis]
    if not isinstance(channels, int):
        return None
    shape = (channels,) + (1,) * (host.outputs[0].rank - 1 - axis)
    factors = _evaluated(scale, inputs, channels)
    if not np.all(np.isfinite(factors)):
        return None
    offset = Value(
        TensorType("float32", shape),
        "",
        Constant.of(_evaluated(shift, inputs, channels).astype(np.float32).reshape(shape)),
    )
    others = [v for j, v in enumerate(inputs) if j != k]
    places = {
        j: expr.input_(1 + p, inputs[j].dtype) for p, j in enumerate(j for j in range(len(inputs)) if j != k)
    }
    affine = expr.input_(0, "float32") + expr.input_(1 + len(others), "float32")
    body = expr.rewrite(
        node.op.body, lambda n: affine if n is part else places.get(n.value) if n.op == "input" else None
    )
    # the constants of the scale are read no more
    used = [j for j in expr.inputs(body) if 0 < j <= len(others)]
    renumbered = {0: expr.input_(0, "float32"), 1 + len(others): expr.input_(1 + len(used), "float32")}
    renumbered |= {j: expr.input_(1 + p, others[j - 1].dtype) for p, j in enumerate(used)}
    return (
        host,
        _weights(host, weights, factors),
        expr.substitute(body, renumbered),
        [others[j - 1] for j in used],
        offset,
    )


def _evaluated(root: Expr, inputs: tuple[Value, ...], channels: int) -> np.ndarray:
    """An expression of channel constants in float64, one number a channel."""
    operands = [
        v.constant.array.reshape(-1).astype(np.float64)
        if v.constant is not None and v.dtype == "float32" and j in expr.inputs(root)
        else np.zeros(1)
        for j, v in enumerate(inputs)
    ]
    return np.broadcast_to(_run(root, operands), (channels,)).astype(np.float64)


def _run(root: Expr, operands: list[np.ndarray]) -> np.ndarray:
    """root over float64 arrays, whatever its types say."""
    done: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in expr.topological(root):
            if node.op == "input":
                done[id(node)] = operands[node.value]
            elif node.op == "const":
                done[id(node)] = np.float64(node.value)
            else:
                done[id(node)] = expr.OPERATIONS[node.op].numpy(*(np.asarray(done[id(a)]) for a in node.args))
    return done[id(root)]


def _weights(host: Node, weights: Value, factors: np.ndarray) -> Value:
    """The weights times the factor of their output channel, made when they are packed."""
    source = weights.constant
    if isinstance(host.op, Conv) and host.op.transposed:
        groups = host.op.groups
        shape = (groups, 1, weights.shape[1], *(1,) * (weights.rank - 2))
        split = (groups, weights.shape[0] // groups, *weights.shape[1:])

        def make() -> np.ndarray:
            return (
                (source.array.reshape(split) * factors.reshape(shape))
                .astype(np.float32)
                .reshape(weights.shape)
            )
    elif isinstance(host.op, Conv):
        def make() -> np.ndarray:
            return (source.array * factors.reshape(-1, *(1,) * (weights.rank - 1))).astype(np.float32)
    else:
        axis = host.op.rhs.index(host.op.out[-1])
        shape = tuple(-1 if a == axis else 1 for a in range(weights.rank))

        def make() -> np.ndarray:
            return (source.array * factors.reshape(shape)).astype(np.float32)
    return Value(weights.type, weights.name, Constant("float32", weights.shape, make))
