"""fuse_rows: Maps and Reduces over the same rows become one group."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, ops, stays

from onnxc.ir import interpret
from onnxc.ir.text_parser import parse
from onnxc.passes.fuse_rows import MAX_OPERANDS, fuse_rows

SOFTMAX = """graph g(%x: float32[b, n]) {
    %0 = reduce(%x) kind=max axes=(1) keepdims=true
    %1 = map(%x, %0) { exp(sub($0, $1)) }
    %2 = reduce(%1) kind=sum axes=(1) keepdims=true
    %3 = map(%1, %2) { div($0, $1) }
    return %3
}"""


def test_softmax_becomes_a_group_of_rows():
    becomes(
        fuse_rows,
        SOFTMAX,
        """graph g(%x: float32[b, n]) {
        %3 = fused(%x) kind=rows region=(%9: float32[b, n]) {
            %0 = reduce(%9) kind=max axes=(1) keepdims=true
            %1 = map(%9, %0) { exp(sub($0, $1)) }
            %2 = reduce(%1) kind=sum axes=(1) keepdims=true
            %3 = map(%1, %2) { div($0, $1) }
            return %3
        }
        return %3
    }""",
    )


@pytest.mark.parametrize("b, n", [(0, 3), (3, 0), (1, 1), (5, 7)])
def test_a_group_means_what_its_nodes_meant(b, n):
    assert ops(agrees(fuse_rows, SOFTMAX, b=b, n=n)) == ["Fused"]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_group_means_the_same_for_numbers_that_are_none(number):
    agrees(fuse_rows, SOFTMAX, inputs=[np.array([[1, number, 2]], np.float32)], b=1, n=3)


NORM = """graph g(%x: float32[b, s, 8], %r: float32[b, s, 8], %w: float32[8]) {
    %0 = map(%x, %r) { add($0, $1) }
    %1 = reduce(%0) kind=sum axes=(2) keepdims=true
    %2 = map(%1) { div($0, 8.0) }
    %3 = map(%0, %2) { sub($0, $1) }
    %4 = map(%3) { mul($0, $0) }
    %5 = reduce(%4) kind=sum axes=(2) keepdims=true
    %6 = map(%3, %5, %w) { mul(div($0, sqrt(add(div($1, 8.0), 1e-05))), $2) }
    return RESULTS
}"""


def test_a_normalisation_takes_in_the_sum_before_it():
    found = agrees(fuse_rows, NORM.replace("RESULTS", "%6"), b=2, s=3)
    assert ops(found) == ["Fused"]
    assert [str(v.type) for v in found.nodes[0].inputs] == ["float32[b, s, 8]"] * 2 + ["float32[8]"]


def test_what_others_read_of_a_group_is_a_result_of_it():
    found = agrees(fuse_rows, NORM.replace("RESULTS", "%0, %6"), b=2, s=3)
    assert len(found.nodes[0].outputs) == 2


@pytest.mark.parametrize(
    "nodes",
    [
        "%0 = reduce(%x) kind=sum axes=(1) keepdims=true %1 = map(%0) { div($0, 3.0) }",
        "%0 = map(%x) { exp($0) } %1 = reduce(%0) kind=sum axes=(1) keepdims=true",
        "%0 = map(%x) { exp($0) } %1 = map(%0) { neg($0) }",
    ],
)
def test_what_goes_over_its_rows_once_is_no_group(nodes):
    stays(fuse_rows, f"graph g(%x: float32[b, n]) {{ {nodes} return %1 }}")


@pytest.mark.parametrize(
    "reduce",
    [
        "reduce(%x) kind=sum axes=(0) keepdims=true",
        "reduce(%x) kind=and axes=(1) keepdims=true",
        "reduce(%x) kind=sum axes=() keepdims=true",
    ],
)
def test_only_reductions_of_numbers_over_the_last_axes_make_rows(reduce):
    dtype = "int32" if "and" in reduce else "float32"
    body = "and($0, $1)" if "and" in reduce else "sub($0, $1)"
    stays(
        fuse_rows,
        f"""graph g(%x: {dtype}[b, n]) {{
        %0 = {reduce}
        %1 = map(%x, %0) {{ {body} }}
        return %1
    }}""",
    )


def test_a_map_that_knows_its_place_or_may_fail_does_not_join():
    for body in ("add(sub($0, $1), cast(index(1), float32))", "check(lt($0, $1), $0, invalid_value)"):
        stays(
            fuse_rows,
            f"""graph g(%x: float32[b, n]) {{
            %0 = reduce(%x) kind=sum axes=(1) keepdims=true
            %1 = map(%x, %0) {{ {body} }}
            return %1
        }}""",
        )


def test_what_depends_on_a_group_from_outside_does_not_join_it():
    graph = parse("""graph g(%x: float32[n, n]) {
        %0 = reduce(%x) kind=sum axes=(1) keepdims=true
        %1 = map(%x, %0) { sub($0, $1) }
        %2 = transpose(%1) perm=(1, 0)
        %3 = map(%1, %2) { add($0, $1) }
        return %3
    }""")
    found = fuse_rows(graph)
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert ops(found) == ["Fused", "Transpose", "Map"]
    np.testing.assert_array_equal(interpret.run_graph(found, [x])[0], interpret.run_graph(graph, [x])[0])


def test_a_group_keeps_to_its_number_of_operands():
    names = [f"%y{k}" for k in range(MAX_OPERANDS)]
    parameters = ", ".join(f"{name}: float32[b, n]" for name in names)
    sums = "$1"
    for k in range(MAX_OPERANDS):
        sums = f"add({sums}, ${k + 2})"
    stays(
        fuse_rows,
        f"""graph g(%x: float32[b, n], {parameters}) {{
        %0 = reduce(%x) kind=sum axes=(1) keepdims=true
        %1 = map(%x, %0, {", ".join(names)}) {{ sub($0, {sums}) }}
        return %1
    }}""",
    )


def test_rows_of_a_loop_become_a_group():
    found = agrees(
        fuse_rows,
        """graph g(%t: int64[], %c: bool[], %x: float32[b, n]) {
        %0 = loop(%t, %c, %x) carried=1 body=(%i: int64[], %d: bool[], %a: float32[b, n]) {
            %1 = reduce(%a) kind=sum axes=(1) keepdims=true
            %2 = map(%a, %1) { sub($0, $1) }
            return %d, %2
        } : float32[b, n]
        return %0
    }""",
        inputs=[np.array(2), np.array(True), np.ones((2, 3), np.float32)],
        b=2,
        n=3,
    )
    assert ops(found.nodes[0].op.body) == ["Fused"]


def test_a_group_runs_before_what_reads_it_wherever_its_last_member_stood():
    agrees(
        fuse_rows,
        """graph g(%x: float32[5, 4, 3], %y: float32[5, 4, 3]) {
        %0 = reduce(%x) kind=sum axes=(2) keepdims=true
        %1 = map(%x, %0, %y) { mul(div($0, $1), $2) }
        %2 = reduce(%1) kind=sum axes=(1, 2) keepdims=true
        %3 = map(%1, %2) { sub($0, $1) }
        %4 = map(%x, %0) { max(div($0, $1), 0.0) }
        return %3, %4
    }""",
    )


def test_groups_that_would_need_each_other_stay_apart():
    """%5 joins what %0 began, so that %6 cannot join what it reads of %3."""
    agrees(
        fuse_rows,
        """graph g(%x: float32[5, 4], %y: float32[5, 4]) {
        %0 = reduce(%x) kind=sum axes=(1) keepdims=true
        %1 = map(%x, %0) { sub($0, $1) }
        %2 = reduce(%y) kind=sum axes=(1) keepdims=true
        %3 = map(%y, %2) { sub($0, $1) }
        %5 = map(%1, %3) { add($0, $1) }
        %6 = map(%3, %1) { mul($0, $1) }
        return %5, %6
    }""",
    )


def test_a_group_ends_where_a_size_is_bound():
    agrees(
        fuse_rows,
        """graph g(%x: float32[5, 4], %k: int64[1]) where n >= 0 {
        %0 = reduce(%x) kind=sum axes=(1) keepdims=true
        %1 = map(%x, %0) { div($0, $1) }
        bind(%k) symbols=(n)
        %2 = broadcast(%x) shape=(n, 5, 4)
        %3 = map(%1) { exp($0) }
        return %2, %3
    }""",
        inputs=[np.ones((5, 4), np.float32), np.array([3])],
    )


EXTREMES = """graph g(%x: float32[SHAPE]) {
    %0 = reduce(%x) kind=min axes=(0, 1) keepdims=true
    %1 = reduce(%x) kind=max axes=(0, 1) keepdims=true
    %2 = map(%0, %1) { sub($1, $0) }
    %3 = map(%x, %2) { div($0, $1) }
    return RESULTS
}"""


def test_what_is_reduced_twice_is_read_once():
    assert ops(agrees(fuse_rows, EXTREMES.replace("SHAPE", "4, 9").replace("RESULTS", "%0, %1"))) == ["Fused"]


def test_reduces_of_one_operand_over_rows_of_different_length_stay_apart():
    stays(
        fuse_rows,
        """graph g(%x: float32[4, 9]) {
        %0 = reduce(%x) kind=min axes=(1) keepdims=true
        %1 = reduce(%x) kind=max axes=(0, 1) keepdims=true
        return %0, %1
    }""",
    )


@pytest.mark.parametrize("shape, expected", [("4, 9", ["Fused"]), ("300, 900", ["Fused", "Map"])])
def test_what_only_scales_a_single_long_row_is_left_to_all_threads(shape, expected):
    assert ops(agrees(fuse_rows, EXTREMES.replace("SHAPE", shape).replace("RESULTS", "%3"))) == expected


def test_a_long_row_keeps_in_its_group_what_is_read_of_the_group_along_it():
    source = SOFTMAX.replace("b, n", "1, 100000")
    assert ops(fuse_rows(parse(source))) == ["Fused"]
