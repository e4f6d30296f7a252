"""Products of operands whose batch "b" is open, each by its own name: in every kernel that takes them."""

from collections.abc import Mapping, Sequence

import numpy as np
from support import harness

from onnxc.codegen.kernel import choices_of
from onnxc.codegen.kernels import KERNELS
from onnxc.ir import dims
from onnxc.ir.graph import TensorType, Value, make_node
from onnxc.ir.interpret import run_node
from onnxc.ir.ops import Op
from onnxc.target import Target


def check_every_kernel(
    op: Op,
    forms: Sequence[str],
    sizes: Mapping[str, int],
    batches: Mapping[str, int],
    target: Target,
    tolerance: float,
) -> None:
    """forms: the labels of each operand; batches: of each the name and the size that the run finds."""
    arrays, values = [], []
    for seed, (labels, name) in enumerate(zip(forms, batches, strict=True)):
        shape = [batches[name] if c == "b" else sizes[c] for c in labels]
        arrays.append(np.random.default_rng(seed).standard_normal(shape).astype("float32"))
        open_ = tuple(dims.symbol(name) if c == "b" else sizes[c] for c in labels)
        values.append(Value(TensorType("float32", open_)))
    node = make_node(op, values)
    (expected,) = run_node(node, arrays, batches)
    offered = [choice for kernel in KERNELS for choice in choices_of(kernel, node, target)[:1]]
    assert offered
    for choice in offered:
        ((got, _),) = harness.run_choice(node, choice, arrays, target, batches)
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
