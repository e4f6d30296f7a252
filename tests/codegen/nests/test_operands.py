"""Indices of elements, computed in as few bits as hold them."""

import pytest
from support.harness import TARGETS
from support.nests import check, numbers

from onnxc.codegen.nests.operands import narrow_indices
from onnxc.ir import dims, expr
from onnxc.ir.expr import index, input_
from onnxc.ir.ops import Map

ROW, COLUMN = index(0), index(1)
ROW32, COLUMN32 = input_(1, "int32"), input_(2, "int32")


def narrowed(body, *sizes):
    return narrow_indices(body, sizes)[0]


def test_indices_are_compared_in_32_bits_and_keep_their_axes():
    assert narrow_indices(COLUMN - ROW >= 3, (5, 7)) == (COLUMN32 - ROW32 >= 3, {1: 0, 2: 1})


def test_numbers_behind_operands_are_free():
    body = expr.where(ROW.equals(2), input_(4, "float32"), 0)
    assert narrow_indices(body, (5,))[1] == {5: 0}


def test_casts_take_them():
    assert narrowed((ROW * 2 + 1).cast("float32"), 5) is (ROW32 * 2 + 1).cast("float32")


def test_a_result_of_64_bits_stays():
    assert narrowed(ROW * 2, 5) is ROW * 2


def test_what_is_compared_with_an_operand_of_64_bits_stays():
    body = ROW.equals(input_(0, "int64"))
    assert narrowed(body, 5) is body


@pytest.mark.parametrize("size", [(1 << 31) + 1, dims.symbol("n")])
def test_an_index_that_may_not_fit_stays(size):
    body = ROW.cast("float32")
    assert narrowed(body, size) is body


def test_what_may_pass_32_bits_stays():
    body = (ROW * (1 << 20)).cast("float32")
    assert narrowed(body, 1 << 11) is (ROW32 * (1 << 20)).cast("float32")
    assert narrowed(body, (1 << 11) + 1) is body


@TARGETS
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(5, 7), (40, 70), (1, 1), (300, 3)])
def test_a_diagonal_of_any_type(target, dtype, shape):
    kept = expr.where(COLUMN - ROW >= -1, input_(0, dtype), expr.const(0, dtype))
    check(target, Map(kept), numbers(shape, dtype))
    check(target, Map((COLUMN * 3 - ROW).cast(dtype)), numbers(shape, dtype))
    check(target, Map((COLUMN.equals(ROW + 1)).cast(dtype)), numbers(shape, dtype))
