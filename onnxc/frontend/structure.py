"""Everything that is wrong with a model before shapes are looked at, listed at once.

Header, operator sets, nodes against their schemas, names against the graphs that define them,
cycles, signatures of subgraphs, functions, sizes of tensors. Dead nodes and unused functions are
checked too, but what these alone call need not be supported. Every name is looked at a constant
number of times, and nothing recurses.
Source: the ONNX IR specification; operators from onnx.defs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace

import onnx
from onnx import GraphProto, NodeProto

from ..diagnostics import Diagnostic, DiagnosticList
from ..errors import OnnxcError, Origin, quote
from ..records import dataclass
from . import functions as local
from . import schemas, tensors
from .model_file import ModelFile
from .operators import Operators
from .walk import MAX_NESTING, attribute_tensors, default_graphs, subgraphs, too_deep, topological_order

MAX_DIAGNOSTICS = 10_000
#: What to do about operators that nobody knows.
WITHOUT = "give them with --operators, or export the model without them or with them as functions"

__all__ = ["check_structure", "topological_order"]


def check_structure(model: onnx.ModelProto | ModelFile, operators: Operators | None = None) -> DiagnosticList:
    """Every structural problem of `model`, in the order of the model; empty if there is none. Tensor data is
    checked where a ModelFile says where it lies. operators: what is given beside the model."""
    file = model if isinstance(model, ModelFile) else None
    proto = model.proto if isinstance(model, ModelFile) else model
    check = _Check(proto, file, local.local_functions(proto), operators or Operators())
    try:
        check.model()
    except _TooMany:
        check.found.add(f"there are more problems than the {MAX_DIAGNOSTICS} that are listed")
    return check.found


class _TooMany(Exception):
    """The list of diagnostics is full."""


@dataclass(frozen=True)
class _Body:
    """A list of nodes to check: the main graph, a subgraph, or a function's body.

    scopes: the names defined here and around here, innermost first. label: what precedes the
    position of a node that has no name; empty in the main graph. function: what precedes the name
    of every node. attributes: that references may name, None outside functions."""

    nodes: Iterable[NodeProto]
    opsets: Mapping[str, int]
    scopes: tuple[set[str], ...]
    label: str = ""
    attributes: frozenset[str] | None = None
    function: str = ""

    def origin(self, index: int, node: NodeProto) -> Origin:
        name = self.function + node.name if node.name else f"{self.label}#{index}"
        name = "" if name == f"#{index}" else name
        domain = local.normal_domain(node.domain)
        return Origin("", name, node.op_type, domain, self.opsets.get(domain), index)


@dataclass
class _Check:
    """One check of one model; what it finds goes to `found`."""

    proto: onnx.ModelProto
    file: ModelFile | None
    functions: Mapping[local.FunctionKey, onnx.FunctionProto]
    operators: Operators
    found: DiagnosticList = field(default_factory=DiagnosticList)
    signatures: dict[local.FunctionKey, schemas.Signature] = field(default_factory=dict)

    def add(self, reason: str, origin: Origin | None = None, kind: str = "invalid", remedy: str = "") -> None:
        if len(self.found) >= MAX_DIAGNOSTICS:
            raise _TooMany
        self.found.add(reason, origin, kind=kind, remedy=remedy)

    def model(self) -> None:
        self.header()
        opsets = local.model_opsets(self.proto)
        self.signatures = {
            key: schemas.function_signature(function) for key, function in self.functions.items()
        }
        if self.proto.HasField("graph"):
            self.graph_inputs()
            self.bodies(self.graph_body(self.proto.graph, "", _Body((), opsets, ())))
            if not self.proto.graph.output:
                self.add("the graph has no outputs")
        else:
            self.add("the model has no graph")
        self.all_functions()

    # The model as a whole

    def header(self) -> None:
        low, high = schemas.MIN_IR_VERSION, schemas.MAX_IR_VERSION
        version = self.proto.ir_version
        if not self.proto.HasField("ir_version"):
            self.add(f"the model states no IR version; {low} to {high} are supported")
        elif not low <= version <= high:
            kind = "unsupported" if version > high else "invalid"
            self.add(f"IR version {version} is not supported, {low} to {high} are", kind=kind)
        if not self.proto.opset_import:
            self.add("the model imports no operator set")
        self.opsets(local.imported_opsets(self.proto.opset_import), Origin())

    def opsets(self, opsets: Mapping[str, int], origin: Origin) -> None:
        """Versions of known domains must be supported; foreign ones matter when they are used."""
        for domain, version in opsets.items():
            known = schemas.version_range(domain)
            if known and not known[0] <= version <= known[1]:
                kind = "unsupported" if version > known[1] else "invalid"
                self.add(
                    f"operator set {version} of {quote(domain or 'ai.onnx')} is not "
                    f"supported, {known[0]} to {known[1]} are",
                    origin,
                    kind,
                )

    def graph_inputs(self) -> None:
        for value in self.proto.graph.input:
            problem = _type_problem(value)
            if problem:
                self.add(f"the input {quote(value.name)} {problem}")

    def all_functions(self) -> None:
        counts = Counter(map(local.function_key, self.proto.functions))
        for (domain, name, _), count in counts.items():
            origin = Origin(op_type=name, domain=domain)
            if count > 1:
                self.add(f"the function is defined {count} times", origin)
            if not name:
                self.add("a function has no name", origin)
        called = local.called_functions(self.proto)
        for function in self.proto.functions:
            before = len(self.found)
            self.function(function)
            if local.function_key(function) not in called:
                self.found[before:] = [p for p in self.found[before:] if p.kind != "unsupported"]
        if self.proto.functions:
            try:
                local.check_expansion(self.proto)
            except OnnxcError as error:
                self.found.append(Diagnostic.of(error))

    def function(self, function: onnx.FunctionProto) -> None:
        origin = Origin(op_type=function.name, domain=local.normal_domain(function.domain))
        attributes = [*function.attribute, *(a.name for a in function.attribute_proto)]
        for kind, names in (
            ("input", function.input),
            ("output", function.output),
            ("attribute", attributes),
        ):
            for name, count in Counter(names).items():
                if not name:
                    self.add(f"the function has an {kind} without a name", origin)
                elif count > 1 and kind != "output":
                    self.add(f"the function has the {kind} {quote(name)} twice", origin)
        opsets = local.imported_opsets(function.opset_import)
        self.opsets(opsets, origin)
        defined = set(function.input)
        body = _Body(
            function.node, opsets, (defined,), f"{function.name}/", frozenset(attributes), f"{function.name}/"
        )
        self.define_outputs(body, defined)
        self.bodies(body)
        for name, graph in default_graphs(function):
            self.bodies(self.graph_body(graph, f"{function.name}/{name}/", body))
        for attribute in function.attribute_proto:
            for tensor in attribute_tensors(attribute):
                self.tensor(tensor, origin)
        for name in function.output:
            if name and name not in defined:
                self.add(f"the function's output {quote(name)} is not defined", origin)

    # Graphs

    def bodies(self, body: _Body) -> None:
        """Check a list of nodes and all subgraphs in it."""
        pending = [body]
        while pending:
            body = pending.pop()
            inner = []
            for index, node in enumerate(body.nodes):
                origin = body.origin(index, node)
                self.node(body, node, origin)
                label = origin.node or f"#{index}"
                graphs = [(graph, f"{label}/{name}/") for name, graph in subgraphs(node)]
                if graphs and len(body.scopes) > MAX_NESTING:
                    self.add(too_deep().reason, origin, "limit")
                else:
                    inner += graphs
            self.cycles(body)
            pending += [self.graph_body(graph, label, body) for graph, label in reversed(inner)]

    def graph_body(self, graph: GraphProto, label: str, around: _Body) -> _Body:
        """A graph's nodes with the names that they see, after checks of how names are defined."""
        where = f" of the subgraph {quote(label.rstrip('/'))}" if label else ""
        defined: set[str] = set()
        self.unique((value.name for value in graph.input), f"input{where}", defined)
        values = [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]
        initialized: set[str] = set()
        self.unique((tensor.name for tensor in values), f"initializer{where}", initialized)
        defined |= initialized
        body = replace(around, nodes=graph.node, scopes=(defined, *around.scopes), label=label)
        self.define_outputs(body, defined)
        for tensor in [*values, *(sparse.indices for sparse in graph.sparse_initializer)]:
            self.tensor(tensor, Origin())
        for value in graph.output:
            if not value.name:
                self.add(f"an output{where} has no name")
            elif not any(value.name in scope for scope in body.scopes):
                self.add(f"the output {quote(value.name)}{where} is not defined")
        return body

    def unique(self, names: Iterable[str], what: str, seen: set[str]) -> None:
        """Add `names` to `seen`, reporting those that are empty or there already."""
        for name in names:
            if not name:
                self.add(f"an {what} has no name")
            elif name in seen:
                self.add(f"the {what} {quote(name)} is defined twice")
            seen.add(name)

    def define_outputs(self, body: _Body, defined: set[str]) -> None:
        for index, node in enumerate(body.nodes):
            for name in node.output:
                if name and name in defined:
                    origin = body.origin(index, node)
                    self.add(f"the value {quote(name)} is defined already", origin)
                defined.add(name)

    def cycles(self, body: _Body) -> None:
        nodes = list(body.nodes)
        for cycle in topological_order(nodes)[1]:
            values = " → ".join(
                quote(next((name for name in nodes[index].output if name), "")) for index in cycle[:4]
            )
            more = f" and {len(cycle) - 4} more" if len(cycle) > 4 else ""
            self.add(
                f"the graph has a cycle: {values}{more} feed back into this node",
                body.origin(cycle[0], nodes[cycle[0]]),
            )

    def tensor(self, tensor: onnx.TensorProto, origin: Origin) -> None:
        if self.file is not None:
            try:
                tensors.check_tensor(tensor, self.file)
            except OnnxcError as error:
                self.add(error.reason, origin, error.kind, error.remedy)

    # Nodes

    def node(self, body: _Body, node: NodeProto, origin: Origin) -> None:
        for name in node.input:
            if name and not any(name in scope for scope in body.scopes):
                self.add(f"the input {quote(name)} is not defined", origin)
        for attribute in node.attribute:
            if body.attributes is not None and attribute.ref_attr_name not in {"", *body.attributes}:
                self.add(
                    f"the attribute {quote(attribute.name)} refers to "
                    f"{quote(attribute.ref_attr_name)}, which the function does not have",
                    origin,
                )
            for tensor in attribute_tensors(attribute):
                self.tensor(tensor, origin)
        signature = self.signature(node, origin)
        in_function = body.attributes is not None
        problems = (
            schemas.attribute_problems(node, in_function)
            if signature is None
            else schemas.node_problems(node, signature, in_function)
        )
        before = len(self.found)
        for problem in problems:
            self.add(problem, origin)
        if signature is not None and len(self.found) == before and not origin.domain:
            for problem in _operator_problems(node, origin.opset or 0):
                self.add(problem, origin)

    def signature(self, node: NodeProto, origin: Origin) -> schemas.Signature | None:
        """What the node calls; None, after reporting it, if that is unknown."""
        if local.call_key(node) in self.signatures:
            return self.signatures[local.call_key(node)]
        domain, op_type, version = origin.domain, node.op_type, origin.opset
        known = schemas.version_range(domain)
        custom = self.operators.custom(domain, op_type, 1 << 30 if version is None else version)
        if custom is not None and version is None:
            self.add(f"the operator set {quote(domain)} is not imported", origin)
        elif custom is not None:
            return schemas.rule_signature(custom)
        elif not op_type:
            self.add("the node has no operator", origin)
        elif not known:
            self.unknown(node, origin)
        elif version is None and domain in onnx.defs.C.schema_version_map():
            self.add(f"the operator set {quote(domain or 'ai.onnx')} is not imported", origin)
        elif version is None or known[0] <= version <= known[1]:
            version = known[1] if version is None else version  # others are lenient with domains of their own
            signature = schemas.signature(domain, op_type, version)
            if signature is None:
                self.unknown(node, origin, version)
            return signature
        return None

    def unknown(self, node: NodeProto, origin: Origin, version: int | None = None) -> None:
        """Reports a node that calls what nobody knows. version: of its domain; None where nobody knows it."""
        domain, op_type, overload = local.call_key(node)
        overloads = [other for *name, other in self.signatures if name == [domain, op_type]]
        if overloads:
            there = ", ".join(map(quote, overloads[:6]))
            self.add(f"the function has no overload {quote(overload)}; there is {there}", origin)
        elif version is None:
            reason = f"operators of the domain {quote(domain)} are not supported"
            self.add(reason, origin, "unsupported", WITHOUT)
        elif domain in onnx.defs.C.schema_version_map():
            reason, remedy = schemas.unknown_operator(domain, op_type, version)
            self.add(reason, origin, remedy=remedy)
        else:  # there may be more of them than there are rules
            self.add(f"the operator of {quote(domain)} is not supported", origin, "unsupported", WITHOUT)


def _type_problem(value: onnx.ValueInfoProto) -> str:
    """What is wrong with the declared type of an input of the main graph."""
    declared = value.type
    while True:
        kind = declared.WhichOneof("value")
        if kind in ("sequence_type", "optional_type"):
            declared = getattr(declared, kind).elem_type
        elif kind == "map_type":
            declared = declared.map_type.value_type
        elif kind in ("tensor_type", "sparse_tensor_type"):
            try:
                tensors.element_type(getattr(declared, kind).elem_type)
            except OnnxcError as error:
                return f"has an invalid type: {error.reason}"
            return ""
        else:
            return "has no type" if kind is None else f"has the unsupported type {kind}"


def _operator_problems(node: NodeProto, version: int) -> Iterator[str]:
    """Rules that schemas do not state: the parts of subgraphs and of constants."""
    graphs = dict(subgraphs(node))
    inputs, outputs = len(node.input), len(node.output)
    attributes = {attribute.name: attribute for attribute in node.attribute}
    match node.op_type:
        case "Constant":
            if len(attributes) != 1:
                yield f"it must have exactly one value, it has {len(attributes)} attributes"
        case "If":
            for name, branch in graphs.items():
                yield from _body_problems(name, branch, 0, outputs, outputs)
        case _ if any(attribute.ref_attr_name for attribute in node.attribute):
            return  # what a call tells of the body is not known here
        case "Loop":
            carried = inputs - 2
            yield from _body_problems("body", graphs["body"], inputs, outputs + 1, carried + 1)
        case "SequenceMap":
            yield from _body_problems("body", graphs["body"], inputs, outputs, outputs)
        case "Scan":
            scanned = attributes["num_scan_inputs"].i
            given = inputs - 1 if version < 9 else inputs  # first the lengths, in version 8
            if not 1 <= scanned <= given:
                yield f"num_scan_inputs is {scanned}, it must be from 1 to {given}"
            else:
                yield from _body_problems("body", graphs["body"], given, outputs, given - scanned)


def _body_problems(
    name: str, graph: GraphProto, inputs: int, outputs: int, least_outputs: int
) -> Iterator[str]:
    """A subgraph's count of inputs and outputs against what the node needs of it."""
    if len(graph.input) != inputs:
        yield f"its {name} has {len(graph.input)} inputs, the node needs {inputs}"
    if len(graph.output) != outputs:
        yield f"its {name} has {len(graph.output)} outputs, the node needs {outputs}"
    elif outputs < least_outputs:
        yield (
            f"its {name} has {outputs} outputs, the values carried from one iteration to the "
            f"next need {least_outputs}"
        )
