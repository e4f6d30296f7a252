"""The verifier: valid graphs pass, and each rule, broken, is named with its node."""

import cProfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from onnxc.ir import dims, expr, ops
from onnxc.ir.expr import const, index, input_
from onnxc.ir.graph import Constant, Graph, Layout, Node, TensorType, Value, make_node, regions
from onnxc.ir.requirements import TypeMismatch
from onnxc.ir.text_parser import parse
from onnxc.ir.verify import InvalidGraph, verify

n, m = dims.symbol("n"), dims.symbol("m")
x32 = input_(0, "float32")
CHAIN = "graph(%x: float32[n, 4]) { %a = map(%x) { neg($0) } %b = map(%a) { exp($0) } return %b }"


def tensor(*shape, dtype="float32", layout=None, name=""):
    return Value(TensorType(dtype, shape, layout), name)


def node(op, inputs, outputs=None, origin="here"):
    """A node, inferred unless its outputs are given."""
    if outputs is None:
        return make_node(op, inputs, origin)
    return Node(op, tuple(inputs), tuple(outputs), origin)


def graph(inputs, *nodes, outputs=None):
    last = nodes[-1].outputs if nodes else ()
    return Graph(tuple(inputs), tuple(last if outputs is None else outputs), nodes)


def refuses(broken, reason, stage="core"):
    with pytest.raises(InvalidGraph, match=reason) as caught:
        verify(broken, stage)
    return caught.value


def refuses_op(op, types, outputs, reason):
    """A graph of one node over inputs of these types."""
    inputs = [Value(t) for t in types]
    broken = graph(inputs, node(op, inputs, [Value(t) for t in outputs]))
    error = refuses(broken, reason)
    assert error.origin.op_type == type(op).__name__
    assert str(error).startswith(f"node 'here' ({type(op).__name__})")


def never_made(op, inputs, reason):
    """Inference refuses the node before there is a graph."""
    with pytest.raises(TypeMismatch, match=reason):
        make_node(op, inputs)


f = TensorType("float32", (n, 4))
ints = TensorType("int64", (3,))
image, kernel = TensorType("float32", (1, 4, 8, 8)), TensorType("float32", (6, 4, 3, 3))

# Valid graphs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        CHAIN,
        "graph() { return }",
        "graph(%x: float32[n]) { return %x, %x }",
        """graph(%x: seq<float32[n]>) {
          %y = runtime_call(%x) symbol=sequence_length : int64[]
          return %y
        }""",
        """graph(%x: float32[n]) {
          %at = runtime_call(%x) symbol=nonzero : int64[1, k]
          %s = elements() dims=(k, n) shape=(2)
          %i = reshape(%at) shape=(k)
          %y = gather(%x, %i) form=axis
          return %y, %s
        }""",
        """graph(%s: int64[2], %x: float32[n]) where m any {
          bind(%s) symbols=(k, m)
          %y = reshape(%x) shape=(k, m)
          return %y
        }""",
        """graph(%t: int64[], %c: bool[], %x: float32[n]) {
          %y, %z = loop(%t, %c, %x, %x) carried=1
            body=(%i: int64[], %d: bool[], %a: float32[k], %b: float32[n]) {
              %e = concat(%a, %b) axis=0
              %s = elements() dims=(k, n) shape=(2)
              return %d, %e, %s
            } : float32[l], int64[t, 2]
          %r = reshape(%y) shape=(l, 1)
          return %r, %z
        }""",
        """graph(%c: bool[], %x: float32[n]) {
          %y = if(%c, %x) then=(%a: float32[n]) { return %a } otherwise=(%a: float32[n]) {
            %k = constant float32[3] splat 0.0
            return %k
          } : float32[l]
          return %y
        }""",
    ],
)
def test_valid_graphs_pass_and_stay_as_they_are(text):
    valid = parse(text)
    before = str(valid)
    verify(valid)
    assert str(valid) == before


def test_an_unknown_stage_is_an_error():
    with pytest.raises(ValueError, match="is none of the stages"):
        verify(parse(CHAIN), "done")


# Values ------------------------------------------------------------------------------------------


def test_a_value_must_be_defined_before_it_is_used():
    good = parse(CHAIN)
    error = refuses(replace(good, nodes=good.nodes[::-1]), "%a is used before it is defined")
    assert error.origin.node == "b"
    refuses(replace(good, nodes=good.nodes[1:]), "%a is used before it is defined")


def test_an_output_must_be_defined():
    refuses(graph([], outputs=[tensor(2, name="y")]), "the output %y is not defined")


def test_a_value_is_defined_once():
    good = parse(CHAIN)
    refuses(replace(good, nodes=(*good.nodes, good.nodes[0])), "defined twice")
    x = tensor(2, name="x")
    refuses(graph([x, x]), "%x is defined twice")


def test_a_value_knows_its_producer():
    x = tensor(n, 4)
    first = node(ops.Map(-x32), [x])
    second = node(ops.Map(expr.exp(x32)), [x], first.outputs)
    verify(graph([x], second))
    refuses(graph([x], first), "does not know it as its producer")


def test_an_input_has_no_producer():
    x = tensor(n, 4)
    refuses(graph(node(ops.Map(-x32), [x]).outputs), "is a node's output")


def test_a_constant_has_the_type_of_its_data():
    wrong = Value(TensorType("float32", (3,)), "c", Constant.of(np.zeros(2, np.float32)))
    refuses(graph([], node(ops.Map(-x32), [wrong])), r"the constant %c is no float32\[3\]")


def test_elements_have_the_shape_of_their_value():
    x = tensor(2, dtype="int64", name="x")
    x.elements = np.array([1, 2, 3], object)
    refuses(graph([x]), "%x has elements of another shape")


# Types and variables -----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(n, 5), (n,), (n + 1, 4)])
def test_outputs_have_the_types_that_inference_gives(shape):
    refuses_op(ops.Map(-x32), [f], [TensorType("float32", shape)], r"should be float32\[n, 4\]")


def test_types_that_only_the_run_can_compare_pass():
    x = tensor(n, m)
    verify(graph([x], node(ops.Map(-x32), [x], [tensor(m, n)])))


def test_a_node_has_as_many_outputs_as_inference_gives():
    refuses_op(ops.Sort(0), [f], [f], "should have 2 outputs")


def test_inference_that_fails_is_reported():
    refuses_op(ops.Reshape((7,)), [TensorType("float32", (6,))], [f], "cannot be reshaped")
    refuses_op(ops.Transpose((1, 0)), [], [f], "types do not fit")
    refuses_op(ops.Contract("mk", "kn", "mz", "float32"), [f, f], [f], "types do not fit")


def test_an_op_of_tensors_takes_no_sequences():
    sequence = parse("graph(%s: seq<float32[2]>) { return %s }").inputs[0]
    refuses(graph([sequence], node(ops.Map(-x32), [sequence], [tensor(2)])), "%s is no tensor")


@pytest.mark.parametrize(
    "op",
    [ops.Reshape((m, 4)), ops.Map(x32 + expr.size(m).cast("float32")), ops.Slice((m, 0), (n, 4), (1, 1))],
)
def test_a_variable_is_bound_before_it_is_used(op):
    refuses_op(op, [f], [f], "m is used before it is bound")


def test_variables_of_outputs_are_bound():
    refuses_op(ops.Map(-x32), [f], [TensorType("float32", (m, 4))], "m is used before it is bound")


def test_variables_of_a_region_end_with_it():
    text = """graph(%c: bool[], %x: float32[n]) {
      %y = if(%c, %x) then=(%a: float32[n]) {
        %at = runtime_call(%a) symbol=nonzero : int64[1, k]
        return %a
      } otherwise=(%a: float32[n]) { return %a } : float32[n]
      %s = elements() dims=(k) shape=(1)
      return %s
    }"""
    refuses(parse(text), "k is used before it is bound")


def test_a_variable_has_one_minimum():
    other = dims.symbol("n", 1)
    x = tensor(n, 4)
    refuses(graph([x], node(ops.Reshape((other, 4)), [x])), "n has two minimums")


# Single ops --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (ops.Map(input_(1, "float32")), r"it has no operand \$1"),
        (ops.Map(input_(0, "int32").cast("float32")), r"\$0 is float32, not int32"),
        (ops.Map(x32 + index(2).cast("float32")), r"index\(2\) is outside 2 axes"),
        (ops.Map(x32, (2, n, 4)), "should be"),
        (ops.Cumulate("sum", 2), "axis 2 is outside"),
        (ops.Cumulate("sum", -1), "axis -1 is outside"),
        (ops.Slice((0,), (n, 4), (1, 1)), "1 axes"),
        (ops.Slice((0, 0), (n, 4), (1,)), "1 sizes or steps"),
        (ops.Slice((0, 0), (n, 4), (1, 0)), "a step of 0"),
        (ops.Slice((0, 1), (n, 4), (1, 1)), "outside an axis of 4"),
        (ops.Slice((0, 3), (n, 5), (1, -1)), "outside an axis of 4"),
        (ops.Pad("edge", (0,), (0,)), "types do not fit"),
        (ops.Pad("constant", (0, 0), (0, 0)), "a scalar to pad with"),
        (ops.Pad("edge", (0, -1), (0, 1)), "padding is negative"),
        (ops.Reorder(Layout(8)), "reorders before layouts are chosen"),
    ],
)
def test_rules_of_ops_over_one_operand(op, reason):
    refuses_op(op, [f], [f], reason)


@pytest.mark.parametrize("axes", [(1, 0), (0, 0), (2,)])
def test_axes_of_a_reduction(axes):
    inputs = [Value(f)]
    never_made(ops.Reduce("sum", axes, True), inputs, "axes")


def test_an_extreme_has_one_axis():
    inputs = [Value(f)]
    never_made(ops.Reduce("argmax", (0, 1)), inputs, "argmax takes one axis")


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (ops.Conv((1,), (0, 0, 0, 0), (1, 1)), "1-dimensional"),
        (ops.Conv((1, 1), (0, 0, 0, 0), (1, 1, 1)), "one stride and dilation for each axis"),
        (ops.Conv((1, 1), (0, 0, 0, 0, 0), (1, 1)), "5 pads for 2 axes"),
        (ops.Conv((1, 0), (0, 0, 0, 0), (1, 1)), "types do not fit"),
        (ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), output_padding=(1,)), "output padding"),
        (ops.Conv((1, 1), (0, 0, 0, 0), (1, 1), epilogue=input_(1, "float32")), r"no operand \$1"),
        (ops.Conv((1, 1), (0,) * 4, (1, 1), epilogue=input_(0, "float16")), "float32, not float16"),
    ],
)
def test_rules_of_convolution(op, reason):
    refuses_op(op, [image, kernel], [TensorType("float32", (1, 6, 6, 6))], reason)


def test_groups_divide_the_output_channels():
    inputs = [tensor(1, 8, 8), tensor(6, 2, 3)]
    never_made(ops.Conv((1,), (0, 0), (1,), 4), inputs, "4 groups do not divide")


def test_operands_of_an_epilogue_are_checked():
    inputs = [tensor(2, 3), tensor(3, 4), tensor(4, dtype="int8")]
    body = x32 + input_(1, "float32")
    op = ops.Contract("mk", "kn", "mn", "float32", body)
    never_made(op, inputs, r"\$1 is int8, not float32")
    bare = ops.Contract("mk", "kn", "mn", "float32")
    never_made(bare, inputs, "operands without an epilogue")


def test_a_pool_has_a_size_for_each_axis():
    op = ops.Pool("max", (2, 2), (1, 1), (0, 0, 0, 0), (1, 1), (7,))
    refuses_op(op, [image], [TensorType("float32", (1, 4, 7))], "one size for each axis")


def test_indices_are_integers():
    refuses_op(ops.Gather("axis"), [f, f], [TensorType("float32", (n, 4, 4))], "are no indices")


def test_only_integers_are_bound():
    refuses_op(ops.Bind((dims.Symbol("k"),)), [TensorType("float32", (1,))], [], "are no sizes")


def test_elements_fill_their_shape():
    refuses_op(ops.Elements((1, 2), (3,)), [], [ints], "2 elements")


def test_a_recurrence_has_activations_for_each_gate():
    op = ops.Recurrent("gru", 2, ("forward",), (("tanh", 0.0, 0.0),))
    inputs = [tensor(5, 1, 1, 6), tensor(1, 6, 2)]
    never_made(op, inputs, "activations for each gate")


# Regions -----------------------------------------------------------------------------------------


def branch(*types):
    inputs = tuple(Value(t) for t in types)
    return Graph(inputs, inputs[:1], ())


flag = TensorType("bool", ())


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (branch(f, f), "a region should have 1 inputs"),
        (branch(TensorType("float32", (n, 5))), "where the operand is"),
        (branch(TensorType("int8", (n, 4))), "where the operand is"),
        (Graph(branch(f).inputs, (), ()), "a region should have 1 outputs"),
        (Graph(branch(f).inputs, (tensor(n, 4, name="y"),), ()), "%y is not defined"),
    ],
)
def test_regions_fit_their_operands(then, reason):
    inputs = [Value(flag), Value(f)]
    op = ops.If(then, branch(f), (f,))
    refuses(graph(inputs, node(op, inputs)), reason)


def test_results_of_branches_have_the_rank_of_the_output():
    inputs = [Value(flag), Value(f)]
    op = ops.If(branch(f), branch(f), (TensorType("float32", (n,)),))
    refuses(graph(inputs, node(op, inputs)), "where the result is")


def test_a_region_sees_only_its_inputs():
    outside, inside = Value(f, "outside"), Value(f)
    hidden = node(ops.Map(-x32), [outside], origin="inner")
    op = ops.Fused("rows", Graph((inside,), hidden.outputs, (hidden,)))
    error = refuses(graph([outside], node(op, [outside])), "%outside is used before it is defined")
    assert error.origin.node == "inner"


def test_a_loop_carries_the_same_kind_of_value():
    state = (TensorType("int64", ()), flag)
    inputs = [Value(t) for t in (*state, f)]
    body_inputs = tuple(Value(t) for t in (*state, f))
    narrow = node(ops.Map(x32.cast("int8")), [body_inputs[2]])
    body = Graph(body_inputs, (body_inputs[1], narrow.outputs[0]), (narrow,))
    refuses(graph(inputs, node(ops.Loop(body, 1, (f,)), inputs)), "where the result is")
    short = Graph(body_inputs[:2], (body_inputs[1], const_value()), ())
    refuses(graph(inputs, node(ops.Loop(short, 1, (f,)), inputs)), "should have 3 inputs")


def const_value():
    return Value(TensorType("float32", (2, 4)), "", Constant("float32", (2, 4), splat=0.0))


def test_a_condition_is_a_bool():
    inputs = [tensor(dtype="int64"), Value(f)]
    op = ops.If(branch(f), branch(f), (f,))
    never_made(op, inputs, "the condition is no bool")


def test_regions_are_found_inside_tuples_too():
    first, second, third = (branch(f) for _ in range(3))
    cases = SimpleNamespace(default=first, cases=((1, second), (2, third)))
    assert regions(cases) == (first, second, third)


# Stages ------------------------------------------------------------------------------------------


def test_blocked_values_wait_for_layouts():
    text = """graph(%x: float32[1, 20, 4, 4]) {
      %y = reorder(%x) layout=c16h1x1 from "r"
      %z = reorder(%y) layout=c8
      return %z
    }"""
    reordered = parse(text)
    refuses(reordered, "has a layout before layouts are chosen")
    verify(reordered, "layout")


@pytest.mark.parametrize(
    "type_, reason",
    [
        ("float32[1, 20; c16]", "c16 is no layout of 2 axes"),
        ("float32[1, 20, 4, 4; c16h1]", "c16h1 is no layout of 4 axes"),
        ("uint8[1, 20, 4, 4; c16h1x1f256]", "256 is no uint8"),
        ("float32[1, 20, 4, 4; c16h1x1f1]", "1 is no float32"),
        ("float32[2, 20; c16p4]", "c16p4 is no layout of 2 axes"),
        ("float32[2, 33, 4, 4; c16p2]", "is wider than what it is in"),
    ],
)
def test_layouts_fit_what_they_hold(type_, reason):
    text = "graph(%x: TYPE) { %y = reorder(%x) layout=c4 return %y }".replace("TYPE", type_)
    refuses(parse(text), reason, "layout")


# States ------------------------------------------------------------------------------------------

STATE = "graph(%h: {}, %y: {}) {{ return %y next %h }}"


@pytest.mark.parametrize(
    ("old", "new"),
    [("float32[2, n]", "float32[2, n]"), ("int8[1, n, 4]", "int8[1, m, 4]"), ("bool[]", "bool[]")],
)
def test_a_state_may_grow_along_its_first_axis(old, new):
    verify(parse(STATE.format(old, new)))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("float32[n, 4]", "float32[m, 5]", "they differ in more than one axis"),
        ("float32[2, n]", "float32[2, m]", "would not stay where it is"),
        ("float32[4]", "float16[4]", "not tensors of one element type"),
        ("float32[4]", "seq<float32[4]>", "not tensors of one element type"),
        ("string[4]", "string[4]", "the characters of strings have no place"),
    ],
)
def test_a_value_of_another_form_is_no_next_value(old, new, reason):
    refuses(parse(STATE.format(old, new)), reason)


def test_an_input_has_one_next_value():
    refuses(parse("graph(%h: int8[4], %x: int8[4]) { return %x next %h, %h next %h }"), "is a state twice")


# Time --------------------------------------------------------------------------------------------


def test_the_work_is_linear_in_the_nodes():
    def work(count):
        x = tensor(n, 4)
        nodes = [node(ops.Map(x32 * const(1.5, "float32")), [x])]
        while len(nodes) < count:
            nodes.append(node(nodes[0].op, nodes[-1].outputs))
        long = graph([x], *nodes)
        return calls(lambda: verify(long))

    assert work(3000) < 11 * work(300)


def calls(function):
    """How many calls of functions written in Python it takes."""
    profiler = cProfile.Profile(builtins=False)
    profiler.runcall(function)
    return sum(entry.callcount for entry in profiler.getstats())
