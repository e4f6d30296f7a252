"""separate_volumes: a batch of volumes takes convolutions over three axes, and what is beside, one by one.

conv(%x: [n, 64, D, H, W], %w), map(...), ...   →   loop of n iterations over one volume [1, 64, D, H, W]

The images that a single volume becomes are parts of memory that overlap (`flatten_windows`); the slices of
several are copied, once for each tap along an axis, which takes longer than to read the weights again. Nodes
belong to the loop as long as volumes have nothing to do with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import dims
from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.expr import contains
from ..ir.graph import Graph, Node, Rewriter, TensorType, Value, make_node
from ..ir.ops import (
    Bind,
    Broadcast,
    Concat,
    Contract,
    Conv,
    Elements,
    Gather,
    If,
    Loop,
    Map,
    Op,
    Pad,
    Pool,
    Reduce,
    Reshape,
    RuntimeCall,
    Slice,
    Transpose,
)
from ..records import dataclass
from ..target import Target
from .flatten_windows import is_pointwise, overlap_alone

STEP_BYTES = 4000  # that are copied in the time of a step's beginning and end
LOOP_BYTES = 50_000  # in that of the loop's
VOLUME = 5  # axes of volumes: products over fewer are better done of all together


def separate_volumes(graph: Graph, target: Target) -> Graph:
    """graph with loops over volumes, where that spares more than it costs."""
    return everywhere(lambda inner: _separated(inner, target))(graph)


def _separated(graph: Graph, target: Target) -> Graph:
    while (found := _with_a_loop(graph, target)) is not None:
        graph = found
    return graph


def _with_a_loop(graph: Graph, target: Target) -> Graph | None:
    """graph with the first loop that pays; None where none does."""
    windows = [n for n in graph.nodes if overlap_alone(n, target) and not is_pointwise(n)]
    tried: set[Node] = set()
    for window in windows:
        count = window.inputs[0].shape[0]
        if count == 1 or window in tried:
            continue
        members, behind = _members(graph, count, _before(graph, window))
        taken = [n for n in windows if n in members]
        if _copied(taken) > _lost(list(members), count):
            return _between(graph, members, behind, count)
        tried.update(taken)
    return None


def _between(graph: Graph, members: dict[Node, Single], behind: set[Node], count: Dimension) -> Graph:
    """graph with its members as a loop, before what is behind it and after all others."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        if node not in members and node not in behind:
            rewriter.copy(node)
    _write_loop(rewriter, members, count)
    for node in graph.nodes:
        if node in behind:
            rewriter.copy(node)
    return rewriter.finish()


@dataclass(frozen=True)
class Single:
    """A node's op for one volume, and which of its operands have an axis of volumes, their first."""

    op: Op
    along: tuple[bool, ...]


def _before(graph: Graph, window: Node) -> set[Node]:
    """The nodes that come before the loop since a window needs them for all volumes: they make its weights,
    or lead to it by way of a node that does not treat volumes apart."""
    count = window.inputs[0].shape[0]
    apart, joint = {window.inputs[0]}, set(window.inputs[1:])
    found: set[Node] = set()
    for node in reversed(graph.nodes[: graph.nodes.index(window)]):
        single = None if joint.intersection(node.outputs) else _single(node, count)
        if single is not None and apart.intersection(node.outputs):
            for along, value in zip(single.along, node.inputs):
                (apart if along else joint).add(value)
        elif not (apart | joint).isdisjoint(node.outputs):
            found.add(node)
            joint.update(node.inputs)
    return found


def _members(graph: Graph, count: Dimension, before: set[Node]) -> tuple[dict[Node, Single], set[Node]]:
    """The nodes of the loop, which begins after those `before`, and those that need a result of it. Of those
    behind a node that tells sizes none is taken: it could be of such a size."""
    members: dict[Node, Single] = {}
    made: set[Value] = set()
    behind: set[Node] = set()
    late: set[Value] = set()
    sized = False
    for node in graph.nodes:
        if node in before and not sized:
            continue
        needs = [v in made or v in late for v in node.inputs]
        single = None if sized or not late.isdisjoint(node.inputs) else _single(node, count)
        if single is not None and all(along for along, v in zip(single.along, node.inputs) if v in made):
            members[node] = single
            made.update(node.outputs)
        elif any(needs) or sized:
            behind.add(node)
            late.update(node.outputs)
            sized = sized or isinstance(node.op, (Bind, If, Loop, RuntimeCall))
    return members, behind


def _single(node: Node, count: Dimension) -> Single | None:
    """What a node does to each of `count` volumes; None where they are not apart, or none of its operands has
    them."""
    values = (*node.inputs, *node.outputs)
    if len(node.outputs) != 1 or not all(isinstance(v.type, TensorType) for v in values):
        return None
    op, out = node.op, node.outputs[0].shape
    if not out or dims.equal(out[0], count) is not True:
        return None
    first = (True, *(False for _ in node.inputs[1:]))
    found: Single | None = None
    match op:
        case Conv(epilogue=None) | Pool():
            found = Single(op, first)
        case Map(shape=None) if not contains(op.body, "index", "check"):
            found = Single(op, _along(node, len(out)))
        case Reduce(axes=axes) if 0 not in axes and len(node.inputs) == 1:
            found = Single(op, first)
        case Concat(axis=axis) if axis != 0:
            found = Single(op, tuple(True for _ in node.inputs))
        case Pad(before=before, after=after) if before[0] == after[0] == 0:
            found = Single(op, first)
        case Slice(starts=starts, sizes=sizes, steps=steps) if (starts[0], steps[0]) == (0, 1):
            found = Single(replace(op, sizes=(1, *sizes[1:])), first)
        case Transpose(perm=perm) if perm[0] == 0:
            found = Single(op, first)
        case Reshape(shape=shape):
            found = Single(Reshape((1, *shape[1:])), first)
        case Broadcast(shape=shape):
            found = Single(Broadcast((1, *shape[1:])), _along(node, len(shape)))
        case Contract(lhs=lhs, rhs=rhs, out=made, epilogue=None):
            apart = lhs[:1] == made[:1] and lhs[0] not in lhs[1:] + rhs + made[1:] and len(lhs) >= VOLUME
            found = Single(op, first) if apart else None
    if found is None or not any(found.along):
        return None
    there = all(
        v.rank > 0 and dims.equal(v.shape[0], count) is True for a, v in zip(found.along, node.inputs) if a
    )
    return found if there else None


def _along(node: Node, rank: int) -> tuple[bool, ...]:
    """Which operands of a node of that rank have the first axis of a result of several volumes."""
    return tuple(v.rank == rank and v.shape[0] != 1 for v in node.inputs)


def _copied(windows: Sequence[Node]) -> float:
    """Bytes that are written and read where volumes are not apart."""
    taps = [min(dims.numbers(node.inputs[1].shape[2:])) for node in windows]
    return sum(2 * count * dims.typical(node.inputs[0].tensor.nbytes) for count, node in zip(taps, windows))


def _lost(members: Sequence[Node], count: Dimension) -> float:
    """Bytes that could be copied in the time that a loop takes besides: weights that are read again for each
    volume but the first, and steps."""
    weights = {v for node in members for v in node.inputs if v.constant is not None}
    again = sum(dims.typical(v.tensor.nbytes) for v in weights) + STEP_BYTES * len(members)
    return max(0, dims.typical(count) - 1) * again + LOOP_BYTES


def _write_loop(rewriter: Rewriter, members: dict[Node, Single], count: Dimension) -> None:
    """The members as the body of a loop; what others read of their results is collected."""
    iteration, condition = Value(TensorType("int64", ())), Value(TensorType("bool", ()))
    nodes: list[Node] = []
    operands: dict[Value, Value] = {}  # of the loop, and what stands for them in its body
    volumes: dict[Value, Value] = {}  # of what there is of all volumes that of one

    def add(op: Op, *inputs: Value, origin: str = "", name: str = "") -> Value:
        nodes.append(make_node(op, inputs, origin, [name]))
        return nodes[-1].outputs[0]

    def inside(value: Value) -> Value:
        if value.constant is not None:
            return value
        outer = rewriter.of(value)
        return operands.setdefault(outer, Value(outer.type, outer.name))

    def volume(value: Value, origin: str) -> Value:
        if value not in volumes:
            one = add(Gather("axis"), inside(value), iteration, origin=origin)
            volumes[value] = add(Reshape((1, *one.shape)), one, origin=origin)
        return volumes[value]

    for node, single in members.items():
        inputs = [
            volume(v, node.origin) if along else inside(v) for along, v in zip(single.along, node.inputs)
        ]
        volumes[node.outputs[0]] = add(single.op, *inputs, origin=node.origin, name=node.outputs[0].name)
    read = {v for node in rewriter.graph.nodes if node not in members for v in node.inputs}
    read.update(rewriter.graph.outputs)
    results = [node.outputs[0] for node in members if node.outputs[0] in read]
    collected = [add(Reshape(volumes[v].shape[1:]), volumes[v]) for v in results]
    body = Graph((iteration, condition, *operands.values()), (condition, *collected), tuple(nodes))
    (trips,) = rewriter.add(Elements((count,), ()), ())
    (begins,) = rewriter.add(Elements((1,), (), "bool"), ())
    types = tuple(v.type for v in results)
    origin = next(iter(members)).origin
    made = rewriter.add(Loop(body, 0, types), [trips, begins, *operands], origin, [v.name for v in results])
    rewriter.replace(results, made)
