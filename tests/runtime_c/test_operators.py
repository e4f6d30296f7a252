"""Operators written in C compute what their numpy twins do, for every element type."""

from __future__ import annotations

import re
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.handmade_models import HERE, build

from onnxc.codegen.abi import ERRORS
from onnxc.codegen.library.interface import LibraryDescription, LoweredDescription, Port
from onnxc.errors import RunError
from onnxc.frontend import text_tables
from onnxc.frontend.automaton import regex_automaton
from onnxc.ir import dtypes
from onnxc.ir.runtime_twins import TWINS, InterpretError
from onnxc.ir.text_twins import decoded, encoded
from onnxc.loading.loader import load

NUMBER = dtypes.NUMBERS
SYMBOLS = (
    "nonzero",
    "unique",
    "non_max_suppression",
    "dynamic_time_warping",
    "sequence_construct",
    "sequence_empty",
    "sequence_at",
    "sequence_length",
    "sequence_insert",
    "sequence_erase",
    "concat_from_sequence",
    "split_to_sequence",
    "optional",
    "optional_get_element",
    "optional_has_element",
    "roi_align",
    "max_roi_pool",
    "fourier",
    "determinant",
    "inverse",
    "rank_of",
    "elements_of",
    "with_any_rank",
    "with_rank",
    "with_leading_ones",
    "numbers_to_strings",
    "strings_to_numbers",
    "strings_equal",
    "hash_strings",
    "strings_joined",
    "split_strings",
    "normalize_strings",
    "match_strings",
    "tokenize_strings",
    "find_integers",
    "find_strings",
    "count_ngrams",
    "class_probabilities",
    "zip_map",
    "map_parts",
)
TENSORS, SEQUENCE, OPTIONAL = "abcdef", "s", "o"
ANY = {"dtype": None, "shape": None}
OPERATORS = LibraryDescription(
    prefix="operators",
    name="operators",
    version="test",
    inputs=(
        Port("program", "int64", (None,)),
        *(Port(name, **ANY, optional=True) for name in TENSORS),
        Port(SEQUENCE, **ANY, kind="sequence", optional=True),
        Port(OPTIONAL, **ANY, kind="optional", optional=True),
    ),
    outputs=tuple(Port(f"r{k}", **ANY) for k in range(4)),
    lowered=(
        LoweredDescription(
            target="test", slot_count=8, scratch_bytes=64, node_names=("node 'op'",), operators=SYMBOLS
        ),
    ),
)
RESULTS = {"unique": 4, "split_strings": 2}
NUMBERS = [t for t in dtypes.ALL if t != "string"]


class Runner:
    """Calls operators: tensors in the order of the operands, a list is the sequence, a tuple (x,) or ()
    the optional, None an operand left out."""

    def __init__(self, path):
        self.model = load(path, threads=1)

    def __call__(self, symbol: str, *operands, attributes=()):
        feeds, places = {}, []
        for operand in operands:
            name = (
                SEQUENCE
                if isinstance(operand, list)
                else OPTIONAL
                if isinstance(operand, tuple)
                else next(name for name in TENSORS if name not in feeds)
            )
            feeds[name] = (operand or (None,))[0] if isinstance(operand, tuple) else operand
            places.append(1 + (TENSORS + SEQUENCE + OPTIONAL).index(name))
        count = RESULTS.get(symbol, 1)
        program = [SYMBOLS.index(symbol), len(operands), *places, count, *range(count), *attributes]
        results = self.model.run(None, {"program": np.array(program, np.int64), **feeds})
        return results[:count]

    def repeat(self, sequence: list, value: np.ndarray, times: int) -> list:
        program = np.array([-1, 0, SYMBOLS.index("sequence_insert"), times], np.int64)
        return self.model.run(["r0"], {"program": program, "s": sequence, "a": value})[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return Runner(build(tmp_path_factory.mktemp("operators"), HERE / "operators.c", OPERATORS))


@pytest.fixture(autouse=True, scope="module")
def warm_bfloat16():
    assert ml_dtypes.bfloat16  # registers the types with numpy


def same(got: object, wanted: object) -> None:
    if isinstance(wanted, list):
        assert isinstance(got, list) and len(got) == len(wanted)
        for g, w in zip(got, wanted):
            same(g, w)
        return
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_array_equal(got, wanted)


def refused(run, status: str, symbol: str, *operands, attributes=(), says="") -> None:
    with pytest.raises(RunError, match=f"node 'op'.*{re.escape(says)}") as caught:
        run(symbol, *operands, attributes=attributes)
    assert caught.value.status == ERRORS[status], str(caught.value)
    same(run("nonzero", np.array([0.0, 1.0])), [np.array([[1]], np.int64)])


def values_of(dtype: str, shape: tuple[int, ...], seed: int = 0, special: bool = True) -> np.ndarray:
    """Few distinct values, zeros of both signs and NaNs among them where the type has them."""
    random = np.random.default_rng(seed)
    numbers = random.integers(-1 if dtypes.is_float(dtype) or dtypes.is_signed(dtype) else 0, 2, shape)
    x = numbers.astype(np.float32).astype(dtypes.numpy_dtype(dtype))
    if (
        special
        and (dtypes.is_float(dtype) or dtype in dtypes.COMPLEX)
        and dtype != "float8e8m0"
        and dtypes.bits(dtype) >= 8
    ):
        x[random.random(shape) < 0.2] = np.nan
        if not dtype.endswith("fnuz"):
            x[random.random(shape) < 0.2] = -0.0
    return x


def test_every_operator_that_the_compiler_calls_is_here():
    assert set(SYMBOLS) == set(TWINS) - {"decode_image"}  # in the runtime of models that decode


# NonZero, Unique ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
def test_nonzero_of_every_type(run, dtype):
    for shape in ((), (0,), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 4, 5)):
        x = values_of(dtype, shape) if shape else values_of(dtype, (1,)).reshape(())
        wide = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
        same(run("nonzero", x), TWINS["nonzero"]([wide], []))


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
@pytest.mark.parametrize(
    "shape", [(400, 1), (3, 1, 50), (6, 70, 1), (90, 3), (2, 5, 7, 3, 1), (40, 31), (40, 33)]
)
@pytest.mark.parametrize("dtype", ["bool", "float16", "int32", "float64", "complex128"])
def test_positions_in_short_and_long_rows(run, dtype, shape, share):
    x = (np.random.default_rng(0).random(shape) < share).astype(dtype)
    same(run("nonzero", x), [np.stack(np.nonzero(x))])


@pytest.mark.parametrize("dtype", [t for t in NUMBERS if t not in dtypes.COMPLEX])
@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique_elements_of_every_type(run, dtype, is_sorted):
    for shape in ((0,), (1,), (50,), (4, 9)):
        x = values_of(dtype, shape)
        wide = x.astype(np.float64)
        y, *places = TWINS["unique"]([wide], [-1, is_sorted])
        got = run("unique", x, attributes=(-1, is_sorted))
        same([got[0].astype(np.float64), *got[1:]], [y, *places])
        assert got[0].dtype == x.dtype


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique_slices_along_every_axis(run, is_sorted):
    for shape in ((6,), (4, 2), (2, 6, 1), (3, 0), (1, 1, 9), (2, 2, 2, 5)):
        x = values_of("int32", shape, seed=len(shape))
        for axis in range(len(shape)):
            if 0 in shape and shape[axis]:
                continue  # numpy cannot compare slices of nothing
            same(run("unique", x, attributes=(axis, is_sorted)), TWINS["unique"]([x], [axis, is_sorted]))


def test_unique_orders_64_bit_integers_exactly_and_complex_by_parts(run):
    big = np.array([2**62 + 1, 2**62, 2**62 + 1, -(2**62)], np.int64)
    same(run("unique", big, attributes=(-1, 1)), TWINS["unique"]([big], [-1, 1]))
    pairs = np.array([1 + 2j, 1 + 1j, 0 + 5j, 1 + 2j], np.complex64)
    same(run("unique", pairs, attributes=(-1, 1)), TWINS["unique"]([pairs], [-1, 1]))


def test_unique_strings_own_their_characters(run):
    x = np.array(["b", "", "ä", "b", "aa", ""], object)
    y, first, inverse, counts = run("unique", x, attributes=(-1, 1))
    assert list(y) == ["", "aa", "b", "ä"]
    assert (list(first), list(inverse), list(counts)) == ([1, 4, 0, 2], [2, 0, 3, 2, 1, 0], [2, 1, 2, 1])


@settings(deadline=None, max_examples=60)
@given(
    x=hnp.arrays(
        np.float32,
        hnp.array_shapes(max_dims=2, max_side=20),
        elements=st.sampled_from([0.0, -0.0, 1.0, -1.5, np.nan, np.inf]),
    ),
    is_sorted=st.integers(0, 1),
)
def test_unique_of_any_floats(run, x, is_sorted):
    same(run("unique", x, attributes=(-1, is_sorted)), TWINS["unique"]([x], [-1, is_sorted]))


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique_of_many_distinct_numbers(run, is_sorted):
    draws = np.random.default_rng(1).integers(-900, 900, 3000)
    for x in (draws, draws << 52, np.where(draws % 9 == 0, np.nan, draws.astype(np.float32) / 8)):
        same(run("unique", x, attributes=(-1, is_sorted)), TWINS["unique"]([x], [-1, is_sorted]))


# NonMaxSuppression ------------------------------------------------------------------------------------


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1, 0), (1, 1, 1), (2, 3, 40), (1, 5, 100)])
def test_non_max_suppression(run, centred, shape):
    batches, _, count = shape
    random = np.random.default_rng(count)
    boxes = random.random((batches, count, 4), np.float32)
    scores = random.integers(0, 9, shape).astype(np.float32)  # ties go to the lower number
    limits = ((0, 0.5, 0), (3, 0.3, 2.5), (1000, 0.0, -np.inf), (1000, 1.0, 8), (5, 0.5, 4))
    for most, overlap, least in limits:
        operands = [boxes, scores, np.int64(most), np.float32(overlap), np.float32(least)]
        same(
            run("non_max_suppression", *operands, attributes=(centred,)),
            TWINS["non_max_suppression"]([*map(np.asarray, operands)], [centred]),
        )


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (7, 1), (5, 8), (9, 9), (0, 3), (3, 0)])
def test_dynamic_time_warping(run, shape):
    costs = (
        np.random.default_rng(sum(shape)).integers(-2, 5, shape).astype(np.float32)
    )  # sums are often equal
    same(run("dynamic_time_warping", costs), TWINS["dynamic_time_warping"]([costs], []))


@pytest.mark.parametrize("shape", [(0, 2**40), (2**40, 0)])
def test_there_is_no_way_through_a_matrix_without_cells(run, shape):
    same(run("dynamic_time_warping", np.zeros(shape, np.float32)), [np.zeros((2, 0), np.int32)])


# Sequences --------------------------------------------------------------------------------------------

ITEMS = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.zeros((0, 4), np.int64),
    np.array("text", object),
    np.array(True),
]
AT = [np.array(k, t) for k in (-4, -1, 0, 3) for t in (np.int32, np.int64)]


def test_a_sequence_is_built_and_returned(run):
    same(run("sequence_construct", *ITEMS), [ITEMS])
    same(run("sequence_empty"), [[]])


def test_a_sequence_passes_through_and_keeps_nothing_that_was_lent(run):
    lent = [np.arange(1000.0), np.array(["x", "yz"], object)]
    (result,) = run("sequence_insert", lent, np.ones(3))
    lent[0][:] = 7
    same(result[0], np.arange(1000.0))
    assert list(result[1]) == ["x", "yz"]


@pytest.mark.parametrize("at", AT)
def test_values_are_taken_inserted_and_erased_at_a_position(run, at):
    same(run("sequence_at", ITEMS, at), TWINS["sequence_at"]([ITEMS, at], []))
    same(run("sequence_insert", ITEMS, ITEMS[0], at), TWINS["sequence_insert"]([ITEMS, ITEMS[0], at], []))
    same(run("sequence_erase", ITEMS, at), TWINS["sequence_erase"]([ITEMS, at], []))


def test_without_a_position_it_is_the_end(run):
    same(run("sequence_insert", ITEMS, ITEMS[0]), TWINS["sequence_insert"]([ITEMS, ITEMS[0]], []))
    same(run("sequence_insert", ITEMS, ITEMS[0], np.int64(4)), [[*ITEMS, ITEMS[0]]])
    same(run("sequence_erase", ITEMS), [ITEMS[:-1]])
    same(run("sequence_length", ITEMS), [np.array(4)])


def test_positions_outside_are_refused(run):
    for at in (-5, 4, 2**62, -(2**63)):
        refused(run, "index_out_of_range", "sequence_at", ITEMS, np.int64(at))
        refused(run, "index_out_of_range", "sequence_erase", ITEMS, np.int64(at))
    refused(run, "index_out_of_range", "sequence_insert", ITEMS, ITEMS[0], np.int64(5))
    refused(run, "index_out_of_range", "sequence_erase", [])


@pytest.mark.parametrize("dtype", ["float32", "int8", "string"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("new_axis", [0, 1])
def test_tensors_are_concatenated(run, dtype, axis, new_axis):
    parts = [np.arange(12).reshape(3, 4).astype(dtype if dtype != "string" else str) for _ in range(3)]
    parts = [p.astype(object) if dtype == "string" else p for p in parts]
    if not new_axis:
        parts.append(np.take(parts[0], [], axis))
    same(
        run("concat_from_sequence", parts, attributes=(axis, new_axis)),
        TWINS["concat_from_sequence"]([parts], [axis, new_axis]),
    )


def test_tensors_that_do_not_fit_together_are_not_concatenated(run):
    a, b = np.zeros((2, 3)), np.zeros((2, 4))
    refused(run, "dims_mismatch", "concat_from_sequence", [a, b], attributes=(0, 0))
    refused(run, "dims_mismatch", "concat_from_sequence", [a, b], attributes=(0, 1))
    for item, axis, reason in (
        (np.zeros(2), 0, "float64 of rank 1 cannot be joined with float64 of rank 2"),
        (a.astype(np.int64), 0, "int64 of rank 2 cannot be joined with float64 of rank 2"),
        (a, -3, "tensors of rank 2 have no axis -3 to join"),
    ):
        refused(run, "rank_mismatch", "concat_from_sequence", [a, item], attributes=(axis, 0), says=reason)
    refused(run, "invalid_value", "concat_from_sequence", [], attributes=(0, 0))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_is_split(run, axis):
    x = np.arange(35.0).reshape(5, 7)
    n = x.shape[axis]
    for split, keepdims in (
        (None, 0),
        (None, 1),
        (np.int64(1), 1),
        (np.int32(2), 1),
        (np.int64(99), 0),
        (np.array([n], np.int32), 1),
        (np.array([1, 0, n - 1]), 1),
        (np.array([[1, 0], [1, n - 2]]), 1),
    ):
        operands = [x] if split is None else [x, np.asarray(split)]
        same(
            run("split_to_sequence", *operands, attributes=(axis, keepdims)),
            TWINS["split_to_sequence"](operands, [axis, keepdims]),
        )
    same(run("split_to_sequence", np.zeros((0, 2)), attributes=(0, 1)), [[]])


def test_splits_that_do_not_add_up_are_refused(run):
    x = np.zeros((4, 2))
    for split, reason in (
        ([1, 2], "the parts have 3 elements together where there are 4"),
        ([[]], "the parts have 0 elements together where there are 4"),
        ([5], "part 0 has 5 elements where 4 are left"),
        ([2, 3], "part 1 has 3 elements where 2 are left"),
        ([[4, 77]], "part 1 has 77 elements where 0 are left"),
        ([-1, 5], "part 0 has -1 elements where 4 are left"),
        ([2**62, 2**62], "part 0 has 4611686018427387904 elements where 4 are left"),
        (0, "the parts have 0 elements"),
        (-1, "the parts have -1 elements"),
    ):
        refused(
            run, "invalid_value", "split_to_sequence", x, np.array(split, int), attributes=(0, 1), says=reason
        )


def test_a_loop_grows_a_sequence(run):
    start = [np.array(1.0)]
    same(run.repeat(start, np.array([2.0, 3.0]), 300), start + [np.array([2.0, 3.0])] * 300)
    same(run.repeat(start, np.array(0.0), 0), start)


def test_a_loop_can_be_cancelled(run):
    stopped = threading.Event()

    def cancel() -> None:
        while not stopped.wait(0.02):
            run.model.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(RunError, match="cancelled") as caught:
        run.repeat([], np.zeros(1), 2**62)
    stopped.set()
    canceller.join()
    assert caught.value.status == ERRORS["cancelled"]
    same(run.repeat([], np.zeros(1), 2), [np.zeros(1)] * 2)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3, 2)])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "string"])
def test_ones_come_before_the_axes_of_a_tensor(run, dtype, shape):
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    x = x.astype(str).astype(object) if dtype == "string" else x.astype(dtype)
    for rank in (3, 5):
        (y,) = run("with_leading_ones", x, attributes=(rank, 0))
        assert y.shape == (1,) * (rank - len(shape)) + shape
        same([y], TWINS["with_leading_ones"]([x], [rank, 0]))


def test_ones_come_behind_the_axis_of_a_vector_where_they_are_asked_for(run):
    for x, rank, shape in (
        (np.arange(3.0), 4, (1, 1, 3, 1)),
        (np.zeros(()), 2, (1, 1)),
        (np.zeros((3, 1)), 3, (1, 3, 1)),
    ):
        assert run("with_leading_ones", x, attributes=(rank, 1))[0].shape == shape
        assert TWINS["with_leading_ones"]([x], [rank, 1])[0].shape == shape


def test_a_tensor_of_more_axes_than_are_asked_for_stays_as_it_is(run):
    x = np.zeros((2, 1, 3))
    assert run("with_leading_ones", x, attributes=(1, 1))[0].shape == x.shape
    assert TWINS["with_leading_ones"]([x], [1, 1])[0].shape == x.shape


def test_an_optional_has_its_element_or_none(run):
    x = np.arange(3.0)
    assert run("optional", x)[0] is not None
    same(run("optional", x)[0], x)
    assert run("optional")[0] is None
    same(run("optional_get_element", (x,)), [x])
    same(run("optional_get_element", x), [x])
    refused(run, "empty_optional", "optional_get_element", ())
    for operand, has in (((x,), True), ((), False), (x, True)):
        same(run("optional_has_element", operand), [np.array(has)])


# Regions and determinants -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("half", [0, 1])
def test_roi_align_agrees_with_onnx(run, dtype, mode, half):
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    random = np.random.default_rng(1)
    x = random.random((2, 3, 7, 9)).astype(dtype)
    low = random.uniform(-2, 8, (6, 2))
    rois = np.concatenate([low, low + random.uniform(0, 9, (6, 2))], 1).astype(dtype)
    images = np.array([0, 1, 1, 0, 1, 0])
    for height, width, samples in ((1, 1, 0), (3, 2, 2), (2, 4, 0), (1, 1, 5), (5, 4, 1)):
        node = helper.make_node(
            "RoiAlign",
            ["X", "rois", "images"],
            ["Y"],
            output_height=height,
            output_width=width,
            mode=mode,
            sampling_ratio=samples,
            spatial_scale=0.5,
            coordinate_transformation_mode="half_pixel" if half else "output_half_pixel",
        )
        (wanted,) = ReferenceEvaluator(node).run(None, {"X": x, "rois": rois, "images": images})
        (got,) = run(
            "roi_align",
            x,
            rois,
            images,
            np.float32(0.5),
            attributes=(height, width, samples, mode == "max", half),
        )
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("greatest", [0, 1])
def test_samples_outside_an_image_are_zero_beside_infinite_pixels(run, greatest):
    x = np.full((1, 1, 4, 4), -1, np.float32)
    x[0, 0, 0, 0], x[0, 0, 3, 3] = np.inf, np.nan
    rois = np.float32([[-9, -9, -6, -6], [9, 9, 12, 12], [1.25, 1.25, 2.25, 7.25]])
    images, scale = np.zeros(3, np.int64), np.float32(1)
    (got,) = run("roi_align", x, rois, images, scale, attributes=(1, 1, 2, greatest, 0))
    np.testing.assert_allclose(got.ravel(), [0, 0, 0 if greatest else -0.5], atol=1e-6)


def test_the_greatest_sample_is_none_where_the_first_pixel_is(run):
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    x[0, 0, 1, 1] = np.nan
    rois, images = np.float32([[1.25, 1.25, 2.25, 2.25]]), np.zeros(1, np.int64)
    (got,) = run("roi_align", x, rois, images, np.float32(1), attributes=(1, 1, 1, 1, 0))
    assert np.isnan(got).all()


@pytest.mark.parametrize("greatest", [0, 1])
def test_samples_that_are_far_apart_are_the_pixels_where_they_lie(run, greatest):
    x = np.add.outer(np.arange(6.0), 3 * np.arange(90.0)).reshape(1, 1, 6, 90)
    box, image = np.array([[0.0, 0, 84, 4]]), np.array([0])
    (got,) = run("roi_align", x, box, image, np.float32(1), attributes=(2, 3, 1, greatest, 0))
    same(got, np.add.outer([1.0, 3], 3 * np.array([14.0, 42, 70])).reshape(1, 1, 2, 3))


def test_regions_of_images_that_are_not_there_are_refused(run):
    x, rois = np.zeros((2, 1, 4, 4), np.float32), np.zeros((1, 4), np.float32)
    for image in (-1, 2):
        refused(
            run,
            "index_out_of_range",
            "roi_align",
            x,
            rois,
            np.array([image]),
            np.float32(1),
            attributes=(1, 1, 0, 0, 0),
        )
        box = np.array([[image, 0, 0, 1, 1]], np.float32)
        refused(run, "index_out_of_range", "max_roi_pool", x, box, np.float32(1), attributes=(1, 1))
    for bad in (np.nan, 1e30):
        refused(
            run,
            "invalid_value",
            "roi_align",
            x,
            np.array([[0, 0, bad, bad]], np.float32),
            np.array([0]),
            np.float32(1),
            attributes=(1, 1, 0, 0, 1),
        )


def test_max_roi_pool_agrees_with_onnxruntime(run):
    import onnxruntime
    from onnx import TensorProto, helper

    random = np.random.default_rng(2)
    x = random.standard_normal((2, 3, 8, 10)).astype(np.float32)
    low = random.integers(-3, 18, (7, 2))
    rois = np.concatenate([random.integers(0, 2, (7, 1)), low, low + random.integers(-1, 12, (7, 2))], 1)
    rois = rois.astype(np.float32)
    node = helper.make_node("MaxRoiPool", ["X", "R"], ["Y"], pooled_shape=[3, 2], spatial_scale=0.5)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("X", TensorProto.FLOAT, x.shape),
            helper.make_tensor_value_info("R", TensorProto.FLOAT, rois.shape),
        ],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"X": x, "R": rois})
    same(run("max_roi_pool", x, rois, np.float32(0.5), attributes=(3, 2)), [wanted])


#: Some are one panel of columns, some many, and one has products of more rows than are added at a time.
MATRICES = [
    (0, 0),
    (1, 1),
    (3, 3),
    (4, 5, 5),
    (2, 0, 3, 3),
    (2, 8, 8),
    (3, 17, 17),
    (2, 72, 72),
    (131, 131),
    (530, 530),
]


@pytest.mark.parametrize("rows", [[[0, 1], [np.nan, 1]], [[0, 0, 1], [0, np.nan, 0], [np.nan, 0, 0]]])
def test_a_number_that_is_none_makes_the_determinant_none(run, rows):
    assert np.isnan(run("determinant", np.array(rows, np.float32))[0])


@pytest.mark.parametrize("n", [2, 9, 40])
def test_singular_matrices_have_the_determinant_0(run, n):
    x = np.arange(1.0, n * n + 1).reshape(n, n)
    x[:, n // 2] = 0
    found = run("determinant", -x)[0]
    assert found == 0 and not np.signbit(found)


@pytest.mark.parametrize("shape", MATRICES, ids=str)
def test_determinants_are_those_of_numpy(run, shape):
    x = np.random.default_rng(3).standard_normal(shape) / max(1, shape[-1]) ** 0.5
    np.testing.assert_allclose(run("determinant", x)[0], np.linalg.det(x), rtol=1e-11, atol=1e-14)
    assert run("determinant", np.zeros((3, 3), np.float32))[0] == 0


@pytest.mark.parametrize("shape", MATRICES, ids=str)
def test_inverses_are_those_of_numpy(run, shape):
    x = np.random.default_rng(3).standard_normal(shape)
    np.testing.assert_allclose(run("inverse", x)[0], np.linalg.inv(x), rtol=1e-10, atol=1e-12)


def test_inverses_of_very_many_empty_matrices_are_at_hand(run):
    assert run("inverse", np.zeros((2**40, 0, 0)))[0].shape == (2**40, 0, 0)


@pytest.mark.parametrize("n", [3, 40, 70])
def test_a_matrix_without_an_inverse_gives_no_numbers(run, n):
    assert not np.isfinite(run("inverse", np.ones((n, n), np.float32))[0]).any()
    assert run("determinant", np.ones((n, n), np.float32))[0] == 0


@settings(deadline=None, max_examples=40)
@given(x=hnp.arrays(np.float64, (1,), elements=st.floats(-1e6, 1e6)))
def test_float16_results_are_rounded_to_the_nearest(run, x):
    """A float16 matrix of one element is its own determinant."""
    for dtype in (np.float16, ml_dtypes.bfloat16):
        with np.errstate(over="ignore"):
            half = x.astype(np.float32).astype(dtype).reshape(1, 1)
        same(run("determinant", half), [half.reshape(())])


# Strings ----------------------------------------------------------------------------------------------


def to_strings(run, x: np.ndarray) -> np.ndarray:
    return run("numbers_to_strings", x, attributes=(NUMBER[dtypes.from_numpy(x.dtype)], NUMBER["string"]))[0]


def to_numbers(run, texts: list, dtype: str) -> np.ndarray:
    return run("strings_to_numbers", np.array(texts, object), attributes=(NUMBER["string"], NUMBER[dtype]))[0]


@settings(deadline=None, max_examples=200)
@given(x=hnp.arrays(st.sampled_from([np.float16, np.float32, np.float64]), st.integers(0, 5)))
def test_floats_are_written_with_the_fewest_digits(run, x):
    assert list(to_strings(run, x)) == [shortest(v) for v in x]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_powers_of_two_and_of_ten_are_written_with_the_fewest_digits(run, dtype):
    with np.errstate(over="ignore", under="ignore"):
        x = np.concatenate(
            [
                np.exp2(np.arange(-1074, 1024.0)),
                [float(f"1e{k}") for k in range(-320, 309)],
                [float(f"9.99e{k}") for k in range(-320, 308)],
            ]
        ).astype(dtype)
    assert list(to_strings(run, -x)) == [shortest(v) for v in -x]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_written_as_constants_are(run, dtype):
    # the negative zero is among them
    bits = np.arange(1, 1 << 16, 7, dtype=np.uint64) << (8 * dtypes.itemsize(dtype) - 16)
    x = bits.astype(f"uint{8 * dtypes.itemsize(dtype)}").view(dtypes.numpy_dtype(dtype))
    same(to_strings(run, x), TWINS["numbers_to_strings"]([x], [])[0])


def shortest(value: np.floating) -> str:
    if not np.isfinite(value):
        return str(float(value))
    scientific = np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    plain = -4 <= int(scientific.partition("e")[2]) < 16
    return np.format_float_positional(value, unique=True, trim="0") if plain else scientific


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_are_written_and_read(run, dtype):
    low, high = dtypes.integer_range(dtype)
    x = np.array([[low, high], [0, 7]], dtype)
    same(to_strings(run, x), TWINS["numbers_to_strings"]([x], [])[0])
    same(to_numbers(run, [str(low), f" {high}\n", "+7", "007"], dtype), np.array([low, high, 7, 7], dtype))
    texts = ["100.5", "1.0", "1e2", " 7.99 ", ".5", "-0.5", *(["-3.9"] if low < 0 else [])]
    same(to_numbers(run, texts, dtype), np.array([100, 1, 100, 7, 0, 0, -3][: len(texts)], dtype))
    same(
        to_numbers(run, texts, dtype),
        TWINS["strings_to_numbers"]([np.array(texts, object)], [8, NUMBER[dtype]])[0],
    )
    beyond = (
        str(low - 1),
        str(high + 1),
        f"{float(high) + 1:.1f}",
        f"{2 * low - 1.0:e}",
        "1e30",
        "-1e30",
        "1e400",
    )
    for wrong in (*beyond, "", " ", "0x10", "1 2", "1.5x", "nan", "inf", "9" * 400, "1\0"):
        refused(
            run,
            "invalid_value",
            "strings_to_numbers",
            np.array(["1", wrong], object),
            attributes=(NUMBER["string"], NUMBER[dtype]),
        )


def test_a_text_that_is_no_number_is_named(run):
    for text, found in (("seven", "seven"), ("", ""), ("9" * 70, "9" * 60)):
        with pytest.raises(RunError, match=f"node 'op': the text '{found}' is no int32"):
            to_numbers(run, ["7", text], "int32")


def test_a_text_with_a_fraction_is_true_unless_it_is_zero(run):
    texts = ["0.0", "0.5", "-1e-9", "2.5", "0", "3"]
    same(to_numbers(run, texts, "bool"), np.array([False, True, True, True, False, True]))
    same(
        TWINS["strings_to_numbers"]([np.array(texts, object)], [8, NUMBER["bool"]])[0],
        to_numbers(run, texts, "bool"),
    )


def test_strings_are_equal_when_their_bytes_are(run):
    x = np.array([["", "a", "ab"], ["b", "a\0", "é"]], object)
    y = np.array([["", "b", "ab"], ["ba", "a", "é"]], object)
    same(run("strings_equal", x, y)[0], np.array([[True, False, True], [False, False, True]]))
    same(run("strings_equal", x, y)[0], TWINS["strings_equal"]([x, y], [])[0])
    assert run("strings_equal", x[:0], y[:0])[0].shape == (0, 3)


def test_texts_of_all_lengths_have_the_hashes_of_murmur_3(run):
    x = np.array([["", "a", "ab", "abc"], ["abcd", "abcde", "é" * 9, "x\0y"]], object)
    for seed in (0, 0xFFFFFFFF):
        same(run("hash_strings", x, attributes=(seed,))[0], TWINS["hash_strings"]([x], [seed])[0])
    assert run("hash_strings", x, attributes=(0,))[0][0, 0] == 0


# Text ------------------------------------------------------------------------------------------------


def both(run, symbol, *operands, attributes=()):
    same(run(symbol, *operands, attributes=attributes), TWINS[symbol](operands, attributes))


#: Characters of one to four bytes, spaces, and bytes that are none: overlong, a surrogate, cut off.
ODD = "aé\u3000\U00010400ß\udcff\udcc0\udc80\udced\udca0\udc80\udcf0\udc9f \u2c65K\0"
WORDS = st.text(alphabet=ODD, max_size=8).map(lambda text: decoded(encoded(text)))
TEXTS = hnp.arrays(object, st.integers(0, 5), elements=WORDS, fill=st.nothing())


@settings(deadline=None, max_examples=100)
@given(x=TEXTS, between=st.sampled_from(["", "a", "é", "a\udcff"]), most=st.integers(-1, 3))
@pytest.mark.slow
def test_texts_are_joined_split_and_normalized(run, x, between, most):
    both(run, "strings_joined", x, x[::-1].copy())
    both(run, "split_strings", x, np.array([between], object), attributes=(most,))
    tables = [text_tables.case_table(action) for action in ("LOWER", "UPPER", "NONE")]
    for compared, changed in ((0, 1), (1, 0), (2, 2)):
        words = np.array(["", text_tables.changed("aéK", tables[compared])], object)
        both(run, "normalize_strings", x[None], words, tables[compared], tables[changed])


def test_pieces_that_no_memory_holds_are_refused_with_their_bytes(run):
    texts = np.full(1 << 20, "", object)
    texts[0] = "," * (1 << 24)
    with pytest.raises(RunError, match=r"^node 'op': out of memory: 2814\d{11} bytes are needed$"):  # 2^48
        run("split_strings", texts, np.array([","], object), attributes=(-1,))


@pytest.fixture(scope="module")
def automata():
    return [regex_automaton(pattern, search=True) for pattern in ("a*.", r"\b\w(\W|\pL)*", r"(?i)k+|\C{2}")]


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(x=TEXTS)
def test_texts_are_matched_and_found(run, automata, x):
    for automaton in automata:
        both(run, "match_strings", x, automaton.classes, automaton.following, automaton.final)
        tables = (automaton.classes, automaton.following, automaton.final, automaton.starts)
        for attributes in ((0, 1, 0), (1, 2, 0), (1, 1, 1), (0, 2, 1)):
            both(run, "tokenize_strings", x, np.array(["#"], object), *tables, attributes=attributes)
    both(run, "tokenize_strings", x, np.array(["#"], object), attributes=(1, 1, 2))
    keys = list(dict.fromkeys([*x[::2], "a", "\udcff", ""]))
    both(run, "find_strings", x, np.array(keys, object), text_tables.string_table(keys))
    lengths = np.array([len(t) - 4 for t in x], np.int32)
    keys = np.array([-4, -1, 0, 3])
    both(run, "find_integers", lengths, keys, text_tables.integer_table(keys.tolist()))


@settings(deadline=None, max_examples=50)
@given(
    tokens=hnp.arrays(np.int64, st.tuples(st.integers(1, 3), st.integers(0, 9)), elements=st.integers(-1, 2)),
    lengths=st.tuples(st.integers(1, 3), st.integers(1, 3)).map(sorted),
    skips=st.integers(0, 4),
    adds=st.integers(0, 1),
)
def test_ngrams_are_counted(run, tokens, lengths, skips, adds):
    edges = np.array([0, 1, 3 * 1 + 1, 3 * 2 + 2, 3 * 3 + 0])  # of node * 3 + token
    table = text_tables.integer_table(edges.tolist())
    columns, weights = np.array([-1, 0, -1, 2, 1, 2], np.int32), np.arange(6, dtype=np.float32)
    for x in (tokens, tokens[0]):
        both(run, "count_ngrams", x, edges, table, columns, weights, attributes=(3, 3, *lengths, skips, adds))


@settings(deadline=None, max_examples=30)
@given(
    known=st.integers(2, 5).flatmap(
        lambda n: hnp.arrays(
            np.float32, (3, n * (n - 1) // 2), elements=st.floats(2**-7, 1 - 2**-7, width=32)
        )
    )
)
def test_probabilities_between_pairs_become_those_of_classes(run, known):
    count = int(np.sqrt(2 * known.shape[1])) + 1
    (found,) = run("class_probabilities", known, attributes=(count,))
    (expected,) = TWINS["class_probabilities"]([known], [count])
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-2)  # rounds end by the last bit
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-4)


@pytest.mark.parametrize("rows", [0, 1, 3, 20])
def test_rows_become_maps(run, rows):
    x = np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3)
    for keys in (np.array([5, -1, 7]), np.array(["a", "", "long"], object)):
        assert run("zip_map", x, keys) == TWINS["zip_map"]([x, keys], [])
    refused(run, "dims_mismatch", "zip_map", x, np.array([1, 2]))


def test_bools_are_ones_and_zeros(run):
    assert list(to_strings(run, np.array([True, False]))) == ["1", "0"]
    same(to_numbers(run, ["0", "1", "2"], "bool"), np.array([False, True, True]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_floats_are_read(run, dtype):
    texts = [
        "0.47892547",
        "1e-7",
        "+2.5",
        "-0",
        "NaN",
        "INF",
        "+inf",
        "-INF",
        " 1e5 ",
        "0." + "1" * 300,
        "1e400",
    ]
    with np.errstate(over="ignore"):
        wanted = np.array([float(t) for t in texts]).astype(dtypes.numpy_dtype(dtype))
    got = to_numbers(run, texts, dtype)
    assert got.dtype == wanted.dtype
    same(got.astype(np.float64), wanted.astype(np.float64))
    for wrong in ("", "one", "0x1p3", "nan(1)", "1,5", "1e"):
        refused(
            run,
            "invalid_value",
            "strings_to_numbers",
            np.array([wrong], object),
            attributes=(NUMBER["string"], NUMBER[dtype]),
        )


def test_the_locale_of_the_program_is_of_no_account(run):
    import locale

    names = [n for n in ("de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8") if _has_locale(n)]
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        locale.setlocale(locale.LC_NUMERIC, names[0] if names else "C")
        assert list(to_strings(run, np.array([1.5]))) == ["1.5"]
        assert to_numbers(run, ["1.5"], "float64")[0] == 1.5
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


def _has_locale(name: str) -> bool:
    import locale

    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        locale.setlocale(locale.LC_NUMERIC, name)
    except locale.Error:
        return False
    locale.setlocale(locale.LC_NUMERIC, before)
    return True


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_fourier_agrees_with_its_twin(run, parts, inverse):
    draw = np.random.default_rng(3)
    for n in (1, 2, 3, 4, 7, 8, 12, 30, 35, 53, 64, 97, 121, 400, 442, 512, 514, 1009):
        for times in {n, n // 2 + 1}:
            x, length = draw.standard_normal((2, 3, times, parts)), np.int64(n)
            for halved in {0, int((parts == 2) == inverse and (not inverse or times == n // 2 + 1))}:
                (wanted,) = TWINS["fourier"]([x, length], (inverse, halved))
                (got,) = run("fourier", x, length, attributes=(inverse, halved))
                assert got.shape == wanted.shape
                np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13 * n)
    empty = run("fourier", np.zeros((2, 0, parts)), np.int64(0), attributes=(inverse, 0))[0]
    assert empty.shape == (2, 0, 2)
    for halved in (0, int((parts == 2) == inverse)):  # of one element too, which has no bins to go back to
        got = run("fourier", np.ones((3, 1, parts)), np.int64(0), attributes=(inverse, halved))[0]
        same(got, TWINS["fourier"]([np.ones((3, 1, parts)), np.int64(0)], (inverse, halved))[0])
    for n in (2, -1):
        refused(run, "invalid_value", "fourier", np.zeros((3, parts)), np.int64(n), attributes=(inverse, 0))


def test_a_transform_of_a_large_prime_length_takes_no_square_of_it(run):
    x, length = np.random.default_rng(3).standard_normal((1, 199_999, 2)), np.int64(199_999)
    (wanted,) = TWINS["fourier"]([x, length], (0, 0))
    (got,) = run("fourier", x, length, attributes=(0, 0))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


def test_transforms_of_no_rows_need_no_memory(run):
    (got,) = run("fourier", np.zeros((0, 1, 2)), np.int64(2**40), attributes=(0, 0))
    assert got.shape == (0, 2**40, 2)


#: Operands by which an operator would read beyond one of them, and its attributes.
UNFIT = {
    "regions of five numbers": ("roi_align", [(1, 1, 4, 4), (2, 5), [0, 0], 1.0], (1, 1, 1, 0, 0)),
    "more regions than images": ("roi_align", [(1, 1, 4, 4), (5, 4), [0, 0], 1.0], (1, 1, 1, 0, 0)),
    "regions of four numbers": ("max_roi_pool", [(1, 1, 4, 4), (2, 4), 1.0], (1, 1)),
    "boxes of one number": ("non_max_suppression", [(1, 8, 1), (1, 1, 8), [1], 0.5, 0.0], (0,)),
    "more batches of scores": ("non_max_suppression", [(1, 8, 4), (9, 1, 8), [1], 0.5, 0.0], (0,)),
    "fewer pairs than of so many classes": ("class_probabilities", [(2, 3)], (5,)),
    "more columns than keys": ("zip_map", [(2, 3), [1, 2]], ()),
    "a matrix of more rows": ("determinant", [(2, 5, 3)], ()),
    "a matrix of more columns": ("inverse", [(3, 5)], ()),
}


@pytest.mark.parametrize("name", UNFIT)
def test_operands_that_do_not_fit_each_other_are_refused_before_they_are_read(run, name):
    symbol, given, attributes = UNFIT[name]
    kinds = {tuple: np.zeros, list: lambda values, _: np.array(values), float: lambda x, _: np.float32(x)}
    operands = [kinds[type(x)](x, np.float32) for x in given]
    refused(run, "dims_mismatch", symbol, *operands, attributes=attributes)
    with pytest.raises(InterpretError) as caught:
        TWINS[symbol](operands, attributes)
    assert caught.value.code == "dims_mismatch"
