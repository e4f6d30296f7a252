"""What the importer and the import rules share: the builder that rules write with, scopes of names, and
regions under construction.

A rule imports the graphs among its node's attributes from its `Site`. What a region reads of the graph around
it becomes an explicit input; the two regions of an If get the same ones, and common types of their outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Self

import numpy as np
import onnx

from ..errors import UnsupportedError
from ..ir import dims, expr, ops
from ..ir.builder import Builder
from ..ir.dims import Dimension
from ..ir.graph import Graph, MapType, OptionalType, SequenceType, TensorType, Type, UnrankedType, Value
from ..records import dataclass
from .walk import MAX_NESTING, too_deep

if TYPE_CHECKING:
    from .importer import Importer
    from .rules import Rank

#: Where only the run knows how long a list of sizes or axes is, what follows is imported for 0 to as many.
MOST_SIZES = 8


@dataclass
class Scope:
    """What names mean in a graph; unknown ones are looked up in the enclosing graph."""

    builder: RuleBuilder
    parent: Scope | None = None
    values: dict[str, Value | None] = field(default_factory=dict)
    depth: int = 0
    opsets: Mapping[str, int] | None = None  # of a schema's function body, where the nodes come from one
    inlined: bool = False  # its graph is part of the one around it

    def deeper(self, builder: RuleBuilder) -> Scope:
        """The scope of a region of this graph."""
        if self.depth >= MAX_NESTING:
            raise too_deep()
        return Scope(builder, self, depth=self.depth + 1)

    def function_opsets(self) -> Mapping[str, int] | None:
        """The operator sets of the innermost function body around; None: the model's own."""
        scope: Scope | None = self
        while scope is not None:
            if scope.opsets is not None:
                return scope.opsets
            scope = scope.parent
        return None

    def lookup(self, name: str) -> Value | None:
        """The value of a name; None where it is absent, or was refused."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


class RuleBuilder(Builder):
    """The builder that import rules get, which knows of the ONNX node at work."""

    site: Site

    def dimensions(self, x: Value, minimum: int | None = None, hint: str = "n") -> list[Dimension]:
        if x.elements is None and isinstance(x.type, TensorType) and not isinstance(x.tensor.count, int):
            x = self.reshape(x, (decided(self, x.tensor.count),))
        return super().dimensions(x, minimum, hint)

    def inner(self, facts: Mapping[str, Dimension] | None = None) -> Self:
        builder = super().inner(facts)
        builder.site = Site(self.site.importer, self.site.scope)
        return builder


@dataclass(frozen=True)
class Site:
    """Where an ONNX node stands, and which of its outputs somebody reads. Its rule imports the graphs among
    its attributes from here."""

    importer: Importer
    scope: Scope
    wanted: tuple[bool, ...] = ()

    def inline(self, proto: onnx.GraphProto) -> list[Value]:
        """The outputs of a graph without inputs, imported as part of the graph around the node."""
        return self.importer.inline(self.scope, proto)

    def first_of(self, b: RuleBuilder, sequence: Value) -> Value:
        """The first element of a sequence as a tensor of the rank that it has in the case at hand."""
        return self.importer.ranks.first_of(b, sequence)

    def ranked(self, b: RuleBuilder, value: Value) -> Value:
        """A tensor as one of the rank that it has in the case at hand; RanksDiffer where several are left."""
        return self.importer.ranks.ranked(b, value)

    def with_rank(self, b: RuleBuilder, value: Value, rank: int) -> Value:
        """A tensor as one of this rank, unless its own is known; the run fails where it is another."""
        return self.importer.ranks.with_rank(b, value, rank)

    def of_ranks(
        self, b: RuleBuilder, stated: Sequence[Rank], values: Sequence[Value | None]
    ) -> list[Value | None]:
        """Tensors with the ranks that are stated of them; RanksDiffer where several are left."""
        return self.importer.ranks.operands(b, stated, values)

    def region(
        self, proto: onnx.GraphProto, inputs: Sequence[Type], facts: Mapping[str, Dimension] | None = None
    ) -> Region:
        """A graph as a region with inputs of these types, in which the facts hold."""
        return self.importer.region(self.scope, proto, inputs, facts)

    def body(self, into: RuleBuilder, proto: onnx.GraphProto, inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a graph for these values as its inputs, imported into a region's builder or the
        node's own."""
        return self.importer.body(self.scope.deeper(into), proto, inputs)

    def may_repeat(self, proto: onnx.GraphProto, turns: int) -> bool:
        """Whether so many turns of a body may be imported one by one, which then counts as done."""
        return self.importer.may_repeat(proto, turns)

    def attempt(self, import_: Callable[[], list[Value]]) -> list[Value] | None:
        """What an import gives that is made only to find something out; None where it is refused."""
        return self.importer.attempt(import_)


@dataclass
class Region:
    """An imported branch or body: its builder, and its outputs in the order asked for."""

    builder: Builder
    outputs: list[Value]
    inputs: list[Value]

    def graph(self, captured: Sequence[Value]) -> Graph:
        """The region as a graph whose inputs are its own and then these values of the graph around it."""
        inner = dict(self.builder.captured())
        inputs = [*self.builder.inputs, *(inner.get(v) or Value(v.type, v.name) for v in captured)]
        return Graph(tuple(inputs), tuple(self.outputs), tuple(self.builder.nodes))


class Refused(Exception):
    """A value could not be imported; its cause is among the diagnostics already."""


class NothingThere(UnsupportedError):
    """An element is taken out of what has none, which fails a run that comes there: a branch or body in which
    it is need not be imported further."""


#: What imports a node's outputs into the scope of a region.
Take = Callable[[Scope], list[Value]]


class RanksDiffer(Exception):
    """A condition that the run tells decides the rank of a node's output: what follows is imported once for
    each case.

    facts: what holds of dimensions in either case. takes: what makes the node's outputs then; None: the
    node's rule again, which then knows these facts."""

    def __init__(
        self,
        condition: Value,
        facts: tuple[dict[str, Dimension], dict[str, Dimension]],
        takes: tuple[Take | None, Take | None] = (None, None),
    ):
        self.condition, self.facts, self.takes = condition, facts, takes


def facts_of(condition: Value) -> tuple[dict[str, Dimension], dict[str, Dimension]]:
    """What either branch knows of dimensions where the condition is one: `n == 1` makes n 1, its negation
    leaves n open but decides the same question asked again."""
    atom, negated = _asked(condition)
    if atom is None:
        return {}, {}
    holds: dict[str, Dimension] = {atom.key: 1}
    if isinstance(atom, dims.Apply) and atom.kind == "eq":
        holds |= _root(atom.left - atom.right)
    fails: dict[str, Dimension] = {atom.key: 0}
    return (fails, holds) if negated else (holds, fails)


def _asked(condition: Value) -> tuple[dims.Symbol | dims.Apply | None, bool]:
    """The question of value 0 or 1 about sizes that a condition is, and whether it is the negation of it."""
    if condition.elements is None:
        return None, False
    (truth,) = condition.elements.flat
    atom = dims.single_atom(truth)
    return (atom, False) if atom is not None else (dims.single_atom(1 - truth), True)


def _root(difference: Dimension) -> dict[str, Dimension]:
    """The variable of which a difference consists, and what it is where that is 0: of 2*n - 6, that n is
    3."""
    terms = dict(difference.terms) if isinstance(difference, dims.Dim) else {}
    constant = terms.pop((), 0)
    match list(terms.items()):
        case [(((dims.Symbol() as symbol, 1),), factor)] if constant % factor == 0:
            return {symbol.name: -constant // factor}
    return {}


def holds(b: Builder, question: Dimension) -> bool:
    """Whether a question of value 0 or 1, on which a rank depends, is answered by 1; RanksDiffer where only
    the run tells."""
    answer = dims.substitute(question, b.facts)
    if not isinstance(answer, int):
        condition = b.elements(np.array(answer, object), "bool")
        raise RanksDiffer(condition, facts_of(condition))
    return bool(answer)


def decided(b: Builder, size: Dimension, most: int = MOST_SIZES) -> int:
    """A size on which a rank depends, as a number up to `most`; RanksDiffer where only the run tells."""
    if isinstance(size, int):
        return size
    for number in range(most + 1):
        if holds(b, dims.compare("eq", size, number)):
            return number
    raise ops.TypeMismatch(f"{size}, on which a rank depends, is more than {most}")


# The two branches of an If -----------------------------------------------------------------------


def emit_if(
    b: Builder, condition: Value, then: Region, otherwise: Region, types: Sequence[Type]
) -> tuple[Value, ...]:
    """The regions as branches, which get the same captured inputs in the same order."""
    for region in (then, otherwise):
        region.outputs = [as_type(region.builder, *pair) for pair in zip(region.outputs, types)]
    captured = list(dict.fromkeys(value for r in (then, otherwise) for value, _ in r.builder.captured()))
    op = ops.If(then.graph(captured), otherwise.graph(captured), tuple(types))
    return b.emit(op, condition, *captured)


def common_types(b: Builder, then: Region, otherwise: Region) -> list[Type] | None:
    """What the outputs of both have in common; None where the ranks of one differ."""
    if len(then.outputs) != len(otherwise.outputs):
        raise ops.TypeMismatch(f"its branches have {len(then.outputs)} and {len(otherwise.outputs)} outputs")
    pairs = [(x.type, y.type) for x, y in zip(then.outputs, otherwise.outputs)]
    if any(isinstance(x, TensorType) and isinstance(y, TensorType) and x.rank != y.rank for x, y in pairs):
        return None
    return [common_type(b, x, y) for x, y in pairs]


def failing(
    b: Builder, other: Region, condition: Value, code: str = "rank_mismatch", says: str = ""
) -> Region:
    """A branch that fails the run, with results of the types of the other branch. Where the condition
    compares a rank or size, the run tells it, in the place of `{}` if the sentence is not the code's."""
    atom, asked = _asked(condition)[0], expr.const(0, "int64")
    if isinstance(atom, dims.Apply):
        asked = expr.size(atom.left)
    builder = b.inner()
    outputs: list[Value] = []
    for value in other.outputs:
        tensor = isinstance(value.type, TensorType)
        dtype = value.dtype if tensor else "float32"
        nothing = expr.check(expr.const(False, "bool"), asked, code, says).cast(dtype)
        sizes = value.shape if tensor else ()
        result = builder.emit(ops.Map(nothing, tuple(d if is_visible(b, d) else 1 for d in sizes)))
        outputs += result if tensor else builder.call("sequence_construct", result, [value.type])
    return Region(builder, outputs, [])


def as_type(b: Builder, value: Value, type_: Type) -> Value:
    """A value as one of a type that covers its own: an optional of it, or a tensor of any rank."""
    if isinstance(type_, OptionalType) and not isinstance(value.type, OptionalType):
        return b.call("optional", [value], [type_])[0]
    if isinstance(type_, UnrankedType) and isinstance(value.type, TensorType):
        return b.call("with_any_rank", [value], [type_])[0]
    return value


def only_element(b: Builder, value: Value) -> Value:
    """A tensor of one element, whatever its rank, as one without axes."""
    if isinstance(value.type, UnrankedType):
        value = b.call("elements_of", [value], [TensorType(value.type.dtype, (b.fresh("n"),))])[0]
    return b.reshape(value, ())


def common_type(b: Builder, left: Type, right: Type) -> Type:
    """The type that covers both: sizes that may differ become fresh variables, ranks that do unknown."""
    match left, right:
        case ((TensorType() | UnrankedType()), (TensorType() | UnrankedType())) if left.dtype == right.dtype:
            if isinstance(left, UnrankedType) or isinstance(right, UnrankedType) or left.rank != right.rank:
                return UnrankedType(left.dtype)
            return TensorType(
                left.dtype,
                tuple(
                    x
                    if x == y and (isinstance(x, int) or is_visible(b, x))
                    else b.fresh("n", typical=max(dims.typical(x), dims.typical(y)))
                    for x, y in zip(left.shape, right.shape)
                ),
            )
        case SequenceType(), SequenceType():
            return SequenceType(_common_element(b, left.element, right.element))
        case MapType(), MapType() if left == right:
            return left
        case OptionalType(), OptionalType():
            return OptionalType(_common_element(b, left.element, right.element))
        case OptionalType(), _:
            return OptionalType(_common_element(b, left.element, right))
    raise ops.TypeMismatch(f"a value is {left} in one place and {right} in another")


def _common_element(b: Builder, left: Type | None, right: Type | None) -> Type | None:
    if left is None or right is None:
        return left or right
    return left if left == right else common_type(b, left, right)


def is_visible(b: Builder, value: Dimension) -> bool:
    """Whether all variables of a dimension are known outside the region."""
    return all(s.name in _visible_names(b) for s in dims.symbols(value))


def _visible_names(b: Builder) -> set[str]:
    """The variables that the graph under construction and those around it have defined so far."""
    names: set[str] = set()
    builder: Builder | None = b
    while builder is not None:
        for value in builder.inputs:
            names |= _names(value.type)
        for node in builder.nodes:
            if isinstance(node.op, ops.Bind):
                names |= {s.name for s in node.op.symbols}
            elif isinstance(node.op, (ops.If, ops.Loop, ops.RuntimeCall)):
                for value in node.outputs:
                    names |= _names(value.type)
        builder = builder.parent
    return names


def _names(type_: Type | None) -> set[str]:
    if isinstance(type_, TensorType):
        return {s.name for d in type_.shape for s in dims.symbols(d)}
    return _names(type_.element) if isinstance(type_, (SequenceType, OptionalType)) else set()
