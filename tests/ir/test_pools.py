"""Pools of what is stored in another type."""

import math

import pytest
from support.pool_cases import codes, group, halves

from onnxc.ir import expr
from onnxc.ir.graph import TensorType, Value, make_node
from onnxc.ir.ops import Map, Pool
from onnxc.ir.pools import idle, keeps_zero, pooling_of

POOL = Pool("mean", (2, 2), (1, 1), (0, 0, 0, 0), (1, 1), (3, 3))


def pooling(*conversions, dtype="uint8"):
    op = group(POOL, (1, 2, 4, 4), dtype, *conversions)
    return pooling_of(make_node(op, [Value(TensorType(dtype, (1, 2, 4, 4)))]))


def test_a_group_pools_what_is_stored():
    found = pooling(*codes("uint8", 7))
    assert found.node.op == POOL
    assert (found.node.inputs[0].dtype, found.dtype, found.node.outputs[0].dtype) == (
        "uint8",
        "float32",
        "uint8",
    )
    assert pooling(None, codes("uint8", 7)[1], dtype="float32").before is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_are_combined_in_float32(dtype):
    found = pooling_of(make_node(POOL, [Value(TensorType(dtype, (1, 2, 4, 4)))]))
    assert (found.dtype, found.before, found.after) == ("float32", *halves(dtype))


def test_other_nodes_are_no_pools():
    assert (
        pooling_of(make_node(Map(-expr.input_(0, "float32")), [Value(TensorType("float32", (2,)))])) is None
    )


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_outside_of_an_image_stands_what_becomes_zero(kind):
    assert idle(kind, "float32", codes("uint8", 7)[0]) == 7
    assert idle(kind, "float32", codes("int8", -3)[0]) == -3
    assert idle(kind, "float32", halves("float16")[0]) == 0
    assert idle(kind, "float32", None) == 0


def test_of_the_greatest_what_is_least():
    assert idle("max", "float32", halves("bfloat16")[0]) == -math.inf
    assert idle("max", "int8", None) == -128


def test_some_conversions_have_no_such_number():
    assert idle("max", "float32", codes("uint8", 7)[0]) is None
    assert idle("sum", "float32", expr.input_(0, "uint8").cast("float32") + 0.5) is None


def test_zeros_stay_zeros_where_the_zero_point_is_one():
    assert keeps_zero(pooling(*halves("float16"), dtype="float16"))
    assert keeps_zero(pooling(*codes("uint8", 0)))
    assert not keeps_zero(pooling(*codes("uint8", 7)))
