"""Fused groups of kind "bands": a 1x1 convolution or a network's first one, a depthwise one or a pool, and
another 1x1 one, of which the first or the last may be missing.

    x ─ expand ─▶ the rows that a band's windows cover ─ slide ─▶ its rows ─ project ─▶ rows of the result
A band is `rows` rows of the result in all channels, a part no more of them than a strip has: a thread goes
through those of its parts band by band. Images between are as high as a band and lie in scratch memory, where
the second-level cache keeps them. A band that follows another keeps the expanded rows that the windows of
both cover; the first one of a call computes them all, with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node, Value
from ...ir.ops import Fused, Pool
from ...ir.pools import pooling_of
from ...records import dataclass
from ...target import LINE, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, Kernel, KernelFunction, KernelText, Offer, offered, single
from ..text.memory import clear_bytes, copy_bytes
from ..tiles.blocked import Image, Window, clear_border, displaced, image_of, without_halo
from ..tiles.blocked_epilogue import Epilogue
from ..tiles.channel_panels import PanelTiling
from ..tiles.conv_plan import ConvPlan, emit_panel, emit_tiles, kinds_of, tile_shape
from ..tiles.copied_rows import CopiedRows
from ..tiles.lines import Lines, joined
from . import conv, conv_planar, conv_stem, depthwise, pool, winograd
from .depthwise import DepthwisePlan, FloatStrip, emit_block, emit_strip
from .pool import PoolPlan

HEIGHTS = range(1, 33)  # of a band
MOST_PIXELS = 32  # of a tile
LEAST_BANDS = 12  # of an image, so that threads have about equal shares


# What is offered ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bands:
    """`rows` rows of a band, and how its members are computed."""

    rows: int
    slide: depthwise.Tiling | None
    expand: PanelTiling | None = None
    project: PanelTiling | None = None


@dataclass(frozen=True)
class Member:
    """A node of a group over what the group reads and writes, whose operands but the first are `apart` places
    farther back in those of the group."""

    kernel: Kernel
    node: Node[Any]
    apart: int

    @property
    def window(self) -> Window:
        return pool.window(self.node.op) if self.kernel is pool else conv.window(self.node)

    @property
    def rivals(self) -> tuple[Kernel, ...]:
        """Other kernels that may be faster where it is by itself."""
        return (conv_planar, winograd) if self.kernel is conv_stem else ()


def members_of(node: Node[Fused]) -> dict[str, Member]:
    """Those of a group by what they do, in order: `expand`, `slide`, `project`."""
    region = node.op.region
    stands = dict(zip(region.inputs, node.inputs))
    results = dict(zip(region.outputs, node.outputs))
    found: dict[str, Member] = {}
    apart = 0
    for inner in region.nodes:
        outputs = tuple(Value(results.get(v, v).type) for v in inner.outputs)
        own = Node(inner.op, tuple(stands.get(v, v) for v in inner.inputs), outputs, inner.origin)
        stands.update(zip(inner.outputs, outputs))
        role = _role(own)
        role = "expand" if role == "project" and not found else role
        found[role] = Member(_kernel(own), own, apart)
        apart += len(inner.inputs) - 1
    return found


def _role(node: Node) -> str:
    return "slide" if isinstance(node.op, Pool) or node.op.groups > 1 else "project"


def _kernel(node: Node) -> Kernel:
    if isinstance(node.op, Pool):
        return pool
    if node.op.groups > 1:
        return depthwise
    pixels = {*node.inputs[1].shape[2:]} == {1} and not node.op.padded  # which the image has as they are
    return conv if pixels else conv_stem


def candidates(node: Node, target: Target) -> Iterator[Offer[Bands]]:
    """One, where it is expected to be faster than the members by themselves."""
    if not isinstance(node.op, Fused) or node.op.kind != "bands":
        return
    members = members_of(node)
    offers = {role: offer for role, m in members.items() for offer in _fastest(m, target)}
    if len(offers) < len(members):
        return
    own = costs.total(
        o.cost - costs.traffic(target, m.node) for o, m in zip(offers.values(), members.values())
    )
    alone = sum(
        min(o.time for kernel in (m.kernel, *m.rivals) for o in kernel.candidates(m.node, target))
        for m in members.values()
    )
    alone += sum(costs.waited(target, 2 * nbytes, nbytes).total for nbytes in _bytes_between(members))
    strip = offers["slide"].tiling
    heights = _heights(node, 1 if strip is None else strip.rows)
    ways = {rows: own + _moving(node, members, target, rows) for rows in heights}
    rows = min(ways, key=lambda rows: ways[rows].total)
    if ways[rows].total < alone:
        first, *others = (offer.inputs for offer in offers.values())
        yield Offer(
            ways[rows],
            Bands(rows, **{role: offer.tiling for role, offer in offers.items()}),
            (*first, *(layout for inputs in others for layout in inputs[1:])),
            without_halo(target.block, 2),
            tuple(members[role].apart + k for role, offer in offers.items() for k in offer.packed),
        )


def _fastest(member: Member, target: Target) -> list[Offer[Any]]:
    """The fastest way of a member by itself, if there is one."""
    ways = member.kernel.candidates(member.node, target)
    return sorted((w for w in ways if not getattr(w.tiling, "stored", None)), key=lambda way: way.time)[:1]


def _heights(node: Node[Fused], strip: int) -> list[int]:
    """How high bands may be: where the height is known, such that the last one has the pixels of a tile too;
    of whole strips and enough bands, if there are."""
    height, width = node.outputs[0].shape[2:]
    found = [r for r in HEIGHTS if not isinstance(height, int) or height % r == 0]
    if isinstance(height, int) and isinstance(width, int):
        many = height // LEAST_BANDS
        found = [r for r in HEIGHTS if r in found or (r <= many and height % r * width >= MOST_PIXELS)]
    for wanted in (lambda r: r % strip == 0, lambda r: r * LEAST_BANDS <= dims.typical(height)):
        found = [r for r in found if wanted(r)] or found[:1]
    return found


def _moving(node: Node[Fused], members: dict[str, Member], target: Target, rows: int) -> Estimate:
    """To read and write the group's image and result, and images between where the scratch memory holds of
    them what a band needs, and to read constants again in each."""
    expanded, slid = _between(members, target.block, rows)
    held = sum(dims.typical(image.image) for image in (expanded, slid) if image is not None)
    out = node.outputs[0].tensor
    bands = dims.typical(out.shape[0] * dims.ceil_divide(out.shape[2], rows))
    moved = sum(_bytes_between(members))
    if expanded is not None:
        moved += bands * _shared(_window(members)) * expanded.blocks * dims.typical(expanded.row)
    constants = costs.constant_bytes(node)
    again, around = (bands - 1) * constants, held + constants
    moved += bands * _copied_again(members.get("expand"))
    inside = costs.move(target, 2 * moved, held) + costs.move(target, again, around)
    return costs.traffic(target, node) + inside + costs.waited(target, again, around)


def _copied_again(first: Member | None) -> int:
    """Bytes of the rows that a first convolution copies for a band and for the one before."""
    if first is None or first.kernel is not conv_stem:
        return 0
    x = first.node.inputs[0].tensor
    return (
        _shared(first.window) * dims.number(x.shape[1]) * dims.typical(x.shape[3] * dtypes.itemsize(x.dtype))
    )


def _bytes_between(members: dict[str, Member]) -> list[int]:
    """Of the images that members write for the next one."""
    *between, _ = (dims.typical(m.node.outputs[0].tensor.nbytes) for m in members.values())
    return between


def _window(members: dict[str, Member]) -> Window:
    return members["slide"].window


def _shared(window: Window) -> int:
    """How many rows of its image the windows of two rows of the result share."""
    return max(0, window.extent[0] - window.strides[0])


def _between(members: dict[str, Member], block: int, rows: int) -> tuple[Image | None, Image | None]:
    """What the scratch memory holds: the rows of the expanded image that a band's windows cover, and the
    band's own before they are projected; None where there is no such member."""
    slide, win = members["slide"].node, _window(members)
    expanded = slid = None
    if "expand" in members:
        border = pool.border(slide.op, slide.inputs[0].shape[2:]) if isinstance(slide.op, Pool) else win.halo
        halo = 0, offered(border, slide)[1]
        covered = max(2, (rows - 1) * win.strides[0] + win.extent[0])  # lines of one row would be its pixels
        expanded = replace(_image(slide.inputs[0].shape, block, covered), halo=halo)
    if "project" in members:
        slid = _image(slide.outputs[0].shape, block, rows)
    return expanded, slid


def _image(shape: tuple[Dimension, ...], block: int, rows: int) -> Image:
    return Image(1, dims.number(shape[1]), rows, shape[3], block, "float32")


def pack(node: Node[Fused], choice: Choice[Bands], operand: int) -> Constant | None:
    """As the kernel of the member whose operand it is packs it."""
    role, member = [(r, m) for r, m in members_of(node).items() if m.apart < operand][-1]
    own = replace(choice, tiling=getattr(choice.tiling, role))
    return member.kernel.pack(member.node, own, operand - member.apart)


# The plan of one group ---------------------------------------------------------------------------


@dataclass(frozen=True)
class BandPlan:
    """The members over images as they are stored, in bands of `rows` rows of a result; `heights`: of the
    image that windows slide over, and of the result; of images between the scratch memory holds rows, of the
    expanded one first."""

    rows: int
    heights: tuple[Dimension, Dimension]
    slide: DepthwisePlan | PoolPlan
    between: tuple[Image, Image]  # what the windows slide over, and their result, as they are stored
    expand: ConvPlan | None
    project: ConvPlan | None
    copied: CopiedRows | None = None  # of what is dense

    @property
    def parts(self) -> Lines:
        """Of an image: strips, unless these have fewer pixels than a tile of the projection."""
        strip = self.slide.rows if isinstance(self.slide, DepthwisePlan) else 1
        least = 1 if self.project is None else self.project.widths[-1]
        narrow = least > 1 and strip * dims.number(self.slide.out.width) < least
        return Lines(self.heights[1], self.rows if narrow else strip)

    @property
    def x(self) -> Image:
        if self.copied is not None:
            return self.copied.dense
        return self.between[0] if self.expand is None else self.expand.x

    @property
    def slid(self) -> Dimension:
        """Where in the scratch memory the band's rows are before they are projected."""
        return 0 if self.expand is None else self.expand.out.image

    @property
    def own(self) -> Dimension:
        """Where members have what they need for themselves: copied rows, behind these a pool's first pass."""
        return self.slid + (0 if self.project is None else self.between[1].image)

    @property
    def across(self) -> Dimension:
        copied = 0 if self.copied is None or self.expand is None else self.expand.x.image
        return self.own + dims.ceil_divide(copied, LINE) * LINE

    @property
    def scratch(self) -> Dimension:
        rows = self.slide.across.plane if isinstance(self.slide, PoolPlan) else 0
        return dims.maximum(LINE, self.across + rows)


def plan_of(node: Node[Fused], choice: Choice[Bands], target: Target) -> BandPlan:
    """How the members of a fused node go through bands of rows, between images that hold a band each."""
    members, block, tiling = members_of(node), choice.block, choice.tiling
    out = image_of(node.outputs[0].tensor)
    expanded, slid = _between(members, block, tiling.rows)
    between = expanded or image_of(node.inputs[0].tensor), slid or out
    expand = project = copied = None
    if expanded is not None and tiling.expand is not None:
        first = members["expand"]
        if first.kernel is conv_stem:
            epilogue = Epilogue(first.node, block, first.apart)
            copied, expand = conv_stem.rows_of(
                first.node, tiling.expand, target, expanded, epilogue, "expand"
            )
        else:
            x = image_of(node.inputs[0].tensor)
            expand = _pointwise(first, tiling.expand, target, x, expanded, "expand")
    if slid is not None and tiling.project is not None:
        project = _pointwise(members["project"], tiling.project, target, slid, out, "project")
    slide = _sliding(members["slide"], tiling, target, *between)
    heights = members["slide"].node.inputs[0].shape[2], out.height
    return BandPlan(tiling.rows, heights, slide, between, expand, project, copied)


def _sliding(member: Member, tiling: Bands, target: Target, x: Image, out: Image) -> DepthwisePlan | PoolPlan:
    """Of windows over an image as it is stored."""
    node, win, apart = member.node, member.window, member.apart
    height = node.outputs[0].shape[2]
    if tiling.slide is None:  # which asks where the images end
        whole = replace(x, height=node.inputs[0].shape[2]), replace(out, height=height)
        return pool.plan_of(offered(pooling_of(node), node), *whole)
    even = isinstance(height, int) and tiling.rows % tiling.slide.rows == 0
    lanes = offered(depthwise.lanes_of(node, out.block), node)
    by_lines = tiling.slide.by_lines or (not even and depthwise.goes_by_lines(win, lanes))
    return DepthwisePlan(
        x,
        out,
        win,
        Epilogue(node, out.block, apart),
        lanes,
        tiling.slide.rows if even else 1,
        depthwise.widths_of(target, win.taps, out.width, by_lines),
        by_lines=by_lines,
        apart=apart,
    )


def _pointwise(
    member: Member, tiling: PanelTiling, target: Target, x: Image, out: Image, name: str
) -> ConvPlan:
    """Of a 1x1 member, row by row, or, where the rows of a band follow each other, along its pixels."""
    epilogue = Epilogue(member.node, out.block, member.apart)
    kinds = tuple(kinds_of(out.channels, out.block, tiling))
    height, width = None, out.width
    if name == "project" and out.halo == (0, 0) and epilogue.follows(out.width):
        whole = isinstance(out.height, int)  # else the last band may have fewer pixels than a tile
        x, out, height = x.flat, out.flat, 1
        width = x.width if whole else out.width
    tiles = tile_shape(target, (height, width), kinds, "float32", x.channels)
    win, apart = conv.window(member.node), member.apart
    return ConvPlan(x, out, win, x.origin, epilogue, "float32", kinds, *tiles, name=name, apart=apart)


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Fused], choice: Choice[Bands], target: Target) -> Code:
    plan = plan_of(node, choice, target)
    k = KernelText(target)
    with (
        k.entry() as f,
        joined(f, plan.parts, "%first", "%last", plan.x.batch) as (n, (top, bottom)),
        f.loop(top, bottom, plan.rows) as band,
    ):
        fresh = f.compare("eq", band.index, top)
        lines = band.index, f.minimum(f.add(band.index, plan.rows), bottom)
        image = f.offset(f.input(0), f.mul(n, f.size(plan.x.image)))
        if plan.expand is not None:
            image = _expand(f, plan, plan.expand, image, n, fresh, lines)
        slid = _slide(f, plan, image, n, lines)
        if plan.project is not None:
            _project(f, plan, plan.project, slid, n, lines)
    for pointwise in (plan.expand, plan.project):
        if pointwise is not None:
            emit_tiles(k, pointwise)
    if isinstance(plan.slide, PoolPlan):
        pool.emit_passes(k, plan.slide)
    else:
        emit_strip(k, plan.slide, FloatStrip)
    batch = plan.x.batch
    work = costs.work(choice.cost, batch * plan.heights[1] * plan.slide.out.width)
    return single(k.step(batch * plan.parts.count, work, plan.scratch))


def _expand(
    f: KernelFunction,
    plan: BandPlan,
    expand: ConvPlan,
    image: str,
    n: str,
    fresh: str,
    lines: tuple[str, str],
) -> str:
    """Makes the expanded rows that the windows of some lines cover, but for what the band before left unless
    it is a fresh one; returns where the expanded image would begin."""
    out, win = expand.out, plan.slide.window
    step, shared = win.strides[0], _shared(win)
    top = f.sub(f.mul(lines[0], step), f.size(win.before[0]))  # the first covered row, which may be above
    count = f.add(f.mul(f.sub(f.sub(lines[1], lines[0]), 1), step), win.extent[0])
    covered, height = f.add(top, count), f.size(plan.heights[0])
    begin = f.select(fresh, "i64", top, f.add(top, shared))
    start = f.minimum(f.maximum(begin, 0), covered)
    stop = f.maximum(f.minimum(covered, height), begin)
    with f.when(fresh), f.loop(0, out.blocks) as block:
        clear_border(f, out, _row(f, out, block.index, 0), "0", str(out.height))
    if shared:
        with f.when(f.invert(fresh)), f.loop(0, out.blocks) as block:
            kept = _row(f, out, block.index, plan.rows * step)
            copy_bytes(f, _row(f, out, block.index, 0), kept, f.size(shared * out.row), overlapping=True)
    for low, high in ((begin, start), (stop, covered)):  # beyond the image
        with f.when(f.compare("sgt", high, low)), f.loop(0, out.blocks) as block:
            clear_bytes(
                f, _row(f, out, block.index, f.sub(low, top)), f.mul(f.sub(high, low), f.size(out.row))
            )
    origin = f.offset("%scratch", f.mul(f.sub(0, top), f.size(out.row)))
    source = f.offset(image, f.size(expand.start))
    if plan.copied is not None:
        copy, columns = f.offset("%scratch", f.size(plan.own)), f.size(expand.x.width)
        plan.copied.copy(f, image, (start, stop), columns, partial(expand.x.address, f, copy, 0))
        source = f.offset(copy, f.mul(f.sub(0, start), f.size(expand.line_bytes)))
    with f.loop(0, expand.panels) as panel:
        emit_panel(f, expand, source, n, panel.index, (start, stop), target=origin)
    return origin


def _row(f: KernelFunction, image: Image, block: str, row: str | int) -> str:
    """A row of a block of the image at the beginning of the scratch memory, halo included."""
    return displaced(f, "%scratch", ((block, image.plane), (row, image.row)))


def _slide(f: KernelFunction, plan: BandPlan, image: str, n: str, lines: tuple[str, str]) -> str:
    """Slides the windows of some lines over an image that begins at `image`; returns where its result does,
    or would if the scratch memory held it whole."""
    slide, (x, out) = plan.slide, plan.between
    if plan.project is None:
        result = f.offset(f.output(), f.mul(n, f.size(out.image)))
    else:
        result = f.offset(f.offset("%scratch", f.size(plan.slid)), f.mul(f.sub(0, lines[0]), f.size(out.row)))
    with f.loop(0, out.blocks) as block:
        pixels = f.offset(image, f.mul(block.index, f.size(x.plane)))
        target = f.offset(result, f.mul(block.index, f.size(out.plane)))
        if plan.project is None:
            clear_border(f, out, target, *lines)
        if isinstance(slide, PoolPlan):
            pixels, across = f.offset(pixels, f.size(x.origin)), f.offset("%scratch", f.size(plan.across))
            pool.emit_lines(f, slide, pixels, target, block.index, lines, across)
        else:
            pixels = f.offset(pixels, f.size(slide.start))
            emit_block(f, slide, pixels, target, n, block.index, lines, ("0", f.size(out.width)))
    return result


def _project(
    f: KernelFunction, plan: BandPlan, project: ConvPlan, source: str, n: str, lines: tuple[str, str]
) -> None:
    """The lines of the result, from their image before."""
    if project.single_row:
        width = f.size(plan.slide.out.width)
        lines = f.mul(lines[0], width), f.mul(lines[1], width)
    with f.loop(0, project.panels) as panel:
        emit_panel(f, project, source, n, panel.index, lines)
