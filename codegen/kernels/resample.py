"""Fused groups of kind "resampling": Maps of blocked images that are read at gathered rows and columns, as
interpolation reads the neighbours of each pixel.

    for rows of a plane:  look up the rows to read;  for pixels of the row:  look up columns, read, out = body
A vector is a pixel's block of channels. No image between is stored: each Map is computed for every pair of
paths of Gathers that lead from the result to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Layout, Node, Value
from ...ir.ops import Fused, Gather, Map
from ...ir.ranges import all_inside
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, single
from ..nests.nest import fail
from ..text.conversion import computed_in
from ..text.emitter import scalar_type
from ..text.memory import from_bits, load_lanes, store_lanes
from ..text.scalar import lower
from ..tiles.blocked import Image, clear_border, displaced, image_of, keep_channels, without_halo
from ..tiles.blocked_epilogue import Reading, is_packed, pack_operand, reading_of
from ..tiles.lines import cut_lines

MOST_VISITS = 160  # values of a pixel

#: The indices that lead from the result's axis to another's, the first one first, each with how long the axis
#: is that they name places of.
Path = tuple[tuple[Value, Dimension], ...]


@dataclass(frozen=True)
class Visit:
    """A value of the region at the rows and columns to which paths lead."""

    value: Value
    rows: Path = ()
    columns: Path = ()


def visits(node: Node[Fused]) -> list[Visit] | None:
    """What is computed for a pixel, operands first; None where that is too much."""
    found: dict[Visit, None] = {}
    stack = [(Visit(node.op.region.outputs[0]), False)]
    while stack and len(stack) + len(found) <= MOST_VISITS:
        visit, ready = stack.pop()
        if ready:
            found[visit] = None
        elif visit not in found:
            stack += [(visit, True), *((operand, False) for operand in operands_of(visit))]
    return None if stack else list(found)


def operands_of(visit: Visit) -> list[Visit]:
    """What a visit reads."""
    made = visit.value.producer
    if made is None:
        return []
    if isinstance(made.op, Gather):
        source, places = made.inputs
        rows, columns, step = visit.rows, visit.columns, (places, source.shape[made.op.axis])
        if made.op.axis == visit.value.rank - 1:
            return [Visit(source, rows, (*columns, step))]
        return [Visit(source, (*rows, step), columns)]
    return [Visit(value, visit.rows, visit.columns) for value in made.inputs]


def candidates(node: Node, target: Target) -> Iterator[Offer[None]]:
    """One, where every operand is read as a block of channels or as one number for all of them."""
    if not isinstance(node.op, Fused) or node.op.kind != "resampling":
        return
    block, readings = target.block, _readings(node, target.block)
    found = visits(node)
    if found is None or readings is None or 4 * dims.number(node.outputs[0].shape[1]) < block:
        return  # of a block of few channels most lanes would be moved for nothing, here and by reorders
    rank = node.outputs[0].rank
    packed = tuple(k for k, v in enumerate(node.inputs) if k in readings and is_packed(v, rank))
    layouts = tuple(_layout(v, rank, block) if k in readings else None for k, v in enumerate(node.inputs))
    yield Offer(_estimate(node, target, found), None, layouts, without_halo(block, rank - 2), packed)


def _layout(value: Value, rank: int, block: int) -> Layout | None:
    whole = value.constant is None and value.rank == rank and value.shape[1] != 1
    return without_halo(block, rank - 2) if whole else None


def _readings(node: Node[Fused], block: int, stored: bool = False) -> dict[int, Reading] | None:
    """How operands that are no indices are read; None where one cannot be. stored: as their types say, else
    in the layouts that are asked for."""
    region, found = node.op.region, dict[int, Reading]()
    number = {v: k for k, v in enumerate(region.inputs)}
    for inner in region.nodes:
        frame = inner.inputs[0].tensor if isinstance(inner.op, Gather) else inner.outputs[0].tensor
        for value in inner.inputs[:1] if isinstance(inner.op, Gather) else inner.inputs:
            if value not in number:
                continue
            operand = node.inputs[number[value]]
            type_ = operand.tensor
            if not stored:
                type_ = replace(type_, layout=_layout(operand, frame.rank, block))
            reading = reading_of(number[value], operand, type_, frame, block)
            if reading is None:
                return None
            found[number[value]] = reading
    return found


def _estimate(node: Node[Fused], target: Target, found: list[Visit]) -> Estimate:
    """All is read and written, and the instructions of every pixel."""
    out = node.outputs[0].tensor
    bodies = [v.value.node.op.body for v in found if v.value.producer and isinstance(v.value.node.op, Map)]
    reads = sum(v.value.producer is None for v in found)
    columns = len({v.columns for v in found if v.columns})
    each = sum(costs.weight(target, body) for body in bodies) + reads + 2 * columns + costs.BEGUN / 4
    planes = dims.typical(out.shape[0]) * -(-dims.number(out.shape[1]) // target.block)
    pixels = planes * dims.typical(dims.product(out.shape[2:]))
    each *= max(target.registers(computed_in(v.value.dtype), target.block) for v in found)
    return costs.compute(target, each * pixels) + costs.traffic(target, node) + costs.step(target)


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    return pack_operand(node.inputs[operand], node.outputs[0].rank, choice.block)


def emit(node: Node, choice: Choice, target: Target) -> Code:
    out = image_of(node.outputs[0].tensor)
    cut = cut_lines(out.height, 1, out.blocks * out.batch, choice.cost.total)
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        plane, chunk = f.divide(part.index, f.size(cut.count))
        first, last = cut.at(f, chunk)
        start = out.of_plane(f, f.output(), plane)
        clear_border(f, out, start, first, last)
        n, block = f.divide(plane, out.blocks)
        with f.loop(first, last) as row:
            _row(
                f,
                node,
                out,
                n,
                block,
                row.index,
                displaced(f, start, [("1", out.origin), (row.index, out.row)]),
            )
    work = costs.work(choice.cost, out.batch * out.height * out.width)
    return single(k.step(out.batch * out.blocks * cut.count, work))


def _row(f: KernelFunction, node: Node[Fused], out: Image, n: str, block: str, y: str, to: str) -> None:
    """Row y of a plane, stored from `to` on."""
    pixels = _Pixels(f, node, out, n, block, y)
    left = f.sub(out.channels, f.mul(block, out.block)) if out.channels % out.block else None
    with f.loop(0, f.size(out.width)) as column:
        value = pixels.at(column.index)
        if left is not None:
            value = keep_channels(f, out.dtype, out.block, value, left)
        place = f.offset(to, f.mul(column.index, out.pixel))
        store_lanes(f, out.dtype, value, place, out.block, align=out.align)


class Places:
    """Where paths lead from one place of the result, each index looked up once."""

    def __init__(self, f: KernelFunction, node: Node[Fused], start: str):
        self.f, self.node, self.known = f, node, dict[Path, str]({(): start})
        self.number = {v: k for k, v in enumerate(node.op.region.inputs)}

    def found(self, path: Path) -> str:
        """Where a path leads."""
        for k in range(1, len(path) + 1):
            if path[:k] not in self.known:
                self.known[path[:k]] = self._looked_up(*path[k - 1], self.known[path[: k - 1]])
        return self.known[path]

    def _looked_up(self, places: Value, size: Dimension, at: str) -> str:
        """The index there, counted from the start of an axis of this size."""
        f, operand = self.f, self.number[places]
        number = f.load("i64", f.element(f.input(operand), at, 8), 8)
        known = self.node.inputs[operand].constant
        if known is not None and all_inside(known.array, size):
            return number
        limit = f.size(size)
        wrapped = f.add(number, f.select(f.compare("slt", number, 0), "i64", limit, "0"))
        with f.when(f.compare("uge", wrapped, limit)):
            fail(f, "index_out_of_range", number)
        return wrapped


class _Pixels:
    """The pixels of a row: what they have in common is read before the first."""

    def __init__(self, f: KernelFunction, node: Node[Fused], out: Image, n: str, block: str, y: str):
        self.f, self.block, self.node = f, out.block, node
        self.visits = visits(node) or []
        readings = _readings(node, out.block, stored=True) or {}
        self.number = {v: k for k, v in enumerate(node.op.region.inputs)}
        rows = Places(f, node, y)
        self.starts: dict[Visit, tuple[str, Dimension, Reading]] = {}
        self.same: dict[Visit, str] = {}
        for visit in self.visits:
            reading = readings.get(self.number.get(visit.value, -1))
            if reading is None:
                continue
            places = (n, block, rows.found(visit.rows))
            start = f.offset(f.input(reading.index), f.size(reading.origin))
            start = displaced(f, start, tuple(zip(places, reading.strides)))
            self.starts[visit] = start, reading.strides[3], reading
            if reading.strides[3] == 0:
                self.same[visit] = self._load(reading, start)

    def _load(self, reading: Reading, place: str) -> str:
        """The bits there, as a vector of integers."""
        size = dtypes.itemsize(reading.dtype)
        stored = f"int{8 * size}"
        bits = load_lanes(self.f, stored, place, self.block if reading.vector else 1, align=size)
        return bits if reading.vector else self.f.broadcast(scalar_type(stored), bits, self.block)

    def at(self, x: str) -> str:
        """The result's pixel in column x."""
        f, values = self.f, dict[Visit, str]()
        columns = Places(f, self.node, x)
        for visit in self.starts:  # before any value: a place is checked in blocks of its own
            if visit not in self.same:
                columns.found(visit.columns)
        for visit in self.visits:
            if visit in self.starts:
                start, step, reading = self.starts[visit]
                bits = self.same.get(visit)
                if bits is None:
                    bits = self._load(
                        reading, f.offset(start, f.mul(columns.found(visit.columns), f.size(step)))
                    )
                values[visit] = from_bits(f, reading.dtype, self.block, bits)
                continue
            operands = [values[operand] for operand in operands_of(visit)]
            op = visit.value.node.op
            if isinstance(op, Gather):
                (values[visit],) = operands
            else:
                (values[visit],) = lower(f, [op.body], operands.__getitem__, self.block, f.size)
        return values[self.visits[-1]]
