"""The onnx package's whole backend suite through the compiler. `not_yet.txt` beside this file names the
cases that do not pass, one a line with its reason; it may only shrink."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import suite

NOT_YET = Path(__file__).with_name("not_yet.txt")
LEAST_PASSING = 1200


def listed() -> list[tuple[str, str]]:
    """(name, reason) of each line."""
    lines = NOT_YET.read_text(encoding="utf-8").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if not line.startswith("#")]


@pytest.fixture(scope="module")
def not_yet() -> dict[str, str]:
    return dict(listed())


@pytest.fixture(scope="module")
def outcomes(request) -> dict[str, str]:
    found = suite.run_suite(sorted(suite.all_cases()), os.cpu_count() or 1)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("", *suite.closing_lines(suite.summary(found)), sep="\n")
    return found


def test_list_is_sorted_and_has_no_name_twice():
    names = [name for name, _ in listed()]
    assert names == sorted(set(names))


def test_listed_cases_exist(not_yet):
    unknown = not_yet.keys() - suite.all_cases().keys()
    assert not unknown, f"remove these from not_yet.txt, unknown to the suite: {sorted(unknown)}"


def test_no_case_ends_the_process(outcomes):
    assert {n: o for n, o in outcomes.items() if o.startswith("crash")} == {}


def test_no_case_fails_with_an_internal_error(outcomes):
    assert {n: o for n, o in outcomes.items() if o.startswith("internal")} == {}


def test_every_case_that_is_not_listed_passes(outcomes, not_yet):
    assert {n: o for n, o in outcomes.items() if o and n not in not_yet} == {}


def test_every_listed_case_fails(outcomes, not_yet):
    certain = [n for n, reason in not_yet.items() if not reason.startswith("random")]
    passing = sorted(n for n in certain if outcomes.get(n) == "")
    assert not passing, f"remove these from not_yet.txt: {passing}"


def test_enough_cases_pass(outcomes):
    assert sum(not outcome for outcome in outcomes.values()) >= LEAST_PASSING
