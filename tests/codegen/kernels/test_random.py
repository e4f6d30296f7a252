"""Random numbers: their bounds, means and deviations, and that they depend on nothing but seed and place."""

import numpy as np
import pytest
from support import harness
from support.harness import TARGETS

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import random
from onnxc.ir.graph import make_node
from onnxc.ir.ops import Random


def drawn(target, kind, dtype, shape, a, b, seed, split=1):
    """The numbers of a node, its parts run in `split` calls."""
    node = make_node(Random(kind, dtype, shape, a, b, seed), [])
    (choice,) = choices_of(random, node, target)
    ((numbers, _),) = harness.run_choice(node, choice, [], target, split=split)
    return numbers


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_uniform_numbers_fill_their_interval(target, dtype):
    numbers = drawn(target, "uniform", dtype, (100, 99), -2.0, 6.0, 1.0).astype(np.float64)
    assert numbers.min() >= -2 and numbers.max() <= 6
    assert np.histogram(numbers, 8, (-2, 6))[0].min() > 1100
    assert len(np.unique(numbers)) > (1000 if dtype == "float16" else 9000)


@TARGETS
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_normal_numbers_have_their_mean_and_deviation(target, dtype):
    numbers = drawn(target, "normal", dtype, (20_000,), 3.0, 0.5, 1.0).astype(np.float64)
    assert abs(numbers.mean() - 3) < 0.02
    assert abs(numbers.std() - 0.5) < 0.02
    inside = np.abs(numbers - 3) < 0.5
    assert abs(inside.mean() - 0.6827) < 0.02


@TARGETS
def test_parts_do_not_matter_and_seeds_do(target):
    one, same, other = (
        drawn(target, "uniform", "float32", (3, 5000), 0.0, 1.0, seed, split)
        for seed, split in ((7.0, 1), (7.0, 4), (8.0, 1))
    )
    assert one.tobytes() == same.tobytes()
    assert np.count_nonzero(one == other) < 10


@TARGETS
@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_a_seed_of_zero_is_like_others(target, kind):
    first = drawn(target, kind, "float64", (4,), 0.0, 1.0, 0.0)[0]
    assert abs(first) > 1e-6
