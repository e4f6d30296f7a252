"""narrow_products: weights are multiplied as bfloat16s, where the target does so and sums are long enough."""

import ml_dtypes
import numpy as np
import pytest
from support import small_models
from support.pass_text import becomes, stays

import onnxc
from onnxc.errors import CompileError
from onnxc.ir.text_parser import parse
from onnxc.passes import narrow_products as narrowing
from onnxc.passes.fold_constants import fold_constants
from onnxc.target import TARGETS, find_target


def narrow(graph, target="sapphirerapids"):
    return narrowing.narrow_products(graph, TARGETS[target])


CONVOLUTIONS = """graph g(%x: float32[1, 16, 9]) {
    %w = constant float32[24, 16, 1] splat 0.25
    %m = constant float32[16, 16, 1] splat 0.5
    %0 = conv(%x, %w) strides=(1) pads=(0, 0) dilations=(1)
    %1 = conv(%x, %m) strides=(1) pads=(0, 0) dilations=(1) epilogue={ max($0, 0.0) }
    return %0, %1
}"""


def test_what_several_multiply_is_narrowed_once_and_sums_stay_wide():
    found = becomes(
        narrow,
        CONVOLUTIONS,
        """graph g(%x: float32[1, 16, 9]) {
        %w = constant float32[24, 16, 1] splat 0.25
        %m = constant float32[16, 16, 1] splat 0.5
        %0 = map(%x) { cast($0, bfloat16) }
        %1 = map(%w) { cast($0, bfloat16) }
        %2 = conv(%0, %1) strides=(1) pads=(0, 0) dilations=(1)
        %3 = map(%m) { cast($0, bfloat16) }
        %4 = conv(%0, %3) strides=(1) pads=(0, 0) dilations=(1) epilogue={ max($0, 0.0) }
        return %2, %4
    }""",
    )
    assert [v.dtype for v in found.outputs] == ["float32", "float32"]


def test_an_image_that_is_also_read_wide_is_narrowed_by_the_convolution():
    becomes(
        narrow,
        """graph g(%x: float32[1, 16, 9]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = map(%x) { exp($0) }
        %1 = conv(%0, %w, %0) strides=(1) pads=(0, 0) dilations=(1) epilogue={ add($0, $1) }
        return %1
    }""",
        """graph g(%x: float32[1, 16, 9]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = map(%x) { exp($0) }
        %1 = map(%w) { cast($0, bfloat16) }
        %2 = conv(%0, %1, %0) strides=(1) pads=(0, 0) dilations=(1) epilogue={ add($0, $1) } narrow=true
        return %2
    }""",
    )


def test_an_image_between_convolutions_and_maps_is_stored_narrow():
    becomes(
        narrow,
        """graph g(%x: float32[1, 16, 9]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = map(%x) { exp($0) }
        %1 = conv(%0, %w) strides=(1) pads=(0, 0) dilations=(1)
        %2 = map(%1, %0) { add($0, $1) }
        return %2
    }""",
        """graph g(%x: float32[1, 16, 9]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = map(%x) { exp($0) }
        %1 = map(%0) { cast($0, bfloat16) }
        %2 = map(%1) { cast($0, float32) }
        %3 = map(%w) { cast($0, bfloat16) }
        %4 = conv(%1, %3) strides=(1) pads=(0, 0) dilations=(1)
        %5 = map(%4, %2) { add($0, $1) }
        return %5
    }""",
    )


def test_what_is_moved_or_is_the_largest_of_a_window_is_narrowed_before():
    becomes(
        narrow,
        """graph g(%x: float32[1, 16, 8], %y: float32[1, 16, 4]) {
        %w = constant float32[16, 32, 1] splat 0.25
        %0 = pool(%x) kind=max kernel=(2) strides=(2) pads=(0, 0) dilations=(1) sizes=(4)
        %1 = concat(%0, %y) axis=1
        %2 = conv(%1, %w) strides=(1) pads=(0, 0) dilations=(1)
        return %2
    }""",
        """graph g(%x: float32[1, 16, 8], %y: float32[1, 16, 4]) {
        %w = constant float32[16, 32, 1] splat 0.25
        %0 = map(%x) { cast($0, bfloat16) }
        %1 = pool(%0) kind=max kernel=(2) strides=(2) pads=(0, 0) dilations=(1) sizes=(4)
        %2 = map(%y) { cast($0, bfloat16) }
        %3 = concat(%1, %2) axis=1
        %4 = map(%w) { cast($0, bfloat16) }
        %5 = conv(%3, %4) strides=(1) pads=(0, 0) dilations=(1)
        return %5
    }""",
    )


def test_what_is_moved_between_convolutions_and_maps_is_stored_narrow():
    becomes(
        narrow,
        """graph g(%x: float32[1, 8, 16]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = conv(%0, %w) strides=(1) pads=(0, 0) dilations=(1)
        %2 = map(%1, %0) { add($0, $1) }
        return %2
    }""",
        """graph g(%x: float32[1, 8, 16]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = map(%x) { cast($0, bfloat16) }
        %1 = transpose(%0) perm=(0, 2, 1)
        %2 = map(%1) { cast($0, float32) }
        %3 = map(%w) { cast($0, bfloat16) }
        %4 = conv(%1, %3) strides=(1) pads=(0, 0) dilations=(1)
        %5 = map(%4, %2) { add($0, $1) }
        return %5
    }""",
    )


def test_what_others_want_as_float32_is_moved_wide_and_a_mean_is_of_wide_numbers():
    becomes(
        narrow,
        """graph g(%x: float32[1, 8, 16]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = conv(%0, %w) strides=(1) pads=(0, 0) dilations=(1)
        %2 = reduce(%0) kind=max axes=(1)
        %3 = pool(%1) kind=mean kernel=(2) strides=(2) pads=(0, 0) dilations=(1) sizes=(4)
        %4 = conv(%3, %w) strides=(1) pads=(0, 0) dilations=(1)
        return %2, %4
    }""",
        """graph g(%x: float32[1, 8, 16]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = map(%w) { cast($0, bfloat16) }
        %2 = conv(%0, %1) strides=(1) pads=(0, 0) dilations=(1) narrow=true
        %3 = reduce(%0) kind=max axes=(1)
        %4 = pool(%2) kind=mean kernel=(2) strides=(2) pads=(0, 0) dilations=(1) sizes=(4)
        %5 = map(%4) { cast($0, bfloat16) }
        %6 = conv(%5, %1) strides=(1) pads=(0, 0) dilations=(1)
        return %3, %6
    }""",
    )


def test_a_product_with_weights_along_the_last_axis():
    becomes(
        narrow,
        """graph g(%x: float32[m, 32]) {
        %w = constant float32[32, 8] splat 0.25
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
        return %0
    }""",
        """graph g(%x: float32[m, 32]) {
        %w = constant float32[32, 8] splat 0.25
        %0 = map(%x) { cast($0, bfloat16) }
        %1 = map(%w) { cast($0, bfloat16) }
        %2 = contract(%0, %1) lhs=mk rhs=kn out=mn accumulate=float32
        return %2
    }""",
    )


def test_a_target_without_such_products_multiplies_what_there_is():
    for target in ("cascadelake", "alderlake", "neoverse-n1"):
        stays(lambda graph, target=target: narrow(graph, target), CONVOLUTIONS)


def test_weights_alone_are_narrowed_where_products_of_float32_are_as_fast():
    def rewrite(graph):
        return narrowing.narrow_products(graph, find_target("x86-64-v4+avx512bf16+avx512fp16"))

    becomes(
        rewrite,
        """graph g(%x: float32[m, 32]) {
        %w = constant float32[32, 8] splat 0.25
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
        return %0
    }""",
        """graph g(%x: float32[m, 32]) {
        %w = constant float32[32, 8] splat 0.25
        %0 = map(%w) { cast($0, bfloat16) }
        %1 = map(%0) { cast($0, float32) }
        %2 = contract(%x, %1) lhs=mk rhs=kn out=mn accumulate=float32
        return %2
    }""",
    )


def test_few_channels_groups_and_operands_of_the_run_stay_wide():
    stays(
        narrow,
        """graph g(%x: float32[1, 3, 9], %y: float32[1, 32, 9], %q: float32[m, 32]) {
        %w = constant float32[24, 3, 1] splat 0.25
        %d = constant float32[32, 1, 1] splat 0.25
        %0 = conv(%x, %w) strides=(1) pads=(0, 0) dilations=(1)
        %1 = conv(%y, %d) strides=(1) pads=(0, 0) dilations=(1) groups=32
        %2 = contract(%q, %q) lhs=mk rhs=nk out=mn accumulate=float32
        return %0, %1, %2
    }""",
    )


@pytest.mark.parametrize("taps, narrowed", [(1, False), (3, True), (7, True)])
def test_an_image_of_few_channels_where_dot_products_add_up_neighbours_of_a_row(taps, narrowed):
    text = f"""graph g(%x: float32[1, 3, 9, 9]) {{
        %w = constant float32[24, 3, {taps}, {taps}] splat 0.25
        %0 = conv(%x, %w) strides=(1, 1) pads=(3, 3, 3, 3) dilations=(1, 1)
        return %0
    }}"""

    def rewrite(graph):
        return narrow(graph, "znver4")

    if not narrowed:
        stays(rewrite, text)
        return
    becomes(
        rewrite,
        text,
        f"""graph g(%x: float32[1, 3, 9, 9]) {{
        %w = constant float32[24, 3, {taps}, {taps}] splat 0.25
        %0 = map(%x) {{ cast($0, bfloat16) }}
        %1 = map(%w) {{ cast($0, bfloat16) }}
        %2 = conv(%0, %1) strides=(1, 1) pads=(3, 3, 3, 3) dilations=(1, 1)
        return %2
    }}""",
    )


def narrow_bfloat16s(graph):
    return narrowing.narrow_products(graph, TARGETS["sapphirerapids"], asked=False)


def test_products_of_bfloat16s_are_that_without_being_asked_for():
    becomes(
        narrow_bfloat16s,
        """graph g(%x: float32[1, 16, 9], %y: float32[m, 32], %q: float32[1, 2, 8, 16]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %v = constant float32[32, 8] splat 0.5
        %0 = map(%x) { cast(cast($0, bfloat16), float32) }
        %1 = conv(%0, %w) strides=(1) pads=(0, 0) dilations=(1)
        %2 = map(%y) { cast(cast(exp($0), bfloat16), float32) }
        %3 = contract(%2, %v) lhs=mk rhs=kn out=mn accumulate=float32
        %4 = map(%q) { cast(cast($0, bfloat16), float32) }
        %5 = attention(%4, %4, %4) scale=0.25
        return %1, %3, %5
    }""",
        """graph g(%x: float32[1, 16, 9], %y: float32[m, 32], %q: float32[1, 2, 8, 16]) {
        %w = constant float32[16, 16, 1] splat 0.25
        %v = constant float32[32, 8] splat 0.5
        %0 = map(%x) { cast($0, bfloat16) }
        %1 = map(%w) { cast($0, bfloat16) }
        %2 = conv(%0, %1) strides=(1) pads=(0, 0) dilations=(1)
        %3 = map(%y) { cast(cast(exp($0), bfloat16), float32) }
        %4 = map(%3) { cast($0, bfloat16) }
        %5 = map(%v) { cast($0, bfloat16) }
        %6 = contract(%4, %5) lhs=mk rhs=kn out=mn accumulate=float32
        %7 = map(%q) { cast(cast($0, bfloat16), float32) }
        %8 = attention(%7, %7, %7) scale=0.25 narrow=true
        return %2, %6, %8
    }""",
    )


@pytest.mark.parametrize(("x", "w"), [("exp($0)", 0.25), ("cast(cast(exp($0), bfloat16), float32)", 0.1)])
def test_other_products_are_not(x, w):
    stays(
        narrow_bfloat16s,
        f"""graph g(%x: float32[1, 16, 9]) {{
        %w = constant float32[16, 16, 1] splat {w}
        %0 = map(%x) {{ {x} }}
        %1 = conv(%0, %w) strides=(1) pads=(0, 0) dilations=(1)
        return %1
    }}""",
    )


def test_weights_that_are_stored_as_bfloat16s_are_such():
    weights = np.arange(512).reshape(16, 32, 1).astype(ml_dtypes.bfloat16)
    text = """graph g(%x: float32[1, 32, 9]) {
        %w = constant bfloat16[16, 32, 1] #w
        %0 = map(%w) { cast($0, float32) }
        %1 = map(%x) { cast(cast(exp($0), bfloat16), float32) }
        %2 = pool(%1) kind=max kernel=(3) strides=(1) pads=(1, 1) dilations=(1) sizes=(9)
        %3 = conv(%2, %0) strides=(1) pads=(0, 0) dilations=(1)
        return %3
    }"""
    found = narrow_bfloat16s(fold_constants(parse(text, {"w": weights})))
    assert [v.dtype for v in found.outputs[0].node.inputs] == ["bfloat16", "bfloat16"]


@pytest.mark.slow
def test_a_model_compiled_so_is_near_and_says_no_to_other_precisions(tmp_path):
    model, sizes = small_models.images(), {"batch": 1, "height": 24, "width": 24}
    feeds = {"image": np.random.default_rng(0).standard_normal((1, 3, 24, 24)).astype(np.float32)}
    wide, narrow = (
        onnxc.load(onnxc.compile(model, tmp_path / f"{precision}.so", dims=sizes, precision=precision)).run(
            None, feeds
        )[0]
        for precision in ("float32", "bf16")
    )
    np.testing.assert_allclose(narrow, wide, atol=0.02)
    with pytest.raises(CompileError, match="unknown precision 'half'; known are float32, bf16, int8"):
        onnxc.compile(model, tmp_path / "none.so", precision="half")
