"""Products of integers whose zero points, and sums whose axes, have sizes that only the run knows."""

import numpy as np
import pytest
from support.small_models import parsed

import onnxc
from onnxc.diagnostics import ModelErrors
from onnxc.errors import RunError
from onnxc.frontend.importer import import_model
from onnxc.ir.interpret import run_graph
from onnxc.ir.ops import Contract, Map


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


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            "MatMulInteger (a, b, a)",
            "a_zero_point is uint8[4, 3] where one element, a vector of length 4 or uint8[4, 1]",
        ),
        ("MatMulInteger (a, b, v)", "a_zero_point is uint8[3] where"),
        ("MatMulInteger (a, b, u)", "a_zero_point is uint8[3, 4, 1] where"),
        (
            "MatMulInteger (a, b, z, b)",
            "b_zero_point is uint8[3, 5] where one element, a vector of length 5 or uint8[1, 5]",
        ),
        ("QLinearMatMul (a, p, z, b, s, z, s, z)", "a_scale is float[4, 3] where"),
        ("QLinearMatMul (a, s, z, b, q, z, s, z)", "b_scale is float[3] where"),
        ("QLinearMatMul (a, s, z, b, s, z, p, z)", "y_scale is float[4, 3] where"),
        ("QLinearMatMul (a, s, z, b, s, z, s, v)", "y_zero_point is uint8[3] where"),
        ("ConvInteger (u, k, v)", "the x_zero_point should have one element, not 3"),
        ("ConvInteger (u, k, z, v)", "w_zero_point is uint8[3] where a vector of length 2"),
        ("QLinearConv (u, q, z, k, s, z, s, z)", "the x_scale should have one element, not 3"),
        ("QLinearConv (u, s, z, k, q, z, s, z)", "w_scale is float[3] where a vector of length 2"),
        ("QLinearConv (u, s, z, k, s, z, q, z)", "the y_scale should have one element, not 3"),
    ],
)
def test_scales_and_zero_points_of_wrong_shapes_are_named_with_those_that_fit(node, reason):
    given = "uint8[4, 3] a, uint8[3, 5] b, uint8[3, 4, 1] u, uint8[2, 4, 1] k, uint8[3] v, uint8 z"
    result = "int32" if "Integer" in node else "uint8"
    with pytest.raises(ModelErrors) as caught:
        import_model(
            parsed(f"m ({given}, float[4, 3] p, float[3] q, float s) => ({result} y) {{ y = {node} }}")
        )
    assert reason.replace("float[", "float32[") in str(caught.value)


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


@pytest.mark.parametrize(
    "inputs, shape", [("float[n, m] x", "Shape (x)"), ("float[?] x, int64[2] s", "Identity (s)")]
)
def test_a_diagonal_is_that_of_a_square_or_the_run_fails(inputs, shape):
    session = onnxc.InferenceSession(
        parsed(f"""m ({inputs}) => (float y) {{
        t = {shape} z = Reshape <allowzero = 1> (x, t) y = Einsum <equation = "ii->i"> (z) }}""")
    )
    flat = len(session.get_inputs()) == 2

    def found(*size):
        x = np.arange(size[0] * size[1], dtype=np.float32)
        return session.run(None, {"x": x, "s": np.array(size)} if flat else {"x": x.reshape(size)})[0]

    np.testing.assert_array_equal(found(3, 3), [0, 4, 8])
    assert found(0, 0).shape == (0,)
    for size in ((2, 3), (3, 2), (1, 3), (3, 1), (0, 2), (2, 0)):
        with pytest.raises(RunError):
            found(*size)


@pytest.mark.parametrize(
    "equation, shapes, labels",
    [
        ("bsd,dk->bk", ["3, 4, 5", "5, 6"], ["bd,dk->bk"]),
        ("abc,adb->cb", ["2, 3, 4", "2, 5, 3"], ["abc,ab->cb"]),
        ("ij,k->i", ["3, 4", "5"], ["i,->i"]),
        ("ij,jk,lk->i", ["3, 4", "4, 5", "6, 5"], ["ij,jk->ik", "ik,k->i"]),
        ("ij,jk,k->i", ["3, n", "n, 5", "5"], ["ij,jk->ik", "ik,k->i"]),
    ],
)
@pytest.mark.parametrize("dtype", ["float", "float16", "int32"])
def test_axes_that_one_operand_of_an_einsum_has_alone_are_summed_before_the_product(
    equation, shapes, labels, dtype
):
    inputs = ", ".join(f"{dtype}[{shape}] x{k}" for k, shape in enumerate(shapes))
    operands = ", ".join(f"x{k}" for k in range(len(shapes)))
    text = f'm ({inputs}) => ({dtype} y) {{ y = Einsum <equation = "{equation}"> ({operands}) }}'
    graph = import_model(parsed(text)).graph
    products = [node.op for node in graph.nodes if isinstance(node.op, Contract)]
    assert [f"{op.lhs},{op.rhs}->{op.out}" for op in products] == labels
    draw = np.random.default_rng(0)
    sizes = [[int(d.replace("n", "4")) for d in shape.split(",")] for shape in shapes]
    numbers = "float32" if dtype == "float" else dtype
    arrays = [draw.integers(-4, 5, size).astype(numbers) for size in sizes]
    (found,) = run_graph(graph, arrays, {"n": 4})
    np.testing.assert_array_equal(found, np.einsum(equation, *arrays))


def test_sums_of_halves_before_an_einsums_product_are_not_rounded():
    text = 'm (float16[3] x, float16[2] z) => (float16 y) { y = Einsum <equation = "i,k->k"> (x, z) }'
    (found,) = run_graph(
        import_model(parsed(text)).graph, [np.float16([60000, 60000, -60000]), np.float16([0.5, 1 / 1024])]
    )
    np.testing.assert_array_equal(found, np.float16([30000, 60000 / 1024]))
