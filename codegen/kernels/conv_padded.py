"""Convolution where much of what windows cover is padding: far dilated ones, or ones larger than their image.

    tile: rows x columns pixels, over those rows and columns of taps that reach the image from any of them
All else is as in `conv.py`. Tiles are as small as that pays, and the image's border is only as wide as a tile
reaches over its edge. Sizes may be open: a tile finds its taps from where it lies. Where a panel's weights
would leave the second-level cache, all tiles of a part add up some channels before the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import ClassVar, TypeGuard

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Multiplied, Offer
from ..tiles.blocked import halo_layout, without_halo
from ..tiles.blocked_epilogue import operand_layouts, packed_operands
from ..tiles.channel_panels import Panels, PanelTiling, panel_tilings, panels_of
from ..tiles.conv_plan import ConvPlan, emit_plan, extended, in_slices, tile_estimate
from ..tiles.microkernel import Tile, fixed_rows, most_rows, multiply_add
from ..tiles.panel_operand import Panel
from ..tiles.taps import PADDED_SHARE, Taps, reaching_share, window_taps
from . import conv
from .conv import dense_images, is_plain, plan_of, window

# What is offered ---------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """The panel widths that suit the number of output channels."""
    axes = _axes(node)
    if axes is None or not is_plain(node):
        return
    operands = operand_layouts(node, target.block)
    if operands is None or used_share(node) > PADDED_SHARE:
        return
    for tiling, times in _tilings(node, target):
        rows, columns = tile_shape(node, axes, target, tiling)
        halo, rank = (axes[0].over(rows), axes[1].over(columns)), len(node.op.strides)
        if dense_images(node)[2] != window(node):
            halo = halo[::-1]
        yield Offer(
            estimate(node, axes, target, tiling, (rows, columns)) * times,
            tiling,
            (halo_layout(halo, target.block, rank), None, *operands),
            without_halo(target.block, rank),
            (1, *packed_operands(node)),
        )


def _tilings(node: Node[Conv], target: Target) -> list[tuple[PanelTiling, float]]:
    """The panel widths that suit the number of a group's output channels; several groups are of whole panels
    and blocks."""
    (outputs, inside), block, groups = dims.numbers(node.inputs[1].shape[:2]), target.block, node.op.groups
    made = outputs // groups
    found = panel_tilings(target, made, block, node.op.accumulate)
    if groups == 1:
        return found
    return [(t, times) for t, times in found if inside % block == made % (t.vectors * block) == 0]


def _is_taken(node: Node) -> TypeGuard[Node[Conv]]:
    """Whether a node is a convolution of known channels and padding, with constant weights."""
    op = node.op
    if not isinstance(op, Conv) or op.transposed or len(op.strides) > 2:
        return False
    return dims.is_static((node.inputs[0].shape[1], *op.pads)) and node.inputs[1].constant is not None


def _axes(node: Node) -> tuple[Taps, Taps] | None:
    if not _is_taken(node):
        return None
    image, result, win = dense_images(node)
    axes, apart = window_taps(image, result, win), win.dilations != (1, 1)
    if axes is None:
        return None
    inside = not any((*win.before, *win.after)) or all(t.count <= t.reckoned().size for t in axes)
    if node.op.groups == 1 and not apart and inside:
        return None  # others fetch weights ahead
    return axes


def used_share(node: Node) -> float:
    """Of all pixels' taps those that reach the image."""
    return reaching_share(_axes(node))


def multiplied(node: Node[Conv], choice: Choice, target: Target) -> Multiplied:
    return Multiplied(used_share(node))


def tile_shape(
    node: Node[Conv], axes: tuple[Taps, Taps], target: Target, tiling: PanelTiling
) -> tuple[int, int]:
    """The (rows, columns) of tiles that take the least time, of a column that is turned: one row where only
    the run knows how many there are or how long they are."""
    height, width = axes[0].length, axes[1].reckoned().length
    most = most_rows(target, tiling.vectors * target.registers(node.op.accumulate, target.block))
    several = isinstance(height, int) and isinstance(axes[1].size, int)
    heights = [r for r in range(1, most + 1) if r == 1 or (several and height % r == 0)]
    shapes = [(r, c) for r in heights for c in range(1, min(width, most // r) + 1)]
    return min(shapes, key=lambda shape: _tiles_estimate(node, axes, target, tiling, shape).total)


def estimate(
    node: Node[Conv], axes: tuple[Taps, Taps], target: Target, tiling: PanelTiling, shape: tuple[int, int]
) -> Estimate:
    """All tiles, the epilogue, and moving everything once."""
    found = _tiles_estimate(node, axes, target, tiling, shape)
    found += costs.epilogue(target, node, node.op.accumulate) + costs.traffic(target, node)
    return found + costs.stored(target, dims.number(node.inputs[1].tensor.nbytes))


def _tiles_estimate(
    node: Node[Conv], axes: tuple[Taps, Taps], target: Target, tiling: PanelTiling, shape: tuple[int, int]
) -> Estimate:
    """The steps of all tiles with the taps that they use, and their ends, whatever layouts the node has: the
    image's border and the code are to follow from one shape of tiles."""
    (rows, columns), w, sums = shape, node.inputs[1].tensor, node.op.accumulate
    outputs, channels = dims.numbers(w.shape[:2])
    down, across = (axis.reckoned() for axis in axes)
    tiles = down.length // rows * -(-across.length // columns)
    depth = channels * down.used(rows) * across.used(columns) / tiles
    pixels = dims.typical(dims.product((node.outputs[0].shape[0], *node.outputs[0].shape[2:])))
    images = pixels / (down.length * across.length)  # of the size that is reckoned with
    found = costs.step(target)
    for p in panels_of(outputs, target.block, tiling.vectors, tiling.tail):
        narrower = target.facts.narrow if p.lanes < target.lanes(sums) else 1
        each = tile_estimate(target, depth, rows * columns, p.registers(target, sums))
        found += each * (tiles * p.count * narrower * images)
    return found


def pack(node: Node[Conv], choice: Choice[PanelTiling], operand: int) -> Constant | None:
    """As for `conv.py`."""
    return conv.pack(node, choice, operand)


# Code --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaddedPlan(ConvPlan):
    """A plan whose tiles are told how far their group's channels are from the first, which taps they use
    (rows %top to %bottom, columns %left to %right), and which blocks of channels they add, %first to %behind,
    to the %sums of those before."""

    axes: tuple[Taps, Taps] = field(kw_only=True)
    groups: int = field(kw_only=True)

    panel_parameters: ClassVar[tuple[str, ...]] = (
        "ptr noalias %b",
        "i64 %group",
        *(f"i64 {name}" for name in ("%top", "%bottom", "%left", "%right")),
    )

    @property
    def each(self) -> int:
        """The input channels of a group."""
        return self.x.channels // self.groups

    @property
    def summed(self) -> int:
        return self.each // self.x.block

    @property
    def column_bytes(self) -> int:
        return super().column_bytes // self.groups

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        group, _ = f.divide(self.first_block(f, panels, panel), self.out.blocks // self.groups)
        first = f.mul(group, f.size(self.summed * self.x.plane))
        return [*super().panel_words(f, panels, panel), f"i64 {first}"]

    def place_words(self, f: KernelFunction, y: str, x: str, width: int) -> list[str]:
        places = ((y, self.rows), (x, width))
        return [f"i64 {word}" for axis, place in zip(self.axes, places) for word in axis.reach(f, *place)]

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        """Block by block of the input, over the taps that are used."""
        x, kinds = self.x, [tile.vector] * len(sums)
        whole, rest = divmod(self.each, x.block)
        sums = self.resumed(f, tile, sums)
        if whole:
            reach = ("0", str(whole)) if self.slice is None else ("%first", "%behind")
            with f.loop(*reach, 1, list(zip(kinds, sums))) as blocks:
                loop_sums = self._block(
                    f, tile, list(blocks.carried), displacements, panel, blocks.index, x.block
                )
                blocks.carry(*loop_sums)
            sums = list(blocks.results)
        return self._block(f, tile, sums, displacements, panel, str(whole), rest) if rest else sums

    def _block(
        self,
        f: KernelFunction,
        tile: Tile,
        sums: list[str],
        displacements: Sequence[int],
        panel: Panel,
        block: str,
        channels: int,
    ) -> list[str]:
        """The sums and the products with so many channels of a block."""
        x, win, kinds = self.x, self.window, [tile.vector] * len(sums)
        image = f.offset("%a", f.add("%group", f.mul(block, f.size(x.plane))))
        weights = f.offset(panel.pointer, f.mul(block, x.block * win.taps * tile.panel_step))
        with f.loop("%top", "%bottom", 1, list(zip(kinds, sums))) as rows:
            row = f.offset(image, f.mul(rows.index, f.size(x.row * win.dilations[0])))
            line = f.mul(rows.index, win.kernel[1])
            with f.loop("%left", "%right", 1, list(zip(kinds, rows.carried))) as columns:
                pixel = f.offset(row, f.mul(columns.index, x.pixel * win.dilations[1]))
                tap = f.mul(f.add(line, columns.index), channels * tile.panel_step)
                here = fixed_rows(pixel, displacements, x.itemsize)
                done = multiply_add(
                    f, tile, list(columns.carried), here, Panel(f.offset(weights, tap)), channels
                )
                columns.carry(*done)
            rows.carry(*columns.results)
        return list(rows.results)


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    axes, plan = _axes(node), plan_of(node, target, choice.tiling)
    assert axes is not None
    rows, columns = tile_shape(node, axes, target, choice.tiling)
    if plan.window != dense_images(node)[2]:  # a column with a border, which is no row
        axes, rows, columns = axes[::-1], 1, 1
    widths = {columns} if isinstance(plan.out.width, int) else {columns >> k for k in range(5)} - {0}
    plan = replace(plan, rows=rows, widths=tuple(sorted(widths, reverse=True)), fetched=False)
    padded = extended(plan, PaddedPlan, axes=axes, groups=node.op.groups)
    return emit_plan(_sliced(padded, target), target, choice.cost)


def _sliced(plan: PaddedPlan, target: Target) -> PaddedPlan:
    """In slices of channels whose weights take a twelfth of the second-level cache, where a panel leaves it
    before the next tile reads it. Threads then share lines: weights are read the more often."""
    nbytes = plan.x.block * plan.column_bytes // plan.each * max(p.width for p in plan.kinds)  # of a block
    blocks, rest = divmod(plan.each, plan.x.block)
    level2 = target.facts.level2_bytes
    if rest or plan.single_row or plan.stored is not None or 2 * blocks * nbytes <= level2:
        return plan
    each = -(-blocks // -(-blocks // max(1, level2 // 12 // nbytes)))
    return in_slices(replace(plan, by_lines=True), each, target)
