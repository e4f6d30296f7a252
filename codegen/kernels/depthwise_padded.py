"""Convolutions whose groups share a block and much of whose windows covers padding, as of far dilated ones.

    tile: columns pixels of a row, over those rows and columns of taps that reach the image from any of them
All else is as in `depthwise.py`, which reads an image with all its padding: a window of 3x3 taps that lie 24
apart sees 80x80 pixels around an image of 32x32. Here the border is only as wide as a tile reaches over an
edge. Sizes may be open: a tile finds its taps from where it lies (`tiles/taps.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import ClassVar

from ...ir import dims
from ...ir.graph import Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Multiplied, Offer, offered
from ..tiles.blocked import halo_layout, image_of, without_halo
from ..tiles.blocked_epilogue import Epilogue, operand_layouts, packed_operands
from ..tiles.microkernel import fused
from ..tiles.run_packing import packed_by_run, packing_estimate
from ..tiles.taps import PADDED_SHARE, Taps, reaching_share, window_taps
from . import depthwise
from .conv import dense_images, is_plain, window
from .depthwise import DepthwisePlan, Lanes, StripSums, Tiling, around_tiles, emit_strips, lanes_of, widths_of


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """One, where windows cover much padding."""
    if not is_plain(node) or node.op.transposed or node.op.groups == 1:
        return
    block, rank = target.block, len(node.op.strides)
    axes, lanes, operands = _axes(node), lanes_of(node, block), operand_layouts(node, block)
    if axes is None or lanes is None or operands is None or reaching_share(axes) > PADDED_SHARE:
        return
    halo = 0, axes[1].over(_widths(node, target, lanes)[0])
    yield Offer(
        _estimate(node, target, axes, lanes) + packing_estimate(node, target),
        Tiling(1, by_lines=True),
        (halo_layout(halo, block, rank), None, *operands),
        without_halo(block, rank),
        (1, *packed_operands(node)),
    )


def _axes(node: Node[Conv]) -> tuple[Taps, Taps] | None:
    """None of a column of pixels, too, whose rows are those of no tile."""
    x, out, win = dense_images(node)
    return window_taps(x, out, win) if win == window(node) else None


def used_share(node: Node[Conv]) -> float:
    """Of all pixels' taps those that reach the image."""
    return reaching_share(_axes(node))


def multiplied(node: Node[Conv], choice: Choice, target: Target) -> Multiplied:
    return Multiplied(used_share(node))


def _widths(node: Node[Conv], target: Target, lanes: Lanes) -> tuple[int, ...]:
    """Pixels of a tile: all their sums are open."""
    return widths_of(target, window(node).taps * lanes.inside, dense_images(node)[1].width, by_lines=True)


def _estimate(node: Node[Conv], target: Target, axes: tuple[Taps, Taps], lanes: Lanes) -> Estimate:
    """The taps of all tiles, their ends, the epilogue, and moving everything once."""
    out, sums = node.outputs[0].tensor, node.op.accumulate
    (down, across), columns = (t.reckoned() for t in axes), _widths(node, target, lanes)[0]
    columns = min(columns, across.length)
    blocks = -(-dims.number(out.shape[1]) // lanes.block)
    pixels = dims.typical(dims.product((out.shape[0], *out.shape[2:])))
    images = blocks * pixels / (down.length * across.length)  # of the size that is reckoned with
    tiles, taps = down.length * -(-across.length // columns), down.used(1) * across.used(columns)
    registers, shuffled = target.registers(sums, lanes.block), 0 if lanes.plain else lanes.inside * columns
    products = columns * lanes.inside
    step = costs.step_time(
        target,
        products * registers,
        (columns + lanes.inside) * registers,
        columns * registers,
        (columns + shuffled) * registers,
    )
    found = Estimate(compute=step * taps * images)
    found += costs.overhead(target, costs.DEPTHWISE_TILE * 2 * tiles * images)
    return found + around_tiles(target, node)


pack = depthwise.pack


@dataclass(frozen=True)
class PaddedPlan(DepthwisePlan):
    """A plan whose strips are told which rows of taps they use, %top to %bottom."""

    axes: tuple[Taps, Taps] = field(kw_only=True)

    strip_parameters: ClassVar[tuple[str, ...]] = ("i64 %top", "i64 %bottom")

    def strip_words(self, f: KernelFunction, y: str) -> list[str]:
        return [f"i64 {word}" for word in self.axes[0].reach(f, y, 1)]


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    x, out, win = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor), window(node)
    lanes, axes = offered(lanes_of(node, out.block), node), offered(_axes(node), node)
    widths = _widths(node, target, lanes)
    plan = PaddedPlan(x, out, win, Epilogue(node, out.block), lanes, 1, widths, axes=axes)
    code = emit_strips(plan, target, choice.cost, PaddedStrip)
    return packed_by_run(node, code, target, plan.weight_bytes, [plan.run_panels])


class PaddedStrip(StripSums):
    """The function of a strip at work."""

    plan: PaddedPlan

    def tile(self, width: int, column: str) -> None:
        """`width` columns from one on: their sums go through the taps that are used."""
        f, plan, win, x = self.f, self.plan, self.plan.window, self.plan.x
        first = f.offset("%a", f.mul(column, win.strides[1] * x.pixel))
        left, right = plan.axes[1].reach(f, column, width)
        with f.loop("%top", "%bottom", 1, [(self.kind, self.initial)] * width) as lines:
            line = f.offset(first, f.mul(lines.index, f.size(x.row * win.dilations[0])))
            with f.loop(left, right, 1, [(self.kind, state) for state in lines.carried]) as columns:
                tap = f.add(f.mul(lines.index, win.kernel[1]), columns.index)
                self.panel = f.offset("%b", f.mul(tap, plan.lanes.inside * self.size))
                here = f.offset(line, f.mul(columns.index, x.pixel * win.dilations[1]))
                columns.carry(*self._added(columns.carried, here))
            lines.carry(*columns.results)
        finished = self.finish[width].beginning(column)
        for pixel, state in enumerate(lines.results):
            finished.put(state, 0, 0, f.add(column, pixel))
        if not finished.by_lines:
            finished.rework((0, 1), column, width)

    def _added(self, states: Sequence[str], here: str) -> list[str]:
        """The sums of pixels with one tap more, that of the first of them being here."""
        f, plan = self.f, self.plan
        weights = [self.weight(channel) for channel in range(plan.lanes.inside)]
        found = []
        for pixel, state in enumerate(states):
            values = self.pixel(f.offset(here, pixel * plan.window.strides[1] * plan.x.pixel))
            for value, weight in zip(values, weights):
                state = fused(f, self.dtype, plan.out.block, value, weight, state)
            found.append(state)
        return found
