"""requantise: one scale and one shift stand between integers, and the numbers are those of before to one
quantum."""

import numpy as np
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
    spans = {"int32": (-9000, 9000), "uint8": (0, 256)}
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
