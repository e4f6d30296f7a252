"""What is found behind constant weights."""

import numpy as np
import pytest
from support.stored import blocks_of, derived

from onnxc.ir import expr
from onnxc.ir.graph import Constant
from onnxc.ir.ops import Map, Transpose
from onnxc.ir.stored import half_weights, stored_weights

TO_HALF = Map(expr.input_(0, "float32").cast("float16"))
TO_FLOAT = Map(expr.input_(0, "float16").cast("float32"))


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_are_found_behind_numbers_that_were_rounded_to_halves(bits):
    codes = blocks_of(bits, 6, 64, 32, "middle")
    found, direct = stored_weights(derived(TO_FLOAT, derived(TO_HALF, codes))), stored_weights(codes)
    assert found.block == direct.block == 32
    np.testing.assert_array_equal(found.elements.array, direct.elements.array)
    np.testing.assert_array_equal(found.scale, direct.scale)


def test_numbers_that_are_only_halves_are_those():
    numbers = np.arange(12, dtype=np.float32).reshape(3, 4)
    weights = derived(TO_FLOAT, derived(TO_HALF, Constant.of(numbers)))
    assert half_weights(weights).dtype == "float16"


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 0)])
def test_nothing_is_behind_weights_without_elements(shape):
    weights = derived(TO_FLOAT, Constant.of(np.zeros(shape, np.float16)))
    assert stored_weights(weights) is stored_weights(derived(Transpose((1, 0)), weights)) is None
