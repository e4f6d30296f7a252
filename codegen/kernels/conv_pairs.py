"""Direct convolution of bytes by sums of two products in 16 bits (`tiles/pair_sums.py`), where no instruction
adds up four in 32. All else is as in `conv.py`; a further step says where its channels lie:

    place  [ block of channels ][ row of the window ][ bytes from there ]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace

import numpy as np

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..kernel import Choice, Code, KernelFunction, Offer
from ..tiles.blocked import Window
from ..tiles.channel_panels import PanelTiling, by_depth, in_dot_panels, starts
from ..tiles.conv_plan import ConvPlan, extended, kinds_of
from ..tiles.microkernel import Rows, Tile, fixed_rows
from ..tiles.pair_sums import GROUP, MOST_FURTHER, Excess, Further, further_steps, with_further
from ..tiles.panel_operand import Panel
from . import conv
from .conv import plan_of, window

WORDS = 3  # of a place


@dataclass(frozen=True)
class Tiling(PanelTiling):
    """That of `conv`; `further`: for how many further steps vectors have room."""

    further: int = 0


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """Those of `conv`, of unsigned bytes times signed ones that are rarely large."""
    op = node.op
    if target.pairs is None or not isinstance(op, Conv) or op.transposed or op.groups != 1:
        return
    types = (node.inputs[0].dtype, node.inputs[1].dtype, op.accumulate)
    if types != ("uint8", "int8", "int32") or target.dot(*types) is not None:
        return
    if conv.dot_of(node, target) is None:
        return
    share, room = further_steps(node.inputs[1].data.array, target.block)
    if share > MOST_FURTHER:
        return
    for offer in conv.candidates(node, target.with_pairs):
        cost = replace(offer.cost, compute=offer.cost.compute * (1 + costs.FURTHER * share))
        tiling = Tiling(**vars(offer.tiling), further=room)
        yield Offer(cost, tiling, offer.inputs, offer.output, offer.packed)


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> Constant | None:
    if operand != 1:
        return conv.pack(node, choice, operand)
    lanes, further = choice.block, Further(choice.tiling.further, WORDS)
    weights = node.inputs[1].data
    kinds = kinds_of(weights.shape[0], lanes, choice.tiling)
    steps = -(-weights.shape[1] // GROUP) * dims.product(weights.shape[2:])
    column = 4 + steps * GROUP  # what its sum starts from, and its weights
    vectors = sum(p.count * p.vectors for p in kinds)

    def make() -> np.ndarray:
        excess = Excess(by_depth(weights.array, lanes, GROUP))
        panels = in_dot_panels(excess.kept, kinds, GROUP, starts(weights.array, node.op.zero, "int32"))
        places, found, first = _places(weights.shape, window(node), lanes), [], 0
        for width in (p.width for p in kinds for _ in range(p.count)):
            found.append(panels[first * column :][: width * column])
            found.append(excess.behind(slice(first, first + width), lanes, further, places))
            first += width
        return np.concatenate(found)

    return Constant("uint8", (vectors * (lanes * column + further.vector_bytes(lanes)),), make)


def _places(shape: Sequence[int], window: Window, block: int) -> np.ndarray:
    """[steps, WORDS], in the order of the weights of one result."""
    across = block * window.dilations[1]
    taps = [(row, column * across) for row in range(window.kernel[0]) for column in range(window.kernel[1])]
    blocks, rest = divmod(-(-shape[1] // GROUP) * GROUP, block)
    each = [(k, block) for k in range(blocks)] + [(blocks, rest)]
    found = [
        (k, row, place + byte)
        for k, channels in each
        for row, place in taps
        for byte in range(0, channels, GROUP)
    ]
    return np.array(found, np.int32)


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    plan = plan_of(node, target.with_pairs, choice.tiling)
    whole = extended(plan, PairsPlan, further=Further(choice.tiling.further, WORDS))
    return conv.code_of(node, whole, choice, target)


@dataclass(frozen=True)
class PairsPlan(ConvPlan):
    """That of `conv`, whose panels have further steps behind the others."""

    further: Further = field(kw_only=True)

    @property
    def column_bytes(self) -> int:
        return super().column_bytes + self.further.vector_bytes(self.out.block) // self.out.block

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        found = super().accumulate(f, tile, sums, displacements, panel)
        (down, across), several = self.window.dilations, self.window.kernel[0] > 1
        # the taps of a column that is turned follow each other along its row
        row = self.x.row * down if several else self.x.pixel * across

        def rows(place: list[str]) -> Rows:
            block, tap, byte = place
            start = f.add(f.mul(block, f.size(self.x.plane)), f.add(f.mul(tap, f.size(row)), byte))
            return fixed_rows(f.offset("%a", start), displacements, 1)

        start = tile.vectors * tile.lanes * 4
        behind = f.offset(panel.pointer, start + self.steps * tile.panel_step)
        return with_further(f, tile, found, behind, self.further, rows)
