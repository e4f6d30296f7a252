"""Panels of output channels: which ones cover a convolution's output, and their packed weights.

    panel: [depth][vectors][lanes], depth running over (block of input channels, tap, channel)
A panel is what one tile computes for its pixels; all panels of a convolution are as wide as the
tile's registers allow, except for the last one or two. For dot products `group` channels stand together,
[depth / group][vectors][lanes][group], and each panel begins with what its sums start from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...ir import dtypes
from ...records import dataclass
from ...target import Dot, Target
from .. import costs
from ..kernel import NEAR
from ..text.emitter import Function
from .microkernel import most_rows, step_time
from .packing import in_pairs

#: Blocks of output channels of which the last may have idle lanes that add up other input channels. Where
#: there are more it is too small a part to be summed in another order: equal weights give equal channels.
PARTED = 16


@dataclass(frozen=True)
class PanelTiling:
    """Panels of `vectors` blocks of channels, the last of `tail` lanes (None: of whole blocks), and tiles of
    at most `rows` pixels. `group`: channels that one dot product adds up, where the processor's do. `stored`:
    the type of the weights in panels, where it is not theirs. `abreast`: input channels side by side in the
    vectors of the tail. `gathered`: whether the pixels that are read are brought together before."""

    vectors: int
    rows: int
    tail: int | None = None
    group: int | None = None
    stored: str | None = None
    abreast: int = 1
    gathered: bool = False


@dataclass(frozen=True)
class Panels:
    """`count` panels from number `first` on that are equally wide: `vectors` vectors of `lanes`
    channels, a block each; the first of them is for block `block` of the output channels. `abreast`: input
    channels side by side in a vector, [depth / abreast][vectors][lanes][abreast]; `groups`: of a grouped
    convolution, whose channels are multiplied in one step, each in lanes of its own."""

    first: int
    count: int
    block: int
    vectors: int
    lanes: int
    abreast: int = 1
    groups: int = 1

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    def first_block(self, f: Function, panel: str) -> str:
        """Of the output channels of the panel-th of these panels."""
        return f.add(self.block, f.mul(panel, self.vectors))

    def registers(self, target: Target, dtype: str) -> int:
        """Vector registers that hold sums of type dtype for one pixel."""
        return self.vectors * target.registers(dtype, self.lanes)

    def share(self, target: Target, dtype: str, inside: int, whole: float = 1.0) -> float:
        """Of the time of whole vectors that sums over `inside` input channels take."""
        if self.abreast > 1:
            return -(-inside // self.abreast) / inside
        return target.facts.narrow if self.lanes < target.lanes(dtype) else whole


def panels_of(
    channels: int, block: int, vectors: int, tail: int | None = None, abreast: int = 1
) -> list[Panels]:
    """The panels of `channels` output channels: as many as possible of `vectors` blocks, a narrower
    one, and, where there is a `tail`, one of so many lanes for the last block."""
    tail = tail or 0
    whole, narrow = divmod(-(-channels // block) - (tail > 0), vectors)
    found, first, at = [], 0, 0
    for count, wide, lanes, side in (
        (whole, vectors, block, 1),
        (narrow > 0, narrow, block, 1),
        (tail > 0, 1, tail, abreast),
    ):
        if count:
            found.append(Panels(first, int(count), at, wide, lanes, side))
            first, at = first + count, at + count * wide
    return found


def widest(target: Target, kinds: Sequence[Panels], dtype: str) -> int:
    """The most vector registers that a panel's sums take for one pixel."""
    return max((p.registers(target, dtype) for p in kinds), default=1)


def _power(number: int) -> int:
    """The least power of two from number on."""
    return 1 << (number - 1).bit_length()


def panel_tiling(
    target: Target, channels: int, block: int, dtype: str, dot: Dot | None = None
) -> PanelTiling:
    """The first of `panel_tilings`."""
    return panel_tilings(target, channels, block, dtype, dot)[0][0]


def panel_tilings(
    target: Target, channels: int, block: int, dtype: str, dot: Dot | None = None, inside: int = 1
) -> list[tuple[PanelTiling, float]]:
    """The vectors of a panel with which a pixel takes the least time, and their tile's greatest height; then
    those that are near, and how many times as long they take. Sums are of type dtype, whose vectors of
    `block` lanes may be several registers.

    Where half of a last block is idle, its panel may have half the lanes (`tail`). The idle ones take other
    input channels, of which `inside` are neighbours in memory (`abreast`); where there are no others, half a
    vector is less work where wide ones are executed in two halves, and no more elsewhere. A dot product has
    whole vectors."""
    blocks, rest = -(-channels // block), channels % block
    tails, sides = [0], {0: 1}
    if dot is None and 0 < rest <= block // 2:
        tail, lanes = _power(rest), target.lanes(dtype)
        side = min(lanes // tail, _power(inside)) if tail < lanes and blocks <= PARTED else 1
        if side > 1:
            tail = lanes // side
        if side > 1 or target.vector_bits > 256:
            tails.append(max(4, tail) if side == 1 else tail)
            sides[tails[-1]] = side

    def height(vectors: int) -> int:
        return most_rows(target, vectors * target.registers(dtype, block), dot)

    def time(vectors: int, tail: int) -> float:
        rows, total = height(vectors), 0.0
        for p in panels_of(channels, block, vectors, tail, sides[tail]):
            step = step_time(target, rows, p.registers(target, dtype), 1, dot)
            narrower = 1.0 if p.vectors == vectors else costs.NARROW_PANEL
            total += p.count * step * p.share(target, dtype, inside, narrower)
        return total / rows

    options = [
        (v, t) for t in tails for v in range(1, min(blocks, 4) + 1) if v <= blocks - (t > 0) or blocks == 1
    ]
    times = {option: time(*option) for option in options}
    each = target.registers(dtype, block)
    # of equal times tiles two registers wide: those of four load nearly as much as they multiply
    options.sort(key=lambda o: (round(times[o], 6), o[1], abs(o[0] * each - 2)))
    least, (group, stored) = times[options[0]], (None, None) if dot is None else (dot.group, dot.widened)
    return [
        (PanelTiling(v, height(v), t or None, group, stored, sides[t]), max(1.0, times[v, t] / least))
        for v, t in options
        if times[v, t] <= NEAR * least
    ]


# Weights ------------------------------------------------------------------------------------------


def by_depth(weights: np.ndarray, block: int, group: int = 1) -> np.ndarray:
    """[O, C, taps...] → [O, (C / block, taps, block) and then (taps, what is left of C)], C filled up with
    zeros to whole groups."""
    idle = -weights.shape[1] % group
    weights = np.pad(weights, [(0, 0), (0, idle), *[(0, 0)] * (weights.ndim - 2)])
    outputs, channels = weights.shape[:2]
    taps = weights.reshape(outputs, channels, -1)
    whole = channels - channels % block
    blocked = taps[:, :whole].reshape(outputs, whole // block, block, taps.shape[2]).swapaxes(2, 3)
    rest = taps[:, whole:].swapaxes(1, 2)
    return np.concatenate([blocked.reshape(outputs, -1), rest.reshape(outputs, -1)], axis=1)


def in_panels(rows: np.ndarray, kinds: Sequence[Panels]) -> np.ndarray:
    """[O, depth] → for each panel [depth][width], one after the other, or as many abreast as its kind has;
    channels beyond O are zero."""
    sides = [p.abreast for p in kinds for _ in range(p.count)]
    parts = zip(_parts(rows, kinds), sides)
    return np.concatenate([p.reshape(len(p), -1, side).swapaxes(0, 1).reshape(-1) for p, side in parts])


def in_dot_panels(
    rows: np.ndarray, kinds: Sequence[Panels], group: int, start: np.ndarray, stored: str | None = None
) -> np.ndarray:
    """[O, depth] → the bytes of the panels, one after the other: what the sums start from [width], then
    [depth / group][width][group], of a wider type where they are `stored` so; channels beyond O are zero."""
    parts = []
    lanes = [p.lanes for p in kinds for _ in range(p.count)]
    for first, part, wide in zip(_parts(start.reshape(-1, 1), kinds), _parts(rows, kinds), lanes):
        groups = part.reshape(len(part), -1, group).swapaxes(0, 1)
        parts += [bytes_of(first), bytes_of(in_groups(groups, wide, stored))]
    return np.concatenate(parts)


def starts(weights: np.ndarray, zero: int, dtype: str) -> np.ndarray:
    """What sums of each output channel start from, [O]: less what a zero point adds to them."""
    if not zero:
        return np.zeros(len(weights), dtypes.numpy_dtype(dtype))
    totals = weights.sum(axis=tuple(range(1, weights.ndim)), dtype=np.int32)
    return np.asarray(totals * np.int32(-zero))


def in_groups(groups: np.ndarray, lanes: int, stored: str | None) -> np.ndarray:
    """[steps, width, group] as dot products read it."""
    if stored is None:
        return groups
    wide = groups.astype(dtypes.numpy_dtype(stored))
    return in_pairs(wide.reshape(len(wide), -1), lanes) if groups.shape[2] > 1 else wide


def bytes_of(array: np.ndarray) -> np.ndarray:
    """An array as one vector of bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _parts(rows: np.ndarray, kinds: Sequence[Panels]) -> Iterator[np.ndarray]:
    """[O, depth] → [width, depth] for each panel."""
    first = 0
    for width in (p.width for p in kinds for _ in range(p.count)):
        part = np.zeros((width, rows.shape[1]), rows.dtype)
        chunk = rows[first : first + width]
        part[: len(chunk)] = chunk
        yield part
        first += width
