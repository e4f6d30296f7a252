"""The cache of compiled models: which library a model has, found without reading the model where it can be.

A library is named by the content of all that it depends on: the model with its external files, the settings,
the compiler, the runtime and the target. Two kinds of small files lead to it. One is named by the model's
path and says of each file what it was (device, number, size, times): if that still holds, and the compiler
and the machine are the same, the library is the one. The other is named by the model's content."""

from __future__ import annotations

import marshal
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from ..cache import places, temporary_name
from ..errors import LoadError
from ..options import DEFAULTS, Options
from ..records import Record

if TYPE_CHECKING:
    from pathlib import Path

    from .loader import Model

ATTEMPTS = 3  # at opening a library that others may remove
USED_AGAIN = 3600  # seconds after which a use of a library is written down anew


def text_of(options: Options, fix: object = None) -> str:
    """The options as a text that is the same for equal ones, and for the same operators beside those that
    onnxc has: those in files, and those that this process has registered; and what else decides sizes."""
    custom = sys.modules.get(f"{__package__.partition('.')[0]}.custom")
    registered = custom.digest() if custom is not None else ""
    told = options.told()
    if not told and not registered and fix is None:
        return ""
    files = [_digest_if_there(os.fspath(path)) for path in options.operators]
    return repr((told, files, registered, fix))


def is_library(path: str | os.PathLike[str]) -> bool:
    """Whether to take a file for a library: by what it begins with, or else by its name."""
    named_so = os.fspath(path).endswith(".so")
    try:
        if not os.path.isfile(path):
            return named_so
        with open(path, "rb") as file:
            return named_so or file.read(4) == b"\x7fELF"
    except (OSError, ValueError):
        return named_so


class Found(Record):
    """A library, and its description where it is known to be whole."""

    path: str
    known: dict[str, Any] | None = None


def opened(find: Callable[[], Found], threads: int | None = None) -> Model:
    """The model whose library `find` finds. Where another process gives the library up before it is open, it
    is looked for again."""
    from .loader import load

    for attempt in range(ATTEMPTS):
        try:
            found = find()
            return load(found.path, threads, known=found.known)
        except LoadError as error:
            if attempt + 1 == ATTEMPTS or not error.origin.file or os.path.exists(error.origin.file):
                raise
    raise AssertionError("the last attempt returns or raises")


def cached_library(source: Any, options: Options = DEFAULTS, **how: Any) -> Path:
    """The path that `find_library` finds."""
    from pathlib import Path

    return Path(find_library(source, options, **how).path)


def find_library(
    source: Any,
    options: Options = DEFAULTS,
    *,
    progress: Callable[[str], None] | None = None,
    fix: Callable[[Any], tuple[dict, dict]] | None = None,
) -> Found:
    """The compiled library of a model (a path, bytes or an onnx.ModelProto), from the cache or newly made; a
    large one has its weights in a file beside it. One process compiles it, others wait.

    progress: as for `compile`. fix: what gives sizes and shapes of the opened model beside those in the
    options; its `repr` tells it from others. Where `optimize` is "fast" the full library is found if it is
    there, else it is made meanwhile (`background.py`). Raises what `compile` raises, and LoadError where
    there is no folder to keep a library in."""
    if options.optimize != "fast":
        return _find([options], source, progress, fix)[1]
    full = options.with_(optimize="full")
    which, found = _find([full, options], source, progress, fix)
    if which is not full:
        from .background import make_full

        make_full(source, full, fix, found.path)
    return found


def _find(acceptable: Sequence[Options], source: Any, progress: Any, fix: Any) -> tuple[Options, Found]:
    """The first library of a model that there is, with its options; of the last, which is made, if there is
    none."""
    path = os.path.abspath(source) if isinstance(source, (str, os.PathLike)) else None
    texts = [(text_of(options, fix), options) for options in acceptable]
    for text, options in texts:
        if path is not None and (entry := _read("path", path + text, _stamp)):
            return options, Found(entry.library, entry.description)
    content = _content(source)
    folder = os.path.dirname(path or "")
    entry = None
    for text, options in texts:  # noqa: B007 (the last is the one that is made)
        if content and (entry := _read("content", content + text, _digest_of, folder)):
            break
    if entry is None:
        from .making import compiled

        library, files = compiled(source, options, text, progress, fix)
        entry = Entry(os.fspath(library), _description(library), [(file, _digest_of(file)) for file in files])
        if content and (path is not None or not files):
            beside = [(os.path.relpath(file, folder), digest) for file, digest in entry.files]
            _write("content", content + text, entry._replace(files=beside))
    if path is not None:
        files = [path, *(os.path.join(folder, file) for file, _ in entry.files)]
        _write("path", path + text, entry._replace(files=[(file, _stamp(file)) for file in files]))
    return options, Found(entry.library, entry.description)


# What leads to a library ------------------------------------------------------------------------------


class Entry(Record):
    """A library with its description, and the files that it was made of, each with what tells whether it is
    the same."""

    library: str
    description: dict[str, Any]
    files: list[tuple[str, str]]


def _stamp(path: str) -> str:
    s = os.stat(path)
    return f"{s.st_dev} {s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}"


def _name(kind: str, key: str) -> str:
    """`path-…` or `content-…` and a digest (FNV-1a) of the key, which stands in the file, too."""
    number = 0xCBF29CE484222325
    for byte in key.encode("utf-8", "surrogateescape"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{kind}-{number:016x}"


def _read(kind: str, key: str, told: Callable[[str], str], folder: str = "") -> Entry | None:
    """The entry of that key, if it was written by this compiler on such a machine, its library is there, the
    weights that may lie beside it too, and of every file `told` says what it said then."""
    for place in places():
        try:
            with open(f"{place}/{_name(kind, key)}", "rb") as file:
                found, surroundings, library, size, description, files = marshal.load(file)
            path = os.path.join(place, library)
            status = os.stat(path)
            same = (found, surroundings, size) == (key, _surroundings(), status.st_size)
            if weights := description.get("weights_file"):
                os.stat(os.path.join(os.path.dirname(path), weights))
            if same and all(told(os.path.join(folder, name)) == then for name, then in files):
                _use(path, status)
                return Entry(path, description, files)
        except (OSError, ValueError, EOFError, TypeError):  # gone, or cut off
            continue
    return None


def _use(library: str, status: os.stat_result) -> None:
    """Writes down that a library is used, for what the cache gives up first."""
    if time.time() - status.st_mtime > USED_AGAIN:
        with suppress(OSError):  # of a cache that can only be read
            os.utime(library)


def _write(kind: str, key: str, entry: Entry) -> None:
    """Writes an entry beside its library, or where that cannot be in a temporary folder that is there."""
    from pathlib import Path

    size = os.stat(entry.library).st_size
    for folder in dict.fromkeys((os.path.dirname(entry.library), *places())):
        library = os.path.relpath(entry.library, folder)
        place = Path(folder) / _name(kind, key)
        temporary = temporary_name(place)
        try:
            content = (key, _surroundings(), library, size, entry.description, entry.files)
            temporary.write_bytes(marshal.dumps(content))
            os.replace(temporary, place)
            return
        except OSError:
            temporary.unlink(missing_ok=True)


def _description(library: Path) -> dict[str, Any]:
    from .loader import load

    with load(library, threads=1) as model:
        return model.description


def _content(source: Any) -> str:
    """A digest of the model's own file or bytes; empty where it cannot be read."""
    if isinstance(source, (str, os.PathLike)):
        try:
            return _digest_of(os.fspath(source)) if os.path.isfile(source) else ""
        except (OSError, ValueError):
            return ""
    import hashlib

    if not isinstance(source, (bytes, bytearray, memoryview)):
        if not hasattr(source, "SerializeToString"):
            return ""
        try:
            source = source.SerializeToString(deterministic=True)
        except ValueError:  # over 2 GB, which compiling refuses with a sentence
            return ""
    return hashlib.sha256(source).hexdigest()


def _digest_if_there(path: str) -> str:
    """A digest of a file; empty where it cannot be read, which is reported when it is needed."""
    with suppress(OSError):
        return _digest_of(path)
    return ""


def _digest_of(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _surroundings() -> str:
    """What tells whether the compiler or the machine is another than the one that wrote an entry: when the
    compiler's files were changed, the processor, and what was measured of it."""
    here = os.path.dirname(os.path.dirname(__file__))
    if os.path.isdir(f"{here}/codegen"):  # installed: what replaces files changes the folder
        return f"{sys.implementation.cache_tag} {_stamp(here)} {_machine()}"
    newest, count = 0, 0
    pending = [
        here,
        *(os.path.join(os.path.dirname(here), name) for name in ("codegen", "passes", "runtime_c")),
    ]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".c", ".h")):
                    newest, count = max(newest, entry.stat().st_mtime_ns), count + 1
                elif entry.is_dir() and entry.name != "__pycache__":
                    pending.append(entry.path)
    return f"{sys.implementation.cache_tag} {newest} {count} {_machine()}"


def _machine() -> str:
    """The processor's name and features, and when it was calibrated."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(8192).partition(b"\n\n")[0].split(b"\n")
    except OSError:
        lines = []
    kinds = (b"model name", b"flags", b"CPU part", b"Features")
    told = [line for line in lines if line.startswith(kinds)]
    facts: list[object] = []
    for folder in places():
        with suppress(OSError):
            facts.append(os.stat(f"{folder}/calibrated").st_mtime_ns)  # of facts.py, slow to import
    return repr((told, facts))
