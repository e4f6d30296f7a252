"""The rows of a dense image that some lines of a convolution's result read, copied with their padding to an
image of their own: there every tap of every pixel lies at a constant distance from the pixel's first. The
padding is the image's `fill`, 0 but for bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...records import dataclass
from ..kernel import KernelFunction
from ..text.memory import clear_bytes, copy_bytes
from .blocked import Image, Window
from .lines import InLines


@dataclass(frozen=True)
class CopiedRows(InLines):
    """Of the `dense` image what some lines of the result `out` read: rows, or of a single row pixels."""

    dense: Image
    out: Image
    window: Window

    def image(self, lines: int) -> Image:
        """What so many lines read, as an image that begins with the first tap of the first of them."""
        (sy, sx), (height, width) = self.window.strides, self.window.extent
        if self.single_row:
            return replace(self.dense, height=height, width=(lines - 1) * sx + width)
        return replace(self.dense, height=(lines - 1) * sy + height, width=(self.out.width - 1) * sx + width)

    def columns(self, f: KernelFunction, lines: tuple[str, str]) -> str:
        """How many pixels of a row the lines from one to before another read."""
        if not self.single_row:
            return f.size(self.image(1).width)
        count = f.sub(lines[1], lines[0])
        return f.add(f.mul(f.sub(count, 1), self.window.strides[1]), self.window.extent[1])

    def copy(
        self,
        f: KernelFunction,
        image: str,
        lines: tuple[str, str],
        width: str | None,
        place: Callable[[str, str], str],
        done: Callable[[str, str], None] | None = None,
        channels: str | None = None,
    ) -> None:
        """Copies what the lines from one to before another read of the image at `image`: each row of each
        channel to place(channel, row), so many columns of it (None: those that are read), after which
        done(channel, row). channels: how many of the image's, None: all."""
        dense, win, (first, last) = self.dense, self.window, lines
        top, left = (f.size(-b) for b in win.before)  # the image's row and column at the copy's origin
        if self.single_row:
            left = f.add(left, f.mul(first, win.strides[1]))
            height = str(win.extent[0])
        else:
            top = f.add(top, f.mul(first, win.strides[0]))
            height = f.add(f.mul(f.sub(f.sub(last, first), 1), win.strides[0]), win.extent[0])
        width = width or self.columns(f, lines)
        start = f.minimum(f.maximum(f.sub("0", left), 0), width)  # the first column that the image has
        stop = f.minimum(f.maximum(f.sub(f.size(dense.width), left), start), width)
        with f.loop(0, channels or dense.channels) as channel, f.loop(0, height) as row:
            y = f.add(top, row.index)
            target, size = place(channel.index, row.index), dense.itemsize
            inside = f.compare("ult", y, f.size(dense.height), "i64")
            until = f.select(inside, "i64", start, width)
            clear_bytes(f, target, f.mul(until, size), dense.fill)
            with f.when(inside):
                column = f.maximum(f.add(left, start), 0)
                begin = dense.address(f, image, 0, channel.index, y, column)
                copy_bytes(f, f.element(target, start, size), begin, f.mul(f.sub(stop, start), size))
                rest = f.mul(f.sub(width, stop), size)
                clear_bytes(f, f.element(target, stop, size), rest, dense.fill)
            if done is not None:
                done(channel.index, row.index)
