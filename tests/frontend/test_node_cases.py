"""The node cases of the onnx package's backend suite by the interpreter, with their sizes and
with variables for them, in shards that workers share."""

from __future__ import annotations

import pytest
from support.node_cases import node_cases, verdict

#: Reasons why cases do not agree, with what their names begin with. The list may only shrink.
DISAGREE = {
    "the interpreter decodes no images": ("test_image_decoder_",),
    "the numbers are random": (
        "test_bernoulli",
        "test_training_dropout_default",
        "test_training_dropout_mask",
        "test_training_dropout",
    ),
    "the last digit of float16, or rounding noise where zero is right": (
        "test_attention_4d_causal_fp16_expanded",
        "test_dft_inverse",
    ),
}
#: What must be known while compiling, and is not where every size is a variable.
DISAGREE_SYMBOLIC = {
    **DISAGREE,
    "the depth of positions": ("test_gathernd_example", "test_scatternd"),
    "how many heads share keys": ("test_attention_4d_gqa", "test_attention_local_window_gqa"),
    "the number of groups of channels": ("test_causal_conv_with_state",),
}

#: How many of them agree: may only grow.
LEAST_AGREEING = {False: 1862, True: 1829}
SHARDS = 128


def expected(name: str, reasons: dict[str, tuple[str, ...]]) -> bool:
    return any(name.startswith(part) for parts in reasons.values() for part in parts)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_node_cases_agree(shard, symbolic):
    reasons = DISAGREE_SYMBOLIC if symbolic else DISAGREE
    cases = [case for case in node_cases()[shard::SHARDS] if not expected(case.name, reasons)]
    assert {case.name: why for case in cases if (why := verdict(case, symbolic))} == {}


@pytest.mark.slow
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_no_fewer_cases_agree_than_ever(symbolic):
    reasons = DISAGREE_SYMBOLIC if symbolic else DISAGREE
    failing = [c for c in node_cases() if expected(c.name, reasons) and verdict(c, symbolic)]
    assert len(node_cases()) - len(failing) >= LEAST_AGREEING[symbolic]


@pytest.mark.slow
def test_reasons_are_needed():
    """Every reason's names still name cases that do not agree."""
    for part in (part for parts in DISAGREE_SYMBOLIC.values() for part in parts):
        named = [case for case in node_cases() if case.name.startswith(part)]
        assert any(verdict(case, symbolic=True) for case in named), part
