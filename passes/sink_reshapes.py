"""sink_reshapes: a Map is done before what only moves what it reads where it then joins what is before.

map(reshape(conv(%x, %w): [b, 8, n, 1]) shape=(b, 8, n), %bias: [8, 1]) { add($0, $1) }
    →   reshape(map(conv(%x, %w), %bias: [1, 8, 1, 1]) { add($0, $1) }) shape=(b, 8, n)
map(reshape(conv(%x, %w): [b, 8, d h, w]) shape=(b, 8, d, h, w), %bias: [8, 1, 1, 1]) { add($0, $1) }
    →   reshape(map(conv(%x, %w), %bias: [8, 1, 1]) { add($0, $1) }) shape=(b, 8, d, h, w)
map(reshape(map(%x) { exp($0) })) { neg($0) }   →   reshape(map(map(%x) { exp($0) }) { neg($0) })
map(transpose(reshape(conv(%x, %w))), %bias: [c, 1, 1, 1]) { add($0, $1) }
    →   transpose(reshape(map(conv(%x, %w), %bias: [c, 1, 1]) { add($0, $1) }))
map(transpose(reshape(conv(%x, %w))), %y) { add($0, $1) }, where %y was moved so, or is moved back elsewhere
    →   transpose(reshape(map(conv(%x, %w), reshape(transpose(%y))) { add($0, $1) }))

Exporters that know convolutions of images alone write those of signals with axes of size 1; the Map becomes
an epilogue. What quantises a group normalisation reads it in the shape of the image.
"""

from __future__ import annotations

from collections import Counter

from ..ir.dims import Dimension, equal, product, reshaped_axis
from ..ir.everywhere import everywhere
from ..ir.expr import contains
from ..ir.graph import Graph, Node, Rewriter, Value, reshaped_constant
from ..ir.ops import Conv, Map, Reshape, Shape, Transpose

Order = tuple[int, ...]  # of axes, as a Transpose has it


@everywhere
def sink_reshapes(graph: Graph) -> Graph:
    """graph with Maps directly behind the convolutions whose squeezed results they read."""
    rewriter = Rewriter(graph)
    turned: dict[Value, set[Order]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Transpose):
            turned.setdefault(node.inputs[0], set()).add(node.op.perm)
    for node in graph.nodes:
        inputs = tuple(rewriter.of(v) for v in node.inputs)
        shaped = _shaped(node, inputs, rewriter.readers) if isinstance(node.op, Map) else None
        moves: list[Node] = []
        if isinstance(node.op, Map) and shaped is None:
            values = (*node.inputs, *node.outputs)
            back = {(rewriter.of(v), perm) for v in values for perm in turned.get(v, ())}
            moves = _moves(node, inputs, rewriter.readers, back)
        before = inputs[0].producer if isinstance(node.op, Reshape) else None
        if moves:
            _sink(rewriter, node, inputs, moves)
        elif before is not None and isinstance(before.op, Reshape):
            _reshape_once(rewriter, node, before.inputs[0])
        elif shaped is None:
            rewriter.copy(node)
        else:
            source = shaped.node.inputs[0]
            kept = _kept_axes(source.shape, shaped.shape)
            operands = [source if v is shaped else _beside(rewriter, v, shaped, kept) for v in inputs]
            results = rewriter.add(node.op, operands, node.origin)
            rewriter.readers[results[0]] = 1
            names = [v.name for v in node.outputs]
            outputs = rewriter.add(Reshape(shaped.shape), results, shaped.node.origin, names)
            rewriter.replace(node.outputs, outputs)
    return rewriter.finish()


def _reshape_once(rewriter: Rewriter, node: Node, source: Value) -> None:
    """A Reshape of what a Reshape, which a Map left behind it, reads."""
    if source.type == node.outputs[0].type:
        rewriter.replace(node.outputs, [source])
        return
    names = [v.name for v in node.outputs]
    rewriter.replace(node.outputs, rewriter.add(node.op, [source], node.origin, names))


def _shaped(node: Node, inputs: tuple[Value, ...], readers: Counter[Value]) -> Value | None:
    """The operand of a Map that is a reshaped value, both read here alone, if the Map may read that value:
    of a convolution without axes of size 1, or of a Map where all other operands are single numbers."""
    if node.op.shape is not None or contains(node.op.body, "index"):
        return None
    for value in inputs:
        reshape = value.producer
        if reshape is None or not isinstance(reshape.op, Reshape) or value.shape != node.outputs[0].shape:
            continue
        source = reshape.inputs[0]
        if source.producer is None or readers[value] != 1 or readers[source] != 1:
            continue
        if _convolves(source.producer) and _kept_axes(source.shape, value.shape):
            return value
        regrouped = _convolves(source.producer) and _is_regrouped(source.shape, value.shape)
        if regrouped and all(_goes_along(v, value) for v in inputs):
            return value
        if isinstance(source.producer.op, Map) and all(v is value or v.rank == 0 for v in inputs):
            return value
    return None


def _moves(
    node: Node, inputs: tuple[Value, ...], readers: Counter[Value], back: set[tuple[Value, Order]]
) -> list[Node]:
    """The moves, a Transpose among them, between a convolution and a Map; none where others read what is
    between and nobody moves the result `back` (values, and orders of their axes). What else it reads are
    single numbers, numbers of channels, and what was moved the same way or is moved back elsewhere too."""
    shape = node.outputs[0].shape
    moved = [v for v in inputs if v.shape == shape and v.constant is None]
    if node.op.shape is not None or contains(node.op.body, "index"):
        return []
    for value in moved:
        found = _moved(value)
        if not found or not (_alone(value, found, readers) or _moves_back(node.outputs[0], found, back)):
            continue
        others = [v for v in inputs if v not in moved and v.rank > 0]
        alike = all(v is value or _moves_back(v, found, back) for v in moved)
        if alike and (not others or _are_of_channels(others, found[0].inputs[0].shape, found)):
            return found
    return []


def _moves_back(value: Value, moves: list[Node], back: set[tuple[Value, Order]]) -> bool:
    """Whether a value as it was before such moves, of which the last is a Transpose, is there, or will be."""
    last, made = moves[-1].op, value.producer
    if not isinstance(last, Transpose):
        return False
    return (made is not None and made.op == last) or (value, last.inverse.perm) in back


def _moved(value: Value) -> list[Node]:
    """The moves, a Transpose among them, of a convolution's result that made a value."""
    found: list[Node] = []
    while value.producer is not None:
        if isinstance(value.producer.op, (Reshape, Transpose)):
            found.insert(0, value.producer)
            (value,) = value.producer.inputs
            continue
        turned = any(isinstance(move.op, Transpose) for move in found)
        return found if turned and _convolves(value.node) else []
    return []


def _alone(value: Value, moves: list[Node], readers: Counter[Value]) -> bool:
    """Whether nobody else reads what moves made a value, or what is between."""
    return all(readers[v] == 1 for v in (value, *(move.inputs[0] for move in moves)))


def _are_of_channels(operands: list[Value], images: Shape, moves: list[Node]) -> bool:
    """Whether operands of images that are moved to images differ between their channels alone."""
    axis = 1
    for move in moves:
        (before,), after = move.inputs, move.outputs[0].shape
        if isinstance(move.op, Transpose):
            axis = move.op.perm.index(axis)
            continue
        found = reshaped_axis(before.shape, axis, after)
        if found is None:
            return False
        axis = found
    rank = moves[-1].outputs[0].rank
    own = [(1,) * (rank - v.rank) + v.shape for v in operands]
    alone = all(d == 1 or (k == 1 and d == images[1]) for shape in own for k, d in enumerate(shape))
    return axis == 1 and alone


def _sink(rewriter: Rewriter, node: Node, inputs: tuple[Value, ...], moves: list[Node]) -> None:
    """The Map of what is moved, and the moves."""
    (source,) = moves[0].inputs
    (moved,) = moves[-1].outputs
    shape = node.outputs[0].shape

    def operand(v: Value) -> Value:
        if v is moved:
            return source
        if v.shape == shape and v.constant is None:
            return _before(rewriter, v, moves)
        return v if v.rank == 0 else _shaped_as(rewriter, v, (v.tensor.count, *(1,) * (source.rank - 2)))

    values = rewriter.add(node.op, [operand(v) for v in inputs], node.origin)
    for move in moves:
        rewriter.readers[values[0]] = 1
        names = [v.name for v in node.outputs] if move is moves[-1] else []
        values = rewriter.add(move.op, values, move.origin, names)
    rewriter.replace(node.outputs, values)


def _before(rewriter: Rewriter, value: Value, moves: list[Node]) -> Value:
    """What becomes a value by such moves."""
    for move in reversed(moves):
        undone = move.op
        if isinstance(undone, Transpose):
            undone = undone.inverse
        else:
            undone = Reshape(move.inputs[0].shape)
        (value,) = rewriter.add(undone, [value], move.origin)
    return value


def _convolves(node: Node) -> bool:
    """Whether a node is a convolution, or a Map of its result."""
    if isinstance(node.op, Map):
        return any(v.producer is not None and isinstance(v.producer.op, Conv) for v in node.inputs)
    return isinstance(node.op, Conv)


def _kept_axes(source: Shape, squeezed: Shape) -> list[int] | None:
    """Which axes of a shape are left in another, if the others are of size 1."""
    kept: list[int] = []
    for axis, size in enumerate(source):
        if len(kept) < len(squeezed) and size == squeezed[len(kept)]:
            kept.append(axis)
        elif size != 1:
            return None
    return kept if len(kept) == len(squeezed) else None


def _is_regrouped(source: Shape, shape: Shape) -> bool:
    """Whether images only have their pixels along other axes."""
    same = min(len(source), len(shape)) > 2 and source[:2] == shape[:2]
    return same and equal(product(source[2:]), product(shape[2:])) is True


def _goes_along(operand: Value, shaped: Value) -> bool:
    """Whether an operand beside images can be had beside them with other axes: it repeats over all pixels or
    none."""
    own = (1,) * (shaped.rank - operand.rank) + operand.shape
    return own == shaped.shape or all(d == 1 for d in own[2:])


def _beside(rewriter: Rewriter, value: Value, shaped: Value, kept: list[int] | None) -> Value:
    """What is read with `shaped` as it is read with what that was before."""
    (source,) = shaped.node.inputs
    if kept is not None:
        return _spread(rewriter, value, kept, source.rank)
    if value.rank == 0:
        return value
    own = (1,) * (shaped.rank - value.rank) + value.shape
    shape = source.shape if own == shaped.shape else (*own[:2], *(1,) * (source.rank - 2))
    return _shaped_as(rewriter, value, shape)


def _shaped_as(rewriter: Rewriter, value: Value, shape: Shape) -> Value:
    """A value with other axes."""
    made = value.producer
    if made is not None and isinstance(made.op, Reshape) and made.inputs[0].shape == shape:
        return made.inputs[0]
    if value.constant is None:
        return rewriter.add(Reshape(shape), [value])[0]
    return reshaped_constant(value, shape)


def _spread(rewriter: Rewriter, value: Value, kept: list[int], rank: int) -> Value:
    """An operand of a Map with axes of size 1 where the others get them."""
    shape: list[Dimension] = [1] * rank
    for size, axis in zip(value.shape[::-1], kept[::-1]):
        shape[axis] = size
    if value.constant is None:
        return rewriter.add(Reshape(tuple(shape)), [value])[0]
    return reshaped_constant(value, tuple(shape))
