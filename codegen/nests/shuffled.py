"""Rows that are permuted alike by constant indices: pairs of neighbours exchanged, halves, a row backwards.

for rows:  for vectors of the row:  out = shuffle(one or two vectors of the source's row)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import dims
from ...ir.dims import Dimension
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.memory import first_lanes, store_lanes
from .nest import Block, Blocks, Piece, View, address, block_rows, collapse, displaced, loops, moving

MOST_VECTORS = 32  # of a row, which are written without a loop


class Shuffled(Piece):
    """out[..., i] = source[..., places[i]] over `sizes`, raw elements; both lie without gaps along the last
    axis, of which the source has `limit` elements."""

    def __init__(
        self,
        target: Target,
        sizes: Sequence[Dimension],
        out: View,
        source: View,
        places: np.ndarray,
        limit: int,
    ):
        self.target, self.item, last = target, out.itemsize, len(sizes) - 1
        self.sizes, (self.out, self.source), _ = collapse(sizes, (out, source), [last], last)
        self.lanes = target.vector_bits // (8 * self.item)
        self.windows = _windows(places, self.lanes, limit)

    @property
    def estimate(self) -> Estimate:
        rows = dims.typical(dims.product(self.sizes[:-1]))
        each = sum(2 * len(starts) + 1 for starts, _ in self.windows or [])
        moved = moving(self.target, [self.source], self.out, self.sizes)
        return moved + costs.compute(self.target, rows * (each + costs.BEGUN))

    @property
    def blocks(self) -> Blocks:
        found = block_rows(self.sizes, self.elements)
        return Blocks(found.sizes, (*found.blocks[:-1], None))

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block, row by row."""
        to, source = (address(f, v, block.starts) for v in (self.out, self.source))
        with loops(f, block.extents[:-1]) as at:
            for index, out, walked in zip(at, self.out.strides, self.source.strides):
                to, source = displaced(f, to, index, f.size(out)), displaced(f, source, index, f.size(walked))
            for number, (starts, picks) in enumerate(self.windows or []):
                place = f.offset(to, number * self.lanes * self.item)
                self._vector(f, place, source, starts, picks)

    def _vector(
        self, f: KernelFunction, to: str, source: str, starts: Sequence[int], picks: Sequence[int]
    ) -> None:
        word = f"i{8 * self.item}"
        kind = f"<{self.lanes} x {word}>"
        loaded = [f.load(kind, f.offset(source, start * self.item)) for start in starts]
        left, mask = len(picks), None
        if left < self.lanes and f.target.masked:
            mask, picks = first_lanes(f, left, self.lanes), [*picks, *[0] * (self.lanes - left)]
        value = f.shuffle(loaded[0], loaded[1] if len(loaded) > 1 else "poison", picks, kind)
        if len(picks) == 1:
            value = f.extract(value, 0, f"<1 x {word}>")
        store_lanes(f, f"uint{8 * self.item}", value, to, len(picks), mask)


def _windows(places: np.ndarray, lanes: int, limit: int) -> list[tuple[list[int], list[int]]] | None:
    """For each vector of a row where the one or two begin of which it is shuffled, and of which lanes; None
    where more are needed."""
    if limit < lanes or places.size > MOST_VECTORS * lanes:
        return None
    found = []
    for first in range(0, places.size, lanes):
        wanted = places[first : first + lanes]
        starts = [min(int(wanted.min()), limit - lanes)]
        beyond = wanted[wanted >= starts[0] + lanes]
        if beyond.size:
            starts.append(min(int(beyond.min()), limit - lanes))
        if wanted.max() >= starts[-1] + lanes:
            return None
        picks = [int(p - starts[0] if p < starts[0] + lanes else p - starts[1] + lanes) for p in wanted]
        found.append((starts, picks))
    return found
