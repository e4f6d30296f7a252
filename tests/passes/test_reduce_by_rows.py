"""reduce_by_rows: the least and the greatest element of a tensor are those of its rows'."""

import numpy as np
import pytest
from support.pass_text import agrees, becomes, ops, stays

from onnxc.passes.fuse_rows import fuse_rows
from onnxc.passes.reduce_by_rows import reduce_by_rows


def extreme(shape, axes, kind="max", keepdims="true", more=""):
    return f"""graph g(%x: float32[{shape}]) {{
        %0 = reduce(%x) kind={kind} axes=({axes}) keepdims={keepdims}{more}
        return %0
    }}"""


@pytest.mark.parametrize("kind", ["min", "max"])
def test_a_whole_tensor_is_searched_row_by_row(kind):
    becomes(
        reduce_by_rows,
        extreme("b, n, 384", "0, 1, 2", kind),
        f"""graph g(%x: float32[b, n, 384]) {{
        %1 = reduce(%x) kind={kind} axes=(2) keepdims=true
        %0 = reduce(%1) kind={kind} axes=(0, 1, 2) keepdims=true
        return %0
    }}""",
    )


def test_a_row_takes_in_axes_until_it_is_long():
    becomes(
        reduce_by_rows,
        extreme("b, 64, 7, 7, 9", "0, 1, 2, 3, 4"),
        """graph g(%x: float32[b, 64, 7, 7, 9]) {
        %1 = reduce(%x) kind=max axes=(2, 3, 4) keepdims=true
        %0 = reduce(%1) kind=max axes=(0, 1, 2, 3, 4) keepdims=true
        return %0
    }""",
    )


def test_what_is_done_to_elements_is_done_once():
    source = extreme("b, 384", "0, 1", more=" body={ abs($0) }")
    becomes(
        reduce_by_rows,
        source,
        """graph g(%x: float32[b, 384]) {
        %1 = reduce(%x) kind=max axes=(1) keepdims=true body={ abs($0) }
        %0 = reduce(%1) kind=max axes=(0, 1) keepdims=true
        return %0
    }""",
    )


@pytest.mark.parametrize("b", [0, 1, 3])
@pytest.mark.parametrize("number", [0.5, np.nan, np.inf, -np.inf])
def test_extremes_stay_the_same_also_of_numbers_that_are_none(b, number):
    x = np.linspace(-1, 1, b * 5 * 70, dtype=np.float32).reshape(b, 5, 70)
    x[b - 1 : b, 2, 30] = number
    for kind in ("min", "max"):
        agrees(reduce_by_rows, extreme("b, s, 70", "0, 1, 2", kind), inputs=[x], b=b, s=5)


@pytest.mark.parametrize(
    "source",
    [
        extreme("b, n, 384", "1, 2"),
        extreme("b, n, 384", "0, 1, 2", keepdims="false"),
        extreme("b, n, 384", "0, 1, 2", "sum"),
        extreme("1, 1, 40000", "0, 1, 2"),
        extreme("8, 64", "0, 1"),
    ],
    ids=["some axes", "dropped axes", "a sum", "one row", "few elements"],
)
def test_other_reductions_stay_as_they_are(source):
    stays(reduce_by_rows, source)


RANGE = """graph g(%x: float32[b, s, 384]) {
    %0 = reduce(%x) kind=sum axes=(2) keepdims=true
    %1 = map(%x, %0) { sub($0, $1) }
    %2 = reduce(%1) kind=min axes=(0, 1, 2) keepdims=true
    %3 = reduce(%1) kind=max axes=(0, 1, 2) keepdims=true
    %4 = map(%2, %3) { div(sub($1, $0), 255.0) }
    %5 = map(%1, %4) { div($0, $1) }
    return %5
}"""


def test_the_kernel_that_makes_rows_finds_their_extremes_and_one_step_those_of_all():
    found = agrees(lambda graph: fuse_rows(reduce_by_rows(graph)), RANGE, b=2, s=30)
    assert ops(found) == ["Fused", "Fused", "Map"]
    rows, whole, _ = found.nodes
    assert [len(n.op.region.nodes) for n in (rows, whole)] == [4, 3]
