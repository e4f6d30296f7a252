"""Import rules of control flow: If, Loop and Scan as regions.

What a region reads of the graph around it becomes an explicit input. Sizes that differ between branches, or
change from one iteration to the next, become fresh dimension variables that the run binds; a Loop's body is
imported again with them until nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from onnx import GraphProto

from ...errors import UnsupportedError
from ...ir import dims, expr, ops
from ...ir.builder import RANK_LIMIT, Builder
from ...ir.dims import Dim, Dimension
from ...ir.graph import OptionalType, SequenceType, TensorType, Type, UnrankedType, Value
from ..rule_builder import (
    NothingThere,
    RanksDiffer,
    Region,
    RuleBuilder,
    as_type,
    common_type,
    common_types,
    emit_if,
    facts_of,
    failing,
    holds,
    is_visible,
    only_element,
)
from ..rules import ANY_RANKS, onnx_op
from .common import require, with_size, zeros

_FOREVER = np.iinfo(np.int64).max


@onnx_op(since=1, ranks=ANY_RANKS)
def If(b, cond, *, then_branch, else_branch):
    """A branch known to be taken is part of the graph around it. One that takes an element out of what has
    none fails the run."""
    known = b.known(cond)
    if known is not None:
        return tuple(b.site.inline(then_branch if known.reshape(-1)[0] else else_branch))
    facts = facts_of(cond)
    then, otherwise = (_branch(b, *each) for each in zip((then_branch, else_branch), facts))
    known = then or otherwise
    if known is None:
        raise NothingThere("each branch takes an element out of what has none")
    then = then or failing(b, known, cond, "index_out_of_range")
    otherwise = otherwise or failing(b, known, cond, "index_out_of_range")
    types = common_types(b, then, otherwise)
    if types is None:
        site = b.site
        takes = [
            lambda scope, graph=graph: site.body(scope.builder, graph, ())
            for graph in (then_branch, else_branch)
        ]
        raise RanksDiffer(only_element(b, cond), facts, (takes[0], takes[1]))
    return emit_if(b, only_element(b, cond), then, otherwise, types)


def _branch(b: RuleBuilder, graph: GraphProto, facts: Mapping[str, Dimension]) -> Region | None:
    try:
        return b.site.region(graph, (), facts)
    except NothingThere:
        return None


# Loops -------------------------------------------------------------------------------------------


@onnx_op(since=1, ranks=ANY_RANKS)
def Loop(b, M=None, cond=None, *v_initial, body):
    """Where each of few turns gives what is carried another rank, they are imported one by one: all ranks are
    numbers then."""
    trips = b.constant(_FOREVER, "int64") if M is None else only_element(b, M)
    condition = b.constant(True) if cond is None else only_element(b, cond)

    def turn(step: RuleBuilder, given: Sequence[Value]) -> list[Value]:
        counts = [
            step.reshape(value, (1,)) if len(declared.type.tensor_type.shape.dim) == 1 else value
            for value, declared in zip(given[:2], body.input)  # either may be a vector of one element
        ]
        return _step(b, step, body, [*counts, *given[2:]], 1 + len(v_initial))

    def region(carried: Sequence[Type]) -> Region:
        step = b.inner()
        given = [step.input(t) for t in (TensorType("int64", ()), TensorType("bool", ()), *carried)]
        return Region(step, turn(step, given), given)

    turns = b.known(trips)
    if turns is not None and 0 < turns <= RANK_LIMIT and b.known(condition):
        tried = b.site.may_repeat(body, 1) and _changes_ranks(b, v_initial, turn)
        if tried and b.site.may_repeat(body, int(turns)):
            results = _one_by_one(b, int(turns), v_initial, turn)
            if results is not None:
                return results

    collected = [port.type.tensor_type.shape.dim for port in body.output[1 + len(v_initial) :]]
    declared = [[d.dim_value for d in shape] for shape in collected]
    return loop(b, trips, condition, v_initial, region, declared)


#: What imports a turn of a loop for values of its iteration, its condition and what it carries; the outputs.
Turn = Callable[[RuleBuilder, Sequence[Value]], list[Value]]


def _changes_ranks(b: RuleBuilder, initial: Sequence[Value], turn: Turn) -> bool:
    """Whether the first turn of a loop gives something that is carried another rank."""

    def first() -> list[Value]:
        step = b.inner()
        return turn(step, [step.constant(0, "int64"), step.constant(True), *map(step.capture, initial)])

    after = (b.site.attempt(first) or [])[1:]
    types = [(before.type, now.type) for before, now in zip(initial, after)]
    return any(isinstance(x, TensorType) and isinstance(y, TensorType) and x.rank != y.rank for x, y in types)


def _one_by_one(b: RuleBuilder, turns: int, initial: Sequence[Value], turn: Turn) -> tuple[Value, ...] | None:
    """A Loop as its turns, one after the other; None where only the run knows whether one is the last."""
    carried, collected = list(initial), []
    for k in range(turns):
        goes_on, *outputs = turn(b, [b.constant(k, "int64"), b.constant(True), *carried])
        for before, after in zip(carried, outputs):
            common_type(b, before.type, after.type)  # there is none of what differs in more than its shape
        carried = outputs[: len(initial)]
        collected.append(outputs[len(initial) :])
        known = b.known(_condition(b, goes_on))
        if known is None:
            return None
        if not known:
            break
    return (*carried, *(_stacked(b, values) for values in zip(*collected)))


def _stacked(b: Builder, values: Sequence[Value]) -> Value:
    """Tensors of one shape along a new first axis."""
    for value in values:
        if value.rank != values[0].rank:
            raise ops.TypeMismatch(f"it collects {values[0].type} in one turn and {value.type} in another")
    return b.concat([b.reshape(v, (1, *values[0].shape)) for v in values], 0)


def loop(
    b: Builder,
    trips: Value,
    condition: Value,
    initial: Sequence[Value],
    region: Callable[[Sequence[Type]], Region],
    declared: Sequence[Sequence[int]] = (),
) -> tuple[Value, ...]:
    """A Loop whose body `region` imports for given types of the carried values. declared: the sizes of each
    collected value, which it has where no iteration tells them (else they are 0)."""
    carried = [v.type for v in initial]
    for _ in range(3 + sum(t.rank if isinstance(t, TensorType) else 2 for t in carried)):
        try:
            found = region(carried)
        except NothingThere:
            found = _never(b, carried)
        if len(found.outputs) < 1 + len(initial):
            raise ops.TypeMismatch(f"its body has {len(found.outputs)} outputs, fewer than what it carries")
        found.outputs[0] = _condition(found.builder, found.outputs[0])
        after = [v.type for v in found.outputs[1 : 1 + len(initial)]]
        wider = [_widened(b, before, now, v.type) for before, now, v in zip(carried, after, initial)]
        if wider == carried:
            break
        carried = wider
    else:
        raise UnsupportedError("the types of what the loop carries change without end")
    initial = [as_type(b, value, type_) for value, type_ in zip(initial, carried)]
    for k, type_ in enumerate(carried, 1):
        found.outputs[k] = as_type(found.builder, found.outputs[k], type_)
    count = _trip_count(b, trips, condition, found)
    types = [_final_type(b, c, v.type) for c, v in zip(carried, initial)]
    for value in found.outputs[1 + len(initial) :]:
        if not isinstance(value.type, TensorType):
            raise UnsupportedError("a loop that collects values other than tensors")
        inner = tuple(d if is_visible(b, d) else b.fresh("n") for d in value.tensor.shape)
        types.append(TensorType(value.tensor.dtype, (count, *inner)))
    found.outputs = [found.builder.capture(v) for v in found.outputs]
    outer = [value for value, _ in found.builder.captured()]
    op = ops.Loop(found.graph(outer), len(initial), tuple(types))
    results = list(b.emit(op, trips, condition, *initial, *outer))
    for k, sizes in enumerate(declared, len(initial)):
        shape, told = results[k].shape[1:], found.outputs[1 + k].tensor.shape
        if len(sizes) == len(shape):
            none = dims.compare("eq", count, 0)
            inner = tuple(
                d if is_visible(b, own) else d + none * size for d, own, size in zip(shape, told, sizes)
            )
            results[k] = b.reshape(results[k], (count, *inner))
    return tuple(results)


def _condition(b: Builder, goes_on: Value) -> Value:
    """The condition that a body gives as a value without axes."""
    if not isinstance(goes_on.type, (TensorType, UnrankedType)) or goes_on.type.dtype != "bool":
        raise ops.TypeMismatch(f"the condition that its body gives is {goes_on.type}")
    return only_element(b, goes_on)


def _step(
    b: RuleBuilder, step: RuleBuilder, body: GraphProto, given: Sequence[Value], kept: int
) -> list[Value]:
    """The outputs of a body, whose first ones are kept for the next iteration and the others collected."""
    outputs = b.site.body(step, body, given)
    return [*outputs[:kept], *(_collected(b, step, value) for value in outputs[kept:])]


def _collected(b: RuleBuilder, step: RuleBuilder, value: Value) -> Value:
    """What is collected, of the rank that it has in the case at hand; RanksDiffer where that follows from
    values of the graph around and several are left."""
    if not isinstance(value.type, UnrankedType):
        return value
    around = b.site.scope.builder
    home, value = step.home(value)
    if home is not step:
        return step.capture(b.site.ranked(around, value))
    node = value.producer
    if node is not None and isinstance(node.op, ops.If) and node.inputs[0].elements is not None:
        (truth,) = node.inputs[0].elements.flat
        if is_visible(around, truth):
            holds(around, truth)
    raise UnsupportedError("a loop that collects tensors of a rank that only its iterations tell")


def _never(b: Builder, carried: Sequence[Type]) -> Region:
    """A body that fails the run: the loop must have no iteration."""
    step = b.inner()
    given = [step.input(t) for t in (TensorType("int64", ()), TensorType("bool", ()), *carried)]
    place = expr.check(expr.const(False, "bool"), expr.const(0, "int64"), "index_out_of_range")
    goes_on = step.emit(ops.Map(place.equals(0), ()))
    return Region(step, [*goes_on, *given[2:]], given)


def _widened(b: Builder, before: Type, after: Type, initial: Type) -> Type:
    """The carried type, with a fresh variable for each size that the body changes."""
    if isinstance(before, (SequenceType, OptionalType)) and type(before) is type(after):
        if before.element is None or after.element is None:
            return type(before)(before.element or after.element)
        return type(before)(_widened(b, before.element, after.element, initial))
    if not isinstance(before, TensorType) or not isinstance(after, TensorType) or before.rank != after.rank:
        return common_type(b, before, after)
    if before.dtype != after.dtype:
        raise ops.TypeMismatch(f"a carried value is {before} before and {after} after an iteration")
    return TensorType(
        before.dtype,
        tuple(
            x if x == y or (isinstance(x, Dim) and not is_visible(b, x)) else b.fresh("n")
            for x, y in zip(before.shape, after.shape)
        ),
    )


def _final_type(b: Builder, carried: Type, initial: Type) -> Type:
    if not isinstance(carried, TensorType) or not isinstance(initial, TensorType) or carried == initial:
        return carried
    return TensorType(
        carried.dtype, tuple(x if x == y else b.fresh("n") for x, y in zip(carried.shape, initial.shape))
    )


def _trip_count(b: Builder, trips: Value, condition: Value, body: Region) -> Dimension:
    """How many iterations there are, where that is known before the loop runs."""
    goes_on, begins = body.outputs[0], b.known(condition)
    always = (
        begins is not None
        and bool(begins.reshape(-1)[0])
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
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    if num_scan_inputs < 1 or states < 0:
        raise ops.TypeMismatch(
            f"{num_scan_inputs} scanned inputs of {len(initial_state_and_scan_inputs)} inputs"
        )
    initial, given = initial_state_and_scan_inputs[:states], initial_state_and_scan_inputs[states:]
    count = len(body.output) - states
    axes = _for_each(scan_input_axes, num_scan_inputs, "scan_input_axes")
    axes = [b.axis(a, v.rank) for a, v in zip(axes, given)]
    backwards = _directions(scan_input_directions, num_scan_inputs, "scan_input_directions")
    out_axes = _for_each(scan_output_axes, count, "scan_output_axes")
    out_backwards = _directions(scan_output_directions, count, "scan_output_directions")
    outputs = _over_slices(b, body, initial, given, axes, backwards)
    for k, (axis, backward) in enumerate(zip(out_axes, out_backwards), states):
        value = outputs[k]
        if backward:
            last = value.shape[0] - 1
            value = b.slice(
                value, (last, *(0,) * (value.rank - 1)), value.shape, (-1, *(1,) * (value.rank - 1))
            )
        axis = b.axis(axis, value.rank)
        order = [*range(1, value.rank)]
        order.insert(axis, 0)
        outputs[k] = b.transpose(value, order)
    return tuple(outputs)


@onnx_op(since=8, name="Scan")
def _scan_8(b, sequence_lens=None, *initial_state_and_scan_inputs, body, num_scan_inputs, directions=None):
    """A Scan along axis 1 for each entry of axis 0, whose sequences may have lengths of their own; what is
    collected of one is followed by zeros."""
    states = len(initial_state_and_scan_inputs) - num_scan_inputs
    if num_scan_inputs < 1 or states < 0 or min(v.rank for v in initial_state_and_scan_inputs[states:]) < 2:
        raise ops.TypeMismatch(f"{num_scan_inputs} inputs to scan along axis 1")
    if min(v.rank for v in initial_state_and_scan_inputs) < 1:
        raise ops.TypeMismatch("a state has no axis for the batch")
    backwards = _directions(directions, num_scan_inputs, "directions")
    batch, length = initial_state_and_scan_inputs[states].shape[:2]
    require(b, [(v.shape[0], batch) for v in initial_state_and_scan_inputs], "a batch")
    operands = [with_size(b, v, 0, batch) for v in initial_state_and_scan_inputs]
    if sequence_lens is not None:
        sequence_lens = b.cast(b.reshape(sequence_lens, (batch,)), "int64")

    def region(carried: Sequence[Type]) -> Region:
        step = b.inner()
        entry = step.input(TensorType("int64", ()), "entry")
        condition = step.input(TensorType("bool", ()), "condition")
        own = [step.emit(ops.Gather("axis", 0), v, entry)[0] for v in operands]
        trips = length
        if sequence_lens is not None:
            trips = step.dimension(step.emit(ops.Gather("axis", 0), sequence_lens, entry)[0], 0, "length")
            own[states:] = [step.take(v, 0, 0, trips) for v in own[states:]]
        results = _over_slices(step, body, own[:states], own[states:], (0,) * num_scan_inputs, backwards)
        for k in range(states, len(results)):
            zero, behind = zeros(step, results[k].dtype, ()), (length - trips, *(0,) * (results[k].rank - 1))
            if trips != length:
                results[k] = step.emit(ops.Pad("constant", (0,) * len(behind), behind), results[k], zero)[0]
        return Region(step, [condition, *results], [entry, condition])

    return loop(b, b.elements(np.array(batch, object)), b.constant(True), (), region)


def _over_slices(
    b: RuleBuilder,
    body: GraphProto,
    initial: Sequence[Value],
    scanned: Sequence[Value],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> list[Value]:
    """The body over the slices of tensors along their axes, from the first or the last: what is carried in
    the end, and everything collected along new first axes."""
    length = scanned[0].shape[axes[0]]
    require(b, [(value.shape[axis], length) for value, axis in zip(scanned, axes)], "a scanned input")
    scanned = [with_size(b, value, axis, length) for value, axis in zip(scanned, axes)]

    def region(carried: Sequence[Type]) -> Region:
        step = b.inner()
        iteration = step.input(TensorType("int64", ()), "iteration")
        condition = step.input(TensorType("bool", ()), "condition")
        states = [step.input(t) for t in carried]
        slices = []
        for value, axis, backward in zip(scanned, axes, backwards):
            at = step.map(iteration, lambda i: expr.size(length) - 1 - i) if backward else iteration
            slices.append(step.emit(ops.Gather("axis", axis), value, at)[0])
        results = _step(b, step, body, [*states, *slices], len(states))
        return Region(step, [condition, *results], [iteration, condition, *states])

    return list(loop(b, b.elements(np.array(length, object)), b.constant(True), initial, region))


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
