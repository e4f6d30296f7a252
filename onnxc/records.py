"""`dataclass`: the standard library's, of which classes share all methods but `__init__`.

The library writes and compiles six functions for every frozen class; for the compiler's 160 classes that is a
third of the time that it takes to import, and its frozen instances are made by slow assignments. That nobody
assigns to a field of a frozen class is said by the type checker, which sees the library's own `dataclass`.
"""

from __future__ import annotations

import dataclasses
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
        own = vars(cls)
        methods: dict[str, object] = {"__repr__": _repr}
        if eq:
            methods["__eq__"] = _eq
            methods["__hash__"] = _hash if frozen else None
        methods = {name: method for name, method in methods.items() if own.get(name) is None}
        dataclasses.dataclass(repr=False, eq=False)(cls)
        for name, method in methods.items():
            setattr(cls, name, method)
        cls._compared = staticmethod(_getter([f.name for f in dataclasses.fields(cls) if f.compare]))
        return cls


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
    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
