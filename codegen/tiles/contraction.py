"""The normal form of a Contract: a matrix product C[m, n] = A[m, k] * B[k, n] under outer axes.

Labels become axes with a stride for every operand; neighbouring axes that lie in memory like one are
merged. C's innermost axis is n, so B is the operand that has it: lhs and rhs swap roles where needed.
What is left of rows, columns and batch are outer axes, over which the product is repeated. A convolution of
single pixels is such a product too, of dense images.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from string import ascii_uppercase

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node, Value
from ...ir.ops import Attention, Contract, Conv
from ...ir.stored import half_weights
from ...records import dataclass
from . import epilogue as epilogues
from . import microkernel as mk
from .strides import broadcast_stride, continues, row_major

REALS = {"float32", "float64"}  # types of which a convolution is computed as a product

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


def contraction_of(node: Node, of_halves: bool = False) -> Node[Contract] | None:
    """The node, if it is a Contract; of a convolution of single pixels, whose images are dense, one that
    computes the same: the columns are its pixels. `of_halves`: only a convolution whose weights are stored as
    halves, which else is none: its kernel packs them."""
    op = node.op
    if isinstance(op, Contract):
        return None if of_halves else node
    if not isinstance(op, Conv) or op.transposed or op.groups != 1 or op.zero or op.narrow:
        return None
    x, w = node.inputs[:2]
    taps = (*w.shape[2:], *op.strides)
    if (half_weights(w.constant) is not None) != of_halves or len(taps) > len(ascii_uppercase):
        return None
    if set(taps) != {1} or op.padded or not {x.dtype, w.dtype} == {op.accumulate} <= REALS:
        return None
    rank = len(op.strides)
    pixels, ones = ascii_uppercase[:rank], ascii_uppercase[rank : 2 * rank]
    product = Contract(f"nc{pixels}", f"oc{ones}", f"no{pixels}", op.accumulate, op.epilogue, op.exact)
    return Node(product, node.inputs, tuple(Value(v.type, v.name) for v in node.outputs), node.origin)


def product_of(node: Node) -> Product | None:
    """The normal form of a Contract. None where it has none: C's innermost axis is one of the batch,
    a label is summed over in one operand alone, or an operand of the epilogue is, along n, neither
    contiguous nor one element."""
    if not isinstance(node.op, Contract) or not _is_plain(node):
        return None
    sizes = sizes_of(node)
    columns = _columns(node.op, sizes)
    if columns is None or not _sums_both(node.op, sizes):
        return None
    product = _product(node, sizes, columns is node.op.lhs)
    return product if _runs_along(product.n) else None


def tiled_product(node: Node) -> Product | None:
    """The normal form of a Contract that register tiles compute: they add up its elements as they are, and
    can do what its epilogue does."""
    product = product_of(node)
    if product is None or node.op.rounded or not epilogues.supported(node.op.epilogue):
        return None
    return product if mk.supported(product.lhs, product.rhs, product.accumulate) else None


def _is_plain(node: Node[Contract]) -> bool:
    """Whether all operands are dense and none has a label twice."""
    op = node.op
    dense = all(v.tensor.layout is None for v in (*node.inputs, *node.outputs))
    return dense and all(len(set(labels)) == len(labels) for labels in (op.lhs, op.rhs, op.out))


def _sums_both(op: Contract, sizes: dict[str, Dimension]) -> bool:
    """Whether what is summed over is an axis of both operands."""
    return all((c in op.lhs) == (c in op.rhs) for c in op.lhs + op.rhs if sizes[c] != 1 and c not in op.out)


def _runs_along(n: Axis) -> bool:
    """Whether C is contiguous along n, and each operand of the epilogue is or repeats."""
    contiguous = n.size == 1 or dims.equal(n.strides[C], 1) is True
    return contiguous and all(stride in (0, 1) for stride in n.strides[3:])


def _product(node: Node[Contract], sizes: dict[str, Dimension], swapped: bool) -> Product:
    op = node.op
    a, b = (1, 0) if swapped else (0, 1)
    left, right = (op.rhs, op.lhs) if swapped else (op.lhs, op.rhs)
    constant = node.inputs[b].constant is not None
    axes = _axes(node, sizes, swapped)
    unit = Axis("", 1, (0,) * (1 + len(node.inputs)))
    kept = [label for label in (*op.out, *left, *right) if sizes[label] != 1]
    # A constant B is packed anew, so its strides do not matter for merging.
    fixed = {B} if constant else set()

    def merged(labels: Iterable[str]) -> list[Axis]:
        return _merged([axes[label] for label in labels], fixed)

    out = [label for label in op.out if label in kept]
    rows = merged(c for c in out if c in left and c not in right)
    across = merged(c for c in out if c in right and c not in left)
    shared = merged(c for c in out if c in left and c in right)
    depth = merged(dict.fromkeys(c for c in kept if c not in op.out)) or [unit]
    n = across.pop() if across else unit
    m = rows.pop(_tile_axis(rows)) if rows else unit
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


def sizes_of(node: Node[Contract]) -> dict[str, Dimension]:
    """The size of each label."""
    op = node.op
    sizes: dict[str, Dimension] = {}
    for labels, value in ((op.lhs, node.inputs[0]), (op.rhs, node.inputs[1]), (op.out, node.outputs[0])):
        for label, size in zip(labels, value.shape, strict=True):
            if label in op.repeated or not isinstance(sizes.get(label), int):
                sizes[label] = size
    return sizes


def steps_of(
    op: Contract | Attention,
    labels: str,
    shape: Sequence[Dimension],
    sizes: dict[str, Dimension],
    step: Dimension = 1,
) -> list[tuple[str, Dimension]]:
    """From one element of an operand to the next along each of its axes, in units of which an element has
    `step`: 0 where it repeats, which only the run knows of some."""
    strides = zip(labels, shape, row_major(shape, step), strict=True)
    return [
        (label, broadcast_stride(stride, size, sizes[label]) if label in op.repeated else stride)
        for label, size, stride in strides
    ]


def _columns(op: Contract, sizes: dict[str, Dimension]) -> str | None:
    """The operand, lhs or rhs, that alone has the innermost axis of the result; rhs where there is none."""
    last = next((label for label in reversed(op.out) if sizes[label] != 1), None)
    if last is None or (last in op.rhs and last not in op.lhs):
        return op.rhs
    return op.lhs if last not in op.rhs else None


def _axes(node: Node, sizes: dict[str, Dimension], swapped: bool) -> dict[str, Axis]:
    op, values = node.op, node.inputs
    operands = [(op.lhs, values[0]), (op.rhs, values[1])][:: -1 if swapped else 1]
    operands.append((op.out, node.outputs[0]))
    tables = [dict(steps_of(op, labels, value.shape, sizes)) for labels, value in operands]
    for value in values[2:]:
        tail = op.out[len(op.out) - value.rank :]
        tables.append(
            {
                label: broadcast_stride(stride, size, sizes[label])
                for label, size, stride in zip(tail, value.shape, row_major(value.shape))
            }
        )
    return {label: Axis(label, size, tuple(t.get(label, 0) for t in tables)) for label, size in sizes.items()}


def _merged(axes: Sequence[Axis], ignored: set[int]) -> list[Axis]:
    """axes, outermost first, with neighbours joined that every operand, but the ignored, steps
    through as if they were one."""
    merged: list[Axis] = []
    for axis in axes:
        heeded = [k for k in range(len(axis.strides)) if k not in ignored]
        steps = [axis.strides[k] for k in heeded]
        if merged and continues([merged[-1].strides[k] for k in heeded], steps, axis.size):
            labels, size = merged[-1].labels + axis.labels, merged[-1].size * axis.size
            merged[-1] = Axis(labels, size, axis.strides)
        else:
            merged.append(axis)
    return merged


def _tile_axis(rows: Sequence[Axis]) -> int:
    """Which axis of the rows the tiles cut: the longest, of equal ones the innermost."""
    return max(range(len(rows)), key=lambda k: (dims.typical(rows[k].size), k))


def itemsizes(product: Product, stored: str | None = None) -> tuple[int, ...]:
    """Bytes of the elements of A, B, C and the epilogue's operands; of B as it is `stored` in panels."""
    names = (product.lhs, stored or product.rhs, product.result, *product.extra)
    return tuple(dtypes.itemsize(name) for name in names)
