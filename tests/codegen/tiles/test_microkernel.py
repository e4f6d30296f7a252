"""Register tiles: what they compute, which addresses they use, and that their sums stay in registers."""

import ctypes
import re

import numpy as np
import pytest
from onnxc.codegen.text.emitter import Text
from onnxc.codegen.text.memory import load_first, store_first
from onnxc.codegen.tiles import microkernel as mk
from support.assembly import commented, inner_loops, spills
from support.harness import RUNNABLE, aligned, compiled

from onnxc.ir import dtypes
from onnxc.target import TARGETS

EVERY = list(TARGETS.values())
DTYPES = [
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("float16", "float16", "float32"),
    ("bfloat16", "bfloat16", "float32"),
    ("float16", "float32", "float32"),
    ("uint8", "int8", "int32"),
    ("int64", "int64", "int64"),
    ("int16", "int16", "int32"),
    ("float32", "float32", "float64"),
]


def text_of(target, rows, vectors, types=DTYPES[0], depth="%k", row_step=None, **options):
    """KERNEL(a, b, c, depth, row step): c = a b, rows of a `row_step` bytes apart (None: an argument)."""
    lhs, rhs, accumulate = types
    tile = mk.Tile(rows, vectors, target.lanes(accumulate), lhs, rhs, accumulate)
    text = Text(target)
    parameters = ["ptr noalias %a", "ptr noalias %b", "ptr noalias %c", "i64 %k", "i64 %step"]
    with text.function("KERNEL", parameters, linkage="") as f:
        step = "%step" if row_step is None else row_step
        places = mk.strided_rows(f, "%a", step, rows, dtypes.itemsize(lhs))
        sums = mk.multiply_add(f, tile, tile.zeros(), places, "%b", depth, **options)
        size = dtypes.itemsize(accumulate)
        mk.store_tile(f, tile, sums, lambda r, j: f.offset("%c", (r * tile.columns + j * tile.lanes) * size))
        f.statement("ret void")
    return str(text), tile


def run(target, rows, vectors, types, depth, **options):
    """(the tile's result, numpy's) for small random integers, which every type holds exactly."""
    text, tile = text_of(target, rows, vectors, types, **options)
    random = np.random.default_rng(rows * 100 + vectors)
    lhs, rhs, accumulate = (dtypes.numpy_dtype(t) for t in types)
    low = 0 if lhs.kind == "u" else -4
    a, b = random.integers(low, 5, (rows, depth)), random.integers(-4, 5, (depth, tile.columns))
    memory = [aligned(max(1, x.size) * t.itemsize) for x, t in ((a, lhs), (b, rhs))]
    for place, x, t in zip(memory, (a, b), (lhs, rhs)):
        place[: x.size * t.itemsize].view(t)[:] = x.astype(t).reshape(-1)
    out = aligned(rows * tile.columns * accumulate.itemsize)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2)
    function = kind(compiled(text, target).get_function_address("KERNEL"))
    function(*(m.ctypes.data for m in (*memory, out)), depth, depth * lhs.itemsize)
    return out.view(accumulate).reshape(rows, tile.columns), (a @ b).astype(accumulate)


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
@pytest.mark.parametrize("types", DTYPES, ids="-".join)
def test_a_tile_multiplies_every_element_type(target, types):
    got, expected = run(target, 3, 2, types, 13)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 7, 8, 64])
@pytest.mark.parametrize("chains", [1, 2, 4])
def test_a_depth_of_the_run_may_be_anything(target, depth, chains):
    got, expected = run(target, 2, 1, DTYPES[0], depth, chains=chains)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 5, 11])
@pytest.mark.parametrize("unroll", [1, 2, 4])
def test_a_static_depth_needs_no_multiple_of_the_unrolling(depth, unroll):
    got, expected = run(RUNNABLE[0], 3, 1, DTYPES[0], depth, unroll=unroll)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
def test_every_height_up_to_the_greatest_is_right(target, vectors):
    for rows in range(1, mk.most_rows(target, vectors) + 1):
        got, expected = run(target, rows, vectors, DTYPES[0], 9)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("target", EVERY, ids=str)
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize("row_step", [None, 1536], ids=["step of the run", "static step"])
def test_the_sums_of_full_tiles_stay_in_registers(target, vectors, row_step):
    text, _ = text_of(target, mk.most_rows(target, vectors), vectors, row_step=row_step)
    assert not spills(text, target)


@pytest.mark.parametrize("target", EVERY, ids=str)
def test_a_step_of_a_full_tile_is_hardly_more_than_its_multiply_adds(target):
    rows = mk.most_rows(target, 2)
    text, _ = text_of(target, rows, 2)
    (loop,) = inner_loops(commented(text, target))
    adds = [line for line in loop if re.search(r"\b(v?fmadd|fmla|addps)", line)]
    assert len(adds) == rows * 2
    arithmetic = 2 if target.fused_multiply_add else 6  # else a copy, a product and a sum each
    assert len(loop) <= rows * (arithmetic + 3) + 16


@pytest.mark.parametrize("count", range(1, 25))
def test_a_stride_of_the_run_reaches_every_row_from_few_pointers(count):
    text = Text(RUNNABLE[0])
    with text.function("f", ["ptr %a", "i64 %s"]) as f:
        rows = mk.strided_rows(f, "%a", "%s", count, 4)
        f.statement("ret void")
    assert len(rows) == count
    assert len(rows.pointers) <= -(-count // 4)
    assert len({place for place in rows.places}) == count


@pytest.mark.parametrize(
    "rows, most, expected",
    [
        (49, 14, [13, 12, 12, 12]),
        (0, 14, []),
        (1, 14, [1]),
        (14, 14, [14]),
        (15, 14, [8, 7]),
        (28, 14, [14, 14]),
    ],
)
def test_rows_are_cut_into_equal_tiles(rows, most, expected):
    assert mk.equal_heights(rows, most) == expected


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("first, last", [(0, None), (1, 3), (2, 2), (0, 9)])
def test_code_cuts_rows_as_equal_heights_does(static, first, last):
    for rows in (0, 1, 5, 13, 14, 15, 29, 49, 100):
        text = Text(RUNNABLE[0])
        with text.function("KERNEL", ["ptr %out", "i64 %rows"], linkage="") as f:

            def note(height, row, tile, f=f):
                place = f.element("%out", tile, 16)
                f.store("i64", height, place)
                f.store("i64", row, f.offset(place, 8))

            mk.for_equal_tiles(f, rows if static else "%rows", 14, note, first, last)
            f.statement("ret void")
        out = aligned(16 * 16, fill=0).view(np.int64).reshape(16, 2)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        if last is None or last <= len(mk.equal_heights(rows, 14)):
            function = kind(compiled(str(text), RUNNABLE[0]).get_function_address("KERNEL"))
            function(out.ctypes.data, rows)
            heights = mk.equal_heights(rows, 14)
            expected = [[h, sum(heights[:k])] for k, h in enumerate(heights)]
            stop = len(heights) if last is None else last
            assert out[first:stop].tolist() == expected[first:stop]
            assert not out[:first].any() and not out[max(first, stop) :].any()


@pytest.mark.parametrize("target", RUNNABLE, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "float16"])
@pytest.mark.parametrize("static", [True, False])
def test_part_of_a_vector_leaves_the_memory_behind_it_alone(target, dtype, static):
    lanes, size = target.lanes("float32"), dtypes.itemsize(dtype)
    for count in range(lanes + 1):
        text = Text(target)
        with text.function("KERNEL", ["ptr %a", "ptr %b", "i64 %n"], linkage="") as f:
            present = count if static else "%n"
            loaded = load_first(f, dtype, lanes, "%a", present)
            store_first(f, dtype, lanes, loaded, "%b", present)
            f.statement("ret void")
        source, out = np.arange(lanes * size, dtype=np.uint8), aligned(lanes * size, fill=0xA5)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        function = kind(compiled(str(text), target).get_function_address("KERNEL"))
        function(source.ctypes.data, out.ctypes.data, count)
        assert (out[: count * size] == source[: count * size]).all()
        assert (out[count * size :] == 0xA5).all()


def test_tiles_refuse_types_that_would_lose_digits():
    assert mk.supported("float16", "float32", "float32")
    assert mk.supported("uint8", "int8", "int32")
    assert not mk.supported("float64", "float32", "float32")
    assert not mk.supported("int8", "int8", "float32")
    assert not mk.supported("float16", "float16", "float16")
    assert not mk.supported("bool", "bool", "int32")
