"""1x1 convolutions over more channels than the second-level cache holds of an image, a slice of these after
the other: the tiles of `conv.py`.

    slice 0:  result  = start + x[:s]   w[:s]     all panels of a call go through a slice of the image,
    slice 1:  result +=         x[s:2s] w[s:2s]   which the cache holds, so that weights are read once
    ...       result  = epilogue(result + ...)
Sums wait in the result. Every pixel adds its products in the order in which one slice of all channels does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from typing import ClassVar

from ...ir import dims, dtypes
from ...ir.graph import Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, single
from ..tiles.blocked_epilogue import place_in
from ..tiles.conv_plan import ConvPlan, emit_panel, emit_tiles, extended
from ..tiles.microkernel import Tile, load_tile, store_tile
from ..tiles.panel import Panel
from ..tiles.panels import Panels, PanelTiling
from ..tiles.window_sums import nest
from . import conv
from .conv import dense_images, is_plain, pack, plan_of

__all__ = ["candidates", "emit", "pack"]

PART = 0.25  # of the second-level cache, which a slice of an image takes
SUMS = 0.5  # instructions for each vector of sums that a slice takes over, which others hide in part


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """The panel widths that `conv` offers, of images that the second-level cache does not hold."""
    if not is_plain(node) or node.op.transposed or node.op.groups != 1 or len(node.op.strides) > 2:
        return
    x, out, win = dense_images(node)
    sizes = (x.height, x.width, *win.before, *win.after)
    if win.taps != 1 or win.strides != (1, 1) or not dims.is_static(sizes) or any(sizes[2:]):
        return
    if x.channels % target.block or out.dtype != node.op.accumulate or node.inputs[1].constant is None:
        return
    slices = -(-x.channels // slice_of(node, target))
    if slices < 2:
        return
    for offer in conv.candidates(node, target):
        tiling = offer.tiling
        if tiling.gathered or tiling.stored or tiling.abreast > 1 or tiling.tail:
            continue
        pixels = dims.typical(out.batch) * dims.number(out.height) * dims.number(out.width)
        sums = SUMS * (slices - 1) * pixels * -(-out.channels // target.lanes(out.dtype))
        once = replace(offer.cost, memory=offer.cost.memory - conv.again(node, target, tiling).memory)
        yield replace(offer, cost=once + costs.compute(target, sums))


def slice_of(node: Node[Conv], target: Target) -> int:
    """Channels, whole blocks of them, that a slice has."""
    x = dense_images(node)[0]
    pixel = dims.number(x.height) * dims.number(x.width) * x.itemsize * target.block
    blocks = max(1, int(target.facts.level2_bytes * PART) // max(1, pixel))
    whole = -(-x.channels // target.block)
    return -(-whole // -(-whole // blocks)) * target.block


@dataclass(frozen=True)
class SlicedPlan(ConvPlan):
    """A plan whose tiles are told which blocks of channels they add, %first to %behind, to what the result
    holds of those before. `reach`: these, where a panel's tiles are called."""

    each: int = field(kw_only=True)  # blocks of channels of a slice
    reach: tuple[str, str] = field(kw_only=True, default=("0", "0"))

    panel_parameters: ClassVar[tuple[str, ...]] = ("ptr noalias %b", "i64 %first", "i64 %behind")

    @property
    def over(self) -> tuple[int, ...]:
        return ()

    def panel_words(self, f: KernelFunction, panels: Panels, panel: str) -> list[str]:
        return [*super().panel_words(f, panels, panel), *(f"i64 {word}" for word in self.reach)]

    def accumulate(
        self, f: KernelFunction, tile: Tile, sums: list[str], displacements: Sequence[int], panel: Panel
    ) -> list[str]:
        begins, held = f.compare("eq", "%first", 0), load_tile(f, tile, self._held(f, len(displacements)))
        sums = [f.select(begins, tile.vector, new, old) for new, old in zip(sums, held, strict=True)]
        a = f.offset("%a", f.mul("%first", f.size(self.x.plane)))
        weights = f.offset(panel.pointer, f.mul("%first", self.x.block * tile.panel_step))
        here = replace(panel, pointer=weights)
        loops = [(f.sub("%behind", "%first"), self.x.plane)]
        return nest(f, tile, sums, a, here, loops, self.x.block, displacements)[0]

    # What tiles fetch ahead: the same slice of the next panel

    def steps_of(self, panels: Panels) -> int:
        return self.each * self.x.block

    def next_bytes(self, panels: Panels) -> int:
        return self.steps_of(panels) * panels.width * dtypes.itemsize(self.dtype)

    def next_panel(self, f: KernelFunction, panels: Panels, panel: str) -> str:
        first = f.mul(self.reach[0], self.x.block * panels.width * dtypes.itemsize(self.dtype))
        return f.add(super().next_panel(f, panels, panel), first)

    def times(self, target: Target, panels: Panels) -> list[float]:
        """Such that no tile overlaps another."""
        return [float(width) for width in self.widths]

    def _held(self, f: KernelFunction, pixels: int) -> Callable[[int, int], str]:
        """Where the result holds the sums of a tile."""
        place, width = place_in(f, self.out, "%out"), pixels // self.rows
        return lambda row, vector: place(*divmod(row, width), vector)

    @contextmanager
    def unfinished(self, f: KernelFunction, tile: Tile, sums: list[str]) -> Iterator[None]:
        whole = f.compare("eq", "%behind", self.x.blocks)
        with f.when(whole):
            yield
        with f.when(f.invert(whole)):
            store_tile(f, tile, sums, self._held(f, tile.rows))


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    plan, k = sliced(node, plan_of(node, target, choice.tiling), target), KernelText(target)
    with k.entry() as f, f.loop(0, plan.x.blocks, plan.each) as channels:
        behind = f.minimum(f.add(channels.index, plan.each), plan.x.blocks)
        here = replace(plan, reach=(channels.index, behind))
        with f.loop("%first", "%last") as part:
            n, panel = f.divide(part.index, plan.panels)
            image = f.offset(f.input(0), f.mul(n, f.size(plan.x.image)))
            start = f.offset(image, f.size(plan.start))
            emit_panel(f, here, start, n, panel, ("0", f.size(plan.length)))
    emit_tiles(k, plan)
    work = costs.work(choice.cost, plan.out.batch * plan.out.height * plan.out.width)
    return single(k.step(plan.out.batch * plan.panels, work))


def sliced(node: Node[Conv], plan: ConvPlan, target: Target) -> SlicedPlan:
    """The plan in slices, whose tiles do not overlap: what they add to is there once."""
    width, (columns, *_) = dims.number(plan.out.width), plan.widths
    widths = (columns, *([width % columns] if width % columns else []))
    return extended(plan, SlicedPlan, widths=widths, each=slice_of(node, target) // plan.x.block)
