"""Concat, Slice, Pad and Gather of images stored in blocks of channels, without making them dense.

A blocked image is a dense array [N, C/b, H + 2h, W + 2h, b], and these ops move whole runs of lanes in it:
along batch and spatial axes always, along channels where every piece begins and ends with a block. Lanes
beyond the channels hold zeros and are moved with the others; the halo of the result is cleared.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...ir import Layout, Node
from ...ops import Concat, Gather, Pad, Slice
from ...target import Target
from ..nest import Piece, Stages, View, input_view
from .copies import Copy
from .indexed import Lookup, named
from .movement import halo_copies, inside_blocks, slabs, stored

OPS = (Concat, Slice, Pad, Gather)


def layouts(node: Node) -> list[tuple[Layout, tuple[Layout | None, ...]]]:
    """The blocked layouts in which the op can leave its result, each with those in which it reads the
    operands: one for every block in which an image is stored already."""
    out = node.outputs[0].type
    images = node.inputs if isinstance(node.op, Concat) else node.inputs[:1]
    if out.rank < 3 or any(
        v.rank != out.rank or not isinstance(v.shape[1], int) for v in (*images, node.outputs[0])
    ):
        return []
    found = []
    for block in sorted({v.type.layout.block for v in images if v.type.layout is not None}):
        if _keeps_blocks(node, block):
            plain = Layout(block, (0,) * (out.rank - 2))
            found.append((plain, tuple(plain if k < len(images) else None for k in range(len(node.inputs)))))
    return found


def _keeps_blocks(node: Node, block: int) -> bool:
    """Whether no block of the result holds channels of two places."""
    channels = node.inputs[0].shape[1]
    match node.op:
        case Concat(axis=1):
            return all(v.shape[1] % block == 0 for v in node.inputs[:-1])
        case Concat():
            return True
        case Slice(starts, sizes, steps):
            first, count = starts[1], sizes[1]
            whole = isinstance(first, int) and isinstance(count, int) and steps[1] == 1 and first % block == 0
            return whole and (count % block == 0 or first + count == channels)
        case Pad("constant", before, after):
            lanes_used = channels % block == 0 or _is_zero(node)
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
    return [[*_moves(node, target), *halo_copies(target, node.outputs[0].type)]], ()


def _moves(node: Node, target: Target) -> Iterable[Piece]:
    out, op = node.outputs[0].type, node.op
    to = stored("output", 0, out)
    sources = [stored("input", k, v.type) for k, v in enumerate(node.inputs) if v.type.layout is not None]
    source, inside = sources[0], inside_blocks(node.inputs[0].type)
    match op:
        case Concat(axis):
            begin = 0
            for index, value in enumerate(node.inputs):
                place = begin if axis != 1 else begin // out.layout.block
                yield Copy(
                    target, inside_blocks(value.type), to.moved(place * to.strides[axis]), sources[index]
                )
                begin = begin + value.shape[axis]
        case Slice(starts, _, steps):
            first = [starts[0], starts[1] // out.layout.block, *starts[2:], 0]
            begin = sum((s * d for s, d in zip(first, source.strides)), source.origin)
            strides = tuple(s * d for s, d in zip((*steps, 1), source.strides))
            yield Copy(target, inside_blocks(out), to, replace(source, strides=strides, origin=begin))
        case Pad(_, before, _):
            before = (before[0], 0, *before[2:], 0)
            begin = sum((b * s for b, s in zip(before, to.strides)), 0)
            yield Copy(target, inside, to.moved(begin), source)
            value = View("input", 1, source.dtype, (0,) * len(inside))
            yield from slabs(
                target, inside, inside_blocks(out), before, to, None if _is_zero(node) else value
            )
        case Gather():
            indices = node.inputs[1]
            yield Lookup(target, named(op, source, inside, input_view(node, 1), indices.shape, to))
