"""Depthwise convolution of blocked images: one filter a channel, a vector being a block of channels.

    weights of all taps in registers; a window slides along `rows` output rows at once, so that every
    input pixel is loaded once a strip and only the outputs whose window covers it are open
Where the taps do not fit the registers, their weights are read from the first-level cache instead.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ... import dims, dtypes
from ...ir import Constant, Node
from ...ops import Conv
from ...target import Target
from ..blocked import (
    Epilogue, Image, Window, clear_border, cover, equal_width, image_of, operand_layouts, pack_operand,
    packed_operands, place_in, plane_axes, slide, typical, without_halo,
)
from ..emitter import Function, scalar_type, vector_type
from ..kernel import ENTRY, Choice, Code, KernelText, single
from ..microkernel import fused
from .conv import FEW_PARTS, PART_NS, halo_layout, is_plain, window



def candidates(node: Node, target: Target):
    """One, for as many groups as input and as output channels."""
    op = node.op
    if not isinstance(op, Conv) or not is_plain(node) or op.transposed:
        return
    x, out = node.inputs[0].type, node.outputs[0].type
    if op.groups != x.shape[1] or op.groups != out.shape[1]:
        return
    block, win, rank = target.lanes(x.dtype), window(node), x.rank - 2
    operands = operand_layouts(node, block)
    if win.halo is None or operands is None:
        return
    from . import depthwise

    yield Choice(
        depthwise, _estimate(node, target, win), (("rows", _rows(out.shape)),),
        (halo_layout(win.halo, block, rank), None, *operands), without_halo(block, rank),
        (1, *packed_operands(node)),
    )


def _rows(shape: Sequence[dims.Dimension]) -> int:
    """Output rows of a strip: two share what they read, where no strip is left with one."""
    height = plane_axes(shape[2:], 1)[0]
    return 2 if isinstance(height, int) and height % 2 == 0 else 1


def _widths(win: Window, width: dims.Dimension) -> tuple[int, ...]:
    """Outputs along a row that one iteration computes; code grows with them and with the taps."""
    most = 8 if win.taps <= 25 else 4
    return (equal_width(width, most),) if isinstance(width, int) else (most, most // 2, 1)


def _estimate(node: Node, target: Target, win: Window) -> float:
    """The greater of the multiply-adds and of moving input and output through the outer caches."""
    x, out = node.inputs[0].type, node.outputs[0].type
    vectors = typical(dims.product(out.shape) // target.lanes(x.dtype))
    return max(1.3 * vectors * (win.taps + 1) / target.fma_per_ns,
               typical(x.nbytes + out.nbytes) / target.bytes_per_ns / 2)


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    """Weights as [block of channels][tap][block], zeros for the lanes without a channel."""
    block = choice.output.block
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].type.rank, block)
    weights = node.inputs[1]
    channels, taps = weights.shape[0], dims.product(weights.shape[2:])
    blocks = -(-channels // block)

    def make() -> np.ndarray:
        padded = np.zeros((blocks * block, taps), dtypes.numpy_dtype(weights.dtype))
        padded[:channels] = weights.constant.array.reshape(channels, taps)
        return np.ascontiguousarray(padded.reshape(blocks, block, taps).swapaxes(1, 2))

    return Constant(weights.dtype, (blocks, taps, block), make)


def emit(node: Node, choice: Choice, target: Target) -> Code:
    x, out, win = image_of(node.inputs[0].type), image_of(node.outputs[0].type), window(node)
    epilogue = Epilogue(node, out.block)
    k = KernelText(target)
    height, work = choice["rows"], _estimate(node, target, win)
    lines, count = _lines(out, height, work)
    start = x.origin - win.before[0] * x.row - win.before[1] * x.pixel
    with k.entry() as f, f.loop("%first", "%last") as part:
        plane_number, chunk = f.divide(part.index, k.size(f, count))
        n, block = f.divide(plane_number, out.blocks)
        plane = f.offset(k.input(f, 0), f.add(k.size(f, start), f.mul(plane_number, k.size(f, x.plane))))
        weights = f.offset(k.input(f, 1), f.mul(block, win.taps * out.pixel))
        first, length = f.mul(chunk, lines), k.size(f, out.height)
        final = f.compare("eq", chunk, k.size(f, count - 1))
        last = f.select(final, "i64", length, f.add(first, lines))
        clear_border(k, f, out, f.offset(k.output(f), f.mul(plane_number, k.size(f, out.plane))), first, last)

        with f.loop(first, last, height) as row:
            y = row.index
            words = [
                "ptr %args", f"ptr {f.offset(plane, f.mul(y, k.size(f, x.row * win.strides[0])))}",
                f"ptr {weights}", f"ptr {out.address(k, f, k.output(f), n, block, y)}",
                *epilogue.arguments(k, f, n, block, y, 0),
            ]
            f.statement(f"call void @{ENTRY}.strip({', '.join(words)})")
    _strip(k, x, out, win, epilogue, height)
    return single(k.step(out.batch * out.blocks * count, int(work)))


def _lines(out: Image, height: int, work: float) -> tuple[int, dims.Dimension]:
    """(rows a part, parts a plane): few parts, each worth handing out."""
    planes = out.blocks * typical(out.batch)
    wanted = max(1, min(FEW_PARTS, work / PART_NS) / planes)
    lines = max(height, int(typical(out.height) / wanted) // height * height)
    return lines, dims.maximum(1, out.height // lines)


def _strip(k: KernelText, x: Image, out: Image, win: Window, epilogue: Epilogue, height: int) -> None:
    """The function that computes `height` rows of one block of channels: %a is the first tap of the
    first pixel, %b the weights, %out the pixel."""
    parameters = ["ptr noalias %args", "ptr noalias %a", "ptr noalias %b", "ptr noalias %out",
                  *epilogue.parameters]
    name, dtype, lanes = f"{ENTRY}.strip", epilogue.dtype, out.block
    kind = vector_type(scalar_type(dtype), lanes)
    open_ = height * -(-win.extent[1] // win.strides[1])
    resident = win.taps + open_ + 2 <= k.target.vector_registers
    with k.text.function(name, parameters, attributes="noinline nounwind") as f:
        read = partial(f.load, kind, align=out.pixel)
        weights = [read(f.offset("%b", tap * out.pixel)) for tap in range(win.taps)] if resident else None
        start, constants = epilogue.start(k, f, 1)[0], epilogue.constants(k, f, 1)
        place = place_in(k, f, out, "%out")
        sources = [f.offset("%a", k.size(f, iy * x.row))
                   for iy in range((height - 1) * win.strides[0] + win.extent[0])]

        def tile(width: int, column: str) -> None:
            at = [f.offset(s, f.mul(column, win.strides[1] * x.pixel)) for s in sources]

            def combine(state: str | None, value: str, ky: int, kx: int) -> str:
                tap = ky * win.kernel[1] + kx
                weight = weights[tap] if weights else read(f.offset("%b", tap * out.pixel))
                return fused(f, dtype, lanes, value, weight, start if state is None else state)

            def done(y: int, column_: int, state: str) -> None:
                epilogue.put(k, f, state, 0, y, f.add(column, column_), place, constants)

            slide(win, height, width, lambda iy, ix: read(f.offset(at[iy], ix * x.pixel)), combine, done)
            epilogue.rework(k, f, (range(height), range(width)), 1, (0, column), place, constants)

        cover(f, 0, k.size(f, out.width), _widths(win, out.width), tile)
        f.statement("ret void")
