"""A library that is mapped into the process, with its functions, threads and contexts.

It is checked against its trailer and then opened through the very file that was checked (/proc/self/fd), so
that one rebuilt at the same path is loaded anew.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import itertools
import os
import stat
import sys
import weakref
from _ctypes import dlopen
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LoadError, Origin
from .c_values import COptions, CValue, Port, Slot, Table, read_ports, taking_prepared

if TYPE_CHECKING:
    from .context import Context
    from .texts import Texts

dlclose: Callable[[int], None] | None
try:
    from _ctypes import dlclose
except ImportError:  # no way to unload: libraries stay until the process ends
    dlclose = None


class Handle:
    """A context in C: null until it is made and once it is freed. `owner`: whose it is as long as that lives.
    `results`: the structs that describe those of its runs. `stop`: unless this number is 0, its runs end."""

    def __init__(self, owner: Context, results: Sequence[CValue]):
        self.owner: weakref.ref[Context] = weakref.ref(owner)
        self.results: Sequence[CValue] = results
        self.address: ctypes.c_void_p = ctypes.c_void_p()
        self.stop: ctypes.c_int32 = ctypes.c_int32()


class Library:
    """A mapped library, its table of functions, its contexts and their threads.

    It is unmapped with this object, unless results are left that look at its memory: objects of a
    reference cycle go in any order."""

    file: io.FileIO | None = None

    def __init__(
        self,
        path: str,
        threads: int | None,
        weights: str | os.PathLike[str] | None,
        target: str | None,
        known: dict[str, Any] | None,
    ):
        self.path = path
        self.mapped: list[int] = []  # its handle
        self.handles: list[Handle] = []  # of all contexts
        self.pool: ctypes.c_void_p = ctypes.c_void_p()
        self.results: set[int] = set()  # identities of what owns some
        self.table: Table  # once the library is open and is one
        self.file = _opened(path)
        _map(self.file, path, self.mapped, checked=known is not None)
        self.table = _table(self.mapped[0], path, checked=known is not None)
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

    def new_context(self, owner: Context, results: Sequence[CValue]) -> Handle:
        """A C context for an owner, and the structs of its results. It is listed before it is made, so that
        an exception loses none."""
        weights = os.fsencode(self.weights) if self.weights else None
        handle = Handle(owner, results)
        self.handles.append(handle)
        options = COptions(
            ctypes.sizeof(COptions),
            self.threads,
            self.pool,
            weights,
            self.target,
            None,
            ctypes.addressof(handle.stop),
        )
        self._check(self.table.create(ctypes.addressof(options), ctypes.addressof(handle.address)))
        return handle

    def target_of(self, context: int) -> str:
        """The target whose code a context runs."""
        if not self.table.has("target"):  # version 1.0 has one target
            return self.description["target"]
        return self.table.target(context).decode()

    def cancel(self, handle: Handle) -> None:
        """Ends the context's call soon: of a library of interface 1.3 also one that has yet to enter it."""
        handle.stop.value = 1
        self.table.cancel(handle.address)

    def owners(self) -> list[Context]:
        """Of all contexts, but for those that lost theirs where an exception came between two steps of a call
        (a signal's handler may raise one anywhere)."""
        return [owner for handle in self.handles if (owner := handle.owner()) is not None]

    def free_lost(self) -> None:
        """Frees the contexts that lost their owners."""
        self._free([handle for handle in self.handles if handle.owner() is None])

    def end(self) -> None:
        """Frees contexts and threads. What an exception leaves of it the next call does."""
        self._free(list(self.handles))
        pool, self.pool = self.pool, ctypes.c_void_p()
        self.table.pool_destroy(pool)

    def _free(self, handles: Iterable[Handle]) -> None:
        destroy = self.table.destroy
        for handle in handles:
            self.drop(handle.results)
            address, handle.address.value = handle.address.value, None  # never freed twice
            if address:
                destroy(address)
            with contextlib.suppress(ValueError):  # what handled a signal went on with it
                self.handles.remove(handle)

    def drop(self, results: Iterable[CValue]) -> None:
        """Releases what structs still own, results of calls that an exception ended: runs take no such."""
        for result in results:
            if result.object:
                self.table.release(ctypes.addressof(result))

    def __del__(self) -> None:
        if self.file is None:
            return
        self.file.close()
        if sys.is_finalizing():
            return
        if hasattr(self, "table"):
            self.end()
        if self.mapped and not self.results and dlclose is not None:
            dlclose(self.mapped[0])


def _beside(library: str, name: str) -> str:
    """A path that is from the library's folder, links followed."""
    return os.path.join(os.path.dirname(os.path.realpath(library)), name)


def _opened(path: str) -> io.FileIO:
    """The open file. C has its descriptor from the first, which an exception between two steps of Python (a
    signal's handler may raise one anywhere) would lose."""
    try:
        if stat.S_ISREG(os.stat(path).st_mode):  # others may make who opens them wait
            return io.FileIO(path)
    except (OSError, ValueError) as error:  # a NUL in its name
        reason = f"cannot be opened: {getattr(error, 'strerror', None) or error}"
        raise LoadError(reason, origin=Origin(file=path)) from None
    raise LoadError("is not a regular file", origin=Origin(file=path))


def _map(file: io.FileIO, path: str, mapped: list[int], checked: bool) -> None:
    """Maps the library from the file, which is checked now unless it was, and puts its handle in `mapped`:
    opened by descriptor, not by path, it is what was checked, and not an older one that had the same path."""
    name = _fresh_name("/proc/self/fd", str(file.fileno()))
    try:
        if not checked:
            from ..trailer import check_trailer

            check_trailer(file.fileno(), path)
        if not os.path.exists(name):
            _map_copy(path, file.fileno(), mapped)
            return
        with contextlib.suppress(OSError):
            _map_named(name, mapped)
            return
        # It may need a library that it knows the place of from its own folder.
        folder, base = os.path.split(os.path.realpath(path))
        name = _fresh_name(folder, base)
        _map_named(name, mapped)
    except OSError as error:
        reason = str(error).replace(name, os.path.basename(path))
        if _is_foreign(file.fileno()):
            reason = "it is for another kind of processor than this machine has"
        raise LoadError(f"cannot be loaded: {reason}", origin=Origin(file=os.fspath(path))) from None


def _map_named(name: str, mapped: list[int]) -> None:
    """In a single step of Python, so that the library is mapped if and only if its handle is in `mapped`."""
    mapped.extend(map(dlopen, (name,), (ctypes.DEFAULT_MODE,)))


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


def _map_copy(path: str, number: int, mapped: list[int]) -> None:
    """Where descriptors have no path: the library mapped from a copy of its own."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
        name = os.path.join(folder, os.path.basename(path))
        with open(name, "wb") as copy, os.fdopen(os.dup(number), "rb") as source:
            source.seek(0)
            while block := source.read(1 << 20):
                copy.write(block)
        _map_named(name, mapped)


def _texts_of(table: Table, ports: Iterable[Port]) -> Texts | None:
    """What strings pass by, where there may be any."""
    if not {"string", None} & {dtype for port in ports for dtype in (port.dtype, port.key or port.dtype)}:
        return None
    from .texts import Texts

    return Texts.of(table)


def _table(handle: int, path: str, checked: bool) -> Table:
    """The table of the mapped library, which is looked at now unless it was."""
    try:
        find = ctypes.CDLL(None, handle=handle).onnxc_model
    except AttributeError:
        raise LoadError("is not a library compiled by onnxc", origin=Origin(file=path)) from None
    find.restype = ctypes.c_void_p
    table = Table(find())
    if not checked:
        from ..trailer import check_interface

        check_interface(table, path)
    return table
