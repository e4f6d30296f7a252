"""`Record`: a value that opening a library needs, whose class takes no time to define."""

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
