"""Draws of operators that compute element by element, of casts, and of what makes tensors of sizes."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from .drawn import BOOL, TEXT, Draw, Unfit, element, number_of

#: Where functions that are not defined everywhere, or grow fast, are asked.
BETWEEN = {
    **dict.fromkeys(("Acos", "Asin", "Tan"), (-1, 1)),
    "Atanh": (-0.9, 0.9),
    "Acosh": (1, 6),
    "Log": (0.125, 8),
    "Sqrt": (0, 8),
    "Reciprocal": (0.25, 4),
}


def unary(d: Draw) -> None:
    name = d.schema.inputs[0].name
    rank = d.integer(1, 4) if d.schema.name == "NonZero" else None  # ONNX Runtime counts an axis of a scalar
    exact = d.schema.name != "Erf"  # of integers: 1 or 0, by the precision between
    d.take(name, d.shape(rank), *BETWEEN.get(d.schema.name, (-4, 4)), lambda t: exact or t.kind not in "iu")
    for attribute in d.schema.attributes.values():
        if attribute.type.name == "FLOAT":
            d.maybe(attribute.name, 0.25, 0.5, 1.5)
    d.maybe("approximate", "none", "tanh")
    d.maybe("detect_positive", 0, 1)
    d.maybe("detect_negative", 0, 1)
    if d.schema.name in ("IsNaN", "IsInf"):
        values = d.inputs[name]
        values.flat[::3], values.flat[1::5] = np.nan, -np.inf


def clip(d: Draw) -> None:
    d.take(d.schema.inputs[0].name, d.shape())
    for bound, low, high in (("min", -2, 0), ("max", 0, 2)):
        if bound in d.schema.attributes:
            d.maybe(bound, float(low), 0.5 * high + 0.25)
        else:
            d.optional(bound, (), low, high)


def broadcast(d: Draw, shape: list[int]) -> list[int]:
    """The shape of another operand: fewer axes, some of one element."""
    return [n if d.source.randrange(3) else 1 for n in shape[d.integer(0, len(shape)) :]]


def binary(d: Draw) -> None:
    first, second = d.schema.inputs[0].name, d.schema.inputs[1].name
    shape, name = d.shape(), d.schema.name
    other = broadcast(d, shape)
    if "broadcast" in d.schema.attributes:  # before 7; with an axis before the last nobody can be compared
        other = shape if d.chance() else shape[d.integer(0, len(shape)) :]
        d.attributes |= {"broadcast": 1} if other != shape else {}
    low, high = {"Pow": (0.25, 3), "BitShift": (0, 60), "Div": (-6, 6)}.get(name, (-4, 4))
    d.take(first, shape, low, high)
    if name == "BitShift":
        d.attributes["direction"] = d.choice(("LEFT", "RIGHT"))
        low, high = 0, 7
    exact = d.dtype(second)
    if name == "Mod":
        d.attributes["fmod"] = 1 if np.dtype(exact).kind not in "iu" else d.integer(0, 1)
    y = d.take(second, other, low, high)
    if name in ("Div", "Mod"):
        d.inputs[second] = np.where(y == 0, np.asarray(3, y.dtype), y).astype(y.dtype)
    if name == "Pow" and d.inputs[first].dtype.kind in "iu":
        d.inputs[second] = np.abs(y).astype(y.dtype)


def prelu(d: Draw) -> None:
    shape = d.shape(d.integer(1, 4))
    d.take("X", shape)
    channels = shape[1] if len(shape) > 1 else 1
    # The reference finds the axis of channels by its size alone, where slopes do not fit the last one.
    unlike = shape.count(channels) == 1 and (len(shape) <= 2 or shape[-1] != 1)
    before_7 = [channels] if unlike and d.chance() else [1]
    d.take("slope", before_7 if d.version < 7 else broadcast(d, shape), -1, 1)


def several(d: Draw) -> None:
    dtype = d.dtype(d.schema.inputs[0].name)
    shape = d.shape()
    shapes = [shape] + [shape if d.version < 8 else broadcast(d, shape) for _ in range(d.integer(0, 3))]
    d.variadic = [d.array(dtype, s) for s in shapes]


def where(d: Draw) -> None:
    shape = d.shape()
    d.take("condition", broadcast(d, shape))
    d.take("X", shape)
    d.take("Y", broadcast(d, shape))


def same_shapes(d: Draw) -> None:
    shape = d.shape()
    for formal in d.schema.inputs:
        d.take(formal.name, shape)
    d.maybe("alpha", 0.5, 1.5)


def cast(d: Draw) -> None:
    types = {c.type_param_str: c.allowed_type_strs for c in d.schema.type_constraints}
    target = element(d.choice(types["T2"]))
    source = d.dtype("input")
    if object in (source, target) and (source.kind == "c" or target.kind == "c" or d.version < 9):
        raise Unfit
    if source == TEXT:
        words = ("1", "-3.5", "12", "0") if target.kind == "f" or target == TEXT else ("1", "3", "0")
        d.inputs["input"] = np.array([d.choice(words) for _ in range(d.size())], object)
    else:
        d.take("input", d.shape(), 0 if target.kind == "u" or target == BOOL else -4, 4)
    if target == TEXT and source.kind not in "iub":
        raise Unfit  # digits of floats are the implementation's
    text = d.version < 6
    d.attributes["to"] = TensorProto.DataType.Name(number_of(target)) if text else number_of(target)
    if source != TEXT and element_is_small(target):
        d.maybe("saturate", 0, 1)
    d.atol = 1e-2 if target == np.float16 else d.atol


def element_is_small(dtype: np.dtype) -> bool:
    return "float8" in dtype.name


def cast_like(d: Draw) -> None:
    types = {c.type_param_str: c.allowed_type_strs for c in d.schema.type_constraints}
    target, source = element(d.choice(types["T2"])), d.dtype("input")
    if object in (source, target) or target.kind == "c" or source.kind == "c":
        raise Unfit
    d.take("input", d.shape(), 0 if target.kind == "u" or target == BOOL else -4, 4)
    d.inputs["target_type"] = d.array(target, [d.size()])


def bit_cast(d: Draw) -> None:
    types = {c.type_param_str: c.allowed_type_strs for c in d.schema.type_constraints}
    source = d.dtype("input", lambda t: t != TEXT)
    same = [t for t in map(element, types["T2"]) if t != TEXT and t.itemsize == source.itemsize]
    same = [t for t in same if "int4" not in t.name and "int2" not in t.name and "float4" not in t.name]
    if not same or any(part in source.name for part in ("int4", "int2", "float4")):
        raise Unfit
    d.take("input", d.shape())
    d.attributes["to"] = number_of(d.choice(same))


def shape_of(d: Draw) -> None:
    shape = d.shape()
    d.take("data", shape)
    d.maybe("start", -2, 0, 1)
    d.maybe("end", -1, 2, 9)


def constant(d: Draw) -> None:
    names = [n for n in d.schema.attributes if n not in ("sparse_value", "value_string", "value_strings")]
    name = d.choice(names)
    value: object = {
        "value_int": 7,
        "value_ints": [3, -1, 0],
        "value_float": 0.5,
        "value_floats": [1.5, -2.0],
    }.get(name)
    if value is None:
        dtype = d.dtype("output", lambda t: t.kind != "O")
        value = numpy_helper.from_array(d.array(dtype, d.shape()))
    d.attributes[name] = value


def constant_of_shape(d: Draw) -> None:
    d.give("input", np.asarray(d.shape(), np.int64))
    if d.chance():
        d.attributes["value"] = numpy_helper.from_array(
            d.array(d.dtype("output", lambda t: t.itemsize > 0), [1])
        )


def eye_like(d: Draw) -> None:
    d.take("input", d.shape(2))
    d.maybe("k", -1, 0, 2)
    d.maybe("dtype", TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE)


def range_of(d: Draw) -> None:
    dtype = d.dtype("start")
    start, step = d.integer(-3, 9), d.choice((1, 2, 3, -1, -2))
    limit = start + step * d.integer(-2, 40)
    for name, value in (("start", start), ("limit", limit), ("delta", step)):
        d.give(name, np.asarray(value, dtype))


def window(d: Draw) -> None:
    d.give("size", np.asarray(d.size(1), d.dtype("size")))
    d.maybe("periodic", 0, 1)
    d.maybe("output_datatype", TensorProto.FLOAT, TensorProto.DOUBLE)


def mel(d: Draw) -> None:
    bins, length = d.choice((5, 8, 20)), d.choice((64, 128, 200))
    floats = d.dtype("lower_edge_hertz", lambda t: t in (np.float32, np.float64))
    whole = d.dtype("num_mel_bins")
    for name, value in (("num_mel_bins", bins), ("dft_length", length), ("sample_rate", 8000)):
        d.inputs[name] = np.asarray(value, whole)
    for name, value in (("lower_edge_hertz", 20), ("upper_edge_hertz", 3900)):
        d.inputs[name] = np.asarray(value, floats)


def dropout(d: Draw) -> None:
    d.take("data", d.shape())
    if d.is_input("ratio") and d.chance():
        d.inputs["ratio"] = d.array(d.dtype("ratio"), (), 0, 0.5)
    d.maybe("ratio", 0.25)
    if "is_test" in d.schema.attributes:
        d.attributes["is_test"] = 1
    d.outputs = d.integer(1, 2) if d.version >= 12 else 1  # ONNX Runtime's old masks say false of all


def dynamic_quantize(d: Draw) -> None:
    d.take("x", d.shape(least=1))
    d.outputs, d.atol = 3, 1.01


def quantize(d: Draw) -> None:
    x = "x"
    shape = d.shape(d.integer(1, 4), least=1)
    whole = d.schema.name == "QuantizeLinear"
    axis = d.integer(0, len(shape) - 1)
    per_axis = "axis" in d.schema.attributes and d.chance()
    scale_shape = [shape[axis]] if per_axis else []
    if per_axis and "block_size" in d.schema.attributes and d.chance():
        block = d.choice((2, 3))
        scale_shape = [-(-n // block) if k == axis else n for k, n in enumerate(shape)]
        d.attributes["block_size"] = block
    if per_axis:
        d.attributes["axis"] = axis - len(shape) if d.chance() else axis
    prefix = "y" if whole else "x"
    d.take(x, shape, -9, 9)
    scale = d.dtype(f"{prefix}_scale", lambda t: "float8" not in t.name)
    d.inputs[f"{prefix}_scale"] = d.array(scale, scale_shape, 0.5, 2)
    zero = f"{prefix}_zero_point"
    zero_type = d.dtype(zero)
    if d.chance() or (whole and zero_type != np.uint8):
        floating = "float" in zero_type.name
        steps = d.array(zero_type, scale_shape, 0, 0 if floating or zero_type in (np.int32,) else 3)
        d.inputs[zero] = steps
    d.maybe("saturate", 1, 0) if "float8" in zero_type.name else None
    d.atol = 1.01 if whole else 1e-2


UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg NonZero Not Reciprocal Relu Round Selu Shrink
    Sigmoid Sign Sin Sinh Size Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"""
BINARY = """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Mod
    Mul Or Pow StringConcat Sub Xor"""
DRAWS = {
    **dict.fromkeys(UNARY.split(), unary),
    **dict.fromkeys(BINARY.split(), binary),
    **dict.fromkeys(("Max", "Min", "Mean", "Sum"), several),
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), window),
    **{
        "Clip": clip,
        "PRelu": prelu,
        "Where": where,
        "Cast": cast,
        "CastLike": cast_like,
        "BitCast": bit_cast,
    },
    **{"Shape": shape_of, "Constant": constant, "ConstantOfShape": constant_of_shape, "EyeLike": eye_like},
    **{"Range": range_of, "MelWeightMatrix": mel, "Dropout": dropout, "SwiGLU": same_shapes},
    **{"DynamicQuantizeLinear": dynamic_quantize, "QuantizeLinear": quantize, "DequantizeLinear": quantize},
}
