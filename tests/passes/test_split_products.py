"""split_products: each part of a product's columns is a product, if parts are all that is read of it."""

import numpy as np
import pytest
from support.pass_text import agrees, array, becomes, clean, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.split_products import split_products

GATED = """graph g(%x: float32[n, 20, 8]) {
    %w = constant float32[8, 256] #weights
    %y = contract(%x, %w) lhs=amk rhs=kn out=amn accumulate=float32
    %gate = slice(%y) starts=(0, 0, 0) sizes=(n, 20, 128) steps=(1, 1, 1)
    %up = slice(%y) starts=(0, 0, 128) sizes=(n, 20, 128) steps=(1, 1, 1)
    %z = map(%gate, %up) { mul($0, $1) }
    return %z
}"""
rng = np.random.default_rng(0)


def constants(*shape, **more):
    return {"weights": rng.standard_normal(shape).astype(np.float32), **more}


def split(text, constants, n=2):
    """The ops that the pass makes of the text, after a comparison of the results."""
    return ops(agrees(clean(split_products), text, constants, tolerance=1e-5, n=n))


def test_a_gate_and_what_it_opens_are_two_products():
    weights = constants(8, 256)
    becomes(
        clean(split_products),
        GATED,
        """graph g(%x: float32[n, 20, 8]) {
            %0 = constant float32[8, 128] #first
            %gate = contract(%x, %0) lhs=amk rhs=kn out=amn accumulate=float32
            %1 = constant float32[8, 128] #second
            %up = contract(%x, %1) lhs=amk rhs=kn out=amn accumulate=float32
            %z = map(%gate, %up) { mul($0, $1) }
            return %z
        }""",
        weights | {"first": weights["weights"][:, :128], "second": weights["weights"][:, 128:]},
    )


def test_the_matrix_may_be_the_left_operand_or_transposed():
    turned = GATED.replace("[8, 256]", "[256, 8]").replace(
        "contract(%x, %w) lhs=amk rhs=kn", "contract(%w, %x) lhs=nk rhs=amk"
    )
    assert split(turned, constants(256, 8)) == ["Contract", "Contract", "Map"]


HEADS = """graph g(%x: float32[n, 20, 8]) {
    %w = constant float32[8, 384] #weights
    %b = constant float32[384] #bias
    %0 = contract(%x, %w) lhs=amk rhs=kn out=amn accumulate=float32
    %1 = map(%0, %b) { add($0, $1) }
    %2 = reshape(%1) shape=(n, 20, SPLIT)
    %3 = transpose(%2) perm=(PERM)
    %q = slice(%3) STARTS sizes=(SIZES) steps=(1, 1, 1, 1, 1)
    %k = slice(%3) STARTS1 sizes=(SIZES) steps=(1, 1, 1, 1, 1)
    %v = slice(%3) STARTS2 sizes=(SIZES) steps=(1, 1, 1, 1, 1)
    return %q, %k, %v
}"""


def heads(split="3, 2, 64", perm="2, 0, 3, 1, 4", axis=0, sizes="1, n, 2, 20, 64"):
    text = HEADS.replace("SPLIT", split).replace("PERM", perm).replace("SIZES", sizes)
    for name, place in (("STARTS1", 1), ("STARTS2", 2), ("STARTS", 0)):
        starts = ", ".join(str(place if a == axis else 0) for a in range(5))
        text = text.replace(name, f"starts=({starts})")
    return text


def test_parts_may_be_taken_where_columns_are_axes_in_another_order():
    """As timm's attention does: one Transpose for each of queries, keys and values, of four axes."""
    found = agrees(
        clean(split_products),
        heads(),
        constants(8, 384, bias=array(rng, "float32", (384,))),
        tolerance=1e-5,
        n=2,
    )
    assert ops(found) == ["Contract", "Map", "Reshape", "Transpose", "Reshape"] * 3
    assert {node.op.perm for node in found.nodes if hasattr(node.op, "perm")} == {(0, 2, 1, 3)}


def test_parts_of_each_head_are_no_columns_side_by_side():
    apart = heads("2, 3, 64", "3, 0, 2, 1, 4")
    stays(clean(split_products), apart, constants(8, 384, bias=array(rng, "float32", (384,))))


@pytest.mark.parametrize(
    "one, other",
    [
        ("return %z", "return %z, %y"),
        ("return %z", "%r = reduce(%y) kind=max axes=(2) keepdims=true\n    return %z, %r"),
        ("starts=(0, 0, 128)", "starts=(0, 0, 100)"),
        ("starts=(0, 0, 128) sizes=(n, 20, 128)", "starts=(0, 4, 128) sizes=(n, 16, 128)"),
        ("steps=(1, 1, 1)\n    %z", "steps=(1, 1, -1)\n    %z"),
    ],
    ids=[
        "all is a result",
        "all is reduced",
        "parts overlap",
        "rows are cut, too",
        "a part is read backwards",
    ],
)
def test_a_product_that_is_read_otherwise_stays(one, other):
    text = GATED.replace(one, other)
    if "sizes=(n, 16" in text or "-1)" in text:
        text = text.replace("%z = map(%gate, %up) { mul($0, $1) }\n    return %z", "return %gate, %up")
    stays(clean(split_products), text, constants(8, 256))


@pytest.mark.parametrize("rows, columns", [(8, 128), (20, 32), (20, 72)])
def test_few_rows_and_narrow_or_uneven_parts_stay(rows, columns):
    text = GATED.replace("[n, 20", f"[1, {rows}").replace("(n, 20", f"(1, {rows}")
    text = text.replace("256", str(2 * columns)).replace("128", str(columns))
    stays(clean(split_products), text, constants(8, 2 * columns))


def test_weights_that_are_stored_in_fewer_bits_stay_together():
    """Their kernels read them as they are stored, all at once."""
    text = GATED.replace(
        "%w = constant float32[8, 256] #weights",
        "%q = constant int8[8, 256] #weights\n    %w = map(%q) { mul(cast($0, float32), 0.5) }",
    )
    graph = fold_constants(parse(text, {"weights": rng.integers(-99, 99, (8, 256)).astype(np.int8)}))
    assert ops(clean(split_products)(graph)) == ops(graph)


def test_what_a_map_reads_beside_columns_is_cut_or_the_same_for_all():
    text = GATED.replace("%x: float32[n, 20, 8]", "%x: float32[n, 20, 8], %s: float32[n, 20, 1]")
    text = text.replace("    %gate", "    %t = map(%y, %s, %w1) { mul(add($0, $2), $1) }\n    %gate")
    text = text.replace("slice(%y)", "slice(%t)").replace(
        "    %y", "    %w1 = constant float32[256] #bias\n    %y"
    )
    more = constants(8, 256, bias=array(rng, "float32", (256,)))
    assert split(text, more) == ["Contract", "Map", "Contract", "Map", "Map"]


def test_what_differs_from_column_to_column_keeps_them_together():
    text = GATED.replace("    %gate", "    %t = map(%y) { add($0, cast(index(2), float32)) }\n    %gate")
    stays(clean(split_products), text.replace("slice(%y)", "slice(%t)"), constants(8, 256))


def test_a_product_without_columns_stays():
    none = (
        heads("3, 2, 0", sizes="1, n, 2, 20, 0")
        .replace("[8, 384]", "[8, 0]")
        .replace("float32[384]", "float32[0]")
    )
    stays(clean(split_products), none, constants(8, 0, bias=np.zeros(0, np.float32)))
