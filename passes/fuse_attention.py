"""fuse_attention: scores, softmax and weighted sum become one Attention, whatever exporter wrote them.

contract(softmax(map(contract(%q, %k), %mask) { add(mul($0, 0.125), $1) }), %v)
    →   attention(%q, %k, %v, %mask) scale=0.125

Softmax is recognised by what it computes: exp(x - max x) divided by its sum over the last axis. What is added
to the scaled scores becomes the bias; where(mask, scores, lowest) becomes a bias of 0 and the lowest number,
what two such masks hide the lowest number once. What is hidden is taken to be finite.
where(isnan(weights), 0, weights), as exporters spare queries that see no key, makes the Attention `defined`.
A mask whose sizes have other names may be one row for all, which only the run knows: queries and keys then
repeat to the size of both. Where an exporter rounds to 16 bits on the way, the numbers inside one Attention
stay float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters
from typing import TypeGuard

from ..ir import dims, dtypes, expr
from ..ir.bodies import composed, pruned
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.obligations import Shape
from ..ir.ops import Attention, Broadcast, Contract, Map, Reduce, ReduceKind, Reshape
from ..ir.ranges import MODERATE
from ..records import dataclass

#: A score that is added to a number at or below this is lost in it: where(mask, score, lowest) is score +
#: where(mask, 0, lowest).
LOWEST = -1e30


@everywhere
def fuse_attention(graph: Graph) -> Graph:
    """graph with Attention nodes for the patterns found; what they replace is left dead."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        found = _match(node, rewriter.readers) if isinstance(node.op, Contract) else None
        if found is None:
            rewriter.copy(node)
            continue
        operands = [
            _repeat(rewriter, v, shape, node) for v, shape in zip(found.operands, found.shapes, strict=True)
        ]
        if found.bias is not None:
            body, values = found.bias
            operands += rewriter.add(Map(body), [rewriter.of(v) for v in values], node.origin)
        outputs = rewriter.add(found.op, operands, node.origin, [node.outputs[0].name])
        rewriter.replace(node.outputs, outputs)
    return rewriter.finish()


def _repeat(rewriter: Rewriter, value: Value, shape: Shape, node: Node) -> Value:
    """A value of the graph that is rewritten, repeated to a shape, of which it may lack the first axes."""
    repeated = rewriter.of(value)
    for op, known in ((Reshape, _led_by_ones(value.shape, len(shape))), (Broadcast, shape)):
        if repeated.shape != known:
            (repeated,) = rewriter.add(op(known), [repeated], node.origin)
    return repeated


#: An expression and what it is over.
Over = tuple[Expr, list[Value]]


@dataclass(frozen=True)
class _Found:
    """An Attention, its queries, keys and values, the shapes that they are repeated to, and what its bias is
    made of."""

    op: Attention
    operands: tuple[Value, Value, Value]
    shapes: tuple[Shape, Shape, Shape]
    bias: Over | None


@dataclass(frozen=True)
class _Scores:
    """scale * (the result of a Contract) + bias."""

    host: Node
    scale: float
    bias: Over | None


def _match(node: Node, readers: Counter[Value]) -> _Found | None:
    """The attention that ends in a Contract of weights and values, if it is one."""
    if node.op.epilogue is not None or node.op.rounded or node.outputs[0].dtype != "float32":
        return None
    sides = list(zip((node.op.lhs, node.op.rhs), node.inputs))
    for (weights, softmax), (values, value) in (sides, sides[::-1]):
        values = _with_ones(values, node, weights)
        softmax, reading = _defined(softmax, readers)
        logits = _softmax_of(softmax, readers, max(reading, 1))
        scores = None if logits is None else _scores(logits, readers)
        if logits is None or scores is None:
            continue
        host = scores.host
        both = (_with_ones(labels, host, host.op.out) for labels in (host.op.lhs, host.op.rhs))
        halves = list(zip(both, host.inputs))
        for (one, queries), (other, keys) in (halves, halves[::-1]):
            op = _attention(one, other, host.op.out, weights, values, node.op.out)
            if op is None or not queries.dtype == keys.dtype == value.dtype == "float32":
                continue
            (queries, a), (keys, b) = _unscaled(queries), _unscaled(keys)
            shapes = (
                _led_by_ones(queries.shape, len(op.q)),
                _led_by_ones(keys.shape, len(op.k)),
                _led_by_ones(value.shape, len(op.v)),
            )
            scale = scores.scale * a * b
            if _along_rows(op, shapes, node.outputs[0]) and MODERATE[0] < abs(scale) < MODERATE[1]:
                op = replace(op, scale=scale, defined=reading > 0)
                shapes = _repeated(op, shapes, logits, host.outputs[0])
                return _Found(op, (queries, keys, value), shapes, scores.bias)
    return None


def _with_ones(labels: str, node: Node[Contract], scores: str) -> str:
    """The labels of an operand with those before them that it lacks of the batch axes of scores, labelled as
    in the product, whose size is 1: products spare the axes of size 1 of one of their operands."""
    sizes = dict(zip(node.op.out, node.outputs[0].shape))
    return "".join(c for c in scores[:-2] if c not in labels and sizes.get(c) == 1) + labels


def _led_by_ones(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _repeated(
    op: Attention, operands: tuple[Shape, Shape, Shape], logits: Value, scores: Value
) -> tuple[Shape, Shape, Shape]:
    """The shapes of queries, keys and values where queries and keys repeat along every axis to the size that
    the logits have of it. There are as many values as logits: where there are as many as scores, too, no key
    repeats."""
    axes = "".join(sorted({*op.q} - {"q", "d"})) + "qk"  # as `_attention` names them
    sizes = dict(zip(axes, logits.shape))
    queries, keys, values = operands
    if values[op.v.index("k")] == scores.shape[-1]:
        sizes["k"] = scores.shape[-1]
    q, k = (
        tuple(sizes.get(label, size) for label, size in zip(labels, shape))
        for labels, shape in ((op.q, queries), (op.k, keys))
    )
    return q, k, values


def _along_rows(op: Attention, operands: tuple[Shape, Shape, Shape], result: Value) -> bool:
    """Whether a key's values lie side by side, and a query's results, and how long a head is is known: of
    others, as of attention between channels, which has few keys, kernels of products make more."""
    queries, keys, values = operands
    depth = queries[op.q.index("d")], keys[op.k.index("d")]
    extent = values[op.v.index("e")], result.shape[op.out.index("e")]
    rows = ((op.v, "e", values), (op.out, "e", result.shape))
    return all(any(isinstance(size, int) for size in sizes) for sizes in (depth, extent)) and all(
        labels.endswith(last) or shape[labels.index(last)] == 1 for labels, last, shape in rows
    )


def _unscaled(value: Value) -> tuple[Value, float]:
    """(x, c) where value = c * x with a positive number c."""
    node = value.producer
    if _is_plain_map(node) and len(node.inputs) == 1:
        parts = _scaled(node.op.body, 0, node.inputs)
        if parts is not None and parts[0] > 0 and parts[1] is None:
            return node.inputs[0], parts[0]
    return value, 1.0


def _defined(value: Value, readers: Counter[Value]) -> tuple[Value, int]:
    """(x, how many nodes read it for that) where value = where(isnan(x), 0, x), else (value, 0)."""
    for reading in (1, 2):  # isnan may be a Map of its own
        body, operands = _over(value, reading)
        x = expr.input_(0, operands[0].dtype).cast("float32")
        if body is expr.where(expr.isnan(x), 0, x) and readers[value] == 1:
            return operands[0], reading
    return value, 0


def _softmax_of(value: Value, readers: Counter[Value], reading: int) -> Value | None:
    """x where value = exp(x - max x) / sum exp(x - max x) over the last axis, which so many nodes read."""
    precise = _unrounded(value, readers)
    quotient = precise.producer
    if readers[value] != reading or (precise is not value and readers[precise] != 1):
        return None
    if not _is_plain_map(quotient) or len(quotient.inputs) != 2:
        return None
    powers, total = quotient.inputs
    if _precise(quotient.op.body) is not _divided(quotient) or not _reduces(total, "sum", powers):
        return None
    for depth in (1, 2):  # exp and the difference may be two Maps
        body, operands = _over(powers, depth)
        if body is _shifted(operands) and _reduces(operands[1], "max", operands[0]):
            return operands[0]
    return None


def _divided(quotient: Node) -> Expr:
    a, b = (expr.input_(k, v.dtype).cast("float32") for k, v in enumerate(quotient.inputs))
    return a / b


def _shifted(operands: Sequence[Value]) -> Expr | None:
    """exp(a - b) of two operands."""
    if len(operands) != 2:
        return None
    a, b = (expr.input_(k, v.dtype).cast("float32") for k, v in enumerate(operands))
    return expr.exp(a - b)


def _precise(body: Expr) -> Expr:
    """The body computed in float32 all along, without rounding to 16 bits in between."""
    if expr.contains(body, "bitcast"):
        return body
    made: dict[int, Expr] = {}
    for node in expr.topological(body):
        args = tuple(made[id(a)] for a in node.args)
        if node.op == "cast" and node.dtype in (*dtypes.HALVES, "float32"):
            made[id(node)] = args[0].cast("float32")
        elif node.dtype in dtypes.HALVES:
            made[id(node)] = (expr.rebuild(node, args) if args else node).cast("float32")
        else:
            made[id(node)] = expr.rebuild(node, args) if args else node
    return made[id(body)]


def _unrounded(value: Value, readers: Counter[Value]) -> Value:
    """What a value was before Maps that do nothing but round it, or make it wide again."""
    while _is_plain_map(node := value.producer) and len(node.inputs) == 1 and readers[value] == 1:
        (before,) = node.inputs
        if _precise(node.op.body) is not expr.input_(0, before.dtype).cast("float32"):
            break
        value = before
    return value


def _reduces(value: Value, kind: ReduceKind, source: Value) -> bool:
    """Whether value is that reduction of the source over its last axis, which stays as 1."""
    node = value.producer
    return (
        node is not None
        and node.op == Reduce(kind, (source.rank - 1,), keepdims=True)
        and node.inputs[0] is source
    )


def _over(value: Value, depth: int) -> Over:
    """value as one expression over what its Maps of its shape, at most `depth`, read."""
    body, operands = expr.input_(0, value.dtype), [value]
    for _ in range(depth):
        maps = (k for k, v in enumerate(operands) if _is_plain_map(v.producer) and _repeats(v, value))
        k = next(maps, None)
        if k is None:
            break
        body, operands = composed(body, operands, k)
    return pruned(_precise(body), operands)


def _repeats(part: Value, whole: Value) -> bool:
    """Whether part, of a Map, has the shape of the whole, or perhaps has where only the run knows it; then
    each of its elements must mean the same wherever it stands."""
    if part.shape == whole.shape:
        return True
    return _perhaps(part, whole) and not expr.contains(part.node.op.body, "index")


def _perhaps(part: Value, whole: Value) -> bool:
    """Whether no axis of a part that repeats to the whole is known to be another."""
    pairs = zip(part.shape, whole.shape)
    return part.rank == whole.rank and all(dims.equal(a, b) is not False for a, b in pairs)


def _is_plain_map(node: Node | None) -> TypeGuard[Node[Map]]:
    return node is not None and isinstance(node.op, Map) and node.op.shape is None


def _scores(logits: Value, readers: Counter[Value]) -> _Scores | None:
    """What the logits are made of, if that is a Contract which nothing else reads."""
    body, operands = _over(logits, 6)
    for k, value in enumerate(operands):
        host = value.producer
        if (
            host is None
            or not isinstance(host.op, Contract)
            or host.op.epilogue is not None
            or host.op.rounded
        ):
            continue
        if readers[value] != (2 if value is logits else 1):  # the maximum and the exponential read the logits
            continue
        parts = _scaled(body, k, operands) if _perhaps(value, logits) else None
        if parts is not None:
            scale, bias = parts
            return _Scores(host, scale, None if bias is None else pruned(bias, operands))
    return None


def _scaled(body: Expr, k: int, operands: Sequence[Value]) -> tuple[float, Expr | None] | None:
    """body = scale * operand k + bias with a constant scale: (scale, bias or None)."""

    def constant(e: Expr) -> float | None:
        if e.op == "const":
            return float(e.value)
        if e.op == "input":
            data = operands[e.value].constant
            if data is not None and data.nbytes <= 4:
                return float(data.array.reshape(-1)[0])
        return None

    def free(e: Expr) -> bool:
        return k not in expr.inputs(e)

    match body.op, body.args:
        case "input", ():
            return (1.0, None) if body.value == k else None
        case "mul" | "div", (a, b):
            a, b = (b, a) if body.op == "mul" and free(a) else (a, b)
            factor, found = constant(b), _scaled(a, k, operands)
            if factor is None or found is None or (body.op == "div" and factor == 0):
                return None
            scale, bias = found
            scale = scale * factor if body.op == "mul" else scale / factor
            if bias is None:
                return scale, None
            return (scale, expr.apply(body.op, bias, b)) if factor > 0 else None
        case "add", (a, b):
            a, b = (b, a) if free(a) else (a, b)
            found = _scaled(a, k, operands)
            if not free(b) or found is None:
                return None
            scale, bias = found
            return scale, b if bias is None else b + bias
        case "select", (condition, a, b):
            kept, other = (b, a) if free(a) else (a, b)
            lowest, found = constant(other), _scaled(kept, k, operands)
            if not free(condition) or found is None or lowest is None or lowest > LOWEST:
                return None
            scale, bias = found
            shown = expr.const(0.0, other.dtype) if bias is None else bias
            return scale, expr.where(condition, *((shown, other) if kept is a else (other, shown)))
    return None


def _attention(lhs: str, rhs: str, scores: str, weights: str, values: str, out: str) -> Attention | None:
    """The Attention over operands whose axes two contractions name, lhs, rhs -> scores and, of what became of
    the scores, weights, values -> out; they may name the same axis by different letters."""
    rename = dict(zip(scores, weights))
    if len({*lhs, *rhs} - set(scores)) != 1:
        return None
    depth = next(c for c in ascii_letters if c not in weights + values + out)
    lhs, rhs = ("".join(rename.get(c, depth) for c in side) for side in (lhs, rhs))
    others, keys = list(weights[:-1]), weights[-1]
    batch = [c for c in others if c in lhs and c in rhs]
    queries = [c for c in others if c not in batch]
    extent = [c for c in values if c not in weights]
    if len(queries) != 1 or len(extent) != 1 or others != [*batch, *queries]:
        return None
    axes = ([*queries, depth], [keys, depth], [keys, *extent], [*queries, *extent])
    sides = (lhs, rhs, values, out)
    if any(sorted(side) != sorted([*batch, *own]) for side, own in zip(sides, axes)):
        return None
    letters = iter("abcfghijlmnop")
    names = {queries[0]: "q", keys: "k", depth: "d", extent[0]: "e", **{c: next(letters) for c in batch}}
    q, k, v, result = ("".join(names[c] for c in side) for side in sides)
    return Attention(1.0, q, k, v, result)
