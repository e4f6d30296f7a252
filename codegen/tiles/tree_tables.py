"""Trees as their kernel walks them: an entry for each place that one may come to, in two tables.

    words[e]       left child's entry << shift | NaN goes left << bits | feature
    thresholds[e]  the right child follows the left: e = words[e] >> shift + !(x[feature] <= thresholds[e])
A leaf's threshold is NaN and its left child's entry the one before, so that walking on stays there, and all
rows walk as many steps. values[e] is a leaf's weight or, of several columns, where its weights begin.

A single row begins with the first `levels` of several trees at once, which are complete there: their nodes
lie side by side, tree by tree, in first_words and first_thresholds, so that none is gathered.
"""

from __future__ import annotations

import numpy as np

from ...ir.graph import Node
from ...ir.ops import TreeEnsemble
from ...ir.remembered import remembered
from ...records import dataclass

BEHIND = 4  # entries of each path behind them: none, its node and both children, in one line of the cache


@dataclass(frozen=True)
class TreeTables:
    """depths and targets: the steps to each tree's deepest leaf, its first column. The trees' roots are
    entries one after the other, from `root` on.

    For single rows there are all trees again, those of each target together and filled up with trees of
    nothing to a multiple of `together`: from starts[target] to starts[target + 1]; `depths` goes on with the
    steps of each such group. Where trees have all columns, all are one target's. Of every `lanes` of these,
    first_words (without children) and first_thresholds have the nodes of the first levels, from the root
    down and left to right, each of all lanes. Behind these levels path p of tree t goes on at entry
    `below` + ((t << levels) + p) * BEHIND + 1."""

    words: np.ndarray
    thresholds: np.ndarray
    values: np.ndarray
    depths: np.ndarray
    targets: np.ndarray
    starts: np.ndarray
    weights: np.ndarray
    first_words: np.ndarray
    first_thresholds: np.ndarray
    levels: int
    root: int
    below: int
    bits: int  # of a word that are the feature: 5 at least, so that a word as it is picks one of 32 lanes
    mixed: bool  # whether NaN goes left anywhere

    @property
    def shift(self) -> int:
        return self.bits + self.mixed


@remembered(4)
def tree_tables(node: Node[TreeEnsemble], together: int, lanes: int, levels: int) -> TreeTables:
    """The tables of a node's constants. levels: whose nodes single rows do not gather, at most."""
    features, thresholds, lefts, rights, missing, roots, targets, weights = (
        v.data.array for v in node.inputs[1:]
    )
    columns = weights.shape[1]
    neutral = {"sum": 0.0, "min": np.inf, "max": -np.inf}[node.op.aggregate]
    weights = np.concatenate([weights, np.full((1, columns), neutral, weights.dtype)])
    nothing = ~(len(weights) - 1)  # the leaf of a tree of nothing
    filled, starts = _by_target(roots, targets, node.op.columns if columns == 1 else 1, together, nothing)
    levels = min(node.op.depth, levels)
    first, behind = _first_levels(lefts, rights, filled, levels)
    ends = np.concatenate([np.stack([lefts, rights], 1).reshape(-1), roots])
    ends = np.concatenate([ends, np.full(-len(ends) % BEHIND, nothing, ends.dtype)])
    below, (following, _) = len(ends), _first_levels(lefts, rights, behind, 2)
    ends = np.concatenate([ends, np.insert(following, 0, nothing, 1).reshape(-1)]).astype(np.int64)
    inner, place = ends >= 0, np.arange(len(ends))
    nodes = np.where(inner, ends, 0)
    bits, mixed = feature_bits(node), bool(np.any(missing))
    compared = features.astype(np.int64) | missing.astype(np.int64) << bits
    child = np.where(inner, 2 * ends, place - 1)
    begin = place[below + 1 :: BEHIND]
    child[begin] = np.where(inner[begin], begin + 1, begin - 1)
    words = child << (bits + mixed) | np.where(inner, _at(compared, nodes), 0)
    wide = len(ends) << (bits + mixed) >= 1 << 31
    leaves = np.where(inner, 0, ~ends)
    heights = _heights(lefts, rights, node.op.depth)
    depth, groups = (_of_ends(heights, trees, 0) for trees in (roots, filled))
    first = first.reshape(len(filled) // lanes, lanes, first.shape[1]).swapaxes(1, 2)
    return TreeTables(
        words=words.astype(np.int64 if wide else np.int32),
        thresholds=_of_ends(thresholds, ends, np.nan),
        values=weights[leaves, 0] if columns == 1 else (leaves * columns).astype(np.int32),
        depths=np.concatenate([depth, groups.reshape(-1, together).max(1, initial=0)]).astype(np.int32),
        targets=targets.astype(np.int32),
        starts=starts.astype(np.int32),
        weights=weights if columns > 1 else weights[:0],
        first_words=_of_ends(compared.astype(np.min_scalar_type((1 << (bits + mixed)) - 1)), first, 0),
        first_thresholds=_of_ends(thresholds, first, np.nan),
        levels=levels,
        root=2 * len(lefts),
        below=below,
        bits=bits,
        mixed=mixed,
    )


def feature_bits(node: Node[TreeEnsemble]) -> int:
    """Of a word: 5 at least, so that a word as it is picks one of 32 lanes."""
    return max(5, int(node.op.width - 1).bit_length())


def _at(table: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """table[nodes]; zeros where there are no nodes at all."""
    return table[nodes] if len(table) else np.zeros(nodes.shape, table.dtype)


def _of_ends(table: np.ndarray, ends: np.ndarray, of_leaf: float) -> np.ndarray:
    """What a table of nodes has for each end, in its type, `of_leaf` where the end is a leaf."""
    found = np.where(ends >= 0, _at(table, np.maximum(ends, 0)), of_leaf)
    return found.astype(table.dtype)


def _first_levels(
    lefts: np.ndarray, rights: np.ndarray, trees: np.ndarray, levels: int
) -> tuple[np.ndarray, np.ndarray]:
    """(the ends of each tree's first levels, level by level, and those behind, as if leaves had themselves as
    children)."""
    level, found = trees.reshape(-1, 1), []
    for _ in range(levels):
        found.append(level)
        nodes = np.maximum(level, 0)
        children = [np.where(level >= 0, _at(ends, nodes), level) for ends in (lefts, rights)]
        level = np.stack(children, 2).reshape(len(trees), 2 * level.shape[1])
    return np.concatenate([np.zeros((len(trees), 0), trees.dtype), *found], 1), level.reshape(-1)


def _by_target(
    roots: np.ndarray, targets: np.ndarray, count: int, together: int, nothing: int
) -> tuple[np.ndarray, np.ndarray]:
    """The trees target by target, each target's filled up, and where each target's begin."""
    parts, starts = [], [0]
    for target in range(count):
        own = roots[targets == target] if count > 1 else roots
        parts.append(np.concatenate([own, np.full(-len(own) % together, nothing, roots.dtype)]))
        starts.append(starts[-1] + len(parts[-1]))
    return np.concatenate(parts), np.array(starts)


def _heights(lefts: np.ndarray, rights: np.ndarray, depth: int) -> np.ndarray:
    """The steps from each node to the deepest leaf below it."""
    heights = np.zeros(len(lefts), np.int64)
    for _ in range(depth):
        below = [np.where(ends >= 0, _at(heights, np.maximum(ends, 0)), 0) for ends in (lefts, rights)]
        heights = 1 + np.maximum(*below)
    return heights
