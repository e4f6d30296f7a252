"""IR text: what is printed is parsed to what prints the same."""

import numpy as np
import pytest

from onnxc.ir import dims, dtypes, expr, ops
from onnxc.ir.expr import const, input_
from onnxc.ir.graph import Constant, Graph, Layout, Node, TensorType, Value, make_node
from onnxc.ir.text import TextError, expr_text, graph_text
from onnxc.ir.text_parser import parse

x, y = input_(0, "float32"), input_(1, "float32")
i = input_(0, "int64")

# Expressions -------------------------------------------------------------------------------------


def parsed_body(text, kinds):
    """A Map's body of this text, over operands of these types."""
    names = [f"%x{k}" for k in range(len(kinds))]
    inputs = ", ".join(f"{name}: {kind}[3, 4, 5]" for name, kind in zip(names, kinds))
    graph = parse(
        f"graph g({inputs}) {{ %y = map({', '.join(names)}) shape=(3, 4, 5) {{ {text} }} return %y }}"
    )
    return graph.nodes[0].op.body


@pytest.mark.parametrize(
    ("root", "text"),
    [
        (x, "$0"),
        (x + y, "add($0, $1)"),
        (x.maximum(0), "max($0, 0.0)"),
        (2 * x - 0.1, "sub(mul(2.0, $0), 0.1)"),
        ((x * y) + (x * y), "t0 = mul($0, $1); add(t0, t0)"),
        (const(1.5, "float32"), "1.5:float32"),
        (const(3, "int8"), "3:int8"),
        (const(True, "bool"), "true"),
        (expr.where(x < y, 1.0, const(0, "float32")), None),
        (expr.where(x < y, x, 0.0), "select(lt($0, $1), $0, 0.0)"),
        (x.cast("int8"), "cast($0, int8)"),
        (expr.bitcast(x, "int32"), "bitcast($0, int32)"),
        (expr.bitcast(const(1, "float32"), "int32"), "bitcast(1.0:float32, int32)"),
        (expr.index(2) * 3, "mul(index(2), 3)"),
        (expr.size(dims.symbol("n") + 1), "size(n + 1)"),
        (x**2, "pow($0, 2.0)"),
        (expr.apply("pow", x, const(2, "int32")), "pow($0, 2:int32)"),
        (expr.apply("pow", const(2, "float32"), i), "pow(2.0:float32, $0)"),
        (x + float("nan"), "add($0, nan)"),
        (x + float("-inf"), "add($0, -inf)"),
        (x * -0.0, "mul($0, -0.0)"),
        (x * 1e-30, "mul($0, 1e-30)"),
        (
            expr.check(expr.apply("ne", i, const(0, "int64")), i, "division_by_zero"),
            "check(ne($0, 0), $0, division_by_zero)",
        ),
        (expr.check(x < y, const(0, "float32"), "c"), "check(lt($0, $1), 0.0:float32, c)"),
        (expr.check(x < y, x, "c", 'a "{}"'), 'check(lt($0, $1), $0, c, "a \\"{}\\"")'),
    ],
)
def test_the_text_of_an_expression_is_parsed_to_it(root, text):
    printed = expr_text(root)
    assert text is None or printed == text
    kinds = ["float32", "float32"] if "float32" in {n.dtype for n in expr.topological(root)} else []
    if any(n.op == "input" and n.dtype == "int64" for n in expr.topological(root)):
        kinds = ["int64"]
    assert parsed_body(printed, kinds) is root


@pytest.mark.parametrize("dtype", [*dtypes.FLOATS, *dtypes.SMALL_FLOATS])
def test_float_constants_are_exact(dtype):
    for value in (0.1, 1 / 3, 1e-3, 448.0, -1.5):
        root = const(value, dtype)
        assert parsed_body(expr_text(root), []) is root


@pytest.mark.parametrize("dtype", [*dtypes.SIGNED, *dtypes.UNSIGNED])
def test_integer_constants_are_exact(dtype):
    for value in dtypes.integer_range(dtype):
        root = const(value, dtype)
        assert parsed_body(expr_text(root), []) is root


def test_an_expression_shared_64_times_prints_64_lines_at_most():
    root = x
    for _ in range(64):
        root = root + root
    assert expr_text(root).count(";") == 63
    assert parsed_body(expr_text(root), ["float32"]) is root


def test_a_chain_of_10000_prints_in_linear_size():
    root = x
    for k in range(10_000):
        root = expr.tanh(root) * (1 + k % 7) if k % 2 else expr.exp(root)
    printed = expr_text(root)
    assert len(printed) < 60 * 15_000
    assert parsed_body(printed, ["float32"]) is root


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("add($0", "comma expected"),
        ("add($0, $7)", "no operand"),
        ("frob($0)", "frob is no operation"),
        ("add($0, t3)", "nothing is called t3"),
        ("1.5", "type of a number is missing"),
        ("select($0, 1.0, 2.0)", "the type of a number is missing"),
        ("add($0, $0) $0", "} expected"),
        ("cast($0, float33)", "float33 is no element type"),
        ("", "expression expected"),
    ],
)
def test_what_is_no_expression_is_refused(text, reason):
    with pytest.raises(TextError, match=reason):
        parsed_body(text, ["float32"])


# Graphs ------------------------------------------------------------------------------------------

EVERY_OP = {
    "map": "%x: float32[n, 3], %y: float32[3] | map(%x, %y) { add($0, $1) }",
    "map of nothing": "| map() { index(0) } shape=(n + 1)",
    "reduce": "%x: float32[n, 3] | reduce(%x) kind=sum axes=(0, 1) keepdims=true",
    "reduce body": "%x: float16[n, 3] | reduce(%x) kind=max axes=(1) body={ cast($0, float32) }",
    "contract": "%x: float32[m, 4], %y: float32[4, k] "
    "| contract(%x, %y) lhs=mk rhs=kn out=mn accumulate=float32",
    "contract epilogue": "%x: float16[m, 4], %y: float16[4, k], %b: float16[k] "
    "| contract(%x, %y, %b) lhs=mk rhs=kn out=mn accumulate=float32 "
    "epilogue={ add(cast($0, float16), $1) }",
    "contract scalar": '%x: float32[4], %y: float32[4] | contract(%x, %y) lhs=k rhs=k out="" '
    "accumulate=float32",
    "conv": "%x: float32[n, 4, h, w], %k: float32[8, 2, 3, 3] "
    "| conv(%x, %k) strides=(2, 2) pads=(1, 1, p, 1) dilations=(1, 1) groups=2",
    "transposed conv": "%x: float32[1, 4, 7], %k: float32[4, 8, 3] | conv(%x, %k) strides=(2) "
    "pads=(0, -1) dilations=(1) transposed=true output_padding=(1) epilogue={ max($0, 0.0) }",
    "pool": "%x: float32[n, 4, h, w] | pool(%x) kind=argmax kernel=(2, 2) strides=(2, 2) "
    "pads=(0, 0, 0, 0) dilations=(1, 1) sizes=(h//2, w//2) column_major=true",
    "attention": "%q: float32[b, 2, s, 8], %k: float32[b, 2, t, 8], %v: float32[b, 2, t, 8] "
    "| attention(%q, %k, %v) scale=0.125",
    "recurrent": "%x: float32[t, b, 1, 24], %r: float32[1, 24, 6], "
    "%h: float32[1, b, 6] | %y, %last, %cell = recurrent(%x, %r, %h) kind=lstm "
    "hidden=6 directions=(forward) "
    "activations=((sigmoid, 0.0, 0.0), (tanh, 0.5, 0.0), (tanh, 0.0, 0.0)) operands=(h) clip=0.5",
    "reshape": "%x: float32[n, 6] | reshape(%x) shape=(n, 2, 3)",
    "transpose": "%x: float32[n, 6] | transpose(%x) perm=(1, 0)",
    "slice": "%x: float32[n, 6] | slice(%x) starts=(0, 5) sizes=(n, 2) steps=(1, -2)",
    "pad": "%x: float32[n, 6], %v: float32[] | pad(%x, %v) mode=constant before=(0, 1) after=(2, 0)",
    "broadcast": "%x: float32[n, 1] | broadcast(%x) shape=(2, n, 4)",
    "concat": "%x: float32[n, 1], %y: float32[n, 4] | concat(%x, %y, %x) axis=1",
    "unfold": "%x: float32[n + 2, 3, 4] | unfold(%x) taps=3 stride=2",
    "gather": "%x: float32[n, 4], %i: int64[k] | gather(%x, %i) form=axis axis=1",
    "gather nd": "%x: float32[n, 4, 5], %i: int64[n, 2, 1] | gather(%x, %i) form=nd batch=1",
    "scatter": "%x: float32[n, 4], %i: int64[k, 4], %u: float32[k, 4] "
    "| scatter(%x, %i, %u) form=elements reduction=add",
    "overlap add": "%x: float32[n, 12, h, 5] | overlap_add(%x) kernel=(2, 3) strides=(1, 2) pads=(0, 1) "
    "dilations=(1, 1) sizes=(h + 1, 11)",
    "cumulate": "%x: float32[n, 4] | cumulate(%x) kind=sum axis=1 exclusive=true reverse=true",
    "sort": "%x: float32[n, 4] | %y, %i = sort(%x) axis=1 descending=true",
    "trees": "%x: float32[n, 4], %f: int32[5], %t: float32[5], %l: int32[5], %r: int32[5], %m: bool[5], "
    "%s: int32[2], %c: int32[2], %w: float32[7, 1] "
    "| tree_ensemble(%x, %f, %t, %l, %r, %m, %s, %c, %w) aggregate=sum columns=3 width=4 depth=3",
    "bind": "%x: int64[2] | bind(%x) symbols=(n, m)",
    "require": "| require() kind=least sizes=(min(n, 4), m) code=wrong_shape",
    "random": "| random() kind=normal dtype=float16 shape=(n, 3) a=0.0 b=1.5 seed=7.0",
    "elements": "| elements() dims=(n, 2*n, 3, 4) shape=(2, 2) dtype=int32",
    "elements of rank 0": "| elements() dims=(n) shape=()",
    "reorder": "%x: float32[1, 9, 4, 4] | reorder(%x) layout=c8h1x1",
    "fused": "%x: float32[n] | fused(%x) kind=rows region=(%a: float32[n]) { return %a }",
    "if": "%c: bool[], %x: float32[n] | if(%c, %x) then=(%a: float32[n]) { return %a } "
    "otherwise=(%a: float32[n]) { return %a } : float32[n]",
    "loop": "%t: int64[], %c: bool[], %x: float32[n] | loop(%t, %c, %x) "
    "body=(%i: int64[], %d: bool[], %a: float32[k]) { return %d, %a } carried=1 : float32[m]",
    "call": "%x: float32[n] | runtime_call(%x) symbol=nonzero attributes=(1, -2) : int64[1, k]",
    "maps": "%x: map<string, float32> | runtime_call(%x) symbol=f : seq<map<int64, string>>",
    "sequence": "%x: seq<float32[n]>, %o: optional<seq<?>> "
    "| runtime_call(%x, %o) symbol=f : seq<optional<string[]>>",
}


def graph_of(case):
    inputs, _, node = EVERY_OP[case].partition("| ")
    statement = node if node.startswith(("%", "bind", "require")) else f"%z = {node}"
    return parse(f"graph({inputs}) {{ {statement} return }}")


@pytest.mark.parametrize("case", EVERY_OP)
def test_every_op_is_printed_and_parsed(case):
    graph = graph_of(case)
    printed = graph_text(graph)
    assert graph_text(parse(printed)) == printed
    assert EVERY_OP[case].partition("| ")[2].partition(" {")[0].partition(" : ")[0] in printed


def test_no_op_is_missing_here():
    seen = {type(graph_of(case).nodes[0].op) for case in EVERY_OP}
    assert seen == {*ops.Op.__subclasses__()}


def test_a_whole_graph():
    text = """graph main(%x: float32[b, 3, h]) where b >= 1, h any {
  %w = constant float32[8, 3, 3] splat 0.5
  %0 = conv(%x, %w) strides=(2) pads=(1, 1) dilations=(1) : float32[b, 8, (h + 1)//2]
  %1 = map(%0) { max($0, 0.0) } : float32[b, 8, (h + 1)//2]
  %2, %3 = sort(%1) axis=1 : float32[b, 8, (h + 1)//2], int64[b, 8, (h + 1)//2]
  return %2, %3
}"""
    graph = parse(text)
    assert graph_text(graph) == text
    assert str(graph) == text
    assert graph.name == "main"
    minimums = {s.name: s.minimum for d in graph.inputs[0].shape for s in dims.symbols(d)}
    assert minimums == {"b": 1, "h": None}


def test_types_are_inferred_where_they_are_left_out():
    graph = parse("graph(%x: float32[n, 4]) { %y = transpose(%x) perm=(1, 0) return %y }")
    assert str(graph.outputs[0].type) == "float32[4, n]"


def test_given_types_are_checked():
    with pytest.raises(TextError, match=r"%y is float32\[4, n\]"):
        parse("graph(%x: float32[n, 4]) { %y = transpose(%x) perm=(1, 0) : float32[5, n] return %y }")


def test_a_given_type_may_say_more_than_the_inferred_one():
    graph = parse(
        "graph(%x: float32[n], %y: float32[m]) {  %z = map(%x, %y) { add($0, $1) } : float32[k] return %z }"
    )
    assert graph.outputs[0].shape == (dims.symbol("k"),)


def test_the_text_of_a_blocked_type_is_parsed_to_it():
    text = """graph(%x: float32[1, 20, h, w; c16h1x1]) {
  %0 = map(%x) { neg($0) } : float32[1, 20, h, w; c16]
  return %0
}"""
    assert graph_text(parse(text)) == text


def test_borders_of_a_zero_point_and_images_in_wider_ones():
    text = """graph(%x: uint8[1, 20, h, w; c16h1x2f131], %k: float32[n, 20, 3, 5; c16h0x1p7]) {
  %0 = reorder(%x) layout=c16h1x1f-3 : uint8[1, 20, h, w; c16h1x1f-3]
  %1 = reorder(%k) layout=c8p4 : float32[n, 20, 3, 5; c8p4]
  return %0, %1
}"""
    graph = parse(text)
    assert graph_text(graph) == text
    x, k = graph.inputs
    assert x.type.layout == Layout(16, (1, 2), 131)
    assert x.type.layout.alone == x.type.layout
    assert k.type.layout == Layout(16, (0, 1), 0, 7)
    assert k.type.layout.alone == Layout(16, (0, 1))
    n, plane = dims.symbol("n"), 3 * 7 * 16 * 4
    assert k.type.storage == (n, 2, 3, 7, 16)
    assert (k.type.image_bytes, k.type.batch_stride, k.type.nbytes) == (2 * plane, 7 * plane, 2 * plane * n)


def test_symbolic_elements_are_kept():
    text = """graph(%s: int64[2] = (n, 3*m)) {
  %e = elements() dims=(n, m) shape=(2) : int64[2]
  %0 = map(%s, %e) { add($0, $1) } : int64[2] = (2*n, 4*m)
  return %0
}"""
    graph = parse(text)
    assert graph_text(graph) == text
    assert graph.nodes[0].outputs[0].elements.tolist() == [dims.symbol("n"), dims.symbol("m")]


def test_bind_has_no_outputs():
    text = """graph(%s: int64[2]) where m any {
  bind(%s) symbols=(n, m)
  return
}"""
    graph = parse(text)
    assert graph_text(graph) == text
    assert graph.nodes[0].op.symbols == (dims.Symbol("n"), dims.Symbol("m", None))


def test_origins_and_kernels_are_kept():
    text = """graph(%x: float32[n]) {
  %0 = map(%x) { neg($0) } by loop_nest(vector=16, unroll=2) : float32[n] from "a \\"b\\" \\n"
  %1 = map(%0) { neg($0) } by "odd) kernel" : float32[n]
  return %1
}"""
    graph = parse(text)
    assert graph_text(graph) == text
    assert graph.nodes[0].origin == 'a "b" \n'
    assert graph.nodes[0].choice == "loop_nest(vector=16, unroll=2)"


def test_names_of_models_are_kept_and_made_unique():
    names = ["/a/b.c_output_0", "12", "", "two words", 'q"', "x", "x", "x.1", "%", "ü"]
    values = [Value(TensorType("float32", (2,)), name) for name in names]
    printed = graph_text(Graph(tuple(values), tuple(values), (), "model 1"))
    again = parse(printed)
    assert graph_text(again) == printed
    found = [v.name for v in again.inputs]
    assert found[:6] == names[:6]
    assert len({*found}) == len(found)


def test_nested_regions_share_constants():
    text = """graph(%c: bool[]) {
  %0 = if(%c) then=() {
    %k = constant float32[2] (1.0, 2.0)
    %1 = map(%k) { neg($0) } : float32[2]
    return %1
  } otherwise=() {
    return %k
  } : float32[2]
  return %0
}"""
    graph = parse(text)
    assert graph_text(graph) == text
    assert graph.nodes[0].op.then.nodes[0].inputs[0] is graph.nodes[0].op.otherwise.outputs[0]


def test_a_region_sees_only_its_inputs():
    with pytest.raises(TextError, match="%x is not defined"):
        parse(
            "graph(%x: float32[2]) {"
            "  %y = fused(%x) kind=rows region=(%a: float32[2]) { return %x } return %y }"
        )


# Constants ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL])
def test_small_constants_are_printed_whole(dtype):
    if dtype == "string":
        array = np.array(["a", 'b"c', "ü\n", ""], object)
    else:
        array = np.array([0, 1, 2, 0.5]).astype(dtypes.numpy_dtype(dtype))
        if dtypes.is_integer(dtype):
            array[-1] = dtypes.integer_range(dtype)[1]
    value = Value(TensorType(dtype, (4, 1)), "c", Constant.of(array.reshape(4, 1)))
    printed = graph_text(Graph((), (value,), ()))
    again = parse(printed)
    assert graph_text(again) == printed
    found = again.outputs[0].constant.array
    assert [str(v) for v in found.flat] == [str(v) for v in array]
    assert again.outputs[0].constant.dtype == dtype


def test_special_floats_are_kept():
    array = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    printed = graph_text(Graph((), (Value(TensorType("float32", (5,)), "c", Constant.of(array)),), ()))
    again = parse(printed).outputs[0].constant.array
    assert again.view(np.int32).tolist() == array.view(np.int32).tolist()


def test_empty_and_scalar_constants():
    text = """graph() {
  %a = constant int64[0] ()
  %b = constant float32[] (1.5)
  %c = constant bool[1000000, 1000000] splat true
  return %a, %b, %c
}"""
    graph = parse(text)
    assert graph_text(graph) == text
    assert graph.outputs[0].constant.array.shape == (0,)
    assert graph.outputs[2].constant.splat is not None


def large():
    array = np.arange(200, dtype=np.float32).reshape(2, 100)
    return array, Graph((), (Value(TensorType("float32", (2, 100)), "w", Constant.of(array)),), ())


def test_large_constants_print_a_hash_of_their_data():
    array, graph = large()
    printed = graph_text(graph)
    assert len(printed) < 100
    assert graph_text(parse(printed, {"w": array})) == printed
    assert graph_text(parse(printed, {"w": array + 1})) != printed


def test_large_constants_need_their_data():
    array, graph = large()
    for constants in (None, {}, {"w": array[:1]}, {"w": array.astype(np.float64)}):
        with pytest.raises(TextError, match="data for %w must be given"):
            parse(graph_text(graph), constants)


def test_printing_does_not_make_large_lazy_data():
    def make():
        raise AssertionError("made")

    value = Value(TensorType("float32", (1024, 1024)), "w", Constant("float32", (1024, 1024), make))
    printed = graph_text(Graph((), (value,), ()))
    assert "constant float32[1024, 1024] #data" in printed
    again = parse(printed, {"w": np.zeros((1024, 1024), np.float32)})
    assert graph_text(again) == printed


def test_states_are_said_where_their_next_values_are_returned():
    text = """graph(%x: float32[2], %h: float32[2]) {
      %0 = map(%x, %h) { add($0, $1) } : float32[2]
      return %x, %0 next %h
    }"""
    graph = parse(text)
    assert graph.states == ((1, 1),)
    assert "return %x, %0 next %h" in graph_text(graph)
    assert parse(graph_text(graph)).states == graph.states


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1: graph expected"),
        ("graph (", "expected"),
        ("graph() {", "op expected"),
        ("graph() { return } more", "follows the graph"),
        ("graph(%x: float33[2]) { return }", "float33 is no element type"),
        ("graph(%x: float32[2 +]) { return }", "is not a dimension"),
        ("graph() {\n  %y = frobnicate()\n  return %y }", "line 2: frobnicate is no op"),
        ("graph() {\n\n  return %y\n}", "line 3: %y is not defined"),
        ("graph(%x: float32[2]) { %y = map(%x) { neg($0) } axis=1 return %y }", "no field axis"),
        ("graph(%x: float32[2]) { %y = map(%x) return %y }", "body"),
        ("graph(%x: float32[2]) { %x = map(%x) { neg($0) } return %x }", "has a meaning already"),
        ("graph(%x: float32[2]) { %y, %z = map(%x) { neg($0) } return %y }", "map has 1 outputs"),
        ("graph(%x: float32[2]) { %y = reshape(%x) shape=(3) return %y }", "cannot be reshaped"),
        (
            "graph(%x: float32[2], %y: int8[2]) { %z = map(%x, %y) { add($0, $1) } return %z }",
            "add does not take",
        ),
        ("graph(%x: int64[2] = (n)) { return }", "does not have 1 elements"),
        ("graph() { %c = constant float32[n] splat 1.0 return %c }", "no type of a constant"),
        ("graph() { %c = constant float32[2] (1.0, x) return %c }", "could not convert"),
        ("graph(%x: float32[2]) { %y = map(%x) { neg($0) } return %y next %y }", "an input of the graph"),
        ("graph(%x: float32[2]) { return %x next %z }", "%z is not defined"),
    ],
)
def test_what_is_no_graph_is_refused(text, reason):
    with pytest.raises(TextError, match=reason):
        parse(text)


def test_an_invalid_graph_is_printed_all_the_same():
    inner = Value(TensorType("float32", (2,)), "lost")
    node = make_node(ops.Map(-x), [inner])
    assert "map(%lost)" in graph_text(Graph((), node.outputs, (node,)))
    assert isinstance(node, Node)
