"""Convolution of 3x3 windows by Winograd's F(m x m, 3 x 3): an m x m piece of the output from t x t inputs,
t = m + 2, with t*t products a channel instead of 9 m*m ("Fast Algorithms for Convolutional Neural Networks",
Lavin and Gray, 2015).

    a group of pieces:   V[i] = B' x B        t*t matrices [tile][block of channels][piece][channel]
    for each panel:      U[i] = G w G'        t*t matrices [channels][vectors * lanes], a chunk at a time
                         M[i] += V[i] U[i]    t*t products in register tiles
                         out  = A' M A        pieces, then their epilogue
Weights are stored as they are, nine a channel, and transformed while they are in the cache: a stored
transform would be up to four times as much to load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import prod

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node, TensorType
from ...ir.ops import Conv
from ...ir.stored import half_weights
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, nearest, single
from ..text.emitter import ENTRY, Function, scalar_type, vector_type
from ..text.vectors import Vectors
from ..tiles.blocked import halo_layout, image_of, without_halo
from ..tiles.blocked_epilogue import Epilogue, Finish, operand_layouts, pack_operand, packed_operands
from ..tiles.lines import Lines
from ..tiles.microkernel import (
    Tile,
    equal_heights,
    for_equal_tiles,
    height_counts,
    load_tile,
    most_rows,
    step_time,
    store_tile,
    waits,
)
from ..tiles.panel import LINE, Ahead, Panel, load_widened
from ..tiles.panels import Panels, by_depth, in_panels, panel_tiling, panels_of
from ..tiles.run_packing import RunPanels, packed_by_run, packing_estimate
from ..tiles.stored_panel import stored_halves
from ..tiles.winograd_transforms import both_ways, by_columns, by_rows, transforms
from .conv import clear_planes, is_plain, nest, window
from .conv_grouped import channel_ranges, spread_groups

PIECES = (2, 4, 6)  # the values of m
FEW_GROUPS = 16  # that threads share, at least
FEW_CHANNELS = 16  # with fewer the transforms cost more than the products save


# What is offered ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling:
    """Pieces of m x m, in groups of about `pieces`; panels of `vectors` blocks of channels and tiles of at
    most `rows` pieces. `kept`: weights are transformed once, all of them, not for every group. `stored`: the
    type of the weights, where it is not that of sums."""

    m: int
    vectors: int
    rows: int
    pieces: int
    kept: bool = False
    stored: str | None = None


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """For each size of a piece the fastest groupings."""
    if not is_plain(node) or node.op.transposed or node.op.exact:
        return
    x, out, win = node.inputs[0].tensor, node.outputs[0].tensor, window(node)
    halo, block = win.halo, target.block
    if win.kernel != (3, 3) or (win.strides, win.dilations) != ((1, 1), (1, 1)) or x.rank != 4:
        return
    grouped, (channels, outputs) = node.op.groups > 1, dims.numbers((x.shape[1], out.shape[1]))
    if halo is None or min(channels, outputs) // node.op.groups < FEW_CHANNELS:
        return
    if grouped and node.inputs[1].constant is None:
        return
    operands = operand_layouts(node, block)
    if operands is None:
        return
    stored = None if grouped else stored_halves(node.inputs[1].constant, target)
    widths = {panel_tiling(target, outputs, block, x.dtype).vectors}
    if grouped:  # panels of several groups hold zeros, the more the more groups meet in them
        widths = set(range(1, min(-(-outputs // block), 4) + 1))
    for m in PIECES:
        options = [
            Tiling(m, vectors, rows, pieces, kept, stored)
            for vectors in widths
            for rows in (most_rows(target, vectors * target.registers(x.dtype, block)),)
            for pieces, kept in _groupings(node, target, m, vectors, rows)
        ]
        for cost, tiling in nearest((estimate(node, target, o), o) for o in dict.fromkeys(options)):
            yield Offer(
                cost + packing_estimate(node, target),
                tiling,
                (halo_layout(wide_enough(halo, out, m), block, 2), None, *operands),
                without_halo(block, 2),
                (1, *packed_operands(node)),
            )


def wide_enough(halo: tuple[int, int], out: TensorType, m: int) -> tuple[int, int]:
    """A halo so wide that pieces of an output which is smaller than they are read nothing behind it."""
    rows, columns = (max(1, dims.bounds(size)[0] or 0) for size in out.shape[2:])
    return halo[0] + max(0, m - rows), halo[1] + max(0, m - columns)


def _spans(node: Node[Conv], block: int, vectors: int) -> list[tuple[int, int]]:
    """For each panel the input channels that it sums over, whole blocks where there are groups."""
    channels, outputs = (dims.number(value.shape[1]) for value in (node.inputs[0], node.outputs[0]))
    together = block if node.op.groups > 1 else 1
    return channel_ranges(channels, outputs, node.op.groups, block, vectors, together)


def _groupings(
    node: Node[Conv], target: Target, m: int, vectors: int, rows: int
) -> Iterator[tuple[int, bool]]:
    """Numbers of pieces that a group may have, and whether weights are kept beside it. Where they are not,
    the larger groups are, the more seldom weights are transformed; V may be as large as the second-level
    cache or twice that, since it is read in order."""
    x, out, facts = node.inputs[0].tensor, node.outputs[0].tensor, target.facts
    block, size = target.block, dtypes.itemsize(node.op.accumulate)
    channels = -(-dims.number(x.shape[1]) // block) * block
    depths = [high - low for low, high in _spans(node, block, vectors)]
    matrices, width, pieces = (m + 2) ** 2 * size, vectors * block, _pieces(out, m)
    if node.op.groups > 1 and matrices * max(depths) * width > facts.level2_bytes // 2:
        return  # U of a panel is not cut into chunks there
    for nbytes in (facts.level2_bytes // 3, facts.level2_bytes, 2 * facts.level2_bytes):
        most = max(rows, min(nbytes, facts.level3_bytes // 3) // (matrices * channels))
        yield -(-pieces // -(-pieces // most)), False  # groups of equal size
    if matrices * max(depths) * width * len(depths) <= facts.level2_bytes // 2:
        most = max(rows, facts.level2_bytes // 6 // (matrices * channels) // rows * rows)
        yield max(rows, min(most, pieces // FEW_GROUPS)), True


def _pieces(out: TensorType, m: int) -> int:
    return dims.typical(out.shape[0] * dims.product(dims.ceil_divide(size, m) for size in out.shape[2:]))


def estimate(node: Node[Conv], target: Target, tiling: Tiling) -> Estimate:
    """Products in tiles, transforms by their instructions, the weights' for every group of pieces unless they
    are kept, and moving everything once."""
    x, w, out = node.inputs[0].tensor, node.inputs[1].tensor, node.outputs[0].tensor
    m, vectors, block = tiling.m, tiling.vectors, target.block
    t, pieces, depths = m + 2, _pieces(out, m), [high - low for low, high in _spans(node, block, vectors)]
    parts, size = target.registers(x.dtype, block), dtypes.itemsize(x.dtype)  # of a vector
    rows, panels = most_rows(target, vectors * parts), len(depths)
    channels = sum(depths) / panels  # of a panel
    blocks, groups = -(-dims.number(x.shape[1]) // block), -(-pieces // tiling.pieces)
    panel, found = channels * vectors * block * size, costs.step(target)
    for height, count in height_counts(-(-pieces // groups), rows).items():
        tile = Estimate(compute=channels * step_time(target, height, vectors * parts))
        found += (tile + costs.again(target, panel, panel)) * (groups * count * panels * t * t)
    matrices, width = t * t * size, vectors * block  # bytes of a channel of a piece in all matrices
    kept = panels * max(depths) * matrices * width
    u = kept if tiling.kept else min(channels * matrices * width, target.facts.level2_bytes // 3)
    among = tiling.pieces * matrices * (blocks * block + width) + u  # V, M and U
    found += costs.again(target, panels * pieces * matrices * channels, among)
    found += costs.scattered(target, pieces * matrices * blocks * block, among)
    spilled = [2 * n if n > target.vector_registers else 0 for n in (t * t, m * t)]
    data = parts * pieces * blocks * (2 * t * t + 2 * t * (5 * t // 2 - 2) + spilled[0])
    times = 1 if tiling.kept else groups
    weights = parts * times * channels * panels * vectors * (t * t + 9 + (t + 3) * 2 * t)
    results = parts * pieces * panels * vectors * (2 * t * t + (t + m) * 2 * t + spilled[1])
    found += costs.compute(target, costs.WINOGRAD * (data + results) + costs.WINOGRAD_WEIGHTS * weights)
    found += costs.epilogue(target, node, x.dtype)
    found += costs.stored(target, dims.number(w.nbytes))
    return found + costs.traffic(target, node)


# Weights -----------------------------------------------------------------------------------------


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> Constant | None:
    """Weights as [panel][channel][tap][vectors * block]."""
    if operand != 1:
        return pack_operand(node.inputs[operand], 4, choice.block)
    halves = half_weights(node.inputs[1].data) if choice.tiling.stored else None
    weights = halves or node.inputs[1].data
    kinds = panels_of(weights.shape[0], choice.block, choice.tiling.vectors)
    if node.op.groups > 1:
        return _packed_groups(node, choice, kinds)
    size = sum(p.count * p.width for p in kinds) * prod(weights.shape[1:])
    return Constant(weights.dtype, (size,), lambda: in_panels(by_depth(weights.array, 1), kinds))


def _packed_groups(node: Node[Conv], choice: Choice[Tiling], kinds: Sequence[Panels]) -> Constant:
    """The panels of a grouped convolution, each of the channels that it sums over; zeros join groups."""
    weights, spans = node.inputs[1].data, _spans(node, choice.block, choice.tiling.vectors)
    widths = [p.width for p in kinds for _ in range(p.count)]
    size = sum(9 * (high - low) * width for (low, high), width in zip(spans, widths))

    def make() -> np.ndarray:
        array, first, panels = weights.array, 0, []
        for (low, high), width in zip(spans, widths):
            spread = spread_groups(array, node.op.groups, first, low, high, width)
            panels.append(spread.reshape(-1))
            first += width
        return np.concatenate(panels)

    return Constant(weights.dtype, (size,), make)


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    kernel = _Winograd(node, choice, target)
    return packed_by_run(node, kernel.code(), target, kernel.weight_bytes, [kernel.run_panels])


def _apart(nbytes: int) -> int:
    """At least nbytes from one matrix to the next, so that equal places in them do not fall into one set of
    a cache: an odd number of lines."""
    return (-(-nbytes // LINE) | 1) * LINE


class _Winograd:
    """Writes the one step. A part is a group of pieces of one image and some panels; its scratch holds V,
    then U, then M."""

    def __init__(self, node: Node[Conv], choice: Choice[Tiling], target: Target):
        tiling = choice.tiling
        self.target, self.m, self.cost = target, tiling.m, choice.cost
        self.t, self.matrices = self.m + 2, transforms(self.m)
        self.x, self.out = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor)
        self.block, self.window = self.out.block, window(node)
        self.dtype, self.size = node.op.accumulate, dtypes.itemsize(node.op.accumulate)
        self.stored = tiling.stored or self.dtype  # of weights
        self.vector = self.block * self.size  # bytes of a vector of sums
        self.lanes = min(self.block, target.lanes(self.dtype))  # that are transformed at once
        self.parts = [part * self.lanes * self.size for part in range(self.block // self.lanes)]
        self.epilogue = Epilogue(node, self.block)
        self.grouped, self.spans = node.op.groups > 1, _spans(node, self.block, tiling.vectors)
        self.kinds = panels_of(self.out.channels, self.block, tiling.vectors)
        self.widest, self.rows, self.kept = tiling.vectors, tiling.rows, tiling.kept
        self.columns = dims.ceil_divide(self.out.width, self.m)
        self.pieces = dims.ceil_divide(self.out.height, self.m) * self.columns
        self.piece = self.x.blocks * self.x.pixel  # bytes of a piece in one of the matrices V
        self.groups = self._groups(tiling.pieces)
        most = self.counts[-1]
        self.v_step = _apart(most * self.piece)
        self.chunk = self._chunk()
        self.u_step = _apart(self.chunk * self.widest * self.block * self.size)
        self.m_step = _apart(most * self.widest * self.block * self.size)
        self.parted = self._parted()
        self.fetched = self._waits()

    # Sizes ---------------------------------------------------------------------------------------

    def _groups(self, most: int) -> Lines:
        count = -(-dims.typical(self.pieces) // most)
        return Lines(self.pieces, max(1, dims.typical(self.pieces) // count))

    @property
    def counts(self) -> list[int]:
        """How many pieces a group has where sizes are known, and how many it has at most."""
        each = self.groups.each
        if isinstance(self.pieces, int):
            return sorted({each, self.pieces - (dims.number(self.groups.count) - 1) * each})
        return [2 * each - 1]

    @property
    def heights(self) -> list[int]:
        """The heights of tiles: equal where the pieces are known, else the greatest and powers of two."""
        if isinstance(self.pieces, int):
            return sorted({h for count in self.counts for h in equal_heights(count, self.rows)})
        return [self.rows, *(1 << k for k in reversed(range((self.rows - 1).bit_length())))]

    def _chunk(self) -> int:
        """Channels whose U takes a third of the second-level cache, whole blocks, or all that a panel has, as
        where U is kept."""
        if self.kept or self.grouped:
            return max(high - low for low, high in self.spans)
        block = self.t**2 * self.widest * self.block**2 * self.size  # bytes of a block of channels
        most = max(1, self.target.facts.level2_bytes // 3 // block)
        chunks = -(-self.x.blocks // most)
        return min(self.x.channels, -(-self.x.blocks // chunks) * self.block)

    def _parted(self) -> int:
        """Into how many runs of panels a group is cut, where groups alone are few: who computes several of
        them, one after the other, transforms the data once."""
        if self.kept:
            return 1
        panels = sum(kind.count for kind in self.kinds)
        wanted = costs.parts_for(self.cost.total) // dims.typical(self.out.batch * self.groups.count)
        return max(1, min(panels, wanted))

    def _waits(self) -> bool:
        """Whether weights are transformed for every group, and waited for unless products fetch those of the
        next chunk of channels."""
        tile = self.tile(max(self.heights), self.widest)
        return not self.kept and not self.grouped and waits(self.target, tile, self.bytes_ahead(tile))

    def bytes_ahead(self, tile: Tile) -> int:
        """What a tile fetches in a step of k, so that all tiles of a group fetch nine weights for each."""
        weights = 9 * tile.columns * dtypes.itemsize(self.stored)
        return -(-weights * tile.rows // (self.t**2 * self.counts[-1]))

    def ahead_word(self, f: Function, kind: Panels, weights: str, depth: str, i: str, start: str) -> str:
        """Where what the tile at `start` of the i-th matrix fetches begins, behind these weights."""
        nbytes = int(depth) * 9 * kind.width * dtypes.itemsize(self.stored)
        pieces = self.counts[-1]
        share = f.mul(f.add(f.mul(i, pieces), start), -(-nbytes // (self.t**2 * pieces)))
        return f.offset(weights, f.add(nbytes, share))

    @property
    def panel_bytes(self) -> int:
        """Bytes of the weights of one column of panels."""
        return self.x.channels * 9 * dtypes.itemsize(self.stored)

    @property
    def weight_bytes(self) -> int:
        return self.panel_bytes * sum(kind.count * kind.width for kind in self.kinds)

    @property
    def run_panels(self) -> RunPanels:
        """The panels of weights that the run knows."""

        def place(f: KernelFunction, kind: Panels, panel: str) -> tuple[str, str, str]:
            return self.panel_offset(f, self.first_block(f, kind, panel)), "0", str(self.x.channels)

        return RunPanels(self.kinds, self.block, 1, place)

    def first_block(self, f: Function, kind: Panels, panel: str) -> str:
        """The panel's first block of output channels."""
        return f.add(kind.block, f.mul(panel, kind.vectors))

    def panel_offset(self, f: Function, block: str) -> str:
        """Where the weights of the panel with that first block begin, in bytes."""
        return f.mul(block, self.panel_bytes * self.block)

    def tile(self, height: int, vectors: int) -> Tile:
        return Tile(height, vectors, self.block, self.dtype, self.dtype, self.dtype)

    # The entry -----------------------------------------------------------------------------------

    def code(self) -> Code:
        k = KernelText(self.target)
        u = self.t**2 * self.v_step
        m = u + self.t**2 * self.u_step * (sum(kind.count for kind in self.kinds) if self.kept else 1)
        scratch = m + self.t**2 * self.m_step
        with k.entry() as f:
            self.emit_kept(f, f.offset("%scratch", u))
            with f.loop("%first", "%last") as part:
                rest, run = f.divide(part.index, self.parted)
                n, group = f.divide(rest, f.size(self.groups.count))
                new = f.binary("or", f.compare("eq", run, 0), f.compare("eq", part.index, "%first"), "i1")
                self.emit_part(f, n, group, run, new, f.offset("%scratch", u), f.offset("%scratch", m))
        self.emit_spread(k)
        for kind in self.kinds:
            self.emit_weights(k, kind)
            for height in self.heights:
                self.emit_multiply(k, self.tile(height, kind.vectors))
            self.emit_join(k, kind)
        parts = self.out.batch * self.groups.count * self.parted
        work = costs.work(self.cost, self.out.batch * self.pieces)
        return single(k.step(parts, work, scratch), over=self.epilogue.over)

    def emit_part(self, f: KernelFunction, n: str, group: str, run: str, new: str, u: str, m: str) -> None:
        """Some panels of a group of pieces, whose data is in V already unless they are `new`."""
        first, last = self.groups.at(f, group)
        count = f.sub(last, first)
        image = f.offset(f.input(0), f.mul(n, f.size(self.x.image)))

        def spread(height: int, start: str) -> None:
            tile = f.offset("%scratch", f.mul(start, self.piece))
            # Neighbouring pieces one after the other, which read and write neighbouring lines.
            with f.loop(0, self.x.blocks) as blocks, f.loop(0, height) as rows:
                y, x, _, _ = self.place(f, f.add(f.add(first, start), rows.index))
                plane = f.offset(image, f.mul(blocks.index, f.size(self.x.plane)))
                source = self.tap(f, plane, y, x)
                line = f.add(f.mul(blocks.index, height), rows.index)
                target = f.offset(tile, f.mul(line, self.x.pixel))
                for part in self.parts:
                    places = f"ptr {f.offset(source, part)}, ptr {f.offset(target, part)}"
                    f.statement(f"call void @{ENTRY}.spread(ptr %args, {places})")

        self.for_tiles(f, f.select(new, "i64", count, "0"), spread)
        rows = self.rows_of(f, group)
        for kind in self.kinds:
            begin, end = self.run_of(f, kind, run)
            with f.loop(begin, end) as panels:
                block = self.first_block(f, kind, panels.index)
                clear_planes(f, self.out, n, block, kind.vectors, rows)
                self.emit_products(f, kind, panels.index, self.panel_u(f, kind, u, panels.index), m, count)
                self.emit_results(f, kind, n, block, first, count, m)

    def rows_of(self, f: KernelFunction, group: str) -> tuple[str, str]:
        """The rows of the output whose border a group clears: any partition will do."""
        groups, height = f.size(self.groups.count), f.size(self.out.height)
        divisor = f.maximum(groups, 1)
        return (
            f.divide(f.mul(group, height), divisor)[0],
            f.divide(f.mul(f.add(group, 1), height), divisor)[0],
        )

    def run_of(self, f: Function, kind: Panels, run: str) -> tuple[str, str]:
        """The panels of a kind that belong to a run: numbers within the kind."""
        panels = sum(kind.count for kind in self.kinds)
        cuts = [f.divide(f.mul(f.add(run, more), panels), self.parted)[0] for more in (0, 1)]
        begin, end = (f.maximum(0, f.minimum(kind.count, f.sub(at, kind.first))) for at in cuts)
        return begin, end

    def place(self, f: KernelFunction, piece: str) -> tuple[str, str, str, str]:
        """The first row and column of a piece, and how many of its rows and columns belong to the piece
        before: at the end of a row or column pieces overlap."""
        found = []
        for index, size in zip(f.divide(piece, f.size(self.columns)), (self.out.height, self.out.width)):
            start = wanted = f.mul(index, self.m)
            if size % self.m != 0:
                start = f.maximum(0, f.minimum(wanted, f.size(size - self.m)))
            found.append((start, "0" if start == wanted else f.sub(wanted, start)))
        (y, above), (x, left) = found
        return y, x, above, left

    def tap(self, f: KernelFunction, image: str, y: str, x: str) -> str:
        """The first input that the output (y, x) reads."""
        before = self.window.before
        start = self.x.origin - before[0] * self.x.row - before[1] * self.x.pixel
        row = f.add(f.size(start), f.mul(y, f.size(self.x.row)))
        return f.offset(image, f.add(row, f.mul(x, self.x.pixel)))

    # V -------------------------------------------------------------------------------------------

    def emit_spread(self, k: KernelText) -> None:
        """B' x B of one piece in some lanes of a block of channels, from %x to %v."""
        t, size, align = self.t, self.x.pixel, min(self.lanes * self.size, LINE)
        with self.function(k, "spread", ["ptr %args", "ptr noalias %x", "ptr noalias %v"]) as f:
            v = Vectors(f, self.dtype, self.lanes)
            rows = [f.offset("%x", f.mul(y, f.size(self.x.row))) for y in range(t)]

            def load(y: int, x: int) -> str:
                return f.load(v.type, f.offset(rows[y], x * size), align)

            done = both_ways(by_rows, f, v, self.matrices.data, t, load, align)
            for i, value in enumerate(value for row in done for value in row):
                f.store(v.type, value, f.offset("%v", i * self.v_step), align)
            f.statement("ret void")

    # U and M -------------------------------------------------------------------------------------

    def span_of(self, f: KernelFunction, kind: Panels, panel: str) -> tuple[str, str, str]:
        """Where the weights of a panel of a grouped convolution begin, its first block of input channels, and
        how many channels it sums over."""
        widths = [p.width * 9 * dtypes.itemsize(self.stored) for p in self.kinds for _ in range(p.count)]
        table, start = [], 0
        for (low, high), width in zip(self.spans, widths):
            table += [start, low // self.block, high - low]
            start += (high - low) * width
        entries = f.text.table("i64", [str(n) for n in table], f"{ENTRY}.panels")
        entry = f.element(entries, f.add(kind.first, panel), 24)
        offset, first, depth = (f.load("i64", f.offset(entry, 8 * word), 8) for word in range(3))
        return f.offset(f.input(1), offset), first, depth

    def panel_weights(self, f: KernelFunction, kind: Panels, panel: str) -> str:
        """Where the weights of a panel begin."""
        if self.grouped:
            return self.span_of(f, kind, panel)[0]
        return f.offset(f.input(1), self.panel_offset(f, self.first_block(f, kind, panel)))

    def emit_products(self, f: KernelFunction, kind: Panels, panel: str, u: str, m: str, count: str) -> None:
        """M of a panel, over chunks of channels."""
        if self.grouped:
            weights, first, depth = self.span_of(f, kind, panel)
            self.emit_chunk(f, kind, weights, u, m, count, first, depth)
            return
        weights = self.panel_weights(f, kind, panel)
        blocks, (whole, rest) = self.chunk // self.block, divmod(self.x.channels, self.chunk)
        nbytes = self.block * 9 * kind.width * dtypes.itemsize(self.stored)  # of a block of channels
        if self.chunk < self.x.channels:
            vector, step = vector_type(scalar_type(self.dtype), self.lanes), self.lanes * self.size
            with f.loop(0, self.t**2 * self.m_step, LINE) as lines:
                for place in range(0, LINE, step):
                    f.store(vector, "zeroinitializer", f.offset(m, f.add(lines.index, place)), step)
        with f.loop(0, whole) as chunks:
            first = f.mul(chunks.index, blocks)
            at = f.offset(weights, f.mul(first, nbytes))
            self.emit_chunk(f, kind, at, u, m, count, first, str(self.chunk))
        if rest:
            at = f.offset(weights, whole * blocks * nbytes)
            self.emit_chunk(f, kind, at, u, m, count, str(whole * blocks), str(rest))

    def emit_chunk(
        self, f: Function, kind: Panels, weights: str, u: str, m: str, count: str, first: str, depth: str
    ) -> None:
        """M of so many channels, from a block of them on."""
        row = kind.width * self.size
        if not self.kept:
            self.emit_transformed(f, kind, weights, u, depth)
        whole, rest = f.divide(depth, self.block)
        with f.loop(0, self.t**2) as matrices:
            i = matrices.index
            a = f.offset("%scratch", f.mul(i, self.v_step))
            b, c = f.offset(u, f.mul(i, self.u_step)), f.offset(m, f.mul(i, self.m_step))

            def tile(height: int, start: str) -> None:
                rows = f.add(f.mul(start, self.piece), f.mul(first, height * self.x.pixel))
                places = [f.offset(a, rows), b, f.offset(c, f.mul(start, row))]
                if self.fetched:
                    places.append(self.ahead_word(f, kind, weights, depth, i, start))
                arguments = ", ".join(f"ptr {p}" for p in places)
                name = f"{ENTRY}.multiply{height}x{kind.vectors}"
                f.statement(f"call void @{name}({arguments}, i64 {whole}, i64 {rest})")

            self.for_tiles(f, count, tile)

    def emit_kept(self, f: KernelFunction, u: str) -> None:
        """U of all panels, where it is kept."""
        for kind in self.kinds if self.kept else ():
            with f.loop(0, kind.count) as panels:
                weights = self.panel_weights(f, kind, panels.index)
                depth = self.span_of(f, kind, panels.index)[2] if self.grouped else str(self.chunk)
                self.emit_transformed(f, kind, weights, self.panel_u(f, kind, u, panels.index), depth)

    def panel_u(self, f: Function, kind: Panels, u: str, panel: str) -> str:
        """Where U of the panel-th panel of a kind begins."""
        return f.offset(u, f.mul(f.add(kind.first, panel), self.t**2 * self.u_step)) if self.kept else u

    def emit_transformed(self, f: Function, kind: Panels, source: str, u: str, depth: str) -> None:
        """U of so many channels of a panel."""
        row, size = kind.width * self.size, dtypes.itemsize(self.stored)
        with f.loop(0, depth) as channels, f.loop(0, kind.width, self.lanes) as column:
            at = f.add(f.mul(channels.index, 9 * kind.width * size), f.mul(column.index, size))
            to = f.add(f.mul(channels.index, row), f.mul(column.index, self.size))
            arguments = f"ptr {f.offset(source, at)}, ptr {f.offset(u, to)}"
            f.statement(f"call void @{ENTRY}.weights{kind.vectors}({arguments})")

    def for_tiles(self, f: Function, count: str, body: Callable[[int, str], None]) -> None:
        """body(height, first piece) for tiles that cover the pieces of a group once."""
        if isinstance(self.pieces, int):
            for known in self.counts:
                with f.when(f.compare("eq", count, known)):
                    for_equal_tiles(f, known, self.rows, lambda height, first, _: body(height, first))
            return
        at = "0"
        for height in self.heights:
            tiles, _ = f.divide(f.sub(count, at), height)
            with f.loop(0, tiles) as loop:
                body(height, f.add(at, f.mul(loop.index, height)))
            at = f.add(at, f.mul(tiles, height))

    def emit_weights(self, k: KernelText, kind: Panels) -> None:
        """G w G' of some lanes of output channels, from nine vectors at %w to %u."""
        row, align = kind.width * dtypes.itemsize(self.stored), min(self.lanes * self.size, LINE)
        with self.function(k, f"weights{kind.vectors}", ["ptr noalias %w", "ptr noalias %u"]) as f:
            v = Vectors(f, self.dtype, self.lanes)

            def weight(y: int, x: int) -> str:
                place = f.offset("%w", (3 * y + x) * row)
                near = min(self.lanes * dtypes.itemsize(self.stored), LINE)
                return load_widened(f, self.stored, self.dtype, self.lanes, place, near)

            done = both_ways(by_rows, f, v, self.matrices.weights, 3, weight, align)
            for i, value in enumerate(value for line in done for value in line):
                f.store(v.type, value, f.offset("%u", i * self.u_step), align)
            f.statement("ret void")

    def emit_multiply(self, k: KernelText, tile: Tile) -> None:
        """%c = %a %b over %whole blocks of channels and %rest channels more, added to what %c holds where
        channels come in chunks."""
        parameters = ["ptr noalias %a", "ptr noalias %b", "ptr noalias %c", *["ptr %ahead"] * self.fetched]
        parameters += ["i64 %whole", "i64 %rest"]
        row = tile.columns * self.size
        with self.function(k, f"multiply{tile.rows}x{tile.vectors}", parameters) as f:

            def place(r: int, j: int) -> str:
                return f.offset("%c", r * row + j * self.vector)

            chunked = not self.grouped and self.chunk < self.x.channels
            start = load_tile(f, tile, place) if chunked else tile.zeros()
            rows, step = [r * self.x.pixel for r in range(tile.rows)], tile.rows * self.x.pixel
            panel = Panel("%b", ahead=Ahead("%ahead", self.bytes_ahead(tile)) if self.fetched else None)
            sums, panel = nest(f, tile, start, "%a", panel, [("%whole", step)], self.block, rows)
            if self.x.channels % self.block and not self.grouped:
                a = f.offset("%a", f.mul("%whole", step))
                sums, _ = nest(f, tile, sums, a, panel, [], "%rest", rows)
            store_tile(f, tile, sums, place)
            f.statement("ret void")

    # Results -------------------------------------------------------------------------------------

    def emit_results(
        self, f: KernelFunction, kind: Panels, n: str, block: str, first: str, count: str, m: str
    ) -> None:
        with f.loop(0, count) as pieces:
            y, x, above, left = self.place(f, f.add(first, pieces.index))
            words = [
                "ptr %args",
                f"ptr {f.offset(m, f.mul(pieces.index, kind.width * self.size))}",
                f"ptr {self.out.address(f, f.output(), n, block, y, x)}",
                f"i64 {above}",
                f"i64 {left}",
                *self.epilogue.arguments(f, n, block, y, x),
            ]
            f.statement(f"call void @{ENTRY}.join{kind.vectors}({', '.join(words)})")

    def emit_join(self, k: KernelText, kind: Panels) -> None:
        """A' m A of one piece and its epilogue, from the row %above and the column %left on."""
        parameters = [
            "ptr %args",
            "ptr noalias %m",
            "ptr %out",
            "i64 %above",
            "i64 %left",
            *self.epilogue.parameters,
        ]
        with self.function(k, f"join{kind.vectors}", parameters) as f:
            whole, start = Vectors(f, self.dtype, self.block), self.epilogue.start(f, kind.vectors)
            done = Finish(self.epilogue, f, self.out, kind.vectors, (self.m, self.m))
            for j in range(kind.vectors):
                bias = [start[j]] * len(self.parts)
                if len(bias) == 2 and start[j] != "zeroinitializer":
                    bias = [whole.part(half, start[j]) for half in (0, 1)]
                parts = [
                    self.joined(f, f.offset("%m", j * self.vector + part), one)
                    for part, one in zip(self.parts, bias, strict=True)
                ]
                results = parts if len(parts) == 1 else list(map(list, parts))  # one after the other
                for y, rows in enumerate(zip(*results)):
                    for x, values in enumerate(zip(*rows)):
                        value = values[0] if len(values) == 1 else whole.joined(*values)
                        with self.owned(f, y, x):
                            done.put(value, j, y, x)
            done.rework(*self.own(f))
            f.statement("ret void")

    def joined(self, f: KernelFunction, m: str, bias: str) -> Iterator[list[str]]:
        """The rows of A' m A in some lanes, and the bias."""
        v, t, align = Vectors(f, self.dtype, self.lanes), self.t, min(self.lanes * self.size, LINE)

        def load(y: int, x: int) -> str:
            value = f.load(v.type, f.offset(m, (y * t + x) * self.m_step), align)
            # A sum at the point (1, 1) is part of every result.
            return v.add(value, bias) if (y, x) == (1, 1) and bias != "zeroinitializer" else value

        return both_ways(by_columns, f, v, self.matrices.result, t, load, align)

    def own(self, f: KernelFunction) -> tuple[tuple[str, str], tuple[str, str]]:
        """The first row that is a piece's own and the one behind the last; the same of columns."""
        rows, columns = (
            ("0" if size % self.m == 0 else first, f.size(dims.minimum(self.m, size)))
            for first, size in (("%above", self.out.height), ("%left", self.out.width))
        )
        return rows, columns

    def owned(self, f: KernelFunction, y: int, x: int) -> AbstractContextManager[None]:
        """What follows runs where the pixel is the piece's own."""
        conditions = []
        for at, (first, last) in zip((y, x), self.own(f)):
            if first != "0":
                conditions.append(f.compare("sge", at, first))
            if last != str(self.m):
                conditions.append(f.compare("slt", at, last))
        if not conditions:
            return nullcontext()
        return f.when(f.all_of(*conditions))

    def function(
        self, k: KernelText, name: str, parameters: list[str]
    ) -> AbstractContextManager[KernelFunction]:
        return k.function(f"{ENTRY}.{name}", parameters, attributes="noinline nounwind")
