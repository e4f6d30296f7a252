"""Functions expanded: the inlined graph computes what the functions mean."""

import time

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, FunctionProto, NodeProto, helper
from onnx.reference import ReferenceEvaluator
from support.bad_models import doubling
from support.few_nodes import branch, conditional, function, graph, model, node, referring, saved

from onnxc.errors import LimitError, ModelError
from onnxc.frontend.functions import (
    Inlined,
    NameSupply,
    imported_opsets,
    inline_functions,
    schema_function_body,
)
from onnxc.frontend.model_file import open_model
from onnxc.frontend.structure import check_structure

X = np.array([-2, 3], np.float32)


def call(name: str, inputs: str, outputs: str, **attributes):
    return node(name, inputs, outputs, domain="local", **attributes)


def run(inlined: Inlined, x: np.ndarray = X) -> list[np.ndarray]:
    """The inlined graph's outputs for the input x, by onnx's reference evaluator."""
    imports = [helper.make_opsetid("", 18)]
    proto = helper.make_model(inlined.graph, opset_imports=imports, ir_version=9)
    assert check_structure(proto) == []
    return ReferenceEvaluator(proto).run(None, {"x": x})


def elu(alpha: float, x: np.ndarray = X) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(x)).astype(np.float32)


def operators(inlined: Inlined) -> list[str]:
    return [made.op_type for made in inlined.graph.node]


def test_a_model_without_calls_keeps_its_graph():
    proto = model(node("Relu", "x", "y"))
    assert inline_functions(proto).graph is proto.graph


def test_of_domains_that_a_model_does_not_import_the_newest_operator_sets_bind():
    """As in ONNX Runtime; the model's own word comes first."""
    made = node("Scaler", "x", "y", domain="ai.onnx.ml")
    versions = onnx.defs.C.schema_version_map()
    assert inline_functions(model(made)).opset(made) == versions["ai.onnx.ml"][1]
    imported = model(made)
    imported.opset_import.add(domain="ai.onnx.ml", version=1)
    assert inline_functions(imported).opset(made) == 1


def test_the_source_model_is_not_changed():
    proto = doubling(3)
    before = saved(proto)
    inline_functions(proto)
    assert saved(proto) == before


def test_parameters_become_arguments():
    body = [node("Sub", "a b", "t"), node("Abs", "t", "c")]
    proto = model(node("Neg", "x", "m"), call("F", "m x", "y"), functions=[function("F", "a b", "c", *body)])
    inlined = inline_functions(proto)
    assert operators(inlined) == ["Neg", "Sub", "Abs"]
    np.testing.assert_array_equal(run(inlined)[0], np.abs(-X - X))


def test_calls_nest_and_repeat():
    proto = doubling(5)
    inlined = inline_functions(proto)
    assert operators(inlined) == ["Relu"] * 32
    assert len({made.name for made in inlined.graph.node}) == 32
    np.testing.assert_array_equal(run(inlined)[0], [0, 3])


@pytest.mark.parametrize(("given", "expected"), [({"gain": 3.0}, 3.0), ({}, 0.5)])
def test_attribute_references_take_the_given_value_or_the_default(given, expected):
    body = referring("Elu", "a", "b", "gain")
    defaults = [helper.make_attribute("gain", 0.5)]
    proto = model(call("F", "x", "y", **given), functions=[function("F", "a", "b", body, defaults=defaults)])
    np.testing.assert_allclose(run(inline_functions(proto))[0], elu(expected), rtol=1e-6)


def test_an_attribute_that_is_not_given_leaves_the_operators_default():
    body = referring("Elu", "a", "b", "gain")
    proto = model(call("F", "x", "y"), functions=[function("F", "a", "b", body, attributes=["gain"])])
    np.testing.assert_allclose(run(inline_functions(proto))[0], elu(1.0), rtol=1e-6)


def test_attributes_of_a_call_that_the_function_does_not_declare_change_nothing():
    inner = function("G", "a", "b", referring("Elu", "a", "b", "gain"), attributes=["gain"])
    outer = function("F", "a", "b", call("G", "a", "b", alpha=3.0))
    proto = model(call("F", "x", "y", gain=2.0), functions=[outer, inner])
    assert check_structure(proto) == []
    np.testing.assert_allclose(run(inline_functions(proto))[0], elu(1.0), rtol=1e-6)


def test_attribute_references_pass_through_nested_calls():
    inner = function("G", "a", "b", referring("Elu", "a", "b", "gain"), attributes=["gain"])
    step = call("G", "a", "b")
    step.attribute.add(name="gain", type=AttributeProto.FLOAT, ref_attr_name="outer")
    proto = model(
        call("F", "x", "y", outer=4.0), functions=[function("F", "a", "b", step, attributes=["outer"]), inner]
    )
    np.testing.assert_allclose(run(inline_functions(proto))[0], elu(4.0), rtol=1e-6)


def test_attribute_references_work_within_subgraphs():
    inner = branch(referring("Elu", "a", "t", "gain"), outputs="t")
    body = [
        node("Constant", "", "c", value=helper.make_tensor("", 9, [], [True])),
        node("If", "c", "b", then_branch=inner, else_branch=inner),
    ]
    proto = model(
        call("F", "x", "y", gain=2.0), functions=[function("F", "a", "b", *body, attributes=["gain"])]
    )
    np.testing.assert_allclose(run(inline_functions(proto))[0], elu(2.0), rtol=1e-6)


def test_a_reference_of_another_type_is_refused():
    proto = model(
        call("F", "x", "y", gain=2),
        functions=[function("F", "a", "b", referring("Elu", "a", "b", "gain"), attributes=["gain"])],
    )
    with pytest.raises(ModelError, match="'alpha' is declared as FLOAT but the call gives INT"):
        inline_functions(proto)


def test_missing_optional_inputs_are_missing_inside():
    body = node("Clip", "a low high", "b")
    proto = model(call("F", "x", "y"), functions=[function("F", "a low high", "b", body)])
    inlined = inline_functions(proto)
    assert list(inlined.graph.node[0].input) == ["x", "", ""]
    np.testing.assert_array_equal(run(inlined)[0], X)


def test_outputs_that_are_not_wanted_get_names_of_their_own():
    body = node("Split", "a", "first second", num_outputs=2)
    proto = model(call("F", "x", "- y"), functions=[function("F", "a", "first second", body)])
    np.testing.assert_array_equal(run(inline_functions(proto))[0], [3])


def test_an_input_may_be_passed_through_and_an_output_given_twice():
    proto = model(
        call("F", "x", "y z w"),
        outputs="y z w",
        functions=[function("F", "a", "t a t", node("Relu", "a", "t"))],
    )
    first, second, third = run(inline_functions(proto))
    np.testing.assert_array_equal(first, [0, 3])
    np.testing.assert_array_equal(second, X)
    np.testing.assert_array_equal(third, [0, 3])


def test_internal_names_cannot_collide_with_the_graphs():
    body = [node("Neg", "a", "t"), node("Neg", "t", "b")]
    proto = model(
        node("Relu", "x", "t"),
        node("Abs", "x", "n_u/t"),
        call("F", "t", "u"),
        node("Sum", "t n_u/t u", "y"),
        functions=[function("F", "a", "b", *body)],
    )
    np.testing.assert_array_equal(run(inline_functions(proto))[0], np.maximum(X, 0) * 2 + np.abs(X))


def test_a_branch_may_reuse_the_name_of_a_parameter():
    choice = node("Constant", "", "c", value=helper.make_tensor("", 9, [], [True]))
    inner = branch(node("Neg", "b", "a"), outputs="a")  # this `a` is not the function's
    body = [choice, node("If", "c", "t", then_branch=inner, else_branch=inner), node("Sub", "t a", "r")]
    proto = model(call("F", "x x", "y"), functions=[function("F", "a b", "r", *body)])
    np.testing.assert_array_equal(run(inline_functions(proto))[0], -2 * X)


def test_calls_within_branches_see_the_outer_values():
    inner = branch(call("F", "x", "t"), outputs="t")
    proto = conditional(inner, inner)
    proto.functions.append(function("F", "a", "b", node("Abs", "a", "b")))
    np.testing.assert_array_equal(run(inline_functions(proto))[0], np.abs(X))


def test_a_graph_passed_as_attribute_keeps_the_callers_names():
    then = branch(node("Abs", "x", "t"), outputs="t")
    body = [
        node("Constant", "", "c", value=helper.make_tensor("", 9, [], [True])),
        node("If", "c", "b", else_branch=branch(node("Neg", "a", "x"), outputs="x")),
    ]
    body[1].attribute.add(name="then_branch", type=AttributeProto.GRAPH, ref_attr_name="chosen")
    proto = model(
        call("F", "x", "y", chosen=then), functions=[function("F", "a", "b", *body, attributes=["chosen"])]
    )
    np.testing.assert_array_equal(run(inline_functions(proto))[0], np.abs(X))


def chosen(output: str) -> NodeProto:
    """An If whose branches are both the function's attribute `chosen`."""
    made = node("If", "c", output)
    for name in ("then_branch", "else_branch"):
        made.attribute.add(name=name, type=AttributeProto.GRAPH, ref_attr_name="chosen")
    return made


def choosing(default: onnx.GraphProto, *nodes: NodeProto, **parts) -> FunctionProto:
    """A function F(a) -> b of these nodes, whose attribute `chosen` is `default` where a call gives none."""
    choice = node("Constant", "", "c", value=helper.make_tensor("", 9, [], [True]))
    defaults = [helper.make_attribute("chosen", default)]
    return function("F", "a", "b", choice, *nodes, defaults=defaults, **parts)


def test_a_graph_that_is_a_default_reads_the_functions_values():
    default = branch(node("Neg", "a", "k"), node("Add", "k d", "t"), outputs="t")
    proto = model(
        node("Abs", "x", "a"),  # the caller's own `a`, and its own `d`
        node("Exp", "x", "d"),
        call("F", "x", "b"),
        node("Sum", "b a d", "y"),
        functions=[choosing(default, node("Mul", "a a", "d"), chosen("b"))],
    )
    np.testing.assert_allclose(run(inline_functions(proto))[0], X * X - X + np.abs(X) + np.exp(X))


def test_a_graph_that_is_a_default_sees_no_names_of_the_graph_that_it_comes_into():
    default = branch(node("Neg", "t", "k"), outputs="k")
    within = branch(node("Exp", "a", "t"), chosen("s"), node("Add", "s t", "v"), outputs="v")
    taken = node("If", "c", "b", then_branch=within, else_branch=within)
    functions = [choosing(default, node("Abs", "a", "t"), taken)]
    inlined = inline_functions(model(call("F", "x", "y"), functions=functions))
    np.testing.assert_allclose(run(inlined)[0], np.exp(X) - np.abs(X))


def test_a_graph_that_is_a_default_calls_functions_and_reads_attributes():
    default = branch(call("G", "a", "k"), referring("Elu", "k", "t", "gain"), outputs="t")
    functions = [
        choosing(default, chosen("b"), attributes=["gain"]),
        function("G", "a", "b", node("Neg", "a", "b")),
    ]
    proto = model(call("F", "x", "y", gain=3.0), functions=functions)
    np.testing.assert_allclose(run(inline_functions(proto))[0], elu(3.0, -X), rtol=1e-6)


def test_a_graph_that_is_a_default_has_the_operator_set_of_its_function():
    default = branch(node("Neg", "a", "t"), outputs="t")
    inlined = inline_functions(
        model(call("F", "x", "y"), opset=20, functions=[choosing(default, chosen("b"), opset=13)])
    )
    [taken] = [attribute.g.node[0] for attribute in inlined.graph.node[1].attribute[:1]]
    assert (taken.op_type, inlined.opset(taken)) == ("Neg", 13)


def test_a_given_graph_takes_the_place_of_the_default():
    default, given = (branch(node(op, name, "t"), outputs="t") for op, name in (("Neg", "a"), ("Abs", "x")))
    proto = model(call("F", "x", "y", chosen=given), functions=[choosing(default, chosen("b"))])
    np.testing.assert_array_equal(run(inline_functions(proto))[0], np.abs(X))


def test_recursion_by_way_of_a_default_is_refused():
    default = branch(call("F", "a", "t"), outputs="t")
    with pytest.raises(ModelError, match="recurse"):
        inline_functions(model(call("F", "x", "y"), functions=[choosing(default, chosen("b"))]))


def test_overloads_are_told_apart():
    functions = [
        function("F", "a", "b", node("Abs", "a", "b")),
        function("F", "a", "b", node("Neg", "a", "b")),
    ]
    functions[1].overload = "negative"
    chosen = call("F", "x", "y")
    chosen.overload = "negative"
    np.testing.assert_array_equal(run(inline_functions(model(chosen, functions=functions)))[0], -X)


def test_each_node_knows_the_operator_set_of_its_function():
    proto = model(
        node("Abs", "x", "t"),
        call("F", "t", "y"),
        opset=20,
        functions=[function("F", "a", "b", node("Neg", "a", "b"), opset=13)],
    )
    inlined = inline_functions(proto)
    assert [(made.op_type, inlined.opset(made)) for made in inlined.graph.node] == [("Abs", 20), ("Neg", 13)]


def test_the_default_domain_has_two_names_and_the_highest_version_binds():
    imports = [helper.make_opsetid("ai.onnx", 13), helper.make_opsetid("", 17), helper.make_opsetid("", 9)]
    assert imported_opsets(imports) == {"": 17}


def test_unused_functions_are_left_out():
    unused = function("F", "a", "b", node("Abs", "a", "b"))
    inlined = inline_functions(model(node("Relu", "x", "y"), functions=[unused]))
    assert operators(inlined) == ["Relu"]


@pytest.mark.parametrize("levels", [20, 40, 3000])
def test_expansion_over_the_limit_is_refused_at_once(levels):
    proto = doubling(levels)
    start = time.process_time()
    with pytest.raises(LimitError, match="1000000 nodes"):
        inline_functions(proto)
    assert time.process_time() - start < 2


def test_expansion_of_much_data_is_refused():
    heavy = node("Constant", "", "b", value_floats=[0.5] * 100_000)
    functions = [function("F", "x", "b", heavy)]
    proto = model(
        *(call("F", "x", f"v{i}") for i in range(1000)), node("Relu", "v0", "y"), functions=functions
    )
    with pytest.raises(LimitError, match="MiB"):
        inline_functions(proto)


def test_a_chain_of_calls_may_be_long():
    functions = [
        function(f"F{i}", "a", "b", node("Neg", "a", "t"), call(f"F{i + 1}", "t", "b")) for i in range(3000)
    ]
    functions.append(function("F3000", "a", "b", node("Relu", "a", "b")))
    inlined = inline_functions(model(call("F0", "x", "y"), functions=functions))
    assert operators(inlined) == ["Neg"] * 3000 + ["Relu"]
    assert max(len(made.name) for made in inlined.graph.node) < 200


def test_functions_that_nest_branches_too_deep_are_refused():
    functions = []
    for i in range(70):
        then = branch(call(f"F{i + 1}", "c a", "t"), outputs="t")
        otherwise = branch(node("Abs", "a", "t"), outputs="t")
        functions.append(
            function(f"F{i}", "c a", "b", node("If", "c", "b", then_branch=then, else_branch=otherwise))
        )
    functions.append(function("F70", "c a", "b", node("Relu", "a", "b")))
    with pytest.raises(LimitError, match="nest"):
        inline_functions(model(call("F0", "c x", "y"), functions=functions))
    inlined = inline_functions(model(call("F10", "c x", "y"), functions=functions[10:]))
    levels, inner = 0, inlined.graph.node
    while inner[0].op_type == "If":
        levels, inner = levels + 1, inner[0].attribute[1].g.node
    assert levels == 60


@pytest.mark.parametrize("length", [1, 2, 500])
def test_recursion_is_refused(length):
    functions = [function(f"F{i}", "a", "b", call(f"F{(i + 1) % length}", "a", "b")) for i in range(length)]
    with pytest.raises(ModelError, match="recurse"):
        inline_functions(model(call("F0", "x", "y"), functions=functions))


@pytest.mark.parametrize(("inputs", "outputs"), [("x x", "y"), ("x", "y z")])
def test_calls_with_too_many_names_are_refused(inputs, outputs):
    proto = model(call("F", inputs, outputs), functions=[function("F", "a", "b", node("Abs", "a", "b"))])
    with pytest.raises(ModelError, match="the call has 2"):
        inline_functions(proto)


def test_large_constants_of_functions_keep_their_data():
    weights = np.arange(4096, dtype=np.float32)
    constant = node("Constant", "", "b", value=onnx.numpy_helper.from_array(weights))
    proto = model(call("F", "x", "y"), call("F", "x", "z"), functions=[function("F", "a", "b", constant)])
    opened = open_model(saved(proto))
    inlined = inline_functions(opened.proto)
    data = [bytes(opened.bytes_of(made.attribute[0].t)) for made in inlined.graph.node]
    assert data == [weights.tobytes()] * 2


def test_names_are_fresh():
    names = NameSupply({"a", "a~2"})
    assert [names.fresh("a"), names.fresh("a"), names.fresh("b"), names.fresh("b")] == [
        "a~3",
        "a~4",
        "b",
        "b~2",
    ]


FLOATS = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
SCHEMA_CASES = [
    ("Elu", 22, {"alpha": 2.0}, elu(2.0)),
    ("Elu", 22, {}, elu(1.0)),
    ("HardSwish", 22, {}, X * np.clip(X / 6 + 0.5, 0, 1)),
    ("ThresholdedRelu", 22, {"alpha": 4.0}, np.zeros(2)),
    ("Softmax", 13, {"axis": 0}, np.exp(X) / np.exp(X).sum()),
    ("Softmax", 18, {"axis": 0}, np.exp(X) / np.exp(X).sum()),
    ("Relu", 14, {}, np.maximum(X, 0)),
    ("Celu", 12, {"alpha": 2.0}, np.where(X > 0, X, 2 * np.expm1(X / 2))),
    ("Gelu", 20, {"approximate": "none"}, [-0.04550027, 2.99595031]),
    ("Gelu", 20, {"approximate": "tanh"}, [-0.04540229, 2.99636292]),
]


@pytest.mark.parametrize(("op_type", "version", "attributes", "expected"), SCHEMA_CASES)
def test_bodies_of_operators_compute_the_operator(op_type, version, attributes, expected):
    made = schema_function_body(node(op_type, "x", "y", **attributes), version, [FLOATS])
    proto = helper.make_model(
        graph(*made.nodes),
        ir_version=9,
        opset_imports=[helper.make_opsetid(domain, number) for domain, number in made.opsets.items()],
    )
    assert check_structure(proto) == []
    computed = ReferenceEvaluator(proto).run(None, {"x": X})[0]
    np.testing.assert_allclose(computed, expected, rtol=1e-5)


def test_a_body_may_depend_on_which_inputs_are_given():
    types = [FLOATS, None, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])]
    body = schema_function_body(node("Clip", "x - top", "y"), 13, types)
    assert [made.op_type for made in body.nodes] == ["Less", "Where"]
    assert {name for made in body.nodes for name in made.input} >= {"x", "top"}


@pytest.mark.parametrize(("op_type", "version"), [("Conv", 18), ("Relu", 6), ("Nonsense", 18)])
def test_operators_without_a_body_have_none(op_type, version):
    assert schema_function_body(node(op_type, "x", "y"), version, [FLOATS]) is None


def test_bodies_take_names_from_the_supply():
    names = NameSupply({"x", "y", "z"})
    first = schema_function_body(node("HardSwish", "x", "y"), 22, [FLOATS], names)
    second = schema_function_body(node("HardSwish", "x", "z"), 22, [FLOATS], names)
    made = [name for body in (first, second) for step in body.nodes for name in step.output]
    assert len(set(made)) == len(made)


def test_a_body_that_onnx_cannot_make_is_an_error():
    with pytest.raises(ModelError, match="cannot expand"):
        schema_function_body(node("SequenceMap", "x", "y"), 17, [FLOATS])
