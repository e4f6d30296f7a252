"""A compiled model as a value that goes to other processes and machines, and columns of tables as its inputs.

Engines that spread work pickle what they call. A Portable is pickled as the bytes of its library; where it
arrives they become an entry of the cache, once a machine, which each process opens once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from .cache import folders, temporary_name, writable_folder
from .errors import LoadError, RunError, quote, shorten
from .ir.dtypes import COMPLEX, integer_range, is_integer, numpy_dtype, rounded
from .loading.c_values import Port
from .loading.finding import is_library
from .loading.loader import Model, load

#: Of each input the column that it is read from, or the columns, which become its last axis.
Inputs = Mapping[str, "str | Sequence[str]"]

_NUMBERS = (Real, Decimal, np.bool_)  # among objects

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
    all columns as its last axis. Raises RunError where columns are missing, or do not become the inputs."""
    wanted: dict[str, str | Sequence[str]] = dict(inputs or {})
    ports = [
        port for port in model.inputs if not port.optional or port.name in wanted or port.name in columns
    ]
    for port in ports:
        if port.name not in wanted:
            alone = len(ports) == 1 and port.name not in columns and len(columns) > 0
            wanted[port.name] = list(columns) if alone else port.name
    named = [[name] if isinstance(name, str) else name for name in wanted.values()]
    missing = [name for names in named for name in names if name not in columns]
    if missing:
        there = ", ".join(quote(str(name)) for name in columns) or "none"
        raise RunError(
            f"there is no column {quote(str(missing[0]))}; there are {there}", remedy="give `inputs`"
        )
    known = {port.name: port for port in model.inputs}
    return {name: _feed(name, known.get(name), columns, source) for name, source in wanted.items()}


def _feed(
    name: str, port: Port | None, columns: Mapping[str, Any], source: str | Sequence[str]
) -> np.ndarray:
    """What an input is given: its column, or its columns side by side, in its type and with its axes."""
    if port is None:  # which the run refuses by its name
        port = Port(name, None, None)
    if isinstance(source, str):
        return _shaped(_array(source, columns[source], port.dtype), port)
    arrays = [_array(column, columns[column], port.dtype) for column in source]
    try:
        return _shaped(np.column_stack(arrays), port)
    except ValueError as error:  # no columns, or of different lengths
        raise RunError(f"input {quote(name)}: {error}") from None


def _shaped(array: np.ndarray, port: Port) -> np.ndarray:
    """One column is [n] or [n, 1], as the input is; where there are no rows to tell them, the other axes are
    the input's."""
    if port.shape is None or port.kind != "tensor":
        return array
    rank = len(port.shape)
    if not len(array) and array.ndim < rank:
        return array.reshape(0, *(size if isinstance(size, int) else 1 for size in port.shape[1:]))
    if array.ndim == 1 and rank == 2:
        return array[:, None]
    return array[:, 0] if rank == 1 and array.shape[1:] == (1,) else array


def _array(name: str, column: Any, dtype: str | None) -> np.ndarray:
    """A column as an array of the type: of lists or arrays in every row, one with their axes. Raises RunError
    for what is no column, for rows of different shapes, and for what is no number of the type."""
    try:
        array = np.asarray(column)
        if array.dtype == object and any(isinstance(row, (list, tuple, np.ndarray)) for row in array.flat):
            rows = [np.asarray(row) for row in array]
            odd = next((k for k, row in enumerate(rows) if row.shape != rows[0].shape), None)
            if odd is not None:
                shapes = f"{list(rows[odd].shape)}, those before {list(rows[0].shape)}"
                raise RunError(f"column {quote(str(name))}: row {odd} has the shape {shapes}")
            array = np.stack(rows)
        if not array.ndim:
            kind = type(column).__name__
            raise RunError(f"column {quote(str(name))}: expected an element for each row, got a {kind}")
        return array if dtype is None else _converted(name, array, dtype)
    except (ValueError, ArithmeticError) as error:
        raise RunError(f"column {quote(str(name))}: {error}") from None


def _converted(name: str, array: np.ndarray, dtype: str) -> np.ndarray:
    """A column in the type. Floats are rounded, and None is NaN among them; what would become another number
    is refused: fractions and missing values among integers, what is too large, texts, dates."""
    wanted = numpy_dtype(dtype)
    if np.can_cast(array.dtype, wanted):
        return array.astype(wanted, copy=False)
    whole = dtype == "bool" or is_integer(dtype)
    wide = "complex128" if dtype in COMPLEX else "float64"
    if array.dtype == object:
        kinds = _NUMBERS if whole else (*_NUMBERS, type(None))
        fits = np.frompyfunc(lambda value: isinstance(value, kinds), 1, 1)(array).astype(bool)
        if fits.all() and not whole:
            array = array.astype(wide)
    else:
        fits = np.full(array.shape, np.can_cast(array.dtype, wide, "same_kind"))
    found = array
    if fits.all() and whole:
        low, high = integer_range(dtype)
        with np.errstate(all="ignore"):
            fits = (array >= low) & (array < high + 1)
            found = np.where(fits, array, 0).astype(wanted)
            fits &= found == array
    elif fits.all():
        found, fits = rounded(array, dtype)
    if not fits.all():
        place = tuple(np.argwhere(~fits)[0])
        value = array[place]
        text = quote(value) if isinstance(value, (str, bytes)) else shorten(str(value))
        raise RunError(f"column {quote(str(name))}: {text} in row {place[0]} is no number of {dtype}")
    return found
