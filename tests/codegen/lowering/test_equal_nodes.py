"""Nodes between which kernels see no difference: what is the same to them, and that they are asked once."""

import numpy as np

from onnxc.codegen.lowering import select_kernels
from onnxc.codegen.lowering.equal_nodes import form, itself, seen
from onnxc.ir import expr
from onnxc.ir.graph import Constant, Graph, TensorType, Value, make_node
from onnxc.ir.ops import Contract, Gather, Map, TreeEnsemble
from onnxc.target import find_target

MATRIX = TensorType("float32", (8, 8))
PRODUCT = Contract("mk", "kn", "mn", "float32", None)


def weights(seed):
    return Constant.of(np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32))


def product(x, constant):
    return make_node(PRODUCT, [x, Value(MATRIX, "", constant)])


def test_names_and_producers_are_not_seen():
    w = weights(0)
    first = product(Value(MATRIX, "a"), w)
    assert seen(first, itself) == seen(product(first.outputs[0], w), itself)


def test_types_and_equal_operands_are():
    x, y = Value(MATRIX), Value(MATRIX)
    wide = Value(TensorType("float64", (8, 8)))
    several = [make_node(PRODUCT, pair) for pair in ((x, y), (x, x), (wide, y))]
    assert len({seen(node, itself) for node in several}) == 3


def test_of_weights_code_sees_the_form_and_who_chooses_which_they_are():
    x = Value(MATRIX)
    one, other = product(x, weights(0)), product(x, weights(1))
    assert seen(one, form) == seen(other, form)
    assert seen(one, itself) != seen(other, itself)


def test_one_number_is_known_by_its_value():
    x = Value(MATRIX)
    two, again, three = (
        make_node(
            PRODUCT, [x, Value(TensorType("float32", (8, 8)), "", Constant("float32", (8, 8), splat=n))]
        )
        for n in (2.0, 2.0, 3.0)
    )
    for of_constant in (form, itself):
        assert seen(two, of_constant) == seen(again, of_constant) != seen(three, of_constant)


def test_indices_are_known_by_their_values():
    """Which are never negative need no check, and others do."""
    x, at = Value(MATRIX), TensorType("int64", (2, 8))
    rows = [Constant.of(np.full((2, 8), n)) for n in (1, 1, -1)]
    one, again, negative = (make_node(Gather("elements"), [x, Value(at, "", c)]) for c in rows)
    assert seen(one, form) == seen(again, form) != seen(negative, form)


def test_indices_of_a_formula_are_known_by_how_it_repeats_them():
    """Code copies each row as often as index // 2 names it, and reads what indices any other formula has."""
    x, row = Value(MATRIX), expr.index(0)
    made = [make_node(Map(body, (16,)), []) for body in (row / 2, row / 2, row / 4, row % 8)]
    two, again, four, other = (make_node(Gather("axis", 0), [x, m.outputs[0]]) for m in made)
    assert seen(two, form) == seen(again, form)
    assert len({seen(node, form) for node in (two, four, other)}) == 3


def test_trees_are_known_by_all_that_they_are():
    """Code walks them as they are stored, and where no comparison sends NaN to the left asks for none."""

    def forest(missing):
        tables = [[0], [0.5], [~0], [~1], [missing], [0], [0], [[1.0], [2.0]]]
        types = ["int32", "float32", "int32", "int32", "bool", "int32", "int32", "float32"]
        constants = [Constant.of(np.array(t, d)) for t, d in zip(tables, types)]
        trees = [Value(TensorType(c.dtype, c.shape), "", c) for c in constants]
        return make_node(TreeEnsemble("sum", 1, 8, 1), [x, *trees])

    x = Value(MATRIX)
    assert seen(forest(True), form) == seen(forest(True), form) != seen(forest(False), form)


def test_kernels_are_asked_once_for_equal_nodes(monkeypatch):
    asked = []
    usual = select_kernels.choices_of

    def choices_of(kernel, node, target):
        asked.append((kernel, seen(node, itself)))
        return usual(kernel, node, target)

    monkeypatch.setattr(select_kernels, "choices_of", choices_of)
    x, w = Value(MATRIX), weights(0)
    nodes = [product(x, w)]
    for _ in range(3):
        nodes.append(product(nodes[-1].outputs[0], w))
    select_kernels.select_kernels(Graph((x,), nodes[-1].outputs, tuple(nodes)), find_target())
    assert asked and len(asked) == len(set(asked))
