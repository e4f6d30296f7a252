"""Products of integers whose zero points have sizes that only the run knows."""

import numpy as np
import pytest
from support.small_models import parsed

from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph
from onnxc.ir.ops import Map


@pytest.mark.parametrize(
    ("left", "right", "rows", "columns"),
    [
        ((2, 3, 4), (2, 4, 5), (2, 3, 1), (2, 1, 5)),
        ((4,), (4, 5), (), (1, 5)),
        ((3, 4), (4,), (3, 1), (1,)),
        ((4,), (4,), (1,), (1,)),
    ],
)
def test_scales_of_rows_and_columns_scale_the_product_and_leave_its_axes(left, right, rows, columns):
    """A vector's product has no axis of its own."""
    shapes = dict(zip("apbq", (left, rows, right, columns)))
    a, p, b, q = (f"[{', '.join(map(str, shapes[k]))}] {k}" if shapes[k] else f" {k}" for k in "apbq")
    graph = import_model(
        parsed(f"""m (uint8{a}, float{p}, uint8{b}, float{q}, float s, uint8 z) => (uint8 y)
        {{ y = QLinearMatMul (a, p, z, b, q, z, s, z) }}""")
    ).graph
    draw = np.random.default_rng(0)
    x, y = (draw.integers(0, 9, shape).astype(np.uint8) for shape in (left, right))
    u, v = (draw.integers(1, 4, shape).astype(np.float32) for shape in (rows, columns))
    (found,) = run_graph(graph, [x, u, y, v, np.float32(16), np.uint8(0)])
    expected = np.matmul(x * np.float32(u), y * np.float32(v)) / 16
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, np.rint(expected).clip(0, 255))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("op", "left", "right"), [("MatMulInteger", "2, 4", "4, 3"), ("ConvInteger", "2, 4, 1", "3, 4, 1")]
)
def test_zero_points_of_any_number_are_one_for_all_or_as_many_as_there_are(op, left, right, count):
    graph = import_model(
        parsed(f"""m (uint8[{left}] a, uint8[{right}] b, uint8 x, uint8[c] y) => (int32 z)
        {{ z = {op} (a, b, x, y) }}""")
    ).graph
    draw = np.random.default_rng(0)
    a, b = (draw.integers(0, 256, shape).astype(np.uint8) for shape in ((2, 4), (4, 3)))
    zero = np.arange(250, 250 + count).astype(np.uint8)
    kernels = b if op == "MatMulInteger" else b.T.reshape(3, 4, 1)
    (found,) = run_graph(
        graph, [a.reshape(graph.inputs[0].shape), kernels, np.uint8(255), zero], {"c": count}
    )
    assert (found.reshape(2, 3) == (a.astype(np.int32) - 255) @ (b.astype(np.int32) - zero)).all()
    operands = [v for node in graph.nodes if isinstance(node.op, Map) for v in node.inputs]
    assert operands and all(isinstance(size, int) for v in operands for size in v.shape)
