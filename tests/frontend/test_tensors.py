"""TensorProto to numpy: every element type in every field, compared with onnx and by hand."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.bad_models import download_cache, external
from support.few_nodes import model, node, relu, saved

from onnxc.errors import ExternalDataError, LimitError, ModelError
from onnxc.frontend.model_file import open_model
from onnxc.frontend.tensors import (
    DTYPE_NAMES,
    ELEMENT_CODES,
    ELEMENT_TYPES,
    NUMPY_DTYPES,
    check_tensor,
    element_count,
    sparse_array,
    tensor_array,
    whole,
)

EMPTY = open_model(relu())
NUMERIC = [code for code, name in DTYPE_NAMES.items() if name != "string"]
SHAPES = [(), (1,), (2,), (3,), (4,), (5,), (7,), (2, 3), (9,), (0,), (2, 0, 3)]


def names(codes):
    return [DTYPE_NAMES[code] for code in codes]


def packed(code: int, count: int, seed: int = 0) -> bytes:
    """`count` random elements as raw_data; of the last byte only the bits of elements are set."""
    size = (count * ELEMENT_TYPES[code].bits + 7) // 8
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 2 if DTYPE_NAMES[code] == "bool" else 256, size, np.uint8)
    used = count * ELEMENT_TYPES[code].bits % 8
    if used:
        data[-1] &= (1 << used) - 1
    return data.tobytes()


def bits_of(array: np.ndarray) -> bytes:
    return array.tobytes()


def test_there_is_one_dtype_for_each_type_of_the_specification():
    assert sorted(DTYPE_NAMES) == sorted(set(TensorProto.DataType.values()) - {0})
    assert len(set(NUMPY_DTYPES.values())) == len(NUMPY_DTYPES) == len(DTYPE_NAMES)
    assert all(DTYPE_NAMES[ELEMENT_CODES[name]] == name for name in NUMPY_DTYPES)


@pytest.mark.parametrize("code", NUMERIC, ids=names(NUMERIC))
def test_dtype_is_the_one_of_onnx(code):
    assert NUMPY_DTYPES[DTYPE_NAMES[code]] == helper.tensor_dtype_to_np_dtype(code)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("code", NUMERIC, ids=names(NUMERIC))
def test_raw_data_is_read_as_onnx_reads_it(code, shape):
    raw = packed(code, math.prod(shape))
    tensor = TensorProto(name="w", data_type=code, dims=shape, raw_data=raw)
    array, expected = tensor_array(tensor, EMPTY), numpy_helper.to_array(tensor)
    assert array.dtype == expected.dtype
    assert array.shape == expected.shape == shape
    assert bits_of(array) == bits_of(expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("code", NUMERIC, ids=names(NUMERIC))
def test_typed_fields_hold_the_same_as_raw_data(code, shape):
    count = math.prod(shape)
    raw = TensorProto(name="w", data_type=code, dims=shape, raw_data=packed(code, count, seed=1))
    expected = tensor_array(raw, EMPTY)
    element = ELEMENT_TYPES[code]
    typed = TensorProto(name="w", data_type=code, dims=shape)
    getattr(typed, element.field).extend(typed_entries(raw.raw_data, expected, element))
    assert bits_of(tensor_array(typed, EMPTY)) == bits_of(expected)


def typed_entries(raw: bytes, array: np.ndarray, element) -> list:
    """What the specification puts in the typed field for an array."""
    flat = array.reshape(-1)
    if element.name.startswith("complex"):
        return [part for number in flat.tolist() for part in (number.real, number.imag)]
    if element.bits in (2, 4):
        return list(raw)
    if element.field == "int32_data" and element.name not in ("int8", "int16", "int32"):
        return flat.view(f"uint{max(8, element.bits)}").tolist()
    return flat.tolist()


@pytest.mark.parametrize("code", NUMERIC, ids=names(NUMERIC))
def test_external_data_is_read_like_raw_data(code, tmp_path):
    raw = packed(code, 11, seed=2)
    path = external(data=b"\xff" * 5 + raw, entries=[("offset", "5")])(tmp_path)
    opened = open_model(path)
    tensor = opened.proto.graph.initializer[0]
    tensor.data_type = code
    tensor.dims[:] = [11]
    inside = TensorProto(data_type=code, dims=[11], raw_data=raw)
    assert bits_of(tensor_array(tensor, opened)) == bits_of(tensor_array(inside, EMPTY))


def test_int4_takes_the_low_half_of_a_byte_first():
    tensor = TensorProto(data_type=TensorProto.INT4, dims=[3], raw_data=b"\xf1\x08")
    assert tensor_array(tensor, EMPTY).astype(int).tolist() == [1, -1, -8]


def test_uint2_takes_the_lowest_bits_of_a_byte_first():
    tensor = TensorProto(data_type=TensorProto.UINT2, dims=[5], raw_data=b"\xe4\x02")
    assert tensor_array(tensor, EMPTY).astype(int).tolist() == [0, 1, 2, 3, 2]


def test_bool_bytes_become_zero_or_one():
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[4], raw_data=b"\x00\x01\x02\xff")
    assert tensor_array(tensor, EMPTY).view(np.uint8).tolist() == [0, 1, 1, 1]


def test_strings_are_text_whatever_their_bytes():
    tensor = TensorProto(data_type=TensorProto.STRING, dims=[2, 1], string_data=["é".encode(), b"\xff"])
    array = tensor_array(tensor, EMPTY)
    assert array.dtype == object
    assert array.shape == (2, 1)
    assert array[0, 0] == "é"
    assert array[1, 0].encode("utf-8", "surrogateescape") == b"\xff"


@pytest.mark.parametrize(
    ("code", "numbers"),
    [
        (TensorProto.INT8, [128]),
        (TensorProto.INT8, [-129]),
        (TensorProto.UINT8, [-1]),
        (TensorProto.UINT8, [256]),
        (TensorProto.INT16, [1 << 15]),
        (TensorProto.FLOAT16, [1 << 16]),
        (TensorProto.FLOAT16, [-1]),
        (TensorProto.FLOAT8E4M3FN, [256]),
        (TensorProto.INT4, [256]),
        (TensorProto.FLOAT6E2M3, [64]),
    ],
)
def test_a_number_that_does_not_fit_is_refused(code, numbers):
    tensor = TensorProto(name="w", data_type=code, dims=[1], int32_data=numbers)
    with pytest.raises(ModelError, match=r"'w'.*does not fit"):
        tensor_array(tensor, EMPTY)


def test_a_uint32_that_does_not_fit_is_refused():
    tensor = TensorProto(data_type=TensorProto.UINT32, dims=[1], uint64_data=[1 << 32])
    with pytest.raises(ModelError, match="does not fit"):
        tensor_array(tensor, EMPTY)


@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float64, np.int64, np.float16, ml_dtypes.bfloat16],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_large_arrays_are_views_of_the_file(dtype, tmp_path):
    data = np.arange(5000).astype(dtype)
    path = tmp_path / "m.onnx"
    path.write_bytes(saved(model(node("Relu", "x", "y"), initializers=[numpy_helper.from_array(data, "w")])))
    opened = open_model(path)
    tensor = opened.proto.graph.initializer[0]
    first, second = tensor_array(tensor, opened), tensor_array(tensor, opened)
    assert first.__array_interface__["data"] == second.__array_interface__["data"]
    assert not first.flags.owndata
    assert bits_of(first) == bits_of(data)


@pytest.mark.parametrize("kind", ["raw", "typed", "string", "bool", "int4"])
def test_arrays_cannot_be_written(kind):
    tensor = {
        "raw": TensorProto(data_type=1, dims=[2], raw_data=bytes(8)),
        "typed": TensorProto(data_type=1, dims=[2], float_data=[1, 2]),
        "string": TensorProto(data_type=8, dims=[1], string_data=[b"a"]),
        "bool": TensorProto(data_type=9, dims=[1], raw_data=b"\2"),
        "int4": TensorProto(data_type=22, dims=[2], raw_data=b"\2"),
    }[kind]
    with pytest.raises(ValueError, match="read-only"):
        tensor_array(tensor, EMPTY)[0] = 0


def test_large_packed_floats_are_read():
    numbers = np.linspace(-1, 1, 4096, dtype=np.float32)
    proto = model(
        node("Relu", "x", "y"),
        initializers=[
            TensorProto(name="w", data_type=1, dims=[4096], float_data=numbers),
            TensorProto(name="v", data_type=15, dims=[1024], double_data=numbers[:2048]),
        ],
    )
    opened = open_model(saved(proto))
    first, second = (tensor_array(tensor, opened) for tensor in opened.proto.graph.initializer)
    assert bits_of(first) == bits_of(numbers)
    assert bits_of(second) == bits_of(numbers[:2048].astype(np.float64).view(np.complex128))


@pytest.mark.parametrize(
    ("dims", "count"), [([], 1), ([0], 0), ([0, 1 << 40], 0), ([1 << 30, 1 << 20], 1 << 50)]
)
def test_elements_are_counted(dims, count):
    assert element_count(dims) == count


@pytest.mark.parametrize("dims", [[1 << 62], [1 << 32, 1 << 32], [0, 1 << 62], [1 << 40] * 32])
def test_counts_that_would_wrap_are_refused(dims):
    with pytest.raises(ModelError, match="too many"):
        element_count(dims)


@pytest.mark.parametrize("indices", [[1, 4], [[0, 1], [1, 1]]])
def test_sparse_tensors_become_dense(indices):
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([5, 7]), "s"),
        numpy_helper.from_array(np.array(indices), ""),
        [2, 3],
    )
    assert sparse_array(sparse, EMPTY).tolist() == [[0, 5, 0], [0, 7, 0]]


@pytest.mark.parametrize(
    ("indices", "words"),
    [
        ([4, 1], "ascend"),
        ([1, 1], "ascend"),
        ([1, 6], "ascend"),
        ([-1, 2], "negative"),
        ([[0, 3], [1, 1]], "outside"),
        ([[0, 1, 1], [0, 1, 2]], "fits neither"),
        ([1], "fits neither"),
    ],
)
def test_bad_sparse_indices_are_refused(indices, words):
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([5, 7]), "s"),
        numpy_helper.from_array(np.array(indices), ""),
        [2, 3],
    )
    with pytest.raises(ModelError, match=words):
        sparse_array(sparse, EMPTY)


def test_a_sparse_tensor_that_is_huge_when_dense_is_refused():
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([5]), "s"), numpy_helper.from_array(np.array([7]), ""), [1 << 40]
    )
    with pytest.raises(LimitError, match="when dense"):
        sparse_array(sparse, EMPTY)


def test_checking_reads_no_data(tmp_path):
    path = tmp_path / "m.onnx"
    data = numpy_helper.from_array(np.zeros(5000, np.float32), "w")
    path.write_bytes(saved(model(node("Relu", "x", "y"), initializers=[data])))
    opened = open_model(path)
    check_tensor(opened.proto.graph.initializer[0], opened)
    wrong = onnx.TensorProto()
    wrong.CopyFrom(opened.proto.graph.initializer[0])
    wrong.dims[0] = 5001
    with pytest.raises(ModelError, match=r"20000 bytes.*needs 20004"):
        check_tensor(wrong, opened)


LONGER = np.array([1, 2, 3], np.float32).tobytes()  # what a tensor of two elements has no length for
STORED = [external(data=LONGER, entries=[("offset", "4")]), lambda folder: download_cache(folder, LONGER[4:])]


@pytest.mark.parametrize("written", STORED, ids=["longer", "links"])
def test_the_whole_model_has_of_external_data_what_its_tensors_have(written, tmp_path):
    (tensor,) = whole(open_model(written(tmp_path))).graph.initializer
    assert tensor == TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=LONGER[4:])


def test_a_tensor_of_the_whole_model_may_stay_outside(tmp_path):
    (tensor,) = whole(open_model(external(data=None)(tmp_path)), but={"w"}).graph.initializer
    assert tensor.external_data[0].value == "w.bin"


def test_external_data_that_the_whole_model_lacks_is_told_with_the_file(tmp_path):
    path = external(data=bytes(4))(tmp_path)
    with pytest.raises(ExternalDataError, match=f"^{path}: tensor 'w': external data in 'w.bin'"):
        whole(open_model(path))
