"""Import rules of control flow: If, Loop and Scan as regions.

What a region reads of the graph around it becomes an explicit input. Sizes that differ between branches, or
change from one iteration to the next, become fresh dimension variables that the run binds; a Loop's body is
imported again with them until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import Builder
from ...ir.dims import Dim, Dimension
from ...ir.graph import Graph, OptionalType, SequenceType, TensorType, Type, Value
from ..regions import RanksDiffer, Region, Scope
from .rules import onnx_op

_FOREVER = np.iinfo(np.int64).max


@onnx_op(since=1)
def If(b, cond, *, then_branch, else_branch):
    """A branch known to be taken is part of the graph around it."""
    importer, scope = b.context
    known = b.known(cond)
    if known is not None:
        return tuple(importer.inline(scope, then_branch if known.reshape(-1)[0] else else_branch))
    facts = _facts(cond)
    then, otherwise = (
        importer.region(scope, graph, (), fact) for graph, fact in zip((then_branch, else_branch), facts)
    )
    branches = joined(b, then, otherwise)
    if branches is None:
        raise RanksDiffer(b.reshape(cond, ()), (then_branch, else_branch), facts)
    return b.emit(ops.If(*branches.graphs, branches.types), b.reshape(cond, ()), *branches.captured)


def _facts(condition: Value) -> tuple[dict[str, Dimension], dict[str, Dimension]]:
    """What either branch knows of dimensions where the condition is one: `n == 1` makes n 1, its negation
    leaves n open but decides the same question asked again."""
    if condition.elements is None:
        return {}, {}
    (truth,) = condition.elements.flat
    negated = False
    if isinstance(truth, Dim) and isinstance(1 - truth, Dim) and len((1 - truth).terms) == 1:
        truth, negated = 1 - truth, True
    atom = _atom_of(truth)
    if atom is None:
        return {}, {}
    holds: dict[str, Dimension] = {atom.key: 1}
    if atom.kind == "eq":
        for side, other in ((atom.left, atom.right), (atom.right, atom.left)):
            name = _atom_of(side)
            if isinstance(name, dims.Symbol) and isinstance(other, int):
                holds[name.name] = other
    fails: dict[str, Dimension] = {atom.key: 0}
    return (fails, holds) if negated else (holds, fails)


def _atom_of(value: Dimension) -> dims.Symbol | dims.Apply | None:
    if (
        isinstance(value, Dim)
        and len(value.terms) == 1
        and value.terms[0][1] == 1
        and len(value.terms[0][0]) == 1
    ):
        return value.terms[0][0][0][0]
    return None


# Joining types -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Branches:
    """Two regions made alike: the same captured inputs in the same order, and common types of their
    outputs."""

    graphs: tuple[Graph, Graph]
    types: tuple[Type, ...]
    captured: tuple[Value, ...]


def joined(b: Builder, then: Region, otherwise: Region) -> Branches | None:
    """The two as branches of one If; None where the ranks of an output differ."""
    if len(then.outputs) != len(otherwise.outputs):
        raise ops.TypeMismatch(f"its branches have {len(then.outputs)} and {len(otherwise.outputs)} outputs")
    types = []
    for left, right in zip(then.outputs, otherwise.outputs):
        if (
            isinstance(left.type, TensorType)
            and isinstance(right.type, TensorType)
            and left.rank != right.rank
        ):
            return None
        types.append(common_type(b, left.type, right.type, visible(b, left.type) and visible(b, right.type)))
    outer = list(dict.fromkeys(value for r in (then, otherwise) for value, _ in r.builder.captured()))
    graphs = tuple(region_graph(r, outer) for r in (then, otherwise))
    return Branches(graphs, tuple(types), tuple(outer))


def failing(b: Builder, other: Region) -> Region:
    """A branch that fails the run, with results of the ranks and types of the other branch."""
    builder = Builder(b.session, b, b.facts)
    builder.origin = b.origin
    outputs = []
    for value in other.outputs:
        if not isinstance(value.type, TensorType):
            raise UnsupportedError("a sequence whose making depends on the rank of a value")
        nothing = expr.check(expr.const(False, "bool"), expr.const(0, value.dtype), "rank_mismatch")
        outputs += builder.emit(ops.Map(nothing, (1,) * value.rank))
    return Region(builder, outputs, [])


def region_graph(region: Region, captured: Sequence[Value], outputs: Sequence[Value] | None = None) -> Graph:
    """The region as a graph whose inputs are its own and then the captured values of the graph around it."""
    inner = dict((outer, value) for outer, value in region.builder.captured())
    inputs = [*region.builder.inputs, *(inner.get(v) or Value(v.type, v.name) for v in captured)]
    return Graph(tuple(inputs), tuple(outputs or region.outputs), tuple(region.builder.nodes))


def common_type(b: Builder, left: Type, right: Type, same_scope: bool = True) -> Type:
    """The type that covers both: sizes that may differ become fresh variables."""
    match left, right:
        case TensorType(), TensorType():
            if left.dtype != right.dtype or left.rank != right.rank:
                raise ops.TypeMismatch(f"a value is {left} in one place and {right} in another")
            return TensorType(
                left.dtype,
                tuple(
                    x if x == y and (isinstance(x, int) or _visible_dim(b, x)) else b.fresh("n")
                    for x, y in zip(left.shape, right.shape)
                ),
            )
        case SequenceType(), SequenceType():
            return SequenceType(_common_element(b, left.element, right.element))
        case OptionalType(), OptionalType():
            return OptionalType(_common_element(b, left.element, right.element))
    raise ops.TypeMismatch(f"a value is {left} in one place and {right} in another")


def _common_element(b: Builder, left: Type | None, right: Type | None) -> Type | None:
    if left is None or right is None:
        return left or right
    return left if left == right else common_type(b, left, right)


def _visible_dim(b: Builder, value: Dimension) -> bool:
    return all(s.name in _visible_names(b) for s in dims.symbols(value))


def visible(b: Builder, type_: Type) -> bool:
    """Whether all variables of a type are known outside the region."""
    return not isinstance(type_, TensorType) or all(_visible_dim(b, d) for d in type_.shape)


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


# Loops -------------------------------------------------------------------------------------------


@onnx_op(since=1)
def Loop(b, M=None, cond=None, *v_initial, body):
    importer, scope = b.context
    trips = b.constant(_FOREVER, "int64") if M is None else b.reshape(M, ())
    condition = b.constant(True) if cond is None else b.reshape(cond, ())

    def region(carried: Sequence[Type]) -> Region:
        return importer.region(scope, body, [TensorType("int64", ()), TensorType("bool", ()), *carried])

    return loop(b, trips, condition, v_initial, region)


def loop(
    b: Builder,
    trips: Value,
    condition: Value,
    initial: Sequence[Value],
    region: Callable[[Sequence[Type]], Region],
) -> tuple[Value, ...]:
    """A Loop whose body `region` imports for given types of the carried values."""
    carried = [v.type for v in initial]
    for _ in range(3 + sum(t.rank if isinstance(t, TensorType) else 2 for t in carried)):
        found = region(carried)
        if len(found.outputs) < 1 + len(initial):
            raise ops.TypeMismatch(f"its body has {len(found.outputs)} outputs, fewer than what it carries")
        goes_on = found.outputs[0]
        if not isinstance(goes_on.type, TensorType) or goes_on.dtype != "bool":
            raise ops.TypeMismatch(f"the condition that its body gives is {goes_on.type}")
        found.outputs[0] = found.builder.reshape(goes_on, ())
        after = [v.type for v in found.outputs[1 : 1 + len(initial)]]
        wider = [_widened(b, before, now, v.type) for before, now, v in zip(carried, after, initial)]
        if wider == carried:
            break
        carried = wider
    else:
        raise UnsupportedError("the types of what the loop carries change without end")
    count = _trip_count(b, trips, condition, found)
    types = [_final_type(b, c, v.type) for c, v in zip(carried, initial)]
    for value in found.outputs[1 + len(initial) :]:
        if not isinstance(value.type, TensorType):
            raise UnsupportedError("a loop that collects values other than tensors")
        inner = tuple(d if _visible_dim(b, d) else b.fresh("n") for d in value.tensor.shape)
        types.append(TensorType(value.tensor.dtype, (count, *inner)))
    outer = [value for value, _ in found.builder.captured()]
    outputs = [found.builder.capture(v) for v in found.outputs]
    graph = region_graph(found, outer, outputs)
    return b.emit(ops.Loop(graph, len(initial), tuple(types)), trips, condition, *initial, *outer)


def _widened(b: Builder, before: Type, after: Type, initial: Type) -> Type:
    """The carried type, with a fresh variable for each size that the body changes."""
    if isinstance(before, (SequenceType, OptionalType)) and type(before) is type(after):
        if before.element is None or after.element is None:
            return type(before)(before.element or after.element)
        return type(before)(_widened(b, before.element, after.element, initial))
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return common_type(b, before, after)
    if before.dtype != after.dtype:
        raise ops.TypeMismatch(f"a carried value is {before} before and {after} after an iteration")
    if before.rank != after.rank:
        raise UnsupportedError(
            f"a carried value has {before.rank} axes before and {after.rank} after an iteration"
        )
    return TensorType(
        before.dtype,
        tuple(
            x if x == y or (isinstance(x, Dim) and not _visible_dim(b, x)) else b.fresh("n")
            for x, y in zip(before.shape, after.shape)
        ),
    )


def _final_type(b: Builder, carried: Type, initial: Type) -> Type:
    if not isinstance(carried, TensorType) or carried == initial:
        return carried
    return TensorType(
        carried.dtype, tuple(x if x == y else b.fresh("n") for x, y in zip(carried.shape, initial.shape))
    )


def _trip_count(b: Builder, trips: Value, condition: Value, body: Region) -> Dimension:
    """How many iterations there are, where that is known before the loop runs."""
    goes_on = body.outputs[0]
    always = (
        b.known(condition) is not None
        and bool(b.known(condition).reshape(-1)[0])
        and (
            goes_on is body.inputs[1]
            or (goes_on.constant is not None and bool(goes_on.constant.array.reshape(-1)[0]))
        )
    )
    if always and trips.elements is not None:
        (count,) = trips.elements.flat
        if count != _FOREVER:
            return dims.maximum(count, 0)
    return b.fresh("trips")


@onnx_op(since=9)
def Scan(
    b,
    *initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes=None,
    scan_input_directions=None,
    scan_output_axes=None,
    scan_output_directions=None,
):
    """A Loop over the slices of the scanned inputs."""
    importer, scope = b.context
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    if num_scan_inputs < 1 or states < 0:
        raise ops.TypeMismatch(
            f"{num_scan_inputs} scanned inputs of {len(initial_state_and_scan_inputs)} inputs"
        )
    initial, scanned = (initial_state_and_scan_inputs[:states], initial_state_and_scan_inputs[states:])
    count = len(body.output) - states
    axes = _for_each(scan_input_axes, num_scan_inputs, "scan_input_axes")
    axes = [b.axis(a, v.rank) for a, v in zip(axes, scanned)]
    backwards = _directions(scan_input_directions, num_scan_inputs, "scan_input_directions")
    out_axes = _for_each(scan_output_axes, count, "scan_output_axes")
    out_backwards = _directions(scan_output_directions, count, "scan_output_directions")
    length = scanned[0].shape[axes[0]]
    scanned = [  # where the sizes are not known to agree, the run compares the numbers of elements
        b.reshape(value, (*value.shape[:axis], length, *value.shape[axis + 1 :]))
        for value, axis in zip(scanned, axes)
    ]

    def region(carried: Sequence[Type]) -> Region:
        step = Builder(b.session, b, b.facts)
        step.origin = b.origin
        iteration = step.input(TensorType("int64", ()), "iteration")
        condition = step.input(TensorType("bool", ()), "condition")
        states_in = [step.input(t) for t in carried]
        slices = []
        for value, axis, backward in zip(scanned, axes, backwards):
            at = step.map(iteration, lambda i: expr.size(length) - 1 - i) if backward else iteration
            slices.append(step.emit(ops.Gather("axis", axis), value, at)[0])
        inner = Scope(step, scope, {}, scope.depth + 1)
        results = importer.body(inner, body, [*states_in, *slices])
        return Region(step, [condition, *results], [iteration, condition, *states_in])

    trips = b.elements(np.array(length, object))
    outputs = list(loop(b, trips, b.constant(True), initial, region))
    for k, (axis, backward) in enumerate(zip(out_axes, out_backwards), states):
        value = outputs[k]
        if backward:
            value = b.slice(
                value, (length - 1, *(0,) * (value.rank - 1)), value.shape, (-1, *(1,) * (value.rank - 1))
            )
        axis = b.axis(axis, value.rank)
        order = [*range(1, value.rank)]
        order.insert(axis, 0)
        outputs[k] = b.transpose(value, order)
    return tuple(outputs)


def _for_each(values: Sequence[int] | None, count: int, name: str) -> Sequence[int]:
    """An attribute with a number, 0 unless given, for each of `count` values."""
    if values and len(values) != count:
        raise ops.TypeMismatch(f"the attribute {name} has {len(values)} values where {count} are needed")
    return values or (0,) * count


def _directions(values: Sequence[int] | None, count: int, name: str) -> Sequence[int]:
    found = _for_each(values, count, name)
    if not set(found) <= {0, 1}:
        raise ops.TypeMismatch(f"the attribute {name} has a value that is neither 0 nor 1")
    return found
