"""fuse_bands: a depthwise convolution or a pool and the convolutions around it, 1x1 ones or one of few
channels, where the images between are large."""

from dataclasses import replace

from support.pass_text import agrees, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.passes.fuse_bands import fuse_bands
from onnxc.target import TARGETS

TARGET = TARGETS["x86-64-v4"]
SMALL = replace(TARGET, facts=replace(TARGET.facts, level2_bytes=512))
POINT, WINDOW = (f"strides=(1, 1) pads={p} dilations=(1, 1)" for p in ((0, 0, 0, 0), (1, 1, 1, 1)))
BLOCK = f"""graph g(%x: float32[1, 2, h, w]) {{
    %u = constant float32[8, 2, 1, 1] splat 0.5
    %v = constant float32[8, 1, 3, 3] splat -0.25
    %w = constant float32[2, 8, 1, 1] splat 0.125
    %0 = conv(%x, %u) {POINT} epilogue={{ max($0, 0.0) }}
    %1 = conv(%0, %v) {WINDOW} groups=8
    %2 = conv(%1, %w, %x) {POINT} epilogue={{ add($0, $1) }}
    return %2
}}"""


def small(graph):
    return fuse_bands(graph, SMALL)


def members(graph):
    """The groups of the convolutions of each fused group."""
    return [[n.op.groups for n in node.op.region.nodes] for node in graph.nodes if hasattr(node.op, "region")]


def test_the_three_become_one_group():
    found = agrees(small, BLOCK, h=5, w=6, tolerance=1e-6)
    assert members(found) == [[1, 8, 1]] and ops(found) == ["Fused"]


def test_images_that_the_cache_holds_are_left_alone():
    stays(lambda graph: fuse_bands(graph, TARGET), BLOCK)


def test_a_second_reader_ends_a_group():
    found = agrees(small, BLOCK.replace("return %2", "return %2, %1"), h=5, w=6, tolerance=1e-6)
    assert members(found) == [[1, 8]] and ops(found) == ["Fused", "Conv"]


def test_what_projects_for_one_group_does_not_expand_for_the_next():
    text = BLOCK.replace(
        "return %2",
        f"""%s = constant float32[2, 1, 3, 3] splat 0.5
        %t = constant float32[3, 2, 1, 1] splat 0.25
        %3 = conv(%2, %s) {WINDOW} groups=2
        %4 = conv(%3, %t) {POINT}
        return %4""",
    )
    found = agrees(small, text, h=15, w=16, tolerance=1e-5)
    assert members(found) == [[1, 8, 1], [2, 1]]


def test_only_1x1_convolutions_of_every_pixel_join():
    strided = BLOCK.replace(
        f"conv(%1, %w, %x) {POINT}", f"conv(%1, %w) {POINT.replace('(1, 1)', '(2, 1)', 1)}"
    )
    found = agrees(small, strided.replace("add($0, $1)", "neg($0)"), h=5, w=6, tolerance=1e-6)
    assert members(found) == [[1, 8]]
    many = BLOCK.replace("%x: float32[1, 2,", "%x: float32[1, 5,").replace("[8, 2, 1, 1]", "[8, 5, 3, 3]")
    many = many.replace(f"conv(%x, %u) {POINT}", f"conv(%x, %u) {WINDOW}").replace("%w, %x)", "%w)")
    found = agrees(small, many.replace("add($0, $1)", "neg($0)"), h=5, w=6, tolerance=1e-5)
    assert members(found) == [[8, 1]]


def test_a_first_convolution_of_few_channels_joins():
    text = BLOCK.replace("[8, 2, 1, 1]", "[8, 2, 3, 3]").replace(
        f"conv(%x, %u) {POINT}", f"conv(%x, %u) {WINDOW}"
    )
    found = agrees(small, text, h=5, w=6, tolerance=1e-5)
    assert members(found) == [[1, 8, 1]]


POOLED = f"""graph g(%x: float32[1, 2, 8, 9]) {{
    %u = constant float32[8, 2, 3, 3] splat 0.5
    %w = constant float32[2, 8, 1, 1] splat 0.125
    %0 = conv(%x, %u) {WINDOW}
    %1 = pool(%0) kind=max kernel=(2, 2) strides=(2, 2) pads=(0, 0, 0, 0) dilations=(1, 1) sizes=(4, 4)
    %2 = conv(%1, %w) {POINT}
    return %2
}}"""


def kinds(graph):
    """The ops of each fused group."""
    return [
        [type(n.op).__name__ for n in node.op.region.nodes]
        for node in graph.nodes
        if hasattr(node.op, "region")
    ]


def test_a_pool_joins_what_is_before_and_behind():
    found = agrees(small, POOLED, tolerance=1e-5)
    assert kinds(found) == [["Conv", "Pool", "Conv"]]
    stays(lambda graph: fuse_bands(graph, TARGET), POOLED)


def test_a_pool_of_whole_images_is_left_alone():
    whole = POOLED.replace("kernel=(2, 2)", "kernel=(8, 9)").replace("sizes=(4, 4)", "sizes=(1, 1)")
    stays(small, whole)


def test_a_pool_that_adds_up_is_left_alone():
    found = small(parse(POOLED.replace("kind=max", "kind=sum")))
    assert kinds(found) == []


def test_weights_of_the_run_are_left_to_others():
    stays(
        small,
        BLOCK.replace("w]) {", "w], %v: float32[8, 1, 3, 3]) {").replace("%v = constant", "%z = constant"),
    )
