"""What a reduction carries from element to element: a sum, or the best element so far and its place.

Sums of 16-bit floats run in float32. Combining is an Expr, so that it means the same in one lane and in many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir import dtypes, expr
from ...ir.expr import Expr
from ...records import dataclass
from ..text.conversion import NARROW
from ..text.emitter import Function, scalar_type, splat, vector_type
from ..text.scalar import lower


def accumulator(dtype: str) -> str:
    """The type in which elements of dtype are combined."""
    return "float32" if dtype in NARROW else "uint8" if dtype == "bool" else dtype


def neutral(kind: str, dtype: str) -> float | int:
    """What combining with changes nothing."""
    if kind in ("sum", "prod", "or"):
        return int(kind == "prod")
    if dtypes.is_float(dtype):
        return math.inf if kind == "min" else -math.inf
    low, high = dtypes.integer_range(dtype)
    return {"min": high, "max": low, "and": high if low == 0 else -1}[kind]


@dataclass(frozen=True)
class State:
    """What one result carries through its reduction: `kind` of ops.Reduce over elements of type `dtype`; for
    argmin and argmax also the place of the best element, a number of type `place`. Without `nan`, min and max
    of elements that have NaN among them may be anything."""

    kind: str
    dtype: str
    place: str = "int64"
    nan: bool = True

    @property
    def finds_place(self) -> bool:
        return self.kind.startswith("arg")

    @property
    def keeps_nan(self) -> bool:
        """Whether more than an instruction finds the greater of two."""
        return self.kind in ("min", "max") and self.nan and dtypes.is_float(self.dtype)

    @property
    def types(self) -> tuple[str, ...]:
        return (self.dtype, self.place) if self.finds_place else (self.dtype,)

    def initial(self, lanes: int) -> list[str]:
        kind = self.kind[3:6] if self.finds_place else self.kind
        return [splat(v, t, lanes) for v, t in zip((neutral(kind, self.dtype), 0), self.types)]

    def combine(self, f: Function, a: Sequence[str], b: Sequence[str], lanes: int) -> list[str]:
        """a with b, which comes after it or has any places of its own."""
        return lower(f, self._combined(), lambda i: (*a, *b)[i], lanes)

    def advance(self, f: Function, a: Sequence[str], b: Sequence[str], lanes: int) -> list[str]:
        """a with b, whose places all come after those of a."""
        if not self.finds_place:
            return self.combine(f, a, b, lanes)
        return lower(f, self._advanced(), lambda i: (*a, *b)[i], lanes)

    def _combined(self) -> list[Expr]:
        if not self.finds_place:
            name = {"sum": "add", "prod": "mul"}.get(self.kind, self.kind)
            a, b = (expr.input_(i, self.dtype) for i in range(2))
            if not self.nan:
                return [expr.where(a > b if self.kind == "max" else a < b, a, b)]
            return [expr.apply(name, a, b)]
        x, p, y, q = (expr.input_(i, t) for i, t in enumerate(self.types * 2))

        def beats(a: Expr, b: Expr) -> Expr:
            found = a > b if self.kind.startswith("argmax") else a < b
            return found | (expr.isnan(a) & ~expr.isnan(b)) if dtypes.is_float(self.dtype) else found

        nearer = q > p if self.kind.endswith("last") else q < p
        better = beats(y, x) | (~beats(x, y) & nearer)
        return [expr.where(better, y, x), expr.where(better, q, p)]

    def _advanced(self) -> list[Expr]:
        x, p, y, q = (expr.input_(i, t) for i, t in enumerate(self.types * 2))
        greatest, last = self.kind.startswith("argmax"), self.kind.endswith("last")
        if last:
            better = ~(x > y if greatest else x < y)
        else:
            better = ~(y <= x if greatest else y >= x)  # also where y is no number
        if dtypes.is_float(self.dtype):
            known = ~expr.isnan(x)
            better &= known | expr.isnan(y) if last else known
        return [expr.where(better, y, x), expr.where(better, q, p)]

    def across(self, f: Function, state: Sequence[str], lanes: int) -> list[str]:
        """The lanes combined, halves with halves; of places those alone where the best is."""
        if self.finds_place and lanes > 1:
            return self._best(f, state, lanes)
        while lanes > 1:
            half = lanes // 2
            low, high = (
                [
                    f.shuffle(x, "poison", range(first, first + half), v)
                    if half > 1
                    else f.extract(x, first, v)
                    for t, x in zip(self.types, state)
                    for v in [vector_type(scalar_type(t), lanes)]
                ]
                for first in (0, half)
            )
            state, lanes = self.combine(f, low, high, half), half
        return list(state)

    def _best(self, f: Function, state: Sequence[str], lanes: int) -> list[str]:
        """The greatest or least value of all lanes, and the first or last of its places."""
        last = self.kind.endswith("last")
        values, places = State(self.kind[3:6], self.dtype), State("max" if last else "min", self.place)
        (best,) = values.across(f, state[:1], lanes)
        x, p, all_ = expr.input_(0, self.dtype), expr.input_(1, self.place), expr.input_(2, self.dtype)
        found = x.equals(all_) if not dtypes.is_float(self.dtype) else x.equals(all_) | expr.isnan(x)
        place = expr.where(found, p, expr.const(neutral(places.kind, self.place), self.place))
        words = (*state, f.broadcast(scalar_type(self.dtype), best, lanes))
        (place_,) = places.across(f, lower(f, [place], words.__getitem__, lanes), lanes)
        return [best, place_]
