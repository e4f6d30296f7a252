"""IOBinding: inputs and outputs of runs in memory that the program chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .devices import NativeDevice, OrtDevice, require_processor
from .ports import type_text
from .values import NativeValue, OrtValue, OrtValueVector, at_address, dtype_of

if TYPE_CHECKING:
    from .session import Session
    from .sharing import Way


class SessionIOBinding:
    """What is bound to a session's inputs and outputs by name."""

    def __init__(self, session: Session, /):
        self.session = session
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, NativeValue | None] = {}  # None: memory of the run's own
        self.results: OrtValueVector = OrtValueVector()
        #: Of runs on what is bound, where the session's usual one is none; forgotten before that changes.
        self.way: Way | None = None

    def bind_input(self, name: str, *where: Any) -> None:
        """Binds an array, or memory: a device, an element type, a shape, an address."""
        self._bind_input(name, where[0] if len(where) == 1 else self._memory(*where))

    def bind_output(self, name: str, *where: Any) -> None:
        """Binds memory for a result: a device, and an element type, a shape and an address where it is
        given."""
        require_processor(where[0])
        self._bind_output(name, None if len(where) == 1 else self._memory(*where))

    def bind_ortvalue_input(self, name: str, value: NativeValue, /) -> None:
        self._bind_input(name, value)

    def bind_ortvalue_output(self, name: str, value: NativeValue, /) -> None:
        self._bind_output(name, value)

    def _bind_output(self, name: str, value: NativeValue | None) -> None:
        self.way, self.outputs[name] = None, value

    def _bind_input(self, name: str, value: Any) -> None:
        if name not in self.session._bindable:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        self.way, self.inputs[name] = None, value

    def _memory(
        self, device: NativeDevice, element: object, shape: Sequence[int], address: int
    ) -> NativeValue:
        require_processor(device)
        dtype = dtype_of(element)
        return NativeValue._of(at_address(address, [int(n) for n in shape], dtype), type_text(dtype))

    def synchronize_inputs(self) -> None:
        """Without effect: memory is the processor's."""

    def synchronize_outputs(self) -> None:
        """Without effect: a run's results are there when it returns."""

    def get_outputs(self) -> OrtValueVector:
        return self.results

    def copy_outputs_to_cpu(self) -> list[Any]:
        return [np.array(v._value) if v.is_tensor() else v._value for v in self.results]

    def clear_binding_inputs(self) -> None:
        self.way = None
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        self.way = None
        self.outputs.clear()
        self.results = OrtValueVector()


class IOBinding:
    """Inputs and outputs bound for `InferenceSession.run_with_iobinding`."""

    def __init__(self, session: Session):
        self._session = session
        self._iobinding = SessionIOBinding(session)

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array, which is read when the model runs."""
        self._iobinding.bind_input(name, arr_on_cpu)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: object,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds memory at an address, which its owner keeps."""
        device = OrtDevice.make(device_type, device_id)._get_c_device()
        self._iobinding.bind_input(name, device, element_type, shape, buffer_ptr)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._iobinding.bind_ortvalue_input(name, ortvalue._get_c_value())

    def synchronize_inputs(self) -> None:
        """Without effect: memory is the processor's."""
        self._iobinding.synchronize_inputs()

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Asks for an output, to memory at an address or to memory of its own."""
        device = OrtDevice.make(device_type, device_id)._get_c_device()
        if buffer_ptr is None:
            self._iobinding.bind_output(name, device)
        elif element_type is None or shape is None:
            raise ValueError(
                "`element_type` and `shape` are to be provided if pre-allocated memory is provided"
            )
        else:
            self._iobinding.bind_output(name, device, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Asks for an output, to the memory of a value."""
        self._iobinding.bind_ortvalue_output(name, ortvalue._get_c_value())

    def synchronize_outputs(self) -> None:
        """Without effect: a run's results are there when it returns."""
        self._iobinding.synchronize_outputs()

    def get_outputs(self) -> list[OrtValue]:
        """The results of the last run, in the order in which outputs were bound."""
        return [OrtValue(value) for value in self._iobinding.get_outputs()]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        return self._iobinding.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The results of the last run as arrays of their own."""
        return self._iobinding.copy_outputs_to_cpu()

    def clear_binding_inputs(self) -> None:
        self._iobinding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        self._iobinding.clear_binding_outputs()
