"""Operators that users write in C, as their declarations tell them: text that an object file carries.

    ONNXC_DECLARE_OPERATOR(clamp, "my.domain", 1, "Clamp(T X[...], float low = 0.0) -> T Y[...]")

A parameter with brackets is a tensor, one without an attribute. Names in brackets are sizes: the same name is
the same size, `...` any number of leading ones, and a name that only outputs have is what the run finds.
`runtime_c/include/onnxc_operator.h` has the macro; a declaration is found by what it begins with, in any file
format.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from ..custom import check_domain
from ..errors import CompileError, Origin, quote
from ..ir import dims, dtypes, ops
from ..ir.builder import Builder
from ..ir.dims import Dimension
from ..ir.graph import TensorType, Value
from ..records import dataclass
from .rules import Rule, Types

#: What a declaration begins with (onnxc_operator.h): then symbol, domain, version and signature.
MARK = b"onnxc operator 1\n"

_NAMES = {"float32": "float", "float64": "double"}  # ONNX's names of types where they are others
_DTYPES = {_NAMES.get(name, name): name for name in dtypes.ALL}
_VARIABLE = re.compile(r"[A-Z]\w?$")
_ATTRIBUTES: Mapping[str, tuple[object, str]] = {
    "float": (float, "float32"),
    "int": (int, "int64"),
    "string": (str, "string"),
    "floats": (Sequence[float], "float32"),
    "ints": (Sequence[int], "int64"),
    "strings": (Sequence[str], "string"),
}
_PARAMETER = re.compile(r"(?P<type>\w+)\s+(?P<name>\w+)\s*(?P<dims>\[[^\[\]]*\])?\s*(?P<rest>\?|=.+)?$")


@dataclass(frozen=True)
class Parameter:
    """A tensor, of an element type or a type variable and with sizes, or an attribute (`sizes` is None)."""

    name: str
    type_: str
    sizes: tuple[str, ...] | None
    optional: bool = False
    default: object = None

    @property
    def leading(self) -> bool:
        """Whether any number of sizes precedes those that are named."""
        return bool(self.sizes) and self.sizes[0] == "..."  # type: ignore[index]


@dataclass(frozen=True)
class Declaration:
    """What an object file says of an operator that a function of it computes."""

    symbol: str
    domain: str
    since: int
    op_type: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]

    def rule(self) -> Rule:
        """The import rule: a call of the function, which makes all outputs, also those that a node leaves
        out."""
        names = tuple(f"{p.name}?" for p in self.outputs)
        rule = Rule(self.op_type, self.domain, self.since, _Call(self), names)
        vars(rule)["signature"] = _signature(self.inputs)
        return rule


def declared_operators(path: Path) -> list[Declaration]:
    """The operators that an object, archive or shared library declares, each once. Raises CompileError where
    it has none, cannot be read or declares one wrongly."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CompileError(
            f"it cannot be read: {error.strerror or error}", origin=Origin(str(path))
        ) from None
    texts = [data[m.end() :].split(b"\0", 1)[0] for m in re.finditer(re.escape(MARK), data)]
    found = [_declaration(text.decode("utf-8", "replace")) for text in dict.fromkeys(texts)]
    if not found:
        raise CompileError("it declares no operator with ONNXC_DECLARE_OPERATOR", origin=Origin(str(path)))
    return found


# Reading a declaration ---------------------------------------------------------------------------


def _declaration(text: str) -> Declaration:
    symbol, domain, version, signature = [*text.split("\n", 3), "", "", ""][:4]
    try:
        check_domain(domain)
        if not version.isdigit() or int(version) < 1:
            raise CompileError(f"its version {quote(version)} is not a positive number")
        parts = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*->\s*(.+)", signature, re.DOTALL)
        if parts is None:
            raise CompileError("it is not of the form NAME(INPUTS) -> OUTPUTS")
        inputs = tuple(map(_parameter, _split(parts[2])))
        outputs = tuple(map(_parameter, _split(parts[3])))
        _check(inputs, outputs)
    except CompileError as error:
        raise CompileError(
            f"the declaration of the operator {quote(symbol)} cannot be read: {error.reason}"
        ) from None
    return Declaration(ops.CUSTOM + symbol, domain, int(version), parts[1], inputs, outputs)


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets and no quotes."""
    return [
        part.strip()
        for part in re.findall(r'(?:\[[^\]]*\]|\{[^}]*\}|"[^"]*"|[^,\[{"])+', text)
        if part.strip()
    ]


def _parameter(text: str) -> Parameter:
    found = _PARAMETER.match(text)
    if found is None:
        raise CompileError(f"{quote(text)} is not TYPE NAME, TYPE NAME[SIZES] or TYPE NAME = VALUE")
    type_, name, rest = found["type"], found["name"], found["rest"] or ""
    if found["dims"] is None:
        if type_ not in _ATTRIBUTES:
            raise CompileError(f"attributes are {', '.join(_ATTRIBUTES)}, not {quote(type_)}")
        return Parameter(
            name, type_, None, rest == "?", _default(type_, rest[1:]) if rest[:1] == "=" else None
        )
    if type_ not in _DTYPES and not _VARIABLE.match(type_):
        raise CompileError(f"{quote(type_)} is neither an element type nor a variable such as T")
    sizes = tuple(size.strip() for size in found["dims"][1:-1].split(",") if size.strip())
    wrong = [s for k, s in enumerate(sizes) if not re.fullmatch(r"\w+" if k else r"\w+|\.\.\.", s)]
    if wrong or rest.startswith("="):
        raise CompileError(f"{quote(text)} is not TYPE NAME[SIZES]; sizes are names, numbers and, first, ...")
    return Parameter(name, type_, sizes, rest == "?")


def _default(type_: str, text: str) -> object:
    try:
        value = ast.literal_eval(text.strip().replace("{", "[").replace("}", "]"))
        kind = {"float": float, "int": int, "string": str}[type_.rstrip("s")]
        known = tuple(map(kind, value)) if type_.endswith("s") else kind(value)
    except (ValueError, SyntaxError, TypeError):
        raise CompileError(f"{quote(text.strip())} is no value of type {type_}") from None
    return known


def _check(inputs: Sequence[Parameter], outputs: Sequence[Parameter]) -> None:
    names = [p.name for p in (*inputs, *outputs)]
    for name in names:
        if names.count(name) > 1:
            raise CompileError(f"{quote(name)} stands there twice")
    known = {p.type_ for p in inputs if p.sizes is not None and not p.optional}
    leading = any(p.leading for p in inputs if not p.optional)
    tensors = [p for p in inputs if p.sizes is not None]
    if any(a.optional and not b.optional for a, b in zip(tensors, tensors[1:])):
        raise CompileError("required inputs come before those that may be left out")
    for output in outputs:
        if output.sizes is None or output.optional:
            raise CompileError(f"its output {quote(output.name)} is not TYPE NAME[SIZES]")
        if output.type_ not in _DTYPES and output.type_ not in known:
            raise CompileError(f"the type {output.type_} of its output is that of no input")
        if output.leading and not leading:
            raise CompileError(f"no input has the sizes ... of its output {quote(output.name)}")


def _signature(inputs: Sequence[Parameter]) -> inspect.Signature:
    """What `schemas.rule_signature` and the importer read: as if the rule were written in Python."""
    first, tensor, attribute = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    parameters = [inspect.Parameter("b", first)]
    for p in inputs:
        if p.sizes is not None:
            names = [_NAMES.get(n, n) for n in dtypes.ALL] if _VARIABLE.match(p.type_) else [p.type_]
            allowed = Types.of(p.type_ if len(names) > 1 else f"tensor({p.type_})", *names)
            default = None if p.optional else inspect.Parameter.empty
            parameters.append(
                inspect.Parameter(p.name, tensor, default=default, annotation=Annotated[Value, allowed])
            )
    for p in inputs:
        if p.sizes is None:
            required = p.default is None and not p.optional
            kind: Any = _ATTRIBUTES[p.type_][0]
            parameters.append(
                inspect.Parameter(
                    p.name,
                    attribute,
                    default=inspect.Parameter.empty if required else p.default,
                    annotation=kind,
                )
            )
    return inspect.Signature(parameters)


# Calling -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """The rule of a declared operator. Attributes become constants behind the operands; the function is told
    which of its parameters is which operand."""

    declaration: Declaration

    def __call__(self, b: Builder, *inputs: Value | None, **attributes: object) -> tuple[Value, ...]:
        declared = self.declaration
        operands: list[Value] = []
        places: list[int] = []
        given = iter(inputs)
        sizes = _Sizes(b)
        for p in declared.inputs:
            if p.sizes is not None:
                value = next(given, None)
                if value is not None:
                    sizes.bind(p, value)
            else:
                known = attributes.get(p.name, p.default)
                value = None if known is None else b.constant(_attribute(p, known))
            places.append(-1 if value is None else len(operands))
            if value is not None:
                operands.append(value)
        types = [sizes.type_of(p) for p in declared.outputs]
        numbers = [dtypes.NUMBERS[t.dtype] for t in types]
        attributes_ = (*numbers, len(places), *places)
        call = ops.RuntimeCall(declared.symbol, tuple(types), attributes_, tuple(sizes.equal))
        return b.emit(call, *operands)


def _attribute(parameter: Parameter, value: Any) -> np.ndarray:
    dtype = _ATTRIBUTES[parameter.type_][1]
    if dtype != "string":
        return np.array(value, dtypes.numpy_dtype(dtype))
    several = parameter.type_.endswith("s")
    array = np.empty(len(value) if several else (), object)
    array[...] = list(value) if several else value
    return array


@dataclass
class _Sizes:
    """What the names of sizes and types stand for at one node."""

    builder: Builder
    named: dict[str, Dimension] = field(default_factory=dict)
    leading: tuple[Dimension, ...] | None = None
    types: dict[str, str] = field(default_factory=dict)
    equal: list[tuple[Dimension, Dimension]] = field(default_factory=list)

    def bind(self, parameter: Parameter, value: Value) -> None:
        """Takes an operand's sizes for those that its parameter names; what must agree is noted."""
        shape, sizes = tuple(value.shape), parameter.sizes or ()
        self.types.setdefault(parameter.type_, value.dtype)
        tail = sizes[1:] if parameter.leading else sizes
        if len(shape) < len(tail) or (len(shape) > len(tail) and not parameter.leading):
            at_least = "at least " if parameter.leading else ""
            raise ops.TypeMismatch(
                f"its input '{parameter.name}' is {value.type} where {at_least}{len(tail)} axes are needed"
            )
        split = len(shape) - len(tail)
        if parameter.leading and self.leading is None:
            self.leading = shape[:split]
        elif parameter.leading:
            assert self.leading is not None
            if len(self.leading) != split:
                raise ops.TypeMismatch(
                    f"its input '{parameter.name}' is {value.type} where ... has {len(self.leading)} axes"
                )
            for found, known in zip(shape, self.leading):
                self._agree(parameter, value, found, known)
        for name, found in zip(tail, shape[split:]):
            known = int(name) if name.isdigit() else self.named.setdefault(name, found)
            self._agree(parameter, value, found, known)

    def _agree(self, parameter: Parameter, value: Value, found: Dimension, known: Dimension) -> None:
        same = dims.equal(found, known)
        if same is False:
            raise ops.TypeMismatch(
                f"its input '{parameter.name}' is {value.type}, a size {found} where {known} is needed"
            )
        if same is None:
            self.equal.append((found, known))

    def type_of(self, output: Parameter) -> TensorType:
        """The type of an output; sizes that no input has are what the run finds."""
        sizes = output.sizes or ()
        tail = sizes[1:] if output.leading else sizes
        shape = list(self.leading or ()) if output.leading else []
        for name in tail:
            if not name.isdigit() and name not in self.named:
                self.named[name] = self.builder.fresh(name)
            shape.append(int(name) if name.isdigit() else self.named[name])
        return TensorType(_DTYPES.get(output.type_) or self.types[output.type_], tuple(shape))
