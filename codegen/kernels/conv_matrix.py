"""Direct convolution of blocked images on registers that hold matrices.

What one step of k multiplies are 64 bytes of every pixel: [C/64][rows][columns][64], halo included. Images of
bfloat16s may be stored so, in blocks of 32 channels; of others a step of its own brings blocks together. With
strides of 1 the pixels of some lines, halo between them, are then one run of equally distant rows, cut into
tiles of up to 32; results between lines are dropped. With other strides a tile is some of a line, or two
short lines; where the window is a pixel, the step brings those together that are read. Sums of a block of
lines wait in scratch memory for the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...records import dataclass
from ...target import Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.conversion import from_computed
from ..text.emitter import ENTRY, memory_type, scalar_type, vector_type
from ..text.vectors import Vectors
from ..tiles import gathered_pixels, matrix
from ..tiles.blocked import Image, Window, clear_planes, displaced, halo_layout, image_of, without_halo
from ..tiles.blocked_epilogue import Epilogue, Finish, operand_layouts, pack_operand, packed_operands
from ..tiles.channel_panels import Panels, by_depth, in_dot_panels, panels_of, starts
from ..tiles.lines import Lines, Order, cut_lines, order_of, ordered, read_again
from ..tiles.matrix import MatrixTile
from ..tiles.matrix_blocks import MOST_POSITIONS, Block, Cutter, Place, Plane, blocks_of, heights, is_known
from ..tiles.microkernel import plus
from ..tiles.panel_operand import Ahead
from .conv import window

MOST_LINES = 8  # that wait together where each is shorter than a register of rows

MultiplyAdd = Callable[..., tuple[str, Ahead | None]]  # `matrix.multiply_add`, or one of the same operands

# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MatrixTiling:
    """Panels of `vectors` blocks of output channels, as the result has them; at most `lines` of the output
    wait together for the epilogue; `rows`: about how many a tile has, in each of its registers."""

    vectors: int
    lines: int
    rows: tuple[int, ...]


def candidates(node: Node, target: Target) -> Iterator[Offer[MatrixTiling]]:
    """Where the processor has such registers: for images in the target's blocks and in those of a step of k,
    if a panel's channels are as many."""
    unit = unit_of(node, target)
    if unit is None or target.block != unit.columns:
        return
    halo, rank, x = window(node).halo, node.inputs[0].rank - 2, node.inputs[0].tensor
    together = unit.depth == matrix.WIDE * unit.columns
    for block, read in product((unit.depth, target.block) if together else (target.block,), repeat=2):
        operands = operand_layouts(node, block)
        if halo is None or operands is None or (read == unit.depth and x.dtype != unit.lhs):
            continue
        padded = replace(halo_layout(halo, read, rank), fill=node.op.zero if any(halo) else 0)
        tiling = tiling_of(node, unit, block)
        yield Offer(
            estimate(node, target, tiling, unit, block, read),
            tiling,
            (padded, None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )


def unit_of(node: Node, target: Target) -> Matrix | None:
    """The processor's instruction that adds up a Conv node."""
    if not is_taken(node):
        return None
    x, w = (value.dtype for value in node.inputs[:2])
    return target.matrix(w if node.op.narrow else x, w, node.op.accumulate)


def is_taken(node: Node) -> bool:
    """Whether a node is a convolution in one group, of images of a known number of channels with constant
    weights."""
    op = node.op
    if not isinstance(op, Conv) or len(op.strides) not in (1, 2) or op.transposed or op.groups != 1:
        return False
    (_, channels, *image), w = node.inputs[0].shape, node.inputs[1]
    if not dims.is_static((channels, *op.pads)) or 0 in (*image, *node.outputs[0].shape[1:]):
        return False
    return w.constant is not None and w.data.nbytes > 0


def tiling_of(node: Node[Conv], unit: Matrix, block: int) -> MatrixTiling:
    """As many lines as wait together, in tiles of equal heights; the result is stored in such blocks."""
    out = image_of(replace(node.outputs[0].tensor, layout=without_halo(block, node.inputs[0].rank - 2)))
    win, vectors = dense_window(node), min(matrix.WIDE * unit.columns // block, out.blocks)
    height, width = dims.typical(out.height), dims.typical(out.width)
    if not is_known(out.height, out.width):
        width = min(width, MOST_POSITIONS)
    if win.strides == (1, 1):
        pitch = width + (win.extent[1] - 1 if win.kernel != (1, 1) else 0)
        if pitch == width:  # most likely one run of pixels
            lines = max(1, min(height, MOST_POSITIONS // width))
            return MatrixTiling(vectors, lines, heights(min(height * width, lines * width), unit))
        lines = max(1, min(height, (MOST_POSITIONS - width) // pitch + 1))
        return MatrixTiling(vectors, lines, heights((lines - 1) * pitch + width, unit))
    if width <= unit.rows:
        return MatrixTiling(vectors, min(height, MOST_LINES), (width,) * min(height, matrix.HIGH))
    lines = max(1, min(height, MOST_POSITIONS // width))
    return MatrixTiling(vectors, lines, heights(width, unit))


def dense_window(node: Node[Conv]) -> Window:
    """The window as it moves over the packed image: of one pixel those alone are there that are read."""
    win = window(node)
    return replace(win, strides=(1, 1)) if gathered_pixels.is_sparse(win) else win


def estimate(
    node: Node[Conv], target: Target, tiling: MatrixTiling, unit: Matrix, block: int, read: int
) -> Estimate:
    """Of a result in such blocks: bringing channels together, where they are not `read` so, and all else."""
    _, channels, *taps = dims.numbers(node.inputs[1].shape)
    steps = -(-channels // unit.depth) * dims.product(taps)
    found = products_estimate(node, target, tiling, unit, block, steps) + costs.step(target)
    if read != unit.depth or gathered_pixels.is_sparse(window(node)):
        found += packing_estimate(node, target, unit) + costs.step(target)
    return found + again(node, target, tiling, block, dtypes.itemsize(unit.lhs))


def again(node: Node[Conv], target: Target, tiling: MatrixTiling, block: int, size: int) -> Estimate:
    """What waits for an image, packed in so many bytes a number, and weights that are read more than once."""
    batch, outputs = dims.typical(node.outputs[0].shape[0]), dims.number(node.inputs[1].shape[0])
    weights = dims.number(node.inputs[1].tensor.nbytes)
    panels = -(-outputs // (tiling.vectors * block))
    return read_again(target, packed_count(node) * size / max(1, batch), weights, panels)


def packed_count(node: Node[Conv]) -> int:
    """Of the image's numbers, those that are read."""
    x, out = (value.tensor for value in (node.inputs[0], node.outputs[0]))
    if not gathered_pixels.is_sparse(window(node)):
        return dims.typical(x.count)
    return dims.typical(out.count) // dims.number(out.shape[1]) * dims.number(x.shape[1])


def products_estimate(
    node: Node[Conv],
    target: Target,
    tiling: MatrixTiling,
    unit: Matrix,
    block: int,
    steps: int,
    step_time: float | None = None,
) -> Estimate:
    """The tiles of all panels, of so many steps of k, the epilogue, and moving everything once. step_time:
    of a tile, where a step is not one product of its registers."""
    w, out = node.inputs[1].tensor, node.outputs[0].tensor
    outputs, _, *taps = dims.numbers(w.shape)
    pixels = dims.typical(out.count) / outputs
    rows, vectors = sum(tiling.rows), tiling.vectors * block // unit.columns
    wide = 1.0
    if node.op.strides == (1,) * len(taps):
        width = dims.typical(out.shape[-1])
        wide = (width + taps[-1] - 1) / width
    tiles = max(1.0, pixels * wide / rows) * -(-outputs // block) / tiling.vectors
    each = steps * (step_time or costs.matrix_step(target, unit, rows, vectors))
    each += costs.matrix_ends(target, unit, rows, vectors)
    panel = steps * unit.depth * vectors * unit.columns * dtypes.itemsize(w.dtype)
    found = Estimate(compute=each * tiles) + costs.overhead(target, costs.CONV_TILE * tiles)
    found += costs.again(target, panel, panel) * tiles
    found += costs.epilogue(target, node, node.op.accumulate) + costs.traffic(target, node)
    return found + costs.stored(target, dims.number(w.nbytes))


def packing_estimate(node: Node[Conv], target: Target, unit: Matrix) -> Estimate:
    """Of the step that brings channels together."""
    dtype, count = node.inputs[0].dtype, packed_count(node)
    read, written = (count * dtypes.itemsize(kind) for kind in (dtype, unit.lhs))
    each = 2 + costs.CONVERTED * (dtype != unit.lhs)
    return costs.compute(target, each * count / target.block) + costs.move(target, read + written)


# Weights -----------------------------------------------------------------------------------------


def pack(node: Node[Conv], choice: Choice[MatrixTiling], operand: int) -> Constant | None:
    """[panel]: what the sums start from, then [input block][tap][channel / group][vectors][lanes][group]."""
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, choice.block)
    weights = node.inputs[1].data
    whole = matrix.STEP_BYTES // dtypes.itemsize(weights.dtype)
    steps = -(-weights.shape[1] // whole) * dims.product(weights.shape[2:])

    return pack_steps(node, choice, steps, partial(in_whole_steps, whole=whole))


def in_whole_steps(weights: np.ndarray, whole: int) -> np.ndarray:
    """[O, C, taps...] → [O, steps of k], of so many channels each, with zeros behind the last."""
    idle = [(0, 0), (0, -weights.shape[1] % whole), *[(0, 0)] * (weights.ndim - 2)]
    return by_depth(np.pad(weights, idle), whole)


def pack_steps(
    node: Node[Conv],
    choice: Choice[MatrixTiling],
    steps: int,
    ordered: Callable[[np.ndarray], np.ndarray],
    stored: Constant | None = None,
    group: int | None = None,
) -> Constant:
    """The panels of weights that `ordered` brings into [outputs, steps of k], each whole: 64 bytes of every
    output; in groups along k as products take them, or of as many. stored: the weights in another type."""
    weights, zero, accumulate = stored or node.inputs[1].data, node.op.zero, node.op.accumulate
    kinds = panels_of(weights.shape[0], choice.block, choice.tiling.vectors)
    size = dtypes.itemsize(accumulate)
    group = group or size // dtypes.itemsize(weights.dtype)
    nbytes = sum(p.count * p.width for p in kinds) * (steps * matrix.STEP_BYTES + size)

    def make() -> np.ndarray:
        array = weights.array
        start = starts(array, zero, accumulate)
        return in_dot_panels(ordered(array), kinds, group, start)

    return Constant("uint8", (nbytes,), make)


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Conv], choice: Choice[MatrixTiling], target: Target) -> Code:
    return Convolution(node, choice, target, offered(unit_of(node, target), node)).code()


class Convolution:
    """One convolution over an image that is packed before; by default with the channels of each step of k
    together."""

    def __init__(self, node: Node[Conv], choice: Choice[MatrixTiling], target: Target, unit: Matrix):
        self.node, self.tiling, self.target, self.cost = node, choice.tiling, target, choice.cost
        self.unit = unit
        self.window: Window = dense_window(node)
        self.out = image_of(node.outputs[0].tensor)
        self.packed = self.packed_image()
        self.epilogue = Epilogue(node, self.out.block)
        self.dtype = node.op.accumulate
        self.kinds = panels_of(self.out.channels, self.out.block, self.tiling.vectors)
        pitch = self.packed.width + 2 * self.packed.halo[1]
        self.plane = Plane(self.out.height, self.out.width, pitch, self.window.strides == (1, 1))
        self.lines = self._lines()
        self.blocks = blocks_of(unit, self.plane, self.lines, self.tiling.lines)

    # Sizes ---------------------------------------------------------------------------------------

    @property
    def gathers(self) -> bool:
        """Whether the packed image has only the pixels that are read."""
        return gathered_pixels.is_sparse(window(self.node))

    def packed_image(self) -> Image:
        """What tiles read."""
        x = image_of(self.node.inputs[0].tensor)
        if self.gathers:
            x = gathered_pixels.gathered(x, self.out.height, self.out.width)
        packed = replace(x, block=self.unit.depth, dtype=self.unit.lhs)
        return packed if packed == x else replace(packed, pitch=0)  # a copy is no part of anything

    @property
    def packs(self) -> bool:
        """Whether a step packs the image: it is not stored as tiles read it."""
        x = self.node.inputs[0].tensor
        return self.gathers or x.layout is None or image_of(x) != self.packed

    def _lines(self) -> Lines:
        """What a part does of a plane."""
        half = self.target.facts.level2_bytes // 2
        planes = sum(p.count for p in self.kinds) * self.out.batch
        chunks = -(-dims.typical(self.packed.image) // half)
        return cut_lines(self.out.height, self.tiling.lines, planes, self.cost.total, chunks)

    @property
    def order(self) -> Order:
        """That in which parts follow each other."""
        image, panels = dims.typical(self.packed.image), sum(p.count for p in self.kinds)
        weights = sum(p.count * p.width for p in self.kinds) * self.column_bytes
        return order_of(self.target, self.out.batch, image, weights, panels, self.lines.count)

    def tile(self, kind: Panels) -> MatrixTile:
        return MatrixTile(self.unit, kind.width // self.unit.columns, self.blocks.high)

    def bytes_ahead(self, kind: Panels) -> int:
        """What a tile fetches of the next panel in a step."""
        blocks = -(-dims.number(self.lines.each) // self.tiling.lines)
        return matrix.bytes_ahead(self.tile(kind), self.blocks.tiles * blocks)

    def share(self, kind: Panels) -> int:
        """The bytes of the next panel that a tile fetches."""
        steps = self.packed.blocks * self.window.taps
        return steps * self.bytes_ahead(kind)

    @property
    def column_bytes(self) -> int:
        """Of the weights that one sum is made with, and what it starts from."""
        steps = self.packed.blocks * self.window.taps
        return steps * matrix.STEP_BYTES + dtypes.itemsize(self.dtype)

    # The steps -----------------------------------------------------------------------------------

    def code(self) -> Code:
        over = tuple(r.index for r in self.epilogue.readings)
        if not self.packs:
            return Code((self.product_step(),), (), over)
        return Code((self.packing_step(), self.product_step()), (self.packed_bytes,), over)

    @property
    def packed_bytes(self) -> Dimension:
        return self.packed.batch * self.packed.image

    def packing_step(self) -> Step:
        """Brings the channels together that one step of k multiplies; a part is a row of pixels."""
        k, x, packed = KernelText(self.target), image_of(self.node.inputs[0].tensor), self.packed
        element = f"i{8 * packed.itemsize}"  # only moved, once it is narrow
        lanes, whole = vector_type(element, x.block), vector_type(element, packed.block)

        def load(pointer: str) -> str:
            if x.dtype == packed.dtype:
                return f.load(lanes, pointer, x.align)
            wide = f.load(vector_type(memory_type(x.dtype), x.block), pointer, x.align)
            return f.cast("bitcast", from_computed(Vectors(f, packed.dtype, x.block), wide), lanes)

        with k.entry() as f, self.packed_row(f) as ((n, group, row), source):
            to = self.packed_place(f, n, group, row)
            for blocks, begin, end in self._groups():
                with f.when(f.all_of(f.compare("uge", group, begin), f.compare("ult", group, end))):
                    at = displaced(f, source, ((group, packed.block // x.block * x.plane),))
                    with f.loop(0, f.size(self.packed_width)) as pixel:
                        place = f.offset(at, f.mul(pixel.index, self.steps_between[1] * x.pixel))
                        parts = [load(f.offset(place, f.size(j * x.plane))) for j in range(blocks)]
                        joined = _joined(f, parts, packed.block // x.block, lanes)
                        out = f.offset(to, f.mul(pixel.index, packed.pixel))
                        f.store(whole, joined, out, packed.align)
        cost = packing_estimate(self.node, self.target, self.unit)
        return k.step(self.packed_rows, costs.work(cost, self.packed_rows))

    @property
    def packed_rows(self) -> Dimension:
        """Of pixels, in all blocks of channels of all images."""
        packed = self.packed
        return packed.batch * packed.blocks * (packed.height + 2 * packed.halo[0])

    @property
    def packed_width(self) -> Dimension:
        return self.packed.width + 2 * self.packed.halo[1]

    @property
    def steps_between(self) -> tuple[int, int]:
        """Rows and columns between pixels of the image that are neighbours when they are packed."""
        return window(self.node).strides if self.gathers else (1, 1)

    @contextmanager
    def packed_row(self, f: KernelFunction) -> Iterator[tuple[tuple[str, str, str], str]]:
        """The parts, each a row of pixels: its image, its block of packed channels, its number, and where its
        pixels are in the first channels of the image."""
        x, packed = image_of(self.node.inputs[0].tensor), self.packed
        first = x.origin if self.gathers else 0
        with f.loop("%first", "%last") as part:
            rest, row = f.divide(part.index, f.size(packed.height + 2 * packed.halo[0]))
            n, group = f.divide(rest, packed.blocks)
            down = self.steps_between[0] * x.row
            source = displaced(f, f.offset(f.input(0), f.size(first)), ((n, x.image), (row, down)))
            yield (n, group, row), source

    def packed_place(self, f: KernelFunction, n: str, group: str, row: str) -> str:
        """Where such a row goes."""
        packed = self.packed
        return displaced(f, f.temporary(0), ((n, packed.image), (group, packed.plane), (row, packed.row)))

    def _groups(self) -> list[tuple[int, int, int]]:
        """(blocks of channels that there are, first, behind the last) for the blocks of the packed image."""
        block = image_of(self.node.inputs[0].tensor).block
        most = self.packed.block // block
        whole, rest = divmod(-(-self.packed.channels // block), most)
        return [(most, 0, whole)] * (whole > 0) + [(rest, whole, whole + 1)] * (rest > 0)

    def product_step(self) -> Step:
        k, out, panels = KernelText(self.target), self.out, sum(p.count for p in self.kinds)
        with k.entry() as f:
            cutter = self.blocks.begin(f)
            self.begin(f)
            with f.loop("%first", "%last") as part:
                count = self.lines.count
                n, panel, chunk, _ = ordered(f, part.index, self.order, panels, out.batch, count)
                lines = self.lines.at(f, chunk)
                source = f.temporary(0) if self.packs else f.input(0)
                image = f.offset(source, f.mul(n, f.size(self.packed.image)))
                for kind in self.kinds:
                    index = f.sub(panel, kind.first)
                    with f.when(f.compare("ult", index, kind.count)):
                        self.emit_panel(f, kind, image, n, index, lines, cutter)
            matrix.release(f)
        for kind in {p.vectors: p for p in self.kinds}.values():
            self.emit_functions(k, kind)
        work = costs.work(self.cost, out.batch * out.height)
        return k.step(out.batch * panels * self.lines.count, work, self.scratch_bytes)

    @property
    def scratch_bytes(self) -> int:
        """Of the sums that wait."""
        return self.blocks.positions * max(self.tile(kind).line for kind in self.kinds)

    def emit_functions(self, k: KernelText, kind: Panels) -> None:
        """What the entry calls for panels of a kind."""
        self.emit_block(k, kind)

    def emit_panel(
        self,
        f: KernelFunction,
        kind: Panels,
        image: str,
        n: str,
        index: str,
        lines: tuple[str, str],
        cutter: Cutter,
    ) -> None:
        """One panel of output channels over some lines, so many of them at a time as wait together."""
        win, out, x = self.window, self.out, self.packed
        block = f.add(kind.block, f.mul(index, kind.vectors))
        clear_planes(f, out, n, block, kind.vectors, lines)
        before = sum(p.count * p.width for p in self.kinds if p.first < kind.first) * self.column_bytes
        panel = f.offset(f.input(1), f.add(before, f.mul(index, kind.width * self.column_bytes)))
        start = x.origin - win.before[0] * x.row - win.before[1] * x.pixel
        source, weights = f.offset(image, f.size(start)), self.prepared(f, kind, panel)
        with cutter(lines) as here:
            share = self.share(kind) * self.blocks.tiles
            after = f.add(kind.width * self.column_bytes, f.mul(here.number, share))
            pixel = (here.first, x.row * win.strides[0]), (here.column, self.apart)
            words = [
                "ptr %args",
                f"ptr {displaced(f, source, pixel)}",
                f"ptr {weights}",
                f"ptr {f.offset(panel, after)}",
                f"ptr {out.address(f, f.output(), n, block, here.first, here.column)}",
                "ptr %scratch",
                f"i64 {here.lines}",
                *here.words,
                *self.others(f, panel, n, here),
                *self.epilogue.arguments(f, n, block, here.first, here.column),
            ]
            f.statement(f"call void @{ENTRY}.block{kind.vectors}({', '.join(words)})")

    def begin(self, f: KernelFunction) -> None:
        """Before all parts of a call."""

    def prepared(self, f: KernelFunction, kind: Panels, panel: str) -> str:
        """A panel as tiles read it."""
        return panel

    def others(self, f: KernelFunction, panel: str, n: str, block: Block) -> list[str]:
        """Other words for the function of a block of image n."""
        return []

    # A block of lines ----------------------------------------------------------------------------

    OTHERS: tuple[str, ...] = ()  # the parameters of `others`

    def emit_block(self, k: KernelText, kind: Panels) -> None:
        """The function for %lines lines of one panel: %a is the first tap of the first pixel, %b the panel,
        %out the pixel, %sums where sums wait."""
        parameters = [
            "ptr %args",
            "ptr noalias %a",
            "ptr noalias %b",
            "ptr noalias %ahead",
            "ptr %out",
            "ptr noalias %sums",
            "i64 %lines",
            *self.blocks.parameters,
            *self.OTHERS,
        ]
        name = f"{ENTRY}.block{kind.vectors}"
        with k.function(name, [*parameters, *self.epilogue.parameters], attributes="noinline nounwind") as f:
            self.blocks.emit_tiles(f, partial(self.emit_tile, f, kind))
            self.check(f, kind)
            self.emit_epilogue(f, kind)
            f.statement("ret void")

    def line(self, f: KernelFunction) -> str:
        """Sums that wait from one line of a block to the next."""
        return self.plane.apart(f, self.blocks.columns)

    def check(self, f: KernelFunction, kind: Panels) -> None:
        """What is to be done about sums before the epilogue reads them."""

    @property
    def apart(self) -> int:
        """Bytes from one position to the next."""
        return self.packed.pixel * self.window.strides[1]

    def emit_tile(self, f: KernelFunction, kind: Panels, places: list[Place], number: str) -> None:
        """The sums over blocks of channels and taps, of a tile of that number in its block of lines."""
        x, (height, width), (dy, dx) = self.packed, self.window.kernel, self.window.dilations
        tile, row, line = self.tile(kind), x.row * self.window.strides[0], self.line(f)
        rows = [displaced(f, "%a", ((y, row), (column, self.apart))) for y, column in places]
        waiting = [f.add(f.mul(y, line), column) for y, column in places]
        sums = [f.offset("%sums", f.mul(position, tile.line)) for position in waiting]
        matrix.start(f, tile, "%b")
        next_panel = f.offset("%ahead", f.mul(number, self.share(kind)))

        def along(
            loops: list[tuple[int, Dimension]], rows: list[str], panel: str, ahead: str
        ) -> tuple[str, str]:
            (count, step), *inner = loops
            if not inner:
                fetched = Ahead(ahead, self.bytes_ahead(kind))
                panel, after = self.multiply_add(
                    f, tile, rows, self.apart, f.size(step), panel, count, fetched
                )
                return panel, after.pointer if after is not None else ahead
            with f.loop(0, count, 1, [("ptr", p) for p in (*rows, panel, ahead)]) as loop:
                *at, panel, ahead = loop.carried
                panel, ahead = along(inner, at, panel, ahead)
                loop.carry(*(f.offset(p, f.size(step)) for p in at), panel, ahead)
            panel, ahead = loop.results[-2:]
            return panel, ahead

        loops = [(x.blocks, x.plane), (height, x.row * dy), (width, x.pixel * dx)]
        loops = [loop for loop in loops if loop[0] != 1] or loops[-1:]
        along(loops, rows, f.offset("%b", tile.line), next_panel)
        matrix.store(f, tile, sums, tile.line)

    @property
    def multiply_add(self) -> MultiplyAdd:
        """Adds the products of some steps to a tile's sums."""
        return matrix.multiply_add

    def emit_epilogue(self, f: KernelFunction, kind: Panels) -> None:
        """What becomes of the sums of all pixels."""
        lanes, waits = self.out.block, self.tile(kind).line
        size = lanes * dtypes.itemsize(self.dtype)
        done = Finish(self.epilogue, f, self.out, kind.vectors, (1, 1))
        start = self.epilogue.start(f, kind.vectors)

        def finish(line: str, column: str, count: int) -> None:
            place = f.add(f.mul(line, self.line(f)), column)
            waiting = f.offset("%sums", f.mul(place, waits))
            for j in range(kind.vectors):
                sums: list[str] = []
                for pixel in range(count):
                    at = f.offset(waiting, pixel * waits + j * size)
                    value: str = f.load(vector_type(scalar_type(self.dtype), lanes), at, self.unit.row_bytes)
                    if self.epilogue.bias is not None:
                        value = plus(f, self.dtype, lanes, value, start[j])
                    sums.append(value)
                done.finish(sums, j, line, column)

        with f.loop(0, "%lines") as line:
            done.along(0, self.blocks.columns, partial(finish, line.index))


def _joined(f: KernelFunction, parts: list[str], wanted: int, kind: str) -> str:
    """Vectors one behind the other, then zeros."""
    parts = parts + ["zeroinitializer"] * (wanted - len(parts))
    lanes = int(kind[1:].split()[0])
    element = kind.split(" x ")[1][:-1]
    while len(parts) > 1:
        whole = vector_type(element, lanes)
        order = list(range(2 * lanes))
        parts = [
            "zeroinitializer" if a == b == "zeroinitializer" else f.shuffle(a, b, order, whole)
            for a, b in zip(parts[::2], parts[1::2])
        ]
        lanes *= 2
    return parts[0]
