"""OrtValue: a tensor, sequence, map or sparse tensor outside of a model, over memory of numpy."""

from __future__ import annotations

import ctypes
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..ir import dtypes
from ..loading.c_values import element_type
from .devices import NativeDevice, OrtDevice, OrtMemoryInfo, require_processor
from .ports import type_text

if TYPE_CHECKING:
    from typing import Self

    from .kinds import OrtDeviceVendorId
    from .sparse import NativeSparseTensor, SparseTensor

_LONG = {"float": "float32", "double": "float64"}


def dtype_of(kind: object) -> str:
    """The element type that a numpy type or ONNX's number names."""
    if isinstance(kind, (int, np.integer)) and not isinstance(kind, bool):
        if not 1 <= kind <= len(dtypes.ALL):
            raise RuntimeError(f"{kind} is no number of an element type")
        return dtypes.ALL[int(kind) - 1]
    return dtypes.from_numpy(np.dtype(cast(Any, kind)))


def at_address(address: int, shape: Sequence[int], dtype: str, owner: object = None) -> np.ndarray:
    """The tensor at an address, which the caller keeps, or this object as long as the tensor is there."""
    kind = element_type(dtype)
    size = math.prod(shape) * kind.itemsize
    if size == 0:
        return np.empty(tuple(shape), kind)
    if address == 0:
        raise RuntimeError("Pointer to data memory is not valid: it is null")
    memory: Any = (ctypes.c_char * size).from_address(address)
    memory.owner = owner
    return np.frombuffer(memory, kind).reshape(tuple(shape))


class NativeValue:
    """A value and its type, without a constructor for programs."""

    _value: Any  # an array, a list, a dict, a sparse tensor, or None
    _type: str  # as ONNX Runtime writes it

    def __init__(self) -> None:
        raise TypeError("OrtValue: No constructor defined!")

    @classmethod
    def _of(cls, value: object, type_: str | None = None) -> Self:
        """The value, of a type that only tensors can do without."""
        found = cls.__new__(cls)
        found._value = value
        found._type = type_ or type_text(dtypes.from_numpy(cast(np.ndarray, value).dtype))
        return found

    def _array(self, what: str) -> np.ndarray:
        if not self.is_tensor():
            raise RuntimeError(f"Only OrtValues that are Tensors {what}")
        return self._value

    def data_ptr(self) -> int:
        return self._array("have a data pointer").ctypes.data

    def device_name(self) -> str:
        return "cpu"

    def shape(self) -> list[int]:
        if self.is_sparse_tensor():
            return self._value.dense_shape()
        return list(self._array("have a shape").shape)

    def data_type(self) -> str:
        return self._type

    def element_type(self) -> int:
        self._array("have an element type")
        short = self._type[len("tensor(") : -1]
        return dtypes.NUMBERS[_LONG.get(short, short)]

    def tensor_size_in_bytes(self) -> int:
        return self._array("have a size").nbytes

    def has_value(self) -> bool:
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        return self._type.startswith("sparse_tensor")

    def is_tensor_sequence(self) -> bool:
        return self._type.startswith("seq(tensor")

    def as_sparse_tensor(self) -> Any:
        if not self.is_sparse_tensor():
            raise RuntimeError("Only OrtValues that are SparseTensors can be taken as such")
        return self._value

    def numpy(self) -> Any:
        return self._array("are convertible to Numpy objects")

    def to_dlpack(self) -> Any:
        return self._array("can be given as DLPack").__dlpack__()

    def __dlpack__(self, stream: object = None) -> Any:
        return self.to_dlpack()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def update_inplace(self, data: Any, /) -> None:
        """Copies an array's or an OrtValue's elements into this one's memory."""
        source = data._array("can be copied") if isinstance(data, NativeValue) else data
        target = self._array("can be changed")
        if source.size != target.size:
            raise RuntimeError("The input size of numpy arrays does not match the size of the OrtValue.")
        np.copyto(target, source.reshape(target.shape), casting="unsafe")

    def _is_webgpu_buffer(self) -> bool:
        return False

    @staticmethod
    def ortvalue_from_numpy(data: Any, device: NativeDevice, /) -> NativeValue:
        if not isinstance(data, np.ndarray) or data.dtype.kind in dtypes.TEXT_KINDS:
            raise RuntimeError(
                "Creation of OrtValues is currently only supported from non-string numpy arrays"
            )
        require_processor(device)
        return NativeValue._of(np.ascontiguousarray(data) if data.ndim else data)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int, /) -> NativeValue:
        dtype = dtype_of(int(onnx_element_type))
        if data.dtype.itemsize != dtypes.itemsize(dtype):
            raise RuntimeError(
                f"Items size in the incoming array: {data.dtype.itemsize} "
                f"specified by onnxtype: {dtypes.itemsize(dtype)}"
            )
        return NativeValue._of(np.ascontiguousarray(data).view(element_type(dtype)), type_text(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element: object, device: NativeDevice, /
    ) -> NativeValue:
        require_processor(device)
        dtype = dtype_of(element)
        return NativeValue._of(np.zeros(tuple(shape), element_type(dtype)), type_text(dtype))

    ortvalue_from_shape_and_onnx_type = ortvalue_from_shape_and_type

    @staticmethod
    def ortvalue_from_shape_and_type_for_memory_info(
        shape: Sequence[int], element: object, memory: OrtMemoryInfo, /
    ) -> NativeValue:
        return NativeValue.ortvalue_from_shape_and_type(shape, element, NativeDevice(0, 0, 0))

    ortvalue_from_shape_and_onnx_type_for_memory_info = ortvalue_from_shape_and_type_for_memory_info

    @staticmethod
    def ort_value_from_sparse_tensor(tensor: NativeSparseTensor, /) -> NativeValue:
        return NativeValue._of(tensor, tensor.data_type())

    @staticmethod
    def from_dlpack(data: Any) -> NativeValue:
        source: Any = _Lender(data)
        array = np.from_dlpack(source)
        if not array.flags.c_contiguous:
            raise RuntimeError("what follows DLPack is no contiguous tensor, as OrtValues are")
        if source.may_be_written():
            array = at_address(array.ctypes.data, array.shape, dtypes.from_numpy(array.dtype), owner=array)
        return NativeValue._of(array)


NativeValue.__name__ = NativeValue.__qualname__ = "OrtValue"


class _Lender:
    """What follows the DLPack protocol, or a bare capsule of it, as numpy takes it: of something that lies in
    the processor's memory."""

    def __init__(self, data: Any):
        self.data = data
        self.capsule: object = None

    def __dlpack__(self, **asked: Any) -> object:
        self.capsule = self.data.__dlpack__(**asked) if hasattr(self.data, "__dlpack__") else self.data
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__() if hasattr(self.data, "__dlpack_device__") else (1, 0)

    def may_be_written(self) -> bool:
        """Whether the capsule that was taken is of a version that cannot forbid it, which numpy takes for
        read-only."""
        valid = ctypes.pythonapi.PyCapsule_IsValid
        return bool(valid(ctypes.py_object(self.capsule), b"used_dltensor"))


class OrtValue(NativeValue):
    """A value to run a model on, or that a run gave. Made by its class methods."""

    def __init__(
        self, ortvalue: NativeValue, numpy_obj: np.ndarray | None = None, session: object | None = None
    ):
        if not isinstance(ortvalue, NativeValue):
            raise ValueError("`Provided ortvalue` needs to be an OrtValue of onnxruntime.capi._pybind_state")
        self._value, self._type = ortvalue._value, ortvalue._type
        self._session = session

    @property
    def _ortvalue(self) -> NativeValue:
        return self

    def _get_c_value(self) -> NativeValue:
        return self

    @classmethod
    def ortvalue_from_numpy(  # type: ignore[override]
        cls,
        numpy_obj: np.ndarray,
        /,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
    ) -> OrtValue:
        """The array itself as a value, or a copy of one that is not contiguous."""
        device = OrtDevice.make(device_type, device_id, vendor_id)
        return cls(NativeValue.ortvalue_from_numpy(numpy_obj, device._get_c_device()), numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """The array's bits as a value of an element type that numpy may not have, by ONNX's number."""
        return cls(NativeValue.ortvalue_from_numpy_with_onnx_type(data, onnx_element_type), data)

    @classmethod
    def ortvalue_from_shape_and_type(  # type: ignore[override]
        cls,
        shape: Sequence[int],
        element_type: object,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int | OrtDeviceVendorId = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Memory for a tensor; element_type: a numpy type or ONNX's number."""
        if memory_info is not None and (device_type, device_id, vendor_id) != ("cpu", 0, -1):
            warnings.warn(
                "device_type, device_id, and vendor_id are ignored when memory_info is provided.",
                stacklevel=2,
            )
        where = "cpu" if memory_info is not None else device_type
        device = OrtDevice.make(where, device_id, vendor_id)._get_c_device()
        return cls(NativeValue.ortvalue_from_shape_and_type(shape, element_type, device))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:  # type: ignore[override]
        """The sparse tensor as a value."""
        return cls(NativeValue.ort_value_from_sparse_tensor(sparse_tensor._get_c_tensor()))

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor that the value is."""
        from .sparse import SparseTensor

        return SparseTensor(super().as_sparse_tensor())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(self._value) if self.is_sparse_tensor() else self.numpy()
        if copy is not None:
            return np.array(array, dtype=dtype, copy=copy)
        return array if dtype is None else np.asarray(array, dtype=dtype)

    def __dlpack__(self, *, stream: object = None) -> Any:  # type: ignore[override]
        return self.to_dlpack()

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """What follows the DLPack protocol, or a capsule of it, without a copy."""
        return cls(NativeValue.from_dlpack(data))

    def update_inplace(self, data: Any) -> None:
        """Copies an array's or an OrtValue's elements into this one's memory."""
        if not isinstance(data, (np.ndarray, NativeValue)):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        super().update_inplace(data)


class OrtValueVector:
    """A list of values."""

    def __init__(self) -> None:
        self._values: list[NativeValue] = []

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int, /) -> NativeValue:
        return self._values[index]

    def __iter__(self) -> Iterator[NativeValue]:
        return iter(self._values)

    def push_back(self, value: Any, is_bool_tensor: bool = False) -> None:
        """Appends an OrtValue, or what follows the DLPack protocol, its bytes as bools if they are such."""
        if not isinstance(value, NativeValue):
            value = NativeValue.from_dlpack(value)
            if is_bool_tensor:
                value = NativeValue._of(value._array("can be bools").view(np.bool_))
        self._values.append(value)

    def push_back_batch(
        self,
        tensors: Sequence[object],
        pointers: Sequence[int],
        types: Sequence[object],
        shapes: Sequence[Sequence[int]],
        devices: Sequence[NativeDevice],
        /,
    ) -> None:
        """Appends tensors by the addresses of their elements."""
        for tensor, pointer, kind, shape in zip(tensors, pointers, types, shapes):
            self._values.append(NativeValue._of(at_address(pointer, shape, dtype_of(kind), owner=tensor)))

    def reserve(self, count: int, /) -> None:
        """Without effect: the list grows as it must."""

    def shrink_to_fit(self) -> None:
        """Without effect: the list has no spare room."""

    def bool_tensor_indices(self) -> list[int]:
        return [k for k, value in enumerate(self._values) if value.data_type() == "tensor(bool)"]

    def element_type_at(self, idx: int) -> int:
        return self._values[idx].element_type()

    def dlpack_at(self, index: int, /) -> object:
        return self._values[index].to_dlpack()

    def to_dlpacks(self, to_tensor: Any, /) -> list[Any]:
        """DLPack capsules of all, each handed to `to_tensor` if that is given."""
        capsules = [value.to_dlpack() for value in self._values]
        return [to_tensor(capsule) for capsule in capsules] if to_tensor else capsules


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: object = None) -> None:
    """Copies the elements of tensors into others."""
    if len(src) != len(dst):
        raise ValueError("as many tensors are copied as there are to copy to")
    for source, target in zip(src, dst):
        target.update_inplace(source)
