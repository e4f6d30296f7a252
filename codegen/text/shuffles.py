"""Vectors rearranged: a square transposed, vectors interleaved, lanes combined across a vector, many vectors
summed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .emitter import Function, shape_of, type_of
from .vectors import Vectors


def transpose(f: Function, rows: Sequence[str], type_: str = "") -> list[str]:
    """The transpose of a square of vectors: log2(rows) rounds, each exchanging the blocks of twice the size
    that lie off the diagonal; of several squares side by side, where vectors have more lanes than there are
    rows. Rows that are constants take the type of the others, or `type_`."""
    count, rows, distance = len(rows), list(rows), 1
    type_ = type_of("transpose", *rows, default=type_)
    lanes = shape_of(type_)[1]
    while distance < count:
        keep = [lane if not lane & distance else lanes + lane - distance for lane in range(lanes)]
        swap = [lane + distance if not lane & distance else lanes + lane for lane in range(lanes)]
        for i in range(count):
            if not i & distance:
                pair = rows[i], rows[i + distance]
                rows[i], rows[i + distance] = (f.shuffle(*pair, picks, type_) for picks in (keep, swap))
        distance *= 2
    return rows


def interleaved(f: Function, vectors: Sequence[str], lanes: int, type_: str) -> str:
    """Lane 0 of each of the vectors, lane 1 of each and so on, in one vector: of one, two, four, ... of
    them. Where an instruction picks any bytes of two registers, vectors are put side by side until there are
    two; else of four the first and the third come together, the second and the fourth, then both pairs."""
    if len(vectors) == 1:
        return vectors[0]
    if f.target.lookup.registers == 2:
        parts, wide, (element, _) = vectors, lanes, shape_of(type_)
        while len(parts) > 2:
            pairs = zip(parts[::2], parts[1::2])
            parts, wide = [f.shuffle(low, high, range(2 * wide), type_) for low, high in pairs], 2 * wide
            type_ = f"<{wide} x {element}>"
        picks = [number * lanes + lane for lane in range(lanes) for number in range(len(vectors))]
        return f.shuffle(parts[0], parts[1], picks, type_)
    even, odd = (interleaved(f, vectors[k::2], lanes, type_) for k in (0, 1))
    wide, (element, _) = lanes * len(vectors) // 2, shape_of(type_)
    picks = [side * wide + lane for lane in range(wide) for side in (0, 1)]
    return f.shuffle(even, odd, picks, f"<{wide} x {element}>")


def across(v: Vectors, value: str, combine: Callable[[str, str], str]) -> str:
    """All lanes combined, the result in every lane."""
    distance = v.lanes // 2
    while distance:
        picks = [lane ^ distance for lane in range(v.lanes)]
        value = combine(value, v.f.shuffle(value, "poison", picks, v.type))
        distance //= 2
    return value


def row_sums(v: Vectors, rows: Sequence[str]) -> str:
    """The sums of `lanes` vectors as the lanes of one: each round adds the halves of two vectors and
    puts them side by side."""
    values = list(rows)
    while len(values) > 1:
        half = len(values) // 2
        first = []  # of each block of `half` lanes of the result, the lanes of its left summand
        for lane in range(v.lanes):
            block, place = divmod(lane, half)
            first.append((v.lanes if block % 2 else 0) + block // 2 * 2 * half + place)
        second = [lane + half for lane in first]
        values = [
            v.add(*(v.f.shuffle(low, high, picks, v.type) for picks in (first, second)))
            for low, high in zip(values[:half], values[half:], strict=True)
        ]
    return values[0]
