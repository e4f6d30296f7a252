"""Pools of dense images, by rows where windows are combined axis by axis, and by loop_nest: any rank,
padding, type and order of axes."""

import re

import numpy as np
import pytest
from support import harness
from support.harness import TARGETS
from support.nests import check, numbers, variable
from support.pool_cases import codes, group, halves

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import loop_nest, pool_rows
from onnxc.codegen.kernels.pool_rows import RowPooling
from onnxc.codegen.nests.nest import ERROR_BYTES
from onnxc.ir import expr
from onnxc.ir.graph import TensorType, Value, make_node
from onnxc.ir.ops import Pool
from onnxc.target import find_target

POOLED = [  # image, kernel, strides, pads, dilations, sizes, column major
    ((2, 3, 8, 9), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), (4, 4), False),
    ((1, 3, 20, 40), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (20, 40), False),
    ((1, 2, 9, 9), (3, 2), (2, 3), (1, 0, 1, 1), (2, 1), (4, 3), True),
    ((2, 3, 50), (5,), (1,), (2, 2), (1,), (50,), False),
    ((1, 2, 5, 6, 7), (2, 3, 2), (1, 2, 2), (0, 1, 0, 1, 1, 1), (1, 1, 1), (5, 3, 4), True),
    ((1, 1, 4, 4), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), (2, 2), False),
    ((2, 1, 7, 9, 37), (3, 3, 1), (2, 2, 1), (1, 1, 0, 1, 1, 0), (1, 1, 1), (4, 5, 37), False),
    ((1, 2, 5, 6, 3), (3, 3, 1), (1, 1, 1), (1, 1, 0, 1, 1, 0), (1, 1, 1), (5, 6, 3), False),
    ((1, 1, 3, 4, 1100), (2, 2, 1), (1, 1, 1), (0, 1, 0, 0, 0, 0), (1, 1, 1), (2, 4, 1100), False),
    ((1, 2, 20, 21), (17, 4), (1, 4), (8, 2, 8, 2), (1, 1), (20, 6), False),
    ((1, 1, 40, 21), (34, 4), (2, 3), (8, 2, 8, 2), (1, 1), (12, 8), False),
    ((1, 1, 3, 20, 6), (2, 18, 3), (1, 1, 1), (0, 4, 1, 1, 4, 1), (1, 1, 1), (3, 11, 6), False),
    ((1, 2, 90), (40,), (9,), (0, 9), (1,), (7,), False),
    ((1, 1, 9000), (2,), (1,), (0, 1), (3,), (8998,), False),
    ((1, 2, 3, 4), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), (3, 4), False),
    ((1, 2, 5, 7), (2, 1), (1, 1), (0, 0, 0, 0), (1, 1), (4, 3), False),  # nothing combined, but left out
    ((1, 2, 5, 7), (1, 2), (1, 1), (0, 0, 0, 0), (1, 1), (3, 6), False),
    ((1, 1, 6, 5, 40), (2, 2, 1), (1, 1, 1), (0, 0, 0, 0, 0, 0), (1, 1, 1), (4, 4, 33), False),
]


KINDS = ("max", "sum", "mean", "argmax")
TYPES = ("float32", "float16", "int8", "uint8", "int64")
#: What each kernel takes: rows what is combined axis by axis in its own type.
FORMS = [(loop_nest, kind, dtype) for kind in KINDS for dtype in TYPES]
FORMS += [(pool_rows, kind, dtype) for kind in KINDS[:3] for dtype in TYPES if dtype != "float16"]


def test_rows_take_what_is_combined_axis_by_axis_in_its_own_type():
    for kind in KINDS:
        for dtype in TYPES:
            op = Pool(kind, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (9, 20))
            image = TensorType(dtype, (1, 1, 9, 20))
            assert pool_rows.takes(op, image, dtype) == ((pool_rows, kind, dtype) in FORMS)


def name(word):
    return word if isinstance(word, str) else word.__name__.rpartition(".")[2]


@TARGETS
@pytest.mark.parametrize(("kernel", "kind", "dtype"), FORMS, ids=name)
def test_windows_of_any_rank(target, kernel, kind, dtype):
    for image, window, strides, pads, dilations, sizes, columns in POOLED:
        x = numbers(image, dtype, -9, 9)
        op = Pool(kind, window, strides, pads, dilations, sizes, columns)
        check(target, op, x, only="static", kernel=kernel)
        if dtype == "float32":
            (p, some), (s, others) = variable("p", pads), variable("s", sizes, 0)
            op = Pool(kind, window, strides, p, dilations, s, columns)
            check(target, op, x, env={**some, **others}, only="symbolic", kernel=kernel)


@TARGETS
@pytest.mark.parametrize(
    ("kernel", "kind"), [(pool_rows, "max"), (loop_nest, "max"), (loop_nest, "argmax")], ids=name
)
def test_pools_see_nan_and_infinity(target, kernel, kind):
    x = numbers((1, 2, 9, 20))
    x.flat[[3, 50, 77]] = np.nan
    x.flat[100:160] = -np.inf
    check(target, Pool(kind, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (9, 20)), x, kernel=kernel)
    check(target, Pool(kind, (17, 19), (1, 1), (8, 9, 8, 9), (1, 1), (9, 20)), x, kernel=kernel)


@TARGETS
@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(pool_rows, "max"), (pool_rows, "sum"), (loop_nest, "max"), (loop_nest, "sum"), (loop_nest, "argmax")],
    ids=name,
)
def test_a_window_wholly_in_the_padding_is_empty(target, kernel, kind):
    op = Pool(kind, (2, 2), (2, 2), (0, 0, 4, 4), (1, 1), (3, 3))
    check(target, op, numbers((1, 1, 3, 3)), only="static", kernel=kernel)


@TARGETS
@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize(
    ("dtype", "conversions"),
    [
        ("float16", halves("float16")),
        ("bfloat16", (halves("bfloat16")[0], None)),
        ("float32", (None, halves("float16")[1])),
        ("uint8", codes("uint8", 100)),
        ("int8", (codes("int8", -5)[0], None)),
    ],
    ids=["float16", "bfloat16", "written", "uint8", "int8"],
)
def test_what_is_stored_in_another_type(target, kind, dtype, conversions):
    if kind == "max" and dtype in ("uint8", "int8"):
        return  # nothing that is stored is the least of all
    for image, window, strides, pads, dilations, sizes, columns in POOLED:
        x = numbers(image, dtype, -9, 9)
        op = Pool(kind, window, strides, pads, dilations, sizes, columns)
        check(target, group(op, image, dtype, *conversions), x, only="static", kernel=pool_rows)


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_what_is_made_of_elements_results_and_further_images(target, dtype):
    wide = "float32" if dtype == "float16" else dtype
    x, total = expr.input_(0, dtype).cast(wide), expr.input_(0, wide)
    y, z = expr.input_(1, dtype).cast(wide), expr.input_(2, "float32").cast(wide)
    after = (total + 2 * y - z).cast("float32")
    for image, window, strides, pads, dilations, sizes, columns in POOLED:
        op = Pool("sum", window, strides, pads, dilations, sizes, columns)
        made = image[:2] + sizes
        others = [numbers(made, dtype, -9, 9), numbers(made)]
        types = [TensorType(dtype, made), TensorType("float32", made)]
        fused = group(op, image, dtype, x * x, after, *types)
        check(target, fused, numbers(image, dtype, -9, 9), *others, only="static", kernel=pool_rows)


def test_of_long_pixels_most_places_that_are_read_serve_a_window_of_results():
    for pixel in (3136, 1024, 500, variable("p", (700,))[0][0]):
        op = Pool("sum", (5, 1), (1, 1), (2, 0, 2, 0), (1, 1), (192, pixel))
        rows = RowPooling(
            make_node(op, [Value(TensorType("float32", (1, 1, 192, pixel)))]), find_target("x86-64-v4")
        )
        results, elements = rows.part
        assert results >= 3 * 5
        assert (results + 4) * elements <= 4096


@TARGETS
def test_the_lines_of_several_rows_are_made_before_the_first_is_read(target):
    x = numbers((1, 1, 8, 10))
    op = Pool("max", (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), (8, 10))
    node = make_node(op, [Value(TensorType("float32", x.shape))])
    prepared = harness.Prepared(node, choices_of(pool_rows, node, target)[0], [x], target)
    assert prepared.calls[0].parts == 1 and prepared.run() is None
    padded = np.pad(x[0, 0], 1, constant_values=-np.inf)
    lines = np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])
    scratch = prepared.calls[0].scratch[ERROR_BYTES:].view(np.float32)
    np.testing.assert_array_equal(scratch[: lines.size].reshape(lines.shape), lines)


def test_maxima_in_place_store_whole_vectors():
    """Of a choice between a new number and the one in its place LLVM makes a store of some lanes, which takes
    AVX2 processors twenty cycles."""
    target = find_target("x86-64-v3")
    node = make_node(
        Pool("max", (18, 17), (1, 1), (8, 8, 9, 8), (1, 1), (64, 64)),
        [Value(TensorType("float32", (1, 1, 64, 64)))],
    )
    (choice,) = choices_of(pool_rows, node, target)
    (step,) = pool_rows.emit(node, choice, target).steps
    assert not re.findall(r"vmaskmovps\s+%ymm\d+, %ymm\d+, ", harness.assembly(step.text, target))
