"""Copies between strided views, with code for each way in which rows of the two can lie.

runs     both contiguous: rows are copied as bytes
repeat   the source stands still: rows are filled, few times each element by shuffles
mirror   the source runs backwards
every    it strides: element by element, or every second to fourth of wide loads
tiles    another axis is the source's contiguous one: planes are transposed in registers
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...ir import dims
from ...ir.dims import Dimension
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.emitter import Function
from .nest import Block, Blocks, Piece, View, address, block_rows, collapse, displaced, moving
from .row_copies import UNROLLED, copy_bytes, copy_elements, copy_every, copy_mirrored, fill_bytes, repeated
from .transposition import FEW, Transposition, deinterleave, interleave, squares_together, tiles

TILED = 64  # iterations of a block along both axes of a plane: its lines stay in the first-level cache
FEW_OPEN = 4  # for which there is code of their own where only the run tells how many there are
WORDS = (2, 4, 8)  # bytes that move as one
EVERY = (2, 3, 4)  # of so many elements one that is copied by wide loads


def _in_words(
    sizes: tuple[Dimension, ...], views: tuple[View, ...]
) -> tuple[tuple[Dimension, ...], tuple[View, ...]]:
    """The same nest, of which rows of 2, 4 or 8 bytes without a gap are elements."""
    if len(sizes) < 2 or any(v.strides[-1] != v.itemsize for v in views):
        return sizes, views
    nbytes = sizes[-1] * views[0].itemsize
    if nbytes not in WORDS:
        return sizes, views
    return sizes[:-1], tuple(replace(v, dtype=f"uint{8 * nbytes}", strides=v.strides[:-1]) for v in views)


class Copy(Piece):
    """out[i, j, ...] = source[i, j, ...] over `sizes`, raw elements; where source is None the bits of the
    number `fill`. The two must not overlap."""

    def __init__(
        self, target: Target, sizes: Sequence[Dimension], out: View, source: View | None, fill: int = 0
    ):
        views: tuple[View, ...] = (out,) if source is None else (out, source)
        if out.itemsize == 16:  # pairs of words
            sizes, views = (
                (*sizes, 2),
                tuple(replace(v, dtype="uint64", strides=(*v.strides, 8)) for v in views),
            )
        self.sizes, views, _ = collapse(sizes, views)
        if source is not None:
            self.sizes, views = _in_words(self.sizes, views)
        self.target, self.item, self.fill = target, views[0].itemsize, fill
        if not self.sizes:
            self.sizes, views = (1,), tuple(replace(v, strides=(self.item,)) for v in views)
        self.views, self.out, self.source = views, views[0], None if source is None else views[1]
        self.across = self._contiguous_axis()
        self.few = self._interleaved()

    def _contiguous_axis(self) -> int | None:
        """The axis along which the source is contiguous, where that is not the last."""
        last, item = len(self.sizes) - 1, self.item
        if self.source is None or self.out.strides[last] != item:
            return None
        step, length = self.source.strides[last], self.sizes[last]
        if step in (item, -item):
            return None
        found = next((a for a in range(last) if self.source.strides[a] == item), None)
        if step != 0 or found is None:
            return found
        repeats = isinstance(length, int) and length <= FEW and self.out.strides[found] == length * item
        return found if repeats else None

    def _interleaved(self) -> str | None:
        """Whether the shorter of a transposition's two axes is that short that whole rows of it are
        shuffled."""
        if self.across is None or self.source is None:
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
    def estimate(self) -> Estimate:
        """What is read and written, and the instructions that move it."""
        moved = moving(self.target, self.views[1:], self.out, self.sizes)
        return moved + costs.compute(self.target, self._instructions)

    @property
    def _instructions(self) -> float:
        """On vectors: loads and stores, shuffles, beginning rows."""
        rows, row = costs.rows_of(self.sizes)
        lanes = self.target.vector_bits // (8 * self.item)
        vectors = rows * -(-row // lanes)
        begun = rows * costs.begun_row(self.sizes[-1], lanes * UNROLLED)
        if self.across is not None:
            return self._transposing(self.across)
        strides = [v.strides[-1] for v in self.views]
        if all(stride in (self.item, 0) for stride in strides):
            return begun + len(strides) * vectors
        if strides == [self.item, -self.item]:
            return begun + 3 * vectors
        if strides[0] == self.item and strides[1] in [apart * self.item for apart in EVERY]:
            return begun + vectors * costs.EVERY
        return begun + rows * row * costs.ELEMENT

    def _transposing(self, across: int) -> float:
        rows, columns = (dims.typical(self.sizes[axis]) for axis in (across, len(self.sizes) - 1))
        planes = dims.typical(dims.product(self.sizes)) / (rows * columns)
        if self.few:
            return planes * rows * columns * costs.INTERLEAVED * self.item * 8 / self.target.vector_bits
        found, covered = 0.0, 0
        for tall, wide in self._tiles(across):  # those that fit, then smaller ones in what is left
            now = rows // tall * tall * (columns // wide * wide)
            squares, side = squares_together(self.target, self.item, tall, wide), min(tall, wide)
            found += (now - covered) / side * costs.transposed(side, squares)
            covered = now
        return planes * found

    @property
    def blocks(self) -> Blocks:
        if self.across is None:
            planes = all(isinstance(size, int) for size in self.sizes[-2:])
            return block_rows(self.sizes, self.elements, rows=3 if planes else 2)
        last = len(self.sizes) - 1
        short = {"interleave": last, "deinterleave": self.across}.get(self.few or "")
        most = 16 * TILED if self.few else TILED
        lengths: list[Dimension] = [1] * (last + 1)
        for axis, other in ((self.across, last), (last, self.across)):
            size = self.sizes[axis]
            if isinstance(size, int):
                lengths[axis] = max(1, size if axis == short else min(size, most))
            else:
                lengths[axis] = most if self.few else self._longer(self.sizes[other])
        return Blocks(self.sizes, tuple(lengths))

    def _longer(self, other: Dimension) -> Dimension:
        """How far a block reaches along one axis of a plane: the further, the shorter the other is."""
        return dims.floor_divide(TILED * TILED, dims.maximum(1, dims.minimum(other, TILED)))

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block."""
        pointers = [address(f, v, block.starts) for v in self.views]
        if self.across is not None and self.source is not None:
            self._transpose(f, block, self.across, self.source.strides[-1], *pointers)
            return
        self._rows(f, block, pointers, [a for a, n in enumerate(block.extents[:-1]) if n != "1"])

    def _rows(self, f: KernelFunction, block: Block, pointers: Sequence[str], axes: Sequence[int]) -> None:
        """The axes outside the last as loops, then a row."""
        if not axes:
            self._row(f, *pointers, count=block.extents[-1])
            return
        with f.loop(0, block.extents[axes[0]]) as loop:
            inner = [
                displaced(f, p, loop.index, f.size(v.strides[axes[0]])) for p, v in zip(pointers, self.views)
            ]
            self._rows(f, block, inner, axes[1:])

    def _row(self, f: KernelFunction, to: str, source: str = "", *, count: str) -> None:
        step_out = self.out.strides[-1]
        if self.source is None and step_out == self.item:
            pattern = repeated(f, str(self.fill), self.item) if self.fill else "zeroinitializer"
            fill_bytes(f, to, pattern, f.mul(count, self.item))
            return
        if self.source is None:
            with f.loop(0, count) as loop:
                f.store(f"i{8 * self.item}", str(self.fill), displaced(f, to, loop.index, f.size(step_out)))
            return
        step_in = self.source.strides[-1]
        if step_out == self.item and isinstance(step_in, int):
            self._contiguous(f, to, source, step_in, count)
        elif step_out == self.item:
            given = f.size(step_in)
            choices = [f.compare("eq", given, s) for s in (self.item, 0)]
            for choice, known in zip(choices, (self.item, 0)):
                with f.when(choice):
                    self._contiguous(f, to, source, known, count)
            with f.when(f.all_of(*map(f.invert, choices))):
                copy_elements(f, self.item, to, str(self.item), source, given, 0, count)
        else:
            copy_elements(f, self.item, to, f.size(step_out), source, f.size(step_in), 0, count)

    def _contiguous(self, f: Function, to: str, source: str, step_in: int, count: str) -> None:
        """A row of which the result is contiguous."""
        item = self.item
        if step_in == item:
            copy_bytes(f, to, source, f.mul(count, item))
        elif step_in == 0:
            fill_bytes(f, to, repeated(f, f.load(f"i{8 * item}", source), item), f.mul(count, item))
        elif step_in == -item:
            copy_mirrored(f, item, to, source, count)
        elif step_in in [apart * item for apart in EVERY]:
            copy_every(f, item, to, source, step_in // item, count)
        else:
            copy_elements(f, item, to, str(item), source, str(step_in), 0, count)

    def _transpose(
        self, f: KernelFunction, block: Block, across: int, stride: Dimension, to: str, source: str
    ) -> None:
        """Planes of the axis `across` and the last, along which the source has that stride."""
        rows, columns = block.extents[across], block.extents[-1]
        step_out, step_in = f.size(self.out.strides[across]), f.size(stride)
        if self.few == "interleave":
            interleave(f, self.item, dims.number(self.sizes[-1]), to, source, step_in, rows)
        elif self.few == "deinterleave":
            deinterleave(f, self.item, dims.number(self.sizes[across]), to, step_out, source, columns)
        else:
            many = []
            for short, count, condition in self._maybe_few(f, across):
                many.append(f.invert(condition))
                with f.when(condition):
                    if short == across:
                        deinterleave(f, self.item, count, to, step_out, source, columns)
                    else:
                        interleave(f, self.item, count, to, source, step_in, rows)
            with f.when(f.all_of(*many)):
                Transposition(f, self.item, step_out, step_in).cover(
                    to, source, self._tiles(across), "0", rows, "0", columns
                )

    def _maybe_few(self, f: KernelFunction, across: int) -> Iterator[tuple[int, int, str]]:
        """(axis, size, whether it has that size) of a transposition whose axis may turn out so short that
        whole rows of it are shuffled."""
        last = len(self.sizes) - 1
        for axis, view, along in ((last, self.out, across), (across, self.source, last)):
            size = self.sizes[axis]
            if isinstance(size, int) or view is None or view.strides[along] != size * self.item:
                continue
            for count in range(1, FEW_OPEN + 1):
                yield axis, count, f.compare("eq", f.size(size), count)

    def _tiles(self, across: int) -> list[tuple[int, int]]:
        """(rows, columns) of tiles, descending."""
        rows, columns = (s if isinstance(s, int) else TILED for s in (self.sizes[across], self.sizes[-1]))
        return tiles(self.target, self.item, rows, columns)
