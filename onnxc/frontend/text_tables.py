"""Tables that operators on text read: hash tables of keys, and how letters change case.

They are made while a model is compiled and stored in its library as constants, so that neither loading nor
running builds anything, and no locale of the system is asked. `runtime_c/ops_text.c` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np

from ..ir.text_twins import case_map, encoded

_WORD = (1 << 64) - 1


def integer_table(keys: Sequence[int]) -> np.ndarray:
    """The hash table of distinct int64 keys: see `_hash_table`."""
    return _hash_table([key & _WORD for key in keys])


def string_table(keys: Sequence[str]) -> np.ndarray:
    """The hash table of distinct texts: see `_hash_table`."""
    return _hash_table([_fnv1a(encoded(key)) for key in keys])


def _hash_table(hashes: Sequence[int]) -> np.ndarray:
    """int32 [2^m], at most half full: the place of each key in the first free slot from where its hash
    points on; -1 in free slots."""
    slots = 2
    while slots < 2 * len(hashes):
        slots *= 2
    table = np.full(slots, -1, np.int32)
    for place, value in enumerate(hashes):
        at = ((value * 0x9E3779B97F4A7C15 & _WORD) >> 32) & (slots - 1)
        while table[at] >= 0:
            at = (at + 1) & (slots - 1)
        table[at] = place
    return table


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & _WORD
    return value


# Case --------------------------------------------------------------------------------------------


def upper(character: str) -> str:
    """The one character that is its capital (Unicode's simple mapping), or the character itself."""
    return next((c for c in (character.upper(), character.title()) if len(c) == 1), character)


def lower(character: str) -> str:
    """The one character that is its small letter (Unicode's simple mapping), or the character itself."""
    return "i" if character == "\u0130" else next((c for c in (character.lower(),) if len(c) == 1), character)


def cased_characters() -> Iterator[str]:
    """All characters that may have another case: none is beyond the second plane."""
    return (chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000)


@cache
def case_table(action: str) -> np.ndarray:
    """int32 [rows, 4] of (first, last, step, what is added), sorted: which characters "UPPER" or "LOWER"
    changes. "NONE" changes none."""
    if action == "NONE":
        return np.zeros((0, 4), np.int32)
    change = upper if action == "UPPER" else lower
    pairs = [(ord(c), ord(change(c))) for c in cased_characters() if change(c) != c]
    return np.array(list(_rows(pairs)), np.int32)


def changed(text: str, table: np.ndarray) -> str:
    """The text with its characters changed as a case table says."""
    return text.translate(case_map(table))


def _rows(pairs: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int, int, int]]:
    """Sorted pairs (from, to) in runs of equal steps and differences."""
    run: tuple[int, int, int, int] | None = None
    for before, after in pairs:
        added = after - before
        if run is not None:
            first, last, step, same = run
            if added == same and (before - last == step or (first == last and before - last <= 2)):
                run = (first, before, before - last, added)
                continue
            yield run
        run = (before, before, 1, added)
    if run is not None:
        yield run
