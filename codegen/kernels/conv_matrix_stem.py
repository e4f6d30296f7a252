"""A first convolution, of few channels, on registers that hold matrices.

A step of its own interleaves the channels of a dense image and puts its padding around it: [rows][columns]
[C]. The channels of all taps of a window's row then lie together, one step of k: the rows of a tile overlap
in memory. What a step reads beyond its row of the window, of pixels nearby, is multiplied with weights of 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...target import Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.conversion import from_computed
from ..text.emitter import Reg, literal, memory_type
from ..text.memory import load_first, store_first
from ..text.vectors import Vectors
from ..tiles import gathered_pixels, matrix
from ..tiles.blocked import Image, displaced, without_halo
from ..tiles.blocked_epilogue import operand_layouts, pack_operand, packed_operands
from .conv import window
from .conv_matrix import Convolution, MatrixTiling, pack_steps, products_estimate, tiling_of, unit_of

MOST_CHANNELS = 4


def candidates(node: Node, target: Target) -> Iterator[Offer[MatrixTiling]]:
    """One, over an image of 1 to 4 channels whose windows' rows are at most a step of k. Single pixels that
    lie apart are left to `conv_matrix`."""
    unit = unit_of(node, target)
    if unit is None or target.block != unit.columns or len(node.op.strides) != 2:
        return
    _, channels, _, columns = dims.numbers(node.inputs[1].shape)
    if channels > MOST_CHANNELS or channels * columns > unit.depth or node.op.dilations[1] != 1:
        return
    halo, operands = window(node).halo, operand_layouts(node, target.block)
    if halo is None or operands is None or gathered_pixels.is_sparse(window(node)):
        return
    tiling = tiling_of(node, unit, target.block)
    yield Offer(
        estimate(node, target, tiling, unit),
        tiling,
        (None, None, *operands),
        without_halo(target.block, 2),
        (1, *packed_operands(node)),
    )


def estimate(node: Node[Conv], target: Target, tiling: MatrixTiling, unit: Matrix) -> Estimate:
    """Interleaving the image, and all else."""
    steps = dims.number(node.inputs[1].shape[2])
    found = products_estimate(node, target, tiling, unit, target.block, steps)
    return found + packing_estimate(node, target) + costs.step(target, 2)


def packing_estimate(node: Node[Conv], target: Target) -> Estimate:
    """Of the step that interleaves the channels of the image."""
    x = node.inputs[0].tensor
    vectors = dims.typical(x.count) / target.block
    return costs.compute(target, 2 * costs.CONVERTED * vectors) + costs.move(
        target, 2 * dims.typical(x.nbytes)
    )


def pack(node: Node[Conv], choice: Choice[MatrixTiling], operand: int) -> Constant | None:
    """[panel]: what the sums start from, then [row of the window][its taps' channels]."""
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, choice.block)

    def ordered(array: np.ndarray) -> np.ndarray:
        rows = array.transpose(0, 2, 3, 1).reshape(*array.shape[::2], -1)
        whole = matrix.STEP_BYTES // array.itemsize
        return np.pad(rows, [(0, 0), (0, 0), (0, whole - rows.shape[2])]).reshape(len(array), -1)

    return pack_steps(node, choice, node.inputs[1].data.shape[2], ordered)


def emit(node: Node[Conv], choice: Choice[MatrixTiling], target: Target) -> Code:
    return _Stem(node, choice, target, offered(unit_of(node, target), node)).code()


class _Stem(Convolution):
    """The packed image is [N][rows][columns][C], with the window's padding; a window is its rows."""

    def packed_image(self) -> Image:
        batch, channels, height, width = self.node.inputs[0].shape
        halo = self.window.halo or (0, 0)
        self.window = replace(self.window, kernel=(self.window.kernel[0], 1))
        channels = dims.number(channels)
        return Image(batch, channels, height, width, channels, self.unit.lhs, halo, self.node.op.zero)

    @property
    def packed_bytes(self) -> Dimension:
        """With a step of zeros behind, which the last pixels read."""
        return super().packed_bytes + self.unit.row_bytes

    def packing_step(self) -> Step:
        """A part is a row of pixels."""
        k, packed = KernelText(self.target), self.packed
        halo, rows = packed.halo, packed.height + 2 * packed.halo[0]
        with k.entry() as f, f.loop("%first", "%last") as part:
            n, y = f.divide(part.index, f.size(rows))
            row = f.size(packed.row)
            to = displaced(f, f.temporary(0), ((n, packed.image), (y, packed.row)))
            outside = f.sub(y, halo[0])
            is_inside = f.compare("ult", outside, f.size(packed.height))
            with f.when(f.invert(is_inside)):
                self.fill(f, to, 0, row)
            with f.when(is_inside):
                side = halo[1] * packed.pixel
                self.fill(f, to, 0, side)
                self.fill(f, to, f.sub(row, side), row)
                self.interleave(f, n, outside, f.offset(to, side))
            end = f.compare("eq", part.index, f.sub(f.size(packed.batch * rows), 1))
            with f.when(end):
                zero = f"<{self.unit.row_bytes} x i8>"
                f.store(zero, "zeroinitializer", f.offset(to, row))
        parts = packed.batch * rows
        return k.step(parts, costs.work(packing_estimate(self.node, self.target), parts))

    def fill(self, f: KernelFunction, to: str, first: str | int, last: str | int) -> None:
        """The padding's value in the bytes first..last-1 of a row."""
        value, size = literal(self.packed.fill, self.packed.dtype), self.packed.itemsize
        with f.loop(first, last, size) as loop:
            f.store(value.type, value, f.offset(to, loop.index), size)

    def interleave(self, f: KernelFunction, n: str, y: str, to: str) -> None:
        """A row's pixels, the channels of each together."""
        x, packed, lanes = self.node.inputs[0].tensor, self.packed, self.target.block
        size, channels = Image(1, 1, 1, 1, 1, x.dtype).itemsize, packed.channels
        row, plane = packed.width * size, packed.height * packed.width * size
        source = displaced(f, f.input(0), ((n, channels * plane), (y, row)))

        def pixels(first: str | int, count: str | int | None) -> None:
            found = []
            for channel in range(channels):
                at = displaced(f, source, ((first, size), (channel, plane)))
                found.append(self.moved(f, load_first(f, x.dtype, lanes, at, count)))
            place = f.offset(to, f.mul(first, packed.pixel))
            kept = None if count is None else f.mul(count, channels)
            store_first(f, f"int{8 * packed.itemsize}", lanes * channels, _together(f, found), place, kept)

        width = f.size(packed.width)
        whole = f.round_down(width, lanes)
        with f.loop(0, whole, lanes) as loop:
            pixels(loop.index, None)
        if whole != width:
            pixels(whole, f.sub(width, whole))

    def moved(self, f: KernelFunction, value: str) -> Reg:
        """A vector of the image's elements as the packed ones' bits."""
        x, packed, lanes = self.node.inputs[0].tensor, self.packed, self.target.block
        kind = f"<{lanes} x i{8 * packed.itemsize}>"
        if x.dtype != packed.dtype:
            value = from_computed(Vectors(f, packed.dtype, lanes), value)
        return f.cast("bitcast", value, kind, f"<{lanes} x {memory_type(packed.dtype)}>")


def _together(f: KernelFunction, vectors: list[Reg]) -> str:
    """Lane 0 of each, lane 1 of each and so on, of one to four vectors."""
    if len(vectors) == 1:
        return vectors[0]
    lanes = f.target.block
    picks = [k * lanes + lane for lane in range(lanes) for k in range(len(vectors))]
    low, high = vectors[0], vectors[1]
    if len(vectors) > 2:
        low, high = (f.shuffle(a, b, range(2 * lanes)) for a, b in ((low, high), (vectors[2], vectors[-1])))
    return f.shuffle(low, high, picks)
