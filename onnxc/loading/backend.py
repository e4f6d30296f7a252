"""The onnx package's backend interface (`onnx.backend.base`): prepare, run_model, supports_device."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from ..driver import compile_model
from ..options import Options
from .loader import load


class CompiledModel(BackendRep):
    """A model compiled into a library of its own, which is gone with this object."""

    def __init__(self, model: onnx.ModelProto, jobs: int | None = 1, **options: Any):
        self._folder = tempfile.TemporaryDirectory(prefix="onnxc-backend-")
        self.path = Path(self._folder.name) / "model.so"
        compile_model(model, self.path, Options.of(options), jobs=jobs)
        self._model = load(self.path)

    def feeds(self, inputs: Any) -> dict[str, Any]:
        """Inputs by name, of: one array, a sequence in the order of the model's inputs, or a mapping."""
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if isinstance(inputs, dict):
            return inputs
        return {port.name: value for port, value in zip(self._model.inputs, inputs)}

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """All outputs for the inputs; see `feeds`."""
        return tuple(self._model.run(None, self.feeds(inputs)))


class OnnxcBackend(Backend):
    """Runs models by compiling them for this machine's processor."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> CompiledModel:
        return CompiledModel(model)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        return cls.prepare(model, device).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[np.ndarray],
        device: str = "CPU",
        outputs_info: object = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        values = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in zip(node.input, inputs)
        ]
        results = [onnx.helper.make_empty_tensor_value_info(n) for n in node.output]
        graph = onnx.helper.make_graph([node], "node", values, results)
        return cls.run_model(onnx.helper.make_model(graph), list(inputs), device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":")[0] == "CPU"


prepare, run_model, run_node, supports_device = (
    OnnxcBackend.prepare,
    OnnxcBackend.run_model,
    OnnxcBackend.run_node,
    OnnxcBackend.supports_device,
)
