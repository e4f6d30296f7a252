"""Puts this package in the place of `onnxruntime` for programs that import it.

`onnxruntime` and its modules become other names of this package and of its modules, so that a class is one
class however it was imported. Modules that are for work before inference (`onnxruntime.quantization`,
`.tools`, `.transformers`) come from an installed ONNX Runtime, if there is one, and then use this package.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from .environment import VERSION

PLACE, HERE = "onnxruntime", __package__ or "onnxc.onnxruntime"


def install() -> ModuleType:
    """From now on `import onnxruntime` gives this package; that is returned. Modules that hold ONNX Runtime
    itself already keep it."""
    here = sys.modules[HERE]
    for name in [name for name in sys.modules if name == PLACE or name.startswith(f"{PLACE}.")]:
        if sys.modules[name] is not sys.modules.get(HERE + name.removeprefix(PLACE)):
            del sys.modules[name]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules[PLACE] = here
    return here


class _Alias(Loader):
    """Loads a module of this package under another name: it stays what it is."""

    def __init__(self, own: str):
        self.own = own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.own)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # which importing has replaced


class _Finder(MetaPathFinder):
    """Finds the modules of `onnxruntime` here, and the package's metadata where it is not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != PLACE and not fullname.startswith(f"{PLACE}."):
            return None
        own = HERE + fullname.removeprefix(PLACE)
        try:
            found = importlib.util.find_spec(own)
        except ModuleNotFoundError:
            found = None
        if found is not None:
            return ModuleSpec(fullname, _Alias(own), is_package=found.submodule_search_locations is not None)
        return _installed(fullname)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        name = getattr(context, "name", None)
        return [_Distribution()] if name is not None and name.lower() == PLACE else []


def _installed(fullname: str) -> ModuleSpec | None:
    """The module of an installed ONNX Runtime."""
    parent = PathFinder.find_spec(PLACE)
    places = parent.submodule_search_locations if parent is not None else None
    for part in fullname.split(".")[1:-1]:
        found = PathFinder.find_spec(part, places)
        places = found.submodule_search_locations if found is not None else None
    if places is None:
        return None
    found = PathFinder.find_spec(fullname.rpartition(".")[2], list(places))
    if found is None or found.origin is None:
        return None
    return importlib.util.spec_from_file_location(
        fullname, found.origin, submodule_search_locations=found.submodule_search_locations
    )


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata.version("onnxruntime")` reads."""

    def read_text(self, filename: str) -> str | None:
        if filename in ("METADATA", "PKG-INFO"):
            return f"Metadata-Version: 2.1\nName: {PLACE}\nVersion: {VERSION}\n"
        return None

    def locate_file(self, path: object) -> object:  # type: ignore[override]
        raise FileNotFoundError(path)
