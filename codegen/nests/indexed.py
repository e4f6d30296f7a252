"""Gather and Scatter in all forms, as one nest: positions of x are named by a tensor of indices.

    place = x + what runs along with the iterations + sum over components c: index[c] * stride[c]
Where an index does not change along the last axis, whole rows move; where it does, elements. Constant indices
of a Gather that step evenly (0 0 1 1 2 2: an image of twice the size) are strides of a copy, and so are those
that a formula tells to. An index is checked before anything is read or written at its place: a negative one
counts from the end, and what is still outside ends the run; constant ones that are all inside need no check.
Updates whose places may coincide run in one part, in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node, Value
from ...ir.ops import Gather, Map, Scatter
from ...ir.ranges import all_inside
from ...records import dataclass
from ...target import Ability, Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.emitter import Function, Reg, is_number, splat, vector_constant, vector_type
from ..text.memory import gather as gathered
from ..text.memory import load_lanes, store_lanes
from ..text.scalar import Checks, lower
from ..text.vectors import Vectors
from ..tiles.strides import row_major
from .copies import Copy
from .nest import (
    Block,
    Blocks,
    Piece,
    Stages,
    View,
    address,
    block_rows,
    collapse,
    dense,
    displaced,
    fail,
    input_view,
    loops,
)
from .operands import each_vector, vector_lanes
from .row_copies import copy_bytes
from .shuffled import Shuffled

FEW = 8  # places that all rows look up


@dataclass(frozen=True)
class Component:
    """One of the numbers that name a position: where it lies from the first one on, what a step of it is in
    bytes of the tensor it names a position of, how many steps there are, and whether it is known to be one of
    them."""

    offset: int
    stride: Dimension
    limit: Dimension
    inside: bool = False


@dataclass(frozen=True)
class Named:
    """The nest of an indexed op. `whole` is the tensor that positions are named in, `plain` the one whose
    elements follow the iterations: a Gather's result, a Scatter's updates."""

    sizes: tuple[Dimension, ...]
    plain: View
    whole: View
    index: View
    components: tuple[Component, ...]
    serial: tuple[int, ...] = ()  # axes along which places may coincide


def named(
    op: Gather | Scatter,
    x: View,
    x_shape: Sequence[Dimension],
    index: View,
    index_shape: Sequence[Dimension],
    plain: View,
) -> Named:
    """The nest of op over dense views of their own shapes."""
    strides, rank = x.strides, len(x_shape)
    if op.form == "nd":
        batch, depth = getattr(op, "batch", 0), dims.number(index_shape[-1])
        inner = range(batch + depth, rank)
        sizes = (*index_shape[:-1], *(x_shape[a] for a in inner))
        lead = len(index_shape) - 1
        along = tuple(strides[a] if a < batch else 0 for a in range(lead)) + tuple(strides[a] for a in inner)
        components = tuple(
            Component(c * index.itemsize, strides[batch + c], x_shape[batch + c]) for c in range(depth)
        )
        index = replace(index, strides=(*index.strides[:-1], *(0 for _ in inner)))
        return Named(sizes, plain, replace(x, strides=along), index, components, tuple(range(lead)))
    axis = op.axis
    component = (Component(0, strides[axis], x_shape[axis]),)
    if op.form == "elements":
        along = tuple(0 if a == axis else s for a, s in enumerate(strides))
        return Named(tuple(index_shape), plain, replace(x, strides=along), index, component, (axis,))
    none = (0,) * len(index_shape)
    sizes = (*x_shape[:axis], *index_shape, *x_shape[axis + 1 :])
    along = (*strides[:axis], *none, *strides[axis + 1 :])
    index = replace(index, strides=((0,) * axis + index.strides + (0,) * (rank - axis - 1)))
    return Named(sizes, plain, replace(x, strides=along), index, component)


class Lookup(Piece):
    """The nest as code. `combine`: None for a Gather, else what a Scatter does at each place."""

    def __init__(self, target: Target, nest: Named, combine: str | None = None, stored: int = 0):
        self.stored = stored  # bytes of the constant in which elements are looked up
        sizes, views = nest.sizes, (nest.plain, nest.whole, nest.index)
        if nest.plain.itemsize == 16:  # pairs of words
            sizes = (*sizes, 2)
            plain, whole = (replace(v, dtype="uint64", strides=(*v.strides, 8)) for v in views[:2])
            views = (plain, whole, replace(views[2], strides=(*views[2].strides, 0)))
        self.sizes, (self.plain, self.whole, self.index), groups = collapse(
            sizes, views, nest.serial if combine else ()
        )
        if not self.sizes:
            self.sizes, groups = (1,), ((),)
            self.plain, self.whole, self.index = (
                replace(v, strides=(0 if v is self.index else v.itemsize,))
                for v in (self.plain, self.whole, self.index)
            )
        self.target, self.components, self.combine = target, nest.components, combine
        self.operation = None if combine == "none" else combine  # on what is at the place
        self.serial = [a for a, group in enumerate(groups) if combine and set(group) & set(nest.serial)]
        runs = self.plain.strides[-1] == self.whole.strides[-1] == self.plain.itemsize
        self.in_rows = runs and self.index.strides[-1] == 0
        numbers_follow = self.index.strides[-1] == self.index.itemsize
        self.in_vectors = (
            combine is None
            and numbers_follow
            and self.plain.strides[-1] == self.plain.itemsize >= 4
            and Ability.GATHER in target.abilities
        )
        few = isinstance(self.sizes[-1], int) and self.sizes[-1] <= FEW
        self.shares = (
            combine is None and few and all(s == 0 for s in self.index.strides[:-1]) and not self.in_rows
        )

    @property
    def estimate(self) -> Estimate:
        """Places that are looked up, and what is moved there or from there."""
        rows, row = costs.rows_of(self.sizes)
        nbytes = rows * row * self.plain.itemsize
        found = costs.move(self.target, nbytes)
        if self.stored:
            run, read = costs.run_passed(self.target), min(nbytes, self.stored)
            found += costs.move(self.target, read, run.nbytes, run.ns)
            found += Estimate(overhead=costs.far(self.target, max(read, run.nbytes), run.ns))
        else:
            found += costs.move(self.target, nbytes)
        looked = rows if self.in_rows else rows * row
        vectors = rows * -(-row * self.plain.itemsize * 8 // self.target.vector_bits) if self.in_rows else 0
        found += costs.compute(self.target, (2 + (self.operation is not None)) * vectors)
        each = costs.LOOKED_UP if self.in_vectors or self.shares else costs.LOOKUP
        return found + costs.overhead(self.target, each * len(self.components) * looked)

    @property
    def blocks(self) -> Blocks:
        blocks = block_rows(self.sizes, self.elements)
        return replace(
            blocks, blocks=tuple(None if a in self.serial else b for a, b in enumerate(blocks.blocks))
        )

    def emit(self, f: KernelFunction, block: Block) -> None:
        """One block, row by row."""
        views = (self.plain, self.whole, self.index)
        starts = [address(f, v, block.starts) for v in views]
        count = block.extents[-1]
        if self.shares and is_number(count):
            self._same_places(f, block, *starts)
            return
        with loops(f, block.extents[:-1]) as at:
            plain, whole, index = (self._along(f, pointer, view, at) for pointer, view in zip(starts, views))
            if self.in_rows:
                self._row(f, plain, self._place(f, whole, index), count)
                return
            if self.in_vectors:
                self._vectors(f, plain, whole, index, count)
                return
            with f.loop(0, count) as loop:
                plain, whole, index = (
                    displaced(f, p, loop.index, f.size(v.strides[-1]))
                    for p, v in zip((plain, whole, index), views)
                )
                self._element(f, plain, self._place(f, whole, index))

    def _along(self, f: KernelFunction, pointer: str, view: View, at: Sequence[str]) -> str:
        for index, stride in zip(at, view.strides):
            pointer = displaced(f, pointer, index, f.size(stride))
        return pointer

    def _same_places(self, f: KernelFunction, block: Block, plain: str, whole: str, index: str) -> None:
        """Rows that all look up the same few places, which are found once."""
        word, (to, step, apart) = (
            f"i{8 * self.plain.itemsize}",
            (f.size(v.strides[-1]) for v in (self.plain, self.whole, self.index)),
        )
        offsets = []
        for k in range(int(block.extents[-1])):
            found = f.mul(k, step)
            for number, stride in self._numbers(f, displaced(f, index, k, apart)):
                found = f.add(found, f.mul(number, stride))
            offsets.append(found)
        with loops(f, block.extents[:-1]) as at:
            row, source = (self._along(f, p, v, at) for p, v in ((plain, self.plain), (whole, self.whole)))
            values = [f.load(word, f.offset(source, offset)) for offset in offsets]
            for k, value in enumerate(values):
                f.store(word, value, displaced(f, row, k, to))

    def _vectors(self, f: KernelFunction, plain: str, whole: str, index: str, count: str) -> None:
        """A row whose elements are looked up a vector at a time."""
        (component,), item, step = self.components, self.plain.itemsize, self.whole.strides[-1]

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            for at in indices:
                pointer = f.offset(displaced(f, index, at, self.index.itemsize), component.offset)
                places = lanes_at(f, component, self.index.dtype, pointer, lanes, mask)
                unit = f"i{8 * item}"
                if step != 0 or component.stride != item:
                    unit, stride = "i8", f.broadcast("i64", f.size(component.stride), lanes)
                    places = f.binary("mul", places, stride)
                if step != 0:
                    walked = f.broadcast("i64", f.size(step), lanes)
                    walked = f.binary("mul", walked, vector_constant("i64", range(lanes)))
                    places = f.binary("add", places, walked)
                source = displaced(f, whole, at, f.size(step))
                value = gathered(f, f"i{8 * item}", source, places, mask, unit)
                store_lanes(f, f"uint{8 * item}", value, displaced(f, plain, at, item), lanes, mask)

        each_vector(f, count, vector_lanes(self.target, expr.input_(0, self.plain.dtype)), 1, vectors)

    def _place(self, f: KernelFunction, whole: str, index: str) -> str:
        """The address that the indices at `index` name."""
        return picked(f, whole, self._numbers(f, index))

    def _numbers(self, f: KernelFunction, index: str) -> Iterable[tuple[str, str]]:
        return numbers_at(f, self.components, self.index.dtype, index)

    def _element(self, f: Function, plain: str, place: str) -> None:
        if self.operation is not None:
            self._combined(f, self.operation, plain, place, "0", 1, None)
            return
        word = f"i{8 * self.plain.itemsize}"
        source, to = (place, plain) if self.combine is None else (plain, place)
        f.store(word, f.load(word, source), to)

    def _row(self, f: Function, plain: str, place: str, count: str) -> None:
        operation = self.operation
        if operation is None:
            source, to = (place, plain) if self.combine is None else (plain, place)
            copy_bytes(f, to, source, f.mul(count, self.plain.itemsize))
            return
        lanes = vector_lanes(self.target, expr.input_(0, self.plain.dtype))

        def vectors(indices: Sequence[str], lanes: int, mask: str | None, _: str) -> None:
            for index in indices:
                self._combined(f, operation, plain, place, index, lanes, mask)

        each_vector(f, count, lanes, 1, vectors)

    def _combined(
        self, f: Function, operation: str, plain: str, place: str, index: str, lanes: int, mask: str | None
    ) -> None:
        """place = operation(place, plain)."""
        dtype = self.plain.dtype
        pointers = [displaced(f, p, index, self.plain.itemsize) for p in (place, plain)]
        operands = [load_lanes(f, dtype, p, lanes, mask) for p in pointers]
        body = expr.apply(operation, expr.input_(0, dtype), expr.input_(1, dtype))
        (value,) = lower(f, [body], lambda i: operands[i], lanes)
        store_lanes(f, dtype, value, pointers[0], lanes, mask)


def numbers_at(
    f: KernelFunction, components: Sequence[Component], dtype: str, index: str
) -> Iterator[tuple[str, str]]:
    """The indices at `index`, checked and counted from the start, each with what a step of it is."""
    word, extended = f"i{8 * dtypes.itemsize(dtype)}", "sext" if dtypes.is_signed(dtype) else "zext"
    for component in components:
        number: str = f.cast(extended, f.load(word, f.offset(index, component.offset)), "i64")
        if not component.inside:
            limit = f.size(component.limit)
            negative = f.compare("slt", number, 0)
            wrapped = f.add(number, f.select(negative, "i64", limit, "0"))
            with f.when(f.compare("uge", wrapped, limit)):
                fail(f, "index_out_of_range", number)
            number = wrapped
        yield number, f.size(component.stride)


def lanes_at(
    f: KernelFunction, component: Component, dtype: str, pointer: str, lanes: int, mask: str | None
) -> Reg:
    """A vector of indices, checked and counted from the start."""
    wide = vector_type("i64", lanes)
    number = load_lanes(f, dtype, pointer, lanes, mask)
    number = f.cast("sext" if dtypes.is_signed(dtype) else "zext", number, wide)
    return counted_from_start(f, component, number, lanes, mask)


def counted_from_start(
    f: KernelFunction, component: Component, number: Reg, lanes: int, mask: str | None
) -> Reg:
    """A vector of indices as i64, checked, negative ones counted from the end."""
    if component.inside:
        return number
    wide = vector_type("i64", lanes)
    v, limit = Vectors(f, "int64", lanes), f.broadcast("i64", f.size(component.limit), lanes)
    negative = f.compare("slt", number, splat(0, "int64", lanes))
    wrapped = f.binary("add", number, f.select(negative, wide, limit, splat(0, "int64", lanes)))
    Checks(f, "%scratch", mask).require(v, f.compare("ult", wrapped, limit), number, "index_out_of_range")
    return wrapped


def picked(f: Function, whole: str, numbers: Iterable[tuple[str, str]]) -> str:
    """The address so many steps of each kind from `whole` on."""
    for number, stride in numbers:
        whole = displaced(f, whole, number, stride)
    return whole


# Nodes -------------------------------------------------------------------------------------------


def stages(node: Node, target: Target) -> Stages:
    """The nests of a Gather, or of a Scatter: a copy, then what is written over it."""
    if isinstance(node.op, Gather):
        out = dense("output", 0, node.outputs[0].tensor)
        return [[gather(node, target, input_view(node, 0), node.inputs[0].shape, out)]], ()
    out = dense("output", 0, node.outputs[0].tensor)
    before = replace(out, kind="input", strides=(0,) * len(out.strides) if filled(node) else out.strides)
    return [[Copy(target, node.inputs[0].shape, out, before)], [scatter(node, target)]], ()


def filled(node: Node) -> Constant | None:
    """The number that stands for the operand of a Scatter that repeats it."""
    x = node.inputs[0].constant
    return None if x is None or x.splat is None else Constant(x.dtype, (), splat=x.splat)


def gather(node: Node, target: Target, x: View, x_shape: Sequence[Dimension], out: View) -> Piece:
    """A Gather of x seen through a view, of that shape."""
    source, indices = node.inputs
    steps = _even_steps(node.op, x_shape, indices)
    shuffled = _shuffled(node, target, x, x_shape, out)
    if steps is not None:
        copy = _stepping(target, node.op.axis, steps, x, x_shape, out, indices.rank)
        if shuffled is None or 2 * shuffled.estimate.compute > copy.estimate.compute:
            return copy
    if shuffled is not None:
        return shuffled
    nest = named(node.op, x, x_shape, input_view(node, 1), indices.shape, out)
    stored = source.constant.nbytes if source.constant is not None else 0
    return Lookup(target, _known(nest, indices), stored=stored)


def _shuffled(
    node: Node, target: Target, x: View, x_shape: Sequence[Dimension], out: View
) -> Shuffled | None:
    """The nest that permutes every row by the same constant indices; None where there are no such."""
    op, indices, limit = node.op, node.inputs[1], x_shape[-1] if x_shape else 0
    constant, item = indices.constant, x.itemsize
    if (
        op.form != "axis"
        or op.axis != len(x_shape) - 1
        or constant is None
        or indices.rank != 1
        or 0 in indices.shape
    ):
        return None
    if not isinstance(limit, int) or item > 8 or constant.array.size > MOST_READ:
        return None
    numbers = constant.array.astype(np.int64)
    numbers = np.where(numbers < 0, numbers + limit, numbers)
    if x.strides[-1] != item or out.strides[-1] != item or numbers.min() < 0 or numbers.max() >= limit:
        return None
    nest = Shuffled(target, (*x_shape[:-1], numbers.size), out, x, numbers, limit)
    return nest if nest.windows is not None else None


def _stepping(
    target: Target, axis: int, steps: Steps, x: View, x_shape: Sequence[Dimension], out: View, rank: int
) -> Copy:
    """The copy that takes these steps along an axis of x, in whose place the result has `rank` axes."""

    def put(values: Sequence[Dimension], inside: Sequence[Dimension], width: int) -> tuple[Dimension, ...]:
        return (*values[:axis], *inside, *values[axis + width :])

    run = x.strides[axis]
    to = row_major(steps.sizes, out.strides[axis + rank - 1]) if rank else ()
    walked = replace(x, strides=put(x.strides, [s * run for s in steps.strides], 1))
    return Copy(
        target,
        put(x_shape, steps.sizes, 1),
        replace(out, strides=put(out.strides, to, rank)),
        walked.moved(steps.first * run),
    )


def scatter(node: Node, target: Target) -> Lookup:
    """The nest that writes updates over a copy of the data."""
    x, indices, updates = node.inputs
    out = dense("output", 0, node.outputs[0].tensor)
    nest = named(node.op, out, x.shape, input_view(node, 1), indices.shape, input_view(node, 2))
    sizes = nest.sizes  # the updates' own shape, which the run has checked
    plain = replace(nest.plain, strides=row_major(sizes, dtypes.itemsize(updates.dtype)))
    return Lookup(target, _known(replace(nest, plain=plain), indices), node.op.reduction)


MOST_READ = 1 << 16  # constant indices that are looked at


def _known(nest: Named, indices: Value) -> Named:
    """The nest with what is known of constant indices."""
    constant = indices.constant
    count = indices.tensor.count
    if constant is None or not isinstance(count, int) or count > MOST_READ:
        return nest
    numbers = constant.array
    components = []
    for component in nest.components:
        own = numbers[..., component.offset // numbers.itemsize] if len(nest.components) > 1 else numbers
        limit = component.limit
        components.append(replace(component, inside=all_inside(own, limit)))
    return replace(nest, components=tuple(components))


# Indices that step evenly ------------------------------------------------------------------------

DEEPEST = 3  # nested steps


@dataclass(frozen=True)
class Steps:
    """first + i * strides[0] + j * strides[1] + ... for i, j, ... in sizes, row by row."""

    first: int
    sizes: tuple[Dimension, ...]
    strides: tuple[int, ...]


def _even_steps(op: Gather, x_shape: Sequence[Dimension], indices: Value) -> Steps | None:
    """The indices along an axis as nested steps, all inside of it; None where they are not known, or step
    otherwise."""
    constant, count = indices.constant, indices.tensor.count
    if op.form == "axis" and (times := repeated(indices)):
        length = x_shape[op.axis]
        if dims.equal(indices.shape[0], length * times) is True:
            return Steps(0, (length, times), (1, 0))
    if op.form != "axis" or constant is None or not isinstance(count, int) or not 0 < count <= MOST_READ:
        return None
    limit, numbers = x_shape[op.axis], constant.array.ravel().astype(np.int64)
    if not isinstance(limit, int) or numbers.min() < -limit or numbers.max() >= limit:
        return None
    numbers = np.where(numbers < 0, numbers + limit, numbers)
    first = int(numbers[0])
    sizes: list[int] = []
    strides: list[int] = []
    while len(numbers) > 1:
        if len(sizes) == DEEPEST:
            return None
        changes = np.diff(numbers)
        turns = np.flatnonzero(changes != changes[0])
        size = int(turns[0]) + 1 if len(turns) else len(numbers)
        if len(numbers) % size:
            return None
        rows = numbers.reshape(-1, size)
        if np.any(rows - rows[:, :1] != rows[0] - rows[0, 0]):
            return None
        sizes, strides, numbers = [size, *sizes], [int(changes[0]), *strides], rows[:, 0]
    return Steps(first, tuple(sizes), tuple(strides))


def repeated(indices: Value) -> int:
    """How many times indices that a formula tells name each place, one after the other; 0 where they do
    not."""
    made = indices.producer
    if made is None or not isinstance(made.op, Map) or made.inputs or indices.rank != 1:
        return 0
    body = made.op.body
    if body.op != "div" or body.args[0] is not expr.index(0) or body.args[1].op != "const":
        return 0
    times: int = body.args[1].value
    return max(times, 0)
