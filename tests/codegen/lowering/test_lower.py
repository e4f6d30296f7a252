"""Lowering: equal nodes have one code, which is the code that each would have by itself."""

from dataclasses import replace

import pytest
from support import small_models
from support.small_models import Weights, parsed

from onnxc.codegen import costs
from onnxc.codegen.lowering.lower import lower
from onnxc.frontend.importer import import_model
from onnxc.ir.ops import Fused
from onnxc.passes.pipeline import optimise
from onnxc.target import find_target

TARGET = find_target()


def lowered(model):
    return lower(optimise(import_model(model).graph, TARGET), TARGET)


@pytest.mark.parametrize("name", ["images", "text", "fragile"])
def test_a_node_has_the_code_that_it_would_have_by_itself(name):
    graph = optimise(import_model(getattr(small_models, name)()).graph, TARGET)
    target = replace(
        TARGET, run_bytes=costs.touched(graph)
    )  # parts are cut by what a node takes in its graph
    for node, code in lower(graph, TARGET).codes.items():
        alone = node.choice.kernel.emit(node, node.choice, target)
        assert replace(code, steps=alone.steps) == alone
        assert [step.text for step in code.steps] == [step.text for step in alone.steps]


def products(second):
    """The codes of two products of one shape, the first with constant weights."""
    weights = Weights(0)
    weights.add("v", 33, 33)
    weights.add("w", 33, 33)
    text = f"""g (float[7, 33] x, float[33, 33] z) => (float[7, 33] y)
        {{ a = MatMul (x, v) y = MatMul (a, {second}) }}"""
    return lowered(parsed(text, weights)).codes.values()


def test_equal_nodes_are_emitted_once():
    first, second = products("w")
    assert first is second


def test_equal_groups_are_emitted_once():
    weights = Weights(0)
    weights.add("w", 8, 8)
    text = """g (float[8, 8] x) => (float[8, 8] y)
        { a = Softmax (x) b = MatMul (a, w) c = LogSoftmax (b) d = MatMul (c, w) y = Softmax (d) }"""
    codes = lowered(parsed(text, weights)).codes.items()
    first, other, second = (code for node, code in codes if isinstance(node.op, Fused))
    assert first.steps[0].text is second.steps[0].text
    assert first.steps[0].text != other.steps[0].text


def test_a_product_of_what_is_constant_is_none_of_what_is_not():
    first, second = products("z")
    assert first is not second
