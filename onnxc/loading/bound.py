"""Calls of a static model on fixed arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import RunError, quote
from .c_values import NULL_POINTER, WRONG_KIND, address_of, zeros_on_line
from .held import Held

if TYPE_CHECKING:
    from .context import Context
    from .loader import Model


class Bound(Held):
    """A static model's inputs and outputs as arrays that calls read and overwrite; nothing is copied
    and nothing allocated.

        bound = model.bind()
        bound.inputs["x"][:] = ...
        bound()
        use(bound.outputs["y"])  # until the next call
    """

    def __init__(self, model: Model):
        slots_in, slots_out = model._library.slots_in, model._library.slots_out
        for slot in (*slots_in, *slots_out):
            if slot.shape is None:
                raise RunError(
                    f"{quote(slot.port.name)} has no fixed shape: only static models can be bound",
                    status=WRONG_KIND,
                )
        self.inputs: dict[str, np.ndarray] = {
            s.port.name: zeros_on_line(s.shape or (), np.dtype(s.numpy)) for s in slots_in
        }  # all have shapes
        self.outputs: dict[str, np.ndarray] = {
            s.port.name: zeros_on_line(s.shape or (), np.dtype(s.numpy)) for s in slots_out
        }
        for slot in slots_in:  # a state and its next value are one
            if slot.port.state and self.outputs[slot.port.state].shape == slot.shape:
                self.outputs[slot.port.state] = self.inputs[slot.port.name]
        super().__init__(model)

    def _prepare(self, context: Context) -> None:
        for target, array in zip(context.inputs, self.inputs.values()):
            target.fill(array, [])
        for (struct, _), array in zip(context.outputs, self.outputs.values()):
            struct.data, struct.capacity = address_of(array), array.nbytes

    def __call__(self) -> None:
        """Runs the model on what the input arrays hold now."""
        context = self._context
        if context is None:
            raise RunError("the bound model is closed", status=NULL_POINTER)
        if context.stop:  # an order that came when it had no call
            context.begin()
        status = context.function(*context.arguments)
        if status:
            raise context.error(status)
