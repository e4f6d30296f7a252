"""What a graph tells of its inputs of integers."""

import numpy as np
from onnx import TensorProto, helper

from onnxc.frontend.importer import import_model
from onnxc.ir.expected import Expected, drawn, expected_of
from onnxc.ir.text_parser import parse

TABLE = helper.make_tensor("table", TensorProto.FLOAT, [7, 2], [0.0] * 14)
OTHER = helper.make_tensor("other", TensorProto.FLOAT, [5, 2], [0.0] * 10)
RATE = helper.make_tensor("rate", TensorProto.INT64, [], [16000])
AXIS = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
ONE = helper.make_tensor("one", TensorProto.INT64, [], [1])


def expected(*nodes, shape=("n", 3), outputs=("y",)):
    """Of the input x of int64, which these nodes read."""
    x = helper.make_tensor_value_info("x", TensorProto.INT64, shape)
    ys = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "g", [x], ys, [TABLE, OTHER, RATE, AXIS, ONE])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return expected_of(import_model(model).graph).get("x")


def node(op_type, *inputs, result="y", **attributes):
    return helper.make_node(op_type, inputs, [result], **attributes)


def test_indices_are_below_the_rows_of_their_table():
    assert expected(node("Gather", "table", "x")) == Expected(rows=7)


def test_of_two_tables_the_smaller_counts():
    nodes = node("Gather", "table", "x"), node("Gather", "other", "x", result="z")
    assert expected(*nodes, outputs=("y", "z")) == Expected(rows=5)


def test_indices_may_be_moved_and_cast_before():
    cast, moved = node("Cast", "x", result="c", to=TensorProto.INT32), node("Transpose", "c", result="t")
    assert expected(cast, moved, node("Gather", "table", "t")) == Expected(rows=7)


def test_what_is_a_condition_is_a_mask():
    assert expected(node("Cast", "x", to=TensorProto.BOOL)) == Expected(mask=True)


def test_what_gives_places_is_a_mask():
    assert expected(node("CumSum", "x", "one")) == Expected(mask=True)


def test_what_gives_lengths_is_all_ones():
    assert expected(node("ReduceSum", "x", "axis")) == Expected(one=(1,))


def test_a_branch_waits_for_a_number():
    def branch(value):
        constant = node("Constant", result="b", value_float=value)
        return helper.make_graph([constant], "b", [], [helper.make_empty_tensor_value_info("b")])

    asked = node("Equal", "x", "rate", result="c")
    chosen = node("If", "c", then_branch=branch(1.0), else_branch=branch(2.0))
    assert expected(asked, chosen, shape=()) == Expected(one=(16000,))


def test_of_other_integers_nothing_is_told():
    assert expected(node("Add", "x", "x")) is None


def test_values_are_drawn_as_expected():
    generator = np.random.default_rng(0)
    assert set(drawn(Expected(rows=3), (100,), generator)) == {0, 1, 2}
    assert drawn(Expected(one=(8000,)), (), generator) == 8000
    mask = drawn(Expected(mask=True), (50, 6), generator)
    assert set(mask.sum(1)) == {3, 4, 5, 6}
    assert (np.diff(mask, axis=1) <= 0).all()
    assert drawn(Expected(mask=True), (2, 0), generator).shape == (2, 0)


def test_a_list_of_tensors_expects_nothing():
    assert expected_of(parse("graph(%t: int32[2], %s: seq<int32[2]>) { return %s }")) == {}
