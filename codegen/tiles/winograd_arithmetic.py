"""In what Winograd's transforms compute: numbers in their own type, bytes in whole numbers of 16 bits.

    bytes x, w  →  V, U of int16  →  M, sums of int32 modulo 2^32  →  A' M A = scale * result modulo 2^32
F(4x4, 3x3) makes up to 12,750 of bytes and up to 18,432 of weights, which are transformed when they are
packed. scale is odd * 2^shift: the inverse of the odd part modulo 2^32 and an arithmetic shift leave the
result, exactly, where the weights tell that it stays below 2^(31 - shift).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod

import numpy as np

from ...ir import dtypes
from ...ir.graph import Constant
from ...records import dataclass
from ...target import Dot
from ..text.vectors import Vectors
from .winograd_transforms import Matrix, Transforms, transforms, whole_transforms

MODULUS = 1 << 32  # of sums
GREATEST_WEIGHT = 128


@dataclass(frozen=True)
class Arithmetic:
    """The transforms of rows and columns; `factors`: the type of transformed data and weights, `sums` of what
    they are multiplied to, by `dot` where there is one. `taken`: the integer of data that stands for 0."""

    transforms: tuple[Transforms, Transforms]
    factors: str
    sums: str
    dot: Dot | None = None
    taken: int = 0

    @property
    def group(self) -> int:
        """Channels that one step multiplies."""
        return 1 if self.dot is None else self.dot.group

    @property
    def _scale(self) -> int:
        return prod(t.scale for t in self.transforms)

    @property
    def _shift(self) -> int:
        """How many times 2 divides the scale."""
        return (self._scale & -self._scale).bit_length() - 1

    def unscaled(self, v: Vectors, total: str) -> str:
        """The result of which total is `scale` times modulo 2^32."""
        odd = self._scale >> self._shift
        if odd != 1:
            inverse = pow(odd, -1, MODULUS)
            total = v.mul(total, v.constant(inverse - MODULUS * (inverse >= MODULUS // 2)))
        return v.shift_right(total, self._shift) if self._shift else total

    def is_exact(self, weights: Constant, dtype: str) -> bool:
        """Whether no result of weights [outputs, ...] and data of a type is too large for `unscaled`."""
        (low, high), most = _span(dtype, self.taken), 1 << (31 - self._shift)
        if prod(weights.shape[1:]) * GREATEST_WEIGHT * (high - low) < most:
            return True
        array = weights.array.reshape(len(weights.array), -1)
        above = np.maximum(array, 0).sum(axis=1, dtype=np.int64)
        below = array.sum(axis=1, dtype=np.int64) - above
        greatest, least = above * high + below * low, above * low + below * high
        return bool(greatest.max(initial=0) < most and least.min(initial=0) >= -most)

    def in_groups(self, weights: np.ndarray, group: int) -> np.ndarray:
        """[channel, tap, lane] of bytes → transformed, exactly, as [matrix, channel / group, lane, group]."""
        rows, columns = (np.array(t.weights, dtype=np.float32) for t in self.transforms)
        whole = weights.swapaxes(1, 2).astype(np.float32) @ np.kron(rows, columns).T
        groups = whole.reshape(-1, group, *whole.shape[1:]).transpose(3, 0, 2, 1)
        return np.ascontiguousarray(groups, dtypes.numpy_dtype(self.factors))


def of_numbers(dtype: str, sides: tuple[int, int], window: tuple[int, int]) -> Arithmetic:
    """For pieces of so many results along either axis, of floats."""
    rows, columns = map(transforms, sides, window)
    return Arithmetic((rows, columns), dtype, dtype)


@cache
def of_bytes(dtype: str, zero: int, sides: tuple[int, int], window: tuple[int, int]) -> Arithmetic | None:
    """The same of data of bytes and weights of int8, where 16 bits hold what they become."""
    greatest = dtypes.integer_range("int16")[1]
    most = greatest // GREATEST_WEIGHT
    rows, columns = (
        whole_transforms(m, r, math.isqrt(most) if min(window) > 1 else most) for m, r in zip(sides, window)
    )
    if rows is None or columns is None:
        return None
    if _greatest(rows.data, columns.data, *_span(dtype, zero)) > greatest:
        return None
    return Arithmetic((rows, columns), "int16", "int32", taken=zero)


def _span(dtype: str, zero: int) -> tuple[int, int]:
    """The least and the greatest of integers less a zero point, and of 0."""
    low, high = (n - zero for n in dtypes.integer_range(dtype))
    return min(0, low), max(0, high)


def _greatest(rows: Matrix, columns: Matrix, low: int, high: int) -> Fraction:
    """The largest magnitude of what rows * data * columns' makes of data between low and high."""
    found = [Fraction(0)]
    for row, column in product(rows, columns):
        factors = [a * b for a in row for b in column]
        above, below = (sum((c for c in factors if sign * c > 0), Fraction(0)) for sign in (1, -1))
        found += [above * high + below * low, -(above * low + below * high)]
    return max(found)
