"""Attention that writes new keys into a cache with room means what ONNX Runtime makes of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support import contrib
from support.contrib import (
    Case,
    as_model,
    check,
    check_compiled,
    drawing,
    in_place,
    interpreted,
    runtime,
    same,
)

import onnxc.onnxruntime as ours
from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.ir.graph import Graph
from onnxc.ir.interpret import InterpretError, run_graph

rng = np.random.default_rng(21)
floats = partial(contrib.floats, rng, scale=0.5)
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


def masked(batch: int, keys: int) -> np.ndarray:
    """A mask that hides some keys of each sequence, and not the last."""
    mask = (rng.random((batch, keys)) < 0.7).astype(np.int32)
    mask[:, -1] = 1
    return mask


def decoder(
    groups: int, width: int, heads: int, past: int, room: int, *wanted: str, **attributes: object
) -> Case:
    """One new row a sequence of `groups` times `width` beams, behind `past` others in a cache with room."""
    batch, size = groups * width, 8
    bias_shape = [(1, heads, 1, past + 1), (1, 1, 1, past + 1)][past % 2]
    inputs = [
        *(floats(batch, 1, heads * size) for _ in range(3)),
        masked(batch, past + 1) if "mask" in wanted else None,
        floats(*bias_shape) if "bias" in wanted else None,
        *(floats(batch, heads, room, size) for _ in range(2)),
        np.array([past], np.int32),
        *(
            [np.array([width], np.int32), rng.integers(0, width, (groups, width, room)).astype(np.int32)]
            if "beams" in wanted
            else [None, None]
        ),
        floats(3 * heads * size) if "biases" in wanted else None,
    ]
    scores = (3,) if "scores" in wanted else ()
    attributes = {"num_heads": heads, "past_present_share_buffer": 1, "output_qk": len(scores), **attributes}
    return Case("DecoderMaskedMultiHeadAttention", inputs, attributes, (0, 1, 2, *scores), typed=scores)


def crossed(batch: int, heads: int, keys: int, **attributes: object) -> Case:
    """One row a sequence over keys and values of an encoder."""
    size = 8
    inputs = [
        floats(batch, 1, heads * size),
        *(floats(batch, heads, keys, size) for _ in range(2)),
        masked(batch, keys),
        *(None,) * 6,
        floats(3 * heads * size),
    ]
    return Case("DecoderMaskedMultiHeadAttention", inputs, {"num_heads": heads, **attributes})


def shared(batch: int, queries: int, past: int, room: int, beams: int = 0) -> Case:
    """MultiHeadAttention that writes into a cache with room."""
    heads, size = 2, 8
    inputs = [
        *(floats(batch, queries, heads * size) for _ in range(3)),
        *(floats(3 * heads * size), None, None),
        *(floats(batch, heads, room, size) for _ in range(2)),
        np.array([past], np.int32),
        rng.integers(0, beams, (batch // beams, beams, room)).astype(np.int32) if beams else None,
    ]
    return Case("MultiHeadAttention", inputs, {"num_heads": heads}, (0, 1, 2))


ALL = [
    decoder(2, 2, 2, 3, 6),
    decoder(2, 2, 2, 3, 6, "beams", "mask"),
    decoder(1, 3, 2, 4, 5, "beams", "bias", "biases", "scores", scale=0.3, mask_filter_value=-2.0),
    decoder(3, 1, 1, 0, 4, "mask", "scores"),
    crossed(2, 3, 5),
    crossed(1, 1, 1, scale=0.5),
    shared(2, 3, 0, 6),
    shared(2, 1, 3, 6),
    shared(4, 1, 3, 6, beams=2),
]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_results_are_those_of_onnxruntime(case):
    check(case)


@pytest.mark.slow
@drawing(12)
@given(data=st.data())
def test_drawn_decoders_mean_the_same(data):
    groups, width, heads = (data.draw(st.integers(1, 3)) for _ in range(3))
    past = data.draw(st.integers(0, 9))
    wanted = data.draw(st.sets(st.sampled_from(["beams", "mask", "bias", "biases", "scores"])))
    check(decoder(groups, width, heads, past, past + data.draw(st.integers(1, 4)), *wanted), symbolic=True)


# Caches of few bits -------------------------------------------------------------------------------------


def quantised(batch: int, queries: int, past: int, bits: int, each: bool, **attributes: object) -> Case:
    """4 heads, 2 of keys, whose cache has whole numbers, with a step for all or for each element of a row."""
    heads, groups, size = 4, 2, 16
    kind = np.int8 if bits == 8 else np.uint8
    limits = np.iinfo(kind)
    steps = [np.float32(0.5**bits * (1 + rng.random(groups * size if each else 1))) * 4 for _ in range(2)]
    inputs = [
        *(floats(batch, queries, count * size) for count in (heads, groups, groups)),
        *(
            rng.integers(limits.min, limits.max, (batch, groups, past, size * bits // 8), kind, endpoint=True)
            for _ in range(2)
        ),
        *(np.full(batch, past + queries - 1, np.int32), np.array([past + queries], np.int32)),
        *(None,) * 5,
        *(np.asarray(step, np.float32) for step in steps),
    ]
    names = dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_CHANNEL" if each else "PER_TENSOR")
    counts = {"num_heads": heads, "kv_num_heads": groups, "kv_cache_bit_width": bits}
    return Case("GroupQueryAttention", inputs, {**counts, **names, **attributes}, (0, 1, 2))


QUANTISED = [
    quantised(2, 1, 4, 8, False),
    quantised(2, 1, 3, 8, True, local_window_size=2),
    quantised(2, 1, 5, 4, False, softcap=2.0),
    quantised(1, 3, 2, 4, True),
    quantised(2, 5, 0, 8, True),
]


@pytest.mark.parametrize("case", QUANTISED, ids=str)
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_quantised_caches_are_written_and_read_alike(case, symbolic):
    check(case, symbolic)


# Caches that are windows --------------------------------------------------------------------------------


def windowed(queries: int, lengths: list[int], capacity: int, window: int, **attributes: object) -> Case:
    """lengths: of the sequences, new words included."""
    heads, groups, size, batch = 4, 2, 16, len(lengths)
    inputs = [
        *(floats(batch, queries, count * size) for count in (heads, groups, groups)),
        *(floats(batch, groups, capacity, size) for _ in range(2)),
        *(np.array(lengths, np.int32) - 1, np.array([max(lengths)], np.int32)),
        *(floats(64, size // 2) for _ in range(2)),
    ]
    given = {"local_window_size": window, "sliding_window_cache": 1, "do_rotary": 1, **attributes}
    return Case(
        "GroupQueryAttention", inputs, {"num_heads": heads, "kv_num_heads": groups, **given}, (0, 1, 2)
    )


def there(length: int, capacity: int, window: int) -> int:
    """How many rows a window's cache has: when it is full, as many go at once as it is larger than the
    window."""
    while length > capacity:
        length -= capacity - window + 1
    return length


@pytest.mark.slow
@drawing(15)
@given(st.data())
def test_windows_keep_the_rows_that_onnxruntime_keeps(data):
    window, spare, symbolic = (
        data.draw(st.integers(1, 6)),
        data.draw(st.integers(0, 5)),
        data.draw(st.booleans()),
    )
    lengths = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3))
    queries = 1
    if len(lengths) == 1 or data.draw(st.booleans()):  # a prompt, or several words of one sequence
        lengths = [lengths[0]] * len(lengths)
        queries = lengths[0] if len(lengths) > 1 else data.draw(st.integers(1, lengths[0]))
    case = windowed(queries, lengths, window + spare, window, smooth_softmax=data.draw(st.integers(0, 1)))
    found, expected = interpreted(case, symbolic), runtime(*as_model([case]))
    same(found[0], expected[0], 1e-5)
    for entry, length in enumerate(lengths):
        kept = there(length, window + spare, window)
        for one, other in zip(found[1:], expected[1:]):
            same(one[entry, :, :kept], other[entry, :, :kept], 1e-5)


def biased(
    lengths: list[int], queries: int, shared: tuple[bool, bool] = (False, False), **more: object
) -> Case:
    """A cache of 7 places with a window of 4, and a bias of every key that there was. shared: by the
    sequences, by the heads. more: attributes, `sink`, `counts` of the queries that count, `bits` of the
    cache."""
    heads, groups, size, batch = 4, 2, 32, len(lengths)
    counts, bits = more.pop("counts", None), more.pop("bits", 0)
    low, high, stored, dtype = {
        0: (0, 1, size, np.float32),
        4: (0, 256, size // 2, np.uint8),
        8: (-128, 128, size, np.int8),
    }[bits]
    past = [
        floats(batch, groups, 7, size)
        if bits == 0
        else rng.integers(low, high, (batch, groups, 7, stored)).astype(dtype)
        for _ in range(2)
    ]
    ones = [1 if one else n for one, n in zip(shared, (batch, heads))]
    inputs = [
        *(floats(batch, queries, n * size) for n in (heads, groups, groups)),
        *(*past, np.array(lengths, np.int32) - 1, np.array([max(lengths)], np.int32)),
        *(None, None, None, floats(*ones, queries, max(lengths))),
        floats(heads) if more.pop("sink", False) else None,
        *([np.float32([0.05])] * 2 if bits else [None, None]),
        *(None, None, None if counts is None else np.array(counts, np.int32)),
    ]
    attributes = {
        "num_heads": heads,
        "kv_num_heads": groups,
        "local_window_size": 4,
        "sliding_window_cache": 1,
    }
    if bits:
        attributes |= {
            **dict.fromkeys(("k_quant_type", "v_quant_type"), "PER_TENSOR"),
            "kv_cache_bit_width": bits,
        }
    return Case("GroupQueryAttention", inputs, attributes | more, (0, 1, 2))


BIASED = [
    biased([6], 1),
    biased([20], 3, (True, False)),
    biased([5, 20], 1),
    biased([5, 20], 1, (True, True)),
    biased([5, 20], 1, (False, True), sink=True),
    biased([9, 9], 9, softcap=2.0),
    biased([5, 20], 1, bits=8),
    biased([5, 20], 1, bits=4),
]


@pytest.mark.parametrize("case", BIASED, ids=str)
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
def test_a_window_has_the_bias_of_its_keys(case, symbolic):
    found, expected = interpreted(case, symbolic), runtime(*as_model([case]))
    same(found[0], expected[0], 1e-5)


def test_a_window_has_the_bias_of_its_keys_where_some_queries_count():
    case = biased([5, 20], 3, counts=[2, 3])
    found, expected = interpreted(case)[0], runtime(*as_model([case]))[0]
    same(found[0, :2], expected[0, :2], 1e-5)
    same(found[1], expected[1], 1e-5)


def test_a_bias_of_other_keys_than_a_sequence_has_is_refused():
    case = biased([20], 1)
    case.inputs[10] = case.inputs[10][..., :7]
    with pytest.raises(InterpretError):
        interpreted(case)


# Blocks that are seen -----------------------------------------------------------------------------------


def layouts(count: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Compressed sparse rows of `count` lower triangles, padded with -1."""
    seen = np.tril(rng.random((count, blocks, blocks)) < 0.5) | np.eye(blocks, dtype=bool)
    rows = np.pad(np.cumsum(seen.sum(2), 1), ((0, 0), (1, 0)))
    columns = np.full((count, rows.max()), -1)
    for layout, found in zip(columns, seen):
        layout[: found.sum()] = np.nonzero(found)[1]
    return rows.astype(np.int32), columns.astype(np.int32)


def sparse(batch: int, queries: int, total: int, turns: int, packed: bool, turned: bool) -> Case:
    """4 heads, 2 of keys. All sequences are as long: of one that is shorter ONNX Runtime 1.32 reads another's
    probabilities."""
    heads, groups, size, block, room = 4, 2, 16, 3, 16
    widths = [(heads + 2 * groups) * size] if packed else [heads * size, groups * size, groups * size]
    inputs = [
        *(floats(batch, queries, width) for width in widths),
        *[None] * (3 - len(widths)),
        *(floats(batch, groups, room, size) for _ in range(2)),
        *layouts(turns, 5),
        *(np.array([total], np.int32), np.full(batch, total, np.int32)),
        *(floats(room, size // 2) if turned else None for _ in range(2)),
    ]
    attributes = {
        **{"num_heads": heads, "kv_num_heads": groups, "sparse_block_size": block},
        **{"do_rotary": int(turned), "rotary_interleaved": int(packed), "scale": 0.3 if packed else 0.0},
    }
    return Case("SparseAttention", inputs, attributes, (0, 1, 2))


@pytest.mark.parametrize(
    "case",
    [
        sparse(2, 4, 4, 2, True, True),
        sparse(1, 1, 5, 4, False, False),
        decoder(2, 2, 4, 5, 9, "beams", "biases", "mask"),
        shared(2, 3, 4, 9),
    ],
    ids=lambda case: case.op,
)
def test_caches_that_are_bound_to_one_memory_are_as_onnxruntime_changes_them(case):
    for found, expected in zip(in_place(case, ours), in_place(case), strict=True):
        same(found, expected, 1e-5)


@pytest.mark.slow
@drawing(12)
@given(
    st.integers(1, 2), st.integers(1, 9), st.sampled_from([1, 2, 4]), st.booleans(), st.booleans(), st.data()
)
def test_queries_see_the_blocks_that_onnxruntime_shows_them(batch, queries, turns, packed, turned, data):
    # a prompt, or one more row: of several more ONNX Runtime turns each sequence's as the first's
    total = queries if data.draw(st.booleans()) else data.draw(st.integers(queries, 15))
    case = sparse(batch, queries if total == queries else 1, total, turns, packed, turned)
    for found, expected in zip(interpreted(case, symbolic=True), in_place(case), strict=True):
        same(found, expected, 1e-5)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"sparse_block_size": 0}, "blocks of 0 places"), ({"num_heads": 6}, "6 heads do not share 4 layouts")],
)
def test_blocks_and_layouts_that_do_not_fit_are_refused(change, sentence):
    case = sparse(1, 1, 5, 4, False, False)
    inputs = [floats(1, 1, 6 * 16), *case.inputs[1:]] if "num_heads" in change else case.inputs
    with pytest.raises(ModelErrors, match=sentence):
        interpreted(replace(case, inputs=inputs, attributes={**case.attributes, **change}))


@pytest.mark.parametrize(
    ("place", "given"),
    [
        (5, [0, 1, 2, 4, 9]),
        (5, [0, 1, 4, 2, 6]),
        (5, [0, -1, 2, 4, 6]),
        (5, [1, 1, 2, 4, 6]),
        (6, [0, 1, 0, 2, 2, 4]),
        (6, [0, 1, 0, 2, 2, -1]),
    ],
    ids=["beyond the columns", "descending", "negative", "begun", "no such block", "no block"],
)
def test_rows_of_a_layout_are_in_order_and_of_blocks(place, given):
    case = sparse(1, 1, 5, 1, False, False)
    inputs = [*case.inputs]
    inputs[5:7] = np.array([[0, 1, 2, 4, 6]], np.int32), np.array([[0, 1, 0, 2, 2, 3]], np.int32)
    interpreted(replace(case, inputs=inputs))
    inputs[place] = np.array([given], np.int32)
    with pytest.raises(InterpretError, match="index out of range"):
        interpreted(replace(case, inputs=inputs))


def test_no_sequence_has_more_keys_than_the_longest():
    case = sparse(2, 1, 5, 1, False, False)
    case.inputs[8][1] = 6
    with pytest.raises(InterpretError, match="index out of range"):
        interpreted(case)


@pytest.mark.slow
def test_a_library_of_them_computes_what_the_interpreter_does(tmp_path):
    check_compiled(
        [ALL[1], ALL[4], ALL[8], sparse(2, 5, 5, 2, False, True), *QUANTISED[1:4], windowed(1, [9, 5], 6, 4)],
        tmp_path,
    )


def of_any_size(past: int) -> tuple[Graph, list[np.ndarray]]:
    """Attention of 4 heads of 8 over 2 groups behind a cache of which the file tells no size; its inputs but
    for the cache."""
    cache = ["sequences", "groups", "past", "size"]
    shapes = {"q": ["batch", "rows", 64], "last": ["batch"], "total": [], "k": cache, "v": cache}
    declared = [
        helper.make_tensor_value_info(name, FLOAT if name in ("q", "k", "v") else INT32, shape)
        for name, shape in shapes.items()
    ]
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "", "", "k", "v", "last", "total"],
        ["y", "keys", "values"],
        domain="com.microsoft",
        num_heads=4,
        kv_num_heads=2,
    )
    results = [helper.make_tensor_value_info(name, FLOAT, None) for name in node.output]
    model = helper.make_model(
        helper.make_graph([node], "g", declared, results),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
    )
    given = [floats(1, 3, 64), np.array([past + 2], np.int32), np.array(past + 3, np.int32)]
    return import_model(model).graph, given


@pytest.mark.parametrize(
    "shape", [(1, 2, 0, 4), (1, 2, 0, 16), (1, 1, 0, 8), (1, 4, 4, 4), (2, 2, 0, 8)], ids=str
)
def test_a_cache_of_other_heads_fails_the_run_also_where_it_is_empty(shape):
    graph, given = of_any_size(shape[2])
    with pytest.raises(InterpretError, match="dims mismatch"):
        run_graph(graph, [*given, *[np.zeros(shape, np.float32)] * 2])


def test_an_empty_cache_of_the_same_heads_begins_a_sequence():
    graph, given = of_any_size(0)
    _, keys, _ = run_graph(graph, [*given, *[np.zeros((1, 2, 0, 8), np.float32)] * 2])
    np.testing.assert_array_equal(keys, given[0].reshape(1, 3, 8, 8)[:, :, 4:6].transpose(0, 2, 1, 3))
