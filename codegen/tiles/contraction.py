"""The normal form of a Contract: a matrix product C[m, n] = A[m, k] * B[k, n] under outer axes.

Labels become axes with a stride for every operand; neighbouring axes that lie in memory like one are
merged. C's innermost axis is n, so B is the operand that has it: lhs and rhs swap roles where needed.
What is left of rows, columns and batch are outer axes, over which the product is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node
from ...ir.ops import Contract

A, B, C = 0, 1, 2  # operands of an axis' strides; the epilogue's operands follow


@dataclass(frozen=True)
class Axis:
    """A loop of `size` steps over `labels`; `strides` in elements: of A, B, C and each operand of the
    epilogue."""

    labels: str
    size: Dimension
    strides: tuple[Dimension, ...]


@dataclass(frozen=True)
class Product:
    """For every index of the outer axes: C[m, n] = epilogue(sum over k of A[m, k] * B[k, n], ...).

    `operands` are the node's inputs that play A and B. The axes of k are outermost first; `extra` are
    the element types of the epilogue's operands, the node's inputs 2 and following."""

    operands: tuple[int, int]
    outer: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: tuple[Axis, ...]
    lhs: str
    rhs: str
    accumulate: str
    result: str
    extra: tuple[str, ...]
    constant: bool  # B is known at compile time

    @cached_property
    def depth(self) -> Dimension:
        return dims.product(axis.size for axis in self.k)

    @cached_property
    def repeats(self) -> Dimension:
        return dims.product(axis.size for axis in self.outer)

    @cached_property
    def panels_axes(self) -> tuple[Axis, ...]:
        """The outer axes along which B differs."""
        return tuple(axis for axis in self.outer if axis.strides[B] != 0)


def product_of(node: Node) -> Product | None:
    """The normal form of a Contract. None where it has none: C's innermost axis is one of the batch,
    a label is summed over in one operand alone, or an operand of the epilogue is, along n, neither
    contiguous nor one element."""
    op = node.op
    if not isinstance(op, Contract) or any(
        v.tensor.layout is not None for v in (*node.inputs, *node.outputs)
    ):
        return None
    if any(len(set(labels)) != len(labels) for labels in (op.lhs, op.rhs, op.out)):
        return None
    sizes = _sizes(node)
    columns = _columns(op, sizes)
    if columns is None:
        return None
    swapped = columns is op.lhs
    left, right = (op.rhs, op.lhs) if swapped else (op.lhs, op.rhs)
    constant = node.inputs[0 if swapped else 1].constant is not None
    axes = _axes(node, sizes, swapped)
    unit = Axis("", 1, (0,) * (1 + len(node.inputs)))
    kept = [label for label in (*op.out, *left, *right) if sizes[label] != 1]
    summed = list(dict.fromkeys(label for label in kept if label not in op.out))
    if any((label in left) != (label in right) for label in summed):
        return None
    # A constant B is packed anew, so its strides do not matter for merging.
    fixed = {B} if constant else set()
    rows = _merged([axes[x] for x in op.out if x in kept and x in left and x not in right], fixed)
    across = _merged([axes[x] for x in op.out if x in kept and x in right and x not in left], fixed)
    shared = _merged([axes[x] for x in op.out if x in kept and x in left and x in right], fixed)
    depth = _merged([axes[x] for x in summed], fixed) or [unit]
    n = across.pop() if across else unit
    m = rows.pop(_tile_axis(rows)) if rows else unit
    if dims.equal(n.strides[C], 1) is not True and n.size != 1:
        return None
    if any(stride not in (0, 1) for stride in n.strides[3:]):
        return None
    a, b = (1, 0) if swapped else (0, 1)
    return Product(
        (a, b),
        (*shared, *rows, *across),
        m,
        n,
        tuple(depth),
        node.inputs[a].dtype,
        node.inputs[b].dtype,
        op.accumulate,
        node.outputs[0].dtype,
        tuple(v.dtype for v in node.inputs[2:]),
        constant,
    )


def _sizes(node: Node) -> dict[str, Dimension]:
    op, sizes = node.op, {}
    for labels, value in ((op.lhs, node.inputs[0]), (op.rhs, node.inputs[1]), (op.out, node.outputs[0])):
        for label, size in zip(labels, value.shape, strict=True):
            if not isinstance(sizes.get(label), int):
                sizes[label] = size
    return sizes


def _columns(op: Contract, sizes: dict[str, Dimension]) -> str | None:
    """The operand, lhs or rhs, that alone has the innermost axis of the result; rhs where there is none."""
    last = next((label for label in reversed(op.out) if sizes[label] != 1), None)
    if last is None or (last in op.rhs and last not in op.lhs):
        return op.rhs
    return op.lhs if last not in op.rhs else None


def strides_of(shape: Sequence[Dimension]) -> list[Dimension]:
    """Of a dense row-major array, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = step * size
    return strides


def _axes(node: Node, sizes: dict[str, Dimension], swapped: bool) -> dict[str, Axis]:
    op, values = node.op, node.inputs
    operands = [(op.lhs, values[0]), (op.rhs, values[1])][:: -1 if swapped else 1]
    operands.append((op.out, node.outputs[0]))
    tables = [dict(zip(labels, strides_of(value.shape))) for labels, value in operands]
    for value in values[2:]:
        tail = op.out[len(op.out) - value.rank :]
        tables.append(
            {
                label: broadcast_stride(size, sizes[label], stride)
                for label, size, stride in zip(tail, value.shape, strides_of(value.shape))
            }
        )
    return {label: Axis(label, size, tuple(t.get(label, 0) for t in tables)) for label, size in sizes.items()}


def broadcast_stride(size: Dimension, whole: Dimension, stride: Dimension) -> Dimension:
    """0 along an axis that repeats; the run tells where only it knows."""
    if size == 1:
        return 0
    if isinstance(size, int) or dims.equal(size, whole):
        return stride
    return stride * (1 - dims.compare("eq", size, 1))


def _merged(axes: Sequence[Axis], ignored: set[int]) -> list[Axis]:
    """axes, outermost first, with neighbours joined that every operand, but the ignored, steps
    through as if they were one."""
    merged: list[Axis] = []
    for axis in axes:
        if merged and all(
            k in ignored or dims.equal(outer, inner * axis.size) is True
            for k, (outer, inner) in enumerate(zip(merged[-1].strides, axis.strides))
        ):
            labels, size = merged[-1].labels + axis.labels, merged[-1].size * axis.size
            merged[-1] = Axis(labels, size, axis.strides)
        else:
            merged.append(axis)
    return merged


def _tile_axis(rows: Sequence[Axis]) -> int:
    """Which axis of the rows the tiles cut: the longest, of equal ones the innermost."""
    return max(range(len(rows)), key=lambda k: (dims.typical(rows[k].size), k))


def itemsizes(product: Product) -> tuple[int, ...]:
    """Bytes of the elements of A, B, C and the epilogue's operands."""
    names = (product.lhs, product.rhs, product.result, *product.extra)
    return tuple(dtypes.itemsize(name) for name in names)
