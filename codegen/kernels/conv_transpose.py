"""Transposed convolution: one ordinary convolution for every place in a square of strides.

Output pixels whose coordinates leave the same remainder by the strides use the same taps; on the
lattice that they form, their convolution has stride 1. All lattices are written by one part after
the other, so that the input is read once. Few output channels would leave most lanes of blocks
idle: where windows do not overlap, all results of one input pixel then share a vector, and the
output is dense.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, single
from ..text.emitter import ENTRY, Function, scalar_type, vector_type
from ..text.scalar import lower
from ..tiles.blocked import (
    Image,
    Window,
    bounded_halo,
    clear_planes,
    cover,
    equal_width,
    halo_layout,
    image_of,
    lattice,
    plane_axes,
    without_halo,
)
from ..tiles.blocked_epilogue import Epilogue, operand_layouts, pack_operand, packed_operands
from ..tiles.channel_panels import Panels, PanelTiling, by_depth, in_panels, panel_tiling, panels_of
from ..tiles.conv_plan import ConvPlan, emit_panel, emit_tiles, tile_estimate, tile_shape
from ..tiles.lines import Lines, cut_lines
from ..tiles.microkernel import Tile, most_rows, waits
from ..tiles.panel_operand import Panel
from ..tiles.run_packing import RunPanels, packed_by_run, packing_estimate
from ..tiles.window_sums import accumulate
from .conv import is_plain

MOST_LATTICES = 64  # each has its own code


@dataclass(frozen=True)
class LaneTiling:
    """All results of one input pixel in `lanes` lanes."""

    lanes: int


Tiling = PanelTiling | LaneTiling


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """Blocked output for any window; dense output for few channels and windows that do not
    overlap."""
    if (
        not is_plain(node)
        or not node.op.transposed
        or node.op.groups != 1
        or not dims.is_static(node.op.pads)
    ):
        return
    if dims.product(node.op.strides) > MOST_LATTICES:
        return
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    block, rank = target.block, x.rank - 2
    halo, operands = _halo(node), operand_layouts(node, block)
    if halo is not None and operands is not None:
        tiling = panel_tiling(target, dims.number(out.shape[1]), block, x.dtype)
        yield Offer(
            _estimate(node, target, tiling),
            tiling,
            (halo_layout(halo, block, rank), None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )
    lanes = _lanes(node, block)
    if lanes is not None and node.inputs[1].constant is not None:
        pixels = dims.typical(dims.product(x.shape[2:]) * x.shape[0])
        cost = costs.compute(target, pixels * dims.number(x.shape[1]) * costs.SPREAD)
        narrow = target.lanes(x.dtype) / lanes  # the epilogue is that of so few lanes as well
        cost += costs.traffic(target, node) + costs.step(target)
        cost += costs.epilogue(target, node, x.dtype) * max(1.0, narrow)
        yield Offer(
            cost,
            LaneTiling(lanes),
            (without_halo(block, rank), None, *(None for _ in node.inputs[2:])),
            None,
            (1, *_channel_constants(node)),
        )


def _estimate(node: Node[Conv], target: Target, tiling: PanelTiling) -> Estimate:
    x, w, out = node.inputs[0].tensor, node.inputs[1].tensor, node.outputs[0].tensor
    pixels, rows = dims.typical(dims.product(out.shape[2:]) * out.shape[0]), tiling.rows
    channels, outputs, *taps = dims.numbers(w.shape)
    depth = channels * dims.product(taps) / dims.product(node.op.strides)
    found = costs.step(target) + costs.stored(target, dims.number(w.nbytes))
    found += costs.traffic(target, node) + costs.epilogue(target, node, x.dtype)
    found += packing_estimate(node, target)
    for p in panels_of(outputs, target.block, tiling.vectors, tiling.tail):
        found += tile_estimate(target, depth, rows, p.registers(target, x.dtype)) * (pixels / rows * p.count)
    return found


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> Constant | None:
    """Weights as the panels of each lattice, one after the other from multiples of 64 bytes on; or
    as [channel][lanes]."""
    tiling = choice.tiling
    if isinstance(tiling, LaneTiling):
        return _pack_lanes(node, tiling.lanes, operand)
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, choice.block)
    block, weights = choice.block, node.inputs[1].data
    kinds, places = panels_of(weights.shape[1], block, tiling.vectors, tiling.tail), _places(node)
    unit, width = 64 // dtypes.itemsize(weights.dtype), sum(p.count * p.width for p in kinds)
    depths = [weights.shape[0] * len(rows.taps) * len(columns.taps) for rows, columns in places]

    def make() -> np.ndarray:
        array = weights.array
        array = array.reshape(*array.shape[:2], *plane_axes(array.shape[2:], 1)).swapaxes(0, 1)
        parts = []
        for (rows, columns), depth in zip(places, depths):
            if depth:
                packed = in_panels(by_depth(array[:, :, rows.taps][:, :, :, columns.taps], block), kinds)
                parts.append(np.pad(packed, (0, -len(packed) % unit)))
        return np.concatenate(parts)

    return Constant(weights.dtype, (sum(-(-width * depth // unit) * unit for depth in depths),), make)


# Lattices ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Residue:
    """The output's coordinates first, first + stride, ... along one axis: which taps they use, in
    the order of the input that they read, how far these lie apart there, and the padding that they
    need."""

    first: int
    taps: tuple[int, ...]
    dilation: int
    before: int
    after: Dimension


def _residues(
    taps: int, stride: int, dilation: int, pad: int, size: Dimension, out: Dimension
) -> list[Residue]:
    """Output o gets input i through tap t where o + pad = i * stride + t * dilation."""
    found = []
    for first in range(stride):
        start, rest = divmod(first + pad, stride)
        used = [t for t in reversed(range(taps)) if t * dilation % stride == rest]
        back = [(t * dilation - rest) // stride for t in used]  # input = start - back, for the first output
        count = dims.ceil_divide(out - first, stride)
        step = back[0] - back[1] if len(back) > 1 else 1
        before, after = (back[0] - start, start + count - back[-1] - size) if used else (0, 0)
        found.append(Residue(first, tuple(used), step, before, after))
    return found


def _axes(node: Node[Conv]) -> list[list[Residue]]:
    op, rank = node.op, len(node.op.strides)
    kernel, strides, dilations, pads = (
        plane_axes(values, fill)
        for values, fill in (
            (dims.numbers(node.inputs[1].shape[2:]), 1),
            (op.strides, 1),
            (op.dilations, 1),
            (dims.numbers(op.pads[:rank]), 0),
        )
    )
    sizes, outs = (plane_axes(v.shape[2:], 1) for v in (node.inputs[0], node.outputs[0]))
    return [_residues(*facts) for facts in zip(kernel, strides, dilations, pads, sizes, outs)]


def _places(node: Node[Conv]) -> list[tuple[Residue, Residue]]:
    rows, columns = _axes(node)
    return [(row, column) for row in rows for column in columns]


def _halo(node: Node[Conv]) -> tuple[int, int] | None:
    return bounded_halo([[side for r in axis for side in (r.before, r.after)] for axis in _axes(node)])


@dataclass(frozen=True)
class LatticePlan(ConvPlan):
    """The convolution of one lattice; `weights` bytes into the packed weights; `taps`: the numbers of those
    that it has; `behind`: the lattice whose panel is read behind this one's, that of the next channels where
    this is the `last` lattice."""

    weights: int = 0
    taps: tuple[int, ...] = ()
    one_row: bool = False
    behind: LatticePlan | None = None
    last: bool = False

    @property
    def single_row(self) -> bool:
        return self.one_row

    def tile_name(self, panels: Panels, width: int) -> str:
        return f"{super().tile_name(panels, width)}taps{'x'.join(map(str, self.window.kernel))}"

    def panel_offset(self, f: Function, panels: Panels, panel: str) -> str:
        return f.add(self.weights, super().panel_offset(f, panels, panel))

    def next_bytes(self, panels: Panels) -> int:
        return (self.behind or self).column_bytes * panels.width

    def next_panel(self, f: KernelFunction, panels: Panels, panel: str) -> str:
        behind = self.behind or self
        return f.add(behind.panel_offset(f, panels, panel), self.last * self.next_bytes(panels))

    @property
    def run_panels(self) -> RunPanels:
        return replace(super().run_panels, taps=self.taps)


def _plans(node: Node[Conv], target: Target, tiling: PanelTiling) -> list[LatticePlan]:
    x, out = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor)
    epilogue, strides = Epilogue(node, out.block), plane_axes(node.op.strides, 1)
    kinds = tuple(panels_of(out.channels, out.block, tiling.vectors, tiling.tail))
    plans, weights = [], 0
    _, across = plane_axes(dims.numbers(node.inputs[1].shape[2:]), 1)
    for rows, columns in _places(node):
        win = Window(
            (len(rows.taps), len(columns.taps)),
            (1, 1),
            (rows.dilation, columns.dilation),
            (rows.before, columns.before),
            (rows.after, columns.after),
        )
        first = rows.first, columns.first
        points = lattice(out, first, strides)
        start = x.origin - win.before[0] * x.row - win.before[1] * x.pixel
        depth = x.channels * win.taps
        _, widths = tile_shape(target, (None, points.width), kinds, node.op.accumulate, depth)
        plans.append(
            LatticePlan(
                x,
                points,
                win,
                start,
                epilogue.on_lattice(first, strides),
                node.op.accumulate,
                kinds,
                1,
                widths,
                weights=weights,
                taps=tuple(row * across + column for row in rows.taps for column in columns.taps),
                one_row=out.height == 1,
            )
        )
        weights += -(-plans[-1].weight_bytes // 64) * 64
    return _fetching([p for p in plans if p.out.height != 0 and p.out.width != 0], target)


def _fetching(plans: list[LatticePlan], target: Target) -> list[LatticePlan]:
    """Plans whose tiles fetch the panel behind theirs, where tiles would wait for weights."""
    behind = [*plans[1:], *plans[:1]]
    plans = [replace(p, behind=b, last=p is plans[-1]) for p, b in zip(plans, behind)]
    fetched = waits(target) and any(not p.once for p in plans)
    return [replace(p, fetched=fetched) for p in plans]


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    tiling = choice.tiling
    if isinstance(tiling, LaneTiling):
        return _emit_lanes(node, tiling.lanes, choice.cost, target)
    out, k = image_of(node.outputs[0].tensor), KernelText(target)
    plans = _plans(node, target, tiling)
    kinds = panels_of(out.channels, out.block, tiling.vectors, tiling.tail)
    count = sum(p.count for p in kinds)
    cut = _partition(plans, count * out.batch, choice.cost)
    with k.entry() as f, f.loop("%first", "%last") as part:
        rest, chunk = f.divide(part.index, f.size(cut.count))
        n, panel = f.divide(rest, count)
        with f.when(f.compare("eq", f.add(chunk, panel), 0)):
            clear_planes(f, out, n, "0", out.blocks, ("0", f.size(out.height)))
        for plan in plans:
            image = f.offset(f.input(0), f.mul(n, f.size(plan.x.image)))
            source = f.offset(image, f.size(plan.start))
            emit_panel(f, plan, source, n, panel, cut.at(f, chunk, plan.length))
    for plan in {p.window.kernel: p for p in plans}.values():  # one a name, for lattices of all widths
        alike = [p.widths for p in plans if p.window.kernel == plan.window.kernel]
        emit_tiles(k, replace(plan, widths=tuple({width: None for widths in alike for width in widths})))
    work = costs.work(choice.cost, out.batch * out.height * out.width)
    code = single(k.step(out.batch * count * cut.count, work))
    nbytes = max((plan.weights + plan.weight_bytes for plan in plans), default=0)
    return packed_by_run(node, code, target, nbytes, [plan.run_panels for plan in plans if plan.taps])


def _partition(plans: list[LatticePlan], planes: Dimension, cost: Estimate) -> Lines:
    """Lines of all lattices, whose lengths differ by one at most."""
    if not plans:
        return Lines(0, 1)
    step = max(p.widths[0] for p in plans) if plans[0].single_row else 1
    return cut_lines(plans[-1].length, step, planes, cost.total)


# Few channels, windows side by side --------------------------------------------------------------


def _lanes(node: Node[Conv], block: int) -> int | None:
    """Lanes for all results of one input pixel, a power of two; None where they do not fit half a
    vector or the epilogue reads more than numbers for channels."""
    op, w, rank = node.op, node.inputs[1], len(node.op.strides)
    apart = w.shape[2:] == op.strides and set(op.dilations) == {1} and not op.padded
    results = dims.product(dims.numbers(w.shape[1:]))
    if not apart or any(op.output_padding) or not 1 < results <= block // 2:
        return None
    if node.outputs[0].dtype != op.accumulate:
        return None
    body, constants = op.epilogue, _channel_constants(node)
    if body is not None and any(e.op in ("index", "check") for e in expr.topological(body)):
        return None
    others = [v for i, v in enumerate(node.inputs[2:], 2) if i not in constants]
    if any(v.dtype != w.dtype or any(d != 1 for d in v.shape) or v.rank > rank + 2 for v in others):
        return None
    return 1 << (results - 1).bit_length()


def _channel_constants(node: Node[Conv]) -> tuple[int, ...]:
    """Epilogue operands that are constant numbers for the channels."""
    rank, channels = node.outputs[0].tensor.rank, node.outputs[0].shape[1]
    found = []
    for index, value in enumerate(node.inputs[2:], 2):
        shape = (1,) * (rank - value.rank) + tuple(value.shape)
        plain = shape[1] == channels and all(d == 1 for a, d in enumerate(shape) if a != 1)
        if value.constant is not None and plain and value.dtype == node.outputs[0].dtype:
            found.append(index)
    return tuple(found)


def _pack_lanes(node: Node[Conv], lanes: int, operand: int) -> Constant:
    """[channel][lanes] with the lane (output channel, row, column) of the window; and what goes
    with it."""
    value, w, block = node.inputs[operand].data, node.inputs[1].data, image_of(node.inputs[0].tensor).block
    results, places = dims.product(w.shape[1:]), dims.product(w.shape[2:])

    def weights() -> np.ndarray:
        padded = np.zeros((w.shape[0], lanes), dtypes.numpy_dtype(w.dtype))
        padded[:, :results] = w.array.reshape(w.shape[0], results)
        return padded

    def numbers() -> np.ndarray:
        padded = np.zeros(lanes, dtypes.numpy_dtype(value.dtype))
        padded[:results] = np.repeat(value.array.reshape(-1), places)
        return np.tile(padded, block // lanes)

    if operand == 1:
        return Constant(w.dtype, (w.shape[0], lanes), weights)
    return Constant(value.dtype, (block,), numbers)


@dataclass(frozen=True)
class Scatter:
    """How the results of one input pixel, in `lanes` lanes, become an image of `channels` dense
    planes: lane (channel, row, column) of a window of size (height, width)."""

    x: Image
    dtype: str
    channels: int
    height: int
    width: int
    lanes: int

    @property
    def joined(self) -> int:
        """Input pixels whose results fill a vector."""
        return self.x.block // self.lanes

    @property
    def row(self) -> Dimension:
        """Bytes of a row of the output."""
        return self.x.width * self.width * self.x.itemsize

    @property
    def plane(self) -> Dimension:
        return self.x.height * self.height * self.row


def _emit_lanes(node: Node[Conv], lanes: int, cost: Estimate, target: Target) -> Code:
    x = image_of(node.inputs[0].tensor)
    height, width = plane_axes(node.op.strides, 1)
    out_type = node.outputs[0].tensor
    shape = Scatter(x, out_type.dtype, dims.number(out_type.shape[1]), height, width, lanes)
    wide = target.registers(shape.dtype, shape.lanes)
    most, k = min(16, most_rows(target, wide)), KernelText(target)
    widths = (equal_width(x.width, most),) if isinstance(x.width, int) else (most, most // 2, most // 4, 1)
    cut = cut_lines(x.height, 1, x.batch, cost.total)
    operands = [i for i in range(2, len(node.inputs))]
    with k.entry() as f, f.loop("%first", "%last") as part:
        n, chunk = f.divide(part.index, f.size(cut.count))
        first, last = cut.at(f, chunk)
        out = f.offset(f.output(), f.mul(n, f.size(shape.channels * shape.plane)))
        with f.loop(first, last) as row:
            y = row.index
            below = f.offset(out, f.mul(y, f.size(shape.height * shape.row)))
            words = [f"ptr {f.input(i)}" for i in operands]

            def tile(width: int, column: str) -> None:
                a = x.address(f, f.input(0), n, 0, y, column)
                place = f.offset(below, f.mul(column, shape.width * x.itemsize))
                arguments = ["ptr %args", f"ptr {a}", f"ptr {f.input(1)}", f"ptr {place}", *words]
                f.statement(f"call void @{ENTRY}.tile{width}({', '.join(arguments)})")

            cover(f, 0, f.size(x.width), widths, tile)
    for width in widths:
        _lanes_tile(k, node, shape, width)
    return single(k.step(x.batch * cut.count, costs.work(cost, x.batch * x.height)))


def _lanes_tile(k: KernelText, node: Node[Conv], shape: Scatter, width: int) -> None:
    """`width` input pixels from %a on; their results go to rows of the output from %out on."""
    x, one = shape.x, Window((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    operands = [f"ptr noalias %operand{i}" for i in range(2, len(node.inputs))]
    parameters = ["ptr %args", "ptr noalias %a", "ptr noalias %b", "ptr noalias %out", *operands]
    tile = Tile(width, 1, shape.lanes, shape.dtype, shape.dtype, shape.dtype)
    with k.function(f"{ENTRY}.tile{width}", parameters, attributes="noinline nounwind") as f:
        sums = accumulate(f, x, one, tile, tile.zeros(), [p * x.pixel for p in range(width)], Panel("%b"))
        for first in range(0, width, shape.joined):
            vector = _joined(f, tile, sums[first : first + shape.joined], shape.joined)
            vector = _finished(f, node, vector, x.block)
            count = min(shape.joined, width - first)
            _scatter(f, shape, vector, count, f.offset("%out", first * shape.width * x.itemsize))
        f.statement("ret void")


def _joined(f: Function, tile: Tile, parts: list[str], count: int) -> str:
    """`count` vectors, a power of two, one after the other in one; missing ones are zero."""
    parts, lanes = [*parts, *["zeroinitializer"] * (count - len(parts))], tile.lanes
    while len(parts) > 1:
        kind = vector_type(scalar_type(tile.accumulate), lanes)
        parts = [f.shuffle(a, b, range(2 * lanes), kind) for a, b in zip(parts[::2], parts[1::2])]
        lanes *= 2
    return parts[0]


def _finished(f: KernelFunction, node: Node[Conv], sums: str, lanes: int) -> str:
    """The epilogue of a vector of results."""
    dtype, constants = node.outputs[0].dtype, _channel_constants(node)

    def operand(index: int) -> str:
        if index == 0:
            return sums
        pointer, size = f"%operand{index + 1}", dtypes.itemsize(dtype)
        if index + 1 in constants:
            return f.load(vector_type(scalar_type(dtype), lanes), pointer, size)
        return f.broadcast(scalar_type(dtype), f.load(scalar_type(dtype), pointer, size), lanes)

    if node.op.epilogue is None:
        return sums
    return lower(f, [node.op.epilogue], operand, lanes, lambda d: f.size(d))[0]


def _scatter(f: KernelFunction, shape: Scatter, vector: str, count: int, out: str) -> None:
    """Stores the results of `count` pixels, which are side by side in each row of the output."""
    element, lanes = scalar_type(shape.dtype), shape.x.block
    kind, length = vector_type(element, lanes), count * shape.width
    for channel in range(shape.channels):
        for row in range(shape.height):
            first = (channel * shape.height + row) * shape.width
            order = [p * shape.lanes + first + x for p in range(count) for x in range(shape.width)]
            part = f.shuffle(vector, "poison", order, kind)
            place = f.offset(out, f.size(channel * shape.plane + row * shape.row))
            f.store(f"<{length} x {element}>", part, place, shape.x.itemsize)
