"""Attention of any types, axes and sizes: the nests that it is made of, all scores in memory between them.

    scores = scale * q k + bias        top = max of a row of scores        scores = exp(scores - top)
    total = sum of a row               out = scores v / total
16-bit floats are computed in float32. A query without keys gives zeros.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node, TensorType
from ...target import Target
from ..tiles.contraction import steps_of
from ..tiles.strides import row_major
from .elementwise import Elementwise
from .nest import Stages, View, broadcasting, dense, input_view
from .reduction import Reduction
from .states import State, accumulator


def stages(node: Node, target: Target) -> Stages:
    """The temporaries are scores, greatest scores, sums."""
    nests = _Nests(node, target)
    pieces = (nests.scores(), nests.greatest(), nests.weights(), nests.sums(), nests.output())
    item = dtypes.itemsize(nests.wide)
    each, every = dims.product(nests.scored) * item, dims.product(nests.rows) * item
    return [[piece] for piece in pieces], (each, every, every)


SCORES, GREATEST, SUMS = range(3)  # temporaries
TERM, OTHER = 0, 1  # operands of expressions; in what follows a reduction, its total and another


class _Nests:
    """The five nests of an Attention; labels name the axes."""

    def __init__(self, node: Node, target: Target):
        self.node, self.target, self.op = node, target, node.op
        self.dtype = node.inputs[0].dtype
        self.wide = accumulator(self.dtype)
        self.size: dict[str, Dimension] = {}
        for labels, value in zip((self.op.q, self.op.k, self.op.v), node.inputs):
            for label, length in zip(labels, value.shape):
                if label not in self.size or isinstance(length, int):
                    self.size[label] = length
        shape = node.outputs[0].shape
        self.size |= {c: size for c, size in zip(self.op.out, shape) if c in self.op.repeated}
        self.batch = [label for label in self.op.q if label not in "qd"]
        self.rows = self.sizes((*self.batch, "q"))
        self.scored = self.sizes((*self.batch, "q", "k"))

    def sizes(self, labels: Iterable[str]) -> tuple[Dimension, ...]:
        return tuple(self.size[label] for label in labels)

    def along(self, labels: str, index: int, order: Iterable[str]) -> View:
        """Operand `index`, whose axes have these labels, in a nest over `order`."""
        view, shape = input_view(self.node, index), self.node.inputs[index].shape
        steps = steps_of(self.op, labels, shape, self.size, view.itemsize)
        return _ordered(replace(view, strides=tuple(step for _, step in steps)), labels, order)

    def temporary(self, index: int) -> View:
        """A temporary in a nest over its own axes."""
        shape = self.scored if index == SCORES else self.rows
        return dense("temporary", index, TensorType(self.wide, shape))

    def operand(self, index: int) -> Expr:
        """An element of one of the node's operands, wide."""
        return expr.cast(expr.input_(min(index, OTHER), self.node.inputs[index].dtype), self.wide)

    def scores(self) -> Reduction:
        """scale * q . k + bias"""
        order, inputs = (*self.batch, "q", "k", "d"), self.node.inputs
        total, bias = expr.input_(TERM, self.wide) * self.op.scale, {}
        if len(inputs) > 3:
            total = total + expr.cast(expr.input_(OTHER, inputs[3].dtype), self.wide)
            bias = {OTHER: broadcasting("input", 3, inputs[3].tensor, self.scored)}
        return Reduction(
            self.target,
            State("sum", self.wide),
            self.operand(0),
            self.scored,
            [self.size["d"]],
            {0: self.along(self.op.q, 0, order), 1: self.along(self.op.k, 1, order)},
            self.temporary(SCORES),
            total,
            bias,
            self.operand(1),
        )

    def greatest(self) -> Reduction:
        return self._over_keys("max", GREATEST)

    def weights(self) -> Elementwise:
        """exp(score - greatest score of its row), in the place of the scores"""
        held = View("temporary", GREATEST, self.wide, (*self.temporary(GREATEST).strides, 0))
        weight = expr.exp(expr.input_(TERM, self.wide) - expr.input_(OTHER, self.wide))
        scores = self.temporary(SCORES)
        return Elementwise(self.target, weight, self.scored, scores, {0: scores, 1: held})

    def sums(self) -> Reduction:
        return self._over_keys("sum", SUMS)

    def _over_keys(self, kind: str, index: int) -> Reduction:
        """What all scores of a row give, as a temporary."""
        term, scores = expr.input_(TERM, self.wide), {0: self.temporary(SCORES)}
        state = State(kind, self.wide)
        to = self.temporary(index)
        return Reduction(self.target, state, term, self.rows, [self.size["k"]], scores, to, term)

    def output(self) -> Reduction:
        """weights . v / sum, 0 where the sum is"""
        total, divisor = expr.input_(TERM, self.wide), expr.input_(OTHER, self.wide)
        weight, empty = total, divisor.equals(0)
        if self.op.defined:
            weight, empty = expr.where(expr.isnan(total), 0, total), empty | expr.isnan(divisor)
        shape, order = self.sizes(self.op.out), (*self.op.out, "k")
        scores = _ordered(self.temporary(SCORES), (*self.batch, "q", "k"), order)
        sums = _ordered(self.temporary(SUMS), (*self.batch, "q"), self.op.out)
        return Reduction(
            self.target,
            State("sum", self.wide),
            weight,
            shape,
            [self.size["k"]],
            {0: scores, 1: self.along(self.op.v, 2, order)},
            View("output", 0, self.dtype, row_major(shape, dtypes.itemsize(self.dtype))),
            expr.cast(expr.where(empty, total, total / divisor), self.dtype),
            {OTHER: sums},
            self.operand(2),
        )


def _ordered(view: View, labels: Iterable[str], order: Iterable[str]) -> View:
    """A view over axes of these labels, seen from a nest over `order`; it repeats along the others."""
    strides = dict(zip(labels, view.strides))
    return replace(view, strides=tuple(strides.get(label, 0) for label in order))
