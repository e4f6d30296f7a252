"""What the ONNX specification says of an operator, and what a node does against it.

Schemas come from onnx.defs: for each operator the newest one that the imported operator set
selects; of domains that are not there, from the import rules. `node_problems` compares arity,
required inputs and attributes, `type_problem` the types of the inputs, once they are known; shapes
are left to the import rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args

import onnx
from onnx import AttributeProto, NodeProto

from ..errors import quote
from ..ir.graph import MapType, OptionalType, SequenceType, Type
from ..records import dataclass
from .operators import RULES, find_rule
from .rules import Rule, Types, is_optional

MIN_IR_VERSION, MAX_IR_VERSION = 3, 14

# The field of AttributeProto that each attribute type uses.
VALUE_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.SPARSE_TENSOR: "sparse_tensor",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors",
    AttributeProto.TYPE_PROTOS: "type_protos",
}
FIELD_NAMES = frozenset(VALUE_FIELDS.values())
MESSAGE_TYPES = {
    AttributeProto.TENSOR,
    AttributeProto.GRAPH,
    AttributeProto.SPARSE_TENSOR,
    AttributeProto.TYPE_PROTO,
}


@dataclass(frozen=True)
class Parameter:
    """A formal input or output; the last one may be variadic and stand for many.

    types: those that are allowed, as ONNX writes them, none standing for any; those that a later operator
    set allows among them, since exporters write convolutions of bfloat16 before operator set 22 allows them.
    variable: parameters that share one have the same type."""

    name: str
    required: bool
    variadic: bool = False
    types: frozenset[str] = frozenset()
    variable: str = ""


@dataclass(frozen=True)
class Signature:
    """An operator's or function's inputs, outputs and attributes.

    attributes: name -> (AttributeProto type or None for any, whether it is required). open: whether a node
    may give others, which mean nothing."""

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    attributes: Mapping[str, tuple[int | None, bool]]
    open: bool = False


def version_range(domain: str) -> tuple[int, int] | None:
    """The operator-set versions of a domain that are supported, or None for a foreign domain."""
    found = onnx.defs.C.schema_version_map().get(domain)
    if found is None:
        versions = [rule.since for (of, _), rules in RULES.items() if of == domain for rule in rules]
        found = (min(versions), max(versions)) if versions else None
    return found


@cache
def first_version(domain: str, op_type: str) -> int | None:
    """The operator set in which an operator first appeared."""
    return min(
        (
            schema.since_version
            for schema in onnx.defs.get_all_schemas_with_history()
            if (schema.domain, schema.name) == (domain, op_type)
        ),
        default=None,
    )


@cache
def signature(domain: str, op_type: str, version: int) -> Signature | None:
    """The signature of an operator in a version that `version_range` allows, if that has it."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        rule = find_rule(domain, op_type, version)
        return None if rule is None else rule_signature(rule)
    if schema.deprecated:  # GroupNormalization of 18 is, and has a meaning of its own
        rule = find_rule(domain, op_type, version)
        if rule is None or rule.since != schema.since_version:
            return None
    option = onnx.defs.OpSchema.FormalParameterOption
    later = {formal.name: formal.types for formal in onnx.defs.get_schema(op_type, domain).inputs}

    def parameters(formals: Iterable[Any]) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(
                formal.name,
                formal.option == option.Single,
                formal.option == option.Variadic,
                frozenset(formal.types) | later.get(formal.name, frozenset()),
                formal.type_str if formal.is_homogeneous else "",
            )
            for formal in formals
        )

    known: Any = schema.attributes  # whose stub does not say that a type is an enumeration
    attributes = {name: (int(a.type.value), bool(a.required)) for name, a in known.items()}
    return Signature(
        parameters(schema.inputs),
        parameters(schema.outputs),
        schema.min_input,
        schema.max_input,
        schema.min_output,
        schema.max_output,
        attributes,
    )


#: The attribute types of what rules annotate their keywords with, or of a keyword's default.
_ATTRIBUTE_TYPES = {
    float: AttributeProto.FLOAT,
    int: AttributeProto.INT,
    str: AttributeProto.STRING,
    Sequence[float]: AttributeProto.FLOATS,
    Sequence[int]: AttributeProto.INTS,
    Sequence[str]: AttributeProto.STRINGS,
    onnx.GraphProto: AttributeProto.GRAPH,
}


def rule_signature(rule: Rule) -> Signature:
    """The signature of an operator that has no schema but its rule."""
    given = rule.signature.parameters.values()
    inputs, attributes = [], {}
    for parameter in list(given)[1:]:
        annotated = parameter.annotation
        if parameter.kind is parameter.KEYWORD_ONLY:
            type_ = type(parameter.default) if annotated is parameter.empty else annotated
            found = next(_ATTRIBUTE_TYPES[t] for t in (type_, *get_args(type_)) if t in _ATTRIBUTE_TYPES)
            attributes[parameter.name] = (found, parameter.default is parameter.empty)
            continue
        variadic = parameter.kind is parameter.VAR_POSITIONAL
        types = _types(annotated)
        inputs.append(
            Parameter(
                parameter.name,
                not variadic and not is_optional(parameter),
                variadic,
                types.allowed,
                types.variable,
            )
        )
    outputs = tuple(Parameter(name.rstrip("?"), not name.endswith("?")) for name in rule.outputs)
    least = [max((k for k, p in enumerate(of, 1) if p.required), default=0) for of in (inputs, outputs)]
    most = 1 << 30 if inputs and inputs[-1].variadic else len(inputs)
    return Signature(tuple(inputs), outputs, least[0], most, least[1], len(outputs), attributes)


def _types(annotation: object) -> Types:
    """What an input's annotation, `T` or `T | None`, says of its types; any are allowed without one."""
    notes = (note for part in (annotation, *get_args(annotation)) for note in get_args(part))
    return next((note for note in notes if isinstance(note, Types)), Types("", frozenset()))


def function_signature(function: onnx.FunctionProto) -> Signature:
    """The signature of a model-local function: any input, output and attribute may be left out, and
    tools write attributes at calls for each other that no function declares."""
    attributes: dict[str, tuple[int | None, bool]] = {}
    attributes.update((name, (None, False)) for name in function.attribute)
    attributes.update((proto.name, (proto.type, False)) for proto in function.attribute_proto)
    return Signature(
        tuple(Parameter(name, False) for name in function.input),
        tuple(Parameter(name, False) for name in function.output),
        0,
        len(function.input),
        0,
        len(function.output),
        attributes,
        open=True,
    )


def unknown_operator(domain: str, op_type: str, version: int) -> tuple[str, str]:
    """(reason, remedy) for an operator that the operator set `version` of `domain` lacks."""
    first = first_version(domain, op_type)
    if first is not None and first > version:
        return (
            f"the operator appeared in operator set {first}, the model imports {version}",
            f"export the model with operator set {first} or newer",
        )
    if first is not None:
        last = onnx.defs.get_schema(op_type, version, domain).since_version
        return (
            f"the operator was removed with operator set {last}, the model imports {version}",
            f"export the model with an operator set before {last}, or what replaces the operator",
        )
    others = [
        other for other in onnx.defs.C.schema_version_map() if first_version(other, op_type) is not None
    ]
    if others:
        return ("unknown operator", f"an operator of this name is in the domain {others[0] or 'ai.onnx'}")
    return "unknown operator", ""


def node_problems(node: NodeProto, signature: Signature, in_function: bool) -> Iterator[str]:
    """A sentence for everything in which the node departs from the signature."""
    yield from _arity_problems(
        "input", node.input, signature.inputs, signature.min_inputs, signature.max_inputs
    )
    yield from _arity_problems(
        "output", node.output, signature.outputs, signature.min_outputs, signature.max_outputs
    )
    for attribute in node.attribute:
        if attribute.name in signature.attributes:
            expected, _ = signature.attributes[attribute.name]
            if expected and attribute.type and attribute.type != expected:
                yield (
                    f"the attribute {quote(attribute.name)} has the type "
                    f"{type_name(attribute.type)}, it must be {type_name(expected)}"
                )
        elif not signature.open and not attribute.name.startswith("__"):  # left to tools by convention
            yield f"unknown attribute {quote(attribute.name)}"
    given = {attribute.name for attribute in node.attribute}
    for name, (_, required) in signature.attributes.items():
        if required and name not in given:
            yield f"the required attribute {quote(name)} is missing"
    yield from attribute_problems(node, in_function)


def _arity_problems(
    kind: str, names: Sequence[str], formals: tuple[Parameter, ...], least: int, most: int
) -> Iterator[str]:
    if len(names) > most:
        yield f"it has {len(names)} {kind}s, {_at(most)} at most are allowed"
    elif len(names) < least:
        required = ", ".join(quote(formal.name) for formal in formals[:least])
        yield f"it has {len(names)} {kind}s, {_at(least)} at least are needed ({required})"
    for index, name in enumerate(names[:most]):
        formal = formals[min(index, len(formals) - 1)]
        if not name and (formal.required or formal.variadic):
            yield f"the required {kind} {quote(formal.name)} is missing (position {index})"


def _at(count: int) -> str:
    return "none" if count == 0 else str(count)


# What ONNX calls the element types whose names in the IR say their size.
ONNX_NAMES = {"float32": "float", "float64": "double"}


def type_problem(signature: Signature, types: Sequence[Type | None]) -> str:
    """What is wrong with the types of a node's inputs, None being an absent one; empty if nothing is."""
    bound: dict[str, tuple[str, str]] = {}
    for index, type_ in enumerate(types):
        text = "" if type_ is None else _type_text(type_)
        if not text or not signature.inputs:
            continue
        formal = signature.inputs[min(index, len(signature.inputs) - 1)]
        if formal.types and text not in formal.types and f"sparse_{text}" not in formal.types:
            few = sorted(formal.types)[:6]
            more = len(formal.types) - len(few)
            allowed = f"{', '.join(few)}{f' or one of {more} more' if more else ''}"
            return f"its input {quote(formal.name)} is {text}, where {allowed} is needed"
        first, known = bound.setdefault(formal.variable or f"{formal.name} {index}", (formal.name, text))
        if text != known:
            return f"its input {quote(formal.name)} is {text} where {quote(first)} is {known}"
    return ""


def _type_text(type_: Type) -> str:
    """`tensor(float)` and the like; empty for a sequence or an optional of what is not known yet."""
    if isinstance(type_, (SequenceType, OptionalType)):
        element = _type_text(type_.element) if type_.element is not None else ""
        kind = "seq" if isinstance(type_, SequenceType) else "optional"
        return element and f"{kind}({element})"
    if isinstance(type_, MapType):
        key, value = (ONNX_NAMES.get(name, name) for name in (type_.key, type_.value))
        return f"map({key},tensor({value}))"
    return f"tensor({ONNX_NAMES.get(type_.dtype, type_.dtype)})"


def attribute_problems(node: NodeProto, in_function: bool) -> Iterator[str]:
    """Problems of attributes that need no signature: duplicates, and values unlike their type."""
    for name, count in Counter(attribute.name for attribute in node.attribute).items():
        if count > 1:
            yield f"the attribute {quote(name)} is given {count} times"
        if not name:
            yield "an attribute has no name"
    for attribute in node.attribute:
        problem = _value_problem(attribute, in_function)
        if problem:
            yield f"the attribute {quote(attribute.name)} {problem}"


def _value_problem(attribute: AttributeProto, in_function: bool) -> str:
    """What is wrong between the attribute's declared type and the fields that hold its value.

    A scalar field may be absent: writers may leave out a value that is zero."""
    filled = {descriptor.name for descriptor, _ in attribute.ListFields()} & FIELD_NAMES
    if attribute.ref_attr_name:
        if not in_function:
            return "refers to an attribute of a function, but is in no function"
        return "has a value and refers to another attribute" if filled else ""
    field = VALUE_FIELDS.get(attribute.type)
    if field is None:
        return "has no type" if attribute.type == 0 else f"has the unknown type {attribute.type}"
    wrong = filled - {field}
    if wrong:
        return f"is declared as {type_name(attribute.type)} but has a value in {min(wrong)}"
    if not filled and attribute.type in MESSAGE_TYPES:
        return f"is declared as {type_name(attribute.type)} but has no value"
    return ""


def type_name(code: int) -> str:
    """`INTS` and the like, for messages."""
    return AttributeProto.AttributeType.Name(code) if code in VALUE_FIELDS else f"number {code}"
