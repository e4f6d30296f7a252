"""`dataclass`: the standard library's, of which classes share all methods but `__init__`. `Record`: a value
that opening a library needs, whose class takes no time to define at all.

The library writes and compiles six functions for every frozen class; for the compiler's 160 classes that is a
third of the time that it takes to import, and its frozen instances are made by slow assignments. That nobody
assigns to a field of a frozen class is said by the type checker, which sees the library's own `dataclass`.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """The decorator, with or without options: fields as annotated become arguments of `__init__`; `eq`
        compares them, `frozen` makes a value of it, which can be hashed."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen, eq=eq)
        import dataclasses

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
    import dataclasses

    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


@dataclass_transform(frozen_default=True)
class Record:
    """A frozen dataclass: fields as annotated, compared and shown by value. Its instances are made slowly."""

    _fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._fields = tuple(name for name in vars(cls).get("__annotations__", ()) if not name.startswith("_"))

    def __init__(self, *values: Any, **named: Any):
        given = dict(zip(self._fields, values), **named)
        if len(given) != len(values) + len(named) or not given.keys() <= set(self._fields):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields)}")
        for name in self._fields:
            self.__dict__[name] = given[name] if name in given else getattr(type(self), name)

    def _asdict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def _replace(self, **changes: Any) -> Any:
        return type(self)(**{**self.__dict__, **changes})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__qualname__}({shown})"
