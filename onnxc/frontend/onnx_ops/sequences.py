"""Import rules of sequences and optionals: calls of the runtime, and nothing at all where the list
is known.

A sequence that the graph itself builds is known element by element (`known_list`), so that most
uses of sequences vanish while they are imported. Elements of other sequences have the sequence's
element type, with every size that is not a number a fresh variable each time one is taken out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir import ops
from ...ir.builder import Builder
from ...ir.dims import Dimension
from ...ir.graph import OptionalType, SequenceType, TensorType, Type, UnrankedType, Value
from ..rule_builder import NothingThere, Region, common_type
from ..rules import ANY_RANKS, Rank, onnx_op
from .common import element_type, insert_axes, scalar
from .control import loop

# What is known -----------------------------------------------------------------------------------


def known_list(b: Builder, sequence: Value) -> list[Value] | None:
    """The values in a sequence that this graph builds, if they are known."""
    node = sequence.producer
    if node is None or not isinstance(node.op, ops.RuntimeCall):
        return None
    match node.op.symbol:
        case "sequence_construct" | "sequence_empty":
            return list(node.inputs)
        case "sequence_insert":
            return _inserted(b, *node.inputs)
        case "sequence_erase":
            values = known_list(b, node.inputs[0])
            place = None if values is None else _place(b, values, *node.inputs[1:])
            if values is not None and place is not None:
                return values[:place] + values[place + 1 :]
    return None


def _inserted(b: Builder, sequence: Value, value: Value, *position: Value) -> list[Value] | None:
    values = known_list(b, sequence)
    if values is None:
        return None
    place = _place(b, [*values, value], *position) if position else len(values)
    if place is not None and position and int(b.required(position[0], "a position").reshape(-1)[0]) < 0:
        place -= 1  # negative ones count from the end of the old list
    return None if place is None else [*values[:place], value, *values[place:]]


def _place(b: Builder, values: Sequence[Value], *position: Value) -> int | None:
    """Where a position points in a list, by default to its end; None if that is not known, or
    outside."""
    data = b.known(position[0]) if position else np.array(-1)
    if data is None or not -len(values) <= int(data.reshape(-1)[0]) < len(values):
        return None
    return int(data.reshape(-1)[0]) % len(values)


def _taken(b: Builder, type_: Type | None) -> Type:
    """The type of a value taken out of a container."""
    if type_ is None:
        raise NothingThere("an element is taken out of a sequence or an optional that has none")
    if isinstance(type_, TensorType):
        return TensorType(type_.dtype, tuple(d if isinstance(d, int) else b.fresh("n") for d in type_.shape))
    return type_


def _element(b: Builder, types: Sequence[Type]) -> Type | None:
    """A type that covers all; None where there are none."""
    if any(t.kind != types[0].kind for t in types) or len({getattr(t, "dtype", None) for t in types}) > 1:
        raise ops.TypeMismatch(f"a sequence of {' and '.join(sorted({str(t) for t in types}))}")
    if not types:
        return None
    found = types[0]
    for other in types[1:]:
        found = common_type(b, found, other) if found != other else found
    return found


def _sequence(value: Value) -> SequenceType:
    if not isinstance(value.type, SequenceType):
        raise ops.TypeMismatch(f"{value.type} is no sequence")
    return value.type


# Sequences ---------------------------------------------------------------------------------------


@onnx_op(since=11, ranks=ANY_RANKS)
def SequenceConstruct(b, *inputs):
    return b.call("sequence_construct", inputs, [SequenceType(_element(b, [v.type for v in inputs]))])[0]


@onnx_op(since=11)
def SequenceEmpty(b, *, dtype=None):
    element_type(1 if dtype is None else dtype, "dtype")
    return b.call("sequence_empty", [], [SequenceType(None)])[0]


@onnx_op(since=11)
def SequenceLength(b, input_sequence):
    _sequence(input_sequence)
    values = known_list(b, input_sequence)
    if values is not None:
        return b.constant(len(values), "int64")
    return b.call("sequence_length", [input_sequence], [TensorType("int64", ())])[0]


@onnx_op(since=11, ranks={"position": "<=1"})
def SequenceAt(b, input_sequence, position):
    type_, values = _sequence(input_sequence), known_list(b, input_sequence)
    place = None if values is None else _place(b, values, position)
    if values is not None and place is not None:
        return values[place]
    return b.call("sequence_at", [input_sequence, scalar(b, position)], [_taken(b, type_.element)])[0]


@onnx_op(since=11, ranks={"tensor": "any", "position": "<=1"})
def SequenceInsert(b, input_sequence, tensor, position=None):
    element = _sequence(input_sequence).element
    kept = [tensor.type] if element is None else [element, tensor.type]
    operands = [input_sequence, tensor] + ([] if position is None else [scalar(b, position)])
    return b.call("sequence_insert", operands, [SequenceType(_element(b, kept))])[0]


@onnx_op(since=11, ranks={"position": "<=1"})
def SequenceErase(b, input_sequence, position=None):
    operands = [input_sequence] + ([] if position is None else [scalar(b, position)])
    return b.call("sequence_erase", operands, [_sequence(input_sequence)])[0]


# Between tensors and sequences -------------------------------------------------------------------


@onnx_op(since=11)
def ConcatFromSequence(b, input_sequence, *, axis, new_axis=0):
    element, values = _sequence(input_sequence).element, known_list(b, input_sequence)
    if values:
        values = b.site.of_ranks(b, [Rank.of("n")] * len(values), values)
        place = b.axis(axis, values[0].rank + bool(new_axis))
        return b.concat([insert_axes(b, v, [place]) for v in values] if new_axis else values, place)
    element = (
        b.site.first_of(b, input_sequence).type if isinstance(element, UnrankedType) else _taken(b, element)
    )
    if not isinstance(element, TensorType):
        raise ops.TypeMismatch(f"a sequence of {element} cannot be joined")
    place, shape = b.axis(axis, element.rank + bool(new_axis)), list(element.shape)
    if new_axis:
        shape.insert(place, b.fresh("n"))
    else:
        shape[place] = b.fresh("n")
    type_ = TensorType(element.dtype, tuple(shape))
    return b.call("concat_from_sequence", [input_sequence], [type_], [place, int(bool(new_axis))])[0]


@onnx_op(since=11)
def SplitToSequence(b, input, split=None, *, axis=0, keepdims=1):
    """Parts of the sizes given, of one size, or single slices, which may lose the axis."""
    place = b.axis(axis, input.rank)
    length, keeps = input.shape[place], split is not None or bool(keepdims)
    sizes = _part_sizes(b, split, length)
    if sizes is not None:
        parts, start = [], 0
        for size in sizes:
            part = b.take(input, place, start, size)
            parts.append(
                part if keeps else b.reshape(part, [d for a, d in enumerate(part.shape) if a != place])
            )
            start += size
        return SequenceConstruct(b, *parts)
    size = 1 if split is None else b.fresh("n")
    shape = [*input.shape[:place], *([size] if keeps else []), *input.shape[place + 1 :]]
    operands = [input] + ([] if split is None else [b.cast(split, "int64")])
    type_ = SequenceType(TensorType(input.dtype, tuple(shape)))
    return b.call("split_to_sequence", operands, [type_], [place, int(keeps)])[0]


def _part_sizes(b: Builder, split: Value | None, length: Dimension) -> list[int] | None:
    """The sizes of the parts, where they are known and not very many."""
    known = np.array(1) if split is None else b.known(split)
    if known is None or not isinstance(length, int):
        return None
    if known.ndim == 0:
        size = int(known)
        if size < 1:
            raise ops.TypeMismatch(f"the parts have {size} elements")
        count = -(-length // size)
        return [min(size, length - k * size) for k in range(count)] if count <= 64 else None
    sizes = known.reshape(-1).tolist()
    if min(sizes, default=0) < 0 or sum(sizes) != length:
        raise ops.TypeMismatch(f"the parts have {sum(sizes)} elements together where there are {length}")
    return sizes


@onnx_op(since=17, ranks=ANY_RANKS)
def SequenceMap(b, input_sequence, *additional_inputs, body):
    """The body for each element, of the other sequences too; a Loop where a sequence is not known, or is
    known to end too early, which fails a run that comes there."""
    operands = (input_sequence, *additional_inputs)
    lists = [known_list(b, v) if isinstance(v.type, SequenceType) else None for v in operands]
    first = lists[0]
    if first is not None and all(
        not isinstance(v.type, SequenceType) or (known is not None and len(known) >= len(first))
        for known, v in zip(lists, operands)
    ):
        rows = []
        for k in range(len(first)):
            given = [v if known is None else known[k] for known, v in zip(lists, operands)]
            rows.append(b.site.body(b, body, given))
        return tuple(SequenceConstruct(b, *(row[k] for row in rows)) for k in range(len(body.output)))
    trips = SequenceLength(b, input_sequence)
    empty = [b.call("sequence_empty", [], [SequenceType(None)])[0] for _ in body.output]

    def region(carried: Sequence[Type]) -> Region:
        step = b.inner()
        iteration, condition = (step.input(TensorType("int64", ())), step.input(TensorType("bool", ())))
        collected = [step.input(t) for t in carried]
        given = [
            SequenceAt(step, step.capture(v), iteration)
            if isinstance(v.type, SequenceType)
            else step.capture(v)
            for v in operands
        ]
        results = b.site.body(step, body, given)
        grown = [SequenceInsert(step, s, step.capture(r)) for s, r in zip(collected, results)]
        return Region(step, [condition, *grown], [iteration, condition, *collected])

    return loop(b, trips, b.constant(True), empty, region)


# Optionals ---------------------------------------------------------------------------------------


@onnx_op(since=15, ranks=ANY_RANKS)
def Optional(b, input=None, *, type=None):
    element = type if input is None else input.type
    return b.call("optional", [] if input is None else [input], [OptionalType(element)])[0]


@onnx_op(since=15, ranks=ANY_RANKS)
def OptionalHasElement(b, input=None):
    """What is no optional holds a value."""
    if input is None or not isinstance(input.type, OptionalType):
        return b.constant(input is not None)
    node = input.producer
    if node is not None and isinstance(node.op, ops.RuntimeCall) and node.op.symbol == "optional":
        return b.constant(bool(node.inputs))
    return b.call("optional_has_element", [input], [TensorType("bool", ())])[0]


@onnx_op(since=15, ranks=ANY_RANKS)
def OptionalGetElement(b, input):
    if not isinstance(input.type, OptionalType):
        return input
    node = input.producer
    if (
        node is not None
        and isinstance(node.op, ops.RuntimeCall)
        and node.op.symbol == "optional"
        and node.inputs
    ):
        return node.inputs[0]
    return b.call("optional_get_element", [input], [_taken(b, input.type.element)])[0]
