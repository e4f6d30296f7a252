"""Nodes of com.microsoft, for tests: held against ONNX Runtime by the interpreter, and many at once by one
library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from hypothesis import HealthCheck, Phase, settings
from onnx import helper, numpy_helper

import onnxc
from onnxc.commands.comparison import onnxruntime_session
from onnxc.frontend.importer import import_model
from onnxc.ir import ops
from onnxc.ir.graph import walk
from onnxc.ir.interpret import run_graph


@dataclass(frozen=True)
class Case:
    """A node over these inputs, None being an absent one. `outputs`: which are wanted. `stored`: inputs that
    are initializers. `tolerance`: of the largest magnitude; for integers, how many steps may lie between.
    `typed`: outputs whose type, float, the model must state. `opset`: of ai.onnx; nodes of one model have the
    newest of theirs."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, object] = field(default_factory=dict)
    outputs: Sequence[int] = (0,)
    stored: Sequence[int] = ()
    tolerance: float = 1e-5
    domain: str = "com.microsoft"
    typed: Sequence[int] = ()
    opset: int = 21

    def __str__(self) -> str:
        shapes = ",".join("-" if x is None else "x".join(map(str, np.shape(x))) or "1" for x in self.inputs)
        return f"{self.op}-{shapes}-{','.join(f'{k}={v}' for k, v in self.attributes.items())}"[:90]


Feeds = dict[str, np.ndarray]


def floats(rng: np.random.Generator, *shape: int, scale: float = 1) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape) * scale, np.float32)


def drawing(examples: int) -> settings:
    """Settings of a test that draws as many examples, the same ones in every run."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def as_model(cases: Sequence[Case], symbolic: bool = False) -> tuple[onnx.ModelProto, Feeds]:
    """All nodes side by side in one model, and its inputs. symbolic: every size of the inputs is a variable,
    equal sizes of a case the same one."""
    nodes, declared, stored, results, feeds = [], [], [], [], {}
    for n, case in enumerate(cases):
        names = ["" if a is None else f"x{n}_{k}" for k, a in enumerate(case.inputs)]
        outputs = [f"y{n}_{k}" if k in case.outputs else "" for k in range(max(case.outputs) + 1)]
        nodes.append(
            helper.make_node(case.op, names, outputs, name=f"n{n}", domain=case.domain, **case.attributes)
        )
        for k, name in enumerate(outputs):
            result = onnx.ValueInfoProto(name=name)
            if k in case.typed:
                result.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
            results += [result] if name else []
        for k, (name, array) in enumerate(zip(names, case.inputs, strict=True)):
            if array is None:
                continue
            array = np.asarray(array)
            if k in case.stored:
                stored.append(numpy_helper.from_array(array, name))
                continue
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            shape = [f"d{n}_{d}" if symbolic else d for d in array.shape]
            declared.append(helper.make_tensor_value_info(name, element, shape))
            feeds[name] = array
    graph = helper.make_graph(nodes, "nodes", declared, results, stored)
    newest = max(case.opset for case in cases)
    opsets = [helper.make_opsetid("", newest), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=opsets)
    proto.ir_version = 10
    return proto, feeds


def runtime(proto: onnx.ModelProto, feeds: Feeds) -> list[np.ndarray]:
    """The model's outputs by ONNX Runtime, as the model stands: nothing fused or taken apart."""
    return onnxruntime_session(proto, optimise=False).run(None, feeds)


def in_place(case: Case, rt: Any = onnxruntime) -> list[np.ndarray]:
    """What a runtime makes of a case whose caches are changed where they are, on which ONNX Runtime's
    SparseAttention insists."""
    proto, feeds = as_model([case])
    options = rt.SessionOptions()
    options.log_severity_level = 4
    session = rt.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    binding, arrays = session.io_binding(), {name: array.copy() for name, array in feeds.items()}
    values = {name: rt.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0_0")
    caches = [name for name, array in arrays.items() if array.ndim == 4][-2:]
    for k, name in enumerate(caches, 1):
        binding.bind_ortvalue_output(f"y0_{k}", values[name])
    session.run_with_iobinding(binding)
    return [value.numpy().copy() for value in binding.get_outputs()]


def interpreted(case: Case, symbolic: bool = False) -> list[np.ndarray]:
    """The wanted outputs of one node by the interpreter of the core ops."""
    proto, feeds = as_model([case], symbolic)
    return run_graph(import_model(proto).graph, list(feeds.values()))


def same(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Equal in type and shape, and near in value."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    x, y = found.astype(np.float64), expected.astype(np.float64)
    greatest = np.abs(y, where=np.isfinite(y), out=np.zeros_like(y)).max(initial=1)
    bound = tolerance if found.dtype.kind in "iu" else tolerance * greatest
    np.testing.assert_allclose(x, y, rtol=0, atol=bound)


def check(case: Case, symbolic: bool = False) -> None:
    """The node means what ONNX Runtime makes of it."""
    proto, feeds = as_model([case])
    for found, expected in zip(interpreted(case, symbolic), runtime(proto, feeds), strict=True):
        same(found, expected, case.tolerance)


def check_without_shapes(case: Case, most: int) -> None:
    """Inputs without shapes give what those with shapes give, and need at most so many conditions."""
    proto, feeds = as_model([case])
    wanted = run_graph(import_model(proto).graph, list(feeds.values()))
    for port in proto.graph.input:
        port.type.tensor_type.ClearField("shape")
    graph = import_model(proto).graph
    assert sum(isinstance(node.op, ops.If) for node in walk(graph)) <= most
    for found, expected in zip(run_graph(graph, list(feeds.values())), wanted, strict=True):
        same(found, expected, case.tolerance)


def check_compiled(cases: Sequence[Case], folder: Path) -> None:
    """One library of all the nodes gives what the interpreter gives for each."""
    proto, feeds = as_model(cases)
    found = iter(onnxc.load(onnxc.compile(proto, folder / "nodes.so"), threads=2).run(None, feeds))
    for case in cases:
        for expected in interpreted(case):
            same(next(found), expected, case.tolerance)
