"""What is done to a model before it is compiled: sizes of free dimensions, initializers of the program's.

Here `onnx` is imported, which opening a compiled model does without.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OnnxcError
from .enumerations import GraphOptimizationLevel
from .failures import InvalidArgument, made, translated
from .kinds import OrtCompileApiFlags
from .written import write

if TYPE_CHECKING:
    import onnx

    from .devices import OrtEpContextData
    from .options import SessionOptions


def edited(source: str | bytes | onnx.ModelProto, options: SessionOptions) -> onnx.ModelProto:
    """The model with the initializers that the options give."""
    from onnx import numpy_helper

    from ..frontend.fixed_values import store

    model = _loaded(source, options._files, options._external, options._data_folder)
    given = {**options._external, **options._initializers}
    stored = {t.name: (t.data_type, list(t.dims)) for t in model.graph.initializer}
    sparse = model.graph.sparse_initializer
    stored |= {s.values.name: (s.values.data_type, list(s.dims)) for s in sparse}
    if absent := options._external.keys() - stored:
        raise made(InvalidArgument, f"the model has no initializer '{min(absent)}'")
    values = [numpy_helper.from_array(given[name].numpy(), name) for name in sorted(given)]
    for value in values:
        kind = value.data_type, list(value.dims)
        if stored.get(value.name, kind) != kind:
            raise made(InvalidArgument, f"the initializer '{value.name}' is given with another type or shape")
    store(model.graph, values)
    return model


def _loaded(
    source: str | bytes | onnx.ModelProto,
    files: Mapping[str, bytes],
    values: Mapping[str, Any],
    folder: str | None = None,
) -> onnx.ModelProto:
    """The model in memory, its external data too, of which `files` has some by name and `values` others; the
    rest lies in the folder, or beside the model."""
    from ..frontend.model_file import open_model
    from ..frontend.tensors import whole

    try:
        model = open_model(source, directory=folder)
        model.external.hold(files)
        return whole(model, values)
    except OnnxcError as error:
        raise translated(error, source) from None


def with_sizes(
    source: str | bytes | onnx.ModelProto, dims: Mapping[str, int], shapes: Mapping[str, Any]
) -> onnx.ModelProto:
    """The model with the sizes of its inputs' dimensions."""
    model = _loaded(source, {}, {})
    for port in model.graph.input:
        for axis, dim in enumerate(port.type.tensor_type.shape.dim):
            size = dims.get(dim.dim_param, (shapes.get(port.name) or {axis: None})[axis])
            if size is not None:
                dim.dim_value = size
    return model


class ModelCompiler:
    """Writes a model as it would be run. For other devices ONNX Runtime stores what it made for them in it;
    for the processor it is the model itself, with its external data inside."""

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ):
        """Of the options those count that change the model; initializers are always in the model's file."""
        if not isinstance(input_model_path_or_bytes, (str, os.PathLike, bytes)):
            raise TypeError(f"Unable to load from type '{type(input_model_path_or_bytes)}'")
        if not input_model_path_or_bytes:
            what = "bytes array" if isinstance(input_model_path_or_bytes, bytes) else "path"
            raise ValueError(f"Input model {what} is empty")
        if external_initializers_file_path and get_initializer_location_func is not None:
            raise ValueError(
                "Cannot initialize ModelCompiler with both `external_initializers_file_path` "
                "and `get_initializer_location_func`"
            )
        self._options, self._flags = sess_options, flags
        source = input_model_path_or_bytes
        self._source = source if isinstance(source, bytes) else os.fspath(source)

    def compile_to_file(self, output_model_path: str | None = None) -> None:
        """Writes to the path, or to that of the model with `_ctx` behind its stem."""
        if output_model_path is None:
            if isinstance(self._source, bytes):
                raise made(InvalidArgument, "a model of bytes needs a path to be written to")
            output_model_path = str(Path(self._source).with_suffix("")) + "_ctx.onnx"
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and os.path.exists(output_model_path):
            raise made(InvalidArgument, f"Output model path already exists: {output_model_path}")
        write(output_model_path, self.compile_to_bytes())

    def compile_to_bytes(self) -> bytes:
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise made(InvalidArgument, "no node was compiled for another device than the processor")
        return edited(self._source, self._options).SerializeToString()

    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        write_function(self.compile_to_bytes())

    def set_ep_context_data_write_func(self, write_func: Callable[[str, OrtEpContextData], None]) -> None:
        """Without effect: no provider has data of its own."""

    def set_ep_context_binary_information(
        self, output_directory: str | os.PathLike[str], model_name: str
    ) -> None:
        """Without effect but for what is refused: no provider has files of its own."""
        folder = os.fspath(output_directory)
        if not folder or not model_name:
            raise made(InvalidArgument, "the output directory and the model's name must not be empty")
        if not folder.endswith(os.sep) and not Path(folder).suffix:
            raise made(InvalidArgument, f"'{folder}' is not a directory: it ends in no '{os.sep}'")

    def clear_ep_context_data_write_func(self) -> None:
        """Without effect: no provider has data of its own."""
