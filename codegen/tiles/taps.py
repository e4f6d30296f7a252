"""Which taps of a window reach its image: for windows much of which covers padding.

low ........ high        of taps 0 .. count-1, those that reach the image from any of some pixels
--|=========|---         follow each other along an axis; all others would only add zeros
"""

from __future__ import annotations

from ...ir import dims
from ...ir.dims import Dimension
from ...records import dataclass
from ..kernel import KernelFunction
from .blocked import Image, Window, reckoned

PADDED_SHARE = 0.8  # of all pixels' taps: where no more reach the image, windows cover much padding


@dataclass(frozen=True)
class Taps:
    """The taps of a window along one axis, over an image of `size`, for a result of `length`."""

    count: int
    stride: int
    dilation: int
    before: int
    size: Dimension
    length: Dimension

    def reckoned(self) -> KnownTaps:
        """Over an image of the size that estimates reckon with."""
        size, length = self.size, self.length
        if not (isinstance(size, int) and isinstance(length, int)):
            size = reckoned(size, (self.count - 1) * self.dilation + 1)
            length = -(-size // self.stride)
        return KnownTaps(self.count, self.stride, self.dilation, self.before, size, length)

    def over(self, each: int) -> int:
        """How far tiles of so many pixels read over an edge of the image."""
        return (each - 1) * self.stride

    def reach(self, f: KernelFunction, first: str, each: int) -> tuple[str, str]:
        """The first tap that reaches the image from any of `each` pixels from one on that the run knows, and
        the one behind the last."""
        behind = self.before + self.dilation - 1 - (each - 1) * self.stride
        low, _ = f.divide(f.maximum(0, f.sub(behind, f.mul(first, self.stride))), self.dilation)
        left = f.sub(f.size(self.size + self.before + self.dilation - 1), f.mul(first, self.stride))
        high, _ = f.divide(f.maximum(0, left), self.dilation)
        return f.minimum(low, self.count), f.minimum(high, self.count)


@dataclass(frozen=True)
class KnownTaps(Taps):
    """Those over an image of known size."""

    size: int
    length: int

    def between(self, first: int, last: int) -> tuple[int, int]:
        """`reach` of pixels that are known."""
        low = max(0, -((last * self.stride - self.before) // self.dilation))
        high = (self.size - 1 + self.before - first * self.stride) // self.dilation + 1
        return min(low, self.count), max(0, min(high, self.count))

    def used(self, each: int) -> int:
        """Taps of all tiles of `each` pixels."""
        starts = [min(start, self.length - each) for start in range(0, self.length, each)]
        return sum(max(0, high - low) for low, high in (self.between(s, s + each - 1) for s in starts))


def window_taps(x: Image, out: Image, win: Window) -> tuple[Taps, Taps] | None:
    """Those along rows and columns of pixels; None of images that estimates reckon to be empty, or a pixel,
    and where padding is open."""
    sizes, made = (x.height, x.width), (out.height, out.width)
    if win.taps < 2 or not dims.is_static(win.before):
        return None
    rows, columns = (
        Taps(win.kernel[a], win.strides[a], win.dilations[a], dims.number(win.before[a]), sizes[a], made[a])
        for a in (0, 1)
    )
    near = rows.reckoned(), columns.reckoned()
    if min(min(t.size, t.length) for t in near) < 1 or max(t.length for t in near) < 2:
        return None
    return rows, columns


def reaching_share(axes: tuple[Taps, Taps] | None) -> float:
    """Of all pixels' taps those that reach the image; all, where none are left out."""
    share = 1.0
    for taps in axes or ():
        near = taps.reckoned()
        share *= near.used(1) / (near.length * near.count)
    return share
