"""The types of what `quick.c` makes."""

from collections.abc import Callable, Sequence
from typing import Any

class Caller:
    stayed: bool
    def __init__(
        self,
        array_type: type,
        empty: Callable[..., Any],
        block: Callable[[int], Any],
        own: Callable[[int], Any],
        model: int,
        context: int,
        results: int,
        large: int,
        most: int,
        inputs: tuple[tuple[Any, int, str, int, int, int], ...],
        outputs: tuple[tuple[Any, tuple[int, ...] | None, int], ...],
    ) -> None: ...
    def run(self, values: Sequence[object]) -> list[Any] | int | None: ...
    def expect(self, shapes: list[Any], results: list[Any]) -> None: ...

def maps(address: int) -> dict[Any, Any] | list[dict[Any, Any]]: ...
