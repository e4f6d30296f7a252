"""Sizes and axes that only the run tells fail it where they contradict each other or the specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from support import open_sizes
from support.one_node import model, reference

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import InterpretError, run_graph
from onnxc.passes.pipeline import optimise
from onnxc.target import TARGETS


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def texts(*values: str) -> np.ndarray:
    return np.array(values, object)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def opened(
    op: str,
    opset: int,
    inputs: Sequence[np.ndarray],
    attributes: Mapping[str, object],
    stored: Sequence[int] = (),
    outputs: int = 1,
) -> onnx.ModelProto:
    """The node, of whose results the first is read, and each size of its inputs a variable of its own."""
    proto = open_sizes.opened(model(op, opset, inputs, attributes, outputs=outputs))
    given = list(proto.graph.input)
    for k in stored:
        proto.graph.input.remove(given[k])
        proto.graph.initializer.append(onnx.numpy_helper.from_array(inputs[k], given[k].name))
    del proto.graph.output[1:]
    return proto


CASES = {  # the node, its attributes, which inputs are stored, how many outputs; what fits, and what does not
    "parts of which the first is read": (
        ("Split", 18, {}, [1], 2),
        [zeros(3), ints(1, 2)],
        [{0: zeros(2)}, {0: zeros(4)}],
    ),
    "parts of sizes that are data": (
        ("Split", 18, {}, [], 2),
        [zeros(3), ints(1, 2)],
        [{0: zeros(4)}, {1: ints(1, 1)}],
    ),
    "parts of rows without elements": (
        ("Split", 18, {}, [1], 2),
        [zeros(3, 0), ints(1, 2)],
        [{0: zeros(4, 0)}],
    ),
    "equal parts": (("Split", 13, {}, [], 2), [zeros(4)], [{0: zeros(5)}]),
    "a number of best values": (
        ("TopK", 11, {}, [1], 2),
        [zeros(2, 3), ints(3)],
        [{0: zeros(2, 2)}, {0: zeros(0, 2)}],
    ),
    "a shape": (
        ("Reshape", 14, {}, [], 1),
        [zeros(2, 3), ints(0, -1, 3)],
        [
            {1: ints(2, 3, 0)},
            {1: ints(2, 0, 0)},
            {0: zeros(1, 1), 1: ints(-1, 1, -1)},
            {0: zeros(0, 3), 1: ints(-1, 2, -1)},
            {0: zeros(0, 3)},
            {0: zeros(1, 0), 1: ints(3, 0, -1)},
            {0: zeros(2, 5)},
        ],
    ),
    "a shape in which 0 is a size": (
        ("Reshape", 14, {"allowzero": 1}, [], 1),
        [zeros(0, 3), ints(0, 5)],
        [{1: ints(-1, 0)}, {1: ints(0, -1)}, {0: zeros(2, 3)}],
    ),
    "pads of what has no axes": (("Pad", 13, {}, [], 1), [zeros(), ints()], [{1: ints(1, 2)}]),
    "an axis of size 1": (
        ("Squeeze", 13, {}, [1], 1),
        [zeros(1, 3), ints(0)],
        [{0: zeros(2, 3)}, {0: zeros(2, 0)}],
    ),
    "the only axis that sums go along": (
        ("CumSum", 14, {}, [], 1),
        [zeros(3), ints(-1)],
        [{1: ints(-3)}, {1: ints(1)}, {1: ints()}, {1: ints(0, 0)}],
    ),
    "the only axis that products go along": (
        ("CumProd", 26, {}, [], 1),
        [zeros(3), np.array(0)],
        [{1: np.array(-3)}, {1: np.array(1)}],
    ),
    "the only axis that is transformed": (
        ("DFT", 20, {}, [], 1),
        [zeros(4, 1), np.array(4), np.array(0)],
        [{2: np.array(1)}, {2: np.array(-3)}],
    ),
    "rows of texts": (
        ("StringNormalizer", 10, {}, [], 1),
        [texts("a", "b")[None]],
        [{0: texts("a", "b").reshape(2, 1)}],
    ),
    "matrices and the images that they are for": (
        ("AffineGrid", 20, {}, [], 1),
        [zeros(2, 2, 3), ints(2, 3, 4, 4)],
        [{1: ints(3, 3, 4, 4)}, {0: zeros(1, 2, 3)}, {0: zeros(2, 2, 4)}, {0: zeros(2, 3, 3)}],
    ),
    "an update of a cache": (
        ("TensorScatter", 24, {}, [], 1),
        [zeros(2, 3, 6, 4), zeros(2, 3, 2, 4), ints(0, 1)],
        [{1: zeros(2, 1, 2, 4)}, {1: zeros(2, 3, 2, 3)}, {1: zeros(1, 3, 2, 4)}, {0: zeros(3, 3, 6, 4)}],
    ),
    "turned heads and their positions": (
        ("RotaryEmbedding", 23, {}, [], 1),
        [zeros(2, 3, 4, 8), zeros(10, 4), zeros(10, 4), np.zeros((2, 4), np.int64)],
        [
            {0: zeros(1, 3, 4, 8)},
            {0: zeros(2, 3, 4, 9)},
            {3: np.zeros((3, 4), np.int64)},
            {3: np.zeros((2, 1), np.int64)},
            {1: zeros(12, 4)},
            {1: zeros(10, 1), 2: zeros(10, 1)},
        ],
    ),
    "turned heads and their angles": (
        ("RotaryEmbedding", 23, {"num_heads": 3}, [], 1),
        [zeros(2, 4, 24), zeros(2, 4, 4), zeros(2, 4, 4)],
        [
            {1: zeros(3, 4, 4), 2: zeros(3, 4, 4)},
            {1: zeros(2, 1, 4)},
            {0: zeros(2, 1, 24)},
            {0: zeros(1, 4, 24)},
        ],
    ),
    "values of hot elements": (
        ("OneHot", 11, {}, [1], 1),
        [ints(1, 2), np.array(4), zeros(2)],
        [{2: zeros(3)}, {2: zeros(0)}],
    ),
    "a kernel and its attribute": (
        ("Conv", 11, {"kernel_shape": [3, 3]}, [], 1),
        [zeros(1, 2, 6, 6), zeros(5, 2, 3, 3)],
        [{1: zeros(5, 2, 3, 2)}, {1: zeros(5, 2, 1, 3)}],
    ),
    "a transposed kernel and its attribute": (
        ("ConvTranspose", 11, {"kernel_shape": [3, 3]}, [], 1),
        [zeros(1, 2, 6, 6), zeros(2, 5, 3, 3)],
        [{1: zeros(2, 5, 3, 2)}],
    ),
    "scales of blocks to quantise": (
        ("QuantizeLinear", 21, {"axis": 1, "block_size": 2}, [], 1),
        [zeros(3, 6), zeros(3, 3) + 1, np.zeros((3, 3), np.uint8)],
        [
            {1: zeros(3, 4) + 1, 2: np.zeros((3, 4), np.uint8)},
            {1: zeros(1, 3) + 1},
            {2: np.zeros((3, 4), np.uint8)},
        ],
    ),
    "scales of quantised blocks": (
        ("DequantizeLinear", 21, {"axis": 1, "block_size": 2}, [], 1),
        [np.zeros((3, 6), np.uint8), zeros(3, 3)],
        [{1: zeros(3, 4)}, {1: zeros(1, 3)}],
    ),
    "a mask of keys": (
        ("Attention", 23, {}, [], 1),
        [zeros(1, 2, 3, 4), zeros(1, 2, 5, 4), zeros(1, 2, 5, 4), zeros(3, 5)],
        [{3: zeros(3, 4)}, {3: zeros(3, 6)}],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sizes_that_contradict_each_other_fail_the_run(name):
    (op, opset, attributes, stored, outputs), good, wrong = CASES[name]
    graph = import_model(opened(op, opset, good, attributes, stored, outputs)).graph
    graph = optimise(graph, TARGETS["x86-64-v3"])

    def run(inputs: Sequence[np.ndarray]) -> None:
        run_graph(graph, [x for k, x in enumerate(inputs) if k not in stored])

    run(good)
    for bad in wrong:
        with pytest.raises(InterpretError) as caught:
            run([bad.get(k, x) for k, x in enumerate(good)])
        assert caught.value.code in ("dims_mismatch", "invalid_reshape", "invalid_value", "wrong_shape")


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("positions", [False, True])
def test_angles_of_one_sequence_are_those_of_all(batch, count, positions):
    random = np.random.default_rng(0)
    caches = [random.standard_normal((9, 4) if positions else (count, 5, 4)).astype(np.float32) for _ in "cs"]
    places = [random.integers(0, 9, (count, 5))] if positions else []
    inputs = [random.standard_normal((batch, 2, 5, 8)).astype(np.float32), *caches, *places]
    graph = optimise(import_model(opened("RotaryEmbedding", 23, inputs, {})).graph, TARGETS["x86-64-v3"])
    if count > batch:
        with pytest.raises(InterpretError):
            run_graph(graph, inputs)
        return
    (found,) = run_graph(graph, inputs)
    (expected,) = reference(model("RotaryEmbedding", 23, inputs, {}), inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts", ["told, rest", "rest, told"])
def test_a_rest_beside_sizes_that_are_data_is_the_only_one_and_beside_no_0(parts):
    proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N, K] x, int64[1] told) => (float[L, M] y) <int64[1] rest = {{-1}}> {{
            shape = Concat <axis = 0> ({parts}) y = Reshape (x, shape) }}""")
    graph = import_model(proto).graph
    (found,) = run_graph(graph, [zeros(2, 3), ints(6)])
    assert sorted(found.shape) == [1, 6]
    empty = zeros(0, 2) if parts.startswith("told") else zeros(2, 0)  # of which the 0 copies an axis
    for x, size in ((zeros(1, 1), -1), (empty, 0)):
        with pytest.raises(InterpretError):
            run_graph(graph, [x, ints(size)])


@pytest.mark.parametrize("lengths", [(2, 3), (3, 2)])
def test_scanned_inputs_of_other_lengths_fail_the_run_also_where_they_have_no_elements(lengths):
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N, K] x, float[M, K] z) => (float[L, K] y) {
            y = Scan <num_scan_inputs = 2, body = b (float[K] p, float[K] q) => (float[K] r) {
                r = Add (p, q) }> (x, z) }""")
    graph = import_model(proto).graph
    for size in (0, 4):
        with pytest.raises(InterpretError, match=r"dims mismatch|invalid reshape|wrong shape"):
            run_graph(graph, [zeros(n, size) for n in lengths])
        (found,) = run_graph(graph, [zeros(3, size), zeros(3, size)])
        assert found.shape == (3, size)
