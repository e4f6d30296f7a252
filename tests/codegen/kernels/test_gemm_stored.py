"""Products with weights that stay stored as codes, with scales for blocks, or as halves."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.stored import blocks_of, derived

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm, gemm_stored, loop_nest
from onnxc.codegen.tiles import gemm_tiling
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.graph import Constant, TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Contract, Map, Reshape
from onnxc.target import Ability, find_target

VNNI = [
    t
    for t in map(find_target, ("x86-64-v4+avx512vnni", "x86-64-v3+avxvnni", "aarch64+i8mm"))
    if harness.runs(t)
]
TARGETS = pytest.mark.parametrize("target", [*harness.RUNNABLE, *VNNI], ids=str)


def product(weights, rows, symbolic=False, rounded=0, bias=False, form="mk,nk->mn"):
    """(node, arrays, sizes) of `rows` rows times the weights' transpose."""
    n, k = weights.shape if form.endswith("nk->mn") else weights.shape[::-1]
    x = np.random.default_rng(rows).standard_normal((rows, k)).astype(np.float32)
    b = np.linspace(-1, 1, n, dtype=np.float32)
    lhs, (rhs, out) = form.split(",")[0], form.split(",")[1].split("->")
    m = dims.symbol("m") if symbolic else rows
    values = [Value(TensorType("float32", (m, k))), Value(TensorType("float32", weights.shape), "", weights)]
    body = expr.input_(0, "float32") + expr.input_(1, "float32") if bias else None
    values += [Value(TensorType("float32", (n,)))] * bias
    node = make_node(Contract(lhs, rhs, out, "float32", body, rounded=rounded), values)
    return node, [x, weights.array, *[b] * bias], {"m": rows} if symbolic else {}


def check(target, weights, rows, **more):
    node, arrays, sizes = product(weights, rows, **more)
    (choice,) = choices_of(gemm_stored, node, target)
    assert not choices_of(gemm, node, target)
    ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
    (expected,) = run_node(node, arrays, sizes)
    # each product is within a few roundings of the sum of magnitudes
    matrix = arrays[1] if more.get("form", "").endswith("kn->mn") else arrays[1].T
    near = 1e-6 * (np.abs(arrays[0]) @ np.abs(matrix) + 1) * 8
    if more.get("rounded"):  # where a quotient lies at a tie a step apart is as good
        near = near + 1e-6 * np.abs(expected)
    assert (np.abs(got - expected) <= near).all()
    return choice


FORMS = [(bits, zero) for bits in (2, 4, 8) for zero in ("middle", "each", "float")]


@TARGETS
@pytest.mark.parametrize("bits,zero", FORMS, ids=str)
def test_codes_in_blocks(target, bits, zero):
    check(target, blocks_of(bits, 33, 100, 16, zero), 1)
    check(target, blocks_of(bits, 40, 200, 64, zero), 3, bias=True)
    check(target, blocks_of(bits, 35, 40, 32, zero), 17)


@TARGETS
def test_half_of_the_parts_of_many_rows_are_half_of_the_rows(target):
    node, arrays, sizes = product(blocks_of(4, 96, 256, 32, "middle"), 600, symbolic=True)
    (choice,) = choices_of(gemm_stored, node, target)
    done = harness.first_half(node, choice, arrays, target, sizes)
    assert np.all(done[:150]) and not np.any(done[450:])


@pytest.mark.parametrize("depth", [1024, 2048, 3072])
def test_rows_that_are_4_kib_apart_are_few_in_a_tile(depth):
    """Their elements at one k evict each other from the first-level cache."""
    target = find_target("x86-64-v4")

    def rows(depth):
        node, _, _ = product(blocks_of(4, 64, depth, 32, "middle"), 64)
        return choices_of(gemm_stored, node, target)[0].tiling.rows

    assert rows(depth) <= gemm_tiling.SHARED_SET < rows(depth + 32)


@TARGETS
@pytest.mark.parametrize("bits,zero", FORMS[::2], ids=str)
def test_rows_rounded_to_bytes(target, bits, zero):
    check(target, blocks_of(bits, 33, 100, 16, zero), 1, rounded=16)
    check(target, blocks_of(bits, 40, 200, 128, zero), 3, rounded=128, bias=True)
    check(target, blocks_of(bits, 35, 40, 32, zero), 17, rounded=32)


@TARGETS
def test_few_weights_and_blocks_that_do_not_agree(target):
    check(target, blocks_of(4, 2, 5, 16, "middle"), 2)
    check(target, blocks_of(4, 2, 5, 16, "each"), 2, rounded=16)
    check(target, blocks_of(4, 20, 64, 16, "middle"), 4, rounded=32)
    check(target, blocks_of(4, 20, 64, 16, "middle"), 0, rounded=16, symbolic=True)


@TARGETS
@pytest.mark.parametrize("rounded", [0, 32])
def test_rows_that_only_the_run_knows(target, rounded):
    weights = blocks_of(4, 50, 72, 32, "middle")
    for rows in (1, 5, 9, 30):
        check(target, weights, rows, symbolic=True, rounded=rounded)


@TARGETS
@pytest.mark.parametrize("rounded", [0, 32])
def test_one_zero_point_that_lies_between_integers(target, rounded):
    rng = np.random.default_rng(7)
    codes = Constant.of(rng.integers(0, 16, (33, 3, 32)).astype(dtypes.numpy_dtype("uint4")))
    scale = Constant.of(rng.uniform(0.01, 0.1, (33, 3, 1)).astype(np.float32))
    body = (expr.input_(0, "uint4").cast("float32") - 7.5) * expr.input_(1, "float32")
    weights = derived(Reshape((33, 96)), derived(Map(body), codes, scale))
    check(target, weights, 1, rounded=rounded)


@pytest.mark.parametrize("bits", [4, 8])
def test_scales_that_are_a_fifth_of_what_is_read_are_fetched_ahead_as_well(bits):
    far = replace(find_target("x86-64-v4+avx512vnni"), run_bytes=1 << 30)
    node, *_ = product(blocks_of(bits, 128, 256, 32, "middle"), 1)
    (choice,) = choices_of(gemm_stored, node, far)
    text, form = gemm_stored.emit(node, choice, far).steps[-1].text, choice.tiling.form
    width = choice.tiling.vectors * choice.tiling.lanes
    fetched = form.block_bytes(width) if bits == 4 else form.group_bytes(width)  # of 8 bits in a loop
    assert 64 * text.count("call void @llvm.prefetch") == fetched


def row_product(target, weights, row):
    """What the product of a row with the weights' transpose is on a target."""
    node, (_, matrix), _ = product(weights, 1)
    (choice,) = choices_of(gemm_stored, node, target)
    ((got, _),) = harness.run_choice(node, choice, [row, matrix], target, {})
    return choice, got[0], matrix


@TARGETS
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ["middle", "each"])
@pytest.mark.parametrize("spread", [1, 1e3, 1e6, 1e12])
def test_a_row_keeps_the_digits_of_its_numbers(target, bits, zero, spread):
    """However far they are apart: a sum loses what float32 would, and 2^-30 of a block's greatest."""
    weights = blocks_of(bits, 40, 96, 32, zero)
    rng = np.random.default_rng(int(spread))
    row = (rng.standard_normal((1, 96)) * spread ** rng.uniform(-1, 1, 96)).astype(np.float32)
    _, got, matrix = row_product(target, weights, row)
    exact = row.astype(np.float64) @ matrix.T.astype(np.float64)
    terms = (np.abs(row) @ np.abs(matrix.T)).astype(np.float64)
    greatest = np.repeat(np.abs(row).reshape(3, 32).max(1), 32)
    lost = 2.0**-21 * terms + 2.0**-30 * (greatest @ np.abs(matrix.T))
    assert (np.abs(got - exact) <= lost + 2.0**-120).all()


@TARGETS
@pytest.mark.parametrize("terms", [2, 3, 7, 9, 10, 12, 15, 18])
def test_a_block_that_fills_no_vector(target, terms):
    """A row by itself as digits, or rounded, where the greatest number is that of a few lanes."""
    weights = blocks_of(4, 40, terms, 32, "middle")
    for rows in (1, 3):
        for rounded in (0, 32, terms):
            check(target, weights, rows, symbolic=True, rounded=rounded)


@TARGETS
def test_a_row_of_numbers_at_the_ends_of_their_range(target):
    weights = blocks_of(4, 20, 128, 32, "middle")
    row = np.zeros((1, 128), np.float32)
    _, got, matrix = row_product(target, weights, row)
    assert (got == 0).all()
    row[0, 32:64], row[0, 64:96] = 2.0**120, 2.0**-120
    row[0, ::2] *= -1
    _, got, _ = row_product(target, weights, row)
    np.testing.assert_allclose(got, (row.astype(np.float64) @ matrix.T)[0], rtol=1e-5)
    row[0, 32:64] = 0
    _, got, _ = row_product(target, weights, row)
    np.testing.assert_allclose(got, (row.astype(np.float64) @ matrix.T)[0], rtol=1e-5)


@TARGETS
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_reaches_every_result(target, number):
    weights, row = blocks_of(4, 20, 70, 32, "each"), np.ones((1, 70), np.float32)
    row[0, 40] = number
    _, got, _ = row_product(target, weights, row)
    assert not np.isfinite(got).any()


@TARGETS
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_row_by_itself_is_multiplied_as_digits(target, bits):
    """In short blocks, where the target has dot products of bytes, or adds pairs of products in 16 bits,
    which those of codes of less than 8 bits do not leave."""
    multiplied = target.dot("int8", "uint8", "int32", pairs=bits < 8) is not None
    for block in (32, 512):
        choice = check(target, blocks_of(bits, 40, 512, block, "middle"), 1)
        assert choice.tiling.digits == (block == 32 and multiplied)
    assert not check(target, blocks_of(bits, 40, 64, 32, "middle"), 2).tiling.digits


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("form", ["mk,nk->mn", "mk,kn->mn"])
def test_halves_with_and_without_scales(target, dtype, form):
    rng = np.random.default_rng(3)
    shape = (37, 70) if form.endswith("nk->mn") else (70, 37)
    stored = Constant.of(rng.standard_normal(shape).astype(dtypes.numpy_dtype(dtype)))
    wide = derived(Map(expr.input_(0, dtype).cast("float32")), stored)
    if dtype == "float16" and Ability.CONVERT_HALF not in target.abilities:
        assert choices_of(gemm, product(wide, 1, form=form)[0], target)
        return
    check(target, wide, 1, form=form)
    axis = (37, 1) if form.endswith("nk->mn") else (1, 37)
    factors = Constant.of(rng.uniform(1, 2, axis).astype(np.float32))
    scaled = derived(Map(expr.input_(0, "float32") * expr.input_(1, "float32")), wide, factors)
    check(target, scaled, 20, form=form)


@TARGETS
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_many_rows_read_the_numbers_of_halves_that_the_first_tile_makes(target, dtype):
    """Which are those of a product with numbers: the same sums, in one order."""
    rng = np.random.default_rng(5)
    stored = Constant.of(rng.standard_normal((70, 71)).astype(dtypes.numpy_dtype(dtype)))
    wide = derived(Map(expr.input_(0, dtype).cast("float32")), stored)
    for rows, symbolic in ((40, False), (61, True)):
        node, arrays, sizes = product(wide, rows, symbolic, bias=True)
        if not choices_of(gemm_stored, node, target):
            assert dtype == "float16" and Ability.CONVERT_HALF not in target.abilities
            continue
        choice = check(target, wide, rows, symbolic=symbolic, bias=True)
        assert "decode" not in gemm_stored.emit(node, choice, target).steps[-1].text
        ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
        plain, *_ = product(Constant.of(wide.array), rows, symbolic, bias=True)
        ((expected, _),) = harness.run_choice(
            plain, choices_of(gemm, plain, target)[0], arrays, target, sizes
        )
        assert (got == expected).all()


@TARGETS
def test_tiles_read_no_more_rows_than_a_set_of_the_cache_holds(target):
    for terms, most in ((1024, 8), (1536, 16)):
        stored = Constant.of(np.zeros((terms, 48), dtypes.numpy_dtype("bfloat16")))
        wide = derived(Map(expr.input_(0, "bfloat16").cast("float32")), stored)
        node, *_ = product(wide, 96, form="mk,kn->mn")
        (choice,) = choices_of(gemm_stored, node, target)
        assert choice.tiling.rows <= most


@TARGETS
def test_codes_by_a_table_of_their_numbers(target):
    """Where vectors are not permuted the product is that of the numbers."""
    codes = Constant.of(
        np.random.default_rng(4).integers(0, 16, (20, 3, 16)).astype(dtypes.numpy_dtype("uint4"))
    )
    scale = Constant.of(np.full((20, 3, 1), 0.5, np.float32))
    code = expr.input_(0, "uint4").cast("float32")
    wide = derived(Map(code * code * expr.input_(1, "float32")), codes, scale)
    weights = derived(Reshape((20, 48)), wide)
    node, *_ = product(weights, 2)
    if choices_of(gemm_stored, node, target):
        check(target, weights, 2)
    else:
        assert choices_of(gemm, node, target)


@TARGETS
def test_columns_that_share_a_scale_are_left_to_others(target):
    """A sum of one term has blocks that several columns are in."""
    codes = Constant.of(np.arange(48, dtype=np.int8).reshape(3, 16))
    scale = Constant.of(np.array([[0.5], [1], [2]], np.float32))
    wide = derived(Map(expr.input_(0, "int8").cast("float32") * expr.input_(1, "float32")), codes, scale)
    node, *_ = product(derived(Reshape((48, 1)), wide), 2)
    assert not choices_of(gemm_stored, node, target)
    assert choices_of(gemm, node, target)


def test_an_open_batch_takes_of_tiles_that_suit_one_row_one_that_suits_many():
    target, weights = find_target("sapphirerapids"), blocks_of(4, 2048, 8192, 32, "middle")
    chosen = []
    for m in (1, dims.symbol("m", typical=1)):
        values = [
            Value(TensorType("float32", (m, 8192))),
            Value(TensorType("float32", weights.shape), "", weights),
        ]
        node = make_node(Contract("mk", "nk", "mn", "float32"), values)
        (choice,) = choices_of(gemm_stored, node, target)
        chosen.append(choice)
    alone, batch = chosen
    assert batch.time <= 1.05 * alone.time
    assert batch.tiling.vectors < alone.tiling.vectors


@pytest.mark.parametrize("n, k", [(0, 1), (0, 64), (3, 0)])
@pytest.mark.parametrize("zero", ["middle", "each"])
@TARGETS
def test_weights_without_elements_are_left_to_other_kernels(target, n, k, zero):
    node, _, _ = product(blocks_of(8, n, k, 32, zero), 2)
    assert not choices_of(gemm_stored, node, target)
    assert choices_of(loop_nest, node, target)
