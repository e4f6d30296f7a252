"""How kernels over blocked images cut a plane into parts: by lines, which are the rows of an image or
the pixels of an image of one row. Sizes alone decide, so that any number of threads gives the same.
"""

from __future__ import annotations

from ...ir import dims
from ...ir.dims import Dimension
from ...records import dataclass
from .. import costs
from ..kernel import KernelFunction


@dataclass(frozen=True)
class Lines:
    """`length` lines in `count` chunks of `each`; the last chunk has what is left too."""

    length: Dimension
    each: int

    @property
    def count(self) -> Dimension:
        return dims.maximum(1, self.length // self.each)

    def at(self, f: KernelFunction, chunk: str, length: Dimension | None = None) -> tuple[str, str]:
        """(first, beyond the last) line of a chunk; of as many lines as there are, or `length`."""
        length = self.length if length is None else length
        first = f.mul(chunk, self.each)
        final = f.compare("eq", chunk, f.size(self.count - 1))
        return first, f.select(final, "i64", f.size(length), f.add(first, self.each))


def cut_lines(length: Dimension, step: int, planes: Dimension, nanoseconds: float, least: float = 1) -> Lines:
    """The lines of each of `planes` planes in chunks of multiples of `step`, as many as their time, for all
    planes, is worth; `least` is how many chunks a plane needs."""
    wanted = max(least, costs.parts_for(nanoseconds) / dims.typical(planes))
    return Lines(length, max(step, int(dims.typical(length) / max(1, wanted)) // step * step))
