"""Checks of loop_nest against the interpreter: static and symbolic shapes, memory that ends where a page is
forbidden."""

from dataclasses import replace
from functools import partial

import numpy as np
from support import harness
from support.guarded import guarded

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import loop_nest
from onnxc.ir import dims, dtypes
from onnxc.ir.graph import Constant, Node, TensorType, Value, make_node
from onnxc.ir.interpret import run_node

TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-5, "float64": 1e-12}


def numbers(shape, dtype="float32", low=-50, high=50, seed=0):
    """Whole numbers, which every type holds."""
    drawn = np.random.default_rng(seed).integers(low, high, shape)
    return np.asarray(np.abs(drawn) if dtype.startswith("u") or dtype == "bool" else drawn).astype(
        dtypes.numpy_dtype(dtype)
    )


def symbolic(array, name):
    """The array's type with a variable for every axis."""
    shape = tuple(dims.symbol(f"{name}{axis}") for axis in range(array.ndim))
    return TensorType(dtypes.from_numpy(array.dtype), shape)


def variable(prefix, values, minimum=None):
    """Dimension variables for sizes, and what they stand for."""
    names = [f"{prefix}{k}" for k in range(len(values))]
    return tuple(dims.symbol(n, minimum) for n in names), dict(zip(names, values))


def node_of(op, arrays, types=None, constant=()):
    types = types or [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
    values = [
        Value(t, f"v{k}", Constant.of(a) if k in constant else None)
        for k, (t, a) in enumerate(zip(types, arrays, strict=True))
    ]
    return make_node(op, values)


def run(node, choice, arrays, target, env=None, alignment=1):
    """As harness.run_choice; every operand ends `alignment` bytes or less before a page that nobody may
    touch."""
    usual, harness.aligned = harness.aligned, partial(guarded, alignment=alignment)
    try:
        return harness.run_choice(node, choice, arrays, target, env)
    finally:
        harness.aligned = usual


def compare(node, choice, arrays, target, env=None, tolerance=None):
    """The choice gives what the interpreter gives, and clears what surrounds blocked images."""
    env = {**harness.bind(node, arrays), **(env or {})}
    wanted = run_node(node, arrays, dict(env))
    results = run(node, choice, arrays, target, env)
    assert isinstance(results, list), f"{node.op} failed with {results}"
    for (found, border_clear), expected, value in zip(results, wanted, node.outputs, strict=True):
        assert border_clear
        message = f"{target} {node.op} of {node.inputs}"
        if not dtypes.is_float(value.dtype):
            np.testing.assert_array_equal(found, expected, message)
            continue
        close = TOLERANCE[value.dtype] if tolerance is None else tolerance
        scale = max(
            1.0,
            float(
                np.max(
                    np.abs(expected.astype(np.float64)),
                    initial=0,
                    where=np.isfinite(expected.astype(np.float64)),
                )
            ),
        )
        np.testing.assert_allclose(
            found.astype(np.float64),
            expected.astype(np.float64),
            rtol=close,
            atol=close * scale,
            err_msg=message,
        )


def dense_choice(node, target, kernel=loop_nest):
    """The kernel's choice for dense operands, the first that it offers."""
    return choices_of(kernel, node, target)[0]


def check(target, op, *arrays, env=None, types=None, only=None, tolerance=None, kernel=loop_nest):
    """The op over these arrays as types of known sizes, and with a variable for every axis. `types`: symbolic
    types of the caller's choice; `only`: "static" or "symbolic"."""
    if only != "symbolic":
        node = node_of(op, arrays)
        compare(node, dense_choice(node, target, kernel), arrays, target, env, tolerance)
    if only != "static":
        node = node_of(op, arrays, types or [symbolic(a, "abcdefgh"[k]) for k, a in enumerate(arrays)])
        compare(node, dense_choice(node, target, kernel), arrays, target, env, tolerance)


def check_blocked(target, op, arrays, layouts, out_halo=None, constant=(), env=None, types=None):
    """Every blocked choice over operands stored in these layouts, the result with a halo that a consumer
    might want."""
    types = types or [TensorType(dtypes.from_numpy(a.dtype), a.shape) for a in arrays]
    node = node_of(
        op, arrays, [replace(t, layout=layout) for t, layout in zip(types, layouts, strict=True)], constant
    )
    offered = [choice for choice in choices_of(loop_nest, node, target) if choice.output is not None]
    assert offered, f"no blocked choice for {op}"
    for choice in offered:
        halo = choice.output if out_halo is None else replace(choice.output, halo=out_halo)
        output = Value(replace(node.outputs[0].type, layout=halo), "out")
        stored = Node(op, node.inputs, (output,))
        compare(stored, choice, arrays, target, env)
        if arrays[0].shape[0] > 1:
            compare(_in_wider_images(stored), choice, arrays, target, env)


def _in_wider_images(node):
    """node over blocked images that are parts of others."""

    def part(value):
        if value.constant is not None or value.tensor.layout is None:
            return value
        wider = replace(value.tensor.layout, pitch=value.tensor.storage[1] + 2)
        return Value(replace(value.tensor, layout=wider), value.name)

    return Node(node.op, tuple(map(part, node.inputs)), tuple(map(part, node.outputs)))
