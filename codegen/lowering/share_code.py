"""share_code: nodes that differ in numbers of their epilogues alone get these as operands, and have one code.

conv(%a, %w) { mul($0, 0.25) }    →   conv(%a, %w, constant float32[] 0.25) { mul($0, $1) }
conv(%b, %v) { mul($0, 0.5) }         conv(%b, %v, constant float32[] 0.5) { mul($0, $1) }

Quantised layers are equal but for their scales. What all of them agree in stays in their code, and so do
numbers of which more is made than an instruction's operand (`scalar.free_numbers`). Kernels have been chosen,
and stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...ir import expr
from ...ir.everywhere import everywhere
from ...ir.expr import Expr
from ...ir.graph import Constant, Graph, Node, TensorType, Value, walk
from ...ir.ops import Contract, Conv
from ...ir.ranges import bound_of, bounds_in
from ...records import dataclass
from ...target import Target
from ..kernel import Code, choices_of, chosen
from ..text.scalar import free_numbers
from .equal_nodes import form_in


@dataclass(frozen=True)
class Shared:
    """graph: the new one. originals: what nodes with more operands stand for."""

    graph: Graph
    originals: Mapping[Node, Node]

    @property
    def numbers(self) -> frozenset[Constant]:
        """The new operands: code reaches them by their address and knows no more of them than
        `ranges.bound_of`."""
        added = (v.data for new, old in self.originals.items() for v in new.inputs[len(old.inputs) :])
        return frozenset(added)

    def before(self, codes: Mapping[Node, Code]) -> dict[Node, Code]:
        """The codes of the nodes as they were chosen for."""
        return {self.originals.get(node, node): code for node, code in codes.items()}


def share_code(graph: Graph, target: Target) -> Shared:
    """graph with numbers as operands where nodes then have one code."""
    groups: dict[object, list[Node]] = {}
    for node in walk(graph):
        if isinstance(node.op, (Conv, Contract)) and node.op.epilogue is not None and node.choice is not None:
            groups.setdefault(_but_for_numbers(node, target), []).append(node)
    changed: dict[Node, Node] = {}
    for nodes in groups.values():
        if len({node.op.epilogue for node in nodes}) > 1:
            changed.update(_with_operands(nodes, target))

    @everywhere
    def replaced(graph: Graph) -> Graph:
        return replace(graph, nodes=tuple(changed.get(node, node) for node in graph.nodes))

    return Shared(replaced(graph) if changed else graph, {new: old for old, new in changed.items()})


def _but_for_numbers(node: Node, target: Target) -> object:
    """What kernels see of the node, with places for the numbers of its epilogue that they may get as
    operands."""
    body = _body(node)
    free = set(free_numbers(body, target))
    bounds = bounds_in(body)  # by which code tells operands apart
    order = {e: k for k, e in enumerate(e for e in expr.topological(body) if e.op != "const")}

    def argument(e: Expr, k: int) -> object:
        a = e.args[k]
        return bound_of(_operand(a.value), bounds) if (e, k) in free else order.get(a, a)

    steps = [(e.op, e.dtype, e.value, *(argument(e, k) for k in range(len(e.args)))) for e in order]
    form = form_in(node)
    values = [(v.type, v.constant and form(v.constant)) for v in (*node.inputs, *node.outputs)]
    equal = [node.inputs.index(v) for v in node.inputs]
    return replace(node.op, epilogue=None), node.choice, tuple(steps), tuple(values), tuple(equal)


def _operand(number: float) -> Constant:
    return Constant("float32", (), splat=number)


def _body(node: Node) -> Expr:
    body: Expr = node.op.epilogue
    return body


def _with_operands(nodes: Sequence[Node], target: Target) -> dict[Node, Node]:
    """What stands for nodes of one group, in which the numbers that differ are operands, those that differ in
    the same way one; nothing where the kernel takes no more operands."""
    places = [free_numbers(_body(node), target) for node in nodes]
    operands: dict[tuple[float, ...], int] = {}  # the numbers of all nodes, and which operand they are
    where: dict[int, int] = {}  # the place among the free ones, and which operand stands there
    for k, column in enumerate(zip(*places, strict=True)):
        numbers = tuple(e.args[a].value for e, a in column)
        if len(set(map(repr, numbers))) > 1:
            where[k] = operands.setdefault(numbers, len(operands))
    found = {}
    for number, (node, free) in enumerate(zip(nodes, places, strict=True)):
        first = len(node.inputs) - 1
        changed = {free[k]: expr.input_(first + operand, "float32") for k, operand in where.items()}
        new = tuple(Value(TensorType("float32", ()), "", _operand(column[number])) for column in operands)
        choice = chosen(node)
        if choice.inputs:
            choice = replace(choice, inputs=(*choice.inputs, *(None for _ in new)))
        op = replace(node.op, epilogue=_changed(_body(node), changed))
        found[node] = Node(op, (*node.inputs, *new), node.outputs, node.origin, choice)
    if _is_taken(found[nodes[0]], target):
        return found
    for node in nodes:
        node.__post_init__()  # its outputs are its own again
    return {}


def _is_taken(node: Node, target: Target) -> bool:
    """Whether its kernel takes the node in the layouts of its choice."""
    choice = chosen(node)
    offered = choices_of(choice.kernel, node, target)
    return any((other.inputs, other.output) == (choice.inputs, choice.output) for other in offered)


def _changed(body: Expr, changed: Mapping[tuple[Expr, int], Expr]) -> Expr:
    """body with arguments replaced."""
    done: dict[Expr, Expr] = {}
    for node in expr.topological(body):
        args = tuple(changed.get((node, k)) or done[a] for k, a in enumerate(node.args))
        done[node] = expr.rebuild(node, args) if node.args else node
    return done[body]
