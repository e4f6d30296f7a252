"""requantise: one scale and one shift stand between integers, and the numbers are those of before to one
quantum."""

import numpy as np
import pytest
from support.pass_text import becomes, stays

from onnxc.ir import expr
from onnxc.ir.interpret import run_graph
from onnxc.ir.text_parser import parse
from onnxc.passes.requantise import requantise

SCALES = {"s": np.array([0.01, 0.02, 0.04], np.float32).reshape(3, 1, 1)}
QUANTISED = "cast(min(max(add(round({}), {:.1f}), 0.0), 255.0), uint8)"


def within_a_quantum(text, constants=None):
    """Asserts it of a graph of integers; returns its one body after the pass."""
    graph, draw = parse(text, constants), np.random.default_rng(0)
    spans = {"int32": (-9000, 9000), "uint8": (0, 256), "bool": (0, 2)}
    inputs = [draw.integers(*spans[v.dtype], v.shape).astype(v.dtype) for v in graph.inputs]
    (before,), (after,) = (run_graph(g, inputs, {}) for g in (graph, requantise(graph)))
    apart = np.abs(before.astype(np.int64) - after)
    assert apart.max() <= 1
    assert (apart == 0).mean() > 0.99
    node = requantise(graph).nodes[-1]
    return node.op.body if hasattr(node.op, "body") else node.op.epilogue


def test_scales_and_shifts_become_one_of_each():
    becomes(
        requantise,
        f"""graph g(%x: int32[1, 3, 8, 8]) {{
        %0 = map(%x) {{ {QUANTISED.format("div(add(mul(cast($0, float32), 0.5), 3.0), 0.25)", 7)} }}
        return %0
    }}""",
        f"""graph g(%x: int32[1, 3, 8, 8]) {{
        %0 = map(%x) {{ {QUANTISED.format("fma(cast($0, float32), 2.0, 12.0)", 7)} }}
        return %0
    }}""",
    )


def test_scales_of_channels_are_constants_of_channels():
    body = within_a_quantum(
        f"""graph g(%x: int32[1, 3, 8, 8]) {{
        %s = constant float32[3, 1, 1] #s
        %0 = map(%x, %s) {{ {QUANTISED.format("div(mul(cast($0, float32), $1), 0.3)", 7)} }}
        return %0
    }}""",
        SCALES,
    )
    assert not expr.contains(body, "div")


def test_integers_in_between_stay_real_numbers():
    inner = QUANTISED.format("div(mul(cast($0, float32), 0.03), 0.7)", 11)
    outer = f"div(add(mul(cast(sub(cast({inner}, int32), 11), float32), 0.7), 2.0), 0.9)"
    body = within_a_quantum(
        f"""graph g(%x: int32[1, 3, 8, 8]) {{
        %0 = map(%x) {{ {QUANTISED.format(outer, 3)} }}
        return %0
    }}"""
    )
    casts = [node.dtype for node in expr.topological(body) if node.op == "cast"]
    assert casts == ["float32", "uint8"]


def test_two_integers_are_added_and_clipped_in_the_epilogue_of_a_product():
    real = "add(mul(cast($0, float32), 0.001), mul(cast(sub(cast($1, int32), 9), float32), 0.02))"
    body = within_a_quantum(
        f"""graph g(%x: uint8[16, 4], %w: uint8[4, 8], %r: uint8[16, 8]) {{
        %0 = contract(%x, %w, %r) lhs=mk rhs=kn out=mn accumulate=int32 epilogue={{
            {QUANTISED.format(f"div(max({real}, 0.0), 0.03)", 3)} }}
        return %0
    }}"""
    )
    assert not expr.contains(body, "div")
    assert [node.args[1].value for node in expr.topological(body) if node.op == "max"] == [3.0]


def test_real_numbers_are_divided_as_they_are():
    stays(
        requantise,
        f"""graph g(%x: float32[8]) {{
        %0 = map(%x) {{ {QUANTISED.format("div($0, 0.3)", 7)} }}
        return %0
    }}""",
    )


def test_scales_that_are_no_numbers_are_left_alone():
    stays(
        requantise,
        f"""graph g(%x: int32[8]) {{
        %0 = map(%x) {{ {QUANTISED.format("div(mul(cast($0, float32), 1e30), 1e-30)", 7)} }}
        return %0
    }}""",
    )


def test_bytes_of_one_scale_are_added_as_integers():
    one, other = (
        f"mul(cast(sub(cast(${k}, int32), {zero}), float32), 0.1)" for k, zero in ((0, 100), (1, 7))
    )
    real = f"add({one}, {other})"
    body = within_a_quantum(
        f"""graph g(%x: uint8[16], %y: uint8[16]) {{
        %0 = map(%x, %y) {{ {QUANTISED.format(f"div({real}, 0.1)", 12)} }}
        return %0
    }}"""
    )
    assert {node.dtype for node in expr.topological(body)} == {"uint8", "int16"}


def test_a_byte_is_bounded_as_an_integer():
    real = "max(mul(cast(sub(cast($0, int32), 9), float32), 0.1), 0.0)"
    body = within_a_quantum(
        f"""graph g(%x: uint8[16]) {{
        %0 = map(%x) {{ {QUANTISED.format(f"div({real}, 0.1)", 7)} }}
        return %0
    }}"""
    )
    assert repr(body) == "cast(min(max(add(cast($0, int16), -2), 7), 255), uint8)"


def test_operands_may_go_where_all_of_them_are_constants_but_one():
    """In whatever order they are given."""
    body = within_a_quantum(
        f"""graph g(%x: uint8[1, 3, 8, 8]) {{
        %s = constant float32[3, 1, 1] #s
        %0 = map(%s, %x) {{ {QUANTISED.format("div(mul(cast(cast($1, int32), float32), $0), 0.01)", 7)} }}
        return %0
    }}""",
        SCALES,
    )
    assert not expr.contains(body, "div")


@pytest.mark.parametrize("other", ["mul(cast(sub(cast($2, int32), 100), float32), 0.1)", "0.0", "0.3"])
def test_one_of_two_bytes_of_one_scale_is_taken_as_it_is(other):
    real = f"select($0, mul(cast(sub(cast($1, int32), 100), float32), 0.1), {other})"
    body = within_a_quantum(
        f"""graph g(%c: bool[16], %x: uint8[16], %y: uint8[16]) {{
        %0 = map(%c, %x, %y) {{ {QUANTISED.format(f"div({real}, 0.1)", 7)} }}
        return %0
    }}"""
    )
    (chosen,) = (node for node in expr.topological(body) if node.op == "select")
    assert chosen.dtype == "uint8"


def test_one_of_two_bytes_of_other_scales_is_taken_as_a_real_number():
    real = "mul(cast(sub(cast($1, int32), 100), float32), {})"
    stays(
        requantise,
        f"""graph g(%c: bool[16], %x: uint8[16]) {{
        %0 = map(%c, %x) {{
            {QUANTISED.format(f"div(select($0, {real.format(0.1)}, {real.format(0.2)}), 0.1)", 7)} }}
        return %0
    }}""",
    )


@pytest.mark.parametrize("other", ["mul(cast(sub(cast($1, int32), 9), float32), 0.3)", "cast($2, float32)"])
def test_a_product_has_the_scales_of_both_factors(other):
    real = f"mul(mul(cast(sub(cast($0, int32), 100), float32), 0.1), {other})"
    body = within_a_quantum(
        f"""graph g(%x: uint8[64], %y: uint8[64], %r: int32[64]) {{
        %0 = map(%x, %y, %r) {{ {QUANTISED.format(f"div({real}, 20.0)", 7)} }}
        return %0
    }}"""
    )
    assert not expr.contains(body, "div")
    assert sum(node.op == "mul" for node in expr.topological(body)) == 2
