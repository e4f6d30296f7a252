"""The sums of a register tile over the taps of a window and the channels of a blocked image: loops around the
multiply-adds, of which those that continue each other in memory are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir import dtypes
from ...ir.dims import Dimension
from ...target import LINE
from ..kernel import KernelFunction
from .blocked import Image, Window
from .microkernel import Tile, chains_for, fetched_ahead, fixed_rows, multiply_add, streams_for
from .panel_operand import Panel, prefetch_line
from .strides import continues


def accumulate(
    f: KernelFunction,
    x: Image,
    window: Window,
    tile: Tile,
    sums: list[str],
    displacements: Sequence[int],
    panel: Panel,
    once: bool = False,
    beyond: Dimension | None = None,
    blocks: tuple[str, str] | None = None,
) -> list[str]:
    """sums and the products of all taps and channels with the panel, of pixels that lie at
    `displacements` from %a. The last group of channels may reach over the last, where weights are 0. once:
    no other tile reads the panel. beyond: how far behind them the pixels lie that are read next, which come
    from as many places as there are blocks of channels, too many for what processors fetch by themselves.
    blocks: of channels, from the first to behind the last, those that are added; None: all."""
    if window.taps == 0:
        return sums
    whole, rest = divmod(-(-x.channels // tile.group) * tile.group, x.block)
    inner, depth = merged(taps(x, window), x.block, x.itemsize)
    a, last = "%a", "1"
    loops: Sequence[tuple[int | str, Dimension]]
    if blocks is None:
        loops, depth = merged([(whole, x.plane), *taps(x, window)], x.block, x.itemsize)
    else:
        first, behind = blocks
        before = f.mul(first, x.block // tile.group * window.taps * tile.panel_step)
        panel = replace(panel, pointer=f.offset(panel.pointer, before))
        a = f.offset(a, f.mul(first, f.size(x.plane)))
        loops = [(f.sub(f.minimum(behind, whole), first), x.plane), *inner]
        last = f.cast("zext", f.compare("sgt", behind, whole), "i64", "i1")
    if whole:
        ahead = None if beyond is None or depth != x.block else f.size(beyond)
        sums, panel = nest(f, tile, sums, a, panel, loops, depth, displacements, once, ahead)
    if rest:
        a = f.offset("%a", f.size(whole * x.plane))
        loops, depth = merged(taps(x, window), rest, x.itemsize)
        loops = loops if blocks is None else [(last, 0), *loops]
        sums, panel = nest(f, tile, sums, a, panel, loops, depth, displacements)
    return sums


def taps(x: Image, window: Window) -> list[tuple[int, Dimension]]:
    """The loops over a window: (count, bytes a step)."""
    (height, width), (dy, dx) = window.kernel, window.dilations
    return [(height, x.row * dy), (width, x.pixel * dx)]


def merged(
    loops: Sequence[tuple[int, Dimension]], depth: int, size: int
) -> tuple[list[tuple[int, Dimension]], int]:
    """Loops (count, bytes a step), outermost first, around `depth` contiguous elements: those that
    continue what is inside them become part of it, those of one iteration vanish."""
    kept = [loop for loop in loops if loop[0] != 1]
    while kept and continues([kept[-1][1]], [size], depth):
        depth *= kept.pop()[0]
    return kept, depth


def nest(
    f: KernelFunction,
    tile: Tile,
    sums: list[str],
    a: str,
    panel: Panel,
    loops: Sequence[tuple[int | str, Dimension]],
    depth: int | str,
    displacements: Sequence[int],
    once: bool = False,
    beyond: str | None = None,
) -> tuple[list[str], Panel]:
    """multiply_add in loops that carry the accumulators; returns them and where the panel goes
    on. beyond: how far behind the displacements is fetched what is read next."""
    if not loops:
        rows = fixed_rows(a, displacements, dtypes.itemsize(tile.lhs))
        steps = f.divide(depth, tile.group)[0]
        after = panel.after(f, steps, tile.panel_step)
        streams, chains = streams_for(f.target, tile, depth) if once else 1, 1
        if streams > 1:
            panel, chains = (
                replace(panel, prefetch=fetched_ahead(streams)),
                chains_for(f.target, tile.rows, tile.vectors),
            )
        sums = multiply_add(f, tile, sums, rows, panel, depth, chains=chains, streams=streams)
        return sums, after
    (count, stride), *inner = loops
    pointers = [a, *panel.pointers]
    kinds = [*["ptr"] * len(pointers), *[tile.vector] * len(sums)]
    with f.loop(0, count, carried=list(zip(kinds, [*pointers, *sums]))) as loop:
        at, here = loop.carried[0], panel.at(loop.carried[1 : len(pointers)])
        if beyond is not None:
            for place in _lines_of(displacements):
                prefetch_line(f, f.offset(f.offset(at, beyond), place), level=1)
        values, after = nest(
            f, tile, loop.carried[len(pointers) :], at, here, inner, depth, displacements, once
        )
        loop.carry(f.offset(at, f.size(stride)), *after.pointers, *values)
    return loop.results[len(pointers) :], panel.at(loop.results[1 : len(pointers)])


def _lines_of(displacements: Sequence[int]) -> list[int]:
    """Those of which each lies in a line of its own."""
    found: list[int] = []
    for place in sorted(displacements):
        if not found or place - found[-1] >= LINE:
            found.append(place)
    return found
