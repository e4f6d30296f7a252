"""Fused groups of kind "resampling" over dense images, row by row of the result.

    for rows of the planes:  look up the rows to read
        lines = what columns or rows are picked of, unless it lies in memory
        out = body of vectors of neighbours, whose columns are gathered from lines
Of an image that shrinks this is one line, computed of the rows alone that are read. Lines that rows are
picked of are kept for the next row of the result, which often reads them again. Columns that are known to be
near each other are permuted from one or two vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations

import numpy as np

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node, Value
from ...ir.ops import Fused, Gather, Map
from ...ir.ranges import all_inside
from ...records import dataclass
from ...target import PERMUTE, Ability, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, as_it_is, single
from ..nests.indexed import Component, lanes_at
from ..nests.nest import View, address, broadcasting, displaced
from ..nests.operands import SLOT_BYTES, Reader, each_vector, scratch_bytes, vector_lanes
from ..text.emitter import Reg
from ..text.memory import from_bits, gather, load_lanes, store_lanes
from ..text.scalar import lower
from ..text.vectors import Vectors
from ..tiles.lines import cut_lines
from .resample import Path, Places

SLOT = 16  # bytes that say where a line is kept, and of which row it is
MOST_NEAR = 2  # vectors that columns are permuted from


@dataclass(frozen=True)
class Line:
    """A row of a value, the one to which a path leads from the result's."""

    value: Value
    rows: Path = ()

    @property
    def is_computed(self) -> bool:
        return self.value.producer is not None

    @property
    def width(self) -> Dimension:
        return self.value.shape[-1]


@dataclass(frozen=True)
class Read:
    """What a line is computed of: another, in a nest of that shape, at its columns or those picked."""

    line: Line
    shape: tuple[Dimension, ...]
    columns: Value | None = None


def candidates(node: Node, target: Target) -> Iterator[Offer[None]]:
    if not isinstance(node.op, Fused) or node.op.kind != "resampling":
        return
    if any(v.tensor.layout for v in (*node.inputs, *node.outputs)):
        return
    layouts = (None,) * len(node.inputs)
    yield Offer(_Plan(node, target).estimate, None, layouts)


pack = as_it_is


def emit(node: Node, choice: Choice, target: Target) -> Code:
    plan, shape = _Plan(node, target), node.outputs[0].shape
    count = dims.product(shape[:-1])
    cut, k = cut_lines(count, 1, 1, choice.cost.total), KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        plan.begin(f)
        with f.loop(*cut.at(f, part.index)) as row:
            _Row(f, plan, row.index).emit()
    return single(k.step(cut.count, costs.work(choice.cost, count * shape[-1]), plan.scratch))


# What is computed ----------------------------------------------------------------------------------


def _picks_columns(value: Value) -> bool:
    made = value.producer
    return made is not None and isinstance(made.op, Gather) and made.op.axis == value.rank - 1


def _line(value: Value, rows: Path = ()) -> Line:
    """The line behind the Gathers that pick rows."""
    while (made := value.producer) and isinstance(made.op, Gather) and not _picks_columns(value):
        value, places = made.inputs
        rows = (*rows, (places, value.shape[made.op.axis]))
    return Line(value, rows)


def _read(value: Value, rows: Path, shape: tuple[Dimension, ...]) -> Read | None:
    """What a value is read of, in a nest of that shape; None of a Map, which is computed there."""
    made = value.producer
    if made is None:
        return Read(Line(value, rows), shape)
    if isinstance(made.op, Map):
        return None
    if _picks_columns(value):
        source, places = made.inputs
        return Read(_line(source, rows), source.shape, places)
    line = _line(value, rows)
    return Read(line, line.value.shape)


def _reads(line: Line) -> tuple[dict[Read, None], list[Expr]]:
    """What a computed line is made of, and the bodies of the Maps that make it."""
    found, bodies = dict[Read, None](), list[Expr]()
    stack = [(line.value, line.value.shape)]
    while stack:
        value, shape = stack.pop()
        read = _read(value, line.rows, shape)
        if read is not None:
            found[read] = None
            continue
        bodies.append(value.node.op.body)
        stack += [(operand, value.shape) for operand in reversed(value.node.inputs)]
    return found, bodies


class _Plan:
    """A group's lines, and where in a thread's memory they are: behind what readers need, a slot for each,
    and the lines themselves, each with room for vectors that begin in it."""

    def __init__(self, node: Node[Fused], target: Target):
        self.node, self.target = node, target
        self.number = {v: k for k, v in enumerate(node.op.region.inputs)}
        self.result = Line(node.op.region.outputs[0])
        self.made: dict[Line, tuple[dict[Read, None], list[Expr]]] = {}
        self._make(self.result)
        self.lines = [line for line in self.made if line != self.result]

    def _make(self, line: Line) -> None:
        reads, bodies = _reads(line)
        for read in reads:
            if read.line.is_computed and read.line not in self.made:
                self._make(read.line)
        self.made[line] = reads, bodies

    def lanes(self, line: Line) -> int:
        return vector_lanes(self.target, *self.made[line][1]) if self.made[line][1] else self._picked(line)

    def _picked(self, line: Line) -> int:
        return self.target.vector_bits // (8 * max(4, dtypes.itemsize(line.value.dtype)))

    @cached_property
    def slots(self) -> dict[Line, int]:
        begin = scratch_bytes(max(len(reads) for reads, _ in self.made.values()))
        return {line: begin + SLOT * k for k, line in enumerate(self.lines)}

    @cached_property
    def places(self) -> tuple[dict[Line, Dimension], Dimension]:
        """Where lines begin, and where the last one ends."""
        end: Dimension = scratch_bytes(max(len(reads) for reads, _ in self.made.values()))
        end = end + -(-SLOT * len(self.lines) // SLOT_BYTES) * SLOT_BYTES
        found: dict[Line, Dimension] = {}
        for line in self.lines:
            found[line] = end
            nbytes = line.width * dtypes.itemsize(line.value.dtype)
            end = end + dims.ceil_divide(nbytes, SLOT_BYTES) * SLOT_BYTES + MOST_NEAR * SLOT_BYTES
        return found, end

    @property
    def scratch(self) -> Dimension:
        return self.places[1]

    def known(self, columns: Value) -> np.ndarray | None:
        """Columns that are picked, where they are constant."""
        constant = self.node.inputs[self.number[columns]].constant
        return None if constant is None else constant.array

    def near(self, read: Read, lanes: int) -> int:
        """The vectors from the first column on in which all lie that are picked for a vector; 0 where these
        are too many, or not known."""
        able = Ability.PERMUTE in self.target.abilities and read.line.value.dtype in PERMUTE
        known = self.known(read.columns) if able and read.columns is not None else None
        if known is None or lanes * dtypes.bits(read.line.value.dtype) != self.target.vector_bits:
            return 0
        width = read.line.width
        for vectors in range(1, MOST_NEAR + 1):
            last = math.inf
            if not read.line.is_computed:  # there is nothing behind it
                last = width - vectors * lanes if isinstance(width, int) else -1
            firsts = np.minimum(known[::lanes], last).repeat(lanes)[: known.size]
            if last >= 0 and np.all((known >= firsts) & (known < firsts + vectors * lanes)):
                return vectors
        return 0

    def begin(self, f: KernelFunction) -> None:
        """Slots of lines of no row."""
        for line, slot in self.slots.items():
            f.store("ptr", f.offset("%scratch", f.size(self.places[0][line])), f.offset("%scratch", slot), 8)
            f.store("i64", "-1", f.offset("%scratch", slot + 8), 8)

    def view(self, read: Read) -> View:
        """An operand in the nest in which it is read."""
        index = self.number[read.line.value]
        return broadcasting("input", index, self.node.inputs[index].tensor, read.shape)

    @property
    def estimate(self) -> Estimate:
        target, out = self.target, self.result.value
        rows = dims.typical(dims.product(out.shape[:-1]))
        each = sum(self._computed(line) * self._share(line) for line in self.made)
        paths = {read.line.rows for reads, _ in self.made.values() for read in reads} - {()}
        begun = costs.FOLDED_ROW + costs.LOOKUP * len(paths)
        found = costs.overhead(target, begun * rows)
        return (
            costs.compute(target, each * rows) + found + costs.traffic(target, self.node) + costs.step(target)
        )

    def _computed(self, line: Line) -> float:
        """Instructions of a line."""
        reads, bodies = self.made[line]
        lanes = self.lanes(line)
        each = costs.weight(self.target, *bodies) + 1
        for read in reads:
            gathers = Ability.GATHER in self.target.abilities and dtypes.itemsize(read.line.value.dtype) >= 4
            alone = (costs.GATHERED if gathers else costs.ALONE) * lanes
            each += 1 if read.columns is None else costs.PERMUTED if self.near(read, lanes) else alone
        return costs.LOOPED + each * -(-dims.typical(line.width) // lanes)

    def _share(self, line: Line) -> float:
        """How often a line is computed for a row of the result: of what paths lead to each row is made once
        for all of them."""
        if not line.rows:
            return 1.0
        alike = sum(other.value is line.value for other in self.lines)
        rows = dims.typical(self.result.value.shape[-2])
        return min(1.0, dims.typical(line.value.shape[-2]) / max(1, alike * rows))


# Rows --------------------------------------------------------------------------------------------


class _Row:
    """A row of the result, by its number among those of all planes."""

    def __init__(self, f: KernelFunction, plan: _Plan, row: str):
        self.f, self.plan, shape = f, plan, plan.result.value.shape
        self.plane, y = f.divide(row, f.size(shape[2])) if len(shape) == 4 else (row, "0")
        self.outer = f.divide(self.plane, f.size(shape[1]))
        self.rows = Places(f, plan.node, y)

    def emit(self) -> None:
        f, plan = self.f, self.plan
        for line in plan.made:
            for read in plan.made[line][0]:
                self.rows.found(read.line.rows)  # before what is computed only sometimes
        for one, other in combinations(plan.lines, 2):
            if one.rows and one.value is other.value:
                self._exchange(one, other)
        for line in plan.lines:
            if not line.rows:
                self._compute(line, self._kept(line))
                continue
            of, wanted = f.offset("%scratch", plan.slots[line] + 8), self._row(line)
            with f.when(f.compare("ne", f.load("i64", of, 8), wanted)):
                self._compute(line, self._kept(line))
                f.store("i64", wanted, of, 8)
        out = plan.result.value
        view = broadcasting("output", 0, plan.node.outputs[0].tensor, out.shape)
        self._compute(plan.result, address(f, view, self._at(plan.result, out.shape)))

    def _row(self, line: Line) -> str:
        """The number of a line's row among those of all planes."""
        rows = self.f.size(line.value.shape[-2])
        return self.f.add(self.f.mul(self.plane, rows), self.rows.found(line.rows))

    def _kept(self, line: Line) -> str:
        return self.f.load("ptr", self.f.offset("%scratch", self.plan.slots[line]), 8)

    def _exchange(self, one: Line, other: Line) -> None:
        """Lines, where the other is the row that is wanted of one."""
        f, wanted = self.f, self._row(one)
        slots = [f.offset("%scratch", self.plan.slots[line]) for line in (one, other)]
        of = [f.load("i64", f.offset(slot, 8), 8) for slot in slots]
        is_there = f.compare("eq", of[1], wanted)
        with f.when(f.all_of(f.compare("ne", of[0], wanted), is_there)):
            kept = [f.load("ptr", slot, 8) for slot in slots]
            for slot, pointer, row in zip(slots, reversed(kept), reversed(of)):
                f.store("ptr", pointer, slot, 8)
                f.store("i64", row, f.offset(slot, 8), 8)

    def _at(self, line: Line, shape: tuple[Dimension, ...]) -> tuple[str, ...]:
        """Where the line is in a nest of that shape, but for its columns."""
        return (*self.outer, self.rows.found(line.rows))[: len(shape) - 1]

    def _start(self, read: Read) -> tuple[View, str]:
        """How a line is read, and where it begins."""
        if read.line.is_computed:
            dtype = read.line.value.dtype
            return View("scratch", 0, dtype, (dtypes.itemsize(dtype),)), self._kept(read.line)
        view = self.plan.view(read)
        return view.pick([len(read.shape) - 1]), address(self.f, view, self._at(read.line, read.shape))

    def _compute(self, line: Line, to: str) -> None:
        """A line, stored from `to` on."""
        f, plan, value = self.f, self.plan, line.value
        reads, lanes = plan.made[line][0], plan.lanes(line)
        starts = {read: self._start(read) for read in reads}
        readers = {
            read: Reader(f, *(starts[read][0], 0, starts[read][1]), lanes, slot)
            for slot, read in enumerate(reads)
            if read.columns is None
        }

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            for x in indices:
                columns = {
                    read: self._columns(read.columns, read.line.width, x, lanes, mask)
                    for read in reads
                    if read.columns is not None
                }
                values = {read: reader.read(x, lanes, mask) for read, reader in readers.items()}
                for read, places in columns.items():
                    values[read] = self._picked(read, *starts[read], places, lanes, mask)
                result = self._value(value, line.rows, value.shape, lanes, values)
                place = displaced(f, to, x, dtypes.itemsize(value.dtype))
                store_lanes(f, value.dtype, result, place, lanes, mask)

        each_vector(f, f.size(line.width), lanes, 1, vectors)

    def _columns(self, places: Value, width: Dimension, x: str, lanes: int, mask: str | None) -> Reg:
        """The columns that are picked for a vector from x on."""
        known = self.plan.known(places)
        component = Component(0, 1, width, known is not None and all_inside(known, width))
        pointer = displaced(self.f, self.f.input(self.plan.number[places]), x, 8)
        return lanes_at(self.f, component, "int64", pointer, lanes, mask)

    def _picked(self, read: Read, view: View, start: str, places: Reg, lanes: int, mask: str | None) -> str:
        """The elements of a line at these places."""
        f, dtype = self.f, view.dtype
        if not (vectors := self.plan.near(read, lanes)):
            return from_bits(f, dtype, lanes, gather(f, f"i{8 * view.itemsize}", start, places, mask))
        first: str = f.extract(places, 0)
        if not read.line.is_computed:
            first = f.minimum(first, f.size(read.line.width - vectors * lanes))
        v, begin = Vectors(f, dtype, lanes), displaced(f, start, first, view.itemsize)
        tables = [
            load_lanes(f, dtype, f.offset(begin, k * lanes * view.itemsize), lanes) for k in range(vectors)
        ]
        places = f.binary("sub", places, f.broadcast("i64", first, lanes))
        return v.permuted(tables, f.cast("trunc", places, v.integers.type))

    def _value(
        self, value: Value, rows: Path, shape: tuple[Dimension, ...], lanes: int, values: Mapping[Read, str]
    ) -> str:
        """Vectors of a value, of those that are read."""
        read = _read(value, rows, shape)
        if read is not None:
            return values[read]
        made = value.node
        operands = [self._value(v, rows, value.shape, lanes, values) for v in made.inputs]
        return lower(self.f, [made.op.body], operands.__getitem__, lanes, self.f.size)[0]
