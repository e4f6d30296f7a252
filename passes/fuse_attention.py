"""fuse_attention: scores, softmax and weighted sum become one Attention, whatever exporter wrote them.

contract(softmax(map(contract(%q, %k), %mask) { add(mul($0, 0.125), $1) }), %v)
    →   attention(%q, %k, %v, %mask) scale=0.125

Softmax is recognised by what it computes: exp(x - max x) divided by its sum over the last axis. What is added
to the scaled scores becomes the bias; where(mask, scores, lowest) becomes a bias of 0 and the lowest number.
"""
from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from .. import expr
from ..expr import Expr
from ..ir import Graph, Node, Rewriter, Value
from ..ops import Attention, Contract, Map, Reduce, TypeMismatch, broadcast_shapes
from ..target import Target
from .regions import in_regions

#: A score that is added to a number at or below this is lost in it: where(mask, score, lowest) is score +
#: where(mask, 0, lowest).
LOWEST = -1e30


def fuse_attention(graph: Graph, target: Target) -> Graph:
    """graph with Attention nodes for the patterns found; what they replace is left dead."""
    readers = Counter(v for n in graph.nodes for v in n.inputs) + Counter(graph.outputs)
    rewriter = Rewriter()
    for node in graph.nodes:
        found = _match(node, readers) if isinstance(node.op, Contract) else None
        if found is None:
            rewriter.copy(in_regions(node, lambda g: fuse_attention(g, target)))
            continue
        operands = [rewriter.of(v) for v in found.operands]
        if found.bias is not None:
            body, values = found.bias
            operands += rewriter.add(Map(body), [rewriter.of(v) for v in values], node.origin)
        outputs = rewriter.add(found.op, operands, node.origin, [node.outputs[0].name])
        rewriter.replace(node.outputs, outputs)
    return rewriter.finish(graph)


@dataclass(frozen=True)
class _Found:
    op: Attention
    operands: tuple[Value, Value, Value]
    bias: tuple[Expr, tuple[Value, ...]] | None


def _match(node: Node, readers: Counter[Value]) -> _Found | None:
    """The attention that ends in a Contract of weights and values, if it is one."""
    if node.op.epilogue is not None or node.outputs[0].dtype != "float32":
        return None
    for weights, values, side in ((0, 1, node.op.lhs), (1, 0, node.op.rhs)):
        logits = _softmax_of(node.inputs[weights], readers)
        if logits is None:
            continue
        scores = _scores(logits, readers)
        if scores is None:
            continue
        contract, scale, bias = scores
        other = node.op.rhs if weights == 0 else node.op.lhs
        op = _labels(contract.op, side, other, node.op.out, scale)
        if op is None:
            continue
        (first, one), (second, two) = map(_unscaled, contract.inputs)
        if op[1]:
            first, second = second, first
        return _Found(replace(op[0], scale=scale * one * two), (first, second, node.inputs[values]), bias)
    return None


def _unscaled(value: Value) -> tuple[Value, float]:
    """(x, c) where value = c * x with a positive number c."""
    node = value.producer
    if node is not None and isinstance(node.op, Map) and len(node.inputs) == 1 and node.op.shape is None:
        body, x = node.op.body, node.inputs[0]
        if body.op in ("mul", "div") and x.shape == value.shape:
            numbers = [a.value for a in body.args if a.op == "const"]
            inputs = [a for a in body.args if a.op == "input"]
            if (
                len(numbers) == len(inputs) == 1
                and numbers[0] > 0
                and (body.op == "mul" or body.args[1].op == "const")
            ):
                return x, numbers[0] if body.op == "mul" else 1 / numbers[0]
    return value, 1.0


def _softmax_of(value: Value, readers: Counter[Value]) -> Value | None:
    """x where value = exp(x - max x) / sum exp(x - max x) over the last axis."""
    quotient = value.producer
    if (
        quotient is None
        or not isinstance(quotient.op, Map)
        or readers[value] != 1
        or len(quotient.inputs) != 2
    ):
        return None
    powers, total = quotient.inputs
    division = expr.input_(0, "float32") / expr.input_(1, "float32")
    if quotient.op.body is not division or not _reduces(total, "sum", powers):
        return None
    shifted = expr.exp(expr.input_(0, "float32") - expr.input_(1, "float32"))
    for depth in (1, 2):  # exp and the difference may be two Maps
        body, operands = _composed(powers, depth)
        if body is shifted and _reduces(operands[1], "max", operands[0]):
            return operands[0]
    return None


def _reduces(value: Value, kind: str, source: Value) -> bool:
    node = value.producer
    return (
        node is not None
        and isinstance(node.op, Reduce)
        and node.op.kind == kind
        and node.op.keepdims
        and node.op.body is None
        and node.op.axes == (source.rank - 1,)
        and node.inputs[0] is source
    )


def _composed(value: Value, depth: int) -> tuple[Expr, tuple[Value, ...]]:
    """value as one expression over what its Maps, at most `depth` deep, read."""
    body, operands = expr.input_(0, value.dtype), [value]
    for _ in range(depth):
        k = next(
            (
                j
                for j, v in enumerate(operands)
                if v.producer is not None
                and isinstance(v.producer.op, Map)
                and v.producer.op.shape is None
                and v.shape == value.shape
            ),
            None,
        )
        if k is None:
            break
        producer = operands[k].producer
        merged = [v for j, v in enumerate(operands) if j != k]
        merged += [v for v in dict.fromkeys(producer.inputs) if v not in merged]
        place = {v: expr.input_(j, v.dtype) for j, v in enumerate(merged)}
        inner = expr.substitute(producer.op.body, {j: place[v] for j, v in enumerate(producer.inputs)})
        body = expr.substitute(body, {**{j: place[v] for j, v in enumerate(operands) if j != k}, k: inner})
        operands = merged
    order = expr.inputs(body)
    body = expr.substitute(body, {j: expr.input_(p, operands[j].dtype) for p, j in enumerate(order)})
    return body, tuple(operands[j] for j in order)


def _scores(logits: Value, readers: Counter[Value]):
    """(the Contract of queries and keys, the scale, the bias) that the logits are made of."""
    body, operands = _composed(logits, 6)
    for k, value in enumerate(operands):
        host = value.producer
        if (
            host is None
            or not isinstance(host.op, Contract)
            or host.op.epilogue is not None
            or value.shape != logits.shape
        ):
            continue
        if readers[value] != (2 if value is logits else 1):  # the maximum and the exponential read the logits
            continue
        parts = _scaled(body, k, operands)
        if parts is None:
            continue
        scale, bias = parts
        if bias is None:
            return host, scale, None
        used = expr.inputs(bias)
        bias = expr.substitute(bias, {j: expr.input_(p, operands[j].dtype) for p, j in enumerate(used)})
        values = tuple(operands[j] for j in used)
        try:
            broadcast_shapes(logits.shape, *(v.shape for v in values))
        except TypeMismatch:
            return None
        return host, scale, (bias, values)
    return None


def _scaled(body: Expr, k: int, operands: tuple[Value, ...]) -> tuple[float, Expr | None] | None:
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

    scale, bias = 1.0, None
    while True:
        match body.op, body.args:
            case "input", ():
                return (scale, bias) if body.value == k and math.isfinite(scale) else None
            case "mul", (a, b):
                a, b = (b, a) if free(a) else (a, b)
                factor = constant(b)
                if factor is None:
                    return None
                scale, body = scale * factor, a
            case "div", (a, b):
                factor = constant(b)
                if factor in (None, 0.0):
                    return None
                scale, body = scale / factor, a
            case "add", (a, b):
                a, b = (b, a) if free(a) else (a, b)
                if not free(b) or free(a):
                    return None
                bias, body = _plus(bias, b, scale), a
            case "select", (condition, a, b):
                kept, other = (b, a) if free(a) else (a, b)
                lowest = constant(other)
                if not free(condition) or free(kept) or lowest is None or lowest > LOWEST or scale <= 0:
                    return None
                mask = expr.where(condition, *((0.0, other) if kept is a else (other, 0.0)))
                bias, body = _plus(bias, mask, scale), kept
            case _:
                return None


def _plus(bias: Expr | None, more: Expr, scale: float) -> Expr:
    more = more if scale == 1.0 else more * scale
    return more if bias is None else bias + more


def _labels(
    scores: Contract, weights: str, values: str, out: str, scale: float
) -> tuple[Attention, bool] | None:
    """The Attention over the operands of two contractions, named as it names axes, and whether the first
    contraction has its keys first."""
    rename = dict(zip(scores.out, weights))  # the contractions may call the same axis by different letters
    contracted = next((c for c in "zyxwvu" if c not in weights + values + out), "Z")
    lhs, rhs = ("".join(rename.get(c, contracted) for c in side) for side in (scores.lhs, scores.rhs))
    if len({*scores.lhs, *scores.rhs} - set(scores.out)) != 1:
        return None
    keys = weights[-1]
    swapped = keys in lhs
    if swapped:
        lhs, rhs = rhs, lhs
    batch = [c for c in weights[:-1] if c in lhs and c in rhs]
    queries = [c for c in weights[:-1] if c not in batch]
    depth = [c for c in lhs if c not in weights]
    extent = [c for c in values if c not in weights]
    if keys in lhs or len(queries) != 1 or len(depth) != 1 or len(extent) != 1 or queries[0] not in lhs:
        return None
    if (
        set(rhs) != {*batch, keys, *depth}
        or set(lhs) != {*batch, *queries, *depth}
        or set(values) != {*batch, keys, *extent}
    ):
        return None
    if set(out) != {*batch, *queries, *extent} or weights != "".join([*batch, queries[0], keys]):
        return None
    letters = iter("abcfghijlmnop")
    names = {queries[0]: "q", keys: "k", depth[0]: "d", extent[0]: "e", **{c: next(letters) for c in batch}}
    spell = ["".join(names[c] for c in side) for side in (lhs, rhs, values, out)]
    return Attention(scale, *spell), swapped
