"""select_kernels: which kernel runs each node, and in which layout each value is stored.

Nodes are taken in order. Every kernel offers its choices for the node as its operands are stored so far; the
one whose estimated time, with that of the reorders it asks for, is least wins. A blocked value then gets the
widest halo that any of its consumers reads, and Reorder nodes are put where a consumer wants another layout
than the producer gives.
"""
from __future__ import annotations

from dataclasses import replace

from .. import dims
from ..codegen.kernel import Choice
from ..errors import UnsupportedError
from ..ir import Graph, Layout, Node, TensorType, Value
from ..ops import Bind, Elements, Fused, If, Loop, Op, Reorder, RuntimeCall
from ..target import Target
from .plan_memory import view_of


def select_kernels(graph: Graph, target: Target) -> Graph:
    """graph with a Choice on every node that a kernel runs, layouts on types, and Reorder nodes between."""
    return _Selection(target).graph(graph)


def runs_kernel(node: Node) -> bool:
    """Whether a kernel runs the node, rather than the run function itself."""
    return not isinstance(node.op, (Bind, Elements, If, Loop, RuntimeCall)) and view_of(node) is None


class _Selection:
    def __init__(self, target: Target):
        self.target = target

    def graph(self, graph: Graph) -> Graph:
        chosen = self._choose(graph)
        halos = self._halos(chosen)
        return self._insert(chosen, halos)

    # Which kernel --------------------------------------------------------------------------------

    def _choose(self, graph: Graph) -> Graph:
        """Choices on all nodes; produced values have their block, but no halo yet."""
        new: dict[Value, Value] = {}
        nodes = []
        pending = list(reversed(graph.nodes))
        while pending:
            node = pending.pop()
            inputs = tuple(new.get(v, v) for v in node.inputs)
            if isinstance(node.op, Fused) and not self.candidates(
                Node(node.op, inputs, tuple(_stored(v, None) for v in node.outputs))
            ):
                pending.extend(reversed(_inlined(node)))
                continue
            op = self._inner(node.op)
            dense = Node(op, inputs, tuple(_stored(v, None) for v in node.outputs), node.origin)
            if runs_kernel(dense) or any(_layout(v) for v in inputs):
                dense = self._best(dense)
            nodes.append(dense)
            new.update(zip(node.outputs, dense.outputs))
        return replace(graph, nodes=tuple(nodes), outputs=tuple(new.get(v, v) for v in graph.outputs))

    def _inner(self, op: Op) -> Op:
        """op with its regions lowered too; fused groups are their kernel's business."""
        if isinstance(op, (If, Loop)):
            changed = {k: self.graph(v) for k, v in vars(op).items() if isinstance(v, Graph)}
            return replace(op, **changed)
        return op

    def _best(self, node: Node) -> Node:
        if not runs_kernel(node):  # a view or control flow over blocked values reads them dense
            return node
        choices = self.candidates(node)
        if any(_layout(v) for v in node.inputs):
            inputs = tuple(_stored(v, None) for v in node.inputs)
            choices += self.candidates(Node(node.op, inputs, node.outputs, node.origin))
        if not choices:
            raise UnsupportedError(
                f"no kernel takes {type(node.op).__name__} of {', '.join(str(v.type) for v in node.inputs)}"
            )
        best = min(choices, key=lambda choice: choice.cost + self._reorders(node, choice))
        outputs = tuple(_stored(v, best.output) for v in node.outputs)
        return Node(node.op, node.inputs, outputs, node.origin, best)

    def candidates(self, node: Node) -> list[Choice]:
        from ..codegen.kernels import KERNELS

        return [choice for kernel in KERNELS for choice in kernel.candidates(node, self.target)]

    def _reorders(self, node: Node, choice: Choice) -> float:
        """Nanoseconds for bringing the operands into the layouts that a choice reads."""
        total = 0.0
        for value, wanted in zip(node.inputs, _wanted(node, choice)):
            if value.constant is None and not _fits(_layout(value), wanted):
                total += 2 * dims.typical(value.type.nbytes) / self.target.bytes_per_ns
        return total

    # Which halo ----------------------------------------------------------------------------------

    def _halos(self, graph: Graph) -> dict[Value, tuple[int, ...]]:
        """For every blocked value the widest border that a consumer reads."""
        halos: dict[Value, tuple[int, ...]] = {}
        for node in graph.nodes:
            if node.choice is None:
                continue
            for value, wanted in zip(node.inputs, _wanted(node, node.choice)):
                if wanted is not None and isinstance(value.type, TensorType):
                    none = (0,) * (value.rank - 2)
                    pairs = zip(halos.get(value, none), wanted.halo or none)
                    halos[value] = tuple(max(a, b) for a, b in pairs)
        return halos

    # Where to reorder ----------------------------------------------------------------------------

    def _insert(self, graph: Graph, halos: dict[Value, tuple[int, ...]]) -> Graph:
        new: dict[Value, Value] = {}
        nodes: list[Node] = []
        reordered: dict[tuple[Value, Layout | None], Value] = {}

        def as_wanted(value: Value, wanted: Layout | None, packed: bool) -> Value:
            current = new.get(value, value)
            if packed or not isinstance(value.type, TensorType) or _fits(current.type.layout, wanted):
                return current
            layout = None if wanted is None else Layout(wanted.block, halos[value])
            if (value, layout) not in reordered:
                output = Value(replace(value.type, layout=layout), value.name)
                node = Node(Reorder(layout), (current,), (output,), "")
                node = Node(
                    node.op,
                    node.inputs,
                    (output,),
                    f"layout of {value.name or 'a value'}",
                    self._reorder(node),
                )
                nodes.append(node)
                reordered[value, layout] = output
            return reordered[value, layout]

        for node in graph.nodes:
            choice = node.choice
            wanted = _wanted(node, choice) if choice else (None,) * len(node.inputs)
            packed = choice.packed if choice else ()
            inputs = tuple(
                as_wanted(v, w, k in packed and v.constant is not None)
                for k, (v, w) in enumerate(zip(node.inputs, wanted))
            )
            outputs = []
            for value in node.outputs:
                layout = _layout(value)
                if layout is not None:
                    layout = Layout(layout.block, halos.get(value, (0,) * (value.rank - 2)))
                outputs.append(_stored(value, layout))
            nodes.append(Node(node.op, inputs, tuple(outputs), node.origin, choice))
            new.update(zip(node.outputs, outputs))
        outputs = tuple(as_wanted(v, None, False) for v in graph.outputs)
        return replace(graph, nodes=tuple(nodes), outputs=outputs)

    def _reorder(self, node: Node) -> Choice:
        return min(self.candidates(node), key=lambda choice: choice.cost)


def _inlined(node: Node) -> list[Node]:
    """The nodes of a group that no kernel takes; its operands and results are theirs from now on."""
    region = node.op.region
    stands = dict(zip(region.inputs, node.inputs))
    results = dict(zip(region.outputs, node.outputs))
    nodes = []
    for inner in region.nodes:
        outputs = tuple(results.get(v) or Value(v.type, v.name) for v in inner.outputs)
        nodes.append(Node(inner.op, tuple(stands.get(v, v) for v in inner.inputs), outputs, inner.origin))
        stands.update(zip(inner.outputs, outputs))
    return nodes


def _layout(value: Value) -> Layout | None:
    return value.type.layout if isinstance(value.type, TensorType) else None


def _stored(value: Value, layout: Layout | None) -> Value:
    type_ = replace(value.type, layout=layout) if isinstance(value.type, TensorType) else value.type
    return Value(type_, value.name, value.constant, value.elements)


def _wanted(node: Node, choice: Choice) -> tuple[Layout | None, ...]:
    return choice.inputs or (None,) * len(node.inputs)


def _fits(layout: Layout | None, wanted: Layout | None) -> bool:
    """Whether a value stored so can be read by who wants it like that: the same block, and no less of a
    halo."""
    if layout is None or wanted is None:
        return layout is wanted
    return layout.block == wanted.block and all(
        a >= b for a, b in zip(layout.halo or wanted.halo, wanted.halo)
    )

