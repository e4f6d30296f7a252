"""SessionOptions and RunOptions, as ONNX Runtime has them.

Honoured are the numbers of threads, profiling, `optimized_model_filepath`, sizes of free dimensions,
initializers that are given, and `terminate`. What names a choice that onnxc does not have (arenas, memory
patterns, levels of optimisation, orders of execution, levels of logs) is kept, can be read back, and changes
nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import ref

from ..loading.forks import ProcessLock
from .enumerations import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtExecutionProviderDevicePolicy,
)
from .failures import Fail, InvalidArgument, made

if TYPE_CHECKING:
    from ..loading.context import Context
    from .adapters import LoraAdapter
    from .devices import OrtEpDevice


T = TypeVar("T")

KEY_BYTES = 1024  # of a configuration entry's name, at most

#: Held while runs are told to end, and by each when it has ended: its context may then be another's. What
#: handles a signal may come in between.
_ENDING = ProcessLock()


class _Setting(Generic[T]):
    """An attribute of one type with a default."""

    def __init__(self, default: T, meaning: str):
        self.default, self.kind, self.__doc__ = default, type(default), meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self.name: str = f"_{name}"

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else getattr(instance, self.name, self.default)

    def __set__(self, instance: object, value: T) -> None:
        object.__setattr__(instance, self.name, _taken(self.name[1:], self.kind, value))


def _taken(name: str, kind: type, value: Any) -> Any:
    """A value as ONNX Runtime takes it: of a bool whatever tells whether it is true, of an int 32 bits."""
    if kind is bool and (value is None or hasattr(value, "__bool__")):
        value = bool(value)
    elif kind is int and hasattr(value, "__index__"):
        value = int(value)
        if not -(1 << 31) <= value < 1 << 31:
            raise TypeError(f"{name}={value} has more than 32 bits")
    if not isinstance(value, kind):
        raise TypeError(f"{name} is of type {kind.__name__}, not {type(value).__name__}")
    return value


class _Options:
    """Settings and no other attributes, and entries of text."""

    _title = ""

    _entries: dict[str, str]

    def __init__(self) -> None:
        self._entries = {}

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        object.__setattr__(self, name, value)

    def _keep(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError("a configuration entry is a pair of texts")
        if not 0 < len(key.encode()) <= KEY_BYTES:
            raise RuntimeError(f"Config key is empty or longer than maximum length {KEY_BYTES}")
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        try:
            return self._entries[key]
        except KeyError:
            raise RuntimeError(f"{self._title} does not have configuration with key: {key}") from None


class SessionOptions(_Options):
    """How a session is to be made."""

    _title = "SessionOptions"

    enable_cpu_mem_arena: _Setting[bool] = _Setting(True, "Kept, without effect.")
    enable_mem_pattern: _Setting[bool] = _Setting(True, "Kept, without effect: memory is planned always.")
    enable_mem_reuse: _Setting[bool] = _Setting(True, "Kept, without effect.")
    enable_profiling: _Setting[bool] = _Setting(
        False, "Whether runs write what each step takes; see `end_profiling`."
    )
    execution_mode: _Setting[ExecutionMode] = _Setting(
        ExecutionMode.ORT_SEQUENTIAL, "Kept, without effect: nodes run in order."
    )
    execution_order: _Setting[ExecutionOrder] = _Setting(ExecutionOrder.DEFAULT, "Kept, without effect.")
    graph_optimization_level: _Setting[GraphOptimizationLevel] = _Setting(
        GraphOptimizationLevel.ORT_ENABLE_ALL, "Kept, without effect: models are compiled as fast code."
    )
    inter_op_num_threads: _Setting[int] = _Setting(0, "Kept, without effect: nodes run in order.")
    intra_op_num_threads: _Setting[int] = _Setting(0, "Threads of a run; 0: one a processor.")
    log_severity_level: _Setting[int] = _Setting(-1, "Kept, without effect.")
    log_verbosity_level: _Setting[int] = _Setting(0, "Kept, without effect.")
    logid: _Setting[str] = _Setting("", "Kept, without effect.")
    optimized_model_filepath: _Setting[str] = _Setting(
        "", "Where to write the model as it is compiled, or, to a name that ends in .so, its library."
    )
    profile_file_prefix: _Setting[str] = _Setting(
        "onnxruntime_profile_", "What names of profiles begin with."
    )
    use_deterministic_compute: _Setting[bool] = _Setting(
        False, "Kept, without effect: runs are the same bits always."
    )
    use_per_session_threads: _Setting[bool] = _Setting(
        True, "False: as many threads as `set_global_thread_pool_sizes` said."
    )

    def __init__(self) -> None:
        super().__init__()
        self._sizes: dict[str, int] = {}  # by name
        self._denoted: dict[str, int] = {}  # by denotation
        self._initializers: dict[str, Any] = {}
        self._external: dict[str, Any] = {}
        self._files: dict[str, bytes] = {}
        self._cancelled = False
        self._providers: dict[str, dict[str, str]] = {}

    def add_session_config_entry(self, key: str, value: str, /) -> None:
        """Keeps a pair of texts. Those that name the folder of external data, and ask for the assignment of
        nodes to providers, have their effect."""
        self._keep(key, value)

    def get_session_config_entry(self, key: str, /) -> str:
        """What was kept; RuntimeError without an entry."""
        return self._entry(key)

    @property
    def _data_folder(self) -> str | None:
        """Where the model's external data lie, if that is not beside it."""
        return self._entries.get("session.model_external_initializers_file_folder_path")

    @property
    def _edited(self) -> bool:
        """Whether the model is changed before it is compiled."""
        return bool(self._initializers or self._external or self._files or self._data_folder)

    @property
    def _plain(self) -> bool:
        """Whether the library is the one that the model has without options."""
        sized = self._sizes or self._denoted
        return not (self._edited or sized or self.optimized_model_filepath or self._cancelled)

    def add_free_dimension_override_by_name(self, name: str, size: int, /) -> None:
        """Gives a named dimension of the inputs its size; the first size counts."""
        self._sizes.setdefault(name, int(size))

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int, /) -> None:
        """Gives all dimensions of this denotation a size; the first size counts."""
        self._denoted.setdefault(denotation, int(size))

    def add_initializer(self, name: str, value: object, /) -> None:
        """Takes an OrtValue in the place of the model's initializer of that name."""
        self._initializers[name] = value

    def add_external_initializers(self, names: list[str], values: list[Any], /) -> None:
        """Gives the values of initializers that the model stores outside of its file."""
        if len(names) != len(values):
            raise RuntimeError("Expecting names and ort_values lists to have equal length")
        self._external.update(zip(names, values))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int], /
    ) -> None:
        """Gives what the model's external files of these names hold."""
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError("Expecting names, buffers and lengths to have equal length")
        for name, buffer, length in zip(names, buffers, lengths):
            self._files[name] = bytes(memoryview(buffer).cast("B")[: int(length)])

    def add_provider(self, name: str, options: Mapping[str, str], /) -> None:
        """Asks for an execution provider: there is that of the processor."""
        from .environment import get_all_providers, get_available_providers

        if name not in get_all_providers():
            raise RuntimeError(f"Unknown Provider Type: {name}")
        if name not in get_available_providers():
            raise made(
                InvalidArgument,
                f"Failed to add provider of type '{name}' to SessionOptions. "
                "Provider configuration is not supported.",
            )
        self._providers[name] = dict(options)

    def add_provider_for_devices(self, devices: Sequence[OrtEpDevice], options: Mapping[str, str], /) -> None:
        """Asks for the provider of devices that `get_ep_devices` names."""
        for device in devices:
            self._providers[device.ep_name] = dict(options)

    def has_providers(self) -> bool:
        """Whether a provider was asked for."""
        return bool(self._providers)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy, /) -> None:
        """Without effect: there is one provider."""

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any], /) -> None:
        """Without effect: there is one provider."""

    def set_ep_context_data_read_func(
        self, read_func: Callable[[str, Any], None], max_data_size: int
    ) -> None:
        """Without effect: no provider keeps such data."""

    def clear_ep_context_data_read_func(self) -> None:
        """Without effect: no provider keeps such data."""

    def set_load_cancellation_flag(self, cancel: bool, /) -> None:
        """Whether sessions made with these options are refused with ModelLoadCanceled."""
        self._cancelled = bool(cancel)

    def register_custom_ops_library(self, path: str, /) -> None:
        """Raises Fail: operators of such a library are machine code that onnxc cannot compile."""
        raise made(Fail, f"custom operators are not supported: {path}")

    def _copy(self) -> SessionOptions:
        """Options of its own for a session."""
        found = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict):
                object.__setattr__(found, name, dict(value))
        return found


class RunOptions(_Options):
    """How a run is to go. Setting `terminate` ends the runs under way with these options."""

    _title = "RunOptions"

    log_severity_level: _Setting[int] = _Setting(-1, "Kept, without effect.")
    log_verbosity_level: _Setting[int] = _Setting(0, "Kept, without effect.")
    logid: _Setting[str] = _Setting("", "Kept, without effect.")
    only_execute_path_to_fetches: _Setting[bool] = _Setting(
        False, "Kept, without effect: all outputs are computed."
    )

    def __init__(self) -> None:
        super().__init__()
        self._terminate = False
        self._running: list[ref[Context]] = []

    @property
    def terminate(self) -> bool:
        """True ends calls with these options, those to come and those under way, which raise Fail."""
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = _taken("terminate", bool, value)
        with _ENDING:
            for running in self._running if self._terminate else ():
                if (context := running()) is not None:
                    context.cancel()

    @contextmanager
    def _ends(self, context: Context) -> Iterator[None]:
        """While this lasts, the options end what runs in the context; then nothing that others run there."""
        running = ref(context)  # it is whose call it is
        try:
            self._running.append(running)
            if self.terminate:
                raise made(Fail, "Exiting due to terminate flag being set to true.")
            yield
        finally:
            with _ENDING, suppress(ValueError):  # what handled a signal came first
                self._running.remove(running)

    def add_run_config_entry(self, key: str, value: str, /) -> None:
        """Keeps a pair of texts. `onnxc.optimize` is `full` or `fast`, as for `onnxc.compile`; others have no
        effect."""
        self._keep(key, value)

    def get_run_config_entry(self, key: str, /) -> str:
        """What was kept; RuntimeError without an entry."""
        return self._entry(key)

    def add_active_adapter(self, adapter: LoraAdapter, /) -> None:
        """Feeds the adapter's parameters to the inputs of their names in every run with these options."""
        self._adapters = (*getattr(self, "_adapters", ()), adapter)


def get_default_session_options() -> SessionOptions:
    return SessionOptions()
