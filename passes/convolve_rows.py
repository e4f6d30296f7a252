"""convolve_rows: a product of rows becomes a 1x1 convolution, where fewer channels are then transposed.

transpose(reshape(contract(%x: [n, hw, c], %w: [c, o])): [n, h, w, o]) perm=(0, 3, 1, 2), read by a conv
    →   conv(transpose(reshape(%x): [n, h, w, c]) perm=(0, 3, 1, 2), %w: [o, c, 1, 1])   of more o than c

contract(reshape(transpose(conv(…): [n, o, h, w]) perm=(0, 2, 3, 1)): [n, hw, o], %w: [o, c])
    →   reshape(transpose(conv(conv(…), %w: [c, o, 1, 1])) perm=(0, 2, 3, 1)): [n, hw, c]

A transformer that convolves (SegFormer, PVTv2) keeps pixels as rows, widens them, convolves them as an image
and makes them narrow again: rows turn into an image and back where they are narrow, and between lie three
convolutions that can be computed in bands. Maps between, of nothing but numbers for each channel, come along.
"""

from __future__ import annotations

from typing import TypeGuard

from ..ir import derived, expr
from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value, constant_value, reshaped_constant
from ..ir.ops import Contract, Conv, Map, Reshape, Transpose
from ..ir.stored import half_weights, stored_weights

TYPES = ("float32", "float16", "bfloat16")  # that convolutions have kernels of
LEAST = 2  # times as many channels on the image's side of a product


@everywhere
def convolve_rows(graph: Graph) -> Graph:
    """graph with products beside an image, where that is the wider side, as 1x1 convolutions of it."""
    rewriter = Rewriter(graph)
    convolved = {node.inputs[0] for node in graph.nodes if isinstance(node.op, Conv)}
    for node in graph.nodes:
        made = None
        if isinstance(node.op, Transpose) and node.outputs[0] in convolved:
            made = _widened(rewriter, node)
        elif isinstance(node.op, Contract):
            made = _narrowed(rewriter, node)
        if made is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, [made])
    return rewriter.finish()


def _widened(rewriter: Rewriter, node: Node[Transpose]) -> Value | None:
    """The image that a Transpose makes of a product's rows, where what is multiplied is narrower."""
    rows, channels = rewriter.of(node.inputs[0]), node.inputs[0].rank - 1
    if channels < 3 or node.op.perm != (0, channels, *range(1, channels)):
        return None
    maps, product = _made_by(rewriter, rows)
    if not _is_product(product):
        return None
    narrow = product.inputs[0]
    if not _is_wider(rows.shape[-1], narrow.shape[-1]):
        return None
    (image,) = rewriter.add(Reshape((*rows.shape[:-1], narrow.shape[-1])), [narrow], node.origin)
    (image,) = rewriter.add(node.op, [image], node.origin)
    return _mapped(rewriter, maps, _convolved(rewriter, image, product))


def _narrowed(rewriter: Rewriter, node: Node[Contract]) -> Value | None:
    """A product of the rows that a convolved image was turned into, where its results are narrower."""
    if not _is_product(node):
        return None
    maps, turn = _made_by(rewriter, rewriter.of(node.inputs[0]))
    if turn is None or not isinstance(turn.op, Transpose):
        return None
    image, rank = turn.inputs[0], turn.inputs[0].rank
    if rank < 4 or turn.op.perm != (0, *range(2, rank), 1) or not _is_convolved(image):
        return None
    if not _is_wider(image.shape[1], node.outputs[0].shape[-1]):
        return None
    narrow = _convolved(rewriter, _mapped(rewriter, maps, image), node)
    (rows,) = rewriter.add(turn.op, [narrow], node.origin)
    return rewriter.add(Reshape(node.outputs[0].shape), [rows], node.origin, [node.outputs[0].name])[0]


def _is_wider(image: Dimension, rows: Dimension) -> bool:
    """Whether an image has enough more channels than rows to turn those."""
    return isinstance(image, int) and isinstance(rows, int) and image >= LEAST * rows


def _is_product(node: Node | None) -> TypeGuard[Node[Contract]]:
    """Whether each row is multiplied by the same constant, of which convolutions read what is stored."""
    if (
        node is None
        or not isinstance(op := node.op, Contract)
        or op.epilogue is not None
        or op.exact
        or op.rounded
        or op.halves
    ):
        return False
    rows, weights = node.inputs
    labels = op.lhs[-1:] + op.out[-1:]
    return (
        op.lhs[:-1] == op.out[:-1]
        and len({*labels}) == 2
        and op.rhs in (labels, labels[::-1])
        and weights.constant is not None
        and rows.dtype == weights.dtype
        and rows.dtype in TYPES
        and (stored_weights(weights.constant) is None or half_weights(weights.constant) is not None)
    )


def _made_by(rewriter: Rewriter, rows: Value) -> tuple[list[Node[Map]], Node | None]:
    """The node that makes rows, but for Maps that treat all alike, in their order, and Reshapes that keep
    them whole; each read once."""
    maps: list[Node[Map]] = []
    while (node := rows.producer) is not None and rewriter.readers[rows] == 1:
        if isinstance(node.op, Map) and _treats_rows_alike(node):
            maps.insert(0, node)
        elif not isinstance(node.op, Reshape) or rows.shape[-1:] != node.inputs[0].shape[-1:]:
            return maps, node
        rows = node.inputs[0] if isinstance(node.op, Reshape) else _varying(node)[0]
    return maps, None


def _varying(node: Node) -> list[Value]:
    return [v for v in node.inputs if v.constant is None]


def _treats_rows_alike(node: Node[Map]) -> bool:
    """Whether a Map has one operand but for constants, of numbers for each channel."""
    constants = [v for v in node.inputs if v.constant is not None]
    return (
        len(_varying(node)) == 1
        and node.op.shape is None
        and not expr.contains(node.op.body, "index", "check", "size")
        and all(d == 1 for v in constants for d in v.shape[:-1])
    )


def _is_convolved(image: Value) -> bool:
    """Whether a convolution makes an image, but for Maps of nothing else."""
    node = image.producer
    while node is not None and isinstance(node.op, Map):
        varying = _varying(node)
        node = varying[0].producer if len(varying) == 1 else None
    return node is not None and isinstance(node.op, Conv)


def _convolved(rewriter: Rewriter, image: Value, product: Node[Contract]) -> Value:
    """The image with each pixel's channels multiplied as the product multiplies rows."""
    op, given = product.op, product.inputs[1].data
    weights = given
    if op.rhs[0] != op.out[-1]:
        turned = given.shape[::-1]
        weights = derived.put_off(Transpose((1, 0)), [given], given.dtype, turned, lambda: given.array.T)
    axes = image.rank - 2
    shape = (*weights.shape, *[1] * axes)
    kernel = constant_value(derived.reshaped(Reshape(shape), weights))
    conv = Conv((1,) * axes, (0, 0) * axes, (1,) * axes, accumulate=op.accumulate)
    return rewriter.add(conv, [image, kernel], product.origin)[0]


def _mapped(rewriter: Rewriter, maps: list[Node[Map]], image: Value) -> Value:
    """Maps of rows, of an image."""
    for node in maps:
        operands = [
            image if v.constant is None else reshaped_constant(v, (*v.shape[-1:], *[1] * (image.rank - 2)))
            for v in node.inputs
        ]
        (image,) = rewriter.add(node.op, operands, node.origin)
    return image
