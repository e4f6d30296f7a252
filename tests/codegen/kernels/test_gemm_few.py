"""Products whose rows only the run counts, with a matrix that the run makes: few rows and many, wherever it
lies, and when they are told apart."""

import numpy as np
import pytest
from support import harness
from support.harness import BEST, TARGETS

from onnxc.codegen.kernel import Choice, choices_of
from onnxc.codegen.kernels import gemm, gemm_few
from onnxc.ir import dims, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract

TOTAL, OPERAND = (expr.input_(k, "float32") for k in range(2))
ALONG_N, ALONG_K = ("bmk", "bkn", "bmn"), ("bmk", "bnk", "bmn")


def product(labels, sizes, symbolic="bm", body=None, extra="", dtype="float32"):
    """The products of a batch, with `symbolic` sizes named, and their operands."""
    random = np.random.default_rng(sum(sizes))
    sizes = dict(zip("bmkn", sizes))
    axes = [*labels[:2], *([extra] if extra else [])]
    arrays = [random.standard_normal([sizes[x] for x in one]).astype(dtype) for one in axes]
    named = sizes | {x: dims.symbol(x) for x in symbolic}
    values = [Value(TensorType(dtype, tuple(named[x] for x in one)), "") for one in axes]
    return make_node(Contract(*labels, dtype, body), values), arrays, sizes


def offers(node, target=BEST):
    return choices_of(gemm_few, node, target)


def check(node, arrays, sizes, target, choice: Choice):
    (expected,) = run_node(node, arrays, sizes)
    ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max(initial=1))


@TARGETS
@pytest.mark.parametrize("rows", [0, 1, 2, 15, 16, 17, 18, 40])
@pytest.mark.parametrize("labels", [ALONG_N, ALONG_K], ids=["along-n", "along-k"])
def test_few_rows_and_many_give_the_product(target, labels, rows):
    node, arrays, sizes = product(labels, (3, rows, 300, 512))
    offered = offers(node, target)
    assert offered
    for choice in offered:
        check(node, arrays, sizes, target, choice)


@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize("symbolic", ["mn", "mk", "bmkn"])
@pytest.mark.parametrize("labels", [ALONG_N, ALONG_K], ids=["along-n", "along-k"])
def test_any_size_may_be_open(labels, symbolic, rows):
    node, arrays, sizes = product(labels, (2, rows, 300, 35), symbolic)
    assert offers(node) or not BEST.masked  # what is left of a vector is loaded by a mask
    for choice in offers(node):
        check(node, arrays, sizes, BEST, choice)


@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize("extra", ["n", "bmn"])
def test_the_epilogue_has_the_sums_of_both(extra, rows):
    node, arrays, sizes = product(ALONG_N, (2, rows, 300, 512), body=expr.erf(TOTAL) + OPERAND, extra=extra)
    (choice,) = offers(node)
    check(node, arrays, sizes, BEST, choice)


@pytest.mark.parametrize("labels", [ALONG_N, ALONG_K], ids=["along-n", "along-k"])
def test_few_rows_pack_nothing_and_many_need_no_other_tiles(labels):
    """A step without parts is passed over."""
    node, _, sizes = product(labels, (2, 1, 300, 512))
    (choice,) = offers(node)
    code = gemm_few.emit(node, choice, BEST)
    *packing, many, few = code.steps
    for rows in (1, choice.tiling.most, 99):
        env = sizes | {"m": rows}
        runs = rows > choice.tiling.most
        assert [dims.evaluate(step.parts, env) > 0 for step in (*packing, many)] == [runs] * (
            len(packing) + 1
        )
        assert (dims.evaluate(few.parts, env) > 0) is not runs
        assert all((dims.evaluate(size, env) > 0) == runs for size in code.temporaries)


def test_it_is_chosen_over_packing_for_every_run():
    node, _, _ = product(ALONG_N, (12, 1, 300, 512))
    (few,) = offers(node)
    packed = min(choices_of(gemm, node, BEST), key=lambda choice: choice.time)
    assert few.time <= packed.time and packed.tiling.source in ("packed", "in_parts")


def test_rows_that_are_known_and_constants_are_left_to_others():
    assert not offers(product(ALONG_N, (12, 1, 64, 128), "b")[0])
    node, arrays, _ = product(("mk", "kn", "mn"), (1, 1, 64, 128), "m")
    stored = Value(node.inputs[1].type, "", Constant.of(arrays[1]))
    assert not offers(make_node(node.op, [node.inputs[0], stored]))
