"""Blocked channel layouts in code: where pixels lie, which tiles cover them, and the border around
them.

An `Image` is a value [N, C, spatial] stored as [N, C/block, height + 2 halo, width + 2 halo,
block]; one spatial axis counts as an image of height 1. Sizes may be symbolic: distances are
Dimensions, which become literals or argument words of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from itertools import product
from typing import Any, TypeVar

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Layout, TensorType
from ...records import dataclass
from ..kernel import KernelFunction
from ..text.emitter import Function, memory_type, scalar_type, splat, vector_type
from ..text.memory import first_lanes, from_bits
from ..text.vectors import Vectors

SMALL_IMAGE = 32  # pixels along an axis: dilated windows are for images that are no smaller
GREATEST_HALO = 64  # wider padding is an oddity that would cost more memory than it saves work
GREATEST_LINE_HALO = 8192  # where one axis is padded: sequences, whose dilations double with each layer


# Images ------------------------------------------------------------------------------------------

AxisT = TypeVar("AxisT")


def as_plane(type_: TensorType) -> TensorType:
    """A blocked type over more than two axes as one over two: planes that lie one behind the other are rows
    of one. Only columns may have a border, and rows where there is a single plane."""
    if type_.rank <= 4:
        return type_
    layout, (*before, columns) = type_.blocked, type_.shape[2:]
    halo = layout.halo or (0,) * len(type_.shape[2:])
    if not are_rows(type_):
        raise TypeError(f"the planes of {type_} do not follow each other as rows")
    shape = (*type_.shape[:2], dims.product(before), columns)
    return TensorType(type_.dtype, shape, replace(layout, halo=(halo[-2], halo[-1])))


def are_rows(type_: TensorType) -> bool:
    """Whether the planes of a blocked type follow each other as rows of one."""
    if type_.rank <= 4:
        return True
    *before, rows, _ = type_.blocked.halo or (0,) * len(type_.shape[2:])
    return not any(before) and (rows == 0 or all(d == 1 for d in type_.shape[2:-2]))


def plane_axes(spatial: Sequence[AxisT], fill: AxisT) -> tuple[AxisT, AxisT]:
    """The two axes of an image: (fill, length) for one spatial axis."""
    rows, columns = spatial if len(spatial) == 2 else (fill, *spatial)
    return rows, columns


@dataclass(frozen=True)
class Image:
    """The storage of a blocked value; strides and offsets are in bytes. The halo holds `fill`."""

    batch: Dimension
    channels: int
    height: Dimension
    width: Dimension
    block: int
    dtype: str
    halo: tuple[int, int] = (0, 0)
    fill: int = 0
    pitch: int = 0  # blocks from one image to the next, where it is a part of a wider one

    @property
    def itemsize(self) -> int:
        return dtypes.itemsize(self.dtype)

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.block)

    @property
    def pixel(self) -> int:
        """Bytes of one pixel in one block of channels, the kernels' vector."""
        return self.block * self.itemsize

    @property
    def align(self) -> int:
        """What every pixel's address is a multiple of."""
        return min(64, self.pixel)

    @property
    def row(self) -> Dimension:
        return (self.width + 2 * self.halo[1]) * self.pixel

    @property
    def plane(self) -> Dimension:
        """Bytes of one block of channels."""
        return (self.height + 2 * self.halo[0]) * self.row

    @property
    def image(self) -> Dimension:
        """Bytes from one element of the batch to the next."""
        return (self.pitch or self.blocks) * self.plane

    @property
    def origin(self) -> Dimension:
        """Where in a plane the pixel (0, 0) lies."""
        return self.halo[0] * self.row + self.halo[1] * self.pixel

    @property
    def steps(self) -> tuple[Dimension, Dimension]:
        """Bytes from one (row, pixel) to the next."""
        return self.row, self.pixel

    @property
    def flat(self) -> Image:
        """The same pixels as one row; only without halo."""
        return replace(self, height=1, width=self.height * self.width)

    @property
    def turned(self) -> Image:
        """Rows and columns exchanged; only where the width is 1 without halo, so that memory is the
        same."""
        return replace(self, height=1, width=self.height, halo=(0, self.halo[0]))

    @property
    def stored(self) -> Image:
        """The image as it lies in memory, border and all."""
        return self

    def folded(self, width: int) -> Image:
        """A row of pixels as rows of `width`, of which the last may be shorter; 1: the row itself."""
        if width == 1:
            return self
        height = dims.ceil_divide(self.width, width)
        return Folded(
            self.batch, self.channels, height, width, self.block, self.dtype, pitch=self.pitch, whole=self
        )

    def address(
        self,
        f: KernelFunction,
        pointer: str,
        n: str | int = 0,
        block: str | int = 0,
        y: str | int = 0,
        x: str | int = 0,
    ) -> str:
        """The address of a pixel of the image proper."""
        row, pixel = self.steps
        terms = (n, self.image), (block, self.plane), (y, row), (x, pixel)
        return displaced(f, f.offset(pointer, f.size(self.origin)), terms)

    def of_plane(self, f: KernelFunction, pointer: str, plane: str, depth: Dimension = 1) -> str:
        """The address of a plane, of those of all images one after the other; `depth`: of each block."""
        if not self.pitch:
            return f.offset(pointer, f.mul(plane, f.size(self.plane)))
        n, plane = f.divide(plane, f.size(self.blocks * depth))
        return displaced(f, pointer, ((n, self.image * depth), (plane, self.plane)))


@dataclass(frozen=True)
class Lattice(Image):
    """Every `apart`-th pixel of the image `whole`, from the pixel `first` on, as an image of its
    own."""

    whole: Image = field(kw_only=True)
    first: tuple[int, int] = (0, 0)
    apart: tuple[int, int] = (1, 1)

    @property
    def row(self) -> Dimension:
        return self.whole.row

    @property
    def plane(self) -> Dimension:
        return self.whole.plane

    @property
    def origin(self) -> Dimension:
        return self.whole.origin + self.first[0] * self.whole.row + self.first[1] * self.pixel

    @property
    def steps(self) -> tuple[Dimension, Dimension]:
        return self.apart[0] * self.row, self.apart[1] * self.pixel


@dataclass(frozen=True)
class Recut(Image):
    """The pixels of the image `whole`, where they are, as other rows."""

    whole: Image = field(kw_only=True)

    @property
    def stored(self) -> Image:
        return self.whole

    @property
    def plane(self) -> Dimension:
        return self.whole.plane

    @property
    def origin(self) -> Dimension:
        return self.whole.origin


@dataclass(frozen=True)
class Folded(Recut):
    """The pixels of a row of the image `whole` as rows of their own, one after the other."""

    def rows_of(self, f: KernelFunction, column: str) -> str:
        """How many rows have that column."""
        whole = dims.floor_divide(self.whole.width, self.width)
        longer = f.compare("slt", column, f.size(self.whole.width - whole * self.width))
        return f.add(f.size(whole), f.cast("zext", longer, "i64"))


@dataclass(frozen=True)
class Wrapped(Recut):
    """The pixels of the image `whole`, of known width, as one row: the next of its rows follows behind a gap.
    A pixel of it is in column x, and in that row of `whole` where it lies, so that a row more is the gap."""

    @property
    def row(self) -> Dimension:
        return self.whole.row - self.whole.width * self.pixel

    def place(self, f: KernelFunction, x: str) -> tuple[str, str]:
        """Row and column, in `whole`, of a pixel."""
        return f.divide(x, dims.number(self.whole.width))

    def row_of(self, f: KernelFunction, x: str | int, column: str, columns: int) -> str:
        """In which row, of those of a tile of so many pixels that begins in that column, its pixel x lies."""
        width, x = dims.number(self.whole.width), f.add(column, x)
        if columns > width + 1:  # which may begin more than one row
            return f.divide(x, width)[0]
        return f.cast("zext", f.compare("sge", x, width), "i64", "i1")


def wrapped(image: Image) -> Wrapped:
    """An image as one row of pixels, border or not."""
    return Wrapped(**_with_size(image, 1, image.height * image.width), whole=image)


def lattice(image: Image, first: tuple[int, int], apart: tuple[int, int]) -> Lattice:
    """The pixels first, first + apart, ... of an image."""
    height, width = (
        dims.ceil_divide(size - start, step)
        for size, start, step in zip((image.height, image.width), first, apart)
    )
    return Lattice(**_with_size(image, height, width), first=first, apart=apart, whole=image)


def _with_size(image: Image, height: Dimension, width: Dimension) -> dict[str, Any]:
    """What makes an image of that size that is stored like another."""
    same = {field.name: getattr(image, field.name) for field in fields(Image)}
    return {**same, "height": height, "width": width}


def displaced(f: KernelFunction, pointer: str, terms: Sequence[tuple[str | int, Dimension]]) -> str:
    """pointer + the sum of index * bytes."""
    offset: str | int = 0
    for index, stride in terms:
        if str(index) != "0" and stride != 0:
            offset = f.add(offset, f.mul(index, f.size(stride)))
    return f.offset(pointer, offset)


def image_of(type_: TensorType) -> Image:
    """The image behind a blocked type."""
    type_ = as_plane(type_)
    layout, spatial = type_.blocked, type_.shape[2:]
    halo = plane_axes(layout.halo or (0,) * len(spatial), 0)
    height, width = plane_axes(spatial, 1)
    channels = dims.number(type_.shape[1])
    stored = layout.block, type_.dtype, halo, layout.fill, layout.pitch
    return Image(type_.shape[0], channels, height, width, *stored)


def without_halo(block: int, rank: int) -> Layout:
    """The layout of blocks without a border, which kernels write."""
    return Layout(block, (0,) * rank)


def halo_layout(halo: tuple[int, int], block: int, rank: int) -> Layout:
    """Blocks with the halo of an image, for `rank` spatial axes: of more than two the last ones."""
    return Layout(block, (*(0,) * (rank - 2), *halo[max(0, 2 - rank) :]))


# Windows -----------------------------------------------------------------------------------------


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
        rows, columns = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))
        return rows, columns

    @property
    def halo(self) -> tuple[int, int] | None:
        """The border that holds all padding, None where it has no usable bound."""
        return bounded_halo(zip(self.before, self.after))

    def in_column(self, x: Image, out: Image) -> bool:
        """Whether image and result are a column of pixels, which in memory are those of a row."""
        column = x.width == out.width == self.kernel[1] == 1 and self.before[1] == 0
        return column and x.halo[1] == out.halo[1] == 0 and out.height != 1

    @property
    def turned(self) -> Window:
        return Window(
            self.kernel[::-1], self.strides[::-1], self.dilations[::-1], self.before[::-1], self.after[::-1]
        )


def window_of(
    kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[Dimension]
) -> Window:
    """The window of an op over one or two spatial axes."""
    rank = len(kernel)
    return Window(
        plane_axes(kernel, 1),
        plane_axes(strides, 1),
        plane_axes(dilations, 1),
        plane_axes(pads[:rank], 0),
        plane_axes(pads[rank:], 0),
    )


def reckoned(size: Dimension, extent: int) -> int:
    """How long an axis of an image is along which a dilated window of such an extent moves, for estimates:
    where only the run knows it, as long as the window, which is dilated to cover much of the image."""
    usual = dims.typical(size)
    return usual if isinstance(size, int) else min(usual, max(extent, SMALL_IMAGE))


def bounded_halo(sides: Iterable[Iterable[Dimension]]) -> tuple[int, int] | None:
    """The halo that reaches as far as all sides of each of two axes, None where that has no usable
    bound."""
    found = []
    for side in sides:
        most = _all_known(highest(reach) for reach in side)
        if most is None:
            return None
        found.append(max(0, *most))
    rows, columns = found
    usable = max(found) <= (GREATEST_HALO if rows and columns else GREATEST_LINE_HALO)
    return (rows, columns) if usable else None


def _all_known(values: Iterable[int | None]) -> list[int] | None:
    """The values where none of them is None."""
    found = []
    for value in values:
        if value is None:
            return None
        found.append(value)
    return found


def highest(value: Dimension) -> int | None:
    """A bound of value from above, None where there is none. Beyond `dims.bounds` it knows what the
    terms of padding and of rounded sizes have to do with each other: a - b * (a // b) < b."""
    known = dims.bounds(value)[1]
    if known is not None or isinstance(value, int):
        return known
    for monomial, factor in value.terms:
        atom = monomial[0][0] if monomial else None
        if len(monomial) != 1 or monomial[0][1] != 1 or not isinstance(atom, dims.Apply):
            continue
        rest = value - dims.Dim(((monomial, factor),))
        if atom.kind == "floordiv" and isinstance(atom.right, int) and atom.right > 0:
            # right * value, where right * (left // right) is left, less at most right - 1
            most = highest(factor * atom.left + atom.right * rest)
            return None if most is None else (most + max(0, -factor) * (atom.right - 1)) // atom.right
        if atom.kind in ("min", "max"):
            either = [highest(rest + factor * side) for side in (atom.left, atom.right)]
            if (atom.kind == "min") == (factor > 0):
                return min((e for e in either if e is not None), default=None)
            both = _all_known(either)
            return None if both is None else max(both)
    terms = _all_known(_highest_term(monomial, factor) for monomial, factor in value.terms)
    return None if terms is None else sum(terms)


def _highest_term(monomial: dims.Monomial, factor: int) -> int | None:
    atom = monomial[0][0] if monomial else None
    if len(monomial) == 1 and isinstance(atom, dims.Apply) and atom.kind == "floordiv" and factor > 0:
        most, least = highest(atom.left), dims.bounds(atom.left)[0]
        if isinstance(atom.right, int) and atom.right > 0 and most is not None and least is not None:
            return factor * (most // atom.right)
    return dims.bounds(dims.Dim(((monomial, factor),)))[1] if monomial else factor


# Borders and lanes -------------------------------------------------------------------------------


def clear_border(f: KernelFunction, image: Image, plane: str, first: str | int, last: str | int) -> None:
    """Fills the halo around rows first..last-1 of one plane, `plane` being its first byte.

    A row's part of the halo is what lies between the row above and itself; the last row has what
    follows it too, so that any partition of the rows clears everything once. Where there are no rows all
    is halo.
    """
    if image.halo == (0, 0):
        return
    pixel = vector_type(memory_type(image.dtype), image.block)
    filled = splat(image.fill, image.dtype, image.block) if image.fill else "zeroinitializer"
    row, origin, side = (f.size(image.row), f.size(image.origin), 2 * image.halo[1] * image.pixel)

    def clear(start: str, stop: str) -> None:
        with f.loop(start, stop, image.pixel) as loop:
            f.store(pixel, filled, f.offset(plane, loop.index), image.align)

    with f.loop(first, last) as loop:
        start = f.add(origin, f.mul(loop.index, row))
        top = f.compare("eq", loop.index, 0)
        clear(f.select(top, "i64", "0", f.sub(start, side)), start)
    with f.when(f.compare("eq", last, f.size(image.height))):
        behind = f.size(image.origin + image.height * image.row - side)
        none = f.compare("eq", last, 0)
        clear(f.select(none, "i64", "0", behind), f.size(image.plane))


def clear_planes(
    f: KernelFunction, out: Image, n: str, block: str, count: int | str, lines: tuple[str, str]
) -> None:
    """The border of `count` planes around the lines; around a single row, with its first pixel."""
    if out.halo == (0, 0):
        return
    if isinstance(out, Wrapped):
        width, out = dims.number(out.whole.width), out.whole
        first, behind = (f.divide(f.add(line, width - 1), width)[0] for line in lines)
        lines = first, behind
    elif out.height == 1:
        lines = "0", f.cast("zext", f.compare("eq", lines[0], 0), "i64")
    with f.loop(0, count) as loop:
        plane = displaced(f, f.output(), ((n, out.image), (f.add(block, loop.index), out.plane)))
        clear_border(f, out, plane, *lines)


def keep_channels(f: Function, dtype: str, lanes: int, value: str, channels: str | int) -> str:
    """value with the lanes from number `channels` on set to zero."""
    vector, mask = vector_type(scalar_type(dtype), lanes), first_lanes(f, channels, lanes)
    if dtype not in ("float16", "bfloat16"):
        return f.select(mask, vector, value, "zeroinitializer")
    bits = vector_type("i16", lanes)  # without registers of the type LLVM chooses them one by one
    kept = f.select(mask, bits, f.cast("bitcast", value, bits, vector), "zeroinitializer")
    return from_bits(f, dtype, lanes, kept)


def resized(f: Function, element: str, value: str, lanes: int, wanted: int) -> str:
    """The first lanes of a vector, or the vector with zeros behind it."""
    if lanes == wanted or value == "zeroinitializer":
        return value
    kind = vector_type(element, lanes)
    if wanted == 1:
        return f.extract(value, 0, kind)
    if lanes == 1:
        return f.insert("zeroinitializer", value, 0, vector_type(element, wanted))
    return f.shuffle(value, "zeroinitializer", [min(lane, lanes) for lane in range(wanted)], kind)


def spread(f: Function, element: str, value: str, lanes: int, wanted: int, apart: int) -> str:
    """The first lanes of a vector, each with `apart` - 1 zeros behind it; of whole vectors see `resized`."""
    if apart == 1 or value == "zeroinitializer":
        return resized(f, element, value, lanes, wanted)
    first = resized(f, element, value, lanes, wanted * apart)
    kind = vector_type(element, wanted * apart)
    picks = [lane // apart if lane % apart == 0 else wanted * apart for lane in range(wanted * apart)]
    return f.shuffle(first, "zeroinitializer", picks, kind)


def gathered(f: Function, dtype: str, value: str, lanes: int, wanted: int, apart: int) -> str:
    """The sums of each `apart` neighbours, of which there are `lanes`, with zeros behind them."""
    element, count = scalar_type(dtype), lanes * apart
    if apart == 1:
        return resized(f, element, value, lanes, wanted)
    vectors, step = Vectors(f, dtype, count), 1
    while step < apart:
        neighbours = f.shuffle(value, "poison", [lane ^ step for lane in range(count)], vectors.type)
        value, step = vectors.add(value, neighbours), 2 * step
    picks = [min(lane * apart, count) for lane in range(wanted)]
    return f.shuffle(value, "zeroinitializer", picks, vectors.type)


# Covering images with tiles ----------------------------------------------------------------------


def equal_width(length: int, most: int) -> int:
    """The least width with which as few tiles as of width `most` cover length: 49 by 14 → 13, of
    four."""
    return -(-length // -(-length // most)) if length else 1


def left_to_narrower(widths: Sequence[int], times: Sequence[float]) -> list[int]:
    """For each of the widths of tiles, which descend and take so much time each: the longest rest that those
    after it cover in less time than one more of it does."""

    def least(index: int, length: int) -> float:
        whole, rest = divmod(length, widths[index])
        if rest and index + 1 < len(widths):
            return whole * times[index] + min(times[index], least(index + 1, rest))
        return (whole + (rest > 0)) * times[index]

    found = []
    for index, (width, time) in enumerate(zip(widths[:-1], times)):
        worse = [rest for rest in range(1, width) if least(index + 1, rest) >= time]
        found.append(min(worse, default=width) - 1)
    return [*found, 0]


def cover(
    f: Function,
    start: str | int,
    stop: str | int,
    widths: Sequence[int],
    body: Callable[[int, str], None],
    times: Sequence[float] | None = None,
) -> None:
    """Calls `body(width, first)` to emit tiles that cover start..stop-1 and nothing outside; widths
    descend to 1 unless the length is known to reach them. The last tile of a width may overlap the
    one before, where narrower ones would take longer: its results are written twice. times: what a tile of
    each width takes; None: any two longer than one."""
    at, length = start, f.sub(stop, start)
    for width, smaller in zip(widths, left_to_narrower(widths, times) if times else [*widths[1:], 0]):
        whole, left = f.divide(f.sub(stop, at), width)
        if left == "0":
            count, following = whole, stop
        else:
            more = f.binary("and", f.compare("sgt", left, smaller), f.compare("sge", length, width), "i1")
            count = f.add(whole, f.cast("zext", more, "i64", "i1"))
            following = f.select(more, "i64", str(stop), f.add(at, f.mul(whole, width)))
        with f.loop(0, count) as loop:
            first = f.add(at, f.mul(loop.index, width))
            body(width, first if left == "0" else f.minimum(first, f.sub(stop, width)))
        at = following


LoadedT = TypeVar("LoadedT")  # what is read of one input


def slide(
    window: Window,
    rows: int,
    columns: int,
    load: Callable[[int, int], LoadedT],
    combine: Callable[[str | None, LoadedT, int, int], str],
    done: Callable[[int, int, str], None],
    begun: Mapping[tuple[int, int], str] | None = None,
    by_lines: bool = False,
) -> None:
    """Moves a window over rows x columns outputs, reading every input once, column by column:
    `load(iy, ix)` reads, `combine(state, value, ky, kx)` adds a tap to an output's state (None: the
    first), `done(y, x, state)` stores it. Few states are open at a time: those of the outputs whose
    window covers the column, but those that are `begun` all the time. Line by line all are open."""
    (height, width), (sy, sx), (dy, dx) = window.kernel, window.strides, window.dilations
    outputs = list(product(range(rows), range(columns)))
    reads: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
    for (y, x), ky, kx in product(outputs, range(height), range(width)):
        reads.setdefault((x * sx + kx * dx, y * sy + ky * dy), []).append((y, x, ky, kx))
    open_ = dict(begun or {})
    left = dict.fromkeys(outputs, window.taps)
    for ix, iy in sorted(reads, key=lambda read: read[::-1] if by_lines else read):
        value = load(iy, ix)
        for y, x, ky, kx in reads[ix, iy]:
            open_[y, x] = combine(open_.get((y, x)), value, ky, kx)
            left[y, x] -= 1
            if not left[y, x]:
                done(y, x, open_.pop((y, x)))
