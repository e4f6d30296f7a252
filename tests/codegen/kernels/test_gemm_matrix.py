"""Products on registers that hold matrices against the interpreter: all pairs of types, the ends of their
ranges, depths and sizes that are not whole; where the machine lacks them, their assembly."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm, gemm_matrix
from onnxc.ir import dims, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract
from onnxc.target import TARGETS, runs_here

TARGET = TARGETS["sapphirerapids"]
HERE = runs_here(TARGET)
INTEGERS = ("uint8", "int8"), "int32"
BYTES = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]


def bytes_of(shape, dtype, seed):
    """Random ones, and many at both ends of the type."""
    random, ends = np.random.default_rng([seed, *shape]), np.iinfo(dtype)
    array = random.integers(ends.min, ends.max, shape, dtype, endpoint=True)
    return np.where(random.random(shape) < 0.3, random.choice([ends.min, ends.max], shape), array).astype(
        dtype
    )


def halves(shape, seed):
    """Small whole numbers, whose sums are exact in any order."""
    return np.random.default_rng([seed, *shape]).integers(-9, 9, shape).astype(np.float32)


def contract(form, arrays, types, accumulate, constant=1, symbolic="", body=None):
    operands, out = form.split("->")
    lhs, rhs = operands.split(",")
    values = []
    for index, (labels, array, dtype) in enumerate(zip((lhs, rhs), arrays, types)):
        shape = tuple(dims.symbol(x) if x in symbolic else n for x, n in zip(labels, array.shape))
        known = Constant.of(array) if index == constant else None
        values.append(Value(TensorType(dtype, shape), "", known))
    values += [Value(TensorType("float32", (a.shape[-1],)), "") for a in arrays[2:]]
    return make_node(Contract(lhs, rhs, out, accumulate, body), values)


def check(node, arrays, sizes=None, orders=("panels", "rows"), choice=None):
    """The kernel's result is the interpreter's, in other orders of small parts or as chosen; elsewhere its
    code is that of the instruction."""
    (chosen,) = choices_of(gemm_matrix, node, TARGET) if choice is None else (choice,)
    if not HERE:
        *_, step = gemm_matrix.emit(node, chosen, TARGET).steps
        code = harness.assembly(step.text, TARGET)
        assert "tdpb" in code and "ldtilecfg" in code and "tilerelease" in code
        return
    small = [
        replace(chosen, tiling=replace(chosen.tiling, order=order, block=1, group=1)) for order in orders
    ]
    (expected,) = run_node(node, arrays, dict(sizes or {}))
    for one in small if choice is None else [choice]:
        ((got, _),) = harness.run_choice(node, one, arrays, TARGET, sizes)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("types", BYTES, ids="-".join)
def test_products_of_bytes_are_exact_to_the_ends_of_their_types(types):
    for m, n, k in ((1, 1, 1), (16, 16, 64), (33, 40, 70), (49, 33, 200), (3, 70, 1152)):
        arrays = [bytes_of((m, k), types[0], 1), bytes_of((k, n), types[1], 2)]
        check(contract("mk,kn->mn", arrays, types, "int32"), arrays)


@pytest.mark.slow
def test_every_depth_up_to_one_step_and_more():
    for k in range(1, 71, 1 if HERE else 23):
        arrays = [bytes_of((5, k), "uint8", 1), bytes_of((k, 18), "int8", 2)]
        check(contract("mk,kn->mn", arrays, ("uint8", "int8"), "int32"), arrays, orders=("rows",))


@pytest.mark.parametrize("constant", [1, None])
def test_sizes_that_only_the_run_knows(constant):
    for m, n, k, symbolic in ((1, 33, 64, "m"), (45, 20, 64, "m"), (70, 50, 30, "mn")):
        arrays = [bytes_of((m, k), "uint8", 1), bytes_of((k, n), "int8", 2)]
        symbolic = symbolic.replace("n", "") if constant else symbolic
        node = contract("mk,kn->mn", arrays, ("uint8", "int8"), "int32", constant, symbolic)
        check(node, arrays, {"m": m, "n": n})


def test_outer_axes_and_operands_of_the_run():
    arrays = [bytes_of((2, 37, 70), "uint8", 1), bytes_of((2, 19, 70), "int8", 2)]
    check(contract("bmk,bnk->bmn", arrays, ("uint8", "int8"), "int32", None), arrays)
    arrays = [bytes_of((2, 3, 37, 70), "uint8", 1), bytes_of((3, 19, 70), "int8", 2)]
    check(contract("bhmk,hnk->bmhn", arrays, ("uint8", "int8"), "int32", None), arrays)


def test_an_epilogue_of_every_column():
    body = expr.input_(0, "int32").cast("float32") * 0.5 + expr.input_(1, "float32")
    arrays = [bytes_of((37, 128), "uint8", 1), bytes_of((128, 43), "int8", 2), halves((43,), 3)]
    check(contract("mk,kn->mn", arrays, ("uint8", "int8"), "int32", body=body), arrays)


def test_sums_of_bfloat16s_are_float32():
    import ml_dtypes

    for m, n, k in ((37, 43, 64), (5, 18, 33), (64, 32, 96)):
        arrays = [halves((m, k), 1).astype(ml_dtypes.bfloat16), halves((k, n), 2).astype(ml_dtypes.bfloat16)]
        for constant in (1, None):
            check(contract("mk,kn->mn", arrays, ("bfloat16",) * 2, "float32", constant), arrays)


RUNS = [(1, 520, 512), (32, 512, 600), (33, 512, 1100), (70, 514, 1088), (129, 1030, 700)]


@pytest.mark.parametrize(("m", "n", "k"), RUNS)
@pytest.mark.parametrize("known", [True, False])
def test_sums_that_wait_between_runs_of_steps(m, n, k, known):
    arrays = [bytes_of((2, m, k), "uint8", 1), bytes_of((k, n), "int8", 2)]
    body = expr.input_(0, "int32") - expr.input_(1, "float32").cast("int32")
    for extra, epilogue in ([], None), ([halves((n,), 3)], body):
        operands = [*arrays, *extra]
        node = contract(
            "amk,kn->amn",
            operands,
            ("uint8", "int8"),
            "int32",
            symbolic="am" if not known else "",
            body=epilogue,
        )
        (choice,) = choices_of(gemm_matrix, node, TARGET)
        for run, block, group in (choice.tiling.run, choice.tiling.block, 1), (1, 2, 3), (3, 1, 1):
            tiling = replace(choice.tiling, run=run, block=block, group=group)
            check(node, operands, {"a": 2, "m": m}, choice=replace(choice, tiling=tiling))


def test_a_run_of_steps_leaves_the_first_level_cache_to_the_rows_of_tile_after_tile():
    def tiling(m, n, k):
        node = contract("mk,kn->mn", [bytes_of((m, k), "uint8", 1), bytes_of((k, n), "int8", 2)], *INTEGERS)
        (choice,) = choices_of(gemm_matrix, node, TARGET)
        return choice.tiling

    many, room = tiling(128, 1024, 3072), TARGET.facts.level1_bytes
    assert 1 < many.run < 48 and many.run * 64 * (32 + 32) + 4096 <= room
    assert tiling(32, 1024, 3072).run == 48  # one tile has each panel to itself
    assert tiling(128, 256, 3072).run == 48  # few panels do not pay for copying rows


def test_a_few_rows_are_multiplied_on_vectors():
    def best(m):
        arrays = [bytes_of((m, 512), "uint8", 1), bytes_of((512, 512), "int8", 2)]
        node = contract("mk,kn->mn", arrays, ("uint8", "int8"), "int32")
        offers = [*choices_of(gemm, node, TARGET), *choices_of(gemm_matrix, node, TARGET)]
        return min(offers, key=lambda offer: offer.time).kernel

    assert best(128) is gemm_matrix
    assert best(1) is gemm
