"""fuse_shuffles: a shuffle of channels becomes part of the convolution that reads them, behind the depthwise
ones between, whose channels may stand in any order.

%s = shuffle(%x); %d = conv(%s, %v) groups 136; %y = conv(%d, %w) groups 4
→   %d = conv(%x, %v reordered) groups 136; %y = fused shuffled(%d, %w) { conv(shuffle(%d), %w) groups 4 }

A convolution of all channels reads them in any order: then its weights are put in that, and nothing is fused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.dims import numbers
from ..ir.everywhere import everywhere
from ..ir.expr import contains
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value, make_node
from ..ir.ops import Conv, Fused
from ..ir.shuffles import Shuffle, shuffle_of


@everywhere
def fuse_shuffles(graph: Graph) -> Graph:
    """graph with Fused groups of kind "shuffled"."""
    rewriter = Rewriter(graph)
    moving: set[Node] = set()
    reordered: dict[Node, Shuffle] = {}  # convolutions of channels that are shuffled before them
    for node in graph.nodes:
        shuffle = shuffle_of(node.outputs[0]) if node.outputs else None
        if shuffle is None:
            continue
        chain = _chain(node.outputs[0], rewriter)
        if chain and all(rewriter.readers[move.outputs[0]] == 1 for move in shuffle.nodes):
            moving.update(shuffle.nodes)
            reordered.update(dict.fromkeys(chain, shuffle))
    for node in graph.nodes:
        if node in reordered:
            _emit(rewriter, node, reordered[node])
        elif node not in moving:
            rewriter.copy(node)
    return rewriter.finish()


def _chain(value: Value, rewriter: Rewriter) -> list[Node]:
    """The convolutions that read a value one behind the other, the last of them of several channels; none
    where they do not end in one."""
    found: list[Node] = []
    while (node := rewriter.only_reader(value)) is not None:
        if not _reads_channels(node) or node.inputs[0] is not value:
            return []
        found.append(node)
        if node.op.groups != value.shape[1]:
            return found
        if not _keeps_channels(node):
            return []
        value = node.outputs[0]
    return []


def _reads_channels(node: Node) -> bool:
    """Whether a node convolves floats with constant weights."""
    op = node.op
    plain = isinstance(op, Conv) and not op.transposed and node.inputs[1].constant is not None
    return plain and {node.inputs[0].dtype, node.inputs[1].dtype} <= {"float32", "float64"}


def _keeps_channels(node: Node) -> bool:
    """Whether each channel of the result is of the same one of the image alone, and of constants."""
    out, body = node.outputs[0], node.op.epilogue
    known = all(v.constant is not None for v in node.inputs[1:])
    single = out.shape[1] == node.op.groups and (body is None or not contains(body, "index"))
    return known and single and all(v.rank <= out.rank for v in node.inputs[2:])


def _emit(rewriter: Rewriter, node: Node, shuffle: Shuffle) -> None:
    image, others = rewriter.of(node.inputs[0]), node.inputs[1:]
    if image is shuffle.nodes[-1].outputs[0]:
        image = rewriter.of(shuffle.source)
    names = [node.outputs[0].name]
    if node.op.groups == 1:
        operands = [image, _reordered(others[0], 1, shuffle.order), *map(rewriter.of, others[1:])]
        results = rewriter.add(node.op, operands, node.origin, names)
    elif node.op.groups == image.shape[1]:
        rank = node.outputs[0].rank
        kept = [_along_channels(v, rank, shuffle.order) for v in others[1:]]
        operands = [image, _reordered(others[0], 0, shuffle.order), *kept]
        results = rewriter.add(node.op, operands, node.origin, names)
    else:
        results = _fused(rewriter, node, image, shuffle)
    rewriter.replace(node.outputs, results)


def _along_channels(value: Value, rank: int, order: Sequence[int]) -> Value:
    """A constant operand of an epilogue, whose channels are its axis 1 as the result has them."""
    axis = value.rank - rank + 1
    return value if axis < 0 or value.shape[axis] == 1 else _reordered(value, axis, order)


def _reordered(value: Value, axis: int, order: Sequence[int]) -> Value:
    """A constant whose place order[c] has what place c had."""
    constant, before = value.data, np.argsort(order)
    made = Constant(
        value.dtype, numbers(value.shape), lambda: constant.array.take(before, axis), constant.splat
    )
    return constant_value(made, value.name)


def _fused(rewriter: Rewriter, node: Node, image: Value, shuffle: Shuffle) -> tuple[Value, ...]:
    """The node over an image whose channels it shuffles."""
    operands = [image, *map(rewriter.of, node.inputs[1:])]
    parameters = tuple(Value(v.type) for v in operands)
    moves = shuffle.of(parameters[0])
    conv = make_node(node.op, [moves[-1].outputs[0], *parameters[1:]], node.origin)
    region = Graph(parameters, conv.outputs, (*moves, conv))
    return rewriter.add(Fused("shuffled", region), operands, node.origin, [node.outputs[0].name])
