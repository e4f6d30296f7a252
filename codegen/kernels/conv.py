"""Direct convolution of blocked images: 1x1 as a matrix product over pixels, others tap by tap.

    tile: rows x columns pixels of the output  x  `vectors` blocks of output channels, in registers
    sums over (block of input channels, window row, window column, channel) without leaving them
The input's halo is its padding, so every tap of every pixel lies at a constant distance from the
tile's first; adjacent loops whose distances continue each other become one. Tiles of 1x1 windows go on from
one row of pixels to the next. Where the first-level cache does not hold a panel, all tiles add a slice of the
channels before the next slice. Bytes are multiplied by the processor's dot products: padding then is the zero
point, and what that adds is taken off where sums start.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from ...ir import dims, dtypes, quantised
from ...ir.dims import Dimension
from ...ir.graph import Constant, Layout, Node
from ...ir.ops import Conv
from ...ir.stored import half_weights
from ...target import Dot, Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, Offer
from ..tiles import gathered_pixels
from ..tiles.blocked import Image, Window, halo_layout, image_of, plane_axes, window_of, without_halo, wrapped
from ..tiles.blocked_epilogue import Epilogue, operand_layouts, oriented, pack_operand, packed_operands
from ..tiles.channel_panels import (
    Panels,
    PanelTiling,
    by_depth,
    in_dot_panels,
    in_panels,
    panel_tilings,
    starts,
    widest,
)
from ..tiles.conv_plan import (
    SHARED,
    ConvPlan,
    emit_plan,
    in_slices,
    kinds_of,
    slices_of,
    tile_estimate,
    tile_shape,
    wraps,
)
from ..tiles.lines import read_again
from ..tiles.microkernel import waits
from ..tiles.run_packing import packed_by_run, packing_estimate
from ..tiles.stored_form import stored_halves

SUITS = 0.95  # of the usual panels' time that wider ones take where they suit the lengths of lines better


# What is offered ---------------------------------------------------------------------------------


def is_plain(node: Node, axes: Collection[int] = (1, 2)) -> TypeGuard[Node[Conv]]:
    """Whether a Conv node adds products of one floating-point type over so many spatial axes, with known
    channels and weights of known sizes. Its epilogue may end in any type."""
    op = node.op
    if not isinstance(op, Conv) or len(op.strides) not in axes or not dims.is_static(node.inputs[1].shape):
        return False
    x, w = node.inputs[0], node.inputs[1]
    types = {x.dtype, w.dtype, op.accumulate}
    known = isinstance(x.shape[1], int) and dims.product(dims.numbers(w.shape)) > 0
    return known and len(types) == 1 and types < {"float32", "float64"}


def dot_of(node: Node[Conv], target: Target) -> Dot | None:
    """The processor's dot product that adds up a Conv node of integers, or an ungrouped one of bfloat16s."""
    op, x, w = node.op, node.inputs[0], node.inputs[1]
    if not isinstance(op, Conv) or op.accumulate != "float32":
        return quantised.dot_of(op, x, w, target)
    plain = not op.transposed and op.groups == 1 and len(op.strides) <= 2 and isinstance(x.shape[1], int)
    known = w.constant is not None and w.data.nbytes > 0
    return target.dot(x.dtype, w.dtype, op.accumulate) if plain and known else None


def is_summed(node: Node, target: Target) -> TypeGuard[Node[Conv]]:
    """Whether kernels over blocked images add up a node's products as they are, numbers or integers."""
    return is_plain(node) or (isinstance(node.op, Conv) and dot_of(node, target) is not None)


def window(node: Node[Conv]) -> Window:
    """The window of a Conv node's weights over its image."""
    op = node.op
    return window_of(dims.numbers(node.inputs[1].shape[2:]), op.strides, op.dilations, op.pads)


def dense_images(node: Node[Conv]) -> tuple[Image, Image, Window]:
    """A convolution's image and result as they are stored where both are dense, and its window; columns of
    pixels as rows."""
    values, win = (node.inputs[0].tensor, node.outputs[0].tensor), window(node)
    x, out = (
        Image(t.shape[0], dims.number(t.shape[1]), *plane_axes(t.shape[2:], 1), 1, t.dtype) for t in values
    )
    return (x.turned, out.turned, win.turned) if win.in_column(x, out) else (x, out, win)


def candidates(node: Node, target: Target) -> Iterator[Offer[PanelTiling]]:
    """The panel widths that suit the number of output channels."""
    if not is_summed(node, target) or node.op.transposed or node.op.groups != 1:
        return
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    block, halo, rank = target.block, window(node).halo, x.rank - 2
    operands = operand_layouts(node, block)
    if halo is None or operands is None:
        return
    sums, dot = node.op.accumulate, dot_of(node, target)
    inside = 1 if node.inputs[1].constant is None else max(1, dims.number(x.shape[1]))
    tilings = panel_tilings(target, dims.number(out.shape[1]), block, sums, dot, inside)
    if is_plain(node):
        stored = stored_halves(node.inputs[1].constant, target)
        tilings = [(replace(tiling, stored=stored), times) for tiling, times in tilings]
    cost, padded = estimate(node, target, tilings[0][0]), padded_layout(node, halo, block)
    if gathered_pixels.is_sparse(window(node)):
        together = [(replace(tiling, gathered=True), times) for tiling, times in tilings]
        other = estimate(node, target, together[0][0])
        cost, tilings = (other, together) if other.total < cost.total else (cost, tilings)
    anew = again(node, target, tilings[0][0])  # of all: less by wide panels, which other tiles may not suit
    for tiling, times in tilings:
        wider = tiling.vectors == tilings[0][0].vectors + 1
        here = estimate(node, target, tiling) if wider else cost
        yield Offer(
            (here if here.total < SUITS * cost.total else cost * times)
            + anew
            + packing_estimate(node, target),
            tiling,
            (padded, None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )


def again(node: Node[Conv], target: Target, tiling: PanelTiling) -> Estimate:
    """What waits for an image and weights that are read more than once."""
    x, w = dense_images(node)[0], node.inputs[1].tensor
    nbytes = dims.number(w.count) * dtypes.itemsize(tiling.stored or w.dtype)
    panels = -(-dims.number(w.shape[0]) // (tiling.vectors * target.block))
    return read_again(target, dims.typical(replace(x, block=target.block).image), nbytes, panels)


def padded_layout(node: Node[Conv], halo: tuple[int, int], block: int) -> Layout:
    """Of the image: its halo holds what stands for zero."""
    layout = halo_layout(halo, block, node.inputs[0].rank - 2)
    return replace(layout, fill=node.op.zero) if any(halo) else layout


def estimate(
    node: Node[Conv], target: Target, tiling: PanelTiling, depth: int | None = None, slices: int | None = None
) -> Estimate:
    """The tiles of all panels, the epilogue, and moving everything once. depth: the steps of a tile; None:
    those that add up groups of channels. slices: of channels; None: those that take the least time."""
    w = node.inputs[1].tensor
    outputs, *inside = dims.numbers(w.shape)
    sums = node.op.accumulate
    if depth is None:
        depth = dims.product(_steps(inside, tiling.group or 1))
    kinds, found = kinds_of(outputs, target.block, tiling), costs.step(target)
    x, out, win = dense_images(node)
    if tiling.gathered:
        blocked = replace(x, block=target.block)
        found += gathered_pixels.gathering(target, blocked, out.height, out.width, win)
        win = replace(win, strides=(1, 1))
    tiles, dot = _tiles(node, target, (out, win), kinds, depth), dot_of(node, target)
    if slices is None:
        slices = _slices(node, target, tiling, kinds, tiles)
    for pixels, count in tiles.items():
        for p in kinds:
            steps = depth * p.share(target, sums, inside[0])
            each = tile_estimate(target, steps, pixels, p.registers(target, sums), dot, slices)
            each += costs.compute(target, pixels * gathering(p.abreast))
            found += each * (count * p.count)
    found += costs.epilogue(target, node, sums) + costs.traffic(target, node)
    return found + costs.stored(target, dims.number(w.count) * dtypes.itemsize(tiling.stored or w.dtype))


def gathering(abreast: int) -> int:
    """Instructions that bring together what so many lanes sum up."""
    return 2 * (abreast.bit_length() - 1)


def _tiles(
    node: Node[Conv], target: Target, over: tuple[Image, Window], kinds: Sequence[Panels], depth: int
) -> dict[int, int]:
    """How many tiles of which number of pixels cover the result, over which the window slides."""
    out, win = over
    height, width = out.height, out.width
    stored = node.outputs[0].tensor.layout
    if win.kernel == win.strides == (1, 1) and (
        stored is None or not any(stored.halo) or _wraps(node, target, kinds, (height, width))
    ):
        height, width = 1, height * width
    rows, widths = tile_shape(target, (height, width), kinds, node.op.accumulate, depth, dot_of(node, target))
    lines = dims.typical(out.batch * height) // rows
    left, found = dims.typical(width), {}
    for columns in widths:
        last = columns == widths[-1]
        found[rows * columns] = lines * (-(-left // columns) if last else left // columns)
        left %= columns
    return found


def _wraps(
    node: Node[Conv], target: Target, kinds: Sequence[Panels], size: tuple[Dimension, Dimension]
) -> bool:
    """Whether tiles of a result with a border, if they may, go on from one of its rows to the next."""
    height, width = size
    if not (isinstance(height, int) and isinstance(width, int)):
        return False
    inside, dot = dims.number(node.inputs[0].shape[1]), dot_of(node, target)
    return wraps(target, (height, width), kinds, node.op.accumulate, inside, dot)


def _slices(
    node: Node[Conv], target: Target, tiling: PanelTiling, kinds: Sequence[Panels], tiles: Mapping[int, int]
) -> int:
    """In how many slices of channels so many tiles of so many pixels add them up: in one where few of them
    read the same weights."""
    if tiling.stored or tiling.group or sum(tiles.values()) < SHARED:
        return 1
    _, inside, *taps = dims.numbers(node.inputs[1].shape)
    blocks, vectors = -(-inside // target.block), widest(target, kinds, node.op.accumulate)
    return slices_of(target, blocks, inside * dims.product(taps), max(tiles), vectors)


def _steps(inside: Sequence[int], group: int) -> tuple[int, ...]:
    """Steps along each axis of the weights of one result, channels in groups."""
    return (-(-inside[0] // group), *inside[1:])


# Weights -----------------------------------------------------------------------------------------


def pack(node: Node[Conv], choice: Choice[PanelTiling], operand: int) -> Constant | None:
    """Weights as [panel][input block][tap][channel][vectors * block], output channels padded with
    zeros to whole blocks; the last panel is as narrow as what is left."""
    out = node.outputs[0].tensor
    if operand != 1:
        return pack_operand(node.inputs[operand], out.rank, choice.block)
    if choice.tiling.group is not None:
        return packed_groups(node, node.inputs[1].data, choice, choice.block)
    halves = half_weights(node.inputs[1].data) if choice.tiling.stored else None
    return packed_panels(halves or node.inputs[1].data, choice, choice.block)


def packed_panels(weights: Constant, choice: Choice[PanelTiling], input_block: int) -> Constant:
    """Weights in panels, as they are stored."""
    kinds = kinds_of(weights.shape[0], choice.block, choice.tiling)
    inside = weights.shape[1:]
    size = sum(p.count * p.width * dims.product(_steps(inside, p.abreast)) * p.abreast for p in kinds)

    def make() -> np.ndarray:
        found = []
        for p in kinds:
            rows = weights.array[p.block * choice.block :][: p.count * p.width]
            found.append(in_panels(by_depth(rows, input_block, p.abreast), [p]))
        return np.concatenate(found)

    return Constant(weights.dtype, (size,), make)


def packed_groups(
    node: Node[Conv], weights: Constant, choice: Choice[PanelTiling], input_block: int
) -> Constant:
    """The panels of a convolution by dot products, as bytes."""
    tiling, zero = choice.tiling, node.op.zero
    kinds = kinds_of(weights.shape[0], choice.block, tiling)
    group, stored = tiling.group or 1, tiling.stored or weights.dtype
    column = dims.product(_steps(weights.shape[1:], group)) * group * dtypes.itemsize(stored)
    size = sum(p.count * p.width for p in kinds) * (column + dtypes.itemsize(node.op.accumulate))

    def make() -> np.ndarray:
        start = starts(weights.array, zero, node.op.accumulate)
        return in_dot_panels(by_depth(weights.array, input_block, group), kinds, group, start, tiling.stored)

    return Constant("uint8", (size,), make)


# The plan of one convolution ---------------------------------------------------------------------


def plan_of(node: Node[Conv], target: Target, tiling: PanelTiling) -> ConvPlan:
    """How a Conv node goes through its images: as one row of pixels where it is pointwise and rows need not
    end."""
    x, out, win = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor), window(node)
    epilogue, kinds = Epilogue(node, out.block), kinds_of(out.channels, out.block, tiling)
    if tiling.gathered:
        x, win = gathered_pixels.gathered(x, out.height, out.width), replace(win, strides=(1, 1))
    pointwise = win.kernel == win.strides == (1, 1) and win.before == (0, 0) == x.halo
    size = out.height, out.width
    if pointwise and out.halo == (0, 0) and epilogue.follows(out.width):
        x, out = x.flat, out.flat
    elif pointwise and not epilogue.bytes_together and _wraps(node, target, kinds, size):
        x, out, epilogue = x.flat, wrapped(out), epilogue.wrapped(dims.number(out.width))
    else:
        x, out, win, epilogue = oriented(x, out, win, epilogue)
    start = x.origin - win.before[0] * x.row - win.before[1] * x.pixel
    dot = dot_of(node, target)
    depth = x.channels * win.taps // node.op.groups // (1 if dot is None else dot.group)
    sums, stored = node.op.accumulate, tiling.stored
    tiles = tile_shape(target, (out.height, out.width), kinds, sums, depth, dot)
    plan = ConvPlan(x, out, win, start, epilogue, sums, tuple(kinds), *tiles, dot, stored)
    return replace(plan, fetched=node.op.groups == 1 and not plan.once and waits(target))


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Conv], choice: Choice[PanelTiling], target: Target) -> Code:
    plan = plan_of(node, target, choice.tiling)
    tiles = _tiles(node, target, (plan.out, plan.window), plan.kinds, plan.steps)
    slices = _slices(node, target, choice.tiling, plan.kinds, tiles)
    if slices > 1:
        plan = in_slices(plan, -(-plan.summed // slices), target)
    return code_of(node, plan, choice, target)


def code_of(node: Node[Conv], plan: ConvPlan, choice: Choice[PanelTiling], target: Target) -> Code:
    """The code of a plan for a node, whose pixels are brought together before where the tiling says so."""
    code = emit_plan(plan, target, choice.cost)
    code = packed_by_run(node, code, target, plan.weight_bytes, [plan.run_panels])
    if not choice.tiling.gathered:
        return code
    x, out = image_of(node.inputs[0].tensor), image_of(node.outputs[0].tensor)
    few = gathered_pixels.gathered(x, out.height, out.width)
    return gathered_pixels.after_gathering(code, x, window(node), few, target)
