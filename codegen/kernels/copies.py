"""Copies between strided views, with code for each way in which rows of the two can lie.

    runs         both contiguous: rows are copied as bytes         repeat     the source stands still: rows
    are filled mirror       the source runs backwards                          pick       it strides: elements
    one by one, or every
                                                                               second to fourth of wide loads
    tiles        another axis is the source's contiguous one: square tiles are transposed in registers,
    log2(rows) stages
                 in which rows i and i + d exchange blocks of d lanes; few interleaved rows go through wide
                 shuffles
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ...dims import Dimension
from ...target import Target
from ..emitter import Function, vector_type
from ..kernel import KernelText
from ..nest import (
    Block,
    Blocks,
    Piece,
    View,
    address,
    all_of,
    block_rows,
    collapse,
    displaced,
    elements_per_part,
    moving_cost,
    typical,
)

# iterations of a block along both axes of a transposition: its lines stay in the first-level cache
TILED = 64
LINE = 64  # bytes of a cache line
FEW = 4  # rows or columns that are interleaved by shuffles of wide vectors
UNROLLED = 16  # vectors of a row of known length that are copied without a loop


def is_number(value: str | int) -> bool:
    return isinstance(value, int) or value.lstrip("-").isdigit()


# Bytes in a row ----------------------------------------------------------------------------------


def piece(nbytes: int) -> str:
    """LLVM's type that moves that many bytes at once."""
    return f"i{8 * nbytes}" if nbytes <= 8 else f"<{nbytes} x i8>"


def byte_mask(f: Function, count: str) -> str:
    """<64 x i1> (as wide as the target's vectors): the bytes below count, which is less than their number."""
    lanes = f.target.vector_bits // 8
    # count is below lanes, so that the shift is defined.
    number = f.value(f"trunc i64 {count} to i{lanes}") if lanes < 64 else count
    ones = f.value(f"xor i{lanes} {f.value(f'shl i{lanes} -1, {number}')}, -1")
    return f.value(f"bitcast i{lanes} {ones} to <{lanes} x i1>")


def _masked_piece(f: Function, to: str, read: Callable[[str], str], count: str) -> None:
    lanes = f.target.vector_bits // 8
    vector, mask = f"<{lanes} x i8>", byte_mask(f, count)
    store = f.text.declare(f"llvm.masked.store.v{lanes}i8.p0", "void", [vector, "ptr", f"<{lanes} x i1>"])
    f.statement(f"call void {store}({vector} {read(mask)}, ptr align 1 {to}, <{lanes} x i1> {mask})")


def _masked_read(f: Function, source: str, mask: str) -> str:
    lanes = f.target.vector_bits // 8
    vector = f"<{lanes} x i8>"
    load = f.text.declare(f"llvm.masked.load.v{lanes}i8.p0", vector, ["ptr", f"<{lanes} x i1>", vector])
    return f.call(
        vector, load, f"ptr align 1 {source}", f"<{lanes} x i1> {mask}", f"{vector} zeroinitializer"
    )


class Row:
    """Writes `count` bytes at an address, reading them piece by piece: `read(nbytes, offset)` gives a piece,
    `masked(mask, offset)` the last one where the target can switch lanes off. Pieces may overlap, so source
    and result must not."""

    def __init__(
        self, f: Function, to: str, read: Callable[[int, str | int], str], masked: Callable[[str, str], str]
    ):
        self.f, self.to, self.read, self.masked = f, to, read, masked
        self.width = f.target.vector_bits // 8

    def put(self, nbytes: int, offset: str | int) -> None:
        self.f.store(piece(nbytes), self.read(nbytes, offset), self.f.offset(self.to, offset))

    def write(self, count: str | int) -> None:
        if is_number(count):
            self._known(int(count))
        else:
            self._unknown(str(count))

    def _known(self, count: int) -> None:
        width, at = self.width, 0
        if count > UNROLLED * width:
            at = count // (4 * width) * 4 * width
            with self.f.loop(0, at, 4 * width) as loop:
                self._four(loop.index)
        for offset in range(at, count - width + 1, width):
            self.put(width, offset)
        rest = count % width
        if rest and count > width:
            self.put(width, count - width)
        elif rest:
            half = 1 << (count.bit_length() - 1)
            pieces = [(offset, self.read(half, offset)) for offset in dict.fromkeys((0, count - half))]
            for offset, value in pieces:
                self.f.store(piece(half), value, self.f.offset(self.to, offset))

    def _four(self, index: str) -> None:
        offsets = [self.f.add(index, k * self.width) for k in range(4)]
        values = [self.read(self.width, offset) for offset in offsets]
        for offset, value in zip(offsets, values):
            self.f.store(piece(self.width), value, self.f.offset(self.to, offset))

    def _unknown(self, count: str) -> None:
        f, width = self.f, self.width
        fours = f.value(f"and i64 {count}, {-4 * width}")
        whole = f.value(f"and i64 {count}, {-width}")
        with f.loop(0, fours, 4 * width) as loop:
            self._four(loop.index)
        with f.loop(fours, whole, width) as loop:
            self.put(width, loop.index)
        if f.target.masked:
            with f.when(f.compare("ne", whole, count)):
                _masked_piece(
                    f, f.offset(self.to, whole), lambda mask: self.masked(mask, whole), f.sub(count, whole)
                )
            return
        with f.when(f.compare("sge", count, width)):
            self.put(width, f.sub(count, width))
        with f.when(f.compare("slt", count, width)):
            half = width // 2
            while half:
                with f.when(f.compare("ult", f.sub(count, half), half)):
                    self.put(half, 0)
                    self.put(half, f.sub(count, half))
                half //= 2


def copy_bytes(f: Function, to: str, source: str, count: str | int) -> None:
    """memcpy in line. The two must not overlap."""
    Row(f, to, lambda n, offset: f.load(piece(n), f.offset(source, offset)),
        lambda mask, offset: _masked_read(f, f.offset(source, offset), mask)).write(count)


def repeated(f: Function, element: str, itemsize: int) -> str:
    """A vector register full of one element of 1, 2, 4 or 8 bytes, as bytes."""
    width = f.target.vector_bits // 8
    lanes = width // itemsize
    vector = f.broadcast(f"i{8 * itemsize}", element, lanes)
    return f.value(f"bitcast <{lanes} x i{8 * itemsize}> {vector} to <{width} x i8>")


def fill_bytes(f: Function, to: str, pattern: str, count: str | int) -> None:
    """Writes the bytes of `pattern`, one vector register, over and over; `count` is a multiple of the
    repeated element."""
    width = f.target.vector_bits // 8

    def low(nbytes: int, offset: str | int) -> str:
        if nbytes == width or pattern == "zeroinitializer":
            return pattern if nbytes > 8 else "0"
        lanes = ", ".join(f"i32 {k}" for k in range(nbytes))
        part = f.value(
            f"shufflevector <{width} x i8> {pattern}, <{width} x i8> poison, <{nbytes} x i32> <{lanes}>"
        )
        return part if nbytes > 8 else f.value(f"bitcast <{nbytes} x i8> {part} to i{8 * nbytes}")

    Row(f, to, low, lambda mask, offset: pattern).write(count)


# Rows that stride --------------------------------------------------------------------------------


def _element_loop(
    f: Function, item: int, to: str, step_out: str, source: str, step_in: str, start: str | int, stop: str
) -> None:
    """Element by element, four in flight."""
    word = f"i{8 * item}"

    def move(indices: Sequence[str]) -> None:
        values = [f.load(word, displaced(f, source, i, step_in)) for i in indices]
        for index, value in zip(indices, values):
            f.store(word, value, displaced(f, to, index, step_out))

    length = f.sub(stop, start)
    middle = str(int(start) + int(length) // 4 * 4) if is_number(length) and is_number(start) else \
        f.add(start, f.value(f"and i64 {length}, -4"))
    with f.loop(start, middle, 4) as loop:
        move([f.add(loop.index, k) for k in range(4)])
    with f.loop(middle, stop) as loop:
        move([loop.index])


def _mirror(f: Function, item: int, to: str, source: str, count: str) -> None:
    """out[i] = in[-i]: vectors, their lanes reversed."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    vector, order = f"<{lanes} x {word}>", ", ".join(f"i32 {lanes - 1 - k}" for k in range(lanes))
    whole = f.value(f"and i64 {count}, {-lanes}")
    with f.loop(0, whole, lanes) as loop:
        begin = f.offset(source, f.mul(f.add(loop.index, lanes - 1), -item))
        value = f.load(vector, begin)
        turned = f.value(f"shufflevector {vector} {value}, {vector} poison, <{lanes} x i32> <{order}>")
        f.store(vector, turned, displaced(f, to, loop.index, item))
    _element_loop(f, item, to, str(item), source, str(-item), whole, count)


def _pick(f: Function, item: int, to: str, source: str, apart: int, count: str) -> None:
    """Every second, third or fourth element: a wide load, whose other lanes fall away. It reaches beyond the
    last element wanted, so the last ones are read one by one."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    wide, vector = f"<{apart * lanes} x {word}>", f"<{lanes} x {word}>"
    chosen = ", ".join(f"i32 {apart * k}" for k in range(lanes))
    whole = f.value(f"and i64 {f.sub(count, 1)}, {-lanes}")
    with f.loop(0, whole, lanes) as loop:
        value = f.load(wide, displaced(f, source, f.mul(loop.index, apart), item))
        f.store(vector, f.value(f"shufflevector {wide} {value}, {wide} poison, <{lanes} x i32> <{chosen}>"),
                displaced(f, to, loop.index, item))
    _element_loop(f, item, to, str(item), source, str(apart * item), f.maximum(whole, 0), count)


# Transposition -----------------------------------------------------------------------------------


def tile_rows(target: Target, item: int) -> int:
    """Rows and columns of a square tile: one register a row, half of the registers at most."""
    return min(target.vector_bits // (8 * item), target.vector_registers // 2)


def _transpose_tile(
    f: Function, rows: int, item: int, to: str, step_out: str, source: str, step_in: str
) -> None:
    vector = vector_type(f"i{8 * item}", rows)
    values = [f.load(vector, f.offset(source, f.mul(i, step_in))) for i in range(rows)]
    distance = 1
    while distance < rows:
        keep = [lane if not lane & distance else rows + lane - distance for lane in range(rows)]
        swap = [lane + distance if not lane & distance else rows + lane for lane in range(rows)]
        for i in range(rows):
            if not i & distance:
                pair = f"{vector} {values[i]}, {vector} {values[i + distance]}"
                values[i], values[i + distance] = (
                    f.value(f"shufflevector {pair}, <{rows} x i32> <{', '.join(f'i32 {x}' for x in lanes)}>")
                    for lanes in (keep, swap)
                )
        distance *= 2
    for i, value in enumerate(values):
        f.store(vector, value, f.offset(to, f.mul(i, step_out)))


class Transposition:
    """out[i][j] = in[j][i] over blocks: i runs along the source's rows, j along the result's."""

    def __init__(self, f: Function, item: int, step_out: str, step_in: str):
        self.f, self.item, self.step_out, self.step_in = f, item, step_out, step_in

    def cover(
        self, to: str, source: str, levels: Sequence[tuple[int, int]], i0: str, i1: str, j0: str, j1: str
    ) -> None:
        """The rectangle in tiles of levels[0], (rows, columns), then what is left beside and below in the
        smaller ones."""
        f, (rows, columns) = self.f, levels[0]
        if all(map(is_number, (i0, i1, j0, j1))) and (int(i0) >= int(i1) or int(j0) >= int(j1)):
            return
        i_stop, j_stop = self._whole(i0, i1, rows), self._whole(j0, j1, columns)
        with f.loop(i0, i_stop, rows) as i, f.loop(j0, j_stop, columns) as j:
            place_out = f.offset(f.offset(to, f.mul(i.index, self.step_out)), f.mul(j.index, self.item))
            place_in = f.offset(f.offset(source, f.mul(j.index, self.step_in)), f.mul(i.index, self.item))
            for at in range(0, columns, rows):
                there, here = f.offset(place_out, at * self.item), f.offset(place_in, f.mul(at, self.step_in))
                _transpose_tile(f, rows, self.item, there, self.step_out, here, self.step_in)
        if len(levels) > 1:
            self.cover(to, source, levels[1:], i0, i_stop, j_stop, j1)
            self.cover(to, source, levels[1:], i_stop, i1, j0, j1)

    def _whole(self, start: str, stop: str, rows: int) -> str:
        length = self.f.sub(stop, start)
        if rows == 1:
            return stop
        if is_number(length):
            return self.f.add(start, int(length) // rows * rows)
        return self.f.add(start, self.f.value(f"and i64 {length}, {-rows}"))


def _interleave(f: Function, item: int, count: int, to: str, source: str, step_in: str, length: str) -> None:
    """out[n][c] = in[c][n] for few c: one vector of each, shuffled to one wide store."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    vector, wide = f"<{lanes} x {word}>", f"<{count * lanes} x {word}>"
    rows = [f.offset(source, f.mul(c, step_in)) for c in range(count)]
    whole = (
        f.value(f"and i64 {length}, {-lanes}") if not is_number(length) else str(int(length) // lanes * lanes)
    )
    with f.loop(0, whole, lanes) as loop:
        joined = [f.load(vector, displaced(f, row, loop.index, item)) for row in rows]
        value = concatenated(f, joined, lanes, word)
        order = ", ".join(f"i32 {c * lanes + k}" for k in range(lanes) for c in range(count))
        value = f.value(f"shufflevector {wide} {value}, {wide} poison, <{count * lanes} x i32> <{order}>")
        f.store(wide, value, displaced(f, to, f.mul(loop.index, count), item))
    with f.loop(whole, length) as loop:
        for c, row in enumerate(rows):
            value = f.load(word, displaced(f, row, loop.index, item))
            f.store(word, value, displaced(f, to, f.add(f.mul(loop.index, count), c), item))


def concatenated(f: Function, vectors: Sequence[str], lanes: int, word: str) -> str:
    """Vectors one after the other as one."""
    whole, width = vectors[0], lanes
    for value in vectors[1:]:
        if width > lanes:  # a shuffle takes two of one width
            order = ", ".join(f"i32 {k}" if k < lanes else "i32 poison" for k in range(width))
            pair = f"<{lanes} x {word}> {value}, <{lanes} x {word}> poison"
            value = f.value(f"shufflevector {pair}, <{width} x i32> <{order}>")
        order = ", ".join(f"i32 {k}" for k in range(width + lanes))
        pair = f"<{width} x {word}> {whole}, <{width} x {word}> {value}"
        width += lanes
        whole = f.value(f"shufflevector {pair}, <{width} x i32> <{order}>")
    return whole


def _deinterleave(
    f: Function, item: int, count: int, to: str, step_out: str, source: str, length: str
) -> None:
    """out[c][n] = in[n][c] for few c: one wide load, every c-th lane of it a row."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    vector, wide = f"<{lanes} x {word}>", f"<{count * lanes} x {word}>"
    rows = [f.offset(to, f.mul(c, step_out)) for c in range(count)]
    whole = (
        f.value(f"and i64 {length}, {-lanes}") if not is_number(length) else str(int(length) // lanes * lanes)
    )
    with f.loop(0, whole, lanes) as loop:
        value = f.load(wide, displaced(f, source, f.mul(loop.index, count), item))
        for c, row in enumerate(rows):
            order = ", ".join(f"i32 {count * k + c}" for k in range(lanes))
            f.store(
                vector,
                f.value(f"shufflevector {wide} {value}, {wide} poison, <{lanes} x i32> <{order}>"),
                displaced(f, row, loop.index, item),
            )
    with f.loop(whole, length) as loop:
        for c, row in enumerate(rows):
            value = f.load(word, displaced(f, source, f.add(f.mul(loop.index, count), c), item))
            f.store(word, value, displaced(f, row, loop.index, item))


# One copy ----------------------------------------------------------------------------------------


class Copy(Piece):
    """out[i, j, ...] = source[i, j, ...] over `sizes`, raw elements; zeros where source is None. The two
    must not overlap."""

    def __init__(self, target: Target, sizes: Sequence[Dimension], out: View, source: View | None):
        views = (out,) if source is None else (out, source)
        if out.itemsize == 16:  # pairs of words
            sizes, views = (
                (*sizes, 2),
                tuple(replace(v, dtype="uint64", strides=(*v.strides, 8)) for v in views),
            )
        self.target, self.item = target, views[0].itemsize
        self.sizes, views, _ = collapse(sizes, views)
        if not self.sizes:
            self.sizes, views = (1,), tuple(replace(v, strides=(self.item,)) for v in views)
        self.out, self.source = views if len(views) == 2 else (views[0], None)
        self.across = self._contiguous_axis()
        self.few = self._interleaved()

    def _contiguous_axis(self) -> int | None:
        """The axis along which the source is contiguous, where that is not the last."""
        last, item = len(self.sizes) - 1, self.item
        if (
            self.source is None
            or self.out.strides[last] != item
            or self.source.strides[last] in (item, 0, -item)
        ):
            return None
        return next((a for a in range(last) if self.source.strides[a] == item), None)

    def _interleaved(self) -> str | None:
        """Whether the shorter of a transposition's two axes is that short that whole rows of it are
        shuffled."""
        if self.across is None:
            return None
        rows, columns = self.sizes[self.across], self.sizes[-1]
        if (
            isinstance(columns, int)
            and columns <= FEW
            and self.out.strides[self.across] == columns * self.item
        ):
            return "interleave"
        if isinstance(rows, int) and rows <= FEW and self.source.strides[-1] == rows * self.item:
            return "deinterleave"
        return None

    @property
    def cost(self) -> float:
        """Picoseconds an element."""
        row = 500 / max(1, typical(self.sizes[-1]))
        if self.source is None:
            return moving_cost(self.target, self.item) + row
        slow = 1.0 if self.source.strides[-1] in (self.item, 0) else 1.5 if self.across is not None else 3.0
        return moving_cost(self.target, 2 * self.item) * slow + row

    @property
    def blocks(self) -> Blocks:
        if self.across is None:
            return block_rows(self.sizes, elements_per_part(self.cost))
        last = len(self.sizes) - 1
        short = {"interleave": last, "deinterleave": self.across}.get(self.few)
        most = 16 * TILED if self.few else TILED
        lengths = [1] * (last + 1)
        for axis in (self.across, last):
            size = self.sizes[axis]
            lengths[axis] = (
                max(1, size if axis == short else min(size, most)) if isinstance(size, int) else most
            )
        return Blocks(self.sizes, tuple(lengths))

    def emit(self, k: KernelText, f: Function, block: Block) -> None:
        """One block."""
        pointers = [address(k, f, v, block.starts) for v in (self.out, self.source) if v is not None]
        if self.across is not None:
            self._transpose(k, f, block, *pointers)
            return
        self._rows(k, f, block, pointers, [a for a, n in enumerate(block.extents[:-1]) if n != "1"])

    def _rows(
        self, k: KernelText, f: Function, block: Block, pointers: Sequence[str], axes: Sequence[int]
    ) -> None:
        """The axes outside the last as loops, then a row."""
        if not axes:
            self._row(k, f, *pointers, count=block.extents[-1])
            return
        with f.loop(0, block.extents[axes[0]]) as loop:
            inner = [
                displaced(f, p, loop.index, k.size(f, v.strides[axes[0]]))
                for p, v in zip(pointers, (self.out, self.source))
            ]
            self._rows(k, f, block, inner, axes[1:])

    def _row(self, k: KernelText, f: Function, to: str, source: str = "", *, count: str) -> None:
        step_out = self.out.strides[-1]
        if self.source is None and step_out == self.item:
            fill_bytes(f, to, "zeroinitializer", f.mul(count, self.item))
            return
        if self.source is None:
            with f.loop(0, count) as loop:
                f.store(f"i{8 * self.item}", "0", displaced(f, to, loop.index, k.size(f, step_out)))
            return
        step_in = self.source.strides[-1]
        if step_out == self.item and isinstance(step_in, int):
            self._contiguous(f, to, source, step_in, count)
        elif step_out == self.item:
            given = k.size(f, step_in)
            choices = [f.compare("eq", given, s) for s in (self.item, 0)]
            for choice, known in zip(choices, (self.item, 0)):
                with f.when(choice):
                    self._contiguous(f, to, source, known, count)
            with f.when(all_of(f, [f.value(f"xor i1 {c}, true") for c in choices])):
                _element_loop(f, self.item, to, str(self.item), source, given, 0, count)
        else:
            _element_loop(f, self.item, to, k.size(f, step_out), source, k.size(f, step_in), 0, count)

    def _contiguous(self, f: Function, to: str, source: str, step_in: int, count: str) -> None:
        """A row of which the result is contiguous."""
        item = self.item
        if step_in == item:
            copy_bytes(f, to, source, f.mul(count, item))
        elif step_in == 0:
            fill_bytes(f, to, repeated(f, f.load(f"i{8 * item}", source), item), f.mul(count, item))
        elif step_in == -item:
            _mirror(f, item, to, source, count)
        elif step_in in (2 * item, 3 * item, 4 * item):
            _pick(f, item, to, source, step_in // item, count)
        else:
            _element_loop(f, item, to, str(item), source, str(step_in), 0, count)

    def _transpose(self, k: KernelText, f: Function, block: Block, to: str, source: str) -> None:
        rows, columns = block.extents[self.across], block.extents[-1]
        step_out, step_in = k.size(f, self.out.strides[self.across]), k.size(f, self.source.strides[-1])
        if self.few == "interleave":
            _interleave(f, self.item, self.sizes[-1], to, source, step_in, rows)
        elif self.few == "deinterleave":
            _deinterleave(f, self.item, self.sizes[self.across], to, step_out, source, columns)
        else:
            Transposition(f, self.item, step_out, step_in).cover(
                to, source, self._tiles(), "0", rows, "0", columns
            )

    def _tiles(self) -> list[tuple[int, int]]:
        """(rows, columns) of tiles, descending: whole cache lines of the result where it has as many
        columns."""
        rows, columns = (
            s if isinstance(s, int) else TILED for s in (self.sizes[self.across], self.sizes[-1])
        )
        most = min(tile_rows(self.target, self.item), 1 << (min(rows, columns).bit_length() - 1))
        # Tiles of small elements hold so many shuffles that several at once are long to compile and no
        # faster.
        line = min(LINE // self.item, 1 << (columns.bit_length() - 1)) if self.item >= 4 else most
        return list(
            dict.fromkeys(
                (r, c) for r, c in ((most, max(line, most)), (most, most), (4, 4), (1, 1)) if r <= most
            )
        )
