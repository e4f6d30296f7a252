"""Conv and Pool of any rank, type and padding: sums of a row of results are gathered in scratch memory.

    for rows of the output:  for channels and rows of the window that lie inside:
        for taps of the row:  sums[low:high] += x[shifted] * w
    then out = epilogue(sums)
Arithmetic tells which results a tap reaches, so padding is never read and no element is tested. A transposed
convolution walks the input's row instead and adds at strides. What no faster kernel takes ends here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node
from ...ir.ops import Conv
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.emitter import Function, scalar_type, splat, vector_type
from ..text.memory import load_lanes, store_lanes
from ..text.scalar import lower
from ..tiles.microkernel import fused
from .nest import (
    ERROR_BYTES,
    Block,
    Blocks,
    Piece,
    Stages,
    View,
    address,
    block_rows,
    broadcasting,
    dense,
    displaced,
    input_view,
)
from .operands import (
    Indices,
    Reader,
    each_vector,
    evaluate,
    evaluation,
    read_all,
    scratch_bytes,
    vector_lanes,
)
from .states import accumulator, neutral

LONGEST_ROW = 4096  # results that a row of sums holds


class WindowAxis:
    """One spatial axis of a window: where taps of a result lie in the image."""

    def __init__(
        self,
        f: KernelFunction,
        size: Dimension,
        out: Dimension,
        kernel: Dimension,
        stride: int,
        dilation: int,
        before: Dimension,
    ):
        self.f, self.stride, self.dilation = f, stride, dilation
        self.size, self.out, self.kernel, self.before = (f.size(d) for d in (size, out, kernel, before))

    def shift(self, tap: str) -> str:
        """tap * dilation - before: result 0 reads the image there."""
        return self.f.sub(self.f.mul(tap, self.dilation), self.before)

    def reads(self, result: str, tap: str) -> tuple[str, str]:
        """(index in the image, whether it lies inside) of a tap of a result."""
        index = self.f.add(self.f.mul(result, self.stride), self.shift(tap))
        return index, self.f.compare("ult", index, self.size)

    def writes(self, result: str, tap: str) -> tuple[str, str]:
        """(index in the image, whether there is one) that a transposed convolution's tap carries to a
        result."""
        reach = self.f.sub(result, self.shift(tap))
        index, rest = self.f.divide(self.f.maximum(reach, 0), self.stride)
        conditions = [self.f.compare("sge", reach, 0), self.f.compare("ult", index, self.size)]
        return index, self.f.all_of(*conditions, self.f.compare("eq", rest, 0))

    def steps_to(self, distance: str) -> str:
        """How many strides from 0 reach the distance or pass it: 0 where it is negative."""
        return self.f.divide(self.f.add(self.f.maximum(distance, 0), self.stride - 1), self.stride)[0]

    def reached(self, tap: str, first: str, count: str) -> tuple[str, str]:
        """The results first <= r < first + count whose tap lies inside the image, from and to."""
        f, shift = self.f, self.shift(tap)
        low, high = self.steps_to(f.sub(0, shift)), self.steps_to(f.sub(self.size, shift))
        return f.maximum(low, first), f.minimum(high, f.add(first, count))

    def carried(self, tap: str, first: str, count: str) -> tuple[str, str]:
        """The elements of the image that a transposed convolution's tap carries to results first <= r <
        first + count."""
        f, shift = self.f, self.shift(tap)
        low, high = (self.steps_to(f.sub(first, shift)), self.steps_to(f.sub(f.add(first, count), shift)))
        return low, f.minimum(high, self.size)


class Windows(Piece):
    """What Conv and Pool share: results row by row. `results` are the sizes of the nest; the last is a row,
    the spatial ones are the last `rank`."""

    lanes: int

    def __init__(self, node: Node, target: Target, results: Sequence[Dimension], kernel: Sequence[Dimension]):
        op, x = node.op, node.inputs[0]
        self.node, self.target, self.rank = node, target, len(op.strides)
        self.sizes, self.kernel = tuple(results), tuple(kernel)
        self.image = x.shape[2:]

    @abstractmethod
    def row(self, f: KernelFunction, at: Sequence[str], count: str) -> None:
        """Writes `count` results from the iteration `at` on."""

    @property
    def taps(self) -> Dimension:
        return dims.product(self.kernel)

    @property
    def blocks(self) -> Blocks:
        blocks = block_rows(self.sizes, min(LONGEST_ROW, self.elements), self.lanes)
        longest = dims.minimum(blocks.row, LONGEST_ROW)
        return replace(blocks, blocks=(*blocks.blocks[:-1], longest))

    def each_tap(self, instructions: float, apart: int = 1) -> Estimate:
        """Of one tap of one result, which takes so many instructions on a vector; each tap begins a row, of
        results that are so far apart. No gather brings elements of less than four bytes: lanes are filled one
        by one, those of a row's end too."""
        row = max(1, dims.typical(self.sizes[-1]) // apart)
        vectors = -(-row // self.lanes) / row
        begun = costs.LOOPED / row
        if self.node.op.strides[-1] == apart:
            return costs.compute(self.target, instructions * vectors + begun)
        alone = costs.ALONE * self.lanes if dtypes.itemsize(self.node.inputs[0].dtype) < 4 else 0.0
        return costs.compute(self.target, (instructions * costs.STRIDED + alone) * vectors + begun)

    def row_bytes(self, dtype: str) -> int:
        """Of scratch memory that a row of that type takes."""
        longest = self.blocks.row
        return -(-(longest if isinstance(longest, int) else LONGEST_ROW) * dtypes.itemsize(dtype) // 64) * 64

    def axes(self, f: KernelFunction) -> list[WindowAxis]:
        op = self.node.op
        spatial = self.node.outputs[0].shape[2:]
        return [
            WindowAxis(
                f, self.image[a], spatial[a], self.kernel[a], op.strides[a], op.dilations[a], op.pads[a]
            )
            for a in range(self.rank)
        ]

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block, row by row."""
        with ExitStack() as stack:
            at = list(block.starts)
            for axis, extent in enumerate(block.extents[:-1]):
                if extent != "1":
                    loop = stack.enter_context(f.loop(0, extent))
                    at[axis] = f.add(at[axis], loop.index)
            self.row(f, at, block.extents[-1])

    @contextmanager
    def inside(
        self, f: Function, axes: Sequence[WindowAxis], results: Sequence[str], carried: bool = False
    ) -> Iterator[tuple]:
        """Loops over the taps of all axes but the last; gives (taps, indices in the image) where all lie
        inside."""
        with ExitStack() as stack:
            taps, places = [], []
            for axis, result in zip(axes[:-1], results):
                tap = stack.enter_context(f.loop(0, axis.kernel)).index
                place, valid = axis.writes(result, tap) if carried else axis.reads(result, tap)
                stack.enter_context(f.when(valid))
                taps.append(tap)
                places.append(place)
            yield taps, places

    def fill(self, f: Function, dtype: str, place: str, value: float | int, count: str) -> None:
        """A row of scratch memory set to one value."""

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            (index,) = indices
            store_lanes(
                f,
                dtype,
                splat(value, dtype, lanes),
                displaced(f, place, index, dtypes.itemsize(dtype)),
                lanes,
                mask,
            )

        each_vector(f, count, self.lanes, 1, vectors)


# Convolution -------------------------------------------------------------------------------------


class Convolution(Windows):
    """The nest over (batch, groups, channels of a group, spatial...) of the output."""

    def __init__(self, node: Node, target: Target):
        op, w, out = node.op, node.inputs[1], node.outputs[0]
        channels = dims.floor_divide(out.shape[1], op.groups)
        super().__init__(node, target, (out.shape[0], op.groups, channels, *out.shape[2:]), w.shape[2:])
        self.dtype = accumulator(op.accumulate)
        x, weight = (expr.cast(expr.input_(i, node.inputs[i].dtype), self.dtype) for i in (0, 1))
        self.factors = [x - op.zero if op.zero else x, weight]
        total = expr.cast(expr.input_(0, self.dtype), op.accumulate)
        finish = op.epilogue if op.epilogue is not None else expr.input_(0, op.accumulate)
        self.finish = expr.substitute(finish, {0: total})
        self.lanes = vector_lanes(target, *self.factors)
        self.channels_in = dims.floor_divide(node.inputs[0].shape[1], op.groups)
        self.extra = {
            i: broadcasting("input", i + 1, node.inputs[i + 1].tensor, out.shape)
            for i in expr.inputs(self.finish)
            if i
        }

    @property
    def estimate(self) -> Estimate:
        """Products and what becomes of their sums."""
        taps = dims.typical(self.taps * self.channels_in)
        each = self.each_tap(costs.NEST_PRODUCT) * taps + evaluation(self.target, self.finish)
        return each * dims.typical(dims.product(self.sizes))

    @property
    def scratch(self) -> int:
        return scratch_bytes(len(self.extra)) + self.row_bytes(self.dtype)

    def row(self, f: KernelFunction, at: Sequence[str], count: str) -> None:
        n, group, channel, *results = at
        axes = self.axes(f)
        sums = f.offset("%scratch", scratch_bytes(len(self.extra)))
        self.fill(f, self.dtype, sums, 0, count)
        x, w = (input_view(self.node, i) for i in (0, 1))
        channels = f.size(self.channels_in)
        with f.loop(0, channels) as loop:
            source = f.add(f.mul(group, channels), loop.index)
            image = address(f, x, [n, source])
            weights = address(f, w, self._weight_place(f, group, channel, source, loop.index))
            with self.inside(f, axes, results, self.node.op.transposed) as (taps, places):
                line = self._moved(f, image, x.strides[2:], places)
                weight_row = self._moved(f, weights, w.strides[2:], taps)
                with f.loop(0, axes[-1].kernel) as tap:
                    weight = self._weight(f, displaced(f, weight_row, tap.index, w.itemsize))
                    self._tap(f, axes[-1], tap.index, line, weight, sums, results[-1], count)
        self._finish(f, at, sums, count)

    def _weight_place(self, f: KernelFunction, group: str, channel: str, source: str, own: str) -> list[str]:
        if self.node.op.transposed:
            return [source, channel]
        return [f.add(f.mul(group, f.size(self.sizes[2])), channel), own]

    def _moved(
        self, f: KernelFunction, pointer: str, strides: Sequence[Dimension], places: Sequence[str]
    ) -> str:
        for place, stride in zip(places, strides):
            pointer = displaced(f, pointer, place, f.size(stride))
        return pointer

    def _weight(self, f: Function, pointer: str) -> str:
        dtype = self.node.inputs[1].dtype
        (value,) = lower(f, [self.factors[1]], lambda _: load_lanes(f, dtype, pointer, 1), 1)
        return value

    def _tap(
        self,
        f: KernelFunction,
        axis: WindowAxis,
        tap: str,
        line: str,
        weight: str,
        sums: str,
        first: str,
        count: str,
    ) -> None:
        """Adds one tap of the row to its sums."""
        item, wide = (dtypes.itemsize(self.dtype), f.broadcast(scalar_type(self.dtype), weight, self.lanes))
        x = self.node.inputs[0]
        size, shift = dtypes.itemsize(x.dtype), axis.shift(tap)
        if self.node.op.transposed:
            low, high = axis.carried(tap, first, count)
            begin = f.sub(f.add(f.mul(low, axis.stride), shift), first)
            source, step_in, step_out = displaced(f, line, low, size), size, axis.stride * item
        else:
            low, high = axis.reached(tap, first, count)
            begin = f.sub(low, first)
            source = displaced(f, line, f.add(f.mul(low, axis.stride), shift), size)
            step_in, step_out = axis.stride * size, item
        to = displaced(f, sums, begin, item)
        length = f.maximum(f.sub(high, low), 0)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            view = View("input", 0, x.dtype, (step_in,))
            reader = Reader(f, view, 0, source, lanes, 0)
            (index,) = indices
            (value,) = lower(f, [self.factors[0]], lambda _: reader.read(index, lanes, mask), lanes)
            place = (
                f.offset(to, f.mul(index, step_out)) if step_out != item else displaced(f, to, index, item)
            )
            old = load_lanes(f, self.dtype, place, lanes, mask)
            new = fused(f, self.dtype, lanes, value, wide if lanes == self.lanes else weight, old)
            store_lanes(f, self.dtype, new, place, lanes, mask)

        if step_out == item:
            each_vector(f, length, self.lanes, 1, vectors)
        else:
            with f.loop(0, length) as loop:
                vectors([loop.index], 1, None, "0")

    def _finish(self, f: KernelFunction, at: Sequence[str], sums: str, count: str) -> None:
        n, group, channel, *results = at
        place = [n, f.add(f.mul(group, f.size(self.sizes[2])), channel), *results]
        out = dense("output", 0, self.node.outputs[0].tensor)
        to, last = address(f, out, place), len(place) - 1
        lanes = self.lanes
        readers = {
            i: Reader(f, v, last, address(f, v, place), lanes, slot)
            for slot, (i, v) in enumerate(self.extra.items())
        }
        where = Indices({a: a for a in range(len(place))}, place, last)
        item = dtypes.itemsize(self.dtype)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            (index,) = indices
            reads = {
                **read_all(readers, index, lanes, mask),
                0: lambda: load_lanes(f, self.dtype, displaced(f, sums, index, item), lanes, mask),
            }
            (value,) = evaluate(
                f, [self.finish], reads, lanes, lambda a: where.lanes(f, a, index, lanes), mask
            )
            store_lanes(f, out.dtype, value, displaced(f, to, index, out.itemsize), lanes, mask)

        each_vector(f, count, lanes, 1, vectors)


# Pooling -----------------------------------------------------------------------------------------


class Pooling(Windows):
    """The nest over (batch, channels, spatial...) of the output. Scratch memory holds a row of values and,
    for a mean, of counts, for argmax of places."""

    def __init__(self, node: Node, target: Target):
        super().__init__(node, target, node.outputs[0].shape, node.op.kernel)
        self.dtype = accumulator(node.inputs[0].dtype)
        self.element = expr.cast(expr.input_(0, node.inputs[0].dtype), self.dtype)
        self.lanes = vector_lanes(target, self.element)
        self.second = {"mean": "int32", "argmax": "int64"}.get(node.op.kind)

    @property
    def estimate(self) -> Estimate:
        """Taps, and every element read and written once."""
        places = costs.ARGMAX if self.second == "int64" else 1
        total = dims.typical(self.node.inputs[0].tensor.nbytes + self.node.outputs[0].tensor.nbytes)
        each = self.each_tap(costs.NEST_TAP * places) * dims.typical(self.taps) + costs.overhead(
            self.target, costs.POOLED
        )
        return each * dims.typical(dims.product(self.sizes)) + costs.move(self.target, total)

    @property
    def scratch(self) -> int:
        return ERROR_BYTES + self.row_bytes(self.dtype) + (self.row_bytes(self.second) if self.second else 0)

    def row(self, f: KernelFunction, at: Sequence[str], count: str) -> None:
        kind, (n, channel, *results) = self.node.op.kind, at
        axes = self.axes(f)
        best = f.offset("%scratch", ERROR_BYTES)
        second = f.offset(best, self.row_bytes(self.dtype))
        lowest = 0 if kind in ("sum", "mean") else neutral("max", self.dtype)
        self.fill(f, self.dtype, best, lowest, count)
        if self.second:
            self.fill(f, self.second, second, -1 if kind == "argmax" else 0, count)
        view = input_view(self.node, 0)
        image = address(f, view, [n, channel])
        with self.inside(f, axes, results) as (_, places):
            line, flat = image, "0"
            for place, stride, scale in zip(places, view.strides[2:], self._scales()):
                line = displaced(f, line, place, f.size(stride))
                flat = f.add(flat, f.mul(place, f.size(scale)))
            with f.loop(0, axes[-1].kernel) as tap:
                self._tap(f, axes[-1], tap.index, line, flat, best, second, results[-1], count)
        self._finish(f, at, best, second, count)

    def _scales(self) -> list[Dimension]:
        """What an index along each axis counts in the flattened image."""
        if self.node.op.column_major:
            return [dims.product(self.image[:a]) for a in range(self.rank)]
        return [dims.product(self.image[a + 1 :]) for a in range(self.rank)]

    def _tap(
        self,
        f: KernelFunction,
        axis: WindowAxis,
        tap: str,
        line: str,
        flat: str,
        best: str,
        second: str,
        first: str,
        count: str,
    ) -> None:
        """Combines one tap of the row with what its results have so far."""
        x, item = self.node.inputs[0], dtypes.itemsize(self.dtype)
        size = dtypes.itemsize(x.dtype)
        low, high = axis.reached(tap, first, count)
        begin = f.add(f.mul(low, axis.stride), axis.shift(tap))
        source, start = displaced(f, line, begin, size), f.sub(low, first)
        scale = f.size(self._scales()[-1])

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            reader = Reader(f, View("input", 0, x.dtype, (axis.stride * size,)), 0, source, lanes, 0)
            (index,) = indices
            spot = f.add(start, index)
            place = displaced(f, best, spot, item)
            reads: dict[int, Callable[[], str]] = {
                0: lambda: reader.read(index, lanes, mask),
                1: lambda: load_lanes(f, self.dtype, place, lanes, mask),
            }
            if self.second is None:
                (value,) = evaluate(f, [self._combined()], reads, lanes)
                store_lanes(f, self.dtype, value, place, lanes, mask)
                return
            other = displaced(f, second, spot, dtypes.itemsize(self.second))
            reads[2] = partial(load_lanes, f, self.second, other, lanes, mask)
            if self.second == "int64":
                begins = f.add(flat, f.mul(f.add(begin, f.mul(index, axis.stride)), scale))
                reads[3] = lambda: self._numbered(f, begins, f.mul(axis.stride, scale), lanes)
            values = evaluate(f, self._with_second(self.second), reads, lanes)
            for dtype, value, to in zip((self.dtype, self.second), values, (place, other)):
                store_lanes(f, dtype, value, to, lanes, mask)

        each_vector(f, f.maximum(f.sub(high, low), 0), self.lanes, 1, vectors)

    def _numbered(self, f: Function, first: str, step: str, lanes: int) -> str:
        """first, first + step, ..."""
        vector = vector_type("i64", lanes)
        start = f.broadcast("i64", first, lanes)
        if lanes == 1:
            return start
        numbers = "<" + ", ".join(f"i64 {lane}" for lane in range(lanes)) + ">"
        steps = f.binary("mul", numbers, f.broadcast("i64", step, lanes), vector)
        return f.binary("add", start, steps, vector)

    def _combined(self) -> Expr:
        old = expr.input_(1, self.dtype)
        return old.maximum(self.element) if self.node.op.kind == "max" else old + self.element

    def _with_second(self, second_type: str) -> list[Expr]:
        """(value, count or place) after a tap."""
        old, second = expr.input_(1, self.dtype), expr.input_(2, second_type)
        if self.node.op.kind == "mean":
            return [old + self.element, second + 1]
        new = self.element
        better = (new > old) | second.equals(-1)
        if dtypes.is_float(self.dtype):
            better = better | (expr.isnan(new) & ~expr.isnan(old))
        return [expr.where(better, new, old), expr.where(better, expr.input_(3, "int64"), second)]

    def _finish(self, f: KernelFunction, at: Sequence[str], best: str, second: str, count: str) -> None:
        out = dense("output", 0, self.node.outputs[0].tensor)
        to = address(f, out, at)
        value = expr.input_(0, self.dtype)
        if self.node.op.kind == "argmax":
            value = expr.input_(1, "int64").maximum(0)
        elif self.node.op.kind == "mean":
            wide = self.dtype if dtypes.is_float(self.dtype) else "float64"
            value = expr.cast(value, wide) / expr.cast(expr.input_(1, "int32"), wide)
        body = expr.cast(value, out.dtype)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            (index,) = indices

            def read(dtype: str, row: str) -> str:
                return load_lanes(f, dtype, displaced(f, row, index, dtypes.itemsize(dtype)), lanes, mask)

            reads = {0: partial(read, self.dtype, best), 1: partial(read, self.second or self.dtype, second)}
            (result,) = evaluate(f, [body], reads, lanes)
            store_lanes(f, out.dtype, result, displaced(f, to, index, out.itemsize), lanes, mask)

        each_vector(f, count, self.lanes, 1, vectors)


# Nodes -------------------------------------------------------------------------------------------


def stages(node: Node, target: Target) -> Stages:
    return [[Convolution(node, target) if isinstance(node.op, Conv) else Pooling(node, target)]], ()
