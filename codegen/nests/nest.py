"""Loop nests over strided views: the ground that the kernel loop_nest stands on.

    for i, j, ... in sizes:  out[origin + i*s0 + j*s1 + ...] = f(x[origin + i*t0 + j*t1 + ...], ...)
A `View` says where an iteration finds its element, in bytes; broadcasting is a stride of 0, also one that
only the run knows. `collapse` merges axes that every view runs through without a gap, so that most nests are
one or two loops. `Blocks` cuts the space into parts by sizes alone; a kernel walks its parts and finds each
block's first iteration and extents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node, TensorType, Value
from ...records import dataclass
from ...target import LINE, Target
from .. import abi, costs
from ..costs import Estimate
from ..kernel import Argument, KernelFunction, KernelText, Step
from ..text.emitter import Function
from ..text.scalar import say
from ..tiles.strides import broadcast_stride, continues, row_major

ERROR_BYTES = 64  # of a thread's scratch memory, kept for what an error has to say
MOST_SIZE = 600  # of a formula that tells how long the axes are that are one


# Views -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """How a nest addresses the operand, result or temporary `kind` `index`: bytes from the first one to the
    element of iteration (0, 0, ...), and from one iteration to the next along each axis."""

    kind: str
    index: int
    dtype: str
    strides: tuple[Dimension, ...]
    origin: Dimension = 0

    @property
    def itemsize(self) -> int:
        return dtypes.itemsize(self.dtype)

    def pick(self, axes: Sequence[int]) -> View:
        """The view of a nest that keeps only those axes, in that order."""
        return replace(self, strides=tuple(self.strides[a] for a in axes))

    def moved(self, nbytes: Dimension) -> View:
        return replace(self, origin=self.origin + nbytes)


def run_through(view: View, sizes: Sequence[Dimension]) -> int:
    """The bytes that go through the caches for a view in a nest of those sizes, each once, at their typical
    sizes: of what lies apart whole lines."""
    moving = [(s, dims.typical(n)) for s, n in zip(view.strides, sizes) if s != 0 and n != 1]
    covered = view.itemsize
    for apart, count in sorted((abs(s) if isinstance(s, int) else dims.typical(s), n) for s, n in moving):
        each = covered if apart <= covered else min(apart, -(-covered // LINE) * LINE)
        covered = each * count if apart >= covered else covered + apart * (count - 1)
    return covered


def moving(
    target: Target, read: Iterable[View], out: View, sizes: Sequence[Dimension], over: bool = False
) -> Estimate:
    """To bring what views read through the caches and write the result, in a nest of those sizes; over: the
    result takes an operand's place where it lies as that does."""
    views = list(read)
    nread, written = sum(run_through(v, sizes) for v in views), run_through(out, sizes)
    alike = over and any(v.strides == out.strides and v.dtype == out.dtype for v in views)
    if alike:
        return costs.changed(target, nread, written)
    return costs.move(target, costs.READ * nread + costs.WRITTEN * written, nread + written)


def dense(kind: str, index: int, type_: TensorType) -> View:
    """A dense tensor seen from a nest over its own axes."""
    return View(kind, index, type_.dtype, row_major(type_.shape, dtypes.itemsize(type_.dtype)))


def input_view(node: Node, index: int) -> View:
    """Operand `index` of a node as it is stored."""
    return dense("input", index, node.inputs[index].tensor)


def output_view(node: Node) -> View:
    """The result of a node as it is stored."""
    return dense("output", 0, node.outputs[0].tensor)


def broadcasting(kind: str, index: int, type_: TensorType, shape: Sequence[Dimension]) -> View:
    """A dense tensor seen from a nest over `shape`, to which it broadcasts as numpy has it."""
    missing = len(shape) - type_.rank
    strides = row_major(type_.shape, dtypes.itemsize(type_.dtype))
    aligned = [broadcast_stride(*three) for three in zip(strides, type_.shape, shape[missing:])]
    return View(kind, index, type_.dtype, (0,) * missing + tuple(aligned))


def collapse(
    sizes: Sequence[Dimension], views: Sequence[View], apart: Sequence[int] = (), kept: int | None = None
) -> tuple[tuple[Dimension, ...], tuple[View, ...], tuple[tuple[int, ...], ...]]:
    """(sizes, views, groups) of the same nest with fewer axes: those of size 1 are gone, and neighbours that
    every view runs through without a gap are one. `groups` are the original axes behind each; axes in `apart`
    stay by themselves, and the axis `kept` stays even at size 1."""
    groups: list[list[int]] = []
    merged: list[Dimension] = []
    for axis, size in enumerate(sizes):
        if size == 1 and axis != kept:
            continue
        before = groups[-1][-1] if groups else None
        joins = (
            before is not None
            and axis not in apart
            and before not in apart
            and continues([v.strides[before] for v in views], [v.strides[axis] for v in views], size)
        )
        if joins:
            groups[-1].append(axis)
            merged[-1] = merged[-1] * size
        else:
            groups.append([axis])
            merged.append(size)
    last = [group[-1] for group in groups]
    return tuple(merged), tuple(v.pick(last) for v in views), tuple(map(tuple, groups))


def joined_by_the_run(sizes: Sequence[Dimension], views: Sequence[View]) -> tuple[Dimension, ...]:
    """The sizes of the same nest, whose last axis is as long as all axes together which the run finds that
    every view goes through without a gap, where only it can tell; these then have size 1. As many axes as
    formulas of a moderate size tell."""
    found, last = list(sizes), len(sizes) - 1
    together: Dimension = 1  # whether all axes so far are one
    inside = sizes[last]
    for axis in reversed(range(last)):
        try:
            for view in views:
                together = together * dims.compare("eq", view.strides[axis], view.strides[last] * inside)
            longer = found[last] + together * (inside * sizes[axis] - inside)
        except dims.TooComplex:
            break
        if together == 0 or (isinstance(longer, dims.Dim) and longer.size > MOST_SIZE):
            break
        found[last], found[axis] = longer, sizes[axis] - together * (sizes[axis] - 1)
        inside = inside * sizes[axis]
    return tuple(found)


# Parts -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One part while it is being written: its first iteration and its extent along each axis."""

    starts: tuple[str, ...]
    extents: tuple[str, ...]


@dataclass(frozen=True)
class Blocks:
    """An iteration space cut into blocks of `blocks[k]` iterations along axis k (None: the whole axis); the
    last of an axis may be smaller."""

    sizes: tuple[Dimension, ...]
    blocks: tuple[Dimension | None, ...]

    @property
    def grid(self) -> tuple[Dimension, ...]:
        return tuple(
            1 if block is None else size if block == 1 else dims.ceil_divide(size, block)
            for size, block in zip(self.sizes, self.blocks)
        )

    @property
    def parts(self) -> Dimension:
        return dims.product(self.grid)

    @property
    def row(self) -> Dimension:
        """The length of a block along the last axis."""
        length = self.blocks[-1]
        return self.sizes[-1] if length is None else length

    @contextmanager
    def each(self, f: KernelFunction, first: str = "%first", last: str = "%last") -> Iterator[Block]:
        """Writes the loop over the parts first..last-1."""
        with f.loop(first, last) as loop:
            yield self.block(f, loop.index)

    def block(self, f: KernelFunction, part: str) -> Block:
        """The block with that number, the last axis counting fastest."""
        found: list[tuple[str, str]] = []
        counted = [a for a, count in enumerate(self.grid) if count != 1]
        for axis in reversed(range(len(self.sizes))):
            size = f.size(self.sizes[axis])
            length, wanted = self.sizes[axis], self.blocks[axis]
            if wanted is None or axis not in counted:
                found.append(("0", size))
                continue
            block = f.size(wanted)
            if axis == counted[0]:
                place = part
            else:
                part, place = f.divide(part, f.size(self.grid[axis]))
            start = f.mul(place, block)
            even = isinstance(length, int) and isinstance(wanted, int) and length % wanted == 0
            found.append((start, block if even or block == "1" else f.minimum(block, f.sub(size, start))))
        return Block(*map(tuple, zip(*reversed(found)))) if found else Block((), ())


def block_rows(sizes: Sequence[Dimension], elements: int, unit: Dimension = 64, rows: int = 2) -> Blocks:
    """Blocks of about `elements` iterations: of the innermost axis as much as fits (in multiples of `unit`
    where it does not fit whole), then of the `rows` - 1 axes outside it."""
    left = dims.maximum(unit, dims.floor_divide(elements, unit) * unit)
    blocks: list[Dimension] = []
    for depth, size in enumerate(reversed(sizes)):
        if depth >= rows:
            block: Dimension = 1
        elif isinstance(size, int) and isinstance(left, int):
            block = max(1, min(size, left))
        else:
            block = left
        blocks.append(block)
        left = dims.maximum(1, dims.floor_divide(left, dims.minimum(size, block)))
    return Blocks(tuple(sizes), tuple(reversed(blocks)))


class Piece(ABC):
    """A nest over `sizes` that can emit any of its blocks."""

    target: Target
    sizes: tuple[Dimension, ...]

    @property
    @abstractmethod
    def blocks(self) -> Blocks:
        """The parts."""

    @property
    @abstractmethod
    def estimate(self) -> Estimate:
        """Of all iterations."""

    @property
    def scratch(self) -> Dimension:
        """Bytes."""
        return ERROR_BYTES

    @abstractmethod
    def emit(self, f: KernelFunction, block: Block) -> None:
        """Writes one block."""

    @property
    def cost(self) -> Estimate:
        """Of all iterations and of beginning the parts."""
        return self._cost() if isinstance(self.iterations, int) else costs.with_fixed(self._cost)

    def _cost(self) -> Estimate:
        blocks = self.blocks
        known = all(isinstance(size, int) for size in blocks.grid)
        return self.estimate + costs.begun_parts(self.target, dims.typical(blocks.parts), known)

    @property
    def iterations(self) -> Dimension:
        """To which the time is proportional but for what is fixed."""
        return dims.product(self.sizes)

    @property
    def elements(self) -> int:
        """How many iterations make a part."""
        return costs.elements_per_part(self.estimate.total / dims.typical(dims.product(self.sizes)))


#: (what runs one after the other, each a list of pieces that do not depend on each other; sizes of
#: temporaries in bytes)
Stages = tuple[Sequence[Sequence[Piece]], tuple[Dimension, ...]]


def parts_step(target: Target, pieces: Sequence[Piece], besides: Estimate | None = None) -> Step:
    """One step for all pieces: their parts follow each other. besides: what it takes but for them."""
    k = KernelText(target)
    pieces = [piece for piece in pieces if 0 not in piece.sizes]
    before: Dimension = 0
    work: Dimension = round((costs.step(target) + (besides or Estimate())).total)
    scratch: Dimension = ERROR_BYTES
    with k.entry() as f:
        for piece in pieces:
            parts, first, last = piece.blocks.parts, "%first", "%last"
            if len(pieces) > 1:
                first, last = (
                    f.minimum(f.maximum(f.sub(p, f.size(before)), 0), f.size(parts)) for p in (first, last)
                )
            with piece.blocks.each(f, first, last) as block:
                piece.emit(f, block)
            before = before + parts
            work = work + costs.work(piece.cost, piece.iterations)
            scratch = dims.maximum(scratch, piece.scratch)
    return k.step(before, work, scratch)


# Addresses ---------------------------------------------------------------------------------------


def base(f: KernelFunction, view: View) -> str:
    """The address of a view's first byte."""
    return f.word(Argument(view.kind, view.index), "ptr")


def address(f: KernelFunction, view: View, indices: Sequence[str | int]) -> str:
    """The address of the element of an iteration."""
    offset: str = f.size(view.origin)
    for index, stride in zip(indices, view.strides):
        if stride != 0:
            offset = f.add(offset, f.mul(index, f.size(stride)))
    return f.offset(base(f, view), offset)


def displaced(f: Function, pointer: str, index: str | int, stride: str | int) -> str:
    """pointer + index * stride bytes, in the form that address modes scale."""
    if str(stride) in ("2", "4", "8") and not str(index).lstrip("-").isdigit():
        return f.value(f"getelementptr i{8 * int(stride)}, ptr {pointer}, i64 {index}", "ptr")
    return f.offset(pointer, f.mul(index, stride))


@contextmanager
def loops(f: Function, extents: Sequence[str | int]) -> Iterator[list[str]]:
    """Loops over all of these extents, one in the other; gives the indices."""
    with ExitStack() as stack:
        yield ["0" if str(n) == "1" else stack.enter_context(f.loop(0, n)).index for n in extents]


def fail(f: Function, code: str, value: str, says: str = "") -> None:
    """Leaves the kernel with an error of `abi.ERRORS` and a number for its sentence, or for the one given.
    Only in the entry function."""
    f.store("i64", value, "%scratch", 8)
    f.statement(f"ret i32 {abi.ERRORS[code] + say(f, says, '%scratch')}")
    f.label(f.fresh_label("unreachable"))


def rank_aligned(value: Value, rank: int) -> tuple[Dimension, ...]:
    """value's shape with leading axes of size 1 up to that rank."""
    return (1,) * (rank - value.rank) + tuple(value.shape)
