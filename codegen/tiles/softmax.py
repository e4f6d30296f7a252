"""A row of attention's weights: exp(scale * score + bias - maximum) in place, and its sum.

Where keys come in blocks the row keeps its running maximum and sum, and says by which factor what was
summed under the old maximum is corrected.
"""

from __future__ import annotations

from collections.abc import Callable

from ...records import dataclass
from ..text.emitter import Function, Text, literal
from ..text.exponentials import softmax_exp
from ..text.memory import first_lanes, load_first
from ..text.shuffles import across
from ..text.vectors import Vectors

CHAINS = 4  # independent maxima and sums
FLOAT, SIZE = "float32", 4


@dataclass(frozen=True)
class Softmax:
    """`count` keys, a number or "%count"; `bias_step` bytes from one key's bias to the next (0: one
    for all, None: no bias); `one_block`: the row is whole; `defined`: weights that are no numbers are 0."""

    lanes: int
    count: str
    scale: float
    bias_step: int | None
    one_block: bool
    defined: bool = False

    def emit(self, text: Text, name: str) -> None:
        """name(row, factors, state, [bias,] count, begin, end): factors are what the sum over the
        values is multiplied with, and what the sum so far is; state are the row's maximum and sum.
        `begin` and `end` say that the block is the first and the last."""
        pointers = ["%row", "%factors", "%state"] + ([] if self.bias_step is None else ["%bias"])
        parameters = [f"ptr {p}" for p in pointers]
        parameters += [f"i64 {n}" for n in ("%count", "%begin", "%end")]
        with text.function(name, parameters, attributes="nounwind noinline") as f:
            v = Vectors(f, FLOAT, self.lanes)
            lowest, none = v.constant(float("-inf")), v.constant(0)
            greatest = self.over_row(f, v, lowest, v.greater, self.scored(f, v, lowest))
            greatest = across(v, greatest, v.greater)
            if not self.one_block:
                greatest, old, old_total = self.continued(f, v, greatest)
            # A row of nothing but -inf has no finite maximum to subtract.
            shift = v.select(v.compare("eq", greatest, lowest), none, greatest)
            total = self.over_row(f, v, none, v.add, self.exponential(f, v, shift))
            total = across(v, total, v.add)
            if not self.one_block:
                correction = softmax_exp(v, v.sub(old, shift), self.exponent)
                total = v.fma(old_total, correction, total)
            if self.defined:
                lost = v.is_nan(total)
                with f.when(v.any(lost)), f.loop(0, self.count, self.lanes) as loop:
                    f.store(v.type, none, f.element("%row", loop.index, SIZE), SIZE)
            if not self.one_block:
                if self.defined:
                    correction = v.select(lost, none, correction)
                self.keep(f, v, "%factors", correction, SIZE)
                self.keep(f, v, "%state", greatest)
                self.keep(f, v, "%state", total, SIZE)
            factor = v.div(v.constant(1), total)
            if self.defined:
                factor = v.select(v.compare("gt", total, none), factor, none)
            nothing = f.all_of(f.compare("eq", self.count, 0), f.compare("ne", "%begin", 0))
            factor = f.select(nothing, v.type, none, factor)
            if not self.one_block:
                final = f.compare("ne", "%end", 0)
                factor = f.select(final, v.type, factor, v.constant(1))
            self.keep(f, v, "%factors", factor)
            f.statement("ret void")

    @property
    def folded(self) -> bool:
        """Whether the scale can wait for the exponent."""
        return self.bias_step is None and self.scale > 0

    @property
    def exponent(self) -> float:
        """What differences from the maximum are multiplied with in the exponent."""
        return self.scale if self.folded else 1.0

    def over_row(
        self,
        f: Function,
        v: Vectors,
        start: str,
        combine: Callable[[str, str], str],
        element: Callable[[str, str | None], str],
    ) -> str:
        """The vectors element(index, mask) of a row combined into one, four chains in turn."""
        lanes, count = self.lanes, self.count
        chunk = CHAINS * lanes
        chunks: str | int
        whole: str | int
        if count.isdigit():
            chunks, whole = int(count) // chunk * chunk, int(count) // lanes * lanes
        else:
            chunks, whole = f.round_down(count, chunk), count
        with f.loop(0, chunks, chunk, [(v.type, start)] * CHAINS) as loop:
            values = [element(f.add(loop.index, c * lanes), None) for c in range(CHAINS)]
            loop.carry(*map(combine, values, loop.carried))
        first: str = loop.results[0]
        for other in loop.results[1:]:
            first = combine(first, other)
        with f.loop(chunks, whole, lanes, [(v.type, first)]) as loop:
            mask = None
            if not count.isdigit():
                mask = first_lanes(f, f.sub(count, loop.index), lanes)
            loop.carry(combine(element(loop.index, mask), loop.carried[0]))
        total: str = loop.results[0]
        if count.isdigit() and int(count) % lanes:
            mask = first_lanes(f, int(count) % lanes, lanes)
            total = combine(element(str(whole), mask), total)
        return total

    def scored(self, f: Function, v: Vectors, lowest: str) -> Callable:
        """The element of the first pass: scale * weight + bias, the least in idle lanes."""
        biased, scale = self.bias_step is not None, v.constant(self.scale)

        def element(index: str, mask: str | None) -> str:
            place = f.element("%row", index, SIZE)
            x: str = f.load(v.type, place, SIZE)
            if not self.folded:
                x = v.fma(x, scale, self.bias(f, v, index, mask)) if biased else v.mul(x, scale)
            if mask is not None:
                x = v.select(mask, x, lowest)
            if not self.folded:
                f.store(v.type, x, place, SIZE)
            return x

        return element

    def bias(self, f: Function, v: Vectors, index: str, mask: str | None) -> str:
        """The bias of `lanes` keys from index on."""
        if self.bias_step == 0:
            return v.broadcast(f.load("float", "%bias", SIZE))
        left = None if mask is None else f.sub(self.count, index)
        return load_first(f, FLOAT, self.lanes, f.element("%bias", index, SIZE), left)

    def exponential(self, f: Function, v: Vectors, shift: str) -> Callable:
        """The element of the second pass: exp(weight - shift), stored; 0 in idle lanes."""

        def element(index: str, mask: str | None) -> str:
            place = f.element("%row", index, SIZE)
            x: str = softmax_exp(v, v.sub(f.load(v.type, place, SIZE), shift), self.exponent)
            if mask is not None:
                x = v.select(mask, x, v.constant(0))
            f.store(v.type, x, place, SIZE)
            return x

        return element

    def continued(self, f: Function, v: Vectors, greatest: str) -> tuple[str, str, str]:
        """(the maximum with that of earlier blocks, theirs, their sum)"""
        begin = f.compare("ne", "%begin", 0)
        old, total = (
            v.broadcast(f.select(begin, "float", literal(none, FLOAT), f.load("float", place, SIZE)))
            for place, none in (("%state", float("-inf")), (f.offset("%state", SIZE), 0.0))
        )
        return v.greater(greatest, old), old, total

    def keep(self, f: Function, v: Vectors, pointer: str, value: str, displacement: int = 0) -> None:
        """Stores the first lane."""
        first = value if v.lanes == 1 else f.extract(value, 0, v.type)
        f.store("float", first, f.offset(pointer, displacement), SIZE)
