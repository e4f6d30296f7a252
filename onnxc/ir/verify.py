"""What each stage of the pipeline guarantees of a graph, checked in linear time.

Stages: `core` (ops over dense values) and `layout` (values may be blocked, Reorder is allowed). A failure
is a bug of the pass before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import OnnxcError, Origin
from . import dims, dtypes, ops
from .dims import Dimension
from .graph import (
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

STAGES = ("core", "layout")


class InvalidGraph(OnnxcError):
    """A graph breaks a rule of the IR: an error of onnxc itself."""

    kind = "internal"


class _Broken(Exception):
    """A rule that a node breaks."""


def verify(graph: Graph, stage: str = "core") -> None:
    """Raises InvalidGraph, which names the node, where graph is not what the stage guarantees."""
    if stage not in STAGES:
        raise ValueError(f"{stage} is none of the stages {', '.join(STAGES)}")
    _Scope(stage, None).graph(graph)


def compatible(a: Type | None, b: Type | None) -> bool:
    """Whether a value may be of both types: sizes are not known to differ. Layouts do not count."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return _same_kind(a, b) and all(
            dims.equal(x, y) is not False for x, y in zip(a.shape, b.shape, strict=True)
        )
    if a is None or b is None:
        return True
    if isinstance(a, (MapType, UnrankedType)) or isinstance(b, (MapType, UnrankedType)):
        return a == b
    several = (SequenceType, OptionalType)
    return (
        isinstance(a, several)
        and isinstance(b, several)
        and type(a) is type(b)
        and (compatible(a.element, b.element) or _unranked(a.element, b.element))
    )


def _unranked(a: Type | None, b: Type | None) -> bool:
    """Whether two types of elements are one but that the rank is open: all elements are stored alike."""
    tensors = (TensorType, UnrankedType)
    return (
        isinstance(a, tensors)
        and isinstance(b, tensors)
        and a.dtype == b.dtype
        and not (isinstance(a, TensorType) and isinstance(b, TensorType))
    )


def _same_kind(a: Type, b: Type) -> bool:
    """Whether two types differ in sizes at most."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype == b.dtype and a.rank == b.rank
    return type(a) is type(b)


def growing_axis(old: Type, new: Type) -> int | None:
    """The only axis along which a state and its next value are not known to be alike, None where there is
    none; ValueError where they differ otherwise."""
    if not isinstance(old, TensorType) or not isinstance(new, TensorType) or not _same_kind(old, new):
        raise ValueError("they are not tensors of one element type and rank")
    if old.dtype == "string":
        raise ValueError("the characters of strings have no place of their own")
    axes = [a for a, (x, y) in enumerate(zip(old.shape, new.shape)) if dims.equal(x, y) is not True]
    if len(axes) > 1:
        raise ValueError("they differ in more than one axis")
    return axes[0] if axes else None


def _state(old: Value, new: Value) -> None:
    """Raises InvalidGraph where a value cannot take the place of another."""
    pair = f"the state {_name(old)}: {old.type} with the next value {new.type}"
    try:
        axis = growing_axis(old.type, new.type)
    except ValueError as error:
        raise InvalidGraph(f"{pair}: {error}") from None
    if axis is not None and any(d != 1 for d in old.shape[:axis]):
        raise InvalidGraph(f"{pair} would not stay where it is")


def _require(condition: bool | None, reason: str, *of: object) -> None:
    """Says why only where it is wrong: a graph has a hundred names for each node, and is verified often."""
    if condition is False:
        raise _Broken(reason.format(*(_name(x) if isinstance(x, Value) else x for x in of)))


class _Scope:
    """A graph under inspection: its values, and the variables known in it and around it."""

    def __init__(self, stage: str, parent: _Scope | None):
        self.stage, self.parent = stage, parent
        self.values: set[Value] = set()
        self.known: set[Dimension] = set()  # whose variables are all defined
        self.variables: set[str] = set()
        self.minimums: dict[str, int | None] = parent.minimums if parent else {}

    def graph(self, graph: Graph) -> None:
        try:
            for value in graph.inputs:
                _require(value.producer is None, "the input {} is a node's output", value)
                self.define(value)
                self.introduce(value.type)
                self.value_type(value)
        except _Broken as broken:
            raise InvalidGraph(str(broken)) from None
        for index, node in enumerate(graph.nodes):
            try:
                self.node(node)
            except _Broken as broken:
                raise InvalidGraph(str(broken), origin=_origin(node, index)) from None
            except OnnxcError as error:  # of a region
                raise error.at(Origin()) from None
        for value in graph.outputs:
            if value not in self.values and value.constant is None:
                raise InvalidGraph(f"the output {_name(value)} is not defined")
        for numbers in zip(*graph.states):
            if len(set(numbers)) < len(numbers):
                raise InvalidGraph("an input or output is a state twice")
        for old, new in graph.states:
            _state(graph.inputs[old], graph.outputs[new])

    # Values and variables ------------------------------------------------------------------------

    def define(self, value: Value) -> None:
        _require(value not in self.values, "{} is defined twice", value)
        self.values.add(value)

    def operand(self, value: Value) -> None:
        if value in self.values:
            return
        constant = value.constant
        if constant is None:
            raise _Broken(f"{_name(value)} is used before it is defined")
        _require(value.producer is None, "the constant {} has a producer", value)
        _require(
            value.type == TensorType(constant.dtype, constant.shape, value.tensor.layout),
            "the constant {} is no {}",
            value,
            value.type,
        )

    def introduce(self, type_: Type) -> None:
        """The variables of a tensor's shape are defined from here on."""
        if isinstance(type_, TensorType):
            for dimension in type_.shape:
                self.variables.update(s.name for s in dims.symbols(dimension))

    def defined(self, name: str) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return True
            scope = scope.parent
        return False

    def uses(self, dimensions: Iterable[Dimension]) -> None:
        """All variables of the dimensions are defined."""
        for dimension in dimensions:
            if isinstance(dimension, int) or dimension in self.known:
                continue
            for symbol in dims.symbols(dimension):
                _require(self.defined(symbol.name), "{} is used before it is bound", symbol)
                minimum = self.minimums.setdefault(symbol.name, symbol.minimum)
                _require(minimum == symbol.minimum, "{} has two minimums", symbol)
            self.known.add(dimension)

    def value_type(self, value: Value) -> None:
        """The sizes of a value are defined. Those inside sequences are nobody's."""
        if isinstance(value.type, TensorType):
            self.uses(value.tensor.shape)
            if value.type.layout is not None:
                _require(self.stage != "core", "{} has a layout before layouts are chosen", value)
                unfolded = value.producer is not None and isinstance(value.producer.op, ops.Unfold)
                self.layout(value.type, value.type.layout, overlaps=unfolded)
        if value.elements is not None:  # they may name variables that a later Bind makes of them
            _require(value.elements.shape == value.tensor.shape, "{} has elements of another shape", value)

    def layout(self, type_: TensorType, layout: Layout, overlaps: bool) -> None:
        """Blocks of channels; the images that others are parts of have no fewer, unless they may overlap."""
        fits = layout.block > 0 and type_.rank > 2 and len(layout.halo) in (0, type_.rank - 2)
        _require(fits, "{} is no layout of {} axes", layout, type_.rank)
        if layout.fill:
            least, most = dtypes.integer_range(type_.dtype) if dtypes.is_integer(type_.dtype) else (0, 0)
            _require(least <= layout.fill <= most, "{} is no {}", layout.fill, type_.dtype)
        if layout.pitch and not overlaps:
            _require(not dims.less(layout.pitch, type_.storage[1]), "{} is wider than what it is in", type_)

    # Nodes ---------------------------------------------------------------------------------------

    def node(self, node: Node) -> None:
        for value in node.inputs:
            self.operand(value)
        inferred = _inferred(node)
        _require(len(inferred) == len(node.outputs), "it should have {} outputs", len(inferred))
        binds = isinstance(node.op, (ops.If, ops.Loop, ops.RuntimeCall))
        if not binds:
            self.uses(ops.dimensions(node.op))
        self.regions(node)
        if isinstance(node.op, ops.Bind):
            self.variables.update(s.name for s in node.op.symbols)
        for index, (value, type_) in enumerate(zip(node.outputs, inferred, strict=True)):
            _require(
                value.producer is node and value.index == index, "{} does not know it as its producer", value
            )
            _require(compatible(value.type, type_), "{} should be {}", value, type_)
            self.define(value)
            if binds:
                self.introduce(value.type)
            self.value_type(value)
        if isinstance(node.op, ops.Reorder):
            _require(self.stage != "core", "it reorders before layouts are chosen")

    def regions(self, node: Node) -> None:
        types = [v.type for v in node.inputs]
        match node.op:
            case ops.If(then, otherwise, results):
                for branch in (then, otherwise):
                    self.region(branch, types[1:], results)
            case ops.Loop(body, carried, results):
                _require(len(types) >= 2 + carried, "it should carry {} values", carried)
                state = [TensorType("int64", ()), TensorType("bool", ())]
                stacked = [t for t in results[carried:] if isinstance(t, TensorType)]
                slices = [TensorType(t.dtype, t.shape[1:]) for t in stacked]
                after = [TensorType("bool", ()), *results[:carried], *slices]
                self.region(body, [*state, *types[2:]], after)
            case ops.Fused(_, region):
                self.region(region, types, [v.type for v in region.outputs], "core")

    def region(
        self, graph: Graph, inputs: Sequence[Type], outputs: Sequence[Type], stage: str | None = None
    ) -> None:
        """A region whose operands are of the types `inputs` and whose results become `outputs`:
        there sizes may be described in other variables."""
        _require(len(graph.inputs) == len(inputs), "a region should have {} inputs", len(inputs))
        _require(len(graph.outputs) == len(outputs), "a region should have {} outputs", len(outputs))
        for value, type_ in zip(graph.inputs, inputs, strict=True):
            _require(
                compatible(value.type, type_),
                "a region's input {} is {} where the operand is {}",
                value,
                value.type,
                type_,
            )
        for value, type_ in zip(graph.outputs, outputs, strict=True):
            _require(
                _same_kind(value.type, type_),
                "a region's output {} is {} where the result is {}",
                value,
                value.type,
                type_,
            )
        _Scope(stage or self.stage, self).graph(graph)


def _name(value: Value) -> str:
    return f"%{value.name}" if value.name else f"a {value.type}"


def _origin(node: Node, index: int) -> Origin:
    name = node.origin or next((v.name for v in node.outputs if v.name), "")
    return Origin(node=name, op_type=type(node.op).__name__, index=index)


def _inferred(node: Node) -> tuple[Type, ...]:
    if not isinstance(node.op, (ops.If, ops.Loop, ops.RuntimeCall, ops.Fused)):
        for value in node.inputs:
            _require(isinstance(value.type, TensorType), "{} is no tensor", value)
    try:
        return node.op.infer(Need(), *(v.type for v in node.inputs))
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise _Broken(f"its types do not fit: {error}") from None
