"""Structural checks: every problem is listed, with its place; order, scopes, and linear time."""

import json
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.bad_models import set_of
from support.few_nodes import branch, conditional, function, graph, looping, model, node, referring, value

from onnxc.diagnostics import ModelErrors
from onnxc.frontend import structure
from onnxc.frontend.functions import inline_functions
from onnxc.frontend.model_file import open_model
from onnxc.frontend.structure import check_structure
from onnxc.frontend.walk import captured_names, topological_order


def reasons(proto, **options) -> list[str]:
    return [str(problem) for problem in check_structure(proto, **options)]


def test_every_problem_is_listed_in_the_order_of_the_model():
    proto = model(
        node("Frob", "x", "a"),
        node("Add", "a", "b"),
        node("Relu", "gone", "c"),
        node("Elu", "c", "y", beta=1),
        node("Knob", "x", "dead"),
    )
    proto.ir_version = 99
    found = reasons(proto)
    assert [line.split(":")[0] for line in found] == [
        "IR version 99 is not supported, 3 to 14 are",
        "node 'n_a' (Frob of opset 18)",
        "node 'n_b' (Add of opset 18)",
        "node 'n_c' (Relu of opset 18)",
        "node 'n_y' (Elu of opset 18)",
        "node 'n_dead' (Knob of opset 18)",
    ]


def test_a_node_may_have_several_problems():
    found = reasons(model(node("Elu", "gone x", "y z", beta=1)))
    assert len(found) == 4
    assert all("n_y" in line for line in found)


def test_a_diagnostic_names_node_operator_domain_and_operator_set():
    [problem] = check_structure(model(node("Frob", "x", "y", domain="ai.onnx")))
    assert (problem.node, problem.op_type, problem.domain, problem.opset, problem.index) == (
        "n_y",
        "Frob",
        "",
        18,
        0,
    )
    assert problem.kind == "invalid"


def test_what_is_valid_but_foreign_is_unsupported():
    [problem] = check_structure(model(node("Gelu", "x", "y", domain="com.example")))
    assert problem.kind == "unsupported"
    assert problem.remedy


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (node("QuickGelu", "x", "y", domain="com.microsoft", alpha=1.5), None),
        (node("QuickGelu", "x", "y", domain="com.microsoft", anything=3), "unknown attribute 'anything'"),
        (node("QuickGelu", "x", "y", domain="com.microsoft", alpha=3), "has the type INT, it must be FLOAT"),
        (node("BiasGelu", "x", "y", domain="com.microsoft"), "2 at least are needed"),
        (node("Gelu", "x x", "y", domain="com.microsoft"), "1 at most are allowed"),
        (node("Gelo", "x", "y", domain="com.microsoft"), "of 'com.microsoft' is not supported"),
    ],
)
def test_a_rule_is_the_schema_of_what_the_specification_lacks(nodes, words):
    found = reasons(model(nodes))
    assert not found if words is None else len(found) == 1 and words in found[0]


def test_the_domain_where_an_operator_is_found_is_suggested():
    [line] = reasons(model(node("Normalizer", "x", "y")))
    assert "ai.onnx.ml" in line


@pytest.mark.parametrize("version", range(3, 15))
def test_ir_versions_3_to_14_are_supported(version):
    assert reasons(set_of(model(node("Relu", "x", "y")), ir_version=version)) == []


@pytest.mark.parametrize("version", range(1, 29))
def test_operator_sets_1_to_28_are_supported(version):
    attributes = {"consumed_inputs": [0]} if version == 1 else {}
    assert reasons(model(node("Abs", "x", "y", **attributes), opset=version)) == []


def test_a_node_without_a_name_is_named_by_its_place():
    inner = branch(set_of(node("Relu", "gone", "t"), name=""), outputs="t")
    outer = conditional(inner, branch(node("Relu", "x", "t"), outputs="t"))
    outer.graph.node.append(set_of(node("Frob", "x", "u"), name=""))
    found = reasons(outer)
    assert found[0].startswith("node #1 (Frob")
    assert found[1].startswith("node 'n_y/then_branch/#0' (Relu")


def test_a_value_of_the_outer_graph_may_be_hidden_by_an_inner_one():
    body = graph(node("Identity", "c", "d"), node("Relu", "x", "t"), inputs="i c x", outputs="d t")
    proto = looping(body)
    assert reasons(proto) == []


def test_an_initializer_may_be_the_default_of_an_input():
    tensor = numpy_helper.from_array(np.zeros(2, np.float32), "x")
    assert reasons(model(node("Relu", "x", "y"), initializers=[tensor])) == []


def test_a_sparse_initializer_is_a_value():
    proto = model(node("Add", "x s", "y"))
    values = numpy_helper.from_array(np.zeros(1, np.float32), "s")
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0])), [2])
    )
    assert reasons(proto) == []


def test_an_input_may_be_an_output():
    assert reasons(model(node("Relu", "x", "y"), outputs="y x")) == []


@pytest.mark.parametrize("kind", ["sequence", "optional", "map"])
def test_inputs_may_be_of_any_kind(kind):
    floats = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    types = {
        "sequence": helper.make_sequence_type_proto(floats),
        "optional": helper.make_optional_type_proto(floats),
        "map": helper.make_map_type_proto(TensorProto.INT64, floats),
    }
    proto = model(node("Relu", "x", "y"))
    proto.graph.input.append(helper.make_value_info("more", types[kind]))
    assert reasons(proto) == []


def test_calls_of_functions_are_checked_against_the_function():
    proto = model(
        node("F", "x x", "y", domain="local", gain=1),
        functions=[
            function("F", "a", "b", node("Relu", "a", "b"), defaults=[helper.make_attribute("gain", 0.5)])
        ],
    )
    found = reasons(proto)
    assert "2 inputs, 1 at most" in found[0]
    assert "'gain' has the type INT, it must be FLOAT" in found[1]


def test_calls_of_functions_take_attributes_that_nobody_declares_in_functions_too():
    proto = model(
        node("F", "x", "y", domain="local", bits=4),
        functions=[
            function("F", "a", "b", node("G", "a", "b", domain="local", group="rows")),
            function("G", "a", "b", node("Relu", "a", "b")),
        ],
    )
    assert reasons(proto) == []


def test_attributes_that_nobody_declares_are_not_known_to_the_function():
    called = function("F", "a", "b", referring("Elu", "a", "b", "gain"))
    [line] = reasons(model(node("F", "x", "y", domain="local", gain=0.5), functions=[called]))
    assert "refers to 'gain', which the function does not have" in line


def test_bodies_of_functions_do_not_see_the_graph():
    [line] = reasons(
        model(
            node("F", "x", "y", domain="local"), functions=[function("F", "a", "b", node("Add", "a x", "b"))]
        )
    )
    assert "F/n_b" in line
    assert "'x' is not defined" in line


def test_graphs_that_are_defaults_see_the_functions_values_and_no_others():
    default = branch(node("Add", "a gone", "k"), node("Frob", "k", "t"), outputs="t")
    defaults = [helper.make_attribute("chosen", default)]
    made = function("F", "a", "b", node("Relu", "a", "b"), defaults=defaults)
    assert reasons(model(node("F", "x", "y", domain="local"), functions=[made])) == [
        "node 'F/n_k' (Add of opset 18): the input 'gone' is not defined",
        "node 'F/n_t' (Frob of opset 18): unknown operator",
    ]


@pytest.mark.parametrize(
    "made",
    [node("Loop", "- - a", "b"), node("Scan", "a", "b", num_scan_inputs=1), node("SequenceMap", "a", "b")],
)
def test_a_body_that_is_an_attribute_of_the_function_may_have_any_inputs(made):
    made.attribute.add(name="body", type=onnx.AttributeProto.GRAPH, ref_attr_name="chosen")
    functions = [function("F", "a", "b", made, attributes=["chosen"])]
    assert reasons(model(node("F", "x", "y", domain="local"), functions=functions)) == []


def test_functions_are_checked_against_their_own_operator_sets():
    proto = model(
        node("F", "x", "y", domain="local"),
        opset=20,
        functions=[function("F", "a", "b", node("Gelu", "a", "b"), opset=13)],
    )
    assert "operator set 20, the model imports 13" in reasons(proto)[0]


def test_what_a_function_needs_matters_where_it_is_called():
    """By the graph, by a function, or by a graph that is a default; what is invalid always does."""
    foreign = function("G", "a", "b", node("Zork", "a", "b", domain="com.example"))
    called = node("G", "a", "b", domain="local")
    default = helper.make_attribute("of", branch(called, outputs="b"))
    relu, nodes = node("Relu", "a", "b"), [node("F", "x", "y", domain="local"), node("Relu", "x", "y")]
    for functions in ([function("F", "a", "b", called)], [function("F", "a", "b", relu, defaults=[default])]):
        calling, other = (reasons(model(made, functions=[*functions, foreign])) for made in nodes)
        assert [line.split(";")[0] for line in calling] == [
            "node 'G/n_b' (com.example.Zork): operators of the domain 'com.example' are not supported"
        ]
        assert other == []
    wrong = function("G", "a", "b", node("Relu", "gone", "b"))
    assert "'gone' is not defined" in reasons(model(nodes[1], functions=[wrong]))[0]


def test_a_call_of_an_overload_that_is_not_there_says_which_are():
    first, second = (function("F", "a", "b", node(kind, "a", "b")) for kind in ("Abs", "Neg"))
    second.overload = "negative"
    for functions, overload, words in (
        ([first, second], "positive", "no overload 'positive'; there is '', 'negative'"),
        ([second], "", "no overload ''; there is 'negative'"),
    ):
        called = set_of(node("F", "x", "y", domain="local"), overload=overload)
        [problem] = check_structure(model(called, functions=functions))
        assert words in problem.reason
        assert (problem.node, problem.kind) == ("n_y", "invalid")


def test_checked_functions_can_be_inlined():
    proto = model(
        node("F", "x", "y", domain="local"), functions=[function("F", "a", "b", node("Relu", "a", "b"))]
    )
    assert reasons(proto) == []
    assert (
        reasons(
            helper.make_model(
                inline_functions(proto).graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
            )
        )
        == []
    )


def test_tensors_are_checked_where_their_place_is_known():
    empty = TensorProto(name="w", data_type=1, dims=[2])
    proto = model(node("Add", "x w", "y"), initializers=[empty])
    assert reasons(proto) == []
    assert "no data" in reasons(open_model(proto))[0]


def test_tensors_that_are_defaults_of_functions_are_checked():
    empty = TensorProto(name="w", data_type=1, dims=[2])
    within = branch(node("Constant", "", "t", value=empty), outputs="t")
    for default in (empty, within):
        defaults = [helper.make_attribute("of", default)]
        made = function("F", "a", "b", node("Relu", "a", "b"), defaults=defaults)
        proto = model(node("F", "x", "y", domain="local"), functions=[made])
        assert "no data" in reasons(open_model(proto))[0]


def test_a_long_list_of_problems_ends(monkeypatch):
    monkeypatch.setattr(structure, "MAX_DIAGNOSTICS", 5)
    found = reasons(model(*(node("Frob", "x", f"v{i}") for i in range(9)), node("Relu", "x", "y")))
    assert len(found) == 6
    assert "more problems than the 5" in found[-1]


def test_problems_can_be_raised_and_printed():
    proto = model(node("Frob", "x", "y"), node("Knob", "x", "z"))
    error = ModelErrors(check_structure(proto), "m.onnx")
    assert str(error).startswith("m.onnx: 2 problems, the first: node 'n_y' (Frob of opset 18)")
    assert [line.split(":")[0] for line in error.lines()] == ["m.onnx", "m.onnx"]
    assert [entry["node"] for entry in json.loads(error.to_json())] == ["n_y", "n_z"]


# Order


def test_a_sorted_graph_keeps_its_order():
    nodes = [node("Relu", "x", "a"), node("Relu", "x", "b"), node("Add", "b a", "y")]
    assert topological_order(nodes) == ([0, 1, 2], [])


def test_an_unsorted_graph_is_sorted():
    nodes = [node("Add", "b a", "y"), node("Relu", "a", "b"), node("Relu", "x", "a")]
    assert topological_order(nodes) == ([2, 1, 0], [])


def test_captured_values_count_as_inputs():
    inner = branch(node("Relu", "late", "t"), outputs="t")
    nodes = [node("If", "c", "y", then_branch=inner, else_branch=inner), node("Relu", "x", "late")]
    assert topological_order(nodes)[0] == [1, 0]


def test_a_value_defined_within_is_not_captured():
    inner = branch(node("Relu", "t", "u"), node("Abs", "x", "t"), outputs="u")
    deeper = branch(node("If", "c", "r", then_branch=inner, else_branch=inner), outputs="r")
    outer = node("If", "c", "y", then_branch=deeper, else_branch=branch(outputs="z"))
    assert sorted(captured_names(outer)) == ["c", "x", "z"]


def test_each_cycle_is_found_once_and_what_is_behind_it_is_not_one():
    nodes = [
        node("Relu", "b", "a"),
        node("Relu", "a", "b"),
        node("Relu", "b", "behind"),
        node("Relu", "d", "c"),
        node("Relu", "c", "d"),
        node("Relu", "x", "fine"),
    ]
    order, cycles = topological_order(nodes)
    assert order == [5]
    assert [sorted(cycle) for cycle in cycles] == [[0, 1], [3, 4]]


def test_random_graphs_are_sorted():
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 30))
        made = [
            node("Sum", " ".join(["x", *(f"v{j}" for j in range(i) if rng.random() < 0.2)]), f"v{i}")
            for i in range(count)
        ]
        nodes = [made[i] for i in rng.permutation(count)]
        order, cycles = topological_order(nodes)
        seen = {"x"}
        for index in order:
            assert seen.issuperset(nodes[index].input)
            seen.update(nodes[index].output)
        assert (sorted(order), cycles) == (list(range(count)), [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chain", "reversed chain", "wide sum", "doubling", "cycle"])
def test_large_graphs_take_linear_time(kind):
    count = 20_000
    chain = [node("Relu", f"v{i}" if i else "x", f"v{i + 1}") for i in range(count)]
    made = {
        "chain": chain,
        "reversed chain": chain[::-1],
        "wide sum": [
            *(node("Relu", "x", f"v{i}") for i in range(count)),
            node("Sum", " ".join(f"v{i}" for i in range(count)), "v"),
        ],
        "doubling": [node("Add", f"v{i} v{i}" if i else "x x", f"v{i + 1}") for i in range(count)],
        "cycle": [*chain[1:], node("Relu", f"v{count}", "v1")],
    }[kind]
    proto = model(*made, outputs=made[-1].output[0])
    start = time.process_time()
    found = check_structure(proto)
    assert time.process_time() - start < 5
    assert len(found) == (kind == "cycle")


@pytest.mark.parametrize(("levels", "problems"), [(60, 0), (70, 1)])
def test_nesting_is_limited(levels, problems):
    leaf = branch(node("Relu", "x", "t"), outputs="t")
    proto = conditional(leaf, leaf)
    inner = proto.graph.node[0].attribute[1].g
    for _ in range(levels - 1):
        inner.node[0].CopyFrom(node("If", "c", "t", then_branch=leaf, else_branch=leaf))
        inner = inner.node[0].attribute[1].g
    found = reasons(proto)
    assert len(found) == problems
    assert all("nest deeper than 64" in line for line in found)


def test_the_type_of_an_input_of_a_subgraph_may_be_missing():
    body = graph(node("Identity", "c", "d"), node("Relu", "a", "t"), inputs="i c a", outputs="d t")
    body.input[2].CopyFrom(value("a"))
    body.input[2].ClearField("type")
    assert reasons(looping(body)) == []


def test_no_model_of_the_onnx_package_is_refused():
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    paths = [*folder.glob("light/*.onnx"), *folder.glob("*/*/model.onnx")]
    refused = {path.parent.name: reasons(open_model(path)) for path in paths}
    assert {name: found for name, found in refused.items() if found} == {}
    assert len(paths) >= 9
