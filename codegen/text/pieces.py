"""Odd functions that end at 1, erf and tanh, looked up: a polynomial for each piece of the line, whose
coefficients vectors permute out of two registers.

    x = middle of a piece + distance        f(x) = x * (c[n] distance^n + ... + c[0])
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from math import cos, erf, pi, sqrt, tanh

import numpy as np

from ...records import dataclass
from .emitter import Reg, literal, scalar_type, vector_constant
from .vectors import Vectors


@dataclass(frozen=True)
class Pieces:
    """Of a function f, around 0, `width`, twice the width, ...: for each power of the distance from a middle,
    the highest first, the coefficients of all pieces in f(x)/x."""

    width: float
    coefficients: list[list[Reg]]


def looked_up(v: Vectors, x: str, pieces: Pieces, rounder: float) -> str:
    """The function of x; 1 beyond its pieces. rounder: added to a number it leaves that as an integer in the
    low bits."""
    a, rounding, width = v.abs(x), v.constant(rounder), pieces.width
    count, kind = len(pieces.coefficients[0]), scalar_type(v.dtype)
    bounded = v.minimum(a, v.constant((count - 0.51) * width), True)
    t = v.fma(bounded, v.constant(1 / width), rounding)
    distance = v.fma(v.sub(t, rounding), v.constant(-width), bounded)
    half = count // 2
    first, *others = (
        v.permuted([vector_constant(kind, c) for c in (column[:half], column[half:])], v.bits(t))
        for column in pieces.coefficients
    )
    total: str = first
    for coefficient in others:
        total = v.fma(total, distance, coefficient)
    return v.copysign(v.minimum(v.mul(a, total), v.constant(1), True), x)


@cache
def erf32() -> Pieces:
    """To 3e-9."""
    return _single(erf, 2 / sqrt(pi), 1 / 8, 4)


@cache
def tanh32() -> Pieces:
    """To 2e-9."""
    return _single(tanh, 1.0, 9 / 32, 5)


def _single(f: Callable[[float], float], slope: float, width: float, degree: int) -> Pieces:
    """32 pieces of a float32 function, by polynomials through Chebyshev's nodes; f(x)/x is `slope` at 0."""
    found = []
    for middle in (piece * width for piece in range(32)):
        nodes = [middle + cos((2 * k + 1) * pi / (2 * degree + 2)) * width / 2 for k in range(degree + 1)]
        values = [f(x) / x if x else slope for x in nodes]
        found.append(np.polyfit([x - middle for x in nodes], values, degree))
    columns = [[literal(float(np.float32(c)), "float32") for c in column] for column in zip(*found)]
    return Pieces(width, columns)


@cache
def erf64() -> Pieces:
    """16 pieces, to 1e-16."""
    width, count = 0.375, 12
    found = []
    with localcontext() as context:
        context.prec = 50
        for piece in range(16):
            steps = [Decimal(cos((2 * k + 1) * pi / (2 * count)) * width / 2) for k in range(count)]
            differences = [_erf_over(Decimal(piece * width) + step) for step in steps]
            for order in range(1, count):  # Newton's divided differences
                for k in range(count - 1, order - 1, -1):
                    rise = differences[k] - differences[k - 1]
                    differences[k] = rise / (steps[k] - steps[k - order])
            powers = [differences[-1]]
            for step, difference in zip(steps[-2::-1], differences[-2::-1], strict=True):
                powers = [a - step * b for a, b in zip([*powers, Decimal(0)], [Decimal(0), *powers])]
                powers[-1] += difference
            found.append(powers)
    return Pieces(width, [[literal(float(c), "float64") for c in row] for row in zip(*found)])


def _erf_over(x: Decimal) -> Decimal:
    """erf(x) / x = 2 / sqrt(pi) exp(-x²) (1 + 2x²/3 + (2x²)²/(3 5) + ...)"""
    term = total = Decimal(1)
    k = 1
    while term > total * Decimal("1e-45"):
        k += 2
        term *= 2 * x * x / k
        total += term
    return Decimal("1.1283791670955125738961589031215451716881012586580") * (-x * x).exp() * total
