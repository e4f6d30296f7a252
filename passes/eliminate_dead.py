"""eliminate_dead: drops nodes whose results nobody reads, and what regions capture or return for nobody.

%0 = map(%x) {...}; %1 = map(%x) {...}; return %1   →   %1 = map(%x) {...}; return %1
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir import dims
from ..ir.graph import Graph, Node, TensorType, Value, regions
from ..ir.ops import Bind, If, Loop, Require, RuntimeCall, Shape, dimensions


def eliminate_dead(graph: Graph) -> Graph:
    """graph without nodes that neither an output nor a needed dimension variable depends on."""
    return _cleaned(graph)[0]


def _cleaned(graph: Graph) -> tuple[Graph, set[str]]:
    """graph without what is dead, and the dimension variables that its nodes and outputs take: who cleans the
    graph around it need not walk it again."""
    live: set[Value] = set(graph.outputs)
    variables = _variables_of(graph.outputs)
    bound = bound_by(graph)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if isinstance(node.op, Require):
            kept.append(node)
            continue
        needed = bound.get(node, set()) & variables
        if not needed and not any(v in live for v in node.outputs):
            continue
        if isinstance(node.op, (If, Loop)):
            node, within = _trimmed(node, _wanted(node, live, needed))
        else:
            within = _variables_within(node)
        kept.append(node)
        live.update(node.inputs)
        variables |= _own_variables(node) | within
    trimmed = replace(graph, nodes=tuple(reversed(kept)))
    untold = set().union(*bound.values()) - set().union(*bound_by(trimmed).values())
    if untold:
        trimmed = _without_requirements(trimmed, untold)
    required = (_own_variables(node) for node in trimmed.nodes if isinstance(node.op, Require))
    return trimmed, variables.union(*required)


def _without_requirements(graph: Graph, untold: set[str]) -> Graph:
    """graph without what is required of variables that nobody tells any more: a size of nothing that is
    computed."""
    nodes = (
        n for n in graph.nodes if not isinstance(n.op, Require) or needed_variables(n).isdisjoint(untold)
    )
    return replace(graph, nodes=tuple(nodes))


def bound_by(graph: Graph) -> dict[Node, set[str]]:
    """The variables that each node is the first to tell: by its values, or by the sizes of its results."""
    known = _variables_of(graph.inputs)
    found: dict[Node, set[str]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Bind):
            found[node] = {s.name for s in node.op.symbols}
        elif isinstance(node.op, (If, Loop, RuntimeCall)):
            found[node] = _variables_of(node.outputs) - known
        known |= found.get(node, set())
    return found


def _wanted(node: Node, live: set[Value], needed: set[str]) -> list[bool]:
    """Which results are read, or are the only ones to tell a needed variable."""
    wanted = [v in live for v in node.outputs]
    told = {str(d) for v, want in zip(node.outputs, wanted) if want for d in _shape(v)}
    for k, value in enumerate(node.outputs):
        if _variables_of([value]) & needed - told:
            wanted[k] = True
            told |= {str(d) for d in _shape(value)}
    return wanted


def _trimmed(node: Node, wanted: list[bool]) -> tuple[Node, set[str]]:
    """node without results that nobody wants, its regions cleaned, and without operands that no region reads
    then; and the variables that the regions take. What a Loop carries stays."""
    loop = isinstance(node.op, Loop)
    carried = node.op.carried if loop else 0
    own = 2 + carried if loop else 1  # operands that are no captures
    given = own if loop else 0  # region inputs that are no captures
    first = 1 if loop else 0  # region outputs before the results: a body's condition
    results = [k for k, want in enumerate(wanted) if want or k < carried]
    cleaned: dict[str, Graph] = {}
    variables: set[str] = set()
    for name, graph in vars(node.op).items():
        if isinstance(graph, Graph):
            outputs = (*graph.outputs[:first], *(graph.outputs[first + k] for k in results))
            cleaned[name], within = _cleaned(replace(graph, outputs=outputs))
            variables |= within
    read = {v for g in cleaned.values() for v in (*(v for n in g.nodes for v in n.inputs), *g.outputs)}
    captures = [
        k for k in range(len(node.inputs) - own) if any(g.inputs[given + k] in read for g in cleaned.values())
    ]
    for name, graph in cleaned.items():
        inputs = (*graph.inputs[:given], *(graph.inputs[given + k] for k in captures))
        cleaned[name] = replace(graph, inputs=inputs)
        variables |= _variables_of(inputs)
    op = replace(node.op, **cleaned, types=tuple(node.op.types[k] for k in results))
    inputs = (*node.inputs[:own], *(node.inputs[own + k] for k in captures))
    outputs = tuple(node.outputs[k] for k in results)
    return Node(op, inputs, outputs, node.origin, node.choice), variables


def _own_variables(node: Node) -> set[str]:
    """The dimension variables that a node's types and its op's sizes take."""
    sizes = {s.name for d in dimensions(node.op) for s in dims.symbols(d)}
    return _variables_of((*node.inputs, *node.outputs)) | sizes


def _variables_within(node: Node) -> set[str]:
    """The dimension variables that a node's regions take."""
    found: set[str] = set()
    for graph in regions(node.op):
        found |= _variables_of(graph.inputs)
        for inner in graph.nodes:
            found |= needed_variables(inner)
    return found


def needed_variables(node: Node) -> set[str]:
    """The dimension variables that running a node takes: those of its types, its op's sizes and its
    regions."""
    return _own_variables(node) | _variables_within(node)


def _variables_of(values: Iterable[Value]) -> set[str]:
    """The variables in the values' shapes."""
    return {s.name for v in values for d in _shape(v) for s in dims.symbols(d)}


def _shape(value: Value) -> Shape:
    return value.shape if isinstance(value.type, TensorType) else ()
