"""`onnxc cache`: what is kept of compiled models, where, and what is given up."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from .. import console
from ..cache import cache_folder, writable_folder
from ..errors import shorten
from ..loading.cached import cached_library
from ..loading.housekeeping import Kept, clear, kept, limit, prune
from ..options import Options
from .ending import ending_clean

OK = 0


def cache_command(options: argparse.Namespace) -> int:
    return {
        "path": _path, "list": _list, "prune": _prune, "clear": _clear, "warm": _warm
    }[options.action](options)  # fmt: skip


def _path(options: argparse.Namespace) -> int:
    folder = cache_folder(make=False)
    if options.json:
        console.print_json({"folder": str(folder), "limit": limit()})
    else:
        print(folder)
    return OK


def _list(options: argparse.Namespace) -> int:
    found = kept(cache_folder())
    if options.json:
        console.print_json([_entry(each) for each in found])
        return OK
    rows = [
        (each.path.name, _models(each), console.bytes_text(each.nbytes), _ago(each.used)) for each in found
    ]
    console.print_table(("library", "model", "size", "used"), rows, text_columns=2)
    total = console.bytes_text(sum(each.nbytes for each in found))
    print(f"{len(found)} libraries, {total} of {console.bytes_text(limit())} in {cache_folder()}")
    return OK


def _entry(each: Kept) -> dict[str, object]:
    return {"library": str(each.path), "models": each.models, "bytes": each.nbytes, "used": each.used}


def _models(each: Kept) -> str:
    return shorten(", ".join(each.models), 60)


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"


def _prune(options: argparse.Namespace) -> int:
    most = options.to if options.to is not None else limit()
    return _removed(prune(writable_folder(), most), options.json)


def _clear(options: argparse.Namespace) -> int:
    return _removed(clear(writable_folder()), options.json)


def _removed(removed: list[Kept], as_json: bool) -> int:
    if as_json:
        console.print_json([_entry(each) for each in removed])
    else:
        freed = console.bytes_text(sum(each.nbytes for each in removed))
        print(f"{len(removed)} libraries removed, {freed}")
    return OK


def _warm(options: argparse.Namespace) -> int:
    """Has the libraries of models in the cache, as a session opens them."""
    found = []
    for model in options.models:
        with ending_clean(), console.Progress(f"compile {shorten(Path(model).name)}") as progress:
            library = cached_library(model, Options.of(vars(options)), progress=progress)
        found.append({"model": str(model), "library": str(library)})
        if not options.json:
            print(f"{model}: {library}")
    if options.json:
        console.print_json(found)
    return OK
