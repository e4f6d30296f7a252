"""Mixtures of experts mean what ONNX Runtime makes of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from support import contrib
from support.contrib import Case, check, check_compiled, interpreted, same

rng = np.random.default_rng(10)
floats = partial(contrib.floats, rng, scale=0.5)
EXPERTS, WIDTH, INNER = 4, 32, 64


def mixture(*tokens: int, biased: bool = True, **attributes: object) -> Case:
    first = INNER * (2 if attributes.get("activation_type") == "swiglu" else 1)
    biases = [floats(EXPERTS, first), floats(EXPERTS, WIDTH)] if biased else [None, None]
    inputs = [
        *(floats(*tokens, WIDTH), floats(int(np.prod(tokens)), EXPERTS) * 4),
        *(floats(EXPERTS, first, WIDTH), biases[0], floats(EXPERTS, WIDTH, INNER), biases[1]),
    ]
    return Case("MoE", inputs if biased else inputs[:5], attributes, tolerance=1e-4)


FLOATS = [
    mixture(5),
    mixture(2, 3, k=2, activation_type="gelu", biased=False),
    mixture(5, k=2, activation_type="silu", normalize_routing_weights=1),
    mixture(5, k=4, activation_type="identity"),
    mixture(5, k=2, activation_type="swiglu", swiglu_fusion=1),
    mixture(
        *(2, 3),
        k=2,
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.702,
        activation_beta=1.0,
        swiglu_limit=0.5,
    ),
]


def stored(
    *tokens: int,
    bits: int = 4,
    block: int = 0,
    zero: bool = False,
    weights_apart: bool = False,
    **attributes: object,
) -> Case:
    first = INNER * (2 if attributes.get("activation_type") == "swiglu" else 1)
    inputs: list[np.ndarray | None] = [floats(*tokens, WIDTH), floats(int(np.prod(tokens)), EXPERTS) * 4]
    points: list[np.ndarray | None] = []
    for rows, columns in ((first, WIDTH), (WIDTH, INNER)):
        weights = rng.integers(0, 256, (EXPERTS, rows, columns * bits // 8)).astype(np.uint8)
        blocks = [columns // block] if block else []
        inputs += [weights, np.abs(floats(EXPERTS, rows, *blocks)) / (4 << bits), floats(EXPERTS, rows)]
        *before, last = (EXPERTS, rows, *blocks)
        packed = (*before, -(-last * bits // 8))
        points.append(rng.integers(0, 256, packed).astype(np.uint8) if zero else None)
    if zero or weights_apart:
        inputs += [None, None, None, *points]
    if weights_apart:
        inputs += [None, np.abs(floats(inputs[1].shape[0], EXPERTS))]
    attributes |= {"expert_weight_bits": bits} | ({"block_size": block} if block else {})
    return Case("QMoE", inputs, attributes, stored=range(2, len(inputs)), tolerance=1e-4)


STORED = [
    stored(5),
    stored(5, bits=8, k=2, normalize_routing_weights=1),
    stored(2, 3, block=16, k=2, activation_type="silu"),
    stored(5, block=16, zero=True, k=2),
    stored(5, zero=True, k=2),
    stored(5, bits=2, zero=True),
    stored(5, bits=8, zero=True),
    stored(5, k=2, activation_type="swiglu", swiglu_fusion=1),
    stored(5, k=2, weights_apart=True),
    stored(5, k=2, weights_apart=True, normalize_routing_weights=1),
]


@pytest.mark.parametrize("case", FLOATS + STORED, ids=str)
def test_the_results_are_those_of_onnxruntime(case):
    check(case)


@pytest.mark.parametrize("case", [FLOATS[2], FLOATS[4], STORED[0], STORED[1], STORED[3], STORED[7]], ids=str)
def test_weights_may_be_declared_the_other_way_round_over_the_same_memory(case):
    inputs = list(case.inputs)
    for k in (2, 4) if case.op == "MoE" else (2, 5):
        experts, rows, columns = inputs[k].shape
        each = 8 // case.attributes["expert_weight_bits"] if case.op == "QMoE" else 1
        inputs[k] = inputs[k].reshape(experts, columns * each, rows // each)
    other = replace(case, inputs=inputs)
    same(interpreted(other)[0], interpreted(case)[0], 0)
    check(replace(other, stored=()))  # what it stores of 4 bits ONNX Runtime 1.32 turns as declared


def test_a_third_product_gates_the_first():
    x, routing, w, v, u = floats(5, 8), floats(5, 2), floats(2, 6, 8), floats(2, 8, 6), floats(2, 6, 8)
    (found,) = interpreted(
        Case("MoE", [x, routing, w, None, v, None, u], {"k": 2, "activation_type": "silu"})
    )
    h = np.einsum("th,eih->tei", x, w)
    h = h / (1 + np.exp(-h)) * np.einsum("th,eih->tei", x, u)
    p = np.exp(routing) / np.exp(routing).sum(1, keepdims=True)
    same(found, np.einsum("te,tei,ehi->th", p, h, v).astype(np.float32), 1e-5)


@pytest.mark.parametrize("fused", [1, 2])
def test_geglu_multiplies_the_gelu_of_a_gate(fused):
    x, routing, w, v, u = floats(5, 8), floats(5, 2), floats(2, 6, 8), floats(2, 8, 6), floats(2, 6, 8)
    both = np.stack([w, u], 2).reshape(2, 12, 8) if fused == 1 else np.concatenate([w, u], 1)
    attributes = {"activation_type": "geglu", "swiglu_fusion": fused, "k": 2}
    (expected,) = interpreted(
        Case("MoE", [x, routing, w, None, v, None, u], {"activation_type": "gelu", "k": 2})
    )
    same(interpreted(Case("MoE", [x, routing, both, None, v], attributes))[0], expected, 1e-5)


def test_the_limit_may_be_that_of_the_activated_gate():
    x, routing, w, v, u = floats(5, 8), floats(5, 2), floats(2, 6, 8) * 9, floats(2, 8, 6), floats(2, 6, 8)
    attributes = {"activation_type": "swiglu", "activation_alpha": 1.5, "swiglu_limit": 0.4, "k": 2}
    limited = {**attributes, "swiglu_limit_after_activation": 1}
    (found,) = interpreted(Case("MoE", [x, routing, w, None, v, None, u], limited))
    gate = np.einsum("th,eih->tei", x, w)
    gate = np.minimum(gate / (1 + np.exp(-1.5 * gate)), 0.4)
    h = gate * np.einsum("th,eih->tei", x, u).clip(-0.4, 0.4)
    p = np.exp(routing) / np.exp(routing).sum(1, keepdims=True)
    same(found, np.einsum("te,tei,ehi->th", p, h, v).astype(np.float32), 1e-5)


@pytest.mark.parametrize("tokens", [(5,), (2, 3), (0,)])
def test_experts_are_taken_of_the_groups_with_the_greatest_sums(tokens):
    logits, bias = floats(*tokens, 12) * 4, floats(12)
    attributes = {"n_group": 4, "topk_group": 2, "group_topk": 2, "top_k": 3}
    (found,) = interpreted(Case("MoEGroupRouter", [logits, bias], attributes))
    expected = np.full((np.prod(tokens), 12), -10000, np.float32)
    for row, s in zip(expected, 1 / (1 + np.exp(-logits.reshape(-1, 12)))):
        sums = np.sort((s + bias).reshape(4, 3))[:, 1:].sum(1)
        kept = np.isin(np.arange(12) // 3, np.argsort(-sums)[:2])
        chosen = np.argsort(-np.where(kept, s + bias, -np.inf))[:3]
        row[chosen] = np.log(s[chosen])
    same(found, expected, 1e-6)


def test_a_router_gives_all_scores_of_projected_tokens():
    x, bias, projection = floats(5, 256), floats(6), floats(6, 256)
    scores, weights = interpreted(Case("MoEGroupRouter", [x, bias, projection], {"top_k": 2}, (1, 2)))
    same(weights, 1 / (1 + np.exp(-x @ projection.T)), 1e-5)
    same(scores, weights + bias, 1e-6)


def test_halves_of_a_product_are_gated_like_neighbours():
    apart = mixture(5, activation_type="swiglu", swiglu_fusion=2)
    x, routing, w, c, *rest = apart.inputs
    woven = [np.stack(np.split(v, 2, 1), 2).reshape(v.shape) for v in (w, c)]
    attributes = {"activation_type": "swiglu", "swiglu_fusion": 1}
    (expected,) = interpreted(Case("MoE", [x, routing, *woven, *rest], attributes))
    same(interpreted(apart)[0], expected, 1e-5)


def test_a_library_of_some_of_each_computes_what_the_interpreter_does(tmp_path):
    check_compiled([FLOATS[5], STORED[2]], tmp_path)
