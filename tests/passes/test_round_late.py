"""round_late: float16 numbers stay float32 between what computes them and what computes with them."""

from support.pass_text import agrees, becomes, clean, stays

from onnxc.passes.round_late import round_late

LOSS = 2e-3  # two roundings to float16


def test_what_is_computed_is_moved_and_read_in_float32():
    text = """graph g(%x: float16[2, 3], %y: float16[4, 2]) {
        %0 = map(%x) { mul($0, $0) }
        %1 = transpose(%0) perm=(1, 0)
        %2 = concat(%1, %y) axis=0
        %3 = map(%2) { exp($0) }
        return %3
    }"""
    becomes(
        clean(round_late),
        text,
        """graph g(%x: float16[2, 3], %y: float16[4, 2]) {
        %0 = map(%x) { t0 = cast($0, float32); mul(t0, t0) }
        %1 = transpose(%0) perm=(1, 0)
        %2 = map(%y) { cast($0, float32) }
        %3 = concat(%1, %2) axis=0
        %4 = map(%3) { cast(exp($0), float16) }
        return %4
    }""",
    )
    agrees(round_late, text, tolerance=LOSS)


def test_sums_of_products_and_reductions_are_rounded_by_nobody():
    text = """graph g(%x: float16[2, 3], %w: float16[3, 4], %b: float16[4]) {
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32 epilogue={ cast($0, float16) }
        %1 = map(%0, %b) { add($0, $1) }
        %2 = reduce(%1) kind=max axes=(1) keepdims=true
        %3 = map(%1, %2) { lt($0, $1) }
        return %3
    }"""
    becomes(
        clean(round_late),
        text,
        """graph g(%x: float16[2, 3], %w: float16[3, 4], %b: float16[4]) {
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32 halves=true
        %1 = map(%0, %b) { add($0, cast($1, float32)) }
        %2 = reduce(%1) kind=max axes=(1) keepdims=true
        %3 = map(%1, %2) { lt($0, $1) }
        return %3
    }""",
    )


def test_outputs_and_what_needs_the_type_are_rounded_once():
    text = """graph g(%x: float16[3, 4]) {
        %0 = map(%x) { exp($0) }
        %1, %2 = sort(%0) axis=1
        %3 = map(%0) { neg($0) }
        return %0, %1, %3
    }"""
    becomes(
        clean(round_late),
        text,
        """graph g(%x: float16[3, 4]) {
        %0 = map(%x) { exp(cast($0, float32)) }
        %1 = map(%0) { cast($0, float16) }
        %2, %3 = sort(%1) axis=1
        %4 = map(%0) { cast(neg($0), float16) }
        return %1, %2, %4
    }""",
    )
    agrees(round_late, text, tolerance=LOSS)


def test_the_bits_of_a_number_are_those_of_its_type():
    text = """graph g(%x: float16[3]) {
        %0 = map(%x) { bitcast(mul($0, $0), int16) }
        return %0
    }"""
    becomes(
        round_late,
        text,
        """graph g(%x: float16[3]) {
        %0 = map(%x) { t0 = cast($0, float32); bitcast(cast(mul(t0, t0), float16), int16) }
        return %0
    }""",
    )
    agrees(round_late, text)


def test_a_cast_of_the_model_rounds_and_one_of_an_operator_does_not():
    becomes(
        clean(round_late),
        """graph g(%x: float32[3]) {
        %0 = map(%x) { exp($0) } from "a (Exp)"
        %1 = map(%0) { cast($0, float16) } from "b (Cast)"
        %2 = map(%1) { neg($0) } from "c (Norm)"
        %3 = map(%2) { cast(exp(cast($0, float32)), float32) } from "c (Norm)"
        %4 = map(%3) { cast($0, float16) } from "c (Norm)"
        %5 = map(%4) { mul($0, $0) } from "d (Mul)"
        return %5
    }""",
        """graph g(%x: float32[3]) {
        %0 = map(%x) { exp($0) } from "a (Exp)"
        %1 = map(%0) { cast($0, float16) } from "b (Cast)"
        %2 = map(%1) { neg(cast($0, float32)) } from "c (Norm)"
        %3 = map(%2) { exp($0) } from "c (Norm)"
        %4 = map(%3) { cast(mul($0, $0), float16) } from "d (Mul)"
        return %4
    }""",
    )


def test_a_cast_that_the_model_asks_for_rounds_whatever_the_names_of_nodes():
    stays(
        clean(round_late),
        """graph g(%x: float32[3]) {
        %0 = map(%x) { exp($0) } from "a (Cast)"
        %1 = map(%0) { cast($0, float16) } asked=true from "a (Cast)"
        %2 = map(%1) { cast($0, float32) } from "a (Cast)"
        return %2
    }""",
    )


def test_a_cast_of_what_an_operator_was_given_rounds():
    stays(
        clean(round_late),
        """graph g(%x: float32[*]) {
        %0 = runtime_call(%x) symbol=with_rank : float32[n] from "a (Own)"
        %1 = map(%0) { cast($0, float16) } from "a (Own)"
        %2 = map(%1) { cast($0, float32) } from "b (Cast)"
        return %2
    }""",
    )


def test_products_of_what_an_operator_has_widened_are_those_of_float16s():
    text = """graph g(%x: float16[2, 3], %y: float32[2, 3]) {
        %w = constant float16[3, 4] splat 0.5
        %0 = map(%w) { cast($0, float32) } from "a (Attention)"
        %1 = map(%x) { cast($0, float32) } from "a (Attention)"
        %2 = contract(%1, %0) lhs=mk rhs=kn out=mn accumulate=float32 from "a (Attention)"
        %3 = contract(%1, %0) lhs=mk rhs=kn out=mn accumulate=float32 from "b (MatMul)"
        %4 = contract(%y, %0) lhs=mk rhs=kn out=mn accumulate=float32 from "a (Attention)"
        return %2, %3, %4
    }"""
    becomes(
        round_late,
        text,
        text.replace('float32 from "a (Attention)"', 'float32 halves=true from "a (Attention)"', 1),
    )


def test_convolutions_of_float16s_are_too():
    text = """graph g(%x: float16[1, 2, 5, 5], %y: float32[1, 2, 5, 5]) {
        %w = constant float16[3, 2, 1, 1] splat 0.5
        %0 = map(%w) { cast($0, float32) } from "a (Conv)"
        %1 = map(%x) { cast($0, float32) } from "a (Conv)"
        %2 = conv(%1, %0) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) from "a (Conv)"
        %3 = conv(%y, %0) strides=(1, 1) pads=(0, 0, 0, 0) dilations=(1, 1) from "b (Conv)"
        return %2, %3
    }"""
    becomes(round_late, text, text.replace('(1, 1) from "a (Conv)"', '(1, 1) halves=true from "a (Conv)"'))


def test_a_pool_takes_float32_as_it_is():
    text = """graph g(%x: float16[1, 2, 3]) {
        %0 = map(%x) { exp($0) }
        %1 = pool(%0) kind=max kernel=(2) strides=(1) pads=(0, 0) dilations=(1) sizes=(2)
        %2 = map(%1) { neg($0) }
        return %2
    }"""
    becomes(
        clean(round_late),
        text,
        """graph g(%x: float16[1, 2, 3]) {
        %0 = map(%x) { exp(cast($0, float32)) }
        %1 = pool(%0) kind=max kernel=(2) strides=(1) pads=(0, 0) dilations=(1) sizes=(2)
        %2 = map(%1) { cast(neg($0), float16) }
        return %2
    }""",
    )


def test_a_node_rounds_to_bfloat16_once():
    text = """graph g(%x: bfloat16[3, 4], %y: float16[3, 4]) {
        %0 = map(%x, %y) { mul($0, add(exp($0), cast($1, bfloat16))) }
        %1 = map(%0) { add($0, 1.0) }
        return %1
    }"""
    becomes(
        round_late,
        text,
        """graph g(%x: bfloat16[3, 4], %y: float16[3, 4]) {
        %0 = map(%x, %y) { t0 = cast($0, float32); cast(mul(t0, add(exp(t0), cast($1, float32))), bfloat16) }
        %1 = map(%0) { add($0, 1.0) }
        return %1
    }""",
    )
    agrees(round_late, text, tolerance=2e-2)  # roundings to bfloat16


def test_the_bits_of_a_bfloat16_are_those_of_its_type():
    stays(
        round_late,
        """graph g(%x: bfloat16[3]) {
        %0 = map(%x) { bitcast(mul($0, neg($0)), int16) }
        return %0
    }""",
    )


def test_other_types_and_what_only_moves_stay():
    stays(
        round_late,
        """graph g(%x: bfloat16[2, 3], %y: float16[2, 3], %z: float32[3]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0) { neg($0) }
        %2 = transpose(%y) perm=(1, 0)
        %3 = map(%z) { cast($0, float16) }
        %4 = reduce(%y) kind=max axes=(1)
        return %1, %2, %3, %4
    }""",
    )
