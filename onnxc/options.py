"""What can be asked of a compilation. `Options` has every option once: the command line, `onnxc.compile`,
sessions, the stages of the compiler and the names of libraries in the cache are made of it.

Opening a library from the cache needs this file, so that it imports little."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from .errors import CompileError
from .record import Record

if TYPE_CHECKING:
    from .passes.narrow_weights import Narrowing

#: In which numbers a float32 model multiplies: its own; bfloat16s, whose products it adds in float32; or,
#: with weights of integers, integers, to which rows are rounded block by block.
PRECISIONS = ("float32", "bf16", "int8")

#: How much a compilation does for the speed of runs: all that is known, or what LLVM does in little time.
OPTIMIZE = ("full", "fast")


class Options(Record):
    """dims: sizes of named dimensions. shapes: whole shapes of inputs; None leaves an axis as it is. states:
    inputs and the outputs that are their next values (`frontend/states.py`). values: inputs that are
    constants then (`frontend/fixed_values.py`). overridable: whether runs may give initializers that are also
    inputs, or which of them. operators: files with operators that onnxc lacks (`given.py`).

    target: a name of `target.TARGETS`, "native", or several: the library then has code for each and uses the
    best that it finds. typical: what named dimensions are most of the time, for estimates. precision: one of
    PRECISIONS. optimize: one of OPTIMIZE. weights: one of `narrow_weights.FORMATS`, in which the weights of
    products and tables are stored, or which of them are. threads: how many the library uses unless told
    otherwise (None: one a processor). debug: whether contexts that are destroyed, or another model's, get a
    status.

    name: prefix of the exported symbol (None: the output's stem). soname: what programs that are linked with
    a .so look for (None: the output's name). header: where to write the C header. weights_file: the side file
    for the weights (None: they are in the library, or, over `LIBRARY_LIMIT`, in OUTPUT.weights).
    """

    dims: Mapping[str, int] = {}
    shapes: Mapping[str, Sequence[int | None]] = {}
    states: Mapping[str, str] = {}
    values: Mapping[str, Any] = {}
    overridable: bool | Collection[str] = False
    operators: Sequence[str | os.PathLike[str]] = ()
    target: str | Sequence[str] = "native"
    typical: Mapping[str, int] = {}
    precision: str = "float32"
    optimize: str = "full"
    weights: Narrowing | str | None = None
    threads: int | None = None
    debug: bool = False
    name: str | None = None
    soname: str | None = None
    header: str | os.PathLike[str] | None = None
    weights_file: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options among what is given by name, where None is what nothing was said of, and integers of
        any kind are Python's."""
        said = {name: given[name] for name in cls._fields if given.get(name) is not None}
        return cls(**said | {name: _integers(name, said[name]) for name in _SIZES if name in said})

    def with_(self, **changes: Any) -> Options:
        return self._replace(**changes)

    def told(self) -> dict[str, object]:
        """Those that are not as they are by default, as JSON has them: equal options are told equally."""
        return {
            name: plain(value)
            for name, value in self._asdict().items()
            if value is not getattr(Options, name) and plain(value) != plain(getattr(Options, name))
        }


def plain(value: Any) -> object:
    """A value as JSON has it: tables and sets in order, arrays with their type and shape."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: plain(value[name]) for name in sorted(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if hasattr(value, "dtype"):
        return {"dtype": value.dtype.str, "shape": list(value.shape), "values": value.tolist()}
    return str(value)


#: Options that are integers, by name or in shapes by name.
_SIZES = ("dims", "shapes", "typical", "threads")


def _integers(name: str, given: Any) -> Any:
    """What is given for an option of _SIZES, with integers of Python's. Of dims and shapes that are negative
    the importer names the input."""
    try:
        if name == "threads":
            return _natural(given)
        if name == "typical":
            return {dim: _natural(n) for dim, n in given.items()}
        if name == "dims":
            return {dim: int(index(n)) for dim, n in given.items()}
        return {x: tuple(n if n is None else int(index(n)) for n in shape) for x, shape in given.items()}
    except (AttributeError, TypeError):
        raise CompileError(f"{name}={given!r} has something else than integers") from None
    except ValueError:
        raise CompileError(f"{name}={given!r} is negative") from None


def _natural(n: Any) -> int:
    if (found := int(index(n))) < 0:
        raise ValueError
    return found


#: Nothing is asked for.
DEFAULTS = Options()

#: What sessions, whose libraries are in the cache, do without: names and places of outputs.
_OF_OUTPUTS = ("name", "soname", "header", "weights_file")
OF_SESSIONS = tuple(name for name in Options._fields if name not in _OF_OUTPUTS)
