"""Matrix products of bytes by sums of two products in 16 bits, where no instruction adds up four in 32.

    uint8 x0 x1 x2 x3  *  int8 w0 w1 w2 w3   →   int16 x0 w0 + x1 w1, x2 w2 + x3 w3   →   int32 their sum

The sum of two saturates where weights of one sign are together beyond 128. What of them is beyond is taken
out of the panel, which has it in steps of its own behind the others, with the places of their terms:

    panel  [ steps of 4 terms ][ further steps ][ how many there are, and where ]

So sums are exact, whatever the weights are, and the kernel is offered where such steps are few (`Excess`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Contract
from ...records import dataclass
from ...target import Target
from ..kernel import Choice, Code, Offer, nearest, offered
from ..text.emitter import Function
from ..tiles import epilogue as epilogues
from ..tiles import microkernel as mk
from ..tiles.contraction import A, Product, product_of
from ..tiles.packing import pack_columns, padded
from ..tiles.panel import LINE, Panel
from . import gemm
from .gemm import Gemm

GROUP = 4  # terms of a step
MOST = 128  # of two weights of one sign that an unsigned byte each is multiplied with
MOST_FURTHER = 0.5  # further steps, for each other one


@dataclass(frozen=True)
class Tiling(gemm.Tiling):
    """That of `gemm`; `further`: for how many further steps panels have room."""

    further: int = 0


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """The fastest tilings by estimate, of unsigned bytes times signed constants that are rarely large."""
    product = product_of(node) if target.pairs is not None else None
    if product is None or not _multiplies(product, target) or node.op.rounded:
        return
    if not epilogues.supported(node.op.epilogue):
        return
    able, excess = _with_pairs(target), _excess(node, product)
    found = []
    for tiling in gemm.tilings(product, able):
        counts = excess.further(tiling.vectors * tiling.lanes) if tiling.dot == GROUP else None
        if counts is None or counts.mean() > MOST_FURTHER * excess.steps:
            continue
        share = 1 + counts.mean() / excess.steps
        room = int(counts.max())  # a power of two, so that products of like weights share their code
        whole = Tiling(**vars(tiling), further=1 << (room - 1).bit_length() if room else 0)
        cost = gemm.estimate(node, product, tiling, able)
        found.append((replace(cost, compute=cost.compute * share), whole))
    for cost, tiling in nearest(found):
        yield Offer(cost, tiling, packed=(product.operands[1],))


def _multiplies(product: Product, target: Target) -> bool:
    """Whether these are products of bytes whose neighbours along k lie together, for which the target has no
    dot product."""
    types, depth = (product.lhs, product.rhs, product.accumulate), product.depth
    if types != ("uint8", "int8", "int32") or target.dot(*types) is not None:
        return False
    if not product.constant or product.panels_axes or not dims.is_static((depth, product.n.size)):
        return False
    together = len(product.k) == 1 and product.k[0].strides[A] == 1
    return together and dims.number(depth) >= GROUP and dims.number(product.n.size) > 0


def _with_pairs(target: Target) -> Target:
    """The target, whose dot product is that of pairs."""
    return target if target.pairs is None else replace(target, dots=(*target.dots, target.pairs))


# What is beyond ----------------------------------------------------------------------------------


class Excess:
    """Weights [K, N] of int8 as the sum of `kept`, whose pairs stay in 16 bits, and `beyond`, in which of
    each pair one at most is not 0."""

    def __init__(self, weights: np.ndarray):
        depth, columns = weights.shape
        self.depth, self.steps = depth, -(-depth // GROUP)
        pairs = np.zeros((self.steps * GROUP, columns), np.int16)
        pairs[:depth] = weights
        pairs = pairs.reshape(-1, 2, columns)
        total = pairs.sum(axis=1)
        same = (pairs[:, 0] >= 0) == (pairs[:, 1] >= 0)
        over = np.where(same, total - np.clip(total, -MOST, MOST), 0)
        greater = abs(pairs[:, 0]) >= abs(pairs[:, 1])
        beyond = np.stack([np.where(greater, over, 0), np.where(greater, 0, over)], axis=1)
        self.beyond = beyond.reshape(-1, columns).astype(np.int8)
        self.kept = (pairs - beyond).reshape(-1, columns)[:depth].astype(np.int8)

    @cached_property
    def _steps_beyond(self) -> np.ndarray:
        """[steps, N]: whether a column has something beyond in a step."""
        return np.asarray(self.beyond.reshape(self.steps, GROUP, -1).any(axis=1))

    def further(self, width: int) -> np.ndarray:
        """How many further steps each panel of so many columns has."""
        starts = range(0, self.beyond.shape[1], width)
        return np.add.reduceat(self._steps_beyond, starts, axis=1).astype(bool).sum(axis=0)

    def panel(self, columns: slice, lanes: int, room: int) -> np.ndarray:
        """The bytes of the panel of some columns, with room for so many further steps."""
        kept, beyond = self.kept[:, columns], self.beyond[:, columns]
        wide = padded(kept.shape[1], lanes)
        steps = pack_columns(kept, wide, lanes, GROUP).view(np.uint8)
        if not room:
            return steps
        found = np.flatnonzero(self._steps_beyond[:, columns].any(axis=1))
        places = np.minimum(found * GROUP, self.depth - GROUP)  # no element behind the last is read
        numbers = np.zeros((room, GROUP, kept.shape[1]), np.int8)
        for number, (step, place) in enumerate(zip(found, places)):
            later = step * GROUP - place
            numbers[number, later:] = beyond[step * GROUP : step * GROUP + GROUP - later]
        further = pack_columns(numbers.reshape(room * GROUP, -1), wide, lanes, GROUP).view(np.uint8)
        told = np.zeros(told_bytes(room) // 4, np.int32)
        told[0], told[1 : 1 + len(places)] = len(places), places
        return np.concatenate([steps, further, told.view(np.uint8)])


def told_bytes(room: int) -> int:
    """Of the places of so many further steps, and their number."""
    return padded(4 + 4 * room, LINE) if room else 0


def _excess(node: Node[Contract], product: Product) -> Excess:
    return Excess(gemm.constant_matrix(node, product)()[0])


# Packing -----------------------------------------------------------------------------------------


def pack(node: Node[Contract], choice: Choice[Tiling], operand: int) -> Constant | None:
    product = product_of(node)
    if product is None or operand != product.operands[1]:
        return None
    tiling, columns = choice.tiling, dims.number(product.n.size)
    width, steps = tiling.vectors * tiling.lanes, -(-dims.number(product.depth) // GROUP)
    panels = -(-columns // width)
    total = (steps + tiling.further) * GROUP * padded(columns, tiling.lanes)
    total += panels * told_bytes(tiling.further)

    def make() -> np.ndarray:
        excess = _excess(node, product)
        parts = [slice(k * width, min(columns, (k + 1) * width)) for k in range(panels)]
        return np.concatenate([excess.panel(part, tiling.lanes, tiling.further) for part in parts])

    return Constant("uint8", (total,), make)


# Emission ----------------------------------------------------------------------------------------


def emit(node: Node[Contract], choice: Choice[Tiling], target: Target) -> Code:
    product = offered(product_of(node), node)
    return OfPairs(node, product, choice.tiling, choice.cost, _with_pairs(target)).code()


class OfPairs(Gemm):
    """Writes the steps of one product."""

    tiling: Tiling

    def panel_bytes(self) -> int:
        steps = dims.number(self.depth) // GROUP + self.tiling.further
        return steps * GROUP * self.width + told_bytes(self.tiling.further)

    def sums(
        self,
        f: Function,
        tile: mk.Tile,
        level: int,
        a: str,
        b: str,
        start: Sequence[str],
        columns: int | str | None,
    ) -> list[str]:
        """The steps of all terms, then those of what is beyond."""
        found, room = super().sums(f, tile, level, a, b, start, columns), self.tiling.further
        if not room:
            return found
        further = f.offset(b, dims.number(self.depth) // GROUP * tile.panel_step)
        told = f.offset(further, room * tile.panel_step)
        with f.loop(0, _number(f, told), 1, [(tile.vector, x) for x in found]) as loop:
            place = f.offset(a, _number(f, f.offset(told, f.add(4, f.mul(loop.index, 4)))))
            rows = mk.strided_rows(f, place, self.word(self.step_of(self.product.m, A)), tile.rows, 1)
            step = Panel(f.offset(further, f.mul(loop.index, tile.panel_step)))
            loop.carry(*mk.multiply_add(f, tile, loop.carried, rows, step, GROUP))
        return list(loop.results)


def _number(f: Function, pointer: str) -> str:
    return f.cast("sext", f.load("i32", pointer, 4), "i64")
