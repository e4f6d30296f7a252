"""fuse_epilogues: a Map over the result of a convolution or contraction becomes its epilogue."""

import pytest
from support.pass_text import agrees, becomes, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.passes.fuse_epilogues import fuse_epilogues
from onnxc.passes.fuse_maps import MAX_INSTRUCTIONS


def test_a_map_becomes_an_epilogue():
    becomes(
        fuse_epilogues,
        """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3],
            %b: float32[8, 1, 1]) {
        %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
        %1 = map(%0, %b) { max(add($0, $1), 0.0) }
        return %1
    }""",
        """graph g(%x: float32[1, 3, h, w], %k: float32[8, 3, 3, 3], %b: float32[8, 1, 1]) {
        %1 = conv(%x, %k, %b) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
            epilogue={ max(add($0, $1), 0.0) }
        return %1
    }""",
    )


def test_maps_in_a_row_become_one_epilogue():
    becomes(
        fuse_epilogues,
        """graph g(%x: float32[m, k], %y: float32[k, n], %b: float32[n]) {
        %0 = contract(%x, %y, %b) lhs=mk rhs=kn out=mn accumulate=float32 epilogue={ add($0, $1) }
        %1 = map(%0) { max($0, 0.0) }
        return %1
    }""",
        """graph g(%x: float32[m, k], %y: float32[k, n], %b: float32[n]) {
        %1 = contract(%x, %y, %b) lhs=mk rhs=kn out=mn accumulate=float32 epilogue={ max(add($0, $1), 0.0) }
        return %1
    }""",
    )


def test_of_two_convolutions_the_later_one_adds():
    becomes(
        fuse_epilogues,
        """graph g(%x: float32[1, 8, h, w], %k: float32[8, 8, 1, 1],
            %m: float32[8, 8, 1, 1]) {
        %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %1 = conv(%x, %m) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %2 = map(%0, %1) { add($0, $1) }
        return %2
    }""",
        """graph g(%x: float32[1, 8, h, w], %k: float32[8, 8, 1, 1], %m: float32[8, 8, 1, 1]) {
        %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
        %2 = conv(%x, %m, %0) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) epilogue={ add($1, $0) }
        return %2
    }""",
    )


def test_a_residual_that_comes_later_is_waited_for():
    becomes(
        fuse_epilogues,
        """graph g(%x: float32[m, k], %y: float32[k, n], %r: float32[m, n]) {
        %0 = contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = reduce(%r) kind=sum axes=(0) keepdims=true
        %2 = map(%0, %1) { add($0, $1) }
        return %2
    }""",
        """graph g(%x: float32[m, k], %y: float32[k, n], %r: float32[m, n]) {
        %1 = reduce(%r) kind=sum axes=(0) keepdims=true
        %2 = contract(%x, %y, %1) lhs=mk rhs=kn out=mn accumulate=float32 epilogue={ add($0, $1) }
        return %2
    }""",
    )


def test_a_result_may_be_of_another_type():
    becomes(
        fuse_epilogues,
        """graph g(%x: uint8[m, k], %y: int8[k, n], %s: float32[n]) {
        %0 = contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=int32
        %1 = map(%0, %s) { mul(cast($0, float32), $1) }
        return %1
    }""",
        """graph g(%x: uint8[m, k], %y: int8[k, n], %s: float32[n]) {
        %1 = contract(%x, %y, %s) lhs=mk rhs=kn out=mn accumulate=int32
            epilogue={ mul(cast($0, float32), $1) }
        return %1
    }""",
    )


CONVOLUTION = """graph g(%x: float32[1, 8, h, w], %k: float32[8, 8, 1, 1], %y: float32[2, 8, h, w]) {
    %0 = conv(%x, %k) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1)
    READERS
}"""


@pytest.mark.parametrize(
    "readers",
    [
        "%1 = map(%0) { max($0, 0.0) } return %0, %1",
        "%1 = map(%0) { max($0, 0.0) } %2 = map(%0) { exp($0) } return %1, %2",
        "%1 = map(%0, %0) { mul($0, $1) } return %1",
    ],
)
def test_a_result_that_is_read_twice_keeps_its_map(readers):
    stays(fuse_epilogues, CONVOLUTION.replace("READERS", readers))


def test_a_map_of_a_larger_shape_stays():
    stays(fuse_epilogues, CONVOLUTION.replace("READERS", "%1 = map(%0, %y) { add($0, $1) } return %1"))


VOLUMES = """graph g(%x: float32[n, 8, d, h, w], %k: float32[8, 8, 1, 3, 3], %y: float32[SHAPE]) {
    %0 = conv(%x, %k) strides=(1, 1, 1) pads=(0, 1, 1, 0, 1, 1) dilations=(1, 1, 1)
    %1 = map(%0, %y) { add($0, $1) }
    return %1
}"""


@pytest.mark.parametrize(
    "shape", ["n, 8, d, h, w", "1, 8, 1, 1, w", "8, d, h, 1", "d, h, w", "1, 1, w", "w", ""]
)
def test_a_convolution_takes_what_is_read_as_an_image(shape):
    assert ops(fuse_epilogues(parse(VOLUMES.replace("SHAPE", shape)))) == ["Conv"]


@pytest.mark.parametrize("shape", ["n, 1, 1, h, w", "1, 8, d, 1, w", "h, w"])
def test_a_map_of_some_of_the_axes_that_are_rows_together_stays(shape):
    stays(fuse_epilogues, VOLUMES.replace("SHAPE", shape))


BLOCK = """graph g(%x: float32[n, 8, h, w], %k: float32[8, 8, 3, 3], %y: float32[SHAPE]) {
    %0 = map(%x, %y) { mul($0, $1) }
    %1 = conv(%0, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1)
    %2 = map(%1, %y) { add($0, $1) }
    return %2
}"""


@pytest.mark.parametrize("shape, taken", [("b, 8, p, q", True), ("p, q", True), ("b, c, p, q", False)])
def test_only_channels_must_be_known_to_repeat_or_not(shape, taken):
    found = fuse_epilogues(parse(BLOCK.replace("SHAPE", shape)))
    assert ops(found) == (["Map", "Conv"] if taken else ["Map", "Conv", "Map"])


def test_a_map_that_knows_its_place_or_may_fail_stays():
    for body in ("add($0, cast(index(1), float32))", "check(gt($0, 0.0), $0, invalid_value)"):
        stays(fuse_epilogues, CONVOLUTION.replace("READERS", f"%1 = map(%0) {{ {body} }} return %1"))


def test_an_epilogue_keeps_to_its_number_of_instructions():
    body = "$0"
    for _ in range(MAX_INSTRUCTIONS + 1):
        body = f"tanh({body})"
    stays(fuse_epilogues, CONVOLUTION.replace("READERS", f"%1 = map(%0) {{ {body} }} return %1"))


def test_what_other_nodes_make_keeps_its_map():
    stays(
        fuse_epilogues,
        """graph g(%x: float32[1, 8, h, w]) {
        %0 = reduce(%x) kind=sum axes=(1)
        %1 = map(%0) { exp($0) }
        return %1
    }""",
    )


def test_maps_of_a_branch_become_epilogues():
    becomes(
        fuse_epilogues,
        """graph g(%c: bool[], %x: float32[4, 4]) {
        %0 = if(%c, %x) then=(%a: float32[4, 4]) {
            %1 = contract(%a, %a) lhs=mk rhs=kn out=mn accumulate=float32
            %2 = map(%1) { exp($0) }
            return %2
        } otherwise=(%a: float32[4, 4]) { return %a } : float32[4, 4]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[4, 4]) {
        %0 = if(%c, %x) then=(%a: float32[4, 4]) {
            %2 = contract(%a, %a) lhs=mk rhs=kn out=mn accumulate=float32 epilogue={ exp($0) }
            return %2
        } otherwise=(%a: float32[4, 4]) { return %a } : float32[4, 4]
        return %0
    }""",
    )


@pytest.mark.parametrize("m, n", [(0, 3), (2, 0), (1, 1), (3, 5)])
def test_results_stay_the_same_bits(m, n):
    agrees(
        fuse_epilogues,
        """graph g(%x: float16[m, 4], %y: float16[4, n], %b: float16[1, n]) {
        %0 = contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = map(%0, %b) { cast(div($0, cast($1, float32)), float16) }
        return %1
    }""",
        m=m,
        n=n,
    )
