"""fuse_resampling: what interpolates, with what picks its pixels and what reads the result."""

import pytest
from support.pass_text import agrees, ops, stays

from onnxc.passes.fuse_resampling import fuse_resampling

COLUMNS = """%i = constant int64[4] (0, 0, 1, 1)
    %j = constant int64[4] (0, 1, 1, 2)
    %u = constant float32[4] (1.0, 0.75, 0.25, 1.0)
    %v = constant float32[4] (0.0, 0.25, 0.75, 0.0)
    %0 = gather(%x, %i) form=axis axis=3
    %1 = gather(%x, %j) form=axis axis=3
    %2 = map(%0, %u, %1, %v) { add(mul($0, $1), mul($2, $3)) }"""
ROWS = """%r = constant int64[5] (0, 0, 1, 1, 2)
    %s = constant int64[5] (0, 1, 1, 2, 2)
    %p = constant float32[5, 1] (1.0, 0.75, 0.25, 1.0, 1.0)
    %q = constant float32[5, 1] (0.0, 0.25, 0.75, 0.0, 0.0)
    %3 = gather(%2, %r) form=axis axis=2
    %4 = gather(%2, %s) form=axis axis=2
    %5 = map(%3, %p, %4, %q) { add(mul($0, $1), mul($2, $3)) }"""


def graph(*parts, returned, image="float32[n, 2, 3, 3]"):
    text = "\n    ".join(parts)
    return f"graph g(%x: {image}, %y: float32[n, 2, 5, 4]) {{\n    {text}\n    return {returned}\n}}"


def groups(found):
    return [
        [type(n.op).__name__ for n in node.op.region.nodes]
        for node in found.nodes
        if ops(found) and hasattr(node.op, "region")
    ]


def test_both_axes_and_the_map_behind_are_one_group():
    text = graph(COLUMNS, ROWS, "%6 = map(%5, %y) { tanh(add($0, $1)) }", returned="%6")
    found = agrees(fuse_resampling, text, n=2)
    assert ops(found) == ["Fused"]
    assert groups(found) == [["Gather", "Gather", "Map", "Gather", "Gather", "Map", "Map"]]


def test_what_others_read_too_ends_a_group():
    found = agrees(fuse_resampling, graph(COLUMNS, ROWS, returned="%5, %2"), n=1)
    assert groups(found) == [["Gather", "Gather", "Map"], ["Gather", "Gather", "Map"]]


def test_a_dear_map_is_not_computed_for_every_neighbour():
    columns = COLUMNS.replace("add(mul($0, $1), mul($2, $3))", "exp(add(mul($0, $1), mul($2, $3)))")
    found = agrees(fuse_resampling, graph(columns, ROWS, returned="%5"), n=1)
    assert groups(found) == [["Gather", "Gather", "Map"], ["Gather", "Gather", "Map"]]


def test_picked_pixels_alone_are_no_group():
    rest = "%3 = map(%0, %y) { add($0, $1) }"
    text = graph(COLUMNS.partition("%1 =")[0], rest, returned="%3").replace(
        "%y: float32[n, 2, 5, 4]", "%y: float32[n, 2, 3, 4]"
    )
    stays(
        fuse_resampling,
        "\n".join(line for line in text.splitlines() if not line.strip().startswith(("%j", "%u", "%v"))),
    )


def test_images_of_unknown_size_are_groups_of_places_that_the_run_finds():
    image = "float32[n, 2, h, w]"
    columns = COLUMNS.replace(
        "%i = constant int64[4] (0, 0, 1, 1)",
        "%i = map() { min(index(0), size(w - 1)) } shape=(4) : int64[4]",
    ).replace(
        "%j = constant int64[4] (0, 1, 1, 2)",
        "%j = map() { min(add(index(0), 1), size(w - 1)) } shape=(4) : int64[4]",
    )
    found = agrees(fuse_resampling, graph(columns, returned="%2", image=image), n=1, h=3, w=3)
    assert groups(found) == [["Gather", "Gather", "Map"]]


def test_constant_places_on_an_axis_of_unknown_size_stay():
    stays(fuse_resampling, graph(COLUMNS, returned="%2", image="float32[n, 2, 3, w]"))


@pytest.mark.parametrize("image", ["float32[n, c, 3, 3]", "int64[n, 2, 3, 3]"])
def test_images_of_unknown_channels_and_of_long_integers_stay(image):
    text = graph(COLUMNS, returned="%2", image=image)
    if "int64" in image:
        text = text.replace("float32[4] (1.0, 0.75, 0.25, 1.0)", "int64[4] (1, 2, 3, 1)")
        text = text.replace("float32[4] (0.0, 0.25, 0.75, 0.0)", "int64[4] (0, 1, 2, 0)")
    stays(fuse_resampling, text)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_images_of_other_types_are_groups_too(dtype):
    text = graph(COLUMNS, ROWS, returned="%5").replace("float32", dtype)
    assert ops(agrees(fuse_resampling, text, n=2)) == ["Fused"]


@pytest.mark.parametrize("result", ["cast({}, float16)", "cast(round(mul({}, 50.0)), uint8)"])
def test_the_result_may_be_rounded_to_another_type(result):
    rows = ROWS.replace("add(mul($0, $1), mul($2, $3))", result.format("add(mul($0, $1), mul($2, $3))"))
    assert ops(agrees(fuse_resampling, graph(COLUMNS, rows, returned="%5"), n=2)) == ["Fused"]


def test_indices_outside_the_image_stay_checked():
    stays(fuse_resampling, graph(COLUMNS.replace("(0, 1, 1, 2)", "(0, 1, 1, 3)"), returned="%2"))


BYTES = "%x = map(%b) { cast($0, float32) }"


def test_bytes_are_widened_where_few_are_read():
    text = graph(BYTES, COLUMNS, returned="%2").replace("%x: float32[n, 2, 3, 3]", "%b: uint8[n, 2, 3, 9]")
    found = agrees(fuse_resampling, text, n=2)
    assert groups(found) == [["Map", "Gather", "Gather", "Map"]]


def test_bytes_of_an_image_that_grows_are_widened_once():
    text = graph(BYTES, COLUMNS, returned="%2").replace("%x: float32[n, 2, 3, 3]", "%b: uint8[n, 2, 3, 3]")
    found = agrees(fuse_resampling, text, n=2)
    assert groups(found) == [["Gather", "Gather", "Map"]]


THINNED = """%i = constant int64[2] (0, 2)
    %j = constant int64[1] (1)
    %0 = gather(%x, %i) form=axis axis=2
    %1 = gather(%0, %j) form=axis axis=3"""


def test_few_rows_and_columns_are_picked_at_once():
    found = agrees(fuse_resampling, graph(THINNED, returned="%1"), n=2)
    assert groups(found) == [["Gather", "Gather"]]


@pytest.mark.parametrize(
    "there, instead",
    [
        ("int64[1] (1)", "int64[4] (0, 1, 1, 2)"),  # more columns than there are
        ("axis=3", "axis=2"),
        ("float32[n, 2, 3, 3]", "uint8[n, 2, 3, 3]"),
    ],
)
def test_rows_that_are_repeated_and_bytes_are_copied(there, instead):
    stays(fuse_resampling, graph(THINNED, returned="%1").replace(there, instead))


WIDENED = """%i = constant int64[4] (0, 1, 1, 2)
    %j = map() { div(index(0), 2) } shape=(80) : int64[80]
    %0 = gather(%x, %j) form=axis axis=3
    %1 = gather(%0, %i) form=axis axis=2"""


def test_long_rows_are_widened_once_however_often_they_are_repeated():
    text = graph(WIDENED, returned="%1", image="float32[n, 2, 3, 40]")
    assert groups(agrees(fuse_resampling, text, n=2)) == [["Gather", "Gather"]]


@pytest.mark.parametrize(
    "there, instead",
    [
        ("80", "60"),  # short ones
        ("int64[4] (0, 1, 1, 2)", "int64[2] (0, 2)"),  # few of them
        ("float32", "uint8"),
    ],
)
def test_short_and_few_rows_and_those_of_bytes_are_widened_apart(there, instead):
    stays(
        fuse_resampling, graph(WIDENED, returned="%1", image="float32[n, 2, 3, 40]").replace(there, instead)
    )
