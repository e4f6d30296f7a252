"""What a node computes in, and why it is not a faster kernel's: told by dumps and by inspect."""

from dataclasses import replace

import pytest
from support.stored import blocks_of

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import gemm_stored, loop_nest
from onnxc.codegen.lowering.arithmetic import arithmetic_of, reason_of, summary, unmeasured
from onnxc.codegen.lowering.select_kernels import select_kernels
from onnxc.ir import dims
from onnxc.ir.graph import TensorType, Value, make_node
from onnxc.ir.ops import Attention, Contract
from onnxc.ir.text_parser import parse
from onnxc.target import TARGETS, find_target

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
            %x: float32[1, 4, 3, 3, 3], %w: float32[4, 4, 2, 2, 2]) {{
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


def test_an_attention_is_left_for_its_rows_or_for_its_time():
    def reason(depth):
        q, k = (Value(TensorType("float32", (2, n, depth))) for n in (1, 9))
        node = make_node(Attention(0.5, "bqd", "bkd", "bke", "bqe"), [q, k, k])
        (choice,) = choices_of(loop_nest, node, TARGETS["x86-64-v3"])
        return reason_of(replace(node, choice=choice))

    assert reason(8) == "it was expected to be the fastest"
    assert reason(dims.symbol("d")) == "its rows are not contiguous, or their lengths are not known"


@pytest.mark.parametrize(
    "rounded, told", [(0, "float32"), (16, "int8 * uint8 -> int32")], ids=["numbers", "rounded"]
)
def test_products_of_rounded_rows_with_codes_say_that_they_are_integers(rounded, told):
    weights, target = blocks_of(4, 32, 64, 16, "middle"), find_target("x86-64-v4+avx512vnni")
    values = [Value(TensorType("float32", (8, 64))), Value(TensorType("float32", weights.shape), "", weights)]
    node = make_node(Contract("mk", "nk", "mn", "float32", None, rounded=rounded), values)
    (choice,) = choices_of(gemm_stored, node, target)
    assert arithmetic_of(replace(node, choice=choice)) == told


@pytest.mark.parametrize(
    "name, rows, found", [("sapphirerapids", 256, 1), ("sapphirerapids", 1, 0), ("x86-64-v4", 256, 0)]
)
def test_products_that_matrix_registers_may_do_faster_are_counted_until_these_are_measured(name, rows, found):
    target = TARGETS[name]
    graph = parse(f"""graph g(%x: float32[{rows}, 512], %y: uint8[{rows}, 512]) {{
        %w = constant float32[512, 512] splat 0.5
        %v = constant int8[512, 512] splat 2
        %0 = contract(%x, %w) lhs=mk rhs=kn out=mn accumulate=float32
        %1 = contract(%y, %v) lhs=mk rhs=kn out=mn accumulate=int32
        return %0, %1
    }}""")
    assert unmeasured(select_kernels(graph, target), target) == found
    sustained = replace(target.facts, matrix_sustained=target.facts.matrix_products)
    measured = replace(target, facts=sustained)
    assert unmeasured(select_kernels(graph, measured), measured) == 0
