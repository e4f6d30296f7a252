"""How a direct convolution is cut: tiles, panels, lines, and its code for them. `kernels/conv.py` says which
convolutions there are; kernels that read other images, weights or sums extend `ConvPlan`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache, lru_cache
from typing import Any, ClassVar, TypeVar

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...records import dataclass
from ...target import LINE, Dot, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Code, KernelFunction, KernelText, single
from ..text.emitter import ENTRY, Function, scalar_type
from .blocked import Image, Lattice, Window, Wrapped, clear_planes, cover, gathered, spread
from .blocked_epilogue import COLUMN, Epilogue, Finish
from .channel_panels import Panels, PanelTiling, panels_of, widest
from .lines import InLines, Lines, Order, cut_lines, order_of, ordered, shared_lines
from .microkernel import Address, Tile, load_tile, most_rows, plus, step_time, store_tile, widen_panel
from .panel_operand import Ahead, Panel
from .run_packing import RunPanels
from .window_sums import accumulate

SLICED = 0.98  # of a tile's time that it takes in slices of its channels, where these are worth it
WRAPPED = 0.9  # of the tiles are left where they go on from row to row, for that to be worth it
SHARED = 3  # tiles for which a panel of halves is decoded before
NARROW = (2, 3, 4)  # pixels of images of a few, of which a tile has all
ENDS = 2  # registers in which lanes that sum up side by side are brought together

PlanT = TypeVar("PlanT", bound="ConvPlan")


@dataclass(frozen=True)
class Slice:
    """A slice of channels of some lines: its first block, and what gives the arguments for the plan's
    slice_parameters of a tile from its row, its column and its width."""

    lines: tuple[str, str]
    first: str = "0"
    words: Callable[[str, str, int], list[str]] = lambda y, x, width: []


@dataclass(frozen=True)
class Place:
    """Where a tile is: its row, its column, the first line of its chunk, the first block of its slice."""

    top: str
    y: str
    x: str
    block: str


@dataclass(frozen=True)
class ConvPlan(InLines):
    """A convolution over images as they are stored. `start`: bytes from a plane's beginning to the first tap
    of pixel (0, 0); `dtype`: of sums, and of weights but for a `dot` product; `rows`, `widths`: the tiles, of
    one width or two where sizes are known; `fetched`: whether each fetches a share of the next panel.
    `name`: of its functions, and `apart`: how far operands are from the node's, in a kernel that computes
    several."""

    x: Image
    out: Image
    window: Window
    start: Dimension
    epilogue: Epilogue
    dtype: str
    kinds: tuple[Panels, ...]
    rows: int
    widths: tuple[int, ...]
    dot: Dot | None = None
    stored: str | None = None  # the type of the weights, where it is not that of sums
    fetched: bool = False
    decoded: bool = False  # whether a panel is brought to numbers, in scratch, before its tiles
    kept: bool = False  # whether scratch holds all panels then, for all lines
    name: str = "tile"
    apart: int = 0
    slice: int | None = None  # blocks of input channels that all tiles of some lines add before the next
    run: int = 1  # lines that a slice goes through before the next one
    by_lines: bool = False  # whether threads share lines whatever is read more often
    chunk: int | None = None  # lines that read a panel before the next one is, where that are not all

    @property
    def panels(self) -> int:
        return sum(p.count for p in self.kinds)

    @property
    def column_bytes(self) -> int:
        """Of the weights that one sum is made with, and what it starts from."""
        if self.dot is None:
            return self.x.channels * self.window.taps * dtypes.itemsize(self.stored or self.dtype)
        channels = -(-self.x.channels // self.dot.group) * self.dot.group
        size = channels * self.window.taps * dtypes.itemsize(self.dot.stored)
        return size + dtypes.itemsize(self.dtype)

    @property
    def weight_bytes(self) -> int:
        return self.column_bytes * sum(p.count * p.width for p in self.kinds)

    @property
    def widened(self) -> int:
        """How many times as large as weights are stored the numbers are that they are decoded to."""
        if self.dot is not None or self.stored is None:
            return 1
        return dtypes.itemsize(self.dtype) // dtypes.itemsize(self.stored)

    @property
    def once(self) -> bool:
        """Whether a single tile reads a panel, most of the time, and that for a single pixel."""
        return self.out.height == self.out.width == 1 == dims.typical(self.out.batch)

    @property
    def line_step(self) -> int:
        """What the lines of a part are a multiple of."""
        return self.widths[0] if self.single_row else self.rows

    @property
    def line_bytes(self) -> Dimension:
        """Bytes from the first tap of one line to that of the next."""
        sy, sx = self.window.strides
        return self.x.pixel * sx if self.single_row else self.x.row * sy

    @property
    def over(self) -> tuple[int, ...]:
        """Operands that the output may be written over: not where tiles overlap, whose pixels are computed
        twice."""
        width, (columns, *narrower) = self.out.width, self.widths
        once = isinstance(width, int) and width % columns in (0, *narrower)
        return self.epilogue.over if once and not isinstance(self.out, Lattice) else ()

    #: What a tile's function gets of its panel.
    panel_parameters: ClassVar[tuple[str, ...]] = ("ptr noalias %b",)

    def tile_name(self, panels: Panels, width: int) -> str:
        beside = f"x{panels.groups}" if panels.groups > 1 else ""
        return f"{ENTRY}.{self.name}{width}x{panels.vectors}x{panels.lanes}{beside}"

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        """The arguments for panel_parameters, for the panel-th panel of its kind."""
        return [f"ptr {f.offset(self.packed(f), self.panel_offset(f, panels, panel))}"]

    def place_words(self, f: KernelFunction, y: str, x: str, width: int) -> list[str]:
        """The arguments behind those, of a tile at (y, x)."""
        return []

    # Slices of channels: a tile adds the blocks %first to %behind to the %sums of those before

    @property
    def slice_parameters(self) -> tuple[str, ...]:
        return () if self.slice is None else ("i64 %first", "i64 %behind", "ptr noalias %sums")

    @property
    def summed(self) -> int:
        """Blocks of input channels that a tile adds up."""
        return self.x.blocks

    @property
    def sums_bytes(self) -> Dimension:
        """What sums that are not whole take of scratch."""
        if self.slice is None:
            return 64
        lines = dims.minimum(self.run, self.length)
        return (lines + self.widths[0] if self.single_row else lines * self.held_row) * self.held_pixel

    @property
    def held_row(self) -> Dimension:
        """Pixels of scratch for a row's tiles, of which the last lies behind the row."""
        return self.out.width + self.widths[0]

    @property
    def held_pixel(self) -> int:
        """Bytes of a pixel's sums in the widest panel."""
        return max(p.width * p.abreast for p in self.kinds) * dtypes.itemsize(self.dtype)

    def held(self, f: KernelFunction, tile: Tile) -> Address:
        """Where the sums of a tile wait for the next slice."""
        size = tile.lanes * dtypes.itemsize(tile.accumulate)
        return lambda row, vector: f.offset("%sums", (row * tile.vectors + vector) * size)

    @contextmanager
    def slices(self, f: KernelFunction, lines: tuple[str, str]) -> Iterator[Slice]:
        """Around the tiles of a panel."""
        if self.slice is None:
            yield Slice(lines)
            return
        with f.loop(*lines, self.run) as run, f.loop(0, self.summed, self.slice) as channels:
            behind = f.minimum(f.add(run.index, self.run), lines[1])

            def words(y: str, x: str, width: int) -> list[str]:
                first, whole, row = "0", f.size(self.out.width), f.sub(y, run.index)
                if self.single_row:
                    first, whole, row = run.index, f.sub(behind, run.index), "0"
                column = f.sub(x, first)
                last = f.compare("eq", f.add(column, width), whole)  # which may overlap the one before
                column = f.mul(f.select(last, "i64", whole, column), self.rows)
                pixel = f.add(f.mul(row, f.size(self.held_row)), column)
                held = f.offset("%scratch", f.mul(pixel, self.held_pixel))
                end = f.minimum(f.add(channels.index, self.slice or 0), self.summed)
                return [f"i64 {channels.index}", f"i64 {end}", f"ptr {held}"]

            yield Slice((run.index, behind), channels.index, words)

    def resumed(self, f: KernelFunction, tile: Tile, sums: list[str]) -> list[str]:
        """What the sums of a slice start from, of those that the first one starts from."""
        if self.slice is None:
            return sums
        begins, held = f.compare("eq", "%first", 0), load_tile(f, tile, self.held(f, tile))
        return [f.select(begins, tile.vector, new, old) for new, old in zip(sums, held, strict=True)]

    @contextmanager
    def unfinished(self, f: KernelFunction, tile: Tile, sums: list[str]) -> Iterator[None]:
        """Around what becomes of sums that are whole."""
        if self.slice is None:
            yield
            return
        whole = f.compare("eq", "%behind", self.summed)
        with f.when(whole):
            yield
        with f.when(f.invert(whole)):
            store_tile(f, tile, sums, self.held(f, tile))

    def first_block(self, f: KernelFunction, panels: Panels, panel: str) -> str:
        """Of the output channels of the panel-th panel of its kind."""
        return panels.first_block(f, panel)

    def packed(self, f: KernelFunction) -> str:
        """The address of the packed weights."""
        return f.input(1 + self.apart)

    def panel_place(self, f: KernelFunction, panels: Panels, panel: str) -> tuple[str, str, str]:
        """Where the panel's weights begin, and the input channels that it sums over."""
        return self.panel_offset(f, panels, panel), "0", str(self.x.channels)

    @property
    def run_panels(self) -> RunPanels:
        """The panels of weights that the run knows."""
        return RunPanels(self.kinds, self.out.block, self.x.block, self.panel_place)

    @property
    def steps(self) -> int:
        """Steps of k of a tile, or of a slice of it."""
        channels = self.x.channels if self.slice is None else self.slice * self.x.block
        return -(-channels // (1 if self.dot is None else self.dot.group)) * self.window.taps

    def steps_of(self, panels: Panels) -> int:
        """The same where channels are summed up side by side."""
        return max(1, -(-self.steps // panels.abreast))

    def times(self, target: Target, panels: Panels) -> list[float]:
        """Of a tile of each width, but for its weights, which are there when others read them too."""
        vectors = panels.registers(target, self.dtype)
        pixels = [self.rows * width for width in self.widths]
        found = [tile_estimate(target, self.steps, p, vectors, self.dot) for p in pixels]
        return [each.compute + each.overhead for each in found]

    def ahead(self, panels: Panels, width: int) -> Ahead:
        """What a tile fetches of the panel that is read behind its own, from where `ahead_words` says. Where
        only the run knows how many tiles there are, lines for all that a step of k has."""
        pixels, behind, steps = self.readers, self.next_bytes(panels), self.steps_of(panels)
        if isinstance(pixels, int):
            share = -(-behind // max(1, pixels)) * self.rows * width
            return Ahead("%ahead", -(-min(share, behind) // steps))
        return Ahead("%ahead", "%share", -(-behind // (steps * LINE)))

    @property
    def readers(self) -> Dimension:
        """Pixels whose tiles read a panel, one after the other, before the next one is read."""
        across = 1 if self.single_row else self.out.width
        return (self.length if self.chunk is None else dims.minimum(self.chunk, self.length)) * across

    def ahead_words(
        self, f: KernelFunction, panels: Panels, panel: str, place: Place, width: int
    ) -> list[str]:
        """The arguments %ahead and, of a step of k, %share: where in the next panel begins what a tile
        fetches, so that all tiles of an image, or of a chunk of its lines, fetch all of it, or all of its
        slice, and how many bytes that is."""
        if not self.fetched:
            return []
        behind, pixels = self.next_bytes(panels), f.maximum(f.size(self.readers), 1)
        each, _ = f.divide(f.add(pixels, behind - 1), pixels)
        y, x = place.y, place.x
        if self.chunk is not None:
            y, x = (y, f.sub(x, place.top)) if self.single_row else (f.sub(y, place.top), x)
        before = f.add(f.mul(y, f.size(self.out.width)), f.mul(x, self.rows))  # pixels of tiles
        begin = f.add(self.next_panel(f, panels, panel), f.minimum(f.mul(before, each), behind))
        begin = f.add(begin, f.mul(place.block, self._block_bytes(panels)))
        words = [f"ptr {f.offset(self.packed(f), begin)}"]
        if isinstance(self.ahead(panels, width).step, str):
            steps, share = self.steps_of(panels), f.mul(each, self.rows * width)
            words.append(f"i64 {f.divide(f.add(share, steps - 1), steps)[0]}")
        return words

    def next_bytes(self, panels: Panels) -> int:
        """Of the panel that is read behind one, or of the same slice of that."""
        return (
            self.column_bytes * panels.width if self.slice is None else self.slice * self._block_bytes(panels)
        )

    def _block_bytes(self, panels: Panels) -> int:
        """Of a panel, for a block of input channels."""
        return self.x.block * self.window.taps * dtypes.itemsize(self.dtype) * panels.width

    def next_panel(self, f: KernelFunction, panels: Panels, panel: str) -> str:
        """Where the weights behind the panel's begin, in bytes."""
        return f.add(self.panel_offset(f, panels, panel), self.column_bytes * panels.width)

    def panel_offset(self, f: Function, panels: Panels, panel: str) -> str:
        """Where the panel's weights begin, in bytes."""
        size = self.column_bytes
        before = sum(p.count * p.width for p in self.kinds if p.first < panels.first)
        return f.add(before * size, f.mul(panel, panels.width * size))

    def decoded_panel(self, f: Function, panels: Panels, panel: str) -> str:
        """Where scratch holds the panel-th panel of its kind, once it is decoded."""
        if not self.kept:
            return "%scratch"
        wide = dtypes.itemsize(self.dtype) // dtypes.itemsize(self.stored or self.dtype)
        return f.offset("%scratch", f.mul(self.panel_offset(f, panels, panel), wide))

    def tile(self, pixels: int, panels: Panels) -> Tile:
        lhs, rhs = self.dtype, self.dtype if self.decoded else self.stored or self.dtype
        if self.dot is not None:
            lhs, rhs = self.dot.lhs, self.dot.stored
        lanes, abreast = panels.lanes * panels.abreast, panels.abreast
        return Tile(pixels, panels.vectors, lanes, lhs, rhs, self.dtype, self.dot, abreast, panels.groups)

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        """The sums of a tile whose pixels lie at `displacements` from %a, over all taps and
        channels."""
        sums, panel = self.started(f, tile, sums, panel)
        beyond = self.beyond(f.target, len(displacements) // self.rows)
        blocks = None if self.slice is None else ("%first", "%behind")
        sums = self.resumed(f, tile, sums)
        return accumulate(f, self.x, self.window, tile, sums, displacements, panel, self.once, beyond, blocks)

    def beyond(self, target: Target, width: int) -> Dimension | None:
        """Bytes from the pixels of a tile so wide to those of the next one, where it is to fetch these: of
        1x1 windows over an image that the first-level cache does not hold. Tiles of vectors as long as a line
        take so long over a block of channels that the next one comes in time, and longer with fetching."""
        held = dims.typical(self.x.image) <= target.facts.level1_bytes
        if self.window.taps > 1 or self.dot is not None or self.once or held or target.vector_bits > 256:
            return None
        down, across = self.window.strides
        if self.out.width == width:
            return self.x.row * down * self.rows
        return self.x.pixel * across * width

    def started(
        self, f: KernelFunction, tile: Tile, sums: list[str], panel: Panel
    ) -> tuple[list[str], Panel]:
        """sums with what the panel says that they start from, and the panel from its weights on."""
        if self.dot is None:
            return sums, panel
        size, b = tile.lanes * dtypes.itemsize(self.dtype), panel.pointer
        start = [f.load(tile.vector, f.offset(b, j * size), min(64, size)) for j in range(tile.vectors)]
        sums = [plus(f, self.dtype, tile.lanes, s, start[k % tile.vectors]) for k, s in enumerate(sums)]
        return sums, replace(panel, pointer=f.offset(b, len(start) * size))


def extended(plan: ConvPlan, kind: type[PlanT], **more: Any) -> PlanT:
    """The plan as one of another kind, with what that knows besides or otherwise."""
    return kind(**{f.name: getattr(plan, f.name) for f in fields(ConvPlan)} | more)


def kinds_of(channels: int, block: int, tiling: PanelTiling) -> list[Panels]:
    """The panels of a tiling."""
    return panels_of(channels, block, tiling.vectors, tiling.tail, tiling.abreast)


def tile_shape(
    target: Target,
    size: tuple[Dimension | None, Dimension],
    kinds: Sequence[Panels],
    dtype: str,
    depth: int,
    dot: Dot | None = None,
) -> tuple[int, tuple[int, ...]]:
    """(rows, widths) of tiles that cover an image of `size`, (height, width), in the least time, with sums of
    `dtype` for panels of these kinds. Several rows only where they divide the height (None: never). A line of
    known width ends in a tile that overlaps the one before, or in a narrower one; where the width is symbolic
    there are narrower ones of many widths, more where images are mostly narrower than a tile, whose weights
    each tile reads."""
    (height, width), vectors = size, widest(target, kinds, dtype)
    most = most_rows(target, vectors, dot)
    if any(p.abreast > 1 for p in kinds):
        most = max(1, most - ENDS)
    if not isinstance(width, int):
        widths = {max(1, most >> shift) for shift in range(5)}
        if dims.typical(width) <= most:
            widths |= {few for few in NARROW if few < most}
        return 1, tuple(sorted(widths, reverse=True))
    if width == 0 or height == 0:
        return 1, (1,)
    return _quickest_shape(target, height if isinstance(height, int) else None, width, most, vectors, depth)


@lru_cache(maxsize=4096)
def _quickest_shape(
    target: Target, height: int | None, width: int, most: int, vectors: int, depth: int
) -> tuple[int, tuple[int, ...]]:
    """The shape of tiles of at most so many pixels, as `tile_shape` has it, for lines of this width."""

    def time(shape: tuple[int, tuple[int, ...]]) -> float:
        rows, (columns, *narrower) = shape
        lines = 1 if height is None else height // rows
        counts = [
            (columns, width // columns if narrower else -(-width // columns)),
            *((n, 1) for n in narrower),
        ]
        return lines * sum(count * tile_time(rows * c) for c, count in counts)

    @cache
    def tile_time(pixels: int) -> float:
        return tile_estimate(target, depth, pixels, vectors).total

    heights = [r for r in range(1, most + 1) if r == 1 or (height is not None and height % r == 0)]
    shapes: list[tuple[int, tuple[int, ...]]] = []
    for rows, columns in ((r, c) for r in heights for c in range(1, min(width, most // r) + 1)):
        shapes.append((rows, (columns,)))
        if width % columns:
            shapes.append((rows, (columns, width % columns)))
    return min(shapes, key=time)


def tile_estimate(
    target: Target, depth: float, pixels: int, vectors: int, dot: Dot | None = None, slices: int = 1
) -> Estimate:
    """Of one tile: its steps, its beginning and end, its call, all but the latter in so many slices."""
    ends = costs.compute(target, (costs.TILE_VECTOR + costs.HANDED_ON * (slices - 1)) * pixels * vectors)
    steps = Estimate(compute=depth * step_time(target, pixels, vectors, 1, dot))
    steps += costs.overhead(target, costs.CONV_TILE * slices)
    panel = depth * vectors * target.vector_bits // 8
    return steps + ends + costs.again(target, panel, panel / slices)


def slices_of(target: Target, blocks: int, depth: int, pixels: int, vectors: int) -> int:
    """In how many slices of its blocks of channels a tile takes the least time, whose weights the first-level
    cache holds then beside its pixels until the next tile reads them; 1 where it gains little."""
    whole = tile_estimate(target, depth, pixels, vectors).total
    slices = -(-blocks // max(1, min(blocks, held_steps(target, pixels, vectors) * blocks // depth)))
    sliced = tile_estimate(target, depth, pixels, vectors, slices=slices).total
    return slices if sliced <= SLICED * whole else 1


def in_slices(plan: PlanT, blocks: int, target: Target) -> PlanT:
    """The plan in slices of so many blocks, in runs that take half of the second-level cache, with sums."""
    across = 1 if plan.single_row else dims.typical(plan.held_row)
    line = dims.typical(plan.line_bytes) * blocks + across * plan.held_pixel
    run = max(1, target.facts.level2_bytes // 2 // line // plan.line_step) * plan.line_step
    return replace(plan, slice=blocks, run=run)


def held_steps(target: Target, pixels: int, vectors: int) -> int:
    """Steps of k whose weights and pixels take half of the first-level cache."""
    step = vectors * target.vector_bits // 8 + pixels * 4
    return target.facts.level1_bytes // 2 // step


def wraps(
    target: Target, size: tuple[int, int], kinds: Sequence[Panels], dtype: str, depth: int, dot: Dot | None
) -> bool:
    """Whether far fewer tiles cover an image of `size` where they go on from one row to the next."""
    height, width = size
    if height * width == 0:
        return False
    within, flat = (tile_shape(target, its, kinds, dtype, depth, dot) for its in (size, (1, height * width)))
    rows, columns = within[0], within[1][0]
    return -(-height * width // flat[1][0]) <= WRAPPED * (height // rows) * -(-width // columns)


def partition(plan: ConvPlan, target: Target, cost: Estimate) -> tuple[Lines, Order]:
    """Lines whose input fits half the second-level cache, fewer where that makes enough parts; and in which
    order parts follow each other. Where threads share lines, these are what a part is, and panels are
    outermost in what a thread has of them."""
    if shares_lines(plan, target):
        return Lines(plan.length, plan.line_step), "panels"
    total, half = dims.typical(plan.x.image), target.facts.level2_bytes // 2
    lines = cut_lines(
        plan.length, plan.line_step, plan.panels * plan.out.batch, cost.total, -(-total // half)
    )
    return lines, order_of(target, plan.out.batch, total, plan.weight_bytes, plan.panels, lines.count)


def shares_lines(plan: ConvPlan, target: Target) -> bool:
    """Whether threads share the lines of an image that the cache holds rather than the panels: each reads all
    weights then, which are no more than image and result even as numbers, and what it wrote itself in the
    step before."""
    if plan.by_lines:
        return True
    total, half = dims.typical(plan.x.image), target.facts.level2_bytes // 2
    return total <= half and plan.weight_bytes * plan.widened <= total + dims.typical(plan.out.image)


def decoding(plan: ConvPlan, target: Target, lines: Lines, order: Order) -> ConvPlan:
    """The plan that decodes panels of halves before their tiles, where several share what the cache keeps: a
    panel where its lines follow each other, else all of them, or one for the lines of a part."""
    if plan.dot is not None or plan.stored is None:
        return plan
    kept = order == "lines" and plan.weight_bytes * plan.widened <= target.facts.level2_bytes // 4
    together = lines.length if order != "lines" or kept else lines.each
    across = 1 if plan.single_row else -(-dims.typical(plan.out.width) // plan.widths[0])
    tiles = dims.typical(together) // plan.line_step * across
    fits = decoded_bytes(plan) <= target.facts.level2_bytes // 2
    decoded = fits and tiles >= SHARED
    return replace(plan, decoded=decoded, kept=decoded and kept)


def decoded_bytes(plan: ConvPlan) -> int:
    """Of the widest panel as numbers, or of all that are kept."""
    width = sum(p.count * p.width for p in plan.kinds) if plan.kept else max(p.width for p in plan.kinds)
    channels = plan.x.channels + max(p.abreast for p in plan.kinds) - 1
    return channels * plan.window.taps * width * dtypes.itemsize(plan.dtype)


# Code --------------------------------------------------------------------------------------------


def emit_plan(plan: ConvPlan, target: Target, cost: Estimate) -> Code:
    """The code of a plan over a blocked image."""
    k = KernelText(target)
    lines, order = partition(plan, target, cost)
    plan = decoding(plan, target, lines, order)
    each = lines.count * (plan.out.batch if order == "batch" else 1)  # parts of a panel
    if order == "lines" and lines.count != 1:
        plan = replace(plan, chunk=lines.each)
    with k.entry() as f:
        if plan.kept:
            for kind in plan.kinds:
                with f.loop(0, kind.count) as panels:
                    emit_decoded(f, plan, kind, panels.index)

        def panel(n: str, panel: str, here: tuple[str, str], new: str = "true") -> None:
            image = f.offset(f.input(0), f.mul(n, f.size(plan.x.image)))
            emit_panel(f, plan, f.offset(image, f.size(plan.start)), n, panel, here, new)

        if shares_lines(plan, target):
            with shared_lines(f, lines, plan.panels, plan.out.batch) as place:
                panel(*place)
        else:
            with f.loop("%first", "%last") as part:
                n, number, chunk, inside = ordered(
                    f, part.index, order, plan.panels, plan.out.batch, lines.count
                )
                new = "true"
                if order != "lines" and each != 1:
                    begins = f.compare("eq", part.index, "%first")
                    new = f.binary("or", f.compare("eq", inside, 0), begins, "i1")
                panel(n, number, lines.at(f, chunk), new)
    emit_tiles(k, plan)
    work = costs.work(cost, plan.out.batch * plan.out.height * plan.out.width)
    scratch = decoded_bytes(plan) if plan.decoded else plan.sums_bytes
    unit: Dimension = plan.panels if shares_lines(plan, target) else 1
    if plan.decoded:  # for the lines of a panel, or for a call
        unit = each if order != "lines" and not plan.kept else 0
    parts = plan.out.batch * plan.panels * lines.count
    return single(k.step(parts, work, scratch, unit), over=plan.over)


def emit_decoded(f: KernelFunction, plan: ConvPlan, kind: Panels, panel: str) -> None:
    """Brings the panel-th panel of its kind to numbers, in scratch."""
    source = f.offset(plan.packed(f), plan.panel_offset(f, kind, panel))
    depth = -(-plan.x.channels // kind.abreast) * plan.window.taps
    decoded = plan.decoded_panel(f, kind, panel)
    widen_panel(f, plan.stored or plan.dtype, plan.tile(1, kind), source, decoded, depth)


def emit_panel(
    f: KernelFunction,
    plan: ConvPlan,
    source: str,
    n: str,
    panel: str,
    lines: tuple[str, str],
    new: str = "true",
    target: str | None = None,
) -> None:
    """One panel of output channels over some lines; `source` is the first tap of pixel (0, 0). Where panels
    are decoded, scratch holds this one already unless it is `new`. `target`: the beginning of the image that
    is written, whose border is the caller's; None: in the node's result."""
    for kind in plan.kinds:
        if len(plan.kinds) == 1:
            _emit_panel(f, plan, kind, source, n, panel, lines, new, target)
            continue
        index = f.sub(panel, kind.first)
        with f.when(f.compare("ult", index, kind.count)):
            _emit_panel(f, plan, kind, source, n, index, lines, new, target)


def _emit_panel(
    f: KernelFunction,
    plan: ConvPlan,
    kind: Panels,
    source: str,
    n: str,
    panel: str,
    lines: tuple[str, str],
    new: str,
    target: str | None,
) -> None:
    """The same of one kind of panels, among which `panel` is counted: tiles, line by line of each slice."""
    out, block = plan.out, plan.first_block(f, kind, panel)
    weights = plan.panel_words(f, kind, panel)
    if plan.decoded:
        weights = [f"ptr {plan.decoded_panel(f, kind, panel)}"]
        if not plan.kept:
            with f.when(new):
                emit_decoded(f, plan, kind, panel)
    if target is None and not isinstance(out, Lattice):
        clear_planes(f, out, n, block, kind.vectors, lines)
    image = f.offset(f.output(), f.mul(n, f.size(out.image))) if target is None else target
    column_step = plan.x.pixel * plan.window.strides[1]

    def line(y: str, start: str, stop: str) -> None:
        row = f.offset(source, f.mul(y, f.size(plan.x.row * plan.window.strides[0])))

        def tile(width: int, x: str) -> None:
            line, columns = y, []
            if isinstance(out, Wrapped):
                line, column = out.place(f, x)
                columns = [f"i64 {column}"]
            words = [
                "ptr %args",
                f"ptr {f.offset(row, f.mul(x, column_step))}",
                *weights,
                *plan.place_words(f, y, x, width),
                *slice_.words(y, x, width),
                *plan.ahead_words(f, kind, panel, Place(lines[0], y, x, slice_.first), width),
                f"ptr {out.address(f, image, 0, block, line, x)}",
                *columns,
                *plan.epilogue.arguments(f, n, block, line, x),
            ]
            f.statement(f"call void @{plan.tile_name(kind, width)}({', '.join(words)})")

        cover(f, start, stop, plan.widths, tile, plan.times(f.target, kind))

    with plan.slices(f, lines) as slice_:
        if plan.single_row:
            line("0", *slice_.lines)
        else:
            with f.loop(*slice_.lines, plan.rows) as rows:
                line(rows.index, "0", f.size(out.width))


def emit_tiles(k: KernelText, plan: ConvPlan) -> None:
    """The functions that emit_panel calls."""
    for kind in {(p.vectors, p.lanes, p.groups): p for p in plan.kinds}.values():
        for width in plan.widths:
            _emit_tile(k, plan, kind, width)


def _emit_tile(k: KernelText, plan: ConvPlan, kind: Panels, width: int) -> None:
    """Computes one tile: %a is the first tap of its first pixel, %b the panel, %out the pixel."""
    parameters = ["ptr %args", "ptr noalias %a", *plan.panel_parameters, *plan.slice_parameters]
    ahead = plan.ahead(kind, width) if plan.fetched else None
    parameters += [*(ahead.parameters if ahead is not None else []), "ptr %out"]
    if isinstance(plan.out, Wrapped):
        parameters.append(f"i64 {COLUMN}")
    panel = Panel("%b", ahead=ahead)
    pixels, epilogue = [(y, x) for y in range(plan.rows) for x in range(width)], plan.epilogue
    tile = plan.tile(len(pixels), kind)
    (sy, sx), row, pixel = plan.window.strides, plan.x.row, plan.x.pixel
    displacements = [(y * sy * dims.number(row) if y else 0) + x * sx * pixel for y, x in pixels]
    element, block = scalar_type(plan.dtype), plan.out.block
    with k.function(
        plan.tile_name(kind, width), [*parameters, *epilogue.parameters], attributes="noinline nounwind"
    ) as f:
        start = [
            spread(f, element, v, block, kind.lanes, kind.abreast) for v in epilogue.start(f, kind.vectors)
        ]
        sums = plan.accumulate(f, tile, start * len(pixels), displacements, panel)
        done = Finish(epilogue, f, plan.out, kind.vectors, (plan.rows, width))
        with plan.unfinished(f, tile, sums):
            done.put_tile(gathered(f, plan.dtype, s, kind.lanes, block, kind.abreast) for s in sums)
            done.rework((0, plan.rows), 0, width)
        f.statement("ret void")
