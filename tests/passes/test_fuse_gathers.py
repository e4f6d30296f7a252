"""fuse_gathers: Maps over rows that Gathers pick."""

import numpy as np
import pytest
from support.pass_text import agrees, ops, stays

from onnxc.ir.text_parser import parse
from onnxc.passes.fuse_gathers import fuse_gathers

ROWS = """graph g(%x: float32[n, 6, 16], %i: int64[n, p, 1], %j: int64[n, p, 1], %u: float32[n, p, 1]) {
    %0 = gather(%x, %i) form=nd batch=1
    %1 = gather(%x, %j) form=nd batch=1
    %2 = map(%0, %u, %1) { add(mul($0, $1), mul($2, sub(1.0, $1))) }
    return %2
}"""


def members(graph):
    return [[type(n.op).__name__ for n in node.op.region.nodes] for node in graph.nodes]


def test_a_map_and_the_gathers_of_its_rows_are_one_group():
    found = agrees(fuse_gathers, ROWS, n=2, p=5)
    assert members(found) == [["Gather", "Gather", "Map"]]


def test_each_gather_has_an_operand_of_its_own():
    (node,) = fuse_gathers(parse(ROWS)).nodes
    assert [str(v.type) for v in node.inputs] == [
        "float32[n, 6, 16]",
        "int64[n, p, 1]",
        "float32[n, 6, 16]",
        "int64[n, p, 1]",
        "float32[n, p, 1]",
    ]


def test_rows_that_others_read_too_are_stored():
    found = agrees(fuse_gathers, ROWS.replace("return %2", "return %2, %0"), n=1, p=3)
    assert ops(found) == ["Gather", "Fused"]
    assert [type(n.op).__name__ for n in found.nodes[1].op.region.nodes] == ["Gather", "Map"]


@pytest.mark.parametrize(
    "there, instead",
    [
        ("float32[n, 6, 16]", "float32[n, 6, 1]"),  # single numbers
        ("float32[n, 6, 16]", "float32[n, 6, 100000]"),  # rows that threads share
        ("mul($0, $1)", "cast(index(1), float32)"),
    ],
)
def test_other_maps_stay(there, instead):
    stays(fuse_gathers, ROWS.replace(there, instead))


def test_places_that_a_formula_tells_stay():
    stays(
        fuse_gathers,
        """graph g(%x: float32[6, 16], %u: float32[12, 16]) {
        %i = map() shape=(12,) { div(index(0), 2) }
        %0 = gather(%x, %i) form=axis axis=0
        %1 = map(%0, %u) { add($0, $1) }
        return %1
    }""",
    )


def test_rows_at_places_that_fractions_tell_are_picked():
    """They do not step evenly, also where sizes alone tell them (a Resize)."""
    found = agrees(
        fuse_gathers,
        """graph g(%x: float32[6, 16], %u: float32[11, 16]) {
        %i = map() shape=(11,) { cast(floor(div(cast(index(0), float32), 2.5)), int64) }
        %0 = gather(%x, %i) form=axis axis=0
        %1 = map(%0, %u) { add($0, $1) }
        return %1
    }""",
    )
    assert ops(found) == ["Map", "Fused"]


def test_known_places_stay():
    stays(
        fuse_gathers,
        """graph g(%x: float32[6, 16], %u: float32[3, 16]) {
        %i = constant int64[3] (0, 5, 2)
        %0 = gather(%x, %i) form=axis axis=0
        %1 = map(%0, %u) { add($0, $1) }
        return %1
    }""",
    )


def test_words_are_embedded_and_added_to_their_positions():
    text = """graph g(%w: int64[b, s], %y: float32[s, 32]) {
        %t = constant float32[9, 32] #words
        %0 = gather(%t, %w) form=axis axis=0
        %1 = map(%0, %y) { add($0, $1) }
        return %1
    }"""
    words = np.random.default_rng(0).standard_normal((9, 32)).astype(np.float32)
    found = agrees(fuse_gathers, text, {"words": words}, b=2, s=4)
    assert members(found) == [["Gather", "Map"]]


SUM = """graph g(%x: float32[n, 3, h, w], %i: int64[t, 5], %u: float32[t, 5, 1]) {
    %0 = gather(%x, %i) form=axis axis=2
    %1 = reduce(%0, %u) kind=sum axes=(2) body={ mul($0, $1) }
    return %1
}"""


def test_a_weighed_sum_of_what_a_gather_picks_is_one_group():
    found = agrees(fuse_gathers, SUM, n=2, h=4, w=6, t=3)
    assert members(found) == [["Gather", "Reduce"]]


@pytest.mark.parametrize(
    "there, instead",
    [
        ("axes=(2)", "axes=(3)"),
        ("kind=sum", "kind=max"),
        ("mul($0, $1)", "add($0, $1)"),
        ("%u: float32[t, 5, 1]", "%u: float32[t, 5, w]"),
        ("return %1", "return %1, %0"),
    ],
)
def test_other_sums_stay(there, instead):
    stays(fuse_gathers, SUM.replace(there, instead))


ELEMENTS = """graph g(%x: float32[n, 3, 40], %p: float32[n, 1, k]) {
    %0 = map(%p) { cast(floor($0), int32) }
    %1 = map(%p) { cast(ceil($0), int32) }
    %2 = broadcast(%0) shape=(n, 3, k)
    %3 = broadcast(%1) shape=(n, 3, k)
    %4 = gather(%x, %2) form=elements axis=2
    %5 = gather(%x, %3) form=elements axis=2
    %6 = map(%4, %5, %p) { add(mul($0, $2), $1) }
    return %6
}"""


def test_elements_come_with_the_maps_that_tell_their_places():
    found = fuse_gathers(parse(ELEMENTS))
    assert [node.op.kind for node in found.nodes] == ["gathered map"]
    assert members(found) == [["Map", "Map", "Broadcast", "Broadcast", "Gather", "Gather", "Map"]]


def test_places_that_others_read_too_are_stored():
    found = fuse_gathers(parse(ELEMENTS.replace("return %6", "return %6, %0")))
    assert ops(found) == ["Map", "Fused"]


def test_elements_that_others_read_too_are_stored():
    found = fuse_gathers(parse(ELEMENTS.replace("return %6", "return %6, %4")))
    assert ops(found) == ["Map", "Broadcast", "Gather", "Fused"]


@pytest.mark.parametrize(
    "there, instead",
    [("ceil($0)", "check(ge($0, 0.0), $0, index_out_of_range)"), ("ceil($0)", "cast(index(2), float32)")],
)
def test_places_that_are_more_than_arithmetic_are_stored(there, instead):
    found = fuse_gathers(parse(ELEMENTS.replace(there, instead)))
    assert ops(found) == ["Map", "Fused"]


@pytest.mark.parametrize(
    "there, instead",
    [
        ("{ add(mul($0, $2), $1) }", "{ add(cast(index(2), float32), add(mul($0, $2), $1)) }"),
        ("form=elements axis=2", "form=elements axis=1"),
    ],
)
def test_other_maps_of_elements_stay(there, instead):
    stays(fuse_gathers, ELEMENTS.replace(there, instead))


def test_what_elements_are_picked_from_is_stored():
    text = ELEMENTS.replace("graph g(%x: float32[n, 3, 40]", "graph g(%z: float32[n, 3, 40]")
    found = fuse_gathers(parse(text.replace("%0 =", "%x = map(%z) { exp($0) }\n    %0 =")))
    assert ops(found) == ["Map", "Fused"]
    assert found.nodes[1].inputs.count(found.nodes[0].outputs[0]) == 2
