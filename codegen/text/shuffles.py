"""Vectors rearranged: a square transposed, lanes combined across a vector, many vectors summed at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .emitter import Function, vector_type
from .vectors import Vectors


def shuffled(f: Function, type_: str, a: str, b: str, picks: Sequence[int]) -> str:
    """The lanes of a and b, counted one after the other, that picks name."""
    mask = ", ".join(f"i32 {p}" for p in picks)
    return f.value(f"shufflevector {type_} {a}, {type_} {b}, <{len(picks)} x i32> <{mask}>")


def transpose(f: Function, rows: Sequence[str], element: str) -> list[str]:
    """The transpose of a square of vectors: log2(lanes) rounds, each exchanging the blocks of twice
    the size that lie off the diagonal."""
    lanes, rows = len(rows), list(rows)
    type_, distance = vector_type(element, lanes), 1
    while distance < lanes:
        result = list(rows)
        for i in range(lanes):
            if i & distance:
                continue
            low, high = rows[i], rows[i | distance]
            for target, bit in ((i, 0), (i | distance, distance)):
                picks = [
                    (lane & ~distance | bit) + (lanes if lane & distance else 0) for lane in range(lanes)
                ]
                result[target] = shuffled(f, type_, low, high, picks)
        rows, distance = result, 2 * distance
    return rows


def across(v: Vectors, value: str, combine: Callable[[str, str], str]) -> str:
    """All lanes combined, the result in every lane."""
    distance = v.lanes // 2
    while distance:
        picks = [lane ^ distance for lane in range(v.lanes)]
        value = combine(value, shuffled(v.f, v.type, value, "poison", picks))
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
            v.add(*(shuffled(v.f, v.type, low, high, picks) for picks in (first, second)))
            for low, high in zip(values[:half], values[half:], strict=True)
        ]
    return values[0]
