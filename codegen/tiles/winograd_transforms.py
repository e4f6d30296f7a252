"""The transforms of Winograd's minimal filtering F(m, r): m results of a window of r from t = m + r - 1
inputs by t products (Toom and Cook; "Fast Algorithms for Convolutional Neural Networks", Lavin and Gray,
2015).

    result * ((weights * w) . (data * x)),   the same along each axis of an image

Of bytes all is computed in whole numbers, exactly: what the transform of weights would divide by is left in
the result, `scale` times it, where sums are modulo a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from math import lcm, prod

from ...ir import dtypes
from ...records import dataclass
from ..text.vectors import Vectors

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Transforms:
    """The matrices of F(m, r), of t = m + r - 1 points 0, p, -p, ..., infinity (Toom and Cook): data (t x t),
    weights (t x r) and result (m x t). Rows of data and weights for p and -p differ in the sign of their
    odd columns, columns of result in that of their odd rows. `scale`: how many times too large results
    are."""

    data: Matrix
    weights: Matrix
    result: Matrix
    scale: int = 1


@cache
def transforms(m: int, r: int) -> Transforms:
    """Those of m results of r taps, over the m + r - 2 simplest points and infinity."""
    t = m + r - 1
    points = [Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2")[: t - 1]]

    def polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """The coefficients of the product of x - root, of x to the 0, 1, ..., t - 1."""
        found = [Fraction(1)]
        for root in roots:
            found = [a - root * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)])]
        return tuple(found + [Fraction(0)] * (t - len(found)))

    others = [[q for q in points if q != p] for p in points]
    last = (Fraction(0),) * (r - 1) + (Fraction(1),)
    return Transforms(
        (*(polynomial(o) for o in others), polynomial(points)),
        (*(tuple(p**k / prod(p - q for q in o) for k in range(r)) for p, o in zip(points, others)), last),
        tuple((*(p**i for p in points), Fraction(i == m - 1)) for i in range(m)),
    )


@cache
def whole_transforms(m: int, r: int, most: int) -> Transforms | None:
    """Those in whole numbers alone, where a row of weights gives no more than `most` times the greatest. What
    is too much for that, a power of two, results are multiplied by."""
    plain = transforms(m, r)
    if any(c.denominator > 1 for row in (*plain.data, *plain.result) for c in row):
        return None
    scale = lcm(*(c.denominator for row in plain.weights for c in row))
    weights, left = [], []
    for row in plain.weights:
        wanted, times = tuple(c * scale for c in row), 1
        while sum(map(abs, wanted)) > most:
            wanted, times = tuple(c / 2 for c in wanted), 2 * times
        if any(c.denominator > 1 for c in wanted):
            return None
        weights.append(wanted)
        left.append(times)
    result = tuple(tuple(c * times for c, times in zip(row, left)) for row in plain.result)
    return Transforms(plain.data, tuple(weights), result, scale)


def combination(v: Vectors, factors: Sequence[Fraction], values: Sequence[str]) -> str:
    """The sum of factor * value; not every factor is zero."""
    (_, first), *terms = sorted((c != 1, k) for k, c in enumerate(factors) if c)  # 1 needs no product
    total = values[first]
    if factors[first] != 1:
        total = v.mul(total, _factor(v, factors[first]))
    for _, k in terms:
        if abs(factors[k]) == 1:
            total = (v.add if factors[k] == 1 else v.sub)(total, values[k])
        else:
            total = v.fma(values[k], _factor(v, factors[k]), total)
    return total


def _factor(v: Vectors, factor: Fraction) -> str:
    return v.constant(float(factor) if v.floating else int(factor))


def by_rows(v: Vectors, matrix: Matrix, values: Sequence[str]) -> list[str]:
    """matrix * values. Neighbouring rows that differ in the sign of their odd columns, as those for p and -p
    do, are a sum and a difference."""
    found: list[str] = []
    while len(found) < len(matrix):
        row, behind = matrix[len(found)], matrix[len(found) + 1 : len(found) + 2]
        even, odd = (tuple(c if k % 2 == side else Fraction(0) for k, c in enumerate(row)) for side in (0, 1))
        if any(odd) and behind == (tuple(a - b for a, b in zip(even, odd)),):
            a, b = combination(v, even, values), combination(v, odd, values)
            found += [v.add(a, b), v.sub(a, b)]
        else:
            found.append(combination(v, row, values))
    return found


def by_columns(v: Vectors, matrix: Matrix, values: Sequence[str]) -> list[str]:
    """matrix * values where columns 1 and 2, 3 and 4, ... differ in the sign of their odd rows."""
    if len(values) == 1:
        return list(values)
    pairs = list(zip(values[1:-1:2], values[2:-1:2]))
    sums = [v.add(a, b) for a, b in pairs], [v.sub(a, b) for a, b in pairs]
    return [
        combination(v, (row[0], *row[1:-1:2], row[-1]), (values[0], *sums[i % 2], values[-1]))
        for i, row in enumerate(matrix)
    ]


Transform = Callable[[Vectors, Matrix, Sequence[str]], list[str]]
Axes = tuple[Matrix, Matrix]  # those of rows and of columns
ZERO = "zeroinitializer"


def axes(matrices: Iterable[Matrix]) -> Axes:
    rows, columns = matrices
    return rows, columns


class Transformed:
    """matrix * grid * matrix' with the matrix of either axis, for a grid of values `load(row, column)` whose
    columns are transformed at once and whose rows when they are asked for.

    What registers do not hold between the two goes through memory, in order, rather than where LLVM would
    spill it, and both are loops: unrolled they were most of a convolution's code. added: to every result,
    which is to the value of the grid at the point 1 of both axes. number: of those whose memory is in use at
    a time, `count`. taken: what is taken off every value of the grid."""

    def __init__(
        self,
        transform: Transform,
        v: Vectors,
        matrices: Axes,
        load: Callable[[int, str | int], str],
        align: int,
        added: str = ZERO,
        number: int = 0,
        count: int = 1,
        taken: int = 0,
    ):
        self.transform, self.v, self.matrices, self.align = transform, v, matrices, align
        self.taken = taken
        height, width = (len(matrix[0]) for matrix in matrices)
        self.point = min(1, height - 1), min(1, width - 1)
        self.added, f, values = added, v.f, len(matrices[0]) * width
        self.nbytes = v.lanes * dtypes.itemsize(v.dtype)
        self.columns: list[list[str]] = []
        if values <= f.text.target.vector_registers:
            grid: list[list[str]] = [[load(y, x) for y in range(height)] for x in range(width)]
            y, x = self.point
            grid[x][y] = self._sum(grid[x][y])
            self.columns = [self._column(column) for column in grid]
            return
        memory = f.hoisted(f"alloca [{count * values} x {v.type}], align {align}", "ptr")
        self.memory = f.offset(memory, number * values * self.nbytes)
        with f.loop(0, width) as across:
            column = self._column([load(y, across.index) for y in range(height)])
            place = f.element(self.memory, across.index, self.nbytes)
            for y, value in enumerate(column):
                f.store(v.type, value, f.offset(place, y * width * self.nbytes), align)

    def _column(self, values: Sequence[str]) -> list[str]:
        """A column transformed, in which most rows of the matrix make nothing of what is taken off."""
        found, v = self.transform(self.v, self.matrices[0], values), self.v
        less = [int(sum(row)) * self.taken for row in self.matrices[0]]
        return [v.sub(x, v.constant(n)) if n else x for x, n in zip(found, less, strict=True)]

    def _sum(self, value: str) -> str:
        return value if self.added == ZERO else self.v.add(value, self.added)

    def rows(self, first: str, behind: str) -> Iterator[str | int]:
        """The numbers of rows, for each of which what follows is emitted: all, or in a loop these."""
        if self.columns:
            yield from range(len(self.matrices[0]))
        else:
            with self.v.f.loop(first, behind) as loop:
                yield loop.index

    def row(self, y: str | int) -> list[str]:
        """The row of the result with a number of `rows`."""
        if isinstance(y, int):
            return self.transform(self.v, self.matrices[1], [column[y] for column in self.columns])
        f, v, width = self.v.f, self.v, len(self.matrices[1][0])
        place = f.element(self.memory, y, width * self.nbytes)
        values: list[str] = [
            f.load(v.type, f.offset(place, x * self.nbytes), self.align) for x in range(width)
        ]
        values[self.point[1]] = self._sum(values[self.point[1]])
        return self.transform(v, self.matrices[1], values)
