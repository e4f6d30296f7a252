"""narrow_products: products of float32 numbers become products of bfloat16s: of numbers that are bfloat16s,
as in a model of that type, and on request of all.

conv(%x, W) accumulate=float32   →   conv(map(%x) { cast($0, bfloat16) }, W in bfloat16) accumulate=float32

Sums, and all that is not multiplied with weights, stay float32. Only what the target multiplies faster so,
and weights that are known: those of convolutions of at least 16 channels, or of a few where a row of a window
fills what an instruction multiplies, and of products along the last axis. Attention may round its queries,
keys, values and weights. What is only moved, or is the largest of a window, is rounded before that:

conv(pool(%x) kind=max, W)   →   conv(pool(map(%x) { cast($0, bfloat16) }) kind=max, W in bfloat16)

Where the target has such products but multiply-adds of float32 are as fast, weights alone become bfloat16s:

conv(%x, W)   →   conv(%x, map(W in bfloat16) { cast($0, float32) })
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from enum import Flag, auto

import numpy as np

from ..ir import dims, dtypes, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Constant, Graph, Node, Rewriter, Value
from ..ir.ops import Attention, Contract, Conv, Map, Pool
from ..ir.stored import half_weights, stored_weights
from ..ir.widths import MOVEMENT, WIDE, moved
from ..target import Target

NARROW = "bfloat16"
LEAST = 16  # channels or terms of a sum, for which it is worth it
LARGE = 1 << 18  # elements of an image that leave the nearer caches
FEW = 4  # channels of an image as it comes


def narrow_products(graph: Graph, target: Target, asked: bool = True) -> Graph:
    """graph with products of bfloat16s, where the target has them: of all numbers if that is asked for, of
    those that are bfloat16s anyway if not."""
    matrix, dot = target.matrix(NARROW, NARROW, WIDE), target.dot(NARROW, NARROW, WIDE)
    if matrix is not None or (dot is not None and dot.group * target.facts.bf16_dots > 1):
        return everywhere(lambda inner: _narrowed(inner, target, asked))(graph)
    if dot is not None and asked:
        return everywhere(lambda inner: _with_narrow_weights(inner, target))(graph)
    return graph


def _with_narrow_weights(graph: Graph, target: Target) -> Graph:
    rewriter = Rewriter(graph)
    made: dict[Value, Value] = {}  # weights, and what they are behind bfloat16s

    def narrowed(value: Value, origin: str) -> Value:
        if value not in made:
            (stored,) = rewriter.add(Map(expr.input_(0, WIDE).cast(NARROW)), [value], origin)
            made[value] = rewriter.add(Map(expr.input_(0, NARROW).cast(WIDE)), [stored], origin)[0]
        return made[value]

    for node in graph.nodes:
        inputs = [rewriter.of(v) for v in node.inputs]
        if _multiplies(node, target):
            for k, value in enumerate(inputs[:2]):
                if value.constant is not None and stored_weights(value.constant) is None:
                    inputs[k] = narrowed(value, node.origin)
        rewriter.copy(node, inputs)
    return rewriter.finish()


class Reads(Flag):
    """How a value is read: a convolution or another product narrows it, or somebody wants float32."""

    NOT = 0
    CONVOLVED = auto()
    MULTIPLIED = auto()
    MAPPED = auto()  # element by element, which may widen what was narrowed
    WIDE = auto()


def _narrowed(graph: Graph, target: Target, asked: bool) -> Graph:
    """graph whose chosen nodes read bfloat16s: a value is narrowed once, and what only passes it on does so
    in its narrow form, which is all that is stored where nobody reads the wide one."""
    chosen = _chosen(graph, target, asked)
    if not chosen:
        return graph
    rewriter = Rewriter(graph)
    narrow: dict[Value, Value] = {}  # values, and what they are as bfloat16

    def cast(value: Value, dtype: str, node: Node, name: str = "") -> Value:
        body = expr.input_(0, value.dtype).cast(dtype)
        return rewriter.add(Map(body), [value], node.origin, [name])[0]

    def narrowed(value: Value, node: Node) -> Value:
        if value not in narrow:
            narrow[value] = cast(value, NARROW, node)
        return narrow[value]

    reads = _reads(graph, target, chosen)
    for node in graph.nodes:
        op, inputs = node.op, [rewriter.of(v) for v in node.inputs]
        if _passes_on(node) and _is_stored_narrow(reads[node.outputs[0]]):
            which = moved(node)
            inputs = [narrowed(new, node) if v in which else new for v, new in zip(node.inputs, inputs)]
            is_rounding = isinstance(op, Map)
            narrow[node.outputs[0]] = inputs[0] if is_rounding else rewriter.add(op, inputs, node.origin)[0]
        else:
            if node in chosen:
                kept = isinstance(op, Attention) or _is_kept(node, reads, target)
                if not kept:
                    inputs[0] = narrowed(inputs[0], node)  # which is what is read from memory
                if _multiplies(node, target):
                    inputs[1] = narrowed(inputs[1], node)
                if kept and isinstance(op, (Attention, Conv)) and not _mostly_reads(node):
                    op = replace(op, narrow=True)
            if op != node.op:
                names = [value.name for value in node.outputs]
                rewriter.replace(node.outputs, rewriter.add(op, inputs, node.origin, names))
            else:
                rewriter.copy(node, inputs)
        for value in node.outputs:
            if Reads.MAPPED in reads[value] and _is_stored_narrow(reads[value]):
                stored = narrowed(rewriter.of(value), node)
                rewriter.replace([value], [cast(stored, WIDE, node, value.name)])
                narrow[rewriter.of(value)] = stored
    return rewriter.finish()


def _chosen(graph: Graph, target: Target, asked: bool) -> set[Node]:
    """The nodes that are to read bfloat16s: all that gain by it, or those whose operands are such."""
    found: set[Node] = set()
    rounded: set[Value] = set()  # whose numbers are bfloat16s

    def exact(values: Sequence[Value]) -> bool:
        return all(v in rounded if v.constant is None else _are_exact(v.constant) for v in values)

    for node in graph.nodes:
        if asked or exact(node.inputs[:1]):
            count = _narrowed_operands(node, target)
            if count and (asked or exact(node.inputs[:count])):
                found.add(node)
        if not asked and (_is_rounded(node) or (_passes_on(node) and exact(moved(node)))):
            rounded.update(node.outputs)
    return found


def _narrowed_operands(node: Node, target: Target) -> int:
    """How many of a node's first operands are to be bfloat16s, if it gains by that."""
    if isinstance(node.op, Attention):
        return 3 if node.inputs[0].dtype == WIDE else 0
    if _mostly_reads(node):
        return 1
    return 2 if _multiplies(node, target) else 0


def _are_exact(constant: Constant) -> bool:
    """Whether constants are bfloat16s: stored as such, or one number that is one."""
    if constant.dtype != WIDE:
        return False
    if constant.shape and constant.splat is None:
        found = half_weights(constant)
        return found is not None and found.dtype == NARROW
    number = np.asarray(constant.array if constant.splat is None else constant.splat, np.float32)
    return bool(number.astype(dtypes.numpy_dtype(NARROW)) == number)


def _is_rounded(node: Node) -> bool:
    """Whether a Map gives bfloat16s as float32."""
    body = node.op.body if isinstance(node.op, Map) else None
    return body is not None and body.op == "cast" and body.dtype == WIDE and body.args[0].dtype == NARROW


def _reads(graph: Graph, target: Target, chosen: set[Node]) -> dict[Value, Reads]:
    """How the values of a graph are read. What moves numbers, or takes the largest, reads them as its own
    readers do: rounding before it or behind it gives the same."""
    found = defaultdict(lambda: Reads.NOT, dict.fromkeys(graph.outputs, Reads.WIDE))
    for node in reversed(graph.nodes):
        convolves = isinstance(node.op, Conv) and not _mostly_reads(node)
        narrows = node in chosen and not isinstance(node.op, Attention)
        moves = _passes_on(node) and _is_stored_narrow(found[node.outputs[0]])
        for k, value in enumerate(node.inputs):
            if narrows and k == 0 and convolves and _is_first(node, target):
                found[value] |= Reads.WIDE
            elif narrows and k < 2:
                found[value] |= Reads.CONVOLVED if convolves else Reads.MULTIPLIED
            elif moves and value in moved(node):
                found[value] |= found[node.outputs[0]] & ~Reads.MAPPED
            else:
                found[value] |= Reads.MAPPED if isinstance(node.op, Map) else Reads.WIDE
    return found


def _is_stored_narrow(read: Reads) -> bool:
    """Whether a value is kept as bfloat16s alone: products read it, and nobody else but Maps beside
    convolutions."""
    narrowed = read != Reads.NOT and not read & (Reads.MAPPED | Reads.WIDE)
    return narrowed or read == Reads.CONVOLVED | Reads.MAPPED


def _is_kept(node: Node, reads: dict[Value, Reads], target: Target) -> bool:
    """Whether a convolution reads its image as float32, since it is there so or has few channels."""
    if not isinstance(node.op, Conv):
        return False
    image = node.inputs[0]
    wide = bool(reads[image] & (Reads.MAPPED | Reads.WIDE))
    stored = image.producer is not None and _is_stored_narrow(reads[image])
    kept = wide and not stored and target.matrix(NARROW, NARROW, WIDE) is not None
    return kept or (_multiplies(node, target) and _is_first(node, target))


def _passes_on(node: Node) -> bool:
    """Whether a node's float32 numbers are some of those that it is given, as they were or rounded, and not
    of weights alone."""
    op = node.op
    if isinstance(op, Pool):  # of windows
        x = node.inputs[0]
        return op.kind == "max" and x.dtype == WIDE and op.kernel != x.shape[2:]
    if isinstance(op, Map):
        rounds = expr.input_(0, WIDE).cast(NARROW).cast(WIDE)
        return op.body is rounds and node.inputs[0].shape == node.outputs[0].shape
    moves = isinstance(op, MOVEMENT) and node.outputs[0].dtype == WIDE
    return moves and any(v.constant is None for v in moved(node))


def _multiplies(node: Node, target: Target) -> bool:
    """Whether a node is a sum of products with weights that narrower numbers make faster."""
    op = node.op
    if not isinstance(op, (Conv, Contract)) or op.accumulate != WIDE or op.exact:
        return False
    operands = node.inputs[:2]
    if {v.dtype for v in operands} != {WIDE} or any(map(_is_narrower, operands)):
        return False
    return _is_convolution(node, target) if isinstance(op, Conv) else _is_product(op, operands)


def _is_narrower(value: Value) -> bool:
    """Whether a value is made of integers of few bits, which are read faster than bfloat16s."""
    found = None if value.constant is None else stored_weights(value.constant)
    return found is not None and dtypes.is_integer(found.elements.dtype)


def _is_convolution(node: Node, target: Target) -> bool:
    op, (x, w) = node.op, node.inputs[:2]
    known = dims.is_static((x.shape[1], *op.pads)) or target.matrix(NARROW, NARROW, WIDE) is None
    plain = op.groups == 1 and not op.transposed and len(op.strides) <= 2 and w.constant is not None
    if not known or not plain:
        return False
    return dims.number(w.shape[1]) >= LEAST or _is_first(node, target) or _adds_neighbours(node, target)


def _is_first(node: Node, target: Target) -> bool:
    """Whether a convolution has few channels, of which a row of its window fills a matrix register."""
    op, (_, channels, *taps) = node.op, node.inputs[1].shape
    unit = target.matrix(NARROW, NARROW, WIDE)
    if unit is None or len(taps) != 2 or not isinstance(channels, int) or channels > FEW:
        return False
    columns = dims.number(taps[1])
    return op.dilations[1] == 1 and LEAST // 2 <= channels * columns <= unit.depth


def _adds_neighbours(node: Node, target: Target) -> bool:
    """Whether a convolution has few channels, and a row of its window takes fewer dot products of neighbours
    than multiply-adds."""
    op, (_, channels, *taps), dot = node.op, node.inputs[1].shape, target.dot(NARROW, NARROW, WIDE)
    if dot is None or target.matrix(NARROW, NARROW, WIDE) is not None or dims.number(channels) > FEW:
        return False
    columns = dims.number(taps[-1])
    return op.dilations[-1] == 1 and -(-columns // dot.group) < columns * target.facts.bf16_dots


def _mostly_reads(node: Node) -> bool:
    """Whether a convolution multiplies each channel alone, an image so large that reading it is most of the
    work."""
    op = node.op
    if not isinstance(op, Conv) or op.transposed or op.accumulate != WIDE or op.groups < LEAST:
        return False
    x, w = node.inputs[:2]
    alone = w.constant is not None and w.shape[1] == 1 and w.shape[0] == op.groups and len(op.strides) <= 2
    return alone and {x.dtype, w.dtype} == {WIDE} and dims.typical(x.tensor.count) >= LARGE


def _is_product(op: Contract, inputs: Sequence[Value]) -> bool:
    """Whether one operand is constant, and the other's last axis is what is summed over."""
    if (inputs[0].constant is None) == (inputs[1].constant is None):
        return False
    labels, x = (op.lhs, inputs[0]) if inputs[0].constant is None else (op.rhs, inputs[1])
    summed = [(label, size) for label, size in zip(labels, x.shape) if label not in op.out]
    return len(summed) == 1 and summed[0][0] == labels[-1] and dims.typical(summed[0][1]) >= LEAST
