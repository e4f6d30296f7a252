"""Convolution of windows of r x r, 2 to 7, by Winograd's F(m x m, r x r): an m x m piece of the output from
t x t inputs, t = m + r - 1, with t*t products a channel instead of r*r m*m ("Fast Algorithms for
Convolutional Neural Networks", Lavin and Gray, 2015). t is 4, 6 or 8 along both axes, whatever r is along
either; along an axis on which the window is 1 long nothing is transformed.

A window that moves s pixels at a time is the sum of s*s windows of ceil(r / s), each over a phase of the
image: every s-th row and column from another one on. One that is long along one axis and 1 along the other is
the sum of several, one behind the other, each over the image from another row or column on. Where taps of a
single row lie d apart, it becomes rows of d pixels, along whose columns they are neighbours.
Other dilated windows make an image of its own of every d-th row and column of the result.

    a group of pieces:   V[i] = B' x B        t*t matrices [tile][block of channels][piece][channel]
    for each panel:      U[i] = G w G'        t*t matrices [channels][vectors * lanes], a chunk at a time
                         M[i] += V[i] U[i]    t*t products in register tiles
                         out  = A' M A        pieces, then their epilogue
Weights are stored as they are, a window a channel, and transformed while they are in the cache: a stored
transform would be up to seven times as much to load. Only those of bytes are stored transformed, as the pairs
of 16 bits that are multiplied (`tiles/winograd_arithmetic.py`). bfloat16s become float32 where they are read:
a fourth of the products at half the rate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, prod

import numpy as np

from ...ir import dims, dtypes
from ...ir.arithmetic import multiply_adds_of
from ...ir.graph import Constant, Node, Value
from ...ir.kernel_limits import TRANSFORMED_CHANNELS
from ...ir.ops import Conv
from ...ir.quantised import BYTES
from ...ir.stored import half_weights
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import (
    Choice,
    Code,
    KernelFunction,
    KernelText,
    Multiplied,
    Offer,
    either,
    lasting,
    nearest,
    offered,
    single,
)
from ..text.emitter import ENTRY, Function, scalar_type, vector_type
from ..tiles.blocked import clear_planes, plane_axes, reckoned, without_halo
from ..tiles.blocked_epilogue import operand_layouts, pack_operand, packed_operands
from ..tiles.channel_panels import Panels, by_depth, in_panels, panel_tiling, panels_of
from ..tiles.grouped import channel_ranges
from ..tiles.microkernel import height_counts, most_rows, step_time
from ..tiles.run_packing import packed_by_run, packing_estimate
from ..tiles.stored_form import stored_halves
from ..tiles.winograd_arithmetic import Arithmetic, of_bytes, of_numbers
from ..tiles.winograd_functions import emit_join, emit_multiply, emit_spread, emit_weights, weights_name
from ..tiles.winograd_plan import (
    Bands,
    CutWindow,
    Tiling,
    WinogradPlan,
    apart_of,
    lengths_of,
    phases_of,
    piece_of,
    sides_of,
)
from .conv import is_plain, is_summed, padded_layout, window
from .conv_grouped import spread_groups

POINTS = (4, 6, 8)  # the values of t
PIECES = range(2, 7)  # those of m: larger ones round more
LONGEST = 5  # window along one axis that is not also cut into several
SEVERAL = 3  # images in a group that make up for not knowing how many there are
FEW_GROUPS = 16  # that threads share, at least
SIDES = (28, 20, 14, 10, 7, 4)  # of results that may be few pixels


# What is offered ---------------------------------------------------------------------------------


def candidates(node: Node, target: Target) -> Iterator[Offer[Tiling]]:
    """For each size of a piece the fastest groupings."""
    if not is_summed(node, target) or node.op.transposed or node.op.exact:
        return
    x, out, win = node.inputs[0].tensor, node.outputs[0].tensor, _window(node)
    halo, block, rank = window(node).halo, target.block, x.rank - 2
    if win.strides != (1, 1) and not _has_phases(node):
        return
    grouped, (channels, outputs) = node.op.groups > 1, dims.numbers((x.shape[1], out.shape[1]))
    if halo is None or min(channels, outputs) // node.op.groups < TRANSFORMED_CHANNELS:
        return
    operands = operand_layouts(node, block)
    if operands is None:
        return
    stored = None if grouped else _stored(node, target)
    found: list[tuple[Estimate, Tiling]] = []
    cuts: dict[tuple[int, int], tuple[CutWindow, Arithmetic]] = {}

    def timed(tiling: Tiling) -> Estimate:
        return estimate(node, target, cuts[tiling.split, tiling.points][1], tiling)

    for cut, t in _cuts(node):
        arithmetic = arithmetic_of(node, target, cut, t)
        if arithmetic is None or not _is_exact(node, arithmetic):
            continue
        cuts[cut.split, t], dot, sums = (cut, arithmetic), arithmetic.dot, arithmetic.sums
        widths = {panel_tiling(target, outputs, block, sums, dot).vectors}
        if grouped:  # panels of several groups hold zeros, the more the more groups meet in them
            widths = set(range(1, min(-(-outputs // block), 4) + 1))
        group = None if dot is None else dot.group
        options = [
            Tiling(t, vectors, rows, pieces, kept, stored, group, cut.split, across)
            for vectors in widths
            for rows in (most_rows(target, vectors * target.registers(sums, block), dot),)
            for pieces, kept, across in _groupings(node, target, arithmetic, cut, t, vectors, rows)
        ]
        found += nearest((timed(option), option) for option in dict.fromkeys(options))
    for cost, tiling in lasting(out.shape[0], found, timed):
        wide = wide_enough(node, halo, cuts[tiling.split, tiling.points][0], tiling.points)
        tiling = _with_few(node, target, tiling)
        yield Offer(
            cost + packing_estimate(node, target),
            tiling,
            (padded_layout(node, wide, block), None, *operands),
            without_halo(block, rank),
            (1, *packed_operands(node)),
        )


def _with_few(node: Node[Conv], target: Target, tiling: Tiling) -> Tiling:
    """The tiling and, where the run may bring less than the typical result, the smallest pieces for that:
    what large ones make of the weights takes as long for a pixel as for all of a piece."""
    known = all(isinstance(size, int) for size in node.outputs[0].shape[2:])
    win = _window(node, tiling.split)
    t, *larger = _points_of(win)
    if known or tiling.points not in larger or tiling.group is not None or node.op.groups > 1:
        return tiling
    small, large = (offered(arithmetic_of(node, target, win, n), node) for n in (t, tiling.points))
    few, one = replace(tiling, points=t, kept=False), node.outputs[0].shape[0] == 1
    for side in SIDES:
        here = _of_size(node, side)
        cuts = _groupings(here, target, small, win, t, tiling.vectors, tiling.rows)
        options = [replace(few, pieces=pieces, across=across) for pieces, kept, across in cuts if not kept]
        options = [option for option in options if option.across != one] or options  # a group of all images
        best = min(options, key=lambda option: estimate(here, target, small, option).total)
        if estimate(here, target, small, best).total < estimate(here, target, large, tiling).total:
            return replace(tiling, few=best, most=side**2)
    return tiling


def _of_size(node: Node[Conv], side: int) -> Node[Conv]:
    """The convolution of an image whose result has so many rows and columns, or as many pixels in a row."""
    x, out, rank = node.inputs[0], node.outputs[0], len(node.op.strides)
    sizes = [side] * 2 if rank == 2 else [side**2]
    steps = [size * step for size, step in zip(sizes, node.op.strides, strict=True)]
    small = Value(replace(x.tensor, shape=(*x.shape[:2], *steps)))
    results = Value(replace(out.tensor, shape=(*out.shape[:2], *sizes)))
    return replace(node, inputs=(small, *node.inputs[1:]), outputs=(results,))


def _has_phases(node: Node[Conv]) -> bool:
    """Whether a strided window may be split into its phases, or a long one cut: packing does it."""
    constant, together = node.inputs[1].constant is not None, _window(node).dilations == (1, 1)
    return constant and together and node.op.groups == 1 and dtypes.is_float(node.op.accumulate)


def folded(node: Node[Conv]) -> int:
    """How far apart the taps of a window over a single row lie, of which rows of so many pixels are made: 1
    where that is not done."""
    win = window(node)
    rows = {plane_axes(value.shape[2:], 1)[0] for value in (node.inputs[0], node.outputs[0])}
    single = rows == {win.kernel[0]} == {1} and win.strides == (1, 1)
    return win.dilations[1] if single and is_plain(node) else 1


def _window(node: Node[Conv], split: int = 1) -> CutWindow:
    """The window over the image as it is folded."""
    win = window(node)
    kernel, dilations = win.kernel, win.dilations
    if folded(node) > 1:
        kernel, dilations = kernel[::-1], (1, 1)
    return CutWindow(kernel, win.strides, dilations, win.before, win.after, split)


def _cuts(node: Node[Conv]) -> list[tuple[CutWindow, int]]:
    """The window as a whole and, where it is long, as it may be cut, each with the values of t for it."""
    win, splits = _window(node), {1}
    shortest, longest = sorted(win.kernel)
    if shortest == 1 and longest > LONGEST and win.strides == (1, 1) and _has_phases(node):
        splits |= {-(-longest // side) for side in range(3, LONGEST + 1)}
    cuts = [replace(win, split=split) for split in sorted(splits)]
    return [(cut, t) for cut in cuts for t in _points_of(cut)]


def arithmetic_of(node: Node[Conv], target: Target, win: CutWindow, t: int) -> Arithmetic | None:
    """In what pieces of t points are computed; None where they cannot be."""
    if dtypes.is_float(node.op.accumulate):
        return of_numbers(node.op.accumulate, piece_of(win, t), sides_of(win))
    found = _of_bytes(node, t)
    dot = None if found is None else target.integer_dot(found.factors, found.factors, found.sums)
    return None if found is None or dot is None else replace(found, dot=dot)


def _stored(node: Node[Conv], target: Target) -> str | None:
    """The type of weights, where it is not that in which they are transformed."""
    if is_plain(node):
        return stored_halves(node.inputs[1].constant, target)
    return node.inputs[1].dtype if dtypes.is_float(node.op.accumulate) else None


def _of_bytes(node: Node[Conv], t: int) -> Arithmetic | None:
    """The same but for what the target multiplies with."""
    x, w, win = node.inputs[0], node.inputs[1], _window(node)
    if x.dtype not in BYTES or w.dtype != "int8" or node.op.accumulate != "int32":
        return None
    return of_bytes(x.dtype, node.op.zero, piece_of(win, t), win.kernel)


def _is_exact(node: Node[Conv], arithmetic: Arithmetic) -> bool:
    """Whether sums of integers are those of the direct ones, whatever the data are."""
    return arithmetic.dot is None or arithmetic.is_exact(node.inputs[1].data, node.inputs[0].dtype)


def _points_of(window: CutWindow) -> tuple[int, ...]:
    """The values of t for a window: those of pieces of a size that is worth it."""
    sides = [side for side in sides_of(window) if side > 1]
    return tuple(t for t in POINTS if sides and all(t - side + 1 in PIECES for side in sides))


def wide_enough(node: Node[Conv], halo: tuple[int, int], win: CutWindow, t: int) -> tuple[int, int]:
    """A halo so wide that pieces of an output which is smaller than they are, and phases of which a window
    has fewer taps, read nothing behind it."""
    out, fold = node.outputs[0].tensor, folded(node)
    height, width = (max(1, dims.bounds(size)[0] or 0) for size in plane_axes(out.shape[2:], 1))
    sizes = lengths_of(win, (height, width)) if fold == 1 else (width // fold, fold)
    axes = zip(
        *(piece_of(win, t), sizes, win.strides, apart_of(win), sides_of(win), phases_of(win), win.kernel),
        strict=True,
    )
    rows, columns = (
        step * apart * max(0, m - size)
        + (side * phases if win.split > 1 else step * (side - 1) + phases)
        + (apart - 1 - taps)
        for m, size, step, apart, side, phases, taps in axes
    )
    return (halo[0] + rows, halo[1] + columns) if fold == 1 else (halo[0], halo[1] + fold * rows)


def _terms(node: Node[Conv], win: CutWindow, block: int) -> int:
    """The channels that are transformed: those of all phases, in whole blocks where there are several."""
    channels, phases = dims.number(node.inputs[0].shape[1]), prod(phases_of(win))
    return channels if phases == 1 else phases * -(-channels // block) * block


def _spans(
    node: Node[Conv], win: CutWindow, block: int, vectors: int, group: int | None
) -> list[tuple[int, int]]:
    """For each panel the input channels that it sums over, whole blocks where there are groups, else as many
    as one dot product adds up."""
    channels, outputs = _terms(node, win, block), dims.number(node.outputs[0].shape[1])
    together = block if node.op.groups > 1 else group or 1
    return channel_ranges(channels, outputs, node.op.groups, block, vectors, together)


def _groupings(
    node: Node[Conv], target: Target, arithmetic: Arithmetic, win: CutWindow, t: int, vectors: int, rows: int
) -> Iterator[tuple[int, bool, bool]]:
    """Numbers of pieces that a group may have, whether weights are kept beside it, and whether it goes from
    one image to the next. Where weights are not kept, the larger groups are, the more seldom they are
    transformed, or read; V may be up to four times as large as the second-level cache, since it is read in
    order."""
    facts, block, size = target.facts, target.block, dtypes.itemsize(arithmetic.factors)
    channels = -(-_terms(node, win, block) // block) * block
    depths = [high - low for low, high in _spans(node, win, block, vectors, arithmetic.group)]
    matrices, width = prod(_points(win, t)) * size, vectors * block
    pieces, packed, images = _pieces(node, win, t), arithmetic.dot is not None, _images(node)
    open_ = not isinstance(node.outputs[0].shape[0], int)
    if node.op.groups > 1 and not packed and matrices * max(depths) * width > facts.level2_bytes // 2:
        return  # U of a panel is not cut into chunks there
    for nbytes in (facts.level2_bytes // 3, *(facts.level2_bytes << k for k in range(3))):
        nbytes //= 2 if packed else 1  # M is beside V
        most = max(rows, min(nbytes, facts.level3_bytes // 3) // (matrices * channels))
        yield -(-pieces // -(-pieces // most)), False, False  # groups of equal size
        if pieces < most and images > 1:
            yield -(-images * pieces // -(-images * pieces // most)), False, True
        elif SEVERAL * pieces <= most and open_:
            yield most, False, True
    if packed:
        return
    kept = matrices * max(depths) * width * len(depths)
    room = (facts.level2_bytes - kept) // (matrices * (channels + width))  # pieces whose V and M fit beside U
    if room >= rows:
        most = max(rows, min(room, facts.level2_bytes // 6 // (matrices * channels)) // rows * rows)
        most = max(rows, min(most, images * pieces // FEW_GROUPS))
        yield min(most, pieces), True, False
        if pieces < most and images > 1:
            yield most, True, True


def _points(win: CutWindow, t: int) -> tuple[int, int]:
    """Inputs of a piece along either axis: t, or one."""
    rows, columns = (t if side > 1 else 1 for side in sides_of(win))
    return rows, columns


def _images(node: Node[Conv]) -> int:
    return dims.typical(node.outputs[0].shape[0])


def _pieces(node: Node[Conv], win: CutWindow, t: int) -> int:
    """Of one image."""
    out, fold = node.outputs[0].tensor, folded(node)
    height, width = plane_axes(out.shape[2:], 1)
    if fold > 1:
        height, width = dims.ceil_divide(width, fold), fold
    found = 1.0
    for size, m, apart, extent in zip((height, width), piece_of(win, t), apart_of(win), win.extent):
        near = dims.typical(size) if apart == 1 else reckoned(size, extent)
        found *= -(near // -apart // m) * apart * (dims.typical(size) / near)
    return ceil(found)


def products_share(node: Node[Conv], tiling: Tiling) -> float:
    """Products over those of the direct sum."""
    win = _window(node, tiling.split)
    direct = prod((*win.kernel, *piece_of(win, tiling.points)))
    return prod(_points(win, tiling.points)) * prod(phases_of(win)) / direct


def transforms_share(node: Node[Conv], target: Target, tiling: Tiling) -> float:
    """Instructions of the transforms, loads and stores among them, over multiply-adds of the direct sum; of
    weights each is transformed once, those of bytes are stored so."""
    win, block = _window(node, tiling.split), target.block
    data, weights, results = _transforms(win, target, tiling.points)
    blocks, outputs = (
        -(-_terms(node, win, block) // block),
        -(-dims.number(node.outputs[0].shape[1]) // block),
    )
    pieces = _images(node) * _pieces(node, win, tiling.points)
    taken = pieces * (data * blocks + results * outputs)
    if tiling.group is None:
        inside = dims.number(node.inputs[1].shape[1]) * prod(phases_of(win))
        taken += weights * inside * outputs
    parts = target.registers(node.op.accumulate, block)
    return parts * taken / dims.typical(multiply_adds_of(node))


def factors(node: Node[Conv]) -> tuple[str, str]:
    """The types of what is multiplied."""
    return ("int16" if node.inputs[0].dtype in BYTES else node.op.accumulate,) * 2


def multiplied(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Multiplied:
    tiling, types = choice.tiling, (*factors(node), node.op.accumulate)
    return Multiplied(products_share(node, tiling), transforms_share(node, target, tiling), types)


def estimate(node: Node[Conv], target: Target, arithmetic: Arithmetic, tiling: Tiling) -> Estimate:
    """Products in tiles, transforms by their instructions, the weights' for every group of pieces unless they
    are kept or stored, and moving everything once, weights for every group."""
    w, dot, win = node.inputs[1].tensor, arithmetic.dot, _window(node, tiling.split)
    vectors, block = tiling.vectors, target.block
    t, images = prod(_points(win, tiling.points)), _images(node)
    pieces = _pieces(node, win, tiling.points)
    if tiling.across:
        pieces, images = pieces * images, 1
    depths = [high - low for low, high in _spans(node, win, block, vectors, tiling.group)]
    parts = target.registers(arithmetic.sums, block)  # of a vector
    size, of_sums = (dtypes.itemsize(dtype) for dtype in (arithmetic.factors, arithmetic.sums))
    rows, panels = most_rows(target, vectors * parts, dot), len(depths)
    channels = sum(depths) / panels  # of a panel
    blocks, groups = -(-_terms(node, win, block) // block), -(-pieces // tiling.pieces)
    panel, each = channels * vectors * block * size, Estimate()
    for height, count in height_counts(-(-pieces // groups), rows).items():
        steps = channels / arithmetic.group * step_time(target, height, vectors * parts, 1, dot)
        each += (Estimate(compute=steps) + costs.again(target, panel, panel)) * (groups * count * panels * t)
    matrices, width = t * size, vectors * block  # bytes of a channel of a piece in all matrices
    u: float = panels * max(depths) * matrices * width
    if not tiling.kept:
        u = min(channels * matrices * width, target.facts.level2_bytes // 3)
    among = min(tiling.pieces, pieces) * t * (size * blocks * block + of_sums * width) + u  # V, M and U
    each += costs.again(target, panels * pieces * matrices * channels, among)
    each += costs.scattered(target, pieces * matrices * blocks * block, among)
    data, weights, results = _transforms(win, target, tiling.points)
    transformed = parts * pieces * (data * blocks + results * panels * vectors)
    transformed_weights, stored = sum(depths) * matrices * width, dims.number(w.nbytes)
    times = 1 if tiling.kept else groups * images
    if dot is None:
        each += costs.paced(target, costs.WINOGRAD * transformed)
        made = costs.paced(target, costs.WINOGRAD * weights * parts * channels * panels * vectors)
        made += costs.again(target, transformed_weights, u)  # U is written
        found = costs.stored(target, stored) + (costs.once(made) if tiling.kept else made * times)
    else:
        each += costs.loads(target, costs.WINOGRAD_BYTES * transformed)
        found = costs.stored(target, transformed_weights, transformed_weights / stored)
        stored = transformed_weights
    found += costs.again(target, stored, stored) * (times - 1)
    found += each * images + costs.step(target)
    return found + costs.epilogue(target, node, arithmetic.sums) + costs.traffic(target, node)


def _transforms(win: CutWindow, target: Target, points: int) -> tuple[float, float, float]:
    """Instructions that transform a vector of a piece's data, of a window, of a piece's results."""
    (height, width), sides = _points(win, points), sides_of(win)
    t, piece_height = height * width, piece_of(win, points)[0]
    spilled = [2 * n if n > target.vector_registers else 0 for n in (t, piece_height * width)]
    down, across = (1 if side > 1 else 0 for side in sides)  # which axes are transformed
    data = width * down * (5 * height // 2 - 2) + height * across * (5 * width // 2 - 2)
    weights = 2 * (sides[1] * height * down + t * across)
    results = 2 * (t * down + piece_height * width * across)
    return 2 * t + data + spilled[0], t + prod(sides) + weights, 2 * t + results + spilled[1]


# Weights -----------------------------------------------------------------------------------------


def pack(node: Node[Conv], choice: Choice[Tiling], operand: int) -> Constant | None:
    """Weights as [panel][channel][tap][vectors * block], or transformed as
    [panel][matrix][channel / group][vectors * block][group]."""
    if operand != 1:
        return pack_operand(node.inputs[operand], node.outputs[0].rank, choice.block)
    halves = half_weights(node.inputs[1].data) if choice.tiling.stored else None
    weights = halves or node.inputs[1].data
    kinds = panels_of(weights.shape[0], choice.block, choice.tiling.vectors)
    if node.op.groups > 1 or choice.tiling.group is not None:
        return _packed_spans(node, choice, kinds)
    win = _window(node, choice.tiling.split)
    terms = _terms(node, win, choice.block)
    size = sum(p.count * p.width for p in kinds) * terms * prod(sides_of(win))

    def make() -> np.ndarray:
        array = weights.array if prod(phases_of(win)) == 1 else _in_phases(weights.array, win, terms)
        return in_panels(by_depth(array, 1), kinds)

    return Constant(weights.dtype, (size,), make)


def _in_phases(weights: np.ndarray, window: CutWindow, terms: int) -> np.ndarray:
    """[O, C, taps...] → [O, (phase row, phase column, C and the rest of its last block), rows, columns], with
    zeros for the taps that a phase lacks."""
    (down, across), sides = phases_of(window), sides_of(window)
    outputs, channels = weights.shape[:2]
    found = np.zeros((outputs, down, across, terms // (down * across), *sides), weights.dtype)
    taps = weights.reshape(outputs, channels, *window.kernel)
    for y, x in product(range(down), range(across)):
        if window.split > 1:
            row, column = y * sides[0], x * sides[1]
            phase = taps[:, :, row : row + sides[0], column : column + sides[1]]
        else:
            phase = taps[:, :, y :: window.strides[0], x :: window.strides[1]]
        found[:, y, x, :channels, : phase.shape[2], : phase.shape[3]] = phase
    return found.reshape(outputs, terms, *sides)


def _packed_spans(node: Node[Conv], choice: Choice[Tiling], kinds: Sequence[Panels]) -> Constant:
    """Panels, each of the channels that it sums over; zeros join groups."""
    weights, tiling, win = node.inputs[1].data, choice.tiling, _window(node)
    spans = _spans(node, win, choice.block, tiling.vectors, tiling.group)
    widths = [p.width for p in kinds for _ in range(p.count)]
    arithmetic = None if tiling.group is None else _of_bytes(node, tiling.points)
    each = win.taps if arithmetic is None else prod(_points(win, tiling.points))
    size = sum(each * (high - low) * width for (low, high), width in zip(spans, widths))

    def make() -> np.ndarray:
        array, first, panels = weights.array, 0, []
        for (low, high), width in zip(spans, widths):
            panel = spread_groups(array, node.op.groups, first, low, high, width)
            if arithmetic is not None:
                panel = arithmetic.in_groups(panel, tiling.group or 1)
            panels.append(panel.reshape(-1))
            first += width
        return np.concatenate(panels)

    return Constant(weights.dtype if arithmetic is None else arithmetic.factors, (size,), make)


# Code --------------------------------------------------------------------------------------------


def emit(node: Node[Conv], choice: Choice[Tiling], target: Target) -> Code:
    win, tiling = _window(node, choice.tiling.split), choice.tiling
    spans = _spans(node, win, choice.block, tiling.vectors, tiling.group)
    arithmetic = offered(arithmetic_of(node, target, win, tiling.points), node)
    plan = WinogradPlan(node, choice, target, win, arithmetic, spans, folded(node))
    code = packed_by_run(node, emit_plan(plan), target, plan.weight_bytes, [plan.run_panels])
    if tiling.few is None or tiling.most is None:
        return code
    small = offered(arithmetic_of(node, target, win, tiling.few.points), node)
    few = replace(choice, cost=estimate(node, target, small, tiling.few), tiling=tiling.few)
    pixels = dims.product(node.outputs[0].shape[2:])
    return either(dims.compare("lt", tiling.most, pixels), code, emit(node, few, target))


def emit_plan(plan: WinogradPlan) -> Code:
    """The step that runs a plan."""
    k = KernelText(plan.target)
    u = plan.matrices * plan.v_step
    m = u + plan.u_bytes * (sum(kind.count for kind in plan.kinds) if plan.kept else 1)
    scratch = m + plan.matrices * plan.m_step
    with k.entry() as f:
        places = f.offset("%scratch", u), f.offset("%scratch", m)
        emit_kept(f, plan, places[0])
        begin = f.divide("%first", plan.bands)[0]
        with f.loop(begin, f.divide(f.add("%last", plan.bands - 1), plan.bands)[0]) as loop:
            rest, run = f.divide(loop.index, plan.parted)
            emit_share(f, plan, share_of(f, plan, rest, run, loop.index, begin, places), run)
    emit_spread(k, plan)
    for kind in plan.kinds:
        for rows in plan.rows_together if not plan.packed else ():
            emit_weights(k, plan, kind, rows)
        for height in plan.heights:
            emit_multiply(k, plan, plan.tile(height, kind.vectors))
        emit_join(k, plan, kind)
    parts = plan.images * plan.groups.count * plan.parted * plan.bands
    work = costs.work(plan.cost, plan.images * plan.pieces)
    unit = 0 if plan.kept else plan.parted * plan.bands  # V is for a group, U that is kept for a call
    return single(k.step(parts, work, scratch, unit), over=plan.epilogue.over)


@dataclass(frozen=True)
class Share:
    """What of a group one call computes: its image, if it is of one, its first piece and how many it has,
    the bands of its tiles that are among the call's parts, and the `new` ones, whose data is not in V yet; U
    and M."""

    n: str
    group: str
    first: str
    count: str
    bands: Bands
    new: Bands
    u: str
    m: str


def share_of(
    f: KernelFunction,
    plan: WinogradPlan,
    rest: str,
    run: str,
    index: str,
    begin: str,
    places: tuple[str, str],
) -> Share:
    """Of the index-th run of panels, where the call begins with the begin-th."""
    n, group = f.divide(rest, f.size(plan.groups.count))
    first, last = plan.groups.at(f, group)
    fresh = f.binary("or", f.compare("eq", run, 0), f.compare("eq", index, begin), "i1")
    bands, start, left = bands_of(f, plan, index), "0", "0"
    if plan.bands > 1:  # what the run before left out, which may have begun with a later band
        start = f.select(fresh, "i64", bands[0], "0")
        second = f.compare("eq", index, f.add(begin, 1))
        left = f.minimum(f.select(second, "i64", bands_of(f, plan, begin)[0], "0"), bands[1])
    new = start, f.select(fresh, "i64", bands[1], left)
    return Share(n, group, first, f.sub(last, first), bands, new, *places)


def bands_of(f: Function, plan: WinogradPlan, run: str) -> Bands:
    """The bands of a run, counted from the first of all, that are among the parts %first..%last."""
    if plan.bands == 1:
        return "0", "1"
    start = f.mul(run, plan.bands)
    return f.maximum(0, f.sub("%first", start)), f.minimum(plan.bands, f.sub("%last", start))


def emit_share(f: KernelFunction, plan: WinogradPlan, share: Share, run: str) -> None:
    """A run of panels of some bands of a group."""

    def spread(height: int, start: str) -> None:
        tile = f.offset("%scratch", f.mul(start, plan.piece))
        # Neighbouring pieces one after the other, which read and write neighbouring lines.
        with f.loop(0, plan.blocks) as blocks, f.loop(0, height) as rows:
            n, piece = plan.image_and_piece(f, share.n, f.add(f.add(share.first, start), rows.index))
            y, x, _, _ = plan.place(f, piece)
            image = f.offset(f.input(0), f.mul(n, f.size(plan.x.image)))
            block, phase = plan.phase(f, blocks.index)
            plane = f.offset(image, f.mul(block, f.size(plan.x.plane)))
            source = plan.tap(f, plane, y, x, phase)
            line = f.add(f.mul(blocks.index, height), rows.index)
            target = f.offset(tile, f.mul(line, plan.pixel))
            for part in plan.parts:
                places = f"ptr {f.offset(source, part)}, ptr {f.offset(target, part)}"
                f.statement(f"call void @{ENTRY}.spread(ptr %args, {places})")

    plan.for_tiles(f, share.count, share.new, spread)
    for kind in plan.kinds:
        begin, end = plan.run_of(f, kind, run)
        with f.loop(begin, end) as panels:
            block = kind.first_block(f, panels.index)
            if plan.out.stored.halo != (0, 0):
                with plan.cleared(f, share.n, share.group, share.bands) as (n, rows):
                    clear_planes(f, plan.out.stored, n, block, kind.vectors, rows)
            emit_products(f, plan, kind, panels.index, share)
            emit_results(f, plan, kind, block, share)


def emit_kept(f: KernelFunction, plan: WinogradPlan, u: str) -> None:
    """U of all panels, where it is kept."""
    for kind in plan.kinds if plan.kept else ():
        with f.loop(0, kind.count) as panels:
            weights, _, depth = plan.span_of(f, kind, panels.index)
            at, (rows,) = plan.panel_u(f, kind, u, panels.index), plan.rows_together
            emit_transformed(f, plan, kind, rows, weights, at, depth)


def emit_products(f: KernelFunction, plan: WinogradPlan, kind: Panels, panel: str, share: Share) -> None:
    """M of a panel, over chunks of channels."""
    share = replace(share, u=plan.panel_u(f, kind, share.u, panel))
    if plan.grouped or plan.packed:
        weights, first, depth = plan.span_of(f, kind, panel)
        emit_chunk(f, plan, kind, weights, share, first, depth)
        return
    weights = plan.panel_weights(f, kind, panel)
    blocks, (whole, rest) = plan.chunk // plan.block, divmod(plan.channels, plan.chunk)
    nbytes = plan.block * plan.taps * kind.width * dtypes.itemsize(plan.stored)  # of a block of channels
    if plan.chunk < plan.channels:
        vector, step = vector_type(scalar_type(plan.dtype), plan.lanes), plan.lanes * plan.size
        begin, end = (plan.first_piece(f, share.count, band) for band in share.bands)
        with f.loop(0, plan.matrices) as matrices, f.loop(begin, end) as piece:
            row = f.add(f.mul(matrices.index, plan.m_step), f.mul(piece.index, kind.width * plan.size))
            for place in range(0, kind.width * plan.size, step):
                f.store(vector, "zeroinitializer", f.offset(share.m, f.add(row, place)), step)
    with f.loop(0, whole) as chunks:
        first = f.mul(chunks.index, blocks)
        at = f.offset(weights, f.mul(first, nbytes))
        emit_chunk(f, plan, kind, at, share, first, str(plan.chunk))
    if rest:
        at = f.offset(weights, whole * blocks * nbytes)
        emit_chunk(f, plan, kind, at, share, str(whole * blocks), str(rest))


def emit_chunk(
    f: Function, plan: WinogradPlan, kind: Panels, weights: str, share: Share, first: str, depth: str
) -> None:
    """M of so many channels, from a block of them on."""
    row = kind.width * plan.size
    whole, rest = f.divide(depth, plan.block)

    def products(together: range, i: str) -> None:
        a = f.offset("%scratch", f.mul(i, plan.v_step))
        b = plan.u_of(f, kind, weights, share.u, depth, together, i)
        c = f.offset(share.m, f.mul(i, plan.m_step))

        def tile(height: int, start: str) -> None:
            rows = f.add(f.mul(start, plan.piece), f.mul(first, height * plan.pixel))
            words = [f"ptr {p}" for p in (f.offset(a, rows), b, f.offset(c, f.mul(start, row)))]
            if plan.fetched:
                words += plan.ahead_words(f, kind, weights, depth, i, start, height, share.count)
            arguments = ", ".join([*words, f"i64 {whole}", f"i64 {rest}"])
            f.statement(f"call void @{ENTRY}.multiply{height}x{kind.vectors}({arguments})")

        plan.for_tiles(f, share.count, share.bands, tile)

    for together in plan.rows_together:
        if not plan.kept and not plan.packed:
            emit_transformed(f, plan, kind, together, weights, share.u, depth)
        with f.loop(together.start * plan.t[1], together.stop * plan.t[1]) as matrices:
            products(together, matrices.index)


def emit_transformed(
    f: Function, plan: WinogradPlan, kind: Panels, rows: range, source: str, u: str, depth: str
) -> None:
    """U of so many channels of a panel, of some rows of points."""
    size = dtypes.itemsize(plan.stored)
    with f.loop(0, depth) as channels, f.loop(0, kind.width, plan.lanes) as column:
        at = f.add(f.mul(channels.index, plan.taps * kind.width * size), f.mul(column.index, size))
        to = f.mul(f.add(f.mul(channels.index, kind.width), column.index), plan.size)
        arguments = f"ptr {f.offset(source, at)}, ptr {f.offset(u, to)}"
        f.statement(f"call void @{ENTRY}.{weights_name(kind, rows)}({arguments})")


def emit_results(f: KernelFunction, plan: WinogradPlan, kind: Panels, block: str, share: Share) -> None:
    """The results of a band of a share's pieces, of one panel: M transformed back, and the epilogue."""
    begin, end = (plan.first_piece(f, share.count, band) for band in share.bands)
    with f.loop(begin, end) as pieces:
        n, piece = plan.image_and_piece(f, share.n, f.add(share.first, pieces.index))
        y, x, above, left = plan.place(f, piece)
        words = [
            "ptr %args",
            f"ptr {f.offset(share.m, f.mul(pieces.index, kind.width * plan.size))}",
            f"ptr {plan.out.address(f, f.output(), n, block, y, x)}",
            f"i64 {above}",
            f"i64 {left}",
            *(f"i64 {word}" for word in plan.below(f, y, x)),
            *(f"i64 {end}" for end in plan.ends(f, y, x)),
            *plan.epilogue.arguments(f, n, block, y, x),
        ]
        f.statement(f"call void @{ENTRY}.join{kind.vectors}({', '.join(words)})")
