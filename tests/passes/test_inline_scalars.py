"""inline_scalars: numbers move into the bodies that read them."""

import numpy as np
from support.pass_text import agrees, becomes, stays

from onnxc.passes.inline_scalars import inline_scalars


def test_scalars_enter_bodies():
    becomes(
        inline_scalars,
        """graph g(%x: float32[n]) {
        %c = constant float32[] (0.5)
        %0 = map(%x, %c) { mul($0, $1) }
        return %0
    }""",
        """graph g(%x: float32[n]) {
        %0 = map(%x) { mul($0, 0.5) }
        return %0
    }""",
    )


def test_a_value_that_repeats_enters():
    becomes(
        inline_scalars,
        """graph g(%x: float32[4, 8]) {
        %c = constant float32[8] splat -0.0
        %0 = map(%x, %c) { sub($0, $1) }
        return %0
    }""",
        """graph g(%x: float32[4, 8]) {
        %0 = map(%x) { sub($0, -0.0) }
        return %0
    }""",
    )


def test_operands_are_counted_anew():
    becomes(
        inline_scalars,
        """graph g(%x: float32[n], %y: float32[n]) {
        %c = constant float32[1] (0.5)
        %0 = map(%c, %x, %y) { add(mul($0, $1), $2) }
        return %0
    }""",
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x, %y) { add(mul(0.5, $0), $1) }
        return %0
    }""",
    )


def test_numbers_keep_their_types():
    becomes(
        inline_scalars,
        """graph g(%x: float16[n], %b: bool[n]) {
        %half = constant float16[] (0.1)
        %yes = constant bool[] (true)
        %0 = map(%x, %half) { mul($0, $1) }
        %1 = map(%b, %yes) { xor($0, $1) }
        return %0, %1
    }""",
        """graph g(%x: float16[n], %b: bool[n]) {
        %0 = map(%x) { mul($0, 0.1) }
        %1 = map(%b) { xor($0, true) }
        return %0, %1
    }""",
    )


def test_a_nan_enters_as_it_is():
    agrees(
        inline_scalars,
        """graph g(%x: float32[n]) {
        %c = constant float32[] (nan)
        %0 = map(%x, %c) { max($0, $1) }
        return %0
    }""",
        n=3,
    )


def test_different_elements_stay():
    stays(
        inline_scalars,
        """graph g(%x: float32[n, 2]) {
        %c = constant float32[2] (0.5, 0.5)
        %0 = map(%x, %c) { mul($0, $1) }
        return %0
    }""",
    )


def test_complex_numbers_stay():
    stays(
        inline_scalars,
        """graph g(%x: complex64[n]) {
        %c = constant complex64[] (1j)
        %0 = map(%x, %c) { mul($0, $1) }
        return %0
    }""",
    )


def test_a_body_without_operands_keeps_its_shape():
    becomes(
        inline_scalars,
        """graph g(%x: float32[n]) {
        %c = constant float32[3] splat 1.5
        %0 = map(%c) { exp($0) }
        %1 = concat(%x, %0) axis=0
        return %1
    }""",
        """graph g(%x: float32[n]) {
        %0 = map() { 4.481689:float32 } shape=(3)
        %1 = concat(%x, %0) axis=0
        return %1
    }""",
    )


def test_a_shape_that_the_number_gave_is_kept():
    becomes(
        inline_scalars,
        """graph g(%x: float32[n]) {
        %c = constant float32[1, 1] (0.5)
        %0 = map(%x, %c) { mul($0, $1) }
        return %0
    }""",
        """graph g(%x: float32[n]) {
        %0 = map(%x) { mul($0, 0.5) } shape=(1, n)
        return %0
    }""",
    )


def test_an_operand_that_is_not_read_goes_and_its_shape_stays():
    becomes(
        inline_scalars,
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x, %y) { index(0) }
        return %0
    }""",
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map() { index(0) } shape=(n)
        return %0
    }""",
    )


def test_what_is_counted_from_zero_by_one_is_the_index():
    becomes(
        inline_scalars,
        """graph g(%x: int64[n]) {
        %start = constant int64[] (0)
        %step = constant int64[] (1)
        %0 = map(%start, %step) { add($0, mul(index(0), $1)) } shape=(n)
        return %0
    }""",
        """graph g(%x: int64[n]) {
        %0 = map() { index(0) } shape=(n)
        return %0
    }""",
    )


def test_a_cast_that_the_model_asks_for_stays_one():
    stays(
        inline_scalars, "graph g(%x: float32[n]) { %0 = map(%x) { cast($0, float16) } asked=true return %0 }"
    )


def test_scalars_enter_epilogues():
    weights = {"k": np.ones((2, 3), np.float32)}
    becomes(
        inline_scalars,
        """graph g(%x: float32[n, 2]) {
        %k = constant float32[2, 3] #k
        %c = constant float32[1, 1] (0.5)
        %b = constant float32[3] (1.0, 2.0, 3.0)
        %0 = contract(%x, %k, %c, %b) lhs=mk rhs=kn out=mn accumulate=float32
            epilogue={ add(mul($0, $1), $2) }
        return %0
    }""",
        """graph g(%x: float32[n, 2]) {
        %k = constant float32[2, 3] #k
        %b = constant float32[3] (1.0, 2.0, 3.0)
        %0 = contract(%x, %k, %b) lhs=mk rhs=kn out=mn accumulate=float32
            epilogue={ add(mul($0, 0.5), $1) }
        return %0
    }""",
        {"k": weights["k"]},
    )


def test_weights_of_one_element_stay_operands():
    stays(
        inline_scalars,
        """graph g(%x: float32[n, 1]) {
        %k = constant float32[1, 1] (0.5)
        %0 = contract(%x, %k) lhs=mk rhs=kn out=mn accumulate=float32
        return %0
    }""",
    )


def test_scalars_enter_bodies_of_loops():
    becomes(
        inline_scalars,
        """graph g(%t: int64[], %c: bool[], %x: float32[n]) {
        %half = constant float32[] (0.5)
        %0 = loop(%t, %c, %x) carried=1 body=(%i: int64[], %d: bool[], %a: float32[n]) {
            %1 = map(%a, %half) { mul($0, $1) }
            return %d, %1
        } : float32[n]
        return %0
    }""",
        """graph g(%t: int64[], %c: bool[], %x: float32[n]) {
        %0 = loop(%t, %c, %x) carried=1 body=(%i: int64[], %d: bool[], %a: float32[n]) {
            %1 = map(%a) { mul($0, 0.5) }
            return %d, %1
        } : float32[n]
        return %0
    }""",
    )
