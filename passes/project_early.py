"""project_early: a 1x1 convolution moves before what makes its image larger.

conv(concat(%x, resized(%y)), W)   →   add(conv(%x, V), resized(conv(%y, U)))
    V and U are W's columns for %x and for %y

Resizing weighs pixels and treats all channels alike, the convolution weighs channels and treats all pixels
alike: which of the two comes first is the same, but for rounding, and the one before has fewer pixels to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import dims, expr
from ..ir.everywhere import everywhere
from ..ir.expr import Expr
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value
from ..ir.ops import Concat, Conv, Gather, Map
from ..records import dataclass

LEAST = 64  # products that every result must save: with fewer, adding what is resized takes longer


@everywhere
def project_early(graph: Graph) -> Graph:
    """graph with 1x1 convolutions of images as they were before they were made larger."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        parts = _parts(node, rewriter) if _projects(node) else []
        if any(part.steps for part in parts):
            rewriter.replace(node.outputs, [_projected(rewriter, node, parts)])
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _projects(node: Node) -> bool:
    """Whether a node mixes channels of each pixel, of float32, with constant weights, and nothing else."""
    op = node.op
    if not isinstance(op, Conv) or op.exact or op.epilogue is not None or {*op.strides} != {1}:
        return False
    x, w = node.inputs[:2]
    known = w.constant is not None and {x.dtype, w.dtype, op.accumulate} == {"float32"}
    return known and op.is_pointwise(w.tensor)


@dataclass(frozen=True)
class _Part:
    """Channels `first`.. of an image: `steps`, in order, make them of `source`."""

    first: int
    value: Value
    source: Value
    steps: tuple[Node, ...] = ()

    @property
    def count(self) -> int:
        return dims.number(self.value.shape[1])


def _parts(node: Node, rewriter: Rewriter) -> list[_Part]:
    """What the image of a 1x1 convolution is joined of."""
    image = rewriter.of(node.inputs[0])
    values: Sequence[Value] = (image,)
    join = image.producer
    if (
        join is not None
        and isinstance(join.op, Concat)
        and join.op.axis == 1
        and rewriter.readers[image] == 1
    ):
        values = join.inputs
    if not all(isinstance(value.shape[1], int) for value in values):
        return []
    parts, first = [], 0
    for value in values:
        part = _grown(value, first, rewriter) if rewriter.readers[value] == 1 else _Part(first, value, value)
        parts.append(part if _saves(part, node) else _Part(first, value, value))
        first += part.count
    return parts


def _grown(value: Value, first: int, rewriter: Rewriter) -> _Part:
    """A part with the steps that resized it, which nobody else reads."""
    source, steps = value, list[Node]()
    while (step := _step(source, rewriter)) is not None:
        source, nodes = step
        steps = [*nodes, *steps]
    return _Part(first, value, source, tuple(steps))


def _step(value: Value, rewriter: Rewriter) -> tuple[Value, list[Node]] | None:
    """Of what, and by which nodes, a value is made whose pixels are weighed along an axis, alike in all
    channels."""
    made = value.producer
    if made is None:
        return None
    if _picks(made):
        return made.inputs[0], [made]
    if not isinstance(made.op, Map) or made.op.shape is not None:
        return None
    picked = [v for v in made.inputs if v.constant is None]
    nodes = [v.producer for v in picked if v.producer is not None and _picks(v.producer)]
    sources = {n.inputs[0] for n in nodes}
    constants = [v for v in made.inputs if v.constant is not None]
    alike = all(v.rank < value.rank - 1 or v.shape[-value.rank + 1] == 1 for v in constants)
    if len(nodes) < len(picked) or len(sources) != 1 or not alike or not _is_linear(made):
        return None
    (source,) = sources
    if any(rewriter.readers[v] != 1 for v in picked) or rewriter.readers[source] != len(picked):
        return None
    return source, [*nodes, made]


def _picks(node: Node) -> bool:
    """Whether a node picks rows or columns of an image."""
    op = node.op
    return isinstance(op, Gather) and op.form == "axis" and op.axis >= 2 and node.inputs[1].rank == 1


def _is_linear(node: Node[Map]) -> bool:
    """Whether a Map is a sum of operands times constants."""
    degrees: dict[Expr, int | None] = {}
    for part in expr.topological(node.op.body):
        degrees[part] = _degree(part, node.inputs, [degrees[a] for a in part.args])
    return degrees[node.op.body] == 1


def _degree(part: Expr, inputs: Sequence[Value], args: list[int | None]) -> int | None:
    """0 for what is constant, 1 for sums of operands times constants, None for all else."""
    match part.op, args:
        case "input", _:
            return 1 if inputs[part.value].constant is None else 0
        case "const", _:
            return 0
        case (("add" | "sub"), (a, b)) if a == b:
            return a
        case "mul", ((0, degree) | (degree, 0)):
            return degree
    return None


def _saves(part: _Part, node: Node) -> bool:
    """Whether the convolution has that many products fewer before the steps, and its results, which they then
    make larger, are not many more than its channels."""
    pixels, source = (dims.typical(dims.product(v.shape[2:])) for v in (part.value, part.source))
    outputs = dims.number(node.outputs[0].shape[1])
    return part.count * (pixels - source) >= LEAST * pixels and outputs <= 2 * part.count


def _projected(rewriter: Rewriter, node: Node[Conv], parts: Sequence[_Part]) -> Value:
    """The sum of the convolutions of all parts."""
    plain = [part for part in parts if not part.steps]
    terms = []
    if plain:
        image = plain[0].value
        if len(plain) > 1:
            (image,) = rewriter.add(Concat(1), [part.value for part in plain], node.origin)
        terms.append(rewriter.add(node.op, [image, _weights(node, plain)], node.origin)[0])
    for part in parts:
        if part.steps:
            (value,) = rewriter.add(node.op, [part.source, _weights(node, [part])], node.origin)
            terms.append(_resized(rewriter, part, value))
    if len(terms) == 1:
        return terms[0]
    body = expr.sum_of(expr.input_(k, "float32") for k in range(len(terms)))
    return rewriter.add(Map(body), terms, node.origin, [node.outputs[0].name])[0]


def _resized(rewriter: Rewriter, part: _Part, value: Value) -> Value:
    """The steps of a part over another source."""
    stands = {part.source: value}
    for step in part.steps:
        outputs = rewriter.add(step.op, [stands.get(v, v) for v in step.inputs], step.origin)
        stands.update(zip(step.outputs, outputs))
    return stands[part.value]


def _weights(node: Node, parts: Sequence[_Part]) -> Value:
    """The weights of the channels of some parts."""
    weights = node.inputs[1].data
    shape = (weights.shape[0], sum(part.count for part in parts), *weights.shape[2:])

    def make() -> np.ndarray:
        array = weights.array
        return np.concatenate([array[:, part.first : part.first + part.count] for part in parts], axis=1)

    return constant_value(Constant(weights.dtype, shape, make))
