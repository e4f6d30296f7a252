"""Convolution of dense images: pixels lie in the lanes, weights are broadcast.

    tile: some output channels  x  `vectors` vectors of neighbouring pixels, in registers
Were channels in the lanes, those that a block has too many would be computed as well: fifteen of sixteen for
the single channel that ends a detector; and images that come or go dense would be brought to blocks and back.
Each part copies the rows that it needs, padding included, to its scratch memory; a tap then is one load of
neighbouring pixels, wherever it begins. Where the window moves by several columns, the copy has every so
many-th column together, so that pixels read neighbours there as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, offered, single
from ..text.emitter import ENTRY, vector_type
from ..tiles import epilogue as epilogues
from ..tiles.blocked import Image, Window, displaced, plane_axes
from ..tiles.contraction import contraction_of
from ..tiles.copied_rows import CopiedRows
from ..tiles.epilogue import Epilogue, Operand, Place
from ..tiles.lines import Lines, cut_lines
from ..tiles.microkernel import (
    Tile,
    chains_for,
    fixed_rows,
    for_equal_tiles,
    height_counts,
    most_rows,
    multiply_add,
)
from ..tiles.panel_operand import Panel
from ..tiles.strides import broadcast_stride, row_major
from .conv import dense_images, is_plain, window

FEW = 16  # channels of a group's result: with more, few lanes are left over where they lie there
MOST_TERMS = 256  # of a sum for more than that, whose weights every tile reads anew
MOST_VECTORS = 12  # of a tile
MOST_STRIDE = 8  # by which a window moves along its columns
MOST_BYTES = 1 << 24  # of the rows of a window
TWICE = 1.5  # times as much is copied as there is, since the windows of two parts overlap
SCRATCH_BYTES = 1 << 20  # what a part's rows may take where several rows fit


@dataclass(frozen=True)
class Tiling:
    """Tiles of at most so many vectors of pixels."""

    vectors: int


# What is offered ---------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """The tiles that take the least time."""
    if not is_plain(node) or node.op.transposed:
        return
    if contraction_of(node) is not None:
        return  # gemm's, whose panels of pixels lie together
    x, out, win = group_images(node)
    known = out.height == 1 or isinstance(out.width, int)  # else rows may be much shorter than a vector
    if out.channels > FEW and (win.taps == 1 or x.channels * win.taps > MOST_TERMS or not known):
        return  # of single pixels nothing that was copied is read by another tap
    apart = win.strides[1] == 1 or (win.dilations[1] == 1 and win.strides[1] <= MOST_STRIDE)
    if not apart or window(node).halo is None or not win.taps:
        return
    if win.extent[0] * x.channels * dims.typical(x.row) > MOST_BYTES:
        return
    if not epilogues.supported(node.op.epilogue) or readings(node) is None:
        return
    most = min(MOST_VECTORS, max(1, target.vector_registers - 1 - target.broadcasts) // 2)
    options = [(estimate(node, target, v).total, v) for v in range(1, most + 1)]
    vectors = min(options)[1]
    layouts = (None,) * len(node.inputs)
    yield Offer(estimate(node, target, vectors), Tiling(vectors), layouts, None)


def group_images(node: Node[Conv]) -> tuple[Image, Image, Window]:
    """The image and the result of a group, and the window; columns of pixels as rows."""
    x, out, win = dense_images(node)
    x, out = (replace(image, channels=image.channels // node.op.groups) for image in (x, out))
    return x, out, win


def readings(node: Node[Conv]) -> list[tuple[Dimension, ...]] | None:
    """The strides in bytes of each operand of the epilogue along the result's batch, channels, rows and
    columns; None where an operand is, along columns, neither contiguous nor one element."""
    out, found = node.outputs[0].tensor, []
    turned = dense_images(node)[2] != window(node)
    for value in node.inputs[2:]:
        shape = (1,) * (out.rank - value.rank) + tuple(value.shape)
        pairs = zip(row_major(shape, dtypes.itemsize(value.dtype)), shape, out.shape, strict=True)
        strides = [broadcast_stride(*pair) for pair in pairs]
        rows, columns = plane_axes(strides[2:], 0)
        if turned:
            rows, columns = columns, rows
        if columns not in (0, dtypes.itemsize(value.dtype)):
            return None
        found.append((*strides[:2], rows, columns))
    return found


def estimate(node: Node[Conv], target: Target, vectors: int) -> Estimate:
    """The steps of all tiles, what lies across two lines loaded twice, the copy, the epilogue, and moving
    everything once."""
    (x, out, win), groups = group_images(node), node.op.groups
    height, width = dims.typical(out.height), dims.typical(out.width)
    depth, sums = x.channels * win.taps, node.op.accumulate
    found, lines = costs.step(target), dims.typical(out.batch) * groups * height
    across = -(-width // target.lanes(sums))
    for rows, tall in height_counts(out.channels, most_rows(target, vectors)).items():
        for wide, count in height_counts(across, vectors).items():
            chains = chains_for(target, rows, wide)
            step = costs.step_time(target, rows * wide, rows + 2 * wide, chains)
            ends = costs.compute(target, costs.TILE_VECTOR * rows * wide)
            tile = Estimate(compute=depth * step) + costs.overhead(target, costs.CONV_TILE) + ends
            found += tile * (lines * tall * count)
    whole = dims.typical(x.image) <= SCRATCH_BYTES / TWICE  # in one part
    copies = TWICE if height > 1 and win.extent[0] > win.strides[0] and not whole else 1.0
    planes = dims.typical(x.batch) * groups * x.channels
    moved = 2 * planes * dims.typical(x.plane) * (1 if win.strides[1] == 1 else 2)
    found += costs.move(target, copies * moved, min(2 * dims.typical(x.image), 2 * SCRATCH_BYTES))
    found += costs.overhead(target, copies * planes * dims.typical(x.height) * costs.COPIED_ROW)
    found += costs.epilogue(target, node, sums) + costs.traffic(target, node)
    return found + costs.stored(target, dims.number(node.inputs[1].tensor.nbytes))


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> None:
    """Nothing is packed."""


# The plan of one convolution ---------------------------------------------------------------------


@dataclass(frozen=True)
class PlanarPlan:
    """Of one group. `x`: the image in scratch, whose rows have `phase` columns for each column by which the
    window moves; `staged`: where in scratch a row lies before it is cut into these."""

    node: Node[Conv]
    rows: CopiedRows
    x: Image
    phase: Dimension
    tiling: Tiling
    lanes: int
    target: Target

    @property
    def out(self) -> Image:
        return self.rows.out

    @property
    def window(self) -> Window:
        return self.rows.window

    @property
    def phases(self) -> int:
        return self.window.strides[1]

    @property
    def staged(self) -> Dimension:
        return self.x.image

    @property
    def raw(self) -> Dimension:
        """Where in scratch sums wait for an epilogue."""
        return self.staged + (self.x.row if self.phases > 1 else 0)

    @property
    def scratch(self) -> Dimension:
        tile = self.tile(most_rows(self.target, self.tiling.vectors), self.tiling.vectors)
        return self.raw + epilogues.scratch_bytes(tile, self.node.op.epilogue)

    @property
    def heights(self) -> dict[int, int]:
        """The output channels of the tiles of a pixel, and how many tiles have so many."""
        return height_counts(self.out.channels, most_rows(self.target, self.tiling.vectors))

    @property
    def widths(self) -> list[int]:
        """The vectors that tiles have."""
        width, most = self.out.width, self.tiling.vectors
        if self.rows.single_row or not isinstance(width, int):
            return list(range(1, most + 1))
        return list(height_counts(-(-width // self.lanes), most))

    def tile(self, rows: int, vectors: int) -> Tile:
        sums = self.node.op.accumulate
        return Tile(rows, vectors, self.lanes, sums, sums, sums)

    def name(self, rows: int, vectors: int, whole: bool) -> str:
        return f"{ENTRY}.tile{rows}x{vectors}{'' if whole else '.part'}"


def plan_of(node: Node[Conv], target: Target, tiling: Tiling, lines: int) -> PlanarPlan:
    """How a Conv node reads its dense image, `lines` lines of the output at a time."""
    dense, out, win = group_images(node)
    rows, lanes = CopiedRows(dense, out, win), target.lanes(node.op.accumulate)
    read, phases = rows.image(lines), win.strides[1]
    phase = (dims.ceil_divide(dims.ceil_divide(read.width, phases), lanes) + 1) * lanes
    x = Image(read.batch, read.channels, read.height, phase * phases, 1, read.dtype)
    return PlanarPlan(node, rows, x, phase, tiling, lanes, target)


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    cut = _partition(node, choice, target)
    plan = plan_of(node, target, choice.tiling, 2 * cut.each - 1)
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        place, chunk = f.divide(part.index, f.size(cut.count))
        lines = cut.at(f, chunk)
        image = f.offset(f.input(0), f.mul(place, f.size(plan.rows.dense.image)))
        _copy(f, plan, image, lines)
        if plan.rows.single_row:
            _emit_row(f, plan, place, "0", "0", lines)
        else:
            with f.loop(*lines) as y:
                _emit_row(f, plan, place, y.index, f.sub(y.index, lines[0]), ("0", f.size(plan.out.width)))
    for rows in sorted(plan.heights):
        for vectors in plan.widths:
            for whole in (True, False):
                _emit_tile(k, plan, rows, vectors, whole)
    work = costs.work(choice.cost, plan.out.batch * plan.out.height * plan.out.width)
    return single(k.step(plan.out.batch * node.op.groups * cut.count, work, dims.maximum(64, plan.scratch)))


def _partition(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Lines:
    """Lines that make enough parts, of which each has so many that little is copied twice."""
    plan = plan_of(node, target, choice.tiling, 1)
    out, single_row = plan.out, plan.rows.single_row
    length, step = (out.width, choice.tiling.vectors * plan.lanes) if single_row else (out.height, 1)
    least = TWICE * dims.typical(plan.rows.dense.image) / SCRATCH_BYTES
    axis = 1 if single_row else 0
    shared = (
        plan.window.extent[axis] // plan.window.strides[axis] - 1
    )  # lines that a part reads besides its own
    together = max(1, min(int(shared / (TWICE - 1)), int(dims.typical(length) / max(1, least))))
    planes = out.batch * node.op.groups
    return cut_lines(length, -(-together // step) * step, planes, choice.cost.total, least)


def _copy(f: KernelFunction, plan: PlanarPlan, image: str, lines: tuple[str, str]) -> None:
    place, phase = partial(plan.x.address, f, "%scratch", 0), _columns(f, plan, lines)
    width = f.mul(phase, plan.phases)
    if plan.phases == 1:
        plan.rows.copy(f, image, lines, width, place)
        return
    staged = f.offset("%scratch", f.size(plan.staged))
    size, lanes, count = plan.x.itemsize, plan.lanes, plan.phases
    wide = vector_type(f"i{8 * size}", count * lanes)

    def split(channel: str, row: str) -> None:
        to = place(channel, row)
        with f.loop(0, phase, lanes) as column:
            values = f.load(wide, f.element(staged, column.index, count * size), size)
            for k in range(count):
                picked = f.shuffle(values, "poison", range(k, count * lanes, count), wide)
                start = f.add(f.mul(f.size(plan.phase), k), column.index)
                f.store(vector_type(f"i{8 * size}", lanes), picked, f.element(to, start, size), size)

    plan.rows.copy(f, image, lines, width, lambda channel, row: staged, split)


def _columns(f: KernelFunction, plan: PlanarPlan, lines: tuple[str, str]) -> str:
    """How many columns of a phase tiles read, of whole vectors: of a single row as few as these lines have,
    for one of open length may be much shorter than there is room for."""
    if not plan.rows.single_row:
        return f.size(plan.phase)
    read = f.add(plan.rows.columns(f, lines), plan.phases - 1)
    columns = f.divide(read, plan.phases)[0]
    return f.add(f.round_down(f.add(columns, plan.lanes - 1), plan.lanes), plan.lanes)


def _emit_row(
    f: KernelFunction, plan: PlanarPlan, place: str, y: str, line: str, columns: tuple[str, str]
) -> None:
    """Some columns of a row of the output, whose first tap is the first that was copied of the line-th row
    that the window begins in; place: of the image and group."""
    first, last = columns
    source = f.offset("%scratch", f.mul(line, f.size(plan.x.row * plan.window.strides[0])))
    count, strides = f.sub(last, first), offered(readings(plan.node), plan.node)
    vectors = f.divide(f.add(count, plan.lanes - 1), plan.lanes)[0]
    weights = plan.x.channels * plan.window.taps * plan.x.itemsize  # bytes of an output channel
    n, group = f.divide(place, plan.node.op.groups)
    first_channel = f.mul(group, plan.out.channels)
    channel = 0
    for rows, tall in plan.heights.items():
        with f.loop(0, tall) as tiles:
            above = f.add(channel, f.mul(tiles.index, rows))

            def tile(wide: int, start: str, _: str, above: str = above, rows: int = rows) -> None:
                moved = f.mul(start, plan.lanes)
                x, left, made = f.add(first, moved), f.sub(count, moved), f.add(first_channel, above)
                words = [
                    "ptr %args",
                    f"ptr {f.element(source, moved, plan.x.itemsize)}",
                    f"ptr {f.offset(f.input(1), f.mul(made, weights))}",
                    f"ptr {plan.out.address(f, f.output(), place, above, y, x)}",
                    f"ptr {f.offset('%scratch', f.size(plan.raw))}",
                    f"i64 {left}",
                ]
                for number, steps in enumerate(strides, 2):
                    terms = list(zip((n, made, y, x), steps))
                    words.append(f"ptr {displaced(f, f.input(number), terms)}")
                call, columns = f"({', '.join(words)})", wide * plan.lanes
                whole = f.compare("sge", left, columns)
                with f.when(whole):
                    f.statement(f"call void @{plan.name(rows, wide, True)}{call}")
                with f.when(f.compare("slt", left, columns)):
                    f.statement(f"call void @{plan.name(rows, wide, False)}{call}")

            for_equal_tiles(f, vectors, plan.tiling.vectors, tile)
        channel += rows * tall


def _emit_tile(k: KernelText, plan: PlanarPlan, rows: int, vectors: int, whole: bool) -> None:
    """Computes one tile: %a is the first tap of its first pixel, %b the weights of its first channel; of the
    row %columns pixels are left."""
    node, tile = plan.node, plan.tile(rows, vectors)
    strides = offered(readings(node), node)
    names = [f"%e{k}" for k in range(1, len(strides) + 1)]
    parameters = [f"ptr {p}" for p in ("%args", "noalias %a", "noalias %b", "%out", "%raw")]
    parameters += ["i64 %columns", *(f"ptr {name}" for name in names)]
    with k.function(plan.name(rows, vectors, whole), parameters, attributes="noinline nounwind") as f:
        sums = _sums(f, plan, tile)
        operands = {
            number: Operand(name, value.dtype, f.size(steps[1]), steps[3] != 0)
            for number, (name, steps, value) in enumerate(zip(names, strides, node.inputs[2:]), 1)
        }
        body = Epilogue(node.op.epilogue, operands, f.size)
        place = Place("%out", plan.out.dtype, f.size(plan.out.plane))
        epilogues.finish(f, tile, sums, body, place, None if whole else "%columns", "%raw")
        f.statement("ret void")


def _sums(f: KernelFunction, plan: PlanarPlan, tile: Tile) -> list[str]:
    """The sums over channels, rows of the window and its columns, phase by phase."""
    x, win, size = plan.x, plan.window, plan.x.itemsize
    (height, width), (dy, dx) = win.kernel, win.dilations
    kinds = ["ptr", "ptr", *[tile.vector] * (tile.rows * tile.vectors)]
    start = ["%a", "%b", *tile.zeros()]
    apart = x.channels * win.taps * size  # bytes from one output channel's weights to the next
    chains = chains_for(f.target, tile.rows, tile.vectors)
    with f.loop(0, x.channels, carried=list(zip(kinds, start))) as channels:
        plane = channels.carried[0]
        with f.loop(0, height, carried=list(zip(kinds, channels.carried))) as lines:
            a, b, *sums = lines.carried
            for phase in range(min(plan.phases, width)):
                weights = fixed_rows(
                    f.offset(b, phase * size), [r * apart for r in range(tile.rows)], plan.phases * size
                )
                pixels = Panel(f.offset(a, f.mul(f.size(plan.phase), phase * size)), step=dx * size)
                taps = len(range(phase, width, plan.phases))
                sums = multiply_add(f, tile, list(sums), weights, pixels, taps, chains=chains)
            lines.carry(f.offset(a, f.size(x.row * dy)), f.offset(b, width * size), *sums)
        channels.carry(f.offset(plane, f.size(x.plane)), *lines.results[1:])
    return list(channels.results[2:])
