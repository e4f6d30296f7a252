"""Compiles a model into the cache: once, by one process, while others that want the same library wait."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import codegen, passes, runtime_c
from ..cache import after_failure, folders, locked, writable_folder
from ..errors import CompileError
from ..frontend.model_file import open_model
from ..options import Options
from ..target import find_targets
from .finding import is_whole
from .housekeeping import limit, prune
from .progress import told

#: Errors of a folder that nothing more can be written to.
_NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


def compiled(
    source: Any,
    options: Options,
    text: str,
    progress: Callable[[str], None] | None,
    fix: Callable[[Any], tuple[dict, dict]] | None,
) -> tuple[Path, list[str]]:
    """The library by its name, compiled if it is not there, and the model's external files. text: what tells
    the options from others."""
    model = open_model(source)
    if fix is not None:
        dims, shapes = fix(model.proto)
        options = options.with_(dims={**dims, **options.dims}, shapes={**shapes, **options.shapes})
    key = hashlib.sha256()
    # Not the targets as they are: sets are written in another order by every process.
    targets = [
        (target.name, target.triple, target.features, target.facts) for target in find_targets(options.target)
    ]
    for part in (model.content_hash, text, repr(targets), compiler_hash()):
        key.update(part.encode("utf-8", "surrogateescape"))
    name = f"{key.hexdigest()[:40]}.so"
    for folder in folders():
        if is_whole(folder / name):
            return folder / name, _external(model)
    folder = writable_folder()
    try:
        path = _compile_once(folder / name, model, options, progress)
    except (CompileError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
        if not isinstance(cause, OSError) or cause.errno not in _NO_PLACE or _is_elsewhere(cause, folder):
            raise
        folder = after_failure(folder, cause.strerror or str(cause))
        path = _compile_once(folder / name, model, options, progress)
    return path, _external(model)


def _is_elsewhere(error: OSError, folder: Path) -> bool:
    """Whether an error names a place outside the folder: what is compiled is made in the system's temporary
    one, which may be full, too."""
    named = error.filename and os.path.realpath(os.fsdecode(error.filename))
    return bool(named) and os.path.realpath(folder) not in (named, os.path.dirname(named))


def _external(model: Any) -> list[str]:
    return [os.fspath(file.path) for file in model.external.opened()]


def _compile_once(path: Path, model: Any, options: Options, progress: Any) -> Path:
    with locked(path, "another process compiles the model"):
        if not is_whole(path):
            from ..driver import compile_model

            prune(path.parent, limit())  # before, so that what is made now stays
            with told(os.path.basename(model.name) or "a model", progress) as tell:
                compile_model(model, path, options.with_(name="model"), progress=tell)
    return path


def compiler_hash() -> str:
    """A digest of the compiler and the runtime: their sources."""
    digest = hashlib.sha256()
    packages = [Path(__file__).parents[1], *(Path(p.__path__[0]) for p in (codegen, passes, runtime_c))]
    for folder in packages:
        for file in sorted(folder.rglob("*")):
            if file.suffix in (".py", ".c", ".h"):
                digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
