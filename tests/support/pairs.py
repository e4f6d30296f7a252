"""Products of bytes that are added up by two in 16 bits: targets that do so, and operands whose sums are
beyond those."""

import numpy as np
import pytest

from onnxc.target import LEVELS

from .harness import RUNNABLE

ABLE = [target for target in LEVELS.values() if target.pairs is not None]
HERE = [target for target in RUNNABLE if target in ABLE]
WITHOUT = pytest.param(None, marks=pytest.mark.skip("this processor adds up no pairs"))
WITH_PAIRS = pytest.mark.parametrize("target", HERE or [WITHOUT], ids=str)


def few_large(shape, deviation=30.0):
    """Weights of which some pairs are together beyond 128, as in layers that are quantised by channel."""
    found = np.random.default_rng(shape).normal(0, deviation, shape)
    return np.clip(found.round(), -128, 127).astype(np.int8)


def both_ends(shape):
    """Bytes at both ends of their range."""
    return np.random.default_rng(shape).choice(np.array([0, 1, 254, 255], np.uint8), shape)


def of_pairs(case):
    """A convolution of bytes with such operands."""
    x, w, *others = case.arrays
    case.arrays = [both_ends(x.shape), few_large(w.shape), *others]
    return case
