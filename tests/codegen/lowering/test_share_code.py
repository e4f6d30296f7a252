"""Nodes that differ in numbers alone have one code, and results are what they were."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import numpy_helper
from support import harness
from support.harness import TARGETS
from support.small_models import Weights, parsed

from onnxc.codegen.lowering.lower import lower
from onnxc.codegen.lowering.select_kernels import select_kernels
from onnxc.codegen.lowering.share_code import share_code
from onnxc.codegen.text.scalar import free_numbers
from onnxc.driver import compile_model
from onnxc.frontend.importer import import_model
from onnxc.ir import expr, interpret
from onnxc.ir.expr import input_
from onnxc.ir.graph import Graph, TensorType, Value, constant_value, make_node, walk
from onnxc.ir.ops import Contract, Conv
from onnxc.loading.loader import load
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS as PROCESSORS
from onnxc.target import find_target

TARGET = find_target()
SUM = input_(0, "float32")


PRODUCT = Contract("mk", "kn", "mn", "float32", None)


def layers(*bodies, op=PRODUCT, shape=(33, 32), weights=(32, 32)):
    """Products of one matrix or image, each with a body of its own."""
    rng = np.random.default_rng(0)
    x = Value(TensorType("float32", shape), "x")
    nodes = []
    for body in bodies:
        w = constant_value(rng.standard_normal(weights).astype(np.float32))
        nodes.append(make_node(replace(op, epilogue=body), [x, w]))
    return Graph((x,), tuple(node.outputs[0] for node in nodes), tuple(nodes))


def bodies(graph, target=TARGET):
    """What the products have as bodies, and as further operands, after sharing."""
    shared = share_code(select_kernels(graph, target), target).graph
    nodes = [node for node in walk(shared) if isinstance(node.op, (Conv, Contract))]
    return [(str(n.op.epilogue), [v.constant.splat for v in n.inputs[2:]]) for n in nodes]


def texts(graph, target=TARGET):
    codes = lower(graph, target).codes
    return {s.text for n, c in codes.items() if isinstance(n.op, (Conv, Contract)) for s in c.steps}


def test_numbers_that_differ_become_operands():
    graph = layers(SUM * 0.25, SUM * 0.5)
    assert bodies(graph) == [("mul($0, $1)", [0.25]), ("mul($0, $1)", [0.5])]
    assert len(texts(graph)) == 1


def test_numbers_in_which_all_agree_stay():
    assert bodies(layers(SUM * 0.25 + 3, SUM * 0.5 + 3)) == [
        ("add(mul($0, $1), 3.0)", [0.25]),
        ("add(mul($0, $1), 3.0)", [0.5]),
    ]


def test_numbers_that_differ_alike_are_one_operand():
    found = bodies(layers(SUM * 0.25 + 0.25, SUM * 0.5 + 0.5))
    assert found == [("add(mul($0, $1), $1)", [0.25]), ("add(mul($0, $1), $1)", [0.5])]


def test_only_code_that_rounds_tells_numbers_apart_by_how_large_they_are():
    def rounded(scale):
        return expr.round_(SUM * scale).clip(0, 255).cast("uint8")

    assert len(texts(layers(rounded(0.4), rounded(0.3)))) == 1
    assert len(texts(layers(rounded(0.4), rounded(0.8)))) == 2
    assert len(texts(layers(SUM * 0.4, SUM * 0.8))) == 1


@pytest.mark.parametrize("same", [layers(SUM * 2, SUM * 2), layers(SUM * 2), layers(SUM * 2, SUM - 3)])
def test_what_has_nothing_to_share_is_left_alone(same):
    chosen = select_kernels(same, TARGET)
    assert share_code(chosen, TARGET).graph is chosen


@pytest.mark.parametrize(
    "body",
    [
        SUM / 3.0,
        expr.round_(SUM / 0.3).clip(0, 255).cast("uint8"),
        expr.where(SUM < -87.0, 0, expr.exp(SUM)),
        1 / (1 + expr.exp(-SUM)),
        SUM ** expr.const(2.0, "float32"),
        SUM * float("nan"),
        SUM.cast("int32") + 3,
    ],
    ids=str,
)
def test_numbers_of_which_more_is_made_are_not_free(body):
    assert free_numbers(body, PROCESSORS["icelake-server"]) == []


def test_numbers_of_which_nothing_more_is_made_are_free():
    body = expr.round_((SUM * 3.0).clip(-1, 5) / 0.3).clip(0, 255).cast("uint8")
    free = sorted(node.args[k].value for node, k in free_numbers(body, PROCESSORS["icelake-server"]))
    assert free == [-1, 3, 5]


@TARGETS
@pytest.mark.parametrize(
    "kind",
    [
        dict(),
        dict(
            op=Conv((1, 1), (1, 1, 1, 1), (1, 1), epilogue=None), shape=(1, 32, 9, 9), weights=(32, 32, 3, 3)
        ),
        dict(
            op=Conv((1, 1), (1, 1, 1, 1), (1, 1), groups=32, epilogue=None),
            shape=(1, 32, 9, 9),
            weights=(32, 1, 3, 3),
        ),
    ],
    ids=["product", "convolution", "depthwise"],
)
def test_results_are_as_they_were(kind, target):
    """NaN among them: bounds that are operands are numbers as they were."""
    graph = layers((SUM * 0.25).clip(-1, 2) + 0.1, (SUM * 0.5).clip(-3, 4) + 0.2, **kind)
    before = select_kernels(graph, target)
    after = share_code(before, target)
    assert len(after.originals) == 2
    rng = np.random.default_rng(1)
    for new, old in after.originals.items():
        x = rng.standard_normal([int(s) for s in old.inputs[0].shape]).astype(np.float32)
        x.ravel()[5] = np.nan
        arrays = [x, *(v.constant.array for v in new.inputs[1:])]
        expected = harness.run_choice(old, old.choice, arrays[:2], target)
        for (one, _), (other, _) in zip(harness.run_choice(new, new.choice, arrays, target), expected):
            assert np.array_equal(one, other, equal_nan=True)


def test_quantised_layers_of_a_library_share_code_and_are_exact(tmp_path):
    rng, weights = np.random.default_rng(2), Weights(3)
    lines, last = [], "x"
    for k, scale in enumerate((0.11, 0.013, 0.7)):
        stored = rng.integers(-99, 99, (32, 32)).astype(np.int8)
        weights.tensors += [
            numpy_helper.from_array(a, f"{n}{k}") for n, a in (("w", stored), ("s", np.float32(scale)))
        ]
        lines.append(
            f"q{k}, r{k}, z{k} = DynamicQuantizeLinear ({last}) p{k} = MatMulInteger (q{k}, w{k}, z{k}) "
            f"f{k} = Cast <to = 1> (p{k}) t{k} = Mul (r{k}, s{k}) y{k} = Mul (f{k}, t{k})"
        )
        last = f"y{k}"
    model = parsed(f"g (float[9, 32] x) => (float[9, 32] {last}) {{ {' '.join(lines)} }}", weights)
    graph = optimise(import_model(model).graph, TARGET)
    assert len(texts(graph)) == 1
    compile_model(model, tmp_path / "m.so")
    x = rng.standard_normal((9, 32)).astype(np.float32)
    (expected,) = interpret.run_graph(optimise(import_model(model).graph, TARGET), [x])
    (got,) = load(tmp_path / "m.so").run(None, {"x": x})
    np.testing.assert_array_equal(got, expected)
