"""Tiles of split rows and codes of few bits, on registers that hold matrices (`parts_tile.py`): codes less
their zero points are bfloat16s, and the sums of a block are scaled.

    registers  =  a row's parts  *  codes of a block         stored in %near
    %sums     +=  %near  *  the block's scales               on vectors, while the next block is multiplied

Where a run is shorter than a block, the sums of what it has of one are scaled. %panel is stored as
`stored_form.py` says, %near and %sums are [row][vectors][16] of float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...records import dataclass
from ..text.emitter import Function, Text
from ..text.vectors import Vectors
from . import matrix, stored_panel, thirds
from .matrix import Writer
from .parts_tile import PARAMETERS, PartsTile
from .stored_form import Form

SCALING = ("ptr %panel", "ptr %near", "i64 %rows")  # what these tiles are given, too


@dataclass(frozen=True)
class CodesTile(PartsTile):
    """A tile over panels of a form, the sums of at most `together` steps of which are scaled together."""

    form: Form
    together: int
    lanes: int

    def write_scaled(self, text: Text, name: str) -> None:
        """The function that multiplies %steps steps, from the %first on. Rows behind %rows are zeros."""
        tile = self.registers
        with text.function(name, [*PARAMETERS, *SCALING], attributes="nounwind noinline") as f:
            with f.when(f.compare("eq", "%first", 0, "i64")):
                self.clear_rows(f, ["%sums"], 0, "%rows")
            self.clear_rows(f, ["%sums", "%near"], "%rows", tile.high * tile.unit.rows)
            kind, scales = self.vectors(f).type, self.sum_codes(f, 0)
            with f.loop(self.together, "%steps", self.together, [(kind, x) for x in scales]) as loop:
                loop.carry(*self.sum_codes(f, loop.index, self.scaled(f, loop.carried)))
            for add in self.scaled(f, loop.results):
                add()
            f.statement("ret void")

    def vectors(self, f: Function) -> Vectors:
        """Of sums."""
        return Vectors(f, "float32", self.lanes)

    def clear_rows(self, f: Function, places: Sequence[str], first: str | int, last: str | int) -> None:
        """Zeros in rows of sums."""
        v, count = self.vectors(f), self.registers.vectors
        with f.loop(f.mul(first, count), f.mul(last, count)) as loop:
            for place in places:
                f.store(v.type, "zeroinitializer", f.offset(place, f.mul(loop.index, 4 * v.lanes)), 64)

    def sum_codes(self, f: Function, index: str | int, others: Sequence[Writer] = ()) -> list[str]:
        """The sums of the steps that are scaled together, from one of a run on, to %near; their scales.
        `others` write what is done meanwhile."""
        tile, parts = self.registers, self.parts
        matrix.clear(f, tile)
        rows = self.below(f, f.offset("%a", f.mul(index, self.step_bytes)), self.row_bytes)
        panel = f.offset("%parts", f.mul(index, parts.beside * tile.panel_step))
        ahead = self.fetching(f, index)
        if ahead is not None:
            ahead.fetch(f)
        thirds.add_step(f, parts, tile, rows, self.row_bytes, panel, others)
        if self.together > 1:
            rows = [f.offset(p, parts.count * matrix.STEP_BYTES) for p in rows]
            panel = f.offset(panel, parts.beside * tile.panel_step)
            ahead = ahead and ahead.after(f, 1)
            rest = f.sub(self.scaled_steps(f, index), 1)
            sizes = self.row_bytes, self.step_bytes
            thirds.multiply_add(f, tile, rows, *sizes, panel, rest, ahead, parts=parts)
        matrix.store(f, tile, self.below(f, "%near", tile.line), tile.line)
        return self.scales(f, index)

    def scales(self, f: Function, index: str | int) -> list[str]:
        """Those of the block that a step of a run lies in, for each vector of columns."""
        tile, v = self.registers, self.vectors(f)
        block = f.divide(f.mul(f.add("%first", index), tile.unit.depth), self.form.block)[0]
        scales = f.offset("%panel", f.mul(block, self.form.block_bytes(tile.columns)))
        return [f.load(v.type, f.offset(scales, 4 * j * v.lanes)) for j in range(tile.vectors)]

    def scaled(self, f: Function, scales: Sequence[str]) -> list[Writer]:
        """What adds a vector of %near, scaled, to its place in %sums, for each of all rows."""
        tile, v = self.registers, self.vectors(f)

        def add(at: int, scale: str) -> None:
            near, there = (f.offset(place, at) for place in ("%near", "%sums"))
            added = v.fma(f.load(v.type, near, 64), scale, f.load(v.type, there, 64))
            f.store(v.type, added, there, 64)

        places = range(0, tile.high * tile.unit.rows * tile.line, 4 * v.lanes)
        return [partial(add, at, scales[k % tile.vectors]) for k, at in enumerate(places)]

    def scaled_steps(self, f: Function, index: str | int) -> str:
        """The steps of a run that are scaled together, from one on: the last block may be shorter."""
        return f.minimum(f.sub("%steps", index), self.together)

    def decode(self, f: Function) -> None:
        """Writes the codes of %steps steps of %panel as bfloat16s, from the %first on, block by block."""
        vectors, depth = self.registers.vectors, self.registers.unit.depth
        with f.loop(0, "%steps", self.together) as loop:
            row = f.mul(f.add("%first", loop.index), depth)
            out = f.offset("%parts", f.mul(loop.index, 2 * depth * vectors * self.lanes))
            rows = f.mul(self.scaled_steps(f, loop.index), depth)
            stored_panel.decode_pairs(f, self.form, vectors, self.lanes, "%panel", row, rows, out)
