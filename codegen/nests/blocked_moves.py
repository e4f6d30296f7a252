"""Concat, Slice, Pad and Gather of images stored in blocks of channels, without making them dense; Transpose
where channels stay, or where an image with its channels last becomes one in blocks, or comes of one.

A blocked image is a dense array [N, C/b, H + 2h, W + 2h, b]. Along batch and spatial axes these ops move
whole blocks of lanes in it, those beyond the channels, which hold zeros, with the others. Along channels
they move runs of lanes, cut where a block ends in either image: 24 channels put after 24, in blocks of 16,
are runs of 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import Layout, Node, TensorType
from ...ir.ops import Concat, Gather, Pad, Slice, Transpose
from ...target import Target
from .copies import Copy
from .indexed import gather
from .movement import blocked, halo_copies, inside_blocks, slabs, stored, unblocked
from .nest import Piece, Stages, View, input_view, output_view

OPS = (Concat, Slice, Pad, Gather, Transpose)


def layouts(node: Node, target: Target) -> list[tuple[Layout | None, tuple[Layout | None, ...]]]:
    """The layouts in which the op can leave its result, each with those in which it reads the operands, where
    images are blocked: one for every block in which one is stored already."""
    out = node.outputs[0].tensor
    if isinstance(node.op, Transpose):
        return _transposed_layouts(node, target)
    images = node.inputs if isinstance(node.op, Concat) else node.inputs[:1]
    if out.rank < 3 or any(
        v.rank != out.rank or not isinstance(v.shape[1], int) for v in (*images, node.outputs[0])
    ):
        return []
    found: list[tuple[Layout | None, tuple[Layout | None, ...]]] = []
    for block in sorted({v.tensor.layout.block for v in images if v.tensor.layout is not None}):
        if _keeps_blocks(node, block):
            plain = Layout(block, (0,) * (out.rank - 2))
            found.append((plain, tuple(plain if k < len(images) else None for k in range(len(node.inputs)))))
    return found


def _transposed_layouts(node: Node, target: Target) -> list[tuple[Layout | None, tuple[Layout | None, ...]]]:
    """Between an image whose channels are last and one that is blocked, and between blocked ones where the
    channels stay."""
    x, out, perm = node.inputs[0].tensor, node.outputs[0].tensor, node.op.perm
    if out.rank < 3:
        return []
    halo = (0,) * (out.rank - 2)
    if perm[1] == 1:
        plain = Layout(x.layout.block, halo) if x.layout is not None and isinstance(x.shape[1], int) else None
        return [(plain, (plain,))] if plain is not None else []
    if perm[0] != 0:
        return []
    if x.layout is not None:
        return [(None, (Layout(x.layout.block, halo),))] if perm[-1] == 1 else []
    comes_last = perm[1] == out.rank - 1 and isinstance(out.shape[1], int)
    return [(Layout(target.block, halo), (None,))] if comes_last else []


def _keeps_blocks(node: Node, block: int) -> bool:
    """Whether the channels move in runs that are known."""
    match node.op:
        case Concat():
            return True
        case Slice(starts, _, steps):
            return isinstance(starts[1], int) and steps[1] == 1
        case Pad("constant", before, after):
            lanes_used = node.inputs[0].shape[1] % block == 0 or _is_zero(node)
            return before[1] == 0 == after[1] and lanes_used
        case Gather("axis", axis):
            return axis != 1 and node.inputs[1].rank == 1
    return False


def _is_zero(node: Node) -> bool:
    """Whether a Pad is known to pad with zeros."""
    value = node.inputs[1].constant
    return value is not None and not np.any(value.array)


def stages(node: Node, target: Target) -> Stages:
    """What the node copies and clears, its types being those of a choice."""
    x, out = node.inputs[0].tensor, node.outputs[0].tensor
    if isinstance(node.op, Transpose) and node.op.perm[1] == 1:
        view = stored("input", 0, x).pick((*node.op.perm, x.rank))
        return [
            [Copy(target, inside_blocks(out), stored("output", 0, out), view), *halo_copies(target, out)]
        ], ()
    if isinstance(node.op, Transpose) and x.layout is None:
        return [blocked(target, out, input_view(node, 0).pick(node.op.perm))], ()
    if isinstance(node.op, Transpose):
        places = [node.op.perm.index(axis) for axis in range(x.rank)]
        return [unblocked(target, x, output_view(node).pick(places))], ()
    return [[*_moves(node, target), *halo_copies(target, out)]], ()


def _moves(node: Node, target: Target) -> Iterable[Piece]:
    out, op = node.outputs[0].tensor, node.op
    to = stored("output", 0, out)
    sources = [stored("input", k, v.tensor) for k, v in enumerate(node.inputs) if v.tensor.layout is not None]
    source, inside = sources[0], inside_blocks(node.inputs[0].tensor)
    begin: Dimension
    match op:
        case Concat(axis=1):
            channel = 0
            for value, view in zip(node.inputs, sources):
                count = dims.number(value.shape[1])
                yield from channel_copies(target, value.tensor, out, view, to, 0, channel, count)
                channel += count
            yield from idle_lanes(target, out, to)
        case Concat(axis):
            begin = 0
            for value, view in zip(node.inputs, sources):
                yield Copy(target, inside_blocks(value.tensor), to.moved(begin * to.strides[axis]), view)
                begin = begin + value.shape[axis]
        case Slice(starts, sizes, steps):
            origin = [starts[0], 0, *starts[2:], 0]
            begin = sum((s * d for s, d in zip(origin, source.strides)), source.origin)
            strides = tuple(s * d for s, d in zip((*steps, 1), source.strides))
            walked = replace(source, strides=strides, origin=begin)
            first, count = dims.numbers((starts[1], sizes[1]))
            yield from channel_copies(target, out, out, walked, to, first, 0, count)
            yield from idle_lanes(target, out, to)
        case Pad(_, before, _):
            before = (before[0], 0, *before[2:], 0)
            begin = sum((b * s for b, s in zip(before, to.strides)), 0)
            yield Copy(target, inside, to.moved(begin), source)
            border = None if _is_zero(node) else View("input", 1, source.dtype, (0,) * len(inside))
            yield from slabs(target, inside, inside_blocks(out), before, to, border)
        case Gather():
            yield gather(node, target, source, inside, to)


def channel_copies(
    target: Target,
    sizes: TensorType,
    out: TensorType,
    source: View,
    to: View,
    first: int,
    begin: int,
    count: int,
) -> Iterable[Copy]:
    """Copies `count` channels from channel `first` on to channel `begin` of out; the other axes are those of
    `sizes`. Runs that repeat from block to block are one copy."""
    block, item = out.blocked.block, source.itemsize
    batch, _, *pixels, _ = inside_blocks(sizes)
    runs: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    done = 0
    while done < count:
        from_block, from_lane = divmod(first + done, block)
        to_block, to_lane = divmod(begin + done, block)
        length = min(block - from_lane, block - to_lane, count - done)
        runs.setdefault((from_lane, to_lane, length), []).append((from_block, to_block))
        done += length
    for (from_lane, to_lane, length), places in runs.items():
        from_block, to_block = places[0]
        yield Copy(
            target,
            (batch, len(places), *pixels, length),
            to.moved(to_block * to.strides[1] + to_lane * item),
            source.moved(from_block * source.strides[1] + from_lane * item),
        )


def idle_lanes(target: Target, out: TensorType, to: View) -> Iterable[Copy]:
    """Zeros in the lanes beyond the channels."""
    whole, used = divmod(dims.number(out.shape[1]), out.blocked.block)
    if used:
        batch, _, *pixels, _ = inside_blocks(out)
        last = to.moved(whole * to.strides[1] + used * to.itemsize)
        yield Copy(target, (batch, 1, *pixels, out.blocked.block - used), last, None)
