"""Convolutions of bytes whose groups share a block, by the processor's dot products.

    one instruction adds `group` products to every lane: those of as many rows of the image, whose vectors are
    interleaved (depthwise), or of as many channels, picked from the block
Rows that a strip reads are interleaved once for all of its outputs; an output that reads only some of them
has zeros among its weights. Sums start from what the padding's zero point adds too much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Self

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Dot, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Offer, offered
from ..text.emitter import memory_type, scalar_type, vector_type
from ..text.shuffles import interleaved
from ..tiles.blocked import Image, Window, image_of, plane_axes, without_halo
from ..tiles.blocked_epilogue import (
    Epilogue,
    Finish,
    operand_layouts,
    oriented,
    pack_operand,
    packed_operands,
)
from ..tiles.channel_panels import bytes_of, in_groups, starts
from ..tiles.microkernel import dot_product, plus
from ..tiles.panel_operand import widened
from .conv import dot_of, padded_layout, window
from .depthwise import DepthwisePlan, Lanes, emit_strips, lanes_of, permuted, strip_rows, unrolls, widths_of

MOST_ROWS = 4  # of a strip
INTERLEAVE = 2  # shuffles of the rows of a group, beside what brings each row after the first

Tap = tuple[int, int, int] | None  # (row, column, channel of the group) of a weight; None: zero


@dataclass(frozen=True)
class Source:
    """A vector of one column of the image, as dot products read it: `rows` of a strip's input, or the
    channels from `group` * `chunk` on of one row. `uses`: (output row, window column, number of the weights'
    vector)."""

    rows: tuple[int, ...]
    chunk: int
    uses: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Arrangement:
    """What a strip reads, and the taps that each vector of weights has in a lane, one for each element of a
    group."""

    sources: tuple[Source, ...]
    taps: tuple[tuple[Tap, ...], ...]


def arranged(win: Window, lanes: Lanes, rows: int, group: int) -> Arrangement:
    """Over `rows` rows of the output."""
    (height, width), sy, dy = win.kernel, win.strides[0], win.dilations[0]
    read = sorted({y * sy + ky * dy for y in range(rows) for ky in range(height)})
    steps = [(tuple(read[k : k + group]), 0) for k in range(0, len(read), group)]
    if not lanes.plain:
        steps = [((row,), chunk) for row in read for chunk in range(-(-lanes.inside // group))]
    sources, numbers = [], dict[tuple[Tap, ...], int]()
    for lines, chunk in steps:
        uses = []
        for y, kx in product(range(rows), range(width)):
            at = [divmod(row - y * sy, dy) for row in lines]
            down = [ky if rest == 0 and 0 <= ky < height else None for ky, rest in at]
            taps: list[Tap] = [None if ky is None else (ky, kx, 0) for ky in down]
            if not lanes.plain:
                channels = range(group * chunk, min(lanes.inside, group * (chunk + 1)))
                taps = [] if down[0] is None else [(down[0], kx, channel) for channel in channels]
            if any(tap is not None for tap in taps):
                vector = (*taps, *[None] * (group - len(taps)))
                uses.append((y, kx, numbers.setdefault(vector, len(numbers))))
        sources.append(Source(lines, chunk, tuple(uses)))
    return Arrangement(tuple(sources), tuple(numbers))


def first_row(strip: Arrangement, win: Window) -> Arrangement:
    """What a strip's first row reads alone: rows behind, whose weights there are zeros, are the last one."""
    found = []
    for source in strip.sources:
        rows = tuple(min(row, win.extent[0] - 1) for row in source.rows)
        uses = tuple(use for use in source.uses if use[0] == 0)
        if uses:
            found.append(Source(rows, source.chunk, uses))
    return Arrangement(tuple(found), strip.taps)


# What is offered ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling:
    """`rows` output rows of a strip; `group`: products of a lane that one instruction adds up; `stored`: the
    type of weights, where that is wider than theirs."""

    rows: int
    group: int
    stored: str | None = None


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """One, for groups that divide a block of output channels and read no more than a block."""
    if not isinstance(node.op, Conv) or node.op.groups == 1:
        return
    dot = dot_of(node, target)
    if dot is None:
        return
    block, win = target.block, window(node)
    lanes, operands = lanes_of(node, block), operand_layouts(node, block)
    if lanes is None or win.halo is None or operands is None or not unrolls(win, lanes):
        return
    cost, rows = min(
        ((_estimate(node, target, win, lanes, dot, rows), rows) for rows in _heights(node)),
        key=lambda option: option[0].total,
    )
    yield Offer(
        cost,
        Tiling(rows, dot.group, dot.widened),
        (padded_layout(node, win.halo, block), None, *operands),
        without_halo(block, node.inputs[0].rank - 2),
        (1, *packed_operands(node)),
    )


def _heights(node: Node[Conv]) -> list[int]:
    """Of strips."""
    height = plane_axes(node.outputs[0].shape[2:], 1)[0]
    most = max(1, min(height, MOST_ROWS)) if isinstance(height, int) else MOST_ROWS
    return list(range(1, most + 1))


def _estimate(node: Node[Conv], target: Target, win: Window, lanes: Lanes, dot: Dot, rows: int) -> Estimate:
    """The tiles of all strips, the epilogue, and moving everything once."""
    out, strip = node.outputs[0].tensor, arranged(win, lanes, rows, dot.group)
    height, width = plane_axes(out.shape[2:], 1)
    columns = widths_of(target, len(strip.taps), width)[0]
    line = dims.typical(out.shape[0] * out.shape[1]) / lanes.block * -(-dims.typical(width) // columns)
    whole, left = divmod(dims.typical(height), rows)
    found = _tiles(target, win, strip, dot, rows, columns, whole * line)
    if left:
        found += _tiles(target, win, first_row(strip, win), dot, 1, columns, left * line)
    found += costs.stored(target, dims.number(node.inputs[1].tensor.nbytes))
    found += costs.epilogue(target, node, dot.accumulate)
    return found + costs.traffic(target, node) + costs.step(target)


def _tiles(
    target: Target, win: Window, strip: Arrangement, dot: Dot, rows: int, columns: int, count: float
) -> Estimate:
    """So many tiles of a strip."""
    span = (columns - 1) * win.strides[1] + win.extent[1]
    loads = span * sum(len(source.rows) for source in strip.sources)
    shuffles = loads + span * len(strip.sources) * (INTERLEAVE - 1)
    products = columns * sum(len(source.uses) for source in strip.sources)
    others = shuffles + rows * columns
    time = costs.step_time(target, products / costs.dot_rate(target, dot), loads, others=others)
    return Estimate(compute=time * count) + costs.overhead(target, costs.DEPTHWISE_TILE * count)


# Weights -----------------------------------------------------------------------------------------


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> Constant | None:
    """For each block of output channels what its sums start from, then its vectors of weights
    [lane][group]; as bytes."""
    block, group = choice.block, choice.tiling.group
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, block)
    weights, zero, strip = node.inputs[1].data, node.op.zero, _strip_of(node, choice)
    turned = strip.window.kernel != plane_axes(weights.shape[2:], 1)
    outputs, count = weights.shape[0], len(strip.arrangement.taps)
    stored = choice.tiling.stored or weights.dtype
    blocks = -(-outputs // block)

    def make() -> np.ndarray:
        taps = weights.array.reshape(*weights.shape[:2], *plane_axes(weights.shape[2:], 1))
        taps = taps.swapaxes(2, 3) if turned else taps
        start = np.zeros((blocks * block, 1), np.int32)
        start[:outputs, 0] = starts(taps, zero, "int32")
        vectors = np.zeros((blocks * block, count, group), taps.dtype)
        for number, element in np.ndindex(count, group):
            tap = strip.arrangement.taps[number][element]
            if tap is not None:
                ky, kx, channel = tap
                vectors[:outputs, number, element] = taps[:, channel, ky, kx]
        numbered = vectors.reshape(blocks, block, count, group).swapaxes(1, 2).reshape(-1, block, group)
        parts = start, in_groups(numbered, block, choice.tiling.stored)
        return np.concatenate([bytes_of(part).reshape(blocks, -1) for part in parts], axis=1)

    size = dtypes.itemsize(node.op.accumulate) + count * group * dtypes.itemsize(stored)
    return Constant("uint8", (blocks, block * size), make)


@dataclass(frozen=True)
class _Oriented:
    """The strips of a node as its images are oriented."""

    x: Image
    out: Image
    window: Window
    epilogue: Epilogue
    lanes: Lanes
    rows: int
    arrangement: Arrangement


def _strip_of(node: Node[Conv], choice: Choice[Tiling]) -> _Oriented:
    x, out = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor)
    lanes = offered(lanes_of(node, out.block), node)
    x, out, win, epilogue = oriented(x, out, window(node), Epilogue(node, out.block))
    rows = strip_rows(out, choice.tiling.rows)
    return _Oriented(x, out, win, epilogue, lanes, rows, arranged(win, lanes, rows, choice.tiling.group))


# Code --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DotPlan(DepthwisePlan):
    """A plan whose products are those of `dot`, as `strip` arranges them."""

    dot: Dot
    strip: Arrangement

    def of_single_rows(self) -> Self:
        return replace(self, rows=1, strip=first_row(self.strip, self.window))

    @property
    def start_bytes(self) -> int:
        return self.out.block * dtypes.itemsize(self.dot.accumulate)

    @property
    def vector_bytes(self) -> int:
        return self.out.block * self.dot.group * dtypes.itemsize(self.dot.stored)

    @property
    def block_bytes(self) -> int:
        return self.start_bytes + len(self.strip.taps) * self.vector_bytes


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    o, dot = _strip_of(node, choice), offered(dot_of(node, target), node)
    widths = widths_of(target, len(o.arrangement.taps), o.out.width)
    plan = DotPlan(o.x, o.out, o.window, o.epilogue, o.lanes, o.rows, widths, dot, o.arrangement)
    return emit_strips(plan, target, choice.cost, _Strip)


class _Strip:
    """The function of a strip at work: where sums start, weights that stay in registers, lines."""

    def __init__(self, f: KernelFunction, plan: DotPlan):
        self.f, self.plan = f, plan
        block, dot, size = plan.out.block, plan.dot, plan.start_bytes
        sums = vector_type(scalar_type(dot.accumulate), block)
        start, (bias,) = f.load(sums, "%b", min(64, size)), plan.epilogue.start(f, 1)
        self.start = start if bias == "zeroinitializer" else plus(f, dot.accumulate, block, start, bias)
        self.kind = vector_type(memory_type(dot.stored), block * dot.group)
        count = len(plan.strip.taps)
        open_ = plan.rows * -(-plan.window.extent[1] // plan.window.strides[1])
        resident = count + open_ + dot.group + 4 < f.target.vector_registers
        self.weights = [self.weight(k) for k in range(count)] if resident else None
        self.finish = {w: Finish(plan.epilogue, f, plan.out, 1, (plan.rows, w)) for w in plan.widths}
        lines = {row for source in plan.strip.sources for row in source.rows}
        self.lines = {row: f.offset("%a", f.size(row * plan.x.row)) for row in lines}

    def weight(self, number: int) -> str:
        plan, size = self.plan, self.plan.vector_bytes
        return self.f.load(self.kind, self.f.offset("%b", plan.start_bytes + number * size), min(64, size))

    def tile(self, width: int, column: str) -> None:
        """`width` columns from one on."""
        f, plan, win = self.f, self.plan, self.plan.window
        step, dilation = win.strides[1], win.dilations[1]
        base = f.mul(column, step * plan.x.pixel)
        at = {row: f.offset(line, base) for row, line in self.lines.items()}
        finished = self.finish[width].beginning(column)
        reads: dict[int, list[tuple[int, int]]] = {}
        for x, kx in product(range(width), range(win.kernel[1])):
            reads.setdefault(x * step + kx * dilation, []).append((x, kx))
        left = [sum(y == row for s in plan.strip.sources for row, _, _ in s.uses) for y in range(plan.rows)]
        sums, todo = dict[tuple[int, int], str](), dict[tuple[int, int], int]()
        whole: list[list[str]] = [[] for _ in range(plan.rows)]  # sums of each row that are not put yet
        for ix in sorted(reads):
            for source in plan.strip.sources:
                value = self.load(at, source, ix)
                for (x, kx), (y, column_of, number) in product(reads[ix], source.uses):
                    if kx != column_of:
                        continue
                    sums[y, x] = self.plus_products(sums.get((y, x), self.start), value, number)
                    todo[y, x] = todo.get((y, x), left[y]) - 1
                    if todo[y, x]:
                        continue
                    whole[y].append(sums.pop((y, x)))
                    if len(whole[y]) == finished.together or x == width - 1:
                        finished.put_line(whole[y], 0, y, f.add(column, x + 1 - len(whole[y])))
                        whole[y] = []
        finished.rework((0, plan.rows), column, width)

    def end(self, start: str, stop: str) -> None:
        pass  # each tile is finished by itself

    def plus_products(self, total: str, value: str, number: int) -> str:
        weights = self.weights[number] if self.weights else self.weight(number)
        return dot_product(self.f, self.plan.dot, self.plan.out.block, value, weights, total)

    def load(self, at: dict[int, str], source: Source, ix: int) -> str:
        """The operand of dot products that a source gives in one column."""
        f, x, lanes, group = self.f, self.plan.x, self.plan.lanes, self.plan.dot.group
        kind, align = vector_type(memory_type(x.dtype), lanes.span), min(64, lanes.span * x.itemsize)
        values = [f.load(kind, f.offset(at[row], ix * x.pixel), align) for row in source.rows]
        if lanes.plain:
            absent = ["zeroinitializer"] * (group - len(values))
            return self.widened(interleaved(f, [*values, *absent], lanes.block, kind))
        first = source.chunk * group
        places = [
            lane // lanes.made * lanes.inside + min(first + k, lanes.inside - 1)
            for lane in range(lanes.block)
            for k in range(group)
        ]
        return self.widened(permuted(f, kind, values[0], places))

    def widened(self, value: str) -> str:
        """An operand of dot products as these take it."""
        dot = self.plan.dot
        wide = dot.stored if dot.widened and dot.group == 1 else dot.lhs
        return widened(self.f, value, dot.lhs, wide, self.plan.out.block * dot.group)
