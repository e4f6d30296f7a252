"""Libraries in turns: who is timed, what is counted, and what becomes of a process that ends."""

import json
from functools import partial

import numpy as np
import pytest

from onnxc.errors import RunError
from onnxc.loading import turns


def test_of_every_run_the_least_counts_and_all_have_as_many_turns(monkeypatch):
    monkeypatch.setattr(turns, "VISIT_SECONDS", 0.0)
    told = {"a": iter(range(100, 0, -1)), "b": iter(range(1000))}
    order = []

    def run(name):
        order.append(name)
        return next(told[name])

    found = turns.in_turns([partial(run, "a"), partial(run, "b")], 0.0, min)
    assert found == [101 - order.count("a"), 0]
    assert sum(a != b for a, b in zip(order, order[1:])) == 3  # a b a b


@pytest.mark.slow
def test_libraries_are_timed_in_a_process_of_their_own(divide_path, tmp_path):
    ones = np.ones((2, 3), np.int32)
    asked, both = turns.Turns({"x": ones, "d": ones}, tmp_path), [divide_path] * 2
    (steps, again), seconds = asked.steps(both, 0.01), asked.runs(both, 0.01)
    assert [t.node for t in steps] == [t.node for t in again] == ["node 'div' (Div)"]
    assert len(seconds) == 2 and min(seconds) > 0
    with pytest.raises(RunError, match="'x'"):
        turns.Turns({}, tmp_path).runs(both, 0.01)


def test_a_process_that_ends_is_an_error_with_its_status(tmp_path, monkeypatch):
    crashing = tmp_path / "crash"
    crashing.write_text("#!/bin/sh\nkill -SEGV $$\n")
    crashing.chmod(0o755)
    monkeypatch.setattr(turns.sys, "executable", str(crashing))
    with pytest.raises(RunError, match="ended with status -11"):
        turns.Turns({}, tmp_path).runs([tmp_path / "model.so"], 0.01)
    crashing.write_text(f"#!/bin/sh\necho '{json.dumps({'error': 'no such input'})}'\n")
    with pytest.raises(RunError, match="no such input"):
        turns.Turns({}, tmp_path).runs([tmp_path / "model.so"], 0.01)
