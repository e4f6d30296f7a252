"""What only other processors have a form for is refused in a sentence; so is what does not fit together."""

from __future__ import annotations

import numpy as np
import pytest
from support.contrib import Case, as_model

from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model

X, W, B = np.zeros((2, 5, 8), np.float32), np.zeros((8, 24), np.float32), np.zeros(24, np.float32)
SEQLENS, TOTAL = np.zeros(2, np.int32), np.ones(1, np.int32)
WEIGHTS, SCALES = np.zeros((6, 2, 8), np.uint8), np.ones((6, 2), np.float32)
EXPERTS = [np.zeros((2, 4, 8), np.float32), None, np.zeros((2, 8, 4), np.float32)]
GROUPED = {"num_heads": 2, "kv_num_heads": 1}
BYTES = [np.zeros((2, 3), np.uint8), np.float32(0.1), np.uint8(0)]

CASES = [
    (Case("Attention", [X, W, B], {"num_heads": 2, "do_rotary": 1}), "turns its heads"),
    (Case("Attention", [X, W, B], {"num_heads": 5}), "does not consist of 5 heads"),
    (Case("Attention", [X, W, B], {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}), "do not give queries"),
    (
        Case("Attention", [X, W, B], {"num_heads": 2, "qkv_hidden_sizes": [6, 6, 12]}, (0, 1)),
        "no one present holds keys of 3 and values of 6",
    ),
    (Case("Attention", [X, W, B, np.ones((2, 1, 9, 9), np.int32)], {"num_heads": 2}), "a mask of 4 axes"),
    (Case("MultiHeadAttention", [X], {"num_heads": 2}), "without keys or values"),
    (
        Case("GroupQueryAttention", [X, X, None, None, None, SEQLENS, TOTAL], GROUPED),
        "without keys or values",
    ),
    (
        Case(
            "GroupQueryAttention",
            [X, None, None, None, None, SEQLENS, TOTAL],
            {**GROUPED, "sliding_window_cache": 1},
        ),
        "comes without a past",
    ),
    (
        Case(
            "GroupQueryAttention",
            [X, None, None, np.zeros((2, 1, 0, 2), np.float32), None, SEQLENS, TOTAL],
            GROUPED,
        ),
        "past keys and values go together",
    ),
    (
        Case(
            "GroupQueryAttention",
            [X, None, None, *[np.zeros((2, 1, 0, 4), np.float32)] * 2, SEQLENS, TOTAL],
            GROUPED,
        ),
        "the size 4 where 2 is needed",
    ),
    (Case("MatMulNBits", [X[0], WEIGHTS, SCALES], {"K": 8, "N": 6, "block_size": 12}), "in blocks of 12"),
    (
        Case("MatMulNBits", [X[0], WEIGHTS, SCALES], {"K": 32, "N": 6, "block_size": 16, "bits": 5}),
        "bits is 5",
    ),
    (
        Case(
            "MatMulNBits", [X[0], WEIGHTS[:, :0, :6], SCALES], {"K": 8, "N": 6, "block_size": 16}, stored=(1,)
        ),
        "neither weights [6, 1, 8] nor omitted ones",
    ),
    (
        Case("MatMulNBits", [X[0], WEIGHTS[:0], SCALES], {"K": 32, "N": 6, "block_size": 16}, stored=(1,)),
        "no rows of 32 numbers",
    ),
    (Case("MoE", [X, X[0, :, :2], W, None, W], {"use_sparse_mixer": 1}), "a sparse mixer"),
    (Case("MoE", [X, X[:, :, :2], *EXPERTS]), "is not one of tokens to experts"),
    (Case("MoE", [X[0], X[0, :, :3], *EXPERTS]), "has the size 2 where 3 is needed"),
    (Case("MoE", [X[0], X[0, :, :2], EXPERTS[0], B[:12].reshape(2, 6), EXPERTS[2]]), "the size 6 where 4 is"),
    (Case("MoE", [X[0], X[0, :, :2], W, None, EXPERTS[2]]), "is of no layer of experts"),
    (Case("MoE", [X[0], X[0, :, :2], *EXPERTS], {"swiglu_fusion": 3}), "swiglu_fusion is 3"),
    (Case("NGramRepeatBlock", [np.ones((1, 3), np.int64), X[0]], {"ngram_size": 2}), "the size 5 where 1 is"),
    (Case("FusedConv", [X, X[:1, :, :1]], {"activation": "Gelu"}), "the activation Gelu is none of"),
    (Case("QLinearConcat", [np.float32(1), np.uint8(0), *BYTES[:2]], {"axis": 0}), "no tensors with scales"),
    (Case("QLinearAdd", [*BYTES, *BYTES, np.float32(0), BYTES[2]], stored=(6,)), "the scale is 0"),
    (Case("CDist", [X[0], W], {"metric": "cosine"}), "metric is cosine"),
    (Case("Inverse", [X[0]]), "no square matrix"),
    (Case("ScaledSiLU", [X, B[:8]]), "the scale should have one element"),
    (Case("BiasGelu", [X]), "2 at least are needed"),
    (Case("BiasSplitGelu", [X[..., :3], X[0, 0, :3]]), "3 numbers have no halves"),
]


@pytest.mark.parametrize(("case", "sentence"), CASES, ids=[sentence for _, sentence in CASES])
def test_a_sentence_says_what_is_wrong(case, sentence):
    with pytest.raises(ModelErrors) as caught:
        import_model(as_model([case])[0])
    assert sentence in str(caught.value)


OPEN = [
    (
        Case("MoEGroupRouter", [X[0], B[:8]], {"n_group": 4, "topk_group": 2, "top_k": 3}),
        "4 groups of experts whose number only the run tells",
    ),
    (
        Case("QMoE", [X[0], X[0, :, :6], WEIGHTS[:, :, :4], SCALES, None, WEIGHTS[:, :, :4], SCALES]),
        "whose length only the run tells",
    ),
]


@pytest.mark.parametrize(("case", "sentence"), OPEN, ids=[case.op for case, _ in OPEN])
def test_a_sentence_says_which_size_must_be_known(case, sentence):
    with pytest.raises(ModelErrors) as caught:
        import_model(as_model([case], symbolic=True)[0])
    assert sentence in str(caught.value)
