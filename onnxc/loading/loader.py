"""Loads a compiled library and runs it from Python: ctypes, numpy and the standard library only.

A library is checked against its trailer and then opened through the very file that was checked
(/proc/self/fd), so that one rebuilt at the same path is loaded anew. Every concurrent caller gets a
context of its own from a pool; they share weights and threads. The interpreter lock is released
while a model runs. Outputs of known shape are numpy's own memory, others own the library's.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
from _thread import allocate_lock
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LoadError, Origin, RunError, quote
from .c_values import (
    BUFFER_TOO_SMALL,
    BUSY,
    KINDS,
    LARGE,
    NULL_POINTER,
    RUN_TYPES,
    TENSOR,
    WRONG_COUNT,
    WRONG_DTYPE,
    WRONG_KIND,
    WRONG_SHAPE,
    COptions,
    CValue,
    Port,
    Slot,
    Spares,
    Table,
    address_of,
    mapping,
    natural,
    no_mapping,
    prepared,
    read_ports,
    shape_of,
    spare,
    taking_prepared,
    to_array,
)

if TYPE_CHECKING:
    from pathlib import Path

    from .bound import Bound
    from .stateful import Stateful
    from .texts import Texts
    from .timing import Timing


dlclose: Callable[[int], None] | None
try:
    from _ctypes import dlclose
except ImportError:  # no way to unload: libraries stay until the process ends
    dlclose = None

__all__ = ["Model", "Port", "load"]


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    target: str | None = None,
    *,
    known: dict[str, Any] | None = None,
) -> Model:
    """Loads a compiled library; see `Model`. Raises LoadError."""
    return Model(path, threads, weights, target, known=known)


class Model:
    """A loaded model. Calls from several threads run side by side, each in a context of its own.

    `inputs` and `outputs` are Ports, `target` is the one whose code runs, `metadata` the model's own strings,
    `description` all that the library tells of itself."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        threads: int | None = None,
        weights: str | os.PathLike[str] | None = None,
        target: str | None = None,
        *,
        known: dict[str, Any] | None = None,
    ):
        """`threads`: how many a call uses (None: as compiled, else one a processor). `weights`: the
        side file of weights, if not beside the library. `target`: one of those that the library was
        compiled for (None: the first that this machine can run). `known`: the description of a library that
        was found whole before and is not checked again. Raises LoadError."""
        self._closed = True
        path = os.fsdecode(path)
        threads, weights, target = _asked(threads, weights, target)
        self._opened_with = (os.path.abspath(path), threads, weights, target)
        self._library = _Library(path, threads, weights, target, known)
        self.description: dict[str, Any] = self._library.description
        self.name: str = self.description["name"]
        self.inputs: tuple[Port, ...] = tuple(slot.port for slot in self._library.slots_in)
        self.outputs: tuple[Port, ...] = tuple(slot.port for slot in self._library.slots_out)
        self.metadata: dict[str, str] = self.description["metadata"]
        self._output_index = {port.name: k for k, port in enumerate(self.outputs)}
        self._input_names = tuple(port.name for port in self.inputs)
        self._lock = allocate_lock()
        self._contexts = 1
        self._free = [Context(self._library)]  # those that no call has, taken and given back in one step each
        self.target: str = self._library.target_of(self._free[0].handle)
        self._closed = False

    @property
    def path(self) -> Path:
        """Where the library is."""
        from pathlib import Path

        return Path(self._library.path)

    def run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, object],
        out: Mapping[str, np.ndarray] | None = None,
    ) -> list[Any]:
        """The outputs named, or all, for inputs by name: arrays, whatever follows the DLPack protocol (torch
        tensors, without copies), numbers, lists. Results are fresh arrays; sequences are lists. out: arrays
        to write outputs to, by name, which are then the results: C-ordered, of the output's type and shape.

        Raises RunError, whose `status` is the library's, for wrong inputs and for failures."""
        wanted = None if output_names is None else self.output_numbers(output_names)
        memory = None if out is None else self._memory(out)
        results = self._call(self.in_order(feeds), memory)
        return results if wanted is None else [results[k] for k in wanted]

    async def run_async(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, object],
        out: Mapping[str, np.ndarray] | None = None,
    ) -> list[Any]:
        """As `run`, in a thread of the event loop's, which goes on meanwhile: `await
        model.run_async(...)`."""
        import asyncio

        return await asyncio.to_thread(self.run, output_names, feeds, out)

    def _memory(self, out: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
        """Where outputs are to be written, by their number."""
        mapping(out, "output names to arrays")
        found = dict(zip(self.output_numbers(list(out)), out.values()))
        for number, array in found.items():
            slot = self._library.slots_out[number]
            usable = isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable
            if not usable or array.dtype != slot.numpy or slot.rank < 0:
                raise RunError(
                    f"output {quote(slot.port.name)}: its memory is no C-ordered, writable array of its type",
                    status=WRONG_DTYPE,
                )
        return found

    def output_numbers(self, names: Sequence[str] | None) -> list[int]:
        """The places among the outputs of those named, or of all."""
        if isinstance(names, str):
            raise RunError("the names of outputs are a list, not a text", status=WRONG_COUNT)
        try:
            return [self._output_index[n] for n in (self._output_index if names is None else names)]
        except (KeyError, TypeError) as error:
            raise RunError(
                f"there is no output {quote(str(error.args[0]))}; outputs are {_names(self.outputs)}",
                status=WRONG_COUNT,
            ) from None

    def __call__(self, *arguments: object, **feeds: object) -> object:
        """Inputs by position or by name; the output itself when there is only one, else a tuple."""
        if len(arguments) > len(self.inputs):
            raise RunError(
                f"the model has {len(self.inputs)} inputs, got {len(arguments)}", status=WRONG_COUNT
            )
        if feeds or len(arguments) < len(self.inputs):
            by_position = dict(zip(self._input_names, arguments))
            if twice := by_position.keys() & feeds.keys():
                raise RunError(f"input {quote(min(twice))} is given twice", status=WRONG_COUNT)
            arguments = tuple(self.in_order({**by_position, **feeds}))
        results = self._call(arguments)
        return results[0] if len(results) == 1 else tuple(results)

    def in_order(self, feeds: Mapping[str, object]) -> list[Any]:
        """The values of the inputs; None for one that may be left out."""
        try:
            values = [feeds[name] for name in self._input_names]
            if len(feeds) == len(values):
                return values
        except KeyError:
            pass
        except (TypeError, IndexError):
            raise no_mapping(feeds, "input names to arrays") from None
        for name in feeds:
            if name not in self._input_names:
                raise RunError(
                    f"there is no input {quote(str(name))}; inputs are {_names(self.inputs)}",
                    status=WRONG_COUNT,
                )
        for port in self.inputs:
            if port.name not in feeds and not port.optional:
                raise RunError(
                    f"input {quote(port.name)} is missing; inputs are {_names(self.inputs)}",
                    status=WRONG_COUNT,
                )
        return [feeds.get(name) for name in self._input_names]

    def _call(self, values: Sequence[object], memory: Mapping[int, np.ndarray] | None = None) -> list[Any]:
        context = self.acquire()
        try:
            results = context.run(values, memory)
            if memory:
                self._check_shapes(context, memory)
            return results
        finally:
            self._free.append(context)

    def _check_shapes(self, context: Context, memory: Mapping[int, np.ndarray]) -> None:
        for number, array in memory.items():
            if (shape := context.output_shape(number)) != array.shape:
                raise RunError(
                    f"output {quote(self.outputs[number].name)}: its memory has shape "
                    f"{list(array.shape)}, the result {list(shape)}",
                    status=WRONG_SHAPE,
                )

    def acquire(self) -> Context:
        """A context of the caller's own until `give_back`."""
        try:
            return self._free.pop()
        except IndexError:
            return self._new_context()

    def _new_context(self) -> Context:
        """One more, for a call under way beside all others."""
        with self._lock:
            if self._closed:
                raise RunError("the model is closed", status=NULL_POINTER)
            self._contexts += 1
        try:
            return Context(self._library)
        except BaseException:
            with self._lock:
                self._contexts -= 1
            raise

    def give_back(self, context: Context) -> None:
        self._free.append(context)

    def profile(self, feeds: Mapping[str, object], runs: int = 1) -> list[Timing]:
        """What each step of a run on these inputs takes, in their order: the least of `runs` runs. Where data
        decides which steps run, those of the last."""
        from .timing import profile

        values, context = self.in_order(feeds), self.acquire()
        try:
            return profile(context, values, natural("runs", runs))
        finally:
            self.give_back(context)

    def bind(self) -> Bound:
        """Fixed input and output arrays, for static models. See `Bound`."""
        from .bound import Bound

        return Bound(self)

    def stateful(self, capacity: int = 0, initial: Mapping[str, np.ndarray] | None = None) -> Stateful:
        """Calls that keep the model's states (`compile(..., states=...)`) and change them in place.

        capacity: how much those that grow may become along the axis that they grow. initial: what states
        hold at first, in the order of axes of `inputs`; without it zeros, or nothing where they grow.
        Raises RunError where the model has no states or their sizes are not known."""
        if all(port.state is None for port in self.inputs):
            raise RunError("the model has no states", status=WRONG_KIND)
        from .stateful import Stateful

        context = self.acquire()
        try:
            first = {} if initial is None else mapping(initial, "states to arrays")
            return Stateful(context, self.give_back, natural("capacity", capacity), first)
        except BaseException:
            self.give_back(context)
            raise

    def workspace_bytes(self, shapes: Mapping[str, Sequence[int]] | None = None) -> int:
        """Bytes of arena and scratch that a run on inputs of these shapes takes."""
        context = self.acquire()
        try:
            return context.workspace_bytes({} if shapes is None else mapping(shapes, "inputs to shapes"))
        finally:
            self.give_back(context)

    def cancel(self) -> None:
        """Makes the calls under way in other threads stop soon; they raise RunError."""
        with self._lock:
            if not self._closed:
                self._library.cancel()

    def close(self) -> None:
        """Ends the model's use: contexts and threads are freed now, the library when no result looks
        at its memory any more. Raises RunError while a call is under way, or a `Bound` or `Stateful` is
        open."""
        with self._lock:
            free = []
            while self._free:  # one by one: calls begin and end meanwhile
                with contextlib.suppress(IndexError):
                    free.append(self._free.pop())
            if len(free) < self._contexts:
                self._free.extend(free)
                raise RunError("the model is running and cannot be closed", status=BUSY)
            self._closed = True
            self._contexts = 0
            self._library.end()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as the path of the library, which is opened again."""
        return load, self._opened_with

    def __repr__(self) -> str:
        def ports(several: Sequence[Port]) -> str:
            return ", ".join(f"{port.name}: {port.type_text()}" for port in several)

        what = f"({ports(self.inputs)}) -> ({ports(self.outputs)})"
        return f"<onnxc model {quote(self.name)} {what} of {os.fspath(self.path)!r}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the inputs and outputs."""
        from html import escape

        rows = "".join(
            f"<tr><td>{what}</td><td>{escape(port.name)}</td><td>{escape(port.type_text())}</td></tr>"
            for what, several in (("input", self.inputs), ("output", self.outputs))
            for port in several
        )
        return f"<b>{escape(self.name)}</b> ({escape(self.target)})<table>{rows}</table>"


def _names(ports: Sequence[Port]) -> str:
    return ", ".join(quote(port.name) for port in ports) or "none"


# Contexts ---------------------------------------------------------------------------------------------


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
                self.shape = value.shape
                self.dims[: self.rank] = value.shape
                struct.kind, struct.dtype, struct.rank = TENSOR, self.slot.number, self.rank
                struct.dims = ctypes.addressof(self.dims)
            struct.data, struct.bytes = address_of(value), value.nbytes
        else:
            from .lending import set_value

            self.shape = None
            set_value(struct, self.slot, value, lent)


class Context:
    """A C context with the structs that its calls fill: one caller at a time."""

    def __init__(self, library: _Library):
        self.library: _Library = library
        self.function: Any = library.run
        self.handle: int = library.new_context()
        inputs = (CValue * max(len(library.slots_in), 1))()
        outputs = (CValue * max(len(library.slots_out), 1))()
        for value in (*inputs, *outputs):
            value.struct_size = ctypes.sizeof(CValue)
        self.inputs: tuple[_Input, ...] = tuple(map(_Input, inputs, library.slots_in))
        self.outputs: tuple[tuple[CValue, Slot], ...] = tuple(zip(outputs, library.slots_out))
        self.arrays: tuple[ctypes.Array[CValue], ctypes.Array[CValue]] = (inputs, outputs)
        self.spares: Spares = Spares(len(self.outputs))
        self.unknown: list[tuple[int, ...] | None] = [None] * len(self.outputs)
        self.foreseen: frozenset[int] = library.foreseen  # outputs whose shapes follow from those of inputs
        self.given: list[tuple[int, ...] | None] | None = None  # shapes of inputs
        self.expected: list[tuple[int, ...] | None] = self.unknown  # of these outputs, for such inputs
        self.caller: Any = _caller(self.handle, library)
        self.steps: int = 1024  # of a run that is timed, for which there is room
        self.arguments: tuple[Any, ...] = prepared(
            RUN_TYPES,
            self.handle,
            ctypes.addressof(inputs),
            len(self.inputs),
            ctypes.addressof(outputs),
            len(self.outputs),
        )

    def run(self, values: Sequence[object], memory: Mapping[int, np.ndarray] | None = None) -> list[Any]:
        """All outputs for the inputs in order. memory: where the results of these numbers are to be."""
        caller = self.caller
        if caller is None or memory:
            return self.run_any(values, memory)
        found = caller.run(values)
        if type(found) is list:
            return self.taken_from(caller, values, found) if caller.left else found
        if found is not None:
            raise self.error(found)
        results = self.run_any(values)
        if caller.away:
            caller.away = any(array.nbytes >= LARGE for array in results)
        return results

    def run_any(self, values: Sequence[object], memory: Mapping[int, np.ndarray] | None = None) -> list[Any]:
        """`run` for inputs and outputs of all kinds. Where inputs have the shapes that they had the last
        time, there is memory for what followed from them, which is faster than to take over the library's."""
        lent: list[Any] = []
        for target, value in zip(self.inputs, values):
            target.fill(value, lent)
        expected, given = self.unknown, None
        if self.foreseen and not memory:  # what is changed in place is not run a second time
            given = [target.shape for target in self.inputs]
            expected = self.expected if given == self.given else self.unknown
        results: list[Any] = []
        owned = False
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
        if given is not None and None not in given:
            self.remember(given, taken)
        return taken

    def remember(self, given: list[Any], results: Sequence[Any]) -> None:
        """The shapes of inputs and of what followed from them."""
        self.given = given
        self.expected = [results[k].shape if k in self.foreseen else None for k in range(len(results))]
        if self.caller is not None and self.foreseen:
            sizes = [0 if shape is None else results[k].nbytes for k, shape in enumerate(self.expected)]
            self.caller.expect(given, list(zip(self.expected, sizes)))

    def taken_from(self, caller: Any, values: Sequence[Any], results: list[Any]) -> list[Any]:
        """The results of a call in C, of which some are large."""
        taken = self.taken(results, (CValue * len(results)).from_address(caller.results))
        self.remember([value.shape for value in values], taken)
        return taken

    def confirm(self, results: list[Any], expected: Sequence[tuple[int, ...] | None]) -> None:
        """Gives results the shapes that they have, where these are not what was expected."""
        for k, shape in enumerate(expected):
            found = shape if shape is None else shape_of(self.outputs[k][0])
            if found is not None and found != shape and results[k] is not None:
                results[k] = np.ndarray(found, results[k].dtype, results[k])

    def output_shape(self, index: int) -> tuple[int, ...]:
        """The shape of an output after a run."""
        return shape_of(self.outputs[index][0])

    def taken(
        self, results: Sequence[np.ndarray | None], structs: Iterable[CValue] | None = None
    ) -> list[Any]:
        """The results, those that the library allocated in the place of None. structs: what describes them,
        of this context unless given."""
        described = [struct for struct, _ in self.outputs] if structs is None else structs
        owners = [
            None if array is not None else _Owner(self.library, struct)
            for array, struct in zip(results, described)
        ]
        return [array if owner is None else owner.as_python() for array, owner in zip(results, owners)]

    def cancel(self) -> None:
        """Makes the call under way in another thread stop soon."""
        self.library.table.cancel(self.handle)

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
            if shape is None:
                raise RunError(f"the shape of input {quote(slot.port.name)} is missing", status=WRONG_COUNT)
            try:
                kept.append((ctypes.c_int64 * max(len(shape), 1))(*map(index, shape)))
            except TypeError:
                reason = f"the shape of input {quote(slot.port.name)} has something else than integers"
                raise RunError(reason, status=WRONG_SHAPE) from None
            struct.struct_size, struct.kind = ctypes.sizeof(CValue), KINDS[slot.port.kind]
            struct.dtype, struct.rank = slot.number, len(shape)
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


def _caller(context: int, library: _Library) -> Any:
    """What makes the usual calls of a context in C, where all that the model takes is arrays, and all that it
    returns is arrays or maps."""
    inputs, outputs = library.slots_in, library.slots_out
    formats, shapes = [slot.format() for slot in inputs], [slot.port.shape for slot in inputs]
    if Caller is None or None in formats or None in shapes or not all(slot.made_in_c() for slot in outputs):
        return None
    return Caller(
        np.ndarray,
        np.empty,
        spare,
        library.table.address,
        context,
        LARGE,
        Spares.MOST,
        tuple(
            (slot.numpy, slot.number, form, len(shape or ()))
            for slot, form, shape in zip(inputs, formats, shapes)
        ),
        tuple((slot.numpy, slot.number, slot.shape, slot.nbytes) for slot in outputs),
    )


class _Owner:
    """Memory of a result that the library allocated: released when no array looks at it any more."""

    def __init__(self, library: _Library, struct: CValue):
        self.library, self.value = library, CValue.from_buffer_copy(struct)
        struct.object = None  # handed over
        library.results += 1

    def as_python(self) -> object:
        """What it holds: an array that keeps it, or what sequences and maps are in Python."""
        if self.value.kind == TENSOR:
            return to_array(self.value, self)
        from .alike import to_python

        return to_python(self.value, self)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.library.table.release(ctypes.addressof(self.value))
            self.library.results -= 1


# The library ------------------------------------------------------------------------------------------


class _Library:
    """A mapped library, its table of functions, its contexts and their threads.

    It is unmapped with this object, unless results are left that look at its memory: objects of a
    reference cycle go in any order."""

    def __init__(
        self,
        path: str,
        threads: int | None,
        weights: str | os.PathLike[str] | None,
        target: str | None,
        known: dict[str, Any] | None,
    ):
        self.path = path
        self.handles: list[int] = []  # of contexts
        self.pool: ctypes.c_void_p = ctypes.c_void_p()
        self.results: int = 0
        self.dll: ctypes.CDLL | None = None
        self.table: Table  # once the library is open and is one
        self.file: _File
        self.file, self.dll = _open(path, checked=known is not None)
        self.table = _table(self.dll, path, checked=known is not None)
        self.run: Any = taking_prepared(self.table.word("run"))
        self.description: dict[str, Any] = self._described() if known is None else known
        given, made = (read_ports(self.description[name]) for name in ("inputs", "outputs"))
        self.texts: Texts | None = _texts_of(self.table, (*given, *made))
        self.slots_in: tuple[Slot, ...] = self._slots("inputs", given)
        self.slots_out: tuple[Slot, ...] = self._slots("outputs", made)
        self.foreseen: frozenset[int] = frozenset(
            k for k, slot in enumerate(self.slots_out) if slot.follows_from(self.slots_in)
        )
        side = self.description.get("weights_file")
        self.weights: str | None = os.fspath(weights or _beside(path, side)) if side else None
        self.target: bytes | None = target.encode() if target is not None else None
        self.threads: int = threads or self.description.get("threads") or 0
        if self.threads != 1:
            self._check(self.table.pool_create(self.threads, ctypes.addressof(self.pool)))

    def _slots(self, what: str, ports: Sequence[Port]) -> tuple[Slot, ...]:
        numbers = self.table.element_types(what, len(ports))
        return tuple(Slot.of(port, number, self.texts) for port, number in zip(ports, numbers))

    def _described(self) -> dict[str, Any]:
        import json

        return json.loads(ctypes.string_at(self.table.word("description")))

    def _check(self, status: int) -> None:
        if status:
            raise LoadError(self.last_error(None), origin=Origin(file=os.fspath(self.path)))

    def last_error(self, context: int | None) -> str:
        return self.table.last_error(context).decode("utf-8", "replace")

    def new_context(self) -> int:
        """A C context, which lives until `end`."""
        handle = ctypes.c_void_p()
        weights = os.fsencode(self.weights) if self.weights else None
        options = COptions(ctypes.sizeof(COptions), self.threads, self.pool, weights, self.target)
        self._check(self.table.create(ctypes.addressof(options), ctypes.addressof(handle)))
        made = handle.value or 0
        self.handles.append(made)
        return made

    def target_of(self, context: int) -> str:
        """The target whose code a context runs."""
        if not self.table.has("target"):  # version 1.0 has one target
            return self.description["target"]
        return self.table.target(context).decode()

    def cancel(self) -> None:
        for handle in tuple(self.handles):
            self.table.cancel(handle)

    def end(self) -> None:
        """Frees contexts and threads."""
        while self.handles:
            self.table.destroy(self.handles.pop())
        self.table.pool_destroy(self.pool)
        self.pool = ctypes.c_void_p()

    def __del__(self) -> None:
        if self.dll is None or sys.is_finalizing():
            return
        if hasattr(self, "table"):
            self.end()
        if self.results == 0 and dlclose is not None:
            dlclose(self.dll._handle)


def _asked(threads: Any, weights: Any, target: Any) -> tuple[Any, Any, Any]:
    """What a library is to be opened with, as it is taken; LoadError where that cannot be."""
    if weights is target is None and (threads is None or (type(threads) is int and threads >= 0)):
        return threads, None, None
    from ..errors import CompileError
    from ..options import checked

    kinds = (
        ("threads", threads, "threads"),
        ("weights", weights, "weights_file"),
        ("target", target, "name"),
    )
    try:
        return tuple(checked(*entry) for entry in kinds)
    except CompileError as error:
        raise LoadError(error.reason) from None


def _beside(library: str, name: str) -> str:
    """A path that is from the library's folder, links followed."""
    return os.path.join(os.path.dirname(os.path.realpath(library)), name)


class _File:
    """An open file whose descriptor lives as long as this object."""

    def __init__(self, path: str):
        try:
            self.number: int = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:  # a NUL in its name
            reason = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
            raise LoadError(reason, origin=Origin(file=path)) from None

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


def _open(path: str, checked: bool) -> tuple[_File, ctypes.CDLL]:
    """The file, which is checked now unless it was, and the library mapped from it: opened by descriptor, not
    by path, it is what was checked, and not an older one that had the same path."""
    file = _File(path)
    name = _fresh_name("/proc/self/fd", str(file.number))
    try:
        if not checked:
            from .trailer import check_trailer

            check_trailer(file.number, path)
        if not os.path.exists(name):
            return file, _open_copy(path, file.number)
        with contextlib.suppress(OSError):
            return file, ctypes.CDLL(name)
        # It may need a library that it knows the place of from its own folder.
        folder, base = os.path.split(os.path.realpath(path))
        name = _fresh_name(folder, base)
        return file, ctypes.CDLL(name)
    except OSError as error:
        reason = str(error).replace(name, os.path.basename(path))
        if _is_foreign(file.number):
            reason = "it is for another kind of processor than this machine has"
        raise LoadError(f"cannot be loaded: {reason}", origin=Origin(file=os.fspath(path))) from None


def _is_foreign(number: int) -> bool:
    """Whether an open library is known to be for machines of another kind than the one that runs this."""
    heads = [os.pread(number, 20, 0)]
    with contextlib.suppress(OSError), open("/proc/self/exe", "rb") as program:
        heads.append(program.read(20))
    return all(head.startswith(b"\x7fELF") for head in heads) and len({head[18:] for head in heads}) > 1


_loads = itertools.count(1)


def _fresh_name(folder: str, name: str) -> str:
    """A path of a file that no library had before: dlopen returns an old library for a name it has
    seen, and descriptors are used again. The bits of a counter are spelt in `/` and `./`, which mean
    nothing in a path."""
    spelt = "".join("./" if bit == "1" else "/" for bit in f"{next(_loads):b}")
    return f"{folder}/{spelt}{name}"


def _open_copy(path: str, number: int) -> ctypes.CDLL:
    """Where descriptors have no path: the library mapped from a copy of its own."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
        name = os.path.join(folder, os.path.basename(path))
        with open(name, "wb") as copy, os.fdopen(os.dup(number), "rb") as source:
            source.seek(0)
            while block := source.read(1 << 20):
                copy.write(block)
        return ctypes.CDLL(name)


def _texts_of(table: Table, ports: Iterable[Port]) -> Texts | None:
    """What strings pass by, where there may be any."""
    if not {"string", None} & {dtype for port in ports for dtype in (port.dtype, port.key or port.dtype)}:
        return None
    from .texts import Texts

    return Texts.of(table)


def _table(dll: ctypes.CDLL, path: str, checked: bool) -> Table:
    """The table of the library, which is looked at now unless it was."""
    try:
        find = dll.onnxc_model
    except AttributeError:
        raise LoadError("is not a library compiled by onnxc", origin=Origin(file=path)) from None
    find.restype = ctypes.c_void_p
    table = Table(find())
    if not checked:
        from .trailer import check_interface

        check_interface(table, path)
    return table
