"""Direct convolution of blocked images: 1x1 as a matrix product over pixels, larger windows tap by tap.

    tile: rows x columns pixels of the output  x  `vectors` blocks of output channels, all in registers
    sums over (block of input channels, window row, window column, channel) without leaving them
The input's halo is its padding, so every tap of every pixel is a constant distance from the tile's first; adjacent loops
whose distances continue each other (window columns and channels, always) become one.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ... import dims, dtypes
from ...dims import Dimension
from ...ir import Constant, Layout, Node
from ...ops import Conv
from ...target import Target
from ..blocked import (
    Epilogue, Image, Window, clear_border, cover, equal_width, image_of, operand_layouts, pack_operand, packed_operands,
    plane_axes, place_in, typical, window_of, without_halo,
)
from ..emitter import Function
from ..kernel import ENTRY, Choice, Code, KernelText, single
from ..microkernel import Tile, fixed_rows, most_rows, multiply_add, step_time

PART_NS = 20_000  # parts of less work cost more to hand out than they gain
FEW_PARTS = 16  # how many a convolution is cut into where its size allows, so that eight threads balance


def channels_of(node: Node) -> tuple[int, int] | None:
    """(input, output) channels, None where they depend on the run."""
    x, out = node.inputs[0].shape, node.outputs[0].shape
    return (x[1], out[1]) if isinstance(x[1], int) and isinstance(out[1], int) and x[1] and out[1] else None


def is_plain(node: Node, rank: tuple[int, ...] = (1, 2)) -> bool:
    """Whether a Conv node has one floating-point type throughout, known channels and constant weights."""
    op = node.op
    if not isinstance(op, Conv) or len(op.strides) not in rank or channels_of(node) is None:
        return False
    x, w, out = node.inputs[0], node.inputs[1], node.outputs[0]
    same = x.dtype == w.dtype == op.accumulate == out.dtype and x.dtype in ("float32", "float64")
    return same and w.constant is not None and dims.product(w.shape) > 0


def window(node: Node) -> Window:
    op = node.op
    return window_of(node.inputs[1].shape[2:], op.strides, op.dilations, op.pads)


def halo_layout(halo: tuple[int, int], block: int, rank: int) -> Layout:
    return Layout(block, halo[2 - rank :])


def candidates(node: Node, target: Target):
    """One: the panel width that suits the number of output channels."""
    if not is_plain(node) or node.op.transposed or node.op.groups != 1:
        return
    x, out = node.inputs[0].type, node.outputs[0].type
    block, halo, rank = target.lanes(x.dtype), window(node).halo, x.rank - 2
    operands = operand_layouts(node, block)
    if halo is None or operands is None:
        return
    vectors = panel_width(target, -(-out.shape[1] // block))
    yield Choice(
        _module(), estimate(node, target, vectors), (("vectors", vectors), ("rows", most_rows(target, vectors))),
        (halo_layout(halo, block, rank), None, *operands), without_halo(block, rank), (1, *packed_operands(node)),
    )


def _module():
    from . import conv

    return conv


def panel_width(target: Target, blocks: int) -> int:
    """How many blocks of output channels a tile computes at once: the fewest multiply-adds a step, idle panels included."""
    def time(vectors: int) -> float:
        whole, rest = divmod(blocks, vectors)
        per_pixel = whole * step_time(target, most_rows(target, vectors), vectors) / most_rows(target, vectors)
        if rest:
            per_pixel += 1.05 * step_time(target, most_rows(target, vectors), rest) / most_rows(target, vectors)
        return per_pixel

    return min(range(1, min(blocks, 4) + 1), key=lambda v: (round(time(v), 6), abs(v - 2)))


def estimate(node: Node, target: Target, vectors: int) -> float:
    """Nanoseconds on one core: the multiply-adds of full tiles, and moving what is read and written once."""
    x, w, out = node.inputs[0].type, node.inputs[1].type, node.outputs[0].type
    block = target.lanes(x.dtype)
    pixels = typical(dims.product(out.shape[2:]) * out.shape[0])
    depth = dims.product(w.shape[1:])
    rows = most_rows(target, vectors)
    steps = pixels / rows * -(-out.shape[1] // block) / vectors
    compute = steps * (depth * step_time(target, rows, vectors) + 2 * rows * vectors / target.fma_per_ns)
    return compute + (typical(x.nbytes) + typical(out.nbytes) + w.nbytes) / target.bytes_per_ns


# Weights -----------------------------------------------------------------------------------------


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    """Weights as [panel][input block][tap][channel][vectors * block], output channels padded with zeros to whole blocks; the
    last panel is as narrow as what is left."""
    block = choice.output.block
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].type.rank, block)
    weights = node.inputs[1]
    blocks = -(-weights.shape[0] // block)
    depth = dims.product(weights.shape[1:])
    return Constant(weights.dtype, (blocks * block * depth,), lambda: pack_panels(weights.constant.array, block, choice["vectors"]))


def pack_panels(weights: np.ndarray, block: int, vectors: int) -> np.ndarray:
    """[O, C, taps...] → panels of `vectors` blocks of output channels, one after the other."""
    outputs, channels = weights.shape[:2]
    taps = weights.reshape(outputs, channels, -1)
    whole = channels - channels % block
    blocked = taps[:, :whole].reshape(outputs, whole // block, block, -1).swapaxes(2, 3)
    rest = taps[:, whole:].swapaxes(1, 2)
    depth = np.concatenate([blocked.reshape(outputs, -1), rest.reshape(outputs, -1)], axis=1)
    width, parts = block * vectors, []
    padded = -(-outputs // block) * block
    for first in range(0, padded, width):
        last = min(first + width, padded)
        panel = np.zeros((depth.shape[1], last - first), weights.dtype)
        panel[:, : max(0, min(last, outputs) - first)] = depth[first:last].T
        parts.append(panel.reshape(-1))
    return np.concatenate(parts)


# The plan of one convolution ---------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A convolution over images as they are stored. `start`: bytes from a plane's beginning to the first tap of pixel (0, 0);
    `widths`: tile widths, one for known sizes."""

    x: Image
    out: Image
    window: Window
    start: Dimension
    epilogue: Epilogue
    dtype: str
    vectors: int
    rows: int
    widths: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Multiply-adds of one output element."""
        return self.x.channels * self.window.taps

    @property
    def panels(self) -> int:
        return -(-self.out.blocks // self.vectors)

    @property
    def panel_bytes(self) -> int:
        return self.depth * self.vectors * self.out.pixel


def plan_of(node: Node, target: Target, vectors: int, win: Window) -> Plan:
    x, out = image_of(node.inputs[0].type), image_of(node.outputs[0].type)
    epilogue = Epilogue(node, out.block)
    if win.kernel == win.strides == (1, 1) and win.before == (0, 0) == x.halo == out.halo and epilogue.follows(out.width):
        x, out, win, epilogue = x.flat, out.flat, win, epilogue
    elif x.width == out.width == win.kernel[1] == 1 and x.halo[1] == out.halo[1] == 0 and win.before[1] == 0:
        x, out, win, epilogue = x.turned, out.turned, win.turned, epilogue.turned
    start = x.origin - win.before[0] * x.row - win.before[1] * x.pixel
    rows, widths = tile_shape(target, out.height, out.width, vectors)
    return Plan(x, out, win, start, epilogue, node.outputs[0].dtype, vectors, rows, widths)


def tile_shape(target: Target, height: Dimension, width: Dimension, vectors: int) -> tuple[int, tuple[int, ...]]:
    """(rows, widths) of tiles that cover an image in the least time. Several rows only where they divide the height."""
    most = most_rows(target, vectors)
    if not isinstance(width, int):
        return 1, tuple(sorted({max(1, most >> shift) for shift in range(5)}, reverse=True))
    if not width or height == 0:
        return 1, (1,)
    best = None
    for rows in range(1, most + 1):
        if rows > 1 and (not isinstance(height, int) or height % rows):
            continue
        columns = equal_width(width, most // rows)
        tiles = (height // rows if isinstance(height, int) else 1) * -(-width // columns)
        time = tiles * (1 + step_time(target, rows * columns, vectors))
        if best is None or time < best[0]:
            best = time, rows, (columns,)
    return best[1:]


@dataclass(frozen=True)
class Partition:
    """How the output is cut into parts: `lines` rows (or, of a single row, pixels) a part, panels `outermost` or not."""

    lines: int
    count: Dimension
    outermost: bool


def partition(plan: Plan, target: Target, work: float) -> Partition:
    """Rows whose input fits half the second-level cache, fewer where that makes enough parts; the order in which parts follow
    each other reads the less from outside that cache."""
    single_row = plan.out.height == 1
    length = plan.out.width if single_row else plan.out.height
    step = plan.widths[0] if single_row else plan.rows
    total, known = typical(plan.x.blocks * plan.x.plane), typical(length)
    half = target.level2_bytes // 2
    wanted = max(-(-total // half), min(FEW_PARTS, work / PART_NS) / (plan.panels * typical(plan.out.batch)))
    lines = max(step, int(known / wanted) // step * step)
    count = dims.maximum(1, length // lines)
    weights = plan.panels * plan.panel_bytes
    by_rows = weights * typical(count) + total
    by_panels = weights + total * (plan.panels if total > half else 1)
    return Partition(lines, count, by_panels <= by_rows)


# Code --------------------------------------------------------------------------------------------


def emit(node: Node, choice: Choice, target: Target) -> Code:
    plan = plan_of(node, target, choice["vectors"], window(node))
    k = KernelText(target)
    work = estimate(node, target, plan.vectors)
    cut = partition(plan, target, work)
    with k.entry() as f, f.loop("%first", "%last") as part:
        _part(k, f, plan, cut, part.index)
    for vectors in {plan.vectors, plan.out.blocks % plan.vectors} - {0}:
        if vectors <= plan.out.blocks:
            for width in plan.widths:
                _tile(k, plan, vectors, width)
    return single(k.step(plan.out.batch * plan.panels * cut.count, int(work)))


def _part(k: KernelText, f: Function, plan: Plan, cut: Partition, part: str) -> None:
    """One panel of output channels over the lines of one part."""
    if cut.outermost:
        rest, line = f.divide(part, k.size(f, cut.count))
        n, panel = f.divide(rest, plan.panels)
    else:
        rest, panel = f.divide(part, plan.panels)
        n, line = f.divide(rest, k.size(f, cut.count))
    first = f.mul(line, cut.lines)
    length = k.size(f, plan.out.width if plan.out.height == 1 else plan.out.height)
    final = f.compare("eq", line, k.size(f, cut.count - 1))
    last = f.select(final, "i64", length, f.add(first, cut.lines))
    whole, narrow = divmod(plan.out.blocks, plan.vectors)
    if whole and narrow:
        with f.when(f.compare("slt", panel, whole)):
            _panel(k, f, plan, n, panel, plan.vectors, first, last)
        with f.when(f.compare("eq", panel, whole)):
            _panel(k, f, plan, n, panel, narrow, first, last)
    else:
        _panel(k, f, plan, n, panel, plan.vectors, first, last)


def _panel(k: KernelText, f: Function, plan: Plan, n: str, panel: str, vectors: int, first: str, last: str) -> None:
    x, out, block = plan.x, plan.out, f.mul(panel, plan.vectors)
    image = f.offset(k.input(f, 0), f.add(k.size(f, plan.start), f.mul(n, k.size(f, x.blocks * x.plane))))
    weights = f.offset(k.input(f, 1), f.mul(panel, plan.panel_bytes))
    if out.halo != (0, 0):
        with f.loop(0, vectors) as loop:
            index = f.add(f.mul(n, out.blocks), f.add(block, loop.index))
            plane = f.offset(k.output(f), f.mul(index, k.size(f, out.plane)))
            if out.height == 1:  # the part with the first pixel clears the border
                clear_border(k, f, out, plane, 0, f.value(f"zext i1 {f.compare('eq', first, 0)} to i64"))
            else:
                clear_border(k, f, out, plane, first, last)

    def line(y: str, start: str, stop: str) -> None:
        source = f.offset(image, f.mul(y, k.size(f, x.row * plan.window.strides[0])))

        def tile(width: int, column: str) -> None:
            words = [
                "ptr %args", f"ptr {f.offset(source, f.mul(column, x.pixel * plan.window.strides[1]))}", f"ptr {weights}",
                f"ptr {out.address(k, f, k.output(f), n, block, y, column)}",
                *plan.epilogue.arguments(k, f, n, block, y, column),
            ]
            f.statement(f"call void @{_tile_name(vectors, width)}({', '.join(words)})")

        cover(f, start, stop, plan.widths, tile)

    if out.height == 1:
        line("0", first, last)
    else:
        with f.loop(first, last, plan.rows) as rows:
            line(rows.index, "0", k.size(f, out.width))


def _tile_name(vectors: int, width: int) -> str:
    return f"{ENTRY}.tile{width}x{vectors}"


def _tile(k: KernelText, plan: Plan, vectors: int, width: int) -> None:
    """The function that computes one tile: %a is the first tap of its first pixel, %b the panel, %out the pixel."""
    parameters = ["ptr noalias %args", "ptr noalias %a", "ptr noalias %b", "ptr noalias %out", *plan.epilogue.parameters]
    pixels = [(y, x) for y in range(plan.rows) for x in range(width)]
    tile = Tile(len(pixels), vectors, plan.out.block, plan.dtype, plan.dtype, plan.dtype)
    strides = plan.window.strides
    displacements = [(y * strides[0] * plan.x.row if y else 0) + x * strides[1] * plan.x.pixel for y, x in pixels]
    with k.text.function(_tile_name(vectors, width), parameters, attributes="noinline nounwind") as f:
        sums = plan.epilogue.start(k, f, vectors) * len(pixels)
        sums = accumulate(k, f, tile, sums, plan.x, plan.window, displacements)
        place, constants = place_in(k, f, plan.out, "%out"), plan.epilogue.constants(k, f, vectors)
        for p, (y, x) in enumerate(pixels):
            for j in range(vectors):
                plan.epilogue.put(k, f, sums[p * vectors + j], j, y, x, place, constants)
        plan.epilogue.rework(k, f, (range(plan.rows), range(width)), vectors, (0, 0), place, constants)
        f.statement("ret void")


def accumulate(k: KernelText, f: Function, tile: Tile, sums: list[str], x: Image, win: Window,
               displacements: Sequence[int]) -> list[str]:
    """The sums of a tile whose pixels are `displacements` bytes from %a, over all taps and channels; %b is the panel."""
    whole, rest = divmod(x.channels, x.block)
    taps = [(win.kernel[0], x.row * win.dilations[0]), (win.kernel[1], x.pixel * win.dilations[1])]
    a, b = "%a", "%b"
    if whole:
        loops, depth = merged([(whole, x.plane), *taps], x.block, x.itemsize)
        sums, b = _nest(k, f, tile, sums, a, b, loops, depth, displacements)
    if rest:
        a = f.offset(a, k.size(f, whole * x.plane))
        loops, depth = merged(taps, rest, x.itemsize)
        sums, b = _nest(k, f, tile, sums, a, b, loops, depth, displacements)
    return sums


def merged(loops: Sequence[tuple[int, Dimension]], depth: int, size: int) -> tuple[list[tuple[int, Dimension]], int]:
    """Loops (count, bytes a step), outermost first, around `depth` contiguous elements: those that continue what is inside
    them become part of it, those of one iteration vanish."""
    kept = [loop for loop in loops if loop[0] != 1]
    while kept and kept[-1][1] == depth * size:
        depth *= kept.pop()[0]
    return kept, depth


def _nest(k: KernelText, f: Function, tile: Tile, sums: list[str], a: str, b: str, loops: Sequence[tuple[int, Dimension]],
          depth: int, displacements: Sequence[int]) -> tuple[list[str], str]:
    """multiply_add inside loops that carry the accumulators; returns them and where the panel goes on."""
    if not loops:
        rows = fixed_rows(a, displacements, dtypes.itemsize(tile.lhs))
        sums = multiply_add(f, tile, sums, rows, b, depth)
        return sums, f.offset(b, depth * tile.panel_step)
    (count, stride), *inner = loops
    kinds = ["ptr", "ptr", *[tile.vector] * len(sums)]
    with f.loop(0, count, carried=list(zip(kinds, [a, b, *sums]))) as loop:
        inside, panel, *values = loop.carried
        values, panel = _nest(k, f, tile, values, inside, panel, inner, depth, displacements)
        loop.carry(f.offset(inside, k.size(f, stride)), panel, *values)
    return loop.results[2:], loop.results[1]
