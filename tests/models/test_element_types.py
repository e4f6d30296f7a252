"""One chain of elementwise operators, one reduction and one product in each element type, through the same
generators: one library at several sizes against the reference evaluator, which computes sums in float64.
"""

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import onnx.reference
import pytest
from onnx import numpy_helper
from support.agreement import same
from support.small_models import parsed

import onnxc
from onnxc.ir import dtypes

#: Element types as ONNX spells them → numpy's type, and how far a result may be off, as part of the largest.
TYPES = {
    "float16": (np.float16, 2e-3),
    "bfloat16": (ml_dtypes.bfloat16, 1e-2),
    "double": (np.float64, 1e-14),
    "int8": (np.int8, 0),
    "uint8": (np.uint8, 0),
    "int64": (np.int64, 0),
    "bool": (np.bool_, 0),
}
SIZES = ((3, 4, 5), (1, 1, 1), (17, 33, 29), (0, 3, 2), (64, 128, 65))

LOGICAL = "a = And (x, y) b = Not (a) c = Xor (b, y) d = Equal (c, x) z = Where (d, a, c)"
INTEGER = "a = Add (x, y) b = Mul (a, x) c = Max (b, y) d = Div (c, seven) z = Sub (d, x)"
FLOATING = "a = Add (x, y) b = Tanh (a) c = Mul (b, x) d = Sigmoid (c) z = Max (d, y)"


def data(dtype, *shape, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0 if dtype == np.uint8 else -100, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def check(text, folder, runs, type_, exact=None):
    """Every result equals the reference's, or `exact` of the inputs where the reference rounds on its way."""
    model = parsed(text)
    compiled = onnxc.load(onnxc.compile(model, folder / "model.so"), threads=2)
    reference = onnx.reference.ReferenceEvaluator(model)
    for feeds in runs:
        expected = exact(**feeds) if exact else reference.run(None, feeds)
        for got, value in zip(compiled.run(None, feeds), expected, strict=True):
            same(got, np.asarray(value), TYPES[type_][1])


@pytest.mark.parametrize("type_", TYPES)
def test_chains_of_elementwise_operators_in_every_type(type_, tmp_path):
    dtype = TYPES[type_][0]
    body = LOGICAL if type_ == "bool" else INTEGER if np.issubdtype(dtype, np.integer) else FLOATING
    seven = f"seven = Constant <value = {type_} {{7}}> ()" if "seven" in body else ""
    check(
        f"chain ({type_}[N, M] x, {type_}[M] y) => ({type_}[N, M] z) {{ {seven} {body} }}",
        tmp_path,
        [{"x": data(dtype, n, m), "y": data(dtype, m, seed=1)} for n, _, m in SIZES],
        type_,
    )


@pytest.mark.parametrize("type_", TYPES)
def test_rows_and_columns_are_reduced_in_every_type(type_, tmp_path):
    """Of rows and of columns; ONNX defines no sums of 8-bit integers and bools, but their greatest."""
    dtype, greatest = TYPES[type_][0], type_ in ("int8", "uint8", "bool")
    operator = "ReduceMax" if greatest else "ReduceSum"

    def exact(x):
        if greatest:
            return [x.max(1), x.max(0)]
        wide = x.astype(np.float64) if x.dtype != np.int64 else x
        return [wide.sum(1).astype(dtype), wide.sum(0).astype(dtype)]

    check(
        f"""reduction ({type_}[N, M] x) => ({type_}[N] rows, {type_}[M] columns) {{
                zero = Constant <value = int64[1] {{0}}> ()
                one = Constant <value = int64[1] {{1}}> ()
                rows = {operator} <keepdims = 0> (x, one)
                columns = {operator} <keepdims = 0> (x, zero)
              }}""",
        tmp_path,
        [{"x": data(dtype, n, m)} for n, _, m in SIZES if n or not greatest],
        type_,
        exact,
    )


@pytest.mark.parametrize("type_", [t for t in TYPES if t != "bool"])
def test_matrices_are_multiplied_in_every_type(type_, tmp_path):
    """8-bit integers are multiplied by MatMulInteger; ONNX defines no product of bools."""
    dtype, integer = TYPES[type_][0], type_ in ("int8", "uint8")
    operator, result = ("MatMulInteger", "int32") if integer else ("MatMul", type_)

    def exact(x, y):
        if np.issubdtype(dtype, np.integer):
            return (
                [x.astype(np.int64) @ y.astype(np.int64)]
                if not integer
                else [x.astype(np.int32) @ y.astype(np.int32)]
            )
        return [(x.astype(np.float64) @ y.astype(np.float64)).astype(dtype)]

    check(
        f"""product ({type_}[N, K] x, {type_}[K, M] y) => ({result}[N, M] z) {{
                z = {operator} (x, y)
              }}""",
        tmp_path,
        [{"x": data(dtype, n, k), "y": data(dtype, k, m, seed=1)} for n, k, m in SIZES],
        type_,
        exact,
    )


@pytest.mark.parametrize("type_", ["int8", "uint8"])
def test_products_with_zero_points(type_, tmp_path):
    dtype = TYPES[type_][0]
    check(
        f"""product ({type_}[N, K] x, {type_}[K, M] y, {type_} a, {type_} b) => (int32[N, M] z) {{
                z = MatMulInteger (x, y, a, b)
              }}""",
        tmp_path,
        [
            {"x": data(dtype, n, k), "y": data(dtype, k, m, seed=1), "a": dtype(3), "b": dtype(7)}
            for n, k, m in SIZES
        ],
        type_,
    )


#: Types of at most a byte that numpy lacks, and numbers that each of them has.
SMALL = {
    **dict.fromkeys(dtypes.SMALL_FLOATS, (1.0, 2.0, 0.5, 4.0)),
    "int4": (1, -8, 7, 0),
    "uint4": (1, 15, 0, 8),
    "int2": (1, -2, 0, -1),
    "uint2": (3, 1, 0, 2),
}


def test_small_types_come_in_packed_go_out_and_are_written_and_read(tmp_path):
    """Of each a constant, as floats and as texts, and what a text says; in one library."""
    stored, parts, results = [], [], []
    for name, numbers in SMALL.items():
        array = np.array(numbers, np.float32).astype(dtypes.numpy_dtype(name))
        stored.append(numpy_helper.from_array(array, f"c_{name}"))
        parts.append(f"f_{name} = Cast <to = 1> (c_{name})")
        parts.append(f"s_{name} = Cast <to = 8> (c_{name})")
        parts.append(f"r_{name} = Cast <to = {dtypes.NUMBERS[name]}> (text)")
        results += [f"float[4] f_{name}", f"string[4] s_{name}", f"{name}[2] r_{name}"]
    text = f"small (string[2] text) => ({', '.join(results)}) {{ {' '.join(parts)} }}"
    model = parsed(text, SimpleNamespace(tensors=stored), opset=28)
    found = iter(onnxc.load(onnxc.compile(model, tmp_path / "small.so")).run(None, {"text": ["1", " 1 "]}))
    for name, numbers in SMALL.items():
        wide, texts, read = next(found), next(found), next(found)
        assert (wide.dtype, wide.tolist()) == (np.float32, list(numbers)), name
        assert [float(t) for t in texts] == list(numbers), name
        assert (read.dtype, read.astype(np.float32).tolist()) == (dtypes.numpy_dtype(name), [1, 1]), name


@pytest.mark.parametrize(
    "precision", ["", ", precision = 1", ", precision = 10"], ids=["scale", "single", "half"]
)
@pytest.mark.parametrize("opset", [21, 23, 25])
def test_a_quotient_is_of_the_type_that_the_model_says_before_it_is_quantised(opset, precision, tmp_path):
    """Before operator set 23 nothing says it, and it is float32."""
    if precision and opset < 23:
        precision = ""
    model = parsed(
        f"""g (float16[n] x, float16 s) => (int16[n] y) {{
        zero = Constant <value = int16 {{0}}> ()
        y = QuantizeLinear <axis = 0{precision}> (x, s, zero)
    }}""",
        opset=opset,
    )
    x, s = np.array([9999, 12345, 777.5, -5001, 0.2], np.float16), np.float16(0.35)
    single = opset < 23 or precision.endswith(" 1")
    ratio = x.astype(np.float32) / np.float32(s) if single else (x / s).astype(np.float32)
    compiled = onnxc.load(onnxc.compile(model, tmp_path / "model.so"))
    expected = np.clip(np.rint(ratio), -32768, 32767).astype(np.int16)
    np.testing.assert_array_equal(compiled.run(None, {"x": x, "s": s})[0], expected)
