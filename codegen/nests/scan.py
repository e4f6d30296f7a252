"""Cumulate, a running total along one axis, and Elements, the tensor whose elements are sizes.

    for vectors of the axes around:  total = 0;  for i along the axis:  total += x[i];  out[i] = total
Several vectors of neighbours go along the axis together: their totals do not wait for each other, and a step
reads whole stretches of memory. Where the axis is the innermost one, rows are summed element by element;
totals of 16-bit floats are float32.
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
        element, total = expr.cast(expr.input_(0, self.dtype), self.wide), expr.input_(1, self.wide)
        kind = op.kind if x.dtype != "bool" else {"sum": "or", "prod": "and"}[op.kind]
        self.following = expr.apply({"sum": "add", "prod": "mul"}.get(kind, kind), total, element)
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
                self._lines(f, pointers, f.size(self.x.strides[-1]), [loop.index], 1, None)

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
        first = splat(int(self.op.kind == "prod"), self.wide, lanes)
        body = expr.cast(expr.input_(0, self.wide), self.dtype)
        starts = [[displaced(f, p, index, apart) for p in pointers] for index in indices]
        with f.loop(0, length, carried=[(kind, first)] * len(starts)) as loop:
            place = f.sub(f.sub(length, 1), loop.index) if self.op.reverse else loop.index
            step = f.mul(place, stride)
            places = [[f.offset(p, step) for p in both] for both in starts]
            elements = [load_lanes(f, self.dtype, source, lanes, mask) for source, _ in places]
            totals = []
            for element, before, (_, to) in zip(elements, loop.carried, places):
                reads = {0: partial(_given, element), 1: partial(_given, before)}
                (total,) = evaluate(f, [self.following], reads, lanes, None, mask)
                totals.append(total)
                result = before if self.op.exclusive else total
                (value,) = lower(f, [body], _always(result), lanes)
                store_lanes(f, self.dtype, value, to, lanes, mask)
            loop.carry(*totals)


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
