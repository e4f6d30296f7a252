"""Register tiles: what they compute, which addresses they use, and that their sums stay in registers."""

import ctypes
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support.assembly import commented, inner_loops, spills
from support.guarded import guarded
from support.harness import RUNNABLE, TARGETS, WITHOUT, aligned, assembly, compiled, with_dots

from onnxc.codegen.text.emitter import Text
from onnxc.codegen.text.memory import load_first, store_first
from onnxc.codegen.tiles import microkernel as mk
from onnxc.codegen.tiles.packing import pack_columns, pack_panel
from onnxc.codegen.tiles.panel_operand import Panel
from onnxc.ir import dtypes
from onnxc.target import LEVELS, runs_here
from onnxc.target import TARGETS as PROCESSORS

EVERY = list(LEVELS.values())
DOTS = [
    (PROCESSORS[name], d)
    for name in ("alderlake", "sapphirerapids", "neoverse-v1")
    for d in PROCESSORS[name].dots
]
HERE = [(t, d) for t in with_dots(runs_here) for d in t.dots]
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
        sums = mk.multiply_add(f, tile, tile.zeros(), places, Panel("%b"), depth, **options)
        size = dtypes.itemsize(accumulate)
        mk.store_tile(f, tile, sums, lambda r, j: f.offset("%c", (r * tile.columns + j * tile.lanes) * size))
        f.statement("ret void")
    return str(text), tile


def run(target, rows, vectors, types, depth, static=False, **options):
    """(the tile's result, numpy's) for small random integers, which every type holds exactly. static: the
    code knows the depth."""
    text, tile = text_of(target, rows, vectors, types, depth if static else "%k", **options)
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


@TARGETS
@pytest.mark.parametrize("types", DTYPES, ids="-".join)
def test_a_tile_multiplies_every_element_type(target, types):
    got, expected = run(target, 3, 2, types, 13)
    np.testing.assert_array_equal(got, expected)


@TARGETS
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 7, 8, 64])
@pytest.mark.parametrize("chains", [1, 2, 4])
def test_a_depth_of_the_run_may_be_anything(target, depth, chains):
    got, expected = run(target, 2, 1, DTYPES[0], depth, chains=chains)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 5, 11])
@pytest.mark.parametrize("vectors, chains", [(1, 1), (1, 2), (1, 4), (2, 1)])
def test_a_static_depth_needs_no_multiple_of_the_unrolling(depth, vectors, chains):
    got, expected = run(RUNNABLE[0], 3, vectors, DTYPES[0], depth, static=True, chains=chains)
    np.testing.assert_array_equal(got, expected)


@TARGETS
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
def test_the_sums_of_lower_tiles_that_take_steps_together_stay_in_registers_too(target):
    for vectors in (2, 3, 4):
        for rows in range(2, mk.most_rows(target, vectors)):
            text, _ = text_of(target, rows, vectors)
            assert not spills(text, target), f"{rows} x {vectors}"


@pytest.mark.parametrize("target", EVERY, ids=str)
def test_a_step_of_a_full_tile_is_hardly_more_than_its_multiply_adds(target):
    rows = mk.most_rows(target, 2)
    text, tile = text_of(target, rows, 2)
    together = mk.steps_together(target, tile, "%k")
    assert together == (2 if target.fused_multiply_add else 1)
    loop, *_ = inner_loops(commented(text, target))  # behind it one step may be left
    adds = [line for line in loop if re.search(r"\b(v?fmadd|fmla|addps)", line)]
    assert len(adds) == together * rows * 2
    arithmetic = 2 if target.fused_multiply_add else 6  # else a copy, a product and a sum each
    assert len(loop) <= together * rows * (arithmetic + 3) + 16


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


@TARGETS
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


# Groups of k -------------------------------------------------------------------------------------


def in_rows(f, tile, r, j):
    return f.offset("%c", (r * tile.columns + j * tile.lanes) * 4)


def dot_text(target, dot, rows, vectors, depth):
    """KERNEL(a, b, c, depth): c = a b, rows of a dense, of `depth` elements (None: an argument)."""
    tile = mk.Tile(rows, vectors, target.lanes(dot.accumulate), dot.lhs, dot.rhs, dot.accumulate, dot)
    text, size = Text(target), dtypes.itemsize(dot.lhs)
    with text.function("KERNEL", [*(f"ptr noalias %{p}" for p in "abc"), "i64 %k"], linkage="") as f:
        k = "%k" if depth is None else depth
        places = mk.strided_rows(f, "%a", f.mul(k, size), rows, size)
        sums = mk.multiply_add(
            f, tile, tile.zeros(), places, Panel("%b"), k, chains=mk.chains_for(target, rows, vectors)
        )
        mk.store_tile(f, tile, sums, partial(in_rows, f, tile))
        f.statement("ret void")
    return str(text)


def called(text, target, *arrays, depth):
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(arrays), ctypes.c_int64)
    kind(compiled(text, target).get_function_address("KERNEL"))(*(a.ctypes.data for a in arrays), depth)


def extremes(shape, dtype, seed):
    """Numbers of the whole range of an integer type, small ones of a float."""
    random, kind = np.random.default_rng(seed), dtypes.numpy_dtype(dtype)
    if dtypes.is_float(dtype):
        return random.integers(-8, 9, shape).astype(kind)
    least, most = dtypes.integer_range(dtype)
    return np.where(
        random.random(shape) < 0.3, random.choice([least, most], shape), random.integers(least, most, shape)
    ).astype(kind)


@pytest.mark.parametrize("target, dot", HERE or WITHOUT, ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 4, 5, 7, 8, 31, 64])
def test_dot_products_are_exact_for_any_depth(target, dot, swapped, depth):
    dot = target.dot(*((dot.rhs, dot.lhs) if swapped else (dot.lhs, dot.rhs)), dot.accumulate)
    for rows, vectors in ((1, 1), (5, 2), (3, 3)):
        columns = vectors * target.lanes(dot.accumulate)
        a, b = extremes((rows, depth), dot.lhs, depth), extremes((depth, columns), dot.rhs, depth + 1)
        panel = pack_columns(b, columns, target.lanes(dot.accumulate), dot.group)
        for given in (None, depth):
            text = dot_text(target, dot, rows, vectors, given)
            packed, left = aligned(max(1, panel.nbytes)), guarded(max(1, a.nbytes))
            packed[: panel.nbytes], left[: a.nbytes] = (
                panel.view(np.uint8).reshape(-1),
                a.view(np.uint8).reshape(-1),
            )
            out = aligned(rows * columns * 4)
            called(text, target, left, packed, out, depth=depth)
            got = out.view(dot.accumulate).reshape(rows, columns)
            expected = (a.astype(np.int64) @ b.astype(np.int64)).astype(got.dtype)  # modulo 2^32
            np.testing.assert_array_equal(got, expected)


OF_PAIRS = [(t, t.pairs) for t in LEVELS.values() if t.pairs is not None]


@pytest.mark.parametrize(
    "target, dot",
    [(t, dot) for t, dot in OF_PAIRS if t in RUNNABLE] or WITHOUT,
    ids=lambda v: getattr(v, "name", ""),
)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 7, 64])
def test_sums_of_pairs_are_exact_where_no_pair_leaves_16_bits(target, dot, swapped, depth):
    """Unsigned numbers of 7 bits and any signed ones; any unsigned ones and signed ones of which two of one
    sign are 128 together at most; as words any of both."""
    types = *((dot.rhs, dot.lhs) if swapped else (dot.lhs, dot.rhs)), dot.accumulate
    rows, columns = 3, 2 * target.lanes(dot.accumulate)
    for most, signed in ((127, (-128, 127)), (255, (-64, 64)), (255, (-128, 127))):
        dot = target.byte_dot(*types, pairs=(most, signed) != (255, (-128, 127)))
        assert dot.words == ((most, signed) == (255, (-128, 127)))

        def numbers(shape, dtype, seed, most=most, signed=signed):
            found = extremes(shape, dtype, seed)
            return np.minimum(found, most) if dtype == "uint8" else np.clip(found, *signed)

        a, b = numbers((rows, depth), dot.lhs, depth), numbers((depth, columns), dot.rhs, depth + 1)
        panel = pack_columns(b, columns, target.lanes(dot.accumulate), dot.group)
        packed, left = aligned(panel.nbytes), guarded(a.nbytes)
        packed[:], left[:] = panel.view(np.uint8).reshape(-1), a.view(np.uint8).reshape(-1)
        out = aligned(rows * columns * 4)
        called(dot_text(target, dot, rows, 2, depth), target, left, packed, out, depth=depth)
        np.testing.assert_array_equal(
            out.view(np.int32).reshape(rows, columns), a.astype(np.int64) @ b.astype(np.int64)
        )


@pytest.mark.parametrize("target, dot", [*DOTS, *OF_PAIRS], ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_the_sums_of_dot_products_stay_in_registers(target, dot, vectors):
    text = dot_text(target, dot, mk.most_rows(target, vectors, dot), vectors, 256)
    assert not spills(text, target)


@pytest.mark.parametrize("processor, kind", [("znver4", "bfloat16"), ("icelake-server", "int16")])
def test_products_of_two_alike_broadcast_from_memory_what_one_of_them_reads(processor, kind):
    target = PROCESSORS[processor]
    (dot,) = (d for d in target.dots if d.lhs == d.rhs == kind)
    rows = mk.most_rows(target, 1, dot)
    (loop,) = inner_loops(assembly(dot_text(target, dot, rows, 1, 256), target))
    assert sum("{1to16}" in line for line in loop) == rows


@TARGETS
@pytest.mark.parametrize("columns_first", [True, False])
@pytest.mark.parametrize("group, dtype", [(4, "int8"), (2, "bfloat16")])
def test_code_packs_groups_as_the_compiler_does(target, columns_first, group, dtype):
    lanes, kind = target.lanes("float32"), dtypes.numpy_dtype(dtype)
    for depth, columns in ((1, 1), (4, lanes), (7, 2 * lanes - 1), (10, lanes + 3)):
        b = np.random.default_rng(depth).integers(-9, 9, (depth, columns)).astype(kind)
        stored = np.ascontiguousarray(b if columns_first else b.T)
        strides = (
            (columns * kind.itemsize, kind.itemsize)
            if columns_first
            else (kind.itemsize, depth * kind.itemsize)
        )
        expected = pack_columns(b, 2 * lanes, lanes, group).reshape(-1, -(-columns // lanes) * lanes, group)
        for given in ("%k", depth):
            text = Text(target)
            with text.function("KERNEL", ["ptr noalias %a", "ptr noalias %b", "i64 %k"], linkage="") as f:
                vectors = -(-columns // lanes)
                pack_panel(f, dtype, lanes, vectors, "%a", "%b", given, *strides, columns, group)
                f.statement("ret void")
            source, out = guarded(stored.nbytes), aligned(expected.nbytes)
            source[:] = stored.view(np.uint8).reshape(-1)
            called(str(text), target, source, out, depth=depth)
            got = out.view(kind).reshape(expected.shape)
            np.testing.assert_array_equal(got[:, :columns], expected[:, :columns])


@pytest.mark.parametrize("streams", [1, 2, 8])
def test_a_panel_that_comes_from_memory_is_read_from_as_many_places_as_is_fastest(streams):
    level = LEVELS["x86-64-v4"]
    target = replace(level, run_bytes=1 << 30, facts=replace(level.facts, streams=streams))
    row = mk.Tile(1, 4, 16)
    assert mk.streams_for(target, row, 4096) == streams
    assert mk.streams_for(replace(target, run_bytes=0), row, 4096) == 1
    assert mk.streams_for(target, row, 4) == 1
    assert mk.streams_for(target, row, "%k") == 1
