"""Pools of dense images, row by row: first the rows of a window are combined, then places of what that gives.

    for rows of the output:  line = the rows of the window, combined place by place
                             out[x] = line[x * stride], line[x * stride + dilation], ... combined
So that a k x k window takes 2k steps, a large maximum fewer: of 2, 4, 8 places, then of two such. `line`
lies in scratch memory between places that change nothing, which stand for those outside of the image; so
does a row of such for rows outside of it. What a Map makes of the elements is computed where a row is read,
and what one makes of the results, and of further images, where they are written. Axes at the end along which
nothing is combined make a pixel of many elements: channels that come last. Sizes may be open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Node, TensorType, Value
from ...ir.ops import Pool
from ...ir.pools import Pooling, idle, pooling_of
from ...target import LINE, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, Offer, as_it_is, offered
from ..nests.nest import (
    ERROR_BYTES,
    Block,
    Blocks,
    Piece,
    address,
    displaced,
    input_view,
    loops,
    output_view,
    parts_step,
)
from ..nests.operands import each_vector, evaluate
from ..nests.states import accumulator, neutral
from ..text.emitter import Function, scalar_type, splat, vector_constant
from ..text.memory import gather, load_lanes, store_lanes
from ..text.vectors import Vectors
from ..tiles.blocked import highest

ROWS = 16  # of a window that are combined at once
TAPS = 32  # that are unrolled
DOUBLED = 16  # places from which on the greatest of them is found in pairs
LONGEST_LINE = 4096  # elements of a line, about
WINDOWS = 4  # that a line of pieces of pixels has room for, at least
LONGEST_PIXEL = 1024  # elements of a pixel that are pooled at once
TOGETHER = 512  # elements of lines that are made before the first is read: what was written must arrive
PICKED = 8  # strides up to which results are picked from vectors


def candidates(node: Node, target: Target) -> Iterator[Offer[None]]:
    """One, for dense images."""
    pooling = pooling_of(node)
    if (
        pooling is not None
        and takes(pooling.node.op, pooling.node.inputs[0].tensor, pooling.dtype)
        and _outside(pooling) is not None
    ):
        dense = [Value(replace(v.tensor, layout=None)) for v in (*node.inputs, *node.outputs)]
        rows = RowPooling(Node(node.op, tuple(dense[:-1]), tuple(dense[-1:]), node.origin), target)
        cost = rows.cost if 0 not in rows.sizes else Estimate()
        yield Offer(cost + costs.step(target), None)


pack = as_it_is


def emit(node: Node, choice: Choice[None], target: Target) -> Code:
    return Code((parts_step(target, [RowPooling(node, target)]),))


def takes(op: Pool, image: TensorType, dtype: str) -> bool:
    """Whether a pool is combined axis by axis, in its own type, of lines that are not too long."""
    if op.kind not in ("max", "sum", "mean") or accumulator(dtype) != dtype:
        return False
    last = _last_axis(op, image)
    return (op.kernel[last] - 1) * op.dilations[last] < LONGEST_LINE // 2


def _outside(pooling: Pooling) -> float | int | None:
    """What stands for the rows outside of the image, as it is stored."""
    return idle(pooling.node.op.kind, pooling.dtype, pooling.before)


def _last_axis(op: Pool, image: TensorType) -> int:
    """The last axis along which anything is combined or left out."""
    return max((a for a in range(len(op.kernel)) if not op.keeps(a, image)), default=0)


class RowPooling(Piece):
    """The nest over (planes, rows..., results of a row, elements of a pixel)."""

    def __init__(self, node: Node, target: Target):
        pooling = offered(pooling_of(node), node)
        self.node, self.target, self.op, self.dtype = pooling.node, target, pooling.node.op, pooling.dtype
        self.read, self.written = pooling.before, pooling.after
        op, x, out = self.op, node.inputs[0], node.outputs[0]
        self.stored, self.made = x.dtype, out.dtype
        self.besides = range(1, len(node.inputs))
        self.image_types = (out.dtype, *(v.dtype for v in node.inputs[1:]))
        self.last = _last_axis(op, node.inputs[0].tensor)
        self.lanes = target.lanes(self.dtype)
        self.item = dtypes.itemsize(self.dtype)
        self.width = x.shape[2 + self.last]
        self.pixel = dims.product(x.shape[3 + self.last :])
        planes = out.shape[0] * out.shape[1]
        self.sizes = (planes, *out.shape[2 : 2 + self.last], out.shape[2 + self.last], self.pixel)
        self.taps, self.stride = op.kernel[self.last], op.strides[self.last]
        self.dilation, self.before = op.dilations[self.last], op.pads[self.last]
        self.extent = (self.taps - 1) * self.dilation + 1
        self.rows = math.prod(op.kernel[: self.last])
        self.lowest = 0 if op.kind != "max" else neutral("max", self.dtype)
        self.outside = offered(_outside(pooling), node)
        doubled = op.kind == "max" and self.taps >= DOUBLED
        self.span = (
            1 << (self.taps.bit_length() - 1) if doubled else 1
        )  # places that each of a line stands for

    # Parts -----------------------------------------------------------------------------------------

    @property
    def part(self) -> tuple[int, int]:
        """(results, elements of a pixel) that a line has room for. Of pixels so long that it would hold fewer
        than two windows it has a piece: each place that is read then serves more results."""
        room = max(self.lanes, LONGEST_LINE // self.extent)
        pixel = self.pixel if isinstance(self.pixel, int) else LONGEST_PIXEL
        if pixel > room // 2:
            pixel = max(1, room // WINDOWS // self.lanes) * self.lanes
        pixel = max(1, min(pixel, LONGEST_PIXEL))
        count = max(1, (LONGEST_LINE // pixel - self.extent) // self.stride + 1)
        width = self.sizes[-2]
        return (min(width, count) if isinstance(width, int) else count), pixel

    @property
    def whole_pixels(self) -> bool:
        """Whether the elements of a part's pixels follow each other."""
        return self.pixel == self.part[1]

    @property
    def line_elements(self) -> int:
        """Room for the longest line, or several that are short."""
        count, pixel = self.part
        return max(TOGETHER, ((count - 1) * self.stride + self.extent) * pixel)

    @property
    def line_bytes(self) -> int:
        """With room for vectors that begin at the last place."""
        nbytes = self.line_elements * self.item + self.lanes * self.item * self.stride
        return -(-nbytes // 64) * 64 + 64

    @property
    def scratch(self) -> int:
        return ERROR_BYTES + 3 * self.line_bytes + 4 * (self.part[0] + self.lanes)

    @property
    def blocks(self) -> Blocks:
        count, pixel = self.part
        results = min(count, dims.typical(self.sizes[-2])) * min(pixel, dims.typical(self.pixel))
        left = max(1, self.elements // max(1, results))
        found: list[Dimension] = []
        for size in reversed(self.sizes[:-2]):
            found.append(max(1, min(size, left)) if isinstance(size, int) else left)
            left = max(1, left // max(1, min(left, dims.typical(size))))
        return Blocks(self.sizes, (*reversed(found), count, pixel))

    @property
    def estimate(self) -> Estimate:
        """A window's rows, its places and what becomes of them, in whole vectors of a row."""
        pixel, results = dims.typical(self.pixel), dims.typical(self.sizes[-2])
        tap = costs.ROW_TAP * costs.combining(self.op.kind, self.dtype)
        read, made = (
            costs.weight(self.target, body) if body is not None else 0 for body in (self.read, self.written)
        )
        length, split = dims.typical(self.width) * pixel, self.lanes * self.item / LINE
        shifted = split * (pixel % self.lanes != 0)  # what lies across two lines of the cache is loaded twice
        apart = split * (length % self.lanes != 0) / 2
        down = -(-length // self.lanes) * (self.rows * (tap + apart + read) + 2)
        alike = self.stride == 1 and (self.op.kind != "mean" or self.pixel == 1) and self.whole_pixels
        picked = self.stride if self.pixel == 1 and self.stride <= PICKED else 1
        vectors = -(-results * pixel // self.lanes)
        if self.pixel == 1 and self.stride > PICKED:
            picked *= self.lanes
        elif self.pixel != 1 and not alike:
            vectors = results * (-(-pixel // self.lanes) + 1)
        ends = 2 + made
        doublings = self.span.bit_length() - 1
        down += doublings * -(-length // self.lanes) * (tap + 2)
        combined = self.taps if self.span == 1 else 2
        across = vectors * (combined * (tap + shifted) * picked + picked - 1 + ends)
        divided = vectors * costs.divided(self.target) * (self.op.kind == "mean")  # while others are loaded
        rows = dims.typical(dims.product(self.sizes[:-2]))
        total = dims.typical(sum(v.tensor.nbytes for v in (*self.node.inputs, *self.node.outputs)))
        begun = 2 * costs.POOL_ROW + doublings * costs.SPLIT_LOADS
        each = costs.loads(self.target, max(down + across, divided)) + costs.overhead(self.target, begun)
        return each * rows + costs.move(self.target, total)

    # Code ------------------------------------------------------------------------------------------

    def emit(self, f: KernelFunction, block: Block) -> None:
        """What lies outside of the image is the same for all rows of a block. Short lines are made
        several at a time: read right after it was written, each would wait for that."""
        *outer, first, element = block.starts
        *extents, count, pixel = block.extents
        start = f.sub(f.mul(first, self.stride), f.size(self.before))
        stop = f.add(start, f.add(f.mul(f.sub(count, 1), self.stride), self.extent))
        low = f.minimum(f.maximum(start, 0), stop)
        high = f.maximum(f.minimum(stop, f.size(self.width)), low)
        lines = f.offset("%scratch", ERROR_BYTES)
        outside = f.offset(lines, self.line_bytes)
        pairs = f.offset(outside, self.line_bytes)
        counts = f.offset(pairs, self.line_bytes)
        length = f.mul(f.sub(stop, start), pixel)
        together = f.minimum(f.maximum(f.divide(TOGETHER, length)[0], 1), extents[-1])
        head, end = (f.mul(f.sub(place, start), pixel) for place in (low, high))
        # With what the last vectors read of no window: subnormal numbers there would be slow to divide.
        behind = f.add(f.mul(f.sub(stop, high), pixel), self.lanes * self.stride)
        with f.loop(0, together) as row:
            line = self._at(f, lines, f.mul(row.index, length))
            self._clear(f, line, head)
            self._clear(f, self._at(f, line, end), behind)
        if self.rows > 1 or self.leaves:
            beyond = f.mul(f.sub(high, low), pixel) if self.whole_pixels else pixel
            self._clear(f, outside, beyond, self.stored, self.outside)
        if self.op.kind == "mean":
            self._count(f, counts, start, count)
        columns = low, f.sub(high, low)
        views = output_view(self.node), *(input_view(self.node, k) for k in self.besides)
        with loops(f, extents[:-1]) as steps, f.loop(0, extents[-1], together) as some:
            here = f.minimum(together, f.sub(extents[-1], some.index))

            def at(row: str) -> list[str]:
                return [f.add(s, i) for s, i in zip(outer, (*steps, f.add(some.index, row)))]

            with f.loop(0, here) as row:
                line = self._at(f, lines, f.add(f.mul(row.index, length), head))
                self._down(f, at(row.index), columns, element, pixel, line, outside)
            whole = self._doubled(f, lines, pairs, f.mul(here, length), pixel)
            with f.loop(0, here) as row:
                place = at(row.index)
                images = [address(f, view, self._place(f, place, first, element)) for view in views]
                line = self._at(f, whole, f.mul(row.index, length))
                self._across(f, images, count, pixel, line, counts, self._rows_inside(f, place[1:]))

    def _place(self, f: KernelFunction, at: Sequence[str], column: str, element: str) -> list[str]:
        """Indices in an image's view; the last is that of the last axis of all."""
        channels = f.size(self.node.outputs[0].shape[1])
        n, c = f.divide(at[0], channels)
        idle = len(self.op.kernel) - 1 - self.last
        return [n, c, *at[1:], column, *(["0"] * (idle - 1) + [element] if idle else [])]

    def _at(self, f: Function, pointer: str, index: str, dtype: str = "") -> str:
        return displaced(f, pointer, index, dtypes.itemsize(dtype or self.dtype))

    def _clear(
        self, f: Function, place: str, count: str, dtype: str = "", number: float | int | None = None
    ) -> None:
        """Elements that change nothing."""
        dtype = dtype or self.dtype
        value = self.lowest if number is None else number

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            to = self._at(f, place, indices[0], dtype)
            store_lanes(f, dtype, splat(value, dtype, lanes), to, lanes, mask)

        each_vector(f, count, self.lanes, 1, vectors)

    def _combine(self, f: Function, lanes: int, a: str | None, b: str) -> str:
        """a with b. What the result is written over is b: a choice that leaves some lanes of a as they are in
        memory would become a store of the others, which takes processors without masks twenty cycles."""
        if a is None:
            return b
        words = Vectors(f, self.dtype, lanes)
        return words.maximum(b, a) if self.op.kind == "max" else words.add(a, b)

    # Rows

    @property
    def leaves(self) -> list[int]:
        """The axes before the last along which windows may leave the image."""
        found = []
        for a in range(self.last):
            image, reach = self.node.inputs[0].shape[2 + a], (self.op.kernel[a] - 1) * self.op.dilations[a]
            end = (self.sizes[1 + a] - 1) * self.op.strides[a] - self.op.pads[a] + reach + 1
            beyond = highest(end - image)
            if self.op.pads[a] != 0 or beyond is None or beyond > 0:
                found.append(a)
        return found

    def _tap(self, f: KernelFunction, at: Sequence[str], axis: int, tap: str | int) -> tuple[str, str | None]:
        """(place, whether it lies inside where that is not sure) of a result's tap along an axis."""
        shift = f.sub(f.mul(tap, self.op.dilations[axis]), f.size(self.op.pads[axis]))
        place = f.add(f.mul(at[axis], self.op.strides[axis]), shift)
        size = f.size(self.node.inputs[0].shape[2 + axis])
        return place, f.compare("ult", place, size) if axis in self.leaves else None

    def _down(
        self,
        f: KernelFunction,
        at: Sequence[str],
        columns: tuple[str, str],
        element: str,
        pixel: str,
        line: str,
        outside: str,
    ) -> None:
        """The rows of the windows, combined in the line."""
        view, (low, width) = input_view(self.node, 0), columns
        start = address(f, view, self._place(f, [at[0], *["0"] * self.last], low, element))
        kernel = self.op.kernel[: self.last]

        def row(taps: Sequence[str | int]) -> tuple[str, str]:
            """(whether a row lies inside, its address)."""
            pointer, conditions = start, []
            for axis, (tap, stride) in enumerate(zip(taps, view.strides[2:])):
                place, condition = self._tap(f, at[1:], axis, tap)
                pointer = f.offset(pointer, f.mul(place, f.size(stride)))
                if condition is not None:
                    conditions.append(condition)
            return f.all_of(*conditions), pointer

        if self.rows <= ROWS:
            rows = [row(taps) for taps in product(*map(range, kernel))]
            self._combine_rows(f, rows, line, width, pixel, outside)
            return
        self._clear(f, line, f.mul(width, pixel))
        *outer, inner = kernel
        with loops(f, outer) as taps:
            whole = inner // ROWS * ROWS
            with f.loop(0, whole, ROWS) as some:
                rows = [row([*taps, f.add(some.index, k)]) for k in range(ROWS)]
                self._combine_rows(f, rows, line, width, pixel, outside, more=True)
            rows = [row([*taps, k]) for k in range(whole, inner)]
            if rows:
                self._combine_rows(f, rows, line, width, pixel, outside, more=True)

    def _combine_rows(
        self,
        f: KernelFunction,
        rows: Sequence[tuple[str, str]],
        line: str,
        width: str,
        pixel: str,
        outside: str,
        more: bool = False,
    ) -> None:
        """Writes the line; rows that are not inside are `outside`. more: adds to what the line holds."""
        apart = f.mul(f.size(self.pixel), dtypes.itemsize(self.stored))

        def columns(pointers: Sequence[str], to: str, count: str) -> None:
            def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
                here = self._at(f, to, indices[0])
                state: str | None = None
                for pointer in pointers:
                    place = self._at(f, pointer, indices[0], self.stored)
                    value = load_lanes(f, self.stored, place, lanes, mask)
                    state = self._combine(f, lanes, state, _made(f, self.read, [value], lanes))
                if more:
                    before = load_lanes(f, self.dtype, here, lanes, mask)
                    state = self._combine(f, lanes, state, before)
                store_lanes(f, self.dtype, str(state), here, lanes, mask)

            each_vector(f, count, self.lanes, 1, vectors)

        chosen = [p if inside == "true" else f.select(inside, "ptr", p, outside) for inside, p in rows]
        if self.whole_pixels:
            columns(chosen, line, f.mul(width, pixel))
            return
        steps = []
        for inside, _ in rows:
            steps.append(apart if inside == "true" else f.select(inside, "i64", apart, "0"))
        with f.loop(0, width) as loop:
            here = [f.offset(p, f.mul(loop.index, step)) for p, step in zip(chosen, steps)]
            columns(here, self._at(f, line, f.mul(loop.index, pixel)), pixel)

    # Places of a row

    def _doubled(self, f: KernelFunction, line: str, pairs: str, length: str, pixel: str) -> str:
        """Lines, of `length` elements in all, whose every place stands for the `span` from it on."""
        done = 1
        while done < self.span:
            ahead = f.mul(f.mul(pixel, self.dilation), done)
            count = f.sub(length, f.mul(f.mul(pixel, self.dilation), 2 * done - 1))

            def vectors(
                indices: Sequence[str],
                lanes: int,
                _: str | None,
                __: str,
                line: str = line,
                ahead: str = ahead,
            ) -> None:
                kind, (index,) = Vectors(f, self.dtype, lanes).type, indices
                first, second = (f.load(kind, self._at(f, line, i)) for i in (index, f.add(index, ahead)))
                f.store(kind, self._combine(f, lanes, second, first), self._at(f, pairs, index))

            each_vector(f, count, self.lanes, 1, vectors)
            line, done = pairs, 2 * done
        return line

    def _across(
        self,
        f: KernelFunction,
        images: Sequence[str],
        count: str,
        pixel: str,
        line: str,
        counts: str,
        rows: str,
    ) -> None:
        """The results of a row: taps of the line. images: where it lies in the result, and in the operands of
        which results are made besides."""
        if self.pixel == 1:
            self._results(f, images, count, line, self.stride, "1", counts, rows)
        elif self.stride == 1 and self.whole_pixels and self.op.kind != "mean":
            self._results(f, images, f.mul(count, pixel), line, 1, pixel, counts, rows)
        else:
            with f.loop(0, count) as loop:
                here = self._at(f, line, f.mul(f.mul(loop.index, self.stride), pixel))
                at = f.mul(loop.index, f.size(self.pixel))
                there = [self._at(f, image, at, dtype) for image, dtype in zip(images, self.image_types)]
                number = f.load("i32", displaced(f, counts, loop.index, 4)) if self.op.kind == "mean" else ""
                self._results(f, there, pixel, here, 1, pixel, number, rows)

    def _results(
        self,
        f: KernelFunction,
        images: Sequence[str],
        count: str,
        line: str,
        stride: int,
        pixel: str,
        counts: str,
        rows: str,
    ) -> None:
        """`count` results that lie together, whose taps are `pixel` elements apart times the dilation."""
        step = f.mul(f.mul(pixel, self.dilation), self.item)

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            (index,) = indices
            place = self._at(f, line, f.mul(index, stride))
            value = self._window(f, place, step, stride, lanes)
            if self.op.kind == "mean":
                number = counts
                if pixel == "1":
                    number = load_lanes(f, "int32", displaced(f, counts, index, 4), lanes, mask)
                elif lanes > 1:
                    number = f.broadcast("i32", counts, lanes)
                value = self._mean(f, value, number, rows, lanes)
            places = [self._at(f, image, index, dtype) for image, dtype in zip(images, self.image_types)]
            reads = [value]
            for place, dtype in zip(places[1:], self.image_types[1:]):
                reads.append(load_lanes(f, dtype, place, lanes, mask))
            store_lanes(f, self.made, _made(f, self.written, reads, lanes), places[0], lanes, mask)

        each_vector(f, count, self.lanes, 1, vectors)

    def _window(self, f: KernelFunction, place: str, step: str, stride: int, lanes: int) -> str:
        """`lanes` results, of vectors of all places of which every `stride`-th is one."""
        if lanes > 1 and stride > PICKED:
            return self._gathered(f, place, step, stride, lanes)
        size, kind = lanes * self.item, Vectors(f, self.dtype, lanes).type

        def taps(offset: int) -> str:
            def load(tap: str | int) -> str:
                return f.load(kind, f.offset(place, f.add(f.mul(tap, step), offset)))

            return self._combined(f, kind, lanes, load)

        found = taps(0)
        for part in range(1, stride if lanes > 1 else 1):
            found = f.shuffle(found, taps(part * size), _picks(part, stride, lanes), kind)
        return found

    def _combined(self, f: KernelFunction, kind: str, lanes: int, load: Callable[[str | int], str]) -> str:
        state = None
        few = self.span > 1 or self.taps <= TAPS
        places = {0, self.taps - self.span} if self.span > 1 else range(min(self.taps, TAPS))
        for tap in sorted(places):
            state = self._combine(f, lanes, state, load(tap))
        if few:
            return str(state)
        with f.loop(TAPS, self.taps, carried=[(kind, str(state))]) as loop:
            loop.carry(self._combine(f, lanes, loop.carried[0], load(loop.index)))
        return loop.results[0]

    def _gathered(self, f: KernelFunction, place: str, step: str, stride: int, lanes: int) -> str:
        steps = vector_constant("i64", [lane * stride for lane in range(lanes)])
        kind = Vectors(f, self.dtype, lanes).type

        def load(tap: str | int) -> str:
            return gather(f, scalar_type(self.dtype), f.offset(place, f.mul(tap, step)), steps)

        return self._combined(f, kind, lanes, load)

    # Means

    def _inside(self, f: KernelFunction, start: str, axis: int) -> str:
        """How many taps of a window that starts there lie inside of the image."""
        taps, step = self.op.kernel[axis], self.op.dilations[axis]
        size = f.size(self.node.inputs[0].shape[2 + axis])
        skipped = f.divide(f.add(f.maximum(f.sub(0, start), 0), step - 1), step)[0]
        room = f.divide(f.add(f.maximum(f.sub(size, start), 0), step - 1), step)[0]
        return f.maximum(f.sub(f.minimum(room, taps), skipped), 0)

    def _rows_inside(self, f: KernelFunction, at: Sequence[str]) -> str:
        """How many rows of a window are inside, an i32; of means alone."""
        found = "1"
        if self.op.kind != "mean":
            return found
        for axis, index in enumerate(at):
            start = f.sub(f.mul(index, self.op.strides[axis]), f.size(self.op.pads[axis]))
            inside = self._inside(f, start, axis) if axis in self.leaves else str(self.op.kernel[axis])
            found = f.mul(found, inside)
        return found if found.isdigit() else f.cast("trunc", found, "i32", "i64")

    def _count(self, f: KernelFunction, counts: str, start: str, count: str) -> None:
        """The taps inside of a row, for each of its results: all but at its ends."""

        def whole(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            store_lanes(
                f, "int32", splat(self.taps, "int32", lanes), displaced(f, counts, indices[0], 4), lanes, mask
            )

        def ends(first: str, stop: str) -> None:
            with f.loop(first, stop) as loop:
                inside = self._inside(f, f.add(start, f.mul(loop.index, self.stride)), self.last)
                inside = f.cast("trunc", inside, "i32", "i64")
                f.store("i32", inside, displaced(f, counts, loop.index, 4))

        each_vector(f, count, self.target.lanes("int32"), 1, whole)
        before = f.divide(f.add(f.maximum(f.sub(0, start), 0), self.stride - 1), self.stride)[0]
        room = f.sub(f.sub(f.size(self.width), start), self.extent)  # where the last that is whole begins
        stop = f.divide(f.add(f.maximum(room, -self.stride), self.stride), self.stride)[0]
        before = f.minimum(before, count)
        ends("0", before)
        ends(f.maximum(before, f.minimum(stop, count)), count)

    def _mean(self, f: KernelFunction, total: str, count: str, rows: str, lanes: int) -> str:
        wide = self.dtype if dtypes.is_float(self.dtype) else "float64"
        number = expr.input_(1, "int32")
        if rows.isdigit():
            number = number * int(rows)
        else:
            number = number * expr.input_(2, "int32")
        quotient = expr.cast(expr.input_(0, self.dtype), wide) / expr.cast(number, wide)
        reads = {
            0: lambda: total,
            1: lambda: count,
            2: lambda: rows if lanes == 1 else f.broadcast("i32", rows, lanes),
        }
        return evaluate(f, [expr.cast(quotient, self.dtype)], reads, lanes)[0]


def _made(f: KernelFunction, body: Expr | None, reads: Sequence[str], lanes: int) -> str:
    """What a Map makes of what it reads; the first of these where there is none."""
    if body is None:
        return reads[0]
    return evaluate(f, [body], {k: partial(str, value) for k, value in enumerate(reads)}, lanes)[0]


def _picks(part: int, stride: int, lanes: int) -> list[int]:
    """Of every `stride`-th element of some vectors, counted from the first on, those that vector `part` has,
    and the others where they were found before."""
    found = []
    for lane in range(lanes):
        vector, place = divmod(lane * stride, lanes)
        begins = place if part == 1 else lane  # nothing was picked of the first vector before
        found.append(lanes + place if vector == part else begins if vector < part else lane)
    return found
