"""What is computed of one byte is a table, and gives what was computed."""

import numpy as np
import pytest

from onnxc.codegen.lowering.tabulate import tabulate, tabulated
from onnxc.ir import dtypes, expr, interpret
from onnxc.ir.expr import input_
from onnxc.ir.text_parser import parse
from onnxc.target import LEVELS, TARGETS

TARGET = TARGETS["icelake-server"]


def quantised(x, dtype="uint8"):
    low, high = dtypes.integer_range(dtype)
    return expr.round_(x / 0.1).clip(low, high).cast(dtype)


def activation(x):
    """Of a quantised number."""
    return quantised(expr.tanh(x.cast("float32") * 0.1))


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int4", "uint4", "float8e4m3fn", "float4e2m1"])
def test_a_function_of_a_byte_is_one_lookup_with_the_same_values(dtype, target):
    body = activation(input_(0, dtype))
    made = tabulated(body, target)
    assert (made.op, made.args) == ("lookup", (input_(0, dtype),))
    codes = (
        np.arange(256, dtype=np.uint8).view(np.int8) if dtypes.is_signed(dtype) else np.arange(256, dtype="B")
    )
    if dtypes.bits(dtype) < 8:
        codes = codes[:8]
    values = (
        codes.astype(dtypes.numpy_dtype(dtype))
        if dtypes.is_integer(dtype)
        else codes.view(dtypes.numpy_dtype(dtype))
    )
    results = [expr.evaluate(b, [values], values.shape, int, str) for b in (body, made)]
    assert np.array_equal(*results)


def test_chains_of_functions_are_one_lookup():
    body = activation(activation(input_(0, "uint8")))
    assert tabulated(body, TARGET).args == (input_(0, "uint8"),)


def test_a_byte_that_is_made_in_the_body_is_looked_up():
    rounded = quantised(input_(0, "float32"))
    made = tabulated(activation(rounded).cast("float32") + input_(1, "float32"), TARGET)
    (lookup,) = (e for e in expr.topological(made) if e.op == "lookup")
    assert lookup.args == (rounded,)
    assert expr.inputs(made) == [0, 1]


@pytest.mark.parametrize("zero, dtype", [(0, "uint8"), (99, "uint8"), (-5, "int8")])
def test_a_clip_is_a_function_of_the_byte_that_the_same_number_becomes(zero, dtype):
    """An activation times its argument, of which the byte and the clipped number are known."""
    low, high = dtypes.integer_range(dtype)
    x = expr.round_(input_(0, "float32"))
    byte = (x + float(zero) if zero else x).clip(float(low), float(high)).cast(dtype)
    gate = activation(byte.cast("float32") - float(zero)).cast("float32")
    body = quantised(x.clip(float(low - zero), float(high - zero)) * gate)
    made = tabulated(body, TARGET)
    assert (made.op, made.args) == ("lookup", (byte,))
    numbers = np.arange(-300, 300, 0.5).astype(np.float32)
    results = [expr.evaluate(b, [numbers], numbers.shape, int, str) for b in (body, made)]
    assert np.array_equal(*results)


def test_clips_of_other_numbers_or_bounds_stay():
    x, y = (expr.round_(input_(k, "float32")) for k in range(2))
    byte = (x + 3.0).clip(0.0, 255.0).cast("uint8")
    for other in (x.clip(-3.0, 251.0), y.clip(-3.0, 252.0), input_(0, "float32").clip(-3.0, 252.0)):
        body = activation(byte).cast("float32") * other
        assert other in expr.topological(tabulated(body, TARGET))


def test_a_clip_stays_where_no_lookup_gains_by_its_byte():
    """A lookup of another byte is made all the same."""
    x = expr.round_(input_(0, "float32"))
    byte = (x + 3.0).clip(0.0, 255.0).cast("uint8")
    body = expr.where(byte > 7, x.clip(-3.0, 252.0), input_(2, "float32"))
    made = tabulated(body + activation(input_(1, "uint8")).cast("float32"), TARGET)
    assert expr.contains(made, "lookup") and x.clip(-3.0, 252.0) in expr.topological(made)


def test_one_lookup_for_the_bytes_of_several_vectors_is_worth_more():
    """A sum's byte, then its activation: where eight are looked up at once that takes as long."""
    body = activation(quantised(input_(0, "float32")))
    made = [tabulated(body, TARGETS["x86-64-v3"], together) for together in (1, 4)]
    assert [m.op for m in made] == ["cast", "lookup"]


def test_what_two_bytes_give_is_computed_of_what_each_gives():
    made = tabulated(activation(input_(0, "uint8")) + activation(input_(1, "int8")), TARGET)
    assert (made.op, [a.op for a in made.args]) == ("add", ["lookup", "lookup"])


@pytest.mark.parametrize(
    "body",
    [
        input_(0, "uint8") + 1,
        input_(0, "uint8").cast("float32"),
        expr.tanh(input_(0, "float32")),
        expr.check(input_(0, "uint8").equals(0), activation(input_(0, "uint8")), "index"),
        quantised(expr.index(0).cast("float32")),
    ],
    ids=str,
)
def test_what_is_cheap_wide_or_may_fail_is_left(body):
    assert not expr.contains(tabulated(body, TARGET), "lookup") or expr.contains(body, "check")


def test_bodies_and_epilogues_everywhere_in_a_graph():
    graph = parse("""graph g(%x: uint8[4, 8], %w: int8[4, 8], %c: bool[]) {
        %a = map(%x) { cast(exp(cast($0, float32)), uint8) }
        %p = contract(%a, %w) lhs=mk rhs=nk out=mn accumulate=int32 epilogue={
            cast(exp(cast(cast($0, uint8), float32)), uint8)
        }
        return %p
    }""")
    made = tabulate(graph, TARGET)
    assert [str(node).count("lookup(") for node in made.nodes] == [1, 1]
    assert parse(str(made)).nodes[0].op == made.nodes[0].op
    arrays = [np.arange(32, dtype="B").reshape(4, 8), np.ones((4, 8), np.int8), np.array(True)]
    assert np.array_equal(interpret.run_graph(made, arrays)[0], interpret.run_graph(graph, arrays)[0])
