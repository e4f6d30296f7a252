"""Hashes of the last tokens, gates, and convolutions of sequences one behind the other mean what ONNX Runtime
makes of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, as_model, check, check_compiled

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError, run_graph

rng = np.random.default_rng(11)
floats = partial(contrib.floats, rng)


def tokens(*shape: int) -> np.ndarray:
    return rng.integers(0, 5, shape)


SIZES, FACTORS = np.array([11, 13, 17, 19]), np.array([7919, -104729, 2**62 + 1])
ENDS = np.array([0, 1, 4, 9], np.int32)
SEGMENTS = np.array([[1, 1, 2, 2, 2], [3, 3, 3, 3, 4]], np.int32)
CAPTURE = np.array([2, 0, 3], np.int32)
HASH = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 9}
ENDED = HASH | {"reset_on_eos": 1}
NARROW = [SIZES.astype(np.int32), np.array([101, 2**31 - 1, -3, 8], np.int32)]

ALL = [
    Case("NGramHashMapping", [tokens(2, 5), FACTORS, SIZES], HASH, outputs=(0, 1)),
    Case("NGramHashMapping", [tokens(2, 1), FACTORS, SIZES, tokens(2, 2), SIZES], HASH, outputs=(0, 1)),
    Case(
        "NGramHashMapping",
        [tokens(2, 5).astype(np.int32), NARROW[1], NARROW[0], None, None, np.int32(2), SEGMENTS],
        ENDED,
        outputs=(0, 1),
    ),
    Case("NGramHashMapping", [tokens(2, 5), FACTORS, SIZES, tokens(2, 2), None, np.int64(2)], ENDED),
    Case("VarlenNGramHashMapping", [tokens(9), FACTORS, SIZES, ENDS], HASH, outputs=(0, 1)),
    Case(
        "VarlenNGramHashMapping",
        [tokens(9), FACTORS, SIZES, ENDS, tokens(3, 2), SIZES, np.int64(1), None, None, CAPTURE],
        ENDED | {"state_update_capacity": 3},
        outputs=(0, 1, 3),
    ),
    Case(
        "VarlenNGramHashMapping",
        [
            *(tokens(9), FACTORS, SIZES, ENDS, tokens(3, 2), None, np.int64(1)),
            *(tokens(9).astype(np.int32), tokens(3, 2).astype(np.int32)),
        ],
        ENDED,
        outputs=(0, 1, 2),
    ),
    Case("EngramGate", [floats(2, 3, 4, 5), floats(2, 3, 4, 5), floats(2, 3, 5), floats(4, 5), floats(4, 5)]),
    Case(
        "EngramGate",
        [
            *(floats(1, 3, 2, 16).astype(np.float16) for _ in range(2)),
            floats(1, 3, 16).astype(np.float16),
            *(floats(2, 16).astype(np.float16) for _ in range(3)),
        ],
        {"epsilon": 1e-3},
        outputs=(0, 1),
        tolerance=2e-3,
    ),
    Case(
        "VarlenCausalConvWithState",
        [floats(9, 6), floats(6, 1, 4), ENDS, floats(6), floats(3, 6, 3)],
        {"activation": "silu"},
        outputs=(0, 1),
    ),
    Case(
        "VarlenCausalConvWithState",
        [floats(9, 6), floats(6, 1, 3), ENDS, None, floats(3, 6, 4), CAPTURE],
        {"dilation": 2, "state_update_capacity": 2},
        outputs=(0, 1, 2),
    ),
]


@pytest.mark.parametrize("case", ALL, ids=str)
@pytest.mark.parametrize("symbolic", [False, True], ids=["sized", "open"])
def test_the_results_are_those_of_onnxruntime(case, symbolic):
    check(case, symbolic)


@pytest.mark.slow
def test_a_library_of_them_computes_what_the_interpreter_does(tmp_path):
    check_compiled(ALL, tmp_path)


def test_the_hashes_have_sizes_and_offsets_for_each_or_the_run_fails():
    case = Case("NGramHashMapping", [tokens(2, 5), FACTORS, SIZES], HASH, outputs=(0, 1))
    proto, _ = as_model([case])
    proto.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "sizes"
    graph = import_model(proto).graph
    run_graph(graph, case.inputs)
    for sizes in (SIZES[:-1], np.append(SIZES, SIZES[:1])):
        with pytest.raises(InterpretError):
            run_graph(graph, [*case.inputs[:2], sizes])
