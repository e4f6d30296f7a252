"""Costs: what an estimate says, and that steps are cut and weighed by what they take."""

import pytest
from onnxc.codegen import costs
from onnxc.codegen.costs import Estimate
from onnxc.codegen.kernel import chosen
from onnxc.codegen.lowering.select_kernels import select_kernels

from onnxc.ir import dims
from onnxc.ir.text_parser import parse
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v3"]
CHAIN = "graph g(%x: float32[n, 64]) { %0 = map(%x) { exp($0) } return %0 }"


def test_memory_is_fetched_while_instructions_run():
    both = Estimate(compute=100, memory=80, overhead=5)
    assert 105 < both.total < 185
    assert Estimate(compute=100).total == Estimate(memory=100).total == 100


def test_bytes_that_fit_no_cache_take_longer():
    facts = TARGET.facts
    sizes = (facts.level2_bytes, facts.level3_bytes, 4 * facts.level3_bytes)
    times = [costs.move(TARGET, 1 << 20, among).memory for among in sizes]
    assert times == sorted(times) and len(set(times)) == 3


def test_a_steps_work_follows_the_sizes_of_the_run():
    work = costs.work(Estimate(compute=640.0), dims.symbol("n"))
    assert [dims.evaluate(work, {"n": n}) for n in (0, 64, 6400)] == [0, 640, 64_000]


def test_a_size_is_typical_where_the_user_says_so():
    n, seq = dims.symbol("n"), dims.symbol("seq", typical=1000)
    assert dims.typical(n * seq) == dims.LENGTH * 1000
    assert dims.typical(seq - 2000) == 1


@pytest.mark.parametrize(
    ("nanoseconds", "parts"), [(10, 1), (costs.PART_NS * 3, 3), (1e12, costs.MOST_PARTS)]
)
def test_parts_follow_from_the_time(nanoseconds, parts):
    assert costs.parts_for(nanoseconds) == parts >= 1
    assert costs.MOST_PARTS >= 64


def test_dumps_show_what_a_node_is_estimated_to_take():
    (node,) = select_kernels(parse(CHAIN), TARGET).nodes
    cost = chosen(node).cost
    assert f"ns={cost.total:.0f}, compute={cost.compute:.0f}, memory={cost.memory:.0f}" in str(node.choice)
