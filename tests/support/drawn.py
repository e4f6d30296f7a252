"""Nodes drawn from their schemas: a version of an operator, types that it allows, sizes, attributes, and
which inputs are stored in the model.

`Draw` knows the schema; per operator a function (`drawn_*.py`) says what no schema can: which shapes belong
together and what values mean. Names that a version has as an attribute or as an input are given the same way.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxc.commands.comparison import for_onnxruntime, onnxruntime_session
from onnxc.ir import dtypes

from .suite import as_value, difference

SIZES = (3, 1, 2, 0, 5, 7, 8, 17, 33, 130)
MOST = 4000  # elements of a tensor
WORDS = ("a", "", "onnx", "Ünïcode", "b c", "12", "-3.5")
TEXT, BOOL = np.dtype(object), np.dtype(bool)  # element types
NEWEST = defs.onnx_opset_version()
ML = "ai.onnx.ml"

Data = np.ndarray | list | None


class Case(NamedTuple):
    """A model of one node, what it runs on, and how near results must be."""

    model: onnx.ModelProto
    feeds: dict[str, Data]
    rtol: float
    atol: float
    values: bool  # whether the others' can be compared, beside types and shapes


class Unfit(Exception):
    """What was drawn so far cannot be continued; another draw may."""


def versions(domain: str, operator: str) -> list[defs.OpSchema]:
    """All versions of an operator, the oldest first."""
    return _schemas().get((domain, operator), [])


@cache
def _schemas() -> dict[tuple[str, str], list[defs.OpSchema]]:
    found: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


class Draw:
    """A node under construction."""

    def __init__(self, source: random.Random, schema: defs.OpSchema) -> None:
        self.source, self.schema = source, schema
        self.version: int = schema.since_version
        self.inputs: dict[str, Data] = {}
        self.variadic: list[Data] = []
        self.attributes: dict[str, object] = {}
        self.outputs = schema.min_output
        self.rtol, self.atol, self.values = 1e-3, 1e-5, True
        self.stored: set[str] = set()
        self.must_store: set[str] = set()
        self.symbolic = self.chance()
        self.wrapped = False  # whether the first input is an optional
        self.data = np.random.default_rng(source.randrange(1 << 30))
        self.types: dict[str, np.dtype] = {}

    # Choices

    def chance(self, of: int = 2) -> bool:
        return self.source.randrange(of) == 1

    def choice(self, options: Sequence):
        return options[self.source.randrange(len(options))]

    def integer(self, low: int, high: int) -> int:
        return low + self.source.randrange(high - low + 1)

    def size(self, least: int = 0) -> int:
        return self.choice([n for n in SIZES if n >= least])

    def shape(self, rank: int | None = None, least: int = 0, most_rank: int = 4) -> list[int]:
        rank = self.integer(0, most_rank) if rank is None else rank
        shape = [self.size(least) for _ in range(rank)]
        while prod(shape) > MOST:
            shape[shape.index(max(shape))] = self.choice((3, 2, 5))
        return shape

    def axis(self, rank: int) -> int:
        """An axis, from the end too."""
        if rank == 0:
            raise Unfit
        axis = self.integer(0, rank - 1)
        return axis - rank if self.chance() and self.version >= 11 else axis

    def axes(self, rank: int, least: int = 0) -> list[int]:
        axes = [k for k in range(rank) if self.chance()]
        axes = axes if len(axes) >= least else list(range(min(least, rank)))
        return [a - rank if self.chance() and self.version >= 11 else a for a in axes]

    # What the schema says

    def dtype(self, name: str, among: Callable[[np.dtype], bool] = lambda _: True) -> np.dtype:
        """The element type of an input, one that the version allows; one for all of a type variable."""
        formal = next((i for i in (*self.schema.inputs, *self.schema.outputs) if i.name == name), None)
        if formal is None:
            raise Unfit
        if formal.type_str not in self.types:
            self.types[formal.type_str] = self._chosen(formal.type_str, among)
        return self.types[formal.type_str]

    def _chosen(self, text: str, among: Callable[[np.dtype], bool]) -> np.dtype:
        bounds = {c.type_param_str: c.allowed_type_strs for c in self.schema.type_constraints}
        found = [element(t) for t in bounds.get(text, [text]) if t.startswith("tensor(")]
        found = [t for t in found if among(t)]
        if not found:
            raise Unfit
        plain = [t for t in found if t == np.float32]
        return self.choice(plain) if plain and not self.chance() else self.choice(found)

    def has(self, name: str) -> bool:
        """Whether the version has an attribute or input of the name."""
        return name in self.schema.attributes or any(i.name == name for i in self.schema.inputs)

    def is_input(self, name: str) -> bool:
        return any(i.name == name for i in self.schema.inputs)

    def give(self, name: str, value: object) -> bool:
        """An attribute or input of the name, whichever the version has; False where it has neither."""
        if name in self.schema.attributes:
            self.attributes[name] = value
        elif self.is_input(name):
            whole = isinstance(value, int) or (
                isinstance(value, list) and not any(isinstance(v, float) for v in value)
            )
            self.inputs[name] = (
                np.asarray(value, np.int64 if whole else np.float32)
                if not isinstance(value, np.ndarray)
                else value
            )
            if self.chance():
                self.stored.add(name)
        return self.has(name)

    def maybe(self, name: str, *values: object) -> None:
        """One of the values for an attribute, where the version has it; mostly."""
        if name in self.schema.attributes and self.source.randrange(3):
            self.attributes[name] = self.choice(values)

    # Values

    def array(
        self, dtype: np.dtype | type, shape: Sequence[int], low: float = -4, high: float = 4
    ) -> np.ndarray:
        """Multiples of 1/16, which every type of 16 bits or more holds, or integers."""
        dtype = np.dtype(dtype)
        if dtype == TEXT:
            return np.array([self.choice(WORDS) for _ in range(prod(shape))], object).reshape(shape)
        if dtype == BOOL:
            return np.asarray(self.data.integers(0, 2, shape), bool)
        name = dtypes.from_numpy(dtype)
        if dtypes.is_integer(name):
            least, greatest = dtypes.integer_range(name)
            first, last = max(least, int(np.ceil(low))), min(greatest, int(np.floor(high)))
            return np.asarray(self.data.integers(first, max(first, last), shape, endpoint=True)).astype(dtype)
        values = np.round(self.data.uniform(low, high, shape) * 16) / 16
        if name in dtypes.COMPLEX:
            values = values + 1j * np.round(self.data.uniform(low, high, shape) * 16) / 16
        return np.asarray(values).astype(dtype)

    def take(
        self, name: str, shape: Sequence[int], low: float = -4, high: float = 4, among=lambda _: True
    ) -> np.ndarray:
        """An input of the name with such elements."""
        array = self.array(self.dtype(name, among), shape, low, high)
        self.inputs[name] = array
        if self.chance(4):
            self.stored.add(name)
        return array

    def optional(self, name: str, shape: Sequence[int], low: float = -4, high: float = 4) -> None:
        if self.is_input(name) and self.chance():
            self.take(name, shape, low, high)

    def store(self, *names: str) -> None:
        """Inputs that are part of the model whatever is drawn."""
        self.must_store.update(names)

    # The model

    def case(self) -> Case:
        formal = [i.name for i in self.schema.inputs if i.option.name != "Variadic"]
        given = [self.inputs.get(name) for name in formal]
        names = [f"x_{name}" if value is not None else "" for name, value in zip(formal, given)]
        pairs = list(zip(names, given))
        if self.variadic:
            pairs += [(f"v{k}" if v is not None else "", v) for k, v in enumerate(self.variadic)]
        while pairs and pairs[-1][1] is None:
            pairs.pop()
        outputs = [f"y{k}" for k in range(self.outputs)]
        node = helper.make_node(
            self.schema.name,
            [n for n, _ in pairs],
            outputs,
            name="node",
            domain=self.schema.domain,
            **self.attributes,
        )
        stored = {f"x_{name}" for name in self.stored | self.must_store}
        kept = [numpy_helper.from_array(v, n) for n, v in pairs if n in stored]
        fed = {n: v for n, v in pairs if n and n not in stored}
        types = {n: type_of(v, n if self.symbolic else "") for n, v in fed.items()}
        if self.wrapped:
            types = {n: helper.make_optional_type_proto(t) for n, t in types.items()}
        declared = [helper.make_value_info(n, t) for n, t in types.items()]
        graph = helper.make_graph(
            [node], "drawn", declared, [onnx.ValueInfoProto(name=o) for o in outputs], kept
        )
        opsets = [helper.make_opsetid("", self._opset() if not self.schema.domain else min(NEWEST, 21))]
        opsets += [helper.make_opsetid(self.schema.domain, self._opset())] if self.schema.domain else []
        return Case(
            helper.make_model(graph, opset_imports=opsets, ir_version=10),
            fed,
            self.rtol,
            self.atol,
            self.values,
        )

    def _opset(self) -> int:
        """The version itself, or the last of the operator set that has it."""
        later = [s.since_version for s in versions(self.schema.domain, self.schema.name)]
        newest = max([NEWEST if not self.schema.domain else 5, self.version])
        last = min([v - 1 for v in later if v > self.version], default=newest)
        return self.choice((self.version, last))


@cache
def element(text: str) -> np.dtype:
    """`tensor(float)` as numpy has it; strings are objects."""
    number = TensorProto.DataType.Value(text.removeprefix("tensor(").removesuffix(")").upper())
    return np.dtype(object) if number == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(number)


def number_of(dtype: np.dtype) -> int:
    return TensorProto.STRING if dtype == TEXT else helper.np_dtype_to_tensor_dtype(dtype)


def type_of(value: Data, symbol: str) -> onnx.TypeProto:
    """The declared type; its sizes are variables if they get a name."""
    if isinstance(value, list):
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(number_of(value[0].dtype), None))
    assert value is not None
    shape = [f"{symbol}_{k}" for k in range(value.ndim)] if symbol else list(value.shape)
    return helper.make_tensor_type_proto(number_of(value.dtype), shape)


# Others -------------------------------------------------------------------------------------------

onnxruntime.set_default_logger_severity(4)
os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")


def by_onnxruntime(case: Case) -> list:
    _refuse_mistakes(case, "onnxruntime")
    session = onnxruntime_session(case.model, threads=1, optimise=False)
    types = {entry.name: entry.type for entry in session.get_inputs()}
    found = session.run(None, {n: for_onnxruntime(v, types.get(n, "")) for n, v in case.feeds.items()})
    declared = [o.type for o in session.get_outputs()]
    if any(t.startswith("tensor(") and element(t).kind == "V" for t in declared):
        raise ValueError("numpy lacks the type")
    return found


#: What others do otherwise than the specification: the versions, and the types of the first operand.
_INTEGERS, _STRINGS = {"int32", "int64"}, {"object"}
MISTAKEN = {
    ("reference", "AveragePool"): ({1}, None, "counts what pads the image"),
    ("reference", "TreeEnsembleRegressor"): (None, _INTEGERS, "sums in the type of the features"),
    ("reference", "Scaler"): (None, _INTEGERS, "scales in the type of the features"),
    ("reference", "Trilu"): (None, _STRINGS, "writes 0 between strings"),
    ("reference", "Pad"): (None, _STRINGS, "pads with 0"),
    ("reference", "RMSNormalization"): (None, {"bfloat16"}, "gives the type of x, not of the scale"),
    ("reference", "Unique"): (None, None, "sorts what is not to be sorted"),
    ("onnxruntime", "Gather"): (None, _STRINGS, "copies only the first of a row"),
}


def _refuse_mistakes(case: Case, who: str) -> None:
    """Raises ValueError where that one is known to be wrong."""
    graph, opset = case.model.graph, case.model.opset_import[-1]
    node = graph.node[0]
    if (who, node.op_type) not in MISTAKEN:
        return
    wrong, types, mistake = MISTAKEN[who, node.op_type]
    first = [v.type.tensor_type.elem_type for v in graph.input if v.name == node.input[0]]
    first += [t.data_type for t in graph.initializer if t.name == node.input[0]]
    version = defs.get_schema(node.op_type, opset.version, node.domain).since_version
    its = types is None or helper.tensor_dtype_to_np_dtype(first[0]).name in types
    if its and (wrong is None or version in wrong):
        raise ValueError(mistake)


def by_reference(case: Case) -> list:
    """As typed by the schema: the package computes some halves as floats, and sums in wider integers."""
    _refuse_mistakes(case, "reference")
    node, opset = case.model.graph.node[0], case.model.opset_import[-1]
    schema = defs.get_schema(node.op_type, opset.version, node.domain)
    found = ReferenceEvaluator(case.model).run(None, dict(case.feeds))
    return [
        value.astype(helper.tensor_dtype_to_np_dtype(n))
        if n and as_value(value).dtype.kind in "fiu"
        else value
        for n, value in zip(_result_types(case.model, schema), found, strict=True)
    ]


def _result_types(model: onnx.ModelProto, schema: defs.OpSchema) -> Iterator[int]:
    """The element type of each result: the one that the schema names, or that of an input of the same
    parameter, else what onnx infers; 0 where nobody says."""
    given = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    given |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    of_parameter = {
        formal.type_str: given[name]
        for formal, name in zip(schema.inputs, model.graph.node[0].input)
        if given.get(name)
    }
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    for k, output in enumerate(inferred):
        named = schema.outputs[min(k, len(schema.outputs) - 1)].type_str
        if named.startswith("tensor("):
            yield TensorProto.DataType.Value(named[len("tensor(") : -1].upper())
        else:
            yield of_parameter.get(named, output.type.tensor_type.elem_type)


def expected(case: Case) -> list | None:
    """What ONNX Runtime gives, else the onnx package, else one of them for another version that takes the
    same node; None where nobody can."""
    models = [case.model, *_others(case.model)]
    for run, model in product((by_onnxruntime, by_reference), models):
        try:
            with np.errstate(all="ignore"):
                return run(case._replace(model=model))
        except Exception:  # every way to refuse counts as one
            continue
    return None


#: Attributes of old versions that no result depends on, as the draws give them.
LEGACY = ("consumed_inputs", "is_test", "spatial", "output_sequence")


def _others(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model at the operator sets of other versions that have attributes of these names and types, its own
    version first."""
    node, opset = model.graph.node[0], model.opset_import[-1]
    kept = [
        onnx.AttributeProto.FromString(a.SerializeToString()) for a in node.attribute if a.name not in LEGACY
    ]
    for a in kept:
        if a.name == "to" and a.type == onnx.AttributeProto.STRING:
            a.CopyFrom(helper.make_attribute("to", TensorProto.DataType.Value(a.s.decode())))
    own = max(
        s.since_version for s in versions(node.domain, node.op_type) if s.since_version <= opset.version
    )
    for schema in sorted(versions(node.domain, node.op_type), key=lambda s: abs(s.since_version - own)):
        known = {name: int(a.type.value) for name, a in schema.attributes.items()}
        if all(known.get(a.name) == a.type for a in kept) and len(node.input) <= schema.max_input:
            changed = onnx.ModelProto.FromString(model.SerializeToString())
            changed.opset_import[-1].version = schema.since_version
            del changed.graph.node[0].attribute[:]
            changed.graph.node[0].attribute.extend(kept)
            yield changed


def unlike(case: Case, theirs: object, mine: object) -> str:
    """Why a result is not what the others give; nothing where it is."""
    if case.values:
        rtol, atol, theirs = case.rtol, case.atol, as_value(theirs)
        if isinstance(mine, np.ndarray) and mine.dtype.name in ("float16", "bfloat16"):
            rtol, atol = max(rtol, 3e-2), max(atol, 2e-2 if mine.dtype.name == "bfloat16" else 2e-3)
        return difference(theirs, mine, rtol, atol)
    theirs, mine = np.asarray(theirs), np.asarray(mine)
    same = (theirs.dtype, theirs.shape) == (mine.dtype, mine.shape)
    return "" if same else f"{mine.dtype}{mine.shape} instead of {theirs.dtype}{theirs.shape}"
