"""Epilogues of kernels that write blocked images: operands of every shape and type, read vector by vector.

A bias is where the sums start. A short body runs on the sums in registers, a longer one in a loop
over the tile that was just stored and is still in the first-level cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import product

import numpy as np

from ...ir import dims, dtypes, expr
from ...ir.dims import Dimension
from ...ir.expr import Expr
from ...ir.graph import Constant, Layout, Node, TensorType, Value
from ...records import dataclass
from .. import costs
from ..kernel import KernelFunction
from ..text.conversion import NARROW
from ..text.emitter import is_number, scalar_type, vector_type
from ..text.memory import load_lanes, store_lanes
from ..text.scalar import lower
from ..text.vectors import Vectors
from .blocked import Image, Window, Wrapped, are_rows, displaced, image_of, keep_channels, without_halo
from .epilogue import bounds_of, in_registers

COLUMN = "%column"  # in a row of the image, of the first pixel of a tile that goes on in the next

#: The address of a position of the output: (row, column, block of channels), relative to a tile's first.
Place = Callable[["str | int", "str | int", int], str]


def row_in(f: KernelFunction, image: Image, y: str | int, x: str | int, columns: int) -> str | int:
    """The row of a pixel of a tile of so many columns: where these go on from one row of the image to the
    next, the one that it lies in."""
    return image.row_of(f, x, COLUMN, columns) if isinstance(image, Wrapped) else y


def place_in(f: KernelFunction, image: Image, pointer: str, columns: int) -> Place:
    """Positions in a tile whose rows have so many columns, relative to `pointer`."""
    strides = (*image.steps, image.plane)

    def place(y: str | int, x: str | int, block: int) -> str:
        row = row_in(f, image, y, x, columns)
        return displaced(f, pointer, tuple(zip((row, x, block), strides)))

    return place


# Operands ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How the node's operand `index`, number index - 1 of the Expr, is read at a position of the
    output: bytes from one image, block of channels, row and pixel to the next, 0 where it repeats, as the run
    may have to tell; `vector`: a position holds a block of channels, not one element for all of them."""

    index: int
    dtype: str
    origin: Dimension
    strides: tuple[Dimension, Dimension, Dimension, Dimension]
    vector: bool

    @property
    def everywhere(self) -> bool:
        """Whether all pixels of an image's block read the same."""
        return self.strides[2] == 0 == self.strides[3]


def _aligned(shape: Sequence[Dimension], rank: int) -> tuple[Dimension, ...]:
    return (1,) * (rank - len(shape)) + tuple(shape)


def is_packed(value: Value, rank: int) -> bool:
    """Constant operands that differ between channels are stored in blocks by `pack_operand`."""
    return value.constant is not None and value.rank >= rank - 1 and _aligned(value.shape, rank)[1] != 1


def packed_operands(node: Node) -> tuple[int, ...]:
    """Which epilogue operands `pack_operand` transforms."""
    rank = node.outputs[0].tensor.rank
    return tuple(i for i, v in enumerate(node.inputs[2:], 2) if is_packed(v, rank))


def pack_operand(value: Value, rank: int, block: int) -> Constant | None:
    """A constant epilogue operand in blocks of channels; None: as it is."""
    if not is_packed(value, rank):
        return None
    shape = dims.numbers(_aligned(value.shape, rank))
    blocks = -(-shape[1] // block)

    def make() -> np.ndarray:
        array = np.zeros((shape[0], blocks * block, *shape[2:]), dtypes.numpy_dtype(value.dtype))
        array[:, : shape[1]] = value.data.array.reshape(shape)
        split = array.reshape(shape[0], blocks, block, *shape[2:])
        return np.ascontiguousarray(np.moveaxis(split, 2, -1))

    return Constant(value.dtype, (shape[0], blocks, *shape[2:], block), make)


def reading_of(index: int, value: Value, type_: TensorType, out: TensorType, block: int) -> Reading | None:
    """How `value`, operand `index`, is read when stored as `type_`; None where kernels cannot."""
    shape, size = _aligned(type_.shape, out.rank), dtypes.itemsize(type_.dtype)
    vector, layout = shape[1] != 1, type_.layout
    if vector and dims.equal(shape[1], out.shape[1]) is not True:
        return None
    if is_packed(value, out.rank):
        layout = without_halo(block, out.rank - 2)
    batch, _, *outer, columns = (1 - dims.repeats(a, b) for a, b in zip(shape, out.shape))
    rows = {step for step, size in zip(outer, out.shape[2:-1]) if size != 1}
    if len(rows) > 1:  # along some of the axes that are rows together
        return None
    origin: Dimension
    strides: tuple[Dimension, ...]
    if layout is not None:
        if not are_rows(TensorType(type_.dtype, shape, layout)):
            return None
        image = image_of(TensorType(type_.dtype, shape, layout))
        if image.block != block:
            return None
        origin, strides = image.origin, (image.image, image.plane, image.row, image.pixel)
    else:  # a dense vector of channels is read in whole blocks, so it must consist of them
        if vector and (shape[1] % block or any(s != 1 for s in shape[2:])):
            return None
        origin, strides = 0, (dims.product(shape[1:]) * size, block * size, shape[-1] * size, size)
    steps = batch, int(vector), next(iter(rows), 0), columns
    n, j, y, x = (stride * step for stride, step in zip(strides, steps))
    return Reading(index, type_.dtype, origin, (n, j, y, x), vector)


def operand_layouts(node: Node, block: int) -> tuple[Layout | None, ...] | None:
    """The layouts that an epilogue wants its operands 2.. in; None where no blocked kernel can run
    it."""
    out, body = node.outputs[0].tensor, node.op.epilogue
    found: list[Layout | None] = []
    if body is not None and any(e.op in ("index", "check") for e in expr.topological(body)):
        return None
    for index, value in enumerate(node.inputs[2:], 2):
        layouts: list[Layout | None] = [None]
        if value.constant is None and value.rank == out.rank and value.shape[1] != 1:
            layouts.append(without_halo(block, out.rank - 2))
        for layout in layouts:
            if reading_of(index, value, replace(value.tensor, layout=layout), out, block) is not None:
                found.append(layout)
                break
        else:
            return None
    return tuple(found)


# Epilogues ---------------------------------------------------------------------------------------


class Epilogue:
    """What becomes of a convolution's sums. A bias that is added to them first is where they start
    (`bias`); `body` is the rest, None where nothing is left.

    In a function that works on one tile the operands are parameters `%operand2`..., their first
    element for the tile, and `%channels`, how many channels there are from the tile's first on.

    `apart`: how far a kernel's operands are from those of this node, which is in a group. `above`: rows of
    the output before those that a kernel counts from.
    """

    def __init__(self, node: Node, block: int, apart: int = 0):
        self.block, self.out, self.apart = block, node.outputs[0].tensor, apart
        self.above: str | int = 0
        self.sums, self.channels = node.op.accumulate, dims.number(self.out.shape[1])
        self.partial = self.channels % block != 0
        self.bounds = bounds_of(node)
        found = [self._reading(i, v) for i, v in enumerate(node.inputs[2:], 2)]
        self.bias: Reading | None = None
        self.body: Expr | None = node.op.epilogue
        if self.body is not None:
            self._split_bias(self.body, {r.index - 1: r for r in found})
        used = {i + 1 for i in expr.inputs(self.body)} if self.body is not None else set()
        self.readings = [r for r in found if r.index in used or r is self.bias]

    def _reading(self, index: int, value: Value) -> Reading:
        reading = reading_of(index, value, value.tensor, self.out, self.block)
        if reading is None:
            raise TypeError(f"operand {index}, {value.type}, is not stored as a result {self.out} needs it")
        return reading

    def _split_bias(self, body: Expr, found: dict[int, Reading]) -> None:
        users = [e for e in expr.topological(body) for a in e.args if a.op == "input" and a.value == 0]
        if len(users) == 1 and users[0].op == "add":
            other = next((a for a in users[0].args if a.op == "input" and a.value != 0), None)
            if other is not None and found[other.value].vector and found[other.value].everywhere:
                self.bias, total = found[other.value], expr.input_(0, self.sums)
                body = expr.rewrite(body, lambda e: total if e is users[0] else None)
        self.body = None if body.op == "input" and body.value == 0 else body

    # Other views of the output -----------------------------------------------------------------

    def _moved(self, change: Callable[[Reading], Reading]) -> Epilogue:
        other = copy(self)
        changed = {r: change(r) for r in self.readings}
        other.readings = list(changed.values())
        other.bias = None if self.bias is None else changed[self.bias]
        return other

    def follows(self, width: Dimension) -> bool:
        """Whether every operand's rows follow each other without a gap, so that an image is one
        row."""
        return all(r.strides[2] == width * r.strides[3] for r in self.readings)

    @property
    def turned(self) -> Epilogue:
        """With rows and columns exchanged."""
        return self._moved(lambda r: replace(r, strides=(*r.strides[:2], r.strides[3], r.strides[2])))

    def wrapped(self, width: int) -> Epilogue:
        """With an image of that width as one row, of which a row more is the gap between two."""

        def change(r: Reading) -> Reading:
            n, block, row, pixel = r.strides
            return replace(r, strides=(n, block, row - width * pixel, pixel))

        return self._moved(change)

    def below(self, rows: str) -> Epilogue:
        """For the output from that row on."""
        other = copy(self)
        other.above = rows
        return other

    def folded(self, width: int) -> Epilogue:
        """With a row of pixels as rows of `width`."""
        if width == 1:
            return self
        return self._moved(lambda r: replace(r, strides=(*r.strides[:2], r.strides[3] * width, r.strides[3])))

    def on_lattice(self, first: tuple[int, int], apart: tuple[int, int]) -> Epilogue:
        """For the pixels first, first + apart, ... of the output."""

        def change(r: Reading) -> Reading:
            n, block, row, pixel = r.strides
            origin = r.origin + first[0] * row + first[1] * pixel
            return replace(r, origin=origin, strides=(n, block, apart[0] * row, apart[1] * pixel))

        return self._moved(change)

    # In a function that works on one tile ------------------------------------------------------

    @property
    def looped(self) -> bool:
        """Whether the body runs in a loop over the tile just stored."""
        return not in_registers(self.body)

    @property
    def over(self) -> tuple[int, ...]:
        """Operands that the output may be written over, where no pixel is computed twice: those that are
        read before the pixel is stored."""
        return () if self.looped else tuple(r.index for r in self.readings)

    @property
    def bytes_together(self) -> bool:
        """Whether several pixels become bytes at once, which takes fewer instructions, as results or to be
        looked up: their body leaves lanes without a channel as they should be."""
        plain = not any(r.dtype in NARROW for r in self.readings)
        made = self.body is not None and (
            (self.body.op == "cast" and dtypes.bits(self.out.dtype) == 8)
            or expr.contains(self.body, "lookup")
        )
        return made and plain and (not self.partial or self._keeps_zero)

    @cached_property
    def _keeps_zero(self) -> bool:
        """Whether lanes without a channel, whose sums and biases are zero, stay zero by
        themselves."""
        if self.body is None:
            return True
        zero = np.zeros((), dtypes.numpy_dtype(self.sums))
        alone = expr.inputs(self.body) == [0]
        return alone and not expr.evaluate(self.body, [zero], (), dims.typical, lambda code: None).any()

    @property
    def parameters(self) -> list[str]:
        operands = [f"ptr {'noalias ' * r.everywhere}%operand{r.index}" for r in self.readings]
        return operands + ["i64 %channels"] * self.partial

    def arguments(
        self, f: KernelFunction, n: str | int, block: str | int, y: str | int, x: str | int
    ) -> list[str]:
        """What a call hands on for the tile whose first pixel is (y, x) of a block of channels."""
        found, y = [], f.add(self.above, y)
        for r in self.readings:
            start = f.offset(f.input(r.index + self.apart), f.size(r.origin))
            found.append("ptr " + displaced(f, start, tuple(zip((n, block, y, x), r.strides))))
        if self.partial:
            found.append(f"i64 {f.sub(self.channels, f.mul(block, self.block))}")
        return found

    def _load(self, f: KernelFunction, r: Reading, vector: int, y: str | int, x: str | int) -> str:
        place = displaced(f, f"%operand{r.index}", tuple(zip((vector, y, x), r.strides[1:])))
        lanes = self.block if r.vector else 1
        value = load_lanes(f, r.dtype, place, lanes, align=dtypes.itemsize(r.dtype))
        return value if r.vector else f.broadcast(scalar_type(r.dtype), value, self.block)

    def start(self, f: KernelFunction, vectors: int) -> list[str]:
        """What the sums of one pixel start with."""
        if self.bias is None:
            return ["zeroinitializer"] * vectors
        return [self._load(f, self.bias, j, 0, 0) for j in range(vectors)]

    def constants(self, f: KernelFunction, vectors: int) -> dict[tuple[int, int], str]:
        """Operands that are the same for all pixels, loaded once: {(operand, vector): value}. Not those of
        narrow floats, which must not live from one basic block to another (`memory.from_bits`)."""
        return {
            (r.index, j): self._load(f, r, j, 0, 0)
            for r in self.readings
            if r.everywhere and r is not self.bias and r.dtype not in NARROW
            for j in range(vectors)
        }

    def apply(
        self,
        f: KernelFunction,
        value: str,
        vector: int,
        y: str | int,
        x: str | int,
        constants: dict[tuple[int, int], str],
        pixels: int = 1,
    ) -> str:
        """The result for the sums `value` in the tile's vector number `vector` at its pixel (y, x), or at
        `pixels` neighbours from there on, a block of lanes each."""

        def operand(index: int) -> str:
            if index == 0:
                return value
            r = next(r for r in self.readings if r.index == index + 1)
            if r.everywhere:
                found = [constants.get((r.index, vector)) or self._load(f, r, vector, y, x)] * pixels
            else:
                found = [self._load(f, r, vector, y, f.add(x, k) if k else x) for k in range(pixels)]
            return joined(f, found, r.dtype, self.block)

        if self.body is None:
            return value
        lanes = self.block * pixels
        (result,) = lower(f, [self.body], operand, lanes, lambda d: f.size(d), bounds=self.bounds)
        if self.partial and not self._keeps_zero:
            left = f.sub("%channels", vector * self.block)
            result = keep_channels(f, self.out.dtype, self.block, result, left)
        return result


@dataclass
class Finish:
    """An epilogue at work on the tiles of one function, whose `vectors` blocks of output channels begin at
    `pointer`; a tile has `pixels` = (rows, columns), its first one in column `first`.

    Where the body runs in a loop (`rework`), the sums wait in the output, or, if its elements are of another
    type, in the function's own memory."""

    epilogue: Epilogue
    f: KernelFunction
    image: Image
    vectors: int
    pixels: tuple[int, int]
    pointer: str = "%out"
    first: str | int = 0

    def __post_init__(self) -> None:
        self.constants = self.epilogue.constants(self.f, self.vectors)

    def beginning(self, first: str | int) -> Finish:
        """The same for the tile that begins in column `first`."""
        other = copy(self)
        other.first = first
        return other

    @property
    def _waits(self) -> bool:
        """Whether sums wait in the function's own memory."""
        return self.epilogue.looped and self.epilogue.sums != self.image.dtype

    @property
    def by_lines(self) -> bool:
        """Whether sums wait in the output, where the body may run on tiles side by side at once: in a loop of
        its own behind theirs, so that its constants take no registers from their sums."""
        return self.epilogue.looped and not self._waits

    def _place(self, y: str | int, x: str | int, vector: int) -> str:
        return place_in(self.f, self.image, self.pointer, self.pixels[1])(y, x, vector)

    def _waiting(self, y: str | int, x: str | int, vector: int) -> str:
        """Where the sums are, or were, before the body runs on them."""
        if not self._waits:
            return self._place(y, x, vector)
        f, (rows, columns) = self.f, self.pixels
        size = self.image.block * dtypes.itemsize(self.epilogue.sums)
        memory = f.hoisted(f"alloca [{rows * columns * self.vectors * size} x i8], align 64", "ptr")
        pixel = f.add(f.mul(y, columns), f.sub(x, self.first))
        return f.element(memory, f.add(f.mul(pixel, self.vectors), vector), size)

    def _sums(self) -> tuple[str, int]:
        """The type of a vector of sums, and its alignment in memory."""
        lanes, dtype = self.image.block, self.epilogue.sums
        return vector_type(scalar_type(dtype), lanes), min(64, lanes * dtypes.itemsize(dtype))

    def put(self, value: str, vector: int, y: str | int, x: str | int) -> None:
        """Stores the result for the sums `value`, or the sums themselves where `rework` follows."""
        if self.epilogue.looped:
            kind, align = self._sums()
            self.f.store(kind, value, self._waiting(y, x, vector), align)
        else:
            self.finish([value], vector, y, x)

    @property
    def together(self) -> int:
        """Neighbours in a row whose results are made and stored at once."""
        return (
            costs.TOGETHER if self.epilogue.bytes_together and self.image.steps[1] == self.image.pixel else 1
        )

    def put_tile(self, sums: Iterable[str]) -> None:
        """The same for the sums of a whole tile, [row][column][vector], each asked for as it is stored."""
        (rows, columns), vectors = self.pixels, self.vectors
        if self.together == 1 or self.epilogue.looped:
            for number, value in enumerate(sums):
                (y, x), j = divmod(number // vectors, columns), number % vectors
                self.put(value, j, y, x)
            return
        whole = list(sums)
        for y, j in product(range(rows), range(vectors)):
            self.put_line(whole[y * columns * vectors + j :: vectors][:columns], j, y, 0)

    def put_line(self, sums: Sequence[str], vector: int, y: str | int, x: str | int) -> None:
        """The same for the sums of neighbours in a row, the first of them in column x."""
        if self.epilogue.looped:
            for number, value in enumerate(sums):
                self.put(value, vector, y, self.f.add(x, number))
            return
        for first, count in self._groups(len(sums)):
            self.finish(sums[first : first + count], vector, y, self.f.add(x, first) if first else x)

    def _groups(self, columns: int) -> Iterator[tuple[int, int]]:
        """(first, count) of those whose results are made at once."""
        first = 0
        while first < columns:
            count = min(self.together, 1 << (columns - first).bit_length() - 1)
            yield first, count
            first += count

    def finish(self, sums: Sequence[str], vector: int, y: str | int, x: str | int) -> None:
        """Stores the results for the sums of neighbours that are made at once."""
        f, image, count = self.f, self.image, len(sums)
        value = joined(f, sums, self.epilogue.sums, image.block)
        row = row_in(f, image, y, x, self.pixels[1])
        result = self.epilogue.apply(f, value, vector, row, x, self.constants, count)
        place, lanes = self._place(y, x, vector), image.block * count
        store_lanes(f, image.dtype, result, place, lanes, align=image.align)

    def rework(self, rows: tuple[str | int, str | int], first: str | int, count: str | int) -> None:
        """Where the body runs in a loop: applies it to the sums of a tile's rows, (first, behind the last),
        and of `count` columns from the first on."""
        if not self.epilogue.looped:
            return
        with self.f.loop(*rows) as row:
            self.along(first, count, partial(self._rework, row.index))

    def along(self, first: str | int, count: str | int, body: Callable[[str, int], None]) -> None:
        """`body` for (column, neighbours from there on) of so many columns, as many as are made at once."""
        f, several = self.f, self.together
        whole, last = f.add(first, f.round_down(count, several)), f.add(first, count)
        with f.loop(first, whole, several) as column:
            body(column.index, several)
        if is_number(count):
            for start, some in self._groups(int(count) % several):
                body(f.add(whole, start), some)
        elif several > 1:
            with f.loop(whole, last) as column:
                body(column.index, 1)

    def _rework(self, y: str, x: str, count: int) -> None:
        """The same for some neighbours in a row."""
        kind, align = self._sums()
        places = [self.f.add(x, k) if k else x for k in range(count)]
        for j in range(self.vectors):
            sums = [self.f.load(kind, self._waiting(y, place, j), align) for place in places]
            self.finish(sums, j, y, x)


def joined(f: KernelFunction, values: Sequence[str], dtype: str, lanes: int) -> str:
    """Vectors of so many lanes as one; their number is a power of two."""
    if len(values) == 1:
        return values[0]
    low, high = (
        joined(f, part, dtype, lanes) for part in (values[: len(values) // 2], values[len(values) // 2 :])
    )
    return Vectors(f, dtype, lanes * len(values)).joined(low, high)


def oriented(
    x: Image, out: Image, window: Window, epilogue: Epilogue
) -> tuple[Image, Image, Window, Epilogue]:
    """The same with an image of one column turned into one row, so that tiles along rows suit
    it."""
    if window.in_column(x, out):
        return x.turned, out.turned, window.turned, epilogue.turned
    return x, out, window, epilogue
