"""The library that a session opens where its options, or what it is opened of, ask for more than a look."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..loading.cached import find_library
from ..loading.finding import Found, is_library
from ..options import OF_SESSIONS, Options

if TYPE_CHECKING:
    from .options import SessionOptions


def library(source: Any, settings: SessionOptions | None, asked: Mapping[str, Any], progress: Any) -> Found:
    """The library to load for a path, bytes or ModelProto. asked: options of compilation, by name."""
    if unknown := asked.keys() - set(OF_SESSIONS):
        from ..errors import warn

        warn(f"InferenceSession has no argument '{min(unknown)}', which changes nothing")
    options = Options.of({name: value for name, value in asked.items() if name not in unknown})
    if settings is not None and settings._cancelled:
        from .failures import ModelLoadCanceled

        raise ModelLoadCanceled("Loading the model was cancelled by the session's options.")
    if isinstance(source, (str, os.PathLike)) and is_library(source):
        return Found(os.fspath(source))
    if settings is None:
        return find_library(source, options, progress=progress)
    fix = None
    if settings._edited:
        from .offline import edited

        source = edited(source, settings)
    if settings._sizes or settings._denoted:
        from .free_dimensions import FreeDimensions

        fix = FreeDimensions(settings._sizes, settings._denoted)
    place = settings.optimized_model_filepath
    if place:
        from .written import require_place

        require_place(place)
    found = find_library(source, options, progress=progress, fix=fix)
    if place:
        _write_optimized(source, found.path, place, settings, options)
    return found


def _write_optimized(
    source: Any, library: str, place: str, settings: SessionOptions, options: Options
) -> None:
    from pathlib import Path

    from .offline import with_sizes
    from .written import write

    if Path(place).suffix == ".so":
        content = Path(library).read_bytes()
    else:
        model = with_sizes(source, {**options.dims, **settings._sizes}, options.shapes)
        content = model.SerializeToString()
    write(place, content)
