"""How a convolution by Winograd's transforms is cut: groups of pieces, panels, chunks of channels, and where
each lies in memory. `kernels/winograd.py` says what is computed in which order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import LINE, Target
from .. import costs
from ..kernel import Choice, KernelFunction
from ..text.emitter import ENTRY, Function
from .blocked import Folded, Window, image_of
from .blocked_epilogue import Epilogue
from .channel_panels import Panels, panels_of
from .lines import Lines
from .microkernel import Tile, equal_heights, for_equal_tiles, waits
from .panel_operand import Ahead
from .run_packing import RunPanels
from .winograd_arithmetic import Arithmetic

Bands = tuple[str, str]  # the first of a group's bands of tiles, and the one behind the last

MANY = 64  # channels of a product that hides what its sums take to come and go


@dataclass(frozen=True)
class Tiling:
    """Pieces of so many `points` along each axis on which the window is longer than 1, in groups of about
    `pieces`; panels of `vectors` blocks of channels and tiles of at most `rows` pieces. `kept`: weights are
    transformed once, all of them, not for every group. `stored`: the weights' type, where it is not that of
    sums. `group`: channels that one dot product adds up, where weights are transformed before the run.
    `split`: into how many a long window is cut. `across`: groups go from one image to the next. `few`: how
    results of at most `most` pixels are cut, where only the run knows their size; the same weights."""

    points: int
    vectors: int
    rows: int
    pieces: int
    kept: bool = False
    stored: str | None = None
    group: int | None = None
    split: int = 1
    across: bool = False
    few: Tiling | None = None
    most: int | None = None


@dataclass(frozen=True)
class CutWindow(Window):
    """A window that is the sum of `split` ones, one behind the other along the axis on which it is long:
    these are its phases then, and it moves a pixel at a time."""

    split: int = 1


def sides_of(window: CutWindow) -> tuple[int, int]:
    """Rows and columns of the window of a phase: those of the window where it moves a pixel at a time and is
    not cut."""
    axes = zip(window.kernel, window.strides)
    rows, columns = (-(-side // (step * window.split)) for side, step in axes)
    return rows, columns


def phases_of(window: CutWindow) -> tuple[int, int]:
    """How many phases along either axis have a tap."""
    axes = zip(window.kernel, window.strides)
    rows, columns = (min(side, step * window.split) for side, step in axes)
    return rows, columns


def apart_of(window: CutWindow) -> tuple[int, int]:
    """How far neighbours in a piece lie from each other along either axis."""
    rows, columns = (d if side > 1 else 1 for d, side in zip(window.dilations, window.kernel))
    return rows, columns


def lengths_of(window: CutWindow, sizes: Sequence[Dimension]) -> tuple[Dimension, Dimension]:
    """Rows and columns of the largest of the images that a dilated window makes of one of these sizes: of
    every d-th pixel."""
    rows, columns = (dims.ceil_divide(size, d) for size, d in zip(sizes, apart_of(window), strict=True))
    return rows, columns


def piece_of(window: CutWindow, points: int) -> tuple[int, int]:
    """Rows and columns of a piece: one where the window has one."""
    rows, columns = (points - side + 1 if side > 1 else 1 for side in sides_of(window))
    return rows, columns


def _apart(nbytes: int) -> int:
    """At least nbytes from one matrix to the next, so that equal places in them do not fall into one set of
    a cache: an odd number of lines."""
    return (-(-nbytes // LINE) | 1) * LINE


class WinogradPlan:
    """One step, whose parts are a group of pieces, of one image or across images, some panels and, where
    these are few, a band of the group's tiles; its scratch holds V, then U, then M. `spans`: for each panel
    the input channels that it sums over. `folded`: how many pixels the rows have that a single row becomes
    (1: it stays)."""

    def __init__(
        self,
        node: Node[Conv],
        choice: Choice[Tiling],
        target: Target,
        window: CutWindow,
        arithmetic: Arithmetic,
        spans: Sequence[tuple[int, int]],
        folded: int,
    ):
        tiling = choice.tiling
        self.arithmetic = arithmetic
        self.target, self.cost, self.sides = target, choice.cost, sides_of(window)
        self.size_of_piece = piece_of(window, tiling.points)
        self.transforms = arithmetic.transforms
        self.t = tuple(m + r - 1 for m, r in zip(self.size_of_piece, self.sides))
        self.matrices = prod(self.t)  # products a channel
        self.x, self.out = (image_of(v.tensor).folded(folded) for v in (node.inputs[0], node.outputs[0]))
        self.block, self.window = self.out.block, window
        self.phases, self.strides = phases_of(window), window.strides
        self.blocks = self.x.blocks * prod(self.phases)  # of channels, of all phases
        self.dtype, self.size = arithmetic.sums, dtypes.itemsize(arithmetic.sums)
        self.factors = arithmetic.factors  # the type of V and U
        self.stored = tiling.stored or self.factors  # of weights
        self.packed = tiling.group is not None  # whether weights are stored as U
        self.vector = self.block * self.size  # bytes of a vector of sums
        self.pixel = self.block * dtypes.itemsize(self.factors)  # of a vector of V
        self.lanes = min(self.block, target.lanes(self.dtype))  # that are transformed at once
        self.parts = [part * self.lanes * self.size for part in range(self.block // self.lanes)]
        self.epilogue = Epilogue(node, self.block).folded(folded)
        self.convolved, self.spans = node.op.groups, spans  # groups of channels
        self.grouped = self.convolved > 1
        self.kinds = panels_of(self.out.channels, self.block, tiling.vectors)
        self.widest, self.rows, self.kept = tiling.vectors, tiling.rows, tiling.kept
        self.apart = apart_of(window)
        self.lengths = lengths_of(window, (self.out.height, self.out.width))
        self.along = tuple(dims.ceil_divide(n, m) for n, m in zip(self.lengths, self.size_of_piece))
        self.columns = self.along[1] * self.apart[1]
        self.of_image = self.along[0] * self.apart[0] * self.columns  # pieces
        self.across, batch = tiling.across, self.out.batch
        self.pieces, self.images = (self.of_image * batch, 1) if self.across else (self.of_image, batch)
        self.piece = self.blocks * self.pixel  # bytes of a piece in one of the matrices V
        self.groups = self._groups(tiling.pieces)
        most = self.counts[-1]
        self.v_step = _apart(most * self.piece)
        self.chunk, self.together = self._chunk()
        self.u_step = 0 if self.packed else _apart(self.chunk * self.widest * self.block * self.size)
        self.m_step = _apart(most * self.widest * self.block * self.size)
        self.parted, self.bands = self._parted()
        self.fetched = self._waits()

    @property
    def taps(self) -> int:
        return prod(self.sides)

    @property
    def channels(self) -> int:
        """That are summed over: of all phases, in whole blocks where there are several."""
        return self.x.channels if self.blocks == self.x.blocks else self.blocks * self.block

    # Sizes ---------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Input channels that a panel sums over, at most."""
        return max(high - low for low, high in self.spans)

    @property
    def channel_bytes(self) -> int:
        """Of the weights that one column of a panel has for an input channel."""
        return (self.matrices if self.packed else self.taps) * dtypes.itemsize(self.stored)

    def _groups(self, most: int) -> Lines:
        """Of equal size; of as many images as there are, half as large as the last one may be."""
        if self.across and not isinstance(self.pieces, int):
            return Lines(self.pieces, -(-most // 2))
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
        """The heights of tiles, which are nearly equal."""
        if isinstance(self.pieces, int):
            return sorted({h for count in self.counts for h in equal_heights(count, self.rows)})
        return list(range(1, self.rows + 1))

    def _chunk(self) -> tuple[int, int]:
        """Channels and rows of points whose U takes a third of the second-level cache. Channels are whole
        blocks, as many as a sixth of it holds the weights of, which are read for each of these rows: products
        over few channels add to M again and again. Where M of all pieces stays in the first-level cache, all
        rows of MANY channels, if a sixth holds their U. All where U is kept or stored."""
        if self.kept or self.grouped or self.packed:
            return self.depth, self.t[0]
        facts, factors = self.target.facts, self.widest * self.block**2
        level2, row = facts.level2_bytes, self.t[1] * factors * self.size  # of a block of channels
        sums = self.matrices * self.counts[-1] * self.widest * self.block * self.size
        whole = level2 // 6 // (row * self.t[0])
        if sums <= facts.level1_bytes // 2 and whole * self.block >= MANY:
            chunks = -(-self.blocks // whole)
            return min(self.channels, -(-self.blocks // chunks) * self.block), self.t[0]
        weights = factors * self.channel_bytes
        chunks = -(-self.blocks // max(1, min(level2 // 3 // row, level2 // 6 // weights)))
        each = -(-self.blocks // chunks)
        rows = -(-self.t[0] // max(1, level2 // 3 // (row * each)))
        return min(self.channels, each * self.block), -(-self.t[0] // rows)

    def _parted(self) -> tuple[int, int]:
        """Into how many runs of panels a group is cut, where groups alone are few, and a run into how many
        bands of tiles, where runs are few as well and weights are not kept. Who computes several of them, one
        after the other, transforms data and weights once."""
        panels = sum(kind.count for kind in self.kinds)
        wanted = costs.parts_for(self.cost.total) // dims.typical(self.images * self.groups.count)
        parted, each = max(1, min(panels, wanted)), self.groups.each
        if self.kept:
            return parted, 1
        tiles = -(-each // self.rows) if isinstance(self.pieces, int) else self.counts[-1] // self.rows
        return parted, max(1, min(tiles, wanted // parted))

    def _waits(self) -> bool:
        """Whether weights are read for every group, and waited for unless products fetch those of the next
        chunk of channels, or where they are stored as U those of the next matrix."""
        return not self.kept and waits(self.target)

    def ahead(self, tile: Tile) -> Ahead:
        """What a tile fetches in a step of k, so that all tiles of a group fetch the weights of all taps for
        each. Where only the run knows how many tiles there are, lines for all that a step has."""
        weights = self.channel_bytes * tile.columns * tile.group
        if isinstance(self.pieces, int):
            return Ahead("%ahead", -(-weights * tile.rows // (self.matrices * self.counts[-1])))
        return Ahead("%ahead", "%share", -(-weights // (self.matrices * LINE)))

    def ahead_words(
        self, f: Function, kind: Panels, weights: str, depth: str, i: str, start: str, height: int, count: str
    ) -> list[str]:
        """Where what a tile of so many pieces fetches begins, the one at `start` of the i-th matrix, behind
        these weights or, where they are stored as U, behind those of this matrix; and how many bytes that is
        in a step of k. count: the pieces of the group."""
        tile, channel = self.tile(height, kind.vectors), self.channel_bytes * kind.width
        known = isinstance(self.ahead(tile).step, int)
        parts = f.mul(pieces := self.counts[-1] if known else count, self.matrices)
        channels = str(self.depth) if known and not depth.isdigit() else depth
        each, _ = f.divide(f.add(f.mul(channels, channel), f.sub(parts, 1)), parts)
        share = f.mul(f.add(f.mul(i, pieces), start), each)
        behind = f.mul(depth, channel // (self.matrices if self.packed else 1))
        words = [f"ptr {f.offset(weights, f.add(behind, share))}"]
        if not known:
            step, _ = f.divide(f.add(channel * tile.group * height, f.sub(parts, 1)), parts)
            words.append(f"i64 {step}")
        return words

    @property
    def rows_together(self) -> list[range]:
        """The rows of points whose U is in memory at a time."""
        rows = range(self.t[0])
        return [rows[first : first + self.together] for first in rows[:: self.together]]

    @property
    def u_bytes(self) -> int:
        """Of U of a panel, as much as is in memory at a time."""
        return self.together * self.t[1] * self.u_step

    @property
    def panel_bytes(self) -> int:
        """Bytes of the weights of one column of panels."""
        return self.depth * self.channel_bytes

    @property
    def starts(self) -> list[int]:
        """Where the weights of each panel of a grouped convolution begin, in bytes, and where they end."""
        widths = [kind.width for kind in self.kinds for _ in range(kind.count)]
        found = [0]
        for (low, high), width in zip(self.spans, widths, strict=True):
            found.append(found[-1] + (high - low) * width * self.channel_bytes)
        return found

    @property
    def weight_bytes(self) -> int:
        if self.grouped:
            return self.starts[-1]
        return self.panel_bytes * sum(kind.count * kind.width for kind in self.kinds)

    @property
    def run_panels(self) -> RunPanels:
        """The panels of weights that the run knows."""

        def place(f: KernelFunction, kind: Panels, panel: str) -> tuple[str, str, str]:
            if not self.grouped:
                return self.panel_offset(f, kind.first_block(f, panel)), "0", str(self.x.channels)
            start, first, depth = self.span_words(f, kind, panel)
            low = f.mul(first, self.block)
            return start, low, f.add(low, depth)

        return RunPanels(self.kinds, self.block, 1, place, self.convolved)

    # Places --------------------------------------------------------------------------------------

    def panel_offset(self, f: Function, block: str) -> str:
        """Where the weights of the panel with that first block begin, in bytes."""
        return f.mul(block, self.panel_bytes * self.block)

    def span_of(self, f: KernelFunction, kind: Panels, panel: str) -> tuple[str, str, str]:
        """Where the weights of a panel begin, its first block of input channels, and how many channels it
        sums over."""
        if not self.grouped:
            return self.panel_weights(f, kind, panel), "0", str(self.depth)
        start, first, depth = self.span_words(f, kind, panel)
        return f.offset(f.input(1), start), first, depth

    def span_words(self, f: KernelFunction, kind: Panels, panel: str) -> tuple[str, str, str]:
        """What span_of finds of a grouped convolution; where the weights begin, in bytes."""
        table: list[int] = []
        for start, (low, high) in zip(self.starts, self.spans):
            table += [start, low // self.block, high - low]
        entries = f.text.table("i64", [str(n) for n in table], f"{ENTRY}.panels")
        entry = f.element(entries, f.add(kind.first, panel), 24)
        begin, first, depth = (f.load("i64", f.offset(entry, 8 * word), 8) for word in range(3))
        return begin, first, depth

    def panel_weights(self, f: KernelFunction, kind: Panels, panel: str) -> str:
        """Where the weights of a panel begin."""
        if self.grouped:
            return self.span_of(f, kind, panel)[0]
        return f.offset(f.input(1), self.panel_offset(f, kind.first_block(f, panel)))

    def panel_u(self, f: Function, kind: Panels, u: str, panel: str) -> str:
        """Where U of the panel-th panel of a kind begins."""
        return f.offset(u, f.mul(f.add(kind.first, panel), self.u_bytes)) if self.kept else u

    def u_of(
        self, f: Function, kind: Panels, weights: str, u: str, depth: str, rows: range, matrix: str
    ) -> str:
        """Where a matrix U of a panel begins, which has so many channels, while those of some rows of points
        are in memory."""
        if not self.packed:
            return f.offset(u, f.mul(f.sub(matrix, rows.start * self.t[1]), self.u_step))
        return f.offset(weights, f.mul(matrix, f.mul(depth, kind.width * dtypes.itemsize(self.stored))))

    def tile(self, height: int, vectors: int) -> Tile:
        types = self.factors, self.factors, self.dtype
        return Tile(height, vectors, self.block, *types, self.arithmetic.dot)

    def first_tile(self, f: Function, tiles: str | int, band: str) -> str:
        """The first of so many tiles that belongs to a band."""
        return f.divide(f.mul(band, tiles), self.bands)[0]

    def first_piece(self, f: Function, count: str, band: str) -> str:
        """The first of a group's pieces that belongs to a band, and behind the last band all."""
        if band in ("0", str(self.bands)):
            return "0" if band == "0" else count
        if isinstance(self.pieces, int):
            firsts = [self._first_of(f, known, band) for known in self.counts]
            if len(firsts) == 1:
                return firsts[0]
            return f.select(f.compare("eq", count, self.counts[0]), "i64", *firsts)
        return self._first_of(f, count, band)

    def _first_of(self, f: Function, count: str | int, band: str) -> str:
        tiles = self._tiles(f, count)
        low, larger = f.divide(count, f.maximum(tiles, 1))
        tile = self.first_tile(f, tiles, band)
        return f.add(f.mul(tile, low), f.minimum(tile, larger))

    def _tiles(self, f: Function, count: str | int) -> str:
        return f.divide(f.add(count, self.rows - 1), self.rows)[0]

    def for_tiles(self, f: Function, count: str, bands: Bands, body: Callable[[int, str], None]) -> None:
        """body(height, first piece) for tiles that cover the pieces of some bands of a group once."""

        def tiles_of(pieces: str | int) -> None:
            first, last = (self.first_tile(f, self._tiles(f, pieces), band) for band in bands)
            for_equal_tiles(f, pieces, self.rows, lambda h, piece, _: body(h, piece), first, last)

        if not isinstance(self.pieces, int):
            tiles_of(count)
            return
        for known in self.counts:
            with f.when(f.compare("eq", count, known)):
                tiles_of(known)

    @contextmanager
    def cleared(self, f: KernelFunction, n: str, group: str, bands: Bands) -> Iterator[tuple[str, Bands]]:
        """The images, of the n-th alone or of all, and of each the rows whose border some bands of a group
        clear: any partition will do."""
        height = f.size(self.out.stored.height)
        rows = f.mul(height, f.size(self.out.batch)) if self.across else height
        all_bands = f.mul(f.maximum(f.size(self.groups.count), 1), self.bands)
        wanted = (f.add(f.mul(group, self.bands), band) for band in bands)
        first, last = (f.divide(f.mul(band, rows), all_bands)[0] for band in wanted)
        if not self.across:
            yield n, (first, last)
            return
        each = f.maximum(height, 1)
        beyond = f.divide(f.add(last, f.sub(each, 1)), each)[0]
        with f.loop(f.divide(first, each)[0], beyond) as image:
            before = f.mul(image.index, height)
            yield image.index, (f.maximum(f.sub(first, before), 0), f.minimum(f.sub(last, before), height))

    def run_of(self, f: Function, kind: Panels, run: str) -> tuple[str, str]:
        """The panels of a kind that belong to a run: numbers within the kind."""
        panels = sum(kind.count for kind in self.kinds)
        cuts = [f.divide(f.mul(f.add(run, more), panels), self.parted)[0] for more in (0, 1)]
        begin, end = (f.maximum(0, f.minimum(kind.count, f.sub(at, kind.first))) for at in cuts)
        return begin, end

    def image_and_piece(self, f: KernelFunction, n: str, piece: str) -> tuple[str, str]:
        """The image of a piece, the n-th where groups are of one, and the piece's number there."""
        return f.divide(piece, f.size(self.of_image)) if self.across else (n, piece)

    def place(self, f: KernelFunction, piece: str) -> tuple[str, str, str, str]:
        """The first row and column of a piece of an image, and how many of its rows and columns belong to the
        piece before: at the end of a row or column pieces overlap."""
        if isinstance(self.out, Folded):
            row, x = f.divide(piece, f.size(self.columns))
            wanted = f.mul(row, self.size_of_piece[0])
            y = f.maximum(0, f.minimum(wanted, f.sub(self.out.rows_of(f, x), self.size_of_piece[0])))
            return y, x, f.sub(wanted, y), "0"
        found = []
        axes = zip(self.along, self.lengths, self.size_of_piece, self.apart)
        for index, (along, length, m, apart) in zip(f.divide(piece, f.size(self.columns)), axes):
            first, index = ("0", index) if apart == 1 else f.divide(index, f.size(along))
            start = wanted = f.mul(index, m)
            if length % m != 0:
                start = f.maximum(0, f.minimum(wanted, f.size(length - m)))
            before = "0" if start == wanted else f.sub(wanted, start)
            found.append((f.add(first, f.mul(start, apart)), before))
        (y, above), (x, left) = found
        return y, x, above, left

    def ends(self, f: KernelFunction, y: str, x: str) -> list[str]:
        """Behind which of its rows and columns the piece at (y, x) is outside the image, where it may be."""
        found = []
        for size, at, m, apart in zip(
            (self.out.height, self.out.width), (y, x), self.size_of_piece, self.apart
        ):
            if apart > 1:
                left, _ = f.divide(f.add(f.sub(f.size(size), at), apart - 1), apart)
                found.append(f.minimum(left, m))
        return found

    @property
    def end_names(self) -> list[str]:
        """What a function gets of `ends`."""
        return [name for name, apart in zip(("%bottom", "%right"), self.apart) if apart > 1]

    def phase(self, f: Function, block: str) -> tuple[str, tuple[str, str]]:
        """The block of the image's channels of a block of all phases', and the row and the column with which
        its phase begins."""
        if self.blocks == self.x.blocks:
            return block, ("0", "0")
        phase, block = f.divide(block, self.x.blocks)
        row, column = f.divide(phase, self.phases[1])
        if self.window.split > 1:
            row, column = f.mul(row, self.sides[0]), f.mul(column, self.sides[1])
        return block, (row, column)

    @property
    def steps(self) -> tuple[Dimension, Dimension]:
        """Bytes from a (row, pixel) of a piece to the next."""
        (down, across), (row, pixel) = self.strides, self.x.steps
        return down * self.apart[0] * row, across * self.apart[1] * pixel

    def tap(self, f: KernelFunction, image: str, y: str, x: str, phase: tuple[str, str]) -> str:
        """The first input that the output (y, x) reads of a phase."""
        before, (down, across), (row, pixel) = self.window.before, self.strides, self.x.steps
        start = self.x.origin - before[0] * self.x.row - before[1] * self.x.pixel
        first = f.add(f.mul(phase[0], f.size(self.x.row)), f.mul(phase[1], self.x.pixel))
        at = f.add(f.mul(y, f.size(down * row)), f.mul(x, f.size(across * pixel)))
        return f.offset(image, f.add(f.add(f.size(start), first), at))

    def below(self, f: KernelFunction, y: str, x: str) -> list[str]:
        """Where only the run can tell: the row behind the last that the piece at (y, x) has."""
        if not isinstance(self.out, Folded):
            return []
        return [f.minimum(self.size_of_piece[0], f.sub(self.out.rows_of(f, x), y))]

    def own(self, f: KernelFunction) -> tuple[tuple[str, str], tuple[str, str]]:
        """The first row that is a piece's own and the one behind the last; the same of columns."""
        if isinstance(self.out, Folded):
            return ("%above", "%below"), ("0", "1")
        rows, columns = (
            ("0" if length % m == 0 else first, f.size(dims.minimum(m, length)) if apart == 1 else end)
            for first, end, length, m, apart in zip(
                ("%above", "%left"), ("%bottom", "%right"), self.lengths, self.size_of_piece, self.apart
            )
        )
        return rows, columns
