"""fuse_maps: Maps enter the Maps that read them, where that costs nothing."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.passes.fuse_maps import MAX_INSTRUCTIONS, MAX_OPERANDS, fuse_maps


def test_a_chain_becomes_one_map():
    becomes(
        clean(fuse_maps),
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0, %y) { add($0, $1) }
        return %1
    }""",
        """graph g(%x: float32[n], %y: float32[n]) {
        %1 = map(%y, %x) { add(exp($1), $0) }
        return %1
    }""",
    )


def test_what_a_reduce_alone_reads_enters_it():
    text = """graph g(%x: float32[n, 8]) {
        %0 = map(%x) { exp($0) }
        %1 = reduce(%0) kind=sum axes=(1) body={ mul($0, $0) }
        %2 = map(%x) { neg($0) }
        %3 = reduce(%2) kind=argmax axes=(0)
        return %1, %3
    }"""
    becomes(
        clean(fuse_maps),
        text,
        """graph g(%x: float32[n, 8]) {
        %1 = reduce(%x) kind=sum axes=(1) body={ mul(exp($0), exp($0)) }
        %3 = reduce(%x) kind=argmax axes=(0) body={ neg($0) }
        return %1, %3
    }""",
    )
    agrees(fuse_maps, text, n=3)


@pytest.mark.parametrize(
    "nodes",
    [
        "%1 = map(%0) { neg($0) }",  # an epilogue
        "%1 = map(%x, %0) { add($0, $1) }",
        "%1 = map(%x) { check(lt($0, 1.0), $0, invalid_value) }",
    ],
)
def test_a_reduce_reads_what_is_better_made_elsewhere(nodes):
    stays(
        clean(fuse_maps),
        f"""graph g(%x: float32[n, 8], %w: float32[8, 8]) {{
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
        {nodes}
        %2 = reduce(%1) kind=sum axes=(1)
        return %2, %0
    }}""",
    )


def test_an_operand_that_both_read_is_read_once():
    becomes(
        clean(fuse_maps),
        """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0, %x) { mul($0, $1) }
        return %1
    }""",
        """graph g(%x: float32[n]) {
        %1 = map(%x) { mul(exp($0), $0) }
        return %1
    }""",
    )


def test_what_is_dear_and_read_twice_is_stored():
    stays(
        clean(fuse_maps),
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0, %y) { add($0, $1) }
        %2 = map(%0, %y) { mul($0, $1) }
        return %1, %2
    }""",
    )


def test_what_is_cheap_and_read_twice_is_computed_twice():
    becomes(
        clean(fuse_maps),
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x) { neg($0) }
        %1 = map(%0) { exp($0) }
        %2 = map(%0) { log($0) }
        return %1, %2
    }""",
        """graph g(%x: float32[n], %y: float32[n]) {
        %1 = map(%x) { exp(neg($0)) }
        %2 = map(%x) { log(neg($0)) }
        return %1, %2
    }""",
    )


def test_what_reads_wider_elements_than_it_writes_is_stored_for_two_readers():
    stays(
        clean(fuse_maps),
        """graph g(%x: float64[n]) {
        %0 = map(%x) { cast($0, bool) }
        %1 = map(%0) { cast($0, float32) }
        %2 = map(%0) { not($0) }
        return %1, %2
    }""",
    )


def test_an_output_that_another_map_reads_is_stored():
    stays(
        clean(fuse_maps),
        """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0) { add($0, 1.0) }
        return %0, %1
    }""",
    )


def test_what_two_operands_share_is_one_reader_each():
    stays(
        clean(fuse_maps),
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%0, %0) { div($0, add($1, 1.0)) }
        return %1
    }""",
    )


def test_what_is_computed_for_fewer_elements_is_stored():
    stays(
        clean(fuse_maps),
        """graph g(%x: float32[c, 1], %y: float32[c, n]) {
        %0 = map(%x) { sqrt($0) }
        %1 = map(%y, %0) { div($0, $1) }
        return %1
    }""",
    )


def test_what_may_be_of_fewer_elements_is_stored():
    stays(
        clean(fuse_maps),
        """graph g(%x: float32[m], %y: float32[n]) {
        %0 = map(%x) { sqrt($0) }
        %1 = map(%y, %0) { div($0, $1) }
        return %1
    }""",
    )


def test_a_cheap_map_of_fewer_elements_enters():
    becomes(
        clean(fuse_maps),
        """graph g(%x: float16[1, n], %y: float32[m, n]) {
        %0 = map(%x) { cast($0, float32) }
        %1 = map(%y, %0) { add($0, $1) }
        return %1
    }""",
        """graph g(%x: float16[1, n], %y: float32[m, n]) {
        %1 = map(%y, %x) { add($0, cast($1, float32)) }
        return %1
    }""",
    )


def test_an_index_does_not_enter_a_map_of_another_shape():
    stays(
        clean(fuse_maps),
        """graph g(%x: float32[b, n]) {
        %0 = map() { cast(index(0), float32) } shape=(n)
        %1 = map(%x, %0) { add($0, $1) }
        return %1
    }""",
    )


def test_an_index_enters_a_map_of_the_same_shape():
    becomes(
        clean(fuse_maps),
        """graph g(%x: int64[n]) {
        %0 = map() { index(0) } shape=(n)
        %1 = map(%x, %0) { add($0, $1) }
        return %1
    }""",
        """graph g(%x: int64[n]) {
        %1 = map(%x) { add($0, index(0)) }
        return %1
    }""",
    )


def test_the_shape_is_kept_where_no_operand_gives_it_any_more():
    becomes(
        clean(fuse_maps),
        """graph g(%x: int64[n]) {
        %0 = map() { index(0) } shape=(n)
        %1 = map(%0) { mul($0, 2) }
        return %1
    }""",
        """graph g(%x: int64[n]) {
        %1 = map() { mul(index(0), 2) } shape=(n)
        return %1
    }""",
    )


def test_a_broadcast_vanishes_where_the_other_operand_gives_the_shape():
    becomes(
        clean(fuse_maps),
        """graph g(%x: float32[1, n], %y: float32[b, n]) {
        %0 = broadcast(%x) shape=(b, n)
        %1 = map(%0, %y) { add($0, $1) }
        return %1
    }""",
        """graph g(%x: float32[1, n], %y: float32[b, n]) {
        %1 = map(%x, %y) { add($0, $1) }
        return %1
    }""",
    )


def test_a_broadcast_that_gives_the_shape_stays():
    stays(
        clean(fuse_maps),
        """graph g(%x: float32[1, n], %y: float32[1, n]) {
        %0 = broadcast(%x) shape=(b, n)
        %1 = map(%0, %y) { add($0, $1) }
        return %1
    }""".replace("%y: float32[1, n]", "%y: float32[1, n], %z: float32[b]"),
    )


def test_a_map_that_checks_enters_its_only_reader():
    becomes(
        clean(fuse_maps),
        """graph g(%x: int64[n], %y: int64[n]) {
        %0 = map(%x, %y) { div($0, check(ne($1, 0), $1, division_by_zero)) } from "a"
        %1 = map(%0) { neg($0) } from "b"
        return %1
    }""",
        """graph g(%x: int64[n], %y: int64[n]) {
        %1 = map(%x, %y) { neg(div($0, check(ne($1, 0), $1, division_by_zero))) } from "a"
        return %1
    }""",
    )


def test_a_map_that_checks_is_not_repeated():
    stays(
        clean(fuse_maps),
        """graph g(%x: int64[n]) {
        %0 = map(%x) { check(ne($0, 0), $0, division_by_zero) }
        %1 = map(%0) { neg($0) }
        %2 = map(%0) { abs($0) }
        return %1, %2
    }""",
    )


def test_an_error_names_every_node_that_may_have_made_it():
    becomes(
        clean(fuse_maps),
        """graph g(%x: float32[m], %y: float32[n], %z: float32[n]) {
        %0 = map(%y, %z) { exp(add($0, $1)) } from "sum"
        %1 = map(%0) { check(gt($0, 0.0), $0, invalid_value) } from "root"
        %2 = map(%1) { neg($0) } from "last"
        return %2
    }""",
        """graph g(%x: float32[m], %y: float32[n], %z: float32[n]) {
        %2 = map(%y, %z) {
            t0 = exp(add($0, $1)); neg(check(gt(t0, 0.0), t0, invalid_value))
        } from "root"
        return %2
    }""",
    )


def test_bodies_keep_to_their_number_of_operands():
    half = MAX_OPERANDS // 2 + 1
    names = [f"%x{k}" for k in range(2 * half)]
    parameters = ", ".join(f"{name}: float32[n]" for name in names)
    first, second = names[:half], names[half:]
    text = f"""graph g({parameters}) {{
        %0 = map({", ".join(first)}) {{ {nested(half)} }}
        %1 = map(%0, {", ".join(second)}) {{ {nested(half + 1)} }}
        return %1
    }}"""
    stays(clean(fuse_maps), text)


def nested(count):
    return "$0" if count == 1 else f"add({nested(count - 1)}, ${count - 1})"


def test_bodies_keep_to_their_number_of_instructions():
    lines = [f"%{k + 1} = map(%{k}) {{ tanh($0) }}" for k in range(MAX_INSTRUCTIONS + 1)]
    text = "graph g(%0: float32[n]) {" + "\n".join(lines) + f"return %{MAX_INSTRUCTIONS + 1} }}"
    assert ops(agrees(clean(fuse_maps), text, n=3)) == ["Map", "Map"]


def test_maps_are_fused_in_branches_and_not_across_their_border():
    becomes(
        clean(fuse_maps),
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = if(%c, %0) then=(%a: float32[n]) {
            %2 = map(%a) { neg($0) }
            %3 = map(%2) { exp($0) }
            return %3
        } otherwise=(%a: float32[n]) { return %a } : float32[n]
        return %1
    }""",
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = if(%c, %0) then=(%a: float32[n]) {
            %3 = map(%a) { exp(neg($0)) }
            return %3
        } otherwise=(%a: float32[n]) { return %a } : float32[n]
        return %1
    }""",
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint64"])
def test_results_are_rounded_to_their_type_between_maps_that_were_two(dtype):
    agrees(
        clean(fuse_maps),
        f"""graph g(%x: {dtype}[n], %y: {dtype}[n]) {{
        %0 = map(%x, %y) {{ mul($0, $1) }}
        %1 = map(%0, %y) {{ sub($0, $1) }}
        %2 = map(%1) {{ cast(cast($0, uint8), {dtype}) }}
        return %2
    }}""",
        n=7,
    )


def test_a_chain_of_two_casts_stays_two_casts():
    values = np.array([0.0, 0.1, 65504.0, 1e30, np.nan, -np.inf], np.float32)
    found = agrees(
        clean(fuse_maps),
        """graph g(%x: float32[n]) {
        %0 = map(%x) { cast($0, float16) }
        %1 = map(%0) { cast($0, float32) }
        return %1
    }""",
        inputs=[values],
        n=6,
    )
    assert str(found.nodes[0].op.body) == "cast(cast($0, float16), float32)"


@pytest.mark.parametrize("n", [0, 1])
def test_sizes_of_zero_and_one_are_sizes(n):
    agrees(
        clean(fuse_maps),
        """graph g(%x: float32[n, 1], %y: float32[n, m]) {
        %0 = broadcast(%x) shape=(n, m)
        %1 = map(%0, %y) { add($0, $1) }
        %2 = map(%1, %x) { mul(exp($0), $1) }
        return %2
    }""",
        n=n,
        m=1 - n,
    )
