"""onnxc in the place of ONNX Runtime: its Python module for inference, by the same names.

    import onnxc.onnxruntime as onnxruntime         # a program that can be edited
    onnxc.onnxruntime.install()                      # before one that imports onnxruntime itself
    python -m onnxc.onnxruntime PROGRAM ARGUMENTS    # one that cannot be edited

docs/onnxruntime.md says what differs. A name is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from . import capi
    from .adapters import AdapterFormat, LoraAdapter
    from .binding import IOBinding, SessionIOBinding
    from .devices import (
        OrtArenaCfg,
        OrtDevice,
        OrtEpAssignedNode,
        OrtEpAssignedSubgraph,
        OrtEpContextData,
        OrtEpContextDataBuffer,
        OrtEpDevice,
        OrtExternalInitializerInfo,
        OrtHardwareDevice,
        OrtMemoryInfo,
        OrtSyncStream,
    )
    from .enumerations import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        OrtExecutionProviderDevicePolicy,
    )
    from .environment import (
        create_and_register_allocator,
        create_and_register_allocator_v2,
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_build_info,
        get_device,
        get_ep_devices,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        register_execution_provider_library,
        set_default_logger_callback,
        set_default_logger_severity,
        set_default_logger_verbosity,
        set_global_thread_pool_sizes,
        set_seed,
        unregister_execution_provider_library,
    )
    from .installation import install
    from .kinds import (
        ModelPackageWriteMode,
        OrtAllocatorType,
        OrtCompileApiFlags,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtHardwareDeviceType,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
    )
    from .offline import ModelCompiler
    from .options import RunOptions, SessionOptions
    from .package_sessions import ModelPackageComponentContext, ModelPackageContext, ModelPackageOptions
    from .packages import ModelPackage
    from .ports import ModelMetadata, NodeArg
    from .session import InferenceSession
    from .sparse import SparseTensor
    from .values import OrtValue, copy_tensors

#: The names of each module, which are public.
_NAMES = {
    "adapters": "AdapterFormat LoraAdapter",
    "binding": "IOBinding SessionIOBinding",
    "devices": "OrtArenaCfg OrtDevice OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextData "
    "OrtEpContextDataBuffer OrtEpDevice OrtExternalInitializerInfo OrtHardwareDevice OrtMemoryInfo "
    "OrtSyncStream",
    "enumerations": "ExecutionMode ExecutionOrder GraphOptimizationLevel OrtExecutionProviderDevicePolicy",
    "environment": "create_and_register_allocator create_and_register_allocator_v2 disable_telemetry_events "
    "enable_telemetry_events get_all_providers get_available_providers get_build_info get_device "
    "get_ep_devices get_version_string has_collective_ops preload_dlls print_debug_info "
    "register_execution_provider_library "
    "set_default_logger_callback set_default_logger_severity set_default_logger_verbosity "
    "set_global_thread_pool_sizes set_seed unregister_execution_provider_library",
    "installation": "install",
    "kinds": "ModelPackageWriteMode OrtAllocatorType OrtCompileApiFlags OrtDeviceMemoryType "
    "OrtDeviceVendorId OrtHardwareDeviceType OrtMemoryInfoDeviceType OrtMemType OrtSparseFormat",
    "offline": "ModelCompiler",
    "options": "RunOptions SessionOptions",
    "package_sessions": "ModelPackageComponentContext ModelPackageContext ModelPackageOptions",
    "packages": "ModelPackage",
    "ports": "ModelMetadata NodeArg",
    "session": "InferenceSession",
    "sparse": "SparseTensor",
    "values": "OrtValue copy_tensors",
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}

#: The version of ONNX Runtime whose interface this is.
__version__: str = "1.32.0"
version: str = __version__
package_name: str = "onnxruntime"
cuda_version: str = ""

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "capi",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
    "version",
]


def __getattr__(name: str) -> object:
    if name == "capi":
        return _import_module(f"{__name__}.capi")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
