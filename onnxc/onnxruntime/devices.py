"""Devices, memory and execution providers as ONNX Runtime describes them: here there is the processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .kinds import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)

CPU, GPU, FPGA, NPU = range(4)
_TYPES = {"cpu": CPU, "cuda": GPU, "cann": NPU, "dml": GPU, "webgpu": GPU, "gpu": GPU, "npu": NPU}
_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
    "webgpu": OrtDeviceVendorId.NONE,
}


class NativeDevice:
    """A device by numbers: `NativeDevice(type, memory, id)` or `NativeDevice(type, memory, vendor, id)`."""

    def __init__(self, *numbers: int):
        if len(numbers) not in (3, 4):
            raise TypeError("a device is a type, a kind of memory, a vendor if any, and a number")
        self._type, self._memory, *vendor, self._id = map(int, numbers)
        self._vendor = vendor[0] if vendor else 0

    def device_type(self) -> int:
        return self._type

    def mem_type(self) -> int:
        return self._memory

    def vendor_id(self) -> int:
        return self._vendor

    def device_id(self) -> int:
        return self._id

    @staticmethod
    def cpu() -> int:
        return CPU

    @staticmethod
    def cuda() -> int:
        return GPU

    @staticmethod
    def gpu() -> int:
        return GPU

    @staticmethod
    def dml() -> int:
        return GPU

    @staticmethod
    def webgpu() -> int:
        return GPU

    @staticmethod
    def fpga() -> int:
        return FPGA

    @staticmethod
    def cann() -> int:
        return NPU

    @staticmethod
    def npu() -> int:
        return NPU

    @staticmethod
    def default_memory() -> int:
        return 0


NativeDevice.__name__ = NativeDevice.__qualname__ = "OrtDevice"


class OrtDevice:
    """A device by name; see `make`."""

    def __init__(self, c_ort_device: NativeDevice):
        if not isinstance(c_ort_device, NativeDevice):
            raise ValueError("`Provided object` needs to be an OrtDevice of onnxruntime.capi._pybind_state")
        self._ort_device = c_ort_device

    def _get_c_device(self) -> NativeDevice:
        return self._ort_device

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int | OrtDeviceVendorId = -1) -> OrtDevice:
        """The device of that name and number: "cpu", or one that nothing can be placed on."""
        if ort_device_name not in _TYPES:
            raise Exception(f"Unsupported device type: {ort_device_name}")
        vendor = vendor_id if vendor_id >= 0 else _VENDORS.get(ort_device_name, OrtDeviceVendorId.NONE)
        return OrtDevice(NativeDevice(_TYPES[ort_device_name], 0, int(vendor), device_id))

    def device_id(self) -> int:
        return self._ort_device.device_id()

    def device_type(self) -> int:
        return self._ort_device.device_type()

    def device_vendor_id(self) -> int:
        return self._ort_device.vendor_id()

    def device_mem_type(self) -> int:
        return self._ort_device.mem_type()


def require_processor(device: NativeDevice) -> None:
    """RuntimeError for a device that there is no memory of."""
    if device.device_type() != CPU:
        raise RuntimeError(
            "Can't allocate memory on the device using this package of OnnxRuntime. Please use the "
            "appropriate package of OnnxRuntime for your hardware to use this feature."
        )


class OrtMemoryInfo:
    """Where memory is."""

    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType, /
    ) -> None:
        self.name: str = name
        self.allocator_type: OrtAllocatorType = allocator_type
        self.device_id: int = int(device_id)
        self.mem_type: OrtMemType = mem_type
        self.device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id: int = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        memory_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
        /,
    ) -> OrtMemoryInfo:
        """The same with more said of the device."""
        found = OrtMemoryInfo(name, allocator_type, device_id, OrtMemType.DEFAULT)
        found.device_vendor_id, found.device_mem_type = int(vendor_id), memory_type
        return found


def processor_memory() -> OrtMemoryInfo:
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)


class OrtArenaCfg:
    """Kept, without effect: `OrtArenaCfg(max_mem, strategy, initial_bytes, dead_bytes)`, or a dict of
    them."""

    _NAMES = (
        "max_mem",
        "arena_extend_strategy",
        "initial_chunk_size_bytes",
        "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes",
        "max_power_of_two_extend_bytes",
    )
    max_mem: int
    arena_extend_strategy: int
    initial_chunk_size_bytes: int
    max_dead_bytes_per_chunk: int
    initial_growth_chunk_size_bytes: int
    max_power_of_two_extend_bytes: int

    def __init__(self, *values: int | Mapping[str, int]):
        first = values[0] if values else {}
        given = dict(first) if isinstance(first, Mapping) else dict(zip(self._NAMES, values))
        if unknown := given.keys() - set(self._NAMES):
            raise RuntimeError(f"Invalid OrtArenaCfg option: {min(unknown)}")
        for name in self._NAMES:
            setattr(self, name, given.get(name, 0 if name == "max_mem" else -1))


class OrtHardwareDevice:
    """The processor."""

    type = OrtHardwareDeviceType.CPU
    vendor: str = ""
    vendor_id: int = 0
    device_id: int = 0

    @property
    def metadata(self) -> dict[str, str]:
        return {}


class OrtEpDevice:
    """The processor, and what runs on it."""

    ep_name: str = "CPUExecutionProvider"
    ep_vendor: str = "onnxc"

    @property
    def ep_metadata(self) -> dict[str, str]:
        from ..version import __version__

        return {"version": __version__}

    @property
    def ep_options(self) -> dict[str, str]:
        return {}

    @property
    def device(self) -> OrtHardwareDevice:
        return OrtHardwareDevice()

    def memory_info(self, memory_type: OrtDeviceMemoryType, /) -> OrtMemoryInfo:
        return processor_memory()

    def create_sync_stream(self) -> OrtSyncStream:
        return OrtSyncStream()


class OrtSyncStream:
    """A stream of a device that has none: what is done is done when a call returns."""

    def get_handle(self) -> int:
        return 0


class OrtEpAssignedNode:
    """A node and the provider's subgraph that it is in."""

    def __init__(self, name: str, domain: str, op_type: str):
        self.name: str = name
        self.domain: str = domain
        self.op_type: str = op_type


class OrtEpAssignedSubgraph:
    """What a provider runs: all of the model."""

    ep_name = "CPUExecutionProvider"

    def __init__(self, nodes: list[OrtEpAssignedNode]):
        self._nodes = nodes

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        return self._nodes


class OrtExternalInitializerInfo:
    """Where an initializer lies in a file."""

    def __init__(self, filepath: str, file_offset: int, byte_size: int, /):
        self.filepath: str = filepath
        self.file_offset: int = int(file_offset)
        self.byte_size: int = int(byte_size)


class _OfProviders:
    """What providers with data of their own hand out: none does here."""

    def __init__(self, *_: Any):
        raise TypeError(f"{type(self).__name__}: No constructor defined!")


class OrtEpContextData(_OfProviders):
    """Data that a provider hands to a callback: no provider has any."""

    size: int = 0

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        return b""


class OrtEpContextDataBuffer(_OfProviders):
    """Memory that a callback fills for a provider: no provider asks for any."""

    is_allocated: bool = False
    max_size: int = 0
    size: int = 0

    def allocate(self, size: int) -> None: ...

    def write(self, data: bytes, offset: int = 0) -> None: ...
