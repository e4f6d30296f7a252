"""OverlapAdd of any rank, type and stride: sums of a row of results are gathered in scratch memory.

    for rows of the output:  for rows of the window that reach it:
        for taps of the row:  sums[low:high] += the tap's blocks
    out = sums
Arithmetic tells which blocks reach a row, so that every element is read once and none is tested.
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
from ..text.memory import load_lanes, store_lanes
from .nest import ERROR_BYTES, Stages, address, displaced, input_view, output_view
from .operands import each_vector, evaluate, vector_lanes
from .states import accumulator
from .windows import WindowAxis, Windows


class Overlaps(Windows):
    """The nest over (batch, channels, spatial...) of the output. Scratch memory holds a row of sums."""

    def __init__(self, node: Node[OverlapAdd], target: Target):
        super().__init__(node, target, node.outputs[0].shape, node.op.kernel)
        self.read = node.inputs[0].dtype
        self.dtype = accumulator(self.read)
        element = expr.cast(expr.input_(0, self.read), self.dtype)
        self.total = expr.input_(1, self.dtype) + element
        self.lanes = vector_lanes(target, self.total)

    @property
    def estimate(self) -> Estimate:
        """Every element read and added once."""
        x, out = self.node.inputs[0].tensor, self.node.outputs[0].tensor
        added = self.each_tap(costs.NEST_TAP) * dims.typical(x.count)
        written = costs.overhead(self.target, costs.POOLED) * dims.typical(out.count)
        return added + written + costs.move(self.target, dims.typical(x.nbytes + out.nbytes))

    @property
    def scratch(self) -> int:
        return ERROR_BYTES + self.row_bytes(self.dtype)

    def row(self, f: KernelFunction, at: Sequence[str], count: str) -> None:
        n, channel, *results = at
        axes = self.axes(f)
        sums = f.offset("%scratch", ERROR_BYTES)
        self.fill(f, self.dtype, sums, 0, count)
        x = input_view(self.node, 0)
        own = f.mul(channel, f.size(self.taps))
        with self.inside(f, axes, results, carried=True) as (taps, places):
            flat = "0"
            for tap, axis in zip(taps, axes):
                flat = f.add(f.mul(flat, axis.kernel), tap)
            flat = f.add(own, f.mul(flat, axes[-1].kernel))
            with f.loop(0, axes[-1].kernel) as loop:
                line = address(f, x, [n, f.add(flat, loop.index), *places])
                self._tap(f, axes[-1], loop.index, line, sums, results[-1], count)
        self._finish(f, at, sums, count)

    def _tap(
        self, f: KernelFunction, axis: WindowAxis, tap: str, line: str, sums: str, first: str, count: str
    ) -> None:
        """Adds a row of one tap's blocks to the results that it reaches."""
        item, size = dtypes.itemsize(self.dtype), dtypes.itemsize(self.read)
        low, high = axis.carried(tap, first, count)
        source = displaced(f, line, low, size)
        to = displaced(f, sums, f.sub(f.add(f.mul(low, axis.stride), axis.shift(tap)), first), item)
        length = f.maximum(f.sub(high, low), 0)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            (index,) = indices
            place = displaced(f, to, index, axis.stride * item)
            reads = {
                0: lambda: load_lanes(f, self.read, displaced(f, source, index, size), lanes, mask),
                1: lambda: load_lanes(f, self.dtype, place, lanes, mask),
            }
            (total,) = evaluate(f, [self.total], reads, lanes)
            store_lanes(f, self.dtype, total, place, lanes, mask)

        if axis.stride == 1:
            each_vector(f, length, self.lanes, 1, vectors)
        else:
            with f.loop(0, length) as loop:
                vectors([loop.index], 1, None, "0")

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
