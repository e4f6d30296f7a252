"""Inputs without shapes: how many cases of ranks are imported for a node, and what each gives."""

import math

import numpy as np
import onnx.parser
import onnx.reference
import pytest
from onnx import helper

import onnxc
from onnxc.errors import RunError
from onnxc.frontend.importer import import_model
from onnxc.frontend.operators import RULES
from onnxc.frontend.rules import Rank
from onnxc.ir import ops
from onnxc.ir.graph import walk
from onnxc.ir.interpret import InterpretError, run_graph
from onnxc.options import Options


def unranked(op, inputs, opset=21, outputs=1, **attributes):
    """A model of one node whose inputs and outputs have no shapes."""

    def port(name, dtype):
        value = onnx.ValueInfoProto(name=name)
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return value

    names, results = [f"x{k}" for k in range(len(inputs))], [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    ports = [port(name, x.dtype) for name, x in zip(names, inputs)]
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=name) for name in results])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def floats(*shape):
    return (np.arange(math.prod(shape), dtype=np.float32) % 7 - 2.5).reshape(shape) / 4


def bytes_(*shape):
    return (np.arange(math.prod(shape)) % 11).astype(np.uint8).reshape(shape)


def int64(*numbers):
    return np.array(numbers, np.int64)


def cases(graph):
    return sum(isinstance(node.op, ops.If) for node in walk(graph))


SCALE, ZERO = np.float32(0.377), np.uint8(3)

# name: (operator, opset, attributes, outputs, how many conditions there are at most, inputs of several runs)
NODES = {
    "recurrence": (
        *("GRU", 21, {"hidden_size": 5}, 2, 0),
        [[floats(2, 3, 4), floats(1, 15, 4), floats(1, 15, 5), floats(1, 30)]],
    ),
    "product and what is added": (
        *("Gemm", 21, {}, 1, 0),
        [[floats(3, 4), floats(4, 5), c] for c in (floats(5), floats(3, 1), floats())],
    ),
    "statistics of channels": (
        *("BatchNormalization", 21, {}, 1, 6),
        [[floats(*s), *[floats(3)] * 3, floats(3) ** 2] for s in ((2, 3), (2, 3, 4), (2, 3, 4, 2))],
    ),
    "parameters of rows": (
        *("LayerNormalization", 21, {}, 1, 6),
        [
            [floats(*s), floats(4), bias]
            for s, bias in (((4,), floats(4)), ((3, 4), floats(3, 4)), ((2, 3, 4), floats(4)))
        ],
    ),
    "three that broadcast": (
        *("Where", 21, {}, 1, 6),
        [
            [floats(*c) > 0, floats(*x), floats(*y)]
            for c, x, y in (((), (), ()), ((3, 1), (4,), (2, 3, 4)), ((2, 3, 4), (), (1,)), ((1,), (5,), ()))
        ],
    ),
    "many that broadcast": (
        *("Sum", 21, {}, 1, 6),
        [[floats(3, 4), floats(4), floats(3, 1), floats(1)], [floats(), floats(), floats(), floats()]],
    ),
    "updates of places": (
        *("ScatterND", 21, {}, 1, 150),
        [
            [floats(5, 4), int64([1], [2]), floats(2, 4)],
            [floats(5, 4), int64([1, 3], [2, 0]), floats(2)],
            [floats(5), int64([[1], [2]]), floats(1, 2)],
        ],
    ),
    "places that are as many": (
        *("Slice", 21, {}, 1, 6),
        [
            [floats(5, 4), int64(1), int64(3), int64(0), int64(1)],
            [floats(5, 4), int64(3, -1), int64(0, 0), int64(0, 1), int64(-1, -2)],
            [floats(2, 5, 4), int64(1), int64(9), int64(-1), int64(2)],
        ],
    ),
    "pads of the axes that are named": (
        *("Pad", 21, {}, 1, 6),
        [
            [floats(5, 4), int64(1, 2), SCALE, int64(1)],
            [floats(5, 4), int64(1, 0, 2, 3), SCALE, int64(0, -1)],
            [floats(5), int64(), SCALE, int64()],
        ],
    ),
    "parts of one rank": (
        *("Concat", 21, {"axis": -1}, 1, 6),
        [[floats(*s, 2), floats(*s, 3), floats(*s, 1)] for s in ((), (2,), (2, 3))],
    ),
    "kernels": (
        *("Conv", 21, {}, 1, 6),
        [[floats(1, 3, 8), floats(4, 3, 3), floats(4)], [floats(1, 3, 8, 8), floats(4, 3, 3, 3), floats(4)]],
    ),
    "quantised kernels": (
        *("QLinearConv", 21, {}, 1, 6),
        [
            [bytes_(1, 3, 8, 8), SCALE, ZERO, bytes_(4, 3, 3, 3), scale, ZERO, SCALE, ZERO]
            for scale in (SCALE, floats(4) ** 2 + 1)
        ],
    ),
    "quantised matrices": (
        *("QLinearMatMul", 21, {}, 1, 48),
        [[bytes_(*a), SCALE, ZERO, bytes_(4, 5), SCALE, ZERO, SCALE, ZERO] for a in ((3, 4), (2, 3, 4))],
    ),
    "one size of many": ("TopK", 21, {}, 2, 6, [[floats(*s), int64(2)] for s in ((4,), (3, 4))]),
    "a number": (
        "Clip",
        21,
        {},
        1,
        6,
        [[floats(*s), np.float32(-0.25), np.float32(0.25)] for s in ((), (3, 4))],
    ),
    "what its equation names": (
        "Einsum",
        21,
        {"equation": "ij, jk->ik"},
        1,
        0,
        [[floats(3, 4), floats(4, 5)]],
    ),
    "what its equation leaves out": (
        *("Einsum", 21, {"equation": "...j,jk->...k"}, 1, 6),
        [[floats(3, 4), floats(4, 5)], [floats(2, 3, 4), floats(4, 5)]],
    ),
    "an element type": ("CastLike", 21, {}, 1, 6, [[floats(*s), bytes_(2, 3)] for s in ((), (3, 4))]),
}


@pytest.mark.parametrize("name", NODES)
def test_what_an_operator_says_of_ranks_needs_few_cases(name):
    op, opset, attributes, outputs, most, runs = NODES[name]
    model = unranked(op, runs[0], opset, outputs, **attributes)
    graph = import_model(model).graph
    assert cases(graph) <= most
    for inputs in runs:
        wanted = onnx.reference.ReferenceEvaluator(model).run(
            None, {f"x{k}": x for k, x in enumerate(inputs)}
        )
        for found, expected in zip(run_graph(graph, inputs), wanted, strict=True):
            assert found.shape == np.shape(expected)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def steps(*shape):
    return np.abs(floats(*shape)) + np.float32(0.125)


# What onnx.reference does not compute.
# name: (domain, operator, how many conditions there are at most, inputs of several runs)
OTHERS = {
    "sum of bytes": (
        *("com.microsoft", "QLinearAdd", 6),
        [[bytes_(3, 4), SCALE, ZERO, bytes_(2, 1, 4), SCALE, ZERO, SCALE, ZERO]],
    ),
    "zero points of rows and columns": (
        *("", "MatMulInteger", 36),
        [
            [bytes_(*a), bytes_(*b), bytes_(*rows), bytes_(*columns)]
            for a, b, rows, columns in (
                ((3, 4), (4, 5), (3,), (5,)),
                ((3, 4), (4, 5), (), (1,)),
                ((3, 4), (2, 4, 5), (3,), (2, 1, 5)),
                ((2, 3, 4), (4, 5), (2, 3, 1), (5,)),
                ((2, 3, 4), (2, 4, 5), (3,), (5,)),
                ((4,), (4, 5), (), (5,)),
                ((4,), (4, 5), (1,), (1, 5)),
                ((2, 3, 4), (4,), (2, 3, 1), ()),
            )
        ],
    ),
    "scales of rows and columns": (
        *("", "QLinearMatMul", 36),
        [
            [bytes_(*a), steps(*row), ZERO, bytes_(*b), steps(*column), bytes_(*column), steps(*y), ZERO]
            for a, b, row, column, y in (
                ((3, 4), (4, 5), (3,), (5,), ()),
                ((2, 3, 4), (2, 4, 5), (2, 3, 1), (2, 1, 5), (3,)),
                ((2, 3, 4), (4, 5), (), (5,), (1,)),
                ((4,), (4, 5), (), (5,), ()),
                ((4,), (2, 4, 5), (), (2, 1, 5), ()),
                ((2, 3, 4), (4,), (2, 3, 1), (), ()),
                ((4,), (4,), (), (1,), ()),
            )
        ],
    ),
    "scales of a product with numbers": (
        *("com.microsoft", "DynamicQuantizeMatMul", 36),
        [
            [floats(*a), bytes_(*b), steps(*columns), bytes_(*columns), floats(5)]
            for a, b, columns in (
                ((3, 4), (4, 5), (5,)),
                ((2, 3, 4), (2, 4, 5), (2, 1, 5)),
                ((4,), (4, 5), (1, 5)),
            )
        ],
    ),
    "scales of a product that is numbers": (
        *("com.microsoft", "MatMulIntegerToFloat", 36),
        [
            [bytes_(*a), bytes_(*b), SCALE, steps(*columns), ZERO, bytes_(*columns)]
            for a, b, columns in (((3, 4), (4, 5), (5,)), ((2, 3, 4), (2, 4, 5), (2, 1, 5)))
        ],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_ranks_that_an_operator_states_give_what_shapes_give(name):
    domain, op, most, runs = OTHERS[name]
    model = unranked(op, runs[0], domain=domain)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph = import_model(model).graph
    assert cases(graph) <= most
    for inputs in runs:
        shaped = import_model(model, Options(shapes={f"x{k}": x.shape for k, x in enumerate(inputs)})).graph
        (found,), (expected,) = run_graph(graph, inputs), run_graph(shaped, inputs)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_another_rank_than_an_operator_has_fails_the_run():
    graph = import_model(unranked("Gemm", [floats(3, 4), floats(4, 5), floats(5)])).graph
    with pytest.raises(InterpretError):
        run_graph(graph, [floats(2, 3, 4), floats(4, 5), floats(5)])
    with pytest.raises(InterpretError):
        run_graph(graph, [floats(3, 4), floats(4, 5), floats(1, 3, 5)])


def test_one_of_several_ranks_needs_a_case_for_each_and_another_fails_the_run():
    model = unranked("DynamicTimeWarping", [floats(3, 4)], domain="com.microsoft")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    graph = import_model(model).graph
    assert cases(graph) == 2
    (found,), (expected,) = run_graph(graph, [floats(1, 3, 4)]), run_graph(graph, [floats(3, 4)])
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(InterpretError):
        run_graph(graph, [floats(1, 1, 3, 4)])


def test_conditions_of_any_rank_choose():
    graph = import_model(unranked("Compress", [floats(4, 3), np.ones(1, bool)], axis=0)).graph
    for condition in (np.array(True), np.array([False, True, True]), np.array([[True, False], [True, True]])):
        (found,) = run_graph(graph, [floats(4, 3), condition])
        np.testing.assert_array_equal(found, np.compress(condition.reshape(-1), floats(4, 3), 0))


def test_values_for_axes_that_are_not_as_many_fail_the_run():
    graph = import_model(unranked("Pad", [floats(5, 4), int64(), SCALE, int64()])).graph
    for pads, axes in ((int64(1, 2, 3), int64(1)), (int64(1, 2, 3, 4, 5, 6), int64(0, 1, 0))):
        with pytest.raises(InterpretError):
            run_graph(graph, [floats(5, 4), pads, SCALE, axes])


def test_an_operand_of_known_rank_leaves_fewer_cases_of_what_broadcasts_with_it(tmp_path):
    model = unranked("Where", [np.ones(1, bool), floats(1), floats(1)])
    options = {"shapes": {"x2": (None, None, 3, 4)}}
    assert cases(import_model(model, Options(**options)).graph) == 2
    library = onnxc.load(onnxc.compile(model, tmp_path / "where.so", **options))
    for condition, x in (((), (4,)), ((3, 1), ()), ((2, 1, 3, 4), (5, 1, 1, 1, 1))):
        feeds = {"x0": floats(*condition) > 0, "x1": floats(*x), "x2": floats(2, 1, 3, 4)}
        (y,) = library.run(None, feeds)
        np.testing.assert_array_equal(y, np.where(*feeds.values()))
    with pytest.raises(RunError, match=r"rank or size 6, .*: a tensor of 4 or 5 axes is needed"):
        library.run(None, {**feeds, "x1": floats(1, 1, 1, 1, 1, 4)})


def test_what_a_case_is_refused_for_is_what_its_run_says(tmp_path):
    model = unranked("LogSoftmax", [floats(2, 3)], axis=1)
    library = onnxc.load(onnxc.compile(model, tmp_path / "softmax.so"))
    with pytest.raises(RunError, match=r"Softmax\): .* rank or size 1, .*: axis 1 is outside a tensor of 1"):
        library.run(None, {"x0": floats(3)})


def test_ranks_are_stated_of_inputs():
    for rules in RULES.values():
        for rule in rules:
            inputs = [p.name for p in rule.signature.parameters.values() if p.kind is not p.KEYWORD_ONLY][1:]
            assert {name for name, _ in rule.ranks} <= {*inputs, "*"}


def test_a_rank_is_a_number_or_one_of_several_or_a_letter_or_at_most_that():
    stated = (3, "2 or 3", "n", "<=1", "<=n", "<=n rows")
    ranks = [
        Rank(3, False),
        Rank((2, 3), False),
        Rank("n", False),
        Rank(1, True),
        Rank("n", True),
        Rank("n", True, True),
    ]
    assert [Rank.of(s) for s in stated] == ranks
