"""value_range, magnitude and bound_of: between which numbers integers, and floats made of them, lie."""

import numpy as np
import pytest

from onnxc.ir.dtypes import numpy_dtype
from onnxc.ir.graph import Constant
from onnxc.ir.ranges import bound_of, magnitude, repeated_element, value_range
from onnxc.ir.text_parser import parse


def range_of(line, type_="int32[4]"):
    """Of a line of text over %x: uint8[4], %z: int8[1] and %n: int64[4]."""
    graph = parse(f"graph g(%x: uint8[4], %z: int8[1], %n: int64[4]) {{ {line} return %0 }}")
    return value_range(graph.outputs[0])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%0 = map(%x) { $0 }", (0, 255)),
        ("%0 = map(%x) { sub(cast($0, int32), 100) }", (-100, 155)),
        ("%0 = map(%x, %z) { sub(cast($0, int32), cast($1, int32)) }", (-127, 383)),
        ("%0 = map(%x) { neg(mul(cast($0, int32), 3)) }", (-765, 0)),
        ("%0 = map(%n) { min(max($0, -7), 9) }", (-7, 9)),
        ("%1 = map(%x) { add(cast($0, int32), 1) } %0 = reshape(%1) shape=(2, 2)", (1, 256)),
        ("%0 = map() { mul(index(0), -2) } shape=(4)", (-6, 0)),
        ("%c = constant uint8[2] (3, 9) %0 = concat(%c, %c) axis=0", (3, 9)),
    ],
)
def test_the_range_follows_what_makes_the_value(line, expected):
    assert range_of(line) == expected


def test_what_may_wrap_has_the_range_of_its_type():
    assert range_of("%0 = map(%x) { mul($0, 2) }") == (0, 255)
    assert range_of("%0 = map(%n) { cast($0, int32) }") == (-(1 << 31), (1 << 31) - 1)
    assert range_of("%0 = map(%x) { cast(cast($0, float32), int32) }") == (-(1 << 31), (1 << 31) - 1)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("cast(cast($0, int32), float32)", 255),
        ("mul(cast(sub(cast($0, int32), 100), float32), 0.5)", 77.5),
        ("fma(cast(cast($0, int32), float32), -2.0, 10.0)", 500),
        ("div(neg(cast(cast($0, int32), float32)), 0.25)", 1020),
        ("round(max(neg(cast(cast($0, int32), float32)), -100.0))", 101),
        ("min(max(mul(cast($1, float32), $2), -90.0), 80.0)", 90),
        ("fma(cast($1, float32), $2, $2)", 129 * 1024),
        ("cast($1, float32)", 127 + 1),
    ],
)
def test_floats_are_no_greater_than_what_they_are_made_of(body, expected):
    operands = "%x: uint8[4], %z: int8[4], %c: float32[4]"
    (node,) = parse(f"graph g({operands}) {{ %0 = map(%x, %z, %c) {{ {body} }} return %0 }}").nodes
    assert magnitude(node.op.body, {2: 1024.0}) == expected


@pytest.mark.parametrize(
    "body",
    [
        "$0",
        "mul(cast($1, float32), $0)",
        "exp(cast($1, float32))",
        "div(cast($1, float32), 0.0)",
        "mul(mul(cast($1, float32), 1e30), 1e30)",
        "min($0, 1.0)",
    ],
)
def test_floats_of_which_nothing_is_known_may_be_anything(body):
    (node,) = parse(
        f"graph g(%x: float32[4], %z: int8[4]) {{ %0 = map(%x, %z) {{ {body} }} return %0 }}"
    ).nodes
    assert magnitude(node.op.body, {}) == float("inf")


@pytest.mark.parametrize(
    ("elements", "bound"),
    [
        ([0.5, -0.2], 0.5),
        ([255, -0.2], 1024),
        ([-1040], 1 << 20),
        ([1e7], float("inf")),
        ([1, np.nan], float("inf")),
        ([-np.inf], float("inf")),
        ([], 0.5),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_constants_are_told_apart_by_how_large_they_are(dtype, elements, bound):
    assert bound_of(Constant.of(np.asarray(elements, numpy_dtype(dtype)))) == bound


def test_a_repeated_number_is_looked_at_once_and_many_different_ones_are_not():
    assert bound_of(Constant("float32", (1000, 1000), splat=0.75)) == 1024
    assert bound_of(Constant.of(np.zeros((100, 100), np.float32))) == float("inf")


def test_large_constants_are_not_looked_at():
    text = "graph g() { %w = constant int8[100, 100] #w return %w }"
    assert value_range(parse(text, {"w": np.ones((100, 100), np.int8)}).outputs[0]) == (-128, 127)


@pytest.mark.parametrize(
    ("line", "element"),
    [
        ("%0 = constant float32[3] splat 0.5", 0.5),
        ("%0 = constant float32[0] splat 0.5", 0.5),
        ("%0 = constant int64[1, 1] (7)", 7),
        ("%0 = constant int64[2] (7, 7)", None),
        ("%c = constant bool[] (true) %1 = broadcast(%c) shape=(n, 4) %0 = transpose(%1) perm=(1, 0)", True),
        ("%1 = broadcast(%x) shape=(2, 4) %0 = reshape(%1) shape=(8)", None),
    ],
)
def test_what_is_repeated_is_seen_through_what_moves_it(line, element):
    graph = parse(f"graph g(%x: uint8[4], %m: int64[n]) {{ {line} return %0 }}")
    found = repeated_element(graph.outputs[0])
    assert (None if found is None else found.data.array.item()) == element
