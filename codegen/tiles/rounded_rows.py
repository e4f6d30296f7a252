"""The step that rounds the rows of a product, block by block, to 127ths of a block's greatest magnitude.

As integers a row is `padded_depth` bytes of int8, zeros behind the last, and for each block its step and what
the zero points of the other operand add to its sums (`multiply_add_rounded`); else it is numbers again.
"""

from __future__ import annotations

from ...ir.dims import Dimension
from ...target import Target
from .. import costs
from ..kernel import KernelFunction, KernelText, Step
from ..text.conversion import cast
from ..text.memory import load_first, store_first
from ..text.shuffles import across
from ..text.vectors import Vectors
from .stored_panel import Form

ROUNDED = 12  # instructions for a vector


def row_bytes(form: Form, integers: bool) -> int:
    """From one rounded row to the next."""
    return form.padded_depth + 8 * form.blocks if integers else 4 * form.depth


def rounding_step(
    target: Target, form: Form, block: int, integers: bool, operand: int, rows: Dimension
) -> Step:
    """Rounds `rows` contiguous rows of float32, the node's operand, into the code's temporary 0."""
    k = KernelText(target)
    lanes = min(target.lanes("float32"), block)
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
    each = costs.compute(target, ROUNDED * form.depth / lanes)
    return k.step(rows, costs.work(each, 1) * rows)


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
    pieces = [(k, min(lanes, size - k)) for k in range(0, filled, lanes)]
    numbers = [
        load_first(f, "float32", lanes, f.offset(at, 4 * k), n) if n > 0 else v.constant(0) for k, n in pieces
    ]
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
    total: str = rounded[0]
    for x in rounded[1:]:
        total = v.add(total, x)
    total = f.extract(across(v, total, v.add), 0)
    beside = f.offset(out, f.add(f.mul(index, 8), form.padded_depth))
    f.store("float", f.extract(step, 0), beside, 4)
    one = Vectors(f, "float32", 1)
    if form.zeros:
        f.store("float", one.neg(total), f.offset(beside, 4), 4)
    elif form.zero:
        correction = cast(one, "int32", one.mul(total, one.constant(-form.zero)))
        f.store("i32", correction, f.offset(beside, 4), 4)
