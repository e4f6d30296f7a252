"""Matrix products against the interpreter: every form, odd sizes, element types, epilogues, targets."""

from dataclasses import replace

import numpy as np
import pytest
from support import blocked_cases, harness
from support.assembly import spills
from support.harness import BEST, TARGETS
from support.repeated import check_every_kernel

from onnxc.codegen import costs
from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernel import Choice, choices_of
from onnxc.codegen.kernels import gemm
from onnxc.codegen.tiles import contraction, gemm_tiling
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract
from onnxc.target import LEVELS
from onnxc.target import TARGETS as PROCESSORS

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-4, "float64": 1e-10}


def numbers(shape, dtype, seed=0):
    random = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return random.random(shape) < 0.5
    kind = dtypes.numpy_dtype(dtype)
    if dtypes.is_integer(dtype):
        return random.integers(0 if kind.kind == "u" else -9, 9, shape).astype(kind)
    return random.standard_normal(shape).astype(kind)


class Case:
    """A Contract over sizes by label: `constant` is the operand known when compiling (0, 1 or None),
    `symbolic` the labels that only the run knows, `extra` the epilogue's operands as (labels, dtype),
    a label in capitals being of size 1."""

    def __init__(self, form, sizes, constant=1, types=("float32",) * 3, symbolic="", body=None, extra=()):
        operands, out = form.replace(" ", "").split("->")
        self.labels = operands.split(",")
        self.sizes, self.constant = sizes, constant
        lhs, rhs, accumulate = types
        shape = {x: dims.symbol(x) if x in symbolic else size for x, size in sizes.items()}
        self.arrays, values = [], []
        for index, (labels, dtype) in enumerate(zip(self.labels, (lhs, rhs))):
            array = numbers([sizes[x] for x in labels], dtype, index)
            type_ = TensorType(dtype, tuple(shape[x] for x in labels))
            values.append(Value(type_, "", Constant.of(array) if index == constant else None))
            self.arrays.append(array)
        for labels, dtype in extra:
            self.arrays.append(numbers([1 if x.isupper() else sizes[x] for x in labels], dtype, 7))
            whole = tuple(1 if x.isupper() else shape[x] for x in labels)
            values.append(Value(TensorType(dtype, whole)))
        self.node = make_node(Contract(*self.labels, out, accumulate, body), values)

    def choice(self, target=BEST):
        choices = choices_of(gemm, self.node, target)
        return choices[0] if choices else None

    def check(self, target=BEST, choice=None):
        """The kernel's result is the interpreter's."""
        choice = choice or self.choice(target)
        ((got, _),) = harness.run_choice(self.node, choice, self.arrays, target, self.sizes)
        (expected,) = run_node(self.node, self.arrays, dict(self.sizes))
        assert got.shape == expected.shape
        if dtypes.from_numpy(got.dtype) in TOLERANCE:
            near = TOLERANCE[dtypes.from_numpy(got.dtype)]
            np.testing.assert_allclose(got.astype("f8"), expected.astype("f8"), rtol=near, atol=near)
        else:
            np.testing.assert_array_equal(got, expected)


def matrix(m, n, k):
    return {"m": m, "n": n, "k": k}


# Batches -----------------------------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize("given", [(1, 3), (3, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("form", ["bmk,bkn->bmn", "bmk,bnk->bmn", "bk,bk->b", "bmk,bkn->mbn"])
def test_every_kernel_repeats_operands_that_the_run_finds_to_be_one(target, form, given):
    labels, out = form.split("->")
    sizes, batches = {"m": 2, "k": 20, "n": 35}, dict(zip("pq", given))
    op = Contract(*labels.split(","), out, "float32", repeated="b")
    check_every_kernel(op, labels.split(","), sizes, batches, target, 2e-4)


# Sizes -------------------------------------------------------------------------------------------

SIZES = [
    (1, 1, 1),
    (0, 5, 3),
    (5, 0, 3),
    (5, 3, 0),
    (1, 70, 33),
    (2, 64, 8),
    (3, 17, 129),
    (4, 200, 31),
    (13, 31, 37),
    (14, 32, 64),
    (15, 33, 65),
    (29, 97, 16),
    (49, 71, 53),
    (128, 48, 20),
]


@TARGETS
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_weights_packed_when_compiling(target, size):
    Case("mk,kn->mn", matrix(*size)).check(target)


@TARGETS
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_two_operands_of_the_run(target, size):
    Case("mk,kn->mn", matrix(*size), constant=None).check(target)


@TARGETS
@pytest.mark.parametrize("columns", [8, 16, 24, 32, 48, 64])
@pytest.mark.parametrize("rows", [1, 8, 30])
def test_operands_as_wide_as_a_panel_may_lie_anywhere(target, rows, columns):
    Case("mk,kn->mn", matrix(rows, columns, 6), constant=None).check(target)


@TARGETS
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_transposed_operand_of_the_run(target, size):
    Case("mk,nk->mn", matrix(*size), constant=None).check(target)


@TARGETS
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes_that_only_the_run_knows(target, size):
    Case("mk,kn->mn", matrix(*size), constant=None, symbolic="mnk").check(target)


@TARGETS
@pytest.mark.parametrize("rows", range(1, 32))
def test_rows_that_only_the_run_knows_over_packed_weights(target, rows):
    Case("mk,kn->mn", matrix(rows, 50, 24), symbolic="m").check(target)


@TARGETS
@pytest.mark.parametrize("order", ["rows", "panels"])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_every_tiling_is_right(target, order, vectors):
    case = Case("mk,kn->mn", matrix(31, 150, 19))
    product = contraction.product_of(case.node)
    for tiling in gemm_tiling.tilings(product, target):
        if tiling.vectors == vectors:
            small = replace(tiling, order=order, block=2, group=2)
            case.check(target, Choice(Estimate(), small, packed=(1,), kernel=gemm))


@TARGETS
@pytest.mark.parametrize("source", ["packed", "in_parts"])
@pytest.mark.parametrize("symbolic", ["", "m", "n", "mn"])
@pytest.mark.parametrize("order", ["rows", "panels"])
@pytest.mark.parametrize(
    "form, types", [("bmk,bkn->bmn", ("float32",) * 3), ("mk,bckn->bcmn", ("float64",) * 3)]
)
def test_a_matrix_of_the_run_wherever_it_is_packed(target, source, symbolic, order, form, types):
    """Of groups of panels the last is not full, nor is its last panel."""
    sizes = {"b": 2, "c": 3, **matrix(31, 150, 19)}
    case = Case(form, sizes, constant=None, types=types, symbolic=symbolic)
    for tiling in gemm_tiling.tilings(contraction.product_of(case.node), target):
        small = replace(tiling, order=order, block=2, group=2, source=source)
        case.check(target, Choice(Estimate(), small, kernel=gemm))


@TARGETS
@pytest.mark.parametrize("symbolic, constant", [("", None), ("m", None), ("mn", None), ("", 1), ("m", 1)])
@pytest.mark.parametrize("form, types", [("bkm,bkn->bmn", ("float32",) * 3), ("km,kn->mn", ("float64",) * 3)])
def test_rows_that_lie_side_by_side_may_be_copied(target, form, types, constant, symbolic):
    sizes = {"b": 2, **matrix(31, 150, 19)}
    case = Case(form, sizes, constant=constant, types=types, symbolic=symbolic)
    product = contraction.product_of(case.node)
    for tiling in gemm_tiling.tilings(product, target):
        whole = replace(tiling, order="rows", group=gemm.ALL, block=gemm.ALL)
        for choice in gemm_tiling.copied(product, whole):
            packed = (1,) if constant else ()
            case.check(target, Choice(Estimate(), choice, packed=packed, kernel=gemm))


def test_rows_whose_steps_evict_each_other_are_copied():
    target, found = LEVELS["x86-64-v4"], {}
    target = replace(target, facts=replace(target.facts, level2_bytes=2 << 20))
    for form, k in (("km,kn->mn", 2048), ("km,kn->mn", 64), ("mk,kn->mn", 2048)):
        found[form, k] = Case(form, matrix(1000, 128, k), constant=None).choice(target).tiling.copied
    assert found == {("km,kn->mn", 2048): True, ("km,kn->mn", 64): False, ("mk,kn->mn", 2048): False}


def test_parts_pack_groups_of_panels_that_all_rows_multiply():
    """A step before packs what is too deep for panels to stay near, and what several blocks of rows read."""
    target, found = LEVELS["x86-64-v4"], {}
    for m, n, k in ((64, 12544, 64), (256, 1600, 256), (256, 1600, 4096), (4096, 1600, 256)):
        choice = Case("mk,kn->mn", matrix(m, n, k), constant=None).choice(target)
        found[m, n, k] = choice.tiling.source
    assert found == {
        (64, 12544, 64): "in_parts",
        (256, 1600, 256): "in_parts",
        (256, 1600, 4096): "packed",
        (4096, 1600, 256): "packed",
    }


def test_parts_pack_the_matrices_that_they_multiply_if_there_are_enough():
    """A step before packs what is larger than half of the second-level cache, or what several parts share."""
    target = LEVELS["x86-64-v4"]
    target, found = replace(target, facts=replace(target.facts, level2_bytes=1 << 20)), {}
    for b, k in ((64, 300), (4, 300), (64, 3000)):
        case = Case("bmk,bkn->bmn", {"b": b, **matrix(64, 128, k)}, constant=None)
        found[b, k] = case.choice(target).tiling.source
    assert found == {(64, 300): "in_parts", (4, 300): "packed", (64, 3000): "packed"}


def test_panels_that_a_row_goes_through_come_from_where_all_of_them_lie():
    case, target = Case("mk,kn->mn", matrix(512, 784, 128)), LEVELS["x86-64-v4"]
    product = contraction.product_of(case.node)
    first = replace(next(iter(gemm_tiling.tilings(product, target))), order="rows")

    def memory(group):
        return gemm_tiling.estimate(case.node, product, replace(first, group=group), target).memory

    assert memory(1) < memory(8) <= memory(gemm.ALL)


@TARGETS
@pytest.mark.parametrize("symbolic", ["m", ""])
@pytest.mark.parametrize("terms, order", [(20, "rows"), (700, "panels")])
def test_rows_of_few_terms_and_many_columns_are_written_in_long_runs(target, symbolic, terms, order):
    target = replace(target, facts=replace(target.facts, level2_bytes=1 << 18))
    case = Case("mk,kn->mn", matrix(67, 3301, terms), symbolic=symbolic)
    choices = [c for c in choices_of(gemm, case.node, target) if c.tiling.k_step == 1]
    assert {c.tiling.order for c in choices} == {order}
    for choice in choices:
        case.check(target, choice)
    if order == "rows":
        runs = [c.tiling.group * c.tiling.vectors * c.tiling.lanes for c in choices]
        assert all(gemm_tiling.RUN <= columns < 3301 for columns in runs)


@TARGETS
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("constant", [0, None])
def test_equal_columns_have_equal_sums(target, rows, constant):
    case = Case("mk,kn->mn", matrix(rows, 1000, 321), constant=constant)
    case.arrays[1][:] = case.arrays[1][:, :1]
    ((got, _),) = harness.run_choice(case.node, case.choice(target), case.arrays, target, case.sizes)
    np.testing.assert_array_equal(got, np.broadcast_to(got[:, :1], got.shape))


# Forms -------------------------------------------------------------------------------------------

LETTERS = {"b": 2, "h": 3, "s": 17, "m": 18, "n": 35, "k": 21, "d": 20, "e": 5}
FORMS = [
    "bmk,bkn->bmn",
    "bmk,kn->bmn",
    "mk,bkn->bmn",
    "km,kn->mn",
    "km,nk->mn",
    "k,kn->n",
    "mk,k->m",
    "k,k->",
    "m,n->mn",
    "bhmd,bhnd->bhmn",
    "bmhd,bnhd->bhmn",
    "bhmk,bhkd->bmhd",
    "bsk,khd->bshd",
    "bsk,khd->bhsd",
    "bhsd,hdn->bsn",
    "bshd,hdn->bsn",
    "bhsd,dhn->bsn",
    "sbhd,hdn->bsn",
    "bmk,hkn->bhmn",
    "bmk,hkn->hbmn",
    "bkm,bhnk->bhmn",
    "bhk,bhkd->bhd",
    "bm,bn->bmn",
]


@TARGETS
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("constant", [None, 0, 1])
def test_every_order_of_axes(target, form, constant):
    Case(form, LETTERS, constant).check(target)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("symbolic", ["bs", "m", "smnkd", "bhmskdne"])
def test_every_order_of_axes_of_unknown_size(form, symbolic):
    Case(form, LETTERS, None, symbolic=symbolic).check()


@pytest.mark.parametrize("form", ["mbk,nbk->mnb", "mkx,kn->mn", "mm,mn->mn"])
def test_what_has_no_normal_form_is_left_to_others(form):
    sizes = {**LETTERS, "x": 3}
    assert Case(form, sizes, None).choice() is None


def test_axes_of_size_one_may_stand_anywhere():
    Case("bmk,kn->mnb", {**LETTERS, "b": 1}).check()


def test_a_transposed_result_is_written_where_it_belongs():
    """The head axis moves out by addresses alone: no packing, no copy."""
    case = Case("bsk,khd->bhsd", {"b": 1, "s": 128, "k": 64, "h": 4, "d": 32})
    assert len(gemm.emit(case.node, case.choice(), BEST).steps) == 1
    case.check()


# Element types -----------------------------------------------------------------------------------

TYPES = [
    ("float64",) * 3,
    ("float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("uint8", "int8", "int32"),
    ("int8", "uint8", "int32"),
    ("int64",) * 3,
    ("uint32",) * 3,
    ("int8",) * 3,
    ("float32", "float16", "float32"),
]


@TARGETS
@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("constant", [None, 1])
@pytest.mark.parametrize("form", ["mk,kn->mn", "mk,nk->mn"])
def test_every_element_type(target, types, constant, form):
    Case(form, matrix(23, 39, 18), constant, types).check(target)


def test_types_that_tiles_do_not_widen_are_left_to_others():
    assert Case("mk,kn->mn", matrix(2, 3, 4), types=("float16", "float16", "float16")).choice() is None


# Dot products ------------------------------------------------------------------------------------

IN_GROUPS = [
    (t, (*types, d.accumulate))
    for t in harness.with_dots()
    for d in t.dots
    for types in sorted({(d.lhs, d.rhs), (d.rhs, d.lhs)})
] or harness.WITHOUT


def in_groups(case, target):
    """The choice of a product in groups, also where one element at a time would be faster."""
    types = *(v.dtype for v in case.node.inputs[:2]), case.node.op.accumulate
    product = contraction.product_of(case.node)
    tilings = [t for t in gemm_tiling.tilings(product, target) if t.k_step == target.dot(*types).group]
    return [replace(case.choice(target), tiling=t) for t in tilings]


@pytest.mark.parametrize("target, types", IN_GROUPS, ids=str)
@pytest.mark.parametrize("constant", [1, None])
@pytest.mark.parametrize(
    "size", [(2, 64, 8), (3, 17, 129), (5, 3, 0), (5, 0, 3), (15, 33, 65), (29, 97, 6)], ids=str
)
def test_products_in_groups(target, types, constant, size):
    case = Case("mk,kn->mn", matrix(*size), constant, types)
    for choice in in_groups(case, target)[:2]:
        case.check(target, choice)


@pytest.mark.parametrize("target", [t for t in LEVELS.values() if harness.runs(t)], ids=str)
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")], ids=str)
def test_products_of_bytes_that_are_widened(target, types):
    for size in ((2, 64, 8), (3, 17, 129), (15, 33, 65), (5, 3, 0), (5, 0, 3), (29, 97, 700)):
        case = Case("mk,kn->mn", matrix(*size), 1, (*types, "int32"))
        choice = case.choice(target)
        assert (choice.tiling.stored == "int16") == (target.widening.group > 1)
        case.check(target, choice)


@pytest.mark.parametrize("target, types", IN_GROUPS, ids=str)
@pytest.mark.parametrize("size", [(1, 1, 1), (15, 33, 66)], ids=str)
def test_products_in_groups_of_sizes_that_only_the_run_knows(target, types, size):
    for symbolic, constant in (("mnk", None), ("m", 1), ("k", None)):
        case = Case("mk,kn->mn", matrix(*size), constant, types, symbolic)
        for choice in in_groups(case, target)[-1:]:
            case.check(target, choice)


@pytest.mark.parametrize("target, types", IN_GROUPS, ids=str)
def test_products_in_groups_under_outer_axes_and_of_a_transposed_operand(target, types):
    sizes = {"b": 2, "h": 3, "m": 7, "n": 19, "k": 11}
    for form in ("bhmk,bhkn->bhmn", "bmhk,bhnk->bmhn", "bhmk,hkn->bhmn"):
        case = Case(form, sizes, None, types)
        for choice in in_groups(case, target)[-1:]:
            case.check(target, choice)


@pytest.mark.parametrize("target, types", IN_GROUPS, ids=str)
def test_a_large_product_is_one_of_groups_where_those_are_faster(target, types):
    faster = types[0] != "bfloat16" or 2 * target.facts.bf16_dots > 1
    for constant in (1, None):
        chosen = Case("mk,kn->mn", matrix(64, 256, 512), constant, types).choice(target)
        assert (chosen.tiling.k_step > 1) == faster


def test_other_types_and_targets_multiply_one_by_one():
    product = matrix(64, 256, 512)
    for name, types in (
        ("x86-64-v4", ("uint16", "uint16", "int32")),
        ("sapphirerapids", ("float32",) * 3),
        ("sapphirerapids", ("float16", "float16", "float32")),
    ):
        assert Case("mk,kn->mn", product, 1, types).choice(PROCESSORS[name]).tiling.k_step == 1


# Epilogues ---------------------------------------------------------------------------------------


def total(dtype="float32"):
    return expr.input_(0, dtype)


def operand(index, dtype="float32"):
    return expr.input_(index, dtype)


def gelu(x):
    return x * 0.5 * (expr.erf(x * 0.70710678) + 1)


EPILOGUES = {
    "bias": (total() + operand(1), [("n", "float32")]),
    "bias and relu": ((total() + operand(1)).maximum(0), [("n", "float32")]),
    "bias and residual": (total() + operand(1) + operand(2), [("n", "float32"), ("mn", "float32")]),
    "row factor": (total() * operand(1), [("mN", "float32")]),
    "scalar": (total() * operand(1), [("", "float32")]),
    "residual of one row": (total() + operand(1), [("Mn", "float32")]),
    "gelu": (gelu(total() + operand(1)), [("n", "float32")]),
    "gelu and residual": (gelu(total()) + operand(1), [("mn", "float32")]),
    "mask": (expr.where(operand(1, "bool"), total(), -1.0), [("mn", "bool")]),
    "comparison": (total() > operand(1), [("n", "float32")]),
    "narrow result": (total().cast("float16"), []),
    "long and narrow": (gelu(total()).cast("float16"), []),
    "a size": (total() * expr.size(dims.symbol("m")).cast("float32"), []),
    "unused operands": (total() * 2, [("n", "float32")]),
    "without the sum": (operand(1) + 1, [("n", "float32")]),
}


@TARGETS
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("symbolic", ["", "m"])
def test_an_epilogue_is_applied_to_every_sum(target, name, symbolic):
    body, extra = EPILOGUES[name]
    Case("mk,kn->mn", matrix(19, 45, 12), symbolic=symbolic, body=body, extra=extra).check(target)


@TARGETS
@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_over_sizes_of_the_run(target, name):
    body, extra = EPILOGUES[name]
    Case("mk,kn->mn", matrix(19, 45, 12), None, symbolic="mnk", body=body, extra=extra).check(target)


@TARGETS
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8e4m3fn", "bool"])
@pytest.mark.parametrize("shared", ["m", "n"])
def test_vectors_of_a_tile_share_narrow_operands_of_the_epilogue(target, dtype, shared):
    """Between them may be stores under masks, which end basic blocks where a target has no such stores."""
    body = total() + operand(1, dtype).cast("float32")
    extra = [("mN" if shared == "m" else "n", dtype)]
    Case("mk,kn->mn", matrix(19, 45, 12), symbolic="n", constant=0, body=body, extra=extra).check(target)


@pytest.mark.parametrize("extra", ["d", "sd", "hSd", "hsd", "bhsd", "BhSD", "bHsD"])
@pytest.mark.parametrize("out", ["bhsd", "bshd"])
def test_operands_of_an_epilogue_broadcast(extra, out):
    order = [x for x in out if x in extra.lower()]
    labels = "".join(next(y for y in extra if y.lower() == x) for x in order)
    padded = out[out.index(order[0]) :]
    labels = "".join(next((y for y in labels if y.lower() == x), x.upper()) for x in padded)
    Case(f"bsk,khd->{out}", LETTERS, body=total() + operand(1), extra=[(labels, "float32")]).check()


def test_quantised_products_end_in_bytes():
    scaled = (total("int32").cast("float32") * operand(1) + 128.0).clip(0, 255)
    body = expr.round_(scaled).cast("uint8")
    types = ("uint8", "int8", "int32")
    for target in harness.RUNNABLE:
        Case("mk,kn->mn", matrix(21, 50, 40), types=types, body=body, extra=[("n", "float32")]).check(target)


def test_an_epilogue_that_asks_for_indices_is_left_to_others():
    body = expr.where(expr.index(0) >= expr.index(1), total(), 0.0)
    assert Case("mk,kn->mn", matrix(4, 4, 4), body=body).choice() is None


# Code --------------------------------------------------------------------------------------------


def test_equal_products_have_equal_text():
    steps = [
        gemm.emit(case.node, case.choice(), BEST).steps[0]
        for case in (Case("mk,kn->mn", matrix(20, 40, 30)), Case("bc,cd->bd", {"b": 20, "c": 30, "d": 40}))
    ]
    assert steps[0].text == steps[1].text


def test_packing_is_put_off_until_the_constant_is_written():
    case = Case("mk,kn->mn", matrix(20, 40, 30))

    def never():
        raise AssertionError("materialised")

    case.node.inputs[1].constant = Constant("float32", (30, 40), never)
    assert gemm.pack(case.node, case.choice(), 1).shape[1] >= 30 * 40


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_every_target_gets_code(target):
    case = Case("mk,kn->mn", matrix(20, 40, 30), None, symbolic="mn", body=gelu(total()))
    for step in gemm.emit(case.node, case.choice(target), target).steps:
        assert "KERNEL" in harness.assembly(step.text, target)


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
@pytest.mark.parametrize("symbolic", ["", "m", "mk"])
@pytest.mark.parametrize("constant", [1, None])
def test_products_keep_their_sums_in_registers(target, symbolic, constant):
    symbolic = symbolic if constant is None else symbolic.replace("k", "")
    case = Case("mk,kn->mn", matrix(128, 96, 64), constant, symbolic=symbolic)
    assert not spills(gemm.emit(case.node, case.choice(target), target).steps[-1].text, target)


@pytest.mark.parametrize("symbolic", ["", "m"])
def test_many_rows_have_tiles_of_one_vector_where_multiply_adds_broadcast_from_memory(symbolic):
    case = Case("mk,kn->mn", {"m": 128, "k": 768, "n": 768}, symbolic=symbolic)
    vectors = {name: case.choice(PROCESSORS[name]).tiling.vectors for name in ("znver4", "x86-64-v3")}
    assert vectors["znver4"] == 1
    assert vectors["x86-64-v3"] > 1


@pytest.mark.parametrize("symbolic", ["", "m"])
@pytest.mark.parametrize("block", [1, 2, 5, 9])
@pytest.mark.parametrize("tiles", [0, 1, 2, 3, 4, 8, 11, 16, 40])
def test_a_thread_reads_panels_once_for_each_block_of_tiles(tiles, block, symbolic):
    """It goes through as many strips together as a block has tiles for."""
    case = Case("mk,kn->mn", matrix(8 * tiles, 3072, 768), symbolic=symbolic)
    tiling = gemm_tiling.Tiling(8, 3, 16, "panels", block, 1, "constant")
    strips = gemm.Gemm(case.node, contraction.product_of(case.node), tiling, Estimate(), BEST).strips
    count, most = (dims.evaluate(size, case.sizes) for size in (strips.count, strips.most))
    starts = [k * tiles // count for k in range(count)] + [tiles]
    together = [starts[min(k + most, count)] - starts[k] for k in range(0, count, most)]
    assert max(together) <= block
    assert len(together) == 1 or tiles > block


@pytest.mark.parametrize("size, parts", [((512, 512, 512), 8), ((1, 4096, 512), 8), ((4096, 64, 64), 8)])
def test_large_products_are_cut_for_many_threads(size, parts):
    case = Case("mk,kn->mn", matrix(*size))
    assert gemm.emit(case.node, case.choice(), BEST).steps[-1].parts >= parts


@TARGETS
@pytest.mark.parametrize("symbolic", ["", "m"])
@pytest.mark.parametrize("rows", [256, 190])
def test_half_of_the_parts_of_many_rows_are_half_of_the_rows(target, symbolic, rows):
    case = Case("mk,kn->mn", matrix(rows, 384, 96), symbolic=symbolic)
    done = harness.first_half(case.node, case.choice(target), case.arrays, target, case.sizes)
    assert np.all(done[: rows // 2 - 24]) and not np.any(done[rows // 2 + 24 :])


def test_half_of_the_parts_of_few_rows_are_half_of_the_columns():
    case = Case("mk,kn->mn", matrix(40, 512, 1024), symbolic="m")
    done = harness.first_half(case.node, case.choice(), case.arrays, BEST, case.sizes)
    assert np.all(done[:, :192]) and not np.any(done[:, 320:])


@TARGETS
@pytest.mark.parametrize("symbolic", ["", "bm"])
@pytest.mark.parametrize("split", [2, 3, 7, 1000])
@pytest.mark.parametrize("tiles", [None, 4])
def test_any_cut_of_the_parts_gives_the_same(target, symbolic, split, tiles):
    sizes = {"b": 2, "m": 200, "k": 40, "n": 136}
    case = Case("bmk,kn->bmn", sizes, symbolic=symbolic)
    choice = case.choice(target)
    if tiles is not None:  # go through the panels of a group before others do
        tiling = replace(choice.tiling, order="panels", block=tiles, group=2)
        choice = replace(choice, tiling=tiling)
    whole, cut = (harness.Prepared(case.node, choice, case.arrays, target, sizes) for _ in range(2))
    whole.run(1), cut.run(split)
    np.testing.assert_allclose(
        whole.results()[0][0], run_node(case.node, case.arrays, sizes)[0], rtol=2e-4, atol=2e-4
    )
    assert np.array_equal(whole.results()[0][0], cut.results()[0][0])


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_one_row_reads_weights_that_are_far_from_several_places(target):
    case, far = Case("mk,kn->mn", matrix(1, 70, 1501)), replace(target, run_bytes=1 << 30)
    text, near = (
        gemm.emit(case.node, case.choice(machine), machine).steps[-1].text for machine in (far, target)
    )
    assert "llvm.prefetch" in text and "llvm.prefetch" not in near
    assert not spills(text, far)
    if target in harness.RUNNABLE:
        case.check(far)
        Case("mk,kn->mn", matrix(1, 70, 1501), symbolic="m").check(far)


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_tiles_fetch_the_next_panel_of_weights_that_are_far(target):
    case = Case("mk,kn->mn", matrix(40, 200, 320))
    target = replace(target, facts=replace(target.facts, level2_bytes=1 << 18))
    far, near = replace(target, run_bytes=1 << 30), replace(target, run_bytes=0)
    choice = next(c for c in choices_of(gemm, case.node, far) if c.tiling.order == "panels")
    choice = replace(choice, tiling=replace(choice.tiling, rows=min(6, choice.tiling.rows)))
    texts = [gemm.emit(case.node, choice, machine).steps[-1].text for machine in (far, near)]
    assert ["llvm.prefetch" in text for text in texts] == [True, False]
    assert not spills(texts[0], far)
    if target in harness.RUNNABLE:
        case.check(far, choice)


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_a_tile_of_all_rows_fetches_the_next_panel_of_weights_that_are_far(target):
    case, far = Case("mk,kn->mn", matrix(5, 200, 320)), replace(target, run_bytes=1 << 30)
    choice = next(c for c in choices_of(gemm, case.node, far) if c.tiling.rows == 5)
    text = gemm.emit(case.node, choice, far).steps[-1].text
    assert "llvm.prefetch" in text
    assert not spills(text, far)
    if target in harness.RUNNABLE:
        case.check(far, choice)


@pytest.mark.parametrize("rows", [0, 1, 13, 15, 31])
def test_rows_of_the_run_over_weights_that_are_far(rows):
    far = replace(BEST, run_bytes=1 << 30, facts=replace(BEST.facts, level2_bytes=1 << 18))
    Case("mk,kn->mn", matrix(rows, 200, 320), symbolic="m").check(far)


@pytest.mark.skipif(bool(harness.EMULATED), reason="what is fetched is seen in this process")
@pytest.mark.parametrize("symbolic", ["m", ""])
@pytest.mark.parametrize("rows", [3, 8, 13, 15, 16, 29, 64])
def test_every_line_of_the_panels_behind_the_first_is_fetched_while_others_are_multiplied(rows, symbolic):
    case = Case("mk,kn->mn", matrix(rows, 200, 320), symbolic=symbolic)
    far = replace(BEST, run_bytes=1 << 30, facts=replace(BEST.facts, level2_bytes=1 << 18))
    choice = next(c for c in choices_of(gemm, case.node, far) if c.tiling.order == "panels")
    lines, memory = harness.fetched_lines(case.node, choice, case.arrays, far)
    weights = memory["input"][1]
    panel = 320 * 4 * choice.tiling.vectors * choice.tiling.lanes
    behind = range(weights.ctypes.data + panel, weights.ctypes.data + weights.nbytes, 64)
    assert {address // 64 for address in behind} <= lines


@pytest.mark.skipif(bool(harness.EMULATED), reason="what is fetched is seen in this process")
@pytest.mark.parametrize("symbolic", ["m", ""])
@pytest.mark.parametrize("rows", [3, 13, 16, 64])
def test_every_line_behind_the_first_group_is_fetched_while_rows_go_through_groups(rows, symbolic):
    case = Case("mk,kn->mn", matrix(rows, 640, 40), symbolic=symbolic)
    far = replace(BEST, run_bytes=1 << 30)
    choice = case.choice(far)
    choice = replace(choice, tiling=replace(choice.tiling, order="rows", block=64, group=3))
    lines, memory = harness.fetched_lines(case.node, choice, case.arrays, far)
    weights, group = memory["input"][1], 3 * 40 * 4 * choice.tiling.vectors * choice.tiling.lanes
    behind = range(weights.ctypes.data + group, weights.ctypes.data + weights.nbytes, 64)
    assert {address // 64 for address in behind} <= lines
    case.check(far, choice)


def test_weights_that_are_far_come_a_panel_after_the_other():
    """While rows that go through all panels would wait for the first of them, and then for nothing."""
    case = Case("mk,kn->mn", matrix(1000, 96, 512))
    orders = [case.choice(replace(BEST, run_bytes=n)).tiling.order for n in (0, 1 << 30)]
    assert orders == ["rows", "panels"]


# Convolutions of single pixels -------------------------------------------------------------------


@TARGETS
@pytest.mark.parametrize(
    "shape", [(1, 5, 70), (2, 33, 9, 7), (3, 16, 1, 1), (1, 4, 3, 4, 5), (1, 4, 2, 3, 2, 3)], ids=str
)
def test_convolutions_of_single_pixels(target, shape):
    _, inside, *plane = shape
    open_ = blocked_cases.symbols("n", inside, *"hwde"[: len(plane)])
    for outputs in (1, 7, 40):
        window = (outputs, inside, *[1] * len(plane))
        for symbolic in (None, open_):
            blocked_cases.check(blocked_cases.convolution(shape, window, symbolic=symbolic), gemm, target)


@TARGETS
def test_epilogues_of_single_pixels(target):
    total, shift, other = (expr.input_(k, "float32") for k in range(3))
    body, residual = (total + shift + other).maximum(0.0), blocked_cases.random(2, 9, 5, 6, seed=5)
    case = blocked_cases.convolution(
        (2, 12, 5, 6), (9, 12, 1, 1), epilogue=body, extra=[blocked_cases.bias(9), (residual, False)]
    )
    blocked_cases.check(case, gemm, target)


def test_single_pixels_of_doubles_and_with_weights_of_the_run():
    blocked_cases.check(blocked_cases.convolution((2, 12, 50), (9, 12, 1), dtype=np.float64), gemm, BEST)
    case = blocked_cases.convolution((2, 12, 5, 6), (9, 12, 1, 1))
    blocked_cases.check(replace(case, constant=()), gemm, BEST)


def test_weights_that_are_rows_are_read_as_those_in_panels_are():
    fixed = {
        outputs: choices_of(
            gemm, blocked_cases.convolution((1, 256, 8, 8), (outputs, 256, 1, 1)).node(), BEST
        )[0].cost.fixed
        for outputs in (512, 1024)
    }
    read = {outputs: costs.stored(BEST, outputs * 256 * 4).fixed for outputs in fixed}
    assert fixed[1024] - fixed[512] == pytest.approx(read[1024] - read[512], rel=0.1)


@pytest.mark.parametrize(
    "window, change",
    [
        ((8, 8, 1, 1), {"strides": (2, 1)}),
        ((8, 8, 1, 1), {"pads": (0, 1, 0, 0)}),
        ((8, 4, 1, 1), {"groups": 2}),
    ]
    + [((8, 8, 1, 1), {"narrow": True}), ((8, 8, 1, 2), {})],
    ids=str,
)
def test_what_else_convolutions_do_is_left_to_their_kernels(window, change):
    case = blocked_cases.convolution((1, 8, 6, 6), window)
    assert not choices_of(gemm, replace(case, op=replace(case.op, **change)).node(), BEST)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_single_pixels_with_weights_of_halves_are_left_to_kernels_that_pack_them(dtype):
    case = blocked_cases.convolution((1, 8, 6, 6), (8, 8, 1, 1))
    halves, plain = blocked_cases.of_halves(case, dtype)
    assert choices_of(gemm, plain, BEST) and not choices_of(gemm, halves, BEST)
