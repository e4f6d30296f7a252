"""assign_slices: Scatters whose places are a whole part of a tensor, in order."""

import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.passes.assign_slices import assign_slices
from onnxc.passes.merge_movement import merge_movement


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


def test_columns_that_are_assigned_are_joined_with_the_others():
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
def test_any_part_of_rows_and_columns_is_assigned(rows, columns):
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


def rows(start, count, size="n", length=8):
    """Rows of n from start on, their number a formula."""
    return f"""graph g(%x: float32[{size}, {length}], %u: float32[{count}, {length}]) {{
    %r = map() {{ index(0) }} shape=(n)
    %p = slice(%r) starts=({start}) sizes=({count}) steps=(1)
    %0 = reshape(%p) shape=({count}, 1)
    %1 = scatter(%x, %0, %u) form=nd
    return %1
}}"""


def test_rows_whose_number_the_run_decides():
    becomes(
        clean(assign_slices),
        rows("min(n, 2)", "max(n - 2, 0)"),
        """graph g(%x: float32[n, 8], %u: float32[max(n - 2, 0), 8]) {
    %0 = slice(%x) starts=(0, 0) sizes=(min(n, 2), 8) steps=(1, 1)
    %1 = concat(%0, %u) axis=0
    return %1
}""",
    )
    for n in (0, 1, 2, 5):
        agrees(clean(assign_slices), rows("min(n, 2)", "max(n - 2, 0)"), n=n)
        agrees(clean(assign_slices), rows("0", "max(n - 1, 0)"), n=n)


@pytest.mark.parametrize(
    "text",
    [
        rows("1", "n - 1", size="m"),  # there may be fewer
        rows("1", "1"),  # there may be none
        rows("0", "n").replace("%r = map() { index(0) }", "%r = map() { sub(index(0), 1) }"),
        rows("0", "n").replace("index(0) }", "mul(index(0), 2) }"),
    ],
)
def test_rows_of_which_only_the_run_tells_that_they_exist_stay(text):
    stays(clean(assign_slices), text)


def test_what_repeats_a_number_is_padding():
    text = """graph g(%u: float32[n, k]) {
    %c = constant float32[] (0.5)
    %x = broadcast(%c) shape=(n + 3, k + 1)
    %i = map() { add(index(0), 1) } shape=(n)
    %0 = reshape(%i) shape=(n, 1)
    %1 = broadcast(%0) shape=(n, k)
    %2 = reshape(%1) shape=(n, k, 1)
    %j = map() { index(0) } shape=(k)
    %3 = broadcast(%j) shape=(n, k)
    %4 = reshape(%3) shape=(n, k, 1)
    %5 = concat(%2, %4) axis=2
    %6 = scatter(%x, %5, %u) form=nd
    return %6
}"""
    becomes(
        clean(assign_slices),
        text,
        """graph g(%u: float32[n, k]) {
    %0 = constant float32[] (0.5)
    %1 = pad(%u, %0) mode=constant before=(1, 0) after=(2, 1)
    return %1
}""",
    )
    agrees(clean(assign_slices), text, n=3, k=2)
    agrees(clean(assign_slices), text, n=0, k=2)


def test_a_part_of_a_transposed_tensor_is_put_where_it_was():
    text = """graph g(%x: float32[n, 4], %u: float32[n, 2]) {
    %0 = transpose(%x) perm=(1, 0)
    %1 = transpose(%u) perm=(1, 0)
    %i = constant int64[2, 1] (1, 2)
    %2 = scatter(%0, %i, %1) form=nd
    %3 = transpose(%2) perm=(1, 0)
    return %3
}"""
    becomes(
        clean(lambda graph: merge_movement(assign_slices(graph))),
        text,
        """graph g(%x: float32[n, 4], %u: float32[n, 2]) {
    %0 = reshape(%u) shape=(n, 2)
    %1 = slice(%x) starts=(0, 0) sizes=(n, 1) steps=(1, 1)
    %2 = slice(%x) starts=(0, 3) sizes=(n, 1) steps=(1, 1)
    %3 = concat(%1, %0, %2) axis=1
    %4 = reshape(%3) shape=(n, 4)
    return %4
}""",
    )
