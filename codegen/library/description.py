"""What a library says of itself: the description in its tables, made from the lowered graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...ir import dims
from ...ir.dims import Dimension
from ...ir.graph import MapType, OptionalType, SequenceType, TensorType, Type, UnrankedType, Value
from ...version import __version__
from ..lowering.lower import Lowered
from .interface import LibraryDescription, LoweredDescription, Port
from .module import Module
from .weights import Weights


def describe(
    lowered: Sequence[Lowered],
    modules: Sequence[Module],
    *,
    output_names: Sequence[str],
    dim_names: Mapping[str, str],
    details: Mapping[str, object],
    prefix: str,
    name: str,
    threads: int | None,
    weights: Weights,
    weights_file: str | None,
    checks_handles: bool = False,
) -> LibraryDescription:
    """The description of a model's library, which has a module for each target; ports are called what the
    model calls them.

    output_names, dim_names: what the model calls its outputs and dimension variables. details: what else
    the library says of its model. weights_file: the path of the side file, if any, from its folder."""
    graph = lowered[0].graph
    return LibraryDescription(
        prefix=prefix,
        name=name,
        version=__version__,
        inputs=tuple(
            replace(_port(v.name, v, dim_names), state=dict(graph.states).get(k), typical=_typical(v))
            for k, v in enumerate(graph.inputs)
        ),
        outputs=tuple(_port(n, v, dim_names) for n, v in zip(output_names, graph.outputs)),
        lowered=tuple(map(_lowered, lowered, modules)),
        metadata=dict(graph.metadata),
        threads=threads or 0,
        weights_bytes=weights.nbytes,
        weights_file=weights_file,
        weights_digest=weights.digest,
        string_table=weights.string_table,
        string_count=weights.string_count,
        checks_handles=checks_handles,
        details=details,
    )


def _lowered(lowered: Lowered, module: Module) -> LoweredDescription:
    plan, steps = lowered.plan, [step for code in lowered.codes.values() for step in code.steps]
    return LoweredDescription(
        target=lowered.target.name,
        features=lowered.target.features,
        node_names=module.node_names,
        operators=module.runtime_ops,
        dim_count=module.dim_count,
        value_count=module.value_count,
        slot_count=module.heap_count,
        static=plan.static,
        lifetimes=() if plan.static else tuple((b.first, b.last) for b in plan.buffers),
        branch_buffers=len(plan.buffers) - plan.first_of_branches,
        arena_bytes=plan.arena_bytes,
        scratch_bytes=max([64, *(step.scratch for step in steps if isinstance(step.scratch, int))]),
    )


def _port(name: str, value: Value, dim_names: Mapping[str, str]) -> Port:
    element = element_type(value.type)
    shape = tuple(_size(d, dim_names) for d in value.shape) if isinstance(value.type, TensorType) else None
    kind, optional, holds = value.type.kind, isinstance(value.type, OptionalType), tuple(_held(value.type))
    if isinstance(element, MapType):
        return Port(name, element.value, shape, kind, optional, key=element.key, holds=holds)
    return Port(name, element.dtype if element is not None else None, shape, kind, optional, holds=holds)


def _held(type_: Type) -> Iterator[str]:
    """The kind of a list's items, that of theirs, and so on."""
    while isinstance(type_, SequenceType | OptionalType) and type_.element is not None:
        type_ = type_.element
        yield type_.kind


def _typical(value: Value) -> tuple[int, ...] | None:
    """The shape that a value has most of the time, where only the run knows it."""
    if not isinstance(value.type, TensorType) or dims.is_static(value.shape):
        return None
    return tuple(map(dims.typical, value.shape))


def _size(size: Dimension, dim_names: Mapping[str, str]) -> int | str | None:
    """A number, what the model calls the dimension, or an expression of such names; None where nothing has
    a name."""
    if isinstance(size, int):
        return size
    known = {s.name: dim_names.get(s.name) for s in dims.symbols(size)}
    if str(size) in known:
        return known[str(size)] or None
    return re.sub(r"\w+", lambda m: known.get(m[0]) or m[0], str(size)) if all(known.values()) else None


def element_type(type_: Type | None) -> TensorType | UnrankedType | MapType | None:
    """The tensors or maps that a type is made of."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return type_
