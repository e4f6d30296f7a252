"""Guessed tokens are taken over, and places found, as ONNX Runtime does."""

from __future__ import annotations

import numpy as np
import pytest
from support.contrib import Case, check, check_compiled

SOURCE = [1, 2, 3, 4, 5, 3, 4, 9]


def case(source, current, index=0, guessed=None, **attributes) -> Case:
    given = [source, current, [index]] + ([guessed] if guessed is not None else [])
    inputs = [np.array(x, np.int64) for x in given]
    return Case("BifurcationDetector", inputs, attributes, outputs=(0, 1))


ALL = [
    case([5, 6, 7], [1, 2]),
    case([5, 6, 7], [1, 5, 6], 0, [5, 6, 8, 1]),
    case([5, 6, 7], [1, 5], 1, [6, 7, 9]),
    case(SOURCE, [3]),
    case(SOURCE, [8, 3, 4]),
    case(SOURCE, [2, 3, 4]),
    case(SOURCE, [8, 3], 2, [3, 9, 1, 1, 1, 1, 1], min_ngram_size=2, max_ngram_size=4),
    case(SOURCE, [4, 9]),
    case([], [4, 9], 0, [3]),
]


@pytest.mark.parametrize("one", ALL, ids=str)
@pytest.mark.parametrize("symbolic", [False, True], ids=["sized", "open"])
def test_tokens_and_places_are_those_of_onnxruntime(one, symbolic):
    check(one, symbolic)


def test_a_library_finds_the_same(tmp_path):
    check_compiled([ALL[1], ALL[5]], tmp_path)
