"""Attention in all its forms means what ONNX Runtime makes of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, as_model, check, check_compiled, interpreted, runtime, same

from onnxc.diagnostics import ModelErrors
from onnxc.ir.interpret import InterpretError

rng = np.random.default_rng(6)
floats = partial(contrib.floats, rng)


def ints(*values: object) -> np.ndarray:
    return np.array(values, np.int32)


def ones(*shape: int, hidden: float = 0.3) -> np.ndarray:
    """A mask of ones with some zeros, none in the first column."""
    mask = (rng.random(shape) > hidden).astype(np.int32)
    mask[..., 0] = 1
    return mask


# Projected inside: 3 heads of 4, batch 2, 5 words
X, W, B = floats(2, 5, 7), floats(7, 36), floats(36)
PAST = floats(2, 2, 3, 3, 4)


def projected(
    *more: object, outputs: tuple[int, ...] = (0,), stored: tuple[int, ...] = (), **attributes: object
) -> Case:
    return Case("Attention", [X, W, B, *more], {"num_heads": 3, **attributes}, outputs, stored)


PROJECTED = [
    projected(),
    projected(scale=0.3),
    projected(ints(5, 2)),
    projected(ints(5, 2), None, floats(2, 3, 5, 5), stored=(1, 2)),
    projected(ints(5, 4, 1, 0)),
    projected(ones(2, 5)),
    projected(ones(2, 5) * 0),
    projected(ones(2, 1)),
    projected(ones(2, 1) * 0, mask_filter_value=-1e9),
    projected(ones(2, 5, 5), mask_filter_value=-50.0),
    projected(unidirectional=1),
    projected(ones(2, 5), unidirectional=1),
    projected(ones(2, 5, 5), unidirectional=1),
    projected(None, PAST, outputs=(0, 1)),
    projected(ones(2, 8), PAST, outputs=(0, 1), unidirectional=1),
    projected(None, PAST, None, ints(1), outputs=(0, 1)),
    projected(None, None, floats(2, 3, 5, 5)),
    projected(ints(3, 4), None, floats(1, 1, 5, 5), unidirectional=1),
    Case(
        "Attention",
        [x.astype(np.float16) for x in (X, W, B)] + [ints(5, 2), PAST.astype(np.float16)],
        {"num_heads": 3},
        (0, 1),
        tolerance=1e-3,
    ),
    Case("Attention", [X, floats(7, 30), floats(30)], {"num_heads": 3, "qkv_hidden_sizes": [12, 12, 6]}),
]

Q, K, V = floats(2, 4, 12), floats(2, 6, 12), floats(2, 6, 12)
CACHE = [floats(2, 3, 3, 4), floats(2, 3, 3, 4)]


def several(*inputs: object, outputs: tuple[int, ...] = (0,), **attributes: object) -> Case:
    return Case("MultiHeadAttention", inputs, {"num_heads": 3, **attributes}, outputs)


SEVERAL = [
    several(Q, K, V),
    several(Q, K, V, floats(36), scale=0.7),
    several(Q, K, floats(2, 6, 15), floats(39)),
    several(Q, K, V, None, ints(4, 6)),
    several(Q, K, V, None, ones(2, 6), mask_filter_value=-30.0),
    several(Q, K, V, None, ones(2, 4, 6)),
    several(Q, K, V, None, None, floats(1, 3, 4, 6)),
    several(Q, K, V, None, None, floats(2, 1, 4, 6), outputs=(0, 1, 2)),
    several(Q, floats(2, 3, 6, 4), floats(2, 3, 6, 4)),
    several(Q, floats(2, 3, 6, 4), floats(2, 3, 6, 4), floats(36)),
    several(Q, Q, Q[::-1], None, None, None, *CACHE, outputs=(0, 1, 2), unidirectional=1),
    several(Q, Q, Q[::-1], floats(36), ones(2, 7), floats(2, 3, 4, 7), *CACHE, outputs=(0, 1, 2)),
    several(Q[:, :1], Q[:, :1], Q[:, :1], None, None, None, *CACHE, outputs=(0, 1, 2), unidirectional=1),
    Case(
        "MultiHeadAttention",
        [Q, K, V, None, ones(2, 6), floats(1, 3, 4, 6)],
        {"num_heads": 3},
        (0, 3),
        typed=(3,),
    ),
]


def bytes_(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


QUANTISED = [
    Case(
        "QAttention",
        [
            bytes_(first, 2, 5, 7),
            bytes_(second, 7, 36),
            B,
            np.float32(0.02),
            scale,
            mask,
            first(3),
            np.full(scale.shape, 5, second),
            past,
        ],
        {"num_heads": 3, "unidirectional": causal},
        outputs=(0, 1),
        stored=(1, 2, 3, 4, 6, 7) if past is None else (),
        tolerance=1e-4,
    )
    for first, second, scale, mask, past, causal in (
        (np.uint8, np.int8, np.float32(0.01), None, None, 0),
        (np.uint8, np.uint8, np.float32(0.01), ints(4, 5), PAST, 1),
        (np.uint8, np.int8, np.abs(floats(36)) * 0.01, ones(2, 5), None, 0),
    )
]

COSINES, SINES = floats(16, 2), floats(16, 2)
PLACES = rng.integers(0, 16, (2, 5))
STREAMS, ANGLES = rng.integers(0, 16, (3, 2, 5)), (floats(16, 6), floats(16, 6))

ROTARY = [
    Case("RotaryEmbedding", [floats(2, 5, 12), PLACES, COSINES, SINES]),
    Case("RotaryEmbedding", [floats(2, 5, 12), np.array([3]), COSINES, SINES], {"interleaved": 1}),
    Case("RotaryEmbedding", [floats(2, 3, 5, 4), PLACES, COSINES, SINES], {"interleaved": 1}),
    Case("RotaryEmbedding", [floats(1, 5, 12), PLACES[:1], COSINES, SINES], {"is_packed_batching": 1}),
    Case(
        "MRotaryEmbedding", [floats(2, 5, 24), STREAMS, *ANGLES], {"mrope_section": [1, 3, 2], "num_heads": 2}
    ),
    Case(
        "MRotaryEmbedding",
        [floats(2, 3, 5, 12), STREAMS, *ANGLES],
        {"mrope_section": [2, 2, 2], "mrope_layout": 1, "interleaved": 1},
    ),
    Case(
        "RotaryEmbedding",
        [floats(2, 5, 24), PLACES, COSINES, SINES],
        {"num_heads": 3, "rotary_embedding_dim": 4},
    ),
]


@pytest.mark.parametrize("case", [ROTARY[0], ROTARY[1], ROTARY[4]], ids=str)
def test_positions_do_not_count_from_the_end(case):
    x, places, *tables = case.inputs
    with pytest.raises(InterpretError, match="index out of range"):
        interpreted(replace(case, inputs=[x, np.where(places == places.flat[0], -1, places), *tables]))


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_the_last_element_of_an_odd_head_stays(symbolic, interleaved):
    x, tables = floats(1, 3, 5, 17), [floats(16, 8), floats(16, 8)]
    attributes = {"interleaved": interleaved}
    (found,) = interpreted(Case("RotaryEmbedding", [x, PLACES[:1], *tables], attributes), symbolic)
    even = Case("RotaryEmbedding", [x[..., :16], PLACES[:1], *tables], attributes)
    same(found[..., :16], runtime(*as_model([even]))[0], 1e-5)
    np.testing.assert_array_equal(found[..., 16], x[..., 16])


def grouped(
    lengths: list[int],
    queries: int,
    places: int,
    *,
    total: int | None = None,
    packed: bool = False,
    rotary: bool = False,
    bias: tuple[int, ...] | None = None,
    sink: bool = False,
    norms: bool = False,
    positions: bool = False,
    outputs: tuple[int, ...] = (0, 1, 2),
    **attributes: object,
) -> Case:
    """4 heads over 2 groups of size 16. lengths: how many keys each sequence has in the end."""
    batch, total = len(lengths), total or max(lengths)
    q, k, v = floats(batch, queries, 64), floats(batch, queries, 32), floats(batch, queries, 32)
    past = [np.zeros((batch, 2, places, 16), np.float32) for _ in range(2)]
    for n, length in enumerate(lengths):
        for cache in past:
            kept = 0 if queries == total else length - queries
            cache[n, :, :kept] = floats(2, kept, 16)
    seqlens = np.array(lengths, np.int32) - 1
    tables = [floats(16, 8), floats(16, 8)] if rotary else [None, None]
    order = rng.integers(0, 11, (batch, queries)) if positions else None
    given = None if bias is None else floats(*bias, queries, total)
    weights = [floats(16), floats(16)] if norms else [None, None]
    first = [np.concatenate([q, k, v], -1), None, None] if packed else [q, k, v]
    inputs = [
        *first,
        *past,
        seqlens,
        np.array(total, np.int32).reshape(1),
        *tables,
        order,
        given,
        floats(4) if sink else None,
        None,
        None,
        *weights,
    ]
    while inputs[-1] is None:
        inputs.pop()
    return Case(
        "GroupQueryAttention",
        inputs,
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": int(rotary), **attributes},
        outputs,
    )


GROUPED = [
    grouped([5, 5], 5, 0),
    grouped([5, 5], 5, 0, packed=True, rotary=True),
    grouped([5, 5], 5, 9, rotary=True, rotary_interleaved=1),
    grouped([6, 4], 1, 5, rotary=True),
    grouped([6, 6], 1, 9, rotary=True, scale=0.3),
    grouped([7], 3, 4, rotary=True, packed=True),
    grouped([7, 5], 1, 9, local_window_size=3),
    grouped([7], 7, 0, local_window_size=3),
    grouped([6, 6], 1, 5, softcap=1.5),
    grouped([5, 5], 5, 0, softcap=1.5, sink=True),
    grouped([5, 5], 5, 0, smooth_softmax=1),
    grouped([6, 4], 1, 5, sink=True, local_window_size=3),
    grouped([5, 5], 5, 0, bias=(1, 4)),
    grouped([6, 6], 1, 5, bias=(2, 1), softcap=2.0),
    grouped([5, 5], 5, 0, rotary=True, positions=True),
    grouped([6, 4], 1, 5, rotary=True, positions=True),
    grouped([5, 5], 5, 0, causal=0),
    grouped([5, 3], 5, 0, causal=0),
    grouped([5, 5], 5, 0, outputs=(0, 1, 2, 3), qk_output=1),
    grouped([6, 6], 1, 5, outputs=(0, 1, 2, 3), qk_output=2),
]


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_without_new_keys_those_of_the_cache_are_seen(symbolic, queries):
    case = grouped([6], queries, 6, rotary=True)
    q, k, v, *rest = case.inputs
    check(replace(case, inputs=[q, k[:, :0], v[:, :0], *rest]), symbolic)


@pytest.mark.parametrize(("total", "places"), [(70, 6), (8, 6), (5, 0)])
def test_a_number_of_keys_that_are_neither_in_the_cache_nor_new_is_refused(total, places):
    case = grouped([1], 1, places)
    case.inputs[6] = ints(total)
    with pytest.raises(InterpretError, match="dims mismatch"):
        interpreted(case)


# What ONNX Runtime has no kernel for on a processor -----------------------------------------------


def test_packed_operands_are_those_side_by_side():
    q, k, v = (floats(2, 4, 3, 5) for _ in range(3))
    apart = several(*(x.reshape(2, 4, 15) for x in (q, k, v)))
    (expected,) = interpreted(apart)
    for inputs in ([np.stack([q, k, v], 3)], [q.reshape(2, 4, 15), np.stack([k, v], 3)]):
        (found,) = interpreted(several(*inputs))
        same(found, expected, 1e-6)


def test_the_epsilon_of_a_norm_is_positive():
    with pytest.raises(ModelErrors, match=r"epsilon 0\.0"):
        interpreted(grouped([6, 4], 1, 5, norms=True, qk_norm_epsilon=0.1, k_norm_epsilon=0.0))


def test_heads_are_normalized_before_they_are_turned():
    case = grouped([6, 4], 1, 5, rotary=True, norms=True, qk_norm_epsilon=0.1, k_norm_epsilon=0.3)
    found = interpreted(case)

    def normalized(x, weight, epsilon):
        heads = x.reshape(2, 1, -1, 16)
        y = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon) * weight
        return y.reshape(x.shape).astype(np.float32)

    q, k, *rest = case.inputs[:9]
    q, k = normalized(q, case.inputs[14], 0.1), normalized(k, case.inputs[15], 0.3)
    expected = interpreted(
        Case(case.op, [q, k, *rest], {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, (0, 1, 2))
    )
    for x, y in zip(found, expected, strict=True):
        same(x, y, 1e-5)


def test_rows_that_pad_new_queries_change_nothing():
    counts, lengths = [3, 2], [7, 4]
    one, other = (grouped([n], count, 9, total=9, rotary=True) for n, count in zip(lengths, counts))
    padded = [np.zeros((2, 4, x.shape[2]), np.float32) for x in one.inputs[:3]]
    for n, case in enumerate((one, other)):
        for x, given in zip(padded, case.inputs):
            x[n, : counts[n]] = given[0]
    past = [np.concatenate(pair) for pair in zip(one.inputs[3:5], other.inputs[3:5])]
    inputs = [*padded, *past, ints(6, 3), ints(9), *one.inputs[7:9], *[None] * 7, ints(*counts)]
    y, *caches = interpreted(Case(one.op, inputs, one.attributes, one.outputs))
    alone = (
        interpreted(one),
        interpreted(Case(one.op, [*other.inputs[:7], *one.inputs[7:9]], one.attributes, one.outputs)),
    )
    for n, (expected, *kept) in enumerate(alone):
        same(y[n, : counts[n]], expected[0], 1e-5)
        for cache, x in zip(caches, kept):
            same(cache[n, :, : lengths[n]], x[0, :, : lengths[n]], 1e-5)


@pytest.mark.parametrize("both", [0, 1])
def test_a_distance_has_the_bucket_that_t5_gives_it(both):
    buckets, heads, longest = 8, 3, 20
    rows = floats(heads, buckets)  # the data of a table [buckets, heads]
    inputs = [rows.reshape(buckets, heads), np.array([7]), np.array([30])]
    (found,) = interpreted(
        Case("RelativePositionBias", inputs, {"max_distance": longest, "is_bidirectional": both})
    )
    count = buckets // 2 if both else buckets
    near = count // 2

    def bucket(i, j):
        distance = abs(i - j) if both else max(i - j, 0)
        far = near + int(np.log(max(distance, 1) / near) / np.log(longest / near) * (count - near) + 1e-6)
        return (count if both and j > i else 0) + (distance if distance < near else min(far, count - 1))

    places = np.array([[bucket(i, j) for j in range(30)] for i in range(7)])
    same(found, rows[:, places][None], 0)


def test_the_gate_of_positions_follows_the_query():
    x, c, p = floats(2, 5, 12), floats(12), floats(1, 3, 5, 5)
    w, d, a = floats(4, 8), floats(8), floats(1, 3, 1, 1)
    (found,) = interpreted(Case("GatedRelativePositionBias", [x, c, p, w, d, a], {"num_heads": 3}))
    heads = (x + c).reshape(2, 5, 3, 4).transpose(0, 2, 1, 3)
    sums = (heads @ w + d).reshape(2, 3, 5, 2, 4).sum(-1)
    u, r = np.split(1 / (1 + np.exp(-sums)), 2, -1)
    same(found, ((u * (r * a - 1) + 2) * p).astype(np.float32), 1e-5)


@pytest.mark.parametrize(("place", "axis"), [(1, 0), (2, 1), (2, 2), (2, 3), (4, 0)])
def test_no_operand_of_the_gate_repeats(place, axis):
    inputs = [floats(2, 5, 12), floats(12), floats(1, 3, 5, 5), floats(4, 8), floats(8), floats(1, 3, 1, 1)]
    inputs[place] = inputs[place].take([0], axis)
    with pytest.raises(InterpretError):
        interpreted(Case("GatedRelativePositionBias", inputs, {"num_heads": 3}), symbolic=True)


ALL = PROJECTED + SEVERAL + QUANTISED + ROTARY + GROUPED


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("case", ALL, ids=str)
def test_the_results_are_those_of_onnxruntime(case, symbolic):
    check(case, symbolic)


@pytest.mark.slow
def test_a_library_of_some_of_each_computes_what_the_interpreter_does(tmp_path):
    some = [PROJECTED[3], PROJECTED[13], SEVERAL[10], QUANTISED[2], ROTARY[1], GROUPED[3], GROUPED[9]]
    check_compiled(some, tmp_path)
