"""A network's first convolution: few channels, read from a dense image, written in blocks of
channels.

Each part copies the rows it needs, padding included, to its scratch memory. There they are an image
of blocks of one channel, over which the tiles of conv.py run as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelText, Offer, single
from ..tiles.blocked import Image, image_of, plane_axes, without_halo
from ..tiles.blocked_epilogue import Epilogue, operand_layouts, pack_operand, packed_operands
from ..tiles.copied_rows import CopiedRows
from ..tiles.lines import Lines, cut_lines
from ..tiles.panels import PanelTiling, panel_tilings, panels_of, widest
from ..tiles.run_packing import packed_by_run, packing_estimate
from .conv import ConvPlan, emit_panel, emit_tiles, estimate, is_plain, packed_panels, tile_shape, window

MOST_CHANNELS = 16
MOST_ROWS = 64  # of a window: all are copied for each row of the output that is computed alone
SCRATCH_BYTES = 128 << 10  # what a part's rows may take where several rows fit


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """The panel widths that suit the outputs, where the input has few channels."""
    if not is_plain(node) or node.op.transposed or node.op.groups != 1:
        return
    x, out, win = node.inputs[0].tensor, node.outputs[0].tensor, window(node)
    block, rank = target.block, x.rank - 2
    operands = operand_layouts(node, block)
    if dims.number(x.shape[1]) > MOST_CHANNELS or operands is None or win.halo is None:
        return
    if win.extent[0] > MOST_ROWS:
        return
    tilings = panel_tilings(target, dims.number(out.shape[1]), block, x.dtype)
    cost, copying = estimate(node, target, tilings[0][0]), costs.move(target, 2 * dims.typical(x.nbytes))
    for tiling, times in tilings:
        yield Offer(
            cost * times + copying + packing_estimate(node, target),
            tiling,
            (None, None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )


def pack(node: Node[Conv], choice: Choice[PanelTiling], operand: int) -> Constant | None:
    """Weights as [panel][channel][tap][vectors * block]."""
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].tensor.rank, choice.block)
    return packed_panels(node.inputs[1].data, choice, 1)


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    type_, out, win = node.inputs[0].tensor, image_of(node.outputs[0].tensor), window(node)
    height, width = plane_axes(type_.shape[2:], 1)
    dense = Image(type_.shape[0], dims.number(type_.shape[1]), height, width, 1, type_.dtype)
    kinds = tuple(panels_of(out.channels, out.block, choice.tiling.vectors, choice.tiling.tail))
    wide = widest(target, kinds, type_.dtype)
    tiles = tile_shape(target, out.height, out.width, wide, dense.channels * win.taps)
    plan = ConvPlan(dense, out, win, 0, Epilogue(node, out.block), type_.dtype, kinds, *tiles)
    cut = _partition(plan, choice.cost)
    rows = CopiedRows(dense, out, win)
    plan = replace(plan, x=rows.image(2 * cut.each - 1))
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


def _partition(plan: ConvPlan, cost: Estimate) -> Lines:
    """Lines that make enough parts, and whose input does not fill the scratch memory."""
    overlap = max(1, plan.window.kernel[0] / plan.window.strides[0])
    least = 2 * dims.typical(plan.x.image) * overlap / SCRATCH_BYTES
    return cut_lines(plan.length, plan.line_step, plan.out.batch, cost.total, least)
