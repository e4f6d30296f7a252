"""What lets a library be opened fast: `Record`, a value whose class takes no time to define, and methods of a
class whose file is read when one of them is first asked for."""

from __future__ import annotations

from typing import Any, ClassVar, dataclass_transform


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


def imported_later(module: str, name: str, methods: str) -> type:
    """A class to inherit from with these methods of the class `name` in `module`, which is imported when one
    of them is first asked for, of an instance or of the class."""
    return type(name, (), {method: _Later(module, name, method) for method in methods.split()})


class _Later:
    """A method, which takes this object's place in its class when it is asked for."""

    def __init__(self, *place: str):
        self.place = place

    def __get__(self, instance: object, owner: type) -> Any:
        from importlib import import_module

        module, name, method = self.place
        found = vars(getattr(import_module(module), name))[method]
        for cls in owner.__mro__:
            if vars(cls).get(method) is self:
                setattr(cls, method, found)
        return found.__get__(instance, owner)
