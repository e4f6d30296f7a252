"""A model that keeps its states from call to call: every run changes them where they are.

A state that grows has memory for as much as it may become; a run writes what is new behind what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import TYPE_CHECKING

import numpy as np

from ..errors import RunError, quote
from .c_values import NULL_POINTER, WRONG_COUNT, WRONG_SHAPE, Slot, no_mapping, zeros_on_line
from .held import Held

if TYPE_CHECKING:
    from .loader import Model


class _State:
    """A state's memory, with room along the axis that grows."""

    def __init__(self, name: str, memory: np.ndarray):
        self.name, self.memory = name, memory

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """What it holds of that shape: an array even of a single number."""
        places: tuple[slice | EllipsisType, ...] = (*map(slice, shape), ...)
        return self.memory[places]


class Stateful(Held):
    """Calls of one model that change its states in place and copy nothing of them. For one caller.

    decoder = onnxc.load(library).stateful(capacity=1024)
    while ...:
        logits = decoder({"ids": ids, ...})["logits"]
    """

    def __init__(self, model: Model, capacity: int, initial: Mapping[str, np.ndarray]):
        slots_in, slots_out = model._library.slots_in, model._library.slots_out
        outputs = {slot.port.name: k for k, slot in enumerate(slots_out)}
        self._states: dict[int, _State] = {}  # by the number of the input
        self._following: dict[int, _State] = {}  # by the number of the output
        #: What they hold now, by name: a call changes those of all or, where it is interrupted, of none.
        self._shapes: dict[str, tuple[int, ...]] = {}
        for k, slot in enumerate(slots_in):
            name = slot.port.state
            if name is not None:
                new = outputs[name]
                state, shape = _allocated(slot, slots_out[new], capacity, initial)
                self._states[k] = self._following[new] = state
                self._shapes[state.name] = shape
        for name in initial:
            if name not in self._shapes:
                raise RunError(f"{quote(str(name))} is no state of the model", status=WRONG_COUNT)
        super().__init__(model)

    @property
    def states(self) -> dict[str, np.ndarray]:
        """What the states hold now, without copies; between calls they may be written to. Their axes are
        those of the model's ports: one that grows has the axis along which it does first."""
        return {state.name: state.array(self._shapes[state.name]) for state in self._states.values()}

    def __call__(self, feeds: Mapping[str, object]) -> dict[str, object]:
        """One step: the outputs that are no states, by name, for the inputs that are none. Raises RunError;
        what states that do not grow hold is then undefined, as where a signal's handler raises."""
        context = self._context
        if context is None:
            raise RunError("the model is closed", status=NULL_POINTER)
        context.begin()
        if not isinstance(feeds, Mapping):
            raise no_mapping(feeds, "input names to arrays")
        values, states = [], self.states
        for k, target in enumerate(context.inputs):
            port = target.slot.port
            if k not in self._states and port.name not in feeds and not port.optional:
                raise RunError(f"input {quote(port.name)} is missing", status=WRONG_COUNT)
            values.append(states[port.name] if k in self._states else feeds.get(port.name))
        memory = {k: state.memory for k, state in self._following.items()}
        results = context.run(values, memory)
        self._shapes = {state.name: context.output_shape(k) for k, state in self._following.items()}
        ports = [slot.port for _, slot in context.outputs]
        return {ports[k].name: result for k, result in enumerate(results) if k not in memory}


def _allocated(
    old: Slot, new: Slot, capacity: int, initial: Mapping[str, np.ndarray]
) -> tuple[_State, tuple[int, ...]]:
    """A state as it is before the first call, and the shape of what it holds: as given, else zeros, or
    nothing along the axis that grows."""
    name, sizes = old.port.name, old.port.shape or ()
    axis = next((a for a, size in enumerate(sizes) if size != 1), None)
    grows = axis is not None and (sizes[axis] is None or sizes != new.port.shape)
    known = [0 if grows and a == axis else size for a, size in enumerate(sizes)]
    first = np.asarray(initial[name]) if name in initial else None
    shape = [n for n in known if isinstance(n, int)] if first is None else list(first.shape)
    if first is not None and len(shape) != len(sizes):
        raise RunError(f"the state {quote(name)} has {len(sizes)} axes", status=WRONG_SHAPE)
    if len(shape) != len(sizes):
        raise RunError(
            f"the state {quote(name)} of shape {list(sizes)} has no known size: give its first value",
            status=WRONG_SHAPE,
        )
    room = [max(capacity, size) if grows and a == axis else size for a, size in enumerate(shape)]
    state, held = _State(name, zeros_on_line(room, np.dtype(old.numpy))), tuple(shape)
    if first is not None:
        state.array(held)[...] = first
    return state, held
