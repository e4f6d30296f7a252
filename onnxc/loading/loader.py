"""Loads a compiled library and runs it from Python: ctypes, numpy and the standard library only.

Every concurrent caller gets a context of its own from a pool (`context.py`); they share weights and threads
(`library.py`). The interpreter lock is released while a model runs. Outputs of known shape are numpy's own
memory, others own the library's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import LoadError, RunError, quote
from ..places import absolute
from .c_values import (
    BUSY,
    NULL_POINTER,
    WRONG_COUNT,
    WRONG_DTYPE,
    WRONG_KIND,
    WRONG_SHAPE,
    Port,
    mapping,
    natural,
    no_mapping,
)
from .context import Context
from .forks import ProcessLock
from .library import Library

if TYPE_CHECKING:
    from pathlib import Path

    from .bound import Bound
    from .stateful import Stateful
    from .timing import Timing

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
        self._opened_with = (absolute(path, LoadError), threads, weights, target)
        self._library = Library(path, threads, weights, target, known)
        self.description: dict[str, Any] = self._library.description
        self.name: str = self.description["name"]
        self.inputs: tuple[Port, ...] = tuple(slot.port for slot in self._library.slots_in)
        self.outputs: tuple[Port, ...] = tuple(slot.port for slot in self._library.slots_out)
        self.metadata: dict[str, str] = self.description["metadata"]
        self._output_index = {port.name: k for k, port in enumerate(self.outputs)}
        self._input_names = tuple(port.name for port in self.inputs)
        self._lock = ProcessLock()  # what handles a signal may close or cancel
        #: Those that no call has, taken and given back in one step each. An exception between two steps may
        #: lose one, which is then neither here nor a caller's, and lives no more: see `Library.owners`.
        self._free = [Context(self._library)]
        #: Ends what `acquire` began.
        self.give_back: Callable[[Context], None] = self._free.append
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
        memory = None if out is None else self.memory(out)
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

    def memory(self, out: Mapping[str, np.ndarray]) -> dict[int, np.ndarray]:
        """Where outputs are to be written, by their number; RunError where that cannot be."""
        mapping(out, "output names to arrays")
        found = dict(zip(self.output_numbers(list(out)), out.values()))
        for number, array in found.items():
            slot = self._library.slots_out[number]
            usable = isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable
            if slot.port.kind != "tensor" or slot.port.dtype == "string":
                reason = "outputs of strings, sequences, optionals and maps take no memory"
            elif not usable or slot.port.dtype is None:
                reason = "its memory is no C-ordered, writable array of its type"
            elif array.dtype != slot.numpy:
                reason = f"its memory has type {array.dtype}, the result {slot.port.dtype}"
            else:
                continue
            raise RunError(f"output {quote(slot.port.name)}: {reason}", status=WRONG_DTYPE)
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
                self.check_shapes(context, memory)
            return results
        finally:
            self.give_back(context)

    def check_shapes(self, context: Context, memory: Mapping[int, np.ndarray]) -> None:
        """RunError where results that were written to this memory have another shape than it."""
        for number, array in memory.items():
            if (shape := context.output_shape(number)) != array.shape:
                raise RunError(
                    f"output {quote(self.outputs[number].name)}: its memory has shape "
                    f"{list(array.shape)}, the result {list(shape)}",
                    status=WRONG_SHAPE,
                )

    def acquire(self) -> Context:
        """A context of the caller's own until `give_back`, for a call that begins."""
        try:
            context = self._free.pop()
        except IndexError:
            return self._new_context()
        if context.stop:  # an order that came when it had no call
            context.begin()
        return context

    def _new_context(self) -> Context:
        """One more, for a call under way beside all others."""
        with self._lock:
            if self._closed:
                raise RunError("the model is closed", status=NULL_POINTER)
            self._library.free_lost()
            return Context(self._library)

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

        first = {} if initial is None else mapping(initial, "states to arrays")
        return Stateful(self, natural("capacity", capacity), first)

    def workspace_bytes(self, shapes: Mapping[str, Sequence[int]] | None = None) -> int:
        """Bytes of arena and scratch that a run on inputs of these shapes takes. Optional inputs may be left
        out, as in a run."""
        context = self.acquire()
        try:
            return context.workspace_bytes({} if shapes is None else mapping(shapes, "inputs to shapes"))
        finally:
            self.give_back(context)

    def cancel(self) -> None:
        """Makes the calls under way in other threads stop soon; they raise RunError."""
        with self._lock:
            for handle in () if self._closed else self._library.handles:
                self._library.cancel(handle)

    def close(self) -> None:
        """Ends the model's use: contexts and threads are freed now, the library when no result looks
        at its memory any more. Raises RunError while a call is under way, or a `Bound` or `Stateful` is
        open."""
        with self._lock:
            free: list[Context] = []
            try:
                while self._free:  # one by one: calls begin and end meanwhile
                    with contextlib.suppress(IndexError):
                        free.append(self._free.pop())
                if not self._closed and len(free) < len(self._library.owners()):
                    reason = "the model is running, or a Bound or Stateful of it is open: it cannot be closed"
                    raise RunError(reason, status=BUSY)
                self._closed = True
            finally:
                if not self._closed:
                    self._free.extend(free)
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


def _asked(threads: Any, weights: Any, target: Any) -> tuple[Any, Any, Any]:
    """What a library is to be opened with, as it is taken; LoadError where that cannot be."""
    if weights is target is None and (threads is None or (type(threads) is int and 0 <= threads < 1 << 31)):
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
