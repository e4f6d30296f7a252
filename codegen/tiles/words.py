"""What tiles' functions are told because only the run knows it: sizes and distances, a word each."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.dims import Dim, Dimension
from ..kernel import KernelFunction


class Words:
    """The parameters %w0, %w1, ... for those of the dimensions that are not numbers."""

    def __init__(self, needed: Iterable[Dimension]):
        self.dimensions = list(dict.fromkeys(d for d in needed if isinstance(d, Dim)))

    @property
    def names(self) -> list[str]:
        return [f"%w{k}" for k in range(len(self.dimensions))]

    def of(self, dimension: Dimension) -> int | str:
        """A dimension inside a tile's function."""
        return self.names[self.dimensions.index(dimension)] if isinstance(dimension, Dim) else dimension

    def values(self, f: KernelFunction) -> list[str]:
        """What the entry gives for them."""
        return [f.size(dimension) for dimension in self.dimensions]
