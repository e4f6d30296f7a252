"""AttnLSTM means what ONNX Runtime makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.contrib import Case, check, check_compiled, drawing

OPTIONS = ("bias", "lengths", "memory_lengths", "states", "peepholes", "layer")


def attended(steps: int, batch: int, direction: str, wanted: set[str], **attributes: object) -> Case:
    """wanted: which of OPTIONS there are."""
    random = np.random.default_rng(steps + 10 * batch)
    count, hidden, size, wide, depth, places = (2 if direction == "bidirectional" else 1), 4, 3, 5, 6, 7
    attention = 2 if "layer" in wanted else depth

    def floats(*shape: int) -> np.ndarray:
        return np.asarray(random.standard_normal(shape) / 2, np.float32)

    def lengths(name: str, most: int) -> np.ndarray | None:
        return random.integers(1, most + 1, batch).astype(np.int32) if name in wanted else None

    inputs = [
        *(floats(steps, batch, size), floats(count, 4 * hidden, size + attention)),
        floats(count, 4 * hidden, hidden),
        floats(count, 8 * hidden) if "bias" in wanted else None,
        lengths("lengths", steps),
        *(floats(count, batch, hidden) if "states" in wanted else None for _ in range(2)),
        floats(count, 3 * hidden) if "peepholes" in wanted else None,
        *(floats(count, hidden, wide), floats(count, depth, wide), floats(count, wide)),
        floats(batch, places, depth),
        lengths("memory_lengths", places),
        floats(count, depth + hidden, attention) if "layer" in wanted else None,
    ]
    given = {"direction": direction, "hidden_size": hidden, **attributes}
    return Case("AttnLSTM", inputs, given, (0, 1, 2))


DIRECTION = st.sampled_from(["forward", "reverse", "bidirectional"])


@drawing(20)
@given(st.integers(1, 6), st.integers(1, 3), DIRECTION, st.sets(st.sampled_from(OPTIONS)), st.booleans())
def test_drawn_cells_mean_the_same(steps, batch, direction, wanted, symbolic):
    check(attended(steps, batch, direction, wanted), symbolic)


@pytest.mark.parametrize(
    "attributes",
    [
        {"clip": 0.5},
        {"input_forget": 1},
        {"activations": ["HardSigmoid", "Relu", "Relu"], "activation_alpha": [0.3], "activation_beta": [0.4]},
    ],
    ids=str,
)
def test_attributes_mean_the_same(attributes):
    check(attended(4, 2, "forward", {"bias", "peepholes"}, **attributes))


@pytest.mark.slow
def test_a_library_computes_what_the_interpreter_does(tmp_path):
    check_compiled(
        [attended(3, 2, "bidirectional", set(OPTIONS)), attended(2, 1, "reverse", set())], tmp_path
    )
