"""The interpreter: graphs, control flow, variables, functions of the runtime, folding."""

import numpy as np
import pytest
from support.interpreting import close, fails, integers, normal, random, run, runtime, same

from onnxc.ir import dims, interpret, ops
from onnxc.ir.expr import input_
from onnxc.ir.graph import TensorType
from onnxc.ir.interpret import InterpretError, run_graph, run_op
from onnxc.ir.requirements import Need
from onnxc.ir.text_parser import parse

x32 = input_(0, "float32")

# Sizes -------------------------------------------------------------------------------------------


def test_elements_are_the_values_of_dimensions():
    n, m = dims.symbol("n"), dims.symbol("m")
    same(run(ops.Elements((n, m * 2, 3), (3,)), n=5, m=7), np.array([5, 14, 3]))
    same(run(ops.Elements((n,), (), "int32"), n=5), np.array(5, np.int32))


def test_bind_fills_the_environment():
    env = {}
    run_op(ops.Bind((dims.Symbol("n"), dims.Symbol("m", None))), [np.array([3, -2])], env)
    assert env == {"n": 3, "m": -2}
    assert fails("invalid_value", ops.Bind((dims.Symbol("n"),)), np.array([-1])) == -1


@pytest.mark.parametrize(
    ("kind", "holds", "fails_at"),
    [("equal", [3], [1, 2, 4]), ("broadcast", [1, 3], [2, 4]), ("least", [3, 4], [1, 2])],
)
def test_what_is_required_of_sizes_is_an_error_where_it_does_not_hold(kind, holds, fails_at):
    required = ops.Require(kind, (dims.symbol("n"), 3), "wrong_shape")
    assert all(run(required, n=n) == [] for n in holds)
    assert all(fails("wrong_shape", required, n=n) == [n, 3] for n in fails_at)


def test_a_variable_that_nothing_bound_is_an_error():
    assert fails("unbound_variable", ops.Reshape((dims.symbol("n"),)), np.zeros(3)) == "n"


# Graphs ------------------------------------------------------------------------------------------


def test_inputs_bind_their_variables():
    graph = parse("""graph (%x: float32[n, 2*m + 1]) {
      %s = elements() dims=(n, m) shape=(2)
      return %s
    }""")
    assert run_graph(graph, [np.zeros((4, 7), np.float32)])[0].tolist() == [4, 3]


@pytest.mark.parametrize(
    ("code", "inputs"),
    [
        ("wrong_shape", [np.zeros((2, 3), np.float32), np.zeros(4, np.float32)]),
        ("wrong_shape", [np.zeros((2, 2), np.float32), np.zeros(2, np.float32)]),
        ("wrong_rank", [np.zeros(2, np.float32), np.zeros(2, np.float32)]),
        ("wrong_dtype", [np.zeros((2, 3)), np.zeros(2, np.float32)]),
        ("wrong_count", [np.zeros((2, 3), np.float32)]),
    ],
)
def test_inputs_of_other_types_are_refused(code, inputs):
    graph = parse("graph (%x: float32[n, 3], %y: float32[n]) { return %x }")
    with pytest.raises(InterpretError) as caught:
        run_graph(graph, inputs)
    assert caught.value.code == code


def test_a_graph_may_return_inputs_constants_and_a_value_twice():
    graph = parse("""graph (%x: float32[2]) {
      %c = constant float32[2] splat 3.0
      %y = map(%x, %c) { add($0, $1) }
      return %x, %c, %y, %y
    }""")
    results = run_graph(graph, [np.array([1, 2], np.float32)])
    assert [r.tolist() for r in results] == [[1, 2], [3, 3], [4, 5], [4, 5]]


def test_a_result_of_another_shape_than_its_type_is_an_error():
    graph = parse(
        "graph (%x: float32[n], %y: float32[m]) {  %z = map(%x, %y) { add($0, $1) } : float32[n] return %z }"
    )
    with pytest.raises(InterpretError):
        run_graph(graph, [np.zeros(1, np.float32), np.zeros(3, np.float32)])


CHOOSE = parse("""graph (%c: bool[], %x: float32[n]) {
  %y = if(%c, %x) then=(%a: float32[n]) {
    %t = concat(%a, %a) axis=0
    return %t
  } otherwise=(%a: float32[n]) {
    %t = map(%a) { neg($0) }
    return %t
  } : float32[k]
  %s = elements() dims=(k) shape=(1)
  return %y, %s
}""")


@pytest.mark.parametrize(("condition", "expected"), [(True, [1, 2, 1, 2]), (False, [-1, -2])])
def test_if_runs_one_branch_and_binds_the_sizes_of_its_outputs(condition, expected):
    y, size = run_graph(CHOOSE, [np.array(condition), np.array([1, 2], np.float32)])
    assert y.tolist() == expected
    assert size.tolist() == [len(expected)]


GROW = parse("""graph (%trips: int64[], %x: float32[n]) {
  %true = constant bool[] (true)
  %last, %all = loop(%trips, %true, %x, %x)
    body=(%i: int64[], %c: bool[], %state: float32[k], %captured: float32[n]) {
      %longer = concat(%state, %captured) axis=0
      %sum = reduce(%state) kind=sum axes=(0)
      %less = constant int64[] (3)
      %more = map(%i, %less) { lt($0, $1) }
      return %more, %longer, %sum
    } carried=1 : float32[l], float32[t]
  return %last, %all
}""")


@pytest.mark.parametrize(("trips", "rounds"), [(0, 0), (1, 1), (2, 2), (100, 4)])
def test_a_loop_may_carry_a_tensor_that_grows(trips, rounds):
    last, every = run_graph(GROW, [np.array(trips), np.array([1, 2], np.float32)])
    assert last.tolist() == [1, 2] * (rounds + 1)
    assert every.tolist() == [3.0 * (k + 1) for k in range(rounds)]


def test_a_scanned_value_must_keep_its_shape():
    graph = parse("""graph (%trips: int64[], %x: float32[n]) {
      %true = constant bool[] (true)
      %last, %all = loop(%trips, %true, %x) carried=1
        body=(%i: int64[], %c: bool[], %state: float32[k]) {
        %longer = concat(%state, %state) axis=0
        return %c, %longer, %longer
      } : float32[l], float32[t, m]
      return %all
    }""")
    with pytest.raises(InterpretError, match="dims mismatch"):
        run_graph(graph, [np.array(3), np.zeros(2, np.float32)])


def test_a_fused_group_is_its_region():
    graph = parse("""graph (%x: float32[n, 4]) {
      %y = fused(%x) kind=rows region=(%a: float32[n, 4]) {
        %m = reduce(%a) kind=max axes=(1) keepdims=true
        %e = map(%a, %m) { exp(sub($0, $1)) }
        %s = reduce(%e) kind=sum axes=(1) keepdims=true
        %r = map(%e, %s) { div($0, $1) }
        return %r
      }
      return %y
    }""")
    a = normal(3, 4)
    e = np.exp(a - a.max(1, keepdims=True))
    close(run_graph(graph, [a])[0], e / e.sum(1, keepdims=True))


def test_layouts_are_ignored():
    graph = parse("graph (%x: float32[1, 5, 2, 2]) { %y = reorder(%x) layout=c8h1x1 return %y }")
    a = normal(1, 5, 2, 2)
    same(run_graph(graph, [a])[0], a)


# Runtime calls -----------------------------------------------------------------------------------


def call(symbol, *inputs, attributes=()):
    results = run_op(ops.RuntimeCall(symbol, (), attributes), inputs, {})
    return results[0] if len(results) == 1 else results


@pytest.mark.parametrize("shape", [(5,), (1,), (3, 4), (0, 3)])
def test_nonzero_is_that_of_onnxruntime(shape):
    a = integers(*shape, low=0, high=2)
    same(call("nonzero", a), runtime("NonZero", [a])[0])


def test_positions_in_a_scalar_have_no_axes():
    assert call("nonzero", np.array(3)).shape == (0, 1)
    assert call("nonzero", np.array(0)).shape == (0, 0)


def test_an_empty_text_is_zero():
    texts = np.array([["a", ""], ["", "b"]], object)
    assert call("nonzero", texts).tolist() == [[0, 1], [0, 1]]


def test_the_size_of_nonzero_is_bound():
    graph = parse("""graph (%x: float32[n]) {
      %at = runtime_call(%x) symbol=nonzero : int64[1, k]
      %s = elements() dims=(k) shape=(1)
      return %s
    }""")
    assert run_graph(graph, [np.array([1, 0, 3], np.float32)])[0].tolist() == [2]


@pytest.mark.parametrize("ascending", [0, 1])
@pytest.mark.parametrize(("shape", "axis"), [((12,), -1), ((4, 3), -1), ((6, 2), 0), ((2, 6), 1), ((0,), -1)])
def test_unique_elements_are_those_of_onnxruntime(shape, axis, ascending):
    a = integers(*shape, dtype="float32", low=0, high=3)
    given = {} if axis < 0 else {"axis": axis}
    expected = runtime("Unique", [a], 4, sorted=ascending, **given)
    for actual, wanted in zip(call("unique", a, attributes=(axis, ascending)), expected, strict=True):
        same(actual, wanted)


@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression(centred):
    boxes, scores = random.random((2, 30, 4), np.float32), random.random((2, 3, 30), np.float32)
    limits = [np.array([4]), np.array([0.4], np.float32), np.array([0.3], np.float32)]
    expected = runtime("NonMaxSuppression", [boxes, scores, *limits], center_point_box=centred)[0]
    same(call("non_max_suppression", boxes, scores, *limits, attributes=(centred,)), expected)


def test_no_boxes_are_suppressed_to_nothing():
    none = call(
        "non_max_suppression",
        np.zeros((1, 0, 4), np.float32),
        np.zeros((1, 1, 0), np.float32),
        np.array([5]),
        np.array([0.5]),
        np.array([0.0]),
        attributes=(0,),
    )
    same(none, np.zeros((0, 3), np.int64))


A, B, C = np.zeros(1), np.ones(2), np.full(3, 2.0)


@pytest.fixture
def sequence():
    """One of two elements, which no operator changes."""
    made = call("sequence_construct", A, B)
    yield made
    assert made == [A, B]


def test_a_sequence_has_a_length_and_its_elements(sequence):
    assert call("sequence_length", sequence) == 2
    assert call("sequence_at", sequence, np.array(-1)) is B
    assert call("sequence_empty") == []


def test_an_element_is_inserted_at_a_place_or_at_the_end(sequence):
    assert call("sequence_insert", sequence, C) == [A, B, C]
    assert call("sequence_insert", sequence, C, np.array(-1)) == [A, C, B]
    assert call("sequence_insert", sequence, C, np.array(2)) == [A, B, C]


def test_an_element_is_erased_at_a_place_or_at_the_end(sequence):
    assert call("sequence_erase", sequence) == [A]
    assert call("sequence_erase", sequence, np.array(0)) == [B]


@pytest.mark.parametrize("place", [2, -3])
def test_a_place_outside_a_sequence_fails(place):
    sequence = [np.zeros(1), np.zeros(1)]
    for symbol, inputs in (("sequence_at", [sequence]), ("sequence_erase", [sequence])):
        assert fails("index_out_of_range", ops.RuntimeCall(symbol, ()), *inputs, np.array(place)) == place


def test_sequences_are_joined():
    a, b = normal(2, 3), normal(2, 3)
    same(call("concat_from_sequence", [a, b], attributes=(1, 0)), np.concatenate([a, b], 1))
    same(call("concat_from_sequence", [a, b], attributes=(1, 1)), np.stack([a, b], 1))
    fails("dims_mismatch", ops.RuntimeCall("concat_from_sequence", (), (0, 1)), [a, b[:1]])


def test_tensors_are_split_into_sequences():
    a = normal(5, 2)
    assert [p.shape for p in call("split_to_sequence", a, attributes=(0, 1))] == [(1, 2)] * 5
    assert [p.shape for p in call("split_to_sequence", a, attributes=(0, 0))] == [(2,)] * 5
    parts = call("split_to_sequence", a, np.array(2), attributes=(0, 1))
    assert [len(p) for p in parts] == [2, 2, 1]
    same(np.concatenate(parts), a)
    assert [len(p) for p in call("split_to_sequence", a, np.array([1, 0, 4]), attributes=(0, 1))] == [1, 0, 4]
    for split in (np.array(3), np.array([], np.int64)):
        assert call("split_to_sequence", a[:0], split, attributes=(0, 1)) == []
    fails("invalid_value", ops.RuntimeCall("split_to_sequence", (), (0, 1)), a, np.array([1, 2]))


def test_an_optional_has_its_element_or_none():
    a = np.ones(2)
    assert call("optional", a) is a
    assert call("optional") is None
    assert call("optional_get_element", a) is a
    assert call("optional_has_element", a)
    assert not call("optional_has_element", None)
    assert not call("optional_has_element")
    fails("empty_optional", ops.RuntimeCall("optional_get_element", ()), None)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
def test_regions_are_aligned_as_in_onnxruntime(samples, mode, half):
    x = normal(2, 3, 9, 12)
    regions = np.array([[0, 0, 11, 8], [2.5, 1, 7, 4], [-3, 5, 30, 40], [4, 4, 4.1, 4.2]], np.float32)
    images, scale = np.array([0, 1, 1, 0]), np.float32(0.7)
    names = ["output_half_pixel", "half_pixel"]
    expected = runtime(
        "RoiAlign",
        [x, regions, images],
        mode=mode,
        output_height=3,
        output_width=4,
        sampling_ratio=samples,
        spatial_scale=0.7,
        coordinate_transformation_mode=names[half],
    )[0]
    attributes = (3, 4, samples, int(mode == "max"), half)
    close(call("roi_align", x, regions, images, scale, attributes=attributes), expected, 1e-4)
    wrong = np.array([0, 1, 2, 0])
    fails("index_out_of_range", ops.RuntimeCall("roi_align", (), attributes), x, regions, wrong, scale)


def test_max_roi_pool():
    x = normal(2, 3, 9, 12)
    regions = [[0, 0, 0, 11, 8], [1, 2, 1, 7, 4], [1, 5, 5, 5, 5], [0, 9, 7, 30, 40]]
    regions, scale = np.array(regions, np.float32), np.float32(1)
    expected = runtime("MaxRoiPool", [x, regions], pooled_shape=(3, 2))[0]
    close(call("max_roi_pool", x, regions, scale, attributes=(3, 2)), expected)
    op = ops.RuntimeCall("max_roi_pool", (), (3, 2))
    fails("index_out_of_range", op, x, regions + 2, scale)


@pytest.mark.parametrize("symbol", ["determinant", "inverse"])
def test_a_matrix_that_is_not_square_has_no_determinant_and_no_inverse(symbol):
    for shape in ((2, 3), (2, 3, 2), (0, 1)):
        fails("dims_mismatch", ops.RuntimeCall(symbol, ()), normal(*shape))


@pytest.mark.parametrize("shape", [(2, 2), (3, 2, 4, 4), (0, 3, 3), (2, 1, 1)])
def test_determinants_are_those_of_onnxruntime(shape):
    x = normal(*shape)
    close(call("determinant", x), runtime("Det", [x])[0], 1e-4)


def test_an_inverse_undoes_its_matrix_and_a_singular_one_has_none():
    x = normal(2, 3, 3) + 4 * np.eye(3, dtype=np.float32)  # far from singular, whatever is drawn
    close(call("inverse", x) @ x, np.broadcast_to(np.eye(3, dtype=x.dtype), x.shape), 1e-4)
    assert np.isnan(call("inverse", np.ones((2, 2)))).all()


def test_numbers_and_texts():
    numbers = np.array([[0.1, 1e-20], [np.inf, np.nan]], np.float32)
    texts = call("numbers_to_strings", numbers, attributes=(1, 8))
    assert texts.tolist() == [["0.1", "1e-20"], ["inf", "nan"]]
    same(call("strings_to_numbers", texts, attributes=(8, 1)), numbers)
    whole = np.array([-3, 7], np.int8)
    same(call("strings_to_numbers", call("numbers_to_strings", whole), attributes=(8, 3)), whole)
    same(call("strings_to_numbers", np.array(["-3.9", "7e0"], object), attributes=(8, 3)), whole)
    above = np.array(
        [repr(1 + 2.0**-8 + 2.0**-40)], object
    )  # the middle of 1 and the next bfloat16, and more
    assert call("strings_to_numbers", above, attributes=(8, 16)).astype(float) == 1 + 2.0**-7
    assert call("numbers_to_strings", np.array([True, False])).tolist() == ["1", "0"]
    op = ops.RuntimeCall("strings_to_numbers", (), (8, 7))
    fails("invalid_value", op, np.array(["seven"], object))


# Folding -----------------------------------------------------------------------------------------


def test_an_operator_of_constants_is_folded():
    (result,) = interpret.fold(ops.Map(x32 * 2), [np.array([1, 2], np.float32)])
    assert result.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        (ops.Gather("axis"), [np.zeros(3), np.array([9])]),
        (ops.Reshape((dims.symbol("n"),)), [np.zeros(3)]),
        (ops.Random("uniform", "float32", (2,), 0.0, 1.0), []),
        (ops.Contract("mk", "kn", "mn", "float32"), [normal(2, 3), normal(2, 3)]),
        (ops.RuntimeCall("no_such_function", ()), []),
    ],
)
def test_what_fails_or_varies_does_not_fold(op, constants):
    assert interpret.fold(op, constants) is None


def test_every_op_has_a_meaning():
    named = {cls.__name__ for cls in ops.Op.__subclasses__()}
    with open(interpret.__file__) as source:
        text = source.read()
    assert {name for name in named if f"case ops.{name}(" not in text} == set()


def test_types_of_results_follow_inference():
    a = TensorType("float16", (2, 3))
    op = ops.Reduce("sum", (1,), body=input_(0, "float16").cast("float32"))
    assert op.infer(Need(), a) == (TensorType("float32", (2,)),)
    assert run(op, normal(2, 3, dtype="float16")).dtype == np.float32
