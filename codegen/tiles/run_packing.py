"""Weights that only the run knows, put into panels by a step before the convolution.

    w [outputs][channels][taps]  →  for each panel: for each block of channels: [taps][channels][lanes]
The convolution's own steps read the panels where they would read a constant's; nothing else in them changes.
Where a lane's weights follow each other in memory, squares of them are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.graph import Node
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Argument, Code, KernelFunction, KernelText, Step
from ..text.emitter import ENTRY, vector_constant, vector_type
from ..text.shuffles import transpose
from .channel_panels import Panels

#: Of the panel-th panel of its kind: where it begins in bytes, and the input channels that it sums over,
#: first and beyond the last.
Place = Callable[[KernelFunction, Panels, str], tuple[str, str, str]]


@dataclass(frozen=True)
class RunPanels:
    """Panels of a convolution's weights. `block`, `depth`: output and input channels of a block; `groups`:
    where panels sum over the channels of several groups, of which each lane has but one; `taps`: of a
    transposed convolution, those that the panels have, in order."""

    kinds: Sequence[Panels]
    block: int
    depth: int
    place: Place
    groups: int = 1
    taps: tuple[int, ...] = ()
    firsts: tuple[int, ...] = ()


def packing_estimate(node: Node, target: Target) -> Estimate:
    """What packing in the run takes: nothing for constant weights."""
    w = node.inputs[1]
    if w.constant is not None:
        return Estimate()
    each = costs.PLACED if node.op.transposed else costs.transposed(target.block) / target.lanes(w.dtype)
    return costs.compute(target, each * dims.number(w.tensor.count)) + costs.step(target)


def packed_by_run(node: Node, code: Code, target: Target, nbytes: int, panels: Sequence[RunPanels]) -> Code:
    """code with its weights packed before, into so many bytes of its own; code itself where they are
    constant. All `panels` are of the same kinds."""
    if node.inputs[1].constant is not None or not panels:
        return code
    weights, packed = Argument("input", 1), Argument("temporary", len(code.temporaries))
    steps = [
        replace(step, arguments=tuple(packed if a == weights else a for a in step.arguments))
        for step in code.steps
    ]
    packing = _step(node, target, packed.index, panels)
    return replace(code, steps=(packing, *steps), temporaries=(*code.temporaries, nbytes))


def _step(node: Node, target: Target, buffer: int, panels: Sequence[RunPanels]) -> Step:
    """A part is a panel."""
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        for number, some in enumerate(panels):
            for kind in some.kinds:
                panel = f.sub(part.index, kind.first)
                with f.when(f.compare("ult", panel, kind.count)):
                    _Packing(f, node, some, kind, f"{ENTRY}.taps{number}").panel(panel, f.temporary(buffer))
    parts = sum(kind.count for kind in panels[0].kinds)
    return k.step(parts, costs.work(packing_estimate(node, target), parts))


class _Packing:
    """Panels of one kind being packed, a vector of outputs at a time."""

    def __init__(self, f: KernelFunction, node: Node, panels: RunPanels, kind: Panels, table: str):
        w = node.inputs[1]
        self.f, self.panels, self.kind, self.table = f, panels, kind, table
        outputs, channels, *taps = dims.numbers(w.shape)
        self.taps, self.size = dims.product(taps), dtypes.itemsize(w.dtype)
        self.outputs, self.channels = (channels, outputs) if node.op.transposed else (outputs, channels)
        self.element = f"i{8 * self.size}"  # only moved, so any type of the size will do
        self.lanes = min(kind.lanes, f.target.lanes(w.dtype))
        self.vector = vector_type(self.element, self.lanes)
        self.row = kind.width * self.size  # bytes of a channel's tap in the panel

    def panel(self, panel: str, buffer: str) -> None:
        f, kind = self.f, self.kind
        offset, low, high = self.panels.place(f, kind, panel)
        start = f.offset(buffer, offset)
        first = f.mul(self._first_block(panel), self.panels.block)
        with f.loop(0, kind.width // self.lanes) as j:
            output = f.add(first, f.mul(j.index, self.lanes))
            to = f.offset(start, f.mul(j.index, self.lanes * self.size))
            if self.panels.taps:
                self._chosen_taps(output, to)
            else:
                self._blocks(output, to, low, high)

    def _first_block(self, panel: str) -> str:
        f, kind, firsts = self.f, self.kind, self.panels.firsts
        if not firsts:
            return kind.first_block(f, panel)
        table = f.text.table("i64", list(map(str, firsts)), f"{ENTRY}.firsts")
        return f.load("i64", f.element(table, f.add(kind.first, panel), 8), 8)

    # Lanes that lie apart, each of them in one piece -------------------------------------------------

    def _blocks(self, output: str, to: str, low: str, high: str) -> None:
        """The input channels low..high-1 block by block, and in a block group by group. Blocks of one channel
        have its taps in the order in which they are read: all of them are one piece."""
        f, made, inside, depth = self.f, self.outputs // self.panels.groups, self.channels, self.panels.depth
        alike = depth == 1
        whole = nullcontext((low, high, "0"))
        with whole if alike else self._pieces(depth, low, high) as (start, stop, _):
            block = f.offset(to, f.mul(f.sub(start, low), self.taps * self.row))
            with self._pieces(inside, start, stop) as (begin, end, group):
                source = f.offset(
                    f.input(1), f.mul(f.sub(begin, f.mul(group, inside)), self.taps * self.size)
                )
                there = self._lanes_of(output, f.mul(group, made), made)
                place = f.offset(block, f.mul(f.sub(begin, start), self.row * (self.taps if alike else 1)))
                within = None if alike else f.sub(stop, start)
                self._piece(self._pointers(source, output), there, place, within, f.sub(end, begin))

    @contextmanager
    def _pieces(self, each: int, low: str, high: str) -> Iterator[tuple[str, str, str]]:
        """Each part of low..high-1 between multiples of `each`: (first, beyond the last, its number)."""
        f = self.f
        with f.loop(f.divide(low, each)[0], f.divide(f.add(high, each - 1), each)[0]) as loop:
            begin = f.mul(loop.index, each)
            yield f.maximum(low, begin), f.minimum(high, f.add(begin, each)), loop.index

    def _lanes_of(self, output: str, first: str, count: int) -> str | None:
        """The mask of the outputs first..first+count-1 that there are; None where that is every lane."""
        f, groups, there = self.f, self.panels.groups, None
        for wanted, begin, number in (
            (groups > 1, first, count),
            (
                self.outputs % self.lanes != 0,
                "0",
                self.outputs,
            ),  # as the group behind the last may begin there
        ):
            if wanted:
                lane = f.broadcast("i64", f.sub(output, begin), self.lanes)
                lane = f.binary("add", lane, vector_constant("i64", range(self.lanes)))
                found = f.compare("ult", lane, f.broadcast("i64", str(number), self.lanes))
                there = found if there is None else f.binary("and", there, found, f"<{self.lanes} x i1>")
        return there

    def _pointers(self, source: str, output: str) -> list[str]:
        """Where the weights of each lane's output begin; those beyond the last output read that one's."""
        f, apart = self.f, self.channels * self.taps * self.size
        if self.outputs % self.lanes == 0:
            first = f.offset(source, f.mul(output, apart))
            return [f.offset(first, lane * apart) for lane in range(self.lanes)]
        places = [f.minimum(f.add(output, lane), self.outputs - 1) for lane in range(self.lanes)]
        return [f.offset(source, f.mul(place, apart)) for place in places]

    def _piece(
        self, lanes: Sequence[str], there: str | None, to: str, block: str | None, channels: str
    ) -> None:
        """Channels of a block of so many; None: of blocks of one."""
        f, count = self.f, self.f.mul(channels, self.taps)

        def put(at: str, weights: str) -> None:
            row = at
            if block is not None:
                channel, tap = f.divide(at, self.taps)
                row = f.add(f.mul(tap, block), channel)
            place = f.offset(to, f.mul(row, self.row))
            if there is not None:
                weights = f.select(there, self.vector, weights, "zeroinitializer")
            f.store(self.vector, weights, place, self.size)

        whole = f.round_down(count, self.lanes)
        with f.loop(0, whole, self.lanes) as loop:
            rows = [f.load(self.vector, f.element(p, loop.index, self.size), self.size) for p in lanes]
            for k, column in enumerate(transpose(f, rows, self.vector)):
                put(f.add(loop.index, k), column)
        with f.loop(whole, count) as loop:
            put(loop.index, self._gathered([f.element(p, loop.index, self.size) for p in lanes]))

    # Lanes whose taps lie side by side ---------------------------------------------------------------

    def _chosen_taps(self, output: str, to: str) -> None:
        """Some taps of all channels of w [channels][outputs][taps]."""
        f, taps = self.f, self.panels.taps
        table = f.text.table("i64", list(map(str, taps)), self.table)
        there = self._lanes_of(output, "0", self.outputs)
        lanes = [f.minimum(f.add(output, lane), self.outputs - 1) for lane in range(self.lanes)]
        apart = [f.mul(lane, self.taps * self.size) for lane in lanes]
        with self._pieces(self.panels.depth, "0", str(self.channels)) as (start, stop, _):
            block = f.offset(to, f.mul(start, len(taps) * self.row))
            with f.loop(0, len(taps)) as tap, f.loop(start, stop) as channel:
                number = f.load("i64", f.element(table, tap.index, 8), 8)
                source = f.add(f.mul(channel.index, self.outputs * self.taps), number)
                source = f.element(f.input(1), source, self.size)
                weights = self._gathered([f.offset(source, a) for a in apart])
                if there is not None:
                    weights = f.select(there, self.vector, weights, "zeroinitializer")
                row = f.add(f.mul(tap.index, f.sub(stop, start)), f.sub(channel.index, start))
                f.store(self.vector, weights, f.offset(block, f.mul(row, self.row)), self.size)

    def _gathered(self, places: Sequence[str]) -> str:
        f, x = self.f, "poison"
        for lane, place in enumerate(places):
            x = f.insert(x, f.load(self.element, place, self.size), lane, self.vector)
        return x
