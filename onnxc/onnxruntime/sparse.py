"""SparseTensor: values and where they stand, kept as given. Compiled models compute with dense tensors: an
input that is declared sparse is fed the dense form, and an output is given back in COO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir import dtypes
from .devices import NativeDevice, OrtDevice, require_processor
from .kinds import OrtSparseFormat


class SparseCooView:
    """Where the values of a tensor in COO format stand."""

    def __init__(self, indices: np.ndarray):
        self._indices = indices

    def indices(self) -> np.ndarray:
        return self._indices


class SparseBlockSparseView(SparseCooView):
    """Where the blocks of a tensor stand."""


class SparseCsrView:
    """Where the values of a tensor in CSR format stand."""

    def __init__(self, inner: np.ndarray, outer: np.ndarray):
        self._inner, self._outer = inner, outer

    def inner(self) -> np.ndarray:
        return self._inner

    def outer(self) -> np.ndarray:
        return self._outer


class NativeSparseTensor:
    """A sparse tensor, made by its static methods."""

    _shape: list[int]
    _values: np.ndarray
    _view: SparseCooView | SparseCsrView
    format: OrtSparseFormat

    def __init__(self) -> None:
        raise TypeError("SparseTensor: No constructor defined!")

    @classmethod
    def _of(
        cls,
        shape: Sequence[int],
        values: np.ndarray,
        view: SparseCooView | SparseCsrView,
        format: OrtSparseFormat,
        device: NativeDevice,
    ) -> NativeSparseTensor:
        require_processor(device)
        found = cls.__new__(cls)
        found._shape, found._values = [int(size) for size in shape], np.ascontiguousarray(values)
        found._view, found.format = view, format
        return found

    @classmethod
    def _from_dense(cls, array: np.ndarray) -> NativeSparseTensor:
        """What is not zero, in COO by the places of a flat array."""
        (places,) = np.nonzero(array.reshape(-1))
        here, format = OrtDevice.make("cpu", 0)._get_c_device(), OrtSparseFormat.ORT_SPARSE_COO
        return cls._of(array.shape, array.reshape(-1)[places], SparseCooView(places), format, here)

    def _places(self) -> np.ndarray:
        """Where in a flat array the values are."""
        if isinstance(self._view, SparseCsrView):
            counts = np.diff(self._view.outer())
            rows = np.repeat(np.arange(len(counts)), counts)
            return rows * self._shape[1] + self._view.inner()
        if self.format != OrtSparseFormat.ORT_SPARSE_COO:
            raise RuntimeError("sparse tensors are fed in COO and CSR")
        indices = self._view.indices()
        if indices.size == len(self._values):
            return indices.reshape(-1)
        rows, columns = indices.reshape(-1, 2).T
        if columns.size and not 0 <= columns.min() <= columns.max() < self._shape[-1]:
            raise RuntimeError("an index of a sparse tensor is outside of its shape")
        return rows * self._shape[-1] + columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The dense tensor."""
        size, places = math.prod(self._shape), self._places()
        if len(places) != len(self._values) or (places.size and not 0 <= places.min() <= places.max() < size):
            raise RuntimeError("an index of a sparse tensor is outside of its shape")
        dense = np.zeros(size, self._values.dtype)
        dense[places] = self._values
        return dense.reshape(self._shape).astype(dtype or dense.dtype, copy=False)

    @staticmethod
    def sparse_coo_from_numpy(
        shape: Sequence[int], values: np.ndarray, indices: Any, device: NativeDevice, /
    ) -> NativeSparseTensor:
        indices = np.ascontiguousarray(indices, np.int64)
        if indices.size not in (len(values), 2 * len(values)):
            raise RuntimeError("COO indices are one or two for each value")
        view = SparseCooView(indices)
        return NativeSparseTensor._of(shape, values, view, OrtSparseFormat.ORT_SPARSE_COO, device)

    @staticmethod
    def sparse_csr_from_numpy(
        shape: Sequence[int], values: np.ndarray, inner: Any, outer: Any, device: NativeDevice, /
    ) -> NativeSparseTensor:
        inner, outer = np.ascontiguousarray(inner, np.int64), np.ascontiguousarray(outer, np.int64)
        if len(shape) != 2 or len(inner) != len(values) or len(outer) not in (0, int(shape[0]) + 1):
            raise RuntimeError(
                "CSR indices are an inner one for each value and an outer one for each row and one more"
            )
        view = SparseCsrView(inner, outer)
        return NativeSparseTensor._of(shape, values, view, OrtSparseFormat.ORT_SPARSE_CSRC, device)

    @staticmethod
    def blocksparse_from_numpy(
        shape: Sequence[int], values: np.ndarray, indices: Any, device: NativeDevice, /
    ) -> NativeSparseTensor:
        view = SparseBlockSparseView(np.ascontiguousarray(indices, np.int32))
        return NativeSparseTensor._of(shape, values, view, OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE, device)

    def values(self) -> np.ndarray:
        return self._values

    def dense_shape(self) -> list[int]:
        return self._shape

    def data_type(self) -> str:
        from .ports import type_text

        return f"sparse_{type_text(dtypes.from_numpy(self._values.dtype))}"

    def device_name(self) -> str:
        return "Cpu"

    def get_coo_data(self) -> SparseCooView:
        return self._as(SparseCooView, "COO")

    def get_csrc_data(self) -> SparseCsrView:
        return self._as(SparseCsrView, "CSR(C)")

    def get_blocksparse_data(self) -> SparseBlockSparseView:
        return self._as(SparseBlockSparseView, "BlockSparse")

    def _as(self, kind: type, name: str) -> Any:
        if type(self._view) is not kind:
            raise RuntimeError(f"This sparse tensor does not contain {name} format")
        return self._view

    def to_cuda(self, device: NativeDevice, /) -> None:
        """Raises RuntimeError: there is the processor's memory alone."""
        raise RuntimeError("Cuda is not available in this build")


NativeSparseTensor.__name__ = NativeSparseTensor.__qualname__ = "SparseTensor"


class SparseTensor:
    """A sparse tensor, made by its class methods from the arrays that it keeps."""

    def __init__(self, sparse_tensor: NativeSparseTensor):
        if not isinstance(sparse_tensor, NativeSparseTensor):
            raise ValueError("`Provided object` needs to be a SparseTensor of onnxruntime.capi._pybind_state")
        self._tensor = sparse_tensor

    def _get_c_tensor(self) -> NativeSparseTensor:
        return self._tensor

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The dense tensor."""
        return self._tensor.__array__(dtype, copy)

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Any, values: np.ndarray, coo_indices: np.ndarray, ort_device: OrtDevice
    ) -> SparseTensor:
        """Of values and the one or two coordinates of each."""
        device = ort_device._get_c_device()
        return cls(NativeSparseTensor.sparse_coo_from_numpy(dense_shape, values, coo_indices, device))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Any,
        values: np.ndarray,
        inner_indices: np.ndarray,
        outer_indices: np.ndarray,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Of values, the column of each, and where rows begin among them."""
        device = ort_device._get_c_device()
        return cls(
            NativeSparseTensor.sparse_csr_from_numpy(
                dense_shape, values, inner_indices, outer_indices, device
            )
        )

    def values(self) -> np.ndarray:
        return self._tensor.values()

    def as_coo_view(self) -> SparseCooView:
        return self._tensor.get_coo_data()

    def as_csrc_view(self) -> SparseCsrView:
        return self._tensor.get_csrc_data()

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        return self._tensor.get_blocksparse_data()

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Raises RuntimeError: there is the processor's memory alone."""
        self._tensor.to_cuda(ort_device._get_c_device())
        return self

    def format(self) -> OrtSparseFormat:
        return self._tensor.format

    def dense_shape(self) -> Any:
        return self._tensor.dense_shape()

    def data_type(self) -> str:
        return self._tensor.data_type()

    def device_name(self) -> str:
        return self._tensor.device_name().lower()
