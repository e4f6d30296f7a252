"""absorb_broadcasts: products read what is repeated where it lies."""

import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.passes.absorb_broadcasts import absorb_broadcasts

BOTH = """graph g(%x: float32[a, 4, 8], %y: float32[b, 8, 6]) {
    %0 = broadcast(%x) shape=(broadcast(a, b), 4, 8)
    %1 = broadcast(%y) shape=(broadcast(a, b), 8, 6)
    %2 = contract(%0, %1) lhs=bmk rhs=bkn out=bmn accumulate=float32
    return %2
}"""


def test_a_product_finds_in_the_run_whether_a_batch_repeats():
    becomes(
        clean(absorb_broadcasts),
        BOTH,
        """graph g(%x: float32[a, 4, 8], %y: float32[b, 8, 6]) {
        %0 = contract(%x, %y) lhs=bmk rhs=bkn out=bmn accumulate=float32 repeated=b
        return %0
    }""",
    )


@pytest.mark.parametrize("sizes", [(3, 3), (1, 3), (3, 1), (1, 1), (0, 1), (1, 0)])
def test_products_over_batches_of_any_size_are_as_before(sizes):
    agrees(clean(absorb_broadcasts), BOTH, a=sizes[0], b=sizes[1])


@pytest.mark.parametrize("before", ["[1, 4, 8]", "[4, 8]"])
def test_an_axis_that_is_one_leaves_the_product_of_the_other_operand(before):
    text = f"""graph g(%x: float32{before}, %y: float32[n, 8, 6]) {{
        %0 = broadcast(%x) shape=(n, 4, 8)
        %1 = contract(%0, %y) lhs=bmk rhs=bkn out=bmn accumulate=float32
        return %1
    }}"""
    found = agrees(clean(absorb_broadcasts), text, n=3)
    assert ops(found) == ["Contract"] and not found.nodes[0].op.batch


def test_what_is_made_of_each_repeated_number_is_made_before():
    becomes(
        clean(absorb_broadcasts),
        """graph g(%x: float16[b, 4, 8], %y: float32[3, 8, 6]) {
        %0 = broadcast(%x) shape=(3, 4, 8)
        %1 = map(%0) { cast($0, float32) }
        %2 = contract(%1, %y) lhs=bmk rhs=bkn out=bmn accumulate=float32
        return %2
    }""",
        """graph g(%x: float16[b, 4, 8], %y: float32[3, 8, 6]) {
        %0 = map(%x) { cast($0, float32) }
        %1 = contract(%0, %y) lhs=bmk rhs=bkn out=bmn accumulate=float32 repeated=b
        return %1
    }""",
    )


@pytest.mark.parametrize(
    "given, steps, product",
    [
        ("[a, 4, 8]", ["%0 = broadcast(%x) shape=(b, 4, 8)"], "lhs=amk rhs=bkn out=abmn"),
        ("[m, 8]", ["%0 = broadcast(%x) shape=(4, 8)"], "lhs=mk rhs=bkn out=bmn"),
        ("[3, 4, k]", ["%0 = broadcast(%x) shape=(3, 4, 8)"], "lhs=amk rhs=bkn out=abmn"),
        (
            "[1, 4, 8]",
            ["%1 = broadcast(%x) shape=(b, 4, 8)", "%0 = map(%1) { cast(index(0), float32) }"],
            "lhs=bmk rhs=bkn out=bmn",
        ),
    ],
)
def test_what_the_other_operand_does_not_go_along_is_repeated(given, steps, product):
    stays(
        clean(absorb_broadcasts),
        f"""graph g(%x: float32{given}, %y: float32[b, 8, 6]) {{
        {" ".join(step + chr(10) for step in steps)}
        %2 = contract(%0, %y) {product} accumulate=float32
        return %2
    }}""",
    )


def test_one_of_two_repeated_operands_keeps_the_size_of_the_batch():
    text = """graph g(%x: float32[1, 4, 8], %y: float32[1, 8, 6], %s: float32[n]) {
        %0 = broadcast(%x) shape=(n, 4, 8)
        %1 = broadcast(%y) shape=(n, 8, 6)
        %2 = contract(%0, %1) lhs=bmk rhs=bkn out=bmn accumulate=float32
        return %2
    }"""
    assert ops(agrees(clean(absorb_broadcasts), text, n=3)) == ["Broadcast", "Contract"]


def test_attention_finds_in_the_run_whether_keys_and_values_repeat():
    text = """graph g(%q: float32[a, 2, 4, 8], %k: float32[b, 2, 5, 8], %v: float32[b, 2, 5, 3]) {
        %0 = broadcast(%q) shape=(broadcast(a, b), 2, 4, 8)
        %1 = broadcast(%k) shape=(broadcast(a, b), 2, 5, 8)
        %2 = broadcast(%v) shape=(broadcast(a, b), 2, 5, 3)
        %3 = attention(%0, %1, %2) scale=0.5
        return %3
    }"""
    for a, b in ((3, 3), (1, 3), (3, 1), (1, 1)):
        (node,) = agrees(clean(absorb_broadcasts), text, a=a, b=b).nodes
    assert node.op.repeated == "b"
