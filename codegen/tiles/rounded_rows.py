"""The steps that make integers of a product's rows, block by block, in multiples of a step of the block.

A row of integers is `padded_depth` bytes of int8, zeros behind the last, and for each block its step and what
the zero points of the other operand add to its sums (`multiply_add_rounded`). `rounding_step` writes one for
each row, of 127ths of a block's greatest magnitude, or these as numbers again. `digits_step` writes `DIGITS`:

    x = step * (d0 + 256 d1 + 256^2 d2 + 256^3 d3),  -128 <= d < 128,  2^29 <= greatest / step < 2^30
A float32 no less than a 64th of its block's greatest is the sum of its digits; a smaller one loses at most
2^-30 of the greatest, or 2^-127. In a block with an infinity or a NaN the step is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dims
from ...ir.dims import Dimension
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction, KernelText, Step
from ..text.conversion import cast
from ..text.emitter import Reg, vector_type
from ..text.memory import load_first, store_first
from ..text.shuffles import across
from ..text.vectors import Vectors
from .packing import padded
from .stored_form import Form
from .stored_panel import DIGITS

TOP = 29  # the power of two of a block's greatest magnitude, in its steps
BIAS, LOWEST, EXPONENT = 127, 1 << 23, 0x7F800000  # of a float32's bits
HALVES = 0x00808080  # added, it makes the lower digits bytes without a sign


def row_bytes(form: Form, integers: bool) -> int:
    """From one rounded row to the next."""
    return form.padded_depth + 8 * form.blocks if integers else 4 * form.depth


def rounding_step(
    target: Target, form: Form, block: int, integers: bool, operand: int, rows: Dimension
) -> Step:
    """Rounds `rows` contiguous rows of float32, the node's operand, into the code's temporary 0."""
    k = KernelText(target)
    lanes = _lanes(target, block)
    stride = row_bytes(form, integers)
    with k.entry() as f, f.loop("%first", "%last") as row:
        source = f.offset(f.input(operand), f.mul(row.index, 4 * form.depth))
        out = f.offset(f.temporary(0), f.mul(row.index, stride))
        whole, rest = divmod(form.depth, block)
        if whole:
            with f.loop(0, whole) as loop:
                _block(f, form, integers, lanes, source, out, loop.index, block, block)
        if rest:
            _block(f, form, integers, lanes, source, out, whole, block, rest)
    return k.step(rows, costs.work(rounding(target, form.depth, block), 1) * rows)


def rounding(target: Target, depth: int, block: int) -> Estimate:
    """To round a row: its vectors, and for each block a step, its inverse and the lanes combined."""
    blocks = -(-depth // block)
    instructions = costs.ROUNDED * depth / target.lanes("float32") + 2 * costs.divided(target) * blocks
    return costs.compute(target, instructions) + costs.overhead(target, costs.FOLDED_ROW * blocks)


def _lanes(target: Target, block: int) -> int:
    """Of the vectors of a block: no more than one needs, and a power of two, as `across` combines them."""
    return min(target.lanes("float32"), 1 << (block - 1).bit_length())


def _block(
    f: KernelFunction,
    form: Form,
    integers: bool,
    lanes: int,
    source: str,
    out: str,
    index: int | str,
    block: int,
    size: int,
) -> None:
    """Block number `index` of a row, of `size` elements."""
    v = Vectors(f, "float32", lanes)
    at = f.offset(source, f.mul(index, 4 * block))
    filled = size
    if integers and size < block:
        filled = form.padded_depth % block or block
    pieces, numbers = _loaded(f, v, at, size, filled)
    greatest: str = v.abs(numbers[0])
    for x in numbers[1:]:
        greatest = v.maximum(greatest, v.abs(x))
    step = v.div(across(v, greatest, v.maximum), v.constant(127))
    none = v.compare("eq", step, v.constant(0))
    inverse = v.select(none, step, v.div(v.constant(1), step))
    rounded = [v.unary("roundeven", v.mul(x, inverse)) for x in numbers]
    if not integers:
        for (k, count), x in zip(pieces, rounded):
            place = f.offset(out, f.add(f.mul(index, 4 * block), 4 * k))
            store_first(f, "float32", lanes, v.mul(x, step), place, count)
        return
    for (k, _), x in zip(pieces, rounded):
        place = f.offset(out, f.add(f.mul(index, block), k))
        store_first(f, "int8", lanes, cast(v, "int8", x, within=True), place, min(lanes, filled - k))
    _finish(f, form, out, index, f.extract(step, 0), v, rounded)


def _loaded(
    f: KernelFunction, v: Vectors, at: str, size: int, filled: int
) -> tuple[list[tuple[int, int]], list[Reg]]:
    """The elements of a block of `size`, with zeros up to `filled`, a vector each: (its first, how many of
    the block it has), and what it holds."""
    pieces = [(k, min(v.lanes, size - k)) for k in range(0, filled, v.lanes)]
    return pieces, [
        load_first(f, v.dtype, v.lanes, f.offset(at, 4 * k), n) if n > 0 else v.constant(0) for k, n in pieces
    ]


def _finish(
    f: KernelFunction, form: Form, out: str, index: int | str, step: str, v: Vectors, integers: Sequence[str]
) -> None:
    """Writes the step of a block of integers, and what zero points add to its sums."""
    beside = f.offset(out, f.add(f.mul(index, 8), form.padded_depth))
    f.store("float", step, beside, 4)
    if not form.zeros and not form.zero:
        return
    total: str = integers[0]
    for x in integers[1:]:
        total = v.add(total, x)
    total = f.extract(across(v, total, v.add), 0)
    one = Vectors(f, v.dtype, 1)
    if form.zeros:
        f.store("float", cast(one, "float32", one.neg(total)), f.offset(beside, 4), 4)
    else:
        correction = cast(one, "int32", one.mul(total, one.constant(-(form.zero or 0))), within=True)
        f.store("i32", correction, f.offset(beside, 4), 4)


# Digits ------------------------------------------------------------------------------------------


def digits_step(target: Target, form: Form, operand: int, temporary: int, rows: Dimension) -> Step:
    """Writes the row of float32 that is the node's operand, where `rows` are one, as digits into the code's
    temporary: `DIGITS` rows of integers, the lowest digits first."""
    k = KernelText(target)
    lanes = _lanes(target, form.block)
    with k.entry() as f:
        source, out = f.input(operand), f.temporary(temporary)
        whole, rest = divmod(form.depth, form.block)
        if whole:
            with f.loop(0, whole) as loop:
                _digits(f, form, lanes, source, out, loop.index, form.block)
        if rest:
            _digits(f, form, lanes, source, out, whole, rest)
    each, alone = costs.compute(target, costs.IN_DIGITS * form.depth / lanes), dims.compare("eq", rows, 1)
    return k.step(alone, costs.work(each, 1) * alone)


def _digits(
    f: KernelFunction, form: Form, lanes: int, source: str, out: str, index: int | str, size: int
) -> None:
    """Block number `index` of a row, of `size` elements."""
    v, words = Vectors(f, "float32", lanes), Vectors(f, "int32", lanes)
    at, to = (f.offset(start, f.mul(index, n * form.block)) for start, n in ((source, 4), (out, 1)))
    filled = padded(size, form.group)
    pieces, numbers = _loaded(f, v, at, size, filled)
    magnitudes = [words.bit_and(v.bits(x), words.constant(0x7FFFFFFF)) for x in numbers]
    greatest: str = magnitudes[0]
    for x in magnitudes[1:]:  # as integers, among which a NaN is the greatest
        greatest = words.maximum(greatest, x)
    exponent = words.bit_and(across(words, greatest, words.maximum), words.constant(EXPONENT))
    least = words.constant((TOP + 1) * LOWEST)
    beyond = words.compare("eq", exponent, words.constant(EXPONENT))
    exponent = words.maximum(exponent, least)
    inverse = v.from_bits(words.sub(words.constant((2 * BIAS + TOP) * LOWEST), exponent))
    step = v.from_bits(words.sub(exponent, words.constant(TOP * LOWEST)))
    step = f.extract(v.select(beyond, v.constant(float("nan")), step), 0)
    shifted = []
    for x in numbers:
        integer = cast(v, "int32", v.unary("roundeven", v.mul(x, inverse)), within=True)
        shifted.append(words.bit_xor(words.add(integer, words.constant(HALVES)), words.constant(HALVES)))
    for digit in range(DIGITS):
        row = digit * row_bytes(form, True)
        upper = [words.shift_left(x, 8 * (DIGITS - 1 - digit)) for x in shifted]
        found = [words.shift_right(x, 24) for x in upper]
        for (k, _), x in zip(pieces, found):
            narrow = f.cast("trunc", x, vector_type("i8", lanes), words.type)
            store_first(f, "int8", lanes, narrow, f.offset(to, k + row), min(lanes, filled - k))
        _finish(f, form, f.offset(out, row), index, step, words, found)
