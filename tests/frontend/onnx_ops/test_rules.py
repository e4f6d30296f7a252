"""Import rules: their signatures against the specification's schemas, and what they mean by the
interpreter."""

from __future__ import annotations

import inspect
import math
import re

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import defs, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema
from support.one_node import evaluate, model, reference

from onnxc.diagnostics import ModelErrors
from onnxc.frontend import schemas
from onnxc.frontend.importer import import_model
from onnxc.frontend.operators import RULES, find_rule
from onnxc.ir import dtypes
from onnxc.ir.graph import walk
from onnxc.ir.interpret import InterpretError, run_graph
from onnxc.ir.ops import Contract, Cumulate, Gather, Map, RuntimeCall

# Signatures --------------------------------------------------------------------------------------

SCHEMAS: dict[tuple[str, str], list[defs.OpSchema]] = {}
for _schema in defs.get_all_schemas_with_history():
    SCHEMAS.setdefault((_schema.domain, _schema.name), []).append(_schema)

#: Of these domains every version of every operator has a rule or a function body in the specification, ...
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")

#: ... but for these. It may only shrink.
UNSUPPORTED: set[tuple[str, str, int]] = set()

CONTRIB = {  # what ONNX Runtime says of its own operators, and of versions before the specification's
    (s.domain, s.name, s.since_version): s
    for s in get_all_operator_schema()
    if all(s.since_version < known.since_version for known in SCHEMAS.get((s.domain, s.name), ()))
}

CASES = [
    pytest.param(rule, RULES[key][k - 1].since if k else 1 << 30, id=f"{rule.op_type}-{rule.since}")
    for key in RULES
    for k, rule in enumerate(RULES[key])
    if any(schema.since_version <= rule.since for schema in SCHEMAS.get(key, ()))
]
CONTRIB_RULES = [
    pytest.param(rule, id=f"{rule.domain}-{rule.op_type}")
    for rules in RULES.values()
    for rule in rules
    if (rule.domain, rule.op_type, rule.since) in CONTRIB
]


def served(rule, before: int) -> list[defs.OpSchema]:
    """The schemas that the rule implements, newest first: from the one that its operator set has
    to the next rule's."""
    known = sorted(SCHEMAS[rule.domain, rule.op_type], key=lambda s: -s.since_version)
    older = [s for s in known if s.since_version <= rule.since][:1]
    return [s for s in known if rule.since < s.since_version < before] + older


@pytest.mark.parametrize(("rule", "before"), CASES)
def test_parameters_are_the_schemas_inputs(rule, before):
    newest, *others = served(rule, before)
    parameters = [p for p in list(rule.signature.parameters.values())[1:] if p.kind is not p.KEYWORD_ONLY]
    variadic = defs.OpSchema.FormalParameterOption.Variadic
    assert [p.name.rstrip("_") for p in parameters] == [i.name.replace("...", "") for i in newest.inputs]
    for parameter, given in zip(parameters, newest.inputs, strict=True):
        assert (parameter.kind is parameter.VAR_POSITIONAL) == (given.option == variadic)
        if given.option == defs.OpSchema.FormalParameterOption.Optional:
            assert parameter.default is None
    for schema in (newest, *others):
        optional = [p for p in parameters[len(schema.inputs) :] if p.default is p.empty]
        assert not [p for p in optional if p.kind is not p.VAR_POSITIONAL]


@pytest.mark.parametrize(("rule", "before"), CASES)
def test_keywords_are_the_schemas_attributes(rule, before):
    known = served(rule, before)
    keywords = {p.name: p for p in rule.signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    inputs = {i.name for s in known for i in s.inputs}  # Split-1 has an input and an attribute of one name
    assert {a for s in known for a in s.attributes} <= set(keywords) | inputs
    assert set(keywords) <= {a for s in SCHEMAS[rule.domain, rule.op_type] for a in s.attributes}
    for name, attribute in known[0].attributes.items():
        if name not in keywords:
            continue
        default = keywords[name].default
        if attribute.required:
            assert default is inspect.Parameter.empty
        elif attribute.default_value.name:
            assert normal(default) == normal(helper.get_attribute_value(attribute.default_value))
        else:
            assert default is None


def normal(value):
    """A default in one form: text as str, numbers as float32 has them, lists as tuples."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return tuple(map(normal, value))
    return float(np.float32(value)) if isinstance(value, float) else value


def test_every_rule_has_a_schema():
    rules = {rule for found in RULES.values() for rule in found}
    assert {case.values[0] for case in (*CASES, *CONTRIB_RULES)} == rules


@pytest.mark.parametrize("rule", CONTRIB_RULES)
def test_a_rule_without_a_schema_is_one_as_onnxruntime_has_it(rule):
    schema = CONTRIB[rule.domain, rule.op_type, rule.since]
    found = schemas.signature(rule.domain, rule.op_type, rule.since)
    for formals, parameters in ((schema.inputs, found.inputs), (schema.outputs, found.outputs)):
        wanted = [(p.name, str(p.option).rpartition(".")[2]) for p in formals]
        assert [(p.name, option_of(p)) for p in parameters] == wanted
    assert [p.types for p in found.inputs] == [frozenset(p.types) for p in schema.inputs]
    for first, wanted in zip(found.inputs, schema.inputs):
        for second, other in zip(found.inputs, schema.inputs):
            assert (first.variable == second.variable) == (wanted.typeStr == other.typeStr)
    types = {name: (int(a.type), a.required) for name, a in schema.attributes.items()}
    assert dict(found.attributes) == types
    for name, parameter in rule.signature.parameters.items():
        if name in schema.attributes and (default := schema.attributes[name]._default_value):
            stated = helper.get_attribute_value(onnx.AttributeProto.FromString(default))
            assert normal(parameter.default) == normal(stated)


def option_of(parameter: schemas.Parameter) -> str:
    return "Variadic" if parameter.variadic else "Single" if parameter.required else "Optional"


#: Inputs that have one rank more on graphics processors alone.
ELSEWHERE = {("DecoderMaskedMultiHeadAttention", "past_key")}

_SHAPE = r"[(\[][^()\[\]]*[)\]]"


def documented(text: str) -> set[int]:
    """How many axes an input has by its description: those of its shapes, and what is said as `2D`."""
    text = " ".join(text.split())
    lists = re.findall(
        rf"(?:[Ss]hapes?|[Dd]imensions|size)(?: is| are| can be| of)? ?`?({_SHAPE}(?:,? or {_SHAPE})*)", text
    )
    shapes = [shape[1:-1].removesuffix(",") for shape in re.findall(_SHAPE, " ".join(lists))]
    if any("..." in shape for shape in shapes):
        return set()
    ranks = {len(re.split(r",| x (?=[A-Z1]\b)", shape)) for shape in shapes}
    return ranks | {int(n) for n in re.findall(r"\b(\d)-?[Dd]\b", text)}


def test_ranks_of_inputs_are_those_that_a_schema_documents():
    unlike = []
    for (rule,) in (case.values for case in CONTRIB_RULES):
        inputs = CONTRIB[rule.domain, rule.op_type, rule.since].inputs if rule.domain else []
        for given, rank in zip(inputs, rule.ranks_of(len(inputs))):
            told = documented(given.description)
            if not told or (rule.op_type, given.name) in ELSEWHERE:
                continue
            match rank and rank.axes:
                case None:
                    agrees = len(told) > 1
                case tuple(several):
                    agrees = told <= set(several)
                case int(number):
                    agrees = max(told) <= number if rank.fewer else told == {number}
                case _:
                    agrees = True
            if not agrees:
                unlike.append((rule.op_type, given.name, told, rank))
    assert not unlike


def test_every_version_of_every_operator_has_a_rule_or_a_body():
    without = {
        (s.domain, s.name, s.since_version)
        for known in SCHEMAS.values()
        for s in known
        if not (s.deprecated or s.has_function or s.has_context_dependent_function)
        and find_rule(s.domain, s.name, s.since_version) is None
    }
    assert {key for key in without if key[0] in DOMAINS} == UNSUPPORTED


# Meaning -----------------------------------------------------------------------------------------

rng = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = floats(2, 3, 4, 5)
IMAGE = floats(1, 2, 7, 6)

AGREE = [
    ("Add", 7, [X, floats(4, 1)], {}),
    ("Div", 13, [ints(7, -7, 7, -7), ints(2, 2, -2, -2)], {}),
    ("Mod", 13, [ints(7, -7, 7, -7), ints(2, 2, -2, -2)], {}),
    ("Mod", 13, [X, floats(2, 3, 4, 5)], {"fmod": 1}),
    ("Pow", 15, [np.abs(X), ints(3)], {}),
    ("Clip", 13, [X, np.float32(-0.5), np.float32(0.5)], {}),
    ("Clip", 6, [X], {"min": -0.5, "max": 0.5}),
    ("PRelu", 16, [X, floats(3, 1, 1)], {}),
    ("Elu", 6, [X], {"alpha": 0.7}),
    ("Selu", 6, [X], {}),
    ("Shrink", 9, [X], {"lambd": 0.3, "bias": 0.1}),
    ("BitShift", 11, [np.array([1, 200], np.uint8), np.array([3, 9], np.uint8)], {"direction": "LEFT"}),
    ("Cast", 13, [np.array([1.7, -1.7, 200.0], np.float32)], {"to": onnx.TensorProto.INT32}),
    ("Cast", 13, [np.array([300, -1, 5], np.int32)], {"to": onnx.TensorProto.UINT8}),
    ("Softmax", 13, [X], {"axis": 1}),
    ("LogSoftmax", 13, [X], {"axis": -1}),
    ("Hardmax", 13, [X], {"axis": 2}),
    ("ReduceMean", 13, [X], {"axes": [1, -1], "keepdims": 0}),
    ("ReduceMean", 18, [X, ints(1, -1)], {"keepdims": 0}),
    ("ReduceSum", 13, [X, ints(2)], {}),
    ("ReduceSum", 13, [X], {"noop_with_empty_axes": 1}),
    ("ReduceL2", 13, [X], {"axes": [0]}),
    *(
        ("Erf", 9, [np.array([0, 1, 3, 4, 100], dtype)], {})
        for dtype in ("uint8", "int16", "int32", "uint64")
    ),
    ("Erf", 9, [np.array([-100, -4, -3, 2], np.int8)], {}),
    ("ReduceLogSumExp", 18, [X, ints(3)], {}),
    ("ReduceMax", 18, [X.astype(np.float16), ints(0, 2)], {"keepdims": 0}),
    ("ReduceMean", 18, [np.full((3000,), 8.0, np.float16)], {}),
    ("ArgMax", 13, [np.round(X)], {"axis": 2, "select_last_index": 1}),
    ("CumSum", 14, [X, np.int64(2)], {"exclusive": 1, "reverse": 1}),
    ("Reshape", 14, [X, ints(0, -1, 4)], {}),
    ("Reshape", 5, [X, ints(6, 20)], {}),
    ("Flatten", 13, [X], {"axis": -2}),
    ("Squeeze", 13, [floats(1, 3, 1), ints(-1)], {}),
    ("Unsqueeze", 13, [X, ints(-1, 0)], {}),
    ("Unsqueeze", 11, [X], {"axes": [0, 5]}),
    ("Transpose", 13, [X], {}),
    ("Concat", 13, [X, X[:, :1]], {"axis": 1}),
    ("Slice", 13, [X, ints(-3, 10), ints(100, -100), ints(2, 3), ints(1, -2)], {}),
    ("Slice", 1, [X], {"starts": [1, -3], "ends": [2147483647, -1], "axes": [1, 2]}),
    ("Pad", 13, [X, ints(0, 1, 0, 0, 0, 0, 2, 3), np.float32(7)], {}),
    ("Pad", 18, [X, ints(2, 1), None, ints(-1)], {"mode": "reflect"}),
    ("Expand", 13, [floats(3, 1), ints(2, 1, 4)], {}),
    ("Tile", 13, [floats(2, 3), ints(2, 3)], {}),
    ("DepthToSpace", 13, [floats(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", 13, [floats(1, 2, 4, 6)], {"blocksize": 2}),
    ("Range", 11, [np.float32(1), np.float32(4.2), np.float32(0.7)], {}),
    ("Range", 11, [np.int64(10), np.int64(4), np.int64(-3)], {}),
    ("EyeLike", 9, [floats(3, 5)], {"k": 1}),
    ("Trilu", 14, [X, np.int64(-1)], {"upper": 0}),
    ("OneHot", 11, [ints(0, -1, 7), np.int64(4), floats(2)], {"axis": 0}),
    ("Gather", 13, [X, np.array([[0, -1]])], {"axis": 2}),
    ("GatherElements", 13, [X, rng.integers(-3, 3, (2, 2, 4, 5))], {"axis": 1}),
    ("GatherND", 13, [X, rng.integers(0, 2, (2, 6, 2))], {"batch_dims": 1}),
    ("GatherND", 13, [X, rng.integers(-2, 2, (3, 5, 1))], {}),
    (
        "ScatterElements",
        18,
        [X, rng.integers(0, 3, (2, 2, 4, 5)), floats(2, 2, 4, 5)],
        {"axis": 1, "reduction": "max"},
    ),
    ("ScatterND", 16, [X, np.array([[0, 1], [1, 2]]), floats(2, 4, 5)], {"reduction": "add"}),
    ("NonZero", 13, [np.round(X)], {}),
    ("Compress", 11, [X, np.array([True, False, True])], {"axis": 2}),
    ("MatMul", 13, [floats(2, 1, 3, 4), floats(5, 4, 6)], {}),
    ("MatMul", 13, [floats(4), floats(5, 4, 6)], {}),
    (
        "Gemm",
        13,
        [floats(4, 3), floats(5, 4), floats(5)],
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    ("Einsum", 12, [floats(2, 3, 4), floats(4, 5), floats(5, 3)], {"equation": "bij, jk, ki -> bi"}),
    ("Einsum", 12, [floats(2, 3, 3)], {"equation": "...ii->...i"}),
    ("Einsum", 12, [floats(2, 3, 4), floats(4, 5)], {"equation": "...ij,jk"}),
    (
        "MatMulInteger",
        10,
        [
            rng.integers(0, 255, (3, 4)).astype(np.uint8),
            rng.integers(-128, 127, (4, 5)).astype(np.int8),
            np.uint8(12),
            np.int8(-3),
        ],
        {},
    ),
    (
        "Conv",
        11,
        [IMAGE, floats(4, 1, 3, 2), floats(4)],
        {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]},
    ),
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", 1, [IMAGE, floats(3, 2, 3, 3)], {"auto_pad": "", "pads": [1, 0, 1, 0]}),
    (
        "ConvTranspose",
        11,
        [IMAGE, floats(2, 3, 3, 3)],
        {"strides": [2, 3], "output_padding": [1, 2], "pads": [1, 0, 1, 1]},
    ),
    (
        "MaxPool",
        12,
        [IMAGE],
        {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1},
    ),
    ("AveragePool", 19, [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("AveragePool", 11, [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("GlobalAveragePool", 1, [IMAGE], {}),
    ("LpPool", 11, [IMAGE], {"kernel_shape": [2, 2], "p": 3}),
    ("BatchNormalization", 15, [X, floats(3), floats(3), floats(3), np.abs(floats(3))], {}),
    ("InstanceNormalization", 6, [X, floats(3), floats(3)], {}),
    ("LayerNormalization", 17, [X, floats(4, 5), floats(4, 5)], {"axis": 2}),
    ("GroupNormalization", 21, [floats(2, 4, 5), floats(4), floats(4)], {"num_groups": 2}),
    ("LpNormalization", 22, [X], {"axis": 1, "p": 2}),
    ("QuantizeLinear", 13, [X, np.abs(floats(3)) + 0.1, np.array([1, 2, 3], np.uint8)], {"axis": 1}),
    ("DequantizeLinear", 19, [ints(1, 2, 3, 4).reshape(2, 2).astype(np.int8), np.float32([0.5, 0])], {}),
    ("DequantizeLinear", 19, [rng.integers(-128, 127, (2, 3)).astype(np.int8), floats(3), None], {"axis": 1}),
    ("PRelu", 6, [floats(), np.float32([0.25])], {}),
    ("InstanceNormalization", 6, [floats(2, 3), floats(3), floats(3)], {}),
    ("GroupNormalization", 21, [floats(2, 6), floats(6), floats(6)], {"num_groups": 2}),
    ("LSTM", 14, [floats(4, 2, 3), floats(1, 20, 3), floats(1, 20, 5), floats(1, 40)], {"hidden_size": 5}),
    (
        "GRU",
        14,
        [floats(4, 2, 3), floats(1, 15, 3), floats(1, 15, 5), floats(1, 30)],
        {"hidden_size": 5, "linear_before_reset": 1},
    ),
    ("RNN", 14, [floats(4, 2, 3), floats(1, 5, 3), floats(1, 5, 5)], {"hidden_size": 5}),
    ("Resize", 13, [IMAGE, None, np.array([1, 1, 2, 1.5], np.float32)], {"mode": "linear"}),
    (
        "Resize",
        19,
        [IMAGE, None, None, ints(1, 2, 3, 9)],
        {"mode": "cubic", "coordinate_transformation_mode": "half_pixel"},
    ),
    ("GridSample", 16, [IMAGE, np.clip(floats(1, 3, 4, 2), -1.2, 1.2)], {"padding_mode": "border"}),
    ("HannWindow", 17, [np.int64(9)], {"periodic": 0}),
    ("RotaryEmbedding", 23, [floats(2, 3, 4, 8), floats(1, 4, 4), floats(1, 4, 4)], {}),
    (
        "RotaryEmbedding",
        23,
        [floats(2, 4, 24), floats(9, 2), floats(9, 2), ints(1, 3, 5, 8).reshape(1, 4)],
        {"num_heads": 3, "interleaved": 1, "rotary_embedding_dim": 4},
    ),
]


AGREE_NAMES = [f"{case[0]}-{case[1]}-{k}" for k, case in enumerate(AGREE)]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(("op", "opset", "inputs", "attributes"), AGREE, ids=AGREE_NAMES)
def test_rule_agrees_with_the_reference(op, opset, inputs, attributes, symbolic):
    proto = model(op, opset, inputs, attributes, symbolic)
    for found, expected in zip(evaluate(proto, inputs), reference(proto, inputs), strict=False):
        assert found.dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


# Forms that the reference does not have ----------------------------------------------------------


def run(op: str, opset: int, inputs: list, outputs: int = 1, **attributes) -> list[np.ndarray]:
    return evaluate(model(op, opset, inputs, attributes, outputs=outputs), inputs)


def test_before_operator_set_7_the_second_operand_begins_at_an_axis():
    y = floats(3, 4)
    (found,) = run("Add", 6, [X, y], broadcast=1, axis=1)
    np.testing.assert_array_equal(found, X + y[:, :, None])


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(2, 1), (2, 2)]),
        ("bij,bij,jk->bk", [(1, 3, 1), (2, 3, 4), (1, 5)]),
        ("bi,bi->b", [(1, 3), (1, 3)]),
        ("...ij,...jk->...ik", [(1, 2, 1), (3, 2, 2)]),
    ],
)
def test_axes_of_an_einsum_that_are_known_to_be_one_are_repeated(equation, shapes):
    arrays = [floats(*shape) for shape in shapes]
    (found,) = run("Einsum", 12, arrays, equation=equation)
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [18, 20])
def test_before_operator_set_21_scales_of_group_normalization_are_those_of_groups(opset):
    x, scale, bias = floats(2, 6, 5), floats(3), floats(3)
    (found,) = run("GroupNormalization", opset, [x, scale, bias], num_groups=3)
    groups = x.reshape(2, 3, -1)
    norm = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    expected = (norm * scale[:, None] + bias[:, None]).reshape(x.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


SELU = 1.67326319217681884765625 * 1.05070102214813232421875
VANISHING = [
    ("Softplus", 22, -12, lambda x: np.log1p(np.exp(x)), ("float16", "bfloat16", "float32", "float64")),
    ("Elu", 22, -1e-3, np.expm1, ("float16", "bfloat16", "float32", "float64")),
    ("Selu", 22, -1e-3, lambda x: SELU * np.expm1(x), ("float32", "float64")),
    ("Celu", 12, -1e-3, np.expm1, ("float32",)),
]
VANISHING_CASES = [(*case, dtype) for *case, kinds in VANISHING for dtype in kinds]


@pytest.mark.parametrize(("op", "opset", "least", "function", "dtype"), VANISHING_CASES)
def test_activations_are_as_exact_where_they_vanish(op, opset, least, function, dtype):
    kind = dtypes.numpy_dtype(dtype)
    x = np.linspace(least, least / 2, 20).astype(kind)
    (found,) = run(op, opset, [x])
    tolerance = 5 * float(ml_dtypes.finfo(kind).eps)
    np.testing.assert_allclose(found.astype(float), function(x.astype(float)), rtol=tolerance)


def test_before_operator_set_7_slopes_lie_along_channels():
    slope = floats(3)
    (found,) = run("PRelu", 6, [X, slope])
    np.testing.assert_array_equal(found, np.where(X < 0, X * slope[:, None, None], X))


LARGE = 2**53 + 1  # no number of float64


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attributes", "expected"),
    [
        ("PRelu", 16, [np.array([LARGE, -LARGE]), np.array([3])], {}, [LARGE, -3 * LARGE]),
        ("PRelu", 16, [np.array([2**64 - 1], np.uint64), np.array([3], np.uint64)], {}, [2**64 - 1]),
        ("PRelu", 6, [np.array([[LARGE, -LARGE]]), np.array([3, 1])], {}, [[LARGE, -LARGE]]),
        ("Gemm", 13, [np.array([[LARGE]]), np.array([[1]])], {"alpha": 3.0}, [[3 * LARGE]]),
        ("Gemm", 13, [np.array([[2]]), np.array([[1]]), np.array(LARGE)], {"beta": -3.0}, [[2 - 3 * LARGE]]),
        ("Gemm", 13, [np.array([[3]], np.int32), np.array([[5]], np.int32)], {"alpha": 0.5}, [[7]]),
        ("Shrink", 9, [np.array([LARGE, -LARGE, 1, 2, -2])], {"bias": 3.0, "lambd": 1.5},
         [LARGE - 3, 3 - LARGE, 0, -1, 1]),
        ("Shrink", 9, [np.array([2**64 - 1, 1], np.uint64)], {"bias": 1.0, "lambd": 1.5}, [2**64 - 2, 0]),
        ("Shrink", 9, [np.array([4, 5, 6], np.uint8)], {"bias": 1.0, "lambd": -5.0}, [5, 4, 5]),
        ("Shrink", 9, [np.array([100, -9], np.int8)], {"bias": 0.5, "lambd": 200.0}, [0, 0]),
    ],
)  # fmt: skip
def test_integers_keep_every_bit_but_for_what_fractions_make_of_them(op, opset, inputs, attributes, expected):
    (found,) = evaluate(model(op, opset, inputs, attributes), inputs)
    assert found.dtype == inputs[0].dtype
    assert found.tolist() == expected


def test_cast_of_operator_set_1_names_the_type():
    assert run("Cast", 1, [X], to="INT32")[0].dtype == np.int32


@pytest.mark.parametrize(("code", "greatest"), [("E4M3FN", 448), ("E4M3FNUZ", 240), ("E5M2FNUZ", 57344)])
def test_floats_of_8_bits_saturate_to_others_as_wider_ones_do(code, greatest):
    x = np.array([-1.5, 224, 57344, -57344, np.inf, -np.inf], ml_dtypes.float8_e5m2)
    (found,) = run("Cast", 19, [x], to=onnx.TensorProto.DataType.Value(f"FLOAT8{code}"))
    expected = np.clip(x.astype(np.float32), -greatest, greatest)
    np.testing.assert_array_equal(found.astype(np.float32), expected)


def test_pad_of_operator_set_1():
    (found,) = run("Pad", 1, [X], paddings=[0, 0, 1, 0, 0, 0, 0, 2], value=3.0)
    np.testing.assert_array_equal(found, np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=3))


def test_split_takes_sizes_from_its_attribute():
    parts = run("Split", 2, [X], outputs=2, axis=3, split=[2, 3])
    np.testing.assert_array_equal(np.concatenate(parts, 3), X)
    assert [p.shape[3] for p in parts] == [2, 3]


def test_split_into_uneven_parts_leaves_the_last_smaller():
    parts = run("Split", 18, [floats(7)], outputs=3, num_outputs=3)
    assert [len(p) for p in parts] == [3, 3, 1]


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 2500])
def test_an_open_axis_is_split_into_any_number_of_parts(length):
    x, size = floats(length), -(-length // 1000)
    parts = evaluate(model("Split", 18, [x], {"num_outputs": 1000}, symbolic=True, outputs=1000), [x])
    assert [len(p) for p in parts] == [min(size, max(0, length - k * size)) for k in range(1000)]
    np.testing.assert_array_equal(np.concatenate(parts), x)


def test_sizes_of_the_first_split_are_numbers_of_the_type_that_is_split():
    parts = run("Split", 1, [X, np.float32([1, 3, 1])], outputs=3, axis=3)
    assert [part.shape[3] for part in parts] == [1, 3, 1]
    np.testing.assert_array_equal(np.concatenate(parts, 3), X)


def test_a_vector_is_quantised_by_a_scale_whose_number_only_the_run_knows():
    codes, scale = np.int8([-3, 0, 7]), np.float32([0.5])
    proto = model("DequantizeLinear", 13, [codes, scale], {})
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    np.testing.assert_array_equal(evaluate(proto, [codes, scale])[0], codes * scale)


def test_an_attention_mask_of_integers_is_added_as_one_of_floats_is():
    operands, mask = [floats(1, 2, 3, 4) for _ in range(3)], ints(0, 1, 2).reshape(1, 3)
    found, expected = (
        run("Attention", 23, [*operands, m], is_causal=1) for m in (mask, mask.astype(np.float32))
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mask", [np.ones((2, 1), bool), np.zeros((1, 1), np.float32)])
def test_keys_that_an_attention_mask_does_not_reach_are_hidden(mask):
    """One that has a single key is no other; before operator set 24 it stands for all keys."""
    q, k, v = (floats(1, 1, n, 2) for n in (2, 3, 3))
    before, hidden = (run("Attention", opset, [q, k, v, mask])[0] for opset in (23, 24))
    np.testing.assert_allclose(hidden, v[:, :, :1].repeat(2, 2), rtol=1e-6)
    np.testing.assert_array_equal(before, run("Attention", 23, [q, k, v])[0])


def test_an_attention_mask_of_one_number_is_added_to_all():
    operands = [floats(1, 1, 2, 2) for _ in range(3)]
    (found,), (expected,) = (run("Attention", 24, [*operands, *m]) for m in ([np.float32(0)], []))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize(
    ("mode", "powers", "middles"),
    [("up", [0, 0, 1], [1, 1, 1]), ("down", [-1, 0, 0], [0, 0, 0]), ("nearest", [0, 0, 0], [0, 1, 1])],
)
def test_wide_numbers_become_powers_of_two_without_being_rounded_to_float32_first(
    mode, powers, middles, dtype
):
    """The numbers next to 2 ** e and to 1.5 * 2 ** e, below, there and above, become 2 ** (e + k)."""
    exponents = range(25, 31 if dtype in (np.int32, np.uint32) else 62)
    for numerator, k in ((2, powers), (3, middles)):
        x = np.array([[numerator << e - 1] for e in exponents], dtype)
        fine = dtype == np.float64
        below = np.nextafter(x, -np.inf) if fine else x - 1
        above = np.nextafter(x, np.inf) if fine else x + 1
        (got,) = run(
            "Cast", 24, [np.hstack([below, x, above])], to=onnx.TensorProto.FLOAT8E8M0, round_mode=mode
        )
        np.testing.assert_array_equal(got.view(np.uint8), [[127 + e + d for d in k] for e in exponents])


@pytest.mark.parametrize(("number", "code"), [(1e300, 254), (1e-300, 0), (0.0, 0), (np.nan, 255)])
def test_doubles_beyond_powers_of_two_become_the_last_of_these(number, code):
    (got,) = run("Cast", 24, [np.array([number])], to=onnx.TensorProto.FLOAT8E8M0)
    assert got.view(np.uint8).tolist() == [code]


def test_softmax_before_operator_set_13_takes_the_axes_from_its_axis_on_as_one():
    (found,) = run("Softmax", 11, [X], axis=2)
    exponentials = np.exp(X - X.max((2, 3), keepdims=True))
    np.testing.assert_allclose(found, exponentials / exponentials.sum((2, 3), keepdims=True), rtol=1e-5)


def test_negative_pads_cut():
    (found,) = run("Pad", 13, [X, ints(0, 0, -1, 1, 0, -2, 0, -3)])
    np.testing.assert_array_equal(found, np.pad(X[:, :1, 1:, :2], [(0, 0), (0, 0), (0, 0), (1, 0)]))


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("constants", [False, True], ids=["pads of the run", "constant pads"])
@pytest.mark.parametrize(
    "length, pads",
    [(2, (3, -4)), (2, (-3, 4)), (0, (2, -1)), (3, (-4, 1)), (3, (3, -4)), (5, (4, -7)), (3, (1, -1))],
)
def test_negative_pads_cut_what_the_other_side_adds(length, pads, constants, symbolic):
    x = floats(length)
    inputs = [x, ints(*pads), np.float32(9)]
    proto = model("Pad", 21, inputs, {}, symbolic=symbolic, constants=constants)
    (found,) = evaluate(proto, inputs[:1] if constants else inputs)
    before, after = pads
    padded = [9.0] * before + x[max(-before, 0) : max(length + after, 0)].tolist() + [9.0] * after
    assert found.tolist() == padded[: length + before + after]


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_what_is_cut_away_whole_has_no_elements_to_pad_with(mode):
    inputs = [floats(2), ints(3, -4)]
    with pytest.raises(ModelErrors, match=r"the negative pads cut more away than float32\[2\] has"):
        import_model(model("Pad", 21, inputs, {"mode": mode}, constants=True))


def test_topk_of_the_least():
    values, places = run("TopK", 11, [X, ints(2)], outputs=2, axis=1, largest=0)
    np.testing.assert_array_equal(values, np.sort(X, 1)[:, :2])
    np.testing.assert_array_equal(np.take_along_axis(X, places, 1), values)


def test_unique_in_the_order_of_first_occurrence():
    y, first, inverse, counts = run(
        "Unique", 11, [np.array([2, 1, 1, 3, 4, 3], np.float32)], outputs=4, sorted=0
    )
    np.testing.assert_array_equal(y, [2, 1, 3, 4])
    np.testing.assert_array_equal(first, [0, 1, 3, 4])
    np.testing.assert_array_equal(inverse, [0, 1, 1, 2, 3, 2])
    np.testing.assert_array_equal(counts, [1, 2, 2, 1])


def test_topk_of_operator_set_1():
    values, places = run("TopK", 1, [X], outputs=2, k=2, axis=3)
    np.testing.assert_array_equal(values, -np.sort(-X, 3)[..., :2])
    np.testing.assert_array_equal(np.take_along_axis(X, places, 3), values)


def test_upsample_repeats_pixels():
    (found,) = run("Upsample", 7, [IMAGE], scales=[1.0, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(found, IMAGE.repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_upsample_of_operator_set_1(size):
    x = floats(1, 2, 3, size)
    (found,) = run("Upsample", 1, [x], mode="nearest", height_scale=3.0, width_scale=2.0)
    np.testing.assert_array_equal(found, x.repeat(3, 2).repeat(2, 3))


@pytest.mark.parametrize(("axis", "times"), [(0, 3), (1, 1), (1, 0)])
def test_tile_of_operator_set_1(axis, times):
    x = floats(2, 5)
    (found,) = run("Tile", 1, [x, np.float32(times), np.float32(axis)])
    np.testing.assert_array_equal(
        found, np.concatenate([x[:0] if axis == 0 else x[:, :0], *[x] * times], axis)
    )


def test_batch_normalization_of_one_statistic_for_each_element():
    parameters = [np.abs(floats(3, 4)) + 0.1 for _ in range(4)]
    x = floats(2, 3, 4)
    scale, bias, mean, variance = parameters
    (found,) = run("BatchNormalization", 7, [x, *parameters], spatial=0, epsilon=0.0)
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance) * scale + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_the_mean_of_no_elements_is_zero(dtype, symbolic):
    x = np.zeros((2, 0, 3), dtype)
    for opset, inputs, attributes in ((13, [x], {"axes": [1]}), (18, [x, ints(1)], {})):
        proto = model("ReduceMean", opset, inputs, attributes, symbolic)
        (found,) = evaluate(proto, inputs)
        np.testing.assert_array_equal(found, np.zeros((2, 1, 3), dtype))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_the_mean_loss_of_an_empty_batch_is_zero(op, symbolic):
    inputs = [np.zeros((0, 3), np.float32), np.zeros(0, np.int64)]
    (found,) = evaluate(model(op, 13, inputs, {}, symbolic), inputs)
    np.testing.assert_array_equal(found, np.float32(0))


def test_statistics_are_outputs_of_a_batch_normalization_that_does_not_train():
    parameters = [np.abs(floats(3)) for _ in range(4)]
    _, *statistics = run("BatchNormalization", 6, [X, *parameters], outputs=5, is_test=1)
    for found, expected in zip(statistics, parameters[2:] * 2):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("opset", "attributes"), [(6, {}), (6, {"spatial": 0}), (7, {}), (7, {"spatial": 0}), (9, {}), (13, {})]
)
def test_a_batch_normalization_whose_statistics_are_outputs_trains(opset, attributes):
    axes, shape = ((0,), (1, *X.shape[1:])) if "spatial" in attributes else ((0, 2, 3), (1, 3, 1, 1))
    parameters = [np.abs(floats(*(n for n in shape if n > 1))) + 0.1 for _ in range(4)]
    scale, bias, mean, variance = (p.reshape(shape) for p in parameters)
    average, spread = X.mean(axes, keepdims=True), X.var(axes, keepdims=True)
    expected = [(X - average) / np.sqrt(spread + 1e-3) * scale + bias]
    expected += [mean * 0.75 + average * 0.25, variance * 0.75 + spread * 0.25, average, spread]
    attributes = {**attributes, "epsilon": 1e-3, "momentum": 0.75}
    found = run("BatchNormalization", opset, [X, *parameters], outputs=5, **attributes)
    for mine, theirs, input_ in zip(found, expected, [X, *parameters[2:] * 2], strict=True):
        assert mine.shape == input_.shape
        np.testing.assert_allclose(mine, theirs.reshape(mine.shape), rtol=1e-4, atol=1e-5)


def test_lrn_divides_by_the_squares_of_neighbouring_channels():
    x = floats(1, 6, 2, 3)
    squares = np.stack([(x[:, max(0, c - 1) : c + 3] ** 2).sum(1) for c in range(6)], 1)
    (found,) = run("LRN", 13, [x], size=4, alpha=2.0, beta=0.75, bias=1.5)
    np.testing.assert_allclose(found, x / (1.5 + 2.0 / 4 * squares) ** 0.75, rtol=1e-5)


def test_dropout_keeps_everything_outside_training():
    data, mask = run("Dropout", 13, [X], outputs=2)
    np.testing.assert_array_equal(data, X)
    assert mask.dtype == bool and mask.all()


def test_dropout_in_training_scales_what_it_keeps():
    x = np.ones((64, 64), np.float32)
    data, mask = run("Dropout", 13, [x, np.float32(0.25), np.bool_(True)], outputs=2, seed=1)
    np.testing.assert_allclose(data, mask / np.float32(0.75))
    assert 0.7 < mask.mean() < 0.8


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_normalised_numbers_of_sixteen_bits_are_rounded_once(dtype):
    x = floats(2, 4, 6)
    each, rows = floats(4), floats(6)
    for op, opset, inputs, attributes in (
        ("LayerNormalization", 17, [x, rows, rows], {}),
        ("RMSNormalization", 23, [x, rows], {}),
        ("InstanceNormalization", 22, [x, each, each], {}),
        ("GroupNormalization", 21, [x, each, each], {"num_groups": 2}),
    ):
        short = [v.astype(dtype) for v in inputs]
        (y,) = run(op, opset, short, **attributes)
        (exact,) = run(op, opset, [v.astype(np.float32) for v in short], **attributes)
        np.testing.assert_array_equal(y, exact.astype(dtype))


def test_statistics_of_a_layer_normalization_have_its_stash_type_whatever_the_data_have():
    x, rows = floats(2, 5).astype(np.float64), np.ones(5)
    y, average, inverse = run("LayerNormalization", 17, [x, rows], outputs=3)
    assert (y.dtype, average.dtype, inverse.dtype) == (np.float64, np.float32, np.float32)
    np.testing.assert_array_equal(average, x.mean(1, keepdims=True).astype(np.float32))


def test_sizes_left_open_are_those_of_the_parameters():
    """Reductions and what follows are over one shape, else they are no rows together."""
    x, each, rows = floats(2, 4, 6), floats(4), floats(6)
    for op, opset, inputs, attributes, axis in (
        ("LayerNormalization", 17, [x, rows, rows], {}, 2),
        ("RMSNormalization", 23, [x, rows], {}, 2),
        ("InstanceNormalization", 22, [x, each, each], {}, 1),
        ("GroupNormalization", 21, [x, each, each], {"num_groups": 2}, 1),
    ):
        one = model(op, opset, inputs, attributes, symbolic=True, constants=True)
        graph = import_model(one).graph
        assert graph.outputs[0].shape[axis] == x.shape[axis]
        assert not any(
            n.outputs[0].shape == graph.inputs[0].shape for n in graph.nodes if isinstance(n.op, Map)
        )
        (known,) = evaluate(model(op, opset, inputs, attributes), inputs)
        np.testing.assert_array_equal(run_graph(graph, [x])[0], known)
        with pytest.raises(InterpretError):
            run_graph(graph, [floats(2, 3, 3)])


@pytest.mark.parametrize(
    ("element", "shape"), [(1, (3,)), (1, (2, 4)), (1, (0, 3)), (0, (2, 3)), (np.nan, (5,))]
)
def test_sizes_tell_how_many_places_one_number_repeated_has(element, shape):
    """The range over an axis as exporters write it."""
    value = helper.make_tensor("value", 1, [1], [element])
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("ConstantOfShape", ["sizes"], ["repeated"], value=value),
        helper.make_node("NonZero", ["repeated"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", 1, [f"d{k}" for k in range(len(shape))])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info("y", 7, None)])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert not any(isinstance(node.op, RuntimeCall) for node in import_model(proto).graph.nodes)
    x = np.zeros(shape, np.float32)
    np.testing.assert_array_equal(evaluate(proto, [x])[0], np.nonzero(np.full(shape, element)))


def test_places_in_known_data_are_known():
    data = np.array([[0, 2, 0], [1, 0, 3]], np.float32)
    proto = model("NonZero", 13, [data], {})
    proto.graph.initializer.append(numpy_helper.from_array(data, proto.graph.input.pop().name))
    (output,) = import_model(proto).graph.outputs
    np.testing.assert_array_equal(output.data.array, np.nonzero(data))


@pytest.mark.parametrize(
    ("op", "bounds"),
    [("Relu", []), ("Clip", [np.float32(0), np.float32(1)]), ("Clip", [np.float32(-1), -0.0])],
)
def test_zeros_that_are_not_outside_of_bounds_keep_their_signs(op, bounds):
    """As in ONNX Runtime."""
    x = np.array([0.0, -0.0] * 20, np.float32)
    (found,) = run(op, 14 if op == "Relu" else 13, [x, *(np.float32(bound) for bound in bounds)])
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x))


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("shape", [(), (1, 2), (2, 1, 1)])
def test_conditions_of_any_rank_count_as_vectors_do(shape, axis):
    condition = np.arange(math.prod(shape)).reshape(shape) % 2 == 0
    for symbolic in (False, True):
        proto = model("Compress", 11, [X, condition], {} if axis is None else {"axis": axis}, symbolic)
        expected = np.compress(condition.reshape(-1), X, axis)
        np.testing.assert_array_equal(evaluate(proto, [X, condition])[0], expected)


@pytest.mark.parametrize(("op", "opset"), [("LayerNormalization", 17), ("RMSNormalization", 23)])
def test_a_stash_type_of_0_is_the_default(op, opset):
    given = [X.astype(np.float16), floats(5).astype(np.float16)]
    np.testing.assert_array_equal(run(op, opset, given, stash_type=0)[0], run(op, opset, given)[0])


def test_means_of_float16_do_not_overflow():
    (found,) = run("GlobalAveragePool", 1, [np.full((1, 1, 300, 300), 60000, np.float16)])
    assert found.dtype == np.float16 and found.item() == 60000


# Axes, sizes and bounds that are data ------------------------------------------------------------


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[1], [-1, 0], [0, 1, 2, 3]])
def test_reductions_over_axes_that_the_run_gives(axes, keepdims):
    (found,) = run("ReduceSum", 13, [X, ints(*axes)], keepdims=keepdims)
    np.testing.assert_allclose(found, X.sum(tuple(axes), keepdims=bool(keepdims)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSum"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions_over_axes_that_repeat_one_take_it_once(op, keepdims):
    x = np.abs(X)
    (expected,) = run(op, 11, [x], axes=[0, 2], keepdims=keepdims)
    (found,) = run(op, 11, [x], axes=[2, 0, -2, 0], keepdims=keepdims)
    np.testing.assert_array_equal(found, expected)
    proto = model(op, 18, [x, ints(0, 2, 0)], {"keepdims": keepdims}, constants=True)
    np.testing.assert_array_equal(evaluate(proto, [x])[0], expected)


def test_a_squeeze_of_axes_that_repeat_one_takes_it_once():
    x = floats(1, 3, 1, 8)
    assert run("Squeeze", 11, [x], axes=[0, 2, 0])[0].shape == (3, 8)
    proto = model("Squeeze", 13, [x, ints(2, -2)], {}, constants=True)
    assert evaluate(proto, [x])[0].shape == (1, 3, 8)


@pytest.mark.parametrize("op", ["Squeeze", "Unsqueeze"])
def test_axes_of_the_run_that_repeat_one_fail_it_where_their_number_is_how_ranks_differ(op):
    with pytest.raises(InterpretError, match="invalid value"):
        run(op, 13, [floats(1, 3, 1, 1), ints(0, 0)])
    assert run("ReduceSum", 13, [X, ints(0, 0)])[0].shape == (1, *X.shape[1:])


@pytest.mark.parametrize("op, opset, neutral", [("CumSum", 14, 0), ("CumProd", 26, 1)])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_totals_along_an_axis_of_one_element_need_no_sums(op, opset, neutral, exclusive):
    x, axis = floats(3, 1, 4), np.int64(1)
    expected = np.full_like(x, neutral) if exclusive else x
    proto = model(op, opset, [x, axis], {"exclusive": exclusive}, constants=True)
    assert not any(isinstance(node.op, Cumulate) for node in walk(import_model(proto).graph))
    np.testing.assert_array_equal(evaluate(proto, [x])[0], expected)
    np.testing.assert_array_equal(run(op, opset, [x, axis], exclusive=exclusive)[0], expected)


def test_an_axis_of_the_run_outside_the_rank_fails_it():
    with pytest.raises(InterpretError, match="invalid value"):
        run("CumSum", 14, [X, np.int64(4)])


def test_a_reshape_of_the_run_copies_and_infers():
    (found,) = run("Reshape", 14, [X, ints(0, -1, 5)])
    assert found.shape == (2, 12, 5)


def test_what_remains_beside_a_copied_size_of_0_is_what_the_other_axes_have():
    x = floats(0, 3)
    for symbolic in (False, True):
        proto = model("Reshape", 14, [x, ints(0, -1)], {}, symbolic, constants=True)
        assert evaluate(proto, [x])[0].shape == (0, 3)


def test_a_slice_of_the_run_steps_backwards():
    (found,) = run("Slice", 13, [X, ints(-1, 3), ints(-100, 0), ints(3, 2), ints(-2, -1)])
    np.testing.assert_array_equal(found, X[:, :, 3:0:-1, ::-2])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_a_slice_backward_from_before_the_axis_begins_at_its_first_element(length, symbolic):
    """The specification clamps the start to 0; of Python's slice nothing is left."""
    x, given = floats(length), [ints(-9), ints(-10), ints(0), ints(-1)]
    proto = model("Slice", 13, [x, *given], {}, symbolic=symbolic, constants=True)
    np.testing.assert_array_equal(evaluate(proto, [x])[0], x[:1])
    np.testing.assert_array_equal(run("Slice", 13, [x, *given])[0], x[:1])


@pytest.mark.parametrize("constants", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(("start", "step"), [(-1, -(2**63)), (2, -(2**63) + 1), (1, 2**63 - 1)])
def test_a_step_beyond_any_axis_leaves_one_element(start, step, symbolic, constants):
    x, end = np.arange(10, dtype=np.float32).reshape(5, 2), -(2**63) if step < 0 else 2**63 - 1
    inputs = [x, np.array([start]), np.array([end]), np.array([0]), np.array([step])]
    proto = model("Slice", 13, inputs, {}, symbolic=symbolic, constants=constants)
    (found,) = evaluate(proto, inputs[: len(proto.graph.input)])
    assert found.tolist() == x[[start]].tolist()


def test_a_triangle_of_complex_numbers():
    x = (floats(4, 3) + 1j * floats(4, 3)).astype(np.complex64)
    np.testing.assert_array_equal(run("Trilu", 14, [x], upper=0)[0], np.tril(x))
    texts = np.array([["a", "b"], ["c", "d"]], object)
    assert run("Trilu", 14, [texts])[0].tolist() == [["a", "b"], ["", "d"]]


def test_unique_rows_of_texts():
    x = np.array([["b", "a"], ["a", "c"], ["b", "a"]], object)
    y, first, inverse, counts = run("Unique", 11, [x], outputs=4, axis=0)
    assert y.tolist() == [["a", "c"], ["b", "a"]]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])


def test_a_step_of_0_fails_the_run():
    with pytest.raises(InterpretError, match="invalid value"):
        run("Slice", 13, [X, ints(0), ints(1), ints(0), ints(0)])


def test_more_of_topk_than_there_is_fails_the_run():
    with pytest.raises(InterpretError, match="invalid value"):
        run("TopK", 11, [X, ints(6)], outputs=2)


def test_an_integer_division_by_zero_fails_the_run():
    with pytest.raises(InterpretError, match="division by zero"):
        run("Div", 13, [ints(1, 2), ints(1, 0)])


def test_an_index_outside_fails_the_run():
    with pytest.raises(InterpretError, match="index out of range"):
        run("Gather", 13, [X, ints(2)])


# What the specification forbids ------------------------------------------------------------------

REFUSED = [
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3)], {"strides": [0, 1]}, "strides has the value 0"),
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3)], {"pads": [0, 0, -1, 0]}, "pads has the value -1"),
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3)], {"pads": [0, 0]}, "2 values where 4 are needed"),
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3)], {"group": 0}, "number of groups is 0"),
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3)], {"dilations": [1 << 62, 1]}, "out of range"),
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3)], {"kernel_shape": [2, 3]}, "does not fit the weights"),
    ("Conv", 11, [IMAGE, floats(3, 2, 3, 3), floats(4)], {}, "a vector of length 3"),
    ("Conv", 11, [IMAGE, floats(3, 1, 3, 3)], {}, "2 channels where"),
    ("Conv", 11, [IMAGE, floats(3, 2, 9, 9)], {}, "smaller than the kernel"),
    ("MaxPool", 12, [IMAGE], {"kernel_shape": [0, 2]}, "size 0"),
    ("AveragePool", 11, [IMAGE], {"kernel_shape": [2]}, "no batch of images"),
    ("Softmax", 13, [X], {"axis": 4}, "axis 4 is outside"),
    ("Softmax", 13, [X], {"axis": -(1 << 63)}, "is outside a tensor of 4 axes"),
    ("Transpose", 13, [X], {"perm": [0, 1, 2, 2]}, "no order of the axes"),
    ("Concat", 13, [X, floats(2, 3, 4)], {"axis": 1}, "does not continue"),
    ("Reshape", 14, [X, ints(-1, -1)], {}, "more than one size"),
    ("Reshape", 14, [X[:0], ints(-1, 0)], {"allowzero": 1}, "a size is -1 beside a 0"),
    ("Reshape", 14, [X, ints(7, 9)], {}, "cannot be reshaped"),
    ("MaxPool", 12, [X], {"kernel_shape": [2, 2], "storage_order": 2}, "storage_order is 2"),
    ("Tile", 13, [X, ints(1, 2)[None]], {}, "where a vector is needed"),
    ("Split", 13, [X, ints(3, -1)], {}, "negative"),
    ("Split", 13, [X, ints(1, 1)], {"axis": 1}, "2 elements together where there are 3"),
    ("Squeeze", 13, [X, ints(0)], {}, "not of size 1"),
    ("Unsqueeze", 13, [X, ints(0, 0)], {}, "repeat"),
    ("MatMul", 13, [floats(2, 3), floats(4, 5)], {}, "do not match"),
    ("Gemm", 13, [floats(2, 3), floats(3, 4), floats(3)], {}, "does not broadcast"),
    ("LayerNormalization", 17, [X, floats(6)], {}, "does not broadcast"),
    ("LayerNormalization", 17, [X, floats(5)], {"stash_type": 99}, "the attribute stash_type is 99"),
    ("Cast", 13, [X], {"to": 0}, "the attribute to is 0"),
    ("EyeLike", 9, [floats(2, 2)], {"dtype": 99}, "the attribute dtype is 99"),
    ("BatchNormalization", 15, [X, floats(4), floats(3), floats(3), floats(3)], {}, "vector of length 3"),
    ("GroupNormalization", 21, [floats(2, 4, 5), floats(4), floats(4)], {"num_groups": 3}, "not divisible"),
    ("QuantizeLinear", 13, [X, np.float32(0)], {}, "scale is 0"),
    ("DequantizeLinear", 13, [np.zeros((2,), np.int8), np.float32("nan")], {}, "scale is NaN"),
    (
        "LSTM",
        14,
        [floats(4, 2, 3), floats(1, 20, 3), floats(1, 20, 5), floats(1, 39)],
        {"hidden_size": 5},
        "operand b",
    ),
    ("LSTM", 14, [floats(4, 2, 3), floats(1, 20, 3), floats(1, 20, 5)], {"hidden_size": 6}, "is needed"),
    ("TopK", 11, [X, ints(6)], {}, "6 greatest of 5"),
    ("Pad", 21, [floats(2), ints(1, -4)], {}, "more away than float32[2] and its padding have"),
    ("DepthToSpace", 13, [floats(1, 6, 2, 3)], {"blocksize": 2}, "no multiple of 4"),
    ("DepthToSpace", 13, [floats(1, 8, 2, 3)], {"blocksize": 0}, "blocks of 0"),
    ("Slice", 13, [X, ints(0), ints(1), ints(0), ints(0)], {}, "a step is 0"),
    ("Einsum", 12, [X], {"equation": "abc->a"}, "does not name 4 axes"),
    ("Resize", 13, [IMAGE, None, np.array([1, 1, 0, 1], np.float32)], {}, "a scale is"),
    *(
        (
            "Resize",
            opset,
            [IMAGE, None, np.array([1, 1, 2, 2], np.float32)],
            {"coordinate_transformation_mode": "align_whole_corners"},
            "none of half_pixel,",
        )
        for opset in (13, 19)
    ),
]


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attributes", "reason"),
    REFUSED,
    ids=[f"{c[0]}-{k}" for k, c in enumerate(REFUSED)],
)
def test_what_contradicts_the_specification_is_refused_in_one_sentence(op, opset, inputs, attributes, reason):
    proto = model(op, opset, inputs, attributes, constants=True, outputs=2 if op in ("Split", "TopK") else 1)
    with pytest.raises(ModelErrors) as caught:
        import_model(proto)
    message = str(caught.value)
    assert reason in message and op in message and "\n" not in message and len(message) < 1000


def test_attributes_left_out_are_float32_numbers_too():
    """As they are where the model spells them out: 0.2 of float32 times a float64."""
    (got,) = evaluate(model("HardSigmoid", 21, [np.ones(3)], {}), [np.ones(3)])
    assert got.tolist() == [float(np.float32(0.2)) + 0.5] * 3


@pytest.mark.parametrize("axis", [0, 1])
def test_a_slice_without_end_goes_along_the_axis_that_the_run_names(axis):
    x, least = np.arange(20.0).reshape(4, 5), np.iinfo(np.int64).min
    given = [x, np.array([-1]), np.array([least]), np.array([axis]), np.array([-2])]
    proto = model("Slice", 21, given, {}, symbolic=True)
    for k in (1, 2, 4):  # starts, ends and steps are constants
        proto.graph.initializer.append(onnx.numpy_helper.from_array(given[k], f"x{k}"))
        del proto.graph.input[next(i for i, v in enumerate(proto.graph.input) if v.name == f"x{k}")]
    (got,) = evaluate(proto, [x, given[3]])
    assert np.array_equal(got, x[::-2] if axis == 0 else x[:, ::-2])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_axes_that_a_resize_leaves_alone_keep_their_sizes_whatever_others_are_scaled_by(mode):
    image = floats(2, 3, 7, 5)
    scales = np.array([1, 1, 1.7, 2], np.float32)
    proto = model("Resize", 19, [image, None, scales], {"mode": mode}, symbolic=True)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(scales, "x2"))
    del proto.graph.input[1]
    graph = import_model(proto).graph
    (x,), (y,) = graph.inputs, graph.outputs
    assert y.shape[:2] == x.shape[:2] and y.shape[3] == 2 * x.shape[3]
    known = model("Resize", 19, [image, None, scales], {"mode": mode})
    np.testing.assert_allclose(evaluate(proto, [image])[0], evaluate(known, [image, scales])[0], atol=1e-6)


RESIZED = {  # what the last input is, and what tells the sizes
    "sizes": ("int64[2] given", "outer = Slice (shape, zero, two)  all = Concat <axis = 0> (outer, given)"),
    "sizes like another's": (
        "float[n, 3, p, q] given",
        """outer = Slice (shape, zero, two)  other = Shape <start = 2> (given)
           all = Concat <axis = 0> (outer, other)""",
    ),
    "scales": ("float[2] given", "all = Concat <axis = 0> (ones, given)"),
}


def test_a_batch_of_any_size_is_resampled_after_rows_and_columns():
    """It is usually a single image: to begin with it would weigh whole images with one and zero."""
    proto = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, h, w, 3] x) => (float[1, 3, 4, 3] y) <int64[4] sizes = {1, 3, 4, 3}>
        { y = Resize <mode = "linear"> (x, , , sizes) }"""
    )
    picked = [node for node in import_model(proto).graph.nodes if isinstance(node.op, Gather)]
    assert [node.op.axis for node in picked] == [1, 1, 2, 2, 0, 0]


@pytest.mark.parametrize("given", RESIZED)
def test_a_resize_moves_along_the_axes_alone_whose_sizes_may_change(given):
    port, rest = RESIZED[given]
    scaled = given == "scales"
    proto = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 19]>
        g (float[n, 3, h, w] x, {port}) => (float[a, b, c, d] y)
        <int64[1] zero = {{0}}, int64[1] two = {{2}}, float[2] ones = {{1, 1}}> {{
            shape = Shape (x)
            {rest}
            y = Resize <mode = "linear"> (x, , {"all" if scaled else ", all"})
        }}""")
    graph = import_model(proto).graph
    gathers = [node.op.axis for node in walk(graph) if isinstance(node.op, Gather)]
    assert set(gathers) == {2, 3}
    x = floats(2, 3, 9, 6)
    told = {"sizes": np.array([5, 12]), "sizes like another's": floats(2, 3, 5, 12)}
    (found,) = evaluate(proto, [x, told.get(given, np.array([5 / 9, 2], np.float32))])
    wanted = model("Resize", 19, [x, None, None, np.array([2, 3, 5, 12])], {"mode": "linear"})
    (expected,) = evaluate(wanted, [x, np.array([2, 3, 5, 12])])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def all_weights(length, size, scale, mode, exclude):
    """Of an antialiased axis, [output, input]: borders repeat, or are excluded."""
    stretched, reach = min(scale, 1.0), {"linear": 1, "cubic": 2}[mode]
    border = math.ceil(reach / stretched) + 1
    places, a = np.arange(-border, length + border), -0.75
    centres = (np.arange(size)[:, None] + 0.5) / scale - 0.5
    x = np.abs(places - centres) * stretched
    kernels = {
        "linear": np.maximum(1 - x, 0),
        "cubic": np.where(
            x <= 1,
            ((a + 2) * x - (a + 3)) * x * x + 1,
            np.where(x < 2, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a, 0),
        ),
    }
    weights, out = kernels[mode], np.zeros((size, length))
    if exclude:
        weights = weights * ((places >= 0) & (places < length))
    for column, place in zip(weights.T, places.clip(0, length - 1)):
        out[:, place] += column
    return out / out.sum(1, keepdims=True)


@pytest.mark.parametrize("exclude", [0, 1])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [0.5, 0.37, 0.1, 1.0, 1.6])
def test_antialiased_images_are_what_a_product_with_all_weights_gives(scale, mode, exclude):
    """Whether the scale is known or the run tells it, and with it how many neighbours are weighed."""
    image = floats(1, 2, 13, 20)
    scales = np.array([1, 1, scale, min(1.0, 1.3 * scale)], np.float32)
    attributes = {"mode": mode, "antialias": 1, "exclude_outside": exclude}
    known = model("Resize", 19, [image, None, scales], attributes)
    known.graph.initializer.append(onnx.numpy_helper.from_array(scales, "x2"))
    del known.graph.input[1]
    told = model("Resize", 19, [image, None, scales], attributes)
    (got,), (expected,) = evaluate(known, [image]), evaluate(told, [image, scales])
    np.testing.assert_allclose(got, expected, atol=1e-5)
    rows, columns = (
        all_weights(n, o, float(s), mode, exclude) for n, o, s in zip((13, 20), got.shape[2:], scales[2:])
    )
    np.testing.assert_allclose(got, rows @ image @ columns.T, atol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(2, 9), (3, 40), (1, 1)], ids=str)
def test_antialiased_images_of_open_sizes_weigh_all_that_their_common_scale_reaches(sizes, mode):
    """Which may be more than sizes tell that were rounded; no weights of all elements are made."""
    image, sizes = floats(1, 2, 15, 40), np.array(sizes)
    attributes = {"mode": mode, "antialias": 1, "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
    proto = model("Resize", 19, [image, None, None, sizes], attributes, symbolic=True)
    (got,), scale = evaluate(proto, [image, sizes]), min(sizes[0] / 15, sizes[1] / 40)
    rows, columns = (all_weights(n, o, scale, mode, 0) for n, o in zip((15, 40), got.shape[2:]))
    np.testing.assert_allclose(got, rows @ image @ columns.T, atol=1e-5)
    assert not any(isinstance(node.op, Contract) for node in import_model(proto).graph.nodes)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
@pytest.mark.parametrize(("mode", "antialias"), [("cubic", 0), ("cubic", 1), ("linear", 1)])
@pytest.mark.parametrize("scale", [0.4, 0.6, 1.3, 2.6])
def test_weighed_integers_are_rounded(mode, antialias, scale, dtype):
    """To what the reference has, whose weights are float64: an image of one number stays so."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    given = [None, np.array([1, 1, scale, scale], np.float32)]
    drawn = rng.integers(low, high, (1, 1, 9, 11), dtype, endpoint=True)
    for image in (drawn, np.full_like(drawn, 101), np.full_like(drawn, high - 2)):
        proto = model("Resize", 19, [image, *given], {"mode": mode, "antialias": antialias})
        (got,), (expected,) = evaluate(proto, [image, *given]), reference(proto, [image, *given])
        if image is drawn:  # places are float32: halves may go the other way, 32 bits are not all right
            np.testing.assert_allclose(got, expected, rtol=0, atol=max(1, (high - low) * 2.0**-18))
            assert (got == expected).mean() > 0.9 or dtype == np.int32
        else:
            np.testing.assert_array_equal(got, image[0, 0, 0, 0])


@pytest.mark.parametrize(("number", "there"), [(-3.0, 0), (7.5, 7), (300.0, 255)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_what_lies_outside_of_an_image_of_integers_is_the_nearest_that_they_have(mode, number, there):
    region, sizes = np.array([0, 0, -0.5, 0, 1, 1, 1.5, 1], np.float32), ints(1, 1, 4, 4)
    given = [np.ones((1, 1, 4, 4), np.uint8), region, None, sizes]
    attributes = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize"}
    proto = model("Resize", 19, given, attributes | {"extrapolation_value": number})
    (got,) = evaluate(proto, given)
    assert got[0, 0, :, 0].tolist() == [there, 1, 1, there]


@pytest.mark.parametrize(
    ("coordinates", "rounding"),
    [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")],
)
def test_whole_enlargements_of_open_sizes_repeat_elements(coordinates, rounding):
    image, scales = floats(2, 3, 5, 4), np.array([1, 1, 2, 3], np.float32)
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    proto = model("Resize", 19, [image, None, scales], attributes, symbolic=True)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(scales, "x2"))
    del proto.graph.input[1]
    np.testing.assert_array_equal(evaluate(proto, [image])[0], image.repeat(2, 2).repeat(3, 3))
    picked = [node for node in import_model(proto).graph.nodes if isinstance(node.op, Gather)]
    assert [node.inputs[1].node.op.body.op for node in picked] == ["div", "div"]


@pytest.mark.parametrize(("op", "channels"), [("Conv", 6), ("ConvTranspose", 4)])
def test_kernels_tell_how_many_channels_images_of_any_size_have(op, channels):
    """So that layouts in blocks of channels are open to a convolution of open sizes."""
    x, kernels = floats(1, channels, 5, 5), floats(4, 3, 2, 2)
    proto = model(op, 22, [x, kernels], {"group": 2}, symbolic=True)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(kernels, "x1"))
    del proto.graph.input[1]
    (conv,) = (n for n in import_model(proto).graph.nodes if type(n.op).__name__ == "Conv")
    assert conv.inputs[0].shape[1] == channels
    known = model(op, 22, [x, kernels], {"group": 2})
    np.testing.assert_array_equal(evaluate(proto, [x])[0], evaluate(known, [x, kernels])[0])
    with pytest.raises(InterpretError):
        evaluate(proto, [floats(1, channels + 1, 5, 5)])
