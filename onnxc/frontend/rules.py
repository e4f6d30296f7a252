"""How an import rule is written and found.

    @onnx_op(since=6)
    def HardSigmoid(b, X, *, alpha=0.2, beta=0.5):
        return b.map(X, lambda x: (alpha * x + beta).clip(0, 1))

A rule's signature is the operator's schema: after the builder `b` come the ONNX inputs (default None where
optional, `*` where variadic) and, keyword-only, the attributes with the specification's defaults. `since` is
the first operator set with that call form; a model of an older one finds the older shim. A rule returns its
output, a tuple of them, or None for outputs it leaves out. What the specification does not have
(`contrib_ops/`) also says the types of its inputs and the names of its outputs: then the rule is the only
schema there is.

    @onnx_op(since=17, ranks={"X": "n", "Scale": "<=n", "B": "<=n"})

Of an input without a shape only the run knows the rank; what a rule states of ranks saves cases (`ranks.py`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import ModuleType, NoneType
from typing import get_args

from ..records import dataclass


@dataclass(frozen=True)
class Types:
    """A type variable, `T = Annotated[Value, Types.of(...)]`: inputs annotated with it have one type, any of
    `allowed` as ONNX writes them."""

    variable: str
    allowed: frozenset[str]

    @staticmethod
    def of(variable: str, *elements: str) -> Types:
        """Tensors of these element types."""
        return Types(variable, frozenset(f"tensor({element})" for element in elements))


@dataclass(frozen=True)
class Rank:
    """How many axes an input has: a number, one of several, or a letter for what others of that letter have,
    too. fewer: or fewer, which ones before them make as many. rows: where it is a vector that is one for each
    row of matrices, so that one of them comes behind."""

    axes: int | str | tuple[int, ...]
    fewer: bool
    rows: bool = False

    @staticmethod
    def of(stated: int | str) -> Rank:
        """3, `2 or 3`, `n`, `<=1`, `<=n`, `<=n rows` or `any`."""
        if " or " in str(stated):
            return Rank(tuple(map(int, str(stated).split(" or "))), False)
        text, _, rows = str(stated).removeprefix("<=").partition(" ")
        return Rank(int(text) if text.isdigit() else text, str(stated).startswith("<="), rows == "rows")


#: That of an operand which a rule takes as it is, also where only the run knows its rank.
ANY_RANK = Rank.of("any")

#: The ranks of operands that broadcast, and of those that are all taken as they are.
BROADCAST, ANY_RANKS = {"*": "<=n"}, {"*": "any"}


@dataclass(frozen=True)
class Rule:
    """One call form of an operator. outputs: their names, `?` behind those that may be left out; only what
    onnx.defs does not know states them. ranks: those that inputs have there in every valid call (`Rank.of`),
    `*` standing for all others."""

    op_type: str
    domain: str
    since: int
    function: Callable
    outputs: tuple[str, ...] = ()
    ranks: tuple[tuple[str, int | str], ...] = ()

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function, eval_str=True)

    def ranks_of(self, count: int) -> list[Rank | None]:
        """What is stated of the ranks of so many operands."""
        stated = {name: Rank.of(rank) for name, rank in self.ranks}
        if not stated:
            return [None] * count
        _, *inputs = (p.name for p in self.signature.parameters.values() if p.kind is not p.KEYWORD_ONLY)
        names = [*inputs, *[inputs[-1]] * (count - len(inputs))][:count]
        return [stated.get(name, stated.get("*")) for name in names]


def is_optional(parameter: inspect.Parameter) -> bool:
    """Whether an input may be left out: it has a default value, or is annotated with `| None` where required
    ones follow."""
    return parameter.default is not parameter.empty or NoneType in get_args(parameter.annotation)


def onnx_op(
    since: int,
    name: str | None = None,
    domain: str = "",
    outputs: str = "",
    ranks: Mapping[str, int | str] | None = None,
) -> Callable[[Callable], Callable]:
    """Marks a rule. `name` is given where a shim's function cannot bear the operator's name; `outputs` are
    names with spaces between, `ranks` maps names of inputs to their ranks."""

    def mark(function: Callable) -> Callable:
        stated = tuple((ranks or {}).items())
        rule = Rule(name or function.__name__, domain, since, function, tuple(outputs.split()), stated)
        vars(function)["rules"] = (*getattr(function, "rules", ()), rule)
        return function

    return mark


def rule_table(families: Iterable[ModuleType]) -> dict[tuple[str, str], list[Rule]]:
    """(domain, operator) → its rules, newest first."""
    table: dict[tuple[str, str], list[Rule]] = {}
    for family in families:
        for function in vars(family).values():
            if getattr(function, "__module__", None) == family.__name__:
                for rule in getattr(function, "rules", ()):
                    table.setdefault((rule.domain, rule.op_type), []).append(rule)
    for rules in table.values():
        rules.sort(key=lambda rule: -rule.since)
    return table
