"""What ONNX Runtime's module says of itself and of the machine, and what it is told for all sessions."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

from .devices import OrtArenaCfg, OrtEpDevice, OrtHardwareDevice, OrtMemoryInfo
from .failures import Fail, made

#: The version of ONNX Runtime whose Python interface this is.
VERSION = "1.32.0"

_PROVIDERS = (
    "NvTensorRTRTX Tensorrt CUDA MIGraphX OpenVINO Dnnl VitisAI QNN Nnapi VSINPU Js CoreML ACL Dml Rknpu "
    "WebNN WebGpu Xnnpack CANN Azure CPU"
)
_UNRAISABLE = ("exc_type", "exc_value", "exc_traceback", "err_msg", "object")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)

#: Threads of sessions that do not have their own (`set_global_thread_pool_sizes`).
global_threads: int = 0


def get_available_providers() -> list[str]:
    """The execution providers that there are."""
    return ["CPUExecutionProvider"]


def get_all_providers() -> list[str]:
    """The execution providers that ONNX Runtime knows."""
    return [f"{name}ExecutionProvider" for name in _PROVIDERS.split()]


def get_ep_devices() -> list[OrtEpDevice]:
    return [OrtEpDevice()]


def get_device() -> str:
    return "CPU"


def get_build_info() -> str:
    from ..version import __version__

    return f"ORT Build Info: onnxc {__version__} in its place"


def get_version_string() -> str:
    return VERSION


def has_collective_ops() -> bool:
    return False


def set_default_logger_severity(severity: int, /) -> None:
    """What the logger "onnxc" tells: 0 all, 1 information, 2 warnings, 3 errors, 4 what is fatal."""
    if not 0 <= severity <= 4:
        raise RuntimeError("Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")
    logging.getLogger("onnxc").setLevel(_LEVELS[severity])


class _Caller(logging.Handler):
    """Gives what is logged to a function of the program's."""

    def __init__(self, callback: Callable[[int, str, str, str, str], None]):
        super().__init__()
        self.callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        severity = sum(record.levelno >= level for level in _LEVELS[1:])
        place = f"{record.filename}:{record.lineno} {record.funcName}"
        try:
            self.callback(severity, record.name, "", place, record.getMessage())
        except Exception as error:
            what = (type(error), error, error.__traceback__, "a callback of the logger", self.callback)
            sys.unraisablehook(cast(Any, SimpleNamespace(**dict(zip(_UNRAISABLE, what)))))


def set_default_logger_callback(callback: Callable[..., None] | None, severity: int = 2) -> None:
    """Gives what the logger "onnxc" tells to `callback(severity, category, logid, place, message)`, and to
    nobody else; None ends that."""
    if callback is not None and not callable(callback):
        raise RuntimeError("callback must be a callable")
    logger = logging.getLogger("onnxc")
    if callback is not None or not 0 <= severity <= 4:
        set_default_logger_severity(severity)
    for handler in [handler for handler in logger.handlers if isinstance(handler, _Caller)]:
        logger.removeHandler(handler)
    logger.propagate = callback is None
    if callback is not None:
        logger.addHandler(_Caller(callback))


def set_default_logger_verbosity(verbosity: int, /) -> None:
    """Without effect."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Threads of sessions made with `use_per_session_threads = False`, each of which has as many."""
    global global_threads
    global_threads = int(intra_op_num_threads)


def set_seed(seed: int, /) -> None:
    """Without effect: random operators without a seed of their own draw from the system."""


def enable_telemetry_events() -> None:
    """Without effect: nothing is ever sent."""


def disable_telemetry_events() -> None:
    """Without effect: nothing is ever sent."""


def create_and_register_allocator(memory: OrtMemoryInfo, arena: OrtArenaCfg | None, /) -> None:
    """Without effect: models allocate nothing that could be shared."""


def create_and_register_allocator_v2(
    provider: str, memory: OrtMemoryInfo, options: Mapping[str, str], arena: OrtArenaCfg | None, /
) -> None:
    """Without effect: models allocate nothing that could be shared."""


def register_execution_provider_library(name: str, path: str, /) -> None:
    """Raises Fail: there is the processor alone."""
    raise made(Fail, f"Failed to load library {path}: onnxc has no execution providers beside the processor")


def unregister_execution_provider_library(name: str, /) -> None:
    """Raises Fail: none is ever registered."""
    raise made(Fail, f"Execution provider library: {name} was not registered.")


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None) -> None:
    """Without effect: nothing is needed beside the C library."""


def print_debug_info() -> None:
    """Prints versions and the machine."""
    import platform

    from ..target import find_target
    from ..version import __version__

    print(f"onnxc version: {__version__}, with the interface of onnxruntime {VERSION}")
    print("platform:", platform.platform())
    print("code for:", find_target().name)


def get_hardware_devices() -> list[OrtHardwareDevice]:
    return [OrtHardwareDevice()]
