"""Grouped convolution of blocked images, for groups of any number of channels.

A panel of output channels belongs to one group, or to the few that meet in it. It sums over the
channels of just these groups; where they are several, the weights that join different groups are
zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import ClassVar

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Offer
from ..text.emitter import ENTRY
from ..tiles.blocked import halo_layout, without_halo
from ..tiles.blocked_epilogue import operand_layouts, pack_operand, packed_operands
from ..tiles.microkernel import Tile, most_rows
from ..tiles.panels import Panels, PanelTiling
from ..tiles.run_packing import RunPanels, packed_by_run, packing_estimate
from .conv import ConvPlan, emit_plan, is_plain, merged, nest, plan_of, taps, tile_estimate, window


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """One, with the panel width that wastes least on panels shared by groups."""
    if not is_plain(node) or node.op.transposed or node.op.groups == 1:
        return
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    block, halo, rank = target.block, window(node).halo, x.rank - 2
    operands = operand_layouts(node, block)
    if halo is None or operands is None:
        return
    blocks, wide = -(-dims.number(out.shape[1]) // block), target.registers(x.dtype, block)
    cost, vectors = min(
        ((_estimate(node, target, v), v) for v in range(1, min(blocks, 4) + 1)), key=lambda o: o[0].total
    )
    yield Offer(
        cost + packing_estimate(node, target),
        PanelTiling(vectors, most_rows(target, vectors * wide)),
        (halo_layout(halo, block, rank), None, *operands),
        without_halo(block, rank),
        (1, *packed_operands(node)),
    )


def channel_ranges(
    channels: int, outputs: int, groups: int, block: int, vectors: int
) -> list[tuple[int, int]]:
    """For each panel the input channels (first, beyond the last) of the groups that it belongs
    to."""
    inside, made, width = channels // groups, outputs // groups, block * vectors
    ranges = []
    for first in range(0, outputs, width):
        last = min(first + width, outputs) - 1
        ranges.append((first // made * inside, (last // made + 1) * inside))
    return ranges


def _ranges(node: Node[Conv], block: int, vectors: int) -> list[tuple[int, int]]:
    channels, outputs = (dims.number(v.shape[1]) for v in (node.inputs[0], node.outputs[0]))
    return channel_ranges(channels, outputs, node.op.groups, block, vectors)


def _estimate(node: Node[Conv], target: Target, vectors: int) -> Estimate:
    x, w, out = node.inputs[0].tensor, node.inputs[1].tensor, node.outputs[0].tensor
    wide = vectors * target.registers(x.dtype, target.block)
    rows = most_rows(target, wide)
    tiles = dims.typical(dims.product(out.shape[2:]) * out.shape[0]) / rows
    ranges = _ranges(node, target.block, vectors)
    depths = [(high - low) * dims.product(dims.numbers(w.shape[2:])) for low, high in ranges]
    each = costs.total(tile_estimate(target, depth, rows, wide) for depth in depths)
    moved = costs.traffic(target, node) + costs.stored(target, dims.number(w.nbytes))
    return each * tiles + costs.epilogue(target, node, x.dtype) + moved + costs.step(target)


def pack(node: Node[Conv], choice: Choice[PanelTiling], operand: int) -> Constant | None:
    """Weights as [panel][input block][tap][channel][vectors * block], only the channels of its
    range."""
    block, vectors = choice.block, choice.tiling.vectors
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, block)
    weights, ranges = node.inputs[1].data, _ranges(node, block, vectors)
    outputs = weights.shape[0]
    sizes = _panel_sizes(ranges, outputs, dims.product(weights.shape[2:]), block, vectors)

    def make() -> np.ndarray:
        array, width = weights.array, block * vectors
        parts = [
            _panel(array, node.op.groups, first, *span, block, width)
            for first, span in zip(range(0, outputs, width), ranges)
        ]
        return np.concatenate(parts)

    return Constant(weights.dtype, (sum(sizes),), make)


def _panel_sizes(
    ranges: Sequence[tuple[int, int]], outputs: int, taps: int, block: int, vectors: int
) -> list[int]:
    """Elements of each panel."""
    padded, width = -(-outputs // block) * block, block * vectors
    return [(high - low) * taps * min(width, padded - p * width) for p, (low, high) in enumerate(ranges)]


def _panel(
    weights: np.ndarray, groups: int, first: int, low: int, high: int, block: int, width: int
) -> np.ndarray:
    """The panel of output channels first.. over the input channels low..high-1."""
    made, inside = weights.shape[0] // groups, weights.shape[1]
    rows = weights[first : first + width].reshape(-1, inside, int(np.prod(weights.shape[2:])))
    lanes = -(-len(rows) // block) * block
    spread = np.zeros((high - low, rows.shape[2], lanes), weights.dtype)
    for lane, row in enumerate(rows):
        start = (first + lane) // made * inside - low
        spread[start : start + inside, :, lane] = row
    cuts = [*range(-(-(low + 1) // block) * block - low, high - low, block)]
    segments = np.split(spread, cuts)  # of the channels that share an input block
    return np.concatenate([s.swapaxes(0, 1).reshape(-1) for s in segments])


@dataclass(frozen=True)
class GroupedPlan(ConvPlan):
    """A plan whose panels sum over a range of input channels each."""

    groups: int = 1

    panel_parameters: ClassVar[tuple[str, ...]] = ("ptr noalias %b", "i64 %low", "i64 %high")

    @property
    def ranges(self) -> list[tuple[int, int]]:
        x, out = self.x, self.out
        return channel_ranges(x.channels, out.channels, self.groups, out.block, self.kinds[0].vectors)

    @property
    def weight_bytes(self) -> int:
        return sum(self._sizes()) * dtypes.itemsize(self.dtype)

    def _sizes(self) -> list[int]:
        out, vectors = self.out, self.kinds[0].vectors
        return _panel_sizes(self.ranges, out.channels, self.window.taps, out.block, vectors)

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        start, low, high = self.panel_place(f, panels, panel)
        return [f"ptr {f.offset(f.input(1), start)}", f"i64 {low}", f"i64 {high}"]

    def panel_place(self, f: KernelFunction, panels: Panels, panel: str) -> tuple[str, str, str]:
        sizes, size = self._sizes(), dtypes.itemsize(self.dtype)
        starts = [sum(sizes[:p]) * size for p in range(len(sizes))]
        table = [str(n) for start, span in zip(starts, self.ranges) for n in (start, *span)]
        entry = f.element(f.text.table("i64", table, f"{ENTRY}.panels"), f.add(panels.first, panel), 24)
        start, low, high = (f.load("i64", f.offset(entry, 8 * word), 8) for word in range(3))
        return start, low, high

    @property
    def run_panels(self) -> RunPanels:
        return replace(super().run_panels, groups=self.groups)

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int]
    ) -> list[str]:
        """Block by block of the input, over the lanes of it that are in the range."""
        x, block = self.x, self.x.block
        first, _ = f.divide("%low", block)
        last, _ = f.divide(f.add("%high", block - 1), block)
        whole = x.channels // self.groups % block == 0  # ranges are of whole blocks
        kinds = ["ptr", *[tile.vector] * len(sums)]
        with f.loop(first, last, 1, list(zip(kinds, ["%b", *sums]))) as loop:
            b, *values = loop.carried
            a = f.offset("%a", f.mul(loop.index, f.size(x.plane)))
            depth: int | str
            if whole:
                loops, depth = merged(taps(x, self.window), block, x.itemsize)
            else:
                base = f.mul(loop.index, block)
                lane = f.maximum(f.sub("%low", base), 0)
                a = f.offset(a, f.mul(lane, x.itemsize))
                loops = [loop_ for loop_ in taps(x, self.window) if loop_[0] != 1]
                depth = f.sub(f.minimum(f.sub("%high", base), block), lane)
            values, b = nest(f, tile, values, a, b, loops, depth, displacements)
            loop.carry(b, *values)
        return loop.results[1:]


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    plan = plan_of(node, target, choice.tiling)
    grouped = GroupedPlan(**{f.name: getattr(plan, f.name) for f in fields(ConvPlan)}, groups=node.op.groups)
    code = emit_plan(grouped, target, choice.cost)
    return packed_by_run(node, code, target, grouped.weight_bytes, [grouped.run_panels])
