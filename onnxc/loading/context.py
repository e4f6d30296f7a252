"""A context of a library: the structs that a call from Python fills and reads.

An input is usually an array of the right type, which takes few steps; `lending.py` fills in what is given
instead, and `quick.c` makes the usual calls whole.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from ..errors import RunError, quote
from .c_values import (
    BUFFER_TOO_SMALL,
    BUSY,
    KINDS,
    LARGE,
    NONE,
    RUN_TYPES,
    TENSOR,
    WRONG_COUNT,
    WRONG_SHAPE,
    CValue,
    Slot,
    Spares,
    address_of,
    prepared,
    shape_of,
    spare,
    to_array,
)
from .library import Handle, Library


class _Input:
    """An input's struct in a context, filled again for every call."""

    def __init__(self, struct: CValue, slot: Slot):
        self.struct, self.slot, self.dtype, self.rank = struct, slot, slot.numpy, slot.rank
        self.dims = (ctypes.c_int64 * max(slot.rank, 1))()
        self.shape: tuple[int, ...] | None = None  # what dims hold

    def fill(self, value: object, lent: list[Any]) -> None:
        """The usual case in few steps: an array of the right type, rank and order, more often than not
        of the same shape as the last time."""
        struct = self.struct
        if (
            type(value) is np.ndarray
            and value.dtype == self.dtype
            and value.ndim == self.rank
            and value.flags.c_contiguous
        ):
            if value.shape != self.shape:
                self.shape = None  # until the struct is filled: a signal's handler may end that half-way
                self.dims[: self.rank] = value.shape
                struct.kind, struct.dtype, struct.rank = TENSOR, self.slot.number, self.rank
                struct.dims = ctypes.addressof(self.dims)
                self.shape = value.shape
            struct.data, struct.bytes = address_of(value), value.nbytes
        else:
            from .lending import set_value

            self.shape = None
            set_value(struct, self.slot, value, lent)


class Context:
    """A C context with the structs that its calls fill: one caller at a time."""

    def __init__(self, library: Library):
        self.library: Library = library
        self.function: Any = library.run
        inputs = (CValue * max(len(library.slots_in), 1))()
        outputs = (CValue * max(len(library.slots_out), 1))()
        for value in (*inputs, *outputs):
            value.struct_size = ctypes.sizeof(CValue)
        self.inputs: tuple[_Input, ...] = tuple(map(_Input, inputs, library.slots_in))
        self.outputs: tuple[tuple[CValue, Slot], ...] = tuple(zip(outputs, library.slots_out))
        self.arrays: tuple[ctypes.Array[CValue], ctypes.Array[CValue]] = (inputs, outputs)
        self.in_c: Handle = library.new_context(self, tuple(struct for struct, _ in self.outputs))
        self.handle: int = self.in_c.address.value or 0
        self.stop: ctypes.c_int32 = self.in_c.stop
        self.spares: Spares = Spares(len(self.outputs))
        self.unknown: list[tuple[int, ...] | None] = [None] * len(self.outputs)
        self.foreseen: frozenset[int] = library.foreseen  # outputs whose shapes follow from those of inputs
        self.ranked: list[int] = [k for k, slot in enumerate(library.slots_in) if slot.port.shape is not None]
        self.given: list[tuple[int, ...] | None] | None = None  # shapes of the inputs of known rank
        self.expected: list[tuple[int, ...] | None] = self.unknown  # of these outputs, for such inputs
        self.caller: Any = _caller(self.handle, library, outputs)
        self.of_texts: frozenset[int] = frozenset(
            k for k, slot in enumerate(library.slots_in) if slot.port.dtype == "string"
        )
        self.steps: int = 1024  # of a run that is timed, for which there is room
        self.timed: Any = None  # its memory, to which an interrupted one leaves the library's pointer
        self.arguments: tuple[Any, ...] = prepared(
            RUN_TYPES,
            self.handle,
            ctypes.addressof(inputs),
            len(self.inputs),
            ctypes.addressof(outputs),
            len(self.outputs),
        )

    def run(self, values: Sequence[Any], memory: Mapping[int, np.ndarray] | None = None) -> list[Any]:
        """All outputs for the inputs in order. memory: where the results of these numbers are to be."""
        caller = self.caller
        if caller is None or memory:
            return self.run_any(values, memory)
        if self.of_texts:
            from .texts import as_objects

            values = [as_objects(v) if k in self.of_texts else v for k, v in enumerate(values)]
        found = caller.run(values)
        if type(found) is list:
            if caller.stayed:
                self.remember([values[k].shape for k in self.ranked], found)
            return found
        if found is not None:
            raise self.error(found)
        return self.run_any(values)

    def run_any(self, values: Sequence[object], memory: Mapping[int, np.ndarray] | None = None) -> list[Any]:
        """`run` for inputs and outputs of all kinds. Where inputs have the shapes that they had the last
        time, there is memory for what followed from them, which is faster than to take over the library's."""
        lent: list[Any] = []
        for target, value in zip(self.inputs, values):
            target.fill(value, lent)
        expected, given = self.unknown, None
        if self.foreseen and not memory:  # what is changed in place is not run a second time
            given = [self.inputs[k].shape for k in self.ranked]
            expected = self.expected if given == self.given else self.unknown
        results: list[Any] = []
        owned = False
        self.library.drop(self.in_c.results)
        array: np.ndarray | None
        for k, (struct, slot) in enumerate(self.outputs):
            if memory and k in memory:
                array = memory[k]
            else:
                shape = expected[k] if slot.shape is None else slot.shape
                array = None if shape is None else self.spares.empty(k, slot, shape)
            if array is None:
                struct.data, owned = None, True
            else:
                struct.data, struct.capacity = address_of(array), array.nbytes
            results.append(array)
        try:
            self.call()
        except RunError as error:
            if expected is self.unknown or error.status != BUFFER_TOO_SMALL:
                raise
            self.foreseen, self.given = frozenset(), None  # a size that is named so is no size of an input
            return self.run_any(values, memory)
        if expected is not self.unknown:
            self.confirm(results, expected)
        if not owned:
            return results
        taken = self.taken(results)
        if given is not None:
            self.remember(given, taken)
        return taken

    def remember(self, given: list[Any], results: Sequence[Any]) -> None:
        """The shapes of inputs, where all are known, and of what followed from them."""
        if None in given:
            return
        self.given = None  # until what is expected of them is there
        self.expected = [results[k].shape if k in self.foreseen else None for k in range(len(results))]
        self.given = given
        if self.caller is not None and self.foreseen:
            sizes = [0 if shape is None else results[k].nbytes for k, shape in enumerate(self.expected)]
            self.caller.expect(given, list(zip(self.expected, sizes)))

    def confirm(self, results: list[Any], expected: Sequence[tuple[int, ...] | None]) -> None:
        """Gives results the shapes that they have, where these are not what was expected."""
        for k, shape in enumerate(expected):
            found = shape if shape is None else shape_of(self.outputs[k][0])
            if found is not None and found != shape and results[k] is not None:
                results[k] = np.ndarray(found, results[k].dtype, results[k])

    def output_shape(self, index: int) -> tuple[int, ...]:
        """The shape of an output after a run."""
        return shape_of(self.outputs[index][0])

    def taken(self, results: Sequence[np.ndarray | None]) -> list[Any]:
        """The results, those that the library allocated in the place of None."""
        owners = [
            None if array is not None else _Owner(self.library, struct)
            for array, (struct, _) in zip(results, self.outputs)
        ]
        return [array if owner is None else owner.as_python() for array, owner in zip(results, owners)]

    def begin(self) -> None:
        """A call begins, for which orders to end count from here on, also those that come before it enters
        the library."""
        self.stop.value = 0

    def cancel(self) -> None:
        """Makes the call under way in another thread stop soon."""
        self.library.cancel(self.in_c)

    def call(self) -> None:
        """Runs the model on the structs as they are; RunError when it fails."""
        status = self.function(*self.arguments)
        if status:
            raise self.error(status)

    def error(self, status: int) -> RunError:
        """The library's sentence for its last failure."""
        return RunError(self.library.last_error(None if status == BUSY else self.handle), status=status)

    def workspace_bytes(self, shapes: Mapping[str, Sequence[int]]) -> int:
        slots, kept = self.library.slots_in, []
        structs = (CValue * max(len(slots), 1))()
        for struct, slot in zip(structs, slots):
            shape = shapes.get(slot.port.name, slot.shape)
            struct.struct_size, struct.kind = ctypes.sizeof(CValue), NONE
            if shape is None:
                if slot.port.optional:
                    continue
                raise RunError(f"the shape of input {quote(slot.port.name)} is missing", status=WRONG_COUNT)
            try:
                kept.append((ctypes.c_int64 * max(len(shape), 1))(*map(index, shape)))
            except TypeError:
                reason = f"the shape of input {quote(slot.port.name)} has something else than integers"
                raise RunError(reason, status=WRONG_SHAPE) from None
            struct.kind, struct.dtype, struct.rank = KINDS[slot.port.kind], slot.number, len(shape)
            struct.dims = ctypes.addressof(kept[-1])
        size = ctypes.c_size_t()
        status = self.library.table.workspace_bytes_for(
            self.handle, ctypes.addressof(structs), len(slots), ctypes.addressof(size)
        )
        if status:
            raise self.error(status)
        return size.value


def _class_in_c() -> Any:
    """`Caller` of quick.c; None where the package was built without a C compiler."""
    try:
        from ._quick import Caller
    except ImportError:
        return None
    return Caller


Caller: Any = _class_in_c()


def _caller(context: int, library: Library, results: ctypes.Array[CValue]) -> Any:
    """What makes the usual calls of a context in C, where all that the model takes is arrays, sequences of
    such and optionals, and all that it returns these or maps. results: the structs that describe these."""
    outputs = library.slots_out
    inputs = [(slot, slot.port, slot.format()) for slot in library.slots_in]
    if (
        Caller is None
        or not all(form for *_, form in inputs)
        or not all(slot.made_in_c() for slot in outputs)
    ):
        return None
    return Caller(
        np.ndarray,
        np.empty,
        spare,
        lambda number: _Owner(library, results[number]),
        library.table.address,
        context,
        ctypes.addressof(results),
        LARGE,
        Spares.MOST,
        tuple(
            (
                slot.numpy,
                slot.number,
                form,
                KINDS[port.kind],
                KINDS[port.of or "tensor"],
                -1 if port.shape is None else len(port.shape),
            )
            for slot, port, form in inputs
        ),
        tuple((slot.numpy, slot.shape, slot.nbytes) for slot in outputs),
    )


class _Owner:
    """Memory of a result that the library allocated: released when no array looks at it any more."""

    library: Library | None = None
    value: CValue = CValue()  # nothing, until it is handed over

    def __init__(self, library: Library, struct: CValue):
        self.library = library
        library.results.add(id(self))
        value = CValue.from_buffer_copy(struct)
        struct.object, self.value = None, value  # handed over: no signal is handled between the two

    def as_python(self) -> object:
        """What it holds: an array that keeps it, or what sequences and maps are in Python."""
        if self.value.kind == TENSOR:
            return to_array(self.value, self)
        from .alike import to_python

        return to_python(self.value, self)

    def __del__(self) -> None:
        if self.library is None or sys.is_finalizing():
            return
        try:
            self.library.table.release(ctypes.addressof(self.value))
        finally:
            self.library.results.discard(id(self))
