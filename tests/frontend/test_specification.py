"""Rules of the specification that models in the wild break, or use in ways that are easily missed."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.agreement import check_runs
from support.few_nodes import with_sparse_default

from onnxc.diagnostics import ModelErrors
from onnxc.frontend.figures import overridable
from onnxc.frontend.importer import import_model
from onnxc.ir.dtypes import numpy_dtype
from onnxc.ir.interpret import run_graph
from onnxc.options import Options


def parsed(text, opset=21):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def refused(model, *parts):
    with pytest.raises(ModelErrors) as caught:
        import_model(model)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("declared", "part"),
    [("float[3] w", "the shape [3]"), ("float[2,1] w", "the shape [2, 1]"), ("int64[2] w", "type int64")],
)
def test_an_initializer_is_what_the_input_of_its_name_says(declared, part):
    model = parsed(f"g (float[2] x, {declared}) => (float[2] y) {{ y = Add (x, w) }}")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    refused(model, "'w'", part, "float32")
    model.graph.input.pop()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, ["n"]))
    import_model(model)


def test_a_sparse_initializer_is_what_the_input_of_its_name_says():
    model = with_sparse_default()
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 3
    refused(model, "'w'", "the shape [3]", "float32")


def test_a_run_may_give_an_input_that_has_a_sparse_default():
    model, x, w = with_sparse_default(), np.ones(2, np.float32), np.array([5, 6], np.float32)
    assert overridable(model) == [{"name": "w", "dtype": "float32", "shape": [2]}]
    np.testing.assert_array_equal(run_graph(import_model(model).graph, [x])[0], [1, 4])
    given = import_model(model, Options(overridable=True)).graph
    np.testing.assert_array_equal(run_graph(given, [x, w])[0], [6, 7])


@pytest.mark.parametrize(
    ("declared", "result"),
    [(TensorProto.INT32, "float"), (TensorProto.FLOAT, "int64"), (TensorProto.FLOAT16, "float")],
)
def test_declared_element_types_are_those_inferred(declared, result):
    model = parsed(f"g (float[2] x) => ({result}[2] y) {{ z = Exp (x) y = Exp (z) }}")
    model.graph.value_info.append(helper.make_tensor_value_info("z", declared, [2]))
    refused(model, "is declared with elements of type", "float32")


def test_a_branch_declares_types_too():
    refused(
        parsed("""g (float[2] x, bool c) => (float[2] y) { y = If (c) <
            then_branch = a () => (int64[2] p) { p = Exp (x) },
            else_branch = b () => (float[2] q) { q = Neg (x) }> }"""),
        "'p'",
        "type int64",
    )


@pytest.mark.parametrize(
    ("node", "opset", "removed"), [("Upsample (x, x)", 10, 10), ("Scatter (x, i, x)", 13, 11)]
)
def test_an_operator_that_the_operator_set_has_no_more_is_refused(node, opset, removed):
    text = f"g (float[1] x, int64[1] i) => (float[n] y) {{ y = {node} }}"
    refused(parsed(text, opset), f"removed with operator set {removed}", f"imports {opset}")
    import_model(parsed(text, removed - 1))


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


@pytest.mark.parametrize("count", [3, 5000])
def test_repeated_integers_may_be_written_one_by_one(count):
    model = parsed(f"g (int64[{count}] x) => (int64[1,{count}] y) {{ s = Add (x, w) y = Unsqueeze (s, a) }}")
    model.graph.initializer.append(helper.make_tensor("a", TensorProto.INT64, [1], [0]))
    numbers = b"".join(varint(7 << 3) + varint(k) for k in range(count))
    tensor = TensorProto(dims=[count], data_type=TensorProto.INT64, name="w").SerializeToString() + numbers
    graph = model.graph.SerializeToString() + field(5, tensor)
    model.ClearField("graph")
    found = import_model(model.SerializeToString() + field(7, graph)).graph
    (y,) = run_graph(found, [np.zeros(count, np.int64)])
    np.testing.assert_array_equal(y, np.arange(count)[None])


POOLS = """g (float[A,3,H,W] x) => (float[A,3,P,Q] most, float[A,3,R,S] mean, float[A,3,T,U] norm) {
    most = MaxPool <kernel_shape = [7, 7], strides = [7, 7], ceil_mode = 1> (x)
    mean = AveragePool <kernel_shape = [7, 7], strides = [7, 7], ceil_mode = 1> (x)
    norm = LpPool <kernel_shape = [7, 7], strides = [7, 7], ceil_mode = 1> (x) }"""


@pytest.mark.parametrize("size", ["", "4"])
def test_a_window_greater_than_the_image_covers_it_once_where_sizes_round_up(size, tmp_path):
    text = POOLS.replace("A,3,H,W", "2,3,4,4") if size else POOLS
    shapes = [(2, 3, 4, 4)] if size else [(2, 3, 4, 4), (1, 3, 1, 9), (1, 3, 8, 15)]
    runs = [{"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)} for shape in shapes]
    check_runs(parsed(text, 22), tmp_path, runs)


@pytest.mark.parametrize(
    ("node", "opset"),
    [("Conv (x, x)", 11), ("Conv (x, x)", 21), ("GlobalAveragePool (x)", 20), ("HardSigmoid (x)", 6)],
)
def test_types_that_only_a_later_operator_set_allows_are_taken(node, opset):
    """As exporters of models in bfloat16 write them."""

    def result(dtype):
        graph = import_model(
            parsed(f"g ({dtype}[1,2,3,3] x) => ({dtype}[1,n,h,w] y) {{ y = {node} }}", opset)
        ).graph
        return run_graph(graph, [x.astype(numpy_dtype(graph.inputs[0].dtype))])[0]

    x = np.arange(18).reshape(1, 2, 3, 3) / 8
    assert result("bfloat16").dtype == numpy_dtype("bfloat16")
    np.testing.assert_allclose(result("bfloat16").astype(np.float32), result("float"), rtol=2**-7)


def test_types_that_no_operator_set_allows_are_not():
    model = parsed("g (int64[1,2,3,3] x) => (int64[1,n,h,w] y) { y = Conv (x, x) }", 11)
    refused(model, "'X'", "tensor(int64)", "tensor(bfloat16), tensor(double), tensor(float), tensor(float16)")
