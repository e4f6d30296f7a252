"""group_heads: heads of queries that share keys and values attend to them as they are, not to copies.

attention(%q: [b, 8, s, 64], reshape(broadcast(%k: [b, 2, 1, t, 64]) shape=(b, 2, 4, t, 64)), ...)
    →   attention(%q: [b, 2, 4, s, 64], %k: [b, 2, t, 64], ...) q=bhgqd k=bhkd

Exporters write grouped heads (Ainslie et al., GQA, 2023) as ordinary ones, and repeat keys and values for
each head of a group, the whole state at each token. What lies between is undone: the axis of heads becomes
two, of which keys and values lack the one along which they repeat.
"""

from __future__ import annotations

from dataclasses import replace
from string import ascii_letters

from ..ir import dims, expr
from ..ir.everywhere import everywhere
from ..ir.graph import Graph, Node, Rewriter, Value
from ..ir.obligations import Shape
from ..ir.ops import Attention, Broadcast, Map, Reshape, Transpose
from ..records import dataclass

OWN = "qkde"  # the labels of Attention that are no batch axes


@everywhere
def group_heads(graph: Graph) -> Graph:
    """graph in which no Attention reads keys and values that repeat for several heads."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        grouped = _grouped(rewriter, node) if isinstance(node.op, Attention) else None
        if grouped is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, [grouped])
    return rewriter.finish()


@dataclass(frozen=True)
class _Split:
    """An axis of heads as two, the outer of the label that both had, and which of them keys repeat along."""

    outer: str
    inner: str
    sizes: Shape
    repeated: str

    def labels(self, whole: str) -> str:
        return whole.replace(self.outer, self.outer + self.inner)

    def shape(self, axis: int, whole: Shape) -> Shape:
        """Of a value whose axis is split, or is 1 for all heads."""
        parts = (1, 1) if whole[axis] == 1 else self.sizes
        return (*whole[:axis], *parts, *whole[axis + 1 :])


@dataclass(frozen=True)
class _Repeated:
    """Keys or values that repeat: before they do, without that axis, as labelled, and the Maps behind."""

    split: _Split
    source: Value
    shape: Shape
    labels: str
    maps: tuple[Map, ...]

    def once(self, rewriter: Rewriter, node: Node) -> Value:
        (value,) = rewriter.add(Reshape(self.shape), [rewriter.of(self.source)], node.origin)
        for op in reversed(self.maps):
            (value,) = rewriter.add(op, [value], node.origin)
        return value


def _grouped(rewriter: Rewriter, node: Node[Attention]) -> Value | None:
    """The result of an Attention whose heads are grouped, where both its keys and its values repeat alike."""
    op, (q, k, v, *bias) = node.op, node.inputs
    inner = next(c for c in ascii_letters if c not in {*op.q, *op.k, *op.v, *OWN})
    keys, values = _repeated(k, op.k, inner), _repeated(v, op.v, inner)
    if keys is None or values is None or keys.split != values.split or keys.split.outer not in op.q:
        return None
    split = keys.split
    shapes = [_bias_shape(op, split, value) for value in bias]
    if None in shapes:
        return None
    shapes.insert(0, split.shape(op.q.index(split.outer), q.shape))
    queries, *biases = (
        rewriter.add(Reshape(shape), [rewriter.of(value)], node.origin)[0]
        for value, shape in zip((q, *bias), shapes, strict=True)
        if shape is not None
    )
    form = replace(op, q=split.labels(op.q), k=keys.labels, v=values.labels, out=split.labels(op.out))
    operands = [queries, keys.once(rewriter, node), values.once(rewriter, node), *biases]
    result = rewriter.add(form, operands, node.origin)
    return rewriter.add(Reshape(node.outputs[0].shape), result, node.origin, [node.outputs[0].name])[0]


def _bias_shape(op: Attention, split: _Split, bias: Value) -> Shape | None:
    """A bias' shape with the axis of heads as two; None where only the run knows whether it has one."""
    batch = [label for label in op.q if label not in OWN]
    axis = bias.rank - (len(batch) + 2 - batch.index(split.outer))
    if axis < 0:
        return bias.shape
    whole = bias.shape[axis]
    known = whole == 1 or dims.equal(whole, dims.product(split.sizes)) is True
    return split.shape(axis, bias.shape) if known else None


def _repeated(value: Value, labels: str, inner: str) -> _Repeated | None:
    """Keys or values, whose axes have these labels, before they repeat along one of two axes that a Reshape
    makes one of; Transposes and what a Map does to each number may lie between."""
    maps: list[Map] = []
    names: list[str] | None = None
    split = None
    while (node := value.producer) is not None and not isinstance(node.op, Broadcast):
        op, source = node.op, node.inputs[0]
        if isinstance(op, Map) and len(node.inputs) == 1 and op.shape is None:
            if expr.contains(op.body, "index"):
                return None
            maps.append(op)
        elif isinstance(op, Reshape) and names is None:
            axis = _merged(source.shape, value.shape)
            if axis is None or labels[axis] in OWN:
                return None
            split = labels[axis], source.shape[axis : axis + 2]
            names = [*labels[: axis + 1], inner, *labels[axis + 1 :]]
        elif isinstance(op, Transpose) and names is not None:
            names = [names[axis] for axis in op.inverse.perm]
        else:
            return None
        value = source
    if node is None or names is None or split is None:
        return None
    before = node.inputs[0]
    outer, sizes = split
    axes = [a for a, (one, many) in enumerate(zip(before.shape, value.shape)) if one != many]
    if before.rank != value.rank or len(axes) != 1 or names[axes[0]] not in (outer, inner):
        return None
    kept = [a for a in range(before.rank) if a not in axes]
    shape, rest = tuple(before.shape[a] for a in kept), "".join(names[a] for a in kept)
    return _Repeated(_Split(outer, inner, sizes, names[axes[0]]), before, shape, rest, tuple(maps))


def _merged(parts: Shape, whole: Shape) -> int | None:
    """The axis of the whole of which the parts have two, where all others are the same."""
    for axis in range(len(whole)):
        if parts == (*whole[:axis], *parts[axis : axis + 2], *whole[axis + 1 :]):
            return axis
    return None
