"""Products of many terms in slices: the bits of one step, whatever sizes, epilogues and targets."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.harness import BEST, TARGETS

from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernel import Choice, choices_of
from onnxc.codegen.kernels import gemm, gemm_sliced
from onnxc.codegen.tiles import contraction, gemm_tiling
from onnxc.ir import dims, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract

SIZES = [(30, 96, 70), (29, 128, 31), (14, 65, 3), (0, 96, 5), (31, 200, 97)]
TOTAL, OPERAND = (expr.input_(k, "float32") for k in range(2))
GELU = TOTAL * 0.5 * (expr.erf(TOTAL * 0.70710678) + 1)
EPILOGUES = {
    "none": (None, ""),
    "bias": (TOTAL + OPERAND, "n"),
    "residual": (TOTAL + OPERAND, "mn"),
    "gelu": (GELU, ""),
    "gelu and residual": (GELU + OPERAND, "mn"),
    "narrow result": (GELU.cast("float16"), ""),
}


def product(rows, depth, columns, body=None, extra="", symbolic=False, dtype="float32"):
    """The product of `rows` rows with a constant, and its operands."""
    random = np.random.default_rng([rows, depth, columns])
    shapes = {"m": rows, "k": depth, "n": columns}
    arrays = [
        random.standard_normal([shapes[x] for x in labels]).astype(dtype) for labels in ("mk", "kn", extra)
    ]
    sizes = shapes | ({"m": dims.symbol("m")} if symbolic else {})
    values = [
        Value(TensorType(dtype, tuple(sizes[x] for x in labels)), "", Constant.of(a) if k == 1 else None)
        for k, (labels, a) in enumerate(zip(("mk", "kn", extra), arrays))
    ][: 3 if extra else 2]
    return make_node(Contract("mk", "kn", "mn", dtype, body), values), arrays[: len(values)]


def in_slices(node, target, size, vectors=1):
    """A choice of slices of that size and panels of so many vectors, whatever its estimate."""
    terms = gemm_sliced.sliced(contraction.product_of(node), size)
    tilings = {t.vectors: t for t in gemm_tiling.tilings(terms, target) if t.k_step == 1}
    tiling = replace(tilings[min(vectors, max(tilings))], order="panels", block=2, group=2)
    return Choice(Estimate(), gemm_sliced.Tiling(**vars(tiling), slice=size), packed=(1,), kernel=gemm_sliced)


def whole(node, choice):
    """The same tiles, in one step."""
    tiling = {name: x for name, x in vars(choice.tiling).items() if name != "slice"}
    return replace(choice, tiling=gemm_tiling.Tiling(**tiling), kernel=gemm)


def results(node, choice, arrays, target):
    ((got, _),) = harness.run_choice(node, choice, arrays, target, {"m": len(arrays[0])})
    return got


@TARGETS
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("vectors", [1, 2, 3])
@pytest.mark.parametrize(
    "size", [(30, 96, 70), (29, 128, 31), (14, 65, 3), (0, 96, 5), (31, 200, 97)], ids=str
)
def test_sums_of_slices_have_the_bits_of_one_step(target, size, vectors, symbolic):
    """Of whole panels and of the last one, which is as narrow as what is left."""
    node, arrays = product(*size, symbolic=symbolic)
    choice = in_slices(node, target, 32, vectors)
    np.testing.assert_array_equal(
        results(node, choice, arrays, target), results(node, whole(node, choice), arrays, target)
    )


@TARGETS
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_last_slice_has_the_epilogue(target, name, symbolic):
    body, extra = EPILOGUES[name]
    node, arrays = product(37, 160, 45, body, extra, symbolic)
    got = results(node, in_slices(node, target, 64), arrays, target)
    (expected,) = run_node(node, arrays, {"m": 37})
    near = 2e-3 if got.dtype == np.float16 else 2e-4
    np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=near, atol=near)


def test_float64_is_multiplied_in_slices():
    node, arrays = product(40, 96, 33, dtype="float64")
    got = results(node, in_slices(node, BEST, 32), arrays, BEST)
    np.testing.assert_allclose(got, arrays[0] @ arrays[1], rtol=1e-10, atol=1e-10)


def test_slices_in_the_middle_are_one_text():
    node, _ = product(60, 160, 64)
    steps = gemm_sliced.emit(node, in_slices(node, BEST, 32), BEST).steps
    assert len(steps) == 5
    assert len({step.text for step in steps}) == 3


def best(rows, depth, columns):
    """The kernel that is the fastest by estimate, in a model of 300 MB."""
    node, _ = product(rows, depth, columns)
    target = replace(BEST, run_bytes=300 << 20)
    return min((o for k in (gemm, gemm_sliced) for o in choices_of(k, node, target)), key=lambda o: o.time)


def test_many_terms_of_many_rows_are_sliced():
    assert best(197, 3072, 768).kernel is gemm_sliced


@pytest.mark.parametrize("size", [(1, 3072, 768), (16, 3072, 768), (197, 768, 768), (64, 256, 256)], ids=str)
def test_few_rows_and_few_terms_are_not(size):
    assert best(*size).kernel is gemm


def test_operands_of_the_run_and_several_products_are_left_to_others():
    node, _ = product(197, 3072, 8)
    computed = [Value(v.type) for v in node.inputs]
    assert not choices_of(gemm_sliced, make_node(node.op, computed), BEST)
    batch = [Value(TensorType("float32", (2, *v.shape)), "", v.constant) for v in node.inputs]
    assert not choices_of(gemm_sliced, make_node(Contract("bmk", "bkn", "bmn", "float32"), batch), BEST)
