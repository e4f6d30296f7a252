"""merge_movement: movement that moves nothing vanishes, and two moves in a row become one."""

import pytest
from support.pass_text import agrees, becomes, clean, ops, stays

from onnxc.passes.merge_movement import MAX_PARTS, merge_movement


@pytest.mark.parametrize(
    "node", ["map(%x) { $0 }", "transpose(%x) perm=(0, 1)", "reshape(%x) shape=(n, 4)", "concat(%x) axis=0"]
)
def test_what_moves_nothing_vanishes(node):
    becomes(
        clean(merge_movement),
        f"""graph g(%x: float32[n, 4]) {{
        %0 = {node}
        %1 = reduce(%0) kind=sum axes=(1)
        return %0, %1
    }}""",
        """graph g(%x: float32[n, 4]) {
        %1 = reduce(%x) kind=sum axes=(1)
        return %x, %1
    }""",
    )


@pytest.mark.parametrize(
    "node",
    [
        "map(%x) { $0 } shape=(m, n, 4)",
        "map(%x) { cast($0, float64) }",
        "map(%x, %y) { $0 }",
        "transpose(%x) perm=(1, 0)",
        "reshape(%x) shape=(4, n)",
        "reshape(%x) shape=(k, 4)",
    ],
)
def test_what_changes_a_shape_or_a_type_stays(node):
    stays(
        merge_movement,
        f"graph g(%x: float32[n, 4], %y: float32[m, 1, 1], %z: float32[k]) {{\n%0 = {node}\nreturn %0\n}}",
    )


def test_what_is_read_from_a_sequence_stays():
    stays(
        merge_movement,
        "graph g(%s: seq<float32[n]>) {\n%0 = runtime_call(%s) symbol=f : int64[]\nreturn %0\n}",
    )


def test_joins_along_one_axis_become_one():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[n, 4], %y: float32[m, 4], %z: float32[1, 4]) {
        %0 = concat(%x, %y) axis=0
        %1 = concat(%z, %0, %x) axis=0
        %2 = concat(%1, %y) axis=0
        return %2
    }""",
        """graph g(%x: float32[n, 4], %y: float32[m, 4], %z: float32[1, 4]) {
        %2 = concat(%z, %x, %y, %x, %y) axis=0
        return %2
    }""",
    )


def test_joins_along_two_axes_stay_two():
    stays(
        merge_movement,
        """graph g(%x: float32[n, 4], %y: float32[n, 4], %z: float32[n, 8]) {
        %0 = concat(%x, %y) axis=1
        %1 = concat(%0, %z) axis=0
        return %1
    }""",
    )


def test_a_join_that_others_read_stays():
    stays(
        merge_movement,
        """graph g(%x: float32[n, 4], %y: float32[m, 4]) {
        %0 = concat(%x, %y) axis=0
        %1 = concat(%0, %x) axis=0
        return %0, %1
    }""",
    )


def test_a_join_that_is_read_twice_by_one_stays():
    stays(
        merge_movement,
        """graph g(%x: float32[n, 4], %y: float32[m, 4]) {
        %0 = concat(%x, %y) axis=0
        %1 = concat(%0, %0) axis=0
        return %1
    }""",
    )


def test_a_long_chain_of_joins_is_merged_in_pieces():
    lines = [f"%{k + 1} = concat(%{k}, %x) axis=0" for k in range(3 * MAX_PARTS)]
    text = f"graph g(%0: float32[n], %x: float32[1]) {{ {' '.join(lines)} return %{len(lines)} }}"
    found = agrees(clean(merge_movement), text, n=2)
    assert 3 < len(found.nodes) < 6
    assert max(len(node.inputs) for node in found.nodes) == MAX_PARTS


def test_two_transposes_become_one():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[a, b, c]) {
        %0 = transpose(%x) perm=(1, 2, 0)
        %1 = transpose(%0) perm=(0, 2, 1)
        return %1
    }""",
        """graph g(%x: float32[a, b, c]) {
        %1 = transpose(%x) perm=(1, 0, 2)
        return %1
    }""",
    )


def test_a_transpose_and_its_inverse_are_a_view():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[a, b, c]) {
        %0 = transpose(%x) perm=(1, 2, 0)
        %1 = transpose(%0) perm=(2, 0, 1)
        return %1
    }""",
        """graph g(%x: float32[a, b, c]) {
        %1 = reshape(%x) shape=(a, b, c)
        return %1
    }""",
    )


def test_a_transpose_of_axes_of_size_one_is_a_view():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[1, n, 1, 8]) {
        %0 = transpose(%x) perm=(2, 1, 0, 3)
        %1 = transpose(%x) perm=(1, 0, 3, 2)
        return %0, %1
    }""",
        """graph g(%x: float32[1, n, 1, 8]) {
        %0 = reshape(%x) shape=(1, n, 1, 8)
        %1 = reshape(%x) shape=(n, 1, 8, 1)
        return %0, %1
    }""",
    )


def test_a_transpose_of_an_axis_that_may_be_longer_than_one_stays():
    stays(
        merge_movement,
        """graph g(%x: float32[n, m]) {
        %0 = transpose(%x) perm=(1, 0)
        return %0
    }""",
    )


def test_two_slices_become_one():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[n + 9, 9]) {
        %0 = slice(%x) starts=(n + 6, 1) sizes=(n + 7, 4) steps=(-1, 2)
        %1 = slice(%0) starts=(1, 3) sizes=(2, 2) steps=(3, -1)
        return %1
    }""",
        """graph g(%x: float32[n + 9, 9]) {
        %1 = slice(%x) starts=(n + 5, 7) sizes=(2, 2) steps=(-3, -2)
        return %1
    }""",
    )


def test_slices_of_slices_are_the_same_elements():
    agrees(
        clean(merge_movement),
        """graph g(%x: float32[n + 9, 9]) {
        %0 = slice(%x) starts=(n + 6, 1) sizes=(n + 7, 4) steps=(-1, 2)
        %1 = slice(%0) starts=(1, 3) sizes=(2, 2) steps=(3, -1)
        return %1, %0
    }""",
        n=2,
    )


@pytest.mark.parametrize("n, m", [(0, 2), (1, 1), (3, 0), (2, 3)])
def test_elements_end_where_they_did(n, m):
    agrees(
        clean(merge_movement),
        """graph g(%x: float32[n, 1, m, 2], %y: float32[2, 1, n, m]) {
        %0 = transpose(%x) perm=(3, 1, 0, 2)
        %1 = concat(%0, %y) axis=0
        %2 = concat(%y, %1) axis=0
        %3 = transpose(%2) perm=(1, 0, 2, 3)
        %4 = transpose(%3) perm=(0, 3, 1, 2)
        return %4
    }""",
        n=n,
        m=m,
    )


def test_movement_in_branches_is_merged():
    becomes(
        clean(merge_movement),
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = if(%c, %x) then=(%a: float32[n]) {
            %1 = map(%a) { $0 }
            return %1
        } otherwise=(%a: float32[n]) { return %a } : float32[n]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = if(%c, %x) then=(%a: float32[n]) { return %a } otherwise=(%a: float32[n]) {
            return %a
        } : float32[n]
        return %0
    }""",
    )


def test_an_image_of_a_sequence_is_moved_as_an_image():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[n, 6, 8]) {
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = reshape(%0) shape=(n, 8, 2, 3)
        return %1
    }""",
        """graph g(%x: float32[n, 6, 8]) {
        %0 = reshape(%x) shape=(n, 2, 3, 8)
        %1 = transpose(%0) perm=(0, 3, 1, 2)
        return %1
    }""",
    )


def test_a_sequence_of_an_image_is_moved_as_an_image():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[n, 8, h, w]) {
        %0 = reshape(%x) shape=(n, 8, h*w)
        %1 = transpose(%0) perm=(0, 2, 1)
        return %1
    }""",
        """graph g(%x: float32[n, 8, h, w]) {
        %0 = transpose(%x) perm=(0, 2, 3, 1)
        %1 = reshape(%0) shape=(n, h*w, 8)
        return %1
    }""",
    )


def test_a_sequence_that_becomes_an_image_and_one_again_is_not_moved():
    becomes(
        clean(merge_movement),
        """graph g(%x: float32[n, 6, 8]) {
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = reshape(%0) shape=(n, 8, 2, 3)
        %2 = reshape(%1) shape=(n, 8, 6)
        %3 = transpose(%2) perm=(0, 2, 1)
        return %1, %3
    }""",
        """graph g(%x: float32[n, 6, 8]) {
        %0 = reshape(%x) shape=(n, 2, 3, 8)
        %1 = transpose(%0) perm=(0, 3, 1, 2)
        %2 = reshape(%x) shape=(n, 6, 8)
        return %1, %2
    }""",
    )


def test_a_transposed_value_that_others_read_is_moved_once():
    stays(
        clean(merge_movement),
        """graph g(%x: float32[n, 6, 8]) {
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = reshape(%0) shape=(n, 8, 2, 3)
        return %0, %1
    }""",
    )


def test_axes_of_size_1_are_no_reason_to_move_others():
    stays(
        clean(merge_movement),
        """graph g(%x: float32[n, 6, 8]) {
        %0 = transpose(%x) perm=(0, 2, 1)
        %1 = reshape(%0) shape=(n, 8, 1, 6)
        return %1
    }""",
    )


def test_reshapes_that_follow_each_other_are_one_or_none():
    text = """graph g(%x: float32[a, b, 4]) {
        %0 = reshape(%x) shape=(a, 4 * b)
        %1 = reshape(%0) shape=(a * b, 4)
        %2 = reshape(%0) shape=(a, b, 4)
        %3 = map(%2) { exp($0) }
        return %1, %3
    }"""
    graph = agrees(clean(merge_movement), text, a=2, b=3)
    assert ops(graph) == ["Reshape", "Map"]


JOINED = """graph g(%x: float32[2, a], %y: float32[2, 3], %z: float32[2, b]) {{
        %0 = concat(%x, %y, %z) axis=1
        %1 = slice(%0) starts=({start}) sizes=({size}) steps=({steps})
        return %1{more}
    }}"""


@pytest.mark.parametrize(
    ("start", "size", "left"),
    [
        ("0, a", "2, 3", []),  # a part
        ("0, 0", "2, a", []),
        ("1, a + 1", "1, 2", ["Slice"]),  # of a part
        ("0, a + 3", "2, b", []),
        ("0, 0", "2, a + 3", ["Concat"]),  # several parts
        ("0, a", "2, b + 3", ["Concat", "Slice"]),
        ("0, 1", "2, max(a - 1, 0)", ["Concat", "Slice"]),  # which may be none of the first
    ],
)
def test_a_slice_of_what_is_joined_is_one_of_a_part(start, size, left):
    text = JOINED.format(start=start, size=size, steps="1, 1", more="")
    assert ops(agrees(clean(merge_movement), text, a=4, b=2)) == left


def test_a_part_that_is_read_backwards_stays_so():
    text = JOINED.format(start="1, a", size="2, 3", steps="-1, 1", more="")
    assert ops(agrees(clean(merge_movement), text, a=4, b=2)) == ["Slice"]
    stays(clean(merge_movement), JOINED.format(start="1, 0", size="2, a + 3", steps="-1, 1", more=""))


def test_what_is_joined_for_others_is_not_joined_twice():
    stays(clean(merge_movement), JOINED.format(start="0, 0", size="2, a + 3", steps="1, 1", more=", %0"))
    stays(clean(merge_movement), JOINED.format(start="0, 0", size="2, 2", steps="1, 2", more=""))


@pytest.mark.parametrize(
    ("start", "size", "left"),
    [
        ("0, 0", "n + 2, 2", ["Broadcast"]),  # before
        ("n + 1, 0", "1, 8", ["Broadcast"]),  # and after
        ("1, 2", "n, 5", []),
        ("1, 3", "n, 2", ["Slice"]),
        ("0, 2", "n + 2, 5", ["Pad"]),
        ("1, 1", "n + 1, 7", ["Pad"]),
        ("0, 3", "n + 2, 2", ["Pad", "Slice"]),  # both
    ],
)
def test_a_slice_of_what_is_padded(start, size, left):
    text = f"""graph g(%x: float32[n, 5]) {{
        %c = constant float32[] (0.5)
        %0 = pad(%x, %c) mode=constant before=(1, 2) after=(1, 1)
        %1 = slice(%0) starts=({start}) sizes=({size}) steps=(1, 1)
        return %1
    }}"""
    assert ops(agrees(clean(merge_movement), text, n=3)) == left
