"""absorb_transposes: contractions read and write transposed tensors in place."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.passes.absorb_transposes import absorb_transposes


def test_a_transposed_operand_is_a_change_of_labels():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[b, s, 12, 64], %y: float32[b, 12, 64, t]) {
        %0 = transpose(%x) perm=(0, 2, 1, 3)
        %1 = contract(%0, %y) lhs=bhqd rhs=bhdk out=bhqk accumulate=float32
        return %1
    }""",
        """graph g(%x: float32[b, s, 12, 64], %y: float32[b, 12, 64, t]) {
        %1 = contract(%x, %y) lhs=bqhd rhs=bhdk out=bhqk accumulate=float32
        return %1
    }""",
    )


def test_a_result_is_permuted_where_its_innermost_axis_stays():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 64]) {
        %0 = contract(%x, %y) lhs=bhqk rhs=bhke out=bhqe accumulate=float32
        %1 = transpose(%0) perm=(0, 2, 1, 3)
        return %1
    }""",
        """graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 64]) {
        %1 = contract(%x, %y) lhs=bhqk rhs=bhke out=bqhe accumulate=float32
        return %1
    }""",
    )


def test_a_result_whose_innermost_axis_moves_is_transposed():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[m, k], %y: float32[k, n]) {
        %0 = contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = transpose(%0) perm=(1, 0)
        return %1
    }""",
    )


def test_a_result_is_not_permuted_where_a_row_would_come_between_its_columns():
    """The product's columns are "ue": 32 that lie side by side, and then 2."""
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[b, s, 16, 2], %y: float32[16, 2, 16, 2]) {
        %0 = contract(%x, %y) lhs=bqkp rhs=kpue out=bque accumulate=float32
        %1 = transpose(%0) perm=(0, 2, 1, 3)
        return %1
    }""",
    )


def test_a_result_of_few_columns_is_permuted_where_all_stay_together():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 8]) {
        %0 = contract(%x, %y) lhs=bhqk rhs=bhke out=bhqe accumulate=float32
        %1 = transpose(%0) perm=(0, 2, 1, 3)
        return %1
    }""",
        """graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 8]) {
        %1 = contract(%x, %y) lhs=bhqk rhs=bhke out=bqhe accumulate=float32
        return %1
    }""",
    )


@pytest.mark.parametrize("reader", ["%2 = map(%0) { exp($0) }", "%2 = transpose(%0) perm=(0, 2, 1, 3)"])
def test_a_result_that_is_read_twice_is_not_permuted(reader):
    stays(
        clean(absorb_transposes),
        f"""graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 64]) {{
        %0 = contract(%x, %y) lhs=bhqk rhs=bhke out=bhqe accumulate=float32
        %1 = transpose(%0) perm=(0, 2, 1, 3)
        {reader}
        return %1, %2
    }}""",
    )


def test_a_result_that_is_an_output_is_not_permuted():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[b, 12, s, t], %y: float32[b, 12, t, 64]) {
        %0 = contract(%x, %y) lhs=bhqk rhs=bhke out=bhqe accumulate=float32
        %1 = transpose(%0) perm=(0, 2, 1, 3)
        return %0, %1
    }""",
    )


def test_a_result_with_an_epilogue_of_more_operands_is_transposed():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[b, m, k], %y: float32[b, k, n], %z: float32[n]) {
        %0 = contract(%x, %y, %z) lhs=bmk rhs=bkn out=bmn accumulate=float32 epilogue={ add($0, $1) }
        %1 = transpose(%0) perm=(1, 0, 2)
        return %1
    }""",
    )


def test_transposes_after_transposes_are_absorbed():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[k, b, m], %y: float32[b, n, k]) {
        %0 = transpose(%x) perm=(1, 0, 2)
        %1 = transpose(%0) perm=(0, 2, 1)
        %2 = transpose(%y) perm=(0, 2, 1)
        %3 = contract(%1, %2) lhs=bmk rhs=bkn out=bmn accumulate=float32
        return %3
    }""",
        """graph g(%x: float32[k, b, m], %y: float32[b, n, k]) {
        %3 = contract(%x, %y) lhs=kbm rhs=bnk out=bmn accumulate=float32
        return %3
    }""",
    )


def test_a_transpose_that_others_read_stays_for_them():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[k, m], %y: float32[k, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = contract(%0, %y) lhs=mk rhs=kn out=mn accumulate=float32
        return %0, %1
    }""",
        """graph g(%x: float32[k, m], %y: float32[k, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = contract(%x, %y) lhs=km rhs=kn out=mn accumulate=float32
        return %0, %1
    }""",
    )


def test_a_transpose_behind_a_map_is_absorbed():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[k, m], %y: float32[k, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = map(%0) { mul($0, 0.5) }
        %2 = contract(%1, %y) lhs=mk rhs=kn out=mn accumulate=float32
        return %2
    }""",
        """graph g(%x: float32[k, m], %y: float32[k, n]) {
        %1 = map(%x) { mul($0, 0.5) }
        %2 = contract(%1, %y) lhs=km rhs=kn out=mn accumulate=float32
        return %2
    }""",
    )


def test_a_transpose_behind_a_map_that_others_read_stays():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[k, m], %y: float32[k, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = map(%0) { exp($0) }
        %2 = contract(%1, %y) lhs=mk rhs=kn out=mn accumulate=float32
        return %1, %2
    }""",
    )


def test_a_transpose_behind_a_map_that_knows_its_place_stays():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[k, m], %y: float32[k, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = map(%0) { add($0, cast(index(1), float32)) }
        %2 = contract(%1, %y) lhs=mk rhs=kn out=mn accumulate=float32
        return %2
    }""",
    )


def test_a_transpose_behind_an_axis_of_size_one_is_absorbed():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[k, m], %y: float32[1, k, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = reshape(%0) shape=(1, m, k)
        %2 = contract(%1, %y) lhs=bmk rhs=bkn out=bmn accumulate=float32
        return %2
    }""",
        """graph g(%x: float32[k, m], %y: float32[1, k, n]) {
        %2 = contract(%x, %y) lhs=km rhs=bkn out=bmn accumulate=float32
        return %2
    }""",
    )


def test_a_unit_axis_behind_a_map_is_absorbed():
    """Heads of a batch of one, stored in halves."""
    becomes(
        clean(absorb_transposes),
        """graph g(%q: float32[1, h, m, k], %k: float16[1, h, n, k]) {
        %0 = transpose(%k) perm=(0, 1, 3, 2)
        %1 = reshape(%0) shape=(h, k, n)
        %2 = map(%1) { cast($0, float32) }
        %3 = contract(%q, %2) lhs=abmk rhs=bkn out=abmn accumulate=float32
        return %3
    }""",
        """graph g(%q: float32[1, h, m, k], %k: float16[1, h, n, k]) {
        %2 = map(%k) { cast($0, float32) }
        %3 = contract(%q, %2) lhs=abmk rhs=abnk out=abmn accumulate=float32
        return %3
    }""",
    )


def test_a_unit_axis_behind_a_map_that_others_read_stays():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[1, h, m, k], %y: float32[1, h, k, n]) {
        %0 = reshape(%y) shape=(h, k, n)
        %1 = map(%0) { exp($0) }
        %2 = contract(%x, %1) lhs=abmk rhs=bkn out=abmn accumulate=float32
        return %1, %2
    }""",
    )


def test_a_change_of_unit_axes_without_a_transpose_behind_it_stays():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[1, b, m, k], %y: float32[b, k, n]) {
        %0 = reshape(%x) shape=(b, m, k)
        %1 = contract(%0, %y) lhs=bmk rhs=bkn out=bmn accumulate=float32
        return %1
    }""",
    )


def test_a_unit_axis_that_only_one_operand_gives_stays():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[k, m], %y: float32[k, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = reshape(%0) shape=(m, 1, k)
        %2 = contract(%1, %y) lhs=mak rhs=kn out=man accumulate=float32
        return %2
    }""",
    )


def test_rows_that_are_rounded_get_no_second_axis_that_is_summed_over():
    """Steps are those of blocks along one axis."""
    text = """graph g(%x: float32[8, 1, n, 16], %y: float32[16, 33]) {{
        %0 = transpose(%x) perm=(2, 0, 1, 3)
        %1 = reshape(%0) shape=(n, 8, 16)
        %2 = contract(%1, %y) lhs=amk rhs=kn out=amn accumulate=float32{}
        return %2
    }}"""
    assert ops(clean(absorb_transposes)(parse(text.format("")))) == ["Contract"]
    stays(clean(absorb_transposes), text.format(" rounded=16"))


def test_a_reshape_that_joins_axes_stays():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[2, n, 3], %y: float32[6, n]) {
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = reshape(%0) shape=(6, n)
        %2 = contract(%1, %y) lhs=mk rhs=nk out=mn accumulate=float32
        return %2
    }""",
    )


def test_a_scalar_product_has_no_innermost_axis():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[k], %y: float32[k]) {
        %0 = contract(%x, %y) lhs=k rhs=k out="" accumulate=float32
        %1 = transpose(%0) perm=()
        return %1
    }""",
    )


def test_an_attention_reads_its_heads_where_they_are_and_writes_them_so():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[b, s, 12, 64], %y: float32[b, t, 12, 64], %m: float32[b, 1, 1, t]) {
        %q = transpose(%x) perm=(0, 2, 1, 3)
        %k = transpose(%y) perm=(0, 2, 1, 3)
        %1 = attention(%q, %k, %k, %m) scale=0.5 q=bhqd k=bhkd v=bhke out=bhqe
        %2 = transpose(%1) perm=(0, 2, 1, 3)
        return %2
    }""",
        """graph g(%x: float32[b, s, 12, 64], %y: float32[b, t, 12, 64], %m: float32[b, 1, 1, t]) {
        %2 = attention(%x, %y, %y, %m) scale=0.5 q=bqhd k=bkhd v=bkhe out=bqhe
        return %2
    }""",
    )


def test_queries_whose_batch_axes_a_bias_follows_stay_transposed():
    stays(
        clean(absorb_transposes),
        """graph g(%x: float32[12, b, s, 64], %y: float32[b, 12, t, 64], %m: float32[b, 12, s, t]) {
        %0 = transpose(%x) perm=(1, 0, 2, 3)
        %1 = attention(%0, %y, %y, %m) scale=0.5 q=bhqd k=bhkd v=bhke out=bhqe
        return %1
    }""",
    )


HEADS = """graph g(%x: float32[b, s, 2, 3], %y: float32[b, 1, t, 2, 3]) {
    %0 = transpose(%x) perm=(0, 2, 1, 3)
    %1 = map(%0) { mul($0, 0.5) }
    %2 = reshape(%y) shape=(b, t, 2, 3)
    %3 = transpose(%2) perm=(0, 2, 3, 1)
    %4 = contract(%1, %3) lhs=bhqd rhs=bhdk out=bhqk accumulate=float32
    %5 = transpose(%4) perm=(1, 0, 2, 3)
    return %5
}"""


@pytest.mark.parametrize("b, s, t", [(1, 1, 1), (2, 3, 5), (0, 2, 3), (2, 0, 3)])
def test_labels_mean_the_same_at_every_size(b, s, t):
    agrees(clean(absorb_transposes), HEADS, b=b, s=s, t=t)


def test_transposes_of_a_branch_are_absorbed():
    becomes(
        clean(absorb_transposes),
        """graph g(%c: bool[], %x: float32[4, 4]) {
        %0 = if(%c, %x) then=(%a: float32[4, 4]) {
            %1 = transpose(%a) perm=(1, 0)
            %2 = contract(%1, %a) lhs=mk rhs=kn out=mn accumulate=float32
            return %2
        } otherwise=(%a: float32[4, 4]) { return %a } : float32[4, 4]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[4, 4]) {
        %0 = if(%c, %x) then=(%a: float32[4, 4]) {
            %2 = contract(%a, %a) lhs=km rhs=kn out=mn accumulate=float32
            return %2
        } otherwise=(%a: float32[4, 4]) { return %a } : float32[4, 4]
        return %0
    }""",
    )


def windows(size):
    """A product of windows of an image, each of size x size pixels."""
    return f"""graph g(%x: float32[2, {size}, 2, {size}, 8], %w: float32[8, 4]) {{
        %0 = transpose(%x) perm=(0, 2, 1, 3, 4)
        %1 = contract(%0, %w) lhs=abcdk rhs=kn out=abcdn accumulate=float32
        return %1
    }}"""


def test_rows_are_not_cut_into_short_pieces():
    stays(clean(absorb_transposes), windows(7))
    assert ops(clean(absorb_transposes)(parse(windows(40)))) == ["Contract"]


REPEATED = """graph g(%x: float32[b, 2, m, 8]) {
    %0 = constant float32[1, 2, ROWS, 8] #0
    %1 = broadcast(%0) shape=(b, 2, ROWS, 8)
    %2 = transpose(%1) perm=(0, 1, 3, 2)
    %3 = contract(%x, %2) lhs=bhmk rhs=bhkn out=bhmn accumulate=float32
    return %3
}"""


def test_many_constant_rows_need_not_be_repeated():
    constants = {"0": np.zeros((1, 2, 64, 8), np.float32)}
    found = clean(absorb_transposes)(parse(REPEATED.replace("ROWS", "64"), constants))
    assert ops(found) == ["Contract"]
    assert (found.nodes[0].op.lhs, found.nodes[0].op.rhs) == ("bhmk", "ahnk")


def test_few_constant_rows_stay_queries_of_each_batch():
    constants = {"0": np.zeros((1, 2, 4, 8), np.float32)}
    found = clean(absorb_transposes)(parse(REPEATED.replace("ROWS", "4"), constants))
    assert ops(found) == ["Broadcast", "Contract"]


def test_a_transpose_is_absorbed_behind_a_broadcast():
    becomes(
        clean(absorb_transposes),
        """graph g(%x: float32[a, 4, 8], %y: float32[b, 6, 8]) {
        %0 = transpose(%y) perm=(0, 2, 1)
        %1 = broadcast(%0) shape=(a, 8, 6)
        %2 = contract(%x, %1) lhs=bmk rhs=bkn out=bmn accumulate=float32
        return %2
    }""",
        """graph g(%x: float32[a, 4, 8], %y: float32[b, 6, 8]) {
        %0 = broadcast(%y) shape=(a, 6, 8)
        %1 = contract(%x, %0) lhs=bmk rhs=bnk out=bmn accumulate=float32
        return %1
    }""",
    )
