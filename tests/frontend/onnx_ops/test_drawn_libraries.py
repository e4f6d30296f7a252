"""Drawn nodes, many compiled into one library, give what the interpreter does with one thread and with two.

`python tests/support/drawn_libraries.py` compiles those of every version of every operator."""

from __future__ import annotations

import pytest
from support.drawn import NEWEST
from support.drawn_libraries import DRAWS, cases, problems
from support.side_by_side import opsets

EVERY = 5  # of so many operators one is compiled


@pytest.mark.slow
def test_a_library_of_drawn_nodes_gives_what_the_interpreter_does():
    drawn = cases(0, 1, sorted(DRAWS)[::EVERY])
    newest = [one for one in drawn if opsets(one.case.model) == (("", NEWEST),)]
    assert len(newest) > 20
    assert problems(newest) == []
