"""Reorder: dense to blocked channels and back, and from one halo to another; Transpose between a dense volume
and its planes as a batch of blocked images.

Rows of a vector of dense channels and blocked pixels are the two sides of a square of elements, which
is transposed in registers: halves of pairs of vectors change places, then quarters, down to single
lanes. Few channels, such as those of a picture in bytes, become a word of each pixel instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node, TensorType
from ...ir.ops import Reorder, Transpose
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, as_it_is
from ..text.emitter import ENTRY, Function, vector_constant, vector_type
from ..text.shuffles import transpose
from ..tiles.blocked import Image, are_rows, clear_border, cover, displaced, image_of, resized, without_halo
from ..tiles.lines import Lines, cut_lines
from ..tiles.matrix import image_blocks

WORD = 4  # bytes

End = Callable[[KernelFunction], str]  # where a step reads or writes


def candidates(node: Node, target: Target) -> Iterator[Offer[None]]:
    """One, between two layouts of a type of known channels, not both dense; or two, from or to a dense
    volume."""
    if isinstance(node.op, Transpose):
        yield from _exchanges(node, target)
    if not isinstance(node.op, Reorder):
        return
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    blocked = [t for t in (x, out) if t.layout is not None]
    if not blocked or x.dtype == "string" or not all(map(_is_image, blocked)):
        return
    cost = costs.traffic(target, node) + costs.step(target)
    if x.layout is None or out.layout is None:
        cost += _transposing(target, blocked[0], out.layout is not None)
    elif x.layout.block != out.layout.block:
        cost += costs.reordering(target, x) + costs.reordering(target, out) + costs.step(target)
    yield Offer(cost, None, (x.layout,), out.layout)


def _exchanges(node: Node[Transpose], target: Target) -> Iterator[Offer[None]]:
    """A single dense volume [1, C, D, ...] as images [D, C, 1, ...] in blocks of channels, and back."""
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    if x.rank < 4 or node.op.perm != (2, 1, 0, *range(3, x.rank)) or x.dtype == "string":
        return
    moving, blocks = costs.traffic(target, node) + costs.step(target), image_blocks(target, x.dtype)
    stored = [x.layout.block] if x.layout is not None else blocks
    for images, block in (*((out, b) for b in blocks), *((x, b) for b in stored)):
        plain = without_halo(block, x.rank - 2)
        blocked = replace(images, layout=plain)
        if images.shape[2] == 1 and _is_image(blocked):
            layouts = (None, plain) if images is out else (plain, None)
            cost = moving + _transposing(target, blocked, images is out)
            yield Offer(cost, None, (layouts[0],), layouts[1])


def _transposing(target: Target, images: TensorType, to_blocks: bool) -> Estimate:
    """Between dense and blocked, besides reading and writing."""
    nbytes, item = dims.typical(images.nbytes), dtypes.itemsize(images.dtype)
    if to_blocks and _is_word(image_of(images), target):
        return costs.compute(target, costs.OF_WHOLE_WORDS * nbytes * 8 / target.vector_bits)
    plane = dims.typical(dims.product(images.shape[2:])) * item
    return costs.transposing(target, nbytes, item, not to_blocks and plane * 8 % target.vector_bits != 0)


pack = as_it_is


def emit(node: Node, choice: Choice, target: Target) -> Code:
    x, out = node.inputs[0].tensor, node.outputs[0].tensor

    def source(f: KernelFunction) -> str:
        return f.input(0)

    def result(f: KernelFunction) -> str:
        return f.output()

    def between(f: KernelFunction) -> str:
        return f.temporary(0)

    if x.layout is None:
        image = image_of(out)
        dense = _dense_strides(node, image)
        return Code((_transposed(target, image, dense, source, result, True, choice.cost),))
    if out.layout is None:
        image = image_of(x)
        dense = _dense_strides(node, image)
        return Code((_transposed(target, image, dense, result, source, False, choice.cost),))
    if x.layout.block == out.layout.block:
        return Code((_moved(target, image_of(x), image_of(out), source, result, choice.cost),))
    old, new = image_of(x), image_of(out)
    dense = _dense_strides(node, old)
    steps = (
        _transposed(target, old, dense, between, source, False, choice.cost * 0.5),
        _transposed(target, new, dense, between, result, True, choice.cost * 0.5),
    )
    return Code(steps, (x.count * dtypes.itemsize(x.dtype),))


def _dense_strides(node: Node, image: Image) -> tuple[Dimension, Dimension]:
    """Bytes from an image to the next, and from a channel to the next, where they are dense: a volume has
    the planes of a channel one after the other."""
    plane = image.height * image.width * image.itemsize
    if isinstance(node.op, Transpose):
        return plane, image.batch * plane
    return image.channels * plane, plane


def _is_image(type_: TensorType) -> bool:
    if type_.rank < 3 or type_.layout is None or not isinstance(type_.shape[1], int):
        return False
    return type_.rank < 5 or are_rows(type_)


def _cut(image: Image, target: Target, step: int) -> Lines:
    """The lines of a plane; pixels of a single row are taken `step` at once."""
    single = image.height == 1
    length = image.width if single else image.height
    return cut_lines(length, step if single else 1, image.blocks * image.batch, _moving(image, target).total)


def _moving(image: Image, target: Target) -> Estimate:
    """To read and write an image once."""
    nbytes = dims.typical(image.batch * image.image)
    return (
        costs.move(target, 2 * nbytes)
        + costs.transposing(target, nbytes, image.itemsize)
        + costs.step(target)
    )


def _clear(f: KernelFunction, image: Image, plane: str, first: str, last: str) -> None:
    """The border around some lines; around a single row, with its first pixel."""
    if image.height == 1:
        first, last = "0", f.cast("zext", f.compare("eq", first, 0), "i64")
    clear_border(f, image, plane, first, last)


def _square(image: Image, target: Target) -> int:
    """Channels and pixels that are transposed at once."""
    return min(image.block, target.vector_bits // (8 * image.itemsize))


def _is_word(image: Image, target: Target) -> bool:
    """Whether the channels of a pixel, whose block is written at once, are no more than a word."""
    whole = _square(image, target) == image.block and image.pixel % WORD == 0
    return whole and image.channels * image.itemsize <= WORD


# Between halos -----------------------------------------------------------------------------------


def _moved(target: Target, old: Image, new: Image, source: End, result: End, cost: Estimate) -> Step:
    """Rows of pixels as they are."""
    cut = _cut(new, target, 1)
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        plane, chunk = f.divide(part.index, f.size(cut.count))
        first, last = cut.at(f, chunk)
        here, there = old.of_plane(f, source(f), plane), new.of_plane(f, result(f), plane)
        _clear(f, new, there, first, last)
        rows, columns = (
            (("0", "1"), (first, last)) if new.height == 1 else ((first, last), ("0", f.size(new.width)))
        )
        kind = f"<{new.pixel} x i8>"
        with f.loop(*rows) as row:
            begin = old.address(f, here, y=row.index)
            end = new.address(f, there, y=row.index)
            with f.loop(*columns) as column:
                at = f.mul(column.index, new.pixel)
                f.store(kind, f.load(kind, f.offset(begin, at), 1), f.offset(end, at), new.align)
    work = costs.work(cost, new.batch * new.image)
    return k.step(new.batch * new.blocks * cut.count, work)


# Between dense and blocked -----------------------------------------------------------------------


def _transposed(
    target: Target,
    image: Image,
    strides: tuple[Dimension, Dimension],
    dense: End,
    blocked: End,
    to_blocks: bool,
    cost: Estimate,
) -> Step:
    """Dense rows, whose images and channels are `strides` apart, to blocked pixels of `image`, or back."""
    square, joined = _square(image, target), to_blocks and _is_word(image, target)
    image = image.flat if image.halo == (0, 0) else image
    widths = _widths(square, image.width)
    cut = _cut(image, target, widths[0])
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        plane, chunk = f.divide(part.index, f.size(cut.count))
        n, block = f.divide(plane, image.blocks)
        first, last = cut.at(f, chunk)
        here = image.of_plane(f, blocked(f), plane)
        if to_blocks:
            _clear(f, image, here, first, last)
        rows, columns = (
            (("0", "1"), (first, last)) if image.height == 1 else ((first, last), ("0", f.size(image.width)))
        )
        with f.loop(*rows) as row, f.loop(0, image.block, square) as group:
            channel = f.add(f.mul(block, image.block), group.index)
            places = (n, strides[0]), (channel, strides[1]), (row.index, image.width * image.itemsize)
            line = displaced(f, dense(f), places)
            pixels = f.offset(image.address(f, here, y=row.index), f.mul(group.index, image.itemsize))
            _call_line(f, image, square, channel, [line, pixels, *columns])
    for count in _counts(image, square):
        _line(k, image, strides[1], square, count, widths, to_blocks, joined)
    work = costs.work(cost, image.batch * image.image)
    return k.step(image.batch * image.blocks * cut.count, work)


def _widths(square: int, width: Dimension) -> tuple[int, ...]:
    """Pixels that are transposed at once: powers of two, one of them where the width is known."""
    if isinstance(width, int):
        return (min(square, 1 << max(0, width.bit_length() - 1)),)
    return tuple(square >> shift for shift in range(square.bit_length()))


def _counts(image: Image, square: int) -> list[int]:
    """How many of a square's channels exist: all, some, or none at the end of the last block."""
    whole, rest = divmod(image.channels, square)
    idle = image.blocks * image.block - image.channels >= square
    return [square] * (whole > 0) + [rest] * (rest > 0) + [0] * idle


def _call_line(f: Function, image: Image, square: int, channel: str, words: Sequence[str]) -> None:
    """Calls the function for as many channels as there are from `channel` on."""
    kinds = ("ptr", "ptr", "i64", "i64")
    arguments = ", ".join(["ptr %args", *(f"{t} {w}" for t, w in zip(kinds, words))])
    whole = image.channels - image.channels % square
    counts = _counts(image, square)
    for count in counts:
        call = f"call void @{ENTRY}.line{count}({arguments})"
        if len(counts) == 1:
            f.statement(call)
            continue
        if count == square:
            condition = f.compare("slt", channel, whole)
        elif count:
            condition = f.compare("eq", channel, whole)
        else:
            condition = f.compare("sge", channel, image.channels)
        with f.when(condition):
            f.statement(call)


def _line(
    k: KernelText,
    image: Image,
    apart: Dimension,
    square: int,
    count: int,
    widths: Sequence[int],
    to_blocks: bool,
    joined: bool,
) -> None:
    """The pixels %start..%stop-1 of one row: %line is its first element in the first channel,
    %pixels the first pixel; `count` of the channels, which are `apart`, exist, the others are zero in
    blocks and nowhere in rows. joined: they are a word of the pixel."""
    parameters = ["ptr %args", "ptr noalias %line", "ptr noalias %pixels", "i64 %start", "i64 %stop"]
    size = image.itemsize
    element = f"i{8 * size}"
    with k.function(f"{ENTRY}.line{count}", parameters, attributes="noinline nounwind") as f:
        rows = [f.offset("%line", f.size(channel * apart)) for channel in range(count)]
        start, stop = (0, f.size(image.width)) if image.height != 1 else ("%start", "%stop")

        def tile(width: int, column: str) -> None:
            side, at = max(square, width), f.mul(column, size)
            row, pixels = (vector_type(element, width), f.offset("%pixels", f.mul(column, image.pixel)))
            lanes = vector_type(element, square)
            if joined and width > 1:
                _store_joined(f, image, [f.offset(r, at) for r in rows], pixels, width)
            elif to_blocks:
                vectors = [resized(f, element, f.load(row, f.offset(r, at), size), width, side) for r in rows]
                vectors += ["zeroinitializer"] * (side - count)
                for x, vector in enumerate(transpose(f, vectors, vector_type(element, side))[:width]):
                    f.store(
                        lanes,
                        resized(f, element, vector, side, square),
                        f.offset(pixels, x * image.pixel),
                        size,
                    )
            else:
                vectors = [f.load(lanes, f.offset(pixels, x * image.pixel), size) for x in range(width)]
                vectors += ["zeroinitializer"] * (side - width)
                for r, vector in zip(rows, transpose(f, vectors, vector_type(element, side))):
                    f.store(row, resized(f, element, vector, side, width), f.offset(r, at), size)

        if count or to_blocks:
            cover(f, start, stop, widths, tile)
        f.statement("ret void")


def _store_joined(f: Function, image: Image, rows: Sequence[str], pixels: str, width: int) -> None:
    """Writes `width` pixels whose channels, at the addresses in `rows`, are the bytes of a word; the others
    are zero."""
    bits, step = 8 * image.itemsize, image.pixel // WORD
    words, element = vector_type("i32", width), vector_type(f"i{bits}", width)
    joined = "zeroinitializer"
    for channel, row in enumerate(rows):
        word = f.cast("zext", f.load(element, row, image.itemsize), words, element)
        shift = vector_constant("i32", [bits * channel] * width)
        joined = f.binary("or", joined, f.binary("shl", word, shift, words), words)
    places = [k // step if k % step == 0 else width for k in range(width * step)]
    f.store(vector_type("i32", width * step), f.shuffle(joined, "zeroinitializer", places, words), pixels, 1)
