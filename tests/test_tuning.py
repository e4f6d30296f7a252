"""Tuning: who is faster when measured is compiled with, who is not is dropped, and what won is kept. Times
are made up, and so is the clock."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from onnxc import tuning
from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import KERNELS
from onnxc.codegen.lowering.lower import lower
from onnxc.codegen.lowering.tuned import choice_name, node_name
from onnxc.errors import RunError
from onnxc.facts import Facts
from onnxc.ir.graph import walk
from onnxc.ir.text_parser import parse
from onnxc.loading.timing import Timing
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v3"]

GRAPH = """graph g(%x: float32[60, 96], %a: float32[96, 64], %b: float32[64, 80]) {
    %0 = contract(%x, %a) lhs=mk rhs=kn out=mn accumulate=float32 from "one"
    %1 = contract(%0, %b) lhs=mk rhs=kn out=mn accumulate=float32 from "other"
    return %1
}"""


@cache
def estimates():
    """Of all choices for each node."""
    lowered = lower(parse(GRAPH), TARGET)
    return {
        (node.origin, choice_name(choice)): choice.time
        for node in walk(lowered.graph)
        for kernel in KERNELS
        for choice in choices_of(kernel, node, lowered.target)
    }


class Machine:
    """Builds lowered graphs instead of libraries, and times them as `slow` says: it gets a node's origin and
    its choice, and tells how many times as long as was estimated the choice takes. A second a question."""

    def __init__(self, slow):
        self.slow = slow
        self.now, self.built = 0.0, {}
        self.estimates = estimates()

    def build(self, tuned):
        path = Path(f"{len(self.built)}.so")

        def given(lowered):
            self.built[path] = lowered
            tuned.given(lowered)

        lower(parse(GRAPH), TARGET, tuned=replace(tuned, given=given))
        return path

    def ns(self, node):
        key = node.origin, choice_name(node.choice)
        return round(1000 * self.estimates[key] * self.slow(*key))

    def steps(self, libraries, seconds):
        self.now += 1
        found = []
        for path in libraries:
            lowered = self.built[path]
            found.append(
                [
                    Timing(node.origin, 1, 0, self.ns(node) if k == 0 else 0)
                    for node in walk(lowered.graph)
                    for k in range(len(lowered.codes[node].steps))
                ]
            )
        return found

    def runs(self, libraries, seconds):
        self.now += 1
        return [1e-12 * sum(map(self.ns, walk(self.built[path].graph))) for path in libraries]

    def search(self, seconds=10, known=None):
        return tuning.Search(self.build, self, seconds, known or {}, clock=lambda: self.now)

    def choices(self, tuned):
        return {node.origin: choice_name(node.choice) for node in walk(self.built[self.build(tuned)].graph)}


def slower(*chosen):
    """Whoever is among `chosen` takes twice as long as was estimated."""
    return lambda origin, choice: 2.0 if (origin, choice) in chosen else 1.0


@pytest.fixture(scope="module")
def usual():
    """The choices of estimates."""
    machine = Machine(slower())
    return machine.choices(tuning.Tuned())


def test_a_choice_that_promised_too_much_gives_way_to_the_fastest_that_was_seen(usual):
    machine = Machine(slower(("one", usual["one"])))
    found = machine.search().found()
    assert found.kept and found.after < found.before
    chosen = machine.choices(found.tuned)
    assert chosen["one"] != usual["one"] and chosen["other"] == usual["other"]
    won = [f for f in found.findings if f.won]
    assert {f.nodes for f in won} == {("one",)}
    assert all(f.measured < f.expected for f in won)


def test_where_estimates_hold_nothing_is_changed(usual):
    machine = Machine(slower())
    found = machine.search().found()
    assert not found.kept and not any(f.won for f in found.findings)
    assert found.findings
    assert all(f.measured == pytest.approx(f.expected, rel=0.02) for f in found.findings)
    assert machine.choices(found.tuned) == usual


def test_all_that_is_near_is_tried_unless_the_time_is_over():
    patient, hasty = Machine(slower()), Machine(slower())
    assert len(patient.search(1000).found().findings) > len(hasty.search(2).found().findings) > 0
    assert hasty.now <= 2


def test_a_little_faster_is_not_faster(usual):
    known = estimates()

    def a_little(origin, choice):
        usually = known[origin, usual[origin]]
        return 1.0 if choice == usual[origin] else 0.98 * usually / known[origin, choice]

    machine = Machine(a_little)
    found = machine.search().found()
    assert found.findings and not found.kept
    assert machine.choices(found.tuned) == usual


def test_a_model_that_did_not_become_faster_stays_as_it_was(usual):
    machine = Machine(slower(("one", usual["one"])))
    for told in (
        ([1.0, 0.995], [0.995, 1.0]),
        ([1.0, 0.5], [1.0, 0.5]),
    ):  # a little; only when it is the second
        answers = iter(told)
        machine.runs = lambda libraries, seconds, answers=answers: next(answers)
        found = machine.search().found()
        assert not found.kept and found.before is not None
        assert machine.choices(found.tuned) == usual


def test_a_choice_that_crashes_is_never_made_again(usual):
    machine = Machine(slower(("one", usual["one"])))
    steps, crashed = machine.steps, []

    def crashing(libraries, seconds):
        if len(libraries) == 2 and len(crashed) < 2:
            nodes = walk(machine.built[libraries[1]].graph)
            crashed.append({node.origin: choice_name(node.choice) for node in nodes})
            raise RunError("the process ended with status -11")
        return steps(libraries, seconds)

    machine.steps = crashing
    found = machine.search(30).found()
    chosen = machine.choices(found.tuned)
    assert found.kept and crashed[0] != crashed[1]
    assert chosen["one"] not in {each["one"] for each in crashed}


def test_what_won_is_chosen_without_being_measured_again(usual):
    slow = slower(("one", usual["one"]))
    before = Machine(slow)
    ratios = before.search(1000).found().tuned.ratios
    again = Machine(slow)
    found = again.search(1000, ratios).found()
    assert found.kept and found.findings == ()
    assert again.choices(found.tuned) == before.choices(tuning.Tuned(ratios))


def test_what_is_kept_is_found_again_by_the_same_compiler_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("ONNXC_CACHE", str(tmp_path / "cache"))
    tuning.keep_ratios(TARGET, "compiler", {"node": {"a": 1.0, "b": 0.5}})
    tuning.keep_ratios(TARGET, "compiler", {"other": {"c": 1.0}})
    kept = {"node": {"a": 1.0, "b": 0.5}, "other": {"c": 1.0}}
    assert tuning.kept_ratios(TARGET, "compiler") == kept
    assert list(tuning.kept_ratios(TARGET, "compiler")["node"]) == ["a", "b"]
    assert tuning.kept_ratios(TARGET, "another") == {}
    assert tuning.kept_ratios(replace(TARGET, facts=Facts(loads=1.0)), "compiler") == {}
    (file,) = (tmp_path / "cache").glob("tuned-*")
    file.write_text("[1]")
    assert tuning.kept_ratios(TARGET, "compiler") == {}


def test_a_node_has_one_name_whatever_its_values_are_called_and_however_they_are_stored():
    def names(text):
        return [node_name(node) for node in walk(lower(parse(text), TARGET).graph)]

    assert names(GRAPH) == names(GRAPH.replace("%0", "%h").replace('"one"', '"two"'))
    assert len({*names(GRAPH), *names(GRAPH.replace("64", "68"))}) == 4
