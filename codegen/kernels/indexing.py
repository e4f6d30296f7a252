"""Gather, Scatter and Cumulate: loops whose addresses come from data or from the element before.

Every index is checked before it is used: negative ones count from the end, and one that is still outside fails the part. Gathers copy
whole inner rows; a Scatter runs as one part, since updates of the same place follow each other in row-major order.
"""
from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from ... import dims, dtypes, expr
from ...dims import Dimension
from ...ir import Constant, Node, Value
from ...ops import Cumulate, Gather, Scatter
from ...target import Target
from ..emitter import Function
from ..kernel import Choice, Code, KernelText, Step, single
from ..nest import fail, loops, row_major, typical
from ..scalar import load_vector, lower, store_vector

PART_BYTES = 1 << 14
NANOSECONDS = 2  # for an index and what follows from it

_REDUCTIONS = {"add": "add", "mul": "mul", "min": "min", "max": "max"}


def candidates(node: Node, target: Target) -> Iterable[Choice]:
    if isinstance(node.op, (Gather, Scatter, Cumulate)) and all(v.type.layout is None for v in node.inputs):
        count = typical(node.outputs[0].type.count)
        rows = typical(node.inputs[1].type.count) if isinstance(node.op, Gather) and node.op.form != "elements" else count
        yield Choice(sys.modules[__name__], NANOSECONDS * rows + typical(node.outputs[0].type.nbytes) / target.bytes_per_ns)


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    return None


def emit(node: Node, choice: Choice, target: Target) -> Code:
    match node.op:
        case Gather(form="axis"):
            return single(_take(node, target))
        case Gather(form="nd"):
            return single(_gather_positions(node, target))
        case Gather():
            return single(_gather_elements(node, target))
        case Scatter():
            return Code((_copy(node, target), _scatter(node, target)))
    return single(_cumulate(node, target))


# Pieces ------------------------------------------------------------------------------------------


def _copied(f: Function, to: str, source: str, nbytes: str | int) -> None:
    """Copies bytes; a few at once without a call."""
    if str(nbytes) in ("1", "2", "4", "8"):
        word = f"i{8 * int(nbytes)}"
        f.store(word, f.load(word, source), to)
        return
    memcpy = f.text.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    f.statement(f"call void {memcpy}(ptr {to}, ptr {source}, i64 {nbytes}, i1 false)")


def _index(f: Function, value: Value, address: str, count: str) -> str:
    """The index stored at an address, made non-negative and checked against the size of its axis."""
    dtype = value.dtype
    found = f.load(f"i{8 * dtypes.itemsize(dtype)}", address)
    if dtypes.itemsize(dtype) < 8:
        found = f.value(f"{'sext' if dtypes.is_signed(dtype) else 'zext'} i{8 * dtypes.itemsize(dtype)} {found} to i64")
    wrapped = f.select(f.compare("slt", found, 0), "i64", f.add(found, count), found)
    with f.when(f.compare("uge", wrapped, count)):
        fail(f, "index_out_of_range", found)
    return wrapped


class _Rows:
    """The loop over rows first..last of the parts given to the kernel."""

    def __init__(self, k: KernelText, rows: Dimension, row_bytes: Dimension):
        self.k, self.rows = k, rows
        self.size = max(1, PART_BYTES // max(1, row_bytes)) if isinstance(row_bytes, int) else 16
        self.parts = dims.ceil_divide(rows, self.size)

    def loop(self, f: Function):
        stop = f.minimum(f.mul("%last", self.size), self.k.size(f, self.rows))
        return f.loop(f.mul("%first", self.size), stop)

    def step(self, row_bytes: Dimension) -> Step:
        return self.k.step(self.parts, self.rows * NANOSECONDS + dims.floor_divide(self.rows * row_bytes, 16))


def _coordinates(k: KernelText, f: Function, row: str, shape: Sequence[Dimension]) -> list[str]:
    """The indices of the row-th combination along the axes of shape."""
    found = []
    for axis in reversed(range(len(shape))):
        if axis == 0:
            found.append(row)
        else:
            row, place = f.divide(row, k.size(f, shape[axis]))
            found.append(place)
    return found[::-1]


def _sum(k: KernelText, f: Function, indices: Sequence[str], strides: Sequence[Dimension]) -> str:
    """The bytes that indices along axes of these strides come to."""
    total = "0"
    for index, stride in zip(indices, strides):
        total = f.add(total, f.mul(index, k.size(f, stride)))
    return total


# Gather ------------------------------------------------------------------------------------------


def _take(node: Node, target: Target) -> Step:
    """out[a, i, b] = x[a, indices[i], b]: a copy of b for every a and i."""
    x, indices = node.inputs
    axis, width = node.op.axis, dtypes.itemsize(x.dtype)
    count, extent = indices.type.count, x.shape[axis]
    nbytes = dims.product(x.shape[axis + 1 :]) * width
    k = KernelText(target)
    rows = _Rows(k, dims.product(x.shape[:axis]) * count, nbytes)
    with k.entry() as f, rows.loop(f) as loop:
        outer, place = f.divide(loop.index, k.size(f, count))
        address = f.element(k.input(f, 1), place, dtypes.itemsize(indices.dtype))
        index = _index(f, indices, address, k.size(f, extent))
        size = k.size(f, nbytes)
        source = f.offset(k.input(f, 0), f.mul(f.add(f.mul(outer, k.size(f, extent)), index), size))
        _copied(f, f.offset(k.output(f), f.mul(loop.index, size)), source, size)
    return rows.step(nbytes)


def _gather_positions(node: Node, target: Target) -> Step:
    """out[i..., b] = x[position i, b], the position being the last axis of the indices."""
    x, indices = node.inputs
    depth, batch = indices.shape[-1], node.op.batch
    width = dtypes.itemsize(x.dtype)
    nbytes = dims.product(x.shape[batch + depth :]) * width
    k = KernelText(target)
    rows = _Rows(k, dims.product(indices.shape[:-1]), nbytes)
    with k.entry() as f, rows.loop(f) as loop:
        place = _position(k, f, node, loop.index)
        size = k.size(f, nbytes)
        _copied(f, f.offset(k.output(f), f.mul(loop.index, size)), f.offset(k.input(f, 0), place), size)
    return rows.step(nbytes)


def _position(k: KernelText, f: Function, node: Node, row: str) -> str:
    """The bytes from x's start to the slice that row `row` of the indices names."""
    x, indices = node.inputs[:2]
    depth, batch = indices.shape[-1], getattr(node.op, "batch", 0)
    strides = row_major(x.shape, dtypes.itemsize(x.dtype))
    place = "0"
    if batch:
        shared, _ = f.divide(row, k.size(f, dims.product(indices.shape[batch:-1])))
        place = f.mul(shared, k.size(f, dims.product(x.shape[batch:]) * dtypes.itemsize(x.dtype)))
    for position in range(depth):
        address = f.element(k.input(f, 1), f.add(f.mul(row, depth), position), dtypes.itemsize(indices.dtype))
        index = _index(f, indices, address, k.size(f, x.shape[batch + position]))
        place = f.add(place, f.mul(index, k.size(f, strides[batch + position])))
    return place


def _gather_elements(node: Node, target: Target) -> Step:
    """out[i...] = x[i... with the axis' index replaced]."""
    x, indices = node.inputs
    width = dtypes.itemsize(x.dtype)
    last = indices.shape[-1] if indices.rank else 1
    k = KernelText(target)
    rows = _Rows(k, dims.product(indices.shape[:-1]), last * width if isinstance(last, int) else 1024)
    with k.entry() as f, rows.loop(f) as row, f.loop(0, k.size(f, last)) as column:
        source = _element_place(k, f, node, row.index, column.index)
        place = f.add(f.mul(row.index, k.size(f, last)), column.index)
        _copied(f, f.element(k.output(f), place, width), f.offset(k.input(f, 0), source), width)
    return rows.step(last * width)


def _element_place(k: KernelText, f: Function, node: Node, row: str, column: str) -> str:
    """The bytes from x's start to the element that indices[row, column] names."""
    x, indices = node.inputs[:2]
    if not indices.rank:
        return "0"
    axis, strides = node.op.axis, row_major(x.shape, dtypes.itemsize(x.dtype))
    coordinates = [*_coordinates(k, f, row, indices.shape[:-1]), column]
    flat = f.add(f.mul(row, k.size(f, indices.shape[-1])), column)
    address = f.element(k.input(f, 1), flat, dtypes.itemsize(indices.dtype))
    coordinates[axis] = _index(f, indices, address, k.size(f, x.shape[axis]))
    return _sum(k, f, coordinates, strides)


# Scatter -----------------------------------------------------------------------------------------


def _copy(node: Node, target: Target) -> Step:
    """x, whole, before the updates."""
    nbytes = node.inputs[0].type.nbytes
    k = KernelText(target)
    with k.entry() as f, f.loop("%first", "%last") as loop:
        start = f.mul(loop.index, PART_BYTES)
        size = f.minimum(PART_BYTES, f.sub(k.size(f, nbytes), start))
        _copied(f, f.offset(k.output(f), start), f.offset(k.input(f, 0), start), size)
    return k.step(dims.ceil_divide(nbytes, PART_BYTES), dims.floor_divide(nbytes, 16))


def _scatter(node: Node, target: Target) -> Step:
    """The updates, one after the other."""
    x, indices, updates = node.inputs
    width, nd = dtypes.itemsize(x.dtype), node.op.form == "nd"
    shape = indices.shape[:-1]
    last = indices.shape[-1] if indices.rank else 1
    inner = dims.product(x.shape[last:]) if nd else last
    k = KernelText(target)
    with k.entry() as f, f.loop(0, k.size(f, dims.product(shape))) as row:
        start = _position(k, f, node, row.index) if nd else "0"
        with f.loop(0, k.size(f, inner)) as column:
            place = f.add(start, f.mul(column.index, width)) if nd else _element_place(k, f, node, row.index, column.index)
            source = f.element(k.input(f, 2), f.add(f.mul(row.index, k.size(f, inner)), column.index), width)
            _combine(f, node, f.offset(k.output(f), place), source)
    return k.step(1, dims.product(shape) * inner * NANOSECONDS)


def _combine(f: Function, node: Node, to: str, source: str) -> None:
    """to = reduction(to, source) for one element."""
    dtype = node.inputs[0].dtype
    if node.op.reduction == "none":
        return _copied(f, to, source, dtypes.itemsize(dtype))
    operands = [load_vector(f, dtype, to, 1), load_vector(f, dtype, source, 1)]
    body = expr.apply(_REDUCTIONS[node.op.reduction], expr.input_(0, dtype), expr.input_(1, dtype))
    (result,) = lower(f, [body], operands.__getitem__, 1)
    return store_vector(f, dtype, result, to, 1)


# Cumulate ----------------------------------------------------------------------------------------


def _cumulate(node: Node, target: Target) -> Step:
    """Running sums or products along an axis, for every line of the others on its own."""
    (x,), op = node.inputs, node.op
    count, width = x.shape[op.axis], dtypes.itemsize(x.dtype)
    outer, inner = dims.product(x.shape[: op.axis]), dims.product(x.shape[op.axis + 1 :])
    combine = expr.apply("add" if op.kind == "sum" else "mul", expr.input_(0, x.dtype), expr.input_(1, x.dtype))
    start = expr.const(0 if op.kind == "sum" else 1, x.dtype)
    k = KernelText(target)
    rows = _Rows(k, outer * inner, count * width if isinstance(count, int) else 1024)
    with k.entry() as f, rows.loop(f) as line:
        block, lane = f.divide(line.index, k.size(f, inner))
        base = f.add(f.mul(block, k.size(f, count * inner)), lane)
        (initial,) = lower(f, [start], lambda i: "", 1)
        slot = f.hoisted("alloca i64")
        store_vector(f, x.dtype, initial, slot, 1)
        with loops(f, [k.size(f, count)]) as (step,):
            step = f.sub(f.sub(k.size(f, count), 1), step) if op.reverse else step
            place = f.mul(f.add(base, f.mul(step, k.size(f, inner))), width)
            before = load_vector(f, x.dtype, slot, 1)
            element = load_vector(f, x.dtype, f.offset(k.input(f, 0), place), 1)
            (after,) = lower(f, [combine], [before, element].__getitem__, 1)
            store_vector(f, x.dtype, before if op.exclusive else after, f.offset(k.output(f), place), 1)
            store_vector(f, x.dtype, after, slot, 1)
    return rows.step(count * width)
