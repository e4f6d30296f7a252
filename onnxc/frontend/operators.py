"""Every import rule there is: a room a domain, each with its list of families."""

from __future__ import annotations

from . import contrib_ops, ml_ops, onnx_ops
from .onnx_ops.rules import Rule, rule_table

RULES = rule_table((*onnx_ops.FAMILIES, *ml_ops.FAMILIES, *contrib_ops.FAMILIES))


def find_rule(domain: str, op_type: str, opset: int) -> Rule | None:
    """The newest rule that the operator set has, or None."""
    return next((r for r in RULES.get((domain, op_type), ()) if r.since <= opset), None)
