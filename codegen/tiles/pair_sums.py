"""Weights whose products with unsigned bytes are added up in pairs of 16 bits, and what of them is beyond.

    uint8 x0 x1 x2 x3  *  int8 w0 w1 w2 w3   →   int16 x0 w0 + x1 w1, x2 w2 + x3 w3   →   int32 their sum

The sum of two saturates where weights of one sign are together beyond 128. What of them is beyond is taken
out of the panel, which has it behind the others, for each of its vectors in further steps of its own, with
the places of their terms:

    panel  [ steps of 4 terms ][ vector 0: how many further steps, and where | these ][ vector 1: … ]

So sums are exact, whatever the weights are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...records import dataclass
from ...target import LINE
from ..text.emitter import Function
from .microkernel import Rows, Tile, multiply_add
from .packing import padded
from .panel_operand import Panel

GROUP = 4  # terms of a step
MOST = 128  # of two weights of one sign that an unsigned byte each is multiplied with
MOST_FURTHER = 0.5  # further steps, for each other one, with which kernels are offered


@dataclass(frozen=True)
class Further:
    """What each vector of a panel has behind the panel's steps: room for so many further ones, whose places
    are so many numbers each."""

    room: int
    words: int = 1

    @property
    def told(self) -> int:
        """Bytes of how many steps a vector has, and their places."""
        return padded(4 + 4 * self.words * self.room, LINE) if self.room else 0

    def vector_bytes(self, lanes: int) -> int:
        return self.told + self.room * lanes * GROUP


def further_steps(weights: np.ndarray, lanes: int) -> tuple[float, int]:
    """Of weights [N, K, ...] of int8 the further steps of vectors of so many results, for each other step;
    and for how many of a vector there is room: a power of two, so that like weights share their code."""
    idle = [(0, -weights.shape[0] % lanes), (0, -weights.shape[1] % GROUP), *[(0, 0)] * (weights.ndim - 2)]
    over = abs(_pairs(np.pad(weights, idle))) > MOST
    beyond = (over[:, ::2] | over[:, 1::2]).reshape(-1, lanes, math.prod(over.shape[1:]) // 2).any(axis=1)
    most = int(beyond.sum(axis=1).max())
    return float(beyond.mean()), 1 << (most - 1).bit_length() if most else 0


def _pairs(weights: np.ndarray) -> np.ndarray:
    """The sums of two neighbours along axis 1."""
    return np.asarray(weights[:, ::2].astype(np.int16) + weights[:, 1::2])


class Excess:
    """Weights [N, K] of int8 as the sum of `kept`, whose pairs stay in 16 bits, and what is beyond, of which
    each pair has one at most: `over` in the `terms` of `results`."""

    def __init__(self, weights: np.ndarray):
        self.depth = weights.shape[1]
        pairs = _pairs(np.pad(weights, [(0, 0), (0, -self.depth % GROUP)]))
        self.results, place = np.nonzero(abs(pairs) > MOST)
        totals = pairs[self.results, place]
        self.over = (totals - np.clip(totals, -MOST, MOST)).astype(np.int8)
        first, second = (weights[self.results, 2 * place + k].astype(np.int16) for k in range(2))
        self.terms = 2 * place + (abs(second) > abs(first))
        self.kept = weights.copy()
        self.kept[self.results, self.terms] -= self.over

    def behind(self, results: slice, lanes: int, further: Further, places: np.ndarray) -> np.ndarray:
        """The bytes behind the steps of a panel of some results. places: [steps, words], of the terms of each
        step; those of the last, where it is not full, of the last that there are."""
        if not further.room:
            return np.zeros(0, np.uint8)
        starts = range(results.start, results.stop, lanes)
        return np.concatenate([self._of_vector(start, lanes, further, places) for start in starts])

    def _of_vector(self, start: int, lanes: int, further: Further, places: np.ndarray) -> np.ndarray:
        mine = slice(*np.searchsorted(self.results, (start, start + lanes)))
        steps, number = np.unique(self.terms[mine] // GROUP, return_inverse=True)
        first = np.minimum(steps * GROUP, self.depth - GROUP)
        numbers = np.zeros((further.room, lanes, GROUP), np.int8)
        numbers[number, self.results[mine] - start, self.terms[mine] - first[number]] = self.over[mine]
        told = np.zeros(further.told // 4, np.int32)
        told[0], told[1 : 1 + len(steps) * further.words] = len(steps), places[steps].reshape(-1)
        return np.concatenate([told.view(np.uint8), numbers.view(np.uint8).reshape(-1)])


def with_further(
    f: Function,
    tile: Tile,
    sums: Sequence[str],
    behind: str,
    further: Further,
    rows: Callable[[list[str]], Rows],
) -> list[str]:
    """The sums of a tile with those of the further steps of its vectors, which lie `behind` its panel's
    others. rows: the terms at a place, which is so many numbers."""
    found, one = list(sums), replace(tile, vectors=1)
    if not further.room:
        return found
    for j in range(tile.vectors):
        told = f.offset(behind, j * further.vector_bytes(tile.lanes))
        numbers, mine = f.offset(told, further.told), slice(j, None, tile.vectors)
        with f.loop(0, _number(f, told, 0), 1, [(tile.vector, x) for x in found[mine]]) as loop:
            first = f.add(1, f.mul(loop.index, further.words))
            place = [_number(f, told, f.add(first, word)) for word in range(further.words)]
            step = Panel(f.offset(numbers, f.mul(loop.index, one.panel_step)))
            loop.carry(*multiply_add(f, one, loop.carried, rows(place), step, GROUP))
        found[mine] = loop.results
    return found


def _number(f: Function, told: str, index: int | str) -> str:
    return f.cast("sext", f.load("i32", f.offset(told, f.mul(index, 4)), 4), "i64")
