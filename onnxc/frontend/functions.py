"""Model-local functions expanded into the graph, and operators into the bodies ONNX gives them.

`y = F(x, alpha=2)`, `F(a, alpha) -> b: t = Elu(a, alpha=@alpha); b = Abs(t)` becomes
`F_1/t = Elu(x, alpha=2); y = Abs(F_1/t)`: parameters become what the call gives, other values get
fresh names. A graph that is an attribute's default belongs to the body, one that a call gives to the call.
Bodies have operator sets of their own, which `Inlined.opset` tells for each node.
The size of the expansion is known before it starts, and nothing recurses.
Source: the ONNX IR specification, section Functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from ..errors import LimitError, ModelError, Origin, quote, shorten
from ..records import dataclass
from .walk import MAX_NESTING, default_graphs, definitions, subgraphs, too_deep

MAX_NODES = 1_000_000  # after expansion
MAX_EXPANDED_BYTES = 1 << 28  # of protobuf that expansion makes
LABEL_LIMIT = 60  # characters of a call's and of a value's name in a fresh name

FunctionKey = tuple[str, str, str]
Opsets = Mapping[str, int]


def normal_domain(domain: str) -> str:
    """The default domain has two spellings; the empty one stands for both."""
    return "" if domain == "ai.onnx" else domain


def imported_opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Domain -> version; of a domain imported twice the highest version binds."""
    opsets: dict[str, int] = {}
    for entry in imports:
        domain = normal_domain(entry.domain)
        opsets[domain] = max(entry.version, opsets.get(domain, entry.version))
    return opsets


def model_opsets(model: onnx.ModelProto) -> dict[str, int]:
    """Domain -> version for the main graph: what the model imports, and the newest of ONNX's domains that it
    does not, as in ONNX Runtime. Functions import all that they use."""
    newest = {domain: versions[1] for domain, versions in onnx.defs.C.schema_version_map().items()}
    return {**newest, **imported_opsets(model.opset_import)}


def call_key(node: NodeProto) -> FunctionKey:
    """What a node calls: (domain, operator, overload)."""
    return normal_domain(node.domain), node.op_type, node.overload


def function_key(function: FunctionProto) -> FunctionKey:
    """What calls a function."""
    return normal_domain(function.domain), function.name, function.overload


def local_functions(model: onnx.ModelProto) -> dict[FunctionKey, FunctionProto]:
    """The model's functions by what calls them; of functions with the same key the first."""
    functions: dict[FunctionKey, FunctionProto] = {}
    for function in model.functions:
        functions.setdefault(function_key(function), function)
    return functions


def called_functions(model: onnx.ModelProto) -> set[FunctionKey]:
    """What the main graph comes to call."""
    functions = local_functions(model)
    called: set[FunctionKey] = set()
    pending = [list(model.graph.node)]
    while pending:
        for node in _nested_nodes(pending.pop()):
            key = call_key(node)
            if key in functions and key not in called:
                called.add(key)
                pending.append(_own_nodes(functions[key]))
    return called


@dataclass
class NameSupply:
    """Names that are not in use yet. `fresh("a")` gives `a`, then `a~2`, `a~3`, ..."""

    taken: set[str]
    _used: Counter = field(default_factory=Counter)

    def fresh(self, base: str) -> str:
        while True:
            self._used[base] += 1
            name = base if self._used[base] == 1 else f"{base}~{self._used[base]}"
            if name not in self.taken:
                self.taken.add(name)
                return name


@dataclass(frozen=True)
class Inlined:
    """A graph without calls of model-local functions.

    opsets: of the model; node_opsets: of the nodes that came from functions, by node name, which
    for them is unique; names: every name in use, to make more."""

    graph: GraphProto
    opsets: Opsets
    node_opsets: Mapping[str, Opsets]
    names: NameSupply

    def opset(self, node: NodeProto) -> int | None:
        """The version of its domain that binds `node`; None if the domain is not imported."""
        opsets = self.node_opsets.get(node.name, self.opsets) if node.name else self.opsets
        return opsets.get(normal_domain(node.domain))


@dataclass(frozen=True)
class FunctionBody:
    """The nodes that an operator is made of, and the operator sets that they are written in."""

    nodes: list[NodeProto]
    opsets: Opsets


def inline_functions(model: onnx.ModelProto) -> Inlined:
    """The main graph with every call of a model-local function replaced by the function's nodes.

    Where there is no call the graph is the model's own, else a copy. Raises ModelError on
    recursion and on bodies that contradict their calls, LimitError on more than MAX_NODES."""
    functions = local_functions(model)
    opsets = model_opsets(model)
    names = NameSupply(_all_names(model))
    if not any(call_key(node) in functions for node in _nested_nodes(model.graph.node)):
        return Inlined(model.graph, opsets, {}, names)
    check_expansion(model)
    expansion = _Expansion(functions, names)
    graph = GraphProto()
    _run(expansion.copy_graph(model.graph, graph, _Place()))
    return Inlined(graph, opsets, expansion.node_opsets, names)


def schema_function_body(
    node: NodeProto,
    version: int,
    input_types: Sequence[onnx.TypeProto | None],
    names: NameSupply | None = None,
) -> FunctionBody | None:
    """The body that ONNX defines for `node` at `version` of its domain, or None if there is none.

    Nodes read the node's inputs and write its outputs; other values get names from `names`.
    input_types: of each input, None where it is missing or unknown. Some bodies depend on them,
    and there is none while they are unknown."""
    try:
        schema = onnx.defs.get_schema(node.op_type, version, normal_domain(node.domain))
    except onnx.defs.SchemaError:
        return None
    function = _schema_function(schema, node, version, input_types)
    if function is None or not function.node:
        return None
    attributes = {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    names = names or NameSupply({*node.input, *node.output})
    expansion = _Expansion({}, names)
    graph = GraphProto()
    _run(expansion.expand(node, function, graph.node, _Place(), attributes))
    opsets = {"": onnx.defs.onnx_opset_version(), **imported_opsets(function.opset_import)}
    return FunctionBody(list(graph.node), opsets)


def _schema_function(
    schema: Any, node: NodeProto, version: int, input_types: Sequence[onnx.TypeProto | None]
) -> FunctionProto | None:
    """The schema's body in the newest operator set that is no newer than `version`, if any."""

    def best(versions: Sequence[int]) -> int:
        return max((v for v in versions if v <= version), default=min(versions))

    if schema.has_function:
        chosen = best(schema.function_opset_versions)
        return FunctionProto.FromString(schema.get_function_with_opset_version(chosen))
    if not schema.has_context_dependent_function:
        return None
    chosen = best(schema.context_dependent_function_opset_versions)
    types = [b"" if given is None else given.SerializeToString() for given in input_types]
    try:
        return FunctionProto.FromString(
            schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), types)
        )
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"onnx cannot expand the operator: {error}", origin=_origin(node)) from None


@dataclass(frozen=True)
class _Place:
    """Where nodes are copied to: how names and references are read there.

    scopes: old -> new names, innermost first; None keeps names, as in the main graph.
    attributes: what the call gives for attribute references. defaults: what they stand for where it gives
    nothing, as the function has it. label: of the call, for names of nodes."""

    scopes: tuple[Mapping[str, str], ...] | None = None
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    defaults: Mapping[str, AttributeProto] = field(default_factory=dict)
    opsets: Opsets | None = None
    label: str = ""
    nesting: int = 0

    def rename(self, name: str) -> str:
        if self.scopes is None or not name:
            return name
        for scope in self.scopes:
            if name in scope:
                return scope[name]
        raise ModelError(f"a function uses the value {quote(name)}, which it does not define")


_Steps = Generator["_Steps", None, None]


def _run(steps: _Steps) -> None:
    """Run a generator that yields the generators it calls, without recursion."""
    stack = [steps]
    while stack:
        try:
            stack.append(next(stack[-1]))
        except StopIteration:
            stack.pop()


@dataclass
class _Expansion:
    """Copies graphs, with function bodies in place of calls; methods are steps for `_run`."""

    functions: Mapping[FunctionKey, FunctionProto]
    names: NameSupply
    node_opsets: dict[str, Opsets] = field(default_factory=dict)
    _nodes: int = 0
    _bytes: int = 0

    def copy_graph(self, source: GraphProto, target: GraphProto, place: _Place) -> _Steps:
        """`source` into the empty `target`; inside a function all its values get fresh names."""
        if place.nesting > MAX_NESTING:
            raise too_deep()
        if place.scopes is not None:
            fresh = {name: self._fresh(place.label, name) for name in sorted(definitions(source)) if name}
            place = replace(place, scopes=(fresh, *place.scopes))
        target.name = source.name
        for kind in ("input", "output", "initializer", "value_info", "sparse_initializer"):
            for item in getattr(source, kind):
                copy = getattr(target, kind).add()
                copy.CopyFrom(item)
                named = copy.values if kind == "sparse_initializer" else copy
                if kind == "value_info" and place.scopes is not None:
                    getattr(target, kind).pop()  # a hint, and perhaps of a value that is not there
                else:
                    named.name = place.rename(named.name)
        yield self.copy_nodes(source.node, target.node, place)

    def copy_nodes(self, nodes: Iterable[NodeProto], target: Any, place: _Place) -> _Steps:
        """`nodes` appended to the list of nodes `target`."""
        for node in nodes:
            function = self.functions.get(call_key(node))
            copy = NodeProto() if function else target.add()
            yield self.copy_node(node, copy, place)
            if function is not None:
                yield self.expand(copy, function, target, place)

    def copy_node(self, node: NodeProto, copy: NodeProto, place: _Place) -> _Steps:
        """`node` into the empty `copy`, references resolved and names read as at `place`."""
        copy.op_type, copy.domain, copy.overload = node.op_type, node.domain, node.overload
        copy.input.extend(place.rename(name) for name in node.input)
        copy.output.extend(place.rename(name) for name in node.output)
        copy.name = node.name
        if place.scopes is not None:
            inner = shorten(node.name or node.op_type, LABEL_LIMIT)
            copy.name = self.names.fresh(f"{place.label}/{inner}")
            self.node_opsets[copy.name] = place.opsets or {}
        self._spend(1, copy.ByteSize())
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                yield self._bind(attribute, copy, place)
            else:
                yield self.copy_attribute(attribute, copy.attribute.add(), place)

    def copy_attribute(self, attribute: AttributeProto, copy: AttributeProto, place: _Place) -> _Steps:
        """`attribute`, which refers to no other, into the empty `copy`."""
        if attribute.HasField("g") or attribute.graphs:
            copy.name, copy.type = attribute.name, attribute.type
            inside = replace(place, nesting=place.nesting + 1)
            if attribute.HasField("g"):
                yield self.copy_graph(attribute.g, copy.g, inside)
            for graph in attribute.graphs:
                yield self.copy_graph(graph, copy.graphs.add(), inside)
        else:
            copy.CopyFrom(attribute)
            self._spend(0, attribute.ByteSize() if place.scopes is not None else 0)

    def expand(
        self,
        call: NodeProto,
        function: FunctionProto,
        target: Any,
        place: _Place,
        defaults: Mapping[str, AttributeProto] | None = None,
    ) -> _Steps:
        """The body of `function` for `call`, whose names and attributes are those of the target."""
        _check_call(call, function)
        label = shorten(call.name or call.op_type, LABEL_LIMIT)
        given = {a.name: a for a in call.attribute}
        defaults = {**(defaults or {}), **{a.name: a for a in function.attribute_proto}}
        names = dict.fromkeys(function.input, "")
        names.update(zip(function.input, call.input, strict=False))
        produced = {name for node in function.node for name in node.output if name}
        copies = []
        for formal, actual in zip(function.output, call.output, strict=False):
            if actual and formal in produced and formal not in names:
                names[formal] = actual
            elif actual:  # an input passed through, or a second output of the same value
                copies.append((formal, actual))
        for name in sorted(produced - names.keys()):
            names[name] = self._fresh(label, name)
        opsets = imported_opsets(function.opset_import)
        inner = _Place((names,), given, defaults, opsets, label, place.nesting)
        yield self.copy_nodes(function.node, target, inner)
        for formal, actual in copies:
            self._spend(1, 0)
            name = self.names.fresh(f"{label}/Identity")
            target.add(op_type="Identity", name=name, input=[inner.rename(formal)], output=[actual])
            self.node_opsets[name] = {"": onnx.defs.onnx_opset_version()}

    def _bind(self, reference: AttributeProto, copy: NodeProto, place: _Place) -> _Steps:
        """Add to `copy` the attribute that `reference` stands for; nothing if there is none."""
        given = place.attributes.get(reference.ref_attr_name)
        value = place.defaults.get(reference.ref_attr_name) if given is None else given
        if place.scopes is None:
            raise ModelError(
                f"the attribute {quote(reference.name)} refers to an attribute of a "
                "function, outside any function",
                origin=_origin(copy),
            )
        if value is None or value.ref_attr_name:
            return
        if reference.type and value.type != reference.type:
            raise ModelError(
                f"the attribute {quote(reference.name)} is declared as "
                f"{_type_name(reference.type)} but {'the default is' if given is None else 'the call gives'} "
                f"{_type_name(value.type)}",
                origin=_origin(copy),
            )
        bound = copy.attribute.add()
        if given is None:  # a default sees what the function's own nodes see, wherever it takes its place
            yield self.copy_attribute(value, bound, replace(place, scopes=place.scopes[-1:]))
        else:
            self._copy_given(given, bound, place)
        bound.name = reference.name

    def _copy_given(self, given: AttributeProto, copy: AttributeProto, place: _Place) -> None:
        """What a call gives, whose names and references are resolved already, into the empty `copy`."""
        for graph in [given.g] if given.HasField("g") else given.graphs:
            self._spend(*_measure(graph, MAX_NESTING - place.nesting))
        try:
            copy.CopyFrom(given)
        except DecodeError:  # protobuf copies fewer levels than can be built
            raise too_deep() from None

    def _fresh(self, label: str, name: str) -> str:
        return self.names.fresh(f"{label}/{shorten(name, LABEL_LIMIT)}")

    def _spend(self, nodes: int, size: int) -> None:
        self._nodes += nodes
        self._bytes += size
        if self._nodes > MAX_NODES or self._bytes > MAX_EXPANDED_BYTES:
            raise _too_large()


def _too_large() -> LimitError:
    return LimitError(
        f"with its functions expanded the model has more than {MAX_NODES} nodes, or "
        f"more than {MAX_EXPANDED_BYTES >> 20} MiB of them"
    )


def _origin(node: NodeProto) -> Origin:
    return Origin(node=node.name, op_type=node.op_type, domain=node.domain)


def _type_name(code: int) -> str:
    return AttributeProto.AttributeType.Name(code)


def _check_call(call: NodeProto, function: FunctionProto) -> None:
    for kind in ("input", "output"):
        given, declared = len(getattr(call, kind)), len(getattr(function, kind))
        if given > declared:
            raise ModelError(
                f"the call has {given} {kind}s, but the function has {declared}", origin=_origin(call)
            )


def _all_names(model: onnx.ModelProto) -> set[str]:
    """The names of every value and node of the main graph, subgraphs included."""
    names = definitions(model.graph)
    for node in _nested_nodes(model.graph.node):
        names.update((node.name, *node.input, *node.output))
        for _, graph in subgraphs(node):
            names |= definitions(graph)
    return names


def _own_nodes(function: FunctionProto) -> list[NodeProto]:
    """The nodes of a function's body and of the graphs that its attributes are by default."""
    return [*function.node, *(node for _, graph in default_graphs(function) for node in graph.node)]


def _nested_nodes(nodes: Iterable[NodeProto]) -> Iterable[NodeProto]:
    """`nodes` and the nodes of all their subgraphs."""
    return (node for node, _ in _nested_nodes_and_levels(nodes))


def _nested_nodes_and_levels(nodes: Iterable[NodeProto]) -> Iterable[tuple[NodeProto, int]]:
    pending = [(nodes, 0)]
    while pending:
        nodes, level = pending.pop()
        for node in nodes:
            yield node, level
            pending += [(graph.node, level + 1) for _, graph in subgraphs(node)]


def _measure(graph: GraphProto, max_nesting: int) -> tuple[int, int]:
    """(nodes, bytes) of a graph; LimitError if subgraphs in it nest deeper than `max_nesting`."""
    count = size = 0
    for node, level in _nested_nodes_and_levels(graph.node):
        count += 1
        size += node.ByteSize() if not any(subgraphs(node)) else 0
        if level + 1 > max_nesting:
            raise too_deep()
    return count, size


@dataclass(frozen=True)
class _Cost:
    """What expanding a body makes: nodes, bytes, and levels of subgraphs; capped at the limits."""

    nodes: int
    bytes: int
    nesting: int


def check_expansion(model: onnx.ModelProto) -> None:
    """Raise ModelError if functions recurse, LimitError if expanding them would make too much.

    Costs a look at each function, whatever the size of the expansion."""
    functions = local_functions(model)
    costs: dict[FunctionKey, _Cost] = {}
    for key in _callees_first(functions):
        function = functions[key]
        costs[key] = _cost(_own_nodes(function), function.ByteSize(), functions, costs)
    total = _cost(model.graph.node, 0, functions, costs)
    if total.nodes > MAX_NODES or total.bytes > MAX_EXPANDED_BYTES:
        raise _too_large()
    if total.nesting > MAX_NESTING:
        raise too_deep()


def _cost(nodes: Iterable[NodeProto], size: int, functions: Mapping, costs: Mapping) -> _Cost:
    count = nesting = 0
    for node, level in _nested_nodes_and_levels(nodes):
        called = costs[call_key(node)] if call_key(node) in functions else _Cost(1, 0, 0)
        count = min(count + called.nodes, MAX_NODES + 1)
        size = min(size + called.bytes, MAX_EXPANDED_BYTES + 1)
        nesting = min(max(nesting, level + called.nesting), MAX_NESTING + 1)
    return _Cost(count, size, nesting)


def _callees_first(functions: Mapping[FunctionKey, FunctionProto]) -> list[FunctionKey]:
    """Every function, each after all that it calls; ModelError if some call themselves."""

    def calls(nodes: Iterable[NodeProto]) -> Iterable[FunctionKey]:
        return iter(
            dict.fromkeys(key for node in _nested_nodes(nodes) if (key := call_key(node)) in functions)
        )

    order: list[FunctionKey] = []
    done: set[FunctionKey] = set()
    active: dict[FunctionKey, None] = {}
    stack: list[tuple[FunctionKey | None, Iterator[FunctionKey]]] = [(None, iter(functions))]
    while stack:
        key, callees = stack[-1]
        callee = next(callees, None)
        if callee is None:
            stack.pop()
            if key is not None:
                active.pop(key)
                done.add(key)
                order.append(key)
        elif callee in active:
            path = [name for _, name, _ in [*active][[*active].index(callee) :]]
            cycle = " calls ".join(quote(name) for name in [*path, callee[1]][:6])
            raise ModelError(f"functions must not recurse, but {cycle}")
        elif callee not in done:
            active[callee] = None
            stack.append((callee, iter(calls(_own_nodes(functions[callee])))))
    return order
