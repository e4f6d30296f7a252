"""Convolutions over three axes whose groups share a block: depthwise, and groups of few channels.

    an image [N, C/b, D, H, W + 2 h, b] is one of D * H rows; for a strip of some rows of an output plane
        for each tap along D whose plane there is:   sums += a window over H and W of that plane's rows
All sums of a tile stay in registers for all planes. Only columns have a border in memory, which is all that
the planes of an image need to follow each other as rows, so that what is done pixel by pixel, 1x1x1
convolutions among it, sees the rows of one image; what lies above and below a plane is a row of zeros in
scratch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, offered, single
from ..text.emitter import ENTRY, vector_type
from ..tiles.blocked import (
    Window,
    clear_border,
    cover,
    equal_width,
    halo_layout,
    image_of,
    slide,
    window_of,
    without_halo,
)
from ..tiles.blocked_epilogue import Epilogue, operand_layouts, packed_operands
from ..tiles.lines import cut_lines
from ..tiles.run_packing import packed_by_run, packing_estimate
from . import depthwise
from .conv import is_plain
from .depthwise import DepthwisePlan, FloatStrip, Lanes, Tiling, around_tiles, lanes_of, unrolls

AXES = 3
MOST_SUMS = 8  # of a tile, in vectors; half of the registers where these are few


@dataclass(frozen=True)
class Planes:
    """How windows go along the first axis: `taps` planes `dilation` apart, of images of `depth` planes of
    `height` rows each, output and input."""

    taps: int
    stride: int
    dilation: int
    before: Dimension
    depths: tuple[Dimension, Dimension]
    heights: tuple[Dimension, Dimension]
    padded: tuple[bool, bool]  # whether windows may reach over the first or last plane, or row


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """One, for groups that divide a block of output channels and read no more than a block."""
    if not is_plain(node, (AXES,)) or node.op.transposed or node.op.groups == 1:
        return
    block, win = target.block, window(node)
    lanes, operands = lanes_of(node, block), operand_layouts(node, block)
    halo = replace(win, before=(0, win.before[1]), after=(0, win.after[1])).halo
    if lanes is None or operands is None or halo is None or not unrolls(win, lanes):
        return
    height = node.outputs[0].shape[3]
    yield Offer(
        _estimate(node, target, win, lanes) + packing_estimate(node, target),
        Tiling(2 if isinstance(height, int) and height % 2 == 0 else 1),
        (halo_layout(halo, block, AXES), None, *operands),
        without_halo(block, AXES),
        (1, *packed_operands(node)),
    )


def window(node: Node[Conv]) -> Window:
    """Over the last two axes."""
    op = node.op
    pads = (*op.pads[1:AXES], *op.pads[AXES + 1 :])
    return window_of(dims.numbers(node.inputs[1].shape[3:]), op.strides[1:], op.dilations[1:], pads)


def planes_of(node: Node[Conv]) -> Planes:
    """How the windows of a Conv node go along its first axis."""
    op, x, out = node.op, node.inputs[0].tensor, node.outputs[0].tensor
    padded = tuple(any(op.pads[a + side] != 0 for side in (0, AXES)) for a in (0, 1))
    return Planes(
        dims.number(node.inputs[1].shape[2]),
        op.strides[0],
        op.dilations[0],
        op.pads[0],
        (out.shape[2], x.shape[2]),
        (out.shape[3], x.shape[3]),
        (padded[0], padded[1]),
    )


def _widths(target: Target, lanes: Lanes, rows: int, width: Dimension, sums: str) -> tuple[int, ...]:
    """Outputs along a row that one iteration computes."""
    registers = target.registers(sums, lanes.block)
    most = max(1, min(MOST_SUMS, target.vector_registers // (2 * registers)) // rows)
    if isinstance(width, int):
        return (equal_width(width, most),)
    return tuple(w for w in (8, 4, 2, 1) if w <= most)


def _estimate(node: Node[Conv], target: Target, win: Window, lanes: Lanes) -> Estimate:
    """The tiles of all strips, the epilogue, and moving everything once."""
    out, sums, along = node.outputs[0].tensor, node.op.accumulate, planes_of(node)
    n, channels, depth, height, width = map(dims.typical, out.shape)
    rows = 2 if height % 2 == 0 else 1
    columns = _widths(target, lanes, rows, out.shape[4], sums)[0]
    tiles = n * -(-channels // lanes.block) * depth * -(-height // rows) * -(-width // columns)
    span = [(n - 1) * stride + extent for n, stride, extent in zip((rows, columns), win.strides, win.extent)]
    pixels, taps = span[0] * span[1], win.taps * lanes.inside
    products, shuffles = rows * columns * taps, 0 if lanes.plain else pixels * lanes.inside
    registers = target.registers(sums, lanes.block)
    loads, others = (pixels + taps) * registers, (shuffles + 2 * span[0]) * registers
    time = costs.step_time(target, products * registers, loads, others=others)
    found = Estimate(compute=time * tiles * along.taps)
    found += costs.overhead(target, costs.DEPTHWISE_TILE * tiles)
    return found + around_tiles(target, node)


pack = depthwise.pack


# Code --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VolumePlan(DepthwisePlan):
    """A convolution over three axes; `window` is that over the last two."""

    along: Planes

    @property
    def plane_bytes(self) -> int:
        """Of the weights of one tap along the first axis."""
        return super().block_bytes

    @property
    def block_bytes(self) -> int:
        return self.along.taps * self.plane_bytes


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    x, out = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor)
    win, lanes, along = window(node), offered(lanes_of(node, out.block), node), planes_of(node)
    rows, epilogue = choice.tiling.rows, Epilogue(node, out.block)
    widths = _widths(target, lanes, rows, out.width, epilogue.sums)
    plan = VolumePlan(x, out, win, epilogue, lanes, rows, widths, along)
    return packed_by_run(node, _emit(plan, target, choice.cost), target, plan.weight_bytes, [plan.run_panels])


def _emit(plan: VolumePlan, target: Target, cost: Estimate) -> Code:
    """A part is some rows of a block of output channels."""
    out = plan.out
    cut = cut_lines(out.height, plan.rows, out.blocks * out.batch, cost.total)
    k = KernelText(target)
    with k.entry() as f:
        with f.loop(0, f.size(plan.x.row), plan.x.pixel) as pixel:
            zeros = vector_type("i8", plan.x.pixel)
            f.store(zeros, "zeroinitializer", f.offset("%scratch", pixel.index), plan.x.align)
        with f.loop("%first", "%last") as part:
            plane, chunk = f.divide(part.index, f.size(cut.count))
            first, last = cut.at(f, chunk)
            target_plane = out.of_plane(f, f.output(), plane)
            clear_border(f, out, target_plane, first, last)
            _emit_rows(f, plan, plane, target_plane, first, last)
    _emit_strip(k, plan)
    work = costs.work(cost, out.batch * out.height * out.width)
    return single(k.step(out.batch * out.blocks * cut.count, work, dims.maximum(64, plan.x.row)))


def _emit_rows(f: KernelFunction, plan: VolumePlan, plane: str, target: str, first: str, last: str) -> None:
    """Some rows of one block of output channels."""
    x, win, along = plan.x, plan.window, plan.along
    n, block = f.divide(plane, plan.out.blocks)
    source, lane = f.divide(f.mul(block, plan.lanes.span), plan.lanes.block)
    image = f.offset(f.input(0), f.mul(n, f.size(x.image)))
    pixels = f.offset(image, f.size(x.origin - win.before[1] * x.pixel))
    pixels = f.offset(f.offset(pixels, f.mul(source, f.size(x.plane))), f.mul(lane, x.itemsize))
    weights = f.offset(f.input(1), f.mul(block, plan.block_bytes))
    with f.loop(first, last, plan.rows) as loop:
        z, y = f.divide(loop.index, f.size(along.heights[0]))
        begin = f.sub(f.mul(z, along.stride), f.size(along.before))
        row = f.sub(f.mul(y, win.strides[0]), f.size(win.before[0]))
        low, high = planes_there(f, along, begin)
        rows = f.add(f.mul(begin, f.size(along.heights[1])), row)
        words = [
            "ptr %args",
            f"ptr {f.offset(pixels, f.mul(rows, f.size(x.row)))}",
            f"ptr {weights}",
            "ptr %scratch",
            f"ptr {plan.out.address(f, target, 0, 0, loop.index)}",
            f"i64 {row}",
            f"i64 {low}",
            f"i64 {high}",
            *plan.epilogue.arguments(f, n, block, loop.index, 0),
        ]
        f.statement(f"call void @{ENTRY}.strip({', '.join(words)})")


def planes_there(f: KernelFunction, along: Planes, begin: str) -> tuple[str, str]:
    """The taps of a window that begins at a plane, or before the first, whose planes there are: the first and
    the one behind the last, which may come before it."""
    if not along.padded[0]:
        return "0", str(along.taps)
    left = f.maximum(0, f.sub(f.size(along.depths[1]), begin))
    low, above = (
        f.divide(f.add(planes, along.dilation - 1), along.dilation)[0]
        for planes in (f.maximum(0, f.sub(0, begin)), left)
    )
    return low, f.minimum(above, along.taps)


def _emit_strip(k: KernelText, plan: VolumePlan) -> None:
    """The function that computes a strip: %a is the first tap of its first pixel, %b the weights, %zeros a
    row, %out the pixel, %row that of the first tap in its plane, %low..%high-1 the planes that there are."""
    parameters = [
        "ptr %args",
        "ptr noalias %a",
        "ptr noalias %b",
        "ptr noalias %zeros",
        "ptr noalias %out",
        "i64 %row",
        "i64 %low",
        "i64 %high",
        *plan.epilogue.parameters,
    ]
    with k.function(f"{ENTRY}.strip", parameters, attributes="noinline nounwind") as f:
        cover(f, "0", f.size(plan.out.width), plan.widths, VolumeStrip(f, plan).tile)
        f.statement("ret void")


class VolumeStrip(FloatStrip):
    """The function of a strip at work; which of its rows lie in their plane."""

    plan: VolumePlan

    def __init__(self, f: KernelFunction, plan: VolumePlan):
        super().__init__(f, plan)
        height = f.size(plan.along.heights[1])
        rows = [f.add("%row", iy) for iy in range(len(self.lines))]
        self.inside = [f.compare("ult", row, height) for row in rows]

    def resident(self) -> bool:
        return False

    def tile(self, width: int, column: str) -> None:
        f, plan, along = self.f, self.plan, self.plan.along
        outputs = list(product(range(plan.rows), range(width)))
        step = along.dilation * along.heights[1] * plan.x.row
        begun = [(self.kind, self.initial)] * len(outputs)
        with f.loop("%low", "%high", carried=begun) as loop:
            shift = f.mul(column, plan.window.strides[1] * plan.x.pixel)
            plane = f.add(f.mul(loop.index, f.size(step)), shift)
            zeros = f.offset("%zeros", shift)
            at = [f.offset(line, plane) for line in self.lines]
            if along.padded[1]:
                at = [f.select(there, "ptr", p, zeros) for p, there in zip(at, self.inside)]
            self.panel = f.offset("%b", f.mul(loop.index, plan.plane_bytes))  # the weights of a plane
            sums = dict(zip(outputs, loop.carried))

            def done(y: int, x: int, state: str) -> None:
                sums[y, x] = state

            slide(plan.window, plan.rows, width, partial(self.load, at), self.combine, done, dict(sums))
            loop.carry(*sums.values())
        finished = self.finish[width].beginning(column)
        for (y, x), state in zip(outputs, loop.results):
            finished.put(state, 0, y, f.add(column, x))
        finished.rework((0, plan.rows), column, width)
