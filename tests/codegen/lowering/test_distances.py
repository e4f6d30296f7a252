"""How far away memory is when a node comes to it, by the places of the plan."""

import pytest

from onnxc.codegen import costs
from onnxc.codegen.lowering.distances import passed
from onnxc.codegen.lowering.lower import lower
from onnxc.ir.text_parser import parse
from onnxc.target import find_target

TARGET = find_target("x86-64-v4")


def distances_of(text, position):
    lowered = lower(parse(text), TARGET)
    node = lowered.graph.nodes[position]
    found = passed(lowered.graph, lowered.codes, lowered.plan)[node]
    return found[node.inputs[0]], found[node.outputs[0]], lowered.codes[node].steps[0].work


def chain(columns, reader="log($0)"):
    return f"""graph g(%x: float32[4096], %y: float32[{columns}]) {{
        %0 = map(%x) {{ exp($0) }}
        %1 = map(%y) {{ exp($0) }}
        %2 = map(%0) {{ {reader} }}
        return %1, %2 }}"""


def test_an_operand_is_farther_away_the_more_went_through_the_caches_since():
    near, middle, far = (distances_of(chain(columns), 2) for columns in (16, 1_000_000, 10_000_000))
    assert 8_000_000 <= middle[0].nbytes <= 8_100_000 and 80_000_000 <= far[0].nbytes <= 81_000_000
    assert 0 < 10 * near[0].ns < middle[0].ns < far[0].ns / 5
    assert near[2] < middle[2] < far[2]


def test_what_is_used_again_and_again_counts_once():
    first = "%1 = map(%y) { exp($0) }"
    more = "\n".join((first, *(f"%{k} = map(%{k - 1}) {{ exp($0) }}" for k in (5, 6, 7))))
    text = chain(1_000_000).replace(first, more.replace("%4", "%1")).replace("%1, %2", "%7, %2")
    assert distances_of(text, 5)[0].nbytes < 1.6 * distances_of(chain(1_000_000), 2)[0].nbytes


def test_a_result_written_over_its_operand_is_nearer_than_that():
    text = "graph g(%x: float32[100000]) { %0 = map(%x) { exp($0) } %1 = map(%0) { log($0) } return %1 }"
    operand, result, _ = distances_of(text, 1)
    assert result.nbytes < operand.nbytes <= 800_000


def test_sizes_that_the_run_tells_are_typical():
    text = "graph g(%x: float32[n, 1024]) { %0 = map(%x) { exp($0) } %1 = map(%0) { log($0) } return %1 }"
    operand, result, _ = distances_of(text, 1)
    assert operand.nbytes > 0 and result.nbytes > 0


def test_of_a_table_no_more_is_waited_for_than_what_is_found_there():
    def waits(columns):
        """Reading eight numbers of as many that were computed long before."""
        graph = parse(f"""graph g(%x: float32[{columns}], %i: int64[8], %y: float32[10000000]) {{
            %0 = map(%x) {{ exp($0) }}
            %1 = map(%y) {{ exp($0) }}
            %2 = gather(%0, %i) form=axis
            return %1, %2 }}""")
        lowered = lower(graph, TARGET)
        node = lowered.graph.nodes[-1]
        found = dict.fromkeys((*node.inputs, *node.outputs), costs.Passed(80_000_000.0))
        return costs.away(TARGET, node, 0, found).total

    assert waits(1_000_000) == pytest.approx(waits(100_000), abs=5)
