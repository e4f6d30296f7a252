"""Attention against the interpreter: orders of axes, lengths, biases and masks, targets."""

from dataclasses import replace

import numpy as np
import pytest
from support import harness
from support.harness import BEST, TARGETS
from support.repeated import check_every_kernel

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import attention
from onnxc.ir import dims, dtypes
from onnxc.ir.graph import TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Attention
from onnxc.target import LEVELS

HEADS_INSIDE = ("bqhd", "bkhd", "bkhe", "bqhe")  # as a projection writes them, nothing transposed


class Case:
    """An Attention; `bias` are its axes as letters of "bhqk", in capitals where it repeats."""

    def __init__(
        self,
        queries,
        keys,
        depth=16,
        extent=None,
        forms=(),
        scale=0.25,
        bias=None,
        symbolic="",
        batch=(2, 3),
        masked=0.0,
        magnitude=1.0,
        dtype="float32",
        defined=False,
        stored=None,
    ):
        op = Attention(scale, *forms, defined=defined)
        self.sizes = {"b": batch[0], "h": batch[1], "q": queries, "k": keys, "d": depth, "e": extent or depth}
        random = np.random.default_rng([queries, keys, depth])
        shapes = ["".join(labels) for labels in (op.q, op.k, op.v)]
        shapes += [bias] if bias is not None else []
        self.arrays, values = [], []
        for labels in shapes:
            sizes = [1 if x.isupper() else self.sizes[x] for x in labels]
            type_ = stored if stored and len(values) in (1, 2) else dtype  # of keys and values
            numbers = random.standard_normal(sizes) * magnitude
            self.arrays.append(numbers.astype(dtypes.numpy_dtype(type_)))
            shape = tuple(dims.symbol(x) if x in symbolic else n for x, n in zip(labels, sizes))
            values.append(Value(TensorType(type_, shape)))
        if masked:
            self.arrays[3][random.random(self.arrays[3].shape) < masked] = -np.inf
        self.node = make_node(op, values)

    def choice(self, target=BEST):
        choices = choices_of(attention, self.node, target)
        return choices[0] if choices else None

    def check(self, target=BEST):
        ((got, _),) = harness.run_choice(self.node, self.choice(target), self.arrays, target, self.sizes)
        with np.errstate(all="ignore"):
            (expected,) = run_node(self.node, self.arrays, dict(self.sizes))
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=3e-5, atol=3e-6)


@TARGETS
@pytest.mark.parametrize("queries", [1, 2, 3, 5, 13, 14, 16, 29])
@pytest.mark.parametrize("keys", [1, 7, 16, 33, 70])
def test_any_number_of_queries_and_keys(target, queries, keys):
    Case(queries, keys).check(target)


@TARGETS
@pytest.mark.parametrize("queries", [1, 2, 3, 8, 17])
@pytest.mark.parametrize("keys", [1, 31, 100])
def test_lengths_that_only_the_run_knows(target, queries, keys):
    Case(queries, keys, symbolic="qk").check(target)


@TARGETS
@pytest.mark.parametrize("symbolic", ["", "qk", "bh"])
@pytest.mark.parametrize("queries", [1, 2, 100])
def test_many_keys_are_taken_block_by_block(target, queries, symbolic):
    Case(queries, 1100, symbolic=symbolic, batch=(1, 2)).check(target)


def test_many_queries_make_many_parts():
    case = Case(300, 20, batch=(1, 2))
    (step,) = attention.emit(case.node, case.choice(), BEST).steps
    assert step.parts > 4
    case.check()


@TARGETS
@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
@pytest.mark.parametrize("symbolic", ["", "qk"])
@pytest.mark.parametrize("queries", [1, 2, 5, 70])
@pytest.mark.parametrize("keys, depth, extent", [(33, 17, 20), (600, 64, 80), (1, 16, 1)])
def test_keys_and_values_may_be_stored_in_halves(target, stored, symbolic, queries, keys, depth, extent):
    for forms in ((), HEADS_INSIDE):
        case = Case(queries, keys, depth, extent, forms, bias="BHqk", symbolic=symbolic, stored=stored)
        case.check(target)


def test_keys_in_halves_that_lie_apart_are_left_to_others():
    forms = ("bhqd", "bhdk", "bhke", "bhqe")
    assert Case(3, 20, forms=forms).choice() is not None
    assert Case(3, 20, forms=forms, stored="float16").choice() is None


@TARGETS
@pytest.mark.parametrize("symbolic", ["", "qk"])
@pytest.mark.parametrize("queries, keys, extent", [(64, 37, 20), (70, 600, 64), (99, 1100, 7)])
def test_many_queries_read_values_that_lie_apart_from_copies(target, queries, keys, extent, symbolic):
    case = Case(queries, keys, 16, extent, forms=HEADS_INSIDE, symbolic=symbolic, batch=(1, 2))
    few = Case(16, keys, 16, extent, forms=HEADS_INSIDE, batch=(1, 2))
    assert attention.shape_of(case.node).copied and not attention.shape_of(few.node).copied
    case.check(target)


def test_queries_that_only_the_run_knows_may_be_few_over_values_that_lie_apart():
    for queries in (1, 2, 3):
        Case(queries, 700, forms=HEADS_INSIDE, symbolic="qk").check()


@pytest.mark.parametrize("depth, keys", [(16, 512), (96, 256), (256, 128), (1024, 128)])
def test_blocks_leave_half_of_the_second_level_cache(depth, keys):
    target = replace(BEST, facts=replace(BEST.facts, level2_bytes=1 << 19))
    assert Case(9, 2000, depth).choice(target).tiling.block == keys


@TARGETS
@pytest.mark.parametrize("bias", [None, "BHqk"])
def test_rows_of_one_element_have_the_same_bits_in_any_cut(target, bias):
    case = Case(300, 700, forms=HEADS_INSIDE, batch=(1, 2), bias=bias)
    if bias:  # causal
        case.arrays[3][...] = np.where(np.tri(300, 700, 400), 0, -np.inf)
    prepared = harness.Prepared(case.node, case.choice(target), case.arrays, target, case.sizes)
    whole = None
    for split in (1, 2, 3, 5, prepared.calls[0].parts):
        prepared.outputs[0][:] = 255
        assert prepared.run(split) is None
        whole = whole or prepared.outputs[0].tobytes()
        assert prepared.outputs[0].tobytes() == whole


@TARGETS
@pytest.mark.parametrize(
    "depth, extent", [(1, 1), (3, 5), (32, 32), (40, 24), (64, 64), (80, 80), (128, 128), (17, 200)]
)
@pytest.mark.parametrize("queries", [1, 9])
def test_heads_of_any_depth_and_extent(target, depth, extent, queries):
    Case(queries, 37, depth, extent, batch=(1, 2)).check(target)


@TARGETS
@pytest.mark.parametrize("extent", [20, 40, 72])
@pytest.mark.parametrize("queries", [4, 20])
def test_the_last_vector_of_a_row_joins_those_before_it(target, extent, queries):
    Case(queries, 300, 16, extent, batch=(1, 2)).check(target)
    Case(queries, 600, 16, extent, batch=(1, 2)).check(target)


@TARGETS
@pytest.mark.parametrize(
    "forms",
    [
        HEADS_INSIDE,
        ("bhqd", "bhdk", "bhke", "bqhe"),
        ("qbhd", "kbhd", "kbhe", "qbhe"),
        ("bhdq", "bhkd", "bhke", "bhqe"),
        ("hqd", "hkd", "hke", "qhe"),
        ("bhqd", "bkd", "bke", "bhqe"),
        ("qd", "kd", "ke", "qe"),
    ],
    ids=",".join,
)
@pytest.mark.parametrize("queries", [2, 20])
def test_any_order_of_axes(target, forms, queries):
    Case(queries, 45, 24, forms=forms).check(target)
    Case(queries, 45, 24, forms=forms, symbolic="bqk").check(target)


@TARGETS
@pytest.mark.parametrize("bias", ["bhqk", "BHqk", "bHQk", "qk", "k", "", "bhqK", "BHQK", "BhQk"])
@pytest.mark.parametrize("queries", [2, 11])
def test_a_bias_broadcasts(target, bias, queries):
    Case(queries, 21, bias=bias).check(target)


@pytest.mark.parametrize("bias", ["bhqk", "bHQk", "qk", "BHqk"])
@pytest.mark.parametrize("keys", [21, 700])
def test_a_bias_of_the_run_broadcasts(bias, keys):
    Case(11, keys, bias=bias, symbolic="bqk").check()


@TARGETS
@pytest.mark.parametrize("biases", ["k", "K"])
@pytest.mark.parametrize("keys", [21, 700])
@pytest.mark.parametrize("queries", [1, 11])
def test_only_the_run_knows_whether_a_bias_repeats_along_the_keys(target, biases, keys, queries):
    case = Case(queries, keys, bias=f"hq{biases}", symbolic="qk")
    *operands, bias = case.node.inputs
    bias = Value(TensorType("float32", (*bias.shape[:-1], dims.symbol("n"))))
    case.node = make_node(case.node.op, [*operands, bias])
    case.sizes["n"] = case.arrays[3].shape[-1]
    case.check(target)


@TARGETS
@pytest.mark.parametrize("keys", [21, 700])
@pytest.mark.parametrize("queries", [1, 30])
def test_masked_keys_count_for_nothing(target, keys, queries):
    Case(queries, keys, bias="BHqk", masked=0.5).check(target)


@pytest.mark.parametrize("keys", [40, 1300])
def test_a_row_that_is_masked_altogether_is_nan_as_in_softmax(keys):
    case = Case(3, keys, bias="qk")
    case.arrays[3][1, :] = -np.inf
    case.arrays[3][2, :600] = -np.inf  # a whole block, or the row
    case.check()


@TARGETS
@pytest.mark.parametrize("keys, symbolic", [(40, ""), (40, "k"), (1300, "")])
@pytest.mark.parametrize("queries", [1, 5])
def test_weights_that_are_no_numbers_are_zeros_where_the_op_says_so(target, keys, symbolic, queries):
    case = Case(queries, keys, bias="hqk", symbolic=symbolic, batch=(1, 4), defined=True)
    case.arrays[3][0, 0, :] = -np.inf
    case.arrays[3][1, 0, : keys - 3] = -np.inf
    case.arrays[3][2, 0, keys // 2] = np.nan
    case.arrays[3][3, 0, 2] = np.inf
    case.check(target)


#: Which keys a query does not see, of a mask over queries q and keys k.
MASKS = {
    "later": lambda q, k: k > q + 3,
    "window": lambda q, k: (k > q + 40) | (k < q - 20),
    "far window": lambda q, k: (k < 600) | (k > 640),
    "padding": lambda q, k: k >= 77,
    "gap": lambda q, k: (k >= 10) & (k < 1090),
    "rows that see nothing": lambda q, k: (q % 5 == 2) | (k > 80),
}


def hide(case, name, number):
    q, k = np.arange(case.sizes["q"])[:, None], np.arange(case.sizes["k"])
    case.arrays[3][np.broadcast_to(MASKS[name](q, k), case.arrays[3].shape)] = number
    return case


@TARGETS
@pytest.mark.parametrize("number", [np.finfo(np.float32).min, -np.inf, -1e30], ids=str)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("keys, symbolic", [(100, ""), (100, "qk"), (1100, "")])
def test_keys_that_a_mask_hides(target, name, number, keys, symbolic):
    for queries in (2, 120):
        hide(Case(queries, keys, bias="BHqk", symbolic=symbolic, batch=(1, 2)), name, number).check(target)


@pytest.mark.parametrize("bias", ["bHQk", "BHqk"])
@pytest.mark.parametrize("keys", [100, 1100])
@pytest.mark.parametrize("queries", [1, 30])
def test_keys_that_no_row_sees_are_not_looked_at(bias, keys, queries):
    case = hide(Case(queries, keys, bias=bias), "padding", -np.inf)
    expected = run_node(case.node, case.arrays, dict(case.sizes))[0]
    for operand in case.arrays[1:3]:
        operand[:, :, 80:] = np.nan
    ((got, _),) = harness.run_choice(case.node, case.choice(), case.arrays, BEST, case.sizes)
    np.testing.assert_allclose(got, expected, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("symbolic", ["", "k"])
@pytest.mark.parametrize("queries", [1, 5])
def test_no_keys_give_zeros(symbolic, queries):
    Case(queries, 0, symbolic=symbolic).check()


def test_no_queries_give_nothing():
    Case(0, 5).check()
    Case(0, 5, symbolic="q").check()


@TARGETS
@pytest.mark.parametrize("scale", [1.0, -0.5, 0.0])
@pytest.mark.parametrize("keys", [30, 900])
def test_scores_are_multiplied_by_any_scale(target, scale, keys):
    Case(4, keys, scale=scale).check(target)


@pytest.mark.parametrize("keys", [30, 900])
def test_large_scores_do_not_overflow(keys):
    Case(6, keys, magnitude=40.0, scale=1.0).check()


@TARGETS
@pytest.mark.parametrize("keys", [37, 1100])
@pytest.mark.parametrize("magnitude, scale", [(1e4, 3e3), (1e6, 0.3), (1e9, 1e-5)])
def test_scores_whose_scaled_difference_from_the_greatest_would_be_lost(target, keys, magnitude, scale):
    Case(5, keys, magnitude=magnitude, scale=scale, batch=(1, 2)).check(target)


def test_what_is_not_a_number_shows():
    case = Case(6, 30, batch=(1, 1))
    case.arrays[0][0, 0, 2, 3] = np.nan
    case.check()


@pytest.mark.parametrize(
    "case",
    [
        Case(4, 4, dtype="float16"),
        Case(4, 4, symbolic="d"),
        Case(4, 4, forms=("bhqd", "bhkd", "bhek", "bhqe")),
    ],
)
def test_what_it_does_not_do_is_left_to_others(case):
    assert case.choice() is None


@pytest.mark.parametrize("target", LEVELS.values(), ids=str)
def test_every_target_gets_code(target):
    case = Case(4, 4, bias="qk", symbolic="qk")
    (step,) = attention.emit(case.node, case.choice(target), target).steps
    assert "KERNEL" in harness.assembly(step.text, target)


@TARGETS
@pytest.mark.parametrize("given", [(1, 3), (3, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("form", [("bhqd", "bhkd", "bhke", "bhqe"), HEADS_INSIDE], ids=str)
def test_every_kernel_repeats_operands_that_the_run_finds_to_be_one(target, form, given):
    sizes = {"h": 2, "q": 3, "k": 20, "d": 16, "e": 16}
    batches = dict(zip("xyz", (*given, given[1])))
    check_every_kernel(Attention(0.25, *form, repeated="b"), form[:3], sizes, batches, target, 3e-5)
