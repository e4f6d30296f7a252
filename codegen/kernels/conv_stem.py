"""A network's first convolution: few channels, read from a dense image, written in blocks of
channels.

Each part copies the rows it needs, padding included, to its scratch memory. There they are an image
of blocks of one channel, over which the tiles of conv.py run as they are.

A dot product of bytes or bfloat16s adds up neighbours of a row, where that of a blocked image adds up
channels:

    3 channels, a row of 7 taps:   in blocks, 7 groups of a pixel's 3 channels and one of zeros
                                   here,      3 channels of 2 groups of 4 taps, the last weight of them 0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...ir.quantised import BYTES
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelText, Offer, single
from ..tiles.blocked import Image, Window, image_of, plane_axes, without_halo
from ..tiles.blocked_epilogue import Epilogue, operand_layouts, oriented, pack_operand, packed_operands
from ..tiles.channel_panels import PanelTiling, panel_tilings, panels_of
from ..tiles.conv_plan import ConvPlan, emit_panel, emit_tiles, tile_shape
from ..tiles.copied_rows import CopiedRows
from ..tiles.lines import Lines, cut_lines
from ..tiles.run_packing import packed_by_run, packing_estimate
from .conv import dense_images, dot_of, estimate, is_plain, packed_groups, packed_panels, window

MOST_CHANNELS = 16
MOST_BYTES = 1 << 20  # of a window's rows: all are copied for each row of the output that is computed alone
SCRATCH_BYTES = 128 << 10  # what a part's rows may take where several rows fit


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """The panel widths that suit the outputs, where the input has few channels."""
    if not (is_plain(node) or _adds_neighbours(node, target)) or node.op.transposed or node.op.groups != 1:
        return
    x, out, win = dense_images(node)
    block, rank = target.block, len(node.op.strides)
    operands = operand_layouts(node, block)
    if x.channels > MOST_CHANNELS or operands is None or window(node).halo is None:
        return
    if win.extent[0] * x.channels * dims.typical(x.row) > MOST_BYTES:
        return
    dot = None if is_plain(node) else dot_of(node, target)
    tilings = panel_tilings(target, out.channels, block, node.op.accumulate, dot)
    depth = x.channels * _steps(window(node), tilings[0][0].group).taps
    cost, copying = estimate(node, target, tilings[0][0], depth), _copying(x, out, win, target)
    for tiling, times in tilings:
        yield Offer(
            cost * times + copying + packing_estimate(node, target),
            tiling,
            (None, None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )


def _copying(x: Image, out: Image, win: Window, target: Target) -> Estimate:
    """To copy the rows of all parts, which overlap."""
    least = _least_parts(x, win)
    lines = max(1.0, dims.typical(out.height) / max(1.0, least))
    rows = (lines - 1) * win.strides[0] + win.extent[0]
    times = max(1.0, dims.typical(out.height) / lines * rows / max(1, dims.typical(x.height)))
    nbytes = dims.typical(x.image)
    return costs.move(target, 2 * times * nbytes * dims.typical(x.batch), min(nbytes, SCRATCH_BYTES))


def _least_parts(x: Image, win: Window) -> float:
    """Into how many parts an image is cut so that what each reads does not fill the scratch memory."""
    overlap = max(1, win.kernel[0] / win.strides[0])
    return 2 * dims.typical(x.image) * overlap / SCRATCH_BYTES


def _adds_neighbours(node: Node, target: Target) -> bool:
    """Whether dot products can add up neighbours of a row, of a window whose taps are neighbours. What lies
    behind the last tap is multiplied by 0: a NaN or an infinity there reaches one more result."""
    if not isinstance(node.op, Conv) or node.inputs[0].dtype not in (*BYTES, "bfloat16"):
        return False
    dot = dot_of(node, target)
    return dot is not None and dot.group > 1 and window(node).dilations[1] == 1


def _steps(win: Window, group: int | None) -> Window:
    """The window whose taps are the first ones of a dot product's groups."""
    if group is None:
        return win
    (height, width), (down, _) = win.kernel, win.dilations
    return replace(win, kernel=(height, -(-width // group)), dilations=(down, group))


def _read(win: Window, group: int | None) -> Window:
    """The window with whole groups."""
    height, width = win.kernel
    return win if group is None else replace(win, kernel=(height, width + -width % group))


@dataclass(frozen=True)
class Neighbours(Image):
    """An image whose blocks are `block` neighbours of a row of a channel: those of the next pixel begin one
    element behind those of a pixel."""

    @property
    def pixel(self) -> int:
        return self.itemsize


def pack(node: Node[Conv], choice: Choice[PanelTiling], operand: int) -> Constant | None:
    """Weights as [panel][channel][tap][vectors * block], groups of taps where dot products add them up."""
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].tensor.rank, choice.block)
    weights, group = node.inputs[1].data, choice.tiling.group
    if group is None:
        return packed_panels(weights, choice, 1)
    outputs, channels, *taps = weights.shape
    grouped = (outputs, channels * group, *taps[:-1], -(-taps[-1] // group))

    def make() -> np.ndarray:
        idle = [*[(0, 0)] * (1 + len(taps)), (0, -taps[-1] % group)]
        apart = np.pad(weights.array, idle).reshape(outputs, channels, *grouped[2:], group)
        return np.moveaxis(apart, -1, 2).reshape(grouped)

    return packed_groups(node, Constant(weights.dtype, grouped, make), choice, group)


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    type_, out, group = node.inputs[0].tensor, image_of(node.outputs[0].tensor), choice.tiling.group
    read, sums, epilogue = window(node), node.op.accumulate, Epilogue(node, out.block)
    dot = None if group is None else dot_of(node, target)
    height, width = plane_axes(type_.shape[2:], 1)
    channels = dims.number(type_.shape[1])
    dense = Image(type_.shape[0], channels, height, width, 1, type_.dtype, fill=node.op.zero)
    if group is None:
        dense, out, read, epilogue = oriented(dense, out, read, epilogue)
    win = _steps(read, group)
    kinds = tuple(panels_of(out.channels, out.block, choice.tiling.vectors, choice.tiling.tail))
    tiles = tile_shape(target, (out.height, out.width), kinds, sums, channels * win.taps, dot)
    plan = ConvPlan(dense, out, win, 0, epilogue, sums, kinds, *tiles, dot, choice.tiling.stored)
    cut = _partition(plan, choice.cost)
    rows = CopiedRows(dense, out, _read(read, group))
    copied = rows.image(2 * cut.each - 1)
    if group is not None:
        size = copied.height, copied.width
        copied = Neighbours(copied.batch, channels * group, *size, group, copied.dtype)
    plan = replace(plan, x=copied)
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        n, chunk = f.divide(part.index, f.size(cut.count))
        first, last = cut.at(f, chunk)
        image = f.offset(f.input(0), f.mul(n, f.size(dense.image)))
        columns = None if plan.single_row else f.size(plan.x.width)
        rows.copy(f, image, (first, last), columns, partial(plan.x.address, f, "%scratch", 0))
        source = f.offset("%scratch", f.mul(f.sub("0", first), f.size(plan.line_bytes)))
        with f.loop(0, plan.panels) as panel:
            emit_panel(f, plan, source, n, panel.index, (first, last))
    emit_tiles(k, plan)
    work = costs.work(choice.cost, out.batch * out.height * out.width)
    code = single(k.step(out.batch * cut.count, work, dims.maximum(64, plan.x.image)))
    return packed_by_run(node, code, target, plan.weight_bytes, [plan.run_panels])


def rows_of(
    node: Node[Conv], tiling: PanelTiling, target: Target, out: Image, epilogue: Epilogue, name: str
) -> tuple[CopiedRows, ConvPlan]:
    """Of a convolution of float32 row by row: what copies the rows that some lines read, and the tiles over
    a copy of what all lines of `out` read."""
    type_, win = node.inputs[0].tensor, window(node)
    batch, channels, height, width = type_.shape
    x = Image(batch, dims.number(channels), height, width, 1, type_.dtype)
    kinds, sums = tuple(panels_of(out.channels, out.block, tiling.vectors, tiling.tail)), node.op.accumulate
    tiles = tile_shape(target, (None, out.width), kinds, sums, x.channels * win.taps)
    rows = CopiedRows(x, out, win)
    copied = rows.image(dims.number(out.height))
    plan = ConvPlan(copied, out, win, 0, epilogue, sums, kinds, *tiles, name=name, apart=epilogue.apart)
    return rows, plan


def _partition(plan: ConvPlan, cost: Estimate) -> Lines:
    """Lines that make enough parts, and whose input does not fill the scratch memory."""
    least = _least_parts(plan.x, plan.window)
    return cut_lines(plan.length, plan.line_step, plan.out.batch, cost.total, least)
