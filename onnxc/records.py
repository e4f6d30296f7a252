"""`dataclass`: the standard library's, of which classes share all methods but `__init__`, and which is
applied to a class when its first instance is made. What opening a library needs is a `Record` (`record.py`).

The library looks at every field, and writes and compiles six functions for a frozen class, which was a third
of the compiler's imports; a small model needs about half of its classes. Frozen instances are made by slow
assignments, too: that nobody assigns to their fields is said by the type checker.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """The decorator, with or without options: fields as annotated become arguments of `__init__`; `eq`
        compares them, `frozen` makes a value of it, which can be hashed."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq)

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            _define(cls)
            cls.__init__(self, *args, **kwargs)

        methods: dict[str, object] = {"__repr__": _repr, "__init__": __init__}
        if eq:
            methods["__eq__"] = _eq
            methods["__hash__"] = _hash if frozen else None
        own = vars(cls)
        for name, method in [(name, method) for name, method in methods.items() if own.get(name) is None]:
            setattr(cls, name, method)
        for name in ("__dataclass_fields__", "__match_args__", "_compared"):
            setattr(cls, name, _Later(cls, name))
        _undefined[cls] = __init__
        return cls


_undefined: dict[type, Callable[..., None]] = {}  # classes without instances, and what their first one calls
_lock = RLock()  # of these; a class is defined after those that it inherits from


class _Later:
    """What is known of a class when it is defined, which asking for it does."""

    def __init__(self, cls: type, name: str):
        self.cls, self.name = cls, name

    def __get__(self, instance: object, owner: type) -> Any:
        _define(self.cls)
        return getattr(owner, self.name)


def _define(cls: Any) -> None:
    """Applies the standard library's decorator. `__init__` is the one that this gives a derived class: other
    threads may be in that of the class itself."""
    import dataclasses

    with _lock:
        if cls not in _undefined:
            return
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        fields = dataclasses.fields(cls)
        known: dict[str, object] = {
            "__match_args__": tuple(f.name for f in fields if f.init and not f.kw_only),
            "_compared": staticmethod(_getter([f.name for f in fields if f.compare])),
        }
        if vars(cls)["__init__"] is _undefined[cls]:
            derived = type(cls.__name__, (cls,), {"__doc__": cls.__doc__ or cls.__name__})
            known["__init__"] = vars(dataclasses.dataclass(repr=False, eq=False)(derived))["__init__"]
        for name, value in known.items():
            setattr(cls, name, value)
        del _undefined[cls]


def _getter(names: list[str]) -> Callable[[object], object]:
    return attrgetter(*names) if names else lambda instance: ()


def _eq(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = self._compared
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _repr(self: Any) -> str:
    import dataclasses

    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
