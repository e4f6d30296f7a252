"""widen: sums of narrow numbers are computed in wide ones, integers only where that is exact."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, stays

from onnxc.ir.ops import Contract, Conv, Recurrent
from onnxc.ir.text_parser import parse
from onnxc.passes import widen as widening
from onnxc.target import TARGETS


def widen(graph):
    return widening.widen(graph, TARGETS["x86-64-v3"])


WEIGHTS = {"w": np.full((8, 64, 3, 3), 100, np.int8)}


def test_half_convolutions_become_float_ones():
    becomes(
        widen,
        """graph g(%x: float16[1, 4, 8], %w: float16[4, 4, 1], %b: float16[4, 1]) {
        %0 = conv(%x, %w, %b) strides=(1) pads=(0, 0) dilations=(1) epilogue={ add(cast($0, float16), $1) }
        return %0
    }""",
        """graph g(%x: float16[1, 4, 8], %w: float16[4, 4, 1], %b: float16[4, 1]) {
        %0 = map(%x) { cast($0, float32) }
        %1 = map(%w) { cast($0, float32) }
        %2 = conv(%0, %1) strides=(1) pads=(0, 0) dilations=(1)
        %3 = map(%2, %b) { add(cast($0, float16), $1) }
        return %3
    }""",
    )


def test_pools_of_halves_become_float_ones():
    for dtype in ("float16", "bfloat16"):
        becomes(
            widen,
            f"""graph g(%x: {dtype}[1, 4, 8]) {{
            %0 = pool(%x) kind=max kernel=(2) strides=(2) pads=(0, 0) dilations=(1) sizes=(4)
            return %0
        }}""",
            f"""graph g(%x: {dtype}[1, 4, 8]) {{
            %0 = map(%x) {{ cast($0, float32) }}
            %1 = pool(%0) kind=max kernel=(2) strides=(2) pads=(0, 0) dilations=(1) sizes=(4)
            %2 = map(%1) {{ cast($0, {dtype}) }}
            return %2
        }}""",
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_over_halves_becomes_one_over_floats(dtype):
    becomes(
        widen,
        f"""graph g(%q: {dtype}[1, 2, 3, 4], %k: {dtype}[1, 2, 5, 4], %m: {dtype}[3, 5]) {{
        %0 = attention(%q, %k, %k, %m) scale=0.5 q=bhqd k=bhkd v=bhke out=bhqe
        return %0
    }}""",
        f"""graph g(%q: {dtype}[1, 2, 3, 4], %k: {dtype}[1, 2, 5, 4], %m: {dtype}[3, 5]) {{
        %0 = map(%q) {{ cast($0, float32) }}
        %1 = map(%k) {{ cast($0, float32) }}
        %2 = map(%k) {{ cast($0, float32) }}
        %3 = map(%m) {{ cast($0, float32) }}
        %4 = attention(%0, %1, %2, %3) scale=0.5 q=bhqd k=bhkd v=bhke out=bhqe
        %5 = map(%4) {{ cast($0, {dtype}) }}
        return %5
    }}""",
    )


def test_wide_numbers_are_left_alone():
    stays(
        widen,
        """graph g(%x: float32[2, 3], %y: float32[3, 4], %i: int64[2, 3], %j: int64[3, 4],
                   %z: float64[1, 1, 4]) {
        %0 = contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = contract(%i, %j) lhs=mk rhs=kn out=mn accumulate=int64
        %2 = pool(%z) kind=max kernel=(2) strides=(2) pads=(0, 0) dilations=(1) sizes=(2)
        return %0, %1, %2
    }""",
    )


def product(depth, dtype="uint8"):
    """The type in which a product of so many bytes is computed."""
    text = f"""graph g(%x: {dtype}[2, {depth}], %y: {dtype}[{depth}, 4]) {{
        %0 = contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=int32
        return %0
    }}"""
    (node,) = [n for n in agrees(widen, text).nodes if isinstance(n.op, Contract)]
    return node.op.accumulate, node.op.exact


def test_integers_are_summed_in_the_least_type_that_holds_all_sums():
    assert product(258) == ("float32", True)
    assert product(259) == ("float64", True)
    assert product(1000, "int16") == ("int32", False)  # which may wrap


def test_weights_that_are_known_tell_how_great_sums_become():
    def accumulate(weights):
        text = """graph g(%x: uint8[1, 64, 8, 8]) {
            %w = constant int8[8, 64, 3, 3] #w
            %0 = map(%x) { cast($0, int32) }
            %1 = conv(%0, %w) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) accumulate=int32
            return %1
        }"""
        found = widen(parse(text, {"w": weights}))
        return next(n.op.accumulate for n in found.nodes if isinstance(n.op, Conv))

    assert accumulate(np.full((8, 64, 3, 3), 100, np.int8)) == "float32"
    assert accumulate(np.full((8, 64, 3, 3), 127, np.int8)) == "float64"
    mixed = np.full((8, 64, 3, 3), 127, np.int8)
    mixed[:, ::2] = -127  # both signs: half the sum
    assert accumulate(mixed) == "float32"


def test_the_greatest_sums_are_exact():
    text = """graph g(%x: uint8[1, 64, 8, 8]) {
        %w = constant int8[8, 64, 3, 3] #w
        %0 = conv(%x, %w) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) accumulate=int32
        %1 = map(%0) { mul(cast($0, float32), 0.5) }
        return %0, %1
    }"""
    agrees(widen, text, WEIGHTS, [np.full((1, 64, 8, 8), 255, np.uint8)])


def test_what_scales_exact_sums_reads_them_as_they_are():
    becomes(
        widen,
        """graph g(%x: uint8[2, 8], %y: int8[8, 4]) {
        %0 = contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=int32
        %1 = map(%0) { mul(cast($0, float32), 0.5) }
        return %1
    }""",
        """graph g(%x: uint8[2, 8], %y: int8[8, 4]) {
        %0 = map(%x) { cast($0, float32) }
        %1 = map(%y) { cast($0, float32) }
        %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=float32 exact=true
        %3 = map(%2) { cast($0, int32) }
        %4 = map(%2) { mul($0, 0.5) }
        return %4
    }""",
    )


@pytest.mark.parametrize(("channels", "accumulate"), [("6", "int32"), ("c", "float32")])
def test_bytes_that_no_kernel_adds_up_are_widened(channels, accumulate):
    text = f"""graph g(%x: uint8[1, {channels}, 5, 5]) {{
        %w = constant int8[8, 6, 3, 3] #w
        %0 = conv(%x, %w) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) accumulate=int32
        return %0
    }}"""
    draw = np.random.default_rng(0)
    weights = {"w": draw.integers(-128, 128, (8, 6, 3, 3)).astype(np.int8)}
    found = agrees(lambda graph: widening.widen(graph, TARGETS["cascadelake"]), text, weights, c=6)
    assert [n.op.accumulate for n in found.nodes if isinstance(n.op, Conv)] == [accumulate]


def test_half_recurrent_layers_are_computed_in_float():
    text = """graph g(%x: float16[5, 2, 1, 4], %r: float16[1, 4, 4]) {
        %0, %1 = recurrent(%x, %r) kind=rnn hidden=4 directions=(forward) activations=((tanh, 0.0, 0.0))
        return %0, %1
    }"""
    found = agrees(widen, text, tolerance=2e-2)
    (layer,) = [n for n in found.nodes if isinstance(n.op, Recurrent)]
    assert {v.dtype for v in (*layer.inputs, *layer.outputs)} == {"float32"}
