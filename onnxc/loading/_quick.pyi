"""The types of what `quick.c` makes."""

from collections.abc import Callable, Sequence
from typing import Any

class Caller:
    away: bool
    results: int
    def __init__(
        self,
        array_type: type,
        empty: Callable[..., Any],
        model: int,
        context: int,
        large: int,
        inputs: tuple[tuple[Any, int, str, int], ...],
        outputs: tuple[tuple[Any, int, tuple[int, ...] | None], ...],
    ) -> None: ...
    def run(self, values: Sequence[object]) -> list[Any] | int | None: ...
