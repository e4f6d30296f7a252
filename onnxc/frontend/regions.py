"""What the importer and the rules of control flow share: scopes of names, and regions under construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from ..ir.builder import Builder
from ..ir.dims import Dimension
from ..ir.graph import Value

NESTING_LIMIT = 64


@dataclass
class Scope:
    """What names mean in a graph; unknown ones are looked up in the enclosing graph."""

    builder: Builder
    parent: Scope | None = None
    values: dict[str, Value | None] = field(default_factory=dict)
    depth: int = 0
    opsets: Mapping[str, int] | None = None  # of a schema's function body, where the nodes come from one

    def function_opsets(self) -> Mapping[str, int] | None:
        """The operator sets of the innermost function body around; None: the model's own."""
        scope: Scope | None = self
        while scope is not None:
            if scope.opsets is not None:
                return scope.opsets
            scope = scope.parent
        return None

    def lookup(self, name: str) -> Value | None:
        """The value of a name; None where it is absent, or was refused."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


@dataclass
class Region:
    """An imported branch or body: its builder, and its outputs in the order asked for."""

    builder: Builder
    outputs: list[Value]
    inputs: list[Value]


class Refused(Exception):
    """A value could not be imported; its cause is among the diagnostics already."""


class RanksDiffer(Exception):
    """The branches of an If give an output tensors of different rank: what follows is imported once for
    each."""

    def __init__(
        self,
        condition: Value,
        branches: tuple[onnx.GraphProto, onnx.GraphProto],
        facts: tuple[dict[str, Dimension], dict[str, Dimension]],
    ):
        self.condition, self.branches, self.facts = condition, branches, facts
