"""What a node computes in, and why it is not a faster kernel's: told by dumps and by inspect."""

import pytest

from onnxc.codegen.lowering.arithmetic import arithmetic_of, reason_of, summary
from onnxc.codegen.lowering.select_kernels import select_kernels
from onnxc.ir.text_parser import parse
from onnxc.target import TARGETS

NODES = {  # (node, target): what it says
    ("contract(%f, %f) lhs=mk rhs=nk out=mn accumulate=float32", "x86-64-v3"): ("float32", ""),
    ("contract(%u, %s) lhs=mk rhs=nk out=mn accumulate=int32", "cascadelake"): ("uint8 * int8 -> int32", ""),
    ("contract(%h, %h) lhs=mk rhs=nk out=mn accumulate=float32", "sapphirerapids"): (
        "bfloat16 * bfloat16 -> float32",
        "",
    ),
    ("contract(%f, %f) lhs=mk rhs=nk out=mn accumulate=float32 exact=true", "x86-64-v3"): (
        "integers in float32",
        "the target has no products of these integers",
    ),
    ("conv(%x, %w) strides=(1, 1, 1) pads=(0, 0, 0, 0, 0, 0) dilations=(1, 1, 1)", "x86-64-v4"): (
        "float32",
        "3 spatial axes",
    ),
    ("map(%f) { exp($0) }", "x86-64-v4"): ("float32", ""),
}


def chosen(node, target):
    graph = parse(f"""graph g(%f: float32[64, 64], %u: uint8[64, 64], %s: int8[64, 64], %h: bfloat16[64, 64],
            %x: float32[1, 4, 3, 3, 3], %w: float32[4, 4, 1, 1, 1]) {{
        %0 = {node}
        return %0
    }}""")
    return select_kernels(graph, TARGETS[target])


@pytest.mark.parametrize("node, target", NODES)
def test_every_node_says_what_it_computes_in_and_why_it_fell_back(node, target):
    graph = chosen(node, target)
    (found,) = graph.nodes
    arithmetic, reason = NODES[node, target]
    assert (arithmetic_of(found), reason_of(found)) == (arithmetic, reason)
    assert f"arithmetic={arithmetic}" in str(graph) and reason in str(graph)
    assert summary(graph)["arithmetic"] == {arithmetic: 1}
    assert list(summary(graph)["fallbacks"].values()) == ([reason] if reason else [])
