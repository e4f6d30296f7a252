"""What rounding once to a narrow type gives, by exact arithmetic, and numbers where that is easily missed."""

import bisect
import itertools
import math

import numpy as np

from onnxc.ir import dtypes


def middles(dtype):
    """The middles between the numbers of a narrow type that are not negative, and the numbers."""
    codes = np.arange(1 << dtypes.bits(dtype) - 1, dtype=f"u{dtypes.itemsize(dtype)}")
    numbers = codes.view(dtypes.numpy_dtype(dtype)).astype(np.float32)
    numbers = numbers[np.isfinite(numbers)].tolist()
    beyond = 2 * numbers[-1] - numbers[-2]  # as if there were one more
    return [(a + b) / 2 for a, b in itertools.pairwise([*numbers, beyond])], numbers


def beside_middles(source, dtype):
    """Numbers of a wide type at the middles between those of a narrow one, and next to them."""
    between = [m * sign for m in middles(dtype)[0] for sign in (1, -1)]
    if dtypes.is_float(source):
        found = np.array(between, source)
        return np.concatenate(
            [found, np.nextafter(found, found.dtype.type(0)), np.nextafter(found, found * 2)]
        )
    low, high = dtypes.integer_range(source)
    whole = (int(m) + d for m in between for d in (-1, 0, 1))
    return np.array([n for n in whole if low <= n <= high], source)


def nearest(values, dtype):
    """Finite numbers, as they are, rounded to a narrow type: of two equally near ones to that whose code is
    even, and what is too great to what stands for infinity."""
    between, numbers = middles(dtype)
    with np.errstate(all="ignore"):
        numbers.append(float(np.float32(np.inf).astype(dtypes.numpy_dtype(dtype))))

    def one(value):
        place = bisect.bisect_left(between, abs(value))
        place += place < len(between) and between[place] == abs(value) and place % 2
        return math.copysign(numbers[place], value)

    return np.array([one(value) for value in values.tolist()])
