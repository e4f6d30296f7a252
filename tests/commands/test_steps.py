"""Which node is behind each step of a run, and what bounds it."""

from dataclasses import replace

import pytest
from support.stored import blocks_of

from onnxc.codegen.costs import READ, WRITTEN
from onnxc.codegen.lowering.lower import lower
from onnxc.commands.steps import Expected, Work, expectations, input_sizes
from onnxc.facts import Facts
from onnxc.ir.text_parser import parse
from onnxc.loading.timing import Timing, matched
from onnxc.target import find_target

#: One whose caches and memory are alike, so that bounds can be told by hand.
ALIKE = Facts(multiply_adds=4.0, loads=0.5, level2_rate=32.0, level3_rate=32.0, memory_rate=32.0)
TARGET = replace(find_target("x86-64-v4"), facts=ALIKE)


def expected(text, **sizes):
    return list(expectations(lower(parse(text), TARGET), TARGET, sizes))


CONV = """graph g(%x: float32[1, 64, 56, 56]) {
    %k = constant float32[64, 64, 3, 3] splat 0.25
    %0 = conv(%x, %k) strides=(1, 1) pads=(1, 1, 1, 1) dilations=(1, 1) groups=1 accumulate=float32
    return %0
}"""
PRODUCT = """graph g(%x: float32[n, 512], %w: float32[512, 512]) {
    %0 = contract(%x, %w) lhs=nk rhs=km out=nm accumulate=float32
    return %0
}"""


def test_a_product_is_bound_by_its_multiply_adds_where_they_are_many():
    (node,) = expected(PRODUCT, n=512)
    assert node.work == Work(512**3, 3 * 4 * 512**2, 512**3 / (4 * 16))


def test_a_product_of_one_row_is_bound_by_the_bytes_of_its_matrix():
    (node,) = expected(PRODUCT, n=1)
    assert node.work.bound == pytest.approx(4 * (READ * (512 + 512**2) + WRITTEN * 512) / 32)


def test_codes_of_few_bits_count_as_the_bytes_that_they_are():
    graph = parse("""graph g(%x: float32[1, 512]) {
        %w = constant float32[512, 512] splat 0.25
        %0 = contract(%x, %w) lhs=nk rhs=mk out=nm accumulate=float32
        return %0
    }""")
    graph.nodes[0].inputs[1].constant = blocks_of(4, 512, 512, 32, "middle")
    (node,) = expectations(lower(graph, TARGET), TARGET, {})
    assert node.work.nbytes == 2 * 4 * 512 + 512 * 512 // 2 + 4 * 512 * 512 // 32


def test_windows_over_padding_leave_products_out_of_the_bound():
    text = CONV.replace("56, 56", "28, 28").replace(
        "(1, 1, 1, 1) dilations=(1, 1)", "(18, 18, 18, 18) dilations=(18, 18)"
    )
    (node,) = [n for n in expected(text) if n.kernel == "conv_padded"]
    reached = (28 + 2 * 10) / (3 * 28)  # along an axis
    assert node.work.bound == pytest.approx(reached**2 * node.work.multiply_adds / (4 * 16))


def test_transforms_are_in_the_bound_of_a_convolution_by_winograd():
    (node,) = [n for n in expected(CONV) if n.kernel == "winograd"]
    direct = node.work.multiply_adds / (4 * 16)
    assert 64 / 324 * direct < node.work.bound < direct
    faster = replace(TARGET, facts=replace(ALIKE, instructions=60.0))
    assert [*expectations(lower(parse(CONV), TARGET), faster)][1].work.bound < node.work.bound


def test_work_of_a_size_that_is_not_known_is_not_known():
    (node,) = expected(PRODUCT)
    assert node.work is None


def test_sizes_are_those_of_the_inputs():
    assert input_sizes(parse(PRODUCT), {"x": [[0.0] * 512] * 7}) == {"n": 7}


def node(name, steps=1, copies=0):
    return Expected(name, "kernel", "", 0.0, 0.0, 0.0, steps, None, copies)


@pytest.mark.parametrize(
    ("run", "places"),
    [
        ("abbc", [0, 1, 1, 2]),
        ("abbabb", [0, 1, 1, 0, 1, 1]),  # a loop
        ("ac", [0, 2]),  # a branch that is not taken
        ("axbb", [0, None, 1, 1]),
    ],
)
def test_a_step_is_of_the_next_node_with_its_name(run, places):
    nodes = [node("a"), node("b", 2), node("c")]
    assert matched(nodes, [Timing(name, 1, 0, 1) for name in run]) == places


@pytest.mark.parametrize(
    ("run", "places"), [("aaaa", [0, 0, 1, 2]), ("aaa", [0, 1, 2]), ("aaaaaa", [0, 1, 2] * 2)]
)
def test_copies_that_a_run_leaves_out_are_no_steps(run, places):
    nodes = [node("a", 2, copies=1), node("a"), node("a")]
    assert matched(nodes, [Timing(name, 1, 0, 1) for name in run]) == places
