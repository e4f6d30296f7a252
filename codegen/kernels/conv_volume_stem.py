"""A network's first convolution over three axes: few channels, read from a dense volume, written in blocks of
channels.

Each part computes some rows of one plane of the result. It copies the rows that it needs of every plane that
its windows see to its scratch memory, padding included; there the channels of one plane after those of the
other are the channels of one image, over which the tiles of conv.py run. Planes outside of the volume are
neither copied nor multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import ClassVar

import numpy as np

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node, TensorType, Value
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, single
from ..tiles.blocked import Image, clear_border, displaced, image_of, without_halo
from ..tiles.blocked_epilogue import Epilogue, operand_layouts, pack_operand, packed_operands
from ..tiles.channel_panels import Panels, PanelTiling, panel_tilings, panels_of
from ..tiles.conv_plan import ConvPlan, emit_panel, emit_tiles, tile_shape
from ..tiles.copied_rows import CopiedRows
from ..tiles.lines import cut_lines
from ..tiles.microkernel import Tile
from ..tiles.panel_operand import Panel
from ..tiles.window_sums import merged, nest, taps
from .conv import estimate, is_plain, packed_panels
from .conv_stem import MOST_CHANNELS, SCRATCH_BYTES
from .depthwise_volume import AXES, Planes, planes_of, planes_there, window


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """The panel widths that suit the outputs, where the input has few channels and weights are known."""
    if not is_plain(node, (AXES,)) or node.op.transposed or node.op.groups != 1:
        return
    x, w, out = node.inputs[0].tensor, node.inputs[1], node.outputs[0].tensor
    operands, block = operand_layouts(node, target.block), target.block
    if dims.number(x.shape[1]) > MOST_CHANNELS or operands is None or w.constant is None:
        return
    for tiling, times in panel_tilings(target, dims.number(out.shape[1]), block, node.op.accumulate):
        yield Offer(
            _estimate(node, target, tiling) * times,
            tiling,
            (None, None, *operands),
            without_halo(block, AXES),
            (1, *packed_operands(node)),
        )


def _estimate(node: Node[Conv], target: Target, tiling: PanelTiling) -> Estimate:
    """Of the planes as images of the channels of all planes that their windows see, and to copy these."""
    op, (x, w), out = node.op, node.inputs[:2], node.outputs[0]
    depth, number = out.shape[2], w.shape[2]

    def flat(type_: TensorType, first: Dimension, channels: Dimension) -> Value:
        return Value(TensorType(type_.dtype, (first, channels, *type_.shape[3:])))

    images = flat(x.tensor, x.shape[0] * depth, x.shape[1] * number)
    rest = (*op.pads[1:AXES], *op.pads[AXES + 1 :])
    plain = replace(op, strides=op.strides[1:], dilations=op.dilations[1:], pads=rest, epilogue=None)
    weights = flat(w.tensor, w.shape[0], x.shape[1] * number)
    result = flat(out.tensor, out.shape[0] * depth, out.shape[1])
    taken = dims.number(w.shape[1]) * dims.product(dims.numbers(w.shape[2:]))
    found = estimate(Node(plain, (images, weights), (result,), ""), target, tiling, taken)
    found += costs.move(target, 2 * dims.typical(images.tensor.nbytes))
    return found + costs.epilogue(target, node, op.accumulate)


def pack(node: Node[Conv], choice: Choice[PanelTiling], operand: int) -> Constant | None:
    """Weights as [panel][tap along the first axis][channel][tap][vectors * block]."""
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, choice.block)
    weights = node.inputs[1].data
    outputs, channels, planes, *sides = weights.shape
    shape = (outputs, planes * channels, *sides)

    def make() -> np.ndarray:
        return weights.array.swapaxes(1, 2).reshape(shape)

    return packed_panels(Constant(weights.dtype, shape, make), choice, 1)


# The plan of one convolution ---------------------------------------------------------------------


@dataclass(frozen=True)
class Seen(Image):
    """The planes of a dense volume that windows see, from the first on: block number k is channel k %
    `inside` of plane k // `inside`; `apart`: bytes from one of these planes to the next, `volume` from one
    channel to the next."""

    inside: int = field(kw_only=True)
    apart: Dimension = field(kw_only=True)
    volume: Dimension = field(kw_only=True)

    def address(
        self,
        f: KernelFunction,
        pointer: str,
        n: str | int = 0,
        block: str | int = 0,
        y: str | int = 0,
        x: str | int = 0,
    ) -> str:
        plane, channel = f.divide(block, self.inside)
        first = displaced(f, pointer, ((plane, self.apart), (channel, self.volume)))
        return super().address(f, first, n, 0, y, x)


@dataclass(frozen=True)
class OnePlane(Image):
    """One plane of a volume in blocks of channels, of which each has `depth`."""

    depth: Dimension = field(kw_only=True)

    @property
    def plane(self) -> Dimension:
        return self.depth * self.height * self.row


@dataclass(frozen=True)
class VolumePlan(ConvPlan):
    """Of one plane. `there`: the first of the planes that windows see and that there are, and how many."""

    inside: int = field(kw_only=True)
    there: tuple[str, str] = ("0", "0")

    panel_parameters: ClassVar[tuple[str, ...]] = ("ptr noalias %b", "i64 %seen")

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        first, count = self.there
        step = self.inside * self.window.taps * panels.width * dtypes.itemsize(self.dtype)
        (start,) = super().panel_words(f, panels, panel)
        weights = f.offset(start.removeprefix("ptr "), f.mul(first, step))
        return [f"ptr {weights}", f"i64 {f.mul(count, self.inside)}"]

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        if self.window.taps == 0:
            return sums
        loops, depth = merged(taps(self.x, self.window), 1, self.x.itemsize)
        channels: list[tuple[int | str, Dimension]] = [("%seen", self.x.plane), *loops]
        return nest(f, tile, sums, "%a", panel, channels, depth, displacements)[0]


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    x, result, along, win = node.inputs[0].tensor, node.outputs[0].tensor, planes_of(node), window(node)
    outputs, tiling = dims.number(result.shape[1]), choice.tiling
    kinds = tuple(panels_of(outputs, choice.block, tiling.vectors, tiling.tail))
    inside, (height, width), sums = dims.number(x.shape[1]), x.shape[3:], node.op.accumulate
    size, whole = dtypes.itemsize(x.dtype), image_of(result)
    plane = replace(whole, height=result.shape[3])
    out = OnePlane(**vars(plane), depth=along.depths[0])
    seen = Seen(
        x.shape[0],
        inside * along.taps,
        height,
        width,
        1,
        x.dtype,
        inside=inside,
        apart=along.dilation * height * width * size,
        volume=x.shape[2] * height * width * size,
    )
    depth = inside * along.taps * win.taps
    tiles = tile_shape(target, (out.height, out.width), kinds, sums, depth)
    epilogue = Epilogue(node, whole.block)
    plan = VolumePlan(seen, out, win, 0, epilogue, sums, kinds, *tiles, inside=inside)
    nbytes = dims.typical(seen.image) * max(1, win.kernel[0] / win.strides[0])
    planes = out.batch * along.depths[0]
    cut = cut_lines(plan.length, plan.line_step, planes, choice.cost.total, 2 * nbytes / SCRATCH_BYTES)
    rows = CopiedRows(seen, out, win)
    read = rows.image(2 * cut.each - 1)
    plan = replace(plan, x=Image(1, read.channels, read.height, read.width, 1, read.dtype))
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        rest, chunk = f.divide(part.index, f.size(cut.count))
        n, z = f.divide(rest, f.size(along.depths[0]))
        _emit_rows(f, plan, (rows, seen), plane, along, (n, z), cut.at(f, chunk))
    emit_tiles(k, plan)
    work = costs.work(choice.cost, planes * out.height * out.width)
    return single(k.step(planes * cut.count, work, dims.maximum(64, plan.x.image)))


def _emit_rows(
    f: KernelFunction,
    plan: VolumePlan,
    copied: tuple[CopiedRows, Seen],
    plane: Image,
    along: Planes,
    place: tuple[str, str],
    lines: tuple[str, str],
) -> None:
    """Some rows of plane z of the n-th result."""
    (n, z), (first, last), (rows, seen), out = place, lines, copied, plan.out
    begin = f.sub(f.mul(z, along.stride), f.size(along.before))
    low, high = planes_there(f, along, begin)
    count = f.maximum(0, f.sub(high, low))
    volume = f.offset(f.input(0), f.mul(n, f.size(plan.inside * seen.volume)))
    row = seen.height * seen.row
    image = f.offset(volume, f.mul(f.add(begin, f.mul(low, along.dilation)), f.size(row)))
    columns = None if plan.single_row else f.size(plan.x.width)
    there = f.mul(count, plan.inside)
    rows.copy(f, image, lines, columns, partial(plan.x.address, f, "%scratch", 0), channels=there)
    source = f.offset("%scratch", f.mul(f.sub("0", first), f.size(plan.line_bytes)))
    above = f.mul(z, f.size(out.height))
    target = f.offset(f.output(), f.add(f.mul(n, f.size(out.image)), f.mul(z, f.size(plane.plane))))
    border = lines
    if plan.single_row:  # the part with the first pixel clears the border
        border = "0", f.cast("zext", f.compare("eq", first, 0), "i64")
    if plane.halo != (0, 0):
        with f.loop(0, out.blocks) as block:
            clear_border(f, plane, f.offset(target, f.mul(block.index, f.size(out.plane))), *border)
    here = replace(plan, there=(low, count), epilogue=plan.epilogue.below(above))
    with f.loop(0, plan.panels) as panel:
        emit_panel(f, here, source, n, panel.index, (first, last), target=target)
