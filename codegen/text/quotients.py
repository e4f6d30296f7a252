"""Quotients of float32 by a constant: a product and a multiply-add that are rounded as the division is.

    x / d = fma(x, high, x * low),   high + low = 1 / d
("Accelerating Correctly Rounded Floating-Point Division when the Divisor Is Known in Advance", Brisebarre,
Muller and Raina, 2004). A division takes as long as a dozen of them. Of an x below 2^-100 the last bit may
differ, for x * low is subnormal there.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ...ir.expr import Expr
from .emitter import Reg
from .vectors import Vectors

BITS = 1 << 23  # the first of a mantissa's
NEAR = 16  # twice the distance, in units of a divisor, at which rounding may differ
GREATEST = 2.0**60  # divisor; the least is one over it


def quotient(v: Vectors, x: str, divisor: Expr, by: str) -> Reg:
    """x / divisor of floats, where `by` is the divisor in all lanes."""
    constant = divisor.op == "const" and v.dtype == "float32" and v.f.target.fused_multiply_add
    found = factors(float(divisor.value)) if constant else None
    if found is None:
        return v.div(x, by)
    high, low = found
    if low == 0:
        return v.mul(x, v.constant(high))
    return v.fma(x, v.constant(high), v.mul(x, v.constant(low)))


@cache
def factors(divisor: float) -> tuple[float, float] | None:
    """The parts of the divisor's reciprocal, of one sign so that an infinity stays one; None where some
    quotient would be rounded otherwise. Exponents of x change nothing."""
    d = np.float32(divisor)
    if not 1 / GREATEST < abs(d) < GREATEST:
        return None
    whole = 1 / np.float64(d)
    high = np.float32(whole)
    if abs(np.float64(high)) > abs(whole):
        high = np.nextafter(high, np.float32(0))
    low = np.float32((1 - np.float64(high) * np.float64(d)) / np.float64(d))
    x = np.array(_nearest(int(abs(d.view(np.uint32)) & np.uint32(BITS - 1)) | BITS), np.float32)
    sums = x.astype(np.float64) * np.float64(high) + (x * low).astype(np.float64)  # exact in float64
    return (float(high), float(low)) if (sums.astype(np.float32) == x / d).all() else None


def _nearest(divisor: int) -> list[int]:
    """The mantissas x whose quotients come so near to the middle of two numbers that an error of 2^-46 may
    matter: 2^k x = odd * divisor + r with a small r, for quotients of 24 bits."""
    twos = (divisor & -divisor).bit_length() - 1
    odd = divisor >> twos
    if odd < 1 << 20:
        return []
    firsts = {r * pow(2, -k, odd) % odd for k in (24 - twos, 25 - twos) for r in range(-NEAR, NEAR + 1)}
    return [x for first in firsts for x in range(first, 2 * BITS, odd) if x >= BITS]
