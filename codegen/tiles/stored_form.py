"""The form in which panels hold weights as they are stored, codes of 2, 4 or 8 bits or halves.

    ┌────────┬───────┬───────────────────────────────┐  a block along k: the scales of its columns, their
    │ scales │ zeros │ group 0 │ group 1 │ ...       │  zero points where not all have the same, its codes;
    └────────┴───────┴───────────────────────────────┘  number = (code - zero) * scale
A group is a word of 32 bits in the lane of each column: byte i has in its field f, from the lowest bit on,
the code of k + 4 f + i. One shift and one mask bring four neighbours along k into bytes, as dot products
want them. Of bfloat16 a group is two rows, k in the lower half of each word and k + 1 in the upper: one
instruction each makes them float32. Rows of float16 are groups by themselves.
"""

from __future__ import annotations

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import Contract, Reshape, Transpose
from ...ir.stored import Stored, half_weights, moved, stored_weights
from ...records import dataclass
from ...target import Ability, Target
from .. import costs
from .contraction import Product
from .packing import padded

WORD = 4  # bytes


@dataclass(frozen=True)
class Form:
    """How a panel of `depth` rows holds its elements: `bits` of a code, or `half`, the type of a float.
    `block`: rows that share parameters. `scaled`: whether there are scales (float32), of codes there always
    are. `zero`: of all codes; None where zero points, of the type `zeros`, are with the scales. `table`: the
    numbers of the codes, where they are not the integers."""

    depth: int
    block: int
    bits: int = 0
    half: str = ""
    scaled: bool = True
    zero: float | None = 0.0
    zeros: str = ""
    table: tuple[float, ...] = ()

    @property
    def group(self) -> int:
        """Rows that one load brings."""
        if self.bits:
            return 8 * WORD // self.bits
        return 2 if self.half == "bfloat16" else 1

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.block)

    @property
    def padded_depth(self) -> int:
        """With the rows that fill the last group."""
        return padded(self.depth, self.group)

    def parameter_bytes(self, width: int) -> int:
        """Of a block of so many columns, before its elements."""
        return width * (4 * self.scaled + (dtypes.itemsize(self.zeros) if self.zeros else 0))

    def group_bytes(self, width: int) -> int:
        return width * (WORD if self.group > 1 else dtypes.itemsize(self.half))

    @property
    def plain(self) -> bool:
        """Whether elements are the numbers."""
        return not self.bits and not self.scaled

    @property
    def is_exact_in_bfloat16(self) -> bool:
        """Whether elements, or codes less their zero points, have no more than the 8 bits of a bfloat16's
        significand."""
        if not self.bits:
            return self.plain and self.half == "bfloat16"
        zero = self.zero
        whole = self.zeros == "uint8" if zero is None else zero.is_integer() and 0 <= zero < 256
        return not self.table and whole

    @property
    def decoding(self) -> int:
        """Instructions that make numbers of a vector of elements."""
        return costs.DECODED if self.bits else costs.DECODED_HALF

    def block_bytes(self, width: int) -> int:
        """Of a block that is not cut short."""
        return self.parameter_bytes(width) + padded(self.block, self.group) // self.group * self.group_bytes(
            width
        )

    def panel_bytes(self, width: int) -> int:
        groups = self.padded_depth // self.group
        return self.blocks * self.parameter_bytes(width) + groups * self.group_bytes(width)


def stored_operand(node: Node[Contract], product: Product) -> Stored | None:
    """What is stored behind a product's constant B, as [K, N]; None where it has nothing or another shape."""
    if not product.constant or product.panels_axes or len(product.k) > 1:
        return None
    operand = product.operands[1]
    found = stored_weights(node.inputs[operand].data)
    if found is None:
        return None
    labels = node.op.lhs if operand == 0 else node.op.rhs
    order = [labels.index(label) for axis in (*product.k, product.n) for label in axis.labels]
    order += [axis for axis in range(len(labels)) if axis not in order]  # those of size 1
    shape = tuple(found.elements.shape[axis] for axis in order)
    crossed = moved(found, Transpose(tuple(order)), shape)
    matrix = dims.numbers((product.depth, product.n.size))
    return None if crossed is None else moved(crossed, Reshape(matrix), matrix)


def stored_form(node: Node[Contract], product: Product, target: Target) -> Form | None:
    """How B lies in panels as it is stored; None where tiles cannot decode it."""
    if (product.lhs, product.accumulate) != ("float32", "float32"):
        return None
    found = stored_operand(node, product)
    return None if found is None else form_of(found, target)


def form_of(found: Stored, target: Target) -> Form | None:
    """The form of weights whose rows, which are summed over, are their axis 0; None where they have none:
    parameters vary within a group, or are those of several columns."""
    if found.block and found.axis != 0:
        return None
    depth = found.elements.shape[0]
    block = min(found.block, depth) if found.block and found.scale.shape[0] > 1 else depth
    several = max(found.scale.shape[0], found.zero.shape[0])
    if several not in (1, -(-depth // block)):
        return None
    dtype = found.elements.dtype
    if dtype in dtypes.HALVES:
        if not converts(dtype, target):
            return None
        ones = found.scale.size == 1 and found.scale.item() == 1
        half = Form(depth, block, half=dtype, scaled=not ones)
        return None if found.zero.any() or (block % half.group and block != depth) else half
    bits = 8 if dtypes.bits(dtype) > 4 else dtypes.bits(dtype)
    form = Form(depth, block, bits)
    if block % form.group and block != depth:
        return None
    zero = found.zero + _offset(dtype)
    if found.table:
        has = Ability.PERMUTE in target.abilities
        return Form(depth, block, bits, table=found.table) if bits <= 4 and has else None
    if (zero == zero.flat[0]).all():
        return Form(depth, block, bits, zero=float(zero.flat[0]))
    whole = (zero == np.rint(zero)).all() and zero.min() >= 0 and zero.max() < 1 << bits
    return Form(depth, block, bits, zero=None, zeros="uint8" if whole else "float32")


def converts(dtype: str, target: Target) -> bool:
    """Whether halves become numbers by an instruction or two."""
    return dtype == "bfloat16" or Ability.CONVERT_HALF in target.abilities


def stored_halves(constant: Constant | None, target: Target) -> str | None:
    """The type of the halves that weights are, where tiles read them as they are stored."""
    found = half_weights(constant)
    return found.dtype if found is not None and converts(found.dtype, target) else None


def _offset(dtype: str) -> int:
    """What makes codes of integers without a sign."""
    return -dtypes.integer_range(dtype)[0]


# Packing -----------------------------------------------------------------------------------------


def packed_panels(form: Form, found: Stored, width: int, lanes: int) -> Constant:
    """What `pack_stored` makes, when it is needed."""
    columns = padded(found.elements.shape[1], lanes)
    return Constant("uint8", (form.panel_bytes(columns),), lambda: pack_stored(form, found, width, lanes))


def pack_stored(form: Form, found: Stored, width: int, lanes: int) -> np.ndarray:
    """Weights [K, N] in panels of `width` columns, the last as wide as the lanes that it needs, as bytes."""
    elements, columns = found.elements.array, found.elements.shape[1]
    if form.bits and not found.table:
        moved = elements.astype(np.int16) + _offset(found.elements.dtype)
        elements = moved.astype(np.uint8)
    elif form.bits:
        elements = elements.view(np.uint8) & ((1 << form.bits) - 1)
    shape = form.blocks, columns
    scale = np.broadcast_to(_normal(found.scale), shape)
    zero = np.broadcast_to(found.zero + (_offset(found.elements.dtype) if form.zeros else 0), shape)
    parts = []
    for first in range(0, columns, width):
        wide = padded(min(width, columns - first), lanes)
        each = slice(first, first + width)
        whole = form.depth // form.block
        for begin, count, size in (
            (0, whole, form.block),
            (whole, form.blocks - whole, form.depth % form.block),
        ):
            rows = slice(begin * form.block, begin * form.block + count * size)
            if count:
                codes = elements[rows, each].reshape(count, size, -1)
                blocks = slice(begin, begin + count)
                parts.append(_packed(form, codes, scale[blocks, each], zero[blocks, each], wide))
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def _packed(form: Form, elements: np.ndarray, scale: np.ndarray, zero: np.ndarray, wide: int) -> np.ndarray:
    """Blocks [blocks, k, columns] as their bytes."""
    count, size, columns = elements.shape
    grown = np.zeros((count, padded(size, form.group), wide), elements.dtype)
    grown[:, :size, :columns] = elements
    beside = np.zeros((2, count, wide), np.float32)
    beside[0, :, :columns], beside[1, :, :columns] = scale, zero
    parts = [beside[0]] if form.scaled else []
    parts += [beside[1].astype(form.zeros)] if form.zeros else []
    if form.bits:
        fields = 8 // form.bits
        split = grown.reshape(count, -1, fields, 4, wide)
        grown = np.zeros_like(split[:, :, 0])
        for field in range(fields):
            grown |= split[:, :, field] << (field * form.bits)
        grown = grown.swapaxes(-1, -2)
    elif form.group > 1:
        grown = grown.reshape(count, -1, form.group, wide).swapaxes(-1, -2)
    parts.append(grown.reshape(count, -1))
    return np.concatenate([np.ascontiguousarray(p).view(np.uint8) for p in parts], axis=1).reshape(-1)


def _normal(scale: np.ndarray) -> np.ndarray:
    """Scales with 0 in the place of those too small to be normal numbers, as all weights are packed."""
    return np.where(np.abs(scale) < np.finfo(np.float32).tiny, np.float32(0), scale).astype(np.float32)
