"""Cumulate, a running total along one axis, and Elements, the tensor whose elements are sizes.

    for vectors of the axes around:  total = 0;  for i along the axis:  total += x[i];  out[i] = total
Several vectors of neighbours go along the axis together: their totals do not wait for each other, and a step
reads whole stretches of memory. Where the axis is the innermost one, a vector of its elements becomes that of
their totals in log2(lanes) steps, each of which adds what stands 1, 2, 4, ... lanes before, and only the last
one is waited for; totals of 16-bit floats are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ...ir import dims, dtypes, expr
from ...ir.graph import Node
from ...ir.ops import Cumulate, Elements
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.emitter import scalar_type, splat, vector_type
from ..text.memory import load_lanes, store_lanes
from ..text.scalar import lower
from .nest import Block, Blocks, Piece, Stages, View, address, block_rows, collapse, dense, displaced, loops
from .operands import each_vector, evaluate, vector_lanes
from .states import accumulator

BESIDE = 8  # vectors of totals that go along the axis together, at most
FEWEST_PARTS = 4  # that stay to be shared by threads where there are enough lines


class Scan(Piece):
    """The nest over all axes but the one that totals run along."""

    def __init__(self, node: Node, target: Target):
        op, x = node.op, node.inputs[0].tensor
        around = [a for a in range(x.rank) if a != op.axis]
        view = dense("input", 0, x)
        self.target, self.op, self.dtype = target, op, x.dtype
        self.length, self.stride = x.shape[op.axis], view.strides[op.axis]
        self.sizes, (self.x,), _ = collapse([x.shape[a] for a in around], (view.pick(around),))
        if not self.sizes:
            self.sizes, self.x = (1,), replace(self.x, strides=(0,))
        self.out = replace(self.x, kind="output")
        self.wide = accumulator(x.dtype)
        self.vectors = self.x.strides[-1] == self.x.itemsize
        self.along = not self.vectors and self.stride == self.x.itemsize
        element, total = expr.cast(expr.input_(0, self.dtype), self.wide), expr.input_(1, self.wide)
        kind = op.kind if x.dtype != "bool" else {"sum": "or", "prod": "and"}[op.kind]
        self.both = partial(expr.apply, {"sum": "add", "prod": "mul"}.get(kind, kind))
        self.following = self.both(total, element)
        self.lanes = vector_lanes(target, self.following)
        self.beside = self._beside() if self.vectors else 1

    def _beside(self) -> int:
        """How many vectors go along the axis together: where only the run knows, the most."""
        if not isinstance(self.sizes[-1], int):
            return BESIDE
        lines, neighbours = dims.typical(dims.product(self.sizes)), self.sizes[-1]
        shared = min(lines // (FEWEST_PARTS * self.lanes), neighbours // self.lanes)
        return max(1, min(BESIDE, shared))

    @property
    def estimate(self) -> Estimate:
        """Steps of all lines, each of which waits for the one before it but not for those beside it."""
        length, lines = dims.typical(self.length), dims.typical(dims.product(self.sizes))
        moved = 2 * self.x.itemsize * length * lines
        steps = length * (lines / self.lanes if self.vectors else lines)
        each = max(1, costs.SCAN / self.beside)
        if self.along:  # a shuffle and a sum for each step, then the totals so far
            steps, each = steps / self.lanes, 2 * self.lanes.bit_length() + costs.SCAN
        return costs.compute(self.target, each * steps) + costs.move(self.target, moved)

    @property
    def blocks(self) -> Blocks:
        return block_rows(self.sizes, self.elements, self.lanes * self.beside if self.vectors else 1)

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block of lines."""
        starts = [address(f, v, block.starts) for v in (self.x, self.out)]
        with loops(f, block.extents[:-1]) as at:
            pointers = [self._along(f, p, at) for p in starts]
            if self.vectors:

                def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
                    self._lines(f, pointers, self.x.itemsize, indices, lanes, mask)

                each_vector(f, block.extents[-1], self.lanes, self.beside, vectors)
                return
            with f.loop(0, block.extents[-1]) as loop:
                place = f.mul(loop.index, f.size(self.x.strides[-1]))
                self._line(f, [f.offset(p, place) for p in pointers])

    def _along(self, f: KernelFunction, pointer: str, at: Sequence[str]) -> str:
        for index, stride in zip(at, self.x.strides):
            pointer = displaced(f, pointer, index, f.size(stride))
        return pointer

    def _lines(
        self,
        f: KernelFunction,
        pointers: Sequence[str],
        apart: str | int,
        indices: Sequence[str],
        lanes: int,
        mask: str | None,
    ) -> None:
        """Vectors of neighbouring lines, from one end of the axis to the other: one from each index on, in
        steps of so many bytes."""
        length, stride = f.size(self.length), f.size(self.stride)
        kind = vector_type(scalar_type(self.wide), lanes)
        starts = [[displaced(f, p, index, apart) for p in pointers] for index in indices]
        with f.loop(0, length, carried=[(kind, self._neutral(lanes))] * len(starts)) as loop:
            step = f.mul(self._place(f, length, loop.index, 1), stride)
            places = [[f.offset(p, step) for p in both] for both in starts]
            elements = [load_lanes(f, self.dtype, source, lanes, mask) for source, _ in places]
            totals = []
            for element, before, (_, to) in zip(elements, loop.carried, places):
                total = self._added(f, before, element, lanes, mask)
                totals.append(total)
                self._store(f, before if self.op.exclusive else total, to, lanes, mask)
            loop.carry(*totals)

    def _line(self, f: KernelFunction, pointers: Sequence[str]) -> None:
        """One line from one end of the axis to the other: whole vectors of its elements, where they are
        neighbours, then one at a time."""
        length, stride = f.size(self.length), f.size(self.stride)
        number, neutral = scalar_type(self.wide), self._neutral(1)
        begin, total = "0", neutral
        if self.along:
            begin, lanes = f.round_down(length, self.lanes), self.lanes
            kind = vector_type(number, lanes)
            with f.loop(0, begin, lanes, [(kind, self._neutral(lanes))]) as loop:
                step = f.mul(self._place(f, length, loop.index, lanes), stride)
                source, to = (f.offset(p, step) for p in pointers)
                loop.carry(self._vector(f, source, to, loop.carried[0]))
            total = f.extract(loop.results[0], 0, kind)
        with f.loop(begin, length, 1, [(number, total)]) as loop:
            step = f.mul(self._place(f, length, loop.index, 1), stride)
            source, to = (f.offset(p, step) for p in pointers)
            (before,) = loop.carried
            total = self._added(f, before, load_lanes(f, self.dtype, source, 1), 1, None)
            self._store(f, before if self.op.exclusive else total, to, 1, None)
            loop.carry(total)

    def _vector(self, f: KernelFunction, source: str, to: str, before: str) -> str:
        """A vector of elements of a line, behind elements whose total is in all lanes of `before`; the total
        behind it, in all lanes."""
        lanes, widened = self.lanes, expr.cast(expr.input_(0, self.dtype), self.wide)
        element = partial(_given, load_lanes(f, self.dtype, source, lanes, None))
        (totals,) = evaluate(f, [widened], {0: element}, lanes)
        distance = 1
        while distance < lanes:
            totals = self._together(f, self._moved(f, totals, self._neutral(lanes), distance), totals)
            distance *= 2
        totals = self._together(f, before, totals)
        result = self._moved(f, totals, before, 1) if self.op.exclusive else totals
        self._store(f, result, to, lanes, None)
        last = 0 if self.op.reverse else lanes - 1
        return f.shuffle(totals, "poison", [last] * lanes, vector_type(scalar_type(self.wide), lanes))

    def _together(self, f: KernelFunction, total: str, other: str) -> str:
        """Two vectors of totals as those of what both are of."""
        body = self.both(expr.input_(0, self.wide), expr.input_(1, self.wide))
        return evaluate(f, [body], {0: partial(_given, total), 1: partial(_given, other)}, self.lanes)[0]

    def _moved(self, f: KernelFunction, totals: str, first: str, distance: int) -> str:
        """What stands `distance` lanes before each in the direction of the totals, or in `first`."""
        lanes = self.lanes
        behind = [lane + distance if self.op.reverse else lane - distance for lane in range(lanes)]
        picks = [lane if 0 <= lane < lanes else lanes for lane in behind]
        return f.shuffle(totals, first, picks, vector_type(scalar_type(self.wide), lanes))

    def _place(self, f: KernelFunction, length: str, index: str, count: int) -> str:
        """Where along the axis the step at `index` is, of so many elements."""
        return f.sub(f.sub(length, count), index) if self.op.reverse else index

    def _neutral(self, lanes: int) -> str:
        return splat(int(self.op.kind == "prod"), self.wide, lanes)

    def _added(self, f: KernelFunction, total: str, element: str, lanes: int, mask: str | None) -> str:
        """The total with one element more."""
        reads = {0: partial(_given, element), 1: partial(_given, total)}
        return evaluate(f, [self.following], reads, lanes, None, mask)[0]

    def _store(self, f: KernelFunction, total: str, to: str, lanes: int, mask: str | None) -> None:
        body = expr.cast(expr.input_(0, self.wide), self.dtype)
        (value,) = lower(f, [body], _always(total), lanes)
        store_lanes(f, self.dtype, value, to, lanes, mask)


def _given(register: str) -> str:
    return register


def _always(register: str) -> Callable[[int], str]:
    return lambda operand: register


class Sizes(Piece):
    """The elements of an Elements op, one after the other."""

    def __init__(self, node: Node[Elements], target: Target):
        self.target, self.op, self.sizes = target, node.op, (len(node.op.dims),)
        self.out = View("output", 0, node.op.dtype, (dtypes.itemsize(node.op.dtype),))

    @property
    def estimate(self) -> Estimate:
        return costs.overhead(self.target, costs.SIZE * len(self.op.dims))

    @property
    def blocks(self) -> Blocks:
        return Blocks(self.sizes, (None,))

    def emit(self, f: KernelFunction, block: Block) -> None:
        body = expr.cast(expr.input_(0, "int64"), self.op.dtype)
        for index, dimension in enumerate(self.op.dims):
            size = f.size(dimension)
            (value,) = lower(f, [body], {0: size}.__getitem__, 1)
            store_lanes(f, self.op.dtype, value, address(f, self.out, [index]), 1)


def stages(node: Node, target: Target) -> Stages:
    return [[Scan(node, target) if isinstance(node.op, Cumulate) else Sizes(node, target)]], ()
