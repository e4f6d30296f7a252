"""What ONNX Runtime writes in Python."""

from ..adapters import AdapterFormat
from ..binding import IOBinding
from ..devices import OrtDevice
from ..kinds import OrtDeviceVendorId
from ..offline import ModelCompiler
from ..providers import check_and_normalize_provider_args
from ..session import InferenceSession, Session
from ..sparse import SparseTensor
from ..values import OrtValue, copy_tensors

__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "SparseTensor",
    "check_and_normalize_provider_args",
    "copy_tensors",
]
