"""Where states lie: in the caller's memory, changed in place where nobody reads them after."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.planned import Planned
from support.random_control import EVERY
from support.random_graphs import random_case
from support.small_models import parsed

from onnxc.codegen.lowering.check_plan import check_plan
from onnxc.codegen.lowering.lower import lower
from onnxc.codegen.lowering.plan_memory import Location
from onnxc.frontend.importer import import_model
from onnxc.ir.verify import InvalidGraph, growing_axis
from onnxc.options import Options
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS


def kinds(planned, *names):
    return [planned.place(name)[0] for name in names]


def test_a_state_that_is_changed_element_by_element_is_changed_in_place():
    p = Planned("""graph g(%h: float32[n, 4], %x: float32[n, 4]) {
        %y = map(%h, %x) { add(mul($0, 0.5), $1) }
        return %y next %h
    }""")
    assert p.place("y") == ("output", 0, 0)


def test_a_state_that_is_read_later_is_not_overwritten_before():
    p = Planned("""graph g(%h: float32[4, 4], %x: float32[4, 4]) {
        %y = map(%h, %x) { add($0, $1) }
        %z = map(%h, %y) { mul($0, sub($1, 1.0)) }
        %s = reduce(%z) kind=sum axes=(0)
        %t = reduce(%h) kind=sum axes=(0)
        return %y next %h, %s, %t
    }""")
    assert kinds(p, "y") == ["arena"]
    assert p.plan.copies == [(0, p.values["y"])]


def test_a_state_whose_rows_mix_is_not_overwritten_while_it_is_read():
    p = Planned("""graph g(%h: float32[4, 4], %w: float32[4, 4]) {
        %y = contract(%h, %w) lhs="mk" rhs="kn" out="mn" accumulate=float32
        return %y next %h
    }""")
    assert kinds(p, "y") == ["arena"]


def test_the_last_reader_may_be_before_the_writer():
    p = Planned("""graph g(%h: float32[4, 4], %w: float32[4, 4]) {
        %a = contract(%h, %w) lhs="mk" rhs="kn" out="mn" accumulate=float32
        %b = contract(%w, %a) lhs="mk" rhs="kn" out="mn" accumulate=float32
        return %b next %h, %a
    }""")
    assert p.place("b") == ("output", 0, 0)


def test_updates_are_scattered_into_a_state():
    p = Planned("""graph g(%c: float32[9, 4], %i: int64[1, 1], %u: float32[1, 4]) {
        %d = scatter(%c, %i, %u) form=nd
        %s = reduce(%d) kind=sum axes=(0)
        return %s, %d next %c
    }""")
    assert p.place("d") == ("output", 1, 0)


GROWING = """graph g(%past: float32[p, 2, 8], %x: float32[n, 2, 8], %q: float32[2, 8]) {
    %new = map(%x) { exp($0) }
    %present = concat(%past, %new) axis=0
    %scores = contract(%q, FROM) lhs="hd" rhs="khd" out="hk" accumulate=float32
    return %scores, %present next %past
}"""


@pytest.mark.parametrize("read", ["%present", "%past"])
def test_what_is_new_is_written_behind_a_state_that_grows(read):
    p = Planned(GROWING.replace("FROM", read))
    present, past = p.values["present"], p.graph.inputs[0]
    kind, index, offset = p.place("new")
    assert (kind, index) == ("output", 1) == p.place("present")[:2]
    assert str(offset) == str(past.type.nbytes)
    assert p.plan.locations[present].kind == "output"
    assert not p.plan.copies


def test_states_that_change_places_are_copied_first():
    p = Planned("""graph g(%a: float32[4, 4], %b: float32[4, 4]) {
        return %b next %a, %a next %b
    }""")
    assert [type(node.op).__name__ for node in p.graph.nodes] == ["Reorder", "Reorder"]
    assert {p.plan.locations[v].kind for v in p.graph.outputs} == {"arena", "output"}


def test_a_state_that_another_output_may_be_is_copied_before_it_changes():
    p = Planned("""graph g(%a: float32[4, 4], %c: bool[], %x: float32[4, 4]) {
        %y = map(%x) { exp($0) }
        %old = if(%c, %a, %x) then=(%i: float32[4, 4], %j: float32[4, 4]) {
            return %i
        } otherwise=(%k: float32[4, 4], %l: float32[4, 4]) {
            return %l
        } : float32[4, 4]
        return %old, %y next %a
    }""")
    assert [type(node.op).__name__ for node in p.graph.nodes][-1] == "Reorder"
    assert kinds(p, "y") == ["arena"]


def test_a_state_that_stays_is_itself():
    p = Planned("""graph g(%a: float32[4], %x: float32[4]) {
        %y = map(%x, %a) { add($0, $1) }
        return %a next %a, %y
    }""")
    assert p.plan.copies == [(0, p.graph.inputs[0])]


def test_a_state_that_is_overwritten_too_early_is_noticed():
    p = Planned("""graph g(%h: float32[4, 4], %x: float32[4, 4]) {
        %y = map(%h, %x) { add($0, $1) }
        %t = reduce(%h) kind=sum axes=(0)
        return %y next %h, %t
    }""")
    p.plan.locations[p.values["y"]] = Location("output", 0)
    p.plan.copies.clear()
    with pytest.raises(InvalidGraph, match="Reduce at 1 does not find %h"):
        check_plan(p.graph, p.codes, p.plan)


# Any graph


def with_random_states(graph, rng):
    """The graph with values of its own as outputs that are the next values of inputs of the same type."""
    values = [*graph.inputs, *(v for node in graph.nodes for v in node.outputs)]
    pairs, added = [], []
    for k, old in enumerate(graph.inputs):
        alike = [v for v in values if v is not old and v.constant is None and fits(old, v)]
        if alike:
            pairs.append((k, len(graph.outputs) + len(added)))
            added.append(rng.choice(alike))
    return replace(graph, outputs=(*graph.outputs, *added), states=tuple(pairs))


def fits(old, new):
    try:
        return growing_axis(old.type, new.type) is None
    except ValueError:
        return False


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 1 << 32))
def test_states_of_any_graph_are_safe_in_place(seed):
    rng = random.Random(seed)
    graph = with_random_states(import_model(random_case(rng, EVERY, 12).model).graph, rng)
    lowered = lower(optimise(graph, TARGETS["x86-64-v3"]), TARGETS["x86-64-v3"])
    check_plan(lowered.graph, lowered.codes, lowered.plan)


def test_an_axis_that_the_next_value_has_a_number_for_has_that_number_in_the_state():
    model = parsed("""
        step (float[1, 2, n, d] past, float[1, 2, m, 8] more) => (float[1, 2, k, 8] present) {
            present = Concat <axis = 2> (past, more)
        }""")
    graph = import_model(model, Options(states={"past": "present"})).graph
    assert str(graph.inputs[0].type) == "float32[n, 1, 2, 8]"
    assert graph.states == ((0, 0),)
