"""Sequences of tensors whose rank only the run knows."""

import numpy as np
import onnx.parser
import onnx.reference
import pytest

from onnxc.frontend.importer import import_model
from onnxc.ir import ops
from onnxc.ir.graph import walk
from onnxc.ir.interpret import run_graph

OPEN, POSITION, KNOWN = (
    "float[] a, float[] b",
    "float[N] a, float[2] b, int64[] p",
    "float[N, M] a, float[] b",
)
PAIR = "s = SequenceConstruct (a, b)"

# name: (inputs, nodes, how many questions there are of ranks, each of as many cases as there are ranks)
JOINED = {
    "along an axis": (OPEN, f"{PAIR} y = ConcatFromSequence <axis = 0> (s)", 1),
    "along the last axis": (OPEN, f"{PAIR} y = ConcatFromSequence <axis = -1> (s)", 1),
    "along a new axis": (OPEN, f"{PAIR} y = ConcatFromSequence <axis = -1, new_axis = 1> (s)", 1),
    "as they were inserted": (
        OPEN,
        "e = SequenceEmpty () f = SequenceInsert (e, a) s = SequenceInsert (f, b) "
        "y = ConcatFromSequence <axis = 0> (s)",
        1,
    ),
    "one of a known rank": (KNOWN, f"{PAIR} y = ConcatFromSequence <axis = 0> (s)", 0),
    "as a body makes them": (
        OPEN,
        f"""{PAIR} t = SequenceMap (s) <body = m (float[] e) => (float[] n) {{ n = Neg (e) }}>
        y = ConcatFromSequence <axis = 0> (t)""",
        3,
    ),
}


def imported(inputs, nodes):
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float[] y) {{ {nodes} }}'
    )
    return model, import_model(model).graph


def conditions(graph):
    return sum(isinstance(node.op, ops.If) for node in walk(graph))


@pytest.mark.parametrize("name", JOINED)
def test_elements_without_ranks_are_joined_and_their_rank_is_one_question(name):
    inputs, nodes, questions = JOINED[name]
    model, graph = imported(inputs, nodes)
    assert conditions(graph) <= 6 * questions
    for shape in ((2, 3), *([(4,), (1, 2, 3)] if questions else [])):
        a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        (expected,) = onnx.reference.ReferenceEvaluator(model).run(None, {"a": a, "b": a + 1})
        np.testing.assert_array_equal(run_graph(graph, [a, a + 1])[0], expected)


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        (f"{PAIR} y = SequenceAt (s, p)", lambda a, b: b),
        (f"{PAIR} t = SequenceErase (s, p) y = ConcatFromSequence <axis = 0> (t)", lambda a, b: a),
        (
            f"{PAIR} t = SequenceInsert (s, b, p) y = ConcatFromSequence <axis = 0> (t)",
            lambda a, b: np.concatenate([a, b, b]),
        ),
    ],
    ids=["SequenceAt", "SequenceErase", "SequenceInsert"],
)
def test_a_position_has_one_element_also_where_its_rank_is_not_declared(nodes, wanted):
    graph = imported(POSITION, nodes)[1]
    assert conditions(graph) == 0
    a, b = np.float32([1, 2, 3]), np.float32([4, 5])
    for position in (np.int64(1), np.int64([1])):
        np.testing.assert_array_equal(run_graph(graph, [a, b, position])[0], wanted(a, b))


SPLIT = "g (float[4, 2] x{}) => (seq(float[n, 2]) y){} {{ y = SplitToSequence (x, s) }}"


@pytest.mark.parametrize("shape, split", [("1, 2", [[1, 3]]), ("2, 2", [[1, 0], [2, 1]]), ("2", [1, 3])])
def test_a_split_has_as_many_parts_as_elements(shape, split):
    x, sizes = np.arange(8, dtype=np.float32).reshape(4, 2), np.array(split)
    numbers = ", ".join(map(str, sizes.ravel()))
    for given, constant in ((f", int64[{shape}] s", ""), ("", f" <int64[{shape}] s = {{{numbers}}}>")):
        text = f'<ir_version: 10, opset_import: ["" : 21]> {SPLIT.format(given, constant)}'
        graph = import_model(onnx.parser.parse_model(text)).graph
        (parts,) = run_graph(graph, [x, sizes][: len(graph.inputs)])
        assert [len(part) for part in parts] == sizes.ravel().tolist()
        np.testing.assert_array_equal(np.concatenate(parts), x)
