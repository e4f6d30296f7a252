"""fold_affine: a scale per output channel moves into the constant weights before it. Batch normalisation
disappears this way.

%1 = map(conv(%x, W), s, t) { max(add(mul($0, $1), $2), 0.0) }
    →   map(conv(%x, W*s), t) { max(add($0, $1), 0.0) }

The part of the body that is affine in the convolution's result, a*x + b with a and b made of constants that
vary along the channels alone, is found by arithmetic on expressions; all uses of x must pass through it. a is
computed in float64 and rounded once; one so large or small that it makes infinities or zeros of weights, as
where what was multiplied is a mask, stays. Weights of convolutions that are stored as halves stay so: times a
factor they would be float32, and a multiplication behind the sums costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..ir import expr
from ..ir.bodies import pruned
from ..ir.derived import put_off
from ..ir.dims import numbers
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value
from ..ir.ops import Contract, Conv, Map, Shape
from ..ir.ranges import are_moderate
from ..ir.stored import half_weights
from ..records import dataclass

#: a*x + b as expressions over the Map's other operands.
Affine = tuple[Expr, Expr]


@everywhere
def fold_affine(graph: Graph) -> Graph:
    """graph with channel scales inside the weights of Conv and Contract."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if isinstance(node.op, Map):
            _without_scales(node, rewriter)
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _without_scales(node: Node, rewriter: Rewriter) -> None:
    """Writes a Map, its scales in the weights before it: a residual addition may have two."""
    body, operands = node.op.body, [rewriter.of(v) for v in node.inputs]
    while (found := _scaled(body, operands, node.outputs[0].shape, rewriter.readers)) is not None:
        host, k = found.host, found.operand
        (product,) = rewriter.add(host.op, (host.inputs[0], _weights(host, found.factors)), host.origin)
        rewriter.readers[product] = 1
        shifted = expr.input_(k, "float32") + expr.input_(len(operands), "float32")
        body = expr.replaced(body, found.part, shifted)
        body, operands = pruned(body, [*operands[:k], product, *operands[k + 1 :], found.shift])
    if body is node.op.body:
        rewriter.copy(node)
        return
    rewriter.replace(node.outputs, rewriter.add(Map(body), operands, node.origin, [node.outputs[0].name]))


@dataclass(frozen=True)
class _Scaled:
    """A part of a Map's body that is factors * x + shift along the channels of x, operand `operand` of the
    Map and the result of `host`."""

    operand: int
    host: Node
    part: Expr
    factors: np.ndarray
    shift: Value


def _scaled(body: Expr, inputs: Sequence[Value], shape: Shape, readers: Counter[Value]) -> _Scaled | None:
    """The first scale in a body that may move into constant weights."""
    for k, value in enumerate(inputs):
        host = value.producer
        if host is None or not isinstance(host.op, (Conv, Contract)):
            continue
        if host.op.epilogue is not None or host.op.exact or len(host.inputs) != 2 or readers[value] != 1:
            continue
        axis, weights = _channel_axis(host), host.inputs[1]
        if axis is None or weights.constant is None or not weights.dtype == value.dtype == "float32":
            continue
        if isinstance(host.op, Conv) and host.op.groups == 1 and half_weights(weights.constant) is not None:
            continue
        channels = value.shape[axis]
        if value.shape != shape or not isinstance(channels, int):
            continue
        found = _affine_part(body, k, inputs, value.rank, axis)
        if found is None:
            continue
        part, (scale, shift) = found
        factors, shifts = (_evaluated(root, inputs, channels) for root in (scale, shift))
        rounded = _rounded(shifts)
        overflown = np.isfinite(shifts) & ~np.isfinite(rounded)
        if are_moderate(factors) and not overflown.any():
            along = (channels,) + (1,) * (value.rank - 1 - axis)
            return _Scaled(k, host, part, factors, constant_value(rounded.reshape(along)))
    return None


def _channel_axis(host: Node) -> int | None:
    """The axis of the result along which a scale can move into the weights."""
    if isinstance(host.op, Conv):
        return 1
    label = host.op.out[-1:]  # none of a scalar
    return len(host.op.out) - 1 if label and label in host.op.rhs and label not in host.op.lhs else None


def _affine_part(
    body: Expr, k: int, inputs: Sequence[Value], rank: int, axis: int
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
        if k not in expr.inputs(expr.replaced(body, node, expr.const(0, node.dtype))):
            return node, form
    return None


def _form(
    node: Expr, k: int, inputs: Sequence[Value], rank: int, axis: int, forms: dict[int, Affine | None]
) -> Affine | None:
    """node as a*x + b, or None where it is not of that form with constants of the channels."""
    zero, one = expr.const(0, "float32"), expr.const(1, "float32")
    found = [forms[id(a)] for a in node.args]
    args = [form for form in found if form is not None]
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
    if node.dtype != "float32" or not args or len(args) < len(found):
        return None
    free = all(a[0] is zero for a in args)
    if free:
        return zero, node
    match node.op:
        case "neg":
            return -args[0][0], -args[0][1]
        case "add" | "sub":
            (a, b), (c, d) = args
            return _plain(node.op, a, c), _plain(node.op, b, d)
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


def _evaluated(root: Expr, inputs: Sequence[Value], channels: int) -> np.ndarray:
    """An expression of channel constants in float64, one number a channel."""
    operands = [
        v.constant.array.reshape(-1).astype(np.float64)
        if v.constant is not None and v.dtype == "float32" and j in expr.inputs(root)
        else np.zeros(1)
        for j, v in enumerate(inputs)
    ]
    return np.broadcast_to(_run(root, operands), (channels,)).astype(np.float64)


def _rounded(numbers: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _run(root: Expr, operands: list[np.ndarray]) -> np.ndarray:
    """root over float64 arrays, whatever its types say."""
    done: dict[int, np.ndarray] = {}
    with np.errstate(all="ignore"):
        for node in expr.topological(root):
            if node.op == "input":
                done[id(node)] = operands[node.value]
            elif node.op == "const":
                done[id(node)] = np.asarray(node.value, np.float64)
            else:
                done[id(node)] = expr.OPERATIONS[node.op].numpy(*(np.asarray(done[id(a)]) for a in node.args))
    return done[id(root)]


def _weights(host: Node, factors: np.ndarray) -> Value:
    """The weights times the factor of their output channel, made when they are packed."""
    weights = host.inputs[1]
    source, shape, axis = weights.data, numbers(weights.shape), 0
    parts = shape
    if isinstance(host.op, Contract):
        axis = host.op.rhs.index(host.op.out[-1])
    elif host.op.transposed:  # [inputs, outputs of one group, kernel...], the inputs of a group together
        parts, axis = (host.op.groups, shape[0] // host.op.groups, *shape[1:]), 2
        factors = factors.reshape(host.op.groups, 1, -1)
    along = factors.reshape(*factors.shape, *(1,) * (len(parts) - 1 - axis))

    def make() -> np.ndarray:
        return (source.array.reshape(parts) * along).astype(np.float32).reshape(shape)

    if source.derivation is None or parts != shape:
        return Value(weights.type, weights.name, Constant("float32", shape, make))
    beside = Constant.of(along.astype(np.float32))  # who looks through finds the factors
    body = expr.input_(0, "float32") * expr.input_(1, "float32")
    return Value(weights.type, weights.name, put_off(Map(body), (source, beside), "float32", shape, make))
