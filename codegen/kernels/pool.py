"""Pools of blocked images, windows and whole images; a vector is a block of channels.

Windows are combined in two passes: along the rows into scratch memory, which keeps the latest of them,
then down the columns, so that a k x k window takes 2k steps. Sums read zeros from the halo where the
window leaves the image. A maximum must not, so it reads the nearest pixel of the image instead which the
window holds anyway: of a dilated one, some steps further in. What is stored in another type is converted
where it is read and written; the halo then holds what becomes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Layout, Node, TensorType
from ...ir.ops import Pool, Reduce
from ...ir.pools import Pooling, idle, keeps_zero, pooling_of
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, as_it_is, single
from ..text.emitter import ENTRY, Function, scalar_type, splat, vector_type
from ..text.memory import load_lanes, store_first, store_lanes
from ..text.scalar import lower
from ..text.vectors import Vectors
from ..tiles.blocked import (
    GREATEST_HALO,
    Image,
    Window,
    clear_border,
    cover,
    equal_width,
    halo_layout,
    highest,
    image_of,
    keep_channels,
    plane_axes,
    slide,
    window_of,
    without_halo,
)
from ..tiles.lines import cut_lines, joined

COLUMNS = 8  # outputs that one iteration computes
SUMS = 4  # of a whole image, at once
MOST_TAPS = 32  # along an axis: the taps are unrolled


def candidates(node: Node, target: Target) -> Iterator[Offer[None]]:
    """One, for windows of one or two spatial axes and for reductions of all of any number, of floats; of
    integers for the greatest in a window."""
    pooling = pooling_of(node)
    if pooling is not None and (pooling.before, pooling.after) != (None, None):
        yield from _conversions(pooling, target)
        return
    if not isinstance(node.op, (Pool, Reduce)):
        return
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    if x.rank < 3 or not isinstance(x.shape[1], int):
        return
    if x.rank > 4 and not _is_whole(node) and not (isinstance(node.op, Pool) and _is_planar(node.op, x)):
        return
    compared = isinstance(node.op, Pool) and node.op.kind == "max" and dtypes.is_integer(x.dtype)
    if x.dtype not in ("float32", "float64") and not compared:
        return
    if out.dtype != x.dtype or x.shape[1] == 0:
        return
    block, rank = target.block, x.rank - 2
    windows = None if isinstance(node.op, Reduce) else border(node.op, x.shape[2:])
    halo = (0, 0) if _is_whole(node) else windows
    if halo is None or (x.rank > 4 and halo[0]):
        return
    blocked = not isinstance(node.op, Reduce) or node.op.keepdims
    layout = halo_layout(halo, block, rank)
    yield Offer(
        _estimate(node, target, layout), None, (layout,), without_halo(block, rank) if blocked else None
    )


def _conversions(pooling: Pooling, target: Target) -> Iterator[Offer[None]]:
    """One, for windows over images of which something is made where they are read or written."""
    node, block = pooling.node, target.block
    x, rank = node.inputs[0].tensor, node.inputs[0].rank - 2
    if len(node.inputs) > 1 or rank not in (1, 2) or not isinstance(x.shape[1], int) or x.shape[1] == 0:
        return
    halo = border(node.op, x.shape[2:])
    if halo is None or _is_whole(node):
        return
    layout, fill = halo_layout(halo, block, rank), idle(node.op.kind, pooling.dtype, pooling.before)
    if any(layout.halo):
        if fill is None or (fill != 0 and dtypes.is_float(x.dtype)):
            return
        layout = replace(layout, fill=int(fill))
    registers = target.registers(pooling.dtype, block) / block
    cost = _estimate(node, target, layout, pooling.dtype)
    for body, image in ((pooling.before, x), (pooling.after, node.outputs[0].tensor)):
        if body is not None:
            vectors = dims.typical(image.count) * registers
            cost += costs.compute(target, costs.weight(target, body) * vectors)
    yield Offer(cost, None, (layout,), without_halo(block, rank))


def _estimate(node: Node, target: Target, layout: Layout, dtype: str = "") -> Estimate:
    """Whole blocks read and written, and the steps along both axes: of a window's rows all that are read,
    then all results."""
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    planes = -(-dims.number(x.shape[1]) // layout.block) * dims.typical(x.shape[0])
    dtype = dtype or x.dtype
    registers = target.registers(dtype, layout.block)
    moved = costs.traffic(target, node)
    if _is_whole(node):
        vectors = planes * dims.typical(dims.product(x.shape[2:])) * registers
        body = node.op.body if isinstance(node.op, Reduce) else None
        found = costs.compute(target, costs.WHOLE_POOL * vectors)
        found += (
            costs.compute(target, costs.weight(target, body) * vectors) if body is not None else Estimate()
        )
        found += costs.overhead(target, costs.POOL_PLANE * planes)
        return found + moved + costs.step(target)
    height, width = map(dims.typical, plane_axes(out.shape[-2:] if out.rank > 3 else out.shape[2:], 1))
    planes *= dims.typical(dims.product(out.shape[2:-2]))
    win = window(node.op)
    read = height * min(win.strides[0], win.extent[0])
    taps = planes * width * (read * win.kernel[1] + height * win.kernel[0])
    each = costs.POOL_TAP + costs.POOL_VECTOR * layout.block * dtypes.itemsize(dtype) * 8 / target.vector_bits
    each *= costs.combining(node.op.kind, dtype)
    rows = planes * (read + height)
    found = costs.paced(target, each * taps) + costs.overhead(target, costs.POOL_ROW * rows)
    if node.op.kind == "mean":
        found += costs.compute(target, costs.divided(target) * planes * width * height * registers)
    return found + moved + costs.step(target)


pack = as_it_is


def emit(node: Node, choice: Choice, target: Target) -> Code:
    pooling = pooling_of(node)
    if pooling is None or _is_whole(pooling.node):
        return _emit_whole(node, choice, target)
    return _emit_windows(pooling, choice, target)


# What windows need of the image ------------------------------------------------------------------


def _is_planar(op: Pool, image: TensorType) -> bool:
    """Whether windows combine nothing but along the last two axes."""
    return all(op.keeps(axis, image) for axis in range(len(op.kernel) - 2))


def window(op: Pool) -> Window:
    """Over the last two axes."""
    rank, first = len(op.kernel), max(0, len(op.kernel) - 2)
    pads = (*op.pads[first:rank], *op.pads[rank + first :])
    return window_of(op.kernel[first:], op.strides[first:], op.dilations[first:], pads)


def border(op: Pool, image: Sequence[Dimension]) -> tuple[int, int] | None:
    """The border that the windows read, None where they cannot be computed here."""
    win = window(op)
    halo: list[int] = []
    if op.kind not in ("max", "sum", "mean") or max(win.kernel) > MOST_TAPS:
        return None
    for axis, (size, count) in enumerate(zip(plane_axes(image[-2:], 1), plane_axes(op.sizes[-2:], 1))):
        before = win.before[axis]
        last = (count - 1) * win.strides[axis] - before  # where the last window starts
        most, beyond = highest(before), highest(last + win.extent[axis] - size)
        starts = highest(last - size)
        if most is None or beyond is None or starts is None:
            return None
        if starts >= 0 or most >= win.extent[axis]:
            return None
        border = max(0, most, beyond)
        if border > GREATEST_HALO:
            return None
        few = highest(win.dilations[axis] - size)  # a window's steps may miss so small an image
        if op.kind == "max" and border and win.dilations[axis] > 1 and (few is None or few > 0):
            return None
        halo.append(0 if op.kind == "max" else border)
    rows, columns = halo
    return rows, columns


# Windows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolPlan:
    """A pool over images as they are stored, combined in `dtype`; `across` has the latest rows of the first
    pass, a power of two, of one block: each is written over the one so many rows above. Of images over more
    than two axes `x` and `out` are a plane. before, after: what is made of the elements, and of the results.
    cleared: whether lanes without a channel would get something else than a zero."""

    kind: str
    x: Image
    out: Image
    window: Window
    dtype: str
    across: Image
    before: Expr | None
    after: Expr | None
    cleared: bool
    depth: Dimension  # planes of an image

    @property
    def vector(self) -> str:
        return vector_type(scalar_type(self.dtype), self.out.block)

    @property
    def widths(self) -> tuple[int, ...]:
        width = self.out.width
        return (equal_width(width, COLUMNS),) if isinstance(width, int) else (COLUMNS, COLUMNS // 2, 1)

    @property
    def leaves(self) -> tuple[bool, bool]:
        """Along which axes windows may leave the image."""
        found = []
        for axis, size in enumerate((self.x.height, self.x.width)):
            start = (self.out.height, self.out.width)[axis] - 1
            end = start * self.window.strides[axis] + self.window.extent[axis] - self.window.before[axis]
            beyond = highest(end - size)
            found.append(self.window.before[axis] != 0 or beyond is None or beyond > 0)
        rows, columns = found
        return rows, columns

    @property
    def clamped(self) -> tuple[bool, bool]:
        """Along which axes the nearest pixel is read where a window leaves the image."""
        return self.leaves if self.kind == "max" else (False, False)

    def read(self, f: KernelFunction, place: str) -> str:
        """A pixel of the image, as the type that is combined."""
        if self.before is None:
            return f.load(self.vector, place, self.x.align)
        value = load_lanes(f, self.x.dtype, place, self.x.block)
        return lower(f, [self.before], {0: value}.__getitem__, self.x.block, f.size)[0]

    def write(self, f: KernelFunction, value: str, place: str) -> None:
        """A pixel of the result; its block has %left channels."""
        dtype, lanes = self.out.dtype, self.out.block
        if self.after is not None:
            (value,) = lower(f, [self.after], {0: value}.__getitem__, lanes, f.size)
        if self.cleared:
            value = keep_channels(f, dtype, lanes, value, "%left")
        if self.after is None:
            f.store(self.vector, value, place, self.out.align)
        else:
            store_lanes(f, dtype, value, place, lanes)

    def combine(self, f: Function, state: str | None, value: str) -> str:
        if state is None:
            return value
        if self.kind != "max":
            return f.binary("fadd", state, value, self.vector)
        return Vectors(f, self.dtype, self.out.block).maximum(state, value)


def _emit_windows(pooling: Pooling, choice: Choice, target: Target) -> Code:
    node = pooling.node
    x, out = _plane(node.inputs[0].tensor), _plane(node.outputs[0].tensor)
    depth = dims.product(node.outputs[0].shape[2:-2])
    planes = out.batch * out.blocks * depth
    cut = cut_lines(out.height, 1, planes, choice.cost.total)
    plan = plan_of(pooling, x, out, depth)
    k = KernelText(target)
    with k.entry() as f, joined(f, cut, "%first", "%last", planes) as (plane, lines):
        _windows_part(f, plan, plane, lines)
    emit_passes(k, plan)
    work = costs.work(choice.cost, out.batch * depth * out.height * out.width)
    return single(k.step(planes * cut.count, work, dims.maximum(64, plan.across.plane)))


def plan_of(pooling: Pooling, x: Image, out: Image, depth: Dimension = 1) -> PoolPlan:
    """Over images as they are stored."""
    op, win, dtype = pooling.node.op, window(pooling.node.op), pooling.dtype
    rows = 1 << (win.extent[0] - 1).bit_length()
    across = Image(1, out.block, rows, out.width, out.block, dtype)
    cleared = x.channels % x.block != 0 and not keeps_zero(pooling)
    return PoolPlan(op.kind, x, out, win, dtype, across, pooling.before, pooling.after, cleared, depth)


def emit_passes(k: KernelText, plan: PoolPlan) -> None:
    """The functions that emit_lines calls."""
    _across(k, plan)
    _down(k, plan)


def _plane(type_: TensorType) -> Image:
    """One of the planes of images, which lie one behind the other in each block of channels."""
    image = image_of(type_)
    return replace(image, height=type_.shape[-2]) if type_.rank > 4 else image


def _windows_part(f: KernelFunction, plan: PoolPlan, plane: str, lines: tuple[str, str]) -> None:
    """Some rows of one plane."""
    x, out = plan.x, plan.out
    source = f.offset(x.of_plane(f, f.input(0), plane, plan.depth), f.size(x.origin))
    target = out.of_plane(f, f.output(), plane, plan.depth)
    clear_border(f, out, target, *lines)
    block = f.divide(f.divide(plane, f.size(plan.depth))[0], out.blocks)[1]
    emit_lines(f, plan, source, target, block, lines, "%scratch")


def emit_lines(
    f: KernelFunction,
    plan: PoolPlan,
    source: str,
    target: str,
    block: str,
    lines: tuple[str, str],
    across: str,
) -> None:
    """Some rows of the plane of a block of channels: `source` is the image's pixel (0, 0), `target` where the
    result's plane begins, `across` where the first pass may write."""
    x, out, win, (first, last) = plan.x, plan.out, plan.window, lines
    start = f.sub(f.mul(first, win.strides[0]), f.size(win.before[0]))  # the first row that is read
    if plan.clamped[0]:
        start = f.maximum(start, 0)
    left = f.sub(out.channels, f.mul(block, out.block))
    with f.loop(first, last, carried=[("i64", start)]) as row:
        (done,) = row.carried
        above = f.sub(f.mul(row.index, win.strides[0]), f.size(win.before[0]))
        stop = f.add(above, win.extent[0])
        if plan.clamped[0]:
            stop = f.minimum(stop, f.size(x.height))
        begin = f.maximum(done, above)  # strides may skip rows
        with f.loop(begin, stop) as fresh:
            line = f.offset(source, f.mul(fresh.index, f.size(x.row)))
            place = _latest(f, plan, across, fresh.index)
            f.statement(f"call void @{ENTRY}.across(ptr %args, ptr {line}, ptr {place})")
        pixel = f.offset(target, f.add(f.size(out.origin), f.mul(row.index, f.size(out.row))))
        f.statement(
            f"call void @{ENTRY}.down(ptr %args, i64 {row.index}, ptr {across}, ptr {pixel}, i64 {left})"
        )
        row.carry(f.maximum(done, stop))


def _latest(f: KernelFunction, plan: PoolPlan, across: str, row: str) -> str:
    """Where the first pass has a row of the image."""
    place = f.binary("and", row, dims.number(plan.across.height) - 1, "i64")
    return f.offset(across, f.mul(place, f.size(plan.across.row)))


def _across(k: KernelText, plan: PoolPlan) -> None:
    """Combines along one row of the image: %x is its first pixel, %sums the row of the result."""
    x, win, size, sums = plan.x, plan.window, plan.x.pixel, plan.across
    line = Window((1, win.kernel[1]), (1, win.strides[1]), (1, win.dilations[1]), (0, 0), (0, 0))
    with k.function(
        f"{ENTRY}.across",
        ["ptr %args", "ptr noalias %x", "ptr noalias %sums"],
        attributes="noinline nounwind",
    ) as f:
        read = partial(plan.read, f)

        def tile(width: int, column: str) -> None:
            first = f.sub(f.mul(column, win.strides[1]), f.size(win.before[1]))
            base = f.offset("%x", f.mul(first, size))

            def outputs(load: Callable[[int, int], str]) -> None:
                slide(
                    line,
                    1,
                    width,
                    load,
                    lambda state, value, ky, kx: plan.combine(f, state, value),
                    lambda _, at, state: f.store(
                        plan.vector,
                        state,
                        f.offset("%sums", f.mul(f.add(column, at), sums.pixel)),
                        sums.align,
                    ),
                )

            def nearest(_: int, ix: int) -> str:
                inside = _nearest(f, f.add(first, ix), "0", f.size(x.width - 1), win.dilations[1])
                return read(f.offset("%x", f.mul(inside, size)))

            def direct(_: int, ix: int) -> str:
                return read(f.offset(base, ix * size))

            if not plan.clamped[1]:
                outputs(direct)
                return
            reach = (width - 1) * win.strides[1] + win.extent[1]
            low = f.compare("sge", first, 0)
            high = f.compare("sle", f.add(first, reach), f.size(x.width))
            both = f.binary("and", low, high, "i1")
            with f.when(both):
                outputs(direct)
            with f.when(f.invert(both)):
                outputs(nearest)

        cover(f, 0, f.size(plan.out.width), plan.widths, tile)
        f.statement("ret void")


def _down(k: KernelText, plan: PoolPlan) -> None:
    """Combines rows of the first pass at %sums to the row %y of the output at %out."""
    win, size, align = plan.window, plan.across.pixel, plan.across.align
    parameters = ["ptr %args", "i64 %y", "ptr noalias %sums", "ptr noalias %out", "i64 %left"]
    with k.function(f"{ENTRY}.down", parameters, attributes="noinline nounwind") as f:
        first = f.sub(f.mul("%y", win.strides[0]), f.size(win.before[0]))
        rows = []
        for tap in range(win.kernel[0]):
            at = f.add(first, tap * win.dilations[0])
            if plan.clamped[0]:
                at = _nearest(f, at, "0", f.size(plan.x.height - 1), win.dilations[0])
            rows.append(_latest(f, plan, "%sums", at))
        height = _inside(f, plan, 0, first)

        def tile(width: int, column: str) -> None:
            states: dict[int, str] = {}
            for row in rows:
                start = f.offset(row, f.mul(column, size))
                for at in range(width):
                    value = f.load(plan.vector, f.offset(start, at * size), align)
                    states[at] = plan.combine(f, states.get(at), value)
            for at, state in states.items():
                here = f.add(column, at)
                if plan.kind == "mean":
                    left = f.sub(f.mul(here, win.strides[1]), f.size(win.before[1]))
                    state = _divided(f, plan, state, f.mul(height, _inside(f, plan, 1, left)))
                plan.write(f, state, f.offset("%out", f.mul(here, plan.out.pixel)))

        cover(f, 0, f.size(plan.out.width), plan.widths, tile)
        f.statement("ret void")


def _nearest(f: Function, at: str, first: str, last: str, step: int) -> str:
    """The nearest place to `at` from `first` to `last` that is some steps from it."""
    if step == 1:
        return f.minimum(f.maximum(at, first), last)
    steps, _ = f.divide(f.add(f.maximum(f.sub(first, at), 0), step - 1), step)
    at = f.add(at, f.mul(steps, step))
    steps, _ = f.divide(f.add(f.maximum(f.sub(at, last), 0), step - 1), step)
    return f.sub(at, f.mul(steps, step))


def _inside(f: KernelFunction, plan: PoolPlan, axis: int, first: str) -> str:
    """How many taps of the window that starts at `first` lie inside the image."""
    taps, step = plan.window.kernel[axis], plan.window.dilations[axis]
    size = (plan.x.height, plan.x.width)[axis]
    if not plan.leaves[axis]:
        return str(taps)
    skipped, _ = f.divide(f.add(f.maximum(f.sub("0", first), 0), step - 1), step)
    room, _ = f.divide(f.add(f.maximum(f.sub(f.size(size), first), 0), step - 1), step)
    return f.maximum(f.sub(f.minimum(room, taps), skipped), 1)


def _divided(f: Function, plan: PoolPlan, total: str, count: str) -> str:
    element, lanes = scalar_type(plan.dtype), plan.out.block
    if count.isdigit():
        divisor = splat(int(count), plan.dtype, lanes)
    else:
        divisor = f.broadcast(element, f.cast("sitofp", count, element, "i64"), lanes)
    return f.binary("fdiv", total, divisor, plan.vector)


# Whole images ------------------------------------------------------------------------------------


def _is_whole(node: Node) -> bool:
    """Whether all pixels of an image become one, by a reduction or by a pool of one window."""
    op, x = node.op, node.inputs[0].tensor
    if isinstance(op, Pool):
        one = op.kernel == x.shape[2:] and all(d == 1 for d in (*op.sizes, *op.dilations))
        return one and all(p == 0 for p in op.pads) and op.kind in ("max", "sum", "mean")
    body = op.body
    plain = body is None or not any(e.op in ("index", "check") for e in expr.topological(body))
    spatial = op.axes == tuple(range(2, x.rank))
    return spatial and plain and len(node.inputs) == 1 and op.kind in ("max", "min", "sum")


def _emit_whole(node: Node, choice: Choice, target: Target) -> Code:
    x, type_ = image_of(node.inputs[0].tensor), node.outputs[0].tensor
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as part:
        n, block = f.divide(part.index, x.blocks)
        plane = x.of_plane(f, f.input(0), part.index)
        value = _total(f, node, x, plane)
        left = f.sub(x.channels, f.mul(block, x.block))
        if type_.layout is None:
            first = f.add(f.mul(n, x.channels), f.mul(block, x.block))
            place, count = (f.element(f.output(), first, x.itemsize), left if x.channels % x.block else None)
            store_first(f, type_.dtype, x.block, value, place, count)
        else:
            out = image_of(type_)
            clear_border(f, out, out.of_plane(f, f.output(), part.index), 0, 1)
            if x.channels % x.block and isinstance(node.op, Reduce) and node.op.body is not None:
                value = keep_channels(f, type_.dtype, x.block, value, left)
            f.store(
                vector_type(scalar_type(type_.dtype), x.block),
                value,
                out.address(f, f.output(), n, block),
                out.align,
            )
    return single(k.step(x.batch * x.blocks, costs.work(choice.cost, x.batch * x.height * x.width)))


def _total(f: KernelFunction, node: Node, x: Image, plane: str) -> str:
    """All pixels of a plane combined, with as many sums at once as hide the latency of an
    addition."""
    op, dtype = node.op, node.outputs[0].dtype
    if x.halo == (0, 0):
        x = x.flat
    vectors = Vectors(f, dtype, x.block)
    least = dtypes.integer_range(dtype)[0] if dtypes.is_integer(dtype) else -inf
    neutral = vectors.constant({"max": least, "min": inf}.get(op.kind, 0.0))
    step = {"max": vectors.maximum, "min": vectors.minimum}.get(op.kind, vectors.add)
    body, width = op.body if isinstance(op, Reduce) else None, f.size(x.width)

    def add(states: Sequence[str], row: str, column: str) -> list[str]:
        result: list[str] = []
        for at, state in enumerate(states):
            value: str = f.load(vectors.type, f.offset(row, f.mul(f.add(column, at), x.pixel)), x.align)
            if body is not None:
                (value,) = lower(f, [body], {0: value}.__getitem__, x.block, f.size)
            result.append(step(value, state))
        return result

    kinds = [vectors.type] * SUMS
    with f.loop(0, f.size(x.height), carried=list(zip(kinds, [neutral] * SUMS))) as rows:
        row = f.offset(plane, f.add(f.size(x.origin), f.mul(rows.index, f.size(x.row))))
        whole = f.sub(width, f.divide(width, SUMS)[1])
        with f.loop(0, whole, SUMS, list(zip(kinds, rows.carried))) as columns:
            columns.carry(*add(columns.carried, row, columns.index))
        with f.loop(whole, width, 1, list(zip(kinds, columns.results))) as columns:
            columns.carry(*add(columns.carried[:1], row, columns.index), *columns.carried[1:])
        rows.carry(*columns.results)
    total, *others = rows.results
    for other in others:
        total = step(other, total)
    if isinstance(op, Pool) and op.kind == "mean":
        total = vectors.div(total, vectors.constant(dims.product(op.kernel)))
    return total
