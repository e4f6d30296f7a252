"""Loops whose turns give what they carry another rank."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest

from onnxc.diagnostics import ModelErrors
from onnxc.frontend import importer
from onnxc.frontend.importer import import_model
from onnxc.ir import ops
from onnxc.ir.graph import walk
from onnxc.ir.interpret import run_graph

# What a turn does with x, of one axis more each time.
GROWING = "first = Constant <value = int64[1] {0}> () y = Unsqueeze (x, first)"

# As torch decomposes as_strided: places in memory, an axis more in each turn, from the last to the first.
STRIDED = """g (float[N, 4] x) => (float[] y, int64[] places) {
    rank = Constant <value = int64 {3}> () ranks = Constant <value = int64[1] {3}> ()
    zero = Constant <value = int64 {0}> () one = Constant <value = int64 {1}> ()
    flat = Constant <value = int64[1] {-1}> () item = Constant <value = float[1] {1}> ()
    strides = Constant <value = int64[3] {4, 2, 1}> () rest = Constant <value = int64[2] {2, 2}> ()
    n = Shape <start = 0, end = 1> (x) size = Concat <axis = 0> (n, rest) none = SequenceEmpty ()
    ones, places = Loop (rank, , none, zero) <body = body (int64 i, bool c, seq(float[1]) s, int64[] p)
        => (bool d, seq(float[1]) t, int64[] q) {
        d = Identity (c) left = Sub (rank, i) at = Sub (left, one) place = Reshape (at, flat)
        own = Gather (size, place) after = Slice (size, place, ranks) stride = Gather (strides, place)
        wide = Expand (p, after) count = Squeeze (own) steps = Range (zero, count, one)
        far = Mul (steps, stride) begins = Equal (i, zero)
        shape = If (begins) <then_branch = yes () => (int64[1] a) { a = Identity (own) },
            else_branch = no () => (int64[K] b) {
                behind = ConcatFromSequence <axis = 0> (s) given = Cast <to = 1> (own)
                whole = Concat <axis = 0> (given, behind) b = Cast <to = 7> (whole) }>
        column = Reshape (far, shape) q = Add (wide, column) t = SequenceInsert (s, item) }>
    line = Reshape (x, flat) y = Gather (line, places) }"""


def loop_of(body, count="int64 {3}", results="y", outputs="float[] y", declared="float[] y"):
    """A Loop that carries x; what the body gives as d says whether it goes on."""
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N] v, bool w) => ({outputs}) {{ n = Constant <value = {count}> ()
            {results} = Loop (n, , v) <body = b (int64 i, bool c, float[] x) => (bool d, {declared}) {{
                {body} }}> }}""")


def loops(graph):
    return sum(isinstance(node.op, ops.Loop) for node in walk(graph))


def agree(model, graph, *feeds):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    named = dict(zip((i.name for i in model.graph.input), feeds, strict=True))
    wanted = session.run(None, {i.name: named[i.name] for i in session.get_inputs()})
    for found, expected in zip(run_graph(graph, feeds), wanted, strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_places_that_gain_an_axis_in_each_turn_are_known_in_rank():
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {STRIDED}')
    graph = import_model(model).graph
    assert not any(isinstance(node.op, (ops.If, ops.Loop)) for node in walk(graph))
    for n in (1, 3):
        agree(model, graph, np.arange(4 * n, dtype=np.float32).reshape(n, 4))


COLLECTED = {
    "its turns": (f"d = Identity (c) {GROWING} t = Identity (i)", 3),
    "those before the condition ends it": (
        f"two = Constant <value = int64 {{1}}> () d = Less (i, two) {GROWING} t = Identity (i)",
        2,
    ),
    "inner loops": (
        f"""d = Identity (c) {GROWING} two = Constant <value = int64 {{2}}> () t = Loop (two, , i) <body = e
            (int64 j, bool f, int64 k) => (bool h, int64 l) {{ h = Identity (f) l = Add (k, j) }}>""",
        3,
    ),
}


@pytest.mark.parametrize("name", COLLECTED)
def test_turns_that_change_a_rank_collect_as_a_loop_does(name):
    body, turns = COLLECTED[name]
    model = loop_of(body, results="y, all", outputs="float[] y, int64[T] all", declared="float[] y, int64 t")
    graph = import_model(model).graph
    assert loops(graph) == (turns if name == "inner loops" else 0)
    assert graph.outputs[0].rank == 1 + turns
    agree(model, graph, np.arange(2, dtype=np.float32), np.array(True))


STAYING = {
    "whose ranks stay": ("d = Identity (c) y = Neg (x)", "int64 {3}"),
    "that only the run ends": (f"d = Identity (w) {GROWING}", "int64 {3}"),
    "of more turns than a tensor has axes": ("d = Identity (c) y = ReduceSum (x)", "int64 {99}"),
}


@pytest.mark.parametrize("name", STAYING)
def test_other_loops_stay_what_they_are(name):
    model = loop_of(*STAYING[name])
    graph = import_model(model).graph
    assert loops(graph) == 1
    agree(model, graph, np.arange(2, dtype=np.float32), np.array(True))


def test_bodies_of_many_nodes_stay_in_their_loop(monkeypatch):
    monkeypatch.setattr(importer, "MOST_REPEATED", 8)  # three turns of three nodes are nine
    assert loops(import_model(loop_of(f"d = Identity (c) {GROWING}")).graph) == 1


def test_what_collects_another_rank_in_each_turn_is_refused():
    model = loop_of(
        f"d = Identity (c) {GROWING} t = Neg (y)",
        results="y, all",
        outputs="float[] y, float[] all",
        declared="float[] y, float[] t",
    )
    with pytest.raises(ModelErrors, match=r"collects float32\[.*\] in one turn and float32\[.*\] in another"):
        import_model(model)
