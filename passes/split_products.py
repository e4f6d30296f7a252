"""split_products: a product whose columns are read in parts becomes a product for each part.

%y = contract(%x, %w: [k, 3n]); slice(%y) starts=(0, 0) sizes=(m, n), slice(%y) starts=(0, n) ...
    →   contract(%x, %w[:, 0:n]), contract(%x, %w[:, n:2n]) ...

Exporters write queries, keys and values, or a gate and what it opens, as one product and take it apart. Parts
of rows are no views: each would be copied, behind a Transpose all of them, and nothing could enter the
product's epilogue. What lies between the product and a Slice is done to the part: a Map beside constants,
Reshapes that split the columns, Transposes.
"""

from __future__ import annotations

from ..ir import dims
from ..ir.everywhere import everywhere
from ..ir.expr import contains
from ..ir.graph import Constant, Graph, Node, Rewriter, Value, constant_value
from ..ir.obligations import Shape
from ..ir.ops import Contract, Map, Reshape, Slice, Transpose
from ..records import dataclass

COLUMNS = 64  # that a part has at least
WHOLE = 16  # of which its columns are a multiple, so that panels of weights have no padding
ROWS = 16  # that a product has at least: parts of one row are views, of few rows copied in no time


@everywhere
def split_products(graph: Graph) -> Graph:
    """graph without Slices of the columns of a product."""
    rewriter, parts, results = Rewriter(graph), dict[Node, _Part](), {*graph.outputs}
    for node in graph.nodes:
        if isinstance(node.op, Contract):
            parts |= _parts(node, rewriter, results)
        if node in parts:
            rewriter.replace(node.outputs, [parts[node].written(rewriter, node)])
        else:
            rewriter.copy(node)
    return rewriter.finish()


@dataclass(frozen=True)
class _Step:
    """A node between a product and a Slice, which of its result's axes has the columns, or the first of those
    that they are split into, and how many columns each of its places has."""

    node: Node
    axis: int
    unit: int


@dataclass(frozen=True)
class _Part:
    """The columns of a product that a Slice takes."""

    steps: tuple[_Step, ...]  # from the product on
    start: int
    size: int

    def written(self, rewriter: Rewriter, node: Node) -> Value:
        """The part, as the Slice `node` gives it. An axis of which it has one place is left out on the way,
        so that Transposes are as if the parts had never been one."""
        value, before, spared = node.inputs[0], None, self.spared
        names = [node.outputs[0].name]
        for k, step in enumerate(self.steps):
            op, inputs, gone = step.node.op, [value], spared is not None and k >= spared
            match op:
                case Contract(out=out):
                    inputs = [
                        self.taken(v, labels.index(out[-1]), 1)
                        if v.constant and out[-1] in labels
                        else rewriter.of(v)
                        for v, labels in zip(step.node.inputs, (op.lhs, op.rhs))
                    ]
                case Map():
                    rank = step.node.outputs[0].rank
                    inputs = [
                        value if v is before else self.beside(rewriter, v, step.axis - rank, step.unit)
                        for v in step.node.inputs
                    ]
                case Reshape(shape):
                    places = () if gone else (self.size // step.unit,)
                    op = Reshape((*shape[: step.axis], *places, *shape[step.axis + 1 :]))
                case Transpose(perm) if gone:
                    axis = perm[step.axis]
                    op = Transpose(tuple(p - (p > axis) for p in perm if p != axis))
            last = spared is None and step is self.steps[-1]
            (value,) = rewriter.add(op, inputs, step.node.origin, names if last else [])
            before = step.node.outputs[0]
        if spared is not None:
            (value,) = rewriter.add(Reshape(node.outputs[0].shape), [value], node.origin, names)
        return value

    @property
    def spared(self) -> int | None:
        """The step from which on an axis is left out: the last Reshape, where the part has one place of its
        axis and nothing but Transposes is behind."""
        for k in range(len(self.steps) - 1, -1, -1):
            op = self.steps[k].node.op
            if isinstance(op, Reshape):
                return k if self.size == self.steps[k].unit else None
            if not isinstance(op, Transpose):
                return None
        return None

    def taken(self, value: Value, axis: int, unit: int) -> Value:
        """The part of a constant along an axis."""
        whole, first, count = value.data, self.start // unit, self.size // unit
        shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
        places = (*[slice(None)] * axis, slice(first, first + count))
        made = Constant(value.dtype, dims.numbers(shape), lambda: whole.array[places], whole.splat)
        return constant_value(made)

    def beside(self, rewriter: Rewriter, value: Value, axis: int, unit: int) -> Value:
        """Of a Map's other operand, whose axes count from the last, what meets the part."""
        if value.rank < -axis or value.shape[axis] == 1:
            return rewriter.of(value)
        return self.taken(value, value.rank + axis, unit)


def _parts(product: Node[Contract], rewriter: Rewriter, results: set[Value]) -> dict[Node, _Part]:
    """The Slices that together are all that reads a product, and what each of them takes."""
    result, columns = product.outputs[0], _columns(product)
    if columns is None or dims.typical(dims.product(result.shape[:-1])) < ROWS:
        return {}
    found: dict[Node, _Part] = {}

    def follow(step: _Step) -> bool:
        """Notes the parts that are taken of a step's result; whether nothing else reads it."""
        steps.append(step)
        value = step.node.outputs[0]
        followed = value not in results and all(
            read(node, value, step) for node in rewriter.reading.get(value, ())
        )
        steps.pop()
        return followed

    def read(node: Node, value: Value, step: _Step) -> bool:
        axis, unit = step.axis, step.unit
        match node.op:
            case Slice(starts, sizes, strides):
                start, size = starts[axis], sizes[axis]
                whole = all(a == b for k, (a, b) in enumerate(zip(sizes, value.shape)) if k != axis)
                if not whole or {*strides} != {1} or not isinstance(start, int) or not isinstance(size, int):
                    return False
                found[node] = _Part(tuple(steps), start * unit, size * unit)
                return True
            case Transpose(perm):
                return follow(_Step(node, perm.index(axis), unit))
            case Reshape(shape):
                first = _split(value.shape, axis, shape)
                if first is None:
                    return False
                places = dims.number(value.shape[axis]) // dims.number(shape[first])
                return follow(_Step(node, first, unit * places))
            case Map(body, shape):
                others = [v for v in node.inputs if v is not value]
                return (
                    shape is None
                    and not contains(body, "index")
                    and node.outputs[0].shape == value.shape
                    and all(_is_beside(v, axis - value.rank) for v in others)
                    and follow(_Step(node, axis, unit))
                )
        return False

    steps: list[_Step] = []
    if not follow(_Step(product, result.rank - 1, 1)) or not found:
        return {}
    ends = 0
    for part in sorted(found.values(), key=lambda part: part.start):
        if part.start < ends or part.size < COLUMNS or part.size % WHOLE or part.size == columns:
            return {}
        ends = part.start + part.size
    return found


def _columns(product: Node[Contract]) -> int | None:
    """How many columns a plain product with a constant matrix has, the last axis of its result."""
    op, types = product.op, {product.op.accumulate, *(v.dtype for v in (*product.inputs, *product.outputs))}
    if op != Contract(op.lhs, op.rhs, op.out, "float32") or types != {"float32"} or not op.out:
        return None
    column, sides = op.out[-1], list(zip((op.lhs, op.rhs), product.inputs))
    for (labels, matrix), (others, _) in (sides, sides[::-1]):
        constant, size = matrix.constant, dict(zip(labels, matrix.shape)).get(column)
        if constant is None or constant.derivation is not None or not isinstance(size, int):
            continue
        if len(labels) == 2 and column not in others + op.out[:-1] and not set(labels) & set(op.out[:-1]):
            return size
    return None


def _is_beside(value: Value, axis: int) -> bool:
    """Whether what a Map reads beside a product is constant, or the same for all columns."""
    return value.constant is not None or value.rank < -axis or value.shape[axis] == 1


def _split(before: Shape, axis: int, after: Shape) -> int | None:
    """The first of the axes that a Reshape splits an axis into, which are it and nothing else."""
    outer, whole = dims.product(before[:axis]), before[axis]
    firsts = [k for k in range(len(after)) if dims.equal(dims.product(after[:k]), outer) is True]
    if not firsts or not isinstance(after[firsts[-1]], int) or whole == 0:
        return None
    first = firsts[-1]
    ends = range(first + 1, len(after) + 1)
    return first if any(dims.product(after[first:end]) == whole for end in ends) else None
