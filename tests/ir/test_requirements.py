"""What operands must agree on is refused where it is known to be wrong, else left to the run."""

import numpy as np
import pytest

from onnxc.ir import dims, ops
from onnxc.ir.expr import input_
from onnxc.ir.graph import Graph, Node, TensorType, Value, constant_value, make_node
from onnxc.ir.requirements import TypeMismatch

n, m, k = (dims.symbol(name) for name in "nmk")
signs = {"equal": "==", "broadcast": "repeats to", "least": ">=", "inside": "places with"}
x32 = input_(0, "float32")
lstm = ops.Recurrent("lstm", 2, ("forward",), (("tanh", 0.0, 0.0),) * 3, ("h",))


def operands(*shapes, dtypes=()):
    return [Value(TensorType(t, s)) for t, s in zip((*dtypes, *["float32"] * 9), shapes)]


def left_to_the_run(op, *shapes, dtypes=()):
    return asked_by(make_node(op, operands(*shapes, dtypes=dtypes)))


def asked_by(node):
    return {f"{r.a} {signs[r.kind]} {r.b}" for r in ops.requirements(node)}


@pytest.mark.parametrize(
    ("op", "shapes", "expected"),
    [
        (ops.Map(x32 + input_(1, "float32")), [(n, 4), (n, 4)], set()),
        (ops.Map(x32 + input_(1, "float32")), [(n,), (4,)], {"n repeats to 4"}),
        (ops.Broadcast((n, 4)), [(m, 1)], {"m repeats to n"}),
        (ops.Contract("mk", "kn", "mn", "float32"), [(2, n), (m, 3)], {"n == m"}),
        (ops.Contract("mk", "kn", "mn", "float32"), [(2, n), (5, 3)], {"n == 5"}),
        (ops.Conv((1,), (0, 0), (1,)), [(1, n, 8), (6, 4, 3)], {"n == 4"}),
        (ops.Conv((1,), (0, 0), (1,), 4), [(1, 8, 8), (n, 2, 3)], {"n - 4*(n//4) == 0"}),
        (ops.Attention(1.0), [(1, 2, n, 8), (1, 2, m, 8), (1, 2, k, 8)], {"m == k"}),
        (ops.Reshape((n, 2)), [(m, 4)], {"4*m == 2*n"}),
        (ops.Reshape((n, 2)), [(2, n)], set()),
        (ops.Slice((0,), (4,), (1,)), [(n,)], {"n >= 4"}),
        (ops.Slice((0,), (n,), (1,)), [(n,)], set()),
        (ops.Concat(0), [(n, 4), (m, k)], {"4 == k"}),
        (ops.Reduce("argmax", (0,)), [(n, 4)], {"n >= 1"}),
        (lstm, [(5, n, 1, 8), (1, 8, 2), (1, m, 2)], {"m == n"}),
    ],
)
def test_what_only_the_run_can_tell_is_recorded(op, shapes, expected):
    assert left_to_the_run(op, *shapes) == expected


def test_places_of_single_elements_stay_inside_the_other_axes():
    indexed = {"dtypes": ("float32", "int64")}
    assert left_to_the_run(ops.Gather("elements", 0), (2, n), (k, m), **indexed) == {"n >= m"}
    assert left_to_the_run(ops.Scatter("elements", 0), (2, n), (3, 1), (m, 1), **indexed) == {
        "n >= 1",
        "m == 3",
    }
    assert left_to_the_run(ops.Scatter("nd"), (2, n), (3, 1), (3, m), **indexed) == {"m == n"}


@pytest.mark.parametrize(
    ("op", "shape", "indices", "expected"),
    [
        (ops.Gather("axis", 1), (2, n), 3, {"n places with 3"}),
        (ops.Gather("axis", 1), (2, n), [-4, 5, 0, 1], {"n places with 5", "n places with -4"}),
        (ops.Gather("axis", 0), (2, n), [0, 1], set()),
        (ops.Gather("axis", 0), (2, n), 7, set()),  # found where it is read
        (ops.Gather("axis", 0), (dims.minimum(n, 3),), 3, set()),
        (ops.Gather("axis", 0), (n + 2,), [-1, 1], set()),
        (ops.Gather("axis", 1), (2, n), np.zeros(0, np.int64), set()),
        (ops.Gather("elements", 1), (2, n), [[6, 0], [1, 2]], {"n places with 6", "n places with 0"}),
        (
            ops.Gather("nd"),
            (n, m),
            [[6, -1], [7, -2]],
            {"n places with 7", "n places with 6"} | {"m places with -1", "m places with -2"},
        ),
        (ops.Gather("nd", batch=1), (2, n, m), [[6], [7]], {"n places with 7", "n places with 6"}),
    ],
)
def test_known_indices_are_places_of_what_the_run_sizes(op, shape, indices, expected):
    found = asked_by(make_node(op, [*operands(shape), constant_value(np.array(indices, np.int64))]))
    assert found == expected


def test_a_size_that_may_be_negative_is_checked():
    assert left_to_the_run(ops.Pad("edge", (0,), (n - 3,)), (5,)) >= {"n - 3 >= 0"}


def test_a_group_requires_what_its_nodes_do_and_says_where():
    (x, y), (a, b) = operands((n,), (m,)), operands((n,), (m,))
    inner = make_node(ops.Contract("k", "k", "", "float32"), [a, b], "inner")
    fused = ops.Fused("rows", Graph((a, b), inner.outputs, (inner,)))
    (found,) = ops.requirements(make_node(fused, [x, y], "outer"))
    assert (found.a, found.b, found.origin) == (n, m, "inner")


def test_a_result_of_other_sizes_than_inferred_is_checked():
    (x,) = operands((n,))
    node = Node(ops.Map(-x32), (x,), tuple(operands((m,))))
    assert {(r.kind, r.a, r.b) for r in ops.requirements(node)} == {("equal", m, n)}


@pytest.mark.parametrize(
    ("op", "shapes", "reason"),
    [
        (ops.Map(x32 + input_(1, "float32")), [(3,), (4,)], "do not broadcast"),
        (ops.Broadcast((3,)), [(2,)], "size 2 does not repeat to 3"),
        (ops.Broadcast((3,)), [(1, 3)], "more axes"),
        (ops.Contract("mk", "kn", "mn", "float32"), [(2, 3), (4, 5)], "3 and 4 are both the axis k"),
        (ops.Contract("mk", "kn", "mn", "float32"), [(2, n), (n + 1, 5)], "are both the axis k"),
        (ops.Conv((1,), (0, 0), (1,)), [(1, 3, 8), (6, 4, 3)], "has 3 channels where"),
        (ops.Reshape((5,)), [(2, 3)], "cannot be reshaped"),
        (ops.Slice((2,), (4,), (1,)), [(5,)], r"2\.\.5 is outside an axis of 5"),
        (ops.Concat(0), [(2, 3), (2, 4)], "does not continue"),
        (ops.Reduce("argmin", (0,)), [(0, 4)], "no element to find"),
        (lstm, [(5, 3, 1, 8), (1, 8, 2), (1, 4, 2)], "sizes 4 and 3 do not match"),
    ],
)
def test_what_is_known_to_be_wrong_is_refused(op, shapes, reason):
    with pytest.raises(TypeMismatch, match=reason):
        make_node(op, operands(*shapes))
