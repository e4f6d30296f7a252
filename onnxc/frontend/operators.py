"""Every import rule there is: a room a domain, each with its list of families; and what users bring.

`Operators` is what one import knows besides: rules of the files that were given with the model, functions of
operator sets, and what is registered in this process (`custom.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from .. import custom
from ..records import dataclass
from . import contrib_ops, ml_ops, onnx_ops
from .rules import Rule, rule_table

if TYPE_CHECKING:
    from .operator_sets import OperatorSet

RULES = rule_table((*onnx_ops.FAMILIES, *ml_ops.FAMILIES, *contrib_ops.FAMILIES))


def find_rule(domain: str, op_type: str, opset: int) -> Rule | None:
    """The newest rule that the operator set has, or None."""
    return next((r for r in RULES.get((domain, op_type), ()) if r.since <= opset), None)


@dataclass(frozen=True)
class Operators:
    """The operators that are given beside a model. rules: (domain, operator) → its rules, newest first. sets:
    documents, whose functions become the model's."""

    rules: Mapping[tuple[str, str], Sequence[Rule]] = field(default_factory=dict)
    sets: tuple[OperatorSet, ...] = ()

    def custom(self, domain: str, op_type: str, opset: int) -> Rule | None:
        """The newest rule of a user's that the operator set has: what was given, then what is registered,
        then what packages bring; None for operators of ONNX's domains. Users' rules precede ours."""
        if custom.is_onnx(domain) or not op_type:
            return None
        found = self._known(domain, op_type, opset)
        if found is None and find_rule(domain, op_type, opset) is None:
            custom.load_entry_points()
            found = self._known(domain, op_type, opset)
        return found

    def _known(self, domain: str, op_type: str, opset: int) -> Rule | None:
        brought = (Rule(*rule) for rule in custom.registered(domain, op_type))
        every = (*self.rules.get((domain, op_type), ()), *brought)
        return next((rule for rule in every if rule.since <= opset), None)
