"""lift_reshapes: Reshapes around products, before reductions' readers and in rows vanish; others stay."""

import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.passes.lift_reshapes import DEPTH, lift_reshapes


def test_two_reshapes_become_one():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[a, b, 6]) {
        %0 = reshape(%x) shape=(a*b, 6)
        %1 = reshape(%0) shape=(a*b, 2, 3)
        %2 = reshape(%1) shape=(b, a, 6)
        return %2
    }""",
        """graph g(%x: float32[a, b, 6]) {
        %2 = reshape(%x) shape=(b, a, 6)
        return %2
    }""",
    )


def test_a_reshape_and_its_inverse_are_nothing():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[a, b]) {
        %0 = reshape(%x) shape=(a*b)
        %1 = reshape(%0) shape=(a, b)
        %2 = map(%1) { exp($0) }
        return %2
    }""",
        """graph g(%x: float32[a, b]) {
        %2 = map(%x) { exp($0) }
        return %2
    }""",
    )


def test_a_flattened_product_is_one_of_whole_axes():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[b, s, 4], %w: float32[4, 6], %c: float32[6],
            %r: float32[b, s, 6]) {
        %0 = reshape(%x) shape=(b*s, 4)
        %1 = contract(%0, %w) lhs=mk rhs=kn out=mn accumulate=float32
        %2 = map(%1, %c) { tanh(add($0, $1)) }
        %3 = reshape(%2) shape=(b, s, 6)
        %4 = map(%3, %r) { add($0, $1) }
        return %4
    }""",
        """graph g(%x: float32[b, s, 4], %w: float32[4, 6], %c: float32[6], %r: float32[b, s, 6]) {
        %1 = contract(%x, %w) lhs=amk rhs=kn out=amn accumulate=float32
        %2 = map(%1, %c) { tanh(add($0, $1)) }
        %4 = map(%2, %r) { add($0, $1) }
        return %4
    }""",
    )


def test_a_product_whose_operand_was_never_whole_reads_a_view():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[b*s, 4], %w: float32[4, 6], %z: float32[b, s]) {
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = reshape(%0) shape=(b, s, 6)
        return %1
    }""",
        """graph g(%x: float32[b*s, 4], %w: float32[4, 6], %z: float32[b, s]) {
        %0 = reshape(%x) shape=(b, s, 4)
        %1 = contract(%0, %w) lhs=amk rhs=kn out=amn accumulate=float32
        return %1
    }""",
    )


def test_the_type_of_the_product_is_kept():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float16[2, s, 4], %w: float16[6, 4]) {
        %0 = reshape(%x) shape=(2*s, 4)
        %1 = contract(%0, %w) lhs=mk rhs=nk out=mn accumulate=float32 epilogue={ cast($0, float16) }
        %2 = reshape(%1) shape=(2, s, 6)
        return %2
    }""",
        """graph g(%x: float16[2, s, 4], %w: float16[6, 4]) {
        %2 = contract(%x, %w) lhs=amk rhs=nk out=amn accumulate=float32 epilogue={ cast($0, float16) }
        return %2
    }""",
    )


PRODUCT = """graph g(%x: float32[6, 4], %w: float32[4, 6], %b: float32[6, 4, 6], %r: float32[6, 6],
                      %d: float32[6, 6, 4]) {
    %0 = NODE
    %1 = reshape(%0) shape=(2, 3, SHAPE)
    return RESULTS
}"""


@pytest.mark.parametrize(
    "node, shape",
    [
        ("contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32", "2, 3"),
        ("contract(%x, %w) lhs=mk rhs=kn out=nm accumulate=float32", "6"),
        ("contract(%x, %b) lhs=mk rhs=mkn out=mn accumulate=float32", "6"),
        ('contract(%w, %w) lhs=kn rhs=kn out="" accumulate=float32', "ONES"),
        ("contract(%d, %w) lhs=mmk rhs=kn out=mn accumulate=float32", "6"),
        ("contract(%x, %w, %r) lhs=mk rhs=kn out=mn accumulate=float32 epilogue={ add($0, $1) }", "6"),
    ],
)
def test_other_products_keep_their_reshape(node, shape):
    text = PRODUCT.replace("NODE", node).replace("SHAPE", shape).replace("RESULTS", "%1")
    text = text.replace("(2, 3, ONES)", "(1, 1)")
    stays(clean(lift_reshapes), text)


def test_a_product_that_others_read_keeps_its_reshape():
    node = "contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32"
    text = PRODUCT.replace("NODE", node).replace("SHAPE", "6").replace("RESULTS", "%0, %1")
    stays(clean(lift_reshapes), text)


def test_axes_put_back_behind_a_reduction_are_kept_by_it():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[n, 8]) {
        %0 = reduce(%x) kind=sum axes=(1)
        %1 = map(%0) { div($0, 8.0) }
        %2 = reshape(%1) shape=(n, 1)
        %3 = map(%x, %2) { sub($0, $1) }
        return %3
    }""",
        """graph g(%x: float32[n, 8]) {
        %0 = reduce(%x) kind=sum axes=(1) keepdims=true
        %2 = map(%0) { div($0, 8.0) }
        %3 = map(%x, %2) { sub($0, $1) }
        return %3
    }""",
    )


@pytest.mark.parametrize("shape", ["1, n", "n, 1, 1"])
def test_axes_put_elsewhere_stay(shape):
    stays(
        clean(lift_reshapes),
        f"""graph g(%x: float32[n, 8]) {{
        %0 = reduce(%x) kind=sum axes=(1)
        %1 = reshape(%0) shape=({shape})
        return %1
    }}""",
    )


@pytest.mark.parametrize(
    "nodes",
    [
        "%2 = transpose(%x) perm=(1, 0) %0 = map(%2) { exp($0) } %1 = reshape(%0) shape=(8*n)",
        "%2 = reshape(%x) shape=(8*n) %0 = map(%2) { cast(index(0), float32) } %1 = reshape(%0) shape=(n, 8)",
        "%2 = reshape(%x) shape=(8, n) %0 = map(%2, %y) { add($0, $1) } %1 = reshape(%0) shape=(n, 8)",
        "%2 = reshape(%x) shape=(8*n) %0 = map(%2) { exp($0) } shape=(1, 8*n) %1 = reshape(%0) shape=(n, 8)",
    ],
)
def test_a_reshape_that_does_not_vanish_stays_where_it_is(nodes):
    stays(clean(lift_reshapes), f"graph g(%x: float32[n, 8], %y: float32[n]) {{ {nodes} return %1 }}")


def test_a_map_of_an_input_is_done_in_the_shape_that_its_reader_wants():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: uint8[n, 8]) {
        %0 = map(%x) { mul(cast($0, float32), 0.5) }
        %1 = reshape(%0) shape=(n, 2, 4)
        return %1
    }""",
        """graph g(%x: uint8[n, 8]) {
        %0 = reshape(%x) shape=(n, 2, 4)
        %1 = map(%0) { mul(cast($0, float32), 0.5) }
        return %1
    }""",
    )


def test_all_operands_of_a_map_must_have_been_of_the_shape():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[n, 8], %y: float32[n, 8], %z: float32[8*n]) {
        %0 = reshape(%x) shape=(8*n)
        %1 = reshape(%y) shape=(8*n)
        %2 = map(%0, %1) { add($0, $1) }
        %3 = reshape(%2) shape=(n, 8)
        %4 = map(%0, %z) { add($0, $1) }
        %5 = reshape(%4) shape=(n, 8)
        return %3, %5
    }""",
        """graph g(%x: float32[n, 8], %y: float32[n, 8], %z: float32[8*n]) {
        %0 = reshape(%x) shape=(8*n)
        %3 = map(%x, %y) { add($0, $1) }
        %4 = map(%0, %z) { add($0, $1) }
        %5 = reshape(%4) shape=(n, 8)
        return %3, %5
    }""",
    )


def test_a_reshape_is_lifted_over_so_many_maps_and_no_more():
    for count in (DEPTH, DEPTH + 1):
        lines = [f"%{k + 2} = map(%{k + 1}) {{ exp($0) }}" for k in range(count)]
        found = agrees(
            clean(lift_reshapes),
            f"""graph g(%0: float32[n, 8]) {{
            %1 = reshape(%0) shape=(8*n)
            {" ".join(lines)}
            %{count + 2} = reshape(%{count + 1}) shape=(n, 8)
            return %{count + 2}
        }}""",
            n=2,
        )
        assert ops(found).count("Reshape") == (0 if count <= DEPTH else 2)


@pytest.mark.parametrize("b, s", [(0, 3), (2, 0), (1, 1), (2, 3)])
def test_elements_end_where_they_did(b, s):
    agrees(
        clean(lift_reshapes),
        """graph g(%x: float32[b, s, 2, 2], %w: float32[4, 3], %c: float32[1, 3]) {
        %0 = reshape(%x) shape=(b*s, 4)
        %1 = contract(%0, %w) lhs=mk rhs=kn out=mn accumulate=float32
        %2 = map(%1, %c) { max(add($0, $1), 0.0) }
        %3 = reshape(%2) shape=(b, s, 3)
        %4 = reduce(%3) kind=max axes=(2)
        %5 = reshape(%4) shape=(b, s, 1)
        %6 = map(%3, %5) { sub($0, $1) }
        return %6
    }""",
        tolerance=1e-6,
        b=b,
        s=s,
    )


def test_reshapes_of_a_loop_are_lifted():
    becomes(
        clean(lift_reshapes),
        """graph g(%t: int64[], %c: bool[], %x: float32[n, 8]) {
        %0 = loop(%t, %c, %x) carried=1 body=(%i: int64[], %d: bool[], %a: float32[n, 8]) {
            %1 = reshape(%a) shape=(8*n)
            %2 = map(%1) { exp($0) }
            %3 = reshape(%2) shape=(n, 8)
            return %d, %3
        } : float32[n, 8]
        return %0
    }""",
        """graph g(%t: int64[], %c: bool[], %x: float32[n, 8]) {
        %0 = loop(%t, %c, %x) carried=1 body=(%i: int64[], %d: bool[], %a: float32[n, 8]) {
            %3 = map(%a) { exp($0) }
            return %d, %3
        } : float32[n, 8]
        return %0
    }""",
    )


def test_what_lies_before_the_axes_that_stay_may_be_of_size_1():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[4, 3, 5], %mask: float32[1, 4, 1, 5]) {
        %1 = reshape(%x) shape=(1, 4, 3, 5)
        %2 = map(%1, %mask) { add($0, $1) }
        %3 = reshape(%2) shape=(4, 3, 5)
        return %3
    }""",
        """graph g(%x: float32[4, 3, 5], %mask: float32[1, 4, 1, 5]) {
        %1 = reshape(%mask) shape=(4, 1, 5)
        %2 = map(%x, %1) { add($0, $1) }
        return %2
    }""",
    )
    stays(
        clean(lift_reshapes),
        """graph g(%x: float32[4, 3, 5], %mask: float32[2, 2, 1, 5]) {
        %1 = reshape(%x) shape=(2, 2, 3, 5)
        %2 = map(%1, %mask) { add($0, $1) }
        %3 = reshape(%2) shape=(4, 3, 5)
        return %3
    }""",
    )


def test_a_shape_that_only_all_operands_together_make_stays():
    stays(
        clean(lift_reshapes),
        """graph g(%x: float32[1, n], %y: float32[9, 1]) {
        %0 = map(%x, %y) { lt($0, $1) }
        %1 = map(%0) { cast($0, float32) }
        %2 = reshape(%1) shape=(1, 9, n)
        return %2
    }""",
    )


SUM = """graph g(%x: float32[b, 2, s, 4], %y: float32[b, 2, 4, s], %z: float32[2*b, 9, s],
        %i: int64[2*b, s, s]) {
    %0 = contract(%x, %y) lhs=ahmk rhs=ahkn out=ahmn accumulate=float32
    %1 = reshape(%0) shape=(2*b, s, s)
    %2 = gather(%z, %i) form=elements axis=1
    %3 = map(%2) { exp($0) }
    %4 = map(%1, %3) { add($0, $1) }
    %5 = reshape(%4) shape=(b, 2, s, s)
    return %5
}"""


def test_a_sum_with_a_product_takes_the_products_shape():
    found = clean(lift_reshapes)(parse(SUM))
    assert ops(found) == ["Contract", "Gather", "Reshape", "Map", "Map"]


def test_a_sum_without_a_product_keeps_its_shape():
    product = "contract(%x, %y) lhs=ahmk rhs=ahkn out=ahmn accumulate=float32"
    text = SUM.replace(product, "concat(%x, %y) axis=0").replace("b, 2, s, 4", "a, 2, s, s")
    stays(clean(lift_reshapes), text.replace("b, 2, 4, s", "b-a, 2, s, s"))


@pytest.mark.parametrize("shape", ["2, 3, 0", "0, 7, 0"])
def test_an_empty_product_of_other_rows_keeps_its_reshape(shape):
    stays(
        clean(lift_reshapes),
        f"""graph g(%x: float32[4, 5], %w: float32[5, 0]) {{
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = reshape(%0) shape=({shape})
        return %1
    }}""",
    )


def test_a_product_whose_rows_only_the_run_can_count_is_one_of_whole_axes():
    becomes(
        clean(lift_reshapes),
        """graph g(%x: float32[m, 5], %w: float32[5, 6], %y: float32[a, b]) {
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = reshape(%0) shape=(a, b, 6)
        return %1
    }""",
        """graph g(%x: float32[m, 5], %w: float32[5, 6], %y: float32[a, b]) {
        %0 = reshape(%x) shape=(a, b, 5)
        %1 = contract(%0, %w) lhs=amk rhs=kn out=amn accumulate=float32
        return %1
    }""",
    )
