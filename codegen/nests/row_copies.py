"""Copies of single rows, in line: as bytes, filled with one element, backwards, or element by element.

A row of bytes is moved in vectors; what is left is one masked vector where the target has masks, else
pieces that overlap what is there already. So source and result must not overlap each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..text.emitter import Function
from .nest import displaced

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
    Row(
        f,
        to,
        lambda n, offset: f.load(piece(n), f.offset(source, offset)),
        lambda mask, offset: _masked_read(f, f.offset(source, offset), mask),
    ).write(count)


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
    middle = (
        str(int(start) + int(length) // 4 * 4)
        if is_number(length) and is_number(start)
        else f.add(start, f.value(f"and i64 {length}, -4"))
    )
    with f.loop(start, middle, 4) as loop:
        move([f.add(loop.index, k) for k in range(4)])
    with f.loop(middle, stop) as loop:
        move([loop.index])


def copy_mirrored(f: Function, item: int, to: str, source: str, count: str) -> None:
    """out[i] = in[-i]: vectors, their lanes reversed."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    vector, order = f"<{lanes} x {word}>", ", ".join(f"i32 {lanes - 1 - k}" for k in range(lanes))
    whole = f.value(f"and i64 {count}, {-lanes}")
    with f.loop(0, whole, lanes) as loop:
        begin = f.offset(source, f.mul(f.add(loop.index, lanes - 1), -item))
        value = f.load(vector, begin)
        turned = f.value(f"shufflevector {vector} {value}, {vector} poison, <{lanes} x i32> <{order}>")
        f.store(vector, turned, displaced(f, to, loop.index, item))
    copy_elements(f, item, to, str(item), source, str(-item), whole, count)


def copy_every(f: Function, item: int, to: str, source: str, apart: int, count: str) -> None:
    """Every second, third or fourth element: a wide load, whose other lanes fall away. It reaches beyond the
    last element wanted, so the last ones are read one by one."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    wide, vector = f"<{apart * lanes} x {word}>", f"<{lanes} x {word}>"
    chosen = ", ".join(f"i32 {apart * k}" for k in range(lanes))
    whole = f.value(f"and i64 {f.sub(count, 1)}, {-lanes}")
    with f.loop(0, whole, lanes) as loop:
        value = f.load(wide, displaced(f, source, f.mul(loop.index, apart), item))
        f.store(
            vector,
            f.value(f"shufflevector {wide} {value}, {wide} poison, <{lanes} x i32> <{chosen}>"),
            displaced(f, to, loop.index, item),
        )
    copy_elements(f, item, to, str(item), source, str(apart * item), f.maximum(whole, 0), count)
