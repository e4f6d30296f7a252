"""flatten_pixels: images whose channels come last, interpolated as planes."""

import pytest
from support.pass_text import agrees, clean, ops, stays

from onnxc.passes.flatten_pixels import flatten_pixels

BODY = "{ add(mul($0, $1), mul($2, $3)) }"
ROWS = f"""%i = constant int64[2] (0, 1)
    %j = constant int64[2] (1, 2)
    %u = constant float32[2, 1, 1] (1.0, 0.75)
    %v = constant float32[2, 1, 1] (0.0, 0.25)
    %0 = gather(%x, %i) form=axis axis=1
    %1 = gather(%x, %j) form=axis axis=1
    %2 = map(%0, %u, %1, %v) {BODY}"""
COLUMNS = f"""%k = constant int64[4] (0, 0, 1, 1)
    %l = constant int64[4] (0, 1, 1, 2)
    %p = constant float32[4, 1] (1.0, 0.75, 0.25, 1.0)
    %q = constant float32[4, 1] (0.0, 0.25, 0.75, 0.0)
    %3 = gather(%2, %k) form=axis axis=2
    %4 = gather(%2, %l) form=axis axis=2
    %5 = map(%3, %p, %4, %q) {BODY}"""


def graph(*parts, returned="%5", image="%x: float32[n, 3, 3, 3]"):
    text = "\n    ".join(parts)
    return f"graph g({image}) {{\n    {text}\n    return {returned}\n}}"


def shapes(found, op):
    return [str(node.outputs[0].type) for node in found.nodes if type(node.op).__name__ == op]


def test_rows_and_columns_are_picked_of_planes():
    found = agrees(clean(flatten_pixels), graph(ROWS, COLUMNS), n=2)
    assert shapes(found, "Gather") == ["float32[n, 1, 2, 9]"] * 2 + ["float32[n, 1, 2, 12]"] * 2
    assert str(found.outputs[0].type) == "float32[n, 2, 4, 3]"


def test_an_image_without_a_batch_is_a_plane():
    text = graph(ROWS, COLUMNS, image="%x: float32[3, 3, 3]").replace("axis=1", "axis=0")
    found = agrees(clean(flatten_pixels), text.replace("axis=2", "axis=1"))
    assert shapes(found, "Gather")[-1] == "float32[1, 1, 2, 12]"


def test_the_cast_that_widens_an_image_is_one_of_a_plane():
    cast = "%x = map(%b) { cast($0, float32) }"
    found = agrees(clean(flatten_pixels), graph(cast, ROWS, COLUMNS, image="%b: uint8[n, 3, 3, 3]"), n=2)
    assert ops(found)[:2] == ["Reshape", "Map"]
    assert shapes(found, "Map")[0] == "float32[n, 1, 3, 9]"


OPEN = COLUMNS.replace(
    "%l = constant int64[4] (0, 1, 1, 2)",
    "%l = map() { min(add(index(0), 1), size(w - 1)) } shape=(4) : int64[4]",
).replace("%k = constant int64[4] (0, 0, 1, 1)", "%k = map() { min(index(0), size(w - 1)) } shape=(4)")


def test_sizes_may_be_open_and_columns_a_formula():
    found = agrees(clean(flatten_pixels), graph(ROWS, OPEN, image="%x: float32[n, 3, w, 3]"), n=2, w=5)
    assert shapes(found, "Gather")[:2] == ["float32[n, 1, 2, 3*w]"] * 2


def test_images_of_open_sizes_stay_where_pixels_have_more_than_a_few_channels():
    stays(flatten_pixels, graph(ROWS, OPEN, image="%x: float32[n, 3, w, 5]"))


def test_what_is_read_beside_pixels_is_repeated_as_they_are():
    channels = "%m = constant float32[3] (0.5, 1.0, 2.0)\n    %6 = map(%5, %m) { mul($0, $1) }"
    found = agrees(clean(flatten_pixels), graph(ROWS, COLUMNS, channels, returned="%6"), n=2)
    assert ops(found)[-2:] == ["Reshape", "Map"]  # which reads the image, as others do
    weights = COLUMNS.replace("float32[4, 1] (1.0, 0.75, 0.25, 1.0)", "float32[3] (0.5, 1.0, 2.0)")
    assert (
        shapes(agrees(clean(flatten_pixels), graph(ROWS, weights), n=2), "Broadcast")
        == ["float32[1, 1, 4, 3]"] * 2
    )


@pytest.mark.parametrize(
    "parts",
    [(ROWS,), (COLUMNS.replace("%2", "%x"),), (ROWS, COLUMNS.replace("(0, 1, 1, 2)", "(0, 1, 1, 3)"))],
    ids=["rows alone", "columns alone", "places outside"],
)
def test_pixels_that_are_not_known_to_be_picked_along_both_axes_stay(parts):
    stays(flatten_pixels, graph(*parts, returned="%2" if parts == (ROWS,) else "%5"))


def test_images_of_many_channels_stay():
    stays(flatten_pixels, graph(ROWS, COLUMNS, image="%x: float32[n, 3, 3, 17]"))
