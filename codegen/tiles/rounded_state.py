"""Rows that are rounded to bytes over the range of all of them, before a product with weights.

    widen    range = what it covers and the elements of a row       (it begins with 0)
    settle   step, zero = those of DynamicQuantizeLinear
    round    row = round(x / step) + zero, within 0 and 255
As integers a row is `padded_depth` bytes of int8, the bytes less 128, and behind them its step (float32),
what the weights' zero points add to its sums (`stored_panel.multiply_add_rounded`) and minus its zero point
(int32), which multiplies the sum of each column; else it is numbers again.
"""

from __future__ import annotations

import numpy as np

from ...ir.stored import Stored
from ...records import dataclass
from ...target import LINE, Dot
from ..text.conversion import cast
from ..text.emitter import Function, Text
from ..text.memory import load_first, store_first
from ..text.shuffles import across
from ..text.vectors import Vectors
from . import stored_panel
from .microkernel import Rows, Tile, row_address
from .packing import padded
from .stored_form import Form

TYPES = ("int8", "uint8", "int32")  # of rounded rows, codes, sums of their products
BESIDE = 12  # bytes behind a row
SUM = 4  # bytes of a column's
LEAST = 128  # what bytes are more than int8


def takes(form: Form) -> bool:
    """Whether products with codes of that form are sums of integers."""
    whole = form.zeros == "uint8" or (form.zero is not None and form.zero.is_integer())
    return form.bits == 8 and form.blocks == 1 and whole and not form.table


def sums_of(found: Stored, lanes: int) -> np.ndarray:
    """The sum of each column of weights [K, N] less its zero point, as bytes of int32."""
    elements = found.elements.array.astype(np.float64)
    total = (elements - found.zero).sum(0)
    result = np.zeros(padded(len(total), lanes), np.int32)
    result[: len(total)] = total
    return result.view(np.uint8)


def multiply_add(
    f: Function, tile: Tile, rows: Rows, panel: str, form: Form, dot: Dot, sums: str
) -> list[str]:
    """The products of rounded rows with a panel, of whose columns `sums` are those that `sums_of` made."""
    lhs, rhs, accumulate = TYPES
    words = Vectors(f, accumulate, tile.lanes)
    behind = [f.offset(pointer, form.padded_depth) for pointer in rows.pointers]
    columns = [f.load(words.type, f.offset(sums, SUM * j * tile.lanes)) for j in range(tile.vectors)]
    begun = []
    for r in range(tile.rows):
        zero = f.broadcast("i32", f.load("i32", row_address(f, rows, behind, r, 8), 4), tile.lanes)
        begun += [words.mul(zero, column) for column in columns]
    integers = Tile(tile.rows, tile.vectors, tile.lanes, lhs, rhs, accumulate, dot)
    return stored_panel.multiply_add_rounded(f, integers, rows, panel, form, begun)


@dataclass(frozen=True)
class RoundedState:
    """Writes the functions for rows of `depth` numbers of float32. `form`: of the weights, where rows become
    integers."""

    depth: int
    lanes: int
    form: Form | None

    @property
    def row_bytes(self) -> int:
        """From one rounded row to the next."""
        return padded(4 * self.depth if self.form is None else self.form.padded_depth + BESIDE, LINE)

    @property
    def range_bytes(self) -> int:
        """The least and the greatest in each lane; then the step and the zero point."""
        return padded(8 * self.lanes, LINE)

    def begin(self, f: Function, at: str) -> None:
        v = Vectors(f, "float32", self.lanes)
        for k in range(2):
            f.store(v.type, v.constant(0), f.offset(at, 4 * k * self.lanes), 4)

    def emit(self, text: Text, name: str) -> None:
        """{name}.widen(row, range), {name}.settle(range) and {name}.round(row, range, rounded)."""
        with text.function(f"{name}.widen", ["ptr %h", "ptr %range"], attributes="nounwind noinline") as f:
            self._widen(f)
            f.statement("ret void")
        with text.function(f"{name}.settle", ["ptr %range"], attributes="nounwind noinline") as f:
            self._settle(f)
            f.statement("ret void")
        parameters = ["ptr %h", "ptr %range", "ptr %q"]
        with text.function(f"{name}.round", parameters, attributes="nounwind noinline") as f:
            self._round(f)
            f.statement("ret void")

    def _widen(self, f: Function) -> None:
        v = Vectors(f, "float32", self.lanes)
        places = [f.offset("%range", 4 * k * self.lanes) for k in range(2)]
        begun = [f.load(v.type, at, 4) for at in places]
        whole, rest = divmod(self.depth, self.lanes)
        with f.loop(0, whole, 1, [(v.type, x) for x in begun]) as loop:
            before = loop.carried
            x = f.load(v.type, f.offset("%h", f.mul(loop.index, 4 * self.lanes)), 4)
            loop.carry(v.minimum(before[0], x, True), v.maximum(before[1], x, True))
        found = list(loop.results)
        if rest:
            x = load_first(f, "float32", self.lanes, f.offset("%h", 4 * whole * self.lanes), rest)
            found = [v.minimum(found[0], x, True), v.maximum(found[1], x, True)]
        for at, extreme in zip(places, found):
            f.store(v.type, extreme, at, 4)

    def _settle(self, f: Function) -> None:
        v = Vectors(f, "float32", self.lanes)
        lows, highs = (f.load(v.type, f.offset("%range", 4 * k * self.lanes), 4) for k in range(2))
        low, high = across(v, lows, v.minimum), across(v, highs, v.maximum)
        span = v.div(v.sub(high, low), v.constant(255))
        step = v.select(v.compare("eq", span, v.constant(0)), v.constant(1), span)
        zero = v.unary("roundeven", _within(v, v.div(v.neg(low), step), 0, 255))
        for k, x in enumerate((step, v.sub(zero, v.constant(LEAST)))):
            f.store(v.type, x, f.offset("%range", 4 * k * self.lanes), 4)

    def _round(self, f: Function) -> None:
        """The row at %h, rounded, to %q: integers and what lies behind them, or numbers again."""
        v = Vectors(f, "float32", self.lanes)
        step, zero = (f.load(v.type, f.offset("%range", 4 * k * self.lanes), 4) for k in range(2))

        def vector(index: int | str, count: int | None) -> str:
            """The integers of a vector of the row, which are written."""
            place = f.offset("%h", f.mul(index, 4 * self.lanes))
            x = load_first(f, "float32", self.lanes, place, count)
            steps = v.add(v.unary("roundeven", v.div(x, step)), zero)
            rounded = _within(v, steps, -LEAST, LEAST - 1)
            if self.form is None:
                number = v.mul(v.sub(rounded, zero), step)
                store_first(
                    f, "float32", self.lanes, number, f.offset("%q", f.mul(index, 4 * self.lanes)), count
                )
            else:
                out = f.offset("%q", f.mul(index, self.lanes))
                store_first(f, "int8", self.lanes, cast(v, "int8", rounded, within=True), out, count)
            return rounded

        whole, rest = divmod(self.depth, self.lanes)
        with f.loop(0, whole, 1, [(v.type, v.constant(0))]) as loop:
            loop.carry(v.add(loop.carried[0], vector(loop.index, None)))
        total: str = loop.results[0]
        if rest:  # the lanes behind are zeros, whose bytes are taken off below
            total = v.add(total, vector(whole, rest))
        if self.form is None:
            return
        beside = f.offset("%q", self.form.padded_depth)
        one = Vectors(f, "float32", 1)
        total, zero = f.extract(across(v, total, v.add), 0), f.extract(zero, 0)
        if rest:
            total = one.sub(total, one.mul(zero, one.constant(self.lanes - rest)))
        f.store("float", f.extract(step, 0), beside, 4)
        if self.form.zeros:
            f.store("float", one.neg(total), f.offset(beside, 4), 4)
        else:
            added = one.mul(total, one.constant(-(self.form.zero or 0.0)))
            f.store("i32", cast(one, "int32", added), f.offset(beside, 4), 4)
        f.store("i32", cast(one, "int32", one.neg(zero)), f.offset(beside, 8), 4)


def _within(v: Vectors, x: str, low: float, high: float) -> str:
    """x, or the nearest bound; of NaN the upper."""
    return v.maximum(v.constant(low), v.minimum(v.constant(high), x, True), True)
