"""Attention and its kin refuse sizes that do not fit as ONNX Runtime does where the model leaves all open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, Feeds, as_model, in_place, runtime
from support.open_sizes import opened, resized
from support.shared import shared

import onnxc

rng = np.random.default_rng(8)
floats = partial(contrib.floats, rng)


def ints(*values: object) -> np.ndarray:
    return np.array(values, np.int32)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int32)


TWO = {"num_heads": 2}
X, W, B = floats(2, 3, 8), floats(8, 24), floats(24)  # 2 heads of 4, batch 2, 3 words
Q, K, V = floats(2, 3, 16), floats(2, 5, 16), floats(2, 5, 16)  # 2 heads of 8
KEYS, VALUES = floats(2, 2, 5, 8), floats(2, 2, 5, 8)
ROW, ROOM, PAST = floats(2, 1, 16), floats(2, 2, 9, 8), np.array([3], np.int32)


def projected(*more: np.ndarray | None, **attributes: object) -> Case:
    outputs = (0, 1) if len(more) > 1 and more[1] is not None else (0,)
    return Case("Attention", [X, W, B, *more], {**TWO, **attributes}, outputs)


def several(*inputs: np.ndarray | None, outputs: int = 1) -> Case:
    return Case("MultiHeadAttention", inputs, TWO, tuple(range(outputs)))


def decoder(*inputs: np.ndarray | None, outputs: int = 1, **attributes: object) -> Case:
    return Case("DecoderMaskedMultiHeadAttention", inputs, {**TWO, **attributes}, tuple(range(outputs)))


def grouped(batch: int, queries: int, past: int | None, *more: np.ndarray | None, **attributes: int) -> Case:
    """4 heads of 16 over 2 of keys; a past is of a cache without room."""
    total = queries + (past or 0)
    inputs = [
        *(floats(batch, queries, 16 * n) for n in (4, 2, 2)),
        *([None, None] if past is None else [floats(batch, 2, past, 16) for _ in range(2)]),
        *(np.full(batch, total - 1, np.int32), ints(total)),
        *more,
    ]
    counts = {"num_heads": 4, "kv_num_heads": 2}
    return Case("GroupQueryAttention", inputs, {**counts, **attributes}, (0, 1, 2))


def sparse(queries: int, *more: np.ndarray) -> Case:
    """2 heads of 16, one layout of 4 blocks of 2 places."""
    inputs = [
        *(floats(1, queries, 32) for _ in range(3)),
        *(floats(1, 2, 8, 16) for _ in range(2)),
        *(ints([0, 1, 2, 4, 6]), ints([0, 1, 0, 2, 2, 3])),
        *(ints(5 if queries == 1 else queries), ints(5 if queries == 1 else queries)),
        *more,
    ]
    counts = {"num_heads": 2, "kv_num_heads": 2, "sparse_block_size": 2}
    return Case("SparseAttention", inputs, {**counts, "do_rotary": int(bool(more))}, (0, 1, 2))


def turned(op: str, *inputs: np.ndarray, **attributes: object) -> Case:
    return Case(op, inputs, attributes)


TABLES = [floats(10, 8), floats(10, 8)]
PLACES = rng.integers(0, 10, (2, 3))
BYTES = [rng.integers(0, 255, (2, 3, 8)).astype(np.uint8), rng.integers(-99, 99, (8, 24)).astype(np.int8)]
STEPS = [np.array([0.02], np.float32), np.full(24, 0.01, np.float32)]
PAIR = floats(2, 2, 2, 4, 4)

CASES = [
    Case("Attention", [X, W], TWO),
    projected(),
    projected(ints(3, 2)),
    projected(ints(3, 2, 0, 1)),
    projected(ints(3, 2, 0, 3, 5, 0, 3, 5)),
    projected(ones(2, 3)),
    projected(ones(2, 3, 3)),
    projected(ones(2, 7), PAIR, unidirectional=1),
    projected(None, None, floats(2, 2, 3, 3)),
    Case("Attention", [X, floats(8, 20), floats(20)], {**TWO, "qkv_hidden_sizes": [8, 8, 4]}),
    Case("QAttention", [*BYTES, B, *STEPS, None, np.uint8([3]), np.full(24, 5, np.int8)], TWO),
    Case("QAttention", [*BYTES, B, *STEPS, ones(2, 7), None, None, PAIR], TWO, (0, 1)),
    several(Q, K, V),
    several(Q, K, floats(2, 5, 8), floats(40)),
    several(Q, KEYS, VALUES),
    several(Q, K, V, None, ints(5, 4)),
    several(Q, K, V, floats(48), ones(2, 5), floats(2, 2, 3, 5)),
    several(Q, K, V, None, ones(2, 3, 5), floats(1, 1, 3, 5)),
    several(Q, Q, Q, None, ones(2, 7), floats(2, 1, 3, 7), *[floats(2, 2, 4, 8)] * 2, outputs=3),
    several(ROW, ROW, ROW, None, None, None, ROOM, ROOM, PAST, np.zeros((1, 2, 9), np.int32), outputs=3),
    decoder(ROW, KEYS, VALUES, ones(2, 5), *[None] * 6, floats(48)),
    decoder(
        *[ROW, ROW, ROW, ones(2, 4), floats(1, 2, 1, 4), ROOM, ROOM, PAST, ints(2), ones(1, 2, 9)],
        outputs=3,
        past_present_share_buffer=1,
    ),
    grouped(2, 3, None),
    grouped(2, 3, 0, *TABLES, PLACES, do_rotary=1),
    grouped(2, 1, 4, *TABLES, np.int64([[4], [4]]), floats(2, 4, 1, 5), floats(4), do_rotary=1),
    grouped(1, 3, 4, None, None, None, floats(1, 1, 3, 7), local_window_size=2),
    grouped(2, 1, 4, None, None, None, floats(2, 4, 1, 5), local_window_size=4, sliding_window_cache=1),
    sparse(2),
    sparse(1, *TABLES),
    turned("RotaryEmbedding", Q, PLACES, *TABLES),
    turned("RotaryEmbedding", floats(2, 2, 3, 16), PLACES, *TABLES, interleaved=1),
    turned("RotaryEmbedding", floats(2, 2, 3, 16), np.array([2]), *TABLES),
    turned(
        *["MRotaryEmbedding", floats(2, 3, 32), rng.integers(0, 10, (3, 2, 3)), *TABLES],
        num_heads=2,
        mrope_section=[2, 3, 3],
    ),
]


@dataclass(frozen=True)
class Change:
    """An input's axis of another size."""

    op: str
    place: int
    axis: int
    size: int
    of: int

    def __str__(self) -> str:
        return f"input {self.place} with {self.size} of {self.of} along axis {self.axis}"


def changes(case: Case) -> Iterator[tuple[Change, Case]]:
    """Every size one more, 1 and 0."""
    for place, array in enumerate(case.inputs):
        for axis, other in () if array is None else resized(array):
            inputs = [*case.inputs[:place], other, *case.inputs[place + 1 :]]
            yield (
                Change(case.op, place, axis, other.shape[axis], array.shape[axis]),
                replace(case, inputs=inputs),
            )


def ends_onnxruntime(change: Change) -> bool:
    """Whether ONNX Runtime 1.32 divides by zero, which ends the process."""
    match change:
        case Change("MultiHeadAttention", place=2, axis=2, size=0):  # values of no columns
            return True
        case Change("QAttention", place=0, axis=0, size=0):  # no sequence
            return True
        case Change("RotaryEmbedding", place=0, size=0):  # heads of no elements
            return change.axis >= 2
    return False


def is_asked_more(change: Change) -> bool:
    """Whether onnxc refuses what ONNX Runtime takes."""
    match change:
        case Change("GroupQueryAttention", place=9, axis=1):  # more positions than queries
            return change.size > change.of
        case Change("DecoderMaskedMultiHeadAttention", place=8, size=2):  # the number of beams twice
            return True
    return False


def is_taken(case: Case) -> bool:
    """Whether ONNX Runtime takes the inputs."""
    try:
        in_place(case) if case.op == "SparseAttention" else runtime(*as_model([case]))
    except Exception:  # of several kinds
        return False
    return True


@pytest.fixture(scope="module")
def library():
    """(all cases side by side in one library to which every size is open, its inputs)"""
    proto, feeds = as_model(CASES)
    folder = shared("open_sizes", lambda folder: onnxc.compile(opened(proto), folder / "nodes.so"))
    return onnxc.load(folder / "nodes.so", threads=1), feeds


def refuses(library: tuple[onnxc.Model, Feeds], n: int, place: int, given: np.ndarray | None) -> bool:
    """Whether onnxc refuses an input of a case, in a sentence that names the node or one of its inputs."""
    loaded, feeds = library
    try:
        loaded.run(None, {**feeds, f"x{n}_{place}": given})
    except onnxc.RunError as error:
        assert f"n{n} (" in str(error) or f"'x{n}_" in str(error)
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("n", range(len(CASES)), ids=[f"{n}-{case}" for n, case in enumerate(CASES)])
def test_sizes_that_do_not_fit_are_refused_as_by_onnxruntime(library, n):
    assert is_taken(CASES[n])
    assert not refuses(library, n, 0, CASES[n].inputs[0])
    for change, case in changes(CASES[n]):
        if not ends_onnxruntime(change):
            refused = refuses(library, n, change.place, case.inputs[change.place])
            assert refused is (is_asked_more(change) or not is_taken(case)), str(change)
