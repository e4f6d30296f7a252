"""Facts of this machine: measured once, kept for this processor, found again, and never needed."""

import json
import re
from dataclasses import astuple, replace
from itertools import count

import pytest
from support import harness

from onnxc.codegen import calibration
from onnxc.facts import Facts, cache_sizes, keep_facts, known_facts
from onnxc.target import TARGETS, find_target

SMALL = {"level1_bytes": 16 << 10, "level2_bytes": 64 << 10, "level3_bytes": 256 << 10}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXC_CACHE", str(tmp_path / "cache"))


def test_what_was_measured_is_found_again_for_native_alone():
    name, other = find_target().name, replace(Facts(), instructions=3.25, level2_bytes=12345)
    named = find_target(name)
    keep_facts(name, other)
    assert find_target().facts == other != named.facts
    assert find_target(name) == named


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"instructions": "many"}'])
def test_a_file_that_is_no_measurement_is_as_if_there_were_none(content):
    keep_facts("t", Facts()).write_text(content)
    assert known_facts("t", Facts()) == replace(Facts(), **cache_sizes())


def test_without_a_cache_folder_the_system_is_asked(monkeypatch):
    monkeypatch.setattr("onnxc.facts.usable_cache_folder", lambda: None)
    assert keep_facts("t", Facts()) is None
    assert known_facts("t", Facts()) == replace(Facts(), **cache_sizes())


@pytest.mark.slow
def test_every_rate_is_measured(monkeypatch):
    monkeypatch.setattr(calibration, "SECONDS", 0.001)
    monkeypatch.setattr(calibration, "VISITS", 1)
    monkeypatch.setattr(calibration, "cache_sizes", lambda: SMALL)
    facts = calibration.measure_facts(find_target())
    assert all(value > 0 for value in astuple(facts))
    assert facts.level2_bytes == SMALL["level2_bytes"]
    assert json.loads(keep_facts("t", facts).read_text())["latency"] == known_facts("t", Facts()).latency


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
def test_instructions_are_counted_in_registers_alone(target):
    text = calibration._written(target, calibration._mixed)
    spilled = r"mm\d+, .*\(%rsp\)|q\d+, \[sp"
    assert not re.search(spilled, harness.assembly(str(text), target))


def test_moments_in_which_the_machine_is_slow_do_not_show(monkeypatch):
    def facts(slow):
        calls = count()
        monkeypatch.setattr(calibration, "_rate", lambda *_: 0.5 if next(calls) in slow else 1.0)
        return calibration.measure_facts(find_target())

    monkeypatch.setattr(calibration, "_compiled", lambda *_: None)
    best = facts(slow=())
    for moments in (range(7), range(20, 25)):  # but in what a core sustains, which is the least
        assert replace(facts(moments), matrix_sustained=best.matrix_sustained) == best
    if find_target().matrices:  # which one of the first visit's probes measures
        assert facts(range(12)).matrix_sustained == best.matrix_sustained / 2
