"""The cache of compiled models: the library that a model has there, or is given.

A library is named by the content of all that it depends on: the model with its external files, the settings,
the compiler, the runtime and the target. Two kinds of small files lead to it (`finding.py`): one is named by
the model's path and says of each file what it was, the other is named by the model's content."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import ModelError
from ..options import DEFAULTS, Options
from ..places import absolute
from .finding import Found, by_path, is_whole, read, registered, stamp, write

if TYPE_CHECKING:
    from pathlib import Path


def cached_library(source: Any, options: Options = DEFAULTS, **how: Any) -> Path:
    """The path of the library that `find_library` finds, made anew where it is no longer whole."""
    from pathlib import Path

    found = find_library(source, options, **how)
    if not is_whole(found.path):
        with suppress(OSError):  # of a cache that can only be read
            os.unlink(found.path)
        found = find_library(source, options, **how)
    return Path(found.path)


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


def text_of(options: Options, fix: object = None) -> str:
    """The options as a text that is the same for equal ones, and for the same operators beside those that
    onnxc has: those in files, and those that this process has registered; and what else decides sizes. Empty
    where nothing is asked for."""
    told, operators = options.told(), registered()
    if not told and not operators and fix is None:
        return ""
    files = [_digest_if_there(os.fspath(path)) for path in options.operators]
    return repr((told, files, operators, fix))


def _find(acceptable: Sequence[Options], source: Any, progress: Any, fix: Any) -> tuple[Options, Found]:
    """The first library of a model that there is, with its options; of the last, which is made, if there is
    none."""
    path = absolute(source, ModelError) if isinstance(source, (str, os.PathLike)) else None
    texts = [(text_of(options, fix), options) for options in acceptable]
    for text, options in texts:
        if path is not None and (found := by_path(path, text)):
            return options, found
    content = _content(source)
    folder = os.path.dirname(path or "")
    found = None
    for text, options in texts:  # noqa: B007 (the last is the one that is made)
        if content and (found := read("content", content + text, _digest_of, folder)):
            break
    if found is None:
        from .making import compiled

        library, files = compiled(source, options, text, progress, fix)
        found = Found(os.fspath(library), _description(library), [(file, _digest_of(file)) for file in files])
        if content and (path is not None or not files):
            beside = [(os.path.relpath(file, folder), digest) for file, digest in found.files]
            write("content", content + text, found._replace(files=beside))
    if path is not None:
        files = [path, *(os.path.join(folder, file) for file, _ in found.files)]
        write("path", path + text, found._replace(files=[(file, stamp(file)) for file in files]))
    return options, found


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


def _digest_of(path: str) -> str:
    import hashlib

    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_if_there(path: str) -> str:
    """A digest of a file; empty where it cannot be read, which is reported when it is needed."""
    try:
        return _digest_of(path)
    except OSError:
        return ""
