"""What calls take besides arrays of the right type: numbers, lists, tensors of other libraries and dicts."""

import array
import ctypes
import warnings
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from support.small_models import parsed

import onnxc
from onnxc.errors import RunError
from onnxc.ir import dtypes
from onnxc.loading.c_values import WRONG_DTYPE, WRONG_RANK, Port, Slot
from onnxc.loading.lending import _as_array


class Shared:
    """A tensor that follows the DLPack protocol."""

    def __init__(self, numbers, dtype):
        self.array = np.array(numbers, dtype)

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Coded(Shared):
    """One of an element type that numpy lacks, by its code in DLPack."""

    def __init__(self, numbers, dtype, code):
        self.bits, self.code = np.array(numbers, dtype), code
        self.array = self.bits.view(f"u{self.bits.itemsize}")

    def __dlpack__(self, **how):
        capsule = self.array.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.c_uint8.from_address(pointer(capsule, b"dltensor") + 20).value = self.code
        return capsule


class Lazy(Shared):
    """One whose numbers are not those in its memory before it is resolved, as torch's views of imaginary
    parts and of conjugates."""

    def __init__(self, numbers, dtype, method):
        super().__init__(-np.array(numbers, dtype), dtype)
        setattr(self, method, lambda: Shared(numbers, dtype))


class Gradient(Shared):
    """One that gives nothing before it is detached."""

    def __dlpack__(self, **how):
        raise BufferError("it requires gradients")

    def detach(self):
        return Coded(self.array, ml_dtypes.bfloat16, 4)


def failing(protocol, error):
    """A value of which a protocol fails."""

    def fail(self, *_, **__):
        raise error

    return type("Failing", (), {protocol: fail})()


class Convertible:
    """An object that numpy makes an array of, in any type."""

    def __init__(self, numbers, dtype):
        self.array = np.array(numbers, dtype)

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


def q(*numbers):
    return array.array("q", numbers)


def taken(dtype: str, value: object) -> np.ndarray:
    """The array that an input of the type is lent."""
    return _as_array(Slot.of(Port("x", None, dtype), dtypes.NUMBERS[dtype]), value)


@pytest.mark.parametrize(
    "form",
    [
        list,
        lambda numbers: [np.int64(n) for n in numbers],
        lambda numbers: [np.array(n) for n in numbers],
        lambda numbers: q(*numbers),
        lambda numbers: memoryview(q(*numbers)),
        lambda numbers: Shared(numbers, np.int64),
        lambda numbers: Convertible(numbers, np.int64),
    ],
    ids=["list", "list of numpy's", "list of arrays", "array", "memoryview", "DLPack", "__array__"],
)
@pytest.mark.parametrize("dtype", [*dtypes.SIGNED, *dtypes.UNSIGNED, "bool"])
def test_integers_are_taken_where_the_type_has_them(dtype, form):
    low, high = dtypes.integer_range(dtype)
    low, high = max(low, -(2**63)), min(high, 2**63 - 1)
    fitted = taken(dtype, form([low, 1, high]))
    assert fitted.dtype == dtypes.numpy_dtype(dtype) and fitted.astype(object).tolist() == [low, 1, high]
    for outside in {low - 1, high + 1, -(2**63), 2**63 - 1} - {low, high, -(2**63) - 1, 2**63}:
        with pytest.raises(RunError, match=f"input 'x': {outside} is no number of {dtype}") as caught:
            taken(dtype, form([1, outside]))
        assert caught.value.status == WRONG_DTYPE


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**70)])
def test_integers_of_any_length_are_compared(number):
    with pytest.raises(RunError, match=f"{number} is no number of int64"):
        taken("int64", [number])
    assert taken("uint64", [2**64 - 1]).tolist() == [2**64 - 1]


@pytest.mark.parametrize(("dtype", "digits"), [("float64", 400), ("int64", 5000), ("float32", 5000)])
def test_an_integer_that_is_too_long_to_be_told_is_refused_too(dtype, digits):
    with pytest.raises(RunError, match="input 'x': ") as caught:
        taken(dtype, [10**digits])
    assert caught.value.status == WRONG_DTYPE


@pytest.mark.parametrize("dtype", dtypes.ALL)
def test_an_empty_list_is_of_every_type(dtype):
    for empty in ([], [[], []]):
        fitted = taken(dtype, empty)
        assert fitted.dtype == dtypes.numpy_dtype(dtype) and fitted.shape == np.shape(empty)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("float32", 1e300),
        ("float16", 70_000),
        ("bfloat16", -1e39),
        ("float8e4m3fn", 1e4),
        ("complex64", 1e300j),
        ("float16", 2**70),
        ("float32", Fraction(10**40)),
        ("complex64", -(2**200)),
        ("float4e2m1", 7),
        ("float4e2m1", 1e39),
        ("float6e3m2", -30),
        ("float6e2m3", 7.75),
        ("float8e8m0", -1),
        ("float8e8m0", np.inf),
        ("float8e4m3fn", -np.inf),
        ("float8e4m3fnuz", np.inf),
        ("float8e5m2fnuz", np.inf),
    ],
)
def test_floats_are_rounded_and_none_becomes_infinite(dtype, number):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forms = [number, [1, number], Convertible([number], None)]
        forms += [Shared([number], np.float64)] if isinstance(number, float) else []
        forms += [[1.5, number]] if isinstance(number, int) else []
        for value in forms:
            with pytest.raises(RunError, match="is no number of") as caught:
                taken(dtype, value)
            assert caught.value.status == WRONG_DTYPE
        assert taken(dtype, [1 + 1e-9]).tolist() == [1]


@pytest.mark.parametrize(
    ("dtype", "numbers", "expected"),
    [
        ("float32", [2**70, 1], [2.0**70, 1]),
        ("float32", 2**70, 2.0**70),
        ("bfloat16", [-(2**100), 0.5], [-(2.0**100), 0.5]),
        ("complex128", [2**70], [2.0**70]),
        ("float64", [Fraction(1, 4)], [0.25]),
        ("float4e2m1", [6.9, -6.9, 5], [6, -6, 4]),
        ("float6e2m3", [7.7, -7.7], [7.5, -7.5]),
        ("float6e3m2", [29.9], [28]),
        ("float8e4m3fn", [464], [448]),
        ("float8e5m2", [np.inf, -np.inf], [np.inf, -np.inf]),
    ],
)
def test_numbers_of_floats_are_taken_whatever_python_holds_them_in(dtype, numbers, expected):
    assert taken(dtype, numbers).tolist() == expected


@pytest.mark.parametrize("method", ["resolve_neg", "resolve_conj"])
def test_a_tensor_of_which_the_memory_has_other_numbers_is_resolved(method):
    assert taken("float32", Lazy([-2, 4], np.float32, method)).tolist() == [-2, 4]


CODES = [
    ("bfloat16", 4),
    ("float8e4m3fn", 10),
    ("float8e4m3fnuz", 11),
    ("float8e5m2", 12),
    ("float8e5m2fnuz", 13),
    ("float8e8m0", 14),
]


@pytest.mark.parametrize(("dtype", "code"), CODES)
def test_tensors_of_types_that_numpy_lacks_are_read_where_they_are(dtype, code):
    tensor = Coded([[0.5, 2], [4, 8]], dtypes.numpy_dtype(dtype), code)
    found = taken(dtype, tensor)
    assert found.dtype == dtypes.numpy_dtype(dtype) and found.tolist() == [[0.5, 2], [4, 8]]
    assert np.shares_memory(found, tensor.bits)


@pytest.mark.parametrize(("dtype", "code"), CODES)
@pytest.mark.parametrize("wanted", ["float64", "float32", "float16", "float8e5m2", "complex64"])
def test_numbers_of_types_that_numpy_lacks_are_converted(dtype, code, wanted):
    numbers = np.array([0.5, 4], dtypes.numpy_dtype(dtype))
    for value in (Coded(numbers, numbers.dtype, code), Convertible(numbers, None), list(numbers)):
        fitted = taken(wanted, value)
        assert fitted.dtype == dtypes.numpy_dtype(wanted) and fitted.tolist() == [0.5, 4]


def test_integers_of_types_that_numpy_lacks_are_converted():
    assert taken("int64", Convertible([-8, 7], ml_dtypes.int4)).tolist() == [-8, 7]
    assert taken("float16", Convertible([0, 15], ml_dtypes.uint4)).tolist() == [0, 15]
    with pytest.raises(RunError, match="input 'x': -8 is no number of uint8"):
        taken("uint8", Convertible([-8, 7], ml_dtypes.int4))


def test_a_tensor_that_gradients_are_computed_of_is_detached():
    assert taken("float32", Gradient([0.5], np.float32)).tolist() == [0.5]


@pytest.mark.parametrize("protocol", ["__array__", "__dlpack__"])
@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, KeyError, BufferError, MemoryError])
def test_what_a_value_says_in_failing_is_told_with_the_input(protocol, error):
    with pytest.raises(RunError, match="no numbers yet") as caught:
        taken("float32", failing(protocol, error("no numbers yet")))
    assert str(caught.value).startswith("input 'x': ") and caught.value.status == WRONG_DTYPE
    with pytest.raises(RunError, match=f"input 'x': {error.__name__}"):
        taken("float32", failing(protocol, error()))


def test_what_is_no_number_stays_so():
    assert np.isnan(taken("float32", [np.nan, 1])[0]) and np.isinf(taken("float16", [np.inf])[0])
    assert taken("bfloat16", [1.5, 2]).dtype == ml_dtypes.bfloat16
    with pytest.raises(RunError, match="nan is no number of float4e2m1"):
        taken("float4e2m1", [np.nan])


@pytest.mark.parametrize(
    ("dtype", "value", "got"),
    [
        ("int8", np.array([1]), "int64"),
        ("float32", np.array([1.0]), "float64"),
        ("int64", [1.0], "float64"),
        ("bool", [0.0], "float64"),
        ("float32", ["1"], "<U1"),
        ("float32", [None], "object"),
        ("bfloat16", [1j], "complex128"),
        ("float32", Shared([1j], np.complex64), "complex64"),
        ("int64", Coded([1], ml_dtypes.bfloat16, 4), "bfloat16"),
        ("string", [1], "int64"),
    ],
)
def test_another_kind_of_numbers_is_refused(dtype, value, got):
    with pytest.raises(RunError, match=f"input 'x': expected {dtype}, got {got}"):
        taken(dtype, value)


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maps")
    types = {"int64": "map(int64, float)", "string": "map(string, float)", "texts": "map(int64, string)"}
    return {
        name: onnxc.load(onnxc.compile(parsed(f"g ({type_} m) => ({type_} m) {{ }}"), folder / f"{name}.so"))
        for name, type_ in types.items()
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int64", {0: 1.0, 3: 2}),
        ("int64", {np.int64(1): np.float64(3), 2: np.float32(0.5)}),
        ("int64", {}),
        ("string", {"a": 1.0, "b": 2.5}),
        ("string", {}),
        ("texts", {1: "one", 2: "two"}),
    ],
)
def test_dicts_are_maps(maps, name, value):
    assert maps[name].run(None, {"m": value}) == [value]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("int64", {1.9: 5.0}, "expected int64, got float64"),
        ("int64", {1: 2, 1.5: 7}, "expected int64, got float64"),
        ("int64", {"2": 5.0}, "expected int64, got <U1"),
        ("int64", {1: "3.5"}, "expected float32, got <U3"),
        ("int64", {1: None}, "expected float32, got object"),
        ("int64", {2**70: 1.0}, f"{2**70} is no number of int64"),
        ("int64", {1: 1e300}, r"1e\+300 is no number of float32"),
        ("string", {1: 5.0}, "expected strings, got a int"),
        ("string", {"a": None}, "expected float32, got object"),
        ("texts", {1: 2}, "expected strings, got a int"),
    ],
)
def test_keys_and_values_of_another_type_are_refused(maps, name, value, sentence):
    with pytest.raises(RunError, match=f"input 'm': {sentence}") as caught:
        maps[name].run(None, {"m": value})
    assert caught.value.status == WRONG_DTYPE


def test_a_key_has_one_number(maps):
    with pytest.raises(
        RunError, match=r"input 'm': expected one number for each key, got shape \[2\]"
    ) as caught:
        maps["int64"].run(None, {"m": {1: [1.0, 2.0]}})
    assert caught.value.status == WRONG_RANK
