"""OverlapAdd of any rank, type and stride: sums of a row of results are gathered in scratch memory.

    for rows of the output:  for rows of the window that reach it:
        for taps of the row:  sums[low:high] += the tap's blocks
    out = sums
Arithmetic tells which blocks reach a row, so that every element is read once and none is tested. Where blocks
lie further apart than one result, those of one tap do too: results as far apart are summed side by side, and
brought to where they belong when the row is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ir import dims, dtypes, expr
from ...ir.graph import Node
from ...ir.ops import OverlapAdd
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.emitter import is_number
from ..text.memory import load_lanes, store_lanes
from .nest import ERROR_BYTES, Stages, address, displaced, input_view, output_view
from .operands import each_vector, evaluate, vector_lanes
from .states import accumulator
from .transposition import transpose_rows
from .windows import LONGEST_ROW, WindowAxis, Windows

FEWEST = 4  # blocks that reach a row for which results are summed apart
UNROLLED = 8  # taps of a row that have code of their own, where it is known what they reach


class Overlaps(Windows):
    """The nest over (batch, channels, spatial...) of the output. Scratch memory holds a row of sums."""

    def __init__(self, node: Node[OverlapAdd], target: Target):
        super().__init__(node, target, node.outputs[0].shape, node.op.kernel)
        self.read = node.inputs[0].dtype
        self.dtype = accumulator(self.read)
        element = expr.cast(expr.input_(0, self.read), self.dtype)
        self.total = expr.input_(1, self.dtype) + element
        self.lanes = vector_lanes(target, self.total)
        row, stride = min(dims.typical(self.sizes[-1]), LONGEST_ROW), node.op.strides[-1]
        self.apart = stride if stride * FEWEST <= row else 1  # from a result to the next that is beside it

    @property
    def estimate(self) -> Estimate:
        """Every element read and added once."""
        x, out = self.node.inputs[0].tensor, self.node.outputs[0].tensor
        added = self.each_tap(costs.NEST_TAP, self.apart) * dims.typical(x.count)
        written = costs.overhead(self.target, costs.POOLED) * dims.typical(out.count)
        return added + written + costs.move(self.target, dims.typical(x.nbytes + out.nbytes))

    @property
    def scratch(self) -> int:
        sums = self.row_bytes(self.dtype)
        if self.apart == 1:
            return ERROR_BYTES + sums
        return ERROR_BYTES + 2 * (sums + self.apart * self.lanes * dtypes.itemsize(self.dtype))

    def row(self, f: KernelFunction, at: Sequence[str], count: str) -> None:
        n, channel, *results = at
        axes = self.axes(f)
        sums, side = f.offset("%scratch", ERROR_BYTES), self._side(f, count)
        self.fill(f, self.dtype, sums, 0, f.mul(side, self.apart))
        x = input_view(self.node, 0)
        own = f.mul(channel, f.size(self.taps))
        with self.inside(f, axes, results, carried=True) as (taps, places):
            flat = "0"
            for tap, axis in zip(taps, axes):
                flat = f.add(f.mul(flat, axis.kernel), tap)
            flat = f.add(own, f.mul(flat, axes[-1].kernel))

            def add(tap: str) -> None:
                line = address(f, x, [n, f.add(flat, tap), *places])
                self._tap(f, axes[-1], tap, line, sums, side, results[-1], count)

            last = self.kernel[-1]
            if isinstance(last, int) and last <= UNROLLED and is_number(results[-1]) and is_number(count):
                for tap in range(last):
                    add(str(tap))
            else:
                with f.loop(0, axes[-1].kernel) as loop:
                    add(loop.index)
        self._finish(f, at, self._in_order(f, sums, side), count)

    def _side(self, f: KernelFunction, count: str) -> str:
        """How many sums lie side by side, in whole vectors where they are brought into order."""
        if self.apart == 1:
            return count
        beside = f.divide(f.add(count, self.apart - 1), self.apart)[0]
        return f.round_down(f.add(beside, self.lanes - 1), self.lanes)

    def _tap(
        self,
        f: KernelFunction,
        axis: WindowAxis,
        tap: str,
        line: str,
        sums: str,
        side: str,
        first: str,
        count: str,
    ) -> None:
        """Adds a row of one tap's blocks to the results that it reaches."""
        item, size = dtypes.itemsize(self.dtype), dtypes.itemsize(self.read)
        low, high = axis.carried(tap, first, count)
        source = displaced(f, line, low, size)
        begin = f.sub(f.add(f.mul(low, axis.stride), axis.shift(tap)), first)
        step = axis.stride // self.apart  # from the place of a result to that of the tap's next one
        if self.apart > 1:
            place, phase = f.divide(begin, self.apart)
            begin = f.add(f.mul(phase, side), place)
        to = displaced(f, sums, begin, item)
        length = f.maximum(f.sub(high, low), 0)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            (index,) = indices
            place = displaced(f, to, index, step * item)
            reads = {
                0: lambda: load_lanes(f, self.read, displaced(f, source, index, size), lanes, mask),
                1: lambda: load_lanes(f, self.dtype, place, lanes, mask),
            }
            (total,) = evaluate(f, [self.total], reads, lanes)
            store_lanes(f, self.dtype, total, place, lanes, mask)

        if step == 1:
            each_vector(f, length, self.lanes, 1, vectors)
        else:
            with f.loop(0, length) as loop:
                vectors([loop.index], 1, None, "0")

    def _in_order(self, f: KernelFunction, sums: str, side: str) -> str:
        """Where the row's sums follow each other."""
        if self.apart == 1:
            return sums
        item = dtypes.itemsize(self.dtype)
        step = f.mul(side, item)
        row = f.offset(sums, f.mul(step, self.apart))
        transpose_rows(f, item, self.apart, row, sums, step, side)
        return row

    def _finish(self, f: KernelFunction, at: Sequence[str], sums: str, count: str) -> None:
        out = output_view(self.node)
        to, item = address(f, out, at), dtypes.itemsize(self.dtype)
        body = expr.cast(expr.input_(0, self.dtype), out.dtype)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            (index,) = indices
            reads = {0: lambda: load_lanes(f, self.dtype, displaced(f, sums, index, item), lanes, mask)}
            (result,) = evaluate(f, [body], reads, lanes)
            store_lanes(f, out.dtype, result, displaced(f, to, index, out.itemsize), lanes, mask)

        each_vector(f, count, self.lanes, 1, vectors)


def stages(node: Node[OverlapAdd], target: Target) -> Stages:
    return [[Overlaps(node, target)]], ()
