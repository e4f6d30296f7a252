"""Blocked channel layouts in code: where pixels lie, what epilogues read, and the border that every producer clears.

An `Image` is a value [N, C, spatial] stored as [N, C/block, height + 2 halo, width + 2 halo, block]; one spatial axis counts
as an image of height 1. An `Epilogue` is a convolution's last Expr with its operands read vector by vector. Sizes may be
symbolic: distances are Dimensions, which become literals or argument words of the kernel.
"""
from __future__ import annotations

from copy import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .. import dims, dtypes, expr
from ..dims import Dimension
from ..ir import Constant, Layout, Node, TensorType, Value
from .emitter import Function, scalar_type, vector_type
from .kernel import KernelText
from .microkernel import lane_mask
from .scalar import lower

GREATEST_HALO = 64  # wider padding is an oddity that would cost more memory than it saves work


# Shapes ------------------------------------------------------------------------------------------


def plane_axes(spatial: Sequence, fill: object) -> tuple:
    """The two axes of an image: (fill, length) for one spatial axis."""
    return (fill, *spatial) if len(spatial) == 1 else tuple(spatial)


@dataclass(frozen=True)
class Image:
    """The storage of a blocked value; strides and offsets are in bytes."""

    batch: Dimension
    channels: int
    height: Dimension
    width: Dimension
    block: int
    itemsize: int
    halo: tuple[int, int]

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.block)

    @property
    def pixel(self) -> int:
        return self.block * self.itemsize

    @property
    def row(self) -> Dimension:
        return (self.width + 2 * self.halo[1]) * self.pixel

    @property
    def plane(self) -> Dimension:
        """Bytes of one block of channels."""
        return (self.height + 2 * self.halo[0]) * self.row

    @property
    def origin(self) -> Dimension:
        """Where in a plane the pixel (0, 0) lies."""
        return self.halo[0] * self.row + self.halo[1] * self.pixel

    @property
    def flat(self) -> Image:
        """The same pixels as one row; only without halo."""
        return replace(self, height=1, width=self.height * self.width)

    @property
    def turned(self) -> Image:
        """Rows and columns exchanged; only where the width is 1 and has no halo, so that memory is the same."""
        return replace(self, height=1, width=self.height, halo=(0, self.halo[0]))

    def address(self, k: KernelText, f: Function, pointer: str, n: str | int = 0, block: str | int = 0,
                y: str | int = 0, x: str | int = 0) -> str:
        """The address of a pixel of the image proper."""
        terms = (n, self.blocks * self.plane), (block, self.plane), (y, self.row), (x, self.pixel)
        return displaced(k, f, f.offset(pointer, k.size(f, self.origin)), terms)


def displaced(k: KernelText, f: Function, pointer: str, terms: Sequence[tuple[str | int, Dimension]]) -> str:
    offset: str | int = 0
    for index, stride in terms:
        if str(index) != "0" and stride != 0:
            offset = f.add(offset, f.mul(index, k.size(f, stride)))
    return f.offset(pointer, offset)


def image_of(type_: TensorType) -> Image:
    """The image behind a blocked type."""
    layout, spatial = type_.layout, type_.shape[2:]
    if layout is None or not isinstance(type_.shape[1], int):
        raise TypeError(f"{type_} is not stored in blocks of channels")
    halo = plane_axes(layout.halo or (0,) * len(spatial), 0)
    return Image(type_.shape[0], type_.shape[1], *plane_axes(spatial, 1), layout.block, dtypes.itemsize(type_.dtype), halo)


def without_halo(block: int, rank: int) -> Layout:
    return Layout(block, (0,) * rank)


@dataclass(frozen=True)
class Window:
    """A convolution's or pool's window over an image, its two axes (rows, columns) each."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[Dimension, Dimension]
    after: tuple[Dimension, Dimension]

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def extent(self) -> tuple[int, int]:
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))

    @property
    def halo(self) -> tuple[int, int] | None:
        """The border that holds all padding, None where it has no usable bound."""
        found = []
        for side in zip(self.before, self.after):
            most = [highest(padding) for padding in side]
            if None in most or max(most) > GREATEST_HALO:
                return None
            found.append(max(0, *most))
        return tuple(found)

    @property
    def turned(self) -> Window:
        return Window(*(pair[::-1] for pair in (self.kernel, self.strides, self.dilations, self.before, self.after)))


def window_of(kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[Dimension]) -> Window:
    """The window of an op over one or two spatial axes."""
    rank = len(kernel)
    return Window(plane_axes(kernel, 1), plane_axes(strides, 1), plane_axes(dilations, 1),
                  plane_axes(pads[:rank], 0), plane_axes(pads[rank:], 0))


def highest(value: Dimension) -> int | None:
    """A bound of value from above, None where there is none. Beyond `dims.bounds` it knows what the
    terms of padding and of rounded sizes have to do with each other: a - b * (a // b) < b."""
    known = dims.bounds(value)[1]
    if known is not None:
        return known
    for monomial, factor in value.terms:
        atom = monomial[0][0]
        if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(atom, dims.Apply):
            continue
        rest = value - dims.Dim(((monomial, factor),))
        if atom.kind == "floordiv" and isinstance(atom.right, int) and atom.right > 0 == factor % atom.right:
            times = factor // atom.right  # the term is times * (left - left % right)
            most = highest(rest + times * atom.left)
            return None if most is None else most + max(0, -times) * (atom.right - 1)
        if atom.kind in ("min", "max"):
            either = [highest(rest + factor * side) for side in (atom.left, atom.right)]
            if (atom.kind == "min") == (factor > 0):
                return min((e for e in either if e is not None), default=None)
            return None if None in either else max(either)
    terms = [_highest_term(monomial, factor) for monomial, factor in value.terms]
    return None if None in terms else sum(terms)


def _highest_term(monomial: dims.Monomial, factor: int) -> int | None:
    atom = monomial[0][0]
    if len(monomial) == 1 and isinstance(atom, dims.Apply) and atom.kind == "floordiv" and factor > 0:
        most, least = highest(atom.left), dims.bounds(atom.left)[0]
        if isinstance(atom.right, int) and atom.right > 0 and None not in (most, least):
            return factor * (most // atom.right)
    return dims.bounds(dims.Dim(((monomial, factor),)))[1]


def typical(value: Dimension) -> int:
    """A number to estimate with where a size is symbolic."""
    return value if isinstance(value, int) else max(1, dims.evaluate(value, {s.name: 64 for s in dims.symbols(value)}))


# Borders and lanes -------------------------------------------------------------------------------


def clear_border(k: KernelText, f: Function, image: Image, plane: str, first: str | int, last: str | int) -> None:
    """Zeroes the halo around rows first..last-1 of one plane, `plane` being its first byte.

    A row's part of the halo is what lies between the row above and itself; the last row has what follows it too, so that any
    partition of the rows clears everything once.
    """
    if image.halo == (0, 0):
        return
    zero = f"<{image.pixel} x i8>"
    row, origin, side = k.size(f, image.row), k.size(f, image.origin), 2 * image.halo[1] * image.pixel

    def clear(start: str, stop: str) -> None:
        with f.loop(start, stop, image.pixel) as loop:
            f.store(zero, "zeroinitializer", f.offset(plane, loop.index), min(64, image.pixel))

    with f.loop(first, last) as loop:
        start = f.add(origin, f.mul(loop.index, row))
        clear(f.select(f.compare("eq", loop.index, 0), "i64", "0", f.sub(start, side)), start)
    with f.when(f.compare("eq", last, k.size(f, image.height))):
        clear(k.size(f, image.origin + image.height * image.row - side), k.size(f, image.plane))


def keep_channels(f: Function, dtype: str, lanes: int, value: str, channels: str | int) -> str:
    """value with the lanes from number `channels` on set to zero."""
    vector, mask = vector_type(scalar_type(dtype), lanes), lane_mask(f, dtype, lanes, channels)
    return f.value(f"select <{lanes} x i1> {mask}, {vector} {value}, {vector} zeroinitializer")


# Covering a line with tiles ----------------------------------------------------------------------


def equal_width(length: int, most: int) -> int:
    """The least tile width that covers length with as few tiles as width `most` does: 49 by 14 → 13, which takes four."""
    return -(-length // -(-length // most)) if length else 1


def cover(f: Function, start: str | int, stop: str | int, widths: Sequence[int], body: Callable[[int, str], None]) -> None:
    """Calls `body(width, first)` to emit tiles that cover start..stop-1 and nothing outside, widths descending to 1 unless
    the length is known to reach them. The last tile of a width may overlap the one before: results are written twice."""
    at, length = start, f.sub(stop, start)
    for width, smaller in zip(widths, [*widths[1:], 0]):
        whole, left = f.divide(f.sub(stop, at), width)
        if left == "0":
            count, following = whole, stop
        else:
            more = f.value(f"and i1 {f.compare('sgt', left, smaller)}, {f.compare('sge', length, width)}")
            count = f.add(whole, f.value(f"zext i1 {more} to i64"))
            following = f.select(more, "i64", str(stop), f.add(at, f.mul(whole, width)))
        with f.loop(0, count) as loop:
            first = f.add(at, f.mul(loop.index, width))
            body(width, first if left == "0" else f.minimum(first, f.sub(stop, width)))
        at = following


# Epilogues ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How the node's operand `index`, number index - 1 of the Expr, is read at a position of the output: bytes from one image, block of channels, row and pixel to the
    next, 0 where it repeats; `vector`: a position holds a block of channels, not one element for all of them."""

    index: int
    dtype: str
    origin: Dimension
    strides: tuple[Dimension, Dimension, Dimension, Dimension]
    vector: bool

    @property
    def everywhere(self) -> bool:
        """Whether all pixels of an image's block read the same."""
        return self.strides[2] == 0 == self.strides[3]


def _repeats(size: Dimension, whole: Dimension) -> bool | None:
    """True where an axis of size 1 repeats, False where it runs along, None where only the run knows."""
    return size != whole if size == 1 else False if dims.equal(size, whole) else None


def _aligned(shape: Sequence[Dimension], rank: int) -> tuple[Dimension, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def _is_packed(value: Value, rank: int) -> bool:
    """Constant operands that differ between channels are stored in blocks by `pack_operand`."""
    return value.constant is not None and value.rank >= rank - 1 and _aligned(value.shape, rank)[1] != 1


def pack_operand(value: Value, rank: int, block: int) -> Constant | None:
    """A constant epilogue operand in blocks of channels; None: as it is."""
    if not _is_packed(value, rank):
        return None
    shape = _aligned(value.shape, rank)
    blocks = -(-shape[1] // block)

    def make() -> np.ndarray:
        array = np.zeros((shape[0], blocks * block, *shape[2:]), dtypes.numpy_dtype(value.dtype))
        array[:, : shape[1]] = value.constant.array.reshape(shape)
        return np.ascontiguousarray(np.moveaxis(array.reshape(shape[0], blocks, block, *shape[2:]), 2, -1))

    return Constant(value.dtype, (shape[0], blocks, *shape[2:], block), make)


def _reading(index: int, value: Value, type_: TensorType, out: TensorType, block: int) -> Reading | None:
    """How `value`, operand `index`, is read when stored as `type_`; None where kernels cannot read it so."""
    shape, size = _aligned(type_.shape, out.rank), dtypes.itemsize(type_.dtype)
    repeats = [_repeats(a, b) for a, b in zip(shape, out.shape)]
    if type_.dtype != out.dtype or None in repeats:
        return None
    vector, layout = shape[1] != 1, type_.layout
    if _is_packed(value, out.rank):
        layout = without_halo(block, out.rank - 2)
    if layout is not None:
        image = image_of(TensorType(type_.dtype, shape, layout))
        if image.block != block:
            return None
        origin, strides = image.origin, [image.blocks * image.plane, image.plane, image.row, image.pixel]
    else:  # a dense vector of channels is read in whole blocks, so it must consist of them
        if vector and (shape[1] % block or any(s != 1 for s in shape[2:])):
            return None
        width = shape[-1] if out.rank > 2 else 1
        origin, strides = 0, [dims.product(shape[1:]) * size, block * size, width * size, size]
    rows, columns = plane_axes(repeats[2:], True)
    along = (not repeats[0], vector, not rows, not columns)
    return Reading(index, type_.dtype, origin, tuple(s if a else 0 for s, a in zip(strides, along)), vector)


def operand_layouts(node: Node, block: int) -> tuple[Layout | None, ...] | None:
    """The layouts that an epilogue wants its operands 2.. in; None where it cannot be part of a blocked kernel."""
    out, body, found = node.outputs[0].type, node.op.epilogue, []
    if body is not None and any(e.op in ("index", "check") for e in expr.topological(body)):
        return None
    for index, value in enumerate(node.inputs[2:], 2):
        whole = value.constant is None and value.rank == out.rank and value.shape[1] != 1
        layout = without_halo(block, out.rank - 2) if whole else None
        if _reading(index, value, replace(value.type, layout=layout), out, block) is None:
            return None
        found.append(layout)
    return tuple(found)


def packed_operands(node: Node) -> tuple[int, ...]:
    """Which epilogue operands `pack_operand` transforms."""
    return tuple(i for i, v in enumerate(node.inputs[2:], 2) if _is_packed(v, node.outputs[0].type.rank))


_COSTLY = {"exp", "log", "erf", "tanh", "pow", "sin", "cos", "tan", "mod", "fmod"}
_MOST_INLINE = 12  # operations that are emitted for each accumulator; longer bodies run in a loop over the stored tile


class Epilogue:
    """What becomes of a convolution's sums. A bias that is added to them first is where the accumulators start (`bias`);
    `body` is the rest, None where nothing is left."""

    def __init__(self, node: Node, block: int):
        self.block, self.out = block, node.outputs[0].type
        found = [_reading(i, v, v.type, self.out, block) for i, v in enumerate(node.inputs[2:], 2)]
        self.dtype = self.out.dtype
        self.bias, self.body = None, node.op.epilogue
        if self.body is not None:
            self._split_bias({r.index - 1: r for r in found})
        used = {i + 1 for i in expr.inputs(self.body)} if self.body is not None else set()
        self.readings = [r for r in found if r.index in used or r is self.bias]
        self.partial = self.out.shape[1] % block != 0

    def _split_bias(self, found: dict[int, Reading]) -> None:
        users = [e for e in expr.topological(self.body) for a in e.args if a.op == "input" and a.value == 0]
        if len(users) == 1 and users[0].op == "add":
            other = next((a for a in users[0].args if a.op == "input" and a.value != 0), None)
            if other is not None and found[other.value].vector and found[other.value].everywhere:
                self.bias = found[other.value]
                total = expr.input_(0, self.dtype)
                self.body = expr.rewrite(self.body, lambda e: total if e is users[0] else None)
        if self.body.op == "input" and self.body.value == 0:
            self.body = None

    def follows(self, width: Dimension) -> bool:
        """Whether every operand's rows follow each other without a gap, so that an image is one long row."""
        return all(r.strides[2] == width * r.strides[3] for r in self.readings)

    @property
    def turned(self) -> Epilogue:
        """The epilogue with rows and columns exchanged."""
        other = copy(self)
        swapped = {r: replace(r, strides=(*r.strides[:2], r.strides[3], r.strides[2])) for r in self.readings}
        other.readings, other.bias = list(swapped.values()), swapped.get(self.bias)
        return other

    @property
    def looped(self) -> bool:
        """Whether the body runs in a loop over the tile just stored: inlined, it would be long code."""
        return self.body is not None and (
            expr.instructions(self.body) > _MOST_INLINE or any(e.op in _COSTLY for e in expr.topological(self.body))
        )

    @cached_property
    def _keeps_zero(self) -> bool:
        """Whether lanes without a channel, whose sums and biases are zero, stay zero by themselves."""
        if self.body is None:
            return True
        zero = np.zeros((), dtypes.numpy_dtype(self.dtype))
        return expr.inputs(self.body) == [0] and not expr.evaluate(self.body, [zero], (), typical, lambda code: None).any()

    # As parameters of a function that works on one tile ----------------------------------------

    @property
    def parameters(self) -> list[str]:
        return [f"ptr noalias %operand{r.index}" for r in self.readings] + ["i64 %channels"] * self.partial

    def arguments(self, k: KernelText, f: Function, n: str | int, block: str | int, y: str | int, x: str | int) -> list[str]:
        """What a call hands on for the tile whose first pixel is (y, x) of a block of channels."""
        found = []
        for r in self.readings:
            start = f.offset(k.input(f, r.index), k.size(f, r.origin))
            found.append("ptr " + displaced(k, f, start, tuple(zip((n, block, y, x), r.strides))))
        if self.partial:
            found.append(f"i64 {f.sub(self.out.shape[1], f.mul(block, self.block))}")
        return found

    def _load(self, k: KernelText, f: Function, r: Reading, vector: int, y: str | int, x: str | int) -> str:
        place = displaced(k, f, f"%operand{r.index}", tuple(zip((vector, y, x), r.strides[1:])))
        element = scalar_type(r.dtype)
        if r.vector:
            return f.load(vector_type(element, self.block), place, dtypes.itemsize(r.dtype))
        return f.broadcast(element, f.load(element, place, dtypes.itemsize(r.dtype)), self.block)

    def start(self, k: KernelText, f: Function, vectors: int) -> list[str]:
        """What the accumulators of one row of the tile start with."""
        if self.bias is None:
            return ["zeroinitializer"] * vectors
        return [self._load(k, f, self.bias, j, 0, 0) for j in range(vectors)]

    def constants(self, k: KernelText, f: Function, vectors: int) -> dict[tuple[int, int], str]:
        """Operands that are the same for all pixels of the tile, loaded once: {(operand, vector): value}."""
        return {(r.index, j): self._load(k, f, r, j, 0, 0)
                for r in self.readings if r.everywhere and r is not self.bias for j in range(vectors)}

    def apply(self, k: KernelText, f: Function, value: str, vector: int, y: str | int, x: str | int,
              constants: dict[tuple[int, int], str]) -> str:
        """The result for the sums `value` in the tile's vector number `vector` at its pixel (y, x)."""
        if self.body is not None:
            def operand(index: int) -> str:
                if index == 0:
                    return value
                r = next(r for r in self.readings if r.index == index + 1)
                return constants.get((r.index, vector)) or self._load(k, f, r, vector, y, x)

            value, = lower(f, [self.body], operand, self.block, lambda d: k.size(f, d))
        if self.partial and not self._keeps_zero:
            value = keep_channels(f, self.dtype, self.block, value, f.sub("%channels", vector * self.block))
        return value

    def put(self, k: KernelText, f: Function, value: str, vector: int, y: str | int, x: str | int,
            place: Place, constants: dict[tuple[int, int], str]) -> None:
        """Stores the result for the sums `value`, or the sums themselves where `rework` follows."""
        if not self.looped:
            value = self.apply(k, f, value, vector, y, x, constants)
        kind = vector_type(scalar_type(self.dtype), self.block)
        f.store(kind, value, place(y, x, vector), self.block * dtypes.itemsize(self.dtype))

    def rework(self, k: KernelText, f: Function, pixels: tuple[Sequence[int], Sequence[int]], vectors: int,
               origin: tuple[str | int, str | int], place: Place, constants: dict[tuple[int, int], str]) -> None:
        """Where the body runs in a loop: applies it to the stored rows and columns of `pixels`, equally
        spaced each, relative to `origin`."""
        if not self.looped:
            return
        kind = vector_type(scalar_type(self.dtype), self.block)
        (rows, columns), align = pixels, self.block * dtypes.itemsize(self.dtype)
        steps = [line[1] - line[0] if len(line) > 1 else 1 for line in pixels]
        with f.loop(0, len(rows)) as down, f.loop(0, len(columns)) as along:
            y = f.add(origin[0], f.mul(down.index, steps[0]))
            x = f.add(origin[1], f.mul(along.index, steps[1]))
            for j in range(vectors):
                address = place(y, x, j)
                value = self.apply(k, f, f.load(kind, address, align), j, y, x, constants)
                f.store(kind, value, address, align)


def oriented(x: Image, out: Image, window: Window, epilogue: Epilogue) -> tuple[Image, Image, Window, Epilogue]:
    """The same with an image of one column turned into one row, so that tiles along rows suit it."""
    column = x.width == out.width == window.kernel[1] == 1 and window.before[1] == 0
    if column and x.halo[1] == out.halo[1] == 0 and out.height != 1:
        return x.turned, out.turned, window.turned, epilogue.turned
    return x, out, window, epilogue


#: The address of a position of the output: (row, column, block of channels), relative to a tile's first.
Place = Callable[["str | int", "str | int", int], str]


def place_in(k: KernelText, f: Function, image: Image, pointer: str) -> Place:
    """Positions relative to `pointer`."""
    strides = image.row, image.pixel, image.plane
    return lambda y, x, j: displaced(k, f, pointer, tuple(zip((y, x, j), strides)))


# Sliding a window --------------------------------------------------------------------------------


def slide(window: Window, rows: int, columns: int, load: Callable[[int, int], str],
          combine: Callable[[str | None, str, int, int], str], done: Callable[[int, int, str], None]) -> None:
    """Moves a window over rows x columns outputs, reading every input once, column by column: `load(iy, ix)` reads,
    `combine(state, value, ky, kx)` adds a tap to an output's state (None: the first), `done(y, x, state)` stores it.
    Few states are open at a time: those of the outputs whose window covers the column."""
    open_: dict[tuple[int, int], str] = {}
    (height, width), (sy, sx), (dy, dx) = window.kernel, window.strides, window.dilations
    reads: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for y, x in np.ndindex(rows, columns):
        for ky, kx in np.ndindex(height, width):
            reads.setdefault((x * sx + kx * dx, y * sy + ky * dy), []).append((y, x, ky, kx))
    left = dict.fromkeys(np.ndindex(rows, columns), height * width)
    for ix, iy in sorted(reads):
        value = load(iy, ix)
        for y, x, ky, kx in reads[ix, iy]:
            open_[y, x] = combine(open_.get((y, x)), value, ky, kx)
            left[y, x] -= 1
            if not left[y, x]:
                done(y, x, open_.pop((y, x)))
