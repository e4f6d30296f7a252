"""equal_nodes: all that kernels see of a node. Where they see no difference between two, they are asked for
offers and code once: they know neither names nor, but for indices that a formula tells, who computes a value,
and of sizes their formulas.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence

from ...ir import dims
from ...ir.graph import Constant, Node, Value, regions
from ...ir.ops import Contract, Conv, Fused, Gather, TreeEnsemble
from ...ir.ranges import bound_of, bounds_in
from ..nests.indexed import MOST_READ, repeated


def itself(constant: Constant) -> object:
    """What tells a constant from all others: the value where it is one number, else which constant it is."""
    one = constant.splat is not None or dims.product(constant.shape) == 1
    return form(constant) if one else constant


def form(constant: Constant) -> object:
    """All of a constant that code depends on: what it is made of, the value where it is one number, and those
    of indices, of which code knows whether they need a check; code reaches others by their address."""
    indices = constant.dtype in ("int32", "int64") and dims.product(constant.shape) <= MOST_READ
    if indices and constant.splat is None:
        return "indices", content(constant)
    return made_of(constant)


def made_of(constant: Constant) -> object:
    """The same of constants that are no indices."""
    if constant.splat is not None:
        return "splat", repr(constant.splat)
    if constant.derivation is not None:
        operands = [(c.dtype, c.shape, form(c)) for c in constant.derivation.operands]
        return constant.derivation.op, tuple(operands)
    return "stored", repr(constant.array.item()) if dims.product(constant.shape) == 1 else ""


def form_in(node: Node, numbers: Collection[Constant] = ()) -> Callable[[Constant], object]:
    """What the node's code depends on of its constants. Products of integers know no more of them than others
    do; epilogues know how large floats are. numbers: of which it depends on nothing but that."""
    if not isinstance(node.op, (Conv, Contract)):
        return form
    bounds = bounds_in(node.op.epilogue)
    return lambda c: ("number" if c in numbers else made_of(c), bound_of(c, bounds))


def content(constant: Constant) -> object:
    """What it holds."""
    return hashlib.sha256(constant.array.tobytes()).digest()


def seen(
    node: Node, of_constant: Callable[[Constant], object], places: dict[Value, int] | None = None
) -> object:
    """The op and choice of a node and, of its operands and results, the types, which of them are the same
    value, and what `of_constant` says; of indices, how a formula repeats them. places: the values seen
    before, numbered."""
    numbers: dict[Value, int] = {} if places is None else places
    if isinstance(
        node.op, TreeEnsemble
    ):  # whose code follows from its trees: how they are stored, what they ask
        of_constant = content

    def values(several: Sequence[Value]) -> tuple[object, ...]:
        return tuple(
            (v.type, v.constant and of_constant(v.constant), numbers.setdefault(v, len(numbers)))
            for v in several
        )

    op: object = node.op
    if isinstance(node.op, Fused):  # constants in a region have no address
        region = node.op.region
        inside = [seen(inner, itself, numbers) for inner in region.nodes]
        op = node.op.kind, values(region.inputs), tuple(inside), values(region.outputs)
    elif isinstance(node.op, Gather):
        op = node.op, repeated(node.inputs[1])
    elif regions(node.op):
        return node
    return op, node.choice, values(node.inputs), values(node.outputs)
