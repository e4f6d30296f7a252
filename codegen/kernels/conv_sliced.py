"""1x1 convolutions over more channels than the second-level cache holds of an image, a slice of these after
the other: the tiles of `conv.py`.

    slice 0:  result  = start + x[:s]   w[:s]     all panels of a call go through a slice of the image,
    slice 1:  result +=         x[s:2s] w[s:2s]   which the cache holds, so that weights are read once
    ...       result  = epilogue(result + ...)
Sums wait in the result. Every pixel adds its products in the order in which one slice of all channels does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace

from ...ir import dims
from ...ir.graph import Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, single
from ..tiles.blocked import Image
from ..tiles.blocked_epilogue import place_in
from ..tiles.channel_panels import Panels, PanelTiling
from ..tiles.conv_plan import ConvPlan, Slice, emit_panel, emit_tiles, extended, held_steps
from ..tiles.lines import cut_lines
from ..tiles.microkernel import Address, Tile
from . import conv
from .conv import dense_images, is_plain, pack, plan_of

__all__ = ["candidates", "emit", "pack"]

PART = 0.25  # of the second-level cache, which a slice of an image takes


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """The panel widths that `conv` offers, of images that the second-level cache does not hold."""
    if not is_plain(node) or node.op.transposed or node.op.groups != 1 or len(node.op.strides) > 2:
        return
    x, out, win = dense_images(node)
    sizes = (x.height, x.width, *win.before, *win.after)
    if win.taps != 1 or win.strides != (1, 1) or not dims.is_static(sizes) or any(sizes[2:]):
        return
    if out.dtype != node.op.accumulate or node.inputs[1].constant is None:
        return
    if _blocks(x, target) >= x.channels / target.block:
        return
    offers = list(conv.candidates(node, target))
    for offer in offers:
        tiling = offer.tiling
        if tiling.gathered or tiling.stored or tiling.abreast > 1 or tiling.tail:
            continue
        slices = -(-x.channels // (slice_of(node, target, tiling) * target.block))
        here, sliced = (conv.estimate(node, target, tiling, slices=count) for count in (None, slices))
        once = offer.cost - conv.again(node, target, offers[0].tiling)
        yield replace(offer, cost=once + sliced - here + _summed(node, target, x, slices))


def _summed(node: Node[Conv], target: Target, x: Image, slices: int) -> Estimate:
    """To read sums from the result and write them there, for each slice but the first; between two times a
    slice of the image is read."""
    out = dims.typical(node.outputs[0].tensor.nbytes)
    moved = costs.move(target, 2 * out * (slices - 1), out + dims.typical(x.image) / slices)
    return Estimate(overhead=costs.SUMMED * moved.memory)


def _blocks(x: Image, target: Target) -> int:
    """Blocks of channels of an image of which the second-level cache holds a part."""
    plane = dims.number(x.height) * dims.number(x.width) * x.itemsize * target.block
    return max(1, int(target.facts.level2_bytes * PART) // max(1, plane))


def slice_of(node: Node[Conv], target: Target, tiling: PanelTiling) -> int:
    """Blocks of channels that a slice has: as many as both caches hold, of an image and of a panel."""
    x = dense_images(node)[0]
    held = held_steps(target, tiling.rows, tiling.vectors) // target.block
    whole = -(-x.channels // target.block)
    return -(-whole // -(-whole // max(1, min(_blocks(x, target), held))))


@dataclass(frozen=True)
class SlicedPlan(ConvPlan):
    """A plan whose sums wait in the result. `reach`: the blocks of the slice that is added."""

    reach: tuple[str, str] = field(kw_only=True, default=("0", "0"))

    @property
    def over(self) -> tuple[int, ...]:
        return ()

    @property
    def sums_bytes(self) -> int:
        return 64

    @contextmanager
    def slices(self, f: KernelFunction, lines: tuple[str, str]) -> Iterator[Slice]:
        words = [*(f"i64 {word}" for word in self.reach), "ptr %scratch"]
        yield Slice(lines, self.reach[0], lambda y, x, width: words)

    def held(self, f: KernelFunction, tile: Tile) -> Address:
        place, width = place_in(f, self.out, "%out", tile.rows // self.rows), tile.rows // self.rows
        return lambda row, vector: place(*divmod(row, width), vector)

    def times(self, target: Target, panels: Panels) -> list[float]:
        """Such that no tile overlaps another."""
        return [float(width) for width in self.widths]


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    plan, k = sliced(node, plan_of(node, target, choice.tiling), target, choice.tiling), KernelText(target)
    planes = plan.panels * plan.out.batch
    lines = cut_lines(plan.length, plan.line_step, planes, choice.cost.total)
    with k.entry() as f, f.loop(0, plan.x.blocks, plan.slice or 1) as channels:
        behind = f.minimum(f.add(channels.index, plan.slice or 1), plan.x.blocks)
        here = replace(plan, reach=(channels.index, behind))
        with f.loop("%first", "%last") as part:
            plane, chunk = f.divide(part.index, f.size(lines.count))
            n, panel = f.divide(plane, plan.panels)
            image = f.offset(f.input(0), f.mul(n, f.size(plan.x.image)))
            start = f.offset(image, f.size(plan.start))
            emit_panel(f, here, start, n, panel, lines.at(f, chunk))
    emit_tiles(k, plan)
    work = costs.work(choice.cost, plan.out.batch * plan.out.height * plan.out.width)
    return single(k.step(planes * lines.count, work))


def sliced(node: Node[Conv], plan: ConvPlan, target: Target, tiling: PanelTiling) -> SlicedPlan:
    """The plan in slices, whose tiles do not overlap: what they add to is there once."""
    width, (columns, *_) = dims.number(plan.out.width), plan.widths
    widths = (columns, *([width % columns] if width % columns else []))
    return extended(plan, SlicedPlan, widths=widths, slice=slice_of(node, target, tiling))
