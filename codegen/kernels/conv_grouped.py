"""Grouped convolution of blocked images, for groups of any number of channels (`tiles/grouped.py`).

A tile sums over the channels of its panel's groups, block by block. For 1x1 windows it reads each channel
where a table says: those that begin inside a block, or are shuffled before (`passes/fuse_shuffles.py`). For
dot products a range is of whole groups of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import LINE, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Offer, nearest
from ..text.emitter import ENTRY
from ..text.memory import first_lanes
from ..tiles.blocked import without_halo
from ..tiles.blocked_epilogue import operand_layouts, pack_operand, packed_operands
from ..tiles.channel_panels import Panels, PanelTiling, bytes_of, in_groups
from ..tiles.conv_plan import ConvPlan, emit_plan, extended, tile_estimate
from ..tiles.grouped import GroupedPanel, Grouping, convolution, grouping
from ..tiles.microkernel import Tile, fixed_rows, most_rows, multiply_add, multiply_add_beside, waits
from ..tiles.panel_operand import Panel, prefetch_line
from ..tiles.run_packing import RunPanels, packed_by_run, packing_estimate
from ..tiles.window_sums import merged, nest, taps
from .conv import dot_of, is_summed, padded_layout, plan_of, window

ENTRY_WORDS = 6  # of a panel in the table of panels


# What is offered ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupedTiling(PanelTiling):
    """`beside`: lanes of a vector may have channels of two groups."""

    beside: bool = False


def candidates(node: Node, target: Target) -> Iterator[Offer[GroupedTiling]]:
    """Those panel widths that waste least on panels shared by groups."""
    conv = convolution(node)
    if not is_summed(conv, target) or conv.op.transposed or conv.op.groups == 1:
        return
    out, sums, dot = conv.outputs[0].tensor, conv.op.accumulate, dot_of(conv, target)
    if conv is not node and (dot is not None or not _is_pointwise(conv)):
        return
    block, halo, rank = target.block, window(conv).halo, out.rank - 2
    operands = operand_layouts(conv, block)
    if halo is None or operands is None:
        return
    blocks, wide = -(-dims.number(out.shape[1]) // block), target.registers(sums, block)
    for cost, vectors in nearest((_estimate(node, target, v), v) for v in range(1, min(blocks, 4) + 1)):
        yield Offer(
            cost + packing_estimate(conv, target),
            GroupedTiling(
                vectors,
                most_rows(target, vectors * wide, dot),
                group=None if dot is None else dot.group,
                stored=None if dot is None else dot.widened,
                beside=_is_beside(conv, target),
            ),
            (padded_layout(conv, halo, block), None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(conv)),
        )


def _is_pointwise(conv: Node[Conv]) -> bool:
    return set(conv.inputs[1].shape[2:]) == {1}


def _is_beside(conv: Node[Conv], target: Target) -> bool:
    """Whether lanes of a vector may have channels of two groups: where a mask chooses at no cost."""
    known = conv.inputs[1].constant is not None and dot_of(conv, target) is None
    return known and target.masked and _is_pointwise(conv)


def _estimate(node: Node[Any], target: Target, vectors: int) -> Estimate:
    conv = convolution(node)
    w, out, sums, dot = (
        conv.inputs[1].tensor,
        conv.outputs[0].tensor,
        conv.op.accumulate,
        dot_of(conv, target),
    )
    wide, group = target.registers(sums, target.block), 1 if dot is None else dot.group
    rows = most_rows(target, vectors * wide, dot)
    tiles = dims.typical(dims.product(out.shape[2:]) * out.shape[0]) / rows
    windows = dims.product(dims.numbers(w.shape[2:]))
    cut = grouping(node, target.block, vectors, None if dot is None else group, _is_beside(conv, target))
    each = costs.total(
        tile_estimate(target, p.depth // group * windows * p.step, rows, p.vectors * wide, dot)
        for p in cut.panels
    )
    moved = costs.traffic(target, conv) + costs.stored(target, dims.number(w.nbytes))
    return each * tiles + costs.epilogue(target, conv, sums) + moved + costs.step(target)


# Weights -----------------------------------------------------------------------------------------


def pack(node: Node[Any], choice: Choice[GroupedTiling], operand: int) -> Constant | None:
    """Weights as [panel][input block][tap][channel][vectors * block], only the channels of its
    range; for dot products as `panels.in_dot_panels` has them, in bytes."""
    block, vectors, group = choice.block, choice.tiling.vectors, choice.tiling.group
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, block)
    weights, zero = node.inputs[1].data, convolution(node).op.zero
    cut = grouping(node, block, vectors, group, choice.tiling.beside)
    stored = choice.tiling.stored or weights.dtype
    size = sum(_elements(panel, dims.product(weights.shape[2:]), block) for panel in cut.panels)

    def panels() -> Iterator[np.ndarray]:
        for each in cut.panels:
            panel = _panel(weights.array, cut, each, block)
            if group is None:
                yield panel.reshape(-1)
                continue
            start = panel.sum(axis=0, dtype=np.int32) * np.int32(-zero)
            grouped = panel.reshape(-1, group, panel.shape[1]).swapaxes(1, 2)
            yield bytes_of(start)
            yield bytes_of(in_groups(grouped, block, choice.tiling.stored))

    if group is None:
        return Constant(weights.dtype, (size,), lambda: np.concatenate([*panels()]))
    starts = -(-weights.shape[0] // block) * block * dtypes.itemsize(convolution(node).op.accumulate)
    nbytes = size * dtypes.itemsize(stored) + starts
    return Constant("uint8", (nbytes,), lambda: np.concatenate([*panels()]))


def _elements(panel: GroupedPanel, windows: int, block: int) -> int:
    """Of a panel's weights, windows having so many taps."""
    return panel.depth * windows * panel.vectors * block


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


def _panel(weights: np.ndarray, cut: Grouping, panel: GroupedPanel, block: int) -> np.ndarray:
    """The weights of a panel, [depth, lanes]."""
    low, high, lanes = panel.low, panel.high, panel.vectors * block
    spread = spread_groups(weights, cut.groups, panel.block * block, low, high, lanes)
    if panel.border:  # a lane has weights of its own group alone
        return spread.reshape(panel.groups, panel.depth, lanes).sum(0)
    if cut.picked:
        return spread[np.argsort(cut.order[low:high])].reshape(-1, lanes)
    cuts = [*range(-(-(low + 1) // block) * block - low, high - low, block)]
    segments = np.split(spread, cuts)  # of the channels that share an input block
    return np.concatenate([s.swapaxes(0, 1).reshape(-1, lanes) for s in segments])


# Code --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupedPlan(ConvPlan):
    """A plan whose panels sum over a range of input channels each."""

    cut: Grouping = field(kw_only=True)

    panel_parameters: ClassVar[tuple[str, ...]] = ("ptr noalias %b", "i64 %low", "i64 %high")

    @cached_property
    def starts(self) -> list[int]:
        """Where the weights of each panel begin, in bytes, and where the last end."""
        found, start = [0], 0 if self.dot is None else dtypes.itemsize(self.dtype)
        item = dtypes.itemsize(self.dtype if self.dot is None else self.dot.stored)
        for panel in self.cut.panels:
            elements = _elements(panel, self.window.taps, self.out.block)
            found.append(found[-1] + elements * item + panel.vectors * self.out.block * start)
        return found

    @property
    def weight_bytes(self) -> int:
        return self.starts[-1]

    def table(self, f: KernelFunction) -> str:
        """Of each panel: where its weights begin, its channels, its first block, where its channels begin
        in the table of those that are picked, and its border."""
        words, channels = [], 0
        for start, panel in zip(self.starts, [*self.cut.panels, GroupedPanel(0, 0, 0, 0)]):
            words += [start, panel.low, panel.high, panel.block, channels, panel.border]
            channels += panel.high - panel.low
        return f.text.table("i64", list(map(str, words)), f"{ENTRY}.panels")

    def word(self, f: KernelFunction, panels: Panels, panel: str, number: int) -> str:
        """A word of the panel-th panel of its kind."""
        entry = f.element(self.table(f), f.add(panels.first, panel), 8 * ENTRY_WORDS)
        return f.load("i64", f.offset(entry, 8 * number), 8)

    def first_block(self, f: KernelFunction, panels: Panels, panel: str) -> str:
        return self.word(f, panels, panel, 3)

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        start, low, high = self.panel_place(f, panels, panel)
        return [f"ptr {f.offset(f.input(1), start)}", f"i64 {low}", f"i64 {high}"]

    def panel_place(self, f: KernelFunction, panels: Panels, panel: str) -> tuple[str, str, str]:
        start, low, high = (self.word(f, panels, panel, number) for number in range(3))
        return start, low, high

    @property
    def column_bytes(self) -> int:
        """Of the weights that one sum is made with, at most."""
        return max(p.depth for p in self.cut.panels) * self.window.taps * dtypes.itemsize(self.dtype)

    @property
    def steps(self) -> int:
        """Of a tile, at least."""
        return min(p.depth for p in self.cut.panels) * self.window.taps

    def next_panel(self, f: KernelFunction, panels: Panels, panel: str) -> str:
        """Where the weights of the next panel begin."""
        return self.word(f, panels, f.add(panel, 1), 0)

    @property
    def run_panels(self) -> RunPanels:
        firsts = tuple(panel.block for panel in self.cut.panels)
        return replace(super().run_panels, groups=self.cut.groups, firsts=firsts)

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        """Block by block of the input, over the lanes of it that are in the range."""
        x, block = self.x, self.x.block
        sums, panel = self.started(f, tile, sums, panel)
        first, _ = f.divide("%low", block)
        last, _ = f.divide(f.add("%high", block - 1), block)
        whole = x.channels // self.cut.groups % block == 0  # ranges are of whole blocks
        kinds = [*["ptr"] * len(panel.pointers), *[tile.vector] * len(sums)]
        with f.loop(first, last, 1, list(zip(kinds, [*panel.pointers, *sums]))) as loop:
            here, values = loop.carried[: len(panel.pointers)], loop.carried[len(panel.pointers) :]
            a = f.offset("%a", f.mul(loop.index, f.size(x.plane)))
            self._fetch(f, a, displacements)
            depth: int | str
            if whole:
                loops, depth = merged(taps(x, self.window), block, x.itemsize)
            else:
                base = f.mul(loop.index, block)
                lane = f.maximum(f.sub("%low", base), 0)
                a = f.offset(a, f.mul(lane, x.itemsize))
                loops = [loop_ for loop_ in taps(x, self.window) if loop_[0] != 1]
                depth = f.sub(f.minimum(f.sub("%high", base), block), lane)
            values, after = nest(f, tile, values, a, panel.at(here), loops, depth, displacements)
            loop.carry(*after.pointers, *values)
        return loop.results[len(panel.pointers) :]

    def _fetch(self, f: KernelFunction, a: str, displacements: Sequence[int]) -> None:
        """Asks for the lines of a block of channels that the tile below reads and this one does not: where
        windows move by several rows processors do not by themselves, and few multiply-adds wait for each."""
        (height, width), (down, _) = self.window.kernel, self.window.strides
        x, (further, across) = self.x, self.window.dilations
        held = dims.typical(x.batch * x.image) <= f.target.facts.level2_bytes
        if down == 1 or held:
            return
        first, *_, last = [0, *displacements[: len(displacements) // self.rows]]
        behind = last + ((width - 1) * across + 1) * x.pixel
        for row in range(down * self.rows):
            line = f.offset(a, f.size(x.row * ((height - 1) * further + 1 + row)))
            for place in range(first, behind, LINE):
                prefetch_line(f, f.offset(line, place), level=1)


@dataclass(frozen=True)
class PickingPlan(GroupedPlan):
    """A plan of 1x1 windows whose tiles read each channel where a table says."""

    panel_parameters: ClassVar[tuple[str, ...]] = (
        "ptr noalias %b",
        "ptr noalias %picked",
        "i64 %depth",
        "i64 %border",
    )

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        start, low, high = self.panel_place(f, panels, panel)
        depth, border = f.divide(f.sub(high, low), panels.groups)[0], self.word(f, panels, panel, 5)
        channels = [c for each in self.cut.panels for c in self.cut.channels(each)]
        table = f.text.table("i64", [str(self._entry(c)) for c in channels], f"{ENTRY}.channels")
        first = f.element(table, self.word(f, panels, panel, 4), 8)
        packed = f.offset(self.packed(f), start)
        return [f"ptr {packed}", f"ptr {first}", f"i64 {depth}", f"i64 {border}"]

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        x, groups = self.x, tile.groups
        kinds = [*["ptr"] * len(panel.pointers), *[tile.vector] * len(sums)]
        lower = first_lanes(f, "%border", tile.lanes) if groups > 1 else None
        with f.loop(0, "%depth", 1, list(zip(kinds, [*panel.pointers, *sums]))) as loop:
            here, picked = panel.at(loop.carried[: len(panel.pointers)]), f.mul(loop.index, groups)
            words = [f.load("i64", f.element("%picked", f.add(picked, g), 8), 8) for g in range(groups)]
            rows = [
                fixed_rows(f.offset("%a", self._place(f, word)), displacements, x.itemsize) for word in words
            ]
            values = loop.carried[len(panel.pointers) :]
            if lower is None:
                values = multiply_add(f, tile, values, rows[0], here, 1)
            else:
                values = multiply_add_beside(f, tile, values, rows[0], rows[1], lower, here)
            loop.carry(*here.after(f, 1, tile.panel_step).pointers, *values)
        return loop.results[len(panel.pointers) :]

    def _entry(self, channel: int) -> int:
        """Of the table: where a channel of a pixel lies, or the channel if only the run can tell."""
        block, lane = divmod(channel, self.x.block)
        return block * self.x.plane + lane * self.x.itemsize if isinstance(self.x.plane, int) else channel

    def _place(self, f: KernelFunction, entry: str) -> str:
        if isinstance(self.x.plane, int):
            return entry
        block, lane = f.divide(entry, self.x.block)
        return f.add(f.mul(block, f.size(self.x.plane)), f.mul(lane, self.x.itemsize))


def emit(node: Node[Any], choice: Choice[GroupedTiling], target: Target) -> Code:
    conv = convolution(node)
    plan = plan_of(conv, target, choice.tiling)
    tiling = choice.tiling
    cut = grouping(node, choice.block, tiling.vectors, tiling.group, tiling.beside)
    kind = PickingPlan if cut.picked else GroupedPlan
    grouped = extended(plan, kind, kinds=cut.kinds(choice.block), cut=cut)
    fetched = grouped.dot is None and not grouped.once and waits(target)
    grouped = replace(grouped, fetched=fetched)
    code = emit_plan(grouped, target, choice.cost)
    return packed_by_run(conv, code, target, grouped.weight_bytes, [grouped.run_panels])
