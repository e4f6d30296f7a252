"""Parses IR text: the other direction of `text.py`.

`Reader` is a text and a place in it, `ExprParser` reads expressions, `Parser` graphs. A field of an
op is read as its annotation in `ops.py` says. Expressions wait until its other fields are known.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

import numpy as np

from . import dims, dtypes, expr, ops
from .dims import Dimension, Symbol
from .expr import Expr
from .graph import (
    Constant,
    Graph,
    Layout,
    MapType,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    UnrankedType,
    Value,
)
from .requirements import Need
from .text import CHOICE, OPS, TextError, alike, op_fields
from .verify import compatible

Minimums = Mapping[str, int | None]
T = TypeVar("T")


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None) -> Graph:
    """The graph that the text describes. `constants` gives the data of those that the text does not hold, by
    their name (its number where it has none) or hash. Types of outputs may be left out; given ones are
    checked. Raises TextError."""
    return Parser(text, constants or {}).top()


class Reader:
    """A text and a place in it."""

    def __init__(self, text: str):
        self.text, self.at = text, 0

    def error(self, reason: str, at: int | None = None) -> TextError:
        at = self.at if at is None else at
        line = self.text.count("\n", 0, at) + 1
        context = next(iter(self.text[at : at + 40].strip().splitlines()), "the end of the text")
        return TextError(f"line {line}: {reason}, at: {context}")

    def match(self, pattern: str) -> str | None:
        """What the pattern matches here, after white space; the place moves behind it."""
        found = re.compile(rf"\s*({pattern})").match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        return found.group(1)

    def accept(self, symbol: str) -> bool:
        return self.match(re.escape(symbol)) is not None

    def expect(self, pattern: str, what: str) -> str:
        found = self.match(pattern)
        if found is None:
            raise self.error(f"{what} expected")
        return found

    def rest(self) -> str:
        return self.text[self.at :].strip()

    def until(self, stops: str) -> str:
        """The text up to a stop outside all brackets and strings; the place moves to the stop."""
        start, depth = self.at, 0
        while self.at < len(self.text):
            c = self.text[self.at]
            if depth == 0 and c in stops:
                return self.text[start : self.at].strip()
            if c == '"':
                self.expect(_STRING, "string")
                continue
            depth += (c in "([{") - (c in ")]}")
            self.at += 1
        raise self.error(f"one of {stops} expected", start)

    def items(self, item: Callable[[], T]) -> list[T]:
        """What `item` reads, again and again between commas, up to the closing bracket."""
        found = []
        while self.match(r"\)") is None:
            found.append(item())
            if self.match(r",|(?=\))") is None:
                raise self.error("comma expected")
        return found

    def word(self, what: str) -> str:
        found = self.expect(rf"[A-Za-z_]\w*|{_STRING}", what)
        return json.loads(found) if found.startswith('"') else found


_STRING = r'"(?:[^"\\]|\\.)*"'
_FIELD = r"(?=\{)|[A-Za-z]\w*(?=\s*=)"  # of the body in braces the name is left out
_NUMBER = r"[-+]?(?:inf|nan|\d[\w.]*(?:(?<=[eE])[-+]\d+)?)"


class _Literal:
    """A number whose type the arguments beside it tell."""

    def __init__(self, text: str):
        self.text = text

    def typed(self, dtype: str) -> Expr:
        return expr.const((float if dtypes.is_float(dtype) else int)(self.text), dtype)


class ExprParser:
    def __init__(self, reader: Reader, operands: Sequence[str], minimums: Minimums):
        self.reader, self.operands, self.minimums = reader, operands, minimums
        self.named: dict[str, Expr] = {}

    def statements(self) -> Expr:
        """`name = expression; ...; expression`"""
        while (name := self.reader.match(r"[A-Za-z]\w*(?=\s*=)")) is not None:
            self.reader.expect("=", "=")
            self.named[name] = self.whole()
            self.reader.expect(";", ";")
        return self.whole()

    def whole(self) -> Expr:
        found = self.argument()
        if isinstance(found, _Literal):
            raise self.reader.error("the type of a number is missing before this")
        return found

    def argument(self) -> Expr | _Literal:
        reader = self.reader
        if (found := reader.match(r"\$\d+")) is not None:
            if int(found[1:]) >= len(self.operands):
                raise reader.error(f"there is no operand {found} before this")
            return expr.input_(int(found[1:]), self.operands[int(found[1:])])
        if (found := reader.match(_NUMBER)) is not None:
            literal = _Literal(found)
            return literal.typed(_element_type(reader)) if reader.accept(":") else literal
        name = reader.word("expression")
        if name in ("true", "false"):
            return expr.const(name == "true", "bool")
        if not reader.accept("("):
            if name not in self.named:
                raise reader.error(f"nothing is called {name} before this")
            return self.named[name]
        return self.call(name)

    def call(self, name: str) -> Expr:
        reader = self.reader
        if name == "index":
            return expr.index(int(self.closed(reader.expect(r"\d+", "axis"))))
        if name == "size":
            return expr.size(_dimension(reader, self.closed(reader.until(")")), self.minimums))
        if name in ("cast", "bitcast"):
            x = self.whole()
            reader.expect(",", "comma")
            dtype = self.closed(_element_type(reader))
            return expr.bitcast(x, dtype) if name == "bitcast" else expr.cast(x, dtype)
        if name == "lookup":
            x = self.whole()
            reader.expect(",", "comma")
            dtype = _element_type(reader)
            reader.expect(",", "comma")
            table = bytes.fromhex(self.closed(reader.expect(r"(?:[0-9a-f]{2})+", "table")))
            try:
                return expr.lookup(x, dtype, table)
            except TypeError as error:
                raise reader.error(f"{error}") from None
        if name == "check":
            condition = self.whole()
            reader.expect(",", "comma")
            x = self.whole()
            reader.expect(",", "comma")
            code = reader.word("code")
            says = reader.word("sentence") if reader.accept(",") else ""
            return expr.check(condition, x, code, self.closed(says))
        if name not in expr.OPERATIONS:
            raise reader.error(f"{name} is no operation")
        arguments = reader.items(self.argument)
        told = next((a.dtype for a in arguments[alike(name)] if isinstance(a, Expr)), None)
        if told is None:
            raise reader.error("the type of a number is missing")
        try:
            typed = [a if isinstance(a, Expr) else a.typed(told) for a in arguments]
            return expr.apply(name, *typed)
        except (TypeError, ValueError) as error:
            raise reader.error(f"{error}") from None

    def closed(self, found: str) -> str:
        self.reader.expect(r"\)", ")")
        return found


def _element_type(reader: Reader) -> str:
    name = reader.word("type")
    if name not in dtypes.ALL:
        raise reader.error(f"{name} is no element type")
    return name


def _dimension(reader: Reader, text: str, minimums: Minimums) -> Dimension:
    try:
        return dims.parse(text, minimums)
    except ValueError as error:
        raise reader.error(f"{error}") from None


class Parser:
    def __init__(self, text: str, constants: Mapping[str, np.ndarray]):
        self.reader, self.data = Reader(text), constants
        self.minimums: dict[str, int | None] = {}
        self.constants: dict[str, Value] = {}  # of all graphs

    # Graphs

    def top(self) -> Graph:
        reader = self.reader
        reader.expect("graph", "graph")
        name = "" if reader.match(r"(?=\()") is not None else reader.word("name")
        start = reader.at
        reader.expect(r"\(", "(")
        reader.until(")")
        reader.expect(r"\)", ")")
        if reader.match(r"where\b") is not None:
            while True:
                variable = reader.word("variable")
                bound = reader.expect(r"any\b|>=\s*-?\d+", "any or >=")
                self.minimums[variable] = None if bound == "any" else int(bound[2:])
                if not reader.accept(","):
                    break
        body, reader.at = reader.at, start
        graph = self.graph(name, body)
        if reader.rest():
            raise reader.error("this follows the graph")
        return graph

    def graph(self, name: str = "", body: int | None = None) -> Graph:
        """`(inputs) { nodes return outputs }`, the part in braces at `body`."""
        reader = self.reader
        scope: dict[str, Value] = {}
        reader.expect(r"\(", "(")
        inputs = reader.items(lambda: self.input(scope))
        reader.at = reader.at if body is None else body
        reader.expect("{", "{")
        nodes: list[Node] = []
        while reader.match(r"return\b") is None:
            self.statement(scope, nodes)
        outputs, states = [], []
        while reader.match(r"\}") is None:
            outputs.append(self.value(scope))
            if reader.match(r"next\b") is not None:
                states.append((self.state(scope, inputs), len(outputs) - 1))
            reader.expect(r",|(?=\})", "comma")
        return Graph(tuple(inputs), tuple(outputs), tuple(nodes), name, states=tuple(states))

    def state(self, scope: dict[str, Value], inputs: Sequence[Value]) -> int:
        """The number of the input that an output is the next value of."""
        at, value = self.reader.at, self.value(scope)
        if value not in inputs:
            raise self.reader.error("an input of the graph expected", at)
        return inputs.index(value)

    def input(self, scope: dict[str, Value]) -> Value:
        name = self.name()
        self.reader.expect(":", ":")
        value = Value(self.type(), _meaning(name))
        value.elements = self.elements(value.type)
        self.define(scope, name, value)
        return value

    def name(self) -> str:
        return self.reader.expect(rf"%(?:[\w./$-]+|{_STRING})", "%name")[1:]

    def define(self, scope: dict[str, Value], name: str, value: Value) -> None:
        if name in scope or name in self.constants:
            raise self.reader.error(f"%{name} has a meaning already")
        scope[name] = value

    def value(self, scope: dict[str, Value]) -> Value:
        name = self.name()
        found = scope.get(name, self.constants.get(name))
        if found is None:
            raise self.reader.error(f"%{name} is not defined before this")
        return found

    def statement(self, scope: dict[str, Value], nodes: list[Node]) -> None:
        reader, names = self.reader, []
        while reader.match(r"(?=%)") is not None:
            names.append(self.name())
            reader.expect(",|=", "comma or =")
        if reader.match(r"constant\b") is not None and len(names) == 1:
            self.define(self.constants, names[0], self.constant(names[0]))
            return
        node = self.node(scope, names)
        nodes.append(node)
        for name, value in zip(names, node.outputs, strict=True):
            self.define(scope, name, value)

    # Nodes

    def node(self, scope: dict[str, Value], names: Sequence[str]) -> Node:
        reader, start = self.reader, self.reader.at
        kind = reader.word("op")
        if kind not in OPS:
            raise reader.error(f"{kind} is no op")
        reader.expect(r"\(", "(")
        inputs = reader.items(lambda: self.value(scope))
        operands = [v.dtype if isinstance(v.type, TensorType) else "" for v in inputs]
        fields = self.fields(OPS[kind], operands)
        choice: Any = self.choice() if reader.match(r"by\b") is not None else None  # its text
        types: list[Type] = []
        elements: list[np.ndarray | None] = []
        while reader.match(":" if not types else ",") is not None:
            types.append(self.type())
            elements.append(self.elements(types[-1]))
        origin = reader.word("origin") if reader.match(r"from\b") is not None else ""
        if any(f.name == "types" for f in dataclasses.fields(OPS[kind])):
            fields["types"] = tuple(types)
        try:
            op = OPS[kind](**fields)
            inferred = op.infer(Need(), *(v.type for v in inputs))
        except (TypeError, ValueError) as error:
            raise reader.error(str(error), start) from None
        if len(inferred) != len(names):
            raise reader.error(f"{kind} has {len(inferred)} outputs", start)
        outputs = []
        for k, (name, type_) in enumerate(zip(names, inferred, strict=True)):
            if types and (k >= len(types) or not compatible(types[k], type_)):
                raise reader.error(f"%{name} is {type_}", start)
            known = elements[k] if types else None
            outputs.append(Value(types[k] if types else type_, _meaning(name), None, known))
        if isinstance(op, ops.Elements):
            outputs[0].elements = dtypes.objects(op.dims, op.shape)
        return Node(op, tuple(inputs), tuple(outputs), origin, choice)

    def fields(self, cls: type[ops.Op], operands: list[str]) -> dict[str, Any]:
        """The fields of an op. Operand 0 of an epilogue is of the type that it accumulates in."""
        hints = {name: hint for name, hint, _ in op_fields(cls)}  # type: ignore[arg-type]  # as in text.py
        fields: dict[str, Any] = {}
        expressions: dict[str, int] = {}
        reader = self.reader
        while (name := reader.match(_FIELD)) is not None:
            name = name or "body"
            if name not in hints:
                raise reader.error(f"there is no field {name}")
            reader.accept("=")
            if hints[name] is Expr:
                expressions[name] = reader.at
                reader.expect("{", "{")
                reader.until("}")
                reader.expect("}", "}")
            else:
                fields[name] = self.field(hints[name])
        end = reader.at
        for name, reader.at in expressions.items():
            if name == "epilogue":
                operands = [fields.get("accumulate", getattr(cls, "accumulate", "")), *operands[2:]]
            reader.expect("{", "{")
            fields[name] = ExprParser(reader, operands, self.minimums).statements()
            reader.expect("}", "}")
        reader.at = end
        return fields

    def field(self, hint: object) -> object:
        reader = self.reader
        if reader.match(r"none\b") is not None:
            return None
        if hint is Graph:
            return self.graph()
        if get_origin(hint) is tuple:
            reader.expect(r"\(", "(")
            kinds = get_args(hint)
            fixed = iter(kinds if kinds[-1] is not Ellipsis else ())
            return tuple(reader.items(lambda: self.field(next(fixed, kinds[0]))))
        if hint == Dimension:
            return self.dimension()
        if hint is Symbol:
            name = reader.word("variable")
            return Symbol(name, self.minimums.get(name, 0))
        if hint is bool:
            return reader.expect("true|false", "true or false") == "true"
        if hint in (int, float):
            return hint(reader.expect(_NUMBER, "number"))
        if hint is Layout:
            return self.layout()
        return reader.word("word")

    def dimension(self) -> Dimension:
        return _dimension(self.reader, self.reader.until(",;)]"), self.minimums)

    def choice(self) -> str:
        found = self.reader.match(CHOICE)
        return found if found is not None else self.reader.word("kernel")

    # Types and data

    def type(self) -> Type:
        reader = self.reader
        kind = reader.match(r"(?:seq|optional)(?=\s*<)")
        if kind is not None:
            reader.expect("<", "<")
            element = None if reader.accept("?") else self.type()
            reader.expect(">", ">")
            return (SequenceType if kind == "seq" else OptionalType)(element)
        if reader.match(r"map(?=\s*<)") is not None:
            reader.expect("<", "<")
            key = _element_type(reader)
            reader.expect(",", ",")
            value = _element_type(reader)
            reader.expect(">", ">")
            return MapType(key, value)
        kind = _element_type(reader)
        reader.expect(r"\[", "[")
        if reader.accept("*"):
            reader.expect(r"\]", "]")
            return UnrankedType(kind)
        shape = []
        while reader.match(r"(?=[;\]])") is None:
            shape.append(self.dimension())
            reader.match(",")
        layout = self.layout() if reader.accept(";") else None
        reader.expect(r"\]", "]")
        return TensorType(kind, tuple(shape), layout)

    def layout(self) -> Layout:
        text = self.reader.expect(r"c[1-9]\d*(?:h\d+(?:x\d+)*)?(?:f-?\d+)?(?:p[1-9]\d*)?", "layout")
        text, _, pitch = text.partition("p")
        text, _, fill = text.partition("f")
        block, _, halo = text.partition("h")
        halos = tuple(map(int, halo.split("x"))) if halo else ()
        return Layout(int(block[1:]), halos, int(fill or 0), int(pitch or 0))

    def elements(self, type_: Type) -> np.ndarray | None:
        """` = (dims)` behind a type."""
        if not self.reader.accept("="):
            return None
        self.reader.expect(r"\(", "(")
        found = self.reader.items(self.dimension)
        if not isinstance(type_, TensorType) or type_.count != len(found):
            raise self.reader.error(f"{type_} does not have {len(found)} elements")
        return dtypes.objects(found, dims.numbers(type_.shape))

    def constant(self, name: str) -> Value:
        reader, start = self.reader, self.reader.at
        type_ = self.type()
        if not isinstance(type_, TensorType) or not dims.is_static(type_.shape):
            raise reader.error("no type of a constant", start)
        shape = dims.numbers(type_.shape)
        dtype = dtypes.numpy_dtype(type_.dtype)
        if reader.match(r"splat\b") is not None:
            constant = Constant(type_.dtype, shape, splat=self.scalars(1, type_.dtype)[0])
        elif reader.match(r"\(") is not None:
            values = self.scalars(dims.product(shape), type_.dtype)
            reader.expect(r"\)", ")")
            constant = Constant.of(values.reshape(shape))
        else:
            kind = reader.expect(r"#\w+", "data")
            array = self.data.get(_meaning(name) or name, self.data.get(kind[1:]))
            if array is None or array.dtype != dtype or array.shape != shape:
                raise reader.error(f"data for %{name} must be given to parse", start)
            lazy = Constant(type_.dtype, shape, lambda: array)
            constant = lazy if kind == "#data" else Constant.of(array)
        return Value(type_, _meaning(name), constant)

    def scalars(self, count: int, dtype: str) -> np.ndarray:
        found = [self.reader.expect(rf"{_STRING}|[^\s,()]+", "value")] if count else []
        for _ in range(count - 1):
            self.reader.expect(",", "comma")
            found.append(self.reader.expect(rf"{_STRING}|[^\s,()]+", "value"))
        try:
            return _scalars(found, dtype)
        except ValueError as error:
            raise self.reader.error(f"{error}") from None


def _meaning(name: str) -> str:
    """The name of a value from its text; numbers are for those without."""
    return "" if name.isdigit() else json.loads(name) if name.startswith('"') else name


def _scalars(texts: Sequence[str], dtype: str) -> np.ndarray:
    target = dtypes.numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([text == "true" for text in texts], bool)
    if dtype == "string":
        return np.array([json.loads(text) for text in texts], object)
    if dtypes.is_integer(dtype):
        wide = np.uint64 if dtype == "uint64" else np.int64
        return np.array([int(text) for text in texts], wide).astype(target)
    number = complex if dtype in dtypes.COMPLEX else float
    return np.array([number(text) for text in texts], number).astype(target)
