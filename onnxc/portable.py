"""A compiled model as a value that goes to other processes and machines, and columns of tables as its inputs.

Engines that spread work pickle what they call. A Portable is pickled as the bytes of its library; where it
arrives they become an entry of the cache, once a machine, which each process opens once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .cache import folders, temporary_name, writable_folder
from .errors import LoadError, RunError, quote
from .loading.finding import is_library
from .loading.loader import Model, load

#: Of each input the column that it is read from, or the columns, which become its last axis.
Inputs = Mapping[str, "str | Sequence[str]"]

_opened: dict[tuple[str, int | None], Model] = {}


class Portable:
    """A model that other processes can run.

    model: a compiled library, or what `onnxc.compile` takes, with its arguments as `settings`. threads: of a
    run (None: as compiled). target: what it is compiled for (None: every level of this machine's
    architecture). Raises LoadError for a library whose weights are a file of their own."""

    def __init__(
        self, model: Any, threads: int | None = 1, target: str | Sequence[str] | None = None, **settings: Any
    ):
        self.threads = threads
        if isinstance(model, (str, os.PathLike)) and is_library(model):
            self.content = _content(Path(model))
        else:
            from . import compile as compile_model
            from .target import levels_here

            with tempfile.TemporaryDirectory(prefix="onnxc-") as folder:
                made = compile_model(
                    model, Path(folder) / "model.so", target=target or levels_here(), **settings
                )
                self.content = _content(made)
        self.digest = hashlib.sha256(self.content).hexdigest()[:40]

    def open(self, threads: int | None = None) -> Model:
        """The model, opened once in a process for each number of threads (None: those of the value)."""
        threads = self.threads if threads is None else threads
        key = self.digest, threads
        if key not in _opened:
            _opened[key] = load(self._place(), threads)
        return _opened[key]

    def _place(self) -> Path:
        """The library in the cache of this machine."""
        name = f"{self.digest}.so"
        for folder in folders():
            if (folder / name).exists():
                return folder / name
        place = writable_folder() / name
        temporary = temporary_name(place)
        try:
            temporary.write_bytes(self.content)
            os.replace(temporary, place)
        finally:
            temporary.unlink(missing_ok=True)
        return place

    def __repr__(self) -> str:
        return f"Portable({len(self.content)} bytes, {self.digest[:12]})"


def _content(library: Path) -> bytes:
    """The library's bytes, which have to be all of it."""
    with load(library) as model:
        side = model.description.get("weights_file")
    if side:
        raise LoadError(
            f"{library}: its weights are in a file of their own, {side}, which does not go along",
            remedy="compile it without --weights-file, or open it where all machines find both",
        )
    return library.read_bytes()


def feeds_of(model: Model, columns: Mapping[str, Any], inputs: Inputs | None = None) -> dict[str, np.ndarray]:
    """The model's inputs from columns of equal length.

    Without `inputs` each is read from the column of its name; a model with one input and no such column has
    all columns as its last axis. Raises RunError where columns are missing."""
    wanted: dict[str, str | Sequence[str]] = dict(inputs or {})
    ports = [
        port for port in model.inputs if not port.optional or port.name in wanted or port.name in columns
    ]
    for port in ports:
        if port.name not in wanted:
            alone = len(ports) == 1 and port.name not in columns
            wanted[port.name] = list(columns) if alone else port.name
    named = [[name] if isinstance(name, str) else name for name in wanted.values()]
    missing = [name for names in named for name in names if name not in columns]
    if missing:
        there = ", ".join(map(quote, columns)) or "none"
        raise RunError(f"there is no column {quote(missing[0])}; there are {there}", remedy="give `inputs`")
    dtypes = {port.name: port.dtype for port in model.inputs}
    return {
        name: _array(
            columns[source] if isinstance(source, str) else np.column_stack([columns[c] for c in source]),
            dtypes.get(name),
        )
        for name, source in wanted.items()
    }


def _array(column: Any, dtype: str | None) -> np.ndarray:
    """A column as an array of the type: of lists or arrays in every row, one with their axes."""
    from .ir.dtypes import numpy_dtype

    array = np.asarray(column)
    if array.dtype == object and len(array) and isinstance(array[0], (list, tuple, np.ndarray)):
        array = np.stack([np.asarray(row) for row in array])
    return array if dtype is None else array.astype(numpy_dtype(dtype), copy=False)
