"""Inputs with fixed values: constants that decide what is looked at."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.few_nodes import function, node, with_sparse_default

from onnxc.diagnostics import ModelErrors
from onnxc.frontend.importer import import_model
from onnxc.inputs import load_array
from onnxc.ir.interpret import run_graph
from onnxc.options import Options

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def branch(*nodes, output: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(output, FLOAT, None)])


def choosing(other=None) -> onnx.ModelProto:
    """y = sr == 16000 ? -x : `other`; x and s share a size."""
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["fast"]),
        helper.make_node(
            "If", ["fast"], ["z"],
            then_branch=branch(node("Neg", "x", "a"), output="a"),
            else_branch=branch(other or node("Abs", "x", "b"), output="b"),
        ),
        helper.make_node("Add", ["z", "s"], ["y"]),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, ["n"]),
        helper.make_tensor_value_info("sr", INT64, []),
        helper.make_tensor_value_info("s", FLOAT, ["n"]),
    ]
    rate = helper.make_tensor("rate", INT64, [], [16000])
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, ["n"])], [rate])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def imported(model, **values):
    return import_model(model, Options(values=values)).graph


def test_a_fixed_input_is_none_of_the_library():
    graph = imported(choosing(), sr=16000)
    assert [value.name for value in graph.inputs] == ["x", "s"]
    assert not any(type(each.op).__name__ == "If" for each in graph.nodes)
    x, s = np.array([1, -2], np.float32), np.array([3, 3], np.float32)
    np.testing.assert_array_equal(run_graph(graph, [x, s])[0], [2, 5])
    np.testing.assert_array_equal(run_graph(imported(choosing(), sr=8000), [x, s])[0], [4, 5])


@pytest.mark.parametrize("kind", ["object", "U", "StringDType"])
def test_texts_are_fixed_by_each_of_numpys_types(kind):
    if kind == "StringDType":
        kind = getattr(np.dtypes, kind, lambda: pytest.skip("this numpy has no such type"))()
    text = "g (string[2] s, float[n] x) => (string[2] t, float[n] y) { t = Identity(s) y = Neg(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    graph = imported(model, s=np.array(["a", "b"], kind))
    assert run_graph(graph, [np.ones(1, np.float32)])[0].tolist() == ["a", "b"]


def test_a_file_fixes_numbers_of_a_type_that_numpy_does_not_have(tmp_path):
    one = np.ones(2, ml_dtypes.bfloat16)
    np.save(tmp_path / "a.npy", one)
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (bfloat16[2] x, bfloat16[2] a) => (bfloat16[2] y) { y = Add (x, a) }""")
    graph = imported(model, a=load_array(str(tmp_path / "a.npy")))
    np.testing.assert_array_equal(run_graph(graph, [one])[0], one + one)


@pytest.mark.parametrize("other", [node("Nonsense", "x", "b"), node("Abs", "nothing", "b")])
def test_what_a_value_leaves_out_is_not_checked(other):
    assert len(imported(choosing(other), sr=16000).inputs) == 2
    with pytest.raises(ModelErrors):
        imported(choosing(other), sr=8000)
    with pytest.raises(ModelErrors):
        imported(choosing(other))


def test_a_value_takes_the_place_of_a_sparse_default():
    graph = imported(with_sparse_default(), w=[5.0, 6.0])
    assert [value.name for value in graph.inputs] == ["x"]
    np.testing.assert_array_equal(run_graph(graph, [np.ones(2, np.float32)])[0], [6, 7])


@pytest.mark.parametrize("where", ["branch", "function"])
def test_an_if_on_another_value_of_the_same_name_is_left_alone(where):
    own = node("Constant", "", "fast", value=helper.make_tensor("", TensorProto.BOOL, [], [True]))
    cases = [branch(node(kind, "x", "c"), output="c") for kind in ("Neg", "Abs")]
    inner = branch(node("If", "fast", "b", then_branch=cases[0], else_branch=cases[1]), output="b")
    if where == "branch":
        inner.node.insert(0, own)
        model = choosing(node("If", "fast", "b", then_branch=cases[1], else_branch=inner))
    else:
        model = choosing(node("F", "x", "b", domain="local"))
        nodes = [own, node("If", "fast", "b", then_branch=inner, else_branch=inner)]
        model.functions.append(function("F", "x", "b", *nodes))
        model.opset_import.append(helper.make_opsetid("local", 1))
    x, s = np.array([1, -2], np.float32), np.zeros(2, np.float32)
    np.testing.assert_array_equal(run_graph(imported(model, sr=8000), [x, s])[0], -x)


def test_a_values_size_is_that_of_other_inputs():
    graph = imported(choosing(), s=[1.0, 2.0, 3.0])
    assert [tuple(value.type.shape) for value in graph.inputs] == [(3,), ()]


def test_a_shapes_sizes_are_those_of_other_inputs_that_name_them():
    graph = import_model(choosing(), Options(shapes={"s": (3,)})).graph
    assert [tuple(value.type.shape) for value in graph.inputs] == [(3,), (), (3,)]
    for other in (Options(shapes={"x": (2,), "s": (3,)}), Options(shapes={"s": (3,)}, dims={"n": 2})):
        with pytest.raises(ModelErrors, match="the shape given has 3 for the dimension 'n', which is 2"):
            import_model(choosing(), other)


@pytest.mark.parametrize(
    "values, words",
    [
        ({"rs": 1}, "input rs': the model has no such input to give a value; there is 'x', 'sr', 's'"),
        ({"sr": 1.5}, "input sr': the value given is not of type int64"),
        ({"x": 1e300}, "input x': the value given is not of type float32"),
        ({"sr": "16000"}, "input sr': the value given is not of type int64"),
        ({"sr": [1, 2]}, r"input sr': the value given has shape \[2\] where the model has \[\]"),
        ({"x": [1.0, 2.0], "s": [1.0]}, r"input s': the value given has shape \[1\] where"),
        ({"sr": [[1], [2, 3]]}, "input sr': setting an array"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(values, words):
    with pytest.raises(ModelErrors, match=words):
        imported(choosing(), **values)
