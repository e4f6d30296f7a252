"""The import rules: every ONNX operator in terms of core ops, one file a family, all named in
this list."""

from . import (
    activations,
    attention,
    casting,
    constants,
    contrib,
    control,
    convolution,
    elementwise,
    indexing,
    linear,
    loss,
    movement,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reductions,
    resize,
    sampling,
    sequences,
    signal,
    training,
)
from .rules import Rule, rule_table

FAMILIES = (
    activations,
    attention,
    casting,
    constants,
    contrib,
    control,
    convolution,
    elementwise,
    indexing,
    linear,
    loss,
    movement,
    normalization,
    pooling,
    quantization,
    random,
    recurrent,
    reductions,
    resize,
    sampling,
    sequences,
    signal,
    training,
)

RULES = rule_table(FAMILIES)


def find_rule(domain: str, op_type: str, opset: int) -> Rule | None:
    """The newest rule that the operator set has, or None."""
    return next((r for r in RULES.get((domain, op_type), ()) if r.since <= opset), None)
