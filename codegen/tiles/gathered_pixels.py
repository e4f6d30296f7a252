"""The pixels that 1x1 windows with strides read, brought together before.

A convolution then reads whole lines of the cache, and its tiles are cut from one row of pixels, however
narrow the result is.
"""

from __future__ import annotations

from dataclasses import replace

from ...ir import dims
from ...ir.dims import Dimension
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Argument, Code, KernelText, Step
from ..text.emitter import memory_type, vector_type
from .blocked import Image, Window


def is_sparse(win: Window) -> bool:
    """Whether windows are single pixels of which others lie between."""
    return win.kernel == (1, 1) and win.strides != (1, 1) and {*win.before, *win.after} == {0}


def gathering(target: Target, x: Image, height: Dimension, width: Dimension, win: Window) -> Estimate:
    """To bring together pixels of an image as high and wide as the result."""
    nbytes = dims.typical(x.batch * gathered(x, height, width).image)
    return costs.move(target, (1 + win.strides[1]) * nbytes, 2 * nbytes) + costs.step(target)


def gathered(x: Image, height: Dimension, width: Dimension) -> Image:
    """The image of those pixels alone."""
    return Image(x.batch, x.channels, height, width, x.block, x.dtype)


def after_gathering(code: Code, x: Image, win: Window, few: Image, target: Target) -> Code:
    """Code over the image `few` in place of its operand 0, behind a step that makes it of that."""
    image, place = Argument("input", 0), Argument("temporary", len(code.temporaries))
    steps = [
        replace(step, arguments=tuple(place if a == image else a for a in step.arguments))
        for step in code.steps
    ]
    first = _step(x, win, few, place.index, target)
    return replace(code, steps=(first, *steps), temporaries=(*code.temporaries, x.batch * few.image))


def _step(x: Image, win: Window, few: Image, buffer: int, target: Target) -> Step:
    """A part is a plane."""
    k, kind = KernelText(target), vector_type(memory_type(x.dtype), x.block)
    with k.entry() as f, f.loop("%first", "%last") as plane:
        source = f.offset(x.of_plane(f, f.input(0), plane.index), f.size(x.origin))
        to = few.of_plane(f, f.temporary(buffer), plane.index)
        with f.loop(0, f.size(few.height)) as y:
            row = f.offset(source, f.mul(y.index, f.size(x.row * win.strides[0])))
            out = f.offset(to, f.mul(y.index, f.size(few.row)))
            with f.loop(0, f.size(few.width)) as pixel:
                value = f.load(kind, f.offset(row, f.mul(pixel.index, x.pixel * win.strides[1])), x.align)
                f.store(kind, value, f.offset(out, f.mul(pixel.index, few.pixel)), few.align)
    parts = x.batch * x.blocks
    return k.step(parts, costs.work(gathering(target, x, few.height, few.width, win), parts))
