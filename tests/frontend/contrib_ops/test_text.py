"""Tokens are those of ONNX Runtime's Tokenizer, and hashes those of its MurmurHash3."""

from __future__ import annotations

import numpy as np
import pytest
from support.contrib import Case, as_model, check, check_compiled, interpreted, runtime

import onnxc

WORDS = ["the cat_2 sat", "", "a  b;c\n ab", "naïve – été", "x"]
FORMS = [
    {"tokenexp": "[a-zA-Z0-9_]+"},
    {"tokenexp": r"\b\w\w+\b", "mark": 1},
    {"tokenexp": r"^\w+|\w$", "mincharnum": 1},
    {"tokenexp": "(?m)^.", "mincharnum": 1},
    {"tokenexp": "a|ab|[^ ]{2}", "mincharnum": 2},
    {"separators": [" "]},
    {"separators": [" ", ";|\n"], "mark": 1},
    {"separators": ["[;a]+", " +"], "mincharnum": 2},
    {"separators": [""], "mark": 1},
    {"separators": ["a*"]},  # matches nothing, too, and then takes a character
    {"separators": ["^", " *$"]},
    {"separators": ["t", r"\b"], "mark": 1},
]


def case(x, **attributes):
    return Case("Tokenizer", [x], {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes})


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_tokens_are_those_of_onnxruntime(form):
    for x in (WORDS, [WORDS[:2], WORDS[2:4]], [""], WORDS[:1]):
        one = case(np.array(x, object), **form)
        (expected,) = runtime(*as_model([one]))
        (found,) = interpreted(one)
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_tokens_of_nothing_have_an_axis_as_others(shape):
    (found,) = interpreted(case(np.empty(shape, object), separators=[" "]))
    assert found.shape == (*shape, 0)


def test_a_library_finds_the_same_tokens(tmp_path):
    cases = [case(np.array(WORDS, object), **form) for form in FORMS]
    proto, feeds = as_model(cases, symbolic=True)
    results = onnxc.load(onnxc.compile(proto, tmp_path / "tokens.so")).run(None, feeds)
    for found, one in zip(results, cases):
        assert found.tolist() == interpreted(one)[0].tolist()


NUMBERS = [np.array([0, 1, 77, 2**30]).astype(t) for t in ("i4", "u4", "i8", "u8", "f4", "f8")]
HASHES = [
    Case("MurmurHash3", [x], {"positive": k % 2, "seed": 7 * k})
    for k, x in enumerate([*NUMBERS, np.array(WORDS, object)])
]


@pytest.mark.parametrize("one", HASHES, ids=str)
def test_hashes_are_those_of_onnxruntime(one):
    check(one)


def test_a_library_has_the_same_hashes(tmp_path):
    check_compiled(HASHES, tmp_path)
