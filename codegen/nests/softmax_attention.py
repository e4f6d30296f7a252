"""Attention of any types, axes and sizes: the nests that it is made of, all scores in memory between them.

    scores = scale * q k + bias        top = max of a row of scores        scores = exp(scores - top)
    total = sum of a row               out = scores v / total
16-bit floats are computed in float32. A query without keys gives zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.graph import Node, TensorType
from ...target import Target
from ..tiles.strides import row_major
from .elementwise import Elementwise
from .nest import Stages, View, broadcasting, dense, input_view
from .reduction import Reduction
from .states import State, accumulator


def stages(node: Node, target: Target) -> Stages:
    """The temporaries are scores, greatest scores, sums."""
    op, dtype = node.op, node.inputs[0].dtype
    wide = accumulator(dtype)
    size: dict[str, Dimension] = {}
    for labels, value in zip((op.q, op.k, op.v), node.inputs):
        for label, length in zip(labels, value.shape):
            size[label] = length if label not in size or isinstance(length, int) else size[label]
    batch = [label for label in op.q if label not in "qd"]
    rows, shape = [size[b] for b in (*batch, "q")], tuple(size[b] for b in (*batch, "q", "k"))

    def along(labels: str, value_index: int, order: Sequence[str]) -> View:
        view = input_view(node, value_index)
        found = dict(zip(labels, view.strides))
        return View("input", value_index, view.dtype, tuple(found.get(label, 0) for label in order))

    def temporary(index: int, sizes: Sequence[Dimension]) -> View:
        return dense("temporary", index, TensorType(wide, tuple(sizes)))

    scores, sums = temporary(0, shape), temporary(2, rows)
    # the row's greatest for each of its scores
    held = View("temporary", 1, wide, (*temporary(1, rows).strides, 0))
    total, element = expr.input_(0, wide), expr.input_
    bias = {1: broadcasting("input", 3, node.inputs[3].tensor, shape)} if len(node.inputs) > 3 else {}
    scaled = total * op.scale
    if bias:
        scaled = scaled + expr.cast(element(1, node.inputs[3].dtype), wide)
    wholes = (*batch, "q", "k", "d")
    queries = {0: along(op.q, 0, wholes), 1: along(op.k, 1, wholes)}
    products = Reduction(
        target,
        State("sum", wide),
        expr.cast(element(0, dtype), wide),
        shape,
        [size["d"]],
        queries,
        scores,
        scaled,
        bias,
        expr.cast(element(1, node.inputs[1].dtype), wide),
    )
    greatest = Reduction(
        target,
        State("max", wide),
        element(0, wide),
        rows,
        [size["k"]],
        {0: scores},
        temporary(1, rows),
        total,
    )
    weights = Elementwise(
        target, expr.exp(element(0, wide) - element(1, wide)), shape, scores, {0: scores, 1: held}
    )
    summed = Reduction(
        target, State("sum", wide), element(0, wide), rows, [size["k"]], {0: scores}, sums, total
    )

    out_order = (*op.out, "k")
    by_label = dict(zip((*batch, "q", "k"), scores.strides))
    values = {
        0: View("temporary", 0, wide, tuple(by_label.get(label, 0) for label in out_order)),
        1: along(op.v, 2, out_order),
    }
    per_row = dict(zip((*batch, "q"), sums.strides))
    divisor = View("temporary", 2, wide, tuple(per_row.get(label, 0) for label in op.out))
    none = element(1, wide).equals(0)
    out = Reduction(
        target,
        State("sum", wide),
        element(0, wide),
        [size[label] for label in op.out],
        [size["k"]],
        values,
        View("output", 0, dtype, row_major([size[label] for label in op.out], dtypes.itemsize(dtype))),
        expr.cast(expr.where(none, total, total / element(1, wide)), dtype),
        {1: divisor},
        expr.cast(element(1, node.inputs[2].dtype), wide),
    )
    count, item = dims.product(rows), dtypes.itemsize(wide)
    return [[piece] for piece in (products, greatest, weights, summed, out)], (
        dims.product(shape) * item,
        count * item,
        count * item,
    )
