"""Sizes of inputs that every run needs to be equal, or a number, whatever the model calls them.

Exporters that name no batch, or each input's anew, leave it to the nodes to say which are one: what a
Concat joins agrees along all other axes, what a product sums is as long on both sides. A variable for all of
them says so at once, where two would make every later node that reads both repeat one to the other. And a
model that was traced with one image has a batch by name alone: what reshapes it to [1, 196, 64] needs it to
be 1, and then all sizes that follow are numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..ir import dims
from ..ir.dims import Dimension, Symbol
from ..ir.graph import Graph, Node, TensorType, Value
from ..ir.ops import requirements
from ..ir.requirements import Requirement
from ..records import dataclass


@dataclass(frozen=True)
class Equal:
    """What a size of an input must equal: a variable, or a number, and the node that needs it to be that."""

    size: Dimension
    node: str = ""


def equal_sizes(graph: Graph, asked: Collection[str]) -> dict[str, Equal]:
    """What to take for each variable of an input that must equal something. A variable is typically as large
    as those are that a user told (`asked`), or else as the smallest."""
    symbols = list(dict.fromkeys(_symbols(graph.inputs)))
    if not symbols:
        return {}
    known = _Known()
    for node in _needed(graph):
        needs = requirements(node) if _has_variables(node) else []
        least = {(need.a, need.b) for need in needs if need.kind == "least"}  # in both directions is equal
        for need in needs:
            if need.kind == "equal" or ((need.a, need.b) in least and (need.b, need.a) in least):
                known.learn(need)
    members: dict[Dimension, list[Symbol]] = {}
    for symbol in symbols:
        members.setdefault(known.simplest(dims.of_atom(symbol)), []).append(symbol)
    found: dict[str, Equal] = {}
    for size, several in members.items():
        if isinstance(size, int):
            found |= {s.name: Equal(size, known.nodes[s.key]) for s in several}
        elif len(several) > 1:
            typical = min(s.typical for s in [s for s in several if s.name in asked] or several)
            one = dims.symbol(several[0].name, several[0].minimum, typical)
            found |= dict.fromkeys((s.name for s in several), Equal(one))
    return found


class _Known:
    """What is known to be equal: the text of a variable or an operation → the size to write for it, and the
    node that told, where that is a number."""

    def __init__(self) -> None:
        self._sizes: dict[str, Dimension] = {}
        self.nodes: dict[str, str] = {}

    def simplest(self, size: Dimension) -> Dimension:
        """A size in terms of as few variables as what is known allows."""
        return dims.substitute(size, self._sizes)

    def learn(self, need: Requirement) -> None:
        """Takes in that two sizes are equal, where that is so because one variable or operation is another,
        or a number that a size may be."""
        match self.simplest(need.a) - self.simplest(need.b):
            case dims.Dim(terms=((((one, 1),), c), (((other, 1),), d))) if c == -d:
                if isinstance(other, Symbol):
                    one, other = other, one
                self._replace(other, dims.of_atom(one), need.origin)
            case dims.Dim(terms=((((one, 1),), c), ((), d))) if d % c == 0:
                if dims.equal(dims.of_atom(one), -d // c) is not False:  # else it is the run that fails
                    self._replace(one, -d // c, need.origin)

    def _replace(self, atom: Symbol | dims.Apply, size: Dimension, node: str) -> None:
        new = {atom.key: size}
        self._sizes = {key: dims.substitute(known, new) for key, known in self._sizes.items()} | new
        for key, known in self._sizes.items():
            if isinstance(known, int):
                self.nodes.setdefault(key, node)


def _needed(graph: Graph) -> list[Node]:
    """The nodes of a graph that its outputs depend on, those of every run, in order."""
    read, found = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if not read.isdisjoint(node.outputs):
            read.update(node.inputs)
            found.append(node)
    return found[::-1]


def _has_variables(node: Node) -> bool:
    """Whether a size of what a node reads or gives is no number: numbers alone tell nothing."""
    shapes = (v.shape for v in (*node.inputs, *node.outputs) if isinstance(v.type, TensorType))
    return any(not isinstance(size, int) for shape in shapes for size in shape)


def _symbols(inputs: tuple[Value, ...]) -> Iterator[Symbol]:
    """The variables that sizes of inputs are."""
    for value in inputs:
        for size in value.shape if isinstance(value.type, TensorType) else ():
            atom = dims.single_atom(size)
            if isinstance(atom, Symbol):
                yield atom
