"""assign_slices: Scatters whose places are a whole part of a tensor, in order."""

import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.passes.assign_slices import assign_slices


def assigned(rows="0, 1, 2, 3", columns="2, 3, 4", kind=""):
    count = len(rows.split(",")), len(columns.split(","))
    return f"""graph g(%x: float32[4, 8], %u: float32[{count[0]}, {count[1]}]) {{
    %r = constant int64[{count[0]}, 1] ({rows})
    %c = constant int64[{count[1]}] ({columns})
    %0 = broadcast(%r) shape={count}
    %1 = reshape(%0) shape=({count[0]}, {count[1]}, 1)
    %2 = broadcast(%c) shape={count}
    %3 = reshape(%2) shape=({count[0]}, {count[1]}, 1)
    %4 = concat(%1, %3) axis=2
    %5 = scatter(%x, %4, %u) form=nd{kind}
    return %5
}}"""


def test_some_columns():
    becomes(
        clean(assign_slices),
        assigned(),
        """graph g(%x: float32[4, 8], %u: float32[4, 3]) {
    %0 = slice(%x) starts=(0, 0) sizes=(4, 2) steps=(1, 1)
    %1 = slice(%x) starts=(0, 5) sizes=(4, 3) steps=(1, 1)
    %2 = concat(%0, %u, %1) axis=1
    return %2
}""",
    )


@pytest.mark.parametrize("rows", ["0, 1, 2, 3", "1, 2", "0", "3"])
@pytest.mark.parametrize("columns", ["0, 1, 2, 3, 4, 5, 6, 7", "0", "6, 7"])
def test_any_part(rows, columns):
    found = agrees(clean(assign_slices), assigned(rows, columns))
    assert "Scatter" not in ops(found)


def test_where_all_is_overwritten_nothing_is_left_to_do():
    becomes(
        clean(assign_slices),
        assigned(columns="0, 1, 2, 3, 4, 5, 6, 7"),
        "graph g(%x: float32[4, 8], %u: float32[4, 8]) { return %u }",
    )


def test_indices_that_are_stored_together():
    text = """graph g(%x: float32[2, 4], %u: float32[2, 2]) {
    %i = constant int64[2, 2, 2] (0, 1, 0, 2, 1, 1, 1, 2)
    %0 = scatter(%x, %i, %u) form=nd
    return %0
}"""
    assert ops(agrees(clean(assign_slices), text)) == ["Slice", "Slice", "Concat"]
    stays(clean(assign_slices), text.replace("(0, 1, 0, 2, 1, 1, 1, 2)", "(0, 1, 0, 2, 1, 2, 1, 1)"))


@pytest.mark.parametrize(("stored", "is_part"), [("3, 1, 1", True), ("3, 1", False)])
def test_indices_count_along_the_axis_along_which_they_are_not_repeated(stored, is_part):
    text = f"""graph g(%x: float32[3, 3], %u: float32[3, 3]) {{
        %r = constant int64[{stored}] (0, 1, 2)
        %c = constant int64[3] (0, 1, 2)
        %0 = broadcast(%r) shape=(3, 3, 1)
        %1 = broadcast(%c) shape=(3, 3)
        %2 = reshape(%1) shape=(3, 3, 1)
        %3 = concat(%0, %2) axis=2
        %4 = scatter(%x, %3, %u) form=nd
        return %4
    }}"""
    assert ("Scatter" not in ops(agrees(clean(assign_slices), text))) == is_part


@pytest.mark.parametrize(
    ("rows", "columns"), [("1, 0", "2, 3"), ("0, 2", "2, 3"), ("3, 4", "0, 1"), ("-1", "0")]
)
def test_places_in_another_order_apart_or_outside_stay(rows, columns):
    stays(clean(assign_slices), assigned(rows, columns))


def test_what_is_added_up_stays():
    stays(clean(assign_slices), assigned(kind=" reduction=add"))
