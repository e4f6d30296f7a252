"""Grouped convolution of blocked images, for groups of any number of channels.

A panel of output channels belongs to one group, or to the few that meet in it. It sums over the
channels of just these groups; where they are several, the weights that join different groups are
zeros. For dot products a range is of whole groups of theirs.
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
from ..kernel import Choice, Code, KernelFunction, Offer, nearest
from ..text.emitter import ENTRY
from ..tiles.blocked import without_halo
from ..tiles.blocked_epilogue import operand_layouts, pack_operand, packed_operands
from ..tiles.microkernel import Tile, most_rows
from ..tiles.panel import Panel
from ..tiles.panels import Panels, PanelTiling, bytes_of, in_groups
from ..tiles.run_packing import RunPanels, packed_by_run, packing_estimate
from ..tiles.window_sums import merged, nest, taps
from .conv import ConvPlan, dot_of, emit_plan, is_summed, padded_layout, plan_of, tile_estimate, window


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """Those panel widths that waste least on panels shared by groups."""
    if not is_summed(node, target) or node.op.transposed or node.op.groups == 1:
        return
    out, sums, dot = node.outputs[0].tensor, node.op.accumulate, dot_of(node, target)
    block, halo, rank = target.block, window(node).halo, out.rank - 2
    operands = operand_layouts(node, block)
    if halo is None or operands is None:
        return
    blocks, wide = -(-dims.number(out.shape[1]) // block), target.registers(sums, block)
    for cost, vectors in nearest((_estimate(node, target, v), v) for v in range(1, min(blocks, 4) + 1)):
        yield Offer(
            cost + packing_estimate(node, target),
            PanelTiling(
                vectors,
                most_rows(target, vectors * wide, dot),
                group=None if dot is None else dot.group,
                stored=None if dot is None else dot.widened,
            ),
            (padded_layout(node, halo, block), None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )


def channel_ranges(
    channels: int, outputs: int, groups: int, block: int, vectors: int, together: int = 1
) -> list[tuple[int, int]]:
    """For each panel the input channels (first, beyond the last) of the groups that it belongs
    to, and what makes them multiples of `together`."""
    inside, made, width = channels // groups, outputs // groups, block * vectors
    ranges = []
    for first in range(0, outputs, width):
        last = min(first + width, outputs) - 1
        low, high = first // made * inside, (last // made + 1) * inside
        ranges.append((low - low % together, high + -high % together))
    return ranges


def _ranges(node: Node[Conv], block: int, vectors: int, group: int | None) -> list[tuple[int, int]]:
    channels, outputs = (dims.number(v.shape[1]) for v in (node.inputs[0], node.outputs[0]))
    return channel_ranges(channels, outputs, node.op.groups, block, vectors, group or 1)


def _estimate(node: Node[Conv], target: Target, vectors: int) -> Estimate:
    w, out, sums, dot = (
        node.inputs[1].tensor,
        node.outputs[0].tensor,
        node.op.accumulate,
        dot_of(node, target),
    )
    wide, group = vectors * target.registers(sums, target.block), 1 if dot is None else dot.group
    rows = most_rows(target, wide, dot)
    tiles = dims.typical(dims.product(out.shape[2:]) * out.shape[0]) / rows
    ranges = _ranges(node, target.block, vectors, group)
    depths = [(high - low) // group * dims.product(dims.numbers(w.shape[2:])) for low, high in ranges]
    each = costs.total(tile_estimate(target, depth, rows, wide) for depth in depths)
    moved = costs.traffic(target, node) + costs.stored(target, dims.number(w.nbytes))
    return each * tiles + costs.epilogue(target, node, sums) + moved + costs.step(target)


def pack(node: Node[Conv], choice: Choice[PanelTiling], operand: int) -> Constant | None:
    """Weights as [panel][input block][tap][channel][vectors * block], only the channels of its
    range; for dot products as `panels.in_dot_panels` has them, in bytes."""
    block, vectors, group = choice.block, choice.tiling.vectors, choice.tiling.group
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, block)
    weights, ranges = node.inputs[1].data, _ranges(node, block, vectors, group)
    stored = choice.tiling.stored or weights.dtype
    outputs, taps = weights.shape[0], dims.product(weights.shape[2:])
    sizes = _panel_sizes(ranges, outputs, taps, block, vectors)

    def panels() -> Iterator[np.ndarray]:
        array, width = weights.array, block * vectors
        for first, span in zip(range(0, outputs, width), ranges):
            panel = _panel(array, node.op.groups, first, *span, block, width)
            if group is None:
                yield panel.reshape(-1)
                continue
            start = panel.sum(axis=0, dtype=np.int32) * np.int32(-node.op.zero)
            grouped = panel.reshape(-1, group, panel.shape[1]).swapaxes(1, 2)
            yield bytes_of(start)
            yield bytes_of(in_groups(grouped, block, choice.tiling.stored))

    if group is None:
        return Constant(weights.dtype, (sum(sizes),), lambda: np.concatenate([*panels()]))
    starts = -(-outputs // block) * block * dtypes.itemsize(node.op.accumulate)
    return Constant(
        "uint8", (sum(sizes) * dtypes.itemsize(stored) + starts,), lambda: np.concatenate([*panels()])
    )


def _panel_sizes(
    ranges: Sequence[tuple[int, int]], outputs: int, taps: int, block: int, vectors: int
) -> list[int]:
    """Elements of each panel."""
    padded, width = -(-outputs // block) * block, block * vectors
    return [(high - low) * taps * min(width, padded - p * width) for p, (low, high) in enumerate(ranges)]


def spread_groups(
    weights: np.ndarray, groups: int, first: int, low: int, high: int, width: int
) -> np.ndarray:
    """The weights of output channels first..first + width - 1 over the input channels low..high - 1, as
    [channel, tap, output]: zeros where they are of different groups, or there is none."""
    made, inside = weights.shape[0] // groups, weights.shape[1]
    rows = weights[first : first + width].reshape(-1, inside, int(np.prod(weights.shape[2:])))
    spread = np.zeros((high - low, rows.shape[2], width), weights.dtype)
    for lane, row in enumerate(rows):
        start = (first + lane) // made * inside - low
        spread[start : start + inside, :, lane] = row
    return spread


def _panel(
    weights: np.ndarray, groups: int, first: int, low: int, high: int, block: int, width: int
) -> np.ndarray:
    """The panel of output channels first.. over the input channels low..high-1, [depth, lanes]."""
    lanes = min(width, -(-(weights.shape[0] - first) // block) * block)
    spread = spread_groups(weights, groups, first, low, high, lanes)
    cuts = [*range(-(-(low + 1) // block) * block - low, high - low, block)]
    segments = np.split(spread, cuts)  # of the channels that share an input block
    return np.concatenate([s.swapaxes(0, 1).reshape(-1, lanes) for s in segments])


@dataclass(frozen=True)
class GroupedPlan(ConvPlan):
    """A plan whose panels sum over a range of input channels each."""

    groups: int = 1

    panel_parameters: ClassVar[tuple[str, ...]] = ("ptr noalias %b", "i64 %low", "i64 %high")

    @property
    def ranges(self) -> list[tuple[int, int]]:
        x, out = self.x, self.out
        together = 1 if self.dot is None else self.dot.group
        return channel_ranges(
            x.channels, out.channels, self.groups, out.block, self.kinds[0].vectors, together
        )

    @property
    def weight_bytes(self) -> int:
        return sum(self._sizes())

    def _sizes(self) -> list[int]:
        """Bytes of each panel."""
        out, vectors = self.out, self.kinds[0].vectors
        counts = _panel_sizes(self.ranges, out.channels, self.window.taps, out.block, vectors)
        if self.dot is None:
            return [count * dtypes.itemsize(self.dtype) for count in counts]
        widths = [p.width for p in self.kinds for _ in range(p.count)]
        start = dtypes.itemsize(self.dtype)
        return [
            count * dtypes.itemsize(self.dot.stored) + width * start for count, width in zip(counts, widths)
        ]

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        start, low, high = self.panel_place(f, panels, panel)
        return [f"ptr {f.offset(f.input(1), start)}", f"i64 {low}", f"i64 {high}"]

    def panel_place(self, f: KernelFunction, panels: Panels, panel: str) -> tuple[str, str, str]:
        sizes = self._sizes()
        starts = [sum(sizes[:p]) for p in range(len(sizes))]
        table = [str(n) for start, span in zip(starts, self.ranges) for n in (start, *span)]
        entry = f.element(f.text.table("i64", table, f"{ENTRY}.panels"), f.add(panels.first, panel), 24)
        start, low, high = (f.load("i64", f.offset(entry, 8 * word), 8) for word in range(3))
        return start, low, high

    @property
    def run_panels(self) -> RunPanels:
        return replace(super().run_panels, groups=self.groups)

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        """Block by block of the input, over the lanes of it that are in the range."""
        x, block = self.x, self.x.block
        sums, panel = self.started(f, tile, sums, panel)
        first, _ = f.divide("%low", block)
        last, _ = f.divide(f.add("%high", block - 1), block)
        whole = x.channels // self.groups % block == 0  # ranges are of whole blocks
        kinds = ["ptr", *[tile.vector] * len(sums)]
        with f.loop(first, last, 1, list(zip(kinds, [panel.pointer, *sums]))) as loop:
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
            values, after = nest(f, tile, values, a, Panel(b), loops, depth, displacements)
            loop.carry(after.pointer, *values)
        return loop.results[1:]


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    plan = plan_of(node, target, choice.tiling)
    grouped = GroupedPlan(**{f.name: getattr(plan, f.name) for f in fields(ConvPlan)}, groups=node.op.groups)
    code = emit_plan(grouped, target, choice.cost)
    return packed_by_run(node, code, target, grouped.weight_bytes, [grouped.run_panels])
