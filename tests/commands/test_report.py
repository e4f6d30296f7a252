"""The page of `onnxc profile --html`: what it is told of a graph, where nodes are drawn, that it is whole."""

import json
import re

from onnxc.codegen.lowering.lower import lower
from onnxc.commands.report import Flow, among, flows, memory, page, places
from onnxc.ir.text_parser import parse
from onnxc.target import find_target

TARGET = find_target("x86-64-v3")


def flow_of(text, **sizes):
    return flows(lower(parse(text), TARGET), sizes)


TWO_READERS = """graph g(%x: float32[n, 64]) {
    %0 = cumulate(%x) kind=sum axis=1
    %1 = reshape(%0) shape=(64, n)
    %2 = cumulate(%1) kind=sum axis=1
    %3 = cumulate(%0) kind=sum axis=0
    return %2, %3
}"""


def test_a_node_reads_what_views_hand_on():
    assert [flow.reads for flow in flow_of(TWO_READERS, n=4)] == [(), (0,), (0,)]


def test_results_have_the_bytes_of_these_sizes_and_are_kept_when_the_caller_gets_them():
    assert [(flow.nbytes, flow.kept) for flow in flow_of(TWO_READERS, n=4)] == [
        (1024, False),
        (1024, True),
        (1024, True),
    ]


def test_sizes_that_are_not_known_leave_memory_unknown():
    assert memory(flow_of(TWO_READERS)) is None


def test_memory_holds_a_result_from_its_node_to_its_last_reader():
    chain = [Flow((), 8), Flow((0,), 4), Flow((1,), 2), Flow((0, 2), 1, kept=True)]
    assert memory(chain) == [8, 12, 14, 11]


def test_memory_keeps_what_the_caller_gets():
    assert memory([Flow((), 8, kept=True), Flow((), 4), Flow((), 2)]) == [8, 12, 10]


def test_a_node_that_did_not_run_hands_on_what_it_reads():
    assert [flow.reads for flow in among([Flow((), 1), Flow((0,), 1), Flow((1,), 1)], [0, 2, None])] == [
        (),
        (0,),
        (),
    ]


def test_a_node_stands_below_all_that_it_reads():
    reads = [(), (0,), (0,), (2,), (1, 3)]
    rows = [row for row, _ in places(reads)]
    assert rows == [0, 1, 1, 2, 3]


def test_nodes_of_a_row_stand_apart():
    found = places([(), *[(0,)] * 5, tuple(range(1, 6))])
    columns = sorted(column for row, column in found if row == 1)
    assert all(b - a >= 1 for a, b in zip(columns, columns[1:]))
    assert abs(found[-1][1] - sum(columns) / 5) < 1


def told(*names):
    nodes = [{"node": name, "kernel": "gemm", "ns": 5, "share": 0.5} for name in names]
    return {"file": "<m&m>.onnx", "ns": 10, "threads": 1, "inputs": "x", "peak": None, "nodes": nodes}


def test_the_page_is_whole_and_names_cannot_leave_their_place():
    text = page(told("a</script><script>alert(1)</script>", "{{STYLE}}"), [Flow((), 1), Flow((0,), 1)])
    assert "src=" not in text and "href=" not in text and "@import" not in text
    assert "<title>&lt;m&amp;m&gt;.onnx" in text
    data = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S).group(1)
    nodes = json.loads(data)["nodes"]
    assert [node["node"] for node in nodes] == ["a</script><script>alert(1)</script>", "{{STYLE}}"]
    assert [node["reads"] for node in nodes] == [[], [0]]
    assert [node["held"] for node in nodes] == [1, 2]


def test_without_the_model_times_are_told_alone():
    text = page(told("a"), None)
    assert '"held":null' in text and '"reads"' not in text
