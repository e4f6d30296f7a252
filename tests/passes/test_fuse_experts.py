"""fuse_experts: rows multiplied with matrices that indices pick become one group that copies none."""

import numpy as np
import pytest
from support.pass_text import agrees, clean, ops

from onnxc.ir.ops import Fused
from onnxc.ir.text_parser import parse
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.fuse_experts import fuse_experts
from onnxc.passes.gather_stored import gather_stored

PICKED = """graph g(%x: float32[r, 4], %n: int64[r], %b: float32[3]) {
    %w = constant float32[5, 3, 4] #weights
    %0 = gather(%w, %n) form=axis axis=0
    %1 = contract(PRODUCT) out=ro accumulate=float32 epilogue={ add($0, $1) }
    return %1
}"""
rng = np.random.default_rng(0)
WEIGHTS = rng.standard_normal((5, 3, 4)).astype(np.float32)
INPUTS = [
    rng.standard_normal((6, 4)).astype(np.float32),
    np.array([0, 0, 3, -1, 4, 1]),
    np.ones(3, np.float32),
]


def group(graph):
    """The only one there is."""
    (node,) = (node for node in graph.nodes if isinstance(node.op, Fused))
    assert node.op.kind == "experts"
    return node


@pytest.mark.parametrize("product", ["%x, %0, %b) lhs=ri rhs=roi (", "%0, %x, %b) lhs=roi rhs=ri ("])
def test_a_product_with_the_matrix_of_each_row_is_one_group(product):
    text = PICKED.replace("PRODUCT) ", product[:-1])
    node = group(agrees(clean(fuse_experts), text, {"weights": WEIGHTS}, INPUTS, 1e-6, r=6))
    assert [str(v.type) for v in node.inputs] == [
        *("float32[r, 4]", "float32[5, 3, 4]", "float32[3]", "int64[r]")
    ]


def test_matrices_that_more_than_the_product_reads_stay():
    text = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=roi ").replace("return %1", "return %1, %0")
    assert ops(fuse_experts(parse(text, {"weights": WEIGHTS}))) == ["Gather", "Contract"]


def test_quantised_matrices_are_not_widened_before():
    graph = parse(
        """graph g(%x: float32[r, 64], %n: int64[r]) {
        %q = constant int8[5, 32, 64] #bytes
        %w = map(%q) { mul(cast($0, float32), 0.5) }
        %0 = gather(%w, %n) form=axis axis=0
        %1 = contract(%x, %0) lhs=ri rhs=roi out=ro accumulate=float32
        return %1
    }""",
        {"bytes": np.ones((5, 32, 64), np.int8)},
    )
    node = group(clean(fuse_experts)(gather_stored(fold_constants(graph))))
    assert node.inputs[1].constant.derivation is not None


COLUMNS = """graph g(%x: float32[r, 4, 1], %n: int64[r], %b: float32[3, 1]) {
    %w = constant float32[5, 3, 4] #weights
    %0 = gather(%w, %n) form=axis axis=0
    %1 = contract(PRODUCT, %b) FORM accumulate=float32 epilogue={ add($0, EXTRA) }
    return %1
}"""
AS_COLUMNS = COLUMNS.replace("PRODUCT", "%0, %x").replace("FORM", "lhs=rok rhs=rkn out=ron")


def test_rows_may_be_columns_of_one_number():
    """As `weights[experts] @ x[..., None]` is exported."""
    inputs = [INPUTS[0].reshape(6, 4, 1), INPUTS[1], np.ones((3, 1), np.float32)]
    text = AS_COLUMNS.replace("EXTRA", "$1")
    node = group(agrees(clean(fuse_experts), text, {"weights": WEIGHTS}, inputs, 1e-6, r=6))
    assert [str(v.type) for v in node.inputs] == [
        *("float32[r, 4]", "float32[5, 3, 4]", "float32[3]", "int64[r]")
    ]


def test_rows_may_be_matrices_of_one_row():
    """As `x[:, None] @ weights[experts]` is exported."""
    text = (
        COLUMNS.replace("PRODUCT", "%x, %0").replace("FORM", "lhs=rnk rhs=rok out=rno").replace("EXTRA", "$1")
    )
    text = text.replace("[r, 4, 1]", "[r, 1, 4]").replace("float32[3, 1]", "float32[1, 3]")
    inputs = [INPUTS[0].reshape(6, 1, 4), INPUTS[1], np.ones((1, 3), np.float32)]
    group(agrees(clean(fuse_experts), text, {"weights": WEIGHTS}, inputs, 1e-6, r=6))


def test_an_epilogue_that_counts_axes_keeps_them():
    text = AS_COLUMNS.replace("EXTRA", "cast(index(2), float32)")
    assert "Fused" not in ops(clean(fuse_experts)(parse(text, {"weights": WEIGHTS})))


@pytest.mark.parametrize("expert", [3, -1])
def test_one_matrix_may_be_picked_for_all_rows(expert):
    text = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=oi ").replace("int64[r]", "int64[]")
    inputs = [INPUTS[0], np.array(expert), INPUTS[2]]
    found = agrees(clean(fuse_experts), text, {"weights": WEIGHTS}, inputs, 1e-6, r=6)
    assert ops(found) == ["Broadcast", "Fused"]


def test_one_of_matrices_that_only_the_run_knows_is_copied():
    """The others would have to be packed, too."""
    text = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=oi ").replace("int64[r]", "int64[]")
    text = text.replace("%b: float32[3])", "%b: float32[3], %w: float32[5, 3, 4])")
    text = text.replace("    %w = constant float32[5, 3, 4] #weights\n", "")
    assert ops(clean(fuse_experts)(parse(text))) == ["Gather", "Contract"]


def test_more_rows_than_experts_are_multiplied_in_their_order():
    text = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=roi ")
    found = agrees(clean(fuse_experts), text, {"weights": WEIGHTS}, INPUTS, 1e-6, r=6)
    assert ops(found) == ["Sort", "Sort", "Gather", "Fused", "Gather"]


def test_rows_that_are_in_order_or_few_stay_where_they_are():
    few = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=roi ").replace("[r", "[5")
    assert ops(clean(fuse_experts)(parse(few, {"weights": WEIGHTS}))) == ["Fused"]
    ordered = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=roi ").replace("%n:", "%m:")
    ordered = ordered.replace("    %0 =", "    %n, %o = sort(%m) axis=0\n    %0 =")
    assert ops(clean(fuse_experts)(parse(ordered, {"weights": WEIGHTS}))) == ["Sort", "Fused"]


@pytest.mark.parametrize("size, sorts", [("r", 2), ("1", 2), ("h", 0)])
def test_rows_stay_where_an_epilogue_may_read_one_row_for_all(size, sorts):
    """Only the run knows whether h is 1."""
    text = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=roi ").replace(
        "%b: float32[3]", f"%b: float32[{size}, 3]"
    )
    assert ops(clean(fuse_experts)(parse(text, {"weights": WEIGHTS}))).count("Sort") == sorts


def test_products_of_the_same_rows_share_their_order():
    twice = PICKED.replace("PRODUCT) ", "%x, %0, %b) lhs=ri rhs=roi ").replace("    return %1\n", "")
    twice = (
        twice.replace("}\n}", "}")
        + """    %v = constant float32[5, 4, 3] #second
    %2 = gather(%v, %n) form=axis axis=0
    %3 = contract(%1, %2) lhs=ri rhs=roi out=ro accumulate=float32
    return %3
}"""
    )
    constants = {"weights": WEIGHTS, "second": WEIGHTS.transpose(0, 2, 1).copy()}
    found = agrees(clean(fuse_experts), twice, constants, INPUTS, 1e-5, r=6)
    assert ops(found).count("Sort") == 2
