"""TensorProto to numpy, for every element type and every field that may hold the data.

There is one numpy dtype per ONNX type. Where the bytes in the file are the array, the result is a
read-only view of them (perhaps unaligned). Types under a byte are unpacked to one element a byte.
`check_tensor` makes the same checks of sizes and fields alone. Source: onnx.proto.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import onnx

from ..errors import LimitError, ModelError, OnnxcError, Origin, UnsupportedError, quote
from ..ir import dtypes
from ..records import dataclass
from .external_data import read_reference
from .model_file import ModelFile
from .walk import all_tensors
from .wire import DATA_FIELDS

MAX_RANK = 32
MAX_BYTES = (1 << 63) - 1
DENSE_LIMIT = 1 << 30  # bytes of a sparse tensor made dense


@dataclass(frozen=True)
class ElementType:
    """An ONNX element type: its name in the IR, its size in bits, and its TensorProto field."""

    name: str
    bits: int
    field: str

    @property
    def per_byte(self) -> int:
        """Elements in a byte of packed data; 1 for whole bytes and for the six-bit types."""
        return 8 // self.bits if self.bits in (2, 4) else 1


# By TensorProto.DataType. In int32_data types of two and four bits are packed into bytes as in
# raw_data; the six-bit types have an entry for each element there and are packed in raw_data.
_FIELDS = {
    "float32": "float_data",
    "float64": "double_data",
    "complex64": "float_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}
ELEMENT_TYPES: dict[int, ElementType] = {
    number: ElementType(name, 0 if name == "string" else dtypes.bits(name), _FIELDS.get(name, "int32_data"))
    for name, number in dtypes.NUMBERS.items()
}
DTYPE_NAMES: dict[int, str] = {code: element.name for code, element in ELEMENT_TYPES.items()}
ELEMENT_CODES: dict[str, int] = {name: code for code, name in DTYPE_NAMES.items()}
NUMPY_DTYPES: dict[str, np.dtype] = {name: dtypes.numpy_dtype(name) for name in dtypes.ALL}


def element_type(code: int) -> ElementType:
    """The element type with an ONNX number; ModelError if the specification has no such type."""
    if code not in ELEMENT_TYPES:
        raise ModelError(
            "the element type is missing"
            if code == 0
            else f"the element type {code} is not one of 1 to {max(ELEMENT_TYPES)}"
        )
    return ELEMENT_TYPES[code]


def element_count(dims: Sequence[int]) -> int:
    """The number of elements of a tensor with these dims: checked, at most 2^63 - 1 of 16 bytes."""
    if len(dims) > MAX_RANK:
        raise LimitError(f"rank {len(dims)} is over the limit of {MAX_RANK}")
    count = size = 1
    for dim in dims:
        if dim < 0:
            raise ModelError(f"dimension {dim} is negative")
        count *= dim
        size *= max(dim, 1)
    if size * 16 > MAX_BYTES:
        raise ModelError(f"the shape {shape_text(dims)} has too many elements to address")
    return count


def shape_text(dims: Sequence[int]) -> str:
    """`[2, 3]`, with the middle left out of long shapes."""
    texts = [str(dim) for dim in dims]
    return f"[{', '.join(texts if len(texts) <= 8 else [*texts[:4], '…', *texts[-3:]])}]"


def check_tensor(tensor: onnx.TensorProto, model: ModelFile) -> None:
    """Raise where the tensor's data does not fit its type and dims, without decoding the data.

    External files are opened, and their checksums compared if the model gives any."""
    _locate(tensor, model)


def tensor_array(tensor: onnx.TensorProto, model: ModelFile) -> np.ndarray:
    """The tensor as a read-only array of its dims' shape, a view of the file where it can be.

    Strings become an object array of str, bytes that are not UTF-8 as lone surrogates. Raises
    ModelError where the data contradicts the dims, the type, or the specification."""
    element, count, source = _locate(tensor, model)
    dtype = NUMPY_DTYPES[element.name]
    if isinstance(source, memoryview):
        flat = _from_bytes(source, element, dtype, count)
    elif element.name == "string":
        flat = np.empty(count, object)
        flat[:] = [text.decode("utf-8", "surrogateescape") for text in tensor.string_data]
    elif source is None:
        flat = np.empty(0, dtype)
    else:
        flat = _from_numbers(source, element, dtype, count, tensor)
    array = flat.reshape(tuple(tensor.dims))
    array.setflags(write=False)
    return array


def whole(model: ModelFile, but: Container[str] = ()) -> onnx.ModelProto:
    """The model as one message that has all its data, the external too: what others can be given to run.

    but: tensors that stay where they are. Raises as `check_tensor` does."""
    proto = model.message()
    for tensor in all_tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL and tensor.name not in but:
            try:
                *_, data = _locate(tensor, model)
            except OnnxcError as error:
                raise error.at(Origin(model.name)) from None
            tensor.raw_data = bytes(data)
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
    return proto


def sparse_array(sparse: onnx.SparseTensorProto, model: ModelFile) -> np.ndarray:
    """A sparse tensor as a dense read-only array; LimitError if that needs over DENSE_LIMIT bytes.

    Its indices are [nnz] positions in row-major order, or [nnz, rank] coordinates; both must
    ascend without repetition."""
    values, indices = tensor_array(sparse.values, model), tensor_array(sparse.indices, model)
    dims = tuple(sparse.dims)
    count = element_count(dims)
    if count * max(values.itemsize, 1) > DENSE_LIMIT:
        raise LimitError(
            f"a sparse tensor of shape {shape_text(dims)} is over the limit of {DENSE_LIMIT} bytes when dense"
        )
    positions = _sparse_positions(values, indices, dims)
    if len(positions) and (np.any(positions[1:] <= positions[:-1]) or positions[-1] >= count):
        raise ModelError("the indices of a sparse tensor do not ascend within its shape")
    dense = np.full(count, "", object) if values.dtype == object else np.zeros(count, values.dtype)
    dense[positions] = values
    dense = dense.reshape(dims)
    dense.setflags(write=False)
    return dense


def _sparse_positions(values: np.ndarray, indices: np.ndarray, dims: tuple) -> np.ndarray:
    """The row-major position of each value; coordinates are checked against `dims`."""
    if values.ndim != 1 or indices.dtype != np.int64:
        raise ModelError("a sparse tensor must have values of rank 1 and indices of type int64")
    if indices.shape not in ((len(values),), (len(values), len(dims))):
        raise ModelError(
            f"the indices of a sparse tensor have the shape "
            f"{shape_text(indices.shape)}, which fits neither {len(values)} values "
            f"nor rank {len(dims)}"
        )
    if np.any(indices < 0):
        raise ModelError("a sparse tensor has a negative index")
    if indices.ndim == 1:
        return indices
    if np.any(indices >= np.array(dims, np.int64)):
        raise ModelError("an index of a sparse tensor is outside its shape")
    positions = np.zeros(len(values), np.int64)
    for axis, dim in enumerate(dims):
        positions = positions * dim + indices[:, axis]
    return positions


def _locate(tensor: onnx.TensorProto, model: ModelFile) -> tuple[ElementType, int, Any]:
    """(element type, element count, data) after every check on sizes.

    The data is the packed bytes, a protobuf list of numbers or strings, or None when empty."""
    try:
        element = element_type(tensor.data_type)
        count = element_count(tensor.dims)
        return element, count, _source(tensor, element, count, model)
    except OnnxcError as error:
        name = f"tensor {quote(tensor.name)}" if tensor.name else "a tensor without a name"
        raise type(error)(f"{name}: {error.reason}", remedy=error.remedy) from None


def _source(tensor: onnx.TensorProto, element: ElementType, count: int, model: ModelFile) -> Any:
    if tensor.HasField("segment"):
        raise UnsupportedError("it is stored in segments")
    needed = (count * element.bits + 7) // 8
    payload = model.payload(tensor)
    fields = [
        name
        for name in DATA_FIELDS.values()
        if (len(tensor.raw_data) if name == "raw_data" else len(getattr(tensor, name)))
    ]
    if payload:
        fields = [payload.field if name == "raw_data" else name for name in fields]
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        fields.append("external_data")
    if len(fields) > 1:
        raise ModelError(f"its data is given twice, in {fields[0]} and in {fields[1]}")
    if not fields:
        if count:
            raise ModelError(f"it has no data, but its shape {shape_text(tensor.dims)} has {count} elements")
        return None
    field = fields[0]
    allowed = (element.field,) if element.name == "string" else (element.field, "raw_data", "external_data")
    if field not in allowed:
        raise ModelError(f"its data is in {field}, where {element.name} must not be")
    if field == "external_data":
        return model.external.bytes_of(read_reference(tensor.external_data), needed)
    if field == "raw_data" or payload:
        data = model.bytes_of(tensor)
        _check_size(len(data or b""), needed, "bytes", tensor, element)
        return data
    numbers = getattr(tensor, field)
    per_number = 0.5 if element.name.startswith("complex") else element.per_byte
    _check_size(len(numbers), int(-(-count // per_number)), "entries", tensor, element)
    return numbers


def _check_size(size: int, needed: int, unit: str, tensor: onnx.TensorProto, element: ElementType) -> None:
    if size != needed:
        raise ModelError(
            f"its data has {size} {unit}, but {element.name} of shape "
            f"{shape_text(tensor.dims)} needs {needed}"
        )


def _from_bytes(data: memoryview, element: ElementType, dtype: np.dtype, count: int) -> np.ndarray:
    """`count` elements from little-endian packed bytes."""
    if element.bits < 8:
        return unpacked(np.frombuffer(data, np.uint8), element.bits, count).view(dtype)
    if element.name == "bool":
        return np.frombuffer(data, np.uint8) != 0
    return np.frombuffer(data, dtype)


def unpacked(data: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first `count` fields of `bits` bits in a stream of bytes, lowest bits first."""
    if bits == 6:  # four elements in three bytes; the last group may be short
        groups = np.zeros((-(-len(data) // 3), 3), np.uint32)
        groups.reshape(-1)[: len(data)] = data
        words = groups[:, 0] | groups[:, 1] << 8 | groups[:, 2] << 16
    else:
        words = data
    shifts = np.arange(0, 24 if bits == 6 else 8, bits, dtype=words.dtype)
    codes = (words[:, None] >> shifts) & words.dtype.type((1 << bits) - 1)
    return codes.reshape(-1)[:count].astype(np.uint8)


def _from_numbers(
    numbers: Any, element: ElementType, dtype: np.dtype, count: int, tensor: onnx.TensorProto
) -> np.ndarray:
    """`count` elements from the list of numbers in a typed field."""
    if element.field == "float_data":
        return np.array(numbers, np.float32).view(dtype)
    if element.field == "double_data":
        return np.array(numbers, np.float64).view(dtype)
    wide = np.array(
        numbers, {"int32_data": np.int32, "int64_data": np.int64, "uint64_data": np.uint64}[element.field]
    )
    if element.name == "bool":
        return wide != 0
    if element.name in dtypes.SIGNED and element.bits >= 8:
        storage = dtype
    else:  # bit patterns, and packed bytes
        storage = np.dtype(f"uint{max(element.bits, 8)}")
    narrow = wide.astype(storage)
    if np.any(narrow != wide) or (element.bits == 6 and np.any(wide >= 64)):
        raise ModelError(
            f"tensor {quote(tensor.name)}: a number in {element.field} does not fit {element.name}"
        )
    if element.bits in (2, 4):
        narrow = unpacked(narrow, element.bits, count)
    return narrow.view(dtype)
