"""fuse_rows: Maps and Reduces over the same rows become one group, which a kernel runs row by row in cache.

%m = reduce max(%x); %e = map(%x, %m) { exp(sub($0, $1)) }; %s = reduce sum(%e)
%y = map(%e, %s) { div($0, $1) }
→   %y = fused rows(%x) { the same }

A row is what Reduces over the last axes go over, keeping them as 1; Maps join that have the shape of the
whole or of one number a row, and Reduces of what is reduced already or made by the same group. Softmax, the
normalisations and all their relatives are found like this, without a pattern for any of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import field

from ..ir import dims
from ..ir.dims import Dimension
from ..ir.everywhere import everywhere
from ..ir.expr import topological
from ..ir.graph import Graph, Node, Rewriter, Value, make_node
from ..ir.ops import Bind, Fused, If, Loop, Map, Reduce, RuntimeCall
from ..records import dataclass

MAX_NODES = 24
MAX_OPERANDS = 12
LONG_ROW = 1 << 15  # elements of a row that is worth more than one part
_KINDS = ("sum", "prod", "min", "max")
_BINDING = (Bind, If, Loop, RuntimeCall)
_FLOATS = ("float32", "float64", "float16", "bfloat16")


@dataclass
class _Group:
    """Nodes over rows: the shape of the whole, the number of axes that make a row, the members in order."""

    shape: tuple[Dimension, ...]
    depth: int
    members: list[Node] = field(default_factory=list)

    @property
    def per_row(self) -> tuple[Dimension, ...]:
        """The shape with one number a row."""
        return (*self.shape[: len(self.shape) - self.depth], *(1,) * self.depth)


@everywhere
def fuse_rows(graph: Graph) -> Graph:
    """graph with Fused groups of kind "rows"."""
    groups = [g for g in _grow(graph) if _worth(g)]
    group_of = {node: g for g in groups for node in g.members}
    rewriter = Rewriter(graph)
    outside = Counter(graph.outputs)
    for node in graph.nodes:
        for value in node.inputs:
            producer = value.producer
            if (
                producer is None
                or group_of.get(producer) is None
                or group_of.get(producer) is not group_of.get(node)
            ):
                outside[value] += 1
    for unit in _ordered(graph, group_of):
        if isinstance(unit, _Group):
            _emit(rewriter, unit, outside)
        else:
            rewriter.copy(unit)
    return rewriter.finish()


# Growing -----------------------------------------------------------------------------------------


def _grow(graph: Graph) -> list[_Group]:
    """Groups grown along the graph from each Reduce; a node joins the group of one of its operands when no
    other operand depends on that group from outside, and a Reduce that which reduces its operand already.
    No group reaches over a node that binds dimension variables, so that values alone tell in which order
    groups can run."""
    groups: list[_Group] = []
    member: dict[Node, _Group] = {}
    needs = _Needs(member)
    read: set[Value] = set()
    closed: set[int] = set()
    beside: dict[Hashable, _Group] = {}
    for node in graph.nodes:
        if isinstance(node.op, _BINDING):
            closed.update(map(id, groups))
        sources = _sources(node, needs)
        group = _joins(node, closed, needs) or _beside(node, closed, [beside.get(key) for key in sources])
        group = group or _seeds(node, member, read, groups)
        if group is not None:
            beside.update(dict.fromkeys(sources, group))
            group.members.append(node)
        for part in [node] if group is None else [n for n in group.members if n not in member]:
            needs.note(part, group)
        read.update(node.inputs)
    for group in groups:
        _leave_out(group)
    return groups


class _Needs:
    """Which groups a value takes, as far as no other group stands between, and a group."""

    def __init__(self, member: dict[Node, _Group]):
        self.member = member
        self.outside: dict[Node, frozenset[int]] = {}
        self.inside: dict[int, set[int]] = {}

    def note(self, node: Node, group: _Group | None) -> None:
        """A node, after all it reads; its group, if it is in one."""
        found = frozenset().union(*(self.of(v) for v in node.inputs))
        if group is None:
            self.outside[node] = found
        else:
            self.member[node] = group
            self.inside.setdefault(id(group), set()).update(found - {id(group)})

    def of(self, value: Value) -> frozenset[int]:
        if value.producer is None:
            return frozenset()
        owner = self.member.get(value.producer)
        return self.outside.get(value.producer, frozenset()) if owner is None else frozenset({id(owner)})

    def group(self, value: Value) -> _Group | None:
        """The group of the node that makes the value."""
        return None if value.producer is None else self.member.get(value.producer)

    def depends(self, value: Value, group: _Group) -> bool:
        """Whether value takes the group, other groups between them included."""
        stack, seen = [*self.of(value)], set()
        while stack:
            found = stack.pop()
            if found == id(group):
                return True
            if found not in seen:
                seen.add(found)
                stack.extend(self.inside.get(found, ()))
        return False


def _joins(node: Node, closed: set[int], needs: _Needs) -> _Group | None:
    for value in node.inputs:
        group = needs.group(value)
        if group is None or id(group) in closed:
            continue
        if len(group.members) >= MAX_NODES or not _fits(node, group):
            continue
        others = [v for v in node.inputs if needs.group(v) is not group]
        if not any(needs.depends(v, group) for v in others):
            return group
    return None


def _sources(node: Node, needs: _Needs) -> list[Hashable]:
    """What a Reduce reduces: the operand, or any of that shape which the same group makes."""
    if not isinstance(node.op, Reduce):
        return []
    maker = needs.group(node.inputs[0])
    return [node.inputs[0], *([(id(maker), node.inputs[0].shape)] if maker is not None else [])]


def _beside(node: Node, closed: set[int], groups: Sequence[_Group | None]) -> _Group | None:
    """The one of these groups, which reduce the same already, that takes the node."""
    for group in groups:
        if group is None or id(group) in closed or len(group.members) >= MAX_NODES:
            continue
        if _fits(node, group):
            return group
    return None


def _seeds(node: Node, member: dict[Node, _Group], read: set[Value], groups: list[_Group]) -> _Group | None:
    """A new group for a Reduce, together with the Map that makes what it reduces, unless something read
    that before."""
    depth = _row_depth(node)
    if depth is None:
        return None
    source = node.inputs[0]
    group = _Group(source.shape, depth)
    groups.append(group)
    producer = source.producer
    if producer is not None and producer not in member and source not in read and _is_map(producer, group):
        group.members.append(producer)
    return group


def _row_depth(node: Node) -> int | None:
    """How many axes the rows that a node reduces have; None if it is no reduction of rows."""
    op = node.op
    if (
        not isinstance(op, Reduce)
        or op.kind not in _KINDS
        or not op.keepdims
        or len(node.inputs) != 1
        or not op.axes
    ):
        return None
    rank = node.inputs[0].rank
    if node.outputs[0].dtype not in _FLOATS or op.axes != tuple(range(rank - len(op.axes), rank)):
        return None
    return len(op.axes)


def _fits(node: Node, group: _Group) -> bool:
    if isinstance(node.op, Reduce):
        return _row_depth(node) == group.depth and node.inputs[0].shape == group.shape
    if not isinstance(node.op, Map) or node.op.shape is not None:
        return False
    if any(n.op in ("index", "check") for n in topological(node.op.body)):
        return False
    return node.outputs[0].shape in (group.shape, group.per_row)


def _is_map(node: Node, group: _Group) -> bool:
    return isinstance(node.op, Map) and _fits(node, group)


def _worth(group: _Group) -> bool:
    """Whether the group's nodes go over its rows more than once: else they are as well off alone."""
    sources = [n.inputs[0] for n in group.members if isinstance(n.op, Reduce)]
    if len(set(sources)) < len(sources):
        return True
    if len(sources) > 1 and not any(v.shape == group.shape for n in group.members for v in n.outputs):
        return True  # of several operands that one group made
    reduced = {n.outputs[0] for n in group.members if isinstance(n.op, Reduce)}
    wide = [n for n in group.members if isinstance(n.op, Map) and n.outputs[0].shape == group.shape]
    depends = set(reduced)
    for node in group.members:
        if any(v in depends for v in node.inputs):
            depends.update(node.outputs)
    operands = {v for n in group.members for v in n.inputs if v.producer not in group.members}
    return bool(reduced) and any(n.outputs[0] in depends for n in wide) and len(operands) <= MAX_OPERANDS


def _leave_out(group: _Group) -> None:
    """Drops from the group of a single long row the Maps that take along it nothing but operands: alone they
    run in parts, over all threads."""
    if any(d != 1 for d in group.per_row) or dims.typical(dims.product(group.shape)) < LONG_ROW:
        return
    made = {v: n for n in group.members for v in n.outputs}
    for node in reversed(group.members[:]):
        inside = [v for v in node.inputs if v in made]
        numbers = inside and all(v.shape == group.per_row for v in inside)
        last = not any(v in n.inputs for n in group.members for v in node.outputs)
        if isinstance(node.op, Map) and node.outputs[0].shape == group.shape and numbers and last:
            group.members.remove(node)


# Rebuilding --------------------------------------------------------------------------------------


def _ordered(graph: Graph, group_of: dict[Node, _Group]) -> list[Node | _Group]:
    """Nodes and groups in an order in which they can run: a group where its last member stood, or before what
    reads it earlier."""
    own, last = set(graph.nodes), {id(group_of[n]): n for n in graph.nodes if n in group_of}
    units: list[Node | _Group] = []
    begun: set[int] = set()
    for node in graph.nodes:
        root = group_of.get(node, node)
        stack = [(root, False)] if last.get(id(root), node) is node else []
        while stack:
            unit, ready = stack.pop()
            if ready:
                units.append(unit)
            elif id(unit) not in begun:
                begun.add(id(unit))
                stack.append((unit, True))
                members = unit.members if isinstance(unit, _Group) else [unit]
                read = [v.producer for n in members for v in n.inputs if v.producer in own]
                stack.extend((group_of.get(n, n), False) for n in reversed(read))
    return units


def _emit(rewriter: Rewriter, group: _Group, outside: Counter[Value]) -> None:
    inner: dict[Value, Value] = {}
    operands: list[Value] = []
    parameters: list[Value] = []
    nodes: list[Node] = []
    inside = {v for n in group.members for v in n.outputs}
    for node in sorted(group.members, key=_member_order(group)):
        inputs = []
        for value in node.inputs:
            if value not in inside and value not in inner:
                inner[value] = Value(value.type)
                operands.append(rewriter.of(value))
                parameters.append(inner[value])
            inputs.append(inner.get(value, value))
        op = node.op
        if isinstance(op, Reduce) and op.body is not None:  # what is reduced becomes a Map of its own
            before = make_node(Map(op.body), inputs, node.origin)
            nodes.append(before)
            op, inputs = Reduce(op.kind, op.axes, op.keepdims), list(before.outputs)
        copied = Node(op, tuple(inputs), tuple(Value(v.type, v.name) for v in node.outputs), node.origin)
        nodes.append(copied)
        inner.update(zip(node.outputs, copied.outputs))
    results = [v for n in group.members for v in n.outputs if outside[v]]
    region = Graph(tuple(parameters), tuple(inner[v] for v in results), tuple(nodes))
    origin = group.members[-1].origin
    outputs = rewriter.add(Fused("rows", region), operands, origin, [v.name for v in results])
    rewriter.replace(results, outputs)


def _member_order(group: _Group) -> Callable[[Node], int]:
    """Members were found in order, but a seed's Map was added late."""
    produced = {v: n for n in group.members for v in n.outputs}
    rank: dict[Node, int] = {}
    for node in group.members:
        rank[node] = 1 + max((rank.get(produced[v], 0) for v in node.inputs if v in produced), default=0)
    return rank.__getitem__
