"""fuse_experts: rows multiplied with matrices that indices pick become one group that copies none."""

import numpy as np
import pytest
from support.pass_text import agrees, clean, ops

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


@pytest.mark.parametrize("product", ["%x, %0, %b) lhs=ri rhs=roi (", "%0, %x, %b) lhs=roi rhs=ri ("])
def test_a_product_with_the_matrix_of_each_row_is_one_group(product):
    text = PICKED.replace("PRODUCT) ", product[:-1])
    graph = agrees(clean(fuse_experts), text, {"weights": WEIGHTS}, INPUTS, 1e-6, r=6)
    (node,) = graph.nodes
    assert node.op.kind == "experts"
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
    (node,) = clean(fuse_experts)(gather_stored(fold_constants(graph))).nodes
    assert node.inputs[1].constant.derivation is not None
