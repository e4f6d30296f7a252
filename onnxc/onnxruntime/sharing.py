"""Runs whose outputs are bound to memory of their inputs.

Inputs are read as they were when the run began, whatever their memory is bound to. An output that has the
very memory of an input is its next value: in a library that is compiled for such states
(`frontend/states.py`) a run changes it where it is. Any other output over an input is computed in memory of
its own and copied."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import itemgetter
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
    copied: Collection[str]


def way(session: SessionMethods, feeds: Mapping[str, object], memory: Mapping[str, np.ndarray]) -> Way:
    """How a run of these inputs goes that leaves outputs in this memory. Raises RunError where outputs share
    some."""
    given = frozenset(feeds) - {port.name for port in session._model.inputs}  # initializers
    over = _overlapped(feeds, memory)
    states = {old[0][0]: new for new, old in over.items() if len(old) == 1 and old[0][1]}
    model = _with_states(session, given, states, memory) if states else None
    if model is not None:
        return Way(model, over.keys() - states.values())
    return Way(session._for_initializers(given), over.keys())


def _overlapped(
    feeds: Mapping[str, object], memory: Mapping[str, np.ndarray]
) -> dict[str, list[tuple[str, bool]]]:
    """The outputs whose memory is also that of inputs; which these are, and whether it is all of theirs."""
    found: dict[str, list[tuple[str, bool]]] = {}
    inputs = [(address_of(a), name, a, False) for name, value in feeds.items() for a in _arrays(value)]
    outputs = [(address_of(a), name, a, True) for name, a in memory.items() if a.nbytes]
    before: list[tuple[int, str, np.ndarray, bool]] = []
    for span in sorted((*inputs, *outputs), key=itemgetter(0)):
        before = [other for other in before if other[0] + other[2].nbytes > span[0]]
        for other in before:
            if span[3] and other[3]:
                names = f"output {quote(span[1])} overlaps output {quote(other[1])}"
                raise RunError(f"the memory of {names}", status=OVERLAP)
            if span[3] or other[3]:
                (at, new, x, _), (start, old, y, _) = (span, other) if span[3] else (other, span)
                same = (at, x.shape, x.dtype) == (start, y.shape, y.dtype)
                found.setdefault(new, []).append((old, same))
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
