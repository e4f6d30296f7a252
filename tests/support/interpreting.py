"""What the tests of the interpreter share: random operands, ONNX Runtime as oracle, comparisons."""

import numpy as np
import onnx
import pytest

from onnxc.commands.comparison import onnxruntime_session
from onnxc.ir import dtypes
from onnxc.ir.interpret import InterpretError, run_op

random = np.random.default_rng(7)


def normal(*shape, dtype="float32"):
    return random.standard_normal(shape).astype(dtypes.numpy_dtype(dtype))


def integers(*shape, dtype="int32", low=-20, high=20):
    return random.integers(low, high, shape).astype(dtypes.numpy_dtype(dtype))


def run(op, *inputs, **env):
    """The only output of op; several as a list."""
    results = run_op(op, inputs, env)
    return results[0] if len(results) == 1 else results


def runtime(op_type, inputs, outputs=1, opset=21, **attributes):
    """What ONNX Runtime computes for one node; inputs that are None are left out."""
    named = [(f"i{k}" if x is not None else "", x) for k, x in enumerate(inputs)]
    given = [(name, x) for name, x in named if name]
    results = [f"o{k}" for k in range(outputs)]
    node = onnx.helper.make_node(op_type, [name for name, _ in named], results, **attributes)
    infos = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given
    ]
    graph = onnx.helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=r) for r in results])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)
    return onnxruntime_session(model).run(None, dict(given))


def close(actual, expected, tolerance=1e-5):
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)


def same(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


def fails(code, op, *inputs, **env):
    with pytest.raises(InterpretError) as caught:
        run_op(op, inputs, env)
    assert caught.value.code == code
    return caught.value.value
