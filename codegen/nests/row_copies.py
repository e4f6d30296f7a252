"""Copies of single rows, in line: as bytes, filled with one element, backwards, or element by element.

A row of bytes is moved in vectors; what is left is one masked vector where the target has masks, else
pieces that overlap what is there already. So source and result must not overlap each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..text.emitter import Function, is_number
from ..text.memory import copy_bytes as call_memcpy
from ..text.memory import load_masked, store_masked
from .nest import displaced

LONG = 1 << 15  # bytes of a row that the C library moves, which need not read lines that it writes whole
UNROLLED = 16  # vectors of a row of known length that are copied without a loop


# Bytes in a row ----------------------------------------------------------------------------------


def piece(nbytes: int) -> str:
    """LLVM's type that moves that many bytes at once."""
    return f"i{8 * nbytes}" if nbytes <= 8 else f"<{nbytes} x i8>"


def byte_mask(f: Function, count: str) -> str:
    """<64 x i1> (as wide as the target's vectors): the bytes below count, which is less than their number."""
    lanes = f.target.vector_bits // 8
    # count is below lanes, so that the shift is defined.
    number = f.cast("trunc", count, f"i{lanes}", "i64")
    ones = f.binary("xor", f.binary("shl", -1, number), -1)
    return f.cast("bitcast", ones, f"<{lanes} x i1>")


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
        fours, whole = f.round_down(count, 4 * width), f.round_down(count, width)
        with f.loop(0, fours, 4 * width) as loop:
            self._four(loop.index)
        with f.loop(fours, whole, width) as loop:
            self.put(width, loop.index)
        if f.target.masked:
            with f.when(f.compare("ne", whole, count)):
                to, mask = f.offset(self.to, whole), byte_mask(f, f.sub(count, whole))
                store_masked(f, piece(width), self.masked(mask, whole), to, mask)
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
    """memcpy, in line where a row is not long. The two must not overlap."""
    whole = piece(f.target.vector_bits // 8)
    row = Row(
        f,
        to,
        lambda n, offset: f.load(piece(n), f.offset(source, offset)),
        lambda mask, offset: load_masked(f, whole, f.offset(source, offset), mask),
    )
    if is_number(count):
        if int(count) >= LONG:
            call_memcpy(f, to, source, str(count))
        else:
            row.write(count)
        return
    long = f.compare("sge", count, LONG)
    with f.when(long):
        call_memcpy(f, to, source, str(count))
    with f.when(f.invert(long)):
        row.write(count)


def repeated(f: Function, element: str, itemsize: int) -> str:
    """A vector register full of one element of 1, 2, 4 or 8 bytes, as bytes."""
    width = f.target.vector_bits // 8
    lanes = width // itemsize
    vector = f.broadcast(f"i{8 * itemsize}", element, lanes)
    return f.cast("bitcast", vector, f"<{width} x i8>")


def fill_bytes(f: Function, to: str, pattern: str, count: str | int) -> None:
    """Writes the bytes of `pattern`, one vector register, over and over; `count` is a multiple of the
    repeated element."""
    width = f.target.vector_bits // 8

    def low(nbytes: int, offset: str | int) -> str:
        if nbytes == width or pattern == "zeroinitializer":
            return pattern if nbytes > 8 else "0"
        part = f.shuffle(pattern, "poison", range(nbytes), piece(width))
        return f.cast("bitcast", part, piece(nbytes))

    Row(f, to, low, lambda mask, offset: pattern).write(count)


# Rows that stride --------------------------------------------------------------------------------


def copy_elements(
    f: Function, item: int, to: str, step_out: str, source: str, step_in: str, start: str | int, stop: str
) -> None:
    """Element by element, four in flight."""
    word = f"i{8 * item}"

    def move(indices: Sequence[str]) -> None:
        values = [f.load(word, displaced(f, source, i, step_in)) for i in indices]
        for index, value in zip(indices, values):
            f.store(word, value, displaced(f, to, index, step_out))

    length = f.sub(stop, start)
    middle = f.add(start, f.round_down(length, 4))
    with f.loop(start, middle, 4) as loop:
        move([f.add(loop.index, k) for k in range(4)])
    with f.loop(middle, stop) as loop:
        move([loop.index])


def copy_mirrored(f: Function, item: int, to: str, source: str, count: str) -> None:
    """out[i] = in[-i]: vectors, their lanes reversed."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    vector, whole = f"<{lanes} x {word}>", f.round_down(count, lanes)
    with f.loop(0, whole, lanes) as loop:
        begin = f.offset(source, f.mul(f.add(loop.index, lanes - 1), -item))
        value = f.load(vector, begin)
        turned = f.shuffle(value, "poison", range(lanes - 1, -1, -1))
        f.store(vector, turned, displaced(f, to, loop.index, item))
    copy_elements(f, item, to, str(item), source, str(-item), whole, count)


def copy_every(f: Function, item: int, to: str, source: str, apart: int, count: str) -> None:
    """Every second, third or fourth element: a wide load, whose other lanes fall away. It reaches beyond the
    last element wanted, so the last ones are read one by one."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    wide, vector = f"<{apart * lanes} x {word}>", f"<{lanes} x {word}>"
    whole = f.binary("and", f.sub(count, 1), -lanes, "i64")
    with f.loop(0, whole, lanes) as loop:
        value = f.load(wide, displaced(f, source, f.mul(loop.index, apart), item))
        f.store(
            vector,
            f.shuffle(value, "poison", range(0, apart * lanes, apart)),
            displaced(f, to, loop.index, item),
        )
    copy_elements(f, item, to, str(item), source, str(apart * item), f.maximum(whole, 0), count)
