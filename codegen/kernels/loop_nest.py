"""loop_nest: the kernel that can run any op from Map to Scatter over any shape and type; last in KERNELS.

It only says which nest an op is; the nests are in the modules named here. Fast where memory is the limit
(elementwise chains, copies, transposes, gathers), right everywhere: a faster kernel is never needed, and is
tested against this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import ModuleType

from ...ir import dims
from ...ir.graph import Constant, Layout, Node, TensorType, Value
from ...ir.ops import (
    Attention,
    Broadcast,
    Concat,
    Contract,
    Conv,
    Cumulate,
    Elements,
    Gather,
    Map,
    OverlapAdd,
    Pad,
    Pool,
    Reduce,
    Reorder,
    Reshape,
    Scatter,
    Slice,
    Transpose,
)
from ...target import Target
from .. import costs
from ..costs import Estimate
from ..kernel import Choice, Code, Offer, either
from ..nests import (
    blocked_moves,
    elementwise,
    indexed,
    movement,
    overlaps,
    reduction,
    scan,
    softmax_attention,
    windows,
)
from ..nests.nest import Stages, parts_step

#: The module that writes each op's nest.
NESTS: dict[type, ModuleType] = {
    Map: elementwise,
    **dict.fromkeys((Reduce, Contract), reduction),
    **dict.fromkeys((Conv, Pool), windows),
    OverlapAdd: overlaps,
    Attention: softmax_attention,
    **dict.fromkeys((Reshape, Transpose, Slice, Pad, Broadcast, Concat, Reorder), movement),
    **dict.fromkeys((Gather, Scatter), indexed),
    **dict.fromkeys((Cumulate, Elements), scan),
}


PIECES_A_STEP = 16


def candidates(node: Node, target: Target) -> Iterable[Offer[None]]:
    """Dense operands and result for every op; for some also the blocked layouts that their operands have."""
    if type(node.op) not in NESTS or (isinstance(node.op, Contract) and node.op.rounded):
        return
    if isinstance(node.op, Reorder):
        layouts = [(node.outputs[0].tensor.layout, tuple(v.tensor.layout for v in node.inputs))]
    else:
        layouts = [(None, (None,) * len(node.inputs)), *_blocked_layouts(node, target)]
    for layout, wanted in layouts:
        stages, _ = _stages(_stored(node, wanted, layout), target)
        cost = costs.total(piece.cost for stage in stages for piece in stage if 0 not in piece.sizes)
        pieces = [-(-len(stage) // PIECES_A_STEP) for stage in stages]
        cost += costs.step(target, sum(pieces)) + _stored_operands(node, target)
        repeated = isinstance(node.op, Scatter) and indexed.filled(node) is not None
        yield Offer(cost, None, wanted, layout, (0,) if repeated else ())


def _moves_nothing(node: Node) -> bool:
    """Whether the result is stored as the operand is, only elsewhere."""
    return isinstance(node.op, Reorder) and node.inputs[0].tensor == node.outputs[0].tensor


def _stored_operands(node: Node, target: Target) -> Estimate:
    """Constants that are read as a whole."""
    if isinstance(node.op, (Gather, Scatter)):
        return Estimate()
    constants = [v.tensor for v in node.inputs if v.constant is not None]
    return costs.stored(target, sum(dims.typical(t.nbytes) for t in constants))


def _blocked_layouts(node: Node, target: Target) -> Sequence[tuple[Layout | None, tuple[Layout | None, ...]]]:
    if isinstance(node.op, Map):
        return elementwise.blocked_layouts(node)
    return blocked_moves.layouts(node, target) if isinstance(node.op, blocked_moves.OPS) else []


def _stages(node: Node, target: Target) -> Stages:
    images = (node.inputs[0].tensor, node.outputs[0].tensor) if isinstance(node.op, blocked_moves.OPS) else ()
    if any(image.layout is not None for image in images):
        return blocked_moves.stages(node, target)
    return NESTS[type(node.op)].stages(node, target)


def _stored(node: Node, inputs: Sequence[Layout | None], output: Layout | None) -> Node:
    """node as it is when its operands and results have these layouts."""

    def value(old: Value, layout: Layout | None) -> Value:
        if not isinstance(old.type, TensorType) or old.type.layout == layout:
            return old
        return Value(replace(old.type, layout=layout), old.name, old.constant)

    outputs = [
        v.type if not isinstance(v.type, TensorType) else replace(v.tensor, layout=output)
        for v in node.outputs
    ]
    return Node(node.op, tuple(map(value, node.inputs, inputs)), tuple(map(Value, outputs)), node.origin)


def pack(node: Node, choice: Choice, operand: int) -> Constant | None:
    """The number in whose place a Scatter writes."""
    return indexed.filled(node)


def emit(node: Node, choice: Choice, target: Target) -> Code:
    """A Map of short rows is two nests where only the run knows whether operands repeat, or that they are
    short."""
    code = _code(node, target, _stages(node, target))
    if not isinstance(node.op, Map):
        return code
    if (as_usual := elementwise.repeating_nowhere(node, target)) is not None:
        condition, whole = as_usual
        return either(condition, _code(whole, target, _stages(whole, target)), code)
    if (short := elementwise.short_rows(node, target)) is not None:
        return either(short, _code(node, target, elementwise.stages(node, target, short=True)), code)
    return code


def _code(node: Node, target: Target, found: Stages) -> Code:
    """A step for each stage; long lists of pieces in several, so that no kernel is endless."""
    stages, temporaries = found
    split = [stage[k : k + PIECES_A_STEP] for stage in stages for k in range(0, len(stage), PIECES_A_STEP)]
    stored = _stored_operands(node, target)
    steps = [parts_step(target, pieces, None if k else stored) for k, pieces in enumerate(split)]
    over = elementwise.over(node, target) if isinstance(node.op, Map) else ()
    changes = isinstance(node.op, Scatter) and indexed.filled(node) is None
    if changes:
        over = (0,)
    if changes or _moves_nothing(node):
        steps[0] = replace(steps[0], copies=0)  # of a Scatter the updates follow, where they belong
    return Code(tuple(steps), temporaries, over)
