"""Quotients by constants are rounded as divisions are."""

import numpy as np
import pytest

from onnxc.codegen.text.quotients import factors


@pytest.mark.parametrize("divisor", [6.0, -6.0, 3.0, 2**0.5, 0.1, 255.0, 1e-9, 7e8])
def test_both_parts_make_the_rounded_quotient(divisor):
    high, low = factors(divisor)
    assert high * low > 0
    x = np.random.default_rng(0).uniform(-1e6, 1e6, 100000).astype(np.float32)
    products = (x * np.float32(low)).astype(np.float64)
    sums = (x.astype(np.float64) * high + products).astype(np.float32)
    np.testing.assert_array_equal(sums, x / np.float32(divisor))


@pytest.mark.parametrize("divisor", [8.0, 0.5, -2.0])
def test_by_a_power_of_two_is_a_product(divisor):
    assert factors(divisor) == (1 / divisor, 0.0)


@pytest.mark.parametrize("divisor", [0.0, 1e-30, 1e30, float("inf"), float("nan")])
def test_by_what_is_far_from_one_is_a_division(divisor):
    assert factors(divisor) is None
