"""TreeEnsemble: no row and no tree waits for another, whether paths are walked or all comparisons made.

    rows    for each tree: LANES * GROUPS rows at a time, whose sums lie in memory column by column. They
            walk down together (`tree_walk.py`), or all its comparisons clear bits (`tree_compare.py`)
    a row   for each target: LANES * GROUPS of its trees walk at a time, or trees of few leaves that may lie
            deep make all comparisons, LANES at a time; what is left of a part's rows goes so
A step of a walking vector gathers word and threshold of its entries (`tree_tables.py`) and a feature of its
rows, unless registers hold these. The first steps of a single row gather no entries: they choose among all
nodes of a level, which lie side by side for the trees of a vector. Where a target does not gather, lanes that
walk are single rows and more groups take their turns.

Trees are added in another order by each of these ways, and where classes tie, a label must not tell which it
was. So totals of float32 are float64, those of float64 keep what they round off, and both are rounded once.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...ir import dims, dtypes
from ...ir.graph import Constant, Node
from ...ir.ops import TreeEnsemble
from ...target import LINE, Ability, Target
from .. import costs
from ..kernel import Choice, Code, KernelText, Offer, single
from ..nests.nest import ERROR_BYTES
from ..tiles.tree_bits import lane_bits, tree_bits
from ..tiles.tree_compare import Compare
from ..tiles.tree_tables import feature_bits
from ..tiles.tree_walk import MOST_ROWS, Tiling, Walk, feature_stride, fits_registers, tables_of

GROUPS = 8  # that walk at a time: as many steps are on their way while one waits for what it gathers
FIRST_LEVELS = (
    4  # of which lanes choose by masks: each takes twice the vectors of the one before for a gather
)


def candidates(node: Node, target: Target) -> Iterable[Offer[Tiling]]:
    """Many rows walk or are compared; few walk either way."""
    if not isinstance(node.op, TreeEnsemble) or any(v.constant is None for v in node.inputs[1:]):
        return
    wide, compared = target.lanes(node.inputs[0].dtype), _compared(node, target)
    gathers = Ability.GATHER in target.abilities
    trees, most = dims.typical(node.inputs[6].tensor.count), dims.typical(node.inputs[0].shape[0])
    lanes, step = (wide, costs.WALKED_VECTOR / wide) if gathers else (1, costs.WALKED)
    groups = max(2, min(GROUPS, -(-max(trees, most) // lanes))) if gathers else GROUPS
    levels = FIRST_LEVELS if Ability.PERMUTE in target.abilities else 1
    steps, one = trees * max(1, node.op.depth), _single(node, target, lanes)
    rows = _rows(node, target, lanes * groups)
    yield _offer(node, target, Tiling(lanes, groups, levels, rows, None, one), steps * step)
    if compared is not None:
        yield _offer(node, target, Tiling(lanes, groups, levels, MOST_ROWS, wide, one), compared / wide)


def _single(node: Node[TreeEnsemble], target: Target, lanes: int) -> bool:
    """Whether a single row makes all comparisons of trees that are lanes, as that is faster than to walk."""
    if lanes == 1 or not fits_registers(node, target, lanes):
        return False
    found = lane_bits(node, lanes, feature_bits(node))
    if found is None:
        return False
    steps = (
        max(0, node.op.depth - FIRST_LEVELS) * costs.WALKED_VECTOR
        + (1 << FIRST_LEVELS) * costs.COMPARED_TREES
    )
    return len(found.words) * costs.COMPARED_TREES < (len(found.firsts) - 1) * steps


def _offer(node: Node[TreeEnsemble], target: Target, tiling: Tiling, row: float) -> Offer[Tiling]:
    tables, count = sum(v.data.nbytes for v in node.inputs[1:]), dims.typical(node.inputs[0].shape[0])
    rows = costs.overhead(target, row * count)
    found = lane_bits(node, tiling.lanes, feature_bits(node)) if tiling.single and count == 1 else None
    if found is not None:
        tables = sum(table.nbytes for table in (found.words, found.thresholds, found.masks))
    elif not tiling.compared:  # a line of the tables for each step that is not of the first levels
        steps = max(1, node.op.depth - tiling.levels) * dims.typical(node.inputs[6].tensor.count)
        tables = min(tables, count * steps * LINE)
    cost = rows + costs.stored(target, tables) + costs.step(target)
    return Offer(cost, tiling, packed=tuple(range(1, 9)))


def _rows(node: Node[TreeEnsemble], target: Target, together: int) -> int:
    """Rows of a part whose features stay in the first-level cache."""
    x = node.inputs[0].tensor
    row = max(1, dims.typical(x.shape[1])) * dtypes.itemsize(x.dtype)
    fitting = target.facts.level1_bytes // 2 // row
    return max(together, min(MOST_ROWS, fitting) // together * together)


def _compared(node: Node[TreeEnsemble], target: Target) -> float | None:
    """Cycles in which a vector of rows makes all comparisons, if it can."""
    bits, x = tree_bits(node), node.inputs[0].tensor
    if bits is None or node.op.width * feature_stride(x.dtype, target) * dtypes.itemsize(x.dtype) >= 1 << 31:
        return None
    added, words = len(bits.words) * bits.weights.shape[1], int(bits.words.sum())
    return len(bits.masks) * costs.COMPARED_BITS + words * costs.BIT_FOUND + added * costs.LEAF_ADDED


def pack(node: Node[TreeEnsemble], choice: Choice[Tiling], operand: int) -> Constant | None:
    """All tables in place of the first, nothing in place of the others."""
    return Constant.of(tables_of(node, choice.tiling)[1] if operand == 1 else np.zeros(0, np.uint8))


def emit(node: Node[TreeEnsemble], choice: Choice[Tiling], target: Target) -> Code:
    k, tiling = KernelText(target), choice.tiling
    x, rows = node.inputs[0].tensor, tiling.rows
    count, size = x.shape[0], dtypes.itemsize(x.dtype)
    with k.entry() as f:
        walk = (Compare if tiling.compared else Walk)(f, node, tiling, ERROR_BYTES)
        with f.loop("%first", "%last") as part:
            first = f.mul(part.index, rows)
            walk.part(first, f.minimum(rows, f.sub(f.size(count), first)))
    scratch = walk.sums_bytes
    if tiling.compared:
        scratch += node.op.width * feature_stride(x.dtype, target) * size
    parts = dims.ceil_divide(count, rows)
    return single(k.step(parts, costs.work(choice.cost, count), ERROR_BYTES + scratch))
