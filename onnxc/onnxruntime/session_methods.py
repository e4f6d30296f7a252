"""What a session can do beside running and telling its inputs and outputs: methods of `InferenceSession`
(`session.py`), imported when one of them is first asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..errors import OnnxcError, RunError
from ..loading.c_values import OVERLAP, WRONG_COUNT
from ..loading.loader import Model

if TYPE_CHECKING:
    from ..loading.forks import ProcessLock
    from ..loading.timing import Timing
    from .binding import IOBinding, SessionIOBinding
    from .devices import OrtEpAssignedSubgraph, OrtEpDevice, OrtMemoryInfo
    from .kinds import OrtDeviceVendorId
    from .options import RunOptions, SessionOptions
    from .ports import ModelMetadata, NodeArg
    from .providers import Providers
    from .session import Session
    from .values import NativeValue, OrtValue, OrtValueVector


class SessionMethods:
    """Methods of sessions, and what they know of one."""

    _model: Model  # that serves runs which ask for nothing special
    _open: Callable[..., Model]
    _keywords: dict[str, Any]  # options of compilation and `threads`
    #: Compiled once more, by the initializers that runs give, their states, and shapes (`sharing.py`).
    _further: dict[tuple[frozenset[str], tuple[Any, ...], tuple[Any, ...]], Model | None]
    _lock: ProcessLock  # of who compiles
    _given: SessionOptions | None  # options
    _enable_fallback: bool
    _profile: list[dict[str, object]] | None
    _profile_start: int
    _sparse: Sequence[str]  # inputs and outputs that the model declares as sparse
    _source: Any  # what it was opened of
    get_inputs: Callable[[], list[NodeArg]]
    get_outputs: Callable[[], list[NodeArg]]
    run: Callable[..., list[Any]]
    _fed: Callable[[Mapping[str, Any]], Mapping[str, Any]]

    # What it tells ------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The compiled model behind the session."""
        return self._model

    @property
    def _sess(self) -> SessionMethods:
        return self

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        from .options import SessionOptions

        if self._given is None:
            self._given = SessionOptions()
        return self._given

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that are also inputs: runs may give them."""
        from .ports import NodeArg, type_text

        entries = self._model.description.get("overridable", ())
        return [NodeArg(e["name"], type_text(e["dtype"]), list(e["shape"])) for e in entries]

    def get_modelmeta(self) -> ModelMetadata:
        from .ports import ModelMetadata

        return ModelMetadata(self._model)

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {"CPUExecutionProvider": {}}

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        from .devices import processor_memory

        return [processor_memory() for _ in self._model.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        from .devices import processor_memory

        return [processor_memory() for _ in self._model.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        from .devices import OrtEpDevice

        return [OrtEpDevice() for _ in self._model.inputs]

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """One subgraph with the model's operators, where the session's configuration asks for it."""
        from .devices import OrtEpAssignedNode, OrtEpAssignedSubgraph
        from .failures import Fail, made

        key = "session.record_ep_graph_assignment_info"
        if self.get_session_options()._entries.get(key) != "1":
            raise made(Fail, f"Session configuration entry '{key}' must be set to \"1\" to retrieve it.")
        counts = self._model.description.get("operators", {})
        nodes = [
            OrtEpAssignedNode("", name.rpartition(".")[0], name.rpartition(".")[2])
            for name, count in counts.items()
            for _ in range(count)
        ]
        return [OrtEpAssignedSubgraph(nodes)]

    def get_tuning_results(self) -> list[Any]:
        """None: nothing is tuned when a model runs."""
        return []

    # The same as fields, which programs read and set though they are ONNX Runtime's own ----------------

    @cached_property
    def _model_path(self) -> str | None:
        return os.fspath(self._source) if isinstance(self._source, (str, os.PathLike)) else None

    @cached_property
    def _model_bytes(self) -> bytes | None:
        return self._source if isinstance(self._source, bytes) else None

    _sess_options = cached_property(get_session_options)
    _inputs_meta = cached_property(lambda self: self.get_inputs())
    _outputs_meta = cached_property(lambda self: self.get_outputs())
    _overridable_initializers = cached_property(get_overridable_initializers)
    _model_meta = cached_property(get_modelmeta)
    _providers = cached_property(get_providers)
    _provider_options = cached_property(get_provider_options)

    # What it is told ----------------------------------------------------------------------------------

    def set_providers(
        self, providers: Providers = None, provider_options: Sequence[dict[Any, Any]] | None = None
    ) -> None:
        """Warns of providers that are not there; the processor stays the one."""
        from .providers import require_known

        require_known(providers, provider_options, self._enable_fallback)

    def disable_fallback(self) -> None:
        """Makes providers that are unknown an error."""
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        """Makes the processor take the place of providers that are unknown."""
        self._enable_fallback = True

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Without effect: the processor has none."""
        if not options:
            raise RuntimeError("No options were provided")

    def set_tuning_results(self, results: list[Any], *, error_on_invalid: bool = False) -> None:
        """Without effect: nothing is tuned when a model runs."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Without effect: nothing is captured."""

    # Runs ---------------------------------------------------------------------------------------------

    def _run_otherwise(
        self,
        error: RunError,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None,
    ) -> list[Any]:
        """The run again where it only needs other code, or the same feeds as the library takes them, else the
        error as ONNX Runtime has it."""
        from .failures import missing_inputs, translated
        from .feeds import as_taken

        if not isinstance(input_feed, Mapping):
            raise translated(error) from None
        optional = {port.name for port in self._model.inputs if port.optional or port.kind == "optional"}
        missing = [p.name for p in self._model.inputs if p.name not in input_feed and p.name not in optional]
        if missing:
            raise missing_inputs(error, missing, list(input_feed)) from None
        feeds = as_taken(self._model.inputs, input_feed)
        given = frozenset(p.name for p in self.get_overridable_initializers() if p.name in feeds)
        if not given and feeds is input_feed:
            raise translated(error) from None
        try:
            return self._run(self._for_initializers(given), output_names, feeds, run_options)
        except OnnxcError as again:
            raise translated(again) from None

    def _for_initializers(self, given: frozenset[str]) -> Model:
        """The model compiled for runs that give these initializers."""
        if not given:
            return self._model
        key = given, (), ()
        with self._lock:
            model = self._further[key] = self._further.get(key) or self._open(overridable=given)
            return model

    def _run(
        self,
        model: Model,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        options: RunOptions | None,
        memory: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        """A run that can be ended and is written down where the session profiles."""
        if options is not None:
            from .options import RunOptions

            if not isinstance(options, RunOptions):
                raise TypeError(f"run_options is of type RunOptions, not {type(options).__name__}")
        wanted = model.output_numbers(output_names or None)
        given = model.memory(memory or {})
        values = model.in_order(feeds)
        context = model.acquire()
        try:
            with nullcontext() if options is None else options._ends(context):
                if self._profile is None:
                    results = context.run(values, given)
                else:
                    from ..loading.timing import run_timed

                    results, timings = run_timed(context, values, given)
                    self._record(timings)
            model.check_shapes(context, given)
        finally:
            model.give_back(context)
        if sparse := self._sparse:
            from .sparse import NativeSparseTensor

            for k, port in enumerate(model.outputs):
                if port.name in sparse:
                    results[k] = NativeSparseTensor._from_dense(results[k])
        return [results[k] for k in wanted]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list, Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs in a thread, which then calls callback(results, user_data, error): an empty text, or what went
        wrong and no results."""
        import threading

        missing = {port.name for port in self._model.inputs if not port.optional and port.kind != "optional"}
        if absent := sorted(missing - input_feed.keys()):
            raise ValueError(f"Required inputs ({absent}) are missing from input feed ({list(input_feed)}).")
        if not callable(callback):
            raise TypeError(f"the callback is a {type(callback).__name__}, which cannot be called")

        def work() -> None:
            try:
                results, problem = self.run(output_names, input_feed, run_options), ""
            except Exception as error:
                results, problem = [], str(error)
            callback(results, user_data, problem)

        threading.Thread(target=work, daemon=True).start()

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, NativeValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, of OrtValues to OrtValues."""
        from .values import OrtValue

        feeds = {name: value._value for name, value in input_dict_ort_values.items()}
        results = self.run(output_names, feeds, run_options)
        return [OrtValue(value) for value in self._values(output_names, results)]

    def _values(self, output_names: Sequence[str] | None, results: Sequence[Any]) -> list[NativeValue]:
        from .values import NativeValue

        types = self._output_types
        return [NativeValue._of(value, types[n]) for n, value in zip(output_names or types, results)]

    @cached_property
    def _output_types(self) -> dict[str, str]:
        """The types of all outputs as ONNX Runtime writes them, in order."""
        return {arg.name: arg.type for arg in self.get_outputs()}

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any],
    ) -> None:
        """As `run`, of a vector of OrtValues; the results are put behind each other into `fetches`."""
        named = {name: value._value for name, value in zip(feed_names, feeds)}
        for value in self._values(fetch_names, self.run(fetch_names, named, run_options)):
            fetches.push_back(value)

    @cached_property
    def _bindable(self) -> frozenset[str]:
        """What an IOBinding may bind as input."""
        return frozenset(a.name for a in (*self.get_inputs(), *self.get_overridable_initializers()))

    def io_binding(self) -> IOBinding:
        """An object to bind inputs and outputs with."""
        from .binding import IOBinding

        return IOBinding(cast("Session", self))

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs on the inputs that are bound, and leaves the results where outputs are bound."""
        from .values import NativeValue, OrtValueVector

        if iobinding._session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        bound = iobinding._iobinding
        if not bound.outputs:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        feeds = {n: v._value if isinstance(v, NativeValue) else v for n, v in bound.inputs.items()}
        memory = {name: value._value for name, value in bound.outputs.items() if value is not None}
        names = list(bound.outputs)
        try:
            results = self._run_bound(bound, names, self._fed(feeds), run_options, memory)
        except RunError as error:
            from .failures import in_execution

            raise in_execution(error) from None
        except OnnxcError as error:
            from .failures import translated

            raise translated(error) from None
        bound.results = OrtValueVector()
        for name, value in zip(names, results):
            bound.results.push_back(bound.outputs[name] or self._values([name], [value])[0])

    def _run_bound(
        self,
        bound: SessionIOBinding,
        names: Sequence[str],
        feeds: Mapping[str, Any],
        options: RunOptions | None,
        memory: Mapping[str, np.ndarray],
    ) -> list[Any]:
        """A run on what is bound, by the session's own library unless that cannot be."""
        found = bound.way
        if found is None and not self._further:
            try:
                return self._run(self._model, names, feeds, options, memory)
            except RunError as error:
                if error.status not in (OVERLAP, WRONG_COUNT):
                    raise
        if found is None:
            from .sharing import way

            bound.way = found = way(self, feeds, memory)
        if not found.copied:
            return self._run(found.model, names, feeds, options, memory)
        places = {name: np.empty_like(a) if name in found.copied else a for name, a in memory.items()}
        results = self._run(found.model, names, feeds, options, places)
        for name in found.copied:
            np.copyto(memory[name], places[name])
        return results

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: object,
        device_type: str,
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
    ) -> OrtValue:
        """Memory for a tensor; see `OrtValue.ortvalue_from_shape_and_type`."""
        from .values import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # Profiles -----------------------------------------------------------------------------------------

    def _record(self, timings: Sequence[Timing]) -> None:
        """Adds a run that has just ended to the profile."""
        assert self._profile is not None
        ns = time.monotonic_ns() - self._profile_start - sum(timing.ns for timing in timings)
        for timing in timings:
            self._profile.append(timing.event(ns))
            ns += timing.ns

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, by `time.monotonic_ns`; 0 without it."""
        return self._profile_start

    def end_profiling(self) -> str:
        """Writes what runs took, in the format of Chrome's traces; the name of the file."""
        if self._profile is None:
            return ""
        import json

        from .written import write

        events, self._profile = self._profile, None
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(now))}_{int(now * 1000) % 1000:03}"
        name = f"{self.get_session_options().profile_file_prefix}_{stamp}.json"
        write(name, json.dumps(events).encode())
        return name
