"""Attention with a state, its gates, norms and convolutions mean what ONNX Runtime makes of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import (
    Case,
    as_model,
    check,
    check_compiled,
    check_without_shapes,
    interpreted,
    runtime,
    same,
)

import onnxc
from onnxc.frontend.importer import import_model
from onnxc.ir import ops
from onnxc.ir.interpret import run_graph

rng = np.random.default_rng(11)
floats = partial(contrib.floats, rng, scale=0.5)


def unit(*shape: int) -> np.ndarray:
    x = floats(*shape)
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


def packed(
    heads: int, groups: int, rule: str, wide: bool = False, state: bool = True, tokens: int = 5
) -> Case:
    batch, d, w = 2, 8, 4
    key = unit(batch, tokens, groups, d).reshape(batch, tokens, groups * d)
    decay = -np.abs(floats(batch, tokens, groups * (d if wide else 1)))
    inputs = [
        *(floats(batch, tokens, heads * d), key, floats(batch, tokens, groups * w)),
        floats(batch, groups, d, w) if state else None,
        decay if "gated" in rule else None,
        np.abs(floats(batch, tokens, groups)) if "delta" in rule else None,
    ]
    attributes = {"q_num_heads": heads, "kv_num_heads": groups, "update_rule": rule}
    return Case("LinearAttention", inputs, attributes, (0, 1))


def net(batch: int = 2, tokens: int = 5, rows: bool = False, one: bool = False, **attributes: object) -> Case:
    """rows: the axes of batch and tokens are apart; one: query, key and value are one tensor."""
    own, heads, d, w = 2, 4, 8, 4
    leading = (batch, tokens) if rows else (batch * tokens,)
    kind, rule = attributes.get("gate_activation", "none"), str(attributes.get("update_rule", "gated_delta"))
    q, k, v = floats(*leading, own, d), unit(*leading, own, d), floats(*leading, heads, w)
    if one:
        q = np.concatenate([x.reshape(*leading, -1) for x in (q, k, v)], -1)
    activated = [floats(heads), floats(heads)] if kind != "none" else [None, None]
    inputs = [
        *((q, None, None) if one else (q, k, v)),
        *(None, -np.abs(floats(*leading, heads)) if "gated" in rule else None),
        np.abs(floats(*leading, heads)) if "delta" in rule else None,
        *(floats(batch, heads, w, d), *activated),
    ]
    return Case("GatedDeltaNet", inputs, attributes, (0, 1))


def tiny_queries(**attributes: object) -> Case:
    """Queries of which norms tell what is added to their squares."""
    case = net(qk_l2_norm=1, **attributes)
    return Case(case.op, [case.inputs[0] * np.float32(1e-4), *case.inputs[1:]], case.attributes, (0, 1))


def ragged(stateful: bool, one: bool = False, **attributes: object) -> Case:
    """Sequences of several lengths, some of which have no tokens."""
    case = net(5, 2, one=one, **attributes)
    inputs = list(case.inputs)
    inputs[3] = np.array([0, 0, 3, 4, 10, 10], np.int32)
    return Case(case.op, inputs if stateful else [*inputs[:6], None, *inputs[7:]], attributes, (0, 1))


ALL = [
    packed(2, 2, "linear"),
    packed(2, 2, "gated", wide=True),
    packed(4, 2, "delta"),
    packed(2, 2, "gated_delta", state=False),
    packed(2, 4, "gated_delta"),
    net(),
    net(rows=True, qk_l2_norm=1, beta_activation="sigmoid", gate_activation="softplus"),
    net(gate_activation="kda", gate_lower_bound=-2.0, scale=0.5),
    net(one=True),
    tiny_queries(),
    tiny_queries(gate_activation="kda"),
    net(update_rule="linear"),
    Case("LinearAttentionGate", [floats(2, 3, 4), floats(4), floats(4), floats(2, 3, 4)], {}, (0, 1)),
    Case("GatedRMSNorm", [floats(2, 3, 8), floats(4), floats(2, 3, 8)]),
    Case("GatedRMSNorm", [floats(2, 8), floats(8), floats(2, 8)], {"activation": "sigmoid"}),
    Case("GatedAdd", [floats(2, 3, 8), floats(2, 3, 8), floats(2, 3, 1)]),
    Case("CausalConvWithState", [floats(2, 6, 5), floats(6, 1, 4), floats(6), floats(2, 6, 3)], {}, (0, 1)),
    Case(
        "CausalConvWithState",
        [floats(1, 6, 2), floats(6, 1, 3)],
        {"activation": "silu", "dilation": 2},
        (0, 1),
    ),
    Case(
        "CausalConvWithState",
        [floats(2, 5, 2, 3), floats(6, 1, 3), floats(6), floats(2, 4, 2, 3)],
        {"channels_last": 1, "dilation": 2},
        (0, 1),
    ),
    Case("BranchwiseRMSNorm", [floats(2, 3, 8), floats(3, 8)]),
    Case("BranchwiseRMSNorm", [floats(2, 24), floats(24)], {"num_branches": 3}),
    Case("HyperConnectionPreMix", [floats(2, 3, 8), floats(2, 3)], {"reduction_scale": 0.5}),
    Case("HyperConnectionPreMix", [floats(2, 24), floats(2, 24)], {"num_branches": 3}),
    Case("HyperConnectionPostMix", [floats(2, 3, 8), floats(2, 8), floats(2, 3), floats(2, 3, 3)]),
    Case("HyperConnectionPostMix", [floats(2, 24), floats(2, 8), floats(2, 3, 8)], {"num_branches": 3}),
]


RAGGED = [
    ragged(True),
    ragged(False, gate_activation="softplus", beta_activation="sigmoid", qk_l2_norm=1),
    ragged(True, one=True, update_rule="gated", gate_activation="sigmoid"),
]


@pytest.mark.parametrize("case", ALL + RAGGED, ids=str)
def test_the_results_are_those_of_onnxruntime(case):
    check(case)


LONG = [
    packed(2, 4, "linear", tokens=70),
    packed(2, 2, "gated", tokens=64),
    packed(4, 2, "delta", tokens=40),
    packed(2, 2, "gated_delta", tokens=33, state=False),
    packed(2, 2, "gated_delta", tokens=19, wide=True),
]


def of_tokens(case: Case, open_: bool) -> list[np.ndarray]:
    """The outputs, of as many tokens as the run tells if they are open."""
    proto, feeds = as_model([case])
    for given in proto.graph.input:
        if open_ and given.name != "x0_3":
            given.type.tensor_type.shape.dim[1].dim_param = "tokens"
    return run_graph(import_model(proto).graph, list(feeds.values()))


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("case", LONG, ids=str)
def test_tokens_are_in_whole_chunks_and_a_rest_of_any_size(case, open_):
    for found, expected in zip(of_tokens(case, open_), runtime(*as_model([case])), strict=True):
        same(found, expected, 1e-5)


@pytest.mark.parametrize("open_", [False, True])
@pytest.mark.parametrize("tokens", [0, 1, 32, 33])
def test_the_last_state_is_the_first_where_no_token_changes_it(tokens, open_):
    case = packed(2, 2, "gated_delta", tokens=tokens)
    inputs = [*case.inputs[:4], 0 * case.inputs[4], 0 * case.inputs[5]]
    y, state = of_tokens(Case(case.op, inputs, case.attributes, (0, 1)), open_)
    assert y.shape == (2, tokens, 8)
    np.testing.assert_array_equal(state, inputs[3])


@pytest.mark.parametrize(
    "tokens, wide, chunks", [(1, False, 1), (16, False, 1), (64, False, 4), (64, True, 8)]
)
def test_states_are_read_and_written_once_a_chunk(tokens, wide, chunks):
    case = packed(2, 2, "gated_delta", wide, tokens=tokens)
    graph = import_model(as_model([case])[0]).graph
    loops = [node.outputs[1].shape[0] for node in graph.nodes if isinstance(node.op, ops.Loop)]
    assert sum(loops) == chunks - 1  # the last one is apart


@pytest.mark.parametrize("case", LONG[1:], ids=str)
def test_the_operator_of_onnx_is_the_same(case):
    same_of_onnx = Case(case.op, case.inputs, case.attributes, (0, 1), domain="", opset=27)
    graph = import_model(as_model([same_of_onnx])[0]).graph
    assert sum(node.outputs[1].shape[0] for node in graph.nodes if isinstance(node.op, ops.Loop)) < 8
    for found, expected in zip(interpreted(same_of_onnx), interpreted(case), strict=True):
        np.testing.assert_array_equal(found, expected)


def by_token(q, k, v, s, decay, beta):
    """The recurrence in float64, of one head and a batch of one."""
    q, k, v, decay, beta = (x[0].astype(np.float64) for x in (q, k, v, decay, beta))
    s, found = s[0, 0].astype(np.float64), []
    for row in range(len(q)):
        s = s * np.exp(decay[row])[:, None]
        s = s + np.outer(k[row], beta[row] * (v[row] - k[row] @ s))
        found.append(q[row] @ s / np.sqrt(q.shape[1]))
    return np.array(found)[None], s[None, None]


def closeness(keys: np.ndarray, decay: np.ndarray) -> float:
    tokens, (d, w) = keys.shape[1], (keys.shape[2], 4)
    inputs = [floats(1, tokens, d), keys, floats(1, tokens, w), floats(1, 1, d, w), decay]
    inputs.append(np.full((1, tokens, 1), 0.99, np.float32))
    heads = {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "gated_delta"}
    found = interpreted(Case("LinearAttention", inputs, heads, (0, 1)))
    return max(np.abs(x - y).max() for x, y in zip(found, by_token(*inputs)))


def test_tokens_that_have_one_key_lose_no_digits():
    keys = np.repeat(unit(1, 1, 16), 64, 1)
    assert closeness(keys, np.zeros((1, 64, 1), np.float32)) < 2e-6


@pytest.mark.parametrize("decay", [-0.01, -3.0, -80.0, -1000.0, -np.inf])
@pytest.mark.parametrize("width", [1, 16])
def test_states_may_decay_to_nothing_and_begin_anew(decay, width):
    decays = np.where(np.arange(64)[None, :, None] % 7 == 3, decay, -0.001) * np.ones((1, 1, width))
    assert closeness(unit(1, 64, 16), decays.astype(np.float32)) < 2e-6


def test_decays_behind_strong_ones_keep_their_digits():
    decays = np.where(np.arange(64) < 20, -400.0, -0.0123).astype(np.float32)
    assert closeness(unit(1, 64, 16), decays[None, :, None]) < 3e-6


@pytest.mark.parametrize("case", [net(), net(one=True), *ALL[:4], *RAGGED], ids=str)
def test_the_run_may_tell_every_size(case):
    check(case, symbolic=True)


def test_the_axes_that_tell_the_heads_must_be_known():
    with pytest.raises(
        onnxc.OnnxcError, match="heads follows from axis 2 of query and axis 2 of key, which only"
    ):
        interpreted(packed(2, 4, "linear"), symbolic=True)


def captured(case: Case, active: int | None = None) -> list[list[np.ndarray]]:
    """The update of a net's states by these lengths of sequences, by onnxc and ONNX Runtime: of each sequence
    its decays, keys and deltas, as many as were captured."""
    counts, capacity = np.array([4, 2, 0, 9, 1], np.int32), 4
    switch = [] if active is None else [np.array([active], np.int32)]
    inputs = [*case.inputs, *[None] * (9 - len(case.inputs)), counts, *switch]
    whole = Case(case.op, inputs, {**case.attributes, "state_update_capacity": capacity}, (0, 1, 2))
    lengths = np.diff(case.inputs[3])
    found = []
    for outputs in (interpreted(whole), runtime(*as_model([whole]))):
        update, parts, start = outputs[2], [], 0
        for width in (4, 2 * 8, 4 * 4):
            part = update[:, start : start + capacity * width].reshape(5, capacity, width)
            parts += [x[: max(0, min(n, c))] if active != 0 else x for x, n, c in zip(part, lengths, counts)]
            start += capacity * width
        assert start == update.shape[1]
        found.append([*outputs[:2], *parts])
    return found


@pytest.mark.parametrize("active", [None, 0, 1])
@pytest.mark.parametrize("case", RAGGED[::2], ids=str)
def test_a_net_tells_what_the_first_tokens_of_each_sequence_did_to_its_states(case, active):
    for found, expected in zip(*captured(case, active), strict=True):
        same(found, expected, 1e-5)


def test_an_update_without_counts_is_refused():
    with pytest.raises(onnxc.OnnxcError, match="state_update_capacity is 4 without a capture_count"):
        interpreted(Case("GatedDeltaNet", net().inputs, {"state_update_capacity": 4}, (0, 1)))


BRANCHES = [
    Case("BranchwiseRMSNorm", [floats(2, 24), floats(width)], {"num_branches": 3}) for width in (8, 24)
] + [
    Case("HyperConnectionPreMix", [floats(2, 24), floats(2, gates)], {"num_branches": count})
    for count, gates in ((1, 1), (1, 24), (3, 3), (3, 24))
]


@pytest.mark.parametrize("case", BRANCHES, ids=str)
def test_the_run_may_tell_whether_branches_or_all_their_features_have_a_gate(case):
    check(case, symbolic=True)


@pytest.mark.parametrize("case", [case for case in ALL if case.op.startswith("HyperConnection")], ids=str)
def test_ranks_of_what_is_mixed_follow_from_those_of_streams_and_gates(case):
    check_without_shapes(case, 36)


def test_weights_tell_how_many_channels_there_are():
    inputs = [floats(2, 6, 5), floats(6, 1, 4), floats(6), floats(2, 6, 3)]
    check(Case("CausalConvWithState", inputs, {}, (0, 1), stored=(1,)), symbolic=True)


@pytest.mark.parametrize("attributes", [{}, {"dilation": 2, "activation": "silu"}], ids=str)
def test_channels_may_be_as_many_as_the_run_tells(attributes):
    before = 3 * attributes.get("dilation", 1)
    state = floats(2, 6, before)
    check(
        Case("CausalConvWithState", [floats(2, 6, 5), floats(6, 1, 4), floats(6), state], attributes, (0, 1)),
        True,
    )
    last = [floats(2, 5, 2, 3), floats(6, 1, 4), None, floats(2, before, 2, 3)]
    check(Case("CausalConvWithState", last, {**attributes, "channels_last": 1}, (0, 1)), True)


def test_a_library_of_some_of_each_computes_what_the_interpreter_does(tmp_path):
    check_compiled([ALL[1], ALL[4], ALL[6], ALL[16], ALL[18], ALL[23], *RAGGED[1:], *LONG], tmp_path)
