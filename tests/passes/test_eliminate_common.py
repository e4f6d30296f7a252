"""eliminate_common: equal nodes over equal operands become one, and nothing else does."""

from support.pass_text import becomes, stays

from onnxc.passes.eliminate_common import eliminate_common


def test_equal_nodes_become_one():
    becomes(
        eliminate_common,
        """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%x) { exp($0) }
        %2 = map(%0, %1) { add($0, $1) }
        return %2
    }""",
        """graph g(%x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %2 = map(%0, %0) { add($0, $1) }
        return %2
    }""",
    )


def test_what_equal_nodes_lead_to_is_equal_too():
    becomes(
        eliminate_common,
        """graph g(%x: float32[n, 4]) {
        %0 = map(%x) { exp($0) }
        %1 = map(%x) { exp($0) }
        %2 = transpose(%0) perm=(1, 0)
        %3 = transpose(%1) perm=(1, 0)
        return %2, %3
    }""",
        """graph g(%x: float32[n, 4]) {
        %0 = map(%x) { exp($0) }
        %2 = transpose(%0) perm=(1, 0)
        return %2, %2
    }""",
    )


def test_other_operands_or_fields_make_another_node():
    stays(
        eliminate_common,
        """graph g(%x: float32[n, n], %y: float32[n, n]) {
        %0 = transpose(%x) perm=(1, 0)
        %1 = transpose(%y) perm=(1, 0)
        %2 = transpose(%x) perm=(0, 1)
        return %0, %1, %2
    }""",
    )


def test_the_order_of_operands_makes_another_node():
    stays(
        eliminate_common,
        """graph g(%x: float32[n], %y: float32[n]) {
        %0 = map(%x, %y) { sub($0, $1) }
        %1 = map(%y, %x) { sub($0, $1) }
        return %0, %1
    }""",
    )


def test_small_equal_constants_are_equal_operands():
    becomes(
        eliminate_common,
        """graph g(%x: float32[2]) {
        %a = constant float32[2] (1.0, nan)
        %b = constant float32[2] (1.0, nan)
        %0 = map(%x, %a) { add($0, $1) }
        %1 = map(%x, %b) { add($0, $1) }
        return %0, %1
    }""",
        """graph g(%x: float32[2]) {
        %a = constant float32[2] (1.0, nan)
        %0 = map(%x, %a) { add($0, $1) }
        return %0, %0
    }""",
    )


def test_a_value_repeated_equally_often_is_an_equal_operand():
    becomes(
        eliminate_common,
        """graph g(%x: float32[1000]) {
        %a = constant float32[1000] splat 0.5
        %b = constant float32[1000] splat 0.5
        %0 = concat(%x, %a) axis=0
        %1 = concat(%x, %b) axis=0
        return %0, %1
    }""",
        """graph g(%x: float32[1000]) {
        %a = constant float32[1000] splat 0.5
        %0 = concat(%x, %a) axis=0
        return %0, %0
    }""",
    )


def test_zeros_of_two_signs_are_different_operands():
    stays(
        eliminate_common,
        """graph g(%x: float32[2]) {
        %a = constant float32[2] (1.0, 0.0)
        %b = constant float32[2] (1.0, -0.0)
        %c = constant float32[2] splat 0.0
        %d = constant float32[2] splat -0.0
        %0 = map(%x, %a) { div($0, $1) }
        %1 = map(%x, %b) { div($0, $1) }
        %2 = map(%x, %c) { div($0, $1) }
        %3 = map(%x, %d) { div($0, $1) }
        return %0, %1, %2, %3
    }""",
    )


def test_equal_bytes_of_another_type_or_shape_are_different_operands():
    stays(
        eliminate_common,
        """graph g(%x: bool[2]) {
        %a = constant int32[2] (0, 0)
        %b = constant float32[2] (0.0, 0.0)
        %c = constant int32[1, 2] (0, 0)
        %0 = map(%x, %a) { select($0, 1:int32, $1) }
        %1 = map(%x, %b) { select($0, 1.0:float32, $1) }
        %2 = map(%x, %c) { select($0, 1:int32, $1) }
        return %0, %1, %2
    }""",
    )


def test_random_numbers_and_calls_are_taken_anew():
    stays(
        eliminate_common,
        """graph g(%x: float32[n]) {
        %0 = random() kind=normal dtype=float32 shape=(n) a=0.0 b=1.0
        %1 = random() kind=normal dtype=float32 shape=(n) a=0.0 b=1.0
        %2 = runtime_call(%x) symbol=nonzero : int64[1, k]
        %3 = runtime_call(%x) symbol=nonzero : int64[1, l]
        return %0, %1, %2, %3
    }""",
    )


def test_every_size_is_bound():
    stays(
        eliminate_common,
        """graph g(%x: float32[8], %s: int64[1]) {
        bind(%s) symbols=(k)
        bind(%s) symbols=(l)
        %0 = slice(%x) starts=(0) sizes=(k) steps=(1)
        %1 = slice(%x) starts=(0) sizes=(l) steps=(1)
        return %0, %1
    }""",
    )


def test_equal_nodes_of_one_branch_become_one():
    becomes(
        eliminate_common,
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = if(%c, %x) then=(%a: float32[n]) {
            %1 = map(%a) { exp($0) }
            %2 = map(%a) { exp($0) }
            %3 = map(%1, %2) { add($0, $1) }
            return %3
        } otherwise=(%a: float32[n]) { return %a } : float32[n]
        return %0
    }""",
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = if(%c, %x) then=(%a: float32[n]) {
            %1 = map(%a) { exp($0) }
            %3 = map(%1, %1) { add($0, $1) }
            return %3
        } otherwise=(%a: float32[n]) { return %a } : float32[n]
        return %0
    }""",
    )


def test_equal_nodes_of_two_branches_stay_in_theirs():
    stays(
        eliminate_common,
        """graph g(%c: bool[], %x: float32[n]) {
        %0 = map(%x) { exp($0) }
        %1 = if(%c, %x) then=(%a: float32[n]) {
            %2 = map(%a) { exp($0) }
            return %2
        } otherwise=(%a: float32[n]) {
            %3 = map(%a) { exp($0) }
            return %3
        } : float32[n]
        return %0, %1
    }""",
    )
