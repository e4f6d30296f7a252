"""Operators that users write in Python: rules over core ops, marked with `onnxc.operator`.

    @onnxc.operator("my.domain", outputs="Y")
    def Clamp(b, X, *, low=0.0, high=6.0):
        return b.map(X, lambda x: x.clip(low, high))

Marking registers. A package brings its own by an entry point of the group `onnxc.operators` that names the
module with them; these are imported when a model has an operator that nobody else knows.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple, TypeVar

from .errors import CompileError, one_line, quote

GROUP = "onnxc.operators"


class CustomOperator(NamedTuple):
    """A rule as `operator` was told of it; outputs: their names, `?` behind those that may be left out."""

    op_type: str
    domain: str
    since: int
    function: Callable
    outputs: tuple[str, ...]


F = TypeVar("F", bound=Callable)

_registered: dict[tuple[str, str, int], CustomOperator] = {}


def operator(domain: str, *, since: int = 1, outputs: str = "Y", name: str | None = None) -> Callable[[F], F]:
    """Registers a function as the import rule of an operator, for every later compilation of this process.

    domain: of the operator, none of ONNX's own. since: the first version of the domain's operator set with
    this form. outputs: their names with spaces between, `?` behind those that a node may leave out. name: of
    the operator (None: the function's). The function takes the builder of core ops, then the operator's
    inputs (a default None makes one optional, `*` takes any number) and, as keywords, its attributes: their
    types follow from default values or annotations (`float`, `Sequence[int]`, ...; one without a default is
    required). It returns an output or a tuple of them. A rule that is registered again takes the place of
    the first. Raises CompileError for a domain of ONNX's.
    """
    check_domain(domain)
    if since < 1:
        raise CompileError(f"an operator is of operator set 1 or later, not {since}")

    def mark(function: F) -> F:
        rule = CustomOperator(name or function.__name__, domain, since, function, tuple(outputs.split()))
        _registered[rule.domain, rule.op_type, since] = rule
        return function

    return mark


def is_onnx(domain: str) -> bool:
    """Whether the operators of a domain have the meaning that ONNX gives them."""
    return not domain or domain.split(".")[:2] == ["ai", "onnx"]


def check_domain(domain: str) -> None:
    """CompileError where a domain is ONNX's own, whose operators have one meaning."""
    if is_onnx(domain):
        raise CompileError(f"the domain {quote(domain or 'ai.onnx')} is ONNX's own: choose another one")


def registered(domain: str, op_type: str) -> list[CustomOperator]:
    """The rules of an operator, newest first."""
    return sorted(
        (rule for (of, name, _), rule in _registered.items() if (of, name) == (domain, op_type)),
        key=lambda rule: -rule.since,
    )


@cache
def load_entry_points() -> None:
    """Imports what installed packages bring, once. Raises CompileError where one cannot be imported."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:  # whatever the package raises
            raise CompileError(
                f"the operators of the entry point {quote(entry.name)} cannot be imported: "
                f"{one_line(str(error) or type(error).__name__, 300)}"
            ) from None


def digest() -> str:
    """Of all that is registered: what the library of a model may depend on; empty without any."""
    if not _registered:
        return ""
    found = hashlib.sha256()
    for key, rule in sorted(_registered.items()):
        try:
            source = Path(inspect.getsourcefile(rule.function) or "").read_bytes()
        except (OSError, TypeError):
            source = getattr(rule.function, "__code__", rule.function.__class__.__call__.__code__).co_code
        found.update(repr((key, rule.outputs)).encode() + b"\0" + source)
    return found.hexdigest()
