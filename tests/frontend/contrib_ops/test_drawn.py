"""Operators of com.microsoft over drawn sizes, types and attributes mean what ONNX Runtime makes of them.

The examples are the same in every run; `ONNXC_DRAWS=N` draws N others of each operator."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.contrib import check, check_without_shapes
from support.drawn_contrib import DRAWS

from onnxc.frontend.operators import RULES

MORE = int(os.environ.get("ONNXC_DRAWS", 0))
STORED = (
    "MatMulNBits",
    "FusedConv",
    "QMoE",
    "MatMulBnb4",
    "GatherBlockQuantized",
)  # sizes that must be known
#: Operators that no draw reaches, with what holds them instead.
ELSEWHERE = {
    **dict.fromkeys(
        ("BiasAdd", "BiasSoftmax", "BiasSplitGelu", "GroupNorm", "SkipGroupNorm"),
        "ONNX Runtime has no kernel: by definition in test_fused",
    ),
    **dict.fromkeys(("RelativePositionBias", "GatedRelativePositionBias"), "no kernel: test_attention"),
    "QLinearReduceMean": "no kernel: test_quantized",
    **dict.fromkeys(("QLinearConv", "MatMulInteger16", "NhwcMaxPool"), "cases of test_quantized"),
    **dict.fromkeys(("ScaledSiLU", "TransposeMatMul"), "cases of test_fused"),
    **dict.fromkeys(
        (
            "DynamicTimeWarping",
            "GatherND",
            "GridSample",
            "Range",
            "SampleOp",
            "UnfoldTensor",
            "WordConvEmbedding",
        ),
        "cases of test_others",
    ),
    **dict.fromkeys(
        (
            *("BranchwiseRMSNorm", "CausalConvWithState", "GatedAdd", "GatedDeltaNet", "GatedRMSNorm"),
            *("HyperConnectionPostMix", "HyperConnectionPreMix", "LinearAttention", "LinearAttentionGate"),
        ),
        "cases of test_linear_attention",
    ),
    **dict.fromkeys(
        ("EngramGate", "NGramHashMapping", "VarlenCausalConvWithState", "VarlenNGramHashMapping"),
        "cases of test_engram",
    ),
    **dict.fromkeys(
        ("ConvTransposeWithDynamicPads", "CropAndResize", "MaxpoolWithMask"), "cases of test_images"
    ),
    **dict.fromkeys(("GatherPacked", "MatMulFpQ4"), "cases of test_low_bit"),
    "BifurcationDetector": "cases of test_speculation",
    "MurmurHash3": "test_text",
    "MRotaryEmbedding": "cases of test_attention",
    **dict.fromkeys(("DecoderMaskedMultiHeadAttention", "SparseAttention"), "drawn in test_caches"),
    "AttnLSTM": "drawn in test_attn_lstm",
    **dict.fromkeys(("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"), "test_generation"),
    "NGramRepeatBlock": "drawn in test_logits",
    "Tokenizer": "test_text",
    "SparseToDenseMatMul": "takes sparse tensors: tests/onnxruntime_interface/test_running.py",
    "MoEGroupRouter": "test_experts",
}
KINDS = {draw: [name for name in DRAWS if DRAWS[name] is draw] for draw in DRAWS.values()}


def test_every_operator_is_drawn_or_held_elsewhere():
    operators = {name for domain, name in RULES if domain == "com.microsoft"}
    assert operators - DRAWS.keys() == ELSEWHERE.keys()


@pytest.mark.parametrize("names", KINDS.values(), ids="-".join)
def test_a_drawn_case_gives_what_onnxruntime_does(names):
    drawn: set[str] = set()

    @settings(
        max_examples=MORE or 3 + 5 * (len(names) - 1),
        derandomize=not MORE,
        deadline=None,
        database=None,
        phases=(Phase.generate, *([Phase.shrink] if MORE else [])),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 2**32 - 1), st.booleans())
    def holds(seed: int, symbolic: bool) -> None:
        case = DRAWS[names[0]](np.random.default_rng(seed))
        drawn.add(case.op)
        check(case, symbolic=symbolic and case.op not in STORED)

    holds()
    assert drawn == set(names) or (MORE and drawn < set(names))


@pytest.mark.parametrize("names", KINDS.values(), ids="-".join)
def test_inputs_without_shapes_need_few_cases_and_give_what_their_shapes_give(names):
    for seed in range(1 + len(names)):
        check_without_shapes(DRAWS[names[0]](np.random.default_rng(seed)), 45)
