"""ONNX Runtime's enumerations of memory, devices, makers and files, which few programs name."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from .enumerations import Enumeration


class ArenaExtendStrategy(Enumeration):
    kNextPowerOfTwo = 0
    kSameAsRequested = 1


class OrtAllocatorType(Enumeration):
    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(Enumeration):
    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(Enumeration):
    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(Enumeration):
    CPU = 0
    GPU = 1
    NPU = 3
    FPGA = 2


class OrtHardwareDeviceType(Enumeration):
    CPU = 0
    GPU = 1
    NPU = 2


class ModelPackageWriteMode(Enumeration):
    PRESERVE = 0
    DENSE = 1


class OrtSparseFormat(Enumeration):
    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtCompiledModelCompatibility(Enumeration):
    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtCompileApiFlags(IntFlag):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtDeviceVendorId(IntEnum):
    """Numbers of makers of devices, as on the PCI bus."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086
