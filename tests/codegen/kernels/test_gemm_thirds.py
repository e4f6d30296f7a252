"""Products of float32 by thirds against float64: what they lose, numbers of all kinds, odd sizes; where the
machine lacks the registers, their assembly."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.stored import blocks_of

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm, gemm_stored, gemm_thirds
from onnxc.codegen.tiles import thirds
from onnxc.ir import dims, dtypes, expr
from onnxc.ir.graph import Constant, Derivation, TensorType, Value, make_node
from onnxc.ir.ops import Contract, Map
from onnxc.target import TARGETS, runs_here

TARGET = TARGETS["sapphirerapids"]
HERE = runs_here(TARGET)
ROUNDING = 2.0**-24


def contract(form, shape, weights, extra=(), body=None, halves=False):
    operands, out = form.split("->")
    lhs, rhs = operands.split(",")
    known = weights if isinstance(weights, Constant) else Constant.of(weights)
    values = [Value(TensorType("float32", shape), ""), Value(TensorType("float32", known.shape), "", known)]
    values += [Value(TensorType("float32", array.shape), "") for array in extra]
    return make_node(Contract(lhs, rhs, out, "float32", body, halves=halves), values)


def run(node, *arrays, sizes=None, target=TARGET, **tiling):
    """The result; None on a machine that has no such registers, where the code holds the instruction."""
    (choice,) = choices_of(gemm_thirds, node, target)
    choice = replace(choice, tiling=replace(choice.tiling, **tiling))
    if not HERE:
        *_, step = gemm_thirds.emit(node, choice, target).steps
        assert "tdpbf16ps" in harness.assembly(step.text, target)
        return None
    ((got, _),) = harness.run_choice(node, choice, arrays, target, sizes)
    return got


def exact(form, a, b):
    """(sums, sums of magnitudes) in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return np.einsum(form, a, b), np.einsum(form, np.abs(a), np.abs(b))


def bound(depth):
    return (22 + 6 * -(-depth // 32)) * ROUNDING


def kinds(rows, depth, seed):
    """Rows in turn of normal numbers, positive ones, of all magnitudes, near 1, tiny ones, and great ones."""
    random = np.random.default_rng(seed)
    normal, uniform = random.standard_normal((rows, depth)), random.random((rows, depth))
    wide = normal * np.exp(random.uniform(-25, 25, (rows, depth)))
    found = np.stack([normal, uniform, wide, 1 + uniform / 256, normal * 1e-37, normal * 1e15], 1)
    return found[np.arange(rows), np.arange(rows) % 6].astype(np.float32)


@pytest.mark.parametrize("depth", [64, 300])
def test_sums_lose_no_more_than_a_chain_of_multiply_adds_may(depth):
    a, b = kinds(40, depth, 1), kinds(40, depth, 2).T.copy()
    got = run(contract("mk,kn->mn", a.shape, b), a, b)
    if got is None:
        return
    sums, magnitudes = exact("mk,kn->mn", a, b)
    smallest = np.abs(a).sum(1)[:, None] + np.abs(b).sum(0) + 2 * depth  # of what is below 2^-126
    assert bound(depth) <= depth * ROUNDING
    assert (np.abs(got - sums) <= bound(depth) * magnitudes + 2.0**-124 * smallest).all()
    plain = magnitudes[::6, ::6] * ROUNDING  # of normal numbers: half a rounding on average
    assert np.sqrt(np.mean(((got - sums)[::6, ::6] / plain) ** 2)) < 0.5


@pytest.mark.parametrize(
    "rows,columns,depth", [(1, 1, 64), (17, 16, 65), (33, 33, 70), (64, 70, 96)], ids=str
)
def test_sizes_that_are_not_whole(rows, columns, depth):
    a, b = (
        kinds(rows, depth, 3)[:, ::-1].copy(),
        np.random.default_rng(4).random((depth, columns), np.float32),
    )
    got = run(contract("mk,kn->mn", a.shape, b), a, b)
    if got is not None:
        sums, magnitudes = exact("mk,kn->mn", a, b)
        assert (np.abs(got - sums) <= bound(depth) * magnitudes + 2.0**-120 * depth).all()


@pytest.mark.skipif(not HERE, reason="a processor with registers of matrices runs it")
def test_half_of_the_parts_of_many_rows_are_half_of_the_rows():
    draw = np.random.default_rng(5)
    a, b = (draw.random(shape, np.float32) + 1 for shape in ((640, 256), (256, 96)))
    node = contract("mk,kn->mn", a.shape, b)
    (choice,) = choices_of(gemm_thirds, node, TARGET)
    done = harness.first_half(node, choice, [a, b], TARGET)
    assert np.all(done[:160]) and not np.any(done[480:])


@pytest.mark.parametrize("rows,columns,depth", [(70, 100, 200), (40, 48, 64)], ids=str)
def test_sums_that_wait_while_panels_are_multiplied_by_some_steps(rows, columns, depth):
    a, b = (
        kinds(rows, depth, 9)[:, ::-1].copy(),
        np.random.default_rng(10).random((depth, columns), np.float32),
    )
    a[1, 1] = np.inf
    node = contract("mk,kn->mn", a.shape, b)
    whole, pieces = run(node, a, b), run(node, a, b, steps=1, block=2, group=2)
    if whole is not None:
        np.testing.assert_array_equal(whole, pieces)


@pytest.mark.parametrize("run_of", [1, 2, 3])
@pytest.mark.parametrize("rows,columns,depth", [(33, 40, 200), (50, 33, 96), (97, 64, 300)], ids=str)
def test_sums_that_wait_between_runs_of_steps_by_tiles_of_two_heights(rows, columns, depth, run_of):
    a, b = (
        kinds(rows, depth, 11)[:, ::-1].copy(),
        np.random.default_rng(12).random((depth, columns), np.float32),
    )
    a[rows - 1, 1] = np.inf
    node = contract("mk,kn->mn", a.shape, b)
    whole, runs = run(node, a, b, run=99), run(node, a, b, run=run_of)
    if whole is not None:
        np.testing.assert_array_equal(whole, runs)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("run_of", [1, 4])
def test_tiles_split_the_panel_of_the_next_run_as_if_it_were_split_before(run_of, halves):
    b = np.random.default_rng(16).standard_normal((300, 70)).astype(np.float16).astype(np.float32)
    node = contract("mk,kn->mn", (dims.symbol("m"), 300), b, halves=halves)
    for rows in (81, 97, 130, 200):  # three tiles to seven: it is divided among four
        a = kinds(rows, 300, 17)[:, ::-1].copy()
        whole, runs = (run(node, a, b, sizes={"m": rows}, run=steps) for steps in (99, run_of))
        if whole is not None:
            np.testing.assert_array_equal(whole, runs)


def test_a_run_of_steps_leaves_the_first_level_cache_to_the_rows_of_tile_after_tile():
    b = np.zeros((768, 768), np.float32)
    near = TARGET.facts.level1_bytes
    for halves in (False, True):
        (choice,) = choices_of(gemm_thirds, contract("mk,kn->mn", (197, 768), b, halves=halves), TARGET)
        tiling = choice.tiling
        step = (tiling.rows + tiling.vectors * tiling.lanes) * tiling.parts.count * 64
        assert tiling.run > 1 and tiling.run * step + 4096 <= near
    (alone,) = choices_of(gemm_thirds, contract("mk,kn->mn", (32, 768), b), TARGET)
    assert alone.tiling.run == alone.tiling.steps


@pytest.mark.parametrize("stored", [False, True], ids=["float32", "stored"])
def test_rows_that_only_the_run_counts(stored):
    weights = blocks_of(4, 32, 96, 32, "each")
    matrix = weights.array
    weights = weights if stored else matrix
    node = contract("mk,nk->mn", (dims.symbol("m"), 96), weights)
    for rows in (1, 4, 5, 23, 28, 29, 48, 80, 81, 90, 700):
        a = np.random.default_rng(rows).standard_normal((rows, 96), np.float32)
        got = run(node, a, matrix, sizes={"m": rows})
        if got is None:
            return
        sums, magnitudes = exact("mk,nk->mn", a, matrix)
        assert (np.abs(got - sums) <= 96 * ROUNDING * magnitudes).all()


@pytest.mark.parametrize("zero", ["each", "middle"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_row_that_is_alone_is_multiplied_as_digits(bits, zero):
    """As `gemm_stored` multiplies it, to the bit, and a number that is none makes its results none."""
    weights = blocks_of(bits, 40, 128, 32, zero)
    node = contract("mk,nk->mn", (dims.symbol("m"), 128), weights)
    (choice,) = choices_of(gemm_thirds, node, TARGET)
    assert choice.tiling.digits
    for spread in (1, 1e3, np.nan):
        a = np.random.default_rng(9).standard_normal((1, 128)).astype(np.float32)
        a[0, ::7] *= spread
        got = run(node, a, weights.array, sizes={"m": 1})
        if got is None:
            return
        ((stored,),) = (
            harness.run_choice(node, c, (a, weights.array), TARGET, {"m": 1})
            for c in choices_of(gemm_stored, node, TARGET)
        )
        np.testing.assert_array_equal(got, stored[0])


def test_few_rows_are_not_split_for_matrices():
    node = contract("mk,nk->mn", (dims.symbol("m"), 128), blocks_of(4, 40, 128, 32, "middle"))
    (choice,) = choices_of(gemm_thirds, node, TARGET)
    digits, split, _ = gemm_thirds.emit(node, choice, TARGET).steps
    parts = {m: [dims.evaluate(step.parts, {"m": m}) for step in (digits, split)] for m in (1, 4, 5)}
    assert parts == {1: [1, 0], 4: [0, 0], 5: [0, 5]}


def test_infinities_and_what_is_no_number_are_where_they_belong():
    a, b = kinds(34, 64, 5)[:, ::-1].copy(), np.random.default_rng(6).standard_normal((64, 40), np.float32)
    a[3, 5], a[7, 0], a[9, 63], a[20, 8], a[21, 9:11] = np.inf, -np.inf, np.nan, 3.4e38, (np.inf, -np.inf)
    a[33], a[33, 7] = 0, np.finfo(np.float32).max
    b[10, 39], b[11, 3] = np.nan, np.inf
    got = run(contract("mk,kn->mn", a.shape, b), a, b)
    if got is None:
        return
    with np.errstate(invalid="ignore", over="ignore"):
        sums, magnitudes = exact("mk,kn->mn", a, b)
        special = ~np.isfinite(sums)
        np.testing.assert_array_equal(got[special], sums[special].astype(np.float32))
        ordinary = magnitudes < np.finfo(np.float32).max
        near = np.abs(got - sums) <= 64 * ROUNDING * magnitudes + 2.0**-120 * 64
    assert near[ordinary].all() and ordinary[20].any()


def test_an_epilogue_outer_axes_and_weights_that_lie_otherwise():
    random = np.random.default_rng(7)
    a, b = (random.standard_normal(s, np.float32) for s in ((2, 3, 18, 66), (3, 20, 66)))
    bias = random.random(20, np.float32)
    body = expr.tanh(expr.input_(0, "float32")) * expr.input_(1, "float32")
    got = run(contract("bhmk,hnk->bmhn", a.shape, b, [bias], body), a, b, bias)
    if got is not None:
        sums, _ = exact("bhmk,hnk->bmhn", a, b)
        np.testing.assert_allclose(got, np.tanh(sums) * bias, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bits,zero", [(4, "each"), (8, "middle")])
def test_weights_that_stay_stored(bits, zero):
    weights = blocks_of(bits, 35, 70, 16, zero)
    a = np.random.default_rng(8).standard_normal((40, 70), np.float32)
    got = run(contract("mk,nk->mn", a.shape, weights), a, weights.array)
    if got is not None:
        sums, magnitudes = exact("mk,nk->mn", a, weights.array)
        assert (np.abs(got - sums) <= bound(70) * magnitudes).all()


@pytest.mark.parametrize("zero", ["each", "middle"])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("depth,block", [(96, 32), (160, 64), (384, 256), (768, 768)], ids=str)
def test_codes_are_bfloat16s_whose_sums_are_scaled_block_by_block(bits, zero, depth, block):
    weights = blocks_of(bits, 52, depth, block, zero)
    for rows in (30, 33, 97):
        a = kinds(rows, depth, 13)[:, ::-1].copy()
        node = contract("mk,nk->mn", a.shape, weights)
        (choice,) = choices_of(gemm_thirds, node, TARGET)
        assert choice.tiling.parts is thirds.ONE
        assert choice.tiling.run % choice.tiling.codes == block // 32 % choice.tiling.codes == 0
        got = run(node, a, weights.array)
        if got is None:
            return
        sums, magnitudes = exact("mk,nk->mn", a, weights.array)
        assert (np.abs(got - sums) <= bound(depth) * magnitudes + 2.0**-120 * depth).all()
        np.testing.assert_array_equal(got, run(node, a, weights.array, block=1, group=1))


def test_codes_beside_what_is_not_finite_and_rows_that_stand_for_float16():
    weights = blocks_of(4, 40, 128, 32, "each")
    a = np.random.default_rng(14).standard_normal((50, 128)).astype(np.float16).astype(np.float32)
    a[3, 5], a[7, 0], a[20, 8] = np.inf, np.nan, -np.inf
    for halves, parts in ((False, thirds.ONE), (True, thirds.ONE_OF_TWO)):
        node = contract("mk,nk->mn", a.shape, weights, halves=halves)
        (choice,) = choices_of(gemm_thirds, node, TARGET)
        assert choice.tiling.parts is parts
        got = run(node, a, weights.array)
        if got is None:
            return
        with np.errstate(invalid="ignore"):
            sums, magnitudes = exact("mk,nk->mn", a, weights.array)
            special = ~np.isfinite(sums)
            np.testing.assert_array_equal(got[special], sums[special].astype(np.float32))
            assert (np.abs(got - sums) <= bound(128) * magnitudes)[~special].all()


@pytest.mark.parametrize("block,zero", [(16, "each"), (32, "float"), (32, "beyond")])
def test_blocks_that_are_no_steps_and_zero_points_that_are_no_codes_are_decoded(block, zero):
    weights = blocks_of(4, 40, 128, block, zero)
    a = np.random.default_rng(15).standard_normal((40, 128), np.float32)
    node = contract("mk,nk->mn", a.shape, weights)
    (choice,) = choices_of(gemm_thirds, node, TARGET)
    assert choice.tiling.parts is thirds.THIRDS and not choice.tiling.codes
    got = run(node, a, weights.array)
    if got is not None:
        sums, magnitudes = exact("mk,nk->mn", a, weights.array)
        assert (np.abs(got - sums) <= bound(128) * magnitudes).all()


@pytest.mark.parametrize("depth", [200, 192])
@pytest.mark.parametrize("stored", [False, True], ids=["float32", "stored"])
def test_two_parts_of_what_stands_for_float16_lose_little_of_its_precision(stored, depth):
    random = np.random.default_rng(11)
    a = random.standard_normal((70, depth), np.float32)
    narrow = random.standard_normal((depth, 50)).astype(np.float16)
    b = narrow.astype(np.float32)
    weights = b
    if stored:
        op = Map(expr.input_(0, "float16").cast("float32"))
        weights = Constant("float32", b.shape, lambda: b)
        weights.derivation = Derivation(op, (Constant.of(narrow),))
    node = contract("mk,kn->mn", a.shape, weights, halves=True)
    (choice,) = choices_of(gemm_thirds, node, TARGET)
    assert choice.tiling.parts is thirds.TWO and (choice.tiling.form is not None) == stored
    assert choice.tiling.decodes == (stored and depth == 200)
    got = run(node, a, b)
    if got is not None:
        sums, magnitudes = exact("mk,kn->mn", a, b)
        assert (np.abs(got - sums) <= (2.0**-15 + bound(depth)) * magnitudes).all()
        exactly = run(node, a.astype(np.float16).astype(np.float32), b)
        sums, magnitudes = exact("mk,kn->mn", a.astype(np.float16), b)
        assert np.sqrt(np.mean(((exactly - sums) / magnitudes) ** 2)) < 2.0**-18
        np.testing.assert_array_equal(got, run(node, a, b, run=1))
        a[7, 3] = np.inf
        with np.errstate(invalid="ignore"):
            sums, _ = exact("mk,kn->mn", a, b)
        np.testing.assert_array_equal(run(node, a, b)[7], sums[7].astype(np.float32))


@pytest.mark.parametrize("depth", [200, 192])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_stored_as_halves_are_multiplied_without_a_loss(dtype, depth):
    a = kinds(70, depth, 18)[:, ::-1].copy()
    narrow = np.random.default_rng(19).standard_normal((depth, 50)).astype(dtypes.numpy_dtype(dtype))
    b = narrow.astype(np.float32)
    weights = Constant("float32", b.shape, lambda: b)
    weights.derivation = Derivation(Map(expr.input_(0, dtype).cast("float32")), (Constant.of(narrow),))
    node = contract("mk,kn->mn", a.shape, weights)
    (choice,) = choices_of(gemm_thirds, node, TARGET)
    parts = {"float16": thirds.THIRDS_OF_HALVES, "bfloat16": thirds.ONE}
    assert choice.tiling.parts is parts[dtype] and choice.tiling.decodes == (depth == 200)
    got = run(node, a, b)
    if got is not None:
        sums, magnitudes = exact("mk,kn->mn", a, b)
        assert (np.abs(got - sums) <= bound(depth) * magnitudes + 2.0**-120 * depth).all()
        np.testing.assert_array_equal(got, run(node, a, b, run=1))
        a[7, 3] = np.inf
        with np.errstate(invalid="ignore"):
            sums, _ = exact("mk,kn->mn", a, b)
        np.testing.assert_array_equal(run(node, a, b)[7], sums[7].astype(np.float32))


FAR = replace(TARGET, run_bytes=1 << 30)


@pytest.mark.parametrize("rows", [0, 1, 13, 40, 80, 81])
@pytest.mark.parametrize("body", ["none", "tanh"])
def test_rows_of_the_run_over_weights_that_are_far(rows, body):
    random = np.random.default_rng(rows)
    weights, a = random.standard_normal((200, 96), np.float32), random.standard_normal((rows, 96), np.float32)
    ends = {"none": None, "tanh": expr.apply("tanh", expr.input_(0, "float32"))}
    node = contract("mk,nk->mn", (dims.symbol("m"), 96), weights, body=ends[body])
    got = run(node, a, weights, sizes={"m": rows}, target=FAR)
    if got is not None:
        sums, magnitudes = exact("mk,nk->mn", a, weights)
        sums = sums if body == "none" else np.tanh(sums)
        assert (np.abs(got - sums) <= bound(96) * magnitudes + 1e-6).all()


@pytest.mark.skipif(not HERE, reason="a processor with registers of matrices runs it")
@pytest.mark.parametrize("rows", [1, 13, 40])
def test_few_rows_fetch_every_line_of_the_panels_behind_the_first(rows):
    random = np.random.default_rng(rows)
    weights, a = random.standard_normal((200, 96), np.float32), random.standard_normal((rows, 96), np.float32)
    node = contract("mk,nk->mn", (dims.symbol("m"), 96), weights)
    (choice,) = choices_of(gemm_thirds, node, FAR)
    lines, memory = harness.fetched_lines(node, choice, [a, weights], FAR, {"m": rows})
    packed, panel = memory["input"][1], 4 * 96 * choice.tiling.vectors * choice.tiling.lanes
    behind = range(packed.ctypes.data + panel, packed.ctypes.data + packed.nbytes, 64)
    assert {address // 64 for address in behind} <= lines


def test_many_rows_take_thirds_where_a_core_sustains_their_rate_and_few_do_not():
    facts = TARGET.facts
    fast = replace(TARGET, facts=replace(facts, matrix_sustained=facts.matrix_products))

    def best(m, weights, target=fast):
        node = contract("mk,nk->mn", (m, 512), weights)
        offers = [x for kernel in (gemm, gemm_stored, gemm_thirds) for x in choices_of(kernel, node, target)]
        return min(offers, key=lambda offer: offer.time).kernel

    dense = np.zeros((512, 512), np.float32)
    assert best(128, dense) is gemm_thirds and best(1, dense) is gemm
    assert best(128, dense, TARGET) is gemm
    stored = blocks_of(4, 512, 512, 32, "middle")
    assert best(128, stored) is gemm_thirds and best(1, stored) is gemm_stored


def test_short_sums_and_other_processors_have_none():
    node = contract("mk,kn->mn", (64, 63), np.zeros((63, 64), np.float32))
    assert not choices_of(gemm_thirds, node, TARGET)
    node = contract("mk,kn->mn", (64, 64), np.zeros((64, 64), np.float32))
    assert not choices_of(gemm_thirds, node, TARGETS["cooperlake"])
