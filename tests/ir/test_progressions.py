"""progression: integers that grow evenly along the axes of a value."""

import numpy as np
import pytest

from onnxc.ir.progressions import progression
from onnxc.ir.text_parser import parse


def found(line, constants=None):
    """The start and the steps, of the last of some lines of text over %u: int64[2, 3] and %i: int32[3]."""
    text = f"graph g(%u: int64[2, 3], %i: int32[3], %x: float32[n]) {{ {line} return %0 }}"
    grown = progression(parse(text, constants).outputs[0])
    return grown and (str(grown.start), [str(step) for step in grown.steps])


RANGE = "%r = map() { index(0) } shape=(n)"


@pytest.mark.parametrize(
    ("line", "start", "steps"),
    [
        ("%0 = constant int64[2, 3] (5, 7, 9, 8, 10, 12)", "5", ["3", "2"]),
        ("%0 = constant int32[3] (4, 3, 2)", "4", ["-1"]),
        ("%0 = constant int64[] (7)", "7", []),
        ("%0 = constant int64[3] splat 2", "2", ["0"]),
        (f"{RANGE} %0 = map(%r) {{ sub(mul($0, 3), 2) }}", "-2", ["3"]),
        (f"{RANGE} %0 = slice(%r) starts=(2) sizes=(n - 2) steps=(1)", "2", ["1"]),
        (f"{RANGE} %0 = slice(%r) starts=(n - 1) sizes=(n) steps=(-1)", "n - 1", ["-1"]),
        (f"{RANGE} %0 = reshape(%r) shape=(1, n, 1)", "0", ["0", "1", "0"]),
        (f"{RANGE} %1 = reshape(%r) shape=(n, 1) %0 = broadcast(%1) shape=(4, n, 7)", "0", ["0", "1", "0"]),
        (f"{RANGE} %1 = reshape(%r) shape=(n, 1) %0 = transpose(%1) perm=(1, 0)", "0", ["0", "1"]),
        (f"{RANGE} %1 = reshape(%r) shape=(n, 1) %0 = map(%1, %r) {{ add(mul($0, 8), $1) }}", "0", "81"),
        ("%c = constant int32[3] (1, 2, 3) %0 = map(%c) { cast($0, int64) }", "1", ["1"]),
        ("%0 = elements() dims=(n + 1) shape=(1)", "n + 1", ["0"]),
    ],
)
def test_what_makes_a_value_tells_how_it_grows(line, start, steps):
    assert found(line) == (start, [*steps])


@pytest.mark.parametrize(
    "line",
    [
        "%0 = constant int64[3] (1, 2, 4)",
        "%0 = constant int64[0] ()",
        "%0 = constant int64[3] (9223372036854775806, 9223372036854775807, -9223372036854775808)",
        "%0 = constant float32[2] (1.0, 2.0)",
        "%0 = reshape(%u) shape=(6)",
        f"{RANGE} %0 = map(%r) {{ mul($0, $0) }}",
        f"{RANGE} %0 = map(%r) {{ cast($0, int32) }}",
        "%0 = map(%i) { cast($0, int64) }",
        f"{RANGE} %0 = broadcast(%r) shape=(m)",
        "%c = constant int64[2, 3] (0, 1, 2, 3, 4, 5) %0 = reshape(%c) shape=(3, 2)",
        "%s = runtime_call(%u) symbol=f : seq<int64[n]> %0 = runtime_call(%s) symbol=f : int64[n]",
    ],
)
def test_what_grows_otherwise_or_may_is_none(line):
    assert found(line) is None


def test_of_a_large_constant_nothing_is_looked_at():
    many = np.arange(1 << 21)
    assert found(f"%0 = constant int64[{many.size}] #many", {"many": many}) is None
