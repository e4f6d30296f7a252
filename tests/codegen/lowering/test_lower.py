"""lower: kernels, code and a plan for one target, or one sentence why not."""

import pytest
from onnxc.codegen.lowering import lower as lowering
from onnxc.codegen.lowering.lower import lower, verify_kernels

from onnxc.errors import LimitError
from onnxc.ir.text_parser import parse
from onnxc.ir.verify import InvalidGraph
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v3"]
NEGATION = """graph(%x: float32[{}]) {{
  %y = map(%x) {{ neg($0) }} {} %z = map(%y) {{ exp($0) }} {} return %z }}"""
SUM = """graph(%x: float32[{}]) {{
  %y = map(%x) {{ exp($0) }} %z = cumulate(%y) kind=sum axis=0
  %s = reduce(%z) kind=sum axes=(0) return %s }}"""


def test_every_node_that_needs_a_kernel_has_one():
    verify_kernels(parse(NEGATION.format("n", "by loop_nest()", "by loop_nest()")))
    with pytest.raises(InvalidGraph, match="it has no kernel"):
        verify_kernels(parse(NEGATION.format("n", "by loop_nest()", "")))


def test_control_flow_needs_no_kernel():
    text = "graph(%s: int64[1]) {{ bind(%s) symbols=(n) %y = elements() dims=(n) shape=() {} return %y }}"
    verify_kernels(parse(text.format("")))
    with pytest.raises(InvalidGraph, match="it has no kernel"):
        verify_kernels(parse(text.format("%z = map(%y) { neg($0) }")))


def test_a_lowered_graph_knows_its_target_its_codes_and_its_workspace():
    lowered = lower(parse(NEGATION.format(1000, "", "")), TARGET)
    assert lowered.target is TARGET
    assert set(lowered.codes) == {n for n in lowered.graph.nodes if n.choice is not None}
    scratch = max(step.scratch for code in lowered.codes.values() for step in code.steps)
    assert lowered.workspace_bytes == lowered.plan.arena_bytes + scratch


def test_the_workspace_of_unknown_sizes_is_unknown():
    assert lower(parse(SUM.format("n")), TARGET).workspace_bytes is None


def test_stages_are_told_in_order():
    told = []
    lower(parse(NEGATION.format("n", "", "")), TARGET, told.append, lambda name, graph: told.append(name))
    assert told == ["select kernels", "select_kernels", "emit kernels", "plan memory"]


def test_a_static_arena_has_a_limit(monkeypatch):
    monkeypatch.setattr(lowering, "ARENA_LIMIT", 100)
    with pytest.raises(LimitError, match=r"bytes for its intermediate values, more than the limit of 100"):
        lower(parse(SUM.format(1000)), TARGET)
