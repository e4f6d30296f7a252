"""From a model file to a Graph of core ops.

Nodes are taken in order; each finds its rule (`onnx_ops`), which writes core ops with a `Builder`. A node
without a rule is expanded by the function body that its schema has. What is wrong is collected, node by node,
so that one run reports everything: the outputs of a refused node are unknown (None), and nodes that read them
are passed over in silence.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, helper

from ..diagnostics import Diagnostic, DiagnosticList, ModelErrors
from ..errors import LimitError, ModelError, OnnxcError, Origin, UnsupportedError, one_line, quote
from ..ir import dims as dimension
from ..ir import dtypes
from ..ir.builder import Builder, Session
from ..ir.dims import Dimension
from ..ir.graph import Graph, TensorType, Type, UnrankedType, Value
from ..ir.ops import TypeMismatch
from ..options import DEFAULTS, Options
from ..records import dataclass
from . import functions, schemas, structure, tensors
from .declared_types import DeclaredTypes, contradiction, dims_of_shapes
from .equal_sizes import equal_sizes
from .fixed_values import leading_to, with_values
from .lengths import usual_lengths
from .model_file import ModelFile, open_model
from .operator_sets import with_functions
from .operators import Operators, find_rule
from .ranks import Ranks
from .rule_builder import (
    NothingThere,
    RanksDiffer,
    Refused,
    Region,
    RuleBuilder,
    Scope,
    Site,
    Take,
    common_type,
    common_types,
    emit_if,
    failing,
)
from .rules import Rule, is_optional
from .states import facts_of_states, sizes_of_states, with_states
from .walk import all_node_lists, captured_names, initializers, node_lists, topological_order

T = TypeVar("T")

#: How many cases of ranks that only the run knows a model may have: those that depend on others multiply.
MOST_CASES = 500

#: How many nodes the bodies of loops may have whose turns are imported one by one, counted in each turn.
MOST_REPEATED = 10_000


class Importer:
    """One import: the model, what was found wrong with it, and the builder session."""

    def __init__(
        self,
        model: ModelFile,
        inlined: functions.Inlined,
        options: Options,
        operators: Operators,
        facts: Mapping[str, Dimension] | None = None,
        lengths: Mapping[str, int] | None = None,
        equal: Mapping[str, Dimension] | None = None,
    ):
        self.model, self.inlined, self.options, self.operators = model, inlined, options, operators
        self.facts = facts  # what is known of sizes
        self.file = model.name
        self.session = Session()
        inputs = inlined.graph.input
        self.declared = DeclaredTypes(inputs, options, self.session.variables, lengths or {}, equal or {})
        self.diagnostics = DiagnosticList()
        self.ranks = Ranks()
        self.cases = 0  # that ranks which only the run knows were imported for
        self.repeated = 0  # nodes of loops' bodies, each turn imported by itself
        #: What gradients are taken by: what is computed of it is differentiated, so never folded here.
        self.varied = {
            name.decode()
            for _, nodes in all_node_lists(model.proto)
            for node in nodes
            if node.op_type == "Gradient"
            for attribute in node.attribute
            if attribute.name == "xs"
            for name in attribute.strings
        }

    # Graphs ------------------------------------------------------------------------------------

    def run(self) -> Graph:
        """The whole model."""
        proto = self.inlined.graph
        builder = RuleBuilder(self.session, facts=self.facts)
        scope = Scope(builder)
        builder.site = Site(self, scope)
        stored = initializers(proto)

        def input_of(information: onnx.ValueInfoProto) -> Value:
            return builder.input(self.declared.of_input(information), information.name)

        for information in proto.input:
            if information.name in stored and not self._may_be_given(information.name):
                continue
            origin = Origin(self.file, f"input {information.name}")
            scope.values[information.name] = self._guarded(origin, partial(input_of, information))
        for problem in self.declared.not_there():
            self.diagnostics.add(problem, Origin(self.file))
        outputs: list[Value] = []
        try:
            outputs = self._body(scope, proto, [o.name for o in proto.output])
        except NothingThere as error:
            self.diagnostics.append(Diagnostic.of(error))
        if self.diagnostics:
            raise ModelErrors(self.diagnostics, self.file)
        metadata = {p.key: p.value for p in self.model.proto.metadata_props}
        named = [self._named(value, o.name) for value, o in zip(outputs, proto.output)]
        return builder.finish(named, proto.name, metadata)

    def _may_be_given(self, name: str) -> bool:
        """Whether the run gives an initializer that is also an input."""
        asked = self.options.overridable
        return asked if isinstance(asked, bool) else name in asked

    def _named(self, value: Value, name: str) -> Value:
        if not value.name:
            value.name = name
        return value

    def _body(self, scope: Scope, proto: onnx.GraphProto, output_names: Sequence[str]) -> list[Value]:
        """Imports a graph's initializers and nodes into scope; its outputs."""
        arrays = {t.name: partial(tensors.tensor_array, t, self.model) for t in proto.initializer}
        sparse = proto.sparse_initializer
        arrays |= {s.values.name: partial(tensors.sparse_array, s, self.model) for s in sparse}
        for name, array in arrays.items():
            if name not in scope.values:  # else the run gives it
                scope.values[name] = self._initializer(scope.builder, name, array)
        outputs = self.nodes(scope, _sorted(proto.node), output_names)
        self._check_declared(scope, proto)
        return outputs

    def _check_declared(self, scope: Scope, proto: onnx.GraphProto) -> None:
        """Refuses what is declared of a value, of an initializer also by the input of its name, where it
        contradicts what the value is."""
        stored = initializers(proto)
        for information in (*proto.input, *proto.value_info, *proto.output):
            value = scope.values.get(information.name)
            if value is not None:
                sizes = information.name in stored and value.constant is not None
                problem = contradiction(information.type, value.type, sizes)
                if problem:
                    self.diagnostics.add(problem, Origin(self.file, information.name))

    def _initializer(self, builder: Builder, name: str, array: Callable[[], np.ndarray]) -> Value | None:
        origin = Origin(self.file, f"initializer {name}")

        def stored() -> Value:
            value = builder.constant(array(), name=name)
            return builder.as_data(value) if name in self.varied else value

        return self._guarded(origin, stored)

    def nodes(
        self, scope: Scope, nodes: Sequence[onnx.NodeProto], output_names: Sequence[str]
    ) -> list[Value]:
        """Imports nodes, sorted so that each comes after what it reads; the values of the names asked for.
        What follows from a rank that only the run knows comes last, each such part under an If of its own."""
        parts: list[_Part] = []
        around = scope.builder.origin  # the node whose graph this is, which may have more to emit
        for node in nodes:
            joined = [part for part in parts if part.leads_to(node)]
            if not joined:
                try:
                    self.node(scope, node)
                    continue
                except RanksDiffer as differ:
                    joined = [*(parts if scope.inlined else []), _Part(differ, [], set())]
            apart = [part for part in parts if all(part is not other for other in joined)]
            parts = [*apart, _Part.joined(joined, node)]
        for part in parts:
            wanted = [name for name in output_names if scope.inlined or name in part.made]
            if wanted:
                first, *rest = part.nodes
                values = self._variants(scope, part.differ, first, rest, wanted)
                scope.values.update(zip(wanted, values))
        scope.builder.origin = around
        return [self._output(scope, name) for name in output_names]

    def _output(self, scope: Scope, name: str) -> Value:
        value = scope.lookup(name)
        if value is None:
            if not self.diagnostics:
                raise ModelError(f"the output '{name}' is computed by nothing", origin=Origin(self.file))
            raise Refused
        return scope.builder.capture(value)

    def region(
        self,
        scope: Scope,
        proto: onnx.GraphProto,
        inputs: Sequence[Type],
        facts: Mapping[str, Dimension] | None = None,
    ) -> Region:
        """A branch or body as a graph of its own. inputs: the types of its inputs."""
        inner = scope.deeper(scope.builder.inner(facts))
        given = [inner.builder.input(type_) for type_ in inputs]
        return Region(inner.builder, self.body(inner, proto, given), given)

    def body(self, scope: Scope, proto: onnx.GraphProto, inputs: Sequence[Value]) -> list[Value]:
        """A branch or body imported into a scope of its own, its inputs being the values given; its
        outputs."""
        if len(proto.input) != len(inputs):
            raise TypeMismatch(f"its graph takes {len(proto.input)} inputs where {len(inputs)} are given")
        for information, value in zip(proto.input, inputs):
            value.name = value.name or information.name
            scope.values[information.name] = value
        return self._body(scope, proto, [o.name for o in proto.output])

    def inline(self, scope: Scope, proto: onnx.GraphProto) -> list[Value]:
        """A graph without inputs, imported as part of the scope around it: a branch that is known to be
        taken."""
        inner = Scope(scope.builder, scope, depth=scope.depth + 1, inlined=True)
        return self._body(inner, proto, [o.name for o in proto.output])

    def may_repeat(self, proto: onnx.GraphProto, turns: int) -> bool:
        """Whether so many turns of a body may be imported one by one, which then counts as done: bodies in
        bodies multiply."""
        nodes = turns * sum(len(nodes) for _, nodes in node_lists(proto))
        if self.repeated + nodes > MOST_REPEATED:
            return False
        self.repeated += nodes
        return True

    def attempt(self, import_: Callable[[], T]) -> T | None:
        """What an import gives that is made only to find something out; None where it is refused."""
        cases, wrong = self.cases, len(self.diagnostics)
        try:
            found = import_()
            return found if len(self.diagnostics) == wrong else None
        except (Refused, OnnxcError, TypeMismatch):
            return None
        finally:
            self.cases = cases
            del self.diagnostics[wrong:]

    def _variants(
        self,
        scope: Scope,
        differ: RanksDiffer,
        node: onnx.NodeProto,
        rest: Sequence[onnx.NodeProto],
        output_names: Sequence[str],
    ) -> list[Value]:
        """The nodes that follow once in each branch of an If, under it. Where they cannot follow one of the
        branches, taking it is an error of the run. Where even the outputs' ranks differ and the graph is
        part of the one around it, what follows there is imported in each branch too."""
        self._enter(scope, node)  # nodes that come later were imported before
        self.cases += 1
        if self.cases > MOST_CASES:
            raise self._too_many_cases(scope.builder)

        def followed(take: Take | None) -> Take:
            def outputs(inner: Scope) -> list[Value]:
                after = Scope(inner.builder, scope, depth=inner.depth, inlined=scope.inlined)
                if take is None:
                    return self.nodes(after, [node, *rest], output_names)
                try:
                    after.values.update(zip(node.output, take(inner)))
                except RanksDiffer as again:
                    return self._variants(after, again, node, rest, output_names)
                return self.nodes(after, rest, output_names)

            return outputs

        takes = [followed(take) for take in differ.takes]
        regions: list[Region | None] = []
        refused: list[Diagnostic] = []
        says = ""
        nothing: NothingThere | None = None
        for take, facts in zip(takes, differ.facts):
            before, inner = len(self.diagnostics), scope.deeper(scope.builder.inner(facts))
            try:
                region = Region(inner.builder, take(inner), [])
            except Refused:
                region = None
            except NothingThere as error:
                region, nothing = None, error
            except RanksDiffer:
                raise RanksDiffer(differ.condition, differ.facts, (takes[0], takes[1])) from None
            found = self.diagnostics[before:]
            refused += found
            del self.diagnostics[before:]
            if len(found) == 1:  # of several, only the run tells which it is
                says = (
                    f"a value has rank or size {{}}, which is not allowed here: {one_line(found[0].reason)}"
                )
            regions.append(None if found else region)
        then, otherwise = regions
        known = then or otherwise
        if known is None:
            if nothing is not None:
                raise nothing
            self.diagnostics.extend(refused)
            raise Refused
        then = then or failing(scope.builder, known, differ.condition, says=says)
        otherwise = otherwise or failing(scope.builder, known, differ.condition, says=says)
        types = common_types(scope.builder, then, otherwise)
        if types is None:
            if scope.inlined:
                raise RanksDiffer(differ.condition, differ.facts, (takes[0], takes[1]))
            pairs = zip(then.outputs, otherwise.outputs)
            types = [common_type(scope.builder, x.type, y.type) for x, y in pairs]
        return list(emit_if(scope.builder, differ.condition, then, otherwise, types))

    def _too_many_cases(self, b: Builder) -> LimitError:
        while b.parent is not None:
            b = b.parent
        unknown = [quote(v.name) for v in b.inputs if isinstance(v.type, UnrankedType)]
        shapes = f"the shapes of {', '.join(unknown)}" if unknown else "shapes of inputs"
        problem = f"more than {MOST_CASES} cases follow from ranks that only the run knows"
        return LimitError(f"{problem}; compile with {shapes} (--shape)", origin=Origin(self.file))

    # Nodes -------------------------------------------------------------------------------------

    def _origin(self, scope: Scope, node: onnx.NodeProto) -> Origin:
        name = node.name or (node.output[0] if node.output else "")
        return Origin(self.file, name, node.op_type, node.domain, self._opset(scope, node))

    def _enter(self, scope: Scope, node: onnx.NodeProto) -> Origin:
        """The node's place, of which is what the builder appends from here on."""
        origin = self._origin(scope, node)
        scope.builder.origin = f"{origin.node} ({node.op_type})"
        return origin

    def _opset(self, scope: Scope, node: onnx.NodeProto) -> int | None:
        """The version of the node's operator set, where the node stands."""
        opsets = scope.function_opsets()
        return (
            self.inlined.opset(node) if opsets is None else opsets.get(functions.normal_domain(node.domain))
        )

    def _guarded(self, origin: Origin, action: Callable[[], T]) -> T | None:
        """The action's result, or None with a diagnostic."""
        try:
            return action()
        except (RanksDiffer, Refused):
            raise
        except NothingThere as error:
            raise error.at(origin) from None
        except ModelErrors as errors:
            self.diagnostics.extend(errors.diagnostics)
        except OnnxcError as error:
            self.diagnostics.append(Diagnostic.of(error.at(origin)))
        except (TypeMismatch, TypeError, ValueError, IndexError, OverflowError, KeyError) as error:
            self.diagnostics.append(
                Diagnostic.of(ModelError(str(error) or type(error).__name__, origin=origin))
            )
        return None

    def node(self, scope: Scope, node: onnx.NodeProto) -> None:
        """Imports one node and names its outputs in scope."""
        operands: list[Value | None] = []
        for name in node.input:
            value = scope.lookup(name) if name else None
            if name and value is None:
                for output in node.output:  # what it reads was refused
                    scope.values[output] = None
                return
            if value is not None and scope.builder.facts and isinstance(value.type, TensorType):
                value = scope.builder.capture(value)  # as it is where these hold
            operands.append(value)
        origin = self._enter(scope, node)
        try:
            results = self._guarded(origin, lambda: self._outputs(scope, node, operands))
        except Refused:
            results = None
        for index, output in enumerate(node.output):
            if output:
                value = results[index] if results is not None and index < len(results) else None
                if value is not None and value.constant is not None and output in self.varied:
                    value = scope.builder.as_data(value)
                scope.values[output] = value

    def _outputs(
        self, scope: Scope, node: onnx.NodeProto, operands: list[Value | None]
    ) -> tuple[Value | None, ...]:
        domain, builder = functions.normal_domain(node.domain), scope.builder
        opset = self._opset(scope, node) or 1
        rule = self.operators.custom(domain, node.op_type, opset)
        signature = schemas.rule_signature(rule) if rule else schemas.signature(domain, node.op_type, opset)
        problem = signature and schemas.type_problem(
            signature, [None if v is None else v.type for v in operands]
        )
        if problem:
            raise ModelError(problem)
        rule = rule or find_rule(domain, node.op_type, opset)
        if rule is None:
            return self._expanded(scope, node, opset, operands)
        operands = self.ranks.operands(builder, rule.ranks_of(len(operands)), operands)
        while operands and operands[-1] is None:
            operands.pop()
        attributes = {a.name: self._attribute(a) for a in node.attribute if not a.name.startswith("__")}
        arguments = _arguments(rule, builder, operands, attributes)
        around, builder.site = builder.site, Site(self, scope, tuple(bool(name) for name in node.output))
        try:
            results = rule.function(*arguments.args, **arguments.kwargs)
        finally:
            builder.site = around
        results = results if isinstance(results, (tuple, list)) else (results,)
        for index, name in enumerate(node.output):
            if name and (index >= len(results) or results[index] is None):
                raise UnsupportedError(f"its output {index} ('{name}') is not available")
        return tuple(results)

    def _expanded(
        self, scope: Scope, node: onnx.NodeProto, opset: int, operands: Sequence[Value | None]
    ) -> tuple[Value | None, ...]:
        """A node by the function body of its schema."""
        types = [_type_proto(v) for v in operands]
        body = functions.schema_function_body(node, opset, types, self.inlined.names)
        if body is None:
            where = f"{node.domain or 'ai.onnx'} {opset}"
            raise UnsupportedError(f"operator {node.op_type} of {where} is not supported yet")
        inner = Scope(scope.builder, scope, depth=scope.depth + 1, opsets=body.opsets, inlined=True)
        found = dict(
            zip(filter(None, node.output), self.nodes(inner, body.nodes, [n for n in node.output if n]))
        )
        return tuple(found.get(name) for name in node.output)

    def _attribute(self, attribute: AttributeProto) -> Any:
        match attribute.type:
            case AttributeProto.STRING:
                return attribute.s.decode("utf-8", "surrogateescape")
            case AttributeProto.STRINGS:
                return tuple(s.decode("utf-8", "surrogateescape") for s in attribute.strings)
            case AttributeProto.INTS | AttributeProto.FLOATS:
                return tuple(helper.get_attribute_value(attribute))
            case AttributeProto.TENSOR:
                return tensors.tensor_array(attribute.t, self.model)
            case AttributeProto.SPARSE_TENSOR:
                return tensors.sparse_array(attribute.sparse_tensor, self.model)
            case AttributeProto.TYPE_PROTO:
                return self.declared.of(attribute.tp, attribute.name)
        return helper.get_attribute_value(attribute)


@dataclass
class _Part:
    """A node whose result's rank only the run knows, and the nodes that follow from it. Those that share a
    node are one part."""

    differ: RanksDiffer
    nodes: list[onnx.NodeProto]
    made: set[str]

    def leads_to(self, node: onnx.NodeProto) -> bool:
        return not self.made.isdisjoint((*node.input, *captured_names(node)))

    @staticmethod
    def joined(parts: Sequence[_Part], node: onnx.NodeProto) -> _Part:
        nodes = [n for part in parts for n in part.nodes] + [node]
        return _Part(parts[0].differ, nodes, {name for n in nodes for name in n.output if name})


def _sorted(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    order, _ = topological_order(nodes)
    return [nodes[k] for k in order]


def _arguments(
    rule: Rule, builder: object, operands: Sequence[Value | None], attributes: Mapping[str, object]
) -> inspect.BoundArguments:
    """Builder, operands and attributes bound to the rule's parameters, or TypeMismatch. Float attributes are
    float32, those left out too."""
    try:
        bound = rule.signature.bind(builder, *operands, **attributes)
    except TypeError as error:
        raise TypeMismatch(str(error)) from None
    for name, parameter in list(rule.signature.parameters.items())[1:]:
        required = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and not is_optional(parameter)
        if required and bound.arguments.get(name) is None:
            raise TypeMismatch(f"its input '{name}' is missing")
        if name not in bound.arguments and isinstance(parameter.default, float):
            bound.arguments[name] = float(np.float32(parameter.default))
    return bound


def _type_proto(value: Value | None) -> onnx.TypeProto | None:
    """A value's type for the schema's function builder; unknown dimensions stay open."""
    if value is None or not isinstance(value.type, TensorType):
        return None
    code = dtypes.NUMBERS[value.tensor.dtype]
    return helper.make_tensor_type_proto(
        code, [d if isinstance(d, int) else None for d in value.tensor.shape]
    )


@dataclass(frozen=True)
class Imported:
    """A model's graph, and what its dimension variables are called in the model (empty where it gives no
    name). `settled`: names that stand for one number in every run → that, and the node that needs it."""

    graph: Graph
    dim_names: Mapping[str, str]
    model: ModelFile
    settled: Mapping[str, tuple[int, str]]


def import_model(source: Any, options: Options = DEFAULTS, operators: Operators | None = None) -> Imported:
    """Reads a model (path, bytes, ModelProto) into core ops. operators: those given beside the model. What is
    wrong with it is raised as ModelErrors, all at once."""
    known = operators or Operators()
    model = source if isinstance(source, ModelFile) else open_model(source)
    model = with_functions(model, known.sets)
    model = with_values(model, options.values, lambda part, names: _known_values(part, names, options, known))
    found = structure.check_structure(model, known)
    if found:
        raise ModelErrors(found, model.name)
    inlined = functions.inline_functions(model.proto)
    options = options.with_(dims={**dims_of_shapes(model.proto.graph.input, options.shapes), **options.dims})
    names = [o.name for o in inlined.graph.output]
    importer = Importer(model, inlined, options, known)
    equal: dict[str, Dimension] = {}
    needed: dict[str, str] = {}  # variable → the node that needs it to be a number
    try:
        graph = importer.run()
        while more := equal_sizes(graph, importer.declared.told()):
            taken = {name: one.size for name, one in more.items()}
            equal = {name: taken.get(str(one), one) for name, one in equal.items()} | taken
            needed |= {name: one.node for name, one in more.items()}
            importer = Importer(model, inlined, options, known, equal=equal)
            graph = importer.run()
        sizes = sizes_of_states(graph, names, options.states)
        pinned = {name: sizes[str(v)] for name, v in importer.declared.original.items() if str(v) in sizes}
        facts = facts_of_states(graph, names, options.states)
        lengths = usual_lengths(graph)
        if pinned or facts or lengths:
            fixed = options.with_(dims={**options.dims, **pinned})
            equal = {name: _usually(one, lengths) for name, one in equal.items()}
            importer = Importer(model, inlined, fixed, known, facts, lengths, equal)
            graph = importer.run()
    except Refused:
        raise ModelErrors(importer.diagnostics, model.name) from None
    declared = importer.declared
    settled = {called: (size, needed.get(name, "")) for called, (name, size) in declared.settled.items()}
    return Imported(with_states(graph, names, options.states), declared.dim_names, model, settled)


def _usually(variable: Dimension, lengths: Mapping[str, int]) -> Dimension:
    """A variable that is typically as long as is known of it; a number is that."""
    length = lengths.get(str(variable))
    return variable if length is None else dimension.symbol(str(variable), typical=length)


def _known_values(
    model: ModelFile, names: Sequence[str], options: Options, operators: Operators
) -> dict[str, np.ndarray]:
    """Those of the model's values of these names that are known before a run."""
    part = replace(model, proto=leading_to(model.proto, names))
    try:
        outputs = import_model(part, options.with_(values={}, states={}), operators).graph.outputs
    except OnnxcError:  # what is wrong is found in the whole model, too
        return {}
    return {name: v.constant.array for name, v in zip(names, outputs) if v.constant is not None}
