"""Transposition of a plane in registers: square tiles, and few interleaved rows.

tile     log2(side) stages, in each of which rows i and i + d exchange blocks of d lanes; of small elements
         registers hold several squares, beside or below each other
few      two to four rows become one wide vector by a shuffle, or come out of one
"""

from __future__ import annotations

from collections.abc import Sequence

from ...target import LINE, Target
from ..text.emitter import Function, Reg, is_number, shape_of, vector_type
from ..text.shuffles import transpose
from .nest import displaced

LEFT = 4  # columns that are left beside tiles, from which on another tile takes less time than small ones
FEW = 7  # rows or columns that are interleaved by shuffles of wide vectors: more are squares


def tile_rows(target: Target, item: int) -> int:
    """Rows and columns of a square tile: one register a row, half of the registers at most."""
    return min(target.vector_bits // (8 * item), target.vector_registers // 2)


def tiles(target: Target, item: int, rows: int, columns: int) -> list[tuple[int, int]]:
    """(rows, columns) of the tiles of such a plane, descending: whole cache lines of the result where it has
    as many columns, whole registers of the source where more squares then share one."""
    most = min(tile_rows(target, item), 1 << (min(rows, columns).bit_length() - 1))
    line = max(most, min(LINE // item, 1 << (columns.bit_length() - 1)))
    lanes = target.vector_bits // (8 * item)
    first = (lanes, most) if most >= 4 and line < lanes <= rows else (most, line)
    levels = (first, (most, most), (4, 4), (1, 1))
    return list(dict.fromkeys(tile for tile in levels if min(tile) <= most))


def squares_together(target: Target, item: int, rows: int, columns: int) -> int:
    """How many squares of a tile of so many rows and columns a register holds."""
    return min(max(rows, columns), target.vector_bits // (8 * item)) // min(rows, columns)


def transpose_below(
    f: Function, side: int, squares: int, item: int, to: str, step_out: str, source: str, step_in: str
) -> None:
    """So many squares that follow each other along the result's columns, which is how the source has them."""
    word = f"i{8 * item}"
    part, whole = vector_type(word, side), vector_type(word, squares * side)
    values = [f.load(whole, f.offset(source, f.mul(j, step_in))) for j in range(side)]
    for i, value in enumerate(transpose(f, values, whole)):
        for first in range(0, squares * side, side):
            row = f.shuffle(value, "poison", range(first, first + side), whole)
            f.store(part, row, f.offset(to, f.mul(first + i, step_out)))


def transpose_beside(
    f: Function, side: int, squares: int, item: int, to: str, step_out: str, source: str, step_in: str
) -> None:
    """So many squares that follow each other along the result's rows, side by side in registers."""
    word = f"i{8 * item}"
    part, whole = vector_type(word, side), vector_type(word, squares * side)
    loaded = [f.load(part, f.offset(source, f.mul(j, step_in))) for j in range(squares * side)]
    values = [concatenated(f, loaded[j::side]) for j in range(side)]
    for i, value in enumerate(transpose(f, values, whole)):
        f.store(whole, value, f.offset(to, f.mul(i, step_out)))


class Transposition:
    """out[i][j] = in[j][i] over blocks: i runs along the source's rows, j along the result's."""

    def __init__(self, f: Function, item: int, step_out: str, step_in: str):
        self.f, self.item, self.step_out, self.step_in = f, item, step_out, step_in

    def cover(
        self, to: str, source: str, levels: Sequence[tuple[int, int]], i0: str, i1: str, j0: str, j1: str
    ) -> None:
        """The rectangle in tiles of levels[0], (rows, columns), then what is left beside and below in the
        smaller ones. Of squares below each other the last ones move back instead, over what they copied,
        where several columns are left."""
        f, (rows, columns) = self.f, levels[0]
        if all(map(is_number, (i0, i1, j0, j1))) and (int(i0) >= int(i1) or int(j0) >= int(j1)):
            return
        i_stop, j_stop = self._whole(i0, i1, rows), self._whole(j0, j1, columns)
        back = is_number(j0) and is_number(j1) and rows > columns <= int(j1) - int(j0)
        if back and (int(j1) - int(j0)) % columns >= LEFT:
            j_stop = j1
        with f.loop(i0, i_stop, rows) as i, f.loop(j0, j_stop, columns) as j:
            column = j.index if j_stop != j1 else f.minimum(j.index, f.sub(j1, columns))
            place_out = f.offset(f.offset(to, f.mul(i.index, self.step_out)), f.mul(column, self.item))
            place_in = f.offset(f.offset(source, f.mul(column, self.step_in)), f.mul(i.index, self.item))
            self._tile(rows, columns, place_out, place_in)
        if len(levels) > 1:
            self.cover(to, source, levels[1:], i0, i_stop, j_stop, j1)
            self.cover(to, source, levels[1:], i_stop, i1, j0, j1)

    def _tile(self, rows: int, columns: int, to: str, source: str) -> None:
        """One tile, in as many squares at a time as a register holds."""
        f, side = self.f, min(rows, columns)
        squares = squares_together(f.target, self.item, rows, columns)
        if rows > columns:
            transpose_below(f, side, squares, self.item, to, self.step_out, source, self.step_in)
            return
        for at in range(0, columns, side * squares):
            there, here = f.offset(to, at * self.item), f.offset(source, f.mul(at, self.step_in))
            transpose_beside(f, side, squares, self.item, there, self.step_out, here, self.step_in)

    def _whole(self, start: str, stop: str, rows: int) -> str:
        return stop if rows == 1 else self.f.add(start, self.f.round_down(self.f.sub(stop, start), rows))


def interleave(f: Function, item: int, count: int, to: str, source: str, step_in: str, length: str) -> None:
    """out[n][c] = in[c][n] for few c: one vector of each, shuffled to one wide store. Where step_in is 0 all
    are the same one."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    vector, wide = f"<{lanes} x {word}>", f"<{count * lanes} x {word}>"
    rows = [f.offset(source, f.mul(c, step_in)) for c in range(count)]
    whole = f.round_down(length, lanes)
    with f.loop(0, whole, lanes) as loop:
        apart = 0 if step_in == "0" else lanes
        joined = [
            f.load(vector, displaced(f, row, loop.index, item)) for row in rows[: count if apart else 1]
        ]
        picks = [c * apart + k for k in range(lanes) for c in range(count)]
        value = f.shuffle(concatenated(f, joined), "poison", picks)
        f.store(wide, value, displaced(f, to, f.mul(loop.index, count), item))
    with f.loop(whole, length) as loop:
        for c, row in enumerate(rows):
            value = f.load(word, displaced(f, row, loop.index, item))
            f.store(word, value, displaced(f, to, f.add(f.mul(loop.index, count), c), item))


def transpose_rows(
    f: Function, item: int, count: int, to: str, source: str, step_in: str, length: str
) -> None:
    """out[n][c] = in[c][n] of so many rows."""
    if count <= FEW:
        interleave(f, item, count, to, source, step_in, length)
        return
    levels = tiles(f.target, item, count if not is_number(length) else int(length), count)
    turned = Transposition(f, item, str(count * item), step_in)
    turned.cover(to, source, levels, "0", length, "0", str(count))


def concatenated(f: Function, vectors: Sequence[Reg]) -> Reg:
    """Vectors of one type one after the other as one."""
    whole, lanes = vectors[0], shape_of(vectors[0].type)[1]
    for number, value in enumerate(vectors[1:], 1):
        width = number * lanes
        if number > 1:  # a shuffle takes two of one width
            value = f.shuffle(value, "poison", [k if k < lanes else None for k in range(width)])
        whole = f.shuffle(whole, value, range(width + lanes))
    return whole


def deinterleave(
    f: Function, item: int, count: int, to: str, step_out: str, source: str, length: str
) -> None:
    """out[c][n] = in[n][c] for few c: one wide load, every c-th lane of it a row."""
    lanes, word = f.target.vector_bits // (8 * item), f"i{8 * item}"
    vector, wide = f"<{lanes} x {word}>", f"<{count * lanes} x {word}>"
    rows = [f.offset(to, f.mul(c, step_out)) for c in range(count)]
    whole = f.round_down(length, lanes)
    with f.loop(0, whole, lanes) as loop:
        value = f.load(wide, displaced(f, source, f.mul(loop.index, count), item))
        for c, row in enumerate(rows):
            part = f.shuffle(value, "poison", range(c, count * lanes, count))
            f.store(vector, part, displaced(f, row, loop.index, item))
    with f.loop(whole, length) as loop:
        for c, row in enumerate(rows):
            value = f.load(word, displaced(f, source, f.add(f.mul(loop.index, count), c), item))
            f.store(word, value, displaced(f, row, loop.index, item))
