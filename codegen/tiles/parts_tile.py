"""Tiles of rows and panels that are split into bfloat16s (`thirds.py`), on registers that hold matrices: some
steps of k, behind which their sums lie in scratch memory.

    %a        [row][step][part][32]                      rows, whose parts another step made
    %parts    [step][part][k / 2][vectors][16][2]        a run of steps of a panel
    %sums     [row][vectors][16]                         float32: of the steps before, then of these too

Where sums go on in a run after this one, the tile splits a share of that run's panel meanwhile: vectors have
nothing else to do while matrices are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...records import dataclass
from ..text.emitter import Function, Text
from . import matrix, thirds
from .matrix import MatrixTile, Writer
from .panel_operand import Ahead
from .thirds import Parts

PARAMETERS = ("ptr %a", "ptr %parts", "ptr %sums", "i64 %first", "i64 %steps", "ptr %ahead")
SHARE = ("ptr %panel", "ptr %to", "i64 %pair", "i64 %most")  # what tiles that split one are given, too


@dataclass(frozen=True)
class PartsTile:
    """A tile in `registers`, whose rows are `row_bytes` apart. ahead: bytes of the next panel that a step
    fetches, or 0."""

    registers: MatrixTile
    parts: Parts
    row_bytes: int
    ahead: int

    @property
    def step_bytes(self) -> int:
        """Of a row's parts in a step of k."""
        return self.parts.step_bytes(1, 0)

    def below(self, f: Function, pointer: str, step: int) -> list[str]:
        """The address of each register's first row, where rows are so many bytes apart."""
        tile = self.registers
        return [f.offset(pointer, i * tile.unit.rows * step) for i in range(tile.high)]

    def fetching(self, f: Function, index: int | str = 0) -> Ahead | None:
        """What is fetched of the next panel, from a step of this run on."""
        if not self.ahead:
            return None
        return Ahead(f.offset("%ahead", f.mul(index, self.ahead)), self.ahead)

    def write(self, text: Text, name: str, share: Share | None = None) -> None:
        """The function that multiplies %steps steps, from the %first on, and splits a share meanwhile."""
        tile, parameters = self.registers, [*PARAMETERS, *(SHARE if share else ())]
        with text.function(name, parameters, attributes="nounwind noinline") as f:

            def others(index: str) -> Sequence[Writer]:
                return share.splits(f, self, f.minimum(index, "%most")) if share else ()

            sums = self.below(f, "%sums", tile.line)
            matrix.clear_or_load(f, tile, f.compare("eq", "%first", 0, "i64"), sums, tile.line)
            rows, sizes = self.below(f, "%a", self.row_bytes), (self.row_bytes, self.step_bytes)
            ahead = self.fetching(f)
            thirds.multiply_add(
                f, tile, rows, *sizes, "%parts", "%steps", ahead, parts=self.parts, others=others
            )
            matrix.store(f, tile, sums, tile.line)
            f.statement("ret void")


@dataclass(frozen=True)
class Share:
    """What a tile splits of every step of the next run's panel, of `dtype`: so many pairs of neighbours along
    k, from %pair on. Behind %most, the last step of that run, it is split again."""

    pairs: int
    lanes: int
    dtype: str

    def splits(self, f: Function, tile: PartsTile, step: str) -> Sequence[Writer]:
        """What is written of a step."""
        return thirds.splits(
            *(f, tile.parts, tile.registers, self.lanes, "%panel", "%to", step, "%pair"),
            self.pairs,
            self.dtype,
        )
