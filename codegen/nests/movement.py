"""Reshape, Transpose, Slice, Broadcast, Concat, Pad and Reorder, as copies between strided views.

Each says where an iteration's element comes from and where it goes; `copies.py` finds the way in which memory
is walked. A blocked image [N, C/b, H + 2h, W + 2h, b] is a dense array of its storage: its inside is copied,
whatever surrounds it (halo, lanes beyond the channels) is filled with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...ir import dims, dtypes
from ...ir.dims import Dimension
from ...ir.graph import Node, TensorType
from ...ir.ops import Broadcast, Concat, Pad, Reorder, Reshape, Slice, Transpose
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from ..text.emitter import Function
from ..tiles.strides import row_major
from .copies import Copy
from .nest import (
    Block,
    Blocks,
    Piece,
    Stages,
    View,
    address,
    block_rows,
    broadcasting,
    dense,
    displaced,
    fail,
    input_view,
    loops,
    output_view,
)
from .row_copies import copy_bytes

UNROLLED = 16  # runs of a border that are copied without a loop


def stages(node: Node, target: Target) -> Stages:
    if isinstance(node.op, Pad) and node.op.mode != "constant":
        folded = [
            [Folded(node, target, axis)]
            for axis in reversed(range(node.inputs[0].rank))
            if _is_padded(node.op, axis)
        ]
        return [_inside(node, target), *folded], ()
    if isinstance(node.op, Reorder):
        return reordering(target, node.inputs[0].tensor, node.outputs[0].tensor)
    return [copies(node, target)], ()


def copies(node: Node, target: Target) -> list[Copy]:
    """What a node over dense tensors copies."""
    shape, out = node.outputs[0].shape, output_view(node)
    match node.op:
        case Reshape():
            return [Copy(target, shape, out, replace(out, kind="input"))]
        case Transpose(perm):
            return [Copy(target, shape, out, input_view(node, 0).pick(perm))]
        case Slice(starts, sizes, strides):
            source = input_view(node, 0)
            begin = sum((s * d for s, d in zip(starts, source.strides)), 0)
            walked = replace(
                source, strides=tuple(s * d for s, d in zip(strides, source.strides)), origin=begin
            )
            return [Copy(target, sizes, out, walked)]
        case Broadcast():
            return [Copy(target, shape, out, broadcasting("input", 0, node.inputs[0].tensor, shape))]
        case Concat(axis):
            found, begin = [], 0
            for index, value in enumerate(node.inputs):
                if value.shape[axis] != 0:
                    found.append(
                        Copy(
                            target, value.shape, out.moved(begin * out.strides[axis]), input_view(node, index)
                        )
                    )
                begin = begin + value.shape[axis]
            return found
        case Pad():
            return [*_inside(node, target), *_borders(node, target)]
    raise TypeError(f"{type(node.op).__name__} is no movement")


# Padding -----------------------------------------------------------------------------------------


def _inside(node: Node, target: Target) -> list[Copy]:
    out, before = output_view(node), node.op.before
    begin = sum((b * s for b, s in zip(before, out.strides)), 0)
    return [Copy(target, node.inputs[0].shape, out.moved(begin), input_view(node, 0))]


def _borders(node: Node, target: Target) -> list[Copy]:
    """A constant border: for each axis the slabs before and after the input, as wide as the result along
    the later axes."""
    x, out, whole = node.inputs[0], output_view(node), node.outputs[0].shape
    value = View("input", 1, x.dtype, (0,) * x.rank)
    return slabs(target, x.shape, whole, node.op.before, out, value)


def slabs(
    target: Target,
    inner: Sequence[Dimension],
    whole: Sequence[Dimension],
    before: Sequence[Dimension],
    out: View,
    value: View | None,
    fill: int = 0,
) -> list[Copy]:
    """Fills what `inner`, `before` elements into `whole` along each axis, leaves uncovered, with the value or
    the number."""
    found: list[Copy] = []
    begin: Dimension = 0
    for axis, size in enumerate(inner):
        for start, length in ((0, before[axis]), (before[axis] + size, whole[axis] - before[axis] - size)):
            if length != 0:
                sizes = (*inner[:axis], length, *whole[axis + 1 :])
                found.append(Copy(target, sizes, out.moved(begin + start * out.strides[axis]), value, fill))
        begin = begin + before[axis] * out.strides[axis]
    return found


def _is_padded(op: Pad, axis: int) -> bool:
    return op.before[axis] != 0 or op.after[axis] != 0


class Folded(Piece):
    """The border of one axis made of the image. Axes are padded one after the other from the last: what a
    border copies, a run of all later axes, is complete by then."""

    def __init__(self, node: Node, target: Target, axis: int):
        op, x, out = node.op, node.inputs[0], output_view(node)
        self.mode, self.before, self.size, self.run = (
            op.mode,
            op.before[axis],
            x.shape[axis],
            out.strides[axis],
        )
        begin = sum((b * s for b, s in zip(op.before[:axis], out.strides)), 0)
        self.view = View("output", 0, x.dtype, (*out.strides[:axis], self.run), begin)
        self.sizes = (*x.shape[:axis], self.before + op.after[axis])  # its two sides lie side by side
        self.target = target

    @property
    def estimate(self) -> Estimate:
        """Runs that are copied, and found where the places of all are not known."""
        runs, run = dims.typical(dims.product(self.sizes)), dims.typical(self.run)
        vectors = runs * -(-run * 8 // self.target.vector_bits)
        found = costs.move(self.target, 2 * runs * run) + costs.compute(self.target, 2 * vectors)
        return found + costs.overhead(self.target, 0 if self._places else costs.FOLDED * runs)

    @property
    def blocks(self) -> Blocks:
        return block_rows(self.sizes, self.elements, unit=1)

    @property
    def _places(self) -> list[tuple[int, int]]:
        """Where in a line each run of a narrow border lies, and the run that it copies; none where only the
        run knows."""
        length, ahead, count = self.size, self.before, self.sizes[-1]
        if not (isinstance(length, int) and isinstance(ahead, int) and isinstance(count, int)):
            return []
        if length == 0 or count > UNROLLED:
            return []
        beyond = [k if k < ahead else k + length for k in range(count)]
        return [(k, _folded_place(self.mode, k - ahead, length) + ahead) for k in beyond]

    def emit(self, f: KernelFunction, block: Block) -> None:
        length, ahead, nbytes = (f.size(d) for d in (self.size, self.before, self.run))
        with f.when(f.compare("eq", length, 0)):
            fail(f, "invalid_value", "0", "an axis of size {} has nothing to repeat")
        places = self._places
        if places and block.extents[-1] == str(len(places)):
            with loops(f, block.extents[:-1]) as inside:
                outer = [f.add(a, b) for a, b in zip(block.starts, inside)]
                line = address(f, self.view, (*outer, 0))
                for to, origin in places:
                    copy_bytes(f, displaced(f, line, to, nbytes), displaced(f, line, origin, nbytes), nbytes)
            return
        with loops(f, block.extents) as inside:
            *outer, place = (f.add(a, b) for a, b in zip(block.starts, inside))
            line = address(f, self.view, (*outer, 0))
            beyond = f.compare("sge", place, ahead)
            place = f.add(place, f.select(beyond, "i64", length, "0"))
            source = f.add(_folded_index(f, self.mode, f.sub(place, ahead), ahead, length), ahead)
            copy_bytes(f, displaced(f, line, place, nbytes), displaced(f, line, source, nbytes), nbytes)


def _folded_place(mode: str, index: int, length: int) -> int:
    """Where in 0..length-1 an index outside of it finds its element."""
    if mode == "edge":
        return max(0, min(index, length - 1))
    if mode == "wrap":
        return index % length
    once = abs(index) % max(2 * (length - 1), 1)
    return min(once, 2 * (length - 1) - once)


def _folded_index(f: Function, mode: str, index: str, before: str, length: str) -> str:
    """Where in 0..length-1 an index outside of it (never less than -before) finds its element."""
    if mode == "edge":
        return f.maximum(f.minimum(index, f.sub(length, 1)), 0)
    if mode == "wrap":
        turns = f.binary("udiv", f.add(before, f.sub(length, 1)), length, "i64")
        return f.binary("urem", f.add(index, f.mul(turns, length)), length, "i64")
    period = f.maximum(f.mul(f.sub(length, 1), 2), 1)
    magnitude = f.maximum(index, f.sub(0, index))
    once = f.binary("urem", magnitude, period, "i64")
    return f.minimum(once, f.sub(f.mul(f.sub(length, 1), 2), once))


# Layouts -----------------------------------------------------------------------------------------


def reordering(target: Target, x: TensorType, out: TensorType) -> Stages:
    """What turns one layout into the other."""
    plain = replace(out, layout=None)
    if x.layout is None and out.layout is None:
        return [[Copy(target, x.shape, dense("output", 0, out), dense("input", 0, x))]], ()
    if x.layout is None:
        return [blocked(target, out, dense("input", 0, x))], ()
    if out.layout is None:
        return [unblocked(target, x, dense("output", 0, out))], ()
    if x.layout.block == out.layout.block:
        source = stored("input", 0, x)
        return [
            [Copy(target, inside_blocks(out), stored("output", 0, out), source), *halo_copies(target, out)]
        ], ()
    between = dense("temporary", 0, plain)
    return [unblocked(target, x, between), blocked(target, out, between)], (plain.nbytes,)


def stored(kind: str, index: int, type_: TensorType) -> View:
    """A blocked value seen from a nest over (batch, blocks of channels, spatial..., lanes), the halo left
    out."""
    strides = (type_.batch_stride, *row_major(type_.storage, dtypes.itemsize(type_.dtype))[1:])
    begin = sum((h * s for h, s in zip(type_.blocked.halo, strides[2:])), 0)
    return View(kind, index, type_.dtype, strides, begin)


def in_blocks(view: View, block: int) -> View:
    """A view over (batch, channels, spatial...) seen from the nest over blocks."""
    batch, channel, *spatial = view.strides
    return replace(view, strides=(batch, channel * block, *spatial, channel))


def inside_blocks(type_: TensorType) -> tuple[Dimension, ...]:
    """The sizes of the nest over a blocked value without its halo."""
    return (*type_.storage[:2], *type_.shape[2:], type_.blocked.block)


def halo_copies(target: Target, type_: TensorType) -> list[Copy]:
    """The halo around the image of a blocked output."""
    whole = replace(stored("output", 0, type_), origin=0)
    before = (0, 0, *(type_.blocked.halo or (0,) * (type_.rank - 2)), 0)
    return slabs(target, inside_blocks(type_), type_.storage, before, whole, None, type_.blocked.fill)


def blocked(target: Target, type_: TensorType, source: View) -> list[Copy]:
    """A dense value, seen through a view of the result's axes, in blocks of channels."""
    (batch, channels, *spatial), block, item = type_.shape, type_.blocked.block, source.itemsize
    to, source = stored("output", 0, type_), in_blocks(source, block)
    whole = dims.floor_divide(channels, block)
    rest, blank = channels - whole * block, dims.ceil_divide(channels, block) * block - channels
    last = to.moved(whole * to.strides[1])
    found = [
        Copy(target, (batch, whole, *spatial, block), to, source),
        Copy(target, (batch, 1, *spatial, rest), last, source.moved(whole * source.strides[1])),
        Copy(target, (batch, 1, *spatial, blank), last.moved(rest * item), None),
    ]
    return [copy for copy in found if 0 not in copy.sizes] + halo_copies(target, type_)


def unblocked(target: Target, type_: TensorType, to: View) -> list[Copy]:
    """A blocked value made dense, seen through a view of its own axes."""
    (batch, channels, *spatial), block, rank = type_.shape, type_.blocked.block, type_.rank
    last = to.strides[1] == to.itemsize  # channels are, else lanes are outside of pixels
    order = tuple(range(rank + 1)) if last else (0, 1, rank, *range(2, rank))
    source, to = stored("input", 0, type_), in_blocks(to, block)
    whole = dims.floor_divide(channels, block)

    def copied(blocks: Dimension, lanes: Dimension, first: Dimension) -> Copy:
        sizes = (batch, blocks, *spatial, lanes)
        out, x = (v.moved(first * v.strides[1]).pick(order) for v in (to, source))
        return Copy(target, tuple(sizes[a] for a in order), out, x)

    found = [copied(whole, block, 0), copied(1, channels - whole * block, whole)]
    return [copy for copy in found if 0 not in copy.sizes]
