"""Convolutions with weights stored as halves on registers that hold matrices of bfloat16 (`thirds.py`).

The step that brings the channels of a step of k together splits the image, of float32; a panel of weights is
split into scratch memory by whoever multiplies it, unless it is one of bfloat16s. The rest is that of
`conv_matrix`. Sums that are not finite are added up again on vectors, from the image itself.

    image         [C / 32][rows][columns][part][32]
    panels        [C / 32][tap][k][vectors][16]     of float16, split as `thirds.py` says
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from functools import partial

from ...ir import dims
from ...ir.graph import Constant, Node
from ...ir.ops import Conv
from ...ir.stored import half_weights
from ...records import dataclass
from ...target import LINE, Ability, Matrix, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, KernelFunction, KernelText, Offer, Step, offered
from ..text.emitter import ENTRY, Function
from ..text.vectors import Vectors
from ..tiles import matrix, thirds
from ..tiles.blocked import Image, displaced, halo_layout, image_of, without_halo
from ..tiles.blocked_epilogue import operand_layouts, pack_operand, packed_operands
from ..tiles.channel_panels import Panels
from ..tiles.matrix_blocks import Block
from ..tiles.packing import padded
from ..tiles.panel_operand import load_widened
from ..tiles.stored_form import stored_halves
from ..tiles.thirds import Parts
from .conv import window
from .conv_matrix import (
    Convolution,
    MatrixTiling,
    MultiplyAdd,
    again,
    in_whole_steps,
    is_taken,
    pack_steps,
    packed_count,
    products_estimate,
    tiling_of,
)
from .gemm_thirds import LEAST_DEPTH, step_time

# Choosing ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tiling(MatrixTiling):
    """That of `conv_matrix`; `stored`: the type of the weights; `halves`: whether two parts of a number are
    enough (`Conv.halves`)."""

    stored: str = field(kw_only=True)
    halves: bool = field(kw_only=True)

    @property
    def parts(self) -> Parts:
        """What numbers are split into."""
        if self.stored == "bfloat16":
            return thirds.ONE_OF_TWO if self.halves else thirds.ONE
        if self.halves:
            return thirds.TWO
        return thirds.THIRDS_OF_HALVES


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """One, where the processor has such registers."""
    unit = unit_of(node, target)
    stored = stored_halves(node.inputs[1].constant, target) if unit is not None else None
    if unit is None or stored is None or target.block != unit.columns:
        return
    halo, rank = window(node).halo, node.inputs[0].rank - 2
    operands = operand_layouts(node, target.block)
    if halo is None or operands is None:
        return
    plain = tiling_of(node, unit, target.block)
    tiling = Tiling(plain.vectors, plain.lines, plain.rows, stored=stored, halves=node.op.halves)
    yield Offer(
        estimate(node, target, tiling, unit),
        tiling,
        (halo_layout(halo, target.block, rank), None, *operands),
        without_halo(target.block, rank),
        (1, *packed_operands(node)),
        arithmetic=tiling.parts.arithmetic,
    )


def unit_of(node: Node, target: Target) -> Matrix | None:
    """The processor's instruction for parts of a Conv node."""
    if not is_taken(node) or node.op.narrow:
        return None
    x, w = node.inputs[0].tensor, node.inputs[1].tensor
    if (x.dtype, w.dtype, node.op.accumulate) != ("float32",) * 3:
        return None
    if dims.number(x.shape[1]) < target.block or dims.number(dims.product(w.shape[1:])) < LEAST_DEPTH:
        return None
    found = target.matrix("bfloat16", "bfloat16", "float32")
    return found if Ability.CONVERT_BF16 in target.abilities else None


def estimate(node: Node[Conv], target: Target, tiling: Tiling, unit: Matrix) -> Estimate:
    """Splitting the image and the weights, the products of their parts, and all else."""
    outputs, channels, *taps = dims.numbers(node.inputs[1].shape)
    steps, parts = -(-channels // unit.depth) * dims.product(taps), tiling.parts
    each = step_time(target, unit, parts, sum(tiling.rows), tiling.vectors)
    found = products_estimate(node, target, tiling, unit, target.block, steps, each)
    if tiling.stored != "bfloat16":
        weights = steps * unit.depth * outputs * dims.typical(node.inputs[0].shape[0])
        found += costs.compute(target, parts.panel_split * weights / target.lanes("float32"))
    found += again(node, target, tiling, target.block, parts.bytes)
    return found + packing_estimate(node, target, tiling) + costs.step(target, 2)


def packing_estimate(node: Node[Conv], target: Target, tiling: Tiling) -> Estimate:
    """Of the step that splits the image."""
    count = packed_count(node)
    split = costs.compute(target, tiling.parts.row_split * count / target.lanes("float32"))
    return split + costs.move(target, count * (4 + tiling.parts.bytes))


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> Constant | None:
    """[panel]: zeros, which the sums start from, then [input block][tap][channel][vectors][lanes]; of
    bfloat16s two neighbours along the channels together."""
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, choice.block)
    stored, whole = offered(half_weights(node.inputs[1].data), node), matrix.STEP_BYTES // 2
    steps = -(-dims.number(stored.shape[1]) // whole) * dims.number(dims.product(stored.shape[2:]))

    group = 2 if choice.tiling.stored == "bfloat16" else 1
    return pack_steps(node, choice, steps, partial(in_whole_steps, whole=whole), stored, group)


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    return _Thirds(node, choice, target, offered(unit_of(node, target), node)).code()


class _Thirds(Convolution):
    """One convolution; tiles read parts, blocks of lines know the image and the weights besides."""

    tiling: Tiling
    OTHERS = ("ptr %x", "ptr %stored")

    @property
    def parts(self) -> Parts:
        return self.tiling.parts

    @property
    def splits(self) -> bool:
        """Whether there are parts of weights besides what is stored."""
        return self.parts.beside > 1

    def packed_image(self) -> Image:
        """All parts of a pixel's step together."""
        x, count = super().packed_image(), self.parts.count
        return replace(x, block=count * x.block, channels=count * padded(x.channels, x.block), pitch=0)

    @property
    def steps(self) -> int:
        """Of k."""
        return self.packed.blocks * self.window.taps

    # The steps -----------------------------------------------------------------------------------

    def packing_step(self) -> Step:
        """Splits the channels of a step of k of every pixel; a part is a row of pixels."""
        k, x, packed = KernelText(self.target), image_of(self.node.inputs[0].tensor), self.packed
        whole = self.unit.depth // x.block
        with k.entry() as f, self.packed_row(f) as ((n, group, row), source):
            source = displaced(f, source, ((group, whole * x.plane),))
            to = self.packed_place(f, n, group, row)
            left = f.sub(x.blocks, f.mul(group, whole))

            def pixels(present: int) -> None:
                with f.loop(0, f.size(self.packed_width)) as pixel:
                    place = f.offset(source, f.mul(pixel.index, self.steps_between[1] * x.pixel))

                    def load(lane: int) -> str:
                        if lane // x.block >= present:
                            return "zeroinitializer"
                        at = f.offset(place, f.size(lane // x.block * x.plane))
                        return f.load(f"<{x.block} x float>", at, x.align)

                    out = f.offset(to, f.mul(pixel.index, packed.pixel))
                    thirds.split_step(f, self.parts, x.block, out, load)

            for present in range(1, whole + 1):
                is_last = present == whole
                with f.when(f.compare("sge" if is_last else "eq", left, present, "i64")):
                    pixels(present)
        cost = packing_estimate(self.node, self.target, self.tiling)
        return k.step(self.packed_rows, costs.work(cost, self.packed_rows))

    @property
    def scratch_bytes(self) -> int:
        """With the parts of a panel behind."""
        widest = max(self.tile(kind).panel_step for kind in self.kinds)
        return self.parts_at + self.splits * (LINE * matrix.WIDE + self.steps * self.parts.beside * widest)

    @property
    def parts_at(self) -> int:
        """Where the parts of a panel lie, behind a line with its address."""
        return super().scratch_bytes + self.splits * LINE

    def begin(self, f: KernelFunction) -> None:
        if self.splits:
            f.store("i64", "0", f.offset("%scratch", self.parts_at - LINE), 8)

    def emit_functions(self, k: KernelText, kind: Panels) -> None:
        super().emit_functions(k, kind)
        if self.splits:
            with k.function(f"{ENTRY}.split{kind.vectors}", ["ptr %panel", "ptr %parts"]) as f:
                tile, lanes = self.tile(kind), self.unit.columns
                for j in range(kind.vectors):
                    f.store(f"<{lanes} x float>", "zeroinitializer", f.offset("%parts", j * LINE), LINE)
                panel, parts = (f.offset(x, tile.line) for x in ("%panel", "%parts"))
                thirds.split_panel(f, self.parts, tile, lanes, self.steps, panel, parts, 0, "float16")
                f.statement("ret void")

    def prepared(self, f: KernelFunction, kind: Panels, panel: str) -> str:
        if not self.splits:
            return panel
        parts, cell = (f.offset("%scratch", at) for at in (self.parts_at, self.parts_at - LINE))
        address = f.cast("ptrtoint", panel, "i64", "ptr")
        with f.when(f.compare("ne", f.load("i64", cell, 8), address, "i64")):
            f.run(f"@{ENTRY}.split{kind.vectors}", f"ptr {panel}", f"ptr {parts}")
            f.store("i64", address, cell, 8)
        return parts

    def others(self, f: KernelFunction, panel: str, n: str, block: Block) -> list[str]:
        x, win = image_of(self.node.inputs[0].tensor), window(self.node)
        start = x.origin - win.before[0] * x.row - win.before[1] * x.pixel
        rows, columns = (block.first, x.row * win.strides[0]), (block.column, x.pixel * win.strides[1])
        at = displaced(f, f.offset(f.input(0), f.size(start)), ((n, x.image), rows, columns))
        return [f"ptr {at}", f"ptr {panel}"]

    # A block of lines ----------------------------------------------------------------------------

    @property
    def multiply_add(self) -> MultiplyAdd:
        return partial(thirds.multiply_add, parts=self.parts)

    def check(self, f: KernelFunction, kind: Panels) -> None:
        """Sums that are not finite are added up on vectors: parts of infinities are no numbers."""
        v = Vectors(f, "float32", self.unit.columns)
        with f.loop(0, "%lines") as line, f.loop(0, self.blocks.columns) as column:
            place = f.add(f.mul(line.index, self.line(f)), column.index)
            sums = f.offset("%sums", f.mul(place, self.tile(kind).line))
            found = [f.load(v.type, f.offset(sums, j * LINE), LINE) for j in range(kind.vectors)]
            with f.when(thirds.is_left(v, thirds.rest(v, found))):
                self.add_on_vectors(f, kind, sums, line.index, column.index)

    def add_on_vectors(self, f: KernelFunction, kind: Panels, sums: str, line: str, column: str) -> None:
        """The sums of a pixel, from the image and the weights as they are stored."""
        x, win, depth = image_of(self.node.inputs[0].tensor), window(self.node), self.unit.depth
        v, row = Vectors(f, "float32", self.unit.columns), 2 * kind.width
        at = displaced(f, "%x", ((line, x.row * win.strides[0]), (column, x.pixel * win.strides[1])))
        totals = [(v.type, "zeroinitializer")] * kind.vectors
        with f.loop(0, x.channels, 1, totals) as channel:
            block, lane = f.divide(channel.index, x.block)
            step, inside = f.divide(channel.index, depth)
            source = displaced(f, at, ((block, x.plane), (lane, 4)))
            weights = f.offset("%stored", f.add(f.mul(step, depth * win.taps * row), 4 * kind.width))
            with f.loop(0, win.taps, 1, [(v.type, total) for total in channel.carried]) as tap:
                dy, dx = f.divide(tap.index, win.kernel[1])
                steps = (dy, x.row * win.dilations[0]), (dx, x.pixel * win.dilations[1])
                number = f.broadcast("float", f.load("float", displaced(f, source, steps), 4), v.lanes)
                found = self.row(f, v, kind.vectors, weights, f.add(f.mul(tap.index, depth), inside))
                tap.carry(*(v.fma(number, w, total) for w, total in zip(found, tap.carried)))
            channel.carry(*tap.results)
        for j, total in enumerate(channel.results):
            f.store(v.type, total, f.offset(sums, j * LINE), LINE)

    def row(self, f: Function, v: Vectors, vectors: int, panel: str, k: str) -> list[str]:
        """Row k of a panel, as float32."""
        words = v.of("uint32")
        if self.splits:
            at = f.offset(panel, f.mul(k, 2 * vectors * v.lanes))
            places = [f.offset(at, 2 * j * v.lanes) for j in range(vectors)]
            return [load_widened(f, "float16", "float32", v.lanes, place) for place in places]
        pair, upper = f.divide(k, 2)
        at = f.offset(panel, f.mul(pair, 4 * vectors * v.lanes))
        found = [f.load(words.type, f.offset(at, 4 * j * v.lanes)) for j in range(vectors)]
        is_upper = f.compare("ne", upper, 0, "i64")
        either = [(words.bit_and(x, words.constant(0xFFFF0000)), words.shift_left(x, 16)) for x in found]
        return [v.from_bits(f.select(is_upper, words.type, *bits)) for bits in either]
