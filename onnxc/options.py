"""What can be asked of a compilation. `Options` has every option once: the command line, `onnxc.compile`,
sessions, the stages of the compiler and the names of libraries in the cache are made of it.

Opening a library from the cache needs this file, so that it imports little."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from .errors import UsageError, shorten
from .record import Record

if TYPE_CHECKING:
    from .passes.narrow_weights import Narrowing

#: In which numbers a float32 model multiplies: its own; bfloat16s, whose products it adds in float32; or,
#: with weights of integers, integers, to which rows are rounded block by block.
PRECISIONS = ("float32", "bf16", "int8")

#: How much a compilation does for the speed of runs: all that is known, or what LLVM does in little time.
OPTIMIZE = ("full", "fast")


#: More seconds than anything is to take.
LONG = 1e9


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
        """The options among what is given by name, where None is what nothing was said of."""
        return cls(**{n: checked(n, given[n]) for n in cls._fields if given.get(n) is not None})

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


# What an option takes -----------------------------------------------------------------------------


def checked(name: str, given: Any, kind: str = "") -> Any:
    """What is given for an option, or for what else `onnxc.compile` takes, as the compiler takes it: integers
    of any kind are Python's. None is what nothing was said of. kind: the option that is like it, of what is
    none. Raises UsageError for anything else."""
    what, taken = _TAKEN[kind or name]
    try:
        return None if given is None else taken(given)
    except (AttributeError, TypeError, UnicodeError):
        reason = f"has something else than {what}" if what == _INTEGERS else f"is no {what}"
    except OverflowError:
        reason = "is too large"
    except ValueError as error:
        reason = str(error)
    raise UsageError(f"{name}={shorten(repr(given), 200)} {reason}") from None


def unmeasured(missing: str) -> UsageError:
    """Of what is said of the measurement by which weights are narrowed, where there is none."""
    return UsageError("nothing is narrowed by what is measured", f"give {missing}, too")


def _natural(given: Any) -> int:
    if (number := int(index(given))) < 0:
        raise ValueError("is negative")
    return number


def _count(given: Any) -> int:
    if (number := _natural(given)) >= 1 << 31:  # of which there are 32 bits in libraries
        raise OverflowError
    return number


def _positive(given: Any) -> int:
    if (number := _natural(given)) == 0:
        raise ValueError("is not positive")
    return number


def _magnitude(given: Any) -> float:
    if isinstance(given, (str, bytes, bytearray)) or (number := float(given)) != number:
        raise TypeError
    if number < 0:
        raise ValueError("is negative")
    return number


def _seconds(given: Any) -> float:
    if not 0 < (seconds := _magnitude(given)) < LONG:
        raise TypeError
    return seconds


def _flag(given: Any) -> bool:
    if getattr(given, "shape", ()) != () or given not in (True, False):
        raise TypeError
    return bool(given)


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError
    if "\0" in given:
        raise ValueError("has a character that names do not have")
    os.fsencode(given)
    return given


def _name(given: Any) -> str:
    """Of what a model may give any name."""
    if not isinstance(given, str):
        raise TypeError
    return given


def _one_of(option: str, known: Collection[str]) -> Callable[[Any], str]:
    def taken(given: Any) -> str:
        if (name := _name(given)) not in known:
            raise UsageError(f"unknown {option} '{shorten(name)}'; known are {', '.join(known)}")
        return name

    return taken


def _path(given: Any) -> Any:
    """Of what a path may be; who opens it says what is wrong with it."""
    os.fsencode(given)
    return os.fsdecode(given) if isinstance(given, bytes) else given


def _list(given: Any, taken: Callable[[Any], Any]) -> list[Any]:
    if isinstance(given, (str, bytes)):
        raise TypeError
    return [taken(each) for each in given]


def _table(given: Any, taken: Callable[[Any], Any]) -> dict[str, Any]:
    return {_name(key): taken(value) for key, value in given.items()}


def _anything(given: Any) -> Any:
    return given


def _function(given: Any) -> Any:
    if not callable(given):
        raise TypeError
    return given


def _format(given: Any) -> Any:
    """A name, or one with the layers that stay: `narrow_weights.Narrowing`, or that as JSON."""
    is_one = "kept" in given if isinstance(given, Mapping) else hasattr(given, "kept")
    return given if is_one else _name(given)


def _shape(given: Any) -> tuple[int | None, ...]:
    return tuple(n if n is None else int(index(n)) for n in given)


_INTEGERS = "integers"

#: Of each what it is, and what takes it. Of dims and shapes that are negative the importer names the input.
_TAKEN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model": ("path", _path),
    "output": ("path", _path),
    "dims": (_INTEGERS, lambda given: _table(given, lambda n: int(index(n)))),
    "shapes": (_INTEGERS, lambda given: _table(given, _shape)),
    "typical": (_INTEGERS, lambda given: _table(given, _natural)),
    "threads": (_INTEGERS, _count),
    "jobs": (_INTEGERS, _positive),
    "states": ("table of names", lambda given: _table(given, _name)),
    "values": ("table of values by name", lambda given: _table(given, _anything)),
    "overridable": (
        "bool or list of names",
        lambda given: frozenset(_list(given, _name)) if isinstance(given, Collection) else _flag(given),
    ),
    "operators": ("list of paths", lambda given: _list(given, _path)),
    "target": (
        "name or list of names",
        lambda given: _name(given) if isinstance(given, str) else _list(given, _name),
    ),
    "precision": ("name", _one_of("precision", PRECISIONS)),
    "optimize": ("name", _one_of("optimize", OPTIMIZE)),
    "weights": ("name", _format),
    "weights_error": ("number", _magnitude),
    "calibration": (
        "list of files or table of arrays",
        lambda given: _table(given, _anything) if isinstance(given, Mapping) else _list(given, _path),
    ),
    "debug": ("bool", _flag),
    "name": ("name", _text),
    "soname": ("name", _text),
    "header": ("path", _path),
    "weights_file": ("path", _path),
    "dump_ir": ("path", _path),
    "progress": ("function", _function),
    "tune": ("positive number of seconds", _seconds),
}


#: Nothing is asked for.
DEFAULTS = Options()

#: What sessions, whose libraries are in the cache, do without: names and places of outputs.
_OF_OUTPUTS = ("name", "soname", "header", "weights_file")
OF_SESSIONS = tuple(name for name in Options._fields if name not in _OF_OUTPUTS)
