"""InferenceSession: ONNX Runtime's interface over compiled libraries.

A model is compiled when it is first opened and kept in the user's cache (`onnxc/loading/cached.py`). What the
library is not compiled for is compiled when a run first needs it: initializers that a run gives in the place
of the model's, inputs that it changes where they are (`sharing.py`). Here is what nearly every program calls;
other methods are in `session_methods.py`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import OnnxcError, RunError
from ..loading.finding import Found, by_path, is_library, opened, registered
from ..loading.forks import ProcessLock
from ..loading.loader import Model
from ..record import imported_later

if TYPE_CHECKING:
    from .options import RunOptions, SessionOptions
    from .ports import NodeArg
    from .providers import Providers
    from .session_methods import SessionMethods
else:
    SessionMethods = imported_later(
        f"{__package__}.session_methods",
        "SessionMethods",
        """
        model _sess get_session_options get_overridable_initializers get_modelmeta get_providers
        get_provider_options get_input_memory_infos get_output_memory_infos get_input_epdevices
        get_provider_graph_assignment_info get_tuning_results _model_path _model_bytes _sess_options
        _inputs_meta _outputs_meta _overridable_initializers _model_meta _providers _provider_options
        set_providers disable_fallback enable_fallback set_ep_dynamic_options set_tuning_results
        release_captured_graph _run_otherwise _for_initializers _run run_async run_with_ort_values _values
        _output_types run_with_ortvaluevector _bindable io_binding run_with_iobinding _run_bound
        create_ortvalue_from_shape_and_type _record get_profiling_start_time_ns end_profiling
        """,
    )


class Session(SessionMethods):
    """What a session can do; `InferenceSession` opens one."""

    _scalars: Sequence[str]  # inputs of shape []

    def get_inputs(self) -> list[NodeArg]:
        from .ports import NodeArg

        return [NodeArg._of(port, self._sparse) for port in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        from .ports import NodeArg

        declared = self._model.description.get("declared", {})
        return [NodeArg._of(p, self._sparse, declared.get(p.name, ())) for p in self._model.outputs]

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Any]:
        """The outputs named (none: all) for the inputs fed, by name."""
        try:
            if self._scalars:
                input_feed = self._fed(input_feed)
            if run_options is None and self._profile is None and not self._sparse:
                return self._model.run(output_names or None, input_feed)
            for adapter in getattr(run_options, "_adapters", ()):
                parameters = {name: value._value for name, value in adapter.parameters.items()}
                input_feed = {**parameters, **input_feed}
            return self._run(self._model, output_names, input_feed, run_options)
        except RunError as error:
            return self._run_otherwise(error, output_names, input_feed, run_options)

    def _fed(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feeds with elements in the place of arrays of one for scalars: ONNX Runtime holds inputs of
        shape [] to no rank."""
        if not isinstance(feeds, Mapping):
            return feeds
        arrays = {name: feeds[name] for name in self._scalars if name in feeds}
        elements = {name: found for name, a in arrays.items() if (found := _only_element(a)) is not a}
        return {**feeds, **elements} if elements else feeds


class InferenceSession(Session):
    """A model ready to run."""

    _source: Any

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Providers = None,
        provider_options: Sequence[dict[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        """path_or_bytes: the path of a model or of a compiled library, or a model as bytes or an
        onnx.ModelProto. Keywords beside ONNX Runtime's: progress and all options of `onnxc.compile` (dims,
        shapes, values, precision, ...) but those that say where and under which names outputs are written;
        threads: as for `onnxc.load`. Raises what ONNX Runtime raises, which is also an onnxc.OnnxcError."""
        self._enable_fallback = int(kwargs.pop("enable_fallback", 1)) == 1
        self._further, self._lock = {}, ProcessLock()
        self._profile, self._profile_start = None, 0
        for ignored in ("disabled_optimizers", "read_config_from_model"):
            kwargs.pop(ignored, None)
        threads, progress = kwargs.pop("threads", None), kwargs.pop("progress", None)
        _require_source(path_or_bytes)
        if sess_options is not None and not hasattr(sess_options, "intra_op_num_threads"):
            raise TypeError(f"sess_options is of type SessionOptions, not {type(sess_options).__name__}")
        self._given = sess_options._copy() if sess_options and hasattr(sess_options, "_copy") else None
        if providers is not None and (provider_options or providers != ["CPUExecutionProvider"]):
            self.set_providers(providers, provider_options)
        if self._given is not None and "onnxc.optimize" in self._given._entries:
            kwargs["optimize"] = self._given._entries["onnxc.optimize"]
        threads = threads or _threads(sess_options) or None
        self._source = path_or_bytes
        self._keywords = {**kwargs, "threads": threads}

        def open_model(**further: Any) -> Model:
            asked = {**kwargs, **further}
            return opened(lambda: _library(path_or_bytes, self._given, asked, progress), threads)

        self._open = open_model
        try:
            self._model = open_model()
        except OnnxcError as error:
            from .failures import translated

            raise translated(error, path_or_bytes) from None
        self._sparse = self._model.description.get("sparse", ())
        self._scalars = [p.name for p in self._model.inputs if p.kind == "tensor" and p.shape == ()]
        if self._given is not None and self._given.enable_profiling:
            self._profile, self._profile_start = [], time.monotonic_ns()

    def __getstate__(self) -> Any:
        """Pickled as what it was opened of, which is opened again; a subclass may have a state of its own."""
        return self._source, self._given, self._keywords

    def __setstate__(self, state: Any) -> None:
        source, options, keywords = state
        InferenceSession.__init__(self, source, options, **keywords)

    def __enter__(self) -> InferenceSession:
        return self

    def __exit__(self, *_: object) -> None:
        """Frees contexts and threads."""
        for model in (self._model, *self._further.values()):
            if model is not None:
                model.close()

    def __repr__(self) -> str:
        return f"<InferenceSession of {self._model!r}>"

    def _repr_html_(self) -> str:
        return self._model._repr_html_()


def _only_element(value: Any) -> Any:
    """The element of an array, or of a list, that has one; else the value."""
    if isinstance(value, list) and len(value) == 1:
        return _only_element(value[0])
    of_one = isinstance(value, np.ndarray) and value.ndim > 0 and value.size == 1
    return value.reshape(()) if of_one else value


def _require_source(source: object) -> None:
    """TypeError unless a model may be of this type."""
    if isinstance(source, (str, bytes, os.PathLike)):
        return
    onnx = sys.modules.get("onnx")
    if onnx is None or not isinstance(source, onnx.ModelProto):
        raise TypeError(f"Unable to load from type '{type(source)}'")


def _threads(options: Any) -> int:
    """How many threads the options ask for; 0 where they leave it open."""
    if options is None:
        return 0
    if not getattr(options, "use_per_session_threads", True):
        from . import environment

        return max(environment.global_threads, 0)
    return max(options.intra_op_num_threads, 0)


def _library(source: Any, settings: SessionOptions | None, asked: Mapping[str, Any], progress: Any) -> Found:
    """The library to load for a path, bytes or ModelProto. asked: options of compilation, by name."""
    plain = (settings is None or settings._plain) and not asked
    if plain and isinstance(source, (str, os.PathLike)):
        if not registered() and (found := by_path(os.fspath(source))) is not None:
            return found
        if is_library(source):
            return Found(os.fspath(source))
    from .settled import library

    return library(source, settings, asked, progress)
