"""IR text: prints graphs and expressions; `text_parser.py` reads it.

    graph main(%x: float32[b, 8]) where b >= 1 {
      %w = constant float32[8] splat 0.5
      %0 = map(%x, %w) { max(mul($0, $1), 0.0) } : float32[b, 8]
      return %0
    }
An output that is the next value of an input %old is returned as `%new next %old`. An op is its name in lower
case, its operands, and the fields that differ from their default, each written as its annotation in `ops.py`
asks; so an op added there needs nothing here.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from . import dims, dtypes, expr, ops
from .dims import Dimension
from .expr import Expr
from .graph import Constant, Graph, Node, OptionalType, SequenceType, TensorType, Type, Value, regions, walk

INLINE_ELEMENTS = 32  # constants of up to this many elements are printed whole
HASHED_BYTES = 1 << 20  # of larger ones a sample is hashed, or none of those that are not stored
NESTING = 12  # operations of an expression inside each other


class TextError(ValueError):
    """Text that is no IR; the message names the line."""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


OPS: dict[str, type[ops.Op]] = {_snake(cls.__name__): cls for cls in ops.Op.__subclasses__()}


@cache
def op_fields(cls: type[ops.Op]) -> tuple[tuple[str, object, object], ...]:
    """(name, annotation, default or MISSING) of the fields that are printed: the types of outputs
    are, after the colon."""
    hints = get_type_hints(cls)
    fields = dataclasses.fields(cls)
    return tuple((f.name, _present(hints[f.name]), f.default) for f in fields if f.name != "types")


def _present(hint: object) -> object:
    """An annotation without `| None`."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if isinstance(hint, UnionType) and len(kinds) == 1 else hint


# Printing ----------------------------------------------------------------------------------------


def graph_text(graph: Graph) -> str:
    """The graph as text that `parse` reads."""
    head = f"graph {_word(graph.name)}" if graph.name else "graph"
    return "\n".join(_Printer().graph(graph, head, _where(graph)))


def expr_text(root: Expr) -> str:
    """`t0 = mul($0, $0); add(t0, t0)`: parts that are used twice, or are deep, get a name. Types
    are written where nothing else tells them."""
    order = expr.topological(root)
    uses: dict[int, int] = {}
    for node in order:
        for argument in node.args:
            uses[id(argument)] = uses.get(id(argument), 0) + 1
    text: dict[int, str] = {}
    depth: dict[int, int] = {}
    bindings: list[str] = []
    for node in order:
        text[id(node)] = _operation_text(node, text)
        depth[id(node)] = 1 + max((depth[id(a)] for a in node.args), default=-1)
        if node.args and node is not root and (uses[id(node)] > 1 or depth[id(node)] >= NESTING):
            name = f"t{len(bindings)}"
            bindings.append(f"{name} = {text[id(node)]}; ")
            text[id(node)], depth[id(node)] = name, 0
    return "".join(bindings) + text[id(root)] + _suffix(root)


def _suffix(node: Expr) -> str:
    return f":{node.dtype}" if node.op == "const" and node.dtype != "bool" else ""


def alike(op: str) -> slice:
    """The arguments of an operation that have one type, so that one tells the others'."""
    return {"select": slice(1, 3), "check": slice(0)}.get(op, slice(None))


def _operation_text(node: Expr, text: Mapping[int, str]) -> str:
    match node.op:
        case "input":
            return f"${node.value}"
        case "const":
            return _scalar_text(node.value, node.dtype)
        case "index" | "size":
            return f"{node.op}({node.value})"
    group = range(len(node.args))[alike(node.op)]
    told = {node.args[k].dtype for k in group if node.args[k].op != "const"}
    arguments = [
        text[id(a)] + ("" if k in group and a.dtype in told else _suffix(a)) for k, a in enumerate(node.args)
    ]
    if node.op in ("cast", "bitcast"):
        arguments.append(node.dtype)
    elif node.op == "lookup":
        arguments += [node.dtype, node.value.hex()]
    elif node.op == "check":
        arguments += [node.value.code, *([json.dumps(node.value.says)] if node.value.says else [])]
    return f"{node.op}({', '.join(arguments)})"


def _scalar_text(value: Any, dtype: str) -> str:
    """The shortest text that gives the value again."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "string":
        return json.dumps(str(value))
    if dtypes.is_integer(dtype):
        return str(int(value))
    if dtype in dtypes.COMPLEX:
        return str(complex(value)).strip("()")
    if dtype in ("float32", "float16"):
        with np.errstate(over="ignore"):
            return str(dtypes.numpy_dtype(dtype).type(value))
    return repr(float(value))


def _word(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z_]\w*", text) else json.dumps(text)


def _where(graph: Graph) -> str:
    """What is known of variables, where that is not merely that they are no less than 0."""
    found: dict[str, int | None] = {}
    for dimension in _dimensions(graph):
        for s in dims.symbols(dimension):
            if s.minimum != 0:
                found[s.name] = s.minimum
    facts = [f"{n} any" if m is None else f"{n} >= {m}" for n, m in sorted(found.items())]
    return f" where {', '.join(facts)}" if facts else ""


def _dimensions(graph: Graph) -> Iterator[Dimension]:
    """Every dimension in a graph and its regions, repeatedly."""
    values = list(graph.inputs)
    for node in walk(graph):
        yield from ops.dimensions(node.op)
        values.extend(node.outputs)
        for region in regions(node.op):
            values.extend(region.inputs)
        if isinstance(node.op, ops.Bind):
            yield from (dims.symbol(s.name, s.minimum) for s in node.op.symbols)
    for value in values:
        type_: Type | None = value.type
        while isinstance(type_, (SequenceType, OptionalType)):
            type_ = type_.element
        if isinstance(type_, TensorType):
            yield from type_.shape
        if value.elements is not None:
            yield from value.elements.flat


class _Printer:
    """Gives values their names, in the order in which they appear."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.unnamed = 0
        self.used: set[str] = set()
        self.repeated: dict[str, int] = {}  # how often a name was taken already

    def name(self, value: Value) -> str:
        """%name, made unique with a number; values without a name are numbered."""
        if value not in self.names:
            if value.name:
                self.names[value] = f"%{self.unique(value.name)}"
            else:
                self.names[value] = f"%{self.unnamed}"
                self.unnamed += 1
        return self.names[value]

    def unique(self, wanted: str) -> str:
        name, count = wanted, self.repeated.get(wanted, 0)
        while name in self.used:
            count += 1
            name = f"{wanted}.{count}"
        self.repeated[wanted] = count
        self.used.add(name)
        return name if re.fullmatch(r"[A-Za-z_/][\w./$-]*", name) else json.dumps(name)

    def graph(self, graph: Graph, head: str, where: str = "") -> list[str]:
        inputs = ", ".join(f"{self.name(v)}: {self.type(v)}" for v in graph.inputs)
        lines = [f"{head}({inputs}){where} {{"]
        for node in graph.nodes:
            for line in (*self.constants(node.inputs), *self.node(node).split("\n")):
                lines.append(f"  {line}")
        lines.extend(f"  {line}" for line in self.constants(graph.outputs))
        following = {output: f" next {self.name(graph.inputs[k])}" for k, output in graph.states}
        outputs = ", ".join(f"{self.name(v)}{following.get(k, '')}" for k, v in enumerate(graph.outputs))
        return [*lines, f"  return {outputs}".rstrip(), "}"]

    def type(self, value: Value) -> str:
        told = value.producer is not None and isinstance(value.producer.op, ops.Elements)
        if value.elements is not None and value.constant is None and not told:
            return f"{value.type} = ({', '.join(map(str, value.elements.flat))})"
        return str(value.type)

    def constants(self, values: Sequence[Value]) -> Iterator[str]:
        """One line for each constant that has none yet."""
        for value in dict.fromkeys(values):
            if value.constant is not None and value not in self.names:
                yield f"{self.name(value)} = constant {value.type} {_data_text(value.constant)}"

    def node(self, node: Node) -> str:
        outputs = ", ".join(self.name(v) for v in node.outputs)
        operands = ", ".join(self.name(v) for v in node.inputs)
        parts = [f"{outputs} =" if outputs else "", f"{_snake(type(node.op).__name__)}({operands})"]
        for name, hint, default in op_fields(type(node.op)):  # type: ignore[arg-type]  # of dataclasses' __hash__
            value = getattr(node.op, name)
            if isinstance(node.op, ops.Map) and name == "body":
                parts.append(f"{{ {expr_text(value)} }}")
            elif isinstance(value, Graph):
                parts.append("\n".join(self.graph(value, f"{name}=")))
            elif value is not default and value != default:
                parts.append(f"{name}={_field_text(hint, value)}")
        if node.choice is not None:
            choice = str(node.choice)
            parts.append(f"by {choice if re.fullmatch(CHOICE, choice) else json.dumps(choice)}")
        if node.outputs:
            parts.append(f": {', '.join(self.type(v) for v in node.outputs)}")
        if node.origin:
            parts.append(f"from {json.dumps(node.origin)}")
        return " ".join(part for part in parts if part)


CHOICE = r"[A-Za-z_]\w*(\([^()\"]*\))?"


def _field_text(hint: object, value: Any) -> str:
    if value is None:
        return "none"
    if hint is Expr:
        return f"{{ {expr_text(value)} }}"
    if get_origin(hint) is tuple:
        items = zip(_item_hints(hint, len(value)), value, strict=True)
        return f"({', '.join(_field_text(h, v) for h, v in items)})"
    if hint is bool:
        return "true" if value else "false"
    if hint is float:
        return repr(float(value))
    return _word(value) if isinstance(value, str) else str(value)


def _item_hints(hint: object, count: int) -> Sequence[object]:
    """The annotation of each item of a tuple."""
    kinds = get_args(hint)
    return kinds[:1] * count if kinds[-1] is Ellipsis else kinds


def _data_text(constant: Constant) -> str:
    if constant.splat is not None:
        return f"splat {_scalar_text(constant.splat, constant.dtype)}"
    if dims.product(constant.shape) <= INLINE_ELEMENTS:
        scalars = (_scalar_text(v, constant.dtype) for v in constant.array.flat)
        return f"({', '.join(scalars)})"
    if not constant.materialised and constant.nbytes > HASHED_BYTES:
        return "#data"
    if constant.dtype == "string":
        data = json.dumps([str(v) for v in constant.array.flat]).encode()
    else:
        whole = np.ascontiguousarray(constant.array).reshape(-1).view(np.uint8)
        data = whole[:: 1 + whole.size // HASHED_BYTES].tobytes()
    return f"#{hashlib.blake2b(data, digest_size=4).hexdigest()}"
