"""What generation does to scores is what ONNX Runtime does to them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.contrib import Case, as_model, check_compiled, drawing, interpreted, runtime


def blocked(batch: int, length: int, words: int, n: int, seed: int) -> Case:
    random = np.random.default_rng(seed)
    inputs = [random.integers(0, words, (batch, length)), random.random((batch, words), np.float32)]
    return Case("NGramRepeatBlock", inputs, {"ngram_size": n})


@drawing(20)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_words_that_would_repeat_others_are_the_same(batch, length, words, n, seed):
    case = blocked(batch, length, words, n, seed)
    (expected,) = runtime(*as_model([case]))
    for symbolic in (False, True):
        (found,) = interpreted(case, symbolic)
        np.testing.assert_array_equal(found, expected)


def test_a_library_blocks_the_same_words(tmp_path):
    check_compiled([blocked(2, 9, 4, 2, 0), blocked(1, 1, 3, 3, 1)], tmp_path)
