"""Runs whose outputs are bound to memory of their inputs.

Inputs are read as they were when the run began, whatever their memory is bound to. An output that has the
very memory of an input is its next value: in a library that is compiled for such states
(`frontend/states.py`) a run changes it where it is. Any other output over an input is computed in memory of
its own and copied."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import OnnxcError, RunError, quote
from ..loading.c_values import OVERLAP, address_of
from ..loading.loader import Model
from ..record import Record

if TYPE_CHECKING:
    from .session_methods import SessionMethods

#: Libraries that a session has for states. Where a program shares other memory in every run, to copy takes
#: less time than to compile.
MOST = 8


class Way(Record):
    """How what is bound is run: the library, and the outputs that are copied to where they are bound."""

    model: Model
    copied: Collection[str] = ()


def way(
    session: SessionMethods,
    given: frozenset[str],
    feeds: Mapping[str, object],
    memory: Mapping[str, np.ndarray],
) -> Way | None:
    """How a run in this memory goes that cannot go by the session's own library as it is; None where nothing
    helps. given: the initializers that it gives. Raises RunError where outputs share memory."""
    over = _overlapped(feeds, memory)
    states = {}
    for new, inputs in over.items():
        array = feeds[inputs[0]]
        if len(inputs) == 1 and isinstance(array, np.ndarray) and _is_same(array, memory[new]):
            states[inputs[0]] = new
    model = _with_states(session, given, states, memory) if states else None
    if model is not None:
        return Way(model, over.keys() - states.values())
    return Way(session._for_initializers(given), over.keys()) if over or given else None


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    return (a.shape, a.dtype, address_of(a)) == (b.shape, b.dtype, address_of(b))


def _overlapped(feeds: Mapping[str, object], memory: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    """The outputs whose memory is also that of inputs, and which these are."""
    found: dict[str, list[str]] = {}
    inputs = [(a, name, False) for name, value in feeds.items() for a in _arrays(value)]
    outputs = [(array, name, True) for name, array in memory.items() if array.nbytes]
    spans = [(address_of(a), a.nbytes, name, is_output) for a, name, is_output in (*inputs, *outputs)]
    before: list[tuple[int, int, str, bool]] = []
    for span in sorted(spans):
        before = [other for other in before if other[0] + other[1] > span[0]]
        for other in before:
            if span[3] and other[3]:
                names = f"output {quote(span[2])} overlaps output {quote(other[2])}"
                raise RunError(f"the memory of {names}", status=OVERLAP)
            if span[3] or other[3]:
                new, old = (span, other) if span[3] else (other, span)
                found.setdefault(new[2], []).append(old[2])
        before.append(span)
    return found


def _arrays(value: object) -> Iterator[np.ndarray]:
    """Those of an input that a run reads where they are."""
    if isinstance(value, np.ndarray):
        if value.nbytes and value.flags.c_contiguous:
            yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _arrays(each)


def _with_states(
    session: SessionMethods,
    given: frozenset[str],
    states: Mapping[str, str],
    memory: Mapping[str, np.ndarray],
) -> Model | None:
    """The model compiled once more with these states; None where they cannot be some."""
    shapes = _shapes(session._model, states, memory)
    key = given, tuple(sorted(states.items())), tuple(sorted(shapes.items()))
    libraries = session._further
    with session._lock:
        if key not in libraries and sum(bool(states) for _, states, _ in libraries) < MOST:
            libraries[key] = _compiled(session, given, states, shapes)
        return libraries.get(key)


def _shapes(
    model: Model, states: Mapping[str, str], memory: Mapping[str, np.ndarray]
) -> dict[str, tuple[int | None, ...]]:
    """Sizes of inputs that are to be known: those that are not known to be their next values' too. A state of
    such an axis would grow."""
    before = {port.name: port.shape for port in model.inputs}
    after = {port.name: port.shape for port in model.outputs}
    found: dict[str, tuple[int | None, ...]] = {}
    for old, new in states.items():
        if old not in before:  # an initializer, which has its sizes
            continue
        pinned: list[int | None] = list(memory[new].shape)
        x, y = before[old], after[new]
        if x is not None and y is not None and len(x) == len(y) == len(pinned):
            pinned = [None if i == j is not None else n for i, j, n in zip(x, y, pinned)]
        if any(n is not None for n in pinned):
            found[old] = tuple(pinned)
    return found


def _compiled(
    session: SessionMethods,
    given: frozenset[str],
    states: Mapping[str, str],
    shapes: Mapping[str, tuple[int | None, ...]],
) -> Model | None:
    asked = session._keywords
    own = asked.get("shapes") or {}
    known = {
        name: [n if n is not None else m for n, m in zip(sizes, own.get(name, sizes))]
        for name, sizes in shapes.items()
    }
    further = {"states": {**(asked.get("states") or {}), **states}, "shapes": {**own, **known}}
    try:
        model = session._open(**further, **({"overridable": given} if given else {}))
    except OnnxcError:
        return None
    if _has_states(model, states):
        return model
    model.close()
    return None


def _has_states(model: Model, states: Mapping[str, str]) -> bool:
    """Whether a run may change these inputs where they are, none of which grows."""
    after = {port.name: port.shape for port in model.outputs}
    held = {
        port.name: port.state
        for port in model.inputs
        if port.state
        and port.shape is not None
        and None not in port.shape
        and port.shape == after[port.state]
    }
    return states.items() <= held.items()
