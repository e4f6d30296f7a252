"""round_rows: rows that meet weights of integers are rounded, where the target multiplies bytes."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.pass_text import stays

import onnxc
from onnxc.ir import dtypes
from onnxc.ir.text_parser import parse
from onnxc.passes.eliminate_dead import eliminate_dead
from onnxc.passes.fold_constants import fold_constants
from onnxc.passes.round_rows import MULTIPLIED, round_rows
from onnxc.target import TARGETS, find_target

VNNI = TARGETS["icelake-server"]
ROWS, DEPTH, BLOCK = 80, 64, 16
BLOCKS = (ROWS, DEPTH // BLOCK, 1)


def blocks_rounded(scales, zeros=(1, 1, 1), zero=0.0, dtype="int8", target=VNNI, depth_first=False):
    """In which blocks rows are rounded that meet codes with scales of a shape, in blocks of 16 or less."""
    random = np.random.default_rng(0)
    constants = {
        "q": random.integers(0, 7, (ROWS, DEPTH // BLOCK, BLOCK)).astype(dtypes.numpy_dtype(dtype)),
        "s": random.uniform(0.1, 0.2, scales).astype(np.float32),
        "z": np.full(zeros, zero, np.float32),
    }
    steps = ["%w = transpose(%b) perm=(1, 0)", "kn"] if depth_first else ["%w = map(%b) { $0 }", "nk"]
    graph = parse(
        f"""graph g(%x: float32[m, 64]) {{
        %q = constant {dtype}{list(constants["q"].shape)} #codes
        %s = constant float32{list(scales)} #scales
        %z = constant float32{list(zeros)} #zeros
        %a = map(%q, %s, %z) {{ mul(sub(cast($0, float32), $2), $1) }}
        %b = reshape(%a) shape=({ROWS}, {DEPTH})
        {steps[0]}
        %0 = contract(%x, %w) lhs=mk rhs={steps[1]} out=mn accumulate=float32
        return %0
    }}""",
        constants,
    )
    (node,) = eliminate_dead(round_rows(fold_constants(graph), target)).nodes
    return node.op.rounded


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("depth_first", [False, True])
def test_rows_are_rounded_in_the_blocks_of_the_weights(dtype, depth_first):
    assert blocks_rounded(BLOCKS, dtype=dtype, depth_first=depth_first) == BLOCK
    assert blocks_rounded(BLOCKS, BLOCKS, 7.0, dtype, depth_first=depth_first) == BLOCK


def test_rows_are_rounded_whole_where_each_sum_has_one_scale():
    assert blocks_rounded((ROWS, 1, 1)) == DEPTH
    assert blocks_rounded((1, 1, 1)) == DEPTH


def test_rows_stay_where_the_target_multiplies_no_bytes():
    assert blocks_rounded(BLOCKS, target=TARGETS["aarch64"]) == 0


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_rows_are_rounded_where_the_target_adds_pairs_of_products(target):
    assert blocks_rounded(BLOCKS, target=TARGETS[target]) == BLOCK
    assert blocks_rounded(BLOCKS, dtype="uint4", target=TARGETS[target]) == BLOCK


def test_rows_stay_before_zero_points_that_are_no_integers():
    assert blocks_rounded(BLOCKS, zero=7.5) == 0


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_stay_before_weights_of_floats(dtype):
    stays(
        lambda graph: round_rows(graph, VNNI),
        f"""graph g(%x: float32[m, 64]) {{
        %w = constant {dtype}[64, 3] splat 0.5
        %0 = map(%w) {{ cast($0, float32) }}
        %1 = contract(%x, %0) lhs=mk rhs=kn out=mn accumulate=float32
        return %1
    }}""",
    )


@pytest.mark.slow
def test_a_model_compiled_so_gives_what_it_gives_when_it_asks_for_that_itself(tmp_path):
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (ROWS, DEPTH // BLOCK, BLOCK // 2)).astype(np.uint8)
    scales = random.uniform(0.1, 0.2, ROWS * DEPTH // BLOCK).astype(np.float32)
    feeds = {"x": random.standard_normal((5, DEPTH)).astype(np.float32)}

    def outputs(level, precision):
        node = helper.make_node(
            "MatMulNBits",
            ["x", "q", "s"],
            ["y"],
            domain="com.microsoft",
            **{"K": DEPTH, "N": ROWS, "bits": 4, "block_size": BLOCK, "accuracy_level": level},
        )
        x, y = (
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, size])
            for name, size in (("x", DEPTH), ("y", ROWS))
        )
        weights = [numpy_helper.from_array(codes, "q"), numpy_helper.from_array(scales, "s")]
        graph = helper.make_graph([node], "g", [x], [y], weights)
        domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=10)
        library = tmp_path / f"{level}{precision}.so"
        onnxc.compile(model, library, precision=precision)
        return onnxc.load(library).run(None, feeds)[0]

    multiplies_bytes = find_target("native").byte_dot(*MULTIPLIED) is not None
    asked = outputs(4 if multiplies_bytes else 0, "float32")
    np.testing.assert_allclose(outputs(0, "int8"), asked, rtol=1e-5, atol=1e-5)
