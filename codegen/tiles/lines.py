"""How kernels cut a plane into parts: by lines, which are the rows of a blocked image, the pixels of one of a
single row, the tiles of queries that attention has of a head, or the tiles of rows of a product. Sizes alone
decide, so that any number of threads gives the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from ...ir import dims
from ...ir.dims import Dimension
from ...records import dataclass
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import KernelFunction
from .blocked import Image

SOME = 4  # images of a batch of which only the run knows how many there are

#: What is outermost: the panels of an image, the lines of an image, or panels over all images of a batch.
Order = Literal["panels", "lines", "batch"]


class InLines:
    """What goes through the image `out` by lines."""

    out: Image

    @property
    def single_row(self) -> bool:
        """Whether lines are pixels rather than rows."""
        return self.out.height == 1

    @property
    def length(self) -> Dimension:
        """How many lines there are."""
        return self.out.width if self.single_row else self.out.height


@dataclass(frozen=True)
class Lines:
    """`length` lines in `count` chunks of `each`. What is left is the last chunk's too, or all chunks are
    nearly `equal`, and then `least` of them at least. `most`: how many of an image are gone through together,
    if not all that a thread has."""

    length: Dimension
    each: int
    equal: bool = False
    most: Dimension | None = None
    least: Dimension = 1

    @property
    def count(self) -> Dimension:
        return dims.maximum(dims.maximum(1, self.least), self.length // self.each)

    def at(self, f: KernelFunction, chunk: str, length: Dimension | None = None) -> tuple[str, str]:
        """(first, beyond the last) line of a chunk; of as many lines as there are, or `length`."""
        length = self.length if length is None else length
        if self.equal:
            count = f.size(self.count)
            first, behind = (f.divide(f.mul(n, f.size(length)), count)[0] for n in (chunk, f.add(chunk, 1)))
            return first, behind
        first = f.mul(chunk, self.each)
        final = f.compare("eq", chunk, f.size(self.count - 1))
        return first, f.select(final, "i64", f.size(length), f.add(first, self.each))


def cut_lines(length: Dimension, step: int, planes: Dimension, nanoseconds: float, least: float = 1) -> Lines:
    """The lines of each of `planes` planes in chunks of multiples of `step`, as many as their time, for all
    planes, is worth; `least` is how many chunks a plane needs."""
    wanted = max(least, costs.parts_for(nanoseconds) / dims.typical(planes))
    return Lines(length, max(step, int(dims.typical(length) / max(1, wanted)) // step * step))


def order_of(
    target: Target, batch: Dimension, image: float, weights: float, panels: int, chunks: Dimension
) -> Order:
    """In which order parts follow each other, that which reads less from outside the second-level cache.
    image, weights: bytes, of which a part needs one of `chunks` and one of `panels`."""
    half = target.facts.level2_bytes // 2
    images = batch if isinstance(batch, int) else max(SOME, dims.typical(batch))
    reads: dict[Order, float] = {
        "panels": images * (weights + image * (panels if image > half else 1)),
        "lines": images * (weights * dims.typical(chunks) + image),
        "batch": weights + images * image * (panels if images * image > half else 1),
    }
    return min(reads, key=lambda order: reads[order])


def ordered(
    f: KernelFunction, part: str, order: Order, panels: int, batch: Dimension, chunks: Dimension
) -> tuple[str, str, str, str]:
    """Which image, panel and chunk a part is, and which of a panel's parts that follow each other."""
    if order == "lines":
        rest, panel = f.divide(part, panels)
        n, chunk = f.divide(rest, f.size(chunks))
        return n, panel, chunk, "0"
    rest, inside = f.divide(part, f.size(chunks * (batch if order == "batch" else 1)))
    if order == "batch":
        n, chunk = f.divide(inside, f.size(chunks))
        return n, rest, chunk, inside
    return *f.divide(rest, panels), inside, inside


def read_again(target: Target, image: float, weights: float, panels: int) -> Estimate:
    """What tiles wait for where they read anew from beyond the second-level cache: weights for each chunk of
    lines of half of it, and of these lines, for each panel, what it does not hold beside weights of a panel
    and of the next one; or the whole image for each panel."""
    level2, panels = target.facts.level2_bytes, max(1, panels)
    chunks, held = math.ceil(2 * image / level2), min(image, level2 / 2)
    lost, missed = (1 - costs.fitting(held + w, level2) for w in (weights, 2 * weights / panels))
    again = image * (panels - 1)
    nbytes = min(lost * weights * max(0, chunks - 1) + missed * again, again)
    return costs.waited(target, nbytes, image + weights)


@contextmanager
def joined(
    f: KernelFunction, lines: Lines, first: str, last: str, batch: Dimension
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Goes through chunks first..last-1, at least one, which are numbered by image and chunk: the body is
    written for (n, lines), those of an image together."""
    count = f.size(lines.count)
    beyond = f.add(f.divide(f.sub(last, 1), count)[0], 1)
    with f.loop(f.divide(first, count)[0], beyond) as image:
        before = f.mul(image.index, count)
        top, bottom = f.maximum(f.sub(first, before), 0), f.minimum(f.sub(last, before), count)
        n = image.index if batch != 1 else "0"
        if lines.most is None:
            yield n, (lines.at(f, top)[0], lines.at(f, f.sub(bottom, 1))[1])
            return
        most = f.size(lines.most)
        with f.loop(top, bottom, most) as some:
            last_of = f.sub(f.minimum(f.add(some.index, most), bottom), 1)
            yield n, (lines.at(f, some.index)[0], lines.at(f, last_of)[1])


@contextmanager
def shared_lines(
    f: KernelFunction, lines: Lines, planes: Dimension, batch: Dimension
) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Goes through parts %first..%last-1, which are numbered by image, chunk and plane: a thread has some
    lines to itself, in all planes but at its ends, and reads what it wrote itself in the step before. The
    body is written for (n, plane, lines): whole chunks together, plane by plane, as if there were none."""
    every = f.size(planes)
    (low, begin), (high, end) = f.divide("%first", every), f.divide("%last", every)
    started, ended, same = f.compare("ne", begin, 0), f.compare("ne", end, 0), f.compare("eq", low, high)
    whole = f.add(low, f.cast("zext", started, "i64"))  # the first chunk in all planes
    alone = f.binary("and", started, same, "i1")  # planes of a single chunk, which begin and end in it
    rest = f.cast("zext", f.binary("and", ended, f.invert(alone), "i1"), "i64")
    with f.loop(0, 3) as third:  # what is left of a chunk, whole chunks, what a chunk begins with
        head, tail = f.compare("eq", third.index, 0), f.compare("eq", third.index, 2)
        first = f.select(tail, "i64", high, f.select(head, "i64", low, whole))
        last = f.select(tail, "i64", f.add(high, rest), f.select(head, "i64", whole, high))
        from_ = f.select(head, "i64", begin, "0")
        ends = f.binary("or", tail, f.binary("and", head, same, "i1"), "i1")
        to = f.select(ends, "i64", end, every)
        with (
            f.when(f.compare("slt", first, last)),
            joined(f, lines, first, last, batch) as (n, here),
            f.loop(from_, to) as plane,
        ):
            yield n, plane.index, here
