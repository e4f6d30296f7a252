"""Convolutions whose groups share a block: depthwise, and groups of few channels.

    a window slides along `rows` output rows at once, so that every input pixel is loaded once a strip and
    only the outputs whose window covers it are open; a vector is a block of output channels
A lane needs the input channels of its own group. Depthwise, that is the same lane; else the vector
is permuted once for each channel of a group. Weights stay in registers where all taps fit. Where the few
open sums would wait for each other, windows go through a row line by line: all sums of a tile are open then,
and registers hold the weights of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import ClassVar, Protocol, Self, TypeVar

import numpy as np

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.kernel_limits import UNROLLED_PRODUCTS
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, nearest, offered, single
from ..text.emitter import ENTRY, Function, scalar_type, vector_type
from ..tiles.blocked import (
    Image,
    Window,
    clear_border,
    cover,
    equal_width,
    halo_layout,
    image_of,
    plane_axes,
    slide,
    without_halo,
)
from ..tiles.blocked_epilogue import (
    Epilogue,
    Finish,
    operand_layouts,
    oriented,
    pack_operand,
    packed_operands,
)
from ..tiles.channel_panels import Panels
from ..tiles.lines import InLines, Lines, cut_lines, shared_lines
from ..tiles.microkernel import fused
from ..tiles.panel_operand import load_widened
from ..tiles.run_packing import RunPanels, packed_by_run, packing_estimate
from .conv import is_plain, window

MOST_TAPS = 1024  # of one output element, which are unrolled
FREE = 4  # registers for the epilogue, where weights stay in the others
COLUMNS, FEWER = 8, 4  # of a tile, and of one that goes column by column through more taps than SHORT
SHORT = 25


@dataclass(frozen=True)
class Lanes:
    """Which input channels a block of output channels reads: `span` contiguous ones, of which lane
    l uses the `inside` from number l // made * inside on."""

    block: int
    inside: int  # input channels of a group
    made: int  # output channels of a group

    @property
    def span(self) -> int:
        return self.block // self.made * self.inside

    @property
    def plain(self) -> bool:
        """Whether every lane reads its own channel."""
        return self.inside == self.made == 1

    def permutation(self, channel: int) -> list[int]:
        """The lane of the span that each lane reads for one channel of its group."""
        return [lane // self.made * self.inside + channel for lane in range(self.block)]


@dataclass(frozen=True)
class Tiling:
    """`rows` output rows of a strip; `by_lines`: of a tile's columns all sums are open."""

    rows: int
    by_lines: bool = False


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """Strips that are about as fast, for groups that divide a block of output channels and read no more than
    a block."""
    if not (is_plain(node) or _is_narrow(node)) or node.op.transposed or node.op.groups == 1:
        return
    x = node.inputs[0].tensor
    block, win, rank = target.block, window(node), x.rank - 2
    lanes = lanes_of(node, block)
    operands = operand_layouts(node, block)
    if lanes is None or win.halo is None or operands is None:
        return
    if not unrolls(win, lanes):
        return
    found = ((_estimate(node, target, win, lanes, t), t) for t in _tilings(node, target, win, lanes))
    for cost, tiling in nearest(found):
        yield Offer(
            cost + packing_estimate(node, target),
            tiling,
            (halo_layout(win.halo, block, rank), None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )


def unrolls(win: Window, lanes: Lanes) -> bool:
    """Whether all products of one output element are written down."""
    return win.taps <= MOST_TAPS if lanes.plain else win.taps * lanes.inside <= UNROLLED_PRODUCTS


def _is_narrow(node: Node) -> bool:
    """Whether images of bfloat16s are multiplied with constant weights of float32."""
    op = node.op
    if not isinstance(op, Conv) or len(op.strides) > 2 or not isinstance(node.inputs[0].shape[1], int):
        return False
    x, w = node.inputs[0], node.inputs[1]
    types = (x.dtype, w.dtype, op.accumulate)
    return types == ("bfloat16", "float32", "float32") and w.constant is not None and w.data.nbytes > 0


def lanes_of(node: Node[Conv], block: int) -> Lanes | None:
    """How the groups of a Conv node lie in blocks; None where these do not hold whole ones."""
    inside, made = (dims.number(v.shape[1]) // node.op.groups for v in (node.inputs[0], node.outputs[0]))
    lanes = Lanes(block, inside, made)
    return lanes if block % made == 0 and block % lanes.span == 0 else None


def _tilings(node: Node[Conv], target: Target, win: Window, lanes: Lanes) -> Iterator[Tiling]:
    """Strips of two rows, which share what they read, where no strip is left with one and weights do not
    leave registers for it, else of one; and of one row line by line."""
    height, sums = plane_axes(node.outputs[0].shape[2:], 1)[0], node.op.accumulate
    one, two = (_resident(target, win, lanes, open_sums(win, rows), sums) for rows in (1, 2))
    yield Tiling(2 if isinstance(height, int) and height % 2 == 0 and two >= one else 1)
    if goes_by_lines(win, lanes):
        yield Tiling(1, by_lines=True)


def goes_by_lines(win: Window, lanes: Lanes) -> bool:
    """Whether sums may be made line by line of the window: it has several, and lanes read channels of their
    own."""
    return lanes.plain and win.kernel[0] > 1


def open_sums(win: Window, rows: int) -> int:
    """Of a strip whose window goes through it column by column."""
    return rows * -(-win.extent[1] // win.strides[1])


def _resident(target: Target, win: Window, lanes: Lanes, sums: int, dtype: str) -> bool:
    """Whether all weights stay in registers, with so many open sums and a pixel of a group."""
    vectors = win.taps * lanes.inside + sums + lanes.inside
    return vectors * target.registers(dtype, lanes.block) + FREE < target.vector_registers


def widths_of(target: Target, products: int, width: Dimension, by_lines: bool = False) -> tuple[int, ...]:
    """Outputs along a row that one iteration computes; code grows with them and with the products.
    Where arithmetic does not read memory LLVM loads all inputs of an iteration first, so that many
    would be spilled."""
    most = COLUMNS if by_lines or products <= SHORT else FEWER
    most = most if target.memory_operands else max(1, most // 2)
    if isinstance(width, int):
        return (equal_width(width, most),)
    return tuple(w for w in (8, 4, 2, 1) if w <= most)


def _estimate(node: Node[Conv], target: Target, win: Window, lanes: Lanes, tiling: Tiling) -> Estimate:
    """The tiles of all strips, the epilogue, and moving everything once."""
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    products, (height, width) = win.taps * lanes.inside, plane_axes(out.shape[2:], 1)
    rows, columns = tiling.rows, widths_of(target, products, width, tiling.by_lines)[0]
    blocks = dims.typical(out.shape[0]) * -(-dims.number(out.shape[1]) // lanes.block)
    strips = blocks * -(-dims.typical(height) // rows)
    tiles = strips * -(-dims.typical(width) // columns)
    span = [(n - 1) * stride + extent for n, stride, extent in zip((rows, columns), win.strides, win.extent)]
    open_ = rows * columns if tiling.by_lines else min(rows * columns, open_sums(win, rows))
    resident = _resident(target, win, lanes, open_, node.op.accumulate)
    read = products if tiling.by_lines else rows * columns * products
    weights = 0 if resident else read  # each time
    shuffles = 0 if lanes.plain else span[0] * span[1] * lanes.inside
    sums = node.op.accumulate
    registers = target.registers(sums, lanes.block)
    converted = 0 if x.dtype == sums else span[0] * span[1]
    others, loads = rows * columns + shuffles + converted, span[0] * span[1] + weights
    adds = rows * columns * products
    time = costs.step_time(target, adds * registers, loads * registers, others=others * registers)
    time = max(time, adds / open_ * target.facts.latency)  # sums wait for each other
    found = Estimate(compute=time * tiles) + costs.overhead(target, costs.DEPTHWISE_TILE * tiles)
    return found + around_tiles(target, node)


def around_tiles(target: Target, node: Node[Conv]) -> Estimate:
    """Weights, the epilogue, and moving everything once."""
    found = costs.stored(target, dims.number(node.inputs[1].tensor.nbytes))
    found += costs.epilogue(target, node, node.op.accumulate)
    return found + costs.traffic(target, node) + costs.step(target)


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> Constant | None:
    """Weights as [block of output channels][tap][channel of the group][block], idle lanes zero."""
    block = choice.block
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].tensor.rank, block)
    weights = node.inputs[1].data
    outputs, inside = weights.shape[:2]
    taps, blocks = dims.product(weights.shape[2:]), -(-outputs // block)

    def make() -> np.ndarray:
        padded = np.zeros((blocks * block, inside, taps), dtypes.numpy_dtype(weights.dtype))
        padded[:outputs] = weights.array.reshape(outputs, inside, taps)
        return np.ascontiguousarray(padded.reshape(blocks, block, inside, taps).transpose(0, 3, 2, 1))

    return Constant(weights.dtype, (blocks, taps, inside, block), make)


@dataclass(frozen=True)
class DepthwisePlan(InLines):
    """A convolution over images as they are stored, in strips of `rows` rows, and of single ones behind."""

    x: Image
    out: Image
    window: Window
    epilogue: Epilogue
    lanes: Lanes
    rows: int
    widths: tuple[int, ...]
    by_lines: bool = field(default=False, kw_only=True)
    apart: int = field(default=0, kw_only=True)  # how far a group's operands are from those of this member

    strip_parameters: ClassVar[tuple[str, ...]] = ()  # of a strip's function, further ones

    def strip_words(self, f: KernelFunction, y: str) -> list[str]:
        """The arguments for these, of the strip that begins with row y."""
        return []

    @property
    def leaves_rows(self) -> bool:
        """Whether strips may leave rows, which are then computed one by one."""
        height = self.out.height
        return self.rows > 1 and not (isinstance(height, int) and height % self.rows == 0)

    def of_single_rows(self) -> Self:
        """The same in strips of a row each."""
        return replace(self, rows=1)

    @property
    def start(self) -> Dimension:
        """Bytes from a plane's beginning to the first tap of pixel (0, 0)."""
        return self.x.origin - self.window.before[0] * self.x.row - self.window.before[1] * self.x.pixel

    @property
    def products(self) -> int:
        return self.window.taps * self.lanes.inside

    @property
    def block_bytes(self) -> int:
        """Of the weights of a block of output channels."""
        return self.products * self.out.block * dtypes.itemsize(self.epilogue.sums)

    @property
    def weight_bytes(self) -> int:
        return self.out.blocks * self.block_bytes

    @property
    def run_panels(self) -> RunPanels:
        """Of weights that the run knows: a panel is a block, every lane of it has the channels of its
        group."""
        inside, kinds = self.lanes.inside, [Panels(0, self.out.blocks, 0, 1, self.out.block)]
        return RunPanels(
            kinds,
            self.out.block,
            inside,
            lambda f, _, panel: (f.mul(panel, self.block_bytes), "0", str(inside)),
        )


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    x, out, win = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor), window(node)
    lanes = offered(lanes_of(node, out.block), node)
    x, out, win, epilogue = oriented(x, out, win, Epilogue(node, out.block))
    rows, by_lines = strip_rows(out, choice.tiling.rows), choice.tiling.by_lines and goes_by_lines(win, lanes)
    widths = widths_of(target, win.taps * lanes.inside, out.width, by_lines)
    plan = DepthwisePlan(x, out, win, epilogue, lanes, rows, widths, by_lines=by_lines)
    code = emit_strips(plan, target, choice.cost, FloatStrip)
    return packed_by_run(node, code, target, plan.weight_bytes, [plan.run_panels])


def strip_rows(out: Image, rows: int) -> int:
    """Rows of a strip of an image as it is oriented."""
    return min(rows, out.height) if isinstance(out.height, int) and out.height > 0 else rows


class Strip(Protocol):
    """Writes the function of a strip: `tile` some columns of it, from one on; `end` what is left to be done
    for columns start..stop-1 behind their tiles."""

    def tile(self, width: int, column: str) -> None: ...

    def end(self, start: str, stop: str) -> None: ...


PlanT = TypeVar("PlanT", bound=DepthwisePlan)


def emit_strips(
    plan: PlanT, target: Target, cost: Estimate, strip: Callable[[KernelFunction, PlanT], Strip]
) -> Code:
    """The code of a plan; a part is some lines of a block of output channels."""
    out, step = plan.out, plan.widths[0] if plan.single_row else plan.rows
    cut = cut_lines(plan.length, step, out.blocks * out.batch, cost.total)
    if shares_lines(out):
        cut = Lines(plan.length, step)
    k = KernelText(target)
    with k.entry() as f:
        if shares_lines(out):
            with shared_lines(f, cut, out.blocks, out.batch) as place:
                _block(f, plan, *place)
        else:
            with f.loop("%first", "%last") as part:
                plane, chunk = f.divide(part.index, f.size(cut.count))
                _block(f, plan, *f.divide(plane, out.blocks), cut.at(f, chunk))
    emit_strip(k, plan, strip)
    work = costs.work(cost, out.batch * out.height * out.width)
    unit = out.blocks if shares_lines(out) else 1
    return single(k.step(out.batch * out.blocks * cut.count, work, unit=unit))


def shares_lines(out: Image) -> bool:
    """Whether threads share lines rather than channels, as those of a 1x1 convolution next to it do that has
    a quarter as many on its other side (`conv_plan.shares_lines`)."""
    return 4 * dims.typical(out.height * out.width) >= out.channels


def _block(f: KernelFunction, plan: DepthwisePlan, n: str, block: str, lines: tuple[str, str]) -> None:
    """Some lines of one block of output channels."""
    x, out, lanes = plan.x, plan.out, plan.lanes
    first, last = lines
    source, lane = f.divide(f.mul(block, lanes.span), lanes.block)
    image = f.offset(f.input(0), f.mul(n, f.size(x.image)))
    pixels = f.offset(f.offset(image, f.size(plan.start)), f.mul(source, f.size(x.plane)))
    pixels = f.offset(pixels, f.mul(lane, x.itemsize))
    target = f.offset(f.output(), f.add(f.mul(n, f.size(out.image)), f.mul(block, f.size(out.plane))))
    if plan.single_row:  # the part with the first pixel clears the border
        clear_border(f, out, target, 0, f.cast("zext", f.compare("eq", first, 0), "i64"))
    else:
        clear_border(f, out, target, first, last)
    whole = "0", f.size(out.width)
    rows, columns = (("0", "1"), (first, last)) if plan.single_row else ((first, last), whole)
    emit_block(f, plan, pixels, target, n, block, rows, columns)


def emit_block(
    f: KernelFunction,
    plan: DepthwisePlan,
    pixels: str,
    target: str,
    n: str,
    block: str,
    rows: tuple[str, str],
    columns: tuple[str, str],
) -> None:
    """Some rows and columns of one block of output channels: `pixels` is the first tap of pixel (0, 0),
    `target` where the block's plane begins. Only of a single row are not all columns computed."""
    x, out = plan.x, plan.out
    weights = f.offset(f.input(1 + plan.apart), f.mul(block, plan.block_bytes))
    first, last = rows
    whole = f.add(first, f.round_down(f.sub(last, first), plan.rows)) if plan.leaves_rows else last

    def strips(first: str, last: str, count: int) -> None:
        with f.loop(first, last, count) as row:
            y = row.index
            words = [
                "ptr %args",
                f"ptr {f.offset(pixels, f.mul(y, f.size(x.row * plan.window.strides[0])))}",
                f"ptr {weights}",
                f"ptr {out.address(f, target, 0, 0, y)}",
                *(f"i64 {c}" for c in columns),
                *plan.strip_words(f, y),
                *plan.epilogue.arguments(f, n, block, y, 0),
            ]
            f.statement(f"call void @{ENTRY}.strip{count}({', '.join(words)})")

    strips(first, whole, plan.rows)
    if plan.leaves_rows:
        strips(whole, last, 1)


def emit_strip(k: KernelText, plan: PlanT, strip: Callable[[KernelFunction, PlanT], Strip]) -> None:
    """The function that computes columns %start..%stop-1 of a strip, and the one of a row that is left: %a is
    the first tap of its first pixel, %b the weights, %out the pixel."""
    if plan.leaves_rows:
        emit_strip(k, plan.of_single_rows(), strip)
    parameters = [
        "ptr %args",
        "ptr noalias %a",
        "ptr noalias %b",
        "ptr noalias %out",
        "i64 %start",
        "i64 %stop",
        *plan.strip_parameters,
        *plan.epilogue.parameters,
    ]
    start, stop = ("%start", "%stop") if plan.single_row else ("0", None)
    with k.function(f"{ENTRY}.strip{plan.rows}", parameters, attributes="noinline nounwind") as f:
        tiles, behind = strip(f, plan), stop or f.size(plan.out.width)
        cover(f, start, behind, plan.widths, tiles.tile)
        tiles.end(start, behind)
        f.statement("ret void")


class StripSums:
    """The function of a strip at work: what sums begin with, what they add, how they end."""

    def __init__(self, f: KernelFunction, plan: DepthwisePlan):
        self.f, self.plan, self.dtype = f, plan, plan.epilogue.sums
        self.size = plan.out.block * dtypes.itemsize(self.dtype)
        element = scalar_type(self.dtype)
        self.kind, self.source = (vector_type(element, n) for n in (plan.out.block, plan.lanes.span))
        self.panel = "%b"  # the weights that are read
        self.initial = plan.epilogue.start(f, 1)[0]
        self.finish = {w: Finish(plan.epilogue, f, plan.out, 1, (plan.rows, w)) for w in plan.widths}

    def end(self, start: str, stop: str) -> None:
        finished = self.finish[self.plan.widths[0]]
        if finished.by_lines:
            finished.rework((0, self.plan.rows), start, self.f.sub(stop, start))

    def weight(self, product: int) -> str:
        return self.f.load(self.kind, self.f.offset(self.panel, product * self.size), min(64, self.size))

    def pixel(self, place: str) -> list[str]:
        """The vectors of a pixel, one for each channel inside of a group."""
        f, x, lanes = self.f, self.plan.x, self.plan.lanes
        value = load_widened(f, x.dtype, self.dtype, lanes.span, place, min(64, lanes.span * x.itemsize))
        if lanes.plain:
            return [value]
        return [permuted(f, self.source, value, lanes.permutation(c)) for c in range(lanes.inside)]


class FloatStrip(StripSums):
    """One whose weights may stay in registers, and where each line of taps begins."""

    def __init__(self, f: KernelFunction, plan: DepthwisePlan):
        super().__init__(f, plan)
        win, x = plan.window, plan.x
        self.loaded: dict[int, str] = {}  # weights of a tile, where all its columns read them
        self.weights = [self.weight(p) for p in range(plan.products)] if self.resident() else None
        count = (plan.rows - 1) * win.strides[0] + win.extent[0]
        self.lines = [f.offset("%a", f.size(iy * x.row)) for iy in range(count)]

    def resident(self) -> bool:
        """Whether weights stay in registers."""
        plan, win = self.plan, self.plan.window
        sums = plan.widths[0] if plan.by_lines else open_sums(win, plan.rows)
        return _resident(self.f.target, win, plan.lanes, sums, self.dtype)

    def tile(self, width: int, column: str) -> None:
        """`width` columns from one on."""
        f, plan, win = self.f, self.plan, self.plan.window
        at = [f.offset(line, f.mul(column, win.strides[1] * plan.x.pixel)) for line in self.lines]
        finished = self.finish[width].beginning(column)

        def done(y: int, x: int, state: str) -> None:
            finished.put(state, 0, y, f.add(column, x))

        self.loaded.clear()
        slide(win, plan.rows, width, partial(self.load, at), self.combine, done, by_lines=plan.by_lines)
        if not finished.by_lines:
            finished.rework((0, plan.rows), column, width)

    def load(self, lines: Sequence[str], iy: int, ix: int) -> list[str]:
        return self.pixel(self.f.offset(lines[iy], ix * self.plan.x.pixel))

    def combine(self, state: str | None, values: list[str], ky: int, kx: int) -> str:
        """state with one tap more."""
        f, plan = self.f, self.plan
        state = self.initial if state is None else state
        first = (ky * plan.window.kernel[1] + kx) * plan.lanes.inside
        for p, value in enumerate(values, first):
            tap = self.weights[p] if self.weights else self.loaded.get(p) or self.weight(p)
            if plan.by_lines:
                self.loaded[p] = tap
            state = fused(f, self.dtype, plan.out.block, value, tap, state)
        return state


def permuted(f: Function, kind: str, value: str, lanes: Sequence[int]) -> str:
    """The lanes of a value that these name; all the same of one that is a number."""
    if not kind.startswith("<"):
        return f.broadcast(kind, value, len(lanes))
    return f.shuffle(value, "poison", lanes, kind)
