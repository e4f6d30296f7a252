"""join_convolutions: two 1x1 convolutions of bfloat16s whose results are added are one of both images.

map(conv(%x, U), conv(%y, V)) { max(add($0, $1), 0.0) }
    →   map(conv(concat(%x, %y), [U V])) { max($0, 0.0) }

Results are float32, twice as wide as what the convolutions read, and one of them would be stored and read
again. Of an image that is read with strides only what is read is joined.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from ..ir import dims, expr
from ..ir.bodies import pruned
from ..ir.derived import put_off
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Graph, Node, Rewriter, Value, constant_value
from ..ir.ops import Concat, Conv, Map, Slice
from ..target import Target

NARROW, WIDE = "bfloat16", "float32"


def join_convolutions(graph: Graph, target: Target) -> Graph:
    """graph with one convolution for two, where the first image's channels fill the target's blocks."""
    return everywhere(lambda inner: _joined(inner, target.block))(graph)


def _joined(graph: Graph, block: int) -> Graph:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        found = _pair(node, rewriter, block)
        if found is None:
            rewriter.copy(node)
            continue
        body, first, second = found
        operands = [rewriter.of(v) for v in node.inputs]
        operands[first] = _both(rewriter, node.inputs[first].node, node.inputs[second].node)
        if body.op == "input":
            rewriter.replace(node.outputs, [operands[first]])
            continue
        body, operands = pruned(body, operands)
        rewriter.replace(node.outputs, rewriter.add(Map(body), operands, node.origin, [node.outputs[0].name]))
    return rewriter.finish()


def _pair(node: Node, rewriter: Rewriter, block: int) -> tuple[Expr, int, int] | None:
    """A Map's body in which one operand stands for the sum with another, and which ones these are."""
    if not isinstance(node.op, Map):
        return None
    one = [k for k, v in enumerate(node.inputs) if rewriter.readers[v] == 1 and _mixes(v.producer)]
    for first, second in combinations(one, 2):
        a, b = node.inputs[first].node, node.inputs[second].node
        alike = replace(a.op, strides=b.op.strides, dilations=b.op.dilations) == b.op
        if not alike or a.outputs[0].shape != b.outputs[0].shape or dims.number(a.inputs[0].shape[1]) % block:
            continue
        body = _over_sum(node.op.body, first, second)
        if body is not None:
            return body, first, second
    return None


def _mixes(node: Node | None) -> bool:
    """Whether a node mixes channels of bfloat16s with constant weights, and nothing else."""
    op = node.op if node is not None else None
    if node is None or not isinstance(op, Conv) or op.narrow or op.epilogue is not None:
        return False
    x, w = node.inputs[:2]
    known = w.constant is not None and (x.dtype, w.dtype, op.accumulate) == (NARROW, NARROW, WIDE)
    return known and op.is_pointwise(w.tensor)


def _over_sum(body: Expr, first: int, second: int) -> Expr | None:
    """body with the first of two operands for their sum; None where it reads something else of them."""
    nodes = expr.topological(body)
    users: dict[Expr, list[Expr]] = {node: [] for node in nodes}
    for node in nodes:
        for argument in node.args:
            users[argument].append(node)

    def sums(number: int) -> list[Expr]:
        """The additions that an operand enters, and nothing but these, from it on."""
        e = expr.input_(number, WIDE)
        found: list[Expr] = []
        while len(users.get(e, ())) == 1 and users[e][0].op == "add":
            e = users[e][0]
            found.append(e)
        return found

    of_first = set(sums(first))
    if not of_first.intersection(sums(second)):
        return None

    def without(node: Expr) -> Expr | None:
        """An addition to the second operand is what it is added to."""
        if node.op != "add":
            return None
        left = [a for a in node.args if not (a.op == "input" and a.value == second)]
        return left[0] if len(left) == 1 else None

    return expr.rewrite(body, without)


def _both(rewriter: Rewriter, a: Node, b: Node) -> Value:
    """The sum of two convolutions."""
    op, images = a.op, [rewriter.of(node.inputs[0]) for node in (a, b)]
    if a.op.strides != b.op.strides:
        images = [_read(rewriter, node, image) for node, image in zip((a, b), images)]
        op = replace(op, strides=(1,) * len(op.strides))
    (image,) = rewriter.add(Concat(1), images, a.origin)
    weights = [node.inputs[1].data for node in (a, b)]
    outputs, _, *taps = weights[0].shape
    shape = (outputs, sum(w.shape[1] for w in weights), *taps)

    def make() -> np.ndarray:
        return np.concatenate([w.array for w in weights], 1)

    joined = constant_value(put_off(Concat(1), weights, NARROW, shape, make))
    return rewriter.add(op, [image, joined], a.origin)[0]


def _read(rewriter: Rewriter, node: Node, image: Value) -> Value:
    """The pixels of its image that a convolution reads."""
    strides = node.op.strides
    if set(strides) == {1}:
        return image
    sizes = (*image.shape[:2], *node.outputs[0].shape[2:])
    return rewriter.add(Slice((0,) * len(sizes), sizes, (1, 1, *strides)), [image], node.origin)[0]
