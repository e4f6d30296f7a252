"""The transforms of Winograd's minimal filtering F(m, 3): m results of a window of 3 from t = m + 2 inputs
by t products (Toom and Cook; "Fast Algorithms for Convolutional Neural Networks", Lavin and Gray, 2015).

    result * ((weights * w) . (data * x)),   the same along both axes of an image
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from math import prod

from ...ir import dtypes
from ...records import dataclass
from ..text.emitter import Function
from ..text.vectors import Vectors

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Transforms:
    """The matrices of F(m, 3), of t = m + 2 points 0, p, -p, ..., infinity (Toom and Cook): data (t x t),
    weights (t x 3) and result (m x t). Rows of data and weights for p and -p differ in the sign of their
    odd columns, columns of result in that of their odd rows."""

    data: Matrix
    weights: Matrix
    result: Matrix


@cache
def transforms(m: int) -> Transforms:
    points = [Fraction(p) for p in ("0", "1", "-1", "2", "-2", "1/2", "-1/2")[: m + 1]]

    def polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """The coefficients of the product of x - root, of x to the 0, 1, ..., m + 1."""
        found = [Fraction(1)]
        for root in roots:
            found = [a - root * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)])]
        return tuple(found + [Fraction(0)] * (m + 2 - len(found)))

    others = [[q for q in points if q != p] for p in points]
    last = (Fraction(0),) * 2 + (Fraction(1),)
    return Transforms(
        (*(polynomial(o) for o in others), polynomial(points)),
        (*(tuple(p**k / prod(p - q for q in o) for k in range(3)) for p, o in zip(points, others)), last),
        tuple((*(p**i for p in points), Fraction(i == m - 1)) for i in range(m)),
    )


def combination(v: Vectors, factors: Sequence[Fraction], values: Sequence[str]) -> str:
    """The sum of factor * value; not every factor is zero."""
    (_, first), *terms = sorted((c != 1, k) for k, c in enumerate(factors) if c)  # 1 needs no product
    total = values[first]
    if factors[first] != 1:
        total = v.mul(total, v.constant(float(factors[first])))
    for _, k in terms:
        if abs(factors[k]) == 1:
            total = (v.add if factors[k] == 1 else v.sub)(total, values[k])
        else:
            total = v.fma(values[k], v.constant(float(factors[k])), total)
    return total


def by_rows(v: Vectors, matrix: Matrix, values: Sequence[str]) -> list[str]:
    """matrix * values where rows 1 and 2, 3 and 4, ... differ in the sign of their odd columns."""
    found = [combination(v, matrix[0], values)]
    for row in matrix[1:-1:2]:
        even, odd = ([c if k % 2 == side else Fraction(0) for k, c in enumerate(row)] for side in (0, 1))
        a, b = combination(v, even, values), combination(v, odd, values)
        found += [v.add(a, b), v.sub(a, b)]
    return [*found, combination(v, matrix[-1], values)]


def by_columns(v: Vectors, matrix: Matrix, values: Sequence[str]) -> list[str]:
    """matrix * values where columns 1 and 2, 3 and 4, ... differ in the sign of their odd rows."""
    pairs = list(zip(values[1:-1:2], values[2:-1:2]))
    sums = [v.add(a, b) for a, b in pairs], [v.sub(a, b) for a, b in pairs]
    return [
        combination(v, (row[0], *row[1:-1:2], row[-1]), (values[0], *sums[i % 2], values[-1]))
        for i, row in enumerate(matrix)
    ]


Transform = Callable[[Vectors, Matrix, Sequence[str]], list[str]]


def both_ways(
    transform: Transform,
    f: Function,
    v: Vectors,
    matrix: Matrix,
    size: int,
    load: Callable[[int, int], str],
    align: int,
) -> Iterator[list[str]]:
    """The rows of matrix * grid * matrix' for a grid of size x size values, `load(row, column)`. Columns that
    registers do not hold go through memory, in order, rather than where LLVM would spill them."""
    height = len(matrix)
    held = height * size <= f.text.target.vector_registers
    nbytes = v.lanes * dtypes.itemsize(v.dtype)
    memory = "" if held else f.hoisted(f"alloca [{height * size} x {v.type}], align {align}", "ptr")
    columns = []
    for x in range(size):
        column = transform(v, matrix, [load(y, x) for y in range(size)])
        if held:
            columns.append(column)
            continue
        for y, value in enumerate(column):
            f.store(v.type, value, f.offset(memory, (y * size + x) * nbytes), align)
    for y in range(height):
        row = [
            columns[x][y] if held else f.load(v.type, f.offset(memory, (y * size + x) * nbytes), align)
            for x in range(size)
        ]
        yield transform(v, matrix, row)
